#!/usr/bin/env python3
"""test_kmeans.py HABENCH: books that `habench fit` learns of the shipped traces, against those that scikit-learn's
MiniBatchKMeans makes of the same keys, with as many iterations and vectors in a batch, on one thread each.

Of each case the objective (sum of squared distances to the nearest centroids) over scikit-learn's, in binary64, of all
layers and KV heads together, and the processor time of both: of the whole process of habench, which also reads the
trace, and of scikit-learn's fits alone. Run by hand: it needs numpy and scikit-learn, and takes minutes. Exit status: 1
if an objective is more than 3% above scikit-learn's, or habench takes longer by mini-batches; 77 if they are missing."""

import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
try:
    import numpy as np
    from sklearn.cluster import MiniBatchKMeans
    from threadpoolctl import threadpool_limits
except ImportError as e:
    print(f"SKIP: {e.name or e} is missing, so k-means is not compared: pip install scikit-learn")
    sys.exit(77)

TRACES, CONTEXT, BATCH, LIMIT = ("english", "code"), 2040, 10000, 1.03
CASES = ("dims=4,c=256", "dims=4,c=1024", "dims=8,c=256", "dims=2,c=64", "dims=4,c=64,books=separate",
         "dims=8,c=256,books=separate", "dims=4,c=256,kmeans=lloyd")


def tensors(path):
    with open(path, "rb") as f:
        blob = f.read()
    (length,) = struct.unpack_from("<Q", blob)
    header = json.loads(blob[8:8 + length])
    header.pop("__metadata__")
    kind = {"F16": "<f2", "F32": "<f4"}
    return {name: np.frombuffer(blob[8 + length:][slice(*t["data_offsets"])], kind[t["dtype"]]).reshape(t["shape"])
            for name, t in header.items()}


def objective(x, centroids):
    """Of vectors [n][dims] by [c][dims], in pieces that memory holds."""
    c, total = centroids.astype(np.float64), 0.0
    squares = (c * c).sum(axis=1)
    for first in range(0, len(x), 4096):
        part = x[first:first + 4096].astype(np.float64)
        nearest = (squares - 2 * part @ c.T).argmin(axis=1)
        total += ((part - c[nearest]) ** 2).sum()
    return total


def books(keys, groups, separate):
    """The vectors of each book of a KV head."""
    parts = keys.reshape(len(keys), groups, -1)
    return [parts[:, g] for g in range(groups)] if separate else [parts.reshape(-1, parts.shape[2])]


def ours(habench, options, folder):
    file, traces = os.path.join(folder, "fit.safetensors"), "+".join(TRACES)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([habench, "fit", f"hcattention:dataset=trace/{traces},batch={len(TRACES)},ctx={CONTEXT},"
                                           f"observed=0,steps=1,threads=1,{options}", "-o", file],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"test_kmeans: {done.stderr.strip()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = tensors(file)["centroids"]
    os.remove(file)
    return found, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    habench = os.path.abspath(sys.argv[1])
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    traces = [tensors(f"datasets/traces/{name}.safetensors") for name in TRACES]
    bad = False
    print(f"{'case':34} {'objective':>9} {'habench s':>9} {'scikit-learn s':>14}")
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        for options in CASES:
            centroids, our_time = ours(habench, options, folder)
            layers, heads, count, dims, c = centroids.shape
            our_sum = their_sum = their_time = 0.0
            for layer, head in np.ndindex(layers, heads):
                keys = np.concatenate([t[f"layers.{layer}.k"][head][:CONTEXT] for t in traces]).astype(np.float32)
                for book, x in enumerate(books(keys, keys.shape[1] // dims, count > 1)):
                    x = np.ascontiguousarray(x)
                    begun = time.process_time()
                    theirs = MiniBatchKMeans(c, batch_size=BATCH, max_iter=200, n_init=1, random_state=layer + head,
                                             compute_labels=False).fit(x)
                    their_time += time.process_time() - begun
                    our_sum += objective(x, centroids[layer, head, book].T)
                    their_sum += objective(x, theirs.cluster_centers_)
            ratio = our_sum / their_sum
            lloyd = options.endswith("lloyd")  # which is another way to learn, and need not be fast
            bad |= not (ratio <= LIMIT and (lloyd or our_time < their_time))
            print(f"{options:34} {ratio:9.4f} {our_time:9.2f} {their_time:14.2f}", flush=True)
    print("FAILED" if bad else "ok")
    sys.exit(bad)


if __name__ == "__main__":
    main()
