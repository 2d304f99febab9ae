#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# configs.sh <source> <build>              every config is accepted
# configs.sh <source> <build> <tiny config> [worlds]   gives the same metrics and weights under every strategy, on 1, 2 and 3
#   ranks: as it is, at least 20 steps, on the numbers of ranks in `worlds` ("1 2 3"), whose losses are printed; a few steps
#   on the others. The line "data: ..." names the folder or file that it read, or says that it was made up. With
#   DDHOST_SKIP_MADE_UP=1 it is skipped without DDHOST_DATA.
set -euo pipefail
source=$(cd "$1" && pwd -P) build=$2 tiny=${3:-} whole=${4:-1 2 3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
run() { # name of the run, arguments: prints nothing but errors
  local name=$1
  shift
  ./ddhost run.quiet=true run.sample_tokens=0 "run.dir=$folder/$name" "$@" >"$folder/$name.log" 2>&1 ||
    { cat "$folder/$name.log"; fail "ddhost $*"; }
}
# What the run's log says of its data: a path, or that it is made up.
data_of() { # name of the run
  local data
  data=$(sed -nE 's/.*no data.path given[^:]*: (training on )?//p' "$folder/$1/log.txt" | sort -u)
  [[ -n $data ]] || fail "$1 does not say which data it read"
  echo "data: $1: $data"
}
values_of() { grep -v '"summary"' "$folder/$1/metrics.jsonl" | sed -E 's/,?"(step_ms|[a-z_]*_per_s)":[^,}]*//g'; }

cd "$build"
n=0
if [[ -z $tiny ]]; then
  for config in "$source"/configs/*.json; do
    ./ddhost --config "$config" --dry-run >"$folder/log" 2>&1 || { cat "$folder/log"; fail "$config is refused"; }
    case $config in
      *_tiny.json | */defaults.json | */cad_mllm_dummy.json) ;; # runs of seconds or minutes
      *) grep -q '"checkpoint": .*every' "$config" || fail "$config saves no checkpoints" ;;
    esac
    n=$((n + 1))
  done
  ((n >= 10)) || fail "there are $n configs"
  echo "$n configs are accepted"
  exit
fi
if [[ -n ${DDHOST_SKIP_MADE_UP:-} && -z ${DDHOST_DATA:-} ]]; then
  echo "skipped: $tiny has no data without DDHOST_DATA; same_bits_* train the model on made-up data, and so does" \
    "the long test same_losses_${tiny}_worlds"
  exit 77
fi
# A few steps of each of a config's programs, then an evaluation.
case $tiny in
  kgat_tiny)
    short=('train.phases=[{"program":"cf","steps":3},{"program":"kg","steps":3},{"program":"attention"},
      {"program":"cf","steps":1}]' train.cycles=1 train.eval_every_epochs=0 train.eval_every=3) ;;
  cad_mllm_tiny)
    short=('train.phases=[{"program":"stage1_text","steps":2,"optimizer":"new"},
      {"program":"stage2_text_pc","steps":2,"optimizer":"new"},
      {"program":"stage3_all","steps":2,"lr":1e-3,"optimizer":"new"}]' train.eval_every=6 train.eval_batches=2) ;;
  *) short=(train.steps=4 train.eval_every=4 train.eval_batches=2) ;;
esac
others=$(./ddhost list | awk '$1 == "strategy" && $2 != "ddp" { print $2 }')
[[ $others == *zero3* ]] || fail "ddhost list shows no strategy zero3"
strategies="ddp ${others//$'\n'/ }" # ddp first: the others are compared with it
losses_of() { # of a run: the program where there are several, and the loss of each step
  awk -F '[{},]' '/[{,]"loss":/ {
    program = ""
    for (i = 1; i <= NF; ++i) {
      if ($i ~ /^"loss":/) loss = substr($i, 8)
      if ($i ~ /^"program":/) program = substr($i, 12, length($i) - 12) " "
    }
    printf "%s%.7f\n", program, loss
  }' "$folder/$1/metrics.jsonl"
}
run "$tiny" --config "$source/configs/$tiny.json" --nproc 1 "${short[@]}"
data=$(data_of "$tiny")
echo "$data"
# The made-up graph has so few pairs and edges that it takes more cycles to make as many steps.
as_it_is=()
[[ $tiny != kgat_tiny || $data != *made-up* ]] || as_it_is=(train.cycles=12)
for world in 1 2 3; do
  reference="" steps=20 length=("${as_it_is[@]}")
  [[ " $whole " == *" $world "* ]] || { steps=4 length=("${short[@]}"); }
  for strategy in $strategies; do
    name=$strategy-$world
    run "$name" --config "$source/configs/$tiny.json" --strategy "$strategy" --nproc "$world" "${length[@]}" \
      --save-final "$folder/$name.safetensors"
    mine=$(values_of "$name")
    [[ $(grep -c '"loss"' <<<"$mine") -ge $steps ]] || fail "$strategy on $world ranks wrote fewer than $steps losses"
    grep -q '"val_' <<<"$mine" || fail "$strategy on $world ranks wrote no evaluation"
    [[ -n $reference ]] || reference=$mine
    [[ $mine == "$reference" ]] || {
      diff <(echo "$reference") <(echo "$mine") || true
      fail "$tiny under $strategy on $world ranks differs from ddp"
    }
    cmp "$folder/ddp-$world.safetensors" "$folder/$name.safetensors" ||
      fail "the weights of $tiny under $strategy on $world ranks differ from ddp's"
    n=$((n + 1))
  done
done
echo "$n runs of $tiny; on each number of ranks the losses have the same bits under $strategies:"
columns=()
for world in $whole; do
  { echo "$world rank(s)"; losses_of "ddp-$world"; } >"$folder/column-$world"
  columns+=("$folder/column-$world")
done
paste "${columns[@]}" | awk -F '\t' '{
  printf "%-6s", NR == 1 ? "step" : NR - 1
  for (i = 1; i <= NF; ++i) printf " %-24s", $i
  print ""
}'
