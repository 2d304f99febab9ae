#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/diloco_reference.inc: 200 steps of DiLoCo (Douillard et al. 2023, arXiv 2311.08105, algorithm 1) in Python
floats, which are fp64, on the linear model of sdk/examples/linear_model. It knows nothing of ddhost but the model's formula,
its samples and which of them a rank has. The inner optimizer is AdamW with clipping by the norm of the group's gradient, the
outer one SGD with Nesterov momentum as in PyTorch. One line for each case: its settings, losses and final parameters.

    python3 make_diloco_reference.py > diloco_reference.inc
"""
import math

INPUTS, OUTPUTS, BATCH, RANKS, STEPS, SEED = 6, 3, 8, 4, 200, 42
LR, BETA1, BETA2, EPS, DECAY, CLIP = 0.01, 0.9, 0.99, 1e-8, 0.1, 0.5
MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15


def mix(x):  # the finaliser of splitmix64
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def key_of(seed, stream):
    h = 0xCBF29CE484222325
    for c in stream.encode():
        h = (h ^ c) * 0x100000001B3 & MASK
    return mix(mix(seed + STEP & MASK) ^ h)


KEY = key_of(SEED, "linear_model data")


def number(i):  # in [-1, 1)
    return 2 * ((mix(KEY + (i + 1) * STEP & MASK) >> 11) * 2.0**-53) - 1


V = [[number(i * OUTPUTS + o) for o in range(OUTPUTS)] for i in range(INPUTS)]
C = [number(INPUTS * OUTPUTS + o) for o in range(OUTPUTS)]


def sample(index):
    first = (index + 1) * INPUTS * (OUTPUTS + 1)
    x = [number(first + i) for i in range(INPUTS)]
    return x, [C[o] + sum(x[i] * V[i][o] for i in range(INPUTS)) for o in range(OUTPUTS)]


def first_values():  # the weight by rows, then the bias; exact in fp32
    return [(k * 37 % 101 - 50) / 1024 for k in range(INPUTS * OUTPUTS)] + [0.0] * OUTPUTS


def gradient(values, samples):
    """The gradient of the mean loss, and the sum of losses."""
    out, loss = [0.0] * len(values), 0.0
    for x, t in samples:
        for o in range(OUTPUTS):
            error = values[INPUTS * OUTPUTS + o] + sum(x[i] * values[i * OUTPUTS + o] for i in range(INPUTS)) - t[o]
            loss += error * error
            g = 2 * error / len(samples)
            out[INPUTS * OUTPUTS + o] += g
            for i in range(INPUTS):
                out[i * OUTPUTS + o] += x[i] * g
    return out, loss


class Inner:
    """A group of ranks: AdamW on the mean over the group's samples."""

    def __init__(self, values):
        self.values, self.m, self.v, self.t = list(values), [0.0] * len(values), [0.0] * len(values), 0

    def step(self, samples):
        g, loss = gradient(self.values, samples)
        factor = min(1.0, CLIP / (math.sqrt(sum(x * x for x in g)) + 1e-6))
        self.t += 1
        for k in range(len(g)):
            decay = DECAY if k < INPUTS * OUTPUTS else 0  # not for the bias
            x = g[k] * factor
            self.m[k] += (1 - BETA1) * (x - self.m[k])
            self.v[k] = BETA2 * self.v[k] + (1 - BETA2) * x * x
            denominator = math.sqrt(self.v[k] / (1 - BETA2**self.t)) + EPS
            self.values[k] = self.values[k] * (1 - LR * decay) - LR / (1 - BETA1**self.t) * self.m[k] / denominator
        return loss


def train(every, size, outer_lr, momentum):
    outer = first_values()
    velocity = [0.0] * len(outer)
    groups = [Inner(outer) for _ in range(RANKS // size)]
    losses = []
    for step in range(STEPS):
        total = 0.0
        for g, group in enumerate(groups):
            first = (step * RANKS + g * size) * BATCH
            total += group.step([sample(n * 7 % 4096) for n in range(first, first + size * BATCH)])
        losses.append(total / (RANKS * BATCH))
        if (step + 1) % every == 0 or step + 1 == STEPS:
            for k in range(len(outer)):
                mean = sum(outer[k] - group.values[k] for group in groups) / len(groups)
                velocity[k] = momentum * velocity[k] + mean
                outer[k] -= outer_lr * (mean + momentum * velocity[k])
                for group in groups:
                    group.values[k] = outer[k]
    return losses, outer


def text(values):
    return "{" + ", ".join(f"{v:.9g}" for v in values) + "}"


print("// SPDX-License-Identifier: Apache-2.0")
print("// Written by make_diloco_reference.py; do not edit.")
# The defaults; groups of two ranks; local SGD, whose last steps are fewer than sync_every.
for case in ((50, 1, 0.7, 0.9), (50, 2, 0.7, 0.9), (30, 1, 1, 0)):
    losses, values = train(*case)
    print("{" + ", ".join(f"{v:g}" for v in case) + ",\n " + text(losses[9::10]) + ",\n " + text(values) + "},")
