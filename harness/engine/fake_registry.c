/* For tests and the fuzz target: a registry of its own, so that they do not depend on what the real variants
 * are called and take. registry_find.c finds these arrays instead of registry.c's. */
#include "harness/base/registry.h"

static void chunk_c(const struct ha_chunk *a) { (void)a; }
static void chunk_fast(const struct ha_chunk *a) { (void)a; }
static void merge_c(const struct ha_merge *a) { (void)a; }
static void merge_best(const struct ha_merge *a) { (void)a; }
static void score_c(const struct ha_score *a) { (void)a; }
static void score_unusable(const struct ha_score *a) { (void)a; }
static void attend_c(const struct ha_kernels *self, const struct ha_attend *a) { (void)self, (void)a; }
static size_t scratch_c(const struct ha_attend *a) { return a ? 1 : 0; }

static void packed_c(const struct ha_packed_chunk *a) { (void)a; }
static void packed_best(const struct ha_packed_chunk *a) { (void)a; }
static void pack_c(const struct ha_pack *a) { (void)a; }
static void unpack_c(const struct ha_unpack *a) { (void)a; }
static void topk_c(const struct ha_topk *a) { (void)a; }
static void digest_c(const struct ha_digest *a) { (void)a; }
static void digest_score_c(const struct ha_digest_score *a) { (void)a; }
static void softmax_c(const struct ha_softmax *a) { (void)a; }
static uint64_t read_c(const void *p, size_t bytes) { return p ? bytes : 0; }
static double flops_c(size_t rounds) { return (double)rounds; }
static void part_c(const struct ha_kernels *self, const struct ha_attend_part *a) { (void)self, (void)a; }
static void join_c(const struct ha_kernels *self, const struct ha_attend_join *a) { (void)self, (void)a; }
static bool splits_c(const struct ha_attend *a) { return a; }
static void all_c(const struct ha_kernels *self, const struct ha_attend_all *a) { (void)self, (void)a; }
static size_t all_bytes_c(const struct ha_attend *a, size_t count, size_t threads) { return a ? count * threads : 0; }

static const struct ha_kernels c = {
    .name = "c",
    .cpu_bit = HA_CPU_C,
    .profile = { .dot_lanes = 1 },
    .traits = { .forms = 1 },
    .attend_chunk = chunk_c,
    .merge = merge_c,
    .packed_profile = { { .dot_lanes = 1 }, { .dot_lanes = 1 }, { .dot_lanes = 1 } },
    .attend_packed = { packed_c, packed_c, packed_c },
    .score = score_c,
    .pack = pack_c,
    .unpack = unpack_c,
    .topk = topk_c,
    .digest = digest_c,
    .digest_score = digest_score_c,
    .softmax = softmax_c,
    .read = read_c,
    .flops = flops_c,
    .flops_bf16 = flops_c,
    .attend = attend_c,
    .attend_part = part_c,
    .attend_join = join_c,
    .attend_scratch_bytes = scratch_c,
    .attend_state_bytes = scratch_c,
    .attend_splits = splits_c,
    .attend_all = all_c,
    .attend_all_bytes = all_bytes_c,
};
static const struct ha_kernels fast = {
    .name = "fast",
    .cpu_bit = HA_CPU_C,
    .profile = { .dot_lanes = 8 },
    .traits = { .forms = 99 },
    .attend_chunk = chunk_fast,
};
static const struct ha_kernels gone = {
    .name = "gone", .absent = "not compiled for this target", .cpu_bit = HA_CPU_C, .score = score_unusable
};
static const struct ha_kernels best = {
    .name = "best",
    .cpu_bit = HA_CPU_C,
    .profile = { .dot_lanes = 99 },
    .traits = { .forms = 8 },
    .merge = merge_best,
    .packed_profile = { { .dot_lanes = 98 }, { .dot_lanes = 97 }, { .dot_lanes = 16 } },
    .attend_packed = { [HA_BF16] = packed_best },
};
static const struct ha_kernels alien = { .name = "alien", .cpu_bit = 1u << 30, .score = score_unusable };
static const struct ha_kernels beyond = { .name = "beyond", .cpu_bit = 1u << 30, .merge = merge_c };
const struct ha_kernels *const ha_kernels_all[] = { &c, &fast, &gone, &alien, &best, &beyond };
const size_t ha_kernels_count = 6;

static const struct ha_device_api host = { .name = "host", .kind = "host" };
const struct ha_device_api *const ha_devices_all[] = { &host };
const size_t ha_devices_count = 1;

static const struct ha_param ring_params[] = {
    { "alpha", 0.3, 0.0, 1.0, "", false },
    { "beta", 1.0, -1.0, 1e300, "", false },
    { "size", 64.0, 1.0, 1e6, "", true },
};
static const struct ha_param window_params[] = { { "window", 32.0, 0.0, 1e6, "", true },
                                                 { "beta", 2.0, 0.0, 4.0, "", false } };
static const struct ha_variant plain = { .name = "plain", .family = "full" };
static const struct ha_variant ring = { .name = "ring", .family = "split", .params = ring_params, .params_count = 3 };
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
const struct ha_dataset *const ha_datasets_all[] = { &sinks, &noise, &tape };
const size_t ha_datasets_count = 3;
