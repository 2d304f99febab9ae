# SPDX-License-Identifier: Apache-2.0
"""Collectives of the transport shm against those of an MPI library on the same machine, alternating in one run.

    python3 benchmarks/collectives_vs_mpi.py [--ranks 2,4,8] [--sizes 1024,1048576] [--rounds 5] [--mpirun "mpirun --flag"]

It needs build/benchmarks/collective_bench and mpi_collectives (cmake --build build --target collective_bench mpi_collectives).
A cell has the microseconds of shm, and in parentheses those of the MPI library divided by them: above 1 shm is faster. Buffers
are private memory of each rank. `window`: the host's windows and exchanges in shared pages, without a ratio, because MPI's
collectives do not have them. Neither side binds ranks to cores, and they take turns in who begins. The library yields the core
while it waits where ranks are more than cores.
"""
import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys

from arguments import count, counts

PROGRAMS = pathlib.Path(__file__).resolve().parent.parent / "build/benchmarks"
OPERATIONS = ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"]


def output_of(command):
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    try:
        done = subprocess.run([str(word) for word in command], check=False, capture_output=True, text=True, env=env)
    except OSError as error:
        sys.exit(f"collectives_vs_mpi.py: {command[0]} can't be started ({error.strerror}); install MPI with ./dev setup --cluster")
    if done.returncode != 0:
        sys.exit(f"collectives_vs_mpi.py: {command[0]} ended with {done.returncode}: {done.stderr[-1000:]}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=counts, default=[2, 4, 8])
    parser.add_argument("--sizes", type=counts, default=[1024, 65536, 1048576, 4194304, 16777216, 67108864])
    parser.add_argument("--rounds", type=count, default=5)
    parser.add_argument("--mpirun", default="mpirun --oversubscribe --bind-to none")
    args = parser.parse_args()
    for name in ("collective_bench", "mpi_collectives"):
        if not (PROGRAMS / name).exists():
            parser.error(f"there is no {PROGRAMS / name}; build it: cmake --build build --target {name}")
    if any(size % (64 * ranks) != 0 for size in args.sizes for ranks in args.ranks):
        parser.error("each size must be a multiple of 64 bytes for each rank")
    print(output_of([shlex.split(args.mpirun)[0], "--version"]).splitlines()[0])
    for ranks in args.ranks:
        ours, theirs, steal = {}, {}, 0.0

        def run_ours():
            nonlocal steal
            text = output_of([PROGRAMS / "collective_bench", "--json", "--transports", "shm", "--ranks", ranks, "--rounds", 1,
                              "--sizes", ",".join(map(str, args.sizes))])
            for row in json.loads(text)["rows"]:
                ours.setdefault((row["operation"], row["memory"], row["bytes"]), []).append(row["us"])
                steal = max(steal, row["steal_percent"])

        def run_theirs():
            text = output_of([*shlex.split(args.mpirun), "-n", ranks, PROGRAMS / "mpi_collectives", *args.sizes])
            for line in text.splitlines():
                operation, size, us = line.split()
                theirs.setdefault((operation, int(size)), []).append(float(us))

        for turn in range(args.rounds):
            for side in (run_ours, run_theirs) if turn % 2 == 0 else (run_theirs, run_ours):
                side()
        for memory in ("private", "window"):
            names = [name for name in OPERATIONS if (name, memory, args.sizes[0]) in ours]
            print(f"\n{ranks} ranks, {memory}, steal {steal:.1f} %\n| bytes | {' | '.join(names)} |\n{'|---' * (len(names) + 1)}|")
            for size in args.sizes:
                cells = []
                for name in names:
                    mine = ours[name, memory, size]
                    ratio = statistics.median(p / m for p, m in zip(theirs[name, size], mine))
                    cells.append(f"{statistics.median(mine):,.1f}" + (f" ({ratio:.2f})" if memory == "private" else ""))
                print(f"| {size:,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
