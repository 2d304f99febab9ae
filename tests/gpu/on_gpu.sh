#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# on_gpu.sh FOLDER: the GPU parts on this machine's GPUs. First the tests that need no stand-in, then runs that are compared
# with runs on the CPU bit for bit, models on LibTorch, whose losses are compared within a limit, and rates: of kernels, and
# of strategies beside ddp. A rate below its target is marked and is no failure.
# FOLDER holds ddhost, plugins/, tests/plugins/kernel_toy.so, tests/bin/ and benchmarks/gpu_rates: build/, or an unpacked
# ddhost-gpu.tar.gz. Options for the GPU runs, such as another device.driver, are in DDHOST_GPU_OPTIONS, those for runs over
# nccl in DDHOST_NCCL_OPTIONS.
# All of it has DDHOST_GPU_MINUTES (10), and one run at most DDHOST_GPU_RUN_SECONDS (120).
# Ends with 0 if all that is possible here was run and nothing failed: "not possible here" names what is missing, such as a
# second GPU or a library. Ends with 1 if something failed, if there was no time for it, or if no model on LibTorch could be
# compared. Ends with 4 if there is no GPU.
set -uo pipefail
cd "$1" || exit 1
[[ ! -d lib ]] || export LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} # of the archive
minutes=${DDHOST_GPU_MINUTES:-10} run_s=${DDHOST_GPU_RUN_SECONDS:-120}
[[ $minutes =~ ^[0-9]+$ ]] || { echo "DDHOST_GPU_MINUTES is '$minutes'; give a number of minutes"; exit 1; }
[[ $run_s =~ ^[0-9]+$ ]] || { echo "DDHOST_GPU_RUN_SECONDS is '$run_s'; give a number of seconds"; exit 1; }
readonly minutes run_s end=$((SECONDS + 60 * minutes))
read -ra given <<<"${DDHOST_GPU_OPTIONS:-}"
read -ra given_nccl <<<"${DDHOST_NCCL_OPTIONS:-}"
value_of() { # key, options...
  printf '%s\n' "${@:2}" | sed -n "s/^$1=//p" | tail -n 1
}
driver=$(value_of device.driver "${given[@]}") nccl=$(value_of comm.library "${given_nccl[@]}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
common=(device.plugin=cpu train.steps=8 run.quiet=true run.sample_tokens=0 data.micro_batch=4)
toy=(--model "$PWD/tests/plugins/kernel_toy.so")

failed=0
declare -A count=() state_of=()
report() { # state, words that begin with a name
  echo "$1: $2"
  state_of[${2%%[:, ]*}]=$1
  count[$1]=$((${count[$1]:-0} + 1))
  [[ $1 != FAILED && $1 != "no time" ]] || failed=1
}
# Whether there is time for one more. Else it is named, and the script fails.
in_time() { # name
  ((SECONDS >= end)) || return 0
  report "no time" "$1: the $minutes minutes of DDHOST_GPU_MINUTES are over"
  return 1
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
  if (($2 == 124)) && ! in_time "$1"; then :
  elif (($2 == 124)); then report FAILED "$1: it took longer than $run_s s"
  elif [[ -n $3 ]] && grep -Eq "$3" "$work/$1.log"; then
    report "not possible here" "$1: $(grep -E "$3" "$work/$1.log" | tail -n 1)"
  else report FAILED "$1: $(tail -n "${4:-1}" "$work/$1.log")"
  fi
}
readonly no_nccl='NCCL was not found'
readonly no_group="$no_nccl|use the same GPU|makes no symmetric windows|needs NCCL 2.27"
no_library="LibTorch.*(can't be loaded|is built for CPUs)|cannot open shared object"
[[ -z $driver ]] || no_library+="|LibTorch finds no GPU" # it asks the machine's own driver

# The columns that don't depend on time.
numbers() { sed -E 's/"(step_ms|[a-z_]*_per_s|device_[a-z_]*|split_ms)":[^,}]*,?//g' "$work/$1/metrics.jsonl" | grep '"loss"'; }
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
for name in gpu_device gpu_staging gpu_optimizers; do test_program "$name" ''; done
test_program gpu_nccl_collectives "$no_nccl"

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
for world in 1 2; do
  for strategy in $strategies; do
    for comm in shm nccl; do on_gpus "$strategy-$comm-$world" "$world" "$strategy" "$comm"; done
  done
  on_gpus "symmetric-$world" "$world" zero1 nccl comm.symmetric_windows=true
done
on_gpus graphs 1 ddp shm device.graphs=true
on_gpus nvme 1 zero3_offload shm strategy.offload_optimizer.device=nvme strategy.offload_param.device=nvme \
  "strategy.nvme_path=$work"

# NCCL hangs or fails late with two ranks on one GPU, so the transport refuses them.
if in_time same-gpu; then
  shown=${CUDA_VISIBLE_DEVICES:-0}
  CUDA_VISIBLE_DEVICES=${shown%%,*} train same-gpu --device cuda --nproc 2 --comm nccl "${given[@]}" "${given_nccl[@]}"
  rc=$?
  if grep -q 'use the same GPU' "$work/same-gpu.log"; then
    report passed "same-gpu: two ranks on one GPU are refused over nccl, by UUID"
  elif ((rc == 0)); then report FAILED "same-gpu: two ranks on one GPU over nccl were not refused"
  else did_not_end same-gpu "$rc" "$no_nccl"; fi
fi

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
    echo "${summaries:-compute-sanitizer wrote no summary}" >>"$work/$name.log"
    did_not_end "$name" "$rc" '' 6
  fi
}
for tool in memcheck racecheck initcheck; do sanitize "$tool"; done

# Rates of kernels.
if in_time gpu_rates; then
  limited benchmarks/gpu_rates . "${driver:-libcuda.so.1}" "${DDHOST_GPU_NUMEL:-67108864}" >"$work/gpu_rates.log" 2>&1
  rc=$?
  if ((rc == 0)); then
    report passed "gpu_rates"
    cat "$work/gpu_rates.log"
  else did_not_end gpu_rates "$rc" '' 5; fi
fi

# Models on LibTorch: the same operators on the CPU and on the GPU. Their sums are in different orders, so the results
# differ in the last bits. Results in 16 bits have fewer digits, so their limit is wider.
losses() { sed -nE 's/.*"loss":([-+.e0-9]+).*/\1/p' "$work/$1/metrics.jsonl"; }
close_losses() { # two names, limit of the relative difference
  paste <(losses "$1") <(losses "$2") |
    awk -v limit="$3" '{ d = ($1 - $2) / $1; if (d > limit || d < -limit || d != d) far = 1 } END { exit far || NR != 8 }'
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
compare_model() { # model, format, limit
  local name=$1-$2 of_model
  read -ra of_model <<<"$(options_of "$1")"
  local torch=(--model "$1" "${of_model[@]}" --strategy zero2 --nproc 1 optimizer.lr=1e-4 "precision.compute=$2")
  in_time "$name" || return
  train "$name-cpu" "${torch[@]}" model.operators=torch || { did_not_end "$name-cpu" $? "$no_library"; return; }
  train "$name-gpu" "${torch[@]}" --device cuda "${given[@]}" || { did_not_end "$name-gpu" $? "$no_library"; return; }
  if close_losses "$name-cpu" "$name-gpu" "$3"; then report "close losses" "$name, within $3"
  else report FAILED "$name: other losses than on the CPU"; fi
}
compared=0 impossible=${count["not possible here"]:-0}
for model in $(plugins_of model); do
  [[ -e plugins/$model.so ]] || continue
  compare_model "$model" fp32 1e-4
  for format in bf16 fp16; do compare_model "$model" "$format" 2e-2; done
  compared=$((compared + 3))
done
# LibTorch opens the machine's own driver, so with another one no model can run.
impossible=$((${count["not possible here"]:-0} - impossible))
if [[ -z $driver ]] && ((compared > 0 && impossible == compared)); then
  report FAILED "models: LibTorch could not use this GPU for any of them; ./dev setup --gpu fetches NVIDIA's libraries"
fi

# Rates of strategies.
median_ms() { # name: of the last 20 steps
  sed -nE 's/.*"step_ms":([0-9.]+).*/\1/p' "$work/$1/metrics.jsonl" | tail -n 20 | sort -n | sed -n 10p
}
for strategy in ddp zero1 zero2 zero3 fsdp; do
  [[ -e plugins/gpt.so ]] || break
  name=rate-$strategy target=0.99
  [[ $strategy != zero3 && $strategy != fsdp ]] || target=0.97
  in_time "$name" || continue
  train "$name" --model gpt model.size=gpt2 model.vocab=50304 "data.path=$work/text" precision.compute=bf16 \
    --device cuda --nproc 1 --strategy "$strategy" train.steps=30 "${given[@]}" ||
    { did_not_end "$name" $? "$no_library"; [[ $strategy != ddp ]] || break; continue; }
  [[ $strategy != ddp ]] || ddp_ms=$(median_ms "$name")
  state_of[$name]=passed
  awk -v s="$strategy" -v ms="$(median_ms "$name")" -v ddp="$ddp_ms" -v target="$target" 'BEGIN {
    rate = ddp / ms
    printf "GPT-2 124M, bf16, %s: %.2f ms a step, %.3f of ddp%s\n", s, ms, rate, rate < target ? " (below " target ")" : ""
    exit rate < target }' || state_of[$name]="below its target"
done

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
state_of[adamw]=$(rate_of AdamW) state_of[norm]=$(rate_of "exact sum of squares")
echo "== what a GPU has to show"
item "the tests that need no stand-in" gpu_{device,staging,optimizers,nccl_collectives}
item "flat kernels and AdamW have the bits of the CPU" gpu_device gpu_optimizers
item "compute-sanitizer: memcheck, racecheck, initcheck find no errors" compute-sanitizer-{memcheck,racecheck,initcheck}
item "AdamW has 0.88 of the rate of a copy" adamw
item "the exact norm has the bits of the CPU and takes 1.1 times one read" gpu_device norm
item "one rank: zero1 and zero2 have 0.99, zero3 and fsdp 0.97 of ddp's rate" rate-{ddp,zero1,zero2,zero3,fsdp}
item "NCCL: every call, and registration" gpu_nccl_collectives symmetric-1
item "two ranks on one GPU are refused by UUID" same-gpu
for words in "AdamW beside torch's fused one" "ddp beside a plain loop; waits of the host in a step" \
  "GPT-2 124M: 20 losses beside the CPU's, and its rate beside llm.c" "a CNN at batch 32 with a graph beside its replay" \
  "an abort by NCCL itself, and graphs with its calls"; do
  printf '  %-17s %s\n' "not measured" "$words"
done

echo "== in $SECONDS s"
for state in passed "passed in part" "equal bits" "close losses" "not possible here" "no time" FAILED; do
  printf '%-17s %3d\n' "$state" "${count[$state]:-0}"
done
exit "$failed"
