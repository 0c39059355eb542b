#include "suites/merge/test_trial.h"

#include "harness/base/clock.h"
#include "harness/base/safetensors.h"
#include "harness/base/stop.h"
#include "harness/base/test_folder.h"
#include "kernels/c/ops.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const uint64_t SECOND = 1000000000;

/* ---- this program as the command: merge WHAT IN OUT ----------------------------------------- */

static void merge_f32(const struct ha_tensor *o, const struct ha_tensor *lse, float *merged_o, float *merged_lse)
{
    const size_t states = o->dim[0], rows = o->dim[1] * o->dim[2], dim = o->dim[3];
    struct ha_merge_state *state = calloc(states, sizeof *state),
                          packed = { .o_token_stride = dim, .lse_token_stride = 1 };
    assert_non_null(state);
    for (size_t m = 0; m < states; m++) {
        state[m] = packed;
        state[m].o = (float *)(uintptr_t)o->data + m * rows * dim;
        state[m].lse = (float *)(uintptr_t)lse->data + m * rows;
    }
    packed.o = merged_o;
    packed.lse = merged_lse;
    ha_c_merge(&(struct ha_merge){
        .states = state, .states_count = states, .tokens = rows, .heads = 1, .dim = dim, .out = packed });
    free(state);
}

/* Leaves a process that has left group and session, and whose parent is gone; $LEFT has its number. */
static void leave(void)
{
    const char *left = getenv("LEFT");
    if (fork() == 0) {
        setsid();
        if (fork() > 0) _exit(0);
        char part[300];
        snprintf(part, sizeof part, "%s.part", left);
        FILE *f = fopen(part, "w");
        fprintf(f, "%d", (int)getpid());
        fclose(f);
        rename(part, left);
        for (;;) pause();
    }
    while (access(left, F_OK) != 0) usleep(1000);
}

static int as_command(const char *what, const char *in, const char *out)
{
    struct ha_safetensors *file;
    if (!strcmp(in, "--traits")) return puts("name=it,self\ndtypes=f32"), 0;
    if (!strncmp(what, "leaves", 6)) leave();
    if (!strcmp(what, "leaves")) return 3;
    while (!strcmp(what, "leaves_and_stays")) pause();
    if (ha_safetensors_open(&file, in, &why) != HA_OK) return 1;
    const struct ha_tensor *o = ha_safetensors_find(file, "o"), *lse = ha_safetensors_find(file, "lse");
    if (!o || !lse || strcmp(ha_safetensors_meta(file, "form"), "natural") != 0) return 2;
    const size_t rows = o->dim[1] * o->dim[2], dim = o->dim[3];
    float *merged_o = calloc(rows * dim + 1, sizeof *merged_o), *merged_lse = calloc(rows + 1, sizeof *merged_lse);
    if (!merged_o || !merged_lse) return 3;
    merge_f32(o, lse, merged_o, merged_lse);
    if (!strcmp(what, "nan")) merged_o[5] = NAN;
    struct ha_tensor t[] = {
        { "merged_o", HA_T_F32, 3, { o->dim[1], o->dim[2], dim }, merged_o, rows * dim * 4 },
        { "merged_lse", HA_T_F32, 2, { o->dim[1], o->dim[2] }, merged_lse, rows * 4 },
    };
    if (!strcmp(what, "shape")) t[1].dim[0] = o->dim[2], t[1].dim[1] = o->dim[1];
    if (!strcmp(what, "type")) t[0].type = HA_T_F16, t[0].bytes /= 2;
    const int status = ha_safetensors_write(out, t, strcmp(what, "half") ? 2 : 1, NULL, &why) == HA_OK ? 0 : 4;
    free(merged_o);
    free(merged_lse);
    ha_safetensors_close(file);
    return status;
}

/* ---- the tests ------------------------------------------------------------------------------ */

static int make_folder(void **state) { return test_folder_make(state) || setenv("TMPDIR", test_folder, 1); }
static int nothing_is_left(void **state)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    DIR *dir = opendir(test_folder);
    assert_non_null(dir);
    size_t files = 0;
    while (readdir(dir)) files++;
    closedir(dir);
    assert_int_equal(files, 2); /* . and .. */
    return 0;
}

static const char *itself(const char *what)
{
    static char command[4200];
    snprintf(command, sizeof command, "\"%s\" test_exec merge %s", beside("suites_merge"), what);
    return command;
}

static void open_exec(struct ha_subject *x, const char *command, uint64_t limit_ns)
{
    if (ha_subject_exec(x, command, limit_ns, &why) != HA_OK) fail_msg("%s: %s", command, why.text);
}

TEST_WITH(merges, NULL, nothing_is_left)
{
    struct ha_subject x;
    open_exec(&x, itself("right"), 20 * SECOND);
    assert_string_equal(x.name, "it_self");
    assert_int_equal(x.traits.dtypes, 1u << HA_F32);
    assert_true(merges_right(&x, &few_rows) <= 1);
    assert_true(merges_right(&x, &(struct ha_merge_shape){ .states = 33, .tokens = 1, .heads = 7, .dim = 80 }) <= 1);
    const struct ha_merge_shape chain = { .states = 3, .tokens = 1, .heads = 1, .dim = 64, .order = HA_ORDER_CHAIN };
    assert_non_null(ha_subject_unfit(&x, &chain));
    ha_subject_close(&x);
}

/* One run is an error with this reason, and leaves the batch alone. */
static void ends(const char *command, uint64_t limit_ns, const char *words)
{
    struct ha_subject x;
    struct ha_judgement j;
    open_exec(&x, command, limit_ns);
    const int old = dup(STDERR_FILENO), nothing = open("/dev/null", O_WRONLY);
    dup2(nothing, STDERR_FILENO); /* what it says there is passed through */
    const enum ha_status st = asked_once(&x, &j);
    dup2(old, STDERR_FILENO);
    close(old), close(nothing);
    if (st != HA_ERROR) fail_msg("%s: status %d: %s", command, (int)st, why.text);
    says(words);
    ha_subject_close(&x);
}

/* merges by this text of a shell, and knows nothing of --traits */
#define SCRIPT(text) "sh -c 'test $1 = --traits || " text "' --"
TEST_WITH(each_end_is_named, NULL, nothing_is_left)
{
    static const struct {
        const char *command, *words;
        uint64_t limit_ns; /* 0: enough */
    } each[] = {
        { "false", "exited with 1", 0 },
        { "sh -c 'echo one >&2; echo; echo two words >&2; echo out; exit 3' --", "exited with 3: two words", 0 },
        { "sh -c 'printf \"no newline\" >&2; exit 2' --", "exited with 2: no newline", 0 },
        { "true", "exited with 0, and did not write the file", 0 },
        { SCRIPT("kill -SEGV $$"), "killed by SIGSEGV", 0 },
        { SCRIPT("{ test -e /nowhere; nosuchcommand; }"), "the shell cannot run it (exited with 127)", 0 },
        { SCRIPT("sleep 30"), "no answer in 2 s", 2000000000 },
        { SCRIPT("{ sleep 30 & sleep 30 & exit 3; }"), "exited with 3", 0 },
        { SCRIPT("{ exec 2>&-; sleep 30; }"), "no answer in 2 s", 2000000000 },
        { SCRIPT("head -c 20 $1 > $2"), "truncated", 0 },
        { SCRIPT(": > $2"), "empty file", 0 },
        { SCRIPT("cp $1 $2"), "there is no tensor 'merged_o', F32 [4, 2, 64]", 0 },
        { SCRIPT("mkdir $2 && rmdir $2"), "did not write", 0 },
        { SCRIPT("{ head -c 300000 /dev/zero | tr \"\\\\0\" x >&2; exit 3; }"), "exited with 3: xxxxxxxxxx", 0 },
        /* each of these would run until its time is over, or the disk is full */
        { SCRIPT("yes"), "printed more than 1 MiB to stdout and was stopped", 0 },
        { SCRIPT("yes >&2"), "printed more than 1 MiB to stderr and was stopped", 0 },
        { SCRIPT("{ head -c 2000000 /dev/zero >&2; cp $1 $2; }"), "printed more than 1 MiB", 0 },
        { SCRIPT("yes > $2"), "to the file that its second argument names and was stopped", 0 },
        /* 1 MiB and four times 4 x 2 rows of 64 numbers and an LSE */
        { SCRIPT("head -c 3000000 /dev/zero > $2"), "wrote more than 1056896 bytes", 0 },
    };
    for (size_t i = 0; i < COUNT(each); i++)
        ends(each[i].command, each[i].limit_ns ? each[i].limit_ns : 20 * SECOND, each[i].words);
    ends(itself("shape"), 20 * SECOND, "'merged_lse' is F32 [2, 4]; it must be F32 [4, 2]");
    ends(itself("type"), 20 * SECOND, "'merged_o' is F16 [4, 2, 64]; it must be F32 [4, 2, 64]");
    ends(itself("half"), 20 * SECOND, "there is no tensor 'merged_lse'");
}

/* the process that the command has left behind, once */
static pid_t left_behind(void)
{
    int pid = 0;
    const char *text = test_text("left");
    sscanf(text, "%d", &pid);
    if (*text) assert_int_equal(unlink(test_path("left")), 0);
    return pid;
}

/* Nothing that it has started outlives the call, whatever it did to get away. */
TEST_WITH(what_it_leaves_ends_with_it, NULL, nothing_is_left)
{
    static const struct {
        const char *what, *words;
        uint64_t limit_ns;
    } each[] = { { "leaves", "exited with 3", 20000000000 }, { "leaves_and_stays", "no answer in 2 s", 2000000000 } };
    setenv("LEFT", test_path("left"), 1);
    for (size_t i = 0; i < COUNT(each); i++) {
        ends(itself(each[i].what), each[i].limit_ns, each[i].words);
        const pid_t left = left_behind();
        assert_true(left > 0);
        assert_int_equal(kill(left, 0), -1);
        assert_int_equal(errno, ESRCH);
    }
    struct ha_subject x; /* and one that answers */
    open_exec(&x, itself("leaves_and_answers"), 20 * SECOND);
    assert_true(merges_right(&x, &few_rows) <= 1);
    const pid_t left = left_behind();
    assert_true(left > 0 && kill(left, 0) == -1 && errno == ESRCH);
    ha_subject_close(&x);
}

/* Nor does it outlive a program that is killed. */
TEST_WITH(what_it_leaves_ends_with_the_program, NULL, nothing_is_left)
{
    setenv("LEFT", test_path("left"), 1);
    const pid_t program = fork();
    if (program == 0) {
        struct ha_subject x;
        struct ha_judgement j;
        open_exec(&x, itself("leaves_and_stays"), 600 * SECOND);
        asked_once(&x, &j);
        _exit(0);
    }
    for (int i = 0; i < 600000 && access(test_path("left"), F_OK) != 0; i++) usleep(1000);
    const pid_t left = left_behind();
    assert_true(left > 0 && kill(left, 0) == 0);
    kill(program, SIGKILL);
    assert_int_equal(waitpid(program, NULL, 0), program);
    for (int i = 0; i < 2000 && kill(left, 0) == 0; i++) usleep(10000);
    assert_int_equal(kill(left, 0), -1);
    test_folder_remove(NULL); /* its files are nobody's */
    assert_int_equal(mkdir(test_folder, 0777), 0);
}

/* What it wrote for the last batch is no answer to this one. */
TEST_WITH(an_old_answer, NULL, nothing_is_left)
{
    struct ha_subject x;
    struct ha_judgement j;
    char command[8400];
    const char *const mark = test_path("mark");
    snprintf(command, sizeof command,
             "sh -c 'test $1 = --traits && exit 1; test -e %s && exit 0; : > %s; exec %s $1 $2' --", mark, mark,
             itself("right"));
    open_exec(&x, command, 20 * SECOND);
    merges_right(&x, &few_rows);
    assert_int_equal(asked_once(&x, &j), HA_ERROR);
    says("did not write the file");
    ha_subject_close(&x);
    unlink(mark);
}

/* NaN is an answer, and a wrong one. */
TEST_WITH(an_answer_of_nan, NULL, nothing_is_left)
{
    struct ha_subject x;
    struct ha_judgement j;
    open_exec(&x, itself("nan"), 20 * SECOND);
    assert_int_equal(asked_once(&x, &j), HA_OK);
    assert_int_equal(j.status, HA_FAIL);
    assert_int_equal(j.row, 0);
    assert_int_equal(j.element, 5);
    ha_subject_close(&x);
}

static void refused(const char *command, const char *words)
{
    struct ha_subject x;
    if (ha_subject_exec(&x, command, SECOND / 2, &why) != HA_ERROR) fail_msg("'%s' is taken", command);
    says(words);
}

TEST_WITH(what_it_declares, NULL, nothing_is_left)
{
    struct ha_subject x;
    open_exec(
        &x,
        "printf "
        "'forms=natural,max_sum\\ndtypes=bf16\\ncommutes=1\\nexp_eps=1e-5\\nlog_eps=0\\nplus_inf=1\\nstates_max=2\\n"
        "lse_order=heads_tokens\\nvaries=1\\n\\ndepth_extra=3\\nrescales=1\\nname=a b\\n' #",
        SECOND);
    assert_string_equal(x.name, "a_b");
    assert_int_equal(x.traits.forms, 1u << HA_FORM_NATURAL | 1u << HA_FORM_MAX_SUM);
    assert_int_equal(x.traits.dtypes, 1u << HA_BF16);
    assert_true(x.traits.commutes && x.traits.varies && x.traits.plus_inf && x.traits.states_max == 2
                && x.traits.lse_order == HA_LSE_HEADS_TOKENS);
    assert_true(x.traits.exp_eps == 1e-5 && x.traits.log_eps == 0 && x.traits.depth_extra == 3
                && x.traits.rescales == 1);
    assert_int_equal(x.layouts, 1u << HA_LAYOUT_HEADS_FIRST);
    ha_subject_close(&x);

    static const char *const silent[] = { "false", "true", "sh -c 'echo forms=base2; exit 1' --" };
    for (size_t i = 0; i < COUNT(silent); i++) {
        open_exec(&x, silent[i], SECOND);
        assert_string_equal(x.name, "exec");
        assert_int_equal(x.traits.forms, 1u << HA_FORM_NATURAL);
        assert_int_equal(x.traits.dtypes, 7);
        assert_true(x.traits.exp_eps == 0x1p-23 && !x.traits.states_max && !x.traits.commutes && !x.traits.varies);
        assert_int_equal(x.layouts, 1u << HA_LAYOUT_PACKED);
        assert_int_equal(x.orders, 1u << HA_ORDER_FLAT);
        ha_subject_close(&x);
    }

    /* however much comes before it */
    open_exec(&x, "head -c 8192 /dev/zero | tr '\\0' '\\n'; echo name=late #", 20 * SECOND);
    assert_string_equal(x.name, "late");
    ha_subject_close(&x);

    refused("nosuchcommand", "the shell cannot run 'nosuchcommand' (exited with 127)");
    refused("/etc", "the shell cannot run '/etc' (exited with 126)");
    assert_int_equal(ha_subject_exec(&x, "yes #", 20 * SECOND, &why), HA_ERROR);
    says("asked for --traits: printed more than 1 MiB to stdout and was stopped");
    refused("sleep 30; true", "asked for --traits: no answer in 0.5 s");
    refused("kill -SEGV $$ #", "--exec, asked for --traits: killed by SIGSEGV");
    refused("sh -c 'kill -ABRT $$' --", "--exec, asked for --traits: killed by SIGABRT");
    refused("echo hello #", "'hello' is not key=value");
    refused("echo form=natural #", "unknown key 'form'; did you mean 'forms'?");
    refused("echo forms=naturel #", "unknown form 'naturel'; did you mean 'natural'?");
    refused("echo dtypes=f64 #", "unknown type 'f64'; it is one of: f32 f16 bf16");
    refused("echo commutes=yes #", "unknown commutes 'yes'");
    refused("echo exp_eps=nan #", "exp_eps is 'nan', not a number from 0 to 0.00195312");
    refused("echo depth_extra=1e9 #", "depth_extra is '1e9', not a number from 0 to 64");
    refused("echo states_max=1 #", "states_max is 1; it is 0 (any number) or from 2");
    refused("echo states_max=-1 #", "states_max is '-1'");
    refused("echo lse_order=heads #", "unknown lse_order 'heads'");
    refused("echo name= #", "name is empty");
}

TEST_WITH(interrupted, NULL, nothing_is_left)
{
    struct ha_subject x;
    struct ha_judgement j;
    open_exec(&x, SCRIPT("sleep 30"), 20 * SECOND);
    const uint64_t begun = ha_now_ns();
    ha_stop = SIGINT;
    const enum ha_status st = asked_once(&x, &j);
    ha_stop = 0;
    assert_int_equal(st, HA_ERROR);
    says("interrupted");
    assert_true(ha_now_ns() - begun < 5 * SECOND);
    ha_subject_close(&x);
}

TEST_WITH(no_folder, NULL, nothing_is_left)
{
    struct ha_subject x;
    setenv("TMPDIR", "/nowhere", 1);
    const enum ha_status st = ha_subject_exec(&x, "true", SECOND, &why);
    setenv("TMPDIR", test_folder, 1);
    assert_int_equal(st, HA_ERROR);
    says("no folder /nowhere/habench-");
}

/* The example of the documentation says which package it lacks. */
TEST_WITH(the_example_says_what_it_needs, NULL, nothing_is_left)
{
    if (access("docs/merge_exec.py", R_OK) != 0 || system("python3 -c '' 2>/dev/null") != 0) skip();
    /* -S: without the packages that are not Python's own */
    ends("python3 -S docs/merge_exec.py", 60 * SECOND, "exited with 1: merge_exec.py needs numpy and safetensors");
}

/* Where its packages are installed. */
TEST_WITH(the_example, NULL, nothing_is_left)
{
    if (access("docs/merge_exec.py", R_OK) != 0
        || system("python3 -c 'import numpy, safetensors.numpy' 2>/dev/null") != 0)
        skip();
    struct ha_subject x;
    open_exec(&x, "python3 docs/merge_exec.py", 60 * SECOND);
    assert_string_equal(x.name, "numpy");
    merges_right(&x, &few_rows);
    merges_right(&x, &(struct ha_merge_shape){ .states = 7, .tokens = 3, .heads = 5, .dim = 80, .dtype = HA_F16 });
    ha_subject_close(&x);
}

TEST_MAIN
{
    if (argc >= 4 && !strcmp(argv[1], "merge")) return as_command(argv[2], argv[3], argc > 4 ? argv[4] : "");
    return test_all("merge_exec", make_folder, test_folder_remove);
}
