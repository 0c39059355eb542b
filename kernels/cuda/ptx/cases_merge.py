"""The merge of attention states (merge.cu): all forms, types and layouts."""

import ctypes

import numpy as np

from stored import BYTES, DTYPES, ROUNDING, close, stored, stored_kind, widened

NATURAL, BASE2, DIRECT, MAX_SUM = range(4)  # enum ha_form


FAR = 1 << 20  # elements: rows so far apart are allocations of their own


def state(d, name, o, lse, total, dtype, pad):
    """A state in memory, rows of o `pad` elements further apart than they are long. o, lse: None, for the output."""
    tokens, heads, dim = o.shape
    stride = heads * dim + pad
    at = 0x100000000000 * (1 + len(d.memory.names))
    for t in range(tokens if pad > FAR else 0):
        d.empty(heads * dim * BYTES[dtype], f'a row of o of {name}', at=at + t * stride * BYTES[dtype])
    if pad <= FAR:
        at = d.empty(((tokens - 1) * stride + heads * dim) * BYTES[dtype], f'o of {name}',
                     offset=16 if pad % 8 == 0 else BYTES[dtype])
    levels = [d.empty(tokens * heads * 4, f'the LSE of {name}'), d.empty(tokens * heads * 4, f'the sum of {name}')]
    if lse is not None:
        for t in range(tokens):
            place = t * stride * BYTES[dtype]
            d.memory.write(*((at + place, 0) if pad > FAR else (at, place)), stored(o[t], dtype))
        for level, values in zip(levels, (lse, total)):
            d.memory.write(level, 0, values.astype(np.float32))
    return d.api.make('ha_merge_state', o=at, lse=levels[0], sum=levels[1], o_token_stride=stride, o_head_stride=dim,
                      lse_token_stride=heads, lse_head_stride=1)


def merge(d, states=2, dtype='f32', tokens=3, heads=2, dim=64, form=NATURAL, pad=0, alias=None, empty=(), seed=1):
    rng = np.random.default_rng(seed)
    d.begin()
    o = widened(stored(rng.standard_normal((states, tokens, heads, dim)), dtype), dtype)
    lse = (5 * rng.standard_normal((states, tokens, heads)) + 30).astype(np.float32)
    total = rng.uniform(1, 9, lse.shape).astype(np.float32)
    for e in empty:
        lse[e] = -np.inf
    made = [state(d, f'state {i}', o[i], lse[i], total[i], dtype, pad) for i in range(states)]
    out = made[alias] if alias is not None else state(d, 'the output', o[0], None, None, dtype, pad)
    array = (d.api.structs['ha_merge_state'] * states)(*made)
    d.one('ha_cuda_merge', 'ha_merge', form=form, dtype=DTYPES[dtype], states=ctypes.addressof(array), states_count=states,
          tokens=tokens, heads=heads, dim=dim, out=out)
    want_o, want_level, want_sum = merged(o, lse.astype(np.float64), total, form)
    row = heads * dim
    if pad > FAR:
        raw = np.stack([d.fetch(out.o + t * out.o_token_stride * BYTES[dtype], (row,), stored_kind(dtype))[0]
                        for t in range(tokens)])
    else:
        raw, _ = d.fetch(out.o, ((tokens - 1) * out.o_token_stride + row,), stored_kind(dtype))
        raw = raw[np.arange(tokens)[:, None] * out.o_token_stride + np.arange(row)]
    rounded = 1.01 * ROUNDING[dtype] + (5e-6 if form == DIRECT else 0)  # there the merged LSE, of about 30, is rounded first
    close('o', widened(raw, dtype).reshape(want_o.shape), want_o, 3e-6 + rounded * np.abs(want_o))
    close('LSE', d.result(out.lse, want_level.shape, np.float32), want_level, 1e-5)
    if form == MAX_SUM:
        close('sum', d.result(out.sum, want_sum.shape, np.float32), want_sum, 1e-5 * want_sum)


def merged(o, level, total, form):
    unit = np.log(2) if form == BASE2 else 1
    with np.errstate(all='ignore'):
        top = level.max(axis=0)
        w = np.where(np.isneginf(level), 0, np.exp(unit * (level - np.where(np.isneginf(top), 0, top))))
        w = w * total if form == MAX_SUM else w
        sums = w.sum(axis=0)
        out = np.where(sums[..., None] > 0, (w[..., None] * o).sum(axis=0) / sums[..., None], 0)
        return out, top if form == MAX_SUM else top + np.log(sums) / unit, sums


CASES = [(merge, dict(states=states, dtype=dtype, tokens=tokens, heads=heads, dim=dim, pad=pad, form=form, alias=alias,
                      empty=empty))
         for dtype in ('f32', 'f16', 'bf16')
         for states, tokens, heads, dim, pad, form, alias, empty in (
             (2, 3, 4, 128, 8, NATURAL, None, ()), (2, 2, 3, 20, 1, BASE2, 1, ()), (5, 3, 2, 64, 0, DIRECT, 0, (1,)),
             (8, 2, 3, 40, 1, MAX_SUM, None, ()), (37, 1, 3, 128, 0, MAX_SUM, None, (3,)), (9, 1, 2, 40, 1, NATURAL, 0, ()),
             (300, 1, 1, 128, 0, BASE2, None, (7, 299)), (65, 1, 1, 24, 1, DIRECT, 64, ()))]
CASES += [(merge, dict(states=3, empty=(0, 1, 2))), (merge, dict(states=3, empty=(0, 2))), (merge, dict(states=1)),
          (merge, dict(states=12, tokens=1, empty=tuple(range(11))))]
CASES += [(merge, dict(states=states, dtype=dtype, pad=(5 << 30) + 8))
          for states, dtype in ((2, 'f32'), (9, 'f16'), (70, 'f32'))]
MORE = [(merge, dict(states=states, dtype=dtype, tokens=5, heads=3, dim=dim, pad=pad, form=form, alias=alias, seed=3))
        for states in (1, 2, 8, 64, 512) for dtype in ('f32', 'f16', 'bf16') for dim, pad in ((256, 0), (72, 1))
        for form in range(4) for alias in (None, 0)]
