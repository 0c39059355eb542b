/* Rows that a kernel moves, copies handed over in one call, CPU stores into device memory, and the two kernels that
 * measure. Where memory is mapped, what a move reads and writes there crosses the link. */

#include "kernels/host/host.h"

#include "harness/base/clock.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

/* ---- move */

/* One side of a move: device or mapped memory, rows that stay within their allocation. Rows that an index chooses
 * are only known when the move runs; until then `room`, what the allocation has behind ptr, is kept. */
static bool side(struct ha_stream *s, struct ha_host_op *op, const char *role, const void *ptr, size_t stride,
                 const uint32_t *index, size_t *room)
{
    const struct ha_device_move *m = &op->u.moved.args;
    size_t span;
    if (__builtin_mul_overflow(m->rows - 1, stride, &span) || __builtin_add_overflow(span, m->row_bytes, &span))
        span = SIZE_MAX;
    const enum ha_place place = ha_host_kernel_operand(s, op, role, ptr, index ? 1 : span, m->rows * m->row_bytes);
    *room = place && index ? ha_regions_room(&s->device->memory.regions, ptr, NULL) : SIZE_MAX;
    return place != 0;
}

/* Where row i of a side begins, or SIZE_MAX and the device has failed. */
static size_t row_at(struct ha_stream *s, const char *role, const uint32_t *index, size_t i, size_t stride,
                     size_t row_bytes, size_t room)
{
    const size_t row = index ? index[i] : i;
    size_t at;
    if (!__builtin_mul_overflow(row, stride, &at) && at <= room && row_bytes <= room - at) return at;
    ha_host_fail(s->device, "move on %s: row %zu of %zu bytes, which the %s index names at %zu, leaves its allocation",
                 s->lane, row, row_bytes, role, i);
    return SIZE_MAX;
}

static void run_move(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_move *m = &op->u.moved.args;
    for (size_t i = 0; i < m->rows; i++) {
        const size_t to = row_at(s, "destination", m->dst_index, i, m->dst_stride_bytes, m->row_bytes,
                                 op->u.moved.dst_room);
        const size_t from = row_at(s, "source", m->src_index, i, m->src_stride_bytes, m->row_bytes,
                                   op->u.moved.src_room);
        if (to == SIZE_MAX || from == SIZE_MAX) return;
        char *dst = (char *)m->dst + to;
        const char *src = (const char *)m->src + from;
        if (ha_host_overlap(dst, src, m->row_bytes)) {
            ha_host_fail(s->device, "move on %s: row %zu comes from %p and goes to %p, which overlap", s->lane, i,
                         (const void *)src, (void *)dst);
            return;
        }
        memcpy(dst, src, m->row_bytes);
    }
}

enum ha_status ha_host_move(struct ha_stream *s, const struct ha_device_move *args)
{
    static const struct ha_host_verb verb = { .name = "move", .kind = HA_SPAN_KERNEL, .run = run_move };
    struct ha_host_op op = { .verb = &verb, .u.moved.args = *args };
    size_t bytes;
    if (__builtin_mul_overflow(args->rows, args->row_bytes, &bytes))
        return ha_host_fail(s->device, "move on %s: %zu rows of %zu bytes", s->lane, args->rows, args->row_bytes);
    const size_t index_bytes = args->rows * sizeof *args->src_index, to = args->dst_index ? index_bytes : 0,
                 from = args->src_index ? index_bytes : 0;
    if (bytes == 0) op.u.moved.args.rows = 0;
    else if (!ha_host_kernel_operand(s, &op, "destination index", args->dst_index, to, to)
             || !ha_host_kernel_operand(s, &op, "source index", args->src_index, from, from)
             || !side(s, &op, "destination", args->dst, args->dst_stride_bytes, args->dst_index, &op.u.moved.dst_room)
             || !side(s, &op, "source", args->src, args->src_stride_bytes, args->src_index, &op.u.moved.src_room))
        return HA_ERROR;
    if (op.u.moved.args.rows > 1 && args->dst_stride_bytes < args->row_bytes)
        return ha_host_fail(s->device, "move on %s: rows of %zu bytes at stride %zu overlap", s->lane, args->row_bytes,
                            args->dst_stride_bytes);
    return ha_host_enqueue(s, &op);
}

/* ---- copies handed over in one call */

struct piece {
    char *dst;
    const char *src;
    size_t bytes;
};

static void run_pieces(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct piece *piece = op->array;
    for (size_t i = 0; i < op->u.pieces.count; i++) memcpy(piece[i].dst, piece[i].src, piece[i].bytes);
}

enum ha_status ha_host_copy_pieces(struct ha_stream *s, const struct ha_device_pieces *pieces, enum ha_direction dir)
{
    static const struct ha_host_verb verb[] = HA_HOST_COPIES("copy_pieces", run_pieces);
    struct ha_host_op op = { .verb = &verb[dir] };
    struct piece *array = calloc(pieces->count ? pieces->count : 1, sizeof *array);
    if (!array)
        return ha_host_fail(s->device, "%s on %s: no memory for %zu pieces", op.verb->name, s->lane, pieces->count);
    enum ha_status status = HA_OK;
    for (size_t i = 0; i < pieces->count && status == HA_OK; i++) {
        const struct piece p = { pieces->dst[i], pieces->src[i], pieces->bytes[i] };
        if (p.bytes == 0) continue;
        const struct ha_host_copy copy = { p.dst, p.src, p.bytes, p.bytes, p.bytes, 1 };
        status = ha_host_copy_fits(s, op.verb->name, &copy, dir);
        array[op.u.pieces.count++] = p;
        op.bytes += p.bytes;
    }
    op.array = array;
    op.array_bytes = op.u.pieces.count * sizeof *array;
    if (status == HA_OK) status = ha_host_enqueue(s, &op);
    free(array);
    return status;
}

/* ---- for measuring */

static void run_read(struct ha_stream *s, const struct ha_host_op *op)
{
    enum { LANES = 16 };
    const uint32_t *word = op->u.read.word;
    uint32_t sum[LANES] = { 0 }, total = 0;
    size_t i = 0;
    for (; i + LANES <= op->u.read.words; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++) sum[lane] += word[i + lane];
    for (; i < op->u.read.words; i++) total += word[i];
    for (size_t lane = 0; lane < LANES; lane++) total += sum[lane];
    *op->u.read.sum += total;
}

enum ha_status ha_host_read(struct ha_stream *s, const void *ptr, size_t bytes, uint32_t *sum)
{
    static const struct ha_host_verb verb = { .name = "read", .kind = HA_SPAN_KERNEL, .run = run_read };
    struct ha_host_op op = { .verb = &verb, .u.read = { ptr, bytes / sizeof(uint32_t), sum } };
    if (!ha_host_kernel_operand(s, &op, "source", ptr, bytes, bytes)
        || !ha_host_kernel_operand(s, &op, "sum", sum, sizeof *sum, 0))
        return HA_ERROR;
    if (bytes % sizeof(uint32_t) || (uintptr_t)ptr % sizeof(uint32_t))
        return ha_host_fail(s->device, "read on %s: %zu bytes at %p are no array of 32-bit words", s->lane, bytes, ptr);
    return ha_host_enqueue(s, &op);
}

/* A device that is busy needs no core of the host: most of a long spin sleeps, and the end of it is awake. */
static void run_spin(struct ha_stream *s, const struct ha_host_op *op)
{
    static const uint64_t nap_ns = 10000000, awake_ns = 1000000;
    const uint64_t begin = ha_now_ns();
    for (uint64_t took = 0; took < op->u.spin_ns && !ha_host_failed(s->device); took = ha_now_ns() - begin) {
        const uint64_t left = op->u.spin_ns - took;
        if (left > 2 * awake_ns) ha_sleep_ns(left - awake_ns < nap_ns ? left - awake_ns : nap_ns);
        else ha_host_relax();
    }
}

enum ha_status ha_host_spin(struct ha_stream *s, uint64_t ns)
{
    static const struct ha_host_verb verb = { .name = "spin", .kind = HA_SPAN_KERNEL, .run = run_spin };
    struct ha_host_op op = { .verb = &verb, .u.spin_ns = ns };
    return ha_host_enqueue(s, &op);
}

/* ---- CPU stores: this device's memory is the host's */

enum ha_status ha_host_map_device(struct ha_device *dev, void *ptr, size_t bytes, void **host, struct ha_why *why)
{
    enum ha_memory kind = HA_MEM_PINNED;
    const size_t room = ha_regions_room(&dev->memory.regions, ptr, &kind);
    if (room == 0 || kind != HA_MEM_DEVICE || bytes > room)
        return ha_why(why, HA_ERROR,
                      "host device: map_device: [%p, +%zu bytes) is not within an allocation of device memory", ptr,
                      bytes);
    *host = ptr;
    return HA_OK;
}

void ha_host_unmap_device(struct ha_device *dev, void *host)
{
    enum ha_memory kind = HA_MEM_PINNED;
    if (host && (ha_regions_room(&dev->memory.regions, host, &kind) == 0 || kind != HA_MEM_DEVICE))
        ha_host_fail(dev, "unmap_device: %p was not mapped, or its memory is freed", host);
}
