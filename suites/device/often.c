/* What one call of many does: each of so many waits for what takes a while, or is counted or timed. */

#include "suites/device/path.h"

#include "harness/base/clock.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"

#include <string.h>

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

size_t ha_op_often(const struct ha_op_stage *s)
{
    return s->of ? 0 : s->once_more || s->most < 1 << 20 ? SELDOM : OFTEN;
}

/* ---- what the CPU waits for -------------------------------------------------------------------------------------- */

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
/* ---- what streams wait for --------------------------------------------------------------------------------------- */

typedef enum ha_status order_fn(struct ha_op_stage *s, void *arg, struct ha_stream *from, struct ha_stream *to,
                                size_t n);
static enum ha_status by_event(struct ha_op_stage *s, void *event, struct ha_stream *from, struct ha_stream *to,
                               size_t n)
{
    HA_OP(s, event_record, event, from);
    HA_OP(s, stream_wait, to, event);
    return HA_OK;
}

/* Twice every number of some, and then those around powers of two. */
static uint32_t flag_value(size_t n, size_t times)
{
    enum { POWER = 10, POWERS = 21, AROUND = 3 };
    const size_t i = n / 2, behind = times / 2 > 4 * POWERS * AROUND ? times / 2 - POWERS * AROUND : times,
                 k = i < behind ? 0 : (i - behind) % (POWERS * AROUND);
    return i < behind ? 1 + (uint32_t)i : ((uint32_t)1 << (POWER + k / AROUND)) - 1 + (uint32_t)(k % AROUND);
}
/* The flag is one less than what is waited for, and becomes that, or more. */
static enum ha_status by_flag(struct ha_op_stage *s, void *arg, struct ha_stream *from, struct ha_stream *to, size_t n)
{
    uint32_t *flag = arg;
    const uint32_t least = flag_value(n, ha_op_often(s)), most = n % 4 == 1 ? 1 : INT32_MAX - least;
    __atomic_store_n(flag, least - 1, __ATOMIC_RELEASE);
    HA_OP(s, flag_write, from, flag, least + (n % 2 ? 1 + (uint32_t)ha_op_draw(s, most) : 0));
    HA_OP(s, flag_wait, to, flag, least);
    return HA_OK;
}

/* One stream copies a number up behind the gate, the other one down, when it has waited for the first; the gate opens
 * when a copy that waits for nothing has come down. */
static enum ha_status order_often(struct ha_op_stage *s, const char *what, order_fn *order, void *arg)
{
    const size_t times = ha_op_often(s);
    struct ha_op_path p, any;
    if (!times) return HA_OK;
    HA_TRY(ha_op_path_make(s, &p, sizeof(size_t)));
    HA_TRY(ha_op_path_make(s, &any, sizeof(size_t)));
    for (size_t n = 0; n < times; n++) {
        struct ha_stream *const from = s->stream[n % 2], *const to = s->stream[1 - n % 2];
        size_t seen;
        memcpy(p.x->at, &n, sizeof n);
        HA_TRY(ha_op_shut(s, from));
        HA_OP(s, copy, from, p.there->at, p.x->at, sizeof n, HA_H2D);
        HA_TRY(order(s, arg, from, to, n));
        HA_OP(s, copy, to, p.out->at, p.there->at, sizeof n, HA_D2H);
        HA_OP(s, copy, s->own, any.out->at, any.there->at, sizeof n, HA_D2H);
        HA_OP(s, stream_sync, s->own);
        ha_op_open(s);
        HA_OP(s, stream_sync, to);
        memcpy(&seen, p.out->at, sizeof seen);
        s->cases++;
        if (seen != n)
            return ha_op_wrong(s, "%s: call %zu of %zu: the copy behind it came before the copy that it is to wait for",
                               what, n, times);
    }
    return HA_OK;
}

enum ha_status ha_op_event_often(struct ha_op_stage *s, bool wait)
{
    struct ha_event *event = NULL;
    HA_TRY(s->api->event_create(s->device, &event, s->why));
    const enum ha_status status = wait ? order_often(s, "stream_wait", by_event, event)
                                       : wait_often(s, "event_sync", event, by_event_sync);
    ha_op_open(s);
    s->api->event_destroy(event);
    return status;
}
enum ha_status ha_op_flag_often(struct ha_op_stage *s)
{
    uint32_t *flag;
    HA_TRY(ha_op_flag_make(s, &flag));
    if (s->api->flag_write && s->api->flag_wait) HA_TRY(order_often(s, "flag_wait for flag_write", by_flag, flag));
    ha_op_clear(s);
    return HA_OK;
}

/* ---- what is called, and copies ---------------------------------------------------------------------------------- */

struct numbered {
    uint32_t *done, number; /* done: of the functions before it */
};
static void count(void *arg)
{
    const struct numbered *c = arg;
    uint32_t before = c->number;
    __atomic_compare_exchange_n(c->done, &before, before + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

enum ha_status ha_op_call_often(struct ha_op_stage *s)
{
    static struct numbered call[OFTEN]; /* a device that forgets to wait may call later */
    static uint32_t done;
    const size_t times = ha_op_often(s);
    done = 0;
    for (size_t n = 0; n < times; n++) {
        call[n] = (struct numbered){ &done, (uint32_t)n };
        HA_OP(s, host_fn, s->stream[0], count, &call[n]);
    }
    HA_OP(s, stream_sync, s->stream[0]);
    s->cases++;
    const uint32_t n = __atomic_load_n(&done, __ATOMIC_ACQUIRE);
    return n == times ? HA_OK
                      : ha_op_wrong(s, "host_fn: of %zu functions in one stream, number %u did not run in its turn",
                                    times, n + 1);
}

/* ---- what takes its time ----------------------------------------------------------------------------------------- */

static void stamp(void *arg) { *(uint64_t *)arg = ha_now_ns(); }

enum ha_status ha_op_spin_often(struct ha_op_stage *s)
{
    enum { AT_ONCE = 50 };
    static const uint64_t ns[] = { 20000, 100000, 50000 };
    static uint64_t at[AT_ONCE + 1]; /* a device that forgets to wait may call later */
    const size_t times = s->api->host_fn ? ha_op_often(s) : 0, kinds = sizeof ns / sizeof *ns;
    for (size_t n = 0; n < times; n += AT_ONCE) {
        HA_OP(s, host_fn, s->stream[0], stamp, &at[0]);
        for (size_t i = 0; i < AT_ONCE; i++) {
            HA_OP(s, spin, s->stream[0], ns[(n + i) % kinds]);
            HA_OP(s, host_fn, s->stream[0], stamp, &at[i + 1]);
        }
        HA_OP(s, stream_sync, s->stream[0]);
        s->cases++;
        for (size_t i = 0; i < AT_ONCE; i++)
            if (at[i + 1] - at[i] < ns[(n + i) % kinds])
                return ha_op_wrong(s, "spin of %llu ns, call %zu: the host functions around it were %llu ns apart",
                                   (unsigned long long)ns[(n + i) % kinds], n + i,
                                   (unsigned long long)(at[i + 1] - at[i]));
    }
    return HA_OK;
}
