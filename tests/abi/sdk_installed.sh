#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# sdk_installed.sh <source folder> <build folder>: an installed prefix is enough to build plugins. Its examples, a model, and
# a plugin that calls every part of the library are built from it alone, and trained; a plugin in C needs no C++; nothing in
# the prefix names the checkout; LibTorch is found as documented; and ddh_add_plugin refuses -ffast-math and a second
# exported symbol.
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
fail() { echo "FAILED: $*"; exit 1; }
# A failure prints CMake's log.
quiet() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; fail "$*"; }; }
unset DDHOST_LIBTORCH LD_LIBRARY_PATH # what a stranger's shell does not have

quiet cmake --install "$build" --prefix "$prefix"
for file in bin/ddhost share/doc/ddhost/{LICENSE,README.md,CHANGELOG.md,docs/compatibility.md} \
  share/ddhost/examples/ddp_in_c/ddp_in_c.c include/ddh/ddh.h include/ddh/sdk/structs.hpp lib/libddhost_sdk.a \
  share/ddhost/plugin_api/{README.md,checksums.txt,layouts.json}; do
  [[ -s $prefix/$file ]] || fail "the prefix has no $file"
done
sum=$(sed -nE 's/.*CHECKSUM_TEXT "(.*)"/\1/p' "$prefix/include/ddh/checksum.h")
grep -q " $sum\$" "$prefix/share/ddhost/plugin_api/checksums.txt" || fail "checksums.txt lacks the headers' checksum"
grep -q "$sum" "$prefix/share/ddhost/plugin_api/layouts.json" || fail "layouts.json is of other headers"
leaks=$(grep -rlF -e "$source" -e "$build" "$prefix" || true)
[[ -z $leaks ]] || fail "these name the checkout: $leaks"
mv "$prefix" "$work/moved" && prefix=$work/moved # from any place
configure=(cmake -G Ninja "-DCMAKE_PREFIX_PATH=$prefix")

# The examples, and a model outside of this tree.
cp -r "$prefix/share/ddhost/examples" "$work/examples"
cp "$source"/tests/fixtures/models/{toy_model.cpp,toy_desc.hpp,toy_extras.hpp} "$work/examples/"
echo 'ddh_add_plugin(NAME toy SOURCES toy_model.cpp)' >>"$work/examples/CMakeLists.txt"
# Every part of the library, with what it needs in turn, such as liburing.
cat >"$work/examples/uses_library.cpp" <<'TEXT'
#include "ddh/sdk/kernels/elementwise.hpp"
#include "ddh/sdk/params/prefetch_policy.hpp"
#include "ddh/sdk/params/regrouped_params.hpp"
#include "ddh/sdk/tier/fetched_params.hpp"
#include "ddh/sdk/tier/pinned_params.hpp"
__attribute__((used)) static auto* const make_io = &ddh::make_io_engine;
__attribute__((used)) static auto* const run_tiles = &ddh::run_tiles;
__attribute__((used)) static auto* const piece_at = &ddh::piece_at;
TEXT
echo 'ddh_add_plugin(NAME library SOURCES solo/solo.cpp uses_library.cpp)' >>"$work/examples/CMakeLists.txt"
quiet "${configure[@]}" -S "$work/examples" -B "$work/build"
grep -q '^CMAKE_BUILD_TYPE:.*=RelWithDebInfo' "$work/build/CMakeCache.txt" || fail "plugins are built without a build type"
for flag in -ffp-contract=off -fno-math-errno -fno-trapping-math -O3; do
  [[ $(grep -c -- " $flag" "$work/build/build.ninja") -ge 3 ]] || fail "plugins are built without $flag"
done
quiet cmake --build "$work/build" -j2
needed=$(readelf -d "$work/build/plugins/ddp_in_c.so" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p')
[[ $needed != *stdc++* ]] || fail "a plugin in C links $needed"
mkdir "$work/c_alone"
cat >"$work/c_alone/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.22)
project(c_alone LANGUAGES C)
find_package(ddhost-sdk REQUIRED)
ddh_add_plugin(NAME c_alone SOURCES ../examples/ddp_in_c/ddp_in_c.c)
TEXT
quiet "${configure[@]}" -S "$work/c_alone" -B "$work/c_alone/build"
quiet cmake --build "$work/c_alone/build"
train() { # ranks, strategy, more...
  quiet "$prefix/bin/ddhost" --strategy "$2" --model "$work/build/plugins/toy.so" --nproc "$1" train.steps=3 \
    "run.dir=$work/runs/$1-$(basename "$2")" "${@:3}"
  echo "trained with $(basename "$2") on $1"
}
for plugin in "$work"/build/plugins/*.so; do
  case $plugin in
    */toy.so | */linear_model.so) ;;
    */halving.so) train 1 ddp --schedule "$plugin" ;;
    */best_loss.so) train 1 zero1 --monitor "$plugin" ;;
    */signum.so) train 1 zero2 --optimizer "$plugin" run.check_plugins=true ;;
    */sockets.so) train 2 zero2 --comm "$plugin" ;;
    */llmc_format.so) "$prefix/bin/ddhost" inspect "$plugin" | grep -q "format.*llmc" || fail "llmc_format.so is no format" ;;
    */own_memory.so) train 1 zero3 --device "$plugin" ;;
    *) train 1 "$plugin" ;;
  esac
done
quiet "$prefix/bin/ddhost" --model "$work/build/plugins/linear_model.so" --nproc 2 --strategy zero2 train.steps=60 \
  optimizer.lr=0.05 "run.dir=$work/runs/linear" --save-final "$work/linear.safetensors"
quiet "$prefix/bin/ddhost" --model "$work/build/plugins/linear_model.so" --nproc 2 --strategy zero3 train.steps=60 \
  optimizer.lr=0.05 --device sim "run.dir=$work/runs/linear_on_sim" --save-final "$work/linear_on_sim.safetensors"
cmp "$work"/{linear,linear_on_sim}.safetensors || fail "the example model has other bits on --device sim"
grep -o '"loss":[^,]*' "$work/runs/linear/metrics.jsonl" | cut -d: -f2 |
  awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(last < 0.2 * first) }' || fail "the example model does not learn"
train 2 "$work/build/plugins/ddp_in_c.so"
train 2 zero3

# A foreign scheme, with a project and a test of its own.
before=$(sha256sum "$prefix/bin/ddhost")
quiet bash "$prefix/share/ddhost/examples/powersgd/test.sh" "$prefix" "$work/build/plugins/toy.so" model.width=32 \
  model.hidden=64 model.vocab=48
[[ $(sha256sum "$prefix/bin/ddhost") == "$before" ]] || fail "powersgd's test has changed the host binary"
echo "powersgd passed its test"

# Versions: in 0.x another minor version is another interface.
mkdir "$work/versions"
cat >"$work/versions/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.22)
project(versions LANGUAGES CXX)
foreach(version 0.1 0.1.0 0.2 1.0)
  find_package(ddhost-sdk ${version} QUIET)
  message(STATUS "version ${version}: ${ddhost-sdk_FOUND}")
endforeach()
TEXT
quiet "${configure[@]}" -S "$work/versions" -B "$work/versions/build"
[[ $(grep -o 'version [0-9.]*: [01]' "$work/log" | tr '\n' ' ') == \
  "version 0.1: 1 version 0.1.0: 1 version 0.2: 0 version 1.0: 0 " ]] || {
  cat "$work/log"
  fail "find_package takes the wrong versions"
}

# LibTorch: given by DDHOST_LIBTORCH, or as a link in the prefix.
if [[ -e $prefix/lib/ddhost/plugins/gpt.so ]]; then
  runpath() { readelf -d "$1" | sed -nE 's/.*\((RUNPATH|RPATH)\).*\[(.*)\]/\2/p'; }
  gpt=$prefix/lib/ddhost/plugins/gpt.so
  torch=$(dirname "$(ldd "$build/plugins/gpt.so" | sed -nE 's/.*libtorch_cpu.so => ([^ ]*) .*/\1/p')")
  torch=$(dirname "$torch")
  # shellcheck disable=SC2016 # the loader's own variable
  [[ $(runpath "$gpt") == '$ORIGIN/../libtorch/lib' ]] || fail "the installed gpt.so has RUNPATH $(runpath "$gpt")"
  "$prefix/bin/ddhost" inspect gpt >"$work/log" && fail "gpt.so was loaded without a LibTorch"
  grep -q 'set DDHOST_LIBTORCH' "$work/log" || { cat "$work/log"; fail "the cure is not named"; }
  DDHOST_LIBTORCH=$work/none "$prefix/bin/ddhost" inspect gpt >"$work/log" && fail "a wrong DDHOST_LIBTORCH was taken"
  grep -q 'DDHOST_LIBTORCH=.* does not hold' "$work/log" || { cat "$work/log"; fail "a wrong DDHOST_LIBTORCH is not named"; }
  quiet env DDHOST_LIBTORCH="$torch" "$prefix/bin/ddhost" inspect gpt
  ln -s "$torch" "$prefix/lib/ddhost/libtorch"
  quiet "$prefix/bin/ddhost" inspect gpt

  mkdir "$work/with_torch"
  cat >"$work/with_torch/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.22)
project(with_torch LANGUAGES CXX)
find_package(ddhost-sdk 0.1 REQUIRED COMPONENTS torch)
ddh_add_plugin(NAME with_torch SOURCES ../examples/solo/solo.cpp uses_torch.cpp LIBS ddhost::torch)
TEXT
  cat >"$work/with_torch/uses_torch.cpp" <<'TEXT'
#include <ATen/Parallel.h>
__attribute__((constructor)) static void use_torch() {
  volatile int threads = at::get_num_threads();
  static_cast<void>(threads);
}
TEXT
  quiet "${configure[@]}" "-DDDHOST_LIBTORCH=$torch" -S "$work/with_torch" -B "$work/with_torch/build"
  quiet cmake --build "$work/with_torch/build"
  quiet "$prefix/bin/ddhost" inspect "$work/with_torch/build/plugins/with_torch.so"
  grep -q 'libtorch_cpu.so' "$work/log" || { cat "$work/log"; fail "ddhost::torch is not linked"; }
  grep -qE 'LibTorch +[1-9]' "$work/log" || { cat "$work/log"; fail "the note tells no LibTorch"; }
  echo "LibTorch in $torch was found"
else
  echo "built without LibTorch: gpt.so and ddhost::torch were not tried"
fi

refuses() { # folder, words of the refusal
  "${configure[@]}" -S "$work/$1" -B "$work/$1/build" >"$work/log" 2>&1 &&
    cmake --build "$work/$1/build" >>"$work/log" 2>&1 && fail "$1 was built"
  [[ $(tr -s '\n ' ' ' <"$work/log") == *"$2"* ]] || {
    cat "$work/log"
    fail "$1 was refused for another reason"
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
