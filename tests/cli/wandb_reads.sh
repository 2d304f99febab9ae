#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# wandb_reads.sh <build folder>: the wandb package reads what the monitor wandb writes, and `wandb sync` sends it: of a run, one
# that was killed, one that failed, one that goes on, and of programs that take turns. Exits with 77 and prints the reason if
# the package is not available. DDHOST_PYTHON: a Python that has it.
set -euo pipefail
build=$1 here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${DDHOST_PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -c 'from wandb.sdk.internal.datastore import DataStore' 2>"$work/log" ||
  { echo "Skipped: $python has no wandb with its own reader: $(tail -n 1 "$work/log")"; exit 77; }
unset "${!WANDB_@}"

train() { # folder, words
  local folder=$1
  shift
  "$build/ddhost" --nproc 2 train.steps=6 train.eval_every=3 train.eval_batches=1 checkpoint.every=2 run.quiet=true \
    "run.dir=$work/$folder" --model "$build/tests/plugins/toy.so" "$@"
}
bad=$build/tests/plugins/bad_monitor.so

train run --monitor jsonl,wandb model.nan_at_step=4
"$python" "$here/read_wandb.py" "$work/run" 0

train turns --monitor jsonl,wandb model.programs=2
"$python" "$here/read_wandb.py" "$work/turns" 0

# A run that was killed in a step, and then goes on under its id, without the rows after its checkpoint.
! train killed --monitor "jsonl,wandb,$bad" monitor.bad_monitor.at=row monitor.bad_monitor.step=5 \
  monitor.bad_monitor.fault=segv 2>"$work/log" || { echo "FAILED: the run was not killed"; exit 1; }
id=$("$python" "$here/read_wandb.py" "$work/killed" none)
train killed --monitor jsonl,wandb --resume auto
[[ $("$python" "$here/read_wandb.py" "$work/killed" 0) == "$id" ]]

# A run that failed says so, and goes on.
! train failed --monitor "jsonl,wandb,$bad" monitor.bad_monitor.at=row monitor.bad_monitor.step=3 \
  monitor.bad_monitor.fault=throw 2>"$work/log" || { echo "FAILED: the run did not fail"; exit 1; }
id=$("$python" "$here/read_wandb.py" "$work/failed" 1)
train failed --monitor jsonl,wandb --resume auto train.steps=8 --resume-allow train.steps
[[ $("$python" "$here/read_wandb.py" "$work/failed" 0) == "$id" ]]
