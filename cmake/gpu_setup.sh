#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The parts of `./dev setup` that fetch what GPUs need: nvcc for the build, and NVIDIA's libraries for LibTorch. `dev` reads
# this file and has the other functions.

# What compiles kernels for GPUs, without the CUDA toolkit: nvcc and what it calls, cuda.h.
readonly kCudaWheels="nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88
  nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85"

# Whether an nvcc runs, is of CUDA 12.4 or newer, and has cuda.h beside it, as cmake/cuda.cmake asks.
works_as_nvcc() { # file
  local home version
  version=$("$1" --version 2>/dev/null | sed -nE 's/.*release ([0-9]+\.[0-9]+).*/\1/p')
  [[ -n $version ]] || return 1
  [[ $(printf '%s\n' "$version" 12.4 | sort -V | head -n 1) == 12.4 ]] || {
    say "passed over $1: it is of CUDA $version; the GPU parts need 12.4 or newer"
    return 1
  }
  home=$(dirname "$(dirname "$(realpath "$1")")")
  [[ -e $home/include/cuda.h || -e $home/targets/x86_64-linux/include/cuda.h ]]
}

setup_cuda() { # [wheels]: no other nvcc will do
  local partial=.deps/cuda-wheels.partial nvcc places=(.deps/cuda-wheels/nvidia/cu*/bin/nvcc)
  [[ ${1:-} == wheels ]] ||
    places=("$(command -v nvcc || true)" ${CUDA_HOME:+"$CUDA_HOME/bin/nvcc"} /usr/local/cuda/bin/nvcc "${places[@]}")
  for nvcc in "${places[@]}"; do
    [[ -n $nvcc ]] && works_as_nvcc "$nvcc" || continue
    say "nvcc is there already: $nvcc"
    return
  done
  need_pip
  mkdir -p .deps
  require_space .deps 700 "nvcc and its download"
  say "fetching nvcc into .deps/ (105 MB)"
  rm -rf "$partial"
  # shellcheck disable=SC2086 # a list of words
  python3 -m pip install --quiet --no-cache-dir --no-deps --no-compile --target "$partial" --only-binary=:all: \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 $kCudaWheels || {
    rm -rf "$partial"
    die "nvcc could not be fetched (the reason is above); is there a network? Without it the GPU parts are left out."
  }
  rm -rf .deps/cuda-wheels
  mv "$partial" .deps/cuda-wheels
}

# The same nodes as plugins/device/cuda/visible.hpp.
has_gpus() { compgen -G "${DDHOST_GPU_NODES:-/dev}/nvidia[0-9]*" >/dev/null; }

# The libraries that the loader does not find for LibTorch's library for GPUs.
lacks_for_gpus() { # folder of LibTorch
  if [[ -e $1/lib/libtorch_cuda.so ]]; then
    ldd "$1/lib/libtorch_cuda.so" | awk '/not found/ { printf " %s", $1 }'
  else
    printf ' libtorch_cuda.so'
  fi
}

# NVIDIA's libraries in the versions that LibTorch's wheel names, at the place where libtorch_cuda.so looks for them.
setup_nvidia_libraries() {
  local torch=${DDHOST_LIBTORCH:-$root/.deps/libtorch-wheel/torch} wheel=.deps/libtorch-wheel
  local partial=.deps/nvidia.partial lacks packages
  lacks=$(lacks_for_gpus "$torch")
  [[ -n $lacks ]] || return 0
  [[ -z ${DDHOST_LIBTORCH:-} ]] || {
    say "models can't use a GPU with DDHOST_LIBTORCH=$DDHOST_LIBTORCH: the loader does not find$lacks"
    return 0
  }
  # cuda-toolkit has no files; it requires cuBLAS, cuSPARSE and others in the versions of one toolkit.
  mapfile -t packages < <(
    sed -nE 's/^Requires-Dist: ((nvidia-|cuda-toolkit)[^; ]*).*/\1/p' "$wheel"/torch-*.dist-info/METADATA)
  ((${#packages[@]} > 0)) || die "$wheel does not say what LibTorch needs; remove that folder and run this again."
  need_pip
  require_space .deps 6000 "NVIDIA's libraries and their download"
  say "fetching NVIDIA's libraries for LibTorch into .deps/ (2 GB; from a minute to an hour, by network)"
  rm -rf "$partial" .deps/tmp
  mkdir -p .deps/tmp
  unpack_wheels "$partial" "${packages[@]}" || {
    rm -rf "$partial" .deps/tmp
    die "NVIDIA's libraries could not be fetched (the reason is above); is there a network, and room on the disk?" \
      "DDHOST_LIBTORCH=/path/to/torch takes an existing PyTorch instead."
  }
  cp -rlf "$partial/nvidia/." "$wheel/nvidia/" # hard links
  rm -rf "$partial" .deps/tmp
  lacks=$(lacks_for_gpus "$torch")
  [[ -z $lacks ]] || die "NVIDIA's libraries were fetched, yet the loader does not find$lacks for libtorch_cuda.so."
}
