#ifndef HA_KERNELS_TEST_LAY_H
#define HA_KERNELS_TEST_LAY_H

/* The keys of an attention, laid as attend takes them: some packed, the rest in runs of rows, lists of units and of
 * blocks. */

#include "kernels/test_data.h"

struct ha_test_lay {
    struct ha_packed packed;
    struct ha_rows runs[HA_RUNS_MAX];
    size_t runs_count, block;
    void *blocks, *k, *v;
    uint32_t *units, *list;
};

/* Keys [0, packed) of kv go into packed blocks: in order where unit = 0, otherwise a list of units names them among
 * others and in any order, and one of them may be short. The next run[0] keys make a run, and so on; with block = 0
 * they stay where kv has them, otherwise an index names blocks of so many rows. Guarded; what is not named is NaN. */
void ha_test_lay_make(struct ha_test_lay *lay, const struct ha_test_kv *kv, size_t packed, size_t unit,
                      const size_t *run, size_t runs_count, size_t block, uint64_t seed);
void ha_test_lay_free(struct ha_test_lay *lay);
/* a has everything but keys: packed keys, runs and the size of their blocks */
void ha_test_lay_use(const struct ha_test_lay *lay, struct ha_attend *a);

/* attend by parts of whole multiples of HA_SPLIT_KEYS, any of [1, most] of them each, and a join */
void ha_test_attend_parts(const struct ha_kernels *t, const struct ha_attend *a, size_t keys, size_t most,
                          uint64_t seed);

#endif
