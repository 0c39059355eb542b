"""Attention, its LSE and its bound; the merge of states; softmax weights and what they may be off by."""

import numpy as np

from .numbers import ETA, REAL, U, drift, gamma, quotient, rounded_to


class Softmax:
    """The weights of one query's keys, and what each may be off by."""

    def __init__(self, scores, sizes, depths):
        """scores: c q.k; sizes: c sum |q k|"""
        d, n, m = depths, len(scores), scores.max()
        w = np.exp(scores - m)
        self.max, self.sum = m, w.sum()
        self.p, ln_p = w / self.sum, scores - m - np.log(self.sum)
        eps = d.of_score(gamma(d.dot), scores, sizes) + d.shift * U * (m - scores) + (1 + d.rescales) * d.exp + d.both[0]
        self.p_theta = np.where(eps < 1, self.p * np.expm1(np.minimum(eps, 1)), np.exp(ln_p + eps) - self.p)
        self.lost = n * (ETA + d.both[1]) / (d.share or self.sum)
        self.theta = self.p_theta.sum() + self.lost

    def lse_error(self, d):
        """Of L, before it is stored in another type."""
        g, log_sum = gamma(d.sum + d.rescales), np.log(self.sum)
        off = -np.log1p(-self.theta) - np.log1p(-g) + d.log * (abs(log_sum) + log_slack(d))
        return off + 3 * U * abs(self.max) + U * abs(self.max + log_sum)

    def errors(self, d):
        """Of each weight, normalised."""
        if not self.theta < 1:
            return np.ones(len(self.p), REAL)
        sums = gamma(d.sum + d.rescales + 3) + d.weight[0]
        return np.minimum((self.p_theta + self.p * (self.theta + sums)) / (1 - self.theta) + ETA, 1)


def log_slack(d):
    """What the logarithm of a sum may have more than its own size."""
    return REAL("1e-3") - (np.log(d.share) if d.share else 0)


class State:
    """Attention of one query over some keys: o, L, what each may be off by, and the range that o is in."""

    def __init__(self, scores, sizes, v, depths, left_out=0):
        """v: [keys][head_dim], zeros of so many that are left out of the sum"""
        n = len(scores)
        self.keys, self.empty = n, n == 0
        if self.empty:
            self.o = self.bound = self.least = self.most = np.zeros(v.shape[1], REAL)
            self.lse, self.lse_bound = REAL("-inf"), REAL(0)
            return
        d, soft = depths, Softmax(scores, sizes, depths)
        p, p_theta, theta, lost, m, total = soft.p, soft.p_theta, soft.theta, soft.lost, soft.max, soft.sum
        self.o, self.lse = p @ v, m + np.log(total)
        g, top, size = gamma(d.sum + d.rescales), np.abs(v).max(axis=0), np.abs(self.o)
        reach = None if theta < 1 and g < 1 else Reach(scores, sizes, m, d)
        if reach is None:
            off = soft.lse_error(d)
        else:
            off = reach.most * (1 + 8 * U) + drift(d.sum + d.rescales) + 2 * n * (ETA + d.both[1]) \
                + (1 + d.rescales) * d.exp * (1 + d.exp) + d.both[0] * (1 + d.both[0]) \
                + d.log * (np.log(REAL(reach.keys.sum())) + log_slack(d)) + 3 * U * abs(m) + U * abs(self.lse)
        self.lse_bound = rounded_to(abs(self.lse), off, d.lse)
        common = off * (1 + 4 * U) if reach is None else (off - reach.most * (1 + 8 * U) + 208 * U) * (1 + 4 * U)
        self.widen(v, reach, d, np.expm1(common) if d.share else 0)
        if reach is None and d.share:
            sums, values = g + d.weight[0] * (1 + g), n - left_out
            a = p @ np.abs(v) + p_theta @ np.abs(v)
            each = p_theta @ np.abs(v - self.o) + theta * size + lost * top + sums * a \
                + values / d.share * (1 + sums) * (d.weight[1] + ETA) * top
            self.bound = rounded_to(size, quotient(size, np.exp(common) * each + np.expm1(common) * size), d.out)
        elif reach is None:
            b1 = (p_theta @ np.abs(v - self.o) + lost * (top + size)) / (1 - theta)
            a = (p @ np.abs(v) + p_theta @ np.abs(v) + lost * top) / (1 - theta)
            b2 = ((g + d.weight[0] * (1 + g)) * a + (size + b1) * g) / (1 - g) + n * (d.weight[1] * top + ETA) / total
            self.bound = rounded_to(size, quotient(size, b1 + b2), d.out)
        else:
            self.bound = np.maximum(self.o - self.least, self.most - self.o)

    def leave_values_out(self):
        """Its keys count in the denominator alone."""
        self.o = self.bound = self.least = self.most = np.zeros(len(self.o), REAL)

    def widen(self, v, reach, d, loose):
        """The range that o is in: that of the values that may weigh, and what rounding adds. loose: how far off 1 the sum
        of the weights may be, where nothing is divided by it"""
        keys = np.full(self.keys, True) if reach is None else reach.keys
        least, most = v[keys].min(axis=0), v[keys].max(axis=0)
        top = np.maximum(np.abs(least), np.abs(most))
        slack = np.expm1(2 * drift(d.sum + d.rescales) + np.log1p(d.weight[0])) * top * (1 + loose) + loose * top
        slack += 2 * (keys.sum() * d.weight[1] * top + self.keys * ETA * (1 + np.abs(v).max(axis=0))) / (d.share or 1)
        slack = rounded_to(top, quotient(top, slack), d.out)
        self.least, self.most = least - slack, most + slack


class Reach:
    """Where the roundings of the scores are units: the keys that may weigh anything, and the most that theirs are off by."""

    def __init__(self, scores, sizes, m, d):
        e = d.of_score(np.expm1(drift(d.dot)), scores, sizes) + d.shift * U * (m - scores)
        self.keys = scores + e >= (scores - e).max() - 104
        self.most = e[self.keys].max()


def merged(dump, states):
    """The merge of the parts' states, in the natural form."""
    live = [s for s in states if not s.empty]
    if len(live) < 2:
        return live[0] if live else states[0]
    claim = lambda name: REAL(dump.number("merge." + name))
    count, out = len(live), State.__new__(State)
    rescales = claim("rescales") * (count - 1)
    h = count + claim("depth_extra") + rescales
    g, g2 = gamma(h), gamma(h + 2)
    top = max(s.lse for s in live)
    weight = np.array([np.exp(s.lse - top) for s in live])
    total = weight.sum()
    out.keys, out.empty = sum(s.keys for s in live), False
    out.lse = top + np.log(total)
    share = weight / total
    out.o = sum(x * s.o for x, s in zip(share, live))
    exp, flush = (1 + rescales) * claim("exp_eps"), (1 + claim("rescales")) * ETA
    moved = np.array([s.lse_bound + 3 * U * (top - s.lse + s.lse_bound) for s in live])
    ln_share = np.array([s.lse - out.lse for s in live])
    off = np.where(moved < 1, share * np.expm1(np.minimum(moved + exp, 2)), np.exp(ln_share + moved + exp) - share)
    off = off + 2 * flush / total
    t, theta, size, lse = off + flush, off.sum(), np.abs(out.o), np.array([s.lse for s in live])
    known, linear = theta < 1 and g2 < 1, moved + exp * (1 + exp)
    weighs = np.full(count, True) if known else lse + linear >= (lse - linear).max() - 104
    least = np.min([s.least for s, x in zip(live, weighs) if x], axis=0)
    most = np.max([s.most for s, x in zip(live, weighs) if x], axis=0)
    peak = np.maximum(np.abs(least), np.abs(most))
    every = np.max([np.maximum(np.abs(s.least), np.abs(s.most)) for s in live], axis=0)
    slack = quotient(peak, np.expm1(2 * drift(h + 2)) * peak + 2 * count * flush * (1 + every))
    out.least, out.most = least - slack, most + slack
    if known:
        b1 = (sum(x * np.abs(s.o - out.o) for x, s in zip(t, live))
              + sum((x + y) * s.bound for x, y, s in zip(share, t, live))) / (1 - theta)
        a = sum((x + y) * (np.abs(s.o) + s.bound) for x, y, s in zip(share, t, live)) / (1 - theta)
        out.bound = quotient(size, (b1 + g2 * a + g * size) / (1 - g) + count * flush * (1 + 1 / total))
        out.lse_bound = -np.log1p(-theta) - np.log1p(-g)
    else:
        out.bound, out.lse_bound = np.maximum(out.o - out.least, out.most - out.o), REAL("inf")
    log_sum = np.log(total)
    if not (known and theta <= 0.5):
        lost = 2 * count * flush
        weighs = lse + linear >= (lse - linear).max() - 104
        out.lse_bound = min(out.lse_bound, linear[weighs].max() * (1 + 8 * U) + drift(h) + lost * (1 + lost))
        log_sum = max(log_sum, np.log(REAL(count)))
    out.lse_bound += claim("log_eps") * (log_sum + REAL("1e-3")) + U * abs(out.lse)
    return out


class Weights:
    """Softmax weights of some queries over some keys, averaged over the queries, and what they may be off by."""

    def __init__(self, dump, side, q, k, visible):
        """q: [queries][head_dim]; k: [keys][head_dim]; visible[i][j]: query i sees key j"""
        count, n = len(q), len(k)
        self.mean, self.error = np.zeros(n, REAL), np.zeros(n, REAL)
        scale = REAL(dump.number("scale"))
        for i in range(count):
            seen = np.flatnonzero(visible[i])
            if not len(seen):
                continue
            depths = dump.depths(side, len(seen))
            w = Softmax(k[seen] @ q[i] * scale, np.abs(k[seen]) @ np.abs(q[i]) * scale, depths)
            self.mean[seen] += w.p
            self.error[seen] += w.errors(depths)
        self.mean /= max(count, 1)
        self.error = self.error / max(count, 1) + (count + 2) * U * self.mean
