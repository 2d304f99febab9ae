#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Writes tests/data/imports: checkpoints of other programs, by their own packages, and the values that they hold.
#
#   make_imports.py OUT_DIR
#
# Packages (CPU only): torch 2.11.0, safetensors 0.8.0, transformers 5.23.0, deepspeed 0.19.8 (its build with
# DS_BUILD_OPS=0). The parameters are those of the toy model with model.layers=1 (tests/fixtures/models/toy.cpp); three steps
# of AdamW give them moments. GPT-2's weights are those of golden/gpt2_tiny.safetensors.
"""Small checkpoints of torch, nanoGPT, torch DCP, DeepSpeed and transformers."""
import importlib
import json
import os
import shutil
import subprocess
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from huggingface_hub import split_torch_state_dict_into_shards  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 3


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = torch.nn.Parameter(torch.randn(9, 5))
        self.b1 = torch.nn.Parameter(torch.randn(9))
        self.w2 = torch.nn.Parameter(torch.randn(5, 9))
        self.gain = torch.nn.Parameter(torch.randn(1))
        self.frozen = torch.nn.Parameter(torch.randn(5), requires_grad=False)
        self.unused = torch.nn.Parameter(torch.randn(3))


class Toy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Parameter(torch.randn(31, 5))
        self.layers = torch.nn.ModuleList([Layer()])
        self.bias = torch.nn.Parameter(torch.randn(31))

    def forward(self, ids):
        layer = self.layers[0]
        x = self.embedding[ids]
        x = x + layer.gain * (torch.tanh(x @ layer.w1.T + layer.b1) @ layer.w2.T) + layer.frozen + layer.unused.sum()
        return torch.nn.functional.cross_entropy(x @ self.embedding.T + self.bias, ids)


def batch(step, rank):
    return torch.randint(0, 31, (8,), generator=torch.Generator().manual_seed(100 * step + rank))


def contiguous(tensors):
    return {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}


def expect(folder, weights, moments):
    save_file(contiguous({**weights, **moments}), os.path.join(folder, "expected.safetensors"))


def moments_of(model, optimizer):
    names = {id(p): n for n, p in model.named_parameters()}
    return {f"{slot}/{names[id(p)]}": state[slot] for p, state in optimizer.state.items()
            for slot in ("exp_avg", "exp_avg_sq")}


def trained():
    torch.manual_seed(1)
    model = Toy()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(batch(step, 0)).backward()
        optimizer.step()
    return model, optimizer


def write_torch(out):
    os.makedirs(out)
    model, optimizer = trained()
    state = model.state_dict()
    torch.save(state, f"{out}/state_dict.pt")
    torch.save({n: t.bfloat16() for n, t in state.items()}, f"{out}/state_dict_bf16.pt")
    # A tensor that is a view: transposed, and in the middle of its storage.
    views = dict(state)
    views["layers.0.w1"] = torch.cat([torch.zeros(2, 9), state["layers.0.w1"].T])[2:].T
    torch.save(views, f"{out}/views.pt")
    write_bin_shards(os.path.dirname(out), state)
    torch.save(state, f"{out}/legacy.pt", _use_new_zipfile_serialization=False)
    torch.save({"model": {"_orig_mod." + n: t for n, t in state.items()}, "optimizer": optimizer.state_dict(),
                "model_args": {"n_layer": 1, "bias": False}, "iter_num": STEPS, "best_val_loss": torch.tensor(1.5),
                "config": {"dataset": "toy", "lr": 1e-2, "device": "cpu"}}, f"{out}/nanogpt_ckpt.pt")
    expect(out, state, moments_of(model, optimizer))


def write_wrapped(out):
    """The names that wrappers give: DDP around torch.compile around activation checkpointing."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = Toy()
    model.load_state_dict(torch.load(f"{out}/torch/state_dict.pt"))
    model.layers[0] = checkpoint_wrapper(model.layers[0])
    wrapped = torch.nn.parallel.DistributedDataParallel(torch.compile(model))
    if dist.get_rank() == 0:
        state = {name: param.detach() for name, param in wrapped.named_parameters()}
        assert "module._orig_mod.layers.0._checkpoint_wrapped_module.w1" in state, state.keys()
        torch.save(state, f"{out}/torch/wrapped.pt")
    dist.barrier()


def write_bin_shards(out, state):
    """As transformers 4 wrote with max_shard_size: files of torch.save, and an index."""
    os.makedirs(f"{out}/hf_bin", exist_ok=True)
    split = split_torch_state_dict_into_shards(state, filename_pattern="pytorch_model{suffix}.bin", max_shard_size=800)
    for file, names in split.filename_to_tensors.items():
        torch.save({name: state[name] for name in names}, f"{out}/hf_bin/{file}")
    with open(f"{out}/hf_bin/pytorch_model.bin.index.json", "w", encoding="utf-8") as index:
        json.dump({"metadata": split.metadata, "weight_map": split.tensor_to_filename}, index, indent=2, sort_keys=True)
        index.write("\n")


def write_nanogpt(out):
    """What nanoGPT's train.py saves of a compiled GPT: linear weights are [out, in], and the head is the tied embedding."""
    golden = load_file(os.path.join(HERE, "golden", "gpt2_tiny.safetensors"))
    linear = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    state = {n[2:]: t.T.contiguous() if n.endswith(linear) else t for n, t in golden.items() if n.startswith("w.")}
    state["lm_head.weight"] = state["transformer.wte.weight"]
    optimizer = torch.optim.AdamW([torch.nn.Parameter(t) for t in state.values()], lr=1e-3, betas=(0.9, 0.99))
    args = {"n_layer": 2, "n_head": 4, "n_embd": 32, "block_size": 24, "bias": True, "vocab_size": 67, "dropout": 0.0}
    torch.save({"model": {"_orig_mod." + n: t for n, t in state.items()}, "optimizer": optimizer.state_dict(),
                "model_args": args, "iter_num": 0, "best_val_loss": torch.tensor(1e9), "config": dict(args, device="cpu")},
               f"{out}/nanogpt_gpt.pt")


def write_dcp(out):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(1)
    model = Toy()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(batch(step, dist.get_rank())).backward()
        optimizer.step()
    weights, states = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optim": states}, checkpoint_id=f"{out}/dcp")
    full = {n: t.full_tensor() for n, t in weights.items()}
    names = {id(p): n for n, p in model.named_parameters()}
    moments = {f"{slot}/{names[id(p)]}": s[slot].full_tensor() for p, s in optimizer.state.items()
               for slot in ("exp_avg", "exp_avg_sq")}
    if dist.get_rank() == 0:
        expect(f"{out}/dcp", full, moments)
    dist.barrier()


def write_flat_dcp(out):
    """As torchtitan: weights at the root, and an optimizer's state dict that is flat."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    model, optimizer = trained()
    weights, states = get_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
    # The groups' options of one parameter tell as much as those of all, in fewer bytes.
    states = {n: v for n, v in states.items() if n.startswith(("state.", "param_groups.bias."))}
    dcp.save({**weights, "optimizer": states, "train_state": {"step": torch.tensor(STEPS), "ntokens_seen": 48}},
             checkpoint_id=f"{out}/dcp_flat")
    expect(f"{out}/dcp_flat", model.state_dict(), moments_of(model, optimizer))


def write_app_dcp(out):
    """As PyTorch's tutorial of distributed checkpoints: an object that gives both state dicts."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.checkpoint.stateful import Stateful

    class AppState(Stateful):
        def __init__(self, model, optimizer):
            self.model, self.optimizer = model, optimizer

        def state_dict(self):
            weights, states = get_state_dict(self.model, self.optimizer)
            return {"model": weights, "optim": states}

        def load_state_dict(self, state_dict):
            raise NotImplementedError

    model, optimizer = trained()
    dcp.save({"app": AppState(model, optimizer)}, checkpoint_id=f"{out}/dcp_app")
    expect(f"{out}/dcp_app", model.state_dict(), moments_of(model, optimizer))


def small_gpt2():
    """Its head is tied to the embedding."""
    from transformers import GPT2Config, GPT2LMHeadModel

    class Model(GPT2LMHeadModel):
        def forward(self, ids):
            return super().forward(input_ids=ids, labels=ids).loss

    return Model(GPT2Config(vocab_size=31, n_positions=8, n_embd=8, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0,
                            attn_pdrop=0.0))


def write_deepspeed(folder, make_model, zero):
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

    # An extension that it would compile; gloo alone gives the same sums.
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    torch.manual_seed(1)
    stage = zero["stage"]
    config = {"train_micro_batch_size_per_gpu": 8, "zero_optimization": zero, "bf16": {"enabled": True},
              "zero_allow_untested_optimizer": True}
    model = make_model()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for step in range(STEPS):
        ids = batch(step, dist.get_rank())
        engine.backward(engine(ids if make_model is Toy else ids.reshape(1, 8)))
        engine.step()
    engine.save_checkpoint(folder)
    weights, moments = {}, {}
    for name, param in engine.module.named_parameters():
        if not param.requires_grad:
            continue
        weights[name] = safe_get_full_fp32_param(param).reshape(param.ds_shape if stage == 3 else param.shape)
        for slot in ("exp_avg", "exp_avg_sq"):
            moments[f"{slot}/{name}"] = safe_get_full_optimizer_state(param, slot).reshape(weights[name].shape)
    torch.manual_seed(1)
    if make_model is Toy:
        weights["layers.0.frozen"] = Toy().layers[0].frozen.bfloat16().float()
    if dist.get_rank() == 0:
        expect(folder, weights, moments)
    dist.barrier()


def write_round_robin_universal(out):
    """DeepSpeed's own tools exchange parameters here: ds_to_universal, and safe_get_full_fp32_param of a run."""
    # Elementwise updates do not depend on the order of parameters.
    shutil.copy(f"{out}/zero2/expected.safetensors", f"{out}/round_robin/expected.safetensors")
    folder = f"{out}/universal_round_robin"
    to_universal(f"{out}/round_robin", folder)
    for path, _, files in os.walk(f"{folder}/zero"):
        for file in files:  # the weights are enough to see it
            if file != "fp32.pt":
                os.remove(os.path.join(path, file))


def to_universal(folder, out):
    subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder",
                    f"{folder}/global_step{STEPS}", "--output_folder", out, "--num_extract_workers", "1",
                    "--num_merge_workers", "1", "--inject_missing_state"], check=True)


def write_gpt2(out):
    from transformers import GPT2Config, GPT2LMHeadModel

    golden = load_file(os.path.join(HERE, "golden", "gpt2_tiny.safetensors"))
    model = GPT2LMHeadModel(GPT2Config(vocab_size=67, n_positions=24, n_embd=32, n_layer=2, n_head=4))
    weights = {n[2:]: t for n, t in golden.items() if n.startswith("w.")}
    missing, surplus = model.load_state_dict(weights, strict=False)
    assert missing == ["lm_head.weight"] and not surplus, (missing, surplus)
    model.eval()
    with torch.no_grad():
        logits = model(golden["input.ids"]).logits
    assert (logits - golden["logits"]).abs().max() < 1e-5
    model.save_pretrained(f"{out}/hf_gpt2")


def main():
    out = sys.argv[1]
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        write_wrapped(out)
        write_dcp(out)
        for stage in (1, 2, 3):
            write_deepspeed(f"{out}/zero{stage}", Toy, {"stage": stage})
            write_deepspeed(f"{out}/gpt2_zero{stage}", small_gpt2, {"stage": stage})
        write_deepspeed(f"{out}/round_robin", Toy, {"stage": 2, "round_robin_gradients": True})
        dist.destroy_process_group()
        return
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    write_torch(f"{out}/torch")
    write_nanogpt(f"{out}/torch")
    write_gpt2(out)
    write_flat_dcp(out)
    write_app_dcp(out)
    subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", __file__, out], check=True)
    to_universal(f"{out}/zero2", f"{out}/universal")
    shutil.copy(f"{out}/zero2/expected.safetensors", f"{out}/universal/expected.safetensors")
    write_round_robin_universal(out)
    os.remove(f"{out}/hf_gpt2/generation_config.json")
    for folder, _, files in os.walk(out):
        for file in files:  # a script and a mark that DeepSpeed puts beside its files
            if file.endswith(".py") or file == "latest_universal":
                os.remove(os.path.join(folder, file))


main()
