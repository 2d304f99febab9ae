#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a start for kgat from BPR-MF.   usage: mf_to_safetensors.py mf.npz DATA_FOLDER OUT.safetensors

mf.npz holds user_embed (users, d) and item_embed (items, d) in fp32, as the published ones of KGAT do. Entities that are no
items get the initial values of Glorot and Bengio. Then: ddhost --config ... 'train.init_from=[{"file": "OUT.safetensors",
"allow_missing": true}]'
"""
import array
import ast
import json
import os
import random
import struct
import sys
import zipfile


def read_npy(data, name):
    if data[:6] != b"\x93NUMPY":
        sys.exit(f"{name} in the npz file is no array of NumPy; give an mf.npz of KGAT")
    long_header = data[6] > 1
    length = struct.unpack("<I" if long_header else "<H", data[8:12 if long_header else 10])[0]
    begin = (12 if long_header else 10) + length
    header = ast.literal_eval(data[begin - length:begin].decode("latin1"))
    if header["descr"] != "<f4" or header["fortran_order"] or len(header["shape"]) != 2:
        sys.exit(f"{name} in the npz file is {header}; a row-major matrix of fp32 is needed")
    return header["shape"], data[begin:]


def ids(path, columns):
    with open(path, encoding="utf-8") as lines:
        return [tuple(int(word) for word in line.split())[columns] for line in lines]


def main():
    npz, folder, out_path = sys.argv[1:4]
    with zipfile.ZipFile(npz) as archive:
        arrays = {name: read_npy(archive.read(name + ".npy"), name) for name in ("user_embed", "item_embed")}
    (n_users, width), users = arrays["user_embed"]
    (n_items, item_width), items = arrays["item_embed"]
    triples = ids(os.path.join(folder, "kg_final.txt"), slice(0, 3))
    n_entities = max([n_items] + [max(t[0], t[2]) + 1 for t in triples])
    pairs = ids(os.path.join(folder, "train.txt"), slice(None)) + ids(os.path.join(folder, "test.txt"), slice(None))
    found = max(p[0] for p in pairs) + 1, max(max(p[1:], default=-1) for p in pairs) + 1
    if (n_users, n_items) != found or width != item_width:
        sys.exit(f"{npz} is for {n_users} users and {n_items} items, {folder} has {found[0]} and {found[1]}; "
                 "give the file of this data set")
    bound = (6 / (n_entities + n_users + width)) ** 0.5
    draw = random.Random(1337)
    others = array.array("f", [draw.uniform(-bound, bound) for _ in range((n_entities - n_items) * width)])
    table = items + others.tobytes() + users
    name = "entity_user_embed.weight"
    header = {name: {"dtype": "F32", "shape": [n_entities + n_users, width], "data_offsets": [0, len(table)]}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(out_path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + table)


main()
