#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# memory_copies.sh <source folder> <build folder> [times]: checkpoint.memory_every on the hosts of namespaces.sh. A rank that is
# killed at a random time, and with checkpoint.memory_copies=2 a host that is cut off, cost only the steps since the last
# checkpoint in memory; rows and weights are those of a run that nothing disturbs, `times` times each. A damaged part is named
# and not used. Nothing stays in /dev/shm of the hosts with which a run ends well.
set -euo pipefail
times=${3:-2}
source "$(dirname "${BASH_SOURCE[0]}")/namespaces.sh"

printf 'node1 slots=2\nnode2 slots=2\n' >"$work/hosts"
printf 'node1 slots=2\nnode2 slots=1\nnode3 slots=1\n' >"$work/hosts_3"
on_hosts=("${toy[@]}" --ssh-config "$work/ssh_config" launch.heartbeat=5 launch.timeout=30) # a loaded machine
steps=250
# A run that start() starts waits before its last steps until something has happened to it.
settings=("train.steps=$steps" model.hold_from_step=240 "model.hold_file=$work/go_on")
go_on() { touch "$work/go_on"; }
go_on
link() { echo "dh$((id % 100000))n$1"; }
in_memory() { inside "$1" find /dev/shm -maxdepth 1 -name 'ddhost-*'; }
nothing_left() { # name, numbers of hosts
  local n
  for n in ${2:-1 2 3}; do
    for _ in $(seq 50); do # a host that was cut off ends a moment later
      [[ -n $(in_memory "$n") ]] || continue 2
      sleep 0.1
    done
    cat "$work/$1.log"
    fail "$1: left $(in_memory "$n") on node$n"
  done
}
run=
start() { # name, hostfile, settings...
  rm -f "$work/go_on"
  "${on_hosts[@]}" --hostfile "$work/$2" "${settings[@]}" "run.dir=$work/$1" --save-final "$work/$1.safetensors" \
    launch.max_restarts=2 checkpoint.memory_every=10 "${@:3}" >"$work/$1.log" 2>&1 &
  run=$!
}
kill_a_rank() { # number of a host, "held": the next ranks wait, too
  inside "$1" bash -c 'kill -KILL $(ps -o pid= -C ddhost | tail -1)' || fail "no rank on node$1"
  [[ ${2:-} == held ]] || go_on
}
ends() { # name, restarts, reference
  local rc=0
  go_on
  wait "$run" || rc=$?
  [[ $rc == 0 && $(grep -c '^ddhost: restart ' "$work/$1.log") == "$2" ]] || { cat "$work/$1.log"; fail "$1: exit code $rc"; }
  equal "$3" "$1"
}
from_memory() { # name, times
  [[ $(grep -cE 'resumed after step [0-9]+ from ./dev/shm/' "$work/$1/log.txt") == "$2" ]] ||
    { cat "$work/$1.log"; fail "$1: it did not go on from memory"; }
  [[ ! -e $work/$1/checkpoints ]] || fail "$1: checkpoints on the disk"
}
forget() { rm -rf "${work:?}/$1" "$work/$1.safetensors"; }

strategies=(zero2 zero3 ddp zero1)
for strategy in "${strategies[@]}"; do
  reference "whole_$strategy" --nproc 4 --strategy "$strategy" "${settings[@]}"
done

# A rank, of a host that has all parts, and of one that has some. With a checkpoint after each step most die in a save.
for ((i = 0; i < times; ++i)); do
  strategy=${strategies[i % ${#strategies[@]}]}
  start killed hosts --strategy "$strategy" "checkpoint.memory_copies=$((1 + i % 2))" \
    "checkpoint.memory_every=$((i % 4 == 1 || i % 4 == 2 ? 1 : 10))"
  until_rows killed $((30 + RANDOM % 120))
  kill_a_rank $((1 + RANDOM % 2))
  ends killed 1 "whole_$strategy"
  from_memory killed 1
  nothing_left killed
  forget killed
done

# The same of a run whose codec has state on each rank.
coded=(--strategy ddp --codec "$build/tests/plugins/powersgd.so" codec.rank=2 model.width=32 model.hidden=64 model.vocab=48)
reference whole_coded --nproc 4 "${coded[@]}" "${settings[@]}"
start coded hosts "${coded[@]}" checkpoint.memory_copies=2
until_rows coded 60
kill_a_rank 2
ends coded 1 whole_coded
from_memory coded 1
nothing_left coded

# A whole host, which is cut off. Over three hosts each has two of the parts. A host without which the run goes on does not know
# that, and keeps its parts.
for ((i = 0; i < times; ++i)); do
  strategy=${strategies[i % ${#strategies[@]}]}
  hosts=$([[ $((i % 2)) == 0 ]] && echo hosts || echo hosts_3)
  start lost "$hosts" --strategy "$strategy" checkpoint.memory_copies=2 launch.min_nodes=1
  until_rows lost $((30 + RANDOM % 120))
  ip link set "$(link 2)" nomaster
  if [[ $hosts == hosts ]]; then
    ends lost 1 "whole_$strategy"
    grep -q 'without node2 the run goes on with 2 ranks' "$work/lost.log" ||
      { cat "$work/lost.log"; fail "lost: not without it"; }
    from_memory lost 1
    nothing_left lost "1 3"
    [[ -n $(in_memory 2) ]] || fail "lost: node2 has no parts"
    inside 2 find /dev/shm -maxdepth 1 -name 'ddhost-*' -exec rm -r {} +
  else # three ranks can't compute the samples of four: the host comes back, without memory of what was
    until grep -q 'is gone' "$work/lost.log"; do sleep 0.05; done
    ip link set "$(link 2)" master "$bridge"
    ends lost 1 "whole_$strategy"
    from_memory lost 1
  fi
  ip link set "$(link 2)" master "$bridge"
  nothing_left lost
  forget lost
done

# Before the first checkpoint the ranks begin anew.
start early hosts --strategy zero2 checkpoint.memory_every=100
until_rows early 20
kill_a_rank 2
ends early 1 whole_zero2
nothing_left early

# A damaged part is named. Without a copy the newest checkpoint on the disk is used, with one the copy.
damage() { # number of a host
  inside "$1" bash -c '
    for file in /dev/shm/ddhost-*/hosts/checkpoints/step-*/optimizer.safetensors; do
      bytes=$(stat -c %s "$file")
      head -c $((bytes / 2)) /dev/zero | tr "\0" "U" |
        dd of="$file" bs=1M seek=$((bytes / 2)) oflag=seek_bytes conv=notrunc 2>/dev/null
    done'
}
for copies in 1 2; do
  name=damaged$copies
  start "$name" hosts --strategy zero2 "checkpoint.memory_copies=$copies" checkpoint.memory_every=100 checkpoint.every=150 \
    "train.steps=$steps"
  until_rows "$name" 210
  damage 2
  kill_a_rank 2
  ends "$name" 1 whole_zero2
  grep -qE 'the part of rank [0-9] of the checkpoint in memory of step [0-9]+ is damaged on the host of rank [23]' \
    "$work/$name.log" || { cat "$work/$name.log"; fail "$name: the damage is not named"; }
  from=$([[ $copies == 1 ]] && echo "$work/$name/checkpoints" || echo /dev/shm)
  grep -qE "resumed after step [0-9]+ from .$from/" "$work/$name/log.txt" ||
    { cat "$work/$name.log"; fail "$name: not from $from"; }
  nothing_left "$name"
done

# A run that is stopped leaves nothing: it has a checkpoint on the disk. After a failure for good the parts stay, and the next
# run goes on from them.
start stopped hosts --strategy zero2 train.steps=1000000
until_rows stopped 40
[[ -n $(in_memory 1) && -n $(in_memory 2) ]] || fail "there are no checkpoints in memory"
go_on
kill -TERM "$run"
rc=0
wait "$run" || rc=$?
[[ $rc == 143 ]] || { cat "$work/stopped.log"; fail "stopped: exit code $rc"; }
nothing_left stopped
start failed hosts --strategy zero2 launch.max_restarts=0
until_rows failed 40
kill_a_rank 1
rc=0
wait "$run" || rc=$?
[[ $rc == 1 ]] || { cat "$work/failed.log"; fail "failed: exit code $rc"; }
grep -q 'the hosts keep their parts of checkpoints in memory .*--resume auto goes on from them' "$work/failed.log" ||
  { cat "$work/failed.log"; fail "the parts that stay are not told"; }
start failed hosts --strategy zero2 --resume auto
ends failed 0 whole_zero2
from_memory failed 1
nothing_left failed

# All hosts lose each other for a while. Each keeps its parts, and the run starts again from them.
start switched hosts_3 --strategy zero2 checkpoint.memory_copies=2 launch.heartbeat=1
until_rows switched 40
for n in 1 2 3; do ip link set "$(link "$n")" nomaster; done
until grep -q 'is gone' "$work/switched.log"; do sleep 0.05; done
until grep -q 'the hosts are asked again until' "$work/switched.log"; do sleep 0.05; done
for n in 1 2 3; do ip link set "$(link "$n")" master "$bridge"; done
ends switched 1 whole_zero2
from_memory switched 1
nothing_left switched
# A run that began with the checkpoint of another run goes on from it again, and then from its own in memory.
reference from --nproc 4 --strategy zero2 "${settings[@]}" checkpoint.every=20 checkpoint.keep_last=0
start path hosts --strategy zero2 --resume "$work/from/checkpoints/step-20" checkpoint.memory_every=100
until_rows path 20
kill_a_rank 1 held
until grep -q '^ddhost: restart 1' "$work/path.log"; do sleep 0.05; done
until_rows path 130
kill_a_rank 2
rc=0
wait "$run" || rc=$?
[[ $rc == 0 && $(grep -c '^ddhost: restart ' "$work/path.log") == 2 ]] || { cat "$work/path.log"; fail "path: exit code $rc"; }
cmp <(numbers whole_zero2 | tail -n +61) <(numbers path) || fail "path: other rows"
cmp "$work/whole_zero2.safetensors" "$work/path.safetensors" || fail "path: other weights"
grep -q "resumed after step 100 from ./dev/shm/" "$work/path/log.txt" || { cat "$work/path.log"; fail "path: not from memory"; }
nothing_left path

# The launcher is killed as well. The memory is used if all checkpoints on the disk are damaged, and the disk if a host has no
# room to bring the parts together.
kill_the_launcher() { # name, settings...
  start "$1" hosts --strategy zero2 checkpoint.every=100 "${@:2}"
  until_rows "$1" 130
  kill -KILL "$run"
  wait "$run" 2>/dev/null || true
}
kill_the_launcher unreadable
rm "$work"/unreadable/checkpoints/step-*/COMPLETE
start unreadable hosts --strategy zero2 --resume auto checkpoint.every=100
ends unreadable 0 whole_zero2
grep -q 'resumed after step 1[0-9]0 from ./dev/shm/' "$work/unreadable/log.txt" ||
  { cat "$work/unreadable.log"; fail "unreadable: not from memory"; }
nothing_left unreadable
kill_the_launcher full checkpoint.memory_every=120
inside 2 bash -c 'until [[ -z $(ps -o pid= -C ddhost) ]]; do sleep 0.05; done
  mount -o "remount,size=$(($(df -k --output=used /dev/shm | tail -1)))k" /dev/shm'
start full hosts --strategy zero2 --resume auto checkpoint.memory_every=0
ends full 0 whole_zero2
inside 2 mount -o remount,size=50% /dev/shm
grep -q "in the memory of the hosts can't be put together: .*No space left" "$work/full.log" ||
  { cat "$work/full.log"; fail "full: there was room"; }
grep -q "resumed after step 100 from .$work/full/" "$work/full/log.txt" ||
  { cat "$work/full.log"; fail "full: not from the disk"; }
nothing_left full

# Two hosts that have the same folder in memory are refused: containers with namespaces of processes alone.
for task in 0 1; do
  apart=$([[ $task == 0 ]] || echo "unshare --pid --fork --kill-child --mount-proc")
  TORCHELASTIC_RUN_ID=shared RANK=$task WORLD_SIZE=2 LOCAL_RANK=$task LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
    $apart "${toy[@]}" "${settings[@]}" "run.dir=$work/shared" checkpoint.memory_every=10 >"$work/shared.$task.log" 2>&1 &
  pids[task]=$!
done
for task in 0 1; do
  rc=0
  wait "${pids[task]}" || rc=$?
  [[ $rc == 1 ]] || { cat "$work"/shared.*.log; fail "shared: exit code $rc of task $task"; }
done
grep -q "the hosts of ranks 0 and 1 share '/dev/shm'" "$work/shared.0.log" ||
  { cat "$work"/shared.*.log; fail "shared: no reason"; }
echo "checkpoints in the memory of the hosts give the same bits"
