/* New tokens of `resident`: at their places, whatever the lengths, by one move of K and one of V in a layer; where the
 * device has no move, by copies. */

#include "harness/base/fence.h"
#include "suites/parts/places.h"
#include "suites/parts/test_instance.h"

#include <math.h>

extern const struct ha_variant ha_variant_resident;

enum { SEQS = 3, LAYERS = 2, STEPS = 3, Q_LEN = 2, HEADS = 2, DIM = 8, CAP = 50, TOKEN = HEADS * DIM };
static const struct ha_shape shape = { .batch = SEQS,
                                       .q_len = Q_LEN,
                                       .layers = LAYERS,
                                       .q_heads = HEADS,
                                       .kv_heads = HEADS,
                                       .head_dim = DIM,
                                       .dtype = HA_F32,
                                       .scale = 1,
                                       .steps = STEPS,
                                       .ctx = { 40, 1, 17 } };
static size_t moves, copies; /* moves; copies inside the device */
static size_t layer_now, attended;

static enum ha_status count_move(struct ha_stream *s, const struct ha_device_move *args)
{
    moves++;
    return ha_device_host.move(s, args);
}
static enum ha_status count_copy(struct ha_stream *s, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    copies += dir == HA_D2D;
    return ha_device_host.copy(s, dst, src, bytes, dir);
}

/* of what a token holds: everything tells it from all others */
static float number(size_t layer, size_t which, size_t b, size_t token, size_t i)
{
    return (float)((((layer * 2 + which) * SEQS + b) * CAP + token) * TOKEN + i);
}

/* In a check nobody has what is behind the last row that the sequence will have: it is NaN, or may not be touched. */
static bool is_fence(const char *at)
{
#if HA_ASAN
    return __asan_address_is_poisoned(at);
#else
    return isnan(*(const float *)at);
#endif
}

static void assert_fenced(const struct ha_rows *run, size_t rows)
{
    const size_t end = rows + ha_fence_rows(&mine.ctx);
    for (size_t at = rows * TOKEN * sizeof(float); at < end * TOKEN * sizeof(float); at += sizeof(float))
        assert_true(is_fence((const char *)run->k + at) && is_fence((const char *)run->v + at));
}

static enum ha_status attend(struct ha_stream *s, const struct ha_device_attend *args)
{
    ok(ha_device_host.stream_sync(s));
    for (size_t b = 0; b < SEQS; b++) {
        const struct ha_rows *run = args->seqs[b].runs;
        assert_int_equal(args->seqs[b].runs_count, 1);
        assert_int_equal(run->keys, shape.ctx[b] + (attended / LAYERS + 1) * Q_LEN);
        for (size_t t = 0; t < run->keys; t++) {
            const float *k = (const float *)((const char *)run->k + t * run->k_stride_bytes),
                        *v = (const float *)((const char *)run->v + t * run->v_stride_bytes);
            for (size_t i = 0; i < TOKEN; i++)
                if (k[i] != number(layer_now, 0, b, t, i) || v[i] != number(layer_now, 1, b, t, i))
                    fail_msg("layer %zu, sequence %zu, token %zu", layer_now, b, t);
        }
        assert_fenced(run, ha_kv_max_tokens(&shape, b));
    }
    attended++;
    return HA_OK;
}

static void prefill(size_t layer)
{
    static float x[2][SEQS][HEADS][CAP][DIM];
    const void *at[2][SEQS];
    for (size_t i = 0; i < 2; i++)
        for (size_t b = 0; b < SEQS; b++) {
            at[i][b] = x[i][b];
            for (size_t t = 0; t < shape.ctx[b]; t++)
                for (size_t j = 0; j < TOKEN; j++) x[i][b][j / DIM][t][j % DIM] = number(layer, i, b, t, j);
        }
    ok(ha_frame_prefill(mine.frame, layer, &(struct ha_prefill){ .k = at[0], .v = at[1], .cap = CAP }, &why));
}

static void step_of(size_t step, size_t layer, float *fresh[2])
{
    float x[2][SEQS][Q_LEN][TOKEN];
    for (size_t i = 0; i < 2; i++) {
        for (size_t b = 0; b < SEQS; b++)
            for (size_t t = 0; t < Q_LEN; t++)
                for (size_t j = 0; j < TOKEN; j++)
                    x[i][b][t][j] = number(layer, i, b, shape.ctx[b] + step * Q_LEN + t, j);
        ok(ha_device_host.copy(mine.ctx.stream, fresh[i], x[i], sizeof x[i], HA_H2D));
    }
    ok(ha_device_host.stream_sync(mine.ctx.stream));
    layer_now = layer;
    static float q[SEQS * Q_LEN * TOKEN], o[SEQS * Q_LEN * TOKEN],
        lse[SEQS * Q_LEN * HEADS]; /* which nobody looks at */
    const struct ha_step args = {
        .step = step, .layer = layer, .q_len = Q_LEN, .q = q, .k = fresh[0], .v = fresh[1], .o = o, .lse = lse
    };
    ok(ha_frame_attend(mine.frame, &args, &why));
}

static void steps_with(const struct ha_device_api *api, size_t moves_each, size_t copies_each, bool checks)
{
    float *fresh[2];
    unwatched = true; /* the test looks into the device's memory */
    open_context(api, &shape, ha_variant_resident.rule);
    const struct ha_device_fill fill = { api, mine.ctx.stream, 0xff, 0 };
    ha_device_arena_fill(mine.ctx.device_arena, &fill);
    mine.ctx.record_selection = checks;
    ok(make_instance());
    for (size_t i = 0; i < 2; i++) {
        fresh[i] = ha_device_alloc(mine.ctx.device_arena, HA_MEM_DEVICE, sizeof(float) * SEQS * Q_LEN * TOKEN,
                                   HA_TAG_SCRATCH, &why);
        assert_non_null(fresh[i]);
    }
    for (size_t layer = 0; layer < LAYERS; layer++) prefill(layer);
    for (int pass = 0; pass < 2; pass++) {
        attended = moves = copies = 0;
        for (size_t step = 0; step < STEPS; step++)
            for (size_t layer = 0; layer < LAYERS; layer++) step_of(step, layer, fresh);
        assert_int_equal(attended, STEPS * LAYERS);
        assert_int_equal(moves, STEPS * LAYERS * moves_each);
        assert_int_equal(copies, STEPS * LAYERS * copies_each);
        ok(ha_frame_rewind(mine.frame, &why));
    }
    close_instance();
}

TEST(new_tokens_of_all_sequences_go_at_once)
{
    struct ha_device_api api = ha_device_host;
    api.move = count_move;
    api.copy = count_copy;
    api.attend = attend;
    steps_with(&api, 2, 0, false);
    steps_with(&api, 2, 0, true);
    api.move = NULL;
    steps_with(&api, 0, 2 * SEQS, true);
}

/* Fences are no memory of the variant's. */
TEST(fences_are_not_counted)
{
    size_t tokens = 0;
    for (size_t b = 0; b < SEQS; b++) tokens += ha_kv_max_tokens(&shape, b);
    for (int checks = 0; checks < 2; checks++) {
        unwatched = true;
        open_context(&ha_device_host, &shape, ha_variant_resident.rule);
        mine.ctx.record_selection = checks;
        ok(make_instance());
        assert_int_equal(ha_fence_rows(&mine.ctx), checks ? HA_FENCE_ROWS : 0);
        assert_int_equal(ha_device_arena_peak_bytes(mine.ctx.device_arena, HA_TAG_KV),
                         2 * LAYERS * tokens * TOKEN * sizeof(float));
        close_instance();
    }
}
