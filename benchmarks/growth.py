#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How times grow: each row doubles one quantity, and the exponent is the slope of a line through the logarithms.

    python3 benchmarks/growth.py [--only parameters,ranks] [--rounds 3] [--json]

An exponent of 1 is proportional growth, 0 none. The runs of a row alternate in each round; a point is the median of the rounds.
One above 1.05 (attention's context: 2) is marked.
"""
import argparse
import collections
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import gpt_vs_peers
from arguments import count, names, require_known
from checkpoint import SAVED

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
VOCAB, STEPS, WARM_UP = 256, 12, 4

Finished = collections.namedtuple("Finished", "step_ms log seconds")


def run(folder, *words, steps=STEPS):
    """The median milliseconds of a step of a training, its log, and the seconds that the program took."""
    run_dir = pathlib.Path(tempfile.mkdtemp(dir=folder)) / "run"
    command = [str(BUILD / "ddhost"), *words, f"run.dir={run_dir}", "run.quiet=true", "run.sample_tokens=0", "run.report=false",
               "monitor.every=1", "device.plugin=cpu", f"train.steps={steps}"]
    begin = time.monotonic()
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        sys.exit(f"growth.py: {' '.join(command)}\nended with {done.returncode}: {done.stderr[-1000:]}")
    log = (run_dir / "log.txt").read_text(encoding="utf-8")
    finished = Finished(gpt_vs_peers.step_ms_of(run_dir, min(WARM_UP, steps - 1)), log, seconds)
    shutil.rmtree(run_dir.parent)
    return finished


class Growth:
    """The rows: functions of a quantity that give a time."""

    def __init__(self, folder):
        self.folder = folder
        self.tokens = pathlib.Path(folder) / "tokens.bin"
        gpt_vs_peers.make_tokens(self.tokens, VOCAB)

    def gpt(self, *, layers=4, width=128, context=64, micro_batch=4, nproc=2, strategy="zero1", more=()):
        words = ["--model", "gpt", "--strategy", strategy, "--nproc", str(nproc), "model.size=custom", f"model.n_layer={layers}",
                 "model.n_head=4", f"model.n_embd={width}", f"model.context={context}", f"model.vocab={VOCAB}",
                 f"data.path={self.tokens}", f"data.micro_batch={micro_batch}", *more]
        return run(self.folder, *words)

    def gpt_of(self, factor, **more):
        """6 layers; the parameters grow with the factor, and the width with its root."""
        return self.gpt(layers=6, width=int(256 * math.sqrt(factor)) // 64 * 64, **more)

    def parameters(self, factor):
        """Milliseconds of a step of a GPT of 6 layers, by its parameters: the width grows with their root."""
        return self.gpt_of(factor).step_ms

    def units(self, n):
        """Milliseconds of a step, by the number of blocks of width 64."""
        return self.gpt(layers=n, width=64).step_ms

    def context(self, n):
        """Milliseconds of a step of one sample of this length, without products that grow with the width."""
        return self.gpt(width=64, context=n, micro_batch=1).step_ms

    def ranks(self, n):
        """Milliseconds of a step times cores that are busy, by ranks with one sample each: more ranks than cores take turns."""
        return self.gpt(nproc=n, micro_batch=1).step_ms * min(n, os.cpu_count())

    def checkpoint(self, factor):
        """Milliseconds of a checkpoint that the steps wait for, by its size."""
        finished = self.gpt_of(factor, micro_batch=1, more=("checkpoint.every=4", "checkpoint.async=false"))
        return statistics.median(float(saved[4]) for saved in SAVED.finditer(finished.log)) * 1e3

    def dataset(self, megabytes):
        """Milliseconds of the whole program for one step, by the size of its file of tokens (a file without blocks)."""
        path = pathlib.Path(self.folder) / "long.bin"
        with open(path, "wb") as file:
            file.truncate(megabytes << 20)
        words = ["--model", "gpt", "--nproc", "2", "model.size=0.8M", f"model.vocab={VOCAB}", f"data.path={path}"]
        return run(self.folder, *words, steps=1).seconds * 1e3

    def plugins(self, n):
        """Milliseconds of `ddhost list`, which looks at all plugins, by further files in a folder of plugins."""
        folder = pathlib.Path(self.folder) / f"plugins-{n}"
        if not folder.exists():
            folder.mkdir()
            for i in range(n):
                shutil.copyfile(BUILD / "plugins/sgd.so", folder / f"sgd-{i}.so")
        begin = time.monotonic()
        subprocess.run([str(BUILD / "ddhost"), "list"], check=True, capture_output=True,
                       env=dict(os.environ, DDHOST_PLUGIN_PATH=str(folder)))
        return (time.monotonic() - begin) * 1e3


# name: the values, the exponent above which it is marked
ROWS = {"parameters": ([1, 2, 4, 8], 1.05), "ranks": ([1, 2, 4, 8], 1.05), "context": ([64, 128, 256, 512, 1024], 2.0),
        "units": ([4, 8, 16, 32, 64, 96], 1.05), "checkpoint": ([1, 2, 4, 8], 1.05),
        "dataset": ([1, 16, 256, 4096], 1.05), "plugins": ([10, 50, 100, 500], 1.05)}


def exponent(values, times):
    """The slope of the least-squares line through (log value, log time)."""
    x, y = [math.log(v) for v in values], [math.log(t) for t in times]
    mean_x, mean_y = statistics.mean(x), statistics.mean(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y)) / sum((a - mean_x)**2 for a in x)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=names, default=list(ROWS), help="rows, separated by commas")
    parser.add_argument("--rounds", type=count, default=3)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    require_known(parser, "--only", args.only, ROWS, "row")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        growth = Growth(folder)
        for name in args.only:
            values, limit = ROWS[name]
            times = {value: [] for value in values}
            for _ in range(args.rounds):
                for value in values:
                    times[value].append(getattr(growth, name)(value))
            medians = [statistics.median(times[value]) for value in values]
            slope = exponent(values, medians)
            rows.append({"row": name, "meaning": getattr(Growth, name).__doc__, "values": values, "times": medians,
                         "exponent": slope, "limit": limit, "is_marked": slope > limit})
            print(f"{name}: done", file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps({"rows": rows}, indent=2))
    else:
        show(rows)


def show(rows):
    for row in rows:
        points = "  ".join(f"{value}: {ms:.1f}" for value, ms in zip(row["values"], row["times"]))
        mark = f"   above {row['limit']}" if row["is_marked"] else ""
        print(f"{row['row']:11} exponent {row['exponent']:5.2f}{mark}\n            {points}\n            {row['meaning']}")


if __name__ == "__main__":
    main()
