#ifndef HA_CASE_H
#define HA_CASE_H

#include "harness/api/case.h"
#include "harness/api/variant.h"

/* A key of a case: name, default, how it reads and prints. One table serves the command line,
 * suite files, ids and `habench list`. Keys: device, dataset, ctx (tokens; lengths of a batch
 * joined by '+': 1000+3000), batch, q_len, steps, observed, layers, heads (q_heads/kv_heads: 32/8),
 * head_dim, model_dim, dtype (f32|f16|bf16), seed, threads; then the variant's own params. */

enum ha_status ha_case_parse(const char *id, struct ha_case *out, struct ha_why *why);
enum ha_status ha_case_set(struct ha_case *c, const char *key, const char *value, struct ha_why *why);
void ha_case_defaults(struct ha_case *c, const struct ha_variant *variant);
/* checks that the keys agree with each other (heads divide, lengths are not 0, ...) */
enum ha_status ha_case_validate(const struct ha_case *c, struct ha_why *why);
void ha_case_print(const struct ha_case *c, char out[HA_CASE_ID_MAX]);

#endif
