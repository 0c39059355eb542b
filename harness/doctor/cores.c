/* The cores: how fast they are, and who else uses them. */

#include "harness/doctor/checks.h"

#include "harness/base/text.h"
#include "harness/doctor/files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CPU "/sys/devices/system/cpu"

/* ---- clocks ------------------------------------------------------------------------------------------------------ */

static const struct governor {
    const char *name;
    enum ha_fitness verdict;
} governors[] = {
    { "performance", HA_FIT },      { "powersave", HA_UNFIT },   { "ondemand", HA_WARNING },
    { "conservative", HA_WARNING }, { "schedutil", HA_WARNING }, { "userspace", HA_WARNING },
};

static const struct governor *governor_named(const char *name)
{
    for (size_t i = 0; i < sizeof governors / sizeof *governors; i++)
        if (!strcmp(governors[i].name, name)) return &governors[i];
    return NULL;
}

/* Drivers whose "powersave" is no lowest clock: the hardware chooses. */
static bool chooses_itself(const char *root, int core)
{
    char driver[64];
    return ha_file_word(driver, sizeof driver, root, CPU "/cpu%d/cpufreq/scaling_driver", core)
           && (!strcmp(driver, "intel_pstate") || !strcmp(driver, "amd-pstate-epp"));
}

void ha_look_governor(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    char word[64];
    const size_t ours = ha_list_count(s->mine);
    size_t cores = 0;
    const struct governor *worst = NULL;
    enum ha_fitness verdict = HA_FIT;
    for (int core = 0; core < HA_CORES_MOST; core++) {
        if (!s->mine[core]) continue;
        if (!ha_file_word(word, sizeof word, s->root, CPU "/cpu%d/cpufreq/scaling_governor", core)) continue;
        const struct governor *g = governor_named(word);
        if (!g) {
            ha_found(f, HA_UNKNOWN, "core %d: '%.32s' is no governor that is known here", core, word);
            return;
        }
        const enum ha_fitness v = g->verdict == HA_UNFIT && chooses_itself(s->root, core) ? HA_WARNING : g->verdict;
        if (!worst || v < verdict) {
            worst = g;
            verdict = v;
        }
        cores++;
    }
    if (!worst) ha_found(f, HA_UNKNOWN, "the system shows no governor (in a virtual machine its host has it)");
    else
        ha_found(f, verdict == HA_FIT && cores < ours ? HA_UNKNOWN : verdict,
                 "%s, and %zu of our %zu cores show theirs", worst->name, cores, ours);
}

void ha_look_turbo(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    static const struct {
        const char *path;
        double off;
    } files[] = { { CPU "/intel_pstate/no_turbo", 1 }, { CPU "/cpufreq/boost", 0 } };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        double x;
        if (!ha_file_number(&x, s->root, "%s", files[i].path) || (x != 0 && x != 1)) continue;
        ha_mend(f, "echo %g | sudo tee %s", files[i].off, files[i].path);
        if (x == files[i].off) ha_found(f, HA_FIT, "off");
        else ha_found(f, HA_WARNING, "on");
        return;
    }
    ha_found(f, HA_UNKNOWN, "the system does not say whether it is on");
}

/* The clock that our cores keep at least, or what is said to be their highest. */
static const char *least_clock(const struct ha_doctor_seen *s, double *MHz)
{
    static const char *const files[] = { "base_frequency", "cpuinfo_max_freq" }, *const names[] = { "base", "highest" };
    for (size_t i = 0; i < 2; i++) {
        *MHz = 0;
        for (int core = 0; core < HA_CORES_MOST; core++) {
            double kHz;
            if (s->mine[core] && ha_file_number(&kHz, s->root, CPU "/cpu%d/cpufreq/%s", core, files[i]))
                *MHz = fmax(*MHz, kHz / 1000);
        }
        if (*MHz > 0) return names[i];
    }
    return NULL;
}

void ha_look_clock(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const double of_base = 0.9, of_highest = 0.5, now = s->load->after.fastest_MHz;
    double MHz;
    const char *which = least_clock(s, &MHz);
    if (!which || !(now > 0 && now < 1e5)) {
        ha_found(f, HA_UNKNOWN, "the system does not show the clock of our cores%s",
                 which ? "" : ", nor what it should be");
        return;
    }
    const bool fit = now >= MHz * (!strcmp(which, "base") ? of_base : of_highest);
    ha_found(f, fit ? HA_FIT : HA_UNFIT, "%.0f MHz under load, the %s is %.0f", now, which, MHz);
    ha_mend(f, "sudo cpupower frequency-set -g performance -u %.0fMHz && sudo turbostat -n 1", MHz);
}

/* ---- who else is there: by the same rule as the ! of a row ------------------------------------------------------- */

static bool caused(const struct ha_doctor_seen *s, const char *cause)
{
    char causes[HA_DISTURBED_MAX];
    ha_disturbed_judge(&s->load->before, &s->load->after, s->load->slow, s->load->looks, "", causes);
    return strstr(causes, cause) != NULL;
}

static double span_ns(const struct ha_core_counts *before, const struct ha_core_counts *after)
{
    return (after->wall_ns - before->wall_ns) * after->cores;
}

void ha_look_throttled(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const double before = s->load->before.throttled, after = s->load->after.throttled;
    if (isnan(before) || isnan(after)) ha_found(f, HA_UNKNOWN, "the system counts no throttling of cores");
    else if (caused(s, "throttled"))
        ha_found(f, HA_UNFIT, "%.0f times in a second of load; clock from %.0f to %.0f MHz", after - before,
                 s->load->before.fastest_MHz, s->load->after.fastest_MHz);
    else ha_found(f, HA_FIT, "not in a second of load (%.0f times since the machine started)", after);
}

void ha_look_steal(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const struct ha_core_counts *before = &s->load->before, *after = &s->load->after;
    const double share = (after->steal_ns - before->steal_ns) / span_ns(before, after);
    if (!isfinite(share)) ha_found(f, HA_UNKNOWN, "/proc/stat cannot be read");
    else
        ha_found(f, caused(s, "steal") ? HA_UNFIT : HA_FIT, "other guests took %.1f%% of our cores' time", 100 * share);
}

void ha_look_load(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const struct ha_core_counts *before = &s->load->before, *after = &s->load->after;
    const double others = after->busy_ns - before->busy_ns - (after->own_ns - before->own_ns),
                 share = others / span_ns(before, after);
    if (!isfinite(share)) ha_found(f, HA_UNKNOWN, "/proc/stat cannot be read");
    else
        ha_found(f, caused(s, "load") ? HA_UNFIT : HA_FIT, "others used %.1f%% of the time of our %.0f cores",
                 100 * fmax(0, share), after->cores);
}

bool ha_siblings(const char *root, const bool mine[HA_CORES_MOST], bool out[HA_CORES_MOST])
{
    bool threads[HA_CORES_MOST], known = false;
    memset(out, 0, HA_CORES_MOST * sizeof *out);
    for (int core = 0; core < HA_CORES_MOST; core++) {
        if (!mine[core]) continue;
        if (!ha_file_list(threads, root, CPU "/cpu%d/topology/thread_siblings_list", core) || !threads[core])
            return false;
        known = true;
        for (size_t i = 0; i < HA_CORES_MOST; i++) out[i] |= threads[i] && !mine[i];
    }
    return known;
}

void ha_look_smt(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const struct ha_core_counts *before = &s->load->siblings_before, *after = &s->load->siblings_after;
    const double most = 0.05, ticks_ns = 30e6, busy_ns = after->busy_ns - before->busy_ns,
                 share = busy_ns / span_ns(before, after);
    bool siblings[HA_CORES_MOST];
    char list[96];
    if (!ha_siblings(s->root, s->mine, siblings)) {
        ha_found(f, HA_UNKNOWN, "the system does not say which hardware threads share a core");
        return;
    }
    if (!ha_list_count(siblings)) {
        ha_found(f, HA_FIT, "as far as is shown, our cores share with no hardware thread but ours");
        return;
    }
    ha_list_text(list, sizeof list, siblings);
    if (!isfinite(share))
        ha_found(f, HA_UNKNOWN, "/proc/stat does not say how busy %s are, which share our cores", list);
    else
        ha_found(f, busy_ns > ticks_ns && share > most ? HA_UNFIT : HA_FIT,
                 "hardware threads %s, which share our cores, were busy for %.1f%% of a second", list, 100 * share);
}

void ha_look_shared(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const size_t looks = s->load->looks;
    const double share = (double)s->load->slow / (double)looks;
    if (!looks) ha_found(f, HA_UNKNOWN, "nothing was run");
    else if (!caused(s, "shared"))
        ha_found(f, HA_FIT, "in %.1f%% of %zu looks a core took instructions slowly", 100 * share, looks);
    else if (caused(s, "load") || caused(s, "steal"))
        ha_found(f, HA_UNKNOWN, "in %.1f%% of %zu looks a core was slow; what runs beside us may be why", 100 * share,
                 looks);
    else
        ha_found(f, HA_UNFIT, "in %.1f%% of %zu looks a core took instructions at less than 0.85 of its best",
                 100 * share, looks);
}

void ha_look_load_average(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const double most = 0.5; /* of the cores */
    char line[96];
    bool online[HA_CORES_MOST];
    double load;
    const bool read = ha_file_word(line, sizeof line, s->root, "/proc/loadavg");
    if (read) line[strcspn(line, " ")] = 0;
    if (!read || !ha_text_number(&load, line, NULL) || !ha_file_list(online, s->root, CPU "/online")) {
        ha_found(f, HA_UNKNOWN, "/proc/loadavg or the list of cores cannot be read");
        return;
    }
    const size_t cores = ha_list_count(online);
    ha_found(f, load > most * (double)cores ? HA_WARNING : HA_FIT, "%.2f threads ran in the last minute, on %zu cores",
             load, cores);
}

/* ---- what we are given ------------------------------------------------------------------------------------------- */

void ha_look_cpuset(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    bool online[HA_CORES_MOST];
    char list[96];
    const size_t ours = ha_list_count(s->mine);
    if (!ours || !ha_file_list(online, s->root, CPU "/online") || !ha_list_count(online)) {
        ha_found(f, HA_UNKNOWN, "the system does not say which cores there are, or which are ours");
        return;
    }
    ha_list_text(list, sizeof list, s->mine);
    ha_found(f, ours < ha_list_count(online) ? HA_WARNING : HA_FIT, "%zu of %zu cores are ours: %s", ours,
             ha_list_count(online), list);
}

/* Field i of /proc/self/stat, counted as in proc(5), from 3 on: what stands behind the name in brackets. */
static bool stat_field(const char *line, int i, double *out)
{
    char text[HA_FILES_LINE], *rest = text, *word = NULL;
    const char *behind = strrchr(line, ')');
    if (!behind) return false;
    snprintf(text, sizeof text, "%s", behind + 1 + strspn(behind + 1, " "));
    for (int k = 3; k <= i; k++)
        if (!(word = strsep(&rest, " "))) return false;
    return word && ha_text_number(out, word, NULL);
}

void ha_look_priority(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    enum { NICE = 19, POLICY = 41, FIFO = 1, ROUND_ROBIN = 2 };
    char line[HA_FILES_LINE];
    double nice, policy, runtime_us = 0;
    if (!ha_file_word(line, sizeof line, s->root, "/proc/self/stat") || !stat_field(line, NICE, &nice)
        || !stat_field(line, POLICY, &policy)) {
        ha_found(f, HA_UNKNOWN, "/proc/self/stat does not say");
        return;
    }
    if (policy == FIFO || policy == ROUND_ROBIN) {
        const bool known = ha_file_number(&runtime_us, s->root, "/proc/sys/kernel/sched_rt_runtime_us");
        ha_mend(f, "sudo sysctl kernel.sched_rt_runtime_us=-1");
        if (!known) ha_found(f, HA_UNKNOWN, "real-time, and the system does not say what it leaves to others");
        else if (runtime_us < 0) ha_found(f, HA_FIT, "real-time, without a limit");
        else ha_found(f, HA_UNFIT, "real-time: the system stops us once we ran %.0f us of its period", runtime_us);
    } else if (policy != 0) ha_found(f, HA_WARNING, "a policy (%.0f) that gives way to all other threads", policy);
    else if (nice > 0) ha_found(f, HA_WARNING, "nice %.0f: others go first", nice);
    else ha_found(f, HA_FIT, "normal, nice %.0f", nice);
}

void ha_look_clocksource(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    static const struct {
        const char *name;
        enum ha_fitness verdict;
        const char *text;
    } sources[] = {
        { "tsc", HA_FIT, "read in user space" },
        { "arch_sys_counter", HA_FIT, "read in user space" },
        { "kvm-clock", HA_WARNING, "its host may change its pace" },
        { "hyperv_clocksource_tsc_page", HA_WARNING, "its host may change its pace" },
        { "xen", HA_UNFIT, "each look is a system call" },
        { "hpet", HA_UNFIT, "each look is a system call that takes about a microsecond" },
        { "acpi_pm", HA_UNFIT, "each look is a system call that takes about a microsecond" },
        { "refined-jiffies", HA_UNFIT, "it moves in milliseconds" },
        { "jiffies", HA_UNFIT, "it moves in milliseconds" },
    };
    char word[64];
    if (!ha_file_word(word, sizeof word, s->root, "/sys/devices/system/clocksource/clocksource0/current_clocksource")) {
        ha_found(f, HA_UNKNOWN, "the system does not say which clock it reads");
        return;
    }
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        if (!strcmp(word, sources[i].name)) {
            ha_found(f, sources[i].verdict, "%s: %s", word, sources[i].text);
            return;
        }
    ha_found(f, HA_UNKNOWN, "'%.40s' is no clock that is known here", word);
}

/* A word of a list between blanks. */
static bool has_word(const char *text, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        if ((at == text || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

void ha_look_virtual(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    char path[HA_FILES_PATH], flags[8192], host[96] = "", product[96] = "";
    snprintf(path, sizeof path, "%s/proc/cpuinfo", s->root);
    ha_text_line(path, "flags", flags, sizeof flags);
    const bool xen = ha_file_word(host, sizeof host, s->root, "/sys/hypervisor/type");
    if (!xen) ha_file_word(host, sizeof host, s->root, "/sys/class/dmi/id/sys_vendor");
    ha_file_word(product, sizeof product, s->root, "/sys/class/dmi/id/product_name");
    if (xen || has_word(flags, "hypervisor"))
        ha_found(f, HA_WARNING, "a virtual machine%s%s%s%s", *host || *product ? ": " : "", host,
                 *host && *product ? ", " : "", product);
    else if (has_word(flags, "fpu")) ha_found(f, HA_FIT, "no virtual machine%s%s", *product ? ": " : "", product);
    else ha_found(f, HA_UNKNOWN, "/proc/cpuinfo does not say whether this is a virtual machine");
}
