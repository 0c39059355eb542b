"""Each instruction of a kernel becomes, once, a function of the threads that run it (machine.Threads) and of a mask:
which of them do, None for all."""

import re
from dataclasses import dataclass, field

import numpy as np

import arithmetic
from arithmetic import NUMPY, U32, U64, bits
from fault import Fault
from memory import UINT

PLAIN, BRANCH, EXIT, BLOCK_BARRIER, WARP = range(5)  # how a step goes on; WARP: once all threads it names are there

# Generic addresses by their upper bits; everything else is global memory.
WINDOW = {'shared': 1 << 60, 'param': 2 << 60, 'local': 3 << 60}
SPACES = ('global', 'shared', 'param', 'local')

SPECIAL = ('%tid', '%ntid', '%ctaid', '%nctaid', '%laneid', '%warpid', '%lanemask')
CLOCKS = ('%globaltimer', '%clock', '%clock64')


class Unknown(Exception):
    """PTX that is not understood here"""


@dataclass
class Step:
    text: object
    kind: int = PLAIN
    run: object = None
    reads: tuple = ()
    guard: tuple = None  # register and whether it is to be false, for what is not PLAIN
    target: int = None  # of a branch
    members: int = None  # register with the threads that a WARP step names; None: all
    extra: dict = field(default_factory=dict)


class Compiler:
    """The steps of a kernel. Registers, constants and special registers are places of one list: kinds has the bits of
    each, constants what is in it from the beginning."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.places, self.kinds, self.constants, self.specials = {}, [], {}, {}
        self.grain = self.global_grain = 8  # least bytes of an access, of shared and of global memory
        self.atomics = False  # on global memory
        self.reads = []
        dynamic = (kernel.shared_bytes + 15) // 16 * 16
        self.symbols = {**{name: at for name, at in kernel.params.items()}, **kernel.shared, **kernel.local,
                        **{name: dynamic for name in kernel.dynamic}}
        self.steps = [self.step(i) for i in kernel.code] + [Step('the end', EXIT)]

    # ---- operands

    def place(self, key, width):
        if key not in self.places:
            self.places[key] = len(self.kinds)
            self.kinds.append(width)
        return self.places[key]

    def register(self, name):
        width = self.kernel.bits(name)
        if width is None:
            raise Unknown(f'no register: {name}')
        return self.place(name, width)

    def constant(self, value, width):
        at = self.place((value, width), width)
        self.constants[at] = value
        return at

    def source(self, operand, kind):
        at = self.source_place(operand, bits(kind))
        self.reads.append(at)
        return at

    def source_place(self, operand, width):
        if operand.startswith(SPECIAL):
            at = self.place(operand, 32)
            self.specials[at] = operand
            return at
        if self.kernel.bits(operand) is not None:
            return self.register(operand)
        if operand in self.symbols:
            return self.constant(self.symbols[operand], width)
        if operand[:2] in ('0f', '0d', '0F', '0D') and len(operand) in (10, 18):
            return self.constant(int(operand[2:], 16), width)
        try:
            value = int(operand.rstrip('U'), 0)
        except ValueError:
            raise Unknown(f'no operand: {operand}') from None
        return self.constant(bool(value) if width == 1 else value & ((1 << width) - 1), width)

    def reader(self, operand, kind):
        """a function of the registers that gives the operand as an array of its type"""
        at, numpy_kind = self.source(operand, kind), NUMPY[kind]
        if kind == 'pred' and self.kinds[at] == 1:
            return lambda R: R[at]
        if self.kinds[at] == bits(kind):
            return lambda R: R[at].view(numpy_kind)
        if self.kinds[at] < bits(kind):
            raise Unknown(f'{operand} has fewer bits than .{kind}')
        narrow, whole = UINT[bits(kind) // 8], UINT[self.kinds[at] // 8]
        return lambda R: R[at].view(whole).astype(narrow).view(numpy_kind)

    def writer(self, operand, kind):
        """the place of a register, and a function that makes its bits of values of a type"""
        if operand == '_':
            return None, None
        at = self.register(operand)
        if self.kinds[at] == bits(kind):
            return at, lambda values: values
        if self.kinds[at] < bits(kind) or kind[0] == 'f':
            raise Unknown(f'{operand} does not hold .{kind}')
        signed = NUMPY['s' + kind[1:]] if kind[0] == 's' else NUMPY['u' + kind[1:]]
        whole = UINT[self.kinds[at] // 8]
        return at, lambda values: values.view(signed).astype(whole)

    def address(self, operand):
        """place of the base, and what is added to it"""
        found = re.match(r'\[\s*([^+\s\]]+)\s*(?:\+\s*(-?\w+))?\s*\]', operand)
        if not found:
            raise Unknown(f'no address: {operand}')
        return self.source(found[1], 'u64'), int(found[2] or '0', 0)

    # ---- steps

    def step(self, text):
        self.reads = []
        head, *words = text.op.split('.')
        build = BUILDERS.get(head)
        try:
            if build:
                step = build(self, text, words)
            else:
                step = self.computes(text, head, words)
        except (KeyError, IndexError, ValueError, Unknown) as error:
            raise Unknown(f'{self.kernel.name}, {text}: not understood: {error!r}') from error
        step.text = text
        if text.guard:
            step.guard = self.source(text.guard[0], 'pred'), text.guard[1]
        step.reads = tuple(set(self.reads) - set(self.constants) - set(self.specials))
        if step.guard and step.kind == PLAIN:
            step.run = guarded(step.run, *step.guard)
        return step

    def computes(self, text, head, words):
        to, kinds, function = arithmetic.FORMS[head](head, words)
        if len(kinds) != len(text.operands) - 1:
            raise Unknown(f'{len(text.operands)} operands')
        operands = [self.reader(o, kind) for o, kind in zip(text.operands[1:], kinds)]
        result, _, other = text.operands[0].partition('|')
        at, fit = self.writer(result, to)
        if other:
            return self.computes_both(at, self.writer(other, 'pred')[0], operands, function)
        if self.kinds[at] != bits(to):
            inner = function
            function = lambda *x: fit(inner(*x))  # noqa: E731
        return Step(text, run=ARITY[len(operands)](at, function, *operands))

    def computes_both(self, at, other, operands, function):
        """a comparison and its opposite"""
        def run(t, m):
            values = function(*(x(t.R) for x in operands))
            t.put(at, values, m)
            t.put(other, ~values, m)
        return Step(None, run=run)


def guarded(run, register, negated):
    def only(t, m):
        wanted = t.guard(register, negated, m)
        if wanted is None:
            run(t, None)
        elif wanted.any():
            run(t, wanted)
    return only


def of_one(at, function, x):
    def run(t, m):
        t.put(at, function(x(t.R)), m)
    return run


def of_two(at, function, x, y):
    def run(t, m):
        R = t.R
        t.put(at, function(x(R), y(R)), m)
    return run


def of_three(at, function, x, y, z):
    def run(t, m):
        R = t.R
        t.put(at, function(x(R), y(R), z(R)), m)
    return run


def of_four(at, function, x, y, z, w):
    def run(t, m):
        R = t.R
        t.put(at, function(x(R), y(R), z(R), w(R)), m)
    return run


ARITY = {1: of_one, 2: of_two, 3: of_three, 4: of_four}


def elements(operand):
    """of a vector; of anything else, itself"""
    return [x.strip() for x in operand.strip('{}').split(',')]


# ---- registers


def move(c, text, words):
    to, source = text.operands
    if to.startswith('{'):
        return unpack(c, text, words[-1])
    if source.startswith('{'):
        return pack(c, text, words[-1])
    if source in CLOCKS:
        at, kind = c.writer(to, words[-1])[0], NUMPY[words[-1]]
        return Step(text, run=lambda t, m: t.put(at, np.full(t.count, t.tick(), kind), m))
    return c.computes(text, 'mov', words)


def unpack(c, text, kind):
    parts = elements(text.operands[0])
    each = bits(kind) // len(parts)
    source = c.reader(text.operands[1], f'b{bits(kind)}')
    places = [c.writer(p, f'b{each}')[0] for p in parts]

    def run(t, m):
        whole = source(t.R)
        for i, at in enumerate(places):
            if at is not None:
                t.put(at, (whole >> whole.dtype.type(each * i)).astype(UINT[each // 8]), m)
    return Step(text, run=run)


def pack(c, text, kind):
    parts = elements(text.operands[1])
    each, whole = bits(kind) // len(parts), UINT[bits(kind) // 8]
    sources = [c.reader(p, f'b{each}') for p in parts]
    at, _ = c.writer(text.operands[0], f'b{bits(kind)}')

    def run(t, m):
        value = sources[0](t.R).astype(whole)
        for i, source in enumerate(sources[1:], 1):
            value = value | source(t.R).astype(whole) << whole(each * i)
        t.put(at, value, m)
    return Step(text, run=run)


def convert_address(c, text, words):
    """cvta.to.shared takes a generic address, cvta.shared makes one"""
    space = next((w for w in words if w in SPACES), 'global')
    at, window = c.writer(text.operands[0], 'u64')[0], U64(WINDOW.get(space, 0))
    source = c.reader(text.operands[1], 'u64')
    if space == 'shared':
        c.grain = 1  # accesses by generic addresses
    if 'to' in words:
        return Step(text, run=lambda t, m: t.put(at, source(t.R) - window, m))
    return Step(text, run=lambda t, m: t.put(at, source(t.R) + window, m))


def nothing(c, text, words):
    return Step(text, run=lambda t, m: None)


def fence(c, text, words):
    """Threads see each other's stores at once here; who may rely on that, races.py says."""
    if not {'gl', 'sys', 'gpu'} & set(words):
        return nothing(c, text, words)
    return Step(text, run=lambda t, m: t.memory.fence(t.chosen(m)))


# ---- memory


def space_of(words):
    return next((w.partition('::')[0] for w in words if w.partition('::')[0] in SPACES), None)


def shape_of(c, words):
    """bytes of a number, and how many"""
    count = next((int(w[1]) for w in words if re.fullmatch(r'v[248]', w)), 1)
    each = bits(words[-1]) // 8
    space = space_of(words)
    if space == 'shared':
        c.grain = min(c.grain, each)
    elif space in (None, 'global'):
        c.global_grain = min(c.global_grain, each)
    return each, count


def load(c, text, words):
    each, count = shape_of(c, words)
    space, kind = space_of(words), words[-1]
    base, offset = c.address(text.operands[1])
    writers = [c.writer(o, kind) for o in elements(text.operands[0])]
    unchanged = 'nc' in words
    uniform = space == 'param' and base in c.constants

    def run(t, m):
        numbers = t.load(space, base, offset, each, count, m, unchanged)
        for (at, fit), values in zip(writers, numbers):
            if at is not None:
                t.put_some(at, fit(values), m)

    def run_uniform(t, m):
        one = np.array([c.constants[base] + offset], U64)
        for (at, fit), values in zip(writers, t.params.load(one, each, count, np.zeros(1, np.int64))):
            t.put(at, np.full(t.count, fit(values)[0]), m)
    return Step(text, run=run_uniform if uniform else run)


def store(c, text, words):
    each, _ = shape_of(c, words)
    space, kind = space_of(words), words[-1]
    base, offset = c.address(text.operands[0])
    values = [c.reader(o, f'b{bits(kind)}') for o in elements(text.operands[1])]

    def run(t, m):
        t.store(space, base, offset, each, [v(t.R) for v in values], m)
    return Step(text, run=run)


def wrapped(old, limit):
    return old.dtype.type(0) if old >= limit else old + old.dtype.type(1)


CHANGE = {'add': lambda old, x: old + x, 'min': min, 'max': max, 'and': lambda old, x: old & x, 'or': lambda old, x: old | x,
          'xor': lambda old, x: old ^ x, 'exch': lambda old, x: x, 'inc': wrapped,
          'cas': lambda old, x, y: y if old == x else old}


def atomic(c, text, words):
    """atom gives the old value, red gives none"""
    returns = text.op.startswith('atom')
    kind, change = words[-1], CHANGE[next(w for w in words if w in CHANGE)]
    each, _ = shape_of(c, words)
    space, operands = space_of(words), text.operands[1:] if returns else text.operands
    c.atomics = c.atomics or space != 'shared'
    at = c.writer(text.operands[0], kind)[0] if returns else None
    base, offset = c.address(operands[0])
    values = [c.reader(o, kind) for o in operands[1:]]
    numpy_kind = NUMPY[kind]

    def run(t, m):
        own = [t.some(v(t.R), m) for v in values]

        def changed(i, old):
            return numpy_kind(change(old.view(numpy_kind), *(x[i] for x in own))).view(old.dtype)
        old = t.atomic(space, base, offset, each, changed, m)
        if at is not None:
            t.put_some(at, old, m)
    return Step(text, run=run)


def copy_async(c, text, words):
    """Copies land when a thread waits for them, and not before: that is as late as they may."""
    if words[1:2] == ['commit_group']:
        return Step(text, run=lambda t, m: t.copies.commit(t, m))
    if words[1:2] == ['wait_all']:
        return Step(text, run=lambda t, m: t.copies.wait(t, m, 0, True))
    if words[1:2] == ['wait_group']:
        most = int(text.operands[0], 0)
        return Step(text, run=lambda t, m: t.copies.wait(t, m, most, False))
    if words[0] != 'async' or words[1] not in ('ca', 'cg') or words[2] != 'shared':
        raise Unknown('only cp.async of ca or cg to shared memory')
    to, source, size = c.address(text.operands[0]), c.address(text.operands[1]), int(text.operands[2], 0)
    if size not in ((16,) if words[1] == 'cg' else (4, 8, 16)):
        raise Unknown(f'a copy of {size} bytes')
    c.grain, c.global_grain = min(c.grain, 4), min(c.global_grain, 4)
    taken = c.reader(text.operands[3] if len(text.operands) > 3 else str(size), 'u32')
    return Step(text, run=lambda t, m: t.copies.begin(t, m, to, source, size, taken(t.R)))


# ---- control


def branch(c, text, words):
    return Step(text, BRANCH, target=c.kernel.labels[text.operands[0]])


def leave(c, text, words):
    return Step(text, EXIT)


def barrier(c, text, words):
    """bar.warp.sync is of a warp; bar.sync and bar.red wait for the block, or as many threads as they say"""
    if words[0] == 'warp':
        step = Step(text, WARP, run=lambda t, m: t.warp_barrier(m))
        step.members = c.source(text.operands[0], 'u32')
        return step
    words = [w for w in words if w not in ('cta', 'aligned')]
    results = 1 if words[0] == 'red' else 0
    if words[0] not in ('sync', 'red'):
        raise Unknown('a barrier that does not wait')
    rest = text.operands[results:]
    operands = rest[:-1] if results else rest
    step = Step(text, BLOCK_BARRIER)
    step.extra = {'number': c.source(operands[0], 'u32'),
                  'count': c.source(operands[1], 'u32') if len(operands) > 1 else None}
    if results:
        negated = rest[-1].startswith('!')
        step.extra.update(reduce=words[1], to=c.writer(text.operands[0], words[-1])[0],
                          value=c.source(rest[-1].lstrip('!'), 'pred'), negated=negated)
    return step


# ---- warps: arrays of [warps][32]


def shuffle(c, text, words):
    """Lane i takes x of lane `source`; beyond the limits that operand c sets, its own."""
    to, _, found = text.operands[0].partition('|')
    at, found = c.writer(to, 'b32')[0], c.writer(found, 'pred')[0] if found else None
    x, by, limit = (c.reader(o, 'b32') for o in text.operands[1:4])
    lane = np.arange(32)
    where = {'idx': lambda b, low: low | b, 'bfly': lambda b, low: lane ^ b, 'up': lambda b, low: lane - b,
             'down': lambda b, low: lane + b}[words[1]]

    def run(t, m):
        b, packed = by(t.R).astype(np.int64).reshape(-1, 32) & 31, limit(t.R).astype(np.int64).reshape(-1, 32)
        clamp, segment = packed & 31, packed >> 8 & 31
        low, top = lane & segment, lane & segment | clamp & ~segment
        source = where(b & ~segment if words[1] == 'idx' else b, low)
        inside = source >= top if words[1] == 'up' else source <= top
        source = np.where(inside, source, lane)
        if m is not None:
            silent = m.reshape(-1, 32) & ~np.take_along_axis(m.reshape(-1, 32), source, 1)
            if silent.any():
                raise Fault('a shuffle reads a lane that takes no part', np.flatnonzero(silent.reshape(-1)))
        t.put(at, np.take_along_axis(x(t.R).reshape(-1, 32), source, 1).reshape(-1), m)
        if found is not None:
            t.put(found, inside.reshape(-1), m)
    return warp_step(c, text, run)


def warp_step(c, text, run):
    step = Step(text, WARP, run=run)
    step.members = c.source(text.operands[-1], 'u32')
    return step


BIT = (1 << np.arange(32, dtype=np.int64))


def vote(c, text, words):
    negated = text.operands[1].startswith('!')
    value = c.reader(text.operands[1].lstrip('!'), 'pred')
    at = c.writer(text.operands[0], words[-1])[0]

    def run(t, m):
        here = np.ones(t.count, bool) if m is None else m
        says = (value(t.R) != negated).reshape(-1, 32)
        here = here.reshape(-1, 32)
        if words[1] == 'ballot':
            result = ((says & here) * BIT).sum(axis=1).astype(U32)
        else:
            some, every = (says & here).any(axis=1), (says | ~here).all(axis=1)
            result = {'any': some, 'all': every, 'uni': every | ~some}[words[1]]
        t.put(at, np.repeat(result, 32), m)
    return warp_step(c, text, run)


def match(c, text, words):
    to, _, same = text.operands[0].partition('|')
    at, same = c.writer(to, 'b32')[0], c.writer(same, 'pred')[0] if same else None
    value = c.reader(text.operands[1], words[-1])

    def run(t, m):
        here = (np.ones(t.count, bool) if m is None else m).reshape(-1, 32)
        v = value(t.R).reshape(-1, 32)
        equal = (v[:, :, None] == v[:, None, :]) & here[:, None, :] & here[:, :, None]
        result = (equal * BIT).sum(axis=2)
        if words[1] == 'all':
            every = (result == (here * BIT).sum(axis=1)[:, None])
            result = np.where(every, result, 0)
            if same is not None:
                t.put(same, every.reshape(-1), m)
        t.put(at, result.astype(U32).reshape(-1), m)
    return warp_step(c, text, run)


def reduce_warp(c, text, words):
    kind, operation = words[-1], words[1]
    at, value = c.writer(text.operands[0], kind)[0], c.reader(text.operands[1], kind)
    whole = {'add': np.add, 'min': np.minimum, 'max': np.maximum, 'and': np.bitwise_and, 'or': np.bitwise_or,
             'xor': np.bitwise_xor}[operation]

    def run(t, m):
        here = np.ones(t.count, bool) if m is None else m
        result = np.zeros(t.count, NUMPY[kind])
        for warp in np.flatnonzero(here.reshape(-1, 32).any(axis=1)):
            lanes = slice(32 * warp, 32 * warp + 32)
            result[lanes] = whole.reduce(value(t.R)[lanes][here[lanes]], dtype=NUMPY[kind])
        t.put(at, result, m)
    return warp_step(c, text, run)


def active_mask(c, text, words):
    at = c.writer(text.operands[0], 'b32')[0]

    def run(t, m):
        here = (np.ones(t.count, bool) if m is None else m).reshape(-1, 32)
        t.put(at, np.repeat((here * BIT).sum(axis=1).astype(U32), 32), m)
    return Step(text, run=run)


def multiply_matrices(c, text, words):
    """mma.m16n8k8 of tf32: PTX ISA, matrix fragments for mma.m16n8k8. Products are exact and sums in binary64, which no
    tensor core promises: what they do round is in the error bounds, and the emulation is as pessimistic as they are."""
    if words != 'sync aligned m16n8k8 row col f32 tf32 tf32 f32'.split():
        raise Unknown('only mma.m16n8k8 of tf32')
    results = [c.writer(o, 'f32')[0] for o in elements(text.operands[0])]
    a, b = ([c.reader(o, 'b32') for o in elements(text.operands[i])] for i in (1, 2))
    sums = [c.reader(o, 'f32') for o in elements(text.operands[3])]
    group, thread = np.arange(32) >> 2, np.arange(32) & 3

    def tf32(values):
        return (values & U32(0xffffe000)).view(np.float32).astype(np.float64).reshape(-1, 32)

    def run(t, m):
        warps = t.count // 32
        A, B, C = np.empty((warps, 16, 8)), np.empty((warps, 8, 8)), np.empty((warps, 16, 8))
        for i, x in enumerate(a):
            A[:, group + 8 * (i & 1), thread + 4 * (i >> 1)] = tf32(x(t.R))
        for i, x in enumerate(b):
            B[:, thread + 4 * i, group] = tf32(x(t.R))
        for i, x in enumerate(sums):
            C[:, group + 8 * (i >> 1), 2 * thread + (i & 1)] = x(t.R).reshape(-1, 32)
        D = (A @ B + C).astype(np.float32)
        for i, at in enumerate(results):
            t.put(at, D[:, group + 8 * (i >> 1), 2 * thread + (i & 1)].reshape(-1), m)
    return Step(text, WARP, run=run)


BUILDERS = {'mov': move, 'cvta': convert_address, 'ld': load, 'st': store, 'atom': atomic, 'red': atomic, 'cp': copy_async,
            'bra': branch, 'ret': leave, 'exit': leave, 'bar': barrier, 'barrier': barrier, 'shfl': shuffle, 'vote': vote,
            'match': match, 'redux': reduce_warp, 'activemask': active_mask, 'mma': multiply_matrices,
            'membar': fence, 'fence': fence, 'nanosleep': nothing, 'prefetch': nothing, 'prefetchu': nothing}
