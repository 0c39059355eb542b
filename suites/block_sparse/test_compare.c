/* How alike two queries are said to be, by hand. Means over random ones, and what changes of choices, `habench check`
 * judges, of scout. */

#include "suites/block_sparse/compare.h"
#include "suites/parts/test_instance.h"

#include <math.h>

enum { DIM = 3 };
static const struct ha_shape shape = {
    .layers = 2, .batch = 1, .q_len = 1, .q_heads = 1, .kv_heads = 1, .head_dim = DIM, .dtype = HA_F32
};
static const struct ha_rule nothing = { .seq_bytes = 0 };

static void hear(void *arg, const char *name, size_t layer, double value)
{
    assert_string_equal(name, "cosine");
    assert_int_equal(layer, 1);
    *(double *)arg = value;
}

TEST(cosines_by_hand)
{
    static const struct {
        float is[DIM], predicted[DIM];
        double cosine;
    } cases[] = {
        { { 3, 4, 0 }, { 4, 3, 0 }, 0.96 },      { { 3, 4, 0 }, { 0, 0, 7 }, 0 },
        { { 1, 2, 2 }, { -2, -4, -4 }, -1 },     { { 1, 2, 2 }, { 100, 200, 200 }, 1 },
        { { 0, 0, 0 }, { 1, 0, 0 }, 0 },         { { 0, 0, 0 }, { 0, 0, 0 }, 0 },
        { { 2, 3, 6 }, { 2, -3, 6 }, 31. / 49 }, { { 1e30F, 0, 0 }, { 1e30F, 1e30F, 0 }, 0.70710678118654752 },
    };
    struct ha_compare c;
    open_context(&ha_device_host, &shape, &nothing);
    ok(ha_compare_create(&c, &mine.ctx, 1, 1, &why));
    float *q = memory_of(HA_MEM_DEVICE, sizeof cases[0].is);
    for (size_t i = 0; i < COUNT(cases); i++) {
        double said = -2;
        move(q, cases[i].is, sizeof cases[i].is, HA_H2D);
        ha_compare_reset(&c, 1);
        ok(ha_compare_down(&c, &(struct ha_step){ .q = q }));
        ha_compare_query(&c, 1, 0, 0, cases[i].predicted);
        ha_compare_count(&c, 1, hear, &said);
        assert_near(said, cases[i].cosine, 1e-14);
    }
    close_instance();
}
