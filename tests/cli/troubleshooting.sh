#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# troubleshooting.sh <source> <build>   Runs the commands of docs/troubleshooting.md, in their order, from a folder beside the
# program. What they print must hold the sentences that the page shows below them.
set -euo pipefail
source=$1 build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset MODEL_SIZE BATCH_SIZE EPOCHS
export OMP_NUM_THREADS=1
mkdir "$folder/build"
cd "$folder/build"
ln -s "$source/configs" ../configs
ln -s "$build/ddhost" ddhost
failed=0 n=0 shown=0
: >printed

# A rank of the run whose launcher is $1 is stopped in mid-run.
stop_a_rank() {
  local launcher=$1 ranks
  for _ in $(seq 600); do
    if [[ -s runs/still/metrics.jsonl ]] && ranks=$(pgrep -P "$launcher") && (($(wc -w <<<"$ranks") >= 2)); then
      kill -STOP "$(tail -n 1 <<<"$ranks")"
      return
    fi
    sleep 0.1
  done
  echo "FAILED: no rank to stop"
}

run() {
  n=$((n + 1))
  local -a words
  read -ra words <<<"$1"
  case $1 in
  *compare*) words+=(--steps 4 --rounds 1) ;;
  *runs/still*) words+=(run.sample_tokens=0 run.quiet=false) ;;
  *--config*) words+=(run.sample_tokens=0) ;;
  esac
  if [[ $1 == *runs/still* ]]; then
    "${words[@]}" >>printed 2>&1 &
    local pid=$!
    stop_a_rank "$pid"
    wait "$pid" || true
  else
    "${words[@]}" >>printed 2>&1 || true
  fi
}

expect() {
  shown=$((shown + 1))
  # The pieces between … in their order.
  local rest piece text=$1
  rest=$(tr '\n' ' ' <printed | tr -s ' ')
  while [[ -n $text ]]; do
    piece=${text%%…*}
    [[ $text == *…* ]] && text=${text#*…} || text=''
    if [[ -n $piece && $rest != *"$piece"* ]]; then
      failed=1
      printf 'FAILED: the page says\n  %s\nand the commands above it print:\n%s\n' "$1" "$(tail -n 30 printed)"
      return
    fi
    rest=${rest#*"$piece"}
  done
}

kind='' was=''
while IFS= read -r line; do
  case $line in
  '```text') kind=text ;;
  '```') if [[ -n $kind ]]; then was=$kind kind=''; else
    kind=command
    [[ $was != text ]] || : >printed
  fi ;;
  *)
    [[ $kind != command ]] || run "$line"
    [[ $kind != text ]] || expect "$line"
    ;;
  esac
done <"$source/docs/troubleshooting.md"
((n >= 12 && shown >= 9)) || { echo "FAILED: the page has $n commands and $shown sentences"; exit 1; }
echo "$n commands of docs/troubleshooting.md ran, $shown sentences were compared"
exit "$failed"
