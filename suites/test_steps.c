/* A step allocates nothing: what a variant needs it has from create and prefill; and where one of these gets no memory,
 * whichever time it asks, the pass ends in good order. Linked with the arenas' functions wrapped, so that each call is
 * counted, on whatever thread. What a device allocates for itself is its own. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "suites/variants/test_session.h"

#include <stdatomic.h>

void *__real_ha_alloc(struct ha_arena *arena, size_t bytes, enum ha_tag tag, struct ha_why *why);
void *__wrap_ha_alloc(struct ha_arena *arena, size_t bytes, enum ha_tag tag, struct ha_why *why);
void *__real_ha_grow(struct ha_arena *arena, void *ptr, size_t keep, size_t bytes, enum ha_tag tag, struct ha_why *why);
void *__wrap_ha_grow(struct ha_arena *arena, void *ptr, size_t keep, size_t bytes, enum ha_tag tag, struct ha_why *why);

void *__real_ha_device_alloc(struct ha_device_arena *arena, enum ha_memory kind, size_t bytes, enum ha_tag tag,
                             struct ha_why *why);
void *__wrap_ha_device_alloc(struct ha_device_arena *arena, enum ha_memory kind, size_t bytes, enum ha_tag tag,
                             struct ha_why *why);

static struct ha_pass pass;
static atomic_size_t allocations; /* from its arenas */
static size_t failing;            /* the one that fails, from 1; 0: none */

static bool fails(bool counts) { return atomic_fetch_add(&allocations, counts) + counts == failing && counts; }

void *__wrap_ha_alloc(struct ha_arena *arena, size_t bytes, enum ha_tag tag, struct ha_why *why)
{
    return fails(arena == pass.arena) ? NULL : __real_ha_alloc(arena, bytes, tag, why);
}

void *__wrap_ha_grow(struct ha_arena *arena, void *ptr, size_t keep, size_t bytes, enum ha_tag tag, struct ha_why *why)
{
    return fails(arena == pass.arena) ? NULL : __real_ha_grow(arena, ptr, keep, bytes, tag, why);
}

void *__wrap_ha_device_alloc(struct ha_device_arena *arena, enum ha_memory kind, size_t bytes, enum ha_tag tag,
                             struct ha_why *why)
{
    return fails(arena == pass.device_arena) ? NULL : __real_ha_device_alloc(arena, kind, bytes, tag, why);
}

#define SHAPE   "heads=4/2,head_dim=64,layers=2,steps=41,threads=2,ctx="
#define RING    ",blk_size=4,blk_num=3"
#define FLUXION ",sink=8,recent=16"
#define LABELS  ",dataset=walk,recent=16,budget=0.3,eta=0.9"
#define CACHE   ",block=8,recent=16,budget=0.3,capacity=1"

static const char *const ids[] = {
    "cpu:" SHAPE "100",
    "cpu:" SHAPE "100,q_len=5",
    "cpu:" SHAPE "100+31,layout=natural",
    "cpu_only:" SHAPE "100",
    "copy_only:" SHAPE "100",
    "device_only:" SHAPE "100",
    "offload:" SHAPE "100",
    "resident:" SHAPE "100",
    "streaming:" SHAPE "100",
    "h2o:" SHAPE "100",
    "tova:" SHAPE "100",
    "duo:" SHAPE "100,sink=4,recent=16",
    "quest:" SHAPE "100,dense_layers=1,budget=32",
    "topk:" SHAPE "100,k=20",
    "topk:" SHAPE "100+3,k=20,fetch=move,group=union,query=ahead,dataset=residual",
    "topk:" SHAPE "100,k=20,fetch=gather,query=ahead,predict=cpu,dataset=walk,model_dim=128",
    "hybrid_fixed:" SHAPE "100,sink=8,recent=16,budget=0.3",
    "hybrid_fixed:" SHAPE "100+3,sink=8,recent=16,budget=0.3,q_len=3,group=union,layout=natural,block=32",
    "infinigen:" SHAPE "100+3,dataset=residual,fetch=move",
    "infinigen:" SHAPE "100,group=max,fetch=gather,predict=cpu,dataset=walk,model_dim=128",
    "gpu_only:" SHAPE "100,block=8,budget=0.3",
    "gpu_only:" SHAPE "100+3,block=8,budget=0.3,fetch=pieces,q_len=2",
    "gpu_only:" SHAPE "100,block=8,budget=0.3,fetch=move,group=max",
    "scout:" SHAPE "100+3,block=8,budget=32,interval=1,dataset=residual",
    "scout:" SHAPE "100,block=8,budget=32,interval=3,fetch=move,predict=oracle,resident=all,group=head",
    "scout:" SHAPE "100,block=8,budget=32,cache=8,interval=2,fetch=gather,precompute=off,teams=none",
    "fluxion:" SHAPE "300" FLUXION ",predict=fixed",
    "fluxion:" SHAPE "300+3" FLUXION ",predict=oracle,q_len=3,schedule=length,fetch=move,dataset=walk",
    "fluxion:" SHAPE "300+170" FLUXION ",predict=oracle,schedule=uniform,fetch=pieces,union=1,criterion=score",
    "fluxion:" SHAPE "300" FLUXION ",predict=fixed,schedule=none,granularity=32,skip_streaming=0,digest=mean",
    "lru_blocks:" SHAPE "100" CACHE,
    "lru_blocks:" SHAPE "100+3" CACHE ",q_len=3,policy=lfu,lookup=device,fetch=move",
    "lru_blocks:" SHAPE "100" CACHE ",lookup=device,fetch=gather,dataset=walk",
    "pqcache:" SHAPE "100,budget=0.3",
    "pqcache:" SHAPE "100+3,budget=0.3,q_len=3,policy=lru,lookup=cpu,fetch=move",
    "hcattention:" SHAPE "100,c=16,fresh=8",
    "hcattention:" SHAPE "100+3,c=16,fresh=8,q_len=3,values=device,weights=f16,table=f16",
    "hcattention:" SHAPE "100,c=512,fresh=1,pack=1,books=separate,renorm=1,overlap=0",
    "hcattention:" SHAPE "100,keys=exact,renorm=1",
    "clo:" SHAPE "100" LABELS,
    "clo:" SHAPE "100+3" LABELS ",q_len=3,retrieve=quest,group=min,transfer=kernel,predict=cpu",
    "clo:" SHAPE "100" LABELS ",retrieve=exact,prefetch=0,transfer=gather,sync=cpu",
    "clo:" SHAPE "100+40" LABELS ",persistent=all,transfer=pieces,stores=1",
    "hgca:" SHAPE "100" RING,
    "hgca:" SHAPE "103" RING ",beta=-1",
    "hgca:" SHAPE "100+3" RING ",heads_per_task=3,beta=0.5",
};

TEST(test_steps)
{
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        open_session(ids[i]);
        begin_pass(&pass, false);
        size_t before = atomic_load(&allocations);
        assert_true(before > 1);
        for (size_t step = 0; step < opened.c.shape.steps; step++)
            if (ha_pass_step(&pass, step, &reason) != HA_OK) fail_msg("%s: %s", ids[i], reason.text);
        if (ha_pass_settle(&pass, &reason) != HA_OK) fail_msg("%s: %s", ids[i], reason.text);
        size_t made = atomic_load(&allocations) - before;
        if (made) fail_msg("%s: %zu allocations in %zu steps", ids[i], made, opened.c.shape.steps);
        assert_ok(ha_pass_end(&pass, HA_OK, &reason));
        close_session();
    }
}

TEST(test_failures)
{
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        enum ha_status status = HA_ERROR;
        open_session(ids[i]);
        for (failing = 1; status != HA_OK; failing++) {
            atomic_store(&allocations, 0);
            status = ha_pass_begin(&pass, &session, session.variant, session.param, i % 2, &reason);
            if (status != HA_OK && status != HA_ERROR) fail_msg("%s: allocation %zu: %d", ids[i], failing, (int)status);
        }
        assert_true(failing > 5);
        failing = 0;
        assert_ok(ha_pass_end(&pass, HA_OK, &reason));
        close_session();
    }
}
