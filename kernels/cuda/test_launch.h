#ifndef HA_KERNELS_CUDA_TEST_LAUNCH_H
#define HA_KERNELS_CUDA_TEST_LAUNCH_H

/* For tests of kernels. With test_launch.c in place of the runtime a launch runs at once, on the calling thread. */

#include "harness/base/test.h"
#include "kernels/cuda/emulation/simt.h"

#include <sys/mman.h>
#include <unistd.h>

/* Blocks of the latest launch of attention; where they are to be counted nothing runs. */
extern bool test_launch_counts;
extern unsigned test_launch_blocks;

/* orders in which the threads of a block take their turns: no result depends on it */
static const char *const test_orders[] = { "forward", "backward", "12345" };
enum { TEST_ORDERS = 3 };

/* A kernel that hangs is a failed test, not a stopped build. */
static inline int test_begin(void **state)
{
    alarm(300);
    return 0;
}

static inline void test_done(cudaError_t error) { assert_int_equal(error, cudaSuccess); }

static inline void test_order(size_t i) { assert_true(ha_emulated_order(test_orders[i % TEST_ORDERS])); }

/* address space, of which only the pages that are touched take memory */
static inline void *test_sparse(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

/* exactly so many bytes of 0xFF, NaN in every type */
static inline void *test_alloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    assert_non_null(p);
    memset(p, 0xff, bytes ? bytes : 1);
    return p;
}

#endif
