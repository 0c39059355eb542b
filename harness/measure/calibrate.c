#include "harness/measure/calibrate.h"

#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/stats.h"
#include "harness/base/why.h"
#include "harness/measure/meter.h"
#include "harness/measure/timeline.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum { COPIES = 64, COPY_BYTES = 1 << 20 };
enum { MARGIN_NS = 50000 }; /* of a window on either side: a span that its clock has a little early or late is whole */
enum { PERIODS = 20, PERIOD_NS = 5000000, PERIOD_IN_HOST_NS = 400000, ATTEMPTS = 5, LINK_NS = 200000000 };
static const double bytes_off_most = 1e-3, duty_off_most = 0.01;

struct calibration {
    FILE *out;
    const struct ha_device_api *api;
    struct ha_device *device;
    const struct ha_ceilings *ceilings;
    struct ha_device_arena *arena;
    struct ha_stream *stream;
    struct ha_timeline *timeline;
    unsigned char *pinned, *memory; /* [COPY_BYTES] */
    double duty;
    uint64_t period_ns;
    bool in_host; /* the device stands in for one: it runs on this host's cores */
    bool right;
};

typedef enum ha_status work(struct calibration *c);

static void line(const struct calibration *c, const char *name) { fprintf(c->out, "  %-36s ", name); }

static void calibrate_judge(struct calibration *c, const char *name, bool ok)
{
    line(c, name);
    fprintf(c->out, "%s: ", ok ? "ok" : "WRONG");
    c->right = c->right && ok;
}

static uint64_t spans_lost(const struct calibration *c)
{
    struct ha_device_info info;
    c->api->info(c->device, &info);
    return info.spans_lost;
}

static enum ha_status failed(const struct calibration *c, struct ha_why *why)
{
    const char *failure = c->api->failure(c->device);
    return ha_why(why, HA_ERROR, "calibration: %s", failure ? failure : "an operation failed");
}

/* In time; but where the device needs this host's cores, without polling. */
static void until(const struct calibration *c, uint64_t ns)
{
    const uint64_t early_ns = c->in_host ? 0 : 200000;
    for (uint64_t now = ha_now_ns(); now < ns; now = ha_now_ns())
        if (ns - now > early_ns) nanosleep(&(struct timespec){ .tv_nsec = (long)(ns - now - early_ns) }, NULL);
}

static enum ha_status traced(struct calibration *c, work *f, struct ha_usage *usage, struct ha_why *why)
{
    struct ha_interval window;
    uint64_t lost = spans_lost(c);
    ha_timeline_clear(c->timeline);
    c->api->trace(c->device, ha_timeline_sink(c->timeline, HA_FROM_DEVICE));
    window.begin_ns = ha_now_ns();
    until(c, window.begin_ns + MARGIN_NS);
    enum ha_status status = f(c);
    if (status == HA_OK) status = c->api->stream_sync(c->stream);
    until(c, ha_now_ns() + MARGIN_NS);
    window.end_ns = ha_now_ns();
    c->api->trace(c->device, NULL);
    if (status != HA_OK) return failed(c, why);
    if (spans_lost(c) != lost)
        return ha_why(why, HA_ERROR, "calibration: the device lost %llu spans",
                      (unsigned long long)(spans_lost(c) - lost));
    *usage = (struct ha_usage){ 0 };
    return ha_timeline_measure(c->timeline, window, usage, why);
}

/* ---- an empty window, and copies ------------------------------------------------------------ */

static enum ha_status nothing(struct calibration *c)
{
    until(c, ha_now_ns() + 20000000);
    return HA_OK;
}

static enum ha_status copies(struct calibration *c)
{
    const struct ha_device_api *metered = ha_meter_wrap(c->api);
    ha_meter_take();
    for (int i = 0; i < COPIES; i++) {
        HA_TRY(metered->copy(c->stream, c->memory, c->pinned, COPY_BYTES, HA_H2D));
        HA_TRY(metered->copy(c->stream, c->pinned, c->memory, COPY_BYTES / 2, HA_D2H));
    }
    return HA_OK;
}

static enum ha_status empty_and_bytes(struct calibration *c, struct ha_why *why)
{
    const double h2d = (double)COPIES * COPY_BYTES, d2h = h2d / 2;
    struct ha_usage u;
    HA_TRY(traced(c, nothing, &u, why));
    calibrate_judge(c, "empty window", u.device_ns == 0);
    fprintf(c->out, "%.3f ms busy of %.1f\n", (double)u.device_ns / 1e6, (double)u.wall_ns / 1e6);
    HA_TRY(traced(c, copies, &u, why));
    struct ha_meter_count counted = ha_meter_take();
    calibrate_judge(c, "bytes counted at the copies",
                    (double)counted.h2d_bytes == h2d && (double)counted.d2h_bytes == d2h);
    fprintf(c->out, "%.0f of %.0f\n", (double)(counted.h2d_bytes + counted.d2h_bytes), h2d + d2h);
    calibrate_judge(c, "bytes in the spans",
                    fabs(u.h2d_bytes / h2d - 1) <= bytes_off_most && fabs(u.d2h_bytes / d2h - 1) <= bytes_off_most);
    fprintf(c->out, "%.0f of %.0f\n", u.h2d_bytes + u.d2h_bytes, h2d + d2h);
    return HA_OK;
}

/* ---- duty cycles ------------------------------------------------------------------------------ */

static enum ha_status spins(struct calibration *c)
{
    uint64_t begin = ha_now_ns();
    for (uint64_t i = 1; i <= PERIODS; i++) {
        HA_TRY(c->api->spin(c->stream, (uint64_t)(c->duty * (double)c->period_ns)));
        until(c, begin + i * c->period_ns);
    }
    return HA_OK;
}

/* What the spans say, and what is known. */
struct shares {
    double says, knows;
};

/* of a period, by the length of the shorter spans: those in which the device's thread lost its core are longer */
static struct shares by_lengths(const struct calibration *c)
{
    static const double shorter = 0.1;
    double length[PERIODS];
    size_t count = ha_timeline_count(c->timeline), kept = 0;
    for (size_t i = 0; i < count; i++) {
        const struct ha_span *s = &ha_timeline_at(c->timeline, i)->span;
        if (s->kind == HA_SPAN_KERNEL && kept < PERIODS) length[kept++] = (double)(s->end_ns - s->begin_ns);
    }
    return (struct shares){ kept == PERIODS ? ha_quantile(length, kept, shorter) / (double)c->period_ns : (double)NAN,
                            c->duty };
}

/* A host that does something else meanwhile disturbs the gaps: the best of some attempts; a meter that is off is off in
 * all of them. Where the device itself runs on that host, spins are cut up too, and only the length of the shorter ones
 * is known. */
static enum ha_status duty_cycle(struct calibration *c, struct shares *best, struct ha_why *why)
{
    double off = (double)INFINITY;
    c->period_ns = c->in_host ? PERIOD_IN_HOST_NS : PERIOD_NS;
    for (int attempt = 0; attempt < ATTEMPTS && !(off <= duty_off_most); attempt++) {
        struct ha_usage u;
        HA_TRY(traced(c, spins, &u, why));
        const double wall = (double)u.wall_ns, busy = c->duty * PERIODS * (double)c->period_ns;
        struct shares s = c->in_host ? by_lengths(c) : (struct shares){ (double)u.device_ns / wall, busy / wall };
        if (!(fabs(s.says - s.knows) < off)) continue;
        off = fabs(s.says - s.knows);
        *best = s;
    }
    return HA_OK;
}

static enum ha_status duty_cycles(struct calibration *c, struct ha_why *why)
{
    static const double duty[] = { 0.1, 0.5, 0.9 };
    for (size_t i = 0; i < sizeof duty / sizeof *duty; i++) {
        struct shares s = { (double)NAN, (double)NAN };
        char name[64];
        snprintf(name, sizeof name, "busy for %.0f%% of the time", 100 * duty[i]);
        c->duty = duty[i];
        if (!c->api->spin) {
            line(c, name);
            fprintf(c->out, "-: the device has no spin\n");
            continue;
        }
        HA_TRY(duty_cycle(c, &s, why));
        calibrate_judge(c, name, fabs(s.says - s.knows) <= duty_off_most);
        fprintf(c->out, "spans say %.2f%% of %.2f%%\n", 100 * s.says, 100 * s.knows);
    }
    return HA_OK;
}

/* ---- the link's own counters -------------------------------------------------------------------- */

/* They count what goes over the link, with the headers of every packet: a check on the order of things, no verdict. */
static enum ha_status link_counters(struct calibration *c, struct ha_why *why)
{
    static const struct {
        const char *name;
        enum ha_ceiling ceiling;
        enum ha_direction dir;
    } way[] = { { "link counters, host to device", HA_CEIL_H2D, HA_H2D },
                { "link counters, device to host", HA_CEIL_D2H, HA_D2H } };

    for (size_t i = 0; i < 2; i++) {
        const bool up = way[i].dir == HA_H2D;
        const double copied = c->ceilings->of[way[i].ceiling].median;
        double counted = (double)NAN;
        if (c->api->meters && copied > 0) {
            for (double ns = 0; ns < LINK_NS; ns += COPY_BYTES / copied)
                if (c->api->copy(c->stream, up ? c->memory : c->pinned, up ? c->pinned : c->memory, COPY_BYTES,
                                 way[i].dir)
                    != HA_OK)
                    return failed(c, why);
            struct ha_device_meters m = ha_meters_read(c->api, c->device, true);
            counted = up ? m.link_rx_GBps : m.link_tx_GBps;
            if (c->api->stream_sync(c->stream) != HA_OK) return failed(c, why);
        }
        line(c, way[i].name);
        if (isnan(counted)) fprintf(c->out, "-: not readable\n");
        else fprintf(c->out, "%.1f GB/s while %.1f GB/s were copied\n", counted, copied);
    }
    return HA_OK;
}

/* ---- all of them ------------------------------------------------------------------------------------ */

static void print_number(FILE *out, const char *name, double value, double most, const char *unit)
{
    if (isnan(value)) return;
    fprintf(out, "  %-36s %.4g", name, value);
    if (!isnan(most)) fprintf(out, " of %.4g", most);
    fprintf(out, "%s%s\n", *unit ? " " : "", unit);
}

static void print_condition(FILE *out, const struct ha_device_meters *m)
{
    const double nan = (double)NAN;
    print_number(out, "SM clock under load", m->sm_clock_MHz, m->sm_clock_max_MHz, "MHz");
    print_number(out, "memory clock under load", m->memory_clock_MHz, m->memory_clock_max_MHz, "MHz");
    print_number(out, "link generation under load", m->link_gen, m->link_gen_max, "");
    print_number(out, "link width under load", m->link_width, m->link_width_max, "lanes");
    print_number(out, "power under load", m->power_W, nan, "W");
    print_number(out, "temperature", m->temperature_C, nan, "C");
    if (*m->throttle) fprintf(out, "  %-36s %s\n", "clocks held down by", m->throttle);
}

static enum ha_status calibrate(struct calibration *c, struct ha_why *why)
{
    struct ha_device_info info;
    HA_TRY(ha_device_arena_create(&c->arena, c->api, c->device, why));
    HA_TRY(ha_timeline_create(&c->timeline, why));
    HA_TRY(c->api->stream_create(c->device, "calibrate", &c->stream, why));
    c->pinned = ha_device_alloc(c->arena, HA_MEM_PINNED, COPY_BYTES, HA_TAG_SCRATCH, why);
    c->memory = c->pinned ? ha_device_alloc(c->arena, HA_MEM_DEVICE, COPY_BYTES, HA_TAG_SCRATCH, why) : NULL;
    if (!c->memory) return HA_ERROR;
    memset(c->pinned, 1, COPY_BYTES);
    HA_TRY(empty_and_bytes(c, why));
    HA_TRY(duty_cycles(c, why));
    HA_TRY(link_counters(c, why));
    print_condition(c->out, &c->ceilings->meters);
    c->api->info(c->device, &info);
    line(c, "spans stamped by");
    fprintf(c->out, "%s\n", *info.spans ? info.spans : c->api->name);
    return HA_OK;
}

enum ha_status ha_calibrate(FILE *out, const struct ha_device_api *api, struct ha_device *device,
                            const struct ha_ceilings *ceilings, struct ha_why *why)
{
    struct calibration c = { .out = out, .api = api, .device = device, .ceilings = ceilings, .right = true };
    struct ha_device_info info;
    api->info(device, &info);
    c.in_host = info.compute_threads > 0;

    fprintf(out, "\nmeters\n");
    enum ha_status status = calibrate(&c, why);
    if (c.stream) api->stream_destroy(c.stream);
    ha_device_arena_destroy(c.arena);
    ha_timeline_destroy(c.timeline);
    if (status == HA_OK && !c.right)
        status = ha_why(why, HA_ERROR,
                        "device %s: its meters are off (above): figures that rest on spans are not to be used",
                        api->name);
    return status;
}
