#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# memory_checkpoints.sh <source folder> <build folder> [times]: checkpoint.memory_every. A rank of gpt_tiny is killed at a
# random time, `times` times; the ranks go on from the checkpoint in memory, with the rows and weights of a run that nothing
# disturbs. Then: the launcher is killed too, another run takes the folder, and what is refused. Nothing stays in /dev/shm.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cluster/common.sh"
times=${3:-3} steps=200
gpt=("$build/ddhost" --config "$source/configs/gpt_tiny.json" --nproc 2 run.sample_tokens=0 train.eval_every=0 launch.from=none
  run.known_curve= "train.steps=$steps")
folders() { find /dev/shm -maxdepth 1 -name "ddhost-$(id -u)-*" | sort; }
there_before=$(folders)
remove_folders() { comm -13 <(echo "$there_before") <(folders) | xargs -r rm -rf; }
at_end=(remove_folders)
nothing_left() { [[ $(folders) == "$there_before" ]] || fail "$1: left $(folders)"; }

"${gpt[@]}" "run.dir=$work/whole" --save-final "$work/whole.safetensors" >"$work/whole.log" 2>&1 ||
  { cat "$work/whole.log"; fail "the run that nothing disturbs"; }

rows() { { wc -l <"$work/$1/metrics.jsonl"; } 2>/dev/null || echo 0; }
last_step() { tail -n 1 "$work/$1/metrics.jsonl" 2>/dev/null | grep -oE '"step":[0-9]+' | cut -d: -f2 || true; }

# Prints the milliseconds from the kill to the first step that the run had not done before.
kill_one() { # name, strategy
  local name=$1 run victims killed before now rc=0
  "${gpt[@]}" --strategy "$2" "run.dir=$work/$name" --save-final "$work/$name.safetensors" checkpoint.memory_every=10 \
    launch.max_restarts=1 >"$work/$name.log" 2>&1 &
  run=$!
  until_rows "$name" $((15 + RANDOM % 120))
  mapfile -t victims < <(ranks_of "$run")
  before=$(last_step "$name")
  kill -KILL "${victims[RANDOM % ${#victims[@]}]}"
  killed=$(date +%s%N)
  for _ in $(seq 2000); do
    now=$(last_step "$name")
    ! grep -q '^ddhost: restart ' "$work/$name.log" || ((${now:-0} <= before + 1)) || break
    sleep 0.005
  done
  local ms=$((($(date +%s%N) - killed) / 1000000))
  echo "$2: killed after step $before, a new step after $ms ms"
  ((ms < 8000)) || fail "$name: a new step after $ms ms"
  wait "$run" || rc=$?
  [[ $rc == 0 ]] || { cat "$work/$name.log"; fail "$name: exit code $rc"; }
  grep -qE 'the ranks start again from the checkpoint in memory, of step [0-9]+0$' "$work/$name.log" ||
    { cat "$work/$name.log"; fail "$name: it did not go on from memory"; }
  equal whole "$name"
  [[ ! -e $work/$name/checkpoints ]] || fail "$name: checkpoints on the disk"
  nothing_left "$name"
  rm -rf "${work:?}/$name" "$work/$name.safetensors"
}
strategies=(ddp zero1 zero2 zero3 fsdp)
for ((i = 0; i < times; ++i)); do kill_one "killed-$i" "${strategies[i % 5]}"; done

start() { # name, settings...
  "${gpt[@]}" "run.dir=$work/$1" checkpoint.memory_every=10 "${@:2}" >"$work/$1.log" 2>&1 &
  run=$!
}
# Before the first checkpoint the ranks begin anew. Without a restart the newest state stays in memory, and is told.
start early launch.max_restarts=1 --save-final "$work/early.safetensors"
until_rows early 3
mapfile -t victims < <(ranks_of "$run")
kill -KILL "${victims[0]}"
wait "$run" || { cat "$work/early.log"; fail "a rank that is killed early"; }
equal whole early
nothing_left early
start failed
until_rows failed 25
mapfile -t victims < <(ranks_of "$run")
kill -KILL "${victims[1]}"
! wait "$run" || fail "a killed rank is no failure"
grep -q 'stays in memory .*--resume auto goes on from it' "$work/failed.log" ||
  { cat "$work/failed.log"; fail "the checkpoint that stays is not told"; }
"${gpt[@]}" "run.dir=$work/failed" --resume auto --save-final "$work/failed.safetensors" >"$work/again.log" 2>&1 ||
  { cat "$work/again.log"; fail "the failed run is not resumed"; }
grep -qE 'resumed after step [0-9]+0 from ./dev/shm/' "$work/failed/log.txt" || fail "it was not resumed from memory"
equal whole failed
nothing_left "a failed run that was resumed"

# A folder that somebody removes during the run is made again, for this user alone.
start vanished launch.max_restarts=1 checkpoint.memory_every=50 --save-final "$work/vanished.safetensors"
until_rows vanished 60
rm -r "$(comm -13 <(echo "$there_before") <(folders))"
until_rows vanished 115
mapfile -t victims < <(ranks_of "$run")
kill -KILL "${victims[0]}"
wait "$run" || { cat "$work/vanished.log"; fail "a run whose memory was removed"; }
grep -q 'the ranks start again from the checkpoint in memory, of step 1[05]0' "$work/vanished.log" ||
  { cat "$work/vanished.log"; fail "vanished: it did not go on from memory"; }
equal whole vanished
nothing_left vanished

# The launcher is killed too: the memory stays until the next run in the folder, which goes on from it.
kill_all_of() { # name: after its 25th row
  until_rows "$1" 25
  kill -KILL "$run"
  wait "$run" 2>/dev/null || true
}
start killed
kill_all_of killed
[[ $(folders) != "$there_before" ]] || fail "there is no folder in memory"
"${gpt[@]}" "run.dir=$work/killed" --resume auto --strategy zero3 --save-final "$work/killed.safetensors" \
  >"$work/again.log" 2>&1 || { cat "$work/again.log"; fail "the run is not resumed"; }
grep -qE 'resumed after step [0-9]+0 from ./dev/shm/' "$work/killed/log.txt" || fail "it was not resumed from memory"
equal whole killed
nothing_left "a resumed run"

# A run that begins in the folder of a killed one has nothing of it.
start other
kill_all_of other
rm -rf "${work:?}/other"
"${gpt[@]}" "run.dir=$work/other" --resume auto train.steps=5 >"$work/other.log" 2>&1 || fail "a new run in the folder"
[[ $(rows other) -ge 5 && $(grep -c '"step":1,' "$work/other/metrics.jsonl") == 1 ]] || fail "the new run is not new"
nothing_left "a new run"

# So does who removes the run.
start removed
kill_all_of removed
for _ in $(seq 100); do # the ranks of a launcher that was killed end a moment later
  ! "$build/ddhost" runs rm --yes "$work/removed" >"$work/rm.log" 2>&1 || break
  sleep 0.05
done
[[ ! -e $work/removed ]] || { cat "$work/rm.log"; fail "runs rm"; }
nothing_left "a removed run"

# Checkpoints on the disk come by the clock as well.
"${gpt[@]}" "run.dir=$work/both" train.steps=60 checkpoint.memory_every=1 checkpoint.every_minutes=0.002 \
  checkpoint.keep_last=0 >"$work/both.log" 2>&1 || { cat "$work/both.log"; fail "checkpoints in both places"; }
(($(find "$work/both/checkpoints" -maxdepth 1 -name 'step-*' | wc -l) >= 3)) ||
  { cat "$work/both.log"; fail "checkpoints in memory keep those on the disk from being saved"; }
nothing_left "a run with both"

# A signal ends a run with a checkpoint on the disk, and nothing in memory.
start stopped
until_rows stopped 25
kill -TERM "$run"
rc=0
wait "$run" || rc=$?
[[ $rc == 143 && -d $work/stopped/checkpoints ]] || { cat "$work/stopped.log"; fail "stopped: exit code $rc"; }
nothing_left "a stopped run"

# A folder that others can read is refused.
start open
kill_all_of open
folder=$(comm -13 <(echo "$there_before") <(folders))
chmod 755 "$folder"
rm -rf "${work:?}/open"
! "${gpt[@]}" "run.dir=$work/open" checkpoint.memory_every=1 >"$work/open.log" 2>&1 || fail "an open folder is taken"
grep -q 'is not a folder that this user alone can read' "$work/open.log" || { cat "$work/open.log"; fail "no reason"; }
rm -rf "$folder"
nothing_left "an open folder"
echo "checkpoints in memory give the same bits"
