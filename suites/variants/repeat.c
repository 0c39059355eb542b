#include "suites/variants/repeat.h"

#include "harness/base/busy.h"
#include "harness/base/device_arena.h"
#include "harness/base/fingerprint.h"
#include "harness/base/stop.h"
#include "harness/base/why.h"
#include "suites/variants/check.h"

#include <stdlib.h>
#include <string.h>

const char *ha_repeat_word(enum ha_repeat_seen seen)
{
    static const char *const word[] = { "", "same", "differs", "may vary", "varies" };
    return word[seen];
}

size_t ha_repeat_passes(const struct ha_case *c, const char *id)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *id; id++) hash = (hash ^ (unsigned char)*id) * 16777619u;
    return c->repeat ? c->repeat : c->graph || hash % 3 == 0;
}

static const struct ha_shape *shape(const struct ha_repeat *r) { return &r->session->workload->shape; }
static size_t step_bytes(const struct ha_repeat *r) { return shape(r)->layers * r->session->io.out_bytes; }

const char *ha_repeat_unpromised(const struct ha_session *s)
{
    const enum ha_dtype dtype = s->workload->shape.dtype;
    if (s->variant->varies && s->variant->varies(s->param)) return "variant";
    if (s->variant->products && s->info.products[dtype].varies) return "products";
    if (!s->variant->products && s->info.profile[dtype].varies) return "profile";
    return s->variant->needs & HA_NEEDS_MERGE && s->info.merge.varies ? "merge" : NULL;
}

enum ha_repeat_seen ha_repeat_seen(const struct ha_repeat *r)
{
    if (!r->passes) return HA_REPEAT_NONE;
    if (ha_repeat_unpromised(r->session)) return r->differs ? HA_REPEAT_VARIES : HA_REPEAT_MAY_VARY;
    return r->differs ? HA_REPEAT_DIFFERS : HA_REPEAT_SAME;
}

enum ha_status ha_repeat_open(struct ha_repeat *r, struct ha_session *session, struct ha_why *why)
{
    *r = (struct ha_repeat){ .session = session };
    const struct ha_shape *s = shape(r);
    const size_t bytes = s->steps * step_bytes(r);
    r->first = malloc(bytes);
    r->chosen = calloc(s->layers * s->batch * s->q_heads, sizeof *r->chosen);
    r->kept = ha_device_alloc(session->arena, HA_MEM_PINNED, bytes, HA_TAG_SCRATCH, why);
    if (!r->kept) return HA_ERROR;
    return r->first && r->chosen ? HA_OK : ha_why(why, HA_ERROR, "no memory for the outputs of a pass");
}

void ha_repeat_close(struct ha_repeat *r)
{
    ha_busy_stop(r->busy);
    if (r->kept) ha_device_free(r->session->arena, r->kept);
    free(r->first);
    free(r->chosen);
    r->busy = NULL;
    r->kept = r->first = NULL;
    r->chosen = NULL;
}

/* ---- selections -------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(const struct ha_chosen *c, size_t head)
{
    const size_t *offset = c->offset + head * HA_CHOSEN_STRIDE;
    uint64_t hash = HA_FINGERPRINT_BEGIN;
    for (size_t p = 0; p < HA_PARTS_MAX; p++) {
        const struct ha_part *part = ha_chosen_part(c, head, p);
        hash = ha_fingerprint_mix(
            hash, part->either_side ? 2 : part->on_device); /* a side that happened to be free is no choice */
        hash = ha_fingerprint_mix(hash, offset[p + 1] - offset[p]);
        for (size_t i = offset[p]; i < offset[p + 1]; i++) hash = ha_fingerprint_mix(hash, c->token[i]);
    }
    return hash;
}

/* Of the last step: each head's keys are kept, or compared. */
static enum ha_status selections(struct ha_repeat *r, const struct ha_pass *pass, bool keep, struct ha_why *why)
{
    const struct ha_shape *s = shape(r);
    for (size_t i = 0; i < s->layers * s->batch; i++) {
        struct ha_chosen c;
        enum ha_status status = ha_chosen_read(&c, pass, s->steps - 1, i / s->batch, i % s->batch, why);
        for (size_t h = 0; h < s->q_heads && status == HA_OK; h++) {
            uint64_t *const was = &r->chosen[i * s->q_heads + h], is = hash_of(&c, h);
            if (keep) *was = is;
            else if (*was != is && !r->differs) {
                r->differs = true;
                ha_why(&r->where, HA_FAIL, "layer %zu step %zu seq %zu head %zu selected other keys", i / s->batch,
                       s->steps - 1, i % s->batch, h);
            }
        }
        ha_chosen_free(&c);
        HA_TRY(status);
    }
    return HA_OK;
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

/* Floats [n] of two passes, n of them a row; the index of the first one with other bits, or n. */
static size_t first_other(const unsigned char *a, const unsigned char *b, size_t n)
{
    size_t i = 0;
    if (!memcmp(a, b, n * sizeof(float))) return n;
    while (!memcmp(a + i * sizeof(float), b + i * sizeof(float), sizeof(float))) i++;
    return i;
}

static void say(struct ha_repeat *r, size_t step, size_t layer, bool is_lse, size_t at, const unsigned char *was,
                const unsigned char *is)
{
    const struct ha_shape *s = shape(r);
    const size_t each = is_lse ? 1 : s->head_dim, row = at / each, head = row % s->q_heads,
                 token = row / s->q_heads % s->q_len, seq = row / s->q_heads / s->q_len;
    char element[32] = "LSE";
    float a, b;
    memcpy(&a, was + at * sizeof a, sizeof a);
    memcpy(&b, is + at * sizeof b, sizeof b);
    if (!is_lse) snprintf(element, sizeof element, "element %zu", at % each);
    r->differs = true;
    ha_why(&r->where, HA_FAIL, "layer %zu step %zu seq %zu token %zu head %zu %s was %.9g (%a), is %.9g (%a)", layer,
           step, seq, token, head, element, (double)a, (double)a, (double)b, (double)b);
}

static void compare_outputs(struct ha_repeat *r, size_t step, const unsigned char *is)
{
    const struct ha_shape *s = shape(r);
    const struct ha_io *io = &r->session->io;
    const size_t rows = s->batch * s->q_len * s->q_heads;
    for (size_t layer = 0; layer < s->layers && !r->differs; layer++) {
        const size_t offset[] = { io->o, io->lse }, count[] = { rows * s->head_dim, rows };
        for (size_t i = 0; i < 2 && !r->differs; i++) {
            const size_t at = layer * io->out_bytes + offset[i];
            const unsigned char *was = r->first + step * step_bytes(r) + at;
            const size_t other = first_other(was, is + at, count[i]);
            if (other < count[i]) say(r, step, layer, i == 1, other, was, is + at);
        }
    }
}

enum ha_status ha_repeat_keep(struct ha_repeat *r, const struct ha_pass *pass, size_t step, struct ha_why *why)
{
    memcpy(r->first + step * step_bytes(r), r->session->host_out, step_bytes(r));
    return step + 1 == shape(r)->steps ? selections(r, pass, true, why) : HA_OK;
}

enum ha_status ha_repeat_compare(struct ha_repeat *r, const struct ha_pass *pass, size_t step,
                                 const unsigned char *outputs, struct ha_why *why)
{
    compare_outputs(r, step, outputs);
    return pass->context.record_selection && step + 1 == shape(r)->steps ? selections(r, pass, false, why) : HA_OK;
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

/* One attention of other numbers and of more heads, so that what the device keeps for itself is that of another case.
 * A variant may attend elsewhere, over longer heads than the device takes. */
static enum ha_status attend_other(struct ha_repeat *r, struct ha_device_arena *arena, struct ha_why *why)
{
    enum { KEYS = 160 };
    const struct ha_session *s = r->session;
    const size_t most = s->info.head_dim_max ? s->info.head_dim_max : SIZE_MAX, own = shape(r)->head_dim;
    const size_t heads = shape(r)->q_heads + 1, dim = own < most ? own : most, rows = KEYS * heads * dim,
                 row = dim * ha_dtype_bytes(shape(r)->dtype);
    const struct ha_device_fill fill = { s->api, s->stream, HA_HELD_NUMBERS, 0 };
    ha_device_arena_fill(arena, &fill);
    float *q = ha_device_alloc(arena, HA_MEM_DEVICE, heads * dim * sizeof *q, HA_TAG_SCRATCH, why),
          *o = ha_device_alloc(arena, HA_MEM_DEVICE, heads * dim * sizeof *o, HA_TAG_SCRATCH, why),
          *lse = ha_device_alloc(arena, HA_MEM_DEVICE, heads * sizeof *lse, HA_TAG_SCRATCH, why);
    void *k = ha_device_alloc(arena, HA_MEM_DEVICE, rows * row / dim, HA_TAG_SCRATCH, why),
         *v = ha_device_alloc(arena, HA_MEM_DEVICE, rows * row / dim, HA_TAG_SCRATCH, why);
    if (!q || !o || !lse || !k || !v) return HA_ERROR;
    const struct ha_device_seq seq = { .q = q,
                                       .runs = { { k, v, heads * row, heads * row, NULL, KEYS } },
                                       .runs_count = 1,
                                       .k_head_bytes = row,
                                       .v_head_bytes = row,
                                       .o = o,
                                       .lse = lse };
    const struct ha_device_attend a = { .batch = 1,
                                        .q_len = 1,
                                        .q_heads = heads,
                                        .kv_heads = heads,
                                        .head_dim = dim,
                                        .dtype = shape(r)->dtype,
                                        .scale = 1 / (float)dim,
                                        .causal = s->variant->products,
                                        .seqs = &seq };
    enum ha_status status = (s->variant->products ? s->api->attend_products : s->api->attend)(s->stream, &a);
    const enum ha_status synced = s->api->stream_sync(s->stream);
    const char *failure = s->api->failure(s->device);
    return status == HA_OK && synced == HA_OK ? HA_OK
                                              : ha_why(why, HA_ERROR, "device %s during another attention: %.400s",
                                                       s->api->name, failure ? failure : "it does not say why");
}

enum ha_status ha_repeat_disturb(struct ha_repeat *r, struct ha_why *why)
{
    const struct ha_session *s = r->session;
    struct ha_device_arena *arena;
    if (!(s->variant->products ? s->api->attend_products : s->api->attend)) return HA_OK;
    HA_TRY(ha_device_arena_create(&arena, s->api, s->device, why));
    const enum ha_status status = attend_other(r, arena, why);
    ha_device_arena_destroy(arena);
    HA_TRY(status);
    return r->busy ? HA_OK : ha_busy_start(&r->busy, why);
}

static enum ha_status compare_pass(struct ha_repeat *r, const struct ha_pass *pass, struct ha_why *why)
{
    r->passes++;
    for (size_t step = 0; step < shape(r)->steps && !r->differs; step++)
        HA_TRY(ha_repeat_compare(r, pass, step, r->kept + step * step_bytes(r), why));
    return HA_OK;
}

enum ha_status ha_repeat_run(struct ha_repeat *r, size_t passes, struct ha_why *why)
{
    struct ha_session *s = r->session;
    struct ha_pass pass;
    if (!passes) return HA_OK;
    HA_TRY(ha_repeat_disturb(r, why));
    for (size_t i = 0; i < passes && !r->differs && !ha_stop; i++) {
        /* the second of them and those after it go on with one instance, which keeps no selection then */
        const bool rewinds = s->variant->rewind && i > 0;
        if (i < 2 || !rewinds) HA_TRY(ha_pass_again(&pass, s, s->variant, s->param, r->kept, !rewinds, why));
        enum ha_status status = ha_pass_run(&pass, false, why);
        if (status == HA_OK) status = compare_pass(r, &pass, why);
        if (status == HA_OK && rewinds && i + 1 < passes) status = ha_pass_settle(&pass, why);
        if (status == HA_OK && rewinds && i + 1 < passes) status = ha_pass_rewind(&pass, why);
        if (status != HA_OK || !rewinds || i + 1 == passes || r->differs || ha_stop)
            HA_TRY(ha_pass_end(&pass, status, why));
    }
    return ha_stop ? ha_why(why, HA_WAIVED, "stopped") : HA_OK;
}
