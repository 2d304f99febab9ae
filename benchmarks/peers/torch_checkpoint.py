# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint of a GPT under FSDP2: async_save while training goes on, and load.

    DDHOST_BENCH_FOLDER=DIR torchrun --nproc_per_node 2 torch_checkpoint.py --strategy fsdp2 --size gpt2 --tokens FILE

Prints one JSON object: stall (until async_save returns), durable (until its future is done, and the files are synced),
resume (dcp.load into the same model), in seconds, and bytes.
"""
import json
import os
import pathlib
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict

import gpt
from torch_gpt import shard


def folder_of_run():
    return pathlib.Path(os.environ["DDHOST_BENCH_FOLDER"])


def sync_files(folder):
    for path in folder.rglob("*"):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def bytes_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def report(save, wait, load):
    """Measures save(), wait(its result) until the files are synced, and load(); rank 0 prints the result."""
    folder, is_first = folder_of_run(), dist.get_rank() == 0
    dist.barrier()
    begin = time.monotonic()
    saving = save()
    stall = time.monotonic() - begin
    wait(saving)
    if is_first:
        sync_files(folder)
    durable = time.monotonic() - begin
    dist.barrier()
    begin = time.monotonic()
    load()
    resume = time.monotonic() - begin
    if is_first:
        print(json.dumps({"stall": stall, "durable": durable, "resume": resume, "bytes": bytes_of(folder)}), flush=True)


def main():
    options = gpt.parse_options(__doc__, ["fsdp2"])
    folder = folder_of_run()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = gpt.make_model(options)
    net = shard(model, options.dtype)
    optimizer = torch.optim.AdamW(gpt.decay_groups(model), lr=3e-4, betas=(0.9, 0.95), fused=True)

    def step(ids, targets):
        loss = net(ids, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    gpt.timed_steps(options, dist.get_rank(), step)
    weights, states = get_state_dict(model, optimizer)
    state = {"model": weights, "optim": states}
    report(save=lambda: dcp.async_save(state, checkpoint_id=folder), wait=lambda future: future.result(),
           load=lambda: dcp.load(state, checkpoint_id=folder))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
