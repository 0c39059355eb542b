#include "suites/variants/planted.h"

#include "harness/base/block_list.h"
#include "suites/variants/case.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Written before the tables are handed out and only read while kernels run. */
static struct ha_kernels real;
static struct ha_device_api shim;
static const struct ha_device_api *device;
static const struct ha_mutant *planted;
static atomic_size_t step_now;

void ha_mutant_step(size_t step)
{
    atomic_store(&step_now, step);
    ha_movement_step(step);
}
size_t ha_planted_step(void) { return atomic_load(&step_now); }
const struct ha_kernels *ha_planted_cpu(void) { return &real; }
const struct ha_device_api *ha_planted_device(void) { return device; }

/* ---- defects that several groups plant ---------------------------------------------------- */

void ha_planted_stale(struct ha_attend *a, struct ha_mutant_room *room)
{
    if (atomic_load(&step_now) > 0) a->q_len = 0;
}

void ha_planted_pack_short(const struct ha_pack *p)
{
    struct ha_pack all_but_one = *p;
    all_but_one.rows.keys -= p->rows.keys > 0;
    real.pack(&all_but_one);
}

enum ha_status ha_planted_digest_once(struct ha_stream *stream, const struct ha_device_digest *args)
{
    return args->seqs[0].first > 0 ? HA_OK : device->digest(stream, args);
}

enum ha_status ha_planted_choose_once(struct ha_stream *stream, const struct ha_device_topk *args)
{
    return atomic_load(&step_now) > 0 ? HA_OK : device->topk(stream, args);
}

enum ha_status ha_planted_unrotated(struct ha_stream *stream, const struct ha_device_rotate *args)
{
    struct ha_device_rotate r = *args;
    r.turn = NULL;
    return device->rotate(stream, &r);
}

/* what ha_planted_other_projection was given last */
static const void *w_before;

enum ha_status ha_planted_other_projection(struct ha_stream *stream, const struct ha_device_product *args)
{
    struct ha_device_product p = *args;
    if (w_before) p.w = w_before;
    w_before = args->w;
    return device->product(stream, &p);
}

enum ha_status ha_planted_unnormed(struct ha_stream *stream, const struct ha_device_product *args)
{
    const enum ha_status status = device->product(stream, args);
    return status != HA_OK ? status
                           : device->blend(stream, &(struct ha_device_blend){ .y = args->y,
                                                                              .x = args->y,
                                                                              .rows = args->m,
                                                                              .cols = args->n,
                                                                              .y_stride = args->n,
                                                                              .x_stride = args->n,
                                                                              .a = 2 });
}

enum ha_status ha_planted_fetch_once(struct ha_stream *stream, const struct ha_device_pieces *pieces,
                                     enum ha_direction dir)
{
    return atomic_load(&step_now) > 0 ? HA_OK : device->copy_pieces(stream, pieces, dir);
}

void ha_planted_topk_one_off(const struct ha_topk *args)
{
    struct ha_topk t = *args;
    t.x += t.n > t.k;
    t.n -= t.n > t.k;
    real.topk(&t);
}

void ha_planted_topk_once(const struct ha_topk *args)
{
    if (atomic_load(&step_now) == 0) real.topk(args);
}

enum ha_status ha_planted_counts_twice(struct ha_stream *stream, const struct ha_device_attend *args)
{
    struct ha_device_seq seqs[HA_BATCH_MAX];
    struct ha_device_attend a = *args;
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++) {
        struct ha_device_seq *d = &seqs[b];
        if (d->runs_count == 0 || d->runs_count == HA_RUNS_MAX || d->runs[0].keys == 0) continue;
        memmove(d->runs + 1, d->runs, d->runs_count++ * sizeof *d->runs);
        d->runs[0].k = (const char *)d->runs[0].k + (d->runs[0].keys - 1) * d->runs[0].k_stride_bytes;
        d->runs[0].v = (const char *)d->runs[0].v + (d->runs[0].keys - 1) * d->runs[0].v_stride_bytes;
        d->runs[0].keys = 1;
    }
    a.seqs = seqs;
    return device->attend(stream, &a);
}

enum ha_status ha_planted_first_list(struct ha_stream *stream, const struct ha_device_attend *args)
{
    struct ha_device_seq seqs[HA_BATCH_MAX];
    struct ha_device_attend a = *args;
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++) seqs[b].list_stride = 0;
    a.seqs = seqs;
    return device->attend(stream, &a);
}

/* ---- the tables that a variant gets ------------------------------------------------------ */

static void attend(const struct ha_kernels *self, const struct ha_attend *args)
{
    struct ha_mutant_room room;
    struct ha_attend a = *args;
    if (planted->ask) planted->ask(&a, &room);
    if (a.q_len == 0) return;
    /* the changed arguments may need more */
    a.scratch = aligned_alloc(64, (real.attend_scratch_bytes(&a) + 63) / 64 * 64);
    if (!a.scratch) abort();
    real.attend(&real, &a);
    free(a.scratch);
    if (planted->answer) planted->answer(args);
}

static void attend_all(const struct ha_kernels *self, const struct ha_attend_all *all)
{
    for (size_t i = 0; i < all->count; i++) attend(self, &all->units[i]);
}

void ha_mutant_plant(const struct ha_mutant *m, struct ha_kernels *kernels, const struct ha_device_api **api)
{
    ha_block_policy_plant(m ? m->lists : NULL);
    if (!m) return;
    atomic_store(&step_now, 0);
    w_before = NULL;
    if (m->forget) m->forget();
    real = *kernels;
    planted = m;
    if (m->ask || m->answer) {
        kernels->attend = attend;
        kernels->attend_all = attend_all;
    }
    if (m->pack) kernels->pack = m->pack;
    if (m->digest) kernels->digest = m->digest;
    if (m->digest_score) kernels->digest_score = m->digest_score;
    if (m->topk) kernels->topk = m->topk;
    if (m->weighted_sum) kernels->weighted_sum = m->weighted_sum;
    device = *api;
    shim = **api;
    if (m->device_attend) shim.attend = m->device_attend;
    if (m->merge) shim.merge = m->merge;
    if (m->device_digest) shim.digest = m->device_digest;
    if (m->device_topk) shim.topk = m->device_topk;
    if (m->device_rotate) shim.rotate = m->device_rotate;
    if (m->device_product) shim.product = m->device_product;
    if (m->copy) shim.copy = m->copy;
    if (m->device_columns) shim.columns = m->device_columns;
    if (m->device_features) shim.features = m->device_features;
    if (m->device_net) shim.net = m->device_net;
    if (m->device_hash) shim.hash = m->device_hash;
    if (m->device_hamming) shim.hamming = m->device_hamming;
    if (m->device_similarity) shim.similarity = m->device_similarity;
    if (m->device_score) shim.score = m->device_score;
    if (m->device_split) shim.split = m->device_split;
    if (m->device_pq_encode) shim.pq_encode = m->device_pq_encode;
    if (m->device_pq_table) shim.pq_table = m->device_pq_table;
    if (m->device_pq_score) shim.pq_score = m->device_pq_score;
    if (m->device_topp) shim.topp = m->device_topp;
    if (m->copy_pieces) shim.copy_pieces = m->copy_pieces;
    if (m->device_move) shim.move = m->device_move;
    if (m->flag_write) shim.flag_write = m->flag_write;
    if (m->flag_wait) shim.flag_wait = m->flag_wait;
    *api = m->movement ? ha_movement_wrap(m->movement, &shim) : &shim;
}

/* ---- the variant ------------------------------------------------------------------------- */

static const struct ha_variant *variant;
static struct ha_variant variant_shim;

static bool is(const char *name, const char *planted_name) { return planted_name && !strcmp(name, planted_name); }

static enum ha_status create_with_other(struct ha_instance **self, const struct ha_context *ctx, struct ha_why *why)
{
    static double param[HA_PARAMS_MAX]; /* an instance keeps its context */
    static struct ha_context other;
    other = *ctx;
    for (size_t i = 0; i < variant->params_count; i++)
        param[i] = ctx->param[i] + is(variant->params[i].name, planted->one_more)
                   - is(variant->params[i].name, planted->one_less);
    other.param = param;
    return variant->create(self, &other, why);
}

static void wrong_columns(struct ha_instance *self, struct ha_counters *out)
{
    variant->counters(self, out);
    const struct {
        const char *name;
        double *at;
    } of[] = { { "cpu_tokens", &out->cpu_tokens }, { "cpu_ratio", &out->cpu_ratio }, { "recalls", &out->recalls } };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (is(of[i].name, planted->wrong_column)) *of[i].at = isnan(*of[i].at) ? 0.25 : *of[i].at * 1.01;
}

struct telling {
    ha_count *say;
    void *arg;
    size_t last; /* layer */
};

static void say_wrong(void *arg, const char *name, size_t layer, double value)
{
    const struct telling *to = arg;
    const bool last = layer == to->last;
    if (last && is(name, planted->no_count)) return;
    to->say(to->arg, name, layer, last && is(name, planted->wrong_count) ? value * 1.01 : value);
}

static void find_last(void *arg, const char *name, size_t layer, double value)
{
    size_t *last = arg;
    *last = layer > *last ? layer : *last;
}

static void wrong_counts(struct ha_instance *self, ha_count *say, void *arg)
{
    struct telling to = { .say = say, .arg = arg };
    variant->count(self, find_last, &to.last);
    variant->count(self, say_wrong, &to);
}

const struct ha_variant *ha_mutant_variant(const struct ha_mutant *m, const struct ha_variant *of)
{
    const bool columns = m && m->wrong_column, counts = m && (m->wrong_count || m->no_count);
    const bool other = m && (m->one_less || m->one_more);
    if (!other && !columns && !counts) return of;
    planted = m;
    variant = of;
    variant_shim = *of;
    if (other) variant_shim.create = create_with_other;
    if (columns) variant_shim.counters = wrong_columns;
    if (counts) variant_shim.count = wrong_counts;
    return &variant_shim;
}
