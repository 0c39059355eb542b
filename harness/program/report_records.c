#include "harness/program/report_parts.h"

#include "harness/base/why.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH = 3 };

static bool holds(const char *folder, const char *name)
{
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0;
}

static int is_shown(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static enum ha_status add(struct ha_record_paths *out, const char *path, struct ha_why *why)
{
    char **grown = realloc(out->path, (out->count + 1) * sizeof *grown);
    if (grown) out->path = grown;
    char *copy = grown ? strdup(path) : NULL;
    if (!copy) return ha_why(why, HA_ERROR, "out of memory");
    out->path[out->count++] = copy;
    return HA_OK;
}

static enum ha_status look(const char *folder, unsigned depth, struct ha_record_paths *out, struct ha_why *why)
{
    struct dirent **entry;
    char path[4096];
    if (holds(folder, "env.json")) return add(out, folder, why);
    const int count = scandir(folder, &entry, is_shown, alphasort);
    if (count < 0 && errno == ENOTDIR) return HA_OK;
    if (count < 0) return ha_why(why, HA_ERROR, "%s: cannot read: %s", folder, strerror(errno));
    enum ha_status status = HA_OK;
    for (int i = 0; i < count; i++) {
        const int n = snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
        if (status == HA_OK && depth && n > 0 && (size_t)n < sizeof path) status = look(path, depth - 1, out, why);
        free(entry[i]);
    }
    free(entry);
    return status;
}

enum ha_status ha_record_paths_find(const char *folder, struct ha_record_paths *out, struct ha_why *why)
{
    *out = (struct ha_record_paths){ 0 };
    if (access(folder, F_OK) != 0) return ha_why(why, HA_ERROR, "%s: there is no such folder", folder);
    HA_TRY(look(folder, DEPTH, out, why));
    if (out->count) return HA_OK;
    return ha_why(
        why, HA_ERROR,
        "%s: there is no record here, nor in a folder below (no env.json); `habench run SUITE -o DIR` makes one",
        folder);
}

void ha_record_paths_free(struct ha_record_paths *paths)
{
    for (size_t i = 0; i < paths->count; i++) free(paths->path[i]);
    free(paths->path);
    *paths = (struct ha_record_paths){ 0 };
}

bool ha_newest_night(const char *folder, char path[4096])
{
    struct dirent **entry;
    char below[4096];
    size_t nights = 0;
    if (holds(folder, "env.json") || holds(folder, "night.json") || holds(folder, "run/env.json")) return false;
    const int count = scandir(folder, &entry, is_shown, alphasort);
    for (int i = 0; i < count; i++) {
        const int n = snprintf(below, sizeof below, "%s/%s", folder, entry[i]->d_name);
        free(entry[i]);
        if (n <= 0 || (size_t)n >= sizeof below) continue;
        if (!holds(below, "env.json") && !holds(below, "night.json") && !holds(below, "run/env.json")) continue;
        memcpy(path, below, (size_t)n + 1);
        nights++;
    }
    if (count >= 0) free(entry);
    return nights > 1;
}
