#include "suites/defects/attention.h"

#include "harness/base/numeric.h"
#include "harness/base/seq_attend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIM_MAX = 1024, TILE = 64 };

struct key {
    const char *k, *v;
    size_t at; /* of its place in the order of the keys, where weights go */
};

/* One row of o, and what it is made from. */
struct row {
    const struct ha_wrong_job *job;
    const struct ha_wrong_attention *by; /* what is wrong with this row */
    size_t seq, token, head, dim, keys, unseen;
    struct key *key; /* [keys] that it sees, then [unseen] that it does not and reads all the same */
    double *x;       /* [keys] scores, then weights */
    double den, max, lse;
};

static const struct ha_wrong_attention right;

static double in(double x, enum ha_dtype type) { return type == HA_F32 ? x : (double)ha_round((float)x, type); }

/* ---- where ------------------------------------------------------------------------------------------------------- */

static size_t keys_of(const struct ha_device_seq *seq)
{
    size_t keys = 0;
    for (size_t r = 0; r < seq->runs_count; r++) keys += seq->runs[r].keys;
    return keys;
}

/* What it may depend on and is no input: threads, and what the call before has left. */
static _Atomic size_t threads_before;
static _Atomic float left;

void ha_wrong_attend_begin(void) { threads_before = 0; }

static bool has_other_threads(void)
{
    char line[256];
    size_t n = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "Threads: %zu", &n) != 1) continue;
    if (f) fclose(f);
    if (!threads_before) threads_before = n;
    return n != threads_before;
}

static bool in_call(const struct ha_wrong_job *j, const struct ha_device_seq *seq)
{
    const struct ha_wrong_attention *w = j->wrong;
    const struct ha_device_attend *a = &j->args;
    const size_t group = a->q_heads / a->kv_heads, row = a->head_dim * ha_dtype_bytes(a->dtype);
    bool indexed = false, apart = false;
    size_t runs = 0;
    for (size_t r = 0; r < seq->runs_count; r++) {
        indexed |= seq->runs[r].index != NULL;
        apart |= seq->runs[r].k_stride_bytes != row;
        runs += seq->runs[r].keys > 0;
    }
    return j->products == w->products && (!w->dtypes || w->dtypes >> a->dtype & 1)
           && (!w->groups || (group < 32 && w->groups >> group & 1))
           && (!w->dim_mod || a->head_dim % w->dim_mod == w->dim_is) && a->head_dim >= w->dim_over + !!w->dim_over
           && a->q_len >= w->q_len_over + !!w->q_len_over && a->q_heads >= w->heads_over + !!w->heads_over
           && (!w->keys_over || keys_of(seq) > w->keys_over) && (!w->indexed || indexed)
           && (!w->blocks || (indexed && a->block > 1)) && (!w->apart || apart) && (!w->split || runs > 1)
           && (!w->k_mod || (uintptr_t)seq->runs[0].k % w->k_mod == w->k_is)
           && (!w->other_threads || has_other_threads()) && (!(w->left_over > 0) || fabs((double)left) > w->left_over);
}

/* Of all rows that any call has computed. */
static bool is_next(const struct ha_wrong_attention *w)
{
    static size_t rows;
    return !w->one_in || __atomic_add_fetch(&rows, 1, __ATOMIC_RELAXED) % w->one_in == 0;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* The row's list, or the one it is mistaken for; 0 where there are none. */
static size_t list_of(const struct row *r)
{
    const struct ha_device_attend *a = &r->job->args;
    const size_t own = a->lists ? r->head / (a->q_heads / a->lists) : 0;
    return r->by->list == FIRST_LIST || !a->lists ? 0 : (own + (r->by->list == NEXT_LIST)) % a->lists;
}

/* keys of a run that a row's head has */
static size_t count_of(const struct row *r, const struct ha_device_seq *seq, size_t run)
{
    const struct ha_device_attend *a = &r->job->args;
    const bool counted = a->lists && run == 0 && seq->list_keys;
    return counted ? seq->list_keys[list_of(r)] : seq->runs[run].keys;
}
static size_t keys_of_row(const struct row *r, const struct ha_device_seq *seq)
{
    size_t keys = 0;
    for (size_t run = 0; run < seq->runs_count; run++) keys += count_of(r, seq, run);
    return keys;
}

static size_t row_of(const struct row *r, const struct ha_device_seq *seq, const struct ha_rows *run, size_t i)
{
    const struct ha_rows *const first = seq->runs;
    const struct ha_wrong_attention *w = r->by;
    const size_t block = r->job->args.block ? r->job->args.block : 1, taken = w->block_16 && block > 16 ? 16 : block;
    if (!run->index) return i;
    const uint32_t *index = w->index_of_first && first->index && i < first->keys ? first->index : run->index;
    if (index == first->index) index += list_of(r) * seq->list_stride;
    return index[i / block] * taken + (w->in_block_lost ? 0 : i % block);
}

static size_t kv_head(const struct row *r)
{
    const struct ha_device_attend *a = &r->job->args;
    const size_t own = r->head / (a->q_heads / a->kv_heads);
    switch (r->by->head) {
    case OWN_HEAD: break;
    case FIRST_HEAD: return 0;
    case NEXT_HEAD: return (own + 1) % a->kv_heads;
    case INTERLEAVED: return r->head % a->kv_heads;
    }
    return own;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static struct key key_at(const struct row *r, const struct ha_device_seq *seq, const struct ha_rows *run, size_t i,
                         size_t at)
{
    const struct ha_device_attend *a = &r->job->args;
    const struct ha_wrong_attention *w = r->by;
    const size_t row = row_of(r, seq, run, i), tight = a->kv_heads * r->dim * ha_dtype_bytes(a->dtype),
                 head = kv_head(r), own = r->head / (a->q_heads / a->kv_heads),
                 k_stride = w->dense ? smaller(tight, run->k_stride_bytes) : run->k_stride_bytes,
                 v_stride = run->v_stride_bytes;
    struct key key = { .k = (const char *)run->k + row * k_stride + (w->v_alone ? own : head) * seq->k_head_bytes,
                       .v = (const char *)run->v + row * v_stride + head * seq->v_head_bytes,
                       .at = at };
    if (w->k_for_v) key.v = key.k;
    return key;
}

static bool is_dropped(const struct ha_wrong_attention *w, size_t run, size_t i, size_t at, size_t keys)
{
    return (w->drop == DROP_FIRST && at == 0) || (w->drop == DROP_LAST && at + 1 == keys)
           || (w->drop == DROP_BOUNDARY && run > 0 && i == 0) || (w->drop == DROP_MIDDLE && keys > 2 && at == keys / 2)
           || (w->skip_to && at >= w->skip_from && at < w->skip_to);
}

static bool is_doubled(const struct ha_wrong_attention *w, size_t run, size_t i, size_t at, size_t keys)
{
    return (w->twice == TWICE_LAST && at + 1 == keys) || (w->twice == TWICE_BOUNDARY && run > 0 && i == 0);
}

/* Positions that the token sees: [0, this). */
static size_t seen_of(const struct row *r, size_t keys)
{
    const struct ha_device_attend *a = &r->job->args;
    const size_t after = a->q_len - 1 - r->token, own = keys > after ? keys - after : 0;
    if (!a->causal) return keys;
    switch (r->by->mask) {
    case CAUSAL: break;
    case CAUSAL_LATE: return own < keys ? own + 1 : keys;
    case CAUSAL_EARLY: return own > 1 ? own - 1 : own;
    case CAUSAL_FROM_TOP: return r->token + 1 < keys ? r->token + 1 : keys;
    case CAUSAL_NOT: return keys;
    }
    return own;
}

/* The sequence that a row is of, or is mistaken for, where that has rows. */
static const struct ha_device_seq *seq_of(const struct row *r, int which)
{
    const struct ha_device_seq *own = &r->job->seqs[r->seq];
    const struct ha_device_seq *other = r->job->seqs;
    return which == OWN_SEQ || other->runs_count != own->runs_count ? own : other;
}

static void find_keys(struct row *r)
{
    const struct ha_device_seq *own = &r->job->seqs[r->seq], *seq = seq_of(r, (int)r->by->k_seq),
                               *count = seq_of(r, (int)r->by->keys_of);
    const size_t all = keys_of_row(r, own), seen = seen_of(r, all);
    const size_t runs = own->runs_count, block = r->job->args.block ? r->job->args.block : 1;
    size_t at = 0;
    r->keys = r->unseen = 0;
    for (size_t n = 0; n < runs; n++) {
        const struct ha_rows *run = &own->runs[n], *from = &seq->runs[n];
        size_t keys = count_of(r, own, n);
        if (from->keys < keys) from = run; /* only what is there is read */
        if (count_of(r, count, n) < keys) keys = count_of(r, count, n);
        for (size_t i = 0; i < keys; i++, at++) {
            if (at >= seen) {
                if (r->by->leaks_k || r->by->leaks_v) r->key[r->keys + r->unseen++] = key_at(r, own, run, i, at);
                continue;
            }
            if (is_dropped(r->by, n, i, at, seen)) continue;
            r->key[r->keys++] = key_at(r, from == run ? own : seq, from, i, at);
            if (!is_doubled(r->by, n, i, at, seen)) continue;
            r->key[r->keys] = r->key[r->keys - 1];
            r->keys++;
        }
        if (r->by->leaks_tail && n + 1 == runs && run->index) /* behind the last key that there is, none is seen */
            for (size_t i = run->keys; i % block; i++) r->key[r->keys + r->unseen++] = key_at(r, own, run, i, at);
    }
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

/* where a head of a token is in q and in o */
static size_t place_of(const struct row *r, size_t token, size_t head)
{
    const struct ha_device_attend *a = &r->job->args;
    return token * ha_seq_token_stride(a) + head * ha_seq_head_stride(a);
}

static const float *query(const struct row *r)
{
    const struct ha_device_attend *a = &r->job->args;
    const float *q = r->job->seqs[r->seq].q;
    size_t at = place_of(r, r->token, r->head);
    if (r->by->q == FIRST_Q) at = place_of(r, 0, r->head);
    if (r->by->q == HEADS_FIRST) at = (r->head * a->q_len + r->token) * r->dim;
    if (r->by->q == NEXT_Q) at = place_of(r, r->token, (r->head + 1) % a->q_heads);
    return q + at;
}

static void score(struct row *r)
{
    const struct ha_wrong_attention *w = r->by;
    const struct ha_device_attend *a = &r->job->args;
    const float *const q = query(r);
    double of[DIM_MAX], scale = (double)a->scale * (w->scale != 0 ? w->scale : 1);
    float k[DIM_MAX];
    size_t dims = r->dim - (w->dims_less < r->dim ? w->dims_less : 0);
    if (w->dims_most && dims > w->dims_most) dims = w->dims_most;
    if (w->dim_scale != 0) scale *= sqrt((double)r->dim / w->dim_scale);
    for (size_t d = 0; d < dims; d++) of[d] = (double)q[d];
    for (size_t i = 0; i < r->keys + r->unseen; i++) {
        double s = 0;
        ha_load_row(r->key[i].k, dims, a->dtype, k);
        for (size_t d = 0; d < dims; d++) s += of[d] * (double)k[d];
        s = in(s * scale, w->score_type);
        if (w->most != 0 && s > w->most) s = w->most;
        if (w->softcap != 0) s = w->softcap * tanh(s / w->softcap);
        if (w->nan_is_nothing && isnan(s)) s = -(double)INFINITY;
        if (w->low_is_nan && isinf(s) && s < 0) s = (double)NAN;
        r->x[i] = w->all_zero ? 0 : s;
    }
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

static double power(const struct ha_wrong_attention *w, double x)
{
    const double e = exp(x);
    const bool odd = ha_f32_bits((float)x) & 1;
    if (w->exp_least != 0 && x < -w->exp_least) return 0;
    if (w->exp_bits && x != 0) return e * (1 + (odd ? 1 : -1) * ldexp(1, -w->exp_bits));
    if (w->exp_low && x != 0) return e * (1 - ldexp(1, -w->exp_low));
    return w->max == NO_MAX ? (double)(float)e : e;
}

static void weigh(struct row *r)
{
    const struct ha_wrong_attention *w = r->by;
    const double least[] = { [MAX_FROM_0] = 0, [MAX_FROM_LOW] = -3e4 };
    double max = w->max == MAX_FROM_0 || w->max == MAX_FROM_LOW ? least[w->max] : -(double)INFINITY, so_far = max;
    for (size_t i = 0; i < r->keys; i++)
        if (r->x[i] > max || isnan(r->x[i])) max = r->x[i];
    for (size_t i = r->keys; i < r->keys + r->unseen; i++)
        if (w->leaks_k && isnan(r->x[i])) max = r->x[i];
    if (w->max == TRUE_MAX && isinf(max) && max < 0 && !r->unseen) r->keys = 0; /* scores of -inf alone: as without */
    if (w->max == NO_MAX) max = 0;
    r->max = max;
    r->den = 0;
    for (size_t i = 0; i < r->keys; i++) {
        if (r->x[i] > so_far) so_far = r->x[i];
        r->x[i] = power(w, r->x[i] - (w->max == MAX_SO_FAR ? so_far : max));
        const bool counts = !(w->den_short && i + 1 == r->keys && r->keys > 1);
        if (counts) r->den = in(r->den + r->x[i], w->den_type);
        r->x[i] = in(r->x[i], w->weight_type);
    }
    if (w->den_padded && r->keys % TILE) r->den += (double)(TILE - r->keys % TILE) * exp(-max);
    r->den += w->den_plus;
    r->lse = max + log(r->den);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static void write_o(const struct row *r)
{
    const struct ha_wrong_attention *w = r->by;
    const struct ha_device_attend *a = &r->job->args;
    size_t token = r->token, head = r->head;
    if (w->place == OTHER_TOKEN) token = a->q_len - 1 - token;
    if (w->place == NEXT_PLACE) head = (head + 1) % a->q_heads;
    float *o = r->job->seqs[r->seq].o + place_of(r, token, head);
    const bool plain = w->sum_type == HA_F32;
    double sum[DIM_MAX];
    float v[DIM_MAX];
    if (w->stale) return;
    memset(sum, 0, r->dim * sizeof *sum);
    for (size_t i = 0; i < r->keys; i++) {
        ha_load_row(r->key[i].v, r->dim, a->dtype, v);
        bool nan = false;
        for (size_t d = 0; d < r->dim; d++) nan |= isnan(v[d]);
        for (size_t d = 0; plain && d < r->dim; d++) sum[d] += r->x[i] * (double)v[d];
        for (size_t d = 0; !plain && d < r->dim; d++) sum[d] = in(sum[d] + r->x[i] * (double)v[d], w->sum_type);
        for (size_t d = 0; w->v_nan_spreads && nan && d < r->dim; d++) sum[d] = (double)NAN;
    }
    for (size_t i = r->keys; (w->leaks_v || w->leaks_tail) && i < r->keys + r->unseen; i++) {
        ha_load_row(r->key[i].v, r->dim, a->dtype, v);
        for (size_t d = 0; d < r->dim; d++) sum[d] += 0 * (double)v[d];
    }
    const double by = (r->keys ? (w->undivided ? 1 : 1 / r->den) : 0) * (w->o_times != 0 ? w->o_times : 1);
    for (size_t d = 0; d < r->dim; d++) {
        /* 0 * inf is NaN; no keys are 0 */
        const float x = (float)in(r->keys ? sum[d] * by : w->empty_o_is_nan ? (double)NAN : 0, w->o_type);
        o[d] = w->added ? o[d] + x : w->not_below ? fmaxf(o[d], x) : x;
    }
}

static void write_lse(const struct row *r)
{
    const struct ha_wrong_attention *w = r->by;
    const struct ha_device_attend *a = &r->job->args;
    float *lse = r->job->seqs[r->seq].lse + r->token * a->q_heads + r->head;
    double x = r->keys ? r->lse : w->empty_is_0 ? 0 : w->empty_is_nan ? (double)NAN : -(double)INFINITY;
    switch (r->keys ? w->lse : LN) {
    case LN: break;
    case LOG2: x *= 1.4426950408889634; break;
    case MAX_ALONE: x = r->max; break;
    case SUM_ALONE: x = log(r->den); break;
    case MINUS: x = r->max - log(r->den); break;
    case OF_FIRST_HEAD: x = r->head ? (double)*(lse - r->head) : x; break;
    case OF_SCORES: x /= (double)a->scale; break;
    }
    x = x * (w->lse_times != 0 ? w->lse_times : 1) + w->lse_by;
    if (w->lse_zero_over != 0 && isfinite(x) && fabs(x) > w->lse_zero_over) x = 0;
    if (w->lse_most != 0 && x > w->lse_most) x = w->lse_most;
    if (w->lse_is != 0) x = (double)w->lse_is;
    *lse = (float)x;
}

static void write_weights(const struct row *r)
{
    const struct ha_wrong_attention *w = r->by;
    const struct ha_device_attend *a = &r->job->args;
    const struct ha_device_seq *seq = &r->job->seqs[r->seq];
    const size_t keys = keys_of(seq), late = w->weights == A_KEY_LATE;
    const bool first = r->token == 0, last = r->token + 1 == a->q_len;
    if (!seq->weights) return;
    float *const out = seq->weights + r->head * seq->weights_stride;
    if (first) memset(out, 0, keys * sizeof *out);
    if ((w->weights == OF_FIRST_TOKEN && !first) || (w->weights == OF_LAST_TOKEN && !last)) return;
    const bool one = w->weights == OF_FIRST_TOKEN || w->weights == OF_LAST_TOKEN || w->weights == SUMMED;
    const double by = (w->weights == NOT_DIVIDED ? 1 : 1 / r->den) / (one ? 1 : (double)a->q_len);
    for (size_t i = 0; i < r->keys; i++)
        if (r->key[i].at + late < keys) out[r->key[i].at + late] += (float)(r->x[i] * by);
}

void ha_wrong_attend(const struct ha_wrong_job *j)
{
    const struct ha_device_attend *a = &j->args;
    for (size_t b = 0; b < a->batch; b++) {
        const struct ha_device_seq *seq = &j->seqs[b];
        const size_t keys = keys_of(seq);
        const bool planted = in_call(j, seq);
        struct row r = { .job = j, .seq = b, .dim = a->head_dim };
        const size_t most = 2 * keys + a->block + 1;
        r.key = malloc(most * sizeof *r.key);
        r.x = malloc(most * sizeof *r.x);
        if (!r.key || !r.x || a->head_dim > DIM_MAX) abort();
        for (r.token = 0; r.token < a->q_len; r.token++)
            for (r.head = 0; r.head < a->q_heads; r.head++) {
                const struct ha_wrong_attention *w = j->wrong;
                const bool here = planted && b >= w->from_seq && r.head >= w->from_head && r.token >= w->from_token
                                  && is_next(w);
                r.by = here ? w : &right;
                find_keys(&r);
                score(&r);
                weigh(&r);
                write_o(&r);
                write_lse(&r);
                write_weights(&r);
            }
        free(r.key);
        free(r.x);
    }
    if (a->batch && a->q_len) left = *j->seqs[0].o;
}
