/* Numbers that are worked out by hand, through every table: neither kernels nor the reference say what is right. */

#include "harness/api/kernels.h"
#include "kernels/test_data.h"

#include <math.h>

TEST(topp_by_hand)
{
    static const float x[] = { 0.125f, 0.25f, 0.125f, 0.25f, 0.125f, 0.125f };
    static const struct {
        double p;
        uint32_t keys, index[6];
    } each[] = {
        { 0.25, 1, { 1 } },
        { 0.26, 2, { 1, 3 } },
        { 0.5, 2, { 1, 3 } },
        { 0.5 + 0x1p-52, 3, { 0, 1, 3 } },
        { 0.75, 4, { 0, 1, 2, 3 } },
        { 0.8, 5, { 0, 1, 2, 3, 4 } },
        { 1, 6, { 0, 1, 2, 3, 4, 5 } },
    };
    HA_TEST_EACH(t, topp)
    for (size_t i = 0; i < COUNT(each); i++) {
        uint32_t index[6], keys = 9;
        float w[6];
        t->topp(&(struct ha_topp){ x, 1, 6, 6, each[i].p, index, w, HA_F32, 6, &keys });
        assert_int_equal(keys, each[i].keys);
        assert_memory_equal(index, each[i].index, keys * sizeof *index);
        for (size_t k = 0; k < keys; k++) assert_true(w[k] == x[index[k]]);
    }
}

TEST(hamming_by_hand)
{
    uint32_t q[2 * HA_CODE_KEYS] __attribute__((aligned(64))) = { 0xF0F0F0F0, 0 };
    uint32_t k[2 * HA_CODE_KEYS] __attribute__((aligned(64))) = { 0xF0F0F0F0, 0x0F0F0F0F, 0xF0F0F0F1 };
    static const float norm[] = { 2, 0.5f, 3 };
    memcpy(k + HA_CODE_KEYS, norm, sizeof norm);
    HA_TEST_EACH(t, hamming)
    {
        float s[6];
        t->hamming(&(struct ha_hamming){ q, 2, 32, k, 3, s, 3, true });
        assert_true(s[0] == 64 && s[1] == -16 && s[2] == 90 && s[3] == 0 && s[4] == 0 && s[5] == -6);
        t->hamming(&(struct ha_hamming){ q, 0, 32, k, 3, s, 3, true });
        assert_true(s[0] == 64);
    }
}

/* two groups of one dimension, 2-bit codes */
TEST(codebooks_by_hand)
{
    static const float c[] = { 0, 1, 2, 3 }, q[] = { 10, 1 }, k[] = { 2.9f, 0.1f, 1.4f, 1.6f };
    const struct ha_pq pq = { c, 2, 1, 4, 1, 2 };
    HA_TEST_ALL(t)
    {
        unsigned char codes[16] __attribute__((aligned(64))) = { 0 };
        float table[2 * 4 * HA_PQ_ROWS] __attribute__((aligned(64))), s[2] = { 0 };
        t->pq_encode(&(struct ha_pq_encode){ pq, { .k = k, .k_stride_bytes = 8, .keys = 2 }, HA_F32, codes, 0 });
        assert_true(codes[0] == (3 | 1 << 2) && codes[8] == (0 | 2 << 2));
        t->pq_table(&(struct ha_pq_table){ pq, q, 1, 1, 2, 2, HA_F32, table });
        assert_true(table[3 * 4] == 30 && table[3 * 4 + 1] == 0 && table[16 + 2 * 4] == 2);
        t->pq_score(&(struct ha_pq_score){ pq, table, HA_F32, 1, codes, 2, 0.5f, s, 2 });
        assert_true(s[0] == 15 && s[1] == 6);
    }
}

/* relu between the layers and not behind the last */
TEST(net_by_hand)
{
    static const float w[] = { 1, -1, 2, 3, /* bias */ 0.5f, -4, /* second */ -2, 5, /* bias */ 1 };
    static const float x[] = { 1, 1, -1, 2 };
    HA_TEST_EACH(t, net)
    {
        float y[2], scratch[8];
        t->net(&(struct ha_net){ 2, 2, { 2, 2, 1 }, w, x, y, scratch });
        assert_true(y[0] == -6 && y[1] == 9); /* relu(3.5, -2), relu(3.5, 3): 1 - 7 + 15 */
        t->net(&(struct ha_net){ 0, 2, { 2, 2, 1 }, w, x, y, scratch });
        assert_true(y[0] == -6 && y[1] == 9);
    }
}

/* -inf alone: zeros, and none of them negative */
TEST(softmax_of_nothing)
{
    HA_TEST_EACH(t, softmax)
    for (size_t n = 1; n < 9000; n = 2 * n + 1) {
        float *x = ha_guard_alloc(n * sizeof *x), lse;
        for (size_t i = 0; i < n; i++) x[i] = -INFINITY;
        t->softmax(&(struct ha_softmax){ .x = x, .rows = 1, .n = n, .stride = n, .lse = &lse });
        assert_true(lse == -INFINITY);
        for (size_t i = 0; i < n; i++) assert_true(x[i] == 0 && !signbit(x[i]));
        ha_guard_free(x);
    }
}

/* A weight of 0 hides no value that is no number. */
TEST(weighted_sum_by_hand)
{
    static const float v[][3] = { { 1, NAN, 2 }, { 10, 1, -INFINITY }, { 5, 5, 5 } }, w[] = { 2, 0.5f, 0, 0, 1, 4 };
    HA_TEST_EACH(t, weighted_sum)
    {
        float o[6];
        t->weighted_sum(&(struct ha_weighted_sum){
            { .v = v, .v_stride_bytes = sizeof *v, .keys = 3 }, 3, HA_F32, w, HA_F32, 2, 3, o, 3 });
        assert_true(o[0] == 7 && isnan(o[1]) && o[2] == -INFINITY && o[3] == 30 && isnan(o[4]) && o[5] == -INFINITY);
    }
}

/* no numbers, no rows */
TEST(of_nothing)
{
    HA_TEST_ALL(t)
    {
        uint32_t index[1] = { 7 }, keys = 9;
        float x[2] = { 1, 1 }, w[1] = { 5 }, lse[2] = { 1, 1 }, o[2] = { 5, 5 };
        for (size_t rows = 1; rows <= 3; rows++)
            t->topp(&(struct ha_topp){ x, rows, 0, 0, 0.5, index, w, HA_F32, 0, &keys });
        assert_true(keys == 0 && index[0] == 7 && w[0] == 5);
        t->softmax(&(struct ha_softmax){ .x = x, .rows = 2, .n = 0, .stride = 0, .lse = lse });
        assert_true(lse[0] == -INFINITY && lse[1] == -INFINITY);
        t->softmax(&(struct ha_softmax){ .x = x, .rows = 0, .n = 2, .stride = 2, .lse = NULL });
        t->weighted_sum(&(struct ha_weighted_sum){ { .keys = 0 }, 2, HA_F16, w, HA_F32, 0, 0, o, 2 });
        assert_true(x[0] == 1 && o[0] == 5);
        t->weighted_sum(&(struct ha_weighted_sum){ { .keys = 0 }, 2, HA_F16, w, HA_F32, 1, 0, o, 2 });
        assert_true(o[0] == 0 && o[1] == 0);
    }
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, NULL); }
