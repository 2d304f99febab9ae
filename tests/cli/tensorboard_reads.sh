#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tensorboard_reads.sh <build folder> toy|gpt: a run with the monitors jsonl and tensorboard; the tensorboard package reads
# from the event file what metrics.jsonl holds. Exits with 77 and prints the reason if the package is not available.
set -euo pipefail
build=$1 model=$2 here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
skip() { echo "Skipped: $*"; exit 77; }

venv=$build/tests/tensorboard-venv
if ! "$venv/bin/python" -c 'import tensorboard' 2>/dev/null; then
  command -v python3 >/dev/null || skip "there is no python3"
  rm -rf "$venv"
  python3 -m venv "$venv" >"$work/log" 2>&1 || skip "python3 can't make a venv: $(tail -n 1 "$work/log")"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 20 tensorboard >"$work/log" 2>&1 ||
    skip "pip can't install tensorboard: $(tail -n 1 "$work/log")"
fi

options=(--nproc 2 --monitor jsonl,tensorboard train.steps=6 train.eval_every=3 run.quiet=true "run.dir=$work/run")
if [[ $model == gpt ]]; then
  for _ in {1..400}; do echo "To be, or not to be, that is the question."; done >"$work/text.txt"
  options+=(--model gpt "data.path=$work/text.txt" 
    model.n_layer=1 model.n_head=2 model.n_embd=16 model.context=16 model.block_size=16
    data.micro_batch=2 train.eval_batches=2 run.sample_tokens=0)
else
  options+=(--model "$build/tests/plugins/toy.so" train.eval_batches=1 model.nan_at_step=4)
fi
"$build/ddhost" "${options[@]}"
"$venv/bin/python" "$here/read_events.py" "$work/run"
if [[ $model == gpt ]]; then exit 0; fi

# If several programs take turns, each has its own scalars.
"$build/ddhost" --nproc 2 --monitor jsonl,tensorboard train.steps=4 run.quiet=true "run.dir=$work/turns" \
  --model "$build/tests/plugins/toy.so" model.programs=2
"$venv/bin/python" "$here/read_events.py" "$work/turns"

# A run that was killed before its first checkpoint begins anew; of its first part TensorBoard shows nothing.
killed=(--nproc 2 train.steps=6 train.eval_every=3 train.eval_batches=1 checkpoint.every=100 run.quiet=true
  --model "$build/tests/plugins/toy.so" "run.dir=$work/killed")
if "$build/ddhost" "${killed[@]}" --monitor "tensorboard,$build/tests/plugins/bad_monitor.so" \
  monitor.bad_monitor.at=row monitor.bad_monitor.step=5 monitor.bad_monitor.fault=segv; then
  echo "FAILED: the run was not killed"
  exit 1
fi
sleep 1  # event files are read in the order of the second in their names
"$build/ddhost" "${killed[@]}" --monitor jsonl,tensorboard --resume auto
"$venv/bin/python" "$here/read_events.py" "$work/killed"
