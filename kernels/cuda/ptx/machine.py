"""Runs a kernel. The threads of several blocks go side by side as elements of arrays. Those at the same instruction are a
group, and the group that is furthest behind goes on; it meets the others where their paths join. A thread that comes to a
barrier, or to an instruction of its warp, stays there until all that are named have come to the same one; where they
cannot, that is a fault: divergence."""

import numpy as np

from arithmetic import U32, U64
from fault import Fault
from instructions import BLOCK_BARRIER, BRANCH, EXIT, PLAIN, SPACES, WARP, WINDOW, Compiler
from memory import UINT, Own, Shared
from races import Clock

THREADS = 2048  # at once, at least one block
STEPS_MAX = 3_000_000  # of one run: a loop without an end is a fault
WARP_LANES = 32


class Copies:
    """cp.async: pending copies with the number of their group, which is of each thread its own."""

    def __init__(self, count):
        self.pending = []
        self.committed = np.zeros(count, np.int64)

    def begin(self, t, m, to, source, size, taken):
        threads = t.chosen(m)
        (to, to_offset), (source, offset) = to, source
        taken = t.some(taken, m).astype(np.int64)
        if (taken > size).any():
            raise Fault(f'a copy of {size} bytes reads more of them', taken > size)
        at = t.shared.take_off(t.address(to, to_offset, m), size, threads)
        source = t.address(source, offset, m)
        for of in np.unique(taken[taken > 0]):
            t.memory.find(source[taken == of], size if of == size else 1)
        self.pending.append((threads, self.committed[threads], at, source, taken, size))

    def commit(self, t, m):
        self.committed[t.chosen(m)] += 1

    def wait(self, t, m, most, all_of_them):
        threads = t.chosen(m)
        done = np.full(t.count, -1)
        done[threads] = self.committed[threads] + 1 if all_of_them else self.committed[threads] - most
        left = []
        for threads, group, at, source, taken, size in self.pending:
            lands = group < done[threads]
            if lands.any():
                self.land(t, threads[lands], at[lands], source[lands], taken[lands], size)
            if not lands.all():
                stays = ~lands
                left.append((threads[stays], group[stays], at[stays], source[stays], taken[stays], size))
        self.pending = left

    def land(self, t, threads, at, source, taken, size):
        values = np.zeros((len(at), size), np.uint8)
        for of in np.unique(taken[taken > 0]):
            some, each = taken == of, 4 if of % 4 == 0 else 1
            for i in range(0, of, each):
                word = t.memory.load(source[some] + U64(i), each, 1, threads[some])[0]
                values[some, i:i + each] = word.view(np.uint8).reshape(-1, each)
        t.shared.land(at, values, threads)


class Threads:
    """Registers of all threads (R, one array each), and in `partial` the threads that have written a register where these
    are not all."""

    def __init__(self, compiled, count, memory, params, block, place):
        self.count, self.memory = count, memory
        self.every = np.arange(count)
        self.clock = Clock(block, place.blocks, place.each)
        memory.begin_run(self.clock)
        kernel = compiled.kernel
        zeros = {1: np.zeros(count, bool), **{8 * b: np.zeros(count, kind) for b, kind in UINT.items()}}
        self.R = [zeros[width] for width in compiled.kinds]
        for at, value in compiled.constants.items():
            self.R[at] = np.full(count, value, self.R[at].dtype)
        for at, name in compiled.specials.items():
            self.R[at] = place.special(name, self.every)
        known = set(compiled.constants) | set(compiled.specials)
        nobody = np.zeros(count, bool)
        self.partial = {at: nobody for at in range(len(compiled.kinds)) if at not in known}
        self.params = Own(kernel.param_bytes, np.zeros(count, np.int64), 'the parameters', params)
        shared_bytes = kernel.shared_bytes if not kernel.dynamic else \
            (kernel.shared_bytes + 15) // 16 * 16 + place.dynamic_bytes
        self.shared = Shared(shared_bytes, block, self.clock, compiled.grain)
        self.local = Own(kernel.local_bytes, self.every, 'local memory')
        self.copies = Copies(count)
        self.spaces = dict(zip(SPACES, (memory, self.shared, self.params, self.local)))
        self.last = None, self.every
        self.ticks = 0

    def tick(self):
        """a clock that goes on whenever it is read"""
        self.ticks += 100
        return self.ticks

    # ---- registers

    def put(self, at, values, m):
        if m is None:
            self.R[at] = values
            self.partial.pop(at, None)
        else:
            self.R[at] = np.where(m, values, self.R[at].view(values.dtype))
            self.now_written(at, m)

    def now_written(self, at, m):
        written = self.partial.get(at)
        if written is not None:
            written = written | m
            if written.all():
                del self.partial[at]
            else:
                self.partial[at] = written

    def put_some(self, at, values, m):
        """values: of the threads of m alone"""
        if m is None:
            self.put(at, values, None)
        else:
            whole = self.R[at].view(values.dtype).copy()
            whole[m] = values
            self.R[at] = whole
            self.now_written(at, m)

    def some(self, values, m):
        return values if m is None else values[m]

    def chosen(self, m):
        """the threads of a mask"""
        if m is None:
            return self.every
        if self.last[0] is not m:
            self.last = m, np.flatnonzero(m)
        return self.last[1]

    def guard(self, register, negated, m):
        """those of m that a guard lets through: None for all there are"""
        wanted = self.R[register]
        if negated:
            wanted = ~wanted
        if m is not None:
            return wanted & m
        return None if wanted.all() else wanted

    def check_written(self, step, m):
        if step.guard:
            m = self.guard(*step.guard, m)
        for at in step.reads:
            written = self.partial.get(at)
            if written is not None:
                wrong = ~written if m is None else m & ~written
                if wrong.any():
                    raise Fault('a register is read that nothing was written to', np.flatnonzero(wrong))

    # ---- memory

    def address(self, base, offset, m):
        a = self.R[base].astype(U64)
        if offset:
            a = a + U64(offset & 0xffffffffffffffff)
        return a if m is None else a[m]

    def by_space(self, space, address):
        """(memory, addresses there, which of the threads): generic addresses may be of several"""
        if space:
            return [(self.spaces[space], address, slice(None))]
        window = address >> U64(60)
        if not window.any():
            return [(self.memory, address, slice(None))]
        kinds = {at >> 60: name for name, at in WINDOW.items()}
        return [(self.spaces[kinds.get(int(w), 'global')], address[window == w] & U64((1 << 60) - 1), window == w)
                for w in np.unique(window)]

    def in_memory(self, action, threads, which):
        """a fault in what `which` of these threads do names them"""
        try:
            return action()
        except Fault as fault:
            if fault.threads is not None:
                fault.threads = threads[which][fault.threads]
            raise

    def load(self, space, base, offset, each, count, m, unchanged):
        threads = self.chosen(m)
        parts = self.by_space(space, self.address(base, offset, m))
        numbers = [np.zeros(len(threads), UINT[each]) for _ in range(count)]
        for memory, address, which in parts:
            constant = (True,) if unchanged and memory is self.memory else ()
            got = self.in_memory(lambda: memory.load(address, each, count, threads[which], *constant), threads, which)
            for whole, part in zip(numbers, got):
                whole[which] = part
        return numbers

    def store(self, space, base, offset, each, values, m):
        threads = self.chosen(m)
        values = [self.some(v, m) for v in values]
        for memory, address, which in self.by_space(space, self.address(base, offset, m)):
            if memory is self.params:
                raise Fault('parameters are written', threads)
            self.in_memory(lambda: memory.store(address, each, [v[which] for v in values], threads[which]), threads, which)

    def atomic(self, space, base, offset, each, change, m):
        threads = self.chosen(m)
        parts = self.by_space(space, self.address(base, offset, m))
        if len(parts) > 1:
            raise Fault('an atomic operation on several kinds of memory at once', threads)
        memory, address, which = parts[0]
        return self.in_memory(lambda: memory.atomic(address, each, threads, change), threads, which)

    def warp_barrier(self, m):
        self.clock.warp_synced(self.every[::32] // 32 if m is None else np.unique(self.chosen(m) // 32))


class Place:
    """Where threads are in the grid."""

    def __init__(self, grid, block, blocks, dynamic_bytes):
        self.grid, self.block_size, self.blocks, self.dynamic_bytes = grid, block, np.array(blocks), dynamic_bytes
        self.each = block[0] * block[1] * block[2]

    def special(self, name, threads):
        what, _, axis = name.partition('.')
        axis = 'xyz'.find(axis) if axis else 0
        thread, block = threads % self.each, self.blocks[threads // self.each]
        values = {'%tid': lambda: part_of(thread, self.block_size, axis), '%ctaid': lambda: part_of(block, self.grid, axis),
                  '%ntid': lambda: np.full(len(threads), self.block_size[axis]),
                  '%nctaid': lambda: np.full(len(threads), self.grid[axis]),
                  '%laneid': lambda: thread % WARP_LANES, '%warpid': lambda: thread // WARP_LANES,
                  '%lanemask_eq': lambda: 1 << thread % WARP_LANES, '%lanemask_lt': lambda: (1 << thread % WARP_LANES) - 1}
        return values[what]().astype(U32)

    def name(self, thread):
        block, thread = int(self.blocks[thread // self.each]), int(thread % self.each)
        return f'block {tuple(int(part_of(block, self.grid, i)) for i in range(3))} thread {thread}'


def part_of(number, size, axis):
    for i in range(axis):
        number = number // size[i]
    return number % size[axis]


class Run:
    """Some blocks of a launch, until their last thread ends."""

    def __init__(self, compiled, memory, params, place):
        self.code, self.place, self.kernel = compiled.steps, place, compiled.kernel
        blocks = len(place.blocks)
        self.count = place.each * blocks
        whole_warps = place.each % WARP_LANES == 0
        if not whole_warps and any(step.kind == WARP for step in self.code):
            raise Fault('a block of this kernel must have whole warps', None)
        self.block = np.repeat(np.arange(blocks), place.each)
        self.threads = Threads(compiled, self.count, memory, params, self.block, place)
        self.groups = {0: np.ones(self.count, bool)}  # by the instruction that they come to next
        self.waiting = {}  # threads at a barrier or an instruction of their warps, by the same
        self.ended = np.zeros(self.count, bool)
        self.steps = 0

    def join(self, places, at, mask):
        places[at] = places[at] | mask if at in places else mask

    def run(self):
        with np.errstate(all='ignore'):
            while self.groups:
                at = min(self.groups)
                mask = self.groups.pop(at)
                self.go_on(at, None if mask.all() else mask, min(self.groups, default=-1))
        if self.waiting:
            self.stuck()

    def go_on(self, at, m, others):
        """A group, until it ends, waits, parts, or meets the next one."""
        t, code = self.threads, self.code
        partial = t.partial
        try:
            while at != others:
                step = code[at]
                self.steps += 1
                if not partial.keys().isdisjoint(step.reads):
                    t.check_written(step, m)
                if step.kind == PLAIN:
                    step.run(t, m)
                    at += 1
                    continue
                at, m = self.CONTROL[step.kind](self, step, at, m)
                if at is None:
                    return
                others = min(self.groups, default=-1)
                if others != -1 and others < at or self.steps > STEPS_MAX:
                    break
        except Fault as fault:
            raise self.located(fault, code[at]) from fault
        if self.steps > STEPS_MAX:
            raise self.located(Fault('it does not come to an end', None), code[at])
        self.join(self.groups, at, self.mask(m))

    def mask(self, m):
        return np.ones(self.count, bool) if m is None else m

    def branch(self, step, at, m):
        if not step.guard:
            return step.target, m
        taken = self.threads.guard(*step.guard, m)
        if taken is None or m is not None and np.array_equal(taken, m):
            return step.target, m
        if not taken.any():
            return at + 1, m
        self.join(self.groups, step.target, taken)
        return at + 1, ~taken if m is None else m & ~taken

    def leave(self, step, at, m):
        going = self.threads.guard(*step.guard, m) if step.guard else m
        self.ended |= self.mask(going)
        stays = self.mask(m) & ~self.mask(going)
        return (at + 1, stays) if stays.any() else (None, None)

    def warp(self, step, at, m):
        """The warps all of whose named threads are here go on; the others wait."""
        here = m
        if step.guard:
            here = self.threads.guard(*step.guard, m)
            if here is not None and not here.any():
                return at + 1, m
        if at in self.waiting:
            earlier = self.waiting.pop(at)
            here, m = self.mask(here) | earlier, self.mask(m) | earlier
        ready = self.complete(step, here)
        if ready is None:
            step.run(self.threads, None if here is None or here.all() else here)
            return at + 1, None if m is None or m.all() else m
        late = np.repeat(~ready, WARP_LANES) & self.mask(here)
        self.join(self.waiting, at, late)
        here, m = self.mask(here) & ~late, self.mask(m) & ~late
        if here.any():
            step.run(self.threads, here)
        return (at + 1, m) if m.any() else (None, None)

    def complete(self, step, here):
        """which warps are complete; None: all"""
        full = 0xffffffff
        if step.members is None:
            named = np.where(self.mask(here).reshape(-1, WARP_LANES).any(axis=1), full, -1)
        else:
            members = self.threads.R[step.members].astype(np.int64).reshape(-1, WARP_LANES)
            if here is None and members.min() == full:
                return None
            rows = np.where(self.mask(here).reshape(-1, WARP_LANES), members, -1)
            named = rows.max(axis=1)
            if (np.where(rows == -1, named[:, None], rows) != named[:, None]).any():
                raise Fault('lanes of a warp name different lanes', np.flatnonzero(self.mask(here)))
        present = self.mask(here).reshape(-1, WARP_LANES)
        wanted = (named[:, None] >> np.arange(WARP_LANES) & 1).astype(bool) & (named != -1)[:, None]
        if (present & ~wanted).any():
            raise Fault('a lane takes part that is not named', np.flatnonzero((present & ~wanted).reshape(-1)))
        ready = (present == wanted).all(axis=1)
        return None if ready.all() else ready

    def barrier(self, step, at, m):
        if step.guard:
            raise Fault('a barrier with a guard is not understood', None)
        self.join(self.waiting, at, self.mask(m))
        number = self.threads.R[step.extra['number']]
        waits = {other: mask for other, mask in self.waiting.items() if self.code[other].kind == BLOCK_BARRIER}
        together = sum((mask.astype(np.int64) for mask in waits.values()), np.zeros(self.count, np.int64))
        if number.min() != number.max():
            raise Fault('threads wait at different barriers', None)
        same = [o for o in waits if self.code[o].extra['number'] == step.extra['number']]
        arrived = np.bincount(self.block, together, len(self.place.blocks))
        count = step.extra['count']
        wanted = self.place.each if count is None else int(self.threads.R[count][0])
        open_ = arrived == wanted
        if len(same) != len(waits) and open_.any():
            raise Fault('threads wait at different barriers', None)
        for other in same:
            self.release(other, open_[self.block] & self.waiting[other])
        return None, None

    def release(self, at, mask):
        """The threads of a block go on behind a barrier; those of a warp must have come to the same one."""
        if not mask.any():
            return
        step, t = self.code[at], self.threads
        if self.place.each % WARP_LANES == 0:
            warps = mask.reshape(-1, WARP_LANES)
            split = warps.any(axis=1) & ~warps.all(axis=1)
            if split.any() and step.extra['count'] is None:
                raise Fault('a barrier that lanes of a warp reach by different ways', np.flatnonzero(np.repeat(split, 32)))
        if 'reduce' in step.extra:
            self.reduce(step, mask)
        t.clock.block_synced(np.unique(self.block[mask]))
        left = self.waiting.pop(at) & ~mask
        if left.any():
            self.waiting[at] = left
        self.join(self.groups, at + 1, mask)

    def reduce(self, step, mask):
        blocks = len(self.place.blocks)
        says = (self.threads.R[step.extra['value']] != step.extra['negated']) & mask
        count = np.bincount(self.block, says, blocks)
        result = {'popc': lambda: count.astype(U32), 'or': lambda: count > 0, 'and': lambda: count == self.place.each}
        self.threads.put(step.extra['to'], result[step.extra['reduce']]()[self.block], None if mask.all() else mask)

    CONTROL = {BRANCH: branch, EXIT: leave, WARP: warp, BLOCK_BARRIER: barrier}

    def stuck(self):
        at, mask = next(iter(self.waiting.items()))
        step = self.code[at]
        what = 'a barrier' if step.kind == BLOCK_BARRIER else 'an instruction of a warp'
        block = np.isin(self.block, self.block[mask])
        why = 'have ended' if (self.ended & block).any() else 'wait elsewhere'
        raise self.located(Fault(f'{what} in divergent code: threads that it waits for {why}', np.flatnonzero(mask)), step)

    def located(self, fault, step):
        where = ''
        if fault.threads is not None:
            threads = np.asarray(fault.threads)
            if threads.dtype == bool:
                threads = np.flatnonzero(threads)
            if len(threads):
                where = f', {self.place.name(int(threads[0]))}'
                where += f' and {len(threads) - 1} more' if len(threads) > 1 else ''
        return Fault(f'{fault.why} ({self.kernel.name}, {step.text}{where})')


class Machine:
    """A GPU: its memory, and launches one after another, whose blocks may go in the opposite order. instructions: how many
    were run, each by some threads."""

    def __init__(self, memory):
        self.memory, self.backward, self.instructions, self.compiled = memory, False, 0, {}

    def launch(self, kernel, grid, block, params, dynamic_bytes=0):
        if kernel not in self.compiled:
            self.compiled[kernel] = Compiler(kernel)
        compiled = self.compiled[kernel]
        each = block[0] * block[1] * block[2]
        blocks = list(range(grid[0] * grid[1] * grid[2]))
        self.memory.begin_launch(compiled.global_grain, len(blocks), compiled.atomics)
        if self.backward:
            blocks.reverse()
        at_once = max(1, THREADS // each)
        for first in range(0, len(blocks), at_once):
            run = Run(compiled, self.memory, params, Place(grid, block, blocks[first:first + at_once], dynamic_bytes))
            run.run()
            self.instructions += run.steps
