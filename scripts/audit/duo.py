"""duo: docs/variants/duo.md."""

import numpy as np

from .fit import fit_of
from .head import Head, compare


class Duo(Head):
    """What each kind of head uses; of which kind a head is, the layer says, which knows its number."""

    def judge(self, step, q, mark, padding):
        before, after = self.now(step)
        token = np.arange(after)
        self.mark, self.kept = mark, (token < self.param("sink")) | (token >= before - self.param("recent"))

    @staticmethod
    def judge_layer(heads):
        """Where the fit is not here it is believed which heads are retrieval heads."""
        dump, fit = heads[0].dump, fit_of(heads[0].dump)
        for i, head in enumerate(heads):
            kv = i % dump.q_heads // head.heads
            is_retrieval = head.mark.all() if fit is None else Duo.retrieval(dump, fit)[head.layer, kv]
            compare((head.kept | is_retrieval).astype(int), head.mark)

    @staticmethod
    def retrieval(dump, fit):
        """[layers][kv_heads]"""
        layers, kv = dump.layers, dump.kv_heads
        importance = fit["importance_kv"] if fit else np.zeros((layers, kv))
        order = sorted((-float(importance[l, h]), (h - l) % kv, l, h) for l in range(layers) for h in range(kv))
        out = np.zeros((layers, kv), bool)
        for rank, (_, _, l, h) in enumerate(order):
            out[l, h] = rank / len(order) < dump.number("param.retrieval")
        return out
