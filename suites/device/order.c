/* Streams and events. A gate holds up what must be waited for; what does not wait then runs ahead of it, with the bytes
 * of before. */

#include "suites/device/path.h"

#include "harness/base/clock.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"

#include <string.h>

static enum ha_status with_event(struct ha_op_stage *s,
                                 enum ha_status (*judge)(struct ha_op_stage *s, struct ha_event *event))
{
    struct ha_event *event = NULL;
    HA_TRY(s->api->event_create(s->device, &event, s->why));
    enum ha_status status = HA_OK;
    for (size_t round = 0; round < s->rounds && status == HA_OK; round++) {
        ha_op_round(s, round);
        status = judge(s, event);
        ha_op_open(s);
        const enum ha_status rest = s->api->stream_sync(s->stream[0]) == HA_OK ? s->api->stream_sync(s->stream[1])
                                                                               : HA_ERROR;
        if (status == HA_OK) status = ha_op_failed(s, "stream_sync", rest);
        if (status == HA_OK) ha_op_clear(s); /* a wrong device may still be at work in them */
    }
    s->api->event_destroy(event);
    return status;
}

#define EVENTS HA_OP_ENTRY(event_create), HA_OP_ENTRY(event_record), HA_OP_ENTRY(stream_wait), HA_OP_ENTRY(event_sync)
#define ROW(op, ms, text, ...)                                                                                       \
    const struct ha_op ha_op_##op = {                                                                                \
        .name = #op, .doc = text, .needs = { __VA_ARGS__ }, .judge = judge_##op, .keys = "size times", .held_ms = ms \
    }

/* ---- streams ----------------------------------------------------------------------------------------------------- */

/* Each step reads what the one before it wrote, or writes what that read; every engine takes part. */
static enum ha_status in_order(struct ha_op_stage *s, size_t bytes)
{
    struct ha_op_path p, q;
    struct ha_stream *const on = s->stream[0];
    HA_TRY(ha_op_path_make(s, &p, bytes));
    HA_TRY(ha_op_path_make(s, &q, bytes));
    HA_TRY(ha_op_shut(s, on));
    HA_TRY(ha_op_path_up(s, &p, on));
    memcpy(q.there->image, p.there->image, p.bytes);
    HA_OP(s, copy, on, q.there->at, p.there->at, p.bytes, HA_D2D);
    HA_TRY(ha_op_path_down(s, &q, on));
    HA_TRY(ha_op_path_down(s, &p, on));
    struct ha_op_path again = { q.x, p.there, q.out, p.bytes };
    HA_TRY(ha_op_path_up(s, &again, on)); /* over what has just been read */
    const size_t half = p.bytes / 2;
    memcpy(q.there->image, p.there->image + p.bytes - half, half);
    HA_OP(s, copy, on, q.there->at, p.there->at + p.bytes - half, half, HA_D2D);
    ha_op_open(s);
    HA_OP(s, stream_sync, on);
    HA_TRY(ha_op_path_judge(s, &p, "what a stream copied back before it copied other bytes up"));
    HA_TRY(ha_op_path_judge(s, &q, "what a stream copied up, over and back"));
    HA_TRY(ha_op_judge(s, p.there, 0, p.bytes, "what a stream copied up last"));
    return ha_op_judge(s, q.there, 0, p.bytes, "what a stream copied over last");
}

static enum ha_status judge_stream(struct ha_op_stage *s)
{
    struct ha_op_path p;
    for (size_t round = 0; round < s->rounds; round++) {
        HA_TRY(in_order(s, round % 2 ? 8 << 20 : HA_OP_PATH_SMALL));
        ha_op_clear(s);
    }
    HA_TRY(ha_op_path_make(s, &p, HA_OP_PATH_SMALL));
    for (size_t round = 0; round < s->rounds; round++) { /* the other one is held up */
        HA_TRY(ha_op_path_fill(s, &p));
        HA_TRY(ha_op_shut(s, s->stream[round % 2]));
        HA_TRY(ha_op_path_round(s, &p, s->stream[1 - round % 2], "what a stream copied while another was held up"));
        ha_op_open(s);
        HA_OP(s, stream_sync, s->stream[round % 2]);
    }
    ha_op_clear(s);
    return ha_op_feed_often(s);
}
ROW(stream, 4, "operations of one run in order, two run side by side", { NULL, 0 });

static void late(void *arg)
{
    ha_sleep_ns(2000000);
    __atomic_store_n((uint32_t *)arg, 1, __ATOMIC_RELEASE);
}

static void nothing(void *arg) {}

static uint32_t done; /* atomic; a device that forgets to wait may call later */

/* Copies behind a gate that another thread opens in a while, host functions that do nothing, few or many, and last a
 * slow one. */
static enum ha_status returns_late(struct ha_op_stage *s, struct ha_stream *on, const char *what,
                                   enum ha_status (*wait)(struct ha_op_stage *s, struct ha_stream *on, void *arg),
                                   void *arg)
{
    struct ha_op_path p;
    struct ha_op_opener opener;
    __atomic_store_n(&done, !s->api->host_fn, __ATOMIC_RELEASE);
    HA_TRY(ha_op_path_large(s, &p));
    HA_TRY(ha_op_shut(s, on));
    HA_TRY(ha_op_path_up(s, &p, on));
    static const size_t deep[] = { 0, 40, 300, 1100 };
    const size_t n = s->api->host_fn ? deep[ha_op_draw(s, sizeof deep / sizeof *deep)] : 0;
    for (size_t i = 0; i < n; i++) HA_OP(s, host_fn, on, nothing, NULL);
    if (s->api->host_fn) HA_OP(s, host_fn, on, late, &done);
    HA_TRY(ha_op_path_down(s, &p, on));
    HA_TRY(ha_op_open_later(s, &opener));
    const enum ha_status waited = wait(s, on, arg);
    const bool opened = ha_op_opened(&opener), called = __atomic_load_n(&done, __ATOMIC_ACQUIRE);
    enum ha_status status = HA_OK;
    if (waited == HA_FAIL) status = waited;
    else if (waited != HA_OK) status = ha_op_failed(s, what, waited);
    else if (!opened || !called)
        status = ha_op_wrong(s, "%s returned before the work that it is to wait for had %s", what,
                             opened ? "run a host function" : "begun");
    else status = ha_op_path_judge(s, &p, "what was copied back before it returned");
    ha_op_open(s);
    for (int i = 0; !__atomic_load_n(&done, __ATOMIC_ACQUIRE) && i < 1000; i++) ha_sleep_ns(1000000);
    return status;
}

static enum ha_status sync_it(struct ha_op_stage *s, struct ha_stream *on, void *arg)
{
    return s->api->stream_sync(on);
}
struct sync {
    struct ha_op_stage *s;
    struct ha_stream *on;
};
static void *sync_beside(void *arg)
{
    const struct sync *sync = arg;
    sync->s->api->stream_sync(sync->on);
    return NULL;
}
/* while another thread waits for it, too */
static enum ha_status sync_too(struct ha_op_stage *s, struct ha_stream *on, void *arg)
{
    struct sync sync = { s, on };
    pthread_t thread;
    if (ha_thread_start(&thread, sync_beside, &sync) != 0) return sync_it(s, on, arg);
    ha_sleep_ns(200000);
    const enum ha_status status = s->api->stream_sync(on);
    const bool early = !__atomic_load_n(&done, __ATOMIC_ACQUIRE);
    pthread_join(thread, NULL);
    return early && status == HA_OK ? ha_op_wrong(s, "stream_sync returned early, while another thread waited for it")
                                    : status;
}
static enum ha_status judge_stream_sync(struct ha_op_stage *s)
{
    for (size_t round = 0; round < s->rounds; round++) {
        ha_op_round(s, round);
        HA_TRY(returns_late(s, s->stream[round % 2], "stream_sync", round % 3 == 1 ? sync_too : sync_it, NULL));
        HA_OP(s, stream_sync, s->stream[round % 2]);
        ha_op_clear(s);
    }
    return ha_op_sync_often(s);
}
ROW(stream_sync, 8, "returns when all work before it is done", { NULL, 0 });

static enum ha_status destroy_it(struct ha_op_stage *s, struct ha_stream *on, void *arg)
{
    s->api->stream_destroy(on);
    return HA_OK;
}
static enum ha_status judge_stream_destroy(struct ha_op_stage *s)
{
    for (size_t round = 0; round < s->rounds; round++) {
        struct ha_stream *stream = NULL;
        ha_op_round(s, round);
        HA_TRY(s->api->stream_create(s->device, "conform gone", &stream, s->why));
        HA_TRY(returns_late(s, stream, "stream_destroy", destroy_it, NULL));
        ha_op_clear(s);
    }
    return HA_OK;
}
ROW(stream_destroy, 8, "waits for the stream's work", { NULL, 0 });

/* ---- events ------------------------------------------------------------------------------------------------------ */

static enum ha_status record_and_wait(struct ha_op_stage *s, void *event)
{
    HA_OP(s, event_record, event, s->stream[0]);
    HA_OP(s, stream_wait, s->stream[1], event);
    return HA_OK;
}

static enum ha_status wait_for_copy(struct ha_op_stage *s, struct ha_event *event)
{
    return ha_op_path_across(s, record_and_wait, event,
                             "what a stream copied behind stream_wait for an event behind another copy");
}

/* b is to wait for nothing: the event has no record. */
static enum ha_status wait_for_nothing(struct ha_op_stage *s, struct ha_event *event)
{
    struct ha_op_path p;
    struct ha_event *fresh;
    HA_TRY(ha_op_path_make(s, &p, HA_OP_PATH_SMALL));
    HA_TRY(s->api->event_create(s->device, &fresh, s->why));
    enum ha_status status = ha_op_failed(s, "stream_wait", s->api->stream_wait(s->stream[1], fresh));
    if (status == HA_OK) status = ha_op_failed(s, "event_sync", s->api->event_sync(fresh));
    s->api->event_destroy(fresh);
    HA_TRY(status);
    HA_TRY(
        ha_op_path_round(s, &p, s->stream[1], "what a stream copied behind stream_wait for an event without a record"));
    HA_OP(s, event_record, event, s->stream[1]);
    HA_OP(s, stream_wait, s->stream[1], event);
    return ha_op_path_round(s, &p, s->stream[1], "what a stream copied behind stream_wait for an event of its own");
}

/* Many streams wait for one record, and each second one then for another that nothing holds up. */
enum { WAITERS = 24 };
static void ran(void *arg) { __atomic_fetch_add((uint32_t *)arg, 1, __ATOMIC_ACQ_REL); }

static enum ha_status let_wait(struct ha_op_stage *s, struct ha_stream *const *stream, struct ha_event *event,
                               struct ha_event *free_event, uint32_t *count)
{
    HA_OP(s, event_record, free_event, s->stream[1]);
    HA_TRY(ha_op_shut(s, s->stream[0]));
    HA_OP(s, event_record, event, s->stream[0]);
    for (size_t i = 0; i < WAITERS; i++) {
        HA_OP(s, stream_wait, stream[i], event);
        if (i % 2) HA_OP(s, stream_wait, stream[i], free_event);
        HA_OP(s, host_fn, stream[i], ran, count);
    }
    HA_TRY(ha_op_hold(s));
    s->cases++;
    const uint32_t early = __atomic_load_n(count, __ATOMIC_ACQUIRE);
    if (early)
        return ha_op_wrong(s, "stream_wait: of %d streams that wait for one record %u went on before it was reached",
                           WAITERS, early);
    ha_op_open(s);
    for (size_t i = 0; i < WAITERS; i++) HA_OP(s, stream_sync, stream[i]);
    return HA_OK;
}

static enum ha_status many_wait(struct ha_op_stage *s, struct ha_event *event)
{
    static uint32_t count; /* a device that forgets to wait may call later */
    struct ha_stream *stream[WAITERS] = { NULL };
    struct ha_event *free_event = NULL;
    enum ha_status status = s->api->host_fn ? s->api->event_create(s->device, &free_event, s->why) : HA_OK;
    __atomic_store_n(&count, 0, __ATOMIC_RELEASE);
    for (size_t i = 0; i < WAITERS && free_event && status == HA_OK; i++)
        status = s->api->stream_create(s->device, "conform waits", &stream[i], s->why);
    if (free_event && status == HA_OK) status = let_wait(s, stream, event, free_event, &count);
    ha_op_open(s);
    for (size_t i = 0; i < WAITERS; i++)
        if (stream[i]) s->api->stream_destroy(stream[i]);
    if (free_event) s->api->event_destroy(free_event);
    return status;
}

/* Behind many waits for what is over, and of an event that is destroyed as soon as it is waited for. */
enum { WAITS = 300, EVENTS_AT_ONCE = 2100, DEEPEST = 1100 };
static enum ha_status wait_often(struct ha_op_stage *s, void *event)
{
    struct ha_event *over, *gone;
    HA_TRY(s->api->event_create(s->device, &over, s->why));
    HA_TRY(s->api->event_create(s->device, &gone, s->why));
    enum ha_status status = ha_op_failed(s, "event_record", s->api->event_record(over, s->own));
    for (size_t i = 0; i < WAITS && status == HA_OK; i++)
        status = ha_op_failed(s, "stream_wait", s->api->stream_wait(s->stream[1], over));
    if (status == HA_OK) status = ha_op_failed(s, "event_record", s->api->event_record(gone, s->stream[0]));
    if (status == HA_OK) status = ha_op_failed(s, "stream_wait", s->api->stream_wait(s->stream[1], gone));
    s->api->event_destroy(gone);
    s->api->event_destroy(over);
    return status;
}
static enum ha_status many_waits(struct ha_op_stage *s, struct ha_event *event)
{
    return ha_op_path_across(
        s, wait_often, event,
        "what a stream copied behind 300 waits for what is over and one for an event that was destroyed then");
}

/* Behind as many operations as have not begun. */
static enum ha_status wait_deep(struct ha_op_stage *s, void *event)
{
    static const size_t deep[] = { 60, 150, 250, DEEPEST };
    const size_t n = s->api->host_fn ? deep[ha_op_draw(s, sizeof deep / sizeof *deep)] : 0;
    for (size_t i = 0; i < n; i++) HA_OP(s, host_fn, s->stream[0], nothing, NULL);
    return record_and_wait(s, event);
}
static enum ha_status deep_waits(struct ha_op_stage *s, struct ha_event *event)
{
    return ha_op_path_across(s, wait_deep, event,
                             "what a stream copied behind an event that many operations stand before");
}

/* Of as many events that live, one is behind the gate, and no other. */
static enum ha_status record_many(struct ha_op_stage *s, void *arg)
{
    struct ha_event **event = arg;
    const size_t ends[] = { 0, EVENTS_AT_ONCE - 1, ha_op_draw(s, EVENTS_AT_ONCE) }, held = ends[ha_op_draw(s, 3)],
                 other = (held + 1) % EVENTS_AT_ONCE;
    for (size_t i = 0; i < EVENTS_AT_ONCE; i++) HA_OP(s, event_record, event[i], i == held ? s->stream[0] : s->own);
    HA_OP(s, event_sync, event[other]);
    HA_OP(s, stream_wait, s->stream[1], event[held]);
    return HA_OK;
}
static enum ha_status many_events(struct ha_op_stage *s, struct ha_event *unused)
{
    static struct ha_event *event[EVENTS_AT_ONCE];
    size_t n = 0;
    enum ha_status status = HA_OK;
    while (n < EVENTS_AT_ONCE && status == HA_OK) {
        status = s->api->event_create(s->device, &event[n], s->why);
        n += status == HA_OK;
    }
    if (status == HA_OK)
        status = ha_op_path_across(s, record_many, event,
                                   "what a stream copied behind the wait for one of 2,100 events");
    ha_op_open(s);
    s->api->stream_sync(s->stream[1]);
    while (n) s->api->event_destroy(event[--n]);
    return status;
}

/* An event outlives the stream of its record. */
static enum ha_status stream_is_gone(struct ha_op_stage *s, struct ha_event *event)
{
    struct ha_op_path p;
    struct ha_stream *gone = NULL;
    HA_TRY(ha_op_path_make(s, &p, HA_OP_PATH_SMALL));
    HA_TRY(s->api->stream_create(s->device, "conform gone", &gone, s->why));
    const enum ha_status status = ha_op_failed(s, "event_record", s->api->event_record(event, gone));
    s->api->stream_destroy(gone);
    HA_TRY(status);
    HA_OP(s, event_sync, event);
    HA_OP(s, stream_wait, s->stream[1], event);
    return ha_op_path_round(s, &p, s->stream[1], "what a stream copied behind an event of a stream that was destroyed");
}

static enum ha_status judge_stream_wait(struct ha_op_stage *s)
{
    if (!s->of) {
        const size_t rounds = s->rounds;
        s->rounds = 1;
        enum ha_status status = with_event(s, many_waits);
        for (size_t i = 0; i < 8 && status == HA_OK; i++) status = with_event(s, many_events);
        for (size_t i = 0; i < 12 && status == HA_OK; i++) status = with_event(s, deep_waits);
        if (status == HA_OK) status = with_event(s, stream_is_gone);
        s->rounds = rounds;
        HA_TRY(status);
    }
    HA_TRY(with_event(s, wait_for_copy));
    HA_TRY(with_event(s, wait_for_nothing));
    HA_TRY(with_event(s, many_wait));
    return ha_op_event_often(s, true);
}
ROW(stream_wait, 8, "what follows it waits for the event", EVENTS);

static enum ha_status sync_event(struct ha_op_stage *s, struct ha_stream *on, void *event)
{
    HA_TRY(s->api->event_record(event, on));
    return s->api->event_sync(event);
}
static enum ha_status event_late(struct ha_op_stage *s, struct ha_event *event)
{
    return returns_late(s, s->stream[0], "event_sync", sync_event, event);
}
/* What was enqueued behind the record need not be waited for; if it is, this ends at the device's wait limit. */
static enum ha_status event_early(struct ha_op_stage *s, struct ha_event *event)
{
    HA_OP(s, event_record, event, s->stream[0]);
    HA_TRY(ha_op_shut(s, s->stream[0]));
    HA_OP(s, event_sync, event);
    s->cases++;
    return HA_OK;
}
static enum ha_status judge_event_sync(struct ha_op_stage *s)
{
    HA_TRY(with_event(s, event_late));
    HA_TRY(with_event(s, event_early));
    return ha_op_event_often(s, false);
}
ROW(event_sync, 8, "returns when the work before the record is done", EVENTS);

/* The last record before the wait is the one that counts. */
static enum ha_status record_twice(struct ha_op_stage *s, struct ha_event *event)
{
    HA_OP(s, event_record, event, s->stream[0]);
    HA_OP(s, event_record, event, s->stream[1]);
    return ha_op_path_across(s, record_and_wait, event,
                             "what a stream copied behind stream_wait for an event that was recorded again");
}
/* A record after the wait changes nothing for it. */
static enum ha_status record_later(struct ha_op_stage *s, struct ha_event *event)
{
    struct ha_op_path p;
    HA_TRY(ha_op_path_make(s, &p, HA_OP_PATH_SMALL));
    HA_OP(s, event_record, event, s->stream[0]);
    HA_OP(s, stream_wait, s->stream[1], event);
    HA_TRY(ha_op_shut(s, s->stream[0]));
    HA_OP(s, event_record, event, s->stream[0]);
    return ha_op_path_round(s, &p, s->stream[1],
                            "what a stream copied behind stream_wait for an event that was recorded again later");
}
static enum ha_status judge_event_record(struct ha_op_stage *s)
{
    HA_TRY(with_event(s, wait_for_copy));
    HA_TRY(with_event(s, record_twice));
    return with_event(s, record_later);
}
ROW(event_record, 14, "the latest record before a wait counts", EVENTS);

/* ---- spin -------------------------------------------------------------------------------------------------------- */

static enum ha_status spin_once(struct ha_op_stage *s, struct ha_op_path *p, uint64_t ns)
{
    const uint64_t begin = ha_now_ns();
    HA_TRY(ha_op_path_fill(s, p));
    HA_OP(s, spin, s->stream[0], ns);
    HA_TRY(ha_op_path_up(s, p, s->stream[0]));
    HA_TRY(ha_op_path_down(s, p, s->stream[0]));
    HA_OP(s, stream_sync, s->stream[0]);
    const uint64_t took = ha_now_ns() - begin;
    if (took < ns)
        return ha_op_wrong(s, "spin of %llu ns was over, with the copies behind it, in %llu ns", (unsigned long long)ns,
                           (unsigned long long)took);
    return ha_op_path_judge(s, p, "what was copied behind spin");
}

/* Whoever waits for a long spin waits as long: a stream by an event, and a thread by event_sync. */
struct long_wait {
    struct ha_op_stage *s;
    struct ha_event *event;
    enum ha_status status;
    uint64_t returned_ns, ran_ns;
};
static void note_time(void *arg) { *(uint64_t *)arg = ha_now_ns(); }
static void *sync_long(void *arg)
{
    struct long_wait *w = arg;
    w->status = w->s->api->event_sync(w->event);
    w->returned_ns = ha_now_ns();
    return NULL;
}
static enum ha_status spin_long(struct ha_op_stage *s, struct ha_op_path *p, uint64_t ns)
{
    static struct long_wait w; /* a device that does not wait calls later */
    pthread_t thread;
    w = (struct long_wait){ .s = s, .status = HA_ERROR };
    if (!s->api->event_create || !s->api->host_fn) return spin_once(s, p, ns);
    HA_TRY(s->api->event_create(s->device, &w.event, s->why));
    const uint64_t begin = ha_now_ns();
    enum ha_status status = ha_op_failed(s, "spin", s->api->spin(s->stream[0], ns));
    if (status == HA_OK) status = ha_op_failed(s, "event_record", s->api->event_record(w.event, s->stream[0]));
    if (status == HA_OK) status = ha_op_failed(s, "stream_wait", s->api->stream_wait(s->stream[1], w.event));
    if (status == HA_OK) status = ha_op_failed(s, "host_fn", s->api->host_fn(s->stream[1], note_time, &w.ran_ns));
    const bool starts = status == HA_OK && ha_thread_start(&thread, sync_long, &w) == 0;
    if (status == HA_OK) status = ha_op_failed(s, "stream_sync", s->api->stream_sync(s->stream[0]));
    const uint64_t synced_ns = ha_now_ns();
    if (status == HA_OK) status = ha_op_failed(s, "stream_sync", s->api->stream_sync(s->stream[1]));
    if (starts) pthread_join(thread, NULL);
    s->api->event_destroy(w.event);
    HA_TRY(status);
    if (starts) HA_TRY(ha_op_failed(s, "event_sync", w.status));
    s->cases++;
    const char *const early = synced_ns - begin < ns                 ? "stream_sync"
                              : w.ran_ns - begin < ns                ? "stream_wait"
                              : starts && w.returned_ns - begin < ns ? "event_sync"
                                                                     : NULL;
    return early ? ha_op_wrong(s, "spin of %.1f s: %s did not wait for it to be over", (double)ns * 1e-9, early)
                 : HA_OK;
}

/* Short ones add up. */
static enum ha_status spin_often(struct ha_op_stage *s, uint64_t ns)
{
    enum { TIMES = 1000 };
    const uint64_t begin = ha_now_ns();
    for (size_t i = 0; i < TIMES; i++) HA_OP(s, spin, s->stream[0], ns);
    HA_OP(s, stream_sync, s->stream[0]);
    const uint64_t took = ha_now_ns() - begin;
    s->cases++;
    return took >= TIMES * ns ? HA_OK
                              : ha_op_wrong(s, "%d times spin of %llu ns were over in %llu ns", TIMES,
                                            (unsigned long long)ns, (unsigned long long)took);
}

enum { LONG_FROM = 1 << 20 };
static enum ha_status judge_spin(struct ha_op_stage *s)
{
    static const uint64_t ns[] = { 0, 1000, 20000000, 200000, 20000000, 5000000, 20000000 };
    struct ha_op_path p;
    HA_TRY(ha_op_path_make(s, &p, HA_OP_PATH_SMALL));
    HA_TRY(ha_op_spin_often(s));
    for (size_t i = 0; i < sizeof ns / sizeof *ns; i++) HA_TRY(spin_once(s, &p, ns[i]));
    /* more ns than 32 bits count */
    if (s->most >= LONG_FROM && !s->once_more) HA_TRY(spin_long(s, &p, UINT64_C(4400000000)));
    HA_TRY(spin_often(s, 20000));
    return spin_often(s, 1000);
}

static enum ha_status spin_case(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct ha_op_path p;
    HA_TRY(ha_op_path_make(s, &p, HA_OP_PATH_SMALL));
    for (size_t i = 0; i < c->times; i++) HA_TRY(spin_once(s, &p, c->us * 1000));
    return HA_OK;
}
const struct ha_op ha_op_spin = {
    .name = "spin",
    .doc = "holds its stream up for so long",
    .needs = { HA_OP_ENTRY(spin) },
    .judge = judge_spin,
    .keys = "us times",
    .once = spin_case,
    .held_ms = 0.05,
};
