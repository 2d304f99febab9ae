#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# scheme.sh <source folder> <build folder> <name> <model>: the foreign plugin sdk/examples/<name> is built outside of the tree,
# from an installed prefix alone, and passes its own test.sh with that prefix. bin/ddhost is the same before and after.
# `model`: a library, or the name of an example of the prefix that is built too.
set -euo pipefail
source=$1 build=$2 name=$3 model=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
quiet() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; echo "FAILED: $*"; exit 1; }; }
quiet cmake --install "$build" --prefix "$work/prefix"
before=$(sha256sum "$work/prefix/bin/ddhost")
make_plugin() { # folder of the prefix's examples, build folder
  quiet cmake -G Ninja "-DCMAKE_PREFIX_PATH=$work/prefix" -S "$1" -B "$2"
  quiet cmake --build "$2" -j2
}
cp -r "$work/prefix/share/ddhost/examples" "$work/examples"
make_plugin "$work/examples/$name" "$work/$name"
if [[ $model != *.so ]]; then
  mkdir "$work/model"
  cat >"$work/model/CMakeLists.txt" <<TEXT
cmake_minimum_required(VERSION 3.22)
project(model LANGUAGES CXX)
find_package(ddhost-sdk REQUIRED)
ddh_add_plugin(NAME $model SOURCES ../examples/$model/$model.cpp)
TEXT
  make_plugin "$work/model" "$work/model/build"
  model=$work/model/build/plugins/$model.so
fi
bash "$source/sdk/examples/$name/test.sh" "$work/prefix" "$work/$name/plugins/$name.so" "$model"
[[ $(sha256sum "$work/prefix/bin/ddhost") == "$before" ]] || { echo "FAILED: bin/ddhost has changed"; exit 1; }
