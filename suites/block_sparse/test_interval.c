/* How many steps lie between two recalls: of all layers what a case says, or of each its own, by a fit. */

#include "suites/block_sparse/recall.h"
#include "suites/parts/test_fit_of.h"
#include "suites/parts/test_instance.h"

enum { LAYERS = 5 };
static const struct ha_shape shape = { .batch = 1,
                                       .q_len = 1,
                                       .layers = LAYERS,
                                       .q_heads = 1,
                                       .kv_heads = 1,
                                       .head_dim = 4,
                                       .dtype = HA_F32,
                                       .scale = 1,
                                       .ctx = { 16 } };

static struct ha_recall r;
static enum ha_status share(struct ha_layer *first, struct ha_why *because)
{
    return ha_recall_create(&r, first, 8, 1, false, HA_FETCH_PIECES, because);
}
static const struct ha_rule rule = { .share = share };

static struct ha_fit *of_one(const char *name, const float interval[LAYERS])
{
    return fit_of(&(struct ha_tensor){ name, HA_T_F32, 1, { LAYERS }, interval, LAYERS * sizeof *interval }, 1);
}

static void open_recall(const struct ha_fit *fit)
{
    open_context(&ha_device_host, &shape, &rule);
    mine.ctx.fit = fit;
    ok(make_instance());
    for (size_t i = 0; i < LAYERS; i++) assert_int_equal(r.layer[i].interval, 0);
}

TEST(test_said)
{
    open_recall(NULL);
    ok(ha_recall_every(&r, 3, &why));
    for (size_t i = 0; i < LAYERS; i++) assert_int_equal(r.layer[i].interval, 3);
    close_instance();
}

/* Rounded towards 0, and at least 1; but what a case says goes first. */
TEST(test_fitted)
{
    static const float fitted[LAYERS] = { 5.9F, 0.25F, -3, 1e30F, 7 };
    static const size_t interval[LAYERS] = { 5, 1, 1, 1 << 24, 7 };
    struct ha_fit *fit = of_one("interval", fitted);
    open_recall(fit);
    ok(ha_recall_every(&r, 2, &why));
    for (size_t i = 0; i < LAYERS; i++) assert_int_equal(r.layer[i].interval, 2);
    ok(ha_recall_every(&r, 0, &why));
    for (size_t i = 0; i < LAYERS; i++) assert_int_equal(r.layer[i].interval, interval[i]);
    close_instance();
    ha_fit_close(fit);
}

TEST(test_not_fitted)
{
    open_recall(NULL);
    assert_int_equal(ha_recall_every(&r, 0, &why), HA_WAIVED);
    assert_contains(why.text, "interval=0 takes the intervals of a fit");
    close_instance();
    struct ha_fit *fit = of_one("drift", (const float[LAYERS]){ 1, 2, 3, 4, 5 });
    open_recall(fit);
    assert_int_equal(ha_recall_every(&r, 0, &why), HA_ERROR);
    close_instance();
    ha_fit_close(fit);
}
