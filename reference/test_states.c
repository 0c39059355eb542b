#include "reference/test_states.h"

#include <float.h>

static float normal(const struct ha_test_draw *d, size_t i) { return ha_rng_normal(d->seed, d->k, i); }
static size_t below(const struct ha_test_draw *d, size_t i, size_t n) { return ha_rng_below(d->seed, d->k, i, n); }

enum { LSE = 1000, SIZE = 2000 }; /* of the numbers of a state, those not of o */

static float equal(const struct ha_test_draw *d) { return 3.5f + 0 * (float)d->k; }
static float close(const struct ha_test_draw *d) { return normal(d, LSE); }
static float apart(const struct ha_test_draw *d) { return 30 * normal(d, LSE); }
static float positive(const struct ha_test_draw *d) { return 1000 - (float)below(d, LSE, 3); }
static float negative(const struct ha_test_draw *d)
{
    return -120 - 900 * (float)(d->seed % 2) - (float)below(d, LSE, 3);
}
static float masked(const struct ha_test_draw *d) { return d->k % 2 ? -1e5f : -1.1e4f + normal(d, LSE); }
static float shifted(const struct ha_test_draw *d) { return 3e5f + normal(d, LSE); }
static float gap(const struct ha_test_draw *d)
{
    static const float gaps[] = { 0, 0, 60, 78, 82, 86, 87, 87.5f, 88, 94, 103, 104, 150 };
    return 10 - gaps[d->k == 0 ? 0 : below(d, LSE, 13)] + 0.5f * normal(d, LSE + 1);
}
static float sink(const struct ha_test_draw *d) { return d->k == 0 ? 20.1f : 13.8155f; }
static float tiny(const struct ha_test_draw *d) { return d->k % 3 == 0 ? -0.0f : d->k % 3 == 1 ? 1e-7f : -0.69314718f; }
static float extreme(const struct ha_test_draw *d)
{
    static const float ends[] = { FLT_MAX, -FLT_MAX, 1e30f, -1e30f, 0, FLT_MAX };
    return ends[below(d, LSE, 6)];
}
static float some(const struct ha_test_draw *d) { return below(d, LSE, 2) ? -INFINITY : normal(d, LSE + 1); }

const struct ha_test_lse_family ha_test_lse_family[] = {
    { "equal", equal },       { "close", close },   { "apart", apart },     { "positive", positive },
    { "negative", negative }, { "masked", masked }, { "shifted", shifted }, { "gap", gap },
    { "sink", sink },         { "tiny", tiny },     { "extreme", extreme }, { "some empty", some },
};
const size_t ha_test_lse_families = COUNT(ha_test_lse_family);

static float largest(enum ha_dtype t) { return t == HA_F16 ? 65504 : t == HA_BF16 ? 0x1.fep127f : FLT_MAX; }

static float any(const struct ha_test_draw *d, size_t i) { return normal(d, i); }
static float one_sign(const struct ha_test_draw *d, size_t i) { return 1 + ha_rng_uniform(d->seed, d->k, i); }
static float one_value(const struct ha_test_draw *d, size_t i) { return 1 + ha_rng_uniform(d->seed, 0, i); }
static float opposed(const struct ha_test_draw *d, size_t i)
{
    return (d->k % 2 ? -1.0f : 1.0f) * (d->dtype == HA_F16 ? 1000 : 1e20f) * one_value(d, i) + normal(d, i);
}
static float wide(const struct ha_test_draw *d, size_t i)
{
    const float decades = d->dtype == HA_F16 ? 4 : 25;
    return normal(d, i) * powf(10, decades * (2 * ha_rng_uniform(d->seed, d->k, SIZE + i) - 1));
}
/* values with little weight are as large as the type holds, the others small */
static float inverse(const struct ha_test_draw *d, size_t i)
{
    return normal(d, i) * (d->k == 0 ? (d->dtype == HA_F16 ? 1e-6f : 1e-30f) : 0.1f * largest(d->dtype));
}
static float subnormal(const struct ha_test_draw *d, size_t i)
{
    return normal(d, i) * (d->dtype == HA_F16 ? 0x1p-20f : 0x1p-135f);
}
static float full(const struct ha_test_draw *d, size_t i)
{
    return largest(d->dtype) * (i % 2 ? -1.0f : 1.0f) * (0.25f + 0 * (float)d->k);
}

const struct ha_test_o_family ha_test_o_family[] = {
    { "any", any, false },
    { "one sign", one_sign, false },
    { "one value", one_value, false },
    { "opposed", opposed, true },
    { "wide", wide, false },
    { "inverse", inverse, true },
    { "subnormal", subnormal, false },
    { "full", full, true },
};
const size_t ha_test_o_families = COUNT(ha_test_o_family);

size_t ha_test_lse_named(const char *name)
{
    size_t i = 0;
    while (strcmp(ha_test_lse_family[i].name, name) != 0) i++;
    return i;
}
size_t ha_test_o_named(const char *name)
{
    size_t i = 0;
    while (strcmp(ha_test_o_family[i].name, name) != 0) i++;
    return i;
}

void ha_test_states(struct ha_test_stored *s, size_t count, size_t dim, enum ha_form form, enum ha_dtype dtype,
                    size_t lse, size_t o, uint64_t seed)
{
    for (size_t k = 0; k < count; k++) {
        const struct ha_test_draw d = { seed, k, dtype };
        const float natural = ha_test_lse_family[lse].lse(&d);
        for (size_t i = 0; i < dim; i++) s[k].o[i] = ha_round(ha_test_o_family[o].o(&d, i), dtype);
        s[k].lse = natural;
        s[k].sum = 0;
        if (form == HA_FORM_BASE2) s[k].lse = natural * (fabsf(natural) < 1e38f ? 1.44269504f : 1);
        if (form == HA_FORM_MAX_SUM && natural != -INFINITY) {
            s[k].sum = expf(12 * ha_rng_uniform(seed, seed % 2 ? k : 0, LSE + 5)); /* 1 to 10^5 keys */
            if (fabsf(natural) < 1e6f) s[k].lse -= logf(s[k].sum);
        }
    }
}

bool ha_test_overflows(const struct ha_test_merge_method *way, size_t o, size_t count, enum ha_dtype dtype)
{
    return dtype != HA_F16 && ha_test_o_family[o].large && (way->form == HA_FORM_MAX_SUM || count > 2)
           && way->way != HA_TEST_SHARES;
}
