#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "harness/base/arena.h"
#include "suites/parts/context_cache.h"
#include "suites/parts/needs.h"
#include "suites/parts/ring.h"

#include <string.h>

/* For every fill the count is the least whole number of blocks that brings the ring below its
 * capacity, found here by trying. */
static void test_evict_count(void **state)
{
    (void)state;
    for (size_t blk = 1; blk <= 9; blk++)
        for (size_t num = 1; num <= 5; num++)
            for (size_t l = 0; l <= 4 * blk * num + 7; l++) {
                size_t want = 0;
                while (l - want >= blk * num && l >= want) want += blk;
                size_t got = ha_ring_evict_count(l, blk, num);
                assert_int_equal(got, want);
                if (got) assert_in_range(l - got, blk * num - blk, blk * num - 1);
            }
}

static void test_stretches(void **state)
{
    (void)state;
    struct ha_ring ring = { .kv = { .cap = 7 } };
    for (size_t first = 0; first < 30; first++)
        for (size_t count = 0; count <= 7; count++) {
            struct ha_stretch part[2];
            size_t n = ha_ring_stretches(&ring, first, count, part), next = first;
            assert_true(n <= 2);
            for (size_t i = 0; i < n; i++) {
                assert_true(part[i].count > 0);
                assert_int_equal(part[i].position, next);
                assert_int_equal(part[i].slot, next % 7);
                assert_true(part[i].slot + part[i].count <= 7);
                next += part[i].count;
            }
            assert_int_equal(next, first + count);
        }
}

/* rows of one KV head whose first element is the position */
static void test_context_padding(void **state)
{
    (void)state;
    enum { TOKENS = 100, DIM = 8 };
    static float k[TOKENS][DIM], v[TOKENS][DIM];
    for (int t = 0; t < TOKENS; t++) {
        k[t][0] = (float)t;
        v[t][0] = (float)-t;
    }
    struct ha_why why;
    struct ha_shape shape = { .q_heads = 1, .kv_heads = 1, .head_dim = DIM, .dtype = HA_F32 };
    struct ha_context ctx = { .shape = &shape };
    assert_int_equal(ha_arena_create(&ctx.arena, true, &why), HA_OK);
    struct ha_rows rows = { .k = k, .v = v, .k_stride_bytes = sizeof k[0], .v_stride_bytes = sizeof v[0], .keys = TOKENS };
    struct ha_context_head head = { .cap = 0 };

    const uint32_t picked[] = { 3, 40, 97, 98 };
    for (size_t i = 0; i < 4; i++) assert_int_equal(ha_context_add(&ctx, &head, &rows, picked[i], &why), HA_OK);
    assert_int_equal(ha_context_pad(&ctx, &head, &rows, TOKENS, 7, &why), HA_OK);
    const uint32_t want[] = { 3, 40, 97, 98, 99, 96, 95 };
    assert_int_equal(head.selected, 4);
    assert_int_equal(head.padding, 3);
    assert_memory_equal(head.token, want, sizeof want);
    struct ha_rows got = ha_context_rows(&ctx, &head);
    for (size_t i = 0; i < 7; i++) {
        assert_true(((const float *)got.k)[i * DIM] == (float)want[i]);
        assert_true(((const float *)got.v)[i * DIM] == -(float)want[i]);
    }

    /* a new entry replaces the padding; padding cannot exceed what is there */
    assert_int_equal(ha_context_add(&ctx, &head, &rows, 99, &why), HA_OK);
    assert_int_equal(head.padding, 0);
    assert_int_equal(ha_context_pad(&ctx, &head, &rows, TOKENS, 5 * TOKENS, &why), HA_OK);
    assert_int_equal(head.selected + head.padding, TOKENS);
    static bool seen[TOKENS];
    for (size_t i = 0; i < TOKENS; i++) seen[head.token[i]] = true;
    for (size_t t = 0; t < TOKENS; t++) assert_true(seen[t]);
    assert_int_equal(ha_arena_check(ctx.arena, &why), HA_OK);
    ha_arena_destroy(ctx.arena);
}

static void test_needs(void **state)
{
    (void)state;
    struct ha_device_api api;
    memset(&api, 0, sizeof api);
    assert_null(ha_needs(&api, 0));
    assert_non_null(strstr(ha_needs(&api, HA_NEEDS_ATTEND | HA_NEEDS_MERGE), "attend"));
    assert_non_null(strstr(ha_needs(&api, HA_NEEDS_MERGE), "merge"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_evict_count),
        cmocka_unit_test(test_stretches),
        cmocka_unit_test(test_context_padding),
        cmocka_unit_test(test_needs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
