#!/usr/bin/env python3
"""Writes a merge that was made in PyTorch to a file that habench judges:

    from merge_replay import save                # with scripts/ on the path
    save("merge.safetensors", o, lse, merged_o, merged_lse, form="base2", order="chain", backend="mine")
    $ habench check lse_merge --replay merge.safetensors

o [states][tokens][heads][dim] and lse [states][tokens][heads] are what was merged (or lists of a tensor for each state),
merged_o [tokens][heads][dim] and merged_lse [tokens][heads] what came out of it. On any device, in any strides; o in
float32, float16 or bfloat16, and merged_o in the same type, or in float8_e4m3fn or float8_e5m2 with fp8_scale, by which it was
divided.

    scripts/merge_replay.py FILE [--states 3] [--dim 128] [--dtype float16] [--seed 1]

writes an example: states of random attention, merged with torch.logsumexp.
"""
import argparse

import torch
from safetensors.torch import save_file

FORMS = ("natural", "base2", "direct", "max_sum")
ORDERS = ("flat", "chain", "tree")
LAYOUTS = ("tokens_heads", "heads_tokens")
EMPTIES = ("-inf", "+inf")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
FP8 = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}


def _one(x, what, dims):
    x = torch.stack(list(x)) if isinstance(x, (list, tuple)) else x
    if x.dim() != dims:
        raise ValueError(f"{what} has the shape {tuple(x.shape)}; it must have {dims} dimensions")
    return x.detach().cpu().contiguous()


def save(path, o, lse, merged_o, merged_lse, *, sum=None, merged_sum=None, form="natural", order="flat",
         lse_layout="tokens_heads", empty="-inf", exp_eps=None, log_eps=None, fp8_scale=None, **more):
    """form: what lse is: ln, log2, or (max_sum) the maximum, with sum. order: how the states were merged. lse_layout: heads_tokens
    where lse, sum and their merged ones are [..][heads][tokens]. empty: the lse of a state without keys. exp_eps, log_eps: relative
    errors of exp and log, 2^-23 if not given. more: anything, kept as text."""
    chosen = (("form", form, FORMS), ("order", order, ORDERS), ("lse_layout", lse_layout, LAYOUTS), ("empty", empty, EMPTIES))
    for what, value, words in chosen:
        if value not in words:
            raise ValueError(f"{what} is {value!r}; it must be one of {', '.join(words)}")
    if (form == "max_sum") != (sum is not None and merged_sum is not None):
        raise ValueError("sum and merged_sum belong to form='max_sum', both of them")
    tensors = {"o": _one(o, "o", 4), "lse": _one(lse, "lse", 3)}
    tensors |= {"merged_o": _one(merged_o, "merged_o", 3), "merged_lse": _one(merged_lse, "merged_lse", 2)}
    if form == "max_sum":
        tensors |= {"sum": _one(sum, "sum", 3), "merged_sum": _one(merged_sum, "merged_sum", 2)}

    states, tokens, heads, dim = tensors["o"].shape
    rows = (heads, tokens) if lse_layout == "heads_tokens" else (tokens, heads)
    wanted = {"lse": (states, *rows), "sum": (states, *rows), "merged_o": (tokens, heads, dim), "merged_lse": rows, "merged_sum": rows}
    for name, x in tensors.items():
        if name != "o" and tuple(x.shape) != wanted[name]:
            raise ValueError(f"{name} has the shape {tuple(x.shape)}; beside o {tuple(tensors['o'].shape)} it must have {wanted[name]}")
        if name in ("o", "merged_o"):
            eight = name == "merged_o" and fp8_scale is not None
            if eight and x.dtype not in FP8:
                raise ValueError(f"{name} is {x.dtype}; with fp8_scale it is float8_e4m3fn or float8_e5m2")
            if not eight and (x.dtype not in DTYPES or x.dtype != tensors["o"].dtype):
                raise ValueError(f"{name} is {x.dtype}; o and merged_o are of one type, float32, float16 or bfloat16")
        elif x.dtype != torch.float32:
            raise ValueError(f"{name} is {x.dtype}; it must be float32")
    meta = {"form": form, "order": order, "lse_layout": lse_layout, "empty": empty, **{k: str(v) for k, v in more.items()}}
    meta |= {k: repr(float(v)) for k, v in (("exp_eps", exp_eps), ("log_eps", log_eps), ("fp8_scale", fp8_scale)) if v is not None}
    if fp8_scale is not None:
        meta["fp8"] = FP8[tensors["merged_o"].dtype]
    save_file(tensors, path, metadata=meta)


def example(states, dim, dtype, seed):
    torch.manual_seed(seed)
    tokens, heads, keys = 4, 8, 64
    q, k, v = torch.randn(tokens, heads, dim), torch.randn(states, heads, keys, dim), torch.randn(states, heads, keys, dim)
    score = torch.einsum("thd,mhkd->mthk", q, k) / dim**0.5
    lse = torch.logsumexp(score, dim=-1)
    o = torch.einsum("mthk,mhkd->mthd", torch.softmax(score, dim=-1), v).to(dtype)
    merged_lse = torch.logsumexp(lse, dim=0)
    merged_o = (torch.softmax(lse, dim=0)[..., None] * o.float()).sum(dim=0).to(dtype)
    return o, lse, merged_o, merged_lse


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Writes an example of a merge made in PyTorch.")
    parser.add_argument("file")
    parser.add_argument("--states", type=int, default=3)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--dtype", choices=[str(t).removeprefix("torch.") for t in DTYPES], default="float16")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    save(args.file, *example(args.states, args.dim, getattr(torch, args.dtype), args.seed), torch=torch.__version__)
