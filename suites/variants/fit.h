#ifndef HA_VARIANTS_FIT_H
#define HA_VARIANTS_FIT_H

/* Between a case and a fit: what the case's fit has to be of, and how one is learnt. */

#include "harness/base/fit.h"
#include "suites/variants/session.h"

/* Its texts lie in itself, in the case and in the workload. */
struct ha_fit_of {
    struct ha_fit_about about;
    char params[HA_VALUE_MAX], number[HA_FIT_KEYS][24], dataset[64], text[320];
    struct ha_provenance origin[HA_BATCH_MAX];
};
/* workload: NULL, where no dataset is open: then what follows from that is not known. */
void ha_fit_of_case(struct ha_fit_of *out, const struct ha_case *c, const struct ha_workload *workload);

/* The fit that a case names: of its variant, and of the shape and model of the workload unless that is NULL. *fit: NULL
 * where it names none. HA_ERROR: there is no such file, or it is another's; HA_FAIL: it is damaged. */
enum ha_status ha_fit_of_name(struct ha_fit **fit, const struct ha_case *c, const struct ha_workload *workload,
                              struct ha_why *why);

/* How long a layer of a step takes in this case, and how fast the link is (HA_CEIL_H2D), for ha_fit_input: one pass,
 * over a machine on which nothing else is open. Not HA_OK with words: it cannot run here, or the device has no link. */
enum ha_status ha_fit_pace(const struct ha_case *c, struct ha_machine *machine, double pace[2], struct ha_why *why);

/* `habench fit`: learns from the case and writes the file `path`, which is not there yet; a line on out says what.
 * HA_FAIL: it is no case to learn from. */
enum ha_status ha_fit_learn(const struct ha_case *c, const char *id, const char *path, FILE *out, struct ha_why *why);

#endif
