# SPDX-License-Identifier: Apache-2.0
"""moved_numbers.py BUILD: a GPT-2 of transformers that DeepSpeed trains goes on here, with the numbers that DeepSpeed has.

DeepSpeed trains it for STEPS steps on its CPU backend and 2 ranks, and saves a checkpoint after SAVED of them. ddhost reads the
same file, takes over the checkpoint, and trains the other steps with the same samples. Then transformers opens what ddhost
exports, and must have the loss of the model that DeepSpeed has trained.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

RANKS, STEPS, SAVED, CONTEXT, MICRO = 2, 12, 5, 16, 2
FILE = {"train_micro_batch_size_per_gpu": MICRO, "gradient_clipping": 1.0, "zero_optimization": {"stage": 2},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.01}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 7, "warmup_type": "linear", "warmup_max_lr": 1e-2}}}
MODEL = {"n_layer": 2, "n_head": 4, "n_embd": 32}
VOCAB = 31


def windows_of(folder, starts):
    import torch
    text = (folder / "text.txt").read_bytes()
    tokens = torch.tensor([sorted(set(text)).index(byte) for byte in text])
    return torch.stack([tokens[i:i + CONTEXT + 1] for i in starts])


def loss_of(model, windows):
    import torch
    logits = model(windows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def rank_of_deepspeed(folder):
    import deepspeed
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(3)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=CONTEXT, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                                       bos_token_id=0, eos_token_id=0, **MODEL))
    if rank == 0:
        model.save_pretrained(folder / "hf")
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=FILE)
    order = json.loads((folder / "order.json").read_text())
    rows = []
    for step in range(STEPS):
        rate, first = engine.optimizer.param_groups[0]["lr"], (step * world + rank) * MICRO
        loss = loss_of(engine, windows_of(folder, order[first:first + MICRO]))
        engine.backward(loss)
        engine.step()
        mean = torch.tensor([loss.item()], dtype=torch.float64)
        torch.distributed.all_reduce(mean)
        rows.append({"lr": float(rate), "loss": mean.item() / world})
        if step + 1 == SAVED:
            engine.save_checkpoint(str(folder / "saved"))
    if rank == 0:
        (folder / "theirs.json").write_text(json.dumps(rows))
        engine.module.save_pretrained(folder / "trained")
    torch.distributed.barrier()


def train_theirs(folder):
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(RANKS):
        env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS),
                   LOCAL_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), DS_ACCELERATOR="cpu",
                   OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
        with open(folder / f"rank{rank}.log", "w") as log:
            ranks.append(subprocess.Popen([sys.executable, __file__, "--rank", str(folder)], env=env, stdout=log,
                                          stderr=subprocess.STDOUT))
    try:
        codes = [rank.wait(timeout=3000) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    if any(codes):
        raise SystemExit(f"FAILED: DeepSpeed ended with {codes}:\n{(folder / 'rank0.log').read_text()[-3000:]}")
    return json.loads((folder / "theirs.json").read_text())


def ddhost(build, folder, words):
    env = {key: value for key, value in os.environ.items() if key not in ("MODEL_SIZE", "BATCH_SIZE", "EPOCHS")}
    run = subprocess.run([str(build / "ddhost"), *words], capture_output=True, text=True, env=env, cwd=folder)
    if run.returncode != 0:
        raise SystemExit(f"FAILED: ddhost {' '.join(words)}\n{run.stderr}")


def prepare(folder):
    import numpy
    random.seed(1)
    (folder / "text.txt").write_text("".join(random.choice("abcdefgh ,.\n") for _ in range(400)))
    order = [random.randrange(400 - CONTEXT - 1) for _ in range(STEPS * RANKS * MICRO)]
    (folder / "order.json").write_text(json.dumps(order))
    numpy.array(order, dtype="<i8").tofile(folder / "order")
    (folder / "ds.json").write_text(json.dumps(FILE))
    own = {"plugin": "gpt", "size": "custom", "bias": "on", "block_size": CONTEXT, "context": CONTEXT, "vocab": VOCAB,
           "activation": "gelu_tanh", "dropout": 0, **MODEL}
    (folder / "gpt.json").write_text(json.dumps({"model": own, "run": {"sample_tokens": 0, "quiet": True},
                                                 "data": {"path": "text.txt", "val_fraction": 0, "order": "order"}}))


def go_on_here(build, folder):
    both = ["--config", "gpt.json", "--deepspeed_config", "ds.json", "--nproc", str(RANKS), "--device", "cpu"]
    ddhost(build, folder, [*both, "train.init_from=hf", "--max_steps", "1", "--save_steps", "1", "run.dir=runs/like"])
    ddhost(build, folder, ["ckpt", "import", "saved", "--like", "runs/like", "--out", "runs/moved"])
    ddhost(build, folder, [*both, "--max_steps", str(STEPS), "--save_steps", str(STEPS), "--resume",
                           f"runs/moved/checkpoints/step-{SAVED}", "--resume-allow", "train.steps", "run.dir=runs/on"])
    ddhost(build, folder, ["export", f"runs/on/checkpoints/step-{STEPS}", "moved", "--layout", "transformers"])
    (folder / "moved/config.json").write_bytes((folder / "hf/config.json").read_bytes())
    rows = [json.loads(line) for line in (folder / "runs/on/metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "lr" in row]


def main():
    if sys.argv[1] == "--rank":
        return rank_of_deepspeed(Path(sys.argv[2]))
    import torch
    from transformers import AutoModelForCausalLM
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        theirs = train_theirs(folder)
        ours = go_on_here(Path(sys.argv[1]), folder)
        assert [row["step"] for row in ours] == list(range(SAVED + 1, STEPS + 1)), ours
        rate = max(abs(a["lr"] - b["lr"]) for a, b in zip(ours, theirs[SAVED:]))
        loss = max(abs(a["loss"] - b["loss"]) for a, b in zip(ours, theirs[SAVED:]))
        windows = windows_of(folder, range(0, 400 - CONTEXT - 1, CONTEXT))
        ends = {}
        with torch.no_grad():
            for end in ("hf", "trained", "moved"):
                ends[end] = loss_of(AutoModelForCausalLM.from_pretrained(folder / end).eval(), windows).item()
        print(f"steps {SAVED + 1} to {STEPS}: largest difference of the rate {rate:.1e}, of the loss {loss:.1e}; loss in "
              f"transformers {ends['hf']:.6f} at first, {ends['trained']:.6f} trained there, {ends['moved']:.6f} moved here")
        assert rate <= 1e-9 and loss <= 1e-5
        assert abs(ends["trained"] - ends["moved"]) <= 1e-5 < ends["hf"] - ends["moved"]


if __name__ == "__main__":
    main()
