#include "harness/base/claims.h"

#include "harness/base/why.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define OF_PROFILE(f) #f, offsetof(struct ha_profile, f)
#define OF_TRAITS(f)  #f, offsetof(struct ha_merge_traits, f)

static enum ha_status bool_check(const char *of, const char *name, const void *at, struct ha_why *why)
{
    unsigned char x;
    memcpy(&x, at, sizeof x);
    return x <= 1 ? HA_OK : ha_why(why, HA_ERROR, "its %s: %s is %u, neither true nor false", of, name, x);
}

static enum ha_status real_check(const char *of, const char *name, const void *at, double most, struct ha_why *why)
{
    double x;
    memcpy(&x, at, sizeof x);
    return x >= 0 && x <= most ? HA_OK : ha_why(why, HA_ERROR, "its %s: %s is %g, not from 0 to %g", of, name, x, most);
}

/* ---- attention ----------------------------------------------------------------------------------- */

/* A sum of n terms in one lane has n - 1 additions, more than any other order: what does not shrink with the lanes is
 * what joins them, one lane's last step, a scale folded in, operands that were split. Ours have up to 104. Lanes may be
 * any number above 0: more of them only make the bound smaller, as do longer chunks. */
static const struct {
    const char *name;
    size_t offset;
    unsigned least, most;
} counts[] = {
    { OF_PROFILE(dot_lanes), 1, UINT_MAX }, { OF_PROFILE(dot_extra), 0, 256 },
    { OF_PROFILE(sum_lanes), 1, UINT_MAX }, { OF_PROFILE(sum_extra), 0, 256 },
    { OF_PROFILE(join_keys), 0, UINT_MAX }, { OF_PROFILE(joins_max), 0, UINT_MAX },
};
static const struct ha_claim reals[] = {
    { OF_PROFILE(exp_eps), HA_EXP_EPS_MAX },
    { OF_PROFILE(log_eps), HA_LOG_EPS_MAX },
    { OF_PROFILE(operand_eps), HA_OPERAND_EPS_MAX },
    { OF_PROFILE(sum_least), 1 },
};
static const struct {
    const char *name;
    size_t offset;
} types[] = { { OF_PROFILE(weight_type) },
              { OF_PROFILE(out_type) },
              { OF_PROFILE(lse_type) },
              { OF_PROFILE(logit_type) },
              { OF_PROFILE(score_type) } };
static const struct {
    const char *name;
    size_t offset;
} bools[] = {
    { OF_PROFILE(sum_rounded) }, { OF_PROFILE(truncates) }, { OF_PROFILE(exact_joins) }, { OF_PROFILE(varies) }
};

enum ha_status ha_profile_check(const char *of, const struct ha_profile *p, struct ha_why *why)
{
    const char *bytes = (const char *)p;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        unsigned x;
        memcpy(&x, bytes + counts[i].offset, sizeof x);
        if (x < counts[i].least)
            return ha_why(why, HA_ERROR, "its %s: %s is %u; was %s filled in?", of, counts[i].name, x, of);
        if (x > counts[i].most)
            return ha_why(why, HA_ERROR, "its %s: %s is %u, not from %u to %u", of, counts[i].name, x, counts[i].least,
                          counts[i].most);
    }
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        HA_TRY(real_check(of, reals[i].name, bytes + reals[i].offset, reals[i].most, why));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        int x;
        memcpy(&x, bytes + types[i].offset, sizeof x);
        if (x < 0 || x >= HA_DTYPE_COUNT)
            return ha_why(why, HA_ERROR, "its %s: %s is %d, not one of f32 0, f16 1, bf16 2", of, types[i].name, x);
    }
    for (size_t i = 0; i < sizeof bools / sizeof *bools; i++)
        HA_TRY(bool_check(of, bools[i].name, bytes + bools[i].offset, why));
    return HA_OK;
}

void ha_profile_numbers(const struct ha_profile *p, void (*number)(void *arg, const char *name, double value),
                        void *arg)
{
    const char *bytes = (const char *)p;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        unsigned x;
        memcpy(&x, bytes + counts[i].offset, sizeof x);
        number(arg, counts[i].name, x);
    }
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        double x;
        memcpy(&x, bytes + reals[i].offset, sizeof x);
        number(arg, reals[i].name, x);
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        int x;
        memcpy(&x, bytes + types[i].offset, sizeof x);
        number(arg, types[i].name, x);
    }
    for (size_t i = 0; i < sizeof bools / sizeof *bools; i++)
        number(arg, bools[i].name, *(const unsigned char *)(bytes + bools[i].offset));
}

/* ---- merges -------------------------------------------------------------------------------------- */

/* No order of M states has more than M products and M additions, M + 2 roundings of which are there without
 * depth_extra; sums that truncate count twice. A weight meets each later state's rescaling once. */
const struct ha_claim ha_traits_numbers[HA_TRAITS_NUMBERS] = {
    { OF_TRAITS(exp_eps), HA_EXP_EPS_MAX },
    { OF_TRAITS(log_eps), HA_LOG_EPS_MAX },
    { OF_TRAITS(depth_extra), 64 },
    { OF_TRAITS(rescales), 2 },
};
static const struct {
    const char *name;
    size_t offset;
    unsigned known, needed; /* bits */
    const char *needs;
} masks[] = {
    { OF_TRAITS(forms), (1u << HA_FORM_COUNT) - 1, 0, "one of natural 1, base2 2, direct 4, max_sum 8" },
    { OF_TRAITS(dtypes), (1u << HA_DTYPE_COUNT) - 1, 0, "one of f32 1, f16 2, bf16 4" },
    { OF_TRAITS(aliases), 7u, 1u << HA_ALIAS_NONE, "1u << HA_ALIAS_NONE" },
    { OF_TRAITS(fp8), (1u << HA_FP8_COUNT) - 1, 0, NULL }, /* there may be none */
};
static const struct {
    const char *name;
    size_t offset;
} truths[] = { { OF_TRAITS(o_strides) }, { OF_TRAITS(plus_inf) }, { OF_TRAITS(commutes) }, { OF_TRAITS(varies) } };

enum ha_status ha_traits_check(const struct ha_merge_traits *t, struct ha_why *why)
{
    const char *bytes = (const char *)t;
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        unsigned x;
        memcpy(&x, bytes + masks[i].offset, sizeof x);
        if (x & ~masks[i].known)
            return ha_why(why, HA_ERROR, "its traits: %s is %#x, with bits that mean nothing (all: %#x)", masks[i].name,
                          x, masks[i].known);
        if (masks[i].needs && (x == 0 || (x & masks[i].needed) != masks[i].needed))
            return ha_why(why, HA_ERROR, "its traits: %s is %#x and lacks %s; did info() fill in merge?", masks[i].name,
                          x, masks[i].needs);
    }
    for (size_t i = 0; i < sizeof truths / sizeof *truths; i++)
        HA_TRY(bool_check("traits", truths[i].name, bytes + truths[i].offset, why));
    for (size_t i = 0; i < HA_TRAITS_NUMBERS; i++)
        HA_TRY(real_check("traits", ha_traits_numbers[i].name, bytes + ha_traits_numbers[i].offset,
                          ha_traits_numbers[i].most, why));
    int order;
    memcpy(&order, &t->lse_order, sizeof order);
    if (order < 0 || order > (int)HA_LSE_HEADS_TOKENS)
        return ha_why(why, HA_ERROR, "its traits: lse_order is %d, not from 0 to 2", order);
    if (t->states_max == 1 || t->states_max > HA_STATES_MAX)
        return ha_why(why, HA_ERROR, "its traits: states_max is %zu; it is 0 (any number) or from 2 to %d",
                      t->states_max, HA_STATES_MAX);
    return HA_OK;
}

/* ---- devices ------------------------------------------------------------------------------------- */

static enum ha_status profiles_check(const char *name, const struct ha_profile profile[HA_DTYPE_COUNT],
                                     struct ha_why *why)
{
    char of[32];
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) {
        snprintf(of, sizeof of, "%s[%s]", name, ha_dtype_name((enum ha_dtype)t));
        HA_TRY(ha_profile_check(of, &profile[t], why));
        if (profile[t].score_type != HA_F32)
            return ha_why(why, HA_ERROR, "its %s: score_type is %s, which is a state's of a variant alone", of,
                          ha_dtype_name(profile[t].score_type));
        if (profile[t].sum_least > 0)
            return ha_why(why, HA_ERROR, "its %s: sum_least is %g, which is a state's of a variant alone", of,
                          profile[t].sum_least);
    }
    return HA_OK;
}

enum ha_status ha_device_claims(const struct ha_device_api *api, struct ha_device *device, struct ha_device_info *info,
                                struct ha_why *why)
{
    memset(info, 0, sizeof *info);
    api->info(device, info);
    if (api->attend) HA_TRY(profiles_check("profile", info->profile, why));
    if (api->attend_products && !*info->no_products) HA_TRY(profiles_check("products", info->products, why));
    return api->merge ? ha_traits_check(&info->merge, why) : HA_OK;
}
