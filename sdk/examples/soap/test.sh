#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh PREFIX MODEL.so [setting...]: builds soap outside of any tree, from an installed ddhost alone, and trains MODEL with
# it. The bits are equal under six strategies and worlds of 1, 2 and 4 ranks; a resumed run has those of an uninterrupted one;
# the state takes the bytes that are planned.
set -euo pipefail
prefix=$1 model=$2
shift 2
settings=("$@")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
cp "$here"/{CMakeLists.txt,soap.cpp,linear_algebra.hpp} "$work"
{
  cmake -G Ninja -S "$work" -B "$work/build" "-DCMAKE_PREFIX_PATH=$prefix" && cmake --build "$work/build"
} >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }

train() { # folder, ranks, steps, more...: four micro-batches in each step; a step of the bases every two
  "$prefix/bin/ddhost" --model "$model" --nproc "$2" "train.grad_accum_steps=$((4 / $2))" "train.steps=$3" \
    --optimizer "$work/build/plugins/soap.so" optimizer.every=2 optimizer.max_dim=64 run.sample_tokens=0 \
    "run.dir=$work/$1" --save-final "$work/$1.safetensors" "${@:4}" "${settings[@]}" >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "$*"; }
}
equal() { cmp "$work/$1.safetensors" "$work/$2.safetensors" || fail "the parameters of $1 and $2 differ"; }

# as_planned RUN: each rank's bytes of optimizer state are those that its strategy planned from the slots' sizes.
as_planned() {
  local planned taken
  taken=$(grep -oE '"optim":\{"now":[0-9]+,"peak":[0-9]+' "$work/$1/metrics.jsonl" | grep -oE '[0-9]+$')
  planned=$(grep -oE '"plan_bytes":\{[^}]*' "$work/$1/metrics.jsonl" | head -n "$(wc -l <<<"$taken")" | # a sum follows
    grep -oE '"optim":[0-9]+' | cut -d: -f2)
  [[ -n $planned && $planned == "$taken" ]] || fail "$1: planned bytes of optimizer state: $planned; taken: $taken"
}

train first 1 5 --strategy ddp run.check_plugins=true
for world in 1 2 4; do
  for strategy in ddp zero1 zero2 zero3 zero3_offload fsdp; do
    train "${strategy}_$world" "$world" 5 --strategy "$strategy"
    equal first "${strategy}_$world"
    [[ $strategy == zero3_offload ]] || as_planned "${strategy}_$world"
  done
done
train on_disk 2 5 --strategy zero3_offload strategy.offload_optimizer.device=nvme "strategy.nvme_path=$work"
equal first on_disk
train half 4 5 --strategy zero1 checkpoint.every=3
train resumed 2 5 --strategy zero3_offload --resume "$work/half/checkpoints/step-3"
equal first resumed
# A state without the sized slots would be smaller: two numbers for each element, as adamw's.
"$prefix/bin/ddhost" --model "$model" --nproc 1 train.steps=1 --strategy ddp --optimizer adamw run.sample_tokens=0 \
  "run.dir=$work/adamw" "${settings[@]}" >"$work/log" 2>&1 || { cat "$work/log"; fail "adamw"; }
optim_of() { grep -oE '"plan_bytes":\{[^}]*' "$work/$1/metrics.jsonl" | head -1 | grep -oE '"optim":[0-9]+' | cut -d: -f2; }
(($(optim_of ddp_1) > $(optim_of adamw))) || fail "soap takes $(optim_of ddp_1) bytes, and adamw $(optim_of adamw)"
echo "equal bits under six strategies and in worlds of 1, 2 and 4, also after a resume; state bytes as planned"
