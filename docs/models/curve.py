#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the losses of a run as SVG.   usage: curve.py RUN_FOLDER/metrics.jsonl OUT.svg [metric of evaluations]

The line is the training loss, a mean of 25 steps; dots are evaluations, labelled with the metric.
"""
import json
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 300, 50, 40, 20, 70
WINDOW = 25  # steps


def read(path):
    with open(path, encoding="utf-8") as rows:
        objects = [json.loads(row) for row in rows]
    steps = [o for o in objects if "step_ms" in o]
    evaluations = [o for o in objects if "val_loss" in o]
    return steps, evaluations


def main():
    steps, evaluations = read(sys.argv[1])
    metric = sys.argv[3] if len(sys.argv) > 3 else "val_loss"
    means = []
    for first in range(0, len(steps), WINDOW):
        part = steps[first:first + WINDOW]
        means.append((part[-1]["step"], sum(o["loss"] for o in part) / len(part)))
    last, top = steps[-1]["step"], max(loss for _, loss in means)

    def place(step, loss):
        x = LEFT + (WIDTH - LEFT - RIGHT) * step / last
        y = HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * min(loss, top) / top
        return f"{x:.1f}", f"{y:.1f}"

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
           'font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for i in range(5):
        y = place(0, top * i / 4)[1]
        out.append(f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y}" text-anchor="end" dy="4">{top * i / 4:.2f}</text>')
        x = place(last * i / 4, 0)[0]
        out.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{last * i // 4}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">step</text>')
    line = " ".join(",".join(place(*mean)) for mean in means)
    out.append(f'<polyline points="{line}" fill="none" stroke="#1f6fb4" stroke-width="1.5"/>')
    for o in evaluations:
        x, y = place(o["step"], o["val_loss"])
        out.append(f'<circle cx="{x}" cy="{y}" r="3.5" fill="#c33"/>')
    for o in (evaluations if len(evaluations) <= 5 else evaluations[-1:]):
        x, y = place(o["step"], o["val_loss"])
        out.append(f'<text x="{x}" y="{float(y) - 8:.1f}" text-anchor="middle" fill="#c33">{o[metric]:.4f}</text>')
    out.append("</svg>")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


main()
