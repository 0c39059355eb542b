"""How a file ends that is not right."""


class Damaged(Exception):
    """The file is not what docs/audit.md describes."""


class Wrong(Exception):
    """What habench reports differs from the definition."""
