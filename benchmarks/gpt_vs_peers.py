# SPDX-License-Identifier: Apache-2.0
"""GPT on 2 ranks, or --nproc: ddhost's strategies against those of PyTorch and DeepSpeed, alternating in one run.

    python3 benchmarks/gpt_vs_peers.py --python PEER_PYTHON [--dtype bf16] [--peers torch:ddp,deepspeed:zero3] [--pairs 5]

PEER_PYTHON is a Python with torch and numpy, and for its peers deepspeed. Peers are torch:ddp, torch:ddp_compiled, torch:fsdp2
and deepspeed:zero1 to zero3, and with --peers also deepspeed:zero2_offload and deepspeed:zero3_offload. A peer with
"+jemalloc", such as torch:ddp+jemalloc, has jemalloc as its allocator. A rank has one thread. Each round runs every peer once
and every strategy once. The tables give the median milliseconds of a step, the tokens per second of all ranks, and ratios
paired by round: median (lowest .. highest). A run that fails is named, the others count, and the exit code is 1.
"""
import argparse
import ctypes.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from arguments import count, count_or_none, names, require_known

ROOT = pathlib.Path(__file__).resolve().parent.parent
JEMALLOC = "+jemalloc"  # after a peer
PEERS = ["torch:ddp", "torch:ddp_compiled", "torch:fsdp2", "deepspeed:zero1", "deepspeed:zero2", "deepspeed:zero3"]
OFFLOADS = ["deepspeed:zero2_offload", "deepspeed:zero3_offload"]
RUN_FAILED = (SystemExit, ValueError, LookupError, OSError)  # a run ended badly, or did not print its numbers
SCHEMES = ["ddp", "zero1", "zero2", "zero3", "fsdp"]


def make_tokens(path, vocab, numel=200_000):
    """A fixed pseudo-random stream: speed does not depend on its content."""
    state, out = 12345, bytearray()
    for _ in range(numel):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out += ((state >> 33) % vocab).to_bytes(2, "little")
    path.write_bytes(bytes(out))


def output_of(command, env=None):
    command = [str(word) for word in command]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr[-3000:]}")
    return done.stdout


def jemalloc():
    """The environment of a program with jemalloc as its allocator, which keeps freed pages and asks for huge ones. Empty: there
    is no jemalloc."""
    library = ctypes.util.find_library("jemalloc")
    return {"LD_PRELOAD": library, "MALLOC_CONF": "thp:always,dirty_decay_ms:-1,muzzy_decay_ms:-1"} if library else {}


def require_jemalloc():
    if not jemalloc():
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: there is no jemalloc; run ./dev setup --peers, or leave it out")


def run_peer(args, peer, tokens):
    library, strategy = peer.removesuffix(JEMALLOC).split(":")
    command = [args.python, "-m", "torch.distributed.run", "--nproc_per_node", str(args.nproc),
               str(ROOT / f"benchmarks/peers/{library}_gpt.py"), "--strategy", strategy, "--dtype", args.dtype,
               "--size", args.size, "--context", str(args.context), "--micro-batch", str(args.micro_batch),
               "--vocab", str(args.vocab), "--steps", str(args.steps), "--warmup", str(args.warmup),
               "--tokens", str(tokens)]
    folder = str(pathlib.Path(args.python).absolute().parent)  # DeepSpeed looks for ninja there
    env = dict(os.environ, OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu", PATH=folder + os.pathsep + os.environ["PATH"])
    if peer.endswith(JEMALLOC):
        env |= jemalloc()
    rows = [line for line in output_of(command, env).splitlines() if line.startswith('{"step_ms"')]
    return statistics.median(json.loads(rows[-1])["step_ms"])


def step_ms_of(run_dir, warm_up):
    """The median milliseconds of the steps of a run after the first `warm_up`."""
    rows = [json.loads(line) for line in (pathlib.Path(run_dir) / "metrics.jsonl").read_text().splitlines()]
    return statistics.median(r["step_ms"] for r in rows if r.get("step", 0) > warm_up and "step_ms" in r)


def run_ddhost(args, strategy, tokens, folder):
    """`strategy`: a strategy, and options after '+' signs."""
    strategy, *options = strategy.split("+")
    run_dir = pathlib.Path(tempfile.mkdtemp(dir=folder))
    steps = args.warmup + args.steps
    command = [str(ROOT / "build/ddhost"), "--strategy", strategy, "--nproc", str(args.nproc), f"model.size={args.size}",
               f"model.context={args.context}", f"model.vocab={args.vocab}", f"data.path={tokens}",
               f"data.micro_batch={args.micro_batch}", f"train.steps={steps}", "run.sample_tokens=0",
               f"precision.compute={args.dtype}", "optimizer.weight_decay=0.1", "optimizer.betas=[0.9,0.95]",
               f"run.dir={run_dir}/run", "run.quiet=true", "device.plugin=cpu", *options]
    output_of(command, dict(os.environ, OMP_NUM_THREADS="1"))
    return step_ms_of(run_dir / "run", args.warmup)


def missing_of(python, modules):
    """The first of these modules that this Python can't import, or None."""
    for module in modules:
        try:
            done = subprocess.run([python, "-c", f"import {module}"], check=False, capture_output=True)
        except OSError:
            return module
        if done.returncode != 0:
            return module
    return None


def require_torch(python):
    """Ends the script where the peers' Python has no torch."""
    if missing_of(python, ["torch"]):
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: there is no torch in {python}; run ./dev setup --peers, and give --python "
                 ".deps/venv/bin/python")


def numbers(args, times):
    """What --json prints, and `show` shows. times: of each round, or None where the run failed. Ratios are paired by round."""
    def ratio(other, mine):
        ratios = [a / b for a, b in zip(times[other], times[mine]) if a and b]
        return {"median": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)} if ratios else None

    rows = [{"row": name, "is_peer": name in args.peers, "step_ms": statistics.median(filter(None, values))}
            for name, values in times.items() if any(values)]
    for row in rows:
        if not row["is_peer"]:
            ratios = {other: ratio(other, row["row"]) for other in args.peers + args.strategies[:1]}
            row["other_over_this"] = {other: found for other, found in ratios.items() if found}
    return {"size": args.size, "dtype": args.dtype, "ranks": args.nproc, "micro_batch": args.micro_batch,
            "context": args.context, "rounds": args.pairs, "rows": rows}


def show(found):
    """The Markdown tables of benchmarks/README.md."""
    tokens = found["ranks"] * found["micro_batch"] * found["context"]  # of a step, all ranks
    others = list(dict.fromkeys(other for row in found["rows"] for other in row.get("other_over_this", {})))
    print(f"\n{found['size']} {found['dtype']}, {found['ranks']} ranks, {found['micro_batch']} x {found['context']} tokens "
          f"each, {found['rounds']} rounds\n")
    print("| | ms per step | tokens per second | " + " | ".join(f"{other} / this" for other in others) + " |")
    print("|---" * (len(others) + 3) + "|")
    for row in found["rows"]:
        ratios = [row.get("other_over_this", {}).get(other) for other in others]
        cells = [f"{one['median']:.2f} ({one['lowest']:.2f} .. {one['highest']:.2f})" if one else "" for one in ratios]
        print(f"| {row['row']} | {row['step_ms']:.4g} | {tokens / row['step_ms'] * 1000:.0f} | " + " | ".join(cells) + " |")


def rounds(args, folder):
    """{peer or strategy: the milliseconds of a step in each round, or None where the run failed}."""
    times = {name: [] for name in args.peers + args.strategies}
    tokens = pathlib.Path(folder) / "tokens.bin"
    make_tokens(tokens, args.vocab)
    for _ in range(args.pairs):
        for name, values in times.items():
            try:
                values.append(run_peer(args, name, tokens) if name in args.peers else run_ddhost(args, name, tokens, folder))
            except RUN_FAILED as reason:
                print(f"gpt_vs_peers.py: {name}: {reason}", file=sys.stderr, flush=True)
                values.append(None)
        print("  ".join(f"{name} {values[-1]:.0f}" for name, values in times.items() if values[-1]), file=sys.stderr,
              flush=True)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--peers", type=names, default=PEERS)
    parser.add_argument("--strategies", type=names, default=SCHEMES, help="strategies, each with options: zero3+key=value")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--size", default="gpt2")
    parser.add_argument("--context", type=count, default=64)
    parser.add_argument("--micro-batch", type=count, default=1)
    parser.add_argument("--vocab", type=count, default=50304)
    parser.add_argument("--nproc", type=count, default=2)
    parser.add_argument("--steps", type=count, default=8)
    parser.add_argument("--warmup", type=count_or_none, default=3)
    parser.add_argument("--pairs", type=count, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    if not args.peers and not args.strategies:
        parser.error("--peers and --strategies are empty; give one of them")
    if args.peers:
        require_known(parser, "--peers", [peer.removesuffix(JEMALLOC) for peer in args.peers], PEERS + OFFLOADS, "peer")
    if any(peer.endswith(JEMALLOC) for peer in args.peers):
        require_jemalloc()
    if args.peers:
        require_torch(args.python)

    with tempfile.TemporaryDirectory() as folder:
        times = rounds(args, folder)
    found = numbers(args, times)
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        show(found)
    if failed := [name for name, values in times.items() if None in values]:
        sys.exit(f"gpt_vs_peers.py: runs of these failed, with their reasons above: {', '.join(failed)}")


if __name__ == "__main__":
    main()
