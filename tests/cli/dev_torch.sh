#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# dev_torch.sh <source folder>: which LibTorch `./dev setup` fetches and links, and which Python packages, with a pip that
# notes how it is called and makes small files in place of the real ones. Nothing is fetched. A peer's Python without torch.
set -euo pipefail
source=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; cat "$work/log"; exit 1; }
default=$(sed -nE 's/^readonly kTorchVersion=([0-9.]+).*/\1/p' "$source/cmake/torch_setup.sh")

mkdir -p "$work"/{cmake,path}
cp "$source/dev" "$work/"
cp "$source"/cmake/{gpu,python,torch}_setup.sh "$work/cmake/"
program() { # name; its text comes from stdin
  { echo '#!/bin/bash'; cat; } >"$work/path/$1"
  chmod +x "$work/path/$1"
}
# What LibTorch's wheel says of CUDA: since 2.11 a toolkit, before that single packages, and nothing for CPUs.
program python3 <<TEXT
case "\$*" in
  "-m pip --version" | "-c import ensurepip") exit 0 ;;
  "-m venv "*) mkdir -p "\$3/bin" && cp "$work/path/python3" "\$3/bin/pip" && exit ;;
esac
echo "\$*" >>"$work/calls"
[[ \$* != *torch==9.* ]] || exit 1 # no such version
version=\$(sed -nE 's/.* torch==([0-9.]+).*/\1/p' <<<"\$*")
while [[ \${1:-} != --target ]]; do shift || exit 0; done
mkdir -p "\$2/nvidia/of_\${version:-cuda}"
[[ -n \$version ]] || exit 0
mkdir -p "\$2"/torch/{lib,include/ATen} "\$2/torch-\$version.dist-info"
touch "\$2/torch/lib/libtorch_cpu.so" "\$2/torch/include/ATen/ATen.h"
case \$version in
  2.10.*) echo 'Requires-Dist: nvidia-cuda-runtime-cu12==12.8.90; platform_system == "Linux"
Requires-Dist: nvidia-cuda-cupti-cu12==12.8.91; platform_system == "Linux"
Requires-Dist: nvidia-cublas-cu12==12.8.4; platform_system == "Linux"' ;;
  2.12.*) echo 'Requires-Dist: filelock' ;;
  *) echo 'Requires-Dist: cuda-toolkit[cublas,cudart,cupti]==13.2.2; platform_system == "Linux"' ;;
esac >"\$2/torch-\$version.dist-info/METADATA"
TEXT
program df <<<'printf "names\nx 1 1 99999999 1%% /\n"'
program apt-get <<<'exit 1'
export PATH=$work/path:$PATH DDHOST_GPU_NODES=/none
unset DDHOST_LIBTORCH

dev() { # arguments
  rm -f "$work/calls"
  "$work/dev" "$@" >"$work/log" 2>&1
}
takes() { # version, what pip is called for: parts of its last arguments
  local wheel=$work/.deps/libtorch-wheel part
  [[ -e $wheel/torch/lib/libtorch_cpu.so && -d $wheel/torch-$1.dist-info ]] || fail "LibTorch $1 is not what builds take"
  [[ $(readlink "$wheel") == "libtorch-$1" ]] || fail "$wheel leads to $(readlink "$wheel")"
  for part in "${@:2}"; do grep -qE -- " $part\$" "$work/calls" || fail "pip was not called for $part"; done
  (($(cat "$work/calls" 2>/dev/null | wc -l) == $# - 1)) || fail "pip was called otherwise: $(cat "$work/calls")"
}

dev setup || fail "the first set-up"
takes "$default" "--no-deps torch==$default" 'cuda-toolkit\[cudart,cupti\]==13\.2\.2'
[[ -d $work/.deps/libtorch-wheel/nvidia/of_cuda ]] || fail "the run-time library of CUDA is not beside LibTorch"
dev setup || fail "the second set-up"
takes "$default"

# Another version stays chosen, and the first is not fetched again.
dev setup --torch 2.10.0 || fail "setup --torch"
takes 2.10.0 '--no-deps torch==2.10.0' 'nvidia-cuda-runtime-cu12==12.8.90 nvidia-cuda-cupti-cu12==12.8.91'
dev setup || fail "a set-up after a choice"
takes 2.10.0
dev setup --python || fail "setup --python after a choice"
takes 2.10.0 'torch==2.10.0 torchvision transformers==.*'
dev setup --torch 2.12.0 || fail "LibTorch for CPUs"
takes 2.12.0 '--no-deps torch==2.12.0'
dev setup --torch "$default" --python || fail "back to the default"
takes "$default" "torch==$default torchvision==[0-9.]+ transformers==.*"
[[ ! -e $work/.deps/torch-version ]] || fail "the default counts as a choice"

# What cannot be taken leaves all as it is.
! dev setup --torch 9.9.9 || fail "a version that pip lacks"
grep -q 'LibTorch could not be fetched' "$work/log" || fail "it is not said that nothing was fetched"
! dev setup --torch newest || fail "a version that is none"
grep -q "no version 'newest'; give one such as $default" "$work/log" || fail "a wrong version is not named"
! dev setup --torch || fail "no version"
grep -q 'setup --torch takes a version' "$work/log" || fail "it is not said that --torch takes a version"
! dev setup --all || fail "a flag that there is not"
! DDHOST_LIBTORCH=$work/.deps/libtorch-2.10.0/torch dev setup --torch 2.12.0 || fail "a choice beside DDHOST_LIBTORCH"
grep -q 'unset it to choose 2.12.0' "$work/log" || fail "it is not said that DDHOST_LIBTORCH wins"
DDHOST_LIBTORCH=$work/.deps/libtorch-2.10.0/torch dev setup || fail "DDHOST_LIBTORCH"
takes "$default"

# The one folder of a checkout from before becomes that of its version.
rm -rf "$work/.deps/libtorch-$default" "$work/.deps/libtorch-wheel"
mv "$work/.deps/libtorch-2.10.0" "$work/.deps/libtorch-wheel"
dev setup || fail "a set-up of a checkout from before"
takes "$default" "--no-deps torch==$default" 'cuda-toolkit\[cudart,cupti\]==13\.2\.2'
dev setup --torch 2.10.0 || fail "the version from before"
# A benchmark with peers needs a Python that has torch.
printf '#!/bin/bash\nexit 1\n' >"$work/path/no_torch"
chmod +x "$work/path/no_torch"
! DDHOST_PEER_PYTHON=$work/path/no_torch "$source/benchmarks/run" --quick >"$work/log" 2>&1 || fail "a benchmark without torch"
grep -q '^benchmarks/run: there is no torch in DDHOST_PEER_PYTHON=.*no_torch; run ./dev setup --peers' "$work/log" ||
  fail "the Python without torch is not named"
takes 2.10.0
