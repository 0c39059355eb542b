#include "suites/variants/keys.h"

#include "harness/base/registry.h"
#include "harness/base/words.h"

#include <string.h>

const struct ha_key *ha_key_find(const char *name)
{
    for (size_t i = 0; i < HA_KEYS_COUNT; i++)
        if (!strcmp(ha_keys[i].name, name)) return &ha_keys[i];
    return NULL;
}

const struct ha_param *ha_param_find(const struct ha_variant *variant, const char *name, size_t *index)
{
    for (size_t i = 0; variant && i < variant->params_count && i < HA_PARAMS_MAX; i++) {
        if (strcmp(variant->params[i].name, name)) continue;
        *index = i;
        return &variant->params[i];
    }
    return NULL;
}

bool ha_key_known(const char *name)
{
    size_t i;
    if (ha_key_find(name)) return true;
    for (size_t v = 0; v < ha_variants_count; v++)
        if (ha_param_find(ha_variants_all[v], name, &i)) return true;
    return false;
}

enum ha_status ha_key_unknown(struct ha_why *why, const char *name, const struct ha_variant *variant,
                              const char *const *more)
{
    const char *names[256] = { NULL };
    const size_t max = sizeof names / sizeof *names - 1;
    size_t n = 0;
    for (size_t i = 0; more && more[i]; i++) names[n++] = more[i];
    for (size_t i = 0; i < HA_KEYS_COUNT; i++) names[n++] = ha_keys[i].name;
    for (size_t v = 0; v < ha_variants_count; v++) {
        const struct ha_variant *x = ha_variants_all[v];
        for (size_t i = 0; (!variant || variant == x) && i < x->params_count && n < max; i++)
            names[n++] = x->params[i].name;
    }
    return ha_unknown(why, "key", name, names);
}

enum ha_status ha_variant_unknown(struct ha_why *why, const char *name)
{
    const char *names[64] = { NULL };
    for (size_t i = 0; i < ha_variants_count && i + 1 < sizeof names / sizeof *names; i++)
        names[i] = ha_variants_all[i]->name;
    return ha_unknown(why, "variant", name, names);
}
