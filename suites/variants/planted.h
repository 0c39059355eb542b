#ifndef HA_PLANTED_H
#define HA_PLANTED_H

/* What the groups of defects share: the tables as they were before a defect was planted, defects that are planted in
 * several variants, and the lists of the groups, one file each. */

#include "suites/variants/movement.h"
#include "suites/variants/mutants.h"

/* Memory for arguments that a defect puts in place of the real ones. */
struct ha_mutant_room {
    struct ha_rows runs[HA_RUNS_MAX];
    float k[HA_PACK_DIM_MAX], v[HA_PACK_DIM_MAX];
    uint32_t index[64];
};

struct ha_mutants {
    const struct ha_mutant *of;
    size_t count;
};
extern const struct ha_mutants ha_mutants_attention, ha_mutants_blocks, ha_mutants_counts, ha_mutants_fluxion,
    ha_mutants_infinigen, ha_mutants_scout;

extern const struct ha_mutants ha_mutants_lru, ha_mutants_clo, ha_mutants_recency, ha_mutants_pq;

/* As they were handed to ha_mutant_plant last. */
const struct ha_kernels *ha_planted_cpu(void);
const struct ha_device_api *ha_planted_device(void);
/* the step that runs */
size_t ha_planted_step(void);

/* From the second step on the outputs stay what they were. */
void ha_planted_stale(struct ha_attend *a, struct ha_mutant_room *room);
void ha_planted_pack_short(const struct ha_pack *p);
/* the candidates before those of largest score; those of the first step */
void ha_planted_topk_one_off(const struct ha_topk *args);
void ha_planted_topk_once(const struct ha_topk *args);
/* of the first run the last key, once more; every head reads the list of the first one */
enum ha_status ha_planted_counts_twice(struct ha_stream *stream, const struct ha_device_attend *args);
enum ha_status ha_planted_first_list(struct ha_stream *stream, const struct ha_device_attend *args);
/* the digests that the prefill left; later blocks have what was there */
enum ha_status ha_planted_digest_once(struct ha_stream *stream, const struct ha_device_digest *args);
enum ha_status ha_planted_choose_once(struct ha_stream *stream, const struct ha_device_topk *args);
enum ha_status ha_planted_unrotated(struct ha_stream *stream, const struct ha_device_rotate *args);
/* by W_Q of the layer that was predicted before */
enum ha_status ha_planted_other_projection(struct ha_stream *stream, const struct ha_device_product *args);
/* from the second step on by that of the layer behind it; what is known of layers is forgotten */
enum ha_status ha_planted_product_behind(struct ha_stream *stream, const struct ha_device_product *args);
void ha_planted_forget_products(void);
/* a product too long, as of an input that was not divided by its root mean square */
enum ha_status ha_planted_unnormed(struct ha_stream *stream, const struct ha_device_product *args);
enum ha_status ha_planted_fetch_once(struct ha_stream *stream, const struct ha_device_pieces *pieces,
                                     enum ha_direction dir);

/* of a single layer of what suites/parts/frame moves, in the order in which they are made */
enum { HA_ATTENDED = 1 << 0, HA_SETTLED = 1 << 1, HA_ARRIVED = 1 << 2 };
/* an entry of a defect of movement that `check --order` sees */
#define HA_MOVES(name, breaks, id, seen_in, ...)                                                                      \
    {                                                                                                                 \
        name, breaks, id, .shown = "order: ", .order = true, .seen = seen_in, .movement = &(const struct ha_movement) \
        {                                                                                                             \
            __VA_ARGS__                                                                                               \
        }                                                                                                             \
    }

#endif
