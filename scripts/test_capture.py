#!/usr/bin/env python3
"""test_capture.py: what capture_trace.py writes is what the model computes, for tiny models with random weights, one of
each architecture, made on the spot; and trace_stats.py says of traces whose figures are known what they are.

Run by hand: it needs torch and transformers (scripts/requirements-train.txt) and takes some ten seconds. Exit status: 1
if something is wrong, 77 if they are missing.

The models' own account is a second run with transformers' eager attention: its hidden states are the layers' inputs,
and a hook sees what each attention module gives. What a trace must give is computed here, pair by pair, and with
nothing of the scripts under test."""

import contextlib
import io
import json
import os
import struct
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
try:
    import numpy as np
    import torch
    import transformers as hf
    from tokenizers import Tokenizer, models as token_models, pre_tokenizers
except ImportError as e:
    print(f"SKIP: {e.name or e} is missing, so scripts/capture_trace.py is not tested: "
          "pip install -r scripts/requirements-train.txt")
    sys.exit(77)
import capture_trace
import trace_stats

TOKENS, QUERIES, LAYERS = 200, 48, 3
LIMIT = {"F32": 2e-5, "F16": 2e-3, "BF16": 2e-2}  # worst relative L2 of a vector computed from a trace
SIZE = dict(vocab_size=256, hidden_size=96, intermediate_size=64, num_hidden_layers=LAYERS, num_attention_heads=4,
            num_key_value_heads=2, head_dim=32, max_position_embeddings=512, bos_token_id=0, eos_token_id=0,
            pad_token_id=0)
INPUT = ["x", "wq", "norm"]
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=128)

# name, configuration, its arguments, optional tensors of each layer, metadata that the trace must have, and, where x
# is left out, what is said
MODELS = (
    ("llama", hf.LlamaConfig, {}, [*INPUT, "wo"], {"rope_pairing": "half", "rope_scale": 1.0}),
    ("llama3", hf.LlamaConfig, {"rope_parameters": LLAMA3}, [*INPUT, "wo"], {"rope_pairing": "half"}),
    ("yarn", hf.LlamaConfig, {"rope_parameters": YARN, "attention_bias": False}, [*INPUT, "wo"],
     {"rope_pairing": "half", "rope_scale": 0.1 * np.log(4.0) + 1}),
    ("qwen2", hf.Qwen2Config, {}, [*INPUT, "q_bias", "wo"], {"rope_pairing": "half"}),
    ("qwen3", hf.Qwen3Config, {"rms_norm_eps": 1e-3}, [*INPUT, "q_norm", "wo"],
     {"rope_pairing": "half", "q_norm_eps": 1e-3, "norm_eps": 1e-3}),
    ("mistral", hf.MistralConfig, {"sliding_window": None}, [*INPUT, "wo"], {"rope_pairing": "half"}),
    # half of each head turns, in adjacent pairs
    ("glm", hf.GlmConfig, {"rope_parameters": dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)},
     [*INPUT, "q_bias", "wo"], {"rope_pairing": "adjacent"}),
    # its norm stores the weight less one, and its input is not the embedding
    ("gemma", hf.GemmaConfig, {}, [*INPUT, "wo"], {"rope_pairing": "half"}),
    # what a trace cannot hold: a norm that takes the mean away, a norm of all heads at once, a layer without rotation
    ("cohere", hf.CohereConfig, {}, ["wo"], {}, "layer 0 does not compute"),
    ("olmoe", hf.OlmoeConfig, {"head_dim": 24, "num_experts": 2, "num_experts_per_tok": 1}, ["wo"], {},
     "layer 0 has no input norm"),
    ("phi", hf.PhiConfig, {}, [], {}, "layer 0 does not compute", "wo left out"),  # its W_O has another name
    ("smollm3", hf.SmolLM3Config, {"no_rope_layers": [1, 1, 0]}, ["wo"], {}, "layer 2 does not compute"),
)
UNSCALED = 10000.0 ** (-np.arange(16) / 16)
count = {True: 0, False: 0}


def expect(what, good, said=""):
    count[bool(good)] += 1
    if not good:
        print(f"FAILED: {what}\n    {str(said).strip()[:300]}")


def make(folder, config_class, arguments):
    """A model and its tokenizer, which takes each byte for a token."""
    torch.manual_seed(5)
    model = hf.AutoModelForCausalLM.from_config(config_class(**{**SIZE, **arguments}))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim > 1:
                p.normal_(std=p.shape[1] ** -0.5 if "embed" not in name else 1.0)
            else:  # weights of norms and biases: none is what another model would have
                p.normal_(mean=0.0 if name.endswith("bias") else 1.0, std=0.3)
    model.save_pretrained(folder)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(token_models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def own_account(folder, text):
    """(inputs of the layers, what their attention modules give), each [layer][token][hidden_size]."""
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    model = hf.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    given = []
    for layer in model.model.layers:
        layer.self_attn.register_forward_hook(lambda _m, _i, out: given.append(out[0][0].numpy()))
    ids = tokenizer(text)["input_ids"][:TOKENS]
    with torch.no_grad():
        states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    return [s[0].numpy() for s in states[:LAYERS]], given


def command(main, *args):
    """(exit status, what was said)"""
    said, argv, status = io.StringIO(), sys.argv, 0
    sys.argv = ["script", *map(str, args)]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as e:
            status = e.code if isinstance(e.code, int) else 0 if e.code is None else 1
            said.write(str(e.code))
    sys.argv = argv
    return status, said.getvalue()


def capture(*args):
    return command(capture_trace.main, *args)


def read(path):
    """(metadata, {name: array of the numbers in binary64}, dtypes)"""
    with open(path, "rb") as f:
        blob = f.read()
    (length,) = struct.unpack_from("<Q", blob)
    header = json.loads(blob[8:8 + length])
    meta, arrays = header.pop("__metadata__"), {}
    for name, t in header.items():
        raw = blob[8 + length:][slice(*t["data_offsets"])]
        a = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4") if t["dtype"] == "BF16" else \
            np.frombuffer(raw, {"F16": "<f2", "F32": "<f4"}[t["dtype"]])
        arrays[name] = a.reshape(t["shape"]).astype(np.float64)
    return meta, arrays, {name: t["dtype"] for name, t in header.items()}


def write(path, meta, arrays):
    tensors = [(name, "F32", a.shape, a.astype("<f4").tobytes()) for name, a in arrays.items()]
    capture_trace.write_safetensors(path, {k: str(v) for k, v in meta.items()}, tensors)


def query(meta, a, layer, row, head):
    """As the format says it, one dimension after the other."""
    dim, x = int(meta["head_dim"]), a[f"layers.{layer}.x"][row]
    y = x / np.sqrt(np.mean(x * x) + float(meta["norm_eps"])) * a[f"layers.{layer}.norm"]
    q = a[f"layers.{layer}.wq"][head * dim:(head + 1) * dim] @ y
    if f"layers.{layer}.q_bias" in a:
        q = q + a[f"layers.{layer}.q_bias"][head * dim:(head + 1) * dim]
    if f"layers.{layer}.q_norm" in a:
        q = q / np.sqrt(np.mean(q * q) + float(meta["q_norm_eps"])) * a[f"layers.{layer}.q_norm"]
    out = q.copy()
    pairs = len(a["rope.inv_freq"])
    for j in range(pairs):
        first, second = (2 * j, 2 * j + 1) if meta["rope_pairing"] == "adjacent" else (j, j + pairs)
        turn = (int(meta["q_first"]) + row) * a["rope.inv_freq"][j]
        out[first] = float(meta["rope_scale"]) * (q[first] * np.cos(turn) - q[second] * np.sin(turn))
        out[second] = float(meta["rope_scale"]) * (q[second] * np.cos(turn) + q[first] * np.sin(turn))
    return out


def attention(meta, a, layer, row):
    """All heads of a token, then W_O."""
    q_heads, kv_heads, seen = int(meta["q_heads"]), int(meta["kv_heads"]), int(meta["q_first"]) + row + 1
    o = []
    for h in range(q_heads):
        k, v = (a[f"layers.{layer}.{n}"][h * kv_heads // q_heads, :seen] for n in "kv")
        p = np.exp(float(meta["scale"]) * (k @ a[f"layers.{layer}.q"][h, row]))
        o.append(p @ v / p.sum())
    return a[f"layers.{layer}.wo"] @ np.concatenate(o)


def off(got, want):
    return np.linalg.norm(got - want) / np.linalg.norm(want)


def check_trace(name, path, optional, metadata, own, dtype="F32"):
    meta, a, dtypes = read(path)
    first, rows, limit = int(meta["q_first"]), int(meta["tokens"]) - int(meta["q_first"]), LIMIT[dtype]
    expect(f"{name}: version 2",
           (meta["format"], meta["version"], meta.get("content")) == ("habench-trace", "2", None), meta)
    order = [f"layers.{i}.{part}" for i in range(LAYERS) for part in ("k", "v", "q", *optional)]
    if "x" in optional:
        order = ["rope.inv_freq", *order]
    expect(f"{name}: tensors", list(dtypes) == order, list(dtypes))
    if list(dtypes) != order:
        return meta, a
    expect(f"{name}: dtypes", all(d == ("F32" if n == "rope.inv_freq" else dtype) for n, d in dtypes.items()), dtypes)
    for key, value in metadata.items():
        good = meta.get(key) == value if isinstance(value, str) else np.isclose(float(meta.get(key, "nan")), value)
        expect(f"{name}: metadata {key}", good, f"{meta.get(key)}, not {value}")
    expect(f"{name}: no metadata without its tensor", ("q_norm_eps" in meta, "rope_scale" in meta)
           == ("q_norm" in optional, "x" in optional), meta)
    some = [0, rows // 2, rows - 1]
    for layer in range(LAYERS):
        if "x" in optional:
            got = off(a[f"layers.{layer}.x"], own[0][layer][first:])
            expect(f"{name}: x of layer {layer} is the model's", got < limit, got)
            got = max(off(query(meta, a, layer, row, h), a[f"layers.{layer}.q"][h, row])
                      for row in some for h in range(int(meta["q_heads"])))
            expect(f"{name}: query of layer {layer} from x", got < limit, got)
        if "wo" in optional:
            got = max(off(attention(meta, a, layer, row), own[1][layer][first + row]) for row in some)
            expect(f"{name}: attention and W_O of layer {layer}", got < limit, got)
    return meta, a


def check_models(folder):
    for name, config_class, arguments, optional, metadata, *reason in MODELS:
        home, out = f"{folder}/{name}", f"{folder}/{name}.safetensors"
        make(home, config_class, arguments)
        own = own_account(home, TEXT[0])
        status, said = capture(home, "--text", f"{folder}/one.txt", "--tokens", TOKENS, "--queries", QUERIES, "--dtype",
                               "F32", "--verify", "-o", out)
        expect(f"{name}: captured", status == 0 and "ok" in said, said)
        expect(f"{name}: says what is left out",
               ("left out" in said) == bool(reason) and all(r in said for r in reason), said)
        if status == 0:
            meta, a = check_trace(name, out, optional, metadata, own)
            if "rope.inv_freq" in a:
                scaled = not np.allclose(a["rope.inv_freq"], UNSCALED[::2 if name == "glm" else 1], rtol=1e-6)
                expect(f"{name}: frequencies", scaled == (name in ("llama3", "yarn")), a["rope.inv_freq"])


def check_options(folder):
    """Of one model, with a query bias."""
    home, own = f"{folder}/qwen2", own_account(f"{folder}/qwen2", TEXT[0])
    common = (home, "--text", f"{folder}/one.txt", "--tokens", TOKENS)
    whole = [*INPUT, "q_bias", "wo"]
    for dtype in ("F16", "BF16"):
        status, said = capture(*common, "--queries", QUERIES, "--dtype", dtype, "-o", f"{folder}/{dtype}.safetensors")
        expect(f"{dtype}: captured", status == 0, said)
        check_trace(dtype, f"{folder}/{dtype}.safetensors", whole, {}, own, dtype)

    status, said = capture(*common, "--queries", "all", "--dtype", "F32", "-o", f"{folder}/all.safetensors")
    expect("--queries all", status == 0, said)
    meta, a = check_trace("--queries all", f"{folder}/all.safetensors", whole, {"q_first": 0}, own)

    status, said = capture(*common, "--queries", QUERIES, "--no-input", "-o", f"{folder}/plain.safetensors")
    expect("--no-input: k, v and q", status == 0 and {n.split(".")[2] for n in read(f"{folder}/plain.safetensors")[1]}
           == {"k", "v", "q"}, said)

    for queries, kept in ((), {"k"}), (("--queries", "all"), {"k", "q"}):
        status, said = capture(*common, "--keys-only", *queries, "--dtype", "F32", "-o", f"{folder}/keys.safetensors")
        expect(f"--keys-only {queries}", status == 0, said)
        keys_meta, keys, _ = read(f"{folder}/keys.safetensors")
        expect(f"--keys-only {queries}: what it holds", {n.split(".")[2] for n in keys} == kept
               and all(np.array_equal(keys[n], a[n]) for n in keys), list(keys))
        expect(f"--keys-only {queries}: says so", (keys_meta.get("content"), keys_meta["q_first"])
               == ("keys", "0" if queries else str(TOKENS)), keys_meta)

    both = ("--text", f"{folder}/two.txt", "--queries", QUERIES, "-o", f"{folder}/set.safetensors")
    status, said = capture(*common, *both, "--source", "first", "--source", "second")
    expect("two texts", status == 0, said)
    for text, stem, source in ((0, "one", "first"), (1, "two", "second")):
        got = check_trace(stem, f"{folder}/set-{stem}.safetensors", whole, {"source": source},
                          own_account(home, TEXT[text]), "F16")
        alone = f"{folder}/alone.safetensors"
        capture(home, "--text", f"{folder}/{stem}.txt", "--tokens", TOKENS, "--queries", QUERIES, "--source", source,
                "-o", alone)
        with open(alone, "rb") as one, open(f"{folder}/set-{stem}.safetensors", "rb") as other:
            expect(f"{stem}: as if captured alone", one.read() == other.read(), got[0])

    block = torch.nn.Module()
    block.o_proj = torch.nn.Linear(4, 6)
    left_out = [capture_trace.output_weights([0], {0: (block, None)}, shape) is None
                for shape in ((6, 4), (4, 6), (6, 5))]
    expect("W_O of another shape is left out", left_out == [False, True, True], left_out)

    out = ("-o", f"{folder}/none.safetensors")
    for what, args, said_then in (
            ("two texts of one name", (*common, "--text", f"{home}/../one.txt", *out), "same name"),
            ("a source too few", (*common, "--text", f"{folder}/two.txt", "--source", "first", *out), "one --source"),
            ("values to verify", (*common, "--keys-only", "--verify", *out), "--verify needs values"),
            ("no query", (*common, "--queries", 0, *out), "--queries must be"),
            ("queries in words", (*common, "--queries", "most", *out), "invalid number_or_all value: 'most'"),
            ("a short text", (home, "--text", f"{folder}/one.txt", "--tokens", 512, *out), "has 300 tokens"),
            ("a text that is missing", (home, "--text", f"{folder}/three.txt", "--tokens", TOKENS, *out), "three.txt"),
            ("more tokens than positions", (home, "--text", f"{folder}/one.txt", "--tokens", 600, *out),
             "512 positions")):
        status, said = capture(*args)
        expect(f"{what} is refused", status and said_then in said and not os.path.exists(out[1]), said)


def figures(path):
    """What trace_stats says of a trace: [predicted, neighbours, changed] of each layer, None for a dash."""
    status, said = command(trace_stats.main, path)
    expect(f"trace_stats reads {os.path.basename(path)}", status == 0, said)
    table = said[said.find("layer     predicted"):].splitlines()[1:]
    return [[None if f == "-" else float(f) for f in line.split()[1:]] for line in table]


def check_stats(folder):
    # An input of the layer before that is the layer's own predicts its query.
    for name in ("qwen2", "qwen3", "glm", "yarn"):
        meta, a, _ = read(f"{folder}/{name}.safetensors")
        before = figures(f"{folder}/{name}.safetensors")
        a["layers.0.x"] = a["layers.1.x"]
        write(f"{folder}/own.safetensors", meta, a)
        got = figures(f"{folder}/own.safetensors")
        expect(f"{name}: predicted from its own input", got[0][0] is None and got[1][0] == 1 and got[2][0] < 0.99, got)
        expect(f"{name}: only that changes",
               [g[1:] for g in got] == [b[1:] for b in before] and before[1][0] < 0.99, before)
    expect("without x nothing is predicted", [f[0] for f in figures(f"{folder}/cohere.safetensors")] == [None] * LAYERS)

    # Version 1 has the base of plain frequencies instead.
    meta, a, _ = read(f"{folder}/llama.safetensors")
    one = {k: v for k, v in meta.items() if k not in ("rope_pairing", "rope_scale")}
    write(f"{folder}/version1.safetensors", {**one, "version": "1"}, {n: t for n, t in a.items()
                                                                     if n.split(".")[-1] not in ("inv_freq", "wo")})
    expect("version 1 has the same figures",
           figures(f"{folder}/version1.safetensors") == figures(f"{folder}/llama.safetensors"))
    write(f"{folder}/version3.safetensors", {**meta, "version": "3"}, a)
    status, said = command(trace_stats.main, f"{folder}/version3.safetensors")
    expect("version 3 is refused", status and "version 1 or 2" in said, said)

    # Blocks 2 and 5 of 9 have keys that queries in two directions look for: in turn, or one of them always.
    dim, tokens, first = 4, 9 * 32, 8 * 32
    k = np.zeros((1, tokens, dim))
    k[0, 2 * 32:3 * 32, 0] = k[0, 5 * 32:6 * 32, 1] = 1
    for what, turns, neighbours, changed in (("in turn", 2, 0, 1), ("the same", 1, 1, 0),
                                             ("every fourth", 4, 0.5, 0.5)):
        q = np.zeros((1, tokens - first, dim))
        for row in range(tokens - first):
            q[0, row, 1 if row % turns == 0 and turns > 1 else 0] = 9
        meta = {"format": "habench-trace", "version": "2", "model": "m", "source": "s", "tokens": tokens,
                "q_first": first, "layers": 1, "q_heads": 1, "kv_heads": 1, "head_dim": dim, "model_dim": 4,
                "rope_theta": 0.0, "norm_eps": 0.0, "scale": 1.0, "licence": "none"}
        write(f"{folder}/made.safetensors", meta, {"layers.0.k": k, "layers.0.v": k, "layers.0.q": q})
        got = figures(f"{folder}/made.safetensors")[0]
        expect(f"queries {what}", got[0] is None and np.allclose(got[1:], (neighbours, changed), atol=0.03), got)


TEXT = ("".join(chr(97 + (i * i + 7 * i // 3) % 26) for i in range(300)),
        "".join(chr(97 + (i * i * i + 5 * i) % 23) for i in range(300)))


def main():
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in zip(("one", "two"), TEXT):
            with open(f"{folder}/{name}.txt", "w", encoding="utf-8") as f:
                f.write(text)
        for check in (check_models, check_options, check_stats):
            if not count[False]:  # each builds on the traces of those ahead of it
                check(folder)
    print(f"{count[True]} passed, {count[False]} failed")
    sys.exit(count[False] > 0)


if __name__ == "__main__":
    main()
