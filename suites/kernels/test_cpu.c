/* The suite of the CPU kernels over the tables as they are, and made wrong, poor or endless. */

#include "harness/api/reference.h"
#include "harness/base/clock.h"
#include "harness/base/numeric.h"
#include "harness/base/pq.h"
#include "harness/base/registry.h"
#include "harness/engine/plan.h"
#include "harness/engine/point.h"
#include "harness/engine/test_drive.h"
#include "harness/report/row.h"
#include "suites/kernels/suite.h"
#include "suites/kernels/measure.h"

#include <math.h>
#include <sys/resource.h>
#include <unistd.h>

static struct ha_kernels good, bad;

static int begin(void **state)
{
    ha_stop = 0;
    if (ha_kernels_resolve(NULL, &good, &why) != HA_OK) return -1;
    bad = good;
    return 0;
}

static void with(void *arg, void *run) { ha_cpu_run_with(run, arg, 1 << 20); }

static enum ha_status drive(struct ha_drive d)
{
    ha_driven_free(&driven);
    why.text[0] = 0;
    if (!d.cap_ns) d.cap_ns = 2000000;
    return ha_drive(&d, &driven, &why);
}

/* One or more ids, or a word alone, joined by blanks. */
static void run(const char *words, struct ha_kernels *kernels, bool measure)
{
    const struct ha_drive d = { .words = words, .seed = "3", .begun = with, .arg = kernels, .config.measure = measure };
    if (drive(d) != HA_OK) fail_msg("%s", why.text);
}

static const struct ha_cpu_point *point(size_t i) { return entry(i)->point; }
static const struct ha_cpu_row *row(size_t i) { return entry(i)->row; }

/* some row has this in its reason */
static void because(const char *words)
{
    bool found = false;
    for (size_t i = 0; i < driven.results.entries && !found; i++) found = strstr(row(i)->head.reason, words) != NULL;
    if (!found) fail_msg("no reason has '%s'; the first: %s", words, row(0)->head.reason);
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */

TEST_WITH(ids_come_back, begin, driven_end)
{
    size_t ids = 0;
    for (size_t kernel = 0; kernel < HA_CPU_KERNELS; kernel++)
        for (size_t i = 0; i < 64; i++, ids++) {
            const struct ha_suite *s, *const cpu = &ha_suite_cpu_kernels;
            struct ha_cpu_point back, p = { .kernel = kernel,
                                            .layout = i % 2,
                                            .isa = i % (ha_kernels_count + 1),
                                            .dtype = i % HA_DTYPE_COUNT,
                                            .query = i / 2 % 2,
                                            .ctx = 1 + 777 * i,
                                            .batch = 1 + i % 5,
                                            .q_heads = 4 * (1 + i % 3),
                                            .kv_heads = 1 + i % 2,
                                            .head_dim = 8 * (1 + i % 32),
                                            .q_len = 1 + i % 7,
                                            .threads = i % 4,
                                            .budget = 1 + i,
                                            .block = (size_t)16 << i % 4,
                                            .bits = 32 * (1 + i % 8),
                                            .dims = (size_t)1 << i % 4,
                                            .centroids = (size_t)2 << i % 16,
                                            .shared = i % 2,
                                            .table = i / 2 % 2,
                                            .team = i / 5 % HA_TEAMS,
                                            .seed = i % 3 ? 1 : UINT64_MAX - i };
            char id[HA_ID_MAX];
            assert_int_equal(ha_cpu_settle(&p, &why), HA_OK);
            assert_true(ha_point_print(cpu, &p, id, sizeof id) < sizeof id);
            assert_true(!strncmp(id, "cpu_kernels:kernel=", 19) && !strstr(id, "seed=") == (p.seed == 1)
                        && !strstr(id, "team=") == (p.team == HA_TEAM_DEFAULT));
            if (ha_id_parse(id, &s, &back, sizeof back, &why) != HA_OK) fail_msg("%s: %s", id, why.text);
            if (s != cpu || memcmp(&back, &p, sizeof p) != 0) fail_msg("%s does not come back", id);
            struct ha_filter *filter;
            assert_int_equal(ha_filter_create(&filter, id + 12, &why), HA_OK);
            assert_true(ha_filter_fits(filter, cpu, &p, id));
            back.batch++;
            assert_false(ha_filter_fits(filter, cpu, &back, ""));
            ha_filter_destroy(filter);
        }
    assert_int_equal(ids, 64 * HA_CPU_KERNELS);
}

/* ---- the column of all bits -------------------------------------------------------------------------------------- */

static void last_bit_merge(const struct ha_merge *m)
{
    uint32_t bits;
    good.merge(m);
    memcpy(&bits, m->out.lse, sizeof bits);
    bits ^= 1;
    memcpy(m->out.lse, &bits, sizeof bits);
}

static void outputs_of(char out[32], const char *id, struct ha_kernels *kernels, bool measure)
{
    run(id, kernels, measure);
    if (row(0)->head.verdict != HA_PASS) fail_msg("%s: %s", id, row(0)->head.reason);
    snprintf(out, 32, "%s", row(0)->head.outputs);
    assert_int_equal(strlen(out), 16);
}

/* Over few keys the data of a check are drawn where they are needed, and those of a run are many turns of a pattern:
 * the same numbers. */
TEST_WITH(a_check_and_a_run_leave_the_same_bits, begin, driven_end)
{
    static const char *const id[] = { "cpu_kernels:kernel=merge,dtype=f32,head_dim=64",
                                      "cpu_kernels:kernel=attend,ctx=700,heads=4/2,head_dim=64,dtype=f16",
                                      "cpu_kernels:kernel=sparse,ctx=2000,heads=4/2,head_dim=64,dtype=bf16",
                                      "cpu_kernels:kernel=topk,ctx=2000" };
    char check[32], measured[32], other[32];
    for (size_t i = 0; i < COUNT(id); i++) {
        outputs_of(check, id[i], &good, false);
        outputs_of(measured, id[i], &good, true);
        assert_string_equal(check, measured);
    }
    bad.merge = last_bit_merge; /* which is within its bound */
    outputs_of(check, id[0], &good, false);
    outputs_of(other, id[0], &bad, false);
    assert_string_not_equal(check, other);
}

TEST_WITH(wrong_words_are_named, begin, driven_end)
{
    static const struct {
        const char *id, *says;
    } set[] = {
        { "cpu_kernels:kernel=atend", "unknown kernel 'atend'; did you mean 'attend'?" },
        { "cpu_kernels:dtype=fp16", "unknown dtype 'fp16'; did you mean 'f16'?" },
        { "cpu_kernels:isa=avx3", "unknown isa 'avx3'" },
        { "cpu_kernels:ctx=0", "ctx: '0' is not a whole number from 1 to 16777216" },
        { "cpu_kernels:heads=10/4", "heads=10/4: a KV head has no whole number of query heads" },
        { "cpu_kernels:threads=some", "'some' is not 'all' or a whole number" },
        { "cpu_kernels:threads=0", "threads: '0' is not 'all'" },
        { "cpu_kernels:head_dim=100", "head_dim=100: packed keys have a multiple of 8" },
        { "cpu_kernels:kernel=sparse,block=24", "block=24: it is one of 16 32 64 128" },
        { "cpu_kernels:kernel=hamming,bits=100", "bits=100: not a multiple of 32" },
        { "cpu_kernels:kernel=pq_score,dims=16,head_dim=24", "dims=16 does not divide head_dim=24" },
        { "cpu_kernels:kernel=pq_encode,centroids=100", "centroids=100: not a power of 2" },
        { "cpu_kernels:kernel=topk,dtype=f16", "has no key 'dtype'" },
    };
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        assert_int_equal(drive((struct ha_drive){ .words = set[i].id }), HA_ERROR);
        assert_contains(why.text, set[i].says);
    }
}

TEST_WITH(a_point_has_the_keys_of_its_kernel, begin, driven_end)
{
    struct ha_drive d = {
        .words = "cpu_kernels:dtype=f32 cpu_kernels:kernel=topk,ctx=5", .isa = "c", .threads = "1", .plan_only = true
    };
    assert_int_equal(drive(d), HA_OK);
    assert_string_equal(entry(1)->id,
                        "cpu_kernels:kernel=topk,isa=c,ctx=5,batch=1,heads=32/8,threads=1,budget=5,block=32");
    d.filter = "dtype!=f16"; /* topk has none */
    assert_int_equal(drive(d), HA_OK);
    assert_int_equal(driven.results.entries, 2);
    d.filter = "layout=packed";
    assert_int_equal(drive(d), HA_OK);
    assert_int_equal(driven.results.entries, 1);
}

/* ---- suite files ------------------------------------------------------------------------------------------------- */

static const struct ha_section *section(size_t i) { return &driven.results.section[i]; }

TEST_WITH(a_suite_is_the_product_of_its_lists, begin, driven_end)
{
    static const char text[] =
        "[default]\nsuite = cpu_kernels\nctx = 5\n; a comment\n[one]\nctx = 6 7 6   # 6 once\ndtype = f32 f16\n"
        "query = kv f32\n[two]\naxis = threads\nthreads = 1 all\n[three]\nkernel = attend topk\ndtype = f16 f32\n"
        "ctx = 7\n";
    assert_int_equal(drive((struct ha_drive){ .text = text, .plan_only = true }), HA_OK);
    assert_int_equal(driven.results.sections, 3);
    assert_int_equal(section(0)->count, 6); /* f32 has one kind of query */
    assert_int_equal(section(1)->count, 2);
    assert_int_equal(point(section(1)->entry[0])->ctx, 5);
    assert_int_equal(section(1)->axis, HA_CPU_THREADS);
    assert_true(section(0)->axis == SIZE_MAX);
    assert_int_equal(section(2)->count, 3);              /* topk has no dtype */
    assert_int_equal(driven.results.entries, 6 + 2 + 1); /* attend over 7 keys is there already */
    assert_int_equal(section(2)->entry[0], section(0)->entry[3]);
}

/* The file of the suite, found by its name; what a run measures of it is small and loses no kernel. */
TEST_WITH(the_suite_has_a_file, begin, driven_end)
{
    bool seen[HA_CPU_KERNELS] = { false };
    size_t axes = 0;
    assert_int_equal(drive((struct ha_drive){ .words = "cpu_kernels", .config.measure = true, .plan_only = true }),
                     HA_OK);
    assert_ptr_equal(driven.suite, &ha_suite_cpu_kernels);
    assert_int_equal(driven.results.entries, 160);
    assert_int_equal(driven.results.sections, 17);
    for (size_t i = 0; i < 160; i++) seen[point(i)->kernel] = true;
    for (size_t k = 0; k < HA_CPU_KERNELS; k++) assert_true(seen[k]);
    for (size_t i = 0; i < 17; i++) axes += section(i)->axis != SIZE_MAX;
    assert_int_equal(axes, 5);
}

/* ---- right, and wrong -------------------------------------------------------------------------------------------- */

static const char every[] = "cpu_kernels:ctx=333,heads=4/2,head_dim=24 "
                            "cpu_kernels:kernel=append,ctx=65,q_len=3,heads=4/2,head_dim=16,dtype=bf16 "
                            "cpu_kernels:kernel=sparse,ctx=300,heads=4/2,head_dim=16,block=16,budget=20 "
                            "cpu_kernels:kernel=blocks,ctx=300,heads=4/2,head_dim=16,block=16,budget=20,dtype=f32 "
                            "cpu_kernels:kernel=gather,ctx=300,heads=4/2,head_dim=16,block=16,budget=20 "
                            "cpu_kernels:layout=natural,ctx=33,heads=2/2,head_dim=20,query=f32,dtype=bf16";
static const char others[] =
    "cpu_kernels:kernel=pack,ctx=70,heads=2/2,head_dim=24 "
    "cpu_kernels:kernel=append_key,ctx=70,heads=2/2,head_dim=24,dtype=f32 "
    "cpu_kernels:kernel=score,ctx=70,heads=2/1,head_dim=24 "
    "cpu_kernels:kernel=digest,ctx=70,heads=2/2,head_dim=24,block=16 "
    "cpu_kernels:kernel=digest_score,ctx=700,heads=4/2,head_dim=24,block=16 "
    "cpu_kernels:kernel=hash,ctx=70,heads=2/2,head_dim=24,bits=64 "
    "cpu_kernels:kernel=hamming,ctx=70,heads=6/2,bits=96 "
    "cpu_kernels:kernel=pq_encode,ctx=70,heads=2/2,head_dim=24,centroids=32 "
    "cpu_kernels:kernel=pq_table,heads=6/2,head_dim=24,centroids=32,table=f16 "
    "cpu_kernels:kernel=pq_score,ctx=70,heads=6/2,head_dim=24,centroids=32 "
    "cpu_kernels:kernel=topk,ctx=7000,block=16,heads=2/2 "
    "cpu_kernels:kernel=topp,ctx=700,heads=4/2 "
    "cpu_kernels:kernel=weighted_sum,ctx=700,heads=4/2,head_dim=24,budget=20 "
    "cpu_kernels:kernel=softmax,ctx=70,heads=4/2 cpu_kernels:kernel=merge,heads=4/2,head_dim=24";

TEST_WITH(every_kernel_is_right, begin, driven_end)
{
    for (size_t i = 0; i < ha_kernels_count; i++) {
        struct ha_kernels table;
        if (ha_kernels_resolve(ha_kernels_all[i]->name, &table, &why) != HA_OK) continue;
        run(every, &table, false);
        counted(6, 0, 0, 0);
        run(others, &table, false);
        counted(15, 0, 0, 0);
        says("pass");
    }
}

static void wrong_all(const struct ha_kernels *self, const struct ha_attend_all *all)
{
    struct ha_attend_all less = *all;
    less.count--;
    good.attend_all(self, &less);
}
static void wrong_packed(const struct ha_packed_chunk *c)
{
    good.attend_packed[HA_F16](c);
    c->acc[(c->q_rows - 1) * c->head_dim + c->head_dim - 1] *= 1.001f;
}
static void wrong_packed_keys(const struct ha_packed_chunk *c)
{
    struct ha_packed_chunk less = *c;
    less.keys -= less.keys > HA_SPLIT_KEYS ? HA_SPLIT_KEYS : 0;
    good.attend_packed[HA_F16](&less);
}
static void wrong_chunk(const struct ha_chunk *c)
{
    good.attend_chunk(c);
    c->sum[0] *= 1.01f;
}
static void wrong_pack(const struct ha_pack *p)
{
    struct ha_pack shifted = *p;
    shifted.rows.v = (const char *)p->rows.v + (p->rows.keys > 1 ? p->rows.v_stride_bytes : 2);
    shifted.rows.keys -= p->rows.keys > 1;
    good.pack(&shifted);
}
static unsigned calls;
static void wrong_score(const struct ha_score *s) /* of the second query head alone */
{
    good.score(s);
    if (++calls % 2 == 0) s->s[s->rows.keys - 1] *= 1.0001f;
}
static void wrong_digest(const struct ha_digest *d)
{
    struct ha_digest less = *d;
    less.rows.keys -= less.rows.keys > 1;
    good.digest(&less);
}
static void wrong_digest_score(const struct ha_digest_score *d)
{
    good.digest_score(d);
    d->s[(d->q_rows - 1) * d->s_stride] += 1;
}
static void wrong_hash(const struct ha_hash *h) /* of the first bit alone */
{
    good.hash(h);
    for (size_t i = 0; i < h->rows.keys; i++) ((uint32_t *)h->codes)[ha_ref_code(h->bits, h->first + i, 0)] ^= 1;
}
static void wrong_norm(const struct ha_hash *h)
{
    good.hash(h);
    ((float *)h->codes)[ha_ref_code(h->bits, h->first, h->bits / 32)] *= 1.0001f;
}
static void wrong_hamming(const struct ha_hamming *h)
{
    good.hamming(h);
    float *x = &h->s[(h->q_rows - 1) * h->s_stride + h->keys - 1];
    *x = nextafterf(*x, INFINITY);
}
static void wrong_pq_encode(const struct ha_pq_encode *e) /* of the last group of the last key */
{
    const size_t key = e->first + e->rows.keys - 1, g = e->pq.groups - 1;
    good.pq_encode(e);
    unsigned char *group = (unsigned char *)e->codes + key / HA_PQ_KEYS * ha_pq_block_bytes(&e->pq)
                           + g * ha_pq_group_bytes(&e->pq);
    ha_pq_put(group, e->pq.bits, key % HA_PQ_KEYS, ha_pq_code(group, e->pq.bits, key % HA_PQ_KEYS) ^ 1);
}
static void wrong_pq_table(const struct ha_pq_table *t) /* the first entry of the first row */
{
    good.pq_table(t);
    ha_store(t->table, 0, t->type, 2 * ha_load(t->table, 0, t->type));
}
static void wrong_pq_score(const struct ha_pq_score *p)
{
    good.pq_score(p);
    p->s[(p->rows - 1) * p->s_stride + p->keys - 1] += 1e-3f;
}
static void wrong_topk(const struct ha_topk *t)
{
    good.topk(t);
    t->index[t->k - 1] = t->index[t->k - 1] + 1 < t->n ? t->index[t->k - 1] + 1 : t->index[t->k - 1] - 1;
}
static void wrong_topp(const struct ha_topp *t) /* one too many */
{
    good.topp(t);
    ++*t->keys;
}
static void wrong_weights(const struct ha_topp *t)
{
    good.topp(t);
    ((float *)t->w)[*t->keys - 1] *= 1.0001f;
}
static void wrong_weighted_sum(const struct ha_weighted_sum *s)
{
    struct ha_weighted_sum less = *s;
    less.rows.keys--;
    good.weighted_sum(&less);
}
static void wrong_softmax(const struct ha_softmax *s)
{
    good.softmax(s);
    s->x[s->n - 1] *= 1.001f;
}
static void wrong_merge(const struct ha_merge *m)
{
    struct ha_merge one = *m;
    one.states_count = 1;
    good.merge(&one);
}

/* An element is up to four units in the last place off, of each call as many as its number says: right by any bound,
 * and no two runs give the same, in whatever order their calls come. */
static void fickle(float *x)
{
    for (unsigned n = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) % 5; n; n--) *x = nextafterf(*x, 0);
}
static void fickle_chunk(const struct ha_chunk *c)
{
    good.attend_chunk(c);
    fickle(c->acc);
}
static void fickle_score(const struct ha_score *s)
{
    good.score(s);
    fickle(s->s);
}
static void fickle_weighted_sum(const struct ha_weighted_sum *s)
{
    good.weighted_sum(s);
    fickle(s->o);
}
static void fickle_topp(const struct ha_topp *t) /* what it left the first time is right */
{
    good.topp(t);
    if (__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) > 4) t->index[0] ^= 1;
}
static void fickle_softmax(const struct ha_softmax *s)
{
    good.softmax(s);
    fickle(s->lse);
}
static void fickle_merge(const struct ha_merge *m)
{
    good.merge(m);
    fickle(m->out.lse);
}
static void lazy_digest(const struct ha_digest *d) /* what it left the first time is right */
{
    if (__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) <= 2) good.digest(d);
}

TEST_WITH(wrong_kernels_fail, begin, driven_end)
{
    static const struct {
        struct ha_kernels change;
        const char *ids, *words;
        size_t failed, of;
    } defect[] = {
        { { .attend_all = wrong_all }, every, "is not finite", 5, 6 },
        { { .attend_packed = { [HA_F16] = wrong_packed } }, every, "error over bound", 2, 6 },
        { { .attend_packed = { [HA_F16] = wrong_packed_keys } }, every, "error over bound", 1, 6 },
        { { .attend_chunk = wrong_chunk }, every, "error over bound", 3, 6 },
        { { .digest_score = wrong_digest_score }, every, "choice of blocks", 1, 6 },
        { { .topk = wrong_topk }, every, "choice of blocks", 1, 6 },
        { { .digest = wrong_digest }, every, "choice of blocks", 1, 6 },
        { { .pack = wrong_pack }, others, "the packed keys of KV head 1 are not the rows", 2, 15 },
        { { .score = wrong_score }, others, "error over bound", 1, 15 },
        { { .digest = wrong_digest }, others, "error over bound", 1, 15 },
        { { .digest_score = wrong_digest_score }, others, "error over bound", 1, 15 },
        { { .hash = wrong_hash }, others, "error over bound", 1, 15 },
        { { .hash = wrong_norm }, others, "error over bound", 1, 15 },
        { { .hamming = wrong_hamming }, others, "error over bound", 1, 15 },
        { { .pq_encode = wrong_pq_encode }, others, "error over bound", 1, 15 },
        { { .pq_table = wrong_pq_table }, others, "error over bound", 1, 15 },
        { { .pq_score = wrong_pq_score }, others, "error over bound", 1, 15 },
        { { .topk = wrong_topk }, others, "error over bound", 1, 15 },
        { { .topp = wrong_topp }, others, "error over bound", 1, 15 },
        { { .topp = wrong_weights }, others, "error over bound", 1, 15 },
        { { .weighted_sum = wrong_weighted_sum }, others, "error over bound", 1, 15 },
        { { .softmax = wrong_softmax }, others, "error over bound", 1, 15 },
        { { .merge = wrong_merge }, others, "error over bound", 1, 15 },
        { { .attend_chunk = fickle_chunk },
          every,
          "gave other bits",
          2,
          6 }, /* where packed keys come first the bit is lost */
        { { .score = fickle_score }, others, "gave other bits", 1, 15 },
        { { .weighted_sum = fickle_weighted_sum }, others, "gave other bits", 1, 15 },
        { { .topp = fickle_topp }, others, "gave other bits", 1, 15 },
        { { .softmax = fickle_softmax }, others, "gave other bits", 1, 15 },
        { { .merge = fickle_merge }, others, "gave other bits", 1, 15 },
        { { .digest = lazy_digest }, others, "gave other bits", 2, 15 }, /* and digests that are scored */
    };
    for (size_t d = 0; d < COUNT(defect); d++) {
        if (HA_SANITIZED && d % 4) continue; /* what is wrong is judged by the same code */
        const struct ha_kernels *c = &defect[d].change;
        bad = good;
        calls = 0;
#define CHANGE(isa, result, name, arguments, companion) \
    if (c->name) bad.name = c->name;
#define CHANGE_TYPED(isa, result, name, arguments, companion) \
    if (c->name[HA_F16]) bad.name[HA_F16] = c->name[HA_F16];
        HA_KERNELS_OF_ALL(CHANGE, CHANGE_TYPED, )
        run(defect[d].ids, &bad, d == 0); /* measured once: how a point that fails goes on is the engine's */
        counted(defect[d].of - defect[d].failed, defect[d].failed, 0, 0);
        says("FAIL");
        because(defect[d].words);
        for (size_t i = 0; i < driven.results.entries; i++)
            if (row(i)->head.verdict != HA_PASS) assert_true(isnan(row(i)->ratio.median));
    }
}

/* Of equal ones the first ones. */
TEST(the_largest_are_chosen)
{
    static const float x[] = { 1, 3, 3, 2 };
    static struct {
        size_t k;
        uint32_t got[4];
        bool right;
    } each[] = {
        { 1, { 1 }, true },        { 1, { 2 }, false },         { 2, { 1, 2 }, true },        { 2, { 2, 1 }, false },
        { 2, { 1, 1 }, false },    { 2, { 1, 3 }, false },      { 3, { 1, 2, 3 }, true },     { 3, { 0, 1, 2 }, false },
        { 3, { 1, 2, 4 }, false }, { 9, { 0, 1, 2, 3 }, true }, { 9, { 0, 1, 2, 4 }, false }, { 0, { 7 }, true },
    };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        if ((ha_ref_judge_topk(&(struct ha_topk){ x, 4, each[i].k, each[i].got }) <= 1) != each[i].right)
            fail_msg("choice %zu", i);
}

TEST_WITH(what_is_missing_is_waived, begin, driven_end)
{
    run("cpu_kernels:kernel=merge,threads=1024", &good, false);
    because("1024 threads: this process has");
    counted(0, 0, 1, 0);
    for (size_t i = 0; i < ha_kernels_count; i++) {
        char words[96];
        const bool lacks = ha_kernels_lack(ha_kernels_all[i]) != NULL;
        snprintf(words, sizeof words, "cpu_kernels:kernel=merge,heads=4/2,head_dim=8,isa=%s", ha_kernels_all[i]->name);
        run(words, NULL, false);
        counted(!lacks, 0, lacks, 0);
    }
}

/* The table whose code runs, not the one that is asked for, and of each type its own. */
TEST_WITH(the_table_that_ran_is_named, begin, driven_end)
{
    static const struct {
        const char *point, *part;
    } cases[] = {
        { "dtype=f32", "attend_packed f32" },
        { "dtype=f16", "attend_packed f16" },
        { "dtype=bf16", "attend_packed bf16" },
        { "kernel=append,dtype=bf16,q_len=2", "attend_packed bf16" },
        { "dtype=bf16,layout=natural", "attend_chunk" },
        { "kernel=append_key", "pack" },
        { "kernel=hamming", "hamming" },
        { "kernel=sparse,dtype=f32", "attend_packed f32" },
    };
    for (size_t t = 0; t < ha_kernels_count; t++)
        for (size_t c = 0; c < COUNT(cases) && !ha_kernels_lack(ha_kernels_all[t]); c++) {
            char words[128];
            size_t part = 0;
            while (strcmp(ha_kernels_part(part), cases[c].part) != 0) part++;
            snprintf(words, sizeof words, "cpu_kernels:%s,isa=%s,ctx=64,heads=2/1,threads=1%s", cases[c].point,
                     ha_kernels_all[t]->name, strstr(cases[c].point, "hamming") ? "" : ",head_dim=8");
            run(words, NULL, false);
            assert_string_equal(row(0)->isa, ha_kernels_origin(ha_kernels_all[t]->name, part)->name);
        }
}

/* More than there is, and more than the process may have: with 256 MiB of addresses left. */
TEST_WITH(too_little_memory_is_an_error, begin, driven_end)
{
    run("cpu_kernels:ctx=16777216,batch=4096", &good, false);
    because("needs ");
    because("GiB: lower ctx or batch or heads");
    counted(0, 0, 0, 1);
    if (HA_SANITIZED) return; /* whose shadow takes all addresses */
    unsigned long long pages = 0;
    struct rlimit before, less;
    FILE *f = fopen("/proc/self/statm", "re");
    assert_true(f && fscanf(f, "%llu", &pages) == 1);
    fclose(f);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    less = before;
    less.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)256 << 20);
    assert_int_equal(setrlimit(RLIMIT_AS, &less), 0);
    run("cpu_kernels:ctx=300000,heads=8/8,threads=1 cpu_kernels:ctx=300,heads=8/8,threads=1", &good, false);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    because("out of host memory: 1228800000 bytes (kv)");
    counted(1, 0, 0, 1);
}

/* The threads of both teams run a kernel; the pool says whose they are. */
TEST_WITH(threads_are_those_of_the_team, begin, driven_end)
{
    run("cpu_kernels:kernel=merge,heads=4/2,head_dim=8,threads=1,team=openmp "
        "cpu_kernels:kernel=merge,heads=4/2,head_dim=8,threads=1,team=own",
        NULL, false);
    assert_int_equal(driven.results.entries, 2);
    counted(2, 0, 0, 0);
    struct ha_cpu_teams teams;
    struct ha_cpu_team *a, *b;
    assert_int_equal(ha_cpu_teams_open(&teams, &why), HA_OK);
    assert_int_equal(ha_cpu_teams_get(&teams, HA_TEAM_OPENMP, 1, &a, &why), HA_OK);
    assert_int_equal(ha_cpu_teams_get(&teams, HA_TEAM_OWN, 1, &b, &why), HA_OK);
    assert_true(a != b && ha_pool_team(a->pool) == HA_TEAM_OPENMP && ha_pool_team(b->pool) == HA_TEAM_OWN);
    ha_cpu_teams_close(&teams);
}

/* An id stands for the same data whatever ran before it. */
TEST_WITH(a_seed_is_that_of_the_id, begin, driven_end)
{
    double error[3];
    static const char *const words[] = { "cpu_kernels:kernel=attend,ctx=333,heads=4/2,head_dim=24,seed=5",
                                         "cpu_kernels:kernel=attend,ctx=333,heads=4/2,head_dim=24,seed=6 "
                                         "cpu_kernels:kernel=attend,ctx=333,heads=4/2,head_dim=24,seed=5" };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(drive((struct ha_drive){ .words = words[i] }), HA_OK);
        counted(1 + (size_t)i, 0, 0, 0);
        error[i] = row((size_t)i)->err_over_bound;
        if (i) error[2] = row(0)->err_over_bound;
    }
    assert_true(error[0] > 0 && !(error[0] < error[1]) && !(error[0] > error[1]));
    assert_true(error[2] < error[0] || error[2] > error[0]);
}

/* ---- measured ---------------------------------------------------------------------------------------------------- */

static unsigned stop_at;
static void stopping_merge(const struct ha_merge *m)
{
    good.merge(m);
    if (++calls == stop_at) ha_stop = 2;
}

/* One run, because the ceiling's memory takes a while: two points are measured, and in the third one there is a signal.
 */
TEST_WITH(figures_are_written_and_a_signal_keeps_them, begin, driven_end)
{
    bad.merge = stopping_merge;
    calls = 0;
    stop_at = 3; /* the check and two runs */
    run("cpu_kernels:ctx=2048,heads=4/2,head_dim=64,threads=1 "
        "cpu_kernels:kernel=sparse,ctx=2048,heads=4/2,head_dim=64,threads=1 "
        "cpu_kernels:kernel=merge,heads=2/1,threads=1 cpu_kernels:kernel=topk,ctx=80,heads=2/2,threads=1",
        &bad, true);
    counted(2, 0, 0, 0);
    assert_int_equal(driven.verdict[HA_NOT_RUN], 1);
    assert_true(!entry(3)->row && isnan(number(2, "ns")));
    says("whole/beside");
    says("not run");
    for (size_t r = 0; r < 2; r++) {
        assert_string_equal(ha_driven_text(&driven, entry(r), "isa_used"), good.name);
        const double ns = number(r, "ns"), bytes = number(r, "bytes"), ratio = number(r, "ratio");
        assert_true(ns > 0 && number(r, "ns_lo") <= ns && ns <= number(r, "ns_hi"));
        assert_true(ratio > 0 && number(r, "ratio_lo") <= ratio && ratio <= number(r, "ratio_hi"));
        assert_true(number(r, "floor") >= ratio * 0.999);
        assert_true(number(r, "GBps") > 0 && number(r, "ceiling_GBps") > 0 && number(r, "peak_GFLOPps") > 0
                    && number(r, "wake_ns") > 0);
        assert_true(number(r, "samples") >= 1 && number(r, "readings") >= 1 && number(r, "retried") >= 0);
        assert_true(number(r, "err_over_bound") >= 0 && number(r, "err_over_bound") <= 1);
        if (r == 0) assert_true(bytes == 2 * 2 * 2048 * 64 * 2 && number(r, "flop") == 4.0 * 2048 * 64 * 4);
    }
    assert_true(number(0, "cache_GBps") > 0 && isnan(number(1, "cache_GBps")));
    assert_string_equal(ha_driven_text(&driven, entry(0), "limit"), ha_cpu_limit(row(0)));
    assert_true(isnan(number(0, "whole_over_beside")) && number(1, "scale") == 1);
    assert_true(number(1, "scores_ns") > 0 && number(1, "choice_ns") > 0 && number(1, "chosen_ns") > 0
                && number(1, "beside_ns") > 0);
    assert_true(number(1, "choice_share") > 0 && number(1, "whole_over_beside") > 0);
}

TEST_WITH(one_sample_is_enough_behind_the_deadline, begin, driven_end)
{
    const struct ha_drive d = { .words = "cpu_kernels:kernel=topk,ctx=80,heads=2/2,threads=1",
                                .begun = with,
                                .arg = &good,
                                .config.measure = true,
                                .cap_ns = 2000000000,
                                .deadline_ns = 1 };
    assert_int_equal(drive(d), HA_OK);
    counted(1, 0, 0, 0);
    assert_true(number(0, "samples") == 1);
}

static void noisy_topk(const struct ha_topk *t)
{
    const uint64_t ns = ++calls % 2 ? 30000000 : 10000000, begin_ns = ha_now_ns();
    good.topk(t);
    while (ha_now_ns() - begin_ns < ns) continue;
}

/* What is never known well enough ends by the suite's own limit where there is no other. */
TEST_WITH(a_point_ends_without_a_limit, begin, driven_end)
{
    if (HA_SANITIZED) skip(); /* judged by a clock */
    const struct ha_drive d = { .words = "cpu_kernels:kernel=topk,ctx=80,heads=1/1,threads=1",
                                .begun = with,
                                .arg = &bad,
                                .config.measure = true,
                                .cap_ns = UINT64_MAX };
    bad.topk = noisy_topk;
    assert_int_equal(drive(d), HA_OK);
    counted(1, 0, 0, 0);
    assert_true(number(0, "samples") >= 1 && number(0, "samples") < 60);
}

/* A check of the suite has few keys; a plan names the points as they are. */
TEST_WITH(a_check_of_a_file_is_small, begin, driven_end)
{
    struct ha_drive d = { .text = "[a]\nsuite = cpu_kernels\naxis = ctx\nctx = 1000000 2000000\nheads = 2/2\n"
                                  "head_dim = 8\nbatch = 64\nthreads = 1\n" };
    assert_int_equal(drive(d), HA_OK);
    says("ctx=777");
    assert_true(point(0)->ctx == 777 && point(0)->batch == 2);
    counted(1, 0, 0, 0);
    d.plan_only = true;
    assert_int_equal(drive(d), HA_OK);
    assert_non_null(strstr(entry(1)->id, "ctx=2000000,batch=64"));
}

/* ---- goals and scaling, of figures that are made up -------------------------------------------------------------- */

static void measured(size_t i, const char *isa, double ratio, double scale)
{
    static struct ha_cpu_row made[19];
    struct ha_cpu_row *r = &made[i];
    ha_fields_clear(&ha_suite_cpu_kernels, r);
    r->head = (struct ha_result){ .verdict = HA_PASS, .samples = 15 };
    r->threads = point(i)->threads == 1 ? 1 : 2;
    r->ratio = (struct ha_estimate){ ratio, ratio, ratio };
    r->whole_over_beside = (struct ha_estimate){ 2 * ratio, 2 * ratio, 2 * ratio };
    r->choice_share = (struct ha_estimate){ 0.01, 0.01, 0.01 };
    r->scale = scale;
    strcpy(r->disturbed, i ? "" : "load");
    strcpy(r->limit, i == 1 ? "waits: DTLB" : "");
    snprintf(r->isa, sizeof r->isa, "%s", isa);
    ((struct ha_entry *)(uintptr_t)entry(i))->row = r;
}

static void to_printed(void)
{
    FILE *f = fmemopen(driven.printed, sizeof driven.printed, "w");
    assert_non_null(f);
    ha_cpu_print(f, &driven.results);
    assert_true(ha_cpu_conclude(f, &driven.results, &why));
    fclose(f);
}

TEST_WITH(goals_are_judged, begin, driven_end)
{
    const struct ha_drive d = { .text = "[default]\nsuite = cpu_kernels\n[a]\naxis = threads\ndtype = f32\n"
                                        "threads = 1 2 all\n[b]\ndtype = f16\n[c]\nkernel = sparse\n[d]\n"
                                        "kernel = hamming\nthreads = 1\nisa = best avx2\nbits = 256 128\n"
                                        "[e]\nkernel = pq_score\nthreads = 1\ncentroids = 256 2048\ntable = f32 f16\n"
                                        "[f]\nkernel = weighted_sum\nthreads = 1\nheads = 8/8 32/8\nbudget = 15\n"
                                        "[g]\nkernel = topp\nthreads = 1\nisa = best avx2\n"
                                        "[h]\nkernel = pq_encode\nthreads = 1\ncentroids = 2048\nctx = 16 64\n",
                                .config.measure = true,
                                .plan_only = true };
    assert_int_equal(drive(d), HA_OK);
    to_printed();
    assert_null(strstr(driven.printed, "goals"));
    measured(0, "avx512", 0.93, 1);
    measured(1, "avx512_bf16", 0.94, 0.81);
    measured(2, "avx512", 0.96, 0.79);
    measured(3, "avx2", 0.649, 0.9);
    measured(4, "avx2", 0.1, 0.9);
    measured(5, "avx512_vpopcntdq", 0.69, 1);
    measured(7, "avx2", 0.41, 1);
    measured(9, "avx2", 0.24, 1);
    measured(12, "avx2", 0.51, 1);
    measured(13, "avx512", 0.61, 1);
    measured(14, "avx512", 0.62, 1);
    measured(15, "avx512", 0.12, 1);
    measured(16, "avx2", 0.13, 1);
    measured(17, "avx2", 0.26, 1);
    measured(18, "avx2", 0.27, 1);
    to_printed();
    says("  disturbed      0.93  measured 0.930 (0.930-0.930)  decode f32, avx512, ctx 32768, 1 thread\n");
    says("  met            0.93  measured 0.940 (0.940-0.940)  decode f32, avx512_bf16, ctx 32768, 2 threads, "
         "harder\n");
    says("  not met        0.97  measured 0.960 (0.960-0.960)  decode f32, avx512, ctx 32768, 2 threads, easier\n");
    says("  not met        0.65  measured 0.649 (0.649-0.649)  decode f16, avx2, ctx 32768, 2 threads, harder\n");
    says("  not applicable 0.70  decode f16: not measured here with AVX-512\n");
    says("  not applicable 0.88  decode bf16, query=kv: not measured here with AVX-512 BF16\n");
    says("  not met        0.10  measured 0.200 (0.200-0.200)  sparse step over dense step");
    says("  met            0.06  measured 0.010 (0.010-0.010)  top-k over sparse step");
    says("  not met        0.70  measured 0.690 (0.690-0.690)  scores of codes, 256 bits, avx512_vpopcntdq, ctx 32768");
    says("  met            0.40  measured 0.410 (0.410-0.410)  scores of codes, 256 bits, avx2, ctx 32768, 1 thread\n");
    says("  met            0.50  measured 0.480 (0.480-0.480)  scores by codebooks over dense attention, c=256, avx2");
    says("  not met        1.00  measured 1.020 (1.020-1.020)  scores by codebooks over dense attention, c=2048, avx2");
    says("  met            0.60  measured 0.610 (0.610-0.610)  sums of 15% of V, f16, avx512, ctx 32768, 1 thread\n");
    assert_null(strstr(driven.printed, "measured 0.620"));
    says("  met            0.25  measured 0.240 (0.240-0.240)  weights of 0.9 over scores by codebooks, c=256, avx512");
    says("  not met        0.25  measured 0.260 (0.260-0.260)  weights of 0.9 over scores by codebooks, c=256, avx2");
    says(
        "  not met        0.50  measured 0.520 (0.520-0.520)  codes of 16 keys over those of each alone, c=2048, avx2");
    assert_null(strstr(driven.printed, "measured 0.540"));
    says("  threads          1 0.930        2 0.940      all 0.960\n");
    says("0.930-0.930~");
    says("  waits: DTLB  ");
    says("in 1 of 15 points too few samples kept their cores");
    /* neither met nor not met while the machine was disturbed, and judged where it was not */
    for (size_t i = 0; i < 2; i++) {
        measured(0, "avx512_ymm", i ? 0.9 : 0.95, 1);
        to_printed();
        says(i ? "  disturbed      0.93  measured 0.900" : "  disturbed      0.93  measured 0.950");
        ((struct ha_cpu_row *)(uintptr_t)entry(0)->row)->disturbed[0] = 0;
        to_printed();
        says(i ? "  not met        0.93  measured 0.900" : "  met            0.93  measured 0.950");
        assert_null(strstr(driven.printed, "  disturbed  "));
    }
    measured(3, "avx2", (double)NAN, 0.9);
    to_printed();
    says("  not met        0.65  measured nan");
    measured(3, "avx2", 0.7, 0.9);
    ((struct ha_cpu_row *)(uintptr_t)entry(3)->row)->head.verdict = HA_VERDICT_FAIL;
    to_printed();
    says("  not applicable 0.65  decode f16: not measured here with AVX2 alone\n");
    for (size_t i = 0; i < 19; i++) ((struct ha_entry *)(uintptr_t)entry(i))->row = NULL;
}
