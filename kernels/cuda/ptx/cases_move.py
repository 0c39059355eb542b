"""What moves and combines rows (move.cu, blend.cu), what measures (measure.cu, accuracy.cu), and what goes around the
library's products (softmax.cu, products.cu)."""

import ctypes

import numpy as np

from stored import BYTES, DTYPES, ROUNDING, close, equal, stored, stored_kind, widened


def move(d, rows=9, row_bytes=256, index=True, offset=0, gap=0):
    rng = np.random.default_rng(1)
    d.begin()
    stride = row_bytes + gap
    source = rng.integers(0, 256, (rows + 5, stride), dtype=np.uint8)
    places = [rng.permutation(rows + 5)[:rows].astype(np.uint32) if index else np.arange(rows, dtype=np.uint32)
              for _ in range(2)]
    src, dst = d.array(source, 'the source', offset=offset), d.empty((rows + 5) * stride, 'the destination', offset=offset)
    at = [d.array(p, 'an index') if index else 0 for p in places]
    d.run('ha_cuda_move', 1, 0, d.api.make('ha_device_move', dst=dst, src=src, src_index=at[0], dst_index=at[1], rows=rows,
                                           row_bytes=row_bytes, dst_stride_bytes=stride, src_stride_bytes=stride))
    got, written = d.fetch(dst, (rows + 5, stride), np.uint8)
    equal('rows', got[places[1], :row_bytes], source[places[0], :row_bytes])
    wanted = np.zeros(written.shape, bool)
    wanted[places[1], :row_bytes] = True
    equal('bytes written', written, wanted)


def last_of_16(d, row_bytes=4096, tokens=2):
    """New tokens of 16 sequences of 128K in one allocation: rows of binary32 of 8 heads of 128, up to 8 GiB apart."""
    rng = np.random.default_rng(1)
    d.begin()
    at = (np.arange(1, 17)[:, None] * ((1 << 17) + tokens) - tokens + np.arange(tokens)).ravel()
    source = rng.integers(0, 256, (len(at), row_bytes), dtype=np.uint8)
    base = 0x100000000000
    for row in at:
        d.empty(row_bytes, 'a row', at=base + int(row) * row_bytes)
    index, src = d.array(at.astype(np.uint32), 'the index'), d.array(source, 'the source')
    back = d.empty(source.nbytes, 'what comes back')
    common = dict(rows=len(at), row_bytes=row_bytes, dst_stride_bytes=row_bytes, src_stride_bytes=row_bytes)
    d.run('ha_cuda_move', 1, 0, d.api.make('ha_device_move', dst=base, src=src, dst_index=index, **common))
    for row, values in zip(at, source):
        equal('a row', d.result(base + int(row) * row_bytes, (row_bytes,), np.uint8), values)
    d.run('ha_cuda_move', 1, 0, d.api.make('ha_device_move', dst=back, src=base, src_index=index, **common))
    equal('rows', d.result(back, source.shape, np.uint8), source)


def blend(d, rows=5, cols=40, gap=4, a=0.5, b=-1.25):
    rng = np.random.default_rng(1)
    d.begin()
    x, y = rng.standard_normal((2, rows, cols + gap)).astype(np.float32)
    at = d.array(y, 'y') if a else d.empty(y.nbytes, 'y')
    d.one('ha_cuda_blend', 'ha_device_blend', y=at, x=d.array(x, 'x'), rows=rows, cols=cols, y_stride=cols + gap,
          x_stride=cols + gap, a=a, b=b)
    want = np.float32(b) * x + (np.float32(a) * y if a else 0)
    got, _ = d.fetch(at, y.shape, np.float32)
    equal('y', got[:, :cols], want[:, :cols])


def read(d, words=5000, offset=0):
    d.begin()
    values = np.random.default_rng(1).integers(0, 1 << 32, words, dtype=np.uint64).astype(np.uint32)
    total = d.array(np.zeros(1, np.uint32), 'the sum')
    d.run('ha_cuda_read', 1, 0, d.array(values, 'words', offset=offset), values.nbytes, total)
    equal('sum', d.result(total, (1,), np.uint32), values.sum(dtype=np.uint64) & np.uint64(0xffffffff))


def wait(d):
    """what spins: until a time, and for a flag that is set; and is 0 again for the next launch"""
    d.begin()
    d.run('ha_cuda_spin', 0, 10_000)
    flag = d.array(np.zeros(2, np.uint32), 'flags')
    d.run('ha_cuda_flag_write', 0, flag, 7)
    equal('flag', d.result(flag, (2,), np.uint32), [7, 0])
    d.run('ha_cuda_flag_wait', 0, flag, 7, flag + 4)
    d.run('ha_cuda_flag_write', 0, flag, 0)
    equal('flag that is reset', d.result(flag, (2,), np.uint32), [0, 0])


def accuracy(d, step=1 << 19):
    """the error of exp, exp2, log and log2, which those of PTX have had in every run"""
    d.begin()
    worst = d.array(np.zeros(4), 'worst')
    d.run('ha_cuda_accuracy', 1, 0, step, worst)
    got = d.result(worst, (4,), np.float64)
    if not ((got > 2.0 ** -27) & (got < 2.0 ** -22)).all():
        raise AssertionError(f'errors of {got}')


def softmax(d, dtype='f16', rows=6, group=2, q_len=3, keys=70, causal=True):
    d.begin()
    s = np.random.default_rng(1).standard_normal((rows, keys + 3)).astype(np.float32) * 4
    p, top, total = d.empty(rows * (keys + 5) * BYTES[dtype], 'p'), d.empty(4 * rows, 'max'), d.empty(4 * rows, 'sum')
    d.one('ha_cuda_products_softmax', 'ha_cuda_scores', s=d.array(s, 's'), p=p, max=top, sum=total, rows=rows, group=group, keys=keys,
          stride=keys + 3, p_stride=keys + 5, q_len=q_len, causal=causal, scale=0.5, dtype=DTYPES[dtype])
    visible = keys - (q_len - 1 - np.arange(rows) // group % q_len if causal else np.zeros(rows, int))
    scores = np.where(np.arange(keys) < visible[:, None], s[:, :keys] * 0.5, -np.inf).astype(np.float64)
    weights = np.exp(scores - scores.max(axis=1)[:, None])
    raw, _ = d.fetch(p, (rows, keys + 5), stored_kind(dtype))
    close('p', widened(raw, dtype)[:, :keys], weights, 1e-6 + ROUNDING[dtype] * weights * 1.01)
    close('max', d.result(top, (rows,), np.float32), scores.max(axis=1), 1e-6)
    close('sum', d.result(total, (rows,), np.float32), weights.sum(axis=1), 1e-6 * keys)


def products(d, dtype='f16', kv_heads=2, group=2, dim=72, q_len=3, batch=2, runs=(5, 9)):
    """queries for the library and the arrays of its operands; then its sums as attention"""
    rng = np.random.default_rng(1)
    d.begin()
    heads, count = kv_heads * group, batch * kv_heads
    q = rng.standard_normal((batch, q_len, heads, dim)).astype(np.float32)
    run_at, stride = [0, 8], 20
    seqs, out = [], []
    for b in range(batch):
        rows = [d.api.make('ha_rows', k=0x1000 * (b + 1) + r, v=0x2000 * (b + 1) + r, keys=n) for r, n in enumerate(runs)]
        out.append((d.empty(q[b].nbytes, 'o'), d.empty(4 * q_len * heads, 'the LSE')))
        seqs.append(d.api.make('ha_device_seq', q=d.array(q[b], 'q'), o=out[b][0], lse=out[b][1], runs=rows,
                               runs_count=len(runs), k_head_bytes=64, v_head_bytes=32))
    array = (d.api.structs['ha_device_seq'] * batch)(*seqs)
    rows = count * q_len * group
    sums = rng.standard_normal((rows, dim)).astype(np.float32)
    top, total = rng.standard_normal(rows).astype(np.float32), rng.uniform(1, 9, rows).astype(np.float32)
    top[3] = -np.inf
    at = {'q': d.empty(rows * dim * BYTES[dtype], 'queries'), 's': d.empty(rows * stride * 4, 's'), 'p': 0x77000,
          'o': d.array(sums, 'sums'), 'max': d.array(top, 'max'), 'sum': d.array(total, 'sum'),
          'operands': d.empty(len(runs) * 6 * count * 8, 'operands')}
    args = d.api.make('ha_cuda_products', seqs=ctypes.addressof(array), seqs_count=batch, q_heads=heads, kv_heads=kv_heads,
                      head_dim=dim, q_token_stride=heads * dim, q_head_stride=dim, dtype=DTYPES[dtype], count=count,
                      tokens=q_len,
                      stride=stride, run_at=run_at, **at)
    d.run('ha_cuda_products_begin', 0, args)
    d.run('ha_cuda_products_end', 0, args)
    ordered = q.reshape(batch, q_len, kv_heads, group, dim).transpose(0, 2, 1, 3, 4).reshape(rows, dim)
    equal('queries', d.result(at['q'], (rows, dim), stored_kind(dtype)), stored(ordered, dtype))
    scores, written = d.fetch(at['s'], (rows, stride), np.float32)
    equal('scores between runs', scores[:, 5:8], -np.inf)
    equal('scores written', written, np.isin(np.arange(stride), (5, 6, 7)) & np.ones((rows, 1), bool))
    operands = d.result(at['operands'], (len(runs), 6, count), np.uint64)
    for r in range(len(runs)):
        n = np.arange(count)
        b, h, first = n // kv_heads, n % kv_heads, n * q_len * group
        score = first * stride + run_at[r]
        equal('operands', operands[r],
              [0x1000 * (b + 1) + r + 64 * h, at['q'] + first * dim * BYTES[dtype], at['s'] + 4 * score,
                                        0x2000 * (b + 1) + r + 32 * h, at['p'] + score * BYTES[dtype],
               at['o'] + 4 * first * dim])
    with np.errstate(all='ignore'):
        want_o = np.where(np.isneginf(top)[:, None], 0, sums / total[:, None])
        want_lse = np.where(np.isneginf(top), -np.inf, top + np.log(total.astype(np.float64)))
    shape = (batch, kv_heads, q_len, group)
    want_o = want_o.reshape(*shape, dim).transpose(0, 2, 1, 3, 4).reshape(q.shape)
    want_lse = want_lse.reshape(shape).transpose(0, 2, 1, 3).reshape(batch, q_len, heads)
    for b in range(batch):
        close('o', d.result(out[b][0], q[b].shape, np.float32), want_o[b], 1e-6)
        close('LSE', d.result(out[b][1], (q_len, heads), np.float32), want_lse[b], 1e-6)


# every width of access, at one piece a thread and at eight
CASES = [(move, dict(rows=9, row_bytes=256)), (move, dict(rows=40, row_bytes=1024, gap=16)),
         (move, dict(rows=9, row_bytes=200, index=False)), (move, dict(rows=60, row_bytes=600, gap=8)),
         (move, dict(rows=9, row_bytes=76)), (move, dict(rows=100, row_bytes=100, offset=4)),
         (move, dict(rows=9, row_bytes=64, offset=2)), (move, dict(rows=50, row_bytes=90)),
         (move, dict(rows=9, row_bytes=77)), (move, dict(rows=40, row_bytes=77, index=False, offset=1)),
         (last_of_16, {}), (last_of_16, dict(row_bytes=2050)),
         (blend, {}), (blend, dict(cols=39, gap=1)), (blend, dict(a=0.0)), (blend, dict(rows=1, cols=700, gap=0)),
         (read, {}), (read, dict(words=40_000, offset=4)), (read, dict(words=3, offset=12)), (wait, {}), (accuracy, {})]
CASES += [(softmax, dict(dtype=dtype, **shape)) for dtype in ('f32', 'f16', 'bf16')
          for shape in ({}, dict(keys=2060, rows=2, q_len=1, causal=False))]
CASES += [(products, dict(dtype=dtype)) for dtype in ('f32', 'f16', 'bf16')]
MORE = [(accuracy, dict(step=1 << 14))]
MORE += [(move, dict(rows=rows, row_bytes=row_bytes, index=index, offset=offset)) for rows in (1, 33, 200)
         for row_bytes in (16, 100, 512)
         for index in (False, True) for offset in (0, 1)]
