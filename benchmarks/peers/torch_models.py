# SPDX-License-Identifier: Apache-2.0
"""A model in PyTorch, eager or compiled, with DistributedDataParallel on gloo, for models_vs_torch.py.

    torchrun --nproc_per_node 2 torch_models.py --model cnn --size basic --weights W.safetensors --order ORDER.bin ...

Rank 0 first writes its weights to --weights, from which ddhost begins too. The samples are those of --order. Prints milliseconds
and losses of all steps.
"""
import argparse
import json
import pathlib
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import ddhost_data
import torch_networks


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "size", "weights", "order", "data"):
        parser.add_argument(f"--{name}", required=name == "model", default="")
    parser.add_argument("--compile", action="store_true", help="by torch.compile, before the first step")
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def images_of(args):
    if args.size == "cnn_lstm":
        return ddhost_data.MovingMnist(args.data).batch
    pixels, labels = (ddhost_data.mnist if args.size == "basic" else ddhost_data.cifar10)(args.data)
    side = 224 if args.size in ("Ti", "B") else pixels.shape[-1]

    def batch(samples):
        x = pixels[samples]
        return (F.interpolate(x, side, mode="bilinear") if side != x.shape[-1] else x), labels[samples]
    return batch


def model_and_batches(args):
    """A module that gives a loss, and a function of samples that gives what it takes."""
    if args.model in ("vit", "cnn"):
        return torch_networks.Classifier(getattr(torch_networks, args.model)(args.size)), images_of(args)
    if args.model == "kgat":
        graph = ddhost_data.Graph(args.data, "lastfm_kg")
        return torch_networks.Kgat(graph, args.size), lambda samples: getattr(graph, args.size)(args.seed, samples)
    size, stage = args.size.split(":")
    data = ddhost_data.Cad(args.data, 40)
    return torch_networks.CadMllm(size, int(stage)), lambda samples: data.batch(args.seed, int(stage), samples)


def write_weights(args, model):
    from safetensors.torch import save_file
    tensors = model.net.state_dict() if args.model in ("vit", "cnn") else model.state_dict()
    for new, old in ((".attention.q_proj.", ".attention.attention.query."), (".attention.k_proj.", ".attention.attention.key."),
                     (".attention.v_proj.", ".attention.attention.value."), (".attention.o_proj.", ".attention.output.dense.")):
        tensors = {n.replace(new, old) if n.startswith("image_encoder") else n: t for n, t in tensors.items()}
    save_file({name: t.contiguous() for name, t in tensors.items()}, args.weights + ".part")
    pathlib.Path(args.weights + ".part").rename(args.weights)


def optimizer_of(args, model):
    learns = [p for p in model.parameters() if p.requires_grad]
    if args.model == "kgat":
        return torch.optim.Adam(learns, lr=args.lr, fused=True), 0
    return torch.optim.AdamW(learns, lr=args.lr, weight_decay=0, fused=True), 1.0


def timed_run(args, rank, world):
    torch.manual_seed(args.seed)
    model, batch_of = model_and_batches(args)
    if rank == 0:
        write_weights(args, model)
    inner = torch.compile(model) if args.compile else model
    net = DistributedDataParallel(inner, gradient_as_bucket_view=True, static_graph=True)
    optimizer, clip = optimizer_of(args, model)
    order = np.fromfile(args.order, dtype=np.int64)
    times, losses = [], []
    for i in range(args.steps):
        first = (i * world + rank) * args.micro_batch
        batch = batch_of(order[first:first + args.micro_batch])
        # cad_mllm: a sum, divided by the targets of all ranks; the others: a mean
        targets = torch.tensor(float((batch["labels"] != -100).sum()) if args.model == "cad_mllm" else float(world))
        dist.barrier()
        begin = time.perf_counter()
        if args.model == "cad_mllm":
            dist.all_reduce(targets)
        loss = net(batch) / targets * world  # DDP takes the mean over the ranks
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if clip > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - begin))
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item() / world)
    if rank == 0:
        print(json.dumps({"step_ms": times, "loss": losses}), flush=True)


def main():
    args = parsed()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    timed_run(args, dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
