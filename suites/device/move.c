/* What moves bytes: every byte arrives, and none beside it changes. Each case is enqueued behind a gate and its
 * arguments are overwritten before that opens; but for pageable memory, where a copy may wait for work before it. */

#include "suites/device/stage.h"

#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

/* values of a key */
#define SHIFTS "0..67 128 129 255 1024 4095..4097 8192\n"
#define NUMBERS \
    "1 0 2..130 192 255..257 511..513 1000 1023..1025 2047..2049 4095..4097 8192 16383..16385 65535..65537 131072\n"
#define GAPS "0..9 16 31..33 64 128 4096\n"

enum { GUARD = 256, SMALL = 64 << 10, PAGE = 4096 };

static const struct {
    enum ha_direction dir;
    enum ha_op_place dst, src;
    const char *name;
} ways[] = {
    { HA_H2D, HA_OP_DEVICE, HA_OP_PAGEABLE, "from pageable memory" },
    { HA_H2D, HA_OP_DEVICE, HA_OP_PINNED, "from pinned memory" },
    { HA_H2D, HA_OP_DEVICE, HA_OP_MAPPED, "from mapped memory" },
    { HA_D2H, HA_OP_PAGEABLE, HA_OP_DEVICE, "to pageable memory" },
    { HA_D2H, HA_OP_PINNED, HA_OP_DEVICE, "to pinned memory" },
    { HA_D2H, HA_OP_MAPPED, HA_OP_DEVICE, "to mapped memory" },
    { HA_D2D, HA_OP_DEVICE, HA_OP_DEVICE, "within the device" },
};
enum { WAYS = sizeof ways / sizeof *ways };

/* WAYS: no copy goes that way */
static size_t way_of(const struct ha_op_case *c)
{
    size_t way = 0;
    while (way < WAYS && (ways[way].dst != c->dst || ways[way].src != c->src)) way++;
    return way;
}
static const char *unfit_copy(const struct ha_op_case *c)
{
    return way_of(c) == WAYS ? "one side of a copy is the device" : NULL;
}
struct pair {
    struct ha_op_block *dst, *src;
};

static enum ha_status pair_make(struct ha_op_stage *s, struct pair *p, enum ha_op_place dst, enum ha_op_place src,
                                size_t bytes)
{
    ha_op_clear(s);
    p->dst = ha_op_block(s, dst, bytes);
    p->src = p->dst ? ha_op_block(s, src, bytes) : NULL;
    return p->src ? ha_op_fill(s, p->src, 0, bytes) : HA_ERROR;
}

static enum ha_status shut(struct ha_op_stage *s, size_t way)
{
    const bool pageable = ways[way].dst == HA_OP_PAGEABLE || ways[way].src == HA_OP_PAGEABLE;
    return pageable ? HA_OK : ha_op_shut(s, s->stream[0]);
}

/* What is enqueued behind the gate reads what its source holds when that opens; of pageable memory, when it is
 * enqueued. */
static enum ha_status change(struct ha_op_stage *s, const struct pair *p, size_t way, size_t from, size_t bytes)
{
    return ways[way].src == HA_OP_PAGEABLE || ways[way].dst == HA_OP_PAGEABLE ? HA_OK
                                                                              : ha_op_fill(s, p->src, from, bytes);
}

/* The copies have run, and their source is as it was. */
static enum ha_status finish(struct ha_op_stage *s, const struct pair *p, const char *operation, size_t from,
                             size_t bytes)
{
    ha_op_open(s);
    HA_OP(s, stream_sync, s->stream[0]);
    return ha_op_judge(s, p->src, from, bytes, "%s changed its source", operation);
}

/* ---- within one allocation ----------------------------------------------------------------------------------------
 */

enum within { BY_COPY, BY_RECT, BY_PIECES, BY_MOVE, WITHINS };
/* Rows go from one place of a block to another, before it or behind it, as near as its next byte. */
static enum ha_status within_once(struct ha_op_stage *s, struct ha_op_block *b, enum within by, size_t to, size_t from,
                                  size_t rows, size_t width, size_t stride)
{
    static const char *const name[WITHINS] = { "copy", "copy_2d", "copy_pieces", "move" };
    void *dst[64];
    const void *src[64];
    size_t bytes[64];
    char *const at = b->at;
    HA_TRY(ha_op_fill(s, b, 0, b->bytes));
    for (size_t i = 0; i < rows; i++) {
        memcpy(b->image + to + i * stride, b->image + from + i * stride, width);
        dst[i] = at + to + i * stride;
        src[i] = at + from + i * stride;
        bytes[i] = width;
    }
    if (by == BY_COPY)
        for (size_t i = 0; i < rows; i++) HA_OP(s, copy, s->stream[0], dst[i], src[i], width, HA_D2D);
    if (by == BY_RECT) HA_OP(s, copy_2d, s->stream[0], at + to, stride, at + from, stride, width, rows, HA_D2D);
    if (by == BY_PIECES)
        HA_OP(s, copy_pieces, s->stream[0], &(struct ha_device_pieces){ dst, src, bytes, rows }, HA_D2D);
    if (by == BY_MOVE)
        HA_OP(s, move, s->stream[0],
              &(struct ha_device_move){ at + to, at + from, NULL, NULL, rows, width, stride, stride });
    HA_OP(s, stream_sync, s->stream[0]);
    return ha_op_judge(s, b, 0, b->bytes,
                       "%s of %zu rows of %zu bytes, %zu apart, from byte %zu to byte %zu of one block", name[by], rows,
                       width, stride, from, to);
}

static enum ha_status within_one(struct ha_op_stage *s, enum within by)
{
    static const struct {
        size_t to, from, rows, width, stride;
    } each[] = { { 4096, 0, 1, 4096, 4096 },  { 0, 4096, 1, 4096, 4096 },    { 100, 0, 1, 100, 100 },
                 { 0, 101, 1, 100, 100 },     { 104, 0, 1, 100, 104 },       { 8, 0, 1, 8, 8 },
                 { 64, 0, 16, 64, 128 },      { 0, 40, 20, 33, 80 },         { 20000, 0, 5, 1000, 1500 },
                 { 4, 20000, 3, 4000, 4100 }, { 30000, 0, 1, 29999, 29999 }, { 0, 16, 1, 16, 16 } };
    ha_op_clear(s);
    struct ha_op_block *b = ha_op_block(s, HA_OP_DEVICE, 64 << 10);
    if (!b) return HA_ERROR;
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        HA_TRY(within_once(s, b, by, each[i].to, each[i].from, each[i].rows, each[i].width, each[i].stride));
    return HA_OK;
}

/* ---- copy -------------------------------------------------------------------------------------------------------- */

static enum ha_status copy_once(struct ha_op_stage *s, const struct pair *p, size_t way, const struct ha_op_case *c)
{
    const size_t to = GUARD + c->dst_at, from = c->src_at, bytes = c->size, all = to + bytes + GUARD;
    HA_TRY(ha_op_fill(s, p->dst, 0, all));
    HA_TRY(shut(s, way));
    HA_OP(s, copy, s->stream[0], p->dst->at + to, p->src->at + from, bytes, ways[way].dir);
    HA_TRY(change(s, p, way, from, bytes));
    memcpy(p->dst->image + to, p->src->image + from, bytes);
    HA_TRY(finish(s, p, "copy", from, bytes));
    return ha_op_judge(s, p->dst, 0, all, "copy of %zu bytes %s, from byte %zu of one block to byte %zu of another",
                       bytes, ways[way].name, from, to);
}

static enum ha_status copy_case(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct pair p;
    const size_t way = way_of(c), at = c->dst_at > c->src_at ? c->dst_at : c->src_at;
    HA_TRY(pair_make(s, &p, ways[way].dst, ways[way].src, at + c->size + 3 * GUARD));
    return copy_once(s, &p, way, c);
}

/* Bytes from an address to where a copy begins: a few, or so many that it begins a few bytes before the end of a page
 * of memory, or at its end. */
static size_t place_at(struct ha_op_stage *s, const char *address)
{
    const size_t few = ha_op_draw(s, 65);
    return ha_op_draw(s, 2) ? few : (2 * PAGE - (uintptr_t)address % PAGE - few % 17) % PAGE;
}

/* Of that many bytes, from anywhere to anywhere. */
static enum ha_status copy_bytes(struct ha_op_stage *s, const struct pair *p, size_t way, size_t bytes)
{
    struct ha_op_case c = { .size = bytes };
    c.dst_at = place_at(s, p->dst->at + GUARD);
    c.src_at = place_at(s, p->src->at);
    return copy_once(s, p, way, &c);
}

/* Of every power of two the neighbours, too; above 64 KiB an odd size below it, itself, three quarters of it, to 16 MiB
 * the byte behind both, and to 8 MiB some size above it. */
static enum ha_status copy_way(struct ha_op_stage *s, size_t way)
{
    struct pair p;
    HA_TRY(pair_make(s, &p, ways[way].dst, ways[way].src, s->most + 3 * GUARD + PAGE));
    for (size_t power = 1; power <= s->most && power <= SMALL; power *= 2)
        for (size_t bytes = power - 1; bytes <= power + 1; bytes++) HA_TRY(copy_bytes(s, &p, way, bytes));
    for (size_t i = 0; i < 16; i++) HA_TRY(copy_bytes(s, &p, way, ha_op_draw(s, s->most < SMALL ? s->most : SMALL)));
    for (size_t power = 2 * (size_t)SMALL; power <= s->most; power *= 2) {
        HA_TRY(copy_bytes(s, &p, way, power == s->most ? power - 1 : power - 1 - 2 * ha_op_draw(s, power / 4)));
        const size_t one = power < s->most && power <= 16 << 20;
        HA_TRY(copy_bytes(s, &p, way, power + one));
        HA_TRY(copy_bytes(s, &p, way, power / 4 * 3 + one * ha_op_draw(s, 2)));
        if (power <= 1 << 20) HA_TRY(copy_bytes(s, &p, way, power));
        if (power < s->most && power <= 8 << 20) HA_TRY(copy_bytes(s, &p, way, power + 1 + ha_op_draw(s, 4096)));
    }
    return HA_OK;
}

static enum ha_status judge_copy(struct ha_op_stage *s)
{
    for (size_t way = 0; way < WAYS; way++) HA_TRY(copy_way(s, way));
    return within_one(s, BY_COPY);
}
const struct ha_op ha_op_copy = {
    .name = "copy",
    .doc = "bytes of every size and place, each way, and nothing beside them",
    .judge = judge_copy,
    .keys = "dst src size dst_at src_at",
    .values = "dst = *\nsrc = *\ndst_at = " SHIFTS "src_at = " SHIFTS
              "size = 0..130 192 255..257 511..513 1000 1023..1025 2047..2049 4095..4097 8191..8193 12287..12289 "
              "16384..65536:4096 65535 65537 73728 98304 131072 196608 262144 393216 524288 786432 1048576 1572864 "
              "2097152 3145728 4194304 6291456\n",
    .once = copy_case,
    .unfit = unfit_copy,
};

/* ---- copy_2d ----------------------------------------------------------------------------------------------------- */

struct rect {
    size_t row_bytes, rows, dst_gap, src_gap; /* gaps: between rows */
};
static const struct rect rects[] = {
    { 1, 1, 0, 0 },     { 7, 3, 0, 2 },        { 7, 3, 2, 0 },       { 64, 16, 0, 0 },     { 64, 16, 0, 64 },
    { 64, 16, 64, 0 },  { 256, 40, 256, 768 }, { 4, 70000, 0, 4 },   { 4, 70000, 12, 0 },  { 0, 5, 8, 8 },
    { 5, 0, 8, 8 },     { 4096, 17, 1, 3 },    { 100000, 3, 31, 7 }, { 1, 1000, 1, 2 },    { 1, 500, 0, 1 },
    { 1, 500, 1, 0 },   { 2, 300, 0, 2 },      { 2, 300, 2, 0 },     { 4, 200, 0, 4 },     { 8, 100, 8, 0 },
    { 16, 70, 0, 16 },  { 100003, 1, 0, 0 },   { 70001, 1, 5, 9 },   { 1048577, 1, 0, 0 }, { 4099, 200, 0, 0 },
    { 65537, 5, 0, 3 },
};

static size_t extent(size_t rows, size_t stride, size_t row_bytes)
{
    return rows ? (rows - 1) * stride + row_bytes : 0;
}

static enum ha_status rect_once(struct ha_op_stage *s, const struct pair *p, size_t way, const struct ha_op_case *c)
{
    const size_t to = GUARD + c->dst_at, from = c->src_at, dst = c->width + c->dst_gap, src = c->width + c->src_gap;
    const size_t all = to + extent(c->rows, dst, c->width) + GUARD;
    if (all > p->dst->bytes || from + extent(c->rows, src, c->width) > p->src->bytes) return HA_OK;
    HA_TRY(ha_op_fill(s, p->dst, 0, all));
    HA_TRY(shut(s, way));
    HA_OP(s, copy_2d, s->stream[0], p->dst->at + to, dst, p->src->at + from, src, c->width, c->rows, ways[way].dir);
    HA_TRY(change(s, p, way, from, extent(c->rows, src, c->width)));
    for (size_t i = 0; i < c->rows; i++) memcpy(p->dst->image + to + i * dst, p->src->image + from + i * src, c->width);
    HA_TRY(finish(s, p, "copy_2d", from, extent(c->rows, src, c->width)));
    return ha_op_judge(s, p->dst, 0, all, "copy_2d of %zu rows of %zu bytes %s, strides %zu to %zu, to byte %zu",
                       c->rows, c->width, ways[way].name, src, dst, to);
}

enum { MORE_GAP = 8 };
static enum ha_status rect_case(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct pair p;
    const size_t way = way_of(c), gap = c->dst_gap > c->src_gap ? c->dst_gap : c->src_gap;
    const size_t at = c->dst_at > c->src_at ? c->dst_at : c->src_at;
    HA_TRY(pair_make(s, &p, ways[way].dst, ways[way].src, at + c->rows * (c->width + gap + MORE_GAP) + 2 * GUARD));
    HA_TRY(rect_once(s, &p, way, c));
    struct ha_op_case other = *c; /* of the same places, rows and widths */
    other.dst_gap += MORE_GAP * ha_op_draw(s, 2);
    other.src_gap += MORE_GAP * ha_op_draw(s, 2);
    return rect_once(s, &p, way, &other);
}

static enum ha_status rect_anywhere(struct ha_op_stage *s, const struct pair *p, size_t way, const struct rect *r)
{
    struct ha_op_case c = { .rows = r->rows, .width = r->row_bytes, .dst_gap = r->dst_gap, .src_gap = r->src_gap };
    c.dst_at = place_at(s, p->dst->at + GUARD);
    c.src_at = place_at(s, p->src->at);
    return rect_once(s, p, way, &c);
}

static enum ha_status judge_copy_2d(struct ha_op_stage *s)
{
    const size_t bytes = s->most < 2 << 20 ? s->most : 2 << 20;
    for (size_t way = 0; way < WAYS; way++) {
        struct pair p;
        HA_TRY(pair_make(s, &p, ways[way].dst, ways[way].src, bytes));
        for (size_t i = 0; i < sizeof rects / sizeof *rects; i++) HA_TRY(rect_anywhere(s, &p, way, &rects[i]));
        for (size_t i = 0; i < 24; i++) {
            const struct rect r = { 1 + ha_op_draw(s, (size_t)1 << ha_op_draw(s, 13)), 1 + ha_op_draw(s, 130),
                                    ha_op_draw(s, 2) * ha_op_draw(s, 300), ha_op_draw(s, 2) * ha_op_draw(s, 300) };
            HA_TRY(rect_anywhere(s, &p, way, &r));
        }
        static const struct rect far[] = { { 100, 3, (1 << 20) + 40, 0 },
                                           { 100, 3, 0, (1 << 20) + 8 },
                                           { 64, 2, 5 << 20, 5 << 20 } };
        HA_TRY(pair_make(s, &p, ways[way].dst, ways[way].src, s->most < 12 << 20 ? bytes : 12 << 20));
        for (size_t i = 0; i < sizeof far / sizeof *far; i++) HA_TRY(rect_anywhere(s, &p, way, &far[i]));
    }
    return within_one(s, BY_RECT);
}
const struct ha_op ha_op_copy_2d = {
    .name = "copy_2d",
    .doc = "rows at strides, each way, and nothing between them",
    .needs = { HA_OP_ENTRY(copy_2d) },
    .judge = judge_copy_2d,
    .keys = "dst src dst_at src_at rows width dst_gap src_gap",
    .pairs = "dst = *\nsrc = *\ndst_at = 0 1 8 28 64\nsrc_at = 0 2 8 20 65\nrows = 2 1 33 129 1000\n"
             "width = 4 1 2 3 8 64 1153\ndst_gap = 0 1 2 4 8 64\nsrc_gap = 0 1 2 4 8 64\n",
    .values = "dst = *\nsrc = *\ndst_at = " SHIFTS "src_at = " SHIFTS "rows = " NUMBERS "width = " NUMBERS
              "dst_gap = " GAPS "src_gap = " GAPS,
    .once = rect_case,
    .unfit = unfit_copy,
};

/* ---- copy_pieces ------------------------------------------------------------------------------------------------- */

enum { PIECES_MOST = 4096 };
struct pieces {
    void *dst[PIECES_MOST];
    const void *src[PIECES_MOST];
    size_t bytes[PIECES_MOST];
};

static enum ha_status pieces_once(struct ha_op_stage *s, const struct pair *p, size_t way, size_t count, size_t large,
                                  struct pieces *list)
{
    size_t at = ha_op_draw(s, 65);
    HA_TRY(ha_op_fill(s, p->dst, 0, p->dst->bytes));
    for (size_t i = 0; i < count; i++) {
        size_t bytes = i == count / 2 ? large : ha_op_draw(s, 5) ? ha_op_draw(s, 200) : 0;
        if (at + bytes + 1 > p->dst->bytes) bytes = 0;
        const size_t from = ha_op_draw(s, p->src->bytes - bytes);
        list->bytes[i] = bytes;
        list->dst[i] = bytes ? p->dst->at + at : NULL;
        list->src[i] = bytes ? p->src->at + from : NULL;
        memcpy(p->dst->image + at, p->src->image + from, bytes);
        at += bytes + (bytes ? ha_op_draw(s, 70) : 0);
        if (at >= p->dst->bytes) at = p->dst->bytes - 1;
    }
    struct ha_device_pieces args = { list->dst, list->src, list->bytes, count };
    HA_TRY(shut(s, way));
    HA_OP(s, copy_pieces, s->stream[0], &args, ways[way].dir);
    memset(list, 0, sizeof *list);
    memset(&args, 0, sizeof args);
    HA_TRY(finish(s, p, "copy_pieces", 0, p->src->bytes));
    return ha_op_judge(s, p->dst, 0, p->dst->bytes, "copy_pieces of %zu pieces %s, the largest of %zu bytes", count,
                       ways[way].name, large);
}

static enum ha_status pieces_case(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct pair p;
    struct pieces *list = malloc(sizeof *list);
    if (!list) return ha_why(s->why, HA_ERROR, "out of memory");
    const size_t way = way_of(c);
    enum ha_status status = pair_make(s, &p, ways[way].dst, ways[way].src, c->size + 270 * c->pieces + 2 * GUARD);
    if (status == HA_OK) status = pieces_once(s, &p, way, c->pieces, c->size, list);
    if (status != HA_OK) ha_op_open(s);
    free(list);
    return status;
}

static enum ha_status judge_copy_pieces(struct ha_op_stage *s)
{
    static const size_t counts[] = { 0, 1, 2, 7, 33, 300, 3000 };
    const size_t bytes = s->most < 3 << 20 ? s->most : 3 << 20, large = bytes / 3 + 1;
    struct pieces *list = malloc(sizeof *list);
    if (!list) return ha_why(s->why, HA_ERROR, "out of memory");
    enum ha_status status = HA_OK;
    for (size_t way = 0; way < WAYS && status == HA_OK; way++) {
        struct pair p;
        status = pair_make(s, &p, ways[way].dst, ways[way].src, bytes);
        for (size_t i = 0; i < sizeof counts / sizeof *counts && status == HA_OK; i++)
            status = pieces_once(s, &p, way, counts[i], i % 2 ? large : 99, list);
    }
    if (status != HA_OK) ha_op_open(s);
    free(list);
    return status == HA_OK ? within_one(s, BY_PIECES) : status;
}
const struct ha_op ha_op_copy_pieces = {
    .name = "copy_pieces",
    .doc = "many copies in one call, empty ones among them",
    .needs = { HA_OP_ENTRY(copy_pieces) },
    .judge = judge_copy_pieces,
    .keys = "dst src size pieces",
    .values = "dst = *\nsrc = *\nsize = " NUMBERS "pieces = 0..70 96 97 127..129 255..257 1000 1023..1025 4095 4096\n",
    .once = pieces_case,
    .unfit = unfit_copy,
};

/* ---- move -------------------------------------------------------------------------------------------------------- */

/* What is too large for a covering list. */
#define MOVE(n, w, y, x, slots)                                            \
    {                                                                      \
        .rows = n, .width = w, .dst_gap = y, .src_gap = x, .spread = slots \
    }
static const struct ha_op_case moves[] = {
    MOVE(40, 4, 0, 0, 30000),         MOVE(70000, 4, 0, 0, 2),  MOVE(3, 100000, 0, 4, 2),
    MOVE(300, 512, 0, 512, 3),        MOVE(1025, 20, 3, 1, 2),  MOVE(17, 1153, 5, 0, 2),
    MOVE(1000, 64, 0, 64, 1),         MOVE(1, 100003, 0, 0, 1), MOVE(9, 5003, 2, 3, 2),
    MOVE(3, 4097, 0, 0, 1),           MOVE(2, 65543, 1, 0, 3),  MOVE(3, 100, (1 << 20) + 40, 0, 1),
    MOVE(3, 64, 0, (2 << 20) + 8, 1),
};

/* rows of so many slots, no two the same unless they may be */
static enum ha_status choose(struct ha_op_stage *s, size_t pattern, uint32_t *index, size_t rows, size_t slots)
{
    const size_t step = rows ? slots / rows : 1;
    for (size_t i = 0; i < rows; i++)
        index[i] = (uint32_t)(pattern == HA_OP_REPEATS ? ha_op_draw(s, slots)
                                                       : (pattern == HA_OP_DESCENDING ? rows - 1 - i : i) * step);
    if (pattern != HA_OP_SHUFFLED) return HA_OK;
    uint32_t *all = malloc((slots + 1) * sizeof *all);
    if (!all) return ha_why(s->why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < slots; i++) all[i] = (uint32_t)i;
    for (size_t i = 0; i < rows; i++) {
        const size_t other = i + ha_op_draw(s, slots - i);
        const uint32_t chosen = all[other];
        all[other] = all[i];
        index[i] = chosen;
        all[i] = chosen;
    }
    free(all);
    return HA_OK;
}

/* The block of an index, or NULL in *out; shift: bytes from its begin to the index. */
static enum ha_status index_make(struct ha_op_stage *s, size_t kind, size_t pattern, size_t rows, size_t slots,
                                 size_t shift, struct ha_op_block **out)
{
    *out = NULL;
    if (kind == HA_OP_NO_INDEX || !rows) return HA_OK;
    *out = ha_op_block(s, kind == HA_OP_DEVICE_INDEX ? HA_OP_DEVICE : HA_OP_MAPPED, shift + rows * sizeof(uint32_t));
    if (!*out) return HA_ERROR;
    memset((*out)->image, 0, shift);
    return choose(s, pattern, (uint32_t *)(void *)((*out)->image + shift), rows, slots);
}

static enum ha_status move_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    const bool overlaps = c->pattern == HA_OP_REPEATS && ha_op_draw(s, 2); /* rows that are read, each other */
    const size_t slots = c->rows * c->spread + 1, dst = c->width + c->dst_gap,
                 src = overlaps ? ha_op_draw(s, c->width + 1) : c->width + c->src_gap;
    const size_t to = GUARD + c->dst_at, from = c->src_at, all = to + slots * dst + GUARD,
                 shift = c->dst_at % 64 / sizeof(uint32_t) * sizeof(uint32_t);
    const size_t kind[2] = { c->dst_index, c->src_index },
                 pattern[2] = { c->pattern == HA_OP_REPEATS ? HA_OP_SHUFFLED : c->pattern, c->pattern };
    struct ha_op_block *index[2], *in[3];
    const uint32_t *here[2] = { NULL, NULL }, *there[2] = { NULL, NULL };
    size_t count = 1;
    ha_op_clear(s);
    struct ha_op_block *y = ha_op_block(s, (enum ha_op_place)c->dst, all),
                       *x = y ? ha_op_block(s, (enum ha_op_place)c->src, from + slots * src + c->width + 1) : NULL;
    if (!x) return HA_ERROR;
    HA_TRY(ha_op_fill(s, y, 0, all));
    HA_TRY(ha_op_fill(s, x, 0, x->bytes));
    in[0] = x;
    /* half of those that may be are one index of both sides */
    const bool shared = kind[0] == kind[1] && pattern[0] == pattern[1] && ha_op_draw(s, 2);
    for (size_t i = 0; i < 2; i++) {
        if (shared && i) index[i] = index[0];
        else HA_TRY(index_make(s, kind[i], pattern[i], c->rows, slots, shift, &index[i]));
        if (!index[i]) continue;
        if (!shared || !i) in[count++] = index[i];
        here[i] = (const uint32_t *)(const void *)(index[i]->image + shift);
        there[i] = (const uint32_t *)(const void *)(index[i]->at + shift);
    }
    for (size_t i = 0; i < c->rows; i++)
        memcpy(y->image + to + (here[0] ? here[0][i] : i) * dst, x->image + from + (here[1] ? here[1][i] : i) * src,
               c->width);
    struct ha_device_move m = { y->at + to, x->at + from, there[0], there[1], c->rows, c->width, dst, src };
    const char *want;
    HA_TRY(ha_op_arrive(s, in, count, y));
    const enum ha_status asked = s->api->move(s->stream[0], &m);
    memset(&m, 0, sizeof m);
    HA_TRY(ha_op_follow(s, "move", asked, y, &want));
    s->cases++;
    if (!memcmp(want, y->image, all)) return HA_OK;
    static const char *const named[] = { "no", "a device", "a mapped" };
    size_t i = 0;
    while (want[i] == y->image[i]) i++;
    return ha_op_wrong(s,
                       "move of %zu rows of %zu bytes, strides %zu to %zu, %s index to %s memory, %s index from %s "
                       "memory: byte %zu of the block is 0x%02x, want 0x%02x",
                       c->rows, c->width, src, dst, named[kind[0]], ha_op_place_name((enum ha_op_place)c->dst),
                       named[kind[1]], ha_op_place_name((enum ha_op_place)c->src), i, (unsigned char)y->image[i],
                       (unsigned char)want[i]);
}

static enum ha_status judge_move(struct ha_op_stage *s)
{
    static const enum ha_op_place places[][2] = { { HA_OP_DEVICE, HA_OP_DEVICE },
                                                  { HA_OP_DEVICE, HA_OP_MAPPED },
                                                  { HA_OP_MAPPED, HA_OP_DEVICE } };
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
        for (size_t p = 0; p < 3; p++) {
            struct ha_op_case c = moves[i];
            c.dst = places[p][0];
            c.src = places[p][1];
            c.dst_index = (i + p) % HA_OP_INDICES;
            c.src_index = 1 + p % 2;
            c.pattern = (i + p) % 2 ? HA_OP_SHUFFLED : HA_OP_REPEATS;
            if (c.rows * (c.width + c.dst_gap + c.src_gap) * c.spread <= s->most) HA_TRY(move_once(s, &c));
        }
    return within_one(s, BY_MOVE);
}
const struct ha_op ha_op_move = {
    .name = "move",
    .whole = true,
    .doc = "rows by index, the index as it is when the move runs",
    .needs = { HA_OP_ENTRY(move) },
    .judge = judge_move,
    .keys = "dst src dst_at src_at rows width dst_gap src_gap dst_index src_index pattern spread",
    .pairs = "dst = device mapped\nsrc = device mapped\n"
             "dst_at = 0 1 8 28 64\nsrc_at = 0 2 8 20 65\n"
             "rows = 31 0 1 33 129 1000\nwidth = 4 0 1 7 24 64 128 1153\n"
             "dst_gap = 0 1 8 16\nsrc_gap = 0 1 8 64\n"
             "dst_index = none device mapped\nsrc_index = none device mapped\n"
             "pattern = ascending descending shuffled repeats\nspread = 1 2 4\n",
    .values = "dst_at = " SHIFTS "src_at = " SHIFTS "rows = " NUMBERS "width = " NUMBERS "dst_gap = " GAPS
              "src_gap = " GAPS,
    .once = move_once,
    .unfit = ha_op_unfit_kernel,
};

/* ---- read -------------------------------------------------------------------------------------------------------- */

/* What is read arrives behind the gate, and what is left is seen by a copy behind it. */
static enum ha_status read_case(struct ha_op_stage *s, const struct ha_op_case *c)
{
    const size_t first = c->src_at / 4 * 4, bytes = c->size / 4 * 4, at = c->dst_at / 4 * 4;
    ha_op_clear(s);
    struct ha_op_block *x = ha_op_block(s, (enum ha_op_place)c->src, first + bytes + GUARD),
                       *sum = x ? ha_op_block(s, HA_OP_DEVICE, at + 128) : NULL;
    if (!sum) return HA_ERROR;
    HA_TRY(ha_op_fill(s, x, 0, x->bytes));
    HA_TRY(ha_op_fill(s, sum, 0, sum->bytes));
    uint32_t want, word;
    memcpy(&want, sum->image + at, sizeof want);
    for (size_t i = 0; i < bytes; i += sizeof word) {
        memcpy(&word, x->image + first + i, sizeof word);
        want += word;
    }
    memcpy(sum->image + at, &want, sizeof want);
    const char *due;
    HA_TRY(ha_op_arrive(s, &x, 1, sum));
    const enum ha_status asked = s->api->read(s->stream[0], x->at + first, bytes, (uint32_t *)(void *)(sum->at + at));
    HA_TRY(ha_op_follow(s, "read", asked, sum, &due));
    s->cases++;
    if (!memcmp(due, sum->image, sum->bytes)) return HA_OK;
    memcpy(&word, sum->image + at, sizeof word);
    return ha_op_wrong(s, "read of %zu bytes of %s memory from byte %zu on: the sum is 0x%08x, want 0x%08x%s", bytes,
                       ha_op_place_name(x->place), first, word, want,
                       word == want ? ", and what is beside it changed" : "");
}

static enum ha_status judge_read(struct ha_op_stage *s)
{
    for (size_t power = 4096, i = 0; power <= s->most; power *= 4, i++) {
        struct ha_op_case c = { .src = i % 2 ? HA_OP_MAPPED : HA_OP_DEVICE, .size = power };
        if (power <= 1 << 20) HA_TRY(read_case(s, &c));
        c.size -= 4 + 4 * ha_op_draw(s, power / 16);
        c.src_at = 4 * ha_op_draw(s, 17);
        HA_TRY(read_case(s, &c));
    }
    return HA_OK;
}
const struct ha_op ha_op_read = {
    .name = "read",
    .whole = true,
    .doc = "the sum of all words that are read",
    .needs = { HA_OP_ENTRY(read) },
    .judge = judge_read,
    .keys = "src size src_at dst_at",
    .pairs = "src = device mapped\nsrc_at = 0 4 8 36 64 68\ndst_at = 0 4 60\n"
             "size = 64 0 4 8 12 16 20 60 68 124 128 132 252 256 260 1020 1028 4092 4100\n",
    .values = "size = 0..1100:4 4092..4100:4 8192 12288 16384 65532..65540:4 98304 262144 1048576 4194308\n",
    .once = read_case,
    .unfit = ha_op_unfit_kernel,
};
