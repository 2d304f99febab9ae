# SPDX-License-Identifier: Apache-2.0
"""GPT on 2 ranks, or --nproc: ddhost's strategies against those of PyTorch and DeepSpeed, alternating in one run.

    python3 benchmarks/gpt_vs_peers.py --python PEER_PYTHON [--dtype bf16] [--peers torch:ddp,deepspeed:zero3] [--pairs 5]

PEER_PYTHON is a Python with torch and numpy, and for its peers deepspeed. Peers are torch:ddp, torch:ddp_compiled, torch:fsdp2
and deepspeed:zero1 to zero3, and with --peers also deepspeed:zero2_offload and deepspeed:zero3_offload. A rank has one thread.
Each round runs every peer once and every strategy once. The tables give the median milliseconds of a step, the tokens per
second of all ranks, and ratios paired by round: median (lowest .. highest).
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ["torch:ddp", "torch:ddp_compiled", "torch:fsdp2", "deepspeed:zero1", "deepspeed:zero2", "deepspeed:zero3"]
SCHEMES = ["ddp", "zero1", "zero2", "zero3", "fsdp"]


def make_tokens(path, vocab, numel=200_000):
    """A fixed pseudo-random stream: speed does not depend on its content."""
    state, out = 12345, bytearray()
    for _ in range(numel):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out += ((state >> 33) % vocab).to_bytes(2, "little")
    path.write_bytes(bytes(out))


def output_of(command, env=None):
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def run_peer(args, peer, tokens):
    library, strategy = peer.split(":")
    command = [args.python, "-m", "torch.distributed.run", "--nproc_per_node", str(args.nproc),
               str(ROOT / f"benchmarks/peers/{library}_gpt.py"), "--strategy", strategy, "--dtype", args.dtype,
               "--size", args.size, "--context", str(args.context), "--micro-batch", str(args.micro_batch),
               "--vocab", str(args.vocab), "--steps", str(args.steps), "--warmup", str(args.warmup),
               "--tokens", str(tokens)]
    folder = str(pathlib.Path(args.python).absolute().parent)  # DeepSpeed looks for ninja there
    env = dict(os.environ, OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu", PATH=folder + os.pathsep + os.environ["PATH"])
    if args.peer_preload:
        env["LD_PRELOAD"] = args.peer_preload
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


def spread(numerators, denominators):
    ratios = [n / d for n, d in zip(numerators, denominators)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} .. {max(ratios):.2f})"


def numbers(args, times):
    """The rows of the tables, for machines: ratios are paired by round."""
    rows = []
    for name in args.peers + args.strategies:
        row = {"row": name, "unit": "ms", "step_ms": statistics.median(times[name])}
        if name in args.strategies:
            ratios = {peer: [a / b for a, b in zip(times[peer], times[name])] for peer in args.peers + args.strategies[:1]}
            row["peer_over_ours"] = {peer: {"median": statistics.median(all_of), "lowest": min(all_of), "highest": max(all_of)}
                                     for peer, all_of in ratios.items()}
        rows.append(row)
    return {"size": args.size, "dtype": args.dtype, "ranks": args.nproc, "context": args.context,
            "micro_batch": args.micro_batch, "rows": rows}


def report(args, times):
    """The Markdown tables of benchmarks/README.md."""
    tokens = args.nproc * args.micro_batch * args.context  # of a step, all ranks

    def speed(name):
        step_ms = statistics.median(times[name])
        return f"{step_ms:.4g} | {tokens / step_ms * 1000:.0f}"

    print(f"\n{args.size} {args.dtype}, {args.nproc} ranks, {args.micro_batch} x {args.context} tokens each, "
          f"{args.pairs} rounds\n")
    ratios = [f"{peer} / ours" for peer in args.peers] + [f"{args.strategies[0]} / this"]
    print("| | ms per step | tokens per second | " + " | ".join(ratios) + " |")
    print("|---" * (len(args.peers) + 4) + "|")
    for peer in args.peers:
        print(f"| {peer} | {speed(peer)} |" + " |" * (len(args.peers) + 1))
    for strategy in args.strategies:
        cells = [spread(times[other], times[strategy]) for other in args.peers + args.strategies[:1]]
        print(f"| {strategy} | {speed(strategy)} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: [name for name in text.split(",") if name]
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--peers", type=names, default=PEERS)
    parser.add_argument("--strategies", type=names, default=SCHEMES, help="strategies, each with options: zero3+key=value")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--size", default="gpt2")
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--vocab", type=int, default=50304)
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--peer-preload", default="", help="a library to preload into the peers (their allocator)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()

    times = {name: [] for name in args.peers + args.strategies}
    with tempfile.TemporaryDirectory() as folder:
        tokens = pathlib.Path(folder) / "tokens.bin"
        make_tokens(tokens, args.vocab)
        for _ in range(args.pairs):
            for peer in args.peers:
                times[peer].append(run_peer(args, peer, tokens))
            for strategy in args.strategies:
                times[strategy].append(run_ddhost(args, strategy, tokens, folder))
            print("  ".join(f"{name} {values[-1]:.0f}" for name, values in times.items()), file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps(numbers(args, times), indent=2))
    else:
        report(args, times)


if __name__ == "__main__":
    main()
