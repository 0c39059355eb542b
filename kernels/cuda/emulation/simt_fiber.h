#ifndef HA_KERNELS_CUDA_EMULATION_SIMT_FIBER_H
#define HA_KERNELS_CUDA_EMULATION_SIMT_FIBER_H

/* Threads of control that are switched by hand: a stack each, no system call in a switch. Address- and
 * ThreadSanitizer are told, where they are linked in. */

#include <stdbool.h>
#include <stddef.h>

struct ha_fiber {
    void *sp;           /* while it does not run */
    const void *bottom; /* its stack; of a thread, once AddressSanitizer has said so */
    size_t bytes;
    void *map;             /* NULL: a thread's */
    void *fake, *tsan;     /* the sanitizers' own */
    struct ha_fiber *from; /* the one that switched to it last */
};

/* The calling thread itself, to switch from and back to. */
void ha_fiber_thread(struct ha_fiber *fiber);
/* One that will run entry() when first switched to; entry calls ha_fiber_entered first and never returns. Stacks of
 * different `colour` begin in different lines of the cache. False: no memory. */
bool ha_fiber_make(struct ha_fiber *fiber, unsigned colour, void (*entry)(void));
void ha_fiber_entered(struct ha_fiber *self);
/* from is the one that runs; returns when somebody switches back to it */
void ha_fiber_switch(struct ha_fiber *from, struct ha_fiber *to);
void ha_fiber_destroy(struct ha_fiber *fiber);

/* Switches order nothing for ThreadSanitizer; these do: what was done before a release of an address has
 * happened for whatever acquires it afterwards. Nothing without it. */
bool ha_fiber_watched(void);
void ha_fiber_release(void *address);
void ha_fiber_acquire(void *address);

#endif
