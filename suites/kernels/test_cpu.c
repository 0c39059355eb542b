/* The suite of the CPU kernels over the tables as they are, and made wrong, poor or endless. */

#include "suites/kernels/goals.h"
#include "suites/kernels/report.h"
#include "suites/kernels/run.h"
#include "suites/kernels/work.h"

#include "harness/base/csv.h"
#include "harness/base/stop.h"
#include "harness/base/registry.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { TEXT = 1 << 16, POINTS = 8 };
static struct ha_kernels good, bad;
static struct ha_why why;
static char folder[64], printed[TEXT];

static int begin(void **state)
{
    (void)state;
    ha_stop = 0;
    if (ha_kernels_resolve(NULL, &good, &why) != HA_OK) return -1;
    bad = good;
    strcpy(folder, "cpu_test_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state)
{
    static const char *const files[] = { "cpu_kernels.csv", "env.json", "junit.xml", "cpu_kernels.suite" };
    (void)state;
    ha_stop = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    return rmdir(folder);
}

/* One or more ids, or a word alone, joined by blanks. */
static enum ha_exit run(const char *words, struct ha_cpu_options o)
{
    static char text[1024], *word[POINTS];
    char path[] = "cpu_stdout_XXXXXX";
    snprintf(text, sizeof text, "%s", words);
    o.words = word;
    for (char *w = strtok(text, " "); w && o.words_count < POINTS; w = strtok(NULL, " ")) word[o.words_count++] = w;
    if (!o.kernels) o.kernels = &bad;
    if (!o.cap_ns) o.cap_ns = 2000000;
    if (!o.rotate_bytes) o.rotate_bytes = 1 << 20;
    o.seed = 3;
    const int out = mkstemp(path), before = dup(STDOUT_FILENO);
    assert_true(out >= 0 && before >= 0);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    why.text[0] = 0;
    const enum ha_exit code = ha_cpu_run(&o, &why);
    fflush(stdout);
    dup2(before, STDOUT_FILENO);
    close(before);
    const ssize_t bytes = pread(out, printed, TEXT - 1, 0);
    printed[bytes > 0 ? bytes : 0] = 0;
    close(out);
    unlink(path);
    return code;
}

static const struct ha_cpu_options checked = { .measure = false };

static void says(const char *words)
{
    if (!strstr(printed, words)) fail_msg("lacks '%s':\n%s", words, printed);
}

static void explains(const char *words)
{
    if (!strstr(why.text, words)) fail_msg("'%s' lacks '%s'", why.text, words);
}

/* ---- ids --------------------------------------------------------------------------------------------------- */

static void ids_come_back(void **state)
{
    (void)state;
    size_t ids = 0;
    for (size_t kernel = 0; kernel < HA_CPU_KERNELS; kernel++)
        for (size_t i = 0; i < 64; i++, ids++) {
            struct ha_cpu_point p, back;
            char id[HA_CPU_ID_MAX];
            ha_cpu_point_default(&p);
            p = (struct ha_cpu_point){ .kernel = kernel,
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
                                       .block = (size_t)16 << i % 4 };
            assert_int_equal(ha_cpu_point_settle(&p, &why), HA_OK);
            ha_cpu_point_print(&p, id);
            assert_true(!strncmp(id, "cpu_kernels:kernel=", 19));
            if (ha_cpu_point_parse(strchr(id, ':') + 1, &back, &why) != HA_OK) fail_msg("%s: %s", id, why.text);
            if (memcmp(&back, &p, sizeof p)) fail_msg("%s does not come back", id);
            assert_true(ha_cpu_filter_fits(id + 12, &p));
            back.batch++;
            assert_false(ha_cpu_filter_fits(id + 12, &back));
        }
    assert_int_equal(ids, 64 * HA_CPU_KERNELS);
}

static void wrong_words_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *word, *filter, *isa, *threads, *says;
    } set[] = {
        { "cpu_kernels:kernal=attend", NULL, NULL, NULL, "unknown key 'kernal'; did you mean 'kernel'?" },
        { "cpu_kernels:kernel=atend", NULL, NULL, NULL, "unknown kernel 'atend'; did you mean 'attend'?" },
        { "cpu_kernels:dtype=fp16", NULL, NULL, NULL, "unknown dtype 'fp16'; did you mean 'f16'?" },
        { "cpu_kernels:attend", NULL, NULL, NULL, "'attend': not key=value" },
        { "cpu_kernels:ctx!=5", NULL, NULL, NULL, "not key=value" },
        { "cpu_kernels:ctx=0", NULL, NULL, NULL, "ctx: '0' is not a whole number from 1 to 16777216" },
        { "cpu_kernels:ctx=99999999999999999999", NULL, NULL, NULL, "is not a whole number" },
        { "cpu_kernels:ctx=", NULL, NULL, NULL, "ctx: '' is not" },
        { "cpu_kernels:heads=32", NULL, NULL, NULL, "'32' is not QUERY/KV heads, as 32/8" },
        { "cpu_kernels:heads=10/4", NULL, NULL, NULL, "heads=10/4: a KV head has no whole number of query heads" },
        { "cpu_kernels:threads=some", NULL, NULL, NULL, "'some' is neither 'all' nor a whole number" },
        { "cpu_kernels:head_dim=100", NULL, NULL, NULL, "head_dim=100: packed keys have a multiple of 8" },
        { "cpu_kernels:kernel=sparse,block=24", NULL, NULL, NULL, "block=24: it is one of 16 32 64 128" },
        { "cpu_kernels:kernel=topk,dtype=f16", NULL, NULL, NULL, "kernel=topk has no key 'dtype'" },
        { "cpu_kernels:ctx=5,ctx=6", NULL, NULL, NULL, "'ctx' is there twice" },
        { "cpu_kernels:ctx=5", "contxt=5", NULL, NULL, "-f: unknown key 'contxt'" },
        { "cpu_kernels:ctx=5", "dtype=f17", NULL, NULL, "-f: unknown dtype 'f17'" },
        { "cpu_kernels:ctx=5", "ctx=6", NULL, NULL, "-f ctx=6: none of the points fits" },
        { "cpu_kernels:ctx=5", NULL, "avx3", NULL, "--isa: unknown isa 'avx3'" },
        { "cpu_kernels:ctx=5", NULL, NULL, "0", "--threads: threads: '0' is neither" },
        { "nowhere/cpu_kernels.suite", NULL, NULL, NULL, "there is no such suite file" },
    };
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        assert_int_equal(
            run(set[i].word,
                (struct ha_cpu_options){ .filter = set[i].filter, .isa = set[i].isa, .threads = set[i].threads }),
            HA_EXIT_USAGE);
        explains(set[i].says);
    }
}

static size_t lines(void)
{
    size_t n = 0;
    for (const char *p = printed; (p = strchr(p, '\n')); p++) n++;
    return n;
}

static void filters_choose(void **state)
{
    (void)state;
    static const char ids[] =
        "cpu_kernels:ctx=5 cpu_kernels:ctx=6,dtype=f32 cpu_kernels:kernel=topk,ctx=5 cpu_kernels:ctx=5";
    static const struct {
        const char *filter;
        size_t lines;
    } set[] = {
        { NULL, 3 },        { "ctx=5", 2 },         { "ctx!=5", 1 },
        { "dtype=f32", 1 }, { "dtype!=f32", 2 },    { "kernel=attend,ctx=5", 1 },
        { "topk", 1 },      { "layout=packed", 2 },
    };
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        assert_int_equal(run(ids, (struct ha_cpu_options){ .filter = set[i].filter, .dry_run = true }), HA_EXIT_OK);
        if (lines() != set[i].lines) fail_msg("%s: %zu lines", set[i].filter, lines());
    }
    assert_int_equal(run(ids, (struct ha_cpu_options){ .isa = "c", .threads = "1", .dry_run = true }), HA_EXIT_OK);
    says("cpu_kernels:kernel=topk,isa=c,ctx=5,batch=1,heads=32/8,threads=1,budget=5,block=32\n");
}

/* ---- suite files --------------------------------------------------------------------------------------------------
 */

static bool keep_all(const void *arg, struct ha_cpu_point *p) { return (void)arg, (void)p, true; }

static void suite_errors_name_file_line_and_word(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } set[] = {
        { "[a]\nkernel = attend\nctxt = 5\n", "x.suite:3: unknown key 'ctxt'; did you mean 'ctx'?" },
        { "[a]\nkernel = attend\n\ndtype = f16 bf61\n", "x.suite:4: unknown dtype 'bf61'; did you mean 'bf16'?" },
        { "[a]\nctx = 5\n[b]\nctx = 5 x\n", "x.suite:4: ctx: 'x' is not a whole number" },
        { "ctx = 5\n", "x.suite:1: key 'ctx' stands before the first [section]" },
        { "[a]\nctx = 5\nctx = 6\n", "x.suite:3: key 'ctx' is there twice; first in line 2" },
        { "[a]\nctx = 5\n[a]\nctx = 6\n", "x.suite:4: section [a] is there twice" },
        { "[a]\n[b]\nctx = 5\n", "x.suite:1: the section has no key" },
        { "[a]\nctx = 5\n[b]\n", "x.suite:3: the section has no key" },
        { "[a]\nctx =\n", "x.suite:2: key 'ctx': no value" },
        { "[a]\nctx 5\n", "x.suite:2: neither [section] nor key = value" },
        { "[a]\nctx = 5\n[default]\nctx = 6\n", "x.suite:4: [default] is the first section" },
        { "[default]\nctx = 6\n", "x.suite: no point" },
        { "", "x.suite: no point" },
        { "[a]\nkernel = topk softmax\ndtype = f16\n", "x.suite:3: no kernel of [a] has a key 'dtype'" },
        { "[a]\naxis = ctxt\n", "x.suite:2: unknown key 'ctxt'" },
        { "[a]\naxis = ctx\nctx = 5\n", "x.suite:2: [a] has fewer than two values of its axis 'ctx'" },
        { "[a]\nctx = 5\nheads = 3/2\n", "x.suite:1: heads=3/2" },
    };
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        struct ha_cpu_plan plan = { 0 };
        assert_int_equal(ha_cpu_plan_parse("x.suite", set[i].text, &plan, &why), HA_ERROR);
        explains(set[i].says);
        ha_cpu_plan_free(&plan);
    }
    char many[HA_CPU_VALUE_MAX * 400] = "[a]\nctx =";
    for (size_t i = 0; i < 5000; i += 4) strcat(many, " 11");
    struct ha_cpu_plan plan = { 0 };
    assert_int_equal(ha_cpu_plan_parse("x.suite", many, &plan, &why), HA_ERROR);
    explains("x.suite:2");
    ha_cpu_plan_free(&plan);
}

static void a_suite_is_the_product_of_its_lists(void **state)
{
    (void)state;
    struct ha_cpu_plan plan = { 0 };
    static const char text[] =
        "[default]\nctx = 5\n; a comment\n[one]\nctx = 6 7 6   # 6 once\ndtype = f32 f16\nquery = kv f32\n"
        "[two]\naxis = threads\nthreads = 1 all\n[three]\nkernel = attend topk\ndtype = f16 f32\nctx = 7\n";
    assert_int_equal(ha_cpu_plan_parse("x", text, &plan, &why), HA_OK);
    assert_int_equal(ha_cpu_plan_close(&plan, keep_all, NULL, &why), HA_OK);
    assert_int_equal(plan.sections, 3);
    assert_int_equal(plan.section[0].count, 6); /* f32 has one kind of query */
    assert_int_equal(plan.section[1].count, 2);
    assert_int_equal(plan.section[1].point[0].ctx, 5);
    assert_int_equal(plan.section[1].axis, HA_CPU_THREADS);
    assert_int_equal(plan.section[0].axis, HA_CPU_KEYS);
    assert_int_equal(plan.section[2].count, 3); /* topk has no dtype */
    assert_int_equal(plan.results, 6 + 2 + 1);  /* attend over 7 keys is there already */
    assert_int_equal(plan.section[2].result[0], plan.section[0].result[3]);
    ha_cpu_plan_free(&plan);
}

/* ---- right, and wrong
 * ------------------------------------------------------------------------------------------------ */

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
    "cpu_kernels:kernel=topk,ctx=7000,block=16,heads=2/2 "
    "cpu_kernels:kernel=softmax,ctx=70,heads=4/2 cpu_kernels:kernel=merge,heads=4/2,head_dim=24";

static void every_kernel_is_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < ha_kernels_count; i++) {
        const char *name = ha_kernels_all[i]->name;
        struct ha_kernels table;
        if (ha_kernels_resolve(name, &table, &why) != HA_OK) continue;
        struct ha_cpu_options o = { .kernels = &table };
        assert_int_equal(run(every, o), HA_EXIT_OK);
        says("6 passed, 0 failed, 0 skipped");
        assert_int_equal(run(others, o), HA_EXIT_OK);
        says("8 passed, 0 failed, 0 skipped");
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
static void wrong_score(const struct ha_score *s)
{
    good.score(s);
    s->s[s->rows.keys - 1] *= 1.0001f;
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
static void wrong_topk(const struct ha_topk *t)
{
    good.topk(t);
    t->index[t->k - 1] = t->index[t->k - 1] + 1 < t->n ? t->index[t->k - 1] + 1 : t->index[t->k - 1] - 1;
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

static void wrong_kernels_fail(void **state)
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
        { { .pack = wrong_pack }, others, "the packed keys of KV head 1 are not the rows", 2, 8 },
        { { .score = wrong_score }, others, "error over bound", 1, 8 },
        { { .digest = wrong_digest }, others, "error over bound", 1, 8 },
        { { .digest_score = wrong_digest_score }, others, "error over bound", 1, 8 },
        { { .topk = wrong_topk }, others, "error over bound", 1, 8 },
        { { .softmax = wrong_softmax }, others, "error over bound", 1, 8 },
        { { .merge = wrong_merge }, others, "error over bound", 1, 8 },
    };
    (void)state;
    for (size_t d = 0; d < sizeof defect / sizeof *defect; d++) {
        const struct ha_kernels *c = &defect[d].change;
        char totals[64];
        bad = good;
        if (c->attend_all) bad.attend_all = c->attend_all;
        if (c->attend_packed[HA_F16]) bad.attend_packed[HA_F16] = c->attend_packed[HA_F16];
        if (c->attend_chunk) bad.attend_chunk = c->attend_chunk;
        if (c->pack) bad.pack = c->pack;
        if (c->score) bad.score = c->score;
        if (c->digest) bad.digest = c->digest;
        if (c->digest_score) bad.digest_score = c->digest_score;
        if (c->topk) bad.topk = c->topk;
        if (c->softmax) bad.softmax = c->softmax;
        if (c->merge) bad.merge = c->merge;
        if (run(defect[d].ids, checked) != HA_EXIT_WRONG) fail_msg("defect %zu is not found", d);
        says("FAIL");
        says(defect[d].words);
        snprintf(totals, sizeof totals, "%zu passed, %zu failed, 0 skipped", defect[d].of - defect[d].failed,
                 defect[d].failed);
        says(totals);
        explains("points are wrong");
    }
}

static void what_is_missing_is_waived(void **state)
{
    (void)state;
    bad.attend_all = NULL;
    assert_int_equal(run("cpu_kernels:ctx=40,head_dim=8 cpu_kernels:kernel=topk,ctx=40", checked), HA_EXIT_OK);
    says("has no attend_all");
    says("1 passed, 0 failed, 1 skipped");
    assert_int_equal(run("cpu_kernels:kernel=merge,threads=1024", checked), HA_EXIT_WAIVED);
    explains("everything was waived: 1024 threads: this process has");
    bad = good;
    assert_int_equal(run("cpu_kernels:ctx=16777216,batch=4096", checked), HA_EXIT_WAIVED);
    explains("this machine has");
}

/* ---- measured
 * --------------------------------------------------------------------------------------------------------- */

enum { ROWS = 16, FIELDS = 80 };
static char table[ROWS][FIELDS][200];
static size_t rows, columns;

static enum ha_status keep(void *arg, size_t line, char **fields, size_t count)
{
    (void)arg, (void)line;
    assert_true(rows < ROWS && count < FIELDS && (!rows || count == columns));
    columns = count;
    for (size_t i = 0; i < count; i++) snprintf(table[rows][i], sizeof table[rows][i], "%s", fields[i]);
    rows++;
    return HA_OK;
}

static void read_rows(void)
{
    char path[128];
    rows = 0;
    snprintf(path, sizeof path, "%s/cpu_kernels.csv", folder);
    assert_int_equal(ha_csv_read(path, keep, NULL, &why), HA_OK);
}

static const char *field(size_t row, const char *column)
{
    for (size_t i = 0; i < columns; i++)
        if (!strcmp(table[0][i], column)) return table[row][i];
    fail_msg("no column %s", column);
    return NULL;
}
static double figure(size_t row, const char *column) { return strtod(field(row, column), NULL); }

static unsigned calls, stop_at;
static void stopping_merge(const struct ha_merge *m)
{
    good.merge(m);
    if (++calls == stop_at) ha_stop = 2;
}

/* One run, because the ceiling's memory takes a while: two points are measured, and in the third one there is a signal.
 */
static void figures_are_written_and_a_signal_keeps_them(void **state)
{
    (void)state;
    static const char ids[] =
        "cpu_kernels:ctx=2048,heads=4/2,head_dim=64,threads=1 "
        "cpu_kernels:kernel=sparse,ctx=2048,heads=4/2,head_dim=64,threads=1 "
        "cpu_kernels:kernel=merge,heads=2/1,threads=1 cpu_kernels:kernel=topk,ctx=80,heads=2/2,threads=1";
    bad.merge = stopping_merge;
    calls = 0;
    stop_at = 3; /* the check and two runs */
    assert_int_equal(run(ids, (struct ha_cpu_options){ .measure = true, .out_dir = folder }), HA_EXIT_MISSING);
    explains("interrupted: 2 of 4 points are missing");
    says("2 passed, 0 failed, 0 skipped");
    says("whole/dense");
    read_rows();
    assert_int_equal(rows, 3);
    for (size_t r = 1; r < rows; r++) {
        assert_string_equal(field(r, "verdict"), "pass");
        assert_string_equal(field(r, "isa_used"), good.name);
        const double ns = figure(r, "ns"), bytes = figure(r, "bytes"), ratio = figure(r, "ratio");
        assert_true(ns > 0 && figure(r, "ns_lo") <= ns && ns <= figure(r, "ns_hi"));
        assert_true(ratio > 0 && figure(r, "ratio_lo") <= ratio && ratio <= figure(r, "ratio_hi"));
        assert_true(figure(r, "floor") >= ratio * 0.999);
        assert_true(figure(r, "GBps") > 0 && figure(r, "ceiling_GBps") > 0 && figure(r, "peak_GFLOPps") > 0
                    && figure(r, "wake_ns") > 0);
        assert_true(figure(r, "samples") >= 1);
        assert_true(figure(r, "err_over_bound") >= 0 && figure(r, "err_over_bound") <= 1
                    && *field(r, "err_over_bound"));
        if (r == 1) assert_true(bytes == 2 * 2 * 2048 * 64 * 2 && figure(r, "flop") == 4.0 * 2048 * 64 * 4);
    }
    assert_string_equal(field(1, "whole_over_dense"), "");
    assert_string_equal(field(2, "scale"), "1");
    assert_true(figure(2, "scores_ns") > 0 && figure(2, "choice_ns") > 0 && figure(2, "chosen_ns") > 0
                && figure(2, "dense_ns") > 0);
    assert_true(figure(2, "choice_share") > 0 && figure(2, "whole_over_dense") > 0);
}

static void what_was_not_run_is_missing(void **state)
{
    (void)state;
    assert_int_equal(run("cpu_kernels:kernel=topk,ctx=64 cpu_kernels:kernel=topk,ctx=65",
                         (struct ha_cpu_options){ .max_time_ns = 1 }),
                     HA_EXIT_MISSING);
    explains("--max-time is over: 2 of 2 points are missing");
}

static void a_full_disk_is_an_error(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/cpu_kernels.csv", folder);
    assert_int_equal(symlink("/dev/full", path), 0);
    assert_int_equal(run("cpu_kernels:kernel=topk,ctx=64", (struct ha_cpu_options){ .out_dir = folder }),
                     HA_EXIT_ENVIRONMENT);
    explains("No space left on device");
}

/* A check of the suite has few keys; a dry run names the points as they are. */
static void a_check_of_a_file_is_small(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/cpu_kernels.suite", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("[a]\naxis = ctx\nctx = 1000000 2000000\nheads = 2/2\nhead_dim = 8\nbatch = 64\nthreads = 1\n", f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(run(path, checked), HA_EXIT_OK);
    says("ctx=777");
    says("1 passed, 0 failed, 0 skipped");
    assert_int_equal(run(path, (struct ha_cpu_options){ .dry_run = true }), HA_EXIT_OK);
    says("ctx=2000000,batch=64");
}

/* ---- goals and scaling, of figures that are made up
 * --------------------------------------------------------------------------- */

static void measured(struct ha_cpu_plan *plan, size_t i, unsigned cpu_bit, double ratio, double scale)
{
    struct ha_cpu_result *r = &plan->result[i];
    r->state = HA_CPU_MEASURED;
    r->cpu_bit = cpu_bit;
    r->threads = r->point.threads == 1 ? 1 : 2;
    r->ratio = (struct ha_cpu_figure){ ratio, ratio, ratio };
    r->whole_over_dense = (struct ha_cpu_figure){ 0.2, 0.2, 0.2 };
    r->choice_share = (struct ha_cpu_figure){ 0.01, 0.01, 0.01 };
    r->scale = scale;
    snprintf(r->isa, sizeof r->isa, "made_up");
}

static void to_printed(void (*print)(FILE *out, const struct ha_cpu_plan *plan), const struct ha_cpu_plan *plan)
{
    FILE *f = tmpfile();
    assert_non_null(f);
    print(f, plan);
    rewind(f);
    printed[fread(printed, 1, TEXT - 1, f)] = 0;
    fclose(f);
}

static void goals_are_judged(void **state)
{
    (void)state;
    struct ha_cpu_plan plan = { 0 };
    static const char text[] =
        "[a]\naxis = threads\ndtype = f32\nthreads = 1 2 all\n[b]\ndtype = f16\n[c]\nkernel = sparse\n";
    assert_int_equal(ha_cpu_plan_parse("x", text, &plan, &why), HA_OK);
    assert_int_equal(ha_cpu_plan_close(&plan, keep_all, NULL, &why), HA_OK);
    to_printed(ha_cpu_print_goals, &plan);
    assert_string_equal(printed, "");
    measured(&plan, 0, HA_CPU_AVX512, 0.93, 1);
    measured(&plan, 1, HA_CPU_AVX512_BF16, 0.94, 0.81);
    measured(&plan, 2, HA_CPU_AVX512, 0.96, 0.79);
    measured(&plan, 3, HA_CPU_AVX2, 0.649, 0.9);
    measured(&plan, 4, HA_CPU_AVX2, 0.1, 0.9);
    to_printed(ha_cpu_print_goals, &plan);
    says("  met            0.93  measured 0.930 (0.930-0.930)  decode f32, made_up, ctx 32768, 1 thread\n");
    says("  met            0.93  measured 0.940 (0.940-0.940)  decode f32, made_up, ctx 32768, 2 threads, harder\n");
    says("  not met        0.97  measured 0.960 (0.960-0.960)  decode f32, made_up, ctx 32768, 2 threads, easier\n");
    says("  not met        0.65  measured 0.649 (0.649-0.649)  decode f16, made_up, ctx 32768, 2 threads, harder\n");
    says("  not applicable 0.70  decode f16: not measured here with AVX-512\n");
    says("  not applicable 0.88  decode bf16, query=kv: not measured here with AVX-512 BF16\n");
    says("  not met        0.10  measured 0.200 (0.200-0.200)  sparse step over dense step");
    says("  met            0.06  measured 0.010 (0.010-0.010)  top-k over sparse step");
    plan.result[3].ratio.median = (double)NAN;
    to_printed(ha_cpu_print_goals, &plan);
    says("  not met        0.65  measured nan");
    to_printed(ha_cpu_print_scaling, &plan);
    says("  threads          1 0.930        2 0.940      all 0.960\n");
    ha_cpu_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ids_come_back, begin, end),
        cmocka_unit_test_setup_teardown(wrong_words_are_named, begin, end),
        cmocka_unit_test_setup_teardown(filters_choose, begin, end),
        cmocka_unit_test_setup_teardown(suite_errors_name_file_line_and_word, begin, end),
        cmocka_unit_test_setup_teardown(a_suite_is_the_product_of_its_lists, begin, end),
        cmocka_unit_test_setup_teardown(every_kernel_is_right, begin, end),
        cmocka_unit_test_setup_teardown(wrong_kernels_fail, begin, end),
        cmocka_unit_test_setup_teardown(what_is_missing_is_waived, begin, end),
        cmocka_unit_test_setup_teardown(figures_are_written_and_a_signal_keeps_them, begin, end),
        cmocka_unit_test_setup_teardown(what_was_not_run_is_missing, begin, end),
        cmocka_unit_test_setup_teardown(a_full_disk_is_an_error, begin, end),
        cmocka_unit_test_setup_teardown(a_check_of_a_file_is_small, begin, end),
        cmocka_unit_test_setup_teardown(goals_are_judged, begin, end),
    };
    return cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
}
