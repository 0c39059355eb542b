#ifndef HA_KERNELS_CUDA_FAKE_CUPTI_H
#define HA_KERNELS_CUDA_FAKE_CUPTI_H

/* A library with CUPTI's entries that a test steers: it says what ran, and the library makes records of it, laid out as
 * CUPTI lays them out, in the buffers it asked for. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fake_cupti {
    void (*reset)(void); /* what goes first: all the rest is 0, but the functions and the clock */
    /* in */
    uint32_t fail_kind;       /* enabling it fails, with error 35 */
    size_t records_in_buffer; /* 0: as many as fit */
    bool no_room;             /* every buffer that it is given counts as none */
    size_t lose;              /* the record of that number from now on (1: the next) is not made, and nobody says so */
    uint32_t graph;           /* what runs was launched by the graph of that number; 0: by a call */
    /* What CUPTI costs, by the clock that `pass` moves on (NULL: nothing): of every launch while a kind is enabled
     * (NVIDIA/Fuser#1135), of the one that asks for a buffer (pytorch/kineto#1020), and of the first time that kernels
     * are enabled, when it makes code (pytorch/kineto#542: over 5 s). */
    uint64_t launch_ns, buffer_ns, code_ns;
    void (*pass)(uint64_t ns);
    /* out */
    uint64_t enabled, ever;  /* bits: 1 << kind */
    bool kinds_before_clock; /* a kind was enabled before the clock was set */
    size_t buffers;          /* delivered */

    void (*launch)(void); /* something is launched */
    /* Something ran. */
    void (*kernel)(const char *function, uint32_t stream, uint64_t begin_ns, uint64_t end_ns);
    void (*copy)(unsigned kind, uint32_t stream, uint64_t bytes, uint64_t begin_ns, uint64_t end_ns);
    void (*set)(uint32_t stream, uint64_t bytes, uint64_t begin_ns, uint64_t end_ns);
    uint64_t (*now)(void); /* the clock that it was given */
};
#define FAKE_CUPTI_SYMBOL "fake_cupti"

/* The number of a stream, or of a graph: the fake reads it off the handle. */
static inline void *fake_cupti_handle(uint32_t id) { return (void *)(uintptr_t)(0x1000u + id); }

#endif
