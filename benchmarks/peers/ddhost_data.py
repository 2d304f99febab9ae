# SPDX-License-Identifier: Apache-2.0
"""The batches that ddhost makes of its data, for peers: the same samples, draws and numbers. No augmentation."""
import gzip
import json
import pathlib

import numpy as np
import torch

MASK, STEP = (1 << 64) - 1, 0x9E3779B97F4A7C15


def mix64(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


class Stream:
    """ddh::CounterRng."""

    def __init__(self, seed, name):
        h = 0xCBF29CE484222325
        for c in name.encode():
            h = (h ^ c) * 0x100000001B3 & MASK
        self.key = mix64(mix64((seed + STEP) & MASK) ^ h)

    def bits(self, i):
        return mix64((self.key + (i + 1) * STEP) & MASK)

    def uniform(self, i):
        return (self.bits(i & MASK) >> 11) * 2.0**-53


def unpacked(path):
    return gzip.open(path).read()


# ---- Images -------------------------------------------------------------------------------------------------

def mnist(folder, part="train"):
    """(n, 1, 28, 28) normalized, (n) labels."""
    folder = pathlib.Path(folder) / "mnist"
    pixels = np.frombuffer(unpacked(folder / f"{part}-images-idx3-ubyte.gz"), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    labels = np.frombuffer(unpacked(folder / f"{part}-labels-idx1-ubyte.gz"), np.uint8, offset=8)
    return (torch.from_numpy(pixels.astype(np.float32)) / 255 - 0.1307) / 0.3081, torch.from_numpy(labels.astype(np.int64))


class MovingMnist:
    """models/images/moving.cpp: videos of 5 frames, (n, 5, 1, 28, 28) normalized, and the direction as the label."""

    DIRECTIONS = [(-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1)]
    FRAMES, STEP = 5, 3

    def __init__(self, folder, part="train"):
        self.still, _ = mnist(folder, part)
        self.draws = Stream(0, f"images.moving.{part}")

    def batch(self, samples):
        videos, labels = [], []
        for i in (int(sample) for sample in samples):
            label, *start = (self.draws.bits(3 * i + k) % n for k, n in enumerate((8, 28, 28)))
            frames = [[at + f * self.STEP * way for at, way in zip(start, self.DIRECTIONS[label])] for f in range(self.FRAMES)]
            videos.append(torch.stack([torch.roll(self.still[i], shift, (1, 2)) for shift in frames]))
            labels.append(label)
        return torch.stack(videos), torch.tensor(labels)


def cifar10(folder, part="train"):
    """(n, 3, 32, 32) normalized, (n) labels."""
    records = np.frombuffer(unpacked(pathlib.Path(folder) / f"cifar10_subset/{part}.bin.gz"), np.uint8).reshape(-1, 3073)
    pixels = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32)) / 255
    mean, deviation = (torch.tensor(v).view(3, 1, 1) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    return (pixels - mean) / deviation, torch.from_numpy(records[:, 0].astype(np.int64))


# ---- The knowledge graph --------------------------------------------------------------------------------------

class Graph:
    """models/kgat: graph.cpp and batch.cpp, with cf_sampling=pairs and kg_sampling=triples."""

    def __init__(self, folder, name):
        folder = pathlib.Path(folder) / name
        lists = {part: [[int(v) for v in line.split()] for line in open(folder / f"{part}.txt")] for part in ("train", "test")}
        users = {line[0]: sorted(line[1:]) for line in lists["train"]}
        everyone = [line for part in lists.values() for line in part]
        self.n_users = 1 + max(line[0] for line in everyone)
        self.n_items = 1 + max(max(line[1:], default=-1) for line in everyone)
        kg = np.unique(np.loadtxt(folder / "kg_final.txt", dtype=np.int64), axis=0)
        self.n_entities = max(self.n_items, 1 + int(kg[:, [0, 2]].max()))
        relations = 1 + int(kg[:, 1].max())
        self.items = [users.get(u, []) for u in range(self.n_users)]
        pairs = np.array([(u, i) for u in range(self.n_users) for i in self.items[u]])
        self.pairs = pairs
        user, item = pairs[:, 0] + self.n_entities, pairs[:, 1]
        head = np.concatenate([user, item, kg[:, 0], kg[:, 2]])
        tail = np.concatenate([item, user, kg[:, 2], kg[:, 0]])
        relation = np.concatenate([np.zeros_like(user), np.ones_like(user), 2 + kg[:, 1], 2 + relations + kg[:, 1]])
        order = np.lexsort((relation, tail, head))
        self.head, self.tail, self.relation = head[order], tail[order], relation[order]
        self.n_relations, self.n_nodes = 2 * (relations + 1), self.n_entities + self.n_users
        self.edges = set(zip(self.head.tolist(), self.relation.tolist(), self.tail.tolist()))

    def adjacency(self):
        """(N, N) sparse: the rows of each relation add up to 1."""
        key = self.head * self.n_relations + self.relation
        _, place, count = np.unique(key, return_inverse=True, return_counts=True)
        weights = (1 / count[place]).astype(np.float32)
        return torch.sparse_coo_tensor(np.stack([self.head, self.tail]), weights, (self.n_nodes, self.n_nodes)).coalesce()

    @staticmethod
    def _draws(stream, sample):
        key, count = mix64(STEP) ^ sample << 20, 0  # of epoch 0
        while True:
            yield stream.bits((key + count) & MASK) >> 1
            count += 1

    def cf(self, seed, samples):
        """(3, B): nodes of users, right items, wrong items."""
        stream, out = Stream(seed, "kgat.cf"), []
        for sample in samples:
            user, item = self.pairs[sample]
            wrong = next(w for w in (bits % self.n_items for bits in self._draws(stream, int(sample)))
                         if w not in self.items[user])
            out.append((user + self.n_entities, item, wrong))
        return torch.tensor(np.array(out).T)

    def kg(self, seed, samples):
        """(4, B): heads, relations, tails, wrong tails."""
        stream, out = Stream(seed, "kgat.kg"), []
        for sample in samples:
            head, relation, tail = int(self.head[sample]), int(self.relation[sample]), int(self.tail[sample])
            wrong = next(w for w in (bits % self.n_nodes for bits in self._draws(stream, int(sample)))
                         if (head, relation, w) not in self.edges)
            out.append((head, relation, tail, wrong))
        return torch.tensor(np.array(out).T)


# ---- Texts with images and points -----------------------------------------------------------------------------

class Cad:
    """A folder that data.dummy_samples wrote. Tokens are bytes; 256 is padding, 257 the end mark."""

    def __init__(self, folder, points):
        from torchvision.io import ImageReadMode, read_image
        self.items = []
        for line in open(pathlib.Path(folder) / "train.jsonl"):
            item = json.loads(line)
            pixels = (read_image(str(pathlib.Path(folder) / item["image"]), ImageReadMode.RGB).float() / 255 - 0.5) / 0.5
            cloud = torch.from_numpy(np.loadtxt(pathlib.Path(folder) / item["points"], dtype=np.float32)[:points])
            prompt, target = (item["input_text"] + "\n").encode(), item["target_text"].encode()
            self.items.append((list(prompt), list(target) + [257], pixels, cloud))

    def batch(self, seed, stage, samples):
        """ids (B, T), labels (B, T) with -100, and for the stages that have them pixels and points, zeros where the curriculum
        leaves them out of a sample."""
        stream, rows = Stream(seed, "images"), []
        for sample in samples:
            prompt, target, pixels, cloud = self.items[sample]
            first = mix64((mix64(STEP) + int(sample)) & MASK)  # of epoch 0
            draw = stream.uniform(first)
            has_points = draw >= 0.3 if stage == 2 else stage == 3 and (0.2 <= draw < 0.5 or draw >= 0.7)
            has_image = stage == 3 and draw >= 0.5
            rows.append((prompt + target, [-100] * len(prompt) + target, pixels * has_image, cloud * has_points))
        longest = max(len(ids) for ids, *_ in rows)
        ids = torch.tensor([r[0] + [256] * (longest - len(r[0])) for r in rows])
        labels = torch.tensor([r[1] + [-100] * (longest - len(r[1])) for r in rows])
        return {"ids": ids, "labels": labels, "pixels": torch.stack([r[2] for r in rows]) if stage == 3 else None,
                "points": torch.stack([r[3] for r in rows]) if stage >= 2 else None}
