# SPDX-License-Identifier: Apache-2.0
"""PyTorch's strategies on gloo, with their best published flags: DistributedDataParallel, the same over a model that
torch.compile has compiled (as nanoGPT does it), and fully_shard (FSDP2).

    torchrun --nproc_per_node 2 torch_gpt.py --strategy ddp --size gpt2 --tokens FILE

Fused AdamW, gradient_as_bucket_view, static_graph, one thread per rank, clip 1.0. bf16 is autocast for ddp and a
MixedPrecisionPolicy (parameters bf16, reduction fp32) for fsdp2.
"""
import contextlib

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import gpt


def shard(model, dtype):
    policy = MixedPrecisionPolicy()
    if dtype == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def main():
    options = gpt.parse_options(__doc__, ["ddp", "ddp_compiled", "fsdp2"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = gpt.make_model(options)
    if options.strategy == "fsdp2":
        net = shard(model, options.dtype)
    else:
        inner = torch.compile(model) if options.strategy == "ddp_compiled" else model
        net = DistributedDataParallel(inner, gradient_as_bucket_view=True, static_graph=True)
    optimizer = torch.optim.AdamW(gpt.decay_groups(model), lr=3e-4, betas=(0.9, 0.95), fused=True)
    autocasts = options.dtype == "bf16" and options.strategy != "fsdp2"

    def step(ids, targets):
        with torch.autocast("cpu", torch.bfloat16) if autocasts else contextlib.nullcontext():
            loss = net(ids, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    gpt.timed_steps(options, dist.get_rank(), step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
