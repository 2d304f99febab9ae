# SPDX-License-Identifier: Apache-2.0
"""reference.py DDHOST PLUGIN MODEL FOLDER: a run of diloco.so on two ranks against a fold in Python: each rank is a run of
its own on one rank with ddp, on the samples that this rank has; after each round their weights are averaged and the outer
Nesterov step is made here. The inner optimizer is sgd without state, so that a round can begin from a file of weights."""
import array
import json
import os
import struct
import subprocess
import sys

HOST, PLUGIN, MODEL, FOLDER = sys.argv[1:5]
RANKS, BATCH, EVERY, ROUNDS, OUTER_LR, MOMENTUM = 2, 8, 5, 4, 0.7, 0.9


def read(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    out = {}
    for name, tensor in header.items():
        if name != "__metadata__":
            begin, end = tensor["data_offsets"]
            out[name] = array.array("f", data[begin:end])
    return header, out


def write(path, header, tensors):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = bytearray(max(t["data_offsets"][1] for n, t in header.items() if n != "__metadata__"))
    for name, values in tensors.items():
        begin, end = header[name]["data_offsets"]
        data[begin:end] = values.tobytes()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def train(name, *settings):
    out = f"{FOLDER}/{name}.safetensors"
    run = subprocess.run(
        [HOST, "--model", MODEL, "--comm", "shm", f"run.dir={FOLDER}/{name}", f"data.micro_batch={BATCH}", "--optimizer", "sgd",
         "optimizer.lr=0.02", "schedule.type=constant", "schedule.warmup_steps=0", "train.clip_norm=0.5", "--save-final", out, *settings],
        capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"FAILED: {name}: {run.stderr}")
    return read(out)


def order(name, samples):
    path = f"{FOLDER}/{name}.order"
    with open(path, "wb") as file:
        array.array("q", samples).tofile(file)
    return f"data.order={path}"


os.makedirs(FOLDER)
steps = EVERY * ROUNDS
samples = [(7 * i) % 4096 for i in range(steps * RANKS * BATCH)]
_, result = train("diloco", "--strategy", PLUGIN, "--nproc", str(RANKS), f"train.steps={steps}",
                  f"strategy.sync_every={EVERY}", order("all", samples))
header, outer = train("first", "--strategy", "ddp", "--nproc", "1", "train.steps=1", "optimizer.lr=0", order("one", samples))
momentum = {name: [0.0] * len(values) for name, values in outer.items()}
for r in range(ROUNDS):
    begin = f"{FOLDER}/outer{r}.safetensors"
    write(begin, header, outer)
    inner = []
    for rank in range(RANKS):
        mine = []
        for step in range(r * EVERY, (r + 1) * EVERY):
            at = (step * RANKS + rank) * BATCH
            mine += samples[at:at + BATCH]
        inner.append(train(f"rank{rank}_round{r}", "--strategy", "ddp", "--nproc", "1", f"train.steps={EVERY}",
                           f"train.init_from={begin}", order(f"rank{rank}_round{r}", mine))[1])
    for name, values in outer.items():
        for i, value in enumerate(values):
            gradient = sum(value - weights[name][i] for weights in inner) / RANKS
            momentum[name][i] = MOMENTUM * momentum[name][i] + gradient
            values[i] = value - OUTER_LR * (gradient + MOMENTUM * momentum[name][i])
worst = max(abs(a - b) for name in outer for a, b in zip(outer[name], result[name]))
largest = max(abs(a) for name in outer for a in outer[name])
if not worst <= 1e-5 or not largest > 0.05:
    sys.exit(f"FAILED: the fold in Python differs by {worst} of weights up to {largest}")
print(f"the fold of {RANKS} ranks and {ROUNDS} rounds differs by {worst:.1e} of weights up to {largest:.2f}")
