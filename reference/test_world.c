#include "reference/test_world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct ha_test_world ha_test_world(size_t batch, size_t q_heads, size_t kv_heads, size_t ctx, size_t observed)
{
    struct ha_test_world w = { .shape = { .layers = 1,
                                          .batch = batch,
                                          .q_heads = q_heads,
                                          .kv_heads = kv_heads,
                                          .head_dim = 1,
                                          .dtype = HA_F32,
                                          .scale = 1,
                                          .q_len = 1,
                                          .steps = 8,
                                          .observed = observed } };
    for (size_t b = 0; b < batch; b++) w.shape.ctx[b] = w.tokens[b] = ctx;
    return w;
}

void ha_test_world_weights(struct ha_test_world *w, size_t seq, const double *weight, size_t count)
{
    for (size_t h = 0; h < w->shape.kv_heads; h++)
        for (size_t j = 0; j < count; j++) w->key[seq][h][j] = (float)log(weight[j]);
}

struct ha_def *ha_test_create(const struct ha_definition *d, const struct ha_test_world *w, const double *param,
                              size_t threads)
{
    struct ha_def *def = NULL;
    struct ha_why why = { "" };
    if (d->create(&def, &w->shape, param, threads, &why) != HA_OK) fail_msg("%s", why.text);
    return def;
}

static struct ha_def_step view(struct ha_test_world *w, const void *k[HA_TEST_BATCH])
{
    for (size_t b = 0; b < w->shape.batch; b++) k[b] = w->key[b];
    return (struct ha_def_step){ .k = k, .v = k, .tokens = w->tokens, .kv_cap = HA_TEST_TOKENS };
}

void ha_test_prefill(const struct ha_definition *d, struct ha_def *def, struct ha_test_world *w, const float *q)
{
    const void *k[HA_TEST_BATCH];
    const float *queries[HA_TEST_BATCH];
    const struct ha_def_step kv = view(w, k);
    for (size_t b = 0; b < w->shape.batch; b++) queries[b] = q + b * w->shape.observed * w->shape.q_heads;
    struct ha_why why = { "" };
    if (d->prefill(def, 0, &kv, queries, &why) != HA_OK) fail_msg("%s", why.text);
}

struct reporter {
    const struct ha_test_report *report;
    size_t q_heads;
    uint32_t token[2][HA_TEST_TOKENS];
};

static size_t copy(const struct ha_test_part *part, uint32_t *token)
{
    size_t n = 0;
    for (; part->token[n] >= 0; n++) token[n] = (uint32_t)part->token[n];
    return n;
}

static void reported(void *arg, size_t seq, size_t q_head, struct ha_selection *out)
{
    struct reporter *r = arg;
    const struct ha_test_report *report = &r->report[seq * r->q_heads + q_head];
    const size_t device = copy(&report->device, r->token[0]), host = copy(&report->host, r->token[1]);
    *out = (struct ha_selection){ .parts = 2 };
    out->part[0] = (struct ha_part){ r->token[0], device, report->device.padding, true };
    out->part[1] = (struct ha_part){ r->token[1], host, report->host.padding, false };
}

enum ha_status ha_test_step(const struct ha_definition *d, struct ha_def *def, struct ha_test_world *w, size_t q_len,
                            const float *q, const struct ha_test_report *report, struct ha_why *why)
{
    struct reporter r = { .report = report, .q_heads = w->shape.q_heads };
    for (size_t b = 0; b < w->shape.batch; b++) w->tokens[b] += q_len;
    const void *k[HA_TEST_BATCH];
    struct ha_def_step in = view(w, k);
    in.q_len = q_len;
    in.q = q;
    why->text[0] = 0;
    return d->step(def, &in, reported, &r, why);
}
