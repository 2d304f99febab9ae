#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# binaries.sh <source folder> <build folder>: every plugin exports one symbol; the host and every plugin but models link
# neither LibTorch nor CUDA nor NCCL, and none links FFmpeg.
set -euo pipefail
cd "$2"
failed=0
fail() {
  echo "FAILED: $*"
  failed=1
}
shopt -s nullglob
plugins=(plugins/*.so)
((${#plugins[@]} > 0)) || fail "there are no plugins in $2/plugins"
for plugin in "${plugins[@]}"; do
  symbols=$(nm -D --defined-only "$plugin" | awk '{ print $NF }')
  [[ $symbols == ddh_plugin_entry_0 ]] || fail "$plugin exports: $symbols"
  sections=$(readelf -S --wide "$plugin")
  [[ $sections == *.note.ddhost* ]] || fail "$plugin has no note"
  needed=$(readelf -d --wide "$plugin" | grep NEEDED)
  [[ $needed != *libav* && $needed != *libsw* ]] || fail "$plugin links FFmpeg"
done
free_of_frameworks() {
  local found
  # Names and paths alone: a load address may hold any hexadecimal word.
  found=$(ldd "$1" | sed 's/ (0x[0-9a-f]*)//' | grep -Ei 'torch|c10|cuda|nccl' || true)
  [[ -z $found ]] || fail "$1 links $found"
}
free_of_frameworks ddhost
free=0
for plugin in "${plugins[@]}"; do
  # The note has the kind: only models may link LibTorch, and the transport that takes Gloo from it.
  if grep -qaE '"plugins":"(model:|comm:gloo)' "$plugin"; then continue; fi
  free_of_frameworks "$plugin"
  free=$((free + 1))
done
((free >= 3)) || fail "only $free plugins besides models: are the strategies built?"
echo "${#plugins[@]} plugins, $free of them checked to be free of frameworks"
exit "$failed"
