#ifndef HA_BASE_FIT_H
#define HA_BASE_FIT_H

/* A fit: what a variant has learnt offline, tensors by name in a safetensors file that says what they were learnt from.
 * The format is defined in datasets/README.md, section "Fits". */

#include "harness/api/dataset.h"
#include "harness/base/safetensors.h"

/* ---- for variants and their definitions -------------------------------------------------------------------------- */

struct ha_fit;

/* tensor: name, type (F32, which F16 and BF16 of the file become, or I32) and shape as they must be; data and bytes are
 * filled in. The numbers are finite, 64-byte aligned, and live as long as the fit. HA_ERROR where the fit has no such
 * tensor, HA_WAIVED where there is no fit (NULL). */
enum ha_status ha_fit_get(const struct ha_fit *fit, struct ha_tensor *tensor, struct ha_why *why);

bool ha_fit_has(const struct ha_fit *fit, const char *name);

/* tensor: name, type, shape and data, of which a copy is kept. */
struct ha_fit_writer;
enum ha_status ha_fit_put(struct ha_fit_writer *to, const struct ha_tensor *tensor, struct ha_why *why);

/* ---- for who runs them ------------------------------------------------------------------------------------------- */

/* What a fit says of itself, as text: the keys of its metadata. A case agrees with its fit in those before
 * HA_FIT_AGREES. */
enum ha_fit_key {
    HA_FIT_VARIANT,
    HA_FIT_PARAMS, /* those that it depends on: "a=1,b=2" */
    HA_FIT_MODEL,
    HA_FIT_LAYERS,
    HA_FIT_Q_HEADS,
    HA_FIT_KV_HEADS,
    HA_FIT_HEAD_DIM,
    HA_FIT_MODEL_DIM,
    HA_FIT_AGREES,
    HA_FIT_DATASET = HA_FIT_AGREES,
    HA_FIT_SEED,
    HA_FIT_CASE, /* it was learnt from */
    HA_FIT_HABENCH,
    HA_FIT_KEYS
};
struct ha_fit_about {
    const char *value[HA_FIT_KEYS];     /* NULL: not known */
    const struct ha_provenance *origin; /* [origins]: its texts; their model is not read */
    size_t origins;
};

/* name: of a case, a path or a name of datasets/fits. */
enum ha_status ha_fit_path(char path[4096], const char *name, struct ha_why *why);
enum ha_status ha_fit_open(struct ha_fit **fit, const char *path, struct ha_why *why);
/* the same of bytes, for the fuzzer */
enum ha_status ha_fit_parse(struct ha_fit **fit, const char *name, const void *data, size_t bytes, struct ha_why *why);
void ha_fit_close(struct ha_fit *fit); /* NULL: nothing */
/* Is it of this case? HA_ERROR with the first key in which they differ; what is NULL is not asked. */
enum ha_status ha_fit_check(const struct ha_fit *fit, const struct ha_fit_about *of, struct ha_why *why);
/* Do they have a text in common? */
bool ha_fit_shares(const struct ha_fit *fit, const struct ha_fit_about *with);

/* Begins zeroed. */
struct ha_fit_writer {
    struct ha_tensor *tensor; /* name and data are its own */
    size_t count, capacity;
};
/* every value is known */
enum ha_status ha_fit_write(const struct ha_fit_writer *from, const char *path, const struct ha_fit_about *about,
                            struct ha_why *why);
void ha_fit_writer_free(struct ha_fit_writer *writer);

#endif
