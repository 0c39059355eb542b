#include "suites/variants/check.h"

#include "harness/base/array.h"
#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

enum { STRIDE = HA_PARTS_MAX + 1 };

/* now, before: a bit for each token, all clear between uses. Moves the set bits of `now` to the chosen tokens,
 * ascending, and into `before`. */
static enum ha_status add_part(struct ha_chosen *c, const struct ha_part *part, uint64_t *now, uint64_t *before,
                               size_t tokens, struct ha_why *why)
{
    if (part->padding > part->count)
        return ha_why(why, HA_FAIL, "a part of %zu keys says that %zu are padding", part->count, part->padding);
    for (size_t i = 0; i < part->count; i++) {
        size_t t = part->token[i];
        if (t >= tokens) return ha_why(why, HA_FAIL, "key %zu does not exist: the sequence has %zu tokens", t, tokens);
        if ((now[t / 64] | before[t / 64]) >> t % 64 & 1) return ha_why(why, HA_FAIL, "key %zu is listed twice", t);
        now[t / 64] |= UINT64_C(1) << t % 64;
    }
    for (size_t i = 0; i < (tokens + 63) / 64; i++) {
        for (uint64_t w = now[i]; w; w &= w - 1) c->token[c->count++] = (uint32_t)(64 * i + (size_t)__builtin_ctzll(w));
        before[i] |= now[i];
        now[i] = 0;
    }
    return HA_OK;
}

static enum ha_status read_head(struct ha_chosen *c, size_t head, const struct ha_selection *s, uint64_t *bits,
                                size_t tokens, struct ha_why *why)
{
    size_t *offset = c->offset + head * STRIDE, words = (tokens + 63) / 64;

    if (s->parts > HA_PARTS_MAX)
        return ha_why(why, HA_FAIL, "%zu parts are reported, of at most %d", s->parts, HA_PARTS_MAX);
    for (size_t p = 0; p < HA_PARTS_MAX; p++) {
        offset[p] = c->count;
        if (p >= s->parts) continue;
        c->on_device[head * HA_PARTS_MAX + p] = s->part[p].on_device;
        HA_TRY(add_part(c, &s->part[p], bits, bits + words, tokens, why));
    }
    offset[HA_PARTS_MAX] = c->count;
    if (s->parts > c->parts) c->parts = s->parts;
    memset(bits + words, 0, words * sizeof *bits);
    return HA_OK;
}

enum ha_status ha_chosen_read(struct ha_chosen *c, const struct ha_pass *pass, size_t step, size_t layer, size_t seq,
                              struct ha_why *why)
{
    const struct ha_workload *w = pass->session->workload;
    size_t heads = w->shape.q_heads, tokens = ha_workload_tokens(w, seq, step + 1), capacity = 0;
    uint64_t *bits = calloc(2 * ((tokens + 63) / 64), sizeof *bits);
    enum ha_status status = HA_OK;

    *c = (struct ha_chosen){ .offset = calloc(heads * STRIDE, sizeof *c->offset),
                             .on_device = calloc(heads * HA_PARTS_MAX, sizeof(bool)) };
    if (!bits || !c->offset || !c->on_device) status = ha_why(why, HA_ERROR, "no memory for a selection");
    for (size_t head = 0; head < heads && status == HA_OK; head++) {
        struct ha_selection s = { .parts = 0 };
        struct ha_why reason = { "" };
        pass->variant->selection(pass->instance, layer, seq, head, &s);
        /* no head has more valid keys than there are tokens; more are found to be repeated before they are stored */
        if (!ha_array_room(&c->token, &capacity, c->count + tokens, sizeof *c->token)) {
            status = ha_why(why, HA_ERROR, "no memory for a selection");
            break;
        }
        status = read_head(c, head, &s, bits, tokens, &reason);
        if (status != HA_OK)
            ha_why(why, status, "selection, layer %zu step %zu seq %zu head %zu: %s", layer, step, seq, head,
                   reason.text);
    }
    free(bits);
    return status;
}

void ha_chosen_free(struct ha_chosen *c)
{
    free(c->token);
    free(c->offset);
    free(c->on_device);
    *c = (struct ha_chosen){ .token = NULL };
}

size_t ha_chosen_keys(const struct ha_chosen *c, size_t head)
{
    return c->offset[head * STRIDE + HA_PARTS_MAX] - c->offset[head * STRIDE];
}

size_t ha_chosen_device_keys(const struct ha_chosen *c, size_t head)
{
    size_t keys = 0;

    for (size_t p = 0; p < HA_PARTS_MAX; p++)
        if (c->on_device[head * HA_PARTS_MAX + p])
            keys += c->offset[head * STRIDE + p + 1] - c->offset[head * STRIDE + p];
    return keys;
}

bool ha_chosen_same(const struct ha_chosen *c, size_t a, size_t b)
{
    const size_t *x = c->offset + a * STRIDE, *y = c->offset + b * STRIDE;

    for (size_t p = 0; p < HA_PARTS_MAX; p++)
        if (x[p + 1] - x[p] != y[p + 1] - y[p]
            || c->on_device[a * HA_PARTS_MAX + p] != c->on_device[b * HA_PARTS_MAX + p])
            return false;
    return !memcmp(c->token + x[0], c->token + y[0], ha_chosen_keys(c, a) * sizeof *c->token);
}
