#include "suites/variants/suite.h"

#include "harness/base/why.h"
#include "suites/variants/case.h"
#include "suites/variants/keys.h"
#include "harness/base/registry.h"
#include "harness/base/words.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 16384, VALUES_MAX = 1024, CASES_MAX = 100000, FILE_MAX_BYTES = 1 << 18, NAME_MAX_BYTES = 64 };

/* what inih takes for blank */
static const char blanks[] = " \t\v\f\r";

struct entry {
    char key[NAME_MAX_BYTES];
    char *value;
    size_t line;
};

struct section {
    char name[NAME_MAX_BYTES];
    struct entry *entries;
    size_t count, line;
};

/* What inih hands over, kept until the end, because [default] applies to every section. */
struct parser {
    const char *name, *rest; /* of the text; rest: not yet read */
    size_t line;
    bool too_long;
    size_t section_line; /* of the latest "[...", 0: none yet */
    struct section *sections;
    size_t count;
    struct ha_why *why;
    enum ha_status status;
};

static bool is_default(const struct section *s) { return !strcmp(s->name, "default"); }

static struct entry *find(const struct section *s, const char *key)
{
    for (size_t i = 0; s && i < s->count; i++)
        if (!strcmp(s->entries[i].key, key)) return &s->entries[i];
    return NULL;
}

static enum ha_status out_of_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "out of memory"); }

/* ---- reading ---------------------------------------------------------------------------- */

static bool section_starts(const char *line) { return line[strspn(line, blanks)] == '['; }

/* fgets from memory for inih, which does not tell its handler the line */
static char *next_line(char *out, int size, void *stream)
{
    struct parser *p = stream;
    if (!*p->rest || p->too_long) return NULL;
    p->line++;
    const size_t n = strcspn(p->rest, "\n");
    if (n + 2 > (size_t)size) {
        p->too_long = true;
        return NULL;
    }
    memcpy(out, p->rest, n);
    out[n] = '\n';
    out[n + 1] = 0;
    p->rest += p->rest[n] ? n + 1 : n;
    if (section_starts(out)) p->section_line = p->line;
    return out;
}

static enum ha_status add_section(struct parser *p, const char *name)
{
    struct section *grown = realloc(p->sections, (p->count + 1) * sizeof *grown);
    if (!grown) return out_of_memory(p->why);
    p->sections = grown;
    struct section *s = &grown[p->count++];
    *s = (struct section){ .line = p->section_line };
    snprintf(s->name, sizeof s->name, "%s", name);
    for (size_t i = 0; i + 1 < p->count; i++)
        if (!strcmp(p->sections[i].name, name)) {
            p->line = p->section_line;
            return ha_why(p->why, HA_ERROR, "section [%s] is there twice; first in line %zu", name,
                          p->sections[i].line);
        }
    return HA_OK;
}

static enum ha_status add_entry(struct parser *p, const char *section, const char *key, const char *value)
{
    if (p->section_line == 0) return ha_why(p->why, HA_ERROR, "key '%.60s' stands before the first [section]", key);
    if (p->count == 0 || p->sections[p->count - 1].line != p->section_line) {
        const enum ha_status st = add_section(p, section);
        if (st != HA_OK) return st;
    }
    struct section *s = &p->sections[p->count - 1];
    static const char *const more[] = { "variant", NULL };
    if (strcmp(key, "variant") && !ha_key_known(key)) return ha_key_unknown(p->why, key, NULL, more);
    const struct entry *twice = find(s, key);
    if (twice)
        return ha_why(p->why, HA_ERROR, "key '%s' is there twice in [%s]; first in line %zu", key, s->name,
                      twice->line);
    if (!value[strspn(value, blanks)]) return ha_why(p->why, HA_ERROR, "key '%s' has no value", key);

    struct entry *grown = realloc(s->entries, (s->count + 1) * sizeof *grown);
    if (!grown) return out_of_memory(p->why);
    s->entries = grown;
    struct entry *e = &grown[s->count];
    *e = (struct entry){ .value = strdup(value), .line = p->line };
    if (!e->value) return out_of_memory(p->why);
    snprintf(e->key, sizeof e->key, "%s", key);
    s->count++;
    return HA_OK;
}

/* inih's handler: 0 stops */
static int on_entry(void *user, const char *section, const char *key, const char *value)
{
    struct parser *p = user;
    p->status = add_entry(p, section, key, value);
    return p->status == HA_OK;
}

/* A section of which inih reports nothing has no key; it would vanish without a word. */
static enum ha_status check_sections(const struct parser *p, const char *text)
{
    size_t line = 1, i = 0;
    for (const char *t = text;; line++) {
        if (section_starts(t)) {
            if (i == p->count || p->sections[i].line != line)
                return ha_why(p->why, HA_ERROR, "%s:%zu: the section has no key", p->name, line);
            i++;
        }
        t += strcspn(t, "\n");
        if (!*t++) return HA_OK;
    }
}

static enum ha_status read_sections(struct parser *p, const char *text)
{
    static char comment_starts[] = ";#";
    ini_use_stack = false;
    ini_allow_realloc = false;
    ini_max_line = ini_initial_alloc = LINE_MAX_BYTES;
    ini_allow_multiline = false;
    ini_stop_on_first_error = true;
    ini_allow_bom = false;
    ini_inline_comment_prefixes = comment_starts;
    const int bad = ini_parse_stream(next_line, p, on_entry, p);

    if (p->status != HA_OK) return ha_why_prefix(p->why, p->status, "%s:%zu", p->name, p->line);
    if (p->too_long)
        return ha_why(p->why, HA_ERROR, "%s:%zu: the line is longer than %d bytes", p->name, p->line,
                      LINE_MAX_BYTES - 2);
    if (bad > 0) return ha_why(p->why, HA_ERROR, "%s:%d: neither [section] nor key = value", p->name, bad);
    if (bad < 0) return out_of_memory(p->why);
    return check_sections(p, text);
}

/* ---- the cross product ------------------------------------------------------------------- */

enum ha_status ha_case_list_add(struct ha_case_list *list, const struct ha_case *c, struct ha_why *why)
{
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 64;
        struct ha_case *grown = realloc(list->cases, capacity * sizeof *grown);
        if (!grown) return out_of_memory(why);
        list->cases = grown;
        list->capacity = capacity;
    }
    list->cases[list->count++] = *c;
    return HA_OK;
}

void ha_case_list_free(struct ha_case_list *list)
{
    free(list->cases);
    *list = (struct ha_case_list){ 0 };
}

/* The blank-separated words of an entry. */
struct axis {
    const struct entry *entry;
    char *words[VALUES_MAX];
    size_t count, at;
    char *text;
};

static enum ha_status split(struct axis *a, const struct entry *entry, struct ha_why *why)
{
    a->entry = entry;
    a->count = a->at = 0;
    a->text = strdup(entry->value);
    if (!a->text) return out_of_memory(why);
    char *save;
    for (char *w = strtok_r(a->text, blanks, &save); w; w = strtok_r(NULL, blanks, &save)) {
        if (a->count == VALUES_MAX)
            return ha_why(why, HA_ERROR, "key '%s' has more than %d values", entry->key, VALUES_MAX);
        a->words[a->count++] = w;
    }
    return HA_OK;
}

enum { AXES_MAX = HA_KEYS_COUNT + HA_PARAMS_MAX };

struct product {
    const struct parser *parser;
    const struct section *section, *defaults;
    const struct ha_variant *variant;
    struct axis *axes; /* [AXES_MAX], the last runs fastest */
    size_t count;
};

static enum ha_status add_axis(struct product *x, const char *key)
{
    const struct entry *e = find(x->section, key);
    if (!e) e = find(x->defaults, key);
    if (!e) return HA_OK;
    const enum ha_status st = split(&x->axes[x->count++], e, x->parser->why);
    return st == HA_OK ? st : ha_why_prefix(x->parser->why, st, "%s:%zu", x->parser->name, e->line);
}

static bool advance(struct product *x)
{
    for (size_t i = x->count; i-- > 0;) {
        if (++x->axes[i].at < x->axes[i].count) return true;
        x->axes[i].at = 0;
    }
    return false;
}

static enum ha_status emit(const struct product *x, struct ha_case_list *list)
{
    const struct parser *p = x->parser;
    struct ha_case c;
    ha_case_defaults(&c, x->variant);
    for (size_t i = 0; i < x->count; i++) {
        const struct axis *a = &x->axes[i];
        const enum ha_status st = ha_case_set(&c, a->entry->key, a->words[a->at], p->why);
        if (st != HA_OK) return ha_why_prefix(p->why, st, "%s:%zu", p->name, a->entry->line);
    }
    enum ha_status st = ha_case_validate(&c, p->why);
    if (st != HA_OK) return ha_why_prefix(p->why, st, "%s:%zu", p->name, x->section->line);
    if (list->count >= CASES_MAX)
        return ha_why(p->why, HA_ERROR, "%s:%zu: more than %d cases", p->name, x->section->line, CASES_MAX);
    return ha_case_list_add(list, &c, p->why);
}

static enum ha_status expand_variant(struct product *x, struct ha_case_list *list)
{
    enum ha_status st = HA_OK;
    x->count = 0;
    for (size_t i = 0; i < HA_KEYS_COUNT && st == HA_OK; i++) st = add_axis(x, ha_keys[i].name);
    for (size_t i = 0; i < x->variant->params_count && i < HA_PARAMS_MAX && st == HA_OK; i++)
        st = add_axis(x, x->variant->params[i].name);

    size_t cases = 1;
    for (size_t i = 0; i < x->count && st == HA_OK; i++)
        if ((cases *= x->axes[i].count) > CASES_MAX) /* before it can overflow */
            st = ha_why(x->parser->why, HA_ERROR, "%s:%zu: [%s] has more than %d cases", x->parser->name,
                        x->section->line, x->section->name, CASES_MAX);
    if (st == HA_OK) {
        do st = emit(x, list);
        while (st == HA_OK && advance(x));
    }
    for (size_t i = 0; i < x->count; i++) free(x->axes[i].text);
    return st;
}

/* A param must be one of at least one of the section's variants. */
static enum ha_status check_params(const struct product *x, const struct axis *variants)
{
    const struct parser *p = x->parser;
    for (size_t i = 0; i < x->section->count; i++) {
        const struct entry *e = &x->section->entries[i];
        if (!strcmp(e->key, "variant") || ha_key_find(e->key)) continue;
        bool used = false;
        size_t index;
        for (size_t v = 0; v < variants->count && !used; v++)
            used = ha_param_find(ha_variant_find(variants->words[v]), e->key, &index);
        if (!used)
            return ha_why(p->why, HA_ERROR, "%s:%zu: key '%s' belongs to none of the variants of [%s]", p->name,
                          e->line, e->key, x->section->name);
    }
    return HA_OK;
}

static enum ha_status check_variants(const struct parser *p, const struct axis *variants)
{
    for (size_t v = 0; v < variants->count; v++)
        if (!ha_variant_find(variants->words[v]))
            return ha_why_prefix(p->why, ha_variant_unknown(p->why, variants->words[v]), "%s:%zu", p->name,
                                 variants->entry->line);
    return HA_OK;
}

static enum ha_status expand_section(struct product *x, struct axis *variants, struct ha_case_list *list)
{
    const struct parser *p = x->parser;
    const struct entry *e = find(x->section, "variant");
    if (!e) e = find(x->defaults, "variant");
    if (!e)
        return ha_why(p->why, HA_ERROR, "%s:%zu: [%s] has no key 'variant'", p->name, x->section->line,
                      x->section->name);
    enum ha_status st = split(variants, e, p->why);
    if (st != HA_OK) ha_why_prefix(p->why, st, "%s:%zu", p->name, e->line);
    if (st == HA_OK) st = check_variants(p, variants);
    if (st == HA_OK) st = check_params(x, variants);
    for (size_t v = 0; v < variants->count && st == HA_OK; v++) {
        x->variant = ha_variant_find(variants->words[v]);
        st = expand_variant(x, list);
    }
    free(variants->text);
    return st;
}

static enum ha_status expand(const struct parser *p, struct ha_case_list *list)
{
    struct axis *axes = malloc((AXES_MAX + 1) * sizeof *axes); /* the last: the variants */
    if (!axes) return out_of_memory(p->why);
    struct product x = { .parser = p, .axes = axes };
    for (size_t i = 0; i < p->count; i++)
        if (is_default(&p->sections[i])) x.defaults = &p->sections[i];

    const size_t before = list->count;
    enum ha_status st = HA_OK;
    for (size_t i = 0; i < p->count && st == HA_OK; i++) {
        x.section = &p->sections[i];
        if (!is_default(x.section)) st = expand_section(&x, &axes[AXES_MAX], list);
    }
    if (st == HA_OK && list->count == before) st = ha_why(p->why, HA_ERROR, "%s: no case", p->name);
    if (st != HA_OK) list->count = before;
    free(axes);
    return st;
}

/* ---- entry points ------------------------------------------------------------------------ */

enum ha_status ha_suite_parse(const char *name, const char *text, struct ha_case_list *list, struct ha_why *why)
{
    struct parser p = { .name = name, .rest = text, .why = why, .status = HA_OK };
    enum ha_status st = read_sections(&p, text);
    if (st == HA_OK) st = expand(&p, list);
    for (size_t i = 0; i < p.count; i++) {
        for (size_t j = 0; j < p.sections[i].count; j++) free(p.sections[i].entries[j].value);
        free(p.sections[i].entries);
    }
    free(p.sections);
    return st;
}

enum ha_status ha_suite_read(const char *path, struct ha_case_list *list, struct ha_why *why)
{
    FILE *f = fopen(path, "rb");
    if (!f) return ha_why(why, HA_ERROR, "%s: %s", path, strerror(errno));
    enum ha_status st = HA_OK;
    char *text = malloc(FILE_MAX_BYTES + 1);
    const size_t n = text ? fread(text, 1, FILE_MAX_BYTES + 1, f) : 0;
    if (!text) st = out_of_memory(why);
    else if (ferror(f)) st = ha_why(why, HA_ERROR, "%s: %s", path, strerror(errno));
    else if (n > FILE_MAX_BYTES) st = ha_why(why, HA_ERROR, "%s: larger than %d bytes", path, FILE_MAX_BYTES);
    else if (memchr(text, 0, n)) st = ha_why(why, HA_ERROR, "%s: not a text file", path);
    if (st == HA_OK) {
        text[n] = 0;
        st = ha_suite_parse(path, text, list, why);
    }
    free(text);
    fclose(f);
    return st;
}
