#include "suites/merge/attention_parts.h"

#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/try.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { ALIGN = 256, K_GAP = 48, V_GAP = 16, Q_GAP = 12, LSE_GAP = 1, WEIGHTS_GAP = 5 };
enum { Q_STREAM = 100, K_STREAM, V_STREAM, INDEX_STREAM };

size_t ha_problem_heads(const struct ha_problem *p) { return p->kv_heads * p->group; }
size_t ha_problem_rows(const struct ha_problem *p) { return p->batch * p->q_len * ha_problem_heads(p); }

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

size_t ha_problem_visible(const struct ha_problem *p, size_t seq, size_t token)
{
    return ha_problem_keys(p, seq) - (p->causal ? p->q_len - 1 - token : 0);
}

static struct ha_rows rows_of(const struct ha_problem *p, const char *base, size_t seq, size_t kv_head, size_t first,
                              size_t keys)
{
    struct ha_rows rows = {
        .k = base + p->k_at + seq * p->k_seq + kv_head * p->k_head,
        .v = base + p->v_at + seq * p->v_seq + kv_head * p->v_head,
        .k_stride_bytes = p->k_row,
        .v_stride_bytes = p->v_row,
        .keys = keys,
    };
    if (p->indexed) {
        rows.index = (const uint32_t *)(const void *)(base + p->index_at) + first;
    } else {
        rows.k = (const char *)rows.k + first * p->k_row;
        rows.v = (const char *)rows.v + first * p->v_row;
    }
    return rows;
}

struct ha_rows ha_problem_all(const struct ha_problem *p, const char *base, size_t seq, size_t kv_head)
{
    const size_t skip = p->first_run < p->runs_count ? skipped(p, seq, p->first_run) : 0;
    return rows_of(p, base, seq, kv_head, stored(p, 0, p->first_run) + skip, ha_problem_keys(p, seq));
}

struct ha_rows ha_problem_run(const struct ha_problem *p, const char *base, size_t seq, size_t kv_head, size_t run)
{
    const size_t skip = skipped(p, seq, run);
    return rows_of(p, base, seq, kv_head, stored(p, 0, run) + skip, p->run[run] - skip);
}

static float *floats(char *base, size_t at, size_t i) { return (float *)(void *)(base + at) + i; }

struct ha_attend ha_problem_attend(const struct ha_problem *p, char *base, size_t i, size_t b, size_t kv_head,
                                   struct ha_rows *runs)
{
    const size_t head = kv_head * p->group, q = b * p->q_seq + head * p->q_head;
    for (size_t r = p->first_run; r < p->runs_count; r++)
        runs[r - p->first_run] = ha_problem_run(p, base, b, kv_head, r);
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

float *ha_problem_q(const struct ha_problem *p, size_t seq, size_t token, size_t head)
{
    return floats(p->host, p->q_at, seq * p->q_seq + token * p->q_token + head * p->q_head);
}

float *ha_problem_o(const struct ha_problem *p, size_t i, size_t seq, size_t token, size_t head)
{
    return floats(p->host, p->o_at + i * p->o_step, seq * p->q_seq + token * p->q_token + head * p->q_head);
}

float *ha_problem_lse(const struct ha_problem *p, size_t i, size_t seq, size_t token, size_t head)
{
    return floats(p->host, p->lse_at + i * p->lse_step, seq * p->lse_seq + token * p->lse_token + head * p->lse_head);
}

float *ha_problem_weights(const struct ha_problem *p, size_t seq, size_t head)
{
    return floats(p->host, p->weights_at, (seq * ha_problem_heads(p) + head) * p->weights_stride);
}

static size_t slot(const struct ha_problem *p, size_t j)
{
    uint32_t i = (uint32_t)j;
    if (p->indexed) memcpy(&i, p->host + p->index_at + j * sizeof i, sizeof i);
    return i;
}

static char *k_row(const struct ha_problem *p, size_t seq, size_t kv_head, size_t j)
{
    return p->host + p->k_at + seq * p->k_seq + kv_head * p->k_head + slot(p, j) * p->k_row;
}

static char *v_row(const struct ha_problem *p, size_t seq, size_t kv_head, size_t j)
{
    return p->host + p->v_at + seq * p->v_seq + kv_head * p->v_head + slot(p, j) * p->v_row;
}

void ha_problem_put_k(const struct ha_problem *p, size_t seq, size_t kv_head, size_t j, size_t dim, float x)
{
    ha_store(k_row(p, seq, kv_head, j), dim, p->dtype, x);
}

void ha_problem_put_v(const struct ha_problem *p, size_t seq, size_t kv_head, size_t j, size_t dim, float x)
{
    ha_store(v_row(p, seq, kv_head, j), dim, p->dtype, x);
}

/* Room behind what was placed before; there is a gap before and behind everything. */
static size_t place(size_t *end, size_t bytes)
{
    const size_t at = *end;
    *end = (at + bytes + 2 * ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

static void lay(struct ha_problem *p, bool kernels)
{
    const size_t heads = ha_problem_heads(p), dim = p->head_dim, f = sizeof(float);
    const size_t keys = ha_problem_stored(p), slots = p->indexed ? 2 * keys : keys,
                 row = dim * ha_dtype_bytes(p->dtype);
    if (p->padded && kernels) {
        p->q_token = dim + Q_GAP, p->q_head = p->q_len * p->q_token, p->q_seq = heads * p->q_head;
        p->lse_token = 1, p->lse_head = p->q_len + LSE_GAP, p->lse_seq = heads * p->lse_head;
    } else {
        p->q_head = dim, p->q_token = heads * dim, p->q_seq = p->q_len * p->q_token;
        p->lse_head = 1, p->lse_token = heads, p->lse_seq = p->q_len * heads;
    }
    if (p->padded) {
        p->k_head = row + K_GAP, p->k_row = p->kv_heads * p->k_head, p->k_seq = slots * p->k_row;
        p->v_head = row + V_GAP, p->v_row = p->kv_heads * p->v_head, p->v_seq = slots * p->v_row;
    } else {
        p->k_row = p->v_row = row, p->k_head = p->v_head = slots * row, p->k_seq = p->v_seq = p->kv_heads * slots * row;
    }
    p->weights_stride = keys + (p->padded ? WEIGHTS_GAP : 0);

    size_t end = ALIGN, step = 0;
    p->index_at = place(&end, p->indexed ? keys * sizeof(uint32_t) : 0);
    p->q_at = place(&end, p->batch * p->q_seq * f);
    p->k_at = place(&end, p->batch * p->k_seq);
    p->v_at = place(&end, p->batch * p->v_seq);
    p->out_at = end;
    place(&end, 0);
    place(&step, p->batch * p->q_seq * f);
    p->o_step = step;
    p->o_at = end, end += p->copies * step;
    step = 0;
    place(&step, p->batch * p->lse_seq * f);
    p->lse_step = step;
    p->lse_at = end, end += p->copies * step;
    p->sum_at = end, end += p->copies > 1 ? p->copies * step : 0;
    p->weights_at = place(&end, p->weights ? p->batch * heads * p->weights_stride * f : 0);
    p->end_at = end;
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
    HA_TRY(ha_attention_room(bench, p->end_at, why));
    p->host = bench->host;
    if (p->indexed) scatter(p, keys);
    size_t row = 0;
    for (size_t b = 0; b < p->batch; b++)
        for (size_t h = 0; h < p->kv_heads; h++)
            for (size_t j = 0; j < keys; j++, row++) {
                ha_store_row(k_row(p, b, h, j), dim, p->dtype, cut(p, bench->pool, K_STREAM, row));
                ha_store_row(v_row(p, b, h, j), dim, p->dtype, cut(p, bench->pool, V_STREAM, row));
            }
    row = 0;
    for (size_t b = 0; b < p->batch; b++)
        for (size_t t = 0; t < p->q_len; t++)
            for (size_t h = 0; h < ha_problem_heads(p); h++, row++)
                memcpy(ha_problem_q(p, b, t, h), cut(p, bench->pool, Q_STREAM, row), dim * sizeof(float));
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
