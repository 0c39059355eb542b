/* attend, merge and blend against plain loops over whole arrays: strides, runs, batches, causality. */

#include "kernels/host/test_support.h"

#include "harness/base/numeric.h"
#include "harness/base/rng.h"

#include <math.h>

enum { Q_HEADS = 6, KV_HEADS = 2, GROUP = Q_HEADS / KV_HEADS, DIM = 8, BATCH = 3, SEED = 7 };

static void fill(float *x, size_t n, uint64_t stream) { ha_rng_normals(SEED, stream, 0, n, x); }

static void assert_near(float got, double want)
{
    if (!(fabs((double)got - want) <= 1e-5 * (1 + fabs(want)))) fail_msg("got %.9g, want %.9g", (double)got, want);
}

/* one sequence: its keys lie in two runs with their own strides, one run in device memory, one mapped */
struct sequence {
    size_t keys[2];
    float *k[2], *v[2], *q, *o, *lse, *weights;
    size_t token_floats, head_floats, weights_stride;
};

static struct sequence sequence_make(struct ha_device *dev, size_t q_len, size_t keys0, size_t keys1, uint64_t stream)
{
    struct sequence s = { .keys = { keys0, keys1 },
                          .token_floats = DIM + 3,
                          .head_floats = 40 * (DIM + 3),
                          .weights_stride = keys0 + keys1 + 2 };
    for (size_t r = 0; r < 2; r++) {
        enum ha_memory kind = r ? HA_MEM_MAPPED : HA_MEM_DEVICE;
        size_t floats = KV_HEADS * s.head_floats;
        s.k[r] = device_alloc(dev, kind, floats * sizeof(float));
        s.v[r] = device_alloc(dev, kind, floats * sizeof(float));
        fill(s.k[r], floats, stream + r);
        fill(s.v[r], floats, stream + 2 + r);
    }
    s.q = device_alloc(dev, HA_MEM_DEVICE, q_len * Q_HEADS * DIM * sizeof(float));
    s.o = device_alloc(dev, HA_MEM_DEVICE, q_len * Q_HEADS * DIM * sizeof(float));
    s.lse = device_alloc(dev, HA_MEM_DEVICE, q_len * Q_HEADS * sizeof(float));
    s.weights = device_alloc(dev, HA_MEM_DEVICE, Q_HEADS * s.weights_stride * sizeof(float));
    fill(s.q, q_len * Q_HEADS * DIM, stream + 4);
    return s;
}

static void sequence_free(struct ha_device *dev, struct sequence *s)
{
    for (size_t r = 0; r < 2; r++) {
        api->mem_free(dev, r ? HA_MEM_MAPPED : HA_MEM_DEVICE, s->k[r]);
        api->mem_free(dev, r ? HA_MEM_MAPPED : HA_MEM_DEVICE, s->v[r]);
    }
    api->mem_free(dev, HA_MEM_DEVICE, s->q);
    api->mem_free(dev, HA_MEM_DEVICE, s->o);
    api->mem_free(dev, HA_MEM_DEVICE, s->lse);
    api->mem_free(dev, HA_MEM_DEVICE, s->weights);
}

static const float *row(const struct sequence *s, float *const part[2], size_t kv_head, size_t key)
{
    size_t r = key >= s->keys[0];
    return part[r] + kv_head * s->head_floats + (key - (r ? s->keys[0] : 0)) * s->token_floats;
}

static void sequence_check(const struct sequence *s, size_t q_len, bool causal, double scale, bool weights)
{
    const size_t keys = s->keys[0] + s->keys[1];
    for (size_t h = 0; h < Q_HEADS; h++) {
        double mean[64] = { 0 };
        for (size_t t = 0; t < q_len; t++) {
            const float *q = s->q + (t * Q_HEADS + h) * DIM;
            double p[64] = { 0 }, sum = 0;
            for (size_t j = 0; j < keys; j++) {
                if (causal && j > keys - q_len + t) continue;
                double dot = 0;
                for (size_t d = 0; d < DIM; d++) dot += (double)q[d] * (double)row(s, s->k, h / GROUP, j)[d];
                sum += p[j] = exp(scale * dot);
            }
            for (size_t d = 0; d < DIM; d++) {
                double acc = 0;
                for (size_t j = 0; j < keys; j++) acc += p[j] / sum * (double)row(s, s->v, h / GROUP, j)[d];
                assert_near(s->o[(t * Q_HEADS + h) * DIM + d], acc);
            }
            assert_near(s->lse[t * Q_HEADS + h], log(sum));
            for (size_t j = 0; j < keys; j++) mean[j] += p[j] / sum / (double)q_len;
        }
        for (size_t j = 0; weights && j < keys; j++) assert_near(s->weights[h * s->weights_stride + j], mean[j]);
        if (weights) assert_true(isnan(s->weights[h * s->weights_stride + keys]));
    }
}

static void attends_to_a_batch(void **state)
{
    (void)state;
    static const size_t keys[BATCH][2] = { { 5, 11 }, { 0, 37 }, { 29, 4 } };
    struct ha_device *dev = device_open(0);
    struct ha_stream *stream = device_stream(dev, "main");
    for (size_t q_len = 1; q_len <= 4; q_len += 3)
        for (int causal = 0; causal < 2; causal++) {
            const bool weights = q_len == 4;
            struct sequence s[BATCH];
            struct ha_device_seq seq[BATCH];
            for (size_t b = 0; b < BATCH; b++) {
                s[b] = sequence_make(dev, q_len, keys[b][0], keys[b][1], 100 * b);
                seq[b] = (struct ha_device_seq){ .q = s[b].q,
                                                 .runs_count = 2,
                                                 .k_head_bytes = s[b].head_floats * sizeof(float),
                                                 .v_head_bytes = s[b].head_floats * sizeof(float),
                                                 .o = s[b].o,
                                                 .lse = s[b].lse,
                                                 .weights = weights ? s[b].weights : NULL,
                                                 .weights_stride = s[b].weights_stride };
                for (size_t r = 0; r < 2; r++)
                    seq[b].runs[r] = (struct ha_rows){
                        s[b].k[r], s[b].v[r],   s[b].token_floats * sizeof(float), s[b].token_floats * sizeof(float),
                        NULL,      s[b].keys[r]
                    };
            }
            struct ha_device_attend args = { .batch = BATCH,
                                             .q_len = q_len,
                                             .q_heads = Q_HEADS,
                                             .kv_heads = KV_HEADS,
                                             .head_dim = DIM,
                                             .dtype = HA_F32,
                                             .scale = 0.3f,
                                             .causal = causal,
                                             .seqs = seq };
            ok(api->attend(stream, &args));
            memset(seq, 0, sizeof seq); /* the call has its copy */
            memset(&args, 0, sizeof args);
            if (api->stream_sync(stream) != HA_OK) fail_msg("%s", api->failure(dev));
            for (size_t b = 0; b < BATCH; b++) {
                sequence_check(&s[b], q_len, causal, (double)0.3f, weights);
                sequence_free(dev, &s[b]);
            }
        }
    /* an empty batch */
    ok(api->attend(stream, &(struct ha_device_attend){ .q_len = 1, .q_heads = 1, .kv_heads = 1, .head_dim = DIM }));
    api->stream_destroy(stream);
    assert_no_failure(dev);
    api->close(dev);
}

/* Scratch grows while earlier work, which has the smaller one, is still queued. */
static void attends_with_growing_scratch(void **state)
{
    (void)state;
    enum { N = 12 };
    struct ha_device *dev = device_open(0);
    struct ha_stream *stream = device_stream(dev, "main");
    struct sequence s[N];
    for (size_t i = 0; i < N; i++) {
        s[i] = sequence_make(dev, 1, 3 * i + 1, 2, 10 * i);
        struct ha_device_seq seq = { .q = s[i].q,
                                     .runs_count = 2,
                                     .k_head_bytes = s[i].head_floats * sizeof(float),
                                     .v_head_bytes = s[i].head_floats * sizeof(float),
                                     .o = s[i].o,
                                     .lse = s[i].lse };
        for (size_t r = 0; r < 2; r++)
            seq.runs[r] = (struct ha_rows){
                s[i].k[r], s[i].v[r],   s[i].token_floats * sizeof(float), s[i].token_floats * sizeof(float),
                NULL,      s[i].keys[r]
            };
        ok(api->attend(stream, &(struct ha_device_attend){ .batch = 1,
                                                           .q_len = 1,
                                                           .q_heads = Q_HEADS,
                                                           .kv_heads = KV_HEADS,
                                                           .head_dim = DIM,
                                                           .scale = 1,
                                                           .seqs = &seq }));
    }
    ok(api->stream_sync(stream));
    for (size_t i = 0; i < N; i++) {
        sequence_check(&s[i], 1, false, 1, false);
        sequence_free(dev, &s[i]);
    }
    api->stream_destroy(stream);
    assert_no_failure(dev);
    api->close(dev);
}

/* A state with rows of [TOKENS][HEADS], strided, its numbers behind it. */
enum { TOKENS = 3, HEADS = 2, M = 3 };
static const size_t o_head[M] = { DIM, DIM + 2, DIM + 5 }, lse_token[M] = { HEADS, 1, 7 },
                    lse_head[M] = { 1, TOKENS, 2 };

static struct ha_merge_state state_make(struct ha_device *dev, enum ha_memory kind, size_t i, enum ha_dtype dtype)
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

static void state_free(struct ha_device *dev, enum ha_memory kind, struct ha_merge_state *s)
{
    api->mem_free(dev, kind, s->o);
    api->mem_free(dev, kind, s->lse);
    api->mem_free(dev, kind, s->sum);
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

static void merges_states(void **state)
{
    (void)state;
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
    struct ha_device *dev = device_open(0);
    struct ha_stream *stream = device_stream(dev, "main");
    for (size_t n = 0; n < sizeof kind / sizeof *kind; n++) {
        static const enum ha_memory memory[M] = { HA_MEM_DEVICE, HA_MEM_MAPPED, HA_MEM_DEVICE };
        struct ha_merge_state s[M], sent[M], out = state_make(dev, HA_MEM_DEVICE, 2, kind[n].dtype);
        double want[TOKENS][HEADS][DIM], sum[TOKENS][HEADS];
        for (size_t i = 0; i < M; i++) sent[i] = s[i] = state_make(dev, memory[i], i, kind[n].dtype);
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
                assert_near((float)(kind[n].form == HA_FORM_MAX_SUM ? of_max * (double)to.sum[at] : of_max), sum[t][h]);
                for (size_t d = 0; d < DIM; d++) {
                    double got = (double)ha_load(to.o, t * to.o_token_stride + h * to.o_head_stride + d, kind[n].dtype);
                    if (!(fabs(got - want[t][h][d]) <= kind[n].tolerance))
                        fail_msg("kind %zu: got %g, want %g", n, got, want[t][h][d]);
                }
            }
        for (size_t i = 0; i < M; i++) state_free(dev, memory[i], &s[i]);
        state_free(dev, HA_MEM_DEVICE, &out);
    }
    /* no rows: no operand is looked at */
    ok(api->merge(stream,
                  &(struct ha_merge){
                      .states = (struct ha_merge_state[1]){ { 0 } }, .states_count = 1, .tokens = 4, .dim = DIM }));
    api->stream_destroy(stream);
    assert_no_failure(dev);
    api->close(dev);
}

static void merges_as_many_states_as_it_says(void **state)
{
    (void)state;
    struct ha_device *dev = device_open(0);
    struct ha_stream *stream = device_stream(dev, "main");
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
    assert_near(o[0], (double)(most - 1) / 2);
    assert_near(lse[0], log((double)most));
    api->mem_free(dev, HA_MEM_DEVICE, o);
    api->mem_free(dev, HA_MEM_DEVICE, lse);
    api->stream_destroy(stream);
    assert_no_failure(dev);
    api->close(dev);
}

static void blends(void **state)
{
    (void)state;
    enum { ROWS = 4, COLS = 7, Y_STRIDE = 9, X_STRIDE = 8 };
    struct ha_device *dev = device_open(0);
    struct ha_stream *stream = device_stream(dev, "main");
    float *y = device_alloc(dev, HA_MEM_DEVICE, ROWS * Y_STRIDE * sizeof(float)), want[ROWS * Y_STRIDE];
    float *x = device_alloc(dev, HA_MEM_DEVICE, ROWS * X_STRIDE * sizeof(float));
    static const float factor[][2] = { { 0, 2 }, { 0.5f, -3 }, { 1, 0.25f } }; /* the first: y is NaN and is not read */
    fill(x, ROWS * X_STRIDE, 1);
    for (size_t i = 0; i < sizeof factor / sizeof *factor; i++) {
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
    api->mem_free(dev, HA_MEM_DEVICE, y);
    api->mem_free(dev, HA_MEM_DEVICE, x);
    api->stream_destroy(stream);
    assert_no_failure(dev);
    api->close(dev);
}

int main(void)
{
    device_test_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attends_to_a_batch),
        cmocka_unit_test(attends_with_growing_scratch),
        cmocka_unit_test(merges_states),
        cmocka_unit_test(merges_as_many_states_as_it_says),
        cmocka_unit_test(blends),
    };
    return cmocka_run_group_tests_name("device: kernels", tests, NULL, NULL);
}
