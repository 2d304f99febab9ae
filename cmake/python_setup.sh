#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A Python with torch and its relatives, for `dev`, which sources it: some tests and benchmarks compare with them.

readonly kPythonPackages="transformers==5.23.0 timm==1.0.31 peft==0.21.2 safetensors==0.8.0 numpy pillow"

# torch in LibTorch's version. torchvision is built for some versions of torch: pip finds the one for a version that is chosen.
torch_packages() { # version
  if [[ $1 == "$kTorchVersion" ]]; then echo "torch==$1 torchvision==0.29.2"; else echo "torch==$1 torchvision"; fi
}

setup_python() {
  local venv=.deps/venv version
  version=$(torch_version)
  "$venv/bin/python" -c "import torch, torchvision, transformers, timm, peft, safetensors
assert torch.__version__.split('+')[0] == '$version'" 2>/dev/null && return 0
  install_packages python3:python3
  python3 -c 'import ensurepip' 2>/dev/null || install_packages python3-venv:pyvenv
  mkdir -p .deps
  require_space .deps 9000 "PyTorch, transformers, torchvision, timm and PEFT"
  say "fetching Python packages into .deps/venv, with torch $version (3 GB; from a minute to an hour, by network)"
  rm -rf "$venv"
  # shellcheck disable=SC2046,SC2086 # lists of words
  { python3 -m venv "$venv" &&
    "$venv/bin/pip" install --quiet --disable-pip-version-check $(torch_packages "$version") $kPythonPackages; } || {
    rm -rf "$venv"
    die "the Python packages could not be fetched (the reason is above); is there a network, and room on the disk?" \
      "A Python that has them is named by DDHOST_PYTHON=/path/to/python."
  }
}

# What ./dev bench compares with, beside torch: DeepSpeed, whose optimizers for processors are compiled when they are used, and
# peers with jemalloc as their allocator.
readonly kPeerPackages="deepspeed==0.19.8 ninja"

setup_peers() {
  setup_python
  if [[ $(id -u) == 0 ]] || may_sudo || is_there jemalloc/jemalloc.h; then
    install_packages libjemalloc-dev:jemalloc/jemalloc.h
  else
    say "jemalloc is left out, without root or sudo: an administrator can run apt-get install libjemalloc-dev"
  fi
  local python=.deps/venv/bin/python
  "$python" -c "import deepspeed; assert deepspeed.__version__ == '0.19.8'" >/dev/null 2>&1 && return 0
  install_packages g++:g++ python3-dev:python3-config
  say "fetching the peers of ./dev bench into .deps/venv ($kPeerPackages)"
  # shellcheck disable=SC2086 # a list of words. DeepSpeed's build imports the torch that is there.
  { "$python" -m pip install --quiet --disable-pip-version-check setuptools wheel &&
    DS_ACCELERATOR=cpu "$python" -m pip install --quiet --disable-pip-version-check --no-build-isolation $kPeerPackages; } ||
    die "the peers could not be fetched (the reason is above); is there a network, and room on the disk?" \
      "A Python that has torch and deepspeed is named by DDHOST_PEER_PYTHON=/path/to/python."
}
