#include "kernels/cuda/emulation/runtime_inside.h"

#include "harness/base/clock.h"

#include <dlfcn.h>
#include <sched.h>
#include <string.h>
#include <time.h>

/* Kernels, host functions and memory operations. */

/* ---- kernels */

enum { THREADS_MAX = 1024, BLOCK_Z_MAX = 64, GRID_X_MAX = INT32_MAX, GRID_YZ_MAX = 65535, ARGS_MAX = 32764 };

static void kernel_run(struct ha_runtime_op *op)
{
    ha_runtime_lock();
    bool lost = ha_runtime_kernel_loses();
    if (lost) ha_runtime_lose_now(cudaErrorLaunchFailure);
    ha_runtime_unlock();
    if (!lost) ha_emulated_run(&op->u.launch.kernel, op->data, op->u.launch.grid, op->u.launch.block);
}

static bool within(dim3 d, unsigned x, unsigned y, unsigned z)
{
    return d.x >= 1 && d.y >= 1 && d.z >= 1 && d.x <= x && d.y <= y && d.z <= z;
}

cudaError_t ha_emulated_launch(const struct ha_emulated_kernel *kernel, const void *args, size_t bytes, dim3 grid,
                               dim3 block, cudaStream_t stream)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaLaunchKernel);
    bool fits = within(grid, GRID_X_MAX, GRID_YZ_MAX, GRID_YZ_MAX)
                && within(block, THREADS_MAX, THREADS_MAX, BLOCK_Z_MAX) && block.x * block.y * block.z <= THREADS_MAX;
    if (!error && !fits) error = cudaErrorInvalidConfiguration;
    if (!error) error = ha_runtime_function_check(kernel);
    if (!error && (bytes > ARGS_MAX || (bytes && !args))) error = cudaErrorInvalidValue;
    struct ha_runtime_stream *s = ha_runtime_stream_find(stream, &error);
    if (!s) return ha_runtime_leave(error);
    const struct ha_runtime_op op = {
        .run = kernel_run,
        .what = HA_EMULATED_KERNEL,
        .u.launch = { *kernel, { grid.x, grid.y, grid.z }, { block.x, block.y, block.z } },
        .data_bytes = bytes,
    };
    return ha_runtime_leave(ha_runtime_submit(s, ha_runtime_op_new(&op, args)));
}

/* ---- host functions */

static void host_run(struct ha_runtime_op *op)
{
    ha_runtime_in_host_fn(true);
    op->u.host.fn(op->u.host.arg);
    ha_runtime_in_host_fn(false);
}

static cudaError_t function_submit(cudaStream_t stream, enum ha_emulated_what what, cudaHostFn_t fn, void *arg)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaLaunchHostFunc);
    if (!error && !fn) error = cudaErrorInvalidValue;
    struct ha_runtime_stream *s = ha_runtime_stream_find(stream, &error);
    if (!s) return ha_runtime_leave(error);
    const struct ha_runtime_op op = { .run = host_run, .what = what, .u.host = { fn, arg } };
    return ha_runtime_leave(ha_runtime_submit(s, ha_runtime_op_new(&op, NULL)));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *arg)
{
    return function_submit(stream, HA_EMULATED_HOST, fn, arg);
}

cudaError_t ha_emulated_library_kernel(cudaStream_t stream, cudaHostFn_t fn, void *arg)
{
    return function_submit(stream, HA_EMULATED_KERNEL, fn, arg);
}

const char *ha_runtime_kernel_name(const struct ha_runtime_op *op)
{
    return op->run == kernel_run ? op->u.launch.kernel.name : NULL;
}

/* ---- memory operations, and the driver's library that has them */

enum { SPIN_NS = 20000, NAP_NS = 20000 };

static void flag_wait_run(struct ha_runtime_op *op)
{
    uint64_t spin_end = ha_now_ns() + SPIN_NS;
    /* cyclic: CU_STREAM_WAIT_VALUE_GEQ */
    while (__atomic_load_n(op->u.flag.address, __ATOMIC_ACQUIRE) - op->u.flag.value > INT32_MAX) {
        if (ha_runtime_lost()) return;
        if (ha_now_ns() < spin_end) sched_yield();
        else nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
    }
}

static void flag_write_run(struct ha_runtime_op *op)
{
    __atomic_store_n(op->u.flag.address, op->u.flag.value, __ATOMIC_RELEASE);
}

struct flag_op {
    CUdeviceptr address;
    cuuint32_t value;
    unsigned flags;
    bool waits;
};

static bool flag_good(const struct flag_op *f)
{
    const enum ha_runtime_place place = ha_runtime_place((const void *)(uintptr_t)f->address, sizeof(uint32_t));
    return f->address % sizeof(uint32_t) == 0 && (place == HA_PLACE_DEVICE || place == HA_PLACE_HOST)
           && f->flags == CU_STREAM_WAIT_VALUE_GEQ; /* which is CU_STREAM_WRITE_VALUE_DEFAULT, too */
}

/* all of them or none */
static CUresult flag_submit(enum ha_runtime_call call, CUstream stream, const struct flag_op *each, unsigned count)
{
    cudaError_t error = ha_runtime_enter(call);
    if (!error && !ha_runtime.settings.memory_operations) error = cudaErrorNotSupported;
    for (unsigned i = 0; i < count && !error; i++)
        if (!flag_good(&each[i])) error = cudaErrorInvalidValue;
    struct ha_runtime_stream *s = ha_runtime_stream_find(stream, &error);
    for (unsigned i = 0; i < count && s && !error; i++) {
        const struct ha_runtime_op op = { .run = each[i].waits ? flag_wait_run : flag_write_run,
                                          .u.flag = { (uint32_t *)(uintptr_t)each[i].address, each[i].value } };
        error = ha_runtime_submit(s, ha_runtime_op_new(&op, NULL));
    }
    ha_runtime_unlock();
    return (CUresult)error; /* the codes used here are the same in both APIs */
}

static CUresult wait_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    return flag_submit(HA_CALL_cuStreamWaitValue32_v2, stream, &(struct flag_op){ address, value, flags, true }, 1);
}

static CUresult write_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    return flag_submit(HA_CALL_cuStreamWriteValue32_v2, stream, &(struct flag_op){ address, value, flags, false }, 1);
}

static CUresult batch_mem_op(CUstream stream, unsigned count, CUstreamBatchMemOpParams *params, unsigned flags)
{
    enum { MOST = 255 };
    struct flag_op each[MOST];
    if (count == 0 || count > MOST || flags) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        const CUstreamBatchMemOpParams *p = &params[i];
        const bool waits = p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32;
        if (!waits && p->operation != CU_STREAM_MEM_OP_WRITE_VALUE_32) return CUDA_ERROR_INVALID_VALUE;
        each[i] = waits ? (struct flag_op){ p->waitValue.address, p->waitValue.value, p->waitValue.flags, true }
                        : (struct flag_op){ p->writeValue.address, p->writeValue.value, p->writeValue.flags, false };
    }
    return flag_submit(HA_CALL_cuStreamBatchMemOp_v2, stream, each, count);
}

static void *symbol_of(const char *name)
{
    typedef CUresult one(CUstream, CUdeviceptr, cuuint32_t, unsigned);
    typedef CUresult many(CUstream, unsigned, CUstreamBatchMemOpParams *, unsigned);
    one *const wait = wait_value, *const write = write_value;
    many *const batch = batch_mem_op;
    const struct {
        const char *name;
        const void *function; /* where the pointer to it is */
    } symbols[] = { { "cuStreamWaitValue32_v2", &wait },
                    { "cuStreamWriteValue32_v2", &write },
                    { "cuStreamBatchMemOp_v2", &batch } };
    void *address = NULL;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        if (strcmp(symbols[i].name, name) == 0) memcpy(&address, symbols[i].function, sizeof address);
    return address;
}

void *ha_emulated_dlopen(const char *name, int mode)
{
    (void)ha_runtime_environment();
    ha_runtime_lock();
    const bool present = ha_runtime.settings.devices >= 0;
    ha_runtime_unlock();
    return present && strcmp(name, "libcuda.so.1") == 0 && (mode & (RTLD_NOW | RTLD_LAZY)) ? &ha_runtime : NULL;
}

void *ha_emulated_dlsym(void *library, const char *symbol)
{
    ha_runtime_lock();
    const bool present = library == &ha_runtime && ha_runtime.settings.memory_operations;
    ha_runtime_unlock();
    return present ? symbol_of(symbol) : NULL;
}

const char *ha_emulated_dlerror(void) { return "libcuda.so.1: no such library on the emulated machine"; }
