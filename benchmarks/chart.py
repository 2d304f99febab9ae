# SPDX-License-Identifier: Apache-2.0
"""Dots on a logarithmic axis of times, as SVG: a line for each row of a table, a colour for each series."""
import html
import math

WIDTH, LEFT, RIGHT, TOP, ROW = 760, 330, 20, 44, 20
COLOURS = {"ours": "#1f6fb4", "windows": "#1f6fb4", "private memory": "#6fb41f", "floor": "#777777"}
OTHERS = "#cc6633"


def chart(title, unit, rows):
    """`rows`: (label, {series: time}); times that are not positive are left out."""
    rows = [(label, {name: time for name, time in times.items() if time and time > 0}) for label, times in rows]
    all_times = [time for _, times in rows for time in times.values()]
    if not all_times:
        return ""
    first, last = math.floor(math.log10(min(all_times))), math.ceil(math.log10(max(all_times)))
    last = max(last, first + 1)
    height = TOP + ROW * len(rows) + 40

    def across(time):
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(time) - first) / (last - first)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
           f'<text x="10" y="18" font-weight="bold">{html.escape(title)}</text>']
    bottom = TOP + ROW * len(rows)
    for power in range(first, last + 1):
        x = across(10.0**power)
        out += [f'<path d="M{x:.1f} {TOP - 8}V{bottom}" stroke="#ddd"/>',
                f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{10.0**power:g}</text>']
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.1f}" y="{bottom + 33}" text-anchor="middle">{html.escape(unit)}</text>')
    for i, (label, times) in enumerate(rows):
        y = TOP + ROW * i + 6
        out.append(f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end">{html.escape(label)}</text>')
        if times:
            out.append(f'<path d="M{across(min(times.values())):.1f} {y}H{across(max(times.values())):.1f}" stroke="#ccc"/>')
        out += [f'<circle cx="{across(time):.1f}" cy="{y}" r="4.5" fill="{COLOURS.get(name, OTHERS)}"><title>{html.escape(name)}: '
                f'{time:.4g} {html.escape(unit)}</title></circle>' for name, time in times.items()]
    x = LEFT
    for name in dict.fromkeys(name for _, times in rows for name in times):
        out += [f'<circle cx="{x}" cy="14" r="4.5" fill="{COLOURS.get(name, OTHERS)}"/>', f'<text x="{x + 9}" y="18">{html.escape(name)}</text>']
        x += 30 + 7 * len(name)
    return "\n".join(out + ["</svg>"]) + "\n"
