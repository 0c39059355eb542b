"""hcattention: docs/variants/hcattention.md."""

import numpy as np

from .attention import Softmax
from .codes import Books, Codes
from .errors import Wrong
from .head import Head, compare
from .numbers import ETA, REAL, UNIT, gamma


class Hcattention(Head):
    """Coded tokens, of which those of the heaviest weights are summed, and fresh ones, which are attended as they are."""

    def __init__(self, *args):
        super().__init__(*args)
        self.exact, self.renorm = self.param("keys") == 1, self.param("renorm") == 1
        self.before = self.param("rotary") == 1  # keys are coded before they are turned by their position
        self.codes = None

    def judge(self, step, q, mark, padding):
        self.step, before = step, self.now(step)[0]
        self.coded, self.queries = max(before - int(self.param("fresh")), 0), q
        if padding.any():
            raise Wrong("nothing is padded")
        if self.param("prefill") == 1 and len(q) > 1:
            return self.judge_block(mark, before)
        self.judge_parts(mark)

    def judge_block(self, mark, before):
        """A block of a prefill: the anchor block and its own tokens, on the device."""
        keys, anchor = np.arange(len(mark)), min(int(self.param("anchor")), before)
        compare(((keys < anchor) | (keys >= before)).astype(mark.dtype), mark)
        if any(part.what for part in self.parts if len(part.keys)):
            raise Wrong("a block has a state that is not plain attention")
        self.coded, self.kept, self.rest = 0, None, None

    def judge_parts(self, mark):
        live = [part for part in self.parts if len(part.keys)]
        is_fresh = lambda part: not part.what and part.keys.min() >= self.coded
        fresh, kept, rest = ([part for part in live if of(part)] for of in (
            is_fresh, lambda part: not is_fresh(part) and not part.weight_only,
            lambda part: not is_fresh(part) and part.weight_only))
        if max(map(len, (fresh, kept, rest))) > 1 or (rest and (self.renorm or not kept)):
            raise Wrong("there are two parts of one kind, or one of weights alone without that of the chosen keys")
        if rest and rest[0].number != kept[0].number + 1:
            raise Wrong("the part of weights alone is not behind that of the chosen keys")
        if (mark[self.coded:] != 1).any():
            raise Wrong(f"token {self.coded + np.flatnonzero(mark[self.coded:] != 1)[0]} is not attended by the device: it is fresh")
        if not self.renorm and not mark[:self.coded].all():
            raise Wrong(f"token {np.flatnonzero(mark[:self.coded] == 0)[0]} weighs nothing, and is coded")
        for part in kept + rest:
            if part.query or part.keys.max() >= self.coded or not part.claims.startswith("profile"):
                raise Wrong("a coded part has another query, a token that is fresh, or no claims of its own")
            if self.exact == bool(part.rows.any()) or (not self.exact and not part.rows.all()):
                raise Wrong("a coded part has keys of its own and they are exact, or has none")
            self.judge_claims(self.dump.claims(part.claims))
        side = 2 if self.param("values") else 1
        if kept and (mark[kept[0].keys] != side).any():
            raise Wrong(f"values are not summed on the {'device' if side == 1 else 'host'}")
        self.kept, self.rest = (of[0] if of else None for of in (kept, rest))

    def judge_claims(self, claims):
        table = 1 if self.param("table") and not self.exact and not self.before else 0
        if claims["score_type"] not in (0, table) or claims["weight_type"] not in (0, self.param("weights")):
            raise Wrong("what terms of scores or weights are rounded to is not what the options say")
        if not claims["sum_least"] > 0 or (not self.renorm and claims["sum_least"] != 1):
            raise Wrong(f"weights are said to add up to {claims['sum_least']:g} at least")

    @staticmethod
    def judge_layer(heads):
        for i in range(0, len(heads), heads[0].heads):
            group, kv = heads[i:i + heads[0].heads], i % heads[0].dump.q_heads // heads[0].heads
            try:
                for head in group:
                    head.judge_coded(kv, group[0])
            except Wrong as wrong:
                raise Wrong(f"seq {i // heads[0].dump.q_heads} KV head {kv}: {wrong}") from None

    def judge_coded(self, kv, first):
        if self.coded == 0:
            if self.note("kept") != 0 or self.note("mass") != 0:
                raise Wrong("a note is not 0, and no key is chosen")
            return
        if self.kept is None:
            raise Wrong(f"none of {self.coded} coded keys is chosen")
        values, off = self.k[:self.coded], REAL(0)
        if not self.exact:
            values, off = self.stand_ins(kv, first)
        self.judge_choice(*self.weights(values, off))

    def stand_ins(self, kv, first):
        if first.codes is None:
            if not hasattr(self.dump, "books"):
                self.dump.books = Books(self.dump, int(self.param("dims")), int(self.param("c")), not self.param("books"), self.before)
            first.codes = Codes(self.dump.books, self.layer, kv, self.k)
        codes = first.codes
        codes.grow(self.coded)
        for part in filter(None, (self.kept, self.rest)):
            for key, row in zip(part.keys, part.rows):
                codes.adopt(key, part.own_k[row - 1])
        return codes.value[:self.coded], codes.off[:self.coded]

    def weights(self, values, off):
        """[q_len][coded]: what each weight is at least and at most"""
        depths, scale = self.dump.depths(self.kept.claims, self.coded), REAL(self.dump.number("scale"))
        by = (gamma(depths.dot) * (1 + depths.term) + depths.term) * (1 + depths.operands) + depths.operands + depths.score * 2.0 ** -24
        low, high = [np.empty((len(self.queries), self.coded), REAL) for _ in range(2)]
        for t, q in enumerate(self.queries):
            moved = np.abs(q) @ np.broadcast_to(off, values.shape).T
            sizes = np.abs(values) @ np.abs(q) + self.dump.head_dim * depths.least_term + moved + moved / by
            soft = Softmax(scale * (values @ q), scale * sizes, depths)
            entries = (np.abs(values * q).reshape(self.coded, -1, int(self.param("dims")))).sum(axis=2)
            lse = soft.lse_error(depths) * (1 + 2.0 ** -22)
            if not (soft.theta < 1 and np.isfinite(lse)) or (depths.term and entries.max() + moved.max() > 65000):
                low[t], high[t] = 0, 1
                continue
            top = soft.p + soft.p_theta
            high[t] = np.minimum(top * np.exp(lse) + ETA, 1 + 2.0 ** -20)
            low[t] = np.maximum(np.where(top > 0, soft.p * (soft.p / np.where(top > 0, top, 1)), 0) * np.exp(-lse) - ETA, 0)
        return low, high

    def judge_choice(self, low, high):
        """The shortest prefix by falling weight whose sum reaches tau."""
        n, lost, sums = len(low), 2.0 ** -52 * len(low), [x.sum(axis=0) for x in (low, high)]
        taken = np.zeros(self.coded, bool)
        taken[self.kept.keys] = True
        floor, top, tau = np.maximum(sums[0] - lost, 0), sums[1], REAL(self.param("tau")) * n
        if not taken.all() and top[taken].min() < floor[~taken].max():
            raise Wrong(f"a key of weight {float(top[taken].min()) / n:.6g} is chosen, one of {float(floor[~taken].max()) / n:.6g} is not")
        if not taken.all() and top[taken].sum() < tau * (1 - REAL(2) ** -48):
            raise Wrong(f"{taken.sum()} keys are chosen, whose weights add up to {float(top[taken].sum()) / n:.9g}")
        last = floor[taken & (floor <= top[taken].min())]
        if floor[taken].sum() - (last.max() if len(last) else 0) >= tau * (1 + REAL(2) ** -48):
            raise Wrong(f"{taken.sum()} keys are chosen, and fewer reach tau")
        self.judge_notes(taken, low, high)

    def judge_notes(self, taken, low, high):
        unit, eta = UNIT[1 if self.param("weights") else 0]
        least, most = low[:, taken].sum(axis=1), high[:, taken].sum(axis=1)
        near = (1 - unit) * (1 - REAL(2) ** -40), (1 + unit) * (1 + REAL(2) ** -40)
        mass, slack = self.note("mass"), eta * taken.sum()
        if self.note("kept") != taken.sum():
            raise Wrong(f"note kept is {self.note('kept'):g}, {taken.sum()} keys are chosen")
        if not least.mean() * near[0] - slack <= mass <= most.mean() * near[1] + slack:
            raise Wrong(f"note mass is {mass:.9g}, not {float(least.mean()):.9g} to {float(most.mean()):.9g}")
        said = self.dump.claims(self.kept.claims)["sum_least"]
        if self.renorm and not least.min() / 2 <= said <= most.min():
            raise Wrong(f"weights are said to add up to {said:.9g} at least, and are {float(least.min()):.9g}")
