#!/usr/bin/env python3
"""Capture a trace (queries, keys, values of every layer) from a Hugging Face causal model.

The model runs once over the first --tokens tokens of each text. An attention function
registered with transformers sees what the model's attention sees: q, k, v after the
rotary position embedding and after any q/k norm. The queries of the last --queries
tokens are kept, and beside them what the model computes them from (the layers' inputs,
W_Q with its bias, norms, rotary frequencies) where that gives the same queries, and the
weight of the output projection. The format is described in datasets/README.md, section
"Traces".

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
PROJECTION = ("x", "wq", "norm", "q_bias", "q_norm")  # what a layer's query is computed from
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
    from trace_stats import project, whole_file
except ImportError as e:
    if any(a in ("-h", "--help") for a in sys.argv[1:]):
        torch = None
    else:
        fail(f"cannot import {e.name or e}: pip install -r scripts/requirements-train.txt")


def array(t):
    return t.detach().float().cpu().numpy()


class Capture:
    """Holds, per layer, what the attention function and the layer's input hook saw in one run."""

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
        self.layers[layer] = {
            "k": array(key[0]), "v": array(value[0]), "q": array(query[0, :, -n:]), "scale": float(scale),
            "out": array(out[0, -n:].transpose(0, 1))}  # out: [q_heads][queries][head_dim]
        return out, None

    def input_hook(self, layer):
        def hook(_module, args, kwargs):
            x = args[0] if args else kwargs["hidden_states"]
            self.inputs[layer] = array(x[0, -self.queries:])
        return hook


def find_attention_modules(model):
    """Returns {layer: (attention module, layer module)}."""
    found = {}
    modules = dict(model.named_modules())
    for path, module in modules.items():
        if hasattr(module, "layer_idx") and "." in path and (hasattr(module, "q_proj") or hasattr(module, "o_proj")):
            found[module.layer_idx] = (module, modules[path.rsplit(".", 1)[0]])
    return found


def rope_theta(config):
    parameters = getattr(config, "rope_parameters", None) or {}
    return float(parameters.get("rope_theta") or getattr(config, "rope_theta", None) or 0.0)


def relative_l2(got, want):
    """One figure per (head, row)."""
    return np.linalg.norm(got - want, axis=-1) / np.maximum(np.linalg.norm(want, axis=-1), 1e-30)


def norm_weight(norm):
    """What a norm multiplies by. It is asked with a vector of equal values, since some models store the weight less
    one; a norm that takes the mean away gives zeros, with which no query is reproduced."""
    with torch.no_grad():
        return array(norm(torch.full_like(norm.weight, 64.0)[None, :])[0])


def norm_epsilon(norm):
    return float(getattr(norm, "variance_epsilon", getattr(norm, "eps", None)) or 0.0)


def read_projection(module, block, x, heads, head_dim):
    """What a layer computes its query from, for trace_stats.project; None where it has another form."""
    norm, linear = getattr(block, "input_layernorm", None), getattr(module, "q_proj", None)
    q_norm = getattr(module, "q_norm", None)
    shapes = [(linear, (heads * head_dim, x.shape[1])), (norm, x.shape[1:])]
    if q_norm is not None:
        shapes += [(q_norm, (head_dim,))]
    if any(getattr(m, "weight", None) is None or tuple(m.weight.shape) != shape for m, shape in shapes):
        return None
    return {"wq": array(linear.weight), "norm": norm_weight(norm), "norm_eps": norm_epsilon(norm),
            "q_bias": None if linear.bias is None else array(linear.bias),
            "q_norm": None if q_norm is None else norm_weight(q_norm),
            "q_norm_eps": 0.0 if q_norm is None else norm_epsilon(q_norm)}


def rotary_embeddings(model, head_dim):
    """Each (inv_freq, adjacent, scale) that the model may use. Read after the run, which sets some of them."""
    found = []
    for module in model.modules():
        inv_freq = getattr(module, "inv_freq", None)
        if isinstance(inv_freq, torch.Tensor) and inv_freq.ndim == 1 and 2 * len(inv_freq) <= head_dim:
            scale = float(getattr(module, "attention_scaling", 1.0))
            found += [(array(inv_freq), adjacent, scale) for adjacent in (False, True)]
    return found


def find_projections(record, modules, model, first, limit):
    """([one for each layer], rotary embedding) with which every layer's query is reproduced, or a reason."""
    heads, _, head_dim = record.layers[0]["q"].shape
    projections = []
    for layer in sorted(record.layers):
        found = None
        if layer in record.inputs:
            found = read_projection(*modules[layer], record.inputs[layer], heads, head_dim)
        if found is None:
            return None, f"layer {layer} has no input norm, query projection or query norm of the usual form"
        projections.append(found)
    # Epsilons are the file's, one for all layers.
    for found in projections:
        found.update(norm_eps=projections[0]["norm_eps"], q_norm_eps=projections[0]["q_norm_eps"])
    if len({(p["q_bias"] is None, p["q_norm"] is None) for p in projections}) > 1:
        return None, "some layers have a query bias or norm, and some have none"
    furthest = -1
    for rope in rotary_embeddings(model, head_dim):
        # The model rounds its angles to binary32.
        reached = limit + (first + len(record.inputs[0])) * float(rope[0].max()) * 2.0 ** -24
        for layer, projection in enumerate(projections):
            got = project(record.inputs[layer], projection, rope, heads, first)
            if not relative_l2(got, record.layers[layer]["q"]).max() <= reached:
                furthest = max(furthest, layer)
                break
        else:
            return projections, rope
    if furthest < 0:
        return None, "the model has no rotary embedding of the usual form"
    return None, f"layer {furthest} does not compute its query as rotary(norm(wq rmsnorm(x) + bias))"


def output_weights(layers, modules, shape):
    """The weight of each layer's output projection, or None."""
    found = [getattr(modules.get(layer, (None,))[0], "o_proj", None) for layer in layers]
    if any(getattr(m, "weight", None) is None or tuple(m.weight.shape) != shape for m in found):
        return None
    return [array(m.weight) for m in found]


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
    with whole_file(path) as f:
        f.write(struct.pack("<Q", len(text)))
        f.write(text)
        for _, _, _, data in tensors:
            f.write(data)


def load(args):
    """Returns (model, [the tokens of each text])."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    AttentionMaskInterface.register(NAME, sdpa_mask)
    AttentionInterface.register(NAME, sdpa_attention_forward)
    try:
        tokenizer = AutoTokenizer.from_pretrained(args.model)
        model = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.load_dtype),
                                                     attn_implementation=NAME)
    except (OSError, ValueError) as e:
        fail(f"cannot load {args.model}: {str(e).splitlines()[0]}")
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if limit and args.tokens > limit:
        fail(f"--tokens {args.tokens} is beyond the model's {limit} positions")
    texts = []
    for path in args.text:
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                ids = tokenizer(f.read())["input_ids"]
        except OSError as e:
            fail(e)
        if len(ids) < args.tokens:
            fail(f"{path} has {len(ids)} tokens, --tokens asks for {args.tokens}")
        texts.append(ids[:args.tokens])
    return model.to(args.device).eval(), texts


def run(model, modules, ids, queries, device):
    record = Capture(queries)
    AttentionInterface.register(NAME, record.attention)
    hooks = [block.register_forward_pre_hook(record.input_hook(layer), with_kwargs=True)
             for layer, (_, block) in modules.items()]
    with torch.no_grad():
        model(input_ids=torch.tensor([ids], device=device), use_cache=False)
    for hook in hooks:
        hook.remove()
    if not record.layers:
        fail(f"{type(model).__name__} does not take its attention function from transformers' registry")
    layers = sorted(record.layers)
    if layers != list(range(len(layers))):
        fail(f"captured layers {layers}: not all layers of this model are softmax attention")
    zero = record.layers[0]
    for layer, one in record.layers.items():
        if (one["q"].shape, one["k"].shape, one["scale"]) != (zero["q"].shape, zero["k"].shape, zero["scale"]):
            fail(f"layer {layer} has another shape or scale than layer 0")
    return record


def verify(record, stored, first, args):
    """stored: [{name: the values that the trace has}]. Exits if attention over either is not the model's."""
    worst_seen, worst_stored = 0.0, 0.0
    for layer, values in enumerate(stored):
        one = record.layers[layer]
        seen = relative_l2(attention_f64(one["q"], one["k"], one["v"], one["scale"], first), one["out"]).max()
        got = attention_f64(values["q"], values["k"], values["v"], one["scale"], first)
        whole = np.linalg.norm(got - one["out"]) / np.linalg.norm(one["out"])
        vector = relative_l2(got, one["out"]).max()
        print(f"layer {layer}: as seen by the model: worst vector {seen:.2e}; "
              f"as stored: layer {whole:.2e}, worst vector {vector:.2e}")
        worst_seen, worst_stored = np.maximum(worst_seen, seen), np.maximum(worst_stored, whole)
    model_format = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}[args.load_dtype]
    limit_seen = args.tolerance or VERIFY[model_format]
    limit_stored = args.tolerance or max(VERIFY[model_format], VERIFY[args.dtype])
    ok = worst_seen <= limit_seen and worst_stored <= limit_stored
    print(f"verify: worst relative L2 {worst_seen:.2e} as seen (limit {limit_seen:g}), "
          f"{worst_stored:.2e} as stored (limit {limit_stored:g}): " + ("ok" if ok else "FAILED"))
    if not ok:
        sys.exit(1)


def write_trace(args, model, modules, record, output, source):
    first = args.tokens - record.queries
    config = model.config.get_text_config()
    count = len(record.layers)
    q_heads, _, head_dim = record.layers[0]["q"].shape
    kv_heads = len(record.layers[0]["k"])
    eps = float(getattr(config, "rms_norm_eps", 0.0))
    kept = ("k", "v", "q")
    if args.keys_only:
        kept = ("k", "q") if args.queries else ("k",)
    parts = [{name: record.layers[layer][name] for name in kept} for layer in range(count)]
    tensors, more = [], {}
    if not args.no_input and not args.keys_only:
        limit = 1e-3 if args.load_dtype == "float32" else 5e-2
        projections, rope = find_projections(record, modules, model, first, limit)
        if projections is None:
            print(f"capture_trace: {', '.join(PROJECTION)} and rope.inv_freq left out: {rope}", file=sys.stderr)
        else:
            inv_freq, adjacent, rope_scale = rope
            tensors.append(("rope.inv_freq", "F32", inv_freq.shape, encode(inv_freq, "F32")[0]))
            more = {"rope_pairing": "adjacent" if adjacent else "half", "rope_scale": rope_scale}
            eps = projections[0]["norm_eps"]
            if projections[0]["q_norm"] is not None:
                more["q_norm_eps"] = projections[0]["q_norm_eps"]
            for layer, found in enumerate(projections):
                found["x"] = record.inputs[layer]
                parts[layer].update({name: found[name] for name in PROJECTION if found[name] is not None})
        wo = output_weights(range(count), modules, (config.hidden_size, q_heads * head_dim))
        if wo is None:
            print("capture_trace: wo left out: the layers have no o_proj from all query heads to the residual stream",
                  file=sys.stderr)
        else:
            for layer in range(count):
                parts[layer]["wo"] = wo[layer]

    stored = []
    for layer, arrays in enumerate(parts):
        stored.append({})
        for name, one in arrays.items():
            data, stored[layer][name] = encode(one, args.dtype)
            tensors.append((f"layers.{layer}.{name}", args.dtype, one.shape, data))
    if args.verify:
        verify(record, stored, first, args)

    if args.keys_only:
        more["content"] = "keys"
    if "q" not in kept:
        first = args.tokens
    metadata = {
        "format": "habench-trace", "version": "2",
        "model": args.model_name or os.path.basename(os.path.normpath(args.model)), "source": source,
        "tokens": args.tokens, "q_first": first, "layers": count, "q_heads": q_heads,
        "kv_heads": kv_heads, "head_dim": head_dim, "model_dim": config.hidden_size,
        "rope_theta": rope_theta(config), "norm_eps": eps, "scale": record.layers[0]["scale"],
        "licence": args.licence, **more}
    write_safetensors(output, {k: v if isinstance(v, str) else repr(v) if isinstance(v, float) else str(v)
                               for k, v in metadata.items()}, tensors)
    print(f"{output}: {count} layers, {q_heads} query heads, {kv_heads} KV heads, head_dim {head_dim}, "
          f"{args.tokens} tokens, {args.tokens - first} queries, {os.path.getsize(output) / 1e6:.2f} MB")


def outputs(args):
    """The file of each text: --output; with several texts, a dash and the text's name stand before its suffix."""
    if len(args.text) == 1:
        return [args.output]
    stem, suffix = os.path.splitext(args.output)
    names = [os.path.splitext(os.path.basename(path))[0] for path in args.text]
    if len(set(names)) < len(names):
        fail("two texts have the same name, and each trace is named after its text")
    return [f"{stem}-{name}{suffix or '.safetensors'}" for name in names]


def number_or_all(text):
    return text if text == "all" else int(text)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", help="model folder, or the name of a model that transformers can load")
    p.add_argument("--text", required=True, action="append",
                   help="UTF-8 text to run the model over; several may be given, each gives a trace")
    p.add_argument("--tokens", type=int, default=2048, help="tokens to capture [%(default)s]")
    p.add_argument("--queries", type=number_or_all, metavar="N",
                   help="keep the queries of the last N tokens, or of all [256]")
    p.add_argument("-o", "--output", required=True,
                   help="trace to write (.safetensors); with several texts OUTPUT-TEXT.safetensors, TEXT being the "
                        "text's file name without its suffix")
    p.add_argument("--dtype", choices=sorted(VERIFY), default="F16", help="number format [%(default)s]")
    p.add_argument("--load-dtype", choices=("float32", "bfloat16", "float16"), default="float32",
                   help="number format the model runs in [%(default)s]")
    p.add_argument("--device", default="cpu", help="torch device [%(default)s]")
    p.add_argument("--no-input", action="store_true", help="keys, values and queries only")
    p.add_argument("--keys-only", action="store_true",
                   help="keys only, for offline training; queries too where --queries is given. Nothing can be "
                        "replayed from such a file: it has no values")
    p.add_argument("--model-name", help="model name in the metadata [last part of MODEL]")
    p.add_argument("--source", action="append",
                   help="what the text is, for the metadata [the file's name]; one for each text")
    p.add_argument("--licence", default="unknown", help="licence of model and text, for the metadata [%(default)s]")
    p.add_argument("--verify", action="store_true",
                   help="recompute attention in binary64 and compare with the model's own output: each vector "
                        "from the numbers the model saw, each layer from the numbers as stored")
    p.add_argument("--tolerance", type=float,
                   help="worst relative L2 that --verify lets pass [by number format]")
    args = p.parse_args()
    queries = {"all": args.tokens, None: min(256, args.tokens)}.get(args.queries, args.queries)
    if not 1 <= queries <= args.tokens:
        fail("--queries must be between 1 and --tokens, or all")
    sources = args.source or [os.path.basename(path) for path in args.text]
    if len(sources) != len(args.text):
        fail(f"{len(args.text)} texts and {len(sources)} sources: give one --source for each --text, or none")
    if args.keys_only and args.verify:
        fail("--verify needs values, which --keys-only leaves out: give one of them")
    files = outputs(args)
    model, texts = load(args)
    modules = find_attention_modules(model)
    for ids, file, source in zip(texts, files, sources):
        write_trace(args, model, modules, run(model, modules, ids, queries, args.device), file, source)


if __name__ == "__main__":
    main()
