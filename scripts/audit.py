#!/usr/bin/env python3
"""Recompute a run from what went in, and say where habench is wrong.

Reads the files that `habench check ... --dump DIR` has written and computes in extended precision, from the definitions
in docs/audit.md alone: the keys that each variant must have used, attention over the keys that it reports with the
queries and keys that it reports, its LSE, the bounds on both, error over bound, and the softmax mass. Nothing that
habench computed is believed: its outputs are held against the bounds found here, and its reference, bounds and verdicts
against what was found here. A line a case, and below it what its states have of their own, and its notes:

  ok NAME: 48 rows of attention over 3 steps: error/bound 0.047; reference off by 2.1e-12 of the bound, bounds by 3e-13
    states of their own: 24 with a query, 12 with keys
    note hit: of 12 heads, from 0 to 1, mean 0.417
  WRONG NAME: layer 0 seq 0 step 1 head 3 token 0: out[17] is 1.25, not 0.731: error/bound 8.8e+04; 2 rows of 48

exit codes: 0 all is right, 10 something is wrong, 20 a file is missing or damaged, or could not be judged, 64 usage, 77
nothing was looked at (numpy is missing, or there is no file)
"""

import argparse
import json
import os
import struct
import sys

try:
    import numpy as np
except ImportError:
    print("audit.py: numpy is missing, nothing was looked at: apt install python3-numpy, or pip install numpy",
          file=sys.stderr)
    sys.exit(77)

np.seterr(all="ignore")  # what comes to infinity or NaN is wrong wherever it is compared
REAL = np.longdouble
U, ETA = REAL(2) ** -24, REAL(2) ** -126  # unit roundoff and least normal number of binary32
FLT_MAX = (2 - REAL(2) ** -23) * REAL(2) ** 127
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "U32": "<u4", "U8": "u1"}
UNIT = [(REAL(0), REAL(0)), (REAL(2) ** -11, REAL(2) ** -25), (REAL(2) ** -8, REAL(2) ** -134)]  # f32, f16, bf16
SIDE_OF = ("nothing", "the device", "the host")
CLAIMS = ("dot_lanes", "dot_extra", "sum_lanes", "sum_extra", "exp_eps", "log_eps", "join_keys", "joins_max",
          "weight_type", "out_type", "lse_type", "sum_rounded", "truncates", "exact_joins", "runs")
MOST = dict(dot_extra=256, sum_extra=256, exp_eps=2.0 ** -16, log_eps=2.0 ** -11, sum_rounded=1, truncates=1,
            exact_joins=1)  # that may be claimed


class Damaged(Exception):
    """The file is not what docs/audit.md describes."""


class Wrong(Exception):
    """What habench reports differs from the definition."""


# ---- the file -------------------------------------------------------------------------------------------------------

class Dump:
    """A file: numbers and words of its metadata, tensors by layer, sequence and name."""

    def __init__(self, path):
        try:
            with open(path, "rb") as file:
                blob = file.read()
            (length,) = struct.unpack_from("<Q", blob)
            self.header = json.loads(blob[8:8 + length].decode())
            self.meta = self.header.pop("__metadata__")
            kind = self.meta["format"], self.meta["version"]
        except (struct.error, ValueError, KeyError, AttributeError, TypeError):
            raise Damaged("not a dump: the file is cut off, or its header is damaged") from None
        if kind not in (("habench-dump", "2"), ("habench-dump", "3")):
            raise Damaged(f"{kind[0]} of version {kind[1]}: this script reads habench-dump of versions 2 and 3")
        self.data = memoryview(blob)[8 + length:]
        self.ctx = [int(x) for x in self.word("ctx").split("+")]
        for name in ("layers", "batch", "q_heads", "kv_heads", "head_dim", "q_len", "steps", "observed"):
            setattr(self, name, int(self.number("shape." + name)))
        self.depth, self.known = {}, {}
        if len(self.ctx) == 1:
            self.ctx *= self.batch
        if len(self.ctx) != self.batch or min(self.layers, self.batch, self.kv_heads, self.q_len, self.steps) < 1 \
                or self.q_heads % self.kv_heads:
            raise Damaged("its shape contradicts itself")

    def word(self, key):
        if not isinstance(self.meta.get(key), str):
            raise Damaged(f"its metadata has no {key}")
        return self.meta[key]

    def number(self, key):
        try:
            return float(self.word(key))
        except ValueError:
            raise Damaged(f"its {key} is '{self.meta[key]}', not a number") from None

    def claims(self, of):
        """By name. of: device, host, either (the weaker of both in each respect) or profileN."""
        if of not in self.known:
            self.known[of] = weaker(self.claims("device"), self.claims("host")) if of == "either" else \
                {name: self.number(f"{of}.{name}") for name in CLAIMS}
            for name, value in self.known[of].items():
                least, end = int(name.endswith("_lanes")), 3 if name.endswith("_type") else 2 ** 32
                if not name.endswith("_eps") and not least <= value < end:
                    raise Damaged(f"its {of}.{name} is {value:g}, not from {least} to {end - 1}")
        return self.known[of]

    def may_claim(self, of):
        """Raises Wrong where no kernel lies that claims so much: docs/measurement.md, "What may be claimed"."""
        for name, most in MOST.items():
            if not 0 <= self.claims(of)[name] <= most:
                raise Wrong(f"its {of}.{name} is {self.claims(of)[name]:g}, not from 0 to {most:g}")

    def depths(self, side, keys, runs=None):
        """runs: None, or in place of those that are claimed"""
        if (side, keys, runs) not in self.depth:
            self.depth[side, keys, runs] = Depths(self, side, keys, runs)
        return self.depth[side, keys, runs]

    def own(self, layer, seq, name, *shape):
        """A tensor that is left out where it would be all 0."""
        if f"layer{layer}.seq{seq}.{name}" in self.header:
            return self.tensor(layer, seq, name, *shape)
        return np.zeros([0 if n is None else n for n in shape], np.uint32)

    def notes(self, layer, seq):
        """By name: [steps][q_heads]"""
        begin = f"layer{layer}.seq{seq}.note."
        return {key[len(begin):]: self.tensor(layer, seq, key[len(begin) - len("note."):], self.steps, self.q_heads)
                for key in self.header if key.startswith(begin)}

    def tensor(self, layer, seq, name, *shape):
        """Of the given shape, as binary numbers can hold it. A first length of None: as many as there are."""
        name = f"layer{layer}.seq{seq}.{name}"
        try:
            entry = self.header[name]
            begin, end = entry["data_offsets"]
            kind = np.dtype(TYPES[entry["dtype"]])
            if shape[0] is None:
                shape = (*entry["shape"][:1], *shape[1:])
            if entry["shape"] != list(shape) or not 0 <= begin <= end <= len(self.data) \
                    or end - begin != kind.itemsize * int(np.prod(shape)):
                raise Damaged(f"tensor {name} is not of shape {shape}, or is cut off")
            flat = np.frombuffer(self.data[begin:end], kind)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise Damaged(f"tensor {name} is missing or damaged") from None
        if entry["dtype"] == "BF16":
            flat = (flat.astype(np.uint32) << 16).view(np.float32)
        return flat.reshape(shape)


# ---- attention and its bound ----------------------------------------------------------------------------------------

def weaker(a, b):
    """What holds whichever of both computed: docs/audit.md, below "From claims to depths"."""
    out = {name: max(a[name], b[name]) for name in CLAIMS}
    for name in ("dot_lanes", "sum_lanes", "exact_joins"):
        out[name] = min(a[name], b[name])
    path = lambda claims, keys: np.ceil(keys / claims["sum_lanes"]) + claims["sum_extra"]
    chunks = [x["join_keys"] or 2048 for x in (a, b)]
    out["join_keys"] = min(chunks)
    if chunks[0] != chunks[1]:
        out["sum_extra"] += max(0, max(map(path, (a, b), chunks)) - path(out, min(chunks)))
    if not (a["joins_max"] and b["joins_max"]):
        out["joins_max"] = 0
    return out


def gamma(h):
    return h * U / (1 - h * U) if h * U < 1 else REAL("inf")


class Depths:
    """What a side's claims make of a row over `keys` keys: docs/audit.md, "From claims to depths"."""

    def __init__(self, dump, side, keys, runs):
        claims = dump.claims(side)
        claim = claims.__getitem__
        chunk = int(claim("join_keys")) or 2048
        ends = min(int(claim("runs") if runs is None else runs), keys)
        chunks = ends + (keys - ends) // chunk if keys else 0
        joins = max(chunks - 1, 0)
        if claim("joins_max"):
            joins = min(joins, int(claim("joins_max")))
        exact, twice = claim("exact_joins") == 1, 2 if claim("truncates") else 1
        rounded = chunks > 1 and not exact
        parts, split = -(-keys // 128), 0
        while exact and parts > 1:
            parts, split = -(-parts // 2), split + 1
        path = lambda terms, name: -(-terms // int(claim(name + "_lanes"))) + int(claim(name + "_extra"))
        self.dot = REAL(twice * path(dump.head_dim, "dot"))
        self.sum = REAL(twice * path(min(keys, chunk), "sum") + 1 + joins + (4 if rounded else 0) + split)
        self.rescales = REAL(joins if rounded else 0)
        self.exp = REAL(claim("exp_eps")) + (3 * U if exact else 0)
        self.log = REAL(claim("log_eps"))
        self.score, self.shift = (4, 4) if rounded else (2, 3)
        weight = UNIT[int(claim("weight_type"))]
        if weight[0]:
            weight = weight[0], max(weight[1], ETA)
        none = UNIT[0]
        self.weight, self.both = (none, weight) if claim("sum_rounded") else (weight, none)
        self.out, self.lse = UNIT[int(claim("out_type"))], UNIT[int(claim("lse_type"))]
        self.dot_extra, self.sum_extra, self.exp_eps = claim("dot_extra"), claim("sum_extra"), REAL(claim("exp_eps"))

    def leave_room(self, of, head_dim, keys):
        """Raises Wrong where so many keys leave no room for what is claimed: docs/measurement.md, "What may be claimed"."""
        for name, extra, terms in (("dot_extra", self.dot_extra, head_dim), ("sum_extra", self.sum_extra, keys)):
            if not extra <= terms + 128:
                raise Wrong(f"{of}: {name} is {extra:.0f}, more than 128 beside its {terms} terms")
        for what, off in (("a weight", np.expm1((1 + self.rescales) * self.exp_eps)), ("a sum", gamma(
                self.sum + self.rescales))):
            if not off <= 0.125:
                raise Wrong(f"{of}: {what} over {keys} keys may be off by {float(off):.2g} of itself, more than 1/8")


def drift(h):
    """The most that h roundings move a logarithm by."""
    return h * U * (1 + U)


def quotient(value, bound):
    return bound + 3 * U * (value + bound) + ETA


def rounded_to(value, bound, unit):
    return bound + unit[0] * (value + bound) + unit[1] if unit[0] else bound


class Softmax:
    """The weights of one query's keys, and what each may be off by."""

    def __init__(self, scores, sizes, depths):
        """scores: c q.k; sizes: c sum |q k|"""
        d, n, m = depths, len(scores), scores.max()
        w = np.exp(scores - m)
        self.max, self.sum = m, w.sum()
        self.p, ln_p = w / self.sum, scores - m - np.log(self.sum)
        eps = (gamma(d.dot) + d.score * U) * sizes + d.shift * U * (m - scores) + (1 + d.rescales) * d.exp + d.both[0]
        self.p_theta = np.where(eps < 1, self.p * np.expm1(np.minimum(eps, 1)), np.exp(ln_p + eps) - self.p)
        self.lost = n * ETA / self.sum + n * d.both[1] / self.sum
        self.theta = self.p_theta.sum() + self.lost

    def errors(self, d):
        """Of each weight, normalised."""
        if not self.theta < 1:
            return np.ones(len(self.p), REAL)
        sums = gamma(d.sum + d.rescales + 3) + d.weight[0]
        return np.minimum((self.p_theta + self.p * (self.theta + sums)) / (1 - self.theta) + ETA, 1)


class State:
    """Attention of one query over some keys: o, L, what each may be off by, and the range that o is in."""

    def __init__(self, scores, sizes, v, depths):
        """v: [keys][head_dim]"""
        n = len(scores)
        self.keys, self.empty = n, n == 0
        if self.empty:
            self.o = self.bound = self.least = self.most = np.zeros(v.shape[1], REAL)
            self.lse, self.lse_bound = REAL("-inf"), REAL(0)
            return
        d, soft = depths, Softmax(scores, sizes, depths)
        p, p_theta, theta, lost, m, total = soft.p, soft.p_theta, soft.theta, soft.lost, soft.max, soft.sum
        self.o, self.lse = p @ v, m + np.log(total)
        g, top, size = gamma(d.sum + d.rescales), np.abs(v).max(axis=0), np.abs(self.o)
        reach = None if theta < 1 and g < 1 else Reach(scores, sizes, m, d)
        self.widen(v, reach, d)
        if reach is None:
            b1 = (p_theta @ np.abs(v - self.o) + lost * (top + size)) / (1 - theta)
            a = (p @ np.abs(v) + p_theta @ np.abs(v) + lost * top) / (1 - theta)
            b2 = ((g + d.weight[0] * (1 + g)) * a + (size + b1) * g) / (1 - g) + n * (d.weight[1] * top + ETA) / total
            self.bound = rounded_to(size, quotient(size, b1 + b2), d.out)
            off = -np.log1p(-theta) - np.log1p(-g) + d.log * (abs(np.log(total)) + REAL("1e-3"))
        else:
            self.bound = np.maximum(self.o - self.least, self.most - self.o)
            off = reach.most * (1 + 8 * U) + drift(d.sum + d.rescales) + 2 * n * (ETA + d.both[1]) \
                + (1 + d.rescales) * d.exp * (1 + d.exp) + d.both[0] * (1 + d.both[0]) \
                + d.log * (np.log(REAL(reach.keys.sum())) + REAL("1e-3"))
        self.lse_bound = rounded_to(abs(self.lse), off + 3 * U * abs(m) + U * abs(self.lse), d.lse)

    def leave_values_out(self):
        """Its keys count in the denominator alone."""
        self.o = self.bound = self.least = self.most = np.zeros(len(self.o), REAL)

    def widen(self, v, reach, d):
        """The range that o is in: that of the values that may weigh, and what rounding adds."""
        keys = np.full(self.keys, True) if reach is None else reach.keys
        least, most = v[keys].min(axis=0), v[keys].max(axis=0)
        top = np.maximum(np.abs(least), np.abs(most))
        slack = np.expm1(2 * drift(d.sum + d.rescales) + np.log1p(d.weight[0])) * top
        slack += 2 * (keys.sum() * d.weight[1] * top + self.keys * ETA * (1 + np.abs(v).max(axis=0)))
        slack = rounded_to(top, quotient(top, slack), d.out)
        self.least, self.most = least - slack, most + slack


class Reach:
    """Where the roundings of the scores are units: the keys that may weigh anything, and the most that theirs are off by."""

    def __init__(self, scores, sizes, m, d):
        e = (np.expm1(drift(d.dot)) + d.score * U) * sizes + d.shift * U * (m - scores)
        self.keys = scores + e >= (scores - e).max() - 104
        self.most = e[self.keys].max()


def merged(dump, states):
    """The merge of the parts' states, in the natural form."""
    live = [s for s in states if not s.empty]
    if len(live) < 2:
        return live[0] if live else states[0]
    claim = lambda name: REAL(dump.number("merge." + name))
    count, out = len(live), State.__new__(State)
    rescales = claim("rescales") * (count - 1)
    h = count + claim("depth_extra") + rescales
    g, g2 = gamma(h), gamma(h + 2)
    top = max(s.lse for s in live)
    weight = np.array([np.exp(s.lse - top) for s in live])
    total = weight.sum()
    out.keys, out.empty = sum(s.keys for s in live), False
    out.lse = top + np.log(total)
    share = weight / total
    out.o = sum(x * s.o for x, s in zip(share, live))
    exp, flush = (1 + rescales) * claim("exp_eps"), (1 + claim("rescales")) * ETA
    moved = np.array([s.lse_bound + 3 * U * (top - s.lse + s.lse_bound) for s in live])
    ln_share = np.array([s.lse - out.lse for s in live])
    off = np.where(moved < 1, share * np.expm1(np.minimum(moved + exp, 2)), np.exp(ln_share + moved + exp) - share)
    off = off + 2 * flush / total
    t, theta, size, lse = off + flush, off.sum(), np.abs(out.o), np.array([s.lse for s in live])
    known, linear = theta < 1 and g2 < 1, moved + exp * (1 + exp)
    weighs = np.full(count, True) if known else lse + linear >= (lse - linear).max() - 104
    least = np.min([s.least for s, x in zip(live, weighs) if x], axis=0)
    most = np.max([s.most for s, x in zip(live, weighs) if x], axis=0)
    peak = np.maximum(np.abs(least), np.abs(most))
    every = np.max([np.maximum(np.abs(s.least), np.abs(s.most)) for s in live], axis=0)
    slack = quotient(peak, np.expm1(2 * drift(h + 2)) * peak + 2 * count * flush * (1 + every))
    out.least, out.most = least - slack, most + slack
    if known:
        b1 = (sum(x * np.abs(s.o - out.o) for x, s in zip(t, live))
              + sum((x + y) * s.bound for x, y, s in zip(share, t, live))) / (1 - theta)
        a = sum((x + y) * (np.abs(s.o) + s.bound) for x, y, s in zip(share, t, live)) / (1 - theta)
        out.bound = quotient(size, (b1 + g2 * a + g * size) / (1 - g) + count * flush * (1 + 1 / total))
        out.lse_bound = -np.log1p(-theta) - np.log1p(-g)
    else:
        out.bound, out.lse_bound = np.maximum(out.o - out.least, out.most - out.o), REAL("inf")
    log_sum = np.log(total)
    if not (known and theta <= 0.5):
        lost = 2 * count * flush
        weighs = lse + linear >= (lse - linear).max() - 104
        out.lse_bound = min(out.lse_bound, linear[weighs].max() * (1 + 8 * U) + drift(h) + lost * (1 + lost))
        log_sum = max(log_sum, np.log(REAL(count)))
    out.lse_bound += claim("log_eps") * (log_sum + REAL("1e-3")) + U * abs(out.lse)
    return out


# ---- the keys that a variant must use -------------------------------------------------------------------------------

class Weights:
    """Softmax weights of some queries over some keys, averaged over the queries, and what they may be off by."""

    def __init__(self, dump, side, q, k, visible):
        """q: [queries][head_dim]; k: [keys][head_dim]; visible[i][j]: query i sees key j"""
        count, n = len(q), len(k)
        self.mean, self.error = np.zeros(n, REAL), np.zeros(n, REAL)
        scale = REAL(dump.number("scale"))
        for i in range(count):
            seen = np.flatnonzero(visible[i])
            if not len(seen):
                continue
            depths = dump.depths(side, len(seen))
            w = Softmax(k[seen] @ q[i] * scale, np.abs(k[seen]) @ np.abs(q[i]) * scale, depths)
            self.mean[seen] += w.p
            self.error[seen] += w.errors(depths)
        self.mean /= max(count, 1)
        self.error = self.error / max(count, 1) + (count + 2) * U * self.mean


class Head:
    """One query head of one layer and sequence: its keys, its queries, and where it stands."""

    def __init__(self, dump, k, observed, ctx):
        self.dump, self.k, self.observed, self.ctx, self.notes = dump, k, observed, ctx, {}
        first = ctx - len(observed) + np.arange(len(observed))
        self.seen_before = np.arange(ctx)[None, :] <= first[:, None]  # by each observed query

    @staticmethod
    def judge_layer(heads):
        """What only all heads together can say of a step."""

    def judge(self, step, q, mark, padding):
        """Raises Wrong where the keys of a step are not those of the definition, and goes to the next."""

    def param(self, name):
        return self.dump.number("param." + name)

    def note(self, name):
        """What the step reports by this name, NaN where it reports nothing."""
        return self.notes.get(name, np.nan)

    def now(self, step):
        """The tokens before a step's own, and after."""
        before = self.ctx + step * self.dump.q_len
        return before, before + self.dump.q_len

    def sees(self, step, keys):
        """[q_len][keys]: what each query token of a step sees of these"""
        before, _ = self.now(step)
        return keys[None, :] <= before + np.arange(self.dump.q_len)[:, None]


def compare(want, mark):
    """want, mark: for each token 0 nothing, 1 the device, 2 the host"""
    bad = np.flatnonzero(want != mark)
    if len(bad):
        raise Wrong(f"key {bad[0]} is used by {SIDE_OF[mark[bad[0]]]}, by definition by {SIDE_OF[want[bad[0]]]}"
                    f" ({len(bad)} keys differ)")


class Full(Head):
    side = 1

    def judge(self, step, q, mark, padding):
        compare(np.full(len(mark), self.side), mark)


class FullOnHost(Full):
    side = 2


class Streaming(Head):
    def judge(self, step, q, mark, padding):
        total, token = len(mark), np.arange(len(mark))
        window = max(self.param("window"), self.dump.q_len)
        compare(np.where((token < self.param("sink")) | (token >= total - window), 1, 0), mark)


class H2o(Head):
    """Sums of weights, a set of heavy tokens that only shrinks, and the most recent ones."""

    def __init__(self, *args):
        super().__init__(*args)
        budget = lambda name: max(1, int(np.floor(self.param(name) * self.ctx)))
        self.heavy, self.recent = budget("heavy"), budget("recent")
        w = Weights(self.dump, "device", self.observed, self.k[:self.ctx], self.seen_before)
        self.candidates = np.arange(self.ctx)
        self.score, self.error = w.mean * len(self.observed), w.error * len(self.observed)

    def judge(self, step, q, mark, padding):
        before, after = self.now(step)
        kept = np.flatnonzero(mark[:before] == 1)
        if (mark == 2).any() or not (mark[before:] == 1).all():
            raise Wrong("a new token is not used, or one by the host")
        self.choose(kept, before)
        keys = np.concatenate((kept, np.arange(before, after)))
        w = Weights(self.dump, "device", q, self.k[keys], self.sees(step, keys))
        place = np.searchsorted(self.candidates, kept)
        old = lambda x: np.concatenate((x[place], np.zeros(self.dump.q_len, REAL)))
        self.score, self.error = old(self.score) + w.mean, old(self.error) + w.error
        self.error = self.error + 2 * U * self.score
        self.candidates = keys

    def choose(self, kept, total):
        """Are these the candidates that are kept? Of those within rounding of each other either may be."""
        is_recent = self.candidates >= total - self.recent
        if not np.isin(kept, self.candidates).all():
            raise Wrong(f"key {kept[~np.isin(kept, self.candidates)][0]} is used, which was evicted")
        is_kept = np.isin(self.candidates, kept)
        if not is_kept[is_recent].all():
            raise Wrong(f"key {self.candidates[is_recent & ~is_kept][0]} is recent, and is not used")
        old = ~is_recent
        if (is_kept & old).sum() != min(self.heavy, old.sum()):
            raise Wrong(f"{(is_kept & old).sum()} heavy keys are used, not {min(self.heavy, old.sum())}")
        inside, outside = np.flatnonzero(is_kept & old), np.flatnonzero(~is_kept & old)
        if not len(inside) or not len(outside):
            return
        low = inside[np.argmin(self.score[inside] + self.error[inside])]
        high = outside[np.argmax(self.score[outside] - self.error[outside])]
        gap = self.score[high] - self.error[high] - self.score[low] - self.error[low]
        if gap > 0:
            raise Wrong(f"key {self.candidates[low]} is used with a weight of {float(self.score[low]):.6g} so far, key "
                        f"{self.candidates[high]} with {float(self.score[high]):.6g} is not")
        equal = lambda where: where[(self.score[where] == 0) & (self.error[where] == 0)]
        if len(equal(inside)) and len(equal(outside)) and equal(inside)[-1] > equal(outside)[0]:
            raise Wrong(f"key {self.candidates[equal(inside)[-1]]} is used, which weighs nothing like the earlier key "
                        f"{self.candidates[equal(outside)[0]]}, which is not")


class Hgca(Head):
    """A ring on the device with a moving average for each entry; of all others those that were salient."""

    def __init__(self, *args):
        super().__init__(*args)
        block = int(self.param("blk_size"))
        self.block, self.most = block, block * int(self.param("blk_num"))
        self.first = self.left(0, self.ctx)  # the ring holds [first, tokens)
        ring, host = slice(self.first, self.ctx), slice(0, self.first)
        of = lambda side, keys: Weights(self.dump, side, self.observed, self.k[keys], self.seen_before[:, keys])
        w = of("device", ring)
        self.maw, self.error = w.mean, w.error
        self.salient(np.arange(self.first), of("host", host), self.first)

    def left(self, first, total):
        """Where the ring begins after eviction."""
        over = total - first - self.most
        return first if over < 0 else first + -(-(over + 1) // self.block) * self.block

    def salient(self, keys, w, size, add=False):
        """Of these keys those whose weight is above beta / size; may: those that rounding decides"""
        at = REAL(self.param("beta")) / max(size, 1)
        slack = w.error + 4 * U * abs(at)
        sure, may = keys[w.mean > at + slack], keys[np.abs(w.mean - at) <= slack]
        if self.param("beta") < 0:
            sure, may = keys, keys[:0]
        self.sure = np.concatenate((self.sure, sure)) if add else sure
        self.may = np.concatenate((self.may, may)) if add else may

    def judge(self, step, q, mark, padding):
        before, after = self.now(step)
        want = np.where(np.arange(after) >= self.first, 1, 0)
        self.used = (mark[:self.first] == 2) & ~padding[:self.first], np.flatnonzero(padding)
        if self.dump.q_len > 1:
            want[:self.first] = 2
        else:
            self.sure = np.concatenate((self.sure, self.may[(mark[self.may] == 2) & ~padding[self.may]]))
            want[self.sure] = 2
        compare(want, np.where(padding, 0, mark))
        if (mark[padding] != 2).any():
            raise Wrong("padding that the host did not use")
        device, host = np.arange(self.first, after), np.arange(self.first)
        a = Weights(self.dump, "device", q, self.k[device], self.sees(step, device))
        alpha, new = REAL(self.param("alpha")), len(self.maw)
        self.maw = np.concatenate(((1 - alpha) * self.maw + alpha * a.mean[:new], a.mean[new:]))
        self.error = np.concatenate(((1 - alpha) * self.error + alpha * a.error[:new], a.error[new:])) + 4 * U * self.maw
        if self.dump.q_len > 1:
            self.salient(host, Weights(self.dump, "host", q, self.k[host], self.sees(step, host)), len(host))
        else:
            self.may = self.may[:0]
        gone = self.left(self.first, after) - self.first
        a.mean, a.error = self.maw[:gone], self.error[:gone]
        self.salient(device[:gone], a, len(device), add=True)
        self.first += gone
        self.maw, self.error = self.maw[gone:], self.error[gone:]

    @staticmethod
    def judge_layer(heads):
        """heads: of all sequences. Those of a task are padded to equal counts with unselected keys, newest first."""
        size = int(heads[0].param("heads_per_task"))
        for begin in range(0, len(heads), size or 1):
            task = [head.used for head in heads[begin:begin + (size or 1)]]
            most = max(chosen.sum() for chosen, _ in task) if size and heads[0].dump.q_len == 1 else 0
            for i, (chosen, padding) in enumerate(task):
                free = np.flatnonzero(~chosen)[::-1]
                want = np.sort(free[:max(most - chosen.sum(), 0)])
                if not np.array_equal(want, padding):
                    raise Wrong(f"head {begin + i} of all sequences is padded with keys {list(padding)[:4]}..., not "
                                f"{list(want)[:4]}... ({len(padding)} and {len(want)} of them)")


class Chosen(Head):
    """The candidates of largest score, and tokens that are used always. `group` holds the queries of its KV head's query
    heads: [q_len][heads][head_dim]; `place` is its own place among them."""

    HEAD, MAX, UNION = range(3)

    def deciders(self, score, slack):
        """score, slack: [heads][q_len][n]; [deciders][n]: of those who choose for this head"""
        rule = int(self.param("group"))
        if rule == self.HEAD:
            score, slack = score[self.place:self.place + 1], slack[self.place:self.place + 1]
        if rule == self.MAX:
            heads, tokens, n = score.shape
            score, slack = score.reshape(1, heads * tokens, n), slack.reshape(1, heads * tokens, n)
        return score.max(axis=1), slack.max(axis=1)

    def count(self, taken, k, what):
        """As many as are chosen: k, of a union up to k of each head."""
        self.taken, self.what, n = taken, what, len(taken)
        most = k * self.heads if int(self.param("group")) == self.UNION else k
        if not min(k, n) <= taken.sum() <= min(most, n):
            raise Wrong(f"{taken.sum()} {what}s are chosen, not {min(k, n)}" + (f" to {min(most, n)}" if most > k else ""))

    def choose(self, score, slack, taken, k, what):
        """Are the k of largest score taken? Of those within rounding of each other either may be."""
        self.count(taken, k, what)
        if k >= len(taken):
            return
        score, slack = self.deciders(score, slack)
        low, high = score - slack, score + slack
        sure = (low > np.sort(high, axis=1)[:, -k - 1, None]).any(axis=0)
        if (sure & ~taken).any():
            raise Wrong(f"{what} {np.flatnonzero(sure & ~taken)[0]} is not chosen, and has one of the {k} largest scores")
        beyond = np.where(taken, -np.inf, low).max(axis=1)  # no decider has one that is smaller for certain
        may = taken & (high >= np.maximum(beyond, np.sort(low, axis=1)[:, -k])[:, None])
        if not may.any(axis=0)[taken].all():
            raise Wrong(f"{what} {np.flatnonzero(taken & ~may.any(axis=0))[0]} is chosen, and others have larger scores")
        if (may.sum(axis=1) < k).any():
            raise Wrong(f"{may.sum(axis=1).min()} {what}s that are chosen may be the {k} of one head")
        self.explain(low, high, may, k, what)

    def explain(self, low, high, may, k, what):
        """Raises Wrong where heads have too few places for those that only they may have (Hall's theorem). A head has k,
        one for each that it must have of those that are taken."""
        must = may & (low > np.sort(np.where(may, high, -np.inf), axis=1)[:, -k - 1, None])
        free, open_ = k - must.sum(axis=1), np.flatnonzero(may.any(axis=0) & ~must.any(axis=0))
        heads_of = [frozenset(np.flatnonzero(may[:, i])) for i in open_]
        together = {frozenset()}
        for heads in set(heads_of):
            together |= {heads | others for others in together}
        for heads in together:
            only = [i for i, of in zip(open_, heads_of) if of <= heads]
            if len(only) > free[list(heads)].sum():
                raise Wrong(f"{len(only)} {what}s, {only[0]} one of them, are chosen in {free[list(heads)].sum()} places")

    @staticmethod
    def judge_layer(heads):
        """Query heads of a KV head that choose together report one choice."""
        if int(heads[0].param("group")) == Chosen.HEAD:
            return
        for i, head in enumerate(heads):
            bad = np.flatnonzero(head.taken != heads[i - head.place].taken)
            if len(bad):
                raise Wrong(f"{head.what} {bad[0]} is not used alike by heads {i - head.place} and {i} of all sequences, "
                            f"which have one choice")

    def products(self, group, keys, off=0):
        """scale q.k of these queries, and what these may be off by: [heads][q_len][keys]. off: of the keys"""
        scale, q = REAL(self.dump.number("scale")), np.moveaxis(group.astype(REAL), 1, 0)
        size, moved = np.abs(q) @ np.abs(keys).T, np.abs(q) @ np.broadcast_to(off, keys.shape).T
        slack = scale * (gamma(self.dump.head_dim + 2) * (size + moved) + moved)
        return scale * q @ keys.T, known(slack, max(scale, 1) * (size + moved))

    def digests(self, group, n, block, first=0):
        """The scores that these queries give n blocks from token `first` on, and what these may be off by:
        [heads][q_len][n]"""
        keys = self.k[first:first + n * block].reshape(n, block, self.dump.head_dim)
        if self.param("digest"):
            unit, size = 2.0 ** {"f16": -11, "bf16": -8}.get(self.dump.word("dtype"), -24), np.abs(keys).sum(axis=1)
            off = (unit + gamma(block + 2)) * size / block + REAL(2.0 ** -24)
            score, slack = self.products(group, keys.mean(axis=1), off)
            return score, np.where((size > FLT_MAX).any(axis=1), np.inf, slack)
        scale, q = REAL(self.dump.number("scale")), np.moveaxis(group.astype(REAL), 1, 0)[:, :, None, :]
        terms = np.maximum(q * keys.min(axis=1), q * keys.max(axis=1)) if n else np.zeros((*q.shape[:2], 0, 1), REAL)
        score, size = scale * terms.sum(axis=-1), np.abs(terms).sum(axis=-1)
        return score, known(gamma(self.dump.head_dim + 2) * scale * size, max(scale, 1) * size)

    @staticmethod
    def whole(mark, n, block):
        """[n] where each block is; raises Wrong where one is not whole there"""
        of = mark[:n * block].reshape(n, block)
        bad = np.flatnonzero((of != of[:, :1]).any(axis=1)) if n else []
        if len(bad):
            raise Wrong(f"block {bad[0]} is used in part, or on both sides")
        return of[:, 0]


def known(slack, size):
    """Nothing is known of a sum that may overflow in binary32."""
    return np.where(size < FLT_MAX / 2, slack, np.inf)


def share_of(share, n):
    """The least k >= 1 of n with k / n >= share."""
    return next((k for k in range(1, n) if k / n >= share), n)


class Topk(Chosen):
    def judge(self, step, q, mark, padding):
        before, _ = self.now(step)
        if (mark == 2).any() or not (mark[before:] == 1).all():
            raise Wrong("a new token is not used, or a key by the host")
        taken, k = mark[:before] == 1, int(self.param("k"))
        if self.param("query") and self.layer:  # by a query that the file does not hold
            self.count(taken, k, "key")
        else:
            self.choose(*self.products(self.group, self.k[:before]), taken, k, "key")


class Quest(Chosen):
    def chosen(self, n, block):
        """Blocks of n that a head reads."""
        return n if self.layer < self.param("dense_layers") else max(int(self.param("budget")) // block, 1)

    def judge(self, step, q, mark, padding):
        before, _ = self.now(step)
        block = int(self.param("block"))
        n = before // block
        if (mark == 2).any() or not (mark[n * block:] == 1).all():
            raise Wrong("a token behind the last whole block is not used, or a key by the host")
        self.choose(*self.digests(self.group, n, block), self.whole(mark, n, block) == 1, self.chosen(n, block), "block")


class GpuOnly(Quest):
    """Quest's choice of a share of the blocks, wherever they lie."""

    def chosen(self, n, block):
        return share_of(self.param("budget"), n)


class Blocks:
    """A set of `size` blocks: those that are in it for certain, and those that may be."""

    def __init__(self, sure, may, size):
        self.sure, self.may, self.size = sure.copy(), may.copy(), int(size)

    @classmethod
    def largest(cls, low, high, size):
        """Those of largest score."""
        size = min(size, len(low))
        return cls(np.array([(high >= x).sum() - 1 < size for x in low], bool),
                   np.array([(low > x).sum() < size for x in high], bool), size)

    def grown(self, n):
        """Blocks that are new are not in it."""
        more = np.zeros(n - len(self.sure), bool)
        return Blocks(np.append(self.sure, more), np.append(self.may, more), self.size)

    def count(self):
        if self.sure.sum() > self.size or self.may.sum() < self.size:
            raise Wrong(f"{self.sure.sum()} to {self.may.sum()} blocks are resident, of {self.size}")
        if self.sure.sum() == self.size:
            self.may = self.sure.copy()
        if self.may.sum() == self.size:
            self.sure = self.may.copy()


def there_is(low, high, k, inside, outside):
    """Whether some k blocks of largest score hold these and not those: each that is chosen reaches some t, and each that
    is not does not exceed it."""
    free, k, chosen = ~inside & ~outside, min(k, len(low)), inside.sum()
    return any((high[inside] >= t).all() and (low[outside] <= t).all()
               and chosen + (low[free] > t).sum() <= k <= chosen + (high[free] >= t).sum()
               for t in (0, *np.unique(np.append(low, high))))


class Residents:
    """What a KV head has on the device: what it held, and what the recall wants that is under way."""

    def __init__(self, held):
        self.held, self.want = held, None

    def sets(self):
        return [self.held] + ([self.want] if self.want else [])

    def sure(self):
        return np.logical_and.reduce([x.sure for x in self.sets()])

    def may(self):
        return np.logical_and.reduce([x.may for x in self.sets()])

    def learn(self, b, is_in):
        """What a block is that it was not known of."""
        if is_in:
            for of in self.sets():
                of.sure[b] = True
        else:
            unsure = [x for x in self.sets() if not x.sure[b]]
            if len(unsure) == 1:  # of two it is open which has it not
                unsure[0].may[b] = False
        for of in self.sets():
            of.count()

    def may_change_nothing(self):
        return not (self.want.sure & ~self.held.may).any()

    def end(self, landed):
        if self.want:
            self.held = Blocks(self.want.sure, self.want.may, self.want.size) if landed else Blocks(
                self.sure(), self.may(), self.want.size)
            self.want = None


class Scout(Chosen):
    """Blocks that are resident on the device, and others that the host attends, by predicted queries."""

    def judge(self, step, q, mark, padding):
        before, _ = self.now(step)
        block = int(self.param("block"))
        self.step, self.n = step, before // block
        if (mark[self.n * block:] != 1).any():
            raise Wrong("a token behind the last whole block is not used by the device")
        self.where = self.whole(mark, self.n, block)
        self.ahead = self.param("precompute") > 0 and self.param("predict") == 0 and self.layer > 0
        host = None
        for side in (1, 2):
            of = [part for part in self.parts if len(part.keys) and mark[part.keys[0]] == side]
            if len(of) > 1 or padding.any():
                raise Wrong(f"{SIDE_OF[side]} has {len(of)} parts, or padding")
            for part in of:
                if bool(part.query) != (side == 2 and self.ahead) or part.rows.any() or part.weight_only:
                    raise Wrong(f"the part of {SIDE_OF[side]} has {'a' if part.query else 'no'} query of its own, or keys")
                host = part if side == 2 else host
        # None: nothing is known of the query that chose it
        self.other = host.q if self.ahead and host else None if self.ahead else self.group[:, self.place]

    @staticmethod
    def judge_layer(heads):
        for seq in range(heads[0].dump.batch):
            of = heads[seq * heads[0].dump.q_heads:(seq + 1) * heads[0].dump.q_heads]
            try:
                of[0].judge_notes(of)
                for i in range(0, len(of), of[0].heads):
                    of[i].judge_kv_head(of[i:i + of[0].heads], of[0])
            except Wrong as wrong:
                raise Wrong(f"seq {seq}: {wrong}") from None

    def slots(self):
        lists = 1 if int(self.param("group")) == self.MAX else self.heads
        block = int(self.param("block"))
        return max(1, int(self.param("cache")) // block) if self.param("cache") else self.k_blocks() * lists

    def k_blocks(self):
        return max(1, int(self.param("budget")) // int(self.param("block")))

    def best(self, group, n):
        """The blocks of largest score by all of these queries together."""
        score, slack = self.digests(group, n, int(self.param("block")))
        return Blocks.largest((score - slack).max(axis=(0, 1)), (score + slack).max(axis=(0, 1)), self.slots())

    def prefill(self, kv):
        n = self.ctx // int(self.param("block"))
        if len(self.observed):
            return Residents(self.best(np.stack([h.observed for h in kv], axis=1), n))
        last = np.arange(n) >= n - self.slots()
        return Residents(Blocks(last, last, last.sum()))

    def judge_notes(self, heads):
        """The first head of a sequence: recalls that land, and that are issued."""
        said = {tuple(0 if np.isnan(h.note(name)) else h.note(name) for name in ("recall", "landed")) for h in heads}
        if len(said) != 1 or not said <= {(a, b) for a in (0, 1) for b in (0, 1)}:
            raise Wrong(f"notes recall and landed are {sorted(said)}")
        (self.issues, landed), = said
        kv = range(0, len(heads), self.heads)
        if self.step == 0:
            self.issued, self.way = -1, False
            for i in kv:
                heads[i].residents = heads[i].prefill(heads[i:i + self.heads])
        if landed and not self.way:
            raise Wrong("a recall landed, and none was under way")
        over = self.way and all(heads[i].residents.may_change_nothing() for i in kv)
        every = int(self.param("interval"))
        due = self.param("recall") > 0 and (not every or self.step - self.issued >= every)
        if self.issues and not (due and (landed or not self.way or over)):
            raise Wrong(f"a recall is issued in step {self.step}, and the last was in step {self.issued}")
        if every and due and not self.issues and (landed or not self.way):
            raise Wrong(f"no recall is issued in step {self.step}, and the last was in step {self.issued}")
        if landed or (self.issues and self.way):
            for i in kv:
                heads[i].residents.end(landed)
            self.way = False
        if self.issues:
            self.issued, self.way = self.step, True

    def judge_kv_head(self, kv, first):
        """kv: its query heads, of which this is the first; first: of the sequence"""
        r, n, block, together = self.residents, self.n, int(self.param("block")), int(self.param("group")) == self.MAX
        r.held = r.held.grown(n)
        r.want = r.want and r.want.grown(n)
        if together and any((h.where != self.where).any() for h in kv):
            raise Wrong("query heads of a KV head have one choice, and use other blocks")
        own, other = self.digests(self.group, n, block), None
        if all(h.other is not None for h in kv):
            other = self.digests(np.stack([h.other for h in kv], axis=1), n, block)
        elif not together and any(h.other is not None for h in kv):
            other = self.digests(np.stack([self.group[:, 0] if h.other is None else h.other for h in kv], axis=1), n, block)
        was = None
        while was != (r.sure().sum(), r.may().sum()):  # until no head says anything new of what is resident
            was = r.sure().sum(), r.may().sum()
            for h in kv[:1] if together else kv:
                h.judge_list(r, h.bounds(*own), h.bounds(*other) if other and h.other is not None else None)
        if first.issues:
            r.want = self.best(self.group, n)

    def bounds(self, score, slack):
        """[n] the least, and the most, that a score of this head's list may be"""
        return self.deciders(score - slack, slack)[0][0], self.deciders(score + slack, slack)[0][0]

    def judge_list(self, r, own, other):
        """own, other: the bounds of the scores by the step's query, by that of the host's part (None: not known)"""
        device, host, k = self.where == 1, self.where == 2, self.k_blocks()
        every = self.param("resident") > 0
        for b in np.flatnonzero(device | host | every):
            is_in = bool(device[b])
            if r.sure()[b] if not is_in else not r.may()[b]:
                raise Wrong(f"block {b} is used by {SIDE_OF[self.where[b]]}, and is {'not ' if is_in else ''}resident")
            if r.may()[b] and not r.sure()[b]:
                r.learn(b, is_in)
        if not every and not self.ahead:
            if not there_is(*own, k, device | host, ~(device | host)):
                raise Wrong(f"{(device | host).sum()} blocks are used by head {self.place} of its KV head, which are not the "
                            f"{k} of largest score")
            return
        if not every:
            self.seen(r, own, k, device, r.sure() & ~device, False)
        if other is not None:
            self.seen(r, other, k, host, ~r.may() & ~host, True)

    def seen(self, r, bounds, k, inside, outside, hidden):
        """hidden: what blocks are that are chosen and not there: resident, or not"""
        if not there_is(*bounds, k, inside, outside):
            raise Wrong(f"the blocks of {SIDE_OF[2 if hidden else 1]} of head {self.place} of its KV head are not of the {k} "
                        f"of largest score")
        for b in np.flatnonzero((self.where == 0) & r.may() & ~r.sure()):
            without = outside.copy()
            without[b] = True
            if not there_is(*bounds, k, inside, without):
                r.learn(b, hidden)


class Infinigen(Chosen):
    """Keys not too far below the largest score, made of few columns of turned queries and keys. They are judged with all
    sequences at hand, in a first layer whose observed queries have one basis; else how many they are."""

    def judge(self, step, q, mark, padding):
        before, _ = self.now(step)
        if (mark == 2).any() or not (mark[before:] == 1).all():
            raise Wrong("a new token is not used, or a key by the host")
        self.taken, self.what, most = mark[:before] == 1, "key", max(int(self.param("most") * before), 1)
        if not min(before, 1) <= self.taken.sum() <= most:
            raise Wrong(f"{self.taken.sum()} keys are chosen, not {min(before, 1)} to {most}")
        self.most = most

    @staticmethod
    def judge_layer(heads):
        Chosen.judge_layer(heads)
        dump = heads[0].dump
        for kv in range(dump.kv_heads if heads[0].layer == 0 else 0):
            mine = [head for i, head in enumerate(heads) if i % dump.q_heads // heads[0].heads == kv]
            kept = Infinigen.columns(mine)
            for head in mine if kept is not None else []:
                head.within(kept)

    @staticmethod
    def columns(heads):
        """[columns][head_dim]: right singular vectors of the observed queries; None where they are not the only ones."""
        dim = heads[0].dump.head_dim
        seen = np.concatenate([head.observed for head in heads]).astype(float)
        if not len(seen):
            basis = np.eye(dim)
        elif len(seen) < dim:
            return None
        else:
            _, size, basis = np.linalg.svd(seen, full_matrices=False)
            if not np.diff(-size).min(initial=np.inf) > 1e-4 * size[0]:
                return None
        basis = basis.astype(np.float32).astype(REAL)
        once = [head for head in heads if head.place == 0]
        rows = np.concatenate([seen] + [head.k[:head.ctx].astype(float) for head in once]).astype(REAL)
        total, off = np.abs(rows @ basis.T).sum(axis=0), gamma(dim + 4) * (np.abs(rows) @ np.abs(basis).T).sum(axis=0)
        count = max(int(np.ceil(heads[0].param("columns") * dim)), 1)
        order = np.argsort(-total)
        for a, b in zip(order[count - 1:count], order[count:count + 1]):
            if total[a] - off[a] <= total[b] + off[b]:
                return None
        return basis[np.sort(order[:count])]

    def within(self, kept):
        """Raises Wrong unless those are taken whose score is not below the largest less alpha, the largest of them."""
        if not len(self.taken):
            return
        unit, dim = 2.0 ** {"f16": -11, "bf16": -8}.get(self.dump.word("dtype"), -24), self.dump.head_dim
        scale, alpha = REAL(self.dump.number("scale")), REAL(self.param("alpha"))
        k, q = self.k[:len(self.taken)], np.moveaxis(self.group.astype(REAL), 1, 0)
        cut, queries = k @ kept.T, q @ kept.T
        off_k = gamma(dim + 3) * (np.abs(k) @ np.abs(kept).T)
        off_k += unit * (np.abs(cut) + off_k) + REAL(2.0 ** -24)
        off_q = gamma(dim + 3) * (np.abs(q) @ np.abs(kept).T)
        size = np.abs(queries) @ np.abs(cut).T
        moved = off_q @ (np.abs(cut) + off_k).T + np.abs(queries) @ off_k.T
        score, slack = self.deciders(scale * queries @ cut.T, known(
            scale * (gamma(len(kept) + 3) * (size + moved) + moved), max(scale, 1) * (size + moved)))
        score, slack, taken = score[0], slack[0], self.taken
        low, high = score - slack, score + slack
        least, beyond = high[taken].min(), low[~taken].max(initial=-np.inf)
        if not least >= beyond:
            raise Wrong("a key is chosen, and one that is not has a larger score")
        if not least >= (low.max() - alpha) - U * abs(low.max() - alpha):
            raise Wrong(f"a key is chosen that is more than {float(alpha):g} below the largest")
        if taken.sum() < min(self.most, len(taken)) and not beyond <= (high.max() - alpha) + U * abs(high.max() - alpha):
            raise Wrong(f"key {int(np.where(taken, -np.inf, low).argmax())} is not chosen, and is within {float(alpha):g} of "
                        "the largest")


class HybridFixed(Chosen):
    """The first tokens and the recent ones on the device; of the whole blocks between a share by the host."""

    def judge(self, step, q, mark, padding):
        before, after = self.now(step)
        sink, block = int(self.param("sink")), int(self.param("block"))
        n = max(before - sink - int(self.param("recent")), 0) // block
        host = np.zeros(after, bool)
        host[sink:sink + n * block] = True
        if (mark[~host] != 1).any():
            raise Wrong(f"token {np.flatnonzero((mark != 1) & ~host)[0]} is not used by the device, which has it")
        if (mark[host] == 1).any():
            raise Wrong(f"token {np.flatnonzero((mark == 1) & host)[0]} is used by the device, which it has left")
        taken = self.whole(mark[sink:], n, block) == 2
        self.choose(*self.digests(self.group, n, block, sink), taken, share_of(self.param("budget"), n), "block")


DEFINITIONS = {"resident": Full, "bmm": Full, "offload": Full, "cpu": FullOnHost, "streaming": Streaming, "h2o": H2o,
               "hgca": Hgca, "topk": Topk, "quest": Quest, "infinigen": Infinigen, "gpu_only": GpuOnly, "scout": Scout,
               "hybrid_fixed": HybridFixed}

# ---- a case ---------------------------------------------------------------------------------------------------------

NEAR = 1e-8  # of a bound: what two computations of one number may differ by; they do by 1e-10


class Audit:
    """What was found in one file."""

    def __init__(self, dump):
        self.dump, self.found, self.wrong_rows, self.rows = dump, [], 0, 0
        self.ratio = self.reference = self.bounds = 0.0
        self.own, self.notes = {}, {}  # states by what they have of their own; values of a note
        kind = DEFINITIONS.get(dump.word("variant"))
        if kind is None:
            self.found.append(f"this script has no definition of variant {dump.word('variant')}")
            kind = Head
        for layer in range(dump.layers):
            Layer(self, kind, layer).run()

    def say(self, place, text):
        self.found.append(f"{place}: {text}")

    def near(self, place, what, got, want, unit):
        """Whether habench's own number is ours; returns by how much of a unit it is not."""
        off = np.where(got == want, 0, np.abs(got - want) / unit).astype(float)
        off[np.isnan(off)] = np.inf
        if not off.max() <= NEAR:
            at = int(np.argmax(off))
            self.say(place, f"{what}[{at}] is {got.ravel()[at]:.9g} in habench, not {float(want.ravel()[at]):.9g}")
        return float(off.max())


class Part:
    """A part of a head's keys in a step: one attention state, and what it has of its own."""

    def __init__(self, dump, x, step, head, p, part):
        at, on_device, either = (step, head, p), x["side"][step, head, p] == 1, x["either_side"][step, head, p] == 1
        self.keys = np.flatnonzero((part & 127) == p + 1)
        self.dump, self.number, self.own_q, self.own_k = dump, p, x["own_q"], x["own_k"]
        self.query, self.weight_only = int(x["query"][at]), x["weight_only"][at] == 1
        self.q = self.own_q[self.query - 1] if self.query else x["q"][step, :, head]
        self.rows = x["key"][step, head, self.keys]  # of own_k, from 1
        profile = int(x["profile"][at])
        self.claims = f"profile{profile}" if profile else "either" if either else "device" if on_device else "host"
        self.asked = "device" if either and not profile else self.claims  # whose claims have to leave room
        self.what = [what for what, has in (("a query", self.query), ("keys", self.rows.any()), (
            "weights alone", self.weight_only), ("a profile", profile)) if has]
        self.named = self.what + (["either side"] if either else [])

    def check(self, audit, before):
        """Raises Wrong where no state can be made of it. before: the tokens before a step's own"""
        for what in self.named:
            audit.own[what] = audit.own.get(what, 0) + 1
        own = self.own_k[self.rows[self.rows > 0] - 1]
        if len(self.keys) and not (np.isfinite(self.q).all() and np.isfinite(own).all()):
            raise Wrong(f"part {self.number} has a query or a key of its own that is not finite")
        if self.asked == "host":
            return
        self.dump.may_claim(self.asked)
        runs = int(self.dump.number("device.runs"))
        for keys in (int((self.keys <= before).sum()), len(self.keys)):  # of the first query token, of the last
            self.dump.depths(self.asked, keys, runs).leave_room(
                f"what {self.asked} claims of part {self.number}", self.dump.head_dim, keys)

    def scores(self, token, keys, cache):
        """Of a query token with these of its keys, the first ones, and their sizes. cache: [keys][head_dim]"""
        rows, scale = self.rows[:len(keys)], REAL(self.dump.number("scale"))
        k, own = cache[keys], rows > 0
        k[own] = self.own_k[rows[own] - 1].astype(REAL)
        q = self.q[token].astype(REAL)
        return k @ q * scale, np.abs(k) @ np.abs(q) * scale


class Layer:
    """A layer of all sequences, step by step."""

    def __init__(self, audit, kind, layer):
        self.audit, self.dump, self.kind, self.layer = audit, audit.dump, kind, layer
        dump, self.seqs = self.dump, []
        group = dump.q_heads // dump.kv_heads
        for b, ctx in enumerate(dump.ctx):
            tokens = ctx + dump.steps * dump.q_len
            get = lambda name, *shape, b=b: dump.tensor(layer, b, name, *shape)
            rows = dump.steps, dump.q_len, dump.q_heads
            x = {name: get(name, *rows, dump.head_dim) for name in ("q", "out", "want", "bound")}
            x.update((name, get(name, *rows)) for name in ("lse", "want_lse", "lse_bound", "ratio", "mass"))
            x["part"], x["side"] = get("part", dump.steps, dump.q_heads, tokens), get("side", dump.steps, dump.q_heads, 4)
            x["done"] = get("done", dump.steps)
            self.read_own(x, b, tokens)
            x["k"], x["v"] = (get(name, dump.kv_heads, tokens, dump.head_dim).astype(REAL) for name in "kv")
            observed = get("observed", min(dump.observed, ctx), dump.q_heads, dump.head_dim).astype(REAL)
            x["heads"] = [kind(dump, x["k"][h // group], observed[:, h], ctx) for h in range(dump.q_heads)]
            for head in x["heads"]:
                head.layer, head.heads = layer, group
            if not all(np.isfinite(x[name]).all() for name in ("q", "k", "v")):
                raise Damaged("Q, K or V is not finite")
            self.seqs.append(x)

    def read_own(self, x, seq, tokens):
        """What states have of their own, and notes."""
        dump = self.dump
        get = lambda name, *shape: dump.own(self.layer, seq, name, *shape)
        for name in ("query", "profile", "weight_only", "either_side"):
            x[name] = get(name, dump.steps, dump.q_heads, 4)
        x["key"] = get("key", dump.steps, dump.q_heads, tokens)
        x["own_q"], x["own_k"] = get("own_q", None, dump.q_len, dump.head_dim), get("own_k", None, dump.head_dim)
        x["notes"] = dump.notes(self.layer, seq)
        for name, rows in (("query", "own_q"), ("key", "own_k")):
            if x[name].max() > len(x[rows]):
                raise Damaged(f"layer {self.layer} seq {seq}: {name} names row {x[name].max()} of {rows}, which has "
                              f"{len(x[rows])}")

    def run(self):
        """Until a selection is wrong: what follows from it would be, too."""
        for step in range(self.dump.steps):
            done = [x["done"][step] == 1 for x in self.seqs]
            for seq, x in enumerate(self.seqs):
                for head in range(self.dump.q_heads if done[seq] else 0):
                    if not self.ask(step, seq, x, head):
                        return
            if not all(done):
                self.audit.say(f"layer {self.layer} step {step}", "habench recorded no more of this layer")
                return
            try:
                self.kind.judge_layer([head for x in self.seqs for head in x["heads"]])
            except Wrong as wrong:
                self.audit.say(f"layer {self.layer} step {step}", wrong)
                return

    def ask(self, step, seq, x, head):
        place = f"layer {self.layer} seq {seq} step {step} head {head}"
        known = x["heads"][head]
        before, after = known.now(step)
        part, side = x["part"][step, head], x["side"][step, head]
        mark = np.where(part[:after] & 127, 2 - side[np.maximum(part[:after] & 127, 1) - 1 & 3], 0)
        flags = np.concatenate((side, x["weight_only"][step, head], x["either_side"][step, head]))
        if (part[after:] != 0).any() or ((part & 127) > 4).any() or (part == 128).any() or (flags > 1).any():
            self.audit.say(place, "keys are used that do not exist, or parts")
            return False
        try:
            states = [Part(self.dump, x, step, head, p, part) for p in range(4)]
            for state in states:
                state.check(self.audit, before)
            for token in range(self.dump.q_len):
                self.row(place, step, token, head, x, part, states)
            known.notes = {name: float(of[step, head]) for name, of in x["notes"].items()}
            for name, value in known.notes.items():
                self.audit.notes.setdefault(name, []).extend([] if np.isnan(value) else [value])
            known.parts = states
            known.group, known.place = x["q"][step, :, head - head % known.heads:][:, :known.heads], head % known.heads
            known.judge(step, x["q"][step, :, head].astype(REAL), mark, part[:after] >= 128)
        except Wrong as wrong:
            self.audit.say(place, wrong)
            return False
        return True

    def row(self, place, step, token, head, x, part, parts):
        """Questions 1 and 3 of one query."""
        audit, dump, at = self.audit, self.dump, (step, token, head)
        known, kv = x["heads"][head], head // (dump.q_heads // dump.kv_heads)
        visible = known.now(step)[0] + token + 1
        k, v, q, scale = x["k"][kv][:visible], x["v"][kv][:visible], x["q"][at].astype(REAL), REAL(dump.number("scale"))
        scores, sizes = k @ q * scale, np.abs(k) @ np.abs(q) * scale
        states = []
        for p, of in enumerate(parts):
            keys = of.keys[of.keys < visible]
            if len(keys) or p == 0:
                own = of.scores(token, keys, k) if of.query or of.rows.any() else (scores[keys], sizes[keys])
                states.append(State(*own, v[keys], dump.depths(of.claims, len(keys))))
                if of.weight_only:
                    states[-1].leave_values_out()
        if dump.word("contract") == "exact" and ((part[:visible] == 0).any() or any(of.what for of in parts)):
            raise Wrong("the contract is exact, but a key is not used, or a state has a query, keys or weights of its own")
        want, place = merged(dump, states), f"{place} token {token}"
        audit.rows += 1
        audit.wrong_rows += not self.outputs(place, x["out"][at], x["lse"][at], x["ratio"][at], want)
        one = np.ones(1, REAL)
        bound, lse_bound = np.maximum(want.bound, REAL("1e-300")), max(want.lse_bound, REAL("1e-300"))
        audit.reference = max(audit.reference, audit.near(place, "reference", x["want"][at], want.o, bound), audit.near(
            place, "reference LSE", x["want_lse"][at] * one, want.lse * one, lse_bound))
        audit.bounds = max(audit.bounds, audit.near(place, "bound", x["bound"][at], want.bound, bound), audit.near(
            place, "bound of LSE", x["lse_bound"][at] * one, want.lse_bound * one, lse_bound))
        p = np.exp(scores - scores.max())
        audit.near(place, "mass", x["mass"][at] * one, p[part[:visible] > 0].sum() / p.sum() * one, one)

    def outputs(self, place, out, lse, ratio, want):
        error = np.abs(np.append(out, lse).astype(REAL) - np.append(want.o, want.lse))
        bound = np.append(want.bound, want.lse_bound)
        ratios = np.where(error == 0, 0, error / bound).astype(float)
        if want.empty:
            ratios = np.where(np.append(out, 0) == 0, 0.0, np.inf)
            ratios[-1] = 0 if lse == -np.inf else np.inf
        else:
            ratios[:-1][~((out >= want.least) & (out <= want.most))] = np.inf
        ratios[np.isnan(ratios)] = np.inf
        worst = int(np.argmax(ratios))
        self.audit.ratio = max(self.audit.ratio, ratios[worst])
        good, name = ratios[worst] <= 1, "LSE" if worst == len(out) else f"out[{worst}]"
        if not good:
            self.audit.say(place, f"{name} is {np.append(out, lse)[worst]:.9g}, not "
                           f"{float(np.append(want.o, want.lse)[worst]):.9g}: error/bound {ratios[worst]:.3g}")
        if not np.isclose(ratio, ratios[worst], rtol=NEAR, atol=NEAR):
            self.audit.say(place, f"error/bound is {ratio:.9g} in habench, not {ratios[worst]:.9g}")
        return good


# ---- the command ----------------------------------------------------------------------------------------------------

class Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"audit.py: {message}; see audit.py --help", file=sys.stderr)
        sys.exit(64)


def files_of(paths):
    for path in paths:
        if os.path.isdir(path):
            yield from sorted(os.path.join(path, x) for x in os.listdir(path) if x.endswith(".safetensors"))
        else:
            yield path


def tell(audit):
    """What states have of their own, and what was decided besides keys."""
    if audit.own:
        print("  states of their own: " + ", ".join(f"{count} with {what}" for what, count in audit.own.items()))
    for name, values in audit.notes.items():
        if values:
            print(f"  note {name}: of {len(values)} heads, from {min(values):.6g} to {max(values):.6g}, mean "
                  f"{sum(values) / len(values):.6g}")


def judge(path, all_lines):
    """Prints the lines of a file; returns an exit code."""
    name = os.path.basename(path)
    try:
        dump = Dump(path)
        name = dump.word("case")
        audit = Audit(dump)
    except (Damaged, OSError) as error:
        print(f"DAMAGED {path}: {error.strerror if isinstance(error, OSError) else error}")
        return 20
    except Exception as error:  # one file's fault is not the others'
        print(f"DAMAGED {path}: it could not be judged: {type(error).__name__}: {error}")
        return 20
    if not audit.found:
        print(f"ok {name}: {audit.rows} rows of attention over {dump.steps} steps: error/bound {audit.ratio:.3g}; reference "
              f"off by {audit.reference:.2g} of the bound, bounds by {audit.bounds:.2g}")
        tell(audit)
        return 0
    for text in audit.found if all_lines else audit.found[:1]:
        print(f"WRONG {name}: {text}")
    print(f"WRONG {name}: {len(audit.found)} differences; {audit.wrong_rows} of {audit.rows} rows beyond their bound, "
          f"error/bound {audit.ratio:.3g}")
    tell(audit)
    return 10


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a dump, or a folder of them")
    parser.add_argument("-a", "--all", action="store_true", help="print every difference, not the first of each case")
    args = parser.parse_args()
    codes = [judge(path, args.all) for path in files_of(args.paths)]
    right, wrong, damaged = (codes.count(x) for x in (0, 10, 20))
    print(f"{right} ok, {wrong} wrong, {damaged} damaged")
    sys.exit(10 if wrong else 20 if damaged else 0 if right else 77)


if __name__ == "__main__":
    main()
