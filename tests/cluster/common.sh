# SPDX-License-Identifier: Apache-2.0
#
# common.sh: what both scripts use. Sets $source, $build and $work, which is removed at the end.
source=$1 build=$2
work=$(mktemp -d)
export HOME=$work # the rendezvous files
at_end=(true)
clean_up() {
  local pid
  # Only those that run: the number of one that has ended may be that of a process of another test by now.
  for pid in $(jobs -pr); do kill -KILL "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  "${at_end[@]}"
  rm -rf "$work"
}
trap clean_up EXIT
fail() {
  echo "FAILED: $*"
  exit 1
}
toy=("$build/ddhost" --model "$build/tests/plugins/toy.so" run.sample_tokens=0)

# What one launcher gives on one host.
reference() { # name, settings...
  "${toy[@]}" "run.dir=$work/$1" --save-final "$work/$1.safetensors" launch.from=none "${@:2}" >"$work/$1.log" 2>&1 ||
    { cat "$work/$1.log"; fail "the reference $*"; }
}
numbers() { grep -oE '"(step|loss|grad_norm)":[^,}]*' "$work/$1/metrics.jsonl"; }
equal() { # name, name
  cmp <(numbers "$1") <(numbers "$2") || fail "loss or grad_norm of $1 and $2 differ"
  (($(numbers "$1" | wc -l) >= 9)) || fail "$1: too few rows"
  cmp "$work/$1.safetensors" "$work/$2.safetensors" || fail "the weights of $1 and $2 differ"
  echo "$1 = $2"
}
until_rows() { # name, count
  for _ in $(seq 1200); do
    [[ $({ wc -l <"$work/$1/metrics.jsonl"; } 2>/dev/null || echo 0) -lt $2 ]] || return 0
    sleep 0.025
  done
  cat "$work/$1".*log
  fail "$1 makes no rows"
}
ranks_of() { ps -o pid=,comm= --ppid "$1" | awk '$2 == "ddhost" { print $1 }' | sort -n; } # launchers, with commas
# Kills a rank of a run of several tasks while it holds. The tasks go on from the memory of the hosts, with the bits of an
# undisturbed run.
goes_on_from_memory() { # name, command that starts two tasks...
  local name=$1 run victims=() pid
  local settings=(--strategy zero2 --nproc 4 train.steps=90 model.hold_from_step=60 "model.hold_file=$work/go_on")
  touch "$work/go_on"
  reference "$name-whole" "${settings[@]}"
  rm "$work/go_on"
  timeout -k 5 120 "${@:2}" "${toy[@]}" "${settings[@]}" --comm gloo launch.max_restarts=1 checkpoint.memory_every=10 \
    "run.dir=$work/$name" --save-final "$work/$name.safetensors" </dev/null >"$work/$name.log" 2>&1 &
  run=$!
  until_rows "$name" 59
  for pid in $(ranks_of "$(pgrep -d, -x ddhost)"); do # of all tests
    ! grep -qzx "run.dir=$work/$name" "/proc/$pid/cmdline" 2>/dev/null || victims+=("$pid")
  done
  ((${#victims[@]} == 4)) || { cat "$work/$name.log"; fail "$name has ${#victims[@]} ranks"; }
  kill -KILL "${victims[RANDOM % 4]}"
  touch "$work/go_on"
  wait "$run" || { cat "$work/$name.log"; fail "$name does not start again"; }
  grep -q "the run goes on from one in the memory of its hosts" "$work/$name.log" ||
    { cat "$work/$name.log"; fail "$name does not go on from memory"; }
  equal "$name-whole" "$name"
}
