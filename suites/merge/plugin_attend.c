#include "suites/merge/plugin_parts.h"

#include "harness/base/why.h"

#include <string.h>

enum { PAGE = 4096, LINE = 64 };

/* Entries of a device table take no argument that names the plugin: it is kept here. */
static struct {
    struct ha_plugin *plugin;
    struct ha_why why;
    struct ha_device_api api;
} asked;

static size_t up(size_t x, size_t to) { return (x + to - 1) / to * to; }

/* ---- arguments into the room, and results back ------------------------------------------- */

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

void ha_plugin_arrays(const struct ha_device_attend *a, struct ha_device_seq *seqs, bool written,
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

static void take_outputs(const struct ha_device_attend *a, const struct ha_device_seq *there)
{
    for (size_t i = 0; i < a->batch; i++) {
        const struct ha_device_seq *s = &a->seqs[i];
        memcpy(s->o, there[i].o, o_bytes(a));
        memcpy(s->lse, there[i].lse, lse_bytes(a));
        if (s->weights) memcpy(s->weights, there[i].weights, weights_bytes(a, s));
    }
}

/* ---- the table --------------------------------------------------------------------------- */

static enum ha_status attend(struct ha_stream *stream, const struct ha_device_attend *a)
{
    static const char *const names[] = { "what attention reads", "what attention writes" };
    struct ha_plugin *p = asked.plugin;
    struct ha_plugin_request *r = p->request;
    struct block in = { NULL, 0 }, out = { NULL, 0 };
    struct ha_device_seq *seqs = (void *)p->room.base; /* while the arrays are measured */
    (void)stream;
    memcpy(seqs, a->seqs, a->batch * sizeof *seqs);
    put(&in, a->seqs, a->batch * sizeof *seqs);
    ha_plugin_arrays(a, seqs, false, put, &in);
    ha_plugin_arrays(a, seqs, true, put, &out);
    const size_t in_bytes = up(in.used, PAGE), out_bytes = up(out.used, PAGE);
    if (in_bytes + out_bytes + 2 * PAGE > p->room.bytes)
        return ha_why(&asked.why, HA_WAIVED, "no memory for %zu bytes of arguments", in_bytes + out_bytes);

    /* each ends before a page of its own; a device copies the block, that page and all, and is not guarded */
    unsigned char *const in_end = p->room.base + in_bytes, *const out_end = in_end + PAGE + out_bytes;
    in = (struct block){ in_end - in.used, 0 };
    out = (struct block){ out_end - out.used, 0 };
    seqs = put(&in, a->seqs, a->batch * sizeof *seqs);
    ha_plugin_arrays(a, seqs, false, put, &in);
    ha_plugin_arrays(a, seqs, true, put, &out);
    r->op = HA_PLUGIN_ATTEND;
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

static void info(struct ha_device *dev, struct ha_device_info *out)
{
    (void)dev;
    *out = asked.plugin->is.info;
}

static const char *failure(struct ha_device *dev)
{
    (void)dev;
    return asked.why.text;
}

const struct ha_device_api *ha_plugin_attend(struct ha_subject *x)
{
    struct ha_plugin *p = x->own;
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
        .attend = attend,
    };
    return &asked.api;
}
