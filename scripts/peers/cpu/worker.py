"""The process of one peer: keys and values, the check of what comes out, the time of calls. It answers lines of JSON:

    {"dtype": "f16", "ctx": 32768, "threads": 1, "rotate": BYTES, "ggml": LIBRARY}
        {"version": "...", "ways": {NAME: {"computes": "...", "error": X, "error_few": X, "right": true}}, "lacks": {NAME: "..."}}
    {"way": NAME, "calls": N}
        {"ns": [...]}

and {"problem": "..."} where the library raised. A peer is a module with NAMES (its packages, as importlib.metadata
knows them) or version(asked), and

    ways(sets, dtype, threads, asked) -> {name: Way}        {}: it has no such type; in place of a Way: why there is none

sets: [(q, k, v)], arrays of numpy, [heads][dim], [KV heads][keys][dim] twice; bf16 as uint16."""
import importlib
import importlib.metadata
import json
import math
import os
import sys
import time
from collections import namedtuple

import numpy as np

HEADS, KV_HEADS, DIM = 32, 8, 128
# How far an output may be from attention in binary64, relative L2. Of few keys as far as its type rounds: one key that
# is forgotten weighs more. Of those that are timed farther, as some sum in the type of V: 1% of the keys weigh more.
SMALL, TOLERANCE, TIMED_TOLERANCE = 77, {"f32": 1e-5, "f16": 1e-2, "bf16": 3e-2}, 0.1
NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}

# computes: in what, as far as the library says; calls: one for each set, which returns whatever `result` makes
# [heads][dim] in binary32 of, outside of the time
Way = namedtuple("Way", "computes calls result")


def round_to(x, dtype):
    """binary32 to what K and V are kept in; bf16: to nearest, ties to even"""
    if dtype != "bf16":
        return x.astype(NUMPY[dtype])
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widen(x, dtype):
    return (x.astype(np.uint32) << 16).view(np.float32) if dtype == "bf16" else x.astype(np.float32)


def make(dtype, ctx, rotate, seed=1):
    """So many sets that they have `rotate` bytes, of pieces of a million normal numbers"""
    draw = np.random.default_rng(seed)
    pattern = round_to(draw.standard_normal(1 << 20, dtype=np.float32), dtype)
    numbers, piece = KV_HEADS * ctx * DIM, 1 << 15

    def normals():
        x = np.empty(numbers, pattern.dtype)  # of that size numpy asks for huge pages
        for at in range(0, numbers, piece):
            n, first = min(piece, numbers - at), draw.integers(len(pattern) - piece)
            x[at:at + n] = pattern[first:first + n]
        return x.reshape(KV_HEADS, ctx, DIM)

    count = max(1, math.ceil(rotate / (2 * numbers * pattern.itemsize)))
    q = round_to(draw.standard_normal((HEADS, DIM), dtype=np.float32), dtype)
    return [(q, normals(), normals()) for _ in range(count)]


def exact(q, k, v, dtype):
    """attention in binary64, [heads][dim]"""
    out = np.empty((HEADS, DIM))
    group = HEADS // KV_HEADS
    for h in range(KV_HEADS):
        rows = slice(h * group, (h + 1) * group)
        s = widen(q[rows], dtype).astype(np.float64) @ widen(k[h], dtype).astype(np.float64).T / math.sqrt(DIM)
        w = np.exp(s - s.max(1, keepdims=True))
        out[rows] = w / w.sum(1, keepdims=True) @ widen(v[h], dtype).astype(np.float64)
    return out


def error(out, want):
    out = np.asarray(out, np.float64)
    return float(np.linalg.norm(out - want) / np.linalg.norm(want)) if out.shape == want.shape else math.inf


def open_ways(peer, asked, ctx, rotate):
    """{name: Way} of the peer, {name: its error on the first set}, and {name: why there is none}"""
    dtype, sets = asked["dtype"], make(asked["dtype"], ctx, rotate)
    want = exact(*sets[0], dtype)
    all_ways = peer.ways(sets, dtype, asked["threads"], asked)
    lacks = {name: why for name, why in all_ways.items() if isinstance(why, str)}
    ways = {name: way for name, way in all_ways.items() if name not in lacks}
    return ways, {name: error(way.result(way.calls[0]()), want) for name, way in ways.items()}, lacks


def versions(peer):
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in peer.NAMES)


def answer(peer, ways, request):
    if "way" in request:
        calls, ns = ways[request["way"]].calls, []
        for i in range(request["calls"]):
            begin = time.perf_counter_ns()
            calls[i % len(calls)]()
            ns.append(time.perf_counter_ns() - begin)
        ways[request["way"]].calls[:] = calls[len(ns) % len(calls):] + calls[:len(ns) % len(calls)]
        return {"ns": ns}
    ways.clear()
    few = open_ways(peer, request, SMALL, 0)[1]
    found, errors, lacks = open_ways(peer, request, request["ctx"], request["rotate"])
    ways.update(found)
    version = peer.version(request) if hasattr(peer, "version") else versions(peer)
    return {"version": version, "lacks": lacks,
            "ways": {name: {"computes": way.computes, "error": errors[name], "error_few": few[name],
                            "right": few[name] <= TOLERANCE[request["dtype"]] and errors[name] <= TIMED_TOLERANCE}
                     for name, way in found.items()}}


def main(name):
    out = os.fdopen(os.dup(1), "w")  # libraries print what they like, to stderr
    os.dup2(2, 1)
    ways, peer = {}, None
    for line in sys.stdin:
        try:
            peer = peer or importlib.import_module(name)
            said = answer(peer, ways, json.loads(line))
        except Exception as problem:  # whatever the library raises is one line of the table
            said = {"problem": f"{type(problem).__name__}: {problem}".strip().split("\n")[0]}
        print(json.dumps(said), file=out, flush=True)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    main(sys.argv[1])
