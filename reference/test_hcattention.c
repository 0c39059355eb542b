/* What stands for a key, by hand. What else the definition of HCAttention refuses is in suites/variants/test_spoiled.c.
 */

#include "reference/definitions.h"

#include "harness/base/test.h"

#include <math.h>

enum { DIM = 2, KEYS = 4 };
static const struct ha_shape shape = {
    .layers = 1, .batch = 1, .q_heads = 1, .kv_heads = 1, .head_dim = DIM, .dtype = HA_F32, .ctx = { KEYS }
};
/* a quarter of a turn for each position */
static const float inv_freq[] = { 1.57079632679489662f };
static const struct ha_projection projection[] = { { .inv_freq = inv_freq, .rotary = DIM, .rope_scale = 1 } };
static struct ha_why why;
extern const struct ha_definition ha_definition_hcattention;

/* A book of c centroids and the keys that it codes. */
static struct ha_def_head begin(struct ha_def_book *b, size_t dims, size_t c, bool before, const float *keys)
{
    static const struct ha_selection chosen;
    const struct ha_def_book_rule rule = { "hcattention", dims, c, true, before };
    const struct ha_def_head h = {
        .variant = "hcattention", .k = keys, .tokens = KEYS, .chosen = &chosen, .projection = projection
    };
    assert_int_equal(ha_def_book_create(b, &rule, &shape, NULL, &why), HA_OK);
    assert_int_equal(ha_def_book_prefill(b, &h, &why), HA_OK);
    assert_int_equal(ha_def_book_code(b, &h, KEYS, &why), HA_OK);
    return h;
}

static enum ha_status stands(struct ha_def_book *b, const struct ha_def_head *h, uint32_t token, float x, float y)
{
    const float k[DIM] = { x, y };
    const struct ha_part part = { .token = &token, .count = 1, .k = k };
    return ha_def_book_judge(b, h, &part, &why);
}

/* Of four keys the first and the third are centroids. */
TEST(nearest_by_hand)
{
    static const float keys[KEYS][DIM] = { { 0, 0 }, { 1, 0 }, { 4, 0 }, { 2, 0 } };
    struct ha_def_book b;
    const struct ha_def_head h = begin(&b, DIM, 2, false, keys[0]);
    assert_int_equal(stands(&b, &h, 1, 4, 0), HA_FAIL);
    assert_non_null(strstr(why.text, "what stands for key 1 is not its nearest centroid in group 0"));
    assert_int_equal(stands(&b, &h, 1, 1, 0), HA_FAIL); /* itself */
    assert_int_equal(stands(&b, &h, 1, 1e-6f, 0), HA_FAIL);
    assert_int_equal(stands(&b, &h, 1, 0, 0), HA_OK);
    assert_int_equal(stands(&b, &h, 3, 4, 0), HA_OK); /* either is as near */
    assert_int_equal(stands(&b, &h, 3, 4, 0), HA_OK);
    assert_int_equal(stands(&b, &h, 3, 0, 0), HA_FAIL);
    assert_non_null(strstr(why.text, "what stands for key 3 is not what it was before"));
    assert_int_equal(stands(&b, &h, KEYS, 0, 0), HA_FAIL);
    assert_non_null(strstr(why.text, "key 4 has no code yet"));
    ha_def_book_end(&b);
}

/* Distances whose squares binary32 cannot have are infinite, and so alike: any such centroid may be the nearest. */
TEST(infinite_distances)
{
    static const float keys[KEYS][DIM] = { { 1e20f, 0 }, { 3e20f, 0 }, { 2e20f, 0 }, { 3e20f, 0 } };
    struct ha_def_book b;
    const struct ha_def_head h = begin(&b, DIM, 2, false, keys[0]);
    assert_int_equal(stands(&b, &h, 1, 1e20f, 0), HA_OK);
    assert_int_equal(stands(&b, &h, 3, 2e20f, 0), HA_OK);
    ha_def_book_end(&b);
}

/* Keys are coded as they are before they are turned by their position, and turned again. */
TEST(turned_by_hand)
{
    static const float keys[KEYS][DIM] = { { 1, 0 }, { 0, 1 }, { -5, 0 }, { 0, -4 } }; /* 1, 1, 5 and 4 along x */
    struct ha_def_book b;
    struct ha_def_head h = begin(&b, DIM, 2, true, keys[0]);
    const struct ha_def_coded *c = ha_def_book_coded(&b, &h);
    assert_true(fabsf(c->k[2]) < 1e-6f && fabsf(c->k[3] - 1) <= c->off[3] && c->off[3] < 1e-5f);
    assert_int_equal(stands(&b, &h, 1, 1, 0), HA_FAIL); /* not turned again */
    /* key 2, a position further on */
    const float x = (float)(-5 * cos((double)inv_freq[0])), y = (float)(-5 * sin((double)inv_freq[0]));
    assert_int_equal(stands(&b, &h, 3, x, y - 1e-4f), HA_FAIL);
    assert_int_equal(stands(&b, &h, 3, x, y), HA_OK);
    h.projection = NULL;
    assert_int_equal(ha_def_book_code(&b, &h, KEYS + 1, &why), HA_WAIVED);
    ha_def_book_end(&b);
}

TEST(groups_that_do_not_divide)
{
    const double param[32] = { 16, 2 };
    struct ha_def *def = NULL;
    const struct ha_definition *d = &ha_definition_hcattention;
    assert_int_equal(d->create(&def, &shape, param, NULL, &why), HA_ERROR);
    assert_string_equal(why.text, "hcattention: groups of dims=16 do not divide head_dim=2");
    d->destroy(def);
}
