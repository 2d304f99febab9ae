# SPDX-License-Identifier: Apache-2.0
"""AdamW of PyTorch and DeepSpeed on one core: nanoseconds for a parameter, fp32.

    python3 optimizers.py [--numel 33554432] [--tensors 1,8192]

Rows: torch.optim.AdamW with fused=True, its fastest way on a CPU, and as it is by default; DeepSpeedCPUAdam, which DeepSpeed's
offload uses. A row has the parameters in one tensor, or in many of equal size. Prints JSON lines; the median of 9 steps. Large tensors are in
huge pages, as those of optimizer_bench.
"""
import argparse
import json
import os
import statistics
import sys
import time

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # before torch is loaded
import torch

RUNS = 9


def time_of(optimizer, numel):
    ns = []
    for run in range(RUNS + 1):
        begin = time.perf_counter()
        optimizer.step()
        if run > 0:  # the first allocates its state
            ns.append((time.perf_counter() - begin) * 1e9 / numel)
    return statistics.median(ns)


def deepspeed_adam(tensors):
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    return DeepSpeedCPUAdam(tensors, lr=1e-3, weight_decay=0.01, adamw_mode=True)


WAYS = {"torch AdamW, fused": lambda tensors: torch.optim.AdamW(tensors, lr=1e-3, weight_decay=0.01, fused=True),
        "torch AdamW": lambda tensors: torch.optim.AdamW(tensors, lr=1e-3, weight_decay=0.01),
        "DeepSpeedCPUAdam": deepspeed_adam}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numel", type=int, default=32 << 20)
    parser.add_argument("--tensors", default="1,8192")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    for count in (int(n) for n in options.tensors.split(",")):
        for name, make in WAYS.items():
            each = max(1, options.numel // count)
            tensors = [torch.nn.Parameter(torch.full((each,), 0.01)) for _ in range(count)]
            for tensor in tensors:
                tensor.grad = torch.full_like(tensor, 0.01)
            try:
                print(json.dumps({"row": name, "tensors": count, "ns": time_of(make(tensors), each * count)}), flush=True)
            except Exception as reason:  # pylint: disable=broad-except  # DeepSpeed compiles at its first use
                if name != "DeepSpeedCPUAdam":
                    raise
                print(f"optimizers.py: {name} is left out: {reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
