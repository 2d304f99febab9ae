#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# restarts.sh <source folder> <build folder>: a run whose rank is killed starts again and resumes. Its rows and weights are
# those of a run that nothing disturbs: on one launcher, before the first checkpoint, and with the tasks of another launcher.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
steps=600
settings=(--strategy zero2 --nproc 2 "train.steps=$steps" checkpoint.every=100)
reference undisturbed "${settings[@]}"

kill_a_rank() { # launcher
  local victims
  mapfile -t victims < <(ranks_of "$1")
  kill -KILL "${victims[RANDOM % ${#victims[@]}]}"
}
check() { # name, log, restarts
  [[ $(grep -c '^ddhost: restart ' "$2") == "$3" ]] || { cat "$2"; fail "$1: not $3 restarts"; }
  grep -qE '^ddhost: (host .*: )?rank [01] \(pid [0-9]+\) was killed by signal 9' "$2" ||
    { cat "$2"; fail "$1: the rank is not named"; }
  equal undisturbed "$1"
}

# Twice, at random times after the first checkpoint, and once before it.
alone() { # name, rows before each kill...
  local name=$1 rc=0 rows
  shift
  "${toy[@]}" launch.from=none "${settings[@]}" "run.dir=$work/$name" --save-final "$work/$name.safetensors" \
    launch.max_restarts=3 >"$work/$name.log" 2>&1 &
  local run=$!
  for rows in "$@"; do
    until_rows "$name" "$rows"
    kill_a_rank "$run"
    for _ in $(seq 200); do
      [[ $(grep -c '^ddhost: restart ' "$work/$name.log") == 0 ]] || break
      sleep 0.02
    done
  done
  wait "$run" || rc=$?
  [[ $rc == 0 ]] || { cat "$work/$name.log"; fail "$name: exit code $rc"; }
  check "$name" "$work/$name.log" $#
}
alone early 20
alone twice $((120 + RANDOM % 80)) $((350 + RANDOM % 80))

# The tasks meet again.
for task in 1 0; do
  TORCHELASTIC_RUN_ID=again RANK=$task WORLD_SIZE=2 LOCAL_RANK=$task LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
    "${toy[@]}" "${settings[@]}" "run.dir=$work/tasks" --comm gloo --save-final "$work/tasks.safetensors" \
    launch.max_restarts=1 >"$work/tasks.$task.log" 2>&1 &
  pids[task]=$!
done
until_rows tasks 150
kill_a_rank "${pids[1]}"
for task in 0 1; do
  wait "${pids[task]}" || { cat "$work"/tasks.*.log; fail "task $task of a run that starts again"; }
done
check tasks "$work/tasks.0.log" 1
[[ -z $(ls "$work/.ddhost" 2>/dev/null) ]] || fail "left $(ls "$work/.ddhost")"

# A signal ends the run also where it comes while the other ranks of a failed one end. The stopped one takes that long.
for task in 1 0; do
  TORCHELASTIC_RUN_ID=stopped RANK=$task WORLD_SIZE=2 LOCAL_RANK=$task LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
    "${toy[@]}" "${settings[@]}" train.steps=1000000 "run.dir=$work/stopped" --comm gloo launch.max_restarts=1 \
    >"$work/stopped.$task.log" 2>&1 &
  pids[task]=$!
done
until_rows stopped 20
kill -STOP "$(ranks_of "${pids[0]}")"
kill_a_rank "${pids[1]}"
for _ in $(seq 200); do
  [[ -n $(ranks_of "${pids[1]}") ]] || break
done
sleep 0.1 # the head hears of it
kill -TERM "${pids[0]}"
for task in 0 1; do
  rc=0
  wait "${pids[task]}" || rc=$?
  [[ $rc == 1 ]] || { cat "$work"/stopped.*.log; fail "stopped: exit code $rc of task $task"; }
done
! grep -q '^ddhost: restart ' "$work/stopped.0.log" || { cat "$work"/stopped.*.log; fail "the signal was lost"; }
grep -q 'was killed by signal 9' "$work/stopped.0.log" || { cat "$work"/stopped.*.log; fail "stopped: no reason"; }

# Not more often than allowed, and not after a mistake.
"${toy[@]}" launch.from=none "${settings[@]}" train.steps=100000 "run.dir=$work/once" launch.max_restarts=1 \
  >"$work/once.log" 2>&1 &
run=$!
until_rows once 20
kill_a_rank "$run"
for _ in $(seq 200); do
  ! grep -q '^ddhost: restart ' "$work/once.log" || break
  sleep 0.02
done
for _ in $(seq 100); do
  sleep 0.1
  [[ -z $(ranks_of "$run") ]] || kill_a_rank "$run" 2>/dev/null || true
  kill -0 "$run" 2>/dev/null || break
done
rc=0
wait "$run" || rc=$?
[[ $rc == 1 && $(grep -c '^ddhost: restart ' "$work/once.log") == 1 ]] || { cat "$work/once.log"; fail "once: exit code $rc"; }
! "${toy[@]}" launch.from=none "run.dir=$work/mistake" train.steps=-1 launch.max_restarts=3 >"$work/mistake.log" 2>&1 ||
  fail "a mistake is accepted"
! grep -q 'restart' "$work/mistake.log" || fail "a mistake is tried again"
echo "all restarts agree"
