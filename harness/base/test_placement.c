#include "harness/base/arena.h"
#include "harness/base/placement.h"
#include "harness/base/test.h"

#include <math.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { MIB = 1 << 20, HUGE_BYTES = 2 * MIB };

static bool near(double x, double y) { return fabs(x - y) < 1e-9; }

static double on_nodes(const struct ha_placement *p)
{
    double sum = 0;
    for (size_t i = 0; i < HA_PLACEMENT_NODES; i++) sum += p->node[i];
    return sum;
}

/* Memory of 16 MiB that starts with a huge page, in a mapping of its own. */
static unsigned char *map(int advice)
{
    unsigned char *p = mmap(NULL, 20 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    p += HUGE_BYTES - (uintptr_t)p % HUGE_BYTES;
    assert_int_equal(mprotect(p, 16 * MIB, PROT_READ | PROT_WRITE), 0);
    assert_int_equal(madvise(p, 16 * MIB, advice), 0);
    return p;
}

TEST(small_pages_in_part)
{
    struct ha_placement p;
    unsigned char *m = map(MADV_NOHUGEPAGE);
    ha_placement_read(&p, m, 16 * MIB);
    assert_true(isnan(p.huge) && p.no_huge.text[0]);
    memset(m, 1, 4 * MIB);
    ha_placement_read(&p, m + 1, 16 * MIB - 2);
    assert_true(near(p.huge, 0) && !p.no_huge.text[0]);
    if (p.no_nodes.text[0]) assert_true(isnan(p.absent) && isnan(p.node[0]));
    else assert_true(near(p.absent, 0.75) && near(on_nodes(&p), 0.25));
    ha_placement_read(&p, m + 4 * MIB - 1, 2); /* a page written, and one not */
    if (!p.no_nodes.text[0]) assert_true(near(p.absent, 0.5) && near(on_nodes(&p), 0.5));
    assert_int_equal(munmap(m, 16 * MIB), 0);
}

/* One mapping, whose first half is made huge by force where the kernel knows how. Its daemon may do so to the rest at
 * any time: then it is made once more. */
static bool half_huge(struct ha_placement *p)
{
    unsigned char *m = map(MADV_NOHUGEPAGE);
    memset(m, 1, 16 * MIB);
    const bool got = madvise(m, 16 * MIB, MADV_HUGEPAGE) == 0 && madvise(m, 8 * MIB, MADV_COLLAPSE) == 0;
    if (got) ha_placement_read(p, m, 16 * MIB);
    assert_int_equal(munmap(m, 16 * MIB), 0);
    return got;
}

TEST(huge_pages_in_part)
{
    enum { ATTEMPTS = 5 };
    struct ha_placement p = { 0 };
    for (int i = 0; i < ATTEMPTS && !near(p.huge, 0.5); i++)
        if (!half_huge(&p)) skip();
    assert_true(near(p.huge, 0.5));
    if (!p.no_nodes.text[0]) assert_true(near(p.absent, 0) && near(on_nodes(&p), 1));
}

/* more pages than are looked at */
TEST(arena_memory)
{
    enum { BYTES = 600 * MIB, WRITTEN = 60 * MIB };
    struct ha_arena *arena;
    struct ha_placement p;
    struct ha_why why;
    assert_int_equal(ha_arena_create(&arena, false, &why), HA_OK);
    unsigned char *m = ha_alloc(arena, BYTES, HA_TAG_KV, &why);
    assert_non_null(m);
    memset(m, 1, WRITTEN);
    ha_placement_read(&p, m, BYTES);
    assert_true(p.huge >= 0 && p.huge <= 1);
    /* a huge page reaches beyond what was written */
    if (!p.no_nodes.text[0]) assert_true(fabs(p.absent - 0.9) < 0.005 && near(on_nodes(&p) + p.absent, 1));
    ha_arena_destroy(arena);
}
