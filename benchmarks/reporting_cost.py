# SPDX-License-Identifier: Apache-2.0
"""What a run's reports cost: the 0.8M GPT with all monitors, lines of progress and the page, and with metrics.jsonl alone.

    python3 benchmarks/reporting_cost.py [--pairs 20] [--steps 600] [--strategy zero2] [--nproc 2]

Both alternate. A pair gives the time of a step without the reports divided by that with them, the median of the steps behind
the first 20. DDHOST_BUILD and DDHOST_DATA name other folders than build/ and ../shared/data.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from arguments import count

ROOT = pathlib.Path(__file__).resolve().parent.parent
WITHOUT = ['monitor.plugins=["jsonl"]', "monitor.progress=off", "run.report=false"]
WITH = ['monitor.plugins=["jsonl","csv","tensorboard","prometheus","wandb","sqlite"]', "monitor.print_every=10",
        "--page", "127.0.0.1:0"]


def step_ms(options, args):
    with tempfile.TemporaryDirectory() as folder:
        run_dir = pathlib.Path(folder) / "run"
        program = pathlib.Path(os.environ.get("DDHOST_BUILD", ROOT / "build")) / "ddhost"
        words = [program, "--config", ROOT / "configs/gpt_char.json", "--strategy", args.strategy, "--nproc", args.nproc,
                 f"train.steps={args.steps}", "train.eval_every=0", "run.sample_tokens=0", "checkpoint.every=0",
                 "checkpoint.every_minutes=0", "checkpoint.on_exit=false", f"run.dir={run_dir}", *options]
        done = subprocess.run([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env=dict({"DDHOST_DATA": str(ROOT.parent / "shared/data")}, **os.environ))
        if done.returncode != 0:
            sys.exit(f"a run ended with {done.returncode}: {done.stderr[-2000:]}")
        rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
        return statistics.median(row["step_ms"] for row in rows if row.get("step", 0) > 20 and "step_ms" in row)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=count, default=20)
    parser.add_argument("--steps", type=count, default=600)
    parser.add_argument("--strategy", default="zero2")
    parser.add_argument("--nproc", default="2")
    args = parser.parse_args()
    if args.pairs < 2 or args.steps <= 20:
        sys.exit("reporting_cost.py: give at least 2 pairs and 21 steps")
    ratios = []
    for pair in range(args.pairs):
        ms = {}
        for name in ("without", "with") if pair % 2 == 0 else ("with", "without"):
            ms[name] = step_ms(WITHOUT if name == "without" else WITH, args)
        ratios.append(ms["without"] / ms["with"])
        print(f"pair {pair + 1}: {ms['without']:.2f} ms without, {ms['with']:.2f} ms with, {ratios[-1]:.3f}", flush=True)
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    print(f"speed with reports: median {statistics.median(ratios):.3f}, mean {statistics.mean(ratios):.3f} +- {error:.3f} of "
          f"that without, {len(ratios)} pairs")


main()
