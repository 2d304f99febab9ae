#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/fsdp_reference.inc: the toy model of tests/fixtures/models/toy_model.cpp trained by PyTorch itself, under
DistributedDataParallel and fully_shard on gloo, from the same first values and samples. One line for each case: losses,
gradient norms and the sum and the sum of squares of every final parameter.

    python3 make_fsdp_reference.py [case...] > fsdp_reference.inc      # made with torch 2.11.0, CPU
"""
import math
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

STEPS = 10
MASK = (1 << 64) - 1


def stream(name, i):  # tests/fixtures/harness/golden_fill.hpp
    h = 0xCBF29CE484222325
    for c in name.encode():
        h = ((h ^ c) * 0x100000001B3) & MASK
    z = (h + (i + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def first_values(name, shape, scale):
    n = 1
    for d in shape:
        n *= d
    values = [((stream(name, i) >> 40) * 2.0**-23 - 1.0) * scale for i in range(n)]
    return torch.tensor(values, dtype=torch.float64).to(torch.float32).reshape(shape)


def sample(index, vocab):  # of the toy model
    x = ((index + 0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    h = x ^ (x >> 31)
    target = (h >> 40) % vocab if (h >> 32) % 3 == 0 else (h + 1) % vocab
    return h % vocab, target


class RoundBoth(torch.autograd.Function):
    """What a unit hands on in a low precision: states forward, their gradients backward."""

    @staticmethod
    def forward(ctx, x, dtype):
        ctx.dtype = dtype
        return x.to(dtype).to(torch.float32)

    @staticmethod
    def backward(ctx, g):
        return g.to(ctx.dtype).to(torch.float32), None


class RoundValue(torch.autograd.Function):
    """A master as the units see it; its gradient is the master's."""

    @staticmethod
    def forward(ctx, w, dtype):
        return w.to(dtype).to(torch.float32)

    @staticmethod
    def backward(ctx, g):
        return g, None


class Layer(nn.Module):
    def __init__(self, l, width, hidden, dtype):
        super().__init__()
        def param(name, shape, scale, trained=True):
            return nn.Parameter(first_values(f"layers.{l}.{name}", shape, scale), requires_grad=trained)
        self.dtype = dtype
        self.w1, self.b1 = param("w1", (hidden, width), 0.5), param("b1", (hidden,), 0.1)
        self.w2, self.gain = param("w2", (width, hidden), 0.5), param("gain", (1,), 1.0)
        self.frozen, self.unused = param("frozen", (width,), 0.1, False), param("unused", (3,), 1.0)
        if dtype:  # nobody trains it, so it has no master
            self.frozen.data = self.frozen.data.to(dtype).to(torch.float32)

    def forward(self, x):
        seen = (lambda w: RoundValue.apply(w, self.dtype)) if self.dtype else (lambda w: w)
        h = torch.tanh(F.linear(x, seen(self.w1), seen(self.b1)))
        out = x + seen(self.gain) * F.linear(h, seen(self.w2)) + seen(self.frozen)
        out = out + 0.0 * self.unused.sum()  # a gradient of zero, as declared
        return RoundBoth.apply(out, self.dtype) if self.dtype else out


class Toy(nn.Module):
    def __init__(self, width=5, hidden=9, vocab=31, layers=3, repeat=0, dtype=None):
        super().__init__()
        self.dtype, self.repeat = dtype, repeat
        self.embedding = nn.Parameter(first_values("embedding", (vocab, width), 0.5))
        self.layers = nn.ModuleList(Layer(l, width, hidden, dtype) for l in range(layers))
        self.bias = nn.Parameter(first_values("bias", (vocab,), 0.1))

    def forward(self, tokens, targets):
        e = RoundValue.apply(self.embedding, self.dtype) if self.dtype else self.embedding
        b = RoundValue.apply(self.bias, self.dtype) if self.dtype else self.bias
        x = F.embedding(tokens, e)
        x = RoundBoth.apply(x, self.dtype) if self.dtype else x
        for layer in [self.layers[0]] * self.repeat + list(self.layers):
            x = layer(x)
        return F.cross_entropy(F.linear(x, e) + b, targets, reduction="sum")


# name -> model options, accumulation, clipping, ranks, samples per rank and micro-batch, optimizer
CASES = {
    "plain": dict(model={}, accum=1, clip=0.0, world=2, micro=6, lr=0.01),
    "accumulation": dict(model={}, accum=3, clip=0.0, world=2, micro=2, lr=0.01),
    "twice": dict(model={"repeat": 1}, accum=1, clip=0.0, world=2, micro=6, lr=0.01),
    "uneven": dict(model={"width": 3, "hidden": 7, "vocab": 13}, accum=1, clip=0.0, world=3, micro=4, lr=0.01),
    "clip_hit": dict(model={}, accum=1, clip=0.1, world=2, micro=6, lr=0.01),
    "clip_missed": dict(model={}, accum=1, clip=100.0, world=2, micro=6, lr=0.01),
    "sgd_clip": dict(model={}, accum=1, clip=0.25, world=2, micro=6, lr=0.5, sgd=True),
    "bf16": dict(model={"dtype": torch.bfloat16}, accum=1, clip=0.0, world=2, micro=6, lr=0.01),
    "bf16_accumulation": dict(model={"dtype": torch.bfloat16}, accum=4, clip=0.0, world=2, micro=2, lr=0.01),
}


def train(rank, world, case, kind, port, out):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    toy = Toy(**case["model"])
    vocab = toy.embedding.shape[0]
    if kind == "ddp":
        model = DistributedDataParallel(toy)
    else:
        for layer in toy.layers:
            fully_shard(layer)
        model = fully_shard(toy)
    make = torch.optim.SGD if case.get("sgd") else torch.optim.AdamW
    more = {} if case.get("sgd") else {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}
    optimizer = make([p for p in toy.parameters() if p.requires_grad], lr=case["lr"], **more)
    micro, accum = case["micro"], case["accum"]
    losses, norms = [], []
    # Backward is seeded with a power of two, and the rest of the mean comes after the sums: low precisions see it.
    seed = 2.0 ** -round(math.log2(micro * accum * world))
    for step in range(STEPS):
        total = 0.0
        for m in range(accum):
            first = ((step * accum + m) * world + rank) * micro
            rows = [sample(stream("order", first + i) % 4096, vocab) for i in range(micro)]
            tokens, targets = (torch.tensor(column) for column in zip(*rows))
            last = m + 1 == accum
            if kind == "ddp":
                model.require_backward_grad_sync = last
            else:
                model.set_requires_gradient_sync(last)
            loss = model(tokens, targets)
            (loss * seed).backward()
            total += loss.item() / (micro * accum)
        mean = torch.tensor(total, dtype=torch.float64)
        dist.all_reduce(mean)
        losses.append(mean.item() / world)
        for p in toy.parameters():
            if p.grad is not None:
                p.grad *= 1 / (seed * micro * accum)
        norm = nn.utils.clip_grad_norm_(toy.parameters(), case["clip"] or float("inf"))
        norms.append((norm.full_tensor() if hasattr(norm, "full_tensor") else norm).item())
        optimizer.step()
        optimizer.zero_grad(set_to_none=step % 2 == 0)
    finals = []
    for name, p in toy.named_parameters():
        value = (p.full_tensor() if hasattr(p, "full_tensor") else p).detach().double()
        finals.append((name, value.sum().item(), value.square().sum().item()))
    if rank == 0:
        out.put((losses, norms, finals))
    dist.barrier()
    dist.destroy_process_group()


def numbers(values):
    return "{" + ", ".join(f"{v:.9g}" for v in values) + "}"


def main():
    print("// SPDX-License-Identifier: Apache-2.0")
    print(f"// Written by make_fsdp_reference.py with torch {torch.__version__}; do not edit.")
    port = 29710
    for name in sys.argv[1:] or CASES:
        case = CASES[name]
        for kind in ("ddp", "fsdp"):
            port += 1
            queue = mp.get_context("spawn").SimpleQueue()
            context = mp.spawn(train, args=(case["world"], case, kind, port, queue), nprocs=case["world"], join=False)
            losses, norms, finals = queue.get()
            context.join()
            print(f"{name} {kind} done", file=sys.stderr)
            print(f'{{"{name}", "{kind}", {numbers(losses)}, {numbers(norms)},')
            print(" {" + ",\n  ".join(f'{{"{n}", {s:.9g}, {q:.9g}}}' for n, s, q in finals) + "}},")


if __name__ == "__main__":
    main()
