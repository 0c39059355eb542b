"""Memory of a GPU: global memory, whose addresses are sparse, and what a block or a thread has of its own. Addresses and
values come as arrays, one element for each thread; whatever a GPU may not do, or leaves undefined, is a Fault."""

import numpy as np

from fault import Fault

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


class Global:
    """Allocations anywhere in 64 bits, each at its own address; what lies between them takes no room."""

    FIRST, GAP = 0x7f0000000000, 4096

    def __init__(self):
        self.names, self.sizes, self.starts, self.places = [], [], [], []
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
        self.places.append(place)
        self.sorted = None
        if array is not None:
            self.bytes.data[place:place + size] = array
            self.bytes.state[place:place + size] = FULL
        return start

    def write(self, start, offset, array):
        """by the host, into an allocation"""
        array = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        place = self.places[self.starts.index(start)] + offset
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
        self.sorted = starts, sizes, np.array(self.places, np.int64)[order], order

    def find(self, address, size):
        """where in our bytes these addresses are"""
        check_alignment(address, size)
        if self.sorted is None:
            self.sort()
        starts, sizes, places, order = self.sorted
        which = np.searchsorted(starts, address, 'right') - 1
        within = address - starts[which]
        outside = (within + np.uint64(size) > sizes[which]) | (which < 0)
        if outside.any():
            first = int(np.argmax(outside))
            near = order[max(int(which[first]), 0)]
            raise Fault(f'{size} bytes at {int(address[first]):#x} are in no allocation: the one before is '
                        f'{self.names[near]}, {self.sizes[near]} bytes at {self.starts[near]:#x}', outside)
        return places[which] + within.astype(np.int64)

    def name_of(self, place):
        return next(n for n, p, s in zip(self.names, self.places, self.sizes) if p <= place < p + s)

    def begin_launch(self):
        self.changed[:] = False

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
        return numbers

    def store(self, address, each, values, threads):
        at = self.find(address, each * len(values))
        for i, v in enumerate(values):
            self.bytes.write(at + i * each, each, v)
        self.changed[at[:, None] + np.arange(each * len(values))] = True

    def atomic(self, address, each, threads, change):
        at = self.find(address, each)
        self.changed[at] = True
        return change_one_by_one(self.bytes, at, each, change)

    def fetch(self, start, size):
        """for the host: the bytes of an allocation, and which of them were written"""
        place = self.places[self.starts.index(start)]
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


# ---- who touched shared memory: the time since the last barrier in one number for each place
#      block barriers passed, warp barriers passed, warp, thread; ALL_ONES of a warp or a thread: several of them

THREAD_BITS, WARP_BITS, SYNC_BITS = 11, 6, 22
THREADS, WARPS, SYNCS = (1 << THREAD_BITS) - 1, (1 << WARP_BITS) - 1, (1 << SYNC_BITS) - 1


class Shared(Own):
    """Shared memory, where two threads that touch a place need a barrier between them if one of them stores. grain: bytes
    of a place, the least that the kernel reads or writes."""

    def __init__(self, size, owner, thread, grain):
        super().__init__(size, owner, 'shared memory')
        self.grain, self.owner, self.thread = grain, owner.astype(np.int64), thread.astype(np.int64)
        self.warp_of = np.arange(len(owner)) // 32
        places = len(self.bytes.data) // grain
        self.writers, self.readers = np.full(places, -1, np.int64), np.full(places, -1, np.int64)
        self.atomics = np.zeros(places, bool)
        self.block_syncs = np.zeros(int(owner.max()) + 1, np.int64)
        self.warp_syncs = np.zeros(len(owner) // 32 + 1, np.int64)
        self.stamp()

    def stamp(self):
        syncs = self.block_syncs[self.owner] << SYNC_BITS | self.warp_syncs[self.warp_of]
        self.now = syncs << (WARP_BITS + THREAD_BITS) | self.thread // 32 << THREAD_BITS | self.thread

    def block_synced(self, blocks):
        self.block_syncs[blocks] += 1
        self.stamp()

    def warp_synced(self, warps):
        self.warp_syncs[warps] += 1
        self.stamp()

    def races(self, then, now):
        """of touches `then` those that another thread made with no barrier before `now`"""
        block = SYNC_BITS + WARP_BITS + THREAD_BITS
        same = (then >> block) == (now >> block)
        if not same.any():
            return same
        other = same & ((then & THREADS) != (now & THREADS))
        warp = (then >> THREAD_BITS & WARPS) == (now >> THREAD_BITS & WARPS)
        before = (then >> (WARP_BITS + THREAD_BITS) & SYNCS) < (now >> (WARP_BITS + THREAD_BITS) & SYNCS)
        return other & ~(warp & before)

    def places(self, at, size):
        count = max(size // self.grain, 1)
        return (at // self.grain)[:, None] + np.arange(count)

    def check(self, touches, places, now, why):
        racing = self.races(touches[places], now[:, None])
        if racing.any():
            raise Fault(f'shared memory {why} with no barrier between', racing.any(axis=1))

    def load(self, address, each, count, threads):
        numbers = super().load(address, each, count, threads)
        places = self.places(self.find(address, each * count, threads), each * count)
        now = self.now[threads]
        self.check(self.writers, places, now, 'is read that another thread wrote,')
        self.note_readers(places, now)
        return numbers

    def note_readers(self, places, now):
        """A place with several readers since the last barrier says so."""
        mine = np.broadcast_to(now[:, None], places.shape)
        old = self.readers[places]
        several = self.races(old, mine)
        self.readers[places] = np.where(several, merged(old, mine), mine)
        back = self.readers[places]
        lost = (back & THREADS) != (mine & THREADS)
        if lost.any():
            self.readers[places[lost]] = merged(back[lost], mine[lost])

    def before_store(self, at, size, threads):
        places, now = self.places(at, size), self.now[threads]
        self.check(self.writers, places, now, 'is written that another thread wrote,')
        self.check(self.readers, places, now, 'is written that another thread read,')
        self.writers[places] = now[:, None]
        self.atomics[places] = False

    def store(self, address, each, values, threads):
        super().store(address, each, values, threads)
        self.before_store(self.find(address, each * len(values), threads), each * len(values), threads)

    def atomic(self, address, each, threads, change):
        at = self.find(address, each, threads)
        places, now = self.places(at, each), self.now[threads]
        plain = ~self.atomics[places]
        if (self.races(self.writers[places], now[:, None]) & plain).any() or \
                (self.races(self.readers[places], now[:, None])).any():
            raise Fault('shared memory is changed that another thread wrote or read, with no barrier between', None)
        old = change_one_by_one(self.bytes, at, each, change)
        touched = self.writers[places]
        mine = np.broadcast_to(now[:, None], places.shape)
        self.writers[places] = np.where(self.races(touched, mine), merged(touched, mine), mine)
        back = self.writers[places]
        lost = (back & THREADS) != (mine & THREADS)
        if lost.any():
            self.writers[places[lost]] = merged(back[lost], mine[lost])
        self.atomics[places] = True
        return old

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
        self.writers[self.places(at, size)] = self.now[threads][:, None]


def merged(a, b):
    """several threads, and of several warps where these are not the same"""
    warps = np.where((a ^ b) >> THREAD_BITS & WARPS, WARPS, 0)
    return np.maximum(a, b) | THREADS | warps << THREAD_BITS
