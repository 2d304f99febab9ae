#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# source_commands.sh <source> <build>   Runs each line of tests/data/source_commands.txt in a folder with tiny data. Each line
# that docs/from-*.md shows must be among them.
set -euo pipefail
source=$1 build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
unset MODEL_SIZE BATCH_SIZE EPOCHS
export OMP_NUM_THREADS=1

# The data: a graph of three users, text, 40 images, and the files that the lines name.
mkdir -p data/amazon-book images/a images/b
for u in $(seq 0 19); do echo "$u $((u % 7)) $((u % 5 + 7)) $((u % 3 + 12))"; done >data/amazon-book/train.txt
for u in $(seq 0 19); do echo "$u $(((u + 1) % 7))"; done >data/amazon-book/test.txt
for i in $(seq 0 14); do echo "$i $((i % 2)) $((i % 4 + 15))"; done >data/amazon-book/kg_final.txt
for i in $(seq 0 39); do
  class=$([[ $((i % 2)) == 0 ]] && echo a || echo b)
  cp "$source/docs/pictures/report.png" "images/$class/$i.png"
done
cat >training.json <<'END'
{"training": {"strategy": {
  "type": "deepspeed", "config": {"stage": 2, "offload_optimizer": true, "offload_parameters": false}}}}
END
cp "$source/configs/gpt_tiny.json" gpt.json
printf 'node1 slots=8\n' >hostfile
printf 'node1 slots=8\nnode2 slots=8\n' >hostfile2
cat >config_fsdp.yaml <<'END'
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_processes: 8
fsdp_config:
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
END
cat >ds_zero3_config.json <<'END'
{
  "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
  "bf16": {"enabled": true}, "gradient_clipping": 1.0, "wall_clock_breakdown": false,
  "optimizer": {"type": "AdamW", "params": {"lr": 2e-4, "betas": [0.9, 0.95], "weight_decay": 0.01}},
  "zero_optimization": {"stage": 3, "overlap_comm": true, "contiguous_gradients": true}
}
END

failed=0 n=0
: >ran
run() { # the line, further words, how it ends, what it shows
  local here=$1 tiny=$2 end=$3 shows=$4 code=0 out
  n=$((n + 1))
  echo "$here" >>ran
  local -a words more=()
  read -ra words <<<"$here"
  local -a variables=()
  while [[ ${words[0]} != ddhost ]]; do
    variables+=("${words[0]}")
    words=("${words[@]:1}")
  done
  read -ra more <<<"$tiny"
  case ${words[1]} in
  plan | list | slurm | doctor) ;;
  compare) more+=(--out "$folder/out$n") ;;
  *) [[ $end == refused ]] || more+=("run.dir=$folder/run$n" run.sample_tokens=0) ;;
  esac
  out=$(env "${variables[@]}" "$build/ddhost" "${words[@]:1}" "${more[@]}" 2>&1) || code=$?
  [[ ! -d run$n ]] || out+=$(find "run$n" -name '*tfevents*')
  local wanted=0
  [[ $end == ok ]] || wanted=2
  if [[ $code != "$wanted" || $out != *"$shows"* ]]; then
    failed=1
    printf 'FAILED: %s %s\n  ends with %s, and should with %s and show: %s\n%s\n' "$here" "$tiny" "$code" "$wanted" \
      "$shows" "$out"
  elif [[ $end == refused && ($out != "ddhost: "* || $out == *$'\n'*) ]]; then
    failed=1
    printf 'FAILED: %s is not refused in one sentence:\n%s\n' "$here" "$out"
  fi
}

here='' tiny='' end='' shows=''
while IFS= read -r line || [[ -n $line ]]; do
  case $line in
  '#'*) ;;
  here:*) here=${line#here: } ;;
  tiny:*) tiny=${line#tiny: } ;;
  end:*) end=${line#end: } ;;
  shows:*) shows=${line#shows: } ;;
  '')
    [[ -z $here ]] || run "$here" "$tiny" "$end" "$shows"
    here='' tiny='' end='' shows=''
    ;;
  esac
done < <(cat "$source/tests/data/source_commands.txt"; echo)
((n >= 25)) || { echo "FAILED: $n lines were found; at least 25 were expected"; exit 1; }
shown=0
while IFS= read -r line; do
  shown=$((shown + 1))
  grep -qxF -- "$line" ran || { failed=1; echo "FAILED: docs/from-*.md shows a line that no test runs: $line"; }
done < <(sed -n '/^```sh$/,/^```$/p' "$source"/docs/from-*.md | grep -v '^```\|^#')
((shown >= 20)) || { echo "FAILED: docs/from-*.md show $shown lines; at least 20 were expected"; exit 1; }
echo "$n lines ran, among them the $shown of docs/from-*.md"
exit "$failed"
