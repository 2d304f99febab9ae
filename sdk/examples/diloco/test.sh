#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh PREFIX PLUGIN MODEL: diloco.so with the example linear_model.so and the ddhost of an installed prefix. The result
# equals a fold of runs of one rank each (reference.py); it sends as little as promised; a run that a signal stops between
# two synchronizations goes on bit for bit; and what it can't do is refused in one sentence.
set -euo pipefail
prefix=$1 plugin=$2 model=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $*"
  exit 1
}

train() { # name, settings...
  local name=$1
  shift
  "$prefix/bin/ddhost" --model "$model" --comm shm "run.dir=$work/$name" run.sample_tokens=0 "$@" >"$work/$name.log" 2>&1 || {
    cat "$work/$name.log"
    fail "$name: $*"
  }
}
diloco() { # name, settings...
  train "$1" --strategy "$plugin" "${@:2}"
}
refused() { # words of the sentence, settings...
  local words=$1 rc=0
  shift
  "$prefix/bin/ddhost" --model "$model" --strategy "$plugin" --nproc 2 "run.dir=$work/refused" train.steps=100 "$@" \
    >"$work/refused.log" 2>&1 || rc=$?
  ((rc == 1)) || { cat "$work/refused.log"; fail "$* ended with $rc"; }
  grep -qF -- "$words" "$work/refused.log" || { cat "$work/refused.log"; fail "$* does not say '$words'"; }
  echo "refused: $*"
}
sent() { # name
  grep -oE '"comm.sent_bytes": *[0-9]+' "$work/$1/metrics.jsonl" | tail -1 | grep -oE '[0-9]+$'
}

python3 "$here/reference.py" "$prefix/bin/ddhost" "$plugin" "$model" "$work/reference"

settings=(--nproc 4 train.steps=100 model.inputs=64 model.outputs=64)
train ddp --strategy ddp "${settings[@]}"
diloco every_50 "${settings[@]}"
awk -v mine="$(sent every_50)" -v all="$(sent ddp)" 'BEGIN { exit !(mine > 0 && mine <= all * 1.05 / 50) }' ||
  fail "diloco sends $(sent every_50) bytes, and ddp $(sent ddp)"
echo "sent in 100 steps: ddp $(sent ddp) bytes, diloco $(sent every_50)"
[[ $(grep -c '"loss"' "$work/every_50/metrics.jsonl") == 100 ]] || fail "metrics.jsonl lacks steps between synchronizations"
grep -q "DDH_CAP_LOSSY" "$work/every_50/log.txt" || fail "the log does not say that the numbers are not ddp's"

# Checkpoints between synchronizations; the last steps are fewer than sync_every.
settings=(--nproc 2 train.steps=47 strategy.sync_every=10 checkpoint.every=23 checkpoint.keep_last=0
  --optimizer adamw)
for size in 1 2; do
  more=("${settings[@]}" "strategy.shard_size=$size")
  diloco "whole_$size" "${more[@]}" --save-final "$work/whole_$size.safetensors"
  diloco "resumed_$size" "${more[@]}" --resume "$work/whole_$size/checkpoints/step-23" \
    --save-final "$work/resumed_$size.safetensors"
  grep -q "resumed after step 23" "$work/resumed_$size/log.txt" || fail "resumed_$size did not resume after step 23"
  cmp "$work/whole_$size.safetensors" "$work/resumed_$size.safetensors" || fail "a resumed run with groups of $size differs"
  echo "resumed after step 23 of groups of $size ranks = uninterrupted"
done

# Stopped by a signal, long before the first synchronization.
settings=(--nproc 2 train.steps=40 strategy.sync_every=500 data.micro_batch=96 model.inputs=256 model.outputs=256
  checkpoint.every=10)
diloco never_stopped "${settings[@]}" --save-final "$work/never_stopped.safetensors"
"$prefix/bin/ddhost" --model "$model" --strategy "$plugin" --comm shm "run.dir=$work/stopped" "${settings[@]}" \
  >"$work/stopped.log" 2>&1 &
pid=$!
for _ in $(seq 600); do
  [[ -e $work/stopped/checkpoints/step-10 ]] && break
  sleep 0.02
done
kill -TERM "$pid"
wait "$pid" || true
step=$(grep -oE 'stopped after step [0-9]+' "$work/stopped/log.txt" | grep -oE '[0-9]+$') ||
  { cat "$work/stopped.log"; fail "a signal did not stop the run between synchronizations"; }
((step >= 10 && step < 40)) || fail "the run stopped after step $step"
come=$(grep -oE 'has come in step [0-9]+' "$work/stopped.log" | grep -oE '[0-9]+$') ||
  { cat "$work/stopped.log"; fail "the program does not say in which step the signal came"; }
((step - come <= 2)) || fail "the signal came in step $come, and the run stopped after step $step"
diloco stopped "${settings[@]}" --resume auto --save-final "$work/stopped.safetensors"
cmp "$work/never_stopped.safetensors" "$work/stopped.safetensors" || fail "a stopped and resumed run differs"
echo "a signal in step $come stopped it after step $step; resumed = uninterrupted"

# In another world: one warning.
diloco other --nproc 3 train.steps=47 strategy.sync_every=10 --optimizer adamw --resume "$work/whole_1/checkpoints/step-23"
[[ $(grep -c "on every rank these begin with the values of rank 0" "$work/other.log") == 1 ]] ||
  { cat "$work/other.log"; fail "another world is not warned of once"; }
echo "resumed in another world with one warning"

refused "a loss scale" precision.loss_scale=1024
refused "train.eval_every=30 must be a multiple of strategy.sync_every=50; give 50" train.eval_every=30
refused "train.eval_every=130 must be a multiple of strategy.sync_every=50; give 100 or 150" train.eval_every=130
refused "does not divide the 2 ranks" strategy.shard_size=3
