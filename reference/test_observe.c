/* Weights in binary32 are within the tolerance of ha_ref_observe, and the tolerance is not far too wide. */

#include "reference/observe.h"
#include "reference/test_inputs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { KEYS_MAX = 3000, QUERIES = 11 };
static bool reduced;

/* The mean over the queries, everything rounded to binary32, sums in order. */
static void weigh(const struct ha_test_input *in, const float *q, const size_t *visible, float *mean)
{
    static float w[KEYS_MAX];
    for (size_t j = 0; j < in->keys; j++) mean[j] = 0;
    for (size_t c = 0; c < QUERIES; c++) {
        float max = -INFINITY, sum = 0;
        for (size_t j = 0; j < visible[c]; j++) {
            w[j] = 0;
            for (size_t i = 0; i < in->dim; i++) w[j] += q[c * in->dim + i] * in->k[j * in->dim + i];
            w[j] *= in->scale;
            max = w[j] > max ? w[j] : max;
        }
        for (size_t j = 0; j < visible[c]; j++) sum += w[j] = expf(w[j] - max);
        for (size_t j = 0; j < visible[c]; j++) mean[j] += w[j] / sum;
    }
    for (size_t j = 0; j < in->keys; j++) mean[j] /= QUERIES;
}

static void test_tolerance(void **unused)
{
    (void)unused;
    static const struct {
        size_t keys, dim;
    } shape[] = { { 1, 8 }, { 30, 128 }, { 500, 64 }, { 2000, 16 } };
    static float got[KEYS_MAX];
    static double mean[KEYS_MAX], tol[KEYS_MAX];
    struct ha_why why;
    for (size_t f = 0; f < ha_test_families; f++)
        for (size_t s = 0; s < (reduced ? 2 : 4); s++)
            for (int type = 0; type < HA_DTYPE_COUNT; type++) {
                struct ha_test_input in;
                ha_test_input_make(&in, f, shape[s].keys, shape[s].dim, (enum ha_dtype)type, 3 * f + s);
                float *q = malloc(QUERIES * in.dim * sizeof *q);
                assert_non_null(q);
                size_t visible[QUERIES];
                for (size_t c = 0; c < QUERIES; c++) {
                    for (size_t i = 0; i < in.dim; i++) q[c * in.dim + i] = in.q[i] * (c % 2 ? 1 : -0.5f);
                    visible[c] = c == 0 ? 0 : in.keys - in.keys * c / 40;
                }
                const struct ha_ref_observed observed = {
                    .q = q,
                    .count = QUERIES,
                    .q_stride = in.dim,
                    .head_dim = in.dim,
                    .scale = (double)in.scale,
                    .visible = visible,
                    .rows = ha_test_input_rows(&in),
                    .dtype = in.dtype,
                };
                assert_int_equal(ha_ref_observe(&observed, mean, tol, &why), HA_OK);
                weigh(&in, q, visible, got);
                double sum = 0;
                for (size_t j = 0; j < in.keys; j++) {
                    sum += mean[j];
                    const bool ok = fabs((double)got[j] - mean[j]) <= tol[j];
                    if (!ok)
                        fail_msg("%s, n = %zu, d = %zu, %s: weight %zu is %g, computed %g, tolerance %g",
                                 ha_test_family_name(f), in.keys, in.dim, ha_dtype_name(in.dtype), j, mean[j],
                                 (double)got[j], tol[j]);
                    if (f == 0) assert_true(tol[j] <= 1e-3 * mean[j]);
                }
                assert_true(fabs(sum - (QUERIES - 1.0) / QUERIES) < 1e-12); /* the query that sees nothing adds 0 */
                free(q);
                ha_test_input_free(&in);
            }
}

static void test_nothing(void **unused)
{
    (void)unused;
    double mean[1] = { 9 }, tol[1] = { 9 };
    const float q[1] = { 1 }, k[1] = { 1 };
    const size_t none = 0;
    struct ha_why why;
    struct ha_ref_observed in = { .q = q,
                                  .count = 0,
                                  .q_stride = 1,
                                  .head_dim = 1,
                                  .scale = 1,
                                  .visible = &none,
                                  .rows = { .k = k, .k_stride_bytes = 4, .keys = 1 } };
    assert_int_equal(ha_ref_observe(&in, mean, tol, &why), HA_OK);
    assert_true(mean[0] == 0 && tol[0] == 0);
    in.count = 1;
    mean[0] = 9;
    assert_int_equal(ha_ref_observe(&in, mean, tol, &why), HA_OK);
    assert_true(mean[0] == 0 && tol[0] == 0);
}

int main(int argc, char **argv)
{
    reduced = argc > 1 && strcmp(argv[1], "small") == 0;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_tolerance), cmocka_unit_test(test_nothing) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
