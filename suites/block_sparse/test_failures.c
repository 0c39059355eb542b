/* Each call of a device in turn fails, once or from then on: of what makes an instance, of its prefill, of its steps,
 * of its way back. Whichever it was, the pass ends, is not right, says why, and leaves nothing behind. That of
 * allocations is test_steps.c. */

#include "suites/variants/test_session.h"

#include <stdatomic.h>

/* ---- what fails -------------------------------------------------------------------------------------------------- */

static const struct ha_device_api *real;
static struct ha_device_api shim;
static atomic_size_t calls, made; /* of those that can fail; what was made and is not destroyed */
static size_t fails_at;           /* a call, counted from 1 */
static bool goes_on;              /* the later ones fail, too */

static bool is_to_fail(void)
{
    const size_t call = atomic_fetch_add(&calls, 1) + 1;
    return goes_on ? call >= fails_at : call == fails_at;
}

#define FAILS(name, params, ...) \
    static enum ha_status name params { return is_to_fail() ? HA_ERROR : real->name(__VA_ARGS__); }
FAILS(stream_sync, (struct ha_stream * s), s)
FAILS(event_record, (struct ha_event * event, struct ha_stream *s), event, s)
FAILS(event_sync, (struct ha_event * event), event)
FAILS(stream_wait, (struct ha_stream * s, struct ha_event *event), s, event)
FAILS(copy, (struct ha_stream * s, void *dst, const void *src, size_t bytes, enum ha_direction dir), s, dst, src, bytes,
      dir)
FAILS(copy_2d,
      (struct ha_stream * s, void *dst, size_t dst_stride, const void *src, size_t src_stride, size_t row_bytes,
       size_t rows, enum ha_direction dir),
      s, dst, dst_stride, src, src_stride, row_bytes, rows, dir)
FAILS(copy_pieces, (struct ha_stream * s, const struct ha_device_pieces *pieces, enum ha_direction dir), s, pieces, dir)
FAILS(flag_write, (struct ha_stream * s, uint32_t *flag, uint32_t value), s, flag, value)
FAILS(flag_wait, (struct ha_stream * s, const uint32_t *flag, uint32_t at_least), s, flag, at_least)
#define OPERATION(name, type) FAILS(name, (struct ha_stream * s, const struct type *args), s, args)
HA_DEVICE_OPERATIONS(OPERATION)
#undef OPERATION
FAILS(graph_begin, (struct ha_stream * s), s)
FAILS(graph_launch, (struct ha_graph * graph, struct ha_stream *s), graph, s)

/* What makes something, and what is made. */
#define MAKES(name, params, ...)                               \
    static enum ha_status name params                          \
    {                                                          \
        if (is_to_fail()) return HA_ERROR;                     \
        const enum ha_status status = real->name(__VA_ARGS__); \
        made += status == HA_OK;                               \
        return status;                                         \
    }
MAKES(mem_alloc, (struct ha_device * dev, enum ha_memory kind, size_t bytes, void **ptr, struct ha_why *why), dev, kind,
      bytes, ptr, why)
MAKES(stream_create, (struct ha_device * dev, const char *name, struct ha_stream **s, struct ha_why *why), dev, name, s,
      why)
MAKES(event_create, (struct ha_device * dev, struct ha_event **event, struct ha_why *why), dev, event, why)

MAKES(map_device, (struct ha_device * dev, void *ptr, size_t bytes, void **host, struct ha_why *why), dev, ptr, bytes,
      host, why)

/* one that fails ends what was begun, too */
static enum ha_status graph_end(struct ha_stream *s, struct ha_graph **graph, struct ha_why *why)
{
    const bool fails = is_to_fail();
    const enum ha_status status = real->graph_end(s, graph, why);
    made += status == HA_OK && !fails;
    if (status != HA_OK || !fails) return status;
    real->graph_destroy(*graph);
    *graph = NULL;
    return HA_ERROR;
}

static void mem_free(struct ha_device *dev, enum ha_memory kind, void *ptr)
{
    made -= ptr != NULL;
    real->mem_free(dev, kind, ptr);
}
static void stream_destroy(struct ha_stream *s)
{
    made--;
    real->stream_destroy(s);
}
static void event_destroy(struct ha_event *event)
{
    made--;
    real->event_destroy(event);
}

static void unmap_device(struct ha_device *dev, void *host)
{
    made--;
    real->unmap_device(dev, host);
}

static void graph_destroy(struct ha_graph *graph)
{
    made--;
    real->graph_destroy(graph);
}

static void open_failing(const char *id)
{
    open_session(id);
    real = session.variant_api;
    shim = *real;
#define WRAP(name) shim.name = shim.name ? name : NULL;
    WRAP(stream_sync)
    WRAP(event_record)
    WRAP(event_sync)
    WRAP(stream_wait)
    WRAP(copy)
    WRAP(copy_2d)
    WRAP(copy_pieces)
    WRAP(flag_write)
    WRAP(flag_wait)
#define OPERATION(name, type) WRAP(name)
    HA_DEVICE_OPERATIONS(OPERATION)
#undef OPERATION
    WRAP(graph_begin)
    WRAP(graph_end)
    WRAP(graph_launch)
    WRAP(graph_destroy)
    WRAP(mem_alloc)
    WRAP(mem_free)
    WRAP(stream_create)
    WRAP(stream_destroy)
    WRAP(event_create)
    WRAP(event_destroy)
    WRAP(map_device)
    WRAP(unmap_device)
#undef WRAP
    session.variant_api = &shim;
}

/* ---- a pass ------------------------------------------------------------------------------------------------------ */

/* All steps, and where the variant can once more from the prefill. */
static enum ha_status steps(struct ha_pass *p)
{
    for (int again = 0;; again++) {
        if (p->checks)
            for (size_t step = 0; step < opened.c.shape.steps; step++) HA_TRY(ha_pass_step(p, step, &reason));
        else HA_TRY(ha_pass_run(p, false, &reason));
        HA_TRY(ha_pass_settle(p, &reason));
        if (again || !p->variant->rewind) break;
        HA_TRY(ha_pass_rewind(p, &reason));
    }
    return HA_OK;
}

static enum ha_status pass(bool checks)
{
    struct ha_pass p;
    calls = 0;
    reason.text[0] = 0;
    HA_TRY(ha_pass_begin(&p, &session, session.variant, session.param, checks, &reason));
    return ha_pass_end(&p, steps(&p), &reason);
}

static const char *const ids[] = {
#define SHAPE   ":dataset=walk,ctx=21+6,heads=2/1,head_dim=8,layers=3,steps=2,threads=2"
#define CLO     SHAPE ",sink=2,recent=4,budget=1,eta=0.9,threshold=fixed"
#define FLUXION ":dataset=walk,ctx=150+6,heads=6/3,head_dim=8,layers=2,steps=2,threads=2,sink=4,recent=8"
    "scout" SHAPE ",block=8,budget=8,interval=1",
    "scout" SHAPE ",block=8,budget=8,interval=1,recall=wait,resident=all,fetch=gather,group=head",
    "scout" SHAPE ",block=8,budget=8,interval=1,precompute=off,fetch=move",
    "infinigen" SHAPE,
    "infinigen" SHAPE ",predict=cpu,fetch=gather",
    "gpu_only" SHAPE ",block=8,budget=0.5,fetch=move",
    "hybrid_fixed" SHAPE ",sink=4,recent=8,block=16,budget=0.5",
    "tova" SHAPE ",budget=0.5",
    "duo" SHAPE ",sink=4,recent=8",
    "clo" CLO ",transfer=stores",
    "clo" CLO ",transfer=kernel,retrieve=quest,predict=cpu",
    "clo" CLO ",transfer=gather,retrieve=exact,sync=cpu",
    "clo" CLO ",transfer=pieces,prefetch=0",
    "fluxion" FLUXION ",predict=fixed",
    "fluxion" FLUXION ",predict=oracle,schedule=length,fetch=move,union=1",
    "fluxion" FLUXION ",predict=oracle,schedule=uniform,fetch=pieces",
    "fluxion" FLUXION ",predict=fixed,schedule=none",
    "fluxion:dataset=walk,fit=walk,ctx=460+21,heads=8/2,layers=4,steps=2,threads=2,schedule=uniform",
};

/* One call in so many. */
enum { STRIDE = HA_SANITIZED ? 11 : 1 };

static void each_call(const char *id, bool checks)
{
    size_t failed = 0;
    open_failing(id);
    for (fails_at = 1;; fails_at += STRIDE) {
        const enum ha_status status = pass(checks);
        if (made) fail_msg("%s, call %zu: %zu things are left", id, fails_at, (size_t)made);
        if (calls < fails_at) {
            if (status != HA_OK) fail_msg("%s: %s", id, reason.text);
            break;
        }
        if ((status != HA_ERROR && status != HA_WAIVED) || !*reason.text)
            fail_msg("%s, call %zu: %d, %s", id, fails_at, (int)status, reason.text);
        failed++;
    }
    assert_true(failed > 100 / STRIDE);
    close_session();
}

TEST(each_call_fails_once)
{
    goes_on = false;
    for (size_t i = 0; i < COUNT(ids); i++) each_call(ids[i], i % 2);
}

TEST(all_calls_fail_from_one_on)
{
    goes_on = true;
    for (size_t i = 0; i < COUNT(ids); i++) each_call(ids[i], i % 2 == 0);
}
