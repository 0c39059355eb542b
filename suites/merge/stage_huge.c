/* Rows so far apart that the index of an element passes 2^31 and 2^32. The memory is reserved, and only the pages
 * that hold rows come to be, with those where a row would be sought by an index that wrapped: they hold NaN, and
 * must hold it afterwards. */

#include "suites/merge/stage.h"

#include "harness/base/why.h"

#include <string.h>

/* A stride above 2^31 elements is above 2^32 when doubled. Where an index wraps, what is left is a multiple of NEAR
 * elements (or of bytes), which lies behind the slots of the nodes' first rows. */
#define NEAR   (UINT64_C(1) << 20)
#define STRIDE ((UINT64_C(1) << 31) + NEAR)
enum { PAGE = 4096, SLOT = 32768, POISON = 0xFF, ROW_MAX = HA_STAGE_DIM * 4, ALIASES = 5, MIB = 1 << 20 };
_Static_assert(3 * (HA_STAGE_STATES_MAX + 1) * SLOT < 2 * NEAR,
               "the slots end before the first alias, of 16-bit elements");

/* Three rows on the axis whose stride is huge, for o and perhaps LSE; the other strides are the batch's own. */
struct placement {
    const char *what;
    bool by_head, lse;
};
static const struct placement placements[] = {
    { "o of tokens 1 and 2 beyond 2^31 and 2^32 elements", false, false },
    { "o and LSE of tokens 1 and 2 beyond 2^31 and 2^32 elements", false, true },
    { "o of heads 1 and 2 beyond 2^31 and 2^32 elements", true, false },
    { "o and LSE of heads 1 and 2 beyond 2^31 and 2^32 elements", true, true },
};

enum array { O, LSE, SUM };
struct huge {
    struct ha_stage_run *s;
    const struct placement *p;
    unsigned char *base;             /* of the slots */
    size_t below, bytes;             /* reserved before base, and in all */
    const struct ha_device_api *api; /* NULL: the memory is this process's */
    struct ha_stream *stream;
    size_t nodes; /* the states, and the result */
    struct ha_merge_state near[HA_STAGE_STATES_MAX + 1], far[HA_STAGE_STATES_MAX + 1];
};

/* One row of one array of one node. */
struct cell {
    size_t node;
    unsigned char *near, *far;
    size_t bytes, aliases;
    int64_t alias[ALIASES]; /* from far, in bytes */
};

static size_t element_bytes(const struct huge *h, enum array k)
{
    return k == O ? ha_dtype_bytes(h->s->shape.dtype) : sizeof(float);
}

/* Where a wrong computation of index = huge * STRIDE + rest leads: the index cut to 32 bits, unsigned and signed; the
 * stride cut to 32 bits; the offset in bytes cut. */
static void find_aliases(const struct huge *h, struct cell *c, uint64_t index, uint64_t huge, size_t element,
                         unsigned char *array)
{
    const int64_t true_at = (int64_t)(index * element), size = (int64_t)element;
    const int64_t signed_stride = (int64_t)(int32_t)(uint32_t)STRIDE, rest = (int64_t)(index - huge * STRIDE);
    const int64_t wrong[ALIASES] = {
        (int64_t)(uint32_t)index * size,
        (int64_t)(int32_t)(uint32_t)index * size,
        ((int64_t)huge * signed_stride + rest) * size,
        (int64_t)(uint32_t)true_at,
        (int64_t)(int32_t)(uint32_t)true_at,
    };
    c->aliases = 0;
    for (size_t i = 0; huge && i < ALIASES; i++)
        if (wrong[i] != true_at && wrong[i] + (array - h->base) >= -(int64_t)h->below)
            c->alias[c->aliases++] = wrong[i] - true_at;
}

static size_t index_of(const struct ha_merge_state *x, enum array k, size_t t, size_t head)
{
    return k == O ? t * x->o_token_stride + head * x->o_head_stride
                  : t * x->lse_token_stride + head * x->lse_head_stride;
}

static unsigned char *array_of(const struct ha_merge_state *x, enum array k)
{
    return k == O ? x->o : k == LSE ? (void *)x->lse : (void *)x->sum;
}

static struct cell cell_at(const struct huge *h, size_t node, enum array k, size_t t, size_t head)
{
    const struct ha_merge_state *near = &h->near[node], *far = &h->far[node];
    const size_t e = element_bytes(h, k), index = index_of(far, k, t, head), row = h->p->by_head ? head : t;
    struct cell c = { .node = node,
                      .near = array_of(near, k) + index_of(near, k, t, head) * e,
                      .far = array_of(far, k) + index * e,
                      .bytes = k == O ? h->s->shape.dim * e : e };
    find_aliases(h, &c, index, k == O || h->p->lse ? row : 0, e, array_of(far, k));
    return c;
}

/* f for every row of every array */
static enum ha_status each(struct huge *h, enum ha_status (*f)(struct huge *h, const struct cell *c))
{
    const enum array arrays = h->s->shape.form == HA_FORM_MAX_SUM ? SUM : LSE;
    for (size_t node = 0; node < h->nodes; node++)
        for (enum array k = O; k <= arrays; k++)
            for (size_t t = 0; t < h->s->shape.tokens; t++)
                for (size_t head = 0; head < h->s->shape.heads; head++) {
                    const struct cell c = cell_at(h, node, k, t, head);
                    HA_TRY(f(h, &c));
                }
    return HA_OK;
}

/* to or from the huge memory; on return the bytes are there */
static enum ha_status move(struct huge *h, void *to, const void *from, size_t bytes, enum ha_direction dir)
{
    if (!h->api) {
        memcpy(to, from, bytes);
        return HA_OK;
    }
    HA_TRY(ha_stage_did(h->s, h->api->copy(h->stream, to, from, bytes, dir), "copy of a row"));
    return ha_stage_did(h->s, h->api->stream_sync(h->stream), "copy of a row");
}

static enum ha_status poison(struct huge *h, const struct cell *c)
{
    unsigned char bad[ROW_MAX];
    memset(bad, POISON, sizeof bad);
    for (size_t i = 0; i < c->aliases; i++) HA_TRY(move(h, c->far + c->alias[i], bad, c->bytes, HA_H2D));
    return c->node + 1 == h->nodes ? move(h, c->far, bad, c->bytes, HA_H2D) : HA_OK;
}

static enum ha_status put(struct huge *h, const struct cell *c)
{
    return c->node + 1 < h->nodes ? move(h, c->far, c->near, c->bytes, HA_H2D) : HA_OK;
}

static enum ha_status get(struct huge *h, const struct cell *c)
{
    unsigned char now[ROW_MAX];
    for (size_t i = 0; i < c->aliases; i++) {
        HA_TRY(move(h, now, c->far + c->alias[i], c->bytes, HA_D2H));
        for (size_t k = 0; k < c->bytes; k++)
            if (now[k] != POISON)
                return ha_why(h->s->why, HA_FAIL, "%s: wrote where a wrapped index leads, %lld bytes from the row",
                              h->p->what, (long long)c->alias[i]);
    }
    if (c->node + 1 == h->nodes) return move(h, c->near, c->far, c->bytes, HA_D2H);
    HA_TRY(move(h, now, c->far, c->bytes, HA_D2H));
    if (memcmp(now, c->near, c->bytes) != 0)
        return ha_why(h->s->why, HA_FAIL, "%s: wrote over a state, which is only read", h->p->what);
    return HA_OK;
}

/* ---- where ------------------------------------------------------------------------------- */

/* Each node's arrays lie in slots of their own, all of the same size. */
static void lay_out(struct huge *h)
{
    const struct ha_batch *b = h->s->trial.batch;
    h->nodes = h->s->shape.states + 1;
    for (size_t i = 0; i < h->nodes; i++) {
        const struct ha_merge_state *near = i + 1 < h->nodes ? &b->in[i] : &b->out;
        struct ha_merge_state *far = &h->far[i];
        h->near[i] = *far = *near;
        far->o = h->base + 3 * i * SLOT;
        far->lse = (void *)(h->base + (3 * i + 1) * SLOT);
        far->sum = near->sum ? (void *)(h->base + (3 * i + 2) * SLOT) : NULL;
        *(h->p->by_head ? &far->o_head_stride : &far->o_token_stride) = STRIDE;
        if (h->p->lse) *(h->p->by_head ? &far->lse_head_stride : &far->lse_token_stride) = STRIDE;
    }
}

/* The batch's only call, with the states and the result in the huge memory. */
static enum ha_status call_there(struct huge *h)
{
    struct ha_batch *b = h->s->trial.batch;
    struct ha_merge *call = &b->calls[0];
    const struct ha_merge kept = *call;
    enum ha_status st;
    call->out = h->far[h->nodes - 1];
    if (h->api) {
        call->states = h->far;
        st = ha_stage_did(h->s, h->api->merge(h->stream, call), "merge");
        if (st == HA_OK) st = ha_stage_did(h->s, h->api->stream_sync(h->stream), h->p->what);
    } else {
        /* A process that shares the room, and nothing else, finds the states in the room, and leave to write in a piece
         * that this batch has no use for. */
        memcpy(b->in, h->far, kept.states_count * sizeof *b->in);
        b->piece[HA_TEMP_O] = (struct ha_piece){ h->base - h->below, h->base - h->below + h->bytes, h->bytes, true };
        st = h->s->subject->run(h->s->subject, b, h->s->why);
        b->piece[HA_TEMP_O] = (struct ha_piece){ NULL, NULL, 0, false };
        memcpy(b->in, h->near, kept.states_count * sizeof *b->in);
    }
    *call = kept;
    return st;
}

static enum ha_status merge_there(struct huge *h)
{
    lay_out(h);
    HA_TRY(each(h, poison));
    HA_TRY(each(h, put));
    HA_TRY(call_there(h));
    HA_TRY(each(h, get));
    return ha_stage_judge(h->s, h->p->what);
}

/* before base: a signed index, or stride, that wrapped; behind it: the rows */
static void measure(struct huge *h)
{
    const size_t e = h->p->lse ? sizeof(float) : element_bytes(h, O);
    h->below = (size_t)(UINT64_C(1) << 32) * e;
    h->bytes = h->below + (size_t)(2 * STRIDE) * e + 2 * MIB;
}

static double gib(size_t bytes) { return (double)bytes / 0x1p30; }

/* In this process, or where a stranger shares memory with it. */
static enum ha_status in_host_memory(struct huge *h)
{
    struct ha_stage_run *s = h->s;
    struct ha_why why = { "" };
    struct ha_room room = { NULL, 0 };
    const size_t first = (ha_batch_bytes(&s->shape) + MIB - 1) / MIB * MIB, all = first + h->bytes + PAGE;
    const bool shared = s->subject->room != NULL;
    if (s->subject->elsewhere)
        return ha_why(s->why, HA_WAIVED, "merges in memory of its own, where only a batch's own strides fit");
    const enum ha_status st = shared ? s->subject->room(s->subject, all, &room, &why) : ha_room_map(all, &room, &why);
    if (st != HA_OK || room.bytes < all)
        return ha_why(s->why, HA_WAIVED, "needs %.1f GiB of address space, of which little is touched: %.300s",
                      gib(all), st != HA_OK ? why.text : "not so much can be had");
    enum ha_status done = ha_stage_open(s, &room);
    h->base = room.base + first + h->below;
    if (done == HA_OK) done = merge_there(h);
    ha_merge_trial_close(&s->trial);
    if (!shared) ha_room_unmap(&room);
    return done;
}

static enum ha_status on_device(struct huge *h)
{
    struct ha_stage_run *s = h->s;
    struct ha_device *device = s->subject->device;
    struct ha_device_info info = { .name = "" };
    struct ha_why why = { "" };
    void *memory = NULL;
    h->api = s->subject->api;
    h->api->info(device, &info);
    if (info.compute_threads)
        return ha_why(
            s->why, HA_WAIVED,
            "the device's memory is the host's, and all of %.1f GiB would be touched; CPU kernels are judged by "
            "themselves, those of a GPU on one",
            gib(h->bytes));
    /* Where there is no room for the rows before base, a negative index leads to memory that is not checked. */
    if (info.memory_free_bytes < h->bytes) {
        h->bytes -= h->below;
        h->below = 0;
    }
    if (info.memory_free_bytes < h->bytes || h->api->mem_alloc(device, HA_MEM_DEVICE, h->bytes, &memory, &why) != HA_OK)
        return ha_why(s->why, HA_WAIVED, "needs %.1f GiB of device memory, %.1f are free%s%.300s", gib(h->bytes),
                      gib(info.memory_free_bytes), why.text[0] ? ": " : "", why.text);
    h->base = (unsigned char *)memory + h->below;
    enum ha_status st = ha_stage_open(s, NULL);
    if (st == HA_OK) st = h->api->stream_create(device, "merge", &h->stream, s->why);
    if (st == HA_OK) st = merge_there(h);
    if (h->stream) h->api->stream_destroy(h->stream);
    ha_merge_trial_close(&s->trial);
    h->api->mem_free(device, HA_MEM_DEVICE, memory);
    return st;
}

enum ha_status ha_stage_huge(struct ha_stage_run *s)
{
    const struct ha_merge_traits *traits = &s->subject->traits;
    if (!traits->o_strides) return ha_why(s->why, HA_WAIVED, "takes packed rows of o only");
    for (size_t i = 0; i < sizeof placements / sizeof *placements; i++) {
        struct huge h = { .s = s, .p = &placements[i] };
        if (traits->lse_order != HA_LSE_ANY && h.p->lse) continue;
        s->shape.tokens = h.p->by_head ? 2 : 3;
        s->shape.heads = h.p->by_head ? 3 : 2;
        measure(&h);
        HA_TRY(s->subject->api ? on_device(&h) : in_host_memory(&h));
    }
    return HA_OK;
}
