#include "suites/merge/plugin_parts.h"

#include "harness/base/try.h"
#include "harness/base/why.h"
#include "harness/base/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Called once in a process. */
static enum ha_status load(struct ha_plugin *p, struct ha_why *why)
{
    static struct ha_kernels kernels;
    if (p->api) return HA_OK;
    const struct ha_device_api *api;
    HA_TRY(ha_plugin_load(p->path, &api, why));
    if (!ha_plugin_merges_only(api)) {
        HA_TRY(ha_kernels_resolve(NULL, &kernels, why));
        HA_TRY(api->open(&p->device, &(struct ha_device_config){ .kernels = &kernels, .wait_limit_ns = p->limit_ns },
                         why));
    }
    p->api = api;
    return HA_OK;
}

static enum ha_status ask(const struct ha_plugin *p, struct ha_plugin_answer *is)
{
    const struct ha_device_api *api = p->api;
    memset(is, 0, sizeof *is);
    api->info(p->device, &is->info);
    is->library = ha_plugin_merges_only(api);
    is->merges = api->merge != NULL;
    is->attends = api->attend != NULL;
    is->null = !strcmp(api->kind, "null");
    snprintf(is->name, sizeof is->name, "%s", api->name);
    return HA_OK;
}

/* What an entry of the plugin returned, as a verdict: where it returns an error it has refused the batch. */
static enum ha_status judge(enum ha_status st, const char *entry, struct ha_why *why)
{
    static const char *const name[] = { "HA_OK", "HA_FAIL", "HA_WAIVED", "HA_ERROR" };
    const int code = (int)st;
    if (code < HA_OK || code > HA_ERROR)
        return ha_why(why, HA_ERROR, "%s returned %d, which is no status", entry, code);
    if (st == HA_OK) return HA_OK;
    return ha_why(why, st == HA_WAIVED ? HA_WAIVED : HA_FAIL, "refused: %s returned %s", entry, name[code]);
}

static enum ha_status merge(struct ha_plugin *p, struct ha_batch *batch, struct ha_why *why)
{
    if (!p->api->merge) return ha_why(why, HA_WAIVED, "it offers no merge");
    if (p->device) {
        struct ha_room unused;
        const size_t bytes = (size_t)(batch->end - batch->begin);
        if (!p->merger.run) HA_TRY(ha_subject_device(&p->merger, p->api->name, p->api, p->device, why));
        HA_TRY(p->merger.room(&p->merger, bytes, &unused, why)); /* makes it have memory of that size */
        return p->merger.run(&p->merger, batch, why);
    }
    for (size_t i = 0; i < batch->calls_count; i++) HA_TRY(judge(p->api->merge(NULL, &batch->calls[i]), "merge", why));
    return HA_OK;
}

struct move {
    const unsigned char *from;
    unsigned char *to;
};

/* the array where the block that holds it lies elsewhere */
static void *moved(void *arg, const void *array, size_t bytes)
{
    const struct move *m = arg;
    (void)bytes;
    return m->to + ((const unsigned char *)array - m->from);
}

static enum ha_status attend_there(struct ha_plugin *p, const struct ha_plugin_request *r, struct ha_stream *stream,
                                   unsigned char *there, struct ha_device_seq *seqs, struct ha_why *why)
{
    const struct ha_device_api *api = p->api;
    struct ha_device_attend args = r->attend;
    const size_t bytes = (size_t)(r->end - r->begin), at = (size_t)(r->out - r->begin);
    memcpy(seqs, args.seqs, args.batch * sizeof *seqs);
    ha_plugin_arrays(&args, seqs, false, moved, &(struct move){ r->begin, there });
    ha_plugin_arrays(&args, seqs, true, moved, &(struct move){ r->begin, there });
    args.seqs = seqs;
    enum ha_status st = api->copy(stream, there, r->begin, bytes, HA_H2D);
    if (st == HA_OK) st = api->attend(stream, &args);
    if (st == HA_OK) st = api->copy(stream, r->out, there + at, bytes - at, HA_D2H);
    const enum ha_status done = api->stream_sync(stream);
    if (st == HA_OK) st = done;
    if (st == HA_OK) return HA_OK;
    const char *failure = api->failure(p->device);
    return ha_why(why, HA_ERROR, "%s: %s", api->name, failure ? failure : "attend was refused");
}

static enum ha_status attend(struct ha_plugin *p, const struct ha_plugin_request *r, struct ha_why *why)
{
    if (!p->api->attend) return ha_why(why, HA_WAIVED, "it offers no attend");
    if (!p->device) return judge(p->api->attend(NULL, &r->attend), "attend", why);
    struct ha_stream *stream = NULL;
    void *there = NULL;
    struct ha_device_seq *seqs = malloc(r->attend.batch * sizeof *seqs);
    enum ha_status st = seqs ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
    if (st == HA_OK) st = p->api->mem_alloc(p->device, HA_MEM_DEVICE, (size_t)(r->end - r->begin), &there, why);
    if (st == HA_OK) st = p->api->stream_create(p->device, "attend", &stream, why);
    if (st == HA_OK) st = attend_there(p, r, stream, there, seqs, why);
    if (stream) p->api->stream_destroy(stream);
    if (there) p->api->mem_free(p->device, HA_MEM_DEVICE, there);
    free(seqs);
    return st;
}

enum ha_status ha_plugin_serve(void *self, void *arg, struct ha_why *why)
{
    struct ha_plugin *p = self;
    struct ha_plugin_request *r = arg;
    HA_TRY(load(p, why));
    switch (r->op) {
    case HA_PLUGIN_ASK: return ask(p, &r->answer);
    case HA_PLUGIN_MERGE: return merge(p, r->batch, why);
    case HA_PLUGIN_ATTEND: return attend(p, r, why);
    }
    return HA_ERROR;
}
