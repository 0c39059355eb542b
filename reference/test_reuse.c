/* What the definition of CLO is made of: codes with bits that rounding leaves open, cosines of queries that are known
 * up to rounding, and sets of persistent heads. */

#include "reference/definitions.h"

#include "harness/base/rng.h"
#include "harness/base/test.h"
#include "harness/base/why.h"

#include <math.h>

static struct ha_why why;

/* ---- codes ------------------------------------------------------------------------------------------------------- */

enum { DIM = 48, BITS = 256, ROWS = HA_SANITIZED ? 10 : 100 };

/* order 0, 1: forwards, backwards */
static float sum_of(const float *a, const float *b, size_t n, int order)
{
    float sum = 0;
    for (size_t d = 0; d < n; d++) sum += a[order ? n - 1 - d : d] * b[order ? n - 1 - d : d];
    return sum;
}

static bool bit(const uint32_t *of, size_t i) { return of[i / 32] >> i % 32 & 1; }

/* What binary32 makes of x, and of what x may be, differs in open bits alone, and these are few. */
TEST(test_codes)
{
    static float a[BITS][DIM], x[ROWS][DIM];
    double square[BITS];
    struct ha_def_code code[ROWS], query;
    ha_rng_normals(1, 1, 0, BITS * DIM, a[0]);
    ha_def_code_squares(a[0], BITS, DIM, square);
    ha_rng_normals(1, 2, 0, ROWS * DIM, x[0]);
    for (size_t r = 0; r < ROWS; r++) {
        double at[DIM], off[DIM];
        size_t open = 0;
        for (size_t d = 0; d < DIM; d++) at[d] = (double)x[r][d], off[d] = 1e-3;
        ha_def_code(a[0], square, BITS, DIM, at, NULL, &code[r]);
        for (size_t i = 0; i < BITS; i++) {
            open += bit(code[r].open, i);
            for (int order = 0; order < 2; order++)
                if ((sum_of(a[i], x[r], DIM, order) > 0) != bit(code[r].bit, i) && !bit(code[r].open, i))
                    fail_msg("row %zu: bit %zu is another in order %d", r, i, order);
        }
        if (open > 1) fail_msg("row %zu: %zu bits are open", r, open);
        const double norm = (double)sqrtf(sum_of(x[r], x[r], DIM, 0));
        assert_true(code[r].least <= norm && norm <= code[r].most && code[r].most - code[r].least < 1e-4 * norm);
        ha_def_code(a[0], square, BITS, DIM, at, off, &query);
        for (size_t d = 0; d < DIM; d++) x[r][d] += (d * r) % 3 ? 9e-4f : -9e-4f;
        for (size_t i = 0; i < BITS; i++) {
            const float sum = sum_of(a[i], x[r], DIM, 0);
            if ((sum > 0) != bit(query.bit, i) && !bit(query.open, i)) fail_msg("row %zu: bit %zu is not open", r, i);
            if (bit(query.open, i) && fabsf(sum) > 0.2f) fail_msg("row %zu: bit %zu is open, at %g", r, i, (double)sum);
        }
    }
    for (size_t r = 0; r < ROWS; r++) {
        int differ = 0;
        for (size_t i = 0; i < BITS; i++) differ += bit(code[0].bit, i) != bit(code[r].bit, i);
        const struct ha_ref_score s = ha_def_code_score(&code[0], &code[r], BITS);
        const double is = (double)((float)sqrt(code[r].least * code[r].most) * (float)(BITS - 2 * differ));
        if (!(s.low <= is && is <= s.high)) fail_msg("row %zu: %g is not in %g to %g", r, is, s.low, s.high);
    }
}

/* By hand: a product that is 0 leaves a bit open, a row of zeros leaves none; a score with an open bit is either. */
TEST(test_codes_by_hand)
{
    float a[32][2] = { { 1, 0 }, { 0, 1 }, { -1, 0 }, { 1, 1 } };
    double square[32];
    struct ha_def_code zero, one, open;
    ha_def_code_squares(a[0], 32, 2, square);
    ha_def_code(a[0], square, 32, 2, (const double[]){ 0, 0 }, NULL, &zero);
    ha_def_code(a[0], square, 32, 2, (const double[]){ 3, 4 }, NULL, &one);
    ha_def_code(a[0], square, 32, 2, (const double[]){ 1, -1 }, NULL, &open);
    assert_true(zero.bit[0] == 0 && zero.open[0] == 0 && zero.most == 0);
    assert_true(one.bit[0] == 0xb && one.open[0] == 0);
    assert_true((open.bit[0] & 7) == 1 && open.open[0] == 8);
    /* one and open differ in bit 1, and may in bit 3: 5 times 32 - 2, or 32 - 4 */
    const struct ha_ref_score s = ha_def_code_score(&open, &one, 32);
    assert_true(s.low <= 140 && s.low > 139.99 && s.high >= 150 && s.high < 150.01);
    const struct ha_ref_score none = ha_def_code_score(&one, &zero, 32);
    assert_true(none.low == 0 && none.high == 0);
    ha_def_code(a[0], square, 32, 2, (const double[]){ 1e30, 1 }, NULL, &one);
    const struct ha_ref_score any = ha_def_code_score(&open, &one, 32);
    assert_true(any.low == -HUGE_VAL && any.high == HUGE_VAL);
    /* sums that may overflow */
    ha_def_code(a[0], square, 32, 2, (const double[]){ 3e38, 2e38 }, NULL, &one);
    assert_true(one.open[0] == 0xf);
    /* a negative product of an uncertain norm */
    for (size_t i = 0; i < 32; i++) a[i][0] = 1, a[i][1] = 0;
    ha_def_code_squares(a[0], 32, 2, square);
    ha_def_code(a[0], square, 32, 2, (const double[]){ 1, 0 }, NULL, &one);
    ha_def_code(a[0], square, 32, 2, (const double[]){ -1, 0 }, NULL, &open);
    const struct ha_ref_score least = ha_def_code_score(&open, &one, 32);
    assert_true(least.low < -32 && least.high > -32 && least.high < -31.99 && least.low > -32.01);
}

/* ---- cosines ----------------------------------------------------------------------------------------------------- */

TEST(test_cosine)
{
    double narrow = 0;
    for (size_t r = 0; r < ROWS; r++) {
        float a[DIM], b[DIM];
        double x[2][DIM], off[2][DIM];
        ha_rng_normals(1, 3, r * DIM, DIM, a);
        ha_rng_normals(1, 4, r * DIM, DIM, b);
        for (size_t d = 0; d < DIM; d++) {
            b[d] = a[d] + (float)r / ROWS * b[d];
            x[0][d] = (double)a[d], x[1][d] = (double)b[d];
            off[0][d] = 1e-4, off[1][d] = 2e-4;
        }
        for (size_t with = 0; with < 2; with++) {
            const struct ha_ref_score s = ha_def_cosine(x[0], with ? off[0] : NULL, x[1], with ? off[1] : NULL, DIM);
            for (size_t d = 0; d < DIM && with; d++) a[d] += d % 2 ? 9e-5f : -9e-5f, b[d] -= d % 2 ? 1.9e-4f : -1.9e-4f;
            for (int order = 0; order < 2; order++) {
                const float is = sum_of(a, b, DIM, order) / sqrtf(sum_of(a, a, DIM, order) * sum_of(b, b, DIM, order));
                if (!(s.low <= (double)is && (double)is <= s.high))
                    fail_msg("row %zu: %.9g is not in %.9g to %.9g", r, (double)is, s.low, s.high);
            }
            if (!(s.low <= s.value && s.value <= s.high && s.high - s.low < (with ? 2e-3 : 4e-5)))
                fail_msg("row %zu: %.9g to %.9g", r, s.low, s.high);
            narrow += with ? 0 : s.high - s.low;
        }
    }
    assert_true(narrow / ROWS < 4e-5);
    const double one[2] = { 1, 0 }, none[2] = { 0, 0 }, off[2] = { 1, 1 }, tiny[2] = { 1e-30, 0 },
                 most[2] = { 1e25, 1 };
    assert_true(isnan(ha_def_cosine(one, NULL, none, NULL, 2).low));
    assert_true(isnan(ha_def_cosine(none, NULL, one, off, 2).low));
    assert_true(ha_def_cosine(one, off, one, NULL, 2).low == -HUGE_VAL);
    assert_true(ha_def_cosine(one, NULL, tiny, NULL, 2).high == HUGE_VAL);
    assert_true(ha_def_cosine(most, NULL, one, NULL, 2).high == HUGE_VAL);
}

static bool near(double a, double b) { return fabs(a - b) < 1e-5; }

TEST(test_cosine_group)
{
    const double nan = (double)NAN, by[] = { 1, 3 };
    const struct ha_ref_score half = { 0.5, 0.4, 0.6 }, one = { 1, 0.9, 1 }, not = { -0.1, -0.2, -0.05 },
                              maybe = { 0.01, -0.1, 0.1 }, none = { nan, nan, nan }, any = { 0.5, -HUGE_VAL, HUGE_VAL };
    struct ha_ref_score s = ha_def_cosine_group((const struct ha_ref_score[]){ half, one }, by, 2, true);
    assert_true(near(s.value, 4 / (1 / 0.5 + 3)) && near(s.low, 4 / (1 / 0.4 + 3 / 0.9))
                && near(s.high, 4 / (1 / 0.6 + 3)));
    s = ha_def_cosine_group((const struct ha_ref_score[]){ one, half }, by, 2, false);
    assert_true(s.value == 0.5 && s.low == 0.4 && s.high == 0.6);
    s = ha_def_cosine_group((const struct ha_ref_score[]){ one, not }, by, 2, true);
    assert_true(s.value == -0.1 && s.low == -0.2 && s.high == -0.05);
    s = ha_def_cosine_group((const struct ha_ref_score[]){ one, maybe }, by, 2, true);
    assert_true(s.low == -0.1 && near(s.high, 4 / (1 + 3 / 0.1)));
    assert_true(isnan(ha_def_cosine_group((const struct ha_ref_score[]){ one, none }, by, 2, true).low));
    assert_true(isnan(ha_def_cosine_group((const struct ha_ref_score[]){ one, none }, by, 2, false).low));
    s = ha_def_cosine_group((const struct ha_ref_score[]){ one, any }, by, 2, true);
    assert_true(s.low == -HUGE_VAL && s.high == HUGE_VAL);
}

/* ---- persistent heads -------------------------------------------------------------------------------------------- */

enum { LAYERS = 3, HEADS = 3, BEHIND = (LAYERS - 1) * HEADS };

static enum ha_status judge(const double *d, double fetched, double room, unsigned set)
{
    double difficulty[LAYERS * HEADS] = { 0 };
    uint8_t persistent[LAYERS * HEADS];
    struct ha_def_reuse r = { .layers = LAYERS,
                              .q_heads = HEADS,
                              .kv_heads = HEADS,
                              .difficulty = difficulty,
                              .prefetched = { fetched, fetched },
                              .room = { room, room },
                              .persistent = persistent };
    memset(persistent, HA_DEF_MAYBE, sizeof persistent);
    memcpy(difficulty + HEADS, d, BEHIND * sizeof *d);
    for (size_t i = 0; i < LAYERS * HEADS; i++) {
        const struct ha_def_head h = { .variant = "v", .layer = i / HEADS, .head = i % HEADS };
        HA_TRY(ha_def_reuse_judge(&r, &h, i < HEADS || (set >> (i - HEADS) & 1), &why));
    }
    return HA_OK;
}

/* By the rule, as plainly as it can be said. */
static unsigned rule(const double *d, double fetched, double room)
{
    unsigned wanted = 0, out = 0;
    for (size_t l = 0; l < BEHIND; l += HEADS) {
        double count = -fetched;
        for (size_t i = l; i < l + HEADS; i++) count += d[i] > 0;
        for (; count > 0; count--) {
            size_t at = BEHIND;
            for (size_t i = l; i < l + HEADS; i++)
                if (!(wanted >> i & 1) && (at == BEHIND || d[i] > d[at])) at = i;
            wanted |= 1u << at;
        }
    }
    for (; room > 0; room--) {
        size_t at = BEHIND;
        for (size_t i = 0; i < BEHIND; i++)
            if ((wanted & ~out) >> i & 1 && (at == BEHIND || d[i] > d[at])) at = i;
        if (at == BEHIND) break;
        out |= 1u << at;
    }
    return out;
}

/* Of difficulties that are apart one set is right, and all others are refused. */
TEST(test_sets)
{
    for (size_t n = 0; n < (HA_SANITIZED ? 20 : 400); n++) {
        double d[BEHIND];
        for (size_t i = 0; i < BEHIND; i++) d[i] = (double)ha_rng_normal(1, 5, n * BEHIND + i) + 0.3;
        const double fetched = (double)(n % 3), room = (double)(n / 3 % (BEHIND + 2));
        for (unsigned set = 0; set < 1u << BEHIND; set++)
            if (judge(d, fetched, room, set) != (set == rule(d, fetched, room) ? HA_OK : HA_FAIL))
                fail_msg("trial %zu, %g prefetched, room for %g: set %#x, of %#x: %s", n, fetched, room, set,
                         rule(d, fetched, room), why.text);
    }
}

/* Of some that are near each other, or to 0, all that a little more or less makes of them are right. */
TEST(test_near_sets)
{
    size_t several = 0;
    for (size_t n = 0; n < (HA_SANITIZED ? 5 : 60); n++) {
        double d[BEHIND];
        uint64_t seen = 0;
        const double fetched = (double)(n % 2), room = (double)(n / 2 % (BEHIND + 1));
        for (size_t i = 0; i < BEHIND; i++) d[i] = 0.1 * (double)ha_rng_below(1, 6, n * BEHIND + i, 3);
        for (size_t trial = 0; trial < 15625; trial++) {
            double moved[BEHIND];
            size_t by = trial;
            for (size_t i = 0; i < BEHIND; i++, by /= 5) moved[i] = d[i] + 2e-10 * ((double)(by % 5) - 2);
            const unsigned set = rule(moved, fetched, room);
            seen |= UINT64_C(1) << set;
            if (judge(d, fetched, room, set) != HA_OK) fail_msg("trial %zu, %zu: set %#x: %s", n, trial, set, why.text);
        }
        /* what is no set of any of these is refused */
        for (unsigned set = 0; set < 1u << BEHIND; set++)
            if (!(seen >> set & 1) && judge(d, fetched, room, set) != HA_FAIL)
                fail_msg("trial %zu: set %#x is not refused", n, set);
        several += (seen & (seen - 1)) != 0;
    }
    assert_true(several > (HA_SANITIZED ? 0 : 3));
}

/* What is wrong is named. */
TEST(test_sets_by_hand)
{
    static const struct {
        double d[BEHIND], fetched, room;
        unsigned set;
        const char *says; /* NULL: it is right */
    } each[] = {
        { { 0.5, 0.2, -0.1, 0.6, 0.4, -0.3 }, 1, 9, 011, NULL },
        { { 0.5, 0.2, -0.1, 0.6, 0.4, -0.3 }, 1, 9, 012, "layer 1 seq 0 head 0: note persistent is 0: difficulty 0.5" },
        { { 0.5, 0.2, -0.1, 0.6, 0.4, -0.3 }, 1, 9, 013, "layer 1 seq 0 head 1: note persistent is 1: difficulty 0.2" },
        { { 0.5, 0.2, -0.1, 0.6, 0.4, -0.3 }, 0, 1, 011, "note persistent is 1: the budget has room for 1 heads" },
        { { 0.5, 0.2, -0.1, 0.6, 0.4, -0.3 }, 0, 1, 010, NULL },
        { { 0.5, 0.2, -0.1, 0.6, 0.4, -0.3 }, 0, 2, 010, "note persistent is 0" },
        /* one of two */
        { { 0.5, 0.5, -1, -1, -1, -1 }, 1, 9, 01, NULL },
        { { 0.5, 0.5, -1, -1, -1, -1 }, 1, 9, 02, NULL },
        { { 0.5, 0.5, -1, -1, -1, -1 }, 1, 9, 03, "2 heads of layer 1 are persistent, 1 are hard" },
        { { 0.5, 0.5, -1, -1, -1, -1 }, 1, 9, 00, "is not persistent, and the budget has room" },
        { { 0.5, -1, -1, 0.5, -1, -1 }, 0, 1, 011, "2 heads behind the first layer are persistent, the budget has" },
        { { 0.5, -1, -1, 0.5, -1, -1 }, 0, 1, 010, NULL },
        /* each is near the next one, and the first is not near the last */
        { { 0.3, 0.3 + 7e-10, -1, 0.3 + 7e-10, 0.3 + 1.2e-9, -1 }, 0, 2, 03, "and one that is less hard is" },
        { { 0.3, 0.3 + 7e-10, -1, 0.3 + 7e-10, 0.3 + 1.2e-9, -1 }, 0, 2, 012, NULL },
    };
    for (size_t i = 0; i < COUNT(each); i++) {
        why = (struct ha_why){ "" };
        const enum ha_status status = judge(each[i].d, each[i].fetched, each[i].room, each[i].set);
        if (status != (each[i].says ? HA_FAIL : HA_OK) || (each[i].says && !strstr(why.text, each[i].says)))
            fail_msg("set %zu: %d: %s", i, (int)status, why.text);
    }
}
