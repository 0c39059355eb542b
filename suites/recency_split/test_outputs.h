#ifndef HA_TEST_OUTPUTS_H
#define HA_TEST_OUTPUTS_H

/* For tests: what comes out of all steps of a case with batch=1, and which keys were used. */

#include "suites/variants/test_session.h"

#include "harness/base/device_arena.h"

#include <stdlib.h>
#include <string.h>

/* Of row r, [steps][layers][q_heads]: o, of which each row has head_dim, [step][layer][q_len]; LSE; keys. */
struct outputs {
    struct ha_shape shape;
    float *o, *lse;    /* [steps][layers][q_len][q_heads]([head_dim]) */
    uint8_t *used;     /* [steps][layers][q_heads][tokens] whether a key was used */
    size_t tokens;     /* at the end */
    uint64_t kv_bytes; /* on the device, at most */
};

static inline void keep_selection(struct outputs *out, const struct ha_pass *p, size_t step, size_t layer, size_t head)
{
    const struct ha_shape *s = &out->shape;
    struct ha_selection chosen = { .parts = 0 };
    uint8_t *used = out->used + ((step * s->layers + layer) * s->q_heads + head) * out->tokens;
    p->variant->selection(p->instance, layer, 0, head, &chosen);
    for (size_t part = 0; part < chosen.parts; part++)
        for (size_t i = 0; i < chosen.part[part].count; i++) used[chosen.part[part].token[i]] = 1;
}

/* The session is open, and is closed. */
static inline struct outputs outputs_of_session(void)
{
    struct ha_pass p;
    const struct ha_shape *s = &session.workload->shape;
    const size_t rows = s->q_len * s->q_heads;
    struct outputs out = { .shape = *s, .tokens = s->ctx[0] + s->steps * s->q_len };
    out.o = calloc(s->steps * s->layers * rows * s->head_dim, sizeof *out.o);
    out.lse = calloc(s->steps * s->layers * rows, sizeof *out.lse);
    out.used = calloc(s->steps * s->layers * s->q_heads, out.tokens);
    assert_true(out.o && out.lse && out.used);
    begin_pass(&p, true);
    for (size_t step = 0; step < s->steps; step++) {
        assert_ok(ha_pass_step(&p, step, &reason));
        for (size_t layer = 0; layer < s->layers; layer++) {
            const size_t at = (step * s->layers + layer) * rows;
            memcpy(out.o + at * s->head_dim, ha_session_o(&session, layer), rows * s->head_dim * sizeof *out.o);
            memcpy(out.lse + at, ha_session_lse(&session, layer), rows * sizeof *out.lse);
            for (size_t head = 0; head < s->q_heads; head++) keep_selection(&out, &p, step, layer, head);
        }
    }
    out.kv_bytes = ha_device_arena_peak_bytes(p.device_arena, HA_TAG_KV);
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    close_session();
    return out;
}

static inline struct outputs outputs_of(const char *id)
{
    open_session(id);
    return outputs_of_session();
}

static inline void outputs_free(struct outputs *out)
{
    free(out->o);
    free(out->lse);
    free(out->used);
}

/* Whether a query head has used the same keys in a step, and got the same but for roundings. */
static inline bool same_head(const struct outputs *x, const struct outputs *y, size_t step, size_t layer, size_t head)
{
    const struct ha_shape *s = &x->shape;
    const size_t of = step * s->layers + layer, keys = (of * s->q_heads + head) * x->tokens;
    if (memcmp(x->used + keys, y->used + keys, x->tokens) != 0) return false;
    for (size_t t = 0; t < s->q_len; t++) {
        const size_t row = (of * s->q_len + t) * s->q_heads + head;
        if (!(fabsf(x->lse[row] - y->lse[row]) <= 1e-4f)) return false;
        for (size_t d = row * s->head_dim; d < (row + 1) * s->head_dim; d++)
            if (!(fabsf(x->o[d] - y->o[d]) <= 1e-4f)) return false;
    }
    return true;
}

static inline void expect_same(const char *x_id, const char *y_id)
{
    struct outputs x = outputs_of(x_id), y = outputs_of(y_id);
    for (size_t i = 0; i < x.shape.steps * x.shape.layers * x.shape.q_heads; i++) {
        const size_t head = i % x.shape.q_heads, of = i / x.shape.q_heads;
        if (!same_head(&x, &y, of / x.shape.layers, of % x.shape.layers, head))
            fail_msg("step %zu layer %zu head %zu of %s is not that of %s", of / x.shape.layers, of % x.shape.layers,
                     head, x_id, y_id);
    }
    outputs_free(&x);
    outputs_free(&y);
}

static inline size_t keys_used(const struct outputs *x, size_t step, size_t layer, size_t head)
{
    const uint8_t *used = x->used + ((step * x->shape.layers + layer) * x->shape.q_heads + head) * x->tokens;
    size_t n = 0;
    for (size_t t = 0; t < x->tokens; t++) n += used[t];
    return n;
}

#endif
