#!/usr/bin/env python3
"""Draws the plots of docs/goodput.md, from the model that trainings use (python/rubato/goodput.py).

    tools/goodput_plots.py [FOLDER]        docs/images/goodput
"""
import math
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "python"))

from rubato import goodput  # noqa: E402

# A job like a ResNet of medium size on nodes of 4 GPUs: seconds, and what a step of the first batch size finds.
PERF = goodput.PerfParams(0.02, 0.0008, 0.05, 0.004, 0.02, 0.002, 1.6)
FIRST_BATCH, LARGEST_BATCH, PER_NODE = 128, 8192, 4
WORKERS, SIZES = [1, 2, 4, 8, 16, 32], [128, 256, 512, 1024, 2048, 4096, 8192]
EARLY, LATE = goodput.GradParams(1.0, 2.0), goodput.GradParams(1.0, 32.0)

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 340, 64, 776, 48, 286
STYLE = """.p-title{font-size:15px;font-weight:600}.p-line{fill:none;stroke-width:2;stroke-linejoin:round}
.p-back{fill:#ffffff}.p-ink{fill:#1f2937}.p-dim{fill:#566072}.p-grid{stroke:#e8ebef}.p-axis{stroke:#566072}
.s0{stroke:#0072b2}.f0{fill:#0072b2}.s1{stroke:#e69f00}.f1{fill:#e69f00}.s2{stroke:#009e73}.f2{fill:#009e73}
.s3{stroke:#9aa1ab;stroke-dasharray:4 4}.f3{fill:#9aa1ab}
@media (prefers-color-scheme:dark){.p-back{fill:#171c26}.p-ink{fill:#e6e9ef}.p-dim{fill:#a3adbd}.p-grid{stroke:#2c3442}
.p-axis{stroke:#a3adbd}.s0{stroke:#4a9fdb}.f0{fill:#4a9fdb}.s2{stroke:#1fb78b}.f2{fill:#1fb78b}}"""


class Plot:
    """Lines over an axis of powers of two."""

    def __init__(self, title, x_name, x_ticks, y_top, y_step, y_format):
        self.title, self.x_name, self.x_ticks = title, x_name, x_ticks
        self.y_top, self.y_step, self.y_format = y_top, y_step, y_format
        self.lines, self.marks = [], []

    def line(self, name, points):
        self.lines.append((name, points))

    def mark(self, line, x, y):
        self.marks.append((line, x, y))

    def _x(self, value):
        low, high = math.log2(self.x_ticks[0]), math.log2(self.x_ticks[-1])
        return LEFT + (math.log2(value) - low) / (high - low) * (RIGHT - LEFT)

    def _y(self, value):
        return BOTTOM - value / self.y_top * (BOTTOM - TOP)

    def svg(self):
        out = [f'<svg xmlns="http://www.w3.org/2000/svg" font-family="system-ui, \'DejaVu Sans\', sans-serif" '
               f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{self.title}" font-size="12">',
               f"<style>{STYLE}</style>", f'<rect class="p-back" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
               f'<text class="p-title p-ink" x="{LEFT}" y="26">{self.title}</text>']
        for i in range(round(self.y_top / self.y_step) + 1):
            y = self._y(i * self.y_step)
            out.append(f'<line class="p-grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            out.append(f'<text class="p-dim" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
                       f"{self.y_format.format(i * self.y_step)}</text>")
        out.append(f'<line class="p-axis" x1="{LEFT}" x2="{RIGHT}" y1="{BOTTOM}" y2="{BOTTOM}"/>')
        for tick in self.x_ticks:
            out.append(f'<text class="p-dim" x="{self._x(tick):.1f}" y="{BOTTOM + 18}" text-anchor="middle">'
                       f"{tick}</text>")
        out.append(f'<text class="p-dim" x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 38}" text-anchor="middle">'
                   f"{self.x_name}</text>")
        for i, (name, points) in enumerate(self.lines):
            path = " ".join(f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in points)
            out.append(f'<polyline class="p-line s{i}" points="{path}"/>')
            out.append(f'<rect class="f{i}" x="{RIGHT + 18}" y="{TOP + 24 * i}" width="14" height="4"/>')
            out.append(f'<text class="p-ink" x="{RIGHT + 40}" y="{TOP + 24 * i + 7}">{name}</text>')
        for line, x, y in self.marks:
            out.append(f'<circle class="f{line}" cx="{self._x(x):.1f}" cy="{self._y(y):.1f}" r="5"/>')
        return "\n".join(out + ["</svg>"]) + "\n"


def nodes(workers):
    return math.ceil(workers / PER_NODE)


def batches(count=80):
    return [FIRST_BATCH * (LARGEST_BATCH / FIRST_BATCH) ** (i / (count - 1)) for i in range(count)]


def throughput():
    plot = Plot("Throughput: samples a second, by workers", "workers, 4 on each node", WORKERS, 28000, 7000, "{:,.0f}")
    model = goodput.Goodput(PERF, EARLY, FIRST_BATCH)
    for name, size in (("batch of 128", 128), ("batch of 1,024", 1024), ("batch of 8,192", 8192)):
        plot.line(name, [(r, model.throughput(nodes(r), r, goodput.Batch(size / r, 0))) for r in range(1, 33)])
    return plot


def efficiency():
    plot = Plot("Efficiency: what a sample teaches, beside one of a batch of 128", "batch size",
                SIZES, 1.0, 0.25, "{:.2f}")
    for name, grad in (("early, little noise", EARLY), ("late, much noise", LATE)):
        model = goodput.Goodput(PERF, grad, FIRST_BATCH)
        plot.line(name, [(size, model.efficiency(size)) for size in batches()])
    return plot


def by_batch():
    plot = Plot("Goodput by batch size, late in a training; the best batch is marked", "batch size",
                SIZES, 9000, 3000, "{:,.0f}")
    model = goodput.Goodput(PERF, LATE, FIRST_BATCH)
    for i, workers in enumerate((1, 4, 16)):
        points = [(size, model(nodes(workers), workers, goodput.Batch(size / workers, 0))) for size in batches()]
        plot.line(f"{workers} worker{'s' * (workers > 1)}", points)
        plot.mark(i, *max(points, key=lambda point: point[1]))
    return plot


def by_workers():
    plot = Plot("Speedup of the goodput, each with its best batch size", "workers, 4 on each node", WORKERS, 10, 2,
                "{:.0f}×")
    for name, grad in (("early, little noise", EARLY), ("late, much noise", LATE)):
        model = goodput.Goodput(PERF, grad, FIRST_BATCH)
        best = {r: model.best(nodes(r), r, LARGEST_BATCH, (1, 1024))[0] for r in range(1, 33)}
        plot.line(name, [(r, best[r] / best[1]) for r in best])
    fixed = goodput.Goodput(PERF, LATE, FIRST_BATCH)
    alone = fixed(1, 1, goodput.Batch(FIRST_BATCH, 0))
    plot.line("a fixed batch of 128", [(r, fixed(nodes(r), r, goodput.Batch(FIRST_BATCH / r, 0)) / alone)
                                       for r in range(1, 33)])
    plot.line("half of ideal", [(r, r / 2) for r in range(1, 21)])
    return plot


PLOTS = {"throughput": throughput, "efficiency": efficiency, "by-batch": by_batch, "by-workers": by_workers}


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "docs", "images", "goodput")
    os.makedirs(folder, exist_ok=True)
    for name, draw in PLOTS.items():
        with open(os.path.join(folder, f"{name}.svg"), "w", encoding="utf-8") as file:
            file.write(draw().svg())


if __name__ == "__main__":
    main()
