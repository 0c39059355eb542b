#include "harness/base/claims.h"
#include "harness/base/why.h"
#include "suites/merge/subject.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const dtype_words[] = { "f32", "f16", "bf16", NULL };
static const char *const fp8_words[] = { "none", "e4m3", "e5m2", NULL };
static const char *const lse_order_words[] = { "any", "tokens_heads", "heads_tokens", NULL };
static const char *const bool_words[] = { "0", "1", NULL };

/* ---- lines of text ----------------------------------------------------------------------- */

/* words joined by commas, as bits */
static enum ha_status bits_parse(const char *key, const char *value, const char *const *words, unsigned *bits,
                                 struct ha_why *why)
{
    char copy[128], *rest = copy;
    if ((size_t)snprintf(copy, sizeof copy, "%s", value) >= sizeof copy)
        return ha_why(why, HA_ERROR, "%s: too long", key);
    *bits = 0;
    for (const char *word; (word = strsep(&rest, ",")) != NULL;) {
        size_t at;
        HA_TRY(ha_word_find(key, word, words, &at, why));
        *bits |= 1u << at;
    }
    return HA_OK;
}

enum ha_status ha_number_parse(const char *key, const char *value, double max, double *out, struct ha_why *why)
{
    char *end;
    *out = strtod(value, &end);
    if (end == value || *end || !(*out >= 0 && *out <= max))
        return ha_why(why, HA_ERROR, "%s is '%.40s', not a number from 0 to %g", key, value, max);
    return HA_OK;
}

void ha_subject_name(const char *from, char out[64])
{
    size_t n = 0;
    for (; from[n] && n < 63; n++) out[n] = isalnum((unsigned char)from[n]) || strchr("_.-", from[n]) ? from[n] : '_';
    out[n] = '\0';
}

enum ha_status ha_traits_parse(const char *line, struct ha_merge_traits *t, char name[64], struct ha_why *why)
{
    static const char *const keys[] = { "name",     "forms",       "dtypes",    "fp8",    "commutes",
                                        "plus_inf", "states_max",  "lse_order", "varies", "exp_eps",
                                        "log_eps",  "depth_extra", "rescales",  NULL };
    enum { NAME, FORMS, DTYPES, FP8, COMMUTES, PLUS_INF, STATES_MAX, LSE_ORDER, VARIES };
    const char *equals = strchr(line, '=');
    char key[32];
    size_t k, at = 0;
    double number;
    if (!equals || equals == line || (size_t)(equals - line) >= sizeof key)
        return ha_why(why, HA_ERROR, "'%.60s' is not key=value", line);
    snprintf(key, sizeof key, "%.*s", (int)(equals - line), line);
    const char *value = equals + 1;
    HA_TRY(ha_word_find("key", key, keys, &k, why));
    switch (k) {
    case NAME:
        if (!*value) return ha_why(why, HA_ERROR, "name is empty");
        ha_subject_name(value, name);
        return HA_OK;
    case FORMS: return bits_parse("form", value, ha_form_words, &t->forms, why);
    case DTYPES: return bits_parse("type", value, dtype_words, &t->dtypes, why);
    case FP8: return bits_parse("fp8", value, fp8_words, &t->fp8, why);
    case COMMUTES:
    case PLUS_INF:
    case VARIES:
        HA_TRY(ha_word_find(key, value, bool_words, &at, why));
        *(k == COMMUTES ? &t->commutes : k == PLUS_INF ? &t->plus_inf : &t->varies) = at == 1;
        return HA_OK;
    case STATES_MAX:
        HA_TRY(ha_number_parse(key, value, HA_STATES_MAX, &number, why));
        t->states_max = (size_t)number;
        return HA_OK;
    case LSE_ORDER:
        HA_TRY(ha_word_find(key, value, lse_order_words, &at, why));
        t->lse_order = (enum ha_lse_order)at;
        return HA_OK;
    default:
        for (size_t i = 0; i < HA_TRAITS_NUMBERS; i++)
            if (!strcmp(ha_traits_numbers[i].name, key)) {
                HA_TRY(ha_number_parse(key, value, ha_traits_numbers[i].most, &number, why));
                memcpy((char *)t + ha_traits_numbers[i].offset, &number, sizeof number);
            }
        return HA_OK;
    }
}
