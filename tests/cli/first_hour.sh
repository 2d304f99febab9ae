#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# first_hour.sh <source> <build>: runs the commands of docs/first-hour.md in their order, from a folder beside the program,
# with fewer steps. The two runs must have the same bits, and every picture of the page must be there.
set -euo pipefail
source=$1 build=$2
source "$(dirname "${BASH_SOURCE[0]}")/page_commands.sh"
n=0
while read -r line; do
  n=$((n + 1))
  read -ra words <<<"${line//train.steps=150/train.steps=6 data.micro_batch=2}"
  [[ $line != *compare* ]] || words+=(--steps 4 --rounds 1 data.micro_batch=1)
  "${words[@]}" >out 2>err </dev/null || fail "'$line' ends with $?: $(cat out err)"
  case $line in
  *--strategy*) grep -q 'trained to step 6 of 6' out err || fail "'$line' did not train: $(cat out err)" ;;
  *"runs diff"*) grep -q 'the same bits in all' out || fail "'$line' finds other values: $(cat out)" ;;
  *"runs plot"*) grep -q '┤' out || fail "'$line' draws nothing: $(cat out)" ;;
  *"runs ls"*) grep -q 'second .*done' out || fail "'$line' shows no run: $(cat out)" ;;
  *"runs show"*) [[ -s runs/demo/report.html ]] || fail "the run has no page" ;;
  *compare*) (($(grep -c 'same bits, 4 steps' out) == 5)) || fail "'$line' finds other values: $(cat out)" ;;
  *plan*) grep -q 'zero3_offload' out || fail "'$line' shows no plan: $(cat out)" ;;
  *smoke*) grep -q 'all parts ended well' out || fail "'$line' did not end well: $(cat out err)" ;;
  *peek*) grep -q '16 samples of' out || fail "'$line' shows no samples: $(cat out)" ;;
  *explain*) grep -q 'zero3' out || fail "'$line' explains nothing: $(cat out)" ;;
  *) fail "'$line' is not checked here" ;;
  esac
done < <(commands_of first-hour.md)
((n == 11)) || fail "docs/first-hour.md shows $n commands; 11 were expected"
while read -r picture; do
  [[ -s $source/docs/$picture ]] || fail "there is no docs/$picture"
done < <(grep -o '(pictures/[a-z_.]*)' "$source/docs/first-hour.md" | tr -d '()')
echo "$n commands of docs/first-hour.md ran"
