#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tasks.sh <source folder> <build folder>: several processes of ddhost that find each other as tasks of another launcher do one
# run: the bits are those of one launcher, with every strategy; whatever ends one task ends all, with one sentence, one exit
# code and no process or file left.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Starts `count` tasks with the variables of torchrun, in the background.
start_tasks() { # count, name, settings...
  local count=$1 name=$2 task
  shift 2
  pids=()
  for ((task = count - 1; task >= 0; --task)); do
    TORCHELASTIC_RUN_ID=$name RANK=$task WORLD_SIZE=$count LOCAL_RANK=$task LOCAL_WORLD_SIZE=$count MASTER_ADDR=127.0.0.1 \
      "${toy[@]}" "run.dir=$work/$name" --comm gloo "$@" >"$work/$name.$task.log" 2>&1 &
    pids[task]=$!
  done
}
codes() { # waits for all tasks
  local pid
  for pid in "${pids[@]}"; do
    local rc=0
    wait "$pid" || rc=$?
    printf '%s ' "$rc"
  done
}
run_and_wait() {
  start_tasks "$@"
  codes >"$work/codes"
}
same() { # count, name, reference, settings...
  run_and_wait "$1" "$2" --save-final "$work/$2.safetensors" "${@:4}"
  [[ $(cat "$work/codes") == "$(printf '0 %.0s' $(seq "$1"))" ]] ||
    { cat "$work/$2".*.log; fail "$2: exit codes $(cat "$work/codes")"; }
  [[ ! -s $work/$2.1.log ]] || fail "only the head speaks, but task 1 of $2 printed: $(cat "$work/$2.1.log")"
  equal "$3" "$2"
}

# The bits of one launcher, which are the same under every strategy.
reference one_zero2 --strategy zero2 --nproc 4 train.steps=3
for strategy in ddp zero1 zero2 zero3 zero3_offload fsdp; do
  same 2 "two_$strategy" one_zero2 --strategy "$strategy" --nproc 4 train.steps=3
done
same 4 four_zero3 one_zero2 --strategy zero3 train.steps=3
reference one_blocks --strategy zero2 --nproc 4 train.steps=3 train.reduce_block=2
same 2 two_blocks one_blocks --strategy zero2 --nproc 4 train.steps=3 train.reduce_block=2

# Tasks of one host share pages.
same 2 two_shm one_zero2 --strategy zero2 --nproc 4 train.steps=3 --comm shm

# Only the first task prints what a dry run shows; eval works on several launchers too.
start_tasks 2 dry --strategy zero2 --nproc 4 --dry-run
codes >"$work/codes"
[[ $(cat "$work/codes") == "0 0 " && ! -s $work/dry.1.log ]] || fail "--dry-run: $(cat "$work/codes" "$work/dry.1.log")"
"$build/ddhost" eval --model "$build/tests/plugins/toy.so" launch.from=none --nproc 2 --weights "$work/one_zero2.safetensors" \
  >"$work/eval_one" 2>/dev/null || fail "eval on one launcher"
for task in 1 0; do
  TORCHELASTIC_RUN_ID=eval RANK=$task WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 "$build/ddhost" eval --comm gloo \
    --model "$build/tests/plugins/toy.so" --weights "$work/one_zero2.safetensors" >"$work/eval_$task" 2>"$work/eval_$task.log" &
done
wait -n && wait -n || { cat "$work"/eval_*.log; fail "eval on two launchers"; }
cat "$work/eval_0" "$work/eval_1" | cmp - "$work/eval_one" || fail "eval on two launchers prints other metrics"

# A checkpoint of several launchers, resumed by one, and the other way round.
reference one_resumed --strategy zero3 --nproc 4 train.steps=6
run_and_wait 2 half --strategy zero2 --nproc 4 train.steps=6 checkpoint.every=3 checkpoint.keep_last=0
run_and_wait 2 resumed --strategy zero3 --nproc 4 train.steps=6 --resume "$work/half/checkpoints/step-3" \
  --save-final "$work/resumed.safetensors"
cmp "$work/one_resumed.safetensors" "$work/resumed.safetensors" || fail "the resumed run has other weights"
"${toy[@]}" launch.from=none "run.dir=$work/by_one" --strategy zero1 --nproc 4 train.steps=6 \
  --resume "$work/half/checkpoints/step-3" --save-final "$work/by_one.safetensors" >"$work/by_one.log" 2>&1 ||
  { cat "$work/by_one.log"; fail "one launcher does not resume"; }
cmp "$work/one_resumed.safetensors" "$work/by_one.safetensors" || fail "resumed by one launcher: other weights"

# What ends one ends all, and the head says why.
said() { # name, count of tasks, expected codes, part of the sentence
  codes >"$work/codes"
  [[ $(cat "$work/codes") == "$3" ]] || { cat "$work/$1".*.log; fail "$1: exit codes $(cat "$work/codes"), not $3"; }
  [[ -z $4 ]] || grep -qE "^ddhost: .*$4" "$work/$1".*.log || { cat "$work/$1".*.log; fail "$1: no sentence '$4'"; }
  for ((task = 0; task < $2; ++task))
    do [[ -z $(ps -o pid= --ppid "${pids[task]}" 2>/dev/null) ]] || fail "$1: processes are left"; done
  [[ -z $(ls "$work/.ddhost" 2>/dev/null) ]] || fail "$1: left $(ls "$work/.ddhost")"
}
until_step() { # name
  for _ in $(seq 300); do
    [[ ! -s $work/$1/metrics.jsonl ]] || return 0
    sleep 0.1
  done
  cat "$work/$1".*.log
  fail "$1 makes no step"
}
long=(--strategy zero2 --nproc 4 train.steps=1000000)
start_tasks 2 rank_killed "${long[@]}"
until_step rank_killed
# Gloo's threads of the four ranks do not interrupt them (SCHED_BATCH), where the kernel lets them.
chrt -b 0 true 2>/dev/null || echo "without SCHED_BATCH: the kernel refuses it, or there is no chrt (Debian: util-linux)"
classes=$(ps -Lo cls= --ppid "${pids[0]}" --ppid "${pids[1]}" | { grep -w B || true; } | tr -d '\n ')
[[ $classes == BBBB ]] || ! chrt -b 0 true 2>/dev/null || fail "'$classes': not one thread of each of four ranks gives way"
kill -KILL "$(ps -o pid=,comm= --ppid "${pids[1]}" | awk '$2 == "ddhost" { print $1; exit }')"
said rank_killed 2 "1 1 " 'host .*: rank [23] \(pid [0-9]+\) was killed by signal 9'
start_tasks 2 member_killed "${long[@]}"
until_step member_killed
kill -KILL "${pids[1]}"
said member_killed 2 "1 137 " 'with ranks 2 to 3 is gone: its connection has ended'
start_tasks 2 head_killed "${long[@]}"
until_step head_killed
kill -KILL "${pids[0]}"
said head_killed 2 "137 1 " 'the head of the run at .* is gone'
start_tasks 2 stopped "${long[@]}" launch.heartbeat=1
until_step stopped
kill -STOP "${pids[1]}"
wait "${pids[0]}" && fail "a run with a stopped member succeeds"
grep -q "nothing was heard of it for 1 s" "$work/stopped.0.log" || fail "stopped: $(cat "$work/stopped.0.log")"
kill -CONT "${pids[1]}"
wait "${pids[1]}" || true
start_tasks 2 terminated "${long[@]}" checkpoint.every=500000
until_step terminated
kill -TERM "${pids[1]}"
said terminated 2 "143 143 " 'signal 15 .* has come.*: the run ends after the current step'
[[ -d $work/terminated/checkpoints ]] || fail "SIGTERM to a member saved no checkpoint"

# Mistakes.
refused() { # part of the sentence, command...
  local said_here
  ! said_here=$(timeout 30 "${@:2}" 2>&1) || fail "accepted: ${*:2}"
  [[ $said_here == "ddhost: "*"$1"* && $said_here != *$'\n'* ]] || fail "'$1' is not what '${*:2}' says: $said_here"
}
refused "RANK=5 and WORLD_SIZE=4 contradict each other" env RANK=5 WORLD_SIZE=4 "${toy[@]}"
refused "RANK=x is not a number" env RANK=x WORLD_SIZE=4 "${toy[@]}"
refused "a batch script runs a command once" env SLURM_JOB_ID=1 SLURM_PROCID=0 SLURM_NTASKS=4 "${toy[@]}"
refused "launch.from=nobody is no known launcher" "${toy[@]}" launch.from=nobody
refused "has not started this process" "${toy[@]}" launch.from=torchrun
refused "task 1 of the 2 that torchrun started has not come within 1 s" env TORCHELASTIC_RUN_ID=alone RANK=0 WORLD_SIZE=2 \
  "${toy[@]}" launch.timeout=1
refused "task 1 has not found the head of the run within 1 s" env TORCHELASTIC_RUN_ID=alone RANK=1 WORLD_SIZE=2 \
  "${toy[@]}" launch.timeout=1
mkdir -p "$work/.ddhost"
echo x >"$work/shared"
chmod 644 "$work/shared"
refused "others may read it (mode 644)" env TORCHELASTIC_RUN_ID=m RANK=1 WORLD_SIZE=2 "${toy[@]}" \
  "launch.rendezvous=$work/shared" launch.timeout=1
start_tasks 2 uneven --strategy zero2 --nproc 3 train.steps=3
said uneven 2 "1 1 " "run.nproc=3 can't be divided equally among the 2 tasks"
start_tasks 2 threads --comm loop --nproc 2 train.steps=3
said threads 2 "1 1 " "comm 'loop' has all ranks in one process"
echo "all tasks agree"
