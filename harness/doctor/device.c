/* What a device says of itself, and what its meters say while it copies and reads. */

#include "harness/doctor/doctor.h"

#include "harness/base/clock.h"
#include "harness/base/why.h"
#include "harness/doctor/files.h"
#include "harness/measure/ceilings.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <time.h>

/* One stream with memory on both sides of the link; a part that could not be made is NULL. */
struct bench {
    const struct ha_device_api *api;
    struct ha_device *device;
    struct ha_stream *stream;
    void *memory, *pinned, *sum;
    size_t bytes;
};

static void close_bench(struct bench *b)
{
    if (b->stream) b->api->stream_destroy(b->stream);
    if (b->memory) b->api->mem_free(b->device, HA_MEM_DEVICE, b->memory);
    if (b->sum) b->api->mem_free(b->device, HA_MEM_DEVICE, b->sum);
    if (b->pinned) b->api->mem_free(b->device, HA_MEM_PINNED, b->pinned);
}

static enum ha_status open_bench(struct bench *b, struct ha_why *why)
{
    const struct ha_device_api *api = b->api;
    HA_TRY(api->mem_alloc(b->device, HA_MEM_DEVICE, b->bytes, &b->memory, why));
    HA_TRY(api->mem_alloc(b->device, HA_MEM_DEVICE, 256, &b->sum, why));
    HA_TRY(api->mem_alloc(b->device, HA_MEM_PINNED, b->bytes, &b->pinned, why));
    memset(b->pinned, 0, b->bytes);
    return api->stream_create(b->device, "doctor", &b->stream, why);
}

/* A copy over the link and, where there is one, a read of what it wrote. */
static bool enqueue(const struct bench *b)
{
    if (b->api->copy(b->stream, b->memory, b->pinned, b->bytes, HA_H2D) != HA_OK) return false;
    return !b->api->read || b->api->read(b->stream, b->memory, b->bytes, b->sum) == HA_OK;
}

static bool timed(const struct bench *b, size_t count, double *ns)
{
    const uint64_t begin = ha_now_ns();
    bool done = true;
    for (size_t i = 0; i < count && done; i++) done = enqueue(b);
    done = b->api->stream_sync(b->stream) == HA_OK && done;
    *ns = fmax(1, (double)(ha_now_ns() - begin));
    return done;
}

static void read_link(const char *root, struct ha_doctor_device *out)
{
    out->link_width = (double)NAN;
    *out->link_speed = 0;
    if (!*out->bus_id) return;
    ha_file_word(out->link_speed, sizeof out->link_speed, root, "/sys/bus/pci/devices/%s/current_link_speed",
                 out->bus_id);
    ha_file_number(&out->link_width, root, "/sys/bus/pci/devices/%s/current_link_width", out->bus_id);
}

/* The link wakes up and clocks rise in the first part; then the meters are read while copies are still queued. */
static bool run(const char *root, const struct bench *b, struct ha_doctor_device *out)
{
    enum { READINGS = 4, MOST = 4096 };
    const double warm_ns = 300e6, burst_ns = 100e6;
    double one_ns, spent_ns = 0;
    if (!timed(b, 1, &one_ns)) return false;
    while (spent_ns < warm_ns) {
        double ns;
        if (!timed(b, 4, &ns)) return false;
        one_ns = fmin(one_ns, ns / 4);
        spent_ns += fmax(ns, warm_ns / MOST);
    }
    const size_t count = (size_t)fmin(MOST, 1 + burst_ns / one_ns);
    for (int i = 0; i < READINGS; i++) {
        size_t queued = 0;
        while (queued < count && enqueue(b)) queued++;
        ha_condition_end(&out->condition, b->api, b->device, 1);
        if (i == READINGS - 1) {
            out->meters = ha_meters_read(b->api, b->device, false);
            read_link(root, out);
        }
        if (b->api->stream_sync(b->stream) != HA_OK || queued < count) return false;
        out->copied += (double)queued;
    }
    return true;
}

static enum ha_status load(const char *root, const struct ha_device_api *api, struct ha_device *device,
                           struct ha_doctor_device *out, struct ha_why *why)
{
    /* a device that computes on the host is slow; one that is full has no room for more */
    const size_t most = out->info.compute_threads ? (size_t)1 << 20 : (size_t)64 << 20;
    const size_t room = (size_t)(out->info.memory_free_bytes / 4 / 4096 * 4096);
    struct bench b = { .api = api, .device = device, .bytes = room < most ? room : most };
    out->meters = ha_meters_read(api, device, false);
    read_link(root, out);
    if (!b.bytes) return HA_OK;
    enum ha_status status = open_bench(&b, why);
    ha_condition_begin(&out->condition, api, device);
    if (status == HA_OK && !run(root, &b, out)) {
        const char *failure = api->failure(device);
        status = ha_why(why, HA_ERROR, "%.300s", failure ? failure : "a copy to it failed");
    }
    close_bench(&b);
    return status;
}

/* "00000000:1B:00.0" of a driver is "0000:1b:00.0" in /sys */
static void bus_id_of(const struct ha_device_meters *m, char *out, size_t size)
{
    enum { DOMAIN = 4, REST = 8 };
    const char *from = m->bus_id, *colon = strchr(from, ':');
    if (colon && colon - from > DOMAIN) from = colon - DOMAIN;
    snprintf(out, size, "%s", from);
    for (char *at = out; *at; at++) *at = (char)tolower((unsigned char)*at);
    if (!colon || strlen(out) != DOMAIN + REST || strspn(out, "0123456789abcdef:.") != strlen(out)) *out = 0;
}

/* The driver's window in which it counts how busy a device was is up to a second long, and opening it was work. */
static void let_pass(void)
{
    const struct timespec window = { 1, 200000000 };
    nanosleep(&window, NULL);
}

enum ha_status ha_doctor_device_look(const char *root, const struct ha_device_api *api, struct ha_device *device,
                                     struct ha_doctor_device *out, struct ha_why *why)
{
    *out = (struct ha_doctor_device){ .condition = ha_condition_none(), .meters = ha_device_meters_none(false) };
    snprintf(out->kind, sizeof out->kind, "%s", api->kind);
    api->info(device, &out->info);
    const struct ha_device_meters idle = ha_meters_read(api, device, false);
    bus_id_of(&idle, out->bus_id, sizeof out->bus_id);
    if (api->facts) {
        if (*out->bus_id) let_pass();
        out->facts = api->facts(device, out->fact, HA_DEVICE_FACTS_MOST);
        if (out->facts > HA_DEVICE_FACTS_MOST) out->facts = HA_DEVICE_FACTS_MOST;
    }
    for (size_t i = 0; i < out->facts; i++) { /* a plugin's texts need not end */
        out->fact[i].name[sizeof out->fact[i].name - 1] = 0;
        out->fact[i].value[sizeof out->fact[i].value - 1] = 0;
    }
    return load(root, api, device, out, why);
}
