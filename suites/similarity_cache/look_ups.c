#include "suites/similarity_cache/look_ups.h"

#include "harness/base/arena.h"
#include "harness/base/why.h"
#include "suites/parts/kept.h"

#include <math.h>
#include <string.h>

static void *zeros(const struct ha_context *ctx, size_t bytes, enum ha_tag tag, struct ha_why *why)
{
    void *x = ha_alloc(ctx->arena, bytes, tag, why);
    return x ? memset(x, 0, bytes) : NULL;
}

enum ha_status ha_look_ups_create(struct ha_look_ups *u, const struct ha_context *ctx, size_t sink, size_t recent,
                                  size_t list_max, size_t units, bool compares, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    *u = (struct ha_look_ups){ .lists = s->batch * s->kv_heads, .list_max = list_max, .sink = sink, .recent = recent };
    u->layer = zeros(ctx, s->layers * sizeof *u->layer, HA_TAG_META, why);
    u->had = u->layer ? zeros(ctx, units * sizeof *u->had, HA_TAG_SCRATCH, why) : NULL;
    if (!u->had) return HA_ERROR;
    for (size_t i = 0; i < s->layers; i++) {
        struct ha_look_ups_layer *of = &u->layer[i];
        of->chosen_at = zeros(ctx, u->lists * sizeof *of->chosen_at, HA_TAG_META, why);
        if (!of->chosen_at) return HA_ERROR;
        if (!compares) continue;
        of->choice = zeros(ctx, u->lists * (1 + list_max) * sizeof *of->choice, HA_TAG_SCRATCH, why);
        if (!of->choice) return HA_ERROR;
    }
    return HA_OK;
}

void ha_look_ups_clear(const struct ha_look_ups *u, size_t layer)
{
    struct ha_look_ups_layer *of = &u->layer[layer];
    *of = (struct ha_look_ups_layer){ .chosen_at = of->chosen_at, .choice = of->choice };
}

/* A new choice beside the one before it, which it replaces. */
static void compare(const struct ha_look_ups *u, struct ha_look_ups_layer *of, uint32_t *before, const uint32_t *now,
                    size_t units, float similarity)
{
    struct ha_look_ups_share *to = similarity >= 0.8F                        ? &of->high
                                   : similarity >= 0.4F && similarity < 0.6F ? &of->low
                                                                             : NULL;
    for (size_t i = 1; to && i <= before[0]; i++) u->had[before[i]] = true;
    for (size_t i = 0; to && i < units; i++) to->units += u->had[now[i]];
    for (size_t i = 1; to && i <= before[0]; i++) u->had[before[i]] = false;
    if (to) to->of += (double)units;
    before[0] = (uint32_t)units;
    memcpy(before + 1, now, units * sizeof *now);
}

void ha_look_ups_add(const struct ha_look_ups *u, size_t layer, size_t list, size_t tokens, bool missed,
                     float similarity, const uint32_t *now, size_t units)
{
    struct ha_look_ups_layer *of = &u->layer[layer];
    const bool labelled = isfinite(similarity);
    of->labels += labelled;
    of->similarity += labelled ? (double)similarity : 0;
    of->hits += !missed;
    if (missed && of->choice) compare(u, of, of->choice + list * (1 + u->list_max), now, units, similarity);
    if (missed) of->chosen_at[list] = tokens;
    of->left_out += (double)(ha_kept_gone(u->sink, u->recent, tokens)
                             - ha_kept_gone(u->sink, u->recent, of->chosen_at[list]));
}

void ha_look_ups_count(const struct ha_look_ups *u, size_t layer, ha_count *say, void *arg)
{
    const struct ha_look_ups_layer *of = &u->layer[layer];
    const struct {
        const char *name;
        double sum, of;
    } mean[] = { { "similarity", of->similarity, of->labels },
                 { "overlap_low", of->low.units, of->low.of },
                 { "overlap_high", of->high.units, of->high.of } };
    for (size_t i = 0; i < sizeof mean / sizeof *mean; i++)
        if (mean[i].of > 0) say(arg, mean[i].name, layer, mean[i].sum / mean[i].of);
}
