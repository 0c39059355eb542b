"""Extended precision, in which all is computed, and binary32, of whose roundings the bounds are made."""

import numpy as np

np.seterr(all="ignore")  # what comes to infinity or NaN is wrong wherever it is compared
REAL = np.longdouble
U, ETA = REAL(2) ** -24, REAL(2) ** -126  # unit roundoff and least normal number of binary32
FLT_MAX = (2 - REAL(2) ** -23) * REAL(2) ** 127
UNIT = [(REAL(0), REAL(0)), (REAL(2) ** -11, REAL(2) ** -25), (REAL(2) ** -8, REAL(2) ** -134)]  # f32, f16, bf16


def gamma(h):
    return h * U / (1 - h * U) if h * U < 1 else REAL("inf")


def drift(h):
    """The most that h roundings move a logarithm by."""
    return h * U * (1 + U)


def quotient(value, bound):
    return bound + 3 * U * (value + bound) + ETA


def rounded_to(value, bound, unit):
    return bound + unit[0] * (value + bound) + unit[1] if unit[0] else bound
