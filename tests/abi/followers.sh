#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# followers.sh <build folder>: which weights a run evaluates where several plugins show some, and what is refused: names in
# train.followers and train.eval_weights, a follower that writes the weights, and numbers that a checkpoint can't keep.
set -euo pipefail
build=$1
examples=$build/tests/plugins
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

run() { # name, settings...
  local name=$1
  shift
  "$build/ddhost" --model "$examples/toy.so" --nproc 2 run.quiet=true "run.dir=$work/$name" train.steps=4 \
    train.save_final="$work/$name.safetensors" "$@" >"$work/$name.log" 2>&1
}
trains() { run "$@" || { cat "$work/$1.log"; fail "$*"; }; }
refused() { # words of the sentence, settings...
  local words=$1 rc=0
  shift
  rm -rf "$work/refused" "$work/refused.safetensors"
  run refused "$@" || rc=$?
  ((rc == 1)) || { cat "$work/refused.log"; fail "$* ends with $rc"; }
  grep -qF -- "$words" "$work/refused.log" || { cat "$work/refused.log"; fail "$*: no sentence with '$words'"; }
}

ema=("train.followers=[\"$examples/ema.so\"]" follower.ema.decay=0.5)
free=(--optimizer "$examples/schedule_free.so" schedule.type=constant)
refused "several optimizers show weights to evaluate: optimizer, ema" "${free[@]}" "${ema[@]}"
refused "there are: trained, optimizer, ema" "${free[@]}" "${ema[@]}" train.eval_weights=emma
refused "there are: trained" train.eval_weights=optimizer
refused "does not follow another one" 'train.followers=["adamw"]'
refused "only follows another one" --optimizer "$examples/ema.so"
refused "twice" "train.followers=[\"$examples/ema.so\", \"$examples/ema.so\"]"
for weights in trained optimizer ema; do
  trains "of_$weights" "${free[@]}" "${ema[@]}" "train.eval_weights=$weights"
done
for pair in "trained optimizer" "trained ema" "optimizer ema"; do
  read -r a b <<<"$pair"
  ! cmp -s "$work/of_$a.safetensors" "$work/of_$b.safetensors" || fail "$a and $b give the same weights"
done
trains free "${free[@]}"
cmp "$work/free.safetensors" "$work/of_optimizer.safetensors" || fail "a follower changes the training"

bad=("train.followers=[\"$examples/bad_follower.so\"]")
trains proper "${bad[@]}" --strategy zero2 run.check_plugins=true checkpoint.every=2 checkpoint.keep_last=0
refused "writes element 0 of the master weights" "${bad[@]}" follower.bad_follower.fault=writes_master run.check_plugins=true
refused "which is not finite" "${bad[@]}" follower.bad_follower.fault=nan checkpoint.every=2
refused "an optimizer's number is" "${bad[@]}" --strategy zero2 follower.bad_follower.fault=by_rank checkpoint.every=2
refused "holds steps, but optimizer 'bad_follower' keeps other" "${bad[@]}" --strategy zero2 \
  follower.bad_follower.number=other --resume "$work/proper/checkpoints/step-2" \
  --resume-allow follower.bad_follower.number checkpoint.every=2
refused "train.followers was" --strategy zero2 --resume "$work/proper/checkpoints/step-2" checkpoint.every=2
# Another order of weights to evaluate: a checkpoint keeps the masters apart, so they can change.
trains other_weights "${bad[@]}" --strategy ddp --resume "$work/proper/checkpoints/step-2" train.eval_weights=trained \
  --resume-allow train.eval_weights
cmp "$work/proper.safetensors" "$work/other_weights.safetensors" || fail "the resumed run has other weights"
echo "followers: passed"
