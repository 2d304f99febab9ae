#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# without_toolkit.sh <source folder> <build folder> none|wheels: configures the project in a mount namespace without the
# CUDA toolkits of this machine, and with one in PATH that is too old, which is passed over. none: without the PyPI wheels
# too; it succeeds and says what is left out. wheels: with those below .deps/cuda-wheels: they build the device cuda and the
# optimizer adam, and their nvcc gives the same PTX of both as the toolkit that the build folder has used.
set -euo pipefail
source=$(cd "$1" && pwd) build=$(cd "$2" && pwd) with=$3
skip() { echo "skipped: $*"; exit 4; }
fail() { echo "FAILED: $*"; exit 1; }
files=(plugins/device/cuda/flat_kernels.ptx plugins/optimizers/adam.ptx)
wheels=$source/.deps/cuda-wheels

if [[ -z ${DDHOST_TEST_IS_INSIDE:-} ]]; then
  [[ $with == none ]] || compgen -G "$wheels/nvidia/cu*/bin/nvcc" >/dev/null ||
    skip "there are no wheels in $wheels; ./dev setup --cuda-wheels fetches them (105 MB)"
  for namespace in "unshare -m" "unshare -rm"; do
    $namespace true 2>/dev/null || continue
    export DDHOST_TEST_IS_INSIDE=1
    $namespace bash "$0" "$@"
    exit
  done
  skip "no mount namespace can be made here, so the toolkit can't be hidden"
fi

# A toolkit in a folder of its own is hidden as a whole. One in /usr loses its nvcc.
hide() { # nvcc
  local nvcc home
  nvcc=$(readlink -f "$1")
  home=$(dirname "$(dirname "$nvcc")")
  if [[ $home == /usr ]]; then mount --bind /dev/null "$nvcc"; else mount -t tmpfs none "$home"; fi
}
mapfile -t toolkits < <(printf '%s\n' "${CUDA_HOME:-/none}/bin/nvcc" /usr/local/cuda/bin/nvcc; type -ap nvcc)
for nvcc in "${toolkits[@]}"; do
  [[ ! -e $nvcc ]] || hide "$nvcc"
done
[[ $with == wheels || ! -d $wheels ]] || mount -t tmpfs none "$wheels"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
toolkit() { # name, version
  mkdir -p "$work/$1/"{bin,include}
  touch "$work/$1/include/cuda.h"
  printf '#!/bin/sh\necho "Cuda compilation tools, release %s, V%s.89"\n' "$2" "$2" >"$work/$1/bin/nvcc"
  chmod +x "$work/$1/bin/nvcc"
}
toolkit old 11.8
PATH=$work/old/bin:$PATH cmake -S "$source" -B "$work" -G Ninja -DDDHOST_NVCC= >"$work/log" 2>&1 ||
  fail "configuring: $(tail -n 20 "$work/log")"
grep -q "passed over $work/old/bin/nvcc: it is of CUDA 11.8; the GPU parts need 12.4 or newer" "$work/log" ||
  fail "a toolkit that is too old is not passed over: $(cat "$work/log")"
if [[ $with == none ]]; then
  # PATH comes before CUDA_HOME, from which a toolkit is taken if that in PATH is too old.
  toolkit first 12.4
  toolkit second 13.0
  mkdir "$work/order"
  printf 'cmake_minimum_required(VERSION 3.22)\nproject(order NONE)\ninclude("%s/cmake/cuda.cmake")\n' "$source" \
    >"$work/order/CMakeLists.txt"
  taken() { # toolkit in PATH
    PATH=$work/$1/bin:$PATH CUDA_HOME=$work/second cmake -S "$work/order" -B "$work/order/build" 2>&1 | grep 'GPU parts:'
  }
  [[ $(taken first) == *" $work/first/bin/nvcc,"* && $(taken old) == *" $work/second/bin/nvcc,"* ]] ||
    fail "other toolkits are taken: $(taken first) $(taken old)"
  # ./dev setup --cuda passes over it too, and fetches the wheels; here pip only notes that it is called.
  bash -euo pipefail -s "$source" "$work" >"$work/dev.log" 2>&1 <<'TEXT' ||
say() { echo "$*"; }
need_pip() { :; }
require_space() { :; }
python3() { echo "pip gets $*"; mkdir .deps/cuda-wheels.partial; }
source "$1/cmake/gpu_setup.sh"
cd "$2"
setup_cuda # without nvcc in PATH
rm -r .deps
PATH=$2/old/bin:$PATH setup_cuda
TEXT
    fail "setup_cuda: $(cat "$work/dev.log")"
  grep -q "passed over $work/old/bin/nvcc: it is of CUDA 11.8" "$work/dev.log" ||
    fail "dev does not pass over a toolkit that is too old: $(cat "$work/dev.log")"
  [[ $(grep -c 'pip gets .*nvidia-cuda-nvcc==' "$work/dev.log") == 2 ]] ||
    fail "dev does not fetch the wheels: $(cat "$work/dev.log")"
  grep -q 'no CUDA toolkit (nvcc and cuda.h): left out are the device cuda' "$work/log" ||
    fail "the configure step does not say what is left out: $(cat "$work/log")"
  ! grep -qE 'ddh_plugin_cuda|flat_kernels' "$work/build.ninja" || fail "GPU parts are built without nvcc"
  grep -q 'ddh_plugin_nccl' "$work/build.ninja" || fail "the transport nccl is left out, which needs no toolkit"
  exit 0
fi
grep -q "GPU parts: $wheels" "$work/log" || fail "the wheels are not used: $(cat "$work/log")"
cmake --build "$work" -j2 --target ddh_plugin_cuda ddh_plugin_adam >"$work/build.log" 2>&1 ||
  fail "a build with the wheels: $(tail -n 20 "$work/build.log")"
for plugin in cuda adam; do [[ -s $work/plugins/$plugin.so ]] || fail "there is no $plugin.so"; done
version() { sed -nE 's/^\/\/ Cuda compilation tools, (.*)$/\1/p' "$1"; }
for ptx in "${files[@]}"; do
  theirs=$(version "$build/$ptx") ours=$(version "$work/$ptx")
  [[ $ours == "$theirs" ]] || skip "the build folder's toolkit ($theirs) is another version than the wheels ($ours)"
  cmp "$work/$ptx" "$build/$ptx" || fail "the wheels give other PTX than the toolkit"
done
