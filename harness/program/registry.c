#include "harness/base/registry.h"

#include "harness/api/suite.h"

/* A line HA_X(name) of registry.def stands for the object ha_x_name: declared first, then listed. */

#define HA_SUITE(name)      extern const struct ha_suite ha_suite_##name;
#define HA_KERNELS(name)    extern const struct ha_kernels ha_kernels_##name;
#define HA_DEVICE(name)     extern const struct ha_device_api ha_device_##name;
#define HA_DATASET(name)    extern const struct ha_dataset ha_dataset_##name;
#define HA_VARIANT(name)    extern const struct ha_variant ha_variant_##name;
#define HA_DEFINITION(name) extern const struct ha_definition ha_definition_##name;
#include "harness/program/registry.def"

#define HA_KERNELS(name) &ha_kernels_##name,
const struct ha_kernels *const ha_kernels_all[] = {
#include "harness/program/registry.def"
};
const size_t ha_kernels_count = sizeof ha_kernels_all / sizeof *ha_kernels_all;

#define HA_DEVICE(name) &ha_device_##name,
const struct ha_device_api *const ha_devices_all[] = {
#include "harness/program/registry.def"
};
const size_t ha_devices_count = sizeof ha_devices_all / sizeof *ha_devices_all;

#define HA_DATASET(name) &ha_dataset_##name,
const struct ha_dataset *const ha_datasets_all[] = {
#include "harness/program/registry.def"
};
const size_t ha_datasets_count = sizeof ha_datasets_all / sizeof *ha_datasets_all;

#define HA_VARIANT(name) &ha_variant_##name,
const struct ha_variant *const ha_variants_all[] = {
#include "harness/program/registry.def"
};
const size_t ha_variants_count = sizeof ha_variants_all / sizeof *ha_variants_all;

#define HA_DEFINITION(name) &ha_definition_##name,
const struct ha_definition *const ha_definitions_all[] = {
#include "harness/program/registry.def"
};
const size_t ha_definitions_count = sizeof ha_definitions_all / sizeof *ha_definitions_all;

#define HA_SUITE(name) &ha_suite_##name,
const struct ha_suite *const ha_suites_all[] = {
#include "harness/program/registry.def"
    NULL,
};
const size_t ha_suites_count = sizeof ha_suites_all / sizeof *ha_suites_all - 1;
