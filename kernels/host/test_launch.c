/* attend against the reference, merge and blend against plain loops over whole arrays: strides, runs, batches,
 * causality. */

#include "kernels/host/test_fixture.h"

#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "kernels/test_device.h"

#include <math.h>

enum { DIM = 8, BATCH = 3, SEED = 7 };

static void fill(float *x, size_t n, uint64_t which) { ha_rng_normals(SEED, which, 0, n, x); }

static void assert_close(float got, double want)
{
    if (!(fabs((double)got - want) <= 1e-5 * (1 + fabs(want)))) fail_msg("got %.9g, want %.9g", (double)got, want);
}

/* ---- attention */

/* every other block in device memory, the rest in mapped memory */
static void *some_memory(void *self, size_t bytes)
{
    static size_t count;
    return memset(device_alloc(dev, count++ % 2 ? HA_MEM_MAPPED : HA_MEM_DEVICE, bytes), 0xFF, bytes);
}
static void give_back(void *self, void *ptr) { (void)self, device_release(ptr); }
static const struct ha_test_memory memory = { NULL, some_memory, give_back };

static void attend(const struct ha_test_device_problem *p)
{
    struct ha_device_attend args = p->args;
    struct ha_device_seq seq[BATCH];
    memcpy(seq, p->seq, p->ask.batch * sizeof *seq);
    args.seqs = seq;
    ok(api->attend(stream, &args));
    memset(seq, 0, sizeof seq); /* the call has its copy */
    memset(&args, 0, sizeof args);
}

DEVICE_TEST(attends_to_a_batch)
{
    static const size_t keys[BATCH][HA_RUNS_MAX] = { { 5, 11 }, { 0, 37 }, { 29, 4 } };
    struct ha_device_info info;
    api->info(dev, &info);
    for (size_t i = 0; i < HA_TEST_DEVICE_LAYOUTS * 4; i++) {
        const struct ha_test_device_ask ask = { .dim = DIM,
                                                .kv_heads = 2,
                                                .group = 3,
                                                .q_len = i & 1 ? 4 : 1,
                                                .batch = BATCH,
                                                .runs = 2,
                                                .run = keys,
                                                .causal = i & 2,
                                                .weights = i & 1,
                                                .pad = 3,
                                                .layout = (enum ha_test_device_layout)(i / 4),
                                                .seed = SEED + i };
        struct ha_test_device_problem p;
        ha_test_device_make(&p, &ask, &memory);
        attend(&p);
        ok(api->stream_sync(stream));
        ha_test_device_check(&p, &info.profile[ask.dtype]);
        ha_test_device_free(&p);
    }
    /* an empty batch */
    ok(api->attend(stream, &(struct ha_device_attend){ .q_len = 1, .q_heads = 1, .kv_heads = 1, .head_dim = DIM }));
}

/* Of lists the keys are counted when the kernel runs. */
DEVICE_TEST(attends_by_lists)
{
    static const size_t keys[BATCH][HA_RUNS_MAX] = { { 40, 3 }, { 0, 9 }, { 17, 5 } };
    struct ha_device_info info;
    api->info(dev, &info);
    uint32_t *flag = device_alloc(dev, HA_MEM_MAPPED, sizeof *flag), go = 0;
    *flag = 0;
    for (size_t i = 0; i < 24; i++) {
        struct ha_test_device_ask ask = { .dtype = (enum ha_dtype)(i % HA_DTYPE_COUNT),
                                          .dim = i / 3 % 2 ? DIM : 64,
                                          .kv_heads = 2,
                                          .group = 3,
                                          .q_len = i & 1 ? 3 : 1,
                                          .batch = BATCH,
                                          .runs = 2,
                                          .run = keys,
                                          .block = (const size_t[]){ 1, 16, 32, 0 }[i % 4],
                                          .causal = i % 3 > 0,
                                          .list_keys = i / 2 % 2,
                                          .q_gap = (const size_t[]){ 0, 3, 4 }[i / 8],
                                          .layout = (enum ha_test_device_layout)(i / 2 % HA_TEST_DEVICE_LAYOUTS),
                                          .seed = SEED + i };
        ask.lists = i / 4 % 2 ? 6 : 2;
        ask.weights = !ask.list_keys;
        uint32_t counted[BATCH][6];
        struct ha_test_device_problem p;
        ha_test_device_make(&p, &ask, &memory);
        ok(api->flag_wait(stream, flag, ++go));
        for (size_t b = 0; b < BATCH && ask.list_keys; b++) {
            memcpy(counted[b], p.seq[b].list_keys, ask.lists * sizeof **counted);
            memset(ha_test_own(p.seq[b].list_keys), 0, ask.lists * sizeof **counted);
        }
        attend(&p);
        for (size_t b = 0; b < BATCH && ask.list_keys; b++)
            memcpy(ha_test_own(p.seq[b].list_keys), counted[b], ask.lists * sizeof **counted);
        __atomic_store_n(flag, go, __ATOMIC_RELEASE);
        ok(api->stream_sync(stream));
        ha_test_device_check(&p, &info.profile[ask.dtype]);
        ha_test_device_free(&p);
    }
}

static enum ha_status attend_lists(size_t lists, size_t runs, bool causal, bool index, bool weights)
{
    float *all = device_alloc(dev, HA_MEM_DEVICE, 4096);
    const uint32_t *list = device_alloc(dev, HA_MEM_DEVICE, 4096);
    const struct ha_rows run = { .k = all, .v = all, .k_stride_bytes = 64, .v_stride_bytes = 64, .keys = 2 };
    struct ha_device_seq seq = { .q = all, .o = all, .lse = all, .runs = { run, run }, .runs_count = runs };
    if (index) seq.runs[0].index = list;
    if (weights) seq.weights = all, seq.weights_stride = 8, seq.list_keys = list;
    return api->attend(stream, &(struct ha_device_attend){ .batch = 1,
                                                           .q_len = 1,
                                                           .q_heads = 4,
                                                           .kv_heads = 2,
                                                           .head_dim = 16,
                                                           .causal = causal,
                                                           .seqs = &seq,
                                                           .lists = lists });
}

#define WRONG(name, words) WRONG_USE(name, words, device_begin, device_end, refused)
WRONG_CALL(number_of_lists, "3 lists, for 2 KV heads and 4 query heads", attend_lists(3, 2, true, true, false))
WRONG_CALL(lists_of_no_index, "lists, and the first run has no index", attend_lists(2, 2, true, false, false))
WRONG_CALL(lists_that_are_last, "lists, and the first run is the last, or none", attend_lists(2, 1, true, true, false))
WRONG_CALL(lists_of_no_run, "lists, and the first run is the last, or none", attend_lists(4, 0, false, true, false))
WRONG_CALL(weights_of_counted_lists, "no weights where list_keys", attend_lists(2, 2, true, true, true))

/* Scratch grows with the query tokens while earlier work, which has the smaller one, is still queued. */
DEVICE_TEST(attends_with_growing_scratch)
{
    enum { N = 12 };
    struct ha_test_device_problem p[N];
    struct ha_device_info info;
    api->info(dev, &info);
    for (size_t i = 0; i < N; i++) {
        const size_t keys[1][HA_RUNS_MAX] = { { 3 * i + 1, 2 } };
        const struct ha_test_device_ask ask = {
            .dim = DIM, .kv_heads = 2, .group = 3, .q_len = 1 + i, .batch = 1, .runs = 2, .run = keys, .seed = SEED + i
        };
        ha_test_device_make(&p[i], &ask, &memory);
        attend(&p[i]);
    }
    ok(api->stream_sync(stream));
    for (size_t i = 0; i < N; i++) {
        ha_test_device_check(&p[i], &info.profile[HA_F32]);
        ha_test_device_free(&p[i]);
    }
}

/* ---- merges and blends */

/* A state with rows of [TOKENS][HEADS], strided, its numbers behind it. */
enum { TOKENS = 3, HEADS = 2, M = 3 };
static const size_t o_head[M] = { DIM, DIM + 2, DIM + 5 }, lse_token[M] = { HEADS, 1, 7 },
                    lse_head[M] = { 1, TOKENS, 2 };

static struct ha_merge_state state_make(enum ha_memory kind, size_t i, enum ha_dtype dtype)
{
    const size_t o_floats = TOKENS * HEADS * (DIM + 5) + 3 * TOKENS, lse_floats = 7 * TOKENS;
    struct ha_merge_state s = {
        .o = device_alloc(dev, kind, o_floats * ha_dtype_bytes(dtype)),
        .lse = device_alloc(dev, kind, lse_floats * sizeof(float)),
        .sum = device_alloc(dev, kind, lse_floats * sizeof(float)),
        .o_token_stride = HEADS * o_head[i] + 3 * i,
        .o_head_stride = o_head[i],
        .lse_token_stride = lse_token[i],
        .lse_head_stride = lse_head[i],
    };
    float x[TOKENS * HEADS * (DIM + 5) + 3 * TOKENS];
    fill(x, o_floats, i);
    ha_store_row(s.o, o_floats, dtype, x);
    fill(s.lse, lse_floats, 10 + i);
    for (size_t k = 0; k < lse_floats; k++) s.sum[k] = 1 + (float)k;
    return s;
}

/* What row (t, h) of the states merges to: o, and exp of its LSE. */
static double merged(const struct ha_merge *m, const struct ha_merge_state *s, size_t t, size_t h, double o[DIM])
{
    double sum = 0;
    for (size_t d = 0; d < DIM; d++) o[d] = 0;
    for (size_t i = 0; i < M; i++) {
        const size_t at = t * s[i].lse_token_stride + h * s[i].lse_head_stride;
        const double w = exp((double)s[i].lse[at]) * (m->form == HA_FORM_MAX_SUM ? (double)s[i].sum[at] : 1);
        sum += w;
        for (size_t d = 0; d < DIM; d++)
            o[d] += w * (double)ha_load(s[i].o, t * s[i].o_token_stride + h * s[i].o_head_stride + d, m->dtype);
    }
    for (size_t d = 0; d < DIM; d++) o[d] /= sum;
    return sum;
}

DEVICE_TEST(merges_states)
{
    static const struct {
        enum ha_form form;
        enum ha_dtype dtype;
        double tolerance;
        bool in_place; /* into the second state, which lies in mapped memory */
    } kind[] = {
        { HA_FORM_NATURAL, HA_F32, 1e-5, false },
        { HA_FORM_NATURAL, HA_BF16, 1e-2, false },
        { HA_FORM_MAX_SUM, HA_F32, 1e-5, false },
        { HA_FORM_NATURAL, HA_F32, 1e-5, true },
    };
    for (size_t n = 0; n < COUNT(kind); n++) {
        static const enum ha_memory where[M] = { HA_MEM_DEVICE, HA_MEM_MAPPED, HA_MEM_DEVICE };
        struct ha_merge_state s[M], sent[M], out = state_make(HA_MEM_DEVICE, 2, kind[n].dtype);
        double want[TOKENS][HEADS][DIM], sum[TOKENS][HEADS];
        for (size_t i = 0; i < M; i++) sent[i] = s[i] = state_make(where[i], i, kind[n].dtype);
        struct ha_merge m = { .form = kind[n].form,
                              .dtype = kind[n].dtype,
                              .states = sent,
                              .states_count = M,
                              .tokens = TOKENS,
                              .heads = HEADS,
                              .dim = DIM,
                              .out = kind[n].in_place ? s[1] : out };
        const struct ha_merge_state to = m.out;
        for (size_t t = 0; t < TOKENS; t++)
            for (size_t h = 0; h < HEADS; h++) sum[t][h] = merged(&m, s, t, h, want[t][h]);
        ok(api->merge(stream, &m));
        memset(sent, 0, sizeof sent); /* the call has its copy */
        memset(&m.out, 0, sizeof m.out);
        if (api->stream_sync(stream) != HA_OK) fail_msg("%s", api->failure(dev));
        for (size_t t = 0; t < TOKENS; t++)
            for (size_t h = 0; h < HEADS; h++) {
                const size_t at = t * to.lse_token_stride + h * to.lse_head_stride;
                const double of_max = exp((double)to.lse[at]);
                assert_close((float)(kind[n].form == HA_FORM_MAX_SUM ? of_max * (double)to.sum[at] : of_max),
                             sum[t][h]);
                for (size_t d = 0; d < DIM; d++) {
                    double got = (double)ha_load(to.o, t * to.o_token_stride + h * to.o_head_stride + d, kind[n].dtype);
                    if (!(fabs(got - want[t][h][d]) <= kind[n].tolerance))
                        fail_msg("kind %zu: got %g, want %g", n, got, want[t][h][d]);
                }
            }
    }
    /* no rows: no operand is looked at */
    ok(api->merge(stream,
                  &(struct ha_merge){
                      .states = (struct ha_merge_state[1]){ { 0 } }, .states_count = 1, .tokens = 4, .dim = DIM }));
}

DEVICE_TEST(merges_as_many_states_as_it_says)
{
    struct ha_device_info info;
    api->info(dev, &info);
    const size_t most = info.merge.states_max;
    assert_true(most > 0);
    float *o = device_alloc(dev, HA_MEM_DEVICE, most * sizeof *o),
          *lse = device_alloc(dev, HA_MEM_DEVICE, most * sizeof *lse);
    struct ha_merge_state *s = calloc(most, sizeof *s);
    for (size_t i = 0; i < most; i++) {
        s[i] = (struct ha_merge_state){ .o = o + i,
                                        .lse = lse + i,
                                        .o_token_stride = 1,
                                        .o_head_stride = 1,
                                        .lse_token_stride = 1,
                                        .lse_head_stride = 1 };
        o[i] = (float)i;
        lse[i] = 0;
    }
    ok(api->merge(stream, &(struct ha_merge){
                              .states = s, .states_count = most, .tokens = 1, .heads = 1, .dim = 1, .out = s[0] }));
    free(s);
    ok(api->stream_sync(stream));
    assert_close(o[0], (double)(most - 1) / 2);
    assert_close(lse[0], log((double)most));
}

DEVICE_TEST(blends)
{
    enum { ROWS = 4, COLS = 7, Y_STRIDE = 9, X_STRIDE = 8 };
    float *y = device_alloc(dev, HA_MEM_DEVICE, ROWS * Y_STRIDE * sizeof(float)), want[ROWS * Y_STRIDE];
    float *x = device_alloc(dev, HA_MEM_DEVICE, ROWS * X_STRIDE * sizeof(float));
    static const float factor[][2] = { { 0, 2 }, { 0.5f, -3 }, { 1, 0.25f } }; /* the first: y is NaN and is not read */
    fill(x, ROWS * X_STRIDE, 1);
    for (size_t i = 0; i < COUNT(factor); i++) {
        const float a = factor[i][0], b = factor[i][1];
        memcpy(want, y, sizeof want);
        for (size_t r = 0; r < ROWS; r++)
            for (size_t c = 0; c < COLS; c++) {
                float *w = &want[r * Y_STRIDE + c];
                *w = a != 0.0f ? a * *w + b * x[r * X_STRIDE + c] : b * x[r * X_STRIDE + c];
            }
        ok(api->blend(stream, &(struct ha_device_blend){ y, x, ROWS, COLS, Y_STRIDE, X_STRIDE, a, b }));
        ok(api->stream_sync(stream));
        for (size_t r = 0; r < ROWS; r++) assert_true(!isnan(y[r * Y_STRIDE]));
        assert_memory_equal(y, want, sizeof want - (Y_STRIDE - COLS) * sizeof *want);
        assert_true(isnan(y[Y_STRIDE - 1]));
    }
}
