"""Types of numbers as kernels store them, and what cases compare with."""

import numpy as np

from arithmetic import to_bf16
from fault import Fault

DTYPES = {'f32': 0, 'f16': 1, 'bf16': 2}  # enum ha_dtype
BYTES = {'f32': 4, 'f16': 2, 'bf16': 2}
# what rounding to the type may cost, relative
ROUNDING = {'f32': 2.0 ** -24, 'f16': 2.0 ** -11, 'bf16': 2.0 ** -8}


def stored(values, dtype):
    """as it lies in memory"""
    values = np.asarray(values, np.float32)
    return values if dtype == 'f32' else values.astype(np.float16) if dtype == 'f16' else to_bf16(values)


def widened(raw, dtype):
    """binary64 of what lies in memory"""
    if dtype == 'bf16':
        return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return raw.astype(np.float64)


def stored_kind(dtype):
    return {'f32': np.float32, 'f16': np.float16, 'bf16': np.uint16}[dtype]


def close(what, got, want, limit):
    """Every element within the limit, and of the same kind: NaN, infinity or number."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    with np.errstate(invalid='ignore'):
        same = (np.isnan(got) & np.isnan(want)) | (got == want) | (np.abs(got - want) <= limit)
    if not same.all():
        at = tuple(int(i) for i in np.argwhere(~same)[0])
        within = np.broadcast_to(limit, got.shape)[at]
        raise Fault(f'{what}{list(at)} is {got[at]!r}, wanted {want[at]!r} within {within:.2e}; '
                    f'{int((~same).sum())} of {same.size} are wrong')


def equal(what, got, want):
    close(what, got, want, 0)
