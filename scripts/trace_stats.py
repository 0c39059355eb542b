#!/usr/bin/env python3
"""Show where the attention of a trace goes, per layer and query head (numpy only).

All figures are means over the trace's queries. Attention is computed in binary64.
  first     softmax mass on token 0 (attention sink)
  last64    mass on the last 64 visible tokens, the query's own included
  last256   mass on the last 256
  keys90    share of the visible keys that together hold 90 % of the mass, largest first
  keys99    the same for 99 %
"""

import argparse
import csv
import json
import struct
import sys

try:
    import numpy as np
except ImportError:
    sys.exit("trace_stats: numpy is missing: pip install numpy, or apt install python3-numpy")

COLUMNS = ("first", "last64", "last256", "keys90", "keys99")


def read_trace(path):
    """Returns (metadata, function from tensor name to float64 array)."""
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
    if metadata.get("format") != "habench-trace" or metadata.get("version") != "1":
        sys.exit(f"trace_stats: {path} is not a version 1 habench-trace")

    def tensor(name):
        if name not in header:
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


def head_stats(q, k, scale, first):
    """q: [queries][head_dim], k: [tokens][head_dim]; row r of q is token first + r."""
    s = q @ k.T * scale
    rows = np.zeros((len(q), len(COLUMNS)))
    for r in range(len(q)):
        seen = first + r + 1
        p = np.exp(s[r, :seen] - s[r, :seen].max())
        p /= p.sum()
        held = np.cumsum(np.sort(p)[::-1])
        need = [min(int(np.searchsorted(held, share)) + 1, seen) / seen for share in (0.90, 0.99)]
        rows[r] = [p[0], p[-64:].sum(), p[-256:].sum(), *need]
    return rows.mean(axis=0)


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

    rows, means = [], []
    for layer in range(layers):
        k, q = tensor(f"layers.{layer}.k"), tensor(f"layers.{layer}.q")
        stats = [head_stats(q[h], k[h * kv_heads // heads], scale, first) for h in range(heads)]
        for h, values in enumerate(stats):
            rows.append([layer, h, h * kv_heads // heads, *(f"{v:.6f}" for v in values)])
            if not args.layers_only:
                line(layer, h, values)
        means.append(np.mean(stats, axis=0))
        line(layer, "mean", means[-1])
    line("all", "mean", np.mean(means, axis=0))
    print(f"{'(uniform)':>13}  " + "".join(f"{v:9.4f}" for v in uniform))
    if args.csv:
        with open(args.csv, "w", newline="") as f:
            out = csv.writer(f, lineterminator="\n")
            out.writerow(["layer", "q_head", "kv_head", *COLUMNS])
            out.writerows(rows)


if __name__ == "__main__":
    main()
