/* clo moves what its misses say, to the byte, in every way, and gives the same bits whichever way it comes and whoever
 * waits; at its ends it is what other variants are; and it says what a device or a case lacks. */

#include "suites/variants/test_session.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const struct ha_device_api *real;
static struct ha_device_api shim;
static atomic_size_t moved;

static void open_shim(const char *id)
{
    open_session(id);
    real = session.variant_api;
    shim = *real;
    session.variant_api = &shim;
}

struct counted {
    double hits, misses, moved_bytes;
};
static void add(void *arg, const char *name, size_t layer, double value)
{
    struct counted *c = arg;
    if (!strcmp(name, "hits")) c->hits += value;
    if (!strcmp(name, "misses")) c->misses += value;
    if (!strcmp(name, "moved_bytes")) c->moved_bytes += value;
}
static struct counted count_of(const struct ha_pass *p)
{
    struct counted c = { 0 };
    p->variant->count(p->instance, add, &c);
    return c;
}

static void run(struct ha_pass *p)
{
    for (size_t step = 0; step < session.workload->shape.steps; step++) assert_ok(ha_pass_step(p, step, &reason));
    assert_ok(ha_pass_settle(p, &reason));
}

#define OF                                                                                          \
    "clo:dataset=walk,heads=4/2,head_dim=24,layers=4,threads=2,recent=16,threshold=fixed,eta=0.94," \
    "budget=0.2,"
#define SHAPE  OF "ctx=200+61,steps=8"
#define ALONE  "clo:dataset=iid,heads=4/2,head_dim=24,threads=1,threshold=fixed,prefetch=0,"
#define SINGLE ALONE "layers=1,ctx=60,steps=1"

/* ---- over the link ----------------------------------------------------------------------------------------------- */

/* what a kernel reads is no copy */
static enum ha_status move(struct ha_stream *stream, const struct ha_device_move *args)
{
    atomic_fetch_add(&moved, args->rows * args->row_bytes);
    return real->move(stream, args);
}

TEST(bytes_of_what_misses)
{
    static const char *const ids[] = { SHAPE ",transfer=stores",           SHAPE ",transfer=stores,stores=1,sync=cpu",
                                       SHAPE ",transfer=kernel",           SHAPE ",transfer=gather",
                                       SHAPE ",transfer=pieces,dtype=f32", SHAPE ",transfer=pieces,q_len=3,sync=cpu" };
    for (size_t i = 0; i < COUNT(ids); i++) {
        struct ha_pass p;
        open_shim(ids[i]);
        const struct ha_shape *s = &session.workload->shape;
        shim.move = move;
        begin_pass(&p, false);
        ha_meter_take(); /* of what came before */
        moved = 0;
        for (size_t step = 0; step < s->steps; step++) {
            assert_ok(ha_pass_step(&p, step, &reason));
            moved += p.moved.h2d_bytes;
        }
        assert_ok(ha_pass_settle(&p, &reason));
        const struct counted c = count_of(&p);
        /* of both sequences a KV head of three layers: 40 keys and 13 */
        const double key = 2 * (double)(s->head_dim * ha_dtype_bytes(s->dtype));
        if ((double)moved != c.moved_bytes)
            fail_msg("%s: %zu bytes came, of %.0f", ids[i], (size_t)moved, c.moved_bytes);
        assert_true(c.hits > 0 && c.misses > 0 && c.hits + c.misses == 8 * 3 * 2 * 2);
        assert_true(c.moved_bytes >= c.misses * 13 * key && c.moved_bytes <= c.misses * 40 * key);
        assert_near(fmod(c.moved_bytes, key), 0, 0);
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        close_session();
    }
}

/* Whichever way, whoever waits, and again. */
TEST(the_same_bits)
{
    static const char *const ids[] = {
        SHAPE ",transfer=stores",          SHAPE ",transfer=stores,stores=1", SHAPE ",transfer=kernel",
        SHAPE ",transfer=gather",          SHAPE ",transfer=pieces",          SHAPE ",sync=cpu,transfer=stores",
        SHAPE ",sync=cpu,transfer=kernel", SHAPE ",sync=cpu,transfer=gather", SHAPE ",sync=cpu,transfer=pieces",
    };
    unsigned char *first = NULL;
    for (size_t i = 0; i < COUNT(ids); i++) {
        struct ha_pass p;
        open_session(ids[i]);
        const size_t bytes = session.workload->shape.layers * session.io.out_bytes,
                     last = session.workload->shape.steps - 1;
        begin_pass(&p, false);
        for (int again = 0; again < 2; again++) {
            run(&p);
            assert_ok(ha_pass_download(&p, last, &reason));
            if (!first) memcpy(first = malloc(bytes), session.host_out, bytes);
            assert_memory_equal(first, session.host_out, bytes);
            assert_ok(ha_pass_rewind(&p, &reason));
        }
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        close_session();
    }
    free(first);
}

/* ---- what it is at its ends -------------------------------------------------------------------------------------- */

enum { TOKENS = 128 };

/* keys that each query head has used in a step: [layer][q_head][token] */
static void used(struct ha_pass *p, size_t layers, size_t heads, unsigned char *mark)
{
    memset(mark, 0, layers * heads * TOKENS);
    for (size_t i = 0; i < layers * heads; i++) {
        struct ha_selection sel;
        p->variant->selection(p->instance, i / heads, 0, i % heads, &sel);
        for (size_t k = 0; k < sel.parts; k++)
            for (size_t j = 0; j < sel.part[k].count; j++) mark[i * TOKENS + sel.part[k].token[j]]++;
    }
}

static void used_by(const char *id, unsigned char *mark)
{
    struct ha_pass p;
    open_session(id);
    const struct ha_shape *s = &session.workload->shape;
    begin_pass(&p, true);
    for (size_t step = 0; step < s->steps; step++) {
        assert_ok(ha_pass_step(&p, step, &reason));
        used(&p, s->layers, s->q_heads, mark + step * s->layers * s->q_heads * TOKENS);
    }
    assert_ok(ha_pass_settle(&p, &reason));
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    close_session();
}

TEST(always_missing_it_is_topk)
{
    static unsigned char clo[4 * 2 * 4 * TOKENS], topk[sizeof clo];
    used_by(ALONE "layers=2,ctx=100,steps=4,budget=0.3,retrieve=exact,eta=1,sink=0,recent=0", clo);
    used_by("topk:dataset=iid,heads=4/2,head_dim=24,threads=1,layers=2,ctx=100,steps=4,k=30,group=max", topk);
    assert_memory_equal(clo, topk, sizeof clo);
}

TEST(with_room_for_all_or_persistent_it_is_full_attention)
{
    static const char *const ids[] = { ALONE "layers=2,ctx=100,steps=4,budget=1,eta=1",
                                       ALONE "layers=1,ctx=100,steps=4,budget=0.02,persistent=all" };
    for (size_t i = 0; i < COUNT(ids); i++) {
        static unsigned char mark[4 * 2 * 4 * TOKENS];
        const size_t rows = i ? 4 * 4 : 4 * 2 * 4;
        used_by(ids[i], mark);
        for (size_t r = 0; r < rows; r++)
            for (size_t t = 0; t < TOKENS; t++)
                assert_int_equal(mark[r * TOKENS + t], t < 101 + r / (rows / 4) ? 1 : 0);
    }
}

/* the queries are the labels themselves, once there are any */
static size_t look_ups;
static enum ha_status look_up_again(struct ha_stream *stream, const struct ha_device_similarity *args)
{
    struct ha_device_similarity a = *args;
    struct ha_device_similarity_seq seq = args->seqs[0];
    if (look_ups++ > 0) seq.q = seq.label;
    a.seqs = &seq;
    return real->similarity(stream, &a);
}

TEST(the_same_query_is_a_hit)
{
    struct ha_pass p;
    open_shim(ALONE "layers=2,ctx=100,steps=5,budget=0.1,eta=1");
    shim.similarity = look_up_again;
    look_ups = 0;
    begin_pass(&p, false);
    run(&p);
    const struct counted c = count_of(&p);
    assert_near(c.misses, 2, 0);
    assert_near(c.hits, 4 * 2, 0);
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    close_session();
}

/* ---- what is wrong, or lacks ---------------------------------------------------------------------------------------
 */

static enum ha_status wrong_topk(struct ha_stream *stream, const struct ha_device_topk *args)
{
    HA_TRY(real->topk(stream, args));
    HA_TRY(real->stream_sync(stream));
    if (args->seqs[0].only) args->seqs[0].index[1] = 4000;
    return HA_OK;
}
static enum ha_status unwritten(struct ha_stream *stream, uint32_t *flag, uint32_t value) { return HA_OK; }
static const char *gone(struct ha_device *dev) { return "the device is gone"; }

/* A pass, in which it is said; nobody is left waiting for the engine. */
static void assert_refused(const char *text)
{
    struct ha_pass p;
    begin_pass(&p, false);
    enum ha_status status = HA_OK;
    for (size_t step = 0; step < session.workload->shape.steps && status == HA_OK; step++)
        status = ha_pass_step(&p, step, &reason);
    if (status == HA_OK) status = p.variant->drain(p.instance, &reason);
    assert_int_equal(status, HA_ERROR);
    if (!strstr(reason.text, text)) fail_msg("%s", reason.text);
    ha_pass_end(&p, HA_ERROR, &reason);
    close_session();
}

TEST(lists_that_are_none)
{
    open_shim(ALONE "layers=2,ctx=100,steps=2,budget=0.1");
    shim.topk = wrong_topk;
    assert_refused("keys that missed: entry 1 of a list is 4000, of ");
}

TEST(a_device_that_fails_while_it_is_polled)
{
    open_shim(ALONE "layers=2,ctx=100,steps=2,budget=0.1");
    shim.flag_write = unwritten;
    shim.failure = gone;
    assert_refused("the device is gone");
}

static void assert_not_begun(enum ha_status status, const char *text)
{
    struct ha_pass p;
    assert_int_equal(ha_pass_begin(&p, &session, session.variant, session.param, false, &reason), status);
    if (!strstr(reason.text, text)) fail_msg("%s", reason.text);
    close_session();
}

static enum ha_status no_mapped(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                struct ha_why *why)
{
    if (kind == HA_MEM_MAPPED) return ha_why(why, HA_ERROR, "there is none");
    return real->mem_alloc(dev, kind, bytes, ptr, why);
}

TEST(what_a_device_lacks)
{
    open_shim(SINGLE);
    shim.map_device = NULL;
    assert_not_begun(HA_WAIVED, "the device has no operation map_device; another transfer= may need none");
    open_shim(SINGLE);
    shim.mem_alloc = no_mapped;
    assert_not_begun(HA_WAIVED, "the device has no mapped memory: there is none");
    open_shim(SINGLE);
    shim.hamming = NULL;
    assert_not_begun(HA_WAIVED, "the device has no operation hamming; another retrieve= needs none");
    open_shim(SINGLE ",transfer=kernel");
    shim.move = NULL;
    assert_not_begun(HA_WAIVED, "the device has no operation move");
}

TEST(what_a_case_lacks)
{
    open_shim(SINGLE ",hash=learned");
    assert_not_begun(HA_WAIVED, "hash=learned takes the matrices of a fit");
    open_shim("clo:dataset=iid,heads=4/2,head_dim=24,threads=1,layers=2,ctx=60,steps=1");
    assert_not_begun(HA_WAIVED, "the dataset has no layer inputs to predict from");
    open_shim(ALONE "layers=2,ctx=6000,steps=1,device_budget_MB=0.5");
    assert_not_begun(HA_ERROR, "of which device_budget_MB allows 0.500: raise it");
}

int main(void) { return test_all("clo", NULL, NULL); }
