#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the commands of docs/runs.md, in their order, from a folder beside the program. A comparison gets fewer steps.
set -euo pipefail
source=$1 build=$2
source "$(dirname "${BASH_SOURCE[0]}")/page_commands.sh"
n=0
while read -r line; do
  n=$((n + 1))
  read -ra words <<<"$line"
  case $line in # fewer steps
  *compare* | *tune*) words+=(--steps 5 --rounds 1) ;;
  *smoke* | *"data peek"*) ;;
  *--config*) words+=(train.steps=6 run.quiet=true run.sample_tokens=0) ;;
  esac
  "${words[@]}" >out 2>err || fail "'$line' ends with $?: $(cat out err)"
  case $line in
  *"runs ls"*) grep -q 'first .*done' out || fail "'$line' shows no run: $(cat out)" ;;
  *"runs show"*) grep -q train.steps out || fail "'$line' shows no option: $(cat out)" ;;
  *"runs tail"*) grep -q 'step 6' out || fail "'$line' shows no step: $(cat out)" ;;
  *--svg*) grep -q '<svg' curves.svg || fail "'$line' wrote no picture" ;;
  *"runs plot"*) grep -q '┤' out || fail "'$line' draws nothing: $(cat out)" ;;
  *"runs diff"*) grep -q 'the same bits in all' out || fail "'$line' finds other values: $(cat out)" ;;
  *"rm second"*) [[ ! -e runs/second && -e runs/first ]] || fail "'$line' did not remove that run" ;;
  *"data peek"*gpt*) grep -q 'epoch 0: 16 samples of' out || fail "'$line' shows no samples: $(cat out err)" ;;
  *"data peek"*vit*) [[ -s sheets/peek-train-1-32-image.png ]] || fail "'$line' wrote no sheet: $(cat out err)" ;;
  *smoke*) grep -q 'all parts ended well' out || fail "'$line' did not end well: $(cat out err)" ;;
  *--page*) grep -q '^ddhost: the page of this run: http://127.0.0.1:' err || fail "'$line' names no page: $(cat err)" ;;
  *--profile*) [[ -s runs/profiled/profile.json ]] || fail "'$line' wrote no profile" ;;
  *tune*) grep -q 'the fastest within' out && [[ -s runs/tune/tuned.json ]] || fail "'$line' found none: $(cat out err)" ;;
  *compare*) grep -q 'same bits, 5 steps' out || fail "'$line' finds other values: $(cat out)" ;;
  esac
done < <(commands_of runs.md)
((n >= 17)) || fail "docs/runs.md shows $n commands; at least 17 were expected"
echo "$n commands of docs/runs.md ran"
