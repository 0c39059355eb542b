/* The covering list of an operation: a section as a suite file has it, of which every case is judged on one stage. */

#include "suites/device/point.h"

#include "harness/base/why.h"
#include "harness/engine/point.h"
#include "harness/engine/suite_file.h"

#include <stdio.h>
#include <string.h>

#define COST_MOST 0.003 /* of a case */
enum { WHOLE_BYTES = 1 << 20 };

bool ha_op_section(const struct ha_op *op, char *out, size_t size)
{
    return op->pairs
           && snprintf(out, size, "[%s]\nsuite = device\ncover = pairs\ncost = %g\nop = %s\ncases = one\n%s", op->name,
                       COST_MOST, op->name, op->pairs)
                  < (int)size;
}

struct covering {
    struct ha_op_stage *stage;
    const struct ha_suite *suite;
    const struct ha_op_point *asked;
};

/* It draws what the same case alone does, and its id, which runs it again, goes before what is wrong. */
static enum ha_status judge_point(void *arg, const struct ha_suite *suite, void *point, struct ha_why *why)
{
    const struct covering *c = arg;
    struct ha_op_stage *s = c->stage;
    struct ha_op_point *p = point;
    char id[HA_ID_MAX];
    /* who asks for small copies gets the cheaper cases */
    if (s->most < WHOLE_BYTES && ha_op_cost(p) > COST_MOST * (double)s->most / WHOLE_BYTES) return HA_OK;
    memcpy(p->device, c->asked->device, sizeof p->device);
    p->isa = c->asked->isa;
    p->seed = c->asked->seed;
    s->of = &p->of;
    s->drawn = 0;
    const enum ha_status status = ha_ops[p->op]->once(s, s->of);
    s->of = NULL;
    if (status == HA_OK || status == HA_WAIVED) return HA_OK; /* the device has no such head_dim, type, ... */
    ha_point_print(suite, p, id, sizeof id);
    return ha_why_prefix(why, status, "'%.300s'", id);
}

static enum ha_status judge_section(void *arg, const struct ha_file_section *f, struct ha_why *why)
{
    const struct covering *c = arg;
    struct ha_pairs *pairs;
    HA_TRY(ha_pairs_create(&pairs, c->suite, &f->keys, why));
    const enum ha_status status = ha_pairs_expand(pairs, judge_point, arg, why);
    ha_pairs_destroy(pairs);
    return status;
}

enum ha_status ha_op_cover(struct ha_op_stage *stage, const struct ha_suite *suite, const struct ha_op_point *asked,
                           struct ha_why *why)
{
    char text[HA_OP_SECTION_MAX];
    struct covering c = { stage, suite, asked };
    return ha_op_section(ha_ops[asked->op], text, sizeof text)
               ? ha_suite_file_parse(ha_ops[asked->op]->name, text, judge_section, &c, why)
               : HA_OK;
}
