#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the strategy lines of README (those that begin with ./ddhost --strategy) from the build folder, for a few steps. All
# must give one column of losses.
set -euo pipefail
source=$1 build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

cd "$build"
n=0 losses=""
while read -r line; do
  n=$((n + 1))
  # The numbers of a quick test: the same for every line.
  read -ra words <<< "${line%%#*}"
  "${words[@]}" train.steps=3 data.micro_batch=2 run.sample_tokens=0 run.quiet=true "run.dir=$folder/$n" > /dev/null ||
    fail "README's line '$line' does not run"
  sed -nE 's/.*no data.path given[^:]*: training on /data: /p' "$folder/$n/log.txt" | sort -u
  mine=$(grep -o '"step":[0-9]*,"loss":[^,]*,"grad_norm":[^,]*' "$folder/$n/metrics.jsonl")
  [ -n "$mine" ] || fail "'$line' wrote no metrics"
  [ -z "$losses" ] || [ "$losses" = "$mine" ] || fail "'$line' gave other losses than the line before"
  losses=$mine
done < <(grep -E '^\./ddhost --strategy' "$source/README.md")
[ "$n" -ge 3 ] || fail "README shows $n strategy lines; at least three were expected"
echo "$n commands of README ran; their losses are equal"
