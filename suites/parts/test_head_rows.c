/* Rows of heads: what is loaded or put lies head by head where it belongs, and nothing beside it changes. */

#include "suites/parts/head_rows.h"
#include "suites/parts/test_instance.h"

#include "harness/base/numeric.h"

enum { HEADS = 3, DIM = 4, BESIDE = 0xA5 };

static const struct ha_rule nothing = { .seq_bytes = 0 };
static struct ha_shape shape;
static struct ha_head_rows rows;

static size_t row_bytes(void) { return DIM * ha_dtype_bytes(shape.dtype); }
static size_t all_bytes(void) { return HEADS * rows.cap * row_bytes(); }

/* what a byte of a token of a head is, never BESIDE */
static unsigned char byte_of(size_t head, size_t token, size_t i)
{
    const size_t x = (head * 7919 + token * 31 + i * 3) % 251;
    return (unsigned char)(x == BESIDE ? 252 : x);
}

static void begin(enum ha_memory memory, enum ha_dtype type, size_t ctx)
{
    shape = (struct ha_shape){ .layers = 1,
                               .batch = 2,
                               .q_heads = HEADS,
                               .kv_heads = HEADS,
                               .head_dim = DIM,
                               .dtype = type,
                               .ctx = { 1, ctx },
                               .q_len = 3,
                               .steps = 2 };
    open_context(&ha_device_host, &shape, &nothing);
    ok(ha_head_rows_create(&mine.ctx, memory, 1, &rows, &why));
    unsigned char *beside = malloc(all_bytes());
    memset(beside, BESIDE, all_bytes());
    if (memory == HA_MEM_DEVICE) move(rows.at, beside, all_bytes(), HA_H2D);
    else memcpy(rows.at, beside, all_bytes());
    free(beside);
}

/* Rows [at, at + count) of each head are tokens `first` and on. */
static void end(size_t at, size_t first, size_t count)
{
    unsigned char *there = malloc(all_bytes());
    if (rows.memory == HA_MEM_DEVICE) move(there, rows.at, all_bytes(), HA_D2H);
    else memcpy(there, rows.at, all_bytes());
    for (size_t i = 0; i < all_bytes(); i++) {
        const size_t row = i / row_bytes() % rows.cap, head = i / row_bytes() / rows.cap;
        const bool is = row >= at && row < at + count;
        const unsigned char wanted = is ? byte_of(head, first + row - at, i % row_bytes()) : BESIDE;
        if (there[i] != wanted) fail_msg("head %zu row %zu is %d, not %d", head, row, there[i], wanted);
    }
    free(there);
    close_instance();
}

TEST(there_is_room_for_all_that_a_sequence_can_reach)
{
    for (size_t type = 0; type < 3; type++) {
        begin(HA_MEM_DEVICE, (enum ha_dtype)type, 10);
        assert_int_equal(rows.cap, 10 + 2 * 3);
        assert_int_equal(rows.head_bytes, 16 * row_bytes());
        assert_true(rows.memory == HA_MEM_DEVICE);
        end(0, 0, 0);
    }
}

/* Pieces of tasks of the pool, and one less and one more. */
TEST(a_prefill_comes_head_by_head)
{
    static const struct {
        size_t at, first, count;
    } of[] = { { 0, 0, 0 },    { 0, 0, 1 },    { 3, 5, 1 },    { 2, 1, 4095 },
               { 0, 0, 4096 }, { 1, 2, 4097 }, { 0, 3, 8192 }, { 9, 0, 8193 } };
    enum { CTX = 8200, CAP = 8210 };
    for (size_t i = 0; i < 2 * COUNT(of); i++) {
        const size_t at = of[i / 2].at, first = of[i / 2].first, count = of[i / 2].count;
        begin(i % 2 ? HA_MEM_DEVICE : HA_MEM_PINNED, (enum ha_dtype)(i % 3), CTX);
        const size_t row = row_bytes();
        unsigned char *from = malloc(HEADS * CAP * row);
        for (size_t j = 0; j < HEADS * CAP * row; j++) from[j] = byte_of(j / row / CAP, j / row % CAP, j % row);
        ok(ha_head_rows_load(&mine.ctx, &rows, at, from, CAP, first, count));
        free(from);
        end(at, first, count);
    }
}

/* Up to the last row that there is. */
TEST(new_tokens_come_head_by_head)
{
    enum { FROM = 4 };
    for (size_t i = 0; i < 2 * 3 * 4; i++) {
        const size_t count = i / 6;
        begin(i % 2 ? HA_MEM_DEVICE : HA_MEM_PINNED, (enum ha_dtype)(i / 2 % 3), 10);
        const size_t row = row_bytes();
        unsigned char from[FROM * HEADS * DIM * sizeof(float)], *there = memory_of(HA_MEM_DEVICE, sizeof from);
        for (size_t j = 0; j < FROM * HEADS * row; j++) from[j] = byte_of(j / row % HEADS, j / row / HEADS, j % row);
        move(there, from, FROM * HEADS * row, HA_H2D);
        ok(ha_head_rows_put(&mine.ctx, mine.ctx.stream, &rows, rows.cap - count, there, count));
        ok(mine.ctx.api->stream_sync(mine.ctx.stream));
        end(rows.cap - count, 0, count);
    }
}
