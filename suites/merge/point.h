#ifndef HA_MERGE_POINT_H
#define HA_MERGE_POINT_H

/* A point of lse_merge: lse_merge:case=gaps,by=avx2,form=base2,dtype=f16,head_dim=80,states=7,order=chain,alias=first,
 * layout=padded,rows=3x4,seed=4,row=2. What it leaves out of form to row is every value of that axis; a failure
 * prints all. */

#include "harness/api/suite.h"
#include "suites/merge/attention.h"
#include "suites/merge/work.h"

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
    struct ha_attention_shape shape; /* of the problem `one` of attention */
};

enum { HA_MERGE_KEYS = 28 };
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
double ha_merge_cost(const void *point);
enum ha_status ha_merge_look(const void *point, struct ha_why *why);
bool ha_merge_together(const void *a, const void *b);

/* ---- who merges, by the name that stands in an id */

struct ha_merge_member {
    struct ha_merge_member *next;
    char by[HA_MERGE_NAME_MAX]; /* as in the id */
    struct ha_merge_source source;
    struct ha_kernels kernels; /* the source's, where it is a table of CPU kernels */
    bool null;                 /* a device of the kind "null": its output is nothing that could be checked */
    bool looked;               /* source.exp, source.log and source.usual are known */
    enum ha_status status;     /* HA_WAIVED: this CPU, or this machine, lacks it; HA_ERROR: it cannot be opened */
    struct ha_why why;         /* of a status that is not HA_OK */
};
/* Everybody who was asked for in a run: found once, and kept. */
struct ha_merge_party {
    const struct ha_suite_config *config;
    struct ha_merge_member *first;
};

/* The member called `by`; NULL: there is no memory. Devices are those of config->machine, and asked for anew each time.
 */
struct ha_merge_member *ha_merge_party_find(struct ha_merge_party *party, const char *by);
/* Before each group: who died when he was looked at, which is an error of the points that asked for him then, is looked
 * at again when he is asked for again. */
void ha_merge_party_again(struct ha_merge_party *party);
void ha_merge_party_free(struct ha_merge_party *party);

/* ---- result.c: a row of lse_merge, and what is printed of all rows */

enum { HA_MERGE_BINS = 10, HA_MERGE_FAILURE_MAX = 4096 };

struct ha_merge_result {
    struct ha_result head;
    char subject[64];                   /* what it calls itself */
    double ratio;                       /* the worst err/bound */
    double planted;                     /* the least that a planted error gave */
    struct ha_merge_sense sense;        /* what the traits let pass */
    double bias, rms;                   /* against chance (struct ha_suspect); NaN: of no row */
    double exp_eps, log_eps;            /* seen of its functions */
    uint64_t merges, exact;             /* rows judged; those without any error */
    uint64_t again, varied;             /* rows merged a second time; batches that gave other bits then */
    uint64_t refused;                   /* batches that were answered with an error, where that is as good */
    uint64_t bin[HA_MERGE_BINS];        /* err/bound below 2^-9, to 2^-8, ... to 1 */
    char found_by[64];                  /* of a defect: the case that saw it */
    uint64_t also;                      /* by how many others */
    char showed[96];                    /* and what it saw */
    char failure[HA_MERGE_FAILURE_MAX]; /* what a person needs of a failure (ha_merge_failure_print); in no file */
};

enum { HA_MERGE_FIELDS = 28 };
extern const struct ha_field ha_merge_field[HA_MERGE_FIELDS];

/* hooks of the suite */
void ha_merge_print(FILE *out, const struct ha_results *results);
/* The bound bites if half of it would not hold: asked where all random merges were made by ours. */
bool ha_merge_conclude(FILE *out, const struct ha_results *results, struct ha_why *why);

#endif
