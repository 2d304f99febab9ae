#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# faults.sh <source folder> <build folder> [rounds]: faults of a run on two hosts with two ranks each, `rounds` times (1): a
# rank is killed, a host is cut off, the head is killed, Ctrl-C. Each comes at a random time and is named in time; afterwards no
# host has a process, shared memory or a port that listens, and there is no rendezvous file. Prints how long each took. Needs
# root, ip, sshd and ssh; otherwise it is skipped.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/namespaces.sh"
rounds=${3:-1}
printf 'node1 slots=2\nnode2 slots=2\n' >"$work/hosts"
# What a run has left on a host.
left_on() { # number
  inside "$1" bash -c 'ps -o pid=,args= -C ddhost,ddhost-output; ls -A /dev/shm; ss -Hltn | grep -v ":22 "' || true
}
nothing_is_left() { # ms after which there must be nothing
  local until=$(($(now_ms) + $1)) left
  while true; do
    left=$(left_on 1; left_on 2; ls -A "$work/.ddhost" 2>/dev/null || true)
    [[ -n $left ]] || return 0
    (($(now_ms) < until)) || fail "$name: after $1 ms there is still: $left"
    sleep 0.05
  done
}
kill_a_rank() { # the parent of a rank is another ddhost
  local host=$((1 + RANDOM % 2)) victims
  mapfile -t victims < <(inside "$host" ps -o pid=,ppid= -C ddhost |
    awk '{ parent[$1] = $2 } END { for (pid in parent) if (parent[pid] in parent) print pid }')
  inside "$host" kill -KILL "${victims[RANDOM % ${#victims[@]}]}"
}
cut_off() { ip link set "dh$((id % 100000))n2" nomaster; }
kill_head() { kill -KILL "$run"; }
interrupt() { kill -INT "$run"; }

# Prints the ms until the sentence and until the end.
disturbed() { # name, exit code, sentence, ms in which the sentence must be there, command
  local name=$1 code=$2 sentence=$3 limit=$4 rc=0 said=- began
  rm -rf "$work/$name" "$work/$name.log"
  # Ctrl-C reaches a command in the background of a script only if that does not ignore it.
  env --default-signal=INT "${toy[@]}" --ssh-config "$work/ssh_config" --hostfile "$work/hosts" "run.dir=$work/$name" \
    --strategy zero2 train.steps=1000000 launch.heartbeat=1 >"$work/$name.log" 2>&1 &
  run=$!
  until_rows "$name" 2
  sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
  began=$(now_ms)
  "$5" || fail "$name: the fault could not be made"
  if [[ -n $sentence ]]; then
    until grep -qE "$sentence" "$work/$name.log"; do
      (($(now_ms) - began < 10000)) || { cat "$work/$name.log"; fail "$name: no sentence '$sentence'"; }
      sleep 0.01
    done
    said=$(($(now_ms) - began))
    ((said <= limit)) || fail "$name: the sentence came after $said ms"
  fi
  wait "$run" || rc=$?
  [[ $rc == "$code" ]] || { cat "$work/$name.log"; fail "$name: exit code $rc"; }
  nothing_is_left $((5000 - ($(now_ms) - began)))
  echo "$name $said $(($(now_ms) - began))" >>"$work/times"
}
for round in $(seq "$rounds"); do
  disturbed rank_killed 1 \
    '^ddhost: (host node[12]: )?rank [0-3] \(pid [0-9]+\) was killed by signal 9 .* at step [0-9]+' 1000 kill_a_rank
  disturbed host_cut_off 1 '^ddhost: host node2 with ranks 2 to 3 is gone: nothing was heard of it for 1 s' 2000 cut_off
  ip link set "dh$((id % 100000))n2" master "$bridge"
  disturbed head_killed 137 "" 0 kill_head
  disturbed ctrl_c 130 '^ddhost: .*signal 2' 2000 interrupt
done
echo "fault ($rounds times), ms until the sentence (median, most), ms until nothing was left (median, most)"
for name in rank_killed host_cut_off head_killed ctrl_c; do
  column() { awk -v name="$name" -v column="$1" '$1 == name { print $column }' "$work/times" | median_and_most; }
  echo "$name  $(column 2)  $(column 3)"
done
