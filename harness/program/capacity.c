#include "harness/program/commands.h"

#include "harness/base/storage.h"
#include "harness/base/model.h"
#include "harness/base/why.h"
#include "harness/engine/point.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- MODEL ------------------------------------------------------------------------------------------------------- */

static enum ha_status number(const char *key, const char *text, char stop, uint64_t max, size_t *out, const char **end,
                             struct ha_why *why)
{
    uint64_t x = 0;
    if (!ha_whole_parse(text, &x, end) || (**end && **end != stop) || x < 1 || x > max)
        return ha_why(why, HA_ERROR, "%s: '%.80s' is not a whole number from 1 to %" PRIu64, key, text, max);
    *out = x;
    return HA_OK;
}

static enum ha_status set_layers(struct ha_cached *c, const char *value, struct ha_why *why)
{
    const char *end;
    return number("layers", value, 0, 1024, &c->layers, &end, why);
}

static enum ha_status set_heads(struct ha_cached *c, const char *value, struct ha_why *why)
{
    const char *end;
    HA_TRY(number("heads", value, '/', 1024, &c->q_heads, &end, why));
    c->kv_heads = c->q_heads;
    if (*end) HA_TRY(number("heads", end + 1, 0, 1024, &c->kv_heads, &end, why));
    if (c->q_heads % c->kv_heads)
        return ha_why(why, HA_ERROR, "heads: %zu query heads are not a multiple of %zu KV heads", c->q_heads,
                      c->kv_heads);
    return HA_OK;
}

static enum ha_status set_head_dim(struct ha_cached *c, const char *value, struct ha_why *why)
{
    const char *end;
    HA_TRY(number("head_dim", value, 0, 576, &c->head_dim, &end, why));
    return c->head_dim % 8 ? ha_why(why, HA_ERROR, "head_dim: %zu is not a multiple of 8", c->head_dim) : HA_OK;
}

static enum ha_status set_weights(struct ha_cached *c, const char *value, struct ha_why *why)
{
    const enum ha_status status = ha_bytes_parse(value, &c->weights_bytes, why);
    return status == HA_OK ? HA_OK : ha_why_prefix(why, status, "weights");
}

static const struct {
    const char *name;
    enum ha_status (*set)(struct ha_cached *c, const char *value, struct ha_why *why);
} keys[] = {
    { "layers", set_layers }, { "heads", set_heads }, { "head_dim", set_head_dim }, { "weights", set_weights }
};
enum { KEYS = sizeof keys / sizeof *keys };

static enum ha_status set_named(struct ha_cached *c, const char *name, struct ha_why *why)
{
    const char *names[HA_MODELS_COUNT + 1] = { NULL };
    size_t i;
    for (size_t k = 0; k < HA_MODELS_COUNT; k++) names[k] = ha_models[k].name;
    HA_TRY(ha_word_find("model", name, names, &i, why));
    const struct ha_model *m = &ha_models[i];
    *c = (struct ha_cached){ m->layers, m->q_heads, m->kv_heads, m->head_dim, 2 * m->parameters };
    return HA_OK;
}

/* A name, KEY=VALUE, or a name and such, between commas. */
static enum ha_status read_model(const char *text, struct ha_cached *out, struct ha_why *why)
{
    char words[256], *rest = words, *word;
    const char *names[KEYS + 1] = { NULL };
    unsigned given = 0;
    *out = (struct ha_cached){ 0 };
    for (size_t i = 0; i < KEYS; i++) names[i] = keys[i].name;
    if ((size_t)snprintf(words, sizeof words, "%s", text) >= sizeof words)
        return ha_why(why, HA_ERROR, "'%.80s...' is too long for a model", text);
    for (bool first = true; (word = strsep(&rest, ",")); first = false) {
        char *value = strchr(word, '=');
        size_t i;
        if (!value && first) {
            HA_TRY(set_named(out, word, why));
            given = (1u << KEYS) - 1;
            continue;
        }
        if (!value) return ha_why(why, HA_ERROR, "'%.80s' is not KEY=VALUE; a model's name stands first", word);
        *value++ = '\0';
        HA_TRY(ha_word_find("key", word, names, &i, why));
        HA_TRY(keys[i].set(out, value, why));
        given |= 1u << i;
    }
    for (size_t i = 0; i < KEYS; i++)
        if (!(given >> i & 1)) return ha_why(why, HA_ERROR, "%s=... is missing, or the name of a model", keys[i].name);
    return HA_OK;
}

/* ---- what is said ------------------------------------------------------------------------------------------------ */

/* of one storage */
struct figures {
    char name[HA_STORAGE_NAME];
    size_t bits;                      /* of a code, or of a number */
    double device, host, step, share; /* bytes of a token; of a token of the first */
    uint64_t books, fixed, tokens;    /* bytes; how many fit */
    struct ha_need need;              /* of so many as are asked for */
    bool known;                       /* whether that is below 2^64 */
};

/* What it takes to keep so many tokens is in whole blocks and slabs, so that twice as many take twice as much. */
enum { MANY = 1 << 20 };

static void find(const struct ha_storage *l, const struct ha_cached *c, const struct ha_options *o, struct figures *f)
{
    struct ha_storage full;
    struct ha_need none, many, more, all;
    ha_storage_at(0, &full);
    ha_storage_need(&full, c, MANY, &all);
    ha_storage_need(l, c, 0, &none);
    ha_storage_need(l, c, MANY, &many);
    ha_storage_need(l, c, 2 * MANY, &more);
    *f = (struct figures){
        .bits = l->codes ? ha_storage_pq(l, c->head_dim).bits : 16,
        .device = (double)many.kv / MANY,
        .host = (double)many.kv_host / MANY,
        .step = (double)(more.step - many.step) / MANY,
        .share = (double)many.kv / (double)all.kv,
        .books = many.books,
        .fixed = none.step + many.fresh,
        .tokens = ha_storage_tokens(l, c, o->memory_bytes),
    };
    ha_storage_name(l, f->name);
    f->known = o->tokens && ha_storage_need(l, c, o->tokens, &f->need);
}

static bool fits(const struct figures *f, const struct ha_options *o)
{
    return f->known && f->need.device <= o->memory_bytes;
}

static void print_size(const char *text, uint64_t bytes)
{
    printf("%s%.2f GB (%.2f GiB)", text, (double)bytes / 1e9, (double)bytes / (1 << 30));
}

static void print_head(const char *model, const struct ha_cached *c, const struct ha_options *o)
{
    printf("%s: %zu layers, heads %zu/%zu x %zu", model, c->layers, c->q_heads, c->kv_heads, c->head_dim);
    print_size("; weights ", c->weights_bytes);
    if (o->memory_bytes) {
        print_size("; memory ", o->memory_bytes);
        print_size(", beside the weights ", o->memory_bytes - c->weights_bytes);
    }
    printf("\n`device`, `host`, `step`: bytes of a token (habench capacity --help)");
    if (o->tokens) printf("; behind them what %" PRIu64 " tokens need", o->tokens);
    printf("\n\n%-48s %4s %8s %8s %6s %8s %18s %8s", "case", "bits", "device", "host", "step", "of full",
           "books MB (f16)", "fixed MB");
    if (o->memory_bytes) printf(" %13s", "tokens");
    if (o->tokens) printf(" %10s %10s %10s", "cache GB", "device GB", "host GB");
    puts(o->tokens && o->memory_bytes ? "  fit" : "");
}

static void print_row(const struct figures *f, const struct ha_options *o)
{
    printf("%-48s %4zu %8.8g %8.8g %6.6g %7.4g%% %9.2f (%6.2f) %8.2f", f->name, f->bits, f->device, f->host, f->step,
           100 * f->share, (double)f->books / 1e6, (double)f->books / 2e6, (double)f->fixed / 1e6);
    if (o->memory_bytes) printf(" %13" PRIu64, f->tokens);
    if (f->known)
        printf(" %10.1f %10.1f %10.1f", (double)f->need.kv / 1e9, (double)f->need.device / 1e9,
               (double)f->need.host / 1e9);
    else if (o->tokens) printf(" %10s %10s %10s", "-", "-", "-");
    if (o->tokens && o->memory_bytes) printf("  %s", fits(f, o) ? "yes" : "no");
    putchar('\n');
}

static void print_json(const char *model, const struct ha_cached *c, const struct figures *f,
                       const struct ha_options *o)
{
    printf("{\"row\":\"capacity\",\"model\":\"%s\",\"weights_bytes\":%" PRIu64 ",\"case\":\"%s\",\"bits\":%zu", model,
           c->weights_bytes, f->name, f->bits);
    printf(",\"device_token_bytes\":%.17g,\"host_token_bytes\":%.17g,\"step_token_bytes\":%.17g,\"of_full\":%.17g",
           f->device, f->host, f->step, f->share);
    printf(",\"books_bytes\":%" PRIu64 ",\"fixed_bytes\":%" PRIu64, f->books, f->fixed);
    if (o->memory_bytes) printf(",\"memory_bytes\":%" PRIu64 ",\"tokens\":%" PRIu64, o->memory_bytes, f->tokens);
    if (o->tokens) printf(",\"asked_tokens\":%" PRIu64, o->tokens);
    if (f->known)
        printf(",\"cache_bytes\":%" PRIu64 ",\"device_bytes\":%" PRIu64 ",\"host_cache_bytes\":%" PRIu64
               ",\"host_bytes\":%" PRIu64,
               f->need.kv, f->need.device, f->need.kv_host, f->need.host);
    if (o->tokens && o->memory_bytes) printf(",\"fit\":%s", fits(f, o) ? "true" : "false");
    printf("}\n");
}

enum ha_exit ha_command_capacity(const struct ha_options *o, struct ha_why *why)
{
    const char *model = o->words[0];
    struct ha_cached cached;
    struct ha_storage storage;
    if (read_model(model, &cached, why) != HA_OK) return HA_EXIT_USAGE;
    if (o->memory_bytes && o->memory_bytes < cached.weights_bytes) {
        ha_why(why, HA_ERROR, "the weights of %.80s are %" PRIu64 " bytes, and --memory is %" PRIu64, model,
               cached.weights_bytes, o->memory_bytes);
        return HA_EXIT_USAGE;
    }
    if (!o->json) print_head(model, &cached, o);
    for (size_t i = 0; ha_storage_at(i, &storage); i++) {
        struct figures figures;
        find(&storage, &cached, o, &figures);
        if (o->json) print_json(model, &cached, &figures, o);
        else print_row(&figures, o);
    }
    return HA_EXIT_OK;
}
