#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# moved_numbers.sh <source> <build>   A training of DeepSpeed goes on here from its checkpoint, with the same numbers, and
# transformers opens the result. Needs a Python with DeepSpeed and transformers (DDHOST_DEEPSPEED_PYTHON, else DDHOST_PYTHON,
# else the one of `./dev setup --python`). Exits with 77 and prints the reason where one is missing.
set -euo pipefail
source=$1 build=$2
python=${DDHOST_DEEPSPEED_PYTHON:-${DDHOST_PYTHON:-$source/.deps/venv/bin/python}}
for library in torch deepspeed transformers numpy; do
  DS_ACCELERATOR=cpu "$python" -c "import $library" >/dev/null 2>&1 || {
    echo "Skipped: there is no Python with $library; name one with DDHOST_DEEPSPEED_PYTHON (pip install torch deepspeed" \
      "transformers)"
    exit 77
  }
done
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
PATH=$(dirname "$python"):$PATH exec "$python" "$(dirname "${BASH_SOURCE[0]}")/moved_numbers.py" "$build"
