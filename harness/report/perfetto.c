#include "harness/report/perfetto.h"

#include "harness/base/text.h"
#include "harness/base/why.h"

#include <stdio.h>
#include <string.h>

enum { LANES_MAX = 512 };
struct events {
    FILE *file;
    bool any; /* an event has been written: the next needs a comma */
};

static void next(struct events *t)
{
    fputs(t->any ? ",\n" : "", t->file);
    t->any = true;
}

static const char *lane_of(const struct ha_timeline_span *s)
{
    const bool is_copy = s->origin == HA_FROM_DEVICE; /* what a thread stores is in its own lane */
    return is_copy && s->span.kind == HA_SPAN_H2D   ? "link host to device"
           : is_copy && s->span.kind == HA_SPAN_D2H ? "link device to host"
           : s->span.lane                           ? s->span.lane
                                                    : "device";
}

static const char *kind_name(enum ha_span_kind kind)
{
    static const char *const name[] = {
        [HA_SPAN_KERNEL] = "kernel", [HA_SPAN_H2D] = "h2d", [HA_SPAN_D2H] = "d2h",      [HA_SPAN_D2D] = "d2d",
        [HA_SPAN_WAIT] = "wait",     [HA_SPAN_CPU] = "cpu", [HA_SPAN_LAUNCH] = "launch"
    };
    return name[kind];
}

/* names a thread or a process */
static void put_name(struct events *t, const char *what, int tid, const char *name)
{
    next(t);
    fprintf(t->file, "{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"%s\",\"args\":{\"name\":", tid, what);
    ha_text_json(t->file, name);
    fputs("}}", t->file);
}

static void put_span(struct events *t, int tid, const char *kind, const struct ha_span *s, uint64_t from_ns)
{
    next(t);
    fprintf(t->file, "{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cat\":\"%s\",\"name\":", tid,
            ((double)s->begin_ns - (double)from_ns) / 1e3, (double)(s->end_ns - s->begin_ns) / 1e3, kind);
    ha_text_json(t->file, s->name ? s->name : "");
    fprintf(t->file, ",\"args\":{\"bytes\":%llu,\"zero_copy_bytes\":%llu", (unsigned long long)s->bytes,
            (unsigned long long)s->zero_copy_bytes);
    if (s->enqueue_ns) fprintf(t->file, ",\"enqueued_us\":%.3f", ((double)s->enqueue_ns - (double)from_ns) / 1e3);
    fputs("}}", t->file);
}

enum ha_status ha_perfetto_events(char **out, size_t *bytes, const struct ha_timeline *timeline,
                                  struct ha_interval window, struct ha_why *why)
{
    const struct ha_span step = { .begin_ns = window.begin_ns, .end_ns = window.end_ns, .name = "step" };
    const char *lane[LANES_MAX] = { "step" };
    struct events t = { .file = open_memstream(out, bytes) };
    int lanes = 1;
    if (!t.file) return ha_why(why, HA_ERROR, "no memory for the trace");
    put_name(&t, "thread_name", 1, lane[0]);
    put_span(&t, 1, "step", &step, window.begin_ns);
    for (size_t i = 0; i < ha_timeline_count(timeline); i++) {
        const struct ha_timeline_span *s = ha_timeline_at(timeline, i);
        int at = 0;
        if (s->span.end_ns <= window.begin_ns || s->span.begin_ns >= window.end_ns) continue;
        while (at < lanes && strcmp(lane[at], lane_of(s))) at++;
        if (at == lanes && lanes == LANES_MAX) continue;
        if (at == lanes) {
            lane[lanes++] = lane_of(s);
            put_name(&t, "thread_name", at + 1, lane[at]);
        }
        put_span(&t, at + 1, kind_name(s->span.kind), &s->span, window.begin_ns);
    }
    return fclose(t.file) == 0 ? HA_OK : ha_why(why, HA_ERROR, "no memory for the trace");
}
