#ifndef HA_MUTANTS_H
#define HA_MUTANTS_H

/* Planted defects: a suite that does not see these does not check anything. Each is a shim over
 * the tables that a variant is handed, or over its own; no variant knows of them. */

#include "harness/api/device.h"
#include "harness/api/kernels.h"
#include "harness/api/variant.h"

struct ha_block_policy; /* harness/base/block_list.h */
struct ha_movement;     /* suites/variants/movement.h */
struct ha_mutant_room;  /* suites/variants/planted.h */

struct ha_mutant {
    const char *name, *breaks;
    const char *id; /* the case that exposes it */
    /* NULL: left as it is. ask changes the arguments of the CPU's attention, answer its results. */
    void (*ask)(struct ha_attend *a, struct ha_mutant_room *room);
    void (*answer)(const struct ha_attend *a);
    void (*pack)(const struct ha_pack *p);
    void (*digest)(const struct ha_digest *d);
    void (*digest_score)(const struct ha_digest_score *s);
    void (*topk)(const struct ha_topk *t);
    void (*weighted_sum)(const struct ha_weighted_sum *w);
    enum ha_status (*device_attend)(struct ha_stream *stream, const struct ha_device_attend *args);
    enum ha_status (*merge)(struct ha_stream *stream, const struct ha_merge *args);
    enum ha_status (*device_digest)(struct ha_stream *, const struct ha_device_digest *);
    enum ha_status (*device_topk)(struct ha_stream *, const struct ha_device_topk *);
    enum ha_status (*device_rotate)(struct ha_stream *, const struct ha_device_rotate *);
    enum ha_status (*device_product)(struct ha_stream *, const struct ha_device_product *);
    enum ha_status (*copy)(struct ha_stream *, void *dst, const void *src, size_t bytes, enum ha_direction);
    enum ha_status (*device_columns)(struct ha_stream *, const struct ha_device_columns *);
    enum ha_status (*device_features)(struct ha_stream *, const struct ha_device_features *);
    enum ha_status (*device_net)(struct ha_stream *, const struct ha_net *);
    enum ha_status (*device_hash)(struct ha_stream *, const struct ha_device_hash *);
    enum ha_status (*device_hamming)(struct ha_stream *, const struct ha_device_hamming *);
    enum ha_status (*device_similarity)(struct ha_stream *, const struct ha_device_similarity *);
    enum ha_status (*device_score)(struct ha_stream *, const struct ha_device_score *);
    enum ha_status (*device_split)(struct ha_stream *, const struct ha_device_split *);
    enum ha_status (*device_pq_encode)(struct ha_stream *, const struct ha_device_pq_encode *);
    enum ha_status (*device_pq_table)(struct ha_stream *, const struct ha_device_pq_table *);
    enum ha_status (*device_pq_score)(struct ha_stream *, const struct ha_device_pq_score *);
    enum ha_status (*device_topp)(struct ha_stream *, const struct ha_device_topp *);
    enum ha_status (*copy_pieces)(struct ha_stream *, const struct ha_device_pieces *, enum ha_direction);
    enum ha_status (*flag_write)(struct ha_stream *, uint32_t *flag, uint32_t value);
    enum ha_status (*flag_wait)(struct ha_stream *, const uint32_t *flag, uint32_t at_least);
    enum ha_status (*device_move)(struct ha_stream *, const struct ha_device_move *);
    const struct ha_block_policy *lists; /* NULL, or [HA_BLOCK_POLICIES]: how lists of blocks are kept */
    /* the variant is made with one less of this option than the case says, or with one more, and the definition with
     * what the case says */
    const char *one_less, *one_more;
    /* NULL, or what the variant counts 1% too much of: a column; a number of the last layer. Or what it counts not at
     * all there. */
    const char *wrong_column, *wrong_count, *no_count;
    void (*forget)(void);               /* NULL, or drops what an earlier run left in the defect */
    const char *shown;                  /* NULL, or what the failure must speak of */
    const struct ha_movement *movement; /* NULL, or how what moves is wrong */
    bool order;                         /* judged as by `check --order` */
    const char *seen;                   /* of movement: in which public threads, or empty */
};
/* NULL: there are no more. */
const struct ha_mutant *ha_mutant_at(size_t i);
/* NULL: none of this name. */
const struct ha_mutant *ha_mutant_find(const char *name);

/* Replaces what the defect breaks in the tables that a variant gets. *api may be replaced; both stay valid until the
 * next call. NULL: no defect. */
void ha_mutant_plant(const struct ha_mutant *mutant, struct ha_kernels *kernels, const struct ha_device_api **api);
/* The variant as the defect leaves it: itself, or a copy that is valid until the next call. */
const struct ha_variant *ha_mutant_variant(const struct ha_mutant *mutant, const struct ha_variant *variant);
/* the step that runs next: some defects begin with the second */
void ha_mutant_step(size_t step);

#endif
