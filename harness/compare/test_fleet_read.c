/* Folders of a fleet, as ranks leave them, and damaged ones; what is printed of them. */

#include "harness/base/test_folder.h"
#include "harness/compare/fleet_print.h"
#include "harness/report/test_schema.h"

#include <math.h>
#include <sys/stat.h>

static struct ha_why why;
static char fleet[sizeof test_folder + 8];
static struct ha_fleet f; /* of the test */

/* ---- folders ----------------------------------------------------------------------------------------------------- */

static void clear(void)
{
    nftw(fleet, test_remove, 8, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(mkdir(fleet, 0777), 0);
}

static void write_file(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "fleet/%s", name);
    test_write(path, text, strlen(text));
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

static void put_cases(FILE *out, const struct like *l, size_t number)
{
    fputs("case_id,process,suite,verdict,reason,disturbed,outputs,plan\n", out);
    for (size_t i = 0; i < (l->cases ? l->cases : CASES); i++)
        for (size_t p = 0; p < PROCESSES; p++)
            fprintf(out, "case:i=%zu,%zu,s,%s,,%s,%s,p1\n", i, p, l->fails == i + 1 ? "fail" : "pass",
                    l->disturbed ? l->disturbed : "",
                    l->digest && !i       ? l->digest
                    : l->mixed && !i && p ? "00000000000000bb"
                                          : "00000000000000aa");
}

static void put_figures(FILE *out, const struct like *l, size_t number)
{
    fputs("case_id,process,suite,figure,value,unit,better\n", out);
    for (size_t i = 0; i < (l->cases ? l->cases : CASES); i++)
        for (size_t p = 0; p < PROCESSES; p++) {
            const double x = (1 + l->slower) * exp(wobble(number, 0, 1) + wobble(number, i, p));
            fprintf(out, "case:i=%zu,%zu,s,step_ns,%.6f,ns,less\n", i, p, 1e6 * x);
            fprintf(out, "case:i=%zu,%zu,s,beside_read_GBps,%.6f,GB/s,more\n", i, p, 100 / x);
            fprintf(out, "case:i=%zu,%zu,s,floor_ratio,%.6f,,more\n", i, p, 0.8 + wobble(number, i, p));
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
    void (*const put[])(FILE * f, const struct like *l, size_t number) = { put_cases, put_figures };
    for (size_t i = 0; i < COUNT(put); i++) {
        put[i](test_print(), &l, number);
        snprintf(path, sizeof path, "%s/%s.csv", name, i ? "figures" : "cases");
        write_file(path, test_printed());
    }
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

/* ---- what is read and printed ------------------------------------------------------------------------------------ */

static json_t *schema;

/* Reads, judges, and prints all that can be printed; every line of it is as the schema says. */
static void judge(void)
{
    ha_fleet_free(&f);
    assert_int_equal(ha_fleet_read(&f, fleet, &why), HA_OK);
    assert_int_equal(ha_fleet_judge(&f, &why), HA_OK);
    ha_fleet_print_json(test_print(), &f);
    assert_true(test_schema_lines(test_printed(), schema) > 0);
    ha_fleet_print_table(test_print(), &f);
    test_printed();
}

static void says(const char *name, enum ha_fleet_state state, const char *part)
{
    const struct ha_fleet_machine *m = NULL;
    for (size_t i = 0; i < f.count; i++)
        if (!strcmp(f.machine[i].name, name)) m = &f.machine[i];
    if (!m) fail_msg("no machine %s", name);
    char *line = ha_fleet_line(&f, m, NULL);
    if (m->state != state || !strstr(line, part))
        fail_msg("%s is %s: %s; and not %s: %s", name, ha_fleet_state_word(m->state), line, ha_fleet_state_word(state),
                 part);
    free(line);
}

static void refused(const char *text)
{
    ha_fleet_free(&f);
    assert_int_equal(ha_fleet_read(&f, fleet, &why), HA_ERROR);
    assert_contains(why.text, text);
}

/* Fleets in which one machine is odd. */
static const struct {
    size_t count, odd;
    enum ha_exit exit;
    size_t agree; /* of the outputs of a case that one has not; 0: of none */
    struct like like;
    const char *name[2]; /* is `state`, and its line has `part` */
    enum ha_fleet_state state[2];
    const char *part[2], *printed[2];
} fleets[] = {
    { 12, SIZE_MAX, HA_EXIT_OK, 0, .name = { "node07" }, .state = { HA_FLEET_FITS }, .part = { "" },
      .printed = { "fits: 12 machines in 1 group; one machine would have stood out by memory read, all threads "
                   "from " } },
    { 12, 7, HA_EXIT_REGRESSION, 0, .like = { .slower = 0.1 }, .name = { "node07", "node06" },
      .state = { HA_FLEET_STANDS_OUT, HA_FLEET_FITS }, .part = { "memory read, all threads", "as the others" },
      .printed = { "stands out: 12 machines in 1 group, 1 stands out",
                   "stands out      node07: memory read, all threads " } },
    /* a wrong result stands on top; it is slow, too */
    { 8, 3, HA_EXIT_WRONG, 0, .like = { .slower = 0.2, .fails = 2 }, .name = { "node03", "node03" },
      .state = { HA_FLEET_WRONG, HA_FLEET_WRONG }, .part = { "wrong case:i=1 (run)", "memory read, all threads" } },
    /* the majority names one flipped output; of two nobody can say who; one may disagree with itself */
    { 8, 5, HA_EXIT_WRONG, 7, .like = { .digest = "00000000000000ab" }, .name = { "node05", "node04" },
      .state = { HA_FLEET_DISAGREES, HA_FLEET_FITS }, .part = { "the outputs of 1 case", "" },
      .printed = { "outputs of case:i=0 (run), plan p1: 7 machines agree on 00000000000000aa" } },
    { 2, 1, HA_EXIT_WRONG, 0, .like = { .digest = "00000000000000ab" }, .name = { "node00", "node01" },
      .state = { HA_FLEET_DISAGREES, HA_FLEET_DISAGREES }, .part = { "", "" },
      .printed = { "two cannot say who is right" } },
    { 5, 2, HA_EXIT_WRONG, 4, .like = { .mixed = true }, .name = { "node02", "node01" },
      .state = { HA_FLEET_DISAGREES, HA_FLEET_FITS }, .part = { "the outputs of 1 case", "" } },
    { 3, 1, HA_EXIT_ENVIRONMENT, 0, .like = { .slower = 0.1 }, .name = { "node01", "node00" },
      .state = { HA_FLEET_TOO_FEW, HA_FLEET_TOO_FEW },
      .part = { "all times and rates 9.",
                "one of 3 machines of its kind: too few to stand out; all times and rates " } },
    { 8, 6, HA_EXIT_MISSING, 0, .like = { .cases = 4 }, .name = { "node06" }, .state = { HA_FLEET_MISSING },
      .part = { "lacks 2 cases that others have" } },
    { 8, 6, HA_EXIT_ENVIRONMENT, 0, .like = { .disturbed = "load", .slower = 0.3 }, .name = { "node06" },
      .state = { HA_FLEET_DISTURBED }, .part = { "something else used the cores in 6 of 6 cases" } },
};

TEST(one_odd_machine_of_a_fleet_of_folders_is_named)
{
    for (size_t i = 0; i < COUNT(fleets); i++) {
        put_fleet(fleets[i].count, fleets[i].odd, fleets[i].like);
        judge();
        assert_int_equal(f.count, fleets[i].count);
        assert_int_equal(f.groups, 1);
        assert_int_equal(ha_fleet_exit(&f), fleets[i].exit);
        if (fleets[i].agree) assert_int_equal(f.disagreements, 1);
        if (f.disagreements) assert_int_equal(f.disagreement[0].known, fleets[i].agree > 0);
        if (fleets[i].agree) assert_int_equal(f.disagreement[0].agree, fleets[i].agree);
        for (size_t k = 0; k < 2 && fleets[i].name[k]; k++)
            says(fleets[i].name[k], fleets[i].state[k], fleets[i].part[k]);
        for (size_t k = 0; k < 2 && fleets[i].printed[k]; k++) assert_contains(test_print_text, fleets[i].printed[k]);
        for (size_t k = 0; fleets[i].like.cases && k < f.group[0].columns; k++)
            assert_true(f.group[0].column[k].machines >= 7);
    }
    put_fleet(12, 7, (struct like){ .slower = 0.1 });
    put_machine("node12", 12, (struct like){ .slower = 0.1 });
    judge();
    assert_contains(test_print_text, "stands out: 13 machines in 1 group, 2 stand out");
}

TEST(who_is_not_there_is_named_and_never_left_out)
{
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
    judge();
    assert_int_equal(f.count, 11);
    assert_int_equal(f.expected, 3);
    assert_int_equal(f.never_began, 1); /* of 12 ranks 10 have a file, and node10 has a line of its own */
    assert_int_equal(ha_fleet_exit(&f), HA_EXIT_MISSING);
    says("node00", HA_FLEET_FITS, "");
    says("node06", HA_FLEET_DID_NOT_END, "began 2026-11-27T03:00:00Z, and has not ended");
    says("node07", HA_FLEET_DIED, "signal 9");
    says("node08", HA_FLEET_DIED, "left no record");
    says("node09", HA_FLEET_DIED, "exit code 70");
    says("node10", HA_FLEET_NEVER_ANSWERED, "no rank has answered");
    assert_contains(test_print_text, "1 rank never began");
}

TEST(a_host_that_is_expected_is_there_by_its_devices)
{
    clear();
    put_machine("node1.0", 0, (struct like){ 0 });
    put_machine("node1.1", 1, (struct like){ 0 });
    write_file("expected", "node1\nnode1.2\n");
    judge();
    assert_int_equal(f.count, 3);
    says("node1.2", HA_FLEET_MISSING, "there is no record of it");
}

TEST(damaged_folders_are_said_and_count_as_died)
{
    put_fleet(8, SIZE_MAX, (struct like){ 0 });
    write_file("node01/env.json", "{\"schema_version\":2,");
    write_file("node02/figures.csv", "");
    write_file("node03/figures.csv",
               "case_id,process,suite,figure,value,unit,better\ncase:i=0,0,s,step_ns,oops,ns,less\n");
    make_folder("node20");
    make_folder("bad name");
    write_file("node21.rank.json", "[");
    judge();
    says("node01", HA_FLEET_DIED, "env.json");
    says("node02", HA_FLEET_DIED, "figures.csv: it is empty");
    says("node20", HA_FLEET_DIED, "neither has an env.json");
    says("node21", HA_FLEET_DIED, "its rank file is damaged");
    assert_contains(f.notes, "a value that is no number");
    assert_contains(f.notes, "a folder whose name is none of a machine");
    assert_int_equal(f.count, 10);
    assert_int_equal(ha_fleet_exit(&f), HA_EXIT_MISSING);
}

TEST(names_that_are_none_are_refused_where_they_are_expected)
{
    put_fleet(1, SIZE_MAX, (struct like){ 0 });
    write_file("expected", "../../etc\n");
    refused("expected:1: '../../etc' is no name of a machine");
    clear();
    refused("no machine in it");
}

TEST(folders_of_something_else_are_no_fleet)
{
    clear();
    make_folder("apt");
    make_folder("ssh");
    refused("no machine in it");
    assert_contains(why.text, "name the folder");
    write_file("apt/env.json", "{"); /* a record that is damaged is one */
    judge();
    assert_int_equal(f.count, 2);
    says("ssh", HA_FLEET_DIED, "neither has an env.json");
    clear();
    make_folder("node00");
    put_machine("node00/night", 0, (struct like){ 0 }); /* nor need it stand on top */
    judge();
    says("node00", HA_FLEET_TOO_FEW, "one of 1 machine");
}

/* It has no say in what the others should have, whichever of its outputs came first. */
TEST(a_machine_that_disagrees_with_itself_blames_nobody)
{
    static const char *const digests[] = { "0000000000000001", "fffffffffffffff0" };
    for (size_t d = 0; d < 2; d++) {
        clear();
        put_machine("node00", 0, (struct like){ .mixed = true });
        put_machine("node01", 1, (struct like){ .digest = digests[d] });
        judge();
        says("node00", HA_FLEET_DISAGREES, "");
        says("node01", HA_FLEET_TOO_FEW, "");
        assert_contains(test_print_text, "1 machine agrees on ");
        put_machine("node02", 2, (struct like){ .digest = digests[d] });
        put_machine("node03", 3, (struct like){ .digest = digests[1 - d] });
        put_machine("node04", 4, (struct like){ .digest = digests[1 - d] });
        judge();
        assert_false(f.disagreement[0].known); /* two and two */
        for (size_t i = 0; i < f.count; i++) says(f.machine[i].name, HA_FLEET_DISAGREES, "");
    }
}

TEST(firmware_does_not_split_a_group_and_another_cpu_does)
{
    put_fleet(10, 2, (struct like){ .bios = "1.1" });
    put_machine("other0", 30, (struct like){ .cpu = "another CPU", .slower = 1 });
    judge();
    assert_int_equal(f.groups, 2);
    assert_int_equal(f.group[0].count, 10);
    assert_contains(test_print_text, "  differs  bios: 1.0 (9), 1.1 (1: node02)");
    assert_contains(test_print_text, "  differs  memory_bytes: 64 GiB (9), 63 GiB (1: node03)");
    says("other0", HA_FLEET_TOO_FEW, "one of 1 machine of its kind: too few to stand out");
    assert_int_equal(ha_fleet_exit(&f), HA_EXIT_ENVIRONMENT);
}

TEST(junit_has_a_case_for_each_machine_and_the_verdict)
{
    put_fleet(9, 4, (struct like){ .slower = 0.2 });
    write_file("expected", "node99\n");
    judge();
    assert_int_equal(ha_fleet_junit(test_path("out.xml"), &f, &why), HA_OK);
    const char *text = test_text("out.xml");
    assert_int_equal(test_count(text, "<testcase "), 11);
    assert_int_equal(test_count(text, "<failure "), 2); /* the machine, and the verdict */
    assert_int_equal(test_count(text, "<error "), 1);
    assert_contains(text, "tests=\"11\" failures=\"2\" errors=\"1\"");
}

TEST(two_nights_of_a_fleet_are_set_beside_each_other)
{
    struct ha_fleet before;
    struct ha_fleet_shift s;
    put_fleet(8, SIZE_MAX, (struct like){ 0 });
    assert_int_equal(ha_fleet_read(&before, fleet, &why), HA_OK);
    assert_int_equal(ha_fleet_judge(&before, &why), HA_OK);
    put_fleet(7, 2, (struct like){ .slower = 0.2 });
    judge();
    assert_int_equal(ha_fleet_shift(&s, &before, &f, &why), HA_OK);
    assert_int_equal(s.machines, 7);
    assert_int_equal(s.gone, 1);
    assert_true(s.machine[0].called);
    assert_string_equal(s.machine[0].machine->name, "node02");
    assert_near(s.machine[0].by, log(1.2), 0.01);
    ha_fleet_shift_print_json(test_print(), &s);
    assert_int_equal(test_schema_lines(test_printed(), schema), 1 + 7 + s.figures);
    ha_fleet_shift_print_table(test_print(), &s);
    assert_contains(test_printed(), "slower          node02: +20");
    ha_fleet_shift_free(&s);
    ha_fleet_free(&before);
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
    ha_fleet_free(&f);
    return test_folder_remove(state);
}

TEST_MAIN { return test_all("tests", set_up, tear_down); }
