"""quest: docs/variants/quest.md."""

from .chosen import Chosen
from .errors import Wrong


class Quest(Chosen):
    def chosen(self, n, block):
        """Blocks of n that a head reads."""
        return n if self.layer < self.param("dense_layers") else max(int(self.param("budget")) // block, 1)

    def judge(self, step, q, mark, padding):
        before, _ = self.now(step)
        block = int(self.param("block"))
        n = before // block
        if (mark == 2).any() or not (mark[n * block:] == 1).all():
            raise Wrong("a token behind the last whole block is not used, or a key by the host")
        self.choose(*self.digests(self.group, n, block), self.whole(mark, n, block) == 1, self.chosen(n, block), "block")
