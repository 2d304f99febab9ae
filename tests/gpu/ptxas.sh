#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# ptxas.sh <nvcc> <files of PTX...>: NVIDIA's assembler accepts the PTX for the GPUs that it names, and no kernel spills
# registers.
set -euo pipefail
nvcc=$1
shift
ptxas=$(dirname "$(readlink -f "$nvcc")")/ptxas
[[ -x $ptxas ]] || { echo "skipped: ptxas is not beside $nvcc"; exit 4; }
failed=0
for file in "$@"; do
  for arch in sm_80 sm_90 sm_100 sm_120; do
    if ! report=$("$ptxas" -v -arch="$arch" -o /dev/null "$file" 2>&1); then
      echo "FAILED: $file, $arch: $report"
      failed=1
      continue
    fi
    kernels=$(grep -c "Compiling entry function" <<<"$report") || true
    clean=$(grep -c " 0 bytes spill stores, 0 bytes spill loads" <<<"$report") || true
    ((kernels > 0 && kernels == clean)) && continue
    echo "FAILED: $file, $arch: $clean of $kernels kernels don't spill"
    failed=1
  done
done
exit "$failed"
