# SPDX-License-Identifier: Apache-2.0
"""The peer: GPT-2 in eager PyTorch under DistributedDataParallel on gloo, with its best published flags.

    torchrun --nproc_per_node 2 torch_ddp_gpt.py --size gpt2 --context 64 --micro-batch 1 --steps 12

Fused AdamW, gradient_as_bucket_view, static_graph, one thread per rank, clip 1.0. Prints one JSON object: the milliseconds
of every step after the warm-up, and the losses. Tokens are the same stream that ddhost gets (--tokens FILE, uint16).
"""
import argparse
import json
import math
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

SIZES = {
    "0.8M": (4, 4, 128),
    "10.8M": (6, 6, 384),
    "gpt2": (12, 12, 768),
}


class Block(nn.Module):
    def __init__(self, n_head, width, bias):
        super().__init__()
        self.n_head = n_head
        self.ln_1 = nn.LayerNorm(width, bias=bias)
        self.c_attn = nn.Linear(width, 3 * width, bias=bias)
        self.c_proj = nn.Linear(width, width, bias=bias)
        self.ln_2 = nn.LayerNorm(width, bias=bias)
        self.c_fc = nn.Linear(width, 4 * width, bias=bias)
        self.mlp_proj = nn.Linear(4 * width, width, bias=bias)

    def forward(self, x):
        B, T, C = x.shape
        heads = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).split(C, 2))
        attended = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.c_proj(attended.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x))))


class Gpt(nn.Module):
    def __init__(self, n_layer, n_head, width, vocab, context, bias):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(n_head, width, bias) for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(width, bias=bias)
        self.apply(lambda m: nn.init.normal_(m.weight, 0, 0.02) if isinstance(m, (nn.Linear, nn.Embedding)) else None)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="gpt2")
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--vocab", type=int, default=50304)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--tokens", required=True)
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1337)
    model = Gpt(*SIZES[args.size], args.vocab, args.context, bias=args.size == "gpt2")
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
    tokens = torch.from_numpy(np.fromfile(args.tokens, dtype=np.uint16).astype(np.int64))

    times, losses = [], []
    rng = np.random.default_rng(rank)
    for step in range(args.warmup + args.steps):
        starts = rng.integers(0, len(tokens) - args.context - 1, args.micro_batch)
        ids = torch.stack([tokens[s : s + args.context] for s in starts])
        targets = torch.stack([tokens[s + 1 : s + 1 + args.context] for s in starts])
        begin = time.perf_counter()
        loss = ddp(ids, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step >= args.warmup:
            times.append(1e3 * (time.perf_counter() - begin))
            losses.append(loss.item())
    if rank == 0:
        assert all(math.isfinite(x) for x in losses)
        print(json.dumps({"step_ms": times, "loss": losses, "world_size": world, "torch": torch.__version__}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
