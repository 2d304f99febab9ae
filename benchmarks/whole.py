#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All benchmarks that need no choice, one after the other: about an hour, and two to three with peers.

    ./dev bench [--only quick,growth] [--json] [--charts FOLDER]

Parts with peers run where DDHOST_PEER_PYTHON names a Python that has them, else they are left out, and the reason is printed.
`--json` prints one object: a part's own object under its name. `--charts FOLDER` draws each table as
FOLDER/performance_TABLE.svg. A part that fails is named, the others run, and the exit code is 1.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys

import quick
from chart import LinearAxis, LogAxis, chart, write_charts

HERE = pathlib.Path(__file__).resolve().parent
BINARIES = pathlib.Path(quick.BINARIES)


def points_of_collectives(found):
    """{ranks: points}, as those of quick.py."""
    out = {}
    for row in found["rows"]:
        series = row["transport"] if row["transport"] != "shm" else "windows" if row["memory"] == "window" else "private memory"
        points = out.setdefault(row["ranks"], {})
        points.setdefault(f"{row['operation']}, {row['bytes']} bytes", {"floor": row["floor_us"]})[series] = row["us"]
    return {f"{ranks} ranks": list(points.items()) for ranks, points in out.items()}


def points_of_growth(found):
    return {"": [(f"{row['row']}: {value}", {"ours": ms}) for row in found["rows"]
                 for value, ms in zip(row["values"], row["times"])]}


def points_of_promises(found):
    return {"": [(f"{row['model']}: {row['promise']}", {"ours": row["percent"]}) for row in found["rows"]]}


def points_of_boundary(found):
    return {"": [(row["row"], {"loaded": row["loaded"], "linked": row["linked"]}) for row in found["rows"]]}


def points_of_gpt(found):
    return {"": [(row["row"], {"ours" if "peer_over_ours" in row else "peer": row["step_ms"]}) for row in found["rows"]]}


def points_of_models(found):
    return {"": [(f"{row['row']}, ranks: {row['ranks']}", {"ours": row["ours"], row["peer"]: row["theirs"]})
                 for row in found["rows"]]}


# unit: of its chart; points: {the rest of a table's name: rows for chart.py}.
Part = collections.namedtuple("Part", "command unit points axis needs_peers", defaults=(LogAxis, False))
PARTS = {
    "quick": Part(["quick.py"], None, None),
    "collectives": Part([str(BINARIES / "collective_bench")], "µs", points_of_collectives),
    "boundary": Part(["boundary_vs_linked.py"], "ms of a step", points_of_boundary),
    "growth": Part(["growth.py"], "ms", points_of_growth),
    "promises": Part(["promises.py"], "percent of a step", points_of_promises, LinearAxis),
    "gpt_fp32": Part(["gpt_vs_peers.py"], "ms of a step", points_of_gpt, LogAxis, True),
    "gpt_bf16": Part(["gpt_vs_peers.py", "--dtype", "bf16"], "ms of a step", points_of_gpt, LogAxis, True),
    "models_eager": Part(["models_vs_torch.py"], "samples per second of all ranks", points_of_models, LogAxis, True),
    "models_compiled": Part(["models_vs_torch.py", "--compile", "--tolerance", "0.1"], "samples per second of all ranks",
                            points_of_models, LogAxis, True)}


def run(part, python):
    """The object that a part prints; None if it fails."""
    program, *words = part.command
    if program.endswith(".py"):
        command = [python if part.needs_peers else sys.executable, str(HERE / program), *words, "--json"]
        command += ["--python", python] if part.needs_peers else []
    else:
        command = [program, *words, "--json"]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)  # its reasons are on stderr
    return json.loads(done.stdout) if done.returncode == 0 else None


def print_part(name, part, found):
    if name == "quick":
        return quick.show(False, found["machine"], found["rows"])
    for rest, rows in part.points(found).items():
        print(f"-- {name} {rest}".rstrip() + f", {part.unit}")
        for label, values in rows:
            print(f"{label:52} " + "  ".join(f"{series} {value:.4g}" for series, value in values.items() if value is not None))
    return None


def charts_of(name, part, found):
    if name == "quick":
        tables = {}
        for row in found["rows"]:
            tables.setdefault(row["table"], []).append(row)
        return quick.charts_of(tables)
    return {"_".join([name, *rest.split()]): chart(f"{name} {rest}".rstrip(), part.unit, rows, part.axis)
            for rest, rows in part.points(found).items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--charts", metavar="FOLDER", help="write a chart of each table into this folder")
    args = parser.parse_args()
    python, all_found, failed = os.environ.get("DDHOST_PEER_PYTHON", ""), {}, []
    names = [name for name in args.only.split(",") if name]
    for name in names:
        if name not in PARTS:
            parser.error(f"--only {name}: there is no such part; choose from {', '.join(PARTS)}")
    if args.charts and not write_charts(args.charts, {}):
        sys.exit(1)
    for name in names:
        if PARTS[name].needs_peers and not python:
            quick.left_out(name, "there is no Python with the peers; ./dev setup --peers installs one")
            continue
        print(f"== {name}", file=sys.stderr if args.json else sys.stdout, flush=True)
        found = run(PARTS[name], python)
        if found is None:
            failed.append(name)
            continue
        all_found[name] = found
        if not args.json:
            print_part(name, PARTS[name], found)
        if args.charts and not write_charts(args.charts, charts_of(name, PARTS[name], found)):
            sys.exit(1)
    if args.json:
        print(json.dumps(all_found, indent=2))
    if failed:
        sys.exit(f"whole.py: these parts failed, with their reasons above: {', '.join(failed)}")


if __name__ == "__main__":
    main()
