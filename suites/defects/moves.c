/* Copies, moves and reads that can be wrong. */

#include "suites/defects/wrong.h"

#include <stdlib.h>
#include <string.h>

#define BASE (*ha_wrong_base)

static unsigned moves;
static char *old; /* what a graph copied up when it was captured */

void ha_wrong_moves_begin(void)
{
    free(old);
    old = NULL;
}

static enum ha_status wrong_copy(struct ha_stream *s, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    if (IS(copy_tail_1M) && bytes > 1 << 20) bytes &= ~(size_t)4095;
    if (IS(copy_odd_tail) && bytes > 64) bytes &= ~(size_t)3;
    if (IS(copy_d2d_small) && dir == HA_D2D && bytes < 16) bytes = 0;
    if (IS(copy_misaligned)) dst = (char *)dst - (uintptr_t)dst % 4;
    if (IS(copy_beside) && dir == HA_D2H && bytes > 100 && (uintptr_t)src % 64) bytes |= 1;
    if (IS(copy_16M) && bytes > 16 << 20) bytes -= 64;
    if (IS(copy_back_64K) && dir == HA_D2H && bytes > 65536) {
        const enum ha_status status = BASE.copy(s, (char *)dst + 65536, src, bytes - 65536, dir);
        return status == HA_OK ? BASE.copy(s, dst, src, 65536, dir) : status;
    }
    if (IS(stream_engines) && dir == HA_D2H) {
        const enum ha_status status = BASE.copy(ha_wrong_stream(), dst, src, bytes, dir);
        return status == HA_OK ? BASE.stream_sync(ha_wrong_stream()) : status;
    }
    const bool captured = s == ha_wrong_capturing();
    if (IS(graph_old_data) && captured && dir == HA_H2D) {
        free(old); /* one block is enough */
        old = malloc(bytes);
        if (!old) return HA_ERROR;
        src = memcpy(old, src, bytes);
    }
    if (IS(graph_runs) && captured) memcpy(dst, src, bytes);
    const bool early = IS(copy_up_early)     ? dir == HA_H2D
                       : IS(copy_back_early) ? dir == HA_D2H
                                             : IS(copy_within_early) && dir == HA_D2D;
    const enum ha_status status = ha_wrong_over(early, BASE.copy(ha_wrong_early(early, s), dst, src, bytes, dir));
    return IS(copy_source) && dir == HA_D2D && bytes && status == HA_OK ? ha_wrong_count_up(s, src) : status;
}

static enum ha_status wrong_copy_2d(struct ha_stream *s, void *dst, size_t dst_stride, const void *src,
                                    size_t src_stride, size_t row_bytes, size_t rows, enum ha_direction dir)
{
    if (IS(copy_2d_last_row) && rows > 1) rows--;
    if (IS(copy_2d_rows_16)) rows &= 0xffff;
    if (IS(copy_2d_dense) && dst_stride == src_stride && rows > 1) {
        row_bytes += (rows - 1) * dst_stride;
        rows = 1;
    }
    const bool swap = IS(copy_2d_pitch), early = IS(copy_2d_early);
    return ha_wrong_over(early, BASE.copy_2d(ha_wrong_early(early, s), dst, swap ? src_stride : dst_stride, src,
                                             swap ? dst_stride : src_stride, row_bytes, rows, dir));
}

static void pieces_later(struct ha_wrong_later *l)
{
    const struct ha_device_pieces *p = &l->u.pieces;
    for (size_t i = 0; i < p->count; i++)
        if (p->bytes[i] && p->dst[i] && p->src[i]) memcpy(p->dst[i], p->src[i], p->bytes[i]);
}
static enum ha_status wrong_pieces(struct ha_stream *s, const struct ha_device_pieces *pieces, enum ha_direction dir)
{
    struct ha_device_pieces mine = *pieces;
    size_t *bytes = NULL;
    if (IS(pieces_last) && mine.count) mine.count--;
    if (IS(pieces_arguments)) {
        struct ha_wrong_later *l = ha_wrong_later(pieces_later, NULL, 0);
        l->u.pieces = mine;
        return ha_wrong_on(s, l);
    }
    if (IS(pieces_64K) && mine.count) {
        bytes = malloc(mine.count * sizeof *bytes);
        if (!bytes) return HA_ERROR;
        for (size_t i = 0; i < mine.count; i++) bytes[i] = mine.bytes[i] < 65536 ? mine.bytes[i] : 65536;
        mine.bytes = bytes;
    }
    const bool early = IS(pieces_early);
    const enum ha_status status = ha_wrong_over(early, BASE.copy_pieces(ha_wrong_early(early, s), &mine, dir));
    free(bytes);
    return status;
}

/* `was` has both indices as they were when the move was enqueued. */
static size_t row_of(const uint32_t *index, const uint32_t *was, size_t i)
{
    return !index ? i : IS(move_index_early) ? was[i] : IS(move_index_16) ? index[i] & 0xffff : index[i];
}
static void move_later(struct ha_wrong_later *l)
{
    const struct ha_device_move *m = &l->u.move;
    const uint32_t *const was = ha_wrong_copy(l);
    for (size_t i = 0; i < m->rows; i++) {
        const bool again = IS(move_repeated) && i && m->src_index && m->src_index[i] == m->src_index[i - 1];
        if (again) continue;
        memcpy((char *)m->dst + row_of(m->dst_index, was, i) * m->dst_stride_bytes,
               (const char *)m->src + row_of(m->src_index, was + m->rows, i) * m->src_stride_bytes, m->row_bytes);
    }
}
static enum ha_status wrong_move(struct ha_stream *s, const struct ha_device_move *args)
{
    struct ha_device_move m = *args;
    if (IS(move_last_index) && m.rows) m.rows--;
    if (IS(move_16)) m.rows &= 0xffff;
    if (IS(move_forgets) && ++moves % 30 == 0 && m.rows > 1) m.rows--;
    if (IS(move_words)) m.row_bytes &= ~(size_t)3;
    if (IS(move_index_aligned) && m.src_index) m.src_index -= (uintptr_t)m.src_index % 16 / sizeof *m.src_index;
    if (IS(move_src_aligned)) m.src = (const char *)m.src - (uintptr_t)m.src % 16;
    if (!IS(move_index_early) && !IS(move_index_16) && !IS(move_repeated))
        return ha_wrong_over(IS(move_early),
                             BASE.move(ha_wrong_aside(IS(move_unjoined), ha_wrong_early(IS(move_early), s)), &m));
    uint32_t *was = calloc(2 * m.rows + 1, sizeof *was);
    if (!was) return HA_ERROR;
    if (m.dst_index) memcpy(was, m.dst_index, m.rows * sizeof *was);
    if (m.src_index) memcpy(was + m.rows, m.src_index, m.rows * sizeof *was);
    struct ha_wrong_later *l = ha_wrong_later(move_later, was, 2 * m.rows * sizeof *was);
    free(was);
    l->u.move = m;
    return ha_wrong_on(s, l);
}

static void clear_later(struct ha_wrong_later *l) { *l->u.word = 0; }
static enum ha_status wrong_read(struct ha_stream *s, const void *ptr, size_t bytes, uint32_t *sum)
{
    if (IS(read_tail)) bytes &= ~(size_t)15;
    if (IS(read_sets)) {
        struct ha_wrong_later *l = ha_wrong_later(clear_later, NULL, 0);
        l->u.word = sum;
        if (ha_wrong_on(s, l) != HA_OK) return HA_ERROR;
    }
    if (IS(read_aligned)) ptr = (const char *)ptr - (uintptr_t)ptr % 16;
    return ha_wrong_over(IS(read_early), BASE.read(ha_wrong_early(IS(read_early), s), ptr, bytes, sum));
}

void ha_wrong_moves(struct ha_device_api *api)
{
    api->copy = wrong_copy;
    api->copy_2d = wrong_copy_2d;
    api->copy_pieces = wrong_pieces;
    api->move = wrong_move;
    api->read = wrong_read;
}
