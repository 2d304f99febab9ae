#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# opens_elsewhere.sh SOURCE BUILD MODEL: files of weights that ddhost writes open in the libraries whose names they use, with
# the same logits, and files of these libraries train here. Needs a Python with the libraries: DDHOST_PYTHON, else the one of
# `./dev setup --python`. Exits with 77 and prints the reason where there is none.
set -euo pipefail
source=$1 build=$2 model=$3
python=${DDHOST_PYTHON:-$source/.deps/venv/bin/python}
case $model in
  gpt) libraries=(transformers) ;;
  vit) libraries=(transformers torchvision timm) ;;
  cnn) libraries=(torchvision) ;;
  kgat) libraries=() ;;
  *) libraries=(transformers peft) ;;
esac
for library in torch safetensors "${libraries[@]}"; do
  "$python" -c "import $library" >/dev/null 2>&1 || {
    echo "Skipped: there is no Python with $library; run ./dev setup --python, or name one with DDHOST_PYTHON"
    exit 77
  }
done
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
exec "$python" "$(dirname "${BASH_SOURCE[0]}")/opens_elsewhere.py" "$source" "$build" "$model"
