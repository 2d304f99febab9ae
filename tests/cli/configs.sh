#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# configs.sh <source> <build>              every config is accepted, and those called *_tiny train as they are
# configs.sh <source> <build> <tiny config>   gives the same losses under every strategy, on 1, 2 and 3 ranks
set -euo pipefail
source=$1 build=$2 tiny=${3:-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
run() { # name of the run, arguments: prints nothing but errors
  local name=$1
  shift
  ./ddhost run.quiet=true run.sample_tokens=0 "run.dir=$folder/$name" "$@" >"$folder/$name.log" 2>&1 ||
    { cat "$folder/$name.log"; fail "ddhost $*"; }
}
values_of() { grep -oE '"(step|loss|val_loss|grad_norm|[a-z_]*acc[a-z_]*)":[^,}]*' "$folder/$1/metrics.jsonl"; }

cd "$build"
n=0
if [[ -z $tiny ]]; then
  for config in "$source"/configs/*.json; do
    ./ddhost --config "$config" --dry-run >"$folder/log" 2>&1 || { cat "$folder/log"; fail "$config is refused"; }
    n=$((n + 1))
    [[ $config != *_tiny.json ]] || run "$(basename "$config")" --config "$config"
  done
  ((n >= 10)) || fail "there are $n configs"
  echo "$n configs are accepted"
  exit
fi
for world in 1 2 3; do
  reference=""
  for strategy in ddp zero1 zero2 zero3 zero3_offload fsdp; do
    run "$strategy-$world" --config "$source/configs/$tiny.json" --strategy "$strategy" --nproc "$world" \
      train.steps=4 train.eval_every=4 train.eval_batches=2
    mine=$(values_of "$strategy-$world")
    [[ $(grep -c '"loss"' <<<"$mine") -ge 4 ]] || fail "$strategy on $world ranks wrote no losses"
    [[ -n $reference ]] || reference=$mine
    [[ $mine == "$reference" ]] || {
      diff <(echo "$reference") <(echo "$mine") || true
      fail "$tiny under $strategy on $world ranks differs from ddp"
    }
    n=$((n + 1))
  done
done
echo "$n runs of $tiny; the strategies agree"
