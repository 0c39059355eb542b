#include "kernels/cuda/cuda.h"

#include "harness/base/why.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HA_CUDA_EMULATED
#include "kernels/cuda/emulation/runtime.h"
#endif

/* The emulated build computes on the host: its name says so, threads do its work, and what a GPU does for every float
 * it does for some. */
#ifdef HA_CUDA_EMULATED
#define NAME "cuda_emulated"
#define KIND "emulated"
enum { EMULATED = 1, ACCURACY_STEP = 16384 };
#else
#define NAME "cuda"
#define KIND "cuda"
enum { EMULATED = 0, ACCURACY_STEP = 1 };
#endif

enum { COMPUTE_LEAST = 8 }; /* major version of the oldest architecture that the kernels are compiled for */
/* The oldest CUDA, of runtime and driver, whose kernels take more than 4,096 bytes of arguments (attend.cuh). */
enum { CUDA_LEAST = 12010 };
_Static_assert(CUDART_VERSION >= CUDA_LEAST, "build it with CUDA 12.1 or later");

static struct {
    pthread_mutex_t lock;
    size_t open; /* devices; they share the runtime's context */
} process = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- open */

/* of the driver's module in the kernel; empty: not to be read */
static void module_version(char *text, int size)
{
    FILE *file = EMULATED ? NULL : fopen("/sys/module/nvidia/version", "re");
    *text = 0;
    if (!file) return;
    if (!fgets(text, size, file)) *text = 0;
    text[strcspn(text, "\n")] = 0;
    fclose(file);
}

static enum ha_status find_gpu(struct ha_device *dev, struct ha_why *why)
{
    int driver = 0, runtime = 0, count = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) (void)cudaGetLastError();
    const int needs = error == cudaErrorInsufficientDriver ? runtime : CUDA_LEAST;
    if (error == cudaErrorInsufficientDriver || (error == cudaSuccess && driver < needs))
        return ha_why(why, HA_WAIVED,
                      "cuda device: the NVIDIA driver here is of CUDA %d.%d, and this plugin needs CUDA %d.%d: install "
                      "a newer one",
                      driver / 1000, driver % 1000 / 10, needs / 1000, needs % 1000 / 10);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
        return ha_why(
            why, HA_WAIVED,
            "cuda device: there is a driver, and no GPU that CUDA can use (CUDA_VISIBLE_DEVICES says which it may)");
    if (error != cudaSuccess) return ha_cuda_why(why, error, "cudaGetDeviceCount", "looking for a GPU");

    char kernel[24] = "", text[128];
    module_version(kernel, sizeof kernel);
    if (EMULATED)
        snprintf(text, sizeof text, "none: CUDA %d.%d emulated on the CPU", runtime / 1000, runtime % 1000 / 10);
    else
        snprintf(text, sizeof text, "driver %s%sCUDA %d.%d, runtime %d.%d", kernel, *kernel ? ", " : "", driver / 1000,
                 driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    snprintf(dev->driver_text, sizeof dev->driver_text, "%.63s", text);
    return HA_OK;
}

#define TRY_CUDA(why, call)                                                          \
    do {                                                                             \
        cudaError_t error_ = (call);                                                 \
        if (error_ != cudaSuccess) return ha_cuda_why((why), error_, #call, "open"); \
    } while (0)

static enum ha_status ask_gpu(struct ha_device *dev, struct ha_why *why)
{
    struct cudaDeviceProp properties;
    int multiprocessors = 0, major = 0, minor = 0;
    TRY_CUDA(why, cudaSetDevice(HA_CUDA_GPU));
    TRY_CUDA(why, cudaGetDeviceProperties(&properties, HA_CUDA_GPU));
    TRY_CUDA(why, cudaDeviceGetPCIBusId(dev->bus_id, (int)sizeof dev->bus_id, HA_CUDA_GPU));
    TRY_CUDA(why, cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, HA_CUDA_GPU));
    TRY_CUDA(why, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, HA_CUDA_GPU));
    TRY_CUDA(why, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, HA_CUDA_GPU));
    snprintf(dev->name, sizeof dev->name, "%.95s", properties.name);
    dev->multiprocessors = (unsigned)multiprocessors;
    if (major < COMPUTE_LEAST)
        return ha_why(why, HA_WAIVED, "cuda device: %s has compute capability %d.%d, and the kernels need %d.0",
                      dev->name, major, minor, COMPUTE_LEAST);
    return HA_OK;
}

/* Where binary64 is slow (L4, A10, RTX 4090: 32 or 64 times as slow as binary32), all floats would take each process a
 * second or two. The step is odd, so that all patterns of the last bits are seen; of exp and exp2 the largest error of
 * every 61st float is 0.94 and 0.93 of that of all. */
enum { RATIO_MOST = 8, COARSE_STEP = 61 };
static const double coarse_margin = 1.125;

/* worst: [HA_CUDA_FUNCTIONS] in device memory */
static enum ha_status measure_with(struct ha_device *dev, double *worst, struct ha_why *why)
{
    static const char *const function[] = {
        [HA_CUDA_EXP] = "exp", [HA_CUDA_EXP2] = "exp2", [HA_CUDA_LOG] = "log", [HA_CUDA_LOG2] = "log2"
    };
    int ratio = 0;
    TRY_CUDA(why, cudaDeviceGetAttribute(&ratio, cudaDevAttrSingleToDoublePrecisionPerfRatio, HA_CUDA_GPU));
    const bool coarse = ratio > RATIO_MOST;
    TRY_CUDA(why, cudaMemset(worst, 0, sizeof dev->eps));
    TRY_CUDA(why,
             ha_cuda_accuracy(dev->multiprocessors, NULL, coarse ? ACCURACY_STEP * COARSE_STEP : ACCURACY_STEP, worst));
    TRY_CUDA(why, cudaMemcpy(dev->eps, worst, sizeof dev->eps, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < HA_CUDA_FUNCTIONS; i++)
        if (!(dev->eps[i] > 0 && dev->eps[i] < 1e-5))
            return ha_why(why, HA_ERROR,
                          "cuda device: the largest relative error of %s on this GPU was measured as %g: not what it "
                          "is built for",
                          function[i], dev->eps[i]);
    for (size_t i = 0; i < HA_CUDA_FUNCTIONS && coarse; i++) dev->eps[i] *= coarse_margin;
    return HA_OK;
}

static enum ha_status measure(struct ha_device *dev, struct ha_why *why)
{
    void *worst = NULL;
    TRY_CUDA(why, cudaMalloc(&worst, sizeof dev->eps));
    enum ha_status status = measure_with(dev, worst, why);
    if (cudaFree(worst) != cudaSuccess) (void)cudaGetLastError();
    return status;
}

static enum ha_status bring_up(struct ha_device *dev, struct ha_why *why)
{
    HA_TRY(find_gpu(dev, why));
    HA_TRY(ask_gpu(dev, why));
    HA_TRY(ha_cuda_kernels_ask(why));
    HA_TRY(ha_cuda_trace_create(&dev->trace, dev, why));
    const unsigned launched = ha_cuda_launched;
    HA_TRY(measure(dev, why));
    HA_TRY(ha_cuda_trace_ready(dev->trace, ha_cuda_launched - launched, why));
    ha_cuda_blas_ready(dev);
    HA_TRY(ha_cuda_watch_start(dev, why));
    dev->meters = ha_cuda_meters_open(dev->bus_id);
    return HA_OK;
}

static void cuda_close(struct ha_device *dev)
{
    ha_cuda_enter();
    ha_cuda_trace_destroy(dev->trace);
    ha_cuda_graphs_free(dev);
    ha_cuda_blas_close(dev->blas);
    ha_cuda_gdr_close(dev);
    ha_cuda_meters_close(dev->meters);
    ha_cuda_watch_stop(dev);
    ha_cuda_memory_close(dev);
    ha_cuda_streams_free(dev);
    ha_cuda_calls_free(dev->calls);
    pthread_mutex_lock(&process.lock);
    /* a context that is broken stays so, and the next open would find it */
    if (--process.open == 0 && (cudaDeviceSynchronize() != cudaSuccess || cudaGetLastError() != cudaSuccess)) {
        cudaDeviceReset();
        (void)cudaGetLastError();
    }
    pthread_mutex_unlock(&process.lock);
    pthread_mutex_destroy(&dev->lock);
    free(dev);
}

/* What the environment says of the emulation is understood. */
static enum ha_status ask_emulation(struct ha_why *why)
{
#ifdef HA_CUDA_EMULATED
    const char *wrong = ha_emulated_environment_wrong(), *order = ha_emulated_order_wrong();
    if (wrong) return ha_why(why, HA_ERROR, "%s", wrong);
    if (order) return ha_why(why, HA_ERROR, "HA_EMULATION_ORDER=%.40s: " HA_EMULATED_ORDERS, order);
#endif
    return HA_OK;
}

static enum ha_status cuda_open(struct ha_device **out, const struct ha_device_config *config, struct ha_why *why)
{
    const char *huge = getenv("HABENCH_HUGE_PAGES");
    struct ha_cuda_driver driver;
    HA_TRY(ask_emulation(why));
    /* Read when CUDA begins. Of its 8 queues streams would share one, and what waits for a flag on one stream would
     * stop another, perhaps that which raises the flag. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    HA_TRY(ha_cuda_driver_load(&driver, why));
    struct ha_device *dev = calloc(1, sizeof *dev);
    if (!dev) return ha_why(why, HA_ERROR, "cuda device: no host memory");
    dev->driver = driver;
    dev->wait_limit_ns = config->wait_limit_ns ? config->wait_limit_ns : UINT64_C(30000000000);
    dev->memory.huge_pages = huge && !strcmp(huge, "1");
    pthread_mutex_init(&dev->lock, NULL);
    ha_regions_init(&dev->memory.regions);
    pthread_mutex_lock(&process.lock);
    process.open++;
    pthread_mutex_unlock(&process.lock);
    enum ha_status status = bring_up(dev, why);
    if (status == HA_OK) *out = dev;
    else cuda_close(dev);
    return status;
}

/* ---- what it is */

static uint32_t threads(struct ha_device *dev)
{
    uint32_t live = 0;
    if (!EMULATED) return 0;
    pthread_mutex_lock(&dev->lock);
    for (const struct ha_stream *s = dev->streams; s; s = s->next) live += s->live;
    pthread_mutex_unlock(&dev->lock);
    return live ? live : 1;
}

static void cuda_info(struct ha_device *dev, struct ha_device_info *info)
{
    const double exp_eps = fmax(dev->eps[HA_CUDA_EXP], dev->eps[HA_CUDA_EXP2]),
                 log_eps = fmax(dev->eps[HA_CUDA_LOG], dev->eps[HA_CUDA_LOG2]);
    const char *absent = ha_cuda_blas_absent(dev);
    size_t free_bytes = 0, total = 0;
    ha_cuda_enter();
    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) (void)cudaGetLastError();
    *info = (struct ha_device_info){ .memory_bytes = total,
                                     .memory_free_bytes = free_bytes,
                                     .compute_threads = threads(dev),
                                     .merge = ha_cuda_merge_traits(),
                                     .head_dim_max = HA_CUDA_DIM_MAX,
                                     .spans_lost = ha_cuda_trace_lost(dev) };
    info->merge.exp_eps = exp_eps;
    info->merge.log_eps = log_eps;
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) {
        info->profile[t] = ha_cuda_attend_profile((enum ha_dtype)t);
        info->products[t] = ha_cuda_products_profile(dev, (enum ha_dtype)t);
        info->profile[t].exp_eps = info->products[t].exp_eps = exp_eps;
        info->profile[t].log_eps = info->products[t].log_eps = log_eps;
    }
    snprintf(info->name, sizeof info->name, "%s", dev->name);
    snprintf(info->driver, sizeof info->driver, "%s", dev->driver_text);
    snprintf(info->spans, sizeof info->spans, "%s", ha_cuda_trace_source(dev));
    snprintf(info->no_products, sizeof info->no_products, "%s", absent ? absent : "");
}

static const char *cuda_failure(struct ha_device *dev) { return ha_cuda_failed(dev) ? dev->failure : NULL; }

static void cuda_meters(struct ha_device *dev, struct ha_device_meters *out) { ha_cuda_meters_read(dev->meters, out); }

static size_t cuda_facts(struct ha_device *dev, struct ha_device_fact *facts, size_t room)
{
    int version = 0, l2_bytes = 0;
    char text[24];
    struct ha_cuda_facts list = { facts, room, 0 };
    ha_cuda_meters_facts(dev->meters, &list);
    if (cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, HA_CUDA_GPU) == cudaSuccess && l2_bytes > 0)
        ha_cuda_fact(&list, "l2_bytes", "%d", l2_bytes);
    if (EMULATED) return list.count; /* there is no driver whose versions count */
    if (cudaDriverGetVersion(&version) == cudaSuccess)
        ha_cuda_fact(&list, "driver_api", "%d.%d", version / 1000, version % 1000 / 10);
    if (cudaRuntimeGetVersion(&version) == cudaSuccess)
        ha_cuda_fact(&list, "runtime_api", "%d.%d", version / 1000, version % 1000 / 10);
    module_version(text, sizeof text);
    if (*text) ha_cuda_fact(&list, "driver_module", "%s", text);
    return list.count;
}

#define TEXT_OF(number) #number
#define TEXT(number)    TEXT_OF(number)
#define RUNTIME         ", CUDA runtime " TEXT(CUDART_VERSION)

__attribute__((visibility("default"))) extern const struct ha_device_api ha_device_api;
const struct ha_device_api ha_device_api = {
    .abi = HA_DEVICE_ABI,
    .struct_bytes = sizeof(struct ha_device_api),
    .name = NAME,
    .kind = KIND,
    .built_with = HA_COMPILER RUNTIME,
    .open = cuda_open,
    .close = cuda_close,
    .info = cuda_info,
    .failure = cuda_failure,
    .trace = ha_cuda_trace_set,
    .mem_alloc = ha_cuda_mem_alloc,
    .mem_free = ha_cuda_mem_free,
    .stream_create = ha_cuda_stream_create,
    .stream_destroy = ha_cuda_stream_destroy,
    .stream_sync = ha_cuda_stream_sync,
    .event_create = ha_cuda_event_create,
    .event_destroy = ha_cuda_event_destroy,
    .event_record = ha_cuda_event_record,
    .stream_wait = ha_cuda_stream_wait,
    .event_sync = ha_cuda_event_sync,
    .copy = ha_cuda_copy,
    .copy_2d = ha_cuda_copy_2d,
    .flag_write = ha_cuda_flag_write_enqueue,
    .flag_wait = ha_cuda_flag_wait_enqueue,
    .host_fn = ha_cuda_host_fn,
    .attend = ha_cuda_attend_enqueue,
    .graph_begin = ha_cuda_graph_begin,
    .graph_end = ha_cuda_graph_end,
    .graph_launch = ha_cuda_graph_launch,
    .graph_destroy = ha_cuda_graph_destroy,
    .attend_products = ha_cuda_attend_products_enqueue,
    .product = ha_cuda_product_enqueue,
    .move = ha_cuda_move_enqueue,
    .copy_pieces = ha_cuda_copy_pieces_enqueue,
    .read = ha_cuda_read_enqueue,
    .spin = ha_cuda_spin_enqueue,
    .meters = cuda_meters,
    .map_device = ha_cuda_map_device,
    .unmap_device = ha_cuda_unmap_device,
#define HA_CUDA_FILE(file)
#define HA_CUDA_OPERATION(name, arguments) .name = ha_cuda_##name##_enqueue,
#include "kernels/cuda/operations.def"
    .facts = cuda_facts,
};
