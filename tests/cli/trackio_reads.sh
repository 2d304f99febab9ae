#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# trackio_reads.sh <build folder>: the trackio package reads from the database of the monitor sqlite what metrics.jsonl holds.
# Exits with 77 and prints the reason if the package is not available. DDHOST_PYTHON: a Python that has it.
set -euo pipefail
build=$1
python=${DDHOST_PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TRACKIO_DIR=$work/run HF_HUB_OFFLINE=1
"$python" -c 'import trackio' 2>"$work/log" || { echo "Skipped: $python has no trackio: $(tail -n 1 "$work/log")"; exit 77; }
"$build/ddhost" --nproc 2 --monitor jsonl,sqlite train.steps=6 train.eval_every=3 train.eval_batches=1 checkpoint.every=3 \
  model.nan_at_step=4 run.quiet=true "run.dir=$work/run" --model "$build/tests/plugins/toy.so"
"$python" - "$work/run/metrics.jsonl" <<'PY'
import json, math, sys
from trackio.sqlite_storage import SQLiteStorage as storage

rows = [row for row in map(json.loads, open(sys.argv[1])) if "step" in row]
logs = storage.get_logs("metrics", "run")
assert len(logs) == len(rows) == 8, (len(logs), len(rows))
for row, log in zip(rows, logs):
    for name, value in row.items():
        seen = log[name]
        assert seen == value or (value is None and math.isnan(seen)), (name, value, seen)
config = storage.get_run_config("metrics", "run")
assert config["train"]["steps"] == 6, config
assert storage.get_runs("metrics") == ["run"], storage.get_runs("metrics")
titles = [(alert["title"], alert["step"], alert["level"]) for alert in storage.get_alerts("metrics", "run")]
assert sorted(titles) == [("checkpoint", 3, "info"), ("checkpoint", 6, "info")], titles
storage.init_db("metrics")  # brings the schema up to date where something is missing
assert len(storage.get_logs("metrics", "run")) == 8
print("read 8 rows")
PY
