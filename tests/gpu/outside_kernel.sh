#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# outside_kernel.sh <source folder> <build folder>: with the installed SDK alone two optimizers with kernels are built
# outside of the tree, in two folders of a project that each look for the SDK. The PTX is that of the tree's build, and one
# of them trains on the stand-in with the same bits.
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
quiet() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; fail "$*"; }; }

quiet cmake --install "$build" --prefix "$work/prefix"
mkdir "$work/outside"
printf '%s\n' 'cmake_minimum_required(VERSION 3.22)' 'project(outside LANGUAGES CXX)' >"$work/outside/CMakeLists.txt"
for name in lion adagrad; do
  mkdir "$work/outside/$name"
  cp "$source"/plugins/optimizers/{$name.{cpp,cu,hpp},kernel_image.hpp} "$work/outside/$name/"
  echo "add_subdirectory($name)" >>"$work/outside/CMakeLists.txt"
  cat >"$work/outside/$name/CMakeLists.txt" <<TEXT
find_package(ddhost-sdk REQUIRED COMPONENTS cuda)
ddh_add_plugin(NAME my_$name SOURCES $name.cpp)
ddhost_add_ptx(ddh_plugin_my_$name $name.cu)
target_compile_definitions(ddh_plugin_my_$name PRIVATE DDH_WITH_KERNELS)
TEXT
done
configure=(cmake -G Ninja "-DCMAKE_PREFIX_PATH=$work/prefix" -S "$work/outside")
quiet "${configure[@]}" -B "$work/outside/build"
quiet cmake --build "$work/outside/build"
for name in lion adagrad; do
  cmp "$work/outside/build/$name/$name.ptx" "$build/plugins/optimizers/$name.ptx" || fail "other PTX than in the tree"
done

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
