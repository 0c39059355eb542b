#include "harness/base/program.h"

#include "harness/base/why.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool ha_program_folder(char *out, size_t bytes)
{
    const ssize_t length = readlink("/proc/self/exe", out, bytes);
    const bool whole = length > 0 && (size_t)length < bytes;
    out[whole ? length : 0] = 0;
    if (whole) *strrchr(out, '/') = 0;
    return whole;
}

bool ha_program_beside(char *path, size_t bytes, const char *in_tree, const char *installed)
{
    char folder[HA_PATH_BYTES];
    char *cut = ha_program_folder(folder, sizeof folder) ? folder + strlen(folder) : NULL;
    for (; cut; cut = strrchr(folder, '/')) {
        *cut = 0;
        const char *const roots[] = { in_tree, installed };
        for (size_t i = 0; i < 2; i++) {
            const int n = snprintf(path, bytes, "%s/%s", folder, roots[i]);
            if (n > 0 && (size_t)n < bytes && access(path, F_OK) == 0) return true;
        }
    }
    return false;
}

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

static bool ends_with(const char *s, const char *end)
{
    size_t a = strlen(s), b = strlen(end);
    return a >= b && strcmp(s + a - b, end) == 0;
}

enum ha_status ha_program_find(char path[HA_PATH_BYTES], const char *what, const char *below, const char *name,
                               const char *ending, struct ha_why *why)
{
    char folder[HA_PATH_BYTES];
    const char *end = ends_with(name, ending) ? "" : ending;
    if (strlen(name) >= HA_PATH_BYTES)
        return ha_why(why, HA_ERROR, "%s: the path is longer than %d bytes", what, HA_PATH_BYTES - 1);
    snprintf(path, HA_PATH_BYTES, "%s", name);
    if (is_file(path)) return HA_OK;
    if (strchr(name, '/')) /* what else is wrong with a path, open says */
        return access(path, F_OK) == 0 ? HA_OK : ha_why(why, HA_ERROR, "%s %.400s: there is no such file", what, name);
    snprintf(path, HA_PATH_BYTES, "%s/%.1024s%s", below, name, end);
    if (is_file(path)) return HA_OK;
    char *cut = ha_program_folder(folder, sizeof folder) ? folder + strlen(folder) : NULL;
    for (; cut; cut = strrchr(folder, '/')) {
        *cut = '\0';
        static const char *const roots[] = { "", "/share/habench" }; /* the source tree; PREFIX of what is installed */
        for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
            int n = snprintf(path, HA_PATH_BYTES, "%s%s/%s/%.1024s%s", folder, roots[i], below, name, end);
            if (n > 0 && n < HA_PATH_BYTES && is_file(path)) return HA_OK;
        }
    }
    return ha_why(why, HA_ERROR, "%s %.128s: no such file, and no %s/%.128s%s here or beside the program", what, name,
                  below, name, end);
}
