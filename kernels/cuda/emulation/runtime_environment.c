#define _GNU_SOURCE /* environ */
#include "kernels/cuda/emulation/runtime_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Settings from the environment; see runtime.h. */

/* What there is, and what is wrong with a value that is refused. docs/cuda.md has them all. */
static const struct {
    const char *name, *refused;
} variables[] = {
    { "HA_EMULATED_DEVICES", "neither 0, 1 nor none" },
    { "HA_EMULATED_MEMORY", "no number of bytes" },
    { "HA_EMULATED_DRIVER", "no version as 12040" },
    { "HA_EMULATED_MEMOPS", "neither 0 nor 1" },
    { "HA_EMULATED_UPDATES", "neither 0 nor 1" },
    { "HA_EMULATED_LOSE", "no number of a kernel" },
    { "HA_EMULATED_FAIL", "not a call that is emulated as CALL:NTH:CODE, CALL:NTH:CODE:once or :sticky" },
    { "HA_EMULATED_FIRST", "no file that can be made" },
    { "HA_EMULATED_RECORDER", "no stand-in for CUPTI" },
    { "HA_EMULATED_GDR", "neither here nor lost" },
};
enum { VARIABLES = sizeof variables / sizeof *variables };

static struct ha_emulated_settings defaults;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char wrong[256]; /* the first that is refused */

static void complain(const char *name, const char *text)
{
    const char *refused = "";
    for (size_t i = 0; i < VARIABLES; i++)
        if (!strcmp(variables[i].name, name)) refused = variables[i].refused;
    if (!*wrong) snprintf(wrong, sizeof wrong, "%s=%.80s: %s", name, text, refused);
}

/* A name of ours that nobody reads would be a fault that does not happen. */
static void look_for_others(void)
{
    static const char ours[] = "HA_EMULATED_";
    for (char **at = environ; at && *at && !*wrong; at++) {
        const size_t length = strcspn(*at, "=");
        bool known = strncmp(*at, ours, sizeof ours - 1) != 0;
        for (size_t i = 0; i < VARIABLES && !known; i++)
            known = strlen(variables[i].name) == length && !strncmp(variables[i].name, *at, length);
        if (!known) snprintf(wrong, sizeof wrong, "%.80s: the emulation reads no variable of that name", *at);
    }
}

static bool number(const char *text, uint64_t most, uint64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && *value <= most;
}

/* The variable, a number of at most `most`; or `unset`. */
static uint64_t variable(const char *name, uint64_t most, uint64_t unset)
{
    uint64_t value = unset;
    const char *text = getenv(name);
    if (text && !number(text, most, &value)) complain(name, text);
    return value;
}

/* call:nth:code[:how] */
static bool fault(char *text)
{
    char *rest = text, *call = strsep(&rest, ":"), *nth = strsep(&rest, ":"), *code = strsep(&rest, ":");
    uint64_t n, error;
    const bool sticky = rest && strcmp(rest, "sticky") == 0;
    if (!nth || !code || !number(nth, UINT32_MAX, &n) || !number(code, 999, &error)) return false;
    if (rest && !sticky && strcmp(rest, "once") != 0) return false;
    return ha_emulated_fail(call, (unsigned)n, (cudaError_t)error, sticky ? HA_EMULATED_STICKY : HA_EMULATED_ONCE);
}

static bool fail(const char *text)
{
    char *copy = strdup(text), *rest = copy;
    bool good = copy;
    for (char *one; good && (one = strsep(&rest, ","));) good = fault(one);
    free(copy);
    return good;
}

/* Without HA_EMULATED_FIRST every process has the faults. */
static bool faulty(void)
{
    const char *mark = getenv("HA_EMULATED_FIRST");
    const int file = mark ? open(mark, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
    if (mark && file < 0 && errno != EEXIST) complain("HA_EMULATED_FIRST", mark);
    if (file >= 0) close(file);
    return !mark || file >= 0;
}

static void read_all(void)
{
    const char *devices = getenv("HA_EMULATED_DEVICES"), *faults = getenv("HA_EMULATED_FAIL"),
               *recorder = getenv("HA_EMULATED_RECORDER"), *gdr = getenv("HA_EMULATED_GDR");
    const bool no_driver = devices && strcmp(devices, "none") == 0;
    look_for_others();
    defaults = (struct ha_emulated_settings){
        .devices = no_driver ? -1 : (int)variable("HA_EMULATED_DEVICES", 1, 1),
        .memory_bytes = variable("HA_EMULATED_MEMORY", SIZE_MAX, (uint64_t)8 << 30),
        .driver_version = (int)variable("HA_EMULATED_DRIVER", 1000000, CUDART_VERSION),
        .runtime_version = CUDART_VERSION,
        .shared_bytes = 227 << 10,
        .double_ratio = 2,
        .memory_operations = variable("HA_EMULATED_MEMOPS", 1, 1),
        .updates = variable("HA_EMULATED_UPDATES", 1, 1),
    };
    const uint64_t lose = variable("HA_EMULATED_LOSE", UINT64_MAX, 0);
    if ((lose || faults) && faulty()) {
        ha_emulated_lose(lose);
        if (faults && !fail(faults)) complain("HA_EMULATED_FAIL", faults);
    }
    if (recorder && !ha_emulated_record(recorder)) complain("HA_EMULATED_RECORDER", recorder);
    if (gdr && strcmp(gdr, "here") && strcmp(gdr, "lost")) complain("HA_EMULATED_GDR", gdr);
    ha_runtime_lock();
    ha_runtime.settings = defaults;
    ha_runtime_unlock();
}

const char *ha_emulated_environment_wrong(void)
{
    pthread_once(&once, read_all);
    return *wrong ? wrong : NULL;
}

bool ha_runtime_environment(void) { return !ha_emulated_environment_wrong(); }

struct ha_emulated_settings ha_emulated_defaults(void)
{
    (void)ha_runtime_environment();
    return defaults;
}
