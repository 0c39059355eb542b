#!/usr/bin/env python3
"""Attention of other libraries on the CPU beside habench's packed kernels: one query token, the same shapes and threads, in turns.

    scripts/peers/cpu_attention.py build/release/habench [--threads N] [--ctx N ...] [--rounds N]

Needs PyTorch; ONNX Runtime (with onnx), OpenVINO and JAX are timed too where they are installed. In each round habench runs and
checks its point (`habench run cpu_kernels:kernel=attend,...`), then each peer is timed; each round gives a ratio of times, and the
median of the rounds is shown with their range. Keys and values of all are random, of the same sizes, and lie there so many times
over that no cache holds them. Peers, each with its best way to write the same attention:

    torch gqa       scaled_dot_product_attention with enable_gqa
    torch folded    the same, the query heads of a KV head as if they were its query tokens: K and V are not expanded
    torch expanded  the same with K and V repeated for each query head beforehand (where enable_gqa is not known): it reads more
    onnxruntime     its GroupQueryAttention, a token after so many that lie in its KV cache, in place; binary32 and binary16
    openvino        its ScaledDotProductAttention, folded; binary32 and binary16
    jax             jax.nn.dot_product_attention, compiled; binary32 and bfloat16, on all cores only

A ratio above 1: habench is faster. Exit status 1: habench failed its own check, or a peer's result is not attention."""
import argparse
import csv
import importlib.metadata
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F

HEADS, KV_HEADS, DIM = 32, 8, 128
PEERS = ["torch", "onnxruntime", "openvino", "jax"]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
ROTATE_BYTES = 256 << 20


def run_habench(program, dtype, ctx, threads):
    """Microseconds of one run, and its share of the read ceiling."""
    point = f"cpu_kernels:kernel=attend,layout=packed,dtype={dtype},ctx={ctx},heads={HEADS}/{KV_HEADS},head_dim={DIM},threads={threads}"
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        done = subprocess.run([program, "run", point, "-o", out, "-q"], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{point}: exit status {done.returncode}\n{done.stdout}")
        with open(os.path.join(out, "cpu_kernels.csv"), newline="") as file:
            row = list(csv.DictReader(file))[-1]
    return float(row["ns"]) / 1e3, float(row["ratio"])


def time_calls(calls):
    """Median microseconds of one call; the calls in turn, each with keys of its own."""
    for call in calls[:2]:
        call()
    samples, until = [], time.monotonic() + 1.5
    while len(samples) < 5 or (time.monotonic() < until and len(samples) < 200):
        call = calls[len(samples) % len(calls)]
        begin = time.perf_counter()
        call()
        samples.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(samples)


def make(dtype, ctx):
    """[sets] of q [1, Hq, 1, D], k and v [1, Hkv, N, D]"""
    q = torch.randn(1, HEADS, 1, DIM).to(dtype)
    bytes_each = 2 * KV_HEADS * ctx * DIM * q.element_size()
    count = max(1, -(-ROTATE_BYTES // bytes_each))
    return [(q, torch.randn(1, KV_HEADS, ctx, DIM, dtype=dtype), torch.randn(1, KV_HEADS, ctx, DIM, dtype=dtype)) for _ in range(count)]


def fold(q):
    return q.reshape(1, KV_HEADS, HEADS // KV_HEADS, DIM)


def torch_ways(sets):
    ways = {"torch folded": [lambda s=s: F.scaled_dot_product_attention(fold(s[0]), s[1], s[2]).reshape(1, HEADS, 1, DIM) for s in sets]}
    try:
        F.scaled_dot_product_attention(*sets[0], enable_gqa=True)
        ways["torch gqa"] = [lambda s=s: F.scaled_dot_product_attention(*s, enable_gqa=True) for s in sets]
    except TypeError:
        wide = [(q, k.repeat_interleave(HEADS // KV_HEADS, 1), v.repeat_interleave(HEADS // KV_HEADS, 1)) for q, k, v in sets]
        ways["torch expanded"] = [lambda s=s: F.scaled_dot_product_attention(*s) for s in wide]
    return ways


def openvino_ways(sets, name, threads):
    if name == "bf16" or not importlib.util.find_spec("openvino"):
        return {}
    import openvino as ov
    from openvino import opset13

    ctx = sets[0][1].shape[2]
    kind = {"f32": ov.Type.f32, "f16": ov.Type.f16}[name]
    shapes = ([1, KV_HEADS, HEADS // KV_HEADS, DIM], [1, KV_HEADS, ctx, DIM], [1, KV_HEADS, ctx, DIM])
    inputs = [opset13.parameter(shape, kind) for shape in shapes]
    node = opset13.scaled_dot_product_attention(*inputs, causal=False)
    config = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    request = ov.Core().compile_model(ov.Model([node], inputs), "CPU", config).create_infer_request()

    def call_of(s):
        tensors = [ov.Tensor(x.contiguous().numpy(), shared_memory=True) for x in (fold(s[0]), s[1], s[2])]

        def call():
            for i, tensor in enumerate(tensors):
                request.set_input_tensor(i, tensor)
            request.infer()
            return torch.from_numpy(request.get_output_tensor(0).data).reshape(1, HEADS, 1, DIM)

        return call

    return {"openvino": [call_of(s) for s in sets]}


def onnxruntime_ways(sets, name, threads):
    if name == "bf16" or not importlib.util.find_spec("onnxruntime") or not importlib.util.find_spec("onnx"):
        return {}
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper

    ctx = sets[0][1].shape[2]
    kind = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16}[name]
    cache, token = [1, KV_HEADS, ctx, DIM], [1, 1, KV_HEADS * DIM]
    value = helper.make_tensor_value_info
    inputs = [value("q", kind, [1, 1, HEADS * DIM]), value("k", kind, token), value("v", kind, token), value("past_k", kind, cache),
              value("past_v", kind, cache), value("past", TensorProto.INT32, [1]), value("total", TensorProto.INT32, [])]
    outputs = [value("o", kind, [1, 1, HEADS * DIM]), value("all_k", kind, cache), value("all_v", kind, cache)]
    node = helper.make_node("GroupQueryAttention", [x.name for x in inputs], [x.name for x in outputs], domain="com.microsoft",
                            num_heads=HEADS, kv_num_heads=KV_HEADS)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "attention", inputs, outputs), opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def call_of(s):
        q, k, v = (x.contiguous().numpy() for x in s)
        last = [np.ascontiguousarray(x[:, :, -1].reshape(token)) for x in (k, v)]
        of = onnxruntime.OrtValue.ortvalue_from_numpy
        arrays = [q.reshape(1, 1, HEADS * DIM), *last, k, v, np.array([ctx - 1], np.int32), np.array(ctx, np.int32)]
        values = [of(x) for x in arrays]
        out = of(np.zeros_like(arrays[0]))
        binding = session.io_binding()
        for x, to in zip(inputs, values):
            binding.bind_ortvalue_input(x.name, to)
        for x, to in zip(outputs, [out, values[3], values[4]]):
            binding.bind_ortvalue_output(x.name, to)

        def call():
            session.run_with_iobinding(binding)
            return torch.from_numpy(out.numpy()).reshape(1, HEADS, 1, DIM)

        return call

    return {"onnxruntime": [call_of(s) for s in sets]}


def jax_ways(sets, name, threads):
    if name == "f16" or threads < len(os.sched_getaffinity(0)) or not importlib.util.find_spec("jax"):
        return {}
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax

    attend = jax.jit(jax.nn.dot_product_attention)
    rows = [[jax.dlpack.from_dlpack(x.transpose(1, 2).contiguous()) for x in s] for s in sets]   # [1, N, heads, D]

    def call_of(s):
        def call():
            return torch.from_dlpack(attend(*s).block_until_ready()).transpose(1, 2)

        return call

    return {"jax": [call_of(s) for s in rows]}


def exact(q, k, v):
    k, v = (x.double().repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    return torch.softmax(q.double() @ k.transpose(-1, -2) / DIM ** 0.5, -1) @ v


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--ctx", type=int, nargs="+", default=[4096, 32768])
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=list(DTYPES))
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    bad = False
    versions = [f"{name} {importlib.metadata.version(name)}" for name in PEERS if importlib.util.find_spec(name)]
    print(f"{', '.join(versions)}; {args.threads} threads; {HEADS}/{KV_HEADS} heads of {DIM}, one query token")
    print(f"{'dtype':6} {'ctx':>6} {'peer':15} {'peer us':>9} {'habench us':>11} {'of ceiling':>10} {'ratio':>6} {'range':>11} {'rel error':>9}")
    for name in args.dtypes:
        for ctx in args.ctx:
            sets = make(DTYPES[name], ctx)
            want = exact(*sets[0])
            with torch.inference_mode():
                ways = {**torch_ways(sets), **onnxruntime_ways(sets, name, args.threads), **openvino_ways(sets, name, args.threads),
                        **jax_ways(sets, name, args.threads)}
                off = {way: float((calls[0]().double() - want).norm() / want.norm()) for way, calls in ways.items()}
                ours, theirs = [], {way: [] for way in ways}
                for _ in range(args.rounds):
                    ours.append(run_habench(args.program, name, ctx, args.threads))
                    for way, calls in ways.items():
                        theirs[way].append(time_calls(calls))
            for way, us in theirs.items():
                ratios = [x / y for x, (y, _) in zip(us, ours)]
                print(f"{name:6} {ctx:6} {way:15} {statistics.median(us):9.1f} {statistics.median(x for x, _ in ours):11.1f} "
                      f"{statistics.median(x for _, x in ours):10.3f} {statistics.median(ratios):6.2f} "
                      f"{min(ratios):5.2f}-{max(ratios):<5.2f} {off[way]:9.1e}",
                      flush=True)
                bad = bad or not off[way] < 0.02
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
