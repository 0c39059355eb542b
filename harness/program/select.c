#include "harness/program/select.h"

#include "harness/engine/suite_find.h"

#include "harness/base/why.h"
#include "suites/variants/case.h"
#include "suites/variants/keys.h"
#include "harness/base/registry.h"
#include "harness/base/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- filter ------------------------------------------------------------------------------ */

enum ha_status ha_filter_check(const char *filter, struct ha_why *why)
{
    static const char *const more[] = { "variant", "family", NULL };
    struct ha_term t;
    for (const char *rest = filter; ha_term_next(&rest, &t);)
        if (t.value && strcmp(t.text, "variant") && strcmp(t.text, "family") && !ha_key_known(t.text))
            return ha_why_prefix(why, ha_key_unknown(why, t.text, NULL, more), "-f");
    return HA_OK;
}

/* the value as a case prints it, where it is one */
static void normalise(const struct ha_case *c, const char *key, const char *value, char out[HA_VALUE_MAX])
{
    struct ha_case copy = *c;
    struct ha_why why;
    if (ha_case_set(&copy, key, value, &why) != HA_OK || !ha_case_get(&copy, key, out))
        snprintf(out, HA_VALUE_MAX, "%s", value);
}

static bool fits(const struct ha_term *t, const struct ha_case *c)
{
    char id[HA_CASE_ID_MAX], got[HA_VALUE_MAX], want[HA_VALUE_MAX];
    if (!t->value) {
        ha_case_print(c, id);
        return strstr(id, t->text) != NULL;
    }
    const struct ha_variant *v = ha_variant_find(c->variant);
    bool equal = false;
    if (!strcmp(t->text, "variant")) equal = !strcmp(c->variant, t->value);
    else if (!strcmp(t->text, "family")) equal = v && !strcmp(v->family, t->value);
    else if (ha_case_get(c, t->text, got)) {
        normalise(c, t->text, t->value, want);
        equal = !strcmp(got, want);
    }
    return equal != t->negated;
}

bool ha_filter_fits(const char *filter, const struct ha_case *c)
{
    struct ha_term t;
    for (const char *rest = filter; ha_term_next(&rest, &t);)
        if (!fits(&t, c)) return false;
    return true;
}

/* ---- words ------------------------------------------------------------------------------- */

/* A word with ':' is an id; another is a suite, or else a variant with everything at its default. */
static enum ha_status add_word(const char *word, struct ha_case_list *list, struct ha_why *why)
{
    char path[4096];
    struct ha_case c;
    const bool is_file = strchr(word, '/') && !strchr(word, '=');
    if (strchr(word, ':') && !is_file) {
        const enum ha_status st = ha_case_parse(word, &c, why);
        return st == HA_OK ? ha_case_list_add(list, &c, why) : st;
    }
    enum ha_status st = ha_suite_find(word, path, why);
    if (st == HA_OK) return ha_suite_read(path, list, why);
    if (!ha_variant_find(word)) return st;
    st = ha_case_parse(word, &c, why);
    return st == HA_OK ? ha_case_list_add(list, &c, why) : st;
}

static enum ha_status replace_keys(const struct ha_options *o, struct ha_case *c, struct ha_why *why)
{
    const struct {
        const char *key, *value;
    } replaced[] = {
        { "device", o->device },
        { "seed", o->seed },
        { "threads", o->threads },
    };
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++) {
        if (!replaced[i].value) continue;
        const enum ha_status st = ha_case_set(c, replaced[i].key, replaced[i].value, why);
        if (st != HA_OK) return ha_why_prefix(why, st, "--%s", replaced[i].key);
    }
    return ha_case_validate(c, why);
}

struct place {
    char id[HA_CASE_ID_MAX];
    size_t index;
};

static int by_id(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    const int order = strcmp(x->id, y->id);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

/* keeps the first of equal cases, and the order */
static enum ha_status remove_twins(struct ha_case_list *list, struct ha_why *why)
{
    struct place *places = malloc((list->count + 1) * sizeof *places);
    bool *twin = calloc(list->count + 1, sizeof *twin);
    enum ha_status st = HA_OK;
    if (!places || !twin) st = ha_why(why, HA_ERROR, "out of memory");
    if (st == HA_OK) {
        for (size_t i = 0; i < list->count; i++) {
            ha_case_print(&list->cases[i], places[i].id);
            places[i].index = i;
        }
        qsort(places, list->count, sizeof *places, by_id);
        for (size_t i = 1; i < list->count; i++) twin[places[i].index] = !strcmp(places[i].id, places[i - 1].id);
        size_t kept = 0;
        for (size_t i = 0; i < list->count; i++)
            if (!twin[i]) list->cases[kept++] = list->cases[i];
        list->count = kept;
    }
    free(twin);
    free(places);
    return st;
}

enum ha_status ha_select(const struct ha_options *o, char **words, size_t count, struct ha_case_list *list,
                         struct ha_why *why)
{
    enum ha_status st = o->filter ? ha_filter_check(o->filter, why) : HA_OK;
    for (size_t i = 0; i < count && st == HA_OK; i++) st = add_word(words[i], list, why);
    for (size_t i = 0; i < list->count && st == HA_OK; i++) st = replace_keys(o, &list->cases[i], why);
    if (st == HA_OK && o->filter) {
        const size_t all = list->count;
        list->count = 0;
        for (size_t i = 0; i < all; i++)
            if (ha_filter_fits(o->filter, &list->cases[i])) list->cases[list->count++] = list->cases[i];
        if (list->count == 0) st = ha_why(why, HA_ERROR, "-f %.200s: none of the %zu cases fits", o->filter, all);
    }
    return st == HA_OK ? remove_twins(list, why) : st;
}

void ha_case_list_print(const struct ha_case_list *list)
{
    char id[HA_CASE_ID_MAX];
    for (size_t i = 0; i < list->count; i++) {
        ha_case_print(&list->cases[i], id);
        puts(id);
    }
}
