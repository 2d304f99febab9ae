# SPDX-License-Identifier: Apache-2.0
"""same_numbers.py BUILD DATA: learning rates and losses of 20 steps, here and by the programs whose files are read.

DeepSpeed trains the tests' toy model in PyTorch with a real file, on its CPU backend and 2 ranks. ddhost trains the same model
with the same file, the same initial weights and the same samples. Sections of 16 bits are off on both sides, but for two files
in bf16. What a file leaves to "auto" is filled in here as the documentation of the Trainer says, not as ddhost does it.
"""
import copy
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

RANKS, STEPS, LARGEST_BATCH = 2, 20, 64
DEEPSPEED = ["pub_ac_z1", "pub_ac_z2_off", "pub_ac_z3_off", "pub_alpaca_off", "pub_az_cifar", "pub_belle_flops",
             "pub_dolly_v100", "pub_dse_imagenet", "pub_fe_s0", "pub_lf_z2", "pub_mistral_z1_off", "pub_qwen_z2", "pub_ac_t_z2",
             "pub_ds_squad"]
BF16 = ["pub_belle_flops", "pub_qwen_z2"]
ACCELERATE = ["pub_trl_z2", "pub_r1_z2", "pub_ah_zero3", "pub_trlx_ddp"]
LAUNCHED = ["pub_r1_z2"]  # by `accelerate launch` with the file, which reads its DeepSpeed section itself


def hash64(x):
    mask = (1 << 64) - 1
    x = (x + 0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9 & mask
    x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
    return x ^ x >> 31


def sample(index, vocab):
    h = hash64(index)
    return h % vocab, (h >> 40) % vocab if (h >> 32) % 3 == 0 else (h + 1) % vocab


# The file with what "auto" means for the Trainer's default arguments. Its warmup_num_steps would be 0, which DeepSpeed 0.19.8
# refuses; older versions warm up as with 1.
def filled(config, steps):
    ours = {"lr": 5e-5, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0, "warmup_min_lr": 0, "warmup_max_lr": 5e-5,
            "warmup_num_steps": 1, "total_num_steps": steps, "train_micro_batch_size_per_gpu": 8,
            "gradient_accumulation_steps": 1, "gradient_clipping": 1.0, "enabled": False, "reduce_bucket_size": 64 * 64,
            "stage3_prefetch_bucket_size": 3686, "stage3_param_persistence_threshold": 640, "torch_autocast": None,
            "stage3_gather_16bit_weights_on_model_save": False}
    def fill(node):
        return {key: fill(value) if isinstance(value, dict) else
                (ours[key] if value == "auto" and key != "train_batch_size" else value) for key, value in node.items()}
    out = fill(config)
    if out.get("train_batch_size") == "auto":
        del out["train_batch_size"]
    return out


def without_16_bits(config, keeps):
    out = copy.deepcopy(config)
    for section in ("fp16", "bf16", "bfloat16"):
        if section in out:
            out[section]["enabled"] = False
    if keeps:
        out["bf16"] = {"enabled": True}
        out.pop("bfloat16", None)
    return out


def with_small_batch(config):
    out = copy.deepcopy(config)
    total = out.get("train_batch_size")
    if isinstance(total, int) and total > LARGEST_BATCH:
        out["train_batch_size"] = LARGEST_BATCH
        out.pop("train_micro_batch_size_per_gpu", None)
        out.pop("gradient_accumulation_steps", None)
    elif isinstance(total, int) and isinstance(out.get("train_micro_batch_size_per_gpu"), int):
        del out["train_batch_size"]  # it was for another number of ranks
    if not any(key in out for key in ("train_batch_size", "train_micro_batch_size_per_gpu")):
        out["train_micro_batch_size_per_gpu"] = 2
    return out


def ddhost(build, words, check=True):
    env = {key: value for key, value in os.environ.items() if key not in ("MODEL_SIZE", "BATCH_SIZE", "EPOCHS")}
    run = subprocess.run([str(build / "ddhost"), *words], capture_output=True, text=True, env=env)
    if check and run.returncode != 0:
        raise SystemExit(f"FAILED: ddhost {' '.join(words)}\n{run.stderr}")
    return run


def read_safetensors(path):
    import torch
    raw = Path(path).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    return {name: torch.frombuffer(bytearray(raw[8 + size + at["data_offsets"][0]:8 + size + at["data_offsets"][1]]),
                                   dtype=torch.float32).reshape(at["shape"])
            for name, at in header.items() if name != "__metadata__"}


def make_toy(weights):
    import torch

    class Toy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.names = list(weights)
            self.params = torch.nn.ParameterList(
                [torch.nn.Parameter(weights[name].clone(), requires_grad=not name.endswith(".frozen")) for name in self.names])

        def forward(self, tokens, targets):
            p = dict(zip(self.names, self.params))
            embedding = p["embedding"]
            x = embedding[tokens]
            layer = 0
            while f"layers.{layer}.w1" in p:
                at = f"layers.{layer}."
                hidden = torch.tanh(x @ p[at + "w1"].T + p[at + "b1"])
                x = x + p[at + "gain"] * (hidden @ p[at + "w2"].T) + p[at + "frozen"] + 0 * p[at + "unused"].sum()
                layer += 1
            logits = x @ embedding.T + p["bias"]
            return torch.nn.functional.cross_entropy(logits.float(), targets)

    return Toy()


# One rank of the other program: writes losses and rates.
def rank_of_deepspeed(folder):
    import torch
    import deepspeed
    job = json.loads((folder / "job.json").read_text())
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    model = make_toy(read_safetensors(folder / "init.safetensors"))
    config = job["config"]
    trained = [p for p in model.parameters() if p.requires_grad]
    own = None
    if "optimizer" not in config:  # a script has it: the Trainer's
        own = torch.optim.AdamW(trained, lr=5e-5, weight_decay=0.0)
    engine, optimizer, _, _ = deepspeed.initialize(model=model, model_parameters=trained, optimizer=own, config=config)
    micro, accumulate = engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()
    rows = []
    for step in range(job["steps"]):
        total = 0.0
        rate = engine.optimizer.param_groups[0]["lr"]
        for part in range(accumulate):
            first = ((step * accumulate + part) * world + rank) * micro
            pairs = [sample(i, job["vocab"]) for i in range(first, first + micro)]
            tokens, targets = (torch.tensor(column) for column in zip(*pairs))
            loss = engine(tokens, targets)
            engine.backward(loss)
            engine.step()
            total += loss.item() / accumulate
        mean = torch.tensor([total], dtype=torch.float64)
        torch.distributed.all_reduce(mean)
        rows.append({"loss": mean.item() / world, "lr": float(rate)})
    if rank == 0:
        (folder / "theirs.json").write_text(json.dumps({"rows": rows, "micro": micro, "accumulate": accumulate}))
    torch.distributed.barrier()


# One rank of Accelerate, whose file's DeepSpeed section makes the engine: read here, or by `accelerate launch`.
def rank_of_accelerate(folder):
    import torch
    from accelerate import Accelerator
    from accelerate.utils import DeepSpeedPlugin
    job = json.loads((folder / "job.json").read_text())
    section = job["section"]
    plugin = None
    if job["launched"]:
        plugin = DeepSpeedPlugin()  # from the environment that `accelerate launch` has made of the file
        plugin.deepspeed_config["train_micro_batch_size_per_gpu"] = job["micro"]
    elif section is not None:
        plugin = DeepSpeedPlugin(zero_stage=section.get("zero_stage", 2),
                                 gradient_accumulation_steps=section.get("gradient_accumulation_steps", 1),
                                 gradient_clipping=section.get("gradient_clipping"),
                                 offload_optimizer_device=section.get("offload_optimizer_device", "none"),
                                 offload_param_device=section.get("offload_param_device", "none"))
        plugin.deepspeed_config["train_micro_batch_size_per_gpu"] = job["micro"]
    accelerator = Accelerator(cpu=True, deepspeed_plugin=plugin, mixed_precision="no")
    model = make_toy(read_safetensors(folder / "init.safetensors"))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, weight_decay=0.0)
    model, optimizer = accelerator.prepare(model, optimizer)
    rank, world, micro, accumulate = accelerator.process_index, accelerator.num_processes, job["micro"], job["accumulate"]
    rows = []
    for step in range(job["steps"]):
        total = 0.0
        for part in range(accumulate):
            first = ((step * accumulate + part) * world + rank) * micro
            pairs = [sample(i, job["vocab"]) for i in range(first, first + micro)]
            tokens, targets = (torch.tensor(column) for column in zip(*pairs))
            loss = model(tokens, targets)
            accelerator.backward(loss if plugin is not None else loss / accumulate)
            if plugin is not None:
                optimizer.step(), optimizer.zero_grad()
            total += loss.item() / accumulate
        if plugin is None:
            optimizer.step(), optimizer.zero_grad()
        mean = torch.tensor([total], dtype=torch.float64)
        torch.distributed.all_reduce(mean)
        rows.append({"loss": mean.item() / world, "lr": 1e-3})
    if rank == 0:
        (folder / "theirs.json").write_text(json.dumps({"rows": rows, "micro": micro, "accumulate": accumulate}))
    torch.distributed.barrier()


def free_port():
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


# `accelerate launch` starts the ranks.
def launch_theirs(folder):
    env = dict(os.environ, DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", ACCELERATE_USE_CPU="true")
    words = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(folder / "a.yaml"), "--main_process_port",
             str(free_port()), __file__, "--accelerate-rank", str(folder)]
    run = subprocess.run(words, env=env, capture_output=True, text=True, timeout=3000)
    if run.returncode != 0:
        raise SystemExit(f"FAILED: accelerate launch ended with {run.returncode}:\n{run.stderr[-3000:]}")
    return json.loads((folder / "theirs.json").read_text())


def train_theirs(folder, kind):
    port = free_port()
    ranks = []
    for rank in range(RANKS):
        env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS),
                   LOCAL_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), DS_ACCELERATOR="cpu",
                   OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", ACCELERATE_USE_CPU="true")
        log = open(folder / f"rank{rank}.log", "w")
        ranks.append(subprocess.Popen([sys.executable, __file__, kind, str(folder)], env=env, stdout=log,
                                      stderr=subprocess.STDOUT))
    try:
        codes = [rank.wait(timeout=3000) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    if any(codes):
        tail = (folder / "rank0.log").read_text()[-3000:]
        raise SystemExit(f"FAILED: the other program ended with {codes}:\n{tail}")
    return json.loads((folder / "theirs.json").read_text())


def train_here(build, folder, file, words, batch):
    import numpy
    total = STEPS * batch["micro"] * batch["accumulate"] * RANKS
    numpy.arange(total, dtype="<i8").tofile(folder / "order")
    run = folder / "run"
    ddhost(build, [*file, *toy(build), "--nproc", str(RANKS), "--device", "cpu", f"train.steps={STEPS}", f"run.dir={run}",
                   f"data.order={folder / 'order'}", f"model.samples={total}", f"train.init_from={folder / 'init.safetensors'}",
                   "run.quiet=true", *words])
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "lr" in row]


def toy(build):
    return ["--model", str(build / "tests/plugins/toy.so")]


def check(name, mine, theirs, tolerance):
    assert len(mine) == len(theirs) == STEPS, (name, len(mine), len(theirs))
    rate = max(abs(a["lr"] - b["lr"]) for a, b in zip(mine, theirs))
    loss = max(abs(a["loss"] - b["loss"]) for a, b in zip(mine, theirs))
    fell = theirs[0]["loss"] - theirs[-1]["loss"]
    ok = rate <= 1e-12 + 1e-7 * max(row["lr"] for row in theirs) and loss <= tolerance
    print(f"{'ok    ' if ok else 'FAILED'} {name}: largest difference of the rate {rate:.1e}, of the loss {loss:.1e} "
          f"(limit {tolerance:.0e}); rates {mine[0]['lr']:.3g} to {mine[-1]['lr']:.3g}, loss fell by {fell:.2g}", flush=True)
    return ok


def deepspeed_case(build, data, name, bf16, place):
    import hjson
    folder = place / (name + ("_bf16" if bf16 else ""))
    folder.mkdir()
    text = (data / "deepspeed" / f"{name}.json").read_text()
    given = with_small_batch(without_16_bits(json.loads(json.dumps(hjson.loads(text))), bf16))
    for section in ("tensorboard", "wandb", "csv_monitor", "nebula", "flops_profiler"):
        given.pop(section, None)
    (folder / "ds.json").write_text(json.dumps(given, indent=1))
    config = filled(given, STEPS)
    theirs_job = {"config": config, "steps": STEPS}
    (folder / "job.json").write_text(json.dumps(theirs_job))
    initial(build, folder)
    theirs = train_theirs(folder, "--deepspeed-rank")
    mine = train_here(build, folder, ["--deepspeed_config", str(folder / "ds.json")], [], theirs)
    return check(folder.name, mine, theirs["rows"], 1e-2 if bf16 else 1e-5)


def accelerate_case(build, data, name, place, launched=False):
    import yaml
    folder = place / (name + ("_launched" if launched else ""))
    folder.mkdir()
    given = yaml.safe_load((data / "accelerate" / f"{name}.yaml").read_text())
    given.update(mixed_precision="no", num_processes=RANKS, num_machines=1, machine_rank=0)
    (folder / "a.yaml").write_text(yaml.safe_dump(given))
    section = given.get("deepspeed_config") if given["distributed_type"] == "DEEPSPEED" else None
    accumulate = (section or {}).get("gradient_accumulation_steps", 1)
    batch = {"micro": 4, "accumulate": accumulate}
    (folder / "job.json").write_text(json.dumps({"section": section, "steps": STEPS, "launched": launched, **batch}))
    initial(build, folder)
    theirs = launch_theirs(folder) if launched else train_theirs(folder, "--accelerate-rank")
    clip = [] if section is not None else ["train.clip_norm=0"]
    mine = train_here(build, folder, ["--config", str(folder / "a.yaml")],
                      ["data.micro_batch=4", "optimizer.lr=1e-3", "optimizer.weight_decay=0", "schedule.type=constant",
                       "schedule.warmup_steps=0", *clip], theirs)
    return check(folder.name, mine, theirs["rows"], 1e-5)


def initial(build, folder):
    ddhost(build, [*toy(build), "--nproc", "1", "--device", "cpu", "train.steps=0", f"run.dir={folder / 'init'}",
                   f"train.save_final={folder / 'init.safetensors'}", "run.quiet=true"])
    vocab = read_safetensors(folder / "init.safetensors")["embedding"].shape[0]
    job = json.loads((folder / "job.json").read_text())
    job["vocab"] = vocab
    (folder / "job.json").write_text(json.dumps(job))


def main():
    if sys.argv[1] == "--deepspeed-rank":
        return rank_of_deepspeed(Path(sys.argv[2]))
    if sys.argv[1] == "--accelerate-rank":
        return rank_of_accelerate(Path(sys.argv[2]))
    build, data = Path(sys.argv[1]), Path(sys.argv[2])
    wanted = sys.argv[3:]
    good = []
    with tempfile.TemporaryDirectory() as name:
        place = Path(os.environ.get("KEEP_FOLDER", name))
        place.mkdir(exist_ok=True)
        cases = [(one, False) for one in DEEPSPEED] + [(one, True) for one in BF16]
        for file, bf16 in cases:
            if not wanted or file in wanted:
                good.append(deepspeed_case(build, data, file, bf16, place))
        for file, launched in [(one, False) for one in ACCELERATE] + [(one, True) for one in LAUNCHED]:
            if not wanted or file in wanted:
                good.append(accelerate_case(build, data, file, place, launched))
    print(f"{sum(good)} of {len(good)} comparisons agree")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
