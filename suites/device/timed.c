#include "suites/device/timed.h"

#include "harness/base/clock.h"
#include "harness/base/operands.h"
#include "harness/base/stop.h"
#include "harness/base/why.h"

#include <math.h>
#include <string.h>

static const uint64_t sample_ns = 1000000; /* the least time of a sample */
static const struct ha_sampling rule = { .least = 15, .interval = 0.01 };

static struct {
    const struct ha_device_api *real;
    struct ha_op_stage *stage;
    struct ha_op_timing *to;
} now;

typedef enum ha_status call_fn(struct ha_stream *stream, const void *args);

static void add_bytes(void *arg, const char *role, enum ha_access access, struct ha_range range)
{
    struct ha_op_timing *to = arg;
    to->bytes += range.bytes == SIZE_MAX ? (double)NAN : (double)range.rows * (double)range.bytes;
}

static enum ha_status sample(struct ha_stream *stream, call_fn *call, const void *args, size_t calls, uint64_t *ns)
{
    const uint64_t begin = ha_now_ns();
    for (size_t i = 0; i < calls; i++) HA_TRY(call(stream, args));
    HA_TRY(now.real->stream_sync(stream));
    *ns = ha_now_ns() - begin;
    return HA_OK;
}

/* Nothing holds the stream up, and the inputs are there. */
static enum ha_status time_calls(struct ha_stream *stream, call_fn *call, const void *args)
{
    struct ha_op_timing *to = now.to;
    uint64_t ns;
    size_t calls = 1;
    ha_op_open(now.stage);
    HA_TRY(now.real->stream_sync(stream));
    HA_TRY(sample(stream, call, args, calls, &ns)); /* a first call may load what it needs */
    do HA_TRY(sample(stream, call, args, calls, &ns));
    while (ns < sample_ns && (calls *= 2));
    const uint64_t begin = ha_now_ns();
    do {
        HA_TRY(sample(stream, call, args, calls, &ns));
        HA_TRY(ha_series_add(&to->ns, (double)ns / (double)calls, now.stage->why));
    } while (!ha_sampling_enough(&rule, to->ns.x, to->ns.count) && ha_now_ns() - begin < to->cap_ns && !ha_stop);
    return HA_OK;
}

#define TIMED(entry, type)                                                                                            \
    static enum ha_status call_##entry(struct ha_stream *stream, const void *args)                                    \
    {                                                                                                                 \
        return now.real->entry(stream, args);                                                                         \
    }                                                                                                                 \
    static enum ha_status timed_##entry(struct ha_stream *stream, const struct type *args)                            \
    {                                                                                                                 \
        if (now.to->ns.count) return now.real->entry(stream, args); /* of several calls of a case the first counts */ \
        now.to->bytes = 0;                                                                                            \
        ha_operands_device_##entry(args, add_bytes, now.to);                                                          \
        return time_calls(stream, call_##entry, args);                                                                \
    }
HA_DEVICE_OPERATIONS(TIMED)

const struct ha_device_api *ha_timed(struct ha_op_stage *stage, const char *entry, struct ha_op_timing *timing)
{
    static struct ha_device_api timed;
    bool found = false;
    timed = *stage->api;
    now.real = stage->api;
    now.stage = stage;
    now.to = timing;
#define INSTEAD(name, type)               \
    if (entry && !strcmp(entry, #name)) { \
        timed.name = timed_##name;        \
        found = true;                     \
    }
    HA_DEVICE_OPERATIONS(INSTEAD)
    return found ? &timed : NULL;
}
