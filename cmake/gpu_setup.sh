#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The part of `./dev setup` that fetches what the GPU parts are built with. `dev` reads this file and has the other functions.

# What compiles kernels for GPUs, without the CUDA toolkit: nvcc and what it calls, cuda.h.
readonly kCudaWheels="nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88
  nvidia-cuda-runtime==$kCudaRuntimeVersion nvidia-cuda-cccl==13.0.85"

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
