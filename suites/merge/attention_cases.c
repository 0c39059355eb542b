#include "suites/merge/attention_parts.h"

#include "harness/base/rng.h"

#include <math.h>

enum { SHAPE_STREAM = 400, DATA_STREAM };

static size_t draw(const struct ha_problem *p, uint64_t what, size_t n)
{
    return ha_rng_below(p->seed, SHAPE_STREAM + (what << 32), p->id, n);
}

/* more sequences and KV heads where that costs little */
static void widen(struct ha_problem *p, size_t keys)
{
    if (keys * p->group * p->q_len > 4200) return;
    p->kv_heads = 1 + draw(p, 1, 2);
    p->batch = 1 + draw(p, 2, 2);
}

static void one_run(struct ha_problem *p, size_t keys)
{
    p->runs_count = 1;
    p->run[0] = keys;
    widen(p, keys);
}

void ha_problem_cut(struct ha_problem *p, size_t keys, size_t runs, size_t last)
{
    size_t left = keys - last;
    p->runs_count = runs;
    for (size_t i = 0; i + 1 < runs; i++) left -= p->run[i] = draw(p, 10 + i, left + 1);
    p->run[runs - 1] = left + last;
}

#define FOR_HEADS(p, b, h)                  \
    for (size_t b = 0; b < (p)->batch; b++) \
        for (size_t h = 0; h < (p)->kv_heads; h++)
#define FOR_KEYS(p, b, h, j) FOR_HEADS(p, b, h) for (size_t j = 0, keys_ = ha_problem_stored(p); j < keys_; j++)
#define FOR_ROWS(p, r)       for (size_t r = 0, rows_ = ha_problem_rows(p); r < rows_; r++)

static void multiply_q(const struct ha_problem *p, float by)
{
    FOR_ROWS(p, r)
    for (size_t d = 0; d < p->head_dim; d++) ha_problem_q(p, r)[d] *= by;
}

/* component 0 of q, where the score of a key is to be `score` for each 1 in its component 0 */
static void aim(const struct ha_problem *p, double score)
{
    FOR_ROWS(p, r) ha_problem_q(p, r)[0] = (float)(score / (double)p->scale);
}

static const size_t edges[] = { 1,  2,  3,   7,   8,   9,   15,   16,   17,   31,   32,   33,   63,
                                64, 65, 127, 255, 256, 257, 1023, 2047, 2048, 2049, 4095, 4096, 4097 };
enum { EDGES = sizeof edges / sizeof *edges };

static void shape_boundaries(struct ha_problem *p)
{
    one_run(p, edges[p->id / HA_DTYPE_COUNT]);
    p->padded = draw(p, 3, 2);
}

/* ---- no_keys: no runs; runs without keys; a sequence of no keys beside one with keys */
static void shape_no_keys(struct ha_problem *p)
{
    p->q_len = 1 + p->id % 4;
    p->runs_count = p->id % (HA_RUNS_MAX + 2);
    if (p->runs_count <= HA_RUNS_MAX) {
        widen(p, 0);
        return;
    }
    p->runs_count = 1 + draw(p, 3, 3);
    p->run[0] = 1 + draw(p, 4, 100);
    p->skip = p->run[0];
    p->batch = 2;
    p->weights = true;
}

/* ---- one_key, with a score of 0 in half of the shapes */
static void shape_one_key(struct ha_problem *p)
{
    p->runs_count = 1 + draw(p, 3, HA_RUNS_MAX);
    p->run[draw(p, 4, p->runs_count)] = 1;
    p->q_len = 1 + draw(p, 5, 3);
    p->weights = true;
    p->exact = p->indexed = p->id % 2 == 0;
    widen(p, 1);
}

static void fill_one_key(const struct ha_problem *p)
{
    if (p->exact) multiply_q(p, 0);
}

/* ---- causal_append */
static void shape_causal_append(struct ha_problem *p)
{
    static const size_t lens[] = { 2, 3, 7, 8, 9, 16, 17, 31, 32, 33 };
    static const size_t contexts[] = { 0, 1, 30, 100, 2047, 2033 };
    const size_t context = contexts[p->id % 6];
    p->q_len = lens[draw(p, 3, context > 1000 ? 4 : 10)];
    p->causal = true;
    ha_problem_cut(p, context + p->q_len, 1 + draw(p, 4, 3), p->q_len);
    p->weights = draw(p, 5, 4) == 0 && context < 1000;
    widen(p, context + p->q_len);
}

/* ---- scores of -inf */
static void point(const struct ha_problem *p)
{
    FOR_ROWS(p, r) ha_problem_q(p, r)[0] = 0.5f + fabsf(ha_problem_q(p, r)[0]);
}

static void shape_all_minus_inf(struct ha_problem *p)
{
    static const size_t keys[] = { 1, 17, 33, 300, 2049, 4097 };
    p->q_len = 1 + draw(p, 3, 3);
    p->weights = draw(p, 4, 2);
    ha_problem_cut(p, keys[p->id % 6], 1 + draw(p, 5, 3), 0);
    widen(p, keys[p->id % 6]);
}

static void fill_all_minus_inf(const struct ha_problem *p)
{
    point(p);
    FOR_KEYS(p, b, h, j) ha_problem_put(p, &p->k, b, h, j, 0, -INFINITY);
}

static void shape_some_minus_inf(struct ha_problem *p)
{
    static const size_t keys[] = { 9, 33, 70, 300, 2080 };
    const size_t n = p->id % 10 == 9 ? 4140 : keys[p->id % 5];
    p->weights = n < 4000;
    one_run(p, n);
}

/* masked: the first keys, whole chunks of them; every other; the last; all but one */
static bool masked(const struct ha_problem *p, size_t j)
{
    const size_t keys = ha_problem_stored(p);
    switch (p->id % 4) {
    case 0: return j + 7 < keys;
    case 1: return j % 2;
    case 2: return j >= 5;
    default: return j != keys / 2;
    }
}

static void fill_some_minus_inf(const struct ha_problem *p)
{
    point(p);
    FOR_KEYS(p, b, h, j)
    {
        if (!masked(p, j)) continue;
        ha_problem_put(p, &p->k, b, h, j, 0, -INFINITY);
        for (size_t d = 0; d < p->head_dim; d++) ha_problem_put(p, &p->v, b, h, j, d, 6e4f);
    }
}

/* ---- nan_key: the oracle has answered before it is put in */
static void shape_nan_key(struct ha_problem *p)
{
    static const size_t keys[] = { 5, 33, 100, 2051, 64 };
    p->q_len = 3;
    p->causal = true;
    p->kv_heads = 2;
    p->batch = 1 + draw(p, 3, 2);
    if (keys[p->id / 3 % 5] > 1000) p->group = 1 + draw(p, 4, 2);
    ha_problem_cut(p, keys[p->id / 3 % 5], 1 + draw(p, 5, 2), 3);
    p->nan.place = (enum ha_nan_place)(1 + p->id / 2 % 3);
    p->nan.seq = draw(p, 6, p->batch);
    p->nan.kv_head = draw(p, 7, 2);
    p->nan.key = draw(p, 8, 2) ? keys[p->id / 3 % 5] - 1 - draw(p, 9, 3) : draw(p, 9, keys[p->id / 3 % 5]);
    p->nan.token = draw(p, 20, 3);
    p->nan.dim = draw(p, 21, p->head_dim);
}

static void spoil_nan_key(struct ha_problem *p)
{
    const struct ha_kv_place *in = p->nan.place == HA_NAN_K ? &p->k : &p->v;
    const size_t query = p->nan.seq * p->q_len + p->nan.token;
    if (p->nan.place != HA_NAN_Q) ha_problem_put(p, in, p->nan.seq, p->nan.kv_head, p->nan.key, p->nan.dim, NAN);
    else ha_problem_q(p, query * ha_problem_heads(p) + p->nan.kv_head * p->group)[p->nan.dim] = NAN;
}

/* ---- equal_scores: 2^k keys, small integers in V; scores of 0 in half of the shapes */
static void shape_equal_scores(struct ha_problem *p)
{
    one_run(p, (size_t)1 << p->id / 3 % 13);
    p->exact = p->id % 2;
}

static void fill_equal_scores(const struct ha_problem *p)
{
    if (p->exact) multiply_q(p, 0);
    FOR_KEYS(p, b, h, j)
    for (size_t d = 0; d < p->head_dim; d++) {
        ha_problem_put(p, &p->k, b, h, j, d, d % 2 ? 0.5f : -1.25f);
        ha_problem_put(p, &p->v, b, h, j, d, (float)((j * 7 + d * 3) % 17) - 8);
    }
}

/* ---- one_sign: key 0 of each chunk weighs 1, and the others so little that each addition to a sum of weights rounds
 * down, by nearly half an ulp, while the weighted values are larger and round up: errors come near to the bound. Heads
 * differ in the weight, columns in the value. With id % 2 only one key in 32 weighs anything, for sums kept in lanes.
 */
enum { SIGN_TILE = 32 };

static void shape_one_sign(struct ha_problem *p)
{
    static const size_t keys[] = { SIGN_TILE, HA_CHUNK_KEYS, 2 * HA_CHUNK_KEYS };
    one_run(p, keys[p->id / 3 % 3]);
    p->made_up = true;
    p->batch = p->kv_heads = 1;
    p->group = 8;
    p->scale = 0.125f;
}

static void fill_one_sign(const struct ha_problem *p)
{
    static const float values[] = { 1.25f, 1.125f, 1.5f, 1.0625f, 0.75f, 2, -1.25f, 1.1875f };
    multiply_q(p, 0);
    for (size_t h = 0; h < p->group; h++) ha_problem_q(p, h)[0] = 8 * (logf(0x1p24f) - logf(0.84f + 0.025f * (float)h));
    FOR_KEYS(p, b, h, j)
    {
        const size_t at = j % HA_CHUNK_KEYS;
        const bool tail = p->id % 2 == 0 || at % SIGN_TILE == 0;
        /* 1.21875 * 16.7 = 16.7 + ln 39: 32 keys of a later tile weigh about as much as one of the first */
        ha_problem_put(p, &p->k, b, h, j, 0,
                       at == 0                             ? 0
                       : !tail                             ? -8
                       : p->id % 2 == 0 && at >= SIGN_TILE ? -1.21875f
                                                           : -1);
        for (size_t d = 0; d < p->head_dim; d++) ha_problem_put(p, &p->v, b, h, j, d, at == 0 ? 1 : values[d % 8]);
    }
}

/* ---- huge_scores */
static void shape_huge_scores(struct ha_problem *p)
{
    static const size_t keys[] = { 1, 16, 65, 500, 2100, 4097 };
    one_run(p, keys[p->id % 6]);
}

static void fill_huge_scores(const struct ha_problem *p)
{
    if (p->id % 2) {
        multiply_q(p, 2500);
        return;
    }
    const size_t top = draw(p, 5, ha_problem_stored(p));
    aim(p, 1e4);
    FOR_KEYS(p, b, h, j) ha_problem_put(p, &p->k, b, h, j, 0, j == top ? 1 : (float)draw(p, 6, 2) - 1);
}

/* ---- offset, low_scores: all scores moved */
static void shape_offset(struct ha_problem *p)
{
    static const size_t keys[] = { 1, 17, 300, 2049, 4097 };
    one_run(p, keys[p->id % 5]);
}

static void move(const struct ha_problem *p, double score)
{
    aim(p, score);
    FOR_KEYS(p, b, h, j) ha_problem_put(p, &p->k, b, h, j, 0, 1);
}

static void fill_offset(const struct ha_problem *p)
{
    static const double by[] = { 1e4, 1e5, 3e5, 65504 };
    move(p, by[p->id % 4]);
}

/* every other key, but the first, is masked with -inf in half of the shapes */
static void fill_low_scores(const struct ha_problem *p)
{
    static const double by[] = { -1.1e4, -6e4, -1e5, -3e5, -1e30, -7e4 };
    move(p, by[p->id % 6]);
    if (p->id / 2 % 2) return;
    FOR_KEYS(p, b, h, j)
    if (j % 2) ha_problem_put(p, &p->k, b, h, j, 0, INFINITY);
}

/* ---- sink */
enum { SINK_KEYS = 100001 };

static void shape_sink(struct ha_problem *p)
{
    p->head_dim = 64;
    p->group = 1;
    one_run(p, SINK_KEYS);
}

static void fill_sink(const struct ha_problem *p)
{
    static const size_t at[] = { 0, SINK_KEYS - 1, SINK_KEYS / 2 };
    multiply_q(p, 0);
    aim(p, 20.1);
    ha_problem_q(p, 0)[1] = 0.125f;
    for (size_t j = 0; j < SINK_KEYS; j++) ha_problem_put(p, &p->k, 0, 0, j, 0, j == at[p->id] ? 1 : 0);
    for (size_t d = 0; d < p->head_dim; d++) ha_problem_put(p, &p->v, 0, 0, at[p->id], d, -4);
}

/* ---- runs: groups of six shapes hold the same numbers, in 1, 2 and 4 runs, through an index and not */
static void shape_runs(struct ha_problem *p)
{
    static const size_t keys[] = { 3, 100, 2050, 4097 };
    const size_t variant = p->id % 6, problem = p->id / 6, n = keys[problem % 4];
    p->dtype = (enum ha_dtype)(problem % HA_DTYPE_COUNT);
    p->head_dim = (size_t[]){ 64, 80, 128 }[problem % 3];
    p->scale = 0.1f;
    p->group = 2;
    p->data = problem;
    p->indexed = variant % 2;
    ha_problem_cut(p, n, (size_t)1 << variant / 2, 0);
}

/* ---- split_and_merge */
static void shape_split(struct ha_problem *p)
{
    static const size_t keys[] = { 1, 9, 64, 700, 2100 };
    p->q_len = 1 + draw(p, 3, 3);
    p->causal = draw(p, 4, 2);
    const size_t n = keys[p->id % 5] + p->q_len, runs = 2 + draw(p, 5, 3);
    p->kv_heads = 1 + draw(p, 6, 2);
    if (n > 1000 && p->group > 2) p->group = 2;
    ha_problem_cut(p, n, runs, draw(p, 7, 2) ? p->q_len : n);
}

static void fill_split(const struct ha_problem *p)
{
    if (p->id % 4 == 3) move(p, 1e4);
}

/* ---- weights */
static void shape_weights(struct ha_problem *p)
{
    static const size_t keys[] = { 10, 33, 64, 2049, 300, 2500 };
    const size_t n = keys[p->id % 6];
    p->q_len = 1 + draw(p, 3, n > 1000 ? 2 : 9);
    p->causal = draw(p, 4, 2);
    p->weights = true;
    p->padded = draw(p, 5, 2);
    if (n > 1000) p->group = 1 + draw(p, 6, 2);
    ha_problem_cut(p, n, 1 + draw(p, 7, 3), p->q_len);
    widen(p, n);
}

static void fill_weights(const struct ha_problem *p)
{
    if (p->id % 4 < 2) multiply_q(p, 6);
}

/* ---- strides, poisoned_output */
static void shape_strides(struct ha_problem *p)
{
    p->padded = true;
    p->indexed = draw(p, 3, 2);
    p->q_len = 1 + draw(p, 4, 4);
    p->weights = draw(p, 5, 2);
    p->kv_heads = 2;
    p->batch = 1 + draw(p, 6, 2);
    ha_problem_cut(p, edges[draw(p, 7, 18)], 1 + draw(p, 8, 3), 0);
}

static void shape_poisoned(struct ha_problem *p)
{
    p->q_len = 1 + draw(p, 3, 33);
    p->causal = draw(p, 4, 2);
    p->weights = draw(p, 5, 3) == 0;
    ha_problem_cut(p, p->q_len + draw(p, 6, 90), 1 + draw(p, 7, HA_RUNS_MAX), p->q_len);
    widen(p, 100);
    if (!p->causal) p->skip = p->run[0];
}

const struct ha_attention_case ha_attention_cases[] = {
    { "boundaries", "a tail of a vector, a tile or a chunk that is lost, or read twice", .shapes = 3 * EDGES,
      .shape = shape_boundaries },
    { "no_keys", "no runs, or runs of no keys, are exactly (0, -inf): not NaN, not a finite LSE", .shapes = 48,
      .shape = shape_no_keys },
    { "one_key", "o is that key's v, LSE its score, its weight 1", .shapes = 60, .shape = shape_one_key,
      .fill = fill_one_key },
    { "causal_append", "new tokens see all earlier ones and themselves; with no context the first sees only itself",
      .shapes = 60, .shape = shape_causal_append },
    { "all_minus_inf", "keys, but every score is -inf: (0, -inf), where -inf - -inf gives NaN", .shapes = 30,
      .shape = shape_all_minus_inf, .fill = fill_all_minus_inf },
    { "some_minus_inf", "masked tokens beside real ones weigh exactly 0, whole chunks of them too", .shapes = 60,
      .shape = shape_some_minus_inf, .fill = fill_some_minus_inf },
    { "nan_key", "NaN in q, K or V shows in the rows that read it, and in no other", .shapes = 90,
      .shape = shape_nan_key, .spoil = spoil_nan_key },
    { "equal_scores", "LSE is the score + ln n; the mean of small integers over 2^k keys is exact", .shapes = 78,
      .shape = shape_equal_scores, .fill = fill_equal_scores },
    { "one_sign", "all additions round one way: errors add up to nearly the bound, so that a little more is seen",
      .shapes = 18, .shape = shape_one_sign, .fill = fill_one_sign },
    { "huge_scores", "scores of 1e4 that overflow exp, one key above all", .shapes = 60, .shape = shape_huge_scores,
      .fill = fill_huge_scores },
    { "offset", "all scores + 1e4 .. 3e5: only u |L| is lost", .shapes = 60, .shape = shape_offset,
      .fill = fill_offset },
    { "sink", "one key at +20.1 beside 10^5 at 0: neither is lost", .shapes = 3, .shape = shape_sink,
      .fill = fill_sink },
    { "low_scores", "all scores below -1e4, down to -1e30: a finite sentinel for -inf swallows them", .shapes = 60,
      .shape = shape_offset, .fill = fill_low_scores },
    { "runs", "the same keys in 1, 2 or 4 runs, through an index or not", .shapes = 72, .shape = shape_runs },
    { "split_and_merge", "runs attended by themselves and merged, in every form, are attention over all", .shapes = 60,
      .shape = shape_split, .fill = fill_split, .split = true },
    { "weights", "averaged softmax weights are those of the keys and add up to 1", .shapes = 60, .shape = shape_weights,
      .fill = fill_weights },
    { "strides", "rows of q, o, LSE, K, V and weights further apart than packed", .shapes = 60,
      .shape = shape_strides },
    { "poisoned_output", "outputs start as NaN: all are written, nothing else is", .shapes = 60,
      .shape = shape_poisoned },
    { "pairs", "each two values of type, head_dim, group, heads, batch, q_len, keys, runs, mask, weights, layout meet",
      .list = HA_ATTENTION_PAIRS },
    { "one", "one shape, by the keys dim to shifted; --random draws it", .list = HA_ATTENTION_ONE },
};
const size_t ha_attention_cases_count = sizeof ha_attention_cases / sizeof *ha_attention_cases;
