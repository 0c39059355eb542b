#ifndef HA_VARIANTS_KEYS_H
#define HA_VARIANTS_KEYS_H

/* The keys of a case: a point of the suite of variants (harness/api/suite.h). */

#include "suites/variants/case.h"
#include "harness/api/dataset.h"
#include "harness/api/suite.h"
#include "harness/api/variant.h"

/* variant first: its params stand behind the table; dataset and model before what they fix, ctx before batch */
enum { HA_CASE_KEYS = 20 };
extern const struct ha_key ha_case_keys[];

/* param i of the case's variant, as a key */
bool ha_case_param(const void *point, size_t i, struct ha_key *out);
const char *ha_case_param_name(size_t i);
/* Do the keys agree with each other? */
enum ha_status ha_case_settle(void *point, struct ha_why *why);

/* an id that names one case */
enum ha_status ha_case_parse(const char *id, struct ha_case *out, struct ha_why *why);
/* the dataset of a case, NULL where it is unknown; *file: the text after the slash, or NULL */
const struct ha_dataset *ha_case_dataset(const struct ha_case *c, const char **file);
/* the table of CPU kernels it names; NULL: the best */
const char *ha_case_isa(const struct ha_case *c);

/* "1000" where all sequences have as many tokens, or "1000+3000": the value of ctx */
void ha_ctx_print(const struct ha_shape *shape, char *out, size_t size);

/* the values of the key `model`, but for "none" */
extern const struct ha_model ha_models[];
enum { HA_MODELS_COUNT = 5 };

#endif
