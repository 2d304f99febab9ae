#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Makes the reference data of GPT in tests/data/golden again, and compares it with what is committed.
#
#   make_golden.py OUT_DIR [gpt] [curve]     writes files into OUT_DIR; without groups: all of them
#   make_golden.py --compare OUT_DIR         says how far each tensor of OUT_DIR is from the committed one
#
# Packages (CPU only): torch 1.13.1, numpy 1.24.2, as Debian 12 has them (python3-torch, python3-numpy). Another release
# gives the same numbers up to rounding. The committed curve has 2,000 steps; CURVE_STEPS makes a shorter one.
"""Reference tensors of GPT-2 in the Hugging Face layout, and a training curve of a character model."""
import json
import math
import os
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
MASK = (1 << 64) - 1


# ---- Numbers by name: tests/fixtures/harness/golden_fill.hpp has the same generator ---------------------------------

def hash_of(name):
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def bits(name, count):
    """The first `count` outputs of splitmix64, whose state starts at the name's hash."""
    with np.errstate(over="ignore"):
        steps = np.arange(1, count + 1, dtype=np.uint64)
        z = np.uint64(hash_of(name)) + steps * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform(name, shape):
    """float64 in [-1, 1), multiples of 2^-23, so exact in float32."""
    return ((bits(name, math.prod(shape)) >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1.0).reshape(shape)


def integers(name, below, shape):
    return torch.from_numpy((bits(name, math.prod(shape)) % np.uint64(below)).astype(np.int64).reshape(shape))


def as_weight(values):
    """float64 -> a float32 leaf that collects a gradient; rounded once."""
    return torch.from_numpy(values.astype(np.float32)).requires_grad_()


def first_value(name, shape):
    """Gains near 1, biases near 0, matrices with a variance of 1 / fan-in."""
    values = uniform(name, shape)
    if len(shape) == 1:
        return as_weight(1.0 + 0.1 * values if name.endswith("weight") else 0.1 * values)
    return as_weight(values * math.sqrt(3.0 / (math.prod(shape) // shape[0])))


# ---- Files ----------------------------------------------------------------------------------------------------------

DTYPES = {torch.float32: "F32", torch.int64: "I64"}


def write_safetensors(path, tensors, metadata):
    header = {"__metadata__": {k: v if isinstance(v, str) else json.dumps(v) for k, v in metadata.items()}}
    blobs, at = [], 0
    for name, tensor in tensors.items():
        blob = tensor.detach().contiguous().numpy().tobytes()
        place = [at, at + len(blob)]
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": place}
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__")
    types = {"F32": np.float32, "I64": np.int64}
    return {
        name: np.frombuffer(data, types[t["dtype"]], math.prod(t["shape"]), 8 + size + t["data_offsets"][0])
        for name, t in header.items()
    }


# ---- GPT-2 in the Hugging Face layout: weights are [in, out], the head is the embedding -----------------------------

def gpt2_shapes(layers, width, vocab, context):
    shapes = {"transformer.wte.weight": (vocab, width), "transformer.wpe.weight": (context, width)}

    def both(name, weight, bias):
        shapes[name + ".weight"], shapes[name + ".bias"] = weight, bias

    for layer in range(layers):
        h = f"transformer.h.{layer}."
        both(h + "ln_1", (width,), (width,))
        both(h + "attn.c_attn", (width, 3 * width), (3 * width,))
        both(h + "attn.c_proj", (width, width), (width,))
        both(h + "ln_2", (width,), (width,))
        both(h + "mlp.c_fc", (width, 4 * width), (4 * width,))
        both(h + "mlp.c_proj", (4 * width, width), (width,))
    both("transformer.ln_f", (width,), (width,))
    return shapes


def gelu_tanh(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def attention(q, k, v):
    """(batch, heads, time, size of a head); a position sees itself and what is before it."""
    time = q.size(-2)
    scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    future = torch.ones(time, time, dtype=torch.bool).triu(1)
    return F.softmax(scores.masked_fill(future, float("-inf")), -1) @ v


def transformer(weights, ids, layers, heads, activation, linear, norm):
    """Logits (batch, time, vocab); `linear` and `norm` know the layout and whether there are biases."""
    batch, time = ids.shape
    x = weights["transformer.wte.weight"][ids] + weights["transformer.wpe.weight"][:time]
    width = x.size(-1)
    for layer in range(layers):
        h = f"transformer.h.{layer}."
        split = linear(norm(x, h + "ln_1"), h + "attn.c_attn").split(width, 2)
        q, k, v = (part.view(batch, time, heads, width // heads).transpose(1, 2) for part in split)
        x = x + linear(attention(q, k, v).transpose(1, 2).reshape(batch, time, width), h + "attn.c_proj")
        x = x + linear(activation(linear(norm(x, h + "ln_2"), h + "mlp.c_fc")), h + "mlp.c_proj")
    return F.linear(norm(x, "transformer.ln_f"), weights["transformer.wte.weight"])


def gpt2(weights, ids, layers, heads, activation=gelu_tanh):
    width = weights["transformer.wte.weight"].size(1)

    def linear(x, name):
        return x @ weights[name + ".weight"] + weights[name + ".bias"]

    def norm(x, name):
        return F.layer_norm(x, (width,), weights[name + ".weight"], weights[name + ".bias"], 1e-5)

    return transformer(weights, ids, layers, heads, activation, linear, norm)


def shifted_loss(logits, labels):
    """Position t is asked for label t + 1; -100 counts nothing."""
    return F.cross_entropy(logits[:, :-1].reshape(-1, logits.size(-1)), labels[:, 1:].reshape(-1), ignore_index=-100)


def weights_of(shapes):
    return {name: first_value(name, shape) for name, shape in shapes.items()}


def make_gpt2_tiny(out):
    layers, heads, width, vocab, context = 2, 4, 32, 67, 24
    weights = weights_of(gpt2_shapes(layers, width, vocab, context))
    ids = integers("input.ids", vocab, (2, 20))
    labels = ids.clone()
    labels[0, :5] = -100
    logits = gpt2(weights, ids, layers, heads)
    loss = shifted_loss(logits, labels)
    loss.backward()
    tensors = {"w." + name: w for name, w in weights.items()}
    tensors.update({"g." + name: w.grad for name, w in weights.items()})
    with torch.no_grad():
        erf = gpt2(weights, ids, layers, heads, F.gelu)
    tensors.update({"input.ids": ids, "labels": labels, "logits": logits, "loss": loss, "logits_gelu_erf": erf})
    sizes = {"n_layer": layers, "n_head": heads, "n_embd": width, "vocab": vocab, "n_ctx": context}
    write_safetensors(f"{out}/gpt2_tiny.safetensors", tensors, {**sizes, "loss": float(loss)})


def make_gpt2_124m(out):
    """Too large to store: the last logits, the loss and the norm of each gradient."""
    layers, heads, width, vocab, context = 12, 12, 768, 50257, 1024
    weights = weights_of(gpt2_shapes(layers, width, vocab, context))
    ids = integers("input.ids", vocab, (1, 32))
    logits = gpt2(weights, ids, layers, heads)
    loss = shifted_loss(logits, ids)
    loss.backward()
    norms = torch.stack([w.grad.double().norm().float() for w in weights.values()])
    tensors = {"last_logits": logits[:, -1], "loss": loss, "grad_norm": norms}
    metadata = {"params": sum(w.numel() for w in weights.values()), "loss": float(loss), "param_order": list(weights)}
    write_safetensors(f"{out}/gpt2_124m.safetensors", tensors, metadata)


# ---- The training curve: nanoGPT's character model, without biases and dropout ---------------------------------------

CURVE = dict(n_layer=4, n_head=4, n_embd=128, vocab=65, block=64, batch=12, bias=False, dropout=0.0, lr=1e-3,
             min_lr=1e-4, warmup=100, decay_iters=2000, betas=[0.9, 0.99], eps=1e-8, weight_decay=0.1, grad_clip=1.0,
             activation="gelu erf")


def curve_weights():
    """Linear weights are [out, in]; normal deviations as nanoGPT has them, drawn from a uniform distribution."""
    layers, width = CURVE["n_layer"], CURVE["n_embd"]
    out = {}
    for name, shape in gpt2_shapes(layers, width, CURVE["vocab"], CURVE["block"]).items():
        if name.endswith("bias"):
            continue
        if len(shape) == 1:
            out[name] = as_weight(np.ones(shape))
            continue
        shape = shape if "transformer.w" in name else shape[::-1]
        deviation = 0.02 / math.sqrt(2 * layers) if name.endswith("c_proj.weight") else 0.02
        out[name] = as_weight(uniform(name, shape) * (deviation * math.sqrt(3.0)))
    return out


def curve_rate(step):
    high, low, warmup, end = CURVE["lr"], CURVE["min_lr"], CURVE["warmup"], CURVE["decay_iters"]
    if step < warmup:
        return high * (step + 1) / (warmup + 1)
    if step > end:
        return low
    return low + 0.5 * (1 + math.cos(math.pi * (step - warmup) / (end - warmup))) * (high - low)


def make_curve(out):
    with open(f"{HERE}/shakespeare/input.txt", encoding="ascii") as file:
        text = file.read()
    letters = sorted(set(text))
    ids = torch.tensor([letters.index(letter) for letter in text])
    train, held_out = ids[: int(0.9 * len(ids))], ids[int(0.9 * len(ids)) :]
    weights = curve_weights()
    context, width = CURVE["block"], CURVE["n_embd"]

    def norm(x, name):
        return F.layer_norm(x, (width,), weights[name + ".weight"], None, 1e-5)

    def linear(x, name):
        return F.linear(x, weights[name + ".weight"])

    def loss_of(tokens, name):
        starts = integers(name, len(tokens) - context, (CURVE["batch"],))
        x = torch.stack([tokens[s : s + context] for s in starts])
        y = torch.stack([tokens[s + 1 : s + 1 + context] for s in starts])
        logits = transformer(weights, x, CURVE["n_layer"], CURVE["n_head"], F.gelu, linear, norm)
        return F.cross_entropy(logits.view(-1, CURVE["vocab"]), y.view(-1))

    def validate():
        with torch.no_grad():
            return float(torch.stack([loss_of(held_out, f"val.{k}") for k in range(20)]).mean())

    matrices = [w for w in weights.values() if w.dim() > 1]
    gains = [w for w in weights.values() if w.dim() == 1]
    groups = [{"params": matrices, "weight_decay": CURVE["weight_decay"]}, {"params": gains, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=CURVE["lr"], betas=CURVE["betas"], eps=CURVE["eps"])
    steps = int(os.environ.get("CURVE_STEPS", 2000))
    rows = {"loss": [], "grad_norm": [], "lr": []}
    validation = {}
    for step in range(steps):
        if step % 100 == 0:
            validation[str(step)] = validate()
        for group in optimizer.param_groups:
            group["lr"] = curve_rate(step)
        loss = loss_of(train, f"batch.{step}")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(list(weights.values()), CURVE["grad_clip"])
        optimizer.step()
        for name, value in (("loss", float(loss)), ("grad_norm", float(grad_norm)), ("lr", curve_rate(step))):
            rows[name].append(float(f"{value:.9g}"))
    validation[str(steps)] = validate()
    params = sum(w.numel() for w in weights.values())
    with open(f"{out}/nanogpt_char_curve.json", "w", encoding="ascii") as file:
        json.dump(dict(config=CURVE, params=params, **rows, val_loss=validation), file)


# ---- Comparison -----------------------------------------------------------------------------------------------------

def compare(out):
    for name in ("gpt2_tiny.safetensors", "gpt2_124m.safetensors"):
        if not os.path.exists(f"{out}/{name}"):
            continue
        ours, stored = read_safetensors(f"{out}/{name}"), read_safetensors(f"{HERE}/golden/{name}")
        assert ours.keys() == stored.keys(), name
        equal = sum(bool((ours[k] == stored[k]).all()) for k in stored)
        worst = max(float(np.abs(ours[k] - stored[k]).max() / max(np.abs(stored[k]).max(), 1e-30)) for k in stored)
        print(f"{name}: {equal} of {len(stored)} tensors equal, largest difference {worst:.1e} of a tensor's maximum")
    if os.path.exists(f"{out}/nanogpt_char_curve.json"):
        with open(f"{out}/nanogpt_char_curve.json") as a, open(f"{HERE}/golden/nanogpt_char_curve.json") as b:
            ours, stored = json.load(a), json.load(b)
        for column in ("loss", "grad_norm", "lr"):
            worst = max(abs(x / y - 1) for x, y in zip(ours[column], stored[column]))
            print(f"curve, {len(ours[column])} steps, {column}: largest relative difference {worst:.1e}")


def main():
    if sys.argv[1:2] == ["--compare"]:
        compare(sys.argv[2])
        return
    out, groups = sys.argv[1], sys.argv[2:] or ["gpt", "curve"]
    os.makedirs(out, exist_ok=True)
    torch.manual_seed(0)
    if "gpt" in groups:
        make_gpt2_tiny(out)
        make_gpt2_124m(out)
    if "curve" in groups:
        make_curve(out)


if __name__ == "__main__":
    main()
