# SPDX-License-Identifier: Apache-2.0
"""What checkpoints cost: seconds that training waits, seconds until they are on the disk, bytes, seconds to resume.

    python3 benchmarks/checkpoint.py [--size gpt2] [--strategy zero1] [--rounds 3] [--peer PYTHON] [--folder DIR]

Each round takes turns: a sequential write of as many bytes (pwrite of 16 MiB, then fsync, as dd does), a run without
checkpoints, one that writes them behind training, one that waits for them, a sequential read, one that resumes. Both reads
come from the disk, not from the page cache. With --peer, a Python with torch and deepspeed, it also measures
torch.distributed.checkpoint's async_save of FSDP2 and DeepSpeed's save_checkpoint of the same ZeRO stage, on as many
ranks. --folder names the disk that is measured.
The tables give medians (lowest .. highest) over the rounds; ratios are paired by round.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from arguments import count
from gpt_vs_peers import ROOT, make_tokens, missing_of, output_of

READ = re.compile(r"rank 0 read \d+ bytes, ([\d.]+) of what it holds, in ([\d.]+) s")
SAVED = re.compile(r"checkpoint after step (\d+): ([\d.]+) MiB on the disk after ([\d.]+) s; training waited ([\d.]+) s")
PIECE = 16 << 20


def written_like_dd(path, size):
    """Seconds until `size` bytes are on the disk."""
    piece = os.urandom(PIECE)
    begin = time.monotonic()
    fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    for at in range(0, size, PIECE):
        os.pwrite(fd, piece[: min(PIECE, size - at)], at)
    os.fsync(fd)
    os.close(fd)
    seconds = time.monotonic() - begin
    os.unlink(path)
    return seconds


def copied_in_memory(size):
    """Seconds in which one core copies `size` bytes in memory: what a save behind training takes from it at least."""
    source, target = bytearray(os.urandom(PIECE) * 16), bytearray(PIECE * 16)
    target[:] = source  # the pages are there
    times = max(1, size // len(source))
    begin = time.monotonic()
    for _ in range(times):
        target[:] = source
    return (time.monotonic() - begin) * size / (times * len(source))


def files_of(folder):
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def drop_from_cache(folder):
    """The next read of the files comes from the disk."""
    for path in files_of(folder):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_like_dd(folder):
    """Seconds to read the files of a folder from the disk."""
    drop_from_cache(folder)
    piece = bytearray(PIECE)
    begin = time.monotonic()
    for path in files_of(folder):
        with open(path, "rb", buffering=0) as file:
            while file.readinto(piece):
                pass
    return time.monotonic() - begin


class Ddhost:
    def __init__(self, args, tokens, folder):
        self.args, self.tokens, self.folder = args, tokens, folder

    def run(self, name, *options, steps=None):
        """Wall seconds, milliseconds of each step, (bytes, durable, stall) of each checkpoint, peak memory of all ranks."""
        args = self.args
        command = [str(ROOT / "build/ddhost"), "--strategy", args.strategy, "--nproc", str(args.nproc),
                   f"model.size={args.size}", f"model.context={args.context}", "model.vocab=50304",
                   f"data.path={self.tokens}", "data.micro_batch=1", f"train.steps={steps or args.steps}",
                   "run.sample_tokens=0", "run.quiet=true", "device.plugin=cpu", "checkpoint.keep_last=1",
                   f"run.dir={self.folder}/{name}", *options]
        begin = time.monotonic()
        output_of(command, dict(os.environ, OMP_NUM_THREADS="1"))
        wall = time.monotonic() - begin
        rows = [json.loads(line) for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]
        log = (self.folder / name / "log.txt").read_text()
        saves = [(float(m[2]) * 2**20, float(m[3]), float(m[4])) for m in SAVED.finditer(log)]
        peak = sum(rank["peak_rss_bytes"] for rank in rows[-1]["summary"]["ranks"])
        return wall, [row["step_ms"] for row in rows if "step_ms" in row], saves, peak


PEERS = {
    "torch DCP async_save": ("torch_checkpoint.py", "fsdp2"),
    "DeepSpeed save_checkpoint": ("deepspeed_checkpoint.py", "zero1"),
}


def peer_save(args, peer, tokens, folder):
    """Stall, durable, resume (seconds) and bytes of a peer."""
    script, strategy = PEERS[peer]
    command = [args.peer, "-m", "torch.distributed.run", "--nproc_per_node", str(args.nproc),
               str(ROOT / "benchmarks/peers" / script), "--strategy", strategy, "--size", args.size,
               "--context", str(args.context), "--micro-batch", "1", "--vocab", "50304", "--steps", "3", "--warmup", "1",
               "--tokens", str(tokens)]
    env = dict(os.environ, OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu", DDHOST_BENCH_FOLDER=str(folder / "peer"))
    rows = [line for line in output_of(command, env).splitlines() if line.startswith('{"stall"')]
    shutil.rmtree(folder / "peer", ignore_errors=True)
    return json.loads(rows[-1])


def text_of(values, digits=2):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} .. {max(values):.{digits}f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="gpt2")
    parser.add_argument("--strategy", default="zero1")
    parser.add_argument("--context", type=count, default=64)
    parser.add_argument("--nproc", type=count, default=2)
    parser.add_argument("--steps", type=count, default=40)
    parser.add_argument("--every", type=count, default=10, help="steps from one checkpoint to the next")
    parser.add_argument("--rounds", type=count, default=3)
    parser.add_argument("--peer", default="", help="a Python with torch")
    parser.add_argument("--folder", default=None)
    args = parser.parse_args()
    if args.folder and not pathlib.Path(args.folder).is_dir():
        parser.error(f"--folder {args.folder} is no folder; make it first")
    if args.peer and (missing := missing_of(args.peer, ["torch"])):
        parser.error(f"there is no {missing} in {args.peer}; run ./dev setup --peers, and give --peer .deps/venv/bin/python")
    if args.steps <= args.every:
        parser.error(f"--steps {args.steps} gives no checkpoint before the last one; give more than --every {args.every}")

    out = {key: [] for key in ("dd", "copy", "stall", "durable", "sync", "sync/dd", "lost", "overhead %", "dd read",
                               "read seconds", "read/dd", "resume", "read", "bytes", "memory")}
    of_peers = {peer: {key: [] for key in ("stall", "durable", "resume", "bytes")} for peer in PEERS if args.peer}
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = pathlib.Path(name)
        make_tokens(folder / "tokens.bin", 50304)
        ours = Ddhost(args, folder / "tokens.bin", folder)
        for number in range(args.rounds):
            _, plain, _, plain_peak = ours.run("plain")
            _, behind, saves, behind_peak = ours.run("behind", f"checkpoint.every={args.every}")
            _, _, waited, _ = ours.run("sync", f"checkpoint.every={args.every}", "checkpoint.async=false")
            size = int(saves[0][0])
            dd = written_like_dd(folder / "dd", size)
            start, *_ = ours.run("start", steps=1)
            checkpoints = folder / "behind/checkpoints"
            out["dd read"].append(read_like_dd(checkpoints))
            drop_from_cache(checkpoints)
            resume, *_ = ours.run("behind", "--resume", "auto", "--resume-allow", "train.steps", steps=args.steps + 1)
            out["bytes"].append(size)
            out["memory"].append((behind_peak - plain_peak) / size)
            out["dd"].append(dd)
            out["copy"].append(copied_in_memory(size))
            out["stall"] += [stall for _, _, stall in saves[:-1]]  # the last one waits for the disk, at the end of the run
            out["durable"] += [durable for _, durable, _ in saves[:-1]]
            out["sync"].append(statistics.median(durable for _, durable, _ in waited))
            out["sync/dd"].append(dd / out["sync"][-1])
            lost = (sum(behind[1:]) - sum(plain[1:])) / 1e3 / (len(saves) - 1)  # the last one is after the last step
            out["lost"].append(lost)
            out["overhead %"].append(lost * 1e3 / statistics.mean(plain[1:]))  # 100 % of 100 steps
            out["resume"].append(resume - start)
            read, seconds = map(float, READ.findall((folder / "behind/log.txt").read_text())[-1])
            out["read"].append(read)
            out["read seconds"].append(seconds)
            out["read/dd"].append(out["dd read"][-1] / seconds)
            for peer, figures in of_peers.items():
                for key, value in peer_save(args, peer, folder / "tokens.bin", folder).items():
                    figures[key].append(value)
            for used in ("plain", "behind", "sync", "start"):
                shutil.rmtree(folder / used)
            print(f"round {number + 1} of {args.rounds} done", file=sys.stderr)

    print(f"{args.size}, {args.strategy} on {args.nproc} ranks, a checkpoint every {args.every} steps, {args.rounds} rounds\n")
    print("| | median (lowest .. highest) |\n|---|---|")
    names = {"dd": "as many bytes written in sequence, s", "bytes": "bytes",
             "copy": "as many bytes copied in memory by one core, s", "stall": "training waits, s",
             "durable": "on the disk behind training, s", "sync": "on the disk with async=false, s",
             "sync/dd": "speed of that relative to writing in sequence",
             "lost": "a checkpoint lengthens training by, s", "overhead %": "that with a checkpoint every 100 steps, %",
             "memory": "more memory while it is written behind training, relative to its bytes",
             "dd read": "as many bytes read in sequence from the disk, s", "read seconds": "resuming reads for, s",
             "read/dd": "speed of that relative to reading in sequence",
             "resume": "resuming takes longer than a start, s", "read": "bytes that rank 0 reads relative to what it holds"}
    for key, label in names.items():
        if out[key]:
            print(f"| {label} | {text_of(out[key], 0 if key == 'bytes' else 2)} |")
    for peer, figures in of_peers.items():
        print(f"| {peer}: training waits, s | {text_of(figures['stall'])} |")
        print(f"| {peer}: on the disk, s | {text_of(figures['durable'])} |")
        print(f"| {peer}: load, s | {text_of(figures['resume'])} |")
        print(f"| {peer}: bytes | {text_of(figures['bytes'], 0)} |")


if __name__ == "__main__":
    main()
