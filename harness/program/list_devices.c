#include "harness/program/list_devices.h"

#include "harness/base/program.h"
#include "harness/engine/plugin.h"
#include "harness/base/registry.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void print_device(const char *name, const struct ha_device_api *api, const struct ha_kernels *kernels)
{
    const struct ha_device_config config = { .kernels = kernels };
    struct ha_device *device = NULL;
    struct ha_device_info info;
    struct ha_why why;
    memset(&info, 0, sizeof info);
    printf("%-10s %-7s ", name, api->kind);
    if (ha_plugin_merges_only(api)) {
        api->info(NULL, &info);
        printf("%.*s: a library; habench check lse_merge --device %s\n", (int)sizeof info.name, info.name, name);
        return;
    }
    if (api->open(&device, &config, &why) != HA_OK) {
        printf("not here: %s\n", why.text);
        return;
    }
    api->info(device, &info);
    printf("%.*s, %.1f GB memory, %.1f GB free\n", (int)sizeof info.name, info.name, (double)info.memory_bytes / 1e9,
           (double)info.memory_free_bytes / 1e9);
    api->close(device);
}

/* ha_NAME.so in the folder of the program is the device NAME */
static void print_plugins(const struct ha_kernels *kernels)
{
    char program[HA_PLUGIN_PATH_MAX], pattern[HA_PLUGIN_PATH_MAX + 16];
    if (!ha_program_folder(program, sizeof program)) return;
    snprintf(pattern, sizeof pattern, "%s/ha_*.so", program);
    glob_t found;
    if (glob(pattern, 0, NULL, &found)) return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *file = strrchr(found.gl_pathv[i], '/') + strlen("/ha_");
        char name[64];
        struct ha_why why;
        const struct ha_device_api *api;
        snprintf(name, sizeof name, "%.*s", (int)(strlen(file) - strlen(".so")), file);
        if (ha_plugin_load(found.gl_pathv[i], &api, &why) == HA_OK) print_device(name, api, kernels);
        else printf("%-10s %-7s not usable: %s\n", name, "plugin", why.text);
    }
    globfree(&found);
}

enum ha_exit ha_list_devices(const struct ha_options *o, struct ha_why *why)
{
    (void)o;
    struct ha_kernels kernels;
    if (ha_kernels_resolve(NULL, &kernels, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    for (size_t i = 0; i < ha_devices_count; i++) print_device(ha_devices_all[i]->name, ha_devices_all[i], &kernels);
    print_plugins(&kernels);
    return HA_EXIT_OK;
}
