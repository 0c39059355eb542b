#include "reference/rows.h"

enum { SUMS = 6 }; /* arrays of head_dim doubles for each query */

/* w: [2][keys], the weights of the key set and those of the rest; sums: [SUMS][dim] */
struct pass {
    double *inside, *outside;
    double *o_inside, *o_outside, *rest_inside, *rest_outside, *lo, *hi;
    double mass_inside, mass_outside;
};

static struct pass begin(double *w, size_t keys, double *sums, size_t dim)
{
    struct pass p = {
        .inside = w,
        .outside = w + keys,
        .o_inside = sums,
        .o_outside = sums + dim,
        .rest_inside = sums + 2 * dim,
        .rest_outside = sums + 3 * dim,
        .lo = sums + 4 * dim,
        .hi = sums + 5 * dim,
    };
    for (size_t i = 0; i < dim; i++) {
        p.o_inside[i] = p.o_outside[i] = p.rest_inside[i] = p.rest_outside[i] = 0;
        p.lo[i] = HUGE_VAL;
        p.hi[i] = -HUGE_VAL;
    }
    return p;
}

/* All scores are in outside; the key set's weights move to inside. */
static void split(struct pass *p, const struct ha_ref_choice *c)
{
    double max = -HUGE_VAL;
    for (size_t j = 0; j < c->visible; j++) max = p->outside[j] > max || isnan(p->outside[j]) ? p->outside[j] : max;
    for (size_t j = 0; j < c->visible; j++) {
        p->inside[j] = 0;
        p->outside[j] = max == -HUGE_VAL ? 0 : exp(p->outside[j] - max);
    }
    for (size_t j = 0; j < c->count; j++) {
        const size_t t = c->token[j];
        if (t >= c->visible || p->inside[t] > 0) continue;
        p->inside[t] = p->outside[t];
        p->outside[t] = 0;
    }
    p->mass_inside = p->mass_outside = 0;
    for (size_t j = 0; j < c->visible; j++) {
        p->mass_inside += p->inside[j];
        p->mass_outside += p->outside[j];
    }
}

static void range_of_dropped(const struct ha_ref_tile *tile, size_t rows, struct pass *p)
{
    for (size_t r = 0; r < rows; r++) {
        if (!(p->outside[tile->first + r] > 0)) continue;
        const float *v = tile->data + r * tile->dim;
        for (size_t i = 0; i < tile->dim; i++) {
            const double x = (double)v[i];
            p->lo[i] = x < p->lo[i] ? x : p->lo[i];
            p->hi[i] = x > p->hi[i] ? x : p->hi[i];
        }
    }
}

static void finish(const struct pass *p, size_t dim, const struct ha_ref_choice *c)
{
    const double all = p->mass_inside + p->mass_outside, dropped = p->mass_outside / all;
    *c->out = (struct ha_ref_quality){ .mass = all > 0 ? p->mass_inside / all : 1 };
    for (size_t i = 0; i < dim && (all > 0 || isnan(all)); i++) {
        const double in = p->o_inside[i] + p->rest_inside[i], out = p->o_outside[i] + p->rest_outside[i];
        const double o = (in + out) / all, chosen = p->mass_inside > 0 ? in / p->mass_inside : 0;
        const double difference = (double)c->got[i] - o;
        c->out->diff2 += difference * difference;
        c->out->norm2 += o * o;
        if (!(p->mass_outside > 0)) continue;
        const double certificate = dropped * fmax(fabs(p->hi[i] - chosen), fabs(p->lo[i] - chosen));
        /* what the subtraction itself rounds off does not count as deviation */
        const double deviation = fabs(o - chosen) - 0x1p-50 * (fabs(o) + fabs(chosen));
        if (deviation > 0) c->out->cert_slack = fmax(c->out->cert_slack, deviation / certificate);
    }
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

enum { QUERIES = 32 };

/* weight: [count][2][keys], sums: [count][SUMS][dim] */
static void judge(const struct ha_ref_choice *choice, size_t count, size_t dim, double scale,
                  const struct ha_rows *rows, enum ha_dtype dtype, double *weight, double *sums)
{
    struct ha_ref_tile tile;
    struct pass pass[QUERIES];
    size_t seen = 0;
    for (size_t c = 0; c < count; c++) {
        seen = choice[c].visible > seen ? choice[c].visible : seen;
        pass[c] = begin(weight + c * 2 * rows->keys, rows->keys, sums + c * SUMS * dim, dim);
    }
    for (size_t j = 0; j < seen; j += HA_REF_TILE) {
        ha_ref_tile_load_k(&tile, rows, j, dim, dtype);
        for (size_t c = 0; c < count; c++)
            if (choice[c].visible > j)
                ha_ref_tile_score(&tile, smaller(choice[c].visible - j, tile.rows), choice[c].q, scale, pass[c].outside,
                                  pass[c].inside);
    }
    for (size_t c = 0; c < count; c++) split(&pass[c], &choice[c]);
    for (size_t j = 0; j < seen; j += HA_REF_TILE) {
        ha_ref_tile_load_v(&tile, rows, j, dim, dtype);
        for (size_t c = 0; c < count; c++)
            if (choice[c].visible > j) {
                const size_t n = smaller(choice[c].visible - j, tile.rows);
                ha_ref_tile_weigh(&tile, n, pass[c].inside, pass[c].o_inside, pass[c].rest_inside);
                ha_ref_tile_weigh(&tile, n, pass[c].outside, pass[c].o_outside, pass[c].rest_outside);
                range_of_dropped(&tile, n, &pass[c]);
            }
    }
    for (size_t c = 0; c < count; c++) finish(&pass[c], dim, &choice[c]);
}

void ha_ref_quality_group(const struct ha_ref_choice *choice, size_t count, size_t head_dim, double scale,
                          const struct ha_rows *rows, enum ha_dtype dtype, double *work)
{
    for (size_t c = 0; c < count; c += QUERIES) {
        const size_t n = smaller(count - c, QUERIES);
        judge(choice + c, n, head_dim, scale, rows, dtype, work, work + n * 2 * rows->keys);
    }
}

void ha_ref_quality(const float *q, size_t head_dim, double scale, const struct ha_rows *rows, enum ha_dtype dtype,
                    const float *got, const uint32_t *token, size_t count, double *work, struct ha_ref_quality *out)
{
    const struct ha_ref_choice choice = {
        .q = q, .visible = rows->keys, .got = got, .token = token, .count = count, .out = out
    };
    double sums[SUMS * HA_REF_DIM_MAX];
    judge(&choice, 1, head_dim, scale, rows, dtype, work, sums);
}
