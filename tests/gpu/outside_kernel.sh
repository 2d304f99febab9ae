#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# outside_kernel.sh <source folder> <build folder>: with the installed SDK alone an optimizer with a kernel is built outside
# of the tree. Its PTX is that of the tree's build, and it trains on the stand-in with the same bits.
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
quiet() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; fail "$*"; }; }

quiet cmake --install "$build" --prefix "$work/prefix"
mkdir "$work/outside"
cp "$source"/plugins/optimizers/{lion.cpp,lion.cu,lion.hpp,kernel_image.hpp} "$work/outside/"
cat >"$work/outside/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.22)
project(outside LANGUAGES CXX)
find_package(ddhost-sdk REQUIRED COMPONENTS cuda)
ddh_add_plugin(NAME my_lion SOURCES lion.cpp)
ddhost_add_ptx(ddh_plugin_my_lion lion.cu)
target_compile_definitions(ddh_plugin_my_lion PRIVATE DDH_WITH_KERNELS)
TEXT
configure=(cmake -G Ninja "-DCMAKE_PREFIX_PATH=$work/prefix" -S "$work/outside")
quiet "${configure[@]}" -B "$work/outside/build"
quiet cmake --build "$work/outside/build"
cmp "$work/outside/build/lion.ptx" "$build/plugins/optimizers/lion.ptx" || fail "other PTX than in the tree"

train() { # name, optimizer
  quiet "$build/ddhost" --model "$build/tests/plugins/kernel_toy.so" --device cuda --optimizer "$2" --nproc 1 train.steps=3 \
    run.sample_tokens=0 "device.driver=$build/tests/standin/libcuda.so.1" "run.dir=$work/$1" \
    "train.save_final=$work/$1.safetensors"
}
train here lion
train outside "$work/outside/build/plugins/my_lion.so"
cmp "$work/here.safetensors" "$work/outside.safetensors" || fail "other weights than with the tree's plugin"

"${configure[@]}" -B "$work/none" -DDDHOST_NVCC=/none/nvcc >"$work/log" 2>&1 && fail "a missing nvcc was accepted"
grep -q 'DDHOST_NVCC is /none/nvcc' "$work/log" || { cat "$work/log"; fail "a missing nvcc is not named"; }
