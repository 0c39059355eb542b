#include "kernels/cuda/emulation/runtime_inside.h"

#include <string.h>

/* ---- running */

static void copy_rows(const struct ha_runtime_copy *c)
{
    for (size_t row = 0; row < c->height; row++)
        memmove(c->dst + row * c->dst_pitch, c->src + row * c->src_pitch, c->width);
}

static size_t extent(const struct ha_runtime_copy *c, size_t pitch) { return (c->height - 1) * pitch + c->width; }

/* Freed since it was queued, or captured: what a GPU would read or write is no longer its own. */
static bool still_there(const struct ha_runtime_copy *c)
{
    ha_runtime_lock();
    bool there = ha_runtime_place(c->dst, extent(c, c->dst_pitch)) == c->dst_place
                 && ha_runtime_place(c->src, extent(c, c->src_pitch)) == c->src_place;
    if (!there) ha_runtime_lose_now(cudaErrorIllegalAddress);
    ha_runtime_unlock();
    return there;
}

static void copy_run(struct ha_runtime_op *op)
{
    if (still_there(&op->u.copy)) copy_rows(&op->u.copy);
}

/* the source's rows, dense, in data */
static void staged_run(struct ha_runtime_op *op)
{
    struct ha_runtime_copy *c = &op->u.copy;
    c->src = (const char *)op->data;
    c->src_pitch = c->width;
    if (still_there(c)) copy_rows(c);
}

/* last to first: a batch has no order, and a caller that relies on one gets another result */
static void batch_run(struct ha_runtime_op *op)
{
    struct ha_runtime_copy c;
    for (size_t i = op->u.pieces; i-- > 0;) {
        memcpy(&c, op->data + i * sizeof c, sizeof c);
        if (!still_there(&c)) return;
        copy_rows(&c);
    }
}

void ha_runtime_copy_ran(const struct ha_runtime_op *op, struct ha_emulated_ran *ran)
{
    const bool batch = op->run == batch_run;
    for (size_t i = 0; i < (batch ? op->u.pieces : 1); i++) {
        struct ha_runtime_copy c = op->u.copy;
        if (batch) memcpy(&c, op->data + i * sizeof c, sizeof c);
        ran->bytes += c.width * c.height;
        if (i) continue;
        ran->from_host = c.src_place != HA_PLACE_DEVICE;
        ran->to_host = c.dst_place != HA_PLACE_DEVICE;
    }
}

static void set_run(struct ha_runtime_op *op)
{
    ha_runtime_lock();
    enum ha_runtime_place place = ha_runtime_place(op->u.set.ptr, op->u.set.bytes);
    bool there = place == HA_PLACE_DEVICE || place == HA_PLACE_HOST;
    if (!there) ha_runtime_lose_now(cudaErrorIllegalAddress);
    ha_runtime_unlock();
    if (there) memset(op->u.set.ptr, op->u.set.value, op->u.set.bytes);
}

/* ---- checking */

static bool on_device(enum ha_runtime_place place) { return place == HA_PLACE_DEVICE; }

/* Fills in the places. width and height are not 0. */
static cudaError_t copy_check(struct ha_runtime_copy *c, enum cudaMemcpyKind kind)
{
    if ((unsigned)kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    if (c->width > c->dst_pitch || c->width > c->src_pitch) return cudaErrorInvalidPitchValue;
    size_t pitch = c->dst_pitch > c->src_pitch ? c->dst_pitch : c->src_pitch;
    if (c->height - 1 > (SIZE_MAX - c->width) / pitch) return cudaErrorInvalidValue;
    c->dst_place = ha_runtime_place(c->dst, extent(c, c->dst_pitch));
    c->src_place = ha_runtime_place(c->src, extent(c, c->src_pitch));
    if (c->dst_place == HA_PLACE_WRONG || c->src_place == HA_PLACE_WRONG) return cudaErrorInvalidValue;
    if (kind == cudaMemcpyDefault) return cudaSuccess;
    bool to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    return to == on_device(c->dst_place) && from == on_device(c->src_place) ? cudaSuccess : cudaErrorInvalidValue;
}

/* Pageable memory: a source is read before the call returns, a destination is written before. In a graph neither. */
static cudaError_t copy_submit(cudaError_t error, struct ha_runtime_copy c, enum cudaMemcpyKind kind,
                               cudaStream_t stream)
{
    struct ha_runtime_stream *s = ha_runtime_stream_find(stream, &error);
    if (!s || !c.width || !c.height) return error;
    if ((error = copy_check(&c, kind))) return error;
    bool staged = c.src_place == HA_PLACE_PAGEABLE && !s->capture;
    if (staged && c.width > SIZE_MAX / c.height) return cudaErrorMemoryAllocation;
    const struct ha_runtime_op like = { .run = staged ? staged_run : copy_run,
                                        .what = HA_EMULATED_COPY,
                                        .u.copy = c,
                                        .data_bytes = staged ? c.width * c.height : 0 };
    struct ha_runtime_op *op = ha_runtime_op_new(&like, NULL);
    if (op && staged) {
        c.dst = (char *)op->data;
        c.dst_pitch = c.width;
        copy_rows(&c);
    }
    bool waits = c.dst_place == HA_PLACE_PAGEABLE && !s->capture;
    if ((error = ha_runtime_submit(s, op)) || !waits) return error;
    ha_runtime_await_stream(s->handle);
    return ha_runtime_lost();
}

/* one row */
static struct ha_runtime_copy dense(void *dst, const void *src, size_t bytes)
{
    return (struct ha_runtime_copy){
        .dst = dst, .src = src, .dst_pitch = bytes, .src_pitch = bytes, .width = bytes, .height = 1
    };
}

/* ---- the API */

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaMemcpyAsync);
    return ha_runtime_leave(copy_submit(error, dense(dst, src, bytes), kind, stream));
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaMemcpy2DAsync);
    struct ha_runtime_copy c = {
        .dst = dst, .src = src, .dst_pitch = dst_pitch, .src_pitch = src_pitch, .width = width, .height = height
    };
    return ha_runtime_leave(copy_submit(error, c, kind, stream));
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaMemcpy);
    error = copy_submit(error, dense(dst, src, bytes), kind, NULL);
    if (!error) {
        ha_runtime_await_stream(ha_runtime.null_stream);
        error = ha_runtime_lost();
    }
    return ha_runtime_leave(error);
}

static cudaError_t set_submit(cudaError_t error, void *ptr, int value, size_t bytes, cudaStream_t stream)
{
    struct ha_runtime_stream *s = ha_runtime_stream_find(stream, &error);
    if (!s || !bytes) return error;
    enum ha_runtime_place place = ha_runtime_place(ptr, bytes);
    if (place != HA_PLACE_DEVICE && place != HA_PLACE_HOST) return cudaErrorInvalidValue;
    const struct ha_runtime_op op = { .run = set_run, .what = HA_EMULATED_SET, .u.set = { ptr, value, bytes } };
    return ha_runtime_submit(s, ha_runtime_op_new(&op, NULL));
}

cudaError_t cudaMemsetAsync(void *ptr, int value, size_t bytes, cudaStream_t stream)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaMemsetAsync);
    return ha_runtime_leave(set_submit(error, ptr, value, bytes, stream));
}

/* does not wait for it, as CUDA's does not */
cudaError_t cudaMemset(void *ptr, int value, size_t bytes)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaMemset);
    return ha_runtime_leave(set_submit(error, ptr, value, bytes, NULL));
}

/* *failed: the piece that is wrong, or SIZE_MAX */
static cudaError_t batch_submit(void *const *dsts, const void *const *srcs, const size_t *sizes, size_t count,
                                const struct cudaMemcpyAttributes *attributes, const size_t *indices,
                                size_t attribute_count, size_t *failed, cudaStream_t stream)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaMemcpyBatchAsync);
    *failed = SIZE_MAX;
    if (!error && ha_runtime.settings.driver_version < 12080) error = cudaErrorCallRequiresNewerDriver;
    if (!error && !(stream && dsts && srcs && sizes && count && attributes && indices && attribute_count))
        error = cudaErrorInvalidValue;
    if (!error && attribute_count > count) error = cudaErrorInvalidValue;
    for (size_t i = 0; !error && i < attribute_count; i++) {
        bool ordered = i ? indices[i] > indices[i - 1] && indices[i] < count : indices[i] == 0;
        unsigned order = attributes[i].srcAccessOrder;
        if (!ordered || !(order >= cudaMemcpySrcAccessOrderStream && order <= cudaMemcpySrcAccessOrderAny)
            || attributes[i].flags > 1)
            error = cudaErrorInvalidValue;
    }
    struct ha_runtime_stream *s = ha_runtime_stream_find(stream, &error);
    if (s && s->capture) error = cudaErrorStreamCaptureUnsupported; /* and the capture goes on */
    if (error) return ha_runtime_leave(error);

    const struct ha_runtime_op like = { .run = batch_run,
                                        .what = HA_EMULATED_COPY,
                                        .u.pieces = count,
                                        .data_bytes = count * sizeof(struct ha_runtime_copy) };
    struct ha_runtime_op *op = ha_runtime_op_new(&like, NULL);
    for (size_t i = 0; op && i < count; i++) {
        struct ha_runtime_copy c = dense(dsts[i], srcs[i], sizes[i]);
        if (!sizes[i]) error = cudaErrorInvalidValue;
        if (!error) error = copy_check(&c, cudaMemcpyDefault);
        if (error) {
            *failed = i;
            ha_runtime_op_free(op);
            return ha_runtime_leave(error);
        }
        memcpy(op->data + i * sizeof c, &c, sizeof c);
    }
    return ha_runtime_leave(ha_runtime_submit(s, op));
}

cudaError_t cudaMemcpyBatchAsync(void *const *dsts, const void *const *srcs, const size_t *sizes, size_t count,
                                 struct cudaMemcpyAttributes *attributes, size_t *attribute_indices,
                                 size_t attribute_count, cudaStream_t stream)
{
    size_t failed;
    return batch_submit(dsts, srcs, sizes, count, attributes, attribute_indices, attribute_count, &failed, stream);
}

cudaError_t ha_emulated_memcpy_batch_12(void **dsts, void **srcs, size_t *sizes, size_t count,
                                        struct cudaMemcpyAttributes *attributes, size_t *attribute_indices,
                                        size_t attribute_count, size_t *failed, cudaStream_t stream)
{
    size_t ignored;
    return batch_submit(dsts, (const void *const *)srcs, sizes, count, attributes, attribute_indices, attribute_count,
                        failed ? failed : &ignored, stream);
}
