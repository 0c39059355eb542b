/* Of equal weights tova drops the oldest tokens, so that it is a window; and of a layer or a head no more is held than
 * it reads. Else `habench check` judges what is kept. */

#include "suites/variants/check.h"
#include "suites/variants/test_session.h"

#define SHAPE "ctx=90,heads=4/2,head_dim=24,layers=2,threads=1,dtype=f32"

/* All weights of a step are 0. */
static const struct ha_device_api *real;
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
        const char *id;
        size_t room;
    } of[] = { { "tova:" SHAPE ",steps=60,observed=0,budget=0.5", 45 },
               { "tova:" SHAPE ",steps=9,q_len=8,observed=0,budget=0.1", 9 },
               { "tova:" SHAPE ",steps=3,observed=0,budget=0", 1 } };
    for (size_t i = 0; i < COUNT(of); i++) {
        struct ha_pass p;
        struct ha_device_api shim;
        open_session(of[i].id);
        const struct ha_shape *s = &session.workload->shape;
        real = session.variant_api;
        shim = *real;
        shim.attend = weigh_nothing;
        session.variant_api = &shim;
        begin_pass(&p, true);
        for (size_t step = 0; step < s->steps; step++) {
            const size_t tokens = 90 + (step + 1) * s->q_len, keys = of[i].room + s->q_len;
            assert_ok(ha_pass_step(&p, step, &reason));
            for (size_t j = 0; j < 2 * 4; j++) {
                struct ha_selection x;
                p.variant->selection(p.instance, j / 4, 0, j % 4, &x);
                assert_true(x.parts == 1 && x.part[0].count == keys);
                for (size_t t = 0; t < keys; t++)
                    if (x.part[0].token[t] + keys < tokens) fail_msg("%s: step %zu", of[i].id, step);
            }
        }
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        close_session();
    }
}

/* K and V of KV heads of 24 floats, in blocks that the device aligns. */
TEST(no_more_is_held_than_is_read)
{
    enum { ROW = 2 * 24 * sizeof(float) };
    static const struct {
        const char *id;
        size_t least, most;
    } of[] = {
        /* of each of two layers floor(0.29 * 90) = 26 tokens and the step's own */
        { "tova:" SHAPE ",steps=6,q_len=3,budget=0.29", 2 * 2 * (26 + 3) * ROW, 2 * 2 * (26 + 3) * ROW + 4 * 256 },
        /* of each layer's two heads one has 90 + 6 rows, and the other 25, in blocks of 16, and there is a block more
         */
        { "duo:" SHAPE ",sink=5,recent=20,steps=6", 2 * (96 + 25) * ROW, 2 * (96 + 32 + 16 + 16) * ROW + 4 * 256 },
    };
    for (size_t i = 0; i < COUNT(of); i++) {
        struct ha_check c = { .session = &session, .id = of[i].id };
        open_session(of[i].id);
        assert_ok(ha_check_run(&c, &reason));
        assert_in_range(c.kv_device_bytes, of[i].least, of[i].most);
        ha_check_free(&c);
        close_session();
    }
}
