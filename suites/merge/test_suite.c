/* The suite through its hooks: who is right passes, who is wrong is told where and how to see it again, who cannot be
 * asked is waived or an error, and what was not finished has no verdict. */

#include "suites/merge/test_loop.h"

#include "harness/base/clock.h"
#include "harness/base/registry.h"
#include "harness/base/stop.h"
#include "suites/merge/test_hostile.h"
#include "suites/merge/test_strangers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct loop made(const char *words, const struct ha_suite_config *config)
{
    struct loop l;
    loop_plan(&l, words);
    loop_run(&l, config);
    return l;
}

static void contains(const char *text, const char *words)
{
    if (!strstr(text, words)) fail_msg("'%s' lacks '%s'", text, words);
}

/* what print writes */
static char *printed(const struct loop *l)
{
    static char *text;
    static size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    ha_suite_lse_merge.print(out, &l->results);
    fclose(out);
    return text;
}

static void ours_are_right(void **state)
{
    (void)state;
    struct loop l = made("lse_merge:case=either_order,states=2 lse_merge:case=base_mix,states=2,form=base2", NULL);
    size_t ours = 0;
    const char *by;
    for (; (by = ha_merge_ours(ours)); ours++) {
        char id[256];
        struct ha_why why;
        struct ha_kernels k;
        snprintf(id, sizeof id, "lse_merge:case=base_mix,by=%s,form=base2,states=2", by);
        const struct ha_merge_result *row = loop_row(&l, id);
        const bool lacks = strcmp(by, "host") != 0 && ha_kernels_resolve(by, &k, &why) == HA_WAIVED;
        assert_int_equal(row->head.verdict, lacks ? HA_VERDICT_WAIVED : HA_PASS);
        if (lacks) continue;
        assert_string_equal(row->subject, by);
        assert_true(row->merges > 0 && row->ratio <= 1 && row->planted > 1);
        uint64_t in_bins = row->exact;
        for (size_t b = 0; b < HA_MERGE_BINS; b++) in_bins += row->bin[b];
        assert_int_equal(in_bins, row->merges);
    }
    assert_int_equal(l.plan.entries, 2 * ours);
    assert_int_equal(l.groups, 2);
    char *text = printed(&l);
    contains(text, " 32 either_order            commute");
    contains(text, " 22 base_mix                must fail");
    contains(text, "must fail: above without its planted error; with it err/bound is at least ");
    free(text);
    loop_close(&l);
}

/* A defect is wrong; the id that it prints, run again, is wrong in the same row; so is the file that it left. */
static void a_failure_is_told(void **state)
{
    (void)state;
    char folder[] = "/tmp/ha_merge_XXXXXX", command[256], id[HA_ID_MAX];
    assert_non_null(mkdtemp(folder));
    const struct ha_suite_config config = { .seed = 1, .out_dir = folder };
    struct loop l = made("lse_merge:case=all_empty,by=both_empty_nan,form=natural,dtype=f32", &config);
    assert_int_equal(l.row[0].head.verdict, HA_VERDICT_FAIL);
    contains(l.row[0].head.reason, "got nan, want -inf");
    contains(l.row[0].failure, "smallest: 1 states of 1, ");
    const char *again = strstr(l.row[0].failure, "again: habench check '");
    assert_non_null(again);
    sscanf(again, "again: habench check '%2000[^']", id);
    char *text = printed(&l);
    contains(text, l.row[0].failure);
    contains(text, "FAIL");
    free(text);
    loop_close(&l);

    contains(id, "lse_merge:case=all_empty,by=both_empty_nan,form=natural,dtype=f32,head_dim=");
    l = made(id, &config);
    assert_int_equal(l.row[0].head.verdict, HA_VERDICT_FAIL);
    assert_int_equal(l.row[0].merges, 1);
    loop_close(&l);

    snprintf(id, sizeof id, "lse_merge:replay=%s/merge-both_empty_nan.safetensors", folder);
    l = made(id, &config);
    assert_int_equal(l.row[0].head.verdict, HA_VERDICT_FAIL);
    assert_int_equal(l.row[0].merges, 1);
    text = printed(&l);
    contains(text,
             "1 states x 1 tokens x 1 heads x 1, natural, o f32, flat\nfail: 1 merges, 0 exact, worst err/bound inf\n");
    free(text);
    loop_close(&l);

    l = made("lse_merge:replay=suites/merge/lse_merge.suite", &config);
    assert_int_equal(l.row[0].head.verdict, HA_VERDICT_ERROR);
    loop_close(&l);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void a_random_failure_runs_again(void **state)
{
    (void)state;
    char folder[] = "/tmp/ha_merge_XXXXXX", command[256], id[HA_ID_MAX];
    assert_non_null(mkdtemp(folder));
    const struct ha_suite_config config = { .seed = 1, .out_dir = folder };
    struct loop l = made("lse_merge:case=random,by=no_shift,kind=chain,dtype=bf16,seed=3", &config);
    assert_int_equal(l.row[0].head.verdict, HA_VERDICT_FAIL);
    const char *again = strstr(l.row[0].failure, "again: habench check '");
    assert_non_null(again);
    sscanf(again, "again: habench check '%2000[^']", id);
    loop_close(&l);
    l = made(id, &config);
    assert_int_equal(l.row[0].head.verdict, HA_VERDICT_FAIL);
    assert_int_equal(l.row[0].merges, 1);
    loop_close(&l);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void the_gallery_finds(void **state)
{
    (void)state;
    struct loop l = made("lse_merge:case=gallery,defect=base_mix lse_merge:case=gallery,defect=dim_tail", NULL);
    assert_int_equal(l.groups, 1);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(l.row[i].head.verdict, HA_PASS);
        assert_true(l.row[i].also > 5 && l.row[i].merges > 100);
        assert_true(*l.row[i].showed);
    }
    assert_string_equal(l.row[0].found_by, "base_mix");
    assert_string_equal(l.row[1].found_by, "strided");
    char *text = printed(&l);
    contains(text, "  base_mix               yes       base_mix ");
    free(text);
    loop_close(&l);
}

static void attention_is_judged(void **state)
{
    (void)state;
    struct loop l = made("lse_merge:case=attention,problem=one_key", NULL);
    assert_int_equal(l.groups, 1);
    for (size_t i = 0; i < l.plan.entries; i++) {
        if (l.row[i].head.verdict == HA_VERDICT_WAIVED) continue;
        assert_int_equal(l.row[i].head.verdict, HA_PASS);
        assert_true(l.row[i].merges > 100 && l.row[i].ratio > 0 && l.row[i].ratio <= 1);
    }
    char *text = printed(&l);
    contains(text, "attention's own LSE        rows        c");
    contains(text, "    one_key ");
    free(text);
    loop_close(&l);
}

/* A library that merges: the template is right, and does not attend. */
static void a_stranger_is_asked(void **state)
{
    (void)state;
    char words[4096], path[1024];
    snprintf(path, sizeof path, "%.1000s", beside("merge_template.so"));
    snprintf(words, sizeof words,
             "lse_merge:case=either_order,by=%s,states=2 lse_merge:case=attention,problem=sink,by=%s", path, path);
    struct loop l = made(words, NULL);
    assert_int_equal(l.row[0].head.verdict, HA_PASS);
    assert_string_equal(l.row[0].subject, "mine");
    assert_true(l.row[0].merges > 10);
    assert_int_equal(l.row[1].head.verdict, HA_VERDICT_WAIVED);
    contains(l.row[1].head.reason, "offers no attend");
    char *text = printed(&l);
    contains(text, "merges     mine\n");
    free(text);
    loop_close(&l);
}

/* One that cannot be opened is an error once; others beside it are judged. */
static void a_stranger_that_dies_is_an_error(void **state)
{
    (void)state;
    char words[4096], path[1024];
    snprintf(path, sizeof path, "%.1000s", beside("merge_hostile.so"));
    snprintf(words, sizeof words,
             "lse_merge:case=either_order,by=%s,states=2 lse_merge:case=either_order,by=c,states=2 "
             "lse_merge:case=gaps,by=%s,states=2",
             path, path);
    setenv(HOSTILE_VARIABLE, "load", 1);
    struct loop l = made(words, NULL);
    unsetenv(HOSTILE_VARIABLE);
    assert_int_equal(l.groups, 2);
    assert_int_equal(l.row[0].head.verdict, HA_VERDICT_ERROR);
    contains(l.row[0].head.reason, "merge_hostile.so: ");
    contains(l.row[0].head.reason, "SIGABRT");
    assert_int_equal(l.row[1].head.verdict, HA_PASS);
    assert_int_equal(l.row[2].head.verdict, HA_NOT_RUN);
    assert_string_equal(l.row[2].head.reason, l.row[0].head.reason);
    loop_close(&l);
}

/* A command is asked for many cases at once, and once more for one whose axes are named. */
static void a_command_is_asked(void **state)
{
    (void)state;
    static const char bundled[] = "lse_merge:case=one_hot,by=exec,form=natural,dtype=f32 "
                                  "lse_merge:case=gaps,by=exec,form=natural,dtype=f32 "
                                  "lse_merge:case=huge,by=exec,form=natural,dtype=f32 "
                                  "lse_merge:case=random,by=exec,kind=natural,dtype=f32 "
                                  "lse_merge:case=random,by=exec,kind=chain,dtype=f32 "
                                  "lse_merge:case=gaps,by=exec,form=natural,dtype=f32,states=2,order=flat,alias=none,"
                                  "layout=packed";
    static const enum ha_verdict want[] = { HA_VERDICT_ERROR, HA_VERDICT_ERROR,  HA_VERDICT_WAIVED,
                                            HA_VERDICT_ERROR, HA_VERDICT_WAIVED, HA_VERDICT_ERROR };
    struct ha_suite_config config = { .seed = 1, .exec = "kill -9 $$ #", .out_dir = "/nonesuch" };
    struct loop l = made(bundled, &config);
    assert_int_equal(l.groups, 3);
    for (size_t i = 0; i < 6; i++)
        if (l.row[i].head.verdict != want[i]) fail_msg("%s: %s", l.plan.entry[i].id, l.row[i].head.reason);
    contains(l.row[0].head.reason, "SIGKILL");
    contains(l.row[2].head.reason, "flat, packed merges alone");
    contains(l.row[0].failure, "' --exec 'kill -9 $$ #'");
    loop_close(&l);
    config.exec = NULL;
    l = made("lse_merge:case=gaps,by=exec", &config);
    assert_int_equal(l.row[0].head.verdict, HA_VERDICT_ERROR);
    contains(l.row[0].head.reason, "--exec");
    loop_close(&l);
}

/* What was not finished has no verdict, but for what is wrong already; its reason says that it was not run. */
static void time_that_is_over(void **state)
{
    (void)state;
    static const char words[] = "lse_merge:case=one_hot,by=c lse_merge:case=gallery,defect=base_mix "
                                "lse_merge:case=attention,problem=sink,by=c lse_merge:case=random,by=c";
    for (int how = 0; how < 2; how++) {
        struct loop l;
        loop_plan(&l, words);
        if (how) ha_stop = 15;
        else l.deadline_ns = ha_now_ns();
        loop_run(&l, NULL);
        ha_stop = 0;
        for (size_t i = 0; i < l.plan.entries; i++) {
            assert_int_equal(l.row[i].head.verdict, HA_NOT_RUN);
            assert_true(*l.row[i].head.reason);
        }
        char *text = printed(&l);
        contains(text, " not run\n");
        free(text);
        loop_close(&l);
    }
}

static void stop(void *arg, size_t done, size_t of, const char *what)
{
    (void)of, (void)what;
    if (done >= *(size_t *)arg) __atomic_store_n(&ha_stop, 15, __ATOMIC_RELAXED);
}

static void stopped_in_the_middle(void **state)
{
    (void)state;
    size_t after = 100;
    struct ha_suite_config config = { .seed = 1, .engine = { .arg = &after, .progress = stop } };
    /* what others have found is not yet found by the case that is there for it, far behind */
    struct loop l = made("lse_merge:case=gallery,defect=dim_tail", &config);
    ha_stop = 0;
    assert_int_equal(l.row[0].head.verdict, HA_NOT_RUN);
    assert_true(*l.row[0].found_by && strcmp(l.row[0].found_by, "strided") != 0);
    loop_close(&l);
    after = 1;
    l = made("lse_merge:case=one_hot,by=c", &config);
    ha_stop = 0;
    assert_int_equal(l.row[0].head.verdict, HA_NOT_RUN);
    loop_close(&l);
    /* what goes on for as long as it may has a verdict whenever it ends */
    config.exhaustive = true;
    l = made("lse_merge:case=random,by=c,kind=base2,dtype=f32,states=2,rows=1x1", &config);
    ha_stop = 0;
    assert_int_equal(l.row[0].head.verdict, HA_PASS);
    assert_true(l.row[0].merges > 0 && l.row[0].merges < 10000);
    loop_close(&l);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* made up: all random merges by ours */
static void half_the_bound_must_bite(void **state)
{
    (void)state;
    struct loop l;
    struct ha_why why = { "" };
    FILE *out = fopen("/dev/null", "w");
    loop_plan(&l, "lse_merge:case=random,by=c lse_merge:case=random,by=base_mix");
    for (size_t i = 0; i < l.plan.entries; i++) {
        l.row[i].head.verdict = HA_PASS;
        l.row[i].merges = 1000;
        l.row[i].ratio = 0.4;
        l.row[i].bin[HA_MERGE_BINS - 1] = i < l.plan.entries / 2 ? 0 : 7;
    }
    assert_false(ha_suite_lse_merge.conclude(out, &l.results, &why));
    contains(why.text, "too loose");
    l.row[3].bin[HA_MERGE_BINS - 1] = 1;
    assert_true(ha_suite_lse_merge.conclude(out, &l.results, &why));
    /* nothing is said of the bound where not all of them were made */
    l.row[3].bin[HA_MERGE_BINS - 1] = 0;
    l.row[0].head.verdict = HA_NOT_RUN;
    assert_true(ha_suite_lse_merge.conclude(out, &l.results, &why));
    fclose(out);
    loop_close(&l);
}

static void lines_are_joined(void **state)
{
    (void)state;
    struct loop l;
    loop_plan(&l, "lse_merge:case=random,by=c,kind=chain lse_merge:case=random,by=base_mix,kind=chain");
    for (size_t i = 0; i < l.plan.entries; i++) {
        snprintf(l.row[i].subject, sizeof l.row[i].subject, "%s", i < 3 ? "c" : "base_mix");
        l.row[i].head.verdict = i < 3 ? HA_PASS : HA_VERDICT_FAIL;
        l.row[i].merges = 20480;
        l.row[i].exact = i ? 0 : 20480;
        l.row[i].ratio = 0.5;
        l.row[i].bin[1] = i ? 20480 : 0;
    }
    char *text = printed(&l);
    contains(text, "random form       o          merges        c base_mix\n"
                   "       chain      f32        20,480    exact     FAIL\n"
                   "       chain      f16        20,480    0.500     FAIL\n"
                   "       chain      bf16       20,480    0.500     FAIL\n");
    assert_null(strstr(strstr(text, "chain      f32") + 1, "chain      f32"));
    contains(text, "       chain        16.667   0.000  83.333   0.000");
    free(text);
    loop_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ours_are_right),
        cmocka_unit_test(a_failure_is_told),
        cmocka_unit_test(a_random_failure_runs_again),
        cmocka_unit_test(the_gallery_finds),
        cmocka_unit_test(attention_is_judged),
        cmocka_unit_test(a_stranger_is_asked),
        cmocka_unit_test(a_stranger_that_dies_is_an_error),
        cmocka_unit_test(a_command_is_asked),
        cmocka_unit_test(time_that_is_over),
        cmocka_unit_test(stopped_in_the_middle),
        cmocka_unit_test(half_the_bound_must_bite),
        cmocka_unit_test(lines_are_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
