#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# quotes.sh <source folder>: pages for authors of plugins quote code that is compiled and tested. Each line of a block of C or
# C++ in docs/writing-a*.md is a line of a source below sdk/examples, plugins or tests/fixtures. In a block of a diff, these are
# the lines after their first column. Blank lines and "..." are left out. A page that quotes code begins with its includes.
set -euo pipefail
cd "$1"
sources=$(git ls-files --cached --others --exclude-standard -- sdk/examples plugins tests/fixtures | grep -E '\.(cpp|hpp|c)$')
known=$(mktemp)
trap 'rm -f "$known"' EXIT
# shellcheck disable=SC2086 # names without blanks
sed -E 's/^[[:space:]]+//; s/[[:space:]]+$//' $sources | LC_ALL=C sort -u >"$known"
failed=0 quoted=0
while IFS=$'\t' read -r place line; do
  quoted=$((quoted + 1))
  grep -qxF -e "$line" "$known" && continue
  echo "FAILED: $place quotes '$line', which no source below sdk/examples, plugins or tests/fixtures has; quote the source"
  failed=1
done < <(awk '
  /^```/ { kind = kind == "" ? substr($0, 4) : ""; next }
  kind == "cpp" || kind == "c" || kind == "diff" {
    line = kind == "diff" ? substr($0, 2) : $0
    gsub(/^[ \t]+|[ \t]+$/, "", line)
    if (line != "" && line != "...") print FILENAME ":" FNR "\t" line
  }' docs/writing-a*.md)
for page in docs/writing-a*.md; do
  first=$(grep -A1 -m1 -E '^```(cpp|c)$' "$page" | tail -1)
  [[ $first == '#include '* ]] || { echo "FAILED: the first code in $page shows no include"; failed=1; }
done
((quoted > 0)) || { echo "FAILED: the pages quote nothing"; failed=1; }
((failed)) || echo "$quoted quoted lines"
exit "$failed"
