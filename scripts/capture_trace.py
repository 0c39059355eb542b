#!/usr/bin/env python3
"""Capture a trace (queries, keys, values of every layer) from a Hugging Face causal model.

The model runs once over the first --tokens tokens of a text. An attention function
registered with transformers sees what the model's attention sees: q, k, v after the
rotary position embedding and after any q/k norm. The queries of the last --queries
tokens are kept. The format is described in datasets/README.md, section "Traces".

Works with decoder-only models of transformers that take their attention function from
its registry (Llama, Mistral, Qwen2, Qwen3 and most others) and use plain causal softmax
attention. Sliding windows shorter than the text, soft caps and sinks are refused.
"""

import argparse
import json
import os
import struct
import sys

NAME = "habench_capture"
VERIFY = {"F32": 1e-4, "F16": 1e-2, "BF16": 5e-2}  # worst relative L2 that --verify lets pass


def fail(message):
    sys.exit(f"capture_trace: {message}")


try:
    import numpy as np
    import torch
    import transformers
    from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM, AutoTokenizer
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask
except ImportError as e:
    if any(a in ("-h", "--help") for a in sys.argv[1:]):
        torch = None
    else:
        fail(f"cannot import {e.name or e}: pip install -r scripts/requirements-train.txt")


class Capture:
    """Holds, per layer, what the attention function and the layer's input hook saw."""

    def __init__(self, queries):
        self.queries, self.layers, self.inputs = queries, {}, {}

    def attention(self, module, query, key, value, attention_mask, scaling=None, **kwargs):
        layer = module.layer_idx
        for name in ("softcap", "s_aux", "position_bias"):
            if kwargs.get(name) is not None:
                fail(f"layer {layer} uses {name}: not plain softmax attention")
        window = kwargs.get("sliding_window")
        if window is not None and window < key.shape[2]:
            fail(f"layer {layer} has a sliding window of {window} tokens: use --tokens {window} or less")
        if key.shape[2] != query.shape[2] or value.shape[3] != query.shape[3]:
            fail(f"layer {layer}: q {tuple(query.shape)}, k {tuple(key.shape)}, v {tuple(value.shape)} are not "
                 "causal self-attention with one head dimension")
        if layer in self.layers:
            fail(f"layer {layer} ran twice")
        scale = scaling if scaling is not None else query.shape[-1] ** -0.5
        out, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scale, **kwargs)
        n = self.queries

        def keep(t):
            return t[0].detach().float().cpu().numpy()

        self.layers[layer] = {
            "k": keep(key), "v": keep(value), "q": keep(query[:, :, -n:]), "scale": float(scale),
            "out": keep(out[:, -n:].transpose(1, 2))}  # out: [q_heads][queries][head_dim]
        return out, None

    def input_hook(self, layer):
        def hook(_module, args, kwargs):
            x = args[0] if args else kwargs["hidden_states"]
            self.inputs[layer] = x[0, -self.queries:].detach().float().cpu().numpy()
        return hook


def find_attention_modules(model):
    """Returns {layer: (attention module, layer module)}."""
    found = {}
    modules = dict(model.named_modules())
    for path, module in modules.items():
        if hasattr(module, "layer_idx") and hasattr(module, "q_proj") and "." in path:
            found[module.layer_idx] = (module, modules[path.rsplit(".", 1)[0]])
    return found


def rope_theta(config):
    parameters = getattr(config, "rope_parameters", None) or {}
    return float(parameters.get("rope_theta") or getattr(config, "rope_theta", None) or 0.0)


def rotate(q, first, theta):
    """The usual rotary embedding; dimension j pairs with j + head_dim / 2. q: [heads][rows][head_dim]."""
    half = q.shape[2] // 2
    angle = np.arange(first, first + q.shape[1])[:, None] * theta ** (-np.arange(half) / half)
    c, s = np.cos(angle), np.sin(angle)
    a, b = q[:, :, :half], q[:, :, half:]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=2)


def relative_l2(got, want):
    """One figure per (head, row)."""
    return np.linalg.norm(got - want, axis=-1) / np.maximum(np.linalg.norm(want, axis=-1), 1e-30)


def query_from_input(x, wq, norm, eps, theta, first, q):
    """Worst relative L2 of rope(wq * rmsnorm(x)) against the captured q."""
    x = x.astype(np.float64)
    y = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps) * norm
    got = (y @ wq.T.astype(np.float64)).reshape(len(x), q.shape[0], q.shape[2]).transpose(1, 0, 2)
    return relative_l2(rotate(got, first, theta), q).max()


def attention_f64(q, k, v, scale, first):
    """Causal grouped-query attention in binary64; row r of q is token first + r."""
    group = q.shape[0] // k.shape[0]
    out = np.empty(q.shape, dtype=np.float64)
    hidden = np.arange(k.shape[1])[None, :] > (first + np.arange(q.shape[1]))[:, None]
    for h in range(q.shape[0]):
        s = q[h].astype(np.float64) @ k[h // group].T.astype(np.float64) * scale
        s[hidden] = -np.inf
        p = np.exp(s - s.max(axis=1, keepdims=True))
        out[h] = (p / p.sum(axis=1, keepdims=True)) @ v[h // group].astype(np.float64)
    return out


def encode(a, dtype):
    """Returns the bytes and the values that they stand for."""
    a = np.ascontiguousarray(a, dtype=np.float32)
    if not np.isfinite(a).all():
        fail("the model produced values that are not finite")
    if dtype == "F32":
        return a.astype("<f4").tobytes(), a
    if dtype == "F16":
        if np.abs(a).max() > 65504:
            fail(f"value {np.abs(a).max():.6g} does not fit F16: use --dtype BF16 or F32")
        h = a.astype("<f2")
        return h.tobytes(), h.astype(np.float32)
    bits = a.view(np.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # to nearest, ties to even
    return bits.astype("<u2").tobytes(), (bits << 16).astype(np.uint32).view(np.float32)


def write_safetensors(path, metadata, tensors):
    """tensors: [(name, dtype, shape, bytes)], stored in this order; the data starts at a multiple of 64 bytes."""
    header, offset = {"__metadata__": metadata}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    with open(path + ".new", "wb") as f:
        f.write(struct.pack("<Q", len(text)))
        f.write(text)
        for _, _, _, data in tensors:
            f.write(data)
    os.replace(path + ".new", path)


def capture(args):
    try:
        with open(args.text, encoding="utf-8", errors="replace") as f:
            text = f.read()
    except OSError as e:
        fail(e)
    load = getattr(torch, args.load_dtype)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    AttentionMaskInterface.register(NAME, sdpa_mask)
    record = Capture(args.queries)
    AttentionInterface.register(NAME, record.attention)
    try:
        tokenizer = AutoTokenizer.from_pretrained(args.model)
        model = AutoModelForCausalLM.from_pretrained(args.model, dtype=load, attn_implementation=NAME)
    except (OSError, ValueError) as e:
        fail(f"cannot load {args.model}: {str(e).splitlines()[0]}")
    model = model.to(args.device).eval()
    ids = tokenizer(text)["input_ids"]
    if len(ids) < args.tokens:
        fail(f"{args.text} has {len(ids)} tokens, --tokens asks for {args.tokens}")
    config = model.config.get_text_config()
    limit = getattr(config, "max_position_embeddings", None)
    if limit and args.tokens > limit:
        fail(f"--tokens {args.tokens} is beyond the model's {limit} positions")

    modules = find_attention_modules(model)
    for layer, (_, block) in modules.items():
        block.register_forward_pre_hook(record.input_hook(layer), with_kwargs=True)
    with torch.no_grad():
        model(input_ids=torch.tensor([ids[:args.tokens]], device=args.device), use_cache=False)
    if not record.layers:
        fail(f"{type(model).__name__} does not take its attention function from transformers' registry")
    return record, modules, config


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", help="model folder, or the name of a model that transformers can load")
    p.add_argument("--text", required=True, help="UTF-8 text to run the model over")
    p.add_argument("--tokens", type=int, default=2048, help="tokens to capture [%(default)s]")
    p.add_argument("--queries", type=int, default=256, help="keep the queries of the last N tokens [%(default)s]")
    p.add_argument("-o", "--output", required=True, help="trace to write (.safetensors)")
    p.add_argument("--dtype", choices=sorted(VERIFY), default="F16", help="number format [%(default)s]")
    p.add_argument("--load-dtype", choices=("float32", "bfloat16", "float16"), default="float32",
                   help="number format the model runs in [%(default)s]")
    p.add_argument("--device", default="cpu", help="torch device [%(default)s]")
    p.add_argument("--no-input", action="store_true", help="leave out x, wq and norm")
    p.add_argument("--model-name", help="model name in the metadata [last part of MODEL]")
    p.add_argument("--source", help="what the text is, for the metadata [the file's name]")
    p.add_argument("--licence", default="unknown", help="licence of model and text, for the metadata [%(default)s]")
    p.add_argument("--verify", action="store_true",
                   help="recompute attention in binary64 and compare with the model's own output: each vector "
                        "from the numbers the model saw, each layer from the numbers as stored")
    p.add_argument("--tolerance", type=float,
                   help="worst relative L2 that --verify lets pass [by number format]")
    args = p.parse_args()
    if not 1 <= args.queries <= args.tokens:
        fail("--queries must be between 1 and --tokens")

    record, modules, config = capture(args)
    layers = sorted(record.layers)
    if layers != list(range(len(layers))):
        fail(f"captured layers {layers}: not all layers of this model are softmax attention")
    first = args.tokens - args.queries
    shape = record.layers[0]["q"].shape, record.layers[0]["k"].shape
    scale = record.layers[0]["scale"]
    for layer in layers:
        one = record.layers[layer]
        if (one["q"].shape, one["k"].shape) != shape or one["scale"] != scale:
            fail(f"layer {layer} has another shape or scale than layer 0")
    theta = rope_theta(config)
    eps = float(getattr(config, "rms_norm_eps", 0.0))

    inputs = {}
    if not args.no_input:
        for layer in layers:
            module, block = modules.get(layer, (None, None))
            norm = getattr(block, "input_layernorm", None)
            if norm is None or layer not in record.inputs:
                inputs = None
                break
            wq = module.q_proj.weight.detach().float().cpu().numpy()
            weight = norm.weight.detach().float().cpu().numpy()
            error = np.inf
            if theta and wq.shape[0] == shape[0][0] * shape[0][2]:
                error = query_from_input(record.inputs[layer], wq, weight, eps, theta, first, record.layers[layer]["q"])
            if not error <= (1e-3 if args.load_dtype == "float32" else 5e-2):
                inputs = None
                break
            inputs[layer] = (record.inputs[layer], wq, weight)
        if inputs is None:
            print(f"capture_trace: x, wq and norm left out: layer {layer} does not compute its query as rope(wq rmsnorm(x))",
                  file=sys.stderr)
            inputs = {}

    tensors, worst_seen, worst_stored = [], 0.0, 0.0
    for layer in layers:
        one = record.layers[layer]
        values = {}
        parts = [("k", one["k"]), ("v", one["v"]), ("q", one["q"])]
        if layer in inputs:
            parts += list(zip(("x", "wq", "norm"), inputs[layer]))
        for name, array in parts:
            data, values[name] = encode(array, args.dtype)
            tensors.append((f"layers.{layer}.{name}", args.dtype, array.shape, data))
        if args.verify:
            seen = relative_l2(attention_f64(one["q"], one["k"], one["v"], scale, first), one["out"]).max()
            got = attention_f64(values["q"], values["k"], values["v"], scale, first)
            stored = np.linalg.norm(got - one["out"]) / np.linalg.norm(one["out"])
            vector = relative_l2(got, one["out"]).max()
            print(f"layer {layer}: as seen by the model: worst vector {seen:.2e}; "
                  f"as stored: layer {stored:.2e}, worst vector {vector:.2e}")
            worst_seen, worst_stored = np.maximum(worst_seen, seen), np.maximum(worst_stored, stored)
    if args.verify:
        model_format = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}[args.load_dtype]
        limit_seen = VERIFY[model_format]
        limit_stored = max(VERIFY[model_format], VERIFY[args.dtype])
        if args.tolerance:
            limit_seen = limit_stored = args.tolerance
        ok = worst_seen <= limit_seen and worst_stored <= limit_stored
        print(f"verify: worst relative L2 {worst_seen:.2e} as seen (limit {limit_seen:g}), "
              f"{worst_stored:.2e} as stored (limit {limit_stored:g}): " + ("ok" if ok else "FAILED"))
        if not ok:
            sys.exit(1)

    q_shape, k_shape = shape
    metadata = {
        "format": "habench-trace", "version": "1",
        "model": args.model_name or os.path.basename(os.path.normpath(args.model)),
        "source": args.source or os.path.basename(args.text),
        "tokens": args.tokens, "q_first": first, "layers": len(layers), "q_heads": q_shape[0],
        "kv_heads": k_shape[0], "head_dim": q_shape[2], "model_dim": config.hidden_size,
        "rope_theta": theta, "norm_eps": eps, "scale": scale, "licence": args.licence}
    write_safetensors(args.output, {k: v if isinstance(v, str) else repr(v) if isinstance(v, float) else str(v)
                                    for k, v in metadata.items()}, tensors)
    size = os.path.getsize(args.output)
    print(f"{args.output}: {len(layers)} layers, {q_shape[0]} query heads, {k_shape[0]} KV heads, "
          f"head_dim {q_shape[2]}, {args.tokens} tokens, {args.queries} queries, {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
