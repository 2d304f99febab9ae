#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# hosts.sh <source folder> <build folder>: ddhost starts ranks on hosts of a hostfile over SSH. The hosts are three network
# namespaces with an sshd, a name and shared memory of their own. The bits are those of one host, with 2 + 2 and 3 + 1 ranks; a
# host that is cut off or crashes is named; nothing is left. Needs root, ip, sshd and ssh; otherwise it is skipped.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/namespaces.sh"

printf 'node1 slots=2\nnode2 slots=2\n' >"$work/hosts_2_2"
printf '# three and one\nroot@node1 slots=3\r\nnode3\n' >"$work/hosts_3_1"
on_hosts=("${toy[@]}" --ssh-config "$work/ssh_config")
same() { # name, reference, hostfile, settings...
  "${on_hosts[@]}" "run.dir=$work/$1" --save-final "$work/$1.safetensors" --hostfile "$work/$3" "${@:4}" \
    >"$work/$1.log" 2>&1 || { cat "$work/$1.log"; fail "$1"; }
  grep -q "over shm and gloo" "$work/$1.log" || { cat "$work/$1.log"; fail "$1: not the transports of several hosts"; }
  equal "$2" "$1"
}
for strategy in zero2 zero3 fsdp; do
  reference "one_$strategy" --strategy "$strategy" --nproc 4 train.steps=3
  same "two_two_$strategy" "one_$strategy" hosts_2_2 --strategy "$strategy" train.steps=3
done
same three_one one_zero3 hosts_3_1 --strategy zero3 train.steps=3 model.prints=true
for line in "toy on stdout" "\[node1 1\] toy on stderr" "\[node1 2\] toy on stdout" "\[node3 3\] toy on stdout"; do
  grep -q "^$line" "$work/three_one.log" || { cat "$work/three_one.log"; fail "the output of ranks has no '$line'"; }
done
reference one_hybrid --strategy fsdp --nproc 4 train.steps=3 strategy.sharding_strategy=hybrid_shard run.ranks_per_node=2 \
  train.reduce_block=2
same two_two_hybrid one_hybrid hosts_2_2 --strategy fsdp train.steps=3 strategy.sharding_strategy=hybrid_shard \
  train.reduce_block=2

# The same hosts by mpirun, linked by MPI.
if [[ -e $build/plugins/mpi.so ]] && command -v mpirun >/dev/null; then
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout -k 5 120 mpirun --bind-to none -x HOME \
    --mca plm_rsh_agent "ssh -F $work/ssh_config" --mca oob_tcp_if_include "$net.0/24" --mca btl_tcp_if_include "$net.0/24" \
    --host node1:2,node2:2 -n 4 "${toy[@]}" --comm mpi "run.dir=$work/by_mpi" --save-final "$work/by_mpi.safetensors" \
    --strategy zero3 train.steps=3 launch.timeout=60 </dev/null >"$work/by_mpi.log" 2>&1 ||
    { cat "$work/by_mpi.log"; fail "by_mpi"; }
  grep -q '"comm.sent_between_nodes_bytes":[1-9]' "$work/by_mpi/metrics.jsonl" || fail "by_mpi: it does not have two nodes"
  equal one_zero3 by_mpi
else
  echo "without mpirun: there is no plugin mpi, or no mpirun (Debian: openmpi-bin)"
fi

# A stranger does not reach the port of a rank: its packets are dropped, and the run goes on.
"${on_hosts[@]}" --hostfile "$work/hosts_2_2" "run.dir=$work/filtered" --strategy zero2 train.steps=1000000 \
  >"$work/filtered.log" 2>&1 &
filtered=$!
for _ in $(seq 300); do
  [[ ! -s $work/filtered/metrics.jsonl ]] || break
  sleep 0.1
done
ports=$(ssh -F "$work/ssh_config" node1 "ss -Hltn" | grep -oE "$net\.1:[0-9]+" | grep -v ':22$')
[[ -n $ports ]] || fail "no rank of node1 listens"
for port in $ports; do
  rc=0
  timeout 1 bash -c "echo garbage >/dev/tcp/${port/://}" 2>/dev/null || rc=$?
  [[ $rc == 124 ]] || fail "a stranger reaches $port (exit code $rc)"
done
# Strangers on a host that is not of the run do not come in at the port of the head, and the run goes on.
port=$(ss -ltnpH | grep -w "pid=$filtered" | awk '{ print $4 }' | head -n 1)
[[ $port == "$net.254:"* ]] || fail "the head listens at '$port', not at its address in the network of the hosts"
inside 3 python3 "$(realpath "$(dirname "${BASH_SOURCE[0]}")")/strangers.py" "$port" || fail "strangers on node3"
rows=$(wc -l <"$work/filtered/metrics.jsonl")
until_rows filtered $((rows + 5))
kill -TERM "$filtered"
rc=0
wait "$filtered" || rc=$?
[[ $rc == 143 ]] || { cat "$work/filtered.log"; fail "with a stranger the run ends with $rc"; }
[[ $(grep -c 'signal 15' "$work/filtered.log") == 1 ]] || fail "not one sentence about the signal: $(cat "$work/filtered.log")"

# A host that is gone is named within the heartbeat, and nothing is left on the others.
fault() { # name, what is said, command...
  local name=$1 said=$2
  shift 2
  "${on_hosts[@]}" --hostfile "$work/hosts_2_2" "run.dir=$work/$name" --strategy zero2 train.steps=1000000 launch.heartbeat=1 \
    >"$work/$name.log" 2>&1 &
  local run=$! rc=0
  for _ in $(seq 300); do
    [[ ! -s $work/$name/metrics.jsonl ]] || break
    sleep 0.1
  done
  "$@"
  wait "$run" || rc=$?
  [[ $rc == 1 ]] || { cat "$work/$name.log"; fail "$name: exit code $rc"; }
  grep -q "^ddhost: host node2 with ranks 2 to 3 is gone: $said" "$work/$name.log" ||
    { cat "$work/$name.log"; fail "$name: the host is not named"; }
  sleep 1
  [[ -z $(ssh -F "$work/ssh_config" node1 "ps -o pid= -C ddhost,ddhost-output" || true) ]] ||
    fail "$name: ranks are left on node1"
}
fault cut "nothing was heard of it for 1 s" ip link set "dh$((id % 100000))n2" nomaster
on_node2=$(ps -o pid= --ppid "${host_pid[2]}" | head -1)
[[ -z $(nsenter -t "$on_node2" -p -m ps -o pid= -C ddhost,ddhost-output || true) ]] ||
  fail "the host that was cut off did not end its ranks"
ip link set "dh$((id % 100000))n2" master "$bridge"

# With restarts a killed rank of another host, and then a host that is gone, cost only the steps since the last checkpoint.
steps=400
again=(--strategy zero2 "train.steps=$steps" checkpoint.every=50)
reference undisturbed "${again[@]}" --nproc 4
restarted() { # name, pid, restarts
  local rc=0
  wait "$2" || rc=$?
  [[ $rc == 0 && $(grep -c '^ddhost: restart ' "$work/$1.log") == "$3" ]] || { cat "$work/$1.log"; fail "$1: exit code $rc"; }
  equal undisturbed "$1"
}
"${on_hosts[@]}" --hostfile "$work/hosts_2_2" "${again[@]}" "run.dir=$work/again" --save-final "$work/again.safetensors" \
  launch.max_restarts=2 launch.min_nodes=1 launch.heartbeat=3 launch.timeout=10 >"$work/again.log" 2>&1 &
run=$!
until_rows again 80
kill_a_rank() { inside 2 bash -c 'kill -KILL $(ps -o pid= -C ddhost | tail -1)' || fail "no rank on node2"; }
agent_of() { inside "$1" pgrep -o -f 'ddhost agent$'; } # its ranks are younger
agents="$(agent_of 1) $(agent_of 2)"
kill_a_rank
until_rows again 200
[[ "$(agent_of 1) $(agent_of 2)" == "$agents" ]] || fail "the agents did not stay where the run started again"
ip link set "dh$((id % 100000))n2" nomaster
restarted again "$run" 2
ip link set "dh$((id % 100000))n2" master "$bridge"
grep -q 'without node2 the run goes on with 2 ranks and train.grad_accum_steps=2' "$work/again.log" ||
  { cat "$work/again.log"; fail "the run does not go on without node2"; }

# Agents of other hosts than the hostfile names now are of no use.
cp "$work/hosts_2_2" "$work/hosts_moved"
"${on_hosts[@]}" --hostfile "$work/hosts_moved" "${again[@]}" "run.dir=$work/moved" --save-final "$work/moved.safetensors" \
  launch.max_restarts=1 launch.heartbeat=3 launch.timeout=10 >"$work/moved.log" 2>&1 &
run=$!
until_rows moved 80
sed -i s/node2/node3/ "$work/hosts_moved"
kill_a_rank
restarted moved "$run" 1
grep -q 'other hosts than when the run began, such as node3; so the agents of all hosts are started anew' "$work/moved.log" ||
  { cat "$work/moved.log"; fail "the agents of other hosts are not told"; }

fault crash "its connection has ended" kill -KILL "$(ps -o pid= --ppid "${host_pid[2]}" | head -1)"

# What is wrong with a host is said before any rank starts, in one sentence for each.
said=
refused() { # hostfile's text, part of the sentence, settings...
  printf '%b' "$1" >"$work/bad"
  ! said=$(timeout 60 "${on_hosts[@]}" --hostfile "$work/bad" launch.timeout=10 "${@:3}" 2>&1) || fail "accepted: $1 ${*:3}"
  [[ $said == *"ddhost: "*"$2"* ]] || fail "'$2' is not what it says about '$1' ${*:3}: $said"
}
ssh-keygen -q -t ed25519 -N '' -f "$work/strange_key"
for n in 7 8; do
  cat >>"$work/ssh_config" <<CONF
Host node$n
  HostName $net.3
  IdentityFile $work/$([[ $n == 7 ]] && echo key || echo strange_key)
  IdentitiesOnly yes
  StrictHostKeyChecking yes
  UserKnownHostsFile $([[ $n == 7 ]] && echo /dev/null || echo "$work/known")
  LogLevel ERROR
CONF
done
refused 'node1\nnode7\nnode8\nnode9\n' "host node9 has no address"
for sentence in "host node7 has a host key that is not known here" "host node8 refuses the key of this user"; do
  [[ $said == *"ddhost: $sentence"* ]] || fail "no sentence '$sentence': $said"
done
[[ $said == *"node1"*"yes"*"same"*"shared"* && $(grep -c '^ddhost: ' <<<"$said") == 3 ]] ||
  fail "not a table and one sentence for each of three hosts: $said"
refused 'node1 slots=2\n' "run.dir" "run.dir=/proc/nowhere"
refused '-oProxyCommand=x slots=1\n' "line 1: '-oProxyCommand=x' is no name of a host"
refused 'node1 slots=2\nnode3\n' "connects ranks of one host" --comm shm

cp "$build/tests/plugins/toy.so" "$work/other.so"
echo >>"$work/other.so"
inside 3 mount --bind "$work/other.so" "$build/tests/plugins/toy.so"
refused 'node1\nnode3\n' "host node3 has another plugin at '$build/tests/plugins/toy.so'"
inside 3 umount --lazy "$build/tests/plugins/toy.so"
mkdir "$work/away" "$work/data"
echo x >"$work/data/weights.safetensors"
inside 3 mount -t tmpfs tmpfs "$work/away"
refused 'node1\nnode3\n' "host node3 does not share the disk of run.dir" "run.dir=$work/away/run"
inside 3 mount -t tmpfs tmpfs "$work/data"
refused 'node1\nnode3\n' "host node3 has no '$work/data/weights.safetensors'" "train.init_from=$work/data/weights.safetensors"
[[ ! -e $work/away/run && -z $(ls -A "$work/away") ]] || fail "a refused run left $(ls -A "$work/away")"

# Without a route the address of the only interface is taken, and of several none.
unrouted() { # command...: on a host with two interfaces
  unshare --net bash -c "ip link add first type veth peer name second; for n in 1 2; do
    link=\$([[ \$n == 1 ]] && echo first || echo second); ip addr add 10.99.\$n.1/24 dev \$link; ip link set \$link up
  done; sleep 1.2; exec \"\$@\"" bash "$@"
}
first_of_two=(env TORCHELASTIC_RUN_ID=unrouted RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 "${toy[@]}"
  launch.timeout=1 "run.dir=$work/unrouted")
! said=$(unrouted "${first_of_two[@]}" 2>&1) || fail "accepted without a route"
[[ $said == *"first (10.99.1.1)"* && $said == *"second (10.99.2.1)"*"set launch.interface"* ]] ||
  fail "without a route: $said"
! said=$(unrouted "${first_of_two[@]}" launch.interface=second 2>&1) || fail "one task of two is a run"
[[ $said != *"set launch.interface"* ]] || fail "launch.interface=second: $said"

# The doctor measures the same hosts, and says so too.
doctor=("$build/ddhost" doctor --model "$build/tests/plugins/toy.so" --ssh-config "$work/ssh_config")
"${doctor[@]}" --hostfile "$work/hosts_3_1" "run.dir=$work/examined" --json >"$work/doctor.json" 2>"$work/doctor.log" ||
  { cat "$work/doctor.json" "$work/doctor.log"; fail "doctor on two hosts"; }
for text in '"would_start": true' '"transport": "shm and gloo"' '"ranks": 4' '"round_trip_s": ' \
  '"from": "root@node1"' '"sees_mark": true'; do
  grep -qF "$text" "$work/doctor.json" || { cat "$work/doctor.json"; fail "doctor: no $text"; }
done
[[ ! -e $work/examined ]] || fail "doctor makes a folder"
cp "$build/ddhost" "$work/other_ddhost"
echo >>"$work/other_ddhost"
inside 3 mount --bind "$work/other_ddhost" "$build/ddhost"
! "${doctor[@]}" --hostfile "$work/hosts_3_1" >"$work/doctor.txt" 2>&1 || fail "doctor accepts another ddhost"
grep -q "^ddhost: host node3 has another build of ddhost" "$work/doctor.txt" || fail "doctor: $(cat "$work/doctor.txt")"
inside 3 umount --lazy "$build/ddhost" # its agent may still end
inside 3 mount --bind /dev/null "$build/ddhost"
refused 'node1\nnode3\n' "host node3 has no ddhost that it can run as '$build/ddhost'"
inside 3 umount --lazy "$build/ddhost" # its agent may still end
ip link set "dh$((id % 100000))n3" nomaster
refused 'node1\nnode3\n' "host node3 " launch.timeout=3
echo "all hosts agree"
