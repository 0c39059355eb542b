#include "harness/engine/suite_find.h"

#include "harness/api/suite.h"
#include "harness/base/registry.h"
#include "harness/base/program.h"
#include "harness/base/why.h"
#include "harness/base/words.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4096, SUITES_MAX = 256 };

/* Suite files, by the name without folder and ".suite"; of two with one name the first. */
struct found {
    struct {
        char *name, *path;
    } of[SUITES_MAX];
    size_t count;
};

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool ends_in_suite(const char *name)
{
    const size_t n = strlen(name), ending = strlen(".suite");
    return n > ending && !strcmp(name + n - ending, ".suite");
}

static const char *path_of(const struct found *f, const char *name)
{
    for (size_t i = 0; i < f->count; i++)
        if (!strcmp(f->of[i].name, name)) return f->of[i].path;
    return NULL;
}

static void add(struct found *f, const char *path, const char *file)
{
    if (!ends_in_suite(file) || !is_file(path) || f->count == SUITES_MAX) return;
    char *name = strndup(file, strlen(file) - strlen(".suite")), *copy = strdup(path);
    if (name && copy && !path_of(f, name)) {
        f->of[f->count].name = name;
        f->of[f->count++].path = copy;
        return;
    }
    free(name);
    free(copy);
}

static void scan(struct found *f, const char *dir, int depth)
{
    struct dirent **entries;
    const int n = scandir(dir, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char path[PATH_BYTES];
        const char *file = entries[i]->d_name;
        if (file[0] != '.' && (size_t)snprintf(path, sizeof path, "%s/%s", dir, file) < sizeof path) {
            add(f, path, file);
            if (depth > 0) scan(f, path, depth - 1);
        }
        free(entries[i]);
    }
    if (n >= 0) free(entries);
}

/* suites/ and suites/FAMILY/ of the current folder, then of the program's source tree, where it is
 * build/PROFILE/habench, or of where it is installed, as PREFIX/bin/habench: PREFIX/share/habench/suites */
static void scan_all(struct found *f)
{
    char exe[PATH_BYTES], dir[PATH_BYTES + 32];
    scan(f, "suites", 1);
    char *slash = ha_program_folder(exe, sizeof exe) ? exe + strlen(exe) : NULL;
    for (int up = 0; up < 3 && slash; up++) {
        *slash = 0;
        snprintf(dir, sizeof dir, "%s/suites", exe);
        scan(f, dir, 1);
        snprintf(dir, sizeof dir, "%s/share/habench/suites", exe);
        scan(f, dir, 1);
        slash = strrchr(exe, '/');
    }
}

static void release(struct found *f)
{
    for (size_t i = 0; i < f->count; i++) {
        free(f->of[i].name);
        free(f->of[i].path);
    }
}

/* suite files, and suites whose points need no file */
static void unknown(const struct found *f, const char *name, struct ha_why *why)
{
    const char *names[SUITES_MAX + 32] = { NULL };
    size_t n = 0;
    for (; n < f->count; n++) names[n] = f->of[n].name;
    for (size_t i = 0; i < ha_suites_count && n < SUITES_MAX + 31; i++)
        if (!ha_suites_all[i]->head && !path_of(f, ha_suites_all[i]->name)) names[n++] = ha_suites_all[i]->name;
    ha_unknown(why, "suite", name, names);
}

enum ha_status ha_suite_find(const char *name, char path[PATH_BYTES], struct ha_why *why)
{
    if (strlen(name) >= PATH_BYTES) return ha_why(why, HA_ERROR, "the suite's name is too long");
    if (strchr(name, '/') || ends_in_suite(name)) {
        if (!is_file(name)) return ha_why(why, HA_ERROR, "%.400s: there is no such suite file", name);
        memcpy(path, name, strlen(name) + 1);
        return HA_OK;
    }

    struct found f = { 0 };
    scan_all(&f);
    const char *known = path_of(&f, name);
    if (known) snprintf(path, PATH_BYTES, "%s", known);
    else unknown(&f, name, why);
    release(&f);
    return known ? HA_OK : HA_ERROR;
}

void ha_suite_list(FILE *out)
{
    struct found f = { 0 };
    scan_all(&f);
    for (size_t i = 0; i < f.count; i++) fprintf(out, "%-16s %s\n", f.of[i].name, f.of[i].path);
    for (size_t i = 0; i < ha_suites_count; i++)
        if (!ha_suites_all[i]->head && !path_of(&f, ha_suites_all[i]->name))
            fprintf(out, "%-16s %s\n", ha_suites_all[i]->name, ha_suites_all[i]->doc);
    release(&f);
}
