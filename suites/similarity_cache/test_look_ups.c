/* What look-ups count, by hand: how similar queries were, and what choices at low and at high similarity have in common
 * with those before them. Hits and keys that are left out `habench check` judges, of clo. */

#include "harness/base/arena.h"
#include "harness/base/test.h"
#include "suites/similarity_cache/look_ups.h"

#include <math.h>

static struct ha_why why;
static const struct ha_shape shape = { .layers = 2, .batch = 1, .q_heads = 2, .kv_heads = 2 };
static struct ha_context ctx = { .shape = &shape };

static double said[3];
static void hear(void *arg, const char *name, size_t layer, double value)
{
    static const char *const names[] = { "similarity", "overlap_low", "overlap_high" };
    for (size_t i = 0; i < COUNT(names); i++)
        if (!strcmp(names[i], name)) said[i] = value;
    assert_int_equal(layer, 1);
}

TEST(overlaps_by_hand)
{
    static const struct {
        float similarity;
        bool missed;
        uint32_t now[4];
    } steps[] = {
        { -INFINITY, true, { 1, 2, 3, 4 } }, /* the first, beside nothing */
        { 0.5f, true, { 9, 4, 2, 7 } },      /* low: 2 of 4 */
        { 0.9f, false, { 0 } },              /* a hit changes no choice */
        { 0.8f, true, { 7, 9, 4, 1 } },      /* high: 3 of 4 */
        { 0.6f, true, { 10, 11, 12, 13 } },  /* neither */
        { 0.4f, true, { 13, 12, 11, 10 } },  /* low: 4 of 4 */
        { 0.79f, true, { 1, 2, 3, 4 } },     /* neither */
        { 0.39f, true, { 5, 6, 7, 8 } },     /* neither */
        { 0.95f, true, { 8, 1, 2, 3 } },     /* high: 1 of 4 */
    };
    struct ha_look_ups u;
    double sum = 0;
    assert_int_equal(ha_arena_create(&ctx.arena, true, &why), HA_OK);
    assert_int_equal(ha_look_ups_create(&u, &ctx, 3, 5, 4, 20, true, &why), HA_OK);
    for (int again = 0; again < 2; again++) {
        ha_look_ups_clear(&u, 1);
        said[0] = said[1] = said[2] = -1;
        ha_look_ups_count(&u, 1, hear, NULL);
        assert_true(said[0] < 0 && said[1] < 0 && said[2] < 0);
        sum = 0;
        for (size_t i = 0; i < COUNT(steps); i++) {
            ha_look_ups_add(&u, 1, 1, 100 + i, steps[i].missed, steps[i].similarity, steps[i].now, 4);
            if (i) sum += (double)steps[i].similarity;
        }
        ha_look_ups_count(&u, 1, hear, NULL);
        assert_near(said[0], sum / (COUNT(steps) - 1), 1e-12);
        assert_near(said[1], (2.0 + 4) / 8, 1e-12);
        assert_near(said[2], (3.0 + 1) / 8, 1e-12);
    }
    assert_int_equal(ha_arena_check(ctx.arena, &why), HA_OK);
    ha_arena_destroy(ctx.arena);
}
