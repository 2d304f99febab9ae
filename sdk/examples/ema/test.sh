#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh PREFIX PLUGIN MODEL (one with the option nan_at_step): the average equals a fold of the weights after each
# step, bit for bit, under each strategy and on 1, 2 and 4 ranks; it is sharded as the strategy shards; it is in
# evaluations, checkpoints, exports and final weights, while training has the bits of a run without it; and a resumed
# run goes on with the same bits.
set -euo pipefail
ddhost=$1/bin/ddhost plugin=$2 model=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
equal() { cmp "$work/$1" "$work/$2" || fail "$1 and $2 differ"; }

steps=6
run() { # name, settings...
  local name=$1
  shift
  "$ddhost" --model "$model" --optimizer adamw optimizer.lr=0.01 run.quiet=true run.check_replicas=1 "run.dir=$work/$name" \
    "train.steps=$steps" train.save_final="$work/$name.safetensors" "$@" >"$work/$name.log" 2>&1 ||
    { cat "$work/$name.log"; fail "$name: $*"; }
}
ema=("train.followers=[\"$plugin\"]" follower.ema.decay=0.75)
refused() { # words of the sentence, settings...
  local words=$1
  shift
  if "$ddhost" --model "$model" run.quiet=true "run.dir=$work/refused" train.steps=1 "$@" >"$work/refused.log" 2>&1; then
    fail "$* is not refused"
  fi
  grep -qF -- "$words" "$work/refused.log" || { cat "$work/refused.log"; fail "$*: no sentence with '$words'"; }
}

# The fold, with fp32 arithmetic: a double holds the result of an fp32 operation exactly before it is rounded.
cat >"$work/fold.py" <<'PY'
import array, json, struct, sys

def read(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {name: array.array("f", data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
            for name, t in header.items()}

f32 = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
run, steps, decay, final, skipped = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4], sys.argv[5:]
share, average = f32(1 - decay), None
for step in range(1, steps + 1):
    if str(step) in skipped:
        continue
    weights = read(f"{run}/checkpoints/step-{step}/model.safetensors")
    if average is None:
        average = weights
        continue
    for name, p in weights.items():
        s = average[name]
        for i in range(len(p)):
            s[i] = f32(s[i] + f32(share * f32(p[i] - s[i])))
found = read(final)
assert found.keys() == average.keys(), "other names"
for name in average:
    assert found[name].tobytes() == average[name].tobytes(), f"the average of '{name}' differs from the fold"
PY

strategies=(ddp zero1 zero2 zero3 zero3_offload fsdp)
for world in 1 2 4; do
  # The weights after each step, and a run without the average.
  run "steps_$world" --nproc "$world" --strategy ddp checkpoint.every=1 checkpoint.keep_last=0 "${ema[@]}" \
    train.eval_weights=trained
  run "plain_$world" --nproc "$world" --strategy ddp
  equal "steps_$world.safetensors" "plain_$world.safetensors"
  for strategy in "${strategies[@]}"; do
    options=()
    [[ $strategy != zero3_offload ]] || options=(strategy.offload_optimizer.device=cpu)
    run "${strategy}_$world" --nproc "$world" --strategy "$strategy" "${ema[@]}" "${options[@]}"
    equal "ddp_$world.safetensors" "${strategy}_$world.safetensors"
  done
  python3 "$work/fold.py" "$work/steps_$world" "$steps" 0.75 "$work/ddp_$world.safetensors"
done
echo "equals the fold under ${strategies[*]}, worlds 1, 2, 4"

# Offloaded to a file, low-precision views, and the checks of the host.
run nvme --nproc 2 --strategy zero3_offload "${ema[@]}" strategy.offload_optimizer.device=nvme \
  "strategy.offload_optimizer.nvme_path=$work"
equal ddp_2.safetensors nvme.safetensors
run checked --nproc 2 --strategy zero2 "${ema[@]}" run.check_plugins=true
equal ddp_2.safetensors checked.safetensors
for strategy in ddp zero3; do run "bf16_$strategy" --nproc 2 --strategy "$strategy" "${ema[@]}" precision.compute=bf16; done
equal bf16_ddp.safetensors bf16_zero3.safetensors

# A step that is skipped is no update: neither of a NaN, nor of a loss scale that was too large.
skips=(--nproc 2 "${ema[@]}" model.nan_at_step=3)
run skip_steps --strategy ddp "${skips[@]}" checkpoint.every=1 checkpoint.keep_last=0 train.eval_weights=trained
run skipped --strategy zero3 "${skips[@]}"
grep -q '"skipped":\(1\|true\)' "$work/skipped/metrics.jsonl" || fail "no step was skipped"
python3 "$work/fold.py" "$work/skip_steps" "$steps" 0.75 "$work/skipped.safetensors" 3
for strategy in ddp zero2; do
  run "scaled_$strategy" --strategy "$strategy" "${skips[@]}" precision.compute=fp16 precision.initial_scale_power=10
done
equal scaled_ddp.safetensors scaled_zero2.safetensors
run first_skipped --nproc 2 --strategy zero2 "${ema[@]}" model.nan_at_step=1 train.steps=1
run first_skipped_plain --nproc 2 --strategy zero2 model.nan_at_step=1 train.steps=1
equal first_skipped.safetensors first_skipped_plain.safetensors
echo "skipped steps are left out"

# Evaluations have the average, and leave training as it was: so does the next step's loss.
evaluate=(train.eval_every=2 train.eval_batches=4)
run evaluated --nproc 2 --strategy zero3 "${ema[@]}" "${evaluate[@]}" checkpoint.every=4 checkpoint.keep_last=0
equal ddp_2.safetensors evaluated.safetensors
run evaluated_plain --nproc 2 --strategy zero3 "${evaluate[@]}"
rows() { grep -oE '"loss":[^,}]*' "$work/$1/metrics.jsonl"; }
values() { grep -oE '"val_loss":[^,}]*' "$work/$1/metrics.jsonl" || true; }
[[ $(rows evaluated) == "$(rows evaluated_plain)" ]] || fail "an evaluation changes the training"
[[ -n $(values evaluated) && $(values evaluated) != "$(values evaluated_plain)" ]] ||
  fail "an evaluation does not have the average"

# A checkpoint's weights are the average, and a resumed run has the same bits.
"$ddhost" export "$work/evaluated/checkpoints/step-$steps" "$work/exported" >"$work/export.log" 2>&1 ||
  { cat "$work/export.log"; fail "export"; }
cmp "$work/exported/model.safetensors" "$work/evaluated.safetensors" || fail "the export has other weights than the run"
mkdir "$work/half" && cp -r "$work/evaluated/checkpoints/step-4" "$work/half/"
for strategy in zero1 fsdp; do
  run "resumed_$strategy" --nproc 2 --strategy "$strategy" "${ema[@]}" "${evaluate[@]}" --resume "$work/half/step-4"
  equal evaluated.safetensors "resumed_$strategy.safetensors"
done
run resumed_trained --nproc 2 --strategy zero2 "${ema[@]}" "${evaluate[@]}" --resume "$work/half/step-4" \
  --resume-allow train.eval_weights train.eval_weights=trained
equal plain_2.safetensors resumed_trained.safetensors
echo "evaluations, exports and resumed runs have the average"

# Four bytes an element, sharded as adamw's eight. While others are shown, the host keeps a copy of the masters. zero3_offload
# has frames beside.
optim() { # name: planned bytes of the tag, over all ranks; the host compares them with what was allocated
  grep -o '"plan_bytes":{[^}]*}' "$work/$1/metrics.jsonl" | grep -oE '"optim":[0-9]+' | cut -d: -f2 | paste -sd+ | bc
}
for strategy in ddp zero1 zero2 zero3 fsdp; do
  run "memory_$strategy" --nproc 2 --strategy "$strategy" "${ema[@]}" train.eval_weights=trained
  run "no_ema_$strategy" --nproc 2 --strategy "$strategy"
  run "shown_$strategy" --nproc 2 --strategy "$strategy" "${ema[@]}"
  unit=$(($(optim "no_ema_$strategy") / 2))
  (($(optim "memory_$strategy") == 3 * unit && $(optim "shown_$strategy") == 4 * unit && unit > 0)) ||
    fail "$strategy: optim takes $(optim "memory_$strategy") and $(optim "shown_$strategy") bytes, without ema $((2 * unit))"
done

refused "does not follow another one" 'train.followers=["adamw"]'
refused "only follows another one" --optimizer "$plugin"
refused "there are: trained, ema" "${ema[@]}" train.eval_weights=optimizer
echo "ema: passed"
