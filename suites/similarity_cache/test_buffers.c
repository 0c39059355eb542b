/* Buffers and whole heads of one layer: through a prefill in pieces, steps, and back, every token of a whole head is
 * where its list says, the kept ones are where attention reads them, and attention over lists is attention over the
 * tokens that they name; what a list has read is said in tokens, and what cannot be a list is refused. */

#include "suites/similarity_cache/buffers.h"
#include "suites/parts/test_instance.h"

enum { BATCH = 2, HEADS = 3, LISTS = BATCH * HEADS, DIM = 8, ROW = HEADS * DIM, CONTEXT = 70, STEPS = 10 };
enum { TOKENS = CONTEXT + STEPS, SINK = 3, RECENT = 6, UNITS = 2 };

static const struct ha_rule nothing = { .seq_bytes = 0 };
static struct ha_shape shape;
static struct ha_kv all[BATCH]; /* device */

static float key(size_t b, size_t head, size_t token, size_t d)
{
    return (float)(((b * HEADS + head) * TOKENS + token) * DIM + d);
}

static struct ha_buffers buffers;
static const struct ha_buffers_layer *of;
static void begin(size_t unit, const bool *whole)
{
    static float stage[2][TOKENS * ROW];
    shape = (struct ha_shape){ .layers = 1,
                               .batch = BATCH,
                               .q_heads = HEADS,
                               .kv_heads = HEADS,
                               .head_dim = DIM,
                               .dtype = HA_F32,
                               .scale = 1,
                               .ctx = { CONTEXT, CONTEXT - 20 },
                               .q_len = 1,
                               .steps = STEPS };
    open_context(&ha_device_host, &shape, &nothing);
    for (size_t b = 0; b < BATCH; b++) {
        for (size_t i = 0; i < TOKENS * ROW; i++) stage[0][i] = key(b, i / DIM % HEADS, i / ROW, i % DIM);
        for (size_t i = 0; i < TOKENS * ROW; i++) stage[1][i] = -stage[0][i];
        ok(ha_kv_create(&mine.ctx, HA_MEM_DEVICE, TOKENS, &all[b], &why));
        move(all[b].k, stage[0], sizeof stage[0], HA_H2D);
        move(all[b].v, stage[1], sizeof stage[1], HA_H2D);
    }
    const struct ha_buffers_rule rule = {
        .unit = unit, .list_max = 5, .sink = SINK, .recent = RECENT, .memory = HA_MEM_MAPPED
    };
    ok(ha_buffers_create(&buffers, &mine.ctx, &rule, whole, &why));
    of = buffers.layer;
    for (size_t b = 0; b < BATCH; b++) ok(ha_buffers_open(of, b, UNITS, &why));
}

/* A row of one head, in device memory, is of this token. */
static void assert_vector(const unsigned char *k, const unsigned char *v, size_t b, size_t head, size_t token)
{
    float x[2][DIM];
    move(x[0], k, sizeof *x, HA_D2H);
    move(x[1], v, sizeof *x, HA_D2H);
    for (size_t d = 0; d < DIM; d++)
        if (x[0][d] != key(b, head, token, d) || x[1][d] != -key(b, head, token, d))
            fail_msg("sequence %zu, head %zu: %g, not token %zu", b, head, (double)x[0][d], token);
}

/* Of so many tokens: whole heads by the entries of their lists, the kept ones by token. */
static void check(size_t b, size_t tokens)
{
    const struct ha_buffers_seq *seq = &of->seq[b];
    const struct ha_rows rows = ha_vectors_run(&shape, &seq->pool), kept = ha_kept_rows(&shape, &seq->kept, tokens);
    const size_t unit = buffers.rule.unit, row = DIM * sizeof(float);
    for (size_t h = 0; h < HEADS; h++)
        for (size_t t = SINK; t < tokens && of->whole[h]; t++) {
            /* a list of head h counts from vector h on */
            const size_t at = h + ha_vectors_entry(&seq->pool, h) * unit + t - SINK;
            assert_vector((const unsigned char *)rows.k + at * row, (const unsigned char *)rows.v + at * row, b, h, t);
        }
    for (size_t t = 0; t < tokens; t++) {
        if (t >= SINK && t + RECENT < tokens) continue;
        const size_t at = t < SINK ? t : SINK + (t - SINK) % RECENT;
        for (size_t h = 0; h < HEADS; h++)
            assert_vector((const unsigned char *)kept.k + at * kept.k_stride_bytes + h * row,
                          (const unsigned char *)kept.v + at * kept.v_stride_bytes + h * row, b, h, t);
    }
}

/* K of the first head that has all of its keys in one place, and of the next ones. */
static void check_keys(size_t b, size_t tokens)
{
    size_t apart;
    const struct ha_rows rows = ha_buffers_keys(of, b, &apart);
    for (size_t h = 0; h < HEADS; h++)
        for (size_t t = SINK; t < tokens; t++) {
            float x;
            const unsigned char *at = (const unsigned char *)rows.k + h * apart + (t - SINK) * rows.k_stride_bytes;
            if (ha_buffers_any(of)) memcpy(&x, at, sizeof x);
            else move(&x, at, sizeof x, HA_D2H);
            assert_true(x == key(b, h, t, 0));
        }
}

static const bool wholes[][HEADS] = {
    { true, false, true }, { false, false, false }, { true, true, true }, { false, true, false }
};

TEST(tokens_are_where_they_are_read)
{
    static const size_t pieces[] = { 1, 9, CONTEXT };
    for (size_t i = 0; i < COUNT(wholes) * COUNT(pieces) * 2; i++) {
        begin(i % 2 ? 16 : 1, wholes[i / 2 % COUNT(wholes)]);
        for (size_t b = 0; b < BATCH; b++) {
            const size_t ctx = shape.ctx[b], piece = pieces[i / 2 / COUNT(wholes)];
            for (size_t t = 0, n; t < ctx; t += n) {
                n = ha_least(piece, ctx - t);
                ok(ha_buffers_put(of, b, &all[b], t, t, n, ctx));
            }
            if (ha_buffers_any(of)) ok(ha_kv_copy(&mine.ctx, mine.ctx.stream, &of->seq[b].store, 0, &all[b], 0, ctx));
            check(b, ctx);
            check_keys(b, ctx);
            for (size_t t = ctx; t < ctx + STEPS; t++) {
                ok(ha_buffers_put(of, b, &all[b], t, t, 1, t + 1));
                check(b, t + 1);
            }
            ok(ha_buffers_rewind(of, b, ctx));
            check(b, ctx);
        }
        close_instance();
    }
}

/* Lists of buffers name all of them, where the pool has them, and those of whole heads what the caller put there. */
TEST(lists_and_what_they_have_read)
{
    for (size_t i = 0; i < COUNT(wholes) * 2; i++) {
        static const uint32_t entry[] = { 1, 2, 0 };
        const size_t unit = i % 2 ? 16 : 1, tokens[BATCH] = { CONTEXT, CONTEXT - 10 };
        uint32_t list[LISTS][5], index[LISTS][5] = { { 0 } }, keys[LISTS], here[LISTS];
        begin(unit, wholes[i / 2]);
        move(list, of->list, sizeof list, HA_D2H);
        move(here, of->here, sizeof here, HA_D2H);
        for (size_t j = 0; j < LISTS; j++) {
            const bool whole = wholes[i / 2][j % HEADS];
            const struct ha_vectors *pool = &of->seq[j / HEADS].pool;
            const uint32_t first = ha_vectors_entry(pool, j % HEADS);
            assert_int_equal(here[j], whole);
            assert_int_equal(j % HEADS + first * unit, pool->first[j % HEADS]);
            for (size_t e = 0; e < 5 && !whole; e++) assert_int_equal(list[j][e], first + (e < UNITS ? e : 0));
            for (size_t e = 0; e < COUNT(entry); e++) list[j][e] = first + entry[e];
            for (size_t e = 0; e < COUNT(entry); e++) index[j][e] = 2 - entry[e];
            keys[j] = (uint32_t)((1 + j % 3) * unit);
        }
        move(of->list, list, sizeof list, HA_H2D);
        ok(ha_buffers_learn(of, index[0], keys, tokens, &why));
        for (size_t j = 0; j < LISTS; j++) {
            struct ha_positions used = { .token = NULL };
            const size_t b = j / HEADS;
            ok(ha_buffers_use(of, b, j % HEADS, keys[j], tokens[b], &used, &why));
            assert_int_equal(used.count, keys[j] + SINK + RECENT + 1);
            for (size_t t = 0; t < keys[j]; t++) {
                const size_t e = wholes[i / 2][j % HEADS] ? entry[t / unit] : 2 - entry[t / unit];
                assert_int_equal(used.token[t], SINK + e * unit + t % unit);
            }
            assert_int_equal(used.token[keys[j]], 0);
            assert_int_equal(used.token[used.count - 1], tokens[b]);
        }
        /* the last that may be chosen, and the next one */
        const size_t may = (tokens[1] - SINK - RECENT) / unit, last = LISTS - 1;
        const bool whole = wholes[i / 2][last % HEADS];
        uint32_t *of_last = whole ? list[last] : index[last];
        of_last[0] = (uint32_t)(may - 1) + (whole ? ha_vectors_entry(&of->seq[1].pool, HEADS - 1) : 0);
        move(of->list, list, sizeof list, HA_H2D);
        ok(ha_buffers_learn(of, index[0], keys, tokens, &why));
        of_last[0]++;
        move(of->list, list, sizeof list, HA_H2D);
        assert_int_equal(ha_buffers_learn(of, index[0], keys, tokens, &why), HA_ERROR);
        assert_non_null(strstr(why.text, "keys that the device chose: entry 0 of a list is "));
        keys[0] = (uint32_t)(6 * unit);
        assert_int_equal(ha_buffers_learn(of, index[0], keys, tokens, &why), HA_ERROR);
        assert_string_equal(why.text, "keys that the device chose: a list of 6, of which there are at most 5");
        close_instance();
    }
}

TEST(attention_reads_lists_and_kept_tokens)
{
    size_t tokens[BATCH] = { CONTEXT, CONTEXT - 20 };
    begin(16, wholes[0]);
    uint32_t *keys = memory_of(HA_MEM_DEVICE, LISTS * sizeof *keys);
    const struct ha_layer layer = { .ctx = &mine.ctx, .tokens = tokens };
    const struct ha_step step = { .k = all[0].k, .v = all[0].v, .q_len = 1 };
    for (size_t b = 0; b < BATCH; b++) {
        struct ha_device_seq d = { .runs_count = 0 };
        ha_buffers_device(of, &layer, &step, b, keys, &d);
        assert_true(d.runs_count == 3 && d.list_stride == 5 && d.list_keys == keys + b * HEADS);
        assert_true(d.runs[0].k == of->seq[b].pool.kv.k && d.runs[0].v == of->seq[b].pool.kv.v);
        assert_true(d.runs[0].index == of->list + b * HEADS * 5 && d.runs[0].keys == 5 * 16);
        assert_true(d.runs[1].k == of->seq[b].kept.kv.k && d.runs[1].keys == SINK + RECENT);
        assert_true(d.runs[2].keys == 1);
    }
    close_instance();
}
