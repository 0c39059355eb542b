/* Every check is fit in the good tree, and made to fail by one of its own, so that a check that cannot fail is found.
 * Nothing here looks at the machine or at a clock. */

#define _GNU_SOURCE /* sched_setaffinity */
#include "harness/doctor/test_tree.h"

/* ---- what makes each fail ---------------------------------------------------------------------------------------- */

static void ecc_off(void)
{
    set_fact("ecc", "off");
    set_fact("ecc_pending", "off");
}
static void no_link_of_driver(void)
{
    device.condition.link_gen = device.condition.link_width = (double)NAN;
    device.meters.link_gen_max = device.meters.link_width_max = (double)NAN;
}
static void narrow_says_system(void)
{
    no_link_of_driver();
    strcpy(device.link_speed, "8 GT/s"); /* as older kernels say it */
    device.link_width = 16;
}
static void right_says_system(void)
{
    no_link_of_driver();
    strcpy(device.link_speed, "32.0 GT/s PCIe");
    device.link_width = 16;
}
static void half_full(void) { device.info.memory_free_bytes = device.info.memory_bytes / 3; }
static void partly_full(void) { device.info.memory_free_bytes = device.info.memory_bytes / 5 * 4; }
static void absurd_memory(void) { device.info.memory_free_bytes = UINT64_MAX; }
static void lost_spans(void) { device.info.spans_lost = 7; }
static void redirects(void) { put_config(0x1d, CONFIG); }
static void config_for_all(void) { put_config(0, 64); }
static void config_cut(void) { put_config(0, 100); }
static void itself(void)
{
    char value[64];
    snprintf(value, sizeof value, "%d 1073741824", (int)getpid());
    set_fact("process", value);
}
static void two_others(void)
{
    itself();
    device.fact[device.facts++] = (struct ha_device_fact){ "process", "4711 2147483648" };
    device.fact[device.facts++] = (struct ha_device_fact){ "process", "4712 ?" };
    put("proc/4711/comm", "python3\n");
}

static void one_other(void)
{
    set_fact("process", "4711 5368709120");
    put("proc/4711/comm", "python3\n");
}
static void itself_and_one_unseen(void)
{
    itself();
    device.fact[device.facts++] = (struct ha_device_fact){ "process", "4714 5" };
}
static void half_says_system(void)
{
    right_says_system();
    device.link_width = 8;
}

#define BEFORE(path, text) .before = { { path, text } }
#define AFTER(path, text)  .after = { { path, text } }
#define NUMBER(member, x)  .at = offsetof(struct ha_doctor_device, member), .number = x
#define TEXT(member, word) .at = offsetof(struct ha_doctor_device, member), .text = word

static void set_member(size_t at, double number, const char *text)
{
    char *member = (char *)&device + at;
    if (text) strcpy(member, text);
    else memcpy(member, &number, sizeof number);
}

/* before: files of the tree; after: the same, while our own load runs; fact: of the device, a value of NULL takes it
 * away */
static const struct row {
    const char *check;
    enum ha_fitness verdict;
    const char *found; /* a part of what is said */
    struct change before[3], after[2];
    const char *fact, *value;
    size_t slow_looks;
    void (*set)(void);
    size_t at; /* of a member of the device, which becomes this number or text */
    double number;
    const char *text;
} rows[] = {
    { "load", HA_UNFIT, "others used", AFTER("proc/stat", STAT("900 0 0 5000 0 0 0 7", "50 0 0 5000 0 0 0 0")) },
    { "load", HA_UNKNOWN, "cannot be read", BEFORE("proc/stat", "cpu  1 2\n") },
    { "steal", HA_UNFIT, "other guests took",
      AFTER("proc/stat", STAT("100 0 0 5000 0 0 0 99", "50 0 0 5000 0 0 0 0")) },
    { "steal", HA_UNKNOWN, "cannot be read", BEFORE("proc/stat", NULL) },
    { "shared core", HA_UNFIT, "in 40.0% of 100 looks", .slow_looks = 40 },
    { "shared core", HA_FIT, "in 20.0% of 100 looks", .slow_looks = 20 },
    { "shared core", HA_UNKNOWN, "beside us", AFTER("proc/stat", STAT("900 0 0 5000 0 0 0 7", "50 0 0 5000 0 0 0 0")),
      .slow_looks = 40 },
    { "SMT sibling", HA_UNFIT, "busy for", AFTER("proc/stat", STAT("100 0 0 5000 0 0 0 7", "150 0 0 5000 0 0 0 0")) },
    { "SMT sibling", HA_FIT, "busy for", AFTER("proc/stat", STAT("100 0 0 5000 0 0 0 7", "52 0 0 5000 0 0 0 0")) },
    { "SMT sibling", HA_FIT, "no hardware thread but ours", BEFORE(OUR "topology/thread_siblings_list", "@\n") },
    { "SMT sibling", HA_UNKNOWN, "does not say which", BEFORE(OUR "topology/thread_siblings_list", "@-\n") },
    { "SMT sibling", HA_UNKNOWN, "how busy", BEFORE("proc/stat", "cpu@ 1 1 1 1 1 1 1 1\n") },
    { "load average", HA_WARNING, "9.50 threads", BEFORE("proc/loadavg", "9.50 1 1 1/100 4711\n") },
    { "load average", HA_UNKNOWN, "cannot be read", BEFORE("proc/loadavg", "nan 1 1\n") },
    { "throttling", HA_UNFIT, "2 times in a second", AFTER(OUR "thermal_throttle/core_throttle_count", "5\n") },
    { "throttling", HA_UNFIT, "from 2600 to 1500 MHz", AFTER(OUR "cpufreq/scaling_cur_freq", "1500000\n") },
    { "throttling", HA_UNKNOWN, "counts no", BEFORE(OUR "thermal_throttle/core_throttle_count", NULL) },
    { "clock", HA_UNFIT, "1500 MHz under load, the base is 2600", AFTER(OUR "cpufreq/scaling_cur_freq", "1500000\n") },
    { "clock", HA_UNFIT, "the highest is 5300",
      .before = { { OUR "cpufreq/base_frequency", NULL }, { OUR "cpufreq/cpuinfo_max_freq", "5300000\n" } } },
    { "clock", HA_UNKNOWN, "", BEFORE(OUR "cpufreq/scaling_cur_freq", "9000000000000\n") },
    { "clock", HA_UNKNOWN, "", BEFORE(OUR "cpufreq/base_frequency", NULL) },
    { "clock", HA_UNKNOWN, "", BEFORE(OUR "cpufreq/scaling_cur_freq", NULL) },
    { "governor", HA_UNFIT, "powersave", BEFORE(OUR "cpufreq/scaling_governor", "powersave\n") },
    { "governor", HA_WARNING, "powersave",
      .before = { { OUR "cpufreq/scaling_governor", "powersave\n" },
                  { OUR "cpufreq/scaling_driver", "intel_pstate\n" } } },
    { "governor", HA_WARNING, "schedutil", BEFORE(OUR "cpufreq/scaling_governor", "schedutil\n") },
    { "governor", HA_UNKNOWN, "is no governor", BEFORE(OUR "cpufreq/scaling_governor", "warp\n") },
    { "governor", HA_UNKNOWN, "shows no governor", BEFORE(OUR "cpufreq/scaling_governor", NULL) },
    { "turbo", HA_WARNING, "on", BEFORE(CPU "intel_pstate/no_turbo", "0\n") },
    { "turbo", HA_WARNING, "on", .before = { { CPU "intel_pstate/no_turbo", NULL }, { CPU "cpufreq/boost", "1\n" } } },
    { "turbo", HA_FIT, "off", .before = { { CPU "intel_pstate/no_turbo", NULL }, { CPU "cpufreq/boost", "0\n" } } },
    { "turbo", HA_UNKNOWN, "", BEFORE(CPU "intel_pstate/no_turbo", "7\n") },
    { "CPU quota", HA_UNFIT, "0.50 cores, and 1", BEFORE("sys/fs/cgroup/user.slice/a/cpu.max", "50000 100000\n") },
    { "CPU quota", HA_UNFIT, "0.25 cores", BEFORE("sys/fs/cgroup/user.slice/cpu.max", "25000 100000\n") },
    { "CPU quota", HA_UNFIT, "0.50 cores",
      .before = { { "proc/self/cgroup", "4:cpu,cpuacct:/b\n0::/\n" },
                  { "sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", "50000\n" },
                  { "sys/fs/cgroup/cpu/b/cpu.cfs_period_us", "100000\n" } } },
    { "CPU quota", HA_FIT, "none",
      .before = { { "proc/self/cgroup", "4:cpu,cpuacct:/b\n" },
                  { "sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", "-1\n" },
                  { "sys/fs/cgroup/cpu/b/cpu.cfs_period_us", "100000\n" } } },
    { "CPU quota", HA_UNKNOWN, "cannot be read", BEFORE("sys/fs/cgroup/user.slice/a/cpu.max", "50000 0\n") },
    { "CPU quota", HA_FIT, "none",
      .before = { { "proc/self/cgroup", "4:cpuset:/b\n0::/\n" },
                  { "sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", "50000\n" },
                  { "sys/fs/cgroup/cpu/b/cpu.cfs_period_us", "100000\n" } } },
    { "CPU quota", HA_FIT, "2.00 cores, and 1", BEFORE("sys/fs/cgroup/user.slice/cpu.max", "200000 100000\n") },
    { "CPU quota", HA_UNKNOWN, "in which group", BEFORE("proc/self/cgroup", NULL) },
    { "cores", HA_WARNING, "1 of ", BEFORE(CPU "online", "0-63\n") },
    { "cores", HA_UNKNOWN, "", BEFORE(CPU "online", "3-1\n") },
    { "priority", HA_WARNING, "nice 10", BEFORE("proc/self/stat", SELF("10", "0")) },
    { "priority", HA_WARNING, "gives way", BEFORE("proc/self/stat", SELF("0", "5")) },
    { "priority", HA_UNFIT, "950000 us", BEFORE("proc/self/stat", SELF("0", "1")) },
    { "priority", HA_FIT, "without a limit",
      .before = { { "proc/self/stat", SELF("0", "2") }, { "proc/sys/kernel/sched_rt_runtime_us", "-1\n" } } },
    { "priority", HA_UNKNOWN, "leaves to others",
      .before = { { "proc/self/stat", SELF("0", "1") }, { "proc/sys/kernel/sched_rt_runtime_us", NULL } } },
    { "priority", HA_UNKNOWN, "", BEFORE("proc/self/stat", "7 (habench) R 1 2 3\n") },
    { "clocksource", HA_UNFIT, "hpet", BEFORE(CLOCK, "hpet\n") },
    { "clocksource", HA_WARNING, "kvm-clock", BEFORE(CLOCK, "kvm-clock\n") },
    { "clocksource", HA_UNKNOWN, "sundial", BEFORE(CLOCK, "sundial\n") },
    { "virtual machine", HA_WARNING, "PowerEdge", BEFORE("proc/cpuinfo", "flags : fpu hypervisor lm\n") },
    { "virtual machine", HA_WARNING, "xen", BEFORE("sys/hypervisor/type", "xen\n") },
    { "virtual machine", HA_UNKNOWN, "", BEFORE("proc/cpuinfo", NULL) },
    { "memory", HA_UNFIT, "1.0 GiB", BEFORE("proc/meminfo", MEMINFO("1000000", "0", "0")) },
    { "memory", HA_WARNING, "2.2 GiB", BEFORE("proc/meminfo", MEMINFO("2300000", "0", "0")) },
    { "memory", HA_UNKNOWN, "", BEFORE("proc/meminfo", "MemTotal: 5\n") },
    { "memory limit", HA_WARNING, "8.0 GiB",
      .before = { { "sys/fs/cgroup/user.slice/memory.max", "8589934592\n" },
                  { "sys/fs/cgroup/user.slice/memory.current", "1073741824\n" } } },
    { "memory limit", HA_UNFIT, "1.0 are left",
      .before = { { "sys/fs/cgroup/user.slice/memory.max", "8589934592\n" },
                  { "sys/fs/cgroup/user.slice/memory.current", "7516192768\n" } } },
    { "memory limit", HA_UNFIT, "0.0 are left",
      .before = { { "proc/self/cgroup", "4:memory:/b\n" },
                  { "sys/fs/cgroup/memory/b/memory.limit_in_bytes", "1048576\n" },
                  { "sys/fs/cgroup/memory/b/memory.usage_in_bytes", "2097152\n" } } },
    { "memory limit", HA_FIT, "none",
      .before = { { "proc/self/cgroup", "4:memory:/b\n" },
                  { "sys/fs/cgroup/memory/b/memory.limit_in_bytes", "9223372036854771712\n" } } },
    { "memory limit", HA_FIT, "none",
      .before = { { "proc/self/cgroup", "4:cpuset:/b\n0::/\n" },
                  { "sys/fs/cgroup/memory/b/memory.limit_in_bytes", "1048576\n" },
                  { "sys/fs/cgroup/memory/b/memory.usage_in_bytes", "5\n" } } },
    { "memory limit", HA_UNKNOWN, "cannot be read", BEFORE("sys/fs/cgroup/memory.max", "-5\n") },
    { "huge pages", HA_WARNING, "never", BEFORE(THP, "always madvise [never]\n") },
    { "huge pages", HA_UNKNOWN, "", BEFORE(THP, "always madvise never\n") },
    { "swap", HA_UNFIT, "5 pages", AFTER("proc/vmstat", "pswpin 15\npswpout 20\n") },
    { "swap", HA_WARNING, "0.48 GiB", BEFORE("proc/meminfo", MEMINFO("20000000", "1000000", "500000")) },
    { "swap", HA_UNKNOWN, "", BEFORE("proc/vmstat", NULL) },
    { "swap", HA_UNKNOWN, "", BEFORE("proc/meminfo", MEMINFO("20000000", "1000000", "5000000")) },
    { "swappiness", HA_WARNING, "60, and there is swap", BEFORE("proc/sys/vm/swappiness", "60\n") },
    { "swappiness", HA_FIT, "there is no swap",
      .before = { { "proc/sys/vm/swappiness", "60\n" }, { "proc/meminfo", MEMINFO("20000000", "0", "0") } } },
    { "swappiness", HA_UNKNOWN, "", BEFORE("proc/sys/vm/swappiness", "sixty\n") },
    { "NUMA cores", HA_WARNING, "nodes 0-1", BEFORE(NODE "node1/cpulist", "@\n") },
    { "NUMA cores", HA_FIT, "only one", BEFORE(NODE "online", "0\n") },
    { "NUMA cores", HA_UNKNOWN, "", BEFORE(NODE "node1/cpulist", NULL) },
    { "NUMA memory", HA_UNFIT, "90% of our memory", BEFORE("proc/self/numa_maps", "7f00 default anon=9 N0=1 N1=9\n") },
    { "NUMA memory", HA_UNFIT, "is not allowed", BEFORE("proc/self/status", STATUS("0", "1")) },
    { "NUMA memory", HA_FIT, "one node", .before = { { NODE "online", "0\n" }, { "proc/self/numa_maps", NULL } } },
    { "NUMA memory", HA_UNKNOWN, "", BEFORE("proc/self/numa_maps", NULL) },
    { "NUMA balancing", HA_WARNING, "on", BEFORE("proc/sys/kernel/numa_balancing", "1\n") },
    { "NUMA balancing", HA_UNKNOWN, "", BEFORE("proc/sys/kernel/numa_balancing", "on\n") },
    { "open files", HA_WARNING, "512", BEFORE("proc/self/limits", FILES("512")) },
    { "open files", HA_UNFIT, "64", BEFORE("proc/self/limits", FILES("64")) },
    { "open files", HA_UNKNOWN, "", BEFORE("proc/self/limits", NULL) },
    { "threads", HA_UNFIT, "100", BEFORE("proc/self/limits", PROCESSES("100")) },
    { "threads", HA_UNKNOWN, "", BEFORE("proc/self/limits", "Max processes\n") },
    { "stack", HA_UNFIT, "256 KiB", BEFORE("proc/self/limits", STACK("262144")) },
    { "stack", HA_WARNING, "1024 KiB", BEFORE("proc/self/limits", STACK("1048576")) },
    { "stack", HA_UNKNOWN, "", BEFORE("proc/self/limits", "Max stack size x x bytes\n") },
    { "locked memory", HA_WARNING, "0.0625 MiB", BEFORE("proc/self/limits", LOCKED("65536")) },
    { "locked memory", HA_UNKNOWN, "", BEFORE("proc/self/limits", NULL) },
    { "address space", HA_UNFIT, "4 GiB", BEFORE("proc/self/limits", SPACE("4294967296")) },
    { "address space", HA_WARNING, "1024 GiB", BEFORE("proc/self/limits", SPACE("1099511627776")) },
    { "address space", HA_UNKNOWN, "", BEFORE("proc/self/limits", NULL) },

    { "device memory", HA_UNFIT, "26.7 GiB of 80.0", .set = half_full },
    { "device memory", HA_WARNING, "64.0 GiB", .set = partly_full },
    { "device memory", HA_UNKNOWN, "", .set = absurd_memory },
    { "spans", HA_WARNING, "CUDA events", TEXT(info.spans, "CUDA events") },
    { "spans", HA_WARNING, "lost 7", .set = lost_spans },
    { "spans", HA_UNKNOWN, "", TEXT(info.spans, "") },
    { "device load", HA_UNFIT, "97%", .fact = "busy_percent", .value = "97" },
    { "device load", HA_UNKNOWN, "", .fact = "busy_percent", .value = "1e9" },
    { "device processes", HA_WARNING, "4711 python3 2.0 GiB, 4712 ?", .set = two_others },
    { "device processes", HA_FIT, "no other", .set = itself },
    { "device processes", HA_WARNING, "4711 python3 5.0 GiB", .set = one_other },
    { "device processes", HA_WARNING, "4714 ? 0.0 GiB", .set = itself_and_one_unseen },
    { "device processes", HA_UNKNOWN, "outside of a container", .fact = "process", .value = "4713 5" },
    { "device processes", HA_UNKNOWN, "", .fact = "process", .value = "../../etc/passwd 5" },
    { "device processes", HA_UNKNOWN, "does not say which they are", .fact = "process", .value = "?" },
    { "device throttling", HA_WARNING, "power cap", TEXT(condition.throttle, "application clocks, power cap") },
    { "device throttling", HA_UNFIT, "hardware thermal", TEXT(condition.throttle, "power cap, hardware thermal") },
    { "device throttling", HA_UNFIT, "0x1000", TEXT(condition.throttle, "reasons 0x1000") },
    { "device throttling", HA_UNKNOWN, "", TEXT(condition.throttle, "") },
    { "device clock", HA_WARNING, "600 MHz", NUMBER(condition.sm_clock_MHz, 600) },
    { "device clock", HA_UNKNOWN, "", NUMBER(meters.sm_clock_max_MHz, (double)NAN) },
    { "device clock", HA_UNKNOWN, "", NUMBER(condition.sm_clock_MHz, (double)NAN) },
    { "power limit", HA_WARNING, "350 W", .fact = "power_limit_W", .value = "350" },
    { "power limit", HA_UNKNOWN, "", .fact = "power_limit_W", .value = "-1" },
    { "link", HA_UNFIT, "generation 5, 8 lanes while copies ran", NUMBER(condition.link_width, 8) },
    { "link", HA_UNFIT, "generation 1, 16 lanes", NUMBER(condition.link_gen, 1) },
    { "link", HA_UNFIT, "generation 3, 16 lanes", .set = narrow_says_system },
    { "link", HA_FIT, "generation 5, 16 lanes", .set = right_says_system },
    { "link", HA_FIT, "can do 3, 16", BEFORE(PORT "max_link_speed", "8.0 GT/s PCIe\n"), .set = narrow_says_system },
    { "link", HA_FIT, "can do 5, 8", BEFORE(PORT "max_link_width", "8\n"), .set = half_says_system },
    { "link", HA_UNKNOWN, "", NUMBER(condition.link_width, 4294967295.0) },
    { "link", HA_UNKNOWN, "", NUMBER(condition.link_width, (double)NAN) },
    { "link", HA_UNKNOWN, "", .set = no_link_of_driver },
    { "slot", HA_WARNING, "its slot 4, 16", BEFORE(PORT "max_link_speed", "16.0 GT/s PCIe\n") },
    { "slot", HA_WARNING, "its slot 5, 8", BEFORE(PORT "max_link_width", "8\n") },
    { "slot", HA_UNKNOWN, "does not say what", BEFORE(PORT "max_link_speed", "Unknown\n") },
    { "slot", HA_UNKNOWN, "where it is plugged in", TEXT(bus_id, "") },
    { "device node", HA_UNFIT, "at node 1, our cores are of 0", BEFORE(DEVICE "numa_node", "1\n") },
    { "device node", HA_WARNING, "of 0-1", BEFORE(NODE "node1/cpulist", "@\n") },
    { "device node", HA_UNKNOWN, "firmware", BEFORE(DEVICE "numa_node", "-1\n") },
    { "device node", HA_UNKNOWN, "", BEFORE(DEVICE "numa_node", "99999999999\n") },
    { "IOMMU", HA_WARNING, "DMA-FQ", BEFORE(DEVICE "iommu_group/type", "DMA-FQ\n") },
    { "IOMMU", HA_UNKNOWN, "does not say", BEFORE(DEVICE "iommu_group/type", NULL) },
    { "ACS", HA_WARNING, "1 of 1 ports", .set = redirects },
    { "ACS", HA_UNKNOWN, "root alone", .set = config_for_all },
    { "ACS", HA_UNKNOWN, "cut short", .set = config_cut },
    { "ECC", HA_WARNING, "off", .fact = "ecc", .value = "off" },
    { "ECC", HA_WARNING, "off", .set = ecc_off },
    { "ECC", HA_WARNING, "after the next reset", .fact = "ecc_pending", .value = "off" },
    { "ECC", HA_UNKNOWN, "", .fact = "ecc", .value = NULL },
    { "ECC errors", HA_UNFIT, "3 uncorrected", .fact = "ecc_uncorrected", .value = "3" },
    { "ECC errors", HA_WARNING, "12 corrected", .fact = "ecc_corrected", .value = "12" },
    { "ECC errors", HA_UNFIT, "waits", .fact = "rows_pending", .value = "yes" },
    { "ECC errors", HA_UNFIT, "could not", .fact = "rows_failed", .value = "yes" },
    { "ECC errors", HA_UNKNOWN, "", .fact = "ecc_uncorrected", .value = "-3" },
    { "persistence", HA_WARNING, "off", .fact = "persistence", .value = "off" },
    { "persistence", HA_UNKNOWN, "", .fact = "persistence", .value = "maybe" },
    { "MIG", HA_WARNING, "part of a device", .fact = "mig", .value = "on" },
    { "MIG", HA_UNKNOWN, "", .fact = "mig", .value = NULL },
    { "driver", HA_UNFIT, "its module in the kernel 550.1", .fact = "driver_module", .value = "550.1" },
    { "driver", HA_WARNING, "interface 12.4", .fact = "driver_api", .value = "12.4" },
    { "driver", HA_UNKNOWN, "", .fact = "driver_api", .value = NULL },
    { "profiling", HA_WARNING, "root alone", BEFORE("proc/driver/nvidia/params", "RmProfilingAdminOnly: 1\n") },
    { "profiling", HA_FIT, "we are root",
      .before = { { "proc/driver/nvidia/params", "RmProfilingAdminOnly: 1\n" },
                  { "proc/self/status", STATUS("0", "0-1") } } },
    { "profiling", HA_WARNING, "root alone",
      BEFORE("proc/driver/nvidia/params", "RestrictProfilingToAdminUsers: 1\n") },
    { "profiling", HA_UNKNOWN, "", BEFORE("proc/driver/nvidia/params", "RmProfilingAdminOnly: yes\n") },
};

TEST_WITH(all_is_fit_in_the_good_tree, setup, test_folder_remove)
{
    look();
    for (size_t i = 0; i < ha_doctor_checks_count; i++) {
        if (findings[i].verdict != HA_FIT)
            fail_msg("%s: %s, %s", ha_doctor_checks[i].name, ha_fitness_name(findings[i].verdict), findings[i].found);
        assert_string_equal(findings[i].mend, ""); /* nothing is to be mended */
    }
}

TEST_WITH(each_check_is_made_to_fail, setup, test_folder_remove)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct row *r = &rows[i];
        for (size_t k = 0; k < COUNT(r->before) && r->before[k].path; k++) put(r->before[k].path, r->before[k].text);
        make_device();
        slow = r->slow_looks;
        if (r->fact) set_fact(r->fact, r->value);
        if (r->at) set_member(r->at, r->number, r->text);
        if (r->set) r->set();
        meanwhile = r->after;
        meanwhile_count = COUNT(r->after);
        look();
        const struct ha_finding *f = finding_of(r->check);
        if (f->verdict != r->verdict || !strstr(f->found, r->found))
            fail_msg("row %zu, %s: %s '%s', not %s '%s'", i, r->check, ha_fitness_name(f->verdict), f->found,
                     ha_fitness_name(r->verdict), r->found);
        /* what is to be mended has a command */
        assert_int_equal(*f->mend != 0, f->verdict == HA_UNFIT || f->verdict == HA_WARNING);
        for (size_t k = 0; k < COUNT(r->before) && r->before[k].path; k++) put(r->before[k].path, NULL);
        put_good();
    }
}

/* what a file may say: each word by itself */
TEST_WITH(each_word_has_its_verdict, setup, test_folder_remove)
{
    static const struct {
        const char *check, *path, *word;
        enum ha_fitness verdict;
    } words[] = {
        { "governor", OUR "cpufreq/scaling_governor", "conservative", HA_WARNING },
        { "governor", OUR "cpufreq/scaling_governor", "ondemand", HA_WARNING },
        { "governor", OUR "cpufreq/scaling_governor", "userspace", HA_WARNING },
        { "governor", OUR "cpufreq/scaling_governor", "Performance", HA_UNKNOWN },
        { "clocksource", CLOCK, "arch_sys_counter", HA_FIT },
        { "clocksource", CLOCK, "hyperv_clocksource_tsc_page", HA_WARNING },
        { "clocksource", CLOCK, "xen", HA_UNFIT },
        { "clocksource", CLOCK, "acpi_pm", HA_UNFIT },
        { "clocksource", CLOCK, "jiffies", HA_UNFIT },
        { "clocksource", CLOCK, "refined-jiffies", HA_UNFIT },
        { "clocksource", CLOCK, "tsc-early", HA_UNKNOWN },
        { "huge pages", THP, "[always] madvise never", HA_FIT },
        { "IOMMU", DEVICE "iommu_group/type", "DMA", HA_WARNING },
        { "IOMMU", DEVICE "iommu_group/type", "blocked", HA_UNKNOWN },
    };
    for (size_t i = 0; i < COUNT(words); i++) {
        put(words[i].path, words[i].word);
        look();
        if (finding_of(words[i].check)->verdict != words[i].verdict)
            fail_msg("%s: %s", words[i].word, finding_of(words[i].check)->found);
        put_good();
    }
}

/* with what was found in the command */
TEST_WITH(a_command_names_what_it_mends, setup, test_folder_remove)
{
    two_others();
    set_fact("persistence", "off");
    set_fact("ecc", "off");
    set_fact("mig", "on");
    set_fact("power_limit_W", "350");
    device.condition.sm_clock_MHz = 600;
    put(DEVICE "numa_node", "1\n");
    put("proc/self/numa_maps", "7f00 default anon=9 N1=9\n");
    put("proc/self/stat", SELF("0", "1"));
    put(CPU "intel_pstate/no_turbo", NULL);
    put(CPU "cpufreq/boost", "1\n");
    look();
    assert_string_equal(finding_of("device processes")->mend, "kill 4711 4712");
    assert_string_equal(finding_of("persistence")->mend, "sudo nvidia-smi -i 0000:1b:00.0 -pm 1");
    assert_string_equal(finding_of("ECC")->mend, "sudo nvidia-smi -i 0000:1b:00.0 -e 1 && sudo reboot");
    assert_string_equal(finding_of("MIG")->mend, "sudo nvidia-smi -i 0000:1b:00.0 -mig 0");
    assert_string_equal(finding_of("power limit")->mend, "sudo nvidia-smi -i 0000:1b:00.0 -pl 700");
    assert_string_equal(finding_of("device clock")->mend, "sudo nvidia-smi -i 0000:1b:00.0 -rgc -rac");
    assert_string_equal(finding_of("device node")->mend, "numactl --cpunodebind=1 --membind=1 habench ...");
    assert_string_equal(finding_of("NUMA memory")->mend, "numactl --cpunodebind=0 --membind=0 habench ...");
    assert_string_equal(finding_of("priority")->mend, "sudo sysctl kernel.sched_rt_runtime_us=-1");
    assert_string_equal(finding_of("turbo")->mend, "echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost");
}

TEST_WITH(a_core_that_shows_nothing_is_not_fit, setup, test_folder_remove)
{
    static const struct ha_doctor_load none;
    struct ha_doctor_seen seen = { .root = test_folder, .load = &none };
    seen.mine[our_core] = seen.mine[our_core + 1] = true;
    ha_doctor_look(&seen, true, findings);
    assert_int_equal(finding_of("governor")->verdict, HA_UNKNOWN);
    assert_string_equal(finding_of("governor")->found, "performance, and 1 of our 2 cores show theirs");
    assert_int_equal(finding_of("SMT sibling")->verdict, HA_UNKNOWN);
    put(CPU "cpu#/cpufreq/scaling_governor", "performance\n");
    ha_doctor_look(&seen, true, findings);
    assert_int_equal(finding_of("governor")->verdict, HA_FIT);
    put(CPU "cpu#/cpufreq/scaling_governor", "powersave\n"); /* the worst of them counts */
    ha_doctor_look(&seen, true, findings);
    assert_int_equal(finding_of("governor")->verdict, HA_UNFIT);
    assert_int_equal(finding_of("NUMA cores")->verdict, HA_WARNING);
}

/* each process looks at its own part, and what a plugin says may be anything */
TEST_WITH(host_and_device_are_looked_at_apart, setup, test_folder_remove)
{
    static const struct ha_doctor_load none;
    struct ha_doctor_seen seen = { .root = test_folder, .load = &none, .device = &device };
    seen.mine[our_core] = true;
    strcpy(device.info.spans, "\033[2J");
    for (int host = 0; host < 2; host++) {
        memset(findings, 0, sizeof findings);
        ha_doctor_look(&seen, host, findings);
        for (size_t i = 0; i < ha_doctor_checks_count; i++)
            assert_int_equal(findings[i].verdict != HA_NOT_LOOKED, (ha_doctor_checks[i].of == HA_OF_HOST) == host);
        if (!host) assert_string_equal(finding_of("spans")->found, "?[2J");
    }
}

TEST_WITH(nothing_was_run, setup, test_folder_remove)
{
    looks = 0;
    look();
    assert_int_equal(finding_of("shared core")->verdict, HA_UNKNOWN);
}

TEST(no_check_is_without_a_tree)
{
    for (size_t i = 0; i < ha_doctor_checks_count; i++) {
        const struct ha_doctor_check *c = &ha_doctor_checks[i];
        size_t fails = 0, unknown = 0;
        for (size_t k = 0; k < COUNT(rows); k++) {
            if (strcmp(rows[k].check, c->name)) continue;
            fails += rows[k].verdict == HA_UNFIT || rows[k].verdict == HA_WARNING;
            unknown += rows[k].verdict == HA_UNKNOWN;
        }
        if (!fails || !unknown) fail_msg("%s: %zu trees in which it fails, %zu of damage", c->name, fails, unknown);
        assert_true(*c->why && strlen(c->mend) < sizeof findings[0].mend);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(c->name, ha_doctor_checks[k].name);
    }
}

/* ---- what is asked, and what is said ----------------------------------------------------------------------------- */

TEST(a_device_in_host_memory_has_no_slot)
{
    size_t asked[3] = { 0 };
    make_device();
    const struct ha_doctor_device cuda = device, host = { .kind = "host" }, emulated = { .kind = "emulated" },
                                  placed = { .kind = "emulated", .bus_id = "ffff:00:00.0" };
    for (size_t i = 0; i < ha_doctor_checks_count; i++) {
        const struct ha_doctor_check *c = &ha_doctor_checks[i];
        asked[0] += ha_doctor_asks(c, NULL);
        asked[1] += ha_doctor_asks(c, &host);
        asked[2] += ha_doctor_asks(c, &cuda);
        assert_int_equal(ha_doctor_asks(c, &host), ha_doctor_asks(c, &emulated));
        assert_true(ha_doctor_asks(c, &placed));
    }
    assert_int_equal(asked[2], ha_doctor_checks_count);
    assert_int_equal(asked[1], asked[0] + 2);
}

static const struct ha_doctor_row said[] = {
    { "turbo", "why turbo", { HA_FIT, "off", "" } },
    { "ECC", "why ECC", { HA_UNKNOWN, "\"quoted\" \\ text", "" } },
    { "swap", "why swap", { HA_WARNING, "used", "swapoff" } },
    { "load", "why load", { HA_UNFIT, "others", "kill it" } },
    { "steal", "why steal", { HA_NOT_LOOKED, "no answer in 60 s", "" } },
    { "link", "why link", { HA_UNFIT, "half", "reseat" } },
};

TEST(unfit_first)
{
    struct ha_doctor_row row[COUNT(said)];
    static const char *const order[] = { "load", "link", "swap", "ECC", "steal", "turbo" };
    memcpy(row, said, sizeof said);
    ha_doctor_sort(row, COUNT(row));
    for (size_t i = 0; i < COUNT(row); i++) assert_string_equal(row[i].check, order[i]);
    assert_int_equal(ha_doctor_verdict(row, COUNT(row)), HA_UNFIT);
    assert_int_equal(ha_doctor_verdict(row + 2, COUNT(row) - 2), HA_FIT); /* warnings and what is unknown do not fail */
    ha_doctor_print(test_print(), "this host\033[2J", row, COUNT(row));
    const char *text = test_printed();
    assert_ptr_equal(strstr(text, "this host?[2J: unfit to be measured: 2 unfit, 1 warnings, 2 unknown, 1 fit\n"),
                     text);
    assert_contains(text, "unfit    load                others\n");
    assert_contains(text, "  why load\n");
    assert_contains(text, "  kill it\n");
    assert_contains(text, "unknown  steal               no answer in 60 s\nfit      turbo               off\n");
    assert_null(strstr(text, "why turbo"));
}

TEST(json_lines)
{
    ha_doctor_print_json(test_print(), said, COUNT(said));
    const char *text = test_printed();
    assert_contains(
        text, "{\"row\":\"doctor\",\"check\":\"load\",\"verdict\":\"unfit\",\"found\":\"others\",\"why\":\"why load\","
              "\"mend\":\"kill it\"}\n");
    assert_contains(text, "\"found\":\"\\\"quoted\\\" \\\\ text\"");
    assert_contains(text, "\"check\":\"steal\",\"verdict\":\"unknown\"");
    assert_contains(
        text, "\n{\"row\":\"doctor\",\"verdict\":\"unfit\",\"unfit\":2,\"warnings\":1,\"unknown\":2,\"fit\":1}\n");
    assert_int_equal(test_count(text, "\n"), COUNT(said) + 1);
}
