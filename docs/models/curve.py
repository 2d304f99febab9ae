#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the losses of a run as SVG.   usage: curve.py RUN_FOLDER/metrics.jsonl OUT.svg [metric of evaluations]

The line is the training loss, a mean of 25 steps; dots are evaluations with a val_loss, labelled with the metric. Rows without
a loss, such as those of programs that only update, are left out.
"""
import sys

import metrics_file
from axes import Axes

WINDOW = 25  # steps


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__.splitlines()[0])
    path, out_path = sys.argv[1:3]
    objects = metrics_file.read(path)
    steps = metrics_file.with_numbers([o for o in objects if "step_ms" in o], "loss", path)
    evaluations = [o for o in objects if o.get("val_loss") is not None]
    metric = "val_loss"
    if len(sys.argv) > 3:
        metric = sys.argv[3]
        metrics_file.with_numbers([o for o in objects if "step_ms" not in o], metric, path)
        if not any(o.get(metric) is not None for o in evaluations):
            sys.exit(f"the evaluations in {path} have {metric} but no val_loss, so their dots have no height; "
                     "ranking_curve.py draws such a metric")
    means = []
    for first in range(0, len(steps), WINDOW):
        part = steps[first:first + WINDOW]
        means.append((part[-1]["step"], sum(o["loss"] for o in part) / len(part)))
    last = max([steps[-1]["step"]] + [o["step"] for o in evaluations])
    axes = Axes(last, max(loss for _, loss in means) or 1, "step", right=70)
    axes.line(means)
    labelled = evaluations if len(evaluations) <= 5 else evaluations[-1:]
    for o in evaluations:
        is_labelled = o in labelled and o.get(metric) is not None
        axes.dot(o["step"], o["val_loss"], f"{o[metric]:.4f}" if is_labelled else "")
    axes.write(out_path)


main()
