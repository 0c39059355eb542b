/* What accuracy.cu measures, measured again. */

#include "kernels/cuda/emulation/test_simt.h"
#include "kernels/cuda/launch.h"

#include <float.h>
#include <math.h>

struct function {
    const char *name;
    float (*computed)(float);
    double (*exact)(double);
    uint32_t first, last; /* the bits of the floats that are looked at */
    double end;           /* the error of the last; that of the first is 0 */
};

/* relative, to the smallest normal float where the result is below it */
static double error_of(float got, double want) { return fabs(double(got) - want) / fmax(fabs(want), double(FLT_MIN)); }

static const struct function functions[HA_CUDA_FUNCTIONS] = {
    { "exp", ha_exp, exp, 0x80000000u, 0xc2d00000u, exp(-104) / double(FLT_MIN) }, /* it is rounded to 0 */
    { "exp2", ha_exp2, exp2, 0x80000000u, 0xc3160000u, 0x1p-24 },                  /* 2^-150 too */
    { "log", ha_log, log, 0x3f800000u, 0x53800000u, error_of(logf(0x1p40f), log(0x1p40)) },
    { "log2", ha_log2, log2, 0x3f800000u, 0x53800000u, 0 },
};

static void measure(uint32_t step, unsigned multiprocessors, double worst[HA_CUDA_FUNCTIONS])
{
    memset(worst, 0, HA_CUDA_FUNCTIONS * sizeof *worst);
    assert_int_equal(ha_cuda_accuracy(multiprocessors, NULL, step, worst), cudaSuccess);
}

TEST(every_function)
{
    const uint32_t step = test_small ? 40009 : 2003;
    double worst[HA_CUDA_FUNCTIONS];
    measure(step, 3, worst);
    for (int i = 0; i < HA_CUDA_FUNCTIONS; i++) {
        const struct function &f = functions[i];
        double mine = 0;
        for (uint32_t bits = f.first; bits <= f.last; bits += step) {
            const float x = __uint_as_float(bits);
            mine = fmax(mine, error_of(f.computed(x), f.exact(double(x))));
        }
        printf("%s: largest error 2^%.2f\n", f.name, log2(worst[i]));
        assert_true(worst[i] == mine);
        assert_true(mine > 0x1p-25 && mine <= 0x1p-22);
    }
}

/* neither the grid nor the order of threads matters; more floats find no smaller error */
TEST(the_same_again)
{
    double a[HA_CUDA_FUNCTIONS], b[HA_CUDA_FUNCTIONS];
    measure(300007, 1, a);
    FOR_EACH_ORDER
    {
        measure(300007, 7, b);
        assert_memory_equal(a, b, sizeof a);
    }
    measure(1500035, 1, b);
    for (int f = 0; f < HA_CUDA_FUNCTIONS; f++) assert_true(b[f] <= a[f]);
}

/* with a step of a range's length the floats looked at are the first, whose result is exact, and the last; with a
 * longer one the first alone */
TEST(ranges_end_where_they_should)
{
    double worst[HA_CUDA_FUNCTIONS];
    for (int i = 0; i < HA_CUDA_FUNCTIONS; i++) {
        const uint32_t length = functions[i].last - functions[i].first;
        measure(length, 1, worst);
        assert_true(worst[i] == functions[i].end);
        measure(length + 1, 1, worst);
        assert_true(worst[i] == 0);
    }
}
