#include "suites/variants/planted.h"

#include "suites/variants/case.h"

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
