"""hgca: docs/variants/hgca.md."""

import numpy as np

from .attention import Weights
from .errors import Wrong
from .head import Head, compare
from .numbers import REAL, U


class Hgca(Head):
    """A ring on the device with a moving average for each entry; of all others those that were salient."""

    def __init__(self, *args):
        super().__init__(*args)
        block = int(self.param("blk_size"))
        self.block, self.most = block, block * int(self.param("blk_num"))
        self.first = self.left(0, self.ctx)  # the ring holds [first, tokens)
        ring, host = slice(self.first, self.ctx), slice(0, self.first)
        of = lambda side, keys: Weights(self.dump, side, self.observed, self.k[keys], self.seen_before[:, keys])
        w = of("device", ring)
        self.maw, self.error = w.mean, w.error
        self.salient(np.arange(self.first), of("host", host), self.first)

    def left(self, first, total):
        """Where the ring begins after eviction."""
        over = total - first - self.most
        return first if over < 0 else first + -(-(over + 1) // self.block) * self.block

    def salient(self, keys, w, size, add=False):
        """Of these keys those whose weight is above beta / size; may: those that rounding decides"""
        at = REAL(self.param("beta")) / max(size, 1)
        slack = w.error + 4 * U * abs(at)
        sure, may = keys[w.mean > at + slack], keys[np.abs(w.mean - at) <= slack]
        if self.param("beta") < 0:
            sure, may = keys, keys[:0]
        self.sure = np.concatenate((self.sure, sure)) if add else sure
        self.may = np.concatenate((self.may, may)) if add else may

    def judge(self, step, q, mark, padding):
        before, after = self.now(step)
        want = np.where(np.arange(after) >= self.first, 1, 0)
        self.used = (mark[:self.first] == 2) & ~padding[:self.first], np.flatnonzero(padding)
        if self.dump.q_len > 1:
            want[:self.first] = 2
        else:
            self.sure = np.concatenate((self.sure, self.may[(mark[self.may] == 2) & ~padding[self.may]]))
            want[self.sure] = 2
        compare(want, np.where(padding, 0, mark))
        if (mark[padding] != 2).any():
            raise Wrong("padding that the host did not use")
        device, host = np.arange(self.first, after), np.arange(self.first)
        a = Weights(self.dump, "device", q, self.k[device], self.sees(step, device))
        alpha, new = REAL(self.param("alpha")), len(self.maw)
        self.maw = np.concatenate(((1 - alpha) * self.maw + alpha * a.mean[:new], a.mean[new:]))
        self.error = np.concatenate(((1 - alpha) * self.error + alpha * a.error[:new], a.error[new:])) + 4 * U * self.maw
        if self.dump.q_len > 1:
            self.salient(host, Weights(self.dump, "host", q, self.k[host], self.sees(step, host)), len(host))
        else:
            self.may = self.may[:0]
        gone = self.left(self.first, after) - self.first
        a.mean, a.error = self.maw[:gone], self.error[:gone]
        self.salient(device[:gone], a, len(device), add=True)
        self.first += gone
        self.maw, self.error = self.maw[gone:], self.error[gone:]

    @staticmethod
    def judge_layer(heads):
        """heads: of all sequences. Those of a task are padded to equal counts with unselected keys, newest first."""
        size = int(heads[0].param("heads_per_task"))
        for begin in range(0, len(heads), size or 1):
            task = [head.used for head in heads[begin:begin + (size or 1)]]
            most = max(chosen.sum() for chosen, _ in task) if size and heads[0].dump.q_len == 1 else 0
            for i, (chosen, padding) in enumerate(task):
                free = np.flatnonzero(~chosen)[::-1]
                want = np.sort(free[:max(most - chosen.sum(), 0)])
                if not np.array_equal(want, padding):
                    raise Wrong(f"head {begin + i} of all sequences is padded with keys {list(padding)[:4]}..., not "
                                f"{list(want)[:4]}... ({len(padding)} and {len(want)} of them)")
