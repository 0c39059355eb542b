#include "harness/compare/facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A fact by its last word: a device has some of these, too. */
static const struct fact {
    const char *name;
    enum ha_fact_kind kind;
    double within; /* numbers that differ by less are the same; -1: it is no number */
    bool idle;     /* no bit of an output depends on it */
} facts[] = {
    { "identity: board", HA_FACT_WHO, -1, true },
    { "identity: machine_id", HA_FACT_WHO, -1, true },
    { "identity: host", HA_FACT_WHO, -1, true },
    { "cpu", HA_FACT_WHO, -1, false },
    { "kind", HA_FACT_WHO, -1, false },
    { "name", HA_FACT_HARDWARE, -1, false },
    { "memory_bytes", HA_FACT_HARDWARE, 0.02, true }, /* what a kernel leaves of it varies */
    { "cores", HA_FACT_HARDWARE, 0, false },
    { "sockets", HA_FACT_HARDWARE, 0, true },
    { "numa_nodes", HA_FACT_HARDWARE, 0, true },
    { "gpus", HA_FACT_HARDWARE, 0, true },
    { "cpu_clock_max_MHz", HA_FACT_HARDWARE, 0.02, true },
    { "sm_clock_max_MHz", HA_FACT_HARDWARE, 0.02, true },
    { "memory_clock_max_MHz", HA_FACT_HARDWARE, 0.02, true },
    { "link_gen_max", HA_FACT_HARDWARE, 0, true },
    { "link_width", HA_FACT_HARDWARE, 0, true },
    { "link_width_max", HA_FACT_HARDWARE, 0, true },
    { "kernel", HA_FACT_SOFTWARE, -1, true },
    { "libc", HA_FACT_SOFTWARE, -1, false },
    { "driver_version", HA_FACT_SOFTWARE, -1, false },
    { "built_with", HA_FACT_SOFTWARE, -1, false },
    { "compiler", HA_FACT_SOFTWARE, -1, false },
    { "isa", HA_FACT_SOFTWARE, -1, false },
    { "microcode", HA_FACT_SOFTWARE, -1, false },
    { "bios", HA_FACT_SOFTWARE, -1, false },
    { "governor", HA_FACT_SOFTWARE, -1, true },
    { "huge_pages", HA_FACT_SOFTWARE, -1, true },
    { "numa_node", HA_FACT_SOFTWARE, -1, true },
    { "plan", HA_FACT_OTHER, -1, true }, /* chosen anew each time, and stands beside each case */
    { "asked", HA_FACT_OTHER, -1, true },
};

static const struct fact *fact_of(const char *name)
{
    static const struct fact other = { "", HA_FACT_OTHER, -1, false };
    const char *colon = strncmp(name, "device ", 7) ? NULL : strrchr(name, ':'), *last = colon ? colon + 2 : name;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (!strcmp(facts[i].name, last)) return &facts[i];
    return &other;
}

enum ha_fact_kind ha_fact_kind(const char *name) { return fact_of(name)->kind; }

const char *ha_fact_word(enum ha_fact_kind kind)
{
    static const char *const word[] = { "differs", "software", "hardware", "machine" };
    return word[kind];
}

enum ha_fact_change ha_fact_change(const char *name, const char *base, const char *now)
{
    const struct fact *f = fact_of(name);
    if (!base || !now) return base == now ? HA_FACT_SAME : HA_FACT_CHANGED;
    if (!strcmp(base, now)) return HA_FACT_SAME;
    const double was = atof(base), is = atof(now);
    if (f->within < 0 || !(was > 0)) return HA_FACT_CHANGED;
    if (fabs(is - was) <= f->within * fmax(is, was)) return HA_FACT_SAME;
    return is < was ? HA_FACT_LOST : HA_FACT_CHANGED;
}

/* As far as both say: 1 the same, 0 another, -1 one of them does not say. */
static int same_fact(const struct ha_night *a, const struct ha_night *b, const char *name, const char **fact)
{
    const char *x = ha_night_fact(a, name), *y = ha_night_fact(b, name);
    if (!x || !y) return -1;
    if (!strcmp(x, y)) return 1;
    *fact = name;
    return 0;
}

static bool same_devices(const struct ha_night *a, const struct ha_night *b, const char *which, const char **fact)
{
    for (size_t i = 0; i < a->facts; i++) {
        const char *name = a->fact[i].name, *colon = strrchr(name, ':');
        if (!strncmp(name, "device ", 7) && colon && !strcmp(colon, which) && !same_fact(a, b, name, fact))
            return false;
    }
    return true;
}

bool ha_night_same_machine(const struct ha_night *a, const struct ha_night *b, const char **fact)
{
    if (!same_fact(a, b, "cpu", fact) || !same_devices(a, b, ": kind", fact)) return false;
    const int board = same_fact(a, b, "identity: board", fact);
    if (board >= 0) return board;
    const int host = same_fact(a, b, "identity: host", fact), id = same_fact(a, b, "identity: machine_id", fact);
    if (host >= 0 || id >= 0) return host > 0 || id > 0;
    return same_devices(a, b, ": name", fact);
}

bool ha_night_same_build(const struct ha_night *a, const struct ha_night *b)
{
    return *a->build && strcmp(a->build, "unknown") != 0 && !strstr(a->build, "-dirty") && !strcmp(a->build, b->build);
}

bool ha_night_same_bits(const struct ha_night *a, const struct ha_night *b)
{
    if (!ha_night_same_build(a, b)) return false;
    for (size_t i = 0; i < a->facts; i++) {
        const char *name = a->fact[i].name, *other = fact_of(name)->idle ? NULL : ha_night_fact(b, name);
        if (other && strcmp(other, a->fact[i].value) != 0) return false;
    }
    return true;
}
