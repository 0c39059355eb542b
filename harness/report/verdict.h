#ifndef HA_REPORT_VERDICT_H
#define HA_REPORT_VERDICT_H

/* Verdicts of rows. */

#include "harness/api/suite.h"

/* The head that every row begins with. */
static inline struct ha_result *ha_result_of(void *row) { return row; }
static inline const struct ha_result *ha_result_in(const void *row) { return row; }

/* A verdict of its own for row i, from a status that is not HA_OK; it stays. */
void ha_result_set(const struct ha_group *group, size_t i, enum ha_status status, const struct ha_why *why);
/* "pass", "fail", "waived", "error", "unchecked", "not run" */
const char *ha_verdict_name(enum ha_verdict verdict);
/* The same as tables show them: FAIL and ERROR stand out. */
const char *ha_verdict_shown(enum ha_verdict verdict);
/* the verdict of that name; HA_NOT_RUN where there is none */
enum ha_verdict ha_verdict_of(const char *name);

#endif
