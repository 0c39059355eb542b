#!/usr/bin/env python3
"""test_train_hash.py: the derivative that train_hash.py descends by, which keys it wants, the hash that a fit has of a
trace, Spearman's figure of train_gates.py, and what both write; on numbers made here and the traces that are shipped.

Run by hand: it needs numpy and takes seconds. Exit status: 1 if something is wrong, 77 if it is missing."""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
try:
    import numpy as np
except ImportError:
    print("SKIP: numpy is missing, so scripts/train_hash.py is not tested")
    sys.exit(77)
import train_gates
import train_hash

count = {True: 0, False: 0}


def expect(what, good, said=""):
    count[bool(good)] += 1
    if not good:
        print(f"FAILED: {what}\n    {str(said).strip()[:300]}")


class Args:
    sink, recent, share = 1, 2, 0.3


rng = np.random.default_rng(3)
a, q, k = rng.normal(size=(6, 5)), rng.normal(size=(4, 5)), rng.normal(size=(9, 5))
norm, token = rng.random(9) + 0.5, np.array([9, 8, 7, 11])
allowed = train_hash.choosable(token, 9, Args)
expect("sinks and recent keys are not chosen", np.where(allowed[2])[0].tolist() == [1, 2, 3, 4], allowed)
best = train_hash.wanted(q @ k.T, allowed, Args.share)
expect("so many are wanted", best.sum(axis=1).tolist() == [2, 2, 2, 3], best)
for scores, row, mark in zip(q @ k.T, allowed, best):
    expect("the largest are", mark[~row].sum() == 0 and scores[mark].min() > scores[row & ~mark].max(), scores)
about = np.full(4, 0.05), np.full(4, 0.3)
_, slope = train_hash.loss_and_slope(a, q, k, norm, allowed, best, 1.5, about)
for i in np.ndindex(a.shape):
    side = []
    for e in (1e-6, -1e-6):
        moved = a.copy()
        moved[i] += e
        side.append(train_hash.loss_and_slope(moved, q, k, norm, allowed, best, 1.5, about)[0])
    expect(f"the slope at {i}", abs((side[0] - side[1]) / 2e-6 - slope[i]) < 1e-8, (side, slope[i]))
expect("codes of many bits find nearly all", train_hash.recall(rng.normal(size=(20000, 5)), q, token, k, Args) > 0.7)

expect("Spearman of what rises", abs(train_gates.spearman([1, 2, 5], [0, 3, 4]) - 1) < 1e-12)
expect("of what falls", abs(train_gates.spearman([1, 2, 5], [4, 3, 0]) + 1) < 1e-12)
expect("of a tie", abs(train_gates.spearman([0, 0, 1], [0, 1, 2]) - 0.75 ** 0.5) < 1e-12)

traces = os.path.join(HERE, "..", "datasets", "traces")
fit = os.path.join(HERE, "..", "datasets", "fits", "clo_small.safetensors")
english, code = (os.path.join(traces, name + ".safetensors") for name in ("english", "code"))
script = os.path.join(HERE, "train_hash.py")
with tempfile.TemporaryDirectory() as folder:
    out = os.path.join(folder, "fit.safetensors")

    def run(*words):
        done = subprocess.run([sys.executable, script, *words, "-o", out], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    status, said = run(english, "--fit", fit, "--held", code, "--bits", "32", "--steps", "2")
    expect("it learns", status == 0 and "32 bits, recall of the top 10%" in said, said)
    meta, header, data = train_hash.read_fit(out)
    before, tensors, was = train_hash.read_fit(fit)
    number = len(train_hash.texts(before))
    expect("the fit says its texts", meta[f"text.{number}"].startswith("The Debian"), meta)
    expect("and no more", f"text.{number + 1}" not in meta, meta)
    expect("with the hash that `habench fit` has of it", meta[f"hash.{number}"] == "4ea146b4ec87a9fc", meta)
    expect("and keeps what it says", all(meta[key] == value for key, value in before.items()), meta)
    expect("the projections are there", header["hash"]["shape"] == [4, 2, 32, 64] and header["hash"]["dtype"] == "F32")
    for name, entry in tensors.items():
        expect(f"{name} stays", data[slice(*header[name]["data_offsets"])] == was[slice(*entry["data_offsets"])])
    status, said = run(english, "--fit", fit, "--held", english, "--bits", "32", "--steps", "1")
    expect("own texts are refused", status == 1 and "is a text of the fit" in said and said.count("\n") == 1, said)
    deep = os.path.join(traces, "deep.safetensors")
    status, said = run(deep, "--fit", fit, "--bits", "32", "--steps", "1")
    expect("another model is refused", status == 1 and "is of model" in said and said.count("\n") == 1, said)
    status, said = run(english, "--fit", english, "--bits", "32", "--steps", "1")
    expect("what is no fit is refused", status == 1 and "is not a habench-fit" in said, said)

print(f"{count[True]} passed, {count[False]} failed")
sys.exit(count[False] > 0)
