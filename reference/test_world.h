#ifndef HA_REFERENCE_TEST_WORLD_H
#define HA_REFERENCE_TEST_WORLD_H

/* A world that a definition can be worked through by hand: head_dim 1, scale 1, key j of a sequence ln of
 * its weight. A query of 1 then attends in proportion to the weights, one of 0 evenly, one of -1 in
 * proportion to their inverses. */

#include "harness/api/reference.h"

enum { HA_TEST_TOKENS = 32, HA_TEST_HEADS = 4, HA_TEST_BATCH = 2 };

struct ha_test_world {
    struct ha_shape shape; /* layers, batch, q_heads, kv_heads, ctx, observed are the test's */
    float key[HA_TEST_BATCH][HA_TEST_HEADS][HA_TEST_TOKENS];
    size_t tokens[HA_TEST_BATCH];
};

/* What a variant says that one head used: a list of tokens ending in -1, the last `padding` of them padding. */
struct ha_test_part {
    int token[HA_TEST_TOKENS];
    size_t padding;
};
struct ha_test_report {
    struct ha_test_part device, host;
};

struct ha_test_world ha_test_world(size_t batch, size_t q_heads, size_t kv_heads, size_t ctx, size_t observed);
/* weights of all tokens of a sequence, for every KV head */
void ha_test_world_weights(struct ha_test_world *w, size_t seq, const double *weight, size_t count);

struct ha_def *ha_test_create(const struct ha_definition *d, const struct ha_test_world *w, const double *param,
                              size_t threads);
/* q: [batch][observed][q_heads], one observed count for all sequences */
void ha_test_prefill(const struct ha_definition *d, struct ha_def *def, struct ha_test_world *w, const float *q);
/* Adds q_len tokens to each sequence and asks for the verdict. q: [batch][q_len][q_heads]; report: [batch][q_heads] */
enum ha_status ha_test_step(const struct ha_definition *d, struct ha_def *def, struct ha_test_world *w, size_t q_len,
                            const float *q, const struct ha_test_report *report, struct ha_why *why);

#endif
