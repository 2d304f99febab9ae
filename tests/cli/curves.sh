#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# curves.sh <source> <python>   The scripts of docs/models that draw runs: what can be drawn is drawn, anything else ends with
# one sentence. Rows without a loss, numbers that are null and a row that was not finished ended in tracebacks.
set -euo pipefail
source=$(cd "$1" && pwd -P) python=$2
export PYTHONDONTWRITEBYTECODE=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
n=0
script() { "$python" "$source/docs/models/$1.py" "${@:2}" >"$folder/log" 2>&1; }
draws() { # script, arguments; $folder/out.svg is written and is XML
  rm -f "$folder/out.svg"
  script "$@" || { cat "$folder/log"; fail "$* ends with an error"; }
  "$python" -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$folder/out.svg" || fail "$* writes no SVG"
  n=$((n + 1))
}
refuses() { # word, script, arguments: one sentence that has the word
  ! script "${@:2}" || fail "${*:2} ends without an error"
  ! grep -q Traceback "$folder/log" || { cat "$folder/log"; fail "${*:2} ends in a traceback"; }
  grep -qF -- "$1" "$folder/log" || { cat "$folder/log"; fail "${*:2} does not say '$1'"; }
  n=$((n + 1))
}
cd "$folder"
mkdir run ranking empty words
cat >run/metrics.jsonl <<'ROWS'
{"step":1,"loss":2.5,"program":"train","step_ms":3.0}
{"step":2,"loss":null,"skipped":true,"step_ms":3.0}
{"step":3,"program":"attention","step_ms":3.0}
{"step":4,"loss":1.5,"step_ms":3.0}
{"step":4,"val_loss":1.25,"val_accuracy":0.5}
{"step":4,"val_recall@20":0.25}
{"step":5,"val_loss":null,"val_accuracy":null}
{"summary":{"steps":4}}
ROWS
printf '{"step":5,"lo' >>run/metrics.jsonl
cat >ranking/metrics.jsonl <<'ROWS'
{"step":1,"loss":0.7,"step_ms":3.0}
{"step":2,"val_recall@20":0.25}
{"step":4,"val_recall@20":null}
ROWS
: >empty/metrics.jsonl
printf 'not a row\n{"step":1}\n' >words/metrics.jsonl
draws curve run/metrics.jsonl out.svg
draws curve run/metrics.jsonl out.svg val_accuracy
grep -q 0.5000 out.svg || fail "the dot has no label"
draws curve ranking/metrics.jsonl out.svg
draws ranking_curve out.svg recall@20 2 ranking 1=0.3
refuses usage curve
refuses usage ranking_curve out.svg recall@20
refuses "'x' is no number of steps" known_curve --every x out.json run run
mkdir -p short
printf '{"step":1,"loss":2.5,"step_ms":3.0}\n{"step":2,"loss":2.0,"step_ms":3.0}\n' >short/metrics.jsonl
refuses "has 2 steps, not 3" known_curve --first 3 out.json short short
refuses "can't be read" curve none.jsonl out.svg
refuses "has a number under loss" curve empty/metrics.jsonl out.svg
refuses "row 1, is no JSON" curve words/metrics.jsonl out.svg
refuses "val_accuracy, val_loss, val_recall@20" curve run/metrics.jsonl out.svg val_acc
refuses "no val_loss" curve ranking/metrics.jsonl out.svg val_recall@20
refuses "EPOCH=VALUE" ranking_curve out.svg recall@20 2 ranking 1=x
refuses "can't be written" curve run/metrics.jsonl none/out.svg
refuses "has a number under val_hit@20" ranking_curve out.svg hit@20 2 ranking
echo "$n calls drew a run or said why not"
