/* The way through a definition, head by head, and the reading of what was reported. */

#include "reference/definitions.h"

#include "harness/base/why.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum ha_status ha_def_wrong(const struct ha_def_head *h, struct ha_why *why, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ha_why(why, HA_FAIL, "%s layer %zu seq %zu head %zu: %s", h->variant, h->layer, h->seq, h->head, text);
}

enum ha_status ha_selection_check(const struct ha_selection *s, size_t tokens, struct ha_why *why)
{
    if (s->parts > HA_PARTS_MAX)
        return ha_why(why, HA_FAIL, "%zu parts, at most %d are possible", s->parts, (int)HA_PARTS_MAX);
    if (s->notes > HA_NOTES_MAX)
        return ha_why(why, HA_FAIL, "%zu notes, at most %d are possible", s->notes, (int)HA_NOTES_MAX);
    if (s->learnt_count && !s->learnt)
        return ha_why(why, HA_FAIL, "%zu numbers were learnt, and learnt is NULL", s->learnt_count);
    for (size_t i = 0; i < s->notes; i++)
        if (!s->note[i].name) return ha_why(why, HA_FAIL, "note %zu has no name", i);
    for (size_t i = 0; i < s->parts; i++) {
        const struct ha_part *part = &s->part[i];
        if (part->count > tokens)
            return ha_why(why, HA_FAIL, "part %zu has %zu keys, of %zu tokens", i, part->count, tokens);
        if (part->padding > part->count)
            return ha_why(why, HA_FAIL, "part %zu has %zu keys, %zu of them padding", i, part->count, part->padding);
        if (part->count && !part->token)
            return ha_why(why, HA_FAIL, "part %zu has %zu keys, and its token is NULL", i, part->count);
    }
    return HA_OK;
}

/* HA_FAIL: what cannot be read, a token that does not exist, or one that is used twice, or padding in a definition that
 * has none. */
static enum ha_status mark_tokens(const struct ha_selection *s, const struct ha_def_head *h, bool pads, uint8_t *mark,
                                  struct ha_why *why)
{
    memset(mark, HA_MARK_NONE, h->tokens);
    struct ha_why reason = { "" };
    if (ha_selection_check(s, h->tokens, &reason) != HA_OK) return ha_def_wrong(h, why, "%s", reason.text);
    for (size_t i = 0; i < s->parts; i++) {
        const struct ha_part *part = &s->part[i];
        for (size_t j = 0; j < part->count; j++) {
            const size_t token = part->token[j];
            const bool padding = j + part->padding >= part->count;
            if (token >= h->tokens) return ha_def_wrong(h, why, "key %zu does not exist yet", token);
            if (mark[token] != HA_MARK_NONE) return ha_def_wrong(h, why, "key %zu is used twice", token);
            if (padding && !pads)
                return ha_def_wrong(h, why, "key %zu is called padding; nothing is padded here", token);
            mark[token] = (uint8_t)((part->on_device ? HA_MARK_DEVICE : HA_MARK_HOST)
                                    | (padding ? HA_MARK_PADDING : 0));
        }
    }
    return HA_OK;
}

/* unit: sequence * q_heads + head; q: the queries of its sequence */
static struct ha_def_head head_of(const struct ha_definition *d, const struct ha_shape *s, const struct ha_def_step *in,
                                  size_t unit, const float *q, size_t queries)
{
    const size_t seq = unit / s->q_heads, head = unit % s->q_heads;
    const size_t stride = in->kv_cap * s->head_dim, at = head / ha_shape_group(s) * stride * ha_dtype_bytes(s->dtype);
    return (struct ha_def_head){
        .variant = d->variant,
        .layer = in->layer,
        .seq = seq,
        .head = head,
        .index = in->layer * s->batch * s->q_heads + unit,
        .tokens = in->tokens[seq],
        .k = (const char *)in->k[seq] + at,
        .v = in->v ? (const char *)in->v[seq] + at : NULL,
        .kv_stride = stride,
        .q = q + head * s->head_dim,
        .queries = queries,
        .projection = in->projection,
        .observer = in->observer,
    };
}

enum ha_status ha_definition_prefill(const struct ha_definition *d, struct ha_def *def, const struct ha_shape *s,
                                     const struct ha_def_step *kv, const float *const *q, struct ha_why *why)
{
    for (size_t unit = 0; unit < s->batch * s->q_heads; unit++) {
        const size_t seq = unit / s->q_heads, tokens = kv->tokens[seq];
        const size_t observed = s->observed < tokens ? s->observed : tokens;
        const struct ha_def_head h = head_of(d, s, kv, unit, q[seq], observed);
        HA_TRY(d->prefill(def, &h, why));
    }
    return HA_OK;
}

static struct ha_def_head head_of_step(const struct ha_definition *d, const struct ha_shape *s,
                                       const struct ha_def_step *in, size_t unit)
{
    const size_t row = unit / s->q_heads * in->q_len;
    struct ha_def_head h = head_of(d, s, in, unit, in->q + row * s->q_heads * s->head_dim, in->q_len);
    if (in->x) h.x = in->x + row * s->model_dim;
    return h;
}

double ha_def_note(const struct ha_def_head *h, const char *name)
{
    for (size_t i = 0; h->chosen && i < h->chosen->notes; i++)
        if (!strcmp(h->chosen->note[i].name, name)) return h->chosen->note[i].value;
    return (double)NAN;
}

enum ha_status ha_definition_step(const struct ha_definition *d, struct ha_def *def, const struct ha_shape *s,
                                  const struct ha_def_step *in,
                                  void (*reported)(void *arg, size_t seq, size_t q_head, struct ha_selection *out),
                                  void *arg, struct ha_why *why)
{
    const size_t units = s->batch * s->q_heads;
    size_t longest = 0;
    for (size_t b = 0; b < s->batch; b++) longest = in->tokens[b] > longest ? in->tokens[b] : longest;
    uint8_t *mark = malloc(longest + 1);
    if (!mark) return ha_why(why, HA_ERROR, "%s: no memory for %zu tokens", d->variant, longest);
    enum ha_status status = HA_OK;
    for (size_t unit = 0; unit < units && status == HA_OK; unit++) {
        struct ha_def_head h = head_of_step(d, s, in, unit);
        struct ha_selection selection = { .parts = 0 };
        reported(arg, h.seq, h.head, &selection);
        h.chosen = &selection;
        status = mark_tokens(&selection, &h, d->pads, mark, why);
        if (status == HA_OK) status = d->judge(def, &h, mark, why);
    }
    free(mark);
    for (size_t unit = 0; unit < units && status == HA_OK && d->advance; unit++) {
        const struct ha_def_head h = head_of_step(d, s, in, unit);
        status = d->advance(def, &h, why);
    }
    return status;
}
