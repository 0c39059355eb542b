#include "harness/engine/plan.h"

#include "harness/base/array.h"
#include "harness/base/fingerprint.h"
#include "harness/base/registry.h"
#include "harness/base/why.h"
#include "harness/engine/point.h"
#include "harness/engine/suite_file.h"

#include <stdlib.h>
#include <string.h>

static enum ha_status out_of_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "out of memory"); }

/* ---- entries and sections ------------------------------------------------------------------------------------- */

static uint64_t hash_of(const char *id)
{
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */
    for (const char *p = id; *p; p++) hash = (hash ^ (unsigned char)*p) * 0x100000001b3;
    return hash;
}

/* Where this hash stands in plan->gone, or will. */
static size_t gone_slot(const struct ha_plan *plan, uint64_t hash)
{
    size_t i = (hash ^ hash >> 32) & (plan->gone_room - 1);
    while (plan->gone[i] && plan->gone[i] != hash) i = (i + 1) & (plan->gone_room - 1);
    return i;
}

static bool is_gone(const struct ha_plan *plan, const char *id)
{
    return plan->gone && plan->gone[gone_slot(plan, hash_of(id))] != 0;
}

/* false: no memory */
static bool make_gone(struct ha_plan *plan, const char *id)
{
    if (plan->gones >= plan->gone_room / 2) {
        struct ha_plan grown = { .gone_room = plan->gone_room ? 2 * plan->gone_room : 4096 };
        grown.gone = calloc(grown.gone_room, sizeof *grown.gone);
        if (!grown.gone) return false;
        for (size_t i = 0; i < plan->gone_room; i++)
            if (plan->gone[i]) grown.gone[gone_slot(&grown, plan->gone[i])] = plan->gone[i];
        free(plan->gone);
        plan->gone = grown.gone;
        plan->gone_room = grown.gone_room;
    }
    const size_t i = gone_slot(plan, hash_of(id));
    plan->gones += plan->gone[i] == 0;
    plan->gone[i] = hash_of(id);
    return true;
}

/* Where the entry of this id stands in plan->slot, or will. A slot holds an entry's index + 1; half of them are 0. */
static size_t slot_of(const struct ha_plan *plan, const char *id)
{
    size_t i = hash_of(id) & (plan->slots - 1);
    while (plan->slot[i] && strcmp(plan->entry[plan->slot[i] - 1].id, id) != 0) i = (i + 1) & (plan->slots - 1);
    return i;
}

static void find_slots(struct ha_plan *plan)
{
    for (size_t i = 0; i < plan->entries; i++) plan->slot[slot_of(plan, plan->entry[i].id)] = i + 1;
}

static enum ha_status make_room(struct ha_plan *plan, struct ha_why *why)
{
    if (plan->entries < plan->slots / 2) return HA_OK;
    const size_t room = plan->slots ? plan->slots : 64, slots = 2 * room;
    struct ha_plan_entry *grown = realloc(plan->entry, room * sizeof *grown);
    if (!grown) return out_of_memory(why);
    plan->entry = grown;
    free(plan->slot);
    plan->slot = calloc(slots, sizeof *plan->slot);
    plan->slots = plan->slot ? slots : 0;
    if (!plan->slot) return out_of_memory(why);
    find_slots(plan);
    return HA_OK;
}

/* *entry: the one of this id; *is_new: it was not there */
static enum ha_status add_entry(struct ha_plan *plan, const struct ha_plan_entry *like, size_t *entry, bool *is_new,
                                struct ha_why *why)
{
    HA_TRY(make_room(plan, why));
    size_t *slot = &plan->slot[slot_of(plan, like->id)];
    *is_new = *slot == 0;
    *entry = *is_new ? plan->entries : *slot - 1;
    if (!*is_new) return HA_OK;
    if (plan->entries >= HA_POINTS_MAX) return ha_why(why, HA_ERROR, "more than %d cases in all", HA_POINTS_MAX);
    struct ha_plan_entry e = *like;
    e.point = malloc(e.suite->point_bytes);
    e.id = strdup(like->id);
    e.from = strdup(like->from);
    plan->entry[plan->entries++] = e;
    if (!e.point || !e.id || !e.from) return out_of_memory(why);
    memcpy(e.point, like->point, e.suite->point_bytes);
    *slot = plan->entries;
    return HA_OK;
}

static enum ha_status add_section(struct ha_plan *plan, const struct ha_suite *s, const char *file, const char *name,
                                  size_t axis, struct ha_why *why)
{
    struct ha_plan_section *grown = realloc(plan->section, (plan->sections + 1) * sizeof *grown);
    if (!grown) return out_of_memory(why);
    plan->section = grown;
    struct ha_plan_section *x = &grown[plan->sections++];
    *x = (struct ha_plan_section){ .suite = s, .of = { .axis = axis } };
    snprintf(x->file, sizeof x->file, "%s", file);
    snprintf(x->of.name, sizeof x->of.name, "%s", name);
    return HA_OK;
}

static enum ha_status keep_lines(struct ha_plan_section *x, const struct ha_assignments *a, struct ha_why *why)
{
    x->line = a->line;
    x->path = strdup(a->file);
    x->key = calloc(a->count + 1, sizeof *x->key);
    for (size_t i = 0; x->key && i < a->count; i++) {
        if (!(x->key[i].name = strdup(a->of[i].name))) return out_of_memory(why);
        x->key[i].line = a->of[i].line;
        x->keys++;
    }
    return x->path && x->key ? HA_OK : out_of_memory(why);
}

static void free_section(struct ha_plan_section *x)
{
    for (size_t i = 0; i < x->keys; i++) free(x->key[i].name);
    free(x->key);
    free(x->path);
    free(x->of.entry);
}

/* The value of a key in an id, "trace/english" of "...,dataset=trace/english,...", without a folder. */
static bool value_in(const char *id, const char *key, char out[HA_VALUE_MAX])
{
    const size_t length = strlen(key);
    for (const char *p = strchr(id, ':'); p; p = strchr(p + 1, ',')) {
        if (strncmp(p + 1, key, length) != 0 || p[1 + length] != '=') continue;
        const char *value = p + length + 2;
        const size_t n = strcspn(value, ",");
        snprintf(out, HA_VALUE_MAX, "%.*s", (int)(n < HA_VALUE_MAX ? n : HA_VALUE_MAX - 1), value);
        const char *slash = strrchr(out, '/');
        if (slash) memmove(out, slash + 1, strlen(slash));
        return *out;
    }
    return false;
}

enum ha_status ha_plan_blame(const struct ha_plan *plan, size_t entry, enum ha_status status, struct ha_why *why)
{
    const struct ha_plan_section *s = NULL;
    const char *id = plan->entry[entry].id;
    char value[HA_VALUE_MAX];
    for (size_t i = 0; i < plan->sections && !s; i++)
        for (size_t k = 0; k < plan->section[i].of.count && !s; k++)
            if (plan->section[i].of.entry[k] == entry) s = &plan->section[i];
    if (!s || !s->path) return status;
    size_t line = s->line;
    for (size_t i = 0; i < s->keys; i++)
        if (s->key[i].line && value_in(id, s->key[i].name, value) && strstr(why->text, value)) line = s->key[i].line;
    return ha_why_prefix(why, status, "%s:%zu: [%s] %.*s", s->path, line, s->of.name, (int)strcspn(id, ":"), id);
}

static enum ha_status list_entry(struct ha_plan_section *of, size_t entry, bool is_new, struct ha_why *why)
{
    struct ha_section *s = &of->of;
    for (size_t i = 0; i < s->count && !is_new; i++)
        if (s->entry[i] == entry) return HA_OK;
    if (!ha_array_room(&s->entry, &of->room, s->count + 1, sizeof *s->entry)) return out_of_memory(why);
    s->entry[s->count++] = entry;
    return HA_OK;
}

static void free_entry(const struct ha_plan_entry *e)
{
    free(e->point);
    free(e->id);
    free(e->from);
    free(e->damaged);
}

void ha_plan_forget(struct ha_plan *plan, bool (*keep)(void *arg, const struct ha_plan_entry *entry), void *arg)
{
    size_t kept = 0, *section = calloc(plan->entries + 1, sizeof *section);
    if (!section) return; /* nothing is forgotten */
    for (size_t s = 0; s < plan->sections; s++) {
        for (size_t i = 0; i < plan->section[s].of.count; i++) section[plan->section[s].of.entry[i]] = s;
        plan->section[s].of.count = 0;
    }
    for (size_t i = 0; i < plan->entries; i++) {
        struct ha_section *of = &plan->section[section[i]].of;
        if (!keep(arg, &plan->entry[i]) && make_gone(plan, plan->entry[i].id)) {
            free_entry(&plan->entry[i]);
            continue;
        }
        of->entry[of->count++] = kept;
        plan->entry[kept++] = plan->entry[i];
    }
    plan->entries = kept;
    memset(plan->slot, 0, plan->slots * sizeof *plan->slot);
    find_slots(plan);
    free(section);
}

void ha_plan_free(struct ha_plan *plan)
{
    for (size_t i = 0; i < plan->entries; i++) free_entry(&plan->entry[i]);
    for (size_t i = 0; i < plan->sections; i++) free_section(&plan->section[i]);
    free(plan->entry);
    free(plan->slot);
    free(plan->gone);
    free(plan->section);
    for (size_t i = 0; i < plan->suite_files; i++) free(plan->suite_file[i].path);
    free(plan->suite_file);
    *plan = (struct ha_plan){ 0 };
}

/* ---- points --------------------------------------------------------------------------------------------------- */

struct sink {
    const char *file; /* that points are from, without folder and ending; NULL: the command line */
    struct ha_plan *plan;
    const struct ha_plan_options *options;
    struct ha_filter *filter; /* or NULL */
    size_t section;           /* of the plan */
    uint64_t time_ns;
    bool covering; /* the section is a covering list, whose points are as small as they may be */
};

static enum ha_status take(void *arg, const struct ha_suite *s, void *point, struct ha_why *why)
{
    struct sink *sink = arg;
    char id[HA_ID_MAX];
    if (sink->file && !sink->covering && sink->options->small && s->shrink) {
        s->shrink(point);
        if (s->settle) HA_TRY(s->settle(point, why));
    }
    if (ha_point_print(s, point, id, sizeof id) >= sizeof id)
        return ha_why(why, HA_ERROR, "the id is longer than %d characters: %.120s...", HA_ID_MAX - 1, id);
    if (sink->options->draw && !ha_draw_affords(sink->options->draw, s, point)) return HA_OK;
    if (sink->filter && !ha_filter_fits(sink->filter, s, point, id)) return HA_OK;
    if (is_gone(sink->plan, id)) return HA_OK;
    struct ha_plan_section *section = &sink->plan->section[sink->section];
    const struct ha_plan_entry like = { s, point, id, section->file, sink->time_ns, NULL };
    size_t entry;
    bool is_new;
    HA_TRY(add_entry(sink->plan, &like, &entry, &is_new, why));
    return list_entry(section, entry, is_new, why);
}

/* ---- words ---------------------------------------------------------------------------------------------------- */

/* The suite that an id of this head is of; *value: of its head key, or NULL. */
static const struct ha_suite *suite_of_head(const char *head, const char **value)
{
    *value = NULL;
    const struct ha_suite *s = ha_suite_named(head, NULL);
    if (s) return s;
    for (size_t i = 0; i < ha_suites_count; i++) {
        const struct ha_key *key = ha_suite_head(ha_suites_all[i]);
        for (size_t w = 0; key && key->word(w); w++)
            if (!strcmp(key->word(w), head)) {
                *value = key->word(w);
                return ha_suites_all[i];
            }
    }
    return NULL;
}

static enum ha_status unknown_head(const char *head, struct ha_why *why)
{
    const char *names[HA_NAMES_MAX + 1] = { NULL };
    char path[HA_SUITE_PATH_MAX];
    struct ha_why unused;
    if (ha_suite_find(head, path, &unused) == HA_OK && !ha_suite_has_steps(path))
        return ha_why(why, HA_ERROR,
                      "%.60s is a file of cases: choose from it by -f KEY=VALUE; --random draws from suites and "
                      "variants",
                      head);
    ha_heads(names, 0);
    return ha_unknown_head(why, head, names);
}

/* "key=value,..." into assignments; text is cut */
static enum ha_status read_terms(struct ha_assignments *a, char *text, const char *head, struct ha_why *why)
{
    for (char *term = text; term;) {
        char *next = strchr(term, ',');
        if (next) *next++ = 0;
        char *value = strchr(term, '=');
        if (!value || value == term || value[-1] == '!')
            return ha_why(why, HA_ERROR, "%.60s: '%.80s' is not key=value", head, term);
        *value++ = 0;
        HA_TRY(ha_assign(a, term, value, 0, why));
        term = next;
    }
    return HA_OK;
}

/* HEAD or HEAD:TERMS; each: what takes its points */
static enum ha_status read_id(const char *word, const struct ha_plan_options *o, ha_take *each, void *arg,
                              struct ha_why *why)
{
    struct ha_assignments a = { .override = o->override, .overrides = o->overrides, .draw = o->draw };
    const char *value;
    char *text = strdup(word);
    if (!text) return out_of_memory(why);
    char *terms = strchr(text, ':');
    if (terms) *terms++ = 0;
    const struct ha_suite *s = suite_of_head(text, &value);
    enum ha_status status = s ? HA_OK : unknown_head(text, why);
    if (status == HA_OK && value) status = ha_assign(&a, s->head, value, 0, why);
    if (status == HA_OK) status = read_terms(&a, terms, text, why);
    if (status == HA_OK) status = ha_expand(s, &a, each, arg, why);
    ha_assignments_free(&a);
    free(text);
    return status;
}

/* Whether the section gives the key two different values, before -f and options choose from them. */
static bool is_line(const struct ha_key *key, const struct ha_assignments *a)
{
    const char *values = key->value;
    for (size_t i = 0; i < a->count; i++)
        if (!strcmp(a->of[i].name, key->name)) values = a->of[i].values;
    const char *first = values + strspn(values, ha_blanks), *v = first;
    if (!strcmp(values, "*")) return key->word && key->word(0) && key->word(1);
    for (const size_t n = strcspn(first, ha_blanks); *v; v += strspn(v, ha_blanks)) {
        const size_t m = strcspn(v, ha_blanks);
        if (m != n || memcmp(v, first, n) != 0) return true;
        v += m;
    }
    return false;
}

static enum ha_status expand_covering(const struct ha_suite *s, const struct ha_assignments *a, struct sink *sink,
                                      struct ha_why *why)
{
    struct ha_covering *covering;
    HA_TRY(ha_covering_create(&covering, s, a, why));
    const enum ha_status status = ha_covering_expand(covering, take, sink, why);
    ha_covering_destroy(covering);
    return status;
}

static enum ha_status read_section(void *arg, const struct ha_file_section *f, struct ha_why *why)
{
    struct sink *sink = arg;
    const struct ha_suite *s = *f->suite ? ha_suite_named(f->suite, why) : ha_suites_all[0];
    if (!s) return ha_why_prefix(why, HA_ERROR, "%s:%zu", f->keys.file, f->suite_line);
    if (f->keys.most > 0 && !f->keys.cover)
        return ha_why(why, HA_ERROR, "%s:%zu: cost: goes with cover", f->keys.file, f->cost_line);
    if (f->keys.cover && sink->options->measured) return HA_OK;
    size_t axis = SIZE_MAX;
    for (size_t i = 0; *f->axis && i < s->keys; i++)
        if (!strcmp(s->key[i].name, f->axis)) axis = i;
    if (*f->axis && axis == SIZE_MAX)
        return ha_why_prefix(why, ha_key_unknown(s, NULL, f->axis, why), "%s:%zu: axis", f->keys.file, f->axis_line);
    if (*f->axis && !is_line(&s->key[axis], &f->keys))
        return ha_why(why, HA_ERROR, "%s:%zu: axis: a line takes two values of %s, and [%s] has fewer", f->keys.file,
                      f->axis_line, f->axis, f->keys.section);
    HA_TRY(add_section(sink->plan, s, sink->file, f->keys.section, axis, why));
    sink->section = sink->plan->sections - 1;
    HA_TRY(keep_lines(&sink->plan->section[sink->section], &f->keys, why));
    sink->time_ns = f->time_ns;
    sink->covering = f->keys.cover;
    struct ha_assignments a = f->keys;
    a.foreign = f->suite_line > f->keys.line;
    a.override = sink->options->override;
    a.overrides = sink->options->overrides;
    return a.cover ? expand_covering(s, &a, sink, why) : ha_expand(s, &a, take, sink, why);
}

/* the name without folder and ending */
static void stem(const char *path, char out[64])
{
    const char *slash = strrchr(path, '/');
    snprintf(out, 64, "%.63s", slash ? slash + 1 : path);
    char *ending = strstr(out, ".suite");
    if (ending) *ending = 0;
}

static enum ha_status add_file(struct ha_plan *plan, const struct ha_plan_options *options, struct ha_filter *filter,
                               const char *name, const char *text, const char *recorded, struct ha_why *why)
{
    char file[64];
    stem(name, file);
    if (!ha_array_room(&plan->suite_file, &plan->suite_file_room, plan->suite_files + 1, sizeof *plan->suite_file))
        return out_of_memory(why);
    struct ha_env_suite *own = &plan->suite_file[plan->suite_files];
    if (!(own->path = strdup(recorded))) return out_of_memory(why);
    plan->suite_files++;
    ha_fingerprint_print(ha_fingerprint_bytes(HA_FINGERPRINT_BEGIN, text, strlen(text)), own->digest);
    struct sink sink = { .plan = plan, .options = options, .filter = filter, .file = file };
    return ha_suite_file_parse(name, text, read_section, &sink, why);
}

/* A word with ':' is an id; another is a suite file, or else a suite or a variant with everything at its default. */
static enum ha_status add_word(struct ha_plan *plan, const struct ha_plan_options *o, struct ha_filter *filter,
                               const char *word, struct ha_why *why)
{
    char path[HA_SUITE_PATH_MAX], *text;
    const char *value;
    const bool is_file = strchr(word, '/') && !strchr(word, '=');
    if (!o->draw && (!strchr(word, ':') || is_file)) {
        const enum ha_status found = ha_suite_find(word, path, why);
        if (found == HA_OK && ha_suite_has_steps(path))
            return ha_why(why, HA_ERROR,
                          "%.400s is a file of steps: `habench run %.400s -o DIR`, and nothing beside it", path, word);
        if (found == HA_OK) {
            HA_TRY(ha_suite_file_load(path, &text, why));
            /* of one that comes with habench, where it is in the tree: a record does not name a folder of this machine
             */
            const char *in_tree = strcmp(path, word) != 0 ? strstr(path, "/suites/") : NULL, *next = in_tree;
            while (next && (next = strstr(next + 1, "/suites/"))) in_tree = next;
            const enum ha_status status = add_file(plan, o, filter, path, text, in_tree ? in_tree + 1 : path, why);
            free(text);
            return status;
        }
        if (is_file || !suite_of_head(word, &value)) return found;
    }
    char head[64];
    snprintf(head, sizeof head, "%.*s", (int)strcspn(word, ":"), word);
    const struct ha_suite *s = suite_of_head(head, &value);
    if (!s) return unknown_head(head, why);
    struct sink sink = { .plan = plan, .options = o, .filter = filter, .section = plan->sections };
    for (size_t i = 0; i < plan->sections; i++) /* ids of one suite stand together */
        if (plan->section[i].suite == s && !*plan->section[i].of.name) sink.section = i;
    if (sink.section == plan->sections) HA_TRY(add_section(plan, s, "", "", SIZE_MAX, why));
    return read_id(word, o, take, &sink, why);
}

enum ha_status ha_plan_parse(struct ha_plan *plan, const struct ha_plan_options *o, const char *name, const char *text,
                             struct ha_why *why)
{
    struct ha_filter *filter = NULL;
    if (why) why->text[0] = 0;
    enum ha_status status = o->filter ? ha_filter_create(&filter, o->filter, why) : HA_OK;
    if (status != HA_OK) return ha_why_prefix(why, status, "-f");
    if (text) status = add_file(plan, o, filter, name, text, name, why);
    for (size_t i = 0; i < o->words_count && status == HA_OK; i++) status = add_word(plan, o, filter, o->words[i], why);
    if (status == HA_OK && filter) {
        status = ha_filter_check(filter, why);
        if (status != HA_OK) ha_why_prefix(why, status, "-f");
        else if (!plan->entries) status = ha_why(why, HA_ERROR, "-f %.200s: none of the cases fits", o->filter);
    }
    ha_filter_destroy(filter);
    return status;
}

enum ha_status ha_plan_make(struct ha_plan *plan, const struct ha_plan_options *o, struct ha_why *why)
{
    HA_TRY(ha_plan_parse(plan, o, NULL, NULL, why));
    if (plan->entries) return HA_OK;
    return why && *why->text ? ha_why_prefix(why, HA_ERROR, "no such case")
                             : ha_why(why, HA_ERROR, "no case: none has these values of its keys together");
}

/* ---- points that are drawn --------------------------------------------------------------------------------------- */

enum ha_status ha_plan_draw(struct ha_plan *plan, const struct ha_plan_options *options, struct ha_draw *draw,
                            size_t count, struct ha_why *why)
{
    enum { NEIGHBOURS = 32, MISSES = 256, ROUNDS = 32 }; /* points of one word in turn; draws without one */
    struct ha_plan_options o = *options;
    struct ha_filter *filter = NULL;
    const size_t before = plan->entries;
    o.draw = draw;
    if (why) why->text[0] = 0;
    for (size_t i = 0; i < o.words_count; i++) { /* such a word is no draw that may be missed: none of it can succeed */
        const char *value;
        char head[64];
        snprintf(head, sizeof head, "%.*s", (int)strcspn(o.words[i], ":"), o.words[i]);
        if (!suite_of_head(head, &value)) return unknown_head(head, why);
    }
    HA_TRY(o.filter ? ha_filter_create(&filter, o.filter, why) : HA_OK);
    for (size_t misses = 0; misses < ROUNDS * MISSES * o.words_count; misses++, draw->point++) {
        const size_t known = plan->entries, turn = draw->given / NEIGHBOURS + misses / MISSES;
        if (known == before + count || known + 1 >= HA_POINTS_MAX) break;
        add_word(plan, &o, filter, o.words[turn % o.words_count], why);
        if (plan->entries == known) continue;
        ha_draw_given(draw, plan->entry[known].suite, plan->entry[known].point);
        misses = 0;
    }
    ha_filter_destroy(filter);
    if (plan->entries > before) return HA_OK;
    if (plan->entries + 1 >= HA_POINTS_MAX)
        return ha_why(why, HA_ERROR, "a folder holds %d cases; go on with another seed and folder", HA_POINTS_MAX);
    return why && *why->text ? HA_ERROR : ha_why(why, HA_ERROR, "nothing is left to draw");
}

enum ha_status ha_plan_add(struct ha_plan *plan, const struct ha_suite *s, void *point, size_t *entry,
                           struct ha_why *why)
{
    char id[HA_ID_MAX];
    bool is_new;
    if (ha_point_print(s, point, id, sizeof id) >= sizeof id) return ha_why(why, HA_ERROR, "its id is too long");
    size_t section = 0;
    while (section < plan->sections && plan->section[section].suite != s) section++;
    if (section == plan->sections) HA_TRY(add_section(plan, s, "", "", SIZE_MAX, why));
    const struct ha_plan_entry like = { .suite = s, .point = point, .id = id, .from = plan->section[section].file };
    HA_TRY(add_entry(plan, &like, entry, &is_new, why));
    return list_entry(&plan->section[section], *entry, is_new, why);
}

/* ---- one id --------------------------------------------------------------------------------------------------- */

struct single {
    const struct ha_suite *suite;
    void *point;
    size_t bytes, count;
};

static enum ha_status keep(void *arg, const struct ha_suite *s, void *point, struct ha_why *why)
{
    struct single *x = arg;
    if (x->count++) return ha_why(why, HA_ERROR, "the id names more than one case");
    if (s->point_bytes > x->bytes) return ha_why(why, HA_ERROR, "the id is one of %s", s->name);
    x->suite = s;
    memcpy(x->point, point, s->point_bytes);
    return HA_OK;
}

enum ha_status ha_id_parse(const char *id, const struct ha_suite **suite, void *point, size_t point_bytes,
                           struct ha_why *why)
{
    const struct ha_plan_options none = { .words_count = 0 };
    struct single x = { .point = point, .bytes = point_bytes };
    HA_TRY(read_id(id, &none, keep, &x, why));
    *suite = x.suite;
    return x.count ? HA_OK : ha_why(why, HA_ERROR, "%.200s: no case: none has these values of its keys together", id);
}
