# SPDX-License-Identifier: Apache-2.0
"""GPT on 2 ranks: ddhost's schemes against torch DDP, alternating in one run.

    python3 benchmarks/gpt_vs_torch_ddp.py --python PEER_PYTHON [--size gpt2 --context 64 --micro-batch 1] [--pairs 5]

PEER_PYTHON is a Python with torch and numpy. Each round runs the peer once and every scheme once; the table gives the
median milliseconds of a step per round, and the ratio peer / scheme paired by round: median, lowest, highest.
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


def make_tokens(path, vocab, numel=200_000):
    """A fixed pseudo-random stream: speed does not depend on what it says."""
    state, out = 12345, bytearray()
    for _ in range(numel):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out += ((state >> 33) % vocab).to_bytes(2, "little")
    path.write_bytes(bytes(out))


def run_peer(args, tokens):
    command = [args.python, "-m", "torch.distributed.run", "--nproc_per_node", str(args.nproc),
               str(ROOT / "benchmarks/peers/torch_ddp_gpt.py"), "--size", args.size, "--context", str(args.context),
               "--micro-batch", str(args.micro_batch), "--vocab", str(args.vocab), "--steps", str(args.steps),
               "--warmup", str(args.warmup), "--tokens", str(tokens)]
    env = dict(os.environ, OMP_NUM_THREADS="1")
    if args.peer_preload:
        env["LD_PRELOAD"] = args.peer_preload
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
    return statistics.median(json.loads(out.strip().splitlines()[-1])["step_ms"])


def run_ddhost(args, scheme, tokens, folder):
    run_dir = pathlib.Path(tempfile.mkdtemp(dir=folder))
    steps = args.warmup + args.steps
    command = [str(ROOT / "build/ddhost"), "--strategy", scheme, "--nproc", str(args.nproc), f"model.size={args.size}",
               f"model.context={args.context}", f"model.vocab={args.vocab}", f"data.path={tokens}",
               f"data.micro_batch={args.micro_batch}", f"train.steps={steps}", "run.sample_tokens=0",
               "optimizer.weight_decay=0.1", "optimizer.betas=[0.9,0.95]", f"run.dir={run_dir}/run", "run.quiet=true"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    rows = [json.loads(line) for line in (run_dir / "run/metrics.jsonl").read_text().splitlines()]
    return statistics.median(r["step_ms"] for r in rows if r.get("step", 0) > args.warmup and "step_ms" in r)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--size", default="gpt2")
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--vocab", type=int, default=50304)
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--schemes", default="ddp,zero1,zero3")
    parser.add_argument("--peer-preload", default="", help="a library to preload into the peer (its allocator)")
    args = parser.parse_args()

    schemes = args.schemes.split(",")
    peer, own = [], {scheme: [] for scheme in schemes}
    with tempfile.TemporaryDirectory() as folder:
        tokens = pathlib.Path(folder) / "tokens.bin"
        make_tokens(tokens, args.vocab)
        for _ in range(args.pairs):
            peer.append(run_peer(args, tokens))
            for scheme in schemes:
                own[scheme].append(run_ddhost(args, scheme, tokens, folder))
            print("  " + "  ".join([f"torch DDP {peer[-1]:.1f}"] + [f"{s} {own[s][-1]:.1f}" for s in schemes]), flush=True)
    print(f"{args.size}, {args.nproc} ranks, {args.micro_batch} x {args.context} tokens each, {args.pairs} rounds")
    print(f"{'torch DDP':10} {statistics.median(peer):8.1f} ms/step")
    for scheme in schemes:
        ratios = [p / o for p, o in zip(peer, own[scheme])]
        print(f"{scheme:10} {statistics.median(own[scheme]):8.1f} ms/step   ratio {statistics.median(ratios):.2f}"
              f"  ({min(ratios):.2f} .. {max(ratios):.2f})")


if __name__ == "__main__":
    main()
