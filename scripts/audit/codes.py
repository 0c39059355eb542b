"""Keys that codes stand for: docs/variants/hcattention.md, "Books and codes"."""

import numpy as np

from .errors import Wrong
from .fit import fit_of
from .numbers import ETA, FLT_MAX, REAL, gamma


class Books:
    """The books of all layers and KV heads, from the file of fit=, or taken from the keys of the contexts."""

    def __init__(self, dump, dims, count, shared):
        self.dump, self.dims, self.count, self.groups = dump, dims, count, dump.head_dim // dims
        self.shared, self.of, self.fit = shared, {}, fit_of(dump)

    def book(self, layer, kv):
        """[groups][count][dims]; None where the file is not here"""
        if self.fit is None:
            return None
        if (layer, kv) not in self.of:
            self.of[layer, kv] = self.learnt(layer, kv) if "centroids" in self.fit else self.sample(layer, kv)
        return self.of[layer, kv]

    def learnt(self, layer, kv):
        x = self.fit["centroids"][layer, kv].swapaxes(1, 2).astype(REAL)
        if x.shape != (1 if self.shared else self.groups, self.count, self.dims):
            raise Wrong(f"the fit's centroids are of shape {x.shape}")
        return np.repeat(x, self.groups, axis=0) if self.shared else x

    def sample(self, layer, kv):
        """The keys of all contexts, one sequence behind the other, at even distances."""
        dump = self.dump
        keys = np.concatenate([dump.tensor(layer, b, "k", dump.kv_heads, ctx + dump.steps * dump.q_len, dump.head_dim)[kv, :ctx]
                               for b, ctx in enumerate(dump.ctx)]).astype(REAL)
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
        self.books, self.layer, self.kv, self.k = books, layer, kv, k  # k: [tokens][head_dim]
        self.value, self.off = (np.zeros((0, k.shape[1]), REAL) for _ in range(2))
        self.said = np.zeros(0, bool)

    def candidates(self, token):
        """[groups][count] whether each centroid may be the nearest, a sum of squares in binary32; and the nearest."""
        book, x = self.books.book(self.layer, self.kv), self.k[token].reshape(self.books.groups, 1, self.books.dims)
        square, off = ((x - book) ** 2).sum(axis=2), gamma(self.books.dims + 2)
        low, high = np.maximum(square * (1 - off) - self.books.dims * ETA, 0), square * (1 + off) + self.books.dims * ETA
        low[high >= FLT_MAX], high[high >= FLT_MAX] = 0, np.inf
        return low <= high.min(axis=1, keepdims=True), square.argmin(axis=1)

    def grow(self, count):
        """What stands for so many keys."""
        book, more = self.books.book(self.layer, self.kv), count - len(self.said)
        if more <= 0:
            return
        self.said = np.append(self.said, np.zeros(more, bool))
        value, off = [np.empty((more, self.k.shape[1]), REAL) for _ in range(2)]
        for i in range(more):
            may, at = self.candidates(count - more + i) if book is not None else (None, None)
            if may is None:
                value[i], off[i] = self.k[count - more + i], np.inf
                continue
            nearest = book[np.arange(len(at)), at]
            value[i] = nearest.ravel()
            off[i] = np.where(may[:, :, None], np.abs(book - nearest[:, None]), 0).max(axis=1).ravel()
        self.value, self.off = np.concatenate((self.value, value)), np.concatenate((self.off, off))

    def adopt(self, token, got):
        """Raises Wrong where that cannot stand for a key."""
        got = got.astype(REAL)
        if self.said[token]:
            if (got != self.value[token]).any():
                raise Wrong(f"what stands for key {token} is not what it was before")
            return
        if self.books.book(self.layer, self.kv) is not None:
            may, _ = self.candidates(token)
            same = (self.books.book(self.layer, self.kv) == got.reshape(self.books.groups, 1, self.books.dims)).all(axis=2)
            bad = np.flatnonzero(~(may & same).any(axis=1))
            if len(bad):
                raise Wrong(f"what stands for key {token} is not its nearest centroid in group {bad[0]}")
        self.value[token], self.off[token], self.said[token] = got, 0, True
