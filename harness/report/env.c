#include "harness/report/env.h"

#include "harness/base/arena.h"
#include "harness/base/clock.h"
#include "harness/base/fingerprint.h"
#include "harness/base/text.h"
#include "harness/base/tuning.h"
#include "harness/base/registry.h"
#include "harness/base/version.h"

#include <glob.h>
#include <gnu/libc-version.h>
#include <hwloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

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
            const int sockets = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PACKAGE);
            env->cores = cores > 0 ? (size_t)cores : 0;
            env->sockets = sockets > 0 ? (size_t)sockets : 0;
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

/* ---- which machine it is ----------------------------------------------------------------------------------------- */

/* 32 bits of a fingerprint, so that many texts have the same, and none can be read out of it. A name that can be
 * guessed can be tried: who publishes records has a salt of his own. */
static void digest(char out[9], const char *kind, const char *text)
{
    const char *salt = getenv("HABENCH_SALT");
    char all[768], sum[HA_FINGERPRINT_TEXT];
    *out = 0;
    if (!*text) return;
    const int n = snprintf(all, sizeof all, "%.200s/%s/%.500s", salt ? salt : "habench", kind, text);
    snprintf(out, 9, "%.8s", ha_fingerprint_print(ha_fingerprint_bytes(HA_FINGERPRINT_BEGIN, all, (size_t)n), sum) + 8);
}

static void read_identity(struct ha_env *env)
{
    char text[256], serial[128], host[128] = "";
    ha_text_line("/sys/class/dmi/id/board_serial", "", serial, sizeof serial);
    ha_text_line("/sys/class/dmi/id/product_uuid", "", text, sizeof text / 2);
    strcat(text, serial);
    digest(env->board, "board", text);
    ha_text_line("/etc/machine-id", "", text, sizeof text);
    digest(env->machine_id, "machine-id", text);
    if (gethostname(host, sizeof host - 1) != 0 || !strncmp(host, "localhost", 9)) *host = 0;
    digest(env->host, "host", host);
}

/* Of NVIDIA and AMD what draws or computes, and of all others what says that it computes. */
static size_t count_gpus(void)
{
    glob_t found;
    size_t n = 0;
    if (glob("/sys/bus/pci/devices/*/class", 0, NULL, &found) != 0) return 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char class[16], vendor[16], path[512];
        ha_text_line(found.gl_pathv[i], "", class, sizeof class);
        snprintf(path, sizeof path, "%.*svendor", (int)strlen(found.gl_pathv[i]) - 5, found.gl_pathv[i]);
        ha_text_line(path, "", vendor, sizeof vendor);
        const bool known = !strcmp(vendor, "0x10de") || !strcmp(vendor, "0x1002");
        n += !strncmp(class, "0x12", 4) || (known && !strncmp(class, "0x03", 4));
    }
    globfree(&found);
    return n;
}

void ha_env_read(struct ha_env *env)
{
    struct utsname u;
    char text[64];
    struct ha_kernels kernels;
    struct ha_why why;

    memset(env, 0, sizeof *env);
    env->plan = ha_tuning();
    if (ha_kernels_resolve(NULL, &kernels, &why) == HA_OK) snprintf(env->isa, sizeof env->isa, "%s", kernels.name);
    ha_text_line("/proc/cpuinfo", "model name", env->cpu, sizeof env->cpu);
    ha_text_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "", env->governor, sizeof env->governor);
    ha_text_line("/sys/kernel/mm/transparent_hugepage/enabled", "", text, sizeof text);
    chosen_word(text);
    snprintf(env->huge_pages, sizeof env->huge_pages, "%.15s", text);
    ha_text_line("/sys/class/dmi/id/bios_version", "", env->bios, sizeof env->bios);
    ha_text_line("/proc/cpuinfo", "microcode", env->microcode, sizeof env->microcode);
    if (uname(&u) == 0) snprintf(env->kernel, sizeof env->kernel, "%.64s %.64s %.24s", u.sysname, u.release, u.machine);
    snprintf(env->libc, sizeof env->libc, "glibc %.16s", gnu_get_libc_version());
    env->memory_bytes = ha_memory_size("").total_bytes;
    ha_date_utc(env->date);
    ha_text_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "", text, sizeof text);
    env->cpu_clock_max_MHz = atof(text) / 1e3;
    env->gpus = count_gpus();
    read_topology(env);
    read_identity(env);
}

void ha_env_device(struct ha_env_device *out, const char *asked, const struct ha_device_api *api,
                   const struct ha_device_info *info, const struct ha_eps *eps, const struct ha_ceilings *ceilings)
{
    memset(out, 0, sizeof *out); /* padding too: it may be written to a pipe */
    snprintf(out->asked, sizeof out->asked, "%s", asked);
    snprintf(out->driver, sizeof out->driver, "%s", api->name);
    snprintf(out->kind, sizeof out->kind, "%s", api->kind);
    snprintf(out->built_with, sizeof out->built_with, "%s", api->built_with ? api->built_with : "");
    out->info = *info;
    out->asked_eps = eps;
    if (eps) out->eps = *eps;
    out->probed = ceilings;
    if (ceilings) out->ceilings = *ceilings;
    ha_env_device_mend(out);
}

void ha_env_device_mend(struct ha_env_device *d)
{
    const struct {
        char *text;
        size_t bytes;
    } each[] = { { d->asked, sizeof d->asked },
                 { d->driver, sizeof d->driver },
                 { d->kind, sizeof d->kind },
                 { d->built_with, sizeof d->built_with },
                 { d->info.name, sizeof d->info.name },
                 { d->info.no_products, sizeof d->info.no_products },
                 { d->info.driver, sizeof d->info.driver },
                 { d->info.spans, sizeof d->info.spans },
                 { d->ceilings.meters.throttle, sizeof d->ceilings.meters.throttle },
                 { d->ceilings.meters.bus_id, sizeof d->ceilings.meters.bus_id } };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        each[i].text[each[i].bytes - 1] = 0;
        ha_text_clean(each[i].text);
    }
    bool *const known[] = { &d->asked_eps, &d->probed };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        unsigned char x;
        memcpy(&x, known[i], sizeof x);
        *known[i] = x != 0;
    }
}

void ha_env_print(FILE *out, const struct ha_env *env, const struct ha_env_device *d)
{
    fprintf(out, "machine: %s, %zu cores, %.1f GiB; %s; %s kernels; habench %s\n", *env->cpu ? env->cpu : "unknown CPU",
            env->cores, (double)env->memory_bytes / 1073741824.0, env->kernel, *env->isa ? env->isa : "no",
            ha_version());
    if (!d) return;
    const char *means = !d->info.compute_threads      ? ""
                        : strcmp(d->kind, "emulated") ? ", a stand-in in host memory: its times are this host's"
                                                      : ", its kernels emulated on this CPU: its times are no GPU's";
    fputs("device: ", out);
    ha_text_print(out, d->info.name);
    fprintf(out, ", of the kind %s%s\n", d->kind, means);
    const struct ha_ceilings *c = &d->ceilings;
    if (!d->probed) return;
    const double launch_ns = c->of[HA_CEIL_LAUNCH].median;
    fprintf(out, "ceilings: memory read %.1f GB/s (1 thread %.1f)", c->of[HA_CEIL_READ_ALL].hi,
            c->of[HA_CEIL_READ_1].hi);
    /* a device that moves nothing has none, nor one that cannot be asked */
    if (!isnan(c->of[HA_CEIL_H2D].hi))
        fprintf(out, ", link %.1f up %.1f down GB/s", c->of[HA_CEIL_H2D].hi, c->of[HA_CEIL_D2H].hi);
    if (!isnan(launch_ns)) fprintf(out, ", launch %.1f us", launch_ns / 1e3);
    fputc('\n', out);
}
