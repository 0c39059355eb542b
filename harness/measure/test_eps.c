/* exp and log as they are seen from outside: those of the embedded device are as good as it says; one that is off, in a
 * merge or in attention, over part of the arguments, by more than is claimed, is seen, and the field is named. */

#include "harness/measure/eps.h"

#include "harness/base/registry.h"
#include "harness/base/test.h"
#include "harness/base/why.h"

#include <math.h>

enum { DIM = 64 };

/* What is done to the exponential, or to the logarithm, behind the device's back. */
static struct {
    double exp, log; /* relative errors, added */
    double from, to; /* of arguments */
    bool merges, attends, nan;
} bent;

extern const struct ha_device_api ha_device_host;
static struct ha_device_api api;

/* o = (1 / D, e / D): what e is, and its share when it is another */
static void bend(float *o, float *lse, bool exps)
{
    const double x = log((double)o[1] / (double)o[0]);
    if (bent.nan) o[1] = NAN;
    else if (exps && x >= bent.from && x <= bent.to) o[1] = (float)((double)o[1] * (1 + bent.exp));
    *lse = (float)((double)*lse * (1 + bent.log));
}

static enum ha_status bent_merge(struct ha_stream *stream, const struct ha_merge *m)
{
    assert_int_equal(ha_device_host.merge(stream, m), HA_OK);
    assert_int_equal(ha_device_host.stream_sync(stream), HA_OK);
    for (size_t t = 0; bent.merges && t < m->tokens; t++)
        bend((float *)m->out.o + t * m->out.o_token_stride, m->out.lse + t * m->out.lse_token_stride, true);
    return HA_OK;
}

static enum ha_status bent_attend(struct ha_stream *stream, const struct ha_device_attend *a)
{
    assert_int_equal(ha_device_host.attend(stream, a), HA_OK);
    assert_int_equal(ha_device_host.stream_sync(stream), HA_OK);
    for (size_t t = 0; bent.attends && a->dtype == HA_F16 && t < a->q_len; t++)
        bend(a->seqs->o + t * DIM, a->seqs->lse + t, !a->causal);
    return HA_OK;
}

static struct ha_device *device;
static struct ha_kernels kernels;
static struct ha_why why;

static int begin(void **state)
{
    api = ha_device_host;
    api.merge = bent_merge;
    api.attend = bent_attend;
    memset(&bent, 0, sizeof bent);
    bent.from = -200;
    return ha_kernels_resolve(NULL, &kernels, &why) != HA_OK
           || api.open(&device, &(struct ha_device_config){ .kernels = &kernels }, &why) != HA_OK;
}

static int end(void **state)
{
    api.close(device);
    return 0;
}

static enum ha_status judge(struct ha_eps *eps)
{
    struct ha_device_info info = { 0 };
    assert_int_equal(ha_eps_measure(eps, &api, device, &why), HA_OK);
    api.info(device, &info);
    why.text[0] = '\0';
    return ha_eps_check(eps, &info, HA_F16, &why);
}

TEST_WITH(ours_are_as_good_as_they_say, begin, end)
{
    struct ha_eps eps;
    assert_int_equal(judge(&eps), HA_OK);
    assert_true(eps.merge_exp.least == 0 && eps.merge_log.least == 0);
    assert_true(eps.merge_exp.worst > 0 && eps.merge_exp.worst < 8 * 0x1p-24 && eps.merge_log.worst < 8 * 0x1p-24);
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) {
        assert_true(eps.exp[t].least == 0 && eps.exp[t].worst > 0 && eps.exp[t].worst < 8 * 0x1p-24);
        assert_true(eps.log[t].least == 0 && eps.log[t].worst > 0 && eps.log[t].worst < 2 * 0x1p-24);
    }
}

TEST_WITH(what_is_off_is_seen, begin, end)
{
    static const struct {
        double exp, log, from, to;
        bool merges, attends, nan;
        const char *says;
    } bends[] = {
        { 0x1p-18, 0, -104, 0, true, false, false, "its traits: exp_eps is 1.19e-07, but the function is off by 3." },
        { -0x1p-20, 0, -104, -80, true, false, false, "its traits: exp_eps is" },
        { 0, 0x1p-16, 0, 0, true, false, false, "its traits: log_eps is" },
        { 0, 0, 0, 0, true, false, true, "its traits: exp_eps is 1.19e-07, but the function is off by inf" },
        { -1, 0, -60, -40, true, false, false, "its traits: exp_eps is 1.19e-07, but a weight of " },
        { 0x1p-18, 0, -1, 0, false, true, false, "its profile[f16]: exp_eps is" },
        { 0x1p-12, 0, -40, -30, false, true, false, "its profile[f16]: exp_eps is" },
        { 0, -0x1p-18, 0, 0, false, true, false, "its profile[f16]: log_eps is" },
    };
    for (size_t i = 0; i < COUNT(bends); i++) {
        struct ha_eps eps;
        bent.exp = bends[i].exp;
        bent.log = bends[i].log;
        bent.from = bends[i].from;
        bent.to = bends[i].to;
        bent.merges = bends[i].merges;
        bent.attends = bends[i].attends;
        bent.nan = bends[i].nan;
        if (judge(&eps) != HA_FAIL || strncmp(why.text, bends[i].says, strlen(bends[i].says)) != 0)
            fail_msg("%zu: '%s', and not '%s'", i, why.text, bends[i].says);
    }
}

/* Cases have such weights. */
TEST_WITH(a_merge_that_drops_weights_is_told_by_its_cases, begin, end)
{
    struct ha_eps eps;
    bent.exp = -1;
    bent.from = -104;
    bent.to = -8;
    bent.merges = true;
    assert_int_equal(judge(&eps), HA_OK);
    assert_true(eps.merge_exp.dropped > 3e-4 && eps.merge_exp.dropped <= exp(-8));
}

TEST_WITH(who_offers_nothing_is_not_asked, begin, end)
{
    struct ha_eps eps;
    api.merge = NULL;
    api.attend = NULL;
    assert_int_equal(judge(&eps), HA_OK);
    assert_true(isnan(eps.merge_exp.least) && isnan(eps.exp[HA_F32].least) && isnan(eps.log[HA_BF16].worst));
}
