#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# verdicts.sh <build folder>: on_gpu.sh in a folder of programs that fail in known ways. One of them is the real ddhost on
# the stand-ins: without ncclCommAbort it hangs when a rank is lost, and SIGTERM does not end it.
set -euo pipefail
build=$(cd "$1" && pwd) here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/folder/"{plugins,tests/bin,tests/plugins} "$work/path"
ln -s "$build/tests/plugins/kernel_toy.so" "$work/folder/tests/plugins/"
touch "$work/folder/plugins/"{gpt,vit}.so
program() { # file; its text comes from stdin
  { echo '#!/bin/bash'; cat; } >"$work/$1"
  chmod +x "$work/$1"
}
program folder/ddhost <<TEXT
all=" \$* "
case \$all in
  " list ") exec "$build/ddhost" list ;;
  *"--nproc 2 --strategy ddp --comm nccl"*)
    [[ -z \${NO_HANG:-} ]] || exit 1
    echo \$\$ >"$work/pid"
    exec env DDHOST_STANDIN_NCCL_LOST=1:7 DDHOST_STANDIN_IGNORES=ncclCommAbort "$build/ddhost" "\$@" ;;
  *"--model gpt"*) echo "ddhost: the log can't be opened: a reason"; exit 1 ;;
  *"--model vit"*"--device cuda"*)
    echo "ddhost: LibTorch's library for GPUs, 'x.so', can't be loaded (a reason)"; exit 1 ;;
esac
[[ -z \${CUDA_VISIBLE_DEVICES:-} ]] || { echo "ddhost: ranks 0 and 1 use the same GPU"; exit 1; }
for option; do
  [[ \$option != run.dir=* ]] || { mkdir "\${option#*=}"; echo '{"loss":1}' >"\${option#*=}/metrics.jsonl"; }
  [[ \$option != train.save_final=* ]] || echo 1 >"\${option#*=}"
done
TEXT
program folder/tests/bin/gpu_device <<<'echo; exit 1'
program folder/tests/bin/gpu_staging <<<'echo "skipped: a case that needs more GPUs"; exit 4'
program folder/tests/bin/gpu_nccl_collectives <<<'echo; echo "NCCL was not found (a reason)"; exit 1'
program path/compute-sanitizer <<'TEXT'
file=${8%\%p.txt}
case $2 in
  racecheck) echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)" >"${file}1.txt" ;;
  initcheck)
    echo "========= ERROR SUMMARY: 0 errors" >"${file}1.txt"
    echo "========= ERROR SUMMARY: 3 errors" >"${file}2.txt" ;;
esac
TEXT

code=0
PATH=$work/path:$PATH DDHOST_GPU_RUN_SECONDS=4 \
  bash "$here/on_gpu.sh" "$work/folder" --without nccl,torch >"$work/log" 2>&1 || code=$?
fail() { echo "FAILED: $*; the log:"; cat "$work/log"; exit 1; }
expect() { grep -Eq "^$1" "$work/log" || fail "there is no line '$1'"; }
((code == 1)) || fail "the exit code is $code"
expect 'FAILED: gpu_device: $'
expect 'passed in part: gpu_staging$'
expect '  without: a case that needs more GPUs$'
expect 'FAILED: gpu_optimizers: there is no '
expect 'not possible here: gpu_nccl_collectives: NCCL was not found \(a reason\)$'
expect 'equal bits: zero1-nccl-2$'
expect 'FAILED: ddp-nccl-2: it took longer than 4 s$'
expect 'passed: same-gpu: '
expect 'FAILED: compute-sanitizer-memcheck: compute-sanitizer wrote no summary$'
expect 'passed: compute-sanitizer-racecheck: no errors$'
expect 'FAILED: compute-sanitizer-initcheck: '
expect 'FAILED: gpu_rates: .*No such file'
expect "FAILED: gpt-fp32-cpu: ddhost: the log can't be opened: a reason\$"
expect "not possible here: vit-fp32-gpu: .*can't be loaded"
expect '  FAILED +flat kernels and AdamW '
expect '  not possible here +NCCL: every call'
expect '  passed +two ranks on one GPU are refused by UUID$'
! grep -qs '^State:.[^ZX]' "/proc/$(cat "$work/pid")/status" || fail "the program that hangs was not ended"

# Without --without a library that is not found is a failure.
PATH=$work/path:$PATH DDHOST_GPU_RUN_SECONDS=4 \
  bash "$here/on_gpu.sh" "$work/folder" --only 'nccl_collectives|vit-fp32' >"$work/log" 2>&1 && fail "it succeeded"
expect 'FAILED: gpu_nccl_collectives: '
expect 'FAILED: vit-fp32-gpu: '
