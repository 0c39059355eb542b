/* Copies of pieces, products, merges and attention that can be wrong. */

#include "suites/defects/wrong.h"

#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

#define BASE (*ha_wrong_base)

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

static void pieces_later(struct ha_wrong_later *l)
{
    const struct ha_device_pieces *p = &l->u.pieces;
    for (size_t i = 0; i < p->count; i++)
        if (p->bytes[i] && p->dst[i] && p->src[i]) memcpy(p->dst[i], p->src[i], p->bytes[i]);
}
static enum ha_status wrong_pieces(struct ha_stream *s, const struct ha_device_pieces *pieces, enum ha_direction dir)
{
    struct ha_device_pieces mine = *pieces;
    if (IS(pieces_arguments)) {
        struct ha_wrong_later *l = ha_wrong_later(pieces_later, NULL, 0);
        l->u.pieces = mine;
        return ha_wrong_on(s, l);
    }
    size_t *const bytes = calloc(mine.count + 1, sizeof *bytes);
    if (!bytes) return HA_ERROR;
    for (size_t i = 0; i < mine.count; i++) bytes[i] = IS(pieces_64K) && mine.bytes[i] > 65536 ? 65536 : mine.bytes[i];
    mine.bytes = bytes;
    const enum ha_status status = BASE.copy_pieces(s, &mine, dir);
    free(bytes);
    return status;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* The machine need not have a library for them. */
static void product_later(struct ha_wrong_later *l)
{
    const struct ha_device_product *p = &l->u.product;
    for (size_t r = 0; r < p->m; r++)
        for (size_t c = 0; c < p->n; c++) {
            double sum = 0;
            for (size_t i = 0; i < p->k; i++)
                sum += (double)ha_load(p->x, r * p->k + i, p->dtype) * (double)ha_load(p->w, c * p->k + i, p->dtype);
            ha_store(p->y, r * p->n + c, p->dtype, (float)sum);
        }
}
static enum ha_status sound_product(struct ha_stream *s, const struct ha_device_product *p)
{
    struct ha_wrong_later *l = ha_wrong_later(product_later, NULL, 0);
    l->u.product = *p;
    return ha_wrong_on(s, l);
}

/* ---- merge ------------------------------------------------------------------------------------------------------- */

static enum ha_status wrong_merge(struct ha_stream *s, const struct ha_merge *args)
{
    struct ha_merge m = *args;
    struct ha_merge_state *states = malloc((m.states_count + 1) * sizeof *states);
    if (!states) return HA_ERROR;
    memcpy(states, m.states, m.states_count * sizeof *states);
    m.states = states;
    for (size_t i = 0; IS(merge_o_rounded) && i < m.states_count; i++)
        states[i].o = (char *)states[i].o - (uintptr_t)states[i].o % 16;
    if (IS(merge_last_twice) && m.states_count > 1) {
        states[m.states_count] = states[m.states_count - 1];
        m.states_count++;
    }
    const enum ha_status status = BASE.merge(s, &m);
    free(states);
    return status;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static const struct ha_wrong_attention planted[] = {
#define OPERATION(name, class, op, what)         [WRONG_##name] = { 0 },
#define FAULT(name, class, op, fault)            [WRONG_##name] = { 0 },
#define ATTENTION(name, class, where, what, ...) [WRONG_##name] = { __VA_ARGS__ },
#define CLAIM(name, where, what, field, ...)     [WRONG_##name] = { __VA_ARGS__ },
#define PLANT(name, what, field, ...)            [WRONG_##name] = { __VA_ARGS__ },
#include "suites/defects/defects.def"
};

static void attend_later(struct ha_wrong_later *l) { ha_wrong_attend(&l->u.attend); }

static enum ha_status enqueue(struct ha_stream *s, const struct ha_device_attend *a, bool products)
{
    const struct ha_wrong_attention *w = &planted[ha_wrong];
    struct ha_wrong_later *l = ha_wrong_later(attend_later, a->seqs, a->batch * sizeof *a->seqs);
    l->u.attend = (struct ha_wrong_job){ *a, ha_wrong_copy(l), w, products };
    return ha_wrong_on(s, l);
}
static enum ha_status wrong_attend(struct ha_stream *s, const struct ha_device_attend *a)
{
    return enqueue(s, a, false);
}
static enum ha_status wrong_products(struct ha_stream *s, const struct ha_device_attend *a)
{
    return enqueue(s, a, true);
}

/* ---- what two calls share ---------------------------------------------------------------------------------------- */

/* Scratch memory of all calls, or of those that one stream captures. */
static struct scratch {
    uint32_t running; /* columns at this moment; atomic, as the next */
    uint32_t met;     /* two of them did */
} scratch[64];

static void scratch_begin(struct ha_wrong_later *l)
{
    struct scratch *const m = l->u.shared.scratch;
    if (__atomic_fetch_add(&m->running, 1, __ATOMIC_ACQ_REL)) __atomic_store_n(&m->met, 1, __ATOMIC_RELEASE);
}
static void scratch_end(struct ha_wrong_later *l)
{
    struct scratch *const m = l->u.shared.scratch;
    if (__atomic_load_n(&m->met, __ATOMIC_ACQUIRE)) *(unsigned char *)l->u.shared.y ^= 0x40;
    if (__atomic_sub_fetch(&m->running, 1, __ATOMIC_ACQ_REL) == 0) __atomic_store_n(&m->met, 0, __ATOMIC_RELEASE);
}
static enum ha_status share(struct ha_stream *s, void (*run)(struct ha_wrong_later *l), void *y)
{
    struct ha_wrong_later *l = ha_wrong_later(run, NULL, 0);
    l->u.shared.scratch = &scratch[IS(columns_captured) ? (uintptr_t)s / 64 % 64 : 0];
    l->u.shared.y = y;
    return ha_wrong_on(s, l);
}
static enum ha_status wrong_columns(struct ha_stream *s, const struct ha_device_columns *a)
{
    const bool shares = (IS(columns_shared) || (IS(columns_captured) && ha_wrong_captures(s))) && a->batch && a->heads
                        && a->columns && a->seqs->tokens;
    void *const y = shares ? a->seqs->y : NULL;
    if (shares) HA_TRY(share(s, scratch_begin, y));
    HA_TRY(ha_wrong_base->columns(s, a));
    return shares ? share(s, scratch_end, y) : HA_OK;
}

void ha_wrong_compute(struct ha_device_api *api)
{
    if (ha_wrong_base->columns) api->columns = wrong_columns;
    api->copy_pieces = wrong_pieces;
    api->product = sound_product;
    api->merge = wrong_merge;
    api->attend = wrong_attend;
    api->attend_products = wrong_products;
}
