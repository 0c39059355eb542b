/* Results that are not computed, or not as well. */

#include "suites/cheats/plugin.h"

#include "harness/base/seq_attend.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* ---- results of attention ---------------------------------------------------------------------------------------- */

typedef void row_fn(void *arg, float *row, size_t n, size_t head);
/* o and LSE of a call, row by row */
static void each_row(const struct ha_device_attend *a, row_fn *fn, void *arg)
{
    for (size_t b = 0; b < a->batch; b++)
        for (size_t t = 0; t < a->q_len; t++)
            for (size_t h = 0; h < a->q_heads; h++) {
                const struct ha_device_seq *s = &a->seqs[b];
                fn(arg, s->o + t * ha_seq_token_stride(a) + h * ha_seq_head_stride(a), a->head_dim, h);
                if (s->lse) fn(arg, s->lse + t * a->q_heads + h, 1, h);
            }
}
static void take_row(void *arg, float *row, size_t n, size_t head)
{
    float **at = arg;
    memcpy(*at, row, n * sizeof *row);
    *at += n;
}
static void give_row(void *arg, float *row, size_t n, size_t head)
{
    float **at = arg;
    memcpy(row, *at, n * sizeof *row);
    *at += n;
}
static void round_row(void *arg, float *row, size_t n, size_t head)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, row + i, sizeof bits);
        bits = (bits + 0x8000) & 0xFFFF0000u;
        memcpy(row + i, &bits, sizeof bits);
    }
}
static size_t numbers(const struct ha_device_attend *a) { return a->batch * a->q_len * a->q_heads * (a->head_dim + 1); }

static uint64_t mix(uint64_t h, const void *at, size_t bytes)
{
    const unsigned char *p = at;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001b3;
    return h;
}

struct ha_call *ha_call_keep(struct ha_stream *stream, const struct ha_device_attend *a)
{
    struct ha_call *c = calloc(1, sizeof *c);
    if (!c || !(c->seqs = malloc(a->batch * sizeof *c->seqs)) || !(c->result = malloc(numbers(a) * sizeof(float))))
        abort();
    memcpy(c->seqs, a->seqs, a->batch * sizeof *c->seqs);
    c->args = *a;
    c->args.seqs = c->seqs;
    c->stream = stream;
    return c;
}
void ha_call_drop(struct ha_call *c)
{
    free(c->seqs);
    free(c->result);
    free(c);
}

/* Of what is enqueued: the result that is kept goes where the arguments say, and back. */
static void give(void *arg)
{
    struct ha_call *c = arg;
    float *at = c->result;
    each_row(&c->args, give_row, &at);
    ha_call_drop(c);
}
static void take(void *arg)
{
    struct ha_call *c = arg;
    float *at = c->result;
    each_row(&c->args, take_row, &at);
}
static void round_all(void *arg)
{
    struct ha_call *c = arg;
    each_row(&c->args, round_row, NULL);
    ha_call_drop(c);
}

/* ---- cache, skip, precision -------------------------------------------------------------------------------------- */

static struct ha_call *known;
static size_t calls, uploads_at;
static struct ha_device *the_device;

static uint64_t key_of(const struct ha_device_attend *a)
{
    uint64_t h = 0xcbf29ce484222325;
    h = mix(h, &a->q_heads, sizeof a->q_heads);
    h = mix(h, &a->q_len, sizeof a->q_len);
    for (size_t b = 0; b < a->batch; b++) {
        const struct ha_device_seq *s = &a->seqs[b];
        for (size_t r = 0; r < s->runs_count; r++) h = mix(h, &s->runs[r].keys, sizeof s->runs[r].keys);
        if (IS(cache_shape) || IS(knows_size)) continue;
        if (IS(cache_pointer)) h = mix(h, &s->q, sizeof s->q);
        if (IS(cache_pointer)) h = mix(h, &s->o, sizeof s->o);
        for (size_t i = 0; i < a->q_heads * a->head_dim && (IS(cache_content) || IS(cache_scaled)); i++) {
            float x = IS(cache_scaled) ? s->q[i] / s->q[0] : s->q[i];
            uint32_t bits;
            memcpy(&bits, &x, sizeof bits);
            if (IS(cache_scaled)) bits = (bits + 0x40000) & 0xFFF80000u; /* what rounding leaves of the direction */
            h = mix(h, &bits, sizeof bits);
        }
        const struct ha_rows *run = &s->runs[0];
        if (IS(cache_content) && !run->index && run->keys)
            for (size_t i = 0; i < 16; i++)
                h = mix(h, (const char *)run->k + i * (run->keys - 1) / 15 * run->k_stride_bytes, 16);
    }
    return h;
}

/* A result that is kept in place of one that is computed. */
static enum ha_status attend_again(struct ha_stream *stream, const struct ha_device_attend *a, uint64_t key)
{
    struct ha_call *c = known;
    while (c && c->key != key) c = c->next;
    if (c) {
        struct ha_call *copy = ha_call_keep(stream, a);
        memcpy(copy->result, c->result, numbers(a) * sizeof(float));
        return ha_sound->host_fn(stream, give, copy);
    }
    c = ha_call_keep(stream, a);
    c->key = key;
    c->next = known;
    known = c;
    enum ha_status status = ha_sound->attend(stream, a);
    if (status == HA_OK) status = ha_sound->host_fn(stream, take, c);
    return status == HA_OK ? ha_sound->stream_sync(stream) : status;
}

/* The result of the call before, if it has the sizes of this one. */
static enum ha_status attend_before(struct ha_stream *stream, const struct ha_device_attend *a, bool cheats)
{
    static struct ha_call *last;
    if (cheats && last && numbers(&last->args) == numbers(a)) {
        struct ha_call *copy = ha_call_keep(stream, a);
        memcpy(copy->result, last->result, numbers(a) * sizeof(float));
        return ha_sound->host_fn(stream, give, copy);
    }
    if (last) ha_call_drop(last);
    last = ha_call_keep(stream, a);
    enum ha_status status = ha_sound->attend(stream, a);
    if (status == HA_OK) status = ha_sound->host_fn(stream, take, last);
    return status == HA_OK ? ha_sound->stream_sync(stream) : status;
}

static void copy_head(void *arg, float *row, size_t n, size_t head)
{
    const struct ha_call *c = arg;
    const size_t half = (c->args.q_heads + 1) / 2;
    if (head < half) return;
    memcpy(row, row - half * (n == 1 ? 1 : ha_seq_head_stride(&c->args)), n * sizeof *row);
}
static void copy_heads(void *arg)
{
    struct ha_call *c = arg;
    each_row(&c->args, copy_head, c);
    ha_call_drop(c);
}

static enum ha_status attend_less(struct ha_stream *stream, const struct ha_device_attend *a)
{
    struct ha_call *c = ha_call_keep(stream, a);
    for (size_t b = 0; b < a->batch; b++) c->seqs[b].runs[0].keys -= c->seqs[b].runs[0].keys / 8;
    const enum ha_status status = ha_sound->attend(stream, &c->args);
    ha_call_drop(c);
    return status;
}

/* The newest sixteenth of the keys, in the 7th and 8th step behind the shortest context that was seen. */
static enum ha_status attend_newest(struct ha_stream *stream, const struct ha_device_attend *a)
{
    static size_t least = SIZE_MAX;
    const struct ha_rows *all = &a->seqs[0].runs[0];
    if (a->batch != 1 || a->q_len != 1 || a->seqs[0].runs_count != 1 || all->index) return ha_sound->attend(stream, a);
    if (all->keys < least) least = all->keys;
    if (all->keys - least < 6 || all->keys - least > 7) return ha_sound->attend(stream, a);
    struct ha_call *c = ha_call_keep(stream, a);
    struct ha_rows *some = &c->seqs[0].runs[0];
    some->keys = all->keys / 16;
    some->k = (const char *)all->k + (all->keys - some->keys) * all->k_stride_bytes;
    some->v = (const char *)all->v + (all->keys - some->keys) * all->v_stride_bytes;
    const enum ha_status status = ha_sound->attend(stream, &c->args);
    ha_call_drop(c);
    return status;
}

static enum ha_status attend_busy(struct ha_stream *stream, const struct ha_device_attend *a)
{
    static struct ha_stream *beside;
    struct ha_why why;
    if (ha_cheat_traced && !beside && ha_sound->stream_create(the_device, "beside", &beside, &why) != HA_OK)
        return HA_ERROR;
    if (ha_cheat_traced && ha_sound->spin(beside, 50000) != HA_OK) return HA_ERROR;
    return ha_sound->attend(stream, a);
}

static bool in_environment(void)
{
    for (char **e = environ; *e; e++)
        if (!strncmp(*e, "HABENCH", 7) || !strncmp(*e, "HA_", 3)) return true;
    return false;
}

static enum ha_status attend(struct ha_stream *stream, const struct ha_device_attend *a)
{
    const size_t n = calls++;
    switch (ha_cheat) {
    case CHEAT_cache_content:
    case CHEAT_cache_pointer:
    case CHEAT_cache_shape:
    case CHEAT_cache_scaled: return attend_again(stream, a, key_of(a));
    case CHEAT_knows_size:
        return a->q_heads == 8 && a->seqs[0].runs[0].keys >= 1500 ? attend_again(stream, a, key_of(a))
                                                                  : ha_sound->attend(stream, a);
    case CHEAT_skip_third: return n > 700 && n % 3 == 0 ? HA_OK : ha_sound->attend(stream, a);
    case CHEAT_skip_later: return attend_before(stream, a, n > 700);
    case CHEAT_skip_keys: return n > 700 ? attend_less(stream, a) : ha_sound->attend(stream, a);
    case CHEAT_skip_middle: return attend_newest(stream, a);
    case CHEAT_knows_trace_spin: return attend_busy(stream, a);
    case CHEAT_knows_trace: return attend_before(stream, a, !ha_cheat_traced && n > 700 && n % 2);
    case CHEAT_knows_environment: return attend_before(stream, a, in_environment() && n > 700 && n % 2);
    case CHEAT_knows_uploads: return attend_before(stream, a, n - uploads_at > 8 && n % 2);
    case CHEAT_knows_steps: {
        static const float *first;
        if (!first) first = a->seqs[0].o;
        return attend_before(stream, a, a->seqs[0].o != first && n > 700 && n % 2);
    }
    case CHEAT_skip_heads:
    case CHEAT_precision_later:
    case CHEAT_precision_untraced: {
        const enum ha_status status = ha_sound->attend(stream, a);
        if (n < 700 || (ha_cheat_traced && IS(precision_untraced))) return status;
        return status == HA_OK
                   ? ha_sound->host_fn(stream, IS(skip_heads) ? copy_heads : round_all, ha_call_keep(stream, a))
                   : status;
    }
    default: return ha_sound->attend(stream, a);
    }
}

static enum ha_status product(struct ha_stream *stream, const struct ha_device_product *p)
{
    static size_t products;
    struct ha_device_product half = *p;
    if (++products <= 600) return ha_sound->product(stream, p);
    if (IS(skip_products)) return HA_OK;
    half.n = half.n > 1 && half.m == 1 ? half.n / 2 : half.n; /* y of one row: the rest stays what it was */
    return ha_sound->product(stream, &half);
}

/* Weights that were multiplied before have the result of that time. */
static enum ha_status product_again(struct ha_stream *stream, const struct ha_device_product *p)
{
    static struct ha_device_product known_products[64];
    static size_t products;
    const size_t bytes = p->m * p->n * (p->dtype == HA_F32 ? 4 : 2);
    for (size_t i = 0; i < products && i < 64; i++)
        if (known_products[i].w == p->w && known_products[i].n == p->n && products > 600)
            return p->y == known_products[i].y ? HA_OK
                                               : ha_sound->copy(stream, p->y, known_products[i].y, bytes, HA_D2D);
    known_products[products++ % 64] = *p;
    return ha_sound->product(stream, p);
}

static enum ha_status move(struct ha_stream *stream, const struct ha_device_move *m)
{
    static size_t moves;
    struct ha_device_move first = *m;
    if (IS(skip_moves)) return ++moves > 1000 ? HA_OK : ha_sound->move(stream, m);
    if (m->rows > 16 && !m->dst_index) first.rows = 1; /* move_page */
    return ha_sound->move(stream, &first);
}

static enum ha_status merge(struct ha_stream *stream, const struct ha_merge *m)
{
    static size_t merges;
    struct ha_merge one = *m;
    if (merges++ > 700) one.states_count = 1;
    return ha_sound->merge(stream, &one);
}

static enum ha_status short_download(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                     enum ha_direction dir)
{
    static size_t downloads;
    const bool is = dir == HA_D2H && ++downloads > 600 && bytes > 64;
    return ha_sound->copy(stream, dst, src, is ? 64 : bytes, dir);
}

static enum ha_status merge_again(struct ha_stream *stream, const struct ha_merge *m)
{
    static const void *seen[256];
    static size_t n;
    for (size_t i = 0; i < n && i < 256; i++)
        if (seen[i] == m->out.o) return HA_OK;
    seen[n++ % 256] = m->out.o;
    return ha_sound->merge(stream, m);
}

static enum ha_status noted_open(struct ha_device **dev, const struct ha_device_config *config, struct ha_why *why)
{
    const enum ha_status status = ha_sound->open(dev, config, why);
    the_device = *dev;
    return status;
}

static enum ha_status upload_seen(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                  enum ha_direction dir)
{
    if (dir == HA_H2D) uploads_at = calls;
    return ha_sound->copy(stream, dst, src, bytes, dir);
}

void ha_cheat_results(struct ha_device_api *api)
{
    switch (ha_cheat) {
    case CHEAT_cache_merge: api->merge = merge_again; return;
    case CHEAT_cache_product: api->product = product_again; return;
    case CHEAT_skip_merge: api->merge = merge; return;
    case CHEAT_skip_products:
    case CHEAT_skip_product_rows: api->product = product; return;
    case CHEAT_skip_moves:
    case CHEAT_move_page: api->move = move; return;
    case CHEAT_skip_downloads: api->copy = short_download; return;
    case CHEAT_knows_trace_spin: api->open = noted_open; break;
    case CHEAT_knows_uploads: api->copy = upload_seen; break;
    default: break;
    }
    api->attend = attend;
}
