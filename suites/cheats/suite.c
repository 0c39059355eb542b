/* The gallery of cheats: devices that look faster than they are, or another (plugin.c, cheats.def). Each must be seen
 * by `habench run` or `habench probe`, and the device without a cheat must pass both. */

#include "harness/api/suite.h"
#include "harness/base/why.h"
#include "harness/engine/plugin.h"
#include "harness/engine/point.h"
#include "harness/report/row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern const struct ha_suite ha_suite_cheats;

static const struct cheat {
    const char *name, *kind, *by, *what;
} cheats[] = {
#define CHEAT(name, kind, by, what) { #name, #kind, #by, what },
#include "suites/cheats/cheats.def"
};
enum { CHEATS = sizeof cheats / sizeof *cheats, TEXT = 512 };

static bool is_honest(const struct cheat *c) { return !strcmp(c->kind, "honest"); }

struct point {
    size_t cheat;
};
struct row {
    struct ha_result head;
    char what[192], by[8], seen_as[TEXT];
};

static const char *cheat_word(size_t i) { return i < CHEATS ? cheats[i].name : NULL; }
static void print_kind(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    snprintf(out, HA_VALUE_MAX, "%s", cheats[((const struct point *)point)->cheat].kind);
}

static const struct ha_key keys[] = {
    { "cheat", "*", "what is planted: `habench list cheats`", HA_KEY_WORD, .offset = offsetof(struct point, cheat),
      .word = cheat_word, .always = true, .column = true },
    { "kind", "", "of what kind it is", HA_KEY_FACT, .print = print_kind, .column = true },
};
#define IN(member) HA_IN(struct row, member)
static const struct ha_field fields[] = {
    { "what", "", HA_FIELD_TEXT, IN(what), 1, "what the device does" },
    { "by", "", HA_FIELD_TEXT, IN(by), 1, "the command that saw it: run, probe" },
    { "seen_as", "", HA_FIELD_TEXT, IN(seen_as), 1, "what that said" },
};

static bool uses(const void *point, size_t key) { return true; }

/* ---- a cheat ----------------------------------------------------------------------------------------------------- */

static enum ha_status begin(void **run, const struct ha_suite_config *config, const struct ha_results *before,
                            struct ha_why *why)
{
    char folder[HA_PLUGIN_PATH_MAX];
    char *const path = *run = calloc(1, HA_PLUGIN_PATH_MAX);
    if (!path) return ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; ha_plugin_folder(i, folder); i++)
        if (snprintf(path, HA_PLUGIN_PATH_MAX, "%s/cheats.so", folder) < HA_PLUGIN_PATH_MAX && access(path, R_OK) == 0)
            return HA_OK;
    *path = 0;
    return HA_OK; /* each row says so */
}
static void end(void *run) { free(run); }

static enum ha_status open_group(void *run, struct ha_group *g, struct ha_why *why) { return HA_OK; }

/* The first line that says why: indented, behind the id of its case; or what the program itself said last. */
static void read_reason(FILE *from, char reason[TEXT])
{
    char line[2048];
    bool found = false;
    while (fgets(line, sizeof line, from)) {
        const size_t n = strcspn(line, "\n");
        line[n] = 0;
        const bool says = !strncmp(line, "    ", 4) && strncmp(line, "    habench ", 12) != 0;
        if (found || (!says && strncmp(line, "habench: ", 9) != 0)) continue;
        snprintf(reason, TEXT, "%.*s", TEXT - 1, line + (says ? 4 : 9));
        found = says;
    }
}

/* Runs the program itself on the device with the cheat. HA_FAIL: it refused its figures. */
static enum ha_status ask(const char *plugin, const struct cheat *c, char reason[TEXT], struct ha_why *why)
{
    char command[HA_PLUGIN_PATH_MAX + 512], self[HA_PLUGIN_PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) return ha_why(why, HA_ERROR, "/proc/self/exe cannot be read");
    self[n] = 0;
    const bool runs = !strcmp(c->by, "run");
    snprintf(command, sizeof command, "HA_CHEAT=%s '%s' %s --device '%s' 2>&1", c->name, self,
             runs ? "run cheated" : "probe", plugin);
    FILE *const out = popen(command, "r");
    if (!out) return ha_why(why, HA_ERROR, "the program cannot be run");
    read_reason(out, reason);
    const int status = pclose(out);
    if (!WIFEXITED(status)) return ha_why(why, HA_ERROR, "the program ended by a signal");
    return WEXITSTATUS(status) == 0 ? HA_OK : HA_FAIL;
}

static enum ha_status check(void *run, struct ha_group *g, struct ha_why *why)
{
    const struct point *p = g->point[0];
    const struct cheat *c = &cheats[p->cheat];
    const char *plugin = run;
    struct row *row = g->row[0];
    snprintf(row->what, sizeof row->what, "%s", c->what);
    if (!*plugin) return ha_why(why, HA_WAIVED, "cheats.so is not beside the program; `ninja` builds it");
    enum ha_status status = ask(plugin, c, row->seen_as, why);
    if (status == HA_OK && is_honest(c))
        status = ask(plugin, &(struct cheat){ .name = c->name, .by = "probe" }, row->seen_as, why);
    if (status == HA_ERROR) return status;
    const bool seen = status == HA_FAIL;
    if (seen) snprintf(row->by, sizeof row->by, "%s", c->by);
    else *row->seen_as = 0;
    g->right[0] = seen != is_honest(c);
    if (g->right[0]) return HA_OK;
    return seen ? ha_why(why, HA_FAIL, "a device without a cheat does not pass: %.300s", row->seen_as)
                : ha_why(why, HA_FAIL, "SURVIVED: `habench %s` believes it", c->by);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static void print(FILE *out, const struct ha_results *results)
{
    putc('\n', out);
    for (size_t i = 0; i < results->entries; i++) {
        const struct point *p = results->entry[i].point;
        const struct row *row = results->entry[i].row;
        if (!row) continue;
        const bool none = is_honest(&cheats[p->cheat]);
        ha_planted_print(out, &row->head, cheats[p->cheat].name, row->what, none ? "passes" : row->by,
                         none ? "FAILS" : "ALIVE", cheats[p->cheat].kind, row->seen_as);
    }
}

static void print_cheats(FILE *out)
{
    for (size_t i = 0; i < CHEATS; i++) fprintf(out, "%-20s %s: %s\n", cheats[i].name, cheats[i].kind, cheats[i].what);
}
static const struct ha_list lists[] = { { "cheats", print_cheats } };

const struct ha_suite ha_suite_cheats = {
    .name = "cheats",
    .doc = "devices that look faster than they are, each of which `run` or `probe` must see",
    .key = keys,
    .keys = sizeof keys / sizeof *keys,
    .class_key = "cheat",
    .field = fields,
    .fields = sizeof fields / sizeof *fields,
    .file = { "cheats.csv" },
    .uses = uses,
    .point_bytes = sizeof(struct point),
    .row_bytes = sizeof(struct row),
    .list = lists,
    .lists = 1,
    .begin = begin,
    .open = open_group,
    .check = check,
    .end = end,
    .print = print,
};
