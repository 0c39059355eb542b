#ifndef HA_WORKLOAD_H
#define HA_WORKLOAD_H

/* The data of a case in host memory: K and V of all layers with the new tokens of all steps,
 * generated once, and the inputs of each step. Every pass of every variant reads these bytes. */

#include "suites/variants/case.h"
#include "harness/api/dataset.h"
#include "harness/api/variant.h"

struct ha_arena;
struct ha_pool;

struct ha_workload {
    struct ha_shape shape, asked; /* as the dataset completed it; as the case has it */
    size_t cap;                   /* tokens of the longest sequence after the last step */
    uint64_t seed;
    char name[256]; /* dataset, with its file */
    const struct ha_dataset *dataset;
    struct ha_source *source;
    struct ha_arena *arena; /* NULL until filled */
    void **k, **v;          /* [layers][batch] -> [kv_heads][cap][head_dim] */
    float **q;              /* [layers][batch]: the observed queries */
};

/* Opens the dataset: the shape is complete then, and nothing large is allocated. */
enum ha_status ha_workload_open(struct ha_workload **workload, const struct ha_case *c, struct ha_why *why);
enum ha_status ha_workload_fill(struct ha_workload *workload, struct ha_pool *pool, struct ha_why *why);
bool ha_workload_serves(const struct ha_workload *workload, const struct ha_case *c);
void ha_workload_close(struct ha_workload *workload); /* NULL: nothing */

/* Tokens of sequence b before step `step`. */
size_t ha_workload_tokens(const struct ha_workload *workload, size_t b, size_t step);

/* The context of one layer of a filled workload. */
struct ha_prefill ha_workload_prefill(const struct ha_workload *workload, size_t layer);

/* Where the inputs of one layer of one step lie in a block of bytes, and its outputs in another;
 * layouts as in ha_step. */
struct ha_io {
    size_t q, k, v, x, in_bytes;
    size_t o, lse, out_bytes;
    bool has_x;
};
struct ha_io ha_workload_io(const struct ha_workload *workload);
/* the inputs of all layers of a step, by the pool: [layers][in_bytes] */
void ha_workload_step(const struct ha_workload *workload, size_t step, struct ha_pool *pool, const struct ha_io *io,
                      unsigned char *blocks);

#endif
