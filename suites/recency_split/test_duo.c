/* duo: a retrieval head is one of resident and a streaming head one of streaming, which head is which the order or a
 * fit says, and of a streaming head no more is held than it reads. */

#include "suites/recency_split/test_outputs.h"

#include "harness/base/fit.h"

#define SHAPE  "ctx=90,heads=4/2,head_dim=24,layers=2,threads=1,dtype=f32"
#define OF_3   "ctx=90,heads=4/2,head_dim=24,layers=3,threads=1,dtype=f32"
#define STREAM ",sink=5,recent=20"

TEST(of_retrieval_heads_alone_it_is_resident)
{
    expect_same("duo:" SHAPE STREAM ",steps=30,retrieval=1", "resident:" SHAPE ",steps=30");
    expect_same("duo:" SHAPE STREAM ",steps=3,q_len=7,retrieval=1", "resident:" SHAPE ",steps=3,q_len=7");
}

TEST(of_streaming_heads_alone_it_is_streaming)
{
    static const struct {
        const char *id, *window;
    } of[] = {
        { "duo:" SHAPE STREAM ",steps=50,retrieval=0", "streaming:" SHAPE ",steps=50,sink=5,window=21" },
        { "duo:" SHAPE STREAM ",steps=3,q_len=33,retrieval=0",
          "streaming:" SHAPE ",steps=3,q_len=33,sink=5,window=53" },
        { "duo:" SHAPE ",steps=4,q_len=2,retrieval=0,sink=0,recent=0",
          "streaming:" SHAPE ",steps=4,q_len=2,sink=0,window=2" },
        { "duo:" SHAPE ",steps=4,retrieval=0,sink=200,recent=1", "streaming:" SHAPE ",steps=4,sink=200,window=2" },
    };
    for (size_t i = 0; i < COUNT(of); i++) expect_same(of[i].id, of[i].window);
}

/* Of two KV heads in each of three layers: head 0, 1, 0 and then 1, 0, 1. */
TEST(heads_become_retrieval_heads_one_of_each_layer_after_the_other)
{
    static const size_t order[6][2] = { { 0, 0 }, { 1, 1 }, { 2, 0 }, { 0, 1 }, { 1, 0 }, { 2, 1 } };
    static const struct {
        const char *share;
        size_t count;
    } of[] = { { "0", 0 }, { "0.1", 1 }, { "0.5", 3 }, { "0.51", 4 }, { "1", 6 } };
    struct outputs full = outputs_of("resident:" OF_3 ",steps=12"),
                   window = outputs_of("streaming:" OF_3 ",steps=12,sink=5,window=21");
    for (size_t i = 0; i < COUNT(of); i++) {
        char id[128];
        snprintf(id, sizeof id, "duo:" OF_3 STREAM ",steps=12,retrieval=%s", of[i].share);
        struct outputs x = outputs_of(id);
        for (size_t step = 0; step < 12; step++)
            for (size_t j = 0; j < 6; j++)
                for (size_t head = 2 * order[j][1]; head < 2 * order[j][1] + 2; head++)
                    if (!same_head(&x, j < of[i].count ? &full : &window, step, order[j][0], head))
                        fail_msg("%s: step %zu layer %zu head %zu", id, step, order[j][0], head);
        outputs_free(&x);
    }
    outputs_free(&full);
    outputs_free(&window);
}

/* Of the 8 KV heads 3. */
TEST(the_most_important_heads_of_a_fit_are_retrieval_heads)
{
    open_session("duo:dataset=walk,heads=8/2,layers=4,ctx=300,sink=4,recent=64,steps=1,retrieval=0.3,fit=duo_walk");
    struct ha_tensor t = { .name = "importance_kv", .type = HA_T_F32, .dims = 2, .dim = { 4, 2 } };
    float importance[8], least = 2, most = -1;
    size_t count = 0;
    assert_ok(ha_fit_get(session.fit, &t, &reason));
    memcpy(importance, t.data, sizeof importance);
    struct outputs x = outputs_of_session();
    for (size_t i = 0; i < 8; i++) {
        const size_t keys = keys_used(&x, 0, i / 2, i % 2 * 4);
        assert_true(keys == 301 || keys == 4 + 64 + 1);
        count += keys == 301;
        if (keys == 301) least = fminf(least, importance[i]);
        else most = fmaxf(most, importance[i]);
    }
    assert_int_equal(count, 3);
    assert_true(least >= most);
    outputs_free(&x);
}

/* Of each layer's two heads one has 90 + 6 rows, and the other 25, in blocks of 16, and there is a block more. */
TEST(a_streaming_head_holds_what_it_reads)
{
    struct outputs x = outputs_of("duo:" SHAPE STREAM ",steps=6"), all = outputs_of("resident:" SHAPE ",steps=6");
    const size_t row = 24 * sizeof(float), rows = 96 + 25, most = 96 + 32 + 16 + 16;
    assert_true(x.kv_bytes >= 2 * 2 * rows * row && x.kv_bytes <= 2 * 2 * (most * row + 256));
    assert_true(x.kv_bytes < all.kv_bytes);
    outputs_free(&x);
    outputs_free(&all);
}
