#ifndef HA_KERNELS_CUDA_EMULATION_TEST_SIMT_H
#define HA_KERNELS_CUDA_EMULATION_TEST_SIMT_H

/* For the tests of the emulation, with test_launch.c: launches run at once, on the calling thread. */

#include "kernels/cuda/simt.h"

extern "C" {
#include "harness/base/test.h"
}

static inline uint64_t test_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static const char *const test_orders[] = { "forward", "backward", "1", "2", "3" };
enum { TEST_ORDERS = 5 };
#define FOR_EACH_ORDER \
    for (unsigned order_ = 0; order_ < TEST_ORDERS && ha_emulated_order(test_orders[order_]); order_++)

#endif
