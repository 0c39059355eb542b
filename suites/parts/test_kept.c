/* What is kept, and the pool of vectors, against which tokens they should have: in any chunks, of any lengths. */

#include "suites/parts/kept.h"
#include "suites/parts/test_instance.h"
#include "suites/parts/vectors.h"

#include <string.h>

enum { HEADS = 3, DIM = 2, MOST = 64 };

static const struct ha_rule no_rule = { .shared_bytes = 1 };
static struct ha_shape shape(size_t ctx, size_t steps)
{
    return (struct ha_shape){ .layers = 1,
                              .batch = 1,
                              .q_len = 1,
                              .steps = steps,
                              .q_heads = HEADS,
                              .kv_heads = HEADS,
                              .head_dim = DIM,
                              .dtype = HA_F32,
                              .scale = 1,
                              .ctx = { ctx } };
}

static float number(size_t token, size_t head, size_t d, bool v)
{
    return (float)(1 + token * 16 + head * DIM + d) * (v ? -1 : 1);
}

/* tokens [first, first + count) on the device, token-major, behind 2 rows of something else */
static struct ha_kv tokens_of(size_t first, size_t count)
{
    const size_t bytes = (count + 2) * HEADS * DIM * sizeof(float);
    struct ha_kv kv = { HA_MEM_DEVICE, memory_of(HA_MEM_DEVICE, bytes), memory_of(HA_MEM_DEVICE, bytes), count + 2 };
    for (int v = 0; v < 2; v++) {
        float x[(MOST + 2) * HEADS * DIM] = { 0 };
        for (size_t i = 0; i < count * HEADS * DIM; i++)
            x[2 * HEADS * DIM + i] = number(first + i / (HEADS * DIM), i / DIM % HEADS, i % DIM, v);
        move(v ? kv.v : kv.k, x, bytes, HA_H2D);
    }
    return kv;
}

static size_t token_at(const float *x, size_t head, bool v)
{
    const size_t token = (size_t)((x[0] * (v ? -1.0f : 1.0f) - 1) / 16);
    for (size_t d = 0; d < DIM; d++) assert_true(x[d] == number(token, head, d, v));
    return token;
}

/* Of so many tokens the rows hold the sinks and the last ones, each once, K and V. */
static void assert_kept(const struct ha_kept *k, size_t tokens)
{
    const struct ha_rows rows = ha_kept_rows(mine.ctx.shape, k, tokens);
    bool seen[2][MOST] = { { false } };
    for (size_t i = 0; i < rows.keys; i++)
        for (size_t h = 0; h < HEADS; h++)
            for (int v = 0; v < 2; v++) {
                float x[DIM];
                const char *at = v ? rows.v : rows.k;
                move(x, at + i * rows.k_stride_bytes + h * DIM * sizeof *x, sizeof x, HA_D2H);
                const size_t token = token_at(x, h, v);
                if (h == 0) assert_false(seen[v][token]);
                seen[v][token] = true;
            }
    for (size_t t = 0; t < MOST; t++) {
        const bool want = t < tokens && (t < k->sink || t + k->recent >= tokens);
        assert_true(seen[0][t] == want && seen[1][t] == want);
    }
    struct ha_positions used = { NULL };
    ok(ha_kept_use(&mine.ctx, k, tokens, 2, &used, &why));
    assert_int_equal(used.count, rows.keys + 2);
    assert_int_equal(used.token[used.count - 1], tokens + 1);
}

TEST(sinks_and_recent_tokens)
{
    static const struct {
        size_t sink, recent, ctx, chunk;
    } cases[] = { { 4, 8, 20, 20 }, { 4, 8, 3, 1 }, { 4, 8, 0, 3 },  { 0, 5, 11, 4 },
                  { 3, 0, 10, 7 },  { 0, 0, 6, 2 }, { 5, 7, 12, 5 }, { 2, 30, 9, 9 } };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct ha_shape s = shape(cases[i].ctx, 24);
        struct ha_kept k;
        open_instance(&s, &no_rule);
        ok(ha_kept_create(&mine.ctx, cases[i].sink, cases[i].recent, 0, &k, &why));
        const size_t all = s.ctx[0] + 24;
        for (size_t t = 0, n; t < all; t += n) {
            n = t < s.ctx[0] ? ha_least(cases[i].chunk, s.ctx[0] - t) : ha_least(cases[i].chunk, all - t);
            const size_t tokens = t < s.ctx[0] ? s.ctx[0] : t + n; /* a prefill knows its end */
            const struct ha_kv src = tokens_of(t, n);
            ok(ha_kept_put(&mine.ctx, &k, &src, 2, t, n, tokens));
            if (t + n >= s.ctx[0]) assert_kept(&k, t + n);
        }
        close_instance();
    }
}

TEST(vectors_of_each_head)
{
    static const size_t units[] = { 1, 4 };
    const struct ha_shape s = shape(30, 1);
    for (size_t i = 0; i < COUNT(units); i++) {
        const size_t unit = units[i], rows[HEADS] = { 2 * unit, 5 * unit, 5 * unit };
        static const bool mark[HEADS] = { false, true, true };
        struct ha_vectors v;
        open_instance(&s, &no_rule);
        ok(ha_vectors_create(&mine.ctx, unit, rows, &v, &why));
        for (size_t h = 0; h < HEADS; h++) {
            assert_int_equal((v.first[h] - h) % unit, 0);
            assert_int_equal(ha_vectors_entry(&v, h) * unit + h, v.first[h]);
            assert_true(h == 0 || v.first[h] >= v.first[h - 1] + rows[h - 1]);
            assert_true(v.first[h] + rows[h] <= v.kv.cap);
        }
        const struct ha_kv src = tokens_of(0, 5);
        ok(ha_vectors_put(&mine.ctx, &v, mark, &src, 2, 0, 4));     /* tokens of a head by one copy */
        ok(ha_vectors_put(&mine.ctx, &v, mark, &src, 2 + 4, 4, 1)); /* heads of a token */
        for (size_t h = 1; h < HEADS; h++)
            for (size_t t = 0; t < 5; t++)
                for (int of = 0; of < 2; of++) {
                    float x[DIM];
                    move(x, (of ? v.kv.v : v.kv.k) + (v.first[h] + t) * sizeof x, sizeof x, HA_D2H);
                    assert_int_equal(token_at(x, h, of), t);
                }
        const struct ha_kv back = tokens_of(40, 3);
        ok(ha_vectors_get(&mine.ctx, &v, 1, &back, 2, 3));
        for (size_t h = 1; h < HEADS; h++)
            for (size_t t = 0; t < 3; t++) {
                float x[DIM];
                move(x, back.k + ((2 + t) * HEADS + h) * sizeof x, sizeof x, HA_D2H);
                assert_int_equal(token_at(x, h, false), t + 1);
            }
        close_instance();
    }
}

int main(void) { return test_all("kept", NULL, NULL); }
