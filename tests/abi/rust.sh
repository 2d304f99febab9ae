#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# rust.sh <source folder> <build folder>: the optimizer in Rust, sdk/examples/rust_signum, is built with an installed prefix
# alone and passes its own test. Skipped where there is no rustc.
set -euo pipefail
source=$1 build=$2
command -v rustc >/dev/null || { echo "skipped: there is no rustc, which compiles sdk/examples/rust_signum"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cp -r "$work/prefix/share/ddhost/examples/rust_signum" "$work/rust_signum"
bash "$work/rust_signum/test.sh" "$work/prefix" "$build/tests/plugins/toy.so" "$build/tests/plugins/signum.so"
