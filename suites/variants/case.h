#ifndef HA_VARIANTS_CASE_H
#define HA_VARIANTS_CASE_H

/* One case, one string: `variant:key=value,...`. What the string leaves out has its default;
 * ha_point_print writes every key that differs from it, so that the id runs again anywhere. */

#include "harness/api/dataset.h"
#include "harness/api/suite.h"
#include "harness/api/variant.h"
#include "harness/base/model.h"

enum { HA_PARAMS_MAX = 32, HA_CASE_ID_MAX = 512 };

/* What runs in a step: attention alone, or the products of each layer around it. */
enum ha_load_kind { HA_LOAD_ATTENTION, HA_LOAD_LAYER };

struct ha_case {
    char variant[48], device[256], dataset[256];
    char fit[256]; /* "none", or a file that `habench fit` has written */
    size_t model;  /* 0: none is named; i: model i - 1 of the table (ha_case_model) */
    size_t load;   /* enum ha_load_kind */
    struct ha_shape shape;
    uint64_t seed;
    size_t isa;                  /* 0: the best of this CPU; i: table i - 1 of the registry */
    size_t team;                 /* who the threads of the CPU side are: enum ha_team of harness/base/pool.h */
    size_t threads;              /* of the CPU side; 0: the cores that the device leaves free */
    size_t graph;                /* 1: a step's work on the device is captured as a graph and launched at once */
    size_t repeat;               /* further passes of a check over the same input; 0: ha_repeat_passes */
    double param[HA_PARAMS_MAX]; /* of the variant, in its order */
};

/* variant first: its params stand behind the table; dataset and model before what they fix, ctx before batch */
enum { HA_CASE_KEYS = 23 };
extern const struct ha_key ha_case_keys[];

/* param i of the case's variant, as a key */
bool ha_case_param(const void *point, size_t i, struct ha_key *out);
const char *ha_case_param_name(size_t i);
void ha_param_print(const struct ha_param *param, double value, char out[HA_VALUE_MAX]);
/* Do the keys agree with each other? */
enum ha_status ha_case_settle(void *point, struct ha_why *why);

bool ha_case_has_fit(const struct ha_case *c);
/* HA_ERROR: its variant has no hook that learns a fit; the reason names those that have */
enum ha_status ha_case_reads_fit(const struct ha_case *c, struct ha_why *why);

/* an id that names one case */
enum ha_status ha_case_parse(const char *id, struct ha_case *out, struct ha_why *why);
/* the dataset of a case, NULL where it is unknown; *file: the text after the slash, or NULL */
const struct ha_dataset *ha_case_dataset(const struct ha_case *c, const char **file);
/* the table of CPU kernels it names; NULL: the best */
const char *ha_case_isa(const struct ha_case *c);

/* "1000" where all sequences have as many tokens, or "1000+3000": the value of ctx */
void ha_ctx_print(const struct ha_shape *shape, char *out, size_t size);

/* one of ha_models, which are the values of the key `model` but for "none"; NULL: none is named */
const struct ha_model *ha_case_model(const struct ha_case *c);

#endif
