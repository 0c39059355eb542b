"""h2o: docs/variants/h2o.md."""

import numpy as np

from .attention import Weights
from .errors import Wrong
from .head import Head
from .numbers import REAL, U


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
