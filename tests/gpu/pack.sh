#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# pack.sh <build folder> <archive> [MiB]: writes an archive of what on_gpu.sh needs, for a machine that can fetch and build
# nothing. It fails if the archive is larger than that (48 MiB).
set -euo pipefail
build=$(cd "$1" && pwd) here=$(cd "$(dirname "$0")" && pwd) limit=${3:-48}
mkdir -p "$(dirname "$2")"
archive=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/lib"
cd "$build"
files=(ddhost plugins/*.so tests/plugins/kernel_toy.so benchmarks/gpu_rates
  tests/bin/gpu_{device,staging,optimizers,nccl_collectives})
for file in "${files[@]}"; do
  [[ -e $file ]] || { echo "FAILED: there is no $build/$file; ./dev gpu --pack builds it" >&2; exit 1; }
done
# lib: what the programs need besides the system's own libraries and LibTorch.
ldd "${files[@]}" | grep -oE '=> (/usr)?/lib/[^ ]+' | cut -d' ' -f2 | sort -u |
  grep -vE '/(lib(c|m|dl|rt|util|pthread|gcc_s|stdc\+\+)\.so|ld-linux)' | xargs -r cp -Lt "$work/lib"
mkdir "$work/folder"
cp --parents "${files[@]}" "$work/folder"
find "$work/folder" "$work/lib" -type f -exec strip --strip-unneeded {} +
tar -czf "$work/archive" -C "$work/folder" . -C "$work" lib -C "$here" on_gpu.sh -C "$here/../../benchmarks" peers
mib=$(($(stat -c %s "$work/archive") / 1048576 + 1))
((mib <= limit)) || { echo "FAILED: the archive has $mib MiB, more than $limit" >&2; exit 1; }
mv "$work/archive" "$archive"
echo "$archive ($mib MiB); there: tar -xzf it, then bash on_gpu.sh ."
