/* What one call of many does: each of so many waits for a host function that takes a while, or is one, and is counted.
 */

#include "suites/device/path.h"

#include "harness/base/thread.h"
#include "harness/base/why.h"

enum { OFTEN = 1700, SELDOM = 130, WORK_NS = 1000 };

struct turns {
    uint32_t done, seen; /* atomic */
};

static void work(void *arg)
{
    struct turns *t = arg;
    ha_sleep_ns(WORK_NS);
    __atomic_fetch_add(&t->done, 1, __ATOMIC_ACQ_REL);
}
static void look(void *arg)
{
    struct turns *t = arg;
    __atomic_store_n(&t->seen, __atomic_load_n(&t->done, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
}
static void count(void *arg) { __atomic_fetch_add(&((struct turns *)arg)->done, 1, __ATOMIC_ACQ_REL); }

size_t ha_op_often(const struct ha_op_stage *s)
{
    return s->of ? 0 : s->once_more || s->most < 1 << 20 ? SELDOM : OFTEN;
}

/* ---- what waits -------------------------------------------------------------------------------------------------- */

static enum ha_status by_stream_sync(struct ha_op_stage *s, struct turns *t, void *arg, uint32_t n)
{
    HA_OP(s, stream_sync, s->stream[n % 2]);
    look(t);
    return HA_OK;
}
static enum ha_status by_event_sync(struct ha_op_stage *s, struct turns *t, void *event, uint32_t n)
{
    HA_OP(s, event_record, event, s->stream[n % 2]);
    HA_OP(s, event_sync, event);
    look(t);
    return HA_OK;
}
static enum ha_status looked(struct ha_op_stage *s, struct turns *t, uint32_t n)
{
    HA_OP(s, host_fn, s->stream[1 - n % 2], look, t);
    HA_OP(s, stream_sync, s->stream[1 - n % 2]);
    return HA_OK;
}
static enum ha_status by_stream_wait(struct ha_op_stage *s, struct turns *t, void *event, uint32_t n)
{
    HA_OP(s, event_record, event, s->stream[n % 2]);
    HA_OP(s, stream_wait, s->stream[1 - n % 2], event);
    return looked(s, t, n);
}
static enum ha_status by_flag(struct ha_op_stage *s, struct turns *t, void *flag, uint32_t n)
{
    HA_OP(s, flag_write, s->stream[n % 2], flag, n);
    HA_OP(s, flag_wait, s->stream[1 - n % 2], flag, n);
    return looked(s, t, n);
}

static enum ha_status wait_often(struct ha_op_stage *s, const char *what, void *arg,
                                 enum ha_status (*wait)(struct ha_op_stage *s, struct turns *t, void *arg, uint32_t n))
{
    static struct turns t; /* a device that forgets to wait may call later */
    const size_t times = s->api->host_fn ? ha_op_often(s) : 0;
    enum ha_status status = HA_OK;
    t.done = t.seen = 0;
    for (uint32_t n = 1; n <= times && status == HA_OK; n++) {
        status = ha_op_failed(s, "host_fn", s->api->host_fn(s->stream[n % 2], work, &t));
        if (status == HA_OK) status = wait(s, &t, arg, n);
        const uint32_t seen = __atomic_load_n(&t.seen, __ATOMIC_ACQUIRE);
        s->cases++;
        if (status == HA_OK && seen != n)
            status = ha_op_wrong(s, "%s: behind number %u of %zu, %u of the host functions before it had run", what, n,
                                 times, seen);
    }
    for (size_t i = 0; i < HA_OP_STREAMS && status == HA_OK; i++)
        status = ha_op_failed(s, "stream_sync", s->api->stream_sync(s->stream[i]));
    return status;
}

enum ha_status ha_op_sync_often(struct ha_op_stage *s) { return wait_often(s, "stream_sync", NULL, by_stream_sync); }
enum ha_status ha_op_event_often(struct ha_op_stage *s, bool wait)
{
    struct ha_event *event = NULL;
    HA_TRY(s->api->event_create(s->device, &event, s->why));
    const enum ha_status status = wait_often(s, wait ? "stream_wait" : "event_sync", event,
                                             wait ? by_stream_wait : by_event_sync);
    s->api->event_destroy(event);
    return status;
}
enum ha_status ha_op_flag_often(struct ha_op_stage *s)
{
    uint32_t *flag;
    HA_TRY(ha_op_flag_make(s, &flag));
    if (s->api->flag_write && s->api->flag_wait) HA_TRY(wait_often(s, "flag_wait for flag_write", flag, by_flag));
    ha_op_clear(s);
    return HA_OK;
}

/* ---- what is called, and copies ---------------------------------------------------------------------------------- */

enum ha_status ha_op_call_often(struct ha_op_stage *s)
{
    static struct turns t;
    const size_t times = ha_op_often(s);
    t.done = 0;
    for (size_t n = 0; n < times; n++) HA_OP(s, host_fn, s->stream[0], count, &t);
    HA_OP(s, stream_sync, s->stream[0]);
    s->cases++;
    const uint32_t done = __atomic_load_n(&t.done, __ATOMIC_ACQUIRE);
    return done == times
               ? HA_OK
               : ha_op_wrong(s, "host_fn: a function that was enqueued %zu times was called %u times", times, done);
}
