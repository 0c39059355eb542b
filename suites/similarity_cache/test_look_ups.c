/* What look-ups have found: over random ones the counters are what a plain simulation, which keeps every choice as a
 * set and counts every token that has left the window, says of them. */

#include "harness/base/arena.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"
#include "suites/similarity_cache/look_ups.h"

#include <math.h>

enum { LAYERS = 2, BATCH = 2, HEADS = 3, LISTS = BATCH * HEADS, UNITS = 20, LIST_MAX = 8, LOOK_UPS = 600 };
enum { SINK = 3, RECENT = 5 };

static struct ha_why why;
static const struct ha_shape shape = { .layers = LAYERS, .batch = BATCH, .q_heads = HEADS, .kv_heads = HEADS };
static struct ha_context ctx = { .shape = &shape };

static uint64_t drawn;
static size_t below(size_t n) { return ha_rng_below(17, 0, drawn++, n); }

/* Random units, all different, in any order. */
static size_t draw(uint32_t *list)
{
    const size_t count = below(LIST_MAX + 1);
    for (size_t i = 0; i < count;) {
        bool again = false;
        list[i] = (uint32_t)below(UNITS);
        for (size_t j = 0; j < i; j++) again |= list[j] == list[i];
        i += !again;
    }
    return count;
}

struct plain {
    double hits, left_out, similarity, labels, shared[2], of[2]; /* at low similarity, at high */
};
static struct past {
    bool has[UNITS];
    size_t tokens;
} past[LAYERS][LISTS];

static void one(struct plain *p, struct past *of, size_t tokens, bool missed, float similarity, const uint32_t *now,
                size_t units)
{
    const int at = similarity >= 0.8F ? 1 : similarity >= 0.4F && similarity < 0.6F ? 0 : -1;
    p->hits += missed ? 0 : 1;
    p->labels += isfinite(similarity) ? 1 : 0;
    if (isfinite(similarity)) p->similarity += (double)similarity;
    for (size_t i = 0; i < units && missed && at >= 0; i++) {
        p->of[at]++;
        p->shared[at] += of->has[now[i]];
    }
    if (missed) {
        memset(of->has, 0, sizeof of->has);
        for (size_t i = 0; i < units; i++) of->has[now[i]] = true;
        of->tokens = tokens;
    }
    /* outside the window now, and not then */
    for (size_t t = 0; t < tokens; t++) p->left_out += t >= SINK && t + RECENT < tokens && !(t + RECENT < of->tokens);
}

static double means[3];
static size_t said;
static void add(void *arg, const char *name, size_t layer, double value)
{
    static const char *const names[] = { "similarity", "overlap_low", "overlap_high" };
    for (size_t i = 0; i < COUNT(names); i++)
        if (!strcmp(names[i], name)) means[i] = value;
    said++;
    assert_int_equal(layer, *(const size_t *)arg);
}

static void run(bool compares)
{
    static const float similarities[] = { -0.5f, 0.39f, 0.4f, 0.5f, 0.6f, 0.79f, 0.8f, 0.95f };
    struct ha_look_ups u;
    assert_int_equal(ha_arena_create(&ctx.arena, true, &why), HA_OK);
    assert_int_equal(ha_look_ups_create(&u, &ctx, SINK, RECENT, LIST_MAX, UNITS, compares, &why), HA_OK);
    memset(past, 0, sizeof past);
    for (int again = 0; again < 2; again++) {
        struct plain p[LAYERS] = { { .hits = 0 } };
        for (size_t layer = 0; layer < LAYERS; layer++) {
            ha_look_ups_clear(&u, layer);
            assert_true(u.layer[layer].hits == 0 && u.layer[layer].left_out == 0);
            said = 0;
            ha_look_ups_count(&u, layer, add, &layer);
            assert_int_equal(said, 0);
        }
        for (size_t i = 0; i < LOOK_UPS * LAYERS * LISTS; i++) {
            const size_t layer = i / LISTS % LAYERS, list = i % LISTS, tokens = 4 + i / LISTS / LAYERS / 20;
            const bool first = i < LISTS * LAYERS, missed = first || below(3) == 0;
            const float similarity = first ? -INFINITY : similarities[below(COUNT(similarities))];
            uint32_t now[LIST_MAX];
            const size_t units = draw(now);
            one(&p[layer], &past[layer][list], tokens, missed, similarity, now, units);
            ha_look_ups_add(&u, layer, list, tokens, missed, similarity, now, units);
        }
        for (size_t layer = 0; layer < LAYERS; layer++) {
            const struct ha_look_ups_layer *of = &u.layer[layer];
            assert_true(of->hits == p[layer].hits && of->left_out == p[layer].left_out && p[layer].left_out > 0);
            said = 0;
            ha_look_ups_count(&u, layer, add, &layer);
            assert_int_equal(said, compares ? 3 : 1);
            assert_near(means[0], p[layer].similarity / p[layer].labels, 1e-12);
            for (size_t j = 0; j < 2 && compares; j++)
                assert_near(means[1 + j], p[layer].shared[j] / p[layer].of[j], 1e-12);
        }
    }
    assert_int_equal(ha_arena_check(ctx.arena, &why), HA_OK);
    ha_arena_destroy(ctx.arena);
}

TEST(counters_are_those_of_a_plain_simulation)
{
    run(true);
    run(false);
}
