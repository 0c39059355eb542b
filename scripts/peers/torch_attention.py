#!/usr/bin/env python3
"""PyTorch's scaled_dot_product_attention beside habench's decode attention: the same keys, values and queries, in one run.

    scripts/peers/torch_attention.py build/release/habench --device cuda [CASE...]     the shapes of suites/decode.suite
    scripts/peers/torch_attention.py build/release/habench --device host CASE...       PyTorch on the CPU, as many threads

Needs PyTorch and safetensors (scripts/requirements-train.txt). For each case, of variant resident or bmm, habench runs and
checks it and dumps the inputs of the first step; PyTorch attends to these tensors, in the type of K and V (habench's
queries are exact in it), once per layer in turn, so that no layer is read out of a cache that holds it. habench runs once
before and once after PyTorch; both times are shown. Columns, all per layer and in microseconds:

    habench step     the variant's whole step: new tokens appended, attention, synchronisation; untraced
    habench kernel   time in which a kernel of it ran (from the traced pass)
    torch eager      a call of scaled_dot_product_attention, one after another; of two ways to write it the faster:
                     enable_gqa, or the query heads of a KV head as if they were query tokens (decode only)
    torch graph      the same in a CUDA graph, without launch costs (GPU only)
    ratio            torch graph (eager on the CPU) / habench kernel (step on the CPU): above 1 habench is faster

and how far PyTorch's output is from habench's, relative L2. Exit status 1: they disagree by more than 2%, or habench
failed its own check."""
import argparse
import csv
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from safetensors import safe_open

CASES = [
    f"resident:dataset=iid,ctx={ctx},batch={batch},heads=32/8,head_dim=128,layers=2,dtype={dtype}"
    for dtype in ("f16", "bf16") for ctx in (32768, 131072) for batch in (1, 4, 16)
]


def run_habench(program, case, device, out, dump):
    command = [program, "run", case, "--device", device, "-o", out, "-q"] + (["--dump", dump] if dump else [])
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}")
    with open(os.path.join(out, "cases.csv"), newline="") as file:
        return list(csv.DictReader(file))[-1]


def per_layer(row):
    step = float(row["step_ns"]) / float(row["layers"]) / 1e3
    idle = row["gpu_kernel_idle"]
    return step, step * (1 - float(idle)) if idle else float("nan")


def load(dump):
    """[layers] -> q [B, Hq, T, D], k, v [B, Hkv, N, D], out as q; sequences of one length."""
    (name,) = os.listdir(dump)
    with safe_open(os.path.join(dump, name), "pt") as file:
        names = set(file.keys())
        scale = float(file.metadata()["scale"])
        layers = []
        while f"layer{len(layers)}.seq0.q" in names:
            part, layer = {}, len(layers)
            count = sum(f"layer{layer}.seq{b}.q" in names for b in range(64))
            for what in ("q", "k", "v", "out"):  # of the first step: q and out are [steps, ...], k and v of all
                part[what] = torch.stack([file.get_tensor(f"layer{layer}.seq{b}.{what}") for b in range(count)])
            later = (part["q"].shape[1] - 1) * part["q"].shape[2]
            part["k"], part["v"] = (part[x][:, :, :part[x].shape[2] - later] for x in "kv")
            part["q"], part["out"] = part["q"][:, 0], part["out"][:, 0]
            for what in ("q", "out"):  # [B, T, H, D]
                part[what] = part[what].transpose(1, 2)
            layers.append(part)
    return layers, scale


def attend_gqa(part, scale):
    tokens = part["q"].shape[2]
    mask = None
    if tokens > 1:
        keys = part["k"].shape[2]
        mask = torch.ones(tokens, keys, dtype=torch.bool, device=part["k"].device).tril(keys - tokens)
    return F.scaled_dot_product_attention(part["q"], part["k"], part["v"], attn_mask=mask, scale=scale, enable_gqa=True)


def attend_folded(part, scale):
    """Decode alone, where no query token hides a key of another."""
    b, heads, _, dim = part["q"].shape
    q = part["q"].reshape(b, part["k"].shape[1], -1, dim)
    return F.scaled_dot_product_attention(q, part["k"], part["v"], scale=scale).reshape(b, heads, 1, dim)


def time_cuda(work, calls):
    """Median microseconds of one of `calls` calls in work."""
    for _ in range(3):
        work()
    samples = []
    for _ in range(30):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        samples.append(begin.elapsed_time(end) * 1e3 / calls)
    return statistics.median(samples)


def time_cpu(work, calls):
    work()
    samples, until = [], time.monotonic() + 5
    while len(samples) < 5 or (time.monotonic() < until and len(samples) < 30):
        begin = time.perf_counter()
        work()
        samples.append((time.perf_counter() - begin) * 1e6 / calls)
    return statistics.median(samples)


def graph_of(work):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        work()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=8, help="passes over the layers in one sample of PyTorch's")
    args = parser.parse_intermixed_args()
    on_gpu = args.device == "cuda"
    where = torch.device("cuda" if on_gpu else "cpu")
    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name() if on_gpu else f'CPU, {torch.get_num_threads()} threads'}; "
          f"habench --device {args.device}")
    print(f"{'habench step':>22} {'kernel':>15} {'torch eager':>12} {'graph':>8} {'ratio':>6} {'rel L2':>9}  case")
    bad = False
    for case in args.cases:
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(dump := os.path.join(folder, "dump"))
            rows = [run_habench(args.program, case, args.device, os.path.join(folder, "first"), dump)]
            layers, scale = load(dump)
            dtype = layers[0]["k"].dtype
            for part in layers:
                for what in part:
                    part[what] = part[what].to(where, torch.float32 if what == "out" else dtype)
            ways = [attend_gqa] + ([attend_folded] if layers[0]["q"].shape[2] == 1 else [])
            off, eager, graph = 0.0, math.inf, math.inf
            calls = args.rounds * len(layers)
            for attend in ways:
                off = max([off] + [float((attend(p, scale).float() - p["out"]).norm() / p["out"].norm()) for p in layers])

                def work():
                    for _ in range(args.rounds):
                        for part in layers:
                            attend(part, scale)

                with torch.inference_mode():
                    eager = min(eager, (time_cuda if on_gpu else time_cpu)(work, calls))
                    if on_gpu:
                        graph = min(graph, time_cuda(graph_of(work), calls))
            del layers
            if on_gpu:
                torch.cuda.empty_cache()
            rows.append(run_habench(args.program, case, args.device, os.path.join(folder, "second"), None))
            steps, kernels = zip(*map(per_layer, rows))
            ratio = graph / min(kernels) if on_gpu else eager / min(steps)
            in_graph = f"{graph:.1f}" if on_gpu else "-"
            print(f"{steps[0]:11.1f} {steps[1]:10.1f} {kernels[0]:7.1f} {kernels[1]:7.1f} {eager:12.1f} {in_graph:>8} {ratio:6.2f} {off:9.1e}  {case}",
                  flush=True)
            bad = bad or not off < 0.02
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
