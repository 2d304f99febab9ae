#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# vectorized.sh <source folder> <build folder>: a source with a loop that must be vectorized (DDH_SIMD_LOOP) is compiled
# with DDH_KERNEL_FLAGS. Without them the loop gives the same bits, but takes three times as long.
set -euo pipefail
cd "$1"
commands="$2/compile_commands.json"
[[ -f $commands ]] || { echo "$commands is missing; configure with CMAKE_EXPORT_COMPILE_COMMANDS"; exit 1; }
failed=0 checked=0
while IFS= read -r source; do
  command=$(grep -F "\"command\": " "$commands" | grep -F -- " -c $PWD/$source" | head -1 || true)
  if [[ -z $command ]]; then
    echo "FAILED: $source has DDH_SIMD_LOOP, but is not compiled alone; give it DDH_KERNEL_FLAGS in its CMakeLists.txt"
    failed=1
  elif [[ $command != *-ffp-contract=off*-fno-trapping-math* ]]; then
    echo "FAILED: $source has DDH_SIMD_LOOP, but is compiled without DDH_KERNEL_FLAGS; add it in its CMakeLists.txt"
    failed=1
  fi
  checked=$((checked + 1))
done < <(git ls-files --cached --others --exclude-standard -- host plugins models sdk/src | grep '\.cpp$' |
  xargs grep -l DDH_SIMD_LOOP)
echo "$checked sources"
((checked > 0)) || failed=1
exit "$failed"
