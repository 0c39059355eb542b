#!/usr/bin/env python3
"""test_train_fluxion.py: train_fluxion.py learns what can be learnt, writes the net that it judges, prints figures of
that net, and refuses what is no evidence; on samples made here, whose budgets are a known function of some features.

Run by hand: it needs torch (scripts/requirements-train.txt) and takes some ten seconds. Exit status: 1 if something is
wrong, 77 if it is missing.

What a net answers, and every figure, is computed here one sample after the other, with nothing of the script."""

import contextlib
import io
import json
import math
import os
import struct
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
try:
    import numpy as np
    import safetensors  # noqa: F401
    import torch  # noqa: F401
except ImportError as e:
    print(f"SKIP: {e.name or e} is missing, so scripts/train_fluxion.py is not tested: "
          "pip install -r scripts/requirements-train.txt")
    sys.exit(77)
import train_fluxion

META = {"format": "habench-fit", "version": "1", "variant": "fluxion", "params": "sink=64,tau=0.1", "model": "m",
        "layers": "4", "q_heads": "8", "kv_heads": "2", "head_dim": "64", "model_dim": "256", "dataset": "trace/one",
        "seed": "1", "case": "fluxion:dataset=trace/one", "habench": "1.0"}
HOST, CONSTANT, NEARLY = 1536, 5, 6
count = {True: 0, False: 0}


def expect(what, good, said=""):
    count[bool(good)] += 1
    if not good:
        print(f"FAILED: {what}\n    {str(said).strip()[:300]}")


def write(path, tensors, **meta):
    header, offset, data = {"__metadata__": {k: v for k, v in (META | meta).items() if v is not None}}, 0, b""
    for name, a in tensors.items():
        kind = {"float32": "F32", "float16": "F16"}[a.dtype.name]
        header[name] = {"dtype": kind, "shape": a.shape, "data_offsets": [offset, offset + a.nbytes]}
        offset, data = offset + a.nbytes, data + a.tobytes()
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def samples(seed, n):
    """Features 10 and 20 say what is needed, all others nothing; one does not vary, and one only by its last bits."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 41)) * 10.0 ** (np.arange(41) % 7 - 3) + np.arange(41) % 5
    x[:, 10], x[:, 20] = rng.normal(size=n) * 7 + 100, rng.normal(size=n) * 0.01
    x[:, 2], x[:, CONSTANT], x[:, NEARLY] = HOST, -3e38, 1e6 + rng.integers(0, 2, n) / 16
    u, v = (x[:, 10] - 100) / 7, x[:, 20] / 0.01
    bgt0, slope, stream = 0.3 + 0.1 * np.tanh(u), 0.04 + 0.02 * np.sin(v), u + v > 1.3
    budget = [np.clip(np.rint((bgt0 + slope * p) * HOST / 2 ** p) * 2 ** p / HOST, 0, 1) for p in (0, 4, 5, 6, 7)]
    budget = np.stack(budget, axis=1)
    budget[stream] = 0
    line = sum(p * (budget[:, i] - budget[:, 0]) for i, p in ((1, 4), (2, 5), (3, 6), (4, 7))) / (16 + 25 + 36 + 49)
    y = np.column_stack([budget[:, 0], line, stream, budget])
    return {"features": x.astype("f4"), "labels": y.astype("f4")}


def run(*args):
    """(exit status, stdout, what was said besides)"""
    out, err, argv, status = io.StringIO(), io.StringIO(), sys.argv, 0
    sys.argv = ["script", *map(str, args)]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            train_fluxion.main()
        except SystemExit as e:
            status = e.code if isinstance(e.code, int) else 0 if e.code is None else 1
            err.write("" if isinstance(e.code, int) or e.code is None else f"{e.code}\n")
    sys.argv = argv
    return status, out.getvalue(), err.getvalue()


def read(path):
    with open(path, "rb") as f:
        blob = f.read()
    (length,) = struct.unpack_from("<Q", blob)
    header = json.loads(blob[8:8 + length])
    meta = header.pop("__metadata__")
    data = blob[8 + length:]
    return meta, {name: np.frombuffer(data[slice(*t["data_offsets"])], "<f4").reshape(t["shape"]).astype(float)
                  for name, t in header.items()}


def answer(net, features):
    """Of one sample, in binary64."""
    a = [min(max((f - m) * i, -10), 10) for f, m, i in zip(features.astype(float), net["mean"], net["inv"])]
    for layer, (ins, outs) in enumerate(((41, 312), (312, 312), (312, 3))):
        w, b = net[f"w{layer}"], net[f"b{layer}"]
        assert w.shape == (ins, outs) and b.shape == (outs,)
        a = sum(a[i] * w[i] for i in range(ins)) + b
        a = a if layer == 2 else np.where(a > 0, a, 0)
    return a


def figures(net, made):
    """The columns of the table, as numbers."""
    off, short, right, n = {16: [], 128: []}, {16: [], 128: []}, {True: [], False: []}, len(made["labels"])
    r2 = []
    for x, y in zip(made["features"], made["labels"].astype(float)):
        o = answer(net, x)
        right[y[2] == 1].append((o[2] > 0) == (y[2] == 1))
        if y[2] == 1:
            continue
        for block, column in ((16, 4), (128, 7)):
            budget = min(max(o[0] + o[1] * math.log2(block), 0), 1)
            off[block].append(abs(budget - y[column]))
            need = round(y[column] * HOST / block)
            short[block].append(budget * HOST / block <= need - 1 or (budget == 0 and need > 1))
        five, mean = y[3:], y[3:].mean()
        residual = sum((y[0] + y[1] * p - b) ** 2 for p, b in zip((0, 4, 5, 6, 7), five))
        if max(five) > min(five):
            r2.append(1 - residual / sum((b - mean) ** 2 for b in five))
    row = [n, 100 * len(right[True]) / n]
    for block in (16, 128):
        row += [np.mean(off[block]), np.quantile(off[block], 0.9), 100 * np.mean(short[block])]
    both = right[True] + right[False]
    return row + [100 * np.mean(both), 100 * np.mean(right[True]), 100 * np.mean(right[False]), np.mean(r2)]


def table(said):
    """{name: numbers} of the lines below the head"""
    lines = said[said.index("held out"):].splitlines()[1:]
    return {line[:40].strip(): [float(n) for n in line[40:].split()] for line in lines}


def check_training(folder):
    held = samples(3, 400)
    write(f"{folder}/a", samples(1, 10000), **{"text.0": "one", "hash.0": "01"})
    write(f"{folder}/b", samples(2, 10000), **{"text.0": "two", "hash.0": "02", "case": "another"})
    write(f"{folder}/c", held, **{"text.0": "three", "hash.0": "03"})
    args = [f"{folder}/a", f"{folder}/b", "--held", f"{folder}/c", "--epochs", 12, "--batch", 256, "-o",
            f"{folder}/net"]
    status, said, noise = run(*args)
    expect("it trains", status == 0 and "111699 parameters, trained on 20000 samples of 2 texts" in said, said + noise)
    expect("three features do not vary", "; 3 features do not vary" in noise, noise)
    meta, net = read(f"{folder}/net")
    want = META | {"text.0": "one", "hash.0": "01", "text.1": "two", "hash.1": "02"}
    expect("the net says where it is from", meta == want, meta)
    both = np.concatenate([samples(s, 10000)["features"] for s in (1, 2)]).astype(float)
    some = [i for i in range(41) if i not in (2, CONSTANT, NEARLY)]
    expect("means", (np.abs(net["mean"] - both.mean(0))[some] <= 1e-4 * both.std(0)[some]).all(), net["mean"])
    expect("1 / standard deviation", np.allclose(net["inv"][some] * both.std(0)[some], 1, rtol=1e-5), net["inv"])
    expect("0 of what does not vary", (net["inv"][[2, CONSTANT, NEARLY]] == 0).all(), net["inv"])
    rows = table(said)
    expect("a row of the file, and one to compare with", list(rows) == ["c", "the training samples' mean"], list(rows))
    got, mean, own = rows["c"], rows["the training samples' mean"], figures(net, held)
    expect("the figures are those of the net", len(got) == 12 and
           all(abs(g - o) <= (0.15 if i in (4, 7, 8, 9, 10) else 0.051 if i == 1 else 0.0006)
               for i, (g, o) in enumerate(zip(got, own))), f"{got} {own}")
    # At 128, rounding to blocks alone makes a mean error of 128 / HOST / 4.
    expect("budgets are learnt", got[2] < mean[2] / 4 and got[5] < mean[5] / 3, rows)
    expect("streaming is learnt", got[8] > 96 and got[9] > 90 and got[10] > 96, rows)
    expect("who reads no feature tells no head that streams", mean[9] == 0 and mean[10] == 100, mean)

    again = run(*args[:-1], f"{folder}/again")
    with open(f"{folder}/net", "rb") as one, open(f"{folder}/again", "rb") as two:
        expect("the same bytes again", one.read() == two.read() and again[1].split("\n")[1:] == said.split("\n")[1:])
    run(*args[:-1], f"{folder}/other", "--seed", 2)
    expect("another seed, another net", (read(f"{folder}/other")[1]["w0"] != net["w0"]).any())
    status, judged, noise = run("--judge", f"{folder}/net", "--held", f"{folder}/c")
    expect("--judge says the same of it", status == 0 and table(judged) == {"c": got}, judged + noise)

    write(f"{folder}/d", samples(4, 300), **{"text.0": "four", "hash.0": "04"})
    rows = table(run("--judge", f"{folder}/net", "--held", f"{folder}/c", f"{folder}/d")[1])
    expect("two files, and both together", list(rows) == ["c", "d", "all"] and rows["all"][0] == 700, rows)

    # Samples without blocks on the host are left out, of what is trained on and of what is held out.
    short = samples(5, 100)
    short["features"][:40, 2] = 0
    write(f"{folder}/short", short, **{"text.0": "five", "hash.0": "05"})
    rows = table(run("--judge", f"{folder}/net", "--held", f"{folder}/short")[1])
    expect("H = 0 is left out", rows["short"][0] == 60, rows)
    status, said, _ = run(f"{folder}/short", "--held", f"{folder}/c", "--epochs", 1, "-o", f"{folder}/few")
    expect("in training, too", status == 0 and "trained on 60 samples of 1 texts" in said, said)


def check_refusals(folder):
    fit, none = samples(6, 50), {"text.0": "new", "hash.0": "0a"}
    write(f"{folder}/new", fit, **none)
    net = f"{folder}/net"

    def refused(what, says, *args, status=1):
        got, out, err = run(*args)
        one_line = status == 2 or err.count("\n") == 1
        expect(f"{what} is refused in one line", got == status and says in err and one_line, f"{got}: {out}{err}")

    def refused_held(what, says, tensors=fit, **meta):
        write(f"{folder}/bad", tensors, **(none | meta))
        refused(what, says, "--judge", net, "--held", f"{folder}/bad")
        refused(what + " to train on", says, f"{folder}/new", f"{folder}/bad", "--held", f"{folder}/c", "-o",
                f"{folder}/no")

    for key in ("params", "model", "layers", "q_heads", "kv_heads", "head_dim", "model_dim", "habench"):
        refused_held(f"another {key}", f"is of {key} 'x'", **{key: "x"})
    refused_held("another variant", "is not a habench-fit of version 1 for fluxion", variant="scout")
    refused_held("a trace", "is not a habench-fit", format="habench-trace")
    refused_held("version 2", "is not a habench-fit of version 1", version="2")
    refused_held("a fit without a case", "metadata key case is missing", case=None)
    refused_held("a fit without a text", "metadata key text.0 is missing", **{"text.0": None})
    refused_held("a net", "has no tensor features", read_f4(net))
    narrow = fit | {"features": np.ascontiguousarray(fit["features"][:, :40])}
    refused_held("40 features", "float32 [50][40], and float32 [N][41] is wanted", narrow)
    refused_held("binary16", "float16 [50][8]", fit | {"labels": fit["labels"].astype("f2")})
    refused_held("fewer labels", "50 rows of features and 49 of labels", fit | {"labels": fit["labels"][:49]})
    for what, column, value, says in (("NaN", 0, math.nan, "not finite"), ("a budget of 2", 5, 2, "from 0 to 1"),
                                      ("a budget below 0", 0, -0.1, "from 0 to 1"),
                                      ("half streaming", 2, 0.5, "from 0 to 1")):
        labels = fit["labels"].copy()
        labels[7, column] = value
        refused_held(what, says, fit | {"labels": labels})
    features = fit["features"].copy()
    features[:, 2] = 0
    refused_held("no host tokens", "no sample has blocks on the host", fit | {"features": features})

    for what, meta in (("a text", {"text.0": "two", "hash.0": "0b"}), ("a hash", {"text.0": "six", "hash.0": "02"}),
                       ("a second text", {"text.1": "one", "hash.1": "0c"})):
        write(f"{folder}/own", fit, **(none | meta))
        refused(f"{what} that was trained on", "was trained on", "--judge", net, "--held", f"{folder}/c",
                f"{folder}/own")
        refused(f"{what} in training and held out", "was trained on", f"{folder}/a", f"{folder}/b", "--held",
                f"{folder}/own", "-o", f"{folder}/no")
    # A generator has no hash.
    write(f"{folder}/g1", fit, **{"text.0": "walk seed 1"})
    write(f"{folder}/g2", fit, **{"text.0": "walk seed 2"})
    status, said, _ = run(f"{folder}/g1", "--held", f"{folder}/g2", "--epochs", 1, "-o", f"{folder}/walk")
    expect("texts of no hash are apart", status == 0 and len(table(said)) == 2, said)
    expect("and the net has none", read(f"{folder}/walk")[0] == META | {"text.0": "walk seed 1"})
    refused("no such file", "no/such", "--judge", net, "--held", f"{folder}/no/such")
    with open(f"{folder}/text", "w", encoding="utf-8") as f:
        f.write("no tensors")
    refused("a text file", f"{folder}/text", "--judge", net, "--held", f"{folder}/text")
    refused("samples as a net", "has no tensor mean", "--judge", f"{folder}/c", "--held", f"{folder}/new")
    for place in ("no/such", "."):
        refused("a place that is none", "no such folder", f"{folder}/a", "--held", f"{folder}/c", "-o",
                f"{folder}/{place}")
    refused("nothing to train on", "needs FIT", "--held", f"{folder}/c", status=2)
    refused("no epoch", "must be above 0", f"{folder}/a", "--held", f"{folder}/c", "-o", "x", "--epochs", 0, status=2)
    refused("--judge with -o", "nothing to write", "--judge", net, "--held", f"{folder}/c", "-o", "x", status=2)
    expect("what was refused wrote nothing", not os.path.exists(f"{folder}/no"))


def read_f4(path):
    return {name: a.astype("f4") for name, a in read(path)[1].items()}


def main():
    with tempfile.TemporaryDirectory() as folder:
        for check in (check_training, check_refusals):
            if not count[False]:  # the second builds on the nets of the first
                check(folder)
    print(f"{count[True]} passed, {count[False]} failed")
    sys.exit(count[False] > 0)


if __name__ == "__main__":
    main()
