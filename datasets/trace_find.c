#include "datasets/trace.h"

#include "harness/base/program.h"
#include "harness/base/why.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4096 };

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

enum ha_status ha_trace_find(const char *name, char path[PATH_BYTES], struct ha_why *why)
{
    char folder[PATH_BYTES];
    const char *end = ends_with(name, ".safetensors") ? "" : ".safetensors";
    if (strlen(name) >= PATH_BYTES)
        return ha_why(why, HA_ERROR, "trace: the path is longer than %d bytes", PATH_BYTES - 1);
    snprintf(path, PATH_BYTES, "%s", name);
    if (is_file(path)) return HA_OK;
    if (strchr(name, '/')) /* what else is wrong with a path, open says */
        return access(path, F_OK) == 0 ? HA_OK : ha_why(why, HA_ERROR, "trace %.400s: there is no such file", name);
    snprintf(path, PATH_BYTES, "datasets/traces/%.1024s%s", name, end);
    if (is_file(path)) return HA_OK;
    char *cut = ha_program_folder(folder, sizeof folder) ? folder + strlen(folder) : NULL;
    for (; cut; cut = strrchr(folder, '/')) {
        *cut = '\0';
        static const char *const below[] = { "", "/share/habench" }; /* the source tree; PREFIX of what is installed */
        for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
            int n = snprintf(path, PATH_BYTES, "%s%s/datasets/traces/%.1024s%s", folder, below[i], name, end);
            if (n > 0 && n < PATH_BYTES && is_file(path)) return HA_OK;
        }
    }
    return ha_why(why, HA_ERROR,
                  "trace %.128s: no such file, and no datasets/traces/%.128s%s here or beside the program", name, name,
                  end);
}
