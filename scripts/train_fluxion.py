#!/usr/bin/env python3
"""Train the net by which the variant fluxion foresees what its heads need, and judge it on other texts.

    habench fit 'fluxion:dataset=trace/A,ctx=1900,observed=256' -o a.safetensors       samples of a text; others alike
    scripts/train_fluxion.py a.safetensors b.safetensors --held c.safetensors -o datasets/fits/mine.safetensors
    habench run 'fluxion:dataset=trace/english,predict=net,fit=mine'

A sample is one query of one head: its 41 features, and the budgets that it needs (docs/variants/fluxion.md). The files
must be of one version of habench, one model and the same options. The net has layers of 41, 312, 312 and 3 numbers,
111,699 parameters; its outputs are the budget at block 1, its slope over log2 of the block, and the logit of streaming.
A sample without blocks on the host is left out.

What is held out shares no text with what was trained on, else it is refused. Figures are of the numbers as they stand
in the file that is written:
  stream   share of the samples that need no block: sink and recent tokens are enough
  error    |budget of the net - least budget| over the other samples, at blocks of 16 and of 128: mean, 90th percentile
  short    share of these where the net's budget, in whole blocks, is less than needed
  s        share of the samples whose streaming is told right; of those that stream; of those that do not
  line R2  how well the labels' own line over log2 of the block goes through their five budgets: mean
The last line has the same figures of one who says the mean of the training samples every time. With --judge nothing is
trained, and numpy and safetensors are enough.
"""

import argparse
import json
import math
import os
import struct
import sys
import time

try:
    import numpy as np
    from safetensors import SafetensorError, safe_open
    from trace_stats import whole_file
except ImportError as e:
    if not any(a in ("-h", "--help") for a in sys.argv[1:]):
        sys.exit(f"train_fluxion: {e.name} is missing: pip install -r scripts/requirements-train.txt")

# A case agrees with its fit in these.
AGREE = ("variant", "params", "model", "layers", "q_heads", "kv_heads", "head_dim", "model_dim")
OTHER = ("dataset", "seed", "case", "habench")
WIDTH = (41, 312, 312, 3)
HOST_TOKENS = 2  # the feature that says how many tokens are on the host
BGT0, SLOPE, STREAMS, BUDGET_1 = 0, 1, 2, 3  # of a sample's labels; then the budgets of larger blocks
LOG2_OF_BLOCK = (0, 4, 5, 6, 7)
JUDGED = (16, 128)
CLAMP = 10  # of a standardised feature
SAMPLES = {"features": (None, 41), "labels": (None, 8)}
NET = {"mean": (41,), "inv": (41,), "w0": (41, 312), "b0": (312,), "w1": (312, 312), "b1": (312,), "w2": (312, 3),
       "b2": (3,)}


def fail(message):
    sys.exit(f"train_fluxion: {message}")


# ---- files -----------------------------------------------------------------------------------------------------------


def list_of(shape):
    return "[" + "][".join("N" if n is None else str(n) for n in shape) + "]"


def read(path, wanted):
    """(metadata, tensors) of a fit that has those that are wanted, in F32 (a net's may be F16) and of that shape; as F32."""
    tensors = {}
    try:
        with safe_open(path, "np") as f:
            meta = f.metadata() or {}
            for name, shape in wanted.items():
                if name not in f.keys():
                    fail(f"{path} has no tensor {name}: " + ("a net, which --judge wants" if wanted is NET else
                                                             "samples, as `habench fit` writes them,") + " has one")
                tensors[name] = f.get_tensor(name)
                if wanted is NET and tensors[name].dtype == np.float16:
                    tensors[name] = tensors[name].astype(np.float32)
                got = tensors[name].shape
                fits = len(got) == len(shape) and all(w in (None, g) for g, w in zip(got, shape))
                if tensors[name].dtype != np.float32 or not fits:
                    fail(f"{path}: tensor {name} is {tensors[name].dtype} {list_of(got)}, and float32 {list_of(shape)} "
                         "is wanted")
                if not np.isfinite(tensors[name]).all():
                    fail(f"{path}: tensor {name} has numbers that are not finite")
    except (OSError, SafetensorError) as e:
        fail(f"{path}: {str(e).splitlines()[0]}")
    if meta.get("format") != "habench-fit" or meta.get("version") != "1" or meta.get("variant") != "fluxion":
        fail(f"{path} is not a habench-fit of version 1 for fluxion")
    for key in (*AGREE, *OTHER, "text.0"):
        if key not in meta:
            fail(f"{path}: metadata key {key} is missing")
    return meta, tensors


def texts(meta):
    """[(text, hash)]; what a generator makes has none: None"""
    found, i = [], 0
    while f"text.{i}" in meta:
        found.append((meta[f"text.{i}"], meta.get(f"hash.{i}")))
        i += 1
    return found


def read_samples(path):
    """(metadata, features, labels) of the samples that have blocks on the host"""
    meta, tensors = read(path, SAMPLES)
    x, y = tensors["features"], tensors["labels"]
    if len(x) != len(y):
        fail(f"{path} has {len(x)} rows of features and {len(y)} of labels")
    budgets = np.delete(y, (SLOPE, STREAMS), axis=1)
    if not (np.isin(y[:, STREAMS], (0, 1)).all() and (budgets >= 0).all() and (budgets <= 1).all()):
        fail(f"{path}: budgets and streaming of the labels must be from 0 to 1")
    on_host = x[:, HOST_TOKENS] > 0
    if not on_host.any():
        fail(f"{path}: no sample has blocks on the host: raise ctx")
    return meta, x[on_host], y[on_host]


def agree(path, meta, with_path, with_meta):
    for key in (*AGREE, "habench"):
        if meta[key] != with_meta[key]:
            fail(f"{path} is of {key} '{meta[key]}', {with_path} of '{with_meta[key]}'")


def apart(path, meta, trained):
    """trained: [(text, hash)]"""
    known = {part for pair in trained for part in pair} - {None}
    for text, digest in texts(meta):
        if text in known or digest in known:
            fail(f"{path}: '{text}' was trained on: who is judged on what it has learnt shows nothing")


def write(path, meta, tensors):
    """The same net gives the same bytes. (safetensors itself writes metadata in an order of its own each time.)"""
    header, offset = {"__metadata__": meta}, 0
    for name, a in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(a.shape), "data_offsets": [offset, offset + a.nbytes]}
        offset += a.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    try:
        with whole_file(path) as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for a in tensors.values():
                f.write(np.ascontiguousarray(a, dtype="<f4").tobytes())
    except OSError as e:
        fail(e)


# ---- the net ---------------------------------------------------------------------------------------------------------


def standard(x):
    """(mean, inv) of each feature. What only rounds differently from sample to sample is constant."""
    low, high = x.min(axis=0).astype(np.float64), x.max(axis=0).astype(np.float64)
    mean, std = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
    varies = (high > low) & (std > 1e-6 * np.maximum(np.abs(low), np.abs(high)))
    inv = np.where(varies, 1 / np.where(varies, std, 1), 0)
    return np.where(varies, mean, low).astype(np.float32), inv.astype(np.float32)


def standardised(x, mean, inv):
    return np.clip((x - mean) * inv, -CLAMP, CLAMP)


def answers(net, x):
    """[samples][3] as the program computes them"""
    a = standardised(x, net["mean"], net["inv"])
    for layer in range(3):
        a = a @ net[f"w{layer}"] + net[f"b{layer}"]
        if layer < 2:
            a = np.maximum(a, 0)
    return a


def train(args, x, y):
    """The net of all samples, as tensors of a fit."""
    try:
        import torch
    except ImportError:
        fail("torch is missing: pip install -r scripts/requirements-train.txt")
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)
    mean, inv = standard(x)
    retrieval = y[:, STREAMS] == 0
    line = y[retrieval][:, [BGT0, SLOPE]].astype(np.float64)
    centre, size = (line.mean(axis=0), line.std(axis=0)) if len(line) else (np.zeros(2), np.ones(2))
    size[size == 0] = 1
    print(f"{len(x)} samples, {100 - 100 * retrieval.mean():.1f}% of them stream; "
          f"{int((inv == 0).sum())} features do not vary", file=sys.stderr)

    inputs = torch.from_numpy(standardised(x, mean, inv))
    targets = torch.from_numpy(((y[:, [BGT0, SLOPE]] - centre) / size).astype(np.float32))
    streams = torch.from_numpy(y[:, STREAMS].copy())
    layers = [torch.nn.Linear(a, b) for a, b in zip(WIDTH, WIDTH[1:])]
    net = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])
    optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=args.decay)
    batches = math.ceil(len(x) / args.batch)
    started, steps = time.monotonic(), args.epochs * batches
    for epoch in range(args.epochs):
        order, total = torch.randperm(len(x)), 0.0
        for b in range(batches):
            rows = order[b * args.batch:(b + 1) * args.batch]
            done = (epoch * batches + b) / steps
            for group in optimizer.param_groups:
                group["lr"] = args.lr * min(1, (epoch * batches + b + 1) / 100) * 0.5 * (1 + math.cos(math.pi * done))
            out = net(inputs[rows])
            # Budgets of streaming heads are not read.
            off = torch.nn.functional.huber_loss(out[:, :2], targets[rows], reduction="none").sum(dim=1)
            loss = (off * (1 - streams[rows])).mean() \
                + torch.nn.functional.binary_cross_entropy_with_logits(out[:, 2], streams[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        print(f"epoch {epoch + 1} of {args.epochs}: loss {total / len(x):.4f}, {time.monotonic() - started:.0f} s",
              file=sys.stderr, flush=True)

    found = {"mean": mean, "inv": inv}
    for i, layer in enumerate(layers):
        w, b = layer.weight.detach().numpy().T, layer.bias.detach().numpy()  # [in][out]
        if i == 2:  # from multiples of `size` to budgets
            w, b = w * np.append(size, 1), b * np.append(size, 1) + np.append(centre, 0)
        found[f"w{i}"], found[f"b{i}"] = w.astype(np.float32), b.astype(np.float32)
    return found


# ---- figures ---------------------------------------------------------------------------------------------------------


def r2_of_lines(y):
    """Of each sample whose five budgets are not all the same."""
    budgets, at = y[:, BUDGET_1:].astype(np.float64), np.array(LOG2_OF_BLOCK)
    line = y[:, [BGT0]] + y[:, [SLOPE]].astype(np.float64) * at
    spread = ((budgets - budgets.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    some = spread > 0
    return 1 - ((budgets - line) ** 2).sum(axis=1)[some] / spread[some]


def share(values):
    return float(np.mean(values)) if len(values) else math.nan


def figures(out, x, y):
    """out: [samples][3], bgt0, k, logit. One number for each column of the table."""
    streams, said = y[:, STREAMS] == 1, out[:, 2] > 0
    row = [len(x), 100 * share(streams)]
    o, labels, host = (a[~streams].astype(np.float64) for a in (out, y, x[:, HOST_TOKENS]))
    for block in JUDGED:
        at = LOG2_OF_BLOCK.index(int(math.log2(block)))
        least, blocks = labels[:, BUDGET_1 + at], host / block
        budget = np.clip(o[:, 0] + o[:, 1] * LOG2_OF_BLOCK[at], 0, 1)
        off = np.abs(budget - least)
        read_blocks = np.maximum(np.ceil(budget * blocks), 1)
        row += [share(off), float(np.quantile(off, 0.9)) if len(off) else math.nan,
                100 * share(read_blocks < np.rint(least * blocks))]
    return row + [100 * share(said == streams), 100 * share(said[streams]), 100 * share(~said[~streams]),
                  share(r2_of_lines(y[~streams]))]


COLUMNS = (("samples", "%d"), ("stream%", "%.1f"), ("error@16", "%.4f"), ("90%", "%.4f"), ("short%", "%.1f"),
           ("error@128", "%.4f"), ("90%", "%.4f"), ("short%", "%.1f"), ("s right%", "%.1f"), ("streaming%", "%.1f"),
           ("retrieval%", "%.1f"), ("line R2", "%.3f"))


def show(name, row=None):
    cells = [head if row is None else "-" if math.isnan(row[i]) else form % row[i]
             for i, (head, form) in enumerate(COLUMNS)]
    print("%-40s" % name[-40:] + "".join("%11s" % cell for cell in cells))


def judge(net, held, mean=None):
    """held: [(path, features, labels)]; mean: labels that are the same for every sample"""
    show("held out")
    for path, x, y in held:
        show(os.path.basename(path).removesuffix(".safetensors"), figures(answers(net, x), x, y))
    x, y = (np.concatenate([one[i] for one in held]) for i in (1, 2))
    if len(held) > 1:
        show("all", figures(answers(net, x), x, y))
    if mean is not None:
        show("the training samples' mean", figures(np.tile(mean, (len(x), 1)), x, y))


def mean_of(y):
    """What a net would answer that reads no feature."""
    retrieval = y[y[:, STREAMS] == 0]
    line = retrieval[:, [BGT0, SLOPE]].mean(axis=0, dtype=np.float64) if len(retrieval) else np.zeros(2)
    return np.append(line, y[:, STREAMS].mean(dtype=np.float64) - 0.5)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("fits", nargs="*", metavar="FIT", help="samples to train on, by `habench fit fluxion:... -o FIT`")
    p.add_argument("--held", nargs="+", required=True, metavar="FIT", help="samples of other texts, to judge it on")
    p.add_argument("-o", "--output", metavar="FILE", help="where the net goes (.safetensors), for fit=FILE")
    p.add_argument("--judge", metavar="NET", help="train nothing, and judge this net")
    p.add_argument("--epochs", type=int, default=10, help="how often each sample is seen [%(default)s]")
    p.add_argument("--batch", type=int, default=1024, help="samples per step [%(default)s]")
    p.add_argument("--lr", type=float, default=1e-3, help="peak learning rate [%(default)s]")
    p.add_argument("--decay", type=float, default=0.01, help="weight decay [%(default)s]")
    p.add_argument("--seed", type=int, default=1, help="of first weights and of the order of samples [%(default)s]")
    p.add_argument("--threads", type=int, default=1, help="CPU threads; others may give other roundings [%(default)s]")
    args = p.parse_args()
    if args.judge:
        if args.fits or args.output:
            p.error("with --judge there is nothing to train on, and nothing to write")
        meta, net = read(args.judge, NET)
        first, trained, mean = args.judge, texts(meta), None
    else:
        if not args.fits or not args.output:
            p.error("needs FIT to train on, and -o FILE")
        if min(args.epochs, args.batch, args.threads) < 1 or args.lr <= 0:
            p.error("--epochs, --batch, --threads and --lr must be above 0")
        folder = os.path.dirname(args.output) or "."
        if not os.access(folder, os.W_OK) or os.path.isdir(args.output):
            fail(f"-o {args.output}: no such folder to write to")
        samples = [(path, *read_samples(path)) for path in args.fits]
        first, meta = samples[0][:2]
        for path, of, _, _ in samples:
            agree(path, of, first, meta)
        trained = list(dict.fromkeys(pair for _, of, _, _ in samples for pair in texts(of)))
    held = []
    for path in args.held:
        of, x, y = read_samples(path)
        agree(path, of, first, meta)
        apart(path, of, trained)
        held.append((path, x, y))
    if not args.judge:
        x, y = (np.concatenate([one[i] for one in samples]) for i in (2, 3))
        del samples
        net, mean = train(args, x, y), mean_of(y)
        about = {"format": "habench-fit", "version": "1", **{key: meta[key] for key in (*AGREE, *OTHER)}}
        for i, (text, digest) in enumerate(trained):
            about |= {f"text.{i}": text} | ({f"hash.{i}": digest} if digest else {})
        write(args.output, about, net)
        print(f"{args.output}: {sum(net[n].size for n in net if n[0] in 'wb')} parameters, trained on {len(x)} samples "
              f"of {len(trained)} texts")
    judge(net, held, mean)


if __name__ == "__main__":
    main()
