/* gpu_only fetches what its budget says, to the byte, whichever way. */

#include "suites/variants/test_shim.h"

static size_t waits;                 /* of the host for the device */
static atomic_uint_fast64_t read_by; /* attention, in mapped memory */

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
        shim.copy_pieces = count_pieces;
        shim.move = count_moves;
        shim.event_sync = event_sync;
        shim.stream_sync = stream_sync;
        begin_pass(&p, false);
        atomic_store(&read_by, 0);
        waits = 0;
        nothing_came();
        session.api->trace(session.device, &sink);
        run(&p);
        session.api->trace(session.device, NULL);
        const bool zero_copy = strstr(cases[i].id, "zero_copy") != NULL;
        const size_t want = expected(cases[i].lists), is = zero_copy ? atomic_load(&read_by) : came.bytes;
        if (is != want) fail_msg("%s: %zu bytes of %zu", cases[i].id, is, want);
        assert_int_equal(zero_copy ? came.bytes : atomic_load(&read_by), 0);
        if (zero_copy) assert_int_equal(waits, 0); /* the host has no part in a step */
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        close_session();
    }
}
