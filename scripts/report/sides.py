"""Machines side by side, as `habench compare` has them: who is faster at which case, and by which part."""

from report.files import number
from report.text import digits, quantity

LISTED, SHOWN = 400, 25
TONES = {"faster": "good", "slower": "bad", "even": "plain", "wrong": "bad"}


def times(c, key):
    return quantity(number(c.get(key)), str(c.get("unit", "")))


def ratio(row):
    """1.43 (1.38 to 1.47)"""
    r, lo, hi = (number(row.get(k)) for k in ("ratio", "lo", "hi"))
    if not r:
        return ""
    return digits(r) + (f" ({digits(lo)} to {digits(hi)})" if lo and hi else "")


def side_rows(compared):
    """A row for each case and machine beside the base, and how many there are in all."""
    rows = [{"case": str(c.get("case_id", "?")), "new": compared.of(c), "base": times(c, "base"), "value": times(c, "value"), "ratio": ratio(c), "speed": str(c.get("speed", "?")),
             "tone": TONES.get(str(c.get("speed")), "warn"), "by": str(c.get("by", "")), "price": digits(number(c.get("price"))), "tokens": digits(number(c.get("tokens_per_s")))}
            for c in compared.sides[:LISTED]]
    return rows, len(compared.sides)


def side_means(compared):
    """What stands on top: all cases, then each family."""
    means = sorted((m for m in compared.means if m.get("index") == 0), key=lambda m: bool(m.get("of")))
    return [{"of": str(m.get("of", "")) or "all", "line": str(m.get("line", "")), "ratio": ratio(m), "new": compared.of(m), "cases": m.get("cases", ""),
             "faster": m.get("faster", ""), "even": m.get("even", ""), "slower": m.get("slower", "")} for m in means]
