#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmarks that have a floor, in a few minutes: the optimizer on one core, collectives on 2 ranks.

A row has ours, the floor (what the machine's memory takes for the bytes, measured in the same run) and floor / ours. Steal is
the part of the cores' time that the host of a virtual machine gave to others; a row with more than 5 % is marked, because its
time says little. `--json` prints an object instead.
"""
import argparse
import json
import os
import re
import subprocess
import sys

BINARIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "benchmarks")
MOST_STEAL = 5.0  # percent


def ticks():
    """Stolen and all ticks of all cores since the start."""
    with open("/proc/stat", encoding="ascii") as stat:
        fields = [int(field) for field in stat.readline().split()[1:9]]
    return fields[7], sum(fields)


def measured(*command):
    """The output of a program of the build, and the percent of time that was stolen meanwhile."""
    stolen, every = ticks()
    path = os.path.join(BINARIES, command[0])
    try:
        done = subprocess.run([path, *command[1:]], check=True, stdout=subprocess.PIPE, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"quick.py: {command[0]} failed ({error}); build it with ./dev bench --quick")
    stolen_after, every_after = ticks()
    return done.stdout, 100.0 * (stolen_after - stolen) / max(every_after - every, 1)


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


def collective_rows():
    text, _ = measured("collective_bench", "--json", "--ranks", "2", "--rounds", "3",
                       "--sizes", "1024,1048576,16777216")
    return [{"row": f"{row['transport']}, {row['operation']}, {row['memory']}, {row['bytes']} bytes, {row['ranks']} ranks",
             "unit": "us", "ours": row["us"], "floor": row["floor_us"], "steal_percent": row["steal_percent"],
             "is_right": row["is_right"]} for row in json.loads(text)["rows"]]


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
    wants_json = parser.parse_args().json
    where = machine()
    stolen, every = ticks()
    rows = optimizer_rows() + collective_rows()
    stolen_after, every_after = ticks()
    where["steal_percent"] = 100.0 * (stolen_after - stolen) / max(every_after - every, 1)
    for row in rows:
        row["floor_over_ours"] = row["floor"] / row["ours"] if row["ours"] > 0 else None
        row["is_marked"] = row["steal_percent"] > MOST_STEAL
    if wants_json:
        print(json.dumps({"machine": where, "rows": rows}, indent=2))
        return
    print(f"{where['processor']}, {where['cores']} cores, {where['memory_gib']} GiB; load {where['load']:.1f} at the "
          f"start, steal {where['steal_percent']:.1f} %")
    print(f"{'':58} {'ours':>11} {'floor':>11} {'floor/ours':>10} {'steal %':>8}")
    for row in rows:
        marks = (" steal" if row["is_marked"] else "") + ("" if row.get("is_right", True) else " WRONG RESULT")
        print(f"{row['row']:58} {row['ours']:11.3f} {row['floor']:11.3f} {row['floor_over_ours'] or 0:10.2f} "
              f"{row['steal_percent']:8.1f} {row['unit']}{marks}")


if __name__ == "__main__":
    main()
