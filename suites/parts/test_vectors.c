/* Vectors of several KV heads in one pool: what is put there is found again, by row, by `get`, and by attention whose
 * heads lie a vector apart. */

#include "suites/parts/test_instance.h"
#include "suites/parts/vectors.h"

#include <math.h>

enum { HEADS = 5, DIM = 8, TOKENS = 70 };

static const struct ha_rule nothing = { .seq_bytes = 0 };
static struct ha_shape shape;
static struct ha_kv all; /* device: token-major */

static float key(size_t t, size_t head, size_t d) { return (float)(t * 100 + head * 10 + d); }

static void begin(void)
{
    static float stage[TOKENS * HEADS * DIM];
    shape = (struct ha_shape){ .layers = 1,
                               .batch = 1,
                               .q_heads = HEADS,
                               .kv_heads = HEADS,
                               .head_dim = DIM,
                               .dtype = HA_F32,
                               .scale = 1,
                               .ctx = { TOKENS },
                               .q_len = 1,
                               .steps = 1 };
    open_context(&ha_device_host, &shape, &nothing);
    all = (struct ha_kv){ HA_MEM_DEVICE, memory_of(HA_MEM_DEVICE, sizeof stage), memory_of(HA_MEM_DEVICE, sizeof stage),
                          TOKENS };
    for (size_t i = 0; i < COUNT(stage); i++) stage[i] = key(i / DIM / HEADS, i / DIM % HEADS, i % DIM);
    move(all.k, stage, sizeof stage, HA_H2D);
    for (size_t i = 0; i < COUNT(stage); i++) stage[i] = -stage[i];
    move(all.v, stage, sizeof stage, HA_H2D);
}

/* of rows to whom nothing has come */
static void blank(const struct ha_vectors *v)
{
    static float nan[1000 * DIM];
    assert_true(v->kv.cap * DIM <= COUNT(nan));
    for (size_t i = 0; i < COUNT(nan); i++) nan[i] = NAN;
    move(v->kv.k, nan, v->kv.cap * DIM * sizeof *nan, HA_H2D);
    move(v->kv.v, nan, v->kv.cap * DIM * sizeof *nan, HA_H2D);
}

static void assert_row(const struct ha_vectors *v, size_t row, size_t head, size_t token)
{
    const float *k = (const float *)(const void *)v->kv.k + row * DIM,
                *x = (const float *)(const void *)v->kv.v + row * DIM;
    for (size_t d = 0; d < DIM; d++)
        if (k[d] != key(token, head, d) || x[d] != -key(token, head, d))
            fail_msg("row %zu of head %zu: %g, %g, not token %zu", row, head, (double)k[d], (double)x[d], token);
}

static const size_t wanted[][HEADS] = {
    { 32, 32, 32, 32, 32 }, { 70, 16, 0, 70, 32 }, { 0, 0, 0, 0, 0 }, { 0, 70, 5, 0, 1 }, { 1, 1, 1, 1, 1 }
};

/* A head's vectors are its own, and lists of all heads can name them. */
TEST(each_head_has_its_rows)
{
    for (size_t unit = 1; unit <= 16; unit += 15)
        for (size_t i = 0; i < COUNT(wanted); i++) {
            struct ha_vectors v;
            begin();
            ok(ha_vectors_create(&mine.ctx, unit, wanted[i], &v, &why));
            size_t end = 0;
            for (size_t h = 0; h < HEADS; h++) {
                assert_true(v.first[h] >= end);
                assert_int_equal(ha_vectors_entry(&v, h) * unit + h, v.first[h]);
                end = v.first[h] + wanted[i][h];
            }
            /* a list of no rows may name the entry that they would begin with */
            for (size_t h = 0; h < HEADS; h++) assert_true(v.first[h] + unit <= v.kv.cap);
            assert_true(end <= v.kv.cap);
            close_instance();
        }
}

/* Of marked heads, by many tokens or by one at a time, and nothing else. */
static void put_and_look(const size_t *rows, size_t unit, const bool *mark, size_t piece, size_t tokens)
{
    struct ha_vectors v;
    size_t written = 0, there = 0;
    begin();
    ok(ha_vectors_create(&mine.ctx, unit, rows, &v, &why));
    blank(&v);
    for (size_t t = 0, n; t < tokens; t += n) {
        n = ha_least(piece, tokens - t);
        ok(ha_vectors_put(&mine.ctx, &v, mark, &all, t, t, n));
    }
    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
    for (size_t h = 0; h < HEADS; h++)
        for (size_t t = 0; mark[h] && t < tokens; t++, written++) assert_row(&v, v.first[h] + t, h, t);
    const float *k = (const float *)(const void *)v.kv.k;
    for (size_t row = 0; row < v.kv.cap; row++) there += isnan(k[row * DIM]) ? 0 : 1;
    assert_int_equal(there, written);
    close_instance();
}

TEST(marked_heads_get_their_tokens)
{
    static const bool marks[][HEADS] = { { true, true, true, true, true },
                                         { true, false, false, true, false },
                                         { false, true, true, false, true },
                                         { false, false, true, true, true },
                                         { false } };
    static const size_t even[HEADS] = { 40, 40, 40, 40, 40 }, uneven[HEADS] = { 40, 61, 40, 43, 70 };
    static const size_t pieces[] = { 1, 7, 40 };
    for (size_t unit = 1; unit <= 16; unit += 15)
        for (size_t i = 0; i < COUNT(marks); i++)
            for (size_t j = 0; j < COUNT(pieces); j++) {
                put_and_look(even, unit, marks[i], pieces[j], 40);
                put_and_look(uneven, unit, marks[i], pieces[j], 40);
            }
}

TEST(what_was_put_comes_back)
{
    static const size_t rows[HEADS] = { 70, 70, 70, 70, 70 };
    static const bool every[HEADS] = { true, true, true, true, true };
    struct ha_vectors v;
    begin();
    ok(ha_vectors_create(&mine.ctx, 16, rows, &v, &why));
    ok(ha_vectors_put(&mine.ctx, &v, every, &all, 0, 0, TOKENS));
    const struct ha_kv to = { HA_MEM_DEVICE, memory_of(HA_MEM_DEVICE, TOKENS * HEADS * DIM * sizeof(float)),
                              memory_of(HA_MEM_DEVICE, TOKENS * HEADS * DIM * sizeof(float)), TOKENS };
    ok(ha_vectors_get(&mine.ctx, &v, 3, &to, 5, 60));
    ok(ha_vectors_get(&mine.ctx, &v, 0, &to, 0, 0));
    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
    const size_t token = HEADS * DIM * sizeof(float);
    assert_memory_equal(to.k + 5 * token, all.k + 3 * token, 60 * token);
    assert_memory_equal(to.v + 5 * token, all.v + 3 * token, 60 * token);

    /* all heads are as long: the first one's rows, and how far the next one's are */
    size_t apart;
    const struct ha_rows first = ha_vectors_rows(&shape, &v, &apart);
    for (size_t h = 0; h < HEADS; h++)
        assert_ptr_equal((const char *)first.k + h * apart, v.kv.k + v.first[h] * ha_kv_head_bytes(&shape));
    close_instance();
}

/* By queries of zeros the output is the mean of the values that a head's list names. */
TEST(attention_reads_in_place)
{
    enum { UNIT = 16, LISTS = 3 };
    static const size_t rows[HEADS] = { 32, 48, 16, 0, 64 };
    static const bool every[HEADS] = { true, true, true, false, true };
    static const uint32_t named[HEADS][LISTS] = { { 1, 0 }, { 2, 0, 1 }, { 0 }, { 0 }, { 3, 1 } };
    static const uint32_t entries[HEADS] = { 2, 3, 1, 0, 2 };
    for (size_t unit = 1; unit <= UNIT; unit += UNIT - 1) {
        struct ha_vectors v;
        uint32_t list[HEADS][LISTS] = { { 0 } }, keys[HEADS];
        float q[HEADS * DIM] = { 0 }, o[HEADS * DIM];
        begin();
        ok(ha_vectors_create(&mine.ctx, unit, rows, &v, &why));
        blank(&v);
        for (size_t h = 0; h < HEADS; h++) { /* a head's rows alone */
            bool mark[HEADS] = { false };
            mark[h] = every[h];
            ok(ha_vectors_put(&mine.ctx, &v, mark, &all, h, 0, rows[h]));
            for (size_t i = 0; i < LISTS; i++) list[h][i] = ha_vectors_entry(&v, h) + named[h][i];
            keys[h] = entries[h] * (uint32_t)unit;
        }
        uint32_t *device_list = memory_of(HA_MEM_DEVICE, sizeof list),
                 *device_keys = memory_of(HA_MEM_DEVICE, sizeof keys);
        float *device_q = memory_of(HA_MEM_DEVICE, sizeof q), *device_o = memory_of(HA_MEM_DEVICE, sizeof o),
              *lse = memory_of(HA_MEM_DEVICE, HEADS * sizeof *lse);
        move(device_list, list, sizeof list, HA_H2D);
        move(device_keys, keys, sizeof keys, HA_H2D);
        move(device_q, q, sizeof q, HA_H2D);
        struct ha_device_seq seq = { .q = device_q,
                                     .o = device_o,
                                     .lse = lse,
                                     .k_head_bytes = ha_kv_head_bytes(&shape),
                                     .v_head_bytes = ha_kv_head_bytes(&shape),
                                     .list_stride = LISTS,
                                     .list_keys = device_keys,
                                     .runs_count = 1 };
        seq.runs[0] = ha_vectors_run(&shape, &v);
        seq.runs[0].index = device_list;
        seq.runs[0].keys = LISTS * unit;
        ok(mine.ctx.api->attend(mine.ctx.stream, &(struct ha_device_attend){ .batch = 1,
                                                                             .q_len = 1,
                                                                             .q_heads = HEADS,
                                                                             .kv_heads = HEADS,
                                                                             .head_dim = DIM,
                                                                             .dtype = HA_F32,
                                                                             .scale = 1,
                                                                             .seqs = &seq,
                                                                             .block = unit,
                                                                             .lists = HEADS }));
        move(o, device_o, sizeof o, HA_D2H);
        for (size_t h = 0; h < HEADS; h++)
            for (size_t d = 0; d < DIM && keys[h]; d++) {
                double mean = 0;
                for (size_t i = 0; i < keys[h]; i++)
                    mean -= (double)key(h + named[h][i / unit] * unit + i % unit, h, d) / (double)keys[h];
                if (!(fabs((double)o[h * DIM + d] - mean) <= 1e-3))
                    fail_msg("blocks of %zu, head %zu: %g, not %g", unit, h, (double)o[h * DIM + d], mean);
            }
        close_instance();
    }
}
