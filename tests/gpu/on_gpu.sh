#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# on_gpu.sh FOLDER [--only PATTERN] [--without nccl,torch] [--out FOLDER]: the GPU parts on this machine's GPUs. First the
# tests that need no stand-in, then runs that are compared with runs on the CPU bit for bit, models on LibTorch, whose losses
# are compared within a limit, and rates: of kernels, and of strategies beside ddp. A rate below its target is marked and is
# no failure.
# FOLDER holds ddhost, plugins/, tests/plugins/kernel_toy.so, tests/bin/ and benchmarks/gpu_rates: build/, or an unpacked
# ddhost-gpu.tar.gz. Options for the GPU runs, such as another device.driver, are in DDHOST_GPU_OPTIONS, those for runs over
# nccl in DDHOST_NCCL_OPTIONS.
# --only runs what matches a pattern of grep -E. --without says what this machine lacks: without it, a library that is not
# found is a failure. --out keeps the logs and metrics of all runs.
# All of it has DDHOST_GPU_MINUTES (9), and one run at most DDHOST_GPU_RUN_SECONDS (120).
# Ends with 0 if all that is possible here was run and nothing failed: "not possible here" names what is missing, such as a
# second GPU or a library. Ends with 1 if something failed, or if there was no time for it. Ends with 4 if there is no GPU.
set -uo pipefail
folder=${1:?give the folder of ddhost} only=. without='' out=''
shift
while (($# > 0)); do
  case $1 in
    --only) only=${2:?--only takes a pattern} ;;
    --without) without=${2:?--without takes nccl, torch or both} ;;
    --out) mkdir -p "${2:?--out takes a folder}" && out=$(cd "$2" && pwd) || exit 1 ;;
    *) echo "on_gpu.sh takes --only, --without and --out, not '$1'"; exit 1 ;;
  esac
  shift 2
done
here=$(cd "$(dirname "$0")" && pwd)
cd "$folder" || exit 1
[[ ! -d lib ]] || export LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} # of the archive
# An archive has no LibTorch; Python's torch of the same version has the same libraries, and NCCL beside them.
if [[ -d lib && -z ${DDHOST_LIBTORCH:-} ]]; then
  torch=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null)
  [[ -z $torch ]] || export DDHOST_LIBTORCH=$torch
fi
[[ ! -d ${DDHOST_LIBTORCH:-}/../nvidia/nccl/lib ]] ||
  export LD_LIBRARY_PATH=$DDHOST_LIBTORCH/../nvidia/nccl/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
minutes=${DDHOST_GPU_MINUTES:-9} run_s=${DDHOST_GPU_RUN_SECONDS:-120}
[[ $minutes =~ ^[0-9]+$ ]] || { echo "DDHOST_GPU_MINUTES is '$minutes'; give a number of minutes"; exit 1; }
[[ $run_s =~ ^[0-9]+$ ]] || { echo "DDHOST_GPU_RUN_SECONDS is '$run_s'; give a number of seconds"; exit 1; }
readonly minutes run_s end=$((SECONDS + 60 * minutes))
read -ra given <<<"${DDHOST_GPU_OPTIONS:-}"
read -ra given_nccl <<<"${DDHOST_NCCL_OPTIONS:-}"
value_of() { # key, options...
  printf '%s\n' "${@:2}" | sed -n "s/^$1=//p" | tail -n 1
}
driver=$(value_of device.driver "${given[@]}") nccl=$(value_of comm.library "${given_nccl[@]}")
shown=${CUDA_VISIBLE_DEVICES:-0}
work=$(mktemp -d)
keep_logs() { # --out: the logs and metrics of all runs, without weights
  [[ -z $out ]] ||
    tar -czf "$out/logs.tar.gz" -C "$work" --exclude '*.safetensors' --exclude tokens.bin --exclude 'states*' . 2>/dev/null
}
show=: # prints the table once there is one
trap '$show; keep_logs; rm -rf "$work"' EXIT
trap 'exit 1' TERM INT
common=(device.plugin=cpu train.steps=8 run.quiet=true run.sample_tokens=0 data.micro_batch=4)
toy=(--model "$PWD/tests/plugins/kernel_toy.so")

failed=0
declare -A count=() state_of=()
report() { # state, words that begin with a name
  echo "$1: $2"
  [[ -z $out ]] || printf '%4d s  %s: %s\n' "$SECONDS" "$1" "$2" >>"$out/results.txt"
  state_of[${2%%[:, ]*}]=$1
  count[$1]=$((${count[$1]:-0} + 1))
  [[ $1 != FAILED && $1 != "no time" ]] || failed=1
}
# Whether there is time for one more. Else it is named, and the script fails.
has_time() { # name
  ((SECONDS >= end)) || return 0
  report "no time" "$1: the $minutes minutes of DDHOST_GPU_MINUTES are over"
  return 1
}
in_time() { # name: whether --only wants it, and there is time
  grep -Eq -- "$only" <<<"$1" && has_time "$1"
}
limited() { # command...
  local seconds=$((end - SECONDS))
  ((seconds < run_s)) || seconds=$run_s
  ((seconds > 0)) || seconds=1
  limited_to "$seconds" "$@"
}
# 124: it took longer. SIGKILL follows, since ddhost finishes its step after SIGTERM, and a hung one never does.
limited_to() { # seconds, command...
  local begin=$SECONDS rc
  timeout -k 10 "$@"
  rc=$?
  ((rc != 137 || SECONDS < begin + $1)) || rc=124
  return "$rc"
}
train() { # name, options..., which may name another model
  local model=("${toy[@]}")
  [[ " ${*:2} " != *" --model "* ]] || model=()
  limited ./ddhost "${model[@]}" "${common[@]}" "run.dir=$work/$1" "train.save_final=$work/$1.safetensors" "${@:2}" \
    >"$work/$1.log" 2>&1
}
# What did not end well has failed, unless the log has the pattern of what is not possible here.
did_not_end() { # name, exit code, pattern or "", [lines of the log]
  if (($2 == 124)) && ! has_time "$1"; then :
  elif (($2 == 124)); then report FAILED "$1: it took longer than $run_s s"
  elif [[ -n $3 ]] && grep -Eq "$3" "$work/$1.log"; then
    report "not possible here" "$1: $(grep -E "$3" "$work/$1.log" | tail -n 1)"
  else report FAILED "$1: $(tail -n "${4:-1}" "$work/$1.log")"
  fi
}
# Patterns of what --without allows to be missing; at first they match nothing.
no_nccl='$.' no_library='$.'
[[ $without != *nccl* ]] || no_nccl='NCCL was not found'
[[ $without != *torch* ]] || no_library="LibTorch.*(can't be loaded|is built for CPUs)|cannot open shared object"
readonly no_nccl no_group="$no_nccl|use the same GPU|makes no symmetric windows|needs NCCL 2.27"
[[ -z $driver ]] || no_library+="|LibTorch finds no GPU" # it asks the machine's own driver

# The columns that don't depend on time.
numbers() {
  sed -E 's/"(step_ms|[a-z_]*_per_s|device_[a-z_]*|split_ms)":[^,}]*,?//g; s/,}/}/' "$work/$1/metrics.jsonl" | grep '"loss"'
}
compare() { # name of the run on the CPU, of that on GPUs
  if ! cmp -s "$work/$1.safetensors" "$work/$2.safetensors"; then report FAILED "$2: other weights than $1"
  elif [[ $(numbers "$1") != $(numbers "$2") ]]; then report FAILED "$2: other metrics than $1"
  else report "equal bits" "$2"; fi
}

limited_to "$run_s" ./ddhost "${toy[@]}" "${common[@]}" "run.dir=$work/probe" train.steps=1 --device cuda --nproc 1 \
  "${given[@]}" >"$work/probe.log" 2>&1
rc=$?
if ((rc == 124)); then
  echo "FAILED: a run on a GPU took longer than $run_s s"
  exit 1
elif ((rc != 0)); then
  reason=$(tail -n 1 "$work/probe.log")
  grep -Eq 'CUDA driver|compute capability' <<<"$reason" || { echo "FAILED: a run on a GPU: $reason"; exit 1; }
  echo "skipped: no run on a GPU is possible here: $reason"
  exit 4
fi
grep -hs 'device ' "$work/probe/log.txt" || true
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

# The tests that need no stand-in: the device, graphs, copies, optimizers, and NCCL with as many ranks as there are GPUs.
test_program() { # name, pattern of what can't be done here
  in_time "$1" || return
  [[ -x tests/bin/$1 ]] || { report FAILED "$1: there is no $PWD/tests/bin/$1"; return; }
  limited env DDHOST_GPU_TESTS=real "DDHOST_GPU_FOLDER=$PWD" "DDHOST_GPU_DRIVER=$driver" "DDHOST_GPU_NCCL=$nccl" \
    "tests/bin/$1" >"$work/$1.log" 2>&1
  local rc=$?
  if ((rc == 0 || rc == 4)); then
    # Cases that only a stand-in can pass are no part of it.
    if [[ -z $(grep '^skipped: ' "$work/$1.log" | grep -v '^skipped: for the stand-ins: ') ]]; then report passed "$1"
    else report "passed in part" "$1"; fi
    sed -n 's/^skipped: /  without: /p' "$work/$1.log"
  else did_not_end "$1" "$rc" "$2" 25; fi
}
# Every strategy.
on_gpus() { # name, ranks, strategy, transport, options...
  local more=()
  [[ $4 != nccl ]] || more=("${given_nccl[@]}")
  in_time "$1" || return
  [[ -e $work/cpu-$2.safetensors ]] || train "cpu-$2" --strategy ddp --nproc "$2" ||
    { did_not_end "cpu-$2" $? ''; return; }
  train "$1" --device cuda --nproc "$2" --strategy "$3" --comm "$4" "${given[@]}" "${more[@]}" "${@:5}"
  local rc=$?
  if ((rc == 0)); then compare "cpu-$2" "$1"; else did_not_end "$1" "$rc" "$no_group"; fi
}
plugins_of() { ./ddhost list | awk -v kind="$1" '$1 == kind { print $2 }'; }
strategies=$(plugins_of strategy)
[[ $strategies == *zero3* ]] || report FAILED "ddhost list: it shows no strategy zero3"

# A checkpoint that zero3 writes on a GPU resumes on the CPU with other ranks, and one of the CPU on a GPU: both end with the
# weights of a run without a break. The number of samples in a step is that of two ranks.
resumed() { # name, options of the first half, -- options of the second half
  local name=$1 first=()
  in_time "$name" || return
  shift
  while [[ $1 != -- ]]; do first+=("$1"); shift; done
  [[ -e $work/cpu-2.safetensors ]] || train cpu-2 --strategy ddp --nproc 2 || { did_not_end cpu-2 $? ''; return; }
  train "$name-first" "${first[@]}" checkpoint.every=4 || { did_not_end "$name-first" $? ''; return; }
  train "$name" "${@:2}" --resume "$work/$name-first/checkpoints/step-4" || { did_not_end "$name" $? ''; return; }
  if cmp -s "$work/cpu-2.safetensors" "$work/$name.safetensors"; then report "equal bits" "$name"
  else report FAILED "$name: other weights than cpu-2"; fi
}

# Ranks that share the first GPU over NCCL.
on_one_gpu() { # ranks, strategy
  CUDA_VISIBLE_DEVICES=${shown%%,*} on_gpus "shared-$2-$1" "$1" "$2" nccl comm.share_gpu=true
}

# NCCL hangs or fails late with two ranks on one GPU, so the transport refuses them.
same_gpu() {
  in_time same-gpu || return
  local rc
  CUDA_VISIBLE_DEVICES=${shown%%,*} train same-gpu --device cuda --nproc 2 --comm nccl "${given[@]}" "${given_nccl[@]}"
  rc=$?
  if grep -q 'use the same GPU' "$work/same-gpu.log"; then
    report passed "same-gpu: two ranks on one GPU are refused over nccl, by UUID"
  elif ((rc == 0)); then report FAILED "same-gpu: two ranks on one GPU over nccl were not refused"
  else did_not_end same-gpu "$rc" "$no_nccl"; fi
}

# NVIDIA's checker of memory accesses.
sanitize() { # tool
  local name=compute-sanitizer-$1 rc summaries
  in_time "$name" || return
  command -v compute-sanitizer >/dev/null || { report "not possible here" "$name: it is not in PATH"; return; }
  # The transport loop: the rank is a thread of the program, whose exit code and file of errors are then the rank's.
  limited compute-sanitizer --tool "$1" --target-processes all --error-exitcode 9 --log-file "$work/$1.%p.txt" \
    ./ddhost "${toy[@]}" "${common[@]}" "run.dir=$work/$1" train.steps=2 --device cuda --strategy zero3 --nproc 1 \
    --comm loop "${given[@]}" >"$work/$name.log" 2>&1
  rc=$?
  # "ERROR SUMMARY: 0 errors", and of racecheck "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)".
  summaries=$(cat "$work/$1".*.txt 2>/dev/null | grep 'SUMMARY: ')
  if ((rc == 0)) && [[ -n $summaries ]] && ! grep -Evq 'SUMMARY: 0 (errors|hazards)' <<<"$summaries"; then
    report passed "$name: no errors"
  else
    cat "$work/$1".*.txt >>"$work/$name.log" 2>/dev/null
    echo "${summaries:-compute-sanitizer wrote no summary}" >>"$work/$name.log"
    did_not_end "$name" "$rc" 'Device not supported' 6
  fi
}

# Rates of kernels.
kernel_rates() {
  in_time gpu_rates || return
  local rc
  limited benchmarks/gpu_rates . "${driver:-libcuda.so.1}" "${DDHOST_GPU_NUMEL:-67108864}" >"$work/gpu_rates.log" 2>&1
  rc=$?
  if ((rc == 0)); then
    report passed "gpu_rates"
    cat "$work/gpu_rates.log"
  else did_not_end gpu_rates "$rc" '' 5; fi
}

# Models on LibTorch: the same operators on the CPU and on the GPU. Their sums are in different orders, so the results
# differ in the last bits. Results in 16 bits have fewer digits, so their limit is wider.
# In fp32 the loss and the gradient's norm of the first step are compared: AdamW turns a difference in the last bit of a tiny
# gradient into a step of size lr, so later losses say less.
results() { # name, format
  local words='"loss":[-+.e0-9]+|"grad_norm":[-+.e0-9]+' lines=(sed -n 1p)
  [[ $2 == fp32 ]] || words='"loss":[-+.e0-9]+' lines=(cat)
  grep '"loss"' "$work/$1/metrics.jsonl" | "${lines[@]}" | grep -oE "$words" | cut -d: -f2
}
close_results() { # two names, format, limit of the relative difference
  paste <(results "$1" "$3") <(results "$2" "$3") |
    awk -v limit="$4" -v format="$3" '
      { d = $1 == 0 ? $2 : ($1 - $2) / $1; if (d < 0) d = -d; if (d > most) most = d; if (d != d) far = 1 }
      END { printf "%.1e", most; exit far || most > limit || NR != (format == "fp32" ? 2 : 8) }'
}
# Small models on data that needs no files.
seq 20000 >"$work/text"
options_of() { # model, format
  local dropout=0
  [[ $2 != fp32 ]] || dropout=0.2 # in 16 bits without it: then attention is LibTorch's flash attention
  case $1 in
    gpt) echo "model.size=custom model.n_layer=2 model.n_head=4 model.n_embd=64 model.context=64 model.dropout=$dropout" \
      "data.path=$work/text" ;;
    vit) echo "model.size=small model.dataset=made_up" ;;
    cnn) echo "model.dataset=made_up model.widths=[8,16,32] model.hidden=64 model.padding=1 model.batch_norm=true" ;;
    # In turn with the triples, and with new attention.
    kgat) echo 'model.dataset=made_up train.optimizers=["optimizer","optimizer_kg"] train.update_every=4' ;;
    cad_mllm) echo "model.size=tiny" ;;
  esac
}
compare_model() { # model, format, limit
  local name=$1-$2 of_model
  read -ra of_model <<<"$(options_of "$1" "$2")"
  local torch=(--model "$1" "${of_model[@]}" --strategy zero2 --nproc 1 optimizer.lr=1e-4 "precision.compute=$2")
  in_time "$name" || return
  train "$name-cpu" "${torch[@]}" model.operators=torch || { did_not_end "$name-cpu" $? "$no_library"; return; }
  train "$name-gpu" "${torch[@]}" --device cuda "${given[@]}" || { did_not_end "$name-gpu" $? "$no_library"; return; }
  local difference
  if difference=$(close_results "$name-cpu" "$name-gpu" "$2" "$3"); then
    report "close losses" "$name: within $3 of the CPU's ($difference)"
  else report FAILED "$name: $difference from the CPU's losses, more than $3"; fi
}
compare_models() { # format, limit
  local model
  for model in $(plugins_of model); do
    [[ ! -e plugins/$model.so ]] || compare_model "$model" "$1" "$2"
  done
}

# The backward of flash attention must take its deterministic way.
repeated_gpt() {
  local name=repeated-gpt of_model run
  in_time "$name" && [[ -e plugins/gpt.so ]] || return
  read -ra of_model <<<"$(options_of gpt bf16)"
  for run in 1 2; do
    train "$name-$run" --model gpt "${of_model[@]}" model.context=512 --device cuda --nproc 1 --strategy ddp \
      precision.compute=bf16 "${given[@]}" || { did_not_end "$name-$run" $? "$no_library"; return; }
  done
  if cmp -s "$work/$name-1.safetensors" "$work/$name-2.safetensors"; then report "equal bits" "$name: two runs in bf16"
  else report FAILED "$name: two runs in bf16 have other weights"; fi
}

# Rates of strategies, and of the same model in PyTorch.
if command -v python3 >/dev/null; then
  python3 -c 'import random, struct, sys
r = random.Random(1)
sys.stdout.buffer.write(b"".join(struct.pack("<H", r.randrange(50257)) for _ in range(400000)))' >"$work/tokens.bin"
fi
[[ -s $work/tokens.bin ]] || cp "$work/text" "$work/tokens.bin"
median_ms() { # name: of the last 20 steps
  sed -nE 's/.*"step_ms":([0-9.]+).*/\1/p' "$work/$1/metrics.jsonl" | tail -n 20 | sort -n | sed -n 10p
}
strategy_rate() { # strategy, share of ddp's rate
  local name=rate-$1 ms
  [[ -e plugins/gpt.so ]] && in_time "$name" || return
  train "$name" --model gpt model.size=gpt2 model.vocab=50304 "data.path=$work/tokens.bin" precision.compute=bf16 \
    data.micro_batch=8 train.save_final= --device cuda --nproc 1 --strategy "$1" train.steps=30 "${given[@]}" ||
    { did_not_end "$name" $? "$no_library"; return; }
  ms=$(median_ms "$name")
  [[ $1 != ddp ]] || ddp_ms=$ms
  [[ -n ${ddp_ms:-} ]] || { echo "GPT-2 124M, bf16, 8 x 1024 tokens, $1: $ms ms a step, and no ddp beside it"; return; }
  state_of[$name]=passed
  awk -v s="$1" -v ms="$ms" -v ddp="$ddp_ms" -v target="$2" 'BEGIN {
    rate = ddp / ms
    printf "GPT-2 124M, bf16, 8 x 1024 tokens, %s: %.2f ms a step, %.3f of ddp%s\n", s, ms, rate,
      rate < target ? " (below " target ")" : ""
    exit rate < target }' || state_of[$name]="below its target"
}
peers=$here/peers
[[ -d $peers ]] || peers=$here/../../benchmarks/peers
torch_rate() { # eager or compiled
  local name=torch-$1 rc
  in_time "$name" || return
  [[ -z $driver ]] && python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null ||
    { report "not possible here" "$name: python3 has no torch that finds a GPU"; return; }
  limited python3 "$peers/torch_gpu_gpt.py" --strategy "$1" --dtype bf16 --context 1024 --micro-batch 8 --warmup 10 \
    --steps 20 --tokens "$work/tokens.bin" >"$work/$name.json" 2>"$work/$name.log"
  rc=$?
  ((rc == 0)) || { did_not_end "$name" "$rc" '' 5; return; }
  python3 -c 'import json, statistics, sys
print("GPT-2 124M, bf16, 8 x 1024 tokens, torch %s: %.2f ms a step" % (
    sys.argv[2], statistics.median(json.load(open(sys.argv[1]))["step_ms"])))' "$work/$name.json" "$1"
  report passed "$name"
}

# What a GPU has to show, each with the worst state of what shows it.
item() { # words, names...
  local name state
  for state in FAILED "no time" "not possible here" "not run" "below its target" "passed in part" passed; do
    for name in "${@:2}"; do [[ ${state_of[$name]:-not run} != "$state" ]] || break 2; done
  done
  printf '  %-17s %s\n' "$state" "$1"
}
rate_of() { # line of gpu_rates: its state
  [[ ${state_of[gpu_rates]:-} == passed ]] || { echo "${state_of[gpu_rates]:-not run}"; return; }
  if grep -Eq "^$1: .*\((below|above) " "$work/gpu_rates.log"; then echo "below its target"; else echo passed; fi
}
table() {
  state_of[adamw]=$(rate_of AdamW) state_of[norm]=$(rate_of "exact sum of squares")
  echo "== what a GPU has to show"
  item "the tests that need no stand-in" gpu_{device,staging,optimizers,nccl_collectives}
  item "flat kernels and AdamW have the bits of the CPU" gpu_device gpu_optimizers
  item "compute-sanitizer: memcheck, racecheck, initcheck find no errors" compute-sanitizer-{memcheck,racecheck,initcheck}
  item "AdamW has 0.88 of the rate of a copy" adamw
  item "the exact norm has the bits of the CPU and takes 1.1 times one read" gpu_device norm
  item "one rank: zero1 and zero2 have 0.99, zero3 and fsdp 0.97 of ddp's rate" rate-{ddp,zero1,zero2,zero3,fsdp}
  item "NCCL: every call, and registration" gpu_nccl_collectives symmetric-1
  item "NCCL with 2 to 4 ranks: the bits of the CPU under every strategy" \
    shared-{ddp,zero1,zero2,zero3,zero3_offload,fsdp}-{2,3,4}
  item "two runs of GPT in bf16 have the same bits" repeated-gpt
  item "checkpoints of a GPU resume on the CPU, and the reverse" on-cpu on-gpu
  item "two ranks on one GPU are refused by UUID" same-gpu
  for words in "AdamW beside torch's fused one" "waits of the host in a step" \
    "GPT-2 124M: 20 losses beside the CPU's, and its rate beside llm.c" "a CNN at batch 32 with a graph beside its replay" \
    "an abort by NCCL itself, and graphs with its calls"; do
    printf '  %-17s %s\n' "not measured" "$words"
  done

  echo "== in $SECONDS s"
  for state in passed "passed in part" "equal bits" "close losses" "not possible here" "no time" FAILED; do
    printf '%-17s %3d\n' "$state" "${count[$state]:-0}"
  done
}
show=table

# The most important first: the time may end it.
for name in gpu_device gpu_staging gpu_optimizers; do test_program "$name" ''; done
test_program gpu_nccl_collectives "$no_nccl"
for comm in shm nccl; do on_gpus "ddp-$comm-1" 1 ddp "$comm"; done
compare_models fp32 1e-5
kernel_rates
strategy_rate ddp 1
for how in eager compiled; do torch_rate "$how"; done
for strategy in ${strategies/ddp/}; do
  for comm in shm nccl; do on_gpus "$strategy-$comm-1" 1 "$strategy" "$comm"; done
done
on_gpus symmetric-1 1 zero1 nccl comm.symmetric_windows=true
on_gpus graphs 1 ddp shm device.graphs=true
mkdir "$work/states"
on_gpus nvme 1 zero3_offload shm strategy.offload_optimizer.device=nvme strategy.offload_param.device=nvme \
  "strategy.nvme_path=$work/states"
for strategy in $strategies; do
  for comm in shm nccl; do on_gpus "$strategy-$comm-2" 2 "$strategy" "$comm"; done
done
on_gpus symmetric-2 2 zero1 nccl comm.symmetric_windows=true
gpu=(--device cuda "${given[@]}") cpu=(--nproc 2 --strategy ddp)
resumed on-cpu "${gpu[@]}" --nproc 1 --strategy zero3 train.grad_accum_steps=2 -- "${cpu[@]}"
resumed on-gpu "${cpu[@]}" -- "${gpu[@]}" --nproc 1 --strategy zero2 train.grad_accum_steps=2
repeated_gpt
same_gpu
for ranks in 2 3 4; do
  for strategy in $strategies; do on_one_gpu "$ranks" "$strategy"; done
done
for format in bf16 fp16; do compare_models "$format" 2e-2; done
for tool in memcheck racecheck initcheck; do sanitize "$tool"; done
for strategy in zero1 zero2; do strategy_rate "$strategy" 0.99; done
for strategy in zero3 fsdp; do strategy_rate "$strategy" 0.97; done
exit "$failed"
