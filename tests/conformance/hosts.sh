#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# hosts.sh <source folder> <build folder> <collectives>: the conformance test of transports for gloo between two hosts,
# which are network namespaces of this machine. The ranks are tasks with the variables of torchrun, and node1 has one more
# of an odd number.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cluster/namespaces.sh"
source "$(dirname "${BASH_SOURCE[0]}")/worlds_of_tasks.sh"
collectives=$3
export DDHOST_COMM=gloo
starts=0
run_tasks() { # number of ranks
  local ranks=$1 on_first=$((($1 + 1) / 2)) task node pid pids=() rc=0
  starts=$((starts + 1))
  for task in $(seq 0 $((ranks - 1))); do
    node=$((task < on_first ? 1 : 2))
    inside "$node" env TORCHELASTIC_RUN_ID="$id-$starts" RANK="$task" WORLD_SIZE="$ranks" MASTER_ADDR="$net.1" \
      LOCAL_WORLD_SIZE=$((node == 1 ? on_first : ranks - on_first)) \
      timeout -k 5 60 "$collectives" --use-colour no &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || rc=$?; done
  return "$rc"
}
every_world 13 2 3 4 5 8
