#include "kernels/cuda/cuda.h"
#include "kernels/cuda/library.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the interface of NVML, as far as it is used ------------------------------------------------ */

enum { SUCCESS = 0 };
enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, SENSOR_GPU = 0, LINK_TX = 0, LINK_RX = 1 };

struct utilization {
    unsigned gpu, memory;
};
/* How the entries of a list of processes begin. What follows, and so how far apart they are, is the driver's. */
struct process {
    unsigned pid;
    unsigned long long bytes; /* all ones: not readable */
};
enum { CORRECTED = 0, UNCORRECTED = 1, SINCE_LOAD = 0 }; /* of ecc_errors */

/* What a driver lacks is not readable; without the first three nothing is. link_rate is of the last 20 ms, which it
 * waits for; reasons_older: the name before CUDA 12.2. */
#define ENTRIES(X)                                                                                             \
    X(init, nvmlInit_v2, int, (void))                                                                          \
    X(shutdown, nvmlShutdown, int, (void))                                                                     \
    X(find, nvmlDeviceGetHandleByPciBusId_v2, int, (const char *bus_id, void **device))                        \
    X(clock, nvmlDeviceGetClockInfo, int, (void *device, unsigned which, unsigned *MHz))                       \
    X(clock_max, nvmlDeviceGetMaxClockInfo, int, (void *device, unsigned which, unsigned *MHz))                \
    X(temperature, nvmlDeviceGetTemperature, int, (void *device, unsigned sensor, unsigned *C))                \
    X(power, nvmlDeviceGetPowerUsage, int, (void *device, unsigned *mW))                                       \
    X(energy, nvmlDeviceGetTotalEnergyConsumption, int, (void *device, unsigned long long *mJ))                \
    X(link_gen, nvmlDeviceGetCurrPcieLinkGeneration, int, (void *device, unsigned *gen))                       \
    X(link_gen_max, nvmlDeviceGetMaxPcieLinkGeneration, int, (void *device, unsigned *gen))                    \
    X(link_width, nvmlDeviceGetCurrPcieLinkWidth, int, (void *device, unsigned *lanes))                        \
    X(link_width_max, nvmlDeviceGetMaxPcieLinkWidth, int, (void *device, unsigned *lanes))                     \
    X(link_rate, nvmlDeviceGetPcieThroughput, int, (void *device, unsigned which, unsigned *KBps))             \
    X(reasons_older, nvmlDeviceGetCurrentClocksThrottleReasons, int, (void *device, unsigned long long *bits)) \
    X(driver, nvmlSystemGetDriverVersion, int, (char *text, unsigned size))                                    \
    X(ecc, nvmlDeviceGetEccMode, int, (void *device, unsigned *now, unsigned *pending))                        \
    X(ecc_errors, nvmlDeviceGetTotalEccErrors, int,                                                            \
      (void *device, unsigned type, unsigned counter, unsigned long long *errors))                             \
    X(rows, nvmlDeviceGetRemappedRows, int,                                                                    \
      (void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed))         \
    X(persistence, nvmlDeviceGetPersistenceMode, int, (void *device, unsigned *on))                            \
    X(mig, nvmlDeviceGetMigMode, int, (void *device, unsigned *now, unsigned *pending))                        \
    X(power_limit, nvmlDeviceGetPowerManagementLimit, int, (void *device, unsigned *mW))                       \
    X(power_default, nvmlDeviceGetPowerManagementDefaultLimit, int, (void *device, unsigned *mW))              \
    X(link_gen_device, nvmlDeviceGetGpuMaxPcieLinkGeneration, int, (void *device, unsigned *gen))              \
    X(busy, nvmlDeviceGetUtilizationRates, int, (void *device, struct utilization *percent))                   \
    X(computing, nvmlDeviceGetComputeRunningProcesses_v3, int, (void *device, unsigned *count, void *list))    \
    X(drawing, nvmlDeviceGetGraphicsRunningProcesses_v3, int, (void *device, unsigned *count, void *list))
/* Of drivers without the third version; newer headers declare them on demand. */
#define EARLIER_ENTRIES(X)                                                                                        \
    X(computing_older, nvmlDeviceGetComputeRunningProcesses_v2, int, (void *device, unsigned *count, void *list)) \
    X(drawing_older, nvmlDeviceGetGraphicsRunningProcesses_v2, int, (void *device, unsigned *count, void *list))
/* since CUDA 12.2 */
#define LATER_ENTRIES(X) \
    X(reasons, nvmlDeviceGetCurrentClocksEventReasons, int, (void *device, unsigned long long *bits))
struct entries {
    ENTRIES(HA_CUDA_MEMBER)
    EARLIER_ENTRIES(HA_CUDA_MEMBER)
    LATER_ENTRIES(HA_CUDA_MEMBER)
};
static const struct ha_cuda_symbol symbols[] = { ENTRIES(HA_CUDA_SYMBOL) EARLIER_ENTRIES(HA_CUDA_SYMBOL)
                                                     LATER_ENTRIES(HA_CUDA_SYMBOL) };
enum { SYMBOLS = sizeof symbols / sizeof *symbols, NEEDED = 3 };

#if !defined HA_CUDA_EMULATED && __has_include(<nvml.h>)
#include <nvml.h>
static inline void same(void){ ENTRIES(HA_CUDA_SAME)
#ifdef nvmlClocksEventReasonGpuIdle
                                   LATER_ENTRIES(HA_CUDA_SAME)
#endif
}
#define IS(own, name) _Static_assert((own) == (int)(name), #name " has moved")
IS(SUCCESS, NVML_SUCCESS);
IS(CLOCK_SM, NVML_CLOCK_SM);
IS(CLOCK_MEMORY, NVML_CLOCK_MEM);
IS(SENSOR_GPU, NVML_TEMPERATURE_GPU);
IS(LINK_TX, NVML_PCIE_UTIL_TX_BYTES);
IS(LINK_RX, NVML_PCIE_UTIL_RX_BYTES);
IS(CORRECTED, NVML_MEMORY_ERROR_TYPE_CORRECTED);
IS(UNCORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
IS(SINCE_LOAD, NVML_VOLATILE_ECC);
#define AT(type, field, own, own_field) \
    _Static_assert(offsetof(type, field) == offsetof(struct own, own_field), #type "." #field " has moved")
AT(nvmlProcessInfo_t, pid, process, pid);
AT(nvmlProcessInfo_t, usedGpuMemory, process, bytes);
AT(nvmlUtilization_t, gpu, utilization, gpu);
_Static_assert(sizeof(nvmlUtilization_t) == sizeof(struct utilization), "nvmlUtilization_t has grown");
#endif

/* An idle GPU (bit 0) is not held down. */
static const struct {
    unsigned long long bit;
    const char *text;
} reason[] = {
    { 0x2, "application clocks" }, { 0x4, "power cap" },         { 0x8, "hardware slowdown" },
    { 0x10, "sync boost" },        { 0x20, "software thermal" }, { 0x40, "hardware thermal" },
    { 0x80, "power brake" },       { 0x100, "display clocks" },
};
static const unsigned long long idle = 0x1;

struct ha_cuda_meters {
    void *library;
    struct entries at;
    void *device;
    char bus_id[32];
};

/* ---- open and close ----------------------------------------------------------------------------- */

/* HABENCH_NVML: a path, "off", or unset: the driver's own. */
static void *load(void)
{
    const char *path = getenv("HABENCH_NVML");
    if (path && !strcmp(path, "off")) return NULL;
    if (path && *path) return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
#ifdef HA_CUDA_EMULATED
    return NULL; /* a GPU that may be here is not this device */
#else
    return dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
#endif
}

struct ha_cuda_meters *ha_cuda_meters_open(const char *bus_id)
{
    void *library = load();
    struct ha_cuda_meters *m = library ? calloc(1, sizeof *m) : NULL;
    if (m && !ha_cuda_look_up(library, &m->at, symbols, SYMBOLS, NEEDED) && m->at.init() == SUCCESS) {
        m->library = library;
        snprintf(m->bus_id, sizeof m->bus_id, "%s", bus_id);
        if (m->at.find(bus_id, &m->device) == SUCCESS) return m;
        m->at.shutdown();
    }
    free(m);
    if (library) dlclose(library);
    return NULL;
}

void ha_cuda_meters_close(struct ha_cuda_meters *m)
{
    if (!m) return;
    m->at.shutdown();
    dlclose(m->library);
    free(m);
}

/* ---- read --------------------------------------------------------------------------------------- */

typedef int reads_one(void *device, unsigned *value);
typedef int reads_which(void *device, unsigned which, unsigned *value);

static double one(const struct ha_cuda_meters *m, reads_one *read, double unit)
{
    unsigned value;
    return read && read(m->device, &value) == SUCCESS ? (double)value * unit : (double)NAN;
}

static double which(const struct ha_cuda_meters *m, reads_which *read, unsigned of, double unit)
{
    unsigned value;
    return read && read(m->device, of, &value) == SUCCESS ? (double)value * unit : (double)NAN;
}

static void throttle(const struct ha_cuda_meters *m, char *text, size_t size)
{
    int (*read)(void *, unsigned long long *) = m->at.reasons ? m->at.reasons : m->at.reasons_older;
    unsigned long long bits;
    size_t n = 0;
    if (!read || read(m->device, &bits) != SUCCESS) return;
    bits &= ~idle;
    for (size_t i = 0; i < sizeof reason / sizeof *reason && n < size; i++) {
        if (!(bits & reason[i].bit)) continue;
        bits &= ~reason[i].bit;
        n += (size_t)snprintf(text + n, size - n, "%s%s", n ? ", " : "", reason[i].text);
    }
    if (bits && n < size) n += (size_t)snprintf(text + n, size - n, "%sreasons 0x%llx", n ? ", " : "", bits);
    if (!n) snprintf(text, size, "none");
}

void ha_cuda_meters_read(struct ha_cuda_meters *m, struct ha_device_meters *out)
{
    unsigned long long mJ;
    *out = ha_device_meters_none(out->want_link_GBps);
    if (!m) return;
    /* what falls soonest once the work has ended goes first */
    out->sm_clock_MHz = which(m, m->at.clock, CLOCK_SM, 1);
    throttle(m, out->throttle, sizeof out->throttle);
    out->memory_clock_MHz = which(m, m->at.clock, CLOCK_MEMORY, 1);
    out->link_gen = one(m, m->at.link_gen, 1);
    out->link_width = one(m, m->at.link_width, 1);
    out->power_W = one(m, m->at.power, 1e-3);
    if (m->at.energy && m->at.energy(m->device, &mJ) == SUCCESS) out->energy_J = (double)mJ * 1e-3;
    if (out->want_link_GBps) {
        out->link_rx_GBps = which(m, m->at.link_rate, LINK_RX, 1e-6);
        out->link_tx_GBps = which(m, m->at.link_rate, LINK_TX, 1e-6);
    }
    out->temperature_C = which(m, m->at.temperature, SENSOR_GPU, 1);
    out->sm_clock_max_MHz = which(m, m->at.clock_max, CLOCK_SM, 1);
    out->memory_clock_max_MHz = which(m, m->at.clock_max, CLOCK_MEMORY, 1);
    out->link_gen_max = one(m, m->at.link_gen_max, 1);
    out->link_width_max = one(m, m->at.link_width_max, 1);
    snprintf(out->bus_id, sizeof out->bus_id, "%s", m->bus_id);
}

/* ---- facts -------------------------------------------------------------------------------------- */

void ha_cuda_fact(struct ha_cuda_facts *list, const char *name, const char *format, ...)
{
    va_list args;
    if (list->count >= list->room) return;
    struct ha_device_fact *fact = &list->fact[list->count++];
    snprintf(fact->name, sizeof fact->name, "%s", name);
    va_start(args, format);
    vsnprintf(fact->value, sizeof fact->value, format, args);
    va_end(args);
}

static const char *on(unsigned value) { return value ? "on" : "off"; }
static const char *yes(unsigned value) { return value ? "yes" : "no"; }

static void memory_facts(const struct ha_cuda_meters *m, struct ha_cuda_facts *list)
{
    unsigned now, pending, corrected, uncorrected, failed;
    unsigned long long errors;
    if (m->at.ecc && m->at.ecc(m->device, &now, &pending) == SUCCESS) {
        ha_cuda_fact(list, "ecc", "%s", on(now));
        ha_cuda_fact(list, "ecc_pending", "%s", on(pending));
    }
    if (m->at.ecc_errors && m->at.ecc_errors(m->device, CORRECTED, SINCE_LOAD, &errors) == SUCCESS)
        ha_cuda_fact(list, "ecc_corrected", "%llu", errors);
    if (m->at.ecc_errors && m->at.ecc_errors(m->device, UNCORRECTED, SINCE_LOAD, &errors) == SUCCESS)
        ha_cuda_fact(list, "ecc_uncorrected", "%llu", errors);
    if (m->at.rows && m->at.rows(m->device, &corrected, &uncorrected, &pending, &failed) == SUCCESS) {
        ha_cuda_fact(list, "rows_pending", "%s", yes(pending));
        ha_cuda_fact(list, "rows_failed", "%s", yes(failed));
    }
}

/* Entries of the same function are 24 bytes, of drivers 535.43 to 535.86 32 (XuehaiPan/nvitop#79, NVIDIA/go-nvml#75),
 * and 16 where 550.127 was seen in a container (XuehaiPan/nvitop#226): how many bytes were written tells. */
enum { PROCESSES_MOST = 256, PROCESS_BYTES_MOST = 32 };
static const unsigned char unwritten = 0xa5;

static size_t process_stride(const unsigned char *list, size_t count)
{
    size_t written = count * PROCESS_BYTES_MOST, stride = sizeof(struct process);
    while (written && list[written - 1] == unwritten) written--;
    while (count * stride < written) stride += 8;
    return stride;
}

/* False: they cannot be read, as of a device in parts without privileges. */
static bool process_facts(const struct ha_cuda_meters *m, struct ha_cuda_facts *list,
                          int (*read)(void *device, unsigned *count, void *list))
{
    unsigned char processes[PROCESSES_MOST * PROCESS_BYTES_MOST];
    unsigned count = PROCESSES_MOST;
    memset(processes, unwritten, sizeof processes);
    if (!read || read(m->device, &count, processes) != SUCCESS || count > PROCESSES_MOST) return false;
    const size_t stride = process_stride(processes, count);
    for (size_t i = 0; i < count; i++) {
        struct process p;
        memcpy(&p, processes + i * stride, sizeof p);
        if (p.bytes == ~0ull) ha_cuda_fact(list, "process", "%u ?", p.pid);
        else ha_cuda_fact(list, "process", "%u %llu", p.pid, p.bytes);
    }
    return true;
}

void ha_cuda_meters_facts(struct ha_cuda_meters *m, struct ha_cuda_facts *list)
{
    struct utilization busy;
    unsigned value, pending;
    char text[64] = "";
    if (!m) return;
    if (m->at.busy && m->at.busy(m->device, &busy) == SUCCESS) ha_cuda_fact(list, "busy_percent", "%u", busy.gpu);
    if (m->at.driver && m->at.driver(text, sizeof text - 1) == SUCCESS) ha_cuda_fact(list, "driver", "%s", text);
    memory_facts(m, list);
    if (m->at.persistence && m->at.persistence(m->device, &value) == SUCCESS)
        ha_cuda_fact(list, "persistence", "%s", on(value));
    if (m->at.mig && m->at.mig(m->device, &value, &pending) == SUCCESS) ha_cuda_fact(list, "mig", "%s", on(value));
    const double limit_W = one(m, m->at.power_limit, 1e-3), default_W = one(m, m->at.power_default, 1e-3),
                 gen = one(m, m->at.link_gen_device, 1);
    if (!isnan(limit_W)) ha_cuda_fact(list, "power_limit_W", "%g", limit_W);
    if (!isnan(default_W)) ha_cuda_fact(list, "power_default_W", "%g", default_W);
    if (!isnan(gen)) ha_cuda_fact(list, "link_gen_device", "%g", gen);
    if (!process_facts(m, list, m->at.computing ? m->at.computing : m->at.computing_older))
        ha_cuda_fact(list, "process", "?");
    process_facts(m, list, m->at.drawing ? m->at.drawing : m->at.drawing_older);
}
