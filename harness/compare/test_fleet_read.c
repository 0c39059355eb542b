/* Folders of a fleet, as ranks leave them, and damaged ones; what is printed of them. */

#include "harness/base/test_folder.h"
#include "harness/compare/fleet_print.h"
#include "harness/report/test_schema.h"

#include <math.h>
#include <sys/stat.h>

static struct ha_why why;
static char fleet[sizeof test_folder + 8];

/* ---- folders -------------------------------------------------------------------------------------------------------
 */

static void clear(void)
{
    nftw(fleet, test_remove, 8, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(mkdir(fleet, 0777), 0);
}

static void write_file(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", fleet, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void make_folder(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", fleet, name);
    assert_int_equal(mkdir(path, 0777), 0);
}

enum { CASES = 6, PROCESSES = 5 };

/* What a machine is to be like. */
struct like {
    double slower; /* all of it */
    const char *bios, *digest, *cpu;
    bool mixed;          /* its processes disagree about the outputs of case 0, which `digest` is of */
    size_t fails, cases; /* fails: number of the case from 1 on; cases: 0 is all */
    const char *disturbed;
};

static double wobble(size_t a, size_t b, size_t c) { return 0.004 * sin((double)(a * 131 + b * 17 + c * 7)); }

static void put_cases(FILE *f, const struct like *l)
{
    fputs("case_id,process,suite,verdict,reason,disturbed,outputs,plan\n", f);
    for (size_t i = 0; i < (l->cases ? l->cases : CASES); i++)
        for (size_t p = 0; p < PROCESSES; p++)
            fprintf(f, "case:i=%zu,%zu,s,%s,,%s,%s,p1\n", i, p, l->fails == i + 1 ? "fail" : "pass",
                    l->disturbed ? l->disturbed : "",
                    l->digest && !i       ? l->digest
                    : l->mixed && !i && p ? "00000000000000bb"
                                          : "00000000000000aa");
}

static void put_figures(FILE *f, const struct like *l, size_t number)
{
    fputs("case_id,process,suite,figure,value,unit,better\n", f);
    for (size_t i = 0; i < (l->cases ? l->cases : CASES); i++)
        for (size_t p = 0; p < PROCESSES; p++) {
            const double x = (1 + l->slower) * exp(wobble(number, 0, 1) + wobble(number, i, p));
            fprintf(f, "case:i=%zu,%zu,s,step_ns,%.6f,ns,less\n", i, p, 1e6 * x);
            fprintf(f, "case:i=%zu,%zu,s,beside_read_GBps,%.6f,GB/s,more\n", i, p, 100 / x);
            fprintf(f, "case:i=%zu,%zu,s,floor_ratio,%.6f,,more\n", i, p, 0.8 + wobble(number, i, p));
        }
}

static void put_machine(const char *name, size_t number, struct like l)
{
    char path[128], text[1024];
    make_folder(name);
    snprintf(path, sizeof path, "%s/env.json", name);
    snprintf(text, sizeof text,
             "{\"schema_version\":2,\"mode\":\"run\",\"build\":\"b1\",\"cpu\":\"%s\",\"cores\":8,\"memory_bytes\":%zu,"
             "\"bios\":\"%s\",\"devices\":[],\"runs\":[{\"date_utc\":\"2026-11-27T03:%02zu:00Z\"}]}",
             l.cpu ? l.cpu : "a CPU", (size_t)(number == 3 ? 63 : 64) * 1073741824 + number * 1000000,
             l.bios ? l.bios : "1.0", number % 60);
    write_file(path, text);
    char *cases = NULL;
    size_t size;
    FILE *f = open_memstream(&cases, &size);
    put_cases(f, &l);
    fclose(f);
    snprintf(path, sizeof path, "%s/cases.csv", name);
    write_file(path, cases);
    free(cases);
    f = open_memstream(&cases, &size);
    put_figures(f, &l, number);
    fclose(f);
    snprintf(path, sizeof path, "%s/figures.csv", name);
    write_file(path, cases);
    free(cases);
}

static void put_rank(const char *name, const char *members)
{
    char path[128], text[512];
    snprintf(path, sizeof path, "%s.rank.json", name);
    snprintf(text, sizeof text,
             "{\"schema_version\":1,\"machine\":\"%s\",\"host\":\"%s\",\"begun_utc\":"
             "\"2026-11-27T03:00:00Z\",%s}",
             name, name, members);
    write_file(path, text);
}

static void put_fleet(size_t count, size_t odd, struct like l)
{
    clear();
    for (size_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "node%02zu", i);
        put_machine(name, i, i == odd ? l : (struct like){ 0 });
    }
}

/* ---- what is read and printed --------------------------------------------------------------------------------------
 */

static json_t *schema;

/* Reads, judges, and prints all that can be printed; every line of it is as the schema says. */
static void judge(struct ha_fleet *f)
{
    assert_int_equal(ha_fleet_read(f, fleet, &why), HA_OK);
    assert_int_equal(ha_fleet_judge(f, &why), HA_OK);
    ha_fleet_print_json(test_print(), f);
    assert_true(test_schema_lines(test_printed(), schema) > 0);
    ha_fleet_print_table(test_print(), f);
    test_printed();
}

static const struct ha_fleet_machine *machine(const struct ha_fleet *f, const char *name)
{
    for (size_t i = 0; i < f->count; i++)
        if (!strcmp(f->machine[i].name, name)) return &f->machine[i];
    fail_msg("no machine %s", name);
    return NULL;
}

static void says(const struct ha_fleet *f, const char *name, enum ha_fleet_state state, const char *part)
{
    const struct ha_fleet_machine *m = machine(f, name);
    char *line = ha_fleet_line(f, m, NULL);
    if (m->state != state || !strstr(line, part))
        fail_msg("%s is %s: %s; and not %s: %s", name, ha_fleet_state_word(m->state), line, ha_fleet_state_word(state),
                 part);
    free(line);
}

TEST(a_slow_machine_stands_out_of_a_fleet_of_folders)
{
    struct ha_fleet f;
    put_fleet(12, 7, (struct like){ .slower = 0.1 });
    judge(&f);
    assert_int_equal(f.count, 12);
    assert_int_equal(f.groups, 1);
    assert_int_equal(ha_fleet_exit(&f), HA_EXIT_REGRESSION);
    says(&f, "node07", HA_FLEET_STANDS_OUT, "memory read, all threads");
    says(&f, "node06", HA_FLEET_FITS, "as the others");
    assert_non_null(strstr(test_print_text, "stands out: 12 machines in 1 group, 1 stands out"));
    assert_non_null(strstr(test_print_text, "stands out      node07: memory read, all threads "));
    ha_fleet_free(&f);
    put_machine("node12", 12, (struct like){ .slower = 0.1 });
    judge(&f);
    assert_non_null(strstr(test_print_text, "stands out: 13 machines in 1 group, 2 stand out"));
    ha_fleet_free(&f);
}

TEST(nothing_wrong_is_said_with_what_would_have_been_seen)
{
    struct ha_fleet f;
    put_fleet(12, SIZE_MAX, (struct like){ 0 });
    judge(&f);
    assert_int_equal(ha_fleet_exit(&f), HA_EXIT_OK);
    assert_non_null(strstr(test_print_text, "fits: 12 machines in 1 group; one machine would have stood out by memory "
                                            "read, all threads from "));
    ha_fleet_free(&f);
}

TEST(who_is_not_there_is_named_and_never_left_out)
{
    struct ha_fleet f;
    put_fleet(6, SIZE_MAX, (struct like){ 0 });
    for (size_t i = 0; i < 6; i++) {
        char name[32];
        snprintf(name, sizeof name, "node%02zu", i);
        put_rank(name, "\"ended_utc\":\"2026-11-27T04:00:00Z\",\"exit\":0,\"signal\":null,\"ranks\":12");
    }
    put_rank("node06", "\"ended_utc\":null,\"exit\":null,\"signal\":null,\"ranks\":12");
    put_rank("node07", "\"ended_utc\":\"2026-11-27T04:00:00Z\",\"exit\":null,\"signal\":9,\"ranks\":12");
    put_rank("node08", "\"ended_utc\":\"2026-11-27T04:00:00Z\",\"exit\":0,\"signal\":null,\"ranks\":12");
    put_rank("node09", "\"ended_utc\":\"2026-11-27T04:00:00Z\",\"exit\":70,\"signal\":null,\"ranks\":12");
    write_file("expected", "# the rack\nnode10\nnode00\nnode01\n  node10 # new\nnode01\nnode10\n\n");
    judge(&f);
    assert_int_equal(f.count, 11);
    assert_int_equal(f.expected, 3);
    assert_int_equal(f.never_began, 1); /* of 12 ranks 10 have a file, and node10 has a line of its own */
    assert_int_equal(ha_fleet_exit(&f), HA_EXIT_MISSING);
    says(&f, "node00", HA_FLEET_FITS, "");
    says(&f, "node06", HA_FLEET_DID_NOT_END, "began 2026-11-27T03:00:00Z, and has not ended");
    says(&f, "node07", HA_FLEET_DIED, "signal 9");
    says(&f, "node08", HA_FLEET_DIED, "left no record");
    says(&f, "node09", HA_FLEET_DIED, "exit code 70");
    says(&f, "node10", HA_FLEET_NEVER_ANSWERED, "no rank has answered");
    assert_non_null(strstr(test_print_text, "1 rank never began"));
    ha_fleet_free(&f);
}

TEST(a_host_that_is_expected_is_there_by_its_devices)
{
    struct ha_fleet f;
    clear();
    put_machine("node1.0", 0, (struct like){ 0 });
    put_machine("node1.1", 1, (struct like){ 0 });
    write_file("expected", "node1\nnode1.2\n");
    judge(&f);
    assert_int_equal(f.count, 3);
    says(&f, "node1.2", HA_FLEET_MISSING, "there is no record of it");
    ha_fleet_free(&f);
}

TEST(damaged_folders_are_said_and_count_as_died)
{
    struct ha_fleet f;
    put_fleet(8, SIZE_MAX, (struct like){ 0 });
    write_file("node01/env.json", "{\"schema_version\":2,");
    write_file("node02/figures.csv", "");
    write_file("node03/figures.csv",
               "case_id,process,suite,figure,value,unit,better\ncase:i=0,0,s,step_ns,oops,ns,less\n");
    make_folder("node20");
    make_folder("bad name");
    write_file("node21.rank.json", "[");
    judge(&f);
    says(&f, "node01", HA_FLEET_DIED, "env.json");
    says(&f, "node02", HA_FLEET_DIED, "figures.csv: it is empty");
    says(&f, "node20", HA_FLEET_DIED, "neither has an env.json");
    says(&f, "node21", HA_FLEET_DIED, "its rank file is damaged");
    assert_non_null(strstr(f.notes, "a value that is no number"));
    assert_non_null(strstr(f.notes, "a folder whose name is none of a machine"));
    assert_int_equal(f.count, 10);
    assert_int_equal(ha_fleet_exit(&f), HA_EXIT_MISSING);
    ha_fleet_free(&f);
}

TEST(names_that_are_none_are_refused_where_they_are_expected)
{
    struct ha_fleet f;
    put_fleet(1, SIZE_MAX, (struct like){ 0 });
    write_file("expected", "../../etc\n");
    assert_int_equal(ha_fleet_read(&f, fleet, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "expected:1: '../../etc' is no name of a machine"));
    ha_fleet_free(&f);
    clear();
    assert_int_equal(ha_fleet_read(&f, fleet, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "no machine in it"));
    ha_fleet_free(&f);
}

TEST(folders_of_something_else_are_no_fleet)
{
    struct ha_fleet f;
    clear();
    make_folder("apt");
    make_folder("ssh");
    assert_int_equal(ha_fleet_read(&f, fleet, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "no machine in it"));
    assert_non_null(strstr(why.text, "name the folder"));
    ha_fleet_free(&f);
    write_file("apt/env.json", "{"); /* a record that is damaged is one */
    judge(&f);
    assert_int_equal(f.count, 2);
    says(&f, "ssh", HA_FLEET_DIED, "neither has an env.json");
    ha_fleet_free(&f);
    clear();
    make_folder("node00");
    put_machine("node00/night", 0, (struct like){ 0 }); /* nor need it stand on top */
    judge(&f);
    says(&f, "node00", HA_FLEET_TOO_FEW, "one of 1 machine");
    ha_fleet_free(&f);
}

TEST(a_wrong_result_stands_on_top)
{
    struct ha_fleet f;
    put_fleet(8, 3, (struct like){ .slower = 0.2, .fails = 2 });
    judge(&f);
    assert_int_equal(ha_fleet_exit(&f), HA_EXIT_WRONG);
    says(&f, "node03", HA_FLEET_WRONG, "wrong case:i=1 (run)");
    says(&f, "node03", HA_FLEET_WRONG, "memory read, all threads"); /* it is slow, too */
    ha_fleet_free(&f);
}

TEST(one_flipped_output_is_named_by_the_majority)
{
    struct ha_fleet f;
    put_fleet(8, 5, (struct like){ .digest = "00000000000000ab" });
    judge(&f);
    assert_int_equal(ha_fleet_exit(&f), HA_EXIT_WRONG);
    assert_int_equal(f.disagreements, 1);
    assert_int_equal(f.disagreement[0].agree, 7);
    says(&f, "node05", HA_FLEET_DISAGREES, "the outputs of 1 case");
    says(&f, "node04", HA_FLEET_FITS, "");
    assert_non_null(
        strstr(test_print_text, "outputs of case:i=0 (run), plan p1: 7 machines agree on 00000000000000aa"));
    ha_fleet_free(&f);
}

TEST(of_three_machines_the_ratios_are_said)
{
    struct ha_fleet f;
    put_fleet(3, 1, (struct like){ .slower = 0.1 });
    judge(&f);
    says(&f, "node01", HA_FLEET_TOO_FEW, "all times and rates 9.");
    says(&f, "node00", HA_FLEET_TOO_FEW, "one of 3 machines of its kind: too few to stand out; all times and rates ");
    assert_int_equal(ha_fleet_exit(&f), HA_EXIT_ENVIRONMENT);
    ha_fleet_free(&f);
}

TEST(a_machine_that_disagrees_with_itself_is_named)
{
    struct ha_fleet f;
    put_fleet(5, 2, (struct like){ .mixed = true });
    judge(&f);
    assert_int_equal(f.disagreements, 1);
    assert_int_equal(f.disagreement[0].agree, 4);
    says(&f, "node02", HA_FLEET_DISAGREES, "the outputs of 1 case");
    says(&f, "node01", HA_FLEET_FITS, "");
    ha_fleet_free(&f);
}

/* It has no say in what the others should have, whichever of its outputs came first. */
TEST(a_machine_that_disagrees_with_itself_blames_nobody)
{
    static const char *const digests[] = { "0000000000000001", "fffffffffffffff0" };
    struct ha_fleet f;
    for (size_t d = 0; d < 2; d++) {
        clear();
        put_machine("node00", 0, (struct like){ .mixed = true });
        put_machine("node01", 1, (struct like){ .digest = digests[d] });
        judge(&f);
        says(&f, "node00", HA_FLEET_DISAGREES, "");
        says(&f, "node01", HA_FLEET_TOO_FEW, "");
        assert_non_null(strstr(test_print_text, "1 machine agrees on "));
        ha_fleet_free(&f);
        put_machine("node02", 2, (struct like){ .digest = digests[d] });
        put_machine("node03", 3, (struct like){ .digest = digests[1 - d] });
        put_machine("node04", 4, (struct like){ .digest = digests[1 - d] });
        judge(&f);
        assert_false(f.disagreement[0].known); /* two and two */
        for (size_t i = 0; i < f.count; i++) says(&f, f.machine[i].name, HA_FLEET_DISAGREES, "");
        ha_fleet_free(&f);
    }
}

TEST(of_two_that_disagree_nobody_can_say_who)
{
    struct ha_fleet f;
    put_fleet(2, 1, (struct like){ .digest = "00000000000000ab" });
    judge(&f);
    assert_int_equal(ha_fleet_exit(&f), HA_EXIT_WRONG);
    assert_false(f.disagreement[0].known);
    says(&f, "node00", HA_FLEET_DISAGREES, "");
    says(&f, "node01", HA_FLEET_DISAGREES, "");
    assert_non_null(strstr(test_print_text, "two cannot say who is right"));
    ha_fleet_free(&f);
}

TEST(firmware_does_not_split_a_group_and_another_cpu_does)
{
    struct ha_fleet f;
    put_fleet(10, 2, (struct like){ .bios = "1.1" });
    put_machine("other0", 30, (struct like){ .cpu = "another CPU", .slower = 1 });
    judge(&f);
    assert_int_equal(f.groups, 2);
    assert_int_equal(f.group[0].count, 10);
    assert_non_null(strstr(test_print_text, "  differs  bios: 1.0 (9), 1.1 (1: node02)"));
    assert_non_null(strstr(test_print_text, "  differs  memory_bytes: 64 GiB (9), 63 GiB (1: node03)"));
    says(&f, "other0", HA_FLEET_TOO_FEW, "one of 1 machine of its kind: too few to stand out");
    assert_int_equal(ha_fleet_exit(&f), HA_EXIT_ENVIRONMENT);
    ha_fleet_free(&f);
}

TEST(cases_that_a_machine_lacks_are_missing)
{
    struct ha_fleet f;
    put_fleet(8, 6, (struct like){ .cases = 4 });
    judge(&f);
    says(&f, "node06", HA_FLEET_MISSING, "lacks 2 cases that others have");
    assert_int_equal(ha_fleet_exit(&f), HA_EXIT_MISSING);
    for (size_t i = 0; i < f.group[0].columns; i++) assert_true(f.group[0].column[i].machines >= 7);
    ha_fleet_free(&f);
}

TEST(a_disturbed_machine_is_not_fit_to_say)
{
    struct ha_fleet f;
    put_fleet(8, 6, (struct like){ .disturbed = "load", .slower = 0.3 });
    judge(&f);
    says(&f, "node06", HA_FLEET_DISTURBED, "something else used the cores in 6 of 6 cases");
    assert_int_equal(ha_fleet_exit(&f), HA_EXIT_ENVIRONMENT);
    ha_fleet_free(&f);
}

TEST(junit_has_a_case_for_each_machine_and_the_verdict)
{
    struct ha_fleet f;
    char path[512], text[16384];
    put_fleet(9, 4, (struct like){ .slower = 0.2 });
    write_file("expected", "node99\n");
    judge(&f);
    snprintf(path, sizeof path, "%s/out.xml", fleet);
    assert_int_equal(ha_fleet_junit(path, &f, &why), HA_OK);
    FILE *in = fopen(path, "r");
    text[fread(text, 1, sizeof text - 1, in)] = 0;
    fclose(in);
    assert_int_equal(test_count(text, "<testcase "), 11);
    assert_int_equal(test_count(text, "<failure "), 2); /* the machine, and the verdict */
    assert_int_equal(test_count(text, "<error "), 1);
    assert_non_null(strstr(text, "tests=\"11\" failures=\"2\" errors=\"1\""));
    ha_fleet_free(&f);
}

TEST(two_nights_of_a_fleet_are_set_beside_each_other)
{
    struct ha_fleet before, now;
    struct ha_fleet_shift s;
    put_fleet(8, SIZE_MAX, (struct like){ 0 });
    assert_int_equal(ha_fleet_read(&before, fleet, &why), HA_OK);
    assert_int_equal(ha_fleet_judge(&before, &why), HA_OK);
    put_fleet(7, 2, (struct like){ .slower = 0.2 });
    judge(&now);
    assert_int_equal(ha_fleet_shift(&s, &before, &now, &why), HA_OK);
    assert_int_equal(s.machines, 7);
    assert_int_equal(s.gone, 1);
    assert_true(s.machine[0].called);
    assert_string_equal(s.machine[0].machine->name, "node02");
    assert_near(s.machine[0].by, log(1.2), 0.01);
    ha_fleet_shift_print_json(test_print(), &s);
    assert_int_equal(test_schema_lines(test_printed(), schema), 1 + 7 + s.figures);
    ha_fleet_shift_print_table(test_print(), &s);
    assert_non_null(strstr(test_printed(), "slower          node02: +20"));
    ha_fleet_shift_free(&s);
    ha_fleet_free(&before);
    ha_fleet_free(&now);
}

static int set_up(void **state)
{
    schema = test_schema_load("results/schema/fleet.schema.json");
    if (test_folder_make(state) != 0) return -1;
    snprintf(fleet, sizeof fleet, "%s/fleet", test_folder);
    return 0;
}

static int tear_down(void **state)
{
    json_decref(schema);
    return test_folder_remove(state);
}

TEST_MAIN { return test_all("tests", set_up, tear_down); }
