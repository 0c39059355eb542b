#ifndef HA_KEYS_H
#define HA_KEYS_H

/* The keys of a case: one table for ids, suite files, filters and `habench list keys`. */

#include "harness/api/case.h"
#include "harness/api/dataset.h"
#include "harness/api/variant.h"

enum { HA_VALUE_MAX = 2048 }; /* of a value as text: 64 lengths joined by '+' fit */

struct ha_key {
    const char *name, *value; /* value: the default */
    const char *doc;
    bool always;    /* printed at its default, too */
    bool from_file; /* 0 with a dataset that is read from a file: the file says; else the model does, if one is named */
    size_t offset;  /* of a size_t of struct ha_case, for set_size and print_size */
    uint64_t min, max;
    enum ha_status (*set)(struct ha_case *c, const struct ha_key *key, const char *value, struct ha_why *why);
    void (*print)(const struct ha_case *c, const struct ha_key *key, char out[HA_VALUE_MAX]);
};

/* In the order in which they are set and printed: dataset before what a file fixes, ctx before batch. */
extern const struct ha_key ha_keys[];
enum { HA_KEYS_COUNT = 16 };

/* The engine has functions of these names (harness/engine/point.h), which are to take their place. */
#define ha_key_unknown  ha_case_key_unknown
#define ha_number_print ha_case_number_print

const struct ha_key *ha_key_find(const char *name);
const struct ha_param *ha_param_find(const struct ha_variant *variant, const char *name, size_t *index);
/* a key of every case, or a param of some variant */
bool ha_key_known(const char *name);
/* HA_ERROR with the nearest of the keys, the params of the variant (NULL: of all) and `more` (NULL, or NULL-terminated)
 */
enum ha_status ha_key_unknown(struct ha_why *why, const char *name, const struct ha_variant *variant,
                              const char *const *more);
enum ha_status ha_variant_unknown(struct ha_why *why, const char *name);
/* the dataset of a case, NULL where it is unknown; *file: the text after the slash, or NULL */
const struct ha_dataset *ha_case_dataset(const struct ha_case *c, const char **file);
/* "0" where the case's dataset is a file and the file says, what its model has, else key->value */
const char *ha_key_default(const struct ha_key *key, const struct ha_case *c, char out[HA_VALUE_MAX]);

/* models.c: the values of the key `model`, but for "none" */
extern const struct ha_model ha_models[];
enum { HA_MODELS_COUNT = 5 };

/* shortest decimal text that reads back as the same number */
void ha_number_print(double x, char out[HA_VALUE_MAX]);
/* the value of a key or of a param of the case's variant; false where there is no such key */
bool ha_case_get(const struct ha_case *c, const char *key, char out[HA_VALUE_MAX]);
/* like ha_case_print, with the length the id would have, as snprintf */
size_t ha_case_format(const struct ha_case *c, char *out, size_t size);

#endif
