#include "suites/variants/mutants.h"

#include "harness/base/numeric.h"
#include "harness/base/registry.h"
#include "harness/base/sanitizer.h"
#include "harness/base/why.h"
#include "harness/report/row.h"
#include "suites/variants/check.h"
#include "suites/variants/movement.h"

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

/* ---- the CPU's partial ------------------------------------------------------------------- */

/* memory for arguments that a defect puts in place of the real ones */
struct ha_mutant_room {
    struct ha_rows runs[HA_RUNS_MAX];
    float k[HA_PACK_DIM_MAX], v[HA_PACK_DIM_MAX];
    uint32_t index[64];
};

static float *lse_at(const struct ha_attend *a, size_t token, size_t head)
{
    return a->lse + token * a->lse_token_stride + head * a->lse_head_stride;
}
static float *o_at(const struct ha_attend *a, size_t token, size_t head)
{
    return a->o + token * a->q_token_stride + head * a->q_head_stride;
}

static void each_lse(const struct ha_attend *a, float (*f)(float))
{
    for (size_t t = 0; t < a->q_len; t++)
        for (size_t h = 0; h < a->group; h++) *lse_at(a, t, h) = f(*lse_at(a, t, h));
}

static struct ha_rows without_first(struct ha_rows r)
{
    if (r.index) r.index++;
    else {
        r.k = (const char *)r.k + r.k_stride_bytes;
        r.v = (const char *)r.v + r.v_stride_bytes;
    }
    r.keys--;
    return r;
}

/* Of packed keys the last, or else the first row. */
static void drop_token(struct ha_attend *a, struct ha_mutant_room *room)
{
    size_t i = 0;
    if (a->packed.keys) {
        a->packed.keys--;
        return;
    }
    if (a->runs_count) memcpy(room->runs, a->runs, a->runs_count * sizeof *room->runs);
    while (i < a->runs_count && room->runs[i].keys == 0) i++;
    /* with causal set the last run ends in the query tokens, which stay */
    if (i < a->runs_count && room->runs[i].keys > (i + 1 == a->runs_count && a->causal ? a->q_len : 0))
        room->runs[i] = without_first(room->runs[i]);
    a->runs = room->runs;
}

/* The first key once more, as a run of its own: what two sides do that both own the boundary. */
static void double_token(struct ha_attend *a, struct ha_mutant_room *room)
{
    size_t i = 0, row = a->head_dim * ha_dtype_bytes(a->dtype);
    while (i < a->runs_count && a->runs[i].keys == 0) i++;
    if ((!a->packed.keys && i == a->runs_count) || a->runs_count == HA_RUNS_MAX || a->weights) return;
    room->runs[0] = (struct ha_rows){ .k = room->k, .v = room->v, .k_stride_bytes = row, .v_stride_bytes = row };
    if (a->packed.keys)
        real.unpack(&(struct ha_unpack){ .blocks = a->packed.blocks,
                                         .keys = 1,
                                         .head_dim = a->head_dim,
                                         .dtype = a->dtype,
                                         .k = room->k,
                                         .v = room->v,
                                         .k_stride_bytes = row,
                                         .v_stride_bytes = row });
    else room->runs[0] = a->runs[i];
    room->runs[0].keys = 1;
    if (a->runs_count) memcpy(room->runs + 1, a->runs, a->runs_count * sizeof *room->runs);
    a->runs = room->runs;
    a->runs_count++;
}

/* Of a list the first block, once more. */
static void double_block(struct ha_attend *a, struct ha_mutant_room *room)
{
    const size_t units = a->packed.units;
    if (!a->packed.index || units == 0 || units == sizeof room->index / sizeof *room->index) return;
    memcpy(room->index, a->packed.index, units * sizeof *room->index);
    room->index[units] = room->index[0];
    a->packed.index = room->index;
    a->packed.units++;
}

/* Beside a list of packed blocks, those that are not packed yet. */
static void drop_rows(struct ha_attend *a, struct ha_mutant_room *room)
{
    if (a->packed.index) a->runs_count = 0;
}

/* From the second step on the outputs stay what they were. */
static void stale(struct ha_attend *a, struct ha_mutant_room *room)
{
    if (atomic_load(&step_now) > 0) a->q_len = 0;
}

static void wrong_scale(struct ha_attend *a, struct ha_mutant_room *room) { a->scale *= 1.01f; }

/* the last head of the group is forgotten */
static void unwritten(struct ha_attend *a, struct ha_mutant_room *room) { a->group -= a->group > 1; }

static float to_base_2(float x) { return x * 1.44269504f; }
static float through_bf16(float x) { return ha_round(x, HA_BF16); }

static void base_2(const struct ha_attend *a) { each_lse(a, to_base_2); }
static void bf16_lse(const struct ha_attend *a) { each_lse(a, through_bf16); }

static void swap_heads(const struct ha_attend *a)
{
    for (size_t t = 0; t < a->q_len && a->group > 1; t++) {
        float lse = *lse_at(a, t, 0), *x = o_at(a, t, 0), *y = o_at(a, t, 1);
        *lse_at(a, t, 0) = *lse_at(a, t, 1);
        *lse_at(a, t, 1) = lse;
        for (size_t d = 0; d < a->head_dim; d++) {
            float o = x[d];
            x[d] = y[d];
            y[d] = o;
        }
    }
}

static void nan_output(const struct ha_attend *a) { *o_at(a, 0, 0) = NAN; }

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

static void pack_short(const struct ha_pack *p)
{
    struct ha_pack all_but_one = *p;
    all_but_one.rows.keys -= p->rows.keys > 0;
    real.pack(&all_but_one);
}

static void no_more_digests(const struct ha_digest *d)
{
    if (atomic_load(&step_now) == 0) real.digest(d);
}

/* the candidates before those of largest score */
static void topk_one_off(const struct ha_topk *args)
{
    struct ha_topk t = *args;
    t.x += t.n > t.k;
    t.n -= t.n > t.k;
    real.topk(&t);
}

static void topk_once(const struct ha_topk *args)
{
    if (atomic_load(&step_now) == 0) real.topk(args);
}

/* ---- the device -------------------------------------------------------------------------- */

static enum ha_status device_scale(struct ha_stream *stream, const struct ha_device_attend *args)
{
    struct ha_device_attend a = *args;
    a.scale *= 1.01f;
    return device->attend(stream, &a);
}

static enum ha_status device_drop_token(struct ha_stream *stream, const struct ha_device_attend *args)
{
    struct ha_device_seq seqs[HA_BATCH_MAX];
    struct ha_device_attend a = *args;
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++)
        if (seqs[b].runs_count && seqs[b].runs[0].keys > args->q_len) seqs[b].runs[0] = without_first(seqs[b].runs[0]);
    a.seqs = seqs;
    return device->attend(stream, &a);
}

static enum ha_status device_drops_run(struct ha_stream *stream, const struct ha_device_attend *args)
{
    struct ha_device_seq seqs[HA_BATCH_MAX];
    struct ha_device_attend a = *args;
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++)
        if (seqs[b].runs_count > 1) seqs[b].runs[0].keys = 0;
    a.seqs = seqs;
    return device->attend(stream, &a);
}

/* Of the first run the last key, once more: what comes next is on the device, and on the host. */
static enum ha_status device_counts_twice(struct ha_stream *stream, const struct ha_device_attend *args)
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

/* Blocks of keys lose their last one on the way down; queries, which are smaller here, arrive. */
static enum ha_status copy_short(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                 enum ha_direction dir)
{
    enum { BLOCK_BYTES = 4096, TOKEN_BYTES = 256 };
    return device->copy(stream, dst, src, bytes - (dir == HA_D2H && bytes == BLOCK_BYTES ? TOKEN_BYTES : 0), dir);
}

/* The state that is merged last: in a hybrid variant, the CPU's. */
static enum ha_status drop_state(struct ha_stream *stream, const struct ha_merge *args)
{
    struct ha_merge m = *args;
    m.states_count -= args->states_count > 1;
    return device->merge(stream, &m);
}

static enum ha_status double_state(struct ha_stream *stream, const struct ha_merge *args)
{
    struct ha_merge_state states[16];
    struct ha_merge m = *args;
    if (args->states_count && args->states_count < 16) {
        memcpy(states, args->states, args->states_count * sizeof *states);
        states[args->states_count] = args->states[0];
        m.states = states;
        m.states_count++;
    }
    return device->merge(stream, &m);
}

/* ---- what the device chooses and predicts by ------------------------------------------------- */

static enum ha_status first_list(struct ha_stream *stream, const struct ha_device_attend *args)
{
    struct ha_device_seq seqs[HA_BATCH_MAX];
    struct ha_device_attend a = *args;
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++) seqs[b].list_stride = 0;
    a.seqs = seqs;
    return device->attend(stream, &a);
}

/* the digests that the prefill left; later blocks have what was there */
static enum ha_status digest_once(struct ha_stream *stream, const struct ha_device_digest *args)
{
    return args->seqs[0].first > 0 ? HA_OK : device->digest(stream, args);
}

static enum ha_status choose_once(struct ha_stream *stream, const struct ha_device_topk *args)
{
    return atomic_load(&step_now) > 0 ? HA_OK : device->topk(stream, args);
}

static enum ha_status first_row_chooses(struct ha_stream *stream, const struct ha_device_topk *args)
{
    struct ha_device_topk t = *args;
    struct ha_device_topk_seq seqs[HA_BATCH_MAX];
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++) seqs[b].stride *= args->rows;
    t.rows = 1;
    t.seqs = seqs;
    return device->topk(stream, &t);
}

static enum ha_status unrotated(struct ha_stream *stream, const struct ha_device_rotate *args)
{
    struct ha_device_rotate r = *args;
    r.turn = NULL;
    return device->rotate(stream, &r);
}

/* by W_Q of the layer that was predicted before */
static const void *w_before;
static enum ha_status other_projection(struct ha_stream *stream, const struct ha_device_product *args)
{
    struct ha_device_product p = *args;
    if (w_before) p.w = w_before;
    w_before = args->w;
    return device->product(stream, &p);
}

/* a product too long, as of an input that was not divided by its root mean square */
static enum ha_status unnormed(struct ha_stream *stream, const struct ha_device_product *args)
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

static enum ha_status columns_of_first_head(struct ha_stream *stream, const struct ha_device_columns *args)
{
    struct ha_device_columns c = *args;
    c.kv_heads = 1;
    return device->columns(stream, &c);
}

/* of the prefill and of the first step, which comes next, alone */
static enum ha_status no_new_columns(struct ha_stream *stream, const struct ha_device_columns *args)
{
    return args->x_type != HA_F32 && atomic_load(&step_now) > 0 ? HA_OK : device->columns(stream, args);
}

/* Of each list, so far the longest that it may be, those not below the largest element of the next one less within. */
struct cut {
    struct ha_device_topk args;
    struct ha_device_topk_seq seqs[HA_BATCH_MAX];
};

static void cut_by_next(void *arg)
{
    struct cut *cut = arg;
    for (size_t i = 0; i < cut->args.batch * cut->args.lists; i++) {
        const struct ha_device_topk_seq *seq = &cut->seqs[i / cut->args.lists];
        const size_t list = i % cut->args.lists;
        const float *x = seq->x + list * seq->stride, *next = seq->x + (list + 1) % cut->args.lists * seq->stride;
        uint32_t *index = seq->index + list * seq->index_stride, kept = 0;
        float most = next[0];
        for (size_t j = 1; j < seq->n; j++) most = fmaxf(most, next[j]);
        for (size_t j = 0; j < seq->keys[list]; j++)
            if (x[index[j]] >= most - seq->within) index[kept++] = index[j];
        seq->keys[list] = kept;
    }
    free(cut);
}

/* where lists have a row each, and the host reads the device's memory */
static enum ha_status threshold_of_next(struct ha_stream *stream, const struct ha_device_topk *args)
{
    struct ha_device_topk all = *args;
    struct ha_device_topk_seq seqs[HA_BATCH_MAX];
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++) seqs[b].within = HUGE_VALF;
    all.seqs = seqs;
    HA_TRY(device->topk(stream, &all));
    struct cut *cut = malloc(sizeof *cut);
    if (!cut) abort();
    cut->args = *args;
    memcpy(cut->seqs, args->seqs, args->batch * sizeof *seqs);
    return device->host_fn(stream, cut_by_next, cut);
}

/* What the layers of the first step are given, in their order; later ones that of the layer behind theirs. */
enum { RING_MAX = 16 };
static struct ring {
    const void *of[RING_MAX];
    size_t count;
} ring_w, ring_a, ring_k;

/* from: the first layer that is told another */
static const void *of_layer_behind(struct ring *r, const void *own, size_t from)
{
    size_t i = 0;
    while (i < r->count && r->of[i] != own) i++;
    if (i == r->count && r->count < RING_MAX) r->of[r->count++] = own;
    return atomic_load(&step_now) == 0 || i < from || i + 1 >= r->count ? own : r->of[i + 1];
}

static enum ha_status product_behind(struct ha_stream *stream, const struct ha_device_product *args)
{
    struct ha_device_product p = *args;
    p.w = of_layer_behind(&ring_w, args->w, 0);
    return device->product(stream, &p);
}

static enum ha_status columns_behind(struct ha_stream *stream, const struct ha_device_columns *args)
{
    struct ha_device_columns c = *args;
    if (args->x_type == HA_F32) c.a = of_layer_behind(&ring_a, args->a, 1);
    return device->columns(stream, &c);
}

static enum ha_status score_behind(struct ha_stream *stream, const struct ha_device_score *args)
{
    struct ha_device_rows_seq one = args->seqs[0];
    struct ha_device_score s = *args;
    one.rows.k = of_layer_behind(&ring_k, one.rows.k, 1);
    s.seqs = &one;
    return device->score(stream, &s);
}

static enum ha_status fetch_once(struct ha_stream *stream, const struct ha_device_pieces *pieces, enum ha_direction dir)
{
    return atomic_load(&step_now) > 0 ? HA_OK : device->copy_pieces(stream, pieces, dir);
}

/* Of lists of two heads, and of rows that lie apart: each half of them takes what is the other's. */
static enum ha_status fetch_other_head(struct ha_stream *stream, const struct ha_device_pieces *pieces,
                                       enum ha_direction dir)
{
    const size_t half = pieces->count / 2;
    const void **src = malloc((pieces->count + 1) * sizeof *src);
    if (!src) abort();
    for (size_t i = 0; i < pieces->count; i++) src[i] = pieces->src[(i + half) % (2 * half)];
    const enum ha_status status = device->copy_pieces(
        stream, &(struct ha_device_pieces){ pieces->dst, src, pieces->bytes, pieces->count }, dir);
    free(src);
    return status;
}

/* Of blocks of 8 rows: 8 rows further on. */
static enum ha_status fetch_next_block(struct ha_stream *stream, const struct ha_device_pieces *pieces,
                                       enum ha_direction dir)
{
    const void **src = malloc((pieces->count + 1) * sizeof *src);
    if (!src) abort();
    for (size_t i = 0; i < pieces->count; i++)
        src[i] = (const char *)pieces->src[i] + 8 * ((const char *)pieces->src[1] - (const char *)pieces->src[0]);
    const enum ha_status status = device->copy_pieces(
        stream, &(struct ha_device_pieces){ pieces->dst, src, pieces->bytes, pieces->count }, dir);
    free(src);
    return status;
}

/* of the run between the chosen blocks and the new tokens */
static enum ha_status lose_tail_token(struct ha_stream *stream, const struct ha_device_attend *args)
{
    struct ha_device_seq seqs[HA_BATCH_MAX];
    struct ha_device_attend a = *args;
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++) seqs[b].runs[1].keys -= seqs[b].runs_count > 2;
    a.seqs = seqs;
    return device->attend(stream, &a);
}

/* the blocks before those of largest score */
static enum ha_status device_topk_one_off(struct ha_stream *stream, const struct ha_device_topk *args)
{
    struct ha_device_topk t = *args;
    struct ha_device_topk_seq seqs[HA_BATCH_MAX];
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++)
        if (seqs[b].n > seqs[b].k) seqs[b].x++, seqs[b].n--;
    t.seqs = seqs;
    return device->topk(stream, &t);
}

/* What is resident is known to the device as it was after the prefill. */
static enum ha_status upload_once(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                  enum ha_direction dir)
{
    return dir == HA_H2D && atomic_load(&step_now) > 0 ? HA_OK : device->copy(stream, dst, src, bytes, dir);
}

/* Of each list all blocks are missing, those that are there as well. */
struct all_missing {
    struct ha_device_split args;
    struct ha_device_split_seq seqs[HA_BATCH_MAX];
};

static void miss_all(void *arg)
{
    struct all_missing *a = arg;
    for (size_t i = 0; i < a->args.batch * a->args.lists; i++) {
        const struct ha_device_split_seq *seq = &a->seqs[i / a->args.lists];
        const size_t list = i % a->args.lists;
        if (!seq->missing || !seq->count) continue;
        memcpy(seq->missing + list * seq->out_stride, seq->index + list * seq->index_stride,
               seq->count * sizeof *seq->missing);
        seq->missing_count[list] = (uint32_t)seq->count;
    }
    free(a);
}

static enum ha_status split_to_both(struct ha_stream *stream, const struct ha_device_split *args)
{
    HA_TRY(device->split(stream, args));
    struct all_missing *a = malloc(sizeof *a);
    if (!a) abort();
    a->args = *args;
    memcpy(a->seqs, args->seqs, args->batch * sizeof *a->seqs);
    return device->host_fn(stream, miss_all, a);
}

/* ---- the variant ------------------------------------------------------------------------- */

static const struct ha_variant *variant;
static struct ha_variant variant_shim;

static enum ha_status create_with_less(struct ha_instance **self, const struct ha_context *ctx, struct ha_why *why)
{
    static double param[HA_PARAMS_MAX]; /* an instance keeps its context */
    static struct ha_context less;
    less = *ctx;
    for (size_t i = 0; i < variant->params_count; i++)
        param[i] = ctx->param[i] - !strcmp(variant->params[i].name, planted->one_less);
    less.param = param;
    return variant->create(self, &less, why);
}

const struct ha_variant *ha_mutant_variant(const struct ha_mutant *mutant, const struct ha_variant *of)
{
    if (!mutant || !mutant->one_less) return of;
    planted = mutant;
    variant = of;
    variant_shim = *of;
    variant_shim.create = create_with_less;
    return &variant_shim;
}

/* ---- the table --------------------------------------------------------------------------- */

/* Small and with two heads in a group, so that every defect has something to break. */
#define SHAPE "ctx=300,heads=4/2,head_dim=64,layers=2,steps=3,seed=5"

#define CPU    "cpu:" SHAPE
#define DEVICE "resident:" SHAPE
#define SPLIT  "hgca:" SHAPE ",blk_size=16,blk_num=4"
/* nothing is evicted of the context, with three blocks or four; then some steps evict */
#define EVICT "hgca:ctx=40,heads=4/2,head_dim=64,layers=1,steps=40,seed=5,blk_size=16,blk_num=4"

#define QUEST   "quest:ctx=300,heads=4/2,head_dim=64,layers=1,steps=12,seed=5,block=8,budget=32,dense_layers=0"
#define FETCHES "gpu_only:ctx=300,heads=4/2,head_dim=64,layers=1,steps=12,seed=5,block=8,budget=0.2,fetch=pieces"
#define READS   "gpu_only:ctx=300,heads=4/2,head_dim=64,layers=1,steps=12,seed=5,block=8,budget=0.2,fetch=zero_copy"
#define TOPK    "topk:ctx=300,heads=4/2,head_dim=64,layers=1,steps=3,seed=5,k=16"
#define AHEAD   "topk:dataset=trace/english,ctx=1900,layers=3,steps=2,k=16,query=ahead"

#define INFINIGEN       "infinigen:dataset=walk,ctx=300,heads=4/2,head_dim=64,layers=4,steps=3,seed=5,dtype=bf16"
#define INFINIGEN_TRACE "infinigen:dataset=trace/english,ctx=1900,layers=3,steps=2"

/* 15 blocks of the context are in host memory, the last of them not packed; three more leave in the steps */
#define HYBRID                                                                                                  \
    "hybrid_fixed:ctx=300,heads=4/2,head_dim=64,layers=1,steps=40,seed=5,dtype=f16,sink=16,recent=32,block=16," \
    "budget=0.3"

/* of 42 blocks 4 are chosen, and as many resident; a recall every second step, waited for so that each run is the same
 */
#define SCOUT                                                                                                 \
    "scout:dataset=walk,ctx=330,heads=4/2,head_dim=64,layers=3,steps=12,seed=5,dtype=bf16,block=8,budget=32," \
    "interval=2,recall=wait"
#define SCOUT_TRACE "scout:dataset=trace/english,ctx=1900,layers=3,steps=2,block=16,budget=64"

#define OFFLOAD   "offload:ctx=300,heads=4/2,head_dim=64,layers=1,steps=3,seed=5"
#define OFFLOAD_2 "offload:" SHAPE
/* of a single layer, in the order in which they are made: of offload (two buffers), of hgca */
enum { STORED = 1 << 0, LOADED = 1 << 1 | 1 << 3 };
/* of two: there the wait for the store comes too early to stand for it */
enum { USED_2 = 1 << 3 | 1 << 5 };
enum { ATTENDED = 1 << 0, SETTLED = 1 << 1, ARRIVED = 1 << 2 };
/* of topk, behind the two of its fetches */
enum { FETCHED = 1 << 2 | 1 << 3, CAME = 1 << 4 };
/* of infinigen, behind that of a prediction and the four of its fetches */
enum { CHOSEN = 1 << 5 };
/* of gpu_only */
enum { DOWN = 1 << 0 };
/* of scout: of the recalls of three layers, behind the two of fetches; what the CPU and the recall have to wait for */
enum { RECALLED = 1 << 3 | 1 << 5 | 1 << 7, FORESEEN = 1 << 9, WANTED = 1 << 10 };
#define MOVES(name, breaks, id, seen_in, ...)                                                                         \
    {                                                                                                                 \
        name, breaks, id, .shown = "order: ", .order = true, .seen = seen_in, .movement = &(const struct ha_movement) \
        {                                                                                                             \
            __VA_ARGS__                                                                                               \
        }                                                                                                             \
    }

const struct ha_mutant ha_mutants[] = {
    { "dropped_token", "the CPU side leaves out a key", CPU, .ask = drop_token },
    { "doubled_token", "the CPU side counts its first key twice", CPU, .ask = double_token },
    { "wrong_scale", "the CPU side scales its scores by 1% too much", CPU, .ask = wrong_scale },
    { "base_2_lse", "the CPU side gives its LSE to base 2", CPU, .answer = base_2 },
    { "bf16_lse", "the CPU side's LSE went through bf16", CPU, .answer = bf16_lse },
    { "swapped_heads", "two heads of a group are swapped", CPU, .answer = swap_heads },
    { "nan_output", "one element is NaN", CPU, .answer = nan_output },
    { "stale_output", "the CPU side's output of the first step is used again", CPU, .ask = stale },
    { "unwritten_head", "the CPU side forgets the last head of a group", CPU, .ask = unwritten },
    { "short_packing", "packing leaves out the last of the keys", CPU, .pack = pack_short },
    { "device_wrong_scale", "the device scales its scores by 1% too much", DEVICE, .device_attend = device_scale },
    { "device_dropped_token", "the device leaves out the first key", DEVICE, .device_attend = device_drop_token },
    { "split_dropped_token", "one side of a split leaves out a key", SPLIT, .ask = drop_token },
    { "split_base_2_lse", "a base-2 LSE goes into the merge", SPLIT, .answer = base_2 },
    { "split_bf16_lse", "an LSE in bf16 goes into the merge", SPLIT, .answer = bf16_lse },
    { "stale_partial", "the merge reads the CPU partial of the first step", SPLIT, .ask = stale },
    { "dropped_state", "the merge leaves out the last state", SPLIT, .merge = drop_state },
    { "doubled_state", "the merge counts the first state twice", SPLIT, .merge = double_state },
    { "eviction_count", "a block too many is evicted", EVICT, .one_less = "blk_num", .shown = "question 2" },

    { "first_list", "every head reads the list of the first one", QUEST, .shown = "question 1",
      .device_attend = first_list },
    { "digest_not_renewed", "blocks that fill in steps have no digest of theirs", QUEST, .shown = "question 2",
      .device_digest = digest_once },
    { "lists_of_step_before", "the device reads the blocks that an earlier step chose", QUEST, .shown = "question 2",
      .device_topk = choose_once },
    { "first_row_chooses", "the first head of a group chooses for all of them", QUEST ",group=max",
      .shown = "question 2", .device_topk = first_row_chooses },
    { "keys_of_step_before", "the keys of an earlier step are attended over", TOPK, .shown = "question 1",
      .copy_pieces = fetch_once },
    { "sink_left_out", "the device leaves out the first tokens", HYBRID, .shown = "question 1",
      .device_attend = device_drops_run },
    { "sink_too_short", "the last token of the sink is the host's", HYBRID, .one_less = "sink", .shown = "question 2" },
    { "left_too_early", "a block leaves while one of its tokens is recent", HYBRID, .one_less = "recent",
      .shown = "question 2" },
    { "two_owners", "the device counts a key that it has twice", HYBRID, .shown = "question 1",
      .device_attend = device_counts_twice },
    { "lost_in_leaving", "the last token of a block does not arrive in host memory", HYBRID, .shown = "question 2",
      .copy = copy_short },
    { "short_blocks", "packing leaves out the last token of what it packs", HYBRID, .shown = "question 1",
      .pack = pack_short },
    { "doubled_block", "the first block of a list is attended over twice", HYBRID, .shown = "question 1",
      .ask = double_block },
    { "unpacked_left_out", "a block that is chosen and not packed yet is left out", HYBRID, .shown = "question 1",
      .ask = drop_rows },
    { "blocks_without_digest", "blocks that leave in steps get no digest", HYBRID, .shown = "question 2",
      .digest = no_more_digests },
    { "blocks_one_off", "the blocks before those of largest score are read", HYBRID, .shown = "question 2",
      .topk = topk_one_off },
    { "blocks_of_first_step", "the CPU reads the blocks that the first step chose", HYBRID ",group=max",
      .shown = "question 2", .topk = topk_once },
    { "digest_left_out", "blocks that leave the device have no digest of theirs", READS, .shown = "question 2",
      .device_digest = digest_once },
    { "list_of_step_before", "the blocks that an earlier step chose are read in host memory", READS,
      .shown = "question 2", .device_topk = choose_once },
    { "tail_token_lost", "the newest token of the block that is not whole is left out", READS, .shown = "question 1",
      .device_attend = lose_tail_token },
    { "blocks_of_step_before", "the blocks that an earlier step fetched are attended over", FETCHES,
      .shown = "question 1", .copy_pieces = fetch_once },
    { "block_of_other_head", "the blocks of another head are fetched", FETCHES, .shown = "question 1",
      .copy_pieces = fetch_other_head },
    { "block_behind", "the block behind each chosen one is fetched", FETCHES, .shown = "question 1",
      .copy_pieces = fetch_next_block },
    { "unrotated_query", "a predicted query has no rotary position", AHEAD, .shown = "question 2",
      .device_rotate = unrotated },
    { "query_of_other_layer", "a query is predicted by another layer's projection", AHEAD, .shown = "question 2",
      .device_product = other_projection },
    { "prefetch_unrotated", "keys are sent for by a query without its rotary position", INFINIGEN_TRACE,
      .shown = "question 2", .device_rotate = unrotated },
    { "prefetch_unnormed", "keys are sent for by an input without the norm of the next layer", INFINIGEN,
      .shown = "question 2", .device_product = unnormed },
    { "columns_of_other_head", "queries and keys of every head are turned as those of the first", INFINIGEN,
      .shown = "question 2", .device_columns = columns_of_first_head },
    { "new_keys_without_columns", "tokens of steps have no partial keys", INFINIGEN, .shown = "question 2",
      .device_columns = no_new_columns },
    { "threshold_of_other_list", "a list of keys ends where the threshold of another one cuts that", INFINIGEN,
      .shown = "question 2", .device_topk = threshold_of_next },
    { "alpha_one_less", "the threshold is too close to the largest score", INFINIGEN, .shown = "question 2",
      .one_less = "alpha" },
    { "prefetch_layer_after_next", "the keys that are sent for are those of the layer after the next", INFINIGEN,
      .shown = "question 2", .device_product = product_behind, .device_columns = columns_behind,
      .device_score = score_behind },
    { "residency_of_prefill", "the device takes the blocks to be resident that were after the prefill", SCOUT,
      .copy = upload_once },
    { "new_blocks_without_digest", "blocks that fill in steps have no digest of theirs", SCOUT, .shown = "question 2",
      .device_digest = digest_once },
    { "recall_a_step_early", "a recall is issued a step before it is due", SCOUT, .shown = "question 2",
      .one_less = "interval" },
    { "precompute_unrotated", "the CPU begins by a query without its rotary position", SCOUT_TRACE,
      .shown = "question 2", .device_rotate = unrotated },
    { "precompute_unnormed", "the CPU begins by an input without the norm of the next layer", SCOUT,
      .shown = "question 2", .device_product = unnormed },
    { "precompute_of_other_layer", "the CPU begins by another layer's projection", SCOUT, .shown = "question 2",
      .device_product = other_projection },
    { "choice_one_off", "the blocks before those of largest score are chosen", SCOUT, .shown = "question 2",
      .device_topk = device_topk_one_off },
    { "budget_one_less", "a block less than the budget has is chosen", SCOUT, .shown = "question 2",
      .one_less = "budget" },
    { "state_of_step_before", "what the CPU made in the step before is merged", SCOUT, .shown = "question 1",
      .ask = stale },
    { "resident_and_missing", "blocks that the device has are sent to the CPU, too", SCOUT, .shown = "listed twice",
      .device_split = split_to_both },
    { "recalled_once", "the blocks of later recalls do not arrive", SCOUT, .shown = "question 1",
      .copy_pieces = fetch_once },

    MOVES("load_over_attention", "a layer is loaded into a buffer that attention still reads", OFFLOAD_2,
          "vllm-project/vllm#47282", .unwaited = USED_2),
    MOVES("attention_before_load", "attention reads a buffer before the layer has arrived", OFFLOAD, "",
          .unwaited = LOADED),
    MOVES("load_before_store", "a layer is loaded before its newest tokens have reached the store", OFFLOAD, "",
          .unwaited = STORED),
    MOVES("store_before_attention", "what leaves the ring is stored before the kernels that write it are done", EVICT,
          "vllm-project/vllm#45704", .unwaited = ATTENDED),
    MOVES("append_over_store", "new tokens and weights are written over what is still being stored", EVICT, "",
          .unwaited = SETTLED),
    MOVES("host_before_query", "the CPU side reads the queries before they have come down", EVICT,
          "ikawrakow/ik_llama.cpp#2083", .unsynced = ARRIVED),
    MOVES("host_waits_once", "the CPU side waits in the first step alone, as if later ones were no later", EVICT,
          "ikawrakow/ik_llama.cpp#2083", .unsynced = ARRIVED, .from_step = 1),
    MOVES("select_before_store", "the background selects among tokens that have not arrived", EVICT, "",
          .unsynced = SETTLED),
    MOVES("choice_before_query", "keys are chosen by queries that have not come down", TOPK, "", .unsynced = CAME),
    MOVES("blocks_before_query", "blocks are chosen by queries that have not come down", HYBRID, "",
          .unsynced = ARRIVED),
    MOVES("digest_before_block", "a block is packed and gets its digest before it has arrived", HYBRID, "",
          .unsynced = SETTLED),
    MOVES("fetch_before_list", "blocks are fetched by a list that has not come down", FETCHES, "", .unsynced = DOWN,
          .from_step = 1),
    MOVES("attention_before_fetch", "attention reads keys before they have arrived", TOPK, "", .unwaited = FETCHED),
    /* of a first step that does not wait, lists would be of any length */
    MOVES("fetch_before_choice", "from the second step on keys are sent for before it is known which", INFINIGEN, "",
          .unsynced = CHOSEN, .from_step = 1),
    MOVES("recall_over_attention", "blocks are recalled into slots that attention still reads", SCOUT, "",
          .unwaited = RECALLED),
    MOVES("precompute_before_choice", "the CPU begins before it is known with which blocks", SCOUT, "",
          .unsynced = FORESEEN, .from_step = 1),
    MOVES("recall_before_choice", "blocks are recalled before it is known which", SCOUT, "", .unsynced = WANTED,
          .from_step = 1),
    MOVES("half_a_layer", "the event of a load is recorded before the copy of V", OFFLOAD, "", .records_early = LOADED),
    MOVES("record_on_main", "the end of a store is recorded on the stream that computes", EVICT, "",
          .records_on_main = SETTLED),
    MOVES("wait_on_main", "the stream that computes waits in place of the one that loads", OFFLOAD_2, "",
          .waits_on_main = USED_2),
    MOVES("one_place_twice", "two blocks are offloaded to one place, and neither waits for the other", EVICT,
          "NVIDIA/TensorRT-LLM#9056", .offloads_twice = true),
    MOVES("staging_reused", "a pinned buffer is filled again while a copy still reads it", EVICT,
          "NVIDIA/TensorRT-LLM#15546", .reuses_staging = true),
    { "wrong_layer_loaded", "the prefetch takes another layer", OFFLOAD_2, .shown = "question 1",
      .seen = "huggingface/transformers#46748", .movement = &(const struct ha_movement){ .loads_other_layer = true } },
    { "wrong_layer_stored", "new tokens are stored to another layer", OFFLOAD_2, .shown = "question 1", .seen = "",
      .movement = &(const struct ha_movement){ .stores_other_layer = true } },
};
const size_t ha_mutants_count = sizeof ha_mutants / sizeof *ha_mutants;

void ha_mutant_plant(const struct ha_mutant *m, struct ha_kernels *kernels, const struct ha_device_api **api)
{
    if (!m) return;
    atomic_store(&step_now, 0);
    w_before = NULL;
    ring_w.count = ring_a.count = ring_k.count = 0;
    real = *kernels;
    planted = m;
    if (m->ask || m->answer) {
        kernels->attend = attend;
        kernels->attend_all = attend_all;
    }
    if (m->pack) kernels->pack = m->pack;
    if (m->digest) kernels->digest = m->digest;
    if (m->topk) kernels->topk = m->topk;
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
    if (m->device_score) shim.score = m->device_score;
    if (m->device_split) shim.split = m->device_split;
    if (m->copy_pieces) shim.copy_pieces = m->copy_pieces;
    *api = m->movement ? ha_movement_wrap(m->movement, &shim) : &shim;
}

/* ---- the suite: each must be seen by the check of the case that is there for it ---------------------------------- */

struct mutant_point {
    size_t mutant, isa;
    char device[256];
};
struct mutant_row {
    struct ha_result head;
    char breaks[160], seen_as[512];
};

static const char *mutant_word(size_t i) { return i < ha_mutants_count ? ha_mutants[i].name : NULL; }

static const struct ha_key keys[] = {
    { "mutant", "*", "a defect that is planted", HA_KEY_WORD, offsetof(struct mutant_point, mutant),
      .word = mutant_word, .always = true, .column = true },
    { "device", "host", "a name, or the path of a plugin", HA_KEY_NAME, offsetof(struct mutant_point, device),
      .max = sizeof((struct mutant_point *)0)->device, .device = true, .column = true },
    { "isa", "best", "CPU kernels", HA_KEY_WORD, offsetof(struct mutant_point, isa), .word = ha_isa_word },
};

static const struct ha_field fields[] = {
    { "breaks", "", HA_FIELD_TEXT, HA_IN(struct mutant_row, breaks), 1, "what the defect does" },
    { "seen_as", "", HA_FIELD_TEXT, HA_IN(struct mutant_row, seen_as), 1, "how the check that saw it failed" },
};

/* The verdict of a check: HA_OK, HA_FAIL, HA_WAIVED, HA_ERROR. */
static enum ha_status judge(struct ha_shared *shared, const struct mutant_point *p, const struct ha_mutant *mutant,
                            const char *id, bool order, struct ha_why *why)
{
    struct ha_session session;
    struct ha_case c;
    HA_TRY(ha_case_parse(id, &c, why));
    c.isa = p->isa;
    memcpy(c.device, p->device, sizeof p->device);
    shared->order = order;
    HA_TRY(ha_session_open(&session, shared, &c, mutant, why));
    struct ha_check check = { .session = &session, .id = id };
    const enum ha_status status = ha_check_run(&check, why);
    ha_check_free(&check);
    ha_session_close(&session);
    return status;
}

/* HA_OK: the defect was seen, and why says as what. */
static enum ha_status hunt(struct ha_shared *shared, const struct mutant_point *p, struct ha_why *why)
{
    const struct ha_mutant *m = &ha_mutants[p->mutant];
    struct ha_why reason = { "" };
    if (HA_TSAN && m->order)
        return ha_why(why, HA_WAIVED, "ThreadSanitizer ends a run in which what is planted happens");
    const enum ha_status sound = judge(shared, p, NULL, m->id, m->order, &reason);
    if (sound == HA_WAIVED) return ha_why(why, HA_WAIVED, "%s", reason.text);
    if (sound != HA_OK) return ha_why(why, HA_FAIL, "its case does not pass without it: %.400s", reason.text);
    const enum ha_status broken = judge(shared, p, m, m->id, m->order, &reason);
    if (broken == HA_OK) return ha_why(why, HA_FAIL, "SURVIVED: '%s' passes with it", m->id);
    if (broken != HA_FAIL)
        return ha_why(why, HA_FAIL, "ended as %s and not as a failed check: %.400s",
                      broken == HA_WAIVED ? "waived" : "an error", reason.text);
    if (m->shown && !strstr(reason.text, m->shown))
        return ha_why(why, HA_FAIL, "was not seen as %s: %.400s", m->shown, reason.text);
    return ha_why(why, HA_OK, "%s", reason.text);
}

static enum ha_status begin(void **run, const struct ha_suite_config *config, const struct ha_results *before,
                            struct ha_why *why)
{
    struct ha_shared *shared = *run = calloc(1, sizeof *shared);
    if (!shared) return ha_why(why, HA_ERROR, "out of memory");
    return ha_shared_open(shared, config->machine, false, why);
}

static void end(void *run)
{
    ha_shared_close(run);
    free(run);
}

static enum ha_status check(void *run, struct ha_group *g, struct ha_why *why)
{
    const struct mutant_point *p = g->point[0];
    struct mutant_row *row = g->row[0];
    const struct ha_mutant *m = &ha_mutants[p->mutant];
    snprintf(row->breaks, sizeof row->breaks, "%s", m->breaks);
    HA_TRY(hunt(run, p, why));
    snprintf(row->seen_as, sizeof row->seen_as, "%s", why->text);
    g->right[0] = true;
    return HA_OK;
}

static void print(FILE *out, const struct ha_results *r)
{
    putc('\n', out);
    for (size_t i = 0; i < r->entries; i++) {
        const struct mutant_point *p = r->entry[i].point;
        const struct mutant_row *row = r->entry[i].row;
        if (!row) continue;
        const struct ha_mutant *m = &ha_mutants[p->mutant];
        ha_planted_print(out, &row->head, m->name, m->breaks, "killed", "ALIVE", "", row->seen_as);
    }
}

static void print_defects(FILE *out)
{
    for (size_t i = 0; i < ha_mutants_count; i++) {
        const struct ha_mutant *m = &ha_mutants[i];
        if (!m->movement) continue;
        fprintf(out, "%-22s %s\n%22s found by check %s'%s'%s%s\n", m->name, m->breaks, "", m->order ? "--order " : "",
                m->id, *m->seen ? "; seen: " : "", m->seen);
    }
}
static const struct ha_list defects = { "defects", print_defects };

const struct ha_suite ha_suite_mutants = {
    .name = "mutants",
    .doc = "planted defects, each of which a check must see",
    .key = keys,
    .keys = sizeof keys / sizeof *keys,
    .class_key = "mutant",
    .field = fields,
    .fields = sizeof fields / sizeof *fields,
    .file = { "mutants.csv" },
    .list = &defects,
    .lists = 1,
    .point_bytes = sizeof(struct mutant_point),
    .row_bytes = sizeof(struct mutant_row),
    .begin = begin,
    .check = check,
    .end = end,
    .print = print,
};
