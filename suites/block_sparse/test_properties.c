/* What is lacking where a net is to say what query heads are like. What it says `habench check` judges, of fluxion. */

#include "harness/base/why.h"
#include "suites/block_sparse/properties.h"
#include "suites/parts/test_fit_of.h"
#include "suites/parts/test_instance.h"

enum { Q_HEADS = 4, KV_HEADS = 2, DIM = 8 };
static const struct ha_shape shape = { .batch = 1,
                                       .q_len = 1,
                                       .layers = 1,
                                       .q_heads = Q_HEADS,
                                       .kv_heads = KV_HEADS,
                                       .head_dim = DIM,
                                       .dtype = HA_F32,
                                       .scale = 0.6f,
                                       .steps = 1,
                                       .ctx = { 300 } };

static enum ha_status share(struct ha_layer *first, struct ha_why *because)
{
    static struct ha_properties properties;
    static struct ha_labels labels;
    return ha_properties_create(&properties, first, HA_PROPERTY_NET, &(struct ha_property){ 0 }, &labels, 256, because);
}
static const struct ha_rule rule = { .share = share };

static struct ha_fit *of_one(const char *name, size_t numbers)
{
    static const float zeros[HA_FEATURES];
    return fit_of(&(struct ha_tensor){ name, HA_T_F32, 1, { numbers }, zeros, 0 }, 1);
}

static void assert_ends(struct ha_fit *fit, enum ha_status status, const char *text)
{
    open_context(&ha_device_host, &shape, &rule);
    mine.ctx.fit = fit;
    assert_int_equal(make_instance(), status);
    if (!strstr(why.text, text)) fail_msg("not '%s': %s", text, why.text);
    close_instance();
    ha_fit_close(fit);
}

TEST(what_is_lacking_is_said)
{
    assert_ends(NULL, HA_WAIVED, "predict=net reads a net: fit=small with ");
    assert_ends(of_one("labels", 8), HA_ERROR,
                "the fit has features and labels, by which scripts/train_fluxion.py trains a net, and no net");
    assert_ends(of_one("mean", HA_FEATURES), HA_ERROR, "tensor inv is missing");
    assert_ends(of_one("mean", HA_FEATURES - 1), HA_ERROR, "tensor mean has shape [40], and [41] is wanted");
}
