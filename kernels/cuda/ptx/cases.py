"""The cases of the device suite whose launches the interpreter runs: small ones, that together launch every kernel."""

from itertools import product

TYPES = ('f32', 'f16', 'bf16')
HALF = ('f32', 'f16')


def one(operation, **keys):
    """ids of all combinations of these values"""
    values = [value if isinstance(value, (tuple, list)) else (value,) for value in keys.values()]
    for each in product(*values):
        yield ','.join([f'device:op={operation},cases=one', *(f'{k}={v}' for k, v in zip(keys, each))])


def every():
    heads = dict(batch=2, kv_heads=2)
    yield from one('attend', dtype=TYPES, head_dim=(64, 128, 192, 256), q_len=(1, 2, 3, 5, 19), group=1, kv_heads=1, batch=1,
                   keys=70, runs=2, src_at=(0, 8), weights='yes', causal=('no', 'yes'))
    yield from one('attend', dtype=TYPES, head_dim=64, q_len=(1, 2), kv_heads=1, group=2, batch=1, keys=(900, 4200), runs=1)
    yield from one('attend', dtype='f16', head_dim=64, q_len=1, kv_heads=1, group=2, batch=17, keys=9, weights='yes')
    yield from one('attend_index', dtype=TYPES, head_dim=64, q_len=2, group=2, keys=40, runs=2, block=(1, 16), weights='yes', **heads)
    yield from one('attend_lists', dtype=('f32', 'f16'), head_dim=64, q_len=2, group=2, keys=40, runs=2, block=8,
                   lists=('kv_heads', 'q_heads'), list_keys='yes', **heads)
    yield from one('attend_products', dtype=TYPES, head_dim=64, q_len=2, group=2, keys=(40, 2100), runs=2, kv_heads=1, batch=1)
    yield from one('merge', dtype=TYPES, rows=3, kv_heads=2, states=(2, 7, 33, 130), head_dim=(64, 72), dst_at=(0, 4))
    yield 'lse_merge:case=in_place,form=natural,dtype=f32,states=3'
    yield from one('move', rows=(5, 9000), width=(16, 8, 4, 2, 1), dst_index=('none', 'device'), src_index='device')
    yield from one('blend', rows=3, width=(64, 7), a=(0, 0.5), b=1)
    yield from one('read', size=(4096, 40000), src_at=(0, 4))
    yield from one('flag_write')
    yield from one('flag_wait')
    yield from one('spin', us=1)
    yield from one('digest', dtype=TYPES, head_dim=72, keys=40, block=8, digest=('range', 'mean'), **heads)
    yield from one('digest_score', dtype=TYPES, q_len=(1, 2), group=(1, 3), head_dim=72, keys=40, **heads)
    yield from one('topk', keys=(100, 2100), chosen=33, group=2, within=('any', 1), only=('no', 'yes'), **heads)
    yield from one('split', keys=40, group=2, **heads)
    yield from one('rotate', q_len=3, kv_heads=2, head_dim=72, rotary=(36, 0), adjacent=('no', 'yes'), bias='yes', norm=('yes', 'no'))
    yield from one('columns', dtype=TYPES, y_type=TYPES, head_dim=40, group=2, n=33, **heads)
    yield from one('score', dtype=TYPES, q_len=(1, 3), group=(1, 3, 7), head_dim=72, keys=40, **heads)
    yield from one('features', head_dim=72, group=3, **heads)
    yield from one('net', m=5, k=41, n=3, layers=3, hidden=70)
    yield from one('hash', dtype=TYPES, bits=96, head_dim=40, keys=(3, 70), group=2, **heads)
    yield from one('hamming', bits=96, q_len=2, group=2, keys=40, only=('no', 'yes'), **heads)
    yield from one('similarity', head_dim=72, group=3, q_len=2, **heads)
    yield from one('pq_encode', dtype=TYPES, groups=3, dims=(4, 9, 20), code_bits=4, centroids=13, keys=40, **heads)
    yield from one('pq_table', w_type=HALF, groups=3, dims=4, centroids=13, q_len=2, group=2, **heads)
    yield from one('pq_score', w_type=HALF, groups=5, centroids=(13, 300), code_bits=(9, 11), q_len=(1, 2), group=2,
                   keys=(40, 4200), kv_heads=1, batch=1)
    yield from one('softmax', keys=(40, 2100), q_len=2, group=1, **heads)
    yield from one('topp', w_type=HALF, keys=(40, 2100), q_len=2, group=1, **heads)
    yield from one('weighted_sum', dtype=TYPES, w_type=HALF, q_len=(1, 3), group=2, head_dim=72, keys=40, **heads)


CASES = list(every())
