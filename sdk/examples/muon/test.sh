#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh PREFIX MODEL.so SOURCES [setting...]: builds the shipped muon from its own sources in SOURCES, unchanged, outside of
# any tree and from an installed ddhost alone. It trains MODEL to the bits of the shipped plugin.
set -euo pipefail
prefix=$1 model=$2 sources=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/CMakeLists.txt" "$work"
cp -r "$sources" "$work/sources"
{
  cmake -G Ninja -S "$work" -B "$work/build" "-DCMAKE_PREFIX_PATH=$prefix" "-DSOURCES=$work/sources" &&
    cmake --build "$work/build"
} >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
train() { # name, optimizer, settings...
  "$prefix/bin/ddhost" --model "$model" --nproc 2 --strategy zero2 --optimizer "$2" train.steps=4 run.sample_tokens=0 \
    "run.dir=$work/$1" --save-final "$work/$1.safetensors" "${@:3}" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
}
train shipped muon "$@"
train rebuilt "$work/build/plugins/muon.so" "$@"
cmp "$work"/{shipped,rebuilt}.safetensors
echo "the sources of muon build from the prefix, and train to the same bits"
