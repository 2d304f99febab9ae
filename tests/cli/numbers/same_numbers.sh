#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# same_numbers.sh <source> <build>   The files of other programs give the same learning rates and losses here and there.
# Needs a Python with DeepSpeed and Accelerate (DDHOST_DEEPSPEED_PYTHON, else DDHOST_PYTHON, else the one of `./dev setup
# --python`) and the files ($DDHOST_DATA/foreign_configs). Exits with 77 and prints the reason where one is missing.
set -euo pipefail
source=$1 build=$2
python=${DDHOST_DEEPSPEED_PYTHON:-${DDHOST_PYTHON:-$source/.deps/venv/bin/python}}
data=${DDHOST_DATA:-$source/../shared/data}/foreign_configs
for library in torch deepspeed accelerate hjson yaml numpy; do
  DS_ACCELERATOR=cpu "$python" -c "import $library" >/dev/null 2>&1 || {
    echo "Skipped: there is no Python with $library; name one with DDHOST_DEEPSPEED_PYTHON (pip install torch deepspeed" \
      "accelerate)"
    exit 77
  }
done
[[ -d $data ]] || { echo "Skipped: there is no folder $data"; exit 77; }
PATH=$(dirname "$python"):$PATH exec "$python" "$(dirname "${BASH_SOURCE[0]}")/same_numbers.py" "$build" "$data"
