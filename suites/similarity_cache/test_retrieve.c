/* Matrices of a fit, of which no case of `habench check` has any. What is retrieved it judges, of clo. */

#include "suites/similarity_cache/retrieve.h"
#include "suites/parts/test_fit_of.h"
#include "suites/parts/test_instance.h"

#include "harness/base/rng.h"

enum { KV_HEADS = 2, DIM = 8, LAYERS = 2, BITS = 64 };

static const struct ha_shape shape = { .layers = LAYERS,
                                       .batch = 1,
                                       .q_heads = KV_HEADS,
                                       .kv_heads = KV_HEADS,
                                       .head_dim = DIM,
                                       .dtype = HA_F16,
                                       .scale = 0.5f,
                                       .q_len = 1,
                                       .steps = 8 };
static const struct ha_rule nothing = { .seq_bytes = 0 };
static struct ha_retrieve r;

static enum ha_status create_learned(struct ha_fit *fit, size_t bits)
{
    const struct ha_retrieve_rule rule = { .by = HA_RETRIEVE_HATA, .hash = HA_HASH_LEARNED, .bits = bits };
    mine.ctx.fit = fit;
    return ha_retrieve_create(&r, &mine.ctx, &rule, &why);
}

TEST(learned_matrices_are_those_of_the_fit)
{
    static float a[LAYERS * KV_HEADS * BITS * DIM];
    const struct ha_tensor tensor[] = {
        { .name = "importance_kv", .type = HA_T_F32, .dims = 1, .dim = { 4 }, .data = a },
        { .name = "hash", .type = HA_T_F32, .dims = 4, .dim = { LAYERS, KV_HEADS, BITS, DIM }, .data = a }
    };
    for (size_t i = 0; i < COUNT(a); i++) a[i] = ha_rng_normal(1, 2, i);
    struct ha_fit *fit = fit_of(tensor, 2), *other = fit_of(tensor, 1);
    open_context(&ha_device_host, &shape, &nothing);
    assert_int_equal(create_learned(NULL, BITS), HA_WAIVED);
    assert_contains(why.text, "hash=learned takes the matrices of a fit");
    assert_int_equal(create_learned(other, BITS), HA_WAIVED);
    assert_contains(why.text, "hash=random");
    assert_int_equal(create_learned(fit, 2 * BITS), HA_ERROR);
    assert_contains(why.text, "hash");
    ok(create_learned(fit, BITS));
    for (size_t l = 0; l < LAYERS; l++)
        assert_memory_equal(r.a[l], a + l * KV_HEADS * BITS * DIM, KV_HEADS * BITS * DIM * sizeof *a);
    close_instance();
    ha_fit_close(fit);
    ha_fit_close(other);
}
