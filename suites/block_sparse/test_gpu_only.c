/* gpu_only fetches what its budget says, to the byte, whichever way; its digests stay those of its keys; with all of
 * the budget it is full attention; it comes back to its prefill; and it says what a device lacks. */

#include "suites/variants/check.h"
#include "suites/variants/test_session.h"

#include <stdatomic.h>
#include <stdlib.h>

static const struct ha_device_api *real;
static struct ha_device_api shim;
static size_t fetched, waits;        /* bytes of copies and moves; of the host for the device */
static atomic_uint_fast64_t read_by; /* attention, in mapped memory */

static enum ha_status copy_pieces(struct ha_stream *stream, const struct ha_device_pieces *pieces,
                                  enum ha_direction dir)
{
    for (size_t i = 0; i < pieces->count; i++) fetched += pieces->bytes[i];
    return real->copy_pieces(stream, pieces, dir);
}

static enum ha_status move(struct ha_stream *stream, const struct ha_device_move *args)
{
    if (args->src_index) fetched += args->rows * args->row_bytes; /* new tokens name where they go */
    return real->move(stream, args);
}

static enum ha_status event_sync(struct ha_event *event)
{
    waits++;
    return real->event_sync(event);
}

static enum ha_status stream_sync(struct ha_stream *stream)
{
    waits++;
    return real->stream_sync(stream);
}

static void add_span(void *self, const struct ha_span *span)
{
    if (!strcmp(span->name, "attend")) atomic_fetch_add(&read_by, span->zero_copy_bytes);
}
static const struct ha_span_sink sink = { NULL, add_span };

/* a session whose variant sees the shim */
static void open_shim(const char *id)
{
    open_session(id);
    real = session.variant_api;
    shim = *real;
    session.variant_api = &shim;
}

static void run(struct ha_pass *p)
{
    for (size_t step = 0; step < opened.c.shape.steps; step++) assert_ok(ha_pass_step(p, step, &reason));
}

/* ---- what comes over the link */

#define SHAPE  "gpu_only:ctx=300+3,heads=4/2,head_dim=24,layers=2,steps=12,threads=1,block=8,budget=0.25"
#define APPEND "gpu_only:ctx=300+3,heads=4/2,head_dim=24,layers=2,q_len=20,steps=3,threads=1,block=8,budget=0.25"

/* 2 k block head_dim bytes for each list of each layer and step, where k is a quarter of the blocks, and one at least
 */
static size_t expected(size_t lists)
{
    const struct ha_shape *s = &session.workload->shape;
    size_t blocks = 0;
    for (size_t step = 0; step < s->steps; step++)
        for (size_t b = 0; b < s->batch; b++) blocks += (ha_workload_tokens(session.workload, b, step) / 8 + 3) / 4;
    return s->layers * lists * 2 * blocks * 8 * s->head_dim * ha_dtype_bytes(s->dtype);
}

TEST(bytes_of_a_list)
{
    static const struct {
        const char *id;
        size_t lists;
    } cases[] = {
        { SHAPE ",fetch=pieces", 4 },
        { SHAPE ",fetch=move,group=max", 2 },
        { APPEND ",fetch=pieces,group=max", 2 },
        { APPEND ",fetch=move,dtype=f32", 4 },
        { SHAPE ",fetch=zero_copy", 4 },
        { APPEND ",fetch=zero_copy,group=max", 2 },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ha_pass p;
        open_shim(cases[i].id);
        shim.copy_pieces = copy_pieces;
        shim.move = move;
        shim.event_sync = event_sync;
        shim.stream_sync = stream_sync;
        begin_pass(&p, false);
        atomic_store(&read_by, 0);
        fetched = waits = 0;
        session.api->trace(session.device, &sink);
        run(&p);
        session.api->trace(session.device, NULL);
        const bool zero_copy = strstr(cases[i].id, "zero_copy") != NULL;
        const size_t want = expected(cases[i].lists), came = zero_copy ? atomic_load(&read_by) : fetched;
        if (came != want) fail_msg("%s: %zu bytes of %zu", cases[i].id, came, want);
        assert_int_equal(zero_copy ? fetched : atomic_load(&read_by), 0);
        if (zero_copy) assert_int_equal(waits, 0); /* the host has no part in a step */
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        close_session();
    }
}

/* ---- digests */

static size_t compared; /* blocks */

/* The digests that a step scores by are, to the bit, those of all keys so far. */
static enum ha_status digest_score(struct ha_stream *stream, const struct ha_device_digest_score *args)
{
    const struct ha_shape *s = &session.workload->shape;
    const size_t unit = (size_t)session.param[0], row = s->head_dim * ha_dtype_bytes(s->dtype);
    for (size_t b = 0; b < args->batch; b++)
        for (size_t h = 0; h < args->kv_heads; h++) {
            const struct ha_device_score_seq *seq = &args->seqs[b];
            const size_t bytes = ha_digest_bytes(seq->blocks, s->head_dim, s->dtype), room = bytes / 64 * 64 + 64;
            unsigned char *got = aligned_alloc(64, room), *want = aligned_alloc(64, room);
            struct ha_digest d = { .kind = (enum ha_digest_kind)session.param[2],
                                   .digests = want,
                                   .blocks = seq->blocks,
                                   .unit = unit,
                                   .rows = { .k = (char *)session.workload->k[b] + h * session.workload->cap * row,
                                             .k_stride_bytes = row,
                                             .keys = seq->blocks * unit },
                                   .head_dim = s->head_dim,
                                   .dtype = s->dtype };
            session.kernels.digest(&d);
            if (bytes) {
                const char *from = (const char *)seq->digests + h * seq->head_bytes;
                assert_int_equal(real->copy(stream, got, from, bytes, HA_D2H), HA_OK);
                assert_int_equal(real->stream_sync(stream), HA_OK);
                assert_memory_equal(got, want, bytes);
            }
            compared += seq->blocks;
            free(got);
            free(want);
        }
    return real->digest_score(stream, args);
}

TEST(digests_after_appends)
{
    static const struct {
        const char *id;
        size_t every, blocks; /* steps that are looked at; whole blocks before the last */
    } cases[] = {
        { "gpu_only:ctx=37+8,heads=2/2,head_dim=16,layers=1,steps=401,block=8", 100, 54 + 51 },
        { "gpu_only:ctx=37,heads=2/1,head_dim=16,layers=1,steps=201,block=16,digest=mean,fetch=pieces", 100, 14 },
        { "gpu_only:ctx=0+5,heads=1/1,head_dim=16,layers=1,q_len=19,steps=21,block=8,dtype=bf16", 4, 47 + 48 },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ha_pass p;
        open_shim(cases[i].id);
        begin_pass(&p, false);
        const struct ha_shape *s = &session.workload->shape;
        for (size_t step = 0; step < s->steps; step++) {
            compared = 0;
            shim.digest_score = step % cases[i].every ? real->digest_score : digest_score;
            assert_ok(ha_pass_step(&p, step, &reason));
        }
        assert_int_equal(compared, cases[i].blocks * s->kv_heads);
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        close_session();
    }
}

/* ---- full attention, and back */

TEST(whole_budget)
{
    static const char *const budget[] = { "1", "0.9" };
    for (size_t i = 0; i < COUNT(budget); i++) {
        char id[128];
        snprintf(id, sizeof id, "gpu_only:ctx=100,heads=4/2,head_dim=16,layers=1,steps=3,block=8,budget=%s", budget[i]);
        open_session(id);
        struct ha_check c = { .session = &session, .id = id };
        assert_ok(ha_check_run(&c, &reason));
        assert_true(c.total.everything == (i == 0));
        assert_true((c.total.mass_min > 1 - 1e-9) == (i == 0));
        ha_check_free(&c);
        close_session();
    }
}

/* Blocks that had filled are open again, and what is in them is what it was. */
TEST(back_to_the_prefill)
{
    static const char *const ids[] = {
        "gpu_only:ctx=53+8,heads=4/2,head_dim=16,layers=2,steps=30,block=8,budget=0.3",
        "gpu_only:ctx=53+8,heads=4/2,head_dim=16,layers=2,steps=30,block=8,budget=0.3,fetch=move",
        "gpu_only:ctx=53,heads=4/2,head_dim=16,layers=2,steps=4,q_len=19,block=8,budget=0.3,fetch=pieces",
    };
    for (size_t i = 0; i < COUNT(ids); i++) {
        struct ha_pass p;
        open_session(ids[i]);
        const size_t bytes = session.workload->shape.layers * session.io.out_bytes, last = opened.c.shape.steps - 1;
        unsigned char *first = malloc(2 * bytes);
        begin_pass(&p, false);
        for (int again = 0; again < 3; again++) {
            run(&p);
            for (size_t k = 0; k < 2; k++) {
                assert_ok(ha_pass_download(&p, k ? last : 1, &reason));
                if (again) assert_memory_equal(first + k * bytes, session.host_out, bytes);
                else memcpy(first + k * bytes, session.host_out, bytes);
            }
            assert_ok(ha_pass_settle(&p, &reason));
            assert_ok(ha_pass_rewind(&p, &reason));
        }
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        free(first);
        close_session();
    }
}

/* ---- what a device lacks, and what is no budget */

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
    open_shim("gpu_only:ctx=20,layers=1,steps=1,fetch=move");
    shim.move = NULL;
    assert_waived("the device has no operation move; another fetch needs none");
    open_shim("gpu_only:ctx=20,layers=1,steps=1,fetch=pieces");
    shim.copy_pieces = NULL;
    assert_waived("the device has no operation copy_pieces; another fetch needs none");
    open_shim("gpu_only:ctx=20,layers=1,steps=1");
    shim.mem_alloc = no_mapped;
    assert_waived("the device has no mapped memory: there is none");
}

TEST(no_budget)
{
    struct ha_case c;
    assert_int_equal(ha_case_parse("gpu_only:budget=0", &c, &reason), HA_ERROR);
    assert_string_equal(reason.text, "budget: 0 is outside of [1e-06, 1]");
    assert_int_equal(ha_case_parse("gpu_only:budget=1.01", &c, &reason), HA_ERROR);
    assert_string_equal(reason.text, "budget: 1.01 is outside of [1e-06, 1]");
}
