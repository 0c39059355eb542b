#include "harness/engine/plugin.h"

#include "harness/base/file.h"
#include "harness/base/program.h"
#include "harness/base/registry.h"
#include "harness/base/why.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a device must have; all the rest is optional, and its absence waives cases. Of these, a library has
 * info alone and needs no names. */
static const struct {
    const char *name;
    size_t offset;
} mandatory[] = {
#define HA_ENTRY(field)                               \
    {                                                 \
#field, offsetof(struct ha_device_api, field) \
    }
    HA_ENTRY(name),         HA_ENTRY(kind),          HA_ENTRY(built_with),     HA_ENTRY(open),
    HA_ENTRY(close),        HA_ENTRY(info),          HA_ENTRY(failure),        HA_ENTRY(mem_alloc),
    HA_ENTRY(mem_free),     HA_ENTRY(stream_create), HA_ENTRY(stream_destroy), HA_ENTRY(stream_sync),
    HA_ENTRY(event_create), HA_ENTRY(event_destroy), HA_ENTRY(event_record),   HA_ENTRY(stream_wait),
    HA_ENTRY(event_sync),   HA_ENTRY(copy),
#undef HA_ENTRY
};
enum { MANDATORY_COUNT = sizeof mandatory / sizeof *mandatory };

/* Tables handed out, each filled up with NULL to the size this program knows; they live as long as it. */
struct plugin {
    struct plugin *next;
    const struct ha_device_api *exported;
    struct ha_device_api api;
    char name[64]; /* of a library that does not say */
};
static struct plugin *plugins;

bool ha_plugin_folder(size_t i, char out[HA_PLUGIN_PATH_MAX])
{
    static const char bin[] = "/bin", lib[] = "/lib/habench";
    if (i > 1 || !ha_program_folder(out, HA_PLUGIN_PATH_MAX)) return false;
    const size_t n = strlen(out), prefix = n - (sizeof bin - 1);
    if (i == 0) return true;
    if (n < sizeof bin - 1 || strcmp(out + prefix, bin) != 0 || prefix + sizeof lib > HA_PLUGIN_PATH_MAX) return false;
    memcpy(out + prefix, lib, sizeof lib);
    return true;
}

enum ha_status ha_plugin_find(const char *name, char path[HA_PLUGIN_PATH_MAX], struct ha_why *why)
{
    size_t length = strlen(name);
    if (strchr(name, '/') || (length > 3 && !strcmp(name + length - 3, ".so"))) {
        /* dlopen() would search the library path for a name without a slash */
        int wrote = snprintf(path, HA_PLUGIN_PATH_MAX, "%s%s", strchr(name, '/') ? "" : "./", name);
        if (wrote < HA_PLUGIN_PATH_MAX) return HA_OK;
        return ha_why(why, HA_ERROR, "the path of the plugin is longer than %d bytes", HA_PLUGIN_PATH_MAX - 1);
    }
    char folder[HA_PLUGIN_PATH_MAX];
    if (!ha_plugin_folder(0, folder))
        return ha_why(why, HA_ERROR, "device '%s': /proc/self/exe does not say where the program is", name);
    for (size_t i = 0; ha_plugin_folder(i, folder); i++) {
        if (snprintf(path, HA_PLUGIN_PATH_MAX, "%s/ha_%s.so", folder, name) >= HA_PLUGIN_PATH_MAX)
            return ha_why(why, HA_ERROR, "device '%.64s...': the path beside the program is too long", name);
        if (access(path, F_OK) == 0) return HA_OK;
    }
    return ha_why(why, HA_ERROR, "device '%s': not built in, and no file %s; build it there or give the path of a .so",
                  name, path);
}

static enum ha_status elf_read(FILE *file, const char *path, struct ha_why *why)
{
    struct stat st;
    ElfW(Ehdr) head;
    if (fstat(fileno(file), &st) != 0) return ha_why(why, HA_ERROR, "%s: %s", path, strerror(errno));
    if (fread(&head, sizeof head, 1, file) != 1 || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
        return ha_why(why, HA_ERROR, "%s: not a shared object (no ELF header)", path);
    if (head.e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32))
        return ha_why(why, HA_ERROR, "%s: not a shared object for this machine (wrong ELF class)", path);
    if (head.e_type != ET_DYN || head.e_phentsize != sizeof(ElfW(Phdr)))
        return ha_why(why, HA_ERROR, "%s: an ELF file, but not a shared object; link it with -shared", path);
    for (size_t i = 0; i < head.e_phnum; i++) {
        ElfW(Phdr) part;
        if (fseeko(file, (off_t)(head.e_phoff + i * sizeof part), SEEK_SET) != 0
            || fread(&part, sizeof part, 1, file) != 1
            || (part.p_type == PT_LOAD
                && (part.p_offset > (uint64_t)st.st_size || part.p_filesz > (uint64_t)st.st_size - part.p_offset)))
            return ha_why(why, HA_ERROR, "%s: a shared object that is cut short (%lld bytes); copy it again", path,
                          (long long)st.st_size);
    }
    return HA_OK;
}

/* dlopen() maps what the program headers promise without asking whether the file has it, and a cut file then
 * ends the process with SIGBUS: so this asks first. */
static enum ha_status elf_check(const char *path, struct ha_why *why)
{
    FILE *file = ha_file_read(path, why);
    if (!file) return HA_ERROR;
    const enum ha_status status = elf_read(file, path, why);
    fclose(file);
    return status;
}

static bool has_entry(const struct ha_device_api *api, size_t i)
{
    void (*entry)(void);
    _Static_assert(sizeof entry == sizeof(const char *), "a table entry is one word");
    memcpy(&entry, (const char *)api + mandatory[i].offset, sizeof entry);
    return entry != NULL;
}

/* api: the table as far as the plugin says that it goes, and NULL from there on. */
static enum ha_status device_check(const char *path, const struct ha_device_api *api, struct ha_why *why)
{
    for (size_t i = 0; i < MANDATORY_COUNT; i++) {
        if (api->struct_bytes < mandatory[i].offset + sizeof(void *))
            return ha_why(why, HA_ERROR, "%s: struct_bytes is %u: the table ends before '%s', which a device must have",
                          path, api->struct_bytes, mandatory[i].name);
        if (!has_entry(api, i))
            return ha_why(why, HA_ERROR, "%s: '%s' is NULL, and a device must have it", path, mandatory[i].name);
    }
    return HA_OK;
}

bool ha_plugin_merges_only(const struct ha_device_api *api)
{
    if (!api->info || !(api->merge || api->attend)) return false;
    for (size_t i = 0; i < MANDATORY_COUNT; i++)
        if (mandatory[i].offset >= offsetof(struct ha_device_api, open)
            && mandatory[i].offset != offsetof(struct ha_device_api, info) && has_entry(api, i))
            return false;
    return true;
}

static enum ha_status table_check(const char *path, const struct ha_device_api *api, struct ha_why *why)
{
    if (ha_plugin_merges_only(api)) return HA_OK;
    if (!api->open && !api->mem_alloc && !api->stream_create)
        return ha_why(why, HA_ERROR,
                      "%s: neither a device, which has 'open', nor a library, which has 'info' and 'merge' or 'attend'",
                      path);
    return device_check(path, api, why);
}

/* What the reports say of a library that does not introduce itself. */
static void name_library(struct plugin *plugin, const char *path)
{
    const char *slash = strrchr(path, '/');
    snprintf(plugin->name, sizeof plugin->name, "%s", slash ? slash + 1 : path);
    if (!plugin->api.name) plugin->api.name = plugin->name;
    if (!plugin->api.kind) plugin->api.kind = "plugin";
    if (!plugin->api.built_with) plugin->api.built_with = "unknown";
}

enum ha_status ha_plugin_load(const char *path, const struct ha_device_api **out, struct ha_why *why)
{
    enum ha_status status = elf_check(path, why);
    if (status != HA_OK) return status;
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so) return ha_why(why, HA_ERROR, "%s: cannot be loaded: %s", path, dlerror());
    const struct ha_device_api *exported = dlsym(so, HA_DEVICE_SYMBOL);
    if (!exported)
        return ha_why(why, HA_ERROR, "%s: exports no symbol '%s': not a device (kernels/null/null.c shows one)", path,
                      HA_DEVICE_SYMBOL);
    for (const struct plugin *p = plugins; p; p = p->next)
        if (p->exported == exported) {
            *out = &p->api;
            return HA_OK;
        }
    if (exported->abi != HA_DEVICE_ABI)
        return ha_why(why, HA_ERROR, "%s: compiled against device ABI %u, this program has ABI %u; compile it again",
                      path, exported->abi, HA_DEVICE_ABI);
    struct plugin *plugin = calloc(1, sizeof *plugin);
    if (!plugin) return ha_why(why, HA_ERROR, "%s: no memory for its table", path);
    memcpy(&plugin->api, exported,
           exported->struct_bytes < sizeof plugin->api ? exported->struct_bytes : sizeof plugin->api);
    status = table_check(path, &plugin->api, why);
    if (status != HA_OK) {
        free(plugin);
        return status;
    }
    name_library(plugin, path);
    plugin->exported = exported;
    plugin->next = plugins;
    plugins = plugin;
    *out = &plugin->api;
    return HA_OK;
}

/* ---- by name ----------------------------------------------------------------------------------------------------- */

static const struct ha_device_api *built_in(const char *name)
{
    for (size_t i = 0; i < ha_devices_count; i++)
        if (!strcmp(ha_devices_all[i]->name, name)) return ha_devices_all[i];
    return NULL;
}

enum ha_status ha_device_look(const char *name, struct ha_why *why)
{
    const char *names[32] = { NULL };
    char path[HA_PLUGIN_PATH_MAX];
    size_t n = 0;
    if (built_in(name)) return HA_OK;
    if (ha_plugin_find(name, path, why) == HA_OK) {
        const int fd = ha_file_open(path, why);
        return fd >= 0 && close(fd) == 0 ? HA_OK : ha_why_prefix(why, HA_ERROR, "device %.400s", name);
    }
    if (!strcmp(name, "cuda"))
        return ha_why(why, HA_WAIVED, "device cuda: its plugin was not built; `ninja cuda` builds it (docs/cuda.md)");
    for (size_t i = 0; i < ha_devices_count && n < 29; i++) names[n++] = ha_devices_all[i]->name;
    names[n++] = "cuda";
    const char *near = ha_nearest(name, names);
    return near ? ha_why(why, HA_ERROR, "unknown device '%.80s'; did you mean '%s'?", name, near) : HA_ERROR;
}

enum ha_status ha_device_find(const char *name, const struct ha_device_api **api, struct ha_why *why)
{
    char path[HA_PLUGIN_PATH_MAX];
    *api = built_in(name);
    if (*api) return HA_OK;
    HA_TRY(ha_plugin_find(name, path, why));
    return ha_plugin_load(path, api, why);
}
