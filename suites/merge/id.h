#ifndef HA_MERGE_ID_H
#define HA_MERGE_ID_H

/* One merge, one string: lse_merge:case=NAME,by=avx2,form=base2,dtype=f16,head_dim=80,states=7,order=chain,
 * alias=first,layout=padded,rows=3x4,seed=4,row=2. What it leaves out is every value of that axis; a failure prints
 * all. */

#include "suites/merge/batch.h"

struct ha_merge_id {
    char what[64]; /* the name of a case, or "random"; "": all */
    char by[64];   /* the subject; "": all */
    unsigned set;  /* bits of enum ha_merge_key: which of the following the id names */
    struct ha_merge_shape shape;
    uint64_t seed;
    size_t row;
};
enum ha_merge_key {
    HA_KEY_FORM,
    HA_KEY_DTYPE,
    HA_KEY_DIM,
    HA_KEY_STATES,
    HA_KEY_ORDER,
    HA_KEY_ALIAS,
    HA_KEY_LAYOUT,
    HA_KEY_ROWS,
    HA_KEY_SEED,
    HA_KEY_ROW
};

enum { HA_MERGE_ID_MAX = 320 };
/* HA_ERROR names the wrong key or value and the nearest right one */
enum ha_status ha_merge_id_parse(const char *text, struct ha_merge_id *id, struct ha_why *why);
void ha_merge_id_print(const struct ha_merge_id *id, char out[HA_MERGE_ID_MAX]);

#endif
