# SPDX-License-Identifier: Apache-2.0
"""Modules with the names of reference implementations that are no Python packages: nanoGPT's GPT, and KGAT's port to PyTorch.
Written from the papers and from lists of names.
"""
import math
import random

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x):
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, dim=2))
        return self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.attn, self.mlp = Attention(heads, width), Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class NanoGpt(nn.Module):
    """nanoGPT's GPT without biases, as it trains from scratch."""

    def __init__(self, layers, heads, width, context, vocab):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocab, width), "wpe": nn.Embedding(context, width),
            "h": nn.ModuleList(Block(heads, width) for _ in range(layers)), "ln_f": nn.LayerNorm(width, bias=False)})
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, ids):
        parts = self.transformer
        x = parts.wte(ids) + parts.wpe(torch.arange(ids.shape[1]))
        for block in parts.h:
            x = block(x)
        return self.lm_head(parts.ln_f(x))


class KgatData:
    """A random data set in the format of KGAT, and its edges under the port's ids, ordered by head, tail and relation."""

    def __init__(self, folder, users, items, entities, relations):
        draw = random.Random(3)
        chosen = [draw.sample(range(items), 8) for _ in range(users)]
        self.train, self.test = [c[:6] for c in chosen], [c[6:] for c in chosen]
        self.train[0] += [i for i in range(items) if i not in chosen[0]][:1]
        triples = {(draw.randrange(entities), draw.randrange(relations), draw.randrange(entities)) for _ in range(200)}
        triples |= {(items - 1, 0, entities - 1), (entities - 1, relations - 1, items - 1)}
        self.folder, self.items, self.entities = folder, items, entities
        self.nodes, self.relations = entities + users, 2 * (relations + 1)
        edges = [e for u, of in enumerate(self.train) for i in of
                 for e in ((entities + u, i, 0), (i, entities + u, 1))]
        edges += [e for h, r, t in triples for e in ((h, t, 2 + r), (t, h, 2 + relations + r))]
        self.head, self.tail, self.relation = torch.tensor(sorted(edges)).T
        folder.mkdir()
        for name, lists in (("train", self.train), ("test", self.test)):
            (folder / f"{name}.txt").write_text("".join(f"{u} {' '.join(map(str, of))}\n" for u, of in enumerate(lists)))
        (folder / "kg_final.txt").write_text("".join(f"{h} {r} {t}\n" for h, r, t in sorted(triples)))

    def matrix(self, values):
        """(nodes, nodes), sparse. Edges of one head and one tail add up."""
        return torch.sparse_coo_tensor(torch.stack([self.head, self.tail]), values, (self.nodes, self.nodes),
                                       check_invariants=True).coalesce()


class Aggregator(nn.Module):
    def __init__(self, width_in, width_out):
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(width_in, width_out), nn.Linear(width_in, width_out)

    def forward(self, e, a):
        side = torch.sparse.mm(a, e)
        return F.leaky_relu(self.linear1(e + side)) + F.leaky_relu(self.linear2(e * side))


class Kgat(nn.Module):
    def __init__(self, data, width, relation_width, layers):
        super().__init__()
        self.data = data
        self.entity_user_embed = nn.Embedding(data.nodes, width)
        self.relation_embed = nn.Embedding(data.relations, relation_width)
        self.trans_M = nn.Parameter(torch.randn(data.relations, width, relation_width) / math.sqrt(width))
        widths = [width, *layers]
        self.aggregator_layers = nn.ModuleList(Aggregator(a, b) for a, b in zip(widths, layers))
        self.A_in = nn.Parameter(data.matrix(torch.ones(len(data.head))), requires_grad=False)

    def attention(self):
        """Of each edge: softmax over the edges of its head."""
        e, w, d = self.entity_user_embed.weight, self.trans_M[self.data.relation], self.data
        h, t = (torch.einsum("ed,edk->ek", e[nodes], w) for nodes in (d.head, d.tail))
        score = (t * torch.tanh(h + self.relation_embed(d.relation))).sum(1).exp()
        return score / torch.zeros(d.nodes).index_add(0, d.head, score)[d.head]

    def metrics(self, ks):
        """Means over users: all items are ranked that a user did not train on."""
        e = self.entity_user_embed.weight
        parts = [e]
        for layer in self.aggregator_layers:
            e = layer(e, self.A_in)
            parts.append(F.normalize(e))
        e = torch.cat(parts, 1)
        scores = e[self.data.entities:] @ e[:self.data.items].T
        out = {f"{name}@{k}": 0.0 for k in ks for name in ("recall", "ndcg")}
        for user, (train, test) in enumerate(zip(self.data.train, self.data.test)):
            scores[user, train] = -math.inf
            best = scores[user].argsort(descending=True).tolist()
            for k in ks:
                hits = [rank for rank, item in enumerate(best[:k]) if item in test]
                ideal = sum(1 / math.log2(rank + 2) for rank in range(min(k, len(test))))
                out[f"recall@{k}"] += len(hits) / len(test) / len(self.data.train)
                out[f"ndcg@{k}"] += sum(1 / math.log2(rank + 2) for rank in hits) / ideal / len(self.data.train)
        return out
