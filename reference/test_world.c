#include "reference/test_world.h"

struct ha_test_world ha_test_world(const struct ha_definition *d, const double *param, size_t ctx, const double *weight,
                                   size_t count, const float *seen)
{
    static const float even[HA_TEST_UNITS * HA_TEST_TOKENS];
    struct ha_test_world w = {
        .definition = d,
        .param = param,
        .shape = { .layers = 1,
                   .batch = 1,
                   .q_heads = 1,
                   .kv_heads = 1,
                   .head_dim = 1,
                   .dtype = HA_F32,
                   .scale = 1,
                   .ctx = { ctx, ctx },
                   .observed = 1 },
        .seen = seen ? seen : even,
    };
    for (size_t b = 0; b < HA_TEST_BATCH; b++)
        for (size_t h = 0; h < HA_TEST_HEADS; h++)
            for (size_t j = 0; j < count; j++) w.key[b][h][j] = (float)log(weight[j]);
    return w;
}

struct reporter {
    const struct ha_test_report *report;
    size_t q_heads;
    uint32_t token[2][HA_TEST_TOKENS];
};

static struct ha_part part_of(const struct ha_test_part *part, uint32_t *token, bool on_device)
{
    size_t n = 0;
    for (; part->token[n] >= 0; n++) token[n] = (uint32_t)part->token[n];
    return (struct ha_part){ .token = token, .count = n, .padding = part->padding, .on_device = on_device };
}

static void reported(void *arg, size_t seq, size_t q_head, struct ha_selection *out)
{
    struct reporter *r = arg;
    const struct ha_test_report *report = &r->report[seq * r->q_heads + q_head];
    out->parts = 2;
    out->part[0] = part_of(&report->device, r->token[0], true);
    out->part[1] = part_of(&report->host, r->token[1], false);
    for (size_t i = 0; i < COUNT(report->note) && report->note[i].name; i++) out->note[out->notes++] = report->note[i];
}

enum ha_status ha_test_other(const struct ha_test_world *w, const struct ha_test_step *step, size_t steps,
                             const struct ha_test_report *last, struct ha_why *why)
{
    const struct ha_definition *d = w->definition;
    const struct ha_shape *s = &w->shape;
    const void *const k[HA_TEST_BATCH] = { w->key[0], w->key[1] };
    const float *const seen[HA_TEST_BATCH] = { w->seen, w->seen + s->observed * s->q_heads };
    size_t tokens[HA_TEST_BATCH] = { s->ctx[0], s->ctx[1] };
    static const struct ha_profile observer = {
        .dot_lanes = 1, .sum_lanes = 1, .exp_eps = 0x1p-22, .log_eps = 0x1p-22
    };
    struct ha_def_step in = { .k = k, .tokens = tokens, .kv_cap = HA_TEST_TOKENS, .observer = &observer };
    struct ha_def *def = NULL;
    *why = (struct ha_why){ "" };
    enum ha_status status = d->create ? d->create(&def, s, w->param, NULL, why) : HA_OK;
    if (status == HA_OK && d->prefill) status = ha_definition_prefill(d, def, s, &in, seen, why);
    for (size_t i = 0; i < steps; i++) {
        if (status != HA_OK) fail_msg("before step %zu: %s", i, why->text);
        struct reporter r = { .report = i + 1 < steps ? step[i].report : last, .q_heads = s->q_heads };
        in.q_len = step[i].q_len;
        in.q = step[i].q;
        for (size_t b = 0; b < s->batch; b++) tokens[b] += in.q_len;
        status = ha_definition_step(d, def, s, &in, reported, &r, why);
    }
    if (def) d->destroy(def);
    return status;
}

void ha_test_accept(const struct ha_test_world *w, const struct ha_test_step *step, size_t steps)
{
    struct ha_why why;
    if (ha_test_other(w, step, steps, step[steps - 1].report, &why) != HA_OK) fail_msg("%s", why.text);
}

void ha_test_reject(const struct ha_test_world *w, const struct ha_test_step *step, size_t steps,
                    const struct ha_test_report *last, const char *text)
{
    struct ha_why why;
    assert_int_equal(ha_test_other(w, step, steps, last, &why), HA_FAIL);
    if (!strstr(why.text, text)) fail_msg("\"%s\" does not say \"%s\"", why.text, text);
}
