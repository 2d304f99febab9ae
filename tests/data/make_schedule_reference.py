# SPDX-License-Identifier: Apache-2.0
"""Writes schedule_reference.inc: the rates that torch's schedulers give to each optimizer step.
Run with torch 2.11: python make_schedule_reference.py > schedule_reference.inc

A case is a name, the words of a ddhost configuration, the losses that the scheduler sees after each step (plateau only) and the
rates of the steps. Warm-up and decay are put together from torch's own parts by SequentialLR."""
import math
import random

import torch
from torch.optim import lr_scheduler as lrs

LR = 0.003


def rates(make, steps, losses=None):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    scheduler = make(optimizer)
    kept = []
    for step in range(steps):
        kept.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step + 1 < steps:
            scheduler.step() if losses is None else scheduler.step(losses[step])
    return kept


def warmup(optimizer, steps):
    return lrs.LinearLR(optimizer, start_factor=1 / (steps + 1), total_iters=steps)


def one_cycle(total, **options):
    return rates(lambda o: lrs.OneCycleLR(o, max_lr=LR, total_steps=total, cycle_momentum=False, **options), total)


def wsd(warm, total, fall, shape):
    def make(optimizer):
        falls = {"linear": lambda: lrs.LinearLR(optimizer, 1.0, 0.1, total_iters=fall),
                 "cosine": lambda: lrs.CosineAnnealingLR(optimizer, T_max=fall, eta_min=0.1 * LR),
                 "sqrt": lambda: lrs.LambdaLR(optimizer, lambda t: 0.1 + 0.9 * (1 - math.sqrt(t / fall)))}
        return lrs.SequentialLR(optimizer, [warmup(optimizer, warm), lrs.ConstantLR(optimizer, 1.0, 1), falls[shape]()],
                                [warm, total - fall])
    return rates(make, total + 1)


def warmup_then(warm, steps, decay):
    return rates(lambda o: lrs.SequentialLR(o, [warmup(o, warm), decay(o)], [warm]), steps)


def inverse_sqrt(warm, timescale, steps):
    return warmup_then(warm, steps, lambda o: lrs.LambdaLR(o, lambda t: 1 / math.sqrt((t + timescale) / timescale)))


def losses_of(seed, steps):
    """Falls, then stays; with noise, and with some that are not finite."""
    source = random.Random(seed)
    losses = [round(2 + 2 * math.exp(-step / 8) + source.uniform(-0.05, 0.05), 4) for step in range(steps)]
    losses[5], losses[21], losses[30] = float("nan"), float("inf"), float("nan")
    return losses


def plateau(losses, **options):
    return rates(lambda o: lrs.ReduceLROnPlateau(o, **options), len(losses), losses)


def number(x):
    return {"nan": "NAN", "inf": "INFINITY", "-inf": "-INFINITY"}.get(repr(x), repr(x))


def case(name, words, kept, losses=()):
    words = ["optimizer.lr=" + repr(LR)] + words
    print(f'{{"{name}",\n {{{", ".join(chr(34) + w + chr(34) for w in words)}}},')
    print(f' {{{", ".join(number(x) for x in losses)}}},')
    print(f' {{{", ".join(number(x) for x in kept)}}}}},')


print("// Made by make_schedule_reference.py with torch", torch.__version__.split("+")[0])
case("OneCycleLR", ["schedule.type=OneCycleLR", "schedule.total_steps=20"], one_cycle(20))
case("OneCycleLR, linear, other factors",
     ["schedule.type=one_cycle", "schedule.decay_steps=17", "schedule.pct_start=0.45", "schedule.div_factor=10",
      "schedule.final_div_factor=100", "schedule.anneal_strategy=linear"],
     one_cycle(17, pct_start=0.45, div_factor=10, final_div_factor=100, anneal_strategy="linear"))
case("OneCycleLR, three phases",
     ["schedule.type=one_cycle", "schedule.decay_steps=23", "schedule.pct_start=0.35", "schedule.three_phase=true"],
     one_cycle(23, pct_start=0.35, three_phase=True))
case("OneCycleLR without a rise", ["schedule.type=one_cycle", "schedule.decay_steps=9", "schedule.pct_start=0"],
     one_cycle(9, pct_start=0.0))
for shape in ("linear", "cosine", "sqrt"):
    case("wsd, " + shape,
         ["schedule.type=wsd", "schedule.warmup_steps=4", "schedule.decay_steps=20", "schedule.decay_ratio=0.3",
          "schedule.decay_type=" + shape], wsd(4, 20, 6, shape))
case("linear", ["schedule.type=linear", "schedule.warmup_steps=5", "schedule.decay_steps=15"],
     warmup_then(5, 16, lambda o: lrs.LinearLR(o, 1.0, 0.1, total_iters=10)))
case("cosine", ["schedule.type=cosine", "schedule.warmup_steps=5", "schedule.decay_steps=15", "schedule.min_lr_ratio=0.2"],
     warmup_then(5, 16, lambda o: lrs.CosineAnnealingLR(o, T_max=10, eta_min=0.2 * LR)))
case("constant", ["schedule.type=constant", "schedule.warmup_steps=3"],
     warmup_then(3, 8, lambda o: lrs.ConstantLR(o, 1.0, 1)))
case("inverse_sqrt", ["schedule.type=inverse_sqrt", "schedule.warmup_steps=4"], inverse_sqrt(4, 4, 17))
case("inverse_sqrt with a timescale",
     ["schedule.type=inverse_sqrt", "schedule.warmup_steps=3", "schedule.timescale=100"], inverse_sqrt(3, 100, 12))
first, second = losses_of(1, 60), losses_of(2, 60)
case("ReduceLROnPlateau", ["schedule.type=ReduceLROnPlateau", "schedule.patience=4"], plateau(first, patience=4), first)
case("ReduceLROnPlateau, absolute, cooldown, lowest rate",
     ["schedule.type=plateau", "schedule.factor=0.5", "schedule.patience=2", "schedule.threshold=0.05",
      "schedule.threshold_mode=abs", "schedule.cooldown=3", "schedule.min_lr=0.0004"],
     plateau(second, factor=0.5, patience=2, threshold=0.05, threshold_mode="abs", cooldown=3, min_lr=0.0004), second)
rising = [-x for x in first]
case("ReduceLROnPlateau, max", ["schedule.type=plateau", "schedule.mode=max", "schedule.patience=1", "schedule.factor=0.7",
                                "schedule.threshold=0.01", "schedule.eps=0.0002"],
     plateau(rising, mode="max", patience=1, factor=0.7, threshold=0.01, eps=0.0002), rising)
