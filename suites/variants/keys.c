#include "suites/variants/keys.h"

#include "harness/base/why.h"
#include "harness/base/registry.h"
#include "harness/base/words.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* size_t members and the uint64_t seed are read through one pair of functions */
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "a 64-bit host");

static size_t *field(struct ha_case *c, const struct ha_key *key)
{
    return (size_t *)(void *)((char *)c + key->offset);
}

/* decimal digits up to the end or to `stop`; *end is where they end */
static enum ha_status parse_whole(const struct ha_key *key, const char *text, char stop, uint64_t *out,
                                  const char **end, struct ha_why *why)
{
    uint64_t x = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(x, 10u, &x) || __builtin_add_overflow(x, (uint64_t)(*p - '0'), &x))
            return ha_why(why, HA_ERROR, "%s: '%.80s' is too large", key->name, text);
    if (p == text || (*p && *p != stop))
        return ha_why(why, HA_ERROR, "%s: '%.80s' is not a whole number", key->name, text);
    const bool file_says = key->from_file && x == 0;
    if (!file_says && x < key->min)
        return ha_why(why, HA_ERROR, "%s: %" PRIu64 " is below %" PRIu64, key->name, x, key->min);
    if (x > key->max) return ha_why(why, HA_ERROR, "%s: %" PRIu64 " is above %" PRIu64, key->name, x, key->max);
    *out = x;
    *end = p;
    return HA_OK;
}

static enum ha_status set_size(struct ha_case *c, const struct ha_key *key, const char *value, struct ha_why *why)
{
    uint64_t x = 0;
    const char *end;
    const enum ha_status st = parse_whole(key, value, 0, &x, &end, why);
    if (st == HA_OK) *field(c, key) = x;
    return st;
}

static void print_size(const struct ha_case *c, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    struct ha_case copy = *c;
    snprintf(out, HA_VALUE_MAX, "%zu", *field(&copy, key));
}

/* A name in an id: no blank, no comma, nothing that does not print. */
static enum ha_status set_name(char *out, size_t size, const struct ha_key *key, const char *value, struct ha_why *why)
{
    const size_t n = strlen(value);
    if (n == 0) return ha_why(why, HA_ERROR, "%s: a value is missing", key->name);
    if (n >= size)
        return ha_why(why, HA_ERROR, "%s: '%.40s...' is longer than %zu characters", key->name, value, size - 1);
    for (const char *p = value; *p; p++)
        if (*p == ',' || *p <= ' ' || *p == 127)
            return ha_why(why, HA_ERROR, "%s: a blank, a comma or a control character cannot stand in a case's id",
                          key->name);
    memset(out, 0, size);
    memcpy(out, value, n);
    return HA_OK;
}

static enum ha_status set_device(struct ha_case *c, const struct ha_key *key, const char *value, struct ha_why *why)
{
    return set_name(c->device, sizeof c->device, key, value, why);
}

static void print_device(const struct ha_case *c, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    (void)key;
    snprintf(out, HA_VALUE_MAX, "%s", c->device);
}

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

const char *ha_key_default(const struct ha_key *key, const struct ha_case *c, char out[HA_VALUE_MAX])
{
    if (!key->from_file) return key->value;
    if (reads_file(c)) return "0";
    if (!c->model) return key->value;
    struct ha_case like = *c;
    like.shape.layers = c->model->layers;
    like.shape.q_heads = c->model->q_heads;
    like.shape.kv_heads = c->model->kv_heads;
    like.shape.head_dim = c->model->head_dim;
    key->print(&like, key, out);
    return out;
}

/* Dataset or model is another one: what they say takes the place of what was there. */
static void set_shape(struct ha_case *c, struct ha_why *why)
{
    char value[HA_VALUE_MAX];
    for (size_t i = 0; i < HA_KEYS_COUNT; i++)
        if (ha_keys[i].from_file) ha_keys[i].set(c, &ha_keys[i], ha_key_default(&ha_keys[i], c, value), why);
}

static enum ha_status set_dataset(struct ha_case *c, const struct ha_key *key, const char *value, struct ha_why *why)
{
    struct ha_case next = *c;
    const enum ha_status st = set_name(next.dataset, sizeof next.dataset, key, value, why);
    if (st != HA_OK) return st;

    const char *file;
    const struct ha_dataset *d = ha_case_dataset(&next, &file);
    if (!d) {
        const char *names[32] = { NULL };
        for (size_t i = 0; i < ha_datasets_count && i + 1 < sizeof names / sizeof *names; i++)
            names[i] = ha_datasets_all[i]->name;
        return ha_unknown(why, "dataset", value, names);
    }
    if (d->needs_file && !file)
        return ha_why(why, HA_ERROR, "dataset: %s/FILE is needed; FILE is %s", d->name, d->needs_file);
    if (!d->needs_file && strchr(value, '/'))
        return ha_why(why, HA_ERROR, "dataset: '%.80s': %s takes no file", value, d->name);

    const bool changed = reads_file(c) != reads_file(&next);
    *c = next;
    if (changed) set_shape(c, why);
    return HA_OK;
}

static void print_dataset(const struct ha_case *c, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    (void)key;
    snprintf(out, HA_VALUE_MAX, "%s", c->dataset);
}

static enum ha_status set_model(struct ha_case *c, const struct ha_key *key, const char *value, struct ha_why *why)
{
    const char *names[HA_MODELS_COUNT + 2] = { "none" };
    const struct ha_model *model = NULL;
    for (size_t i = 0; i < HA_MODELS_COUNT; i++) {
        names[i + 1] = ha_models[i].name;
        if (!strcmp(value, ha_models[i].name)) model = &ha_models[i];
    }
    if (!model && strcmp(value, "none")) return ha_unknown(why, key->name, value, names);
    const bool changed = c->model != model;
    c->model = model;
    if (changed) set_shape(c, why);
    return HA_OK;
}

static void print_model(const struct ha_case *c, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    (void)key;
    snprintf(out, HA_VALUE_MAX, "%s", c->model ? c->model->name : "none");
}

static const char *const loads[] = { [HA_LOAD_ATTENTION] = "attention", [HA_LOAD_LAYER] = "layer", NULL };

static enum ha_status set_load(struct ha_case *c, const struct ha_key *key, const char *value, struct ha_why *why)
{
    for (int i = 0; loads[i]; i++) {
        if (strcmp(loads[i], value)) continue;
        c->load = (enum ha_load_kind)i;
        return HA_OK;
    }
    return ha_unknown(why, key->name, value, loads);
}

static void print_load(const struct ha_case *c, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    (void)key;
    snprintf(out, HA_VALUE_MAX, "%s", loads[c->load]);
}

static bool same_ctx(const struct ha_shape *s)
{
    for (size_t b = 1; b < s->batch; b++)
        if (s->ctx[b] != s->ctx[0]) return false;
    return true;
}

/* One length goes for every sequence; several set the batch. */
static enum ha_status set_ctx(struct ha_case *c, const struct ha_key *key, const char *value, struct ha_why *why)
{
    size_t ctx[HA_BATCH_MAX] = { 0 }, n = 0;
    for (const char *p = value;; p++) {
        uint64_t x = 0;
        if (n == HA_BATCH_MAX) return ha_why(why, HA_ERROR, "ctx: more than %d lengths", HA_BATCH_MAX);
        const enum ha_status st = parse_whole(key, p, '+', &x, &p, why);
        if (st != HA_OK) return st;
        ctx[n++] = x;
        if (!*p) break;
    }
    if (n > 1) c->shape.batch = n;
    for (size_t b = 0; b < HA_BATCH_MAX; b++) c->shape.ctx[b] = b >= c->shape.batch ? 0 : ctx[n == 1 ? 0 : b];
    return HA_OK;
}

static void print_ctx(const struct ha_case *c, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    (void)key;
    const size_t n = same_ctx(&c->shape) ? 1 : c->shape.batch;
    size_t used = 0;
    for (size_t b = 0; b < n; b++)
        used += (size_t)snprintf(out + used, HA_VALUE_MAX - used, "%s%zu", b ? "+" : "", c->shape.ctx[b]);
}

/* batch=1 says nothing, so that it stands beside any ctx */
static enum ha_status set_batch(struct ha_case *c, const struct ha_key *key, const char *value, struct ha_why *why)
{
    uint64_t x = 0;
    const char *end;
    const enum ha_status st = parse_whole(key, value, 0, &x, &end, why);
    if (st != HA_OK) return st;
    struct ha_shape *s = &c->shape;
    if (same_ctx(s)) {
        for (size_t b = 0; b < HA_BATCH_MAX; b++) s->ctx[b] = b < x ? s->ctx[0] : 0;
        s->batch = x;
    } else if (x != 1 && x != s->batch) {
        return ha_why(why, HA_ERROR, "batch: %" PRIu64 ", but ctx has %zu lengths", x, s->batch);
    }
    return HA_OK;
}

static void print_batch(const struct ha_case *c, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    (void)key;
    snprintf(out, HA_VALUE_MAX, "%zu", same_ctx(&c->shape) ? c->shape.batch : 1);
}

/* "32/8", or "32" for as many KV heads */
static enum ha_status set_heads(struct ha_case *c, const struct ha_key *key, const char *value, struct ha_why *why)
{
    uint64_t q = 0, kv = 0;
    const char *end;
    enum ha_status st = parse_whole(key, value, '/', &q, &end, why);
    if (st != HA_OK) return st;
    kv = q;
    if (*end == '/') st = parse_whole(key, end + 1, 0, &kv, &end, why);
    if (st != HA_OK) return st;
    if (kv == 0 ? q != 0 : q % kv != 0)
        return ha_why(why, HA_ERROR, "heads: %" PRIu64 " query heads are not a multiple of %" PRIu64 " KV heads", q,
                      kv);
    if (q == 0 && kv != 0) return ha_why(why, HA_ERROR, "heads: no query head");
    c->shape.q_heads = q;
    c->shape.kv_heads = kv;
    return HA_OK;
}

static void print_heads(const struct ha_case *c, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    (void)key;
    if (c->shape.q_heads == 0) snprintf(out, HA_VALUE_MAX, "0");
    else snprintf(out, HA_VALUE_MAX, "%zu/%zu", c->shape.q_heads, c->shape.kv_heads);
}

static enum ha_status set_head_dim(struct ha_case *c, const struct ha_key *key, const char *value, struct ha_why *why)
{
    uint64_t x = 0;
    const char *end;
    const enum ha_status st = parse_whole(key, value, 0, &x, &end, why);
    if (st != HA_OK) return st;
    if (x % 8 != 0) return ha_why(why, HA_ERROR, "head_dim: %" PRIu64 " is not a multiple of 8", x);
    c->shape.head_dim = x;
    c->shape.scale = x ? 1.0f / sqrtf((float)x) : 0.0f;
    return HA_OK;
}

static enum ha_status set_dtype(struct ha_case *c, const struct ha_key *key, const char *value, struct ha_why *why)
{
    (void)key;
    const char *names[HA_DTYPE_COUNT + 1] = { NULL };
    for (int t = 0; t < HA_DTYPE_COUNT; t++) {
        names[t] = ha_dtype_name((enum ha_dtype)t);
        if (strcmp(names[t], value)) continue;
        c->shape.dtype = (enum ha_dtype)t;
        return HA_OK;
    }
    return ha_unknown(why, "dtype", value, names);
}

static void print_dtype(const struct ha_case *c, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    (void)key;
    snprintf(out, HA_VALUE_MAX, "%s", ha_dtype_name(c->shape.dtype));
}

#define AT(member) .offset = offsetof(struct ha_case, member)
#define SIZE       .set = set_size, .print = print_size
/* Tokens are numbered in 32 bits (ha_part.token); ha_case_validate adds the new ones. */
#define TOKENS_MAX UINT32_MAX

const struct ha_key ha_keys[] = {
    { "device", "host", "host, cuda, or the path of a plugin (.so)", .set = set_device, .print = print_device },
    { "dataset", "sinks", "where queries, keys and values come from; trace/FILE reads a trace", .always = true,
      .set = set_dataset, .print = print_dataset },
    { "model", "none", "whose layer it is (habench list models): its heads, head_dim and layers", .set = set_model,
      .print = print_model },
    { "load", "attention", "layer: the products of the model's layer run around its attention", .set = set_load,
      .print = print_load },
    { "ctx", "4096", "tokens before the first step; lengths joined by + make a batch of them: 1000+3000",
      .always = true, .max = TOKENS_MAX, .set = set_ctx, .print = print_ctx },
    { "batch", "1", "sequences of the same ctx", .min = 1, .max = HA_BATCH_MAX, .set = set_batch,
      .print = print_batch },
    { "q_len", "1", "query tokens in a step: 1 is decode, more is append", AT(shape.q_len), .min = 1, .max = 65536,
      SIZE },
    { "steps", "8", "steps after the context", AT(shape.steps), .min = 1, .max = 1000000, SIZE },
    { "observed", "16", "last tokens of the context whose queries a variant sees beforehand", AT(shape.observed),
      .max = TOKENS_MAX, SIZE },
    { "layers", "2", "layers of the model", .from_file = true, AT(shape.layers), .min = 1, .max = 1024, SIZE },
    { "heads", "8/2", "query heads / KV heads; one number is both", .from_file = true, .min = 1, .max = 1024,
      .set = set_heads, .print = print_heads },
    { "head_dim", "64", "dimension of a head, a multiple of 8", .from_file = true, AT(shape.head_dim), .min = 8,
      .max = 256, .set = set_head_dim, .print = print_size },
    { "model_dim", "0", "dimension of a layer's input, where the dataset has one", AT(shape.model_dim), .max = 65536,
      SIZE },
    { "dtype", "f16", "of keys and values: f32, f16, bf16", .always = true, .set = set_dtype, .print = print_dtype },
    { "seed", "1", "of the dataset", AT(seed), .max = UINT64_MAX, SIZE },
    { "threads", "0", "of the CPU side; 0: the cores that the device leaves free", AT(threads), .max = 1024, SIZE },
};
_Static_assert(sizeof ha_keys / sizeof *ha_keys == HA_KEYS_COUNT, "HA_KEYS_COUNT");
