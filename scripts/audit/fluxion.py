"""fluxion: docs/variants/fluxion.md."""

import itertools

import numpy as np

from .chosen import Chosen, share_of
from .errors import Wrong
from .fit import fit_of
from .numbers import REAL, U

SIZES = (16, 32, 64, 128)
NET, ORACLE, FIXED = range(3)
NEAR = 4e-6  # of a feature: what binary32 may make of it


class Fluxion(Chosen):
    """SINK and LOCAL on the device, blocks of HOST by either side: their size a group's, their number a head's, by what it
    reports of itself. Whether it may say that of itself is asked with all heads of a sequence at hand."""

    def judge(self, step, q, mark, padding):
        self.total = len(mark)
        self.sinks = min(int(self.param("sink")), self.ctx)
        self.host = max(self.ctx - self.sinks - int(self.param("recent")), 0) // 128 * 128
        self.inside = slice(self.sinks, self.sinks + self.host)
        self.q, self.read = q[-1], mark[self.inside] > 0
        token = np.arange(len(mark))
        segment = np.where(token < self.sinks, 0, np.where(token < self.inside.stop, 1, 2))
        if (mark[segment != 1] != 1).any():
            raise Wrong(f"token {token[(segment != 1) & (mark != 1)][0]} is not used by the device, which has it")
        seen = set()
        for part in self.parts:
            if not len(part.keys):
                continue
            where = set(segment[part.keys])
            if len(where) > 1 or where & seen:
                raise Wrong(f"token {part.keys[0]} is in a state with others that are elsewhere, or in a second one")
            if part.what or (where == {1} and part.claims not in ("either", "host")):
                raise Wrong(f"token {part.keys[0]} is not weighed by the step's query and itself, or on the device")
            if where != {1} and part.claims != "device":
                raise Wrong(f"token {part.keys[0]} is the device's")
            seen |= where
        self.is_ = {name: self.note(name) for name in ("bgt0", "k", "s", "streaming", "block", "blocks")}
        bad = [name for name, value in self.is_.items() if not np.isfinite(value)]
        if bad:
            raise Wrong(f"note {bad[0]} is {self.is_[bad[0]]}")
        if self.is_["streaming"] != (self.is_["s"] > 0):
            raise Wrong(f"note streaming is {self.is_['streaming']:g}, and s is {self.is_['s']:g}")
        self.retrieves = not self.is_["s"] > 0 or not self.param("skip_streaming")

    @staticmethod
    def judge_layer(heads):
        one = heads[0]
        for first in range(0, len(heads), one.dump.q_heads):
            all_ = heads[first:first + one.dump.q_heads]
            Fluxion.properties(all_)
            for group in range(0, len(all_), one.heads):
                Fluxion.judge_group(all_[group:group + one.heads])

    # ---- a group

    def budget(self, block):
        return min(max(self.is_["bgt0"] + self.is_["k"] * (int(block).bit_length() - 1), 0), 1)

    @staticmethod
    def judge_group(heads):
        one, block = heads[0], heads[0].is_["block"]
        if any(head.is_["block"] != block for head in heads):
            raise Wrong("query heads of a KV head report blocks of several sizes")
        readers = [head for head in heads if head.retrieves and one.host]
        moved = {b: 2 * one.host / b + 2 * one.host * min(1, sum(head.budget(b) for head in readers)) for b in SIZES}
        fixed = int(one.param("granularity"))
        may = {0} if not readers else {8 << fixed} if fixed else {
            b for b in SIZES if moved[b] <= min(moved.values()) * (1 + 1e-12)}
        if block not in may:
            raise Wrong(f"blocks of {block:g} are reported, of {sorted(may)} by definition")
        for head in heads:
            want = share_of(head.budget(block), one.host // int(block)) if head in readers else 0
            if head.is_["blocks"] != want:
                raise Wrong(f"{head.is_['blocks']:g} blocks are reported, and a budget of {head.budget(max(block, 1)):g} "
                            f"makes {want}")
            if not want and head.read.any():
                raise Wrong("a head reads of the host that has nothing to read there")
            head.want = want
        if readers:
            Fluxion.judge_choice(readers, int(block))

    @staticmethod
    def judge_choice(readers, block):
        one, n = readers[0], readers[0].host // block
        score, slack = one.digests(one.group, n, block, one.sinks)
        low, high = (score - slack).max(axis=1), (score + slack).max(axis=1)
        taken = [head.whole(head.read.astype(int), n, block) > 0 for head in readers]
        if one.param("union"):
            if any((of != taken[0]).any() for of in taken):
                raise Wrong("query heads of a KV head read what one of them chose, and other blocks")
            rows, want = [head.place for head in readers], np.array([head.want for head in readers])
            one.best(low[rows], high[rows], taken[0], want, "block")
            return
        for head, of in zip(readers, taken):
            row = slice(head.place, head.place + 1)
            head.best(low[row], high[row], of, np.array([head.want]), "block")

    # ---- properties

    @staticmethod
    def properties(heads):
        one, kind = heads[0], int(heads[0].param("predict"))
        if kind == FIXED:
            for head in heads:
                head.near("bgt0", one.param("budget"), abs(one.param("budget")) * float(U))
                head.near("k", 0, 0)
                head.near("s", 0, 0)
        if kind == ORACLE:
            largest = max(head.norm(head.q, head.total) for head in heads)
            for head in heads:
                head.judge_labels(largest)
        net = one.net() if kind == NET else None
        if net:
            anchors = max(head.norm(head.anchor, head.ctx) for head in heads)
            on_device = [max(np.linalg.norm(head.state(q, [(0, head.sinks), (head.inside.stop, n)])[0].astype(float))
                             for head, q, n in of) for of in (
                [(head, head.q, head.total) for head in heads], [(head, head.anchor, head.ctx) for head in heads])]
            for i, head in enumerate(heads):
                head.judge_net(net, i, anchors, *on_device)

    def near(self, name, want, off):
        if not abs(self.is_[name] - want) <= off:
            raise Wrong(f"note {name} of head {self.place} of its KV head is {self.is_[name]:.9g}, not {float(want):.9g}, "
                        f"within {float(off):.2g}")

    def state(self, q, runs):
        """o and LSE of the query over runs of tokens."""
        token = np.concatenate([np.arange(a, b) for a, b in runs])
        if not len(token):
            return np.zeros(self.dump.head_dim, REAL), REAL("-inf")
        s = self.k[token] @ q * REAL(self.dump.number("scale"))
        w = np.exp(s - s.max())
        return w @ self.v[token] / w.sum(), s.max() + np.log(w.sum())

    def norm(self, q, total):
        return np.linalg.norm(self.state(q, [(0, total)])[0].astype(float))

    def needs(self, q, total, largest):
        """For keys, and blocks of each size: the least number that may meet the criterion, the most, and how many there
        are."""
        scale, kind, tau = REAL(self.dump.number("scale")), int(self.param("criterion")), REAL(self.param("tau"))
        s = self.k[:total] @ q * scale
        w = np.exp(s - s.max())
        o = w @ self.v[:total] / w.sum()
        allowed = tau * (largest if kind == 0 else np.linalg.norm(o.astype(float)))
        mine = np.r_[w[:self.sinks], w[self.inside.stop:]]
        values = np.concatenate([self.v[:self.sinks], self.v[self.inside.stop:total]])
        for size in (1,) + SIZES:
            n = self.host // size
            if size == 1:
                score, slack = self.products(q[None, None], self.k[self.inside])
            else:
                score, slack = self.digests(q[None, None], n, size, self.sinks)
            score, slack = score[0, 0].astype(REAL), slack[0, 0]
            order = np.argsort(-score, kind="stable")
            weight = w[self.inside].reshape(n, size)
            values_of = np.einsum("bi,bid->bd", weight, self.v[self.inside].reshape(n, size, -1))
            den = mine.sum() + np.r_[0, np.cumsum(weight.sum(axis=1)[order])]
            num = mine @ values + np.concatenate([np.zeros((1, len(o)), REAL), np.cumsum(values_of[order], axis=0)])
            with np.errstate(all="ignore"):
                off = np.sqrt(((np.where(den[:, None] > 0, num / den[:, None], 0) - o) ** 2).sum(axis=1))
            if kind == 2:
                off, allowed_now = -den / w.sum(), REAL(-0.95)
            else:
                allowed_now = allowed
            edge = abs(allowed_now) * 1e-4
            tie = np.zeros(n + 1, bool)
            tie[1:n] = (score - slack)[order][:-1] <= (score + slack)[order][1:]
            sure, may = (off <= allowed_now - edge) & ~tie, (off <= allowed_now + edge) | tie
            sure[n] = may[n] = True
            yield int(np.argmax(may)), int(np.argmax(sure)), n

    def judge_labels(self, largest):
        if not self.host:
            for name, want in (("bgt0", 0), ("k", 0), ("s", 1)):
                self.near(name, want, 0)
            return
        (least, most, n), *rest = self.needs(self.q, self.total, largest)
        is_, x = self.is_["bgt0"], np.array([4, 5, 6, 7])
        if not least / n * (1 - 1e-6) <= is_ <= most / n * (1 + 1e-6):
            raise Wrong(f"note bgt0 is {is_:.9g}, of {n} keys {least} to {most} are needed")
        low, high = (x @ [of[i] / of[2] - is_ for of in rest] / (x @ x) for i in (0, 1))
        if not low - 1e-6 <= self.is_["k"] <= high + 1e-6:
            raise Wrong(f"note k is {self.is_['k']:.9g}, not {low:.9g} to {high:.9g}")
        self.near("s", float(is_ == 0), 0)

    # ---- the net

    @property
    def anchor(self):
        """The query of the context's last token; of no token, 0."""
        return self.observed[-1] if len(self.observed) else np.zeros(self.dump.head_dim, REAL)

    def net(self):
        """Its tensors by name, or None where the file that the case names is not here: then what it says is believed."""
        return fit_of(self.dump) or None

    def judge_net(self, net, head, largest, now, then):
        feature, off = self.features(head, now, then)
        choices = [[m / n for m in range(least, most + 1)] if n else [0] for least, most, n in
                   list(self.needs(self.anchor, self.ctx, largest))[1:]] if self.host else [[0]] * 4
        count, worst = 0, None
        for feature[35:39] in itertools.islice(itertools.product(*choices), 64):
            y, slack = forward(net, feature, off)
            bad = [i for i, name in enumerate(("bgt0", "k", "s")) if not abs(self.is_[name] - y[i]) <= slack[i]]
            if not bad:
                return
            count, worst = count + 1, bad and (bad[0], y[bad[0]], slack[bad[0]])
        self.near(("bgt0", "k", "s")[worst[0]], worst[1], worst[2])

    def features(self, head, now, then):
        """[41], and what each may be off by. now, then: the largest |O~| of all heads, by q and by q'"""
        scale, q, anchor = REAL(self.dump.number("scale")), self.q, self.anchor
        host, new = self.inside, slice(self.inside.stop, None)
        length = lambda x: np.sqrt((x ** 2).sum(axis=-1))
        f = np.zeros(41, REAL)
        f[:4] = self.layer, head, self.host, self.total - self.host
        mean_k = self.k[host].mean(axis=0) if self.host else np.zeros(self.dump.head_dim, REAL)
        f[4:6] = [length(of[:self.sinks]).mean() if self.sinks else 0 for of in (self.k, self.v)]
        f[6:8] = length(mean_k), length(self.v[host].mean(axis=0)) if self.host else 0
        f[8:12], f[12:16] = moments(length(self.k[host])), moments(length(self.v[host]))
        norm, norm_then = length(q), length(anchor)
        f[16] = scale * q @ mean_k / norm if norm else 0
        f[17:21] = moments(scale * self.k[host] @ anchor / norm_then if norm_then else np.zeros(self.host, REAL))
        f[22] = np.log(REAL(self.host)) + norm * f[16] + norm ** 2 * f[18] / 2
        runs = (0, self.sinks), (host.start, host.stop), (new.start, self.total), (new.start, self.ctx)
        for of, run, lse, size in ((q, 0, 21, 27), (q, 2, 23, 28), (anchor, 0, 24, 29), (anchor, 1, 25, 30), (
                anchor, 3, 26, 31)):
            o, f[lse] = self.state(of, [runs[run]])
            f[size] = length(o)
        f[32:34] = norm, norm_then
        f[34] = q @ anchor / (norm * norm_then) if norm and norm_then else 0
        f[39:41] = now, then
        off = NEAR * (np.abs(f) + 1)
        off[:4] = off[35:39] = 0
        off[22] += NEAR * norm * (1 + abs(f[16]) + norm * f[18])
        return f, np.where(np.isfinite(off), off, 0)


def moments(x):
    """Mean, variance, skewness, kurtosis; 0 of nothing."""
    if not len(x):
        return [0] * 4
    y = x - x.mean()
    two, three, four = ((y ** n).mean() for n in (2, 3, 4))
    return [x.mean(), two, three / two ** REAL(1.5) if two else 0, four / two ** 2 if two else 0]


def forward(net, feature, off):
    """What the net makes of features, and what that may be off by, to first order."""
    inv = net["inv"].astype(REAL)
    x = np.where(inv == 0, 0, np.clip((feature - net["mean"].astype(REAL)) * inv, -10, 10))
    x_off = np.abs(inv) * off + 4 * U * np.abs(x)
    w, b = ([net[f"{name}{i}"].astype(REAL) for i in range(3)] for name in "wb")
    one = x @ w[0] + b[0]
    two = np.maximum(one, 0) @ w[1] + b[1]
    y = np.maximum(two, 0) @ w[2] + b[2]
    last = w[2] * (two > 0)[:, None]
    second = (w[1] @ last) * (one > 0)[:, None]
    sums = [len(of) * U * (np.abs(of).T @ np.abs(a) + np.abs(c)) for of, a, c in zip(
        w, (x, np.maximum(one, 0), np.maximum(two, 0)), b)]
    moved = np.abs(w[0] @ second).T @ x_off + np.abs(second).T @ sums[0] + np.abs(last).T @ sums[1] + sums[2]
    return y, 2 * moved + REAL(1e-30)
