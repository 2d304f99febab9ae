#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# no_fma.sh <fused.ptx> <files of PTX...>: no kernel of the files fuses a product with a sum, approximates, or flushes
# denormals to zero. Nor does it leave the rounding open: the driver may fuse a product and a sum without .rn. fused.ptx was
# compiled with -fmad=true, which must be found.
set -euo pipefail
failed=0
type='(f16|f16x2|bf16|bf16x2|f32|f32x2|f64)\b'
fused="\b(fma|mad)\.[a-z.]*$type"
wrong="$fused|\b(mul|add|sub)(\.sat)?\.$type|\.ftz|\.approx|div\.full"
grep -qE "$fused" "$1" || { echo "FAILED: the fused products of $1 are not found"; failed=1; }
for file in "${@:2}"; do
  [[ -s $file ]] || { echo "FAILED: no $file"; failed=1; continue; }
  if found=$(grep -nE "$wrong" "$file"); then
    echo "FAILED: $file: $(head -n 3 <<<"$found")"
    failed=1
  fi
done
exit "$failed"
