# SPDX-License-Identifier: Apache-2.0
"""Dots on an axis, as SVG: a line for each row of a table, a colour for each series."""
import html
import math
import os
import pathlib
import sys

WIDTH, LEFT, RIGHT, TOP, ROW, LETTER = 760, 330, 20, 44, 20, 7
COLOURS = {"ours": "#1f6fb4", "windows": "#1f6fb4", "private memory": "#6fb41f", "floor": "#777777", "limit": "#777777"}
OTHERS = ["#cc6633", "#8b4fb4", "#b48a1f", "#2f8f83", "#a03050", "#555599"]


class LogAxis:
    """Whole powers of ten; for times, which are positive."""

    def __init__(self, values):
        self.first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        self.last = max(last, self.first + 1)

    def part(self, value):
        return (math.log10(value) - self.first) / (self.last - self.first)

    def marks(self):
        return [10.0**power for power in range(self.first, self.last + 1)]


class LinearAxis:
    """From a multiple of a round step to another, with 0 in it; for percents."""

    def __init__(self, values):
        low, high = min(0.0, *values), max(0.0, *values)
        self.step = 10.0**math.floor(math.log10(max(high - low, 1e-9)))
        self.first, self.last = math.floor(low / self.step), max(math.ceil(high / self.step), math.floor(low / self.step) + 1)

    def part(self, value):
        return (value / self.step - self.first) / (self.last - self.first)

    def marks(self):
        return [self.step * n for n in range(self.first, self.last + 1)]


def chart(title, unit, rows, axis=LogAxis):
    """`rows`: (label, {series: value}). Values that are None are left out, and those that LogAxis can't show."""
    shown = lambda value: value is not None and (axis is not LogAxis or value > 0)
    rows = [(label, {name: value for name, value in values.items() if shown(value)}) for label, values in rows]
    all_values = [value for _, values in rows for value in values.values()]
    if not all_values:
        return ""
    scale, names = axis(all_values), list(dict.fromkeys(name for _, values in rows for name in values))
    others = [name for name in names if name not in COLOURS]
    colour = lambda name: COLOURS[name] if name in COLOURS else OTHERS[others.index(name) % len(OTHERS)]
    left = max(LEFT, 20 + LETTER * max(len(label) for label, _ in rows))
    across = lambda value: left + (WIDTH - left - RIGHT) * scale.part(value)
    bottom, height = TOP + ROW * len(rows), TOP + ROW * len(rows) + 40
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
           f'<text x="10" y="18" font-weight="bold">{html.escape(title)}</text>']
    for mark in scale.marks():
        x = across(mark)
        out += [f'<path d="M{x:.1f} {TOP - 8}V{bottom}" stroke="#ddd"/>',
                f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{mark:g}</text>']
    out.append(f'<text x="{(left + WIDTH - RIGHT) / 2:.1f}" y="{bottom + 33}" text-anchor="middle">{html.escape(unit)}</text>')
    for i, (label, values) in enumerate(rows):
        y = TOP + ROW * i + 6
        out.append(f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{html.escape(label)}</text>')
        if values:
            out.append(f'<path d="M{across(min(values.values())):.1f} {y}H{across(max(values.values())):.1f}" stroke="#ccc"/>')
        out += [f'<circle cx="{across(value):.1f}" cy="{y}" r="4.5" fill="{colour(name)}"><title>{html.escape(name)}: '
                f'{value:.4g} {html.escape(unit)}</title></circle>' for name, value in values.items()]
    x = left
    for name in names:
        out += [f'<circle cx="{x}" cy="14" r="4.5" fill="{colour(name)}"/>', f'<text x="{x + 9}" y="18">{html.escape(name)}</text>']
        x += 30 + LETTER * len(name)
    return "\n".join(out + ["</svg>"]) + "\n"


def write_charts(folder, texts):
    """Writes each text as performance_NAME.svg, and says whether all could be written."""
    try:
        os.makedirs(folder, exist_ok=True)
        for name, text in texts.items():
            if not text:  # a table without rows
                continue
            pathlib.Path(folder, f"performance_{name}.svg").write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"no charts in '{folder}': {error.strerror}; give a folder that can be written", file=sys.stderr)
        return False
    return True
