/* When a ring of hgca evicts, and CPU attention in groups. */

#include "harness/base/arena.h"
#include "harness/base/pool.h"
#include "harness/base/test.h"
#include "suites/parts/cpu_attend.h"
#include "suites/parts/ring.h"

static struct ha_why why;

extern const struct ha_kernels ha_kernels_c;

/* For every fill the count is the least whole number of blocks that brings the ring below its
 * capacity, found here by trying. */
TEST(test_evict_count)
{
    for (size_t blk = 1; blk <= 9; blk++)
        for (size_t num = 1; num <= 5; num++)
            for (size_t l = 0; l <= 4 * blk * num + 7; l++) {
                size_t want = 0;
                while (l - want >= blk * num && l >= want) want += blk;
                size_t got = ha_ring_evict_count(l, blk, num);
                assert_int_equal(got, want);
                if (got) assert_in_range(l - got, blk * num - blk, blk * num - 1);
            }
}

enum { UNITS = 11, UNIT_DIM = 8 };
static size_t worker_of[UNITS], times[UNITS];
static const unsigned char *scratch; /* of worker 0 */
static size_t scratch_bytes;

/* A unit is known by its query, a worker by its scratch. */
static void noting_attend(const struct ha_kernels *self, const struct ha_attend *a)
{
    const size_t unit = (size_t)a->q[0];
    worker_of[unit] = (size_t)((const unsigned char *)a->scratch - scratch) / scratch_bytes;
    times[unit]++;
    ha_kernels_c.attend(self, a);
}

/* Each unit once, on its group's worker, with the bits that it has without groups. */
TEST(test_groups)
{
    static const struct {
        size_t units, per_group, per_task, threads;
        size_t worker[UNITS];
    } cases[] = {
        { 11, 4, 0, 3, { 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2 } },
        { 11, 4, 3, 3, { 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2 } },
        { 11, 4, 9, 3, { 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2 } },
        { 11, 4, 0, 2, { 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1 } }, /* three groups on two workers */
        { 10, 2, 2, 5, { 0, 0, 1, 1, 2, 2, 3, 3, 4, 4 } },
        { 1, 4, 0, 1, { 0 } },
        { 0, 4, 0, 2, { 0 } },
    };
    struct ha_kernels kernels = ha_kernels_c;
    kernels.attend = noting_attend;
    for (size_t i = 0; i < COUNT(cases); i++) {
        float q[UNITS][UNIT_DIM], o[2][UNITS][UNIT_DIM] = { 0 }, lse[2][UNITS] = { 0 };
        const struct ha_shape shape = {
            .q_heads = 1, .kv_heads = 1, .head_dim = UNIT_DIM, .dtype = HA_F32, .scale = 1
        };
        struct ha_context ctx = { .shape = &shape, .kernels = &kernels };
        struct ha_rows run[UNITS];
        for (size_t u = 0; u < UNITS; u++) {
            for (size_t d = 0; d < UNIT_DIM; d++) q[u][d] = (float)(u + d);
            run[u] = (struct ha_rows){
                .k = q, .v = q, .k_stride_bytes = sizeof *q, .v_stride_bytes = sizeof *q, .keys = u + 1
            };
        }
        assert_int_equal(ha_arena_create(&ctx.arena, true, &why), HA_OK);
        assert_int_equal(ha_pool_create(&ctx.pool, HA_TEAM_DEFAULT, cases[i].threads, &why), HA_OK);
        struct ha_cpu_attend c;
        struct ha_attend worst = ha_cpu_attend_unit(&shape, 0, 1, 1, false, q[0], o[0][0], lse[0], &run[UNITS - 1]);
        assert_int_equal(ha_cpu_attend_create(&c, &ctx, UNITS, &worst, &why), HA_OK);
        c.units = cases[i].units;
        scratch = c.work;
        scratch_bytes = c.scratch_bytes;
        for (int groups = 0; groups < 2; groups++) {
            c.units_per_task = groups ? cases[i].per_task : 1;
            if (groups) assert_int_equal(ha_cpu_attend_in_groups(&c, cases[i].per_group, &why), HA_OK);
            memset(times, 0, sizeof times);
            for (size_t u = 0; u < UNITS; u++)
                c.unit[u] = ha_cpu_attend_unit(&shape, 0, 1, 1, false, q[u], o[groups][u], &lse[groups][u], &run[u]);
            ha_cpu_attend_run(&c, "units");
            for (size_t u = 0; u < UNITS; u++) assert_int_equal(times[u], u < c.units);
        }
        assert_memory_equal(o[0], o[1], sizeof *o);
        assert_memory_equal(lse[0], lse[1], sizeof *lse);
        for (size_t u = 0; u < c.units; u++) assert_int_equal(worker_of[u], cases[i].worker[u]);
        ha_cpu_attend_release(&c);
        assert_int_equal(ha_arena_check(ctx.arena, &why), HA_OK);
        ha_pool_destroy(ctx.pool);
        ha_arena_destroy(ctx.arena);
    }
}
