"""tova: docs/variants/tova.md."""

import numpy as np

from .attention import Weights
from .errors import Wrong
from .head import Head, compare
from .numbers import REAL


class Tova(Head):
    """Tokens of a layer that only its newest queries choose; a head weighs, and all of them together are judged."""

    def __init__(self, *args):
        super().__init__(*args)
        self.room = max(1, int(np.floor(self.param("budget") * self.ctx)))
        self.candidates = np.arange(self.ctx)
        w = Weights(self.dump, "device", self.observed[-1:], self.k[:self.ctx], self.seen_before[-1:])
        self.weight, self.error = (w.mean, w.error) if len(self.observed) else (
            np.arange(self.ctx).astype(REAL), np.zeros(self.ctx, REAL))

    def judge(self, step, q, mark, padding):
        before, after = self.now(step)
        self.kept = np.flatnonzero(mark[:before])
        want = np.zeros(after, int)
        want[self.kept] = 1
        want[before:] = 1
        compare(want, mark)
        if not np.isin(self.kept, self.candidates).all():
            raise Wrong(f"key {self.kept[~np.isin(self.kept, self.candidates)][0]} is used, which was dropped")
        if len(self.kept) != min(self.room, len(self.candidates)):
            raise Wrong(f"{len(self.kept)} keys are kept, not {min(self.room, len(self.candidates))}")
        keys = np.concatenate((self.kept, np.arange(before, after)))
        w = Weights(self.dump, "device", q, self.k[keys], self.sees(step, keys))
        self.last = self.candidates, self.weight, self.error
        self.candidates, self.weight, self.error = keys, w.mean, w.error

    @staticmethod
    def judge_layer(heads):
        """heads: of all sequences, each of which has one choice"""
        count = heads[0].dump.q_heads
        for first in range(0, len(heads), count):
            Tova.judge_choice(heads[first:first + count])

    @staticmethod
    def judge_choice(heads):
        kept, keys = heads[0].kept, heads[0].last[0]
        for head in heads:
            if not np.array_equal(head.kept, kept):
                raise Wrong("heads of a layer keep different keys")
        weight, error = (sum(head.last[i] for head in heads) / len(heads) for i in (1, 2))
        error = error + REAL(2.0 ** -50) * weight  # heads add up in binary64
        stays = np.isin(keys, kept)
        if stays.all():
            return
        low = np.flatnonzero(stays)[np.argmin((weight + error)[stays])]
        high = np.flatnonzero(~stays)[np.argmax((weight - error)[~stays])]
        if weight[high] - error[high] > weight[low] + error[low]:
            raise Wrong(f"key {keys[low]} is kept with a weight of {float(weight[low]):.6g}, key {keys[high]} with "
                        f"{float(weight[high]):.6g} is not")
