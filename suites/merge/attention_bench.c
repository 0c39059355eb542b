#include "suites/merge/attention_parts.h"

#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

enum { POISON = 0xFF, ALIGN = 256, POOL_STREAM = 200 };

static enum ha_status open_api(struct ha_attention_bench *b, struct ha_why *why)
{
    const struct ha_attention_subject *s = b->subject;
    if (!s->api->attend) return ha_why(why, HA_WAIVED, "%s: attend is not offered", s->name);
    struct ha_device_info info = { 0 };
    s->api->info(s->device, &info);
    memcpy(b->profile, info.profile, sizeof b->profile);
    b->traits = info.merge;
    return !s->device ? HA_OK : s->api->stream_create(s->device, "attention", &b->stream, why);
}

enum ha_status ha_attention_open(struct ha_attention_bench *bench, const struct ha_attention_subject *subject,
                                 uint64_t seed, struct ha_why *why)
{
    *bench = (struct ha_attention_bench){ .subject = subject, .pool = malloc(HA_POOL_FLOATS * sizeof *bench->pool) };
    enum ha_status status = bench->pool ? HA_OK : ha_why(why, HA_ERROR, "no memory");
    if (subject->kernels) {
        for (size_t t = 0; t < HA_DTYPE_COUNT; t++) bench->profile[t] = subject->kernels->profile;
        bench->traits = subject->kernels->traits;
    } else if (status == HA_OK) status = open_api(bench, why);
    if (status == HA_OK) ha_rng_normals(seed, POOL_STREAM, 0, HA_POOL_FLOATS, bench->pool);
    else ha_attention_close(bench);
    return status;
}

static void forget_there(struct ha_attention_bench *b)
{
    if (b->stream && b->there) b->subject->api->mem_free(b->subject->device, HA_MEM_DEVICE, b->there);
    b->there = NULL;
}

void ha_attention_close(struct ha_attention_bench *bench)
{
    forget_there(bench);
    if (bench->stream) bench->subject->api->stream_destroy(bench->stream);
    free(bench->host);
    free(bench->scratch);
    free(bench->pool);
}

/* The old contents go. */
static enum ha_status renew(char **block, size_t *bytes, size_t wanted, struct ha_why *why)
{
    if (wanted <= *bytes && *block) return HA_OK;
    free(*block);
    *bytes = 0;
    wanted = (wanted / ALIGN + 1) * ALIGN;
    *block = aligned_alloc(ALIGN, wanted);
    if (!*block) return ha_why(why, HA_ERROR, "no memory for %zu bytes", wanted);
    *bytes = wanted;
    return HA_OK;
}

enum ha_status ha_attention_room(struct ha_attention_bench *bench, size_t bytes, struct ha_why *why)
{
    const size_t before = bench->bytes;
    HA_TRY(renew(&bench->host, &bench->bytes, bytes, why));
    memset(bench->host, POISON, bytes);
    if (!bench->stream) {
        bench->there = bench->host;
    } else if (bench->bytes != before) {
        void *there;
        forget_there(bench);
        HA_TRY(bench->subject->api->mem_alloc(bench->subject->device, HA_MEM_DEVICE, bench->bytes, &there, why));
        bench->there = there;
    }
    return HA_OK;
}

/* Waits for what was asked of the device; an error says why it was refused, or what went wrong since. */
static enum ha_status finish(const struct ha_attention_bench *b, const char *operation, enum ha_status status,
                             struct ha_why *why)
{
    const struct ha_attention_subject *s = b->subject;
    if (status == HA_OK && b->stream) status = s->api->stream_sync(b->stream);
    if (status == HA_OK) return HA_OK;
    const char *failure = s->api->failure ? s->api->failure(s->device) : NULL; /* a library has none */
    return ha_why(why, status == HA_WAIVED ? HA_WAIVED : HA_ERROR, "%s: %s: %s", s->name, operation,
                  failure && *failure ? failure : "refused, with no reason");
}

enum ha_status ha_attention_move(struct ha_attention_bench *b, size_t from, size_t to, enum ha_direction dir,
                                 struct ha_why *why)
{
    if (!b->stream) return HA_OK;
    const bool there = dir == HA_H2D;
    char *dst = (there ? b->there : b->host) + from, *src = (there ? b->host : b->there) + from;
    return finish(b, "copy", b->subject->api->copy(b->stream, dst, src, to - from, dir), why);
}

enum { BATCH_MAX = 2 };

static enum ha_status attend_api(struct ha_attention_bench *bench, const struct ha_problem *p, size_t i,
                                 struct ha_why *why)
{
    struct ha_device_seq seqs[BATCH_MAX];
    const struct ha_device_attend a = {
        .batch = p->batch,
        .q_len = p->q_len,
        .q_heads = ha_problem_heads(p),
        .kv_heads = p->kv_heads,
        .head_dim = p->head_dim,
        .dtype = p->dtype,
        .scale = p->scale,
        .causal = p->causal,
        .seqs = seqs,
    };
    for (size_t b = 0; b < p->batch; b++) {
        struct ha_rows runs[HA_RUNS_MAX];
        const struct ha_attend first = ha_problem_attend(p, bench->there, i, b, 0, runs);
        seqs[b] = (struct ha_device_seq){
            .q = first.q,
            .runs_count = first.runs_count,
            .k_head_bytes = p->k.head,
            .v_head_bytes = p->v.head,
            .o = first.o,
            .lse = first.lse,
            .weights = first.weights,
            .weights_stride = first.weights_stride,
        };
        memcpy(seqs[b].runs, runs, first.runs_count * sizeof *runs);
    }
    return finish(bench, "attend", bench->subject->api->attend(bench->stream, &a), why);
}

enum ha_status ha_attention_attend(struct ha_attention_bench *bench, const struct ha_problem *p, size_t i,
                                   struct ha_why *why)
{
    const struct ha_kernels *kernels = bench->subject->kernels;
    if (!kernels) return attend_api(bench, p, i, why);
    for (size_t b = 0; b < p->batch; b++)
        for (size_t h = 0; h < p->kv_heads; h++) {
            struct ha_rows runs[HA_RUNS_MAX];
            struct ha_attend a = ha_problem_attend(p, bench->there, i, b, h, runs);
            const size_t bytes = kernels->attend_scratch_bytes(&a);
            HA_TRY(renew(&bench->scratch, &bench->scratch_bytes, bytes, why));
            memset(bench->scratch, POISON, bytes);
            a.scratch = bench->scratch;
            kernels->attend(kernels, &a);
        }
    return HA_OK;
}

enum ha_status ha_attention_merge(struct ha_attention_bench *bench, const struct ha_merge *args, struct ha_why *why)
{
    const struct ha_attention_subject *s = bench->subject;
    if (!s->kernels) return finish(bench, "merge", s->api->merge(bench->stream, args), why);
    s->kernels->merge(args);
    return HA_OK;
}
