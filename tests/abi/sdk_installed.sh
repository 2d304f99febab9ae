#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# sdk_installed.sh <source folder> <build folder>: sdk/examples is built as a stranger would, from an installed prefix
# alone; and ddh_add_plugin refuses -ffast-math and a second exported symbol.
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# CMake's log goes where a failure shows it.
quiet() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; echo "FAILED: $*"; exit 1; }; }

quiet cmake --install "$build" --prefix "$work/prefix"
cp -r "$source/sdk/examples" "$work/examples"
configure=(cmake -G Ninja "-DCMAKE_PREFIX_PATH=$work/prefix")
quiet "${configure[@]}" -S "$work/examples" -B "$work/build"
quiet cmake --build "$work/build" -j2
for plugin in "$work"/build/plugins/*.so; do echo "built $(basename "$plugin")"; done

refuses() { # folder, words of the refusal
  "${configure[@]}" -S "$work/$1" -B "$work/$1/build" >"$work/log" 2>&1 &&
    cmake --build "$work/$1/build" >>"$work/log" 2>&1 && { echo "FAILED: $1 was built"; exit 1; }
  [[ $(tr -s '\n ' ' ' <"$work/log") == *"$2"* ]] || {
    cat "$work/log"
    echo "FAILED: $1 was refused for another reason"
    exit 1
  }
  echo "refused $1"
}
project() { # folder, statement after ddh_add_plugin
  mkdir "$work/$1"
  cat >"$work/$1/CMakeLists.txt" <<TEXT
cmake_minimum_required(VERSION 3.22)
project(bad LANGUAGES C CXX)
find_package(ddhost-sdk REQUIRED)
ddh_add_plugin(NAME bad SOURCES ../examples/ddp_in_c/ddp_in_c.c)
$2
TEXT
}
project fast_math 'target_compile_options(ddh_plugin_bad PRIVATE -ffast-math)'
refuses fast_math 'ffast-math is refused in plugins'
project fast_math_at_link 'target_link_options(ddh_plugin_bad PRIVATE -ffast-math)'
refuses fast_math_at_link 'was linked with -ffast-math'
# shellcheck disable=SC2016 # variables of CMake
project second_symbol 'file(WRITE ${CMAKE_BINARY_DIR}/second.map "{ global: ddh_plugin_entry_0; second; local: *; };")
file(WRITE ${CMAKE_BINARY_DIR}/second.c
  "__attribute__((visibility(\"default\"))) int second(void); int second(void) { return 2; }")
target_sources(ddh_plugin_bad PRIVATE ${CMAKE_BINARY_DIR}/second.c)
set_property(TARGET ddh_plugin_bad PROPERTY LINK_OPTIONS -Wl,--version-script,${CMAKE_BINARY_DIR}/second.map)'
refuses second_symbol 'a plugin exports ddh_plugin_entry_0 and nothing else'
