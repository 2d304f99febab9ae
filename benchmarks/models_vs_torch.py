# SPDX-License-Identifier: Apache-2.0
"""Each model in ddhost and in PyTorch (DistributedDataParallel on gloo), alternating: samples per second and their ratio.

    python3 benchmarks/models_vs_torch.py --python PEER_PYTHON [--models vit:small,cnn:basic,...] [--worlds 1,2] [--pairs 3] [--compile]
    python3 benchmarks/models_vs_torch.py --python PEER_PYTHON --until 0.99     # time to that accuracy on MNIST
    python3 benchmarks/models_vs_torch.py --python PEER_PYTHON --train 1,2,3    # accuracy of MobileNetV2 after its config, by seed

PEER_PYTHON is a Python with torch, torchvision, transformers, peft, safetensors and numpy. Both sides begin with the weights that
PyTorch drew and train the same samples in the same order. The losses of the steps must agree, else the script fails: so both
do the same work. A step of ddhost includes the wait for its batch, which a thread makes meanwhile; that of PyTorch begins when the batch
is there.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import gpt_vs_peers
from arguments import count, count_or_none, counts, names, require_known, seeds
from gpt_vs_peers import output_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
CAD_SAMPLES = 512
# Model and size: samples of a micro-batch, samples of the data, what a sample is, options of ddhost.
MODELS = {
    "vit:small": (64, 4_000, "images", ["model.size=small", "model.dataset=cifar10_subset"]),
    "vit:Ti": (4, 4_000, "images", ["model.size=Ti", "model.dataset=cifar10_subset"]),
    "vit:B": (1, 4_000, "images", ["model.size=B", "model.dataset=cifar10_subset"]),
    "cnn:basic": (100, 60_000, "images", ["model.widths=[16,32,64,64]", "model.hidden=128", "model.padding=1",
                                          "model.batch_norm=true", "model.dropout=0", "model.dataset=mnist"]),
    "cnn:mobilenet_v2": (32, 4_000, "images", ["model.network=mobilenet_v2", "model.dropout=0",
                                                "model.dataset=cifar10_subset"]),
    "cnn:cnn_lstm": (50, 60_000, "videos", ["model.network=cnn_lstm", "model.dataset=moving_mnist", "model.frames=5",
                                             "model.widths=[8,16]", "model.padding=1", "model.lstm=[64,64]", "model.hidden=64",
                                             "model.dropout=0"]),
    "cnn:vgg11": (4, 4_000, "images", ["model.network=vgg11", "model.dropout=0", "model.dataset=cifar10_subset"]),
    "kgat:cf": (512, 16_180, "users", ['train.programs=["cf"]', "model.cf_sampling=pairs", "model.message_dropout=0"]),
    "kgat:kg": (1024, 63_396, "triples", ['train.programs=["kg"]', "model.kg_sampling=triples", "optimizer_kg.plugin=adam",
                                               "optimizer_kg.lr=1e-4", 'train.optimizers=["optimizer","optimizer_kg"]']),
    "cad_mllm:tiny:1": (8, CAD_SAMPLES, "samples", ['train.programs=["stage1_text"]']),
    "cad_mllm:tiny:3": (8, CAD_SAMPLES, "samples", ['train.programs=["stage3_all"]']),
    "cad_mllm:mid:3": (8, CAD_SAMPLES, "samples", [
        'train.programs=["stage3_all"]', "model.width=256", "model.layers=6", "model.heads=8", "model.kv_heads=4",
        "model.head_dim=32", "model.mlp_width=768"]),
}
SHORT = [name for name in MODELS if name not in ("vit:Ti", "vit:B", "cnn:vgg11")]

Round = collections.namedtuple("Round", "ours theirs run_dir")  # milliseconds of a step; the folder of ddhost's run


def run_peer(args, world, script, words):
    env = dict(os.environ, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1") | (gpt_vs_peers.jemalloc() if args.jemalloc else {})
    out = output_of([args.python, "-m", "torch.distributed.run", "--nproc_per_node", world, "--master_port",
                     random.randrange(20_000, 40_000), ROOT / "benchmarks/peers" / script, *words], env)
    return json.loads([line for line in out.splitlines() if line.startswith("{")][-1])


def rows_of(run_dir):
    """The rows so far; the last one may still be half written."""
    lines = (run_dir / "metrics.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def run_ddhost(world, model, run_dir, options):
    output_of([build_folder() / "ddhost", "--model", model, "--strategy", "ddp", "--nproc", world, f"run.dir={run_dir}",
               "run.quiet=true", "device.plugin=cpu", "run.sample_tokens=0", "schedule.type=constant", "schedule.warmup_steps=0",
               "train.eval_every=0", *options], dict(os.environ, DDHOST_DATA=str(data_folder()), OMP_NUM_THREADS="1"))
    return rows_of(run_dir)


def build_folder():
    return pathlib.Path(os.environ.get("DDHOST_BUILD", ROOT / "build"))


def data_folder():
    return pathlib.Path(os.environ.get("DDHOST_DATA", ROOT.parent / "shared/data"))


def write_order(path, n, seed):
    order = list(range(n))
    random.Random(seed).shuffle(order)
    path.write_bytes(struct.pack(f"<{n}q", *order))


def model_options(model, weights, samples, steps, order, cad_data):
    options = [f"train.steps={steps}", f"data.micro_batch={samples}", f"data.order={order}", "run.seed=1",
               "optimizer.lr=1e-4"]
    missing = []
    if model == "kgat":
        options += ["--optimizer", "adam", "train.clip_norm=0", "model.dataset=lastfm_kg"]
        missing = ["A_in"]
    else:
        options += ["--optimizer", "adamw", "optimizer.weight_decay=0", "optimizer.betas=[0.9,0.999]", "optimizer.eps=1e-8",
                    "train.clip_norm=1.0"]
    given = {"file": str(weights), "allow_missing": missing}
    if model == "cad_mllm":
        options += [f"data.path={cad_data}", "model.names=peft", "model.projector_lr_scale=1"]
        given["allow_surplus"] = ["image_encoder.embeddings.mask_token"]
    return options + [f"train.init_from={json.dumps([given])}"]


def require_same_losses(name, ours, theirs, later):
    """The first step's within 1e-4. Later ones may differ more: Adam's first updates have full length where a gradient is rounding
    alone, as before batch norms."""
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True), 1):
        if not abs(a - b) <= (1e-4 if step == 1 else later) * max(abs(b), 1e-3):
            sys.exit(f"{name}: the loss of step {step} is {a:.7g} in ddhost and {b:.7g} in PyTorch; this is not the same work")


def one_round(args, name, world, folder):
    """A Round, by the medians of the steps. Compares the losses."""
    samples, n, _, options = MODELS[name]
    model, size = name.split(":", 1)
    steps, weights, order = args.warmup + args.steps, folder / "weights.safetensors", folder / "order.bin"
    cad_data = folder / "cad"
    write_order(order, n, 1)
    if model == "cad_mllm" and not cad_data.exists():
        run_ddhost(1, model, folder / "cad_run", ["train.steps=1", f"data.path={cad_data}",
                                                  f"data.dummy_samples={CAD_SAMPLES}", 'train.programs=["stage1_text"]'])
    theirs = run_peer(args, world, "torch_models.py", ["--model", model, "--size", size, "--weights", weights, "--order", order, "--steps", steps,
                                    "--micro-batch", samples, "--data", cad_data if model == "cad_mllm" else data_folder(),
                                    *(["--compile"] if args.compile else [])])
    run_dir = pathlib.Path(tempfile.mkdtemp(dir=folder)) / "run"
    rows = run_ddhost(world, model, run_dir, [*model_options(model, weights, samples, steps, order, cad_data), *options])
    ours = [row for row in rows if "step_ms" in row]
    require_same_losses(name, [row["loss"] for row in ours], theirs["loss"], args.tolerance)
    return Round(statistics.median(row["step_ms"] for row in ours[args.warmup:]),
                 statistics.median(theirs["step_ms"][args.warmup:]), run_dir)


def speed_row(name, world, peer, rounds):
    samples, _, unit, _ = MODELS[name]
    ratios = [one.theirs / one.ours for one in rounds]
    per_s = lambda step_ms: 1e3 * samples * world / step_ms
    return {"row": name, "ranks": world, "unit": f"{unit} per second", "peer": peer,
            "ours": statistics.median(per_s(one.ours) for one in rounds),
            "theirs": statistics.median(per_s(one.theirs) for one in rounds),
            "ours_over_peer": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)}


def compare(args):
    peer = ("torch.compile" if args.compile else "PyTorch") + (" with jemalloc" if args.jemalloc else "")
    rows, failed = [], []
    if not args.json:
        show_head(peer)
    for name in args.models:
        for world in args.worlds:
            try:
                with tempfile.TemporaryDirectory() as folder:
                    rounds = [one_round(args, name, world, pathlib.Path(folder)) for _ in range(args.pairs)]
            except gpt_vs_peers.RUN_FAILED as reason:  # the others run
                print(f"models_vs_torch.py: {name} on {world} ranks: {reason}", file=sys.stderr, flush=True)
                failed.append(f"{name} on {world} ranks")
                continue
            rows.append(speed_row(name, world, peer, rounds))
            if args.json:
                print(f"{name} on {world} ranks: done", file=sys.stderr, flush=True)
            else:
                show(rows[-1:])
    if args.json:
        print(json.dumps({"rows": rows}, indent=2))
    if failed:
        sys.exit(f"models_vs_torch.py: these failed: {', '.join(failed)}")


def show_head(peer):
    print(f"| | ranks | ddhost | {peer} | ddhost / {peer} |\n|---|---|---|---|---|", flush=True)


def show(rows):
    for row in rows:
        print(f"| {row['row']} | {row['ranks']} | {row['ours']:.0f} {row['unit']} | {row['theirs']:.0f} {row['unit']} | "
              f"{row['ours_over_peer']:.2f} ({row['lowest']:.2f} .. {row['highest']:.2f}) |", flush=True)


def until(args):
    """Seconds from the start of the program to the first evaluation with this accuracy, every 100 steps."""
    print("| | seconds | steps | accuracy |\n|---|---|---|---|", flush=True)
    for _ in range(args.pairs):
        seed = random.randrange(1, 10_000)
        begin = time.perf_counter()
        theirs = run_peer(args, 2, "torch_training.py", ["--recipe", "mnist", "--data", data_folder(), "--until", args.until,
                                                         "--seed", seed])
        print(f"| PyTorch, with its start | {time.perf_counter() - begin:.1f} | {theirs['steps']} | {theirs['accuracy']:.4f} |",
              flush=True)
        with tempfile.TemporaryDirectory() as folder:
            run_dir = pathlib.Path(folder) / "run"
            command = [str(build_folder() / "ddhost"), "--config", str(ROOT / "configs/cnn_mnist.json"), f"run.dir={run_dir}",
                       "run.quiet=true", "device.plugin=cpu", "train.eval_every=100", "train.eval_batches=all", f"run.seed={seed}"]
            begin = time.perf_counter()
            with subprocess.Popen(command, env=dict(os.environ, DDHOST_DATA=str(data_folder()))) as run:
                reached = None
                while reached is None and run.poll() is None:
                    time.sleep(0.05)
                    rows = rows_of(run_dir) if (run_dir / "metrics.jsonl").exists() else []
                    reached = next((row for row in rows if row.get("val_accuracy", 0) >= args.until), None)
                seconds = time.perf_counter() - begin
                run.terminate()
            step, accuracy = (reached["step"], f"{reached['val_accuracy']:.4f}") if reached else ("not reached", "")
            print(f"| ddhost, with its start | {seconds:.1f} | {step} | {accuracy} |", flush=True)


def train(args):
    """torchvision's MobileNetV2 in PyTorch, then configs/cnn_cifar10_mobilenet_v2.json: the accuracy at the end."""
    print("| | seed | seconds | accuracy |\n|---|---|---|---|", flush=True)
    for seed in args.train:
        theirs = run_peer(args, 2, "torch_training.py", ["--recipe", "mobilenet_v2", "--data", data_folder(), "--seed", seed])
        print(f"| PyTorch | {seed} | {theirs['seconds']:.0f} | {theirs['accuracy']:.3f} |", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            run_dir = pathlib.Path(folder) / "run"
            begin = time.perf_counter()
            output_of([build_folder() / "ddhost", "--config", ROOT / "configs/cnn_cifar10_mobilenet_v2.json",
                       f"run.dir={run_dir}", "run.quiet=true", "device.plugin=cpu", f"run.seed={seed}"],
                      dict(os.environ, DDHOST_DATA=str(data_folder())))
            seconds = time.perf_counter() - begin
            last = [row for row in rows_of(run_dir) if "val_accuracy" in row][-1]
            print(f"| ddhost | {seed} | {seconds:.0f} | {last['val_accuracy']:.3f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--models", type=names, default=SHORT, help=", ".join(MODELS))
    parser.add_argument("--worlds", type=counts, default=[1, 2])
    parser.add_argument("--compile", action="store_true", help="the peer is compiled by torch.compile, else eager")
    parser.add_argument("--jemalloc", action="store_true", help="the peer's allocator is jemalloc")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--steps", type=count, default=8)
    parser.add_argument("--warmup", type=count_or_none, default=3)
    parser.add_argument("--pairs", type=count, default=3)
    parser.add_argument("--tolerance", type=float, default=0.02, help="largest relative difference of the losses of a step after the first")
    parser.add_argument("--until", type=float, default=0, help="an accuracy: cnn basic on MNIST until it is reached")
    parser.add_argument("--train", type=seeds, default=[],
                        help="seeds: MobileNetV2 on cifar10_subset to the end of its config")
    args = parser.parse_args()
    require_known(parser, "--models", args.models, MODELS, "model")
    if args.json and (args.train or args.until > 0):
        parser.error("--json goes with neither --train nor --until; leave it out")
    gpt_vs_peers.require_torch(args.python)
    if args.jemalloc:
        gpt_vs_peers.require_jemalloc()
    (train if args.train else until if args.until > 0 else compare)(args)


if __name__ == "__main__":
    main()
