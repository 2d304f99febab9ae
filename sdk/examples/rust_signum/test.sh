#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh PREFIX MODEL.so SIGNUM.so: builds rust_signum from an installed ddhost with rustc, and trains MODEL with it. Its bits
# equal those of SIGNUM.so, the same optimizer in C++, with bf16, a bound on elements, accumulation, shards and a resume.
set -euo pipefail
prefix=$1 model=$2 signum=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
bash "$here/build.sh" "$prefix" "$work/build"
rust=$work/build/rust_signum.so
symbols=$(nm -D --defined-only "$rust")
[[ $(grep -c ' [TDB] ' <<<"$symbols") == 1 ]] || fail "symbols beside the entry: $symbols"

train() { # name, optimizer, settings...
  "$prefix/bin/ddhost" --model "$model" --optimizer "$2" train.steps=6 run.quiet=true run.check_plugins=true \
    "run.dir=$work/$1" --save-final "$work/$1.safetensors" "${@:3}" >"$work/log" 2>&1 || { cat "$work/log"; fail "$*"; }
}
same() { # settings...
  train rust "$rust" "$@"
  train cpp "$signum" "$@"
  cmp "$work/rust.safetensors" "$work/cpp.safetensors" || fail "other bits than signum in C++: $*"
  rm -r "$work/rust" "$work/cpp" "$work/cpp.safetensors"
  mv "$work/rust.safetensors" "$work/last.safetensors"
}
same --strategy ddp
same --strategy zero2 --nproc 3 optimizer.weight_decay=0.1 train.grad_accum_steps=2
same --strategy zero3 --nproc 2 precision.compute=bf16 optimizer.momentum=0.5
same --strategy fsdp --nproc 2 train.clip_value=1e-3 optimizer.weight_decay=0.1 optimizer.decay_groups=false
same --strategy ddp --nproc 2
train half "$rust" --strategy zero1 --nproc 2 checkpoint.every=3
train resumed "$rust" --strategy zero3 --nproc 2 --resume "$work/half/checkpoints/step-3"
cmp "$work/last.safetensors" "$work/resumed.safetensors" || fail "the resumed run has other bits"
"$prefix/bin/ddhost" --model "$model" --optimizer "$rust" optimizer.momentum=2 "run.dir=$work/bad" >"$work/log" 2>&1 &&
  fail "momentum 2 was taken"
grep -q 'optimizer.momentum is 2, which takes nothing of a gradient' "$work/log" || { cat "$work/log"; fail "no sentence"; }
echo "the bits of signum in C++"
