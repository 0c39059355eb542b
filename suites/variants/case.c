#include "suites/variants/case.h"

#include "harness/base/why.h"
#include "suites/variants/keys.h"
#include "harness/base/registry.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ha_case_defaults(struct ha_case *c, const struct ha_variant *variant)
{
    memset(c, 0, sizeof *c);
    snprintf(c->variant, sizeof c->variant, "%s", variant->name);
    c->shape.batch = 1;
    struct ha_why why;
    for (size_t i = 0; i < HA_KEYS_COUNT; i++) ha_keys[i].set(c, &ha_keys[i], ha_keys[i].value, &why);
    for (size_t i = 0; i < variant->params_count && i < HA_PARAMS_MAX; i++) c->param[i] = variant->params[i].value;
}

void ha_number_print(double x, char out[HA_VALUE_MAX])
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, HA_VALUE_MAX, "%.*g", digits, x);
        if (strtod(out, NULL) >= x && strtod(out, NULL) <= x) return;
    }
}

static enum ha_status set_param(double *out, const struct ha_param *p, const char *value, struct ha_why *why)
{
    char *end;
    const double x = strtod(value, &end);
    /* the set of characters keeps out what else strtod takes: blanks, hexadecimal, inf and nan */
    if (!*value || *end || value[strspn(value, "0123456789+-.eE")] || !isfinite(x))
        return ha_why(why, HA_ERROR, "%s: '%.80s' is not a finite number", p->name, value);
    if (!(x >= p->min && x <= p->max))
        return ha_why(why, HA_ERROR, "%s: %s is outside of [%g, %g]", p->name, value, p->min, p->max);
    *out = x + 0.0; /* -0 becomes 0 */
    return HA_OK;
}

enum ha_status ha_case_set(struct ha_case *c, const char *key, const char *value, struct ha_why *why)
{
    const struct ha_key *k = ha_key_find(key);
    if (k) return k->set(c, k, value, why);

    const struct ha_variant *variant = ha_variant_find(c->variant);
    size_t i;
    const struct ha_param *p = ha_param_find(variant, key, &i);
    return p ? set_param(&c->param[i], p, value, why) : ha_key_unknown(why, key, variant, NULL);
}

bool ha_case_get(const struct ha_case *c, const char *key, char out[HA_VALUE_MAX])
{
    const struct ha_key *k = ha_key_find(key);
    size_t i;
    if (k) k->print(c, k, out);
    else if (ha_param_find(ha_variant_find(c->variant), key, &i)) ha_number_print(c->param[i], out);
    else return false;
    return true;
}

size_t ha_case_format(const struct ha_case *c, char *out, size_t size)
{
    const struct ha_variant *variant = ha_variant_find(c->variant);
    char value[HA_VALUE_MAX], normal[HA_VALUE_MAX];
    size_t n = (size_t)snprintf(out, size, "%s", c->variant);
    char separator = ':';
    for (size_t i = 0; i < HA_KEYS_COUNT; i++) {
        const struct ha_key *k = &ha_keys[i];
        k->print(c, k, value);
        if (!k->always && !strcmp(value, ha_key_default(k, c, normal))) continue;
        n += (size_t)snprintf(n < size ? out + n : NULL, n < size ? size - n : 0, "%c%s=%s", separator, k->name, value);
        separator = ',';
    }
    for (size_t i = 0; variant && i < variant->params_count && i < HA_PARAMS_MAX; i++) {
        const struct ha_param *p = &variant->params[i];
        if (c->param[i] >= p->value && c->param[i] <= p->value) continue;
        ha_number_print(c->param[i], value);
        n += (size_t)snprintf(n < size ? out + n : NULL, n < size ? size - n : 0, ",%s=%s", p->name, value);
    }
    return n;
}

void ha_case_print(const struct ha_case *c, char out[HA_CASE_ID_MAX]) { ha_case_format(c, out, HA_CASE_ID_MAX); }

enum ha_status ha_case_validate(const struct ha_case *c, struct ha_why *why)
{
    const struct ha_shape *s = &c->shape;
    char id[HA_CASE_ID_MAX];
    if (ha_case_format(c, id, sizeof id) >= sizeof id)
        return ha_why(why, HA_ERROR, "the case's id is longer than %d characters: %.120s...", HA_CASE_ID_MAX - 1, id);

    const struct ha_dataset *dataset = ha_case_dataset(c, NULL);
    for (size_t i = 0; i < HA_KEYS_COUNT; i++) {
        char value[HA_VALUE_MAX];
        ha_keys[i].print(c, &ha_keys[i], value);
        if (ha_keys[i].from_file && !strcmp(value, "0") && !(dataset && dataset->needs_file))
            return ha_why(why, HA_ERROR, "%s: 0 is for datasets that are read from a file", ha_keys[i].name);
    }

    const struct ha_model *m = c->model;
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

/* Cuts text at the first `stop`; returns what follows it, or NULL. */
static char *cut(char *text, char stop)
{
    char *p = strchr(text, stop);
    if (p) *p++ = 0;
    return p;
}

struct pair {
    const char *key, *value;
};

/* Keys are set in the order of the table, whatever their order in the id. */
static enum ha_status set_pairs(struct ha_case *c, const struct pair *pairs, size_t count, struct ha_why *why)
{
    enum ha_status st = HA_OK;
    for (size_t k = 0; k < HA_KEYS_COUNT; k++)
        for (size_t i = 0; i < count && st == HA_OK; i++)
            if (!strcmp(pairs[i].key, ha_keys[k].name)) st = ha_case_set(c, pairs[i].key, pairs[i].value, why);
    for (size_t i = 0; i < count && st == HA_OK; i++)
        if (!ha_key_find(pairs[i].key)) st = ha_case_set(c, pairs[i].key, pairs[i].value, why);
    return st;
}

enum ha_status ha_case_parse(const char *id, struct ha_case *out, struct ha_why *why)
{
    char text[HA_CASE_ID_MAX];
    if (strlen(id) >= sizeof text)
        return ha_why(why, HA_ERROR, "a case's id is shorter than %d characters: %.80s...", HA_CASE_ID_MAX, id);
    snprintf(text, sizeof text, "%s", id);

    char *rest = cut(text, ':');
    const struct ha_variant *variant = ha_variant_find(text);
    if (!variant) return ha_variant_unknown(why, text);

    struct pair pairs[HA_KEYS_COUNT + HA_PARAMS_MAX];
    size_t count = 0;
    while (rest) {
        char *key = rest;
        rest = cut(rest, ',');
        const char *value = cut(key, '=');
        if (!value) return ha_why(why, HA_ERROR, "'%.80s' is not key=value", key);
        for (size_t i = 0; i < count; i++)
            if (!strcmp(pairs[i].key, key)) return ha_why(why, HA_ERROR, "key '%.80s' is there twice", key);
        size_t param;
        if (!ha_key_find(key) && !ha_param_find(variant, key, &param)) return ha_key_unknown(why, key, variant, NULL);
        pairs[count++] = (struct pair){ key, value };
    }

    ha_case_defaults(out, variant);
    const enum ha_status st = set_pairs(out, pairs, count, why);
    return st == HA_OK ? ha_case_validate(out, why) : st;
}
