"""hybrid_fixed: docs/variants/hybrid_fixed.md."""

import numpy as np

from .chosen import Chosen, share_of
from .errors import Wrong


class HybridFixed(Chosen):
    """The first tokens and the recent ones on the device; of the whole blocks between a share by the host."""

    def judge(self, step, q, mark, padding):
        before, after = self.now(step)
        sink, block = int(self.param("sink")), int(self.param("block"))
        n = max(before - sink - int(self.param("recent")), 0) // block
        host = np.zeros(after, bool)
        host[sink:sink + n * block] = True
        if (mark[~host] != 1).any():
            raise Wrong(f"token {np.flatnonzero((mark != 1) & ~host)[0]} is not used by the device, which has it")
        if (mark[host] == 1).any():
            raise Wrong(f"token {np.flatnonzero((mark == 1) & host)[0]} is used by the device, which it has left")
        taken = self.whole(mark[sink:], n, block) == 2
        self.choose(*self.digests(self.group, n, block, sink), taken, share_of(self.param("budget"), n), "block")
