#ifndef HA_FLEET_MEET_TABLE_H
#define HA_FLEET_MEET_TABLE_H

/* What ranks that meet know of each other: a table in memory that those of one host share (meet.c), or that a process
 * beside each keeps like those of the others (meet_mpi.c). Each rank writes its own slot and no other. Zeros are a
 * table in which nobody has said anything. Windows are written as their number and 1, so that 0 is none. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum ha_meet_word {
    HA_MEET_AT,        /* it has nothing to do with windows below this one (the number itself) */
    HA_MEET_READY,     /* it waits for this window to begin, or has */
    HA_MEET_PLAN,      /* a digest of what it runs; ranks that meet have the same */
    HA_MEET_GONE,      /* 1: its process has ended (meet_mpi.c) */
    HA_MEET_DEVICE,    /* where its device is on the PCI bus, 1 + domain << 16 | bus << 8 | device << 3 | function; 0 */
    HA_MEET_NUMA_NODE, /* of its cores, and 1; 0: several */
    HA_MEET_SOCKET,    /* the same */
    /* Its two newest windows: others may still ask for the one when it is ready for the next. */
    HA_MEET_MEMBER,   /* it began this window with the others */
    HA_MEET_BEGAN_NS, /* then, by the clock of whoever reads it */
    HA_MEET_ENOUGH,   /* 1: it has what it wants of this window */
    HA_MEET_NEXT,     /* the same three words of the other one */
    HA_MEET_WORDS = HA_MEET_NEXT + 3
};
enum { HA_MEET_RECORD_WORDS = HA_MEET_NEXT - HA_MEET_MEMBER };
struct ha_meet_slot {
    _Alignas(64) _Atomic uint64_t word[HA_MEET_WORDS];
};

/* The newest window that begins, as one number, so that it is decided once: its number and 1, then when, in
 * microseconds after base_ns. */
enum { HA_MEET_TIME_BITS = 40, HA_MEET_WINDOW_BITS = 24 };

struct ha_meet_table {
    _Atomic uint64_t ranks;
    _Atomic uint64_t base_ns; /* of this host's clock, ha_now_ns */
    _Atomic uint64_t go;
    _Atomic uint64_t apart_ns; /* what times of other hosts may be wrong by; UINT64_MAX: they cannot be compared */
    _Atomic uint64_t met;      /* 1: all ranks of a host have come, and its file needs no name any more */
    _Atomic uint64_t wait_ns;  /* of whoever decides when one has waited long enough */
    struct ha_meet_slot slot[];
};

static inline uint64_t ha_meet_word(const struct ha_meet_table *t, uint64_t rank, enum ha_meet_word word)
{
    return atomic_load(&((struct ha_meet_table *)(uintptr_t)t)->slot[rank].word[word]);
}

static inline uint64_t ha_meet_go(uint64_t window, uint64_t after_base_ns)
{
    return (window + 1) << HA_MEET_TIME_BITS | after_base_ns / 1000;
}
static inline uint64_t ha_meet_go_window(uint64_t go) { return go >> HA_MEET_TIME_BITS; } /* its number and 1 */
static inline uint64_t ha_meet_go_ns(uint64_t go)                                         /* after base_ns */
{
    return (go & ((UINT64_C(1) << HA_MEET_TIME_BITS) - 1)) * 1000;
}

/* Words from HA_MEET_MEMBER on that are of this window are so much further on; -1: none are. */
static inline int ha_meet_record(const struct ha_meet_table *t, uint64_t rank, uint64_t window)
{
    for (int i = 0; i <= HA_MEET_RECORD_WORDS; i += HA_MEET_RECORD_WORDS)
        if (ha_meet_word(t, rank, (enum ha_meet_word)(HA_MEET_MEMBER + i)) == window + 1) return i;
    return -1;
}

/* Does the window wait for this rank? It is for the caller to know whether it is there at all. */
static inline bool ha_meet_awaited(const struct ha_meet_table *t, uint64_t rank, uint64_t window)
{
    return ha_meet_word(t, rank, HA_MEET_AT) <= window && ha_meet_word(t, rank, HA_MEET_READY) <= window;
}

#endif
