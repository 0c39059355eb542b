#include "harness/program/list_devices.h"

#include "harness/base/program.h"

#include "harness/base/registry.h"
#include "harness/base/stop.h"
#include "harness/base/text.h"
#include "harness/base/try.h"
#include "harness/engine/plugin.h"
#include "harness/program/apart.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT_S = 60 }; /* of one device */

struct look {
    const char *name, *path;         /* path: of a plugin, or NULL */
    const struct ha_device_api *api; /* of one that is built in */
    const struct ha_kernels *kernels;
};

/* One line, in one piece: nothing is printed of a device that dies on the way. */
static enum ha_status look(void *arg, FILE *out, struct ha_why *why)
{
    const struct look *l = arg;
    const struct ha_device_config config = { .kernels = l->kernels };
    const struct ha_device_api *api = l->api;
    struct ha_device *device = NULL;
    struct ha_device_info info;
    memset(&info, 0, sizeof info);
    if (l->path) HA_TRY(ha_plugin_load(l->path, &api, why));
    if (ha_plugin_merges_only(api)) {
        api->info(NULL, &info);
        fprintf(out, "%-10s %-7s %.*s: a library; habench check lse_merge --device %s\n", l->name, api->kind,
                (int)sizeof info.name, info.name, l->name);
        return HA_OK;
    }
    const enum ha_status status = api->open(&device, &config, why);
    if (status != HA_OK) {
        fprintf(out, "%-10s %-7s not here: %.*s\n", l->name, api->kind, (int)sizeof why->text, why->text);
        return HA_OK;
    }
    api->info(device, &info);
    api->close(device);
    fprintf(out, "%-10s %-7s %.*s, %.1f GB memory, %.1f GB free\n", l->name, api->kind, (int)sizeof info.name,
            info.name, (double)info.memory_bytes / 1e9, (double)info.memory_free_bytes / 1e9);
    return HA_OK;
}

static void print_device(const struct look *l)
{
    struct look mine = *l;
    struct ha_why why = { "" };
    if (ha_apart(look, &mine, LIMIT_S * UINT64_C(1000000000), &why) == HA_OK) return;
    printf("%-10s %-7s not usable: ", l->name, l->path ? "plugin" : l->api->kind);
    ha_text_print(stdout, why.text);
    putchar('\n');
}

/* ha_NAME.so in the folder of the program is the device NAME */
static void print_plugins(const struct ha_kernels *kernels)
{
    char program[HA_PLUGIN_PATH_MAX], pattern[HA_PLUGIN_PATH_MAX + 16];
    if (!ha_program_folder(program, sizeof program)) return;
    snprintf(pattern, sizeof pattern, "%s/ha_*.so", program);
    glob_t found;
    if (glob(pattern, 0, NULL, &found)) return;
    for (size_t i = 0; i < found.gl_pathc && !ha_stop; i++) {
        const char *file = strrchr(found.gl_pathv[i], '/') + strlen("/ha_");
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(strlen(file) - strlen(".so")), file);
        ha_text_clean(name);
        print_device(&(struct look){ .name = name, .path = found.gl_pathv[i], .kernels = kernels });
    }
    globfree(&found);
}

enum ha_exit ha_list_devices(const struct ha_options *o, struct ha_why *why)
{
    (void)o;
    struct ha_kernels kernels;
    if (ha_kernels_resolve(NULL, &kernels, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    for (size_t i = 0; i < ha_devices_count && !ha_stop; i++)
        print_device(&(struct look){ .name = ha_devices_all[i]->name, .api = ha_devices_all[i], .kernels = &kernels });
    print_plugins(&kernels);
    return HA_EXIT_OK;
}
