#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmarks that have a floor, in a few minutes: steps of GPTs and other models on 2 ranks, the optimizer, collectives.

A row has ours, the floor and floor / ours. The floor of a GPT's step is what this machine needs for its matrix products, with
the fastest library for each layer, and for the optimizer's pass at the rate of the memory, while all ranks are busy (step_limit).
That of another model's step is its operations, as the model counts them, at the rate of multiply-adds that a core reaches in its
caches, and the same pass: no step of small operators comes near it. That of other rows is what the memory takes for their
bytes, and for collectives also one way between two cores. All floors are measured in the same run (machine_rates prints more).

If DDHOST_PEER_PYTHON names a Python with torch, there are peers, and peer / ours: torch DDP, eager, alternating with the steps of
a GPT, in one pair with those of other models; the faster of PyTorch's and DeepSpeed's AdamW; for shm, gloo. A part whose peer or
data set is not there is left out, and the reason printed. Another failure is printed too, and the exit code is 1.

Steal is the part of the cores' time that the host of a virtual machine gave to others; a row with more than 5 % is marked, because
its time says little. So is a step of a GPT during which the rate of the memory changed by a fifth, which happens where the host
moves the cores. `--json` prints an object instead. `--charts FOLDER` also draws each table as FOLDER/performance_TABLE.svg.
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
import models_vs_torch
from chart import chart, write_charts
from gpt_vs_peers import missing_of

BINARIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "benchmarks")
MOST_STEAL = 5.0  # percent
MOST_MEMORY_RATIO = 1.2  # of the memory's rates before and after a row
RANKS, ROUNDS = 2, 3
PEER_ROUNDS = 2  # a peer takes ten seconds to start
SIZES = {  # of models/gpt: layers, width
    "gpt2": (12, 768), "0.8M": (4, 128)}
NAMES = {"gpt2": "124M"}  # of sizes, in tables
# size, vocabulary, context, micro-batch, dtype, steps, strategies
STEPS = [("gpt2", 50304, 64, 1, "fp32", 6, ("ddp", "zero1", "zero3")),
         ("gpt2", 50304, 256, 1, "fp32", 4, ("zero1",)),
         ("gpt2", 50304, 64, 1, "bf16", 6, ("zero1",)),
         ("0.8M", 65, 64, 12, "fp32", 60, ("ddp",))]
MODELS = ["vit_tiny", "cnn_tiny", "cnn_mnist", "kgat_tiny", "kgat_lastfm", "cad_mllm_tiny"]  # configurations
PEER_MODELS = ["vit:small", "cnn:basic", "cnn:mobilenet_v2", "kgat:cf", "kgat:kg", "cad_mllm:tiny:3"]  # of models_vs_torch.py
MODEL_MODULES = ["torch", "torchvision", "transformers", "peft", "safetensors"]  # of their peers
MODEL_WARM_UP, MODEL_STEPS = 3, 8
PEER_OPTIMIZERS = {"adamw fp32": 1, "adamw, tensors of 4,096": 8192}  # the tensors of a row


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
        done = subprocess.run([path, *command[1:]], check=False, stdout=subprocess.PIPE, text=True,
                              env=dict(os.environ, OMP_NUM_THREADS="1"))  # as a rank of a run has
    except OSError as error:
        sys.exit(f"quick.py: {command[0]} can't be started ({error.strerror}); ./dev bench --quick builds it")
    if done.returncode != 0:
        sys.exit(f"quick.py: {command[0]} failed, for the reason above")
    return done.stdout, steal_since(before)


def left_out(what, reason):
    print(f"left out: {what}: {reason}", file=sys.stderr)


def peer_optimizers(python):
    """Number of tensors: the fastest peer's name and nanoseconds."""
    script = pathlib.Path(__file__).resolve().parent / "peers/optimizers.py"
    done = subprocess.run([python, str(script)], check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("quick.py: the peers of the optimizer failed, for the reason above")
    fastest = {}
    for row in (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")):
        if row["tensors"] not in fastest or row["ns"] < fastest[row["tensors"]][1]:
            fastest[row["tensors"]] = (row["row"], row["ns"])
    return fastest


def optimizer_rows(python):
    text, steal = measured("optimizer_bench")
    found = re.findall(r"^(.{28}) ([\d.]+) ns/element .* GB/s, floor ([\d.]+)$", text, re.M)
    if not found:
        sys.exit("quick.py: optimizer_bench printed no row; build it with ./dev bench --quick")
    peers = peer_optimizers(python) if python else {}
    rows = []
    for name, ns, floor in ((name.strip(), float(ns), float(floor)) for name, ns, floor in found):
        row = {"row": f"optimizer, {name}", "unit": "ns per element", "ours": ns, "floor": floor or None, "steal_percent": steal}
        peer, peer_ns = peers.get(PEER_OPTIMIZERS.get(name), ("", 0))
        rows.append(row | ({"peer": peer, "peer_over_ours": peer_ns / ns} if peer else {}))
    return rows


def rates():
    return json.loads(measured("machine_rates", "--ranks", str(RANKS))[0])


def limit_of(size, vocab, rows, dtype):
    """Milliseconds of a step's products, nanoseconds of the update of a parameter, and parameters; rows: tokens of a rank."""
    layers, width = SIZES[size]
    blocks = [f"{w_in}:{w_out}x{layers}" for w_in, w_out in
              ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))]
    text, _ = measured("step_limit", "--ranks", str(RANKS), "--rows", str(rows), "--dtype", dtype, *blocks,
                       f"{width}:{vocab}x1")
    limit = json.loads(text)
    return limit["products_ms"], limit["update_ns"], 12 * layers * width**2 + width * vocab


def step_rows(python):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size, vocab, context, micro_batch, dtype, steps, strategies in STEPS:
            args = argparse.Namespace(nproc=RANKS, size=size, vocab=vocab, context=context, micro_batch=micro_batch,
                                      dtype=dtype, steps=steps, warmup=2, python=python)
            tokens = pathlib.Path(folder) / f"{vocab}.bin"
            gpt_vs_peers.make_tokens(tokens, vocab)
            products_ms, update_ns, parameters = limit_of(size, vocab, context * micro_batch, dtype)
            before = ticks()
            peers, ours = [], {strategy: [] for strategy in strategies}
            for turn in range(ROUNDS):
                if python and turn < PEER_ROUNDS:
                    peers.append(gpt_vs_peers.run_peer(args, "torch:ddp", tokens))
                for strategy in strategies:
                    ours[strategy].append(gpt_vs_peers.run_ddhost(args, strategy, tokens, folder))
            steal, later_ns = steal_since(before), rates()["update_ns"]
            update_ms = (update_ns + later_ns) / 2 * parameters / 1e6
            for strategy, times in ours.items():
                share = 1 if strategy == "ddp" else RANKS  # each rank of ddp updates all parameters
                row = {"row": f"GPT {NAMES.get(size, size)} {dtype}, {micro_batch} x {context} tokens, {strategy}", "unit": "ms",
                       "ours": statistics.median(times), "floor": products_ms + update_ms / share, "steal_percent": steal,
                       "memory_ratio": later_ns / update_ns}
                if peers:
                    row |= {"peer": "torch DDP", "peer_over_ours": statistics.median(
                        peer / mine for peer, mine in zip(peers, times))}
                rows.append(row)
    return rows


def floor_of(run_dir, update_ns):
    """Milliseconds of a step of a run of another model: its operations at a core's peak, and the update."""
    rows = [json.loads(line) for line in (pathlib.Path(run_dir) / "metrics.jsonl").read_text().splitlines()]
    train, summary = json.loads((pathlib.Path(run_dir) / "config.json").read_text())["train"], rows[-1]["summary"]
    of_program = {one["program"]: 1e3 * (one["forward_flops"] + one["backward_flops"]) * train["grad_accum_steps"] /
                  one["peak_flops_per_s_of_a_rank"] for one in summary["estimates"]}
    only = next(iter(of_program))  # a row names its program where several take turns
    products_ms = statistics.median(of_program[row.get("program", only)] for row in rows
                                    if row.get("step", 0) > MODEL_WARM_UP and "step_ms" in row)
    state_bytes = max(rank["plan_bytes"]["optim"] for rank in summary["ranks"])  # of Adam, 8 for each parameter
    return products_ms + update_ns * state_bytes / 8 / len(train["optimizers"]) / 1e6


def configured_model(config, folder, update_ns):
    """A step of another model, as its configuration has it. None where its data set is missing."""
    root = pathlib.Path(BINARIES).resolve().parent
    before = ticks()
    command = [str(root / "ddhost"), "--config", str(root.parent / f"configs/{config}.json"), "--nproc", str(RANKS),
               f"train.steps={MODEL_WARM_UP + 10}", "train.eval_every=0", "run.quiet=true", "run.sample_tokens=0",
               "monitor.every=1", "train.save_final=", "device.plugin=cpu", f"run.dir={folder}/run"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        if "DDHOST_DATA" not in reason:  # the sentence about a data set that is not there
            raise SystemExit(reason)
        return left_out(config, reason)
    return {"row": f"{config}, a step of its configuration", "unit": "ms", "floor": floor_of(f"{folder}/run", update_ns),
            "ours": gpt_vs_peers.step_ms_of(f"{folder}/run", MODEL_WARM_UP), "steal_percent": steal_since(before)}


def model_beside_torch(name, folder, update_ns, python):
    """A step of another model, and PyTorch's of the same work."""
    before = ticks()
    args = argparse.Namespace(python=python, steps=MODEL_STEPS, warmup=MODEL_WARM_UP, compile=False, tolerance=0.02)
    one = models_vs_torch.one_round(args, name, RANKS, pathlib.Path(folder))
    samples, _, unit, _ = models_vs_torch.MODELS[name]
    return {"row": f"{name}, {samples} {unit} a rank", "unit": "ms", "floor": floor_of(one.run_dir, update_ns), "ours": one.ours,
            "peer": "torch DDP", "peer_over_ours": one.theirs / one.ours, "steal_percent": steal_since(before)}


def model_rows(python, failed):
    """Names of models that failed are added to `failed`."""
    update_ns, rows = rates()["update_ns"], []
    beside = PEER_MODELS if python else []
    if beside and not models_vs_torch.data_folder().exists():
        beside = left_out("models beside PyTorch", f"there is no data in {models_vs_torch.data_folder()}; set DDHOST_DATA") or []
    if beside and (missing := missing_of(python, MODEL_MODULES)):
        beside = left_out("models beside PyTorch", f"there is no {missing} in {python}; run ./dev setup --peers") or []
    for name in [*MODELS, *beside]:
        try:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(model_beside_torch(name, folder, update_ns, python) if name in beside else
                            configured_model(name, folder, update_ns))
        except (SystemExit, ValueError, LookupError, OSError) as reason:
            print(f"quick.py: {name} failed: {reason}", file=sys.stderr)
            failed.append(name)
    return [row for row in rows if row is not None]


def collective_rows(handoff_ns):
    text, _ = measured("collective_bench", "--json", "--ranks", str(RANKS), "--rounds", "3",
                       "--sizes", "1024,1048576,16777216")
    rows = json.loads(text)["rows"]
    gloo_us = {(row["operation"], row["bytes"]): row["us"] for row in rows if row["transport"] == "gloo"}
    for row in rows:
        row |= {"row": f"{row['transport']}, {row['operation']}, {row['memory']}, {row['bytes']} bytes, {row['ranks']} ranks",
                "unit": "us", "ours": row["us"], "floor": row["floor_us"] + handoff_ns / 1e3}
        peer_us = gloo_us.get((row["operation"], row["bytes"])) if row["transport"] == "shm" else None
        row |= {"peer": "gloo", "peer_over_ours": peer_us / row["us"]} if peer_us else {}
    return rows


def points_of_collectives(rows):
    """(label, {series: microseconds}) for a chart. Transports of the same collective share a line."""
    points = {}
    for row in rows:
        series = row["transport"] if row["transport"] != "shm" else "windows" if row["memory"] == "window" else "private memory"
        floor_us = row.get("floor", row["floor_us"])  # of quick.py's rows, with the way between two cores
        points.setdefault(f"{row['operation']}, {row['bytes']} bytes", {"floor": floor_us})[series] = row["us"]
    return list(points.items())


def points_of(table, rows):
    """(label, {series: time}) for a chart."""
    if table == "collectives":
        return points_of_collectives(rows)
    floor = "limit" if table == "steps" else "floor"
    return [(row["row"], {floor: row["floor"], "ours": row["ours"]} |
             ({row["peer"]: row["ours"] * row["peer_over_ours"]} if "peer" in row else {})) for row in rows]


def charts_of(tables):
    """The text of a chart for each table."""
    return {table: chart(f"{table}, on 2 ranks" if table != "optimizer" else table,
                         rows[0]["unit"].replace("us", "µs") if rows else "", points_of(table, rows))
            for table, rows in tables.items()}


def machine():
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
        name = re.search(r"^model name\s*:\s*(.*)$", info.read(), re.M)
    with open("/proc/meminfo", encoding="ascii") as info:
        total = int(info.readline().split()[1])
    load = os.getloadavg()[0]  # before the first measurement
    return {"processor": name.group(1) if name else "unknown", "cores": os.cpu_count(),
            "memory_gib": round(total / 2**20, 1), "load": load} | rates()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--charts", metavar="FOLDER", help="write a chart of each table into this folder")
    args = parser.parse_args()
    if args.charts and not write_charts(args.charts, {}):  # before minutes of work
        sys.exit(1)
    where = machine()
    before = ticks()
    python = os.environ.get("DDHOST_PEER_PYTHON", "")
    if python and missing_of(python, ["torch"]):
        python = left_out("all peers", f"there is no torch in {python}; run ./dev setup --peers") or ""
    tables, failed = {}, []
    for table, rows_of in (("steps", lambda: step_rows(python)), ("models", lambda: model_rows(python, failed)),
                           ("optimizer", lambda: optimizer_rows(python)), ("collectives", lambda: collective_rows(where.get("handoff_ns", 0)))):
        try:
            tables[table] = rows_of()
        except SystemExit as reason:  # the other tables are worth their minutes
            print(reason, file=sys.stderr)
            failed.append(table)
    rows = [row | {"table": table} for table, of_table in tables.items() for row in of_table]
    where["steal_percent"] = steal_since(before)
    for row in rows:
        row["floor_over_ours"] = row["floor"] / row["ours"] if row["floor"] is not None and row["ours"] > 0 else None
        row["is_marked"] = row["steal_percent"] > MOST_STEAL
        ratio = row.get("memory_ratio", 1)
        row["memory_changed"] = max(ratio, 1 / ratio) > MOST_MEMORY_RATIO
    show(args.json, where, rows)
    if args.charts and not write_charts(args.charts, charts_of(tables)):
        sys.exit(1)
    if failed:
        sys.exit(f"quick.py: these failed, for the reasons above: {', '.join(failed)}")


def show(wants_json, where, rows):
    if wants_json:
        print(json.dumps({"machine": where, "rows": rows}, indent=2))
        return
    mhz = f", {where['mhz']:.0f} MHz" if "mhz" in where else ""
    print(f"{where['processor']}, {where['cores']} cores, {where['memory_gib']} GiB{mhz}; load {where['load']:.1f} at the "
          f"start, steal {where['steal_percent']:.1f} %")
    handoff = f"; {where['handoff_ns']:.0f} ns from core to core" if "handoff_ns" in where else ""
    print("memory of all ranks, GB/s: " + ", ".join(
        f"{name} {where[name + '_gb_per_s']:.1f}" for name in ("read", "write", "copy", "triad", "update")) + handoff)
    print(f"{'':58} {'ours':>11} {'floor':>11} {'floor/ours':>10} {'peer/ours':>9} {'steal %':>8}")
    for row in rows:
        marks = (" steal" if row["is_marked"] else "") + (" memory" if row.get("memory_changed") else "")
        number = lambda key, width, digits: f"{row[key]:{width}.{digits}f}" if row.get(key) is not None else "-".rjust(width)
        print(f"{row['row']:58} {row['ours']:11.3f} {number('floor', 11, 3)} {number('floor_over_ours', 10, 2)} "
              f"{number('peer_over_ours', 9, 2)} {row['steal_percent']:8.1f} {row['unit']}{marks}")


if __name__ == "__main__":
    main()
