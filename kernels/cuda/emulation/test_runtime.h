#ifndef HA_CUDA_EMULATION_TEST_RUNTIME_H
#define HA_CUDA_EMULATION_TEST_RUNTIME_H

/* For the tests of the emulated runtime: kernels that are C functions, called once per launch. */

#include "harness/base/test.h"
#include "kernels/cuda/emulation/runtime.h"
#include "kernels/cuda/emulation/runtime_inside.h"

#define ok(call)           assert_int_equal((call), cudaSuccess)
#define gives(error, call) assert_int_equal((call), (error))

/* *word = *word * times + plus */
struct mix {
    uint32_t *word, times, plus;
};
void mix_run(const void *args);
extern const struct ha_emulated_kernel mix_kernel;
cudaError_t mix(uint32_t *word, uint32_t times, uint32_t plus, cudaStream_t stream);

/* A gate that a stream stands at until it is opened: by a host function, so without memory operations. */
struct gate {
    uint32_t open, reached; /* atomic */
};
cudaError_t gate_enqueue(struct gate *gate, cudaStream_t stream);
void gate_await(struct gate *gate); /* until the stream stands at it */
void gate_open(struct gate *gate);

/* the driver's memory operations */
struct driver {
    CUresult (*wait)(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags);
    CUresult (*write)(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags);
};
struct driver driver_load(void);
CUdeviceptr address(const uint32_t *flag);

cudaStream_t stream_new(void);
cudaEvent_t event_new(void);
void *device_new(size_t bytes);
void *pinned_new(size_t bytes);
uint32_t *word_new(uint32_t value);               /* in pinned memory */
cudaGraphExec_t instantiate(cudaStream_t stream); /* what it has captured */
void assert_nothing_alive(void);
/* setup and teardown: the defaults; a reset, and nothing is alive. With ThreadSanitizer, fresh has it judge the
 * runtime, fresh_sharp the program that uses it. */
int fresh(void **state);
int fresh_sharp(void **state);
int spent(void **state);

#endif
