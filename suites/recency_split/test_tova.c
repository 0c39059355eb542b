/* tova: with room for everything it is full attention; what it drops for equal weights are the oldest tokens, so that
 * it is a window; all heads use the same keys, as many as there is room for, and no more are held. */

#include "suites/recency_split/test_outputs.h"

#define SHAPE "ctx=90,heads=4/2,head_dim=24,layers=2,threads=1,dtype=f32"

TEST(with_room_for_all_it_is_resident)
{
    expect_same("tova:" SHAPE ",steps=5,budget=2", "resident:" SHAPE ",steps=5");
    expect_same("tova:" SHAPE ",steps=3,q_len=7,budget=2", "resident:" SHAPE ",steps=3,q_len=7");
    expect_same("tova:" SHAPE ",steps=1,q_len=7,budget=1", "resident:" SHAPE ",steps=1,q_len=7");
}

/* All weights of a step are 0. */
static const struct ha_device_api *real;
static struct ha_device_api shim;
static const float zeros[4 * 128];

static enum ha_status weigh_nothing(struct ha_stream *stream, const struct ha_device_attend *args)
{
    const struct ha_device_seq *seq = args->seqs;
    assert_true(args->batch == 1 && args->q_heads * seq->weights_stride <= COUNT(zeros));
    HA_TRY(real->attend(stream, args));
    return real->copy(stream, seq->weights, zeros, args->q_heads * seq->weights_stride * sizeof(float), HA_H2D);
}

/* Without observed queries and with weights that are equal the newest tokens stay. */
TEST(of_equal_weights_the_older_token_is_dropped)
{
    static const struct {
        const char *id, *window;
    } of[] = { { "tova:" SHAPE ",steps=60,observed=0,budget=0.5", "streaming:" SHAPE ",steps=60,sink=0,window=46" },
               { "tova:" SHAPE ",steps=9,q_len=8,observed=0,budget=0.1",
                 "streaming:" SHAPE ",steps=9,q_len=8,sink=0,window=17" },
               { "tova:" SHAPE ",steps=3,observed=0,budget=0", "streaming:" SHAPE ",steps=3,sink=0,window=2" } };
    for (size_t i = 0; i < COUNT(of); i++) {
        open_session(of[i].id);
        real = session.variant_api;
        shim = *real;
        shim.attend = weigh_nothing;
        session.variant_api = &shim;
        struct outputs x = outputs_of_session(), y = outputs_of(of[i].window);
        for (size_t j = 0; j < x.shape.steps * 2 * 4; j++)
            if (!same_head(&x, &y, j / 8, j / 4 % 2, j % 4)) fail_msg("%s: step %zu", of[i].id, j / 8);
        outputs_free(&x);
        outputs_free(&y);
    }
}

/* floor(0.29 * 90) = 26 tokens and the step's own, K and V of 2 heads of 24 floats; the device's blocks are aligned. */
TEST(a_layer_has_room_for_so_many_tokens)
{
    struct outputs x = outputs_of("tova:" SHAPE ",steps=6,q_len=3,budget=0.29");
    for (size_t step = 0; step < 6; step++)
        for (size_t layer = 0; layer < 2; layer++)
            for (size_t head = 0; head < 4; head++) {
                const size_t at = ((step * 2 + layer) * 4 + head) * x.tokens, first = at - head * x.tokens;
                assert_int_equal(keys_used(&x, step, layer, head), 26 + 3);
                assert_memory_equal(x.used + at, x.used + first, x.tokens);
            }
    const size_t held = 2 * 2 * (26 + 3) * 2 * 24 * sizeof(float);
    assert_true(x.kv_bytes >= held && x.kv_bytes <= held + 4 * 256);
    outputs_free(&x);
}
