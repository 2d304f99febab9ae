#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the losses of a run as SVG.   usage: curve.py RUN_FOLDER/metrics.jsonl OUT.svg [metric of evaluations]

The line is the training loss, a mean of 25 steps; dots are evaluations, labelled with the metric.
"""
import json
import sys

from axes import Axes

WINDOW = 25  # steps


def main():
    with open(sys.argv[1], encoding="utf-8") as rows:
        objects = [json.loads(row) for row in rows]
    steps = [o for o in objects if "step_ms" in o]
    evaluations = [o for o in objects if "val_loss" in o]
    metric = sys.argv[3] if len(sys.argv) > 3 else "val_loss"
    means = []
    for first in range(0, len(steps), WINDOW):
        part = steps[first:first + WINDOW]
        means.append((part[-1]["step"], sum(o["loss"] for o in part) / len(part)))
    axes = Axes(steps[-1]["step"], max(loss for _, loss in means), "step", right=70)
    axes.line(means)
    labelled = evaluations if len(evaluations) <= 5 else evaluations[-1:]
    for o in evaluations:
        axes.dot(o["step"], o["val_loss"], f"{o[metric]:.4f}" if o in labelled else "")
    axes.write(sys.argv[2])


main()
