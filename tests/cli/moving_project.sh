#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# moving_project.sh <source> <build> [transformers]   Runs docs/moving-a-project.md: writes the files that it shows, runs its
# commands in their order, and compares what they print. The exported weights are read back here; with a third argument
# transformers opens them and must have the same loss, which needs a Python with it (DDHOST_PYTHON, else the one of
# `./dev setup --python`).
set -euo pipefail
source=$1 build=$2 with=${3:-}
python=${DDHOST_PYTHON:-$source/.deps/venv/bin/python}
if [[ -n $with ]] && ! "$python" -c 'import torch, transformers' >/dev/null 2>&1; then
  echo "Skipped: there is no Python with transformers; run ./dev setup --python, or name one with DDHOST_PYTHON"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset MODEL_SIZE BATCH_SIZE EPOCHS
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
cd "$folder"
ln -s "$build/ddhost" ddhost
fail() { echo "FAILED: $*"; exit 1; }

# What the project has: a GPT-2 that DeepSpeed has trained for three steps (tests/data/make_imports.py), and the files that
# the page shows.
data=$source/tests/data/imports page=$source/docs/moving-a-project.md
mkdir theirs
cp -r "$data/gpt2_zero2" theirs/saved
rm theirs/saved/expected.safetensors
for _ in $(seq 40); do printf 'the cat sat on the mat. '; done >theirs/text.txt
for file in ds_config.json gpt.json; do
  sed -n "/^\`\`\`json $file\$/,/^\`\`\`\$/p" "$page" | sed '1d;$d' >"theirs/$file"
  [[ -s theirs/$file ]] || fail "the page does not show $file"
done
# Its model as transformers has it: of the same size. One step at a rate of zero changes no weight.
./ddhost --config theirs/gpt.json --nproc 1 train.init_from=theirs/saved train.steps=1 optimizer.lr=0 checkpoint.every=1 \
  run.dir=runs/zero run.quiet=true >/dev/null 2>zero.err && ./ddhost export runs/zero/checkpoints/step-1 theirs/hf \
  --layout transformers >/dev/null || fail "the model of the project can't be made: $(cat zero.err)"
sed -E -e 's/("n_embd": )32/\18/; s/("n_head": )4/\12/; s/("n_layer": )2/\11/' \
  -e 's/("n_positions": )24/\18/; s/("vocab_size": )67/\131/' "$data/hf_gpt2/config.json" >theirs/hf/config.json

commands=0 shown=0 kind=""
: >printed
run() {
  [[ $1 != ctest* ]] || return 0 # this test
  commands=$((commands + 1))
  bash -euo pipefail -c "$1" >>printed 2>&1 || fail "'$1' ended with $?: $(tail -n 5 printed)"
}
expect() {
  shown=$((shown + 1))
  grep -qF -- "$1" printed || fail "the page shows '$1', but the commands print: $(tail -n 30 printed)"
}
while IFS= read -r line; do
  case $line in
  '```json '*) kind=json ;;
  '```python') kind=python ;;
  '```text') kind=text ;;
  '```') if [[ -n $kind ]]; then
    [[ $kind != text ]] || : >printed
    kind=''
  else
    kind=command
  fi ;;
  *)
    case $kind in
    python) echo "$line" >>open.py ;;
    text) expect "$line" ;;
    command) run "$line" ;;
    esac
    ;;
  esac
done <"$page"
((commands >= 9 && shown >= 6)) || fail "the page has $commands commands and $shown lines of output"

# The run went on after DeepSpeed's third step, with the rate of DeepSpeed's schedule after three updates: 2 of 4 steps.
first=$(head -n 1 runs/on/metrics.jsonl)
[[ $first == *'"step":4,'* && $first == *'"lr":0.0005'* ]] || fail "the moved run began with $first"

# The exported folder holds the trained weights: read here, they are those of the run, to the bit.
./ddhost --config theirs/gpt.json --nproc 1 train.init_from=moved train.steps=0 run.dir=runs/back run.quiet=true \
  --save-final back.safetensors >/dev/null 2>back.err || fail "the exported weights can't be read: $(cat back.err)"
cmp final.safetensors back.safetensors || fail "the exported weights are not those of the run"
! cmp -s theirs/hf/model.safetensors moved/model.safetensors || fail "the run changed no weight"
if [[ -z $with ]]; then
  echo "$commands commands of docs/moving-a-project.md ran; the exported weights are those of the run"
  exit
fi
ours=$(./ddhost eval --config theirs/gpt.json --weights final.safetensors data.val_path=theirs/text.txt \
  train.eval_batches=all 2>/dev/null | sed -n 's/^ *loss *//p')
cat >>open.py <<P
_, info = AutoModelForCausalLM.from_pretrained("moved", output_loading_info=True)
from safetensors.torch import load_file
assert not any(info.values()), info
saved, state = load_file("moved/model.safetensors"), model.state_dict()
assert saved and all(state[name].equal(value) for name, value in saved.items())
before = AutoModelForCausalLM.from_pretrained("theirs/hf").eval()
with torch.no_grad():
    first = torch.nn.functional.cross_entropy(before(windows[:, :-1]).logits.flatten(0, 1), windows[:, 1:].flatten())
print(f"loss here $ours, in transformers {loss.item()}; before the training {first.item()}")
assert abs(loss.item() - $ours) < 1e-5 < abs(first.item() - $ours)
P
"$python" open.py 2>open.err || fail "transformers does not open the exported folder as it was saved: $(cat open.err)"
echo "$commands commands of docs/moving-a-project.md ran; transformers opens the exported weights, with the same loss"
