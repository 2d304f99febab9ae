#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh PREFIX PLUGIN MODEL: zeropp.so with a model of several units and the ddhost of an installed prefix, in bf16. With all
# parts off it has zero3's bits; each part alone sends less between nodes, as much as computed; it learns; and a resumed run
# equals an uninterrupted one.
set -euo pipefail
prefix=$1 plugin=$2 model=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $*"
  exit 1
}
common=(--nproc 4 run.ranks_per_node=2 train.steps=20 model.layers=4 model.width=64 model.hidden=256 optimizer.lr=0.01
  comm.windows=copy precision.compute=bf16)
train() { # name, strategy, settings...
  local name=$1 strategy=$2
  shift 2
  "$prefix/bin/ddhost" --model "$model" --comm shm --strategy "$strategy" "run.dir=$work/$name" \
    --save-final "$work/$name.safetensors" "${common[@]}" "$@" >"$work/$name.log" 2>&1 || {
    cat "$work/$name.log"
    fail "$name: $*"
  }
}
sent() { grep -oE '"comm.sent_between_nodes_bytes": *[0-9]+' "$work/$1/metrics.jsonl" | tail -1 | grep -oE '[0-9]+$'; }
# between NAME LEAST MOST: bytes between nodes as a part of zero3's.
between() {
  awk -v mine="$(sent "$1")" -v all="$(sent zero3)" -v low="$2" -v high="$3" -v name="$1" 'BEGIN {
    printf "%s sends %.4f of zero3'"'"'s bytes between nodes\n", name, mine / all
    exit !(mine / all >= low && mine / all <= high) }' || fail "$1 sends $(sent "$1") bytes between nodes, zero3 $(sent zero3)"
}

off=(strategy.weight_bits=16 strategy.grad_bits=32 strategy.secondary=false)
train zero3 zero3
train off "$plugin" "${off[@]}"
cmp "$work/zero3.safetensors" "$work/off.safetensors" || fail "with all parts off the bits are not zero3's"
echo "with all parts off: zero3's bits"

# For an element of a segment zero3 sends to the two ranks of the other node, in bf16: 2 bytes each in nearly two gathers, and
# 4 bytes each in a sum, 15.4 in all. The parts save half of the gathers, the second gather, and 7.5 bytes of the sum.
train weights "$plugin" "${off[@]}" strategy.weight_bits=8 # without a secondary copy both gathers are of 8 bits
train secondary "$plugin" "${off[@]}" strategy.secondary=true
train gradients "$plugin" "${off[@]}" strategy.grad_bits=4
train all "$plugin"
between weights 0.73 0.77
between secondary 0.73 0.77
between gradients 0.52 0.56
between all 0.10 0.27

loss() { grep -oE '"loss":[^,}]*' "$work/$1/metrics.jsonl" | tail -1 | cut -d: -f2; }
awk -v mine="$(loss all)" -v exact="$(loss zero3)" 'BEGIN { exit !(mine > 0 && mine <= exact * 1.05) }' ||
  fail "the loss is $(loss all), and with zero3 $(loss zero3)"
echo "the loss after 20 steps is $(loss all), with zero3 $(loss zero3)"
for order in rank_first micro_first; do
  train "two_$order" "$plugin" train.grad_accum_steps=2 "train.reduce_order=$order"
done

train whole "$plugin" checkpoint.every=9 checkpoint.keep_last=0
train resumed "$plugin" checkpoint.every=9 --resume "$work/whole/checkpoints/step-9"
grep -q "resumed after step 9" "$work/resumed/log.txt" || fail "the run did not resume after step 9"
cmp "$work/whole.safetensors" "$work/resumed.safetensors" || fail "a resumed run differs"
echo "resumed after step 9 = uninterrupted"
