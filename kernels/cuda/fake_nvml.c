/* A library with NVML's entries that a test steers. FAKE_NVML_OLDER: what drivers had before CUDA 12.2, and less. */

#include "kernels/cuda/fake.h"
#include "kernels/cuda/fake_nvml.h"

#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

extern struct fake_nvml fake_nvml;
EXPORT struct fake_nvml fake_nvml;
static int device;

static int give(unsigned *out, unsigned value)
{
    if (fake_nvml.unsupported) return NOT_SUPPORTED;
    *out = value;
    return SUCCESS;
}

ENTRY(nvmlInit_v2, void) { return fake_nvml.init_fails ? NOT_SUPPORTED : (fake_nvml.users++, SUCCESS); }
ENTRY(nvmlShutdown, void) { return fake_nvml.users--, SUCCESS; }
ENTRY(nvmlDeviceGetHandleByPciBusId_v2, const char *bus_id, void **out)
{
    *out = &device;
    return strcmp(bus_id, "0000:1B:00.0") ? NOT_FOUND : SUCCESS;
}
ENTRY(nvmlDeviceGetClockInfo, void *d, unsigned which, unsigned *out)
{
    return d == &device && (which == 1 || which == 2) ? give(out, which == 1 ? 1755 : 3201) : NOT_FOUND;
}
ENTRY(nvmlDeviceGetMaxClockInfo, void *d, unsigned which, unsigned *out)
{
    return d == &device && (which == 1 || which == 2) ? give(out, which == 1 ? 1980 : 3202) : NOT_FOUND;
}
ENTRY(nvmlDeviceGetTemperature, void *d, unsigned sensor, unsigned *out)
{
    return d == &device && sensor == 0 ? give(out, 61) : NOT_FOUND;
}
ENTRY(nvmlDeviceGetPowerUsage, void *d, unsigned *out) { return d == &device ? give(out, 412500) : NOT_FOUND; }
ENTRY(nvmlDeviceGetCurrPcieLinkGeneration, void *d, unsigned *out) { return d == &device ? give(out, 4) : NOT_FOUND; }
ENTRY(nvmlDeviceGetMaxPcieLinkGeneration, void *d, unsigned *out) { return d == &device ? give(out, 5) : NOT_FOUND; }
ENTRY(nvmlDeviceGetCurrPcieLinkWidth, void *d, unsigned *out) { return d == &device ? give(out, 8) : NOT_FOUND; }
ENTRY(nvmlDeviceGetMaxPcieLinkWidth, void *d, unsigned *out) { return d == &device ? give(out, 16) : NOT_FOUND; }
ENTRY(nvmlDeviceGetPcieThroughput, void *d, unsigned which, unsigned *out)
{
    fake_nvml.link_reads++;
    return d == &device && which < 2 ? give(out, which == 1 ? 52000000 : 1250000) : NOT_FOUND;
}

static int reasons(void *d, unsigned long long *out)
{
    if (d != &device || fake_nvml.unsupported) return NOT_SUPPORTED;
    *out = fake_nvml.reasons;
    return SUCCESS;
}
#ifdef FAKE_NVML_OLDER
ENTRY(nvmlDeviceGetCurrentClocksThrottleReasons, void *d, unsigned long long *out) { return reasons(d, out); }
#else
ENTRY(nvmlDeviceGetCurrentClocksEventReasons, void *d, unsigned long long *out) { return reasons(d, out); }
ENTRY(nvmlDeviceGetTotalEnergyConsumption, void *d, unsigned long long *out)
{
    if (d != &device || fake_nvml.unsupported) return NOT_SUPPORTED;
    *out = 5000000123456ull;
    return SUCCESS;
}
#endif
