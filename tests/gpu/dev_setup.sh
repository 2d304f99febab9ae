#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# dev_setup.sh <source folder>: what ./dev fetches so that models on LibTorch run on a GPU, with a small library in place of
# LibTorch's and a pip that notes how it is called and gives what that library needs. It does not fetch the real ones.
set -euo pipefail
source=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; cat "$work/log"; exit 1; }

# A copy of dev beside a LibTorch whose library for GPUs looks for libneeded.so in nvidia/cudnn/lib.
version=$(sed -nE 's/^readonly kTorchVersion=([0-9.]+).*/\1/p' "$source/cmake/torch_setup.sh")
wheel=$work/.deps/libtorch-$version
mkdir -p "$work"/{cmake,path,nodes,toolkit/bin,toolkit/include} "$wheel"/{torch/lib,torch/include/ATen,nvidia,torch-1.dist-info}
cp "$source/dev" "$work/"
cp "$source"/cmake/{gpu,python,torch}_setup.sh "$work/cmake/"
touch "$wheel/torch/lib/libtorch_cpu.so" "$wheel/torch/include/ATen/ATen.h" "$work/nodes/nvidia0" "$work/toolkit/include/cuda.h"
cat >"$wheel/torch-1.dist-info/METADATA" <<'TEXT'
Requires-Dist: filelock
Requires-Dist: cuda-toolkit[cublas,cudart]==13.0.2; platform_system == "Linux"
Requires-Dist: cuda-bindings<14,>=13.0.3; platform_system == "Linux"
Requires-Dist: nvidia-cudnn-cu13==9.19.0.56; platform_system == "Linux"
Requires-Dist: triton==3.6.0; platform_system == "Linux"
TEXT
gcc -shared -o "$work/libneeded.so" -x c /dev/null
# shellcheck disable=SC2016 # $ORIGIN is the loader's
gcc -shared -o "$wheel/torch/lib/libtorch_cuda.so" -x c /dev/null -L"$work" -Wl,--no-as-needed -lneeded \
  -Wl,-rpath,'$ORIGIN/../../nvidia/cudnn/lib'

program() { # name; its text comes from stdin
  { echo '#!/bin/bash'; cat; } >"$work/path/$1"
  chmod +x "$work/path/$1"
}
program python3 <<TEXT
[[ \$* != "-m pip --version" ]] || exit 0
echo "\$*" >>"$work/calls"
while [[ \$1 != --target ]]; do shift; done
mkdir -p "\$2/nvidia/cudnn/lib"
[[ -n \${GIVES_NOTHING:-} ]] || cp "$work/libneeded.so" "\$2/nvidia/cudnn/lib/"
TEXT
program cmake <<<'exit 1'
program df <<<'printf "names\nx 1 1 99999999 1%% /\n"'
program nvcc <<<'echo "Cuda compilation tools, release 13.0, V13.0.88"'
mv "$work/path/nvcc" "$work/toolkit/bin/"
export PATH=$work/path:$work/toolkit/bin:$PATH DDHOST_GPU_NODES=/none
unset DDHOST_LIBTORCH CUDA_HOME

expect() { # calls of pip, command...
  local calls code=0
  rm -rf "$work/calls" "$wheel/nvidia/cudnn"
  [[ $1 != had ]] || { mkdir -p "$wheel/nvidia/cudnn/lib"; cp "$work/libneeded.so" "$wheel/nvidia/cudnn/lib/"; }
  "${@:2}" >"$work/log" 2>&1 || code=$?
  calls=$(grep -c '' "$work/calls" 2>/dev/null) || calls=0
  ((calls == $([[ $1 == once ]] && echo 1 || echo 0))) || fail "${*:2} called pip $calls times"
  return "$code"
}
fetched() {
  [[ -e $wheel/nvidia/cudnn/lib/libneeded.so ]] || fail "the library is not where libtorch_cuda.so looks for it"
  grep -Eq ' cuda-toolkit\[cublas,cudart\]==13\.0\.2 nvidia-cudnn-cu13==9\.19\.0\.56$' "$work/calls" ||
    fail "pip was called with $(cat "$work/calls")"
  ! grep -q -- '--no-deps' "$work/calls" || fail "what cuda-toolkit requires is left out"
}

expect never "$work/dev" setup || fail "a set-up without GPUs"
DDHOST_GPU_NODES=$work/nodes expect once "$work/dev" setup || fail "a set-up with a GPU"
fetched
expect once "$work/dev" setup --gpu || fail "setup --gpu"
fetched
expect had "$work/dev" setup --gpu || fail "setup --gpu, where the libraries are there"
expect once "$work/dev" gpu && fail "./dev gpu does not need CMake"
fetched
GIVES_NOTHING=1 expect once "$work/dev" setup --gpu && fail "libraries that lack one suffice"
grep -q 'does not find libneeded.so for libtorch_cuda.so' "$work/log" || fail "the missing library is not named"
DDHOST_LIBTORCH=$wheel/torch expect never "$work/dev" setup --gpu || fail "a LibTorch of the user"
grep -q "models can't use a GPU with DDHOST_LIBTORCH=.* does not find libneeded.so" "$work/log" || fail "it is not said"
