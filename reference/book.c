/* Product quantisation (Jegou et al., IEEE TPAMI 33(1), 2011) in binary64: the books, and what stands for a key. */

#include "reference/definitions.h"

#include "harness/base/fit.h"
#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

static enum ha_status no_memory(const struct ha_def_book *b, struct ha_why *why)
{
    return ha_why(why, HA_ERROR, "%s: no memory", b->rule.variant);
}

static size_t book_floats(const struct ha_def_book *b) { return b->books * b->rule.dims * b->rule.count; }
static size_t heads_of(const struct ha_shape *s) { return s->layers * s->batch * s->kv_heads; }

enum ha_status ha_def_book_create(struct ha_def_book *b, const struct ha_def_book_rule *rule,
                                  const struct ha_shape *shape, const struct ha_fit *fit, struct ha_why *why)
{
    *b = (struct ha_def_book){ .rule = *rule, .shape = *shape, .sample = !fit };
    if (shape->head_dim % rule->dims)
        return ha_why(why, HA_ERROR, "%s: groups of dims=%zu do not divide head_dim=%zu", rule->variant, rule->dims,
                      shape->head_dim);
    b->groups = shape->head_dim / rule->dims;
    b->books = rule->shared ? 1 : b->groups;
    const size_t all = shape->layers * shape->kv_heads * book_floats(b);
    b->centroid = calloc(all, sizeof *b->centroid);
    b->off = calloc(all, sizeof *b->off);
    b->coded = calloc(heads_of(shape), sizeof *b->coded);
    b->square = calloc(rule->count, sizeof *b->square);
    b->near = calloc(rule->count, sizeof *b->near);
    if (!b->centroid || !b->off || !b->coded || !b->square || !b->near) return no_memory(b, why);
    if (!fit) return HA_OK;
    struct ha_tensor t = { .name = "centroids",
                           .type = HA_T_F32,
                           .dims = 5,
                           .dim = { shape->layers, shape->kv_heads, b->books, rule->dims, rule->count } };
    HA_TRY(ha_fit_get(fit, &t, why));
    memcpy(b->centroid, t.data, all * sizeof *b->centroid);
    return HA_OK;
}

void ha_def_book_end(struct ha_def_book *b)
{
    for (size_t i = 0; b->coded && i < heads_of(&b->shape); i++) {
        free(b->coded[i].k);
        free(b->coded[i].off);
        free(b->coded[i].said);
        free(b->coded[i].least);
    }
    free(b->centroid);
    free(b->off);
    free(b->coded);
    free(b->square);
    free(b->near);
}

struct ha_def_coded *ha_def_book_coded(const struct ha_def_book *b, const struct ha_def_head *h)
{
    const struct ha_shape *s = &b->shape;
    return &b->coded[(h->layer * s->batch + h->seq) * s->kv_heads + h->head / ha_shape_group(s)];
}

/* where centroid j of a group has its first dimension; the next one is `count` further on */
static size_t place(const struct ha_def_book *b, const struct ha_def_head *h, size_t group, size_t j)
{
    const size_t kv = h->head / ha_shape_group(&b->shape), book = b->rule.shared ? 0 : group;
    return (h->layer * b->shape.kv_heads + kv) * book_floats(b) + book * b->rule.dims * b->rule.count + j;
}

/* ---- keys before they are turned --------------------------------------------------------------------------------- */

struct about {
    double value[HA_REF_DIM_MAX], off[HA_REF_DIM_MAX];
};

/* Turns x by a token's position, or back; off grows by what its own errors come to, and what binary32 makes of it. */
static void turn(const struct ha_projection *p, size_t token, bool back, struct about *x)
{
    const size_t pairs = p->inv_freq ? p->rotary / 2 : 0;
    for (size_t j = 0; j < pairs; j++) {
        const size_t a = p->adjacent ? 2 * j : j, b = a + (p->adjacent ? 1 : pairs);
        const double angle = (double)token * (double)p->inv_freq[j], by = (double)p->rope_scale,
                     scale = back ? 1 / by : by, c = cos(angle) * scale, s = sin(angle) * (back ? -scale : scale),
                     one = x->value[a], other = x->value[b], e = x->off[a], f = x->off[b];
        const double size_a = fabs(one * c) + fabs(other * s), size_b = fabs(other * c) + fabs(one * s);
        x->value[a] = one * c - other * s;
        x->value[b] = other * c + one * s;
        x->off[a] = e * fabs(c) + f * fabs(s) + ha_ref_gamma(6) * size_a + HA_REF_ETA;
        x->off[b] = f * fabs(c) + e * fabs(s) + ha_ref_gamma(6) * size_b + HA_REF_ETA;
    }
}

static enum ha_status projected(const struct ha_def_book *b, const struct ha_def_head *h, struct ha_why *why)
{
    if (!b->rule.before || (h->projection && h->projection[h->layer].inv_freq)) return HA_OK;
    return ha_why(why, HA_WAIVED, "%s: rotary=before needs a dataset that says how its keys were turned",
                  b->rule.variant);
}

/* as it is coded */
static void key_of(const struct ha_def_book *b, const struct ha_def_head *h, size_t token, struct about *x)
{
    for (size_t d = 0; d < b->shape.head_dim; d++) {
        x->value[d] = (double)ha_load(h->k, token * b->shape.head_dim + d, b->shape.dtype);
        x->off[d] = 0;
    }
    if (b->rule.before) turn(&h->projection[h->layer], token, true, x);
}

/* ---- the sample -------------------------------------------------------------------------------------------------- */

static void take(const struct ha_def_book *b, const struct ha_def_head *h, const struct about *key, size_t from,
                 size_t group, size_t j)
{
    for (size_t d = 0; d < b->rule.dims; d++) {
        const size_t at = place(b, h, group, j) + d * b->rule.count;
        b->centroid[at] = (float)key->value[from * b->rule.dims + d];
        b->off[at] = (float)(key->off[from * b->rule.dims + d] * 1.0001);
    }
}

enum ha_status ha_def_book_prefill(struct ha_def_book *b, const struct ha_def_head *h, struct ha_why *why)
{
    size_t n = 0, before = 0;
    if (!b->sample || h->head % ha_shape_group(&b->shape)) return HA_OK;
    HA_TRY(projected(b, h, why));
    for (size_t i = 0; i < b->shape.batch; i++) {
        n += b->shape.ctx[i];
        before += i < h->seq ? b->shape.ctx[i] : 0;
    }
    struct about key;
    for (size_t j = 0; j < b->rule.count; j++) {
        const size_t element = b->rule.shared ? j * n * b->groups / b->rule.count : 0;
        const size_t at = b->rule.shared ? element / b->groups : j * n / b->rule.count;
        if (at < before || at >= before + h->tokens) continue;
        key_of(b, h, at - before, &key);
        if (b->rule.shared) take(b, h, &key, element % b->groups, 0, j);
        for (size_t g = 0; g < b->groups && !b->rule.shared; g++) take(b, h, &key, g, g, j);
    }
    return HA_OK;
}

/* ---- what stands for a key --------------------------------------------------------------------------------------- */

/* The sum of squared differences of a part of a key and a centroid, as binary32 may have it. */
static struct ha_ref_score distance(const struct ha_def_book *b, const struct about *x, size_t group, size_t at)
{
    struct ha_ref_score s = { 0, 0, 0 };
    for (size_t d = 0; d < b->rule.dims; d++) {
        const size_t i = group * b->rule.dims + d, c = at + d * b->rule.count;
        const double difference = fabs(x->value[i] - (double)b->centroid[c]), off = x->off[i] + (double)b->off[c],
                     least = difference > off ? difference - off : 0;
        s.value += difference * difference;
        s.low += least * least;
        s.high += (difference + off) * (difference + off);
    }
    const double by = ha_ref_gamma((double)b->rule.dims + 2), lost = (double)b->rule.dims * HA_REF_ETA;
    s.low = s.low * (1 - by) > lost ? s.low * (1 - by) - lost : 0;
    s.high = s.high * (1 + by) + lost;
    if (s.high >= (double)FLT_MAX) s.low = 0, s.high = HUGE_VAL; /* which may be infinite like any other */
    return s;
}

/* The values of all distances of a group, which do not ask how far off they may be. */
static void measure(const struct ha_def_book *b, const struct ha_def_head *h, const struct about *x, size_t group)
{
    const float *centroid = b->centroid + place(b, h, group, 0);
    memset(b->square, 0, b->rule.count * sizeof *b->square);
    for (size_t d = 0; d < b->rule.dims; d++, centroid += b->rule.count) {
        const double value = x->value[group * b->rule.dims + d];
        for (size_t j = 0; j < b->rule.count; j++) {
            const double difference = value - (double)centroid[j];
            b->square[j] += difference * difference;
        }
    }
}

/* b->near: those that may be the nearest, whatever is rounded. Others are off by half of the distance and more, where
 * what is known of keys and centroids is exact. */
static size_t keep_near(struct ha_def_book *b, double least)
{
    size_t kept = 0;
    for (size_t j = 0; j < b->rule.count; j++)
        if (b->rule.before || !(b->square[j] > 4 * least)) b->near[kept++] = j;
    return kept;
}

/* The nearest centroid of a group, down to what distance others may be it, and how many of b->near hold those. */
static size_t nearest(struct ha_def_book *b, const struct ha_def_head *h, const struct about *x, size_t group,
                      double *least, size_t *kept)
{
    const size_t first = place(b, h, group, 0);
    const double *square = b->square;
    size_t found = 0;
    measure(b, h, x, group);
    for (size_t j = 1; j < b->rule.count; j++)
        if (square[j] < square[found]) found = j;
    *least = distance(b, x, group, first + found).high;
    *kept = keep_near(b, *least);
    for (size_t i = 0; i < *kept; i++) *least = fmin(*least, distance(b, x, group, first + b->near[i]).high);
    return found;
}

/* The joined centroids, and how far off others that may be the nearest are; before they are turned. least: [groups] */
static void code(struct ha_def_book *b, const struct ha_def_head *h, const struct about *x, struct about *out,
                 double *least)
{
    for (size_t g = 0; g < b->groups; g++) {
        size_t kept;
        const size_t first = place(b, h, g, 0), at = first + nearest(b, h, x, g, &least[g], &kept);
        for (size_t d = 0; d < b->rule.dims; d++) {
            const size_t c = at + d * b->rule.count;
            out->value[g * b->rule.dims + d] = (double)b->centroid[c];
            out->off[g * b->rule.dims + d] = (double)b->off[c];
        }
        for (size_t j = 0; j < kept; j++) {
            const size_t to = first + b->near[j];
            if (to == at || distance(b, x, g, to).low > least[g]) continue;
            for (size_t d = 0; d < b->rule.dims; d++) {
                const size_t c = to + d * b->rule.count, i = g * b->rule.dims + d;
                out->off[i] = fmax(out->off[i], fabs((double)b->centroid[c] - out->value[i]) + (double)b->off[c]);
            }
        }
    }
}

static enum ha_status room_for(const struct ha_def_book *b, struct ha_def_coded *c, size_t keys, struct ha_why *why)
{
    const size_t dim = b->shape.head_dim;
    float *k = realloc(c->k, (keys + 1) * dim * sizeof *k);
    if (k) c->k = k;
    float *off = realloc(c->off, (keys + 1) * dim * sizeof *off);
    if (off) c->off = off;
    bool *said = realloc(c->said, (keys + 1) * sizeof *said);
    if (said) c->said = said;
    double *least = realloc(c->least, (keys + 1) * b->groups * sizeof *least);
    if (least) c->least = least;
    return k && off && said && least ? HA_OK : no_memory(b, why);
}

enum ha_status ha_def_book_code(struct ha_def_book *b, const struct ha_def_head *h, size_t keys, struct ha_why *why)
{
    const size_t dim = b->shape.head_dim;
    struct ha_def_coded *c = ha_def_book_coded(b, h);
    struct about x, out;
    HA_TRY(projected(b, h, why));
    if (keys > c->count) HA_TRY(room_for(b, c, keys, why));
    for (; c->count < keys; c->count++) {
        key_of(b, h, c->count, &x);
        code(b, h, &x, &out, c->least + c->count * b->groups);
        if (b->rule.before) turn(&h->projection[h->layer], c->count, false, &out);
        for (size_t d = 0; d < dim; d++) {
            c->k[c->count * dim + d] = (float)out.value[d];
            c->off[c->count * dim + d] = (float)(out.off[d] * 1.0001);
        }
        c->said[c->count] = false;
    }
    return HA_OK;
}

/* ---- what is reported -------------------------------------------------------------------------------------------- */

/* Whether the group of what stands for a key may be one of the nearest centroids. got: before it was turned; least:
 * down to what distance they may be that */
static bool may_be(const struct ha_def_book *b, const struct ha_def_head *h, const struct about *x, size_t group,
                   const struct about *got, double least)
{
    const size_t first = place(b, h, group, 0);
    for (size_t at = first; at < first + b->rule.count; at++) {
        bool is = true;
        for (size_t d = 0; d < b->rule.dims && is; d++) {
            const size_t i = group * b->rule.dims + d, c = at + d * b->rule.count;
            is = fabs(got->value[i] - (double)b->centroid[c]) <= got->off[i] + (double)b->off[c];
        }
        if (is && distance(b, x, group, at).low <= least) return true;
    }
    return false;
}

static enum ha_status judge_key(const struct ha_def_book *b, const struct ha_def_head *h, size_t token, const float *k,
                                struct ha_why *why)
{
    const size_t dim = b->shape.head_dim;
    struct ha_def_coded *c = ha_def_book_coded(b, h);
    struct about x, got;
    if (c->said[token] && !memcmp(c->k + token * dim, k, dim * sizeof *k)) return HA_OK;
    if (c->said[token]) return ha_def_wrong(h, why, "what stands for key %zu is not what it was before", token);
    key_of(b, h, token, &x);
    for (size_t d = 0; d < dim; d++) {
        got.value[d] = (double)k[d];
        got.off[d] = 0;
    }
    if (b->rule.before) turn(&h->projection[h->layer], token, true, &got);
    for (size_t g = 0; g < b->groups; g++)
        if (!may_be(b, h, &x, g, &got, c->least[token * b->groups + g]))
            return ha_def_wrong(h, why, "what stands for key %zu is not its nearest centroid in group %zu", token, g);
    memcpy(c->k + token * dim, k, dim * sizeof *k);
    memset(c->off + token * dim, 0, dim * sizeof *c->off);
    c->said[token] = true;
    return HA_OK;
}

enum ha_status ha_def_book_judge(struct ha_def_book *b, const struct ha_def_head *h, const struct ha_part *part,
                                 struct ha_why *why)
{
    const struct ha_def_coded *c = ha_def_book_coded(b, h);
    for (size_t i = 0; i < part->count; i++) {
        if (part->token[i] >= c->count) return ha_def_wrong(h, why, "key %u has no code yet", (unsigned)part->token[i]);
        HA_TRY(judge_key(b, h, part->token[i], part->k + i * b->shape.head_dim, why));
    }
    return HA_OK;
}
