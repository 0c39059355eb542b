"""clo: docs/variants/clo.md."""

import numpy as np

from .chosen import share_of
from .errors import Wrong
from .fit import fit_of
from .kept import Kept
from .numbers import ETA, FLT_MAX, REAL, gamma

HATA, QUEST, EXACT = range(3)
NEAR = 1e-9  # of difficulties: what two computations of one number may differ by


class Clo(Kept):
    """A buffer for each KV head, labelled with the queries that chose it; the first query head of a KV head keeps both."""

    def __init__(self, *args):
        super().__init__(*args)
        self.retrieve = int(self.param("retrieve"))
        self.unit = 16 if self.retrieve == QUEST else 1
        self.k_units = self.units_of(self.ctx)
        self.label = self.buffer = None  # [heads][head_dim], or True where it is not known; units
        if not hasattr(self.dump, "reuse"):
            self.dump.reuse = Reuse(self)

    def units_of(self, ctx):
        """Of a buffer of a sequence of so many tokens: no more than there ever are."""
        keys = share_of(self.param("budget"), ctx) if ctx else 0
        return min(-(-keys // self.unit), self.units(ctx + self.dump.steps * self.dump.q_len, self.unit))

    @property
    def known(self):
        """Whether the file holds the queries that are looked up and choose."""
        return not self.param("prefetch") or self.param("predict") == 2

    def judge(self, step, q, mark, padding):
        self.step, self.taken = step, self.between(step, mark, padding, self.unit)
        self.what = "block" if self.unit > 1 else "key"
        self.is_ = {name: self.note(name) for name in ("persistent", "hit", "similarity")}
        if self.is_["persistent"] not in (0, 1) or (not self.is_["persistent"] and self.is_["hit"] not in (0, 1)):
            raise Wrong(f"note persistent is {self.is_['persistent']:g}, hit {self.is_['hit']:g}")

    @staticmethod
    def judge_layer(heads):
        reuse = heads[0].dump.reuse

        def judge(group, kv):
            Kept.alike(group)
            one = group[0]
            for head in group:
                for name in ("persistent",) if one.is_["persistent"] else ("persistent", "hit", "similarity"):
                    if head.is_[name] != one.is_[name]:
                        raise Wrong(f"note {name} is {head.is_[name]:.9g} and {one.is_[name]:.9g}: they have one buffer")
            reuse.adopt(one.layer, kv, one.is_["persistent"] == 1)
            one.judge_kv_head(kv)

        Kept.each_kv_head(heads, judge)
        if heads[0].layer == heads[0].dump.layers - 1:
            reuse.judge()

    def judge_kv_head(self, kv):
        if self.is_["persistent"]:
            k = len(self.taken) if self.param("persistent") else self.k_units
            self.judge_choice(kv, k)
            return
        self.look_up(kv)
        if self.is_["hit"]:
            was = np.append(self.buffer, np.zeros(len(self.taken) - len(self.buffer), bool))
            bad = np.flatnonzero(was != self.taken)
            if len(bad):
                raise Wrong(f"{self.what} {bad[0]} is {'not ' if was[bad[0]] else ''}used, and is "
                            f"{'' if was[bad[0]] else 'not '}in the buffer, which is reused")
            return
        self.buffer = self.taken.copy()
        self.label = self.group[-1].astype(REAL) if self.known else True
        self.judge_choice(kv, self.k_units)

    def judge_choice(self, kv, k):
        """By the step's own queries; where others chose, or codes that are not here, how many there are."""
        learned = self.retrieve == HATA and self.param("hash") and self.dump.reuse.fit is None
        if learned or not (self.known or self.is_["persistent"]):
            self.count(self.taken, k, self.what)
        else:
            self.best_of(*self.scores(kv), self.taken, k, self.what)

    def look_up(self, kv):
        """Is the similarity that of query and label, and is this a hit by it?"""
        hit, s = self.is_["hit"] == 1, self.is_["similarity"]
        if self.label is None:
            if hit or s != -2:
                raise Wrong(f"note hit is {hit:d}, similarity {s:.9g}: there is no label")
            return
        if not np.isfinite(s):
            raise Wrong(f"note similarity is {s}")
        known, harmonic = self.dump.reuse, not self.param("group")
        if self.known:
            low, high = self.similarity(known.weight(self.layer, kv, self.heads), harmonic)
            if np.isnan(low) and (hit or s != -2):
                raise Wrong(f"note hit is {hit:d}, similarity {s:.9g}: a label or a query is 0")
            if not np.isnan(low) and not low <= s <= high:
                raise Wrong(f"note similarity is {s:.9g}, not {float(low):.9g} to {float(high):.9g}")
        least, most = known.threshold(self.layer, kv)
        if hit and (s < least or (harmonic and not s > 0)):
            raise Wrong(f"note hit is 1: similarity {s:.9g} is below the threshold, {float(least):.9g}, or not positive")
        if not hit and s >= most and (s > 0 or not harmonic):
            raise Wrong(f"note hit is 0: similarity {s:.9g} is not below the threshold, {float(most):.9g}")

    def similarity(self, weight, harmonic):
        """Of the KV head, at least and at most; NaN where a query or a label is 0. weight: None, not known"""
        q, label = self.group.astype(REAL), self.label[None]
        size = np.sqrt((q ** 2).sum(axis=2) * (label ** 2).sum(axis=2))
        if (size == 0).any():
            return np.nan, np.nan
        off = 2 * gamma(self.dump.head_dim + 10)
        x = ((q * label).sum(axis=2) / size).min(axis=0)
        low, high = x - off, x + off
        if not ((size > 2.0 ** -60) & (size < 2.0 ** 60)).all():
            return -np.inf, np.inf
        if not harmonic or high.min() <= 0:
            return low.min(), high.min()
        if weight is None:
            return low.min(), high.max()
        mean, off = lambda of: weight.sum() / (weight / of).sum(), gamma(3 * len(x) + 4)
        return (low.min() if low.min() <= 0 else mean(low) * (1 - off)), mean(high) * (1 + off)

    def scores(self, kv):
        """By the step's own queries, and what they may be off by: [heads][q_len][units]"""
        sink, n = int(self.param("sink")), len(self.taken)
        keys = self.k[sink:sink + n * self.unit]
        if self.retrieve == EXACT:
            return self.products(self.group, keys)
        if self.retrieve == QUEST:
            return self.ranges(self.group, keys, n)
        a = self.dump.reuse.matrix(self.layer, kv, int(self.param("bits")))
        q, k = Codes(a, np.moveaxis(self.group, 1, 0).astype(REAL)), Codes(a, keys)
        unsure = q.open[:, :, None] | k.open
        m = a.shape[0] - 2 * ((q.bits[:, :, None] != k.bits) & ~unsure).sum(axis=-1).astype(REAL)
        score, open_ = k.norm * m, 2 * k.norm * unsure.sum(axis=-1)
        off = (gamma(self.dump.head_dim + 6) * np.abs(m) + ETA) * k.norm
        return score - open_ / 2, np.where(k.norm < FLT_MAX ** REAL(0.5), open_ / 2 + off + open_ * REAL(1e-5), np.inf)

    def ranges(self, group, keys, n):
        keys, scale = keys.reshape(n, self.unit, self.dump.head_dim), REAL(self.dump.number("scale"))
        q = np.moveaxis(group.astype(REAL), 1, 0)[:, :, None, :]
        terms = np.maximum(q * keys.min(axis=1), q * keys.max(axis=1)) if n else np.zeros((*q.shape[:2], 0, 1), REAL)
        size = np.abs(terms).sum(axis=-1)
        slack = gamma(self.dump.head_dim + 2) * scale * size
        return scale * terms.sum(axis=-1), np.where(max(scale, 1) * size < FLT_MAX / 2, slack, np.inf)


class Codes:
    """Of vectors: [..., bits], those that rounding leaves open, and norms."""

    def __init__(self, a, x):
        sums, sizes = x @ a.T, np.abs(x) @ np.abs(a).T
        off = gamma(a.shape[1] + 1) * sizes + np.where(sizes > 0, a.shape[1] * ETA, 0)
        self.bits, self.open = sums > off, (np.abs(sums) <= off) & (off > 0)
        self.norm = np.sqrt((x ** 2).sum(axis=-1))


class Reuse:
    """Thresholds, importance, the matrix of codes, and which heads are persistent, as the case's fit has them."""

    def __init__(self, of):
        self.of, self.fit, self.is_, self.matrices = of, fit_of(of.dump), {}, {}
        self.similarity = self.tensor("similarity_min" if of.param("group") else "similarity")

    def tensor(self, name):
        """None where the fit has none, or is not here."""
        return (self.fit or {}).get(name)

    def weight(self, layer, kv, heads):
        x = self.tensor("importance_q")
        if self.fit is None:
            return None
        return np.ones(heads, REAL) if x is None else np.maximum(x[layer, kv * heads:][:heads].astype(REAL), 2.0 ** -10)

    def exact_threshold(self, layer, kv):
        eta, x = REAL(self.of.param("eta")), self.tensor("importance_kv")
        if self.of.param("threshold"):
            return eta
        by = (REAL(1) if x is None else REAL(x[layer, kv])) ** REAL(self.of.param("p"))
        return np.cos(by * np.arccos(eta) + (1 - by) * np.arccos(REAL(-1)))

    def threshold(self, layer, kv):
        """It is rounded to binary32. Without the fit's file nothing is known of one that is adaptive."""
        if self.fit is None and not self.of.param("threshold"):
            return REAL("-inf"), REAL("inf")
        at = self.exact_threshold(layer, kv)
        return np.float32(at - REAL(1e-12)), np.float32(at + REAL(1e-12))

    def matrix(self, layer, kv, bits):
        if (layer, kv) not in self.matrices:
            learned, dim = self.tensor("hash"), self.of.dump.head_dim
            if self.of.param("hash"):
                if learned is None:
                    raise Wrong("the codes are learned, and the fit has none")
                a = learned[layer, kv]
            else:
                a = normals(0x48415441, layer * self.of.dump.kv_heads + kv, bits * dim).reshape(bits, dim)
            self.matrices = {(layer, kv): a.astype(REAL)}
        return self.matrices[layer, kv]

    def adopt(self, layer, kv, persistent):
        """One head is the same in all steps and sequences."""
        if self.is_.setdefault((layer, kv), persistent) != persistent:
            raise Wrong(f"note persistent is {persistent:d}, and was {not persistent:d}")
        if layer == 0 and not persistent:
            raise Wrong("note persistent is 0, and all heads of the first layer are")
        if layer and persistent and (not self.of.param("hard") or (self.fit is not None and self.similarity is None)):
            raise Wrong("note persistent is 1, and no head of this layer is")

    def judge(self):
        """The set of persistent heads behind the first layer, once all have said it."""
        dump, similarity = self.of.dump, self.similarity
        if similarity is None or not self.of.param("hard") or len(self.is_) < dump.layers * dump.kv_heads:
            return
        row, unit = 2 * dump.head_dim * (4 if dump.word("dtype") == "f32" else 2), self.of.unit
        buffers = sum(row * unit * self.of.units_of(ctx) for ctx in dump.ctx)
        whole = sum(row * (ctx + dump.steps * dump.q_len) for ctx in dump.ctx)
        pace, budget = self.tensor("pace"), REAL(self.of.param("device_budget_MB")) * 10 ** 6
        fetched = [0, 0] if pace is None else around(REAL(pace[0]) * REAL(pace[1]) / buffers if buffers else REAL("inf"))
        room = [x - dump.kv_heads for x in around(budget / whole)] if budget else [np.inf, np.inf]
        d = {(layer, kv): self.exact_threshold(layer, kv) - (REAL(similarity[layer, kv]) - REAL(self.of.param("eps")))
             for layer in range(1, dump.layers) for kv in range(dump.kv_heads)}
        chosen = {at for at in d if self.is_[at]}
        if len(chosen) > room[1]:
            raise Wrong(f"{len(chosen)} heads behind the first layer are persistent, and the budget has room for {room[1]:g}")
        last = min((d[at] for at in chosen), default=np.inf)
        for layer in range(1, dump.layers):
            mine = [at for at in d if at[0] == layer]
            wanted = [max(sum(d[at] > (NEAR, -NEAR)[i] for at in mine) - fetched[1 - i], 0) for i in (0, 1)]
            here, rest = [d[at] for at in mine if at in chosen], [d[at] for at in mine if at not in chosen]
            if len(here) > wanted[1]:
                raise Wrong(f"{len(here)} heads of layer {layer} are persistent, {wanted[1]:g} are hard and not prefetched")
            if here and rest and max(rest) > min(here) + NEAR:
                raise Wrong(f"a head of layer {layer} is persistent, and one that is harder is not")
            if len(here) < wanted[0] and (len(chosen) < room[0] or last < max(rest) - NEAR):
                raise Wrong(f"{len(here)} heads of layer {layer} are persistent, and the budget has room for one of {wanted[0]:g}")


def around(x):
    """A quotient that is as good as whole."""
    return [float(np.floor(x * (1 - REAL(1e-12)))), float(np.floor(x * (1 + REAL(1e-12))))]


def normals(seed, stream, count):
    """harness/base/rng.h: Philox4x32-10 with counter (i, stream) and key seed; eight 16-bit uniforms, centred and scaled."""
    low, i = np.uint64(0xFFFFFFFF), np.arange(count, dtype=np.uint64)
    c = [i & low, i >> np.uint64(32), np.full(count, stream & 0xFFFFFFFF, np.uint64), np.full(count, stream >> 32, np.uint64)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(key[0]), b & low, (a >> np.uint64(32)) ^ c[3] ^ np.uint64(key[1]), a & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    total = sum((x & np.uint64(0xFFFF)) + (x >> np.uint64(16)) for x in c).astype(np.int64) - 262140
    return total.astype(np.float32) * np.float32(float.fromhex("0x1.3988e2p-16"))
