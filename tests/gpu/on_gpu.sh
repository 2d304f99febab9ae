#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# on_gpu.sh FOLDER: runs on this machine's GPUs, compared with runs on the CPU bit for bit. Of models on LibTorch the
# losses are compared within a limit. FOLDER holds ddhost, plugins/ and tests/plugins/kernel_toy.so: build/, or an
# unpacked ddhost-gpu.tar.gz. Options for the GPU runs, such as another device.driver, are in DDHOST_GPU_OPTIONS, those
# for runs over nccl in DDHOST_NCCL_OPTIONS. Ends with 0 if all are equal, with 4 if there is no GPU.
set -uo pipefail
cd "$1" || exit 1
read -ra given <<<"${DDHOST_GPU_OPTIONS:-}"
read -ra given_nccl <<<"${DDHOST_NCCL_OPTIONS:-}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
common=(--model "$PWD/tests/plugins/kernel_toy.so" train.steps=8 run.quiet=true run.sample_tokens=0 data.micro_batch=4)
failed=0

train() { # name, options...
  ./ddhost "${common[@]}" "run.dir=$work/$1" "train.save_final=$work/$1.safetensors" "${@:2}" >"$work/$1.log" 2>&1
}
# The columns that don't depend on time.
numbers() { sed -E 's/"(step_ms|[a-z_]*_per_s|device_[a-z_]*|split_ms)":[^,}]*,?//g' "$work/$1/metrics.jsonl" | grep '"loss"'; }
compare() { # name of the run on the CPU, of that on GPUs
  if ! cmp -s "$work/$1.safetensors" "$work/$2.safetensors"; then echo "FAILED: $2: other weights than $1"; failed=1
  elif [[ $(numbers "$1") != $(numbers "$2") ]]; then echo "FAILED: $2: other metrics than $1"; failed=1
  else echo "equal bits: $2"; fi
}

if ! train probe --device cuda --nproc 1 train.steps=1 "${given[@]}"; then
  echo "skipped: no run on a GPU is possible here: $(tail -n 1 "$work/probe.log")"
  exit 4
fi
grep -h 'device ' "$work/probe/log.txt" || true
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
for world in 1 2; do
  train "cpu-$world" --strategy ddp --nproc "$world" || { cat "$work/cpu-$world.log"; exit 1; }
  for strategy in ddp zero1 zero2 zero3 zero3_offload fsdp; do
    for comm in shm nccl; do
      name=$strategy-$comm-$world
      more=()
      [[ $comm != nccl ]] || more=("${given_nccl[@]}")
      if train "$name" --device cuda --strategy "$strategy" --comm "$comm" --nproc "$world" "${given[@]}" "${more[@]}"; then
        compare "cpu-$world" "$name"
      elif grep -Eq 'NCCL was not found|use the same GPU' "$work/$name.log"; then
        echo "left out: $name: $(tail -n 1 "$work/$name.log")"
      else
        echo "FAILED: $name: $(tail -n 1 "$work/$name.log")"
        failed=1
      fi
    done
  done
done

# Models on LibTorch: the same operators on the CPU and on the GPU. Their sums are in different orders, so the results
# differ in the last bits. Results in 16 bits have fewer digits, so their limit is wider.
losses() { sed -nE 's/.*"loss":([-+.e0-9]+).*/\1/p' "$work/$1/metrics.jsonl"; }
close_losses() { # two names, limit of the relative difference
  paste <(losses "$1") <(losses "$2") |
    awk -v limit="$3" '{ d = ($1 - $2) / $1; if (d > limit || d < -limit || d != d) far = 1 } END { exit far || NR != 8 }'
}
# A run that could not begin because a library is missing is left out; every other failure counts.
not_run() { # name
  if grep -Eq "is built for CPUs|can't be loaded|can't be opened|cannot open shared object" "$work/$1.log"; then
    echo "left out: $1: $(tail -n 1 "$work/$1.log")"
  else
    echo "FAILED: $1: $(tail -n 1 "$work/$1.log")"
    failed=1
  fi
}
for model in gpt vit cnn kgat cad_mllm; do
  [[ -e plugins/$model.so ]] || continue
  for format in fp32 bf16 fp16; do
    name=$model-$format
    limit=1e-4
    [[ $format == fp32 ]] || limit=2e-2
    torch=(--model "$model" --strategy zero2 --nproc 1 optimizer.lr=1e-4 "precision.compute=$format")
    [[ $model != kgat ]] || # in turn with the triples, and with new attention
      torch+=(model.dataset=made_up 'train.optimizers=["optimizer", "optimizer_kg"]' train.update_every=4)
    if ! train "$name-cpu" "${torch[@]}" model.operators=torch; then
      not_run "$name-cpu"
    elif ! train "$name-gpu" "${torch[@]}" --device cuda "${given[@]}"; then
      not_run "$name-gpu"
    elif close_losses "$name-cpu" "$name-gpu" "$limit"; then
      echo "close losses: $name, within $limit"
    else
      echo "FAILED: $name: other losses than on the CPU"
      failed=1
    fi
  done
done
exit "$failed"
