#!/usr/bin/env python3
"""A merge that habench runs as a command:  habench check lse_merge --exec 'python3 docs/merge_exec.py'

It is called with IN OUT, two safetensors files (docs/merging.md). IN has o [states][tokens][heads][dim] and lse
[states][tokens][heads], the natural logarithm of each state's sum of exp(score), -inf where it has no keys; OUT gets
merged_o, of the type of o, and merged_lse, of float32. An exit status other than 0 is an ERROR, not a wrong merge; the
last line of stderr is the reason. Before that it is called once with --traits and may print, one a line, what it can
do; without an answer it is asked for natural logarithms in all three types, with errors of exp and log of 2^-23:

    forms=natural,base2,direct,max_sum   which the metadata "form" of IN then names (max_sum: tensors sum, merged_sum)
    dtypes=f32,f16,bf16      fp8=e4m3,e5m2 (metadata fp8, fp8_scale; merged_o F8_E4M3 or F8_E5M2)
    commutes=1      plus_inf=1 (empty may be +inf, metadata "empty")      states_max=2
    lse_order=heads_tokens   exp_eps=1e-6    log_eps=1e-6    depth_extra=0    rescales=0    name=mine

This one needs numpy and safetensors: pip install numpy safetensors.
"""
import sys

if sys.argv[1:] == ["--traits"]:
    print("name=numpy\ndtypes=f32,f16\nplus_inf=1")  # numpy has no bfloat16
    sys.exit()

try:
    import numpy as np
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file
except ImportError as missing:
    sys.exit(f"merge_exec.py needs numpy and safetensors: pip install numpy safetensors ({missing})")

given = load_file(sys.argv[1])
o, lse = given["o"].astype(np.float32), given["lse"]
with safe_open(sys.argv[1], framework="numpy") as asked:
    if (asked.metadata() or {}).get("empty") == "+inf":  # another mark of "no keys"; else +inf is no number
        lse = np.where(np.isposinf(lse), -np.inf, lse)
with np.errstate(all="ignore"):
    top = lse.max(axis=0)
    weight = np.where(np.isneginf(lse), np.float32(0), np.exp(lse - top))
    total = weight.sum(axis=0)
    share = np.where(total == 0, np.float32(0), weight / total)[..., None]
    merged_o = np.where(share == 0, np.float32(0), share * o).sum(axis=0)  # the o of an empty state may be NaN
    merged_lse = np.where(total == 0, -np.inf, top + np.log(total))
save_file({"merged_o": merged_o.astype(given["o"].dtype), "merged_lse": merged_lse.astype(np.float32)}, sys.argv[2])
