"""lru_blocks: docs/variants/lru_blocks.md."""

import numpy as np

from .chosen import share_of
from .errors import Wrong
from .kept import Kept


class Cached(Kept):
    """A choice, and a list of what a KV head has of it, kept by the first of its query heads."""

    def keep(self, chosen, most):
        """Places for so many chosen ones, and never for fewer than are chosen at most."""
        self.slots = max(int(self.param("capacity") * chosen * (1 + 1e-12)), most)  # a product that is as good as whole
        self.had, self.uses = [], {}  # by their last use, the oldest first; how often each was used

    def judge_choice(self, kv):
        """Raises Wrong where what is taken by the KV head of this number are not those of largest score."""

    def update(self):
        """How many were found, and victims."""
        now = [int(b) for b in np.flatnonzero(self.taken)]
        found = [b for b in now if b in self.had]
        spare = [b for b in self.had if b not in now]
        if self.param("policy"):
            spare.sort(key=lambda b: self.uses[b])  # stable: of equals the oldest first
        gone = spare[:max(len(self.had) + len(now) - len(found) - self.slots, 0)]
        self.uses = {b: self.uses[b] for b in self.had if b not in gone}
        for b in now:
            self.uses[b] = self.uses.get(b, 0) + 1
        self.had = [b for b in self.had if b not in gone and b not in now] + now
        return {"hits": len(found), "replaced": len(gone)}

    @staticmethod
    def judge_layer(heads):
        def judge(group, kv):
            Kept.alike(group)
            group[0].judge_choice(kv)
            want = group[0].update()
            for head in group:
                for name, value in want.items():
                    if head.note(name) != value:
                        raise Wrong(f"note {name} is {head.note(name):g}, not {value}")

        Kept.each_kv_head(heads, judge)


class LruBlocks(Cached):
    def __init__(self, *args):
        super().__init__(*args)
        self.block = int(self.param("block"))
        n = self.units(self.ctx, self.block)
        self.most = max(share_of(self.param("budget"), n) if n else 0, 1)
        self.keep(self.most, self.most)

    def judge(self, step, q, mark, padding):
        self.taken, self.what = self.between(step, mark, padding, self.block), "block"
        if self.place == 0:
            scores = self.digests(self.group, len(self.taken), self.block, int(self.param("sink")))
            self.best_of(*scores, self.taken, self.most, "block")
