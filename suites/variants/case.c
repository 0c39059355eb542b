#include "suites/variants/case.h"

#include "harness/base/pool.h"
#include "harness/base/registry.h"
#include "harness/base/why.h"
#include "harness/engine/plan.h"
#include "harness/engine/point.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* size_t members and the uint64_t seed are read by one kind of key */
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "a 64-bit host");

/* ---- variants and their params ---------------------------------------------------------------------------------- */

static const char *variant_word(size_t i) { return i < ha_variants_count ? ha_variants_all[i]->name : NULL; }

static enum ha_status set_variant(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    const char *names[64] = { NULL };
    struct ha_case *c = point;
    const struct ha_variant *v = ha_variant_find(value);
    for (size_t i = 0; i < ha_variants_count && i < 63; i++) names[i] = variant_word(i);
    if (!v) return ha_unknown(why, key->name, value, names);
    memset(c->variant, 0, sizeof c->variant);
    snprintf(c->variant, sizeof c->variant, "%s", v->name);
    for (size_t i = 0; i < HA_PARAMS_MAX; i++) c->param[i] = i < v->params_count ? v->params[i].value : 0;
    return HA_OK;
}

static void print_text(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    snprintf(out, HA_VALUE_MAX, "%s", (const char *)point + key->offset);
}

/* the families, each once */
static const char *family_word(size_t i)
{
    for (size_t v = 0; v < ha_variants_count; v++) {
        size_t first = 0;
        while (strcmp(ha_variants_all[first]->family, ha_variants_all[v]->family) != 0) first++;
        if (first == v && i-- == 0) return ha_variants_all[v]->family;
    }
    return NULL;
}

static void print_family(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    const struct ha_variant *v = ha_variant_find(((const struct ha_case *)point)->variant);
    snprintf(out, HA_VALUE_MAX, "%s", v ? v->family : "");
}

static const char *param_standard(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    const struct ha_variant *v = ha_variant_find(((const struct ha_case *)point)->variant);
    const size_t i = (key->offset - offsetof(struct ha_case, param)) / sizeof(double);
    if (v && i < v->params_count) ha_param_print(&v->params[i], v->params[i].value, out);
    else ha_number_print(0, out);
    return out;
}

void ha_param_print(const struct ha_param *p, double value, char out[HA_VALUE_MAX])
{
    if (p->word) snprintf(out, HA_VALUE_MAX, "%s", p->word((size_t)value));
    else ha_number_print(value, out);
}

bool ha_case_param(const void *point, size_t i, struct ha_key *out)
{
    const struct ha_variant *v = ha_variant_find(((const struct ha_case *)point)->variant);
    if (!v || i >= v->params_count || i >= HA_PARAMS_MAX) return false;
    const struct ha_param *p = &v->params[i];
    size_t words = 0;
    while (p->word && p->word(words)) words++;
    *out = (struct ha_key){ .name = p->name,
                            .value = "",
                            .doc = p->doc,
                            .kind = HA_KEY_REAL,
                            .offset = offsetof(struct ha_case, param) + i * sizeof(double),
                            .least = p->min,
                            .most = words ? (double)words - 1 : p->max,
                            .whole = p->whole || words,
                            .power_of_2 = p->power_of_2,
                            .word = p->word,
                            .standard = param_standard,
                            .draw = p->draw ? p->draw
                                    : words ? "*"
                                            : NULL };
    return true;
}

const char *ha_case_param_name(size_t i)
{
    for (size_t v = 0; v < ha_variants_count; v++) {
        if (i < ha_variants_all[v]->params_count) return ha_variants_all[v]->params[i].name;
        i -= ha_variants_all[v]->params_count;
    }
    return NULL;
}

/* ---- what a file or a model says -------------------------------------------------------------------------------- */

const struct ha_dataset *ha_case_dataset(const struct ha_case *c, const char **file)
{
    const size_t n = strcspn(c->dataset, "/");
    if (file) *file = c->dataset[n] == '/' && c->dataset[n + 1] ? c->dataset + n + 1 : NULL;
    return ha_dataset_find(c->dataset, n);
}

static bool reads_file(const struct ha_case *c)
{
    const struct ha_dataset *d = ha_case_dataset(c, NULL);
    return d && d->needs_file;
}

static bool lengths_from_file(const struct ha_case *c)
{
    const struct ha_dataset *d = ha_case_dataset(c, NULL);
    return d && d->fixes_lengths;
}

/* "0" with a dataset that is read from a file: the file says; else what the model has, if one is named. */
static const char *shape_standard(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    struct ha_case like = *(const struct ha_case *)point;
    const struct ha_model *m = ha_case_model(&like);
    if (reads_file(&like)) return "0";
    if (!m) return key->value;
    like.shape.layers = m->layers;
    like.shape.q_heads = m->q_heads;
    like.shape.kv_heads = m->kv_heads;
    like.shape.head_dim = m->head_dim;
    ha_point_value(&like, key, out);
    return out;
}

/* "0" where the file says, or is asked for no queries ahead of its own */
static const char *lengths_standard(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    return lengths_from_file(point) ? "0" : key->value;
}

/* A whole number from min to max; 0 also where the file may say. end: NULL, or what follows it. */
static enum ha_status read_whole(const struct ha_case *c, const struct ha_key *key, const char *text, char stop,
                                 uint64_t *out, const char **end, struct ha_why *why)
{
    const char *behind;
    if (!end) end = &behind;
    if (!ha_whole_parse(text, out, end) || (**end && **end != stop))
        return ha_why(why, HA_ERROR, "%s: '%.80s' is not a whole number up to %" PRIu64, key->name, text, key->max);
    const bool of_shape = key->standard == shape_standard,
               file_says = *out == 0 && (of_shape ? reads_file(c) : lengths_from_file(c));
    if (of_shape && !file_says && *out == 0)
        return ha_why(why, HA_ERROR, "%s: 0 is for datasets that are read from a file", key->name);
    if (!file_says && *out < key->min)
        return ha_why(why, HA_ERROR, "%s: %" PRIu64 " is below %" PRIu64, key->name, *out, key->min);
    if (*out > key->max) return ha_why(why, HA_ERROR, "%s: %" PRIu64 " is above %" PRIu64, key->name, *out, key->max);
    return HA_OK;
}

static enum ha_status set_layers(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    struct ha_case *c = point;
    uint64_t x = 0;
    HA_TRY(read_whole(c, key, value, 0, &x, NULL, why));
    c->shape.layers = x;
    return HA_OK;
}

static enum ha_status set_head_dim(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    struct ha_case *c = point;
    uint64_t x = 0;
    HA_TRY(read_whole(c, key, value, 0, &x, NULL, why));
    if (x % 8 != 0) return ha_why(why, HA_ERROR, "head_dim: %" PRIu64 " is not a multiple of 8", x);
    c->shape.head_dim = x;
    c->shape.scale = x ? 1.0f / sqrtf((float)x) : 0.0f;
    return HA_OK;
}

/* "32/8", or "32" for as many KV heads */
static enum ha_status set_heads(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    struct ha_case *c = point;
    uint64_t q = 0, kv = 0;
    const char *end;
    HA_TRY(read_whole(c, key, value, '/', &q, &end, why));
    kv = q;
    if (*end == '/') HA_TRY(read_whole(c, key, end + 1, 0, &kv, NULL, why));
    if (kv == 0 ? q != 0 : q % kv != 0)
        return ha_why(why, HA_ERROR, "heads: %" PRIu64 " query heads are not a multiple of %" PRIu64 " KV heads", q,
                      kv);
    if (q == 0 && kv != 0) return ha_why(why, HA_ERROR, "heads: no query head");
    c->shape.q_heads = q;
    c->shape.kv_heads = kv;
    return HA_OK;
}

static void print_heads(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    const struct ha_shape *s = &((const struct ha_case *)point)->shape;
    if (s->q_heads == 0) snprintf(out, HA_VALUE_MAX, "0");
    else snprintf(out, HA_VALUE_MAX, "%zu/%zu", s->q_heads, s->kv_heads);
}

/* ---- datasets and models ----------------------------------------------------------------------------------------- */

static enum ha_status set_dataset(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    struct ha_case next = *(struct ha_case *)point;
    const struct ha_key name = {
        .name = key->name, .kind = HA_KEY_NAME, .offset = offsetof(struct ha_case, dataset), .max = sizeof next.dataset
    };
    const char *file, *names[32] = { NULL };
    HA_TRY(ha_point_set(&next, &name, value, why));
    const struct ha_dataset *d = ha_case_dataset(&next, &file);
    for (size_t i = 0; i < ha_datasets_count && i < 31; i++) names[i] = ha_datasets_all[i]->name;
    if (!d) return ha_unknown(why, "dataset", value, names);
    if (d->needs_file && !file)
        return ha_why(why, HA_ERROR, "dataset: %s/FILE is needed; FILE is %s", d->name, d->needs_file);
    if (!d->needs_file && strchr(value, '/'))
        return ha_why(why, HA_ERROR, "dataset: '%.80s': %s takes no file", value, d->name);
    *(struct ha_case *)point = next;
    return HA_OK;
}

static const char *model_word(size_t i)
{
    return i == 0 ? "none" : i <= HA_MODELS_COUNT ? ha_models[i - 1].name : NULL;
}

const struct ha_model *ha_case_model(const struct ha_case *c) { return c->model ? &ha_models[c->model - 1] : NULL; }

/* ---- lengths ----------------------------------------------------------------------------------------------------- */

static bool same_ctx(const struct ha_shape *s)
{
    for (size_t b = 1; b < s->batch; b++)
        if (s->ctx[b] != s->ctx[0]) return false;
    return true;
}

/* One length goes for every sequence; several set the batch. batch is 0 where the file says it. */
static enum ha_status set_ctx(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    struct ha_shape *s = &((struct ha_case *)point)->shape;
    size_t ctx[HA_BATCH_MAX] = { 0 }, n = 0;
    for (const char *p = value;; p++) {
        uint64_t x = 0;
        if (n == HA_BATCH_MAX) return ha_why(why, HA_ERROR, "ctx: more than %d lengths", HA_BATCH_MAX);
        HA_TRY(read_whole(point, key, p, '+', &x, &p, why));
        ctx[n++] = x;
        if (!*p) break;
    }
    if (n == 1 && ctx[0] == 0 && lengths_from_file(point)) s->batch = 0;
    else if (n > 1 || !s->batch) s->batch = n;
    for (size_t b = 0; b < HA_BATCH_MAX; b++) s->ctx[b] = b >= s->batch ? 0 : ctx[n == 1 ? 0 : b];
    return HA_OK;
}

void ha_ctx_print(const struct ha_shape *s, char *out, size_t size)
{
    const size_t lengths = same_ctx(s) ? 1 : s->batch;
    size_t n = 0;
    for (size_t b = 0; b < lengths && n < size; b++)
        n += (size_t)snprintf(out + n, size - n, "%s%zu", b ? "+" : "", s->ctx[b]);
}

static void print_ctx(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    ha_ctx_print(&((const struct ha_case *)point)->shape, out, HA_VALUE_MAX);
}

/* What says nothing stands beside any ctx: batch=1, or 0 where the file says. */
static enum ha_status set_batch(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    struct ha_shape *s = &((struct ha_case *)point)->shape;
    uint64_t x = 0;
    HA_TRY(read_whole(point, key, value, 0, &x, NULL, why));
    if (x == 0) return HA_OK;
    if (same_ctx(s)) {
        for (size_t b = 0; b < HA_BATCH_MAX; b++) s->ctx[b] = b < x ? s->ctx[0] : 0;
        s->batch = x;
    } else if (x != 1 && x != s->batch) {
        return ha_why(why, HA_ERROR, "batch: %" PRIu64 ", but ctx has %zu lengths", x, s->batch);
    }
    return HA_OK;
}

static void print_batch(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    const struct ha_shape *s = &((const struct ha_case *)point)->shape;
    snprintf(out, HA_VALUE_MAX, "%zu", same_ctx(s) ? s->batch : lengths_from_file(point) ? 0 : 1);
}

/* q_len and steps */
static enum ha_status set_length(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    struct ha_key plain = *key;
    plain.set = NULL;
    if (lengths_from_file(point)) plain.min = 0;
    return ha_point_set(point, &plain, value, why);
}

/* ---- words ------------------------------------------------------------------------------------------------------ */

static const char *load_word(size_t i)
{
    return i == HA_LOAD_ATTENTION ? "attention" : i == HA_LOAD_LAYER ? "layer" : NULL;
}

static const char *repeat_word(size_t i) { return i ? NULL : "auto"; }

/* an enum, which is shorter than the number that a key is */
static enum ha_status set_dtype(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    struct ha_key wide = *key;
    uint64_t i = 0;
    wide.set = NULL;
    wide.offset = 0;
    HA_TRY(ha_point_set(&i, &wide, value, why));
    ((struct ha_case *)point)->shape.dtype = (enum ha_dtype)i;
    return HA_OK;
}

static void print_dtype(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    snprintf(out, HA_VALUE_MAX, "%s", ha_dtype_name(((const struct ha_case *)point)->shape.dtype));
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

_Static_assert(HA_TEAM_DEFAULT == HA_TEAM_OPENMP, "the default of team");
#define AT(member) .offset = offsetof(struct ha_case, member)
#define OWN(what)  .set = set_##what, .print = print_##what
/* Tokens are numbered in 32 bits (ha_part.token); ha_case_settle adds the new ones. */
#define TOKENS_MAX UINT32_MAX

const struct ha_key ha_case_keys[] = {
    { "variant", "", "habench list variants", HA_KEY_WORD, AT(variant), .word = variant_word, .always = true,
      .set = set_variant, .print = print_text, .draw = "*" },
    { "family", "", "of the variant", HA_KEY_FACT, .word = family_word, .print = print_family },
    { "device", "host", "host, cuda, or the path of a plugin (.so)", HA_KEY_NAME, AT(device),
      .max = sizeof((struct ha_case *)0)->device, .device = true },
    { "isa", "best", "CPU kernels: habench list kernels", HA_KEY_WORD, AT(isa), .word = ha_isa_word,
      .draw = "best best best *" },
    { "dataset", "sinks", "where queries, keys and values come from; trace/FILE and flashinfer/FILE are read",
      HA_KEY_NAME, AT(dataset), .always = true, .set = set_dataset, .print = print_text,
      .draw = "sinks iid needle drift residual walk adversarial" },
    { "fit", "none", "what the variant has learnt offline (habench fit): a path, or a name of datasets/fits",
      HA_KEY_NAME, AT(fit), .max = sizeof((struct ha_case *)0)->fit },
    { "model", "none", "whose layer it is (habench list models): its heads, head_dim and layers", HA_KEY_WORD,
      AT(model), .word = model_word },
    { "load", "attention", "layer: the products of the model's layer run around its attention", HA_KEY_WORD, AT(load),
      .word = load_word },
    { "ctx", "4096", "tokens before the first step; lengths joined by + make a batch of them: 1000+3000", HA_KEY_NUMBER,
      .always = true, .max = TOKENS_MAX, OWN(ctx), .standard = lengths_standard,
      .draw = "0..131072 0..131072 0..131072 0..8192+0..8192 0..512+0..512+0..512+0..512+0..512" },
    { "batch", "1", "sequences of the same ctx", HA_KEY_NUMBER, .min = 1, .max = HA_BATCH_MAX, OWN(batch),
      .standard = lengths_standard, .draw = "1 1 1..256" },
    { "q_len", "1", "query tokens in a step: 1 is decode, more is append", HA_KEY_NUMBER, AT(shape.q_len), .min = 1,
      .max = 65536, .set = set_length, .standard = lengths_standard, .draw = "1 1 1..300" },
    { "steps", "8", "steps after the context", HA_KEY_NUMBER, AT(shape.steps), .min = 1, .max = 1000000,
      .set = set_length, .standard = lengths_standard, .draw = "1..4 1..4 1..64" },
    { "observed", "16", "last tokens of the context whose queries a variant sees beforehand", HA_KEY_NUMBER,
      AT(shape.observed), .max = TOKENS_MAX, .standard = lengths_standard, .draw = "0..64" },
    { "layers", "2", "layers of the model", HA_KEY_NUMBER, AT(shape.layers), .min = 1, .max = 1024, .set = set_layers,
      .standard = shape_standard, .draw = "1 2 1..4" },
    { "heads", "8/2", "query heads / KV heads; one number is both", HA_KEY_PAIR, .min = 1, .max = 1024, OWN(heads),
      .standard = shape_standard, .draw = "1..16:1/1..8 1..16:1/1 1..8/1..128" },
    { "head_dim", "64", "dimension of a head, a multiple of 8", HA_KEY_NUMBER, AT(shape.head_dim), .min = 8, .max = 576,
      .set = set_head_dim, .standard = shape_standard, .draw = "8..576:8 8..256:8 64 80 96 128 160 192 256" },
    { "model_dim", "0", "dimension of a layer's input, where the dataset has one", HA_KEY_NUMBER, AT(shape.model_dim),
      .max = 65536 },
    { "dtype", "f16", "of keys and values", HA_KEY_WORD, .word = ha_dtype_word, .always = true, OWN(dtype),
      .draw = "*" },
    { "seed", "1", "of the dataset", HA_KEY_NUMBER, AT(seed), .max = UINT64_MAX, .draw = "1..1000000:1" },
    { "threads", "0", "of the CPU side; 0: the cores that the device leaves free", HA_KEY_NUMBER, AT(threads),
      .max = 1024, .draw = "0 1..8" },
    { "team", "openmp", "whose threads they are", HA_KEY_WORD, AT(team), .word = ha_team_name, .draw = "*" },
    { "graph", "0", "1: a step's work on the device is captured as a graph, and launched at once", HA_KEY_NUMBER,
      AT(graph), .max = 1, .draw = "0 0 0 1" },
    { "repeat", "auto",
      "further passes of a check over the same input, which must give the same bits; auto: one, of "
      "a third of all cases",
      HA_KEY_NUMBER, AT(repeat), .max = 100000000, .word = repeat_word },
};
_Static_assert(sizeof ha_case_keys / sizeof *ha_case_keys == HA_CASE_KEYS, "HA_CASE_KEYS");

/* ---- a case ------------------------------------------------------------------------------------------------------ */

const char *ha_case_isa(const struct ha_case *c) { return c->isa ? ha_isa_word(c->isa) : NULL; }

bool ha_case_has_fit(const struct ha_case *c) { return *c->fit && strcmp(c->fit, "none") != 0; }

enum ha_status ha_case_reads_fit(const struct ha_case *c, struct ha_why *why)
{
    char those[256] = "";
    size_t n = 0;
    const struct ha_variant *v = ha_variant_find(c->variant);
    if (v && v->fit) return HA_OK;
    for (size_t i = 0; i < ha_variants_count && n < sizeof those; i++)
        if (ha_variants_all[i]->fit)
            n += (size_t)snprintf(those + n, sizeof those - n, " %s", ha_variants_all[i]->name);
    return ha_why(why, HA_ERROR, "fit: %s learns nothing; %s%s", c->variant, n ? "those that do:" : "no variant does",
                  those);
}

enum ha_status ha_case_settle(void *point, struct ha_why *why)
{
    const struct ha_case *c = point;
    const struct ha_shape *s = &c->shape;
    const struct ha_model *m = ha_case_model(c);
    if (!*c->variant) return ha_why(why, HA_ERROR, "which variant? `habench list variants` prints them");
    if (ha_case_has_fit(c)) HA_TRY(ha_case_reads_fit(c, why));
    const struct ha_variant *v = ha_variant_find(c->variant);
    if (v && v->agree) HA_TRY(v->agree(c->param, why));
    if (c->load == HA_LOAD_LAYER && !m)
        return ha_why(why, HA_ERROR, "load: whose layers? load=layer goes with model=NAME");
    if (m
        && ((s->q_heads && (s->q_heads != m->q_heads || s->kv_heads != m->kv_heads))
            || (s->head_dim && s->head_dim != m->head_dim)))
        return ha_why(why, HA_ERROR, "model: %s has heads %zu/%zu of %zu, not %zu/%zu of %zu", m->name, m->q_heads,
                      m->kv_heads, m->head_dim, s->q_heads, s->kv_heads, s->head_dim);
    const uint64_t new_tokens = (uint64_t)s->q_len * s->steps; /* < 2^37 by the limits of the keys */
    for (size_t b = 0; b < s->batch; b++)
        if (s->ctx[b] + new_tokens > UINT32_MAX)
            return ha_why(why, HA_ERROR, "ctx: %zu and %" PRIu64 " new tokens (q_len * steps) are more than %" PRIu32,
                          s->ctx[b], new_tokens, UINT32_MAX);
    return HA_OK;
}

enum ha_status ha_case_parse(const char *id, struct ha_case *out, struct ha_why *why)
{
    const struct ha_suite *suite;
    return ha_id_parse(id, &suite, out, sizeof *out, why);
}
