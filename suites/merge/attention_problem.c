#include "suites/merge/attention_parts.h"

#include "harness/api/shape.h"

#include "harness/base/numeric.h"
#include "harness/base/registry.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xFF, ALIGN = 256, K_GAP = 48, V_GAP = 16, Q_GAP = 12, LSE_GAP = 1, WEIGHTS_GAP = 5 };
enum { Q_STREAM = 100, K_STREAM, V_STREAM, INDEX_STREAM, POOL_STREAM = 200 };

/* ---- the subject, and the block that it works in ---------------------------------------------------------------- */

static enum ha_status open_api(struct ha_attention_bench *b, struct ha_why *why)
{
    const struct ha_attention_subject *s = b->subject;
    if (!s->api->attend) return ha_why(why, HA_WAIVED, "%s: attend is not offered", s->name);
    struct ha_device_info info = { 0 };
    s->api->info(s->device, &info);
    memcpy(b->profile, info.profile, sizeof b->profile);
    b->traits = info.merge;
    b->head_dim_max = info.head_dim_max;
    return !s->device ? HA_OK : s->api->stream_create(s->device, "attention", &b->stream, why);
}

/* Of a stranger's attention exp and log are not measured: what it says of them is not set beside anything. */
static void set_usual(struct ha_attention_bench *b)
{
    const struct ha_attention_subject *s = b->subject;
    const bool stranger = !s->eps && !s->kernels;
    const double none = (double)NAN;
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) {
        const struct ha_profile *claimed = &b->profile[t];
        const double exp_seen = s->eps ? s->eps->exp[t].worst : none, log_seen = s->eps ? s->eps->log[t].worst : none;
        b->usual[t] = ha_profile_usual(claimed, &ha_kernels_all[0]->profile, stranger ? claimed->exp_eps : exp_seen,
                                       stranger ? claimed->log_eps : log_seen);
    }
}

enum ha_status ha_attention_open(struct ha_attention_bench *bench, const struct ha_attention_subject *subject,
                                 uint64_t seed, struct ha_why *why)
{
    *bench = (struct ha_attention_bench){ .subject = subject, .pool = malloc(HA_POOL_FLOATS * sizeof *bench->pool) };
    enum ha_status status = bench->pool ? HA_OK : ha_why(why, HA_ERROR, "no memory");
    if (subject->kernels) {
        for (size_t t = 0; t < HA_DTYPE_COUNT; t++) bench->profile[t] = subject->kernels->profile;
        bench->traits = subject->kernels->traits;
    } else if (status == HA_OK) status = open_api(bench, why);
    set_usual(bench);
    if (status == HA_OK) ha_rng_normals(seed, POOL_STREAM, 0, HA_POOL_FLOATS, bench->pool);
    else ha_attention_close(bench);
    return status;
}

static void forget_there(struct ha_attention_bench *b)
{
    if (b->stream && b->there) b->subject->api->mem_free(b->subject->device, HA_MEM_DEVICE, b->there);
    b->there = NULL;
}

void ha_attention_close(struct ha_attention_bench *bench)
{
    forget_there(bench);
    if (bench->stream) bench->subject->api->stream_destroy(bench->stream);
    free(bench->host);
    free(bench->scratch);
    free(bench->pool);
}

/* The old contents go. */
static enum ha_status renew(char **block, size_t *bytes, size_t wanted, struct ha_why *why)
{
    if (wanted <= *bytes && *block) return HA_OK;
    free(*block);
    *bytes = 0;
    wanted = (wanted / ALIGN + 1) * ALIGN;
    *block = aligned_alloc(ALIGN, wanted);
    if (!*block) return ha_why(why, HA_ERROR, "no memory for %zu bytes", wanted);
    *bytes = wanted;
    return HA_OK;
}

/* at least so many bytes, all of them 0xFF: a NaN in every type */
static enum ha_status make_room(struct ha_attention_bench *bench, size_t bytes, struct ha_why *why)
{
    const size_t before = bench->bytes;
    HA_TRY(renew(&bench->host, &bench->bytes, bytes, why));
    memset(bench->host, POISON, bytes);
    if (!bench->stream) {
        bench->there = bench->host;
    } else if (bench->bytes != before) {
        void *there;
        forget_there(bench);
        HA_TRY(bench->subject->api->mem_alloc(bench->subject->device, HA_MEM_DEVICE, bench->bytes, &there, why));
        bench->there = there;
    }
    return HA_OK;
}

/* ---- what is asked, and where it lies --------------------------------------------------------------------------- */

size_t ha_problem_heads(const struct ha_problem *p) { return p->kv_heads * p->group; }
size_t ha_problem_rows(const struct ha_problem *p) { return p->batch * p->q_len * ha_problem_heads(p); }

struct ha_place ha_problem_place(const struct ha_problem *p, size_t r)
{
    const size_t heads = ha_problem_heads(p), query = r / heads;
    return (struct ha_place){ query / p->q_len, query % p->q_len, r % heads };
}

/* keys of runs [from, to) in the block */
static size_t stored(const struct ha_problem *p, size_t from, size_t to)
{
    size_t keys = 0;
    for (size_t i = from; i < to; i++) keys += p->run[i];
    return keys;
}

size_t ha_problem_stored(const struct ha_problem *p) { return stored(p, 0, p->runs_count); }

static size_t skipped(const struct ha_problem *p, size_t seq, size_t run)
{
    const size_t skip = run == 0 ? seq * p->skip : 0;
    return skip < p->run[run] ? skip : p->run[run];
}

size_t ha_problem_keys(const struct ha_problem *p, size_t seq)
{
    return stored(p, p->first_run, p->runs_count) - (p->first_run < p->runs_count ? skipped(p, seq, p->first_run) : 0);
}

/* keys [first, first + keys) in the block at base */
static struct ha_rows rows_of(const struct ha_problem *p, const char *base, size_t seq, size_t kv_head, size_t first,
                              size_t keys)
{
    const size_t before = p->indexed ? 0 : first;
    return (struct ha_rows){
        .k = base + p->k.at + seq * p->k.seq + kv_head * p->k.head + before * p->k.row,
        .v = base + p->v.at + seq * p->v.seq + kv_head * p->v.head + before * p->v.row,
        .k_stride_bytes = p->k.row,
        .v_stride_bytes = p->v.row,
        .index = p->indexed ? (const uint32_t *)(const void *)(base + p->index_at) + first : NULL,
        .keys = keys,
    };
}

struct ha_rows ha_problem_all(const struct ha_problem *p, size_t seq, size_t kv_head)
{
    const size_t skip = p->first_run < p->runs_count ? skipped(p, seq, p->first_run) : 0;
    return rows_of(p, p->host, seq, kv_head, stored(p, 0, p->first_run) + skip, ha_problem_keys(p, seq));
}

static float *floats(char *base, size_t at, size_t i) { return (float *)(void *)(base + at) + i; }

struct ha_attend ha_problem_attend(const struct ha_problem *p, char *base, size_t i, size_t b, size_t kv_head,
                                   struct ha_rows *runs)
{
    const size_t head = kv_head * p->group, q = b * p->q_seq + head * p->q_head;
    for (size_t r = p->first_run; r < p->runs_count; r++) {
        const size_t skip = skipped(p, b, r);
        runs[r - p->first_run] = rows_of(p, base, b, kv_head, stored(p, 0, r) + skip, p->run[r] - skip);
    }
    return (struct ha_attend){
        .q = floats(base, p->q_at, q),
        .q_len = p->q_len,
        .group = p->group,
        .head_dim = p->head_dim,
        .q_token_stride = p->q_token,
        .q_head_stride = p->q_head,
        .runs = runs,
        .runs_count = p->runs_count - p->first_run,
        .dtype = p->dtype,
        .scale = p->scale,
        .causal = p->causal,
        .o = floats(base, p->o_at + i * p->o_step, q),
        .lse = floats(base, p->lse_at + i * p->lse_step, b * p->lse_seq + head * p->lse_head),
        .lse_token_stride = p->lse_token,
        .lse_head_stride = p->lse_head,
        .weights = p->weights ? floats(base, p->weights_at, (b * ha_problem_heads(p) + head) * p->weights_stride)
                              : NULL,
        .weights_stride = p->weights_stride,
    };
}

static size_t row_offset(const struct ha_problem *p, size_t r, size_t seq, size_t token, size_t head)
{
    const size_t heads = ha_problem_heads(p), query = r / heads;
    return query / p->q_len * seq + query % p->q_len * token + r % heads * head;
}

float *ha_problem_q(const struct ha_problem *p, size_t r)
{
    return floats(p->host, p->q_at, row_offset(p, r, p->q_seq, p->q_token, p->q_head));
}

float *ha_problem_o(const struct ha_problem *p, size_t i, size_t r)
{
    return floats(p->host, p->o_at + i * p->o_step, row_offset(p, r, p->q_seq, p->q_token, p->q_head));
}

float *ha_problem_lse(const struct ha_problem *p, size_t i, size_t r)
{
    return floats(p->host, p->lse_at + i * p->lse_step, row_offset(p, r, p->lse_seq, p->lse_token, p->lse_head));
}

static char *row_at(const struct ha_problem *p, const struct ha_kv_place *in, size_t seq, size_t kv_head, size_t j)
{
    uint32_t slot = (uint32_t)j;
    if (p->indexed) memcpy(&slot, p->host + p->index_at + j * sizeof slot, sizeof slot);
    return p->host + in->at + seq * in->seq + kv_head * in->head + slot * in->row;
}

void ha_problem_put(const struct ha_problem *p, const struct ha_kv_place *in, size_t seq, size_t kv_head, size_t j,
                    size_t dim, float x)
{
    ha_store(row_at(p, in, seq, kv_head, j), dim, p->dtype, x);
}

/* Room behind what was placed before; there is a gap before and behind everything. */
static size_t place(size_t *end, size_t bytes)
{
    const size_t at = *end;
    *end = (at + bytes + 2 * ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

/* Keys in `slots` rows of each head; with a gap behind each row the heads are interleaved. */
static struct ha_kv_place lay_keys(const struct ha_problem *p, size_t slots, size_t gap, size_t *end)
{
    const size_t row = p->head_dim * ha_dtype_bytes(p->dtype);
    struct ha_kv_place keys = { .row = row, .head = slots * row };
    if (p->padded) {
        keys.head = row + gap;
        keys.row = p->kv_heads * keys.head;
    }
    keys.seq = p->kv_heads * slots * (p->padded ? keys.head : row);
    keys.at = place(end, p->batch * keys.seq);
    return keys;
}

static void lay(struct ha_problem *p, bool kernels)
{
    const size_t heads = ha_problem_heads(p), dim = p->head_dim, f = sizeof(float);
    const size_t keys = ha_problem_stored(p), slots = p->indexed ? 2 * keys : keys;
    if (p->padded && kernels) {
        p->q_token = dim + Q_GAP, p->q_head = p->q_len * p->q_token, p->q_seq = heads * p->q_head;
        p->lse_token = 1, p->lse_head = p->q_len + LSE_GAP, p->lse_seq = heads * p->lse_head;
    } else {
        p->q_head = dim, p->q_token = heads * dim, p->q_seq = p->q_len * p->q_token;
        p->lse_head = 1, p->lse_token = heads, p->lse_seq = p->q_len * heads;
    }
    p->weights_stride = keys + (p->padded ? WEIGHTS_GAP : 0);

    size_t end = ALIGN;
    p->index_at = place(&end, p->indexed ? keys * sizeof(uint32_t) : 0);
    p->q_at = place(&end, p->batch * p->q_seq * f);
    p->k = lay_keys(p, slots, K_GAP, &end);
    p->v = lay_keys(p, slots, V_GAP, &end);
    p->out_at = end;
    place(&end, 0);
    place(&p->o_step, p->batch * p->q_seq * f);
    p->o_at = end, end += p->copies * p->o_step;
    place(&p->lse_step, p->batch * p->lse_seq * f);
    p->lse_at = end, end += p->copies * p->lse_step;
    p->sum_at = end, end += p->copies > 1 ? p->copies * p->lse_step : 0;
    p->weights_at = place(&end, p->weights ? p->batch * heads * p->weights_stride * f : 0);
    p->end_at = end;
    if (!p->shifted) return;
    enum { SHIFT = 16 }; /* of the gaps, which are wider */
    size_t *const at[] = {
        &p->index_at, &p->q_at, &p->k.at, &p->v.at, &p->o_at, &p->lse_at, &p->sum_at, &p->weights_at
    };
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) *at[i] += SHIFT;
}

/* each slot of twice as many at most once, in no order */
static void scatter(const struct ha_problem *p, size_t keys)
{
    uint32_t *index = (uint32_t *)(void *)(p->host + p->index_at);
    for (size_t j = 0; j < keys; j++) {
        const size_t i = ha_rng_below(p->seed, INDEX_STREAM + (p->data << 32), j, j + 1);
        index[j] = index[i];
        index[i] = (uint32_t)(2 * j + j % 2);
    }
}

static const float *cut(const struct ha_problem *p, const float *pool, uint64_t stream, size_t row)
{
    return pool + ha_rng_below(p->seed, stream + (p->data << 32), row, HA_POOL_FLOATS - p->head_dim);
}

enum ha_status ha_problem_lay(struct ha_problem *p, struct ha_attention_bench *bench, struct ha_why *why)
{
    const size_t keys = ha_problem_stored(p), dim = p->head_dim;
    lay(p, bench->subject->kernels != NULL);
    HA_TRY(make_room(bench, p->end_at, why));
    p->host = bench->host;
    if (p->indexed) scatter(p, keys);
    size_t row = 0;
    for (size_t b = 0; b < p->batch; b++)
        for (size_t h = 0; h < p->kv_heads; h++)
            for (size_t j = 0; j < keys; j++, row++) {
                ha_store_row(row_at(p, &p->k, b, h, j), dim, p->dtype, cut(p, bench->pool, K_STREAM, row));
                ha_store_row(row_at(p, &p->v, b, h, j), dim, p->dtype, cut(p, bench->pool, V_STREAM, row));
            }
    for (size_t r = 0; r < ha_problem_rows(p); r++)
        memcpy(ha_problem_q(p, r), cut(p, bench->pool, Q_STREAM, r), dim * sizeof(float));
    return HA_OK;
}

enum ha_status ha_problem_fail(const struct ha_problem *p, struct ha_why *why, const char *format, ...)
{
    char runs[96] = "none", what[256];
    size_t used = 0;
    for (size_t i = p->first_run; i < p->runs_count && used < sizeof runs; i++)
        used += (size_t)snprintf(runs + used, sizeof runs - used, "%s%zu", i > p->first_run ? "+" : "", p->run[i]);
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return ha_why(
        why, HA_FAIL,
        "%s, seed %llu, shape %zu (%s, head_dim %zu, batch %zu, kv_heads %zu, group %zu, q_len %zu, keys %s%s%s%s): %s",
        p->case_name, (unsigned long long)p->seed, p->id, ha_dtype_name(p->dtype), p->head_dim, p->batch, p->kv_heads,
        p->group, p->q_len, runs, p->causal ? ", causal" : "", p->indexed ? ", indexed" : "",
        p->padded ? ", strided" : "", what);
}

/* ---- the subject is asked --------------------------------------------------------------------------------------- */

enum ha_status ha_attention_finish(const struct ha_attention_bench *b, const char *operation, enum ha_status status,
                                   struct ha_why *why)
{
    const struct ha_attention_subject *s = b->subject;
    if (status == HA_OK && b->stream) status = s->api->stream_sync(b->stream);
    if (status == HA_OK) return HA_OK;
    const char *failure = s->api->failure ? s->api->failure(s->device) : NULL; /* a library has none */
    return ha_why(why, status == HA_WAIVED ? HA_WAIVED : HA_ERROR, "%s: %s: %s", s->name, operation,
                  failure && *failure ? failure : "refused, with no reason");
}

enum ha_status ha_attention_move(struct ha_attention_bench *b, size_t from, size_t to, enum ha_direction dir,
                                 struct ha_why *why)
{
    if (!b->stream) return HA_OK;
    const bool there = dir == HA_H2D;
    char *dst = (there ? b->there : b->host) + from, *src = (there ? b->host : b->there) + from;
    return ha_attention_finish(b, "copy", b->subject->api->copy(b->stream, dst, src, to - from, dir), why);
}

enum ha_status ha_attention_given(struct ha_attention_bench *b, const struct ha_problem *p, struct ha_why *why)
{
    if (!b->stream) return HA_OK;
    HA_TRY(renew(&b->scratch, &b->scratch_bytes, p->out_at, why));
    HA_TRY(
        ha_attention_finish(b, "copy", b->subject->api->copy(b->stream, b->scratch, b->there, p->out_at, HA_D2H), why));
    return memcmp(b->scratch, p->host, p->out_at) == 0 ? HA_OK : ha_problem_fail(p, why, "q, K or V was written");
}

enum { BATCH_MAX = HA_BATCH_MAX };

enum ha_status ha_attention_enqueue(const struct ha_attention_bench *bench, const struct ha_problem *p, size_t i,
                                    struct ha_stream *stream)
{
    struct ha_device_seq seqs[BATCH_MAX];
    const struct ha_device_attend a = {
        .batch = p->batch,
        .q_len = p->q_len,
        .q_heads = ha_problem_heads(p),
        .kv_heads = p->kv_heads,
        .head_dim = p->head_dim,
        .dtype = p->dtype,
        .scale = p->scale,
        .causal = p->causal,
        .seqs = seqs,
    };
    for (size_t b = 0; b < p->batch; b++) {
        struct ha_rows runs[HA_RUNS_MAX];
        const struct ha_attend first = ha_problem_attend(p, bench->there, i, b, 0, runs);
        seqs[b] = (struct ha_device_seq){
            .q = first.q,
            .runs_count = first.runs_count,
            .k_head_bytes = p->k.head,
            .v_head_bytes = p->v.head,
            .o = first.o,
            .lse = first.lse,
            .weights = first.weights,
            .weights_stride = first.weights_stride,
        };
        memcpy(seqs[b].runs, runs, first.runs_count * sizeof *runs);
    }
    return bench->subject->api->attend(stream, &a);
}

enum ha_status ha_attention_attend(struct ha_attention_bench *bench, const struct ha_problem *p, size_t i,
                                   struct ha_why *why)
{
    const struct ha_kernels *kernels = bench->subject->kernels;
    if (!kernels) return ha_attention_finish(bench, "attend", ha_attention_enqueue(bench, p, i, bench->stream), why);
    for (size_t b = 0; b < p->batch; b++)
        for (size_t h = 0; h < p->kv_heads; h++) {
            struct ha_rows runs[HA_RUNS_MAX];
            struct ha_attend a = ha_problem_attend(p, bench->there, i, b, h, runs);
            const size_t bytes = kernels->attend_scratch_bytes(&a);
            HA_TRY(renew(&bench->scratch, &bench->scratch_bytes, bytes, why));
            memset(bench->scratch, POISON, bytes);
            a.scratch = bench->scratch;
            kernels->attend(kernels, &a);
        }
    return HA_OK;
}

enum ha_status ha_attention_merge(struct ha_attention_bench *bench, const struct ha_merge *args, struct ha_why *why)
{
    const struct ha_attention_subject *s = bench->subject;
    if (!s->kernels) return ha_attention_finish(bench, "merge", s->api->merge(bench->stream, args), why);
    s->kernels->merge(args);
    return HA_OK;
}
