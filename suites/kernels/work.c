#include "suites/kernels/work.h"

#include "harness/api/reference.h"
#include "harness/base/busy.h"
#include "harness/base/fingerprint.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERN = 1 << 20, CHUNK = 1 << 15, FILL_STREAM = 1000, PATTERN_STREAM };

/* ---- K and V ------------------------------------------------------------------------------------------ */

enum ha_status ha_cpu_store_open(struct ha_cpu_store *s, size_t rotate_bytes, struct ha_why *why)
{
    *s = (struct ha_cpu_store){ .rotate_bytes = rotate_bytes };
    return ha_arena_create(&s->arena, false, why);
}

void ha_cpu_store_close(struct ha_cpu_store *s)
{
    ha_arena_destroy(s->arena);
    *s = (struct ha_cpu_store){ 0 };
}

static enum ha_status make_room(struct ha_cpu_store *s, size_t bytes, struct ha_why *why)
{
    static const size_t spare = (size_t)512 << 20;
    if (bytes <= s->bytes) return HA_OK;
    const uint64_t available = ha_memory_available();
    HA_TRY(ha_memory_fits("host", (double)bytes + (double)spare, available ? available + s->bytes : 0,
                          "ctx or batch or heads", why));
    ha_free(s->arena, s->kv);
    s->bytes = 0;
    s->kv = ha_alloc(s->arena, bytes, HA_TAG_KV, why);
    if (!s->kv) return HA_ERROR;
    s->bytes = bytes;
    return HA_OK;
}

/* numbers first .. first + n of the pattern */
static void draw_row(char *to, enum ha_dtype dtype, uint64_t seed, uint64_t first, size_t n)
{
    enum { ROW = 1024 };
    float row[ROW];
    for (size_t i = 0; i < n; i += ROW) {
        const size_t some = n - i < ROW ? n - i : ROW;
        ha_rng_normals(seed, PATTERN_STREAM, first + i, some, row);
        ha_store_row(to + i * ha_dtype_bytes(dtype), some, dtype, row);
    }
}

static enum ha_status make_pattern(struct ha_cpu_store *s, enum ha_dtype dtype, uint64_t seed, struct ha_why *why)
{
    if (s->pattern[dtype] && s->seed[dtype] == seed) return HA_OK;
    if (!s->pattern[dtype])
        s->pattern[dtype] = ha_alloc(s->arena, PATTERN * ha_dtype_bytes(dtype), HA_TAG_SCRATCH, why);
    if (!s->pattern[dtype]) return HA_ERROR;
    s->seed[dtype] = seed;
    draw_row(s->pattern[dtype], dtype, seed, 0, PATTERN);
    return HA_OK;
}

struct fill {
    const struct ha_cpu_work *work;
    const char *pattern; /* NULL: its numbers are drawn where they are needed */
    size_t bytes;
};

/* Each piece is another stretch of the pattern, so that no two heads are alike. */
static void fill_chunk(void *arg, size_t task, size_t worker)
{
    const struct fill *f = arg;
    const struct ha_cpu_work *w = f->work;
    const size_t at = task * CHUNK * w->elem, chunk = CHUNK * w->elem, left = f->bytes - at,
                 bytes = left < chunk ? left : chunk;
    const uint64_t first = ha_rng_below(w->point.seed, FILL_STREAM, task, PATTERN - CHUNK);
    if (f->pattern) memcpy(w->kv + at, f->pattern + first * w->elem, bytes);
    else draw_row(w->kv + at, w->dtype, w->point.seed, first, bytes / w->elem);
}

static bool reads_packed(const struct ha_cpu_point *p)
{
    return p->layout == HA_CPU_PACKED && p->kernel != HA_KERNEL_PACK && p->kernel != HA_KERNEL_APPEND_KEY;
}

/* behind the last key of the last block there are zeros */
static void clear_tails(const struct ha_cpu_work *w)
{
    const size_t dim = w->point.head_dim, end = (w->point.ctx + HA_PACK_KEYS - 1) / HA_PACK_KEYS * HA_PACK_KEYS;
    for (size_t unit = 0; unit < w->turns * w->units; unit++)
        for (size_t key = w->point.ctx; key < end; key++)
            for (size_t d = 0; d < dim; d++) {
                char *at = w->kv + unit * w->unit_bytes;
                memset(at + ha_ref_packed_k(w->dtype, dim, key, d) * w->elem, 0, w->elem);
                memset(at + ha_ref_packed_v(w->dtype, dim, key, d) * w->elem, 0, w->elem);
            }
}

static enum ha_status fill(struct ha_cpu_work *w, struct ha_cpu_store *s, struct ha_why *why)
{
    if (!w->subject->unit_bytes) return HA_OK;
    w->unit_bytes = w->subject->unit_bytes(w);
    const size_t turn = w->unit_bytes * w->units;
    w->turns = turn < s->rotate_bytes ? (s->rotate_bytes + turn - 1) / turn : 1;
    HA_TRY(make_room(s, w->turns * turn, why));
    const bool little = w->turns * turn < PATTERN / 2 * w->elem;
    if (!little) HA_TRY(make_pattern(s, w->dtype, w->point.seed, why));
    w->kv = s->kv;
    struct fill f = { w, little ? NULL : s->pattern[w->dtype], w->turns * turn };
    ha_pool_run(w->pool, "fill", (f.bytes + CHUNK * w->elem - 1) / (CHUNK * w->elem), fill_chunk, &f);
    if (reads_packed(&w->point)) clear_tails(w);
    return HA_OK;
}

/* ---- work ---------------------------------------------------------------------------------------------- */

static enum ha_status open_work(struct ha_cpu_work *w, struct ha_cpu_store *s, struct ha_why *why)
{
    HA_TRY(ha_arena_create(&w->arena, true, why));
    HA_TRY(fill(w, s, why));
    w->own = ha_cpu_alloc(w, w->subject->own_bytes, why);
    if (!w->own) return HA_ERROR;
    memset(w->own, 0, w->subject->own_bytes);
    return w->subject->open(w, why);
}

enum ha_status ha_cpu_work_open(struct ha_cpu_work *w, const struct ha_cpu_point *point,
                                const struct ha_kernels *kernels, const struct ha_kernels *constants,
                                struct ha_pool *pool, struct ha_cpu_store *s, struct ha_why *why)
{
    const enum ha_dtype dtype = (enum ha_dtype)point->dtype;
    const size_t blocks = (point->ctx + point->block - 1) / point->block;
    *w = (struct ha_cpu_work){
        .point = *point,
        .kernels = kernels,
        .constants = constants,
        .pool = pool,
        .subject = ha_cpu_subject_of(point),
        .dtype = dtype,
        .threads = ha_pool_threads(pool),
        .units = point->batch * point->kv_heads,
        .group = point->q_heads / point->kv_heads,
        .elem = ha_dtype_bytes(dtype),
        .scale = (float)(1 / sqrt((double)point->head_dim)),
        .turns = 1,
        .blocks = blocks,
        .chosen = (blocks * point->budget + 99) / 100,
    };
    const enum ha_status status = open_work(w, s, why);
    if (status != HA_OK) ha_cpu_work_close(w);
    return status;
}

void ha_cpu_work_close(struct ha_cpu_work *w)
{
    ha_arena_destroy(w->arena);
    w->arena = NULL;
}

void ha_cpu_work_turn(struct ha_cpu_work *w, size_t turn)
{
    w->turn = turn;
    if (w->subject->turn) w->subject->turn(w);
}

bool ha_cpu_work_has(const struct ha_cpu_work *w, size_t part)
{
    return w->subject->part[part].name && (!w->subject->part[part].constants || w->constants);
}

static void run_constants(struct ha_cpu_work *w)
{
    const struct ha_kernels *planned = w->kernels;
    w->kernels = w->constants;
    ha_cpu_work_run(w, HA_CPU_WHOLE);
    w->kernels = planned;
}

void ha_cpu_work_run(struct ha_cpu_work *w, size_t part)
{
    if (w->subject->part[part].constants) {
        run_constants(w);
        return;
    }
    if (w->subject->part[part].task)
        ha_pool_run(w->pool, w->subject->part[part].name, w->units, w->subject->part[part].task, w);
    else w->subject->part[part].run(w);
}

enum ha_status ha_cpu_work_check(struct ha_cpu_work *w, double *err_over_bound, struct ha_why *why)
{
    ha_cpu_work_turn(w, 0);
    ha_cpu_work_run(w, HA_CPU_WHOLE);
    if (w->subject->judge) *err_over_bound = ha_cpu_worst(w, w->subject->judge, "");
    else HA_TRY(w->subject->check(w, err_over_bound, why));
    if (!(*err_over_bound <= 1)) return ha_why(why, HA_FAIL, "error over bound %.3g", *err_over_bound);
    return ha_arena_check(w->arena, why);
}

uint64_t ha_cpu_work_outputs(const struct ha_cpu_work *w)
{
    struct ha_cpu_result r[HA_CPU_RESULTS] = { { NULL, 0 } };
    uint64_t h = HA_FINGERPRINT_BEGIN;
    w->subject->results(w, r);
    for (size_t i = 0; i < HA_CPU_RESULTS; i++) h = ha_fingerprint_bytes(h, r[i].at, r[i].bytes);
    return h;
}

static enum ha_status run_again(struct ha_cpu_work *w, const char *was, struct ha_why *why)
{
    struct ha_cpu_result r[HA_CPU_RESULTS] = { { NULL, 0 } };
    w->subject->results(w, r);
    for (size_t i = 0; i < HA_CPU_RESULTS; i++)
        if (r[i].bytes) memset(r[i].at, 0x47, r[i].bytes);
    ha_cpu_work_turn(w, 0);
    ha_cpu_work_run(w, HA_CPU_WHOLE);
    for (size_t i = 0; i < HA_CPU_RESULTS; was += r[i++].bytes) {
        const char *is = r[i].at;
        size_t at = 0;
        if (!r[i].bytes || !memcmp(was, is, r[i].bytes)) continue;
        while (was[at] == is[at]) at++;
        return ha_why(why, HA_FAIL,
                      "the same input gave other bits: byte %zu of %zu of result %zu was 0x%02x, is 0x%02x", at,
                      r[i].bytes, i, (unsigned char)was[at], (unsigned char)is[at]);
    }
    return HA_OK;
}

enum ha_status ha_cpu_work_again(struct ha_cpu_work *w, size_t runs, struct ha_why *why)
{
    struct ha_cpu_result r[HA_CPU_RESULTS] = { { NULL, 0 } };
    struct ha_busy *busy;
    w->subject->results(w, r);
    char *was = malloc(r[0].bytes + r[1].bytes + 1);
    if (!was) return ha_why(why, HA_ERROR, "out of memory");
    memcpy(was, r[0].at, r[0].bytes);
    if (r[1].bytes) memcpy(was + r[0].bytes, r[1].at, r[1].bytes);
    enum ha_status status = ha_busy_start(&busy, why);
    for (size_t i = 0; i < runs && status == HA_OK; i++) status = run_again(w, was, why);
    ha_busy_stop(busy);
    free(was);
    return status == HA_OK ? ha_arena_check(w->arena, why) : status;
}

/* ---- for subjects ---------------------------------------------------------------------------------------- */

void *ha_cpu_alloc(struct ha_cpu_work *w, size_t bytes, struct ha_why *why)
{
    return ha_alloc(w->arena, bytes, HA_TAG_SCRATCH, why);
}

char *ha_cpu_unit(const struct ha_cpu_work *w, size_t unit)
{
    return w->kv + (w->turn % w->turns * w->units + unit) * w->unit_bytes;
}

void ha_cpu_normals(const struct ha_cpu_work *w, uint64_t stream, size_t n, bool round, float *out)
{
    ha_rng_normals(w->point.seed, stream, 0, n, out);
    for (size_t i = 0; round && !w->point.query && i < n; i++) out[i] = ha_round(out[i], w->dtype);
}

void ha_cpu_draw(uint64_t seed, uint64_t stream, size_t n, size_t k, uint32_t *out)
{
    for (size_t i = 0, have = 0; have < k; i++)
        if (ha_rng_below(seed, stream, i, n - i) < k - have) out[have++] = (uint32_t)i;
}

double ha_cpu_worst(struct ha_cpu_work *w,
                    double (*judge)(const struct ha_cpu_work *w, size_t unit, struct ha_chances *chances),
                    const char *what)
{
    double worst = 0;
    struct ha_chances chances = { 0 };
    for (size_t i = 0; i < ha_cpu_samples(w); i++) {
        const double ratio = judge(w, ha_cpu_sampled(w, i), &chances);
        if (!(ratio <= worst)) worst = ratio;
    }
    ha_suspect_add(&w->suspect, &chances, "%s", what);
    return worst;
}

size_t ha_cpu_rows_bytes(const struct ha_cpu_work *w) { return 2 * w->point.ctx * w->point.head_dim * w->elem; }
size_t ha_cpu_packed_bytes(const struct ha_cpu_work *w)
{
    return (w->point.ctx + HA_PACK_KEYS - 1) / HA_PACK_KEYS * ha_packed_block_bytes(w->point.head_dim, w->dtype);
}

struct ha_rows ha_cpu_rows(const struct ha_cpu_work *w, const char *unit, size_t keys)
{
    const size_t row = w->point.head_dim * w->elem;
    return (struct ha_rows){
        .k = unit, .v = unit + keys * row, .k_stride_bytes = row, .v_stride_bytes = row, .keys = keys
    };
}
