#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Long runs that are disturbed, each beside a twin that is left alone. Both must give the same bits.

    tests/faults/soak.py --seconds 600            a segment; segments add up in build/soak.json
    tests/faults/soak.py --report                 prints the sum

A round draws a model, a strategy and a number of ranks from its number. Then things happen to one of the two runs at random
times: its processes are stopped and continued, get another priority or are killed, memory gets scarce, and its disk gets full.
A run that ends early is resumed. The disk is a tmpfs of the run's own, in a mount namespace of this program (only root may
make one; without it no disk gets full).
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DISK_BYTES = 48 << 20
MOST_RESTARTS = 60
ROUND_LIMIT_S = 900


def strategies(build):
    """The names that `ddhost list` shows."""
    lines = subprocess.run([str(build / "ddhost"), "list"], check=True, capture_output=True, text=True).stdout.splitlines()
    names = [line.split()[1] for line in lines if line.startswith("strategy ")]
    assert "zero3" in names, lines
    return names


def command(build, rng, folder):
    """The arguments of a run, the same for both but for the folder."""
    ranks = rng.choice([1, 2, 3])
    words = ["--nproc", str(ranks), "--strategy", rng.choice(strategies(build)),
             f"comm.plugin={rng.choice(['shm', 'loop'])}", "run.quiet=true", "run.sample_tokens=0",
             f"checkpoint.every={rng.randint(60, 400)}", "checkpoint.keep_last=2", f"run.seed={rng.randint(0, 10**6)}",
             f"train.grad_accum_steps={6 // ranks}", f"run.dir={folder}/run", f"train.save_final={folder}/final.safetensors",
             "--resume", "auto", "--device", "cpu"]
    if rng.random() < 0.7 or not (build / "plugins/gpt.so").exists():
        return words + ["--model", str(build / "tests/plugins/toy.so"), "model.layers=4", "model.width=32",
                        "model.hidden=128", "data.micro_batch=4", "monitor.every=10",
                        "model.buffers=true", f"train.steps={rng.randint(1500, 4000)}", "train.eval_every=500",
                        "train.eval_batches=4"]
    return words + ["--model", "gpt", "model.size=custom", "model.n_layer=2", "model.n_head=2", "model.n_embd=32",
                    "model.context=32", "data.micro_batch=2", f"data.path={ROOT}/tests/data/shakespeare/input.txt",
                    f"train.steps={rng.randint(300, 900)}", "train.eval_every=150", "train.eval_batches=2"]


def start(build, words, log):
    environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    with open(log, "ab") as out:
        return subprocess.Popen([str(build / "ddhost"), *words], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                env=environment, process_group=0)


def processes_of(launcher):
    """The launcher and its ranks."""
    try:
        children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    except OSError:
        children = []
    return [launcher] + [int(child) for child in children]


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def rows(folder):
    """The rows without times, one text each."""
    out = []
    path = folder / "run/metrics.jsonl"
    for line in path.read_text().splitlines() if path.exists() else []:
        row = json.loads(line)
        if "summary" not in row:
            out.append(json.dumps({k: v for k, v in row.items() if k != "step_ms" and not k.endswith("_per_s")}))
    return out


class Disturber:
    """What happens to a run while it runs. Each event undoes itself."""

    def __init__(self, rng, disk, counts):
        self.rng, self.disk, self.counts = rng, disk, counts

    def event(self, process):
        kinds = ["stop", "stop", "renice", "memory", "kill"] + (["disk full"] if self.disk else [])
        kind = self.rng.choices(kinds, [4, 4, 4, 2, 1] + ([2] if self.disk else []))[0]
        self.counts[kind] = self.counts.get(kind, 0) + 1
        pid = self.rng.choice(processes_of(process.pid))
        if kind == "stop":
            send(pid, signal.SIGSTOP)
            time.sleep(self.rng.choice([0.01, 0.1, 1.0]) * self.rng.random())
            send(pid, signal.SIGCONT)
        elif kind == "renice":
            try:
                os.setpriority(os.PRIO_PROCESS, pid, self.rng.randint(os.getpriority(os.PRIO_PROCESS, 0), 19))
            except (ProcessLookupError, PermissionError):
                pass
        elif kind == "memory":
            self.press_memory()
        elif kind == "kill":
            send(pid, signal.SIGKILL)
        else:
            self.fill_disk()

    def press_memory(self):
        available = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemAvailable")) << 10
        pages = bytearray(min(available // 8, self.rng.randint(64, 1024) << 20))
        pages[::4096] = b"x" * len(pages[::4096])
        time.sleep(self.rng.random())

    def fill_disk(self):
        filler = self.disk / "filler"
        with open(filler, "wb", buffering=0) as out:
            try:
                while True:
                    out.write(b"\0" * 65536)
            except OSError:
                pass
        time.sleep(2 * self.rng.random())
        filler.unlink()


def play(build, number, state, deadline):
    """One round. Returns what was wrong, or an empty text; None if time ran out."""
    rng = random.Random(number)
    with tempfile.TemporaryDirectory(prefix="ddhost-soak-") as name:
        folder = Path(name)
        quiet, disturbed = folder / "quiet", folder / "disturbed"
        quiet.mkdir()
        disturbed.mkdir()
        has_disk = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(disturbed)],
                                  stderr=subprocess.DEVNULL).returncode == 0
        twin = run = None
        try:
            twin = start(build, command(build, random.Random(number), quiet), folder / "quiet.log")
            run = start(build, command(build, random.Random(number), disturbed), folder / "disturbed.log")
            disturber = Disturber(rng, disturbed if has_disk else None, state["events"])
            restarts, lost_rows, end = 0, False, time.monotonic() + ROUND_LIMIT_S
            while True:
                if time.monotonic() > deadline:
                    return None
                if time.monotonic() > end:
                    return f"the round did not end: {(folder / 'disturbed.log').read_text()[-600:]}"
                code = run.poll()
                if code is None:
                    time.sleep(0.6 * rng.random())
                    if run.poll() is None:
                        disturber.event(run)
                    continue
                said = (folder / "disturbed.log").read_text()
                lost_rows = lost_rows or "metrics.jsonl" in said
                if code == 0:
                    break
                restarts += 1
                if restarts > MOST_RESTARTS:
                    return f"it was resumed {MOST_RESTARTS} times: {said[-600:]}"
                if code > 0 and "ddhost: " not in said:
                    return f"it ended with {code} and no reason: {said[-600:]}"
                (disturbed / "final.safetensors").unlink(missing_ok=True)
                run = start(build, command(build, random.Random(number), disturbed), folder / "disturbed.log")
            state["restarts"] += restarts
            while twin.poll() is None:
                if time.monotonic() > deadline + 120:
                    return None
                time.sleep(0.1)
            return compare(folder, quiet, disturbed, twin.returncode, lost_rows)
        finally:
            for process in (twin, run):
                if process is not None and process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            if has_disk:
                subprocess.run(["umount", "-l", str(disturbed)], check=False)


def compare(folder, quiet, disturbed, code, lost_rows):
    if code != 0:
        return f"the run that was left alone ended with {code}: {(folder / 'quiet.log').read_text()[-600:]}"
    sums = [hashlib.sha256((f / "final.safetensors").read_bytes()).hexdigest() for f in (quiet, disturbed)]
    if sums[0] != sums[1]:
        return "the weights differ"
    ours, theirs = rows(disturbed), rows(quiet)
    if not lost_rows and ours != theirs:
        return f"the rows differ: {len(ours)} and {len(theirs)}"
    if lost_rows and not set(ours) <= set(theirs):
        return "a row differs"
    parts = [str(f) for f in disturbed.rglob("*") if f.name.endswith((".part", ".partial"))]
    return f"left behind: {parts}" if parts else ""


def save(path, state):
    part = path.with_suffix(".part")
    part.write_text(json.dumps(state, indent=1) + "\n")
    part.rename(path)


def report(state):
    events = ", ".join(f"{n} x {kind}" for kind, n in sorted(state["events"].items()))
    print(f"{state['seconds']:.0f} s in {state['segments']} segments, {state['rounds']} rounds, {state['restarts']} restarts; "
          f"{events}; findings: {len(state['findings'])}")
    for finding in state["findings"]:
        print("  ", finding)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--state", type=Path)
    parser.add_argument("--round", type=int, help="this round alone")
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    path = args.state or args.build / "soak.json"
    state = {"seconds": 0, "segments": 0, "rounds": 0, "restarts": 0, "events": {}, "findings": []}
    if path.exists():
        state.update(json.loads(path.read_text()))
    if args.report:
        return report(state)
    if os.geteuid() == 0 and "DDHOST_SOAK" not in os.environ:
        os.environ["DDHOST_SOAK"] = "1"
        os.execvp("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv])
    began, before = time.monotonic(), state["seconds"]
    state["segments"] += 1
    deadline = began + args.seconds
    found = False
    while time.monotonic() < deadline:
        number = args.round if args.round is not None else state["rounds"]
        problem = play(args.build, number, state, deadline)
        state["seconds"] = before + time.monotonic() - began
        if problem is not None:
            state["rounds"] += 1
        if problem:
            found = True
            state["findings"].append(f"round {number}: {problem}")
        save(path, state)
        if args.round is not None:
            break
    report(state)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
