#!/usr/bin/env python3
"""Learn the importance of heads for the variant clo as DuoAttention does: gates between full and streaming attention.

    scripts/train_gates.py datasets/model --text A.txt --text B.txt --fit a.safetensors -o b.safetensors

Every head's output is gate x full attention + (1 - gate) x attention over the first --sink tokens, the --recent ones
before the query and its own (CLO, appendix A, equations 14 and 15). Gates begin at 1, stay in [0, 1], and are what is
trained: the last hidden state shall be that of the model (squared distance, relative to its square, over all tokens but
the first quarter), and gates cost --cost times their mean. It is done once with a gate for each KV head and once with
one for each query head. What is written is the fit with these as importance_kv and importance_q and with the names of
the texts; printed is how alike their ranking and that of the fit's own deviations are (Spearman). Gates that the texts
leave equal share a rank.

Needs scripts/requirements-train.txt; models of transformers with plain causal attention.
"""

import argparse
import os
import sys

try:
    import numpy as np
    from train_hash import read_fit, texts, write_fit
except ImportError as e:
    if not any(a in ("-h", "--help") for a in sys.argv[1:]):
        sys.exit(f"train_gates: {e.name} is missing: pip install -r scripts/requirements-train.txt")


def fail(message):
    sys.exit(f"train_gates: {message}")


def ranks(x):
    """from 0, the mean of those that are equal"""
    below, same = (x[None, :] < x[:, None]).sum(axis=1), (x[None, :] == x[:, None]).sum(axis=1)
    return below + (same - 1) / 2


def spearman(x, y):
    a, b = ranks(np.ravel(x)), ranks(np.ravel(y))
    a, b = a - a.mean(), b - b.mean()
    size = np.sqrt((a * a).sum() * (b * b).sum())
    return (a * b).sum() / size if size > 0 else float("nan")


class Gates:
    """The attention of a model with gates [layers][heads], or full attention where there are none."""

    def __init__(self, torch, sink, recent):
        self.torch, self.sink, self.recent, self.value = torch, sink, recent, None

    def __call__(self, module, query, key, value, mask, scaling=None, **_):
        torch = self.torch
        group, tokens = query.shape[1] // key.shape[1], query.shape[2]
        key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
        at = torch.arange(tokens)
        seen = at[None, :] <= at[:, None]
        attend = torch.nn.functional.scaled_dot_product_attention
        out = attend(query, key, value, attn_mask=seen, scale=scaling)
        if self.value is not None:
            stays = seen & ((at[None, :] < self.sink) | (at[None, :] >= at[:, None] - self.recent))
            stream = attend(query, key, value, attn_mask=stays, scale=scaling)
            gate = self.value[module.layer_idx]
            gate = gate.repeat_interleave(query.shape[1] // len(gate))[None, :, None, None]
            out = gate * out + (1 - gate) * stream
        return out.transpose(1, 2).contiguous(), None


def train(torch, model, gates, inputs, heads, args):
    value = torch.ones(model.config.num_hidden_layers, heads, requires_grad=True)
    optimizer = torch.optim.Adam([value], lr=args.lr)
    for step in range(args.steps):
        ids = inputs[step % len(inputs)]
        first = ids.shape[1] // 4
        with torch.no_grad():
            gates.value = None
            want = model(ids).last_hidden_state[:, first:]
        gates.value = value
        got = model(ids).last_hidden_state[:, first:]
        apart = ((got - want) ** 2).sum() / (want ** 2).sum()
        optimizer.zero_grad()
        (apart + args.cost * value.mean()).backward()
        optimizer.step()
        with torch.no_grad():
            value.clamp_(0, 1)
        if step % 10 == 9:
            print(f"{heads} heads a layer, step {step + 1}: apart {apart:.4f}, gates {value.mean():.3f}",
                  file=sys.stderr)
    return value.detach().numpy().astype(np.float32)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", help="folder or name of a model of transformers")
    p.add_argument("--text", action="append", required=True, help="file; may be given again")
    p.add_argument("--fit", required=True, help="fit of clo for this model; it stays as it is")
    p.add_argument("-o", "--output", required=True)
    p.add_argument("--tokens", type=int, default=1024, help="of a text (1024)")
    p.add_argument("--sink", type=int, default=4)
    p.add_argument("--recent", type=int, default=64)
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--cost", type=float, default=0.05, help="of the gates (0.05)")
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--threads", type=int, default=1)
    args = p.parse_args()
    meta, header, data = read_fit(args.fit)
    try:
        import torch
        from transformers import AttentionInterface, AttentionMaskInterface, AutoModel, AutoTokenizer
        from transformers.masking_utils import sdpa_mask
    except ImportError as e:
        fail(f"{e.name} is missing: pip install -r scripts/requirements-train.txt")
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    gates = Gates(torch, args.sink, args.recent)
    AttentionInterface.register("habench_gates", gates)
    AttentionMaskInterface.register("habench_gates", sdpa_mask)
    model = AutoModel.from_pretrained(args.model, attn_implementation="habench_gates", dtype=torch.float32).eval()
    model.requires_grad_(False)
    config, tokenizer = model.config, AutoTokenizer.from_pretrained(args.model)
    for key, value in (("layers", config.num_hidden_layers), ("q_heads", config.num_attention_heads),
                       ("kv_heads", config.num_key_value_heads)):
        if str(value) != meta.get(key):
            fail(f"{args.model} has {key} '{value}', {args.fit} has '{meta.get(key)}'")
    inputs = []
    for path in args.text:
        try:
            with open(path, encoding="utf-8") as f:
                ids = tokenizer(f.read(), return_tensors="pt").input_ids[:, :args.tokens]
        except OSError as e:
            fail(e)
        if ids.shape[1] < 4 * (args.sink + args.recent):
            fail(f"{path}: {ids.shape[1]} tokens are too few")
        inputs.append(ids)
    tensors = {name: (e["dtype"], e["shape"], data[slice(*e["data_offsets"])]) for name, e in header.items()}
    for name, heads in (("importance_kv", config.num_key_value_heads), ("importance_q", config.num_attention_heads)):
        learnt = train(torch, model, gates, inputs, heads, args)
        for row in learnt:
            print(name, " ".join(f"{x:.3f}" for x in row))
        if name in tensors:
            own = np.frombuffer(tensors[name][2], "<f4")
            print(f"{name}: Spearman of gates and deviations {spearman(learnt, own):.3f}, {learnt.size} heads")
        tensors[name] = ("F32", list(learnt.shape), learnt.astype("<f4").tobytes())
    known = [text for text, _ in texts(meta)]
    for path in args.text:
        if os.path.basename(path) not in known:
            meta[f"text.{len(known)}"] = os.path.basename(path)
            known.append(os.path.basename(path))
    write_fit(args.output, meta, tensors)


if __name__ == "__main__":
    main()
