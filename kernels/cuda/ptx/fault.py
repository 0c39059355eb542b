"""What a kernel may not do."""


class Fault(Exception):
    """Says what, and of which threads: `threads` are places among those that run together, or None."""

    def __init__(self, why, threads=None):
        super().__init__(why)
        self.why, self.threads = why, threads
