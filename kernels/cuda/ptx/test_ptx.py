"""The interpreter by small kernels: what instructions give, and that whatever a GPU may not do is found."""

import os
import struct
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(1, os.path.dirname(sys.path[0]))

import machine  # noqa: E402
from fault import Fault  # noqa: E402
from instructions import Unknown  # noqa: E402
from machine import Machine  # noqa: E402
from memory import Global  # noqa: E402
from parse import Module  # noqa: E402
from run_tests import run_tests  # noqa: E402

HEAD = """
.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 room[];
.visible .entry k(.param .u64 k_in, .param .u64 k_out, .param .u32 k_n)
{
 .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %d<20>; .reg .f32 %f<20>; .reg .f64 %e<9>;
 .shared .align 16 .b8 s[1024];
 ld.param.u64 %d1, [k_in]; ld.param.u64 %d2, [k_out]; ld.param.u32 %r1, [k_n];
 cvta.to.global.u64 %d1, %d1; cvta.to.global.u64 %d2, %d2;
 mov.u32 %r2, %tid.x; mul.wide.u32 %d3, %r2, 4; add.s64 %d4, %d1, %d3; add.s64 %d5, %d2, %d3;
 mov.u32 %r3, s; shl.b32 %r4, %r2, 2; add.s32 %r5, %r3, %r4;
"""
# %d4, %d5: this thread's word of the input and of the output; %r5: of shared memory; %r2: the thread


class Kernel:
    """A body, its input of words, and room for as many words of output."""

    def __init__(self, body, words=None, threads=64, blocks=1, n=0, memory=None, dynamic=0):
        self.memory = memory or Global()
        self.words = np.arange(256, dtype=np.uint32) if words is None else np.asarray(words, np.uint32)
        self.input = self.memory.allocate(self.words, 'the input')
        self.output = self.memory.allocate(4 * max(threads, len(self.words)), 'the output')
        self.kernel = Module(HEAD + body + ' ret;\n}\n').kernel('k')
        self.machine, self.shape, self.n, self.dynamic = Machine(self.memory), (threads, blocks), n, dynamic

    def run(self):
        threads, blocks = self.shape
        params = struct.pack('<QQI', self.input, self.output, self.n)
        self.machine.launch(self.kernel, (blocks, 1, 1), (threads, 1, 1), params, self.dynamic)
        return self

    def result(self):
        data, written = self.memory.fetch(self.output, 4 * self.shape[0])
        assert written.all(), 'not all of the output is written'
        return data.view(np.uint32)


def gives(body, want, **how):
    got = Kernel(body, **how).run().result()
    want = np.broadcast_to(np.asarray(want, np.uint32), got.shape)
    assert np.array_equal(got, want), f'{[hex(x) for x in got[:8]]}, wanted {[hex(x) for x in want[:8]]}'


def faults(text, body, **how):
    try:
        Kernel(body, **how).run()
    except Fault as fault:
        assert text in fault.why, f'another fault: {fault.why}'
        return
    raise AssertionError(f'no fault: {text}')


OUT = 'st.global.u32 [%d5], %r9;'
THREAD = np.arange(64, dtype=np.uint32)


def f(x):
    return int(np.float32(x).view(np.uint32))


# ---- what instructions give: instructions that leave %r9, and it

INSTRUCTIONS = [
    ('sub.s32 %r9, 3, 5;', 0xfffffffe),
    ('mul.hi.u32 %r9, 0x80000001, 6;', 3),
    ('mul.hi.s32 %r9, -2, 3;', 0xffffffff),
    ('mov.u64 %d9, 0xffffffffffffffff; mul.hi.u64 %d9, %d9, %d9; shr.u64 %d9, %d9, 32; cvt.u32.u64 %r9, %d9;', 0xffffffff),
    ('mov.u64 %d9, -3; mov.u64 %d8, 1; shl.b64 %d8, %d8, 62; mul.hi.s64 %d9, %d9, %d8; cvt.u32.u64 %r9, %d9;', 0xffffffff),
    ('mul.wide.s32 %d9, -2, 3; shr.u64 %d9, %d9, 32; cvt.u32.u64 %r9, %d9;', 0xffffffff),
    ('mad.lo.s32 %r9, 7, 6, -2;', 40),
    ('mul.wide.u32 %d9, 0xffffffff, 2; mad.wide.u32 %d9, 3, 4, %d9; cvt.u32.u64 %r9, %d9;', 10),
    ('div.s32 %r9, -7, 2;', 0xfffffffd), ('rem.s32 %r9, -7, 2;', 0xffffffff), ('div.u32 %r9, 7, 2;', 3),
    ('shl.b32 %r9, 1, 33;', 0), ('shr.s32 %r9, -8, 40;', 0xffffffff), ('shr.u32 %r9, 0x80000000, 31;', 1),
    ('shr.u32 %r9, 1, 32;', 0), ('shf.l.wrap.b32 %r9, 0x80000000, 1, 1;', 3), ('shf.r.clamp.b32 %r9, 1, 2, 40;', 2),
    ('popc.b32 %r9, 0xf00f;', 8), ('clz.b32 %r9, 1;', 31), ('clz.b32 %r9, 0;', 32), ('brev.b32 %r9, 1;', 0x80000000),
    ('bfind.u32 %r9, 0x100;', 8), ('bfind.u32 %r9, 0;', 0xffffffff),
    ('bfi.b32 %r9, 0xff, 0, 4, 8;', 0xff0), ('bfi.b32 %r9, 0xff, 0x1111, 4, 0;', 0x1111), ('bfi.b32 %r9, 7, 0, 31, 3;', 1 << 31),
    ('bfe.u32 %r9, 0x1230, 4, 8;', 0x23), ('bfe.s32 %r9, 0xf0, 4, 4;', 0xffffffff), ('bfe.s32 %r9, 0x70, 4, 4;', 7),
    ('prmt.b32 %r9, 0x33221100, 0x77665544, 0x6420;', 0x66442200), ('prmt.b32 %r9, 0x80, 0, 0x8888;', 0xffffffff),
    ('lop3.b32 %r9, 0xf0, 0xcc, 0xaa, 0x96;', 0x96), ('min.s32 %r9, -1, 1;', 0xffffffff), ('min.u32 %r9, -1, 1;', 1),
    ('abs.s32 %r9, -5;', 5), ('neg.s32 %r9, 5;', 0xfffffffb), ('not.b32 %r9, 5;', 0xfffffffa),
    ('mov.u64 %d9, 0x100000002; mov.b64 {%r8, %r9}, %d9;', 1), ('mov.b32 %r8, 7; mov.b64 %d9, {%r8, 9}; shr.u64 %d9, %d9, 32; cvt.u32.u64 %r9, %d9;', 9),
    ('mov.b32 %r8, 0x12345678; mov.b32 {%h1, %h2}, %r8; mov.b32 %r9, {%h2, %h1};', 0x56781234),
    ('setp.lt.s32 %p1, -1, 0; setp.lt.u32 %p2, -1, 0; selp.u32 %r8, 1, 0, %p1; selp.u32 %r9, 2, %r8, %p2;', 1),
    ('setp.eq.s32 %p1, 1, 1; setp.eq.and.s32 %p2|%p3, 1, 1, %p1; selp.u32 %r8, 1, 0, %p2; selp.u32 %r9, 5, %r8, %p3;', 1),
    # floats: one rounding of fma; NaN loses in max; unordered comparisons; the ties of conversions
    ('mov.f32 %f1, 0f3f800001; fma.rn.f32 %f1, %f1, %f1, 0fbf800002; mov.b32 %r9, %f1;', f(2.0 ** -46)),
    ('mov.f32 %f1, 0f3f800800; fma.rn.f32 %f1, %f1, %f1, 0f17800000; mov.b32 %r9, %f1;', 0x3f801001),
    ('mov.f32 %f1, 0f7f7fffff; fma.rn.f32 %f1, %f1, 0f40000000, 0fff7fffff; mov.b32 %r9, %f1;', 0x7f7fffff),
    ('max.f32 %f1, 0f7fffffff, 0f3f800000; mov.b32 %r9, %f1;', f(1)),
    ('setp.ltu.f32 %p1, 0f7fffffff, 0f00000000; setp.lt.f32 %p2, 0f7fffffff, 0f00000000; selp.u32 %r8, 1, 0, %p1; selp.u32 %r9, 9, %r8, %p2;', 1),
    ('setp.ne.f32 %p1, 0f7fffffff, 0f00000000; setp.neu.f32 %p2, 0f7fffffff, 0f00000000; selp.u32 %r8, 4, 0, %p2; selp.u32 %r9, 9, %r8, %p1;', 4),
    ('cvt.rni.s32.f32 %r9, 0f40200000;', 2), ('cvt.rzi.s32.f32 %r9, 0fc0200000;', 0xfffffffe), ('cvt.rzi.u32.f32 %r9, 0fc0200000;', 0),
    ('cvt.rzi.s32.f32 %r9, 0f7f800000;', 0x7fffffff), ('cvt.rzi.s32.f32 %r9, 0f7fffffff;', 0),
    ('cvt.rn.f16.f32 %h1, 0f3f801000; cvt.u32.u16 %r9, %h1;', 0x3c00), ('mov.b16 %h1, 0x3c01; cvt.f32.f16 %f1, %h1; mov.b32 %r9, %f1;', f(1 + 2.0 ** -10)),
    ('cvt.rn.bf16.f32 %h1, 0f3f808000; cvt.u32.u16 %r9, %h1;', 0x3f80), ('cvt.rn.bf16x2.f32 %r9, 0f3f800000, 0f40000000;', 0x3f804000),
    ('cvt.rna.tf32.f32 %r9, 0f3f801000;', 0x3f802000), ('mov.b16 %h1, 0xff; cvt.s32.s8 %r9, %h1;', 0xffffffff),
    ('cvt.rn.f32.u32 %f1, 3; sqrt.rn.f32 %f1, 0f41100000; mov.b32 %r9, %f1;', f(3)),
    ('mov.f64 %e1, 0d3ff8000000000000; add.rn.f64 %e1, %e1, %e1; cvt.rn.f32.f64 %f1, %e1; mov.b32 %r9, %f1;', f(3)),
    # threads and warps
    ('mov.u32 %r9, %laneid;', THREAD % 32), ('mov.u32 %r9, %ntid.x;', 64), ('mov.u32 %r9, %warpid;', THREAD // 32),
    ('shfl.sync.idx.b32 %r9|%p1, %r2, 5, 31, -1;', THREAD // 32 * 32 + 5),
    ('shfl.sync.bfly.b32 %r9, %r2, 3, 31, -1;', THREAD ^ 3),
    ('shfl.sync.down.b32 %r9, %r2, 30, 31, -1;', np.where(THREAD % 32 < 2, THREAD + 30, THREAD)),
    ('shfl.sync.up.b32 %r9, %r2, 30, 0, -1;', np.where(THREAD % 32 >= 30, THREAD - 30, THREAD)),
    ('shfl.sync.up.b32 %r9|%p1, %r2, 1, 0, -1; selp.u32 %r9, 1, 0, %p1;', THREAD % 32 > 0),
    ('shfl.sync.idx.b32 %r9, %r2, 1, 0x181f, -1;', THREAD // 8 * 8 + 1),  # in segments of 8
    ('setp.gt.u32 %p1, %r2, 61; vote.sync.any.pred %p2, %p1, -1; selp.u32 %r9, 1, 0, %p2;', THREAD // 32),
    ('setp.gt.u32 %p1, %r2, 61; vote.sync.ballot.b32 %r9, %p1, -1;', np.where(THREAD < 32, 0, 0xc0000000)),
    ('and.b32 %r8, %r2, 1; match.any.sync.b32 %r9, %r8, -1;', np.where(THREAD % 2, 0xaaaaaaaa, 0x55555555)),
    ('redux.sync.add.s32 %r9, %r2, -1;', np.where(THREAD < 32, 496, 1520)),
    ('setp.lt.u32 %p1, %r2, 40; bar.red.popc.u32 %r9, 0, %p1;', 40),
    # loops of as many turns as the thread's number, and the warp together again
    ('mov.u32 %r9, 0; mov.u32 %r8, %r2; $A: setp.eq.s32 %p1, %r8, 0; @%p1 bra $B; add.s32 %r9, %r9, 2; sub.s32 %r8, %r8, 1; bra $A; '
     '$B: shfl.sync.bfly.b32 %r9, %r9, 1, 31, -1;', 2 * (THREAD ^ 1)),
    # half of a warp by itself, named
    ('mov.u32 %r9, 7; setp.lt.u32 %p1, %laneid, 16; @!%p1 bra $C; shfl.sync.idx.b32 %r9, %r2, 3, 31, 0xffff; $C: mov.u32 %r8, 0;',
     np.where(THREAD % 32 < 16, THREAD // 32 * 32 + 3, 7)),
    # a scope has registers of its own
    ('mov.u32 %r9, 4; { .reg .b32 %r9; mov.u32 %r9, 5; }', 4),
    # local memory is each thread's own
    ('.local .align 4 .b8 own[8]; .reg .b64 %SPL, %SP; mov.u64 %SPL, own; cvta.local.u64 %SP, %SPL; st.local.u32 [%SPL+4], %r2; '
     'ld.u32 %r9, [%SP+4];', THREAD),
    # generic addresses of all kinds of memory
    ('cvt.u64.u32 %d9, %r5; cvta.shared.u64 %d9, %d9; st.u32 [%d9], %r2; ld.shared.u32 %r9, [%r5];', THREAD),
    ('mov.u64 %d9, k_n; cvta.param.u64 %d9, %d9; ld.u32 %r9, [%d9];', 0),
    ('ld.u16 %r9, [%d4];', THREAD), ('ld.global.v2.u32 {%r8, %r9}, [%d1];', 1), ('mov.u64 %d9, s; ld.global.s8 %r9, [%d1+4];', 1),
    ('st.shared.v4.u32 [%r3+16], {1, 2, 3, 4}; bar.sync 0; ld.shared.u32 %r9, [%r3+24];', None),
    ('st.shared.u32 [%r5], 0; bar.sync 0; atom.shared.add.u32 %r8, [%r3], 2; bar.sync 0; ld.shared.u32 %r9, [%r3];', 128),
    ('st.shared.u32 [%r5], %r2; bar.sync 0; red.shared.max.u32 [%r3], %r2; bar.sync 0; ld.shared.u32 %r9, [%r3];', 63),
    ('atom.global.add.u32 %r8, [%d1+12], 1; bar.sync 0; ld.volatile.global.u32 %r9, [%d1+12];', 67),
    ('atom.global.cas.b32 %r9, [%d4], %r2, 99; ld.global.u32 %r9, [%d4];', 99),
]


def instruction(body, want):
    if want is not None:
        gives(body + OUT, want)
        return
    faults('threads store different numbers', body.replace('{1,', '{%r2,') + OUT)
    gives(body + OUT, 3)


def matrices():
    """mma by the product of matrices that it is"""
    rng = np.random.default_rng(1)
    a, b, c = rng.integers(-9, 9, (16, 8)), rng.integers(-9, 9, (8, 8)), rng.integers(-9, 9, (16, 8))
    lane = np.arange(32)
    g, t = lane // 4, lane % 4
    parts = [a[g, t], a[g + 8, t], a[g, t + 4], a[g + 8, t + 4], b[t, g], b[t + 4, g],
             c[g, 2 * t], c[g, 2 * t + 1], c[g + 8, 2 * t], c[g + 8, 2 * t + 1]]
    words = np.stack(parts).astype(np.float32).view(np.uint32).reshape(-1)
    words[:6 * 32] |= 0x1fff  # bits of a and b that are not read
    loads = ''.join(f'ld.global.u32 %r{10 + i}, [%d4+{128 * i}];' for i in range(6))
    loads += ''.join(f'ld.global.f32 %f{i + 1}, [%d4+{128 * (6 + i)}];' for i in range(4))
    product = a @ b + c
    want = [product[g, 2 * t], product[g, 2 * t + 1], product[g + 8, 2 * t], product[g + 8, 2 * t + 1]]
    for i in range(4):
        gives(loads + 'mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r10, %r11, %r12, %r13}, '
              f'{{%r14, %r15}}, {{%f1, %f2, %f3, %f4}}; mov.b32 %r9, %f{i + 1};' + OUT,
              want[i].astype(np.float32).view(np.uint32), words=words, threads=32)


# ---- what may not be

FAULTS = [
    ('misaligned', 'ld.global.u32 %r9, [%d1+2];'),
    ('misaligned', 'ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%d1+8];'),
    ('misaligned', 'st.shared.u32 [%r5], 0; ld.shared.v2.u32 {%r8, %r9}, [%r5];'),
    ('in no allocation', 'ld.global.u32 %r9, [%d1+1024];'),
    ('in no allocation', 'ld.global.u32 %r9, [%d1+-4];'),
    ('in no allocation', 'ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%d1+1024];'),
    ('in no allocation', 'add.s32 %r8, %r2, 250; mul.wide.u32 %d9, %r8, 4; add.s64 %d9, %d1, %d9; ld.global.u32 %r9, [%d9];'),
    ('in no allocation', 'cvt.u32.u64 %r8, %d1; cvt.u64.u32 %d9, %r8; ld.global.u32 %r9, [%d9];'),  # the lower 32 bits
    ('of the 1024 bytes of shared memory', 'ld.shared.u32 %r9, [%r3+1024];'),
    ('local memory is read that nothing', '.local .align 4 .b8 own[8]; mov.u64 %d9, own; st.local.u32 [%d9], 0; ld.local.u32 %r9, [%d9+4];'),
    ('of the 20 bytes of the parameters', 'ld.param.u32 %r9, [k_n+4];'),
    ('register is read', 'add.s32 %r9, %r8, 1;'),
    ('register is read', 'setp.lt.u32 %p1, %r2, 40; @%p1 mov.u32 %r8, 1; add.s32 %r9, %r8, 1;'),
    ('shared memory is read that nothing', 'ld.shared.u32 %r9, [%r5];'),
    ('shared memory is read that nothing', 'st.shared.u16 [%r5], 0; ld.shared.u32 %r9, [%r5];'),
    ('memory is read that nothing was written to: the output', 'ld.global.u32 %r9, [%d5];'),
    ('threads store different numbers', 'st.global.u32 [%d2], %r2;'),
    ('read as if it were constant', 'st.global.u32 [%d4], 0; ld.global.nc.u32 %r9, [%d4];'),
    # divergence
    ('divergent', 'setp.lt.u32 %p1, %r2, 40; @%p1 bra $A; ret; $A: shfl.sync.idx.b32 %r9, %r2, 0, 31, -1;'),
    ('divergent', 'setp.lt.u32 %p1, %r2, 40; @%p1 bra $A; vote.sync.any.pred %p2, %p1, -1; bra $B; $A: vote.sync.any.pred %p2, %p1, -1; $B:'),
    ('divergent', 'setp.lt.u32 %p1, %r2, 40; @%p1 bra $A; bar.warp.sync -1; $A: mov.u32 %r9, 0;'),
    ('divergent', 'setp.lt.u32 %p1, %r2, 40; @%p1 bra $A; bar.sync 0; $A: mov.u32 %r9, 0;'),
    ('divergent', 'setp.lt.u32 %p1, %r2, 32; @%p1 bra $A; bar.sync 0; $A: mov.u32 %r9, 0;'),
    ('different barriers', 'setp.lt.u32 %p1, %r2, 32; @%p1 bra $A; bar.sync 0; bra $B; $A: bar.sync 1; $B: mov.u32 %r9, 0;'),
    ('by different ways', 'setp.lt.u32 %p1, %r2, 40; @%p1 bra $A; bar.sync 0; bra $B; $A: bar.sync 0; $B: mov.u32 %r9, 0;'),
    ('takes no part', 'setp.lt.u32 %p1, %laneid, 16; @!%p1 bra $A; shfl.sync.idx.b32 %r9, %r2, 20, 31, 0xffff; $A: mov.u32 %r8, 0;'),
    ('not named', 'shfl.sync.idx.b32 %r9, %r2, 0, 31, 0xffff;'),
    ('does not come to an end', '$A: bra $A;'),
    # shared memory without a barrier
    ('is read that another thread wrote', 'st.shared.u32 [%r5], 0; xor.b32 %r8, %r5, 4; ld.shared.u32 %r9, [%r8];'),
    ('is read that another thread wrote', 'st.shared.u32 [%r5], 0; shfl.sync.idx.b32 %r8, %r2, 0, 31, -1; xor.b32 %r8, %r5, 4; ld.shared.u32 %r9, [%r8];'),
    ('is read that another thread wrote', 'st.shared.u32 [%r5], 0; bar.warp.sync -1; xor.b32 %r8, %r5, 128; ld.shared.u32 %r9, [%r8];'),
    ('is written that another thread read', 'st.shared.u32 [%r5], 0; bar.sync 0; ld.shared.u32 %r9, [%r3]; setp.eq.u32 %p1, %r2, 63; @%p1 st.shared.u32 [%r3], 1;'),
    ('is written that another thread read', 'st.shared.u32 [%r5], 0; bar.sync 0; ld.shared.u32 %r9, [%r3]; bar.warp.sync -1; setp.eq.u32 %p1, %r2, 0; @%p1 st.shared.u32 [%r3], 1;'),
    ('is written that another thread wrote', 'st.shared.u32 [%r3], 0; st.shared.u32 [%r3], 1;'),
    ('is read that another thread wrote',
     'st.shared.u32 [%r5], 0; bar.sync 0; atom.shared.add.u32 %r8, [%r3], 1; ld.shared.u32 %r9, [%r3];'),
    ('is changed that another thread read',
     'st.shared.u32 [%r5], 0; bar.sync 0; ld.shared.u32 %r9, [%r5]; atom.shared.add.u32 %r8, [%r3], 1;'),
    # the reader before the last one
    ('is written that another thread read', 'st.shared.u32 [%r5], 0; bar.sync 0; setp.eq.u32 %p1, %r2, 7; setp.eq.u32 %p2, %r2, 5; '
     '@%p1 ld.shared.u32 %r9, [%r3]; @%p2 ld.shared.u32 %r9, [%r3]; @%p2 st.shared.u32 [%r3], 1;'),
    ('is changed that another thread wrote', 'st.shared.u32 [%r5], 0; atom.shared.add.u32 %r8, [%r3], 1;'),
]

# The same of global memory.
FAULTS += [
    ('is read that another thread wrote', 'st.global.u32 [%d4], 0; xor.b64 %d6, %d4, 4; ld.global.u32 %r9, [%d6];'),
    ('is written that another thread read', 'xor.b64 %d6, %d4, 4; ld.global.u32 %r9, [%d6]; st.global.u32 [%d4], 0;'),
    ('is changed that another thread wrote', 'st.global.u32 [%d4], 0; atom.global.add.u32 %r9, [%d1], 1;'),
]

RIGHT = [  # the same with their barriers
    ('st.global.u32 [%d4], %r2; bar.warp.sync -1; xor.b64 %d6, %d4, 4; ld.global.u32 %r9, [%d6];', THREAD ^ 1),
    ('xor.b64 %d6, %d4, 128; ld.global.u32 %r9, [%d6]; bar.sync 0; st.global.u32 [%d4], 0;', THREAD ^ 32),
    ('st.shared.u32 [%r5], %r2; bar.warp.sync -1; xor.b32 %r8, %r5, 4; ld.shared.u32 %r9, [%r8];', THREAD ^ 1),
    ('st.shared.u32 [%r5], %r2; bar.sync 0; xor.b32 %r8, %r5, 128; ld.shared.u32 %r9, [%r8];', THREAD ^ 32),
    ('st.shared.u32 [%r5], 0; bar.sync 0; ld.shared.u32 %r9, [%r3]; bar.sync 0; setp.eq.u32 %p1, %r2, 0; @%p1 st.shared.u32 [%r3], 1;', 0),
    ('st.shared.u32 [%r5], 0; bar.sync 0; atom.shared.add.u32 %r8, [%r3], 2; atom.shared.add.u32 %r8, [%r3], 1; bar.sync 0; '
     'ld.shared.u32 %r9, [%r3];', 192),
    ('setp.lt.u32 %p1, %r2, 32; @%p1 bra $A; bar.sync 1, 32; bra $B; $A: bar.sync 2, 32; $B: mov.u32 %r9, 0;', 0),
]


# ---- cp.async: two stages of two groups, word by word; `most` groups may be on their way when the first is read

STAGES = """
 cp.async.ca.shared.global [%r5], [%d4], 4; cp.async.commit_group;
 cp.async.ca.shared.global [%r5+256], [%d4+256], 4; cp.async.commit_group;
 cp.async.wait_group {most}; {barrier}
 {turn} ld.shared.u32 %r9, [%r6];
 cp.async.wait_all; {barrier} ld.shared.u32 %r7, [%r6+256]; add.s32 %r9, %r9, %r7;
"""


def copies():
    own, others = 'mov.u32 %r6, %r5;', 'xor.b32 %r6, %r5, 4;'
    gives(STAGES.format(most=1, barrier='', turn=own) + OUT, 2 * THREAD + 64)
    gives(STAGES.format(most=1, barrier='bar.warp.sync -1;', turn=others) + OUT, 2 * (THREAD ^ 1) + 64)
    faults('before a copy to it has landed', STAGES.format(most=2, barrier='', turn=own))
    faults('is read that another thread wrote', STAGES.format(most=1, barrier='', turn=others))
    faults('is read that another thread wrote', 'cp.async.ca.shared.global [%r5], [%d4], 4; bar.sync 0; cp.async.wait_all; '
           'xor.b32 %r6, %r5, 4; ld.shared.u32 %r9, [%r6];')
    # a group that is not committed is not waited for
    faults('before a copy to it has landed', 'cp.async.ca.shared.global [%r5], [%d4], 4; cp.async.wait_group 0; ld.shared.u32 %r9, [%r5];')
    # what is copied is what is there when it lands
    gives('cp.async.ca.shared.global [%r5], [%d4], 4; cp.async.commit_group; st.global.u32 [%d4], 5; cp.async.wait_group 0; ld.shared.u32 %r9, [%r5];' + OUT, 5)
    # of 16 bytes 8, and zeros behind
    sixteen = 'shl.b32 %r8, %r2, 4; add.s32 %r8, %r3, %r8; mul.wide.u32 %d9, %r2, 16; add.s64 %d9, %d1, %d9; mov.u32 %r7, {size}; ' \
              'cp.async.cg.shared.global [%r8], [%d9], 16, %r7; cp.async.wait_all; ld.shared.u32 %r9, [%r8+{at}];'
    gives(sixteen.format(size=8, at=4) + OUT, 4 * THREAD + 1)
    gives(sixteen.format(size=8, at=8) + OUT, 0)
    gives(sixteen.replace('mov.u32 %r7', 'mov.u64 %d9, 16; mov.u32 %r7').format(size=0, at=0) + OUT, 0)  # nothing is read there
    faults('in no allocation', sixteen.format(size=16, at=0), words=np.arange(64))
    faults('misaligned', 'cp.async.cg.shared.global [%r3+8], [%d1], 16;')
    # a stage is filled again while others read it
    faults('is written that another thread read', 'cp.async.ca.shared.global [%r5], [%d4], 4; cp.async.wait_all; bar.sync 0; '
           'xor.b32 %r8, %r5, 128; ld.shared.u32 %r9, [%r8]; cp.async.ca.shared.global [%r5], [%d4], 4;')


def dynamic_memory():
    body = 'mov.u32 %r6, room; add.s32 %r6, %r6, %r4; st.shared.u32 [%r6], %r2; ld.shared.u32 %r9, [%r6];' + OUT
    gives(body, THREAD, dynamic=256)
    faults('of the 1276 bytes of shared memory', body, dynamic=252)


def far_addresses():
    """rows 5 GiB apart: their offsets take more than 32 bits"""
    far, row = 0x100000000000, 5 << 30
    body = 'mov.u64 %d9, {far}; mul.wide.u32 %d8, %r2, {row}; {cut} add.s64 %d9, %d9, %d8; ld.global.u32 %r9, [%d9];' + OUT

    def memory():
        made = Global()
        for i in range(64):
            made.allocate(np.array([i], np.uint32), 'a row', at=far + i * row)
        return made
    body = body.replace('mul.wide.u32 %d8, %r2, {row};', 'cvt.u64.u32 %d8, %r2; mul.lo.s64 %d8, %d8, {row};')
    gives(body.format(far=far, row=row, cut=''), THREAD, memory=memory())
    faults('in no allocation', body.format(far=far, row=row, cut='and.b64 %d8, %d8, 0xffffffff;'), memory=memory())


# ---- the last block of a launch: each adds its words to the output, the last one stores their sum. n: it resets the counter

# The blocks' parts: each stores its own, publishes it by a fence and a counter, and the last one adds all up.
PARTS = """
 mov.u32 %r6, %ctaid.x; mul.wide.u32 %d6, %r6, 4; add.s64 %d6, %d2, %d6; {store}
 {barrier}
 setp.ne.u32 %p1, %r2, 0; @%p1 bra $end;
 {fence}
 atom.global.add.u32 %r8, [%d1], 1; mov.u32 %r7, %nctaid.x; sub.s32 %r7, %r7, 1; setp.ne.u32 %p2, %r8, %r7; @%p2 bra $end;
 mov.u32 %r9, 0; $next: ld.global.u32 %r8, [%d2]; add.s32 %r9, %r9, %r8; add.s64 %d2, %d2, 4; add.s32 %r6, %r7, 0; sub.s32 %r7, %r7, 1;
 setp.ne.u32 %p2, %r6, 0; @%p2 bra $next; st.global.u32 [%d2], %r9; {reset}
 $end:
"""
BY_ONE = 'setp.eq.u32 %p3, %r2, {thread}; @%p3 st.global.u32 [%d6], %r6;'


def parts_of(threads=64, **how):
    how = {'store': BY_ONE.format(thread=0), 'barrier': '', 'fence': 'membar.gl;', 'reset': '', **how}
    kernel = Kernel(PARTS.format(**how), words=[0] * 50, threads=threads, blocks=40)
    return kernel.run()


def last_block():
    def wrong(text, **how):
        try:
            parts_of(**how)
        except Fault as fault:
            assert text in fault.why, fault.why
            return
        raise AssertionError(f'no fault: {how}')
    for right in ({}, dict(store=BY_ONE.format(thread=40), barrier='bar.sync 0;'), dict(barrier='bar.sync 0;', reset='st.global.u32 [%d1], 0;'),
                  dict(store=BY_ONE.format(thread=40), barrier='membar.gl; bar.sync 0;', fence='')):
        kernel = parts_of(**right)
        data, _ = kernel.memory.fetch(kernel.output, 4 * 64)
        assert data.view(np.uint32)[40] == 780, data.view(np.uint32)
    between = 'no fence and atomic operations between'
    wrong(between, fence='')
    wrong(between, store=BY_ONE.format(thread=40))  # by a thread that did not wait for it
    wrong(between, fence='membar.cta;')
    wrong(between, store=BY_ONE.format(thread=40), barrier='bar.sync 0;', fence='')
    faults(between, 'st.global.u32 [%d5], 0; st.global.u32 [%d5], 1;', blocks=2)
    faults(between, 'mov.u32 %r6, %ctaid.x; setp.eq.u32 %p1, %r6, 1; @%p1 bra $A; st.global.u32 [%d5], 1; ret; $A: ld.global.u32 %r9, [%d5];',
           blocks=2, threads=2048 // 2)


LAST = """
 setp.eq.u32 %p1, %r2, 0; @!%p1 bra $end;
 atom.global.add.u32 %r8, [%d1+4], 1; membar.gl; mov.u32 %r7, %nctaid.x; sub.s32 %r7, %r7, 1; setp.ne.u32 %p2, %r8, %r7; @%p2 bra $end;
 atom.global.add.u32 %r9, [%d2], 1; setp.eq.u32 %p3, %r1, 1; @%p3 bra $reset; bra $end;
 $reset: st.global.u32 [%d1+4], 0;
 $end:
"""


def counters():
    for reset, want in ((1, 2), (0, 1)):
        kernel = Kernel(LAST, words=[0, 0, 0], threads=32, blocks=300, n=reset)
        kernel.memory.write(kernel.output, 0, np.zeros(1, np.uint32))
        kernel.run().run()
        got = kernel.memory.fetch(kernel.output, 4)[0].view(np.uint32)[0]
        assert got == want, f'{got} last blocks of two launches, wanted {want}'


def launches():
    """what one launch has written is constant to the next"""
    gives('ld.global.nc.u32 %r9, [%d4];' + OUT, 3, memory=written_by_another(3))


def written_by_another(value):
    first = Kernel(f'st.global.u32 [%d4], {value};').run()
    first.memory.allocate = lambda what, name, made=[first.input, first.output]: made.pop(0)
    return first.memory


def unknown():
    for body in ('frobnicate.u32 %r9, 1;', 'add.sat.weird %r9, 1, 2;', 'mov.u32 %r99x, 1;', 'ld.global.u32 %h1, [%d4];',
                 'mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r1}, {%f1};', 'bar.arrive 0, 64;'):
        try:
            Kernel(body).run()
        except Unknown:
            continue
        raise AssertionError(f'understood: {body}')


def placed():
    """a fault says who and where"""
    try:
        Kernel('setp.eq.u32 %p1, %r2, 17; @%p1 st.global.u32 [%d1+2048], 1;', blocks=3).run()
    except Fault as fault:
        assert 'block (0, 0, 0) thread 17 and 2 more' in fault.why and 'st.global.u32 [%d1+2048], 1' in fault.why, fault.why
        return
    raise AssertionError('no fault')


def tests():
    for body, want in INSTRUCTIONS + RIGHT:
        yield body, lambda body=body, want=want: instruction(body, want)
    for text, body in FAULTS:
        yield f'{text}: {body}', lambda text=text, body=body: faults(text, body)
    for test in (matrices, copies, dynamic_memory, far_addresses, counters, last_block, launches, unknown, placed):
        yield test.__name__, test


def main():
    machine.STEPS_MAX = 10_000
    return run_tests(tests())


if __name__ == '__main__':
    sys.exit(main())
