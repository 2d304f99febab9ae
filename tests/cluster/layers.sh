#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# layers.sh <source folder> <build folder> [all]: runs on several hosts with one transport inside a host and another between
# hosts have the bits of one host, and send as many bytes between hosts as one rank of each host would. The model is large
# enough for chunks. A rank that is killed is named. `all`: every strategy, and the bytes at the hosts' interfaces.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/namespaces.sh"
toy=("$build/ddhost" --model "$build/tests/plugins/eltwise.so" run.sample_tokens=0 model.rows=200 model.columns=301)
on_hosts=("${toy[@]}" --ssh-config "$work/ssh_config")
printf 'node1 slots=2\nnode2 slots=2\n' >"$work/hosts_2_2"
printf 'node1 slots=3\nnode3 slots=1\n' >"$work/hosts_3_1"
printf 'node1 slots=1\nnode2 slots=2\nnode3 slots=1\n' >"$work/hosts_1_2_1"

on() { # name, hostfile, settings...
  "${on_hosts[@]}" "run.dir=$work/$1" --save-final "$work/$1.safetensors" --hostfile "$work/$2" "${@:3}" \
    >"$work/$1.log" 2>&1 || { cat "$work/$1.log"; fail "$1"; }
}
same() { # name, reference, hostfile, part of the sentence about the sums, settings...
  on "$1" "$3" "${@:5}"
  grep -q "'shm' inside a host, 'gloo' between hosts; $4" "$work/$1.log" ||
    { cat "$work/$1.log"; fail "$1: not the order '$4'"; }
  equal "$2" "$1"
}

# The memory of the transports is that of the plan, to the byte.
as_planned() { # name, hostfile, settings...
  local planned taken
  planned=$("$build/ddhost" plan "${toy[@]:1}" --hostfile "$work/$2" --json "${@:3}" | grep -m1 -oE '"comm": [0-9]+')
  taken=$(grep -oE '"comm":\{"now":[0-9]+,"peak":[0-9]+' "$work/$1/metrics.jsonl" | grep -oE '[0-9]+$' | sort -n | tail -1)
  [[ $planned == "\"comm\": $taken" ]] || fail "$1: the transports take $taken bytes, and the plan has $planned"
}

few=(train.steps=3)
reference one --strategy zero2 --nproc 4 "${few[@]}"
reference one_blocks --strategy zero2 --nproc 4 "${few[@]}" train.reduce_block=2
same chain one hosts_2_2 "sums go on from host to host" --strategy zero2 "${few[@]}"
as_planned chain hosts_2_2 --strategy zero2
same chain_3_1 one hosts_3_1 "sums go on from host to host" --strategy zero3 "${few[@]}" --comm auto
as_planned chain_3_1 hosts_3_1 --strategy zero3
same blocks one_blocks hosts_2_2 "hosts add their sums" --strategy ddp "${few[@]}" train.reduce_block=2
same flat one_blocks hosts_3_1 "sums take the transport between hosts alone" --strategy zero1 "${few[@]}" train.reduce_block=2
on named hosts_2_2 --strategy zero2 "${few[@]}" --comm gloo
grep -q " over gloo" "$work/named.log" || fail "--comm gloo is not gloo for all ranks"
equal one named

# The same hosts by the variables of torchrun, with a task for each rank.
pids=()
for task in 3 2 1 0; do
  inside $((task / 2 + 1)) env TORCHELASTIC_RUN_ID=layers RANK=$task WORLD_SIZE=4 LOCAL_RANK=$((task % 2)) LOCAL_WORLD_SIZE=2 \
    MASTER_ADDR="$net.1" "${toy[@]}" "run.dir=$work/by_torchrun" --save-final "$work/by_torchrun.safetensors" \
    --strategy zero2 "${few[@]}" >"$work/by_torchrun.$task.log" 2>&1 &
  pids+=($!)
done
for pid in "${pids[@]}"; do
  wait "$pid" || { cat "$work"/by_torchrun.*.log; fail "by_torchrun"; }
done
grep -q "'shm' inside a host, 'gloo' between hosts" "$work/by_torchrun.0.log" ||
  { cat "$work/by_torchrun.0.log"; fail "by_torchrun: the ranks of a host do not share memory"; }
equal one by_torchrun

# A rank of another host that dies is named, and ends the run.
"${on_hosts[@]}" --hostfile "$work/hosts_2_2" "run.dir=$work/killed" --strategy zero2 train.steps=1000000 \
  >"$work/killed.log" 2>&1 &
run=$!
until_rows killed 5
on_node2=$(ps -o pid= --ppid "${host_pid[2]}" | head -1)
nsenter -t "$on_node2" -p -m bash -c 'kill -KILL $(ps -o pid= -C ddhost | tail -1)'
began=$(date +%s%N)
rc=0
wait "$run" || rc=$?
(($(date +%s%N) - began < 5000000000)) || fail "a killed rank ends the run after more than 5 s"
[[ $rc == 1 ]] && grep -qE "^ddhost: host node2: rank [23] \(pid [0-9]+\) was killed by signal 9" "$work/killed.log" ||
  { cat "$work/killed.log"; fail "the killed rank is not named (exit code $rc)"; }
(($(grep -cE '"rank": [0-3],' "$work/killed/run.json") == 4)) ||
  { cat "$work/killed/run.json"; fail "the record of the failed run lacks ranks of a host"; }
for n in 1 2; do
  [[ -z $(ssh -F "$work/ssh_config" "node$n" "ps -o pid= -C ddhost,ddhost-output" || true) ]] || fail "ranks are left on node$n"
done
echo "both layers agree with one host"
[[ ${3:-} == all ]] || exit 0

reference two --strategy zero2 --nproc 2 "${few[@]}"
printf 'node1\nnode2\n' >"$work/hosts_1_1"
on one_each hosts_1_1 --strategy zero2 "${few[@]}"
grep -q " over gloo" "$work/one_each.log" || fail "hosts of one rank each have two transports"
equal two one_each

ways=(ddp zero1 zero2 zero3 zero3_offload fsdp "fsdp strategy.sharding_strategy=SHARD_GRAD_OP"
  "fsdp strategy.sharding_strategy=NO_SHARD")
for block in 1 2; do
  of_one=$([[ $block == 1 ]] && echo one || echo one_blocks)
  for hosts in hosts_2_2 hosts_3_1 hosts_1_2_1; do
    for ((i = 0; i < ${#ways[@]}; ++i)); do
      # shellcheck disable=SC2086
      on "$hosts-$block-$i" "$hosts" "train.reduce_block=$block" "${few[@]}" --strategy ${ways[i]}
      equal "$of_one" "$hosts-$block-$i"
    done
  done
done
# Shards inside a host, sums between hosts.
for mode in HYBRID_SHARD _HYBRID_SHARD_ZERO2; do
  hybrid=(--strategy fsdp "strategy.sharding_strategy=$mode" train.reduce_block=2 "${few[@]}")
  reference "one$mode" --nproc 4 run.ranks_per_node=2 "${hybrid[@]}"
  on "two$mode" hosts_2_2 "${hybrid[@]}"
  equal "one$mode" "two$mode"
  as_planned "two$mode" hosts_2_2 "${hybrid[@]}"
done

# What the interface of node1 sends and receives in a step does not grow with the ranks of a host.
printf 'node1 slots=4\nnode2 slots=4\n' >"$work/hosts_4_4"
moved() {
  local counts="/sys/class/net/dh$((id % 100000))n1/statistics"
  echo $(($(<"$counts/rx_bytes") + $(<"$counts/tx_bytes")))
}
bytes_of_steps() { # hostfile, settings...: of 8 steps
  local few_bytes before
  before=$(moved)
  on few "$1" model.rows=1000 model.columns=1000 train.steps=2 "${@:2}" >&2
  few_bytes=$(($(moved) - before))
  before=$(moved)
  on more "$1" model.rows=1000 model.columns=1000 train.steps=10 "${@:2}" >&2
  echo $(($(moved) - before - few_bytes))
  rm -rf "$work/few"* "$work/more"*
}
for strategy in zero2 ddp; do
  alone=$(bytes_of_steps hosts_1_1 --strategy "$strategy")
  blocks=$(bytes_of_steps hosts_4_4 --strategy "$strategy" train.reduce_block=4)
  chain=$(bytes_of_steps hosts_4_4 --strategy "$strategy")
  echo "$strategy, bytes of 8 steps at the interface of a host: 2x1 $alone, 2x4 in blocks $blocks, 2x4 in a chain $chain"
  ((blocks * 100 <= alone * 102)) || fail "$strategy in blocks sends $blocks bytes, and one rank of each host $alone"
  ((chain * 100 <= alone * 152)) || fail "$strategy in a chain sends $chain bytes, and one rank of each host $alone"
done
echo "all strategies agree"
