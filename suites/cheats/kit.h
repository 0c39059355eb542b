#ifndef HA_CHEATS_KIT_H
#define HA_CHEATS_KIT_H

/* A device that cheats, in a file of its own: it has the entries of a sound device, but for those that `cheat` replaces
 * (docs/cheats.md). HA_CHEAT_OF names the sound device, the path of a plugin whose memory this process can read;
 * without it, it is sound.so beside this library, the embedded device. */

/* Included first: dladdr. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "harness/api/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ha_device_api *real; /* the sound device */
/* Replaces entries of the table, which has those of the sound device. */
void cheat(struct ha_device_api *api);

__attribute__((visibility("default"))) struct ha_device_api ha_device_api;

__attribute__((constructor)) static void begin_to_cheat(void)
{
    char path[4096];
    Dl_info here;
    const char *of = getenv("HA_CHEAT_OF");
    if (of && *of) snprintf(path, sizeof path, "%s", of);
    else if (dladdr(&ha_device_api, &here)) {
        const char *end = strrchr(here.dli_fname, '/');
        const int folder = end ? (int)(end - here.dli_fname) : 1;
        snprintf(path, sizeof path, "%.*s/sound.so", folder, end ? here.dli_fname : ".");
    } else return;
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    real = library ? (const struct ha_device_api *)dlsym(library, HA_DEVICE_SYMBOL) : NULL;
    if (!real) return; /* a table without an ABI is refused */
    ha_device_api = *real;
    ha_device_api.name = "cheat";
    cheat(&ha_device_api);
}

#endif
