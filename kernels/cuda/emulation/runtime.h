#ifndef HA_CUDA_EMULATION_RUNTIME_H
#define HA_CUDA_EMULATION_RUNTIME_H

/* What the emulated runtime offers beyond CUDA's own names: kernels (simt.h), the driver's library, and knobs with
 * which tests make the faults of real machines. Knobs may be turned from any thread; a program that cannot call them
 * is given them by its environment, read before the first call:
 *   HA_EMULATED_DEVICES=0 | none    none: no driver
 *   HA_EMULATED_MEMORY=bytes        of the device
 *   HA_EMULATED_DRIVER=12040        driver's version; below the runtime's first number it is too old
 *   HA_EMULATED_MEMOPS=0            no cuStreamWaitValue32, cuStreamWriteValue32 and cuStreamBatchMemOp
 *   HA_EMULATED_UPDATES=0           an update of a graph says that it was done, and changes nothing
 *   HA_EMULATED_LOSE=n              the device is lost in its n-th kernel
 *   HA_EMULATED_FAIL=call:nth:code[:once|:sticky][,...]
 *   HA_EMULATED_RECORDER=path       of the stand-in for CUPTI, which records what runs
 *   HA_EMULATED_FIRST=file          both happen in one process alone: the first, which makes this file
 *   HA_EMULATED_GDR=here | lost     of fake_gdr.c
 * What cannot be read makes every call fail with cudaErrorInitializationError. */

#include "kernels/cuda/emulation/simt.h"

#include <cuda_runtime_api.h>

/* ---- dlopen and its kin, for libcuda.so.1 only */
void *ha_emulated_dlopen(const char *name, int mode);
void *ha_emulated_dlsym(void *library, const char *symbol);
const char *ha_emulated_dlerror(void); /* of a library */

/* ---- a kernel of a library: a function that runs where a host function would, and keeps to its rules */
cudaError_t ha_emulated_library_kernel(cudaStream_t stream, cudaHostFn_t fn, void *arg);
/* A library loads kernels: that waits for everything that is enqueued. */
void ha_emulated_library_load(void);
/* What a library allocates when it is first used: refused while a stream captures, however relaxed. */
cudaError_t ha_emulated_library_alloc(void **ptr, size_t bytes);

/* ---- what runs, for who stands in for CUPTI */

enum ha_emulated_what { HA_EMULATED_HOST, HA_EMULATED_KERNEL, HA_EMULATED_COPY, HA_EMULATED_SET };
struct ha_emulated_ran {
    enum ha_emulated_what what; /* KERNEL, COPY, SET */
    const char *kernel;         /* as in ha_emulated_launch; NULL: a library's */
    bool from_host, to_host;    /* of a copy; a batch is one, told of by its first piece */
    size_t bytes;
    cudaStream_t stream;
    cudaGraphExec_t graph; /* that launched it, or NULL */
    uint64_t begin_ns, end_ns;
};
/* Tells of everything that has run, from the stream's thread. NULL: of nothing. */
void ha_emulated_tell(void (*ran)(const struct ha_emulated_ran *ran));
/* recorder.c: of everything to the stand-in for CUPTI (kernels/cuda/fake_cupti.c) at that path. false: there is none.
 */
bool ha_emulated_record(const char *path);

/* ---- knobs */

struct ha_emulated_settings {
    int devices;         /* 1; 0: cudaErrorNoDevice; -1: no driver */
    size_t memory_bytes; /* of the device; a cudaMalloc beyond is cudaErrorMemoryAllocation */
    int driver_version;  /* below 12080 there are no batches of copies */
    int runtime_version; /* CUDART_VERSION */
    bool memory_operations, updates;
    int shared_bytes; /* that a block may have, of a kernel that asks for more than 48 KB */
    int double_ratio; /* how much faster than binary64 binary32 is said to be */
};
/* NULL, or what of the environment is not understood: "HA_EMULATED_MEMOPS=2: neither 0 nor 1" */
const char *ha_emulated_environment_wrong(void);
/* one device of 8 GiB, and what the environment says */
struct ha_emulated_settings ha_emulated_defaults(void);
/* NULL: the defaults. Forgets faults, too. Call it while no device is in use. */
void ha_emulated_set(const struct ha_emulated_settings *settings);

enum ha_emulated_fault {
    HA_EMULATED_ONCE,  /* that call only */
    HA_EMULATED_STICKY /* that call, and the device is lost: every call gives the error until cudaDeviceReset */
};
/* The nth call from now (1: the next) of a function gives error and does nothing; kernel launches are
 * "cudaLaunchKernel". False: there is no such function here, or no room for more faults. */
bool ha_emulated_fail(const char *function, unsigned nth, cudaError_t error, enum ha_emulated_fault how);
/* The nth kernel from now does not run: the device is lost, with cudaErrorLaunchFailure. 0: never. */
void ha_emulated_lose(uint64_t nth);

/* How often a function was called; 0 for unknown ones. */
uint64_t ha_emulated_calls(const char *function);
/* What was made and is not yet destroyed. */
struct ha_emulated_alive {
    size_t device_blocks, device_bytes, host_blocks, streams, events, graphs;
};
struct ha_emulated_alive ha_emulated_alive(void);

#endif
