#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# examples_train.sh <source folder> <build folder>: the C example is built with the one line that its first comment
# shows, and trains to the same bits as plugins/ddp.so in both orders of sums and with optimizers that need more than
# ranges; the solo example equals ddp on one rank; the optimizer equals lion with equal betas in every sharding; the
# transport equals shm, and the device the CPU.
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $*"
  exit 1
}
line=$(sed -nE 's/^ \*   (gcc .*)$/\1/p' "$source/sdk/examples/ddp_in_c/ddp_in_c.c")
[[ $line == *"-o ddp_in_c.so"* ]] || fail "the C example shows no gcc line"
(cd "$source" && bash -c "${line/-o ddp_in_c.so/-o $work/ddp_in_c.so}")
g++ -std=c++20 -O2 -fPIC -shared -fvisibility=hidden "-I$source/plugin_api/include" "-I$source/sdk/include" \
  -o "$work/solo.so" "$source/sdk/examples/solo/solo.cpp" "$build/sdk/libddhost_sdk.a" -Wl,--exclude-libs,ALL

# In the build they have the flags under which ranges of every width give the same bits.
examples=$build/tests/plugins

train() { # strategy, name, settings...
  local strategy=$1 name=$2
  shift 2
  "$build/ddhost" --strategy "$strategy" --model "$build/tests/plugins/toy.so" "run.dir=$work/$name" train.steps=6 \
    --save-final "$work/$name.safetensors" "$@" >"$work/$name.log" 2>&1 || {
    cat "$work/$name.log"
    fail "$strategy $*"
  }
  grep -oE '"(loss|grad_norm)":[^,}]*' "$work/$name/metrics.jsonl" >"$work/$name.numbers" || true
  (($(wc -l <"$work/$name.numbers") >= 12)) || fail "$name: no numbers in metrics.jsonl"
}
equal() { # name, name
  cmp "$work/$1.numbers" "$work/$2.numbers" || fail "loss or grad_norm of $1 and $2 differ"
  cmp "$work/$1.safetensors" "$work/$2.safetensors" || fail "the parameters of $1 and $2 differ"
  echo "$1 = $2"
}
for order in rank_first micro_first; do
  settings=(--nproc 2 train.grad_accum_steps=2 "train.reduce_order=$order")
  train "$build/plugins/ddp.so" "ddp_$order" "${settings[@]}"
  train "$work/ddp_in_c.so" "c_$order" "${settings[@]}"
  equal "ddp_$order" "c_$order"
done
# Blocks of ranks under accumulation: the sum of a further micro-batch starts from the earlier ones.
settings=(--nproc 4 train.grad_accum_steps=3 data.micro_batch=2 train.reduce_block=2)
train "$build/plugins/ddp.so" ddp_blocks "${settings[@]}"
train "$work/ddp_in_c.so" c_blocks "${settings[@]}"
equal ddp_blocks c_blocks
# Optimizers that need norms of parameters, or whole ones.
for optimizer in lamb muon; do
  train "$build/plugins/ddp.so" "ddp_$optimizer" --nproc 2 --optimizer "$optimizer"
  train "$work/ddp_in_c.so" "c_$optimizer" --nproc 2 --optimizer "$optimizer"
  equal "ddp_$optimizer" "c_$optimizer"
done
for optimizer in adamw lamb muon; do
  train "$build/plugins/ddp.so" "ddp_one_$optimizer" --nproc 1 --optimizer "$optimizer"
  train "$work/solo.so" "solo_one_$optimizer" --nproc 1 --optimizer "$optimizer"
  equal "ddp_one_$optimizer" "solo_one_$optimizer"
done
train ddp lion --nproc 2 --optimizer lion 'optimizer.betas=[0.8, 0.8]' optimizer.weight_decay=0.1
for strategy in ddp zero1 zero3; do
  train "$strategy" "signum_$strategy" --nproc 2 --optimizer "$examples/signum.so" optimizer.momentum=0.8 \
    optimizer.weight_decay=0.1 run.check_plugins=true
  equal lion "signum_$strategy"
done
for order in rank_first micro_first; do
  settings=(--nproc 3 train.grad_accum_steps=2 "train.reduce_order=$order")
  train zero3 "shm_$order" --comm shm "${settings[@]}"
  train zero3 "sockets_$order" --comm "$examples/sockets.so" "${settings[@]}"
  equal "shm_$order" "sockets_$order"
done
settings=(--nproc 2 train.grad_accum_steps=2 precision.compute=bf16)
train ddp cpu_memory "${settings[@]}"
for strategy in ddp zero2 zero3; do
  train "$strategy" "own_memory_$strategy" --device "$examples/own_memory.so" "${settings[@]}"
  equal cpu_memory "own_memory_$strategy"
done
