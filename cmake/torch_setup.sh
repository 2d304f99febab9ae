#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# LibTorch for `dev`, which reads this file and has the other functions. Each version is unpacked into a folder of its own,
# .deps/libtorch-VERSION, and the link .deps/libtorch-wheel leads to the one that builds take.

readonly kTorchVersion=2.15.0 # of a checkout that has not chosen another: ./dev setup --torch VERSION
readonly kTorchChoice=.deps/torch-version

torch_version() { # what this checkout takes
  if [[ -s $kTorchChoice ]]; then cat "$kTorchChoice"; else echo "$kTorchVersion"; fi
}

is_libtorch() { [[ -e $1/lib/libtorch_cpu.so && -e $1/include/ATen/ATen.h ]]; }

# A checkout from before has one folder instead of the link. It becomes the folder of its version.
name_old_wheel() {
  local wheel=.deps/libtorch-wheel info
  [[ -d $wheel && ! -L $wheel ]] || return 0
  info=$(compgen -G "$wheel/torch-*.dist-info") ||
    die "$wheel is not what ./dev unpacked; move it away and name it with DDHOST_LIBTORCH=/path/to/libtorch."
  info=${info##*/torch-}
  rm -rf ".deps/libtorch-${info%.dist-info}"
  mv "$wheel" ".deps/libtorch-${info%.dist-info}"
}

setup_libtorch() { # [version: chosen from now on]
  if [[ -n ${DDHOST_LIBTORCH:-} ]]; then
    is_libtorch "$DDHOST_LIBTORCH" ||
      die "DDHOST_LIBTORCH=$DDHOST_LIBTORCH holds no LibTorch (lib/libtorch_cpu.so, include/ATen); correct or unset it."
    [[ -z ${1:-} ]] || die "DDHOST_LIBTORCH=$DDHOST_LIBTORCH is what builds take; unset it to choose $1 with --torch."
    return 0
  fi
  local version=${1:-$(torch_version)}
  [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || die "LibTorch has no version '$version'; give one such as $kTorchVersion."
  name_old_wheel
  is_libtorch ".deps/libtorch-$version/torch" || fetch_libtorch "$version"
  if [[ $(readlink .deps/libtorch-wheel) != "libtorch-$version" ]]; then
    ln -sfn "libtorch-$version" .deps/libtorch-wheel
    say "builds take LibTorch $version from now on"
  fi
  [[ -z ${1:-} ]] || echo "$version" >"$kTorchChoice"
  [[ $version != "$kTorchVersion" ]] || rm -f "$kTorchChoice"
}

fetch_libtorch() { # version
  [[ $(uname -m) == x86_64 ]] ||
    die "LibTorch is fetched for x86_64 only; give one for $(uname -m) with DDHOST_LIBTORCH=/path/to/libtorch."
  need_pip
  mkdir -p .deps
  require_space .deps 3000 "LibTorch and its download"
  say "fetching LibTorch $1 into .deps/ (540 MB; from 10 seconds to 10 minutes, by network)"
  local partial=.deps/libtorch.partial
  rm -rf "$partial" .deps/tmp
  mkdir -p .deps/tmp
  { unpack_wheels "$partial" --no-deps "torch==$1" && unpack_cuda_runtime "$partial"; } || {
    rm -rf "$partial" .deps/tmp
    die "LibTorch could not be fetched (the reason is above); is there a network, and room on the disk?" \
      "An existing LibTorch is taken with DDHOST_LIBTORCH=/path/to/libtorch."
  }
  rm -rf .deps/tmp ".deps/libtorch-$1"
  mv "$partial" ".deps/libtorch-$1"
}

# The wheel is used as a library of C++: any Python can unpack it.
unpack_wheels() { # folder, arguments of pip...
  local platform platforms=()
  for platform in _2_28 _2_27 _2_25 _2_18 _2_17 2014; do platforms+=(--platform "manylinux${platform}_x86_64"); done
  PIP_ROOT_USER_ACTION=ignore TMPDIR=$root/.deps/tmp python3 -m pip install --quiet --no-cache-dir --no-compile \
    --target "$1" --only-binary=:all: --implementation cp --python-version 3.11 "${platforms[@]}" "${@:2}"
}

# The parts of CUDA that libtorch_cpu.so links, in the versions that LibTorch's wheel names: as parts of a toolkit, or before
# 2.11 by their own names. All others are for GPUs alone (gpu_setup.sh).
unpack_cuda_runtime() { # folder with LibTorch
  local packages more=$1.more metadata
  metadata=$(compgen -G "$1/torch-*.dist-info/METADATA") ||
    die "LibTorch's wheel has no METADATA, which names the CUDA runtime; DDHOST_LIBTORCH=/path/to/libtorch takes another one."
  mapfile -t packages < <(sed -nE \
    -e 's/^Requires-Dist: cuda-toolkit\[[^]]*\](==[^; ]*).*/cuda-toolkit[cudart,cupti]\1/p' \
    -e 's/^Requires-Dist: (nvidia-cuda-(runtime|cupti)[^; ]*).*/\1/p' "$metadata")
  if ((${#packages[@]} == 0)); then # LibTorch for CPUs
    ! readelf -d "$1/torch/lib/libtorch_cpu.so" 2>/dev/null | grep -q 'NEEDED.*libcudart' ||
      die "LibTorch's wheel names no CUDA runtime, and LibTorch links it; DDHOST_LIBTORCH=/path/to/libtorch takes another one."
    return 0
  fi
  rm -rf "$more"
  unpack_wheels "$more" "${packages[@]}" && cp -r "$more/nvidia" "$1/" && rm -rf "$more"
}
