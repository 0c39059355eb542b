"""scout: docs/variants/scout.md."""

import numpy as np

from .chosen import Chosen
from .errors import Wrong
from .head import SIDE_OF


class Blocks:
    """A set of `size` blocks: those that are in it for certain, and those that may be."""

    def __init__(self, sure, may, size):
        self.sure, self.may, self.size = sure.copy(), may.copy(), int(size)

    @classmethod
    def largest(cls, low, high, size):
        """Those of largest score."""
        size = min(size, len(low))
        return cls(np.array([(high >= x).sum() - 1 < size for x in low], bool),
                   np.array([(low > x).sum() < size for x in high], bool), size)

    def grown(self, n):
        """Blocks that are new are not in it."""
        more = np.zeros(n - len(self.sure), bool)
        return Blocks(np.append(self.sure, more), np.append(self.may, more), self.size)

    def count(self):
        if self.sure.sum() > self.size or self.may.sum() < self.size:
            raise Wrong(f"{self.sure.sum()} to {self.may.sum()} blocks are resident, of {self.size}")
        if self.sure.sum() == self.size:
            self.may = self.sure.copy()
        if self.may.sum() == self.size:
            self.sure = self.may.copy()


def there_is(low, high, k, inside, outside):
    """Whether some k blocks of largest score hold these and not those: each that is chosen reaches some t, and each that
    is not does not exceed it."""
    free, k, chosen = ~inside & ~outside, min(k, len(low)), inside.sum()
    return any((high[inside] >= t).all() and (low[outside] <= t).all()
               and chosen + (low[free] > t).sum() <= k <= chosen + (high[free] >= t).sum()
               for t in (0, *np.unique(np.append(low, high))))


class Residents:
    """What a KV head has on the device: what it held, and what the recall wants that is under way."""

    def __init__(self, held):
        self.held, self.want = held, None

    def sets(self):
        return [self.held] + ([self.want] if self.want else [])

    def sure(self):
        return np.logical_and.reduce([x.sure for x in self.sets()])

    def may(self):
        return np.logical_and.reduce([x.may for x in self.sets()])

    def learn(self, b, is_in):
        """What a block is that it was not known of."""
        if is_in:
            for of in self.sets():
                of.sure[b] = True
        else:
            unsure = [x for x in self.sets() if not x.sure[b]]
            if len(unsure) == 1:  # of two it is open which has it not
                unsure[0].may[b] = False
        for of in self.sets():
            of.count()

    def may_change_nothing(self):
        return not (self.want.sure & ~self.held.may).any()

    def end(self, landed):
        if self.want:
            self.held = Blocks(self.want.sure, self.want.may, self.want.size) if landed else Blocks(
                self.sure(), self.may(), self.want.size)
            self.want = None


class Scout(Chosen):
    """Blocks that are resident on the device, and others that the host attends, by predicted queries."""

    def judge(self, step, q, mark, padding):
        before, _ = self.now(step)
        block = int(self.param("block"))
        self.step, self.n = step, before // block
        if (mark[self.n * block:] != 1).any():
            raise Wrong("a token behind the last whole block is not used by the device")
        self.where = self.whole(mark, self.n, block)
        self.ahead = self.param("precompute") > 0 and self.param("predict") == 0 and self.layer > 0
        host = None
        for side in (1, 2):
            of = [part for part in self.parts if len(part.keys) and mark[part.keys[0]] == side]
            if len(of) > 1 or padding.any():
                raise Wrong(f"{SIDE_OF[side]} has {len(of)} parts, or padding")
            for part in of:
                if bool(part.query) != (side == 2 and self.ahead) or part.rows.any() or part.weight_only:
                    raise Wrong(f"the part of {SIDE_OF[side]} has {'a' if part.query else 'no'} query of its own, or keys")
                host = part if side == 2 else host
        # None: nothing is known of the query that chose it
        self.other = host.q if self.ahead and host else None if self.ahead else self.group[:, self.place]

    @staticmethod
    def judge_layer(heads):
        for seq in range(heads[0].dump.batch):
            of = heads[seq * heads[0].dump.q_heads:(seq + 1) * heads[0].dump.q_heads]
            try:
                of[0].judge_notes(of)
                for i in range(0, len(of), of[0].heads):
                    of[i].judge_kv_head(of[i:i + of[0].heads], of[0])
            except Wrong as wrong:
                raise Wrong(f"seq {seq}: {wrong}") from None

    def slots(self):
        lists = 1 if int(self.param("group")) == self.MAX else self.heads
        block = int(self.param("block"))
        return max(1, int(self.param("cache")) // block) if self.param("cache") else self.k_blocks() * lists

    def k_blocks(self):
        return max(1, int(self.param("budget")) // int(self.param("block")))

    def best(self, group, n):
        """The blocks of largest score by all of these queries together."""
        score, slack = self.digests(group, n, int(self.param("block")))
        return Blocks.largest((score - slack).max(axis=(0, 1)), (score + slack).max(axis=(0, 1)), self.slots())

    def prefill(self, kv):
        n = self.ctx // int(self.param("block"))
        if len(self.observed):
            return Residents(self.best(np.stack([h.observed for h in kv], axis=1), n))
        last = np.arange(n) >= n - self.slots()
        return Residents(Blocks(last, last, last.sum()))

    def judge_notes(self, heads):
        """The first head of a sequence: recalls that land, and that are issued."""
        said = {tuple(0 if np.isnan(h.note(name)) else h.note(name) for name in ("recall", "landed")) for h in heads}
        if len(said) != 1 or not said <= {(a, b) for a in (0, 1) for b in (0, 1)}:
            raise Wrong(f"notes recall and landed are {sorted(said)}")
        (self.issues, landed), = said
        kv = range(0, len(heads), self.heads)
        if self.step == 0:
            self.issued, self.way = -1, False
            for i in kv:
                heads[i].residents = heads[i].prefill(heads[i:i + self.heads])
        if landed and not self.way:
            raise Wrong("a recall landed, and none was under way")
        over = self.way and all(heads[i].residents.may_change_nothing() for i in kv)
        every = int(self.param("interval"))
        due = self.param("recall") > 0 and (not every or self.step - self.issued >= every)
        if self.issues and not (due and (landed or not self.way or over)):
            raise Wrong(f"a recall is issued in step {self.step}, and the last was in step {self.issued}")
        if every and due and not self.issues and (landed or not self.way):
            raise Wrong(f"no recall is issued in step {self.step}, and the last was in step {self.issued}")
        if landed or (self.issues and self.way):
            for i in kv:
                heads[i].residents.end(landed)
            self.way = False
        if self.issues:
            self.issued, self.way = self.step, True

    def judge_kv_head(self, kv, first):
        """kv: its query heads, of which this is the first; first: of the sequence"""
        r, n, block, together = self.residents, self.n, int(self.param("block")), int(self.param("group")) == self.MAX
        r.held = r.held.grown(n)
        r.want = r.want and r.want.grown(n)
        if together and any((h.where != self.where).any() for h in kv):
            raise Wrong("query heads of a KV head have one choice, and use other blocks")
        own, other = self.digests(self.group, n, block), None
        if all(h.other is not None for h in kv):
            other = self.digests(np.stack([h.other for h in kv], axis=1), n, block)
        elif not together and any(h.other is not None for h in kv):
            other = self.digests(np.stack([self.group[:, 0] if h.other is None else h.other for h in kv], axis=1), n, block)
        was = None
        while was != (r.sure().sum(), r.may().sum()):  # until no head says anything new of what is resident
            was = r.sure().sum(), r.may().sum()
            for h in kv[:1] if together else kv:
                h.judge_list(r, h.bounds(*own), h.bounds(*other) if other and h.other is not None else None)
        if first.issues:
            r.want = self.best(self.group, n)

    def bounds(self, score, slack):
        """[n] the least, and the most, that a score of this head's list may be"""
        return self.deciders(score - slack, slack)[0][0], self.deciders(score + slack, slack)[0][0]

    def judge_list(self, r, own, other):
        """own, other: the bounds of the scores by the step's query, by that of the host's part (None: not known)"""
        device, host, k = self.where == 1, self.where == 2, self.k_blocks()
        every = self.param("resident") > 0
        for b in np.flatnonzero(device | host | every):
            is_in = bool(device[b])
            if r.sure()[b] if not is_in else not r.may()[b]:
                raise Wrong(f"block {b} is used by {SIDE_OF[self.where[b]]}, and is {'not ' if is_in else ''}resident")
            if r.may()[b] and not r.sure()[b]:
                r.learn(b, is_in)
        if not every and not self.ahead:
            if not there_is(*own, k, device | host, ~(device | host)):
                raise Wrong(f"{(device | host).sum()} blocks are used by head {self.place} of its KV head, which are not the "
                            f"{k} of largest score")
            return
        if not every:
            self.seen(r, own, k, device, r.sure() & ~device, False)
        if other is not None:
            self.seen(r, other, k, host, ~r.may() & ~host, True)

    def seen(self, r, bounds, k, inside, outside, hidden):
        """hidden: what blocks are that are chosen and not there: resident, or not"""
        if not there_is(*bounds, k, inside, outside):
            raise Wrong(f"the blocks of {SIDE_OF[2 if hidden else 1]} of head {self.place} of its KV head are not of the {k} "
                        f"of largest score")
        for b in np.flatnonzero((self.where == 0) & r.may() & ~r.sure()):
            without = outside.copy()
            without[b] = True
            if not there_is(*bounds, k, inside, without):
                r.learn(b, hidden)
