/* For tests and the fuzz target: a registry of its own, so that they do not depend on what the real variants
 * are called and take. registry_find.c finds these arrays instead of registry.c's. */
#include "harness/base/registry.h"

#include <stdlib.h>

/* Nobody calls a kernel of these. The first table has every one. */
static void of_c(void) { abort(); }
static void of_another(void) { abort(); }
#define ONE(isa, result, name, arguments, companion)   .name = (result(*) arguments)of_c,
#define TYPED(isa, result, name, arguments, companion) .name = { TYPE(arguments), TYPE(arguments), TYPE(arguments) },
#define TYPE(arguments)                                (void(*) arguments) of_c

static const struct ha_kernels c = { .name = "c",
                                     .cpu_bit = HA_CPU_C,
                                     .profile = { .dot_lanes = 1 },
                                     .traits = { .forms = 1 },
                                     .packed_profile = { { .dot_lanes = 1 }, { .dot_lanes = 1 }, { .dot_lanes = 1 } },
                                     HA_KERNELS_OF_ALL(ONE, TYPED, ) };
static const struct ha_kernels fast = { .name = "fast",
                                        .cpu_bit = HA_CPU_C,
                                        .profile = { .dot_lanes = 8 },
                                        .traits = { .forms = 99 },
                                        .attend_chunk = (void (*)(const struct ha_chunk *))of_another };
static const struct ha_kernels gone = { .name = "gone",
                                        .absent = "not compiled for this target",
                                        .cpu_bit = HA_CPU_C,
                                        .score = (void (*)(const struct ha_score *))of_another };
static const struct ha_kernels best = {
    .name = "best",
    .cpu_bit = HA_CPU_C,
    .profile = { .dot_lanes = 99 },
    .traits = { .forms = 8 },
    .merge = (void (*)(const struct ha_merge *))of_another,
    .packed_profile = { { .dot_lanes = 98 }, { .dot_lanes = 97 }, { .dot_lanes = 16 } },
    .attend_packed = { [HA_BF16] = (void (*)(const struct ha_packed_chunk *))of_another },
};
static const struct ha_kernels alien = { .name = "alien",
                                         .cpu_bit = 1u << 30,
                                         .score = (void (*)(const struct ha_score *))of_another };
static const struct ha_kernels beyond = { .name = "beyond",
                                          .cpu_bit = 1u << 30,
                                          .merge = (void (*)(const struct ha_merge *))of_c };
const struct ha_kernels *const ha_kernels_all[] = { &c, &fast, &gone, &alien, &best, &beyond };
const size_t ha_kernels_count = 6;

static const struct ha_device_api host = { .name = "host", .kind = "host" };
const struct ha_device_api *const ha_devices_all[] = { &host };
const size_t ha_devices_count = 1;

static const struct ha_param ring_params[] = {
    { "alpha", 0.3, 0.0, 1.0, "", .whole = false },
    { "beta", 1.0, -1.0, 1e300, "", .whole = false },
    { "size", 64.0, 1.0, 1e6, "", .whole = true },
};
static const struct ha_param window_params[] = { { "window", 32.0, 0.0, 1e6, "", .whole = true },
                                                 { "beta", 2.0, 0.0, 4.0, "", .whole = false } };
static const struct ha_variant plain = { .name = "plain", .family = "full" };
static enum ha_status learn(const struct ha_fit_input *in, struct ha_fit_writer *out, struct ha_why *why)
{
    abort(); /* nobody calls it */
}
static const struct ha_variant ring = {
    .name = "ring", .family = "split", .params = ring_params, .params_count = 3, .fit = learn
};
static const struct ha_variant window = {
    .name = "window", .family = "split", .params = window_params, .params_count = 2
};
const struct ha_variant *const ha_variants_all[] = { &plain, &ring, &window };
const size_t ha_variants_count = 3;

static const struct ha_definition ring_definition = { .variant = "ring" };
const struct ha_definition *const ha_definitions_all[] = { &ring_definition };
const size_t ha_definitions_count = 1;

static const struct ha_dataset sinks = { .name = "sinks" };
static const struct ha_dataset noise = { .name = "noise" };
static const struct ha_dataset tape = { .name = "tape", .needs_file = "a tape" };
static const struct ha_dataset batch = { .name = "batch", .needs_file = "a batch", .fixes_lengths = true };
const struct ha_dataset *const ha_datasets_all[] = { &sinks, &noise, &tape, &batch };
const size_t ha_datasets_count = 4;
