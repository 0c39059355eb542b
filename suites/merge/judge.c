#include "suites/merge/judge.h"

#include "harness/base/fingerprint.h"
#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The oracle's answer for one row, for one set of roundings: by the states as stored, or by the truth. */
struct ha_merge_want {
    struct ha_merge_bound asked;
    bool known, chance_known;
    uint64_t key; /* of the states' LSEs */
    struct ha_chance chance;
    struct ha_ref_state state; /* o and bound: [dim] of the rows' memory */
};

/* ---- rows -------------------------------------------------------------------------------- */

/* a row's o, lse, sum, whole_o, full_o, full_slack */
static size_t row_doubles(const struct ha_merge_shape *s) { return s->states * s->dim + 2 * s->states + 3 * s->dim; }

enum { NODE = 4 };               /* arrays of a node */
enum { NUMBERS_MOST = 1 << 26 }; /* in some gigabytes */

/* in place of what was there; the memory is used again where it suffices */
static enum ha_status rows_make(struct ha_merge_rows *rows, const struct ha_merge_shape *s, struct ha_why *why)
{
    const size_t n = s->tokens * s->heads, nodes = 2 * s->states, each = 2 * row_doubles(s) + 4 * s->dim;
    if (n * s->states * s->dim > NUMBERS_MOST)
        return ha_why(why, HA_ERROR, "%zu rows of %zu states of %zu are more than %d numbers: ask for fewer rows", n,
                      s->states, s->dim, NUMBERS_MOST);
    const size_t bytes = 2 * n * (sizeof *rows->row + sizeof *rows->want)
                         + nodes * (sizeof *rows->node + sizeof *rows->chance)
                         + (n * each + (nodes * NODE + 1) * s->dim + s->states) * sizeof(double);
    if (rows->bytes < bytes) {
        free(rows->memory);
        rows->memory = malloc(bytes);
        rows->bytes = rows->memory ? bytes : 0;
        if (!rows->memory)
            return ha_why(why, HA_ERROR, "no memory for %zu rows of %zu states of %zu", n, s->states, s->dim);
    }
    rows->count = n;
    rows->states = s->states;
    rows->dim = s->dim;
    rows->planted = false;
    rows->row = rows->memory;
    rows->handed = rows->row + n;
    rows->want = (void *)(rows->handed + n);
    rows->node = (void *)(rows->want + 2 * n);
    rows->chance = (void *)(rows->node + nodes);
    double *p = (void *)(rows->chance + nodes);
    for (size_t r = 0; r < n; r++) {
        for (int k = 0; k < 2; k++) {
            struct ha_merge_row *row = k ? &rows->handed[r] : &rows->row[r];
            *row = (struct ha_merge_row){ .states = s->states, .dim = s->dim, .form = s->form, .dtype = s->dtype };
            row->o = p;
            row->lse = row->o + s->states * s->dim;
            row->sum = row->lse + s->states;
            row->whole_o = row->sum + s->states;
            row->full_o = row->whole_o + s->dim;
            row->full_slack = row->full_o + s->dim;
            p = row->full_slack + s->dim;
        }
        for (size_t truth = 0; truth < 2; truth++, p += 2 * s->dim)
            rows->want[2 * r + truth] = (struct ha_merge_want){ .state = {
                                                                    .o = p, .bound = p + s->dim, .dim = s->dim } };
    }
    for (size_t i = 0; i < nodes; i++, p += NODE * s->dim) {
        rows->node[i] = (struct ha_ref_state){ .o = p, .bound = p + s->dim, .dim = s->dim, .keys = 1 };
        if (i < s->states) continue; /* within its bound; that of a result reaches as far on either side of o */
        rows->node[i].v_min = p + 2 * s->dim;
        rows->node[i].v_max = p + 3 * s->dim;
    }
    rows->work = p;
    p += s->states;
    rows->got = (float *)(void *)p;
    rows->other = rows->got + s->dim;
    return HA_OK;
}

void ha_merge_row_copy(struct ha_merge_row *to, const struct ha_merge_row *from)
{
    memcpy(to->o, from->o, from->states * from->dim * sizeof *to->o);
    memcpy(to->lse, from->lse, from->states * sizeof *to->lse);
    memcpy(to->sum, from->sum, from->states * sizeof *to->sum);
}

void ha_merge_rows_again(const struct ha_merge_rows *rows, struct ha_batch *batch)
{
    const struct ha_merge_row *row = rows->planted ? rows->handed : rows->row;
    for (size_t r = 0; r < rows->count; r++) ha_batch_put(batch, r, &row[r]);
    ha_batch_seal(batch);
}

void ha_merge_rows_preset(struct ha_merge_rows *rows, size_t first, size_t count, uint64_t seed, ha_merge_fill *fill)
{
    rows->planted = false;
    for (size_t r = first; r < first + count; r++) {
        struct ha_merge_row *row = &rows->row[r];
        row->seed = seed;
        row->index = r - first;
        row->whole = row->full = false;
        memset(row->o, 0, row->states * row->dim * sizeof *row->o);
        memset(row->lse, 0, row->states * sizeof *row->lse);
        for (size_t m = 0; m < row->states; m++) row->sum[m] = 1;
        fill(row);
        rows->want[2 * r].known = rows->want[2 * r + 1].known = false;
    }
}

void ha_merge_rows_plant(struct ha_merge_rows *rows, size_t first, size_t count, ha_merge_plant *plant)
{
    rows->planted = true;
    for (size_t r = 0; r < count; r++) {
        struct ha_merge_row *handed = &rows->handed[first + r];
        handed->seed = rows->row[first + r].seed;
        handed->index = r;
        ha_merge_row_copy(handed, &rows->row[first + r]);
        if (plant) plant(handed, &rows->row[first + (r + 1) % count]);
        rows->want[2 * (first + r)].known = false;
    }
}

enum ha_status ha_merge_trial_open(struct ha_merge_trial *t, const struct ha_merge_shape *shape,
                                   const struct ha_room *room, struct ha_why *why)
{
    const size_t bytes = ha_batch_bytes(shape);
    ha_batch_free(t->batch);
    t->batch = NULL;
    HA_TRY(rows_make(&t->rows, shape, why));
    if (!room && t->own.bytes < bytes) {
        ha_room_unmap(&t->own);
        HA_TRY(ha_room_map(bytes, &t->own, why));
    }
    t->batch = ha_batch_make(room ? room : &t->own, shape);
    return t->batch ? HA_OK : ha_why(why, HA_ERROR, "no memory for the snapshot of a batch");
}

void ha_merge_trial_close(struct ha_merge_trial *t)
{
    ha_batch_free(t->batch);
    free(t->rows.memory);
    ha_room_unmap(&t->own);
    *t = (struct ha_merge_trial){ .batch = NULL };
}

void ha_merge_trial_fill(struct ha_merge_trial *t, uint64_t seed, ha_merge_fill *fill, ha_merge_plant *plant)
{
    ha_merge_rows_preset(&t->rows, 0, t->rows.count, seed, fill);
    if (plant) ha_merge_rows_plant(&t->rows, 0, t->rows.count, plant);
    ha_merge_rows_again(&t->rows, t->batch);
}

void ha_merge_trial_store(struct ha_merge_trial *t)
{
    t->rows.planted = false;
    for (size_t i = 0; i < 2 * t->rows.count; i++) t->rows.want[i].known = false;
    ha_merge_rows_again(&t->rows, t->batch);
}

/* ---- the oracle -------------------------------------------------------------------------- */

/* the states in an order: out is one of the nodes, or made of all at once */
static void merge_nodes(const struct ha_merge_shape *s, struct ha_ref_state *node, const struct ha_merge_bound *bound,
                        struct ha_ref_state *out)
{
    if (s->order == HA_ORDER_FLAT || s->states < 2) {
        ha_ref_merge(node, s->states, bound, out);
        return;
    }
    for (size_t i = 0; i + 1 < s->states; i++) {
        const struct ha_pair pair = ha_order_pair(s->order, s->states, i);
        const struct ha_ref_state two[2] = { node[pair.a], node[pair.b] };
        ha_ref_merge(two, 2, bound, i + 2 == s->states ? out : &node[s->states + i]);
    }
}

/* The same of what the nodes are off by, once they are known. work: [states]. */
static struct ha_chance chance_of_nodes(const struct ha_merge_shape *s, const struct ha_ref_state *node,
                                        struct ha_chance *chance, const struct ha_merge_bound *bound,
                                        const struct ha_ref_state *out, double *work)
{
    for (size_t m = 0; m < s->states; m++) chance[m] = (struct ha_chance){ 0 };
    if (s->order == HA_ORDER_FLAT || s->states < 2)
        return ha_ref_chance_merge(chance, node, s->states, bound, out, work);
    for (size_t i = 0; i + 1 < s->states; i++) {
        const struct ha_pair pair = ha_order_pair(s->order, s->states, i);
        const struct ha_ref_state two[2] = { node[pair.a], node[pair.b] };
        const struct ha_chance of[2] = { chance[pair.a], chance[pair.b] };
        const struct ha_ref_state *both = i + 2 == s->states ? out : &node[s->states + i];
        chance[s->states + i] = ha_ref_chance_merge(of, two, 2, bound, both, work);
        /* of no keys nothing is off */
        if (both->lse == -HUGE_VAL) chance[s->states + i] = (struct ha_chance){ 0 };
    }
    return chance[2 * s->states - 2];
}

/* Rounding of a state to storage, which the oracle is told of where the states come from tokens. */
static void as_stored(const struct ha_merge_shape *s, const struct ha_merge_row *row, size_t m, struct ha_ref_state *x)
{
    const double u = 0x1.0002p-24, u_o = s->dtype == HA_F32 ? u : ha_dtype_unit(s->dtype) * 1.0001;
    const double eta = s->dtype == HA_F32 ? 0x1p-149 : ha_dtype_eta(s->dtype), max = row->lse[m] - log(row->sum[m]);
    x->lse_bound = s->form == HA_FORM_MAX_SUM ? u * fabs(max) + u : u * fabs(row->lse[m]) + 0x1p-149;
    for (size_t i = 0; i < s->dim; i++) x->bound[i] = u_o * fabs(x->o[i]) + eta;
}

/* truth: the states in binary64 with the rounding of storage; else the states as they are stored. */
static void ask(const struct ha_batch *batch, struct ha_merge_rows *rows, size_t r, const struct ha_merge_bound *bound,
                bool truth, struct ha_ref_state *out)
{
    const struct ha_merge_shape *s = &batch->shape;
    struct ha_ref_state *node = rows->node;
    float lse, sum;
    for (size_t m = 0; m < s->states; m++) {
        node[m].keys = 1;
        node[m].lse_bound = 0;
        if (truth) {
            memcpy(node[m].o, rows->row[r].o + m * s->dim, s->dim * sizeof(double));
            node[m].lse = rows->row[r].lse[m];
            node[m].sum = rows->row[r].sum[m];
            node[m].max = node[m].lse - log(node[m].sum);
            as_stored(s, &rows->row[r], m, &node[m]);
            continue;
        }
        ha_batch_get(batch, m, r, rows->other, &lse, &sum);
        for (size_t i = 0; i < s->dim; i++) node[m].o[i] = (double)rows->other[i];
        memset(node[m].bound, 0, s->dim * sizeof(double));
        if (s->plus_inf && lse == INFINITY) lse = -INFINITY;
        node[m].lse = ha_form_decode(s->form, lse, sum);
        node[m].max = (double)lse;
        node[m].sum = (double)sum;
    }
    merge_nodes(s, node, bound, out);
}

static bool same_bound(const struct ha_merge_bound *a, const struct ha_merge_bound *b)
{
    return a->form == b->form && a->exp_eps == b->exp_eps && a->log_eps == b->log_eps
           && a->depth_extra == b->depth_extra && a->rescales == b->rescales && a->u_o == b->u_o
           && a->eta_o == b->eta_o;
}

/* The same, computed once for all who merge with these roundings one after the other. */
static const struct ha_ref_state *answer_for(const struct ha_batch *batch, struct ha_merge_rows *rows, size_t r,
                                             const struct ha_merge_bound *bound, bool truth)
{
    struct ha_merge_want *want = &rows->want[2 * r + truth];
    if (want->known && same_bound(bound, &want->asked)) return &want->state;
    ask(batch, rows, r, bound, truth, &want->state);
    want->asked = *bound;
    want->known = true;
    want->chance_known = false;
    want->key = 0;
    return &want->state;
}

/* ---- the verdict ------------------------------------------------------------------------- */

static double ratio_of(double got, double want, double bound)
{
    if (isnan(want)) return isnan(got) ? 0 : HUGE_VAL; /* where NaN is expected, the result must be NaN */
    if (got == want) return isnan(bound) ? HUGE_VAL : 0;
    if (bound == HUGE_VAL && isinf(want))
        return isnan(got) ? 0 : HUGE_VAL; /* infinity times a weight that underflows */
    if (bound == HUGE_VAL) return isfinite(got) ? 0 : HUGE_VAL;
    const double ratio = fabs(got - want) / bound;
    return ratio >= 0 ? ratio : HUGE_VAL;
}

struct answer {
    enum ha_form form;
    enum ha_dtype dtype;
    enum ha_fp8 fp8;
    double scale;   /* 1 without fp8 */
    const float *o; /* to be multiplied by it */
    float raw_lse, raw_sum;
    double lse;
};

static struct answer answer_of(const struct ha_batch *batch, struct ha_merge_rows *rows, size_t r)
{
    struct answer got = { .form = batch->shape.form,
                          .dtype = batch->shape.dtype,
                          .fp8 = batch->shape.fp8,
                          .scale = (double)ha_batch_scale(batch),
                          .o = rows->got };
    ha_batch_get(batch, HA_RESULT, r, rows->got, &got.raw_lse, &got.raw_sum);
    got.lse = ha_form_decode(got.form, got.raw_lse, got.raw_sum);
    return got;
}

/* Before 8 bits o is binary32, and 1 / scale, the product, or the quotient are rounded; by a power of two they are not.
 */
static struct ha_merge_bound bound_of(const struct ha_batch *batch, const struct ha_merge_traits *traits)
{
    const struct ha_merge_shape *s = &batch->shape;
    struct ha_merge_bound bound = ha_bound_merge(traits, s->form, s->fp8 ? HA_F32 : s->dtype);
    int exponent;
    if (s->fp8 && frexpf(ha_batch_scale(batch), &exponent) != 0.5f) bound.u_o = 2 * 0x1.0002p-24;
    return bound;
}

/* Of (max, sum) the difference is taken apart: beside a huge maximum the sum would be lost. */
static bool is_apart(const struct answer *got, const struct ha_ref_state *want)
{
    return got->form == HA_FORM_MAX_SUM && isfinite(want->max) && isfinite(got->raw_lse);
}
static double lse_error(const struct answer *got, const struct ha_ref_state *want)
{
    return is_apart(got, want) ? (double)got->raw_lse - want->max + log((double)got->raw_sum / want->sum)
                               : got->lse - want->lse;
}

/* No keys: the sum is 0. */
static double lse_ratio(const struct answer *got, const struct ha_ref_state *want)
{
    if (got->form == HA_FORM_MAX_SUM && want->max == -HUGE_VAL && !(got->raw_sum == 0)) return HUGE_VAL;
    return is_apart(got, want) ? ratio_of(lse_error(got, want), 0, want->lse_bound)
                               : ratio_of(got->lse, want->lse, want->lse_bound);
}

static void keep(struct ha_judgement *j, size_t r, size_t element, double ratio, double got, double want, double bound,
                 const char *against)
{
    const bool bad = !(ratio <= 1);
    if (bad) j->status = HA_FAIL;
    if (!(ratio > j->ratio) && (j->against || !bad)) return;
    j->ratio = ratio;
    j->row = r;
    j->element = element;
    j->got = got;
    j->want = want;
    j->bound = bound;
    j->against = against;
}

/* What was rounded to 8 bits: the number nearest to what is wanted of those that become this code; where all before it
 * is exact, what is wanted or not. No result is infinite. */
static double before_fp8(const struct answer *got, float code, double want, double bound)
{
    const double x = want / got->scale;
    if (isinf(code)) return -copysign(HUGE_VAL, want);
    if (bound > 0 && !isnan(want)) return ha_fp8_nearest(x, code, got->fp8) * got->scale;
    const float right = ha_f32_from_fp8(ha_fp8_from_f32((float)x, got->fp8), got->fp8);
    return bound == 0 && code == right ? want : (double)code * got->scale;
}

/* An element as it is compared. Weights that are not divided by their sum may take a result that fits beyond the type's
 * range: there infinity stands for the least number that rounds to it, which the bound reaches or does not. */
static double element_of(const struct answer *got, size_t i, double want, double bound)
{
    static const double overflows[] = { [HA_F32] = 0x1.ffffffp127, [HA_F16] = 65520, [HA_BF16] = 0x1.ffp127 };
    const double x = (double)got->o[i];
    if (got->fp8) return before_fp8(got, got->o[i], want, bound);
    return isinf(x) && isfinite(want) && bound < HUGE_VAL && got->form == HA_FORM_DIRECT
               ? copysign(overflows[got->dtype], x)
               : x;
}

/* the worst element of the row */
static double compare(struct ha_judgement *j, size_t r, const struct answer *got, const struct ha_ref_state *want,
                      const double *slack, bool with_lse, const char *against)
{
    double worst = 0;
    size_t at = want->dim;
    if (with_lse) worst = lse_ratio(got, want);
    for (size_t i = 0; i < want->dim; i++) {
        const double bound = want->bound[i] + (slack ? slack[i] : 0);
        const double o = element_of(got, i, want->o[i], bound);
        /* no worse, and no NaN or infinity anywhere */
        if (fabs(o - want->o[i]) <= worst * bound && bound < HUGE_VAL) continue;
        const double x = ratio_of(o, want->o[i], bound);
        if (x > worst) {
            worst = x;
            at = i;
        }
    }
    const bool lse = at == want->dim;
    if (worst > 0 || isnan(worst))
        keep(j, r, at, worst, lse ? got->lse : (double)got->o[at] * got->scale, lse ? want->lse : want->o[at],
             (lse ? want->lse_bound : want->bound[at]) + (slack && !lse ? slack[at] : 0), against);
    return worst;
}

static void refuse(struct ha_judgement *j, size_t r, size_t element, double got, double want, const char *against)
{
    keep(j, r, element, HUGE_VAL, got, want, 0, against);
}

/* o is the exact result, which the type can hold */
static void exact(struct ha_judgement *j, size_t r, const struct answer *got, const double *want,
                  const struct ha_merge_shape *s)
{
    for (size_t i = 0; i < s->dim; i++)
        if ((double)got->o[i] != (double)ha_round((float)want[i], s->dtype)) {
            refuse(j, r, i, (double)got->o[i], want[i], "the exact result");
            return;
        }
}

/* all bits of the result are those in rows->other, lse and sum */
static void same(struct ha_judgement *j, struct ha_merge_rows *rows, size_t r, const struct answer *got, float lse,
                 float sum, const char *as)
{
    for (size_t i = 0; i < rows->dim; i++) {
        if (memcmp(&rows->other[i], &got->o[i], sizeof *got->o) == 0) continue;
        refuse(j, r, i, (double)got->o[i], (double)rows->other[i], as);
        return;
    }
    if (memcmp(&lse, &got->raw_lse, sizeof lse) != 0 || memcmp(&sum, &got->raw_sum, sizeof sum) != 0)
        refuse(j, r, rows->dim, (double)got->raw_lse, (double)lse, as);
}

static void copied(struct ha_judgement *j, const struct ha_batch *batch, struct ha_merge_rows *rows, size_t r,
                   const struct answer *got)
{
    float lse = -INFINITY, sum;
    for (size_t m = 0; m < rows->states && (lse == -INFINITY || lse == INFINITY); m++)
        ha_batch_get(batch, m, r, rows->other, &lse, &sum);
    if (isfinite(lse)) same(j, rows, r, got, lse, sum, "the one state that has keys, bit for bit");
}

/* As they are stored, o widened. */
static uint64_t fingerprint(size_t r, const float *o, size_t dim, const struct answer *got)
{
    const float rest[] = { got->raw_lse, got->raw_sum };
    const uint64_t h = ha_fingerprint_floats(ha_fingerprint_mix(HA_FINGERPRINT_BEGIN, r), o, dim);
    return ha_fingerprint_floats(h, rest, 2);
}

/* so many more rows of these heads */
static void note_wrong(struct ha_judgement *j, size_t first, size_t last, uint64_t rows)
{
    if (!rows) return;
    if (!j->wrong.rows || first < j->wrong.first) j->wrong.first = first;
    if (!j->wrong.rows || last > j->wrong.last) j->wrong.last = last;
    j->wrong.rows += rows;
}

void ha_judge_row(struct ha_judgement *j, const struct ha_batch *batch, struct ha_merge_rows *rows, size_t r,
                  enum ha_must must, const struct ha_merge_traits *traits)
{
    const struct ha_merge_shape *s = &batch->shape;
    const struct ha_merge_bound bound = bound_of(batch, traits);
    const struct ha_merge_row *row = &rows->row[r];
    struct answer got = answer_of(batch, rows, r);
    float lse, sum; /* of the row before, where it must have the same bits */
    double worst = 0;
    const enum ha_status before = j->status;
    j->status = HA_OK;
    j->heads = s->heads;

    const struct ha_ref_state *told = answer_for(batch, rows, r, &bound, must == HA_MUST_FAIL);
    worst = compare(j, r, &got, told, NULL, true,
                    must == HA_MUST_FAIL ? "the states before the planted error"
                    : s->fp8             ? "the states as stored, before 8 bits"
                                         : "the states as stored");

    if (row->whole) {
        /* of the oracle's answer only the bound is read here */
        struct ha_ref_state all = *answer_for(batch, rows, r, &bound, true);
        all.o = row->whole_o;
        all.lse = all.max = row->whole_lse;
        all.sum = 1;
        worst = fmax(worst, compare(j, r, &got, &all, NULL, true, "attention over all tokens"));
        if (row->full) {
            all.o = row->full_o;
            compare(j, r, &got, &all, row->full_slack, false, "full attention, within the certificate");
        }
    }
    if (must == HA_MUST_EXACT) exact(j, r, &got, row->whole ? row->whole_o : told->o, s);
    if (must == HA_MUST_COPY) copied(j, batch, rows, r, &got);
    if (must == HA_MUST_COMMUTE && traits->commutes && r % 2 && s->states == 2) {
        ha_batch_get(batch, HA_RESULT, r - 1, rows->other, &lse, &sum);
        same(j, rows, r, &got, lse, sum, "the same states in the other order, bit for bit");
    }

    j->rows++;
    if (j->status == HA_FAIL) note_wrong(j, r % s->heads, r % s->heads, 1);
    else j->status = before;
    if (!traits->varies) j->outputs += fingerprint(r, rows->got, s->dim, &got);
    if (worst == 0) j->exact++;
    else if (worst <= 1) j->bin[(int)fmax(0, fmin(HA_RATIO_BINS - 1, HA_RATIO_BINS + ilogb(worst)))]++;
}

/* ---- sensitivity ------------------------------------------------------------------------- */

enum { SET_BESIDE = 8 }; /* rows of a batch */

/* An error just above the bound in the element where that is the least share, then one in the LSE. */
static bool sees(const struct ha_batch *batch, struct ha_merge_rows *rows, size_t r, const struct ha_ref_state *want)
{
    struct answer got = answer_of(batch, rows, r);
    const double by = want->lse_bound * (1 + 0x1p-10) + 0x1p-51 * fabs(want->lse) + 0x1p-1000;
    double least = HUGE_VAL;
    size_t at = want->dim;
    bool seen = true;
    for (size_t i = 0; i < want->dim; i++)
        if (want->bound[i] / fabs(want->o[i]) < least) least = want->bound[i] / fabs(want->o[i]), at = i;
    if (isfinite(want->lse) && want->lse_bound < HUGE_VAL) {
        struct answer off = got;
        off.lse += got.lse < want->lse ? -by : by;
        /* of (max, sum) the judge reads both; a maximum is a float */
        const bool down = lse_ratio(&got, want) > 0 && (double)got.raw_lse + log((double)got.raw_sum) < want->lse;
        if (got.form == HA_FORM_MAX_SUM)
            off.raw_sum = nextafterf((float)((double)got.raw_sum * exp(down ? -by : by)), down ? 0 : INFINITY);
        seen = !(lse_ratio(&off, want) <= 1);
    }
    if (at == want->dim) return seen;
    rows->got[at] = ha_ref_planted(rows->got[at], want->o[at], want->bound[at]);
    struct ha_judgement j = { 0 };
    const double ratio = compare(&j, r, &got, want, NULL, true, "");
    return seen && !(ratio <= 1);
}

static enum ha_status set_beside(struct ha_merge_sense *out, const struct ha_batch *batch, struct ha_merge_rows *rows,
                                 size_t r, const struct ha_ref_sense *by, const struct ha_merge_traits *usual,
                                 struct ha_why *why)
{
    const struct ha_merge_bound bound = bound_of(batch, usual);
    const struct ha_ref_sense of = ha_ref_sensitivity(answer_for(batch, rows, r, &bound, false));
    const double times = ha_ref_insensitivity(by, &of);
    const bool ok = times <= HA_SENSE_MOST;
    out->times = fmax(out->times, times);
    if (ok) return HA_OK;
    return ha_why(
        why, HA_FAIL,
        "row %zu: by its traits o may be off by %.3g of itself and exp(LSE) by %.3g, %.3g times as much as by "
        "those of our merge (%.3g and %.3g), and more than %d is too much",
        r, by->o, by->lse, times, of.o, of.lse, HA_SENSE_MOST);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ha_merge_median(double *x, size_t n)
{
    qsort(x, n, sizeof *x, ascending);
    return n ? x[n / 2] : (double)NAN;
}

enum ha_status ha_judge_sense(struct ha_merge_sense *out, const struct ha_batch *batch, struct ha_merge_rows *rows,
                              size_t first, size_t count, const struct ha_merge_traits *traits,
                              const struct ha_merge_traits *usual, struct ha_why *why)
{
    const struct ha_merge_bound bound = bound_of(batch, traits);
    const size_t every = (count + SET_BESIDE - 1) / SET_BESIDE;
    double o[HA_MERGE_SENSED], lse[HA_MERGE_SENSED];
    size_t os = 0, lses = 0;
    *out = (struct ha_merge_sense){ (double)NAN, (double)NAN, (double)NAN };
    if (batch->shape.fp8) return HA_OK;
    for (size_t r = first; r < first + count && r < first + HA_MERGE_SENSED; r++) {
        const struct ha_ref_state *want = answer_for(batch, rows, r, &bound, false);
        if (isnan(want->lse)) continue;
        const struct ha_ref_sense s = ha_ref_sensitivity(want);
        if (!sees(batch, rows, r, want))
            return ha_why(why, HA_FAIL, "row %zu: an error just above the bound was planted, and was not seen", r);
        if (s.o > 0) o[os++] = s.o;
        if (s.lse > 0) lse[lses++] = s.lse;
        if ((r - first) % every == 0 || isinf(s.o) || isinf(s.lse))
            HA_TRY(set_beside(out, batch, rows, r, &s, usual, why));
    }
    out->o = ha_merge_median(o, os);
    out->lse = ha_merge_median(lse, lses);
    return HA_OK;
}

/* ---- chance ------------------------------------------------------------------------------ */

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The same for the same LSEs, whose weights are rounded alike, whatever they are of. 0: of fewer than two nothing is
 * rounded. */
static uint64_t key_of(const struct ha_merge_row *row)
{
    uint64_t key = 0;
    size_t used = 0;
    for (size_t m = 0; m < row->states; m++) {
        const float of[2] = { (float)row->lse[m], row->form == HA_FORM_MAX_SUM ? (float)row->sum[m] : 0 };
        uint64_t bits;
        memcpy(&bits, of, sizeof bits);
        if (!isfinite(of[0])) continue;
        key += mixed(bits + (row->form == HA_FORM_BASE2) + 0x9e3779b97f4a7c15u);
        used++;
    }
    return used < 2 ? 0 : mixed(key) | 1;
}

static struct ha_chances hold(const struct ha_batch *batch, struct ha_merge_rows *rows, size_t r,
                              const struct ha_merge_bound *bound)
{
    struct ha_merge_want *want = &rows->want[2 * r];
    const struct answer got = answer_of(batch, rows, r);
    struct ha_chances out = { 0 };
    double squares = 0;
    if (!want->chance_known) {
        ask(batch, rows, r, bound, false, &want->state);
        want->chance = chance_of_nodes(&batch->shape, rows->node, rows->chance, bound, &want->state, rows->work);
        want->chance_known = true;
    }
    for (size_t i = 0; i < rows->dim; i++) {
        const double error = (double)got.o[i] - want->state.o[i];
        squares += error * error;
    }
    const double lse = lse_error(&got, &want->state);
    if (isfinite(lse) && isfinite(squares)) ha_chances_add(&out, lse, sqrt(squares), &want->chance);
    return out;
}

static bool is_before(uint64_t key, uint64_t index, const struct ha_merge_taken *than)
{
    return key > than->key || (key && key == than->key && index < than->index);
}

void ha_judge_chances(struct ha_merge_sample *sample, const struct ha_batch *batch, struct ha_merge_rows *rows,
                      size_t first, size_t count, uint64_t index, const struct ha_merge_traits *traits)
{
    const struct ha_merge_bound bound = bound_of(batch, traits);
    if (batch->shape.fp8) return;
    for (size_t r = first; r < first + count; r++, index++) {
        struct ha_merge_want *want = &rows->want[2 * r];
        answer_for(batch, rows, r, &bound, false);
        if (!want->key) want->key = key_of(&rows->row[r]);
        struct ha_merge_taken *taken = &sample->taken[want->key / 2 % HA_MERGE_CHANCES];
        if (is_before(want->key, index, taken))
            *taken = (struct ha_merge_taken){ want->key, index, hold(batch, rows, r, &bound) };
    }
}

void ha_merge_sample_join(struct ha_merge_sample *into, const struct ha_merge_sample *from)
{
    for (size_t i = 0; i < HA_MERGE_CHANCES; i++)
        if (is_before(from->taken[i].key, from->taken[i].index, &into->taken[i])) into->taken[i] = from->taken[i];
}

struct ha_chances ha_merge_sample_sum(const struct ha_merge_sample *sample)
{
    struct ha_chances sum = { 0 };
    for (size_t i = 0; i < HA_MERGE_CHANCES; i++) ha_chances_join(&sum, &sample->taken[i].of);
    return sum;
}

struct ha_judgement ha_merge_trial_judge(struct ha_merge_trial *t, enum ha_must must,
                                         const struct ha_merge_traits *traits)
{
    struct ha_judgement j = { .status = HA_OK };
    for (size_t r = 0; r < t->rows.count; r++) ha_judge_row(&j, t->batch, &t->rows, r, must, traits);
    return j;
}

struct ha_why ha_judgement_say(const struct ha_judgement *j, size_t dim)
{
    char element[32] = "LSE";
    const double got = isnan(j->got) ? (double)NAN : j->got; /* the sign of a NaN has no meaning */
    struct ha_why said;
    if (j->element < dim) snprintf(element, sizeof element, "o[%zu]", j->element);
    char place[64] = "", all[96] = "";
    if (j->heads > 1) snprintf(place, sizeof place, " (token %zu, head %zu)", j->row / j->heads, j->row % j->heads);
    if (j->rows > 1 && j->heads > 1)
        snprintf(all, sizeof all, "; %llu of %llu rows are wrong, of heads %zu to %zu",
                 (unsigned long long)j->wrong.rows, (unsigned long long)j->rows, j->wrong.first, j->wrong.last);
    ha_why(&said, HA_FAIL, "row %zu%s, %s: got %.9g, want %.9g +- %.3g (err/bound %.3g), by %s%s", j->row, place,
           element, got, j->want, j->bound, j->ratio, j->against, all);
    return said;
}

void ha_judgement_join(struct ha_judgement *into, const struct ha_judgement *from)
{
    const struct ha_judgement old = *into;
    const bool worse = from->against && (!old.against || !(from->ratio <= old.ratio));
    if (worse) *into = *from;
    into->status = old.status == HA_FAIL ? HA_FAIL : from->status;
    into->rows = old.rows + from->rows;
    into->wrong = old.wrong;
    note_wrong(into, from->wrong.first, from->wrong.last, from->wrong.rows);
    into->exact = old.exact + from->exact;
    into->outputs = old.outputs + from->outputs;
    for (size_t i = 0; i < HA_RATIO_BINS; i++) into->bin[i] = old.bin[i] + from->bin[i];
}
