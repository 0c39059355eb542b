/* Threads that feed streams at the same time, each one of its own: what a call keeps until another is over must be the
 * caller's. */

#include "suites/device/path.h"

#include "harness/base/thread.h"
#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

enum { FEEDERS = 2, BYTES = 1 << 16, ROW = 16, MOST = 2048 };

/* x is copied up to `there`, in parts; rows of that are moved to `row`, and both are copied back. */
struct feeder {
    struct ha_op_stage stage; /* of its own: what it draws, and why it ends */
    struct ha_why why;
    struct ha_stream *stream;
    struct ha_op_block *x, *there, *row, *out[2];
    size_t times;
    uint32_t calls; /* atomic */
    enum ha_status status;
    pthread_t thread;
};

static void count(void *arg) { __atomic_fetch_add((uint32_t *)arg, 1, __ATOMIC_ACQ_REL); }

static enum ha_status feed_once(struct ha_op_stage *s, struct feeder *f)
{
    const size_t bytes = 1 + ha_op_draw(s, MOST), to = ha_op_draw(s, BYTES - bytes),
                 from = ha_op_draw(s, BYTES - bytes);
    HA_OP(s, copy, f->stream, f->there->at + to, f->x->at + from, bytes, HA_H2D);
    memcpy(f->there->image + to, f->x->image + from, bytes);
    if (s->api->host_fn) HA_OP(s, host_fn, f->stream, count, &f->calls);
    if (!s->api->move) return HA_OK;
    const size_t rows = 1 + ha_op_draw(s, MOST / ROW), first = ha_op_draw(s, BYTES / ROW - rows) * ROW,
                 at = ha_op_draw(s, BYTES / ROW - rows) * ROW;
    HA_OP(s, move, f->stream,
          &(struct ha_device_move){ f->row->at + at, f->there->at + first, NULL, NULL, rows, ROW, ROW, ROW });
    memcpy(f->row->image + at, f->there->image + first, rows * ROW);
    return HA_OK;
}

static enum ha_status feed(struct feeder *f)
{
    struct ha_op_stage *const s = &f->stage;
    struct ha_op_block *const from[2] = { f->there, f->row };
    for (size_t i = 0; i < f->times; i++) HA_TRY(feed_once(s, f));
    for (size_t i = 0; i < 2; i++) {
        HA_OP(s, copy, f->stream, f->out[i]->at, from[i]->at, BYTES, HA_D2H);
        memcpy(f->out[i]->image, from[i]->image, BYTES);
    }
    HA_OP(s, stream_sync, f->stream);
    return HA_OK;
}
static void *feeds(void *arg)
{
    struct feeder *f = arg;
    f->status = feed(f);
    return NULL;
}

static enum ha_status prepare(struct ha_op_stage *s, struct feeder *f, size_t i)
{
    memset(f, 0, sizeof *f);
    f->times = ha_op_often(s);
    f->stream = s->stream[i];
    f->x = ha_op_block(s, HA_OP_PINNED, BYTES);
    f->there = f->x ? ha_op_block(s, HA_OP_DEVICE, BYTES) : NULL;
    f->row = f->there ? ha_op_block(s, HA_OP_DEVICE, BYTES) : NULL;
    for (size_t k = 0; k < 2 && f->row; k++)
        if (!(f->out[k] = ha_op_block(s, HA_OP_PINNED, BYTES))) return HA_ERROR;
    if (!f->row) return HA_ERROR;
    HA_TRY(ha_op_fill(s, f->x, 0, BYTES));
    HA_TRY(ha_op_fill(s, f->there, 0, BYTES));
    HA_TRY(ha_op_fill(s, f->row, 0, BYTES));
    f->stage = *s;
    f->stage.why = &f->why;
    f->stage.drawn += (i + 1) << 40;
    return HA_OK;
}

static enum ha_status judge_feeder(struct ha_op_stage *s, const struct feeder *f)
{
    if (f->status != HA_OK) return ha_why(s->why, f->status, "%s", f->why.text);
    for (size_t k = 0; k < 2; k++)
        HA_TRY(ha_op_judge(s, f->out[k], 0, BYTES,
                           "what one of %d threads copied and moved, each on a stream of its own, at the same time",
                           FEEDERS));
    const uint32_t calls = __atomic_load_n(&f->calls, __ATOMIC_ACQUIRE);
    return !s->api->host_fn || calls == f->times
               ? HA_OK
               : ha_op_wrong(s, "host_fn: of %zu functions that one of %d threads enqueued %u were called", f->times,
                             FEEDERS, calls);
}

enum ha_status ha_op_feed_often(struct ha_op_stage *s)
{
    static struct feeder f[FEEDERS]; /* not on the stack: a wrong device may call later */
    size_t started = 0;
    enum ha_status status = HA_OK;
    if (!ha_op_often(s) || s->most < BYTES) return HA_OK;
    for (size_t i = 0; i < FEEDERS; i++) HA_TRY(prepare(s, &f[i], i));
    while (started < FEEDERS && !ha_thread_start(&f[started].thread, feeds, &f[started])) started++;
    for (size_t i = 0; i < started; i++) pthread_join(f[i].thread, NULL);
    if (started < FEEDERS) return ha_why(s->why, HA_ERROR, "no thread to be had");
    for (size_t i = 0; i < FEEDERS && status == HA_OK; i++) status = judge_feeder(s, &f[i]);
    if (status == HA_OK) ha_op_clear(s);
    return status;
}
