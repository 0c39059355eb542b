#include "harness/engine/plugin.h"
#include "suites/merge/attention.h"
#include "suites/merge/stage.h"
#include "suites/merge/test_hostile.h"
#include "suites/merge/test_trial.h"

#include <errno.h>
#include <math.h>
#include <omp.h>
#include <sys/wait.h>

static const uint64_t SECOND = 1000000000;

static int nobody_is_left(void **state)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    return 0;
}

static void open_plugin(struct ha_subject *x, const char *name, uint64_t limit_ns)
{
    if (ha_subject_plugin(x, beside(name), limit_ns, &why) != HA_OK) fail_msg("%s", why.text);
}

static struct ha_subject stranger;
static size_t fit;

static void check_what_fits(const struct ha_merge_shape *s)
{
    if (ha_subject_unfit(&stranger, s)) return;
    const double ratio = merges_right(&stranger, s);
    assert_true(ratio > 0 && ratio <= 1);
    fit++;
}

/* every shape of these sizes that the plugin takes; returns how many */
static size_t each_that_fits(const char *plugin, const char *name, struct ha_merge_shape s)
{
    fit = 0;
    open_plugin(&stranger, plugin, 20 * SECOND);
    assert_string_equal(stranger.name, name);
    assert_false(stranger.null);
    each_shape(s, check_what_fits);
    ha_subject_close(&stranger);
    return fit;
}

/* natural, f32: in each order, alias and layout */
TEST_WITH(the_template, NULL, nobody_is_left)
{
    const struct ha_merge_shape s = { .states = 7, .tokens = 5, .heads = 3, .dim = 80 };
    assert_int_equal(each_that_fits("merge_template.so", "mine", s), HA_ORDER_COUNT * HA_ALIAS_COUNT * HA_LAYOUT_COUNT);
}

/* One batch whose first number tells the plugin what to do. */
static enum ha_status told(struct ha_subject *x, enum hostile what, bool *intact, bool *right)
{
    struct ha_merge_trial t = trial_open(x, &few_rows, some_empty);
    t.rows.row[0].o[0] = (double)HOSTILE_CODE + (double)what + 0.5;
    ha_merge_trial_store(&t);
    const enum ha_status st = x->run(x, t.batch, &why);
    *intact = st == HA_OK && ha_batch_intact(t.batch, &why) == HA_OK;
    *right = st == HA_OK && ha_merge_trial_judge(&t, HA_MUST_BOUND, &x->traits).status == HA_OK;
    ha_merge_trial_close(&t);
    return st;
}

TEST_WITH(each_harm_is_named, NULL, nobody_is_left)
{
    static const struct {
        enum hostile what;
        enum ha_status status;
        bool intact, right;
        const char *words;
    } harm[] = {
        { BEHAVES, HA_OK, true, true, "" },
        { NULL_WRITE, HA_ERROR, false, false, "killed by SIGSEGV: wrote through a NULL pointer (address 0x4)" },
        { HANGS, HA_ERROR, false, false, "no answer in 1 s" },
        { PAST_END, HA_ERROR, false, false, "killed by SIGSEGV: wrote byte 1 past the end of the merged o" },
        { BEFORE_START, HA_OK, false, true, "wrote where no result goes: byte -4 of the merged o" },
        { FAR_BEFORE_START, HA_ERROR, false, false, "wrote byte 2081 past the end of the states' LSE" },
        { WRITES_INPUT, HA_ERROR, false, false,
          "killed by SIGSEGV: wrote byte 20 of the states' o, which is not to be written" },
        { READS_PAST_END, HA_ERROR, false, false, "killed by SIGSEGV: read byte 1 past the end of the states' o" },
        { WRITES_ARGUMENTS, HA_ERROR, false, false, "bytes away from the states' o, the nearest of its buffers" },
        { BAD_STATUS, HA_ERROR, false, false, "merge returned 77, which is no status" },
        { REFUSES, HA_FAIL, false, false, "refused: merge returned HA_ERROR" },
        { WAIVES, HA_WAIVED, false, false, "merge returned HA_WAIVED" },
        { EXITS, HA_ERROR, false, false, "exited with 5" },
        { ABORTS, HA_ERROR, false, false, "killed by SIGABRT" },
        { CLOSES_ALL, HA_ERROR, false, false, "exited with 0" },
        { KILLS_ITSELF, HA_ERROR, false, false, "killed by SIGKILL" },
        { LEAVES_A_GRANDCHILD, HA_OK, true, true, "" },
        { ANSWERS_TWICE, HA_OK, true, true, "" },
        { TRAPS, HA_ERROR, false, false, "killed by SIG" },
        { ROUNDS, HA_ERROR, false, false, "it changed the rounding mode and did not put it back" },
        { WRONG_ANSWER, HA_OK, true, false, "" },
    };
    struct ha_subject x;
    open_plugin(&x, "merge_hostile.so", SECOND);
    assert_string_equal(x.name, "ho_stile_1");
    for (size_t i = 0; i < COUNT(harm); i++) {
        bool intact, right;
        why.text[0] = '\0';
        const enum ha_status st = told(&x, harm[i].what, &intact, &right);
        if (st != harm[i].status || intact != harm[i].intact || right != harm[i].right)
            fail_msg("harm %d: status %d, %s, %s; %s", (int)harm[i].what, (int)st, intact ? "intact" : "not intact",
                     right ? "right" : "wrong", why.text);
        says(harm[i].words);
        merges_right(&x, &few_rows);
    }
    ha_subject_close(&x);
}

static void refused(const char *how, const char *words)
{
    struct ha_subject x;
    setenv(HOSTILE_VARIABLE, how, 1);
    const enum ha_status st = ha_subject_plugin(&x, beside("merge_hostile.so"), SECOND / 2, &why);
    unsetenv(HOSTILE_VARIABLE);
    if (st != HA_ERROR) fail_msg("'%s' is taken", how);
    says(words);
    says("merge_hostile.so: ");
    assert_null(x.run);
}

TEST_WITH(garbage_is_refused, NULL, nobody_is_left)
{
    refused("no forms",
            "forms is 0 and lacks one of natural 1, base2 2, direct 4, max_sum 8; did info() fill in merge?");
    refused("other forms", "forms is 0xa5, with bits that mean nothing (all: 0xf)");
    refused("no types", "dtypes is 0 and lacks");
    refused("no alias", "aliases is 0x6 and lacks 1u << HA_ALIAS_NONE");
    refused("nan", "exp_eps is nan, not from 0 to 0.00195312");
    refused("eps", "log_eps is 0.5, not from 0 to 0.000488281");
    refused("depth", "depth_extra is -1, not from 0 to 64");
    refused("rescales", "rescales is 1e+09");
    refused("states", "states_max is 1; it is 0 (any number) or from 2");
    refused("many states", "states_max is 18446744073709551615");
    refused("order", "lse_order is 9, not from 0 to 2");
    refused("name", "info() gives a name that does not end within its 96 bytes");
    refused("fill", "does not end");
    refused("bool", "commutes is 165, neither true nor false");
    refused("lanes", "dot_lanes is 0");
    refused("crash", "killed by SIGSEGV: wrote through a NULL pointer");
    refused("hang", "no answer in 0.5 s");
    refused("exit", "exited with 9");
    refused("load", "killed by SIGABRT");
    struct ha_subject x;
    assert_int_equal(ha_subject_plugin(&x, "/nowhere/it.so", SECOND, &why), HA_ERROR);
    says("/nowhere/it.so: cannot open: No such file");
    assert_int_equal(ha_subject_plugin(&x, "nosuch", SECOND, &why), HA_ERROR);
    says("'nosuch'");
}

/* A device: opened, and merged on, in the child. */
TEST_WITH(a_whole_device, NULL, nobody_is_left)
{
    const struct ha_merge_shape s = { .states = 5, .tokens = 3, .heads = 2, .dim = 64 };
    int threads = 0;
    if (HA_TSAN) skip(); /* which ends a process that makes a thread after a fork, as the embedded device does */
#pragma omp parallel num_threads(2) reduction(+ : threads)
    threads++;
    assert_int_equal(threads, 2);
    assert_true(each_that_fits("merge_device.so", "guest", s) >= HA_FORM_COUNT * HA_DTYPE_COUNT * HA_ORDER_COUNT);
}

/* The null device says that it is one, and leaves the NaN that was there. */
TEST_WITH(the_null_device, NULL, nobody_is_left)
{
    struct ha_subject x;
    open_plugin(&x, "../ha_null.so", 20 * SECOND);
    assert_true(x.null);
    struct ha_judgement j;
    assert_int_equal(asked_once(&x, &j), HA_OK);
    assert_int_equal(j.status, HA_FAIL);
    ha_subject_close(&x);
}

TEST_WITH(large_batches, NULL, nobody_is_left)
{
    struct ha_subject x;
    struct ha_room room;
    open_plugin(&x, "merge_hostile.so", 20 * SECOND);
    merges_right(&x, &(struct ha_merge_shape){ .states = 512, .tokens = 4, .heads = 2, .dim = 64 });
    merges_right(&x, &(struct ha_merge_shape){ .states = 2, .tokens = 64, .heads = 32, .dim = 128 });
    assert_int_equal(x.room(&x, SIZE_MAX / 2, &room, &why), HA_WAIVED);
    says("no memory: ");
    /* a large room is given back after use, and then reads as zero */
    assert_int_equal(x.room(&x, (size_t)300 << 20, &room, &why), HA_OK);
    memset(room.base, 1, 4096);
    assert_int_equal(x.room(&x, 4096, &room, &why), HA_OK);
    assert_int_equal(room.base[0], 0);
    merges_right(&x, &few_rows);
    ha_subject_close(&x);
}

/* ---- attention ------------------------------------------------------------------------------ */

enum { BATCH = 2, Q_LEN = 2, Q_HEADS = 4, KV_HEADS = 2, DIM = 8, KEYS = 5, STRIDE = 12 };
/* sequence b has b + 1 runs; keys and values beyond DIM are padding */
struct attention {
    float q[BATCH][Q_LEN * Q_HEADS * DIM], k[BATCH][2][KV_HEADS][KEYS][STRIDE], v[BATCH][2][KV_HEADS][KEYS][STRIDE];
    struct {
        float o[BATCH][Q_LEN * Q_HEADS * DIM], lse[BATCH][Q_LEN * Q_HEADS], weights[Q_HEADS * 10];
    } out;
    struct ha_device_seq seqs[BATCH];
    struct ha_device_attend args;
};

static void attention_make(struct attention *a)
{
    memset(a, 0, sizeof *a);
    a->args = (struct ha_device_attend){ .batch = BATCH,
                                         .q_len = Q_LEN,
                                         .q_heads = Q_HEADS,
                                         .kv_heads = KV_HEADS,
                                         .head_dim = DIM,
                                         .dtype = HA_F32,
                                         .scale = 1,
                                         .seqs = a->seqs };
    for (size_t b = 0; b < BATCH; b++) {
        struct ha_device_seq *s = &a->seqs[b];
        *s = (struct ha_device_seq){ .q = a->q[b],
                                     .o = a->out.o[b],
                                     .lse = a->out.lse[b],
                                     .runs_count = b + 1,
                                     .k_head_bytes = sizeof a->k[0][0][0],
                                     .v_head_bytes = sizeof a->v[0][0][0],
                                     .weights = b ? a->out.weights : NULL,
                                     .weights_stride = 10 };
        for (size_t r = 0; r <= b; r++)
            s->runs[r] = (struct ha_rows){ a->k[b][r], a->v[b][r], STRIDE * 4, STRIDE * 4, NULL, r ? 3 : KEYS };
        for (size_t i = 0; i < Q_LEN * Q_HEADS * DIM; i++) a->q[b][i] = (float)(i + b);
        for (size_t i = 0; i < sizeof a->k[b] / sizeof(float); i++) {
            const bool used = i % STRIDE < DIM;
            (&a->k[b][0][0][0][0])[i] = used ? (float)(b + i / STRIDE) : 1e6f;
            (&a->v[b][0][0][0][0])[i] = used ? (float)(b + i % 97) : 1e6f;
        }
    }
}

/* The same numbers as when it is called in this process. */
TEST_WITH(its_attention, NULL, nobody_is_left)
{
    static struct attention a, here;
    struct ha_subject x;
    const struct ha_device_api *direct;
    struct ha_device_info info;
    open_plugin(&x, "merge_hostile.so", SECOND);
    const struct ha_device_api *api = ha_plugin_attend(&x);
    assert_non_null(api);
    api->info(NULL, &info);
    assert_string_equal(info.name, "hostile");
    assert_int_equal(info.profile[HA_BF16].dot_lanes, 1);
    attention_make(&a);
    attention_make(&here);
    assert_int_equal(ha_plugin_load(beside("merge_hostile.so"), &direct, &why), HA_OK);
    assert_int_equal(direct->attend(NULL, &here.args), HA_OK);
    assert_true(here.out.o[1][DIM] > 1 && here.out.lse[1][Q_HEADS] > 1 && here.out.weights[1] == 5);
    assert_int_equal(api->attend(NULL, &a.args), HA_OK);
    assert_memory_equal(&a.out, &here.out, sizeof a.out);
    static const struct {
        enum hostile what;
        enum ha_status status;
        const char *words;
    } harm[] = {
        { WRITES_INPUT, HA_ERROR, "killed by SIGSEGV: wrote byte " },
        { WRITES_INPUT, HA_ERROR, " of what attention reads, which is not to be written" },
        { PAST_END, HA_OK, "" }, /* into the weights, which are results, too */
        { REFUSES, HA_FAIL, "refused: attend returned HA_ERROR" },
        { BAD_STATUS, HA_ERROR, "attend returned 77" },
        { HANGS, HA_ERROR, "no answer in 1 s" },
    };
    for (size_t i = 0; i < COUNT(harm); i++) {
        a.q[0][0] = (float)HOSTILE_CODE + (float)harm[i].what + 0.5f;
        assert_int_equal(api->attend(NULL, &a.args), harm[i].status);
        if (harm[i].status != HA_OK && !strstr(api->failure(NULL), harm[i].words))
            fail_msg("'%s' lacks '%s'", api->failure(NULL), harm[i].words);
        a.q[0][0] = 0;
        assert_int_equal(api->attend(NULL, &a.args), HA_OK);
    }
    ha_subject_close(&x);

    open_plugin(&x, "merge_template.so", SECOND);
    assert_null(ha_plugin_attend(&x));
    ha_subject_close(&x);
}

/* ---- what takes a whole device runs in the plugin's process ------------------------------- */

static enum ha_status staged(struct ha_subject *x, enum ha_stage stage, struct ha_judgement *j)
{
    size_t c = 0;
    while (ha_merge_cases[c].stage != stage) c++;
    *j = (struct ha_judgement){ 0 };
    why.text[0] = 0;
    return ha_merge_stage(&ha_merge_cases[c], x, HA_FORM_NATURAL, HA_F32, 1, j, &why);
}

static void open_guest(struct ha_subject *x, const char *wrong)
{
    assert_int_equal(wrong ? setenv("HA_GUEST", wrong, 1) : unsetenv("HA_GUEST"), 0);
    open_plugin(x, "merge_device.so", 20 * SECOND);
}

TEST_WITH(stages_of_a_device, NULL, nobody_is_left)
{
    struct ha_subject x;
    struct ha_judgement j;
    if (HA_TSAN) skip(); /* as above */
    open_guest(&x, NULL);
    assert_int_equal(staged(&x, HA_STAGE_STREAM, &j), HA_OK);
    assert_int_equal(j.rows, 4 * 12);
    assert_int_equal(staged(&x, HA_STAGE_FLAG, &j), HA_OK);
    assert_int_equal(j.rows, 3 * 12);
    assert_int_equal(staged(&x, HA_STAGE_SPLIT, &j), HA_OK);
    assert_int_equal(j.rows, 3 * 4 * 8);
    assert_int_equal(staged(&x, HA_STAGE_HUGE, &j), HA_WAIVED);
    says("the device's memory is the host's");
    ha_subject_close(&x);

    open_guest(&x, "copy");
    assert_int_equal(staged(&x, HA_STAGE_STREAM, &j), HA_FAIL);
    assert_int_equal(j.status, HA_FAIL);
    says("late producer on the same stream");
    ha_subject_close(&x);
    open_guest(&x, "merge");
    assert_int_equal(staged(&x, HA_STAGE_FLAG, &j), HA_FAIL);
    says("data before flag");
    assert_int_equal(staged(&x, HA_STAGE_SPLIT, &j), HA_FAIL);
    ha_subject_close(&x);
    open_guest(&x, "input");
    assert_int_equal(staged(&x, HA_STAGE_SPLIT, &j), HA_FAIL);
    says("q, K or V was written");
    ha_subject_close(&x);
}

/* the template, in the streams of the embedded device */
TEST_WITH(stages_of_a_library, NULL, nobody_is_left)
{
    struct ha_subject x;
    struct ha_judgement j;
    if (HA_TSAN) skip(); /* as above */
    open_plugin(&x, "merge_template.so", 20 * SECOND);
    assert_int_equal(staged(&x, HA_STAGE_STREAM, &j), HA_OK);
    assert_int_equal(j.rows, 4 * 12);
    assert_int_equal(staged(&x, HA_STAGE_FLAG, &j), HA_OK);
    assert_int_equal(j.rows, 3 * 12);
    assert_int_equal(staged(&x, HA_STAGE_SPLIT, &j), HA_OK);
    assert_int_equal(staged(&x, HA_STAGE_HUGE, &j), HA_OK);
    ha_subject_close(&x);
}

/* Half of the seed is what the plugin is told, in the first number; an odd one is of a graph's second launch. */
static void fill_told(struct ha_merge_row *row)
{
    for (size_t i = 0; i < row->states * row->dim; i++) row->o[i] = (double)(i % 7);
    if (row->index == 0 && row->seed % 2 == 0) row->o[0] = (double)HOSTILE_CODE + (double)row->seed / 2 + 0.5;
}

TEST_WITH(harm_in_a_stage_is_named, NULL, nobody_is_left)
{
    static const struct ha_merge_case told = {
        .name = "told", .stage = HA_STAGE_STREAM, .states_min = 2, .fill = fill_told
    };
    static const struct {
        enum hostile what;
        enum ha_status status;
        const char *words;
    } harm[] = {
        { NULL_WRITE, HA_ERROR, "killed by SIGSEGV" },
        { HANGS, HA_ERROR, "no answer in 1 s" },
        { WRITES_INPUT, HA_FAIL, "late producer on the same stream: wrote where no result goes" },
        { BAD_STATUS, HA_ERROR, "merge returned 77, which is no status" },
        { REFUSES, HA_FAIL, "refused: merge returned HA_ERROR" },
        { WAIVES, HA_WAIVED, "merge returned HA_WAIVED" },
        { EXITS, HA_ERROR, "exited with 5" },
        { ROUNDS, HA_ERROR, "it changed the rounding mode and did not put it back" },
        { WRONG_ANSWER, HA_FAIL, "late producer on the same stream: row 0, element 3" },
        { BEHAVES, HA_OK, "" },
    };
    struct ha_subject x;
    if (HA_TSAN) skip(); /* as above */
    open_plugin(&x, "merge_hostile.so", SECOND);
    for (size_t i = 0; i < COUNT(harm); i++) {
        struct ha_judgement j = { 0 };
        why.text[0] = '\0';
        const enum ha_status st = ha_merge_stage(&told, &x, HA_FORM_NATURAL, HA_F32, 2 * harm[i].what, &j, &why);
        if (st != harm[i].status) fail_msg("harm %d: status %d; %s", (int)harm[i].what, (int)st, why.text);
        says(harm[i].words);
    }
    ha_subject_close(&x);
}

TEST_WITH(a_device_splits_and_merges, NULL, nobody_is_left)
{
    static const struct {
        const char *wrong;
        enum ha_status status;
    } guest[] = { { NULL, HA_OK }, { "merge", HA_FAIL }, { "input", HA_ERROR } };
    size_t c = 0;
    if (HA_TSAN) skip(); /* as above */
    while (!ha_attention_cases[c].split) c++;
    for (size_t i = 0; i < COUNT(guest); i++) {
        struct ha_subject x;
        struct ha_attention_result got;
        open_guest(&x, guest[i].wrong);
        const struct ha_attention_subject subject = { .name = "guest", .api = ha_plugin_attend(&x) };
        assert_int_equal(ha_attention_check(&subject, c, 1, NULL, &got, &why), guest[i].status);
        if (guest[i].status == HA_ERROR) says("attend changed its input");
        else assert_true(got.rows > 0);
        ha_subject_close(&x);
    }
    unsetenv("HA_GUEST");
}

/* A device attends in its own memory: one token of one key gives its V. */
TEST_WITH(attention_of_a_device, NULL, nobody_is_left)
{
    struct ha_subject x;
    if (HA_TSAN) skip(); /* as above */
    open_plugin(&x, "merge_device.so", 20 * SECOND);
    const struct ha_device_api *api = ha_plugin_attend(&x);
    assert_non_null(api);
    float q[64] = { 1 }, k[64] = { 2 }, v[64], o[64] = { 0 }, lse = 0;
    for (int i = 0; i < 64; i++) v[i] = (float)i;
    const struct ha_device_seq seq = { .q = q,
                                       .runs = { { k, v, 256, 256, NULL, 1 } },
                                       .runs_count = 1,
                                       .k_head_bytes = 256,
                                       .v_head_bytes = 256,
                                       .o = o,
                                       .lse = &lse };
    const struct ha_device_attend args = { .batch = 1,
                                           .q_len = 1,
                                           .q_heads = 1,
                                           .kv_heads = 1,
                                           .head_dim = 64,
                                           .dtype = HA_F32,
                                           .scale = 0.5f,
                                           .seqs = &seq };
    if (api->attend(NULL, &args) != HA_OK) fail_msg("%s", api->failure(NULL));
    for (int i = 0; i < 64; i++)
        assert_true(fabsf(o[i] - v[i]) <= 0x1p-22f * v[i]); /* multiplied by its weight and divided again */
    assert_true(fabsf(lse - 1) < 1e-6f);
    ha_subject_close(&x);
}
