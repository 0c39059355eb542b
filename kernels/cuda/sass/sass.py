"""Machine code of NVIDIA's GPUs from compute capability 7.0 on, as nvdisasm prints it, with what it does not print: the
control word of each instruction. A GPU does not see by itself that an instruction needs what another has not yet
delivered: those that take an unknown time raise one of six scoreboards, and who needs them waits for it, and so for all
that is on it."""

import re
from collections import namedtuple

# sets: scoreboard that is raised until the result is there; frees: until the operands have been read; waits: a set
Instruction = namedtuple('Instruction', 'at guard opcode operands stall sets frees waits')
LANES = 32


def control(high):
    """stall, sets, frees and waits, of the upper 64 of an instruction's 128 bits"""
    sets, frees, mask = high >> 46 & 7, high >> 49 & 7, high >> 52 & 63
    return (high >> 41 & 15, None if sets == 7 else sets, None if frees == 7 else frees,
            frozenset(b for b in range(6) if mask >> b & 1))


def decode(listing, text):
    """instructions of a function: nvdisasm's list of them, and the bytes that they are made from"""
    words = memoryview(text).cast('Q')
    return [Instruction(16 * i, x.get('predicate', ''), x['opcode'], x.get('operands', ''), *control(words[2 * i + 1]))
            for i, x in enumerate(listing)]


# ---- loops

def target(i):
    found = re.search(r'0x[0-9a-f]+$', i.operands)
    return int(found[0], 16) if found else None


def follow(code, n):
    """numbers of the instructions that may come after number n. The lanes of a warp stay together: what nvcc keeps for
    those that do not (BRA.DIV) is not gone into."""
    i = code[n]
    base = i.opcode.split('.')[0]
    to = []
    if base in ('BRA', 'JMP', 'CALL') and i.opcode != 'BRA.DIV' and target(i) is not None:
        to.append(target(i) // 16)
    ends = base in ('EXIT', 'RET', 'BRX', 'JMX', 'KILL') or (base in ('BRA', 'JMP') and i.opcode != 'BRA.DIV'
                                                            and ',' not in i.operands)
    if not (ends and i.guard in ('', '@PT', '@UPT')):
        to.append(n + 1)
    return [t for t in to if t < len(code)]


def blocks(code):
    """first instruction of each block without branches: (one behind its last, blocks that may follow)"""
    jumps = {n: follow(code, n) for n, i in enumerate(code) if i.opcode.split('.')[0] in
             ('BRA', 'JMP', 'CALL', 'EXIT', 'RET', 'BRX', 'JMX', 'KILL')}
    heads = sorted({0, *(n + 1 for n in jumps if n + 1 < len(code)), *(t for to in jumps.values() for t in to)})
    return {head: (end, jumps.get(end - 1, [end] if end < len(code) else []))
            for head, end in zip(heads, [*heads[1:], len(code)])}


def loops(code):
    """those that are in no other: the instructions of each, in the order of their addresses (Tarjan's strongly
    connected components of what can be reached)"""
    graph = blocks(code)
    number, low, stack, found = {}, {}, [], []
    work = [(0, iter(graph[0][1]))] if graph else []
    if graph:
        number[0] = low[0] = 0
        stack.append(0)
    while work:
        head, rest = work[-1]
        for to in rest:
            if to not in number:
                number[to] = low[to] = len(number)
                stack.append(to)
                work.append((to, iter(graph[to][1])))
                break
            if to in stack:
                low[head] = min(low[head], number[to])
        else:
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[head])
            if low[head] == number[head]:
                at = stack.index(head)
                part, stack = sorted(stack[at:]), stack[:at]
                if len(part) > 1 or head in graph[head][1]:
                    found.append([code[n] for p in part for n in range(p, graph[p][0])])
    return found


# ---- what is asked for

def width(i):
    """bytes of a lane that it loads or copies"""
    for part in i.opcode.split('.')[1:]:
        if part.isdigit():
            return int(part) // 8
        if part in ('U8', 'S8', 'U16', 'S16'):
            return int(part[1:]) // 8
    return 4


def reads_global(i):
    return i.opcode.split('.')[0] in ('LDG', 'LD')


def copies(loop):
    """of a loop with asynchronous copies to shared memory (LDGSTS), whose groups (LDGDEPBAR) are waited for by how many
    of the newest may be missing (DEPBAR.LE): bytes of a warp that stay asked for when the most impatient wait is over,
    and what is wrong. None: it has none."""
    if not any(i.opcode.startswith('LDGSTS') for i in loop):
        return None
    groups, size, board, wrong = [], 0, None, []
    for i in loop:
        if i.opcode.startswith('LDGSTS'):
            size += LANES * width(i)
        elif i.opcode.startswith('LDGDEPBAR'):
            board = i.sets
            groups.append(size)
            size = 0
    if groups:
        groups[0] += size  # the loop goes round
    waits = []
    for i in loop:
        what = f'{i.at:#x} {i.opcode} {i.operands}'
        if i.opcode.startswith('DEPBAR') and i.operands.split(',')[0].strip() == f'SB{board}':
            waits.append(int(i.operands.split(',')[1], 16))
            if waits[-1] == 0:
                wrong.append(f'{what} waits for all copies, and none stays in flight')
        elif board in i.waits:
            wrong.append(f'{what} waits for the scoreboard of the copies, and so for all of them')
        elif board is not None and board in (i.sets, i.frees) and not i.opcode.startswith('LDGDEPBAR'):
            wrong.append(f'{what} is on the scoreboard of the copies')
    if not waits:
        wrong.append('copies that no group is waited for of')
    return min([n * min(groups) for n in waits], default=0), wrong


def loads(code):
    """bytes of a warp that are asked for by loads to registers, at most, when an instruction waits for one of them"""
    most, asked = 0, {}
    for i in code:
        if any(b in asked for b in i.waits):
            most = max(most, sum(sum(x) for x in asked.values()))
            for b in i.waits:
                asked.pop(b, None)
        if i.opcode.startswith('DEPBAR') and ',' in i.operands:
            board, keep = i.operands.split(',')[:2]
            queue = asked.get(int(board.strip()[2:]), [])
            most = max(most, sum(sum(x) for x in asked.values()) if queue else 0)
            del queue[:max(0, len(queue) - int(keep, 16))]
        if reads_global(i) and i.sets is not None:
            asked.setdefault(i.sets, []).append(LANES * width(i))
    return most


def in_flight(code):
    """bytes of a warp, whether copies or loads, and what is wrong: of copies, in the loop that keeps the fewest; else
    of loads in the loop that has the most, or in all of a kernel that has them in none"""
    circles = loops(code)
    copied = [c for c in map(copies, circles) if c]
    if copied:
        return min(bytes_ for bytes_, _ in copied), 'copies', [w for _, wrong in copied for w in wrong]
    # twice round: what the end of a loop asks for, its beginning may need
    most = max((loads(2 * c) for c in circles), default=0) or loads(code)
    return most, 'loads' if most else '', []


def local_accesses(code):
    """instructions that read or write local memory (registers that were spilled, and arrays that found none), and how
    many of them are in loops"""
    def count(part):
        return sum(i.opcode.split('.')[0] in ('LDL', 'STL') for i in part)
    here = count(code)
    return here, sum(map(count, loops(code))) if here else 0
