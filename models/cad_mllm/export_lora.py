#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the language model of a CAD-MLLM for transformers and PEFT.

  export_lora.py adapter WEIGHTS.safetensors FOLDER --alpha 8    the adapters, as PEFT saves them
  export_lora.py merged  WEIGHTS.safetensors FOLDER --alpha 8    Qwen3 with W + (alpha / rank) B A in place of W
  export_lora.py import  adapter_model.safetensors FOLDER        FOLDER/adapter.safetensors for train.init_from

WEIGHTS is what --save-final or `ddhost export` writes, in fp32 (the default), under either of model.names. The rank is that
of the matrices. Uses numpy where there is one; without it a merge of a large model takes long.
"""
import argparse
import array
import json
import os
import struct
import sys

try:
    import numpy
except ImportError:
    numpy = None

PREFIXES = ("llm.base_model.model.", "llm.")  # of model.names=peft, plain


def read(path):
    """{name: (shape, bytes)} of an fp32 file."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        tensors = {}
        for name, entry in header.items():
            if entry["dtype"] != "F32":
                sys.exit(f"{path}: {name} is {entry['dtype']}; export the weights in fp32")
            first, end = entry["data_offsets"]
            file.seek(8 + size + first)
            tensors[name] = (entry["shape"], file.read(end - first))
    return tensors


def write(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, data in tensors.values():
            file.write(data)


def language_model(tensors):
    """Tensors of the language model without prefix, in the plain names: ...q_proj.weight, ...q_proj.lora_A.weight."""
    out = {}
    for name, tensor in tensors.items():
        prefix = next((p for p in PREFIXES if name.startswith(p)), None)
        if prefix is None:
            continue
        plain = name[len(prefix):].replace(".base_layer.", ".").replace(".default.", ".")
        out[plain] = tensor
    if not any(".lora_A." in name for name in out):
        sys.exit("the file has no adapters of a language model (names with llm. and lora_A)")
    return out


def of_peft(tensors, path):
    """Adapters as PEFT saves them, in the plain names without the prefix "llm."."""
    prefix = "base_model.model."
    if not tensors or not all(name.startswith(prefix) and ".lora_" in name for name in tensors):
        sys.exit(f"{path} holds something else than adapters of PEFT (names with {prefix} and lora_)")
    return {name[len(prefix):].replace(".default.", "."): tensor for name, tensor in tensors.items()}


def merged(weight, a, b, scale):
    """W + scale B A, of (shape, bytes)."""
    (out, width), rank = weight[0], a[0][0]
    if numpy is not None:
        def matrix(t):
            return numpy.frombuffer(t[1], dtype="<f4").reshape(t[0]).astype("<f8")
        return weight[0], (matrix(weight) + scale * (matrix(b) @ matrix(a))).astype("<f4").tobytes()
    w, va, vb = (array.array("f", t[1]) for t in (weight, a, b))
    for o in range(out):
        row = vb[o * rank:(o + 1) * rank]
        for i in range(width):
            w[o * width + i] += scale * sum(row[r] * va[r * width + i] for r in range(rank))
    return weight[0], w.tobytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["adapter", "merged", "import"])
    parser.add_argument("weights")
    parser.add_argument("folder")
    parser.add_argument("--alpha", type=float, help="model.lora_alpha of the training")
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    if args.what == "import":
        write(os.path.join(args.folder, "adapter.safetensors"), of_peft(read(args.weights), args.weights))
        return
    if args.alpha is None:
        parser.error("--alpha is missing: give model.lora_alpha of the training")
    llm = language_model(read(args.weights))
    layers = sorted(name[:-len(".lora_A.weight")] for name in llm if name.endswith(".lora_A.weight"))
    rank = llm[layers[0] + ".lora_A.weight"][0][0]
    if args.what == "adapter":
        tensors = {"base_model.model." + name: t for name, t in llm.items() if ".lora_" in name}
        write(os.path.join(args.folder, "adapter_model.safetensors"), tensors)
        config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": args.alpha, "bias": "none",
                  "target_modules": sorted({layer.rsplit(".", 1)[1] for layer in layers})}
        with open(os.path.join(args.folder, "adapter_config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file, indent=2)
        return
    for layer in layers:
        llm[layer + ".weight"] = merged(llm[layer + ".weight"], llm.pop(layer + ".lora_A.weight"),
                                        llm.pop(layer + ".lora_B.weight"), args.alpha / rank)
    write(os.path.join(args.folder, "model.safetensors"), llm)


if __name__ == "__main__":
    main()
