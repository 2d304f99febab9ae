#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# model_alone.sh <source> <build>   `ddhost --model M` trains every model, from the build and from an installed prefix, where
# there is no data: each says which data it made up. Only kgat, the fastest, takes all of its steps; the others take two.
set -euo pipefail
source=$1 build=$(cd "$2" && pwd -P)
folder=$(mktemp -d -p "$build")
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
unset DDHOST_DATA
declare -A says=(
  [gpt]='training on a made-up text'
  [vit]='training on made-up images'
  [cnn]='training on made-up images'
  [kgat]='training on a made-up graph'
  [cad_mllm]='made-up')
torch=$(dirname "$(dirname "$(ldd "$build/plugins/gpt.so" | sed -nE 's/.*libtorch_cpu.so => ([^ ]*) .*/\1/p')")")

# The program of the build in a place of its own, beside which there is no data.
mkdir -p "$folder/built/repo/build"
ln "$build/ddhost" "$folder/built/repo/build/ddhost"
ln -s "$build/plugins" "$folder/built/repo/build/plugins"
cmake --install "$build" --prefix "$folder/prefix" >"$folder/log" 2>&1 || { cat "$folder/log"; fail "cmake --install"; }
[[ -e $folder/prefix/lib/ddhost/libtorch ]] || ln -s "$torch" "$folder/prefix/lib/ddhost/libtorch"
n=0
for program in "$folder/built/repo/build/ddhost" "$folder/prefix/bin/ddhost"; do
  for model in "${!says[@]}"; do
    mkdir "$folder/$((++n))"
    steps=(train.steps=2)
    [[ $model == kgat ]] && steps=()
    (cd "$folder/$n" && "$program" --model "$model" "${steps[@]}") >"$folder/log" 2>&1 ||
      { cat "$folder/log"; fail "$program --model $model"; }
    grep -qF -- "${says[$model]}" "$folder/log" || { cat "$folder/log"; fail "$model does not say '${says[$model]}'"; }
    losses=$(grep -c '"loss":[0-9]' "$folder/$n/runs/$model"-*/metrics.jsonl)
    [[ $losses == 2 || ($model == kgat && $losses -ge 100) ]] || fail "$model wrote $losses losses"
    echo "$model: $(grep -oF -- "${says[$model]}" "$folder/log" | head -n 1)"
  done
done
echo "$n models trained with nothing but their names"
