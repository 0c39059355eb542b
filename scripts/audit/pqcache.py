"""pqcache: docs/variants/pqcache.md."""

import numpy as np

from .chosen import share_of
from .codes import Books, Codes
from .errors import Wrong
from .lru_blocks import Cached


class Pqcache(Cached):
    """Tokens that are chosen by what stands for their keys, the newest ones, and a list of those that a KV head has."""

    def __init__(self, *args):
        super().__init__(*args)
        last = self.ctx + self.dump.steps * self.dump.q_len
        self.keep(self.chosen(self.ctx), self.chosen(last))
        self.codes = None

    def chosen(self, tokens):
        """Of so many, besides the newest."""
        read = share_of(self.param("budget"), tokens)
        return read - read // 2

    def judge(self, step, q, mark, padding):
        before, _ = self.now(step)
        self.k_now, self.what = self.chosen(before), "token"
        first = before - share_of(self.param("budget"), before) + self.k_now  # of the newest
        if (mark == 2).any() or padding.any() or sum(len(part.keys) > 0 for part in self.parts) > 1 \
                or any(part.what for part in self.parts if len(part.keys)):
            raise Wrong("a key is used by the host or as padding, or not all are in one state, as they are")
        if not mark[first:].all():
            raise Wrong(f"token {first + np.flatnonzero(mark[first:] == 0)[0]} is not used, and is one of the newest")
        self.taken = mark[:first] > 0

    def judge_choice(self, kv):
        n = len(self.taken)
        if self.codes is None:
            if not hasattr(self.dump, "books"):
                self.dump.books = Books(self.dump, self.dump.head_dim // int(self.param("parts")), int(self.param("c")), False, False)
            self.codes = Codes(self.dump.books, self.layer, kv, self.k)
        self.codes.grow(n)
        self.best_of(*self.products(self.group, self.codes.value[:n], self.codes.off[:n]), self.taken, self.k_now, "token")
        if int(self.param("parts")) <= 2:  # of no more terms there is one sum: equal codes have equal scores
            self.judge_equals(self.codes.value[:n], (self.codes.off[:n] == 0).all(axis=1))

    def judge_equals(self, value, sure):
        """Of equal scores the first is chosen."""
        first = {}  # of a value the first token that is not taken
        for token in np.flatnonzero(sure):
            of = value[token].tobytes()
            if not self.taken[token]:
                first.setdefault(of, token)
            elif of in first:
                raise Wrong(f"token {token} is chosen, and not token {first[of]}, which has the same codes")
