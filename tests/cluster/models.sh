#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# models.sh <source folder> <build folder>: the five kinds of model under zero3 on 2 hosts with 2 ranks each have the losses,
# norms and weights of 4 ranks on one host, with made-up data where a clone has none.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/namespaces.sh"
unset DDHOST_DATA
printf 'node1 slots=2\nnode2 slots=2\n' >"$work/hosts"

check() { # name of the configuration, settings...
  toy=("$build/ddhost" --config "$source/configs/$1.json" --strategy zero3 run.sample_tokens=0 run.known_curve= "${@:2}")
  reference "$1" --nproc 4
  "${toy[@]}" --ssh-config "$work/ssh_config" --hostfile "$work/hosts" "run.dir=$work/hosts_$1" \
    --save-final "$work/hosts_$1.safetensors" >"$work/hosts_$1.log" 2>&1 ||
    { cat "$work/hosts_$1.log"; fail "$1 on two hosts"; }
  grep -q "'shm' inside a host, 'gloo' between hosts" "$work/hosts_$1.log" ||
    { cat "$work/hosts_$1.log"; fail "$1: not two hosts"; }
  equal "$1" "hosts_$1"
}

check gpt_tiny train.steps=4
check vit_tiny train.steps=4
check cnn_tiny train.steps=4
check kgat_tiny
check cad_mllm_tiny
echo "five models agree"
