#include "harness/engine/point.h"

#include "harness/base/registry.h"
#include "harness/base/why.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ------------------------------------------------------------------------------------------------ */

bool ha_whole_parse(const char *text, uint64_t *out, const char **end)
{
    uint64_t x = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(x, 10u, &x) || __builtin_add_overflow(x, (uint64_t)(*p - '0'), &x)) return false;
    *out = x;
    *end = p;
    return p != text;
}

void ha_number_print(double x, char out[HA_VALUE_MAX])
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, HA_VALUE_MAX, "%.*g", digits, x);
        if (strtod(out, NULL) >= x && strtod(out, NULL) <= x) return;
    }
}

/* ---- which keys a point has ------------------------------------------------------------------------------------ */

const struct ha_key *ha_point_key(const struct ha_suite *s, const void *point, size_t i, struct ha_key *room)
{
    if (i < s->keys) return &s->key[i];
    return s->more && s->more(point, i - s->keys, room) ? room : NULL;
}

bool ha_point_uses(const struct ha_suite *s, const void *point, size_t i)
{
    return i >= s->keys || !s->uses || s->uses(point, i);
}

const struct ha_key *ha_point_find(const struct ha_suite *s, const void *point, const char *name, struct ha_key *room)
{
    const struct ha_key *key;
    for (size_t i = 0; (key = ha_point_key(s, point, i, room)); i++)
        if (!strcmp(key->name, name)) return ha_point_uses(s, point, i) ? key : NULL;
    return NULL;
}

bool ha_suite_has_key(const struct ha_suite *s, const char *name)
{
    const char *more;
    for (size_t i = 0; i < s->keys; i++)
        if (!strcmp(s->key[i].name, name)) return true;
    for (size_t i = 0; s->more_name && (more = s->more_name(i)); i++)
        if (!strcmp(more, name)) return true;
    return false;
}

const struct ha_suite *ha_suite_named(const char *name, struct ha_why *why)
{
    const char *names[HA_NAMES_MAX + 1] = { NULL };
    for (size_t i = 0; i < ha_suites_count && i < HA_NAMES_MAX; i++)
        if (!strcmp(names[i] = ha_suites_all[i]->name, name)) return ha_suites_all[i];
    ha_unknown(why, "suite", name, names);
    return NULL;
}

const struct ha_key *ha_suite_head(const struct ha_suite *s)
{
    for (size_t i = 0; s->head && i < s->keys; i++)
        if (!strcmp(s->key[i].name, s->head)) return &s->key[i];
    return NULL;
}

static size_t add_name(const char *names[HA_NAMES_MAX + 1], size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(names[i], name)) return n;
    if (n < HA_NAMES_MAX) names[n++] = name;
    return n;
}

static size_t add_names(const char *names[HA_NAMES_MAX + 1], size_t n, const struct ha_suite *s, const void *point)
{
    struct ha_key room;
    const struct ha_key *key;
    const char *more;
    for (size_t i = 0; i < s->keys; i++)
        if (!point || ha_point_uses(s, point, i)) n = add_name(names, n, s->key[i].name);
    for (size_t i = s->keys; point && (key = ha_point_key(s, point, i, &room)); i++) n = add_name(names, n, key->name);
    for (size_t i = 0; !point && s->more_name && (more = s->more_name(i)); i++) n = add_name(names, n, more);
    return n;
}

void ha_heads(const char *names[HA_NAMES_MAX + 1], size_t n)
{
    for (size_t i = 0; i < ha_suites_count; i++) {
        const struct ha_key *key = ha_suite_head(ha_suites_all[i]);
        if (!key) n = add_name(names, n, ha_suites_all[i]->name);
        for (size_t w = 0; key && key->word(w); w++) n = add_name(names, n, key->word(w));
    }
}

enum ha_status ha_key_unknown(const struct ha_suite *s, const void *point, const char *name, struct ha_why *why)
{
    const char *names[HA_NAMES_MAX + 1] = { NULL };
    size_t n = s ? add_names(names, 0, s, point) : 0;
    for (size_t i = 0; !s && i < ha_suites_count; i++) n = add_names(names, n, ha_suites_all[i], NULL);
    names[n] = NULL;
    return ha_unknown(why, "key", name, names);
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

static void *at(void *point, const struct ha_key *key) { return (char *)point + key->offset; }
static const void *in(const void *point, const struct ha_key *key) { return (const char *)point + key->offset; }

enum { WORDS = 2048 };

/* the index of the word, or SIZE_MAX; words: all of them, NULL behind the last */
static size_t word_index(const struct ha_key *key, const char *value, const char *words[WORDS + 1])
{
    size_t found = SIZE_MAX, i = 0;
    for (; key->word && i < WORDS && (words[i] = key->word(i)); i++)
        if (!strcmp(words[i], value)) found = i;
    words[i] = NULL;
    return found;
}

static enum ha_status not_a_number(const struct ha_key *key, const char *value, const char *word, struct ha_why *why)
{
    const char *shape = key->kind == HA_KEY_PAIR ? "a pair as 32/8, each" : "a whole number";
    char also[64] = "";
    if (word) snprintf(also, sizeof also, "'%.40s' or ", word);
    return ha_why(why, HA_ERROR, "%s: '%.80s' is not %s%s from %" PRIu64 " to %" PRIu64, key->name, value, also, shape,
                  key->min, key->max);
}

static bool within(const struct ha_key *key, uint64_t x) { return x >= key->min && x <= key->max; }

static enum ha_status set_number(void *point, const struct ha_key *key, const char *value, const char *word,
                                 struct ha_why *why)
{
    const size_t count = key->kind == HA_KEY_PAIR ? 2 : 1;
    uint64_t x[2] = { 0, 0 };
    const char *p = value;
    for (size_t i = 0; i < count; i++) {
        if (!ha_whole_parse(p, &x[i], &p) || !within(key, x[i]) || *p != (i + 1 < count ? '/' : 0))
            return not_a_number(key, value, word, why);
        p++;
    }
    memcpy(at(point, key), x, count * sizeof *x);
    return HA_OK;
}

/* the powers of 2 that a key may be, between blanks */
static void list_powers(const struct ha_key *key, char out[HA_VALUE_MAX])
{
    size_t n = 0;
    *out = 0;
    for (double x = 1; x <= key->most && n < HA_VALUE_MAX; x *= 2)
        if (x >= key->least) n += (size_t)snprintf(out + n, HA_VALUE_MAX - n, " %.10g", x);
}

static enum ha_status set_real(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    char *end;
    double x = strtod(value, &end);
    /* the set of characters keeps out what else strtod takes: blanks, hexadecimal, inf and nan */
    if (!*value || *end || value[strspn(value, "0123456789+-.eE")] || !isfinite(x))
        return ha_why(why, HA_ERROR, "%s: '%.80s' is not a finite number", key->name, value);
    const bool inside = x >= key->least && x <= key->most;
    if (key->power_of_2 && !(inside && frexp(x, &(int){ 0 }) == 0.5)) {
        char powers[HA_VALUE_MAX];
        list_powers(key, powers);
        return ha_why(why, HA_ERROR, "%s: %s is none of%s", key->name, value, powers);
    }
    if (!inside)
        return ha_why(why, HA_ERROR, "%s: %s is outside of [%.10g, %.10g]", key->name, value, key->least, key->most);
    const double down = floor(x);
    if (key->whole && x > down) return ha_why(why, HA_ERROR, "%s: '%.80s' is not a whole number", key->name, value);
    x += 0.0; /* -0 becomes 0 */
    memcpy(at(point, key), &x, sizeof x);
    return HA_OK;
}

static enum ha_status set_name(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    const size_t n = strlen(value);
    if (n == 0) return ha_why(why, HA_ERROR, "%s: a value is missing", key->name);
    if (n >= key->max)
        return ha_why(why, HA_ERROR, "%s: '%.40s...' is longer than %" PRIu64 " characters", key->name, value,
                      key->max - 1);
    for (const char *p = value; *p; p++)
        if (*p == ',' || (unsigned char)*p <= ' ' || *p == 127)
            return ha_why(why, HA_ERROR,
                          "%s: a blank, a comma or a control character cannot stand in an id; a file may have a link "
                          "without one",
                          key->name);
    memset(at(point, key), 0, key->max);
    memcpy(at(point, key), value, n);
    return HA_OK;
}

enum ha_status ha_point_set(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    const char *words[WORDS + 1];
    if (key->kind == HA_KEY_FACT)
        return ha_why(why, HA_ERROR, "%s follows from the other keys and cannot be set", key->name);
    if (key->set) return key->set(point, key, value, why);
    const uint64_t word = word_index(key, value, words);
    const double real = (double)word;
    if (key->word && word != SIZE_MAX) {
        if (key->kind == HA_KEY_REAL) memcpy(at(point, key), &real, sizeof real);
        else memcpy(at(point, key), &word, sizeof word);
        return HA_OK;
    }
    switch (key->kind) {
    case HA_KEY_REAL:
        if (!key->word) return set_real(point, key, value, why);
        return ha_unknown(why, key->name, value, words);
    case HA_KEY_NAME: return set_name(point, key, value, why);
    case HA_KEY_NUMBER:
    case HA_KEY_PAIR: return set_number(point, key, value, words[0], why);
    default: return ha_unknown(why, key->name, value, words);
    }
}

enum ha_status ha_point_set_named(const struct ha_suite *s, void *point, const char *name, const char *value,
                                  struct ha_why *why)
{
    struct ha_key room;
    const struct ha_key *key = ha_point_find(s, point, name, &room);
    return key ? ha_point_set(point, key, value, why) : ha_key_unknown(s, point, name, why);
}

void ha_point_value(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    const char *words[WORDS + 1];
    uint64_t x[2];
    double real;
    if (key->print) {
        key->print(point, key, out);
        return;
    }
    switch (key->kind) {
    case HA_KEY_REAL:
        memcpy(&real, in(point, key), sizeof real);
        if (!key->word) ha_number_print(real, out);
        else snprintf(out, HA_VALUE_MAX, "%s", key->word((size_t)real));
        return;
    case HA_KEY_NAME: snprintf(out, HA_VALUE_MAX, "%s", (const char *)in(point, key)); return;
    case HA_KEY_PAIR:
        memcpy(x, in(point, key), sizeof x);
        snprintf(out, HA_VALUE_MAX, "%" PRIu64 "/%" PRIu64, x[0], x[1]);
        return;
    default: break;
    }
    memcpy(x, in(point, key), sizeof *x);
    size_t count = 0;
    word_index(key, "", words);
    while (words[count]) count++;
    if (x[0] < count) snprintf(out, HA_VALUE_MAX, "%s", words[x[0]]);
    else snprintf(out, HA_VALUE_MAX, "%" PRIu64, x[0]);
}

bool ha_point_get(const struct ha_suite *s, const void *point, const char *name, char out[HA_VALUE_MAX])
{
    struct ha_key room;
    const struct ha_key *key = ha_point_find(s, point, name, &room);
    if (key) ha_point_value(point, key, out);
    return key != NULL;
}

const char *ha_key_standard(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    return key->standard ? key->standard(point, key, out) : key->value;
}

void ha_point_clear(const struct ha_suite *s, void *point)
{
    char value[HA_VALUE_MAX];
    struct ha_key room;
    struct ha_why why;
    const struct ha_key *key;
    if (s->clear) s->clear(point);
    else memset(point, 0, s->point_bytes);
    for (size_t i = 0; (key = ha_point_key(s, point, i, &room)); i++) {
        const char *standard = key->kind == HA_KEY_FACT ? NULL : ha_key_standard(point, key, value);
        if (standard && *standard && strcmp(standard, "*") != 0) ha_point_set(point, key, standard, &why);
    }
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */

size_t ha_point_print(const struct ha_suite *s, const void *point, char *out, size_t size)
{
    char value[HA_VALUE_MAX], standard[HA_VALUE_MAX], head[HA_VALUE_MAX];
    struct ha_key room;
    const struct ha_key *key;
    if (!s->head || !ha_point_get(s, point, s->head, head)) snprintf(head, sizeof head, "%s", s->name);
    size_t n = (size_t)snprintf(out, size, "%s", head);
    char separator = ':';
    for (size_t i = 0; (key = ha_point_key(s, point, i, &room)); i++) {
        if (key->kind == HA_KEY_FACT || !ha_point_uses(s, point, i) || (s->head && !strcmp(key->name, s->head)))
            continue;
        ha_point_value(point, key, value);
        if (!key->always && !strcmp(value, ha_key_standard(point, key, standard))) continue;
        n += (size_t)snprintf(n < size ? out + n : NULL, n < size ? size - n : 0, "%c%s=%s", separator, key->name,
                              value);
        separator = ',';
    }
    return n;
}
