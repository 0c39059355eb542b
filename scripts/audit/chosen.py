"""What block-sparse variants have in common: candidates of largest score."""

import numpy as np

from .errors import Wrong
from .head import Head
from .numbers import FLT_MAX, REAL, gamma


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
        self.best(score - slack, score + slack, taken, np.full(len(score), k), what)

    def best(self, low, high, taken, k, what):
        """Are those taken that have the largest scores of each decider? k: [deciders], how many each has"""
        if k.max() >= len(taken):
            if not taken.all():
                raise Wrong(f"{what} {np.flatnonzero(~taken)[0]} is not chosen, and all are")
            return
        sure = (low > largest(high, k + 1)).any(axis=0)
        if (sure & ~taken).any():
            raise Wrong(f"{what} {np.flatnonzero(sure & ~taken)[0]} is not chosen, and has one of the {k.max()} largest scores")
        beyond = np.where(taken, -np.inf, low).max(axis=1)[:, None]  # no decider has one that is smaller for certain
        may = taken & (high >= np.maximum(beyond, largest(low, k)))
        if not may.any(axis=0)[taken].all():
            raise Wrong(f"{what} {np.flatnonzero(taken & ~may.any(axis=0))[0]} is chosen, and others have larger scores")
        if (may.sum(axis=1) < k).any():
            raise Wrong(f"{may.sum(axis=1).min()} {what}s that are chosen may be the {k.max()} of one head")
        if len(k) == 1 and taken.sum() != k[0]:
            raise Wrong(f"{taken.sum()} {what}s are chosen, not {k[0]}")
        self.explain(low, high, may, k, what)

    def explain(self, low, high, may, k, what):
        """Raises Wrong where heads have too few places for those that only they may have (Hall's theorem). A head has its
        k, one for each that it must have of those that are taken."""
        must = may & (low > largest(np.where(may, high, -np.inf), k + 1))
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


def largest(x, k):
    """[rows][1]: the k[i]-th largest of each row, k no more than there are"""
    return np.take_along_axis(np.sort(x, axis=1), x.shape[1] - k[:, None], axis=1)


def known(slack, size):
    """Nothing is known of a sum that may overflow in binary32."""
    return np.where(size < FLT_MAX / 2, slack, np.inf)


def share_of(share, n):
    """The least k >= 1 of n with k / n >= share."""
    return next((k for k in range(1, n) if k / n >= share), n)
