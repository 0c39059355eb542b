#include "harness/run/probe.h"

#include "harness/base/clock.h"
#include "harness/base/csv.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"
#include "harness/measure/ceilings.h"
#include "harness/report/env.h"
#include "harness/measure/meter.h"
#include "harness/run/session.h"
#include "harness/measure/timeline.h"
#include "harness/base/try.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* ---- the meters against what is known ----------------------------------------------------- */

struct calibration {
    const struct ha_device_api *api;
    struct ha_device *device;
    struct ha_device_arena *arena;
    struct ha_stream *stream;
    struct ha_timeline *timeline;
    unsigned char *pinned, *memory;
};
enum { COPIES = 64, COPY_BYTES = 1 << 20 };

static enum ha_status traced(struct calibration *c, enum ha_status (*work)(struct calibration *c), struct ha_usage *usage, struct ha_why *why)
{
    struct ha_interval window;

    ha_timeline_clear(c->timeline);
    c->api->trace(c->device, ha_timeline_sink(c->timeline, HA_FROM_DEVICE));
    window.begin_ns = ha_now_ns();
    enum ha_status status = work(c);
    if (status == HA_OK) status = c->api->stream_sync(c->stream);
    window.end_ns = ha_now_ns();
    c->api->trace(c->device, NULL);
    if (status != HA_OK) {
        const char *failure = c->api->failure(c->device);
        return ha_why(why, HA_ERROR, "calibration: %s", failure ? failure : "an operation failed");
    }
    *usage = (struct ha_usage){ 0 };
    return ha_timeline_measure(c->timeline, window, usage, why);
}

static enum ha_status work_nothing(struct calibration *c)
{
    struct timespec t = { .tv_nsec = 20000000 };

    (void)c;
    nanosleep(&t, NULL);
    return HA_OK;
}

static enum ha_status work_copies(struct calibration *c)
{
    const struct ha_device_api *metered = ha_meter_wrap(c->api);

    ha_meter_take();
    for (int i = 0; i < COPIES; i++) {
        HA_TRY(metered->copy(c->stream, c->memory, c->pinned, COPY_BYTES, HA_H2D));
        HA_TRY(metered->copy(c->stream, c->pinned, c->memory, COPY_BYTES / 2, HA_D2H));
    }
    return HA_OK;
}

/* One stream: what the spans say was busy cannot exceed what the clock says, and copies back to back leave little idle. */
static enum ha_status calibrate(struct calibration *c, bool *ok, struct ha_why *why)
{
    struct ha_usage empty, copies;
    double h2d = (double)COPIES * COPY_BYTES, d2h = h2d / 2;

    HA_TRY(ha_device_arena_create(&c->arena, c->api, c->device, why));
    HA_TRY(ha_timeline_create(&c->timeline, why));
    HA_TRY(c->api->stream_create(c->device, "calibrate", &c->stream, why));
    c->pinned = ha_device_alloc(c->arena, HA_MEM_PINNED, COPY_BYTES, HA_TAG_SCRATCH, why);
    c->memory = c->pinned ? ha_device_alloc(c->arena, HA_MEM_DEVICE, COPY_BYTES, HA_TAG_SCRATCH, why) : NULL;
    if (!c->memory) return HA_ERROR;
    memset(c->pinned, 1, COPY_BYTES);
    HA_TRY(traced(c, work_nothing, &empty, why));
    HA_TRY(traced(c, work_copies, &copies, why));
    struct ha_meter_count counted = ha_meter_take();
    bool window_ok = empty.device_ns == 0;
    bool meter_ok = (double)counted.h2d_bytes == h2d && (double)counted.d2h_bytes == d2h;
    bool spans_ok = fabs(copies.h2d_bytes / h2d - 1) <= 1e-3 && fabs(copies.d2h_bytes / d2h - 1) <= 1e-3;
    printf("\nmeters\n");
    printf("  %-34s %s: %.3f ms busy of %.1f\n", "empty window", window_ok ? "ok" : "WRONG", (double)empty.device_ns / 1e6, (double)empty.wall_ns / 1e6);
    printf("  %-34s %s: %.0f of %.0f\n", "bytes counted at the copies", meter_ok ? "ok" : "WRONG", (double)(counted.h2d_bytes + counted.d2h_bytes), h2d + d2h);
    printf("  %-34s %s: %.0f of %.0f\n", "bytes in the spans", spans_ok ? "ok" : "WRONG", copies.h2d_bytes + copies.d2h_bytes, h2d + d2h);
    *ok = window_ok && meter_ok && spans_ok;
    return HA_OK;
}

static enum ha_status check_meters(const struct ha_device_api *api, struct ha_device *device, struct ha_why *why)
{
    struct calibration c = { .api = api, .device = device };
    bool ok = false;
    enum ha_status status = calibrate(&c, &ok, why);

    if (c.stream) api->stream_destroy(c.stream);
    ha_device_arena_destroy(c.arena);
    ha_timeline_destroy(c.timeline);
    if (status == HA_OK && !ok) status = ha_why(why, HA_ERROR, "device %s: its meters are off (above): figures that rest on spans are not to be used", api->name);
    return status;
}

/* ---- what is written ----------------------------------------------------------------------- */

static void print(const struct ha_ceilings *c)
{
    printf("%-36s %12s %12s %12s  %s\n", "ceiling", "median", "least", "most", "unit");
    for (int i = 0; i < HA_CEILINGS; i++) {
        const struct ha_reading *r = &c->of[i];
        if (isnan(r->median)) printf("%-36s %12s\n", ha_ceiling_name((enum ha_ceiling)i), "-");
        else printf("%-36s %12.1f %12.1f %12.1f  %s\n", ha_ceiling_name((enum ha_ceiling)i), r->median, r->lo, r->hi, ha_ceiling_unit((enum ha_ceiling)i));
    }
}

static enum ha_status write_rows(struct ha_csv *csv, const struct ha_ceilings *c, struct ha_why *why)
{
    static const char *const header[] = { "schema_version", "ceiling", "unit", "median", "lo", "hi", "samples" };
    enum { FIELDS = sizeof header / sizeof *header };

    HA_TRY(ha_csv_row(csv, header, FIELDS, why));
    for (int i = 0; i < HA_CEILINGS; i++) {
        char number[4][32];
        const double x[4] = { c->of[i].median, c->of[i].lo, c->of[i].hi, (double)c->of[i].samples };
        for (int j = 0; j < 4; j++) ha_csv_number(number[j], x[j]);
        const char *const row[FIELDS] = { "1", ha_ceiling_name((enum ha_ceiling)i), ha_ceiling_unit((enum ha_ceiling)i),
                                          number[0], number[1], number[2], number[3] };
        HA_TRY(ha_csv_row(csv, row, FIELDS, why));
    }
    return HA_OK;
}

static enum ha_status write_csv(const char *folder, const struct ha_ceilings *c, struct ha_why *why)
{
    char path[4096];
    struct ha_csv *csv;

    if (snprintf(path, sizeof path, "%s/probe.csv", folder) >= (int)sizeof path) return ha_why(why, HA_ERROR, "%s: the path is too long", folder);
    /* a probe says how the machine is now */
    remove(path);
    HA_TRY(ha_csv_open(&csv, path, why));
    enum ha_status status = write_rows(csv, c, why), closed = ha_csv_close(csv, status == HA_OK ? why : NULL);
    return status == HA_OK ? closed : status;
}

static enum ha_status probe(struct ha_machine *machine, const char *device, const char *out_dir, struct ha_why *why)
{
    struct ha_device_info info;
    struct ha_ceilings ceilings;
    const struct ha_device_api *api;
    struct ha_device *dev;
    struct ha_env env;

    HA_TRY(ha_machine_device(machine, device, NULL, &api, &dev, why));
    api->info(dev, &info);
    ha_env_read(&env);
    HA_TRY(ha_ceilings_measure(&ceilings, api, dev, false, why));
    ha_env_print(stdout, &env, api, &info, NULL);
    putchar('\n');
    print(&ceilings);
    enum ha_status status = check_meters(api, dev, why);
    if (!out_dir) return status;
    if (mkdir(out_dir, 0777) && errno != EEXIST) return ha_why(why, HA_ERROR, "%s: cannot make the folder: %s", out_dir, strerror(errno));
    HA_TRY(ha_env_write(out_dir, &env, api, &info, &ceilings, why));
    HA_TRY(write_csv(out_dir, &ceilings, why));
    return status;
}

enum ha_status ha_probe(const char *device, const char *out_dir, struct ha_why *why)
{
    struct ha_machine *machine;

    HA_TRY(ha_machine_create(&machine, why));
    enum ha_status status = probe(machine, device ? device : "host", out_dir, why);
    ha_machine_destroy(machine);
    return status;
}
