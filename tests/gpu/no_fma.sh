#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# no_fma.sh <files of PTX...>: no kernel fuses a product with a sum, approximates, or flushes denormals to zero. Nor does
# it leave the rounding open: the driver may fuse a product and a sum without .rn.
set -euo pipefail
failed=0
type='(f16|f16x2|bf16|bf16x2|f32|f32x2|f64)\b'
wrong="\b(fma|mad)\.[a-z.]*$type|\b(mul|add|sub)(\.sat)?\.$type|\.ftz|\.approx|div\.full"
for file in "$@"; do
  [[ -s $file ]] || { echo "FAILED: no $file"; failed=1; continue; }
  if found=$(grep -nE "$wrong" "$file"); then
    echo "FAILED: $file: $(head -n 3 <<<"$found")"
    failed=1
  fi
done
exit "$failed"
