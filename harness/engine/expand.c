#include "harness/engine/suite_file.h"

#include "harness/base/why.h"
#include "harness/engine/point.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char ha_blanks[] = " \t\v\f\r";

/* The values with the numbers of ranges in place of these; the caller frees it. NULL: why says so. */
static char *without_ranges(const char *name, const char *values, struct ha_why *why)
{
    char *out = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&out, &bytes);
    enum ha_status status = f ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
    for (const char *v = values; *v && status == HA_OK;) {
        const size_t blanks = strspn(v, ha_blanks), n = strcspn(v + blanks, ha_blanks);
        const char *const end = v + blanks + n;
        uint64_t least, most, step = 1;
        const char *p;
        fprintf(f, "%.*s", (int)blanks, v);
        v += blanks;
        const bool range = ha_whole_parse(v, &least, &p) && !strncmp(p, "..", 2) && ha_whole_parse(p + 2, &most, &p)
                           && (p == end || (*p == ':' && ha_whole_parse(p + 1, &step, &p) && p == end));
        if (!range) fprintf(f, "%.*s", (int)n, v);
        else if (step == 0 || least > most || (most - least) / step >= HA_RANGE_MOST)
            status = ha_why(why, HA_ERROR, "%s: '%.*s' is no range of 1 to %d numbers", name, (int)n, v, HA_RANGE_MOST);
        for (uint64_t i = 0; range && status == HA_OK && i <= (most - least) / step; i++)
            fprintf(f, "%s%" PRIu64, i ? " " : "", least + i * step);
        v = end;
    }
    if (f && fclose(f) != 0 && status == HA_OK) status = ha_why(why, HA_ERROR, "out of memory");
    if (status == HA_OK) return out;
    free(out);
    return NULL;
}

static enum ha_status assign(struct ha_assignments *a, const char *name, const char *values, size_t line,
                             struct ha_why *why)
{
    for (size_t i = 0; i < a->count; i++) {
        if (strcmp(a->of[i].name, name) != 0) continue;
        if (a->of[i].line && !a->of[i].own) { /* the section's goes before the default's */
            char *copy = strdup(values);
            if (!copy) return ha_why(why, HA_ERROR, "out of memory");
            free(a->of[i].values);
            a->of[i].values = copy;
            a->of[i].line = line;
            a->of[i].own = true;
            return HA_OK;
        }
        if (!line) return ha_why(why, HA_ERROR, "key '%.80s' is there twice", name);
        return ha_why(why, HA_ERROR, "key '%.80s' is there twice; first in line %zu", name, a->of[i].line);
    }
    struct ha_assignment *grown = realloc(a->of, (a->count + 1) * sizeof *grown);
    if (!grown) return ha_why(why, HA_ERROR, "out of memory");
    a->of = grown;
    struct ha_assignment *x = &grown[a->count++];
    *x = (struct ha_assignment){ .name = strdup(name), .values = strdup(values), .line = line, .own = true };
    return x->name && x->values ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
}

enum ha_status ha_assign(struct ha_assignments *a, const char *name, const char *values, size_t line,
                         struct ha_why *why)
{
    if (!line || !strstr(values, "..")) return assign(a, name, values, line, why);
    char *plain = without_ranges(name, values, why);
    const enum ha_status status = plain ? assign(a, name, plain, line, why) : HA_ERROR;
    free(plain);
    return status;
}

void ha_assignments_free(struct ha_assignments *a)
{
    for (size_t i = 0; i < a->count; i++) {
        free(a->of[i].name);
        free(a->of[i].values);
    }
    free(a->of);
    a->of = NULL;
    a->count = 0;
}

enum { PRODUCTS_MAX = 10 * HA_POINTS_MAX, KEYS_MAX = 128 };
struct walk {
    const struct ha_suite *suite;
    struct ha_assignments *a;
    ha_take *each;
    void *arg;
    struct ha_why *why;
    size_t points, products; /* so far; products: points, and what is none */
    const void *clear;       /* a point as ha_point_clear left it */
    void *last;              /* the last point with all its keys */
    void *next[KEYS_MAX];    /* the point with key i set: made once for all its values */
};
static const size_t OF_OPTION = SIZE_MAX; /* in place of a line: the command line says it */

static enum ha_status at_key(struct walk *w, void *point, size_t i);

/* the line where something is wrong before the reason */
static enum ha_status at_line(const struct ha_assignments *a, enum ha_status status, size_t line, struct ha_why *why)
{
    if (status == HA_OK || !a->file) return status;
    return ha_why_prefix(why, status, "%s:%zu", a->file, line ? line : a->line);
}

static enum ha_status where(const struct walk *w, enum ha_status status, size_t line)
{
    return at_line(w->a, status, line, w->why);
}

static enum ha_status too_many(const struct walk *w, const char *what, int limit)
{
    const char *name = w->a->file ? w->a->section : w->suite->name;
    return where(w, ha_why(w->why, HA_ERROR, "[%s] has more than %d %s", name, limit, what), 0);
}

/* An option of its own, or what stands beside others, is wrong for this variant: which. */
static void name_head(const struct walk *w, const void *point, size_t key, enum ha_status status)
{
    const struct ha_key *head = w->a->file && w->suite->more ? ha_suite_head(w->suite) : NULL;
    char value[HA_VALUE_MAX];
    if (!head || key < w->suite->keys) return;
    ha_point_value(point, head, value);
    if (*value) ha_why_prefix(w->why, status, "%s %.80s", w->suite->head, value);
}

static enum ha_status go_on(struct walk *w, const void *point, size_t i, const struct ha_key *key, const char *value,
                            size_t line)
{
    if (i >= KEYS_MAX) return ha_why(w->why, HA_ERROR, "%s has more than %d keys", w->suite->name, KEYS_MAX);
    void *next = w->next[i] = w->next[i] ? w->next[i] : malloc(w->suite->point_bytes);
    if (!next) return ha_why(w->why, HA_ERROR, "out of memory");
    memcpy(next, point, w->suite->point_bytes);
    enum ha_status status = value ? ha_point_set(next, key, value, w->why) : HA_OK;
    const size_t named = strlen(key->name);
    if (status != HA_OK && line != OF_OPTION) name_head(w, next, i, status);
    if (status != HA_OK && line == OF_OPTION) { /* "threads: ..." is said as "--threads: ...", once */
        const bool again = w->why && !strncmp(w->why->text, key->name, named) && w->why->text[named] == ':';
        if (again) ha_why(w->why, status, "--%s", w->why->text);
        else ha_why_prefix(w->why, status, "--%s", key->name);
    } else where(w, status, line);
    return status == HA_OK ? at_key(w, next, i + 1) : status;
}

static enum ha_status every_word(struct walk *w, const void *point, size_t i, const struct ha_key *key, size_t line)
{
    if (!key->word)
        return where(w, ha_why(w->why, HA_ERROR, "%s: '*' is every word of a key, and this one has none", key->name),
                     line);
    for (size_t k = 0; key->word(k); k++) HA_TRY(go_on(w, point, i, key, key->word(k), line));
    return HA_OK;
}

static enum ha_status every_value(struct walk *w, const void *point, size_t i, const struct ha_key *key,
                                  const char *values, size_t line)
{
    const char *v = values + strspn(values, ha_blanks);
    if (!*v && w->a->file) return where(w, ha_why(w->why, HA_ERROR, "key '%s' has no value", key->name), line);
    do {
        char value[HA_VALUE_MAX];
        const size_t n = strcspn(v, ha_blanks);
        if (n >= sizeof value)
            return where(w, ha_why(w->why, HA_ERROR, "%s: '%.40s...' is too long", key->name, v), line);
        memcpy(value, v, n);
        value[n] = 0;
        if (!strcmp(value, "*")) HA_TRY(every_word(w, point, i, key, line));
        else HA_TRY(go_on(w, point, i, key, value, line));
        v += n;
        v += strspn(v, ha_blanks);
    } while (*v);
    return HA_OK;
}

static bool has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)); p += n)
        if (p > list && p[-1] == ' ' && p[n] == ' ') return true;
    return false;
}

const struct ha_override *ha_override_of(const struct ha_assignments *a, const struct ha_key *key)
{
    for (size_t i = 0; i < a->overrides; i++) {
        const struct ha_override *o = &a->override[i];
        if (!o->value) continue;
        if (key->options ? has_word(key->options, o->option) : !strcmp(key->name, o->option)) return o;
    }
    return NULL;
}

static enum ha_status at_key(struct walk *w, void *point, size_t i)
{
    struct ha_key room;
    char standard[HA_VALUE_MAX], usual[HA_VALUE_MAX];
    const struct ha_key *key = ha_point_key(w->suite, point, i, &room);
    if (!key) {
        memcpy(w->last, point, w->suite->point_bytes);
        const enum ha_status settled = w->suite->settle ? w->suite->settle(point, w->why) : HA_OK;
        if (++w->products > PRODUCTS_MAX) return too_many(w, "products of values", PRODUCTS_MAX);
        if (settled == HA_WAIVED) return HA_OK; /* there is no such point: the product goes on */
        if (settled != HA_OK) name_head(w, point, i, settled);
        HA_TRY(where(w, settled, 0));
        if (++w->points > HA_POINTS_MAX) return too_many(w, "cases", HA_POINTS_MAX);
        return w->each(w->arg, w->suite, point, w->why);
    }
    if (key->kind == HA_KEY_FACT || !ha_point_uses(w->suite, point, i)) return go_on(w, point, i, key, NULL, 0);
    const struct ha_override *o = ha_override_of(w->a, key);
    struct ha_assignment *a = NULL;
    for (size_t k = 0; k < w->a->count; k++)
        if (!strcmp(w->a->of[k].name, key->name)) a = &w->a->of[k];
    if (a) a->used = true;
    if (o) {
        struct ha_key named = *key; /* messages are about the option */
        named.name = o->option;
        return go_on(w, point, i, &named, o->value, OF_OPTION);
    }
    if (a && a->line) return every_value(w, point, i, key, a->values, a->line);
    if (a) return !strcmp(a->values, "*") ? every_word(w, point, i, key, 0) : go_on(w, point, i, key, a->values, 0);
    if (w->a->draw && key->draw) {
        ha_draw_value(w->a->draw, i, key, standard);
        return go_on(w, point, i, key, standard, 0);
    }
    const char *value = ha_key_standard(point, key, standard);
    if (value && !strcmp(value, "*")) return every_word(w, point, i, key, 0);
    /* what has its default since ha_point_clear keeps what a key before it made of it: ctx=1+2 makes batch 2 */
    const bool is_set = !key->standard || !strcmp(value, ha_key_standard(w->clear, key, usual));
    return go_on(w, point, i, key, is_set ? NULL : value, 0);
}

static bool uses_key(const struct ha_suite *s, const void *point, const char *name)
{
    for (size_t i = 0; i < s->keys; i++)
        if (!strcmp(s->key[i].name, name)) return ha_point_uses(s, point, i);
    return false;
}

/* Writes the words of at most `most` other keys, as "op=attend cases=one", that make the point use the key; false: none
 * do. The point keeps them. */
static bool used_with(const struct ha_suite *s, void *point, const char *name, int most, char out[2 * HA_VALUE_MAX])
{
    void *as_it_is = malloc(s->point_bytes);
    bool uses = false;
    if (as_it_is) memcpy(as_it_is, point, s->point_bytes);
    for (size_t i = 0; as_it_is && i < s->keys && !uses; i++) {
        const char *word;
        for (size_t k = 0; s->key[i].word && !uses && (word = s->key[i].word(k)); k++) {
            char more[2 * HA_VALUE_MAX] = "";
            memcpy(point, as_it_is, s->point_bytes);
            if (ha_point_set(point, &s->key[i], word, NULL) != HA_OK) continue;
            uses = uses_key(s, point, name) || (most > 1 && used_with(s, point, name, most - 1, more));
            if (uses)
                snprintf(out, 2 * HA_VALUE_MAX, "%s=%.100s%s%.100s", s->key[i].name, word, *more ? " " : "", more);
        }
    }
    free(as_it_is);
    return uses;
}

/* The point does not use the key: says which value of another key makes it do so, or which options its head has. */
static enum ha_status not_here(const struct ha_suite *s, void *point, const char *name, struct ha_why *why)
{
    const struct ha_key *head = s->more ? ha_suite_head(s) : NULL;
    struct ha_key own;
    char value[HA_VALUE_MAX], all[384] = "none", words[2 * HA_VALUE_MAX];
    for (int most = 1; !head && most <= 2; most++)
        if (used_with(s, point, name, most, words))
            return ha_why(why, HA_ERROR, "%s has no key '%.80s' with these values of the others; it has with %s",
                          s->name, name, words);
    if (!head) return ha_why(why, HA_ERROR, "%s has no key '%.80s' with these values of the others", s->name, name);
    ha_point_value(point, head, value);
    for (size_t i = 0, n = 0; s->more(point, i, &own) && n < sizeof all; i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? " " : "", own.name);
    return ha_why(why, HA_ERROR, "%s %s has no option '%.80s'; its own: %s", s->head, value, name, all);
}

/* No key was left over. */
static enum ha_status all_used(const struct walk *w)
{
    const struct ha_assignments *a = w->a;
    for (size_t i = 0; i < a->count; i++) {
        if (a->of[i].used || (a->of[i].line && !a->of[i].own)) continue;
        if (!a->file) return not_here(w->suite, w->last, a->of[i].name, w->why);
        not_here(w->suite, w->last, a->of[i].name, w->why);
        ha_why_prefix(w->why, HA_ERROR, "key '%s' belongs to none of the cases of [%s]", a->of[i].name, a->section);
        return where(w, HA_ERROR, a->of[i].line);
    }
    return HA_OK;
}

enum ha_status ha_assignments_check(const struct ha_suite *s, const struct ha_assignments *a, struct ha_why *why)
{
    for (size_t i = 0; i < a->count; i++) {
        const char *name = a->of[i].name;
        if (a->foreign && !a->of[i].own && !ha_suite_has_key(s, name)) continue;
        if (!ha_suite_has_key(s, name)) return at_line(a, ha_key_unknown(s, NULL, name, why), a->of[i].line, why);
        for (size_t k = 0; k < s->keys; k++)
            if (s->key[k].kind == HA_KEY_FACT && !strcmp(s->key[k].name, name))
                return at_line(a, ha_point_set(NULL, &s->key[k], "", why), a->of[i].line, why);
    }
    return HA_OK;
}

/* No product of the section's values is a case. Where the command line has set a key, it may be to blame. */
static enum ha_status impossible(const struct walk *w)
{
    if (!w->a->file || w->a->draw) return HA_OK;
    const char *reason = w->why && *w->why->text ? w->why->text : "none has these values of its keys together";
    for (size_t i = 0; i < w->a->overrides; i++) {
        if (!w->a->override[i].value) continue;
        fprintf(stderr, "section %s: no case is possible: %s\n", w->a->section, reason);
        return HA_OK;
    }
    char text[sizeof w->why->text];
    snprintf(text, sizeof text, "%s", reason);
    return where(w, ha_why(w->why, HA_ERROR, "section %s: no case is possible: %.400s", w->a->section, text), 0);
}

enum ha_status ha_expand(const struct ha_suite *s, struct ha_assignments *a, ha_take *each, void *arg,
                         struct ha_why *why)
{
    struct walk w = { .suite = s, .a = a, .each = each, .arg = arg, .why = why };
    HA_TRY(ha_assignments_check(s, a, why));
    for (size_t i = 0; i < a->count; i++) a->of[i].used = false;
    void *clear = malloc(2 * s->point_bytes);
    if (!clear) return ha_why(why, HA_ERROR, "out of memory");
    ha_point_clear(s, clear);
    w.clear = clear;
    w.last = (char *)clear + s->point_bytes;
    if (why) why->text[0] = 0;
    enum ha_status status = at_key(&w, clear, 0);
    for (size_t i = 0; i < KEYS_MAX; i++) free(w.next[i]);
    if (status == HA_OK && w.products && !w.points) status = impossible(&w);
    if (status == HA_OK) status = all_used(&w);
    free(clear);
    return status;
}
