#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh PREFIX MODEL.so [setting...]: builds adamw8bit outside of any tree, from an installed ddhost alone, and trains MODEL
# with it. The bits are equal under six strategies and worlds of 1, 2 and 4 ranks; a resumed run has those of an uninterrupted
# one, in another world too; the state takes at most 2.1 bytes per element; state of version 1 is converted; state of a newer
# version is refused.
set -euo pipefail
prefix=$1 model=$2
shift 2
settings=("$@")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
cp "$here"/{CMakeLists.txt,adamw8bit.cpp} "$work"
# The same source with the state of version 1, and of a version to come.
cat >>"$work/CMakeLists.txt" <<'TEXT'
foreach(version 1 3)
  ddh_add_plugin(NAME adamw8bit_v${version} SOURCES adamw8bit.cpp)
  target_compile_definitions(ddh_plugin_adamw8bit_v${version} PRIVATE ADAMW8BIT_STATE_VERSION=${version})
endforeach()
TEXT
{
  cmake -G Ninja -S "$work" -B "$work/build" "-DCMAKE_PREFIX_PATH=$prefix" && cmake --build "$work/build" -j2
} >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
plugins=$work/build/plugins

run() { # folder, ranks, steps, more...: four micro-batches in each step
  "$prefix/bin/ddhost" --model "$model" --nproc "$2" "train.grad_accum_steps=$((4 / $2))" "train.steps=$3" run.quiet=true \
    run.sample_tokens=0 "run.dir=$work/$1" --save-final "$work/$1.safetensors" optimizer.min_numel=64 "${@:4}" \
    "${settings[@]}" >"$work/log" 2>&1
}
train() { run "$@" || { cat "$work/log"; fail "$*"; }; }
equal() { cmp "$work/$1.safetensors" "$work/$2.safetensors" || fail "the parameters of $1 and $2 differ"; }

this=(--optimizer "$plugins/adamw8bit.so")
train first 1 4 --strategy ddp "${this[@]}" run.check_plugins=true
for world in 1 2 4; do
  for strategy in ddp zero1 zero2 zero3 zero3_offload fsdp; do
    train "${strategy}_$world" "$world" 4 --strategy "$strategy" "${this[@]}"
    equal first "${strategy}_$world"
  done
done
train on_disk 2 4 --strategy zero3_offload "${this[@]}" strategy.offload_optimizer.device=nvme "strategy.nvme_path=$work"
equal first on_disk
echo "equal bits under six strategies and in worlds of 1, 2 and 4"

# From the checkpoint after two steps on, two more by another strategy in another world.
train half 4 4 --strategy zero1 "${this[@]}" checkpoint.every=2
train resumed 2 4 --strategy zero3_offload "${this[@]}" --resume "$work/half/checkpoints/step-2"
equal first resumed

# Bytes of the quantized state per element.
read -r bytes numel < <(grep -A12 '"name": "exp_avg[a-z_]*\(8bit\|scale\)/' "$work"/half/checkpoints/step-2/manifest.json |
  grep -oE '"(name|bytes)": [^,]*' | awk -F'"' '/name/ { codes = $4 ~ /exp_avg_8bit/ }
    /bytes/ { n = substr($3, 3); bytes += n; if (codes) numel += n } END { print bytes, numel }')
((numel > 0 && 10 * bytes <= 21 * numel)) || fail "the state of $numel elements takes $bytes bytes"
echo "state: $bytes bytes for $numel elements"

train old 2 4 --strategy zero2 --optimizer "$plugins/adamw8bit_v1.so" checkpoint.every=2
train converted 2 4 --strategy zero3 "${this[@]}" --resume "$work/old/checkpoints/step-2"
echo "state of version 1 was converted"
train newer 2 4 --strategy zero2 --optimizer "$plugins/adamw8bit_v3.so" checkpoint.every=2
run refused 2 4 --strategy zero2 "${this[@]}" --resume "$work/newer/checkpoints/step-2" && fail "newer state was taken"
grep -q "saved by 'adamw8bit' 2.0 with state version 3; this one reads 1 to 2" "$work/log" || { cat "$work/log"; exit 1; }
