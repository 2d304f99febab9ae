#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# peers.sh <source folder> <build folder> [rounds] [strategies] [rates]: GPT-2 124M in fp32 with 64 tokens a rank on the hosts
# of namespaces.sh, one rank and one core each, against DistributedDataParallel of PyTorch over gloo on the same hosts. First
# with links as fast as they are, then at 1 Gbit/s. A round runs each once. Nothing else should run meanwhile. Needs
# ./dev setup --peers, or a Python with torch in DDHOST_PEER_PYTHON.
set -euo pipefail
own_core=true
source "$(dirname "${BASH_SOURCE[0]}")/namespaces.sh"
exec 3>&1 # for failures of functions whose output goes to a file
rounds=${3:-4}
read -ra strategies <<<"${4:-ddp zero1 zero2 zero3}"
read -ra rates <<<"${5:-none 1gbit}"
python=${DDHOST_PEER_PYTHON:-$source/.deps/venv/bin/python}
"$python" -c 'import torch, numpy' 2>/dev/null || skip "'$python' has no torch and numpy (./dev setup --peers)"
printf 'node1 slots=1\nnode2 slots=1\n' >"$work/hosts"
PYTHONPATH=$source/benchmarks "$python" -c 'import pathlib, sys, gpt_vs_peers
gpt_vs_peers.make_tokens(pathlib.Path(sys.argv[1]), 50304)' "$work/tokens.bin"
steps=8 warmup=3

ms_of_peer() {
  local n pids=()
  for n in 2 1; do
    inside "$n" env MASTER_ADDR="$net.1" MASTER_PORT=29500 RANK=$((n - 1)) LOCAL_RANK=0 WORLD_SIZE=2 OMP_NUM_THREADS=1 \
      GLOO_SOCKET_IFNAME=eth0 taskset -c "$(core_of "$n")" timeout 300 "$python" "$source/benchmarks/peers/torch_gpt.py" \
      --strategy ddp --steps "$steps" --warmup "$warmup" --tokens "$work/tokens.bin" >"$work/peer.$n" 2>&1 &
    pids+=($!)
  done
  for n in "${pids[@]}"; do wait "$n" || { cat "$work"/peer.*; fail "the peer ended with an error"; } >&3; done
  "$python" -c 'import json, statistics, sys
rows = [json.loads(line) for line in open(sys.argv[1]) if line.startswith("""{"step_ms""")]
print(round(statistics.median(rows[-1]["step_ms"])))' "$work/peer.1"
}
ms_of() { # strategy
  rm -rf "$work/run"
  "$build/ddhost" --ssh-config "$work/ssh_config" --hostfile "$work/hosts" --strategy "$1" \
    device.plugin=cpu precision.compute=fp32 model.size=gpt2 model.context=64 model.vocab=50304 \
    data.path="$work/tokens.bin" data.micro_batch=1 "train.steps=$((steps + warmup))" run.sample_tokens=0 \
    'optimizer.betas=[0.9,0.95]' optimizer.weight_decay=0.1 run.quiet=true checkpoint.on_exit=false "run.dir=$work/run" \
    >"$work/run.log" 2>&1 || { cat "$work/run.log"; fail "$1"; } >&3
  grep -oE '"step_ms":[0-9]+' "$work/run/metrics.jsonl" | cut -d: -f2 | tail -n "$steps" | median
}

# Asked before the measurements, which take long.
{ set_rate 1gbit && set_rate none; } || skip "this kernel can't limit the rate of a link (sch_tbf)"
slower=()
echo "GPT-2 124M fp32, 64 tokens a rank, 2 hosts with 1 rank and 1 core: ms of a step; torch / ours"
echo "| link | torch DDP, gloo | ${strategies[*]} | torch / best |"
for rate in "${rates[@]}"; do
  [[ $rate == none ]] || set_rate "$rate" || fail "the rate $rate of a link can't be set"
  for ((i = 0; i < rounds; ++i)); do
    ms_of_peer >>"$work/$rate.torch"
    for strategy in "${strategies[@]}"; do ms_of "$strategy" >>"$work/$rate.$strategy"; done
  done
  line="| $rate |" best=
  for name in torch "${strategies[@]}"; do
    ms=$(median <"$work/$rate.$name")
    line+=" $ms |"
    [[ $name == torch || ($best != '' && $best -le $ms) ]] || best=$ms
  done
  ratio=$(awk -v peer="$(median <"$work/$rate.torch")" -v ours="$best" 'BEGIN { printf "%.2f", peer / ours }')
  echo "$line $ratio |"
  awk -v ratio="$ratio" 'BEGIN { exit ratio < 1 }' || slower+=("$rate")
done
((${#slower[@]} == 0)) || fail "PyTorch is faster with links of the rate ${slower[*]}"
