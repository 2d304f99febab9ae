# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's save_checkpoint and load_checkpoint of a GPT under ZeRO.

    DDHOST_BENCH_FOLDER=DIR DS_ACCELERATOR=cpu torchrun --nproc_per_node 2 deepspeed_checkpoint.py --strategy zero1 \\
        --size gpt2 --tokens FILE

Prints one JSON object: stall (until save_checkpoint returns), durable (until its files are synced), resume
(load_checkpoint into the same engine), in seconds, and bytes.
"""
import json
import pathlib
import time

import deepspeed
import torch
import torch.distributed as dist

import gpt
from deepspeed_gpt import config
from torch_checkpoint import bytes_of, folder_of_run, sync_files


def main():
    options = gpt.parse_options(__doc__, ["zero1", "zero2", "zero3"])
    folder = folder_of_run()
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    model = gpt.make_model(options)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=gpt.decay_groups(model), config=config(options))

    def step(ids, targets):
        loss = engine(ids, targets)
        engine.backward(loss)
        engine.step()
        return loss

    gpt.timed_steps(options, dist.get_rank(), step)
    dist.barrier()
    begin = time.monotonic()
    engine.save_checkpoint(str(folder))
    stall = time.monotonic() - begin
    dist.barrier()
    if dist.get_rank() == 0:
        sync_files(folder)
    durable = time.monotonic() - begin
    dist.barrier()
    begin = time.monotonic()
    path, _ = engine.load_checkpoint(str(folder))
    resume = time.monotonic() - begin
    if path is None or not pathlib.Path(path).exists():
        raise RuntimeError("DeepSpeed has loaded no checkpoint")
    if dist.get_rank() == 0:
        print(json.dumps({"stall": stall, "durable": durable, "resume": resume, "bytes": bytes_of(folder)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
