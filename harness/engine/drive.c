#include "harness/engine/drive.h"

#include "harness/base/stop.h"
#include "harness/base/why.h"
#include "harness/engine/group.h"
#include "harness/engine/machine.h"
#include "harness/report/row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 32, GROUP = 512 };

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static enum ha_status make_results(struct ha_driven *d, struct ha_why *why)
{
    struct ha_entry *entry = calloc(d->plan.entries + 1, sizeof *entry);
    struct ha_section *section = calloc(d->plan.sections + 1, sizeof *section);
    d->results.entry = entry;
    d->results.section = section;
    if (!entry || !section) return ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < d->plan.entries; i++)
        entry[d->results.entries++] = (struct ha_entry){ .point = d->plan.entry[i].point, .id = d->plan.entry[i].id };
    for (size_t i = 0; i < d->plan.sections; i++) section[d->results.sections++] = d->plan.section[i].of;
    return HA_OK;
}

void ha_driven_free(struct ha_driven *d)
{
    for (size_t i = 0; i < d->results.entries; i++) free((void *)(uintptr_t)d->results.entry[i].row);
    free((void *)(uintptr_t)d->results.entry);
    free((void *)(uintptr_t)d->results.section);
    ha_plan_free(&d->plan);
    *d = (struct ha_driven){ 0 };
}

const struct ha_entry *ha_driven_find(const struct ha_driven *d, const char *text)
{
    for (size_t i = 0; i < d->results.entries; i++)
        if (strstr(d->results.entry[i].id, text)) return &d->results.entry[i];
    return NULL;
}

static const struct ha_field *field(const struct ha_driven *d, const char *column)
{
    for (size_t i = 0; i < d->suite->fields; i++)
        if (!strcmp(d->suite->field[i].name, column)) return &d->suite->field[i];
    return NULL;
}

double ha_driven_number(const struct ha_driven *d, const struct ha_entry *e, const char *column)
{
    if (!strcmp(column, "samples")) return ha_result_in(e->row)->samples;
    const struct ha_field *f = field(d, column);
    double x = (double)NAN;
    if (f && f->kind == HA_FIELD_NUMBER) memcpy(&x, (const char *)e->row + f->offset, sizeof x);
    return x;
}

const char *ha_driven_text(const struct ha_driven *d, const struct ha_entry *e, const char *column)
{
    const struct ha_field *f = field(d, column);
    return f && f->kind == HA_FIELD_TEXT ? (const char *)e->row + f->offset : NULL;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static enum ha_status run_all(const struct ha_drive *drive, struct ha_driven *d, void *run, struct ha_why *why)
{
    struct ha_entry *all = (struct ha_entry *)(uintptr_t)d->results.entry;
    const struct ha_suite *s = d->suite;
    size_t index[GROUP];
    for (size_t first = 0, count = 0; first < d->results.entries && !ha_stop; first += count) {
        struct ha_group_rows g;
        count = 0;
        do index[count] = first + count;
        while (++count < GROUP && first + count < d->results.entries && s->together
               && s->together(all[first].point, all[first + count].point));
        const enum ha_status status = ha_group_make(&g, &d->plan, index, count, why);
        g.of.cap_ns = drive->cap_ns;
        g.of.deadline_ns = drive->deadline_ns;
        if (status == HA_OK) ha_group_run(&g, s, run, drive->config.measure);
        for (size_t i = 0; i < count && status == HA_OK; i++) {
            d->verdict[ha_result_of(g.row[i])->verdict]++;
            all[first + i].row = g.row[i];
            g.row[i] = NULL;
        }
        ha_group_free(&g);
        HA_TRY(status);
    }
    return HA_OK;
}

static enum ha_status print(struct ha_driven *d, struct ha_why *why)
{
    FILE *f = fmemopen(d->printed, sizeof d->printed, "w");
    if (!f) return ha_why(why, HA_ERROR, "out of memory");
    if (d->suite->print) d->suite->print(f, &d->results);
    if (d->suite->conclude) d->suite->conclude(f, &d->results, why);
    fclose(f);
    d->printed[sizeof d->printed - 1] = 0;
    return HA_OK;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static enum ha_status choose(const struct ha_drive *drive, struct ha_plan *plan, struct ha_why *why)
{
    char text[2048], *word[WORDS];
    const struct ha_override set[] = {
        { "isa", drive->isa }, { "threads", drive->threads }, { "device", drive->device }, { "seed", drive->seed }
    };
    struct ha_plan_options o = { .words = word,
                                 .filter = drive->filter,
                                 .override = set,
                                 .overrides = sizeof set / sizeof *set,
                                 .small = !drive->config.measure && !drive->plan_only,
                                 .measured = drive->config.measure };
    if (drive->text) return ha_plan_parse(plan, &o, "x.suite", drive->text, why);
    snprintf(text, sizeof text, "%s", drive->words);
    for (char *rest = text, *w; (w = strtok_r(rest, " ", &rest)) && o.words_count < WORDS;) word[o.words_count++] = w;
    return ha_plan_make(plan, &o, why);
}

static void no_line(void *arg, size_t file, const void *row) { (void)arg, (void)file, (void)row; }
static void no_trace(void *arg, const char *events, size_t bytes) { (void)arg, (void)events, (void)bytes; }
static void no_progress(void *arg, size_t done, size_t of, const char *what) {}

enum ha_status ha_drive(const struct ha_drive *drive, struct ha_driven *d, struct ha_why *why)
{
    struct ha_suite_config config = drive->config;
    struct ha_machine *own = NULL;
    void *run = NULL;
    memset(d, 0, sizeof *d);
    d->results.measured = config.measure;
    HA_TRY(choose(drive, &d->plan, why));
    d->suite = d->plan.entry[0].suite;
    HA_TRY(make_results(d, why));
    if (drive->plan_only) return HA_OK;
    if (!config.machine) HA_TRY(ha_machine_create(&own, NULL, why));
    if (own) config.machine = own;
    if (!config.engine.line) config.engine.line = no_line;
    if (!config.engine.trace) config.engine.trace = no_trace;
    if (!config.engine.progress) config.engine.progress = no_progress;
    enum ha_status status = d->suite->begin(&run, &config, &d->results, why);
    if (status == HA_OK && drive->begun) drive->begun(drive->arg, run);
    if (status == HA_OK) status = run_all(drive, d, run, why);
    if (run) d->suite->end(run);
    if (status == HA_OK) status = print(d, why);
    ha_machine_destroy(own);
    return status;
}
