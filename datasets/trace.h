#ifndef HA_DATASETS_TRACE_H
#define HA_DATASETS_TRACE_H

#include "harness/api/dataset.h"
#include "harness/base/safetensors.h"

/* ha_dataset.open on a file that has been read; `name` stands in the reasons. Takes `file` over, and
 * closes it on failure too. For the fuzzer and the tests. */
enum ha_status ha_trace_open(struct ha_source **src, struct ha_shape *shape, const char *name,
                             struct ha_safetensors *file, struct ha_why *why);

/* The path of trace `name`: the file itself, or NAME.safetensors of datasets/traces in the current folder,
 * in the program's folder or in any folder above that. */
enum ha_status ha_trace_find(const char *name, char path[4096], struct ha_why *why);

#endif
