/* What a device with a driver says of itself. */

#include "harness/doctor/checks.h"

#include "harness/base/text.h"
#include "harness/doctor/files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char not_said[] = "the device's driver does not say";

/* ---- facts ------------------------------------------------------------------------------------------------------- */

static const char *fact(const struct ha_doctor_seen *s, const char *name)
{
    for (size_t i = 0; i < s->device->facts; i++)
        if (!strcmp(s->device->fact[i].name, name)) return s->device->fact[i].value;
    return NULL;
}

static bool fact_number(const struct ha_doctor_seen *s, const char *name, double *out)
{
    const char *text = fact(s, name);
    return text && ha_text_number(out, text, NULL) && *out >= 0;
}

/* 1: it is the word that is asked for, 0: it is the other one, -1: neither, or not said */
static int fact_is(const struct ha_doctor_seen *s, const char *name, const char *yes, const char *no)
{
    const char *text = fact(s, name);
    return !text ? -1 : !strcmp(text, yes) ? 1 : !strcmp(text, no) ? 0 : -1;
}
static int is_on(const struct ha_doctor_seen *s, const char *name) { return fact_is(s, name, "on", "off"); }
static int is_yes(const struct ha_doctor_seen *s, const char *name) { return fact_is(s, name, "yes", "no"); }

void ha_look_ecc(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const int now = is_on(s, "ecc"), pending = is_on(s, "ecc_pending");
    ha_mend(f, "sudo nvidia-smi -i %s -e 1 && sudo reboot", s->device->bus_id);
    if (now < 0) ha_found(f, HA_UNKNOWN, "%s, or has no such mode", not_said);
    else if (pending >= 0 && pending != now)
        ha_found(f, HA_WARNING, "%s, and %s after the next reset", now ? "on" : "off", pending ? "on" : "off");
    else ha_found(f, now ? HA_FIT : HA_WARNING, "%s", now ? "on" : "off");
}

void ha_look_ecc_errors(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    double corrected = 0, uncorrected;
    const int pending = is_yes(s, "rows_pending"), failed = is_yes(s, "rows_failed");
    const bool said = fact_number(s, "ecc_uncorrected", &uncorrected);
    fact_number(s, "ecc_corrected", &corrected);
    if (failed == 1 || pending == 1)
        ha_found(f, HA_UNFIT,
                 failed == 1 ? "a broken row of its memory could not be replaced"
                             : "a broken row of its memory waits to be replaced");
    else if (!said) ha_found(f, HA_UNKNOWN, "%s", not_said);
    else
        ha_found(f,
                 uncorrected > 0 ? HA_UNFIT
                 : corrected > 0 ? HA_WARNING
                                 : HA_FIT,
                 "%.0f uncorrected and %.0f corrected since the driver was loaded", uncorrected, corrected);
}

void ha_look_persistence(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const int on = is_on(s, "persistence");
    ha_mend(f, "sudo nvidia-smi -i %s -pm 1", s->device->bus_id);
    if (on < 0) ha_found(f, HA_UNKNOWN, "%s", not_said);
    else ha_found(f, on ? HA_FIT : HA_WARNING, "%s", on ? "on" : "off");
}

void ha_look_mig(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const int on = is_on(s, "mig");
    ha_mend(f, "sudo nvidia-smi -i %s -mig 0", s->device->bus_id);
    if (on < 0) ha_found(f, HA_UNKNOWN, "%s, or has no such mode", not_said);
    else ha_found(f, on ? HA_WARNING : HA_FIT, on ? "on: this is a part of a device" : "off");
}

void ha_look_power_limit(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    double limit_W, default_W;
    if (!fact_number(s, "power_limit_W", &limit_W) || !fact_number(s, "power_default_W", &default_W)) {
        ha_found(f, HA_UNKNOWN, "%s", not_said);
        return;
    }
    ha_mend(f, "sudo nvidia-smi -i %s -pl %.0f", s->device->bus_id, default_W);
    ha_found(f, limit_W < default_W ? HA_WARNING : HA_FIT, "%.0f W, the default is %.0f W", limit_W, default_W);
}

/* ---- clocks ------------------------------------------------------------------------------------------------------ */

void ha_look_device_throttled(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    /* its owner's choice; what held it while it was measured is none */
    static const char *const chosen[] = { "none", "application clocks", "sync boost" }, *const power = "power cap";
    char rest[sizeof s->device->condition.throttle];
    enum ha_fitness verdict = HA_FIT;
    snprintf(rest, sizeof rest, "%s", s->device->condition.throttle);
    if (!*rest) {
        ha_found(f, HA_UNKNOWN, "%s", not_said);
        return;
    }
    for (char *at = rest, *word; (word = strsep(&at, ","));) {
        bool harmless = false;
        word += strspn(word, " ");
        for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) harmless |= !strcmp(word, chosen[i]);
        const enum ha_fitness v = harmless ? HA_FIT : !strcmp(word, power) ? HA_WARNING : HA_UNFIT;
        if (v < verdict) verdict = v;
    }
    ha_found(f, verdict, "while it copied and read: %s, at %.0f MHz and %.0f C", s->device->condition.throttle,
             s->device->condition.sm_clock_MHz, s->device->condition.temperature_C);
}

void ha_look_device_clock(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const double least = 0.75, now = s->device->condition.sm_clock_MHz, most = s->device->meters.sm_clock_max_MHz;
    ha_mend(f, "sudo nvidia-smi -i %s -rgc -rac", s->device->bus_id);
    if (!(now > 0 && most > 0 && now < 1e5 && most < 1e5)) ha_found(f, HA_UNKNOWN, "%s", not_said);
    else
        ha_found(f, now < least * most ? HA_WARNING : HA_FIT, "%.0f MHz while it copied and read, at most %.0f", now,
                 most);
}

/* ---- who else is there ------------------------------------------------------------------------------------------- */

void ha_look_device_busy(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const double most = 5;
    double percent;
    if (!fact_number(s, "busy_percent", &percent) || percent > 100) ha_found(f, HA_UNKNOWN, "%s", not_said);
    else ha_found(f, percent > most ? HA_UNFIT : HA_FIT, "busy for %.0f%% of the time before we used it", percent);
}

/* "4711 python3 1.2 GiB" behind what is there; what finds no room is left out */
static void add_process(const struct ha_doctor_seen *s, char *text, size_t size, const char *pid, const char *bytes)
{
    const size_t n = strlen(text);
    char name[64] = "";
    double x;
    ha_file_word(name, sizeof name, s->root, "/proc/%s/comm", pid);
    if (bytes && ha_text_number(&x, bytes, NULL))
        snprintf(text + n, size - n, "%s%s %s %.1f GiB", n ? ", " : "", pid, *name ? name : "?", x / 0x1p30);
    else snprintf(text + n, size - n, "%s%s %s", n ? ", " : "", pid, *name ? name : "?");
}

void ha_look_device_processes(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    char others[sizeof f->found - 48] = "", pids[64] = "";
    size_t count = 0, unseen = 0, ours = 0;
    for (size_t i = 0; i < s->device->facts; i++) {
        char value[sizeof s->device->fact[i].value], *bytes = value;
        double pid;
        if (strcmp(s->device->fact[i].name, "process")) continue;
        snprintf(value, sizeof value, "%s", s->device->fact[i].value);
        strsep(&bytes, " ");
        if (!ha_text_number(&pid, value, NULL) || strspn(value, "0123456789") != strlen(value)) {
            ha_found(f, HA_UNKNOWN, "%s which they are", not_said);
            return;
        }
        if (pid == (double)getpid()) {
            ours++;
            continue;
        }
        count++;
        unseen += !ha_file_there(s->root, "/proc/%s", value);
        add_process(s, others, sizeof others, value, bytes);
        snprintf(pids + strlen(pids), sizeof pids - strlen(pids), " %.12s", value);
    }
    ha_mend(f, "kill%s", pids);
    if (!count && !fact(s, "busy_percent") && !ours) ha_found(f, HA_UNKNOWN, "%s", not_said);
    else if (!count) ha_found(f, HA_FIT, "no other process is on it");
    else if (count == 1 && unseen == 1 && !ours)
        ha_found(f, HA_UNKNOWN, "%s: it may be this process, by its number outside of a container", others);
    else ha_found(f, HA_WARNING, "%s", others);
}

void ha_look_device_memory(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const double unfit = 0.5, little = 0.9, all = (double)s->device->info.memory_bytes,
                 left = (double)s->device->info.memory_free_bytes;
    if (!(all > 0 && left <= all)) ha_found(f, HA_UNKNOWN, "the device does not say");
    else
        ha_found(f,
                 left < unfit * all    ? HA_UNFIT
                 : left < little * all ? HA_WARNING
                                       : HA_FIT,
                 "%.1f GiB of %.1f are free", left / 0x1p30, all / 0x1p30);
}

/* ---- software ---------------------------------------------------------------------------------------------------- */

void ha_look_driver(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const char *library = fact(s, "driver"), *module = fact(s, "driver_module"), *driver_api = fact(s, "driver_api"),
               *runtime_api = fact(s, "runtime_api");
    double offered, wanted; /* 12.8 as a number: minor versions have one digit */
    if (library && module && strcmp(library, module))
        ha_found(f, HA_UNFIT, "the driver's library is %s, its module in the kernel %s", library, module);
    else if (!driver_api || !runtime_api || !ha_text_number(&offered, driver_api, NULL)
             || !ha_text_number(&wanted, runtime_api, NULL))
        ha_found(f, HA_UNKNOWN, "%s which versions there are", not_said);
    else
        ha_found(f, offered < wanted ? HA_WARNING : HA_FIT, "%s%sinterface %s, and we were compiled for %s",
                 library ? library : "", library ? ", " : "", driver_api, runtime_api);
}

void ha_look_spans(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const char *source = s->device->info.spans;
    if (!*source) ha_found(f, HA_UNKNOWN, "the device does not say by what");
    else if (s->device->info.spans_lost)
        ha_found(f, HA_WARNING, "%s, which lost %llu", source, (unsigned long long)s->device->info.spans_lost);
    else ha_found(f, strstr(source, "events") ? HA_WARNING : HA_FIT, "%s", source);
}

/* The option is written by one name and shown by another, which older drivers do not. */
void ha_look_profiling(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    static const char *const shown[] = { "RmProfilingAdminOnly", "RestrictProfilingToAdminUsers",
                                         "NVreg_RestrictProfilingToAdminUsers" };
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        char text[32], uid[64];
        double restricted;
        if (!ha_file_field(text, sizeof text, shown[i], s->root, "/proc/driver/nvidia/params")) continue;
        if (!ha_text_number(&restricted, text, NULL)) break;
        const bool root = ha_file_field(uid, sizeof uid, "Uid", s->root, "/proc/self/status")
                          && (!strncmp(uid, "0\t", 2) || !strncmp(uid, "0 ", 2));
        if (restricted == 0) ha_found(f, HA_FIT, "anyone may read counters");
        else if (root) ha_found(f, HA_FIT, "root alone may read counters, and we are root");
        else ha_found(f, HA_WARNING, "root alone may read counters");
        return;
    }
    ha_found(f, HA_UNKNOWN, "/proc/driver/nvidia/params does not say");
}
