"""Attention (attend*.cu): both kernels of it, what joins their splits, and the weights."""

import ctypes
import math
from dataclasses import dataclass

import numpy as np

from stored import BYTES, DTYPES, close, stored, widened

LIMIT = 3e-6  # of o and the LSE, whose values are of the order of 1


@dataclass
class Shape:
    dtype: str = 'f16'
    q_len: int = 1
    group: int = 4
    kv_heads: int = 2
    dim: int = 128
    runs: tuple = (150,)  # keys of each
    batch: int = 1
    causal: bool = True
    splits: int = 0
    block: int = 1
    index: bool = False
    lists: bool = False  # a list of rows for each KV head, of its own length
    head_major: bool = False  # rows of a head side by side, not of a token
    offset: int = 0  # of K and V, from a multiple of 256
    stride: int = 0  # bytes from a row to the next; 0: dense
    pool: int = 0  # rows in front of those that an index leads to, of other sequences, in the same pool
    weights: bool = False
    backward: bool = False  # blocks in the opposite order
    spoil: tuple = ()  # ('v', head, key, dim, value)
    seed: int = 1


class Attention:
    """One call and what it should give."""

    def __init__(self, d, s):
        self.d, self.s = d, s
        self.rng = np.random.default_rng(s.seed)
        self.elem = BYTES[s.dtype]
        self.heads = s.group * s.kv_heads
        d.begin(s.backward)
        self.scale = np.float32(1 / math.sqrt(s.dim))
        self.expected = []
        self.seqs = (d.api.structs['ha_device_seq'] * s.batch)(*(self.sequence(b) for b in range(s.batch)))

    def rows(self, values, name):
        """Rows [keys][kv_heads][dim] in memory, those behind an index in any order, and nothing where no index leads:
        (address, row stride, head stride)."""
        s, keys = self.s, len(values)
        raw = stored(values, s.dtype)
        dense = s.dim * self.elem
        stride = s.stride or (dense if s.head_major else dense * s.kv_heads)
        places = self.places if self.places is not None else np.arange(keys)
        room = int(places.max()) + 1
        head = stride * room if s.head_major else dense
        if stride > 1 << 20 or s.pool:  # each row by itself, far apart
            base = 0x100000000000 * (1 + len(self.d.memory.names))
            for key in range(keys):
                self.d.array(raw[key], f'{name}, a row', at=base + int(places[key]) * stride)
            return base, stride, head
        size = room * dense * s.kv_heads
        address = self.d.empty(size, name, offset=s.offset)
        for key in range(keys):
            for h in range(s.kv_heads):
                self.d.memory.write(address, int(places[key]) * stride + h * head, raw[key, h])
        return address, stride, head

    def places_of(self, keys):
        """where an index puts so many keys, and the index: blocks in any order, with gaps"""
        s = self.s
        if not s.index:
            return None, 0
        blocks = -(-keys // s.block)
        chosen = s.pool // s.block + self.rng.permutation(blocks + 3)[:blocks]
        places = chosen[np.arange(keys) // s.block] * s.block + np.arange(keys) % s.block
        return places, self.d.array(chosen.astype(np.uint32), 'the index')

    def sequence(self, b):
        d, s = self.d, self.s
        q = self.rng.standard_normal((s.q_len, self.heads, s.dim)).astype(np.float32)
        runs, all_k, all_v, heads = [], [], [], (0, 0)
        for n in s.runs:
            n = max(0, n - 5 * b)
            self.places, index = self.places_of(n)
            k, v = self.rng.standard_normal((2, max(n, 1), s.kv_heads, s.dim))
            for what, head, key, dim, value in s.spoil:
                (k if what == 'k' else v)[key, head, dim] = value
            k, v = (widened(stored(x, s.dtype), s.dtype)[:n] for x in (k, v))
            all_k.append(k)
            all_v.append(v)
            if n == 0:
                runs.append(d.api.make('ha_rows'))
                continue
            (k_at, k_stride, k_head), (v_at, v_stride, v_head) = self.rows(k, 'K'), self.rows(v, 'V')
            heads = k_head, v_head
            runs.append(d.api.make('ha_rows', k=k_at, v=v_at, k_stride_bytes=k_stride, v_stride_bytes=v_stride, index=index,
                                   keys=n))
        keys = sum(r.keys for r in runs)
        lengths = self.list_lengths(runs, keys) if s.lists else None
        o, lse = d.empty(q.nbytes, 'o'), d.empty(q.nbytes // s.dim, 'the LSE')
        weights = d.empty(self.heads * (keys + 3) * 4, 'weights') if s.weights else 0
        k, v = np.concatenate(all_k), np.concatenate(all_v)
        self.expected.append((q, k, v, o, lse, weights, lengths))
        seq = d.api.make('ha_device_seq', q=d.array(q, 'q'), runs=runs, runs_count=len(runs), k_head_bytes=heads[0],
                         v_head_bytes=heads[1], o=o, lse=lse, weights=weights, weights_stride=keys + 3 if s.weights else 0)
        if s.lists:
            seq.list_stride = 0  # each list is a beginning of the same one
            seq.list_keys = d.array(lengths.astype(np.uint32), 'lengths of lists')
        return seq

    def list_lengths(self, runs, keys):
        return np.array([runs[0].keys - 9 * h for h in range(self.s.kv_heads)])

    def args(self):
        s, d = self.s, self.d
        return d.api.make('ha_device_attend', batch=s.batch, q_len=s.q_len, q_heads=self.heads, kv_heads=s.kv_heads,
                          head_dim=s.dim, dtype=DTYPES[s.dtype], scale=float(self.scale), causal=s.causal,
                          seqs=ctypes.addressof(self.seqs), block=s.block, lists=s.kv_heads if s.lists else 0)

    def run(self, multiprocessors=2):
        args = self.args()
        size = self.d.call('ha_cuda_attend_workspace', multiprocessors, args)
        workspace = self.d.empty(size, 'the workspace')
        self.d.run('ha_cuda_attend', multiprocessors, 0, args, workspace, self.s.splits)

    def check(self):
        for q, k, v, o, lse, weights, lengths in self.expected:
            want_o, want_lse, want_w = self.reference(q, k, v, lengths)
            s = self.s
            close('o', self.d.result(o, want_o.shape, np.float32), want_o, LIMIT)
            close('LSE', self.d.result(lse, want_lse.shape, np.float32), want_lse, LIMIT)
            if s.weights:
                got, written = self.d.fetch(weights, (self.heads, len(k) + 3), np.float32)
                close('weights', got[:, :len(k)], want_w, LIMIT)
                if not written[:, :len(k)].all():
                    raise AssertionError('weights are not written')

    def reference(self, q, k, v, lengths):
        s, keys = self.s, len(k)
        o, lse = np.zeros(q.shape), np.zeros(q.shape[:2])
        weights = np.zeros((self.heads, keys))
        for t in range(s.q_len):
            for h in range(self.heads):
                head = h // s.group
                seen = np.arange(keys) < max(0, keys - (s.q_len - 1 - t) if s.causal else keys)
                if lengths is not None:  # of the first run only so many, and the rest behind
                    seen &= (np.arange(keys) < lengths[head]) | (np.arange(keys) >= self.expected_first)
                scores = float(self.scale) * (k[seen, head] @ q[t, h].astype(np.float64))
                o[t, h], lse[t, h], w = softmax_over(scores, v[seen, head])
                weights[h, seen] += w / s.q_len
        return o, lse, weights

    @property
    def expected_first(self):
        return self.s.runs[0]


def softmax_over(scores, v):
    if not len(scores):
        return np.zeros(v.shape[1]), -np.inf, scores
    top = scores.max()
    with np.errstate(invalid='ignore'):
        w = np.exp(scores - top)
        return (w / w.sum()) @ v, top + np.log(w.sum()), w / w.sum()


def attend(d, **shape):
    a = Attention(d, Shape(**shape))
    a.run()
    a.check()


def not_seen(d, **shape):
    """A V that is not finite spoils only the rows that see its key."""
    attend(d, q_len=2, kv_heads=1, runs=(150,), splits=1,
           spoil=[('v', 0, 149, 2, np.inf), ('v', 0, 149, 9, np.nan)], **shape)


def far(d, **shape):
    """Rows 4 GiB and more apart: no offset fits 32 bits."""
    attend(d, stride=(5 << 30) + 256, kv_heads=1, runs=(40,), **shape)


def last_of_16(d, dtype='f16', **shape):
    """The last of 16 sequences of 128K tokens in one pool of blocks, with 8 heads of 128 numbers in a token's row: the
    offsets of its rows are from 3.75 GiB on, of binary32 from 7.5."""
    attend(d, dtype=dtype, stride=8 * 128 * BYTES[dtype], kv_heads=1, runs=(40,), block=16, index=True, pool=15 << 17,
           **shape)


# every kernel at least once: mma by type, dim and tiles; fma by type, dim and rows; weights by type and dim
MMA = [(attend, dict(dtype=dtype, dim=dim, q_len=q_len, kv_heads=1, runs=(90, 1, 37)[:1 + q_len % 3], splits=splits))
       for dtype in ('f16', 'bf16') for dim, q_len, splits in
       ((128, 1, 2), (64, 1, 1), (192, 1, 2), (256, 2, 1), (128, 8, 1), (64, 5, 2), (192, 5, 1), (256, 6, 1))]
FMA = [(attend, dict(dtype=dtype, dim=dim, q_len=rows, group=1, kv_heads=1, runs=(70, 9), splits=splits,
                     offset=2 * offset if dtype == 'f32' else offset))
       for dtype in ('f32', 'f16', 'bf16') for dim, rows, splits, offset in
       ((128, 1, 2, 0), (128, 2, 1, 4), (64, 4, 1, 8), (128, 8, 1, 2), (256, 1, 2, 0), (136, 2, 3, 8), (256, 3, 1, 4))]
# rows that are not in pieces of 16 bytes, and one whose like above is not
APART = [(attend, dict(dtype=dtype, dim=dim, q_len=rows, group=1, kv_heads=1, runs=(70, 9), offset=offset))
         for dtype, dim, rows, offset in
         (('f32', 128, 1, 4), ('f32', 128, 2, 0), ('f32', 128, 4, 4), ('f32', 256, 1, 4), ('f32', 256, 2, 4),
          ('f16', 128, 1, 2), ('f16', 256, 1, 2), ('bf16', 128, 1, 2), ('bf16', 256, 1, 2))]
APART += [(attend, dict(dtype=dtype, dim=dim, q_len=3, kv_heads=1, runs=(40, 11), weights=True, splits=2, offset=BYTES[dtype]))
          for dtype in ('f32', 'f16', 'bf16') for dim in (128, 256)]
WEIGHTS = [(attend, dict(dtype=dtype, dim=dim, q_len=3, kv_heads=1, runs=(40, 0, 11), weights=True, splits=2))
           for dtype in ('f32', 'f16', 'bf16') for dim in (128, 256)]
CASES = MMA + FMA + APART + WEIGHTS + [
    (attend, dict(dtype='f32', group=4, kv_heads=1, runs=(70, 9), splits=1)),
    (attend, dict(runs=(150, 1, 37), splits=3)),
    (attend, dict(runs=(70, 33), q_len=3, kv_heads=1, block=8, index=True, splits=2)),
    (attend, dict(dtype='f32', runs=(40, 33), block=8, index=True, splits=2)),
    (attend, dict(batch=3, runs=(60, 20), splits=0, backward=True)),
    (attend, dict(batch=17, kv_heads=1, runs=(100,), dim=64)),  # a table of sequences
    (attend, dict(head_major=True, causal=False, q_len=2, runs=(50,))),
    (attend, dict(runs=(2,), q_len=4, kv_heads=1)),  # query tokens without a key
    (attend, dict(lists=True, index=True, runs=(70, 20), q_len=2, splits=2)),
    (attend, dict(dtype='f32', lists=True, index=True, runs=(70, 20))),
    (attend, dict(dim=120, q_len=2, kv_heads=1, causal=False, runs=(70,))),
    (not_seen, dict()),
    (not_seen, dict(dtype='bf16', group=1)),
    (far, dict()),
    (far, dict(dtype='f32', group=1)),
    (far, dict(index=True, q_len=2, splits=2)),
    (last_of_16, dict()),
    (last_of_16, dict(dtype='f32', group=1)),
    (last_of_16, dict(q_len=3, weights=True)),
]
MORE = [(attend, dict(dtype=dtype, group=group, q_len=q_len, kv_heads=2, dim=dim, runs=(130, 70, 1), splits=splits, block=4,
                      index=index, backward=bool(splits), seed=2))
        for dtype in ('f32', 'f16', 'bf16') for group in (1, 4, 7) for q_len in (1, 4) for dim in (64, 80, 128, 256)
        for splits in (0, 3) for index in (False, True)]
