"""Keys that codes stand for: docs/variants/hcattention.md, "Books and codes"."""

import numpy as np

from .errors import Wrong
from .fit import fit_of
from .numbers import ETA, FLT_MAX, REAL, gamma


class Turns:
    """How the keys of a layer are turned by their position, where they are coded before that; else nothing is done.

    Numbers come with how far off they are, and go on with what binary32 adds."""

    def __init__(self, dump, layer, before):
        self.freq = None
        if before:
            self.freq = dump.tensor(layer, 0, "inv_freq", None).astype(REAL)
            adjacent, self.scale = dump.tensor(layer, 0, "rope", 2).astype(REAL)
            pairs = np.arange(len(self.freq))
            self.a, self.b = (2 * pairs, 2 * pairs + 1) if adjacent else (pairs, pairs + len(pairs))

    def turn(self, x, off, token, back):
        """x, off: [head_dim], or a row for each of so many tokens"""
        x, off = x.astype(REAL), np.broadcast_to(np.asarray(off, REAL), x.shape)
        if self.freq is None:
            return x, off
        angle, by = np.asarray(token, REAL)[..., None] * self.freq, 1 / self.scale if back else self.scale
        c, s, y, f = np.cos(angle) * by, np.sin(angle) * (-by if back else by), x.copy(), off.copy()
        for to, other, s in ((self.a, self.b, -s), (self.b, self.a, s)):
            y[..., to] = x[..., to] * c + x[..., other] * s
            f[..., to] = (off[..., to] * np.abs(c) + off[..., other] * np.abs(s) + ETA
                          + gamma(6) * (np.abs(x[..., to] * c) + np.abs(x[..., other] * s)))
        return y, f


class Books:
    """The books of all layers and KV heads, from the file of fit=, or taken from the keys of the contexts."""

    def __init__(self, dump, dims, count, shared, before):
        self.turns = [Turns(dump, layer, before) for layer in range(dump.layers)]
        self.dump, self.dims, self.count, self.groups = dump, dims, count, dump.head_dim // dims
        self.shared, self.of, self.fit = shared, {}, fit_of(dump)

    def book(self, layer, kv):
        """[groups][count][dims], and how far off; None twice where the file is not here"""
        if self.fit is None:
            return None, None
        if (layer, kv) not in self.of:
            self.of[layer, kv] = self.learnt(layer, kv) if "centroids" in self.fit else self.sample(layer, kv)
        return self.of[layer, kv]

    def learnt(self, layer, kv):
        x = self.fit["centroids"][layer, kv].swapaxes(1, 2).astype(REAL)
        if x.shape != (1 if self.shared else self.groups, self.count, self.dims):
            raise Wrong(f"the fit's centroids are of shape {x.shape}")
        x = np.repeat(x, self.groups, axis=0) if self.shared else x
        return x, np.zeros_like(x)

    def sample(self, layer, kv):
        """The keys of all contexts, one sequence behind the other, at even distances."""
        dump = self.dump
        keys = [self.turns[layer].turn(dump.tensor(layer, b, "k", dump.kv_heads, ctx + dump.steps * dump.q_len, dump.head_dim)[kv, :ctx],
                                       0, np.arange(ctx), True) for b, ctx in enumerate(dump.ctx)]
        return tuple(self.take(np.concatenate(of)) for of in zip(*keys))

    def take(self, keys):
        n, j = len(keys), np.arange(self.count)
        if n == 0:
            return np.zeros((self.groups, self.count, self.dims), REAL)
        if self.shared:
            parts = keys.reshape(n * self.groups, self.dims)[j * n * self.groups // self.count]
            return np.repeat(parts[None], self.groups, axis=0)
        return keys[j * n // self.count].reshape(self.count, self.groups, self.dims).swapaxes(0, 1)


class Codes:
    """Of one KV head of a sequence: what stands for its keys, as it was reported or is found."""

    def __init__(self, books, layer, kv, k):
        self.books, self.turns, self.k = books, books.turns[layer], k  # k: [tokens][head_dim]
        self.book, self.book_off = books.book(layer, kv)
        self.value, self.off = (np.zeros((0, k.shape[1]), REAL) for _ in range(2))
        self.said = np.zeros(0, bool)

    def apart(self, x, off):
        """[groups][count][dims]: a key and all centroids; how far off that may be"""
        shape = self.books.groups, 1, self.books.dims
        return np.abs(x.reshape(shape) - self.book), off.reshape(shape) + self.book_off

    def candidates(self, token):
        """[groups][count] whether each centroid may be the nearest, a sum of squares in binary32; and the nearest."""
        by, lost = gamma(self.books.dims + 2), self.books.dims * ETA
        apart, off = self.apart(*self.turns.turn(self.k[token], 0, token, True))
        low = np.maximum((np.maximum(apart - off, 0) ** 2).sum(axis=2) * (1 - by) - lost, 0)
        high = ((apart + off) ** 2).sum(axis=2) * (1 + by) + lost
        low[high >= FLT_MAX], high[high >= FLT_MAX] = 0, np.inf
        return low <= high.min(axis=1, keepdims=True), (apart ** 2).sum(axis=2).argmin(axis=1)

    def grow(self, count):
        """What stands for so many keys."""
        more = count - len(self.said)
        if more <= 0:
            return
        self.said = np.append(self.said, np.zeros(more, bool))
        value, off = [np.empty((more, self.k.shape[1]), REAL) for _ in range(2)]
        for i in range(more):
            token = count - more + i
            if self.book is None:
                value[i], off[i] = self.k[token], np.inf
                continue
            may, at = self.candidates(token)
            nearest = self.book[np.arange(len(at)), at]
            moved = np.where(may[:, :, None], np.abs(self.book - nearest[:, None]) + self.book_off, 0).max(axis=1)
            value[i], off[i] = self.turns.turn(nearest.ravel(), moved.ravel(), token, False)
        self.value, self.off = np.concatenate((self.value, value)), np.concatenate((self.off, off))

    def adopt(self, token, got):
        """Raises Wrong where that cannot stand for a key."""
        got = got.astype(REAL)
        if self.said[token]:
            if (got != self.value[token]).any():
                raise Wrong(f"what stands for key {token} is not what it was before")
            return
        if self.book is not None:
            may, _ = self.candidates(token)
            apart, off = self.apart(*self.turns.turn(got, 0, token, True))
            bad = np.flatnonzero(~(may & (apart <= off).all(axis=2)).any(axis=1))
            if len(bad):
                raise Wrong(f"what stands for key {token} is not its nearest centroid in group {bad[0]}")
        self.value[token], self.off[token], self.said[token] = got, 0, True
