#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# output.sh <source folder> <build folder>: launch.output, on one launcher and on two tasks: whose lines have host and rank
# before them, on which stream they come, and which go into files.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
host=$(hostname)
run=("${toy[@]}" model.prints=true --comm shm --strategy zero2 --nproc 4 train.steps=2)

train() { # name, settings...
  "${run[@]}" launch.from=none "run.dir=$work/$1" "${@:2}" >"$work/$1.out" 2>"$work/$1.err" ||
    { cat "$work/$1.err"; fail "$1"; }
}
tasks() { # name, settings...
  local task pids=()
  for task in 1 0; do
    TORCHELASTIC_RUN_ID=$1 RANK=$task WORLD_SIZE=2 LOCAL_RANK=$task LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
      "${run[@]}" "run.dir=$work/$1" "${@:2}" >"$work/$1.$task.out" 2>"$work/$1.$task.err" &
    pids[task]=$!
  done
}
have() { # expected lines, file...: those of the model
  local lines
  lines=$(cat "${@:2}" | { grep 'toy on' || true; } | LC_ALL=C sort)
  [[ $lines == "$1" ]] || fail "the model's lines in ${*:2} are '$lines', not '$1'"
}
each() { printf '%s\n' "$@"; } # in the order of sort

train plain
have "$(each "toy on stdout" "toy on stdout" "toy on stdout" "toy on stdout")" "$work/plain.out"
have "$(each "toy on stderr" "toy on stderr" "toy on stderr" "toy on stderr")" "$work/plain.err"
train prefix launch.output=prefix
for stream in out err; do
  have "$(each "[$host "{0,1,2,3}"] toy on std$stream")" "$work/prefix.$stream"
done
grep -q "^\[$host 0\] step 2/2 " "$work/prefix.err" || { cat "$work/prefix.err"; fail "rank 0 has no prefix"; }
train files launch.output=files
have "" "$work/files.out" "$work/files.err"
for rank in 0 1 2 3; do
  have "$(each "toy on stderr" "toy on stdout")" "$work/files/output/rank-$rank.txt"
done

# Nobody reads a pipe that is full: what is left is dropped after a second, with a warning, and the run ends well.
mkfifo "$work/full"
exec 7<>"$work/full"
timeout 1 cat /dev/zero >&7 || true
timeout 30 "${run[@]}" launch.from=none launch.output=prefix "run.dir=$work/unread" >&7 2>"$work/unread.err" ||
  { cat "$work/unread.err"; fail "unread: exit code $?"; }
exec 7>&-
grep -q '^ddhost: warning: the last output of the ranks is lost' "$work/unread.err" ||
  { cat "$work/unread.err"; fail "unread: no warning"; }

# Of several launchers only rank 0 speaks for the run.
tasks auto
wait -n && wait -n || { cat "$work"/auto.*.err; fail "auto"; }
for stream in out err; do
  have "$(each "[$host 1] toy on std$stream" "toy on std$stream")" "$work/auto.0.$stream"
  have "$(each "[$host "{2,3}"] toy on std$stream")" "$work/auto.1.$stream"
done
tasks all_plain launch.output=plain
wait -n && wait -n || { cat "$work"/all_plain.*.err; fail "all_plain"; }
have "$(each "toy on stderr" "toy on stderr")" "$work/all_plain.1.err"
tasks all_files launch.output=files
wait -n && wait -n || { cat "$work"/all_files.*.err; fail "all_files"; }
have "" "$work"/all_files.*.{out,err}
have "$(each "toy on stderr" "toy on stdout")" "$work/all_files/output/rank-3.txt"

# Nothing is left where launchers are killed.
tasks killed train.steps=1000000
until_rows killed 2
mapfile -t launchers < <(jobs -pr)
kill -KILL "${launchers[@]}"
for _ in $(seq 50); do
  left=$(pgrep -f "run.dir=$work/killed" || true)
  [[ -n $left ]] || break
  sleep 0.1
done
[[ -z $left ]] || { ps -o pid,ppid,stat,args -p "${left//$'\n'/,}"; fail "processes are left"; }

! said=$("${run[@]}" launch.from=none --comm loop launch.output=prefix 2>&1) || fail "accepted with threads"
[[ $said == *"launch.output=prefix needs a process for each rank, and comm 'loop'"* ]] || fail "threads: $said"
echo "all outputs agree"
