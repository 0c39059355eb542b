/* Flags: a write, and a wait that the watch knows of. */

#include "kernels/cuda/cuda.h"

/* The driver's operations, or kernels: where it has none, and in a graph. The codes of its errors are the runtime's. */
static cudaError_t flag_write(struct ha_stream *s, uint32_t *word, uint32_t value)
{
    const struct ha_cuda_driver *driver = &s->device->driver;
    if (!driver->write_value || s->graph) return ha_cuda_flag_write(s->cuda, word, value);
    return (cudaError_t)driver->write_value((CUstream)s->cuda, (CUdeviceptr)(uintptr_t)word, value,
                                            CU_STREAM_WRITE_VALUE_DEFAULT);
}

static CUstreamBatchMemOpParams written(uint32_t *word, uint32_t value)
{
    CUstreamBatchMemOpParams operation = { .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32 };
    operation.writeValue.address = (CUdeviceptr)(uintptr_t)word;
    operation.writeValue.value = value;
    operation.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    return operation;
}

static CUstreamBatchMemOpParams awaited(const uint32_t *word, uint32_t at_least)
{
    CUstreamBatchMemOpParams operation = { .operation = CU_STREAM_MEM_OP_WAIT_VALUE_32 };
    operation.waitValue.address = (CUdeviceptr)(uintptr_t)word;
    operation.waitValue.value = at_least;
    operation.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    return operation;
}

/* What the watch looks at is written before the wait and after it: by the driver all in one call. */
static cudaError_t wait_between(struct ha_stream *s, uint32_t *state, uint32_t n, const uint32_t *flag,
                                uint32_t at_least)
{
    const struct ha_cuda_driver *driver = &s->device->driver;
    if (driver->batch && !s->graph) {
        CUstreamBatchMemOpParams each[] = { written(state, 2 * n + 1), awaited(flag, at_least), written(state, 2 * n) };
        return (cudaError_t)driver->batch((CUstream)s->cuda, sizeof each / sizeof *each, each, 0);
    }
    cudaError_t error = ha_cuda_flag_write(s->cuda, state, 2 * n + 1);
    if (error == cudaSuccess) error = ha_cuda_flag_wait(s->cuda, flag, at_least, ha_cuda_watch_gave_up(s->device));
    return error == cudaSuccess ? ha_cuda_flag_write(s->cuda, state, 2 * n) : error;
}

enum ha_status ha_cuda_flag_write_enqueue(struct ha_stream *s, uint32_t *flag, uint32_t value)
{
    /* no work, so it is not a kernel; its time is spent on keeping order */
    static const struct ha_cuda_span span = { .kind = HA_SPAN_WAIT, .name = "flag_write" };
    if (ha_cuda_failed(s->device) || !ha_cuda_operand(s, span.name, "flag", flag, sizeof *flag, HA_AT_MAPPED))
        return HA_ERROR;
    HA_CUDA_ENQUEUE(s, &span, flag_write(s, flag, value));
}

enum ha_status ha_cuda_flag_wait_enqueue(struct ha_stream *s, const uint32_t *flag, uint32_t at_least)
{
    static const struct ha_cuda_span span = { .kind = HA_SPAN_WAIT, .name = "flag_wait" };
    if (ha_cuda_failed(s->device) || !ha_cuda_operand(s, span.name, "flag", flag, sizeof *flag, HA_AT_MAPPED))
        return HA_ERROR;
    if (at_least > INT32_MAX) /* CU_STREAM_WAIT_VALUE_GEQ takes the difference as a signed number */
        return ha_cuda_fail_on(s, span.name, "a wait for at least %u, where flags are less than 2^31", at_least);
    uint32_t *state, n;
    const char *wrong = ha_cuda_watch_add(s, flag, at_least, &state, &n);
    if (wrong) return ha_cuda_fail_on(s, span.name, "%s", wrong);
    HA_CUDA_ENQUEUE(s, &span, wait_between(s, state, n, flag, at_least));
}
