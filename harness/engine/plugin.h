#ifndef HA_PLUGIN_H
#define HA_PLUGIN_H

#include "harness/api/device.h"

enum { HA_PLUGIN_PATH_MAX = 4096 };

/* Folder i of those that hold plugins by name: the running program's and, where that is PREFIX/bin, PREFIX/lib/habench.
 * false: there is none. */
bool ha_plugin_folder(size_t i, char out[HA_PLUGIN_PATH_MAX]);
/* The file behind the device called `name`: a text with a '/' or ending in ".so" is the path itself, any
 * other is ha_NAME.so in these folders. HA_ERROR where there is no such file. */
enum ha_status ha_plugin_find(const char *name, char path[HA_PLUGIN_PATH_MAX], struct ha_why *why);

/* Loads the shared object and gives its table, in which the fields that the plugin is too old to have are
 * NULL. HA_ERROR, never HA_WAIVED: a plugin that was asked for and is not one is a mistake; that the machine
 * lacks the device is said later, by open(). Never unloaded: device runtimes keep threads and atexit hooks.
 * Call it from one thread at a time. */
enum ha_status ha_plugin_load(const char *path, const struct ha_device_api **out, struct ha_why *why);

/* True of a library: its table has info and merge or attend (or both) and is no device: no open, memory or
 * streams. Its entries are called with dev and stream NULL on host memory, and info tells its traits. name,
 * kind and built_with of a loaded table are never NULL. */
bool ha_plugin_merges_only(const struct ha_device_api *api);

/* The table of the device called `name`: one that is built in, the path of a plugin, or ha_NAME.so beside the program.
 * It runs code of the plugin. */
enum ha_status ha_device_find(const char *name, const struct ha_device_api **api, struct ha_why *why);
/* Is there such a device to find? Looks at names and files alone. HA_ERROR: there is none of this name and no such
 * file; HA_WAIVED: it is one of ours that was not built. */
enum ha_status ha_device_look(const char *name, struct ha_why *why);

#endif
