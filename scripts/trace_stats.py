#!/usr/bin/env python3
"""Show where the attention of a trace goes, per layer and query head (numpy only).

All figures are means over the trace's queries. Attention is computed in binary64.
  first     softmax mass on token 0 (attention sink)
  last64    mass on the last 64 visible tokens, the query's own included
  last256   mass on the last 256
  keys90    share of the visible keys that together hold 90 % of the mass, largest first
  keys99    the same for 99 %

A second table has, per layer, what tells whether queries can be foreseen and choices kept (- where the trace does not
have what it takes), means over heads and queries:
  predicted    cosine of the query and of what the layer would compute from the input of the layer before
  neighbours   cosine of the queries of a token and of the next, same head
  changed      share of the top tenth of 32-token blocks, by attention mass, that leaves it from a token to the next;
               blocks that are complete at the first of the two count
"""

import argparse
import contextlib
import csv
import json
import os
import struct
import sys

try:
    import numpy as np
except ImportError:
    sys.exit("trace_stats: numpy is missing: pip install numpy, or apt install python3-numpy")

COLUMNS = ("first", "last64", "last256", "keys90", "keys99")
FORESEEN = ("predicted", "neighbours", "changed")
BLOCK = 32


@contextlib.contextmanager
def whole_file(path):
    """A file of -o: written whole, where a link leads; what is no regular file (a pipe, a device) is written directly."""
    direct = os.path.exists(path) and not os.path.isfile(path)
    path = path if direct else os.path.realpath(path)
    part = path if direct else path + ".new"
    with open(part, "wb") as file:
        yield file
    if not direct:
        os.replace(part, path)


def read_trace(path):
    """Returns (metadata, function from tensor name to float64 array; None for an optional tensor that is not there)."""
    try:
        with open(path, "rb") as f:
            blob = f.read()
        (length,) = struct.unpack_from("<Q", blob)
        header = json.loads(blob[8:8 + length])
        metadata = header.pop("__metadata__", {})
    except OSError as e:
        sys.exit(f"trace_stats: {e}")
    except (struct.error, ValueError, AttributeError):
        sys.exit(f"trace_stats: {path} is not a safetensors file")
    if metadata.get("format") != "habench-trace" or metadata.get("version") not in ("1", "2"):
        sys.exit(f"trace_stats: {path} is not a habench-trace of version 1 or 2")

    def tensor(name, optional=False):
        if name not in header:
            if optional:
                return None
            sys.exit(f"trace_stats: {path} has no tensor {name}")
        entry = header[name]
        begin, end = entry["data_offsets"]
        raw = blob[8 + length + begin:8 + length + end]
        if entry["dtype"] == "BF16":
            a = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            a = np.frombuffer(raw, {"F16": "<f2", "F32": "<f4"}[entry["dtype"]])
        return a.reshape(entry["shape"]).astype(np.float64)

    return metadata, tensor


def rotate(q, first, inv_freq, adjacent, scale):
    """The rotary embedding. q: [heads][rows][head_dim], row r at position first + r; the first 2 len(inv_freq) turn."""
    rotary = 2 * len(inv_freq)
    a, b = (slice(0, rotary, 2), slice(1, rotary, 2)) if adjacent else \
        (slice(0, rotary // 2), slice(rotary // 2, rotary))
    angle = np.arange(first, first + q.shape[1])[:, None] * inv_freq
    c, s = np.cos(angle) * scale, np.sin(angle) * scale
    out = q.copy()
    out[:, :, a] = q[:, :, a] * c - q[:, :, b] * s
    out[:, :, b] = q[:, :, b] * c + q[:, :, a] * s
    return out


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def project(x, layer, rope, heads, first):
    """The queries [heads][rows][head_dim] that a layer computes from x [rows][model_dim].

    layer: wq, norm, norm_eps, q_bias or None, q_norm or None, q_norm_eps. rope: inv_freq, adjacent, scale."""
    q = rms_norm(x.astype(np.float64), layer["norm"], layer["norm_eps"]) @ layer["wq"].T.astype(np.float64)
    if layer["q_bias"] is not None:
        q = q + layer["q_bias"]
    q = q.reshape(len(x), heads, -1).transpose(1, 0, 2)
    if layer["q_norm"] is not None:
        q = rms_norm(q, layer["q_norm"], layer["q_norm_eps"])
    return rotate(q, first, *rope)


def read_projection(meta, tensor, layer):
    """(layer, rope) for project; None where the trace does not have them."""
    names = ("wq", "norm", "q_bias", "q_norm")
    found = {name: tensor(f"layers.{layer}.{name}", optional=True) for name in names}
    if found["wq"] is None:
        return None
    found.update(norm_eps=float(meta["norm_eps"]), q_norm_eps=float(meta.get("q_norm_eps", 0)))
    inv_freq = tensor("rope.inv_freq", optional=True)
    if inv_freq is None:  # version 1
        half = int(meta["head_dim"]) // 2
        inv_freq = float(meta["rope_theta"]) ** (-np.arange(half) / half)
    return found, (inv_freq, meta.get("rope_pairing") == "adjacent", float(meta.get("rope_scale", 1)))


def cosine(a, b):
    """Mean cosine of the vectors along the last axis."""
    return ((a * b).sum(axis=-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))).mean()


def top_blocks(p, blocks):
    """The tenth of the first so many blocks, at least one, that has most of the attention mass p."""
    mass = p[:blocks * BLOCK].reshape(blocks, BLOCK).sum(axis=1)
    return np.argsort(-mass, kind="stable")[:max(1, round(blocks / 10))]


def head_stats(q, k, scale, first):
    """q: [queries][head_dim], k: [tokens][head_dim]; row r of q is token first + r. Returns the columns of the first
    table and the share of top blocks that change, NaN without two queries that see a block."""
    s = q @ k.T * scale
    rows, changed, before = np.zeros((len(q), len(COLUMNS))), [], None
    for r in range(len(q)):
        seen = first + r + 1
        p = np.exp(s[r, :seen] - s[r, :seen].max())
        p /= p.sum()
        held = np.cumsum(np.sort(p)[::-1])
        need = [min(int(np.searchsorted(held, share)) + 1, seen) / seen for share in (0.90, 0.99)]
        rows[r] = [p[0], p[-64:].sum(), p[-256:].sum(), *need]
        blocks = (seen - 1) // BLOCK
        if before is not None and blocks:
            now = top_blocks(p, blocks)
            changed.append(1 - np.isin(now, top_blocks(before, blocks)).mean())
        before = p
    return rows.mean(axis=0), np.mean(changed) if changed else np.nan


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("trace", help="trace file (.safetensors)")
    p.add_argument("--csv", help="also write the table as CSV")
    p.add_argument("--layers-only", action="store_true", help="print only the mean of each layer")
    args = p.parse_args()

    meta, tensor = read_trace(args.trace)
    layers, heads, kv_heads = (int(meta[n]) for n in ("layers", "q_heads", "kv_heads"))
    tokens, first, scale = int(meta["tokens"]), int(meta["q_first"]), float(meta["scale"])
    seen = np.arange(first, tokens) + 1.0
    uniform = [(1 / seen).mean(), (np.minimum(64, seen) / seen).mean(), (np.minimum(256, seen) / seen).mean(),
               0.9, 0.99]
    print(f"model {meta['model']}; text {meta['source']}")
    print(f"{tokens} tokens, {tokens - first} queries, {layers} layers, {heads} query heads, {kv_heads} KV heads, "
          f"head_dim {meta['head_dim']}")
    print("layer  head    " + "".join(f"{c:>9}" for c in COLUMNS))

    def line(layer, head, values):
        print(f"{layer:>5}  {head:<6}  " + "".join(f"{v:9.4f}" for v in values))

    rows, means, foreseen = [], [], []
    x_before = None
    for layer in range(layers):
        k, q = tensor(f"layers.{layer}.k"), tensor(f"layers.{layer}.q")
        stats, changed = zip(*(head_stats(q[h], k[h * kv_heads // heads], scale, first) for h in range(heads)))
        for h, values in enumerate(stats):
            rows.append([layer, h, h * kv_heads // heads, *(f"{v:.6f}" for v in values)])
            if not args.layers_only:
                line(layer, h, values)
        means.append(np.mean(stats, axis=0))
        line(layer, "mean", means[-1])
        projection = read_projection(meta, tensor, layer)
        foreseen.append([
            cosine(project(x_before, projection[0], projection[1], heads, first), q)
            if projection and x_before is not None else np.nan,
            cosine(q[:, 1:], q[:, :-1]) if q.shape[1] > 1 else np.nan, np.mean(changed)])
        x_before = tensor(f"layers.{layer}.x", optional=True)
    line("all", "mean", np.mean(means, axis=0))
    print(f"{'(uniform)':>13}  " + "".join(f"{v:9.4f}" for v in uniform))
    print("layer  " + "".join(f"{c:>12}" for c in FORESEEN))
    for layer, values in enumerate(foreseen):
        print(f"{layer:>5}  " + "".join(f"{'-':>12}" if np.isnan(v) else f"{v:12.4f}" for v in values))
    if args.csv:
        with open(args.csv, "w", newline="") as f:
            out = csv.writer(f, lineterminator="\n")
            out.writerow(["layer", "q_head", "kv_head", *COLUMNS])
            out.writerows(rows)


if __name__ == "__main__":
    main()
