#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a metric of evaluations as SVG.   usage: ranking_curve.py OUT.svg METRIC STEPS_PER_EPOCH RUN_FOLDER... [EPOCH=VALUE...]

One line for each run; dots are values to compare with, at their epochs.
"""
import os
import sys

import metrics_file
from axes import Axes

COLOURS = ["#1f6fb4", "#2a9d4a", "#b4681f", "#7a4fb4"]


def dot(text):
    epoch, _, value = text.partition("=")
    try:
        return float(epoch), float(value)
    except ValueError:
        sys.exit(f"'{text}' is neither the folder of a run nor EPOCH=VALUE with two numbers")


def main():
    runs = [a for a in sys.argv[4:] if "=" not in a or os.path.isdir(a)]
    if not runs or not sys.argv[3].isdigit() or int(sys.argv[3]) == 0:
        sys.exit(__doc__.splitlines()[0])
    out_path, metric, steps_per_epoch = sys.argv[1], sys.argv[2], int(sys.argv[3])
    dots = [dot(a) for a in sys.argv[4:] if a not in runs]
    lines = []
    for run in runs:
        path = os.path.join(run, "metrics.jsonl")
        rows = [o for o in metrics_file.read(path) if "step_ms" not in o]
        objects = metrics_file.with_numbers(rows, f"val_{metric}", path)
        lines.append([(-(-o["step"] // steps_per_epoch), o[f"val_{metric}"]) for o in objects])
    last = max(epoch for line in lines for epoch, _ in line) or 1
    top = max([value for line in lines for _, value in line] + [value for _, value in dots]) * 1.05 or 1
    axes = Axes(last, top, "epoch", metric)
    for i, line in enumerate(lines):
        axes.line(line, COLOURS[i % len(COLOURS)])
    for epoch, value in dots:
        axes.dot(epoch, value)
    axes.write(out_path)


main()
