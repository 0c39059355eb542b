/* What an option says is done, and not what another value of it says: the variants ask the device and the pool for
 * other things. That the outputs are right says nothing of it. */

#include "harness/base/pool.h"
#include "suites/variants/test_shim.h"

/* In steps: calls to the device; runs of the pool that gather or predict, and those that are begun; the most groups
 * that one of these has */
static struct counted {
    size_t products, scores, gathers, predictions, started, groups;
} counted;

void __real_ha_pool_start_groups(struct ha_pool *pool, const char *name, struct ha_pool_group *group, size_t groups);
void __wrap_ha_pool_start_groups(struct ha_pool *pool, const char *name, struct ha_pool_group *group, size_t groups);
void __wrap_ha_pool_start_groups(struct ha_pool *pool, const char *name, struct ha_pool_group *group, size_t groups)
{
    counted.started++;
    counted.groups = groups > counted.groups ? groups : counted.groups;
    __real_ha_pool_start_groups(pool, name, group, groups);
}

void __real_ha_pool_run(struct ha_pool *pool, const char *name, size_t tasks,
                        void (*fn)(void *arg, size_t task, size_t worker), void *arg);
void __wrap_ha_pool_run(struct ha_pool *pool, const char *name, size_t tasks,
                        void (*fn)(void *arg, size_t task, size_t worker), void *arg);
void __wrap_ha_pool_run(struct ha_pool *pool, const char *name, size_t tasks,
                        void (*fn)(void *arg, size_t task, size_t worker), void *arg)
{
    counted.gathers += !strcmp(name, "gather");
    counted.predictions += !strcmp(name, "predict");
    __real_ha_pool_run(pool, name, tasks, fn, arg);
}

static enum ha_status product(struct ha_stream *stream, const struct ha_device_product *args)
{
    counted.products++;
    return real->product(stream, args);
}
static enum ha_status digest_score(struct ha_stream *stream, const struct ha_device_digest_score *args)
{
    counted.scores++;
    return real->digest_score(stream, args);
}

static void count(const char *id)
{
    struct ha_pass p;
    open_shim(id);
    shim.copy_pieces = count_pieces;
    shim.move = count_moves;
    shim.product = product;
    shim.digest_score = digest_score;
    begin_pass(&p, false);
    counted = (struct counted){ 0 };
    nothing_came();
    for (size_t step = 0; step < opened.c.shape.steps; step++) assert_ok(ha_pass_step(&p, step, &reason));
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    close_session();
}

/* 24 steps of three layers of two sequences */
#define SHAPE ":dataset=walk,ctx=130+51,heads=4/2,head_dim=16,layers=3,steps=24,threads=1"
enum { STEPS = 24, LATER = 2 * STEPS, ALL = 3 * STEPS };

/* Each layer is scored by its own query, and those that are foreseen by the query that is expected, too. With
 * resident=all the CPU side alone chooses. */
#define SCOUT "scout" SHAPE ",block=8,budget=45"

TEST(scout_heeds_its_options)
{
    static const struct {
        const char *id;
        size_t products, scores, started, groups;
        bool pieces, moves, gathers;
    } of[] = {
        { SCOUT ",recall=wait,interval=1,fetch=pieces", LATER, ALL + LATER, LATER, 2, true, false, false },
        { SCOUT ",recall=wait,interval=1,fetch=move", LATER, ALL + LATER, LATER, 2, false, true, false },
        { SCOUT ",recall=wait,interval=1,fetch=gather", LATER, ALL + LATER, LATER, 2, false, false, true },
        { SCOUT ",recall=off", LATER, ALL + LATER, LATER, 2, false, false, false },
        { SCOUT ",recall=off,teams=none", LATER, ALL + LATER, LATER, 1, false, false, false },
        { SCOUT ",recall=off,predict=oracle", 0, ALL + LATER, LATER, 2, false, false, false },
        { SCOUT ",recall=off,precompute=off", 0, ALL, 0, 0, false, false, false },
        { SCOUT ",recall=off,precompute=off,predict=oracle", 0, ALL, 0, 0, false, false, false },
        { SCOUT ",recall=off,resident=all", LATER, STEPS + LATER, LATER, 2, false, false, false },
    };
    for (size_t i = 0; i < COUNT(of); i++) {
        count(of[i].id);
        const struct counted *c = &counted;
        if (c->products != of[i].products || c->scores != of[i].scores || c->started != of[i].started
            || c->groups != of[i].groups || (came.pieces > 0) != of[i].pieces || (came.moves > 0) != of[i].moves
            || (c->gathers > 0) != of[i].gathers)
            fail_msg("%s: %zu products, %zu scores, %zu started, %zu groups, %zu pieces, %zu moves, %zu gathers",
                     of[i].id, c->products, c->scores, c->started, c->groups, came.pieces, came.moves, c->gathers);
    }
}

/* A fetch for each layer and step: one call of pieces, one run that gathers; a move of K and one of V for each
 * sequence. */
TEST(fetches_and_predictions_are_as_they_are_asked_for)
{
    static const struct {
        const char *id;
        size_t pieces, moves, gathers, products, predictions;
    } of[] = {
        { "topk" SHAPE ",k=24,fetch=pieces", ALL, 0, 0, 0, 0 },
        { "topk" SHAPE ",k=24,fetch=move", 0, 4 * ALL, 0, 0, 0 },
        { "topk" SHAPE ",k=24,fetch=gather", 0, 0, ALL, 0, 0 },
        { "topk" SHAPE ",k=24,query=ahead,predict=device", ALL, 0, 0, LATER, 0 },
        { "topk" SHAPE ",k=24,query=ahead,predict=cpu", ALL, 0, 0, 0, LATER },
        { "topk" SHAPE ",k=24,query=own,predict=cpu", ALL, 0, 0, 0, 0 },
        { "infinigen" SHAPE ",fetch=pieces,predict=device", ALL, 0, 0, LATER, 0 },
        { "infinigen" SHAPE ",fetch=move,predict=cpu", 0, 4 * ALL, 0, 0, LATER },
        { "infinigen" SHAPE ",fetch=gather,predict=cpu", 0, 0, ALL, 0, LATER },
        { "gpu_only" SHAPE ",block=8,budget=0.3,fetch=pieces", ALL, 0, 0, 0, 0 },
        { "gpu_only" SHAPE ",block=8,budget=0.3,fetch=move", 0, 4 * ALL, 0, 0, 0 },
        { "gpu_only" SHAPE ",block=8,budget=0.3,fetch=zero_copy", 0, 0, 0, 0, 0 },
    };
    for (size_t i = 0; i < COUNT(of); i++) {
        count(of[i].id);
        const struct counted *c = &counted;
        if (came.pieces != of[i].pieces || came.moves != of[i].moves || c->gathers != of[i].gathers
            || c->products != of[i].products || c->predictions != of[i].predictions)
            fail_msg("%s: %zu pieces, %zu moves, %zu gathers, %zu products, %zu predictions", of[i].id, came.pieces,
                     came.moves, c->gathers, c->products, c->predictions);
    }
}
