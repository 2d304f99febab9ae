#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh BUILD [ROW...]: measures foreign schemes against their goals and prints a table. A row is a file <name>.row beside
# this script, which is sourced for each of its seeds. It calls `train`, and `reach` for each goal. The scheme's plugin is
# built from an installed prefix alone; the same bin/ddhost runs everything.
#   STEPS=2000 SEEDS="1 2 3" DDHOST_DATA=../shared/data ./run.sh ../../build diloco
# The means over the seeds decide; a goal that is missed stays in the table. WORK=folder keeps the prefix and the runs there:
# a later call takes finished runs from it, and begins one that was interrupted anew.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
build=$(cd "$1" && pwd)
shift
export STEPS=${STEPS:-2000}
all_steps=$STEPS # a row may have shorter runs
export DDHOST_LIBTORCH=${DDHOST_LIBTORCH:-$source/.deps/libtorch-wheel/torch}
seeds=${SEEDS:-1 2 3}
data=${DDHOST_DATA:-$source/../shared/data}
text=$data/shakespeare/input.txt
[[ -r $text ]] || { echo "there is no '$text'; set DDHOST_DATA to the folder of the data"; exit 1; }
if [[ ${WORK:-} ]]; then
  mkdir -p "$WORK" && work=$(cd "$WORK" && pwd)
else
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi
rm -f "$work/values"
prefix=$work/prefix
[[ -d $prefix ]] || cmake --install "$build" --prefix "$prefix" >/dev/null
before=$(sha256sum <"$prefix/bin/ddhost")

# plugin NAME: builds sdk/examples/NAME from the prefix, once, and prints the file.
plugin() {
  if [[ ! -e $work/$1/plugins/$1.so ]]; then
    cmake -S "$source/sdk/examples/$1" -B "$work/$1" "-DCMAKE_PREFIX_PATH=$prefix" >"$work/log" 2>&1 &&
      cmake --build "$work/$1" -j2 >>"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  fi
  echo "$work/$1/plugins/$1.so"
}
# train NAME settings...: one run of the 0.8M character GPT with the row's seed. Rows share a run of the same settings.
train() {
  local name=$1 dir
  shift
  dir=$work/$(echo "$seed $STEPS $*" | sha256sum | cut -c 1-16)
  if [[ ! -e $dir.done ]]; then
    rm -rf "$dir"
    "$prefix/bin/ddhost" --config "$source/configs/gpt_char.json" "data.path=$text" "run.dir=$dir" \
      run.sample_tokens=0 checkpoint.every_minutes=0 optimizer.lr=3e-3 "train.steps=$STEPS" "run.seed=$seed" "$@" \
      >"$work/$name.log" 2>&1 || { tail -5 "$work/$name.log" >&2; exit 1; }
    echo "seed $seed, $STEPS steps: $*" >"$dir.done"
  fi
  ln -sfn "$dir" "$work/run_$name"
}
# Of a run: the validation loss at its end, the mean training loss of its last 50 steps, a counter of its summary.
val_loss() { grep -oE '"val_loss":[^,}]*' "$work/run_$1/metrics.jsonl" | tail -1 | cut -d: -f2; }
train_loss() {
  grep -oE '"loss":[^,}]*' "$work/run_$1/metrics.jsonl" | tail -50 | cut -d: -f2 | awk '{ s += $1 } END { print s / NR }'
}
# steps_to RUN LOSS: the first step whose 50 last training losses have a mean of at most LOSS; twice the steps: there is none.
steps_to() {
  grep -oE '"loss":[^,}]*' "$work/run_$1/metrics.jsonl" | cut -d: -f2 | awk -v most="$2" -v none="$((2 * STEPS))" '
    { s += $1 - l[NR % 50]; l[NR % 50] = $1 } NR >= 50 && s / 50 <= most + 0 { print NR; found = 1; exit }
    END { if (!found) print none }'
}
counter() { grep -oE "\"$2\": *[0-9]+" "$work/run_$1/metrics.jsonl" | tail -1 | grep -oE '[0-9]+$'; }
# sent_after RUN FIRST WEIGHT ALL: the bytes of a step after the FIRST steps, as a part of those of a step of ddp, which sends
# ALL in the whole run. Each of the first steps sends WEIGHT times as much as one of ddp.
sent_after() {
  awk -v sent="$(counter "$1" comm.sent_bytes)" -v first="$2" -v weight="$3" -v all="$4" -v n="$STEPS" \
    'BEGIN { print (sent * n / all - first * weight) / (n - first) }'
}
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { print a / b }'; }
# reach WHAT VALUE MOST: a value of this seed, and the most that it may be.
reach() {
  echo "$row|$1|$2|$3" >>"$work/values"
  echo "seed $seed: $row, $1: $2" >&2
}

rows=("$@")
((${#rows[@]} > 0)) || for file in "$here"/*.row; do rows+=("$(basename "$file" .row)"); done
for row in "${rows[@]}"; do
  for seed in $seeds; do
    # shellcheck source=/dev/null
    source "$here/$row.row"
  done
done
[[ $(sha256sum <"$prefix/bin/ddhost") == "$before" ]] || { echo "bin/ddhost has changed"; exit 1; }
echo "$(nproc) cores, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1); steps $STEPS, seeds $seeds"
echo "| scheme | measured | mean (lowest .. highest) | at most | |"
echo "|---|---|---|---|---|"
awk -F'|' '
  { key = $1 " | " $2; if (!(key in n)) order[++k] = key
    n[key]++; sum[key] += $3; most[key] = $4
    if (n[key] == 1 || $3 < low[key]) low[key] = $3
    if (n[key] == 1 || $3 > high[key]) high[key] = $3 }
  END { for (i = 1; i <= k; i++) { key = order[i]; mean = sum[key] / n[key]
      printf "| %s | %.4g (%.4g .. %.4g) | %s | %s |\n", key, mean, low[key], high[key], most[key],
        mean <= most[key] + 0 ? "reached" : "missed" } }' "$work/values"
