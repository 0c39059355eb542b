#include "harness/report/env.h"

#include "harness/base/why.h"
#include "harness/base/registry.h"
#include "harness/base/version.h"

#include <errno.h>
#include <gnu/libc-version.h>
#include <hwloc.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* the rest of the first line that begins with key, after its ": "; the whole first line where key is "" */
static void read_line(const char *path, const char *key, char *out, size_t size)
{
    char line[512];
    FILE *f = fopen(path, "re");

    out[0] = 0;
    if (!f) return;
    while (!*out && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, key, strlen(key))) continue;
        char *value = *key ? strchr(line, ':') : line;
        if (!value) continue;
        value += *key ? 1 + strspn(value + 1, " \t") : 0;
        snprintf(out, size, "%.*s", (int)size - 1, value);
    }
    fclose(f);
}

/* "always [madvise] never": the word in brackets */
static void chosen_word(char *text)
{
    char *open = strchr(text, '['), *close = open ? strchr(open, ']') : NULL;

    if (!close) return;
    memmove(text, open + 1, (size_t)(close - open - 1));
    text[close - open - 1] = 0;
}

static void read_topology(struct ha_env *env)
{
    hwloc_topology_t t;
    hwloc_bitmap_t mine = hwloc_bitmap_alloc();

    env->numa_node = -1;
    if (mine && hwloc_topology_init(&t) == 0) {
        if (hwloc_topology_load(t) == 0) {
            int cores = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE),
                nodes = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE);
            env->cores = cores > 0 ? (size_t)cores : 0;
            env->numa_nodes = nodes > 0 ? (size_t)nodes : 0;
            if (nodes > 1 && hwloc_get_cpubind(t, mine, HWLOC_CPUBIND_PROCESS) == 0)
                for (int i = 0; i < nodes; i++) {
                    hwloc_obj_t node = hwloc_get_obj_by_type(t, HWLOC_OBJ_NUMANODE, (unsigned)i);
                    if (hwloc_bitmap_isincluded(mine, node->cpuset)) env->numa_node = (int)node->os_index;
                }
        }
        hwloc_topology_destroy(t);
    }
    hwloc_bitmap_free(mine);
}

void ha_env_read(struct ha_env *env)
{
    struct utsname u;
    char text[64];
    time_t now = time(NULL);
    struct tm utc;

    struct ha_kernels kernels;
    struct ha_why why;

    memset(env, 0, sizeof *env);
    if (ha_kernels_resolve(NULL, &kernels, &why) == HA_OK) snprintf(env->isa, sizeof env->isa, "%s", kernels.name);
    read_line("/proc/cpuinfo", "model name", env->cpu, sizeof env->cpu);
    read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "", env->governor, sizeof env->governor);
    read_line("/sys/kernel/mm/transparent_hugepage/enabled", "", text, sizeof text);
    chosen_word(text);
    snprintf(env->huge_pages, sizeof env->huge_pages, "%.15s", text);
    if (uname(&u) == 0) snprintf(env->kernel, sizeof env->kernel, "%.64s %.64s %.24s", u.sysname, u.release, u.machine);
    snprintf(env->libc, sizeof env->libc, "glibc %.16s", gnu_get_libc_version());
    read_line("/proc/meminfo", "MemTotal", text, sizeof text);
    env->memory_bytes = strtoull(text, NULL, 10) * 1024;
    if (gmtime_r(&now, &utc)) strftime(env->date, sizeof env->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    read_topology(env);
}

/* This program's arguments, which the user typed, joined by blanks. */
static void command_line(char *out, size_t size)
{
    FILE *f = fopen("/proc/self/cmdline", "re");
    size_t n = f ? fread(out, 1, size - 1, f) : 0;

    if (f) fclose(f);
    out[n] = 0;
    for (size_t i = 0; i + 1 < n; i++)
        if (!out[i]) out[i] = ' ';
}

static const char *compiler(void)
{
#ifdef __clang__
    return "clang " __clang_version__;
#else
    return "gcc " __VERSION__;
#endif
}

static json_t *ceilings_json(const struct ha_ceilings *c)
{
    json_t *all = json_object();

    for (int i = 0; c && i < HA_CEILINGS; i++)
        if (!isnan(c->of[i].median))
            json_object_set_new(all, ha_ceiling_name((enum ha_ceiling)i),
                                json_pack("{s:f, s:f, s:f, s:I, s:s}", "median", c->of[i].median, "lo", c->of[i].lo,
                                          "hi", c->of[i].hi, "samples", (json_int_t)c->of[i].samples, "unit",
                                          ha_ceiling_unit((enum ha_ceiling)i)));
    return all;
}

/* what was not readable is left out */
static json_t *meters_json(const struct ha_device_meters *m)
{
    const struct {
        const char *name;
        double value;
    } number[] = {
        { "sm_clock_MHz", m->sm_clock_MHz },
        { "sm_clock_max_MHz", m->sm_clock_max_MHz },
        { "memory_clock_MHz", m->memory_clock_MHz },
        { "memory_clock_max_MHz", m->memory_clock_max_MHz },
        { "temperature_C", m->temperature_C },
        { "power_W", m->power_W },
        { "link_gen", m->link_gen },
        { "link_gen_max", m->link_gen_max },
        { "link_width", m->link_width },
        { "link_width_max", m->link_width_max },
    };
    const struct {
        const char *name, *value;
    } text[] = { { "throttle", m->throttle }, { "bus_id", m->bus_id } };
    json_t *all = json_object();

    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (!isnan(number[i].value)) json_object_set_new(all, number[i].name, json_real(number[i].value));
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        if (*text[i].value) json_object_set_new(all, text[i].name, json_string(text[i].value));
    return all;
}

/* text that is not UTF-8 has no place in JSON */
static json_t *text_json(const char *text)
{
    json_t *s = *text ? json_string(text) : NULL;

    return s ? s : json_null();
}

enum ha_status ha_env_write(const char *folder, const struct ha_env *env, const struct ha_device_api *api,
                            const struct ha_device_info *info, const struct ha_ceilings *ceilings, struct ha_why *why)
{
    char path[4096], command[4096];

    if (snprintf(path, sizeof path, "%s/env.json", folder) >= (int)sizeof path)
        return ha_why(why, HA_ERROR, "%s: the path is too long", folder);
    command_line(command, sizeof command);
    json_t *j = json_pack("{s:i, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                          "schema_version", 1, "date_utc", text_json(env->date), "command", text_json(command), "cpu",
                          text_json(env->cpu), "isa", text_json(env->isa), "cores", (json_int_t)env->cores,
                          "memory_bytes", (json_int_t)env->memory_bytes, "numa_nodes", (json_int_t)env->numa_nodes,
                          "numa_node", env->numa_node < 0 ? json_null() : json_integer(env->numa_node), "kernel",
                          text_json(env->kernel), "libc", text_json(env->libc), "governor", text_json(env->governor),
                          "huge_pages", text_json(env->huge_pages), "compiler", text_json(compiler()), "version",
                          text_json(ha_version()));
    if (j && api && info)
        json_object_set_new(j, "device",
                            json_pack("{s:s, s:s, s:o, s:I, s:I, s:o, s:o, s:o}", "driver", api->name, "kind",
                                      api->kind, "name", text_json(info->name), "memory_bytes",
                                      (json_int_t)info->memory_bytes, "compute_threads",
                                      (json_int_t)info->compute_threads, "built_with",
                                      text_json(api->built_with ? api->built_with : ""), "driver_version",
                                      text_json(info->driver), "spans", text_json(info->spans)));
    if (j && ceilings) {
        json_object_set_new(j, "ceilings", ceilings_json(ceilings));
        json_object_set_new(j, "device_meters", meters_json(&ceilings->meters));
    }
    enum ha_status status = HA_OK;
    if (!j) status = ha_why(why, HA_ERROR, "%s: no memory", path);
    else if (json_dump_file(j, path, JSON_INDENT(2)) != 0)
        status = ha_why(why, HA_ERROR, "%s: cannot write: %s", path, strerror(errno));
    json_decref(j);
    return status;
}

void ha_env_print(FILE *out, const struct ha_env *env, const struct ha_device_api *api,
                  const struct ha_device_info *info, const struct ha_ceilings *c)
{
    fprintf(out, "machine: %s, %zu cores, %.1f GiB; %s; %s kernels; habench %s\n", *env->cpu ? env->cpu : "unknown CPU",
            env->cores, (double)env->memory_bytes / 1073741824.0, env->kernel, *env->isa ? env->isa : "no",
            ha_version());
    if (api && info) {
        const char *means = !info->compute_threads ? ""
                            : strcmp(api->kind, "emulated")
                                ? ", a stand-in in host memory: its times are this host's"
                                : ", its kernels emulated on this CPU: its times are no GPU's";
        fprintf(out, "device: %s (%s)%s\n", info->name, api->kind, means);
    }
    if (!c) return;
    const double launch_ns = c->of[HA_CEIL_LAUNCH].median;
    fprintf(out, "ceilings: memory read %.1f GB/s (1 thread %.1f)", c->of[HA_CEIL_READ_ALL].hi,
            c->of[HA_CEIL_READ_1].hi);
    /* a device that moves nothing has none, nor one that cannot be asked */
    if (!isnan(c->of[HA_CEIL_H2D].hi))
        fprintf(out, ", link %.1f up %.1f down GB/s", c->of[HA_CEIL_H2D].hi, c->of[HA_CEIL_D2H].hi);
    if (!isnan(launch_ns)) fprintf(out, ", launch %.1f us", launch_ns / 1e3);
    fputc('\n', out);
}
