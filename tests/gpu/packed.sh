#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# packed.sh <build folder>: the archive of pack.sh is unpacked elsewhere and run on the stand-ins for two minutes, with the
# build folder hidden if a mount namespace can be made. An archive that is too large is refused.
set -euo pipefail
build=$(cd "$1" && pwd) here=$(cd "$(dirname "$0")" && pwd)
fail() { echo "FAILED: $*"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bash "$here/pack.sh" "$build" "$work/small.tar.gz" 1 >"$work/log" 2>&1 && fail "an archive of more than 1 MiB was written"
grep -q 'MiB, more than 1' "$work/log" || fail "the limit is not said: $(cat "$work/log")"
[[ ! -e $work/small.tar.gz ]] || fail "an archive of more than 1 MiB is there"
bash "$here/pack.sh" "$build" "$work/ddhost-gpu.tar.gz" || fail "pack.sh"
cp -r "$build/tests/standin" "$work/standin"
mkdir "$work/there"
tar -xzf "$work/ddhost-gpu.tar.gz" -C "$work/there"
export DDHOST_GPU_OPTIONS="device.driver=$work/standin/libcuda.so.1" DDHOST_STANDIN_GPUS=2 DDHOST_GPU_NUMEL=100000
export DDHOST_NCCL_OPTIONS="comm.library=$work/standin/libnccl.so.2" DDHOST_GPU_MINUTES=2
cd "$work/there"
run=(bash on_gpu.sh . --without torch)
if unshare -m true 2>/dev/null; then
  # shellcheck disable=SC2016 # $0 is of the inner shell
  run=(unshare -m bash -c 'mount -t tmpfs none "$0" && exec bash on_gpu.sh . --without torch' "$build")
else
  echo "no mount namespace can be made here: the build folder is not hidden"
fi
"${run[@]}" >"$work/log" 2>&1 || true # the time may end it
cat "$work/log"
! grep -q '^FAILED:' "$work/log" || fail "the unpacked archive, above"
for name in gpu_device gpu_staging gpu_optimizers gpu_nccl_collectives; do
  grep -Eq "^passed( in part)?: $name" "$work/log" || fail "$name was not run from the archive"
done
grep -q '^equal bits: ddp-shm-1' "$work/log" || fail "no run was compared"
