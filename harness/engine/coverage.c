#include "harness/base/registry.h"
#include "harness/base/why.h"
#include "harness/engine/point.h"
#include "harness/engine/suite_file.h"

#include <stdlib.h>

struct coverage {
    FILE *out;
    struct ha_coverage all;
};

static enum ha_status note(void *arg, const struct ha_suite *s, void *point, struct ha_why *why)
{
    ha_covering_note(arg, point);
    return HA_OK;
}

/* Shown to another ha_pairs than made them, which knows nothing of how they were made. */
static enum ha_status count_section(void *arg, const struct ha_file_section *f, struct ha_why *why)
{
    struct coverage *c = arg;
    struct ha_covering *made, *seen;
    if (!f->keys.cover) return HA_OK;
    const struct ha_suite *s = *f->suite ? ha_suite_named(f->suite, why) : ha_suites_all[0];
    if (!s) return ha_why_prefix(why, HA_ERROR, "%s:%zu", f->keys.file, f->suite_line);
    HA_TRY(ha_covering_create(&made, s, &f->keys, why));
    enum ha_status status = ha_covering_create(&seen, s, &f->keys, why);
    if (status == HA_OK) {
        status = ha_covering_expand(made, note, seen, why);
        if (c->out) fprintf(c->out, "[%s]\n", f->keys.section);
        const struct ha_coverage x = ha_covering_count(seen, c->out);
        if (c->out)
            fprintf(c->out, "    %zu axes, %zu values, %zu pairs: %zu met, %zu excluded, %zu missing; %zu cases\n",
                    x.axes, x.values, x.pairs, x.met, x.excluded, x.missing, x.points);
        c->all.points += x.points;
        c->all.pairs += x.pairs;
        c->all.met += x.met;
        c->all.excluded += x.excluded;
        c->all.missing += x.missing;
        ha_covering_destroy(seen);
    }
    ha_covering_destroy(made);
    return status;
}

enum ha_status ha_coverage_parse(const char *name, const char *text, FILE *out, struct ha_coverage *all,
                                 struct ha_why *why)
{
    struct coverage c = { .out = out };
    const enum ha_status status = ha_suite_file_parse(name, text, count_section, &c, why);
    *all = c.all;
    if (status == HA_OK && out)
        fprintf(out, "%s: %zu pairs: %zu met, %zu excluded, %zu missing; %zu cases\n", name, c.all.pairs, c.all.met,
                c.all.excluded, c.all.missing, c.all.points);
    return status;
}

enum ha_status ha_coverage_of(const char *word, FILE *out, struct ha_coverage *all, struct ha_why *why)
{
    char path[HA_SUITE_PATH_MAX], *text;
    HA_TRY(ha_suite_find(word, path, why));
    HA_TRY(ha_suite_file_load(path, &text, why));
    const enum ha_status status = ha_coverage_parse(path, text, out, all, why);
    free(text);
    return status;
}
