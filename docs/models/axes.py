# SPDX-License-Identifier: Apache-2.0
"""The frame of the curves in this folder: axes, lines and dots as SVG."""
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 300, 50, 40, 20


class Axes:
    """x from 0 to `last`, y from 0 to `top`. `right`: the margin at the right, in pixels."""

    def __init__(self, last, top, x_name, y_name="", right=20):
        self.last, self.top, self.end = last, top, WIDTH - right
        self.out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
                    'font-family="sans-serif" font-size="12">',
                    f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
        for i in range(5):
            _, y = self.place(0, top * i / 4)
            self.out.append(f'<path d="M{LEFT} {y}H{self.end}" stroke="#ddd"/>')
            self.text(LEFT - 6, y, f"{top * i / 4:.2f}", 'text-anchor="end" dy="4"')
            x, _ = self.place(last * i / 4, 0)
            self.text(x, HEIGHT - BOTTOM + 18, last * i // 4)
        self.text((LEFT + self.end) / 2, HEIGHT - 6, x_name)
        if y_name:
            self.text(LEFT, 14, y_name, "")

    def place(self, x, y):
        down = HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * min(y, self.top) / self.top
        return f"{LEFT + (self.end - LEFT) * x / self.last:.1f}", f"{down:.1f}"

    def text(self, x, y, text, style='text-anchor="middle"'):
        self.out.append(f'<text x="{x}" y="{y}" {style}>{text}</text>')

    def line(self, points, colour="#1f6fb4"):
        places = " ".join(",".join(self.place(*point)) for point in points)
        self.out.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="1.5"/>')

    def dot(self, x, y, label=""):
        left, down = self.place(x, y)
        self.out.append(f'<circle cx="{left}" cy="{down}" r="3.5" fill="#c33"/>')
        if label:
            self.text(left, f"{float(down) - 8:.1f}", label, 'text-anchor="middle" fill="#c33"')

    def write(self, path):
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(self.out + ["</svg>"]) + "\n")
        except OSError as error:
            sys.exit(f"{path} can't be written: {error.strerror}; give a file in a folder that exists")
