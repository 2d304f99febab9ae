#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# old_plugins.sh <source folder> <build folder>: every plugin binary of an earlier release (tests/abi/old_plugins) is usable
# in this host, and those that a run takes train two steps.
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
shopt -s nullglob
plugins=("$source"/tests/abi/old_plugins/*/*.so)
if ((${#plugins[@]} == 0)); then
  echo "Skipped: none before the freeze"
  exit 77
fi
failed=0
for plugin in "${plugins[@]}"; do
  name=${plugin#"$source"/tests/abi/old_plugins/}
  "$build/ddhost" inspect "$plugin" >"$work/facts" 2>&1 || {
    cat "$work/facts"
    echo "FAILED: $name can't be used"
    failed=1
    continue
  }
  kind=$(grep -oE "^(strategy|model|optimizer|comm|device) '" "$work/facts" | head -n 1 | cut -d' ' -f1)
  model=(--model "$build/tests/plugins/toy.so")
  [[ $kind != model ]] || model=()
  "$build/ddhost" "--$kind" "$plugin" "${model[@]}" --nproc 2 train.steps=2 "run.dir=$work/$(tr / - <<<"$name")" \
    >"$work/log" 2>&1 || {
    cat "$work/log"
    echo "FAILED: $name does not train"
    failed=1
  }
done
echo "${#plugins[@]} plugins of earlier releases"
exit "$failed"
