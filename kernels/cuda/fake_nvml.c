/* A library with NVML's entries that a test steers. FAKE_NVML_OLDER: what drivers had before CUDA 12.2, and less. */

#include "kernels/cuda/fake.h"
#include "kernels/cuda/fake_nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

extern struct fake_nvml fake_nvml;
EXPORT struct fake_nvml fake_nvml;
static int device;

/* of a process that is started: HA_FAKE_NVML=good for a device without a fault, bad for what is not told; nothing else
 */
__attribute__((constructor)) static void start(void)
{
    const char *kind = getenv("HA_FAKE_NVML");
    if (!kind || !strcmp(kind, "bad")) return;
    if (strcmp(kind, "good")) {
        fprintf(stderr, "stand-in for NVML: HA_FAKE_NVML=%s: neither good nor bad\n", kind);
        abort();
    }
    fake_nvml = (struct fake_nvml){
        .ecc = 1, .ecc_pending = 1, .persistence = 1, .power_limit_mW = 700000, .link_gen = 5, .link_width = 16
    };
}

static int give(unsigned *out, unsigned value)
{
    if (fake_nvml.fails) return fake_nvml.fails;
    *out = value;
    return SUCCESS;
}

/* A device that has nothing to do: its clocks fall soon, and the link's generation with them
 * (NVIDIA/open-gpu-kernel-modules#731: from 3 in P0 to 1 in P8). */
static bool idle(void) { return fake_nvml.idle_after && fake_nvml.reads++ >= fake_nvml.idle_after; }

ENTRY(nvmlInit_v2, void) { return fake_nvml.init_fails ? NOT_SUPPORTED : (fake_nvml.users++, SUCCESS); }
ENTRY(nvmlShutdown, void) { return fake_nvml.users--, SUCCESS; }
ENTRY(nvmlDeviceGetHandleByPciBusId_v2, const char *bus_id, void **out)
{
    *out = &device;
    /* that of the emulation, too */
    return strcmp(bus_id, "0000:1B:00.0") && strcmp(bus_id, "ffff:00:00.0") ? NOT_FOUND : SUCCESS;
}
ENTRY(nvmlDeviceGetClockInfo, void *d, unsigned which, unsigned *out)
{
    return d == &device && (which == 1 || which == 2) ? give(out, idle() ? 345 : which == 1 ? 1755 : 3201) : NOT_FOUND;
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
ENTRY(nvmlDeviceGetCurrPcieLinkGeneration, void *d, unsigned *out)
{
    return d == &device ? give(out, idle() ? 1 : fake_nvml.link_gen ? fake_nvml.link_gen : 4) : NOT_FOUND;
}
ENTRY(nvmlDeviceGetMaxPcieLinkGeneration, void *d, unsigned *out) { return d == &device ? give(out, 5) : NOT_FOUND; }
ENTRY(nvmlDeviceGetCurrPcieLinkWidth, void *d, unsigned *out)
{
    return d == &device ? give(out, fake_nvml.link_width ? fake_nvml.link_width : 8) : NOT_FOUND;
}
ENTRY(nvmlDeviceGetMaxPcieLinkWidth, void *d, unsigned *out) { return d == &device ? give(out, 16) : NOT_FOUND; }
ENTRY(nvmlDeviceGetPcieThroughput, void *d, unsigned which, unsigned *out)
{
    fake_nvml.link_reads++;
    return d == &device && which < 2 ? give(out, which == 1 ? 52000000 : 1250000) : NOT_FOUND;
}

static int reasons(void *d, unsigned long long *out)
{
    enum { GPU_IDLE = 1 };
    if (d != &device) return NOT_FOUND;
    if (fake_nvml.fails) return fake_nvml.fails;
    *out = idle() ? GPU_IDLE : fake_nvml.reasons;
    return SUCCESS;
}
#ifdef FAKE_NVML_OLDER
ENTRY(nvmlDeviceGetCurrentClocksThrottleReasons, void *d, unsigned long long *out) { return reasons(d, out); }
#else
ENTRY(nvmlDeviceGetCurrentClocksEventReasons, void *d, unsigned long long *out) { return reasons(d, out); }
ENTRY(nvmlDeviceGetTotalEnergyConsumption, void *d, unsigned long long *out)
{
    if (d != &device) return NOT_FOUND;
    if (fake_nvml.fails) return fake_nvml.fails;
    *out = 5000000123456ull;
    return SUCCESS;
}

/* ---- facts, which the older one lacks ---- */

static int give_two(unsigned *a, unsigned x, unsigned *b, unsigned y)
{
    const int status = give(a, x);
    return status == SUCCESS ? give(b, y) : status;
}
ENTRY(nvmlSystemGetDriverVersion, char *text, unsigned size)
{
    static const char version[] = "575.57.08";
    if (fake_nvml.fails) return fake_nvml.fails;
    if (size < sizeof version) return INSUFFICIENT_SIZE;
    memcpy(text, version, sizeof version);
    return SUCCESS;
}
ENTRY(nvmlDeviceGetEccMode, void *d, unsigned *now, unsigned *pending)
{
    return d == &device ? give_two(now, fake_nvml.ecc, pending, fake_nvml.ecc_pending) : NOT_FOUND;
}
ENTRY(nvmlDeviceGetTotalEccErrors, void *d, unsigned type, unsigned counter, unsigned long long *out)
{
    if (d != &device || type > 1 || counter != 0) return NOT_FOUND;
    if (fake_nvml.fails) return fake_nvml.fails;
    *out = fake_nvml.ecc_errors[type];
    return SUCCESS;
}
ENTRY(nvmlDeviceGetRemappedRows, void *d, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
      unsigned *failed)
{
    if (d != &device) return NOT_FOUND;
    const int status = give_two(corrected, 0, uncorrected, 0);
    return status == SUCCESS ? give_two(pending, fake_nvml.rows_pending, failed, fake_nvml.rows_failed) : status;
}
ENTRY(nvmlDeviceGetPersistenceMode, void *d, unsigned *out)
{
    return d == &device ? give(out, fake_nvml.persistence) : NOT_FOUND;
}
ENTRY(nvmlDeviceGetMigMode, void *d, unsigned *now, unsigned *pending)
{
    return d == &device ? give_two(now, fake_nvml.mig, pending, 0) : NOT_FOUND;
}
ENTRY(nvmlDeviceGetPowerManagementLimit, void *d, unsigned *out)
{
    return d == &device ? give(out, fake_nvml.power_limit_mW) : NOT_FOUND;
}
ENTRY(nvmlDeviceGetPowerManagementDefaultLimit, void *d, unsigned *out)
{
    return d == &device ? give(out, 700000) : NOT_FOUND;
}
ENTRY(nvmlDeviceGetGpuMaxPcieLinkGeneration, void *d, unsigned *out) { return d == &device ? give(out, 6) : NOT_FOUND; }

struct utilization {
    unsigned gpu, memory;
};
/* not of a device in parts: XuehaiPan/nvitop#5 */
ENTRY(nvmlDeviceGetUtilizationRates, void *d, struct utilization *out)
{
    if (fake_nvml.mig) return NOT_SUPPORTED;
    return d == &device ? give_two(&out->gpu, fake_nvml.busy_percent, &out->memory, 0) : NOT_FOUND;
}
#endif

/* ---- who is there: process i has the id 4000 + i and i GiB; of the second it cannot be said ---- */

/* Entries are 16 bytes, 24 or 32 by driver, whatever the function is called (XuehaiPan/nvitop#79 and #226). */
static int processes(void *d, unsigned *count, void *out)
{
    const size_t bytes = fake_nvml.process_bytes ? fake_nvml.process_bytes : 24;
    const unsigned room = *count;
    if (d != &device) return NOT_FOUND;
    if (fake_nvml.fails) return fake_nvml.fails;
    if (fake_nvml.limited) return NO_PERMISSION;
    *count = fake_nvml.processes;
    if (room < fake_nvml.processes) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < fake_nvml.processes; i++) {
        const struct {
            unsigned pid;
            unsigned long long bytes;
            unsigned gpu_instance, compute_instance;
            unsigned long long protected_bytes;
        } p = { 4000 + i, i == 1 ? ~0ull : (unsigned long long)i << 30, ~0u, ~0u, 0 };
        memcpy((char *)out + i * bytes, &p, bytes);
    }
    return SUCCESS;
}
#ifdef FAKE_NVML_OLDER
ENTRY(nvmlDeviceGetComputeRunningProcesses_v2, void *d, unsigned *count, void *out)
#else
ENTRY(nvmlDeviceGetComputeRunningProcesses_v3, void *d, unsigned *count, void *out)
#endif
{
    return processes(d, count, out);
}
