#include "suites/device/path.h"

#include "harness/base/why.h"

#include <string.h>

enum ha_status ha_op_path_make(struct ha_op_stage *s, struct ha_op_path *p, size_t bytes)
{
    p->bytes = s->of ? s->most : bytes < s->most ? bytes : s->most;
    p->x = ha_op_block(s, HA_OP_PINNED, p->bytes);
    p->there = p->x ? ha_op_block(s, HA_OP_DEVICE, p->bytes) : NULL;
    p->out = p->there ? ha_op_block(s, HA_OP_PINNED, p->bytes) : NULL;
    return p->out ? ha_op_path_fill(s, p) : HA_ERROR;
}
enum ha_status ha_op_path_large(struct ha_op_stage *s, struct ha_op_path *p) { return ha_op_path_make(s, p, 4 << 20); }
enum ha_status ha_op_path_fill(struct ha_op_stage *s, struct ha_op_path *p)
{
    HA_TRY(ha_op_fill(s, p->x, 0, p->bytes));
    HA_TRY(ha_op_fill(s, p->there, 0, p->bytes));
    return ha_op_fill(s, p->out, 0, p->bytes);
}

enum ha_status ha_op_path_up(struct ha_op_stage *s, struct ha_op_path *p, struct ha_stream *on)
{
    memcpy(p->there->image, p->x->image, p->bytes);
    HA_OP(s, copy, on, p->there->at, p->x->at, p->bytes, HA_H2D);
    return HA_OK;
}

enum ha_status ha_op_path_down(struct ha_op_stage *s, struct ha_op_path *p, struct ha_stream *on)
{
    memcpy(p->out->image, p->there->image, p->bytes);
    HA_OP(s, copy, on, p->out->at, p->there->at, p->bytes, HA_D2H);
    return HA_OK;
}

enum ha_status ha_op_path_round(struct ha_op_stage *s, struct ha_op_path *p, struct ha_stream *on, const char *what)
{
    HA_TRY(ha_op_path_up(s, p, on));
    HA_TRY(ha_op_path_down(s, p, on));
    HA_OP(s, stream_sync, on);
    return ha_op_path_judge(s, p, what);
}

enum ha_status ha_op_path_across(struct ha_op_stage *s, enum ha_status (*order)(struct ha_op_stage *s, void *arg),
                                 void *arg, const char *what)
{
    struct ha_op_path p;
    HA_TRY(ha_op_path_large(s, &p));
    HA_TRY(ha_op_shut(s, s->stream[0]));
    HA_TRY(ha_op_path_up(s, &p, s->stream[0]));
    HA_TRY(order(s, arg));
    HA_TRY(ha_op_path_down(s, &p, s->stream[1]));
    HA_TRY(ha_op_hold(s));
    ha_op_open(s);
    HA_OP(s, stream_sync, s->stream[1]);
    return ha_op_path_judge(s, &p, what);
}

enum ha_status ha_op_path_judge(struct ha_op_stage *s, const struct ha_op_path *p, const char *what)
{
    return ha_op_judge(s, p->out, 0, p->bytes, "%s", what);
}

enum ha_status ha_op_flag_make(struct ha_op_stage *s, uint32_t **flag)
{
    struct ha_op_block *b = ha_op_block(s, HA_OP_MAPPED, sizeof **flag);
    if (!b) return HA_ERROR;
    *flag = (uint32_t *)(void *)b->at;
    __atomic_store_n(*flag, 0, __ATOMIC_RELEASE);
    return HA_OK;
}
