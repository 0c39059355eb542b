#include "suites/device/stage.h"

#include "suites/device/captured.h"

#include "harness/base/clock.h"
#include "harness/base/fingerprint.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 64 << 10,
    DRAWS = 1,
    NUMBERS = 2,
    HOLD_NS = 3000000,
    OPEN_LATER_NS = 5000000,
    SLOW_MS = 1200,
    QUICK_MS = 100, /* of slow, for small copies */
    GATE_NAP_NS = 20000,
    HELD = 16
};

const char *ha_op_place_name(enum ha_op_place place)
{
    static const char *const name[] = { "device", "pinned", "mapped", "pageable" };
    return name[place];
}

const char *ha_op_unfit_kernel(const struct ha_op_case *c)
{
    const bool fits = (c->dst == HA_OP_DEVICE || c->dst == HA_OP_MAPPED)
                      && (c->src == HA_OP_DEVICE || c->src == HA_OP_MAPPED);
    if (c->special > HA_OP_HIGH_KEY) return "that is of attention";
    return fits ? NULL : "a kernel reads and writes device and mapped memory";
}

size_t ha_op_fewer(const struct ha_op_case *c, size_t b) { return (13 * c->batch + c->batch / 2 - b) % 13 * 5; }
size_t ha_op_length(const struct ha_op_case *c, size_t b)
{
    const size_t less = ha_op_fewer(c, b);
    return c->empty && b + 1 == c->batch ? 0 : c->keys > less + 1 ? c->keys - less : 1;
}

size_t ha_op_draw(struct ha_op_stage *s, size_t n) { return (size_t)ha_rng_below(s->seed, DRAWS, s->drawn++, n); }

enum ha_op_place ha_op_any_place(struct ha_op_stage *s) { return ha_op_draw(s, 2) ? HA_OP_MAPPED : HA_OP_DEVICE; }

enum ha_status ha_op_failed(struct ha_op_stage *s, const char *operation, enum ha_status status)
{
    if (status == HA_OK) return HA_OK;
    const char *failure = s->api->failure ? s->api->failure(s->device) : NULL;
    return ha_why(s->why, HA_ERROR, "%s did not succeed: %.400s", operation,
                  failure && *failure ? failure : "the device does not say why");
}

enum ha_status ha_op_wrong(struct ha_op_stage *s, const char *what, ...)
{
    va_list list;
    va_start(list, what);
    vsnprintf(s->why->text, sizeof s->why->text, what, list);
    va_end(list);
    return HA_FAIL;
}

/* ---- the stage --------------------------------------------------------------------------------------------------- */

static enum ha_status begin(struct ha_op_stage *s)
{
    static const char *const name[] = { "conform a", "conform b", "conform own" };
    void *gate;
    for (size_t i = 0; i <= HA_OP_STREAMS; i++)
        HA_TRY(s->api->stream_create(s->device, name[i], i < HA_OP_STREAMS ? &s->stream[i] : &s->own, s->why));
    s->bounce = malloc(PIECE);
    s->scratch = calloc(1, HA_OP_SCRATCH);
    if (!s->bounce || !s->scratch) return ha_why(s->why, HA_ERROR, "out of memory");
    s->gate = &s->lock;
    if (s->api->flag_wait && s->api->mem_alloc(s->device, HA_MEM_MAPPED, sizeof *s->gate, &gate, s->why) == HA_OK)
        s->gate = gate;
    *s->gate = 0;
    return HA_OK;
}

enum ha_status ha_op_anew(struct ha_op_stage *s)
{
    s->api->stream_destroy(s->stream[0]);
    s->stream[0] = NULL;
    return s->api->stream_create(s->device, "conform anew", &s->stream[0], s->why);
}

enum { ASIDE = 8192 };
static enum ha_status make_aside(struct ha_op_stage *s)
{
    void *at;
    struct ha_op_block *b = s->aside = calloc(1, sizeof *b);
    if (!b || !(b->image = calloc(1, ASIDE))) return ha_why(s->why, HA_ERROR, "out of memory");
    b->place = HA_OP_DEVICE;
    b->bytes = b->room = ASIDE;
    HA_TRY(s->api->mem_alloc(s->device, HA_MEM_DEVICE, ASIDE, &at, s->why));
    b->at = at;
    return ha_op_put(s, b, 0, ASIDE);
}

enum ha_status ha_op_stage_begin(struct ha_op_stage *s, struct ha_why *why)
{
    s->why = why;
    s->outputs = HA_FINGERPRINT_BEGIN;
    enum ha_status status = begin(s);
    if (status == HA_OK) status = make_aside(s);
    if (status != HA_OK) ha_op_stage_end(s);
    return status;
}

static void block_free(struct ha_op_stage *s, struct ha_op_block *b);

static uint64_t slow_ns(const struct ha_op_stage *s)
{
    return s->slow ? (uint64_t)(s->most < 1 << 20 ? QUICK_MS : SLOW_MS) * 1000000 : 0;
}
void ha_op_round(struct ha_op_stage *s, size_t round) { s->slow = !s->of && !s->once_more && round + 1 == s->rounds; }

void ha_op_stage_end(struct ha_op_stage *s)
{
    s->keeps = false;
    if (s->gate) __atomic_store_n(s->gate, INT32_MAX, __ATOMIC_RELEASE);
    for (size_t i = 0; i < HA_OP_STREAMS; i++)
        if (s->stream[i]) s->api->stream_destroy(s->stream[i]);
    if (s->own) s->api->stream_destroy(s->own);
    ha_op_clear(s);
    if (s->aside) block_free(s, s->aside);
    s->aside = NULL;
    if (s->gate && s->gate != &s->lock) s->api->mem_free(s->device, HA_MEM_MAPPED, s->gate);
    free(s->bounce);
    free(s->scratch);
    s->stream[0] = s->stream[1] = s->own = NULL;
    s->gate = NULL;
    s->bounce = NULL;
    s->scratch = NULL;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static enum ha_memory memory_of(enum ha_op_place place)
{
    return place == HA_OP_DEVICE ? HA_MEM_DEVICE : place == HA_OP_PINNED ? HA_MEM_PINNED : HA_MEM_MAPPED;
}

static void block_free(struct ha_op_stage *s, struct ha_op_block *b)
{
    if (b->at && b->place == HA_OP_PAGEABLE) free(b->at);
    else if (b->at) s->api->mem_free(s->device, memory_of(b->place), b->at);
    free(b->image);
    free(b);
}

/* one that is kept, or NULL */
static struct ha_op_block *take_spare(struct ha_op_stage *s, enum ha_op_place place, size_t bytes)
{
    struct ha_op_block **to = &s->spare, *b;
    while ((b = *to) && (b->place != place || b->room < bytes)) to = &b->next;
    if (!b) return NULL;
    *to = b->next;
    b->bytes = bytes;
    b->next = s->blocks;
    return s->blocks = b;
}

struct ha_op_block *ha_op_block(struct ha_op_stage *s, enum ha_op_place place, size_t bytes)
{
    struct ha_op_block *b = take_spare(s, place, bytes);
    void *at = NULL;
    if (b) return b;
    b = calloc(1, sizeof *b);
    if (b) *b = (struct ha_op_block){ .place = place, .bytes = bytes, .room = bytes, .image = malloc(bytes + 1) };
    if (b && place == HA_OP_PAGEABLE) at = malloc(bytes + 1);
    if (!b || !b->image || (place == HA_OP_PAGEABLE && !at)) {
        ha_why(s->why, HA_ERROR, "out of memory: a block of %zu bytes", bytes);
        if (b) block_free(s, b);
        return NULL;
    }
    if (place != HA_OP_PAGEABLE && s->api->mem_alloc(s->device, memory_of(place), bytes, &at, s->why) != HA_OK) {
        block_free(s, b);
        return NULL;
    }
    b->at = at;
    b->next = s->blocks;
    s->blocks = b;
    return b;
}

void ha_op_clear(struct ha_op_stage *s)
{
    for (struct ha_op_block *next; s->blocks; s->blocks = next) { /* in the order in which they were made */
        next = s->blocks->next;
        s->blocks->next = s->spare;
        s->spare = s->blocks;
    }
    for (struct ha_op_block *next; s->spare && !s->keeps; s->spare = next) {
        next = s->spare->next;
        block_free(s, s->spare);
    }
}

/* Device memory and an array of the host, in pieces, one way. */
static enum ha_status pieces(struct ha_op_stage *s, struct ha_stream *on, char *dst, const char *src, size_t bytes,
                             enum ha_direction dir)
{
    for (size_t at = 0; at < bytes; at += PIECE)
        HA_OP(s, copy, on, dst + at, src + at, bytes - at < PIECE ? bytes - at : PIECE, dir);
    return HA_OK;
}
static enum ha_status transfer(struct ha_op_stage *s, char *dst, const char *src, size_t bytes, enum ha_direction dir)
{
    HA_TRY(pieces(s, s->own, dst, src, bytes, dir));
    HA_OP(s, stream_sync, s->own);
    return HA_OK;
}

enum ha_status ha_op_put(struct ha_op_stage *s, struct ha_op_block *b, size_t first, size_t bytes)
{
    if (b->place == HA_OP_DEVICE) return transfer(s, b->at + first, b->image + first, bytes, HA_H2D);
    memcpy(b->at + first, b->image + first, bytes);
    return HA_OK;
}

enum ha_status ha_op_get(struct ha_op_stage *s, const struct ha_op_block *b, size_t first, size_t bytes, void *out)
{
    if (b->place == HA_OP_DEVICE) return transfer(s, out, b->at + first, bytes, HA_D2H);
    memcpy(out, b->at + first, bytes);
    return HA_OK;
}

/* splitmix64 of the position: memory's speed, which counts here */
static inline uint64_t random_word(uint64_t seed, size_t at)
{
    uint64_t x = seed + (uint64_t)at * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}
static void random_bytes(uint64_t seed, char *out, size_t bytes)
{
    size_t i = 0;
    for (; bytes - i >= 8; i += 8) {
        const uint64_t x = random_word(seed, i);
        memcpy(out + i, &x, 8);
    }
    const uint64_t x = random_word(seed, i);
    memcpy(out + i, &x, bytes - i);
}

enum ha_status ha_op_fill(struct ha_op_stage *s, struct ha_op_block *b, size_t first, size_t bytes)
{
    random_bytes(ha_rng_bits(s->seed, DRAWS, s->drawn++), b->image + first, bytes);
    return ha_op_put(s, b, first, bytes);
}

enum ha_status ha_op_judge(struct ha_op_stage *s, const struct ha_op_block *b, size_t first, size_t bytes,
                           const char *what, ...)
{
    s->cases++;
    for (size_t at = first; at < first + bytes; at += PIECE) {
        const size_t n = first + bytes - at < PIECE ? first + bytes - at : PIECE;
        const char *got = b->at + at;
        if (b->place == HA_OP_DEVICE) {
            HA_TRY(ha_op_get(s, b, at, n, s->bounce));
            got = s->bounce;
        }
        if (!memcmp(got, b->image + at, n)) continue;
        size_t i = 0;
        while (got[i] == b->image[at + i]) i++;
        char text[256];
        va_list list;
        va_start(list, what);
        vsnprintf(text, sizeof text, what, list);
        va_end(list);
        return ha_op_wrong(s, "%s: byte %zu of the block in %s memory is 0x%02x, want 0x%02x", text, at + i,
                           ha_op_place_name(b->place), (unsigned char)got[i], (unsigned char)b->image[at + i]);
    }
    return HA_OK;
}

/* ---- before and behind what is judged --------------------------------------------------------------------------- */

/* A block on the other side of a copy. */
static struct ha_op_block *beside(struct ha_op_stage *s, const struct ha_op_block *b)
{
    return ha_op_block(s, b->place == HA_OP_DEVICE ? HA_OP_PINNED : HA_OP_DEVICE, b->bytes);
}

/* Half of its lines become what they were in the call before, where that had this block at this place: any of them, the
 * first ones, or all but the first. */
static void splice(struct ha_op_stage *s, size_t i, struct ha_op_block *b, const struct ha_op_block *given)
{
    enum { LINE = 64 };
    const bool again = s->was[i].given == given && s->was[i].at == b->at && s->was[i].bytes == b->bytes;
    const size_t way = again ? ha_op_draw(s, 4) : 0;
    for (size_t at = 0; again && at < b->bytes; at += LINE) {
        const size_t n = b->bytes - at < LINE ? b->bytes - at : LINE;
        const bool stays = way == 1 ? at < b->bytes / 2 : way == 2 ? at >= LINE : ha_op_draw(s, 2);
        if (stays) memcpy(b->image + at, given->image + at, n);
    }
}

/* Now and then what is judged comes right behind another operation, which is none of it: small ones over zeros. */
static enum ha_status neighbour(struct ha_op_stage *s)
{
    char *const at = s->aside ? s->aside->at : NULL;
    float *const f = (float *)(void *)at;
    struct ha_device_info info;
    if (!s->keeps || s->captures || !at || ha_op_draw(s, 3)) return HA_OK;
    memset(&info, 0, sizeof info);
    s->api->info(s->device, &info);
    const struct ha_device_seq seq = { .q = f,
                                       .runs = { { at + 256, at + 1024, 32, 32, NULL, 5 } },
                                       .runs_count = 1,
                                       .k_head_bytes = 256,
                                       .v_head_bytes = 256,
                                       .o = f + 512,
                                       .lse = f + 600 };
    const struct ha_device_attend attend = {
        .batch = 1, .q_len = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 8, .scale = 1, .seqs = &seq
    };
    const struct ha_device_softmax_seq row = { f + 700, 9, 9, NULL, 0 };
    const struct ha_device_softmax softmax = { 1, 1, 1, &row };
    const struct ha_device_topk_seq list = {
        .x = f + 800, .n = 9, .k = 3, .stride = 9, .index = (uint32_t *)(void *)(f + 900), .index_stride = 3
    };
    const struct ha_device_topk topk = { 1, 1, 1, &list };
    const struct ha_merge_state state = { f + 1000, f + 1100, NULL, 8, 8, 1, 1 }, two[2] = { state, state };
    const struct ha_merge merge = { .form = HA_FORM_NATURAL,
                                    .fp8 = HA_FP8_E4M3,
                                    .fp8_scale = 1,
                                    .states = two,
                                    .states_count = 2,
                                    .tokens = 1,
                                    .heads = 1,
                                    .dim = 8,
                                    .out = { f + 1200, f + 1300, NULL, 8, 8, 1, 1 } };
    switch (ha_op_draw(s, 4)) {
    case 0:
        if (s->api->attend) HA_OP(s, attend, s->stream[0], &attend);
        break;
    case 1:
        if (s->api->softmax) HA_OP(s, softmax, s->stream[0], &softmax);
        break;
    case 2:
        if (s->api->topk) HA_OP(s, topk, s->stream[0], &topk);
        break;
    default:
        if (s->api->merge && (info.merge.fp8 & 1u << HA_FP8_E4M3)) HA_OP(s, merge, s->stream[0], &merge);
    }
    return HA_OK;
}

/* Inputs and outputs before the first of two launches. */
static enum ha_status make_zeros(struct ha_op_stage *s, const struct ha_op_block *out)
{
    s->fresh = NULL;
    if (!s->launches_twice) return HA_OK;
    if (!(s->fresh = beside(s, out))) return HA_ERROR;
    memcpy(s->fresh->image, out->image, out->bytes);
    HA_TRY(ha_op_put(s, s->fresh, 0, out->bytes));
    for (size_t i = 0; i < s->inputs; i++) {
        struct ha_op_block *const z = s->zeros[i] = beside(s, s->in[i]);
        if (!z) return HA_ERROR;
        memset(z->image, 0, z->bytes);
        HA_TRY(ha_op_put(s, z, 0, z->bytes));
    }
    return HA_OK;
}

/* A device's memory that is zeros, by a kernel from a block of them, or by a copy. */
static enum ha_status clear_input(struct ha_op_stage *s, struct ha_op_block *b, const struct ha_op_block *via)
{
    memset(b->image, 0, b->bytes);
    if (!via) return ha_op_put(s, b, 0, b->bytes);
    const struct ha_device_blend zero = { .y = (float *)(void *)b->at,
                                          .x = (const float *)(const void *)b->at,
                                          .rows = 1,
                                          .cols = b->bytes / sizeof(float),
                                          .y_stride = 1,
                                          .x_stride = 1 };
    HA_OP(s, blend, s->own, &zero);
    HA_OP(s, stream_sync, s->own);
    return HA_OK;
}

/* Nothing is allocated behind the gate: a device may wait for all of its work to do that. */
enum ha_status ha_op_arrive(struct ha_op_stage *s, struct ha_op_block *const *in, size_t count,
                            const struct ha_op_block *out)
{
    for (s->inputs = 0; s->inputs < count; s->inputs++) {
        struct ha_op_block *const b = s->in[s->inputs] = in[s->inputs], *const given = beside(s, b);
        if (!(s->given[s->inputs] = given)) return HA_ERROR;
        if (s->splices) splice(s, s->inputs, b, given);
        memcpy(given->image, b->image, b->bytes);
        HA_TRY(ha_op_put(s, given, 0, b->bytes));
        s->via[s->inputs] = NULL;
        const bool moves = s->keeps && s->api->move && b->place == HA_OP_DEVICE && b->bytes && ha_op_draw(s, 2);
        if (moves && !(s->via[s->inputs] = ha_op_block(s, HA_OP_DEVICE, b->bytes))) return HA_ERROR;
        const bool by_kernel = moves && s->api->blend && !s->captures && b != out && b->bytes % sizeof(float) == 0
                               && (uintptr_t)b->at % sizeof(float) == 0;
        HA_TRY(clear_input(s, b, by_kernel ? s->via[s->inputs] : NULL));
        memcpy(b->image, given->image, b->bytes);
        s->was[s->inputs].given = given;
        s->was[s->inputs].at = b->at;
        s->was[s->inputs].bytes = b->bytes;
    }
    if (!(s->seen = beside(s, out))) return HA_ERROR;
    HA_TRY(make_zeros(s, out));
    HA_TRY(ha_op_shut(s, s->stream[0]));
    for (size_t i = 0; i < count; i++) {
        char *const at = s->via[i] ? s->via[i]->at : in[i]->at;
        const struct ha_device_move move = { in[i]->at, at, NULL, NULL, 1, in[i]->bytes, in[i]->bytes, in[i]->bytes };
        HA_TRY(
            pieces(s, s->stream[0], at, s->given[i]->at, in[i]->bytes, in[i]->place == HA_OP_DEVICE ? HA_H2D : HA_D2H));
        if (s->via[i]) HA_OP(s, move, s->stream[0], &move);
    }
    return neighbour(s);
}

/* Launches a captured graph over zeros, then over its inputs. */
static enum ha_status launch_twice(struct ha_op_stage *s, const struct ha_op_block *out)
{
    for (size_t i = 0; i < s->inputs; i++)
        HA_TRY(pieces(s, s->stream[0], s->in[i]->at, s->zeros[i]->at, s->in[i]->bytes,
                      s->in[i]->place == HA_OP_DEVICE ? HA_H2D : HA_D2H));
    HA_TRY(ha_captured_launch(s->stream[0]));
    HA_TRY(pieces(s, s->stream[0], out->at, s->fresh->at, out->bytes, out->place == HA_OP_DEVICE ? HA_H2D : HA_D2H));
    for (size_t i = 0; i < s->inputs; i++)
        HA_TRY(pieces(s, s->stream[0], s->in[i]->at, s->given[i]->at, s->in[i]->bytes,
                      s->in[i]->place == HA_OP_DEVICE ? HA_H2D : HA_D2H));
    return ha_captured_again(s->stream[0]);
}

enum ha_status ha_op_follow(struct ha_op_stage *s, const char *operation, enum ha_status asked,
                            const struct ha_op_block *out, const char **before)
{
    struct ha_op_block *const seen = s->seen;
    enum ha_status status = ha_op_failed(s, operation, asked); /* by now its arguments may be overwritten */
    const bool twice = s->fresh && ha_captured_any(), meets = status == HA_OK && ha_captured_meets();
    if (meets) { /* its inputs are there, and the graph is held up alone */
        ha_op_open(s);
        HA_OP(s, stream_sync, s->stream[0]);
        HA_TRY(ha_op_shut(s, s->stream[0]));
    }
    if (status == HA_OK)
        status = ha_op_failed(s, "graph_launch", twice ? launch_twice(s, out) : ha_captured_launch(s->stream[0]));
    if (status == HA_OK)
        status = pieces(s, s->stream[0], seen->at, out->at, out->bytes, out->place == HA_OP_DEVICE ? HA_D2H : HA_H2D);
    if (status == HA_OK && s->turn % HELD == 0) status = ha_op_hold(s);
    if (meets) ha_captured_meet();
    ha_op_open(s);
    HA_TRY(status);
    HA_OP(s, stream_sync, s->stream[0]);
    s->calls++;
    memcpy(seen->image, out->image, out->bytes);
    *before = seen->image;
    HA_TRY(ha_op_get(s, seen, 0, out->bytes, out->image));
    s->outputs = ha_fingerprint_bytes(s->outputs, out->image, out->bytes);
    for (size_t i = 0; i < s->inputs; i++) {
        struct ha_op_block in = *s->in[i];
        in.image = s->given[i]->image;
        if (in.at != out->at) HA_TRY(ha_op_judge(s, &in, 0, in.bytes, "%s changed its input", operation));
    }
    return HA_OK;
}

void ha_op_put_back(const struct ha_op_block *out, const char *before, const void *at, size_t bytes)
{
    const size_t first = (size_t)((const char *)at - out->image);
    memcpy(out->image + first, before + first, bytes);
}

enum ha_status ha_op_beside(struct ha_op_stage *s, const char *operation, const char *before,
                            const struct ha_op_block *out)
{
    return memcmp(before, out->image, out->bytes) == 0 ? HA_OK
                                                       : ha_op_wrong(s, "%s: wrote where no result belongs", operation);
}

float ha_op_odd(struct ha_op_stage *s, const struct ha_op_case *of)
{
    switch (of->special) {
    case HA_OP_LOW_KEY:
    case HA_OP_MASKED: return -INFINITY;
    case HA_OP_HIGH_KEY:
    case HA_OP_INF_QUERY:
    case HA_OP_INF_VALUE: return INFINITY;
    default: { /* quiet NaNs of either sign, with few bits or all */
        static const uint32_t bits[] = { 0x7FC00000, 0x7FFFFFFF, 0x7FC00001 };
        return ha_f32_of_bits(bits[ha_op_draw(s, 3)] | (uint32_t)ha_op_draw(s, 2) << 31);
    }
    }
}

uint32_t *ha_op_only(struct ha_op_stage *s, char *at, size_t count)
{
    uint32_t *only = (uint32_t *)(void *)at;
    for (size_t i = 0; i < count; i++) only[i] = ha_op_draw(s, 2) ? (uint32_t)ha_op_draw(s, UINT32_MAX) + 1 : 0;
    return only;
}

void ha_op_index(struct ha_op_stage *s, uint32_t *index, size_t n)
{
    const size_t pattern = ha_op_draw(s, 5), first = ha_op_draw(s, n + 1);
    for (size_t i = 0; i < n; i++)
        index[i] = (uint32_t)(pattern == 0   ? 2 * (n - 1 - i) + ha_op_draw(s, 2)
                              : pattern == 1 ? first + i
                              : pattern == 4 ? ha_op_draw(s, 2 * n)
                                             : 2 * i + ha_op_draw(s, 2));
    for (size_t i = 0; i < n && pattern == 3; i++) {
        const size_t other = i + ha_op_draw(s, n - i);
        const uint32_t chosen = index[other];
        index[other] = index[i];
        index[i] = chosen;
    }
}

void ha_op_numbers(struct ha_op_stage *s, void *out, size_t n, enum ha_dtype dtype)
{
    float x[256];
    for (size_t at = 0; at < n; at += 256) {
        const size_t count = n - at < 256 ? n - at : 256;
        ha_rng_normals(s->seed, NUMBERS + (s->drawn++ << 8), at, count, x);
        ha_store_row((char *)out + at * ha_dtype_bytes(dtype), count, dtype, x);
    }
}

struct ha_op_comb ha_op_comb(struct ha_op_stage *s, size_t n)
{
    const size_t kind = ha_op_draw(s, 4), left = (size_t)64 << ha_op_draw(s, 6),
                 steps[] = { (size_t)2 << ha_op_draw(s, 10), n / left, (n + left - 1) / left, 2 + ha_op_draw(s, 63) },
                 step = steps[kind] < 2 || steps[kind] > n / 2 ? 2 + ha_op_draw(s, 15) : steps[kind],
                 firsts[] = { 0, 0, 0, step / 2, step - 1, ha_op_draw(s, step) };
    return (struct ha_op_comb){ step, firsts[ha_op_draw(s, sizeof firsts / sizeof *firsts)], ha_op_draw(s, 2) };
}

void ha_op_scale(void *x, size_t n, enum ha_dtype dtype, double scale)
{
    for (size_t i = 0; i < n && scale != 1; i++) ha_store(x, i, dtype, ha_load(x, i, dtype) * (float)scale);
}

void ha_op_reshape(struct ha_op_stage *s, void *x, size_t n, enum ha_dtype dtype, size_t numbers)
{
    /* the unit in the last place of 1, the least number, the exponents */
    static const struct {
        float ulp, least;
        int low, high;
    } of[] = { [HA_F32] = { 0x1p-23f, 0x1p-149f, -140, 120 },
               [HA_F16] = { 0x1p-10f, 0x1p-24f, -22, 13 },
               [HA_BF16] = { 0x1p-7f, 0x1p-133f, -130, 120 } };
    const bool large = numbers == HA_OP_WIDE && dtype == HA_F16 && ha_op_draw(s, 4) == 0; /* half of what it has */
    for (size_t i = 0; i < n && numbers; i++) {
        const float z = ha_load(x, i, dtype);
        const size_t draw = ha_op_draw(s, 256);
        ha_store(x, i, dtype,
                 numbers == HA_OP_CLOSE ? copysignf(1 + (float)(dtype == HA_F32 ? draw : draw % 100) * of[dtype].ulp, 1)
                 : numbers == HA_OP_TINY ? copysignf((float)(draw % 100) * of[dtype].least, z)
                 : large                 ? copysignf(32768 + (float)draw * 100, 1)
                         : ldexpf(z, (int)(draw % (size_t)(of[dtype].high - of[dtype].low)) + of[dtype].low));
    }
}

/* ---- the gate ---------------------------------------------------------------------------------------------------- */

static void wait_at_gate(void *arg)
{
    struct ha_op_stage *s = arg;
    while (__atomic_load_n(s->gate, __ATOMIC_ACQUIRE) < __atomic_load_n(&s->turn, __ATOMIC_ACQUIRE))
        ha_sleep_ns(GATE_NAP_NS);
}

enum ha_status ha_op_shut(struct ha_op_stage *s, struct ha_stream *stream)
{
    if (__atomic_load_n(s->gate, __ATOMIC_RELAXED) == s->turn)
        __atomic_store_n(&s->turn, s->turn + 1, __ATOMIC_RELEASE);
    if (s->gate != &s->lock) HA_OP(s, flag_wait, stream, s->gate, s->turn);
    else if (s->api->host_fn) HA_OP(s, host_fn, stream, wait_at_gate, s);
    else
        return ha_why(s->why, HA_WAIVED,
                      "the device has neither flag_wait in mapped memory nor host_fn: nothing can "
                      "hold a stream up, so that an order that is missing cannot be seen");
    return HA_OK;
}

void ha_op_open(struct ha_op_stage *s)
{
    __atomic_store_n(s->gate, __atomic_load_n(&s->turn, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
}

enum ha_status ha_op_hold(struct ha_op_stage *s)
{
    ha_sleep_ns(HOLD_NS + slow_ns(s));
    HA_OP(s, stream_sync, s->own);
    return HA_OK;
}

struct elsewhere {
    enum ha_status (*run)(void *arg);
    void *arg;
    enum ha_status status;
};
static void *run_elsewhere(void *arg)
{
    struct elsewhere *e = arg;
    e->status = e->run(e->arg);
    return NULL;
}
enum ha_status ha_op_elsewhere(struct ha_op_stage *s, enum ha_status (*run)(void *arg), void *arg)
{
    struct elsewhere e = { run, arg, HA_ERROR };
    pthread_t thread;
    if (ha_thread_start(&thread, run_elsewhere, &e)) return ha_why(s->why, HA_ERROR, "no thread to be had");
    pthread_join(thread, NULL);
    return e.status;
}

static void *open_later(void *arg)
{
    struct ha_op_opener *o = arg;
    ha_sleep_ns(OPEN_LATER_NS + slow_ns(o->stage));
    __atomic_store_n(&o->opened, 1, __ATOMIC_RELEASE);
    ha_op_open(o->stage);
    return NULL;
}

enum ha_status ha_op_open_later(struct ha_op_stage *s, struct ha_op_opener *o)
{
    pthread_t thread;
    *o = (struct ha_op_opener){ .stage = s };
    if (ha_thread_start(&thread, open_later, o)) return ha_why(s->why, HA_ERROR, "no thread to be had");
    o->thread = thread;
    return HA_OK;
}

bool ha_op_opened(struct ha_op_opener *o)
{
    const bool opened = __atomic_load_n(&o->opened, __ATOMIC_ACQUIRE);
    pthread_join(o->thread, NULL);
    return opened;
}
