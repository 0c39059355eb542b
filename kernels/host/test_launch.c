/* Launches that the suite device (`habench check device`) does not have: attention behind attention that has less
 * scratch, lists that are refused, merges of other forms, in place, of as many states as there may be. */

#include "kernels/host/test_fixture.h"

#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "kernels/test_device.h"

#include <math.h>

enum { DIM = 8, SEED = 7 };

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
        ok(api->attend(stream, &p[i].args));
    }
    /* an empty batch */
    ok(api->attend(stream, &(struct ha_device_attend){ .q_len = 1, .q_heads = 1, .kv_heads = 1, .head_dim = DIM }));
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
