#!/usr/bin/env python3
"""PyTorch under the merge suite. Needs what scripts/requirements-train.txt names (torch, numpy, safetensors); a CPU is enough.

    habench check lse_merge --exec 'python3 scripts/merge_torch.py exec'              the merge as it is usually written
    habench check lse_merge --exec 'python3 scripts/merge_torch.py exec --careful'    with the ends of the range taken care of
    python3 scripts/merge_torch.py attention DIR [--habench PROGRAM]

The first two take about ten minutes, as every run of the command starts Python anew, and longer where failures are made smaller;
`lse_merge:dtype=f16` in place of lse_merge is a third of it. The last one lets PyTorch's flash attention for CPUs, which returns its
log-sum-exp, attend to the parts of a context, merges the parts and writes each merge to DIR, for `habench check lse_merge --replay`; with
--habench it asks for the verdicts. Beside them it prints how far the merged result, and PyTorch's attention over the whole context, are
from attention in binary64: another question, because a right merge of wrong states is wrong. Exit status 1: the merge is wrong by
habench, or attention by a limit that is far above rounding.
"""
import argparse
import math
import os
import subprocess
import sys

import torch
from safetensors import safe_open
from safetensors.torch import save_file

import merge_replay

INF = float("inf")
FORMS = ("natural", "base2", "direct", "max_sum")
# Found by trying every third float of [-87, 0] (exp), [-126, 0] (exp2) and every one of [1, 1024] (log, log2) on AVX-512, PyTorch 2.6.0: at
# most 7.2e-8 and 1.01e-7. merge_replay's and habench's default, 2^-23 = 1.19e-7, covers them.
EPS = 2.0**-23


def merge_naive(form, o, lse, total):
    """o [states][tokens][heads][dim] of any type, lse and total (max_sum) [states][...] -> merged o, lse and total."""
    if form == "natural":
        weight, merged = torch.softmax(lse, dim=0), torch.logsumexp(lse, dim=0)
    elif form == "base2":
        weight, merged = torch.softmax(lse * math.log(2), dim=0), torch.logsumexp(lse * math.log(2), dim=0) / math.log(2)
    elif form == "direct":
        merged = torch.logsumexp(lse, dim=0)
        weight = torch.exp(lse - merged)
    else:
        merged = lse.amax(dim=0)
        total = total * torch.exp(lse - merged)
        weight, total = total / total.sum(dim=0), total.sum(dim=0)
    return (weight[..., None] * o.float()).sum(dim=0).to(o.dtype), merged, total


def merge_careful(form, o, lse, total):
    """The same; a state without keys (-inf) divides nothing and is not read, and one that has all the keys is copied."""
    exp, log = (torch.exp2, torch.log2) if form == "base2" else (torch.exp, torch.log)
    empty = lse == -INF
    top = lse.amax(dim=0)
    shift = torch.where(top == -INF, 0, top)
    weight = exp(lse - shift)  # of an empty state exactly 0
    if form == "max_sum":
        weight = torch.where(empty, 0, weight * total)
    total = weight.sum(dim=0)
    merged = top if form == "max_sum" else shift + log(total)
    weight = exp(lse - merged) if form == "direct" else weight / torch.where(total == 0, 1, total)
    weighted = torch.where(empty[..., None], 0, weight[..., None] * o.float())
    merged_o = weighted.sum(dim=0).to(o.dtype)

    alone = ((~empty).sum(dim=0) == 1) & ~total.isnan()  # a sum would turn -0 to 0
    own = torch.where(alone, (~empty).int().argmax(dim=0), 0)[None]
    merged_o = torch.where(alone[..., None], o.gather(0, own[..., None].expand(1, *o.shape[1:]))[0], merged_o)
    return merged_o, torch.where(alone, lse.gather(0, own)[0], merged), total


def run_exec(args):
    if args.traits:
        print(f"name=torch{'.careful' if args.careful else ''}\nforms={','.join(FORMS)}\ndtypes=f32,f16,bf16\ncommutes=1")
        print(f"plus_inf={int(args.careful)}\nexp_eps={EPS}\nlog_eps={EPS}")
        return 0
    with safe_open(args.files[0], framework="pt") as given:
        meta = given.metadata()
        o, lse, total = (given.get_tensor(name) if name in given.keys() else None for name in ("o", "lse", "sum"))
    if args.careful and meta["empty"] == "+inf":
        lse = torch.where(lse == INF, -INF, lse)
    merged = (merge_careful if args.careful else merge_naive)(meta["form"], o, lse, total)
    names = ("merged_o", "merged_lse") + (("merged_sum",) if meta["form"] == "max_sum" else ())
    save_file({name: x.contiguous() for name, x in zip(names, merged)}, args.files[1])
    return 0


# ---- attention in parts -------------------------------------------------------------------

# dim, query heads, KV heads, queries, keys of each part, masked parts
SHAPES = (
    (64, 8, 8, 16, (1000, 3096), ()),
    (128, 8, 8, 16, (1000, 3096), ()),
    (128, 8, 8, 16, (1, 4095), ()),
    (80, 8, 8, 16, (1, 95, 1000, 3000), ()),
    (128, 8, 2, 16, (1000, 3096), ()),
    (128, 8, 2, 1, (2048, 2048), ()),
    (128, 8, 8, 16, (1000, 8), (0,)),  # a page that the mask hides wholly
)
LIMIT = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}  # relative L2 of o: some ten times what right ones have


def attend(q, k, v, masked=False):
    """q [heads][queries][dim], k and v [heads][keys][dim] -> o [queries][heads][dim] and, as PyTorch has it, lse [heads][queries]."""
    mask = torch.full((q.shape[1], k.shape[1]), -INF, dtype=q.dtype) if masked else None
    o, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q[None], k[None], v[None], attn_mask=mask)
    return o[0].transpose(0, 1), lse[0]


def exact(q, k, v):
    score = q.double() @ k.double().transpose(-1, -2) / math.sqrt(q.shape[-1])
    return (torch.softmax(score, dim=-1) @ v.double()).transpose(0, 1), torch.logsumexp(score, dim=-1)


def off(got, want):
    """relative L2 error of o, largest error of lse"""
    return ((got[0] - want[0]).norm() / want[0].norm()).item(), (got[1] - want[1]).abs().max().item()


def verdict(habench, path):
    done = subprocess.run([habench, "check", "lse_merge", "--replay", path], capture_output=True, text=True)
    line = next((x for x in done.stdout.splitlines() if x.startswith(("pass", "FAIL", "ERROR"))), done.stderr.strip())
    return done.returncode, line


def run_attention(args):
    os.makedirs(args.files[0], exist_ok=True)
    print(f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}; relative L2 of o, largest error of lse, against binary64")
    wrong = 0
    for dim, heads, kv_heads, queries, parts, masked in SHAPES:
        for dtype in LIMIT:
            torch.manual_seed(1)
            q, k, v = (torch.randn(n, t, dim).to(dtype) for n, t in ((heads, queries), (kv_heads, sum(parts)), (kv_heads, sum(parts))))
            k, v = (x.repeat_interleave(heads // kv_heads, dim=0) for x in (k, v))
            part = list(zip(k.split(parts, dim=1), v.split(parts, dim=1)))
            state = [attend(q, *part[i], i in masked) for i in range(len(parts))]
            used = [torch.cat(x, dim=1) for x in zip(*(p for i, p in enumerate(part) if i not in masked))]
            o, lse = torch.stack([s[0] for s in state]), torch.stack([s[1] for s in state])
            merged_o, merged_lse, _ = merge_naive("natural", o, lse.transpose(1, 2), None)  # merged as [tokens][heads], kept as PyTorch's
            merged_lse = merged_lse.transpose(0, 1)

            want = exact(q, *used)
            of_state = max(off(s, exact(q, *p))[1] for i, (s, p) in enumerate(zip(state, part)) if i not in masked)
            of_merged, of_whole = off((merged_o, merged_lse), want), off(attend(q, *used), want)
            name = f"{str(dtype).removeprefix('torch.')}_{heads}x{kv_heads}x{dim}_q{queries}_{'+'.join(map(str, parts))}{'_masked' if masked else ''}"
            path = os.path.join(args.files[0], name + ".safetensors")
            merge_replay.save(path, o, lse, merged_o, merged_lse, lse_layout="heads_tokens", exp_eps=EPS, log_eps=EPS, torch=torch.__version__,
                              attention="_scaled_dot_product_flash_attention_for_cpu", merge="softmax and logsumexp")
            code, said = verdict(args.habench, path) if args.habench else (0, "written")
            bad = not of_merged[0] <= LIMIT[dtype]
            wrong += bad or code != 0
            print(f"{name}\n    merged {of_merged[0]:.2e} {of_merged[1]:.2e}, whole {of_whole[0]:.2e} {of_whole[1]:.2e}, lse of a part {of_state:.2e}"
                  f"{', WRONG' if bad else ''}\n    merge: {said}", flush=True)
            for i in masked:
                said = f"{lse[i].min().item():g} to {lse[i].max().item():g}"
                lse[i] = -INF
                again = merge_naive("natural", o, lse.transpose(1, 2), None)
                print(f"    lse of the masked part: {said}; with -inf in its place: merged {off((again[0], again[1].T), want)[0]:.2e}")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    of_exec = commands.add_parser("exec", help="merge the states of the file IN into OUT")
    of_exec.add_argument("files", nargs="*", metavar="IN OUT")
    of_exec.add_argument("--careful", action="store_true")
    of_exec.add_argument("--traits", action="store_true", help="say what it can do, and merge nothing")
    of_exec.set_defaults(run=run_exec)
    of_attention = commands.add_parser("attention", help="attention in parts, merged, written to DIR")
    of_attention.add_argument("files", nargs=1, metavar="DIR")
    of_attention.add_argument("--habench", help="the program, for the verdicts")
    of_attention.set_defaults(run=run_attention)
    args = parser.parse_args()
    if args.run is run_exec and len(args.files) != (0 if args.traits else 2):
        of_exec.error("IN and OUT, or --traits")
    torch.set_num_threads(1)
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
