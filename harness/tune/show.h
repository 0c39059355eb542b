#ifndef HA_TUNE_SHOW_H
#define HA_TUNE_SHOW_H

/* What a plan says, and what it leaves open, in words. */

#include "harness/tune/make.h"

/* What is taken: a line for each type and number of threads, which says where nothing of it differs from what is built
 * in, and which other tables are as good. */
void ha_tune_print(FILE *out, const struct ha_tuning *tuning);

enum { HA_TUNE_OPEN_BYTES = 256 };
/* "2 choices stay as they are built in (1 thread f32 passes of 8 rows avx512, 2 threads f16 list avx2)", as many by
 * name as there is room for; one and many: what is said of one choice and of several. Nothing is open: "". */
void ha_tune_open_text(char out[HA_TUNE_OPEN_BYTES], const struct ha_tune_doubt *doubt, const char *one,
                       const char *many);

#endif
