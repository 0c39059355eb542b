"""gpu_only: docs/variants/gpu_only.md."""

from .chosen import share_of
from .quest import Quest


class GpuOnly(Quest):
    """Quest's choice of a share of the blocks, wherever they lie."""

    def chosen(self, n, block):
        return share_of(self.param("budget"), n)
