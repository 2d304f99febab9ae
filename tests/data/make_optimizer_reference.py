# SPDX-License-Identifier: Apache-2.0
"""Writes optimizer_reference.inc: trajectories of the optimizers in fp64, and how far the same runs in fp32 stray from
them. torch's own optimizers where it has them; Lion, Lamb and Muon as published. Run with torch 2.11:
python make_optimizer_reference.py > optimizer_reference.inc

Parameters and gradients come from value(): fp32 numbers made of integers, so that tests make the same ones."""
import torch

SHAPES = [(1,), (7,), (67,)]
MATRICES = [(5, 8), (7,), (9, 4), (3, 2, 4)]
STEPS = 10


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of Chen et al. 2023."""

    def __init__(self, params, **options):
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * (beta1 * m + (1 - beta1) * p.grad).sign())
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


class Lamb(torch.optim.Optimizer):
    """Algorithm 2 of You et al. 2020, with DeepSpeed's limits of the trust ratio."""

    def __init__(self, params, **options):
        super().__init__(params, options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                m = state.setdefault("exp_avg", torch.zeros_like(p))
                v = state.setdefault("exp_avg_sq", torch.zeros_like(p))
                t = state["step"] = state.get("step", 0) + 1
                m.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                bias1, bias2 = (1 - beta1**t, 1 - beta2**t) if group["bias_correction"] else (1, 1)
                u = m / bias1 / ((v / bias2).sqrt() + group["eps"]) + group["weight_decay"] * p
                p_norm, u_norm = p.norm().item(), u.norm().item()
                trust = p_norm / u_norm if p_norm > 0 and u_norm > 0 else 1
                p.sub_(group["lr"] * min(max(trust, group["min_coeff"]), group["max_coeff"]) * u)


class Muon(torch.optim.Optimizer):
    """Jordan et al. 2024 in the form of torch.optim.Muon, which multiplies in bf16; AdamW for what is no matrix."""

    def __init__(self, params, *, adamw_lr, adamw_betas, adamw_eps, adamw_weight_decay, **options):
        params = list(params)
        super().__init__([p for p in params if p.dim() > 1], options)
        self.adamw = torch.optim.AdamW([p for p in params if p.dim() < 2], lr=adamw_lr, betas=adamw_betas,
                                       eps=adamw_eps, weight_decay=adamw_weight_decay)

    @staticmethod
    def orthogonalized(x, group):
        a, b, c = group["ns_coefficients"]
        x = x / x.norm().clamp(min=group["eps"])
        for _ in range(group["ns_steps"]):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        return x

    @torch.no_grad()
    def step(self):
        self.adamw.step()
        self.state.update(self.adamw.state)
        for group in self.param_groups:
            for p in group["params"]:
                g = p.grad.flatten(1)
                rows, columns = g.shape
                m = self.state[p].setdefault("momentum_buffer", torch.zeros_like(g))
                m.lerp_(g, 1 - group["momentum"])
                d = g.lerp(m, group["momentum"]) if group["nesterov"] else m
                o = self.orthogonalized(d, group) if rows <= columns else self.orthogonalized(d.T, group).T
                scale = {"original": max(1, rows / columns)**0.5, "match_rms_adamw": 0.2 * max(rows, columns)**0.5,
                         "none": 1}[group["adjust_lr_fn"]]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * scale * o.reshape(p.shape))


def check_muon():
    """Ours and torch's own differ by no more than its bf16."""
    options = dict(momentum=0.95, nesterov=True, weight_decay=0.1, ns_steps=5, ns_coefficients=(3.4445, -4.775, 2.0315),
                   eps=1e-7, adjust_lr_fn="match_rms_adamw")
    ours, theirs = (torch.nn.Parameter(filled(0, 0, (24, 40), torch.float32)) for _ in range(2))
    adamw = dict(adamw_lr=1e-3, adamw_betas=(0.9, 0.95), adamw_eps=1e-10, adamw_weight_decay=0.0)
    optimizers = (Muon([ours, torch.nn.Parameter(torch.zeros(1))], lr=0.02, **adamw, **options),
                  torch.optim.Muon([theirs], lr=0.02, **options))
    start = ours.detach().clone()
    for step in range(1, STEPS + 1):
        ours.grad = theirs.grad = torch.randn(24, 40, generator=torch.Generator().manual_seed(step))
        for optimizer in optimizers:
            optimizer.step()
    assert (ours - theirs).norm() < 0.02 * (ours - start).norm()


# What makes the optimizer, and its slots in our order under its names.
OPTIMIZERS = {
    "adamw": (torch.optim.AdamW, ["exp_avg", "exp_avg_sq"]),
    "adam": (torch.optim.Adam, ["exp_avg", "exp_avg_sq"]),
    "sgd": (torch.optim.SGD, ["momentum_buffer"]),
    "adagrad": (torch.optim.Adagrad, ["sum"]),
    "lion": (Lion, ["exp_avg"]),
    "lamb": (Lamb, ["exp_avg", "exp_avg_sq"]),
    "muon": (Muon, ["momentum_buffer", "exp_avg", "exp_avg_sq"]),
}
CASES = [  # optimizer, lr, options, shapes
    ("adamw", 1e-3, dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01), SHAPES),
    ("adamw", 6e-3, dict(betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1), SHAPES),
    ("adam", 1e-3, dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01), SHAPES),
    ("adam", 6e-3, dict(betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1), SHAPES),
    ("sgd", 0.1, dict(momentum=0.0, dampening=0.0, nesterov=False, weight_decay=0.01), SHAPES),
    ("sgd", 0.05, dict(momentum=0.9, dampening=0.25, nesterov=False, weight_decay=0.0), SHAPES),
    ("sgd", 0.05, dict(momentum=0.9, dampening=0.0, nesterov=True, weight_decay=0.01), SHAPES),
    ("lion", 1e-3, dict(betas=(0.9, 0.99), weight_decay=0.1), SHAPES),
    ("lion", 1e-2, dict(betas=(0.95, 0.98), weight_decay=0.0), SHAPES),
    ("adagrad", 1e-2, dict(lr_decay=0.0, eps=1e-10, initial_accumulator_value=0.0, weight_decay=0.0), SHAPES),
    ("adagrad", 0.05, dict(lr_decay=0.1, eps=1e-6, initial_accumulator_value=0.5, weight_decay=0.01), SHAPES),
    ("lamb", 1e-2, dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, bias_correction=True, max_coeff=10.0,
                        min_coeff=0.01), SHAPES),
    ("lamb", 0.05, dict(betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1, bias_correction=True, max_coeff=0.6,
                        min_coeff=0.5), SHAPES),
    ("lamb", 0.05, dict(betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1, bias_correction=False, max_coeff=10.0,
                        min_coeff=0.01), SHAPES),
    ("muon", 0.02, dict(momentum=0.95, nesterov=True, weight_decay=0.0, ns_steps=5,
                        ns_coefficients=(3.4445, -4.775, 2.0315), eps=1e-7, adjust_lr_fn="original", adamw_lr=3e-4,
                        adamw_betas=(0.9, 0.95), adamw_eps=1e-10, adamw_weight_decay=0.0), MATRICES),
    ("muon", 0.01, dict(momentum=0.8, nesterov=False, weight_decay=0.1, ns_steps=3,
                        ns_coefficients=(3.0, -3.2, 1.2), eps=1e-7, adjust_lr_fn="match_rms_adamw", adamw_lr=1e-3,
                        adamw_betas=(0.8, 0.95), adamw_eps=1e-6, adamw_weight_decay=0.01), MATRICES),
]


def value(tensor, step, i):
    """Step 0: a parameter in (-1, 1). Later: a gradient, smaller by up to 2^-19 with i, so that eps matters."""
    n = (i * 2654435761 + tensor * 40503 + step * 69069 + 12345) % 4294967296
    n = (n * 1664525 + 1013904223) % 4294967296
    x = ((n >> 8) - 8388608) / 8388608.0
    return x if step == 0 else x * 2.0 ** -(i % 20)


def filled(tensor, step, shape, dtype):
    numel = torch.Size(shape).numel()
    return torch.tensor([value(tensor, step, i) for i in range(numel)], dtype=dtype).reshape(shape)


def slot(state, name, p):
    """A slot's values; zero where the optimizer keeps none for this parameter."""
    kept = state.get(name)
    return torch.zeros(p.numel(), dtype=torch.float64) if kept is None else kept.double().flatten()


def run(kind, lr, options, shapes, dtype):
    params = [torch.nn.Parameter(filled(t, 0, shape, dtype)) for t, shape in enumerate(shapes)]
    make, names = OPTIMIZERS[kind]
    optimizer = make(params, lr=lr, **options)
    if kind == "sgd" and options["momentum"] == 0:
        names = []
    kept = {}
    for step in range(1, STEPS + 1):
        for t, p in enumerate(params):
            p.grad = filled(t, step, p.shape, dtype)
        optimizer.step()
        if step in (1, STEPS):
            kept[step] = [torch.cat([p.detach().double().flatten() for p in params])] + [
                torch.cat([slot(optimizer.state[p], name, p) for p in params]) for name in names]
    return kept


def numbers(values):
    return "{" + ", ".join(repr(x) for x in values) + "}"


def option(value):
    return numbers([float(x) for x in (value if isinstance(value, (tuple, list)) else [value])])


check_muon()
print("// Made by make_optimizer_reference.py with torch", torch.__version__.split("+")[0])
for kind, lr, options, shapes in CASES:
    exact, single = (run(kind, lr, options, shapes, dtype) for dtype in (torch.float64, torch.float32))
    error = max(((a[0] - b[0]).abs() / (a[0].abs() + lr)).max().item() for a, b in zip(exact.values(), single.values()))
    slots = [max((a - b).abs().max().item() for a, b in zip(e, s))
             for e, s in zip(zip(*[v[1:] for v in exact.values()]), zip(*[v[1:] for v in single.values()]))]
    texts = {k: v for k, v in options.items() if isinstance(v, str)}
    print(f'{{"{kind}", {lr}, {{' + ", ".join(f'{{"{k}", {option(v)}}}' for k, v in options.items() if k not in texts) +
          "}, {" + ", ".join(f'{{"{k}", "{v}"}}' for k, v in texts.items()) + "},")
    print(f" {{{', '.join(numbers(shape) for shape in shapes)}}},")
    print(f" {error!r}, {numbers(slots)}, {{")
    for step, arrays in exact.items():
        print(f"  {{{step}, {{" + ",\n    ".join(numbers(a.tolist()) for a in arrays) + "}},")
    print("}},")
