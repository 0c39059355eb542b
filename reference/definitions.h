#ifndef HA_REFERENCE_DEFINITIONS_H
#define HA_REFERENCE_DEFINITIONS_H

/* The definitions, one file each; those of full.c are one rule. */

#include "harness/api/reference.h"

extern const struct ha_definition ha_definition_resident, ha_definition_bmm, ha_definition_offload, ha_definition_cpu;
extern const struct ha_definition ha_definition_streaming;
extern const struct ha_definition ha_definition_h2o;
extern const struct ha_definition ha_definition_hgca;

#endif
