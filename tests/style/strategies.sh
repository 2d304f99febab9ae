#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# strategies.sh <source folder>: the strategies are read in order. Each of the first four has at most 100 lines with its
# header comment, and differs from the previous one in at most 30 lines (those that diff marks with < or >).
set -euo pipefail
cd "$1/plugins/strategies"
failed=0
before=
for strategy in ddp zero1 zero2 zero3; do
  lines=$(wc -l <$strategy.cpp)
  ((lines <= 100)) || { echo "FAILED: $strategy.cpp has $lines lines, the limit is 100"; failed=1; }
  if [[ -n $before ]]; then
    changed=$(diff $before.cpp $strategy.cpp | grep -c '^[<>]' || true)
    ((changed <= 30)) || { echo "FAILED: diff $before.cpp $strategy.cpp marks $changed lines, the limit is 30"; failed=1; }
  fi
  before=$strategy
done
exit "$failed"
