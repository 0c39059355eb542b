#ifndef HA_REGISTRY_H
#define HA_REGISTRY_H

/* The only file that names implementers: registry.def lists them, one line each. */

#include "harness/api/dataset.h"
#include "harness/api/device.h"
#include "harness/api/kernels.h"
#include "harness/api/reference.h"
#include "harness/api/variant.h"

struct ha_suite;  /* harness/api/suite.h */
struct ha_tuning; /* harness/base/tuning.h */

extern const struct ha_kernels *const ha_kernels_all[]; /* worst first; kernels/c is [0] */
extern const size_t ha_kernels_count;
extern const struct ha_device_api *const ha_devices_all[];
extern const size_t ha_devices_count;
extern const struct ha_variant *const ha_variants_all[];
extern const size_t ha_variants_count;
extern const struct ha_definition *const ha_definitions_all[];
extern const size_t ha_definitions_count;
extern const struct ha_dataset *const ha_datasets_all[];
extern const size_t ha_datasets_count;
extern const struct ha_suite *const ha_suites_all[]; /* the first: of a suite file which names none */
extern const size_t ha_suites_count;

const struct ha_variant *ha_variant_find(const char *name);
const struct ha_definition *ha_definition_find(const char *variant);
const struct ha_dataset *ha_dataset_find(const char *name, size_t name_length);

/* The table of `isa` ("c", "avx2", ...; NULL: the best this CPU has) with its gaps filled from
 * the tables below it. The plan in use (harness/base/tuning.h) says what attend_packed asks ahead, and without an isa
 * whose it is, where `threads` read at once (0: all). Asking for a table that this CPU or this build lacks is
 * HA_WAIVED, and says so. */
enum ha_status ha_kernels_resolve_for(const char *isa, size_t threads, struct ha_kernels *out, struct ha_why *why);
enum ha_status ha_kernels_resolve(const char *isa, struct ha_kernels *out, struct ha_why *why); /* of all threads */
/* by another plan; NULL: by none, as the tables are built */
enum ha_status ha_kernels_resolve_by(const struct ha_tuning *plan, const char *isa, size_t threads,
                                     struct ha_kernels *out, struct ha_why *why);
/* The table whose code a resolved one runs for this kernel, a member's name, of this type where there is one for each.
 * NULL: it is of no table, or there is no such kernel. */
const struct ha_kernels *ha_kernels_origin_of(const struct ha_kernels *k, const char *kernel, enum ha_dtype dtype);
/* "best", then the tables' names, as points number them; NULL behind the last */
const char *ha_isa_word(size_t isa);
/* why this table is not used here, or NULL where it may be */
const char *ha_kernels_lack(const struct ha_kernels *k);
/* Masks the instruction sets of these tables, "avx512,amx", and those that build on them (harness/base/cpu.h). */
enum ha_status ha_kernels_mask(const char *list, struct ha_why *why);
/* The kernels of a table, for as long as `part` has a name: what ha_kernels_resolve joins one by one. */
const char *ha_kernels_part(size_t part);
/* the table that has this kernel for `isa`: the highest up to it that may be used */
const struct ha_kernels *ha_kernels_origin(const char *isa, size_t part);

#endif
