#include "suites/merge/plugin_parts.h"

#include "harness/base/try.h"
#include "harness/base/why.h"
#include "harness/base/words.h"
#include "suites/merge/traits.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Address space for a batch: the largest has strides of more than 2^32 elements. */
static const size_t ROOM_MOST = (size_t)48 << 30, ROOM_LEAST = (size_t)64 << 20;
/* The memory of a batch larger than this is given back after the call. */
static const size_t ROOM_KEPT = (size_t)256 << 20;

static enum ha_status room_plugin(struct ha_subject *x, size_t bytes, struct ha_room *room, struct ha_why *why)
{
    struct ha_plugin *p = x->own;
    if (p->used > ROOM_KEPT) madvise(p->room.base, p->used, MADV_REMOVE);
    if (bytes > p->room.bytes)
        return ha_why(why, HA_WAIVED, "no memory: %.1f GiB of addresses are wanted, and %.1f are reserved",
                      (double)bytes * 0x1p-30, (double)p->room.bytes * 0x1p-30);
    p->used = bytes;
    *room = p->room;
    return HA_OK;
}

static enum ha_status run_plugin(struct ha_subject *x, struct ha_batch *batch, struct ha_why *why)
{
    struct ha_plugin *p = x->own;
    p->request->op = HA_PLUGIN_MERGE;
    p->request->batch = batch;
    /* a device copies the whole block, guards and all, and merges in memory of its own */
    const enum ha_status st = ha_child_call(p->child, p->request, p->is.library ? batch->piece : NULL, ha_piece_names,
                                            HA_PIECES, why);
    if (st == HA_ERROR && !p->is.library)
        ha_child_end(p->child); /* a device that failed once may fail in every later call */
    return st;
}

static void close_plugin(struct ha_subject *x)
{
    struct ha_plugin *p = x->own;
    ha_child_destroy(p->child);
    free(p);
}

static enum ha_status profile_check(const struct ha_profile *p, struct ha_why *why)
{
    if (!p->dot_lanes || !p->sum_lanes)
        return ha_why(why, HA_ERROR, "its profile: %s is 0; did info() fill in profile?",
                      p->dot_lanes ? "sum_lanes" : "dot_lanes");
    const bool sane = p->exp_eps >= 0 && p->exp_eps <= HA_EPS_MAX && p->log_eps >= 0 && p->log_eps <= HA_EPS_MAX;
    return sane ? HA_OK
                : ha_why(why, HA_ERROR, "its profile: exp_eps is %g and log_eps %g, not from 0 to %g", p->exp_eps,
                         p->log_eps, HA_EPS_MAX);
}

/* What the plugin says of itself. It is an error where that cannot be true. */
static enum ha_status introduce(struct ha_subject *out, struct ha_plugin *p, struct ha_why *why)
{
    struct ha_merge_traits traits = { 0 };
    char name[64];
    p->request->op = HA_PLUGIN_ASK;
    HA_TRY(ha_child_call(p->child, p->request, NULL, NULL, 0, why));
    memcpy(&p->is, &p->request->answer, sizeof p->is);
    const struct ha_device_info *info = &p->is.info;
    if (!memchr(info->name, '\0', sizeof info->name))
        return ha_why(why, HA_ERROR, "info() gives a name that does not end within its %zu bytes", sizeof info->name);
    if (p->is.merges) {
        HA_TRY(ha_traits_check(&info->merge, why));
        traits = info->merge;
    }
    for (size_t t = 0; p->is.attends && t < HA_DTYPE_COUNT; t++) HA_TRY(profile_check(&info->profile[t], why));
    ha_subject_name(p->is.name, name);
    ha_subject_describe(out, name, &traits);
    out->room = room_plugin;
    out->run = run_plugin;
    out->close = close_plugin;
    out->own = p;
    out->elsewhere = !p->is.library;
    out->null = p->is.null;
    return HA_OK;
}

_Static_assert(sizeof(struct ha_plugin_request) <= HA_PLUGIN_REQUEST_BYTES, "the room begins with it");

static enum ha_status child_make(struct ha_plugin *p, struct ha_why *why)
{
    const struct ha_child_work work = { .serve = ha_plugin_serve, .self = p, .limit_ns = p->limit_ns };
    size_t bytes = ROOM_MOST;
    enum ha_status st = ha_child_create(&p->child, &work, bytes, why);
    while (st != HA_OK && (bytes /= 2) >= ROOM_LEAST) st = ha_child_create(&p->child, &work, bytes, why);
    if (st != HA_OK) return st;
    const struct ha_room all = ha_child_room(p->child);
    p->request = (void *)all.base;
    p->room = (struct ha_room){ all.base + HA_PLUGIN_REQUEST_BYTES, all.bytes - HA_PLUGIN_REQUEST_BYTES };
    return HA_OK;
}

enum ha_status ha_subject_plugin(struct ha_subject *out, const char *path, uint64_t limit_ns, struct ha_why *why)
{
    *out = (struct ha_subject){ 0 };
    struct ha_plugin *p = calloc(1, sizeof *p);
    if (!p) return ha_why(why, HA_ERROR, "out of memory");
    p->limit_ns = limit_ns;
    enum ha_status st = ha_plugin_find(path, p->path, why);
    if (st == HA_OK) st = child_make(p, why);
    if (st == HA_OK) st = introduce(out, p, why);
    if (st == HA_OK) return HA_OK;
    if (!why || !strstr(why->text, p->path)) ha_why_prefix(why, st, "%s", p->path);
    ha_child_destroy(p->child);
    free(p);
    return st;
}
