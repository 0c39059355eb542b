#!/usr/bin/env python3
"""test_sass.py NVCC TOOLS: what is read of machine code, by lists of instructions; and where there are a compiler and
what reads its code (the files NVCC and TOOLS name them, or are empty), by small kernels, right ones and faulty ones."""

import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(1, os.path.dirname(sys.path[0]))

import gate  # noqa: E402
import model  # noqa: E402
import sass  # noqa: E402
from run_tests import run_tests  # noqa: E402


def code(text):
    """instructions, one a line: opcode operands; @guard before, |sets|waits behind"""
    made = []
    for line in text.strip().splitlines():
        words, sets, waits = (line.strip() + '||').split('|')[:3]
        guard, opcode, operands = re.match(r'(@\S+ )?(\S+) ?(.*)', words.strip()).groups()
        made.append(sass.Instruction(16 * len(made), (guard or '').strip(), opcode, operands or '', 1,
                                     int(sets) if sets else None, None, frozenset(map(int, waits))))
    return made


# a ring of two stages: K and V of a step, each a group of two pieces
RING = '''LDGSTS.E.BYPASS.128 [R1], [R2.64]
LDGDEPBAR |0
DEPBAR.LE SB0, 0x3
LDGSTS.E.BYPASS.128 [R1], [R2.64]
LDGSTS.E.BYPASS.128 [R1], [R2.64]
LDGDEPBAR |0
DEPBAR.LE SB0, 0x3
LDGSTS.E.BYPASS.128 [R1], [R2.64]
LDGSTS.E.BYPASS.128 [R1], [R2.64]
LDGDEPBAR |0
LDG.E R4, [R2.64] |1
IADD3 R4, R4, R5, RZ ||1
@P0 BRA 0x20
EXIT'''


def control_words():
    assert sass.control(13 << 41 | 2 << 46 | 3 << 49 | 0b010010 << 52) == (13, 2, 3, {1, 4})
    # S2R R0, SR_TID.X of a kernel for 8.0
    assert sass.control(0x000e620000002100) == (1, 1, None, frozenset())
    listing = [{'opcode': 'NOP'}, {'predicate': '@!P0', 'opcode': 'BRA', 'operands': '0x10'}]
    words = b''.join(n.to_bytes(8, 'little') for n in (0x7918, 0x000fc00000000000, 0x947, 0x041fea0003800000))
    made = sass.decode(listing, words)
    assert [(i.at, i.guard, i.opcode) for i in made] == [(0, '', 'NOP'), (16, '@!P0', 'BRA')]
    assert made[0].waits == frozenset() and made[1].waits == {0} and sass.target(made[1]) == 16, made


def circles():
    straight = code('MOV R1, R2\nBRA 0x20\nEXIT')
    assert sass.loops(straight) == []
    one = code(RING)
    assert [[i.at for i in c] for c in sass.loops(one)] == [list(range(0x20, 0xd0, 16))]
    # two loops one after another, the second of a single instruction; and one that only lanes apart would take
    two = code('MOV R1, R1\n@P0 BRA 0x0\n@P1 BRA 0x20\nBRA.DIV ~URZ, 0x50\nEXIT\nSHFL R1, R1\nBRA 0x30')
    assert sorted(len(c) for c in sass.loops(two)) == [1, 2]
    # in each other: one circle; a call is gone into
    assert [len(c) for c in sass.loops(code('MOV R1, R1\n@P0 BRA 0x0\n@P1 BRA 0x0\nEXIT'))] == [3]
    assert [len(c) for c in sass.loops(code('CALL.REL.NOINC 0x20\nEXIT\nMOV R1, R1\nBRA 0x0'))] == [3]


def found(text, bytes_, by, *wrong):
    got = sass.in_flight(code(text))
    assert got[:2] == (bytes_, by), got
    assert len(got[2]) == len(wrong) and all(w in g for w, g in zip(wrong, got[2])), got[2]


def rings():
    found(RING, 3 * 2 * 512, 'copies')
    found(RING.replace('0x3', '0x1', 1), 2 * 512, 'copies')
    found(RING.replace('0x3', '0x0', 1), 0, 'copies', '0x20 DEPBAR.LE SB0, 0x0 waits for all')
    found(RING.replace('R5, RZ ||1', 'R5, RZ ||10'), 3072, 'copies', '0xb0 IADD3 R4, R4, R5, RZ waits for the score')
    found(RING.replace('R4, [R2.64] |1', 'R4, [R2.64] |0'), 3072, 'copies', 'LDG.E R4, [R2.64] is on the scoreboard')
    found(re.sub('DEPBAR.LE.*', 'NOP', RING), 0, 'copies', 'no group')
    # what a loop's end asks for is of the group that its beginning ends
    moved = RING.replace('DEPBAR.LE SB0, 0x3', 'LDGDEPBAR |0\nDEPBAR.LE SB0, 0x3', 1)
    moved = moved.replace('LDGDEPBAR |0\nLDG.E', 'LDG.E')
    found(moved, 3072, 'copies')


def registers():
    # two loads that one instruction waits for, and one that it does not
    found('''LDG.E.128 R4, [R2.64] |1
             LDG.E.U16 R8, [R2.64] |1
             LDG.E R9, [R2.64] |2
             IADD3 R4, R4, R8, RZ ||1
             @P0 BRA 0x0
             EXIT''', 32 * (16 + 2 + 4) + 32 * 4, 'loads')
    found(2 * 'LDG.E.128 R4, [R2.64] |1\nIADD3 R4, R4, R8, RZ ||1\n' + 'EXIT', 512, 'loads')
    # of three, the first wait leaves two
    found(3 * 'LDG.E R4, [R2.64] |1\n' + 'DEPBAR.LE SB1, 0x2\n' + 2 * 'LDG.E R4, [R2.64] |2\n' + 'NOP ||1\nEXIT',
          512, 'loads')
    found('MOV R1, R1\nEXIT', 0, '')
    assert sass.local_accesses(code('STL [R1], R2\nLDL.64 R2, [R1]\n@P0 BRA 0x10\nLDS R1, [R2]')) == (2, 1)


def modelled():
    # two groups a step, of which 4, or 2, or 1 are asked for in the time that memory takes
    ring = RING.replace('LDG.E R4, [R2.64] |1', 'NOP').replace('||1', '')
    for left, latencies in (('0x3', .5), ('0x1', 1), ('0x0', 2)):
        trace = model.steps(code(ring.replace('0x3', left)))
        assert [len(step) for step in trace] == [11, 11], trace
        assert 1 < model.cycles(80, trace, 1, 100000) / (100000 * latencies) < 1.01, left
        for warps in (6, 8):  # of 6, two quarters have one each and two have two
            assert .99 < model.bytes_a_clock(80, trace, warps, 100000) / (warps * 2048 / (100000 * latencies)) < 1, left
    # the way of the tensor cores is taken, and what folds every other time; they take 8 cycles, binary32 2 on 8.0
    loop = '''NOP
LDGSTS.E.BYPASS.128 [R1], [R2.64]
LDGDEPBAR |0
DEPBAR.LE SB0, 0x1
@P0 BRA 0x70
FFMA R1, R2, R3, R1
BRA 0x130
''' + 10 * 'HMMA.1688.F32.TF32 R4, R4, R8, R4\n' + '''@P0 BRA 0x130
STS.128 [R1], R4
@P0 BRA 0x10
EXIT'''
    plain, folding = model.steps(code(loop))
    assert [sum(i.opcode.startswith(x) for i in plain) for x in ('HMMA', 'FFMA', 'STS')] == [10, 0, 0], plain
    assert len(folding) == len(plain) + 1, folding
    assert 79 < model.cycles(80, [plain], 1, 0) < 100, model.cycles(80, [plain], 1, 0)
    floats = [i for i in code(20 * 'FFMA R1, R2, R3, R1\n' + 'EXIT') if i.opcode == 'FFMA']
    assert 155 < model.cycles(80, [floats], 4, 0) < 161 and 77 < model.cycles(90, [floats], 4, 0) < 81


def row(**how):
    return dict(dict(file='a.cu', kernel='k', arch='80', threads='128', registers='40', stack='0', local='0',
                     looped='0', shared='0', blocks='4', in_flight='4096', by='copies', reason=''), **how)


def says(got, table, *lines, same=True, wrong=()):
    said = gate.compare({gate.key_of(got): (got, list(wrong))}, {gate.key_of(r): r for r in table}, same)
    assert len(said) == len(lines) and all(w in s for w, s in zip(lines, said)), said


def tables():
    says(row(), [row()])
    says(row(registers='41'), [row()], 'a.cu: k sm_80: registers 41, the table has 40')
    says(row(registers='41'), [row()], same=False)
    says(row(blocks='3', in_flight='3072'), [row()], same=False)
    says(row(in_flight='2048'), [row()], 'a block keeps 512 bytes asked for, 1024 in the table', same=False)
    says(row(by='loads'), [row()], 'no longer by asynchronous copies', same=False)
    says(row(stack='8', local='2'), [row(stack='8', local='2')], '8 bytes of stack, and 2 instructions')
    says(row(stack='8', local='2'), [row(stack='8', local='2', reason='it costs nothing')])
    says(row(stack='16', looped='1'), [row(stack='8', reason='it costs nothing')], '16 bytes of stack', same=False)
    says(row(stack='16', looped='0'), [row(stack='8', reason='it costs nothing')], same=False)
    says(row(kernel='other'), [row()], 'other sm_80: not in the table', 'k sm_80: in the table, and not in', same=False)
    says(row(arch='86'), [row()])  # a GPU that the table has not: the rules alone
    says(row(arch='86', stack='8'), [row(arch='100', stack='8', reason='it costs nothing')])
    says(row(arch='86', stack='16'), [row(arch='100', stack='8', reason='it costs nothing')], '16 bytes of stack')
    says(row(arch='86', by='loads'), [row()], 'no longer by')
    says(row(), [row()], 'waits for all', wrong=['waits for all'], same=False)


def pages():
    rows = row(kernel='k<1>'), row(kernel='k<1>', arch='90', registers='48'), row(kernel='l<1>')
    table = {gate.key_of(r): r for r in rows}
    right = '| kernel | registers |\n| `k<1>` | 40 / 48 | 4 / 4 | 4 / 4 | 600 / 601 |\n| `attend` | a word | x | y |\n'
    assert gate.page_differs(right, table) == []
    for was, wrong in (('48', '49'), ('4 / 4 | 600', '4 / 5 | 600'), ('k<1>', 'm<1>')):
        said = gate.page_differs(right.replace(was, wrong), table)
        assert len(said) == 1 and said[0].startswith('docs/cuda.md: '), said


# ---- by a compiler

KERNELS = r'''
template <int LEFT> __device__ void ring(uint4 *out, const uint4 *in, int n)
{
    __shared__ uint4 at[2][2][128];
    const unsigned t = threadIdx.x;
    auto ask = [&](uint4 *to, const uint4 *from) {
        const unsigned place = __cvta_generic_to_shared(to);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(place), "l"(from) : "memory");
        asm volatile("cp.async.commit_group;" : : : "memory");
    };
    uint4 sum = {};
    for (int i = 0; i < 2; i++) ask(&at[i][0][t], in + 256 * i + t), ask(&at[i][1][t], in + 256 * i + 128 + t);
#pragma unroll 1
    for (int i = 2; i < n; i++)
        for (int j = 0; j < 2; j++) {
            uint4 &x = at[i % 2][j][t];
            asm volatile("cp.async.wait_group %0;" : : "n"(LEFT) : "memory");
            sum.x += x.x * x.y, sum.y ^= x.z, sum.z += x.w;
            ask(&x, in + 256 * i + 128 * j + t);
        }
    out[t] = sum;
}
extern "C" __global__ void __launch_bounds__(128) right(uint4 *out, const uint4 *in, int n) { ring<3>(out, in, n); }
extern "C" __global__ void __launch_bounds__(128) early(uint4 *out, const uint4 *in, int n) { ring<0>(out, in, n); }
extern "C" __global__ void __launch_bounds__(128) by_registers(uint4 *out, const uint4 *in, int n)
{
    uint4 sum = {}, k = in[threadIdx.x], v = in[128 + threadIdx.x];
    for (int i = 1; i < n; i++) {
        sum.x += k.x * k.y, k = in[256 * i + threadIdx.x];
        sum.y ^= v.z, sum.z += v.w, v = in[256 * i + 128 + threadIdx.x];
    }
    out[threadIdx.x] = sum;
}
template <int N> __device__ void keep(float *out, const float *in, int n)
{
    float x[N];
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = in[i * 1024 + threadIdx.x];
    for (int j = 0; j < n; j++)
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = fmaf(x[i], x[(i + 1) % N], x[i]);
#pragma unroll
    for (int i = 0; i < N; i++) out[i * 1024 + threadIdx.x] = x[i];
}
extern "C" __global__ void __launch_bounds__(1024, 2) few(float *out, const float *in, int n)
{
    keep<8>(out, in, n);
}
extern "C" __global__ void __launch_bounds__(1024, 2) spills(float *out, const float *in, int n)
{
    keep<64>(out, in, n);
}
extern "C" __global__ void __launch_bounds__(128) many(float *out, const float *in, int n)
{
    keep<64>(out, in, n);
}
'''


def compiled(nvcc, tools, arch):
    with tempfile.TemporaryDirectory() as folder:
        with open(f'{folder}/k.cu', 'w', encoding='utf-8') as f:
            f.write(KERNELS)
        gate.tool(nvcc, ['-O3', f'-arch=sm_{arch}', '-cubin', '-o', f'{folder}/k.cubin', f'{folder}/k.cu'])
        rows, compiler = gate.facts(tools, f'{folder}/k.cubin', {})
    assert re.match(r'\d+\.\d+\.\d+$', compiler), compiler
    return {row['kernel']: (row, wrong) for row, wrong in rows}


def small_kernels(nvcc, tools, arch):
    made = compiled(nvcc, tools, arch)
    right, wrong = made['right']
    assert not wrong, wrong
    assert (right['arch'], right['threads'], right['by'], right['stack']) == (arch, 128, 'copies', 0), right
    assert right['shared'] == 8192 and right['in_flight'] == 3 * 128 * 16 * right['blocks'], right
    early, wrong = made['early']
    assert early['in_flight'] == 0 and 'waits for all copies' in wrong[0], made['early']
    assert made['by_registers'][0]['by'] == 'loads', made['by_registers']
    few, spills, many = (made[name][0] for name in ('few', 'spills', 'many'))
    assert few['stack'] == few['local'] == many['stack'] == 0 and few['blocks'] == 2, (few, many)
    assert spills['stack'] > 0 and spills['looped'] > 0 and spills['registers'] <= 32, spills
    assert many['registers'] > 64, many


OCCUPANCY = r'''
#include <cuda_occupancy.h>
#include <stdio.h>
#include <stdlib.h>
int main(int count, char **arg)
{
    for (int i = 1; i < count; i += 4) {
        const int arch = atoi(arg[i]), threads = atoi(arg[i + 1]), shared = atoi(arg[i + 3]);
        cudaOccDeviceProp gpu;
        gpu.computeMajor = arch / 10, gpu.computeMinor = arch % 10;
        gpu.maxThreadsPerBlock = 1024, gpu.maxThreadsPerMultiprocessor = arch == 86 || arch == 89 ? 1536 : 2048;
        gpu.regsPerBlock = gpu.regsPerMultiprocessor = 65536, gpu.warpSize = 32, gpu.numSms = 1;
        gpu.reservedSharedMemPerBlock = 1024, gpu.sharedMemPerBlock = 49152;
        gpu.sharedMemPerMultiprocessor = (arch == 80 ? 164 : arch < 90 ? 100 : 228) << 10;
        gpu.sharedMemPerBlockOptin = gpu.sharedMemPerMultiprocessor - 1024;
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = 1024, kernel.numRegs = atoi(arg[i + 2]), kernel.sharedSizeBytes = 0;
        kernel.partitionedGCConfig = PARTITIONED_GC_OFF, kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = shared, kernel.numBlockBarriers = 1;
        cudaOccDeviceState state;
        state.carveoutConfig = 100;
        cudaOccResult result;
        if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &gpu, &kernel, &state, threads, shared)) puts("refused");
        else printf("%d\n", result.activeBlocksPerMultiprocessor);
    }
}
'''


def occupancy(nvcc):
    """as NVIDIA's own header reckons it"""
    cases = [(a, t, r, s) for a in gate.LIMITS for t in (32, 64, 96, 128, 256, 480, 1024)
             for r in (16, 32, 50, 65, 114, 168, 255) for s in (0, 1000, 8192, 11890, 43568, 86576, 98864)
             if s <= (99 << 10) and r * t <= 65536]
    with tempfile.TemporaryDirectory() as folder:
        with open(f'{folder}/o.cpp', 'w', encoding='utf-8') as f:
            f.write(OCCUPANCY)
        include = os.path.join(os.path.dirname(os.path.dirname(nvcc)), 'include')
        gate.tool('g++', ['-w', '-I', include, '-o', f'{folder}/o', f'{folder}/o.cpp'])
        said = gate.tool(f'{folder}/o', [str(n) for c in cases for n in c]).split()
    got = [str(gate.blocks_held(*c)) for c in cases]
    bad = [(c, g, s) for c, g, s in zip(cases, got, said) if g != s]
    assert len(said) == len(cases) and not bad, bad[:5]


def main():
    tests = [(t.__name__, t) for t in (control_words, circles, rings, registers, modelled, tables, pages)]
    with open(sys.argv[1], encoding='utf-8') as f:
        nvcc = (f.read().split() or [''])[0]
    with open(sys.argv[2], encoding='utf-8') as f:
        tools = f.read().strip()
    if nvcc and tools:
        tests += [(f'kernels for {arch}', lambda arch=arch: small_kernels(nvcc, tools, arch)) for arch in (80, 100)]
        tests.append(('occupancy', lambda: occupancy(nvcc)))
    else:
        print('SKIP: no nvcc, or no cuobjdump and nvdisasm (scripts/setup.sh --cuda): no kernel is compiled and read')
    return run_tests(tests)


if __name__ == '__main__':
    sys.exit(main())
