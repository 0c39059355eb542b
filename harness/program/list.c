#include "harness/program/commands.h"

#include "harness/base/registry.h"
#include "harness/base/stop.h"
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/engine/machine.h"
#include "harness/engine/plugin.h"
#include "harness/engine/suite_file.h"
#include "harness/program/apart.h"
#include "harness/report/folder.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

/* ---- devices ----------------------------------------------------------------------------------------------------- */

enum { NAMES_MAX = 64, LOOK_LIMIT_S = 60 /* at one device */ };

struct look {
    const char *name, *kind; /* as they are shown */
    const char *find;        /* what ha_device_find takes */
};

/* One line, in one piece: nothing is printed of a device that dies on the way. */
static enum ha_status look(void *arg, FILE *out, struct ha_why *why)
{
    const struct look *l = arg;
    const struct ha_device_api *api;
    struct ha_machine *machine;
    struct ha_device *device;
    struct ha_device_info info;
    memset(&info, 0, sizeof info);
    HA_TRY(ha_device_find(l->find, &api, why));
    HA_TRY(ha_machine_create(&machine, NULL, why));
    fprintf(out, "%-10s %-7s ", l->name, api->kind);
    if (ha_plugin_merges_only(api)) {
        api->info(NULL, &info);
        fprintf(out, "%.*s: a library; habench check lse_merge --device %s\n", (int)sizeof info.name, info.name,
                l->name);
    } else if (ha_machine_device(machine, l->find, NULL, &api, &device, why) == HA_OK) {
        api->info(device, &info);
        fprintf(out, "%.*s, %.1f GB memory, %.1f GB free\n", (int)sizeof info.name, info.name,
                (double)info.memory_bytes / 1e9, (double)info.memory_free_bytes / 1e9);
    } else fprintf(out, "not here: %.*s\n", (int)sizeof why->text, why->text);
    ha_machine_destroy(machine);
    return HA_OK;
}

static void print_device(struct look l)
{
    struct ha_why why = { "" };
    if (ha_apart(look, &l, LOOK_LIMIT_S * UINT64_C(1000000000), &why) == HA_OK) return;
    printf("%-10s %-7s not usable: ", l.name, l.kind);
    ha_text_print(stdout, why.text);
    putchar('\n');
}

static void list_plugins(const char *folder)
{
    char pattern[HA_PLUGIN_PATH_MAX + 16], name[64];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/ha_*.so", folder);
    if (glob(pattern, 0, NULL, &found)) return;
    for (size_t i = 0; i < found.gl_pathc && !ha_stop; i++) {
        const char *file = strrchr(found.gl_pathv[i], '/') + strlen("/ha_");
        snprintf(name, sizeof name, "%.*s", (int)(strlen(file) - strlen(".so")), file);
        print_device((struct look){ ha_text_clean(name), "plugin", found.gl_pathv[i] });
    }
    globfree(&found);
}

/* The built-in ones, and NAME of every ha_NAME.so that goes by its name; whether each opens here. */
static void list_devices(FILE *out)
{
    char folder[HA_PLUGIN_PATH_MAX];
    for (size_t i = 0; i < ha_devices_count && !ha_stop; i++) {
        const struct ha_device_api *api = ha_devices_all[i];
        print_device((struct look){ api->name, api->kind, api->name });
    }
    for (size_t i = 0; ha_plugin_folder(i, folder); i++) list_plugins(folder);
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* "; NAME has from it: attend_chunk, merge", where there are such kernels */
static void print_lent(FILE *out, const struct ha_kernels *best, const struct ha_kernels *k)
{
    bool any = false;
    for (size_t part = 0; ha_kernels_part(part); part++) {
        if (ha_kernels_origin(best->name, part) != k) continue;
        if (any) fprintf(out, ", %s", ha_kernels_part(part));
        else fprintf(out, "; %s has from it: %s", best->name, ha_kernels_part(part));
        any = true;
    }
}

/* Each table, whether it is used here, and what the one used by default takes from those below it. */
static void list_kernels(FILE *out)
{
    struct ha_kernels best;
    if (ha_kernels_resolve(NULL, &best, NULL) != HA_OK) return; /* c runs everywhere */
    for (size_t i = 0; i < ha_kernels_count; i++) {
        const struct ha_kernels *k = ha_kernels_all[i];
        const char *lack = ha_kernels_lack(k);
        const bool used = !strcmp(k->name, best.name);
        fprintf(out, "%-12s %s", k->name, lack ? lack : used ? "available, used by default" : "available");
        if (!lack && !used) print_lent(out, &best, k);
        putc('\n', out);
    }
}

/* ---- tables of the registry -------------------------------------------------------------------------------------- */

static enum ha_exit list_cases(const struct ha_options *o, struct ha_why *why)
{
    struct ha_plan plan = { 0 };
    const enum ha_status status = ha_program_plan(&plan, o, o->words + 1, o->words_count - 1, false, why);
    for (size_t i = 0; status == HA_OK && i < plan.entries; i++) puts(plan.entry[i].id);
    ha_plan_free(&plan);
    return status == HA_OK ? HA_EXIT_OK : HA_EXIT_USAGE;
}

static void list_keys(FILE *out)
{
    for (size_t i = 0; i < ha_suites_count; i++) {
        const struct ha_suite *suite = ha_suites_all[i];
        fprintf(out, "%s: %s\n", suite->name, suite->doc);
        for (size_t k = 0; k < suite->keys; k++)
            fprintf(out, "    %-10s %-6s %s\n", suite->key[k].name, suite->key[k].value, suite->key[k].doc);
    }
}

static void list_datasets(FILE *out)
{
    for (size_t i = 0; i < ha_datasets_count; i++) {
        const struct ha_dataset *d = ha_datasets_all[i];
        fprintf(out, "%-12s %s%s%s\n", d->name, d->doc, d->needs_file ? "; needs a file: " : "",
                d->needs_file ? d->needs_file : "");
    }
}

static void list_metrics(FILE *out) { ha_folder_print_fields(out, ha_suites_all, ha_suites_count); }

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* What the covering lists of a suite file have of all pairs of values. */
static enum ha_exit list_coverage(const struct ha_options *o, struct ha_why *why)
{
    size_t missing = 0;
    for (size_t i = 1; i < o->words_count; i++) {
        struct ha_coverage all;
        if (ha_coverage_of(o->words[i], stdout, &all, why) != HA_OK) return HA_EXIT_USAGE;
        missing += all.missing;
    }
    return missing ? HA_EXIT_WRONG : HA_EXIT_OK;
}

enum { CASES, COVERAGE, WITH_WORDS }; /* those that take further words; cases take options, too */
/* What the program lists itself; suites have lists of their own. */
static const struct ha_list own[] = {
    [CASES] = { "cases", NULL },   [COVERAGE] = { "coverage", NULL }, { "suites", ha_suite_list },
    { "keys", list_keys },         { "devices", list_devices },       { "kernels", list_kernels },
    { "datasets", list_datasets }, { "metrics", list_metrics },
};
enum { OWN = sizeof own / sizeof *own };

/* list i: the program's, then those of all suites, in a row; NULL behind the last */
static const struct ha_list *list_at(size_t i)
{
    if (i < OWN) return &own[i];
    i -= OWN;
    for (size_t s = 0; s < ha_suites_count; i -= ha_suites_all[s++]->lists)
        if (i < ha_suites_all[s]->lists) return &ha_suites_all[s]->list[i];
    return NULL;
}

const char *ha_list_name(size_t i) { return list_at(i) ? list_at(i)->name : NULL; }

/* An option of cases, beside another list: NULL, or its name. */
static const char *option_of_cases(const struct ha_options *o)
{
    const struct {
        const char *name, *value;
    } each[] = { { "filter", o->filter },   { "device", o->device }, { "seed", o->seed },
                 { "threads", o->threads }, { "team", o->team },     { "isa", o->isa } };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        if (each[i].value) return each[i].name;
    return NULL;
}

bool ha_list_again(size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (!strcmp(ha_list_name(k), ha_list_name(i))) return true;
    return false;
}

enum ha_exit ha_command_list(const struct ha_options *o, struct ha_why *why)
{
    const char *names[NAMES_MAX + 1] = { NULL };
    size_t i = 0, known = 0;
    for (; ha_list_name(i) && known < NAMES_MAX && strcmp(ha_list_name(i), o->words[0]) != 0; i++)
        if (!ha_list_again(i)) names[known++] = ha_list_name(i);
    if (!ha_list_name(i) || known == NAMES_MAX) {
        ha_unknown(why, "list", o->words[0], names);
        return HA_EXIT_USAGE;
    }
    if ((i < WITH_WORDS) != (o->words_count > 1)) {
        ha_why(why, HA_ERROR,
               i == CASES      ? "list %s: of which SUITE or CASE?"
               : i == COVERAGE ? "list %s: of which suite file?"
                               : "list %s takes no further word",
               o->words[0]);
        return HA_EXIT_USAGE;
    }
    if (i == CASES) return list_cases(o, why);
    const char *option = option_of_cases(o);
    if (option) {
        ha_why(why, HA_ERROR, "--%s means nothing to list %s", option, o->words[0]);
        return HA_EXIT_USAGE;
    }
    if (i == COVERAGE) return list_coverage(o, why);
    /* suites may have lists of one name */
    for (; ha_list_name(i); i++)
        if (!strcmp(ha_list_name(i), o->words[0])) list_at(i)->print(stdout);
    return HA_EXIT_OK;
}
