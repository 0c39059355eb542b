#include "suites/merge/batch.h"

#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = HA_ROOM_PAGE, LINE = 64 };

static size_t up(size_t x, size_t to) { return (x + to - 1) / to * to; }

const char *const ha_form_words[] = { "natural", "base2", "direct", "max_sum", NULL };
const char *const ha_order_words[] = { "flat", "chain", "tree", NULL };
static const char *const alias_words[] = { "none", "first", "last", NULL };
static const char *const layout_words[] = { "packed", "padded", "heads_first", "window", NULL };

const char *ha_order_name(size_t order) { return ha_order_words[order]; }
const char *ha_alias_name(size_t alias) { return alias_words[alias]; }
const char *ha_layout_name(size_t layout) { return layout_words[layout]; }

/* ---- forms ------------------------------------------------------------------------------- */

static const double LN2 = 0.693147180559945309417;

float ha_form_encode(enum ha_form form, double lse, double sum)
{
    const double x = form == HA_FORM_BASE2 ? lse / LN2 : form == HA_FORM_MAX_SUM ? lse - log(sum) : lse;
    if (!isfinite(x)) return (float)x;
    return (float)fmax(-(double)FLT_MAX, fmin((double)FLT_MAX, x));
}

double ha_form_decode(enum ha_form form, float lse, float sum)
{
    if (form == HA_FORM_BASE2) return (double)lse * LN2;
    return form == HA_FORM_MAX_SUM && lse != -INFINITY ? (double)lse + log((double)sum) : (double)lse;
}

/* ---- orders ------------------------------------------------------------------------------ */

struct ha_pair ha_order_pair(enum ha_order order, size_t states, size_t i)
{
    if (order == HA_ORDER_CHAIN) return (struct ha_pair){ i ? states + i - 1 : 0, i + 1 };
    return (struct ha_pair){ 2 * i, 2 * i + 1 }; /* nodes in the order of their making: the tree is balanced */
}

/* ---- layout ------------------------------------------------------------------------------ */

/* The tokens that a node's memory holds. */
static size_t tokens_of(const struct ha_merge_shape *s) { return s->tokens + (s->layout == HA_LAYOUT_WINDOW ? 2 : 0); }

/* Strides of node m: an input, the result (m = states), or an intermediate one. */
static struct ha_merge_state strides(const struct ha_merge_shape *s, size_t m)
{
    struct ha_merge_state x = {
        .o_head_stride = s->dim, .o_token_stride = s->heads * s->dim, .lse_head_stride = 1, .lse_token_stride = s->heads
    };
    if (s->layout == HA_LAYOUT_PADDED) {
        x.o_head_stride = s->dim + s->dim / 2 + 8 * (m % 3);
        x.o_token_stride = s->heads * x.o_head_stride + 16 * (m % 2);
        x.lse_head_stride = s->heads % 2 ? 1 : 2 + m % 2; /* or heads side by side, and tokens apart */
        x.lse_token_stride = s->heads * x.lse_head_stride + (s->heads % 2) + m % 3;
    }
    if (s->layout == HA_LAYOUT_HEADS_FIRST) {
        x.lse_head_stride = tokens_of(s);
        x.lse_token_stride = 1;
    }
    return x;
}

/* Elements from a node's first to the end of its last row. */
static size_t o_extent(const struct ha_merge_shape *s, const struct ha_merge_state *x)
{
    return (tokens_of(s) - 1) * x->o_token_stride + (s->heads - 1) * x->o_head_stride + s->dim;
}
static size_t lse_extent(const struct ha_merge_shape *s, const struct ha_merge_state *x)
{
    return (tokens_of(s) - 1) * x->lse_token_stride + (s->heads - 1) * x->lse_head_stride + 1;
}

/* Intermediate results have memory of their own unless they go where an operand was. */
static size_t temps(const struct ha_merge_shape *s)
{
    return s->order != HA_ORDER_FLAT && s->alias == HA_ALIAS_NONE && s->states > 2 ? s->states - 2 : 0;
}

/* The first of the three pieces that hold node m. */
static size_t piece_of(const struct ha_merge_shape *s, size_t m)
{
    return m < s->states ? HA_IN_O : m == s->states ? HA_OUT_O : HA_TEMP_O;
}

/* of an element of o, of node m */
static size_t o_bytes(const struct ha_merge_shape *s, size_t m)
{
    return s->fp8 && m >= s->states ? sizeof(uint8_t) : ha_dtype_bytes(s->dtype);
}

/* Adds what node m takes of its three pieces, in bytes. */
static void add_bytes(const struct ha_merge_shape *s, size_t m, const struct ha_merge_state *x, size_t bytes[3])
{
    bytes[0] += o_extent(s, x) * o_bytes(s, m);
    bytes[1] += lse_extent(s, x) * sizeof(float);
    bytes[2] += s->form == HA_FORM_MAX_SUM ? lse_extent(s, x) * sizeof(float) : 0;
}

static void measure(const struct ha_merge_shape *s, size_t bytes[HA_PIECES])
{
    memset(bytes, 0, HA_PIECES * sizeof *bytes);
    for (size_t m = 0; m < s->states + 1 + temps(s); m++) {
        const struct ha_merge_state x = strides(s, m);
        add_bytes(s, m, &x, bytes + piece_of(s, m));
    }
}

static size_t calls_of(const struct ha_merge_shape *s)
{
    return s->order == HA_ORDER_FLAT || s->states < 2 ? 1 : s->states - 1;
}

static size_t control_bytes(const struct ha_merge_shape *s)
{
    const size_t states = s->states + (s->order == HA_ORDER_FLAT ? 0 : 2 * calls_of(s));
    return up(sizeof(struct ha_batch) + calls_of(s) * sizeof(struct ha_merge) + states * sizeof(struct ha_merge_state),
              PAGE);
}

size_t ha_batch_bytes(const struct ha_merge_shape *s)
{
    size_t bytes[HA_PIECES], total = control_bytes(s);
    measure(s, bytes);
    for (size_t i = 0; i < HA_PIECES; i++)
        if (bytes[i]) total += up(bytes[i], PAGE) + PAGE;
    return total;
}

/* The node's memory; at: the bytes of each piece that are given away. */
static struct ha_merge_state place(const struct ha_batch *b, size_t m, size_t at[HA_PIECES])
{
    const struct ha_merge_shape *s = &b->shape;
    const size_t first = piece_of(s, m), skip = s->layout == HA_LAYOUT_WINDOW; /* a token */
    const struct ha_piece *piece = b->piece + first;
    struct ha_merge_state x = strides(s, m);
    x.o = piece[0].at + at[first] + skip * x.o_token_stride * o_bytes(s, m);
    x.lse = (float *)(void *)(piece[1].at + at[first + 1]) + skip * x.lse_token_stride;
    if (piece[2].bytes) x.sum = (float *)(void *)(piece[2].at + at[first + 2]) + skip * x.lse_token_stride;
    add_bytes(s, m, &x, at + first);
    return x;
}

static struct ha_merge call_of(const struct ha_merge_shape *s, const struct ha_merge_state *states, size_t count,
                               struct ha_merge_state out)
{
    return (struct ha_merge){ .form = s->form,
                              .dtype = s->dtype,
                              .fp8 = s->fp8,
                              .fp8_scale = 1,
                              .plus_inf_is_empty = s->plus_inf,
                              .states = states,
                              .states_count = count,
                              .tokens = s->tokens,
                              .heads = s->heads,
                              .dim = s->dim,
                              .out = out };
}

static struct ha_merge_state node(const struct ha_batch *b, size_t i)
{
    return i < b->shape.states ? b->in[i] : b->calls[i - b->shape.states].out;
}

/* The calls, in chain and tree one for each pair. */
static void plan(struct ha_batch *b, struct ha_merge_state *pairs, size_t at[HA_PIECES])
{
    const struct ha_merge_shape *s = &b->shape;
    if (s->order == HA_ORDER_FLAT || s->states < 2) {
        if (s->alias != HA_ALIAS_NONE && s->states) b->out = b->in[s->alias == HA_ALIAS_FIRST ? 0 : s->states - 1];
        b->calls[0] = call_of(s, b->in, s->states, b->out);
        return;
    }
    for (size_t i = 0; i < b->calls_count; i++) {
        const struct ha_pair pair = ha_order_pair(s->order, s->states, i);
        struct ha_merge_state *two = pairs + 2 * i, made = b->out;
        two[0] = node(b, pair.a);
        two[1] = node(b, pair.b);
        if (s->alias != HA_ALIAS_NONE) made = two[s->alias == HA_ALIAS_LAST];
        else if (i + 1 < b->calls_count) made = place(b, s->states + 1 + i, at);
        b->calls[i] = call_of(s, two, 2, made);
    }
    b->out = b->calls[b->calls_count - 1].out;
}

/* m: any node of the kind of x, which is an input or a result */
static void *o_row(const struct ha_batch *b, size_t m, const struct ha_merge_state *x, size_t r)
{
    return (char *)x->o
           + (r / b->shape.heads * x->o_token_stride + r % b->shape.heads * x->o_head_stride) * o_bytes(&b->shape, m);
}
static size_t lse_at(const struct ha_batch *b, const struct ha_merge_state *x, size_t r)
{
    return r / b->shape.heads * x->lse_token_stride + r % b->shape.heads * x->lse_head_stride;
}

static void allow(struct ha_batch *b, const void *at, size_t bytes)
{
    memset(b->mask + ((const unsigned char *)at - b->begin), 0xFF, bytes);
}

/* Where the results of a call go. */
static void allow_results(struct ha_batch *b, const struct ha_merge_state *x)
{
    for (size_t r = 0; r < b->shape.tokens * b->shape.heads; r++) {
        allow(b, o_row(b, HA_RESULT, x, r), b->shape.dim * o_bytes(&b->shape, HA_RESULT));
        allow(b, x->lse + lse_at(b, x, r), sizeof(float));
        if (x->sum) allow(b, x->sum + lse_at(b, x, r), sizeof(float));
    }
}

struct ha_batch *ha_batch_make(const struct ha_room *room, const struct ha_merge_shape *s)
{
    struct ha_batch *b = (void *)room->base;
    unsigned char *p = room->base + control_bytes(s);
    size_t bytes[HA_PIECES], at[HA_PIECES] = { 0 };
    *b = (struct ha_batch){ .shape = *s, .room = *room, .begin = p, .calls_count = calls_of(s) };
    b->calls = (void *)(b + 1);
    b->in = (void *)(b->calls + b->calls_count);

    measure(s, bytes);
    for (size_t i = 0; i < HA_PIECES; i++) {
        if (!bytes[i]) continue;
        p += up(bytes[i], PAGE);
        b->piece[i] = (struct ha_piece){ .at = p - up(bytes[i], LINE), .guard = p, .bytes = bytes[i] };
        p += PAGE;
    }
    b->end = p;
    b->snapshot = malloc((size_t)(b->end - b->begin));
    b->mask = calloc(1, (size_t)(b->end - b->begin));
    for (size_t m = 0; m < s->states; m++) b->in[m] = place(b, m, at);
    b->out = place(b, s->states, at);
    plan(b, b->in + s->states, at);
    if (!b->snapshot || !b->mask) {
        ha_batch_free(b);
        return NULL;
    }
    memset(b->begin, HA_ROOM_FILL, (size_t)(b->end - b->begin));
    for (size_t i = 0; i < b->calls_count; i++) allow_results(b, &b->calls[i].out);
    for (size_t i = 0; i < HA_PIECES; i++)
        if (b->piece[i].bytes)
            b->piece[i].written = memchr(b->mask + (b->piece[i].at - b->begin), 0xFF, b->piece[i].bytes) != NULL;
    return b;
}

void ha_batch_free(struct ha_batch *b)
{
    if (!b) return;
    free(b->snapshot);
    free(b->mask);
    b->snapshot = b->mask = NULL;
}

/* ---- rows -------------------------------------------------------------------------------- */

void ha_batch_put(struct ha_batch *b, size_t r, const struct ha_merge_row *row)
{
    const struct ha_merge_shape *s = &b->shape;
    float o[HA_REF_DIM_MAX];
    for (size_t m = 0; m < s->states; m++) {
        const struct ha_merge_state *x = &b->in[m];
        const double *from = row->o + m * s->dim;
        for (size_t i = 0; i < s->dim; i++) o[i] = (float)from[i];
        ha_store_row(o_row(b, m, x, r), s->dim, s->dtype, o);
        const bool marked = ha_batch_marks(s, m, r) && row->lse[m] == -HUGE_VAL;
        x->lse[lse_at(b, x, r)] = marked ? INFINITY : ha_form_encode(s->form, row->lse[m], row->sum[m]);
        /* the sum of a state whose maximum is -inf is not read */
        const float none = marked || r % 2 ? 0 : NAN;
        if (x->sum) x->sum[lse_at(b, x, r)] = row->lse[m] == -HUGE_VAL ? none : (float)row->sum[m];
    }
}

/* what stood at this place of the room when the batch was sealed */
static const void *original(const struct ha_batch *b, const void *at)
{
    return b->snapshot + ((const unsigned char *)at - b->begin);
}

void ha_batch_get(const struct ha_batch *b, size_t m, size_t r, float *o, float *lse, float *sum)
{
    const bool result = m == HA_RESULT;
    const struct ha_merge_state *x = result ? &b->out : &b->in[m];
    const void *o_at = o_row(b, m, x, r), *l_at = x->lse + lse_at(b, x, r),
               *s_at = x->sum ? x->sum + lse_at(b, x, r) : NULL;
    if (result && b->shape.fp8) ha_fp8_load_row(o_at, b->shape.dim, b->shape.fp8, o);
    else ha_load_row(result ? o_at : original(b, o_at), b->shape.dim, b->shape.dtype, o);
    memcpy(lse, result ? l_at : original(b, l_at), sizeof *lse);
    *sum = 0;
    if (s_at) memcpy(sum, result ? s_at : original(b, s_at), sizeof *sum);
}

float ha_batch_scale(const struct ha_batch *b) { return b->calls[0].fp8_scale; }
void ha_batch_set_scale(struct ha_batch *b, float scale) { b->calls[0].fp8_scale = scale; }

/* Of the row in the middle: the heaviest state's largest element becomes 1/16 of the type's largest number, or that, or
 * twice as much, and the scale is a power of two in half of the batches. */
static float scale_by_rows(const struct ha_batch *b)
{
    const size_t r = b->shape.tokens * b->shape.heads / 2;
    float o[HA_REF_DIM_MAX], lse, sum, heaviest = -INFINITY, most = 0;
    for (size_t m = 0; m < b->shape.states; m++) {
        ha_batch_get(b, m, r, o, &lse, &sum);
        if (!(lse > heaviest) || lse == INFINITY) continue;
        heaviest = lse;
        most = 0;
        for (size_t i = 0; i < b->shape.dim; i++)
            if (isfinite(o[i])) most = fmaxf(most, fabsf(o[i]));
    }
    static const float part[] = { 0.0625f, 1, 2 };
    const uint32_t way = ha_f32_bits(most) >> 8 & 0xff;
    const float by = most / ha_f32_from_fp8(ha_fp8_from_f32(INFINITY, b->shape.fp8), b->shape.fp8) / part[way % 3];
    const float scale = by > 0x1p-100f && by < 0x1p100f ? by : 1;
    return way / 3 % 2 ? ldexpf(1, ilogbf(scale)) : scale;
}

void ha_batch_seal(struct ha_batch *b)
{
    if (b->shape.alias == HA_ALIAS_NONE || b->shape.states == 0) /* results lie behind the states, and are no input */
        for (unsigned char *p = b->piece[HA_OUT_O].at; p < b->end; p++) *p |= b->mask[p - b->begin];
    memcpy(b->snapshot, b->begin, (size_t)(b->end - b->begin));
    if (b->shape.fp8) ha_batch_set_scale(b, scale_by_rows(b));
}

/* whole pages, and the guard */
static size_t first_byte(const struct ha_batch *b, const struct ha_piece *p)
{
    return (size_t)(p->guard - b->begin) - up(p->bytes, PAGE);
}
static size_t all_bytes(const struct ha_piece *p) { return up(p->bytes, PAGE) + PAGE; }

void ha_batch_restore(struct ha_batch *b, bool all)
{
    for (size_t i = 0; i < HA_PIECES; i++) {
        const struct ha_piece *p = &b->piece[i];
        const size_t first = p->bytes ? first_byte(b, p) : 0;
        if (p->bytes && (all || p->written)) memcpy(b->begin + first, b->snapshot + first, all_bytes(p));
    }
}

static bool changed(const struct ha_batch *b, const struct ha_piece *p)
{
    const size_t first = first_byte(b, p), words = all_bytes(p) / sizeof(uint64_t);
    const uint64_t *now = (const void *)(b->begin + first), *was = (const void *)(b->snapshot + first),
                   *may = (const void *)(b->mask + first);
    uint64_t any = 0;
    if (!p->written) return memcmp(now, was, words * sizeof *now) != 0;
    for (size_t i = 0; i < words; i++) any |= (now[i] ^ was[i]) & ~may[i];
    return any != 0;
}

const char *const ha_piece_names[HA_PIECES] = { "the states' o",     "the states' LSE",     "the states' sum",
                                                "the merged o",      "the merged LSE",      "the merged sum",
                                                "an intermediate o", "an intermediate LSE", "an intermediate sum" };

enum ha_status ha_batch_intact(const struct ha_batch *b, struct ha_why *why)
{
    for (size_t i = 0; i < HA_PIECES; i++) {
        const struct ha_piece *p = &b->piece[i];
        if (!p->bytes || !changed(b, p)) continue;
        size_t k = first_byte(b, p);
        while (!((b->begin[k] ^ b->snapshot[k]) & ~b->mask[k])) k++;
        return ha_why(why, HA_FAIL, "wrote where no result goes: byte %td of %s, which has %zu, became 0x%02x",
                      b->begin + k - p->at, ha_piece_names[i], p->bytes, b->begin[k]);
    }
    return HA_OK;
}

enum ha_status ha_room_map(size_t bytes, struct ha_room *room, struct ha_why *why)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return ha_why(why, HA_ERROR, "no memory for %zu bytes: %s", bytes, strerror(errno));
    *room = (struct ha_room){ p, bytes };
    return HA_OK;
}

void ha_room_unmap(struct ha_room *room)
{
    if (room->base) munmap(room->base, room->bytes);
    *room = (struct ha_room){ 0 };
}
