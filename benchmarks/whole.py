#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All benchmarks that need no choice, one after the other: about an hour, and more than two with peers.

    ./dev bench [--only quick,growth] [--json] [--charts FOLDER]

Parts with peers run where DDHOST_PEER_PYTHON names a Python that has their modules, else they are left out, and the reason is
printed.
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

import boundary_vs_linked
import gpt_vs_peers
import growth
import models_vs_torch
import promises
import quick
from arguments import names, require_known
from chart import LinearAxis, LogAxis, chart, write_charts

HERE = pathlib.Path(__file__).resolve().parent


def by_ranks(rows):
    out = {}
    for row in rows:
        out.setdefault(row["ranks"], []).append(row)
    return out


def show_collectives(found):
    print(f"{'':58} {'us':>11} {'floor':>11} {'floor/us':>9} {'steal %':>8}")
    for row in found["rows"]:
        label = f"{row['transport']}, {row['operation']}, {row['memory']}, {row['bytes']} bytes, {row['ranks']} ranks"
        mark = " steal" if row["steal_percent"] > quick.MOST_STEAL else ""
        print(f"{label:58} {row['us']:11.1f} {row['floor_us']:11.1f} {row['floor_us'] / row['us']:9.2f} "
              f"{row['steal_percent']:8.1f}{mark}")


def show_models(found):
    for peer in dict.fromkeys(row["peer"] for row in found["rows"]):
        models_vs_torch.show_head(peer)
        models_vs_torch.show([row for row in found["rows"] if row["peer"] == peer])


def collective_charts(found):
    return {f"collectives_{ranks}_ranks": chart(f"collectives, on {ranks} ranks", "µs", quick.points_of_collectives(rows))
            for ranks, rows in by_ranks(found["rows"]).items()}


def growth_charts(found):
    return {"growth": chart("growth", "ms", [(f"{row['row']}: {value}", {"ours": ms}) for row in found["rows"]
                                             for value, ms in zip(row["values"], row["times"])])}


def promise_charts(found):
    rows = [(f"{row['model']}: {row['promise']}", {"ours": row["percent"]}) for row in found["rows"]]
    return {"promises": chart("what promises cost", "percent of a step", rows, LinearAxis)}


def boundary_charts(found):
    return {"boundary": chart("plugins", "ms of a step", [(row["row"], {"loaded": row["loaded"], "linked": row["linked"]})
                                                          for row in found["rows"]])}


def gpt_charts(found, name=None):
    rows = [(row["row"], {"peer" if row["is_peer"] else "ours": row["step_ms"]}) for row in found["rows"]]
    return {name or f"gpt_{found['dtype']}": chart(f"GPT, {found['dtype']}, on {found['ranks']} ranks", "ms of a step", rows)}


def model_charts(found):
    out = {}
    for peer in dict.fromkeys(row["peer"] for row in found["rows"]):
        rows = [(f"{row['row']}, ranks: {row['ranks']}", {"ours": row["ours"], peer: row["theirs"]})
                for row in found["rows"] if row["peer"] == peer]
        name = "models_compiled" if peer == "torch.compile" else "models_eager"
        out[name] = chart(f"models beside {peer}", "samples per second of all ranks", rows, LogAxis)
    return out


def quick_charts(found):
    tables = {}
    for row in found["rows"]:
        tables.setdefault(row["table"], []).append(row)
    return quick.charts_of(tables)


# show: prints what a part found; charts: {name: the text of a chart}; modules: of its peers' Python; jemalloc: it is needed.
Part = collections.namedtuple("Part", "command show charts modules jemalloc", defaults=([], False))
GPT_MODULES = ["torch", "numpy", "deepspeed"]
PARTS = {
    "quick": Part(["quick.py"], lambda found: quick.show(False, found["machine"], found["rows"]), quick_charts),
    "collectives": Part([os.path.join(quick.BINARIES, "collective_bench")], show_collectives, collective_charts),
    "boundary": Part(["boundary_vs_linked.py"], lambda found: boundary_vs_linked.show(found["rows"]), boundary_charts),
    "growth": Part(["growth.py"], lambda found: growth.show(found["rows"]), growth_charts),
    "promises": Part(["promises.py"], lambda found: promises.show(found["rows"]), promise_charts),
    "gpt_fp32": Part(["gpt_vs_peers.py", "--pairs", "3"], gpt_vs_peers.show, gpt_charts, GPT_MODULES),
    "gpt_bf16": Part(["gpt_vs_peers.py", "--pairs", "3", "--dtype", "bf16"], gpt_vs_peers.show, gpt_charts, GPT_MODULES),
    "gpt_jemalloc": Part(["gpt_vs_peers.py", "--pairs", "3", "--strategies", "ddp,zero1,zero3", "--peers",
                          ",".join(peer + gpt_vs_peers.JEMALLOC for peer in gpt_vs_peers.PEERS)], gpt_vs_peers.show,
                         lambda found: gpt_charts(found, "gpt_jemalloc"), GPT_MODULES, jemalloc=True),
    "models_eager": Part(["models_vs_torch.py"], show_models, model_charts, quick.MODEL_MODULES),
    "models_compiled": Part(["models_vs_torch.py", "--compile", "--tolerance", "0.1"], show_models, model_charts,
                            quick.MODEL_MODULES)}


def run(part, python):
    """The object that a part prints, or None; and whether all of it worked. Its reasons are on stderr."""
    program, *words = part.command
    command = [program, *words, "--json"]
    if program.endswith(".py"):
        command = [sys.executable, str(HERE / program), *words, "--json", *(["--python", python] if part.modules else [])]
    try:
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout), done.returncode == 0
    except OSError as error:
        print(f"whole.py: {program} can't be started ({error.strerror}); ./dev bench builds it", file=sys.stderr)
    except json.JSONDecodeError:
        pass
    return None, False


def run_parts(parts, args, python):
    """{part: what it found}, and the names of parts that failed. Ctrl-C ends it with what was found."""
    all_found, failed = {}, []
    try:
        for name in parts:
            part = PARTS[name]
            if part.modules and not python:
                quick.left_out(name, "there is no Python with the peers; ./dev setup --peers installs one")
                continue
            if missing := quick.missing_of(python, part.modules):
                quick.left_out(name, f"there is no {missing} in {python}; ./dev setup --peers installs it")
                continue
            if part.jemalloc and not gpt_vs_peers.jemalloc():
                quick.left_out(name, "there is no jemalloc; ./dev setup --peers installs it")
                continue
            print(f"== {name}", file=sys.stderr if args.json else sys.stdout, flush=True)
            found, is_whole = run(part, python)
            if not is_whole:
                failed.append(name)
            if found is None:
                continue
            all_found[name] = found
            if not args.json:
                part.show(found)
            if args.charts and not write_charts(args.charts, part.charts(found)):
                failed.append(f"charts of {name}")
    except KeyboardInterrupt:
        failed.append("Ctrl-C ended the rest")
    return all_found, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=names, default=list(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--charts", metavar="FOLDER", help="write a chart of each table into this folder")
    args = parser.parse_args()
    require_known(parser, "--only", args.only, PARTS, "part")
    if args.charts and not write_charts(args.charts, {}):
        sys.exit(1)
    all_found, failed = run_parts(args.only, args, os.environ.get("DDHOST_PEER_PYTHON", ""))
    if args.json:
        print(json.dumps(all_found, indent=2))
    if not all_found and not failed:
        sys.exit("whole.py: all parts that were asked for are left out")
    if failed:
        sys.exit(f"whole.py: these parts failed, with their reasons above: {', '.join(failed)}")


if __name__ == "__main__":
    main()
