# SPDX-License-Identifier: Apache-2.0
"""What each promise costs in a step, on 2 ranks of this machine.

    ./dev bench promises [--only exact,checks] [--sizes 0.8M,gpt2] [--steps 1200] [--pairs 5] [--json]

It needs a program built with the CMake option DDHOST_LEAVES_OUT (host/base/step_extras.hpp), which ./dev bench promises builds
into build-promises/; plugins are those of build/. There are two kinds of rows:

- Work of a step is left out in one of two blocks of 8 steps, in the first and in the second in turn. A block counts without
  its first step, because a rank that took longer may have waited less. The row `nothing` leaves nothing out, so it shows the
  error of the measurement. Work that only few steps have, such as the comparison of replicas after 1, 2, 4, 8, ... steps, is
  not in a median.
- Runs with and without an option alternate. A pair is two runs. A run counts by the median time of its steps after the first
  10, and by their mean where only few steps have the work, as with checkpoints.

The cost is what a step takes longer with the promise, in percent: the median of the pairs; with its standard error, or for
runs the lowest and the highest pair. Guard bytes have no row, because they are written and read when memory is allocated and
released, and sums in the order of ranks have none, because in shared pages they are the same operations in every order.
"""
import argparse
import collections
import glob
import json
import math
import os
import pathlib
import random
import shutil
import statistics
import sys
import tempfile

import gpt_vs_peers
from arguments import count, names, require_known

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-promises"
WARM_UP, BLOCK = 10, 8  # steps
Size = collections.namedtuple("Size", "vocab context micro_batch strategy share run_steps")  # share: of --steps
SIZES = {  # of models/gpt. The last step has no time, so 150 and 25 steps of a run of a pair count: 6 checkpoints, and 1
    "0.8M": Size(65, 64, 12, "ddp", 1.0, 161), "gpt2": Size(50304, 64, 1, "zero1", 0.15, 36)}
PARTS = {  # what DDHOST_LEAVE_OUT names
    "nothing": "", "exact norm": "norm", "checks of plugins": "checks", "metrics": "metrics",
    "all of these": "norm,checks,metrics"}
RUNS = {  # options with the promise; options without it; the average of a run's steps
    "world-free bits over 4 micro-batches": (["train.grad_accum_steps=4"],
                                             ["train.grad_accum_steps=4", "train.reduce_order=micro_first"], statistics.median),
    "a checkpoint every 25 steps": (["checkpoint.every=25"], [], statistics.mean)}


def step_times(size, left_out, options, steps, folder):
    """{step: (milliseconds until the next one begins, the mean of all ranks; whether it leaves something out)}."""
    given = SIZES[size]
    tokens = pathlib.Path(folder) / f"{given.vocab}.bin"
    if not tokens.exists():
        gpt_vs_peers.make_tokens(tokens, given.vocab)
    run_dir = pathlib.Path(tempfile.mkdtemp(dir=folder))
    program = pathlib.Path(folder) / "ddhost"  # away from the plugins beside it, which are also in build/
    if not program.exists():
        shutil.copy2(BUILD / "ddhost", program)
    command = [str(program), "--strategy", given.strategy, "--nproc", "2", f"model.size={size}",
               f"model.context={given.context}", f"model.vocab={given.vocab}", f"data.path={tokens}",
               f"data.micro_batch={given.micro_batch}", f"train.steps={steps}", "train.eval_every=0",
               "checkpoint.every_minutes=0", "checkpoint.on_exit=false", "run.sample_tokens=0", "run.report=false",
               "train.save_final=", f"run.dir={run_dir}/run", "run.quiet=true", "device.plugin=cpu", *options]
    gpt_vs_peers.output_of(command, dict(os.environ, OMP_NUM_THREADS="1", DDHOST_PLUGIN_PATH=str(ROOT / "build/plugins"),
                                         DDHOST_LEAVE_OUT=left_out, DDHOST_STEP_TIMES=f"{run_dir}/times"))
    files = glob.glob(f"{run_dir}/times.*")
    if len(files) != 2:
        sys.exit(f"promises.py: {BUILD}/ddhost wrote times of {len(files)} ranks instead of 2; build it with ./dev bench promises")
    ranks = [[[int(word) for word in line.split()] for line in pathlib.Path(file).read_text(encoding="ascii").splitlines()]
             for file in files]
    shutil.rmtree(run_dir)
    return {now[0][0]: (statistics.mean(end[1] - begin[1] for begin, end in zip(now, then)) / 1e6, now[0][2])
            for now, then in zip(zip(*ranks), list(zip(*ranks))[1:])}


def pairs_of_blocks(times):
    """Logarithms of kept / left, for pairs whose first block keeps the work, and for those whose second one does."""
    blocks = {}
    for step, (ms, is_left_out) in times.items():
        if step >= WARM_UP and step % BLOCK != 0:
            blocks.setdefault(step // BLOCK, []).append((ms, is_left_out))
    pairs = ([], [])
    for index in (i for i in blocks if i % 2 == 0 and i + 1 in blocks):
        first, second = blocks[index], blocks[index + 1]
        if min(len(first), len(second)) < BLOCK - 1:
            continue
        ratio = math.log(statistics.mean(ms for ms, _ in first) / statistics.mean(ms for ms, _ in second))
        pairs[first[0][1]].append(-ratio if first[0][1] else ratio)
    return pairs


def median_cost(pairs):
    """Percent. The two kinds of pairs count alike, so a drift from block to block cancels."""
    return 100 * (math.exp(statistics.mean(statistics.median(kind) for kind in pairs)) - 1)


def cost_of_part(size, left_out, steps, folder):
    pairs = pairs_of_blocks(step_times(size, left_out, [], steps, folder))
    if min(len(kind) for kind in pairs) < 3:
        sys.exit(f"promises.py: {steps} steps of {size} give too few pairs; give more --steps")
    draw = random.Random(1)
    errors = [median_cost([draw.choices(kind, k=len(kind)) for kind in pairs]) for _ in range(500)]
    return {"percent": median_cost(pairs), "pairs": sum(len(kind) for kind in pairs), "error": statistics.stdev(errors)}


def cost_of_run(size, kept, left, average, pairs, folder):
    steps, costs = SIZES[size].run_steps, []
    for turn in range(pairs):
        step_ms = {}
        for name, options in sorted({"kept": kept, "left": left}.items(), reverse=turn % 2 == 1):
            times = step_times(size, "", options, steps, folder)
            step_ms[name] = average(ms for step, (ms, _) in times.items() if step > WARM_UP)
        costs.append(100 * (step_ms["kept"] / step_ms["left"] - 1))
    return {"percent": statistics.median(costs), "pairs": pairs, "lowest": min(costs), "highest": max(costs)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join([*PARTS, *RUNS]), help="words, separated by commas: rows that begin so")
    parser.add_argument("--sizes", type=names, default=list(SIZES))
    parser.add_argument("--steps", type=count, default=1200, help="of a run of the 0.8M GPT with blocks; the 124M takes 0.15 of them")
    parser.add_argument("--pairs", type=count, default=5, help="of runs with and without an option")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    if args.pairs < 2:
        parser.error("--pairs: give at least 2")
    if not (BUILD / "ddhost").exists():
        parser.error(f"there is no {BUILD}/ddhost; ./dev bench promises builds it")
    require_known(parser, "--sizes", args.sizes, SIZES, "size")
    wanted = names(args.only)
    for word in wanted:
        if not any(name.startswith(word) for name in [*PARTS, *RUNS]):
            parser.error(f"--only {word}: there is no such row; choose from {', '.join([*PARTS, *RUNS])}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in args.sizes:
            for name in [*PARTS, *RUNS]:
                if not any(name.startswith(word) for word in wanted):
                    continue
                found = (cost_of_part(size, PARTS[name], int(args.steps * SIZES[size].share), folder) if name in PARTS else
                         cost_of_run(size, *RUNS[name], args.pairs, folder))
                rows.append({"model": f"GPT {size}, {SIZES[size].strategy}", "promise": name, **found})
                if args.json:
                    print(f"{size}, {name}: done", file=sys.stderr, flush=True)
                else:
                    show(rows[-1:])
    if args.json:
        print(json.dumps({"rows": rows}, indent=2))


def show(rows):
    for row in rows:
        spread = f"+- {row['error']:.2f}" if "error" in row else f"({row['lowest']:.2f} .. {row['highest']:.2f})"
        print(f"{row['model']:18} {row['promise']:38} {row['percent']:6.2f} % {spread}, {row['pairs']} pairs", flush=True)


if __name__ == "__main__":
    main()
