#include "harness/program/preflight.h"

#include "harness/base/why.h"
#include "suites/variants/keys.h"
#include "harness/engine/plugin.h"
#include "harness/base/registry.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

static enum ha_exit check_isa(const char *isa, struct ha_why *why)
{
    struct ha_kernels kernels;
    switch (ha_kernels_resolve(isa, &kernels, why)) {
    case HA_OK: return HA_EXIT_OK;
    case HA_WAIVED: return HA_EXIT_WAIVED;
    default: return isa ? HA_EXIT_USAGE : HA_EXIT_ENVIRONMENT;
    }
}

enum ha_exit ha_preflight_device(const char *name, struct ha_why *why)
{
    const char *names[32] = { NULL };
    char path[HA_PLUGIN_PATH_MAX];
    for (size_t i = 0; i < ha_devices_count && i + 1 < sizeof names / sizeof *names; i++) {
        names[i] = ha_devices_all[i]->name;
        if (!strcmp(names[i], name)) return HA_EXIT_OK;
    }
    if (ha_plugin_find(name, path, why) == HA_OK) return HA_EXIT_OK;
    const char *near = ha_nearest(name, names);
    if (!near) return HA_EXIT_ENVIRONMENT;
    ha_why(why, HA_ERROR, "unknown device '%.80s'; did you mean '%s'?", name, near);
    return HA_EXIT_USAGE;
}

static enum ha_exit check_output(const struct ha_options *o, struct ha_why *why)
{
    if (!o->out_dir || o->resume) return HA_EXIT_OK;
    DIR *dir = opendir(o->out_dir);
    if (!dir) {
        if (errno == ENOENT) return HA_EXIT_OK;
        ha_why(why, HA_ERROR, "-o %.300s: %s", o->out_dir, strerror(errno));
        return HA_EXIT_USAGE;
    }
    bool empty = true;
    for (const struct dirent *e; (e = readdir(dir));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) empty = false;
    closedir(dir);
    if (empty) return HA_EXIT_OK;
    ha_why(why, HA_ERROR, "-o %.300s: the folder is not empty; give another name, or --resume to go on there",
           o->out_dir);
    return HA_EXIT_USAGE;
}

/* Opens what is read from a file once, with nothing asked of its shape. */
static enum ha_exit check_dataset(const struct ha_case *c, struct ha_why *why)
{
    const char *file;
    const struct ha_dataset *dataset = ha_case_dataset(c, &file);
    if (!dataset->needs_file) return HA_EXIT_OK;
    struct ha_shape shape = { .batch = 1, .dtype = c->shape.dtype, .q_len = 1 };
    struct ha_source *source;
    if (dataset->open(&source, &shape, 1, c->seed, file, why) != HA_OK) return HA_EXIT_MISSING;
    dataset->close(source);
    return HA_EXIT_OK;
}

enum ha_exit ha_preflight(const struct ha_options *o, const struct ha_case_list *list, struct ha_why *why)
{
    enum ha_exit code = check_isa(o->isa, why);
    if (code == HA_EXIT_OK) code = check_output(o, why);
    for (size_t i = 0; i < list->count && code == HA_EXIT_OK; i++) {
        const struct ha_case *c = &list->cases[i], *last = i ? c - 1 : NULL;
        if (!last || strcmp(c->device, last->device)) code = ha_preflight_device(c->device, why);
        if (code == HA_EXIT_OK && (!last || strcmp(c->dataset, last->dataset))) code = check_dataset(c, why);
    }
    return code;
}
