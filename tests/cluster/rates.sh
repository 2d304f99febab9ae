#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# rates.sh <source folder> <build folder>: two hosts of namespaces.sh with a link of a known rate (a token bucket on both
# ends). First a sum of 64 MB of one rank on each host and of two, in chain and in blocks, as a part of the link's rate. Then
# milliseconds of a step of a GPT of 10.8 million parameters under strategies and orders of sums, at 0.1, 1 and 10 Gbit/s.
# Nothing else should run meanwhile.
set -euo pipefail
own_core=true
source "$(dirname "${BASH_SOURCE[0]}")/namespaces.sh"
set_rate 1gbit || skip "this kernel can't limit the rate of a link (sch_tbf)"
printf 'node1 slots=1\nnode2 slots=1\n' >"$work/hosts_1"
printf 'node1 slots=2\nnode2 slots=2\n' >"$work/hosts_2"
on_hosts() { # name, ranks of a host, arguments...
  rm -rf "${work:?}/$1"
  "$build/ddhost" --ssh-config "$work/ssh_config" --hostfile "$work/hosts_$2" run.quiet=true run.sample_tokens=0 \
    "run.dir=$work/$1" train.eval_every=0 checkpoint.on_exit=false "${@:3}" >"$work/$1.log" 2>&1 ||
    { cat "$work/$1.log"; fail "$1"; }
}

# A host sends at least 64 MB. With one rank or in blocks: half of its values to their owner, then the sums of the other half.
# In a chain: the first host sends its sum of all values, and the last one sends the sums back.
part_of_link() { # name, ranks of a host, least part of the link's rate, settings...
  on_hosts "$1" "$2" --model "$build/tests/plugins/toy.so" model.vocab=524288 model.width=32 model.layers=1 \
    --strategy ddp --optimizer sgd train.steps=8 train.clip_norm=0 data.micro_batch=1 profile.steps=3-8 "${@:4}"
  python3 - "$work/$1/profile.json" "$1" "$3" <<'PYTHON'
import json, sys
path, name, least = sys.argv[1:]
with open(path) as file:
    profile = json.load(file)
ms = sum(o["ms"] for o in profile["operations"] if o["bytes_sent"]) / profile["steps"]
on_link = 64 * 2**20 * 1514 / 1448  # bytes, with the headers of packets of 1500 bytes
part = on_link * 8 / 1e9 / (ms / 1e3)
print(f"64 MB summed at 1 Gbit/s, {name}: {ms:.0f} ms, {part:.2f} of the link")
sys.exit(f"FAILED: {name} has {part:.2f} of the link" if part < float(least) else 0)
PYTHON
}
part_of_link one_rank_of_each_host 1 0.9
part_of_link two_ranks_in_blocks 2 0.8 train.reduce_block=2 # the link is idle while a host sums
part_of_link two_ranks_in_chain 2 0.8

gpt=(--config "$source/configs/gpt_char_10m.json" precision.compute=fp32 model.dropout=0 data.micro_batch=1
  checkpoint.every_minutes=0 run.known_curve= train.steps=6)
step_ms() { grep -oE '"step_ms":[0-9.]+' "$work/$1/metrics.jsonl" | cut -d: -f2 | tail -n 4 | median; }
echo "GPT 10.8M fp32, 256 tokens a rank: ms of a step (median of 4)"
echo "| ranks, strategy, order of sums | 0.1 Gbit/s | 1 Gbit/s | 10 Gbit/s |"
row() { # ranks of a host, strategy, name of the order, train.reduce_block
  local rate line="| 2 x $1, $2, $3 |"
  for rate in 100mbit 1gbit 10gbit; do
    set_rate "$rate"
    on_hosts gpt "$1" "${gpt[@]}" --strategy "$2" "train.reduce_block=$4"
    line+=" $(step_ms gpt | cut -d. -f1) |"
  done
  echo "$line"
}
for strategy in ddp zero1 zero2 zero3; do row 1 "$strategy" "of ranks" 1; done
for strategy in ddp zero1 zero2 zero3; do
  row 2 "$strategy" chain 1
  row 2 "$strategy" blocks 2
done
