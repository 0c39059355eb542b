/* What accuracy.cu measures, measured again: the logarithms are this machine's own; the kernels' exp and exp2 are read
 * off a softmax and a merge. */

#include "harness/base/numeric.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/test_stream.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static bool small;

/* relative, to the smallest normal float where the result is below it */
static double error_of(float got, double want) { return fabs((double)got - want) / fmax(fabs(want), (double)FLT_MIN); }

static void measure(uint32_t step, unsigned multiprocessors, double worst[HA_CUDA_FUNCTIONS])
{
    const struct ha_cuda_gpu gpu = { .multiprocessors = multiprocessors };
    double *d = calloc(HA_CUDA_FUNCTIONS, sizeof *d);
    assert_non_null(d);
    test_done(ha_cuda_accuracy(&gpu, test_stream, step, d));
    memcpy(worst, d, HA_CUDA_FUNCTIONS * sizeof *d);
    free(d);
}

static void about_an_ulp(void **state)
{
    (void)state;
    static const char *const name[] = { "exp", "exp2", "log", "log2" };
    double worst[HA_CUDA_FUNCTIONS];
    measure(small ? 40009 : 2003, 4, worst);
    for (int f = 0; f < HA_CUDA_FUNCTIONS; f++) {
        printf("%s: largest error 2^%.2f\n", name[f], log2(worst[f]));
        assert_true(worst[f] > 0x1p-25 && worst[f] <= 0x1p-22);
    }
}

/* neither the grid nor the order of threads matters; more floats find no smaller error */
static void the_same_again(void **state)
{
    (void)state;
    double a[HA_CUDA_FUNCTIONS], b[HA_CUDA_FUNCTIONS];
    measure(300007, 1, a);
    for (size_t order = 0; order < TEST_ORDERS; order++) {
        test_order(order);
        measure(300007, 7, b);
        assert_memory_equal(a, b, sizeof a);
    }
    measure(1500035, 1, b);
    for (int f = 0; f < HA_CUDA_FUNCTIONS; f++) assert_true(b[f] <= a[f]);
}

/* with a step of a range's length the floats looked at are the first, whose result is exact, and the last; with a
 * longer one the first alone */
static void ranges_end_where_they_should(void **state)
{
    (void)state;
    const struct {
        int f;
        uint32_t length;
        double want;
    } range[] = {
        { HA_CUDA_EXP, 0x42d00000u, exp(-104) / (double)FLT_MIN }, /* it is rounded to 0 */
        { HA_CUDA_EXP2, 0x43160000u, 0x1p-24 },                    /* 2^-150 too */
        { HA_CUDA_LOG, 0x14000000u, error_of(logf(0x1p40f), log(0x1p40)) },
        { HA_CUDA_LOG2, 0x14000000u, 0 },
    };
    double worst[HA_CUDA_FUNCTIONS];
    for (size_t i = 0; i < COUNT(range); i++) {
        measure(range[i].length, 1, worst);
        assert_true(worst[range[i].f] == range[i].want);
        measure(range[i].length + 1, 1, worst);
        assert_true(worst[range[i].f] == 0);
    }
}

static void logarithms(void **state)
{
    (void)state;
    const uint32_t step = small ? 40009 : 4001;
    double worst[HA_CUDA_FUNCTIONS], log_worst = 0, log2_worst = 0;
    measure(step, 3, worst);
    for (uint32_t bits = 0x3f800000u; bits <= 0x53800000u; bits += step) {
        const float x = ha_f32_of_bits(bits);
        log_worst = fmax(log_worst, error_of(logf(x), log((double)x)));
        log2_worst = fmax(log2_worst, error_of(log2f(x), log2((double)x)));
    }
    assert_true(worst[HA_CUDA_LOG] == log_worst);
    assert_true(worst[HA_CUDA_LOG2] == log2_worst);
}

/* a softmax over 0 and x: its second weight is exp(x) */
static void exponential(void **state)
{
    (void)state;
    const uint32_t step = small ? 4000037 : 40009;
    const size_t rows = (0xc2d00000u - 0x80000000u) / step + 1;
    float *s = test_alloc(2 * rows * sizeof *s), *p = test_alloc(2 * rows * sizeof *p),
          *top = test_alloc(rows * sizeof *top);
    float *sum = test_alloc(rows * sizeof *sum);
    for (size_t i = 0; i < rows; i++) s[2 * i] = 0, s[2 * i + 1] = ha_f32_of_bits(0x80000000u + (uint32_t)i * step);
    test_done(ha_cuda_softmax(test_stream, &(struct ha_cuda_scores){ .s = s,
                                                                     .p = p,
                                                                     .max = top,
                                                                     .sum = sum,
                                                                     .rows = rows,
                                                                     .group = 1,
                                                                     .keys = 2,
                                                                     .stride = 2,
                                                                     .p_stride = 2,
                                                                     .q_len = 1,
                                                                     .scale = 1,
                                                                     .dtype = HA_F32 }));
    double worst[HA_CUDA_FUNCTIONS], mine = 0;
    for (size_t i = 0; i < rows; i++) mine = fmax(mine, error_of(p[2 * i + 1], exp((double)s[2 * i + 1])));
    measure(step, 2, worst);
    assert_true(worst[HA_CUDA_EXP] == mine);
    free(s), free(p), free(top), free(sum);
}

/* merged with a state of level 0 and o = 0, one of level x < -25 and o = 1 gives exp2(x), as the weights' sum is 1 then
 */
static void exponential_to_base_2(void **state)
{
    (void)state;
    const uint32_t step = small ? 500009 : 40009;
    const size_t all = (0xc3160000u - 0x80000000u) / step + 1;
    float *lse = test_alloc(2 * all * sizeof *lse), *o = test_alloc(2 * all * sizeof *o),
          *got = test_alloc(all * sizeof *got);
    float *level = test_alloc(all * sizeof *level);
    size_t rows = 0;
    for (size_t i = 0; i < all; i++) {
        const float x = ha_f32_of_bits(0x80000000u + (uint32_t)i * step);
        if (x < -25) lse[2 * rows] = 0, lse[2 * rows + 1] = x, o[2 * rows] = 0, o[2 * rows++ + 1] = 1;
    }
    const struct ha_merge_state states[] = {
        { .o = o, .lse = lse, .o_token_stride = 2, .lse_token_stride = 2 },
        { .o = o + 1, .lse = lse + 1, .o_token_stride = 2, .lse_token_stride = 2 },
    };
    test_done(ha_cuda_merge(
        test_stream,
        &(struct ha_merge){ .form = HA_FORM_BASE2,
                            .dtype = HA_F32,
                            .states = states,
                            .states_count = 2,
                            .tokens = rows,
                            .heads = 1,
                            .dim = 1,
                            .out = { .o = got, .lse = level, .o_token_stride = 1, .lse_token_stride = 1 } }));
    double worst[HA_CUDA_FUNCTIONS], mine = 0;
    for (size_t i = 0; i < rows; i++) mine = fmax(mine, error_of(got[i], exp2((double)lse[2 * i + 1])));
    measure(step, 2, worst);
    assert_true(rows > 20 && mine > 0);
    assert_true(worst[HA_CUDA_EXP2] >= mine);
    free(lse), free(o), free(got), free(level);
}

int main(int argc, char **argv)
{
    small = argc > 1 && strcmp(argv[1], "small") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(about_an_ulp),
        cmocka_unit_test(the_same_again),
        cmocka_unit_test(ranges_end_where_they_should),
        cmocka_unit_test(logarithms),
        cmocka_unit_test(exponential),
        cmocka_unit_test(exponential_to_base_2),
    };
    return cmocka_run_group_tests(tests, test_stream_open, test_stream_close);
}
