#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh PREFIX MODEL.so [setting...]: builds powersgd outside of any tree, from an installed ddhost alone, and trains MODEL
# with it. Two strategies give the same losses and weights, fewer bytes are sent than without it, and a resumed run has the
# bits of an uninterrupted one.
set -euo pipefail
prefix=$1 model=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here"/{CMakeLists.txt,powersgd.cpp} "$work"
{
  cmake -G Ninja -S "$work" -B "$work/build" "-DCMAKE_PREFIX_PATH=$prefix" && cmake --build "$work/build"
} >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }

train() { # name, more...
  "$prefix/bin/ddhost" --model "$model" --nproc 2 train.steps=5 run.sample_tokens=0 run.quiet=true "run.dir=$work/$1" \
    --save-final "$work/$1.safetensors" "${@:2}"
}
sent() { grep -o '"comm.sent_bytes": *[0-9]*' "$work/$1/metrics.jsonl" | head -1 | grep -o '[0-9]*$'; }
codec=(--codec "$work/build/plugins/powersgd.so" codec.rank=2 codec.warmup_steps=0)
train plain --strategy ddp "$@"
for strategy in ddp zero2; do train "$strategy" --strategy "$strategy" "${codec[@]}" "$@"; done
cmp "$work/ddp.safetensors" "$work/zero2.safetensors"
(($(sent ddp) < $(sent plain))) || { echo "FAILED: it sent $(sent ddp) bytes, and ddp $(sent plain)"; exit 1; }
train half --strategy zero2 "${codec[@]}" checkpoint.every=3 checkpoint.keep_last=0 "$@"
for strategy in ddp zero2; do
  train "rest_$strategy" --strategy "$strategy" "${codec[@]}" --resume "$work/half/checkpoints/step-3" "$@"
  grep -q "resumed after step 3" "$work/rest_$strategy/log.txt" || { echo "FAILED: it did not resume after step 3"; exit 1; }
  cmp "$work/zero2.safetensors" "$work/rest_$strategy.safetensors"
done
echo "powersgd sent $(sent ddp) bytes, and a plain sum $(sent plain)"
