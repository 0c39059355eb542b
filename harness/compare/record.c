#define _GNU_SOURCE /* tdestroy */

#include "harness/compare/record.h"

#include "harness/base/array.h"
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/report/row.h"

#include <math.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

enum { NOTES_MOST = 8 };

const struct ha_part_of_machine ha_parts_of_machine[] = {
    { "beside_flops_GFLOPps", "clock of the CPU", false },
    { "beside_read_1_GBps", "memory read, 1 thread", false },
    { "beside_read_GBps", "memory read, all threads", false },
    { "beside_device_GBps", "device memory read", false },
    { "beside_h2d_GBps", "link, host to device", true },
    { "beside_d2h_GBps", "link, device to host", true },
    { "beside_launch_ns", "launch", false },
    { 0 },
};

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "out of memory"); }

enum ha_status ha_record_begin(struct ha_record *record, const char *path, struct ha_why *why)
{
    *record = (struct ha_record){ .notes = calloc(1, 1) };
    record->path = ha_record_keep(record, path);
    return record->notes && record->path ? HA_OK : no_memory(why);
}

/* As it is */
static char *keep(struct ha_record *r, const char *text)
{
    if (!ha_array_room(&r->text, &r->texts_room, r->texts + 1, sizeof *r->text)) return NULL;
    char *copy = strdup(text);
    if (copy) r->text[r->texts++] = copy;
    return copy;
}

const char *ha_record_keep(struct ha_record *r, const char *text)
{
    if (!*text) return "";
    char *copy = keep(r, text);
    return copy ? ha_text_clean(copy) : NULL;
}

static void add_note(struct ha_record *r, const char *line)
{
    const size_t have = strlen(r->notes), more = strlen(line);
    char *notes = realloc(r->notes, have + more + 2);
    if (!notes) return;
    memcpy(notes + have, line, more + 1);
    ha_text_clean(notes + have);
    memcpy(notes + have + more, "\n", 2);
    r->notes = notes;
}

void ha_record_note(struct ha_record *r, const char *line)
{
    if (r->noted++ < NOTES_MOST) add_note(r, line);
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    const struct ha_recorded_case *x = a, *y = b;
    const int order = strcmp(x->id, y->id);
    return order ? order : strcmp(x->mode, y->mode);
}

const struct ha_recorded_case *ha_record_case(const struct ha_record *r, const char *mode, const char *id)
{
    const struct ha_recorded_case key = { .id = id, .mode = mode };
    void *const *found = tfind(&key, &r->tree, by_id);
    return found ? *found : NULL;
}

const struct ha_recorded_figure *ha_record_figure(const struct ha_recorded_case *c, const char *name)
{
    for (size_t i = 0; i < c->figures; i++)
        if (!strcmp(c->figure[i].name, name)) return &c->figure[i];
    return NULL;
}

/* By the names that are kept, which are clean: two that differ in a control character are one case. */
struct ha_recorded_case *ha_record_add_case(struct ha_record *r, const char *mode, const char *id)
{
    struct ha_recorded_case key = { .id = id, .mode = mode };
    void **found = tfind(&key, &r->tree, by_id);
    if (found) return *found;
    key = (struct ha_recorded_case){ .id = ha_record_keep(r, id), .mode = ha_record_keep(r, mode) };
    if (!key.id || !key.mode) return NULL;
    found = tfind(&key, &r->tree, by_id);
    if (found) return *found;
    if (!ha_array_room(&r->cases, &r->room, r->count + 1, sizeof *r->cases)) return NULL;
    struct ha_recorded_case *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->id = key.id;
    c->mode = key.mode;
    c->suite = c->reason = "";
    c->last_night = SIZE_MAX;
    if (!tsearch(c, &r->tree, by_id)) {
        free(c);
        return NULL;
    }
    return r->cases[r->count++] = c;
}

/* How bad it is: the worst stands for a case. */
static int badness(enum ha_verdict v)
{
    static const int order[HA_VERDICTS] = {
        [HA_PASS] = 1,           [HA_SUSPECT] = 2,       [HA_UNCHECKED] = 3,
        [HA_VERDICT_WAIVED] = 4, [HA_VERDICT_ERROR] = 5, [HA_VERDICT_FAIL] = 6,
    };
    return order[v];
}

enum ha_status ha_record_add_verdict(struct ha_record *r, struct ha_recorded_case *c, const char *suite,
                                     enum ha_verdict verdict, const char *reason, struct ha_why *why)
{
    const size_t night = r->nights - 1;
    if (!c->nights || c->by_night[c->nights - 1].night != night) {
        if (!ha_array_room(&c->by_night, &c->nights_room, c->nights + 1, sizeof *c->by_night)) return no_memory(why);
        c->by_night[c->nights++] = (struct ha_verdict_of_night){ .night = night, .verdict = verdict };
    }
    struct ha_verdict_of_night *of_night = &c->by_night[c->nights - 1];
    if (badness(verdict) > badness(of_night->verdict)) of_night->verdict = verdict;
    of_night->processes++;
    c->processes++;
    r->night[night].verdicts[verdict]++;
    if (c->last_night == night && badness(verdict) <= badness(c->verdict)) return HA_OK;
    c->verdict = verdict;
    c->reason = ha_record_keep(r, reason);
    if (!*c->suite) c->suite = ha_record_keep(r, suite);
    c->last_night = night;
    return c->reason && c->suite ? HA_OK : no_memory(why);
}

static struct ha_recorded_figure *figure_of(struct ha_record *r, struct ha_recorded_case *c,
                                            const struct ha_recorded_figure *like)
{
    for (size_t i = 0; i < c->figures; i++)
        if (!strcmp(c->figure[i].name, like->name)) return &c->figure[i];
    if (!ha_array_room(&c->figure, &c->room, c->figures + 1, sizeof *c->figure)) return NULL;
    struct ha_recorded_figure *f = &c->figure[c->figures];
    *f = (struct ha_recorded_figure){ .name = ha_record_keep(r, like->name),
                                      .unit = ha_record_keep(r, like->unit),
                                      .better = like->better };
    if (!f->name || !f->unit) return NULL;
    c->figures++;
    return f;
}

static int by_number(const void *a, const void *b)
{
    const struct ha_disturbed *x = a, *y = b;
    return (x->process > y->process) - (x->process < y->process);
}

/* Is it a figure that another load moves, of a process that had one beside it? */
static bool disturbed(const struct ha_recorded_case *c, const struct ha_recorded_figure *f, size_t process)
{
    const struct ha_disturbed key = { .process = process };
    const bool counted = f->better == HA_NEITHER || !strcmp(f->unit, "bytes");
    return !counted && c->disturbances && bsearch(&key, c->disturbed, c->disturbances, sizeof key, by_number);
}

enum ha_status ha_record_add_disturbed(struct ha_record *r, struct ha_recorded_case *c, size_t process,
                                       struct ha_why *why)
{
    const struct ha_disturbed at = { r->nights - 1, process };
    if (c->disturbances && bsearch(&at, c->disturbed, c->disturbances, sizeof at, by_number)) return HA_OK;
    if (!ha_array_room(&c->disturbed, &c->disturbances_room, c->disturbances + 1, sizeof at)) return no_memory(why);
    size_t to = c->disturbances++;
    for (; to && c->disturbed[to - 1].process > process; to--) c->disturbed[to] = c->disturbed[to - 1];
    c->disturbed[to] = at;
    return HA_OK;
}

enum ha_status ha_record_add_outputs(struct ha_record *r, struct ha_recorded_case *c, size_t process,
                                     const char *digest, const char *plan, struct ha_why *why)
{
    if (!ha_array_room(&c->outputs, &c->outputs_room, c->outputs_count + 1, sizeof *c->outputs)) return no_memory(why);
    struct ha_recorded_outputs *o = &c->outputs[c->outputs_count++];
    *o = (struct ha_recorded_outputs){ .night = r->nights - 1, .process = process };
    snprintf(o->digest, sizeof o->digest, "%s", digest);
    snprintf(o->plan, sizeof o->plan, "%s", plan);
    ha_text_clean(o->digest);
    ha_text_clean(o->plan);
    return HA_OK;
}

enum ha_status ha_record_add_value(struct ha_record *r, struct ha_recorded_case *c,
                                   const struct ha_recorded_figure *like, struct ha_observation at, struct ha_why *why)
{
    struct ha_recorded_figure *f = figure_of(r, c, like);
    if (!f) return no_memory(why);
    if (at.value < 0 && (!strcmp(f->unit, "ns") || strstr(f->unit, "/s")))
        return ha_why(why, HA_FAIL, "a time or rate below zero");
    if (disturbed(c, f, at.process)) return HA_OK;
    const bool behind = f->count && f->at[f->count - 1].process >= at.process;
    for (size_t i = behind || f->unordered ? f->count : 0; i-- && f->at[i].night == at.night;)
        if (f->at[i].process == at.process) return ha_why(why, HA_FAIL, "a second row of the same case and process");
    if (!ha_array_room(&f->at, &f->room, f->count + 1, sizeof *f->at)) return no_memory(why);
    f->at[f->count++] = at;
    f->unordered = f->unordered || behind;
    if (at.process >= r->processes) r->processes = at.process + 1;
    return HA_OK;
}

/* ---- nights ------------------------------------------------------------------------------------------------------ */

enum ha_status ha_record_add_night(struct ha_record *r, const char *path, struct ha_why *why)
{
    if (!ha_array_room(&r->night, &r->nights_room, r->nights + 1, sizeof *r->night)) return no_memory(why);
    const char *slash = strrchr(path, '/');
    const struct ha_night night = { .name = ha_record_keep(r, slash && slash[1] ? slash + 1 : path),
                                    .path = keep(r, path) };
    if (!night.name || !night.path) return no_memory(why);
    r->night[r->nights++] = night;
    return HA_OK;
}

enum ha_status ha_record_add_fact(struct ha_record *r, const char *name, const char *value, struct ha_why *why)
{
    struct ha_night *n = &r->night[r->nights - 1];
    if (ha_night_fact(n, name)) return HA_OK; /* the first record of a night says */
    if (!ha_array_room(&n->fact, &n->facts_room, n->facts + 1, sizeof *n->fact)) return no_memory(why);
    const struct ha_fact fact = { ha_record_keep(r, name), ha_record_keep(r, value) };
    if (!fact.name || !fact.value) return no_memory(why);
    n->fact[n->facts++] = fact;
    return HA_OK;
}

const char *ha_night_fact(const struct ha_night *n, const char *name)
{
    for (size_t i = 0; i < n->facts; i++)
        if (!strcmp(n->fact[i].name, name)) return n->fact[i].value;
    return NULL;
}

/* ---- the machine ------------------------------------------------------------------------------------------------- */

static int by_process(const void *a, const void *b)
{
    const struct ha_observation *x = a, *y = b;
    if (x->process != y->process) return x->process < y->process ? -1 : 1;
    return (x->value > y->value) - (x->value < y->value);
}

/* All cases' readings of one part of the machine, to be freed; *like: one of the figures, or NULL. */
static struct ha_observation *gather(const struct ha_record *r, const char *name, const double *scale, size_t *count,
                                     const struct ha_recorded_figure **like)
{
    struct ha_observation *all = NULL;
    size_t room = 0;
    *count = 0;
    *like = NULL;
    for (size_t i = 0; i < r->count; i++) {
        const struct ha_recorded_figure *f = ha_record_figure(r->cases[i], name);
        if (!f || !f->count || (scale && isnan(scale[i]))) continue;
        if (!ha_array_room(&all, &room, *count + f->count, sizeof *all)) break;
        for (size_t k = 0; k < f->count; k++) {
            all[*count] = f->at[k];
            all[(*count)++].value *= scale ? scale[i] : 1;
        }
        *like = f;
    }
    if (*count) qsort(all, *count, sizeof *all, by_process);
    return all;
}

static struct ha_recorded_case *machine_of(struct ha_record *r, size_t last_night)
{
    struct ha_recorded_case *machine = ha_record_add_case(r, "run", HA_MACHINE_CASE);
    if (!machine) return NULL;
    machine->verdict = HA_PASS;
    machine->processes = 1;
    machine->last_night = last_night;
    return machine;
}

enum ha_status ha_record_add_readings(struct ha_record *r, const struct ha_record *of, const char *figure,
                                      const double *scale, struct ha_why *why)
{
    const struct ha_recorded_figure *like;
    size_t count;
    struct ha_observation *at = gather(of, figure, scale, &count, &like);
    const struct ha_recorded_figure found = like ? *like : (struct ha_recorded_figure){ 0 }; /* it may move */
    struct ha_recorded_case *machine = like ? machine_of(r, of->nights - 1) : NULL;
    enum ha_status status = like && !machine ? no_memory(why) : HA_OK;
    for (size_t i = 0, end; i < count && status == HA_OK; i = end) {
        for (end = i; end < count && at[end].process == at[i].process;) end++;
        const struct ha_observation middle = { at[i].night, at[i].process,
                                               (at[(i + end - 1) / 2].value + at[(i + end) / 2].value) / 2 };
        status = ha_record_add_value(r, machine, &found, middle, why);
    }
    free(at);
    return status;
}

enum ha_status ha_record_end(struct ha_record *r, struct ha_why *why)
{
    char more[96];
    for (const struct ha_part_of_machine *p = ha_parts_of_machine; p->figure; p++)
        HA_TRY(ha_record_add_readings(r, r, p->figure, NULL, why));
    if (r->noted <= NOTES_MOST) return HA_OK;
    snprintf(more, sizeof more, "and %zu lines more that were left out", r->noted - NOTES_MOST);
    add_note(r, more);
    return HA_OK;
}

static void nothing(void *node) {}

void ha_record_free(struct ha_record *r)
{
    tdestroy(r->tree, nothing);
    for (size_t i = 0; i < r->count; i++) {
        for (size_t f = 0; f < r->cases[i]->figures; f++) free(r->cases[i]->figure[f].at);
        free(r->cases[i]->figure);
        free(r->cases[i]->by_night);
        free(r->cases[i]->disturbed);
        free(r->cases[i]->outputs);
        free(r->cases[i]);
    }
    for (size_t i = 0; i < r->nights; i++) free(r->night[i].fact);
    for (size_t i = 0; i < r->texts; i++) free(r->text[i]);
    free(r->cases);
    free(r->night);
    free(r->text);
    free(r->notes);
    *r = (struct ha_record){ 0 };
}
