#include "harness/program/list.h"

#include "harness/program/list_devices.h"
#include "harness/program/list_kernels.h"
#include "harness/report/folder.h"
#include "harness/base/registry.h"
#include "harness/program/run.h"
#include "harness/engine/suite_find.h"
#include "harness/base/why.h"
#include "harness/base/words.h"

#include <stdio.h>
#include <string.h>

enum { NAMES_MAX = 64 };

static enum ha_exit list_cases(const struct ha_options *o, struct ha_why *why)
{
    struct ha_plan plan = { 0 };
    const enum ha_status status = ha_program_plan(&plan, o, o->words + 1, o->words_count - 1, false, why);
    for (size_t i = 0; status == HA_OK && i < plan.entries; i++) puts(plan.entry[i].id);
    ha_plan_free(&plan);
    return status == HA_OK ? HA_EXIT_OK : HA_EXIT_USAGE;
}

static enum ha_exit list_suites(const struct ha_options *o, struct ha_why *why)
{
    (void)o;
    return ha_suite_list(stdout, why) == HA_OK ? HA_EXIT_OK : HA_EXIT_MISSING;
}

static enum ha_exit list_keys(const struct ha_options *o, struct ha_why *why)
{
    (void)o, (void)why;
    for (size_t i = 0; i < ha_suites_count; i++) {
        const struct ha_suite *suite = ha_suites_all[i];
        printf("%s: %s\n", suite->name, suite->doc);
        for (size_t k = 0; k < suite->keys; k++)
            printf("    %-10s %-6s %s\n", suite->key[k].name, suite->key[k].value, suite->key[k].doc);
    }
    return HA_EXIT_OK;
}

static enum ha_exit list_datasets(const struct ha_options *o, struct ha_why *why)
{
    (void)o, (void)why;
    for (size_t i = 0; i < ha_datasets_count; i++) {
        const struct ha_dataset *d = ha_datasets_all[i];
        printf("%-12s %s%s%s\n", d->name, d->doc, d->needs_file ? "; needs a file: " : "",
               d->needs_file ? d->needs_file : "");
    }
    return HA_EXIT_OK;
}

static enum ha_exit list_metrics(const struct ha_options *o, struct ha_why *why)
{
    (void)o, (void)why;
    ha_folder_print_fields(stdout, ha_suites_all, ha_suites_count);
    return HA_EXIT_OK;
}

/* What the program lists itself; suites have lists of their own. */
static const struct topic {
    const char *name;
    enum ha_exit (*list)(const struct ha_options *o, struct ha_why *why);
} topics[] = {
    { "cases", list_cases },        { "suites", list_suites },      { "keys", list_keys },
    { "devices", ha_list_devices }, { "kernels", ha_list_kernels }, { "datasets", list_datasets },
    { "metrics", list_metrics },
};
enum { TOPICS_COUNT = sizeof topics / sizeof *topics };

/* list i of those of all suites, in a row */
static const struct ha_list *list_of_suite(size_t i)
{
    for (size_t s = 0; s < ha_suites_count; i -= ha_suites_all[s++]->lists)
        if (i < ha_suites_all[s]->lists) return &ha_suites_all[s]->list[i];
    return NULL;
}

const char *ha_list_name(size_t i)
{
    if (i < TOPICS_COUNT) return topics[i].name;
    const struct ha_list *list = list_of_suite(i - TOPICS_COUNT);
    return list ? list->name : NULL;
}

enum ha_exit ha_list(const struct ha_options *o, struct ha_why *why)
{
    const char *names[NAMES_MAX + 1] = { NULL };
    size_t i = 0;
    while (i < NAMES_MAX && (names[i] = ha_list_name(i)) && strcmp(names[i], o->words[0])) i++;
    if (i == NAMES_MAX || !names[i]) {
        ha_unknown(why, "list", o->words[0], names);
        return HA_EXIT_USAGE;
    }
    const bool cases = !strcmp(names[i], "cases");
    if (cases != (o->words_count > 1)) {
        ha_why(why, HA_ERROR, cases ? "list %s: of which SUITE or CASE?" : "list %s takes no further word", names[i]);
        return HA_EXIT_USAGE;
    }
    if (i < TOPICS_COUNT) return topics[i].list(o, why);
    list_of_suite(i - TOPICS_COUNT)->print(stdout);
    return HA_EXIT_OK;
}
