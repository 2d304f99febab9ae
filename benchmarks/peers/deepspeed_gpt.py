# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's ZeRO stages on its CPU accelerator over gloo, with its own CPU AdamW; zero2_offload, zero3_offload: the optimizer's state
is offloaded to the host. On a CPU, host memory is the memory of the device.

    DS_ACCELERATOR=cpu torchrun --nproc_per_node 2 deepspeed_gpt.py --strategy zero2 --size gpt2 --tokens FILE
"""
import deepspeed
import torch
import torch.distributed as dist

import gpt


def config(options):
    """overlap_comm is for accelerators with streams; the other values are DeepSpeed's defaults."""
    stage, _, offloads = options.strategy.partition("_")
    zero = {"stage": int(stage[-1]), "overlap_comm": False}
    if offloads:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": False}
    return {
        "train_micro_batch_size_per_gpu": options.micro_batch,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}},
        "zero_optimization": zero,
        "bf16": {"enabled": options.dtype == "bf16"},
    }


def prepare(options):
    """The engine, and the function of a step."""
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    model = gpt.make_model(options)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=gpt.decay_groups(model), config=config(options))

    def step(ids, targets):
        loss = engine(ids, targets)
        engine.backward(loss)
        engine.step()
        return loss

    return engine, step


def main():
    options = gpt.parse_options(__doc__, ["zero1", "zero2", "zero3", "zero2_offload", "zero3_offload"])
    _, step = prepare(options)
    gpt.timed_steps(options, dist.get_rank(), step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
