"""What the definition of a variant begins from."""

import numpy as np

from .errors import Wrong

SIDE_OF = ("nothing", "the device", "the host")


class Head:
    """One query head of one layer and sequence: its keys, its queries, and where it stands."""

    def __init__(self, dump, k, observed, ctx):
        self.dump, self.k, self.observed, self.ctx, self.notes = dump, k, observed, ctx, {}
        first = ctx - len(observed) + np.arange(len(observed))
        self.seen_before = np.arange(ctx)[None, :] <= first[:, None]  # by each observed query

    @staticmethod
    def judge_layer(heads):
        """What only all heads together can say of a step."""

    def judge(self, step, q, mark, padding):
        """Raises Wrong where the keys of a step are not those of the definition, and goes to the next."""

    def param(self, name):
        return self.dump.number("param." + name)

    def note(self, name):
        """What the step reports by this name, NaN where it reports nothing."""
        return self.notes.get(name, np.nan)

    def now(self, step):
        """The tokens before a step's own, and after."""
        before = self.ctx + step * self.dump.q_len
        return before, before + self.dump.q_len

    def sees(self, step, keys):
        """[q_len][keys]: what each query token of a step sees of these"""
        before, _ = self.now(step)
        return keys[None, :] <= before + np.arange(self.dump.q_len)[:, None]


def compare(want, mark):
    """want, mark: for each token 0 nothing, 1 the device, 2 the host"""
    bad = np.flatnonzero(want != mark)
    if len(bad):
        raise Wrong(f"key {bad[0]} is used by {SIDE_OF[mark[bad[0]]]}, by definition by {SIDE_OF[want[bad[0]]]}"
                    f" ({len(bad)} keys differ)")
