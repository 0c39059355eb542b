/* The CUDA kernels' merge as the one table of tests that name none; the orders of threads take turns from call to call.
 */

#include "kernels/cuda/launch.h"
#include "kernels/cuda/test_launch.h"
#include "kernels/test_data.h"

static void merge(const struct ha_merge *m)
{
    static size_t turn;
    test_order(turn++);
    test_done(ha_cuda_merge(NULL, m));
}

/* in place of test_data.c's */
int ha_test_tables_setup(void **state)
{
    struct ha_kernels *t = ha_test_tables;
    ha_test_tables_count = 1;
    *t = (struct ha_kernels){ .name = "cuda", .merge = merge, .traits = ha_cuda_merge_traits() };
    t->traits.exp_eps = t->traits.log_eps = 0x1p-23; /* test_accuracy.cu measures them */
    return test_begin(state);
}
