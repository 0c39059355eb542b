/* Caches of blocks and of tokens: what is fetched and merged is what the counters say, to the byte; where nothing comes
 * nothing is moved and the device is told nothing. */

#include "suites/variants/test_shim.h"

#include <string.h>

static atomic_size_t merged, told; /* bytes; merges and what is told are a thread's of the background */
/* Of a fetch, of a merge, of names of temporary blocks, which are 4 bytes, or of new tokens, which are rows in order.
 */
static enum ha_status move(struct ha_stream *stream, const struct ha_device_move *args)
{
    if (args->row_bytes > 4 && args->src_index)
        atomic_fetch_add(args->dst == args->src ? &merged : &came.bytes, args->rows * args->row_bytes);
    return real->move(stream, args);
}

static enum ha_status copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    if (dir == HA_H2D) atomic_fetch_add(&told, bytes);
    return real->copy(stream, dst, src, bytes, dir);
}

struct counted {
    double hits, misses, replaced, parts_ns, manage_ns;
};
static void add(void *arg, const char *name, size_t layer, double value)
{
    struct counted *c = arg;
    if (!strcmp(name, "hits")) c->hits += value;
    if (!strcmp(name, "misses")) c->misses += value;
    if (!strcmp(name, "replaced")) c->replaced += value;
    if (!strcmp(name, "manage_ns")) c->manage_ns += value;
    if (!strcmp(name, "lookup_ns") || !strcmp(name, "list_ns") || !strcmp(name, "merge_ns")) c->parts_ns += value;
}
static struct counted count_of(const struct ha_pass *p)
{
    struct counted c = { 0 };
    p->variant->count(p->instance, add, &c);
    return c;
}

static void run(struct ha_pass *p, size_t first, size_t last)
{
    for (size_t step = first; step < last; step++) assert_ok(ha_pass_step(p, step, &reason));
    assert_ok(ha_pass_settle(p, &reason));
}

#define OF    "lru_blocks:dataset=iid,heads=4/2,head_dim=24,layers=2,threads=1,block=8,sink=5,recent=11,ctx="
#define SHAPE OF "300+3,steps=12,budget=0.25,capacity=1.5"
#define PQCACHE \
    "pqcache:dataset=iid,heads=4/2,head_dim=16,layers=2,threads=1,dtype=f32,ctx=200+30,steps=12,capacity=1.5"

/* ---- what comes over the link, and goes to slots */

TEST(bytes_of_what_misses)
{
    static const struct {
        const char *id;
        size_t bytes; /* of what misses: K and V of a KV head */
    } cases[] = {
        { SHAPE ",fetch=pieces", 2 * 8 * 24 * 2 },
        { SHAPE ",fetch=move,policy=lfu", 2 * 8 * 24 * 2 },
        { SHAPE ",fetch=pieces,lookup=device,q_len=7", 2 * 8 * 24 * 2 },
        { SHAPE ",fetch=move,lookup=device,policy=lfu,dtype=f32", 2 * 8 * 24 * 4 },
        { PQCACHE ",lookup=cpu", 2 * 16 * 4 },
        { PQCACHE ",lookup=device", 2 * 16 * 4 },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ha_pass p;
        open_shim(cases[i].id);
        shim.copy_pieces = count_pieces;
        shim.move = move;
        begin_pass(&p, false);
        merged = 0;
        nothing_came();
        run(&p, 0, session.workload->shape.steps);
        const struct counted c = count_of(&p);
        const double want = c.misses * (double)cases[i].bytes;
        if ((double)came.bytes != want || (double)merged != want)
            fail_msg("%s: %zu bytes fetched and %zu merged, of %g", cases[i].id, (size_t)came.bytes, (size_t)merged,
                     want);
        assert_true(c.hits > 0 && c.misses > 0 && c.replaced > 0);
        assert_near(c.manage_ns, c.parts_ns, 0.5);
        assert_true(c.parts_ns > 0);
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        close_session();
    }
}

/* All blocks are chosen, and there is room for them: behind the first step nothing comes, but what becomes whole. */
TEST(nothing_comes_where_all_is_there)
{
    static const struct {
        const char *id;
        size_t told; /* in each step: where attention reads, 4 bytes for each block of each list of each layer */
    } cases[] = { { OF "104,steps=4,budget=1", 4 * 11 * 2 * 2 }, { OF "104,steps=4,budget=1,lookup=device", 0 } };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ha_pass p;
        open_shim(cases[i].id);
        shim.copy_pieces = count_pieces;
        shim.move = move;
        shim.copy = copy;
        begin_pass(&p, false);
        merged = told = 0;
        nothing_came();
        run(&p, 0, 1);
        assert_int_equal(came.bytes, 2 * 2 * 11 * 2 * 8 * 24 * 2); /* layers, heads, blocks, K and V */
        assert_int_equal(merged, came.bytes);
        assert_true(told > cases[i].told || !strstr(cases[i].id, "device"));
        merged = told = 0;
        nothing_came();
        run(&p, 1, 4);
        assert_int_equal(came.bytes, 0);
        assert_int_equal(merged, 0);
        assert_int_equal(told, 3 * cases[i].told);
        const struct counted c = count_of(&p);
        assert_near(c.hits, 3 * 2 * 2 * 11, 0);
        assert_near(c.misses, 2 * 2 * 11, 0);
        assert_near(c.replaced, 0, 0);
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        close_session();
    }
}
