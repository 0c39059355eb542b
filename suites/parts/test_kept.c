/* First and last tokens on the device: whatever comes, and in whatever pieces, rows 0 to the last are these and no
 * others. */

#include "suites/parts/kept.h"
#include "suites/parts/test_instance.h"

enum { HEADS = 2, DIM = 4, ROW = HEADS * DIM, TOKENS = 130, LAST = TOKENS - 1 };

static const struct ha_rule nothing = { .seq_bytes = 0 };
static struct ha_shape shape;
static struct ha_kv all; /* device: token t has t in each number of K, and -t in V */

static void begin(size_t ctx)
{
    float stage[TOKENS * ROW];
    shape = (struct ha_shape){ .layers = 1,
                               .batch = 1,
                               .q_heads = HEADS,
                               .kv_heads = HEADS,
                               .head_dim = DIM,
                               .dtype = HA_F32,
                               .ctx = { ctx },
                               .q_len = 1,
                               .steps = LAST - ctx };
    open_context(&ha_device_host, &shape, &nothing);
    all = (struct ha_kv){ HA_MEM_DEVICE, memory_of(HA_MEM_DEVICE, sizeof stage), memory_of(HA_MEM_DEVICE, sizeof stage),
                          TOKENS };
    for (size_t i = 0; i < COUNT(stage); i++) stage[i] = (float)(i / ROW);
    move(all.k, stage, sizeof stage, HA_H2D);
    for (size_t i = 0; i < COUNT(stage); i++) stage[i] = -stage[i];
    move(all.v, stage, sizeof stage, HA_H2D);
}

/* What there is after so many tokens: each token that is kept in one row, and in no other. */
static void check(const struct ha_kept *k, size_t sink, size_t recent, size_t tokens)
{
    size_t row_of[TOKENS], wanted = 0;
    const struct ha_rows rows = ha_kept_rows(&shape, k, tokens);
    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
    for (size_t t = 0; t < TOKENS; t++) row_of[t] = SIZE_MAX;
    for (size_t i = 0; i < rows.keys; i++) {
        const float *key = (const float *)(const void *)((const char *)rows.k + i * rows.k_stride_bytes),
                    *value = (const float *)(const void *)((const char *)rows.v + i * rows.v_stride_bytes);
        const size_t t = (size_t)key[0];
        for (size_t d = 0; d < ROW; d++)
            if (key[d] != (float)t || value[d] != -(float)t)
                fail_msg("row %zu: %g, %g", i, (double)key[d], (double)value[d]);
        assert_true(t < TOKENS && row_of[t] == SIZE_MAX);
        row_of[t] = i;
        if (t < sink) assert_int_equal(i, t);
    }
    for (size_t t = 0; t < tokens; t++) {
        const bool is = t < sink || t + recent >= tokens;
        wanted += is;
        if (is != (row_of[t] != SIZE_MAX))
            fail_msg("%zu + %zu of %zu: token %zu is %s", sink, recent, tokens, t, is ? "missing" : "there");
    }
    assert_int_equal(rows.keys, wanted);
    for (size_t t = tokens; t < TOKENS; t++) assert_int_equal(row_of[t], SIZE_MAX);

    struct ha_positions used = { .token = NULL };
    ok(ha_kept_use(&mine.ctx, k, tokens, 3, &used, &why));
    assert_int_equal(used.count, wanted + 3);
    for (size_t i = 0; i < used.count; i++) {
        const size_t t = used.token[i];
        assert_true(t < tokens + 3 && (t >= tokens || row_of[t] != SIZE_MAX));
        assert_true(i == 0 || t > used.token[i - 1]);
    }
}

/* A prefill in pieces, steps, and back to the prefill. */
static void walk(size_t sink, size_t recent, size_t ctx, size_t piece, size_t step)
{
    struct ha_kept k;
    begin(ctx);
    ok(ha_kept_create(&mine.ctx, sink, recent, 0, &k, &why));
    for (int again = 0; again < 2; again++) {
        for (size_t t = 0, n; t < ctx && !again; t += n) {
            n = ha_least(piece, ctx - t);
            ok(ha_kept_put(&mine.ctx, &k, &all, t, t, n, ctx));
        }
        if (again) ok(ha_kept_rewind(&mine.ctx, &k, &all, ctx));
        check(&k, sink, recent, ctx);
        for (size_t t = ctx + step; t <= ctx + 60 && t < LAST; t += step) {
            ok(ha_kept_put(&mine.ctx, &k, &all, t - step, t - step, step, t));
            check(&k, sink, recent, t);
        }
    }
    close_instance();
}

TEST(first_and_last_tokens_are_kept)
{
    static const struct {
        size_t sink, recent;
    } of[] = { { 4, 8 }, { 0, 7 }, { 5, 0 }, { 0, 0 }, { 1, 1 }, { 40, 3 }, { 200, 5 }, { 3, 200 } };
    static const size_t ctx[] = { 0, 1, 4, 11, 12, 13, 50 }, pieces[] = { 1, 5, 64 }, steps[] = { 1, 3, 20 };
    for (size_t i = 0; i < COUNT(of); i++)
        for (size_t c = 0; c < COUNT(ctx); c++)
            for (size_t j = 0; j < COUNT(pieces); j++) walk(of[i].sink, of[i].recent, ctx[c], pieces[j], steps[j]);
}

/* Of more tokens than there are recent ones the last of them alone come. */
TEST(the_window_begins_behind_the_sinks)
{
    const struct ha_kept k = { .sink = 4, .recent = 8 };
    static const size_t tokens[] = { 0, 3, 4, 5, 11, 12, 13, 40 }, window[] = { 0, 3, 4, 4, 4, 4, 5, 32 };
    for (size_t i = 0; i < COUNT(tokens); i++) assert_int_equal(ha_kept_window(&k, tokens[i]), window[i]);
}

/* Entries of a list are of tokens behind the sinks, where the rest of a store begins; attention reads what is kept, and
 * the step's own tokens. */
TEST(the_rest_begins_behind_the_sinks)
{
    static const uint32_t entry[] = { 0, 3, 4 };
    static const size_t sinks[] = { 0, 5, TOKENS + 1 };
    for (size_t i = 0; i < COUNT(sinks); i++) {
        size_t tokens = 20;
        struct ha_positions used = { .token = NULL };
        struct ha_kept k;
        begin(20);
        ok(ha_kept_create(&mine.ctx, sinks[i], 7, 0, &k, &why));
        const size_t least = ha_least(sinks[i], TOKENS), token = ROW * sizeof(float);
        const struct ha_kv rest = ha_kept_rest(&shape, &k, &all);
        assert_true(rest.memory == all.memory && rest.cap == TOKENS - least);
        assert_true(rest.k == all.k + least * token && rest.v == all.v + least * token);

        ok(ha_kept_use_listed(&mine.ctx, &k, entry, COUNT(entry), 8, &used, &why));
        assert_int_equal(used.count, 3 * 8);
        for (size_t j = 0; j < used.count; j++) assert_int_equal(used.token[j], sinks[i] + entry[j / 8] * 8 + j % 8);

        const struct ha_layer layer = { .ctx = &mine.ctx, .tokens = &tokens };
        const struct ha_step step = { .k = all.k, .v = all.v, .q_len = 1 };
        struct ha_device_seq d = { .runs_count = 1 };
        ha_kept_device(&layer, &k, &step, 0, &d);
        assert_int_equal(d.runs_count, 3);
        assert_true(d.runs[1].k == k.kv.k && d.runs[1].v == k.kv.v && d.runs[1].keys == ha_least(sinks[i] + 7, 20));
        assert_true(d.runs[2].k == all.k && d.runs[2].v == all.v && d.runs[2].keys == 1);
        close_instance();
    }
}

TEST(what_has_left_the_window)
{
    for (size_t i = 0; i < 10 * 10 * 30; i++) {
        const size_t sink = i % 10, recent = i / 10 % 10, tokens = i / 100;
        size_t left = 0;
        for (size_t t = 0; t < tokens; t++) left += t >= sink && t + recent < tokens;
        assert_int_equal(ha_kept_gone(sink, recent, tokens), left);
    }
}
