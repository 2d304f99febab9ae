# SPDX-License-Identifier: Apache-2.0
"""What each promise costs in a step, on 2 ranks of this machine.

    ./dev bench promises [--only order,norm] [--steps 600] [--pairs 5] [--json]

It needs a program built with the CMake option DDHOST_LEAVES_OUT (host/base/kept.hpp), which ./dev bench promises builds into
build-promises/; plugins are those of build/. There are two kinds of rows:

- A part of each step is left out in one of two steps of a run, drawn for each pair. The row `nothing` leaves nothing out, so it
  shows the error of the measurement.
- Runs with and without an option alternate. A pair is two runs, by the mean time of a step behind the first 10.

The cost is what a step takes longer with the promise, in percent: the median of the pairs, and its standard error.
"""
import argparse
import glob
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

import gpt_vs_peers

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-promises"
WARM_UP = 10  # steps
SIZES = {  # of models/gpt: vocabulary, context, micro-batch, strategy, share of --steps
    "0.8M": (65, 64, 12, "ddp", 1.0), "gpt2": (50304, 64, 1, "zero1", 0.1)}
PARTS = {  # left out in one of two steps
    "nothing": "", "order": "order", "norm": "norm", "checks": "checks", "metrics": "metrics",
    "all of these": "order,norm,checks,metrics"}
MICRO_FIRST = ["train.grad_accum_steps=4", "train.reduce_order=micro_first"]
RANK_FIRST = ["train.grad_accum_steps=4"]
# Runs: what keeps the promise, and what does not, each as options and as parts that all steps leave out.
RUNS = {"guards": (([], ""), ([], "guards")),
        "world-free bits over 4 micro-batches": ((RANK_FIRST, ""), (MICRO_FIRST, "")),
        "a checkpoint every 50 steps": ((["checkpoint.every=50"], ""), ([], ""))}


def step_times(size, left_out, options, steps, is_always, folder):
    """(step, milliseconds until the next one begins, whether it leaves something out) of each step of rank 0."""
    vocab, context, micro_batch, strategy, _ = SIZES[size]
    tokens = pathlib.Path(folder) / f"{vocab}.bin"
    if not tokens.exists():
        gpt_vs_peers.make_tokens(tokens, vocab)
    run_dir = pathlib.Path(tempfile.mkdtemp(dir=folder))
    program = pathlib.Path(folder) / "ddhost"  # away from the plugins beside it, which are also in build/
    if not program.exists():
        shutil.copy2(BUILD / "ddhost", program)
    command = [str(program), "--strategy", strategy, "--nproc", "2", f"model.size={size}", f"model.context={context}",
               f"model.vocab={vocab}", f"data.path={tokens}", f"data.micro_batch={micro_batch}", f"train.steps={steps}",
               "train.eval_every=0", "checkpoint.every_minutes=0", "checkpoint.on_exit=false", "run.sample_tokens=0",
               "run.report=false", "train.save_final=", f"run.dir={run_dir}/run", "run.quiet=true", "device.plugin=cpu",
               *options]
    env = dict(os.environ, OMP_NUM_THREADS="1", DDHOST_PLUGIN_PATH=str(ROOT / "build/plugins"),
               DDHOST_LEAVE_OUT=left_out, DDHOST_STEP_TIMES=f"{run_dir}/times")
    if is_always:
        env["DDHOST_LEAVE_OUT_ALWAYS"] = "1"
    gpt_vs_peers.output_of(command, env)
    files = sorted(glob.glob(f"{run_dir}/times.*"))
    if not files:
        sys.exit(f"promises.py: {BUILD}/ddhost wrote no times; build it with ./dev bench promises")
    lines = [[int(word) for word in line.split()] for line in pathlib.Path(files[0]).read_text(encoding="ascii").splitlines()]
    shutil.rmtree(run_dir)
    return [(now[0], (end[1] - now[1]) / 1e6, now[2]) for now, end in zip(lines, lines[1:])]


def cost(ratios):
    """Percent of the median, and its standard error from the middle half, which single slow steps do not change."""
    low, _, high = statistics.quantiles(ratios, n=4)
    return {"percent": 100 * (statistics.median(ratios) - 1), "pairs": len(ratios),
            "error": 100 * 1.2533 * (high - low) / 1.349 / len(ratios)**0.5}


def cost_of_part(size, left_out, steps, folder):
    times = step_times(size, left_out, [], steps, False, folder)
    ratios = []
    for (step, ms, is_left_out), (_, next_ms, _) in zip(times[WARM_UP:], times[WARM_UP + 1:]):
        if step % 2 == 0:  # the first of a pair
            ratios.append(next_ms / ms if is_left_out else ms / next_ms)
    return cost(ratios)


def cost_of_run(size, kept, left, steps, pairs, folder):
    ratios = []
    for turn in range(pairs):
        mean = {}
        for name, (options, left_out) in sorted({"kept": kept, "left": left}.items(), reverse=turn % 2 == 1):
            times = step_times(size, left_out, options, steps, True, folder)[WARM_UP:]
            mean[name] = statistics.mean(ms for _, ms, _ in times)
        ratios.append(mean["kept"] / mean["left"])
    return cost(ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join([*PARTS, *RUNS]), help="words, separated by commas: rows that begin so")
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--steps", type=int, default=600, help="of a run of the 0.8M GPT; the 124M takes a tenth")
    parser.add_argument("--pairs", type=int, default=5, help="of runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    if args.pairs < 2 or args.steps < 300:
        parser.error("give at least 2 pairs and 300 steps")
    for size in args.sizes.split(","):
        if size not in SIZES:
            parser.error(f"--sizes {size}: there is no such size; choose from {', '.join(SIZES)}")
    wanted = [word for word in args.only.split(",") if word]
    for word in wanted:
        if not any(name.startswith(word) for name in [*PARTS, *RUNS]):
            parser.error(f"--only {word}: there is no such row; choose from {', '.join([*PARTS, *RUNS])}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in args.sizes.split(","):
            steps = int(args.steps * SIZES[size][4])
            for name in [*PARTS, *RUNS]:
                if not any(name.startswith(word) for word in wanted):
                    continue
                found = (cost_of_part(size, PARTS[name], steps, folder) if name in PARTS else
                         cost_of_run(size, *RUNS[name], steps, args.pairs, folder))
                rows.append({"model": f"GPT {size}, {SIZES[size][3]}", "promise": name, **found})
                if not args.json:
                    row = rows[-1]
                    print(f"{row['model']:18} {name:34} {row['percent']:6.2f} % +- {row['error']:.2f}  "
                          f"({row['pairs']} pairs)", flush=True)
    if args.json:
        print(json.dumps({"rows": rows}, indent=2))


if __name__ == "__main__":
    main()
