#include "suites/variants/check.h"

#include "harness/base/array.h"
#include "harness/base/numeric.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const size_t work_bytes_max = (size_t)64 << 20; /* of one job, where it can be split */

/* Rows of a case whose errors are held against chance: all where there are few and short ones. */
enum { CHANCE_LEAST = 16, CHANCE_MOST = 64, CHANCE_WORK = 1 << 20 };

/* Query tokens [t0, t0 + tokens) of query heads [h0, h0 + heads), which use the same keys. */
struct job {
    size_t h0, heads, t0, tokens;
};

struct task {
    const struct ha_pass *pass;
    const struct ha_device_info *info; /* what the device claims */
    const struct ha_chosen *chosen;
    size_t step, layer, seq;
    struct ha_judged *judged; /* NULL: the answers are wanted alone */
    const struct ha_expected *expected;
    size_t expected_from; /* the row that it begins with */
    double *full;         /* [q_len][q_heads][head_dim], full attention; NULL: it is not projected */
    struct job *job;
    size_t jobs;
    atomic_bool ok;                /* there was memory for all jobs */
    atomic_bool overflows, beyond; /* a row of one may, whatever computes it; a term of a score, its type */
};

static const struct ha_workload *data(const struct task *t) { return t->pass->session->workload; }

static struct ha_rows head_rows(const struct task *t, size_t q_head)
{
    const struct ha_workload *w = data(t);
    size_t row = w->shape.head_dim * ha_dtype_bytes(w->shape.dtype), i = t->layer * w->shape.batch + t->seq;
    size_t at = q_head / ha_shape_group(&w->shape) * w->cap * row;
    return (struct ha_rows){ .k = (const unsigned char *)w->k[i] + at,
                             .v = (const unsigned char *)w->v[i] + at,
                             .k_stride_bytes = row,
                             .v_stride_bytes = row };
}

/* how many of ascending tokens are not after position p */
static size_t visible_of(const uint32_t *token, size_t count, size_t p)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (token[middle] <= p) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* one of the rows that are held against chance? Any so many of them, whatever their order */
static bool by_chance(const struct task *t, size_t token, size_t head)
{
    const struct ha_shape *s = &data(t)->shape;
    const size_t of_step = s->layers * s->batch * s->q_len * s->q_heads, all = s->steps * of_step;
    if (!t->judged) return false;
    const size_t row = t->step * of_step + ((t->layer * s->batch + t->seq) * s->q_len + token) * s->q_heads + head;
    size_t enough = CHANCE_WORK / (ha_workload_tokens(data(t), t->seq, t->step + 1) * s->head_dim);
    enough = enough < CHANCE_LEAST ? CHANCE_LEAST : enough > CHANCE_MOST ? CHANCE_MOST : enough;
    return (row * UINT64_C(0x9e3779b97f4a7c15) >> 32) % ((all + enough - 1) / enough) == 0;
}

/* ---- question 1 ------------------------------------------------------------------------ */

/* One allocation for the states of a job: o, bound, v_min, v_max for each. */
static double *lay_states(struct ha_ref_state *state, size_t count, size_t dim)
{
    double *x = malloc(4 * count * dim * sizeof *x);
    for (size_t i = 0; x && i < count; i++)
        state[i] = (struct ha_ref_state){ .o = x + 4 * i * dim,
                                          .bound = x + (4 * i + 1) * dim,
                                          .v_min = x + (4 * i + 2) * dim,
                                          .v_max = x + (4 * i + 3) * dim,
                                          .dim = dim };
    return x;
}

static void keep(const struct task *t, size_t token, size_t head, const struct ha_ref_state *want)
{
    const struct ha_expected *e = t->expected;
    const size_t row = token * data(t)->shape.q_heads + head - t->expected_from, dim = want->dim;
    memcpy(e->o + row * dim, want->o, dim * sizeof *want->o);
    memcpy(e->o_bound + row * dim, want->bound, dim * sizeof *want->bound);
    e->lse[row] = want->lse;
    e->lse_bound[row] = want->lse_bound;
}

static void judge(const struct task *t, size_t token, size_t head, const struct ha_ref_state *want,
                  const struct ha_chance *chance)
{
    const struct ha_shape *s = &data(t)->shape;
    size_t row = token * s->q_heads + head, at = t->seq * s->q_len * s->q_heads + row, d = 0;
    const float *o = ha_session_o(t->pass->session, t->layer) + at * s->head_dim;
    float lse = ha_session_lse(t->pass->session, t->layer)[at];
    struct ha_judged *j = &t->judged[row];
    j->ratio = ha_ref_ratio(o, lse, want, &d);
    j->element = d;
    j->got = d < s->head_dim ? o[d] : lse;
    j->want = d < s->head_dim ? want->o[d] : want->lse;
    j->bound = d < s->head_dim ? want->bound[d] : want->lse_bound;
    j->after_wo = (struct ha_projected){ (double)NAN, (double)NAN };
    j->diff2 = j->norm2 = 0;
    for (size_t i = 0; i < s->head_dim; i++) {
        double diff = (double)o[i] - want->o[i];
        j->diff2 += diff * diff;
        j->norm2 += want->o[i] * want->o[i];
    }
    j->lse_error = (double)lse - want->lse;
    j->o_error = sqrt(j->diff2);
    j->chance = *chance;
}

struct scratch {
    struct ha_ref_state *state; /* [parts + 1][queries]; the last are the merged ones */
    struct ha_ref_query *query; /* [queries] */
    struct ha_bound *bound;     /* [queries] */
    struct ha_chance *chance;   /* as state; NaN where that is not asked */
    double *numbers, *work;
    uint32_t *token; /* the keys of a query, for question 3 */
    double *score;   /* of these, by which each was weighed; NULL where all states are plain */
    bool *left_out;
};

struct ha_oracle_claims ha_oracle_claims(const struct ha_session *session, const struct ha_device_info *info)
{
    const struct ha_merge_traits *a = &session->kernels.traits, *b = &info->merge;
    const enum ha_dtype dtype = session->workload->shape.dtype;
    return (struct ha_oracle_claims){
        .device = session->variant->products ? info->products[dtype] : info->profile[dtype],
        .host = ha_profile_attend(&session->kernels, dtype),
        .device_runs = HA_RUNS_MAX,
        .host_runs = HA_RUNS_MAX + 1,                       /* packed keys are one more */
        .merge = { .exp_eps = fmax(a->exp_eps, b->exp_eps), /* either side may have merged */
                   .log_eps = fmax(a->log_eps, b->log_eps),
                   .depth_extra = fmax(a->depth_extra, b->depth_extra),
                   .rescales = fmax(a->rescales, b->rescales) },
    };
}

/* What a part is judged by: the claims of its side, of either the weaker, or its own. */
static struct ha_profile claims_of(const struct task *t, const struct ha_part *part, size_t *runs)
{
    const struct ha_oracle_claims c = ha_oracle_claims(t->pass->session, t->info);
    const size_t most = c.device_runs > c.host_runs ? c.device_runs : c.host_runs;
    *runs = part->either_side || part->profile ? most : part->on_device ? c.device_runs : c.host_runs;
    return part->profile       ? *part->profile
           : part->either_side ? ha_profile_weaker(&c.device, &c.host, part->count)
           : part->on_device   ? c.device
                               : c.host;
}

/* A part whose weights are not divided by their sum, and the part of weights alone behind it: one softmax was over
 * both, so that they are one state, in which the values of the latter are zeros. */
static bool is_one_state(const struct ha_chosen *c, size_t head, size_t part)
{
    if (part + 1 >= HA_PARTS_MAX) return false;
    const struct ha_part *a = ha_chosen_part(c, head, part), *b = a + 1;
    return a->profile && a->profile->sum_least > 0 && !a->weight_only && b->weight_only && b->profile
           && b->profile->sum_least > 0;
}
static bool is_of_the_one_before(const struct ha_chosen *c, size_t head, size_t part)
{
    return part > 0 && is_one_state(c, head, part - 1);
}

/* A part's keys, with those of the next one where both are one state, as plain rows of binary32, which holds every
 * number of the cache: the same bits. */
struct plain {
    float *k, *v;    /* [count][head_dim] */
    uint32_t *token; /* [count], ascending */
    bool *left_out;  /* [count] whose v is zeros */
    size_t count;
};

static void plain_end(struct plain *p)
{
    free(p->k);
    free(p->token);
    free(p->left_out);
}

/* False: no memory. */
static bool plain_begin(struct plain *p, const struct task *t, size_t head, size_t part, const struct ha_rows *rows)
{
    const struct ha_chosen *c = t->chosen;
    const size_t parts = is_one_state(c, head, part) ? 2 : 1, dim = data(t)->shape.head_dim;
    const size_t *offset = c->offset + head * HA_CHOSEN_STRIDE + part, count = offset[parts] - offset[0];
    size_t next[] = { offset[0], offset[1] };
    *p = (struct plain){ .k = calloc(2 * count * dim + 1, sizeof *p->k),
                         .token = malloc((count + 1) * sizeof *p->token),
                         .left_out = malloc((count + 1) * sizeof *p->left_out),
                         .count = count };
    if (!p->k || !p->token || !p->left_out) return false;
    p->v = p->k + count * dim;
    for (size_t i = 0; i < count; i++) {
        const bool second = next[0] == offset[1] || (next[1] < offset[parts] && c->token[next[1]] < c->token[next[0]]);
        const size_t at = next[second]++;
        const float *own = ha_chosen_part(c, head, part + second)->k;
        p->token[i] = c->token[at];
        p->left_out[i] = second;
        if (own) memcpy(p->k + i * dim, own + c->row[at] * dim, dim * sizeof *p->k);
        else
            ha_load_row((const char *)rows->k + c->token[at] * rows->k_stride_bytes, dim, data(t)->shape.dtype,
                        p->k + i * dim);
        if (!second)
            ha_load_row((const char *)rows->v + c->token[at] * rows->v_stride_bytes, dim, data(t)->shape.dtype,
                        p->v + i * dim);
    }
    return true;
}

/* Values that are left out weigh nothing: what is left of the state is its LSE. */
static void leave_values_out(struct ha_ref_state *state)
{
    for (size_t i = 0; i < state->dim; i++) state->o[i] = state->bound[i] = state->v_min[i] = state->v_max[i] = 0;
    state->may_overflow = false;
}

/* What is part of another state is an empty one of its own. */
static void leave_empty(struct ha_ref_state *state, struct ha_chance *chance, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        chance[i] = (struct ha_chance){ .lse_size = (double)NAN };
        state[i].keys = 0;
        state[i].lse = state[i].max = -HUGE_VAL;
        state[i].lse_bound = state[i].sum = 0;
        leave_values_out(&state[i]);
    }
}

static bool attend_part(struct task *t, const struct job *job, size_t part, struct scratch *m)
{
    const struct ha_session *session = t->pass->session;
    const struct ha_shape *s = &data(t)->shape;
    const size_t *offset = t->chosen->offset + job->h0 * HA_CHOSEN_STRIDE, dim = s->head_dim;
    const uint32_t *token = t->chosen->token + offset[part];
    const struct ha_part *given = ha_chosen_part(t->chosen, job->h0, part);
    const bool own = given->k || is_one_state(t->chosen, job->h0, part);
    size_t runs, n = 0, count = offset[part + 1] - offset[part];
    const struct ha_profile profile = claims_of(t, given, &runs);
    const enum ha_dtype dtype = own ? HA_F32 : s->dtype;
    struct ha_rows rows = head_rows(t, job->h0);
    struct plain plain = { 0 };
    if (own && !plain_begin(&plain, t, job->h0, part, &rows)) return plain_end(&plain), false;
    if (own) {
        rows = (struct ha_rows){ plain.k, plain.v, dim * sizeof *plain.k, dim * sizeof *plain.v, NULL, 0 };
        token = plain.token;
        count = plain.count;
    } else rows.index = token;
    for (size_t i = 0; i < job->tokens; i++) {
        size_t at = job->t0 + i;
        size_t visible = visible_of(token, count, ha_workload_tokens(data(t), t->seq, t->step) + at);
        size_t left_out = 0;
        rows.keys = visible > rows.keys ? visible : rows.keys;
        for (size_t j = 0; j < visible && own; j++) left_out += plain.left_out[j];
        for (size_t h = 0; h < job->heads; h++, n++) {
            const size_t row = (t->seq * s->q_len + at) * s->q_heads + job->h0 + h;
            const float *other = ha_chosen_part(t->chosen, job->h0 + h, part)->q;
            m->bound[n] = ha_bound_attend(&profile, s->head_dim, visible, runs);
            m->query[n] = (struct ha_ref_query){ .q = other ? other + at * s->head_dim
                                                            : ha_session_q(session, t->layer) + row * s->head_dim,
                                                 .visible = visible,
                                                 .left_out = left_out,
                                                 .bound = &m->bound[n],
                                                 .out = &m->state[part * job->tokens * job->heads + n] };
        }
    }
    ha_ref_attend_group(m->query, n, s->head_dim, (double)s->scale, &rows, dtype, m->work);
    for (size_t i = 0; i < n; i++) {
        const bool asked = !given->weight_only && by_chance(t, job->t0 + i / job->heads, job->h0 + i % job->heads);
        if (given->weight_only) leave_values_out(m->query[i].out);
        if (m->query[i].out->may_overflow) atomic_store(&t->overflows, true);
        if (m->query[i].out->score_beyond) atomic_store(&t->beyond, true);
        m->chance[part * n + i] = asked ? ha_ref_chance(m->query[i].q, s->head_dim, (double)s->scale, &rows, dtype,
                                                        &m->bound[i], m->query[i].out, (float *)m->work, NULL)
                                        : (struct ha_chance){ .lse_size = (double)NAN };
    }
    plain_end(&plain);
    return true;
}

/* The output over all parts of query n, merged where there is something to merge; its chance is that of its place. */
static const struct ha_ref_state *join(const struct task *t, size_t parts, size_t n, size_t queries, struct scratch *m)
{
    const struct ha_oracle_claims claims = ha_oracle_claims(t->pass->session, t->info);
    const struct ha_merge_bound bound = ha_bound_merge(&claims.merge, HA_FORM_NATURAL, HA_F32);
    struct ha_ref_state states[HA_PARTS_MAX], *out = &m->state[parts * queries + n];
    struct ha_chance chances[HA_PARTS_MAX];
    double work[HA_PARTS_MAX];

    if (parts == 1) return &m->state[n];
    for (size_t p = 0; p < parts; p++) {
        states[p] = m->state[p * queries + n];
        chances[p] = m->chance[p * queries + n];
    }
    ha_ref_merge(states, parts, &bound, out);
    m->chance[parts * queries + n] = ha_ref_chance_merge(chances, states, parts, &bound, out, work);
    return out;
}

/* ---- question 3 ------------------------------------------------------------------------ */

/* The share of the `count` heaviest keys among the keys used. Of keys as heavy as the lightest of
 * those, as many count as are needed. */
static double recall_of(const double *weight, size_t keys, const uint32_t *token, size_t count, double *copy)
{
    size_t above = 0, above_used = 0, equal_used = 0;
    if (!count) return (double)NAN;
    memcpy(copy, weight, keys * sizeof *copy);
    const double least = ha_array_largest(copy, keys, count - 1);
    for (size_t i = 0; i < keys; i++) above += weight[i] > least;
    for (size_t i = 0; i < count; i++) {
        above_used += weight[token[i]] > least;
        equal_used += !(weight[token[i]] > least) && !(weight[token[i]] < least);
    }
    size_t wanted = count - above;
    return (double)(above_used + (equal_used < wanted ? equal_used : wanted)) / (double)count;
}

/* The keys that query row `token` of a head can see of its parts, and of states that are not plain by what score each
 * was weighed. */
static size_t weighed_keys(const struct task *t, size_t token, size_t head, size_t position, const float *q,
                           struct scratch *m)
{
    const struct ha_shape *s = &data(t)->shape;
    const struct ha_chosen *c = t->chosen;
    const size_t *offset = c->offset + head * HA_CHOSEN_STRIDE, dim = s->head_dim;
    const struct ha_rows rows = head_rows(t, head);
    float k[HA_REF_DIM_MAX];
    size_t count = 0;
    for (size_t p = 0; p < HA_PARTS_MAX; p++) {
        const struct ha_part *part = ha_chosen_part(c, head, p);
        const float *with = part->q ? part->q + token * dim : q;
        const size_t visible = visible_of(c->token + offset[p], offset[p + 1] - offset[p], position);
        for (size_t i = offset[p]; i < offset[p] + visible; i++, count++) {
            m->token[count] = c->token[i];
            if (c->plain) continue;
            if (part->k) memcpy(k, part->k + c->row[i] * dim, dim * sizeof *k);
            else ha_load_row((const char *)rows.k + c->token[i] * rows.k_stride_bytes, dim, s->dtype, k);
            m->score[count] = 0;
            for (size_t d = 0; d < dim; d++) m->score[count] += (double)with[d] * (double)k[d];
            m->score[count] *= (double)s->scale;
            m->left_out[count] = part->weight_only;
        }
    }
    return count;
}

static void keep_full(const struct task *t, size_t row, const double *o)
{
    const size_t dim = data(t)->shape.head_dim;
    if (t->full) memcpy(t->full + row * dim, o, dim * sizeof *o);
}

static void ask_quality(const struct task *t, size_t token, size_t head, const struct ha_ref_state *want,
                        struct scratch *m)
{
    const struct ha_shape *s = &data(t)->shape;
    const size_t row = token * s->q_heads + head, at = t->seq * s->q_len * s->q_heads + row;
    const size_t position = ha_workload_tokens(data(t), t->seq, t->step) + token;
    const float *q = ha_session_q(t->pass->session, t->layer) + at * s->head_dim;
    const float *o = ha_session_o(t->pass->session, t->layer) + at * s->head_dim;
    struct ha_judged *j = &t->judged[row];
    struct ha_rows rows = head_rows(t, head);
    struct ha_ref_quality quality;
    const size_t count = weighed_keys(t, token, head, position, q, m);
    rows.keys = position + 1;
    j->keys = count;
    j->visible = rows.keys;
    j->full = count == rows.keys && t->chosen->plain;
    if (j->full) { /* question 1 has compared with full attention */
        j->mass = j->recall = 1;
        j->cert_slack = j->score_off2 = (double)NAN;
        keep_full(t, row, want->o);
        return;
    }
    ha_ref_quality(q, s->head_dim, (double)s->scale, &rows, s->dtype, o, m->token, count, m->work, &quality);
    keep_full(t, row, quality.o);
    j->diff2 = quality.diff2;
    j->norm2 = quality.norm2;
    j->mass = quality.mass;
    j->cert_slack = quality.cert_slack;
    j->score_off2 = (double)NAN;
    j->recall = recall_of(m->work, rows.keys, m->token, count, m->work + rows.keys);
    if (t->chosen->plain) return;
    const struct ha_ref_weighed set = { m->token, m->score, m->left_out, count };
    j->cert_slack = ha_ref_certificate(q, s->head_dim, (double)s->scale, &rows, s->dtype, &set, m->work,
                                       &j->score_off2);
}

/* ---- jobs -------------------------------------------------------------------------------- */

static size_t work_doubles(const struct task *t, size_t queries)
{
    size_t keys = ha_workload_tokens(data(t), t->seq, t->step + 1);
    return queries * (2 * keys + data(t)->shape.head_dim) + 2 * keys;
}

static bool run_job(struct task *t, const struct job *job)
{
    const struct ha_shape *s = &data(t)->shape;
    size_t queries = job->heads * job->tokens, parts = t->chosen->parts ? t->chosen->parts : 1, n = 0;
    struct scratch m = {
        .state = calloc((parts + 1) * queries, sizeof *m.state),
        .query = malloc(queries * sizeof *m.query),
        .bound = malloc(queries * sizeof *m.bound),
        .chance = malloc((parts + 1) * queries * sizeof *m.chance),
        .work = malloc(work_doubles(t, queries) * sizeof(double)),
        .token = malloc(ha_workload_tokens(data(t), t->seq, t->step + 1) * sizeof *m.token),
    };
    const size_t tokens = ha_workload_tokens(data(t), t->seq, t->step + 1);
    m.score = t->chosen->plain ? NULL : malloc(tokens * sizeof *m.score);
    m.left_out = t->chosen->plain ? NULL : malloc(tokens * sizeof *m.left_out);
    bool ok = m.state && m.query && m.bound && m.chance && m.work && m.token
              && (t->chosen->plain || (m.score && m.left_out));
    if (ok) m.numbers = lay_states(m.state, (parts + 1) * queries, s->head_dim);
    ok = ok && m.numbers;
    for (size_t p = 0; p < parts && ok; p++) {
        if (is_of_the_one_before(t->chosen, job->h0, p))
            leave_empty(m.state + p * queries, m.chance + p * queries, queries);
        else ok = attend_part(t, job, p, &m);
    }
    for (size_t i = 0; i < job->tokens && ok; i++)
        for (size_t h = 0; h < job->heads; h++, n++) {
            const struct ha_ref_state *want = join(t, parts, n, queries, &m);
            if (t->expected) keep(t, job->t0 + i, job->h0 + h, want);
            if (!t->judged) continue;
            judge(t, job->t0 + i, job->h0 + h, want, &m.chance[want - m.state]);
            ask_quality(t, job->t0 + i, job->h0 + h, want, &m);
        }
    free(m.state);
    free(m.query);
    free(m.bound);
    free(m.chance);
    free(m.numbers);
    free(m.work);
    free(m.token);
    free(m.score);
    free(m.left_out);
    return ok;
}

/* Heads of a group that use the same keys share the conversion of K and V. */
static void plan(struct task *t)
{
    const struct ha_shape *s = &data(t)->shape;
    size_t group = ha_shape_group(s);
    for (size_t h0 = 0; h0 < s->q_heads;) {
        size_t heads = 1;
        while (h0 % group + heads < group && ha_chosen_same(t->chosen, h0, h0 + heads)) heads++;
        size_t per_token = work_doubles(t, heads) * sizeof(double), tokens = work_bytes_max / per_token;
        tokens = tokens ? tokens : 1;
        for (size_t t0 = 0; t0 < s->q_len; t0 += tokens)
            t->job[t->jobs++] = (struct job){ h0, heads, t0, tokens < s->q_len - t0 ? tokens : s->q_len - t0 };
        h0 += heads;
    }
}

static void judge_task(void *arg, size_t task, size_t worker)
{
    struct task *t = arg;
    if (!run_job(t, &t->job[task])) atomic_store(&t->ok, false);
}

/* Row [q_len][q_heads] of what is judged has that share of W_O's rows. */
static void project_task(void *arg, size_t row, size_t worker)
{
    const struct task *t = arg;
    const struct ha_shape *s = &data(t)->shape;
    const size_t width = s->q_heads * s->head_dim, token = row / s->q_heads, share = row % s->q_heads;
    const size_t first = share * s->model_dim / s->q_heads, end = (share + 1) * s->model_dim / s->q_heads;
    const float *o = ha_session_o(t->pass->session, t->layer) + (t->seq * s->q_len + token) * width;
    t->judged[row].after_wo = ha_projection_off(&data(t)->projection[t->layer], width, first, end - first, o,
                                                t->full + token * width);
}

enum ha_status ha_oracle_judge(const struct ha_pass *pass, const struct ha_chosen *chosen, size_t step, size_t layer,
                               size_t seq, struct ha_judged *judged, const struct ha_expected *expected,
                               struct ha_why *why)
{
    const struct ha_shape *s = &pass->session->workload->shape;
    struct task t = { .pass = pass,
                      .info = &pass->session->info,
                      .chosen = chosen,
                      .step = step,
                      .layer = layer,
                      .seq = seq,
                      .judged = judged,
                      .expected = expected,
                      .job = malloc(s->q_heads * s->q_len * sizeof *t.job) };
    const bool projects = judged && data(&t)->projection && data(&t)->projection[layer].wo;
    if (projects) t.full = malloc(s->q_len * s->q_heads * s->head_dim * sizeof *t.full);
    bool ok = t.job != NULL && (t.full || !projects);
    if (ok) {
        atomic_store(&t.ok, true);
        atomic_store(&t.overflows, false);
        atomic_store(&t.beyond, false);
        plan(&t);
        ha_pool_run(pass->session->judges, "judge", t.jobs, judge_task, &t);
        ok = atomic_load(&t.ok);
    }
    if (ok && projects) ha_pool_run(pass->session->judges, "project", s->q_len * s->q_heads, project_task, &t);
    free(t.job);
    free(t.full);
    if (!ok) return ha_why(why, HA_ERROR, "no memory for the reference of layer %zu", layer);
    if (!atomic_load(&t.overflows)) return HA_OK;
    if (atomic_load(&t.beyond))
        return ha_why(
            why, HA_ERROR,
            "layer %zu seq %zu: a part of a score may be beyond the type that it is rounded to (f16 ends at "
            "65504): it may overflow, whatever computes it, and no bound holds; take a wider type for scores, "
            "or smaller keys",
            layer, seq);
    return ha_why(why, HA_ERROR,
                  "layer %zu seq %zu: 2^8 times the keys times max|V| is beyond binary32: it may overflow, whatever "
                  "computes it, and no bound holds; take smaller values, fewer keys or a wider type",
                  layer, seq);
}

enum ha_status ha_oracle_answer(const struct ha_pass *pass, const struct ha_chosen *chosen, size_t step, size_t layer,
                                size_t seq, size_t row, const struct ha_device_info *info,
                                const struct ha_expected *answer, struct ha_why *why)
{
    const size_t heads = pass->session->workload->shape.q_heads;
    struct task t = { .pass = pass,
                      .info = info,
                      .chosen = chosen,
                      .step = step,
                      .layer = layer,
                      .seq = seq,
                      .expected = answer,
                      .expected_from = row };
    const struct job job = { .h0 = row % heads, .heads = 1, .t0 = row / heads, .tokens = 1 };
    return run_job(&t, &job) ? HA_OK : ha_why(why, HA_ERROR, "no memory for the reference of layer %zu", layer);
}

/* ---- figures of many queries --------------------------------------------------------------- */

void ha_accuracy_start(struct ha_accuracy *a)
{
    *a = (struct ha_accuracy){ .mass_min = (double)INFINITY, .everything = true };
}

void ha_accuracy_add(struct ha_accuracy *a, const struct ha_judged *head, size_t count)
{
    double largest_diff = 0, largest_norm = 0;
    for (size_t h = 0; h < count; h++) {
        const struct ha_judged *j = &head[h];
        /* an error that is not a number is the largest there is */
        a->err_over_bound = j->ratio <= a->err_over_bound ? a->err_over_bound
                            : isnan(j->ratio)             ? (double)INFINITY
                                                          : j->ratio;
        a->keys_sum += (double)j->keys;
        a->visible_sum += (double)j->visible;
        a->everything = a->everything && j->full;
        a->queries++;
        ha_chances_add(&a->chances, j->lse_error, j->o_error, &j->chance);
        if (!isnan(j->mass)) {
            a->mass_min = j->mass < a->mass_min ? j->mass : a->mass_min;
            a->mass_sum += j->mass;
            a->mass_count++;
        }
        if (!isnan(j->cert_slack)) {
            a->cert_slack = j->cert_slack > a->cert_slack ? j->cert_slack : a->cert_slack;
            a->slack_count++;
        }
        if (!isnan(j->score_off2)) {
            a->score_off2_sum += j->score_off2;
            a->score_count++;
        }
        if (!isnan(j->recall)) {
            a->recall_sum += j->recall;
            a->recall_count++;
        }
        if (!isnan(j->norm2)) {
            a->diff2 += j->diff2;
            a->norm2 += j->norm2;
            a->rel_count++;
            a->off_count += !(j->diff2 <= HA_HEAD_OFF * HA_HEAD_OFF * j->norm2);
            largest_diff = fmax(largest_diff, sqrt(j->diff2));
            largest_norm = fmax(largest_norm, sqrt(j->norm2));
        }
        if (!isnan(j->after_wo.norm2)) {
            a->after_wo.diff2 += j->after_wo.diff2;
            a->after_wo.norm2 += j->after_wo.norm2;
        }
    }
    if (largest_norm > 0) a->rel_l2_head_max = fmax(a->rel_l2_head_max, largest_diff / largest_norm);
}

void ha_accuracy_join(struct ha_accuracy *a, const struct ha_accuracy *b)
{
    a->err_over_bound = fmax(a->err_over_bound, b->err_over_bound);
    a->diff2 += b->diff2;
    a->norm2 += b->norm2;
    a->after_wo.diff2 += b->after_wo.diff2;
    a->after_wo.norm2 += b->after_wo.norm2;
    a->rel_l2_head_max = fmax(a->rel_l2_head_max, b->rel_l2_head_max);
    a->mass_min = fmin(a->mass_min, b->mass_min);
    a->mass_sum += b->mass_sum;
    a->cert_slack = fmax(a->cert_slack, b->cert_slack);
    a->recall_sum += b->recall_sum;
    a->score_off2_sum += b->score_off2_sum;
    a->keys_sum += b->keys_sum;
    a->visible_sum += b->visible_sum;
    a->queries += b->queries;
    a->mass_count += b->mass_count;
    a->slack_count += b->slack_count;
    a->score_count += b->score_count;
    a->recall_count += b->recall_count;
    a->rel_count += b->rel_count;
    a->off_count += b->off_count;
    a->everything = a->everything && b->everything;
    ha_chances_join(&a->chances, &b->chances);
}

double ha_accuracy_rel_l2(const struct ha_accuracy *a)
{
    return a->rel_count && a->norm2 > 0 ? sqrt(a->diff2 / a->norm2) : (double)NAN;
}

double ha_accuracy_score_error(const struct ha_accuracy *a)
{
    return a->score_count ? sqrt(a->score_off2_sum / (double)a->score_count) : (double)NAN;
}

double ha_accuracy_rel_l2_wo(const struct ha_accuracy *a)
{
    return a->after_wo.norm2 > 0 ? sqrt(a->after_wo.diff2 / a->after_wo.norm2) : (double)NAN;
}

double ha_accuracy_heads_off(const struct ha_accuracy *a)
{
    return a->rel_count ? (double)a->off_count / (double)a->rel_count : (double)NAN;
}
