#include "suites/variants/chosen.h"

#include "harness/base/array.h"
#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

enum { STRIDE = HA_PARTS_MAX + 1 };

/* One bit for each token, all clear between uses. */
struct bits {
    uint64_t *word;
    size_t words;
};

/* Moves the set bits of `now` to token, ascending, and into `before`. */
static void drain_bits(struct bits *now, struct bits *before, uint32_t *token)
{
    for (size_t i = 0; i < now->words; i++) {
        before->word[i] |= now->word[i];
        for (uint64_t w = now->word[i]; w; w &= w - 1) *token++ = (uint32_t)(64 * i + (size_t)__builtin_ctzll(w));
        now->word[i] = 0;
    }
}

static enum ha_status add_part(struct ha_chosen *c, const struct ha_part *part, struct bits *now, struct bits *before,
                               size_t tokens, struct ha_why *why)
{
    if (part->padding > part->count)
        return ha_why(why, HA_FAIL, "a part of %zu keys says that %zu are padding", part->count, part->padding);
    for (size_t i = 0; i < part->count; i++) {
        size_t t = part->token[i];
        if (t >= tokens) return ha_why(why, HA_FAIL, "key %zu does not exist: the sequence has %zu tokens", t, tokens);
        if ((now->word[t / 64] | before->word[t / 64]) >> t % 64 & 1)
            return ha_why(why, HA_FAIL, "key %zu is listed twice", t);
        now->word[t / 64] |= UINT64_C(1) << t % 64;
    }
    drain_bits(now, before, c->token + c->count);
    c->count += part->count;
    return HA_OK;
}

static enum ha_status read_head(struct ha_chosen *c, size_t head, const struct ha_selection *s, struct bits bits[2],
                                size_t tokens, struct ha_why *why)
{
    size_t *offset = c->offset + head * STRIDE;

    if (s->parts > HA_PARTS_MAX)
        return ha_why(why, HA_FAIL, "%zu parts are reported, of at most %d", s->parts, HA_PARTS_MAX);
    for (size_t p = 0; p < HA_PARTS_MAX; p++) {
        offset[p] = c->count;
        if (p >= s->parts) continue;
        c->on_device[head * HA_PARTS_MAX + p] = s->part[p].on_device;
        HA_TRY(add_part(c, &s->part[p], &bits[0], &bits[1], tokens, why));
    }
    offset[HA_PARTS_MAX] = c->count;
    if (s->parts > c->parts) c->parts = s->parts;
    memset(bits[1].word, 0, bits[1].words * sizeof *bits[1].word);
    return HA_OK;
}

enum ha_status ha_chosen_read(struct ha_chosen *c, const struct ha_pass *pass, size_t step, size_t layer, size_t seq,
                              struct ha_why *why)
{
    const struct ha_workload *w = pass->session->workload;
    size_t heads = w->shape.q_heads, tokens = ha_workload_tokens(w, seq, step + 1), words = (tokens + 63) / 64,
           capacity = 0;
    struct bits bits[2] = { { calloc(words, sizeof(uint64_t)), words }, { calloc(words, sizeof(uint64_t)), words } };
    enum ha_status status = HA_OK;

    *c = (struct ha_chosen){ .offset = calloc(heads * STRIDE, sizeof *c->offset),
                             .on_device = calloc(heads * HA_PARTS_MAX, sizeof(bool)) };
    if (!bits[0].word || !bits[1].word || !c->offset || !c->on_device)
        status = ha_why(why, HA_ERROR, "no memory for a selection");
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
    free(bits[0].word);
    free(bits[1].word);
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
