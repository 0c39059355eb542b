#!/usr/bin/env python3
"""PyTorch's and FlashInfer's attention beside habench's decode attention: the same keys, values and queries, in one run.

    scripts/peers/torch_attention.py build/release/habench --device cuda [CASE...]     the 16-bit cases of `decode`, small ones first
    scripts/peers/torch_attention.py build/release/habench --device cuda --compile     FlashInfer compiles its kernels for these, once, for minutes
    scripts/peers/torch_attention.py build/release/habench --device host CASE...       PyTorch on the CPU, as many threads

Needs PyTorch and safetensors (scripts/requirements-train.txt); FlashInfer is timed too where it can be imported. For each case, of variant resident or bmm, habench runs and
checks it and dumps the inputs of the first step; PyTorch attends to these tensors, in the type of K and V (habench's
queries are exact in it), once per layer in turn, so that no layer is read out of a cache that holds it. habench runs once
before and once after PyTorch; both times are shown. Columns, all per layer and in microseconds:

    habench step     the variant's whole step: new tokens appended, attention, synchronisation; untraced
    habench kernel   time in which a kernel of it ran (from the traced pass)
    torch eager      a call of scaled_dot_product_attention, one after another; of two ways to write it the faster:
                     enable_gqa, or the query heads of a KV head as if they were query tokens (decode only)
    torch graph      the same in a CUDA graph, without launch costs (GPU only)
    flashinfer       its decode over a paged KV cache, pages of 16 tokens, in a CUDA graph where it lets itself be captured (GPU only)
    ratio            torch graph (eager on the CPU) / habench kernel (step on the CPU): above 1 habench is faster

and how far the others' outputs are from habench's at most, relative L2. Exit status, as habench's: 10 they disagree by more
than 2%, or habench failed its own check; 20 a case could not be run, and the others were; 77 PyTorch or safetensors is missing, or
with --compile FlashInfer."""
import argparse
import csv
import gc
import importlib.util
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import torch
    import torch.nn.functional as F
    from safetensors import safe_open
except ImportError as error:
    print(f"{error}: scripts/requirements-train.txt says what is needed")
    sys.exit(77)

WRONG, MISSING = 10, 20
PAGE = 16  # tokens of a page of FlashInfer's cache


class Failed(Exception):
    """habench did not run a case: its exit status."""


def decode_cases(program):
    """The 16-bit cases of the suite, those with fewer keys in all first: they say the most in the least time. In a graph a kernel takes as long."""
    listed = subprocess.run([program, "run", "decode", "--dry-run", "-f", "dtype!=f32,graph=0"], stdout=subprocess.PIPE, text=True, check=True)

    def keys(case):
        given = dict(term.split("=", 1) for term in case.split(":", 1)[1].split(",") if "=" in term)
        return int(given.get("ctx", "0").split("+")[0]) * int(given.get("batch", "1"))

    return sorted(listed.stdout.split(), key=keys)


def run_habench(program, case, device, out, dump):
    command = [program, "run", case, "--device", device, "-o", out, "-q"] + (["--dump", dump] if dump else [])
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}", flush=True)
        raise Failed(done.returncode)
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


def flashinfer_way(layers, scale):
    """Gives each layer its K and V in pages; how to attend to them, or None where FlashInfer is not here or cannot."""
    b, heads, tokens, dim = layers[0]["q"].shape
    kv_heads, keys = layers[0]["k"].shape[1:3]
    if tokens > 1 or layers[0]["k"].dtype == torch.float32 or not importlib.util.find_spec("flashinfer"):
        return None
    import flashinfer

    pages, where = -(-keys // PAGE), layers[0]["k"].device
    for part in layers:
        padded = [F.pad(part[x], (0, 0, 0, pages * PAGE - keys)) for x in "kv"]
        part["pages"] = tuple(x.reshape(b, kv_heads, pages, PAGE, dim).transpose(1, 2).reshape(-1, kv_heads, PAGE, dim).contiguous() for x in padded)
    numbers = dict(dtype=torch.int32, device=where)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(torch.zeros(128 << 20, dtype=torch.uint8, device=where), "HND", use_tensor_cores=True)
    wrapper.plan(torch.arange(b + 1, **numbers) * pages, torch.arange(b * pages, **numbers), torch.full((b,), keys - (pages - 1) * PAGE, **numbers),
                 heads, kv_heads, dim, PAGE, q_data_type=layers[0]["q"].dtype, kv_data_type=layers[0]["k"].dtype, sm_scale=scale)
    return lambda part, scale: wrapper.run(part["q"].squeeze(2), part["pages"]).unsqueeze(2)


def passes(attend, layers, scale, rounds):
    def work():
        for _ in range(rounds):
            for part in layers:
                attend(part, scale)

    return work


def distance(attend, layers, scale):
    return max(float((attend(p, scale).float() - p["out"]).norm() / p["out"].norm()) for p in layers)


def time_graph(work, calls):
    """inf: it does not let itself be captured."""
    try:
        return time_cuda(graph_of(work), calls)
    except RuntimeError as error:
        print(f"no graph: {error}", flush=True)
        return math.inf


def time_flashinfer(layers, scale, rounds):
    """Microseconds and distance; nan: it is not here, or it failed."""
    try:
        attend = flashinfer_way(layers, scale)
        if not attend:
            return math.nan, 0.0
        work, calls = passes(attend, layers, scale, rounds), rounds * len(layers)
        return min(time_cuda(work, calls), time_graph(work, calls)), distance(attend, layers, scale)
    except Exception as error:  # whatever another library does is no reason to stop
        print(f"flashinfer: {error}", flush=True)
        return math.nan, 0.0


def compile_flashinfer():
    """Its kernels hang on the type and the head dimension of `decode`, and are kept for other processes; the exit status."""
    if not importlib.util.find_spec("flashinfer"):
        print("FlashInfer cannot be imported")
        return 77
    for dtype in (torch.float16, torch.bfloat16):
        kind = dict(dtype=dtype, device=torch.device("cuda"))
        part = {"q": torch.zeros(1, 32, 1, 128, **kind), "k": torch.zeros(1, 8, PAGE, 128, **kind), "v": torch.zeros(1, 8, PAGE, 128, **kind)}
        begin = time.monotonic()
        try:
            flashinfer_way([part], 1.0)(part, 1.0)
            torch.cuda.synchronize()
        except Exception as error:  # whatever another library does
            print(f"flashinfer, {dtype}: {error}", flush=True)
            return MISSING
        print(f"flashinfer, {dtype}: ready after {time.monotonic() - begin:.0f} s", flush=True)
    return 0


def time_peers(args, dump, on_gpu):
    """Microseconds of PyTorch, one call after another and in a graph, and of FlashInfer; how far the outputs are apart. Its tensors end with it."""
    where = torch.device("cuda" if on_gpu else "cpu")
    layers, scale = load(dump)
    dtype = layers[0]["k"].dtype
    for part in layers:
        for what in part:
            part[what] = part[what].to(where, torch.float32 if what == "out" else dtype)
    ways = [attend_gqa] + ([attend_folded] if layers[0]["q"].shape[2] == 1 else [])
    off, eager, graph, peer = 0.0, math.inf, math.inf, math.nan
    calls = args.rounds * len(layers)
    with torch.inference_mode():
        for attend in ways:
            off = max(off, distance(attend, layers, scale))
            work = passes(attend, layers, scale, args.rounds)
            eager = min(eager, (time_cuda if on_gpu else time_cpu)(work, calls))
            if on_gpu:
                graph = min(graph, time_graph(work, calls))
        if on_gpu:
            peer, peer_off = time_flashinfer(layers, scale, args.rounds)
            off = max(off, peer_off)
    return eager, graph, peer, off


def give_back(on_gpu):
    """The memory of what is gone: habench wants up to half of the device's."""
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()


def run_case(args, case, on_gpu):
    """Prints its line; how far the outputs are apart."""
    give_back(on_gpu)  # of a case that has failed
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(dump := os.path.join(folder, "dump"))
        rows = [run_habench(args.program, case, args.device, os.path.join(folder, "first"), dump)]
        eager, graph, peer, off = time_peers(args, dump, on_gpu)
        give_back(on_gpu)
        rows.append(run_habench(args.program, case, args.device, os.path.join(folder, "second"), None))
    steps, kernels = zip(*map(per_layer, rows))
    ratio = graph / min(kernels) if on_gpu else eager / min(steps)
    in_graph, in_peer = f"{graph:.1f}" if on_gpu else "-", "-" if math.isnan(peer) else f"{peer:.1f}"
    print(f"{steps[0]:11.1f} {steps[1]:10.1f} {kernels[0]:7.1f} {kernels[1]:7.1f} {eager:12.1f} {in_graph:>8} {in_peer:>10} {ratio:6.2f} {off:9.1e}  {case}",
          flush=True)
    return off


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action="store_true", help="FlashInfer's kernels, and nothing is run")
    parser.add_argument("--rounds", type=int, default=8, help="passes over the layers in one sample of PyTorch's")
    args = parser.parse_intermixed_args()
    on_gpu = args.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        print("PyTorch sees no GPU")
        return 77
    if args.compile:
        return compile_flashinfer()
    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name() if on_gpu else f'CPU, {torch.get_num_threads()} threads'}; "
          f"habench --device {args.device}")
    print(f"{'habench step':>22} {'kernel':>15} {'torch eager':>12} {'graph':>8} {'flashinfer':>10} {'ratio':>6} {'rel L2':>9}  case")
    codes = set()
    for case in args.cases or decode_cases(args.program):
        try:
            codes.add(0 if run_case(args, case, on_gpu) < 0.02 else WRONG)
        except Failed as failed:
            codes.add(WRONG if failed.args[0] == WRONG else MISSING)
        except (RuntimeError, MemoryError, OSError) as error:  # no memory, no room for the dump
            print(f"{case}: {error}", flush=True)
            codes.add(MISSING)
    return next((code for code in (WRONG, MISSING) if code in codes), 0)


if __name__ == "__main__":
    sys.exit(main())
