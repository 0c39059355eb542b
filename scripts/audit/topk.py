"""topk: docs/variants/topk.md."""

from .chosen import Chosen
from .errors import Wrong


class Topk(Chosen):
    def judge(self, step, q, mark, padding):
        before, _ = self.now(step)
        if (mark == 2).any() or not (mark[before:] == 1).all():
            raise Wrong("a new token is not used, or a key by the host")
        taken, k = mark[:before] == 1, int(self.param("k"))
        if self.param("query") and self.layer:  # by a query that the file does not hold
            self.count(taken, k, "key")
        else:
            self.choose(*self.products(self.group, self.k[:before]), taken, k, "key")
