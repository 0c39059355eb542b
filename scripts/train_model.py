#!/usr/bin/env python3
"""Train the small Llama models whose attention is captured in datasets/traces.

The corpus is English text and source code from Debian packages, fetched with
"apt-get download" and unpacked with "dpkg-deb -x" (no root needed). Whole
documents are held out, chosen by a hash of their name, plus those in HOLDOUT.

Output in --out: config.json, model.safetensors (fp16), tokenizer.json,
loss.csv, corpus.json (packages and sizes), heldout/ (the held-out texts), with
--train-texts train/ (some of the others) and checkpoint.pt (float32 weights and
optimizer state; --resume continues from it).
"""

import argparse
import csv
import glob
import gzip
import hashlib
import html.parser
import json
import math
import os
import re
import subprocess
import sys
import tarfile
import time

# package, kind, include patterns (matched on the path inside the package), exclude
PACKAGES = [
    ("debian-handbook", "english", r"/html/en-US/[^/]*\.html$", r"index\.html|/ix01"),
    ("debian-policy", "english", r"/policy\.txt\.gz$", None),
    ("developers-reference", "english", r"/_sources/.*\.rst\.txt$", None),
    ("debian-reference-en", "english", r"/debian-reference\.en\.txt\.gz$", None),
    ("debian-faq", "english", r"/debian-faq\.en\.txt\.gz$", None),
    ("debian-history", "english", r"/project-history\.en\.txt(\.gz)?$", None),
    ("git-doc", "english", r"\.txt$", r"RelNotes"),
    ("jargon-text", "english", r"/jargon\.txt\.gz$", None),
    ("anarchism", "english", r"\.html$", r"index"),
    ("perl-doc", "english", r"\.pod$", r"/perl(cn|jp|ko|tw|5\d+delta|toc|uniprops)\.pod$"),
    ("postgresql-doc-15", "english", r"\.html$", r"/(bookindex|index|release|errcodes-appendix|.*legalnotice)"),
    ("libpython3.11-stdlib", "code", r"/usr/lib/python3\.11/.*\.py$", r"/encodings/|pydoc_data|entities\.py"),
    ("python3-django", "code", r"\.py$", r"/locale/|/migrations/"),
    ("perl-modules-5.36", "code", r"\.pm$", r"CoreList|/unicore/|/Locale/|/Unicode/Collate/"),
    ("golang-1.19-src", "code",
     r"/src/(net|os|io|bufio|bytes|strings|sort|sync|fmt|time|text|encoding|container|database|html|mime|path"
     r"|regexp|go)/.*\.go$", r"_test\.go$|tables|zbootstrap|h2_bundle|testdata|entity\.go"),
    ("linux-source-6.1", "code", None, None),
    ("bible-kjv", "tool", None, None),
    ("bible-kjv-text", "english", None, None),
]
LINUX_DIRS = ("kernel", "mm", "lib", "block", "ipc", "init", "fs/ext4", "virt/kvm")
HOLDOUT = [  # always held out; the traces come from these
    "debian-handbook/network-services.html", "debian-handbook/advanced-administration.html",
    "bible-kjv-text/Esther", "libpython3.11-stdlib/difflib.py", "libpython3.11-stdlib/shutil.py",
    "linux-source-6.1/mm/vmalloc.c",
]
HOLDOUT_ONE_IN = 40
MIN_CHARS, MAX_CHARS = 1000, 400_000
TRACE_CHARS = 16_000  # a text of --train-texts has this many or more: 2048 tokens for a trace
EOS = "<|endoftext|>"
EOS_ID = 0  # the first special token
EVAL_TOKENS = 32768  # held-out tokens per kind used in loss.csv


class TextOfHtml(html.parser.HTMLParser):
    """Collects the visible text of a page; block tags end a line."""

    SKIP = {"script", "style", "head", "nav"}
    BLOCK = {"p", "div", "br", "li", "tr", "pre", "h1", "h2", "h3", "h4", "h5", "dt", "dd", "table", "blockquote"}
    CHROME = re.compile(r"navheader|navfooter|docnav|breadcrumb|producttitle")

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.parts, self.skip, self.pre, self.chrome = [], 0, 0, []

    def handle_starttag(self, tag, attrs):
        if tag in self.SKIP:
            self.skip += 1
        if tag in ("div", "ul", "p"):
            hit = bool(self.CHROME.search(dict(attrs).get("class") or ""))
            self.chrome.append((tag, hit))
        self.pre += tag == "pre"
        if tag in self.BLOCK:
            self.parts.append("\n\n" if tag in ("p", "pre", "h1", "h2", "h3", "h4") else "\n")

    def handle_endtag(self, tag):
        if tag in self.SKIP:
            self.skip = max(0, self.skip - 1)
        while tag in ("div", "ul", "p") and self.chrome:
            if self.chrome.pop()[0] == tag:
                break
        if tag == "pre":
            self.pre = max(0, self.pre - 1)
        if tag in self.BLOCK:
            self.parts.append("\n")

    def handle_data(self, data):
        if self.skip or any(hit for _, hit in self.chrome):
            return
        self.parts.append(data if self.pre else re.sub(r"\s+", " ", data))


def strip_html(page):
    parser = TextOfHtml()
    parser.feed(page)
    lines = [line.rstrip() if line.startswith("  ") else line.strip() for line in "".join(parser.parts).split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def strip_pod(text):
    text = re.sub(r"[A-Z]<<+ (.*?) >>+", r"\1", text)
    return re.sub(r"[BICFLESX]<([^<>|]*\|)?([^<>]*)>", r"\2", text)


def read_text(path):
    with open(path, "rb") as f:
        data = f.read()
    if path.endswith(".gz"):
        data = gzip.decompress(data)
    text = data.decode("utf-8", errors="replace")
    if path.endswith(".html"):
        text = strip_html(text)
    elif path.endswith(".pod"):
        text = strip_pod(text)
    return text


def run(command, **kwargs):
    try:
        return subprocess.run(command, check=True, **kwargs)
    except FileNotFoundError:
        sys.exit(f"train_model: {command[0]} not found: the corpus needs a Debian or Ubuntu system")
    except subprocess.CalledProcessError as e:
        sys.exit(f"train_model: {' '.join(command)} failed with status {e.returncode}")


def fetch(package, cache):
    """Returns (unpacked folder, version); downloads only what the cache lacks."""
    found = glob.glob(os.path.join(cache, package + "_*.deb"))
    if not found:
        run(["apt-get", "download", "-q", package], cwd=cache, stdout=sys.stderr)
        found = glob.glob(os.path.join(cache, package + "_*.deb"))
    deb = sorted(found)[-1]
    version = os.path.basename(deb).split("_")[1].replace("%3a", ":")
    folder = os.path.join(cache, "unpacked", package)
    if not os.path.isdir(folder):
        os.makedirs(folder)
        run(["dpkg-deb", "-x", deb, folder])
    return folder, version


def linux_files(folder):
    source = glob.glob(os.path.join(folder, "usr/src/linux-source-*.tar.xz"))[0]
    with tarfile.open(source) as tar:
        for member in tar:
            path = member.name.split("/", 1)[-1]
            if member.isfile() and path.endswith((".c", ".h")) and path.startswith(tuple(d + "/" for d in LINUX_DIRS)):
                yield path, tar.extractfile(member).read().decode("utf-8", errors="replace")


def bible_books(cache):
    """The text is compressed; the package's own reader prints it."""
    reader = os.path.join(cache, "unpacked/bible-kjv/usr/bin/bible")
    data = os.path.join(cache, "unpacked/bible-kjv-text/usr/lib")
    out = run([reader, "-p", data], input=b"gen1:1-rev22:21\n", stdout=subprocess.PIPE).stdout.decode()
    books = {}
    for part in re.split(r"\n(?=\w[\w ]+ \d+\n\n)", out):
        head = re.match(r"\s*(\w[\w ]*?) \d+\n", part)
        if head:
            books[head.group(1)] = books.get(head.group(1), "") + part + "\n"
    return sorted(books.items())


def load_corpus(cache):
    """Returns ([(kind, name, text)], [{package, version, kind, ...}]), without duplicate texts."""
    cache = os.path.abspath(cache)
    os.makedirs(cache, exist_ok=True)
    docs, packages, seen = [], [], set()
    for package, kind, include, exclude in PACKAGES:
        folder, version = fetch(package, cache)
        files = []
        if package == "linux-source-6.1":
            files = list(linux_files(folder))
        elif package == "bible-kjv-text":
            files = bible_books(cache)
        elif include:
            for path in sorted(glob.glob(folder + "/**", recursive=True)):
                if os.path.isfile(path) and not os.path.islink(path) and re.search(include, path):
                    if not (exclude and re.search(exclude, path)):
                        files.append((path, None))
            root = os.path.commonpath([os.path.dirname(p) for p, _ in files]) if files else ""
            files = [(os.path.relpath(p, root), read_text(p)) for p, _ in files]
        used, chars = 0, 0
        for name, text in files:
            digest = hashlib.sha256(re.sub(r"\s+", "", text).encode()).digest()
            if len(text) < MIN_CHARS or digest in seen:
                continue
            seen.add(digest)
            for n, start in enumerate(range(0, len(text), MAX_CHARS)):
                docs.append((kind, f"{package}/{name}" + (f"#{n}" if n else ""), text[start:start + MAX_CHARS]))
            used, chars = used + 1, chars + len(text)
        packages.append({"package": package, "version": version, "kind": kind, "documents": used, "characters": chars})
        print(f"{package} {version}: {used} documents, {chars / 1e6:.2f} M characters", file=sys.stderr)
    return docs, packages


def hash_of(name):
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)


def is_heldout(name):
    name = name.split("#")[0]  # the parts of a long document stay together
    return name in HOLDOUT or hash_of(name) % HOLDOUT_ONE_IN == 0


def some_of(docs, count):
    """At most count long documents of each kind, from all packages in turn; a hash of the name gives the order."""
    packages, turns = {}, []
    for doc in sorted((d for d in docs if len(d[2]) >= TRACE_CHARS), key=lambda d: hash_of(d[1])):
        of = packages.setdefault(doc[1].split("/")[0], [])
        turns.append((len(of), doc))
        of.append(doc)
    turns = [doc for _, doc in sorted(turns, key=lambda turn: turn[0])]
    return [doc for kind in ("english", "code") for doc in [d for d in turns if d[0] == kind][:count]]


def write_texts(folder, docs):
    """A trace is named after its text; a name has no character that stands for something in a case's id."""
    for kind, name, text in docs:
        path = os.path.join(folder, kind, re.sub(r"[^A-Za-z0-9._-]", "_", name.replace("/", "__")) + ".txt")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(text)


def prepare(args):
    """Fetches and tokenizes once; later runs with the same --cache and --out read the result."""
    import numpy as np
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    packed = os.path.join(args.out, "tokens.npz")
    if os.path.exists(packed):
        return dict(np.load(packed))
    docs, packages = load_corpus(args.cache)
    train = [d for d in docs if not is_heldout(d[1])]
    heldout = [d for d in docs if is_heldout(d[1])]
    missing = [name for name in HOLDOUT if name not in {d[1] for d in heldout}]
    if missing:
        sys.exit(f"train_model: not in the corpus: {', '.join(missing)}")

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=args.vocab, special_tokens=[EOS], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator((text[:20000] for _, _, text in train), trainer)

    arrays, counts = {}, {}
    rng = np.random.default_rng(args.seed)
    for split, part in (("train", train), ("heldout", heldout)):
        for kind in ("english", "code"):
            texts = [t for k, _, t in part if k == kind]
            order = rng.permutation(len(texts))
            ids = []
            for begin in range(0, len(order), 256):
                for enc in tokenizer.encode_batch([texts[i] for i in order[begin:begin + 256]]):
                    ids.append(np.array(enc.ids + [EOS_ID], dtype=np.uint16))
            arrays[f"{split}_{kind}"] = np.concatenate(ids)
            counts[f"{split}_{kind}"] = {"documents": len(texts), "tokens": int(arrays[f"{split}_{kind}"].size)}
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{EOS} $A", special_tokens=[(EOS, EOS_ID)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=EOS, eos_token=EOS,
                            model_max_length=4096).save_pretrained(args.out)
    write_texts(os.path.join(args.out, "heldout"), heldout)
    write_texts(os.path.join(args.out, "train"), some_of(train, args.train_texts))
    with open(os.path.join(args.out, "corpus.json"), "w") as f:
        json.dump({"packages": packages, "splits": counts}, f, indent=1)
    print(json.dumps(counts), file=sys.stderr)
    np.savez(packed, **arrays)
    return arrays


def begin_with_eos(tokens):
    tokens = tokens.astype("int64")
    tokens[0] = EOS_ID
    return tokens


class Chunks:
    """Endless shuffled chunks of EOS and ctx tokens; each pass starts at a new offset.

    The first token is always EOS, as it is when the model is used: it can serve as an attention sink.
    """

    def __init__(self, tokens, ctx, rng):
        self.tokens, self.ctx, self.rng, self.order = tokens, ctx, rng, []

    def next(self):
        if len(self.order) == 0:
            offset = int(self.rng.integers(0, self.ctx))
            starts = range(offset, len(self.tokens) - self.ctx - 1, self.ctx)
            self.order = list(self.rng.permutation(list(starts)))
        start = self.order.pop()
        return begin_with_eos(self.tokens[start:start + self.ctx + 1])


def rotary_table(torch, tokens, config):
    half = config.head_dim // 2
    theta = config.rope_parameters["rope_theta"]
    angle = torch.arange(tokens)[:, None] * theta ** (-torch.arange(half) / half)
    return torch.cat([angle.cos()] * 2, 1), torch.cat([angle.sin()] * 2, 1)


def forward(torch, model, x, table):
    """The logits of LlamaForCausalLM, with fewer conversions than its own forward: twice as fast under autocast.

    train() compares the two before it starts.
    """
    F, config = torch.nn.functional, model.config
    cos, sin = table
    batch, tokens = x.shape

    def norm(h, layer):
        return layer.weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps))

    def heads(y, projection):
        return projection(y).view(batch, tokens, -1, config.head_dim).transpose(1, 2)

    def rotate(a):
        lo, hi = a.chunk(2, -1)
        return (a * cos + torch.cat([-hi, lo], -1) * sin).to(a.dtype)

    h = F.embedding(x, model.model.embed_tokens.weight)
    for layer in model.model.layers:
        at, mlp = layer.self_attn, layer.mlp
        y = norm(h, layer.input_layernorm)
        q, k, v = rotate(heads(y, at.q_proj)), rotate(heads(y, at.k_proj)), heads(y, at.v_proj)
        group = q.shape[1] // k.shape[1]
        a = F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1),
                                           is_causal=True)
        h = h + at.o_proj(a.transpose(1, 2).reshape(batch, tokens, -1))
        y = norm(h, layer.post_attention_layernorm)
        h = h + mlp.down_proj(F.silu(mlp.gate_proj(y)) * mlp.up_proj(y))
    return F.linear(norm(h, model.model.norm), model.model.embed_tokens.weight)


def evaluate(torch, model, tokens, ctx, limit, loss_of):
    """Mean loss per token over disjoint windows of ctx tokens."""
    windows = min(len(tokens) - 1, limit) // ctx
    total = 0.0
    model.eval()
    with torch.no_grad():
        for w in range(windows):
            x = torch.from_numpy(begin_with_eos(tokens[w * ctx:w * ctx + ctx + 1]))[None]
            total += loss_of(x).item()
    model.train()
    return total / max(windows, 1)


def save(torch, model, args, state):
    from safetensors.torch import save_file

    model.config.dtype = "float16"
    model.config.save_pretrained(args.out)
    weights = {k: v.detach().to(torch.float16).contiguous() for k, v in model.state_dict().items()
               if k != "lm_head.weight"}  # tied to the embedding
    path = os.path.join(args.out, "model.safetensors")
    save_file(weights, path + ".new", metadata={"format": "pt"})
    os.replace(path + ".new", path)
    path = os.path.join(args.out, "checkpoint.pt")
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def train(args):
    try:
        import numpy as np
        import torch
        import torch.nn.functional as F
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as e:
        sys.exit(f"train_model: {e.name} is missing: pip install -r scripts/requirements-train.txt")
    os.makedirs(args.out, exist_ok=True)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    data = prepare(args)
    if args.prepare_only:
        return

    config = LlamaConfig(
        vocab_size=args.vocab, hidden_size=args.width, intermediate_size=args.mlp, num_hidden_layers=args.layers,
        num_attention_heads=args.heads, num_key_value_heads=2, head_dim=64, max_position_embeddings=4096,
        tie_word_embeddings=True, bos_token_id=EOS_ID, eos_token_id=EOS_ID, pad_token_id=None,
        rms_norm_eps=1e-5, attn_implementation="sdpa")
    model = LlamaForCausalLM(config)
    model.train()
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                                  lr=args.lr, betas=(0.9, 0.95), fused=True)
    autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16)

    tables = {ctx: rotary_table(torch, ctx, config) for ctx in (args.short, args.long)}

    def loss_of(x):
        with autocast:
            logits = forward(torch, model, x[:, :-1], tables[x.shape[1] - 1])
        return F.cross_entropy(logits.float().reshape(-1, args.vocab), x[:, 1:].reshape(-1))

    with torch.no_grad():
        probe = torch.from_numpy(data["heldout_code"][:args.short].astype("int64"))[None]
        want, got = model(input_ids=probe, use_cache=False).logits, forward(torch, model, probe, tables[args.short])
        error = ((got - want).norm() / want.norm()).item()
        if not error < 1e-4:
            sys.exit(f"train_model: forward() is not this version's LlamaForCausalLM (relative difference {error:.1e})")

    step, tokens, spent = 0, 0, 0.0  # spent: training seconds, held-out evaluation included
    rows = []
    if args.resume:
        state = torch.load(os.path.join(args.out, "checkpoint.pt"), weights_only=False)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, tokens, spent, rows = state["step"], state["tokens"], state["spent"], state["rows"]
    budget = args.minutes * 60
    started = time.monotonic() - spent
    rng = np.random.default_rng((args.seed, step))
    ctx, streams, recent = 0, [], []
    next_eval = spent + (0 if step == 0 else args.eval_minutes * 60)
    while True:
        spent = time.monotonic() - started
        if spent >= next_eval or spent >= budget:
            eval_ctx = ctx or args.short
            held = [evaluate(torch, model, data[f"heldout_{k}"], eval_ctx, EVAL_TOKENS, loss_of)
                    for k in ("english", "code")]
            mean = sum(recent) / len(recent) if recent else float("nan")
            rows.append([step, tokens, round(spent / 60, 2), eval_ctx, round(mean, 4),
                         round(held[0], 4), round(held[1], 4)])
            with open(os.path.join(args.out, "loss.csv"), "w", newline="") as f:
                out = csv.writer(f, lineterminator="\n")
                out.writerow(["step", "tokens", "minutes", "ctx", "train_loss",
                              "heldout_english_loss", "heldout_code_loss"])
                out.writerows(rows)
            print("step %d tokens %d minutes %.2f ctx %d train %.4f english %.4f code %.4f" % tuple(rows[-1]),
                  flush=True)
            recent = []
            save(torch, model, args, {"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                                      "step": step, "tokens": tokens, "spent": spent, "rows": rows})
            next_eval = spent + args.eval_minutes * 60
            if spent >= budget:
                break
        done = spent / budget
        want = args.short if done < args.switch else args.long
        if want != ctx:
            ctx = want
            streams = [Chunks(data["train_english"], ctx, rng), Chunks(data["train_code"], ctx, rng)]
        warm = min(1.0, (step + 1) / args.warmup)
        lr = args.lr * warm * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * min(done, 1.0))))
        for group in optimizer.param_groups:
            group["lr"] = lr
        batch = max(2, args.batch // ctx)
        x = torch.from_numpy(np.stack([streams[i % 2].next() for i in range(batch)]))
        loss = loss_of(x)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recent.append(loss.item())
        step, tokens = step + 1, tokens + batch * ctx

    final = [evaluate(torch, model, data[f"heldout_{k}"], args.long, 1 << 40, loss_of) for k in ("english", "code")]
    print("final held-out perplexity at context %d: english %.2f code %.2f"
          % (args.long, math.exp(final[0]), math.exp(final[1])))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", required=True, help="folder for the model, the loss curve and the held-out texts")
    p.add_argument("--cache", required=True, help="folder for downloaded and unpacked packages (about 1 GB)")
    p.add_argument("--minutes", type=float, default=75, help="time budget; the learning rate follows it [%(default)s]")
    p.add_argument("--threads", type=int, default=2, help="CPU threads [%(default)s]")
    p.add_argument("--seed", type=int, default=1, help="seed of initial weights and of the data order [%(default)s]")
    p.add_argument("--layers", type=int, default=4, help="layers [%(default)s]")
    p.add_argument("--width", type=int, default=256, help="width of the residual stream [%(default)s]")
    p.add_argument("--mlp", type=int, default=704, help="width of the MLP [%(default)s]")
    p.add_argument("--heads", type=int, default=8, help="query heads of 64, for 2 KV heads [%(default)s]")
    p.add_argument("--vocab", type=int, default=4096, help="tokens in the vocabulary [%(default)s]")
    p.add_argument("--short", type=int, default=512, help="context of the first part [%(default)s]")
    p.add_argument("--long", type=int, default=2048, help="context of the last part [%(default)s]")
    p.add_argument("--switch", type=float, default=0.62, help="share of the time at the short context [%(default)s]")
    p.add_argument("--batch", type=int, default=4096, help="tokens per step [%(default)s]")
    p.add_argument("--lr", type=float, default=2e-3, help="peak learning rate [%(default)s]")
    p.add_argument("--warmup", type=int, default=100, help="warm-up steps [%(default)s]")
    p.add_argument("--eval-minutes", type=float, default=4, help="minutes between checkpoints [%(default)s]")
    p.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    p.add_argument("--resume", action="store_true", help="continue from --out/checkpoint.pt")
    p.add_argument("--train-texts", type=int, default=0, metavar="N",
                   help="as the corpus is prepared, also write N training texts of each kind, long enough for a trace "
                        "[none]")
    p.add_argument("--prepare-only", action="store_true", help="fetch and tokenize, then stop")
    train(p.parse_args())


if __name__ == "__main__":
    main()
