#include "harness/base/file.h"
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/compare/fleet_print.h"

#include <stdlib.h>
#include <string.h>

static void put(FILE *f, const char *s) { ha_text_xml(f, s, "'"); }

/* To a CI server it is a failure where something is wrong or slower, an error where it cannot be said. */
static const char *tag_of(enum ha_exit exit)
{
    if (exit == HA_EXIT_OK) return "system-out";
    return exit == HA_EXIT_WRONG || exit == HA_EXIT_REGRESSION ? "failure" : "error";
}

static void put_case(FILE *f, const char *name, enum ha_exit exit, const char *word, char *line)
{
    const char *tag = tag_of(exit);
    fputs("    <testcase classname=\"fleet\" name=\"", f);
    put(f, name);
    fprintf(f, "\"><%s", tag);
    if (exit != HA_EXIT_OK) fprintf(f, " message=\"%s\"", word);
    putc('>', f);
    put(f, line ? line : "");
    fprintf(f, "</%s></testcase>\n", tag);
    free(line);
}

static void put_all(FILE *f, const struct ha_fleet *fleet)
{
    size_t failures = 0, errors = 0;
    const enum ha_exit all = ha_fleet_exit(fleet);
    for (size_t i = 0; i <= fleet->count; i++) {
        const enum ha_exit exit = i < fleet->count ? ha_fleet_state_exit(fleet->machine[i].state) : all;
        failures += !strcmp(tag_of(exit), "failure");
        errors += !strcmp(tag_of(exit), "error");
    }
    fprintf(f, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    fprintf(f, "<testsuites name=\"habench compare\" tests=\"%zu\" failures=\"%zu\" errors=\"%zu\">\n",
            fleet->count + 1, failures, errors);
    fprintf(f, "  <testsuite name=\"fleet\" tests=\"%zu\" failures=\"%zu\" errors=\"%zu\">\n", fleet->count + 1,
            failures, errors);
    for (size_t i = 0; i < fleet->count; i++) {
        const struct ha_fleet_machine *m = &fleet->machine[i];
        put_case(f, m->name, ha_fleet_state_exit(m->state), ha_fleet_state_word(m->state),
                 ha_fleet_line(fleet, m, NULL));
    }
    put_case(f, "verdict", all, ha_fleet_word(fleet), ha_fleet_line(fleet, NULL, NULL));
    fputs("  </testsuite>\n</testsuites>\n", f);
}

enum ha_status ha_fleet_junit(const char *path, const struct ha_fleet *fleet, struct ha_why *why)
{
    struct ha_whole_file out;
    HA_TRY(ha_whole_file_named(&out, path, why));
    put_all(out.file, fleet);
    return ha_whole_file_close(&out, why);
}
