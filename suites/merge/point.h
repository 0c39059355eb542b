#ifndef HA_MERGE_POINT_H
#define HA_MERGE_POINT_H

/* A point of lse_merge: lse_merge:case=gaps,by=avx2,form=base2,dtype=f16,head_dim=80,states=7,order=chain,alias=first,
 * layout=padded,rows=3x4,seed=4,row=2. What it leaves out of form to row is every value of that axis; a failure
 * prints all. */

#include "harness/api/suite.h"
#include "suites/merge/task.h"

enum ha_merge_part { HA_PART_CASES, HA_PART_RANDOM, HA_PART_GALLERY, HA_PART_ATTENTION, HA_PART_REPLAY };
enum { HA_MERGE_NAME_MAX = 512 };

struct ha_merge_point {
    char replay[HA_MERGE_NAME_MAX]; /* the file, or "" */
    size_t item;                    /* of the cases; behind them: random, gallery, attention */
    size_t defect;                  /* of the gallery */
    size_t problem;                 /* of attention */
    char by[HA_MERGE_NAME_MAX];     /* who merges: a kernel table, a device, a defect, "exec", the path of a plugin */
    size_t kind;                    /* of random merges */
    struct ha_merge_axes axes;
};

enum { HA_MERGE_KEYS = 16 };
extern const struct ha_key ha_merge_key[HA_MERGE_KEYS];
extern const struct ha_suite ha_suite_lse_merge;

enum ha_merge_part ha_merge_part(const struct ha_merge_point *point);
/* the case's name, "random", "gallery" or "attention" */
const char *ha_merge_item_name(const struct ha_merge_point *point);
/* by default: a kernel table with a merge of its own, the embedded device; NULL behind the last */
const char *ha_merge_ours(size_t i);
bool ha_merge_is_ours(const char *by);
/* the index of that name in the gallery, or SIZE_MAX */
size_t ha_merge_defect_index(const char *name);

/* hooks of the suite */
bool ha_merge_uses(const void *point, size_t key);
enum ha_status ha_merge_settle(void *point, struct ha_why *why);
enum ha_status ha_merge_look(const void *point, struct ha_why *why);
bool ha_merge_together(const void *a, const void *b);

#endif
