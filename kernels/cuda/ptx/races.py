"""Who touched memory last, and what lies between that and a touch now: a barrier of the block or of the warp, or, between
blocks, a fence and atomic operations."""

import numpy as np

# a thread of the grid in one number: its block, from 1 on, its warp and itself; ones: several of them
THREAD_BITS, BLOCK = 11, 17
THREADS, WARPS = (1 << THREAD_BITS) - 1, (1 << BLOCK - THREAD_BITS) - 1


class Clock:
    """The threads that run: who they are, and when it is: barriers that their block has passed, and their warp."""

    def __init__(self, block, numbers, each):
        thread = np.arange(len(block)) % each
        self.block, self.numbers, self.warp = block, np.asarray(numbers, np.int64), np.arange(len(block)) // 32
        self.who = (self.numbers[block] + 1) << BLOCK | thread // 32 << THREAD_BITS | thread
        self.block_syncs, self.warp_syncs = np.zeros(len(numbers), np.int64), np.zeros(len(block) // 32 + 1, np.int64)
        self.unfenced = np.zeros(len(block), bool)  # threads that have stored and not fenced since
        self.stamp()

    def stamp(self):
        self.when = self.block_syncs[self.block] << 32 | self.warp_syncs[self.warp]

    def block_synced(self, blocks):
        self.block_syncs[blocks] += 1
        self.stamp()

    def warp_synced(self, warps):
        self.warp_syncs[warps] += 1
        self.stamp()


def merged(a, b):
    """several threads, and of several warps where these are not the same"""
    return np.maximum(a, b) | THREADS | np.where((a ^ b) >> THREAD_BITS & WARPS, WARPS, 0) << THREAD_BITS


class Touches:
    """The last touch of each place, of one kind: loads, or stores."""

    def __init__(self, places):
        self.who, self.when = np.zeros((2, places), np.int64)

    def near(self, places, who, when):
        """those by another thread of the block that no barrier keeps apart from a touch now"""
        then, at = self.who[places], self.when[places]
        near = (then >> BLOCK == who >> BLOCK) & (at >> 32 == when >> 32) & (then != who)
        if near.any():
            same_warp = (then >> THREAD_BITS & WARPS) == (who >> THREAD_BITS & WARPS)
            near &= ~(same_warp & (at < when))
        return near

    def note(self, places, who, when):
        """Several that touch a place with no barrier between are several in it."""
        who = np.broadcast_to(who, places.shape)
        near = self.near(places, who, when)
        self.who[places] = np.where(near, merged(self.who[places], who), who)
        self.when[places] = when
        back = self.who[places]
        lost = (back & THREADS) != (who & THREADS)
        if lost.any():
            self.who[places[lost]] = merged(back[lost], who[lost])

    def put(self, places, who, when):
        self.who[places], self.when[places] = who, when


class Order:
    """Between the blocks of a launch. What a block stored is published by a fence, and after that an atomic operation; what
    is published at a place is seen by the block that has an atomic operation there later. Blocks are taken as wholes:
    that their own threads agree is the barriers' to say. In units of block barriers: stores before that one."""

    def __init__(self, blocks):
        self.fenced = np.zeros(blocks, np.int64)
        self.seen = {}  # by block: of each block
        self.published = {}  # by place: likewise

    def fence(self, clock, threads):
        """of what the block had stored before its last barrier; of all, if all have fenced theirs"""
        clock.unfenced[threads] = False
        blocks = np.unique(clock.block[threads])
        clean = np.bincount(clock.block, clock.unfenced, len(clock.numbers))[blocks] == 0
        numbers = clock.numbers[blocks]
        self.fenced[numbers] = np.maximum(self.fenced[numbers], clock.block_syncs[blocks] + clean)

    def of(self, table, key):
        return table.setdefault(key, np.zeros(len(self.fenced), np.int64))

    def atomic(self, place, block):
        published, seen = self.of(self.published, place), self.of(self.seen, block)
        seen[block] = self.fenced[block]
        np.maximum(published, seen, out=published)
        np.maximum(seen, published, out=seen)

    def sees(self, block, other, sync):
        """whether a block may rely on what another did after so many barriers"""
        return self.of(self.seen, block)[other] > sync
