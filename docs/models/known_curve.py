#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the documented losses of a configuration (run.known_curve).
usage: known_curve.py [--every N] [--first M] OUT.json RUN_FOLDER OTHER_SEED_RUN_FOLDER...

The losses are those of the first run. The noise of a step is how far the runs with other seeds are from it, at most, within two
steps before and after. --every N keeps the first step and each N-th. --first M keeps the first M steps; the runs may have been
stopped after them.
"""
import argparse
import json
import os
import sys

import metrics_file

REACH = 2  # steps


def losses_of(folder, first):
    path = os.path.join(folder, "metrics.jsonl")
    rows = metrics_file.with_numbers([o for o in metrics_file.read(path) if "step_ms" in o], "loss", path)
    if [o["step"] for o in rows] != list(range(1, len(rows) + 1)):
        sys.exit(f"{path} does not have each step once, from the first on; set monitor.every=1")
    if first and len(rows) < first:
        sys.exit(f"{path} has {len(rows)} steps, not {first}; run it for longer")
    return [o["loss"] for o in rows][:first]


def flat(value, prefix=""):
    for name, one in value.items():
        if isinstance(one, dict):
            yield from flat(one, prefix + name + ".")
        else:
            yield prefix + name, one


def options_of(config):
    sections = ("model", "train", "precision", "optimizer", "schedule", "data")
    options = {k: v for k, v in flat(config) if k == "run.seed" or k.split(".")[0].split("_")[0] in sections}
    for key, value in options.items():
        if isinstance(value, str) and "/" in value:
            options[key] = value.rsplit("/", 1)[1]  # no path of this machine
    if isinstance(config["data"]["micro_batch"], int):
        options["samples of a step"] = (config["data"]["micro_batch"] * config["train"]["grad_accum_steps"] *
                                        config["run"]["nproc"])
    return options


def count(word):
    if not word.isdigit() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"'{word}' is no number of steps; give one from 1 on")
    return int(word)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=count, default=1, metavar="N")
    parser.add_argument("--first", type=count, metavar="M")
    parser.add_argument("out", metavar="OUT.json")
    parser.add_argument("folder", metavar="RUN_FOLDER")
    parser.add_argument("others", metavar="OTHER_SEED_RUN_FOLDER", nargs="+")
    args = parser.parse_args()
    folder, every = args.folder, args.every
    losses, others = losses_of(folder, args.first), [losses_of(one, args.first) for one in args.others]
    if any(len(one) != len(losses) for one in others):
        sys.exit("the runs have different numbers of steps")
    far = [max(abs(one[i] - loss) for one in others) for i, loss in enumerate(losses)]
    noise = [max(far[max(0, i - REACH):i + REACH + 1]) for i in range(len(far))]
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    steps = [step for step in range(1, len(losses) + 1) if step == 1 or step % every == 0]
    curve = {"options": options_of(config)} | ({"steps": steps} if every > 1 else {})
    curve["losses"] = [losses[step - 1] for step in steps]
    curve["noise"] = [float(f"{noise[step - 1]:.3g}") for step in steps]
    with open(os.path.join(folder, "run.json")) as file:
        start = json.load(file)["starts"][-1]
    curve["surroundings"] = {"epoch_samples": start["epoch_samples"], "instructions": start["machine"]["instructions"]}
    with open(args.out, "w") as file:
        json.dump(curve, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
