#define _GNU_SOURCE /* asprintf */
#include "suites/variants/dump.h"

#include "harness/base/arena.h"
#include "harness/base/array.h"
#include "harness/base/claims.h"
#include "harness/base/file.h"
#include "harness/base/safetensors.h"
#include "harness/base/why.h"
#include "suites/variants/fill.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- the tensors of one layer of one sequence ------------------------------------------------------------------- */

enum { Q, OUT, WANT, BOUND, LSE, WANT_LSE, LSE_BOUND, RATIO, MASS, PART, SIDE, DONE, K, V, OBSERVED, ALWAYS };
/* Where the dataset has an output projection, or says how keys were turned, which is of a layer, and stands with its
 * first sequence. */
enum { WO = ALWAYS, WO_OFF, WO_NORM, INV_FREQ, ROPE, OWN };
/* Left out where they would say nothing: the first use makes them. The last two grow by rows. */
enum { QUERY = OWN, KEY, PROFILE, WEIGHT_ONLY, EITHER_SIDE, OWN_Q, OWN_K, TENSORS };

/* The lengths of which a dimension is one; NONE ends a list. */
enum length {
    NONE,
    STEPS,
    Q_LEN,
    Q_HEADS,
    KV_HEADS,
    DIM,
    TOKENS,
    PARTS,
    SEEN,
    MODEL_DIM,
    WIDTH,
    PAIRS,
    TWO,
    ROWS,
    LENGTHS
};

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
    [WO] = { "wo", HA_T_F32, 4, { MODEL_DIM, WIDTH } },
    [WO_OFF] = { "wo_off", HA_T_F64, 8, { STEPS, Q_LEN } },
    [WO_NORM] = { "wo_norm", HA_T_F64, 8, { STEPS, Q_LEN } },
    [INV_FREQ] = { "inv_freq", HA_T_F32, 4, { PAIRS } },
    [ROPE] = { "rope", HA_T_F32, 4, { TWO } },
    [QUERY] = { "query", HA_T_U32, 4, { STEPS, Q_HEADS, PARTS } },
    [KEY] = { "key", HA_T_U32, 4, { STEPS, Q_HEADS, TOKENS } },
    [PROFILE] = { "profile", HA_T_U32, 4, { STEPS, Q_HEADS, PARTS } },
    [WEIGHT_ONLY] = { "weight_only", HA_T_U8, 1, { STEPS, Q_HEADS, PARTS } },
    [EITHER_SIDE] = { "either_side", HA_T_U8, 1, { STEPS, Q_HEADS, PARTS } },
    [OWN_Q] = { "own_q", HA_T_F32, 4, { ROWS, Q_LEN, DIM } },
    [OWN_K] = { "own_k", HA_T_F32, 4, { ROWS, DIM } },
};
enum { PART_PADDING = 128 };

static const struct ha_workload *data(const struct ha_dump *d) { return d->session->workload; }

static const float *wo_of(const struct ha_dump *d, size_t layer)
{
    return data(d)->projection ? data(d)->projection[layer].wo : NULL;
}

static const float *inv_freq_of(const struct ha_dump *d, size_t layer)
{
    return data(d)->projection ? data(d)->projection[layer].inv_freq : NULL;
}

/* Whether there is room for tensor i from the beginning. */
static bool is_foreseen(const struct ha_dump *d, size_t i)
{
    const size_t kind = i % TENSORS, batch = data(d)->shape.batch, seq = i / TENSORS % batch,
                 layer = i / TENSORS / batch;
    if (kind == INV_FREQ || kind == ROPE) return inv_freq_of(d, layer) && seq == 0;
    return kind < ALWAYS || (kind < OWN && wo_of(d, layer) && (kind != WO || seq == 0));
}

/* Its name and shape; no data yet. */
static enum ha_status describe(struct ha_dump *d, size_t i, struct ha_why *why)
{
    static const enum ha_tensor_type type_of[HA_DTYPE_COUNT] = {
        [HA_F32] = HA_T_F32, [HA_F16] = HA_T_F16, [HA_BF16] = HA_T_BF16
    };
    const struct ha_shape *s = &data(d)->shape;
    const size_t kind = i % TENSORS, seq = i / TENSORS % s->batch, layer = i / TENSORS / s->batch;
    const size_t pairs = inv_freq_of(d, layer) ? data(d)->projection[layer].rotary / 2 : 0;
    const size_t length[LENGTHS] = { [STEPS] = s->steps,
                                     [Q_LEN] = s->q_len,
                                     [Q_HEADS] = s->q_heads,
                                     [KV_HEADS] = s->kv_heads,
                                     [DIM] = s->head_dim,
                                     [TOKENS] = ha_workload_tokens(data(d), seq, s->steps),
                                     [PARTS] = HA_PARTS_MAX,
                                     [SEEN] = ha_workload_observed(data(d), seq),
                                     [MODEL_DIM] = s->model_dim,
                                     [WIDTH] = s->q_heads * s->head_dim,
                                     [TWO] = 2,
                                     [PAIRS] = pairs }; /* no ROWS */
    const bool is_kv = kinds[kind].type == HA_T_OTHER;
    struct ha_tensor *t = &d->tensor[i];
    char name[64];
    snprintf(name, sizeof name, "layer%zu.seq%zu.%s", layer, seq, kinds[kind].name);
    t->name = strdup(name);
    if (!t->name) return ha_why(why, HA_ERROR, "no memory for the dump");
    t->type = is_kv ? type_of[s->dtype] : kinds[kind].type;
    t->bytes = is_kv ? ha_dtype_bytes(s->dtype) : kinds[kind].bytes;
    for (; kinds[kind].dim[t->dims] != NONE; t->dims++) t->bytes *= t->dim[t->dims] = length[kinds[kind].dim[t->dims]];
    if (is_foreseen(d, i)) d->bytes += t->bytes;
    return HA_OK;
}

/* ---- how large --------------------------------------------------------------------------------------------------- */

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
static const char lower[] = "ctx or batch or layers or steps, or leave --dump out";

static void say_size(const struct ha_dump *d, const char *more)
{
    fprintf(stderr, "dump: %.1f MiB in %s%s\n", (double)d->bytes / (1 << 20), d->path, more);
}

static enum ha_status ask_room(const struct ha_dump *d, const char *folder, struct ha_why *why)
{
    struct statvfs disk;
    const double mib = 1 << 20, need = 1.05 * (double)d->bytes;
    if (ha_memory_fits("host", need, ha_memory_available(), lower, why) != HA_OK)
        return ha_why_prefix(why, HA_ERROR, "dump");
    if (statvfs(folder, &disk) == 0 && need > (double)disk.f_bavail * (double)disk.f_frsize)
        return ha_why(why, HA_ERROR, "dump: needs %.1f MiB in %.200s, has %.1f MiB: lower %s", need / mib, folder,
                      (double)disk.f_bavail * (double)disk.f_frsize / mib, lower);
    say_size(d, "");
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
        if (!is_foreseen(d, i)) continue;
        d->tensor[i].data = calloc(d->tensor[i].bytes ? d->tensor[i].bytes : 1, 1);
        if (!d->tensor[i].data) return ha_why(why, HA_ERROR, "no memory for the dump");
    }
    return HA_OK;
}

static struct ha_tensor *tensor_of(const struct ha_dump *d, size_t layer, size_t seq, size_t kind)
{
    return &d->tensor[(layer * data(d)->shape.batch + seq) * TENSORS + kind];
}

static unsigned char *bytes_of(const struct ha_dump *d, size_t layer, size_t seq, size_t kind)
{
    return (unsigned char *)(uintptr_t)tensor_of(d, layer, seq, kind)->data;
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
    const struct ha_tensor *wo = tensor_of(d, layer, seq, WO);
    if (wo->data) memcpy(bytes_of(d, layer, seq, WO), wo_of(d, layer), wo->bytes);
    const struct ha_tensor *inv_freq = tensor_of(d, layer, seq, INV_FREQ);
    if (!inv_freq->data) return;
    const struct ha_projection *p = &w->projection[layer];
    memcpy(bytes_of(d, layer, seq, INV_FREQ), p->inv_freq, inv_freq->bytes);
    memcpy(bytes_of(d, layer, seq, ROPE), (const float[]){ p->adjacent ? 1 : 0, p->rope_scale }, 2 * sizeof(float));
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

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static size_t step_bytes(const struct ha_dump *d, size_t layer, size_t seq, size_t kind)
{
    return tensor_of(d, layer, seq, kind)->bytes / data(d)->shape.steps;
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

/* ---- states that are not plain, and notes ------------------------------------------------------------------------ */

/* `more` bytes of zeros behind what it has. A dump that has no memory for them is none any more. */
static bool lengthen(struct ha_dump *d, struct ha_tensor *t, size_t had, size_t more)
{
    if (d->status != HA_OK) return false;
    d->status = ha_memory_fits("host", (double)more, ha_memory_available(), lower, &d->why);
    char *bytes = d->status == HA_OK ? realloc((void *)(uintptr_t)t->data, had + more) : NULL;
    if (d->status == HA_OK && !bytes) d->status = ha_why(&d->why, HA_ERROR, "no memory for the dump");
    if (d->status != HA_OK) return false;
    memset(bytes + had, 0, more);
    t->data = bytes;
    t->bytes = had + more;
    d->bytes += more;
    return true;
}

/* Where a step's numbers are, zeros at first; NULL: no memory. */
static void *own_step(struct ha_dump *d, size_t step, size_t layer, size_t seq, size_t kind)
{
    struct ha_tensor *t = tensor_of(d, layer, seq, kind);
    if (!t->data && !lengthen(d, t, 0, t->bytes)) return NULL;
    return bytes_of(d, layer, seq, kind) + step * step_bytes(d, layer, seq, kind);
}

/* The first of `count` rows that hold what is at `from`, from 1; 0: no memory. What another head has just put there, as
 * all heads of a group do whose keys are the same, is not put there again. */
static uint32_t add_rows(struct ha_dump *d, struct ha_tensor *t, size_t row_bytes, const float *from, size_t count)
{
    const size_t had = t->dim[0], bytes = count * row_bytes;
    if (count && count <= had && !memcmp((const char *)t->data + t->bytes - bytes, from, bytes))
        return (uint32_t)(had - count + 1);
    if (!lengthen(d, t, had * row_bytes, bytes)) return 0;
    memcpy((char *)(uintptr_t)t->data + had * row_bytes, from, bytes);
    t->dim[0] += count;
    return (uint32_t)(had + 1);
}

/* Which of the dump's profiles it is, from 1; 0: no memory. */
static uint32_t profile_of(struct ha_dump *d, const struct ha_profile *p)
{
    for (size_t i = 0; i < d->profiles; i++)
        if (!memcmp(&d->profile[i], p, sizeof *p)) return (uint32_t)(i + 1);
    if (!ha_array_room(&d->profile, &d->profiles_room, d->profiles + 1, sizeof *d->profile)) {
        d->status = ha_why(&d->why, HA_ERROR, "no memory for the dump");
        return 0;
    }
    memcpy(&d->profile[d->profiles++], p, sizeof *p);
    return (uint32_t)d->profiles;
}

static void set(struct ha_dump *d, size_t step, size_t layer, size_t seq, size_t kind, size_t at, uint32_t value)
{
    void *x = own_step(d, step, layer, seq, kind);
    if (x && kinds[kind].bytes == 4) ((uint32_t *)x)[at] = value;
    else if (x) ((uint8_t *)x)[at] = (uint8_t)value;
}

/* What part p of a head, at = head * HA_PARTS_MAX + p, has of its own. */
static void put_own(struct ha_dump *d, size_t step, size_t layer, size_t seq, size_t at, const struct ha_part *x)
{
    const struct ha_shape *s = &data(d)->shape;
    const size_t dim_bytes = s->head_dim * sizeof(float), tokens = ha_workload_tokens(data(d), seq, s->steps);
    if (x->q) {
        struct ha_tensor *rows = tensor_of(d, layer, seq, OWN_Q);
        set(d, step, layer, seq, QUERY, at, add_rows(d, rows, s->q_len * dim_bytes, x->q, 1));
    }
    if (x->k && x->count) {
        struct ha_tensor *rows = tensor_of(d, layer, seq, OWN_K);
        const uint32_t first = add_rows(d, rows, dim_bytes, x->k, x->count);
        for (uint32_t i = 0; i < x->count && first; i++)
            set(d, step, layer, seq, KEY, at / HA_PARTS_MAX * tokens + x->token[i], first + i);
    }
    if (x->profile) set(d, step, layer, seq, PROFILE, at, profile_of(d, x->profile));
    if (x->weight_only) set(d, step, layer, seq, WEIGHT_ONLY, at, 1);
    if (x->either_side) set(d, step, layer, seq, EITHER_SIDE, at, 1);
}

/* The values of a note, [steps][q_heads], NaN at first; NULL: no memory. */
static double *note_of(struct ha_dump *d, size_t layer, size_t seq, const char *name)
{
    const size_t heads = data(d)->shape.q_heads, values = data(d)->shape.steps * heads;
    struct ha_tensor t = { .type = HA_T_F64, .dims = 2, .dim = { data(d)->shape.steps, heads } };
    char *full;
    if (asprintf(&full, "layer%zu.seq%zu.note.%s", layer, seq, name) < 0) full = NULL;
    for (size_t i = 0; i < d->notes && full; i++)
        if (!strcmp(d->note[i].name, full)) {
            free(full);
            return (double *)(uintptr_t)d->note[i].data;
        }
    if (!full || !ha_array_room(&d->note, &d->notes_room, d->notes + 1, sizeof *d->note))
        d->status = ha_why(&d->why, HA_ERROR, "no memory for the dump");
    if (!lengthen(d, &t, 0, values * sizeof(double))) {
        free(full);
        return NULL;
    }
    t.name = full;
    d->note[d->notes++] = t;
    double *x = (double *)(uintptr_t)t.data;
    for (size_t i = 0; i < values; i++) x[i] = (double)NAN;
    return x;
}

/* Of two notes of one name the first counts, as in ha_def_note. */
static void put_notes(struct ha_dump *d, size_t step, size_t layer, size_t seq, size_t head,
                      const struct ha_selection *chosen)
{
    for (size_t i = chosen->notes; i-- > 0;) {
        double *value = note_of(d, layer, seq, chosen->note[i].name);
        if (value) value[step * data(d)->shape.q_heads + head] = chosen->note[i].value;
    }
}

static void put_selection(struct ha_dump *d, const struct ha_chosen *chosen, size_t step, size_t layer, size_t seq)
{
    const struct ha_shape *s = &data(d)->shape;
    const size_t tokens = ha_workload_tokens(data(d), seq, s->steps);
    for (size_t head = 0; head < s->q_heads; head++) {
        unsigned char *part = bytes_of(d, layer, seq, PART) + (step * s->q_heads + head) * tokens,
                      *side = bytes_of(d, layer, seq, SIDE) + (step * s->q_heads + head) * HA_PARTS_MAX;
        const struct ha_selection *reported = &chosen->reported[head];
        for (size_t p = 0; p < reported->parts; p++) {
            const struct ha_part *x = &reported->part[p];
            side[p] = x->on_device;
            for (size_t i = 0; i < x->count; i++)
                part[x->token[i]] = (unsigned char)(p + 1 + (i >= x->count - x->padding ? PART_PADDING : 0));
            put_own(d, step, layer, seq, head * HA_PARTS_MAX + p, x);
        }
        put_notes(d, step, layer, seq, head, reported);
    }
}

/* Of each token, from its heads' shares. */
static void put_projected(struct ha_dump *d, size_t step, size_t layer, size_t seq, const struct ha_judged *judged)
{
    const struct ha_shape *s = &data(d)->shape;
    double *off = doubles_of(d, step, layer, seq, WO_OFF), *norm = doubles_of(d, step, layer, seq, WO_NORM);
    for (size_t t = 0; t < s->q_len; t++) {
        struct ha_projected sum = { 0, 0 };
        for (size_t h = 0; h < s->q_heads; h++) {
            sum.diff2 += judged[t * s->q_heads + h].after_wo.diff2;
            sum.norm2 += judged[t * s->q_heads + h].after_wo.norm2;
        }
        off[t] = sqrt(sum.diff2);
        norm[t] = sqrt(sum.norm2);
    }
}

void ha_dump_step(struct ha_dump *d, const struct ha_chosen *chosen, size_t step, size_t layer, size_t seq,
                  const struct ha_judged *judged)
{
    const struct ha_session *session = d->session;
    const struct ha_shape *s = &data(d)->shape;
    const size_t rows = s->q_len * s->q_heads, at = seq * rows;
    if (d->status != HA_OK) return;
    put(d, step, layer, seq, Q, ha_session_q(session, layer) + at * s->head_dim);
    put(d, step, layer, seq, OUT, ha_session_o(session, layer) + at * s->head_dim);
    put(d, step, layer, seq, LSE, ha_session_lse(session, layer) + at);
    put_selection(d, chosen, step, layer, seq);
    double *ratio = doubles_of(d, step, layer, seq, RATIO), *mass = doubles_of(d, step, layer, seq, MASS);
    for (size_t i = 0; i < rows; i++) {
        ratio[i] = judged[i].ratio;
        mass[i] = judged[i].mass;
    }
    if (wo_of(d, layer)) put_projected(d, step, layer, seq, judged);
    bytes_of(d, layer, seq, DONE)[step] = 1;
}

/* ---- the file
 * --------------------------------------------------------------------------------------------------------- */

struct meta {
    char (*text)[2][HA_ID_MAX]; /* key, value */
    size_t count, room;
    bool full; /* there was no memory for more */
};

__attribute__((format(printf, 3, 4))) static void note(struct meta *m, const char *key, const char *format, ...)
{
    va_list args;
    if (!ha_array_room(&m->text, &m->room, m->count + 1, sizeof *m->text)) m->full = true;
    if (m->full) return;
    va_start(args, format);
    snprintf(m->text[m->count][0], HA_ID_MAX, "%s", key);
    vsnprintf(m->text[m->count++][1], HA_ID_MAX, format, args);
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

/* Whatever computed a part by a profile of its own has as many runs as either side. */
static void note_profiles(struct meta *m, const struct ha_dump *d, double runs)
{
    for (size_t i = 0; i < d->profiles; i++) {
        char name[32];
        struct noting profile = { m, name };
        snprintf(name, sizeof name, "profile%zu", i + 1);
        ha_profile_numbers(&d->profile[i], note_number, &profile);
        note_number(&profile, "runs", runs);
    }
}

static void note_claims(struct meta *m, const struct ha_dump *d)
{
    const struct ha_session *session = d->session;
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
    note_profiles(m, d, (double)(c.device_runs > c.host_runs ? c.device_runs : c.host_runs));
}

/* Whether it says more than a file of version 2 can. */
static bool has_own(const struct ha_dump *d)
{
    for (size_t i = 0; i < d->count; i++)
        if (i % TENSORS >= OWN && d->tensor[i].data) return true;
    return d->notes > 0;
}

static void note_case(struct meta *m, const struct ha_dump *d, const char *id)
{
    const struct ha_session *session = d->session;
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
    note(m, "version", has_own(d) ? "3" : "2");
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

/* Large elements first, so that each lies aligned in the file. Returns how many. */
static size_t put_in_order(const struct ha_dump *d, struct ha_tensor *to)
{
    size_t n = 0;
    for (size_t bytes = 8; bytes; bytes /= 2) {
        for (size_t i = 0; i < d->count; i++) {
            const size_t own = kinds[i % TENSORS].bytes, element = own ? own : ha_dtype_bytes(data(d)->shape.dtype);
            if (element == bytes && d->tensor[i].data) to[n++] = d->tensor[i];
        }
        for (size_t i = 0; i < d->notes && bytes == 8; i++) to[n++] = d->note[i];
    }
    return n;
}

static enum ha_status write_part(const struct ha_dump *d, const char *part, const struct meta *m, struct ha_why *why)
{
    const char **pairs = calloc(2 * m->count + 1, sizeof *pairs);
    struct ha_tensor *tensor = malloc((d->count + d->notes) * sizeof *tensor);
    enum ha_status status = HA_OK;
    if (!pairs || !tensor || m->full) status = ha_why(why, HA_ERROR, "no memory for the dump");
    for (size_t i = 0; i < 2 * m->count && pairs; i++) pairs[i] = m->text[i / 2][i % 2];
    if (status == HA_OK) status = ha_safetensors_write(part, tensor, put_in_order(d, tensor), pairs, why);
    free(pairs);
    free(tensor);
    return status;
}

enum ha_status ha_dump_write(const struct ha_dump *d, const char *id, struct ha_why *why)
{
    char part[sizeof d->path + sizeof HA_PART];
    struct meta m = { .count = 0 };
    if (d->status != HA_OK) return ha_why(why, d->status, "dump: %s", d->why.text);
    if (has_own(d)) say_size(d, ", with what states have of their own");
    note_case(&m, d, id);
    note_claims(&m, d);
    snprintf(part, sizeof part, "%s" HA_PART, d->path);
    enum ha_status status = write_part(d, part, &m, why);
    if (status == HA_OK) status = ha_file_take_name(part, d->path, why);
    else unlink(part);
    free(m.text);
    return status == HA_OK ? HA_OK : ha_why_prefix(why, status, "dump");
}

static void free_tensors(struct ha_tensor *tensor, size_t count)
{
    for (size_t i = 0; tensor && i < count; i++) {
        free((char *)(uintptr_t)tensor[i].name);
        free((void *)(uintptr_t)tensor[i].data);
    }
    free(tensor);
}

void ha_dump_free(struct ha_dump *d)
{
    free_tensors(d->tensor, d->count);
    free_tensors(d->note, d->notes);
    free(d->profile);
    *d = (struct ha_dump){ .tensor = NULL };
}
