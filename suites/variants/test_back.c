/* A pass that goes back to the prefill does what it did at first: the same bits come out, and the same is counted. */

#include "suites/variants/check.h"
#include "suites/variants/test_session.h"

#include <stdlib.h>

#define SHAPE ",heads=4/2,head_dim=24,layers=3,threads=2,ctx="
#define FEW   SHAPE "53+80,steps=30"
#define AHEAD ":dataset=walk" SHAPE "300+145,steps=10"

static const char *const ids[] = {
    "hgca:dataset=iid" FEW ",blk_size=4,blk_num=5",
    "quest:dataset=iid" FEW ",block=8,budget=24",
    "topk" AHEAD ",k=20,query=ahead",
    "hybrid_fixed:dataset=iid" FEW ",sink=5,recent=12,budget=0.3",
    "infinigen" AHEAD,
    "gpu_only:dataset=iid" FEW ",block=8,budget=0.3",
    "gpu_only:dataset=iid" SHAPE "53,steps=4,q_len=19,block=8,budget=0.3,fetch=pieces",
    "scout" AHEAD ",block=8,budget=45,recall=wait,interval=2",
    "fluxion" AHEAD ",sink=16,recent=32,predict=fixed,budget=0.25,schedule=uniform,fetch=move",
    "fluxion" AHEAD ",sink=16,recent=32,predict=oracle,schedule=length,q_len=2",
    "lru_blocks:dataset=iid" FEW ",block=8,sink=5,recent=11,budget=0.3,capacity=1",
    "lru_blocks:dataset=iid" FEW ",block=8,sink=5,recent=11,budget=0.3,policy=lfu,lookup=device,fetch=move",
    "pqcache:dataset=iid" FEW ",c=16,budget=0.3,capacity=1.4",
    "hcattention:dataset=iid" FEW ",c=16,fresh=8",
    "clo" AHEAD ",sink=5,recent=12,threshold=fixed,eta=0.95,budget=0.2",
    "clo" AHEAD ",sink=5,recent=4,threshold=fixed,eta=0.9,budget=0.2,q_len=7,retrieve=quest,sync=cpu",
    "clo:dataset=walk" SHAPE "14+3,steps=10,sink=5,recent=12,threshold=fixed,eta=0.9,budget=1",
};

static bool is_time(const char *name)
{
    const size_t n = strlen(name);
    return n > 3 && !strcmp(name + n - 3, "_ns");
}

static void expect_same(const char *id, const struct ha_counted *is, const struct ha_counted *was)
{
    assert_int_equal(is->count, was->count);
    for (size_t i = 0; i < is->count; i++)
        if (is->of[i].value != was->of[i].value && !is_time(is->of[i].name))
            fail_msg("%s: %s of layer %zu is %g, and was %g", id, is->of[i].name, is->of[i].layer, is->of[i].value,
                     was->of[i].value);
}

TEST(back_to_the_prefill)
{
    for (size_t i = 0; i < COUNT(ids); i++) {
        struct ha_pass p;
        struct ha_counted counted[2] = { { .count = 0 }, { .count = 0 } };
        open_session(ids[i]);
        const size_t bytes = session.workload->shape.layers * session.io.out_bytes, last = opened.c.shape.steps - 1;
        unsigned char *first = malloc(2 * bytes);
        begin_pass(&p, false);
        for (int again = 0; again < 2; again++) {
            for (size_t step = 0; step <= last; step++) assert_ok(ha_pass_step(&p, step, &reason));
            assert_ok(ha_pass_settle(&p, &reason));
            for (size_t k = 0; k < 2; k++) {
                assert_ok(ha_pass_download(&p, k ? last : 1, &reason));
                if (!again) memcpy(first + k * bytes, session.host_out, bytes);
                else if (memcmp(first + k * bytes, session.host_out, bytes) != 0) fail_msg("%s: other bits", ids[i]);
            }
            assert_ok(ha_counted_read(&counted[again], &p, &reason));
            assert_ok(ha_pass_rewind(&p, &reason));
        }
        expect_same(ids[i], &counted[1], &counted[0]);
        for (int k = 0; k < 2; k++) ha_counted_free(&counted[k]);
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        free(first);
        close_session();
    }
}
