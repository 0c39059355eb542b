"""What a device claims of its arithmetic, and the depths of roundings that follow: docs/audit.md."""

import numpy as np

from .errors import Wrong
from .numbers import ETA, REAL, U, UNIT, gamma

CLAIMS = ("dot_lanes", "dot_extra", "sum_lanes", "sum_extra", "exp_eps", "log_eps", "join_keys", "joins_max",
          "weight_type", "out_type", "lse_type", "sum_rounded", "truncates", "exact_joins", "runs",
          "operand_eps", "logit_type", "score_type", "sum_least")
MOST = dict(dot_extra=256, sum_extra=256, exp_eps=2.0 ** -9, operand_eps=2.0 ** -7, log_eps=2.0 ** -11, sum_rounded=1, truncates=1,
            exact_joins=1, sum_least=1)  # that may be claimed


def weaker(a, b, keys):
    """What holds whichever of both computed, over so many keys: docs/audit.md, below "From claims to depths"."""
    out = {name: max(a[name], b[name]) for name in CLAIMS}
    for name in ("dot_lanes", "sum_lanes", "exact_joins"):
        out[name] = min(a[name], b[name])
    path = lambda claims, chunk: np.ceil(min(chunk, keys) / claims["sum_lanes"]) + claims["sum_extra"]
    chunks = [x["join_keys"] or 2048 for x in (a, b)]
    out["join_keys"] = min(chunks)
    if chunks[0] != chunks[1]:
        out["sum_extra"] += max(0, max(map(path, (a, b), chunks)) - path(out, min(chunks)))
    if not (a["joins_max"] and b["joins_max"]):
        out["joins_max"] = 0
    if a["sum_least"] and b["sum_least"]:
        out["sum_least"] = min(a["sum_least"], b["sum_least"])
    return out


class Depths:
    """What a side's claims make of a row over `keys` keys: docs/audit.md, "From claims to depths"."""

    def __init__(self, dump, side, keys, runs):
        claims = dump.claims(side, keys)
        claim = claims.__getitem__
        chunk = int(claim("join_keys")) or 2048
        ends = min(int(claim("runs") if runs is None else runs), keys)
        chunks = ends + (keys - ends) // chunk if keys else 0
        joins = max(chunks - 1, 0)
        if claim("joins_max"):
            joins = min(joins, int(claim("joins_max")))
        exact, twice = claim("exact_joins") == 1, 2 if claim("truncates") else 1
        rounded = chunks > 1 and not exact
        parts, split = -(-keys // 128), 0
        while exact and parts > 1:
            parts, split = -(-parts // 2), split + 1
        path = lambda terms, name: -(-terms // int(claim(name + "_lanes"))) + int(claim(name + "_extra"))
        self.dot = REAL(twice * path(dump.head_dim, "dot"))
        self.sum = REAL(twice * path(min(keys, chunk), "sum") + 1 + joins + (4 if rounded else 0) + split)
        self.rescales = REAL(joins if rounded else 0)
        self.exp = REAL(claim("exp_eps")) + (3 * U if exact else 0)
        self.share = REAL(claim("sum_least"))  # of weights that are not divided by their sum; 0: they are
        if self.share and keys:
            self.exp += U * (np.log(REAL(keys)) - np.log(self.share) + 2)
        self.term, eta = UNIT[int(claim("score_type"))]
        self.least_term = eta / self.term if self.term else REAL(0)
        self.operands = REAL(claim("operand_eps")) * (2 + REAL(claim("operand_eps")))  # of a product
        self.logit = UNIT[int(claim("logit_type"))]  # a score is rounded to it
        self.log = REAL(claim("log_eps"))
        self.score, self.shift = (4, 4) if rounded else (2, 3)
        weight = UNIT[int(claim("weight_type"))]
        if weight[0]:
            weight = weight[0], max(weight[1], ETA)
        none = UNIT[0]
        self.weight, self.both = (none, weight) if claim("sum_rounded") else (weight, none)
        self.weight = (self.weight[0] * (1 + self.operands) + self.operands, self.weight[1])
        self.out, self.lse = UNIT[int(claim("out_type"))], UNIT[int(claim("lse_type"))]
        self.dot_extra, self.sum_extra, self.exp_eps = claim("dot_extra"), claim("sum_extra"), REAL(claim("exp_eps"))

    def of_score(self, dot, scores, sizes):
        """What scores are off by but for what is subtracted from them. dot: what the roundings of a sum make of its terms"""
        off = ((dot * (1 + self.term) + self.term) * (1 + self.operands) + self.operands + self.score * U) * sizes
        return off + (self.logit[0] * (np.abs(scores) + off) + self.logit[1] if self.logit[0] else 0)

    def leave_room(self, of, head_dim, keys):
        """Raises Wrong where so many keys leave no room for what is claimed: docs/measurement.md, "What may be claimed"."""
        for name, extra, terms in (("dot_extra", self.dot_extra, head_dim), ("sum_extra", self.sum_extra, keys)):
            if not extra <= terms + 128:
                raise Wrong(f"{of}: {name} is {extra:.0f}, more than 128 beside its {terms} terms")
        for what, off in (("a weight", np.expm1((1 + self.rescales) * self.exp_eps)), ("a sum", gamma(
                self.sum + self.rescales))):
            if not off <= 0.125:
                raise Wrong(f"{of}: {what} over {keys} keys may be off by {float(off):.2g} of itself, more than 1/8")
