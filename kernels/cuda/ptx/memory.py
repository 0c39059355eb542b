"""Memory of a GPU: global memory, whose addresses are sparse, and what a block or a thread has of its own. Addresses and
values come as arrays, one element for each thread; whatever a GPU may not do, or leaves undefined, is a Fault."""

import numpy as np

from fault import Fault
from races import BLOCK, Order, Touches

UINT = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
EMPTY, FULL, FLYING = 0, 255, 1  # a byte: never written; written; a copy to it is on its way


class Bytes:
    """An array of bytes, each with its state, seen as numbers of any size."""

    def __init__(self, size):
        self.data, self.state = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
        self.views = {}
        for each, kind in UINT.items():
            self.views[each] = self.data[:size // each * each].view(kind), self.state[:size // each * each].view(kind)

    def read(self, at, each):
        """the numbers at these places, and which of them are not written as a whole"""
        data, state = self.views[each]
        at = at // each
        return data[at], state[at] != UINT[each](0xffffffffffffffff >> (64 - 8 * each))

    def write(self, at, each, values, state=FULL):
        """Of several threads that store to one place at once, any wins: that is a fault unless they agree."""
        data, states = self.views[each]
        at = at // each
        values = values.astype(UINT[each])
        data[at] = values
        states[at] = UINT[each](int.from_bytes(bytes([state] * each), 'little'))
        differ = data[at] != values
        if differ.any():
            raise Fault('threads store different numbers to one place at once', differ)


def check_alignment(address, size):
    crooked = (address & np.uint64(size - 1)) != 0
    if crooked.any():
        raise Fault(f'an address of {size} bytes is misaligned: {int(address[crooked][0]):#x}', crooked)


class Watched:
    """Memory in which two threads that touch a place need a barrier between them if one of them stores. grain: bytes of a
    place, the least that the kernel reads or writes."""

    def watch(self, size, grain):
        self.grain = grain
        self.writers, self.readers = Touches(size // grain), Touches(size // grain)
        self.atomics = np.zeros(size // grain, bool)

    def places(self, at, size):
        return (at // self.grain)[:, None] + np.arange(max(size // self.grain, 1))

    def now(self, threads):
        return self.clock.who[threads][:, None], self.clock.when[threads][:, None]

    def check(self, touches, places, now, why, unless=False):
        racing = touches.near(places, *now) & ~unless
        if racing.any():
            raise Fault(f'{self.name} {why} with no barrier between', racing.any(axis=1))

    def check_blocks(self, places, who, why, unless=False):
        """what other blocks have of it"""

    def before_load(self, at, size, threads):
        places, now = self.places(at, size), self.now(threads)
        self.check(self.writers, places, now, 'is read that another thread wrote,')
        self.check_blocks(places, now[0], 'is read')
        self.readers.note(places, *now)

    def before_store(self, at, size, threads):
        places, now = self.places(at, size), self.now(threads)
        self.check(self.writers, places, now, 'is written that another thread wrote,')
        self.check(self.readers, places, now, 'is written that another thread read,')
        self.check_blocks(places, now[0], 'is written')
        self.writers.put(places, *now)
        self.atomics[places] = False

    def before_atomic(self, at, each, threads):
        """Atomic operations need no barrier between each other."""
        places, now = self.places(at, each), self.now(threads)
        self.check(self.writers, places, now, 'is changed that another thread wrote,', self.atomics[places])
        self.check(self.readers, places, now, 'is changed that another thread read,')
        self.check_blocks(places, now[0], 'is changed', self.atomics[places])
        self.writers.note(places, *now)
        self.atomics[places] = True


class Global(Watched):
    """Allocations anywhere in 64 bits, each at its own address; what lies between them takes no room."""

    FIRST, GAP = 0x7f0000000000, 4096
    name = 'memory'

    def __init__(self):
        self.names, self.sizes, self.starts, self.offsets = [], [], [], []
        self.used, self.bytes = 0, Bytes(0)
        self.changed = np.zeros(0, bool)  # by the launch that runs
        self.next = self.FIRST
        self.sorted = None

    def allocate(self, what, name, offset=0, at=None):
        """what: a number of bytes, which hold nothing yet, or an array. The address is a multiple of 256, and
        `offset`; or `at`."""
        array = None if isinstance(what, int) else np.frombuffer(np.ascontiguousarray(what).tobytes(), np.uint8)
        size = what if array is None else len(array)
        start = self.next + offset if at is None else at
        if at is None:
            self.next = (start + size + self.GAP + 255) // 256 * 256
        place = (self.used + 255) // 256 * 256 + start % 256
        self.used = place + size
        if self.used > len(self.bytes.data):
            self.grow()
        self.names.append(name)
        self.starts.append(start)
        self.sizes.append(size)
        self.offsets.append(place)
        self.sorted = None
        if array is not None:
            self.bytes.data[place:place + size] = array
            self.bytes.state[place:place + size] = FULL
        return start

    def write(self, start, offset, array):
        """by the host, into an allocation"""
        array = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        place = self.offsets[self.starts.index(start)] + offset
        self.bytes.data[place:place + len(array)] = array
        self.bytes.state[place:place + len(array)] = FULL

    def grow(self):
        old, self.bytes = self.bytes, Bytes(max(1 << 20, 2 * self.used))
        self.bytes.data[:len(old.data)] = old.data
        self.bytes.state[:len(old.state)] = old.state
        self.changed = np.zeros(len(self.bytes.data), bool)

    def sort(self):
        order = np.argsort(np.array(self.starts, np.uint64), kind='stable')
        starts = np.array(self.starts, np.uint64)[order]
        sizes = np.array(self.sizes, np.uint64)[order]
        if (starts[1:] < starts[:-1] + sizes[:-1]).any():
            raise ValueError('allocations overlap')
        self.sorted = starts, sizes, np.array(self.offsets, np.int64)[order], order

    def find(self, address, size):
        """where in our bytes these addresses are"""
        check_alignment(address, size)
        if self.sorted is None:
            self.sort()
        starts, sizes, offsets, order = self.sorted
        which = np.searchsorted(starts, address, 'right') - 1
        within = address - starts[which]
        outside = (within + np.uint64(size) > sizes[which]) | (which < 0)
        if outside.any():
            first = int(np.argmax(outside))
            near = order[max(int(which[first]), 0)]
            raise Fault(f'{size} bytes at {int(address[first]):#x} are in no allocation: the one before is '
                        f'{self.names[near]}, {self.sizes[near]} bytes at {self.starts[near]:#x}', outside)
        return offsets[which] + within.astype(np.int64)

    def name_of(self, place):
        return next(n for n, p, s in zip(self.names, self.offsets, self.sizes) if p <= place < p + s)

    # ---- a launch: as in shared memory, and between blocks

    def begin_launch(self, grain, blocks, atomics):
        """atomics: whether the kernel has any, by which blocks can rely on each other"""
        self.watch(len(self.bytes.data), grain)
        self.order = Order(blocks) if atomics else None
        self.changed[:] = False

    def begin_run(self, clock):
        self.clock = clock

    def fence(self, threads):
        if self.order:
            self.order.fence(self.clock, threads)

    def check_blocks(self, places, who, why, unless=False):
        then = self.writers.who[places]
        wrong = (then != 0) & (then >> BLOCK != who >> BLOCK) & ~unless
        if not wrong.any():
            return
        who = np.broadcast_to(who, places.shape)
        for at in map(tuple, np.argwhere(wrong)) if self.order else ():
            wrong[at] = not self.order.sees(int(who[at] >> BLOCK) - 1, int(then[at] >> BLOCK) - 1,
                                            self.writers.when[places[at]] >> 32)
        if wrong.any():
            raise Fault(f'memory {why} that another block wrote, with no fence and atomic operations between',
                        wrong.any(axis=1))

    def load(self, address, each, count, threads, unchanged=False):
        """unchanged: by a load that takes the memory for constant"""
        at = self.find(address, each * count)
        if unchanged and self.changed[at].any():
            raise Fault('memory that this launch writes is read as if it were constant (ld.global.nc)', self.changed[at])
        numbers = []
        for i in range(count):
            values, empty = self.bytes.read(at + i * each, each)
            if empty.any():
                raise Fault(f'memory is read that nothing was written to: {self.name_of(at[empty][0])}', empty)
            numbers.append(values)
        self.before_load(at, each * count, threads)
        return numbers

    def store(self, address, each, values, threads):
        at, size = self.find(address, each * len(values)), each * len(values)
        self.before_store(at, size, threads)
        for i, v in enumerate(values):
            self.bytes.write(at + i * each, each, v)
        self.changed[at[:, None] + np.arange(size)] = True
        self.clock.unfenced[threads] = True

    def atomic(self, address, each, threads, change):
        at = self.find(address, each)
        self.before_atomic(at, each, threads)
        self.changed[at] = True
        if self.order:
            for place, thread in zip(self.places(at, each)[:, 0], threads):
                self.order.atomic(place, int(self.clock.who[thread] >> BLOCK) - 1)
        return change_one_by_one(self.bytes, at, each, change)

    def fetch(self, start, size):
        """for the host: the bytes of an allocation, and which of them were written"""
        place = self.offsets[self.starts.index(start)]
        return self.bytes.data[place:place + size].copy(), self.bytes.state[place:place + size] == FULL


def change_one_by_one(numbers, at, each, change):
    """change(i, old) is the new value by the i-th thread; gives the old ones"""
    data, state = numbers.views[each]
    old = np.zeros(len(at), UINT[each])
    for i, place in enumerate(at // each):
        if state[place] != UINT[each](0xffffffffffffffff >> (64 - 8 * each)):
            raise Fault('an atomic operation on memory that nothing was written to', np.arange(len(at)) == i)
        old[i] = data[place]
        data[place] = change(i, old[i])
    return old


class Own:
    """What each block (or thread) has of its own, of `size` bytes: parameters, local memory, and below, shared memory.
    owner: which of them the threads belong to."""

    def __init__(self, size, owner, name, data=None):
        self.size, self.name = size, name
        self.stride = (max(size, 1) + 15) // 16 * 16
        self.base = owner.astype(np.int64) * self.stride
        self.bytes = Bytes(self.stride * (int(owner.max()) + 1))
        if data is not None:
            self.bytes.data[:size] = np.frombuffer(data, np.uint8)
            self.bytes.state[:size] = FULL

    def find(self, address, size, threads):
        check_alignment(address, size)
        outside = address + np.uint64(size) > np.uint64(self.size)
        if outside.any():
            raise Fault(f'{size} bytes at {int(address[outside][0]):#x} of the {self.size} bytes of {self.name}', outside)
        return self.base[threads] + address.astype(np.int64)

    def load(self, address, each, count, threads):
        at = self.find(address, each * count, threads)
        numbers = []
        for i in range(count):
            values, empty = self.bytes.read(at + i * each, each)
            if empty.any():
                self.empty(at[empty][0] + i * each, empty)
            numbers.append(values)
        return numbers

    def empty(self, at, which):
        flying = FLYING in self.bytes.state[at:at + 8]
        why = 'before a copy to it has landed' if flying else 'that nothing was written to'
        raise Fault(f'{self.name} is read {why}', which)

    def store(self, address, each, values, threads):
        at = self.find(address, each * len(values), threads)
        for i, v in enumerate(values):
            self.bytes.write(at + i * each, each, v)


class Shared(Watched, Own):

    def __init__(self, size, owner, clock, grain):
        super().__init__(size, owner, 'shared memory')
        self.clock = clock
        self.watch(len(self.bytes.data), grain)

    def load(self, address, each, count, threads):
        numbers = super().load(address, each, count, threads)
        self.before_load(self.find(address, each * count, threads), each * count, threads)
        return numbers

    def store(self, address, each, values, threads):
        self.before_store(self.find(address, each * len(values), threads), each * len(values), threads)
        super().store(address, each, values, threads)

    def atomic(self, address, each, threads, change):
        at = self.find(address, each, threads)
        self.before_atomic(at, each, threads)
        return change_one_by_one(self.bytes, at, each, change)

    # ---- copies that take their time

    def take_off(self, address, size, threads):
        """A copy to these places begins: until it lands nothing may be read there."""
        at = self.find(address, size, threads)
        self.before_store(at, size, threads)
        self.bytes.state[at[:, None] + np.arange(size)] = FLYING
        return at

    def land(self, at, values, threads):
        size = values.shape[1]
        self.bytes.data[at[:, None] + np.arange(size)] = values
        self.bytes.state[at[:, None] + np.arange(size)] = FULL
        self.writers.put(self.places(at, size), *self.now(threads))

