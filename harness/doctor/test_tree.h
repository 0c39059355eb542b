#ifndef HA_DOCTOR_TEST_TREE_H
#define HA_DOCTOR_TEST_TREE_H

/* A tree of files of the system and a device, made up, in which every check is fit; and a look at both. */

#include "harness/base/test_folder.h"
#include "harness/doctor/doctor.h"

#include <math.h>
#include <sched.h>
#include <sys/stat.h>

/* ---- the good tree: @ is our core, # the other thread of it ------------------------------------------------------ */

#define CPU                "sys/devices/system/cpu/"
#define OUR                CPU "cpu@/"
#define NODE               "sys/devices/system/node/"
#define DEVICE             "sys/devices/pci0000:00/0000:00:01.0/0000:1b:00.0/"
#define PORT               "sys/devices/pci0000:00/0000:00:01.0/"
#define THP                "sys/kernel/mm/transparent_hugepage/enabled"
#define CLOCK              "sys/devices/system/clocksource/clocksource0/current_clocksource"
#define STAT(ours, theirs) "cpu  9 9 9 9 9 9 9 9 0 0\ncpu@ " ours " 0 0\ncpu# " theirs " 0 0\nintr 5\n"
#define LIMITS(files, processes, stack, locked, space)                                         \
    "Limit                     Soft Limit           Hard Limit           Units     \n"         \
    "Max stack size            " stack "              unlimited            bytes     \n"       \
    "Max processes             " processes "                96365                processes \n" \
    "Max open files            " files "                 20000                files     \n"    \
    "Max locked memory         " locked "              8388608              bytes     \n"      \
    "Max address space         " space "            unlimited            bytes     \n"
#define FILES(n)      LIMITS(n, "96365", "8388608", "8388608", "unlimited")
#define PROCESSES(n)  LIMITS("4096", n, "8388608", "8388608", "unlimited")
#define STACK(bytes)  LIMITS("4096", "96365", bytes, "8388608", "unlimited")
#define LOCKED(bytes) LIMITS("4096", "96365", "8388608", bytes, "unlimited")
#define SPACE(bytes)  LIMITS("4096", "96365", "8388608", "8388608", bytes)
#define MEMINFO(available, swap, swap_free)                                                                    \
    "MemTotal:       24684092 kB\nMemFree:        1000 kB\nMemAvailable:   " available " kB\nSwapTotal: " swap \
    " kB\nSwapFree: " swap_free " kB\n"
#define SELF(nice, policy)                                                                                    \
    "7 (a) b) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 20 " nice " 1 0 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 " \
    "17 0 0 " policy " 0 0 0\n"
#define STATUS(uid, nodes) "Name:\thabench\nUid:\t" uid "\t0\t0\t0\nMems_allowed_list:\t" nodes "\n"

/* spare: another file, or none, says the same, or it only adds to what is found */
static const struct file {
    const char *path, *text;
    bool spare;
} good[] = {
    { "proc/stat", STAT("100 0 0 5000 0 0 0 7", "50 0 0 5000 0 0 0 0"), false },
    { "proc/loadavg", "0.10 0.20 0.30 1/100 4711\n", false },
    { "proc/vmstat", "nr_free 5\npswpin 10\npswpout 20\n", false },
    { "proc/meminfo", MEMINFO("20000000", "1000000", "1000000"), false },
    { "proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme hypervisor_not\n", false },
    { "proc/self/limits", FILES("4096"), false },
    { "proc/self/cgroup", "9:name=systemd:/\n5:devices:/\n0::/user.slice/a\n", false },
    { "proc/self/stat", SELF("0", "0"), false },
    { "proc/self/status", STATUS("1000", "0-1"), false },
    { "proc/self/numa_maps", "7f00 default anon=9 dirty=9 N0=9 N1=1\n7f01 default file=/x mapped=5 N1=500\n", false },
    { "proc/sys/kernel/numa_balancing", "0\n", false },
    { "proc/sys/kernel/sched_rt_runtime_us", "950000\n", true },
    { "proc/sys/vm/swappiness", "1\n", false },
    { "proc/driver/nvidia/params", "Mobile: 1\nRmProfilingAdminOnly: 0\n", false },
    { "sys/fs/cgroup/cpu.max", "max 100000\n", false },
    { "sys/fs/cgroup/user.slice/a/cpu.max", "200000 100000\n", false },
    { "sys/fs/cgroup/memory.max", "max\n", false },
    { "sys/class/dmi/id/product_name", "PowerEdge R760\n", true },
    { CPU "online", "@\n", false },
    { CPU "intel_pstate/no_turbo", "1\n", false },
    { OUR "cpufreq/scaling_governor", "performance\n", false },
    { OUR "cpufreq/scaling_driver", "acpi-cpufreq\n", true },
    { OUR "cpufreq/scaling_cur_freq", "2600000\n", false },
    { OUR "cpufreq/base_frequency", "2600000\n", false },
    { OUR "thermal_throttle/core_throttle_count", "3\n", false },
    { OUR "topology/thread_siblings_list", "@,#\n", false },
    { NODE "online", "0-1\n", false },
    { NODE "node0/cpulist", "@\n", false },
    { NODE "node1/cpulist", "#\n", false },
    { CLOCK, "tsc\n", false },
    { THP, "always [madvise] never\n", false },
    { DEVICE "max_link_speed", "32.0 GT/s PCIe\n", false },
    { DEVICE "max_link_width", "16\n", false },
    { DEVICE "numa_node", "0\n", false },
    { DEVICE "iommu_group/type", "identity\n", false },
    { PORT "max_link_speed", "32.0 GT/s PCIe\n", false },
    { PORT "max_link_width", "16\n", false },
};

static int our_core;

static inline const char *own_numbers(const char *text)
{
    static char out[2][16384];
    static int which;
    char *to = out[which ^= 1];
    size_t n = 0;
    for (; *text && n < sizeof out[0] - 16; text++)
        if (*text == '@' || *text == '#') n += (size_t)sprintf(to + n, "%d", our_core + (*text == '#'));
        else to[n++] = *text;
    to[n] = 0;
    return to;
}

static inline void make_folders(const char *path)
{
    char full[512];
    snprintf(full, sizeof full, "%s", test_path(path));
    for (char *at = strchr(full + strlen(test_folder) + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        mkdir(full, 0700);
        *at = '/';
    }
}

/* text NULL: takes the file away */
static inline void put(const char *path, const char *text)
{
    char own[512];
    snprintf(own, sizeof own, "%s", own_numbers(path));
    make_folders(own);
    if (!text) remove(test_path(own));
    else {
        const char *bytes = own_numbers(text);
        test_write(own, bytes, strlen(bytes));
    }
}

enum { CONFIG = 4096, AER = 0x100, ACS = 0x140, ACS_CONTROL = ACS + 6 };

/* of a port: another capability first, then that of access control */
static inline void put_config(unsigned control, size_t bytes)
{
    unsigned char config[CONFIG] = { 0 };
    const unsigned first = 0x0001u | 2u << 16 | (unsigned)ACS << 20, second = 0x000du | 1u << 16;
    for (int i = 0; i < 4; i++) {
        config[AER + i] = (unsigned char)(first >> 8 * i);
        config[ACS + i] = (unsigned char)(second >> 8 * i);
    }
    config[ACS_CONTROL] = (unsigned char)control;
    make_folders(PORT "config");
    test_write(PORT "config", config, bytes);
}

static inline void put_good(void)
{
    for (size_t i = 0; i < COUNT(good); i++) put(good[i].path, good[i].text);
    put_config(0, CONFIG);
}

/* ---- the good device --------------------------------------------------------------------------------------------- */

static struct ha_doctor_device device;

static inline void set_fact(const char *name, const char *value)
{
    size_t i = 0;
    while (i < device.facts && strcmp(device.fact[i].name, name)) i++;
    if (!value) {
        if (i < device.facts) device.fact[i] = device.fact[--device.facts];
        return;
    }
    device.facts += i == device.facts;
    snprintf(device.fact[i].name, sizeof device.fact[i].name, "%s", name);
    snprintf(device.fact[i].value, sizeof device.fact[i].value, "%s", value);
}

static inline void make_device(void)
{
    static const char *const facts[][2] = {
        { "busy_percent", "0" },    { "driver", "575.57.08" },  { "driver_module", "575.57.08" },
        { "driver_api", "12.9" },   { "runtime_api", "12.8" },  { "ecc", "on" },
        { "ecc_pending", "on" },    { "ecc_corrected", "0" },   { "ecc_uncorrected", "0" },
        { "rows_pending", "no" },   { "rows_failed", "no" },    { "persistence", "on" },
        { "mig", "off" },           { "power_limit_W", "700" }, { "power_default_W", "700" },
        { "link_gen_device", "5" },
    };
    device = (struct ha_doctor_device){ .kind = "cuda",
                                        .bus_id = "0000:1b:00.0",
                                        .info = { .memory_bytes = 80u * (UINT64_C(1) << 30),
                                                  .memory_free_bytes = 79u * (UINT64_C(1) << 30),
                                                  .spans = "CUPTI" },
                                        .condition = ha_condition_none(),
                                        .meters = ha_device_meters_none(false),
                                        .link_width = (double)NAN,
                                        .copied = 40 };
    device.meters.link_gen_max = 5;
    device.meters.link_width_max = 16;
    device.meters.sm_clock_max_MHz = 1980;
    device.condition.link_gen = 5;
    device.condition.link_width = 16;
    device.condition.sm_clock_MHz = 1755;
    device.condition.temperature_C = 55;
    strcpy(device.condition.throttle, "application clocks");
    for (size_t i = 0; i < COUNT(facts); i++) set_fact(facts[i][0], facts[i][1]);
}

/* ---- a look at both ---------------------------------------------------------------------------------------------- */

struct change {
    const char *path, *text;
};
static const struct change *meanwhile; /* what changes while our own load runs */
static size_t meanwhile_count, slow, looks;

static inline void run(void *arg, struct ha_doctor_load *load)
{
    for (size_t i = 0; i < meanwhile_count && meanwhile[i].path; i++) put(meanwhile[i].path, meanwhile[i].text);
    load->looks = looks;
    load->slow = slow;
}

static struct ha_finding findings[HA_DOCTOR_CHECKS_MOST];

static inline void look(void)
{
    static struct ha_doctor_load load;
    struct ha_doctor_seen seen = { .root = test_folder, .load = &load, .device = &device };
    memset(findings, 0, sizeof findings);
    assert_true(ha_cores_mine(seen.mine));
    ha_doctor_load(test_folder, run, NULL, &load);
    ha_doctor_look(&seen, true, findings);
    ha_doctor_look(&seen, false, findings);
}

static inline const struct ha_finding *finding_of(const char *check)
{
    for (size_t i = 0; i < ha_doctor_checks_count; i++)
        if (!strcmp(ha_doctor_checks[i].name, check)) return &findings[i];
    fail_msg("there is no check '%s'", check);
    return NULL;
}

/* on one core, of which others than the first of the machine may have other numbers */
static inline int setup(void **state)
{
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine) != 0) return -1;
    for (our_core = 0; !CPU_ISSET((size_t)our_core, &mine);) our_core++;
    CPU_ZERO(&mine);
    CPU_SET((size_t)our_core, &mine);
    if (sched_setaffinity(0, sizeof mine, &mine) != 0 || test_folder_make(state) != 0) return -1;
    meanwhile_count = slow = 0;
    looks = 100;
    put_good();
    make_folders("sys/bus/pci/devices/x");
    make_device();
    return symlink("../../../devices/pci0000:00/0000:00:01.0/0000:1b:00.0",
                   test_path("sys/bus/pci/devices/0000:1b:00.0"));
}

#endif
