#!/usr/bin/env python3
"""test_model.py PROGRAM: `habench capture` of the model that scripts/setup.sh --model fetches, over a text that does not change: beside
figures that are kept here, and beside transformers, where it is installed with torch, gguf and accelerate."""

import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import numpy as np  # noqa: E402
from trace_stats import project, read_projection, read_trace  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER, NAME = os.path.join(ROOT, "build", "model"), "SmolLM2-135M-Instruct.Q4_1.gguf"
TEXT, TOKENS = os.path.join(ROOT, "LICENSE"), 200
# The loss, and the norms of all keys, values and queries of three layers. transformers 5.24.0 computes the same.
LOSS = 1.2111
NORMS = {"layers.0.k": 261.8874, "layers.0.v": 8.926721, "layers.0.q": 373.7936, "layers.14.k": 420.5718, "layers.14.v": 170.6756,
         "layers.14.q": 707.7781, "layers.29.k": 424.3324, "layers.29.v": 422.6379, "layers.29.q": 802.2723}
count = {True: 0, False: 0}


def expect(what, good, said=""):
    count[bool(good)] += 1
    if not good:
        print(f"FAILED: {what}: {said}")


def near(a, b, relative):
    return np.linalg.norm(np.subtract(a, b)) <= relative * np.linalg.norm(b)


def test_kept(loss, tensor):
    expect("the loss", abs(loss - LOSS) <= 2e-4, loss)
    for name, norm in NORMS.items():
        expect(f"the norm of {name}", near(np.linalg.norm(tensor(name)), norm, 1e-4), np.linalg.norm(tensor(name)))


def test_queries(meta, tensor):
    """W_Q of the layer's input, turned, is the layer's query."""
    for layer in range(int(meta["layers"])):
        found, rope = read_projection(meta, tensor, layer)
        q = tensor(f"layers.{layer}.q")
        expect(f"the queries of layer {layer}", near(project(tensor(f"layers.{layer}.x"), found, rope, q.shape[0], 0), q, 1e-4))


def test_transformers(loss, tensor):
    try:
        import accelerate, gguf, torch, transformers  # noqa: E401, F401
    except ImportError as e:
        print(f"SKIP: no {e.name}, so the model is not set beside transformers: pip install torch transformers gguf accelerate")
        return
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, gguf_file=NAME, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER, gguf_file=NAME)
    with open(TEXT, encoding="utf-8") as file:
        ids = tokenizer(file.read(), return_tensors="pt", add_special_tokens=False)["input_ids"][:, :TOKENS]
    with torch.no_grad():
        out = model(ids, labels=ids, use_cache=True)
    expect("the loss of transformers", abs(float(out.loss) - loss) <= 2e-4, float(out.loss))
    for layer, (_, v, *_) in enumerate(out.past_key_values):
        expect(f"the values of layer {layer}", near(tensor(f"layers.{layer}.v"), v[0].numpy(), 1e-3))


def main(program):
    model = os.path.join(FOLDER, NAME)
    if not os.path.exists(model):
        print("SKIP: build/model is not there, so no model is read: scripts/setup.sh --model")
        print("0 passed, 0 failed")
        return
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.safetensors")
        said = subprocess.run([program, "capture", "--model", model, "--text", TEXT, "--tokens", str(TOKENS), "--queries", str(TOKENS),
                               "--dtype", "f32", "-o", trace], stdout=subprocess.PIPE, text=True, check=True).stdout
        loss = float(re.search(r"loss ([0-9.]+) nats", said)[1])
        meta, tensor = read_trace(trace)
        test_kept(loss, tensor)
        test_queries(meta, tensor)
        test_transformers(loss, tensor)
    print(f"{count[True]} passed, {count[False]} failed")
    sys.exit(count[False] > 0)


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
