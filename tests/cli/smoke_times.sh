#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# smoke_times.sh <source> <build>   `ddhost smoke` of every shipped configuration of up to 125 million parameters ends well, in
# under 30 s each (docs/runs.md; two idle cores), with the data of DDHOST_DATA or made-up data. Prints the seconds of each.
set -euo pipefail
source=$(cd "$1" && pwd -P) build=$2
readonly kMostParameters=125000000 kMostMs=30000
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$build"
tried=0 failed=()
for config in "$source"/configs/*.json; do
  name=$(basename "$config" .json)
  [[ $name != defaults ]] || continue
  parameters=$(./ddhost plan --config "$config" --nproc 2 --strategy ddp --json 2>"$folder/log" |
    sed -nE 's/^ *"parameters": ([0-9]+),$/\1/p') && [[ -n $parameters ]] || { cat "$folder/log"; exit 1; }
  if ((parameters > kMostParameters)); then
    printf '%-32s %5d million parameters: left out\n' "$name" $((parameters / 1000000))
    continue
  fi
  tried=$((tried + 1)) begin=$(date +%s%3N)
  if ./ddhost smoke --config "$config" --nproc 2 --out "$folder/$name" >"$folder/$name.log" 2>&1; then
    ms=$(($(date +%s%3N) - begin))
    printf '%-32s %5d million parameters: %3d.%d s\n' "$name" $((parameters / 1000000)) $((ms / 1000)) $((ms % 1000 / 100))
    ((ms < kMostMs)) || failed+=("$name took $ms ms")
  else
    cat "$folder/$name.log"
    failed+=("$name ended with an error")
  fi
  rm -rf "${folder:?}/$name"
done
((tried >= 25)) || failed+=("only $tried configurations were tried")
for one in "${failed[@]}"; do echo "FAILED: $one"; done
((${#failed[@]} == 0))
