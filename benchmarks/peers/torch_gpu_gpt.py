# SPDX-License-Identifier: Apache-2.0
"""PyTorch on one GPU, for comparison with tests/gpu/on_gpu.sh: fused AdamW, flash attention, autocast for bf16, clip 1.0.

    python3 torch_gpu_gpt.py --strategy eager --dtype bf16 --context 1024 --micro-batch 8 --tokens FILE

Prints one line of JSON: milliseconds of each step, losses, and the most bytes that PyTorch held.
"""
import contextlib
import json
import sys

import torch

import gpt


def main():
    options = gpt.parse_options(__doc__, ["eager", "compiled"])
    model = gpt.make_model(options).to("cuda")
    net = torch.compile(model) if options.strategy == "compiled" else model
    optimizer = torch.optim.AdamW(gpt.decay_groups(model), lr=3e-4, betas=(0.9, 0.95), fused=True)

    def step(ids, targets):
        with torch.autocast("cuda", torch.bfloat16) if options.dtype == "bf16" else contextlib.nullcontext():
            loss = net(ids, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    gpt.timed_steps(options, 0, step, "cuda")
    print(json.dumps({"peak_bytes": torch.cuda.max_memory_allocated()}), file=sys.stderr)


if __name__ == "__main__":
    main()
