#ifndef HA_DEVICE_SUITE_POINT_H
#define HA_DEVICE_SUITE_POINT_H

/* What can be asked of the suite: an operation with its list of cases, or with one case of it, whose sizes, places and
 * types are keys. */

#include "harness/api/suite.h"
#include "suites/device/stage.h"

struct ha_op_point {
    size_t op;
    size_t one; /* 0: the listed cases, 1: the one that follows */
    uint64_t bytes, repeat;
    char device[256];
    size_t isa; /* 0: the best, i: table i - 1 of the registry */
    uint64_t seed;
    struct ha_op_case of;
};

enum { HA_OP_KEYS = 81 };
extern const struct ha_key ha_op_keys[HA_OP_KEYS];
extern const struct ha_op *const ha_ops[];
extern const size_t ha_ops_count;

/* hooks of the suite */
bool ha_op_uses(const void *point, size_t key);
enum ha_status ha_op_settle(void *point, struct ha_why *why);
double ha_op_cost(const void *point);

/* A list of cases of an operation in which each two values meet (cover.c), as a section of a suite file. false: it has
 * none. */
enum { HA_OP_SECTION_MAX = 8192 };
bool ha_op_section(const struct ha_op *op, char *out, size_t size);
/* Judges all of them. suite: this one. asked: of which device and seed, and of which operation */
enum ha_status ha_op_cover(struct ha_op_stage *stage, const struct ha_suite *suite, const struct ha_op_point *asked,
                           struct ha_why *why);

#endif
