"""Numbers as people read them."""

import math

UNITS = {"ns": ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns")),
         "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes"))}


def digits(x, n=3):
    """n significant digits, without an exponent where the number is of a usual size."""
    if x is None or not math.isfinite(x):
        return ""
    if x == 0:
        return "0"
    size = math.floor(math.log10(abs(x)))
    if size < -4 or size > 6:
        return f"{x:.{n - 1}e}"
    return f"{x:,.{max(0, n - 1 - size)}f}"


def quantity(x, unit):
    """With the unit that suits it."""
    if x is None:
        return ""
    for size, name in UNITS.get(unit, ()):
        if abs(x) >= size:
            return f"{digits(x / size)} {name}"
    return f"{digits(x)} {unit}".strip()


def percent(ratio):
    return "" if ratio is None else f"{(ratio - 1) * 100:+.1f}%"


def size(n):
    """4096 -> 4K"""
    n = int(n)
    for power, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if n >= power and n % power == 0:
            return f"{n // power}{letter}"
    return str(n)
