# SPDX-License-Identifier: Apache-2.0
"""Trains a network in eager PyTorch with DistributedDataParallel on gloo, as a config of ddhost does, for models_vs_torch.py.

    torchrun --nproc_per_node 2 torch_training.py --recipe mnist --data DATA --until 0.99
    torchrun --nproc_per_node 2 torch_training.py --recipe mobilenet_v2 --data DATA

Ends with the recipe or at the test accuracy --until. Prints the seconds, the steps, and the accuracy of the last evaluation.
"""
import argparse
import dataclasses
import json
import time

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import ddhost_data
import torch_networks


@dataclasses.dataclass
class Recipe:
    """What a config of ddhost says. AdamW, one cycle, no decay of vectors, gradients clipped to a norm of 1."""
    size: str          # a network of torch_networks.cnn
    data: object       # a function of the folder and the part
    test: str          # its test part
    micro_batch: int   # images
    epochs: int
    lr: float
    weight_decay: float
    padding: int       # pixels
    flip: bool
    label_smoothing: float
    eval_steps: int    # between evaluations; 0: at the end only
    options: dict = dataclasses.field(default_factory=dict)


RECIPES = {
    # configs/cnn_mnist.json
    "mnist": Recipe("basic", ddhost_data.mnist, "t10k", 100, 5, 4e-3, 0.05, 2, False, 0.0, 100),
    # configs/cnn_cifar10_mobilenet_v2.json
    "mobilenet_v2": Recipe("mobilenet_v2", ddhost_data.cifar10, "test", 25, 60, 2e-3, 0.1, 4, True, 0.1, 0,
                           {"stem_stride": 1, "dropout": 0.2, "channels_last": True}),
}


def augmented(pixels, recipe, generator):
    """Each image moved by up to `padding` pixels, zeros outside, and half of them mirrored. (n, c, h, w)"""
    n, side = len(pixels), pixels.shape[-1]
    wide = F.pad(pixels, (recipe.padding,) * 4)
    top, left = torch.randint(0, 2 * recipe.padding + 1, (2, n, 1), generator=generator)
    rows, columns = top + torch.arange(side), left + torch.arange(side)
    if recipe.flip:
        mirrored = torch.rand(n, generator=generator) < 0.5
        columns[mirrored] = columns[mirrored].flip(1)
    moved = wide[torch.arange(n)[:, None, None], :, rows[:, :, None], columns[:, None, :]]  # (n, h, w, c)
    return moved.permute(0, 3, 1, 2)


def accuracy_of(model, pixels, labels, rank, world):
    """Over all ranks."""
    model.eval()
    hits = torch.zeros(1)
    with torch.no_grad():
        for first in range(rank * 500, len(labels), world * 500):
            hits += (model(pixels[first:first + 500]).argmax(1) == labels[first:first + 500]).sum()
    model.train()
    dist.all_reduce(hits)
    return hits.item() / len(labels)


def train(args, recipe, rank, world):
    torch.manual_seed(args.seed)
    begin = time.perf_counter()
    (pixels, labels), test = recipe.data(args.data), recipe.data(args.data, recipe.test)
    model = torch_networks.cnn(recipe.size, **recipe.options)
    classifier = torch_networks.Classifier(model, recipe.label_smoothing)
    net = DistributedDataParallel(classifier, gradient_as_bucket_view=True, static_graph=True)
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": recipe.weight_decay},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=recipe.lr, fused=True)
    span = recipe.micro_batch * world
    steps = recipe.epochs * (len(labels) // span)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.lr, total_steps=steps, cycle_momentum=False)
    generator = torch.Generator().manual_seed(args.seed)
    order, accuracy = torch.randperm(len(labels), generator=generator), 0.0
    for step in range(steps):
        first = step * span % (len(labels) // span * span)
        if first == 0:
            order = torch.randperm(len(labels), generator=generator)
        mine = order[first + rank * recipe.micro_batch:first + (rank + 1) * recipe.micro_batch]
        loss = net((augmented(pixels[mine], recipe, generator), labels[mine]))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step + 1 == steps or (recipe.eval_steps > 0 and (step + 1) % recipe.eval_steps == 0):
            accuracy = accuracy_of(model, *test, rank, world)
            if 0 < args.until <= accuracy:
                break
    return {"seconds": time.perf_counter() - begin, "steps": step + 1, "accuracy": accuracy}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=RECIPES, required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--until", type=float, default=0, help="a test accuracy; 0: to the end")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    result = train(args, RECIPES[args.recipe], dist.get_rank(), dist.get_world_size())
    if dist.get_rank() == 0:
        print(json.dumps(result), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
