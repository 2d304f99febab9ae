# SPDX-License-Identifier: Apache-2.0
"""Memory of each strategy for models of which a few units are most of the parameters, in MB of the largest rank.

    python3 benchmarks/memory_table.py [--nproc 2,4,8] [--run PROGRAM]

Without --run the bytes are planned, and no rank starts. --run trains two steps with that program, for example with an older
build, and takes the measured peaks. Counted are parameters, gradients, optimizer state and communication, without activations.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TAGS = ("param", "grad", "optim", "comm")
STRATEGIES = ("ddp", "zero1", "zero2", "zero3", "zero3_offload")
GPT = ["--model", "gpt", "model.size=custom", "model.n_layer=2", "model.n_head=4", "model.n_embd=64", "model.context=64",
       "model.vocab=50304", "data.micro_batch=2"]
SHORT = ["train.epochs=null", "train.phases=null", "train.cycles=null", "train.steps=2", "train.eval_every=0",
         "train.eval_every_epochs=0", "run.quiet=true", "run.sample_tokens=0"]


def of_config(name):
    return ["--config", str(ROOT / "configs" / f"{name}.json")]


def rows(graph):
    return [
        ("VGG-11, bf16", [*of_config("cnn_vgg11"), "precision.compute=bf16", "data.micro_batch=1"]),
        ("KGAT of the size of amazon-book", [*of_config("kgat_lastfm"), f"data.path={graph}"]),
        ("GPT 2 x 64, 50,304 words, tied", GPT),
        ("GPT 2 x 64, 50,304 words, untied", [*GPT, "model.tied=false"]),
        ("CNN basic, bf16", [*of_config("cnn_basic"), "precision.compute=bf16", "data.micro_batch=1"]),
        ("CAD-MLLM tiny", of_config("cad_mllm_tiny")),
        ("ViT-S", [*of_config("vit_s"), "data.micro_batch=1"]),
    ]


def write_graph(folder):
    """The numbers of users, items, entities and relations of amazon-book, and few edges."""
    for name, text in (("train.txt", "0 0 1\n70678 24914\n"), ("test.txt", "0 2\n"), ("kg_final.txt", "0 38 88571\n1 0 24915\n")):
        (folder / name).write_text(text)


def said(words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{words} ended with {done.returncode}: {done.stderr[-1500:]}")
    return done.stdout


def planned(program, words, nproc, strategy):
    plan = json.loads(said([program, "plan", "--json", "--nproc", nproc, "--strategy", strategy, *words]))
    return plan["plans"][0]["largest_rank"]


def measured(program, words, nproc, strategy):
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        said([program, *words, "--nproc", nproc, "--strategy", strategy, *SHORT, f"run.dir={run}"])
        summary = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["summary"]
    ranks = [{tag: rank["memory_bytes"][tag]["peak"] for tag in TAGS} for rank in summary["ranks"]]
    return max(ranks, key=lambda rank: sum(rank.values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nproc", default="2,4,8")
    parser.add_argument("--run", metavar="PROGRAM")
    parser.add_argument("--only", default="", metavar="TEXT", help="models whose name has it")
    args = parser.parse_args()
    if args.run and not shutil.which(args.run):
        parser.error(f"--run {args.run} is no program; give a ddhost")
    with tempfile.TemporaryDirectory() as folder:
        write_graph(pathlib.Path(folder))
        wanted = [(name, words) for name, words in rows(folder) if args.only in name]
        if not wanted:
            parser.error(f"--only {args.only}: no model's name has it")
        print("| model | ranks | " + " | ".join(STRATEGIES) + " |\n|---|---|" + "---|" * len(STRATEGIES), flush=True)
        for name, words in wanted:
            for nproc in args.nproc.split(","):
                cells = []
                for strategy in STRATEGIES:
                    ask = measured if args.run else planned
                    more = ["strategy.offload_optimizer.device=nvme", f"strategy.nvme_path={folder}"] if "offload" in strategy else []
                    bytes_of = ask(args.run or ROOT / "build/ddhost", [*words, *more], nproc, strategy)
                    cells.append(f"{sum(bytes_of[tag] for tag in TAGS) / 1e6:,.1f} ({bytes_of['grad'] / 1e6:,.1f})")
                print(f"| {name} | {nproc} | " + " | ".join(cells) + " |", flush=True)


main()
