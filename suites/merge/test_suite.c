/* The suite through its hooks: who is right passes, who is wrong is told where and how to see it again, who cannot be
 * asked is waived or an error, and what was not finished has no verdict. */

#define _GNU_SOURCE /* sched_setaffinity */
#include "harness/base/clock.h"
#include "harness/base/registry.h"
#include "harness/base/stop.h"
#include "harness/base/test_beside.h"
#include "harness/engine/drive.h"
#include "harness/engine/machine.h"
#include "suites/merge/point.h"
#include "suites/merge/test_hostile.h"

#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <unistd.h>

static struct ha_why why;
static struct ha_driven driven;

static struct ha_drive asked(const char *words) { return (struct ha_drive){ .words = words, .config = { .seed = 1 } }; }

static void run_as(const struct ha_drive *drive)
{
    ha_driven_free(&driven);
    if (ha_drive(drive, &driven, &why) != HA_OK) fail_msg("%s: %s", drive->words, why.text);
    assert_ptr_equal(driven.suite, &ha_suite_lse_merge);
}

static void run_in(const char *words, const char *folder)
{
    struct ha_drive drive = asked(words);
    drive.config.out_dir = folder;
    run_as(&drive);
}
static void run(const char *words) { run_in(words, NULL); }

static const struct ha_merge_result *row(size_t i) { return driven.results.entry[i].row; }
static void is(size_t i, enum ha_verdict verdict)
{
    if (row(i)->head.verdict != verdict)
        fail_msg("%s: verdict %d: %s", driven.results.entry[i].id, (int)row(i)->head.verdict, row(i)->head.reason);
}

TEST(ours_are_right)
{
    run("lse_merge:case=either_order,states=2 lse_merge:case=base_mix,states=2,form=base2");
    size_t ours = 0;
    const char *by;
    for (; (by = ha_merge_ours(ours)); ours++) {
        char id[256];
        struct ha_kernels k;
        snprintf(id, sizeof id, "lse_merge:case=base_mix,by=%s,form=base2,states=2", by);
        const struct ha_entry *e = ha_driven_find(&driven, id);
        assert_non_null(e);
        const struct ha_merge_result *r = e->row;
        const bool lacks = strcmp(by, "host") != 0 && ha_kernels_resolve(by, &k, &why) == HA_WAIVED;
        assert_int_equal(r->head.verdict, lacks ? HA_VERDICT_WAIVED : HA_PASS);
        if (lacks) continue;
        assert_string_equal(r->subject, by);
        assert_true(r->merges > 0 && r->ratio <= 1 && r->planted > 1);
        uint64_t in_bins = r->exact;
        int last = 0;
        for (int b = 0; b < HA_MERGE_BINS; b++) {
            in_bins += r->bin[b];
            if (r->bin[b]) last = b;
        }
        assert_int_equal(in_bins, r->merges);
        assert_true(r->ratio >= ldexp(1, last - HA_MERGE_BINS) && r->ratio <= ldexp(1, last + 1 - HA_MERGE_BINS));
    }
    assert_int_equal(driven.results.entries, 2 * ours);
    assert_contains(driven.printed, " 32 either_order            commute");
    assert_contains(driven.printed, " 22 base_mix                must fail");
    assert_contains(driven.printed, "must fail: above without its planted error; with it err/bound is at least ");
}

/* The embedded device, which claims something else, or whose functions are another's in the merges that look at them.
 */
extern const struct ha_device_api ha_device_host;
static struct {
    size_t field; /* of the traits; 0: none */
    double claim;
    float o, lse; /* factors of exp and log where they are looked at */
} bent;

static void bent_info(struct ha_device *device, struct ha_device_info *info)
{
    ha_device_host.info(device, info);
    if (bent.field) memcpy((char *)&info->merge + bent.field, &bent.claim, sizeof bent.claim);
}
static enum ha_status bent_merge(struct ha_stream *stream, const struct ha_merge *m)
{
    const enum ha_status st = ha_device_host.merge(stream, m);
    if (st != HA_OK || m->tokens != HA_EPS_ARGUMENTS) return st;
    assert_int_equal(ha_device_host.stream_sync(stream), HA_OK);
    for (size_t t = 0; t < m->tokens; t++) {
        ((float *)m->out.o)[t * m->out.o_token_stride + 1] *= bent.o;
        m->out.lse[t * m->out.lse_token_stride] *= bent.lse;
    }
    return st;
}

/* What is right may still be claimed falsely: too much, more than the states leave room for, less than is seen. */
TEST(claims_of_a_merge_are_judged)
{
    static const struct {
        size_t field;
        double claim;
        float o, lse;
        const char *says;
    } each[] = {
        { 0, 0, 1, 1, NULL },
        { offsetof(struct ha_merge_traits, exp_eps), 0x1p-21, 1, 1, NULL },
        { offsetof(struct ha_merge_traits, log_eps), 0x1p-11, 1, 1, "times as much as by those of our merge" },
        { offsetof(struct ha_merge_traits, depth_extra), 64, 1, 1,
          "its traits: depth_extra is 64, not from 0 to 19 where 3 states are merged" },
        { 0, 0, 1 + 0x1p-18f, 1, "its traits: exp_eps is 1.19e-07, but the function is off by 3.7" },
        { 0, 0, 1, 1 - 0x1p-18f, "its traits: log_eps is 1.19e-07, but the function is off by" },
        { offsetof(struct ha_merge_traits, log_eps), 0x1p-17, 1, 1 - 0x1p-18f, NULL },
    };
    struct ha_device_api api = ha_device_host;
    api.info = bent_info;
    api.merge = bent_merge;
    for (size_t i = 0; i < COUNT(each); i++) {
        struct ha_drive drive = asked("lse_merge:case=permuted,by=host,form=natural,dtype=f32,states=3");
        bent.field = each[i].field;
        bent.claim = each[i].claim;
        bent.o = each[i].o;
        bent.lse = each[i].lse;
        assert_int_equal(ha_machine_create(&drive.config.machine, NULL, &why), HA_OK);
        ha_machine_give(drive.config.machine, "host", &api, NULL);
        run_as(&drive);
        const struct ha_entry *e = driven.results.entry;
        is(0, each[i].says ? HA_VERDICT_FAIL : HA_PASS);
        if (each[i].says) assert_contains(row(0)->head.reason, each[i].says);
        else {
            const double o = ha_driven_number(&driven, e, "sensitivity"),
                         lse = ha_driven_number(&driven, e, "sensitivity_lse"),
                         seen = ha_driven_number(&driven, e, "log_eps");
            assert_true(o > 1e-7 && o < 1e-4 && lse > 1e-7 && lse < 1e-4
                        && ha_driven_number(&driven, e, "exp_eps") > 0);
            assert_true(seen > 0 && (seen > 0x1.8p-19) == (each[i].lse < 1));
            assert_true(ha_driven_number(&driven, e, "sensitivity_times") <= 8);
            assert_contains(driven.printed, "sensitivity: at worst ");
        }
        ha_machine_destroy(drive.config.machine);
    }
}

static bool flips;
static enum ha_status flipped_merge(struct ha_stream *stream, const struct ha_merge *m)
{
    const enum ha_status st = ha_device_host.merge(stream, m);
    if (st != HA_OK || !flips || !m->tokens || m->dtype != HA_F32) return st;
    assert_int_equal(ha_device_host.stream_sync(stream), HA_OK);
    uint32_t bits;
    memcpy(&bits, m->out.lse, sizeof bits);
    bits ^= 1;
    memcpy(m->out.lse, &bits, sizeof bits);
    return st;
}

static void outputs_of(char out[32], const char *words, const struct ha_device_api *api, enum ha_verdict verdict)
{
    struct ha_drive drive = asked(words);
    assert_int_equal(ha_machine_create(&drive.config.machine, NULL, &why), HA_OK);
    if (api) ha_machine_give(drive.config.machine, "host", api, NULL);
    run_as(&drive);
    is(0, verdict);
    snprintf(out, 32, "%s", row(0)->head.outputs);
    ha_machine_destroy(drive.config.machine);
}

/* One bit of an LSE is within its bound, and the same each time. */
TEST(last_bits_are_seen_by_the_digest_alone)
{
    static const char id[] = "lse_merge:case=permuted,by=host,form=natural,dtype=f32,states=3";
    struct ha_device_api api = ha_device_host;
    char first[32], second[32], other[32];
    api.merge = flipped_merge;
    flips = false;
    outputs_of(first, id, &api, HA_PASS);
    outputs_of(second, id, NULL, HA_PASS);
    assert_int_equal(strlen(first), 16);
    assert_string_equal(first, second);
    flips = true;
    outputs_of(other, id, &api, HA_PASS);
    assert_int_equal(strlen(other), 16);
    assert_string_not_equal(first, other);
    outputs_of(other, "lse_merge:case=all_empty,by=both_empty_nan,form=natural,dtype=f32", NULL, HA_VERDICT_FAIL);
    assert_string_equal(other, "");
}

/* However threads share the batches, and whatever else is asked. */
TEST(random_merges_leave_the_same_bits_each_time)
{
    char first[32], second[32];
    outputs_of(first, "lse_merge:case=random,by=c,kind=chain,dtype=f32", NULL, HA_PASS);
    outputs_of(second,
               "lse_merge:case=random,by=c,kind=chain,dtype=f32 lse_merge:case=random,by=c,kind=chain,dtype=f16", NULL,
               HA_PASS);
    assert_int_equal(strlen(first), 16);
    assert_string_equal(first, second);
}

/* the id that a failure prints */
static void again(char id[HA_ID_MAX])
{
    const char *text = strstr(row(0)->failure, "again: habench check '");
    assert_non_null(text);
    sscanf(text, "again: habench check '%2000[^']", id);
}

/* A defect is wrong; the id that it prints, run again, is wrong in the same row; so is the file that it left. */
TEST(a_failure_is_told)
{
    static const struct {
        const char *words, *reason, *smallest, *file;
    } each[] = {
        { "lse_merge:case=all_empty,by=both_empty_nan,form=natural,dtype=f32", "got nan, want -inf",
          "smallest: 1 states of 1, ", "merge-both_empty_nan" },
        { "lse_merge:case=random,by=no_shift,kind=chain,dtype=bf16,seed=3", "", "smallest: ", "merge-no_shift" },
    };
    for (size_t i = 0; i < (HA_TSAN ? 1 : COUNT(each)); i++) { /* how it is made smaller is one thread's */
        char folder[200], text[HA_ID_MAX];
        assert_non_null(mkdtemp(test_template(folder, sizeof folder, "")));
        run_in(each[i].words, folder);
        is(0, HA_VERDICT_FAIL);
        assert_contains(row(0)->head.reason, each[i].reason);
        assert_contains(row(0)->failure, each[i].smallest);
        assert_contains(driven.printed, row(0)->failure);
        assert_contains(driven.printed, "FAIL");
        again(text);
        if (!i) assert_contains(text, "lse_merge:case=all_empty,by=both_empty_nan,form=natural,dtype=f32,head_dim=");
        char replay[300];
        snprintf(replay, sizeof replay, "check lse_merge --replay '%s/%s.safetensors'\n", folder, each[i].file);
        assert_contains(row(0)->failure, replay);
        run_in(text, folder);
        is(0, HA_VERDICT_FAIL);
        assert_int_equal(row(0)->merges, 1);

        snprintf(text, sizeof text, "lse_merge:replay=%s/%s.safetensors", folder, each[i].file);
        run(text);
        is(0, HA_VERDICT_FAIL);
        assert_true(row(0)->merges >= 1);
        if (!i)
            assert_contains(driven.printed,
                            "1 states x 1 tokens x 1 heads x 1, natural, o f32, flat\nfail: 1 merges, 0 exact, "
                            "worst err/bound inf\n");
        snprintf(text, sizeof text, "rm -r %s", folder);
        assert_int_equal(system(text), 0);
    }
    run("lse_merge:replay=suites/merge/lse_merge.suite");
    is(0, HA_VERDICT_ERROR);
}

/* The folder of the file is what is wrong, not the file. */
TEST(a_folder_that_cannot_be_made_is_named)
{
    char gone[200];
    const int here = open(".", O_RDONLY | O_DIRECTORY);
    assert_true(here >= 0 && mkdtemp(test_template(gone, sizeof gone, "")) && chdir(gone) == 0 && rmdir(gone) == 0);
    run("lse_merge:case=all_empty,by=both_empty_nan,form=natural,dtype=f32");
    assert_int_equal(fchdir(here), 0);
    close(here);
    is(0, HA_VERDICT_FAIL);
    assert_contains(row(0)->failure, "no replay file: lse_merge.failures: cannot make the folder: No such file");
}

/* A case that has found a defect is not asked for it again: on one thread no other task is at work then. */
TEST(the_gallery_finds)
{
    cpu_set_t allowed, one;
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    run("lse_merge:case=gallery,defect=base_mix lse_merge:case=gallery,defect=dim_tail");
    assert_int_equal(sched_setaffinity(0, sizeof allowed, &allowed), 0);
    for (size_t i = 0; i < 2; i++) {
        is(i, HA_PASS);
        assert_true(row(i)->also > 5 && row(i)->merges > 100 && row(i)->merges < 20000); /* of 60000 */
        assert_true(*row(i)->showed);
    }
    assert_string_equal(row(0)->found_by, "base_mix");
    assert_string_equal(row(1)->found_by, "strided");
    assert_contains(driven.printed, "  base_mix               yes       base_mix ");
}

/* Of a case, all is merged whether it fails or not. */
TEST(a_failure_does_not_end_a_case)
{
    run("lse_merge:case=one_hot,by=c,form=natural,dtype=f32 lse_merge:case=one_hot,by=dim_tail,form=natural,dtype=f32");
    is(0, HA_PASS);
    is(1, HA_VERDICT_FAIL);
    assert_int_equal(row(0)->merges, row(1)->merges);
}

TEST(attention_is_judged)
{
    run("lse_merge:case=attention,problem=one_key");
    for (size_t i = 0; i < driven.results.entries; i++) {
        if (row(i)->head.verdict == HA_VERDICT_WAIVED) continue;
        is(i, HA_PASS);
        assert_true(row(i)->merges > 100 && row(i)->ratio > 0 && row(i)->ratio <= 1);
    }
    assert_contains(driven.printed, "attention's own LSE        rows        c");
    assert_contains(driven.printed, "    one_key ");
}

/* The points of these words, in which % is the path of a plugin. */
static void ask(const char *words, const char *plugin)
{
    char text[2048] = "";
    for (const char *p = words; *p; p++) {
        const size_t n = strlen(text);
        if (*p == '%') snprintf(text + n, sizeof text - n, "%.600s", beside(plugin));
        else snprintf(text + n, sizeof text - n, "%c", *p);
    }
    run(text);
}

/* A library that merges: the template is right, and does not attend. */
TEST(a_stranger_is_asked)
{
    ask("lse_merge:case=either_order,by=%,states=2 lse_merge:case=attention,problem=sink,by=%", "merge_template.so");
    is(0, HA_PASS);
    assert_string_equal(row(0)->subject, "mine");
    assert_true(row(0)->merges > 10);
    is(1, HA_VERDICT_WAIVED);
    assert_contains(row(1)->head.reason, "offers no attend");
    assert_contains(driven.printed, "merges     mine\n");
}

/* What a device of that kind leaves is nothing that could be checked. */
TEST(a_null_device_is_not_judged)
{
    ask("lse_merge:case=either_order,by=%,states=2 lse_merge:case=random,by=%,kind=natural,dtype=f32 "
        "lse_merge:case=attention,problem=sink,by=% lse_merge:case=either_order,by=c,states=2",
        "../ha_null.so");
    for (size_t i = 0; i < 3; i++) {
        is(i, HA_UNCHECKED);
        assert_string_equal(row(i)->head.reason, "a device of the kind null computes nothing");
        assert_int_equal(row(i)->merges, 0);
    }
    is(3, HA_PASS);
    assert_contains(driven.printed, "unchecked");
}

/* One that cannot be opened is an error of every point that asks for it; others beside it are judged. */
TEST(a_stranger_that_dies_is_an_error)
{
    setenv(HOSTILE_VARIABLE, "load", 1);
    ask("lse_merge:case=either_order,by=%,states=2 lse_merge:case=either_order,by=c,states=2 "
        "lse_merge:case=gaps,by=%,states=2",
        "merge_hostile.so");
    unsetenv(HOSTILE_VARIABLE);
    is(0, HA_VERDICT_ERROR);
    assert_contains(row(0)->head.reason, "merge_hostile.so: ");
    assert_contains(row(0)->head.reason, "SIGABRT");
    is(1, HA_PASS);
    is(2, HA_VERDICT_ERROR);
    assert_string_equal(row(2)->head.reason, row(0)->head.reason);
}

/* What the device hostile.so does, it does once, and then this file is there (harness/engine/test_hostile_device.c). */
static char once[200];

static void hostile_begins(void)
{
    assert_non_null(mkdtemp(test_template(once, sizeof once, "")));
    strcat(once, "/once");
    setenv("HA_HOSTILE_ONCE", once, 1);
}

static void hostile_ends(void)
{
    unsetenv("HA_HOSTILE");
    unsetenv("HA_HOSTILE_AFTER");
    unsetenv("HA_HOSTILE_ONCE");
    *strrchr(once, '/') = 0;
    assert_int_equal(rmdir(once), 0);
}

/* One that dies when its exp and log are looked at dies in no case, and is an error all the same: of the points that
 * asked for it then, attention's and those that it is not asked for at last, too. */
TEST(a_death_when_it_is_looked_at_is_an_error)
{
    if (HA_TSAN) skip(); /* which ends a process that makes a thread after a fork, as the embedded device does */
    static const char *const hooks[] = { "mem_alloc", "stream_create", "copy", "merge", "stream_sync" },
                             *const deeds[] = { "exit_0", "exit_3", "abort", "crash", "poison" },
                             *const words[] = { "exited with 0", "exited with 3", "killed by SIGABRT",
                                                "killed by SIGSEGV", "an illegal memory access was encountered" };
    static const char *const points[] = {
        "lse_merge:case=gaps,by=%,form=natural,dtype=f32,states=2",
        "lse_merge:case=random,by=%,kind=natural,dtype=f32,seed=1",
        "lse_merge:case=attention,problem=one_key,by=%",
        "lse_merge:case=huge,by=%,form=natural,dtype=f32",
    };
    char text[512], said[200];
    hostile_begins();
    for (size_t i = 0; i < COUNT(hooks) + COUNT(deeds); i++) {
        const char *hook = i < COUNT(hooks) ? hooks[i] : "copy";
        const size_t deed = i < COUNT(hooks) ? 1 : i - COUNT(hooks);
        snprintf(text, sizeof text, "%s:%s", hook, deeds[deed]);
        snprintf(said, sizeof said, "when its exp and log were looked at: %s%s",
                 deed + 1 == COUNT(deeds) ? "hostile: " : "", words[deed]);
        setenv("HA_HOSTILE", text, 1);
        snprintf(text, sizeof text, "%s lse_merge:case=one_hot,by=%%,form=natural,dtype=f32,states=2",
                 points[i % COUNT(points)]);
        ask(text, "hostile.so");
        assert_int_equal(unlink(once), 0); /* it was done */
        is(0, HA_VERDICT_ERROR);
        assert_contains(row(0)->head.reason, said);
        is(1, HA_PASS); /* it was looked at again */
        assert_true(row(1)->exp_eps > 0 && row(1)->log_eps > 0);
    }
    hostile_ends();
}

/* Whichever call of a device is its last one, of those that look at it, merge, and merge once more. */
TEST(no_call_of_a_device_is_forgiven_a_death)
{
    if (HA_TSAN) skip(); /* as above */
    static const char *const deed[] = { "copy:exit_0", "merge:exit_3" };
    char after[16];
    hostile_begins();
    for (size_t d = 0; d < COUNT(deed); d++) {
        size_t calls = 0;
        bool done = true;
        setenv("HA_HOSTILE", deed[d], 1);
        while (done) {
            snprintf(after, sizeof after, "%zu", calls);
            setenv("HA_HOSTILE_AFTER", after, 1);
            ask("lse_merge:case=gaps,by=%,form=natural,dtype=f32,states=2", "hostile.so");
            done = unlink(once) == 0;
            is(0, done ? HA_VERDICT_ERROR : HA_PASS);
            if (done) assert_contains(row(0)->head.reason, d ? "exited with 3" : "exited with 0");
            calls += done;
        }
        assert_true(calls >= (d ? 3 : 6));
    }
    hostile_ends();
}

/* Nor a failure behind the last operation of all, which only the device itself can tell. */
TEST(no_failure_of_a_device_comes_too_late)
{
    if (HA_TSAN) skip(); /* as above */
    static const struct {
        const char *deed, *after, *words;
    } each[] = {
        { "graph_destroy:poison", "0", "lse_merge:case=stream_and_graph,by=%,form=natural,dtype=f32" },
        { "stream_destroy:poison", "1", "lse_merge:case=stream_and_graph,by=%,form=natural,dtype=f32" },
        { "mem_free:poison", "0", "lse_merge:case=flag_before_data,by=%,form=natural,dtype=f32" },
        { "mem_free:poison", "0", "lse_merge:case=attention,problem=one,by=%" },
    };
    hostile_begins();
    for (size_t i = 0; i < COUNT(each); i++) {
        setenv("HA_HOSTILE", each[i].deed, 1);
        setenv("HA_HOSTILE_AFTER", each[i].after, 1);
        ask(each[i].words, "hostile.so");
        assert_int_equal(unlink(once), 0);
        is(0, HA_VERDICT_ERROR);
        assert_contains(row(0)->head.reason, "hostile: an illegal memory access was encountered");
    }
    hostile_ends();
}

/* What a library does each time it is looked at, and at no other. */
TEST(who_cannot_be_looked_at_is_not_right)
{
    static const struct {
        const char *how, *words;
        enum ha_verdict merges, attention;
    } each[] = {
        { "look exits", "when its exp and log were looked at: exited with 5", HA_VERDICT_ERROR, HA_VERDICT_ERROR },
        { "look refuses", "when its exp and log were looked at: refused: merge returned HA_ERROR", HA_VERDICT_FAIL,
          HA_PASS },
    };
    for (size_t i = 0; i < COUNT(each); i++) {
        setenv(HOSTILE_VARIABLE, each[i].how, 1);
        ask("lse_merge:case=gaps,by=%,form=natural,dtype=f32,states=2 "
            "lse_merge:case=one_hot,by=%,form=natural,dtype=f32,states=2 lse_merge:case=gallery,defect=dim_tail",
            "merge_hostile.so");
        unsetenv(HOSTILE_VARIABLE);
        for (size_t k = 0; k < 2; k++) {
            is(k, each[i].merges);
            assert_contains(row(k)->head.reason, each[i].words);
            assert_true(row(k)->merges > 0 && row(k)->ratio <= 1);
        }
        is(2, HA_PASS);
    }
}

/* A command is asked for many cases at once, and once more for one whose axes are named. */
TEST(a_command_is_asked)
{
    struct ha_drive drive = asked(
        "lse_merge:case=one_hot,by=exec,form=direct,dtype=f32 lse_merge:case=gaps,by=exec,form=direct,dtype=f32 "
        "lse_merge:case=huge,by=exec,form=direct,dtype=f32 "
        "lse_merge:case=random,by=exec,kind=direct,dtype=f32 lse_merge:case=random,by=exec,kind=chain,dtype=f32 "
        "lse_merge:case=gaps,by=exec,form=direct,dtype=f32,states=2,order=flat,alias=none,layout=packed");
    static const enum ha_verdict want[] = { HA_VERDICT_ERROR, HA_VERDICT_ERROR,  HA_VERDICT_WAIVED,
                                            HA_VERDICT_ERROR, HA_VERDICT_WAIVED, HA_VERDICT_ERROR };
    /* exp and log cannot be looked at in this form, in which it dies in its cases alone */
    drive.config.exec = "test $1 = --traits && echo forms=direct || kill -9 $$ #";
    drive.config.out_dir = "/nonesuch";
    run_as(&drive);
    for (size_t i = 0; i < 6; i++) is(i, want[i]);
    assert_contains(row(0)->head.reason, "SIGKILL");
    assert_contains(row(2)->head.reason, "flat, packed merges alone");
    assert_contains(row(0)->failure, "' --exec 'test $1 = --traits && echo forms=direct || kill -9 $$ #'");
    for (size_t i = 0; i < 2; i++) {
        drive.config.exec = i ? "kill -9 $$ #" : "test $1 = --traits || kill -9 $$ #";
        run_as(&drive);
        for (size_t k = 0; k < driven.results.entries; k++) {
            is(k, HA_VERDICT_ERROR);
            assert_contains(row(k)->head.reason, i ? "--exec, asked for --traits: killed by SIGKILL" : "SIGKILL");
        }
    }
    run("lse_merge:case=gaps,by=exec");
    is(0, HA_VERDICT_ERROR);
    assert_contains(row(0)->head.reason, "--exec");
}

/* ---- what was not finished has no verdict, and a reason ---------------------------------------------------------- */

TEST(time_that_is_over)
{
    struct ha_drive drive = asked("lse_merge:case=one_hot,by=c lse_merge:case=gallery,defect=base_mix "
                                  "lse_merge:case=attention,problem=sink,by=c lse_merge:case=random,by=c");
    drive.deadline_ns = ha_now_ns();
    run_as(&drive);
    for (size_t i = 0; i < driven.results.entries; i++) {
        is(i, HA_NOT_RUN);
        assert_true(*row(i)->head.reason);
    }
    assert_contains(driven.printed, " not run\n");
}

static void stop(void *arg, size_t done, size_t of, const char *what)
{
    if (done >= *(size_t *)arg) __atomic_store_n(&ha_stop, 15, __ATOMIC_RELAXED);
}

TEST(stopped_in_the_middle)
{
    static const struct {
        const char *words;
        size_t after;
        bool exhaustive; /* what goes on for as long as it may has a verdict whenever it ends */
    } each[] = {
        { "lse_merge:case=gallery,defect=dim_tail", 100, false },
        { "lse_merge:case=one_hot,by=c", 1, false },
        { "lse_merge:case=random,by=c", 1, false },
        { "lse_merge:case=attention,problem=sink,by=c", 0, false },
        { "lse_merge:case=random,by=c,kind=base2,dtype=f32,states=2,rows=1x1", 1, true },
    };
    for (size_t i = 0; i < COUNT(each); i++) {
        size_t after = each[i].after;
        struct ha_drive drive = asked(each[i].words);
        drive.config.engine = (struct ha_engine){ .arg = &after, .progress = stop };
        drive.config.exhaustive = each[i].exhaustive;
        run_as(&drive);
        ha_stop = 0;
        is(0, each[i].exhaustive ? HA_PASS : HA_NOT_RUN);
        assert_true(each[i].exhaustive ? row(0)->merges > 0 && row(0)->merges < 10000 : *row(0)->head.reason != 0);
        /* what others have found is not yet found by the case that is there for it, far behind */
        if (!i) assert_true(*row(0)->found_by && strcmp(row(0)->found_by, "strided") != 0);
    }
}

/* ---- the whole: rows that are made up ---------------------------------------------------------------------------- */

static struct ha_merge_result *made(size_t i)
{
    struct ha_entry *e = (struct ha_entry *)(uintptr_t)&driven.results.entry[i];
    struct ha_merge_result *r = e->row ? (struct ha_merge_result *)(uintptr_t)e->row : calloc(1, sizeof *r);
    assert_non_null(r);
    e->row = r;
    return r;
}

static size_t plan(const char *words)
{
    struct ha_drive drive = asked(words);
    drive.plan_only = true;
    run_as(&drive);
    return driven.results.entries;
}

/* all random merges by ours */
TEST(half_the_bound_must_bite)
{
    FILE *out = fopen("/dev/null", "w");
    const size_t entries = plan("lse_merge:case=random,by=c lse_merge:case=random,by=base_mix");
    for (size_t i = 0; i < entries; i++) {
        made(i)->head.verdict = HA_PASS;
        made(i)->merges = 1000;
        made(i)->ratio = 0.4;
        made(i)->bin[HA_MERGE_BINS - 1] = i < entries / 2 ? 0 : 7;
    }
    assert_false(ha_suite_lse_merge.conclude(out, &driven.results, &why));
    assert_contains(why.text, "too loose");
    made(3)->bin[HA_MERGE_BINS - 1] = 1;
    assert_true(ha_suite_lse_merge.conclude(out, &driven.results, &why));
    /* nothing is said of the bound where not all of them were made */
    made(3)->bin[HA_MERGE_BINS - 1] = 0;
    made(0)->head.verdict = HA_NOT_RUN;
    assert_true(ha_suite_lse_merge.conclude(out, &driven.results, &why));
    fclose(out);
}

TEST(lines_are_joined)
{
    const size_t entries = plan("lse_merge:case=random,by=c,kind=chain lse_merge:case=random,by=base_mix,kind=chain");
    for (size_t i = 0; i < entries; i++) {
        snprintf(made(i)->subject, sizeof made(i)->subject, "%s", i < 3 ? "c" : "base_mix");
        made(i)->head.verdict = i < 3 ? HA_PASS : HA_VERDICT_FAIL;
        made(i)->merges = 20480;
        made(i)->exact = i ? 0 : 20480;
        made(i)->ratio = 0.5;
        made(i)->bin[1] = i ? 20480 : 0;
    }
    FILE *out = fmemopen(driven.printed, sizeof driven.printed, "w");
    assert_non_null(out);
    ha_suite_lse_merge.print(out, &driven.results);
    fclose(out);
    assert_contains(driven.printed, "random form       o          merges        c base_mix\n"
                                    "       chain      f32        20,480    exact     FAIL\n"
                                    "       chain      f16        20,480    0.500     FAIL\n"
                                    "       chain      bf16       20,480    0.500     FAIL\n");
    assert_null(strstr(strstr(driven.printed, "chain      f32") + 1, "chain      f32"));
    assert_contains(driven.printed, "       chain        16.667   0.000  83.333   0.000");
}

static int free_driven(void **state)
{
    ha_driven_free(&driven);
    return 0;
}

TEST_MAIN { return test_all("tests", NULL, free_driven); }
