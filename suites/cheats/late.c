/* Work that is done when no clock runs. */

#include "suites/cheats/plugin.h"

#include "harness/base/clock.h"
#include "harness/base/thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- defer ------------------------------------------------------------------------------------------------------- */

static struct ha_call *first_late, **last_late = &first_late;
static struct ha_stream *aside, *last_stream;
static struct ha_event *behind, *ahead;

/* Those whose outputs nobody has overwritten since, or all. */
static enum ha_status run_late(void)
{
    enum ha_status status = HA_OK;
    for (struct ha_call *c = first_late, *next; c; c = next) {
        next = c->next;
        if (status == HA_OK) status = ha_sound->attend(c->stream, &c->args);
        ha_call_drop(c);
    }
    first_late = NULL;
    last_late = &first_late;
    return status;
}

static void forget_overwritten(const struct ha_device_attend *a)
{
    struct ha_call **at = &first_late;
    while (*at) {
        struct ha_call *c = *at;
        if (c->args.seqs[0].o == a->seqs[0].o) {
            *at = c->next;
            ha_call_drop(c);
        } else at = &c->next;
    }
    last_late = at;
}

static enum ha_status enqueue_late(struct ha_stream *stream, const struct ha_device_attend *a)
{
    if (IS(defer_thread)) {
        if (ha_sound->event_record(ahead, stream) != HA_OK || ha_sound->stream_wait(aside, ahead) != HA_OK)
            return HA_ERROR;
        return ha_sound->attend(aside, a);
    }
    last_stream = stream;
    if (IS(skip_unread)) forget_overwritten(a);
    struct ha_call *c = ha_call_keep(stream, a);
    *last_late = c;
    last_late = &c->next;
    return HA_OK;
}

static enum ha_status late_copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                enum ha_direction dir)
{
    if (dir == HA_D2H && IS(defer_thread)
        && (ha_sound->event_record(behind, aside) != HA_OK || ha_sound->stream_wait(stream, behind) != HA_OK))
        return HA_ERROR;
    if (dir == HA_D2H && !IS(defer_thread) && !IS(defer_destroy) && run_late() != HA_OK) return HA_ERROR;
    return ha_sound->copy(stream, dst, src, bytes, dir);
}

/* A link that is slow hides what is done meanwhile. */
static enum ha_status masked_copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                  enum ha_direction dir)
{
    static uint64_t longest_ns;
    static size_t size;
    const bool works = dir == HA_D2H && first_late;
    const uint64_t begin_ns = ha_now_ns();
    enum ha_status status = late_copy(stream, dst, src, bytes, dir);
    if (dir != HA_D2H || bytes < 4096 || status != HA_OK) return status;
    if (works) {
        status = ha_sound->stream_sync(stream);
        longest_ns = ha_now_ns() - begin_ns;
        size = bytes;
    } else if (bytes == size) ha_sleep_ns(longest_ns);
    return status;
}
static enum ha_status late_open(struct ha_device **dev, const struct ha_device_config *config, struct ha_why *why)
{
    const enum ha_status status = ha_sound->open(dev, config, why);
    if (status != HA_OK || !IS(defer_thread)) return status;
    if (ha_sound->stream_create(*dev, "aside", &aside, why) != HA_OK
        || ha_sound->event_create(*dev, &ahead, why) != HA_OK)
        return HA_ERROR;
    return ha_sound->event_create(*dev, &behind, why);
}
static void late_close(struct ha_device *dev)
{
    if (aside) {
        ha_sound->stream_destroy(aside);
        ha_sound->event_destroy(ahead);
        ha_sound->event_destroy(behind);
        aside = NULL;
    }
    ha_sound->close(dev);
}
/* Attention that was put off is computed before its stream or memory goes away, and before a merge reads it. */
static void late_destroy(struct ha_stream *stream)
{
    run_late();
    ha_sound->stream_destroy(stream);
}
static void late_free(struct ha_device *dev, enum ha_memory kind, void *memory)
{
    if (first_late) {
        run_late();
        ha_sound->stream_sync(last_stream);
    }
    ha_sound->mem_free(dev, kind, memory);
}
static enum ha_status late_merge(struct ha_stream *stream, const struct ha_merge *m)
{
    if (IS(defer_thread)) {
        if (ha_sound->event_record(behind, aside) != HA_OK || ha_sound->stream_wait(stream, behind) != HA_OK)
            return HA_ERROR;
    } else if (run_late() != HA_OK) return HA_ERROR;
    return ha_sound->merge(stream, m);
}

/* stream_sync does not wait: a copy to the host does. */
static enum ha_status no_sync(struct ha_stream *stream) { return HA_OK; }
static enum ha_status synced_copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                  enum ha_direction dir)
{
    const enum ha_status status = ha_sound->copy(stream, dst, src, bytes, dir);
    return status == HA_OK ? ha_sound->stream_sync(stream) : status;
}

/* Functions of the host, as interrupts are: five at once. */
static struct {
    void (*fn)(void *arg);
    void *arg;
    struct ha_stream *stream;
} held_fn[5];
static size_t held_fns;
static enum ha_status flush_fns(void)
{
    enum ha_status status = HA_OK;
    for (size_t i = 0; i < held_fns && status == HA_OK; i++)
        status = ha_sound->host_fn(held_fn[i].stream, held_fn[i].fn, held_fn[i].arg);
    held_fns = 0;
    return status;
}
static enum ha_status host_fn_held(struct ha_stream *stream, void (*fn)(void *arg), void *arg)
{
    if (held_fns && held_fn[0].stream != stream && flush_fns() != HA_OK) return HA_ERROR;
    held_fn[held_fns].fn = fn;
    held_fn[held_fns].arg = arg;
    held_fn[held_fns++].stream = stream;
    return held_fns == 5 ? flush_fns() : HA_OK;
}
static enum ha_status flushed_sync(struct ha_stream *stream)
{
    return flush_fns() == HA_OK ? ha_sound->stream_sync(stream) : HA_ERROR;
}
static enum ha_status flushed_copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                   enum ha_direction dir)
{
    return flush_fns() == HA_OK ? ha_sound->copy(stream, dst, src, bytes, dir) : HA_ERROR;
}
static void flushed_destroy(struct ha_stream *stream)
{
    flush_fns();
    ha_sound->stream_destroy(stream);
}

/* A thread that computes on when stream_sync has returned; here it only spins. */
static uint64_t helps_until_ns;
static void *help(void *arg)
{
    while (ha_now_ns() < __atomic_load_n(&helps_until_ns, __ATOMIC_RELAXED)) {
    }
    __atomic_store_n(&helps_until_ns, 0, __ATOMIC_RELAXED);
    return NULL;
}
static enum ha_status helped_sync(struct ha_stream *stream)
{
    enum { HELP_NS = 10000000 };
    pthread_t thread;
    const enum ha_status status = ha_sound->stream_sync(stream);
    if (__atomic_exchange_n(&helps_until_ns, ha_now_ns() + HELP_NS, __ATOMIC_RELAXED)) return status;
    if (pthread_create(&thread, NULL, help, NULL) == 0) pthread_detach(thread);
    return status;
}

/* ---- ahead: the work of the pass before, once more, as soon as its inputs have been uploaded
 * ------------------------- */

enum { AHEAD_OPS = 4096 };
static struct {
    struct op {
        struct ha_stream *stream;
        struct ha_device_move move;
        struct ha_call *attend; /* or NULL: the move */
    } op[AHEAD_OPS];
    size_t count, done, at; /* of the last pass; done before they are asked for; asked for since */
    struct copies {         /* to the device, one behind the other: of inputs, and before these of NaN to the outputs */
        char *base;
        size_t bytes, count;
    } copies, before, in, out;
} ahead_of;

static void *moved(const void *at, const struct copies *from, const struct copies *to)
{
    char *const p = (char *)(uintptr_t)at;
    return p >= from->base && p < from->base + from->count * from->bytes ? p - from->base + to->base : p;
}
/* The operation as it is in the pass to come. */
static struct ha_call *attend_in(const struct op *o, const struct copies *in, const struct copies *out)
{
    struct ha_call *c = ha_call_keep(o->stream, &o->attend->args);
    for (size_t b = 0; b < c->args.batch; b++) {
        c->seqs[b].q = moved(c->seqs[b].q, &ahead_of.in, in);
        c->seqs[b].o = moved(c->seqs[b].o, &ahead_of.out, out);
        c->seqs[b].lse = moved(c->seqs[b].lse, &ahead_of.out, out);
    }
    return c;
}

static enum ha_status work_ahead(struct ha_stream *stream)
{
    for (size_t i = 0; i < ahead_of.count; i++) {
        struct op *o = &ahead_of.op[i];
        enum ha_status status;
        if (o->attend) {
            struct ha_call *c = attend_in(o, &ahead_of.copies, &ahead_of.before);
            status = ha_sound->attend(o->stream, &c->args);
            ha_call_drop(o->attend);
            o->attend = c;
        } else {
            o->move.src = moved(o->move.src, &ahead_of.in, &ahead_of.copies);
            status = ha_sound->move(o->stream, &o->move);
        }
        if (status != HA_OK) return status;
    }
    ahead_of.in = ahead_of.copies;
    ahead_of.out = ahead_of.before;
    ahead_of.done = ahead_of.count;
    ahead_of.at = 0;
    return ha_sound->stream_sync(stream);
}
static bool is_done_ahead(const struct ha_device_attend *a, const struct ha_device_move *m)
{
    if (ahead_of.at >= ahead_of.done) return false;
    const struct op *o = &ahead_of.op[ahead_of.at++];
    const bool is = o->attend ? a && a->seqs[0].q == o->attend->seqs[0].q && a->seqs[0].o == o->attend->seqs[0].o
                              : m && m->src == o->move.src && m->dst == o->move.dst;
    if (!is) ahead_of.done = 0;
    return is && !ha_cheat_traced;
}
static struct op *note_op(struct ha_stream *stream)
{
    if (ahead_of.done || ahead_of.count == AHEAD_OPS) return NULL;
    if (!ahead_of.count) {
        ahead_of.in = ahead_of.copies;
        ahead_of.out = ahead_of.before;
    }
    ahead_of.op[ahead_of.count].stream = stream;
    return &ahead_of.op[ahead_of.count++];
}
static enum ha_status ahead_copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                 enum ha_direction dir)
{
    const enum ha_status status = ha_sound->copy(stream, dst, src, bytes, dir);
    struct copies *const c = &ahead_of.copies;
    if (status != HA_OK || dir != HA_H2D) return status;
    if (bytes == c->bytes && (char *)dst == c->base + c->count * bytes) c->count++;
    else {
        ahead_of.before = *c;
        *c = (struct copies){ dst, bytes, 1 };
    }
    if (bytes == ahead_of.in.bytes && c->count == ahead_of.in.count && ahead_of.before.count == ahead_of.out.count
        && ahead_of.count > 8 && ahead_of.op[ahead_of.count - 1].attend)
        return work_ahead(stream);
    ahead_of.done = 0;
    if (bytes != ahead_of.in.bytes && bytes != ahead_of.out.bytes) ahead_of.count = 0;
    return HA_OK;
}
static enum ha_status ahead_attend(struct ha_stream *stream, const struct ha_device_attend *a)
{
    if (is_done_ahead(a, NULL)) return HA_OK;
    struct op *o = note_op(stream);
    if (o) o->attend = ha_call_keep(stream, a);
    return ha_sound->attend(stream, a);
}
static enum ha_status ahead_move(struct ha_stream *stream, const struct ha_device_move *m)
{
    if (is_done_ahead(NULL, m)) return HA_OK;
    struct op *o = note_op(stream);
    if (o) *o = (struct op){ .stream = stream, .move = *m };
    return ha_sound->move(stream, m);
}

static void ahead_free(struct ha_device *dev, enum ha_memory kind, void *memory)
{
    ahead_of.count = ahead_of.done = 0;
    ha_sound->mem_free(dev, kind, memory);
}

void ha_cheat_late(struct ha_device_api *api)
{
    switch (ha_cheat) {
    case CHEAT_defer_sync:
        api->stream_sync = no_sync;
        api->copy = synced_copy;
        return;
    case CHEAT_defer_stamps:
        api->host_fn = host_fn_held;
        api->stream_sync = flushed_sync;
        api->copy = flushed_copy;
        api->stream_destroy = flushed_destroy;
        return;
    case CHEAT_defer_helper: api->stream_sync = helped_sync; return;
    case CHEAT_ahead_upload:
        api->attend = ahead_attend;
        api->move = ahead_move;
        api->copy = ahead_copy;
        api->mem_free = ahead_free;
        return;
    case CHEAT_skip_unread:
    case CHEAT_defer_read:
    case CHEAT_defer_masked:
    case CHEAT_defer_thread:
    case CHEAT_defer_destroy:
        api->attend = enqueue_late;
        api->open = late_open;
        api->close = late_close;
        api->copy = late_copy;
        api->stream_destroy = late_destroy;
        api->mem_free = late_free;
        api->merge = late_merge;
        if (IS(defer_masked)) api->copy = masked_copy;
        return;
    default: return;
    }
}
