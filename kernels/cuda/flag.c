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

static cudaError_t flag_wait(struct ha_stream *s, const uint32_t *word, uint32_t at_least)
{
    const struct ha_cuda_driver *driver = &s->device->driver;
    if (!driver->wait_value || s->graph)
        return ha_cuda_flag_wait(s->cuda, word, at_least, ha_cuda_watch_gave_up(s->device));
    return (cudaError_t)driver->wait_value((CUstream)s->cuda, (CUdeviceptr)(uintptr_t)word, at_least,
                                           CU_STREAM_WAIT_VALUE_GEQ);
}

static cudaError_t wait_between(struct ha_stream *s, uint32_t *state, uint32_t n, const uint32_t *flag,
                                uint32_t at_least)
{
    cudaError_t error = flag_write(s, state, 2 * n + 1);
    if (error == cudaSuccess) error = flag_wait(s, flag, at_least);
    return error == cudaSuccess ? flag_write(s, state, 2 * n) : error;
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
