#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# sizes.sh <source folder>: limits of sizes. Files stay under 500 lines, strategies under 320, lines under 129 characters
# (clang-format aims at 120; tables in comments may need more); every source begins with its licence.
set -euo pipefail
cd "$1"
failed=0
files=$(git ls-files --cached --others --exclude-standard -- \
  '*.h' '*.hpp' '*.c' '*.cpp' '*.cmake' '*CMakeLists.txt' '*.sh' dev)
[[ -n $files ]] || { echo "FAILED: git lists no file"; failed=1; }
while IFS= read -r file; do
  [[ -e $file ]] || continue
  limit=500
  [[ $file != plugins/strategies/* ]] || limit=320
  lines=$(wc -l <"$file")
  ((lines < limit)) || { echo "FAILED: $file has $lines lines, the limit is $limit"; failed=1; }
  first=$(head -n 2 "$file")
  [[ $first == *"SPDX-License-Identifier: Apache-2.0"* ]] || { echo "FAILED: $file lacks its SPDX line"; failed=1; }
  wide=$(awk 'length > 128 { print FILENAME ":" FNR; exit }' "$file")
  [[ -z $wide ]] || { echo "FAILED: $wide is longer than 128 characters"; failed=1; }
done <<<"$files"
exit "$failed"
