#include "kernels/cuda/emulation/runtime_inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Settings from the environment; see runtime.h. */

static const struct ha_emulated_settings modest = { .devices = 1,
                                                    .memory_bytes = (size_t)8 << 30,
                                                    .driver_version = CUDART_VERSION,
                                                    .runtime_version = CUDART_VERSION,
                                                    .memory_operations = true };
static struct ha_emulated_settings defaults;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool readable = true;

static bool number(const char *text, uint64_t most, uint64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && *value <= most;
}

static bool devices(const char *text)
{
    uint64_t value;
    if (strcmp(text, "none") == 0) {
        defaults.devices = -1;
        return true;
    }
    if (!number(text, HA_EMULATED_DEVICES_MAX, &value)) return false;
    defaults.devices = (int)value;
    return true;
}

static bool memory(const char *text)
{
    uint64_t value;
    if (!number(text, SIZE_MAX, &value)) return false;
    defaults.memory_bytes = value;
    return true;
}

static bool driver(const char *text)
{
    uint64_t value;
    if (!number(text, 1000000, &value)) return false;
    defaults.driver_version = (int)value;
    return true;
}

static bool memory_operations(const char *text)
{
    uint64_t value;
    if (!number(text, 1, &value)) return false;
    defaults.memory_operations = value == 1;
    return true;
}

static bool lose(const char *text)
{
    uint64_t value;
    if (!number(text, UINT64_MAX, &value)) return false;
    ha_emulated_lose(value);
    return true;
}

/* call:nth:code[:how] */
static bool fault(char *text)
{
    static const char *const hows[] = {
        [HA_EMULATED_ONCE] = "once", [HA_EMULATED_EVER] = "ever", [HA_EMULATED_STICKY] = "sticky"
    };
    char *rest = text, *call = strsep(&rest, ":"), *nth = strsep(&rest, ":"), *code = strsep(&rest, ":");
    uint64_t n, error;
    unsigned how = 0;
    if (!nth || !code || !number(nth, UINT32_MAX, &n) || !number(code, 999, &error)) return false;
    if (rest)
        while (how < 3 && strcmp(rest, hows[how]) != 0) how++;
    return how < 3 && ha_emulated_fail(call, (unsigned)n, (cudaError_t)error, (enum ha_emulated_fault)how);
}

static bool fail(const char *text)
{
    char *copy = strdup(text), *rest = copy;
    bool good = copy;
    for (char *one; good && (one = strsep(&rest, ","));) good = fault(one);
    free(copy);
    return good;
}

static const struct {
    const char *name;
    bool (*set)(const char *text);
} variables[] = {
    { "HA_EMULATED_DEVICES", devices },          { "HA_EMULATED_MEMORY", memory }, { "HA_EMULATED_DRIVER", driver },
    { "HA_EMULATED_MEMOPS", memory_operations }, { "HA_EMULATED_LOSE", lose },     { "HA_EMULATED_FAIL", fail },
};

static void read_all(void)
{
    defaults = modest;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *text = getenv(variables[i].name);
        if (!text || variables[i].set(text)) continue;
        fprintf(stderr, "emulated CUDA runtime: cannot read %s=%s\n", variables[i].name, text);
        readable = false;
    }
    ha_runtime_lock();
    ha_runtime.settings = defaults;
    ha_runtime_unlock();
}

bool ha_runtime_environment(void)
{
    pthread_once(&once, read_all);
    return readable;
}

struct ha_emulated_settings ha_emulated_defaults(void)
{
    (void)ha_runtime_environment();
    return defaults;
}
