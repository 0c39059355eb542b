/* attend, through every table, against the binary64 reference and its bound. */

#include "harness/api/reference.h"
#include "kernels/test_problem.h"

static void judge(const struct ha_test_ask *p, const struct ha_kernels *t, const char *what, struct ha_answer_error e)
{
    ha_test_worst(t, what, e.ratio);
    if (!(e.ratio <= 1))
        fail_msg("%s %s d=%zu keys=%zu packed=%zu unit=%zu runs=%zu block=%zu group=%zu q_len=%zu causal=%d layout=%d "
                 "family=%d seed=%llu: %s row %zu, %zu: ratio %g",
                 t->name, ha_dtype_name(p->dtype), p->dim, p->keys, p->packed, p->unit, p->runs_count, p->block,
                 p->group, p->q_len, p->causal, p->layout, p->family, (unsigned long long)p->seed, what, e.row, e.at,
                 e.ratio);
}

static void check(const struct ha_test_ask *ask)
{
    struct ha_test_problem p;
    struct ha_test_ask strided = *ask;
    struct ha_answer want = { 0 };
    struct ha_why why;
    strided.strided = true;
    ha_test_problem_make(&p, &strided);
    for (size_t t = 0; t < ha_test_tables_count; t++) {
        const struct ha_kernels *table = &ha_test_tables[t];
        if (t > 0 && table->attend_chunk == table[-1].attend_chunk
            && (ask->packed == 0 || table->attend_packed[ask->dtype] == table[-1].attend_packed[ask->dtype]))
            continue;
        const struct ha_profile profile = ha_test_problem_profile(&p, table),
                                before = ha_test_problem_profile(&p, t > 0 ? table - 1 : table);
        /* most tables claim one bound: one answer serves them all */
        const struct ha_bound bound = ha_bound_attend(&profile, ask->dim, ask->keys, 2),
                              last = ha_bound_attend(&before, ask->dim, ask->keys, 2);
        if (t == 0 || memcmp(&bound, &last, sizeof bound) != 0) {
            ha_answer_free(&want);
            assert_int_equal(ha_answer_make(&want, &p.args, &p.kv.rows, &profile, 0, &why), HA_OK);
        }
        for (int split = 0; split < (table->attend_splits(&p.args) && ask->keys > HA_SPLIT_KEYS ? 2 : 1); split++) {
            ha_test_problem_solve(&p, table, split ? 1 + ask->keys / (3 * HA_SPLIT_KEYS) : 0);
            judge(ask, table, ha_dtype_name(ask->dtype), ha_answer_judge(&want, &p.args));
            if (ask->weights) judge(ask, table, "a weight", ha_answer_judge_weights(&want, &p.args));
        }
    }
    ha_answer_free(&want);
    ha_guard_release(0);
}

/* Cuts the keys into runs; the last one holds the query tokens of a causal problem. */
static void cut(struct ha_test_ask *p, size_t runs, bool with_empty)
{
    const size_t own = p->causal ? p->q_len : 0, last = p->keys / 4 > own ? p->keys / 4 : own;
    size_t left = p->keys - last;
    p->runs_count = runs;
    for (size_t i = 0; i + 1 < runs; i++) {
        p->run[i] = i + 2 == runs ? left : with_empty && i == 0 ? 0 : left / 3;
        left -= p->run[i];
    }
    p->run[runs - 1] = last + (runs == 1 ? left : 0);
}

/* The first run is packed instead, if it can be: attention may then have no runs at all. */
static void pack_first(struct ha_test_ask *p, size_t id)
{
    static const size_t units[] = { 0, 16, 32, 64, 128 }, blocks[] = { 0, 16, 128, 1, 5, 2048, 3000 };
    p->block = blocks[id % 7];
    if (id % 4 == 3 || !ha_packs(p->dim) || (p->causal && p->runs_count == 1)) return;
    p->packed = p->run[0];
    p->unit = units[id / 2 % 5];
    p->runs_count--;
    memmove(p->run, p->run + 1, p->runs_count * sizeof *p->run);
}

static const struct {
    size_t group, q_len;
} asks[] = {
    { 1, 1 }, { 4, 1 }, { 8, 1 },  { 7, 1 },  { 3, 2 },  { 4, 5 },
    { 1, 9 }, { 5, 1 }, { 2, 33 }, { 1, 70 }, { 16, 4 }, { 6, 1 },
};
enum { ASKS = COUNT(asks) };

static void grid(const size_t *dims, size_t dims_count, const size_t *keys, size_t keys_count, size_t repeats)
{
    size_t id = 0;
    for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++)
        for (size_t d = 0; d < dims_count; d++)
            for (size_t n = 0; n < keys_count; n++)
                for (size_t i = 0; i < repeats; i++, id++) {
                    struct ha_test_ask p = {
                        .dtype = (enum ha_dtype)dtype,
                        .dim = dims[d],
                        .keys = keys[n],
                        .group = asks[id % ASKS].group,
                        .q_len = asks[id % ASKS].q_len,
                        .seed = id + 1,
                        .weights = id % 5 < 2,
                        .layout = (enum ha_test_layout)(id / 2 % HA_TEST_LAYOUTS),
                        .family = (enum ha_test_family)(id / 3 % HA_TEST_FAMILIES),
                    };
                    p.causal = id % 3 != 0 && p.keys >= p.q_len;
                    cut(&p, 1 + id / 5 % HA_RUNS_MAX, id % 7 == 0);
                    pack_first(&p, id);
                    check(&p);
                }
}

/* The kernels of a table, counted. */
static struct {
    const struct ha_kernels *table;
    enum ha_dtype dtype;
    size_t chunks;
} counted;
static void count_chunk(const struct ha_chunk *c)
{
    counted.chunks++;
    counted.table->attend_chunk(c);
}
static void count_packed(const struct ha_packed_chunk *c)
{
    counted.chunks++;
    counted.table->attend_packed[counted.dtype](c);
}

/* What the bound takes for granted: keys of one run are one chunk, and join nothing, as far as a chunk goes; and no
 * more chunks are joined than it allows for, however keys are cut. */
TEST(no_more_joins_than_the_bound_has)
{
    static const struct {
        size_t packed, run[2], runs, chunks; /* 0: any number that is allowed */
    } row[] = {
        { 0, { 1 }, 1, 1 },
        { 0, { HA_CHUNK_KEYS }, 1, 1 },
        { 0, { HA_CHUNK_KEYS + 1 }, 1, 2 },
        { 0, { 1, 2049 }, 2, 3 },
        { 0, { 1, 1 }, 2, 2 },
        { 0, { 3000, 1100 }, 2, 0 },
        { HA_CHUNK_KEYS, { 0 }, 0, 1 },
        { HA_CHUNK_KEYS + 1, { 0 }, 0, 2 },
        { 1, { 2049, 1 }, 2, 4 },
    };
    for (size_t i = 0; i < COUNT(row); i++)
        for (size_t t = 0; t < ha_test_tables_count; t++) {
            struct ha_test_ask ask = { .dtype = HA_F16, .dim = 8, .group = 1, .q_len = 1, .seed = i + 1 };
            ask.packed = row[i].packed;
            ask.runs_count = row[i].runs;
            memcpy(ask.run, row[i].run, sizeof row[i].run);
            ask.keys = row[i].packed + row[i].run[0] + row[i].run[1];
            struct ha_test_problem p;
            struct ha_kernels table = ha_test_tables[t];
            ha_test_problem_make(&p, &ask);
            struct ha_profile profile = ha_test_problem_profile(&p, &table);
            profile.exact_joins = false; /* then R is the number of joins */
            counted.table = &ha_test_tables[t];
            counted.dtype = ask.dtype;
            counted.chunks = 0;
            table.attend_chunk = count_chunk;
            table.attend_packed[ask.dtype] = count_packed;
            ha_test_problem_solve(&p, &table, 0);
            const size_t joins =
                (size_t)ha_bound_attend(&profile, ask.dim, ask.keys, row[i].runs + (ask.packed > 0)).rescales;
            assert_in_range(counted.chunks, 1, joins + 1);
            if (row[i].chunks) assert_int_equal(counted.chunks, row[i].chunks);
            if (row[i].chunks == 1) assert_int_equal(joins, 0);
            ha_guard_release(0);
        }
}

TEST(within_bound_everywhere)
{
    static const size_t dims[] = { 8, 64, 80, 96, 112, 128, 256 }, few_dims[] = { 8, 80, 128 };
    static const size_t keys[] = { 0, 1, 2, 17, 31, 32, 33, 127, 128, 129, 2047, 2048, 2049, 5000 };
    static const size_t few_keys[] = { 0, 1, 33, 129, 2049 };
    if (test_small) grid(few_dims, 3, few_keys, 5, 1);
    else grid(dims, 7, keys, 14, 2);
}

/* The tail paths: dimensions that fill no vector. */
TEST(odd_dimensions)
{
    static const size_t dims[] = { 1, 3, 7, 9, 17, 20, 31, 33, 47, 63, 65, 100, 257, 300, 520 }, keys[] = { 1, 5, 67 };
    grid(dims, test_small ? 6 : 15, keys, 3, 1);
}

/* Every number of query rows goes through its own mix of row blocks. */
TEST(every_number_of_rows)
{
    for (size_t rows = 1; rows <= 256; rows += test_small ? 51 : 1) {
        struct ha_test_ask p = { .dtype = (enum ha_dtype)(rows % HA_DTYPE_COUNT),
                                 .dim = 24,
                                 .keys = 70,
                                 .group = rows,
                                 .q_len = 1,
                                 .seed = rows };
        cut(&p, 1, false);
        pack_first(&p, rows);
        check(&p);
        p.group = 1;
        p.q_len = rows;
        p.causal = rows <= p.keys;
        p.packed = 0;
        cut(&p, 2, false);
        pack_first(&p, rows / 2);
        check(&p);
    }
}

/* Query tokens in several blocks, each with its own limit, over more than one chunk; weights too. */
TEST(appends_longer_than_the_context)
{
    static const struct {
        size_t keys, q_len, group;
    } set[] = {
        { 1, 1, 2 },    { 40, 40, 3 },   { 41, 40, 1 },  { 150, 130, 2 },
        { 150, 20, 4 }, { 2060, 30, 1 }, { 2048, 3, 4 }, { 2100, 2100, 1 },
    };
    for (size_t i = 0; i < COUNT(set) - (test_small ? 1 : 0); i++)
        for (size_t runs = 1; runs <= 2; runs++) {
            struct ha_test_ask p = {
                .dtype = (enum ha_dtype)(i % HA_DTYPE_COUNT),
                .dim = 16,
                .keys = set[i].keys,
                .q_len = set[i].q_len,
                .group = set[i].group,
                .causal = true,
                .weights = set[i].q_len < 1000,
                .layout = (enum ha_test_layout)(i % HA_TEST_LAYOUTS),
                .seed = 77 + i,
            };
            cut(&p, runs, false);
            pack_first(&p, i + runs);
            check(&p);
        }
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, ha_test_report); }
