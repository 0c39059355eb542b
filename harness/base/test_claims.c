/* What devices may claim of their rounding: each field beyond its range is refused and named, also where its bytes are
 * no number and no truth. */

#include "harness/base/claims.h"

#include "harness/base/test.h"

#include <limits.h>
#include <math.h>

static struct ha_why why;

static const struct ha_profile profile = { .dot_lanes = 1, .sum_lanes = 1 };
static const struct ha_merge_traits traits = { .forms = 1, .dtypes = 1, .aliases = 1 };

/* `size` bytes at `offset` become those at `bytes`; says is what has to be said, NULL: nothing, it is right. */
struct change {
    const char *says;
    size_t offset, size;
    const void *bytes;
};
#define PROFILE(f, type, value, says)                                         \
    {                                                                         \
        says, offsetof(struct ha_profile, f), sizeof(type), &(type) { value } \
    }
#define TRAITS(f, type, value, says)                                               \
    {                                                                              \
        says, offsetof(struct ha_merge_traits, f), sizeof(type), &(type) { value } \
    }

static void try(const struct change *c, enum ha_status status)
{
    if ((status == HA_OK) != !c->says) fail_msg("%s: status %d '%s'", c->says ? c->says : "right", status, why.text);
    if (c->says) assert_non_null(strstr(why.text, c->says));
}

TEST(each_field_of_a_profile)
{
    const struct change changes[] = {
        PROFILE(dot_lanes, unsigned, 0, "its profile: dot_lanes is 0; was profile filled in?"),
        PROFILE(sum_lanes, unsigned, 0, "sum_lanes is 0;"),
        PROFILE(dot_lanes, unsigned, UINT_MAX, NULL),
        PROFILE(dot_extra, unsigned, 256, NULL),
        PROFILE(dot_extra, unsigned, 257, "dot_extra is 257, not from 0 to 256"),
        PROFILE(sum_extra, unsigned, UINT_MAX, "sum_extra is 4294967295, not from 0 to 256"),
        PROFILE(exp_eps, double, 0x1p-9, NULL),
        PROFILE(operand_eps, double, 0x1p-11, NULL),
        PROFILE(operand_eps, double, 0.1, "operand_eps is 0.1, not from 0 to 0.0078125"),
        PROFILE(logit_type, int, HA_F16, NULL),
        PROFILE(logit_type, int, 3, "logit_type is 3, not one of f32 0, f16 1, bf16 2"),
        PROFILE(exp_eps, double, 0x1.1p-9, "exp_eps is"),
        PROFILE(exp_eps, double, -0x1p-30, "exp_eps is -"),
        PROFILE(exp_eps, double, (double)NAN, "exp_eps is nan"),
        PROFILE(log_eps, double, 0x1p-11, NULL),
        PROFILE(log_eps, double, HUGE_VAL, "log_eps is inf"),
        PROFILE(weight_type, int, HA_BF16, NULL),
        PROFILE(weight_type, int, 3, "weight_type is 3, not one of f32 0, f16 1, bf16 2"),
        PROFILE(out_type, int, -1, "out_type is -1, not one of"),
        PROFILE(lse_type, int, 1 << 20, "lse_type is 1048576, not one of"),
        PROFILE(score_type, int, HA_F16, NULL),
        PROFILE(score_type, int, 3, "score_type is 3, not one of f32 0, f16 1, bf16 2"),
        PROFILE(sum_least, double, 1, NULL),
        PROFILE(sum_least, double, 1.5, "sum_least is 1.5, not from 0 to 1"),
        PROFILE(sum_least, double, -1, "sum_least is -1, not from 0 to 1"),
        PROFILE(sum_rounded, unsigned char, 9, "sum_rounded is 9, neither true nor false"),
        PROFILE(truncates, unsigned char, 2, "truncates is 2, neither true nor false"),
        PROFILE(exact_joins, unsigned char, 255, "exact_joins is 255, neither true nor false"),
        PROFILE(varies, unsigned char, 1, NULL),
        PROFILE(varies, unsigned char, 2, "varies is 2, neither true nor false"),
        PROFILE(join_keys, unsigned, 1, NULL),
    };
    for (size_t i = 0; i < COUNT(changes); i++) {
        struct ha_profile p = profile;
        memcpy((char *)&p + changes[i].offset, changes[i].bytes, changes[i].size);
        try(&changes[i], ha_profile_check("profile", &p, &why));
    }
}

TEST(each_number_of_a_merge)
{
    const struct change changes[] = {
        TRAITS(exp_eps, double, 0x1p-16, NULL),
        TRAITS(exp_eps, double, 0.004, "its traits: exp_eps is 0.004, not from 0 to 0.00195312"),
        TRAITS(log_eps, double, (double)NAN, "log_eps is nan"),
        TRAITS(depth_extra, double, 64, NULL),
        TRAITS(depth_extra, double, 1024, "depth_extra is 1024, not from 0 to 64"),
        TRAITS(rescales, double, 16, "rescales is 16, not from 0 to 2"),
        TRAITS(commutes, unsigned char, 7, "commutes is 7, neither true nor false"),
        TRAITS(varies, unsigned char, 3, "its traits: varies is 3, neither true nor false"),
        TRAITS(forms, unsigned, 16, "forms is 0x10"),
        TRAITS(states_max, size_t, 1, "states_max is 1"),
    };
    for (size_t i = 0; i < COUNT(changes); i++) {
        struct ha_merge_traits t = traits;
        memcpy((char *)&t + changes[i].offset, changes[i].bytes, changes[i].size);
        try(&changes[i], ha_traits_check(&t, &why));
    }
}

static struct ha_device_info claimed;
static void tell(struct ha_device *device, struct ha_device_info *info) { *info = claimed; }
static enum ha_status attend(struct ha_stream *stream, const struct ha_device_attend *a) { return HA_ERROR; }
static enum ha_status merge(struct ha_stream *stream, const struct ha_merge *m) { return HA_ERROR; }

/* Only what a device offers is asked for, and of each type. */
TEST(of_what_a_device_offers)
{
    struct ha_device_api api = { .info = tell, .attend = attend, .merge = merge };
    struct ha_device_info info;
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) claimed.profile[t] = profile;
    claimed.merge = traits;
    assert_int_equal(ha_device_claims(&api, NULL, &info, &why), HA_OK);
    assert_memory_equal(&info, &claimed, sizeof info);
    claimed.profile[HA_BF16].dot_extra = 1000;
    assert_int_equal(ha_device_claims(&api, NULL, &info, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "its profile[bf16]: dot_extra is 1000, not from 0 to 256"));
    claimed.profile[HA_BF16].dot_extra = 0;
    claimed.profile[HA_BF16].score_type = HA_F16;
    assert_int_equal(ha_device_claims(&api, NULL, &info, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "its profile[bf16]: score_type is f16, which is a state's of a variant alone"));
    claimed.profile[HA_BF16].score_type = HA_F32;
    claimed.profile[HA_BF16].sum_least = 0.5;
    assert_int_equal(ha_device_claims(&api, NULL, &info, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "its profile[bf16]: sum_least is 0.5, which is a state's of a variant alone"));
    api.attend = NULL;
    assert_int_equal(ha_device_claims(&api, NULL, &info, &why), HA_OK);
    api.attend_products = attend;
    assert_int_equal(ha_device_claims(&api, NULL, &info, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "its products[f32]: dot_lanes is 0; was products[f32] filled in?"));
    strcpy(claimed.no_products, "none here");
    assert_int_equal(ha_device_claims(&api, NULL, &info, &why), HA_OK);
    claimed.merge.rescales = -1;
    assert_int_equal(ha_device_claims(&api, NULL, &info, &why), HA_ERROR);
    api.merge = NULL;
    assert_int_equal(ha_device_claims(&api, NULL, &info, &why), HA_OK);
}
