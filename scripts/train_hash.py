#!/usr/bin/env python3
"""Learn the projections by which the variant clo makes codes of keys and queries (retrieve=hata, hash=learned).

    habench fit 'clo:dataset=trace/A,ctx=1900,observed=108' -o a.safetensors
    scripts/train_hash.py A.safetensors B.safetensors --fit a.safetensors --held C.safetensors -o mine.safetensors
    habench run 'clo:dataset=trace/C,hash=learned,fit=mine.safetensors'

The first files are traces (datasets/README.md) of one model, from whose queries and keys it learns; --fit is a fit of
clo for that model, which is written again with the tensor `hash` and the texts that it was learnt from. A code has the
signs of a projection, one for each layer and KV head. It is learnt so that of the keys of a query that may be chosen,
neither among the first --sink nor the last --recent, those with the largest scores (--share of them) are ranked above
the others by norm x (bits - 2 x differing bits): a sign is relaxed to a tanh that grows steeper, the rank to a logistic
loss about the quantile that parts them (HATA, section on learning to hash, has another loss). Projections begin with
normal numbers of --seed.

Printed is, for each file of --held, which shares no text with the others, the mean share of those keys that are among
as many that the codes rank highest: of normal numbers and of what was learnt. With one thread of BLAS the same input
gives the same file. Needs numpy only.
"""

import argparse
import json
import math
import struct
import sys

try:
    import numpy as np
    from trace_stats import read_trace, whole_file
except ImportError as e:
    if not any(a in ("-h", "--help") for a in sys.argv[1:]):
        sys.exit(f"train_hash: {e.name} is missing: pip install numpy")

SHAPE = ("model", "layers", "q_heads", "kv_heads", "head_dim")
SHARPNESS = (4.0, 8.0)  # of the tanh, at the beginning and at the end


def fail(message):
    sys.exit(f"train_hash: {message}")


# ---- files -----------------------------------------------------------------------------------------------------------


def read_fit(path):
    """(metadata, header of the tensors, their bytes)"""
    try:
        with open(path, "rb") as f:
            blob = f.read()
        (length,) = struct.unpack_from("<Q", blob)
        header = json.loads(blob[8:8 + length])
        meta = header.pop("__metadata__", {})
    except OSError as e:
        fail(e)
    except (struct.error, ValueError, AttributeError):
        fail(f"{path} is not a safetensors file")
    if meta.get("format") != "habench-fit" or meta.get("version") != "1" or meta.get("variant") != "clo":
        fail(f"{path} is not a habench-fit of version 1 for clo")
    return meta, header, blob[8 + length:]


def write_fit(path, meta, tensors):
    """tensors: {name: (dtype, shape, bytes)}. The same input gives the same bytes."""
    header, offset = {"__metadata__": meta}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    try:
        with whole_file(path) as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for _, _, data in tensors.values():
                f.write(data)
    except OSError as e:
        fail(e)


def digest(path):
    """The hash that a fit has of a trace: FNV-1a of the keys of the first 64 tokens of layer 0, head after head."""
    with open(path, "rb") as f:
        blob = f.read()
    (length,) = struct.unpack_from("<Q", blob)
    entry = json.loads(blob[8:8 + length])["layers.0.k"]
    begin, end = (8 + length + at for at in entry["data_offsets"])
    heads, tokens, _ = entry["shape"]
    size, value = (end - begin) // heads, 0xcbf29ce484222325
    for head in range(heads):
        at = begin + head * size
        for byte in blob[at:at + size // tokens * min(tokens, 64)]:
            value = (value ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return f"{value:016x}"


class Trace:
    def __init__(self, path):
        self.path, (self.meta, tensor) = path, read_trace(path)
        layers = range(int(self.meta["layers"]))
        self.first = int(self.meta["q_first"])
        self.k = [tensor(f"layers.{i}.k").astype(np.float32) for i in layers]  # [kv_heads][tokens][head_dim]
        self.q = [tensor(f"layers.{i}.q").astype(np.float32) for i in layers]  # [q_heads][queries][head_dim]
        self.text = (self.meta["source"], digest(path))

    def head(self, layer, head):
        """(queries of all query heads, first token after those that may be chosen of each, keys), of a KV head"""
        group = int(self.meta["q_heads"]) // int(self.meta["kv_heads"])
        q = self.q[layer][head * group:(head + 1) * group]
        token = np.tile(np.arange(q.shape[1]) + self.first, group)
        return q.reshape(-1, q.shape[2]), token, self.k[layer][head]


def texts(meta):
    found = []
    while f"text.{len(found)}" in meta:
        found.append((meta[f"text.{len(found)}"], meta.get(f"hash.{len(found)}")))
    return found


# ---- codes -----------------------------------------------------------------------------------------------------------


def wanted(scores, allowed, share):
    """[queries][keys] the largest so many of those that are allowed: a share of them, rounded up"""
    count = np.ceil(share * allowed.sum(axis=1)).astype(int)
    order = np.argsort(-np.where(allowed, scores, -np.inf), axis=1, kind="stable")
    mark = np.zeros(scores.shape, bool)
    np.put_along_axis(mark, order, np.arange(scores.shape[1]) < count[:, None], axis=1)
    return mark


def choosable(token, keys, args):
    at = np.arange(keys)
    return (at >= args.sink) & (at < token[:, None] - args.recent)


def recall(a, q, token, k, args):
    """of the codes themselves, with signs"""
    allowed = choosable(token, len(k), args)
    some = allowed.any(axis=1)
    q, allowed = q[some], allowed[some]
    norm = np.linalg.norm(k, axis=1)
    of_q, of_k = (np.where(x @ a.T < 0, -1, 1).astype(np.float32) for x in (q, k))
    by_code = of_q @ of_k.T * norm
    best = wanted(q @ k.T, allowed, args.share)
    return (best & wanted(by_code, allowed, args.share)).sum() / best.sum()


def unit(x):
    """rows of length sqrt(dim): a sign does not hang on it, and the tanh has one scale for all"""
    return x * (math.sqrt(x.shape[1]) / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-20))


def loss_and_slope(a, q, k, norm, allowed, best, sharp, about=None):
    """Mean logistic loss over the keys that are allowed, both sides weighted alike, and its derivative by a. Scores are
    taken from their own quantile and divided by their spread, (quantile, spread) of each query, which count as
    constants; about: these, if not those of the scores."""
    scale = sharp / math.sqrt(a.shape[1])
    hq, hk = np.tanh(scale * (q @ a.T)), np.tanh(scale * (k @ a.T))
    score = hq @ hk.T * (norm / len(a))
    if about is None:
        about = np.array([(np.partition(s[m], -b.sum())[-b.sum()], s[m].std() + 1e-6)
                          for s, m, b in zip(score, allowed, best)]).T
    quantile, spread = about[0][:, None], about[1][:, None] / 4
    high, low = best.sum(axis=1, keepdims=True), (allowed & ~best).sum(axis=1, keepdims=True)
    weight = np.where(best, 0.5 / high, np.where(allowed, 0.5 / low, 0)) / len(q)
    margin = np.where(best, 1, -1) * (score - quantile) / spread
    loss = (weight * np.logaddexp(0, -margin)).sum()
    slope = np.where(best, -1, 1) * weight / (1 + np.exp(np.clip(margin, -60, 60))) / spread * (norm / len(a))
    by_q, by_k = slope @ hk * (1 - hq * hq), slope.T @ hq * (1 - hk * hk)
    return loss, scale * (by_q.T @ q + by_k.T @ k)


def learn(traces, layer, head, args, rng):
    a = rng.standard_normal((args.bits, int(traces[0].meta["head_dim"]))).astype(np.float32)
    begun = a.copy()
    mean, square = np.zeros_like(a), np.zeros_like(a)
    for step in range(args.steps):
        trace = traces[int(rng.integers(len(traces)))]
        q, token, k = trace.head(layer, head)
        some = rng.choice(len(q), min(args.batch, len(q)), replace=False)
        q, allowed = q[some], choosable(token[some], len(k), args)
        best = wanted(q @ k.T, allowed, args.share)
        done = step / args.steps
        sharp = SHARPNESS[0] * (SHARPNESS[1] / SHARPNESS[0]) ** done
        norm = np.linalg.norm(k, axis=1)
        _, slope = loss_and_slope(a, unit(q), unit(k), norm / norm.mean(), allowed, best, sharp)
        mean += 0.1 * (slope - mean)
        square += 0.01 * (slope * slope - square)
        rate = args.lr * 0.5 * (1 + math.cos(math.pi * done))
        root = np.sqrt(square / (1 - 0.99 ** (step + 1))) + 1e-12
        a -= (rate * mean / (1 - 0.9 ** (step + 1)) / root).astype(a.dtype)
    return begun, a


# ---- the command -----------------------------------------------------------------------------------------------------


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("traces", nargs="+", metavar="TRACE")
    p.add_argument("--fit", required=True, help="fit of clo to add to; it stays as it is")
    p.add_argument("--held", action="append", default=[], metavar="TRACE", help="judge on it; may be given again")
    p.add_argument("-o", "--output", required=True)
    p.add_argument("--bits", type=int, default=256, help="of a code, as the case's option bits (256)")
    p.add_argument("--share", type=float, default=0.1, help="of the keys that may be chosen (0.1)")
    p.add_argument("--sink", type=int, default=4)
    p.add_argument("--recent", type=int, default=64)
    p.add_argument("--steps", type=int, default=60, help="of a head (60)")
    p.add_argument("--batch", type=int, default=64, help="queries of a step (64)")
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    if args.bits not in (32, 64, 128, 256):
        fail("--bits: 32, 64, 128 or 256")
    if not (0 < args.share < 1 and args.steps >= 0 and args.batch > 0 and min(args.sink, args.recent) >= 0):
        fail("--share is between 0 and 1, --batch above 0, and --steps, --sink and --recent are not below 0")
    meta, header, data = read_fit(args.fit)
    traces, held = [Trace(t) for t in args.traces], [Trace(t) for t in args.held]
    for trace in traces + held:
        for key in SHAPE:
            if trace.meta[key] != meta.get(key):
                fail(f"{trace.path} is of {key} '{trace.meta[key]}', {args.fit} of '{meta.get(key)}'")
        q, token, k = trace.head(0, 0)
        if not (choosable(token, len(k), args).sum(axis=1) > 1 / (1 - args.share)).all():
            fail(f"{trace.path}: a query has too few keys to choose from: another trace, or less --recent")
    known = texts(meta)
    for trace in traces:
        if not any(trace.text[0] == text or trace.text[1] == of for text, of in known):
            known.append(trace.text)
    parts = {part for text in known for part in text} - {None}
    for trace in held:
        if parts & set(trace.text):
            fail(f"{trace.path}: '{trace.text[0]}' is a text of the fit: who is judged on what it has learnt shows "
                 "nothing")
    layers, heads = int(meta["layers"]), int(meta["kv_heads"])
    learnt = np.zeros((layers, heads, args.bits, int(meta["head_dim"])), np.float32)
    figures = np.zeros((len(held), 2, layers, heads))
    for layer in range(layers):
        for head in range(heads):
            rng = np.random.default_rng([args.seed, layer, head])
            begun, a = learn(traces, layer, head, args, rng)
            learnt[layer, head] = a
            for i, trace in enumerate(held):
                figures[i, :, layer, head] = [recall(x, *trace.head(layer, head), args) for x in (begun, a)]
            print(f"layer {layer} KV head {head}" + "".join(
                f"  {t.path}: {f[0, layer, head]:.3f} -> {f[1, layer, head]:.3f}" for t, f in zip(held, figures)),
                file=sys.stderr)
    for trace, f in zip(held, figures):
        print(f"{trace.path}: {args.bits} bits, recall of the top {100 * args.share:g}%: {f[0].mean():.4f} by normal "
              f"numbers, {f[1].mean():.4f} learnt")
    for i, (text, of) in enumerate(known):
        meta[f"text.{i}"] = text
        if of:
            meta[f"hash.{i}"] = of
    tensors = {name: (e["dtype"], e["shape"], data[slice(*e["data_offsets"])]) for name, e in header.items()}
    tensors["hash"] = ("F32", list(learnt.shape), learnt.astype("<f4").tobytes())
    write_fit(args.output, meta, tensors)


if __name__ == "__main__":
    main()
