"""infinigen: docs/variants/infinigen.md."""

import numpy as np

from .chosen import Chosen, known
from .errors import Wrong
from .numbers import REAL, U, gamma


class Infinigen(Chosen):
    """Keys not too far below the largest score, made of few columns of turned queries and keys. They are judged with all
    sequences at hand, in a first layer whose observed queries have one basis; else how many they are."""

    def judge(self, step, q, mark, padding):
        before, _ = self.now(step)
        if (mark == 2).any() or not (mark[before:] == 1).all():
            raise Wrong("a new token is not used, or a key by the host")
        self.taken, self.what, most = mark[:before] == 1, "key", max(int(self.param("most") * before), 1)
        if not min(before, 1) <= self.taken.sum() <= most:
            raise Wrong(f"{self.taken.sum()} keys are chosen, not {min(before, 1)} to {most}")
        self.most = most

    @staticmethod
    def judge_layer(heads):
        Chosen.judge_layer(heads)
        dump = heads[0].dump
        for kv in range(dump.kv_heads if heads[0].layer == 0 else 0):
            mine = [head for i, head in enumerate(heads) if i % dump.q_heads // heads[0].heads == kv]
            kept = Infinigen.columns(mine)
            for head in mine if kept is not None else []:
                head.within(kept)

    @staticmethod
    def columns(heads):
        """[columns][head_dim]: right singular vectors of the observed queries; None where they are not the only ones."""
        dim = heads[0].dump.head_dim
        seen = np.concatenate([head.observed for head in heads]).astype(float)
        if not len(seen):
            basis = np.eye(dim)
        elif len(seen) < dim:
            return None
        else:
            _, size, basis = np.linalg.svd(seen, full_matrices=False)
            if not np.diff(-size).min(initial=np.inf) > 1e-4 * size[0]:
                return None
        basis = basis.astype(np.float32).astype(REAL)
        once = [head for head in heads if head.place == 0]
        rows = np.concatenate([seen] + [head.k[:head.ctx].astype(float) for head in once]).astype(REAL)
        total, off = np.abs(rows @ basis.T).sum(axis=0), gamma(dim + 4) * (np.abs(rows) @ np.abs(basis).T).sum(axis=0)
        count = max(int(np.ceil(heads[0].param("columns") * dim)), 1)
        order = np.argsort(-total)
        for a, b in zip(order[count - 1:count], order[count:count + 1]):
            if total[a] - off[a] <= total[b] + off[b]:
                return None
        return basis[np.sort(order[:count])]

    def within(self, kept):
        """Raises Wrong unless those are taken whose score is not below the largest less alpha, the largest of them."""
        if not len(self.taken):
            return
        unit, dim = 2.0 ** {"f16": -11, "bf16": -8}.get(self.dump.word("dtype"), -24), self.dump.head_dim
        scale, alpha = REAL(self.dump.number("scale")), REAL(self.param("alpha"))
        k, q = self.k[:len(self.taken)], np.moveaxis(self.group.astype(REAL), 1, 0)
        cut, queries = k @ kept.T, q @ kept.T
        off_k = gamma(dim + 3) * (np.abs(k) @ np.abs(kept).T)
        off_k += unit * (np.abs(cut) + off_k) + REAL(2.0 ** -24)
        off_q = gamma(dim + 3) * (np.abs(q) @ np.abs(kept).T)
        size = np.abs(queries) @ np.abs(cut).T
        moved = off_q @ (np.abs(cut) + off_k).T + np.abs(queries) @ off_k.T
        score, slack = self.deciders(scale * queries @ cut.T, known(
            scale * (gamma(len(kept) + 3) * (size + moved) + moved), max(scale, 1) * (size + moved)))
        score, slack, taken = score[0], slack[0], self.taken
        low, high = score - slack, score + slack
        least, beyond = high[taken].min(), low[~taken].max(initial=-np.inf)
        if not least >= beyond:
            raise Wrong("a key is chosen, and one that is not has a larger score")
        if not least >= (low.max() - alpha) - U * abs(low.max() - alpha):
            raise Wrong(f"a key is chosen that is more than {float(alpha):g} below the largest")
        if taken.sum() < min(self.most, len(taken)) and not beyond <= (high.max() - alpha) + U * abs(high.max() - alpha):
            raise Wrong(f"key {int(np.where(taken, -np.inf, low).argmax())} is not chosen, and is within {float(alpha):g} of "
                        "the largest")
