"""Keys by codes, and labels: hash.cu, hamming.cu, similarity.cu; product quantisation (pq.cu), and what makes attention of
its scores (weights.cu, topp.cu, weighted_sum.cu). Each case is a batch of two sequences, of different lengths."""

import numpy as np

from cases_select import rows_of
from stored import BYTES, DTYPES, ROUNDING, close, equal, stored, stored_kind, widened

CODE_KEYS, PQ_KEYS, PQ_ROWS = 16, 32, 4


def packed_codes(words, norms):
    """[rows][words] and [rows] as blocks of CODE_KEYS rows"""
    rows = -(-len(words) // CODE_KEYS) * CODE_KEYS
    whole = np.zeros((rows, words.shape[1] + 1), np.uint32)
    whole[:len(words), :-1], whole[:len(words), -1] = words, norms.astype(np.float32).view(np.uint32)
    return whole.reshape(-1, CODE_KEYS, words.shape[1] + 1).transpose(0, 2, 1)


def hash_(d, dtype='f16', kv_heads=2, group=1, dim=72, bits=96, tokens=(40, 3)):
    rng = np.random.default_rng(1)
    d.begin()
    a = rng.standard_normal((kv_heads, bits, dim)).astype(np.float32)
    seqs, wanted = [], []
    for n in tokens:
        x = stored(rng.standard_normal((n, kv_heads, group, dim)), dtype)
        words = bits // 32
        head_bytes = -(-(n * group + 2) // CODE_KEYS) * CODE_KEYS * (words + 1) * 4
        codes = d.empty(kv_heads * head_bytes, 'codes')
        seqs.append(dict(x=d.array(x, 'x', offset=BYTES[dtype]), tokens=n, token_stride=kv_heads * group * dim, codes=codes,
                         code_head_bytes=head_bytes, first=2))
        wanted.append((codes, head_bytes, widened(x, dtype)))
    d.batch('ha_cuda_hash', 'ha_device_hash', seqs, kv_heads=kv_heads, group=group, head_dim=dim, bits=bits,
            dtype=DTYPES[dtype], a=d.array(a, 'a'))
    for codes, head_bytes, x in wanted:
        words = bits // 32
        raw, written = d.fetch(codes, (kv_heads, head_bytes // (4 * CODE_KEYS * (words + 1)), words + 1, CODE_KEYS), np.uint32)
        for h in range(kv_heads):
            of = x[:, h].reshape(-1, dim)
            rows = raw[h].transpose(0, 2, 1).reshape(-1, bits // 32 + 1)[2:2 + len(of)]
            products = of @ a[h].astype(np.float64).T
            got = np.unpackbits(rows[:, :-1].copy().view(np.uint8), axis=1, bitorder='little')
            wrong = (got != (products > 0)) & (np.abs(products) > 1e-4)
            equal('bits of codes', wrong, False)
            close('norms', rows[:, -1].copy().view(np.float32), np.sqrt((of * of).sum(axis=1)), 1e-5)
            if not written[h].transpose(0, 2, 1).reshape(-1, bits // 32 + 1)[2:2 + len(of)].all():
                raise AssertionError('codes are not written')


def hamming(d, kv_heads=2, rows=3, bits=96, only=False):
    rng = np.random.default_rng(1)
    d.begin()
    words = bits // 32
    seqs, wanted = [], []
    for keys in (300, 9):
        codes = rng.integers(0, 1 << 32, (kv_heads, keys, words), dtype=np.uint64).astype(np.uint32)
        queries = rng.integers(0, 1 << 32, (kv_heads, rows, words), dtype=np.uint64).astype(np.uint32)
        norms = rng.uniform(1, 2, (kv_heads, keys)).astype(np.float32)
        packed = np.stack([packed_codes(codes[h], norms[h]) for h in range(kv_heads)])
        q = np.stack([packed_codes(queries[h], norms[h][:rows]) for h in range(kv_heads)])
        s = d.empty(4 * kv_heads * rows * (keys + 3), 's')
        asked = np.array([1] + [0 if only else 1] * (kv_heads - 1), np.uint32)
        differ = (codes[:, None] ^ queries[:, :, None]).view(np.uint8)
        wanted.append((s, norms[:, None] * (bits - 2 * np.unpackbits(differ, axis=3).sum(axis=3).astype(np.float32)), asked))
        seqs.append(dict(q=d.array(q, 'queries'), codes=d.array(packed, 'codes'), q_head_bytes=q[0].nbytes,
                         code_head_bytes=packed[0].nbytes, keys=keys, s=s, s_stride=keys + 3,
                         only=d.array(asked, 'those asked for') if only else 0))
    d.batch('ha_cuda_hamming', 'ha_device_hamming', seqs, kv_heads=kv_heads, rows=rows, bits=bits)
    for at, want, asked in wanted:
        got, written = d.fetch(at, (*want.shape[:2], want.shape[2] + 3), np.float32)
        equal('s', got[asked > 0, :, :-3], want[asked > 0])
        equal('written', written[asked == 0], False)


def similarity(d, q_len=2, group=6, kv_heads=3, dim=72, harmonic=False):
    rng = np.random.default_rng(1)
    d.begin()
    heads = group * kv_heads
    importance, threshold = rng.uniform(1, 2, heads).astype(np.float32), np.full(kv_heads, 0.8, np.float32)
    seqs, wanted = [], []
    for noise in (0.1, 0.6):
        label = rng.standard_normal((heads, dim)).astype(np.float32)
        of_head = noise * (np.arange(heads) // group)[:, None]
        q = (label + of_head * rng.standard_normal((q_len, heads, dim))).astype(np.float32)
        at = {'label': d.array(label, 'labels'), 'similarity': d.empty(4 * kv_heads, 'similarity'),
              'missed': d.empty(4 * kv_heads, 'misses')}
        seqs.append(dict(q=d.array(q, 'q'), **at))
        q64, l64 = q.astype(np.float64), label.astype(np.float64)
        cosine = (q64 * l64).sum(axis=2) / np.sqrt((q64 ** 2).sum(axis=2) * (l64 ** 2).sum(axis=1))
        least, w = cosine.min(axis=0).reshape(kv_heads, group), importance.reshape(kv_heads, group)
        want = w.sum(axis=1) / (w / least).sum(axis=1) if harmonic else least.min(axis=1)
        wanted.append((at, want, np.where((want < 0.8).repeat(group)[:, None], q[-1], label)))
    d.batch('ha_cuda_similarity', 'ha_device_similarity', seqs, q_len=q_len, q_heads=heads, kv_heads=kv_heads, head_dim=dim,
            group=int(harmonic), importance=d.array(importance, 'importance') if harmonic else 0,
            threshold=d.array(threshold, 'thresholds'))
    for at, want, labels in wanted:
        close('similarity', d.result(at['similarity'], (kv_heads,), np.float32), want, 1e-6)
        equal('misses', d.result(at['missed'], (kv_heads,), np.uint32), want < 0.8)
        equal('labels', d.result(at['label'], labels.shape, np.float32), labels)


# ---- product quantisation


def book(d, rng, kv_heads, groups, dims, count, bits, books):
    """struct ha_pq, and the centroids of each head, [groups][dims][count]"""
    centroid = rng.standard_normal((kv_heads, books, dims, count)).astype(np.float32)
    fields = dict(centroid=d.array(centroid, 'centroids'), groups=groups, dims=dims, count=count, books=books, bits=bits)
    return d.api.make('ha_pq', **fields), centroid[:, np.arange(groups) % books]


def packed_pq(codes, bits):
    """[keys][groups] as blocks of PQ_KEYS keys, [groups][PQ_KEYS * bits / 8]"""
    keys, groups = codes.shape
    whole = np.zeros((-(-keys // PQ_KEYS) * PQ_KEYS, groups), np.uint32)
    whole[:keys] = codes
    each = (whole[..., None] >> np.arange(bits, dtype=np.uint32) & 1).astype(np.uint8)  # [keys][groups][bits]
    each = each.reshape(-1, PQ_KEYS, groups, bits).transpose(0, 2, 1, 3).reshape(-1, groups, PQ_KEYS * bits)
    return np.packbits(each, axis=2, bitorder='little')


def pq_encode(d, dtype='f16', kv_heads=2, groups=5, dims=4, count=13, bits=4, books=5):
    rng = np.random.default_rng(1)
    d.begin()
    pq, centroids = book(d, rng, kv_heads, groups, dims, count, bits, books)
    seqs, wanted = [], []
    for keys in (70, 5):
        rows, x = rows_of(d, rng, keys, kv_heads, groups * dims, dtype, index=keys == 5)
        old = packed_pq(rng.integers(0, count, (keys + 3, groups)), bits)
        codes = d.array(np.stack([old] * kv_heads), 'codes')
        seqs.append(dict(rows=rows, k_head_bytes=groups * dims * BYTES[dtype], codes=codes, code_head_bytes=old.nbytes,
                         first=3))
        wanted.append((codes, x, old))
    d.batch('ha_cuda_pq_encode', 'ha_device_pq_encode', seqs, kv_heads=kv_heads, pq=pq, dtype=DTYPES[dtype])
    for at, x, old in wanted:
        got, _ = d.fetch(at, (kv_heads, *old.shape), np.uint8)
        for h in range(kv_heads):
            split = x[:, h].reshape(len(x), groups, dims)
            far = ((split[..., None] - centroids[h][None].astype(np.float64)) ** 2).sum(axis=2)  # [keys][groups][count]
            codes, before = unpacked_pq(got[h], bits), unpacked_pq(old, bits)
            equal('codes before the first', codes[:3], before[:3])
            chosen = np.take_along_axis(far, codes[3:3 + len(x)].astype(np.int64)[..., None], 2)[..., 0]
            close('distances of what was chosen', chosen, far.min(axis=2), 1e-5 * (1 + far.min(axis=2)))


def unpacked_pq(packed, bits):
    blocks, groups, _ = packed.shape
    each = np.unpackbits(packed, axis=2, bitorder='little').reshape(blocks, groups, PQ_KEYS, bits)
    return (each.astype(np.uint32) << np.arange(bits, dtype=np.uint32)).sum(axis=3).transpose(0, 2, 1).reshape(-1, groups)


def pq_table(d, table='f32', q_len=3, group=2, kv_heads=2, groups=5, dims=4, count=150, books=1):
    rng = np.random.default_rng(1)
    d.begin()
    heads, rows = group * kv_heads, q_len * group
    pq, centroids = book(d, rng, kv_heads, groups, dims, count, 8, books)
    seqs, wanted = [], []
    for _ in range(2):
        q = rng.standard_normal((q_len, heads, groups * dims)).astype(np.float32)
        shape = (kv_heads, -(-rows // PQ_ROWS), groups, count, PQ_ROWS)
        at = d.empty(int(np.prod(shape)) * BYTES[table], 'a table')
        of = q.transpose(1, 0, 2).reshape(kv_heads, rows, groups, dims).astype(np.float64)
        want = np.zeros((kv_heads, shape[1] * PQ_ROWS, groups, count))
        want[:, :rows] = np.einsum('hrgd,hgdc->hrgc', of, centroids.astype(np.float64))
        wanted.append((at, want.reshape(kv_heads, shape[1], PQ_ROWS, groups, count).transpose(0, 1, 3, 4, 2)))
        seqs.append(dict(q=d.array(q, 'q'), table=at, table_head_bytes=int(np.prod(shape[1:])) * BYTES[table]))
    d.batch('ha_cuda_pq_table', 'ha_device_pq_table', seqs, q_len=q_len, q_heads=heads, kv_heads=kv_heads, pq=pq,
            type=DTYPES[table])
    for at, want in wanted:
        close('the table', widened(d.result(at, want.shape, stored_kind(table)), table), want,
              1e-5 + 1.01 * ROUNDING[table] * np.abs(want))


def pq_score(d, table='f32', rows=6, kv_heads=2, groups=9, count=200, bits=8, keys=300):
    rng = np.random.default_rng(1)
    d.begin()
    quads = -(-rows // PQ_ROWS)
    seqs, wanted = [], []
    for n in (keys, 5):
        values = stored(rng.standard_normal((kv_heads, quads, groups, count, PQ_ROWS)), table)
        codes = rng.integers(0, count, (kv_heads, n, groups))
        packed = np.stack([packed_pq(c, bits) for c in codes])
        s = d.empty(4 * kv_heads * rows * (n + 3), 's')
        seqs.append(dict(table=d.array(values, 'tables'), codes=d.array(packed, 'codes'), table_head_bytes=values[0].nbytes,
                         code_head_bytes=packed[0].nbytes, keys=n, s=s, s_stride=n + 3))
        want = np.stack([sum(widened(values[h, :, g][:, codes[h, :, g]], table) for g in range(groups))
                         for h in range(kv_heads)])
        wanted.append((s, 0.5 * want.transpose(0, 1, 3, 2).reshape(kv_heads, quads * PQ_ROWS, n)[:, :rows]))
    pq = d.api.make('ha_pq', groups=groups, dims=4, count=count, books=1, bits=bits)
    d.batch('ha_cuda_pq_score', 'ha_device_pq_score', seqs, kv_heads=kv_heads, rows=rows, pq=pq, type=DTYPES[table],
            scale=0.5)
    for at, want in wanted:
        got, _ = d.fetch(at, (*want.shape[:2], want.shape[2] + 3), np.float32)
        close('s', got[..., :-3], want, 1e-5)


# ---- weights of scores, the least prefix of them, and their sum of V


def softmax(d, n=300, heads=3, q_len=2):
    rng = np.random.default_rng(1)
    d.begin()
    seqs, wanted = [], []
    for n_of in (n, 7):
        x = (4 * rng.standard_normal((heads, q_len, n_of + 2))).astype(np.float32)
        x[1, 0, :n_of] = -np.inf
        x[2, 1, 3] = np.nan
        at, lse = d.array(x, 'x'), d.empty(4 * q_len * (heads + 1), 'the LSE')
        seqs.append(dict(x=at, n=n_of, stride=n_of + 2, lse=lse, lse_stride=heads + 1))
        wanted.append((at, lse, x[..., :n_of].astype(np.float64)))
    d.batch('ha_cuda_softmax', 'ha_device_softmax', seqs, heads=heads, q_len=q_len)
    for at, lse, x in wanted:
        with np.errstate(all='ignore'):
            top = x.max(axis=2)
            whole = top + np.log(np.exp(x - top[..., None]).sum(axis=2))
            whole[1, 0] = -np.inf
            want = np.where(np.isneginf(whole)[..., None], 0, np.exp(x - whole[..., None]))
        got, _ = d.fetch(at, (heads, q_len, x.shape[2] + 2), np.float32)
        close('weights', got[..., :x.shape[2]], want, 2e-6)
        close('LSE', d.fetch(lse, (q_len, heads + 1), np.float32)[0][:, :heads], whole.T, 1e-5)


def topp(d, w_type='f32', n=300, lists=3, rows=2, p=0.9, equals=False):
    rng = np.random.default_rng(1)
    d.begin()
    seqs, wanted = [], []
    for n_of in (n, 20):
        x = rng.standard_normal((lists, rows, n_of)) * 2
        w = np.exp(x)
        w = (w / w.sum(axis=2)[..., None]).astype(np.float32)
        if equals:
            w[:] = np.float32(1 / n_of)
        at = {'keys': d.empty(4 * lists, 'counts'), 'index': d.empty(4 * lists * (n_of + 1), 'the index'),
              'w': d.empty(BYTES[w_type] * lists * rows * (n_of + 1), 'weights')}
        seqs.append(dict(x=d.array(w, 'x'), n=n_of, stride=n_of, index_stride=n_of + 1, w_stride=n_of + 1, **at))
        wanted.append((at, w))
    d.batch('ha_cuda_topp', 'ha_device_topp', seqs, lists=lists, rows=rows, p=p, w_type=DTYPES[w_type])
    for at, w in wanted:
        n_of = w.shape[2]
        keys, index = d.result(at['keys'], (lists,), np.uint32), d.fetch(at['index'], (lists, n_of + 1), np.uint32)[0]
        out = d.fetch(at['w'], (lists, rows, n_of + 1), stored_kind(w_type))[0]
        for i in range(lists):
            want = least_prefix(w[i], rows * p)
            equal('count', keys[i], len(want))
            equal('index', index[i, :len(want)], want)
            equal('weights', out[i, :, :len(want)], stored(w[i][:, want], w_type))


def least_prefix(w, share):
    units = [sum(int(np.floor(float(x) * 2 ** 52)) for x in column) for column in w.T]
    order = sorted(range(len(units)), key=lambda i: (-units[i], i))
    total = 0
    for count, i in enumerate(order, 1):
        total += units[i]
        if total >= int(np.ceil(share * 2 ** 52)):
            return sorted(order[:count])
    return sorted(order)


def weighted_sum(d, dtype='f16', w_type='f32', q_len=1, heads=4, kv_heads=2, dim=72, n=130):
    rng = np.random.default_rng(1)
    d.begin()
    seqs, wanted = [], []
    for n_of in (n, 3):
        rows, v = rows_of(d, rng, n_of + 9, kv_heads, dim, dtype)
        keys = rng.integers(1, n_of, heads).astype(np.uint32)
        index = np.stack([np.sort(rng.permutation(n_of + 9)[:n_of]) for _ in range(heads)]).astype(np.uint32)
        w = stored(rng.uniform(0, 1, (heads, q_len, n_of)), w_type)
        o = d.empty(4 * q_len * heads * dim, 'o')
        seqs.append(dict(v=rows.k, v_stride_bytes=rows.k_stride_bytes, v_head_bytes=dim * BYTES[dtype],
                         keys=d.array(keys, 'counts'), index=d.array(index, 'the index'), w=d.array(w, 'weights'), index_stride=n_of, w_stride=n_of, o=o))
        want = [widened(w, w_type)[h, :, :keys[h]] @ v[index[h, :keys[h]], h // (heads // kv_heads)] for h in range(heads)]
        wanted.append((o, np.stack(want, axis=1)))
    d.batch('ha_cuda_weighted_sum', 'ha_device_weighted_sum', seqs, q_len=q_len, q_heads=heads, kv_heads=kv_heads,
            head_dim=dim, dtype=DTYPES[dtype], w_type=DTYPES[w_type])
    for at, want in wanted:
        close('o', d.result(at, want.shape, np.float32), want, 2e-5)


TYPES = ('f32', 'f16', 'bf16')
CASES = [(hash_, dict(dtype=dtype, group=group, tokens=tokens)) for dtype in TYPES
         for group, tokens in ((1, (40, 3)), (4, (2, 1)))]
CASES += [(hamming, {}), (hamming, dict(rows=9, bits=256)), (hamming, dict(only=True, bits=32)), (similarity, {}),
          (similarity, dict(harmonic=True))]
CASES += [(pq_encode, dict(dtype=dtype, dims=dims, bits=bits, books=books)) for dtype in TYPES
          for dims, bits, books in ((4, 4, 5), (9, 5, 1), (20, 11, 5))]
CASES += [(pq_table, dict(table=table, books=books)) for table, books in (('f32', 1), ('f16', 5))]
CASES += [(pq_score, dict(table=table, count=count, bits=bits, keys=keys, rows=rows)) for table in ('f32', 'f16')
          for count, bits, keys, rows in ((200, 8, 300, 6), (300, 9, 70, 3), (13, 5, 4200, 1), (300, 11, 4200, 1))]
CASES += [(softmax, {}), (softmax, dict(n=2100, q_len=2))]
CASES += [(topp, dict(w_type=w_type, **shape)) for w_type in ('f32', 'f16')
          for shape in ({}, dict(n=2100), dict(equals=True, p=0.25), dict(p=1.0))]
CASES += [(weighted_sum, dict(dtype=dtype, w_type=w_type, q_len=q_len)) for dtype in TYPES for w_type in ('f32', 'f16')
          for q_len in (1, 3)]
MORE = [(pq_score, dict(table=table, count=count, bits=bits, keys=keys, groups=groups)) for table in ('f32', 'f16')
        for count, bits in ((2, 1), (16, 4), (256, 8), (4096, 12)) for keys in (32, 1000) for groups in (1, 32)]
MORE += [(pq_encode, dict(dtype=dtype, dims=dims, bits=bits, count=1 << bits)) for dtype in TYPES for dims in (1, 8, 64)
         for bits in (1, 3, 8)]
