#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh PREFIX PLUGIN MODEL (one with the option nan_at_step): the same bits under each strategy and on 1, 2 and 4
# ranks; evaluations, checkpoints, exports and final weights have the average; a resumed run goes on with the same bits,
# on other ranks too. The update itself is compared with the published algorithm in
# tests/unit/plugins/optimizers/schedule_free_test.cpp.
set -euo pipefail
ddhost=$1/bin/ddhost plugin=$2 model=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
equal() { cmp "$work/$1" "$work/$2" || fail "$1 and $2 differ"; }

run() { # name, settings...
  local name=$1
  shift
  "$ddhost" --model "$model" --optimizer "$plugin" optimizer.lr=0.01 optimizer.warmup_steps=3 schedule.type=constant \
    train.steps=8 run.quiet=true run.check_replicas=1 "run.dir=$work/$name" train.save_final="$work/$name.safetensors" \
    "$@" >"$work/$name.log" 2>&1 || { cat "$work/$name.log"; fail "$name: $*"; }
}
numbers() { grep -oE '"loss":[^,}]*' "$work/$1/metrics.jsonl"; }

for world in 1 2 4; do
  for strategy in ddp zero1 zero2 zero3 zero3_offload fsdp; do
    options=()
    [[ $strategy != zero3_offload ]] || options=(strategy.offload_optimizer.device=cpu)
    run "${strategy}_$world" --nproc "$world" --strategy "$strategy" "${options[@]}"
    equal "ddp_$world.safetensors" "${strategy}_$world.safetensors"
  done
done
run checked --nproc 2 --strategy zero2 run.check_plugins=true
equal ddp_2.safetensors checked.safetensors
for strategy in ddp zero2; do run "bf16_$strategy" --nproc 2 --strategy "$strategy" precision.compute=bf16; done
equal bf16_ddp.safetensors bf16_zero2.safetensors
echo "the same bits under six strategies, worlds 1, 2, 4"

# The average is another point than the one that takes the gradients, and nothing of it enters the training.
evaluate=(train.eval_every=2 train.eval_batches=4)
run trained --nproc 2 --strategy ddp train.eval_weights=trained "${evaluate[@]}"
run whole --nproc 2 --strategy zero3 "${evaluate[@]}" checkpoint.every=3 checkpoint.keep_last=0
[[ $(numbers trained) == "$(numbers whole)" ]] || fail "an evaluation changes the training"
! cmp -s "$work/trained.safetensors" "$work/whole.safetensors" || fail "the final weights are not the average"
equal ddp_2.safetensors whole.safetensors

"$ddhost" export "$work/whole/checkpoints/step-8" "$work/exported" >"$work/export.log" 2>&1 ||
  { cat "$work/export.log"; fail "export"; }
cmp "$work/exported/model.safetensors" "$work/whole.safetensors" || fail "the export has other weights than the run"
# A checkpoint's own weights are the average too.
"$ddhost" eval --model "$model" --weights "$work/whole/checkpoints/step-8/model.safetensors" train.eval_batches=4 \
  >"$work/eval.log" 2>&1 || { cat "$work/eval.log"; fail "eval"; }
seen=$(grep -oE ' loss +[0-9.e+-]+' "$work/eval.log" | grep -oE '[0-9.e+-]+$')
grep -qF "\"val_loss\":$seen" "$work/whole/metrics.jsonl" || fail "the checkpoint evaluates to $seen, the run did not"

for strategy in zero1 fsdp; do
  run "resumed_$strategy" --nproc 2 --strategy "$strategy" "${evaluate[@]}" --resume "$work/whole/checkpoints/step-3"
  equal whole.safetensors "resumed_$strategy.safetensors"
  [[ $(numbers "resumed_$strategy") == "$(numbers whole | tail -n +4)" ]] || fail "the resumed run has other losses"
done
grep -q '"weight_sum"' "$work/whole/checkpoints/step-3/manifest.json" || fail "the sum of weights is not saved"
# A step that is skipped changes no number.
run skipped --nproc 2 --strategy zero2 model.nan_at_step=1 checkpoint.every=8
run skipped_ddp --nproc 2 --strategy ddp model.nan_at_step=1
equal skipped.safetensors skipped_ddp.safetensors
grep -qE '"steps": 7(\.0)?,?$' "$work/skipped/checkpoints/step-8/manifest.json" || fail "the skipped step counts"
echo "evaluations, checkpoints, exports and resumed runs have the average"
echo "schedule_free: passed"
