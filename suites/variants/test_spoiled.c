/* What variants report of small cases is accepted by their definitions, and spoiled in one place it is refused, for the
 * reason that it should be. A report is spoiled in the last step and layer, of the last query head of the last sequence
 * or of all query heads of its KV head. */

#include "harness/base/numeric.h"
#include "suites/variants/test_session.h"

#include "harness/api/features.h"
#include "harness/api/reference.h"

/* ---- a recorded case --------------------------------------------------------------------------------------------- */

/* Memory until the case is over. */
static struct room {
    struct room *next;
    double bytes[];
} * rooms;
static void *room(size_t bytes)
{
    struct room *r = malloc(sizeof *r + bytes + 1);
    if (!r) abort();
    *r = (struct room){ .next = rooms };
    rooms = r;
    return r->bytes;
}
static void *copy_of(const void *from, size_t bytes) { return from ? memcpy(room(bytes), from, bytes) : NULL; }
static void rooms_end(void)
{
    for (struct room *next; rooms; rooms = next) {
        next = rooms->next;
        free(rooms);
    }
}

enum { STEPS_MOST = 16, LAYERS_MOST = 4 };
static struct {
    struct ha_selection *said; /* [batch][q_heads] */
    float *q, *x;
} told[STEPS_MOST][LAYERS_MOST];

static const struct ha_shape *shape(void) { return &session.workload->shape; }

static struct ha_selection keep(const struct ha_selection *s)
{
    struct ha_selection own = *s;
    for (size_t i = 0; i < s->parts; i++) {
        struct ha_part *p = &own.part[i];
        p->token = copy_of(p->token, p->count * sizeof *p->token);
        p->q = copy_of(p->q, shape()->q_len * shape()->head_dim * sizeof *p->q);
        p->k = copy_of(p->k, p->count * shape()->head_dim * sizeof *p->k);
        p->profile = copy_of(p->profile, sizeof *p->profile);
    }
    own.learnt = copy_of(s->learnt, s->learnt_count * sizeof *s->learnt);
    return own;
}

static void record(const char *id)
{
    struct ha_pass p;
    open_session(id);
    const struct ha_shape *s = shape();
    const size_t rows = s->batch * s->q_len, heads = s->batch * s->q_heads;
    assert_true(s->steps <= STEPS_MOST && s->layers <= LAYERS_MOST);
    begin_pass(&p, true);
    for (size_t i = 0; i < s->steps * s->layers; i++) {
        const size_t step = i / s->layers, l = i % s->layers;
        if (l == 0) assert_ok(ha_pass_step(&p, step, &reason));
        told[step][l].q = copy_of(ha_session_q(&session, l), rows * s->q_heads * s->head_dim * sizeof(float));
        told[step][l].x = copy_of(ha_session_x(&session, l), rows * s->model_dim * sizeof(float));
        told[step][l].said = room(heads * sizeof *told[step][l].said);
        for (size_t h = 0; h < heads; h++) {
            struct ha_selection said = { .parts = 0 };
            p.variant->selection(p.instance, l, h / s->q_heads, h % s->q_heads, &said);
            told[step][l].said[h] = keep(&said);
        }
    }
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
}

/* ---- how a report is spoiled ------------------------------------------------------------------------------------- */

struct spoil {
    const char *text; /* what the reason says, one of those between bars */
    void (*of)(const struct spoil *how, struct ha_selection *s, size_t tokens); /* NULL: an option has another value */
    int part, to, at, count; /* the `count` tokens of a part from index `at` on; -1: those at its end */
    double by;
    const char *name;      /* of an option, or of a note */
    bool all;              /* heads of the KV head */
    int step, layer, head; /* 0: the last, -1: the one before, ... */
};

static uint32_t *list_of(const struct ha_part *p, size_t more)
{
    uint32_t *list = room((p->count + more) * sizeof *list);
    if (p->count) memcpy(list, p->token, p->count * sizeof *list);
    return list;
}

static void append(struct ha_part *p, const uint32_t *token, size_t count)
{
    uint32_t *list = list_of(p, count);
    memcpy(list + p->count, token, count * sizeof *list);
    p->token = list;
    if (p->k) {
        const size_t dim = shape()->head_dim, had = p->count * dim;
        float *k = memset(room((had + count * dim) * sizeof *k), 0, (had + count * dim) * sizeof *k);
        memcpy(k, p->k, had * sizeof *k);
        p->k = k;
    }
    p->count += count;
}

static size_t from_of(const struct spoil *how, const struct ha_part *p)
{
    const size_t count = (size_t)how->count,
                 from = how->at < 0 ? p->count + (size_t)(how->at + 1) - count : (size_t)how->at;
    if (p->count < count || from > p->count - count) fail_msg("%s: part %d has no such tokens", how->text, how->part);
    return from;
}

static void drop(const struct spoil *how, struct ha_selection *s, size_t tokens)
{
    struct ha_part *p = &s->part[how->part];
    const size_t from = from_of(how, p), end = from + (size_t)how->count, dim = shape()->head_dim;
    uint32_t *list = list_of(p, 0);
    memmove(list + from, list + end, (p->count - end) * sizeof *list);
    p->token = list;
    if (p->k) {
        float *k = copy_of(p->k, p->count * dim * sizeof *k);
        memmove(k + from * dim, k + end * dim, (p->count - end) * dim * sizeof *k);
        p->k = k;
    }
    p->count -= (size_t)how->count;
}

/* Part `to` has these, too. */
static void twice(const struct spoil *how, struct ha_selection *s, size_t tokens)
{
    const struct ha_part *p = &s->part[how->part];
    append(&s->part[how->to], p->token + from_of(how, p), (size_t)how->count);
}

static void move(const struct spoil *how, struct ha_selection *s, size_t tokens)
{
    twice(how, s, tokens);
    drop(how, s, tokens);
}

/* The first `count` tokens side by side that nothing uses, at a whole number of `count` behind token `at`. */
static void add(const struct spoil *how, struct ha_selection *s, size_t tokens)
{
    uint32_t token[64];
    const size_t count = (size_t)how->count, begin = how->at < 0 ? 0 : (size_t)how->at;
    for (size_t from = begin; from + count <= tokens; from += count) {
        bool used = false;
        for (size_t p = 0; p < s->parts; p++)
            for (size_t i = 0; i < s->part[p].count; i++) {
                const uint32_t t = s->part[p].token[i];
                used |= t >= from && t < from + count;
            }
        if (used) continue;
        for (size_t i = 0; i < count; i++) token[i] = (uint32_t)(from + i);
        append(&s->part[how->to], token, count);
        return;
    }
    fail_msg("%s: all tokens are used", how->text);
}

/* in place of the `count` first ones of part `part` */
static void swap(const struct spoil *how, struct ha_selection *s, size_t tokens)
{
    const struct spoil first = { .part = how->part, .at = 0, .count = how->count };
    add(how, s, tokens);
    drop(&first, s, tokens);
}

/* The first token of a part is a part of its own. */
static void split(const struct spoil *how, struct ha_selection *s, size_t tokens)
{
    const struct spoil first = { .part = how->part, .at = 0, .count = 1 };
    s->part[s->parts] = s->part[how->part];
    s->part[s->parts++].count = 1;
    drop(&first, s, tokens);
}

static void exchange(const struct spoil *how, struct ha_selection *s, size_t tokens)
{
    const struct ha_part p = s->part[how->part];
    s->part[how->part] = s->part[how->to];
    s->part[how->to] = p;
}

/* What the head before says. */
static void other_head(const struct spoil *how, struct ha_selection *s, size_t tokens)
{
    const size_t head = shape()->batch * shape()->q_heads - 1 - (size_t)how->count;
    *s = told[shape()->steps - 1][shape()->layers - 1].said[head];
}

#define OF_PART(name, change)                                                        \
    static void name(const struct spoil *how, struct ha_selection *s, size_t tokens) \
    {                                                                                \
        struct ha_part *p = &s->part[how->part];                                     \
        change;                                                                      \
    }
OF_PART(side, p->on_device = !p->on_device)
OF_PART(either, p->either_side = true)
OF_PART(settled, p->on_device = true; p->either_side = false)
OF_PART(alone, p->weight_only = true)
OF_PART(empty, p->count = 0)
OF_PART(padded, p->padding = 1)
OF_PART(no_query, p->q = NULL)
OF_PART(other_query, p->q = told[0][0].q)
OF_PART(no_keys, p->k = NULL)
OF_PART(other_keys, p->k = memset(room(p->count * 1024), 0, p->count * 1024))

static void query_off(const struct spoil *how, struct ha_selection *s, size_t tokens)
{
    float *q = copy_of(s->part[how->part].q, shape()->q_len * shape()->head_dim * sizeof *q);
    q[shape()->head_dim - 1] *= 1 + (float)how->by;
    s->part[how->part].q = q;
}

/* what stands for token `at` of the part */
static void key_off(const struct spoil *how, struct ha_selection *s, size_t tokens)
{
    struct ha_part *p = &s->part[how->part];
    const size_t at = how->at < 0 ? p->count - 1 : (size_t)how->at;
    float *k = copy_of(p->k, p->count * shape()->head_dim * sizeof *k);
    k[(at + 1) * shape()->head_dim - 1] += (float)how->by;
    p->k = k;
}

#define CLAIM(name, change)                                                          \
    static void name(const struct spoil *how, struct ha_selection *s, size_t tokens) \
    {                                                                                \
        for (size_t i = (size_t)how->part; i < s->parts; i++) {                      \
            struct ha_profile *p = copy_of(s->part[i].profile, sizeof *p);           \
            if (p) change;                                                           \
            s->part[i].profile = p;                                                  \
        }                                                                            \
    }
CLAIM(no_claims, p = NULL)
CLAIM(score_type, p->score_type = HA_BF16)
CLAIM(weight_type, p->weight_type = HA_BF16)
CLAIM(sum_least, p->sum_least = fmin(p->sum_least * how->by, 1))

static struct ha_note *note_of(const struct spoil *how, struct ha_selection *s)
{
    for (size_t i = 0; i < s->notes; i++)
        if (!strcmp(s->note[i].name, how->name)) return &s->note[i];
    s->note[s->notes] = (struct ha_note){ how->name, 0 };
    return &s->note[s->notes++];
}
static void no_note(const struct spoil *how, struct ha_selection *s, size_t tokens) { note_of(how, s)->name = "none"; }
static void note_is(const struct spoil *how, struct ha_selection *s, size_t tokens)
{
    note_of(how, s)->value = how->by;
}
static void note_off(const struct spoil *how, struct ha_selection *s, size_t tokens)
{
    note_of(how, s)->value += how->by;
}
static void note_not(const struct spoil *how, struct ha_selection *s, size_t tokens)
{
    note_of(how, s)->value = !(note_of(how, s)->value > 0);
}

static void nothing_learnt(const struct spoil *how, struct ha_selection *s, size_t tokens) { s->learnt_count = 0; }
static void learnt_off(const struct spoil *how, struct ha_selection *s, size_t tokens)
{
    double *x = copy_of(s->learnt, s->learnt_count * sizeof *x);
    x[how->at] += how->by * fmax(1, fabs(x[how->at]));
    s->learnt = x;
}

/* ---- what the definition says of it ------------------------------------------------------------------------------ */

struct asked {
    const struct spoil *spoil; /* NULL: of a step that is as it was */
    const struct ha_selection *said;
    const size_t *tokens;
};

static void reported(void *arg, size_t seq, size_t head, struct ha_selection *out)
{
    const struct asked *a = arg;
    const size_t heads = shape()->q_heads, kv = heads / shape()->kv_heads;
    *out = a->said[seq * heads + head];
    if (!a->spoil || !a->spoil->of || seq + 1 < shape()->batch) return;
    const size_t of = (size_t)((int)heads - 1 + a->spoil->head);
    if (a->spoil->all ? head / kv == of / kv : head == of) a->spoil->of(a->spoil, out, a->tokens[seq]);
}

/* spoil: NULL for none */
static enum ha_status judge(const struct spoil *spoil)
{
    const struct ha_shape *s = shape();
    const struct ha_workload *w = session.workload;
    const struct ha_definition *d = ha_definition_find(session.variant->name);
    const struct ha_profile cpu = ha_profile_attend(&session.kernels, s->dtype),
                            observer = ha_profile_weaker(&cpu, &session.info.profile[s->dtype], w->cap);
    struct ha_def *def = NULL;
    double param[64];
    size_t tokens[HA_BATCH_MAX];
    reason = (struct ha_why){ "" };
    for (size_t i = 0; i < session.variant->params_count; i++) {
        param[i] = session.param[i];
        if (spoil && !spoil->of && !strcmp(session.variant->params[i].name, spoil->name)) param[i] = spoil->by;
    }
    enum ha_status status = d->create(&def, s, param, session.fit, &reason);
    for (size_t i = 0; i < (s->steps + 1) * s->layers && status == HA_OK; i++) {
        const size_t step = i / s->layers, l = i % s->layers;
        for (size_t b = 0; b < s->batch; b++) tokens[b] = ha_workload_tokens(w, b, step);
        struct ha_def_step in = { .layer = l,
                                  .q_len = s->q_len,
                                  .projection = w->projection,
                                  .k = (const void *const *)(w->k + l * s->batch),
                                  .v = (const void *const *)(w->v + l * s->batch),
                                  .tokens = tokens,
                                  .kv_cap = w->cap,
                                  .observer = &observer };
        if (step == 0) {
            if (d->prefill) status = ha_definition_prefill(d, def, s, &in, ha_workload_prefill(w, l).q, &reason);
            continue;
        }
        in.q = told[step - 1][l].q;
        in.x = told[step - 1][l].x;
        const bool here = spoil && (int)step == (int)s->steps + spoil->step
                          && (int)l == (int)s->layers - 1 + spoil->layer;
        struct asked asked = { here ? spoil : NULL, told[step - 1][l].said, tokens };
        status = ha_definition_step(d, def, s, &in, reported, &asked, &reason);
    }
    if (def) d->destroy(def);
    return status;
}

static bool says(const char *text, const char *any)
{
    char part[96];
    for (const char *end = any; end; any = end + 1) {
        end = strchr(any, '|');
        snprintf(part, sizeof part, "%.*s", (int)(end ? end - any : (long)strlen(any)), any);
        if (strstr(text, part)) return true;
    }
    return false;
}

/* The reason is the right one, and names where it was. */
static bool is_told(const struct spoil *of)
{
    char where[64];
    snprintf(where, sizeof where, " layer %zu seq %zu head ", shape()->layers - 1 + (size_t)of->layer,
             shape()->batch - 1);
    return says(reason.text, of->text) && (!of->of || strstr(reason.text, where));
}

#include "suites/variants/test_spoiled_rows.h"

TEST(what_is_spoiled_is_refused)
{
    size_t wrong = 0;
    for (size_t i = 0; i < COUNT(CASE); i++) {
        record(CASE[i].id);
        if (judge(NULL) != HA_OK) fail_msg("%s: %s", CASE[i].id, reason.text);
        for (size_t j = 0; j < CASE[i].count; j++) {
            const struct spoil *of = &CASE[i].spoil[j];
            if (judge(of) == HA_FAIL && is_told(of)) continue;
            print_error("%s, row %zu, \"%s\": %s\n", CASE[i].id, j, of->text,
                        reason.text[0] ? reason.text : "accepted");
            wrong++;
        }
        rooms_end();
        close_session();
    }
    assert_int_equal(wrong, 0);
}
