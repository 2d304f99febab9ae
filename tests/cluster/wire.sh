#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# wire.sh <source folder> <build folder>: strangers on the host of a run's head talk to the port on which it listens, while the
# run trains and while it stands still. Each is sent away, no process of the run grows by more than 1 MiB, and the bits stay.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
strangers=$(dirname "${BASH_SOURCE[0]}")/strangers.py
settings=(--strategy zero2 --nproc 4 train.steps=120 model.hold_from_step=60 "model.hold_file=$work/go_on")
touch "$work/go_on"
reference alone "${settings[@]}"

rm "$work/go_on"
for task in 1 0; do
  TORCHELASTIC_RUN_ID=wire RANK=$task WORLD_SIZE=2 LOCAL_RANK=$task LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
    "${toy[@]}" "${settings[@]}" "run.dir=$work/met" --comm gloo --save-final "$work/met.safetensors" \
    >"$work/met.$task.log" 2>&1 &
  pids[task]=$!
done
until_rows met 5
command -v ss >/dev/null || { echo "skipped: there is no ss (Debian: iproute2)"; exit 77; }
port=$(ss -ltnpH | grep -w "pid=${pids[0]}" | awk '{ print $4 }' | head -n 1)
[[ -n $port ]] || fail "the head of the run listens at no port"
python3 "$strangers" "$port" || fail "strangers while the run trains"
until_rows met 59
sleep 0.5
python3 "$strangers" "$port" --connections 10000 --processes "${pids[@]}" || fail "strangers while the run stands still"
touch "$work/go_on"
for task in 0 1; do
  wait "${pids[task]}" || { cat "$work"/met.*.log; fail "task $task ends with an error"; }
done
equal alone met
