#include "harness/fleet/attempt.h"

#include "harness/base/own_files.h"
#include "harness/base/test_folder.h"
#include "harness/fleet/move.h"
#include "harness/fleet/test_environment.h"
#include "harness/report/test_schema.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct ha_why why;
static struct ha_attempt attempt;
static bool anew; /* what is run cannot go on */
static const char *const *parts;

/* A kill between the move and the last word of a rank. */
static bool dies_after_move;
enum ha_status __real_ha_move_copy(const char *from, const char *into, const char *name, struct ha_why *why);
enum ha_status __wrap_ha_move_copy(const char *from, const char *into, const char *name, struct ha_why *why);
enum ha_status __wrap_ha_move_copy(const char *from, const char *into, const char *name, struct ha_why *why_not)
{
    const enum ha_status status = __real_ha_move_copy(from, into, name, why_not);
    if (dies_after_move) _exit(99);
    return status;
}

/* A file system without hard links, and one that fails at the last step. */
static bool has_no_links, cannot_rename;
int __real_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to)
{
    errno = EPERM;
    return has_no_links ? -1 : __real_link(from, to);
}
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    errno = EIO;
    return cannot_rename ? -1 : __real_rename(from, to);
}

/* As rank `rank` of four of a job of Slurm on the node. */
static enum ha_exit begin(const char *job, const char *rank, const char *restarts, const char *node)
{
    char fleet[TEST_PATH_MAX], scratch[TEST_PATH_MAX];
    static char kept[TEST_PATH_MAX];
    strcpy(fleet, test_path("fleet"));
    strcpy(scratch, test_path("scratch"));
    mkdir(scratch, 0700);
    strcpy(kept, fleet);
    test_given("SLURM_PROCID", rank, "SLURM_STEP_NUM_TASKS", "4", "SLURM_JOB_ID", job, "SLURM_RESTART_COUNT", restarts,
               "SLURMD_NODENAME", node);
    why.text[0] = 0;
    return ha_attempt_begin(
        &attempt, &(struct ha_attempt_options){ .fleet = kept, .scratch = scratch, .parts = parts, .anew = anew },
        &why);
}

static void put(const char *name, const char *text)
{
    char path[2 * HA_RANK_PATH];
    snprintf(path, sizeof path, "%s/%s", attempt.record, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* What `habench run` would leave; whole: to its end. */
static void measure(bool whole)
{
    mkdir(attempt.record, 0777);
    put("env.json", "{}");
    put("cases.csv", "rows");
    if (whole) put("junit.xml", "<testsuites>");
}

static bool in_record(const char *name)
{
    char path[2 * HA_RANK_PATH];
    snprintf(path, sizeof path, "%s/%s", attempt.record, name);
    return access(path, F_OK) == 0;
}

static bool there(const char *name) { return access(test_path(name), F_OK) == 0; }

static const char *said(const char *machine)
{
    char name[128];
    snprintf(name, sizeof name, "fleet/%s.rank.json", machine);
    return test_text(name);
}

static int count_of(const char *folder)
{
    int count = -2; /* . and .. */
    DIR *d = opendir(test_path(folder));
    assert_non_null(d);
    while (readdir(d)) count++;
    closedir(d);
    return count;
}

/* ---- the life of a rank ------------------------------------------------------------------------------------------ */

TEST_WITH(a_record_appears_whole, test_folder_make, test_folder_remove)
{
    char where[256] = "";
    assert_int_equal(begin("7", "2", "0", "n2"), HA_EXIT_OK);
    assert_false(attempt.complete || attempt.resumes);
    assert_contains(said("n2"), "\"ended_utc\": null");
    assert_contains(said("n2"), "\"exit\": null");
    assert_contains(said("n2"), attempt.folder);
    measure(true);
    mkdir(test_path("fleet/.n2.part"), 0777); /* of an attempt that was killed */
    assert_int_equal(ha_attempt_end(&attempt, HA_EXIT_WRONG, 0, &why), HA_EXIT_WRONG);
    assert_contains(said("n2"), "\"exit\": 10");
    assert_contains(said("n2"), "\"where\": null");
    assert_string_equal(test_text("fleet/n2/cases.csv"), "rows");
    assert_int_equal(count_of("fleet"), 2);
    assert_int_equal(count_of("scratch"), 0);
    json_t *schema = test_schema_load("results/schema/rank.schema.json"), *j = json_loads(said("n2"), 0, NULL);
    if (!test_schema_fits(j, schema, where)) fail_msg("rank.json%s", where);
    assert_int_equal(json_object_size(j), json_object_size(json_object_get(schema, "properties")));
    json_decref(schema);
    json_decref(j);
}

TEST_WITH(what_a_signal_ended_is_gone_on_with, test_folder_make, test_folder_remove)
{
    assert_int_equal(begin("7", "2", "0", "n2"), HA_EXIT_OK);
    measure(true);
    assert_int_equal(ha_attempt_end(&attempt, HA_EXIT_MISSING, 15, &why), HA_EXIT_MISSING);
    assert_contains(said("n2"), "\"signal\": 15");
    assert_contains(said("n2"), "\"exit\": null");
    assert_false(there("fleet/n2"));
    /* dealt out in another order */
    assert_int_equal(begin("7", "1", "1", "n2"), HA_EXIT_OK);
    assert_true(attempt.resumes);
    assert_contains(said("n2"), "\"attempts\": 2");
    assert_contains(said("n2"), "\"signal\": null");
    /* and this one is full: what stays is not whole because of what the one before had written */
    assert_int_equal(ha_attempt_end(&attempt, HA_EXIT_ENVIRONMENT, 0, &why), HA_EXIT_ENVIRONMENT);
    assert_false(there("fleet/n2"));
    assert_contains(said("n2"), attempt.folder);
    assert_int_equal(begin("7", "1", "1", "n2"), HA_EXIT_OK);
    measure(true);
    assert_int_equal(ha_attempt_end(&attempt, HA_EXIT_OK, 0, &why), HA_EXIT_OK);
    assert_contains(said("n2"), "\"attempts\": 3");
    assert_true(there("fleet/n2"));
}

TEST_WITH(what_cannot_be_gone_on_with_begins_anew, test_folder_make, test_folder_remove)
{
    assert_int_equal(begin("7", "2", "0", "n2"), HA_EXIT_OK);
    measure(true);
    assert_int_equal(ha_attempt_end(&attempt, HA_EXIT_MISSING, 15, &why), HA_EXIT_MISSING);
    anew = true;
    const enum ha_exit code = begin("7", "2", "1", "n2");
    anew = false;
    assert_int_equal(code, HA_EXIT_OK);
    assert_false(attempt.resumes);
    assert_int_not_equal(access(attempt.record, F_OK), 0);
    assert_contains(said("n2"), "\"attempts\": 2");
}

TEST_WITH(a_scratch_folder_that_is_not_there_is_said, test_folder_make, test_folder_remove)
{
    test_given("SLURM_PROCID", "0", "SLURMD_NODENAME", "n");
    const struct ha_attempt_options o = { .fleet = test_folder, .scratch = "/nonexistent/scratch" };
    assert_int_equal(ha_attempt_begin(&attempt, &o, &why), HA_EXIT_ENVIRONMENT);
    assert_contains(why.text, "/nonexistent/scratch/habench-none-n-");
    assert_contains(test_text("n.rank.json"), "\"exit\": 40");
}

TEST_WITH(what_is_complete_is_not_measured_again, test_folder_make, test_folder_remove)
{
    for (int killed = 0; killed < 2; killed++) {
        const char *node = killed ? "n2" : "n1";
        assert_int_equal(begin("7", killed ? "2" : "1", "0", node), HA_EXIT_OK);
        measure(true);
        dies_after_move = killed;
        const pid_t child = fork();
        if (!child) _exit((int)ha_attempt_end(&attempt, HA_EXIT_WRONG, 0, &why));
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(WEXITSTATUS(status), killed ? 99 : HA_EXIT_WRONG);
        dies_after_move = false;
        assert_int_equal(begin("7", killed ? "2" : "1", "1", node), HA_EXIT_OK);
        assert_true(attempt.complete);
        assert_int_equal(attempt.file.exit, HA_EXIT_WRONG);
        assert_null(strstr(said(node), "\"ended_utc\": null"));
        assert_contains(said(node), "\"launcher\": \"slurm\"");
    }
}

/* of a record that has several */
static void measure_part(const char *part, const char *rows, bool whole)
{
    char name[2 * HA_RANK_PATH];
    snprintf(name, sizeof name, "%s/%s", attempt.record, part);
    mkdir(attempt.record, 0777);
    for (char *slash = name + strlen(attempt.record); (slash = strchr(slash + 1, '/'));) {
        *slash = 0;
        mkdir(name, 0777);
        *slash = '/';
    }
    mkdir(name, 0777);
    static const char *const files[] = { "env.json", "cases.csv", "junit.xml" };
    for (size_t i = 0; i < 2u + whole; i++) {
        snprintf(name, sizeof name, "%s/%s", part, files[i]);
        put(name, rows);
    }
}

static const char *const with_pairs[] = { "alone", "pairs", NULL };

TEST_WITH(a_record_is_whole_when_all_of_its_parts_are, test_folder_make, test_folder_remove)
{
    static const char *const each[] = { "alone", "pairs/0", "pairs/2" };
    parts = with_pairs;
    for (size_t lacks = 0; lacks <= COUNT(each); lacks++) {
        assert_int_equal(begin("7", "1", "0", "n"), HA_EXIT_OK);
        assert_int_equal(attempt.resumes, lacks > 0);
        for (size_t i = 0; i < COUNT(each); i++) { /* what attempts before have ended is not ended now */
            char end[64];
            snprintf(end, sizeof end, "%s/junit.xml", each[i]);
            assert_false(in_record(end));
            measure_part(each[i], "rows", i != lacks);
        }
        assert_int_equal(ha_attempt_end(&attempt, HA_EXIT_OK, 0, &why), HA_EXIT_OK);
        assert_int_equal(there("fleet/alone/n"), lacks == COUNT(each));
        assert_int_equal(there("fleet/pairs/n/2/cases.csv"), lacks == COUNT(each));
    }
    parts = NULL;
    assert_contains(said("n"), "\"where\": null");
    assert_int_equal(count_of("scratch"), 0);
}

TEST_WITH(a_part_of_a_move_that_was_cut_short_is_replaced, test_folder_make, test_folder_remove)
{
    static const char *const two[] = { "alone", "together", NULL };
    parts = two;
    assert_int_equal(begin("7", "1", "0", "n"), HA_EXIT_OK);
    measure_part("alone", "old", true);
    measure_part("together", "old", true);
    dies_after_move = true; /* after the first part */
    const pid_t child = fork();
    if (!child) _exit((int)ha_attempt_end(&attempt, HA_EXIT_OK, 0, &why));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    dies_after_move = false;
    assert_string_equal(test_text("fleet/alone/n/cases.csv"), "old");
    assert_false(there("fleet/together/n"));
    ha_own_file_close(attempt.lock);
    assert_int_equal(begin("7", "1", "1", "n"), HA_EXIT_OK);
    measure_part("alone", "new", true);
    measure_part("together", "new", true);
    assert_int_equal(ha_attempt_end(&attempt, HA_EXIT_OK, 0, &why), HA_EXIT_OK);
    parts = NULL;
    assert_string_equal(test_text("fleet/alone/n/cases.csv"), "new");
    assert_string_equal(test_text("fleet/together/n/cases.csv"), "new");
}

/* ---- whose a machine is ------------------------------------------------------------------------------------------ */

TEST_WITH(another_job_gets_no_record_of_this_one, test_folder_make, test_folder_remove)
{
    assert_int_equal(begin("7", "0", "0", "n"), HA_EXIT_OK);
    /* it left nothing: killed */
    assert_int_equal(begin("8", "0", "0", "n"), HA_EXIT_OK);
    assert_contains(said("n"), "\"job\": \"8\"");
    assert_contains(said("n"), "\"attempts\": 1");
    measure(true);
    assert_int_equal(ha_attempt_end(&attempt, HA_EXIT_OK, 0, &why), HA_EXIT_OK);
    assert_int_equal(begin("9", "0", "0", "n"), HA_EXIT_USAGE);
    assert_contains(why.text, "n has its record already, of 8, begun ");
    assert_contains(said("n"), "\"job\": \"8\"");
}

TEST_WITH(two_ranks_of_a_machine_do_not_write_to_one_name, test_folder_make, test_folder_remove)
{
    assert_int_equal(begin("7", "0", "0", "n"), HA_EXIT_OK);
    assert_string_equal(attempt.file.of.machine, "n");
    assert_int_equal(begin("7", "3", "0", "n"), HA_EXIT_OK);
    assert_string_equal(attempt.file.of.machine, "n.3");
    assert_true(there("fleet/n.3.rank.json"));
    /* the same rank while it measures */
    assert_int_equal(begin("7", "3", "0", "n"), HA_EXIT_USAGE);
    assert_contains(why.text, "another process measures there");
    assert_contains(said("n.3"), "\"attempts\": 1");
    assert_contains(said("n.3"), "\"exit\": null");
}

TEST_WITH(a_name_is_claimed_without_hard_links_too, test_folder_make, test_folder_remove)
{
    has_no_links = cannot_rename = true;
    const enum ha_exit failed = begin("7", "0", "0", "n");
    cannot_rename = false;
    assert_int_equal(failed, HA_EXIT_ENVIRONMENT);
    assert_contains(why.text, "n.rank.json: cannot write");
    assert_int_equal(count_of("fleet"), 0); /* and the name is free */
    assert_int_equal(begin("7", "0", "0", "n"), HA_EXIT_OK);
    assert_contains(said("n"), "\"attempts\": 1");
    assert_int_equal(begin("7", "1", "0", "n"), HA_EXIT_OK);
    has_no_links = false;
    assert_string_equal(attempt.file.of.machine, "n.1");
}

TEST_WITH(a_file_that_is_none_of_a_rank_is_refused, test_folder_make, test_folder_remove)
{
    static const char *const texts[] = { "", "{", "[]", "{\"schema_version\":1}",
                                         "{\"schema_version\":2,\"rank\":0,\"begun_utc\":\"x\"}" };
    mkdir(test_path("fleet"), 0777);
    for (size_t i = 0; i < COUNT(texts); i++) {
        test_write("fleet/n.rank.json", texts[i], strlen(texts[i]));
        assert_int_equal(begin("7", "0", "0", "n"), HA_EXIT_USAGE);
        assert_contains(why.text, "n.rank.json: it is none of a rank: remove it");
    }
}

/* ---- folders ----------------------------------------------------------------------------------------------------- */

TEST_WITH(a_folder_of_its_own_is_no_link, test_folder_make, test_folder_remove)
{
    char own[HA_RANK_PATH];
    assert_int_equal(begin("7", "0", "0", "n"), HA_EXIT_OK);
    strcpy(own, attempt.folder);
    assert_int_equal(ha_attempt_end(&attempt, HA_EXIT_USAGE, 0, &why), HA_EXIT_USAGE);
    assert_int_not_equal(access(own, F_OK), 0); /* nothing was measured, nothing is left */
    assert_int_equal(symlink(test_folder, own), 0);
    assert_int_equal(begin("7", "0", "0", "n"), HA_EXIT_USAGE);
    assert_contains(why.text, "it is no folder of this user");
    assert_contains(said("n"), "\"exit\": 64");
}

TEST_WITH(what_cannot_be_moved_stays, test_folder_make, test_folder_remove)
{
    char link[2 * HA_RANK_PATH];
    assert_int_equal(begin("7", "0", "0", "n"), HA_EXIT_OK);
    measure(true);
    snprintf(link, sizeof link, "%s/link", attempt.record);
    assert_int_equal(symlink("/etc/passwd", link), 0);
    assert_int_equal(ha_attempt_end(&attempt, HA_EXIT_OK, 0, &why), HA_EXIT_ENVIRONMENT);
    assert_contains(why.text, "neither a file nor a folder");
    assert_contains(said("n"), "\"exit\": 40");
    assert_contains(said("n"), attempt.folder);
    assert_int_equal(count_of("fleet"), 1);
    assert_true(access(link, F_OK) == 0);
    unlink(link);
    /* nor over what somebody has put there */
    mkdir(test_path("fleet/m"), 0777);
    test_write("fleet/m/x", "x", 1);
    assert_int_equal(ha_move_copy(attempt.record, attempt.fleet, "m", &why), HA_ERROR);
    assert_contains(why.text, "another record is there already");
    assert_int_equal(count_of("fleet/m"), 1);
    assert_int_equal(count_of("fleet"), 2);
}

TEST_WITH(folders_in_a_record_come_with_it, test_folder_make, test_folder_remove)
{
    mkdir(test_path("a"), 0777);
    mkdir(test_path("a/b"), 0777);
    test_write("a/b/c", "deep", 4);
    test_write("a/empty", "", 0);
    char *from = strdup(test_path("a"));
    assert_int_equal(ha_move_copy(from, test_folder, "to", &why), HA_OK);
    assert_string_equal(test_text("to/b/c"), "deep");
    assert_true(there("to/empty") && there("a/b/c"));
    assert_int_equal(ha_move_remove(from, &why), HA_OK);
    assert_int_equal(ha_move_remove(from, &why), HA_OK);
    assert_false(there("a"));
    free(from);
}
