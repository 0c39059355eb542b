#include "suites/variants/dump.h"

#include "harness/base/arena.h"
#include "harness/base/claims.h"
#include "harness/base/safetensors.h"
#include "harness/base/why.h"
#include "harness/report/whole_file.h"
#include "suites/variants/fill.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- the tensors of one layer of one sequence ------------------------------------------------------------------- */

enum { Q, OUT, WANT, BOUND, LSE, WANT_LSE, LSE_BOUND, RATIO, MASS, PART, SIDE, DONE, K, V, OBSERVED, TENSORS };

/* The lengths of which a dimension is one; NONE ends a list. */
enum length { NONE, STEPS, Q_LEN, Q_HEADS, KV_HEADS, DIM, TOKENS, PARTS, SEEN, LENGTHS };

static const struct {
    const char *name;
    enum ha_tensor_type type; /* HA_T_OTHER: that of K and V */
    size_t bytes;             /* of an element */
    enum length dim[HA_TENSOR_DIMS_MAX];
} kinds[TENSORS] = {
    [Q] = { "q", HA_T_F32, 4, { STEPS, Q_LEN, Q_HEADS, DIM } },
    [OUT] = { "out", HA_T_F32, 4, { STEPS, Q_LEN, Q_HEADS, DIM } },
    [WANT] = { "want", HA_T_F64, 8, { STEPS, Q_LEN, Q_HEADS, DIM } },
    [BOUND] = { "bound", HA_T_F64, 8, { STEPS, Q_LEN, Q_HEADS, DIM } },
    [LSE] = { "lse", HA_T_F32, 4, { STEPS, Q_LEN, Q_HEADS } },
    [WANT_LSE] = { "want_lse", HA_T_F64, 8, { STEPS, Q_LEN, Q_HEADS } },
    [LSE_BOUND] = { "lse_bound", HA_T_F64, 8, { STEPS, Q_LEN, Q_HEADS } },
    [RATIO] = { "ratio", HA_T_F64, 8, { STEPS, Q_LEN, Q_HEADS } },
    [MASS] = { "mass", HA_T_F64, 8, { STEPS, Q_LEN, Q_HEADS } },
    [PART] = { "part", HA_T_U8, 1, { STEPS, Q_HEADS, TOKENS } },
    [SIDE] = { "side", HA_T_U8, 1, { STEPS, Q_HEADS, PARTS } },
    [DONE] = { "done", HA_T_U8, 1, { STEPS } },
    [K] = { "k", HA_T_OTHER, 0, { KV_HEADS, TOKENS, DIM } },
    [V] = { "v", HA_T_OTHER, 0, { KV_HEADS, TOKENS, DIM } },
    [OBSERVED] = { "observed", HA_T_F32, 4, { SEEN, Q_HEADS, DIM } },
};
enum { PART_PADDING = 128 };

static const struct ha_workload *data(const struct ha_dump *d) { return d->session->workload; }

/* Its name and shape; no data yet. */
static enum ha_status describe(struct ha_dump *d, size_t i, struct ha_why *why)
{
    static const enum ha_tensor_type type_of[HA_DTYPE_COUNT] = {
        [HA_F32] = HA_T_F32, [HA_F16] = HA_T_F16, [HA_BF16] = HA_T_BF16
    };
    const struct ha_shape *s = &data(d)->shape;
    const size_t kind = i % TENSORS, seq = i / TENSORS % s->batch, layer = i / TENSORS / s->batch;
    const size_t length[LENGTHS] = { [STEPS] = s->steps,     [Q_LEN] = s->q_len,
                                     [Q_HEADS] = s->q_heads, [KV_HEADS] = s->kv_heads,
                                     [DIM] = s->head_dim,    [TOKENS] = ha_workload_tokens(data(d), seq, s->steps),
                                     [PARTS] = HA_PARTS_MAX, [SEEN] = ha_workload_observed(data(d), seq) };
    const bool is_kv = kinds[kind].type == HA_T_OTHER;
    struct ha_tensor *t = &d->tensor[i];
    char name[64];
    snprintf(name, sizeof name, "layer%zu.seq%zu.%s", layer, seq, kinds[kind].name);
    t->name = strdup(name);
    if (!t->name) return ha_why(why, HA_ERROR, "no memory for the dump");
    t->type = is_kv ? type_of[s->dtype] : kinds[kind].type;
    t->bytes = is_kv ? ha_dtype_bytes(s->dtype) : kinds[kind].bytes;
    for (; kinds[kind].dim[t->dims] != NONE; t->dims++) t->bytes *= t->dim[t->dims] = length[kinds[kind].dim[t->dims]];
    d->bytes += t->bytes;
    return HA_OK;
}

/* ---- how large ----------------------------------------------------------------------------------------------------
 */

static enum ha_status find_place(struct ha_dump *d, const char *folder, const char *id, struct ha_why *why)
{
    char file[256 - sizeof ".safetensors" HA_PART];
    size_t n = 0;
    if (strlen(id) >= sizeof file) /* cut off, it would be another case's, too */
        return ha_why(why, HA_ERROR, "dump: an id of more than %zu characters names no file", sizeof file - 1);
    HA_TRY(ha_file_folder(folder, why));
    for (; id[n]; n++) file[n] = isalnum((unsigned char)id[n]) || strchr(".-_", id[n]) ? id[n] : '_';
    file[n] = 0;
    return ha_file_path(d->path, folder, file, ".safetensors", why);
}

/* The file is made in memory first. */
static enum ha_status ask_room(const struct ha_dump *d, const char *folder, struct ha_why *why)
{
    static const char lower[] = "ctx or batch or layers or steps, or leave --dump out";
    struct statvfs disk;
    const double mib = 1 << 20, need = 1.05 * (double)d->bytes;
    if (ha_memory_fits("host", need, ha_memory_available(), lower, why) != HA_OK)
        return ha_why_prefix(why, HA_ERROR, "dump");
    if (statvfs(folder, &disk) == 0 && need > (double)disk.f_bavail * (double)disk.f_frsize)
        return ha_why(why, HA_ERROR, "dump: needs %.1f MiB in %.200s, has %.1f MiB: lower %s", need / mib, folder,
                      (double)disk.f_bavail * (double)disk.f_frsize / mib, lower);
    fprintf(stderr, "dump: %.1f MiB in %s\n", (double)d->bytes / mib, d->path);
    return HA_OK;
}

static enum ha_status make_room(struct ha_dump *d, const char *folder, struct ha_why *why)
{
    const struct ha_shape *s = &data(d)->shape;
    d->count = s->layers * s->batch * TENSORS;
    d->tensor = calloc(d->count, sizeof *d->tensor);
    if (!d->tensor) return ha_why(why, HA_ERROR, "no memory for the dump");
    for (size_t i = 0; i < d->count; i++) HA_TRY(describe(d, i, why));
    HA_TRY(ask_room(d, folder, why));
    for (size_t i = 0; i < d->count; i++) {
        d->tensor[i].data = calloc(d->tensor[i].bytes ? d->tensor[i].bytes : 1, 1);
        if (!d->tensor[i].data) return ha_why(why, HA_ERROR, "no memory for the dump");
    }
    return HA_OK;
}

static unsigned char *bytes_of(const struct ha_dump *d, size_t layer, size_t seq, size_t kind)
{
    return (unsigned char *)(uintptr_t)d->tensor[(layer * data(d)->shape.batch + seq) * TENSORS + kind].data;
}

/* What is there before the first step: [kv_heads][tokens][head_dim] out of heads that lie further apart, and queries.
 */
static void fill_context(struct ha_dump *d, size_t layer, size_t seq)
{
    const struct ha_workload *w = data(d);
    const size_t i = layer * w->shape.batch + seq, row = w->shape.head_dim * ha_dtype_bytes(w->shape.dtype);
    const size_t bytes = ha_workload_tokens(w, seq, w->shape.steps) * row;
    for (size_t h = 0; h < w->shape.kv_heads; h++) {
        memcpy(bytes_of(d, layer, seq, K) + h * bytes, (const unsigned char *)w->k[i] + h * w->cap * row, bytes);
        memcpy(bytes_of(d, layer, seq, V) + h * bytes, (const unsigned char *)w->v[i] + h * w->cap * row, bytes);
    }
    memcpy(bytes_of(d, layer, seq, OBSERVED), w->q[i], d->tensor[i * TENSORS + OBSERVED].bytes);
}

enum ha_status ha_dump_open(struct ha_dump *d, const struct ha_session *session, const char *folder, const char *id,
                            struct ha_why *why)
{
    *d = (struct ha_dump){ .session = session };
    enum ha_status status = find_place(d, folder, id, why);
    if (status == HA_OK) status = make_room(d, folder, why);
    if (status != HA_OK) {
        ha_dump_free(d);
        return status;
    }
    for (size_t i = 0; i < d->count / TENSORS; i++)
        fill_context(d, i / session->workload->shape.batch, i % session->workload->shape.batch);
    return HA_OK;
}

/* ---- a step ---------------------------------------------------------------------------------------------------------
 */

static size_t step_bytes(const struct ha_dump *d, size_t layer, size_t seq, size_t kind)
{
    const struct ha_shape *s = &data(d)->shape;
    return d->tensor[(layer * s->batch + seq) * TENSORS + kind].bytes / s->steps;
}

static void put(struct ha_dump *d, size_t step, size_t layer, size_t seq, size_t kind, const void *from)
{
    const size_t bytes = step_bytes(d, layer, seq, kind);
    memcpy(bytes_of(d, layer, seq, kind) + step * bytes, from, bytes);
}

static double *doubles_of(const struct ha_dump *d, size_t step, size_t layer, size_t seq, size_t kind)
{
    return (double *)(void *)(bytes_of(d, layer, seq, kind) + step * step_bytes(d, layer, seq, kind));
}

struct ha_expected ha_dump_expected(const struct ha_dump *d, size_t step, size_t layer, size_t seq)
{
    return (struct ha_expected){ .o = doubles_of(d, step, layer, seq, WANT),
                                 .o_bound = doubles_of(d, step, layer, seq, BOUND),
                                 .lse = doubles_of(d, step, layer, seq, WANT_LSE),
                                 .lse_bound = doubles_of(d, step, layer, seq, LSE_BOUND) };
}

static void put_selection(struct ha_dump *d, const struct ha_pass *pass, size_t step, size_t layer, size_t seq)
{
    const struct ha_shape *s = &data(d)->shape;
    const size_t tokens = ha_workload_tokens(data(d), seq, s->steps);
    for (size_t head = 0; head < s->q_heads; head++) {
        unsigned char *part = bytes_of(d, layer, seq, PART) + (step * s->q_heads + head) * tokens,
                      *side = bytes_of(d, layer, seq, SIDE) + (step * s->q_heads + head) * HA_PARTS_MAX;
        struct ha_selection chosen = { .parts = 0 };
        pass->variant->selection(pass->instance, layer, seq, head, &chosen);
        for (size_t p = 0; p < chosen.parts; p++) {
            const struct ha_part *x = &chosen.part[p];
            side[p] = x->on_device;
            for (size_t i = 0; i < x->count; i++)
                part[x->token[i]] = (unsigned char)(p + 1 + (i >= x->count - x->padding ? PART_PADDING : 0));
        }
    }
}

void ha_dump_step(struct ha_dump *d, const struct ha_pass *pass, size_t step, size_t layer, size_t seq,
                  const struct ha_judged *judged)
{
    const struct ha_session *session = d->session;
    const struct ha_shape *s = &data(d)->shape;
    const size_t rows = s->q_len * s->q_heads, at = seq * rows;
    put(d, step, layer, seq, Q, ha_session_q(session, layer) + at * s->head_dim);
    put(d, step, layer, seq, OUT, ha_session_o(session, layer) + at * s->head_dim);
    put(d, step, layer, seq, LSE, ha_session_lse(session, layer) + at);
    put_selection(d, pass, step, layer, seq);
    double *ratio = doubles_of(d, step, layer, seq, RATIO), *mass = doubles_of(d, step, layer, seq, MASS);
    for (size_t i = 0; i < rows; i++) {
        ratio[i] = judged[i].ratio;
        mass[i] = judged[i].mass;
    }
    bytes_of(d, layer, seq, DONE)[step] = 1;
}

/* ---- the file
 * --------------------------------------------------------------------------------------------------------- */

enum { META_MAX = 96 };
struct meta {
    char key[META_MAX][64], value[META_MAX][HA_ID_MAX];
    size_t count;
};

__attribute__((format(printf, 3, 4))) static void note(struct meta *m, const char *key, const char *format, ...)
{
    va_list args;
    if (m->count == META_MAX) return;
    va_start(args, format);
    snprintf(m->key[m->count], sizeof *m->key, "%s", key);
    vsnprintf(m->value[m->count++], sizeof *m->value, format, args);
    va_end(args);
}

struct noting {
    struct meta *meta;
    const char *of;
};

static void note_number(void *arg, const char *name, double value)
{
    const struct noting *n = arg;
    char key[64];
    snprintf(key, sizeof key, "%s.%s", n->of, name);
    note(n->meta, key, "%.17g", value);
}

static void note_claims(struct meta *m, const struct ha_session *session)
{
    const struct ha_oracle_claims c = ha_oracle_claims(session, &session->info);
    struct noting device = { m, "device" }, host = { m, "host" }, merge = { m, "merge" };
    ha_profile_numbers(&c.device, note_number, &device);
    note_number(&device, "runs", (double)c.device_runs);
    ha_profile_numbers(&c.host, note_number, &host);
    note_number(&host, "runs", (double)c.host_runs);
    for (size_t i = 0; i < HA_TRAITS_NUMBERS; i++) {
        double x;
        memcpy(&x, (const char *)&c.merge + ha_traits_numbers[i].offset, sizeof x);
        note_number(&merge, ha_traits_numbers[i].name, x);
    }
}

static void note_case(struct meta *m, const struct ha_session *session, const char *id)
{
    const struct ha_shape *s = &session->workload->shape;
    struct noting shape = { m, "shape" }, param = { m, "param" };
    const struct {
        const char *name;
        size_t value;
    } sizes[] = { { "layers", s->layers },     { "batch", s->batch },       { "q_heads", s->q_heads },
                  { "kv_heads", s->kv_heads }, { "head_dim", s->head_dim }, { "q_len", s->q_len },
                  { "steps", s->steps },       { "observed", s->observed } };
    char ctx[HA_ID_MAX];
    ha_ctx_print(s, ctx, sizeof ctx);
    note(m, "format", "habench-dump");
    note(m, "version", "2");
    note(m, "case", "%s", id);
    note(m, "variant", "%s", session->variant->name);
    note(m, "contract", "%s", ha_contract_word(session->variant));
    note(m, "dtype", "%s", ha_dtype_name(s->dtype));
    note(m, "ctx", "%s", ctx);
    note(m, "scale", "%.17g", (double)s->scale);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        note_number(&shape, sizes[i].name, (double)sizes[i].value);
    for (size_t i = 0; i < session->variant->params_count; i++)
        note_number(&param, session->variant->params[i].name, session->param[i]);
}

/* Large elements first, so that each lies aligned in the file. */
static void put_in_order(const struct ha_dump *d, struct ha_tensor *to)
{
    for (size_t bytes = 8; bytes; bytes /= 2)
        for (size_t i = 0; i < d->count; i++) {
            const size_t own = kinds[i % TENSORS].bytes, element = own ? own : ha_dtype_bytes(data(d)->shape.dtype);
            if (element == bytes) *to++ = d->tensor[i];
        }
}

enum ha_status ha_dump_write(const struct ha_dump *d, const char *id, struct ha_why *why)
{
    const char *pairs[2 * META_MAX + 1] = { NULL };
    char part[sizeof d->path + sizeof HA_PART];
    struct meta *m = calloc(1, sizeof *m);
    struct ha_tensor *tensor = malloc(d->count * sizeof *tensor);
    if (!m || !tensor) {
        free(m);
        free(tensor);
        return ha_why(why, HA_ERROR, "no memory for the dump");
    }
    put_in_order(d, tensor);
    note_case(m, d->session, id);
    note_claims(m, d->session);
    for (size_t i = 0; i < m->count; i++) {
        pairs[2 * i] = m->key[i];
        pairs[2 * i + 1] = m->value[i];
    }
    snprintf(part, sizeof part, "%s" HA_PART, d->path);
    enum ha_status status = ha_safetensors_write(part, tensor, d->count, pairs, why);
    if (status == HA_OK) status = ha_file_take_name(part, d->path, why);
    else unlink(part);
    free(m);
    free(tensor);
    return status == HA_OK ? HA_OK : ha_why_prefix(why, status, "dump");
}

void ha_dump_free(struct ha_dump *d)
{
    for (size_t i = 0; d->tensor && i < d->count; i++) {
        free((char *)(uintptr_t)d->tensor[i].name);
        free((void *)(uintptr_t)d->tensor[i].data);
    }
    free(d->tensor);
    *d = (struct ha_dump){ .tensor = NULL };
}
