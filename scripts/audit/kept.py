"""What CLO and a cache of blocks have in common: tokens that stay on the device, and candidates between them."""

import numpy as np

from .chosen import Chosen
from .errors import Wrong


class Kept(Chosen):
    """The first tokens and the last ones before a step are used always; between them lie units of `unit` tokens, of which
    those are used that the query heads of a KV head choose together."""

    def deciders(self, score, slack):
        heads, tokens, n = score.shape
        return score.reshape(1, heads * tokens, n).max(axis=1), slack.reshape(1, heads * tokens, n).max(axis=1)

    def units(self, tokens, unit):
        return max(int(tokens - self.param("sink") - self.param("recent")), 0) // unit

    def between(self, step, mark, padding, unit):
        """[units] whether each is used. Raises Wrong where the other tokens are not as they are always."""
        before, _ = self.now(step)
        sink, token, n = int(self.param("sink")), np.arange(len(mark)), self.units(before, unit)
        if (mark == 2).any() or padding.any() or sum(len(part.keys) > 0 for part in self.parts) > 1 \
                or any(part.what for part in self.parts if len(part.keys)):
            raise Wrong("a key is used by the host or as padding, or not all are in one state by the step's query")
        stays = (token < sink) | (token >= before - self.param("recent"))
        if not mark[stays].all():
            raise Wrong(f"token {token[stays & (mark == 0)][0]} is not used, and stays on the device")
        if mark[~stays & (token >= sink + n * unit)].any():
            raise Wrong(f"token {token[~stays & (token >= sink + n * unit) & (mark > 0)][0]} is used, and is of no whole block")
        return self.whole(mark[sink:], n, unit) > 0

    def count(self, taken, k, what):
        self.taken, self.what = taken, what
        if taken.sum() != min(k, len(taken)):
            raise Wrong(f"{taken.sum()} {what}s are chosen, not {min(k, len(taken))}")

    def best_of(self, score, slack, taken, k, what):
        """Are the k of largest score taken?"""
        self.count(taken, k, what)
        if 0 < k < len(taken):
            score, slack = self.deciders(score, slack)
            self.best(score - slack, score + slack, taken, np.full(1, k), what)

    @staticmethod
    def alike(heads):
        """Query heads of a KV head have one choice."""
        for head in heads:
            bad = np.flatnonzero(head.taken != heads[0].taken)
            if len(bad):
                raise Wrong(f"{head.what} {bad[0]} is not used alike by heads of a KV head, which have one choice")

    @staticmethod
    def each_kv_head(heads, judge):
        """Of all sequences: judge(query heads of a KV head, its number)"""
        one = heads[0]
        for i in range(0, len(heads), one.heads):
            kv = i % one.dump.q_heads // one.heads
            try:
                judge(heads[i:i + one.heads], kv)
            except Wrong as wrong:
                raise Wrong(f"seq {i // one.dump.q_heads} KV head {kv}: {wrong}") from None
