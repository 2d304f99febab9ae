# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's save_checkpoint and load_checkpoint of a GPT under ZeRO.

    DDHOST_BENCH_FOLDER=DIR DS_ACCELERATOR=cpu torchrun --nproc_per_node 2 deepspeed_checkpoint.py --strategy zero1 \\
        --size gpt2 --tokens FILE

Prints one JSON object: stall (until save_checkpoint returns), durable (until its files are synced), resume
(load_checkpoint into the same engine), in seconds, and bytes.
"""
import pathlib

import torch.distributed as dist

import gpt
from deepspeed_gpt import prepare
from torch_checkpoint import folder_of_run, report


def main():
    options = gpt.parse_options(__doc__, ["zero1", "zero2", "zero3"])
    engine, step = prepare(options)
    gpt.timed_steps(options, dist.get_rank(), step)
    folder = str(folder_of_run())

    def load():
        path, _ = engine.load_checkpoint(folder)
        if path is None or not pathlib.Path(path).exists():
            raise RuntimeError("DeepSpeed has loaded no checkpoint")

    report(save=lambda: engine.save_checkpoint(folder), wait=lambda _: dist.barrier(), load=load)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
