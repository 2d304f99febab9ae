# SPDX-License-Identifier: Apache-2.0
"""Code shared by the peers: a GPT-2 in eager PyTorch, its batches, and the options of a timed run."""
import argparse
import json
import math
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

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


def parse_options(description, strategies):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--strategy", choices=strategies, required=True)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--size", choices=SIZES, default="gpt2")
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--vocab", type=int, default=50304)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--tokens", required=True, help="a file of uint16, the stream that ddhost gets")
    return parser.parse_args()


def make_model(options):
    torch.manual_seed(1337)
    return Gpt(*SIZES[options.size], options.vocab, options.context, bias=options.size == "gpt2")


def decay_groups(model):
    """Weight decay for matrices only."""
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    return [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]


def timed_steps(options, rank, step, device="cpu"):
    """Calls step(ids, targets) -> loss tensor; prints milliseconds and losses of the steps after the warm-up."""
    tokens = torch.from_numpy(np.fromfile(options.tokens, dtype=np.uint16).astype(np.int64))
    rng = np.random.default_rng(rank)
    times, losses = [], []
    for i in range(options.warmup + options.steps):
        starts = rng.integers(0, len(tokens) - options.context - 1, options.micro_batch)
        ids = torch.stack([tokens[s : s + options.context] for s in starts])
        targets = torch.stack([tokens[s + 1 : s + 1 + options.context] for s in starts])
        begin = time.perf_counter()
        loss = step(ids.to(device), targets.to(device)).item()  # waits for the device
        if i >= options.warmup:
            times.append(1e3 * (time.perf_counter() - begin))
            losses.append(loss)
    if rank == 0:
        assert all(math.isfinite(x) for x in losses)
        print(json.dumps({"step_ms": times, "loss": losses}), flush=True)
