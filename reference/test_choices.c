/* Choices by scores: by hand where scores are close. What else these definitions refuse is in
 * suites/variants/test_spoiled.c. */

#include "reference/definitions.h"
#include "reference/test_world.h"

#include "harness/base/numeric.h"
#include "harness/base/rng.h"

static struct ha_why why;

enum { HEAD, MAX, UNION };

/* ---- a share of the blocks ------------------------------------------------------------------- */

#define BLOCK_0 0, 1, 2, 3, 4, 5, 6, 7
#define BLOCK_1 8, 9, 10, 11, 12, 13, 14, 15
#define BLOCK_2 16, 17, 18, 19, 20, 21, 22, 23

/* Three blocks of 8 keys: of weight 1; the largest among small ones; of weight 2. Three keys and a new one behind them.
 */
TEST(test_share)
{
    static const struct {
        double budget, mean;
        struct ha_test_report right, wrong;
        const char *text;
    } cases[] = {
        { 1e-6, 0, DEVICE(BLOCK_1, 24, 25, 26, 27), DEVICE(24, 25, 26, 27), "0 blocks chosen, the rule chooses 1" },
        { 0.33, 0, DEVICE(BLOCK_1, 24, 25, 26, 27), DEVICE(BLOCK_2, 24, 25, 26, 27), "block 1 (score 1.609" },
        { 1 / 3., 0, DEVICE(BLOCK_1, 24, 25, 26, 27), DEVICE(BLOCK_1, BLOCK_2, 24, 25, 26, 27),
          "2 blocks chosen, the rule chooses 1" },
        { 0.34, 0, DEVICE(BLOCK_1, BLOCK_2, 24, 25, 26, 27), DEVICE(BLOCK_1, 24, 25, 26, 27),
          "1 blocks chosen, the rule chooses 2: block 2" },
        { 0.67, 0, DEVICE(BLOCK_0, BLOCK_1, BLOCK_2, 24, 25, 26, 27), DEVICE(BLOCK_1, BLOCK_2, 24, 25, 26, 27),
          "block 0 is missing: all 3" },
        { 0.33, 1, DEVICE(BLOCK_2, 24, 25, 26, 27), DEVICE(BLOCK_1, 24, 25, 26, 27), "block 2 (score 0.693" },
        { 0.33, 0, DEVICE(BLOCK_1, 24, 25, 26, 27), DEVICE(BLOCK_1, 24, 26, 27),
          "key 25 is missing: it is behind the last full block" },
        { 0.33, 0, DEVICE(BLOCK_1, 24, 25, 26, 27), DEVICE(BLOCK_1, 24, 25, 26), "key 27 is missing: it is new" },
        { 0.33, 0, DEVICE(BLOCK_1, 24, 25, 26, 27), DEVICE(BLOCK_1, 17, 24, 25, 26, 27), "block 2 is used in part" },
        { 0.33, 0, DEVICE(BLOCK_1, 24, 25, 26, 27), SPLIT(KEYS(24, 25, 26, 27), KEYS(BLOCK_1)), "is on the host" },
    };
    double weight[24];
    for (size_t j = 0; j < 24; j++) weight[j] = j < 8 ? 1 : j == 11 ? 5 : j < 16 ? 0.01 : 2;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const double param[] = { 8, cases[i].budget, cases[i].mean, HEAD };
        const struct ha_test_step step = { 1, { 1 }, { cases[i].right } };
        struct ha_test_world one = ha_test_world(&ha_definition_gpu_only, param, 27, WEIGHTS(weight), NULL);
        ha_test_accept(&one, &step, 1);
        ha_test_reject(&one, &step, 1, &cases[i].wrong, cases[i].text);
    }
    static const double together[] = { 8, 0.33, 0, MAX };
    const struct ha_test_step two = { 1, { 1, 0.5f }, { cases[1].right, cases[1].right } };
    struct ha_test_world group = ha_test_world(&ha_definition_gpu_only, together, 27, WEIGHTS(weight), NULL);
    group.shape.q_heads = 2;
    ha_test_accept(&group, &two, 1);
    ha_test_reject(&group, &two, 1, REPORTS(cases[1].right, cases[1].wrong), "they have one choice");
}

/* ---- ties ---------------------------------------------------------------------------------- */

/* A score is known as far as binary32 may err, and no farther: further where a prediction or a mean errs, too. */
TEST(rounding)
{
    enum { DIM = 16 };
    const struct ha_shape shape = { .head_dim = DIM, .scale = 0.25f, .dtype = HA_F32 };
    const struct ha_def_blocks range = { .size = 8, .count = 1 }, mean = { .size = 8, .count = 1, .mean = true };
    double q[DIM], k[DIM], off[DIM], width[4];
    float rows[8 * DIM];
    struct ha_def_digest of_range, of_mean;
    for (size_t d = 0; d < DIM; d++) {
        q[d] = d % 2 ? -1.5 : 1;
        off[d] = 1e-6;
        k[d] = 1 + (double)d / 16;
        for (size_t i = 0; i < 8; i++) rows[i * DIM + d] = (float)k[d];
    }
    ha_def_digest(&shape, &range, rows, 0, &of_range);
    ha_def_digest(&shape, &mean, rows, 0, &of_mean);
    const struct ha_ref_score of[] = { ha_ref_score_dot(q, NULL, k, NULL, DIM, 0.25),
                                       ha_ref_score_dot(q, off, k, NULL, DIM, 0.25),
                                       ha_def_digest_score(&shape, &range, &of_range, q, NULL),
                                       ha_def_digest_score(&shape, &mean, &of_mean, q, NULL) };
    for (size_t i = 0; i < COUNT(of); i++) {
        assert_true(fabs(of[i].value - of[0].value) < 1e-6);
        assert_true(of[i].low < of[i].value && of[i].high > of[i].value);
        width[i] = of[i].high - of[i].low;
    }
    assert_true(width[0] > 1e-6 && width[0] < 3e-5 && width[1] > 1.3 * width[0] && width[1] < 3e-4);
    assert_true(width[2] > 1e-6 && width[2] < 3e-5 && width[3] > 1.3 * width[2] && width[3] < 3e-4);
}

/* A mean halfway between two numbers of bf16 may be either of them: blocks of 8 keys of 1, of 1 and the next, of that.
 */
TEST(mean_rounded)
{
    static const double param[] = { 8, 8, 0, 1, HEAD };
    static const struct ha_test_step step = { 1, { 1 }, { DEVICE(BLOCK_1, 24) } };
    for (int other = 0; other < 2; other++) {
        struct ha_test_world one = ha_test_world(&ha_definition_quest, param, 24, EVEN, NULL);
        float key[25] = { 0 };
        for (size_t j = 0; j < 24; j++)
            key[j] = j < 8 ? 0 : j < 16 ? 1 + 0x1p-7f * (float)(j % 2) : 1 + 0x1p-7f * (float)other;
        one.shape.dtype = HA_BF16;
        ha_store_row(one.key[0][0], 25, HA_BF16, key);
        ha_test_accept(&one, &step, 1);
        assert_int_equal(ha_test_other(&one, &step, 1, REPORTS(DEVICE(BLOCK_2, 24)), &why), HA_OK);
        ha_test_reject(&one, &step, 1, REPORTS(DEVICE(BLOCK_0, 24)), "block 0 (score 0) was chosen");
    }
}

/* Equal scores: either is right. */
TEST(test_equal)
{
    static const double param[] = { 2, 0, HEAD };
    static const double weight[6] = { 1, 3, 2, 1, 2, 1 };
    static const struct ha_test_step step = { 1, { 1 }, { DEVICE(1, 2, 6) } };
    struct ha_test_world one = ha_test_world(&ha_definition_topk, param, 6, WEIGHTS(weight), NULL);
    ha_test_accept(&one, &step, 1);
    assert_int_equal(ha_test_other(&one, &step, 1, REPORTS(DEVICE(1, 4, 6)), &why), HA_OK);
    ha_test_reject(&one, &step, 1, REPORTS(DEVICE(2, 4, 6)),
                   "key 4 (score 0.693147182) was chosen, key 1 (score 1.09861231) was not");
    ha_test_reject(&one, &step, 1, REPORTS(DEVICE(1, 2, 4, 6)), "3 keys chosen, the rule chooses 2: key 4");
    ha_test_reject(&one, &step, 1, REPORTS(DEVICE(1, 6)), "1 keys chosen, the rule chooses 2: key 2");
}

/* Three scores so close that rounding may swap neighbours, not the first with the third. */
TEST(test_near)
{
    static const double param[] = { 2, 0, HEAD };
    static const struct ha_test_step step = { 1, { 1 }, { DEVICE(2, 3, 6) } };
    bool found = false;
    for (double gap = 1e-8; gap < 1e-3 && !found; gap *= 1.1) {
        struct ha_test_world one = ha_test_world(&ha_definition_topk, param, 6, EVEN, NULL);
        for (int j = 0; j < 3; j++) one.key[0][0][2 + j] = (float)(1 - gap * j);
        found = ha_test_other(&one, &step, 1, REPORTS(DEVICE(2, 4, 6)), &why) == HA_OK
                && ha_test_other(&one, &step, 1, REPORTS(DEVICE(3, 4, 6)), &why) == HA_FAIL;
    }
    assert_true(found);
}

/* One key for each of two heads, whose queries have opposite signs; then three that are as good as each other. */
TEST(test_union)
{
    static const double param[] = { 1, 0, UNION };
    static const double weight[6] = { 1, 3, 1, 0.1, 1, 1 }, ties[6] = { 3, 3, 3, 1, 1, 1 };
    static const struct ha_test_step apart = { 1, { 1, -1 }, { DEVICE(1, 3, 6), DEVICE(1, 3, 6) } },
                                     alike = { 1, { 1, 1 }, { DEVICE(0, 1, 6), DEVICE(0, 1, 6) } };
    struct ha_test_world two = ha_test_world(&ha_definition_topk, param, 6, WEIGHTS(weight), NULL);
    two.shape.q_heads = 2;
    ha_test_accept(&two, &apart, 1);
    ha_test_reject(&two, &apart, 1, REPORTS(DEVICE(1, 6), DEVICE(1, 6)),
                   "key 3 is missing: it is among the 1 best of head 1");
    ha_test_reject(&two, &apart, 1, REPORTS(DEVICE(1, 3, 4, 6), DEVICE(1, 3, 4, 6)),
                   "key 4 is not among the 1 best of any");
    ha_test_reject(&two, &apart, 1, REPORTS(DEVICE(1, 3, 6), DEVICE(1, 6)),
                   "head 1: key 3 is missing and chosen by head 0");
    two = ha_test_world(&ha_definition_topk, param, 6, WEIGHTS(ties), NULL);
    two.shape.q_heads = 2;
    ha_test_accept(&two, &alike, 1);
    assert_int_equal(ha_test_other(&two, &alike, 1, REPORTS(DEVICE(2, 6), DEVICE(2, 6)), &why), HA_OK);
    ha_test_reject(&two, &alike, 1, REPORTS(DEVICE(0, 1, 2, 6), DEVICE(0, 1, 2, 6)),
                   "key 2 has no place among the 1 of each head");
    ha_test_reject(&two, &alike, 1, REPORTS(DEVICE(6), DEVICE(6)), "0 keys may be the 1 best of head 0");
}

/* ---- a choice by intervals ------------------------------------------------------------------ */

enum { FEW = 8 };
#define AT(x) BETWEEN(x, x)
#define BETWEEN(a, b)                                      \
    {                                                      \
        .value = ((a) + (b)) / 2., .low = (a), .high = (b) \
    }

/* taken: as bits */
static enum ha_status judge_taken(enum ha_def_group group, size_t heads, size_t count, size_t want,
                                  struct ha_ref_score score[][FEW], unsigned taken)
{
    const struct ha_def_head h = { .variant = "test" };
    struct ha_def_choice c = { .what = "key", .group = group };
    why = (struct ha_why){ "" };
    assert_int_equal(ha_def_choice_begin(&c, heads, count, &why), HA_OK);
    for (size_t head = 0; head < heads; head++)
        for (size_t i = 0; i < count; i++) ha_def_choice_score(&c, head, i, score[head][i]);
    for (size_t i = 0; i < count; i++) c.taken[i] = taken >> i & 1;
    const enum ha_status status = ha_def_choice_judge(&c, &h, want, &why);
    ha_def_choice_end(&c);
    return status;
}

static void refuse_union(size_t heads, size_t count, size_t want, struct ha_ref_score score[][FEW], unsigned taken,
                         const char *text)
{
    assert_int_equal(judge_taken(HA_DEF_UNION, heads, count, want, score, taken), HA_FAIL);
    if (!strstr(why.text, text)) fail_msg("\"%s\" does not say \"%s\"", why.text, text);
}

/* Two that only the first head may have, which has one slot; the second has two that it does not need. */
TEST(test_slots)
{
    struct ha_ref_score score[4][FEW] = {
        { AT(9), AT(5), AT(5), AT(5), AT(1), AT(1) },
        { AT(5), AT(1), AT(1), AT(1), AT(5), AT(5) },
        { AT(5), AT(1), AT(1), AT(1), AT(5), AT(5) },
    };
    refuse_union(2, 6, 2, score, 0x17, "key 2 has no place among the 2 of each head");
    refuse_union(3, 6, 2, score, 0x37, "key 2 has no place among the 2 of each head");
    assert_int_equal(judge_taken(HA_DEF_UNION, 2, 6, 2, score, 0x33), HA_OK);
    assert_int_equal(judge_taken(HA_DEF_UNION, 3, 6, 2, score, 0x33), HA_OK);
    /* key 2 has only head 0, from which key 0 moves to head 1, and from there key 1 to head 2 */
    struct ha_ref_score chain[4][FEW] = {
        { AT(5), AT(1), AT(5), AT(1), AT(1) },
        { AT(5), AT(5), AT(1), AT(1), AT(1) },
        { AT(1), AT(5), AT(1), AT(5), AT(1) },
        { AT(1), AT(1), AT(1), AT(5), AT(5) },
    };
    assert_int_equal(judge_taken(HA_DEF_UNION, 4, 5, 1, chain, 0x0f), HA_OK);
    refuse_union(3, 5, 1, chain, 0x0f, "has no place among the 1 of each head");
    refuse_union(4, 5, 1, chain, 0x1f, "has no place among the 1 of each head");
    /* key 3 moves keys 0 and 1 to heads 1 and 2; key 5 then moves key 0 from head 1 to 3, and key 2 to head 4 */
    struct ha_ref_score twice[6][FEW] = {
        { AT(5), AT(1), AT(1), AT(5), AT(1), AT(1) }, { AT(5), AT(5), AT(1), AT(1), AT(1), AT(5) },
        { AT(1), AT(5), AT(1), AT(1), AT(5), AT(1) }, { AT(5), AT(1), AT(5), AT(1), AT(1), AT(1) },
        { AT(1), AT(1), AT(5), AT(1), AT(5), AT(1) }, { AT(1), AT(1), AT(1), AT(1), AT(9), AT(1) },
    };
    assert_int_equal(judge_taken(HA_DEF_UNION, 6, 6, 1, twice, 0x3f), HA_OK);
}

/* The first is smaller than the second for certain, and is not taken without it. */
TEST(test_pairs)
{
    struct ha_ref_score score[1][FEW] = { { AT(5), BETWEEN(6, 6.5), BETWEEN(1, 7), BETWEEN(1, 7) } };
    refuse_union(1, 4, 2, score, 0x5, "1 keys may be the 2 best of head 0");
    assert_int_equal(judge_taken(HA_DEF_HEAD, 1, 4, 2, score, 0x5), HA_FAIL);
    assert_int_equal(judge_taken(HA_DEF_UNION, 1, 4, 2, score, 0x3), HA_OK);
    assert_int_equal(judge_taken(HA_DEF_UNION, 1, 4, 2, score, 0xc), HA_OK);
    struct ha_ref_score two[2][FEW] = { { AT(5), BETWEEN(6, 6.5), BETWEEN(1, 7), BETWEEN(1, 7) },
                                        { AT(1), AT(1), AT(5), AT(5) } };
    refuse_union(2, 4, 2, two, 0xd, "key 0 has no place among the 2 of each head");
}

/* Whether `heads` choices of `want`, each with all that are larger for certain, are the taken ones together. */
static bool is_union(size_t heads, size_t count, size_t want, struct ha_ref_score score[][FEW], unsigned taken,
                     unsigned have)
{
    if (heads == 0) return have == taken;
    const struct ha_ref_score *of = score[heads - 1];
    for (unsigned own = 0; own < 1U << count; own++) {
        bool may = !(own & ~taken) && (size_t)__builtin_popcount(own) == want;
        for (size_t i = 0; i < count && may; i++)
            for (size_t j = 0; j < count && may; j++) may = !(own >> i & 1) || own >> j & 1 || of[i].high >= of[j].low;
        if (may && is_union(heads - 1, count, want, score, taken, have | own)) return true;
    }
    return false;
}

/* Of all that may be taken: what some choices of the heads explain is accepted, and nothing else where one head chooses
 * or scores are known, as they are in every other case. */
TEST(test_every_union)
{
    enum { TIMES = HA_SANITIZED ? 4 : 60, CANDIDATES = 5 };
    size_t more = 0, unions = 0;
    for (uint64_t n = 0; n < TIMES; n++)
        for (size_t heads = 1; heads <= 3; heads++) {
            struct ha_ref_score score[3][FEW];
            float x[2 * 3 * FEW];
            ha_rng_normals(5, 6, n * COUNT(x), COUNT(x), x);
            for (size_t i = 0; i < (size_t)3 * FEW; i++) {
                const double low = floor((n % 2 ? 2 : 1) * (double)x[2 * i]),
                             wide = n % 2 ? floor(fabs(2 * (double)x[2 * i + 1])) : 0;
                score[i / FEW][i % FEW] = (struct ha_ref_score){ low, low, low + wide };
            }
            const size_t want = 1 + n % 3;
            for (unsigned taken = 0; taken < 1U << CANDIDATES; taken++) {
                const bool is = is_union(heads, CANDIDATES, want, score, taken, 0),
                           said = judge_taken(HA_DEF_UNION, heads, CANDIDATES, want, score, taken) == HA_OK;
                if (is ? !said : said && (heads == 1 || n % 2 == 0))
                    fail_msg("case %zu, %zu heads, taken %#x: %s %s", (size_t)n, heads, taken,
                             is ? "refused:" : "accepted", why.text);
                unions += is;
                more += said && !is;
                const bool list = judge_taken(HA_DEF_HEAD, 1, CANDIDATES, want, score, taken) == HA_OK;
                if (heads == 1 && list != is) fail_msg("case %zu, a list, taken %#x", (size_t)n, taken);
            }
        }
    if (more * 50 > unions) fail_msg("%zu accepted that are none, beside %zu that are", more, unions);
}

/* ---- what cannot be judged ------------------------------------------------------------------ */

TEST(no_input)
{
    static const double ahead[] = { 9, 1, HEAD };
    const struct ha_shape shape = { .layers = 2, .batch = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 1 };
    struct ha_def *def = NULL;
    assert_int_equal(ha_definition_topk.create(&def, &shape, ahead, NULL, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "query=ahead needs layer inputs"));
    assert_null(def);
}

/* Scores that may overflow say nothing: every choice of the right number is right. */
TEST(test_huge)
{
    static const double param[] = { 1, 0, HEAD };
    static const struct ha_test_step step = { 1, { 2 }, { DEVICE(1, 4) } };
    struct ha_test_world one = ha_test_world(&ha_definition_topk, param, 4, EVEN, NULL);
    for (size_t j = 0; j < 5; j++) one.key[0][0][j] = j == 1 ? 3e38f : 2e38f;
    ha_test_accept(&one, &step, 1);
    assert_int_equal(ha_test_other(&one, &step, 1, REPORTS(DEVICE(2, 4)), &why), HA_OK);
    ha_test_reject(&one, &step, 1, REPORTS(DEVICE(1, 2, 4)), "2 keys chosen");
}

/* Nor does a mean whose sum may overflow: of 6e37, not of 1e37 or 2e37. */
TEST(test_huge_mean)
{
    static const double param[] = { 8, 8, 0, 1, HEAD };
    static const float of[] = { 6e37f, 1e37f, 2e37f };
    static const struct ha_test_step step = { 1, { 1 }, { DEVICE(0, 1, 2, 3, 4, 5, 6, 7, 24) } };
    struct ha_test_world one = ha_test_world(&ha_definition_quest, param, 24, EVEN, NULL);
    for (size_t j = 0; j < 24; j++) one.key[0][0][j] = of[j / 8];
    ha_test_accept(&one, &step, 1);
    assert_int_equal(ha_test_other(&one, &step, 1, REPORTS(DEVICE(16, 17, 18, 19, 20, 21, 22, 23, 24)), &why), HA_OK);
    ha_test_reject(&one, &step, 1, REPORTS(DEVICE(8, 9, 10, 11, 12, 13, 14, 15, 24)),
                   "block 1 (score 9.99999993e+36) was chosen");
}
