/* pqcache reads everything with budget=1; chooses as topk does where each key has a code of its own; fetches what its
 * counters say, to the byte; and says what does not go. */

#include "suites/variants/test_session.h"

#include <stdatomic.h>
#include <string.h>

enum { CTX = 64, NEWEST = 16, CHOSEN = 16, Q_HEADS = 4, KV_HEADS = 2, LAYERS = 2 };
#define SHAPE "dataset=iid,heads=4/2,head_dim=16,layers=2,threads=1,dtype=f32,steps="

static const struct ha_device_api *real;
static struct ha_device_api shim;
static atomic_size_t fetched; /* bytes */

static enum ha_status copy_pieces(struct ha_stream *stream, const struct ha_device_pieces *pieces,
                                  enum ha_direction dir)
{
    for (size_t i = 0; i < pieces->count; i++) atomic_fetch_add(&fetched, pieces->bytes[i]);
    return real->copy_pieces(stream, pieces, dir);
}

static void open_shim(const char *id)
{
    open_session(id);
    real = session.variant_api;
    shim = *real;
    session.variant_api = &shim;
}

/* which of the tokens a query head has used in the last step; how many entries the parts have */
static size_t used_by(const struct ha_pass *p, size_t layer, size_t b, size_t head, bool *used, size_t tokens)
{
    struct ha_selection x = { 0 };
    size_t all = 0;
    p->variant->selection(p->instance, layer, b, head, &x);
    memset(used, 0, tokens * sizeof *used);
    for (size_t i = 0; i < x.parts; i++)
        for (size_t j = 0; j < x.part[i].count; j++, all++) {
            assert_true(x.part[i].token[j] < tokens);
            used[x.part[i].token[j]] = true;
        }
    return all;
}

/* ---- what is read */

TEST(everything_with_budget_1)
{
    enum { STEPS = 9, MOST = 90 };
    struct ha_pass p;
    bool used[MOST];
    open_session("pqcache:ctx=40+1,c=2,budget=1,q_len=3," SHAPE "9");
    begin_pass(&p, true);
    for (size_t step = 0; step < STEPS; step++) {
        assert_ok(ha_pass_step(&p, step, &reason));
        assert_ok(ha_pass_settle(&p, &reason));
        for (size_t i = 0; i < LAYERS * 2 * Q_HEADS; i++) {
            const size_t b = i / Q_HEADS % 2, tokens = (b ? 1 : 40) + (step + 1) * 3;
            assert_int_equal(used_by(&p, i / Q_HEADS / 2, b, i % Q_HEADS, used, tokens), tokens);
            for (size_t t = 0; t < tokens; t++) assert_true(used[t]);
        }
    }
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    close_session();
}

/* Of the context's first tokens those that a query head of each KV head has used in the first step; how many. */
static size_t first_choice(const char *id, size_t tokens, bool (*used)[CTX + 1], size_t *count)
{
    struct ha_pass p;
    size_t all = 0;
    open_session(id);
    begin_pass(&p, true);
    assert_ok(ha_pass_step(&p, 0, &reason));
    assert_ok(ha_pass_settle(&p, &reason));
    for (size_t i = 0; i < LAYERS * KV_HEADS; i++) {
        all += used_by(&p, i / KV_HEADS, 0, i % KV_HEADS * 2, used[i], CTX + 1);
        count[i] = 0;
        for (size_t t = 0; t < tokens; t++) count[i] += used[i][t];
    }
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    close_session();
    return all;
}

/* The k keys of largest score, k the least with which so many of them are not among the newest: these are chosen. */
TEST(choice_of_topk_where_each_key_has_a_code)
{
    bool chosen[LAYERS * KV_HEADS][CTX + 1], best[LAYERS * KV_HEADS][CTX + 1], seen[LAYERS * KV_HEADS] = { false };
    size_t count[LAYERS * KV_HEADS];
    const size_t all = first_choice("pqcache:ctx=64,c=64,budget=0.5," SHAPE "1", CTX - NEWEST, chosen, count);
    assert_int_equal(all, LAYERS * KV_HEADS * (CHOSEN + NEWEST + 1));
    for (size_t i = 0; i < LAYERS * KV_HEADS; i++) assert_int_equal(count[i], CHOSEN);
    for (size_t k = CHOSEN; k <= CHOSEN + NEWEST; k++) {
        char id[160];
        snprintf(id, sizeof id, "topk:ctx=64,group=max,k=%zu," SHAPE "1", k);
        first_choice(id, CTX - NEWEST, best, count);
        for (size_t i = 0; i < LAYERS * KV_HEADS; i++) {
            if (count[i] != CHOSEN || seen[i]) continue;
            assert_memory_equal(best[i], chosen[i], (CTX - NEWEST) * sizeof **best);
            seen[i] = true;
        }
    }
    for (size_t i = 0; i < LAYERS * KV_HEADS; i++) assert_true(seen[i]);
}

/* ---- what comes over the link */

struct counted {
    double hits, misses, replaced;
};
static void add(void *arg, const char *name, size_t layer, double value)
{
    struct counted *c = arg;
    if (!strcmp(name, "hits")) c->hits += value;
    if (!strcmp(name, "misses")) c->misses += value;
    if (!strcmp(name, "replaced")) c->replaced += value;
}

TEST(bytes_of_what_misses)
{
    static const char *const lookups[] = { "cpu", "device" };
    for (size_t i = 0; i < COUNT(lookups); i++) {
        struct ha_pass p;
        struct counted c = { 0 };
        char id[200];
        snprintf(id, sizeof id, "pqcache:ctx=200+30,capacity=1.5,lookup=%s," SHAPE "12", lookups[i]);
        open_shim(id);
        shim.copy_pieces = copy_pieces;
        begin_pass(&p, false);
        fetched = 0;
        for (size_t step = 0; step < 12; step++) assert_ok(ha_pass_step(&p, step, &reason));
        assert_ok(ha_pass_settle(&p, &reason));
        p.variant->count(p.instance, add, &c);
        assert_near((double)fetched, c.misses * 2 * 16 * 4, 0);
        assert_true(c.hits > 0 && c.misses > 0 && c.replaced > 0);
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        close_session();
    }
}

/* ---- what does not go */

static void assert_refused(enum ha_status status, const char *text)
{
    struct ha_pass p;
    assert_int_equal(ha_pass_begin(&p, &session, session.variant, session.param, false, &reason), status);
    assert_string_equal(reason.text, text);
    close_session();
}

TEST(what_does_not_go)
{
    open_session("pqcache:ctx=20,parts=32," SHAPE "1");
    assert_refused(HA_ERROR, "parts=32 does not divide head_dim=16: the most that does is 16");
    open_shim("pqcache:ctx=20," SHAPE "1");
    shim.split = NULL;
    assert_refused(HA_WAIVED, "the device has no operation split; lookup=cpu needs none");
}
