#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# costs.sh <source folder> <build folder> [times]: what several hosts cost, on the hosts of namespaces.sh. How much later the
# first step comes than on one host; the CPU time of the agents; the time until a new step after a rank was killed, with
# checkpoints in memory, `times` times; steps with such checkpoints beside steps without. Nothing else should run meanwhile.
set -euo pipefail
own_core=true
source "$(dirname "${BASH_SOURCE[0]}")/namespaces.sh"
times=${3:-20} rounds=5
printf 'node1 slots=1\nnode2 slots=1\n' >"$work/hosts"
printf 'node1 slots=1\nnode2 slots=1\nnode3 slots=1\n' >"$work/hosts_3"
run=
start() { # name, arguments...
  rm -rf "${work:?}/$1"
  "$build/ddhost" run.quiet=true "run.dir=$work/$1" checkpoint.on_exit=false "${@:2}" >"$work/$1.log" 2>&1 &
  run=$!
}
stop() {
  kill -TERM "$run"
  wait "$run" || true
}
over_ssh() { echo --ssh-config "$work/ssh_config" --hostfile "$work/$1"; }
last_step() { # name
  tail -n 1 "$work/$1/metrics.jsonl" 2>/dev/null | grep -oE '^\{"step":[0-9]+' | grep -oE '[0-9]+' || echo 0
}
until_step() { # name, step
  for _ in $(seq 6000); do
    (($(last_step "$1") < $2)) || return 0
    kill -0 "$run" 2>/dev/null || break
    sleep 0.005
  done
  cat "$work/$1.log"
  fail "$1: step $2 does not come"
}
tiny=(--config "$source/configs/gpt_tiny.json" train.steps=1000000 train.eval_every=0 run.known_curve=)

for ((i = 0; i < rounds; ++i)); do
  for where in one hosts; do
    began=$(now_ms)
    # shellcheck disable=SC2046
    start "first_$where" "${tiny[@]}" $([[ $where == one ]] && echo --nproc 3 || over_ssh hosts_3)
    until_step "first_$where" 1
    echo $(($(now_ms) - began)) >>"$work/first_$where.ms"
    stop
  done
done
later=$(paste "$work/first_hosts.ms" "$work/first_one.ms" | awk '{ print $1 - $2 }' | median_and_most)
echo "first step over SSH on 3 hosts, ms later than on one (median, most of $rounds): $later"
((${later% *} < 3000)) || fail "the first step comes $later ms later"

# All threads of all processes of a kind on both hosts, in ns. An agent is one that has ranks as children, and what passes on
# their output. The launcher, which is the head, runs beside the hosts.
cpu_ns() { # agents or ranks
  local n
  { [[ $1 == ranks ]] || cat /proc/"$run"/task/*/schedstat
    for n in 1 2; do
      inside "$n" bash -c 'ps -e -o pid=,ppid=,comm= | awk -v kind="$0" "
        \$3 ~ /^ddhost/ { parent[\$1] = \$2; is_agent[\$1] = \$3 != \"ddhost\" }
        END { for (pid in parent) is_agent[parent[pid]] = 1
              for (pid in parent) if (is_agent[pid] == (kind == \"agents\")) print pid }" |
        while read -r pid; do cat /proc/"$pid"/task/*/schedstat; done' "$1"
    done
  } | awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}
kill_a_rank() {
  inside $((1 + RANDOM % 2)) bash -c 'kill -KILL "$(ps -o pid=,ppid= -C ddhost |
    awk "{ parent[\$1] = \$2 } END { for (pid in parent) if (parent[pid] in parent) print pid }")"'
}
# shellcheck disable=SC2046
start agents "${tiny[@]}" data.micro_batch=12 $(over_ssh hosts)
until_step agents 20
agents=$(cpu_ns agents) ranks=$(cpu_ns ranks)
sleep 30
agents=$(($(cpu_ns agents) - agents)) ranks=$(($(cpu_ns ranks) - ranks))
step_ms=$(grep -oE '"step_ms":[0-9.]+' "$work/agents/metrics.jsonl" | cut -d: -f2 | median)
stop
share=$(awk "BEGIN { print 100 * $agents / ($agents + $ranks) }")
echo "CPU time of the agents of 2 hosts, with steps of $step_ms ms: $share % of the run's"
awk "BEGIN { exit !($share < 0.1) }" || fail "the agents take $share % of the run's CPU time"

# shellcheck disable=SC2046
start killed "${tiny[@]}" $(over_ssh hosts) checkpoint.memory_every=10 checkpoint.memory_copies=2 launch.max_restarts=1000
step=20
for ((i = 0; i < times; ++i)); do
  until_step killed $((step + 11 + RANDOM % 20))
  kill_a_rank
  began=$(now_ms)
  until grep -q "^ddhost: restart $((i + 1)) of" "$work/killed.log"; do
    kill -0 "$run" || { cat "$work/killed.log"; fail "the run does not start again"; }
    sleep 0.005
  done
  step=$(last_step killed) # none is new until the ranks have started again
  until_step killed $((step + 1))
  echo $(($(now_ms) - began)) >>"$work/killed.ms"
done
stop
newer=$(median_and_most <"$work/killed.ms")
echo "ms from the death of a rank to a new step, from memory (median, most of $times): $newer"
((${newer#* } < 2000)) || fail "a new step after $newer ms"

# Several settings, alternating.
cost() { # label, settings...
  start cost --nproc 2 train.steps=110 run.sample_tokens=0 --strategy zero2 "${@:2}"
  wait "$run" || { cat "$work/cost.log"; fail "$1"; }
  grep -oE '"step_ms":[0-9.]+' "$work/cost/metrics.jsonl" | cut -d: -f2 | tail -n +11 |
    awk '{ sum += $1 } END { print sum / NR }' >>"$work/cost.$1"
}
for ((i = 0; i < 3; ++i)); do
  # shellcheck disable=SC2046
  cost none $(over_ssh hosts)
  for every in 1 10 100; do
    for copies in 1 2; do
      # shellcheck disable=SC2046
      cost "$every.$copies" $(over_ssh hosts) "checkpoint.memory_every=$every" "checkpoint.memory_copies=$copies"
    done
  done
done
echo "0.8M GPT, zero2, 2 hosts x 1 rank: mean ms of a step (median of 3 runs), and without / with checkpoints in memory"
none=$(median <"$work/cost.none")
for setting in none 1.1 1.2 10.1 10.2 100.1 100.2; do
  with=$(median <"$work/cost.$setting")
  echo "memory_every.memory_copies $setting: $with $(awk "BEGIN { printf \"%.3f\", $none / $with }")"
done
