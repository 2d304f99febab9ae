#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# on_gpu.sh FOLDER: runs on this machine's GPUs, compared with runs on the CPU bit for bit. Of models on LibTorch the
# losses are compared within a limit. Then it prints rates: of kernels, and of strategies beside ddp; a rate below its
# target is marked and is no failure. FOLDER holds ddhost, plugins/, tests/plugins/kernel_toy.so and benchmarks/gpu_rates:
# build/, or an unpacked ddhost-gpu.tar.gz. Options for the GPU runs, such as another device.driver, are in
# DDHOST_GPU_OPTIONS, those for runs over nccl in DDHOST_NCCL_OPTIONS. Ends with 0 if all are equal, with 4 if there is no
# GPU. A run that takes longer than 120 s is ended and counts as failed.
set -uo pipefail
cd "$1" || exit 1
[[ ! -d lib ]] || export LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} # of the archive
read -ra given <<<"${DDHOST_GPU_OPTIONS:-}"
read -ra given_nccl <<<"${DDHOST_NCCL_OPTIONS:-}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
common=(--model "$PWD/tests/plugins/kernel_toy.so" train.steps=8 run.quiet=true run.sample_tokens=0 data.micro_batch=4)
failed=0

train() { # name, options...
  timeout 120 ./ddhost "${common[@]}" "run.dir=$work/$1" "train.save_final=$work/$1.safetensors" "${@:2}" >"$work/$1.log" 2>&1
}
# The columns that don't depend on time.
numbers() { sed -E 's/"(step_ms|[a-z_]*_per_s|device_[a-z_]*|split_ms)":[^,}]*,?//g' "$work/$1/metrics.jsonl" | grep '"loss"'; }
compare() { # name of the run on the CPU, of that on GPUs
  if ! cmp -s "$work/$1.safetensors" "$work/$2.safetensors"; then echo "FAILED: $2: other weights than $1"; failed=1
  elif [[ $(numbers "$1") != $(numbers "$2") ]]; then echo "FAILED: $2: other metrics than $1"; failed=1
  else echo "equal bits: $2"; fi
}

if ! train probe --device cuda --nproc 1 train.steps=1 "${given[@]}"; then
  reason=$(tail -n 1 "$work/probe.log")
  grep -Eq 'CUDA driver|compute capability' <<<"$reason" || { echo "FAILED: a run on a GPU: $reason"; exit 1; }
  echo "skipped: no run on a GPU is possible here: $reason"
  exit 4
fi
grep -h 'device ' "$work/probe/log.txt" || true
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
on_gpus() { # name, ranks, strategy, transport, options...
  local more=()
  [[ $4 != nccl ]] || more=("${given_nccl[@]}")
  if train "$1" --device cuda --nproc "$2" --strategy "$3" --comm "$4" "${given[@]}" "${more[@]}" "${@:5}"; then
    compare "cpu-$2" "$1"
  elif grep -Eq 'NCCL was not found|use the same GPU|makes no symmetric windows|needs NCCL 2.27' "$work/$1.log"; then
    echo "left out: $1: $(tail -n 1 "$work/$1.log")"
  else
    echo "FAILED: $1: $(tail -n 1 "$work/$1.log")"
    failed=1
  fi
}
for world in 1 2; do
  train "cpu-$world" --strategy ddp --nproc "$world" || { cat "$work/cpu-$world.log"; exit 1; }
  for strategy in ddp zero1 zero2 zero3 zero3_offload fsdp; do
    for comm in shm nccl; do on_gpus "$strategy-$comm-$world" "$world" "$strategy" "$comm"; done
  done
  on_gpus "symmetric-$world" "$world" zero1 nccl comm.symmetric_windows=true
done
on_gpus graphs 1 ddp shm device.graphs=true
on_gpus nvme 1 zero3_offload shm strategy.offload_optimizer.device=nvme strategy.offload_param.device=nvme \
  "strategy.nvme_path=$work"

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
# Small models on data that needs no files.
seq 20000 >"$work/text"
options_of() { # model
  case $1 in
    gpt) echo "model.size=custom model.n_layer=2 model.n_head=4 model.n_embd=64 model.context=64 data.path=$work/text" ;;
    vit) echo "model.size=small model.dataset=made_up" ;;
    cnn) echo "model.dataset=made_up model.widths=[8,16,32] model.hidden=64 model.padding=1 model.batch_norm=true" ;;
    # In turn with the triples, and with new attention.
    kgat) echo 'model.dataset=made_up train.optimizers=["optimizer","optimizer_kg"] train.update_every=4' ;;
    cad_mllm) echo "model.size=tiny" ;;
  esac
}
for model in gpt vit cnn kgat cad_mllm; do
  [[ -e plugins/$model.so ]] || continue
  read -ra of_model <<<"$(options_of "$model")"
  for format in fp32 bf16 fp16; do
    name=$model-$format
    limit=1e-4
    [[ $format == fp32 ]] || limit=2e-2
    torch=(--model "$model" "${of_model[@]}" --strategy zero2 --nproc 1 optimizer.lr=1e-4 "precision.compute=$format")
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

# NVIDIA's checker of memory accesses.
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck initcheck; do
    if timeout 120 compute-sanitizer --tool "$tool" --target-processes all --error-exitcode 9 --log-file "$work/$tool.txt" \
      ./ddhost "${common[@]}" "run.dir=$work/$tool" train.steps=2 --device cuda --strategy zero3 --nproc 1 "${given[@]}" \
      >"$work/$tool.log" 2>&1; then
      echo "compute-sanitizer $tool: no errors"
    else
      echo "FAILED: compute-sanitizer $tool: $(tail -n 3 "$work/$tool.txt" "$work/$tool.log")"
      failed=1
    fi
  done
else
  echo "left out: compute-sanitizer is not in PATH"
fi

# Rates.
if [[ -x benchmarks/gpu_rates ]]; then
  driver=$(printf '%s\n' "${given[@]}" | sed -n 's/^device\.driver=//p')
  timeout 120 benchmarks/gpu_rates . "${driver:-libcuda.so.1}" "${DDHOST_GPU_NUMEL:-67108864}" || {
    echo "FAILED: gpu_rates"
    failed=1
  }
fi
median_ms() { # name: of the last 20 steps
  sed -nE 's/.*"step_ms":([0-9.]+).*/\1/p' "$work/$1/metrics.jsonl" | tail -n 20 | sort -n | sed -n 10p
}
for strategy in ddp zero1 zero2 zero3 fsdp; do
  [[ -e plugins/gpt.so ]] || break
  name=rate-$strategy target=0.99
  [[ $strategy != zero3 && $strategy != fsdp ]] || target=0.97
  if ! train "$name" --model gpt model.size=gpt2 model.vocab=50304 "data.path=$work/text" precision.compute=bf16 \
    --device cuda --nproc 1 --strategy "$strategy" train.steps=30 "${given[@]}"; then
    not_run "$name"
    break
  fi
  [[ $strategy != ddp ]] || ddp_ms=$(median_ms "$name")
  awk -v s="$strategy" -v ms="$(median_ms "$name")" -v ddp="$ddp_ms" -v target="$target" 'BEGIN {
    rate = ddp / ms
    printf "GPT-2 124M, bf16, %s: %.2f ms a step, %.3f of ddp%s\n", s, ms, rate, rate < target ? " (below " target ")" : "" }'
done
exit "$failed"
