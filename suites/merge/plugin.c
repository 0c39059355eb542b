#include "harness/base/claims.h"
#include "harness/base/registry.h"
#include "harness/base/surroundings.h"
#include "harness/base/why.h"
#include "harness/engine/child.h"
#include "harness/engine/plugin.h"
#include "suites/merge/stage.h"
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
    enum { ASK, MERGE, STAGE, ATTEND, MERGE_STATES } op;
    struct answer answer;   /* of ASK */
    struct ha_batch *batch; /* of MERGE */
    struct {
        const struct ha_merge_case *c;
        enum ha_form form;
        enum ha_dtype dtype;
        uint64_t seed;
        struct ha_judgement j;
        struct ha_why why;
    } stage;
    /* ATTEND, MERGE_STATES: all that the arguments point to lies in [begin, end), in one piece; what is written, from
     * `out` on */
    union {
        struct ha_device_attend attend;
        struct ha_merge merge;
    } args;
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

/* ---- the arrays of arguments ------------------------------------------------------------- */

/* What an array becomes that the arguments point to. */
typedef void *move_array(void *arg, const void *array, size_t bytes);

/* rows of all KV heads, from the first to the end of the last */
static size_t rows_bytes(const struct ha_device_attend *a, const struct ha_rows *r, size_t stride, size_t head)
{
    return r->keys ? (a->kv_heads - 1) * head + (r->keys - 1) * stride + a->head_dim * ha_dtype_bytes(a->dtype) : 0;
}

/* Those of a's sequences: read are q, then k and v of each run, written are o, LSE, and weights where they are asked
 * for. */
static void attend_arrays(const struct ha_device_attend *a, struct ha_device_seq *seqs, bool written, move_array *move,
                          void *arg)
{
    const size_t lse = a->q_len * a->q_heads * sizeof(float), o = lse * a->head_dim;
    for (struct ha_device_seq *s = seqs; s < seqs + a->batch; s++) {
        if (written) {
            s->o = move(arg, s->o, o);
            s->lse = move(arg, s->lse, lse);
            if (s->weights) s->weights = move(arg, s->weights, a->q_heads * s->weights_stride * sizeof(float));
            continue;
        }
        s->q = move(arg, s->q, o);
        for (struct ha_rows *r = s->runs; r < s->runs + s->runs_count; r++) {
            r->k = move(arg, r->k, rows_bytes(a, r, r->k_stride_bytes, s->k_head_bytes));
            r->v = move(arg, r->v, rows_bytes(a, r, r->v_stride_bytes, s->v_head_bytes));
        }
    }
}

/* Those of one state, from its first element to its last. */
static void state_arrays(const struct ha_merge *m, struct ha_merge_state *s, bool result, move_array *move, void *arg)
{
    if (!m->tokens || !m->heads) return;
    const size_t o = (m->tokens - 1) * s->o_token_stride + (m->heads - 1) * s->o_head_stride + m->dim,
                 lse = (m->tokens - 1) * s->lse_token_stride + (m->heads - 1) * s->lse_head_stride + 1;
    s->o = move(arg, s->o, o * ha_merge_o_bytes(m, result));
    s->lse = move(arg, s->lse, lse * sizeof(float));
    if (s->sum) s->sum = move(arg, s->sum, lse * sizeof(float));
}

/* ---- in the child ------------------------------------------------------------------------ */

/* Called once in a process. */
static enum ha_status load(struct plugin *p, struct ha_why *why)
{
    static struct ha_kernels kernels;
    if (p->api) return HA_OK;
    const struct ha_device_api *api;
    ha_surroundings_keep();
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
static enum ha_status plugin_judge(enum ha_status st, const char *entry, struct ha_why *why)
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
    for (size_t i = 0; i < batch->calls_count; i++)
        HA_TRY(plugin_judge(p->api->merge(NULL, &batch->calls[i]), "merge", why));
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

/* Enqueues the operation, whose arguments lie in the request, on a device that has them at `there`. */
static enum ha_status enqueue(const struct plugin *p, const struct request *r, struct ha_stream *stream,
                              unsigned char *there)
{
    struct move to = { r->begin, there };
    enum ha_status st = HA_ERROR;
    if (r->op == ATTEND) {
        struct ha_device_attend a = r->args.attend;
        struct ha_device_seq *seqs = malloc(a.batch * sizeof *seqs);
        if (!seqs) return HA_ERROR;
        memcpy(seqs, a.seqs, a.batch * sizeof *seqs);
        attend_arrays(&a, seqs, false, moved, &to);
        attend_arrays(&a, seqs, true, moved, &to);
        a.seqs = seqs;
        st = p->api->attend(stream, &a);
        free(seqs);
        return st;
    }
    struct ha_merge m = r->args.merge;
    struct ha_merge_state *states = malloc(m.states_count * sizeof *states);
    if (!states) return HA_ERROR;
    memcpy(states, m.states, m.states_count * sizeof *states);
    for (size_t i = 0; i < m.states_count; i++) state_arrays(&m, &states[i], false, moved, &to);
    state_arrays(&m, &m.out, true, moved, &to);
    m.states = states;
    st = p->api->merge(stream, &m);
    free(states);
    return st;
}

/* after: [r->out - r->begin] for the inputs as they are behind the operation */
static enum ha_status run_there(const struct plugin *p, const struct request *r, struct ha_stream *stream,
                                unsigned char *there, unsigned char *after, struct ha_why *why)
{
    const struct ha_device_api *api = p->api;
    const size_t bytes = (size_t)(r->end - r->begin), at = (size_t)(r->out - r->begin);
    enum ha_status st = api->copy(stream, there, r->begin, bytes, HA_H2D);
    if (st == HA_OK) st = enqueue(p, r, stream, there);
    if (st == HA_OK) st = api->copy(stream, r->out, there + at, bytes - at, HA_D2H);
    if (st == HA_OK) st = api->copy(stream, after, there, at, HA_D2H);
    const enum ha_status done = api->stream_sync(stream);
    if (st == HA_OK) st = done;
    if (st == HA_OK && strcmp(api->kind, "null") != 0 && memcmp(after, r->begin, at) != 0)
        return ha_why(why, HA_ERROR, "%s: %s changed its input", api->name, r->op == ATTEND ? "attend" : "merge");
    if (st == HA_OK) return HA_OK;
    const char *failure = api->failure(p->device);
    return ha_why(why, HA_ERROR, "%s: %s", api->name, failure ? failure : "the operation was refused");
}

static enum ha_status run_once(const struct plugin *p, const struct request *r, struct ha_why *why)
{
    const bool attends = r->op == ATTEND;
    if (attends ? !p->api->attend : !p->api->merge)
        return ha_why(why, HA_WAIVED, "it offers no %s", attends ? "attend" : "merge");
    if (!p->device && attends) return plugin_judge(p->api->attend(NULL, &r->args.attend), "attend", why);
    if (!p->device) return plugin_judge(p->api->merge(NULL, &r->args.merge), "merge", why);
    struct ha_stream *stream = NULL;
    void *there = NULL;
    enum ha_status st = p->api->mem_alloc(p->device, HA_MEM_DEVICE, (size_t)(r->end - r->begin), &there, why);
    if (st == HA_OK) st = p->api->stream_create(p->device, "one call", &stream, why);
    unsigned char *after = malloc((size_t)(r->out - r->begin));
    if (st == HA_OK && !after) st = ha_why(why, HA_ERROR, "out of memory");
    if (st == HA_OK) st = run_there(p, r, stream, there, after, why);
    free(after);
    if (stream) p->api->stream_destroy(stream);
    if (there) p->api->mem_free(p->device, HA_MEM_DEVICE, there);
    return st;
}

/* A library's merge as a kernel, which takes no argument that names it, and returns nothing. */
static struct {
    enum ha_status (*merge)(struct ha_stream *stream, const struct ha_merge *args);
    enum ha_status refused; /* the first time; HA_OK: never */
} library;

static void merge_as_kernel(const struct ha_merge *args)
{
    const enum ha_status st = library.merge(NULL, args);
    ha_surroundings_task();
    if (library.refused == HA_OK) library.refused = st;
}

/* A device has its streams, graphs and flags in its own process alone; a library has those of the embedded one. */
static enum ha_status stage(struct plugin *p, struct request *r, struct ha_why *why)
{
    if (!p->api->merge) return ha_why(why, HA_WAIVED, "it offers no merge");
    if (!p->merger.run && p->device) HA_TRY(ha_subject_device(&p->merger, p->api->name, p->api, p->device, why));
    if (!p->merger.run) {
        struct answer is;
        HA_TRY(ask(p, &is));
        ha_subject_direct(&p->merger, is.name, &is.info.merge, merge_as_kernel);
    }
    library.merge = p->api->merge;
    library.refused = HA_OK;
    r->stage.j = (struct ha_judgement){ 0 };
    const enum ha_status st = ha_merge_stage(r->stage.c, &p->merger, r->stage.form, r->stage.dtype, r->stage.seed,
                                             &r->stage.j, &r->stage.why);
    return library.refused == HA_OK ? st : plugin_judge(library.refused, "merge", &r->stage.why);
}

static enum ha_status serve_request(struct plugin *p, struct request *r, struct ha_why *why)
{
    HA_TRY(load(p, why));
    if (r->op == ASK) return ask(p, &r->answer);
    const enum ha_status st = r->op == STAGE   ? stage(p, r, why)
                              : r->op == MERGE ? merge(p, r->batch, why)
                                               : run_once(p, r, why);
    /* what is right, or not offered, is neither on a device that has failed behind it */
    const char *failure = p->device && (st == HA_OK || st == HA_WAIVED) ? p->api->failure(p->device) : NULL;
    return failure ? ha_why(why, HA_ERROR, "%s: %s", p->api->name, failure) : st;
}

static enum ha_status serve(void *self, void *arg, struct ha_why *why)
{
    const enum ha_status st = serve_request(self, arg, why);
    ha_surroundings_restore("it");
    return ha_surroundings_verdict(why) == HA_OK ? st : HA_ERROR;
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

static enum ha_status stage_plugin(struct ha_subject *x, const struct ha_merge_case *c, enum ha_form form,
                                   enum ha_dtype dtype, uint64_t seed, struct ha_judgement *j, struct ha_why *why)
{
    struct plugin *p = x->own;
    struct request *r = p->request;
    r->op = STAGE;
    r->stage.c = c;
    r->stage.form = form;
    r->stage.dtype = dtype;
    r->stage.seed = seed;
    r->stage.why.text[0] = why->text[0] = 0;
    const enum ha_status st = ha_child_call(p->child, r, NULL, NULL, 0, why);
    if (st == HA_ERROR) ha_child_end(p->child);
    if (st == HA_ERROR && (why->text[0] || !r->stage.why.text[0])) return st; /* how it died comes first */
    *why = r->stage.why;
    *j = r->stage.j;
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
    out->stage = stage_plugin;
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

/* ---- attention and merges of any states, asked for in the program ------------------------- */

/* Entries of a device table take no argument that names the plugin: it is kept here. */
static struct {
    struct plugin *plugin;
    struct ha_why why;
    struct ha_device_api api;
} asked;

static size_t up(size_t x, size_t to) { return (x + to - 1) / to * to; }

/* Arrays in one block: measured first (base NULL, and the arrays stay where they are), then put there. */
struct block {
    unsigned char *base, *end;
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

/* An array that was put comes back to where it is the caller's. */
static void *take(void *arg, const void *to, size_t bytes)
{
    struct block *b = arg;
    if (bytes) memcpy((void *)(uintptr_t)to, b->base + b->used, bytes);
    b->used += up(bytes, LINE);
    return (void *)(uintptr_t)to;
}

/* Blocks that were measured get their places. Each ends before a page of its own; a device copies both, that page and
 * all, and is not guarded. */
static enum ha_status place(const struct plugin *p, struct block *in, struct block *out)
{
    const size_t in_bytes = up(in->used, PAGE), out_bytes = up(out->used, PAGE);
    if (in_bytes + out_bytes + 2 * PAGE > p->room.bytes)
        return ha_why(&asked.why, HA_WAIVED, "no memory for %zu bytes of arguments", in_bytes + out_bytes);
    in->end = p->room.base + in_bytes;
    out->end = in->end + PAGE + out_bytes;
    in->base = in->end - in->used;
    out->base = out->end - out->used;
    in->used = out->used = 0;
    return HA_OK;
}

static enum ha_status call(struct plugin *p, const struct block *in, const struct block *out)
{
    static const char *const all_names[][2] = { { "what attention reads", "what attention writes" },
                                                { "the states", "the merged state" } };
    struct request *r = p->request;
    const char *const *names = all_names[r->op == MERGE_STATES];
    r->begin = in->base;
    r->out = out->base;
    r->end = out->end;
    const struct ha_piece pieces[] = { { in->base, in->end, in->used, false },
                                       { out->base, out->end, out->used, true } };
    const enum ha_status st = ha_child_call(p->child, r, p->is.library ? pieces : NULL, names, 2, &asked.why);
    if (st == HA_ERROR && !p->is.library) ha_child_end(p->child);
    return st;
}

static struct ha_device_seq *put_attend(const struct ha_device_attend *a, struct ha_device_seq *seqs, struct block *in,
                                        struct block *out)
{
    attend_arrays(a, seqs, false, put, in);
    attend_arrays(a, seqs, true, put, out);
    return seqs;
}

static enum ha_status attend_asked(struct ha_stream *stream, const struct ha_device_attend *a)
{
    struct plugin *p = asked.plugin;
    struct request *r = p->request;
    struct block in = { 0 }, out = { 0 };
    const size_t bytes = a->batch * sizeof *a->seqs;
    put(&in, a->seqs, bytes);
    put_attend(a, memcpy(p->room.base, a->seqs, bytes), &in, &out); /* while they are measured */
    HA_TRY(place(p, &in, &out));
    r->op = ATTEND;
    r->args.attend = *a;
    struct ha_device_seq *seqs = put(&in, a->seqs, bytes);
    r->args.attend.seqs = put_attend(a, seqs, &in, &out);
    HA_TRY(call(p, &in, &out));
    out.used = 0;
    attend_arrays(a, memcpy(seqs, a->seqs, bytes), true, take, &out);
    return HA_OK;
}

static void put_merge(struct ha_merge *m, struct ha_merge_state *states, struct block *in, struct block *out)
{
    for (size_t i = 0; i < m->states_count; i++) state_arrays(m, &states[i], false, put, in);
    state_arrays(m, &m->out, true, put, out);
    m->states = states;
}

static enum ha_status merge_asked(struct ha_stream *stream, const struct ha_merge *args)
{
    struct plugin *p = asked.plugin;
    struct request *r = p->request;
    struct block in = { 0 }, out = { 0 };
    struct ha_merge m = *args;
    const size_t bytes = m.states_count * sizeof *m.states;
    put(&in, args->states, bytes);
    put_merge(&m, memcpy(p->room.base, args->states, bytes), &in, &out); /* while they are measured */
    HA_TRY(place(p, &in, &out));
    m = *args;
    put_merge(&m, put(&in, args->states, bytes), &in, &out);
    r->op = MERGE_STATES;
    r->args.merge = m;
    HA_TRY(call(p, &in, &out));
    out.used = 0;
    m = *args;
    state_arrays(&m, &m.out, true, take, &out);
    return HA_OK;
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
        .merge = p->is.merges ? merge_asked : NULL,
    };
    return &asked.api;
}
