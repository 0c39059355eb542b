#ifndef HA_DATASETS_TRACE_H
#define HA_DATASETS_TRACE_H

#include "datasets/trace_file.h"
#include "harness/api/dataset.h"

/* ha_dataset.open on files that have been read, of whose ha_trace name and file are set. Takes the files over, and
 * closes them on failure too. For the fuzzer. */
enum ha_status ha_trace_open(struct ha_source **src, struct ha_shape *shape, const struct ha_trace *trace, size_t files,
                             struct ha_why *why);

/* The path of trace `name`: the file itself, or NAME.safetensors of datasets/traces in the current folder,
 * in the program's folder or in any folder above that. */
enum ha_status ha_trace_find(const char *name, char path[4096], struct ha_why *why);

#endif
