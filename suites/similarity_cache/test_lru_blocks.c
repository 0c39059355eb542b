/* lru_blocks fetches and merges what its counters say, to the byte; where nothing comes nothing is moved and the device
 * is told nothing; a pass can be begun again; and it says what a device lacks. */

#include "suites/variants/test_session.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const struct ha_device_api *real;
static struct ha_device_api shim;
static atomic_size_t fetched, merged, told; /* bytes; merges and what is told are a thread's of the background */

static enum ha_status copy_pieces(struct ha_stream *stream, const struct ha_device_pieces *pieces,
                                  enum ha_direction dir)
{
    for (size_t i = 0; i < pieces->count; i++) atomic_fetch_add(&fetched, pieces->bytes[i]);
    return real->copy_pieces(stream, pieces, dir);
}

/* Of a fetch, of a merge, of names of temporary blocks, which are 4 bytes, or of new tokens, which are rows in order.
 */
static enum ha_status move(struct ha_stream *stream, const struct ha_device_move *args)
{
    if (args->row_bytes > 4 && args->src_index)
        atomic_fetch_add(args->dst == args->src ? &merged : &fetched, args->rows * args->row_bytes);
    return real->move(stream, args);
}

static enum ha_status copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    if (dir == HA_H2D) atomic_fetch_add(&told, bytes);
    return real->copy(stream, dst, src, bytes, dir);
}

static void open_shim(const char *id)
{
    open_session(id);
    real = session.variant_api;
    shim = *real;
    session.variant_api = &shim;
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

/* ---- what comes over the link, and goes to slots */

TEST(bytes_of_what_misses)
{
    static const char *const ids[] = {
        SHAPE ",fetch=pieces",
        SHAPE ",fetch=move,policy=lfu",
        SHAPE ",fetch=pieces,lookup=device,q_len=7",
        SHAPE ",fetch=move,lookup=device,policy=lfu,dtype=f32",
    };
    for (size_t i = 0; i < COUNT(ids); i++) {
        struct ha_pass p;
        open_shim(ids[i]);
        const struct ha_shape *s = &session.workload->shape;
        shim.copy_pieces = copy_pieces;
        shim.move = move;
        begin_pass(&p, false);
        fetched = merged = 0;
        run(&p, 0, s->steps);
        const struct counted c = count_of(&p);
        const double want = c.misses * 2 * 8 * (double)(s->head_dim * ha_dtype_bytes(s->dtype));
        if ((double)fetched != want || (double)merged != want)
            fail_msg("%s: %zu bytes fetched and %zu merged, of %g", ids[i], (size_t)fetched, (size_t)merged, want);
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
        shim.copy_pieces = copy_pieces;
        shim.move = move;
        shim.copy = copy;
        begin_pass(&p, false);
        fetched = merged = told = 0;
        run(&p, 0, 1);
        assert_int_equal(fetched, 2 * 2 * 11 * 2 * 8 * 24 * 2); /* layers, heads, blocks, K and V */
        assert_int_equal(merged, fetched);
        assert_true(told > cases[i].told || !strstr(cases[i].id, "device"));
        fetched = merged = told = 0;
        run(&p, 1, 4);
        assert_int_equal(fetched, 0);
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

/* ---- back */

/* The caches are empty again, and each pass does what the first did. */
TEST(back_to_the_prefill)
{
    static const char *const ids[] = {
        OF "53+80,steps=30,budget=0.3,capacity=1",
        OF "53+80,steps=30,budget=0.3,capacity=1,policy=lfu,lookup=device,fetch=move",
        OF "53,steps=4,q_len=19,budget=0.3,lookup=device,fetch=gather",
    };
    for (size_t i = 0; i < COUNT(ids); i++) {
        struct ha_pass p;
        struct counted before = { 0 };
        open_session(ids[i]);
        const size_t bytes = session.workload->shape.layers * session.io.out_bytes, last = opened.c.shape.steps - 1;
        unsigned char *first = malloc(2 * bytes);
        begin_pass(&p, false);
        for (int again = 0; again < 3; again++) {
            assert_near(count_of(&p).hits + count_of(&p).misses + count_of(&p).manage_ns, 0, 0);
            run(&p, 0, last + 1);
            for (size_t k = 0; k < 2; k++) {
                assert_ok(ha_pass_download(&p, k ? last : 1, &reason));
                if (again) assert_memory_equal(first + k * bytes, session.host_out, bytes);
                else memcpy(first + k * bytes, session.host_out, bytes);
            }
            const struct counted c = count_of(&p);
            if (again) assert_true(c.hits == before.hits && c.misses == before.misses && c.replaced == before.replaced);
            before = c;
            assert_ok(ha_pass_rewind(&p, &reason));
        }
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        free(first);
        close_session();
    }
}

/* ---- what a device lacks, or answers */

static enum ha_status no_mapped(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                struct ha_why *why)
{
    if (kind == HA_MEM_MAPPED) return ha_why(why, HA_ERROR, "there is none");
    return real->mem_alloc(dev, kind, bytes, ptr, why);
}

static void assert_waived(const char *text)
{
    struct ha_pass p;
    assert_int_equal(ha_pass_begin(&p, &session, session.variant, session.param, false, &reason), HA_WAIVED);
    assert_string_equal(reason.text, text);
    close_session();
}

TEST(what_a_device_lacks)
{
    open_shim("lru_blocks:ctx=20,layers=1,steps=1,lookup=device");
    shim.split = NULL;
    assert_waived("the device has no operation split; lookup=cpu needs none");
    open_shim("lru_blocks:ctx=20,layers=1,steps=1,fetch=pieces");
    shim.copy_pieces = NULL;
    assert_waived("the device has no operation copy_pieces; another fetch needs none");
    open_shim("lru_blocks:ctx=20,layers=1,steps=1");
    shim.mem_alloc = no_mapped;
    assert_waived("the device has no mapped memory: there is none");
}

/* Lists that are none, of a choice and of a look-up. */
static uint32_t wrong_entry;
static enum ha_status wrong_list(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                 enum ha_direction dir)
{
    HA_TRY(real->copy(stream, dst, src, bytes, dir));
    if (dir != HA_D2H || bytes != 2 * 3 * sizeof(uint32_t)) return HA_OK;
    HA_TRY(real->stream_sync(stream));
    ((uint32_t *)dst)[1] = wrong_entry;
    return HA_OK;
}
static enum ha_status wrong_count(struct ha_stream *stream, const struct ha_device_split *args)
{
    HA_TRY(real->split(stream, args));
    HA_TRY(real->stream_sync(stream));
    args->seqs[0].missing_count[1] = wrong_entry;
    return HA_OK;
}

static void assert_refused(const char *text)
{
    struct ha_pass p;
    begin_pass(&p, false);
    assert_int_equal(ha_pass_step(&p, 0, &reason), HA_ERROR);
    if (!strstr(reason.text, text)) fail_msg("%s", reason.text);
    ha_pass_end(&p, HA_ERROR, &reason);
    close_session();
}

TEST(lists_that_are_none)
{
    open_shim(OF "100,steps=1,budget=0.3");
    shim.copy = wrong_list;
    wrong_entry = 10;
    assert_refused("blocks that the device chose: entry 1 of a list is 10, of 10");
    open_shim(OF "100,steps=1,budget=0.3");
    shim.copy = wrong_list;
    wrong_entry = 0;
    assert_refused("blocks that the device chose: a list does not rise: 0 behind ");
    open_shim(OF "100,steps=1,budget=0.3,lookup=device");
    shim.split = wrong_count;
    wrong_entry = 4;
    assert_refused("blocks that the device misses: a list of 4, of which there are at most 3");
}
