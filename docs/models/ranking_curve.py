#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a metric of evaluations as SVG.   usage: ranking_curve.py OUT.svg METRIC STEPS_PER_EPOCH RUN_FOLDER... [EPOCH=VALUE...]

One line for each run; dots are values to compare with, at their epochs.
"""
import json
import os
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 300, 50, 40, 20, 20
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

    def place(epoch, value):
        x = LEFT + (WIDTH - LEFT - RIGHT) * epoch / last
        return f"{x:.1f}", f"{HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top:.1f}"

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
           'font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for i in range(5):
        y = place(0, top * i / 4)[1]
        out.append(f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y}" text-anchor="end" dy="4">{top * i / 4:.2f}</text>')
        x = place(last * i / 4, 0)[0]
        out.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{last * i // 4}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">epoch</text>')
    out.append(f'<text x="{LEFT}" y="14">{metric}</text>')
    for i, line in enumerate(lines):
        points = " ".join(",".join(place(*point)) for point in line)
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[i % len(COLOURS)]}" stroke-width="1.5"/>')
    for epoch, value in dots:
        x, y = place(epoch, value)
        out.append(f'<circle cx="{x}" cy="{y}" r="3.5" fill="#c33"/>')
    out.append("</svg>")
    with open(out_path, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


main()
