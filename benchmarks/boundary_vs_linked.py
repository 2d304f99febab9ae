# SPDX-License-Identifier: Apache-2.0
"""The cross-check of the plugin boundary: the 0.8M GPT with loaded plugins and with the same plugins linked, alternating.

    python3 benchmarks/boundary_vs_linked.py [--pairs 5] [--steps 200] [--json]
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

import gpt_vs_peers
from arguments import count

BUILD = pathlib.Path(__file__).resolve().parent.parent / "build"
WARM_UP = 5  # steps


def median_ms(command, folder):
    run_dir = pathlib.Path(tempfile.mkdtemp(dir=folder)) / "run"
    subprocess.run([*command, f"run.dir={run_dir}"], check=True, capture_output=True)
    return gpt_vs_peers.step_ms_of(run_dir, WARM_UP)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=count, default=5)
    parser.add_argument("--steps", type=count, default=200)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    if args.steps <= WARM_UP:
        parser.error(f"--steps {args.steps}: the first {WARM_UP} are warm-up; give more")
    options = ["model.size=0.8M", "data.micro_batch=6", f"train.steps={args.steps}", "run.nproc=2", "run.sample_tokens=0",
               "run.quiet=true", "device.plugin=cpu"]
    loaded, linked = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.pairs):
            loaded.append(median_ms([str(BUILD / "ddhost"), "--strategy", "zero1", *options], folder))
            linked.append(median_ms([str(BUILD / "benchmarks/boundary_bench"), *options], folder))
    ratios = [a / b for a, b in zip(loaded, linked)]
    rows = [{"row": "0.8M GPT, 2 ranks", "unit": "ms", "loaded": statistics.median(loaded), "linked": statistics.median(linked),
             "loaded_over_linked": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios), "pairs": args.pairs}]
    if args.json:
        print(json.dumps({"rows": rows}, indent=2))
    else:
        show(rows)


def show(rows):
    for row in rows:
        print(f"{row['row']}: loaded {row['loaded']:.2f} ms, linked {row['linked']:.2f} ms a step; ratio "
              f"{row['loaded_over_linked']:.4f} ({row['lowest']:.4f} .. {row['highest']:.4f}), {row['pairs']} pairs")


if __name__ == "__main__":
    main()
