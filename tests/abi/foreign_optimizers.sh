#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# foreign_optimizers.sh <source folder> <build folder>: the optimizers in sdk/examples as their authors would ship them, from an
# installed prefix and with one host binary: each folder's test.sh.
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
cmake --install "$build" --prefix "$prefix" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
before=$(sha256sum "$prefix/bin/ddhost")
model=$build/tests/plugins/toy.so
bash "$source/sdk/examples/adamw8bit/test.sh" "$prefix" "$model"
bash "$source/sdk/examples/soap/test.sh" "$prefix" "$model"
bash "$source/sdk/examples/muon/test.sh" "$prefix" "$model" "$source/plugins/optimizers"
[[ $(sha256sum "$prefix/bin/ddhost") == "$before" ]] || { echo "FAILED: the host binary has changed"; exit 1; }
