#ifndef HA_DUMP_H
#define HA_DUMP_H

/* One safetensors file for each case, holding its first step, so that a verdict can be audited
 * without this program. Names are layerL.seqS.WHAT:
 *   q      F32 [q_len][q_heads][head_dim]
 *   k, v   F32 F16 BF16 [kv_heads][tokens][head_dim], the new tokens included
 *   out    F32 [q_len][q_heads][head_dim]     lse  F32 [q_len][q_heads]
 *   token  I32 [n]: the keys used, ascending within a part, parts and heads after one another
 *   offset I32 [q_heads][parts + 1]: part p of head h is token[offset[h,p] : offset[h,p+1]]
 * and the metadata are the case's id, its scale and the KV heads. With numpy:
 *   n = offset[h, -1]; t = token[offset[h, 0]:n]; s = scale * k[h // group][t] @ q[0, h]
 *   out[0, h] == softmax(s) @ v[h // group][t];  lse[0, h] == logsumexp(s) */

#include "suites/variants/check.h"

struct ha_dump {              /* empty: zeroed */
    struct ha_tensor *tensor; /* name and data are the dump's */
    size_t count, capacity;
};

/* one layer of one sequence; copies what it needs */
enum ha_status ha_dump_sequence(struct ha_dump *dump, const struct ha_pass *pass, const struct ha_chosen *chosen,
                                size_t layer, size_t seq, struct ha_why *why);
/* writes folder/ID.safetensors, in which every byte of the id that is not a letter, digit, '.', '-' or '_' is '_' */
enum ha_status ha_dump_write(const struct ha_dump *dump, const char *folder, const char *id,
                             const struct ha_shape *shape, struct ha_why *why);
void ha_dump_free(struct ha_dump *dump);

#endif
