#include "suites/variants/dump.h"

#include "harness/api/reference.h"
#include "harness/base/arena.h"
#include "harness/base/array.h"
#include "harness/base/claims.h"
#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/fingerprint.h"
#include "harness/base/order.h"
#include "harness/base/why.h"
#include "harness/base/registry.h"
#include "harness/base/rng.h"
#include "harness/base/stop.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- selections ------------------------------------------------------------------------------------------------ */

/* What the parts of a head are read with: a bit for each token, all clear between uses, and which of a part's keys it
 * is. */
struct reading {
    uint64_t *now, *before; /* [tokens / 64] of this part, of those before it */
    uint32_t *row;          /* [tokens] */
    size_t tokens;
};

static bool all_finite(const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* What a part has of its own, to be judged by: its claims, and numbers. */
static enum ha_status check_own(const struct ha_shape *s, const struct ha_part *part, size_t number, struct ha_why *why)
{
    char of[32];
    snprintf(of, sizeof of, "profile of part %zu", number);
    if (part->profile && ha_profile_check(of, part->profile, why) != HA_OK) return HA_FAIL;
    if (part->count && part->q && !all_finite(part->q, s->q_len * s->head_dim))
        return ha_why(why, HA_FAIL, "the q of part %zu is not finite", number);
    if (part->k && !all_finite(part->k, part->count * s->head_dim))
        return ha_why(why, HA_FAIL, "the k of part %zu is not finite", number);
    return HA_OK;
}

/* Moves the set bits of `now` to the chosen tokens, ascending, and into `before`. */
static enum ha_status add_part(struct ha_chosen *c, const struct ha_part *part, const struct reading *r,
                               struct ha_why *why)
{
    uint64_t *now = r->now, *before = r->before;
    const size_t tokens = r->tokens;
    for (size_t i = 0; i < part->count; i++) {
        size_t t = part->token[i];
        if (t >= tokens) return ha_why(why, HA_FAIL, "key %zu does not exist: the sequence has %zu tokens", t, tokens);
        if ((now[t / 64] | before[t / 64]) >> t % 64 & 1) return ha_why(why, HA_FAIL, "key %zu is listed twice", t);
        now[t / 64] |= UINT64_C(1) << t % 64;
        if (part->k) r->row[t] = (uint32_t)i;
    }
    for (size_t i = 0; i < (tokens + 63) / 64; i++) {
        for (uint64_t w = now[i]; w; w &= w - 1) {
            c->token[c->count] = (uint32_t)(64 * i + (size_t)__builtin_ctzll(w));
            if (part->k) c->row[c->count] = r->row[c->token[c->count]];
            c->count++;
        }
        before[i] |= now[i];
        now[i] = 0;
    }
    return HA_OK;
}

static bool is_plain(const struct ha_part *p) { return !p->q && !p->k && !p->profile && !p->weight_only; }

static bool is_own(const struct ha_selection *s)
{
    bool own = false;
    for (size_t p = 0; p < s->parts && p < HA_PARTS_MAX; p++) own |= !is_plain(&s->part[p]) || s->part[p].either_side;
    return own;
}

static enum ha_status read_head(struct ha_chosen *c, const struct ha_shape *shape, size_t head,
                                const struct ha_selection *s, const struct reading *r, struct ha_why *why)
{
    size_t *offset = c->offset + head * HA_CHOSEN_STRIDE;
    for (size_t p = 0; p < HA_PARTS_MAX; p++) {
        offset[p] = c->count;
        if (p >= s->parts) continue;
        c->part[head * HA_PARTS_MAX + p] = s->part[p];
        c->plain = c->plain && is_plain(&s->part[p]);
        HA_TRY(check_own(shape, &s->part[p], p, why));
        HA_TRY(add_part(c, &s->part[p], r, why));
    }
    offset[HA_PARTS_MAX] = c->count;
    if (s->parts > c->parts) c->parts = s->parts;
    memset(r->before, 0, (r->tokens + 63) / 64 * sizeof *r->before);
    return HA_OK;
}

/* No head has more valid keys than there are tokens; more are found to be repeated before they are stored. */
static bool room_for(struct ha_chosen *c, size_t *capacity, size_t *rows, size_t tokens)
{
    return ha_array_room(&c->token, capacity, c->count + tokens, sizeof *c->token)
           && ha_array_room(&c->row, rows, c->count + tokens, sizeof *c->row);
}

/* What a head reports, kept: no more than was asked once counts. One that cannot be read has no lists. */
static enum ha_status keep_reported(struct ha_chosen *c, size_t head, size_t tokens, struct ha_why *why)
{
    struct ha_selection *s = &c->reported[head];
    size_t count = 0;
    HA_TRY(ha_selection_check(s, tokens, why));
    for (size_t p = 0; p < s->parts; p++) count += s->part[p].count;
    uint32_t *list = c->list[head] = malloc((count + 1) * sizeof *list);
    if (!list) return ha_why(why, HA_ERROR, "no memory for a selection");
    for (size_t p = 0; p < s->parts; p++) {
        struct ha_part *part = &s->part[p];
        if (part->count) memcpy(list, part->token, part->count * sizeof *list);
        part->token = list;
        list += part->count;
    }
    return HA_OK;
}

enum ha_status ha_chosen_read(struct ha_chosen *c, const struct ha_pass *pass, size_t step, size_t layer, size_t seq,
                              struct ha_why *why)
{
    const struct ha_workload *w = pass->session->workload;
    const size_t heads = w->shape.q_heads, tokens = ha_workload_tokens(w, seq, step + 1), words = (tokens + 63) / 64;
    uint64_t *bits = calloc(2 * words, sizeof *bits);
    const struct reading r = { bits, bits + words, malloc(tokens * sizeof *r.row), tokens };
    size_t capacity = 0, rows = 0;
    enum ha_status status = HA_OK;
    *c = (struct ha_chosen){ .offset = calloc(heads * HA_CHOSEN_STRIDE, sizeof *c->offset),
                             .part = calloc(heads * HA_PARTS_MAX, sizeof *c->part),
                             .reported = calloc(heads, sizeof *c->reported),
                             .list = calloc(heads, sizeof *c->list),
                             .heads = heads,
                             .plain = true };
    if (!bits || !r.row || !c->offset || !c->part || !c->reported || !c->list)
        status = ha_why(why, HA_ERROR, "no memory for a selection");
    for (size_t head = 0; head < heads && status == HA_OK; head++) {
        struct ha_selection *s = &c->reported[head];
        struct ha_why reason = { "" };
        pass->variant->selection(pass->instance, layer, seq, head, s);
        if (!room_for(c, &capacity, &rows, tokens)) {
            status = ha_why(why, HA_ERROR, "no memory for a selection");
            break;
        }
        status = keep_reported(c, head, tokens, &reason);
        if (status == HA_OK) status = read_head(c, &w->shape, head, s, &r, &reason);
        if (status == HA_OK && is_own(s) && !pass->variant->own_states)
            status = ha_why(
                &reason, HA_FAIL,
                "a state has a query, keys, weights or claims of its own, and the variant does not say own_states");
        if (status != HA_OK)
            ha_why(why, status, "selection of %s, layer %zu step %zu seq %zu head %zu: %s", pass->variant->name, layer,
                   step, seq, head, reason.text);
    }
    free(r.row);
    free(bits);
    return status;
}

void ha_chosen_free(struct ha_chosen *c)
{
    free(c->token);
    free(c->offset);
    free(c->part);
    free(c->row);
    free(c->reported);
    for (size_t head = 0; c->list && head < c->heads; head++) free(c->list[head]);
    free(c->list);
    *c = (struct ha_chosen){ .token = NULL };
}

size_t ha_chosen_keys(const struct ha_chosen *c, size_t head)
{
    return c->offset[head * HA_CHOSEN_STRIDE + HA_PARTS_MAX] - c->offset[head * HA_CHOSEN_STRIDE];
}

size_t ha_chosen_device_keys(const struct ha_chosen *c, size_t head)
{
    size_t keys = 0;
    for (size_t p = 0; p < HA_PARTS_MAX; p++)
        if (ha_chosen_part(c, head, p)->on_device)
            keys += c->offset[head * HA_CHOSEN_STRIDE + p + 1] - c->offset[head * HA_CHOSEN_STRIDE + p];
    return keys;
}

const struct ha_part *ha_chosen_part(const struct ha_chosen *c, size_t head, size_t part)
{
    return &c->part[head * HA_PARTS_MAX + part];
}

static bool same_part(const struct ha_part *x, const struct ha_part *y)
{
    return x->on_device == y->on_device && x->k == y->k && x->profile == y->profile && x->weight_only == y->weight_only
           && x->either_side == y->either_side;
}

/* Whether of a part with keys of its own the same rows stand for the same tokens. */
static bool same_rows(const struct ha_chosen *c, const struct ha_part *part, size_t x, size_t y, size_t count)
{
    return !part->k || !memcmp(c->row + x, c->row + y, count * sizeof *c->row);
}

bool ha_chosen_same(const struct ha_chosen *c, size_t a, size_t b)
{
    const size_t *x = c->offset + a * HA_CHOSEN_STRIDE, *y = c->offset + b * HA_CHOSEN_STRIDE;
    for (size_t p = 0; p < HA_PARTS_MAX; p++)
        if (x[p + 1] - x[p] != y[p + 1] - y[p] || !same_part(ha_chosen_part(c, a, p), ha_chosen_part(c, b, p))
            || !same_rows(c, ha_chosen_part(c, a, p), x[p], y[p], x[p + 1] - x[p]))
            return false;
    return !memcmp(c->token + x[0], c->token + y[0], ha_chosen_keys(c, a) * sizeof *c->token);
}

/* ---- the state of a check ---------------------------------------------------------------------------------------- */

struct state {
    struct ha_check *check;
    struct ha_pass pass;
    const struct ha_definition *definition;
    struct ha_def *def;
    size_t tokens[HA_BATCH_MAX];           /* after the step */
    struct ha_judged *judged;              /* [q_len][q_heads] */
    struct ha_profile observer;            /* weights may be the device's or the CPU's */
    struct ha_expected last;               /* of the sequence that was judged last, where expectations are not kept */
    size_t layer;                          /* of the selection that the definition asks for */
    struct ha_chosen chosen[HA_BATCH_MAX]; /* of that layer, as question 1 was asked of it; or nothing */
    struct ha_recount recount;
    struct ha_repeat *repeat; /* NULL: no further pass follows */
    bool again;               /* this is not the first one */
    size_t judged_places;     /* of a timed pass: steps and layers, and how long they took */
    uint64_t judging_ns;
};

static const struct ha_shape *shape(const struct ha_check *c) { return &c->session->workload->shape; }

bool ha_check_asks(const struct ha_check *c, size_t step)
{
    return !c->steps || step < c->steps || step + c->steps >= shape(c)->steps;
}

/* Among the steps that are asked. */
static size_t asked_before(const struct ha_check *c, size_t step)
{
    size_t skipped = !c->steps || shape(c)->steps <= 2 * c->steps ? 0 : shape(c)->steps - 2 * c->steps;
    return step < c->steps ? step : step - skipped;
}

/* [layers][batch] of a step, or NULL */
static struct ha_expected *expected_of(const struct ha_check *c, size_t step)
{
    return c->expected ? c->expected + asked_before(c, step) * shape(c)->layers * shape(c)->batch : NULL;
}

static enum ha_status fail(struct ha_check *c, int question, struct ha_why *why, const char *text)
{
    static const char *const name[] = { "", "question 1 (arithmetic): ", "question 2 (definition): " };
    c->question = question;
    return ha_why(why, HA_FAIL, "%s%s; habench check '%s'", name[question], text, c->id);
}

/* ---- question 2 -------------------------------------------------------------------------- */

static struct ha_def_step def_step(struct state *s, size_t layer, size_t steps)
{
    const struct ha_workload *w = s->check->session->workload;
    for (size_t b = 0; b < w->shape.batch; b++) s->tokens[b] = ha_workload_tokens(w, b, steps);
    return (struct ha_def_step){ .layer = layer,
                                 .q_len = w->shape.q_len,
                                 .q = ha_session_q(s->check->session, layer),
                                 .x = ha_session_x(s->check->session, layer),
                                 .projection = w->projection,
                                 .k = (const void *const *)(w->k + layer * w->shape.batch),
                                 .v = (const void *const *)(w->v + layer * w->shape.batch),
                                 .tokens = s->tokens,
                                 .kv_cap = w->cap,
                                 .observer = &s->observer };
}

static void reported(void *arg, size_t seq, size_t q_head, struct ha_selection *out)
{
    struct state *s = arg;
    *out = (struct ha_selection){ .parts = 0 };
    if (s->chosen[seq].reported) *out = s->chosen[seq].reported[q_head];
    else s->pass.variant->selection(s->pass.instance, s->layer, seq, q_head, out);
}

static enum ha_status prefill_definition(struct state *s, struct ha_why *why)
{
    struct ha_session *session = s->check->session;
    const enum ha_dtype t = shape(s->check)->dtype;
    const struct ha_profile cpu = ha_profile_attend(&session->kernels, t);
    s->observer = ha_profile_weaker(&cpu,
                                    session->variant->products ? &session->info.products[t] : &session->info.profile[t],
                                    session->workload->cap);
    if (s->definition->create)
        HA_TRY(s->definition->create(&s->def, shape(s->check), session->param, session->fit, why));
    for (size_t layer = 0; layer < shape(s->check)->layers && s->definition->prefill; layer++) {
        struct ha_def_step kv = def_step(s, layer, 0);
        HA_TRY(ha_definition_prefill(s->definition, s->def, shape(s->check), &kv,
                                     ha_workload_prefill(session->workload, layer).q, why));
    }
    return HA_OK;
}

static enum ha_status ask_definition(struct state *s, size_t step, size_t layer, struct ha_why *why)
{
    struct ha_def_step args = def_step(s, layer, step + 1);
    struct ha_why reason = { "" };
    s->layer = layer;
    enum ha_status status = ha_definition_step(s->definition, s->def, shape(s->check), &args, reported, s, &reason);
    if (status == HA_OK) return HA_OK;
    if (status != HA_FAIL) return ha_why(why, status, "question 2: %s", reason.text);
    char text[512];
    snprintf(text, sizeof text, "layer %zu step %zu: %.400s", layer, step, reason.text);
    return fail(s->check, 2, why, text);
}

/* ---- what the variant counts, beside what it reports ------------------------------------- */

static void recount(struct state *s, size_t step, size_t layer)
{
    s->layer = layer;
    for (size_t i = 0; i < shape(s->check)->batch * shape(s->check)->q_heads; i++) {
        struct ha_selection selection;
        reported(s, i / shape(s->check)->q_heads, i % shape(s->check)->q_heads, &selection);
        ha_recount_add(&s->recount, step, layer, &selection);
    }
}

static enum ha_status ask_counters(struct state *s, struct ha_why *why)
{
    struct ha_check *c = s->check;
    struct ha_why reason = { "" };
    if (!ha_session_checked(c->session)) return HA_OK;
    enum ha_status status = ha_recount_judge(&s->recount, &c->counters, &reason);
    if (status == HA_OK) status = ha_recount_counted(s->definition, s->def, &c->counted, &reason);
    return status == HA_OK ? HA_OK : fail(c, 2, why, reason.text);
}

/* ---- question 1 -------------------------------------------------------------------------- */

static enum ha_status judge_heads(struct state *s, size_t step, size_t layer, size_t seq, struct ha_why *why)
{
    size_t heads = shape(s->check)->q_heads, rows = heads * shape(s->check)->q_len, worst = 0;
    for (size_t i = 1; i < rows; i++)
        if (!(s->judged[i].ratio <= s->judged[worst].ratio)) worst = i;
    const struct ha_judged *j = &s->judged[worst];
    bool ok = j->ratio <= 1.0;
    if (ok) return HA_OK;
    char text[320], element[32];
    if (j->element < shape(s->check)->head_dim) snprintf(element, sizeof element, "element %zu", j->element);
    else snprintf(element, sizeof element, "LSE");
    snprintf(text, sizeof text,
             "layer %zu step %zu seq %zu token %zu head %zu %s: got %.9g, want %.9g, bound %.3g, error/bound %.3g",
             layer, step, seq, worst / heads, worst % heads, element, (double)j->got, j->want, j->bound, j->ratio);
    return fail(s->check, 1, why, text);
}

/* K and V that one head reads on a side: of keys that others stand for no K, of weights alone no V. */
static size_t key_bytes(const struct ha_chosen *c, size_t head, bool on_device, size_t row)
{
    const size_t *offset = c->offset + head * HA_CHOSEN_STRIDE;
    size_t bytes = 0;
    for (size_t p = 0; p < HA_PARTS_MAX; p++) {
        const struct ha_part *part = ha_chosen_part(c, head, p);
        const size_t rows = (part->k ? 0u : 1u) + (part->weight_only ? 0u : 1u);
        if (part->on_device == on_device) bytes += (offset[p + 1] - offset[p]) * rows * row;
    }
    return bytes;
}

/* What must be read at least once: of each group of heads the longest list. */
static void count_key_bytes(struct ha_check *c, const struct ha_chosen *chosen)
{
    const struct ha_shape *s = shape(c);
    size_t group = ha_shape_group(s), row = s->head_dim * ha_dtype_bytes(s->dtype);
    for (size_t h0 = 0; h0 < s->q_heads; h0 += group) {
        size_t device = 0, host = 0;
        for (size_t h = h0; h < h0 + group; h++) {
            const size_t on_device = key_bytes(chosen, h, true, row), on_host = key_bytes(chosen, h, false, row);
            device = on_device > device ? on_device : device;
            host = on_host > host ? on_host : host;
        }
        c->device_key_bytes += (double)device;
        c->host_key_bytes += (double)host;
    }
}

/* What is wrong with the claims that the answers of this sequence were judged by. */
static enum ha_status ask_claims(struct state *s, const struct ha_chosen *chosen, size_t step, size_t layer, size_t seq,
                                 const struct ha_expected *expected, struct ha_why *why)
{
    const struct ha_check_place at = { step, layer, seq };
    const bool first = step == 0 && layer == 0 && seq == 0;
    struct ha_why reason = { "" };
    char text[512];
    enum ha_status status = ha_sensitivity_claims(&s->pass, chosen, step, seq, &reason);
    if (status == HA_OK) status = ha_sensitivity_types(&s->pass, chosen, layer, seq, &reason);
    if (status == HA_OK) status = ha_sensitivity_parts(&s->pass, chosen, &at, expected, &reason);
    if (status == HA_OK && first)
        status = ha_sensitivity_ask(&s->check->sensitivity, &s->pass, chosen, expected, &reason);
    if (status != HA_FAIL) return status == HA_OK ? status : ha_why(why, status, "%s", reason.text);
    snprintf(text, sizeof text, "layer %zu step %zu seq %zu: %.400s", layer, step, seq, reason.text);
    return fail(s->check, 1, why, text);
}

static void copy_expected(const struct ha_shape *s, const struct ha_expected *to, const struct ha_expected *from)
{
    const size_t rows = s->q_len * s->q_heads;
    memcpy(to->o, from->o, rows * s->head_dim * sizeof *to->o);
    memcpy(to->o_bound, from->o_bound, rows * s->head_dim * sizeof *to->o_bound);
    memcpy(to->lse, from->lse, rows * sizeof *to->lse);
    memcpy(to->lse_bound, from->lse_bound, rows * sizeof *to->lse_bound);
}

/* Of a pass that may have used other keys nothing is known but that it has attended over some. */
static bool is_near(double x, double want, double bound, bool other_keys)
{
    return isfinite(x) && isfinite(want) && (other_keys || fabs(x - want) <= bound);
}

/* The outputs of a step of the timed pass. */
static const unsigned char *timed_outputs(const struct ha_check *c, size_t step)
{
    return c->timed->out + ha_session_slot(c->session, step) * shape(c)->layers * c->session->io.out_bytes;
}

/* out: of all layers of the step */
static enum ha_status compare_expected(const struct ha_check *c, struct ha_check_place at, const struct ha_expected *e,
                                       const unsigned char *out, struct ha_why *why)
{
    const struct ha_shape *s = shape(c);
    const struct ha_io *io = &c->session->io;
    const struct ha_variant *v = c->session->variant;
    const bool other_keys = at.step > 0 && v->varies && !v->keeps_keys && v->varies(c->session->param);
    const size_t rows = s->q_len * s->q_heads;
    const float *of_layer = (const float *)(const void *)(out + at.layer * io->out_bytes + io->o),
                *o = of_layer + at.seq * rows * s->head_dim,
                *lse = (const float *)(const void *)(out + at.layer * io->out_bytes + io->lse) + at.seq * rows;
    for (size_t r = 0; r < rows; r++) {
        bool ok = is_near((double)lse[r], e->lse[r], e->lse_bound[r], other_keys)
                  || (isinf(e->lse[r]) && isinf(lse[r]) && lse[r] < 0);
        size_t d = 0;
        for (; d < s->head_dim && ok; d++) {
            const size_t i = r * s->head_dim + d;
            ok = is_near((double)o[i], e->o[i], e->o_bound[i], other_keys);
        }
        if (!ok)
            return ha_why(why, HA_FAIL,
                          "timed pass: step %zu layer %zu seq %zu token %zu head %zu %s differs from what was checked; "
                          "habench run '%s'",
                          at.step, at.layer, at.seq, r / s->q_heads, r % s->q_heads, d ? "o" : "LSE", c->id);
    }
    return HA_OK;
}

static enum ha_status ask_sequence(struct state *s, size_t step, size_t layer, size_t seq, struct ha_accuracy *a,
                                   struct ha_why *why)
{
    struct ha_check *c = s->check;
    const struct ha_expected *of_step = expected_of(c, step),
                             *kept = of_step ? &of_step[layer * shape(c)->batch + seq] : &s->last;
    const struct ha_expected dumped = c->dump ? ha_dump_expected(c->dump, step, layer, seq) : (struct ha_expected){ 0 };
    struct ha_why reason = { "" };
    struct ha_chosen *chosen = &s->chosen[seq];
    enum ha_status status = ha_chosen_read(chosen, &s->pass, step, layer, seq, &reason);
    if (status == HA_FAIL) fail(c, 1, why, reason.text);
    else if (status != HA_OK) ha_why(why, status, "%s", reason.text);
    if (status == HA_OK)
        status = ha_oracle_judge(&s->pass, chosen, step, layer, seq, s->judged, c->dump ? &dumped : kept, why);
    if (status == HA_OK && c->dump) {
        ha_dump_step(c->dump, chosen, step, layer, seq, s->judged);
        copy_expected(shape(c), kept, &dumped);
    }
    if (status == HA_OK) {
        for (size_t t = 0; t < shape(c)->q_len; t++)
            ha_accuracy_add(a, s->judged + t * shape(c)->q_heads, shape(c)->q_heads);
        count_key_bytes(c, chosen);
        status = judge_heads(s, step, layer, seq, why);
        if (status == HA_OK) status = ask_claims(s, chosen, step, layer, seq, kept, why);
        if (status == HA_OK && c->timed && ha_session_keeps(c->session, step))
            status = compare_expected(c, (struct ha_check_place){ step, layer, seq }, kept, timed_outputs(c, step),
                                      why);
    }
    return status;
}

static void start(struct ha_check *c)
{
    ha_accuracy_start(&c->total);
    for (size_t i = 0; i < 2; i++) ha_accuracy_start(&c->half[i]);
}

static enum ha_status ask_layer(struct state *s, size_t step, size_t layer, struct ha_why *why)
{
    struct ha_check *c = s->check;
    struct ha_accuracy a;
    enum ha_status status = HA_OK;
    ha_accuracy_start(&a);
    for (size_t seq = 0; seq < shape(c)->batch && status == HA_OK; seq++)
        status = ask_sequence(s, step, layer, seq, &a, why);
    ha_accuracy_join(&c->total, &a);
    ha_accuracy_join(&c->half[2 * layer >= shape(c)->layers], &a);
    if (c->layer_done) c->layer_done(c->arg, step, layer, &a);
    HA_TRY(status);
    if (c->session->variant->contract == HA_EXACT && !a.everything) {
        char text[160], but[80] = "a state has a query, keys or weights of its own";
        if (a.keys_sum < a.visible_sum)
            snprintf(but, sizeof but, "%.0f of %.0f keys were used", a.keys_sum, a.visible_sum);
        snprintf(text, sizeof text, "layer %zu step %zu: the contract is exact, but %s", layer, step, but);
        return fail(c, 2, why, text);
    }
    return HA_OK;
}

/* ---- all bits of the outputs -------------------------------------------------------------- */

/* Of the step that was downloaded last. */
static uint64_t fingerprint(uint64_t h, const struct ha_session *session)
{
    const struct ha_shape *s = &session->workload->shape;
    const size_t rows = s->batch * s->q_len * s->q_heads;
    for (size_t layer = 0; layer < s->layers; layer++) {
        h = ha_fingerprint_floats(h, ha_session_o(session, layer), rows * s->head_dim);
        h = ha_fingerprint_floats(h, ha_session_lse(session, layer), rows);
    }
    return h;
}

/* ---- a whole check ----------------------------------------------------------------------- */

/* n of them, the memory of all begins at the first one's o */
static enum ha_status lay_expected(const struct ha_check *c, struct ha_expected *expected, size_t n, struct ha_why *why)
{
    const struct ha_shape *s = shape(c);
    const size_t rows = s->q_len * s->q_heads;
    double *x = expected ? calloc(n, 2 * rows * (s->head_dim + 1) * sizeof *x) : NULL;
    if (!x) return ha_why(why, HA_ERROR, "no memory for the expected outputs");
    for (size_t i = 0; i < n; i++, x += 2 * rows * (s->head_dim + 1))
        expected[i] = (struct ha_expected){ .o = x,
                                            .o_bound = x + rows * s->head_dim,
                                            .lse = x + 2 * rows * s->head_dim,
                                            .lse_bound = x + 2 * rows * s->head_dim + rows };
    return HA_OK;
}

static enum ha_status make_expected(struct state *s, struct ha_why *why)
{
    struct ha_check *c = s->check;
    const size_t n = asked_before(c, shape(c)->steps) * shape(c)->layers * shape(c)->batch;
    if (!c->keep_expected) return lay_expected(c, &s->last, 1, why);
    c->expected = calloc(n, sizeof *c->expected);
    return lay_expected(c, c->expected, n, why);
}

static void forget_chosen(struct state *s)
{
    for (size_t seq = 0; seq < shape(s->check)->batch; seq++) ha_chosen_free(&s->chosen[seq]);
}

/* Of the step that was downloaded last. */
static enum ha_status compare_timed(const struct ha_check *c, size_t step, struct ha_why *why)
{
    struct ha_session *s = c->session;
    const size_t rows = shape(c)->batch * shape(c)->q_len * shape(c)->q_heads, layers = shape(c)->layers;
    if (ha_repeat_unpromised(s) || !ha_session_keeps(s, step)) return HA_OK;
    const unsigned char *timed = timed_outputs(c, step);
    for (size_t layer = 0; layer < layers; layer++, timed += s->io.out_bytes) {
        const unsigned char *now = s->host_out + layer * s->io.out_bytes;
        const bool same_o = !memcmp(now + s->io.o, timed + s->io.o, rows * shape(c)->head_dim * sizeof(float)),
                   same_lse = !memcmp(now + s->io.lse, timed + s->io.lse, rows * sizeof(float));
        if (same_o && same_lse) continue;
        return ha_why(why, HA_FAIL,
                      "timed pass: step %zu layer %zu: %s has other bits than when the same inputs were checked; "
                      "habench run '%s'",
                      step, layer, same_o ? "LSE" : "o", c->id);
    }
    return HA_OK;
}

/* Is the layer of a step judged? Of a timed pass the one that is drawn, and others, with the same chance each, as far
 * as there is time. */
static bool asks_layer(const struct state *s, size_t step, size_t layer)
{
    const struct ha_check *c = s->check;
    const struct ha_timed *t = c->timed;
    if (!t) return ha_check_asks(c, step);
    if (step == t->at.step && layer == t->at.layer) return true;
    if (!s->judged_places) return true;
    const size_t place = step * shape(c)->layers + layer, left = shape(c)->steps * shape(c)->layers - place;
    const double each_ns = (double)s->judging_ns / (double)s->judged_places,
                 chance = ((double)t->budget_ns - (double)s->judging_ns) / (each_ns * (double)left);
    return (double)ha_rng_below(t->turn, 4, place, 1000) < 1000 * chance;
}

static enum ha_status ask_place(struct state *s, size_t step, size_t layer, struct ha_why *why)
{
    const uint64_t begin_ns = ha_now_ns();
    const enum ha_status status = ask_layer(s, step, layer, why);
    s->judging_ns += ha_now_ns() - begin_ns + 1;
    s->judged_places++;
    return status;
}

static enum ha_status run_steps(struct state *s, struct ha_why *why)
{
    struct ha_check *c = s->check;
    bool checked = ha_session_checked(c->session);
    if (checked && !c->timed) HA_TRY(prefill_definition(s, why));
    if (checked) HA_TRY(make_expected(s, why));
    for (size_t step = 0; step < shape(c)->steps; step++) {
        if (ha_stop) return ha_why(why, HA_WAIVED, "stopped");
        HA_TRY(ha_pass_step(&s->pass, step, why));
        if (!step) c->first_step_ns = (double)(s->pass.window.end_ns - s->pass.window.begin_ns);
        if (!s->again) c->outputs = fingerprint(c->outputs, c->session);
        if (s->again) HA_TRY(ha_repeat_compare(s->repeat, &s->pass, step, c->session->host_out, why));
        if (c->timed) HA_TRY(compare_timed(c, step, why));
        for (size_t layer = 0; layer < shape(c)->layers && checked; layer++) {
            if (asks_layer(s, step, layer)) HA_TRY(ask_place(s, step, layer, why));
            if (!c->timed) HA_TRY(ask_definition(s, step, layer, why));
            if (!c->timed) recount(s, step, layer);
            forget_chosen(s);
        }
        if (s->repeat && !s->again) HA_TRY(ha_repeat_keep(s->repeat, &s->pass, step, why));
        c->steps_done = step + 1;
        c->asked += ha_check_asks(c, step);
    }
    if (s->pass.follows) c->session->workload->dataset->followed(c->session->workload->source, &c->followed);
    if (s->pass.variant->counters) s->pass.variant->counters(s->pass.instance, &c->counters);
    HA_TRY(ha_counted_read(&c->counted, &s->pass, why));
    if (!c->timed) HA_TRY(ask_counters(s, why));
    c->device_key_bytes /= (double)c->asked;
    c->host_key_bytes /= (double)c->asked;
    return HA_OK;
}

static void read_memory(struct ha_check *c, const struct ha_pass *p)
{
    c->kv_device_bytes = (double)ha_device_arena_peak_bytes(p->device_arena, HA_TAG_KV);
    c->meta_device_bytes = (double)ha_device_arena_peak_bytes(p->device_arena, HA_TAG_META);
    c->kv_host_bytes = (double)(ha_arena_peak_bytes(p->arena, HA_TAG_KV)
                                + ha_pinned_peak_bytes(p->device_arena, HA_TAG_KV));
    c->meta_host_bytes = (double)(ha_arena_peak_bytes(p->arena, HA_TAG_META)
                                  + ha_pinned_peak_bytes(p->device_arena, HA_TAG_META));
}

static void state_end(struct state *s)
{
    forget_chosen(s);
    if (s->def) s->definition->destroy(s->def);
    free(s->judged);
    free(s->last.o);
}

static enum ha_status run_pass(struct state *s, struct ha_why *why)
{
    struct ha_check *c = s->check;
    struct ha_session *session = c->session;
    if (ha_session_checked(session) && (!s->definition || !session->variant->selection))
        return ha_why(why, HA_ERROR, "variant %s has no %s, so it cannot be checked", session->variant->name,
                      s->definition ? "selection" : "definition in reference/");
    s->judged = calloc(shape(c)->q_len * shape(c)->q_heads, sizeof *s->judged);
    if (!s->judged) return ha_why(why, HA_ERROR, "no memory for the check");
    if (s->again || c->timed)
        HA_TRY(ha_pass_again(&s->pass, session, session->variant, session->param, NULL, true, why));
    else HA_TRY(ha_pass_begin(&s->pass, session, session->variant, session->param, true, why));
    enum ha_status status = run_steps(s, why);
    read_memory(c, &s->pass);
    return ha_pass_end(&s->pass, status, why);
}

/* ---- the same twice ---------------------------------------------------------------------- */

/* Where other bits are no fault they are to be within the bounds, too, of what was selected this time. */
static enum ha_status judge_again(const struct state *first, struct ha_why *why)
{
    struct ha_check *c = first->check;
    struct ha_check other = { .session = c->session, .id = c->id, .steps = c->steps };
    struct state s = { .check = &other, .definition = first->definition, .repeat = first->repeat, .again = true };
    start(&other);
    HA_TRY(ha_repeat_disturb(s.repeat, why));
    const enum ha_status status = run_pass(&s, why);
    s.repeat->passes++;
    c->question = other.question;
    c->total.err_over_bound = fmax(c->total.err_over_bound, other.total.err_over_bound);
    ha_counted_free(&other.counted);
    state_end(&s);
    return status;
}

static enum ha_status repeat(struct state *s, struct ha_why *why)
{
    struct ha_check *c = s->check;
    struct ha_repeat *r = s->repeat;
    enum ha_status status = HA_OK;
    if (!ha_repeat_unpromised(c->session)) status = ha_repeat_run(r, c->repeats, why);
    for (size_t i = 0; ha_repeat_unpromised(c->session) && i < c->repeats && status == HA_OK; i++)
        status = judge_again(s, why);
    c->repeat = ha_repeat_seen(r);
    if (status != HA_OK || c->repeat != HA_REPEAT_DIFFERS) return status;
    return ha_why(why, HA_FAIL,
                  "the same input gave other bits the second time: %s; a device that does not promise the same says "
                  "varies in its profile or merge; habench check '%s'",
                  r->where.text, c->id);
}

/* All steps once more as they are timed: the host does not wait between two steps, which orders what else nothing does.
 */
static enum ha_status run_through(struct ha_session *session, struct ha_why *why)
{
    struct ha_pass pass;
    HA_TRY(ha_pass_begin(&pass, session, session->variant, session->param, false, why));
    return ha_pass_end(&pass, ha_pass_run(&pass, false, why), why);
}

/* Bytes that are right this time do not excuse a conflict. */
static enum ha_status ask_order(struct ha_check *c, enum ha_status so_far, struct ha_why *why)
{
    struct ha_why reason;
    enum ha_status status = ha_order_verdict(ha_order_now(), &reason);
    if (so_far == HA_OK && status == HA_OK) so_far = run_through(c->session, why);
    if (status == HA_OK) status = ha_order_verdict(ha_order_now(), &reason);
    if (status == HA_OK || (status == HA_ERROR && so_far != HA_OK)) return so_far;
    c->question = 0;
    return ha_why(why, status, "%s", reason.text);
}

enum ha_status ha_check_run(struct ha_check *c, struct ha_why *why)
{
    const double nan = (double)NAN;
    struct ha_repeat again = { .session = c->session };
    struct state s = { .check = c, .definition = ha_definition_find(c->session->variant->name) };
    if (c->repeats && ha_session_checked(c->session)) s.repeat = &again;
    c->repeat = HA_REPEAT_NONE;
    c->outputs = HA_FINGERPRINT_BEGIN;
    start(c);
    c->question = 0;
    c->steps_done = c->asked = 0;
    c->expected = NULL;
    c->device_key_bytes = c->host_key_bytes = 0;
    c->sensitivity = (struct ha_sensitivity){ nan, nan, nan };
    c->counters = (struct ha_counters){ nan, nan, nan, nan, nan, nan };
    c->kv_device_bytes = c->kv_host_bytes = c->meta_device_bytes = c->meta_host_bytes = nan;
    enum ha_status status = s.repeat ? ha_repeat_open(&again, c->session, why) : HA_OK;
    if (status == HA_OK) status = run_pass(&s, why);
    if (status == HA_OK && s.repeat) status = repeat(&s, why);
    ha_repeat_close(&again);
    if (c->session->ordered) status = ask_order(c, status, why);
    state_end(&s);
    return status;
}

enum ha_status ha_check_again(const struct ha_check *c, size_t step, struct ha_why *why)
{
    const size_t batch = shape(c)->batch;
    const struct ha_expected *expected = expected_of(c, step);
    for (size_t i = 0; expected && i < shape(c)->layers * batch; i++) {
        const struct ha_check_place at = { step, i / batch, i % batch };
        HA_TRY(compare_expected(c, at, &expected[i], c->session->host_out, why));
    }
    return HA_OK;
}

enum ha_status ha_check_timed(struct ha_session *s, const char *id, struct ha_timed *t, struct ha_why *why)
{
    struct ha_check c = { .session = s, .id = id, .timed = t };
    struct ha_why reason = { "" };
    HA_TRY(ha_session_turn(s, t->turn, why));
    enum ha_status status = ha_check_run(&c, why);
    t->first_step_ns = c.first_step_ns;
    if (status == HA_OK) {
        status = ha_recount_again(&c, ha_repeat_unpromised(s) != NULL, &t->counters, &t->counted, &reason);
        if (status != HA_OK) ha_why(why, status, "timed pass: %s; habench run '%s'", reason.text, id);
    }
    ha_check_free(&c);
    return status;
}

void ha_check_free(struct ha_check *c)
{
    if (c->expected) free(c->expected->o); /* all of them */
    free(c->expected);
    c->expected = NULL;
    ha_counted_free(&c->counted);
}

/* ---- what a variant counts --------------------------------------------------------------- */

static void add_count(void *arg, const char *name, size_t layer, double value)
{
    struct ha_counted *c = arg;
    if (!ha_array_room(&c->of, &c->cap, c->count + 1, sizeof *c->of)) c->full = true;
    if (c->full) return;
    c->of[c->count].name = name;
    c->of[c->count].layer = layer;
    c->of[c->count++].value = value;
}

enum ha_status ha_counted_read(struct ha_counted *c, const struct ha_pass *p, struct ha_why *why)
{
    c->count = 0;
    if (p->variant->count) p->variant->count(p->instance, add_count, c);
    return c->full ? ha_why(why, HA_ERROR, "no memory for what %s counts", p->variant->name) : HA_OK;
}

enum ha_status ha_counted_add(struct ha_counted *c, const struct ha_counted *more, struct ha_why *why)
{
    const size_t had = c->count;
    for (size_t i = 0; i < more->count; i++) {
        size_t at = 0;
        while (at < had && (c->of[at].layer != more->of[i].layer || strcmp(c->of[at].name, more->of[i].name) != 0))
            at++;
        if (at == had) add_count(c, more->of[i].name, more->of[i].layer, more->of[i].value);
    }
    return c->full ? ha_why(why, HA_ERROR, "no memory for what is counted") : HA_OK;
}

void ha_counted_free(struct ha_counted *c)
{
    free(c->of);
    *c = (struct ha_counted){ .of = NULL };
}
