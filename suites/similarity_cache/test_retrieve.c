/* Keys by an index of them: the choice is that of plain loops over all keys. Numbers are small and whole, so that
 * norms, scores and digests are exact, and many are equal. */

#include "suites/similarity_cache/retrieve.h"
#include "suites/parts/test_instance.h"

#include "harness/base/fit.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"

#include <math.h>
#include <unistd.h>

enum { BATCH = 2, KV_HEADS = 2, GROUP = 2, Q_HEADS = KV_HEADS * GROUP, DIM = 8, Q_LEN = 2, TOKENS = 200, LAYERS = 2 };
enum { SINK = 5, RECENT = 11, BITS = 64, CHOSEN = 6, ROWS = Q_LEN * GROUP };

static const struct ha_rule nothing = { .seq_bytes = 0 };

static struct {
    struct ha_shape shape;
    struct ha_retrieve r;
    struct ha_retrieve_index index[BATCH];
    struct ha_kv kv[BATCH], rest[BATCH]; /* mapped: all tokens; from the first on that is no sink */
    float *q;                            /* mapped: [BATCH][Q_LEN][Q_HEADS][DIM] */
    uint32_t *list, *keys, *only;        /* mapped: [BATCH][KV_HEADS][TOKENS]; [BATCH][KV_HEADS] */
} w;

static float drawn(uint64_t seed, size_t i) { return (float)ha_rng_below(seed, 1, i, 9) - 4; }

static void fill(size_t b, uint64_t seed, size_t first)
{
    for (size_t i = first * KV_HEADS * DIM; i < TOKENS * KV_HEADS * DIM; i++)
        ha_store(w.kv[b].k, i, w.shape.dtype, drawn(seed + b, i));
}

static struct ha_retrieve_rule rule_of(enum ha_retrieve_by by)
{
    return (struct ha_retrieve_rule){ .by = by, .bits = BITS, .sink = SINK, .recent = RECENT };
}

static void open_world(enum ha_dtype dtype)
{
    memset(&w, 0, sizeof w);
    w.shape = (struct ha_shape){ .layers = LAYERS,
                                 .batch = BATCH,
                                 .q_heads = Q_HEADS,
                                 .kv_heads = KV_HEADS,
                                 .head_dim = DIM,
                                 .dtype = dtype,
                                 .scale = 0.5f,
                                 .q_len = Q_LEN,
                                 .steps = TOKENS / Q_LEN };
    open_context(&ha_device_host, &w.shape, &nothing);
}

static void open_index(size_t b, struct ha_retrieve_index *index)
{
    ok(ha_retrieve_open(&w.r, b, index, &why));
    index->rows = ha_kv_rows(&w.shape, &w.rest[b], 0, 0, 0);
    index->k_head_bytes = ha_kv_head_bytes(&w.shape);
}

static void begin(enum ha_retrieve_by by, enum ha_dtype dtype)
{
    const struct ha_retrieve_rule rule = rule_of(by);
    open_world(dtype);
    ok(ha_retrieve_create(&w.r, &mine.ctx, &rule, &why));
    for (size_t b = 0; b < BATCH; b++) {
        ok(ha_kv_create(&mine.ctx, HA_MEM_MAPPED, TOKENS, &w.kv[b], &why));
        w.rest[b] = w.kv[b];
        w.rest[b].k += SINK * ha_kv_token_bytes(&w.shape);
        open_index(b, &w.index[b]);
        fill(b, 7, 0);
    }
    w.q = memory_of(HA_MEM_MAPPED, BATCH * Q_LEN * Q_HEADS * DIM * sizeof *w.q);
    w.list = memory_of(HA_MEM_MAPPED, BATCH * KV_HEADS * TOKENS * sizeof *w.list);
    w.keys = memory_of(HA_MEM_MAPPED, BATCH * KV_HEADS * sizeof *w.keys);
    w.only = memory_of(HA_MEM_MAPPED, BATCH * KV_HEADS * sizeof *w.only);
}

/* tokens [from, to) of a sequence, in pieces */
static void add(struct ha_retrieve_index *index, size_t b, size_t layer, size_t from, size_t to, size_t piece)
{
    for (size_t t = from, n; t < to; t += n) {
        n = ha_least(piece, to - t);
        ha_retrieve_add(&w.r, b, index, w.kv[b].k + t * ha_kv_token_bytes(&w.shape), t, n);
        ok(ha_retrieve_encode(&w.r, layer, mine.ctx.stream, b, 1));
    }
    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
}

/* ---- plain loops ------------------------------------------------------------------------------------------------- */

static float key(size_t b, size_t head, size_t token, size_t d)
{
    return ha_load(w.kv[b].k, (token * KV_HEADS + head) * DIM + d, w.shape.dtype);
}
static const float *query(size_t b, size_t head, size_t row)
{
    return w.q + ((b * Q_LEN + row / GROUP) * Q_HEADS + head * GROUP + row % GROUP) * DIM;
}

static float norm(size_t b, size_t head, size_t token)
{
    float squares = 0;
    for (size_t d = 0; d < DIM; d++) squares += key(b, head, token, d) * key(b, head, token, d);
    return sqrtf(squares);
}

static bool side(const float *a, const float *x)
{
    double sum = 0;
    for (size_t d = 0; d < DIM; d++) sum += (double)a[d] * (double)x[d];
    return sum > 0;
}

static float by_code(size_t layer, size_t b, size_t head, size_t row, size_t token)
{
    float k[DIM], agree = 0;
    for (size_t d = 0; d < DIM; d++) k[d] = key(b, head, token, d);
    for (size_t i = 0; i < BITS; i++) {
        const float *a = w.r.a[layer] + (head * BITS + i) * DIM;
        agree += side(a, k) == side(a, query(b, head, row)) ? 1 : -1;
    }
    return norm(b, head, token) * agree;
}

static float by_key(size_t b, size_t head, size_t row, size_t token)
{
    float sum = 0;
    for (size_t d = 0; d < DIM; d++) sum += query(b, head, row)[d] * key(b, head, token, d);
    return sum * w.shape.scale;
}

static float by_range(size_t b, size_t head, size_t row, size_t first)
{
    float sum = 0;
    for (size_t d = 0; d < DIM; d++) {
        float low = HUGE_VALF, high = -HUGE_VALF;
        for (size_t t = first; t < first + HA_RETRIEVE_BLOCK; t++) {
            low = fminf(low, key(b, head, t, d));
            high = fmaxf(high, key(b, head, t, d));
        }
        sum += fmaxf(query(b, head, row)[d] * low, query(b, head, row)[d] * high);
    }
    return sum * w.shape.scale;
}

static float score(size_t layer, size_t b, size_t head, size_t unit)
{
    float most = -HUGE_VALF;
    for (size_t row = 0; row < ROWS; row++) {
        const size_t token = SINK + unit * w.r.unit;
        most = fmaxf(most, w.r.rule.by == HA_RETRIEVE_HATA    ? by_code(layer, b, head, row, token)
                           : w.r.rule.by == HA_RETRIEVE_QUEST ? by_range(b, head, row, token)
                                                              : by_key(b, head, row, token));
    }
    return most;
}

static size_t units_of(size_t tokens) { return tokens > SINK + RECENT ? (tokens - SINK - RECENT) / w.r.unit : 0; }

/* the list of a head is of the best, rising, and so many keys are said */
static void check(size_t layer, size_t b, size_t head, size_t tokens, size_t count, uint32_t first)
{
    static float all[TOKENS];
    const size_t n = units_of(tokens), want = ha_least(count, n);
    const uint32_t *list = w.list + (b * KV_HEADS + head) * TOKENS;
    assert_int_equal(ha_retrieve_units(&w.r, tokens), n);
    assert_int_equal(w.keys[b * KV_HEADS + head], want * w.r.unit);
    for (size_t i = 0; i < n; i++) all[i] = score(layer, b, head, i);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        size_t before = 0;
        for (size_t j = 0; j < n; j++) before += all[j] > all[i] || (all[j] == all[i] && j < i);
        const bool is = before < want, got = at < want && list[at] == first + i;
        at += got;
        if (is != got)
            fail_msg("%s, layer %zu, sequence %zu, head %zu, %zu tokens: unit %zu is %s", ha_retrieve_word(w.r.rule.by),
                     layer, b, head, tokens, i, got ? "chosen" : "not chosen");
    }
    assert_int_equal(at, want);
}

/* all heads of both sequences by new queries */
static void choose(size_t layer, const size_t *tokens, size_t count, uint64_t seed, const uint32_t *only)
{
    for (size_t i = 0; i < BATCH * Q_LEN * Q_HEADS * DIM; i++) w.q[i] = drawn(seed, i);
    ok(ha_retrieve_score(&w.r, layer, w.q, w.index, sizeof *w.index, tokens, only));
    for (size_t i = 0; i < BATCH * KV_HEADS; i++)
        ha_retrieve_ask(&w.r, i / KV_HEADS, i % KV_HEADS, tokens[i / KV_HEADS], count, (uint32_t)i * 10,
                        w.list + i * TOKENS, w.keys + i, only ? only + i : NULL);
    ok(ha_retrieve_run(&w.r));
    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
}

static void check_all(size_t layer, const size_t *tokens, size_t count, uint64_t seed)
{
    choose(layer, tokens, count, seed, NULL);
    for (size_t i = 0; i < BATCH * KV_HEADS; i++)
        check(layer, i / KV_HEADS, i % KV_HEADS, tokens[i / KV_HEADS], count, (uint32_t)i * 10);
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

static void each_way(void (*test)(enum ha_retrieve_by by, enum ha_dtype dtype))
{
    for (int by = HA_RETRIEVE_HATA; by <= HA_RETRIEVE_EXACT; by++)
        for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++) test((enum ha_retrieve_by)by, (enum ha_dtype)dtype);
}

/* As tokens come, a few at a time, of both sequences: one is ahead of the other. */
static void grow(enum ha_retrieve_by by, enum ha_dtype dtype)
{
    begin(by, dtype);
    for (size_t t = 0; t + Q_LEN <= TOKENS; t += Q_LEN) {
        const size_t tokens[BATCH] = { t, t / 2 };
        if (t < 60 || t % 20 == 0) check_all(1, tokens, CHOSEN, 100 + t);
        if (t == 100) check_all(1, tokens, TOKENS, 3);
        add(&w.index[0], 0, 1, t, t + Q_LEN, Q_LEN);
        add(&w.index[1], 1, 1, t / 2, (t + Q_LEN) / 2, 1);
    }
    close_instance();
}
TEST(choices_are_those_of_plain_loops) { each_way(grow); }

/* Both sequences in one call, and each layer by its own matrices. */
TEST(sequences_and_layers_are_told_apart)
{
    const size_t tokens[BATCH] = { 150, 90 };
    for (size_t layer = 0; layer < LAYERS; layer++) {
        begin(HA_RETRIEVE_HATA, HA_BF16);
        for (size_t b = 0; b < BATCH; b++) ha_retrieve_add(&w.r, b, &w.index[b], w.kv[b].k, 0, tokens[b]);
        ok(ha_retrieve_encode(&w.r, layer, mine.ctx.stream, 0, BATCH));
        check_all(layer, tokens, CHOSEN, 9);
        close_instance();
    }
}

/* One sequence has come to an end of a block, or has no tokens yet that are no sinks, and the other has. */
static void one_of_two(enum ha_retrieve_by by, enum ha_dtype dtype)
{
    for (size_t last = 0; last < BATCH; last++) {
        size_t tokens[BATCH] = { 3, 3 };
        begin(by, dtype);
        assert_true((w.r.a != NULL) == (by == HA_RETRIEVE_HATA));
        tokens[last] = 150;
        for (size_t b = 0; b < BATCH; b++) ha_retrieve_add(&w.r, b, &w.index[b], w.kv[b].k, 0, tokens[b]);
        ok(ha_retrieve_encode(&w.r, 0, mine.ctx.stream, 0, BATCH));
        check_all(0, tokens, CHOSEN, 21);
        close_instance();
    }
}
TEST(one_sequence_alone_has_new_tokens) { each_way(one_of_two); }

/* ---- the index --------------------------------------------------------------------------------------------------- */

static size_t index_bytes(const struct ha_retrieve_index *x)
{
    return KV_HEADS * (w.r.rule.by == HA_RETRIEVE_HATA ? x->code_head_bytes : x->digests.head_bytes);
}
static unsigned char *index_of(const struct ha_retrieve_index *x)
{
    return w.r.rule.by == HA_RETRIEVE_HATA ? x->codes : (unsigned char *)x->digests.bytes;
}

static void open_blank(size_t b, struct ha_retrieve_index *index)
{
    open_index(b, index);
    memset(index_of(index), 0, index_bytes(index));
}

static void encode_in_pieces(enum ha_retrieve_by by, enum ha_dtype dtype)
{
    static const size_t pieces[] = { 1, 3, 7, 16, 64, TOKENS };
    if (by == HA_RETRIEVE_EXACT) return;
    begin(by, dtype);
    struct ha_retrieve_index once, parts;
    open_blank(0, &once);
    add(&once, 0, 0, 0, 180, TOKENS);
    assert_int_equal(once.tokens, 180 - SINK);
    for (size_t i = 0; i < COUNT(pieces); i++) {
        open_blank(0, &parts);
        add(&parts, 0, 0, 0, 180, pieces[i]);
        assert_memory_equal(index_of(&parts), index_of(&once), index_bytes(&once));
    }
    close_instance();
}
TEST(in_pieces_is_as_at_once) { each_way(encode_in_pieces); }

/* Other tokens come behind those that are left: as if nothing else had ever been there. */
static void go_back(enum ha_retrieve_by by, enum ha_dtype dtype)
{
    static const size_t to[] = { 100, 37, 6, 5, 3, 0 };
    begin(by, dtype);
    add(&w.index[0], 0, 0, 0, 150, 40);
    add(&w.index[1], 1, 0, 0, 150, 40);
    for (size_t i = 0; i < COUNT(to); i++) {
        const size_t tokens[BATCH] = { 130, 120 };
        ha_retrieve_rewind(&w.r, &w.index[0], to[i]);
        assert_int_equal(w.index[0].tokens, to[i] > SINK ? to[i] - SINK : 0);
        assert_int_equal(w.index[0].digests.blocks, w.index[0].tokens / w.r.unit);
        fill(0, 50 + i, to[i]);
        add(&w.index[0], 0, 0, to[i], 130, 9);
        check_all(0, tokens, CHOSEN, 70 + i);
    }
    close_instance();
}
TEST(a_rewound_index_takes_others) { each_way(go_back); }

/* ---- whose ------------------------------------------------------------------------------------------------------- */

static void only_some(enum ha_retrieve_by by, enum ha_dtype dtype)
{
    const size_t tokens[BATCH] = { 150, 150 };
    const size_t scores = BATCH * KV_HEADS * ROWS, lists = BATCH * KV_HEADS * TOKENS;
    begin(by, dtype);
    for (size_t b = 0; b < BATCH; b++) add(&w.index[b], b, 0, 0, 150, 64);
    for (unsigned mask = 0; mask < 1u << BATCH * KV_HEADS; mask++) {
        for (size_t i = 0; i < BATCH * KV_HEADS; i++) w.only[i] = mask >> i & 1;
        for (size_t i = 0; i < lists; i++) w.list[i] = 77;
        for (size_t i = 0; i < BATCH * KV_HEADS; i++) w.keys[i] = 88;
        for (size_t i = 0; i < scores * w.r.units_max; i++) w.r.score[i] = 99;
        choose(0, tokens, CHOSEN, mask, w.only);
        for (size_t i = 0; i < BATCH * KV_HEADS; i++) {
            const float *of = w.r.score + i * ROWS * w.r.units_max;
            if (w.only[i]) check(0, i / KV_HEADS, i % KV_HEADS, 150, CHOSEN, (uint32_t)i * 10);
            for (size_t j = 0; j < TOKENS && !w.only[i]; j++) assert_int_equal(w.list[i * TOKENS + j], 77);
            if (!w.only[i]) assert_int_equal(w.keys[i], 88);
            for (size_t j = 0; j < ROWS * w.r.units_max && !w.only[i] && by == HA_RETRIEVE_HATA; j++)
                assert_true(of[j] == 99);
        }
    }
    close_instance();
}
TEST(nothing_is_done_for_others) { each_way(only_some); }

/* Nothing was asked for: nothing is run, and what was asked for once is not run again. */
TEST(requests_are_run_once)
{
    const size_t tokens[BATCH] = { 150, 150 };
    begin(HA_RETRIEVE_EXACT, HA_F32);
    ok(ha_retrieve_run(&w.r));
    choose(0, tokens, CHOSEN, 1, NULL);
    for (size_t i = 0; i < BATCH * KV_HEADS * TOKENS; i++) w.list[i] = 77;
    ok(ha_retrieve_run(&w.r));
    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
    for (size_t i = 0; i < BATCH * KV_HEADS * TOKENS; i++) assert_int_equal(w.list[i], 77);
    close_instance();
}

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

TEST(random_matrices_are_the_layers_and_heads_own)
{
    float a[BITS * DIM];
    begin(HA_RETRIEVE_HATA, HA_F16);
    for (size_t i = 0; i < LAYERS * KV_HEADS; i++) {
        ha_rng_normals(0x48415441, i, 0, BITS * DIM, a);
        assert_memory_equal(w.r.a[i / KV_HEADS] + i % KV_HEADS * BITS * DIM, a, sizeof a);
    }
    close_instance();
}

static enum ha_status create_learned(struct ha_fit *fit, size_t bits)
{
    struct ha_retrieve_rule rule = rule_of(HA_RETRIEVE_HATA);
    rule.hash = HA_HASH_LEARNED;
    rule.bits = bits;
    mine.ctx.fit = fit;
    return ha_retrieve_create(&w.r, &mine.ctx, &rule, &why);
}

TEST(learned_matrices_are_those_of_the_fit)
{
    static float a[LAYERS * KV_HEADS * BITS * DIM];
    char path[200];
    struct ha_fit_writer writer = { .count = 0 };
    struct ha_fit_about about = { .origins = 0 };
    struct ha_fit *fit, *other;
    for (size_t i = 0; i < HA_FIT_KEYS; i++) about.value[i] = "1";
    for (size_t i = 0; i < COUNT(a); i++) a[i] = ha_rng_normal(1, 2, i);
    const int fd = mkstemps(test_template(path, sizeof path, ".safetensors"), 12);
    assert_true(fd >= 0 && close(fd) == 0);
    ok(ha_fit_put(&writer,
                  &(struct ha_tensor){ .name = "importance_kv", .type = HA_T_F32, .dims = 1, .dim = { 4 }, .data = a },
                  &why));
    ok(ha_fit_write(&writer, path, &about, &why));
    ok(ha_fit_open(&other, path, &why));
    ok(ha_fit_put(&writer,
                  &(struct ha_tensor){
                      .name = "hash", .type = HA_T_F32, .dims = 4, .dim = { LAYERS, KV_HEADS, BITS, DIM }, .data = a },
                  &why));
    ok(ha_fit_write(&writer, path, &about, &why));
    ha_fit_writer_free(&writer);
    ok(ha_fit_open(&fit, path, &why));
    unlink(path);

    open_world(HA_F16);
    assert_int_equal(create_learned(NULL, BITS), HA_WAIVED);
    assert_contains(why.text, "hash=learned takes the matrices of a fit");
    assert_int_equal(create_learned(other, BITS), HA_WAIVED);
    assert_contains(why.text, "hash=random");
    assert_int_equal(create_learned(fit, 2 * BITS), HA_ERROR);
    assert_contains(why.text, "hash");
    ok(create_learned(fit, BITS));
    for (size_t l = 0; l < LAYERS; l++)
        assert_memory_equal(w.r.a[l], a + l * KV_HEADS * BITS * DIM, KV_HEADS * BITS * DIM * sizeof *a);
    close_instance();
    ha_fit_close(fit);
    ha_fit_close(other);
}

TEST(what_a_device_lacks_is_said)
{
    static const char *const lacking[] = { "hash", "hamming", "digest", "digest_score", "score" };
    static const enum ha_retrieve_by by[] = { HA_RETRIEVE_HATA, HA_RETRIEVE_HATA, HA_RETRIEVE_QUEST, HA_RETRIEVE_QUEST,
                                              HA_RETRIEVE_EXACT };
    open_world(HA_F16);
    const struct ha_device_api *const whole = mine.ctx.api;
    for (size_t i = 0; i < COUNT(by); i++) {
        struct ha_device_api less = *whole;
        char text[80];
        if (i == 0) less.hash = NULL;
        if (i == 1) less.hamming = NULL;
        if (i == 2) less.digest = NULL;
        if (i == 3) less.digest_score = NULL;
        if (i == 4) less.score = NULL;
        mine.ctx.api = &less;
        snprintf(text, sizeof text, "the device has no operation %s; another retrieve=", lacking[i]);
        for (int way = HA_RETRIEVE_HATA; way <= HA_RETRIEVE_EXACT; way++) {
            const struct ha_retrieve_rule rule = rule_of((enum ha_retrieve_by)way);
            const enum ha_status status = ha_retrieve_create(&w.r, &mine.ctx, &rule, &why);
            assert_int_equal(status, way == (int)by[i] ? HA_WAIVED : HA_OK);
            if (status == HA_WAIVED) assert_contains(why.text, text);
        }
        mine.ctx.api = whole;
    }
    close_instance();
}
