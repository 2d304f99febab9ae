#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# no_fma.sh <files of PTX...>: no kernel fuses a product with a sum, approximates, or flushes denormals to zero.
set -euo pipefail
failed=0
for file in "$@"; do
  [[ -s $file ]] || { echo "FAILED: no $file"; failed=1; continue; }
  if found=$(grep -nE '(fma\.rn|mad\.rn|\.ftz|\.approx)' "$file"); then
    echo "FAILED: $file: $(head -n 3 <<<"$found")"
    failed=1
  fi
done
exit "$failed"
