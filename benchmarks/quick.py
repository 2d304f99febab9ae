#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmarks that have a floor, in a few minutes: steps of GPTs on 2 ranks, the optimizer on one core, collectives.

A row has ours, the floor and floor / ours. The floor of a step is what this machine needs for its matrix products, with the
fastest library for each layer, and for the optimizer's pass at the rate of a copy, while all ranks are busy (step_limit). That
of other rows is what the memory takes for their bytes. All floors are measured in the same run. If DDHOST_PEER_PYTHON names a
Python with torch, a step also has torch DDP beside it, alternating, and peer / ours. Other models have no floor here; their
rows need the data sets of their configurations. Steal is the part of the cores' time that the host of a virtual machine gave
to others; a row with more than 5 % is marked, because its time says little. `--json` prints an object instead. `--charts FOLDER`
also draws each table as FOLDER/performance_TABLE.svg.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import gpt_vs_peers
from chart import chart

BINARIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "benchmarks")
MOST_STEAL = 5.0  # percent
RANKS, ROUNDS = 2, 3
PEER_ROUNDS = 2  # a peer takes ten seconds to start
SIZES = {  # of models/gpt: layers, width
    "gpt2": (12, 768), "0.8M": (4, 128)}
# size, vocabulary, context, micro-batch, dtype, steps, strategies
STEPS = [("gpt2", 50304, 64, 1, "fp32", 6, ("ddp", "zero1", "zero3")),
         ("gpt2", 50304, 256, 1, "fp32", 4, ("zero1",)),
         ("gpt2", 50304, 64, 1, "bf16", 6, ("zero1",)),
         ("0.8M", 65, 64, 12, "fp32", 60, ("ddp",))]
MODELS = ["vit_tiny", "cnn_tiny", "cnn_mnist", "kgat_tiny", "kgat_lastfm", "cad_mllm_tiny"]  # configurations


def ticks():
    """Stolen and all ticks of all cores since the start."""
    with open("/proc/stat", encoding="ascii") as stat:
        fields = [int(field) for field in stat.readline().split()[1:9]]
    return fields[7], sum(fields)


def steal_since(before):
    """Percent of the time since those ticks."""
    stolen, every = (after - then for after, then in zip(ticks(), before))
    return 100.0 * stolen / max(every, 1)


def measured(*command):
    """The output of a program of the build, and the percent of time that was stolen meanwhile."""
    before = ticks()
    path = os.path.join(BINARIES, command[0])
    try:
        done = subprocess.run([path, *command[1:]], check=True, stdout=subprocess.PIPE, text=True,
                              env=dict(os.environ, OMP_NUM_THREADS="1"))  # as a rank of a run has
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"quick.py: {command[0]} failed ({error}); build it with ./dev bench --quick")
    return done.stdout, steal_since(before)


def optimizer_rows():
    """The floor of a row is its bytes at the rate of a copy, which the same program measures. Reads alone are faster."""
    text, steal = measured("optimizer_bench")
    rate_of = {name.strip(): (float(ns), float(rate)) for name, ns, rate in
               re.findall(r"^(.{28}) ([\d.]+) ns/element .*?([\d.]+) GB/s$", text, re.M)}
    if "copy" not in rate_of:
        sys.exit("quick.py: optimizer_bench printed no copy; build it with ./dev bench --quick")
    copy_rate = rate_of.pop("copy")[1]
    return [{"row": f"optimizer, {name}", "unit": "ns per element", "ours": ns, "floor": ns * rate / copy_rate,
             "steal_percent": steal} for name, (ns, rate) in rate_of.items()]


def limit_of(size, vocab, rows, dtype):
    """Milliseconds of a step's products, and of an update of all parameters; rows: tokens of a rank."""
    layers, width = SIZES[size]
    blocks = [f"{w_in}:{w_out}x{layers}" for w_in, w_out in
              ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))]
    text, _ = measured("step_limit", "--ranks", str(RANKS), "--rows", str(rows), "--dtype", dtype, *blocks,
                       f"{width}:{vocab}x1")
    limit = json.loads(text)
    return limit["products_ms"], limit["update_ns"] * (12 * layers * width**2 + width * vocab) / 1e6


def step_rows(python):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size, vocab, context, micro_batch, dtype, steps, strategies in STEPS:
            args = argparse.Namespace(nproc=RANKS, size=size, vocab=vocab, context=context, micro_batch=micro_batch,
                                      dtype=dtype, steps=steps, warmup=2, python=python, peer_preload="")
            tokens = pathlib.Path(folder) / f"{vocab}.bin"
            gpt_vs_peers.make_tokens(tokens, vocab)
            products_ms, update_ms = limit_of(size, vocab, context * micro_batch, dtype)
            before = ticks()
            peers, ours = [], {strategy: [] for strategy in strategies}
            for turn in range(ROUNDS):
                if python and turn < PEER_ROUNDS:
                    peers.append(gpt_vs_peers.run_peer(args, "torch:ddp", tokens))
                for strategy in strategies:
                    ours[strategy].append(gpt_vs_peers.run_ddhost(args, strategy, tokens, folder))
            steal = steal_since(before)
            for strategy, times in ours.items():
                share = 1 if strategy == "ddp" else RANKS  # each rank of ddp updates all parameters
                row = {"row": f"GPT {size} {dtype}, {micro_batch} x {context} tokens, {strategy}", "unit": "ms",
                       "ours": statistics.median(times), "floor": products_ms + update_ms / share, "steal_percent": steal}
                if peers:
                    row |= {"peer": "torch DDP", "peer_over_ours": statistics.median(
                        peer / mine for peer, mine in zip(peers, times))}
                rows.append(row)
    return rows


def model_rows():
    """Steps of other models, as their configurations have them."""
    rows = []
    root = pathlib.Path(BINARIES).resolve().parent
    for config in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            before = ticks()
            command = [str(root / "ddhost"), "--config", str(root.parent / f"configs/{config}.json"), "--nproc", str(RANKS),
                       "train.steps=12", "train.eval_every=0", "run.quiet=true", "run.sample_tokens=0", "monitor.every=1",
                       "train.save_final=", f"run.dir={folder}/run"]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode != 0:
                reason = done.stderr.strip().splitlines()
                print(f"left out: {config}: {reason[-1] if reason else 'it failed'}", file=sys.stderr)
                continue
            rows.append({"row": f"{config}, a step of its configuration", "unit": "ms", "floor": None,
                         "ours": gpt_vs_peers.step_ms_of(f"{folder}/run", 2), "steal_percent": steal_since(before)})
    return rows


def collective_rows():
    text, _ = measured("collective_bench", "--json", "--ranks", "2", "--rounds", "3",
                       "--sizes", "1024,1048576,16777216")
    return [{"row": f"{row['transport']}, {row['operation']}, {row['memory']}, {row['bytes']} bytes, {row['ranks']} ranks",
             "unit": "us", "ours": row["us"], "floor": row["floor_us"], "steal_percent": row["steal_percent"],
             "is_right": row["is_right"]} for row in json.loads(text)["rows"]]


def points_of(table, rows):
    """(label, {series: time}) for a chart. Transports of the same collective share a line."""
    if table != "collectives":
        return [(row["row"], {"floor": row["floor"], "ours": row["ours"]} |
                 ({row["peer"]: row["ours"] * row["peer_over_ours"]} if "peer" in row else {})) for row in rows]
    points = {}
    for row in rows:
        transport, operation, memory, size, _ = row["row"].split(", ")
        series = transport if transport != "shm" else "windows" if memory == "window" else "private memory"
        points.setdefault(f"{operation}, {size}", {"floor": row["floor"]})[series] = row["ours"]
    return list(points.items())


def draw(folder, tables):
    """A chart for each table, and whether all could be written."""
    try:
        os.makedirs(folder, exist_ok=True)
        for table, rows in tables.items():
            text = chart(f"{table}, on 2 ranks" if table != "optimizer" else table, rows[0]["unit"] if rows else "",
                         points_of(table, rows))
            pathlib.Path(folder, f"performance_{table}.svg").write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"quick.py: no charts in '{folder}': {error.strerror}; give a folder that can be written", file=sys.stderr)
        return False
    return True


def machine():
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
        name = re.search(r"^model name\s*:\s*(.*)$", info.read(), re.M)
    with open("/proc/meminfo", encoding="ascii") as info:
        total = int(info.readline().split()[1])
    return {"processor": name.group(1) if name else "unknown", "cores": os.cpu_count(),
            "memory_gib": round(total / 2**20, 1), "load": os.getloadavg()[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--charts", metavar="FOLDER", help="write a chart of each table into this folder")
    args = parser.parse_args()
    where = machine()
    before = ticks()
    tables = {"steps": step_rows(os.environ.get("DDHOST_PEER_PYTHON", "")), "models": model_rows(),
              "optimizer": optimizer_rows(), "collectives": collective_rows()}
    rows = [row for table in tables.values() for row in table]
    where["steal_percent"] = steal_since(before)
    for row in rows:
        row["floor_over_ours"] = row["floor"] / row["ours"] if row["floor"] is not None and row["ours"] > 0 else None
        row["is_marked"] = row["steal_percent"] > MOST_STEAL
    show(args.json, where, rows)
    if args.charts and not draw(args.charts, tables):
        sys.exit(1)


def show(wants_json, where, rows):
    if wants_json:
        print(json.dumps({"machine": where, "rows": rows}, indent=2))
        return
    print(f"{where['processor']}, {where['cores']} cores, {where['memory_gib']} GiB; load {where['load']:.1f} at the "
          f"start, steal {where['steal_percent']:.1f} %")
    print(f"{'':58} {'ours':>11} {'floor':>11} {'floor/ours':>10} {'peer/ours':>9} {'steal %':>8}")
    for row in rows:
        marks = (" steal" if row["is_marked"] else "") + ("" if row.get("is_right", True) else " WRONG RESULT")
        number = lambda key, width, digits: f"{row[key]:{width}.{digits}f}" if row.get(key) is not None else "-".rjust(width)
        print(f"{row['row']:58} {row['ours']:11.3f} {number('floor', 11, 3)} {number('floor_over_ours', 10, 2)} "
              f"{number('peer_over_ours', 9, 2)} {row['steal_percent']:8.1f} {row['unit']}{marks}")


if __name__ == "__main__":
    main()
