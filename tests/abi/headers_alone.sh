#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# headers_alone.sh <include folder>: every header of the ABI compiles alone, as C11 and C++17 (and C++20), with gcc and
# clang, without a warning; and every struct that grows has the size of its *_MIN_SIZE.
set -euo pipefail
include=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(-pedantic -Wall -Wextra -Wpadded -Werror -fsyntax-only "-I$include")

compilers=("gcc -x c -std=c11" "gcc -x c++ -std=c++17" "gcc -x c++ -std=c++20")
if command -v clang >/dev/null; then
  compilers+=("clang -x c -std=c11" "clang -x c++ -std=c++17" "clang -x c++ -std=c++20")
else
  echo "clang is not here: checked with gcc alone"
fi

cd "$include"
headers=$(find ddh -name '*.h' | LC_ALL=C sort)
failed=0
check() { # source file, name for messages
  local compiler
  for compiler in "${compilers[@]}"; do
    # shellcheck disable=SC2086 # a compiler and its flags
    $compiler "${flags[@]}" "$1" || {
      echo "FAILED: $compiler on $2"
      failed=1
    }
  done
}
for header in $headers; do
  printf '#include "%s"\n#include "%s"\n' "$header" "$header" >"$work/alone.c"
  check "$work/alone.c" "$header"
done

{
  echo '#include "ddh/ddh.h"'
  echo '#ifndef __cplusplus'
  echo '#define static_assert _Static_assert'
  echo '#endif'
  # shellcheck disable=SC2086 # a list of words
  sed -nE 's/^#define DDH_([A-Z_0-9]+)_MIN_SIZE .*/\1/p' $headers | while read -r name; do
    [[ $name != PARAM_VIEW ]] || continue # it comes in arrays with a stride, and has no struct_size
    lower=$(tr '[:upper:]' '[:lower:]' <<<"$name")
    echo "static_assert(sizeof(ddh_$lower) == DDH_${name}_MIN_SIZE, \"ddh_$lower\");"
    echo "static_assert(offsetof(ddh_$lower, struct_size) == 0, \"ddh_$lower\");"
  done
  echo 'static_assert(sizeof(ddh_param_view) == DDH_PARAM_VIEW_MIN_SIZE, "ddh_param_view");'
} >"$work/sizes.c"
check "$work/sizes.c" "the sizes of structs"

# shellcheck disable=SC2086 # a list of words
versioned=$(grep -h -c '^  uint32_t struct_size;' $headers | awk '{ n += $1 } END { print n }')
promised=$(grep -c 'offsetof' "$work/sizes.c")
if [[ $versioned != "$promised" ]]; then
  echo "FAILED: $versioned structs have a struct_size, $promised have a *_MIN_SIZE"
  failed=1
fi
echo "$(wc -w <<<"$headers") headers, $promised structs, ${#compilers[@]} compilers"
exit "$failed"
