#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# data_places.sh <source> <build>   Without data.path the tiny configs take their data from $DDHOST_DATA, else they make it up;
# the log says which. No folder outside the repository is looked into. A DDHOST_DATA without the data is refused.
set -euo pipefail
source=$(cd "$1" && pwd -P) build=$(cd "$2" && pwd -P)
folder=$(mktemp -d -p "$build")
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
unset DDHOST_DATA
# The program in a place of its own.
mkdir -p "$folder/repo/build"
ln "$build/ddhost" "$folder/repo/build/ddhost"
ln -s "$build/plugins" "$folder/repo/build/plugins"
n=0
# says TEXT, config, arguments: a step of the config logs TEXT
says() {
  local text=$1 config=$2
  shift 2
  (cd "$folder/repo/build" && ./ddhost --config "$source/configs/$config.json" --nproc 1 run.sample_tokens=0 \
    "run.dir=$folder/run-$n" train.eval_every=0 "$@") >"$folder/log" 2>&1 || { cat "$folder/log"; fail "$config $*"; }
  grep -qF "$text" "$folder/log" || { cat "$folder/log"; fail "$config does not say '$text'"; }
  n=$((n + 1))
}
refuses() { # config, arguments: with what DDHOST_DATA lacks
  ! "$folder/repo/build/ddhost" --config "$source/configs/$1.json" "run.dir=$folder/run-$n" >"$folder/log" 2>&1 ||
    fail "$1 runs with DDHOST_DATA=$DDHOST_DATA, which has no data for it"
  grep -qF "DDHOST_DATA=$DDHOST_DATA holds no" "$folder/log" || { cat "$folder/log"; fail "$1 does not say why"; }
  n=$((n + 1))
}
mkdir -p "$folder/shared/data/mnist" "$folder/shared/data/lastfm_kg" # an earlier version looked there
kgat=('train.phases=[{"program":"cf","steps":1}]' train.eval_every_epochs=0 data.micro_batch.cf=2)
image=(train.steps=1 data.micro_batch=10)
text=(train.steps=1 data.micro_batch=2)

says 'no folder lastfm_kg found: training on a made-up graph' kgat_tiny "${kgat[@]}"
for model in vit cnn; do
  says 'no folder mnist found: training on made-up images' ${model}_tiny "${image[@]}"
done
says 'made-up' cad_mllm_tiny 'train.phases=[{"program":"stage1_text","steps":1}]'

# Data that is small enough to be written here: users with their items, images of 28 x 28 zeros, letters.
idx() { # file, its header, bytes of data
  printf '%b' "$2" >"$1"
  head -c "$3" /dev/zero >>"$1"
}
write_data() { # folder, users
  mkdir -p "$1/lastfm_kg" "$1/mnist" "$1/shakespeare"
  for ((u = 0; u < $2; ++u)); do echo "$u 0 1"; done >"$1/lastfm_kg/train.txt"
  for ((u = 0; u < $2; ++u)); do echo "$u 2"; done >"$1/lastfm_kg/test.txt"
  printf '0 0 3\n1 0 3\n2 1 4\n' >"$1/lastfm_kg/kg_final.txt"
  for part in train t10k; do
    idx "$1/mnist/$part-images-idx3-ubyte" '\0\0\x08\x03\0\0\0\x14\0\0\0\x1c\0\0\0\x1c' $((20 * 28 * 28))
    idx "$1/mnist/$part-labels-idx1-ubyte" '\0\0\x08\x01\0\0\0\x14' 20
  done
  for ((i = 0; i < 100; ++i)); do echo "to be, or not to be: that is line $i"; done >"$1/shakespeare/input.txt"
}
write_data "$folder/given" 5
export DDHOST_DATA=$folder/given
says "training on $folder/given/lastfm_kg" kgat_tiny "${kgat[@]}"
grep -q "5 users" "$folder/log" || fail "kgat_tiny did not read the folder"
for model in vit cnn; do says "training on $folder/given/mnist" ${model}_tiny "${image[@]}"; done
says "training on $folder/given/shakespeare" gpt_tiny "${text[@]}"
mkdir "$folder/empty"
export DDHOST_DATA=$folder/empty
for config in gpt_tiny vit_tiny cnn_tiny kgat_tiny; do refuses $config; done
echo "$n runs found their data or said why not"
