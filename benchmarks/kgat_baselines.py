# SPDX-License-Identifier: Apache-2.0
"""Recommenders on one data set in KGAT's format, ranked by one code: baselines beside ddhost's KGAT.

    python3 benchmarks/kgat_baselines.py --python PYTHON [--data ../shared/data/lastfm_kg] [--only cosine,ease]

PYTHON is a Python with torch and numpy (`./dev setup --python`). Rows: popularity, item-item cosine, EASE (Steck 2019),
LightGCN (He et al. 2020) in torch; BPR-MF, KGAT and KGAT without its knowledge graph by build/ddhost. Every number is over
all test users. The shrinkage of the cosine (10 of 5, 10, 20) and EASE's l2 (100 of 50, 100, 200) were chosen on a cut of the
training data, as --validate makes it; LightGCN's options were not searched.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import warnings

from arguments import count, names, require_known

ROOT = pathlib.Path(__file__).resolve().parent.parent
K = 20


def read_pairs(path):
    """{user: [items]}"""
    rows = {}
    for line in path.read_text().splitlines():
        user, *items = (int(word) for word in line.split())
        if items:
            rows[user] = sorted(set(items))
    return rows


def hold_out(train, fraction, seed=0):
    """A part of each user's items as a validation cut."""
    import numpy
    rng = numpy.random.default_rng(seed)
    rest, cut = {}, {}
    for user, items in train.items():
        n = int(len(items) * fraction)
        chosen = set(rng.permutation(items)[:n].tolist())
        rest[user] = [i for i in items if i not in chosen]
        if chosen:
            cut[user] = sorted(chosen)
    return rest, cut


def matrix_of(train, n_users, n_items):
    import numpy
    x = numpy.zeros((n_users, n_items), dtype=numpy.float32)
    for user, items in train.items():
        x[user, items] = 1
    return x


def metrics(scores, train, test):
    """recall@20 and ndcg@20 over the users with test items; items of the training are not candidates."""
    import numpy
    recall = ndcg = 0.0
    for user, items in test.items():
        row = scores[user].copy()
        row[train.get(user, [])] = -numpy.inf
        best = numpy.argpartition(-row, K)[:K]
        best = best[numpy.argsort(-row[best], kind="stable")]
        hits = numpy.isin(best, items)
        gains = 1 / numpy.log2(numpy.arange(K) + 2)
        recall += hits.sum() / len(items)
        ndcg += (hits * gains).sum() / gains[:min(K, len(items))].sum()
    return recall / len(test), ndcg / len(test)


def popularity(x, _):
    return x.sum(0, keepdims=True).repeat(x.shape[0], 0)


def cosine(x, options):
    """Of two items with few users by chance, the similarity is shrunk."""
    import numpy
    norms = numpy.sqrt(x.sum(0))
    similarity = x.T @ x / (norms * norms[:, None] + options.cosine_shrink)
    numpy.fill_diagonal(similarity, 0)
    return x @ similarity


def ease(x, options):
    import numpy
    gram = x.T.astype(numpy.float64) @ x
    gram[numpy.diag_indices_from(gram)] += options.ease_l2
    inverse = numpy.linalg.inv(gram)
    weights = inverse / -numpy.diag(inverse)
    numpy.fill_diagonal(weights, 0)
    return x @ weights


def light_gcn(x, options):
    """Two layers of width 64, BPR on every pair once an epoch."""
    import torch
    warnings.filterwarnings("ignore", category=UserWarning)  # sparse matrices are called a beta feature
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    users, items = (torch.from_numpy(a) for a in x.nonzero())
    n_users, n_items = x.shape
    n = n_users + n_items
    edges = torch.cat([torch.stack([users, items + n_users]), torch.stack([items + n_users, users])], 1)
    degree = torch.bincount(edges[0], minlength=n).clamp(min=1).float()
    values = degree[edges[0]].rsqrt() * degree[edges[1]].rsqrt()
    graph = torch.sparse_coo_tensor(edges, values, (n, n)).coalesce().to_sparse_csr()
    table = torch.nn.Parameter(torch.empty(n, 64).normal_(0, 0.1))
    optimizer = torch.optim.Adam([table], lr=options.light_lr)

    def all_rows():
        e, total = table, table
        for _ in range(2):
            e = graph @ e
            total = total + e
        return total / 3

    for _ in range(options.light_epochs):
        order = torch.randperm(len(users))
        for part in order.split(2048):
            u, i = users[part], items[part] + n_users
            j = torch.randint(0, n_items, (len(part),)) + n_users
            rows = all_rows()
            margin = (rows[u] * (rows[i] - rows[j])).sum(1)
            size = sum(table[k].square().sum() for k in (u, i, j)) / 2 / len(part)
            loss = torch.nn.functional.softplus(-margin).mean() + options.light_l2 * size
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        rows = all_rows()
        return (rows[:n_users] @ rows[n_users:].T).numpy()


BASELINES = {"popularity": popularity, "cosine": cosine, "ease": ease, "lightgcn": light_gcn}

MF = ["train.cycles=120", "model.variant=mf", "model.cf_sampling=pairs", "model.l2_cf=3e-2", "optimizer.lr=2e-3",
      'train.phases=[{"program":"cf","epochs":1}]', "data.micro_batch.kg=null", "data.micro_batch.attention=null"]
OURS = {
    "BPR-MF (ddhost)": ("kgat_lastfm.json", MF, False),
    "KGAT without its graph (ddhost)": ("kgat_lastfm_tuned.json", [], True),
    "KGAT (ddhost)": ("kgat_lastfm_tuned.json", [], False)}


def run_ddhost(args, config, words, without_graph, folder):
    """The last evaluation of a run, with the pairs alone in place of the knowledge graph where asked."""
    data = args.data
    if without_graph:
        data = folder / "pairs"
        data.mkdir(exist_ok=True)
        for name in ("train.txt", "test.txt"):
            (data / name).write_text((args.data / name).read_text())
        (data / "kg_final.txt").write_text("")
    run_dir = pathlib.Path(tempfile.mkdtemp(dir=folder))
    command = [str(ROOT / "build/ddhost"), "--config", str(ROOT / "configs" / config), f"data.path={data}",
               f"run.seed={args.seed + 1}", f"run.dir={run_dir}/run", "run.quiet=true", "device.plugin=cpu", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr[-2000:]}")
    rows = [json.loads(line) for line in (run_dir / "run/metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if f"val_recall@{K}" in row][-1]
    return last[f"val_recall@{K}"], last[f"val_ndcg@{K}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="run the script with this Python")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT.parent / "shared/data/lastfm_kg")
    parser.add_argument("--only", type=names, default=[*BASELINES, *OURS], help="names of rows, separated by commas")
    parser.add_argument("--validate", action="store_true", help="hold out a fifth of the training items and test on these")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cosine-shrink", type=float, default=10)
    parser.add_argument("--ease-l2", type=float, default=100)
    parser.add_argument("--light-lr", type=float, default=5e-3)
    parser.add_argument("--light-l2", type=float, default=1e-3)
    parser.add_argument("--light-epochs", type=count, default=100)
    args = parser.parse_args()
    require_known(parser, "--only", args.only, [*BASELINES, *OURS], "row")
    for name in ("train.txt", "test.txt"):
        if not (args.data / name).is_file():
            parser.error(f"there is no {args.data / name}; --data names the folder of the data")
    python = shutil.which(args.python) if args.python else sys.executable
    if not python:
        parser.error(f"--python {args.python} is no program; give a Python with torch and numpy")
    if os.path.realpath(python) != os.path.realpath(sys.executable):
        os.execv(python, [python, __file__, *sys.argv[1:]])
    train, test = read_pairs(args.data / "train.txt"), read_pairs(args.data / "test.txt")
    n_users = max(max(train), max(test)) + 1
    n_items = max(max(items) for part in (train, test) for items in part.values()) + 1
    if args.validate:
        train, test = hold_out(train, 0.2)
    print(f"{args.data.name}: {len(test)} users with test items\n\n| | recall@{K} | ndcg@{K} | seconds |\n|---|---|---|---|")

    def row(name, values, began):
        print(f"| {name} | {values[0]:.4f} | {values[1]:.4f} | {time.time() - began:.0f} |", flush=True)

    x = matrix_of(train, n_users, n_items)
    for name, scores_of in BASELINES.items():
        if name in args.only:
            began = time.time()
            row(name, metrics(scores_of(x, args), train, test), began)
    with tempfile.TemporaryDirectory() as folder:
        for name, (config, words, without_graph) in OURS.items():
            if args.validate or name not in args.only:
                continue
            began = time.time()
            row(name, run_ddhost(args, config, words, without_graph, pathlib.Path(folder)), began)


if __name__ == "__main__":
    main()
