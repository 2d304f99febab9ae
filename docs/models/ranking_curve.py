#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a metric of evaluations as SVG.   usage: ranking_curve.py OUT.svg METRIC STEPS_PER_EPOCH RUN_FOLDER... [EPOCH=VALUE...]

One line for each run; dots are values to compare with, at their epochs.
"""
import json
import os
import sys

from axes import Axes

COLOURS = ["#1f6fb4", "#2a9d4a", "#b4681f", "#7a4fb4"]


def main():
    out_path, metric, steps_per_epoch = sys.argv[1], sys.argv[2], int(sys.argv[3])
    runs = [a for a in sys.argv[4:] if "=" not in a]
    dots = [tuple(map(float, a.split("="))) for a in sys.argv[4:] if "=" in a]
    lines = []
    for run in runs:
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as rows:
            objects = [json.loads(row) for row in rows if f'"val_{metric}"' in row]
        lines.append([(-(-o["step"] // steps_per_epoch), o[f"val_{metric}"]) for o in objects])
    last = max(epoch for line in lines for epoch, _ in line)
    top = max([value for line in lines for _, value in line] + [value for _, value in dots]) * 1.05
    axes = Axes(last, top, "epoch", metric)
    for i, line in enumerate(lines):
        axes.line(line, COLOURS[i % len(COLOURS)])
    for epoch, value in dots:
        axes.dot(epoch, value)
    axes.write(out_path)


main()
