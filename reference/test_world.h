#ifndef HA_REFERENCE_TEST_WORLD_H
#define HA_REFERENCE_TEST_WORLD_H

/* A world that a definition can be worked through by hand: head_dim 1, scale 1, key j of a sequence ln of
 * its weight. A query of 1 then attends in proportion to the weights, one of 0 evenly, one of -1 in
 * proportion to their inverses. */

#include "harness/api/reference.h"

#include "harness/base/test.h"

#include <math.h>

extern const struct ha_definition ha_definition_resident, ha_definition_bmm, ha_definition_offload, ha_definition_cpu,
    ha_definition_streaming, ha_definition_h2o, ha_definition_hgca, ha_definition_quest, ha_definition_topk,
    ha_definition_gpu_only, ha_definition_scout, ha_definition_hybrid_fixed;

enum { HA_TEST_TOKENS = 32, HA_TEST_HEADS = 4, HA_TEST_BATCH = 2, HA_TEST_UNITS = HA_TEST_BATCH * HA_TEST_HEADS };

struct ha_test_world {
    const struct ha_definition *definition;
    const double *param;
    struct ha_shape shape;
    float key[HA_TEST_BATCH][HA_TEST_HEADS][HA_TEST_TOKENS];
    const float *seen; /* [batch][observed][q_heads] the queries at prefill */
};

/* What a variant says that one head used: tokens ending in -1, the last `padding` of them padding. */
struct ha_test_part {
    int token[HA_TEST_TOKENS];
    size_t padding;
};
struct ha_test_report {
    struct ha_test_part device, host;
    struct ha_note note[2]; /* without a name: not said */
};
#define PADDED(count, ...)                             \
    {                                                  \
        .token = { __VA_ARGS__, -1 }, .padding = count \
    }
#define KEYS(...) PADDED(0, __VA_ARGS__)
#define NONE            \
    {                   \
        .token = { -1 } \
    }
#define SPLIT(device, host)  \
    {                        \
        device, host,        \
        {                    \
            {                \
                .name = NULL \
            }                \
        }                    \
    }
#define DEVICE(...)  SPLIT(KEYS(__VA_ARGS__), NONE)
#define REPORTS(...) ((const struct ha_test_report[]){ __VA_ARGS__ })

struct ha_test_step {
    size_t q_len;
    float q[HA_TEST_UNITS * 4];                  /* [batch][q_len][q_heads] */
    struct ha_test_report report[HA_TEST_UNITS]; /* [batch][q_heads] */
};

/* One sequence and head, and one observed query; the shape is the test's to change. WEIGHTS(array): of the first tokens
 * of every sequence and KV head, the others have 1; EVEN: all have. seen: SEEN(...), or NULL: observed queries of 0. */
struct ha_test_world ha_test_world(const struct ha_definition *d, const double *param, size_t ctx, const double *weight,
                                   size_t count, const float *seen);
#define WEIGHTS(array) array, COUNT(array)
#define EVEN           NULL, 0
#define SEEN(...)      ((const float[]){ __VA_ARGS__ })

/* Prefill and steps; fails the test where one of them is not HA_OK. */
void ha_test_accept(const struct ha_test_world *w, const struct ha_test_step *step, size_t steps);
/* The same with another report in the last step: its verdict. */
enum ha_status ha_test_other(const struct ha_test_world *w, const struct ha_test_step *step, size_t steps,
                             const struct ha_test_report *last, struct ha_why *why);
/* and fails the test where that is not HA_FAIL with a reason that has `text` in it */
void ha_test_reject(const struct ha_test_world *w, const struct ha_test_step *step, size_t steps,
                    const struct ha_test_report *last, const char *text);

#endif
