"""What selects keys: digests and their scores (digest.cu), the largest of these (topk.cu), what a cache has of them
(split.cu), partial keys and queries and scores of rows (columns.cu), predicted queries (rotate.cu), and what predicts
budgets (features.cu, net.cu). Each case is a batch of two sequences, of different lengths."""

import numpy as np

from stored import BYTES, DTYPES, ROUNDING, close, equal, stored, stored_kind, widened

GROUP = 32  # HA_PACK_KEYS


def rows_of(d, rng, keys, kv_heads, dim, dtype, index=False):
    """rows [keys][kv_heads][dim] somewhere, as fields of struct ha_rows, and what they are"""
    values = stored(rng.standard_normal((keys, kv_heads, dim)), dtype)
    places = rng.permutation(keys + 4)[:keys] if index else np.arange(keys)
    stride = kv_heads * dim * BYTES[dtype]
    at = d.empty((keys + 4) * stride, 'rows', offset=BYTES[dtype])
    for key, place in enumerate(places):
        d.memory.write(at, int(place) * stride, values[key])
    index_at = d.array(places.astype(np.uint32), 'the index') if index else 0
    return d.api.make('ha_rows', k=at, k_stride_bytes=stride, keys=keys, index=index_at), widened(values, dtype)


def digested(x, unit, mean):
    """[blocks][2][dim] of rows [keys][dim]"""
    blocks = [x[i:i + unit] for i in range(0, len(x), unit)]
    return np.array([[b.mean(axis=0)] * 2 if mean else [b.min(axis=0), b.max(axis=0)] for b in blocks])


def packed_digests(values, dtype):
    """[blocks][2][dim] as they lie in memory, zeros behind the last"""
    blocks, _, dim = values.shape
    whole = np.zeros((-(-blocks // GROUP) * GROUP, 2, dim))
    whole[:blocks] = values
    return stored(whole.reshape(-1, GROUP, 2, dim).transpose(0, 3, 2, 1), dtype)


def digest(d, dtype='f16', mean=False, unit=4, kv_heads=2, dim=72):
    rng = np.random.default_rng(1)
    d.begin()
    seqs, wanted = [], []
    for keys in (150, 7):
        rows, x = rows_of(d, rng, keys, kv_heads, dim, dtype, index=keys == 7)
        want = [packed_digests(digested(x[:, h], unit, mean), dtype) for h in range(kv_heads)]
        head_bytes = want[0].nbytes + 64
        at = d.empty(head_bytes * kv_heads, 'digests')
        wanted.append((at, head_bytes, want))
        seqs.append(dict(digests=at, head_bytes=head_bytes, first=0, blocks=-(-keys // unit), rows=rows,
                         k_head_bytes=dim * BYTES[dtype]))
    d.batch('ha_cuda_digest', 'ha_device_digest', seqs, kv_heads=kv_heads, head_dim=dim, unit=unit, kind=int(mean),
            dtype=DTYPES[dtype])
    for at, head_bytes, want in wanted:
        got, _ = d.fetch(at, (head_bytes * kv_heads,), np.uint8)
        for h in range(kv_heads):
            raw = got[h * head_bytes:h * head_bytes + want[h].nbytes].view(stored_kind(dtype)).reshape(want[h].shape)
            limit = (1e-6 + ROUNDING[dtype] * 2) * np.abs(widened(want[h], dtype)) + 1e-6 if mean else 0
            close('digests', widened(raw, dtype), widened(want[h], dtype), limit)


def digest_score(d, dtype='f16', q_len=1, group=2, kv_heads=2, dim=72):
    rng = np.random.default_rng(1)
    d.begin()
    seqs, wanted, heads = [], [], group * kv_heads
    for blocks in (170, 9):
        values = np.sort(rng.standard_normal((kv_heads, blocks, 2, dim)), axis=2)
        packed = np.stack([packed_digests(v, dtype) for v in values])
        q = rng.standard_normal((q_len, heads, dim)).astype(np.float32)
        s = d.empty(heads * q_len * (blocks + 3) * 4, 's')
        bounds = widened(stored(values, dtype), dtype)
        of = bounds[np.arange(heads) // group]  # [heads][blocks][2][dim]
        products = q.transpose(1, 0, 2)[:, :, None, None, :].astype(np.float64) * of[:, None]
        wanted.append((s, 0.5 * products.max(axis=3).sum(axis=3)))
        seqs.append(dict(q=d.array(q, 'q'), digests=d.array(packed, 'digests'), head_bytes=packed[0].nbytes, blocks=blocks,
                         s=s, s_stride=blocks + 3))
    d.batch('ha_cuda_digest_score', 'ha_device_digest_score', seqs, 'ha_device_score_seq', q_len=q_len, q_heads=heads,
            kv_heads=kv_heads, head_dim=dim, dtype=DTYPES[dtype], scale=0.5)
    check_scores(d, wanted)


def check_scores(d, wanted):
    for at, want in wanted:
        got, _ = d.fetch(at, (*want.shape[:-1], want.shape[-1] + 3), np.float32)
        close('s', got[..., :want.shape[-1]], want, 2e-5)


def topk(d, n=300, k=40, lists=3, rows=2, within=None, only=False, ties=False):
    rng = np.random.default_rng(1)
    d.begin()
    seqs, wanted = [], []
    for n_of in (n, n // 2):
        x = rng.standard_normal((lists, rows, n_of + 2)).astype(np.float32)
        if ties:
            x = np.round(x)
        x[0, :, 5] = np.nan
        x[0, 0, 7] = np.nan
        most = np.fmax.reduce(x[:, :, :n_of], axis=1)
        index, keys = d.empty(4 * lists * (k + 1), 'the index'), d.empty(4 * lists, 'counts') if within is not None else 0
        asked = np.ones(lists, np.uint32)
        asked[1:2] = 0 if only else 1
        wanted.append((index, keys, most, n_of, asked))
        seqs.append(dict(x=d.array(x, 'x'), n=n_of, k=k, stride=n_of + 2, first=11, index=index, index_stride=k + 1,
                         keys=keys, keys_unit=2, within=within or 0.0, only=d.array(asked, 'those asked for') if only else 0))
    d.batch('ha_cuda_topk', 'ha_device_topk', seqs, lists=lists, rows=rows)
    for index, keys, most, n_of, asked in wanted:
        got, written = d.fetch(index, (lists, k + 1), np.uint32)
        counts = d.fetch(keys, (lists,), np.uint32)[0] if keys else None
        for i in range(lists):
            if not asked[i]:
                equal('written', written[i], False)
                continue
            want = chosen(most[i], k, within)
            equal('index', got[i, :len(want)], want + 11)
            if counts is not None:
                equal('count', counts[i], 2 * len(want))


def chosen(x, k, within):
    order = np.lexsort((np.arange(len(x)), -np.where(np.isnan(x), -np.inf, x), np.isnan(x)))[:k]
    if within is not None:
        order = [i for i in order if x[i] >= np.float32(np.nanmax(x) - np.float32(within))]
    return np.sort(order)


def split(d, lists=4, tables=2, blocks=700, count=500):
    rng = np.random.default_rng(1)
    d.begin()
    seqs, wanted = [], []
    for n in (count, 70):
        index = np.stack([rng.permutation(blocks)[:n + 1] for _ in range(lists)]).astype(np.uint32)
        slot = rng.integers(0, 99, (tables, blocks)).astype(np.uint32)
        slot[rng.random((tables, blocks)) < 0.5] = 0xffffffff
        at = {name: d.empty(4 * lists * size, name) for name, size in
              (('here', n + 2), ('here_count', 1), ('missing', n + 2), ('missing_count', 1))}
        wanted.append((at, index[:, :n], slot, n))
        seqs.append(dict(index=d.array(index, 'the index'), count=n, index_stride=n + 1, slot=d.array(slot, 'slots'),
                         blocks=blocks, slot_stride=blocks, out_stride=n + 2, here_unit=4, **at))
    d.batch('ha_cuda_split', 'ha_device_split', seqs, lists=lists, tables=tables)
    for at, index, slot, n in wanted:
        for i in range(lists):
            places = slot[i * tables // lists][index[i]]
            there = places != 0xffffffff
            equal('here', d.fetch(at['here'], (lists, n + 2), np.uint32)[0][i, :there.sum()], places[there])
            equal('missing', d.fetch(at['missing'], (lists, n + 2), np.uint32)[0][i, :n - there.sum()], index[i][~there])
            equal('count', d.result(at['here_count'], (lists,), np.uint32)[i], 4 * there.sum())
            equal('count', d.result(at['missing_count'], (lists,), np.uint32)[i], n - there.sum())


def columns(d, x_type='f16', y_type='f16', heads=4, kv_heads=2, dim=72, columns=40):
    rng = np.random.default_rng(1)
    d.begin()
    a = rng.standard_normal((kv_heads, columns, dim)).astype(np.float32)
    seqs, wanted = [], []
    for tokens in (37, 3):
        x = stored(rng.standard_normal((tokens, heads, dim)), x_type)
        y = d.empty(tokens * heads * (columns + 1) * BYTES[y_type], 'y')
        of = a[np.arange(heads) // (heads // kv_heads)].astype(np.float64)
        wanted.append((y, np.einsum('hcd,thd->thc', of, widened(x, x_type))))
        seqs.append(dict(x=d.array(x, 'x', offset=BYTES[x_type]), y=y, tokens=tokens, y_token_stride=heads * (columns + 1),
                         y_head_stride=columns + 1))
    d.batch('ha_cuda_columns', 'ha_device_columns', seqs, heads=heads, kv_heads=kv_heads, head_dim=dim, columns=columns,
            x_type=DTYPES[x_type], y_type=DTYPES[y_type], a=d.array(a, 'a'))
    for at, want in wanted:
        raw, _ = d.fetch(at, (*want.shape[:2], columns + 1), stored_kind(y_type))
        close('y', widened(raw, y_type)[..., :columns], want, 2e-5 + 1.01 * ROUNDING[y_type] * np.abs(want))


def score(d, dtype='f16', q_len=1, group=1, kv_heads=2, dim=40):
    rng = np.random.default_rng(1)
    d.begin()
    heads = group * kv_heads
    seqs, wanted = [], []
    for keys in (150, 9):
        rows, k = rows_of(d, rng, keys, kv_heads, dim, dtype, index=keys == 150)
        q = rng.standard_normal((q_len, heads, dim)).astype(np.float32)
        s = d.empty(heads * q_len * (keys + 3) * 4, 's')
        wanted.append((s, 0.5 * np.einsum('thd,khd->htk', q.astype(np.float64), k[:, np.arange(heads) // group])))
        seqs.append(dict(q=d.array(q, 'q'), rows=rows, k_head_bytes=dim * BYTES[dtype], s=s, s_stride=keys + 3))
    d.batch('ha_cuda_score', 'ha_device_score', seqs, 'ha_device_rows_seq', q_len=q_len, q_heads=heads, kv_heads=kv_heads,
            head_dim=dim, dtype=DTYPES[dtype], scale=0.5)
    check_scores(d, wanted)


def rotate(d, tokens=3, heads=3, dim=72, rotary=40, adjacent=False, bias=True, norm=True):
    rng = np.random.default_rng(1)
    d.begin()
    q, b = rng.standard_normal((tokens, heads, dim)).astype(np.float32), rng.standard_normal((heads, dim)).astype(np.float32)
    n, angle = rng.uniform(0.5, 2, dim).astype(np.float32), rng.uniform(0, 6, (tokens, rotary // 2))
    turn = np.stack([np.cos(angle), np.sin(angle)], axis=2).astype(np.float32)
    at = d.array(q, 'q')
    d.one('ha_cuda_rotate', 'ha_device_rotate', q=at, tokens=tokens, heads=heads, head_dim=dim,
          bias=d.array(b, 'bias') if bias else 0, norm=d.array(n, 'norm') if norm else 0, norm_eps=1e-5,
          turn=d.array(turn, 'turn') if rotary else 0, rotary=rotary, adjacent=adjacent)
    x = q.astype(np.float64) + (b if bias else 0)
    if norm:
        x = x / np.sqrt((x * x).mean(axis=2) + 1e-5)[..., None] * n
    j = np.arange(rotary // 2)
    first, second = (2 * j, 2 * j + 1) if adjacent else (j, j + rotary // 2)
    cos, sin = turn[:, None, :, 0].astype(np.float64), turn[:, None, :, 1].astype(np.float64)
    want = x.copy()
    want[..., first] = x[..., first] * cos - x[..., second] * sin
    want[..., second] = x[..., second] * cos + x[..., first] * sin
    close('q', d.result(at, q.shape, np.float32), want, 1e-5)


def features(d, heads=6, kv_heads=2, dim=72):
    rng = np.random.default_rng(1)
    d.begin()
    count = d.api.HA_FEATURES
    f = {name[len('HA_FEATURE_'):]: value for name, value in d.api.constants.items() if name.startswith('HA_FEATURE_')}
    mean, inv = rng.standard_normal(count).astype(np.float32), rng.uniform(0.1, 1, count).astype(np.float32)
    inv[f['K_NORM_SINK']] = 0
    seqs, wanted = [], []
    for b in range(2):
        q, anchor, o0, o1 = rng.standard_normal((4, heads, dim)).astype(np.float32)
        known = rng.uniform(1, 2, (heads, count)).astype(np.float32)
        mean_k = rng.standard_normal((kv_heads, dim)).astype(np.float32)
        lse = rng.standard_normal((2, heads)).astype(np.float32)
        lse[1, 2] = -np.inf
        x = d.empty(4 * heads * count, 'x')
        of = [d.array(v, name) for v, name in ((q, 'q'), (known, 'known'), (anchor, 'the anchor'), (mean_k, 'means'))]
        seqs.append(dict(q=of[0], known=of[1], anchor=of[2], mean_k=of[3], o=[d.array(o0, 'o'), d.array(o1, 'o')],
                         lse=[d.array(v, 'an LSE') for v in lse], device_keys=99, x=x))
        means = mean_k[np.arange(heads) // (heads // kv_heads)]
        wanted.append((x, feature_values(f, q, anchor, (o0, o1), known, means, lse)))
    d.batch('ha_cuda_features', 'ha_device_features', seqs, q_heads=heads, kv_heads=kv_heads, head_dim=dim, scale=0.125,
            mean=d.array(mean, 'mean'), inv=d.array(inv, 'inv'))
    for at, values in wanted:
        with np.errstate(invalid='ignore'):
            want = np.clip(np.where(inv == 0, 0, (values - mean) * inv), -10, 10)
        close('x', d.result(at, values.shape, np.float32), want, 2e-5)


def feature_values(f, q, anchor, o, known, mean_k, lse):
    q, anchor, lse = q.astype(np.float64), anchor.astype(np.float64), lse.astype(np.float64)

    def length(x):
        return np.sqrt((x * x).sum(axis=1))
    empty = np.isneginf(lse)
    o = np.where(empty[..., None], 0, np.array(o, np.float64))
    p = np.exp(lse - lse.max(axis=0))
    joined = (p[..., None] * o).sum(axis=0) / p.sum(axis=0)[:, None]
    norm, score_mean = length(q), 0.125 * (q * mean_k).sum(axis=1) / length(q)
    x = known.astype(np.float64)
    x[:, f['DEVICE_KEYS']], x[:, f['SCORE_MEAN']], x[:, f['Q_NORM']] = 99, score_mean, norm
    x[:, f['LSE_SINK']], x[:, f['LSE_LOCAL']] = lse
    variance = x[:, f['ANCHOR_SCORE_VARIANCE']]
    x[:, f['LSE_HOST']] = np.log(x[:, f['HOST_KEYS']]) + norm * score_mean + 0.5 * norm ** 2 * variance
    x[:, f['O_NORM_SINK']], x[:, f['O_NORM_LOCAL']] = length(o[0]), length(o[1])
    x[:, f['Q_COSINE']] = (q * anchor).sum(axis=1) / (norm * length(anchor))
    x[:, f['O_NORM_MAX']] = length(joined).max()
    return x


def net(d, rows=6, width=(37, 70, 33, 3)):
    rng = np.random.default_rng(1)
    d.begin()
    x = rng.standard_normal((rows, width[0])).astype(np.float32)
    layers, want = [], x.astype(np.float64)
    for i, (n, m) in enumerate(zip(width, width[1:])):
        w, b = rng.standard_normal((n, m)).astype(np.float32) / 8, rng.standard_normal(m).astype(np.float32)
        layers += [w.reshape(-1), b]
        want = want @ w + b
        want = np.maximum(want, 0) if i + 2 < len(width) else want
    y = d.empty(4 * want.size, 'y')
    d.one('ha_cuda_net', 'ha_net', rows=rows, layers=len(width) - 1, width=list(width),
          w=d.array(np.concatenate(layers), 'w'), x=d.array(x, 'x'), y=y)
    close('y', d.result(y, want.shape, np.float32), want, 2e-5)


TYPES = ('f32', 'f16', 'bf16')
CASES = [(digest, dict(dtype=dtype, mean=mean)) for dtype in TYPES for mean in (False, True)]
CASES += [(digest_score, dict(dtype=dtype, q_len=q_len, group=group)) for dtype in TYPES
          for q_len, group in ((1, 1), (2, 3))]
CASES += [(topk, {}), (topk, dict(ties=True)), (topk, dict(within=1.0, only=True)), (topk, dict(n=2100, k=300, lists=2)),
          (topk, dict(k=400)), (topk, dict(n=60, k=60, within=2.5)), (split, {}), (rotate, {}),
          (rotate, dict(adjacent=True, bias=False)), (rotate, dict(rotary=0)),
          (rotate, dict(norm=False, rotary=72)), (features, {}), (net, {}), (net, dict(rows=1, width=(41, 1024, 3)))]
CASES += [(columns, dict(x_type=x, y_type=y)) for x in TYPES for y in TYPES]
CASES += [(score, dict(dtype=dtype, q_len=q_len, group=group)) for dtype in TYPES
          for q_len, group in ((1, 1), (1, 3), (3, 7))]
MORE = [(topk, dict(n=n, k=k, rows=rows, ties=ties)) for n in (1, 31, 257, 2048, 5000) for k in (1, 32, 1000)
        for rows in (1, 3) for ties in (False, True) if n > 12]
MORE += [(digest, dict(dtype=dtype, unit=unit, dim=dim)) for dtype in TYPES for unit in (1, 32, 100) for dim in (64, 128)]
