# SPDX-License-Identifier: Apache-2.0
"""Writes optimizer_reference.inc: trajectories of torch.optim.AdamW and torch.optim.SGD in fp64, and how far torch's
own fp32 runs stray from them. Run with torch 2.11: python make_optimizer_reference.py > optimizer_reference.inc

Parameters and gradients come from value(): fp32 numbers made of integers, so that tests make the same ones."""
import torch

NUMELS = [1, 7, 67]
STEPS = 10
CASES = [  # optimizer, lr, options
    ("adamw", 1e-3, dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)),
    ("adamw", 6e-3, dict(betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
    ("sgd", 0.1, dict(momentum=0.0, weight_decay=0.01)),
    ("sgd", 0.05, dict(momentum=0.9, dampening=0.25, weight_decay=0.0)),
    ("sgd", 0.05, dict(momentum=0.9, nesterov=True, weight_decay=0.01)),
]


def value(tensor, step, i):
    """Step 0: a parameter in (-1, 1). Later: a gradient, smaller by up to 2^-19 with i, so that eps matters."""
    n = (i * 2654435761 + tensor * 40503 + step * 69069 + 12345) % 4294967296
    n = (n * 1664525 + 1013904223) % 4294967296
    x = ((n >> 8) - 8388608) / 8388608.0
    return x if step == 0 else x * 2.0 ** -(i % 20)


def run(kind, lr, options, dtype):
    params = [torch.nn.Parameter(torch.tensor([value(t, 0, i) for i in range(n)], dtype=dtype))
              for t, n in enumerate(NUMELS)]
    optimizer = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[kind](params, lr=lr, **options)
    kept = {}
    for step in range(1, STEPS + 1):
        for t, p in enumerate(params):
            p.grad = torch.tensor([value(t, step, i) for i in range(p.numel())], dtype=dtype)
        optimizer.step()
        if step in (1, STEPS):
            names = {"adamw": ["exp_avg", "exp_avg_sq"], "sgd": ["momentum_buffer"] if options.get("momentum") else []}
            kept[step] = [torch.cat([p.detach().double() for p in params])] + [
                torch.cat([optimizer.state[p][name].double() for p in params]) for name in names[kind]]
    return kept


def numbers(tensor):
    return "{" + ", ".join(repr(x) for x in tensor.tolist()) + "}"


print("// Made by make_optimizer_reference.py with torch", torch.__version__.split("+")[0])
for kind, lr, options in CASES:
    exact, single = run(kind, lr, options, torch.float64), run(kind, lr, options, torch.float32)
    error = max(((a[0] - b[0]).abs() / (a[0].abs() + lr)).max().item() for a, b in zip(exact.values(), single.values()))
    slots = [max((a - b).abs().max().item() for a, b in zip(e, s))
             for e, s in zip(zip(*[v[1:] for v in exact.values()]), zip(*[v[1:] for v in single.values()]))]
    betas = options.get("betas", (0, 0))
    print(f'{{"{kind}", {lr}, {betas[0]}, {betas[1]}, {options.get("eps", 0)}, {options["weight_decay"]}, '
          f'{options.get("momentum", 0)}, {options.get("dampening", 0)}, {str(options.get("nesterov", False)).lower()},')
    print(f" {error!r}, {{{', '.join(map(repr, slots))}}}, {{")
    for step, arrays in exact.items():
        print(f"  {{{step}, {{" + ",\n    ".join(numbers(a) for a in arrays) + "}},")
    print("}},")
