#include "harness/engine/plan.h"

#include "harness/base/registry.h"
#include "harness/base/why.h"
#include "harness/engine/plugin.h"
#include "harness/engine/point.h"

#include <stdlib.h>
#include <string.h>

struct term {
    char *text;  /* the key, or the part of the id */
    char *value; /* in the same memory; NULL: a part of the id */
    bool negated;
    bool taken; /* a point takes the value */
};
struct ha_filter {
    struct term *term;
    size_t terms;
};

/* ---- terms ------------------------------------------------------------------------------------------------------ */

static enum ha_status add_term(struct ha_filter *f, const char *text, size_t n, struct ha_why *why)
{
    struct term *grown = realloc(f->term, (f->terms + 1) * sizeof *grown);
    if (grown) f->term = grown;
    char *copy = grown ? strndup(text, n) : NULL;
    if (!copy) return ha_why(why, HA_ERROR, "out of memory");
    char *equals = strchr(copy, '=');
    struct term *t = &f->term[f->terms++];
    *t = (struct term){ .text = copy, .value = equals ? equals + 1 : NULL };
    t->negated = equals > copy && equals[-1] == '!';
    if (equals) equals[t->negated ? -1 : 0] = 0;
    return HA_OK;
}

static bool is_suite(const struct term *t) { return t->value && !strcmp(t->text, "suite"); }

static enum ha_status check_key(const struct term *t, struct ha_why *why)
{
    bool known = !t->value || is_suite(t);
    for (size_t i = 0; i < ha_suites_count && !known; i++) known = ha_suite_has_key(ha_suites_all[i], t->text);
    return known ? HA_OK : ha_key_unknown(NULL, NULL, t->text, why);
}

enum ha_status ha_filter_create(struct ha_filter **out, const char *text, struct ha_why *why)
{
    struct ha_filter *f = *out = calloc(1, sizeof *f);
    enum ha_status status = f ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
    for (const char *p = text; status == HA_OK && *(p += strspn(p, ","));) {
        const size_t n = strcspn(p, ",");
        status = add_term(f, p, n, why);
        if (status == HA_OK) status = check_key(&f->term[f->terms - 1], why);
        p += n;
    }
    if (status == HA_OK && *text && !f->terms) status = ha_why(why, HA_ERROR, "'%.80s' has no term", text);
    if (status == HA_OK) return HA_OK;
    ha_filter_destroy(f);
    *out = NULL;
    return status;
}

void ha_filter_destroy(struct ha_filter *f)
{
    for (size_t i = 0; f && i < f->terms; i++) free(f->term[i].text);
    if (f) free(f->term);
    free(f);
}

/* ---- points ----------------------------------------------------------------------------------------------------- */

/* Whether the key takes the value, in a point that is otherwise this one; *same: it is the point's already. */
static bool takes(const struct ha_suite *s, const void *point, const struct ha_key *key, const char *value, bool *same,
                  struct ha_why *why)
{
    char got[HA_VALUE_MAX], want[HA_VALUE_MAX];
    ha_point_value(point, key, got);
    *same = !strcmp(got, value);
    if (*same) return true;
    if (key->kind == HA_KEY_FACT) {
        const char *names[128] = { NULL };
        for (size_t i = 0; key->word && i < 127 && (names[i] = key->word(i)); i++)
            if (!strcmp(names[i], value)) return true;
        return !key->word || ha_unknown(why, key->name, value, names) == HA_OK;
    }
    void *other = malloc(s->point_bytes);
    if (!other) return true;
    memcpy(other, point, s->point_bytes);
    const bool taken = ha_point_set(other, key, value, why) == HA_OK
                       && !(key->device && ha_device_look(value, why) == HA_ERROR);
    if (taken) ha_point_value(other, key, want);
    free(other);
    *same = taken && !strcmp(got, want);
    return taken;
}

static bool fits(struct term *t, const struct ha_suite *s, const void *point, const char *id)
{
    struct ha_key room;
    struct ha_why why;
    bool same = false;
    if (!t->value) return strstr(id, t->text) != NULL;
    if (is_suite(t)) return !strcmp(s->name, t->value) != t->negated;
    const struct ha_key *key = ha_point_find(s, point, t->text, &room);
    if (key && takes(s, point, key, t->value, &same, &why)) t->taken = true;
    return same != t->negated;
}

bool ha_filter_fits(struct ha_filter *f, const struct ha_suite *s, const void *point, const char *id)
{
    bool all = true;
    for (size_t i = 0; i < f->terms; i++) all &= fits(&f->term[i], s, point, id);
    return all;
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

/* Whether the key of this name takes the value in a point where everything else is at its default. */
static bool taken_by(const struct ha_suite *s, const char *head_value, const struct term *t, struct ha_why *why)
{
    struct ha_key room;
    const struct ha_key *key;
    bool taken = false, same;
    void *point = malloc(s->point_bytes);
    if (!point) return true;
    ha_point_clear(s, point);
    if (!head_value || ha_point_set_named(s, point, s->head, head_value, why) == HA_OK)
        for (size_t i = 0; (key = ha_point_key(s, point, i, &room)) && !taken; i++)
            if (!strcmp(key->name, t->text)) taken = takes(s, point, key, t->value, &same, why);
    free(point);
    return taken;
}

static bool taken_in(const struct ha_suite *s, const struct term *t, struct ha_why *why)
{
    const struct ha_key *head = ha_suite_head(s);
    if (taken_by(s, NULL, t, why)) return true;
    for (size_t i = 0; head && head->word(i); i++)
        if (taken_by(s, head->word(i), t, why)) return true;
    return false;
}

enum ha_status ha_filter_check(const struct ha_filter *f, struct ha_why *why)
{
    for (size_t i = 0; i < f->terms; i++) {
        const struct term *t = &f->term[i];
        struct ha_why later, *first = why;
        bool taken = !t->value || t->taken || is_suite(t);
        if (is_suite(t) && !ha_suite_named(t->value, why)) return HA_ERROR;
        for (size_t s = 0; s < ha_suites_count && !taken; s++) {
            if (!ha_suite_has_key(ha_suites_all[s], t->text)) continue;
            taken = taken_in(ha_suites_all[s], t, first);
            first = &later;
        }
        if (!taken) return HA_ERROR;
    }
    return HA_OK;
}
