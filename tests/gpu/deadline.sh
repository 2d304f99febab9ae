#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# deadline.sh <build folder>: on_gpu.sh without time names what it leaves out, and fails.
set -euo pipefail
log=$(DDHOST_GPU_MINUTES=0 bash "$(dirname "$0")/on_gpu.sh" "$1") && { echo "FAILED: it succeeded: $log"; exit 1; }
for name in gpu_device gpu_nccl_collectives ddp-shm-1 fsdp-nccl-2 same-gpu gpu_rates; do
  grep -q "^no time: $name: .*DDHOST_GPU_MINUTES" <<<"$log" || { echo "FAILED: $name is not named: $log"; exit 1; }
done
! grep -qE '^(equal bits|passed|FAILED):' <<<"$log" || { echo "FAILED: something was run: $log"; exit 1; }
