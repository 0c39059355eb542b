#!/usr/bin/env python3
"""A model of the attention kernels' loops over keys, of their machine code and the table beside it: how many bytes of K
and V a multiprocessor reads in a clock. It is no measurement. Instructions issue in order, each when what it waits for
is there and as many cycles after the one before as that one's control word says; units are taken as `rate` says,
results come as LATENCIES says, and what is asked of memory comes after so many cycles, however much is asked for. So it
says what a loop can do where memory has that latency and any bandwidth, and how versions of a kernel compare."""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import gate  # noqa: E402
import sass  # noqa: E402

LATENCIES = {'LDS': 29, 'SHFL': 24, 'LDC': 40, 'S2R': 30, 'MUFU': 24, 'VOTE': 12, 'STS': 20, 'LDGSTS': 30}  # else 20
OPERANDS = {'LDG': 30, 'LDGSTS': 30, 'STS': 30, 'LDS': 30, 'SHFL': 30}  # until they have been read; else 12
FLOATS = ('FFMA', 'FADD', 'FMUL')


def rate(arch, i, base):
    """the unit of a quarter of a multiprocessor that an instruction takes, and for how many cycles; shared memory gives
    all four together 128 bytes a clock"""
    if base == 'HMMA':
        return 'tensor', 8
    if base in FLOATS:
        return 'float', 2 if arch == 80 else 1
    if base == 'IMAD' and '.MOV' not in i.opcode:
        return 'integer', 2
    if base in ('LDS', 'STS', 'LDGSTS'):
        return 'shared', sass.width(i)
    return None, 0


def steps(code):
    """instructions of a step of the loop with copies: the way through it that copies, multiplies and does the least
    besides; and of the step behind it, which may also fold what the tensor cores have summed up"""
    loop = next(part for part in sass.loops(code) if any(i.opcode.startswith('LDGSTS') for i in part))
    inside = {i.at // 16 for i in loop}
    graph = sass.blocks(code)
    entry = next(t for b, (_, to) in graph.items() if b not in inside for t in to if t in inside)
    order, back, seen, work = [], set(), {entry}, [(entry, iter(graph[entry][1]))]
    while work:  # depth first, to know what leads back
        block, rest = work[-1]
        for to in rest:
            if to not in inside:
                continue
            if any(to == b for b, _ in work):
                back.add((block, to))
            elif to not in seen:
                seen.add(to)
                work.append((to, iter(graph[to][1])))
                break
        else:
            order.append(work.pop()[0])

    def way(wanted):
        best = {}
        for block in order:
            end, after = graph[block]
            on = [best[t] for t in after if t in best and (block, t) not in back] + [(0, 0, ())] * (entry in after)
            if on:
                wants, less, then = max(on, key=lambda x: x[:2])
                mine = sum(i.opcode.split('.')[0] in wanted for i in code[block:end])
                best[block] = wants + mine, less - (end - block), (block, *then)
        return [i for block in best[entry][2] for i in code[block:graph[block][0]]]

    products = ('HMMA',) if any(i.opcode.startswith('HMMA') for i in loop) else ('FFMA',)
    plain, folding = way(('LDGSTS', *products)), way(('LDGSTS', 'STS', *products))
    return plain, folding if products == ('HMMA',) and len(folding) > len(plain) else plain


class Warp:
    def __init__(self, start):
        self.step = self.at = 0
        self.ready = start
        self.boards = [0] * 6
        self.groups, self.newest = [], 0  # when the copies of each have landed
        self.done = []


def cycles(arch, trace, warps, latency, times=24):
    """of a step of one of so many warps of a quarter, once they are under way"""
    trace = [[(i, i.opcode.split('.')[0], *rate(arch, i, i.opcode.split('.')[0])) for i in step] for step in trace]
    all_, units, now, last = [Warp(37 * n) for n in range(warps)], {}, 0, 0
    while any(w.step < times for w in all_):
        best = None
        for n in range(1, warps + 1):  # by turns
            w = all_[(last + n) % warps]
            if w.step == times:
                continue
            i, base, unit, _ = trace[w.step % len(trace)][w.at]
            ready = max([w.ready, units.get(unit, 0), *(w.boards[b] for b in i.waits)])
            if base == 'DEPBAR':
                keep = int(i.operands.split(',')[1], 16)
                ready = max([ready, *w.groups[:len(w.groups) - keep]])
            if best is None or ready < best[0]:
                best = ready, w, i, base, (last + n) % warps
        ready, w, i, base, last = best
        now = max(now, ready)
        unit, takes = trace[w.step % len(trace)][w.at][2:]
        if unit:
            units[unit] = now + takes
        if base == 'LDGSTS':
            w.newest = now + latency
        if base == 'LDGDEPBAR':
            w.groups = [*w.groups[-8:], w.newest]
        elif i.sets is not None:
            takes = latency if sass.reads_global(i) else LATENCIES.get(base, 20)
            w.boards[i.sets] = max(w.boards[i.sets], now + takes)
        if i.frees is not None:
            w.boards[i.frees] = max(w.boards[i.frees], now + OPERANDS.get(base, 12))
        w.ready = now + max(1, i.stall)
        now += 1
        w.at += 1
        if w.at == len(trace[w.step % len(trace)]):
            w.at, w.step = 0, w.step + 1
            w.done.append(now)
    return warps / sum((times - 4) / (w.done[-1] - w.done[3]) for w in all_)


def bytes_a_clock(arch, trace, warps, latency):
    """of a multiprocessor that has so many warps, which its quarters share"""
    copied = sum(sass.LANES * sass.width(i) for i in trace[0] if i.opcode.startswith('LDGSTS'))
    few, more = divmod(warps, 4)
    return sum(quarters * n * copied / cycles(arch, trace, n, latency)
               for n, quarters in ((few, 4 - more), (few + 1, more)) if n and quarters)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('words', nargs='*', default=[''], help='only kernels whose name has one of these')
    parser.add_argument('--latency', type=int, default=900, help='of memory, in cycles')
    args = parser.parse_args()
    with open('build/sass/tools', encoding='utf-8') as f:
        tools = f.read().strip()
    _, table = gate.read_table(f'{gate.HERE}/table.csv')
    said = {}
    for file in sorted({file for (file, _, _), row in table.items() if row['by'] == 'copies'}):
        with gate.cubins(tools, f'build/plugin/{file}.o') as cubins:
            for arch, _, _, kernels in (gate.read_cubin(tools, cubin) for cubin in cubins):
                names = gate.plain(list(kernels))
                for symbol, code in kernels.items():
                    row = table.get((file, names[symbol], arch))
                    if row and row['by'] == 'copies' and any(word in names[symbol] for word in args.words):
                        trace, warps = steps(code), int(row['threads']) // 32 * int(row['blocks'])
                        said.setdefault(names[symbol], {})[arch] = (
                            row['registers'], row['blocks'], str(int(row['in_flight']) >> 10), str(len(trace[0])),
                            f'{bytes_a_clock(arch, trace, warps, args.latency):.0f}')
    print('| kernel | registers | blocks | KiB kept asked for | instructions of a step | bytes a clock, by the model |')
    print('|---' * 6 + '|')
    for name, by_arch in sorted(said.items()):
        print(f'| `{name}` |', *(f'{" / ".join(x)} |' for x in zip(*(by_arch[arch] for arch in sorted(by_arch)))))


if __name__ == '__main__':
    main()
