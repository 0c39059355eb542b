#include "harness/base/claims.h"
#include "harness/base/registry.h"
#include "harness/base/why.h"
#include "harness/engine/child.h"
#include "harness/engine/plugin.h"
#include "suites/merge/subject.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, LINE = 64, REQUEST_BYTES = PAGE }; /* the first of the room; the batch follows */

/* What a plugin says of itself. */
struct answer {
    bool library, merges, attends, null; /* null: a device of that kind */
    char name[64];
    struct ha_device_info info;
};

/* Lies in the room. */
struct request {
    enum { ASK, MERGE, ATTEND } op;
    struct answer answer;   /* of ASK */
    struct ha_batch *batch; /* of MERGE */
    /* ATTEND: all that args point to lies in [begin, end), in one piece; what is written, from `out` on */
    struct ha_device_attend attend;
    unsigned char *begin, *out, *end;
};

_Static_assert(sizeof(struct request) <= REQUEST_BYTES, "the room begins with it");

struct plugin {
    char path[HA_PLUGIN_PATH_MAX];
    uint64_t limit_ns;
    struct ha_child *child;
    struct request *request;
    struct ha_room room; /* behind the request */
    size_t used;         /* of it, by the last batch */
    struct answer is;
    /* in the child alone */
    const struct ha_device_api *api;
    struct ha_device *device;
    struct ha_subject merger; /* of the device */
};

/* ---- attention: the arrays of its arguments ---------------------------------------------- */

/* rows of all KV heads, from the first to the end of the last */
static size_t rows_bytes(const struct ha_device_attend *a, const struct ha_rows *r, size_t stride, size_t head)
{
    return r->keys ? (a->kv_heads - 1) * head + (r->keys - 1) * stride + a->head_dim * ha_dtype_bytes(a->dtype) : 0;
}

static size_t o_bytes(const struct ha_device_attend *a) { return a->q_len * a->q_heads * a->head_dim * sizeof(float); }
static size_t lse_bytes(const struct ha_device_attend *a) { return a->q_len * a->q_heads * sizeof(float); }
static size_t weights_bytes(const struct ha_device_attend *a, const struct ha_device_seq *s)
{
    return s->weights ? a->q_heads * s->weights_stride * sizeof(float) : 0;
}

/* Each array that seqs, those of a, point to becomes what `move` makes of it: those that are read (of a sequence q,
 * then k and v of each run), or those that are written (o, LSE, and weights where they are asked for). */
static void each_array(const struct ha_device_attend *a, struct ha_device_seq *seqs, bool written,
                       void *(*move)(void *arg, const void *array, size_t bytes), void *arg)
{
    for (struct ha_device_seq *s = seqs; s < seqs + a->batch; s++) {
        if (written) {
            s->o = move(arg, s->o, o_bytes(a));
            s->lse = move(arg, s->lse, lse_bytes(a));
            if (s->weights) s->weights = move(arg, s->weights, weights_bytes(a, s));
            continue;
        }
        s->q = move(arg, s->q, o_bytes(a));
        for (struct ha_rows *r = s->runs; r < s->runs + s->runs_count; r++) {
            r->k = move(arg, r->k, rows_bytes(a, r, r->k_stride_bytes, s->k_head_bytes));
            r->v = move(arg, r->v, rows_bytes(a, r, r->v_stride_bytes, s->v_head_bytes));
        }
    }
}

/* ---- in the child ------------------------------------------------------------------------ */

/* Called once in a process. */
static enum ha_status load(struct plugin *p, struct ha_why *why)
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

static enum ha_status ask(const struct plugin *p, struct answer *is)
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

static enum ha_status merge(struct plugin *p, struct ha_batch *batch, struct ha_why *why)
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
    return m->to + ((const unsigned char *)array - m->from);
}

static enum ha_status attend_there(struct plugin *p, const struct request *r, struct ha_stream *stream,
                                   unsigned char *there, struct ha_device_seq *seqs, struct ha_why *why)
{
    const struct ha_device_api *api = p->api;
    struct ha_device_attend args = r->attend;
    const size_t bytes = (size_t)(r->end - r->begin), at = (size_t)(r->out - r->begin);
    memcpy(seqs, args.seqs, args.batch * sizeof *seqs);
    each_array(&args, seqs, false, moved, &(struct move){ r->begin, there });
    each_array(&args, seqs, true, moved, &(struct move){ r->begin, there });
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

static enum ha_status attend(struct plugin *p, const struct request *r, struct ha_why *why)
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

static enum ha_status serve(void *self, void *arg, struct ha_why *why)
{
    struct plugin *p = self;
    struct request *r = arg;
    HA_TRY(load(p, why));
    if (r->op == ASK) return ask(p, &r->answer);
    return r->op == MERGE ? merge(p, r->batch, why) : attend(p, r, why);
}

/* ---- in the program ---------------------------------------------------------------------- */

/* Address space for a batch: the largest has strides of more than 2^32 elements. */
static const size_t ROOM_MOST = (size_t)48 << 30, ROOM_LEAST = (size_t)64 << 20;
/* The memory of a batch larger than this is given back after the call. */
static const size_t ROOM_KEPT = (size_t)256 << 20;

static enum ha_status room_plugin(struct ha_subject *x, size_t bytes, struct ha_room *room, struct ha_why *why)
{
    struct plugin *p = x->own;
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
    struct plugin *p = x->own;
    p->request->op = MERGE;
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
    struct plugin *p = x->own;
    ha_child_destroy(p->child);
    free(p);
}

/* What the plugin says of itself. It is an error where that cannot be true. */
static enum ha_status introduce(struct ha_subject *out, struct plugin *p, struct ha_why *why)
{
    struct ha_merge_traits traits = { 0 };
    char name[64];
    p->request->op = ASK;
    HA_TRY(ha_child_call(p->child, p->request, NULL, NULL, 0, why));
    memcpy(&p->is, &p->request->answer, sizeof p->is);
    const struct ha_device_info *info = &p->is.info;
    if (!memchr(info->name, '\0', sizeof info->name))
        return ha_why(why, HA_ERROR, "info() gives a name that does not end within its %zu bytes", sizeof info->name);
    if (p->is.merges) {
        HA_TRY(ha_traits_check(&info->merge, why));
        traits = info->merge;
    }
    for (size_t t = 0; p->is.attends && t < HA_DTYPE_COUNT; t++)
        HA_TRY(ha_profile_check("profile", &info->profile[t], why));
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

static enum ha_status child_make(struct plugin *p, struct ha_why *why)
{
    const struct ha_child_work work = { .serve = serve, .self = p, .limit_ns = p->limit_ns };
    size_t bytes = ROOM_MOST;
    enum ha_status st = ha_child_create(&p->child, &work, bytes, why);
    while (st != HA_OK && (bytes /= 2) >= ROOM_LEAST) st = ha_child_create(&p->child, &work, bytes, why);
    if (st != HA_OK) return st;
    const struct ha_room all = ha_child_room(p->child);
    p->request = (void *)all.base;
    p->room = (struct ha_room){ all.base + REQUEST_BYTES, all.bytes - REQUEST_BYTES };
    return HA_OK;
}

enum ha_status ha_subject_plugin(struct ha_subject *out, const char *path, uint64_t limit_ns, struct ha_why *why)
{
    *out = (struct ha_subject){ 0 };
    struct plugin *p = calloc(1, sizeof *p);
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

/* ---- attention, asked for in the program ------------------------------------------------- */

/* Entries of a device table take no argument that names the plugin: it is kept here. */
static struct {
    struct plugin *plugin;
    struct ha_why why;
    struct ha_device_api api;
} asked;

static size_t up(size_t x, size_t to) { return (x + to - 1) / to * to; }

/* Arrays in one block: measured first (base NULL, and the arrays stay where they are), then put there. */
struct block {
    unsigned char *base;
    size_t used;
};

static void *put(void *arg, const void *from, size_t bytes)
{
    struct block *b = arg;
    void *at = b->base ? b->base + b->used : (void *)(uintptr_t)from;
    if (b->base && bytes) memcpy(at, from, bytes);
    b->used += up(bytes, LINE);
    return at;
}

static void take_outputs(const struct ha_device_attend *a, const struct ha_device_seq *there)
{
    for (size_t i = 0; i < a->batch; i++) {
        const struct ha_device_seq *s = &a->seqs[i];
        memcpy(s->o, there[i].o, o_bytes(a));
        memcpy(s->lse, there[i].lse, lse_bytes(a));
        if (s->weights) memcpy(s->weights, there[i].weights, weights_bytes(a, s));
    }
}

static enum ha_status attend_asked(struct ha_stream *stream, const struct ha_device_attend *a)
{
    static const char *const names[] = { "what attention reads", "what attention writes" };
    struct plugin *p = asked.plugin;
    struct request *r = p->request;
    struct block in = { NULL, 0 }, out = { NULL, 0 };
    struct ha_device_seq *seqs = (void *)p->room.base; /* while the arrays are measured */
    memcpy(seqs, a->seqs, a->batch * sizeof *seqs);
    put(&in, a->seqs, a->batch * sizeof *seqs);
    each_array(a, seqs, false, put, &in);
    each_array(a, seqs, true, put, &out);
    const size_t in_bytes = up(in.used, PAGE), out_bytes = up(out.used, PAGE);
    if (in_bytes + out_bytes + 2 * PAGE > p->room.bytes)
        return ha_why(&asked.why, HA_WAIVED, "no memory for %zu bytes of arguments", in_bytes + out_bytes);

    /* each ends before a page of its own; a device copies the block, that page and all, and is not guarded */
    unsigned char *const in_end = p->room.base + in_bytes, *const out_end = in_end + PAGE + out_bytes;
    in = (struct block){ in_end - in.used, 0 };
    out = (struct block){ out_end - out.used, 0 };
    seqs = put(&in, a->seqs, a->batch * sizeof *seqs);
    each_array(a, seqs, false, put, &in);
    each_array(a, seqs, true, put, &out);
    r->op = ATTEND;
    r->attend = *a;
    r->attend.seqs = seqs;
    r->begin = in.base;
    r->out = out.base;
    r->end = out_end;
    const struct ha_piece pieces[] = { { in.base, in_end, in.used, false }, { out.base, out_end, out.used, true } };
    const enum ha_status st = ha_child_call(p->child, r, p->is.library ? pieces : NULL, names, 2, &asked.why);
    if (st == HA_OK) take_outputs(a, seqs);
    if (st == HA_ERROR && !p->is.library) ha_child_end(p->child);
    return st;
}

static void info(struct ha_device *dev, struct ha_device_info *out) { *out = asked.plugin->is.info; }

static const char *failure(struct ha_device *dev) { return asked.why.text; }

const struct ha_device_api *ha_plugin_attend(struct ha_subject *x)
{
    struct plugin *p = x->own;
    if (!p->is.attends) return NULL;
    asked.plugin = p;
    asked.why.text[0] = '\0';
    asked.api = (struct ha_device_api){
        .abi = HA_DEVICE_ABI,
        .struct_bytes = sizeof asked.api,
        .name = x->name,
        .kind = "plugin",
        .built_with = "unknown",
        .info = info,
        .failure = failure,
        .attend = attend_asked,
    };
    return &asked.api;
}
