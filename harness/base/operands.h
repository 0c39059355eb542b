#ifndef HA_BASE_OPERANDS_H
#define HA_BASE_OPERANDS_H

/* Which bytes an operation reads and writes, from its arguments alone. Exact, but for the reads through an index that
 * lies on a device: those are the whole allocation. */

#include "harness/api/device.h"
#include "harness/base/order.h"

/* Called once for each operand; role is static: "o", "K". */
typedef void ha_operand_fn(void *arg, const char *role, enum ha_access access, struct ha_range range);

/* The operations of a device whose arguments are one struct: X(entry of the table, struct, visitor without its prefix).
 */
#define HA_OPERATIONS(X)                                         \
    X(attend, ha_device_attend, attend)                          \
    X(attend_products, ha_device_attend, attend)                 \
    X(merge, ha_merge, merge)                                    \
    X(blend, ha_device_blend, blend)                             \
    X(product, ha_device_product, product)                       \
    X(move, ha_device_move, move)                                \
    X(digest, ha_device_digest, device_digest)                   \
    X(digest_score, ha_device_digest_score, device_digest_score) \
    X(topk, ha_device_topk, device_topk)                         \
    X(split, ha_device_split, device_split)                      \
    X(rotate, ha_device_rotate, device_rotate)                   \
    X(columns, ha_device_columns, device_columns)                \
    X(score, ha_device_score, device_score)                      \
    X(features, ha_device_features, device_features)             \
    X(net, ha_net, device_net)                                   \
    X(hash, ha_device_hash, device_hash)                         \
    X(hamming, ha_device_hamming, device_hamming)                \
    X(similarity, ha_device_similarity, device_similarity)       \
    X(pq_encode, ha_device_pq_encode, device_pq_encode)          \
    X(pq_table, ha_device_pq_table, device_pq_table)             \
    X(pq_score, ha_device_pq_score, device_pq_score)             \
    X(softmax, ha_device_softmax, device_softmax)                \
    X(topp, ha_device_topp, device_topp)                         \
    X(weighted_sum, ha_device_weighted_sum, device_weighted_sum)

void ha_operands_copy(const struct ha_device_pieces *pieces, ha_operand_fn *fn, void *arg);
void ha_operands_copy_2d(void *dst, size_t dst_stride, const void *src, size_t src_stride, size_t row_bytes,
                         size_t rows, ha_operand_fn *fn, void *arg);
void ha_operands_attend(const struct ha_device_attend *a, ha_operand_fn *fn, void *arg);
void ha_operands_merge(const struct ha_merge *m, ha_operand_fn *fn, void *arg);
void ha_operands_blend(const struct ha_device_blend *b, ha_operand_fn *fn, void *arg);
void ha_operands_move(const struct ha_device_move *m, ha_operand_fn *fn, void *arg);
void ha_operands_product(const struct ha_device_product *p, ha_operand_fn *fn, void *arg);
void ha_operands_device_digest(const struct ha_device_digest *d, ha_operand_fn *fn, void *arg);
void ha_operands_device_digest_score(const struct ha_device_digest_score *d, ha_operand_fn *fn, void *arg);
void ha_operands_device_topk(const struct ha_device_topk *t, ha_operand_fn *fn, void *arg);
void ha_operands_device_split(const struct ha_device_split *d, ha_operand_fn *fn, void *arg);
void ha_operands_device_rotate(const struct ha_device_rotate *r, ha_operand_fn *fn, void *arg);
void ha_operands_device_columns(const struct ha_device_columns *c, ha_operand_fn *fn, void *arg);
void ha_operands_device_score(const struct ha_device_score *d, ha_operand_fn *fn, void *arg);
void ha_operands_device_features(const struct ha_device_features *f, ha_operand_fn *fn, void *arg);
void ha_operands_device_net(const struct ha_net *n, ha_operand_fn *fn, void *arg); /* its scratch is the device's */
void ha_operands_device_hash(const struct ha_device_hash *h, ha_operand_fn *fn, void *arg);
void ha_operands_device_hamming(const struct ha_device_hamming *h, ha_operand_fn *fn, void *arg);
void ha_operands_device_similarity(const struct ha_device_similarity *d, ha_operand_fn *fn, void *arg);
void ha_operands_device_pq_encode(const struct ha_device_pq_encode *e, ha_operand_fn *fn, void *arg);
void ha_operands_device_pq_table(const struct ha_device_pq_table *t, ha_operand_fn *fn, void *arg);
void ha_operands_device_pq_score(const struct ha_device_pq_score *d, ha_operand_fn *fn, void *arg);
void ha_operands_device_softmax(const struct ha_device_softmax *d, ha_operand_fn *fn, void *arg);
void ha_operands_device_topp(const struct ha_device_topp *t, ha_operand_fn *fn, void *arg);
void ha_operands_device_weighted_sum(const struct ha_device_weighted_sum *d, ha_operand_fn *fn, void *arg);

/* of the CPU's kernels */
void ha_operands_cpu_attend(const struct ha_attend *a, ha_operand_fn *fn, void *arg);
void ha_operands_pack(const struct ha_pack *p, ha_operand_fn *fn, void *arg);
void ha_operands_unpack(const struct ha_unpack *u, ha_operand_fn *fn, void *arg);
void ha_operands_digest(const struct ha_digest *d, ha_operand_fn *fn, void *arg);
void ha_operands_score(const struct ha_score *s, ha_operand_fn *fn, void *arg);
void ha_operands_digest_score(const struct ha_digest_score *s, ha_operand_fn *fn, void *arg);
void ha_operands_hash(const struct ha_hash *h, ha_operand_fn *fn, void *arg);
void ha_operands_hamming(const struct ha_hamming *h, ha_operand_fn *fn, void *arg);
void ha_operands_pq_encode(const struct ha_pq_encode *e, ha_operand_fn *fn, void *arg);
void ha_operands_pq_table(const struct ha_pq_table *t, ha_operand_fn *fn, void *arg);
void ha_operands_pq_score(const struct ha_pq_score *s, ha_operand_fn *fn, void *arg);
void ha_operands_softmax(const struct ha_softmax *s, ha_operand_fn *fn, void *arg);
void ha_operands_topp(const struct ha_topp *t, ha_operand_fn *fn, void *arg);
void ha_operands_weighted_sum(const struct ha_weighted_sum *s, ha_operand_fn *fn, void *arg);
void ha_operands_net(const struct ha_net *n, ha_operand_fn *fn, void *arg);

#endif
