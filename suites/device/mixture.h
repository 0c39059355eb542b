#ifndef HA_DEVICE_SUITE_MIXTURE_H
#define HA_DEVICE_SUITE_MIXTURE_H

/* Steps that are drawn: copies in every form, moves and host functions between blocks of every kind of memory. Done one
 * after the other on any streams, or from a graph, they leave what plain C leaves in the images. */

#include "suites/device/stage.h"

enum { HA_OP_MIX_BLOCKS = 7, HA_OP_MIX_ROWS = 20 };

struct ha_op_mix {
    struct ha_op_block *block[HA_OP_MIX_BLOCKS];
    struct ha_op_block *down; /* mapped: numbers that count down, an index of moves; NULL: there are none */
    size_t bytes;             /* of a block */
};

enum ha_op_step_kind { HA_OP_COPY, HA_OP_COPY_2D, HA_OP_PIECES, HA_OP_MOVE, HA_OP_HOST_FN, HA_OP_STEP_KINDS };
struct ha_op_step {
    const struct ha_op_mix *mix;
    enum ha_op_step_kind kind;
    size_t to, from; /* blocks */
    size_t dst, src, dst_stride, src_stride, width, rows;
};

enum ha_status ha_op_mix_make(struct ha_op_stage *stage, struct ha_op_mix *mix, size_t bytes);
enum ha_status ha_op_mix_fill(struct ha_op_stage *stage, const struct ha_op_mix *mix);
/* pinned: without pageable memory, which a graph may not know */
struct ha_op_step ha_op_mix_draw(struct ha_op_stage *stage, const struct ha_op_mix *mix, bool pinned);
/* The step lives until the stream has done it. */
enum ha_status ha_op_mix_enqueue(struct ha_op_stage *stage, struct ha_op_step *step, struct ha_stream *stream);
/* in the images */
void ha_op_mix_apply(const struct ha_op_step *step);
enum ha_status ha_op_mix_judge(struct ha_op_stage *stage, const struct ha_op_mix *mix, const char *what);

#endif
