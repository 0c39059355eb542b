"""streaming: docs/variants/streaming.md."""

import numpy as np

from .head import Head, compare


class Streaming(Head):
    def judge(self, step, q, mark, padding):
        total, token = len(mark), np.arange(len(mark))
        window = max(self.param("window"), self.dump.q_len)
        compare(np.where((token < self.param("sink")) | (token >= total - window), 1, 0), mark)
