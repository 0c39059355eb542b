#include "suites/merge/bundle.h"

#include "harness/base/clock.h"
#include "harness/base/stop.h"
#include "harness/base/try.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CASES_MAX = 64, ROWS_EACH = 4 };
static const size_t state_counts[] = { 1, 2, 3, 7, 33, 512 }, dims[] = { 64, 128, 80 };

/* Rows [i * ROWS_EACH, (i + 1) * ROWS_EACH) are those of case[i]; none: all rows are random. */
struct bundle {
    struct ha_merge_shape shape;
    const struct ha_merge_case *c[CASES_MAX];
    size_t item[CASES_MAX], cases;
    uint64_t seed;
};

/* may_reject: cases that may be refused go into bundles of their own, since a command refuses all rows or none */
static bool fits(const struct ha_merge_case *c, const struct ha_merge_shape *s, bool may_reject)
{
    const struct {
        unsigned bits, value;
    } axis[] = { { c->forms, s->form },
                 { c->dtypes, s->dtype },
                 { c->orders, s->order },
                 { c->aliases, s->alias },
                 { c->layouts, s->layout } };
    for (size_t i = 0; i < sizeof axis / sizeof *axis; i++)
        if (axis[i].bits && !(axis[i].bits >> axis[i].value & 1u)) return false;
    if (c->states_min && s->states < c->states_min) return false;
    if (c->states_max && s->states > c->states_max) return false;
    return c->stage == HA_STAGE_PLAIN && c->plus_inf == s->plus_inf && c->may_reject == may_reject;
}

/* as ha_merge_rows_fill does it for one case */
static void fill(const struct bundle *b, struct ha_merge_rows *rows, struct ha_batch *batch,
                 const struct ha_merge_suite *suite, bool planted)
{
    if (!b->cases) {
        ha_merge_rows_fill(rows, batch, b->seed, suite->random_fill, NULL);
        return;
    }
    for (size_t i = 0; i < b->cases; i++) {
        struct ha_merge_rows part = ha_merge_rows_part(rows, i * ROWS_EACH, ROWS_EACH);
        ha_merge_rows_preset(&part, b->seed, b->c[i]->fill, planted ? b->c[i]->plant : NULL);
    }
    rows->planted = planted;
    ha_merge_rows_again(rows, batch);
}

static struct ha_merge_task task_of(const struct bundle *b, size_t i)
{
    struct ha_merge_task t = {
        .c = b->cases ? b->c[i] : NULL, .item = b->item[i], .shape = b->shape, .seed = b->seed, .row = SIZE_MAX
    };
    if (b->cases) {
        t.shape.tokens = 1;
        t.shape.heads = ROWS_EACH;
    }
    return t;
}

static void judge(const struct bundle *b, struct ha_merge_cell *cell, struct ha_batch *batch,
                  struct ha_merge_rows *rows, const struct ha_subject *subject, size_t i, bool planted,
                  enum ha_status st, const struct ha_why *why)
{
    const size_t each = b->cases ? ROWS_EACH : rows->count;
    const enum ha_must must = !b->cases                                   ? HA_MUST_BOUND
                              : b->c[i]->must == HA_MUST_FAIL && !planted ? HA_MUST_BOUND
                                                                          : b->c[i]->must;
    const struct ha_merge_task t = task_of(b, i);
    struct ha_judgement j = { 0 };
    struct ha_why reason = *why;
    for (size_t r = i * each; r < (i + 1) * each && st == HA_OK; r++)
        ha_judge_row(&j, batch, rows, r, must, &subject->traits);
    j.row -= j.against ? i * each : 0;
    if (planted && st == HA_OK) {
        cell->worst_planted = fmin(cell->worst_planted, j.ratio);
        if (j.ratio > 1) {
            cell->runs++;
            return;
        }
        st = ha_why(&reason, HA_FAIL, "the planted error was not seen: err/bound is %.3g", j.ratio);
    }
    ha_merge_cell_enter(cell, cell->runs, &t, st, st == HA_FAIL && !planted, &j, &reason);
}

struct hunt {
    const struct ha_merge_job *job;
    const struct ha_merge_bundles *of;
    struct ha_subject subject;
    uint64_t lost_ns; /* on errors, here and before */
};

/* Asks once, or not at all where errors have taken the subject's time. */
static enum ha_status ask(struct hunt *h, struct ha_batch *batch, struct ha_why *why)
{
    if (h->lost_ns > ha_merge_patience_ns)
        return ha_why(why, HA_ERROR, "given up: it has not answered for %.0f s in all", (double)h->lost_ns / 1e9);
    const uint64_t begin_ns = ha_now_ns();
    const enum ha_status st = h->subject.run(&h->subject, batch, why);
    if (st == HA_ERROR) h->lost_ns += ha_now_ns() - begin_ns;
    return st;
}

static enum ha_status run(struct hunt *h, const struct bundle *b, struct ha_why *why)
{
    struct ha_merge_cell *cells = b->cases ? h->job->cell : h->of->random;
    struct ha_merge_rows rows = { 0 };
    struct ha_room room = { 0 };
    struct ha_batch *batch = NULL;
    bool plants = false;
    enum ha_status st = ha_merge_rows_make(&rows, &b->shape, why);
    if (st == HA_OK) st = ha_room_map(ha_batch_bytes(&b->shape), &room, why);
    if (st == HA_OK && !(batch = ha_batch_make(&room, &b->shape))) st = ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < b->cases; i++) plants |= b->c[i]->plant != NULL;
    for (int planted = 0; planted <= (int)plants && st == HA_OK && !ha_stop; planted++) {
        struct ha_why reason = { "" };
        fill(b, &rows, batch, h->job->suite, planted);
        const enum ha_status ran = ask(h, batch, &reason);
        for (size_t i = 0; i < (b->cases ? b->cases : 1); i++)
            if (!planted || b->c[i]->plant)
                judge(b, &cells[b->item[i]], batch, &rows, &h->subject, i, planted, ran, &reason);
    }
    ha_batch_free(batch);
    ha_room_unmap(&room);
    ha_merge_rows_free(&rows);
    return st;
}

enum { COUNTS = sizeof state_counts / sizeof *state_counts, SETS = 3, BUNDLES = SETS * COUNTS };

/* Bundle k of cases: plain ones, then those that may be refused, then those of them that mark empty states with +inf.
 */
static void compose_cases(const struct hunt *h, struct bundle *b, size_t k)
{
    const struct ha_merge_suite *suite = h->job->suite;
    struct ha_merge_shape *s = &b->shape;
    s->plus_inf = k / COUNTS == 2;
    s->states = state_counts[k % COUNTS];
    for (size_t i = 0; i < suite->cases_count && b->cases < CASES_MAX; i++) {
        const struct ha_merge_case *c = &suite->cases[i];
        if (!h->of->asked[i] || !fits(c, s, k / COUNTS > 0)) continue;
        b->item[b->cases] = i;
        b->c[b->cases++] = c;
    }
    s->tokens = b->cases;
    s->heads = ROWS_EACH;
}

static void compose_random(const struct hunt *h, struct bundle *b, size_t k)
{
    const struct ha_merge_task t = ha_merge_random_task(h->job->suite, b->shape.form, b->shape.dtype, h->of->only, k);
    b->shape = t.shape;
    b->shape.order = HA_ORDER_FLAT;
    b->shape.alias = HA_ALIAS_NONE;
    b->shape.layout = HA_LAYOUT_PACKED;
    b->seed = t.seed;
    b->item[0] = t.item;
}

/* false: nothing to ask here */
static bool compose(const struct hunt *h, struct bundle *b, enum ha_form form, enum ha_dtype dtype, size_t k)
{
    const struct ha_merge_axes *only = h->of->only;
    if (only->form && only->form != 1 + (uint64_t)form) return false;
    if (only->dtype && only->dtype != 1 + (uint64_t)dtype) return false;
    *b = (struct bundle){ .shape = { .form = form, .dtype = dtype, .dim = dims[k % 3] },
                          .seed = only->seed * 1000003 + k };
    if (k >= BUNDLES) compose_random(h, b, k - BUNDLES);
    else if (h->of->asked) compose_cases(h, b, k);
    if (h->subject.traits.lse_order == HA_LSE_HEADS_TOKENS) b->shape.layout = HA_LAYOUT_HEADS_FIRST;
    return b->shape.tokens && !ha_subject_unfit(&h->subject, &b->shape);
}

enum ha_status ha_merge_bundles_run(const struct ha_merge_job *job, const struct ha_merge_bundles *bundles,
                                    struct ha_why *why)
{
    const uint64_t lost_ns = ha_merge_lost_ns(job->source);
    struct hunt h = { .job = job, .of = bundles, .lost_ns = lost_ns };
    const size_t each = BUNDLES + bundles->batches, all = HA_FORM_COUNT * HA_DTYPE_COUNT * each;
    enum ha_status st = HA_OK;
    HA_TRY(ha_merge_source_open(job->source, &h.subject, why));
    for (size_t i = 0; i < all && st == HA_OK && !ha_stop && !(job->deadline_ns && ha_now_ns() >= job->deadline_ns);
         i++) {
        struct bundle b;
        if (job->progress) job->progress(job->arg, i, all);
        if (compose(&h, &b, (enum ha_form)(i / each / HA_DTYPE_COUNT), (enum ha_dtype)(i / each % HA_DTYPE_COUNT),
                    i % each))
            st = run(&h, &b, why);
    }
    if (job->source->lost_ns) *job->source->lost_ns += h.lost_ns - lost_ns;
    ha_subject_close(&h.subject);
    return st;
}
