/* HGCA's KV_ctx: the entries are read back in order, packed or as rows. */

#include "suites/recency_split/context_cache.h"

#include "harness/base/arena.h"
#include "harness/base/test.h"

static struct ha_why why;

extern const struct ha_kernels ha_kernels_c;

enum { TOKENS = 100, DIM_MAX = 24 };

/* entries in order, as they are read */
static void assert_entries(const struct ha_context *ctx, const struct ha_context_head *head, const uint32_t *want,
                           size_t count)
{
    const size_t dim = ctx->shape->head_dim;
    struct ha_packed packed = ha_context_packed(head);
    struct ha_rows rows = ha_context_rows(ctx, head);
    float k[TOKENS * DIM_MAX], v[TOKENS * DIM_MAX];
    assert_int_equal(head->selected + head->padding, count);
    for (size_t i = 0; i < count; i++) assert_int_equal(head->token[i], want[i]);
    assert_int_equal(packed.keys, head->packed ? count : 0);
    assert_int_equal(packed.keys + rows.keys, count);
    if (packed.keys) {
        ctx->kernels->unpack(&(struct ha_unpack){ .blocks = packed.blocks,
                                                  .keys = count,
                                                  .head_dim = dim,
                                                  .dtype = HA_F32,
                                                  .k = k,
                                                  .v = v,
                                                  .k_stride_bytes = dim * sizeof *k,
                                                  .v_stride_bytes = dim * sizeof *v });
    } else if (rows.keys) {
        memcpy(k, rows.k, count * dim * sizeof *k);
        memcpy(v, rows.v, count * dim * sizeof *v);
    }
    for (size_t i = 0; i < count * dim; i++) {
        assert_true(k[i] == (float)want[i / dim]);
        assert_true(v[i] == -(float)want[i / dim]);
    }
}

/* rows of one KV head whose elements are the position */
static void context_of(size_t dim, bool packed)
{
    static float k[TOKENS * DIM_MAX], v[TOKENS * DIM_MAX];
    for (size_t i = 0; i < TOKENS * dim; i++) {
        k[i] = (float)(i / dim);
        v[i] = -k[i];
    }
    struct ha_shape shape = { .q_heads = 1, .kv_heads = 1, .head_dim = dim, .dtype = HA_F32 };
    struct ha_context ctx = { .shape = &shape, .kernels = &ha_kernels_c };
    assert_int_equal(ha_arena_create(&ctx.arena, true, &why), HA_OK);
    struct ha_rows rows = {
        .k = k, .v = v, .k_stride_bytes = dim * sizeof *k, .v_stride_bytes = dim * sizeof *v, .keys = TOKENS
    };
    struct ha_context_head head = { .packed = packed };
    assert_entries(&ctx, &head, NULL, 0);

    const uint32_t picked[] = { 3, 40, 96, 97 };
    for (size_t i = 0; i < 4; i++) assert_int_equal(ha_context_add(&ctx, &head, picked[i], &why), HA_OK);
    assert_int_equal(ha_context_pad(&ctx, &head, 98, 6, &why), HA_OK);
    assert_int_equal(ha_context_copy(&ctx, &head, &rows, &why), HA_OK);
    const uint32_t earlier[] = { 3, 40, 96, 97, 95, 94 };
    assert_entries(&ctx, &head, earlier, 6);
    /* newer ones have come */
    assert_int_equal(ha_context_pad(&ctx, &head, TOKENS, 7, &why), HA_OK);
    assert_int_equal(ha_context_copy(&ctx, &head, &rows, &why), HA_OK);
    const uint32_t want[] = { 3, 40, 96, 97, 99, 98, 95 };
    assert_int_equal(head.selected, 4);
    assert_int_equal(head.padding, 3);
    assert_entries(&ctx, &head, want, 7);

    /* a new entry replaces the padding; padding cannot exceed what is there */
    assert_int_equal(ha_context_add(&ctx, &head, 98, &why), HA_OK);
    assert_int_equal(head.padding, 0);
    const uint32_t more[] = { 3, 40, 96, 97, 98 };
    assert_int_equal(ha_context_copy(&ctx, &head, &rows, &why), HA_OK);
    assert_entries(&ctx, &head, more, 5);
    assert_int_equal(ha_context_pad(&ctx, &head, TOKENS, 5 * TOKENS, &why), HA_OK);
    assert_int_equal(ha_context_copy(&ctx, &head, &rows, &why), HA_OK);
    assert_int_equal(head.selected + head.padding, TOKENS);
    static bool seen[TOKENS];
    memset(seen, 0, sizeof seen);
    for (size_t i = 0; i < TOKENS; i++) seen[head.token[i]] = true;
    for (size_t t = 0; t < TOKENS; t++) assert_true(seen[t]);
    assert_entries(&ctx, &head, head.token, TOKENS);

    /* from nothing again, one entry at a time, in memory that is there already */
    ha_context_clear(&head);
    assert_int_equal(ha_context_reserve(&ctx, &head, TOKENS, &why), HA_OK);
    const size_t bytes = ha_arena_peak_bytes(ctx.arena, HA_TAG_KV), names = ha_arena_peak_bytes(ctx.arena, HA_TAG_META);
    const unsigned char *at = head.blocks ? head.blocks : head.k;
    uint32_t all[TOKENS];
    for (uint32_t t = 0; t < TOKENS; t++) {
        all[t] = t;
        assert_int_equal(ha_context_add(&ctx, &head, t, &why), HA_OK);
        assert_int_equal(ha_context_copy(&ctx, &head, &rows, &why), HA_OK);
        assert_entries(&ctx, &head, all, t + 1);
    }
    assert_ptr_equal(at, head.blocks ? head.blocks : head.k);
    assert_int_equal(ha_arena_peak_bytes(ctx.arena, HA_TAG_KV), bytes);
    assert_int_equal(ha_arena_peak_bytes(ctx.arena, HA_TAG_META), names);
    assert_int_equal(ha_arena_check(ctx.arena, &why), HA_OK);
    ha_arena_destroy(ctx.arena);
}

TEST(test_context)
{
    context_of(8, true);
    context_of(24, true);
    context_of(24, false);
    context_of(20, false);
}
