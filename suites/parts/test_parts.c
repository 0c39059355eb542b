/* The ring, CPU attention in groups, and the store. The store gives back what was put in, and attention over it is
 * attention over the rows, whatever the shape and wherever the borders of its blocks fall. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/numeric.h"
#include "harness/base/pool.h"
#include "harness/base/rng.h"
#include "suites/parts/cpu_attend.h"
#include "suites/parts/ring.h"
#include "suites/parts/store.h"
#include "suites/parts/test_memory.h"

static struct ha_why why;

extern const struct ha_kernels ha_kernels_c;

/* ---- the ring ---------------------------------------------------------------------------------- */

/* For every fill the count is the least whole number of blocks that brings the ring below its
 * capacity, found here by trying. */
TEST(test_evict_count)
{
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

TEST(test_stretches)
{
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

/* ---- CPU attention in groups ------------------------------------------------------------------- */

enum { UNITS = 11, UNIT_DIM = 8 };
static size_t worker_of[UNITS], times[UNITS];
static const unsigned char *scratch; /* of worker 0 */
static size_t scratch_bytes;

/* A unit is known by its query, a worker by its scratch. */
static void noting_attend(const struct ha_kernels *self, const struct ha_attend *a)
{
    const size_t unit = (size_t)a->q[0];
    worker_of[unit] = (size_t)((const unsigned char *)a->scratch - scratch) / scratch_bytes;
    times[unit]++;
    ha_kernels_c.attend(self, a);
}

/* Each unit once, on its group's worker, with the bits that it has without groups. */
TEST(test_groups)
{
    static const struct {
        size_t units, per_group, per_task, threads;
        size_t worker[UNITS];
    } cases[] = {
        { 11, 4, 0, 3, { 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2 } },
        { 11, 4, 3, 3, { 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2 } },
        { 11, 4, 9, 3, { 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2 } },
        { 11, 4, 0, 2, { 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1 } }, /* three groups on two workers */
        { 10, 2, 2, 5, { 0, 0, 1, 1, 2, 2, 3, 3, 4, 4 } },
        { 1, 4, 0, 1, { 0 } },
        { 0, 4, 0, 2, { 0 } },
    };
    struct ha_kernels kernels = ha_kernels_c;
    kernels.attend = noting_attend;
    for (size_t i = 0; i < COUNT(cases); i++) {
        float q[UNITS][UNIT_DIM], o[2][UNITS][UNIT_DIM] = { 0 }, lse[2][UNITS] = { 0 };
        const struct ha_shape shape = {
            .q_heads = 1, .kv_heads = 1, .head_dim = UNIT_DIM, .dtype = HA_F32, .scale = 1
        };
        struct ha_context ctx = { .shape = &shape, .kernels = &kernels };
        struct ha_rows run[UNITS];
        for (size_t u = 0; u < UNITS; u++) {
            for (size_t d = 0; d < UNIT_DIM; d++) q[u][d] = (float)(u + d);
            run[u] = (struct ha_rows){
                .k = q, .v = q, .k_stride_bytes = sizeof *q, .v_stride_bytes = sizeof *q, .keys = u + 1
            };
        }
        assert_int_equal(ha_arena_create(&ctx.arena, true, &why), HA_OK);
        assert_int_equal(ha_pool_create(&ctx.pool, HA_TEAM_DEFAULT, cases[i].threads, &why), HA_OK);
        struct ha_cpu_attend c;
        struct ha_attend worst = ha_cpu_attend_unit(&shape, 0, 1, 1, false, q[0], o[0][0], lse[0], &run[UNITS - 1]);
        assert_int_equal(ha_cpu_attend_create(&c, &ctx, UNITS, &worst, &why), HA_OK);
        c.units = cases[i].units;
        scratch = c.work;
        scratch_bytes = c.scratch_bytes;
        for (int groups = 0; groups < 2; groups++) {
            c.units_per_task = groups ? cases[i].per_task : 1;
            if (groups) assert_int_equal(ha_cpu_attend_in_groups(&c, cases[i].per_group, &why), HA_OK);
            memset(times, 0, sizeof times);
            for (size_t u = 0; u < UNITS; u++)
                c.unit[u] = ha_cpu_attend_unit(&shape, 0, 1, 1, false, q[u], o[groups][u], &lse[groups][u], &run[u]);
            ha_cpu_attend_run(&c, "units");
            for (size_t u = 0; u < UNITS; u++) assert_int_equal(times[u], u < c.units);
        }
        assert_memory_equal(o[0], o[1], sizeof *o);
        assert_memory_equal(lse[0], lse[1], sizeof *lse);
        for (size_t u = 0; u < c.units; u++) assert_int_equal(worker_of[u], cases[i].worker[u]);
        ha_cpu_attend_release(&c);
        assert_int_equal(ha_arena_check(ctx.arena, &why), HA_OK);
        ha_pool_destroy(ctx.pool);
        ha_arena_destroy(ctx.arena);
    }
}

/* ---- a sequence of each length, all its tokens known in advance ------------------------------ */

struct world {
    struct ha_shape shape;
    struct ha_context ctx;
    struct ha_kv_store store[HA_BATCH_MAX];
    size_t tokens[HA_BATCH_MAX];                      /* at the end */
    unsigned char *k[HA_BATCH_MAX], *v[HA_BATCH_MAX]; /* [tokens][kv_heads][head_dim] */
    float *q;                                         /* [q_len][q_heads][head_dim] */
};

static void ok(enum ha_status status) { assert_int_equal(status, HA_OK); }

static unsigned char *random_rows(size_t count, enum ha_dtype dtype, uint64_t stream)
{
    unsigned char *x = malloc(count * ha_dtype_bytes(dtype));
    assert_non_null(x);
    for (size_t i = 0; i < count; i++) ha_store(x, i, dtype, ha_rng_normal(7, stream, i));
    return x;
}

static void open_world(struct world *w, struct ha_shape shape)
{
    *w = (struct world){ .shape = shape };
    w->shape.scale = 0.1f;
    w->ctx = (struct ha_context){ .shape = &w->shape, .kernels = &ha_kernels_c, .api = &memory };
    ok(ha_arena_create(&w->ctx.arena, true, &why));
    ok(ha_device_arena_create(&w->ctx.device_arena, &memory, NULL, &why));
    ok(ha_pool_create(&w->ctx.pool, HA_TEAM_DEFAULT, 2, &why));
    for (size_t b = 0; b < shape.batch; b++) {
        w->tokens[b] = ha_kv_max_tokens(&w->shape, b);
        w->k[b] = random_rows(w->tokens[b] * shape.kv_heads * shape.head_dim, shape.dtype, 2 * b);
        w->v[b] = random_rows(w->tokens[b] * shape.kv_heads * shape.head_dim, shape.dtype, 2 * b + 1);
    }
    w->q = (float *)(void *)random_rows(shape.q_len * shape.q_heads * shape.head_dim, HA_F32, 99);
}

static void close_world(struct world *w)
{
    ha_pool_destroy(w->ctx.pool);
    ha_device_arena_destroy(w->ctx.device_arena);
    if (ha_arena_check(w->ctx.arena, &why) != HA_OK) fail_msg("%s", why.text);
    ha_arena_destroy(w->ctx.arena);
    for (size_t b = 0; b < w->shape.batch; b++) {
        free(w->k[b]);
        free(w->v[b]);
    }
    free(w->q);
}

/* sequence b as a source of steps */
static struct ha_kv source(const struct world *w, size_t b)
{
    return (struct ha_kv){ .memory = HA_MEM_DEVICE, .k = w->k[b], .v = w->v[b], .cap = w->tokens[b] };
}

/* rows of a head, one after the other */
static unsigned char *turned(const struct ha_shape *s, const unsigned char *from, size_t tokens)
{
    size_t row = ha_kv_head_bytes(s);
    unsigned char *to = malloc(s->kv_heads * tokens * row + 1);
    assert_non_null(to);
    for (size_t h = 0; h < s->kv_heads; h++)
        for (size_t t = 0; t < tokens; t++)
            memcpy(to + (h * tokens + t) * row, from + (t * s->kv_heads + h) * row, row);
    return to;
}

/* the stores after their prefill, which comes as [kv_heads][tokens][head_dim] */
static void load(struct world *w, bool packed)
{
    const struct ha_shape *s = &w->shape;
    const void *k[HA_BATCH_MAX], *v[HA_BATCH_MAX];
    for (size_t b = 0; b < s->batch; b++) {
        unsigned char *turned_k = turned(s, w->k[b], s->ctx[b]), *turned_v = turned(s, w->v[b], s->ctx[b]);
        k[b] = turned_k;
        v[b] = turned_v;
        if (ha_kv_store_create(&w->ctx, packed, b, &w->store[b], &why) != HA_OK) fail_msg("%s", why.text);
        ok(ha_kv_store_load(&w->ctx, &w->store[b], &(struct ha_prefill){ .k = k, .v = v, .cap = s->ctx[b] }, b));
        free(turned_k);
        free(turned_v);
    }
}

/* ---- what must hold of a store ---------------------------------------------------------------- */

static void assert_reads(const struct world *w, const struct ha_kv_store *store, size_t b, size_t first, size_t count)
{
    const struct ha_shape *s = &w->shape;
    size_t row = ha_kv_head_bytes(s), apart = row + 2;
    unsigned char *k = malloc(count * apart + 1), *v = malloc(count * apart + 1);
    struct ha_kv from = source(w, b);
    for (size_t h = 0; h < s->kv_heads; h++) {
        struct ha_rows want = ha_kv_rows(s, &from, h, first, count);
        ha_kv_store_read(&w->ctx, store, h, first, count, k, v, apart);
        for (size_t t = 0; t < count; t++) {
            assert_memory_equal(k + t * apart, (const unsigned char *)want.k + t * want.k_stride_bytes, row);
            assert_memory_equal(v + t * apart, (const unsigned char *)want.v + t * want.v_stride_bytes, row);
        }
    }
    free(k);
    free(v);
}

/* One head's group by both ways: packed keys and the rows behind them, and plain rows. */
static void assert_attends(const struct world *w, size_t h, struct ha_packed packed, const struct ha_rows *open,
                           const struct ha_rows *plain)
{
    const struct ha_shape *s = &w->shape;
    static float o[2][32768], lse[2][512]; /* of the largest shape */
    size_t group = ha_shape_group(s);
    for (int i = 0; i < 2; i++) {
        struct ha_attend a = ha_cpu_attend_unit(s, h * group, group, s->q_len, true, w->q, o[i], lse[i],
                                                i ? plain : open);
        if (i == 0) a.packed = packed;
        assert_non_null(a.scratch = aligned_alloc(64, (ha_kernels_c.attend_scratch_bytes(&a) + 63) / 64 * 64));
        ha_kernels_c.attend(&ha_kernels_c, &a);
        free(a.scratch);
    }
    for (size_t t = 0; t < s->q_len; t++)
        for (size_t g = h * group; g < (h + 1) * group; g++) {
            size_t at = t * s->q_heads + g;
            assert_true(lse[0][at] - lse[1][at] < 1e-5f && lse[1][at] - lse[0][at] < 1e-5f);
            for (size_t d = at * s->head_dim; d < (at + 1) * s->head_dim; d++)
                assert_true(o[0][d] - o[1][d] < 1e-5f && o[1][d] - o[0][d] < 1e-5f);
        }
}

static void assert_all_attended(const struct world *w, const struct ha_kv_store *store, size_t b)
{
    struct ha_kv from = source(w, b);
    for (size_t h = 0; h < w->shape.kv_heads; h++) {
        struct ha_rows open = ha_kv_store_open(&w->shape, store, h),
                       all = ha_kv_rows(&w->shape, &from, h, 0, store->tokens);
        struct ha_packed packed = ha_kv_store_packed(store, h);
        assert_int_equal(packed.keys + open.keys, store->tokens);
        assert_attends(w, h, packed, &open, &all);
    }
}

/* ---- the tests ----------------------------------------------------------------------------------- */

#define SHAPE(dim, type, new, many, ...)                                                                     \
    {                                                                                                        \
        .layers = 1, .batch = sizeof(size_t[]){ __VA_ARGS__ } / sizeof(size_t), .q_heads = 4, .kv_heads = 2, \
        .head_dim = dim, .dtype = type, .q_len = new, .steps = many, .ctx = {                                \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }

static const struct ha_shape shapes[] = {
    SHAPE(64, HA_F16, 1, 70, 0), /* from nothing, over two borders, one at a time */
    SHAPE(128, HA_BF16, 1, 3, 31),
    SHAPE(72, HA_F32, 1, 34, 96, 33, 1), /* a batch; the last panel of V has 8 columns */
    SHAPE(8, HA_F16, 5, 14, 30, 0),
    SHAPE(256, HA_F16, 31, 4, 65),
    SHAPE(64, HA_BF16, 33, 3, 40, 31), /* more than a block at once */
    SHAPE(64, HA_F32, 100, 2, 5),
    SHAPE(20, HA_F16, 3, 12, 40), /* do not pack */
    SHAPE(100, HA_F32, 1, 2, 64, 3),
    SHAPE(264, HA_BF16, 1, 2, 33),
};

static void grows(const struct ha_shape *shape, bool packed)
{
    struct world w;
    open_world(&w, *shape);
    load(&w, packed);

    for (size_t step = 0; step < shape->steps; step++)
        for (size_t b = 0; b < shape->batch; b++) {
            struct ha_kv_store *store = &w.store[b];
            struct ha_kv fresh = source(&w, b);
            size_t had = store->packed;
            assert_int_equal(store->tokens, shape->ctx[b] + step * shape->q_len);
            assert_true((store->blocks != NULL) == (packed && ha_packs(shape->head_dim)));
            assert_int_equal(store->packed, store->blocks ? store->tokens / HA_PACK_KEYS * HA_PACK_KEYS : 0);
            ok(ha_kv_store_append(&w.ctx, NULL, store, &fresh, store->tokens, shape->q_len));
            assert_int_equal(store->packed, had);
            assert_all_attended(&w, store, b);
            assert_reads(&w, store, b, 0, store->tokens);
            for (size_t i = 0; i < 4; i++) {
                size_t first = ha_rng_below(step, b, 2 * i, store->tokens),
                       count = ha_rng_below(step, b, 2 * i + 1, store->tokens - first + 1);
                assert_reads(&w, store, b, first, count);
            }
            assert_true(ha_kv_store_due(store) == (store->blocks && store->tokens - had >= HA_PACK_KEYS));
            ha_kv_store_pack(&w.ctx, store);
        }
    close_world(&w);
}

TEST(test_grows)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int packed = 0; packed < 2; packed++) grows(&shapes[i], packed);
}

/* a long prefill is packed by several tasks */
TEST(test_loads)
{
    static const struct ha_shape shape = SHAPE(16, HA_F16, 1, 1, 9000, 4096, 8192 + 31);
    struct world w;
    open_world(&w, shape);
    load(&w, true);
    for (size_t b = 0; b < shape.batch; b++) assert_reads(&w, &w.store[b], b, 0, shape.ctx[b]);
    close_world(&w);
}

/* K and V once, and of what is not packed a block of rows at most besides */
TEST(test_bytes)
{
    static const struct ha_shape shape = SHAPE(64, HA_F16, 3, 100, 1000);
    struct world w;
    open_world(&w, shape);
    load(&w, true);
    size_t token = 2 * ha_kv_token_bytes(&w.shape), blocks = ha_arena_peak_bytes(w.ctx.arena, HA_TAG_KV);
    assert_int_equal(blocks, 1300 / 32 * 32 * token);
    assert_int_equal(ha_pinned_peak_bytes(w.ctx.device_arena, HA_TAG_KV), (31 + 3) * token);
    close_world(&w);
}
