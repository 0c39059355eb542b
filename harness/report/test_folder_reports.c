/* What a run leaves besides its rows: the trace, JUnit, JSON lines, the list of columns. */

#include "harness/report/test_folder_open.h"

#include <jansson.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* the events of the trace, which is a whole file of JSON */
static json_t *trace_events(void)
{
    json_error_t error;
    json_t *trace = json_load_file(test_path("trace.json"), 0, &error);
    if (!trace) fail_msg("%s", error.text);
    json_t *events = json_incref(json_object_get(trace, "traceEvents"));
    json_decref(trace);
    return events;
}

static void trace_has(size_t events)
{
    json_t *all = trace_events();
    assert_int_equal(json_array_size(all), events);
    json_decref(all);
}

TEST_WITH(a_trace_that_does_not_fit_leaves_the_file_complete, open_new, test_folder_remove)
{
    static char events[20000];
    write_it(1, HA_PASS);
    fake_case(&c, 2, 0);
    snprintf(events, sizeof events, "{\"ph\":\"X\",\"name\":\"%018000d\"}", 0);
    limit_files(9000);
    const enum ha_status status = ha_folder_trace(f, &c.of, events, strlen(events), &why);
    limit_files(RLIM_INFINITY);
    assert_int_equal(status, HA_ERROR);
    assert_contains(why.text, "trace.json: cannot write: File too large; the rows so far are kept");
    ha_folder_close(f, &why);
    trace_has(3);
    assert_false(there("junit.xml")); /* which would pass for the report of a whole run */
}

TEST_WITH(the_trace_is_complete_after_every_call, open_new, test_folder_remove)
{
    static const char evil[] = "{\"ph\":\"X\",\"name\":\"\033[2J\xff\"}";
    size_t events = 0;
    for (size_t n = 0; n < 3; n++) {
        write_it(n, HA_PASS);
        json_t *all = trace_events(), *e;
        size_t i;
        events += 3;
        assert_int_equal(json_array_size(all), events);
        json_array_foreach(all, i, e) assert_int_equal(json_integer_value(json_object_get(e, "pid")), i / 3 + 1);
        json_decref(all);
    }
    fake_case(&c, 2, 0); /* more of the same case */
    assert_int_equal(ha_folder_trace(f, &c.of, evil, sizeof evil - 1, &why), HA_OK);
    assert_int_equal(ha_folder_trace(f, &c.of, "{\"ph\":", 6, &why), HA_FAIL);
    assert_contains(why.text, "no JSON");
    assert_int_equal(ha_folder_trace(f, &c.of, "{\"a\":\0}", 7, &why), HA_FAIL);
    assert_int_equal(ha_folder_trace(f, &c.of, "1,2", 3, &why), HA_FAIL);
    assert_int_equal(ha_folder_trace(f, &c.of, "", 0, &why), HA_OK);
    static const char name[] = "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"x\"}}";
    assert_int_equal(ha_folder_trace(f, &c.of, name, sizeof name - 1, &why), HA_OK);
    assert_int_equal(test_count(test_text("trace.json"), "process_name"), 3); /* named by us alone */
    close_it();
    assert_null(strchr(test_text("trace.json"), '\033'));
    assert_int_equal(test_count(test_text("trace.json"), "\"pid\":3"), 4);
    assert_int_equal(truncate(test_path("trace.json"), (off_t)strlen(test_text("trace.json")) - 30), 0); /* torn */
    open_it(true);
    trace_has(9);
    write_it(3, HA_PASS);
    close_it();
    trace_has(12);
    assert_int_equal(test_count(test_text("trace.json"), "\"pid\":4"), 3);
}

/* Two processes of a case are two of the trace; only what follows the name of one that has its row stays. */
TEST_WITH(events_belong_to_a_row, open_new, test_folder_remove)
{
    static const char event[] = "{\"ph\":\"X\"}";
    const struct fake_row row = fake_row(1, HA_PASS);
    fake_case(&c, 1, 0);
    for (c.of.process = 0; c.of.process < 2; c.of.process++)
        assert_int_equal(ha_folder_trace(f, &c.of, event, sizeof event - 1, &why), HA_OK);
    assert_int_equal(test_count(test_text("trace.json"), "process_name"), 2);
    assert_int_equal(test_count(test_text("trace.json"), "\"pid\":2"), 2);
    c.of.process = 0;
    assert_int_equal(ha_folder_row(f, &c.of, &row, &why), HA_OK);
    close_it();
    open_it(true);
    assert_int_equal(ha_folder_found(f)->dropped, 2);
    trace_has(2);
    close_it();
    const size_t end = strlen("\n]}\n");
    assert_int_equal(truncate(test_path("trace.json"), (off_t)(strlen(test_text("trace.json")) - end)), 0);
    append("trace.json", ",\n{\"ph\":\"X\",\"pid\":9}\n]}\n"); /* of nobody */
    trace_has(3);
    open_it(true);
    assert_int_equal(ha_folder_found(f)->dropped, 1);
    trace_has(2);
    close_it();
}

/* It is a pass with a warning, and stays one when a run goes on. */
TEST_WITH(a_suspect_passes_with_a_warning, open_new, test_folder_remove)
{
    struct fake_row row = fake_row(1, HA_SUSPECT);
    row.result.p = 0.25;
    fake_case(&c, 1, 0);
    assert_int_equal(ha_folder_row(f, &c.of, &row, &why), HA_OK);
    write_it(2, HA_PASS);
    close_it();
    open_it(true);
    assert_int_equal(ha_folder_found(f)->kept, 2);
    const struct ha_result *r = ha_folder_find(f, c.id, 0)->row;
    assert_int_equal(r->verdict, HA_SUSPECT);
    assert_true(r->p == 0.25);
    assert_true(isnan(((const struct ha_result *)ha_folder_entry(f, 1)->row)->p));
    const struct ha_folder_totals t = ha_folder_totals(f), right = { .passed = 2 };
    assert_memory_equal(&t, &right, sizeof t);
    close_it();
    assert_contains(test_text("fake.csv"), "\"suspect\",\"case 1, ");
    assert_contains(test_text("fake.csv"), "\"30\",\"0.25\"");
    assert_contains(test_text("figures.csv"), ",\"suspect\"");
    assert_contains(test_text("junit.xml"),
                    "name=\"fake:kind=odd,n=1\"><properties><property name=\"suspect\" value=\"case 1, "
                    "&quot;quoted&quot; &amp; &lt;odd&gt;\"/></properties><system-out>SUSPECT: case 1, "
                    "&quot;quoted&quot; &amp; &lt;odd&gt;</system-out></testcase>\n");
    assert_contains(test_text("junit.xml"), "tests=\"4\" failures=\"0\" errors=\"0\" skipped=\"0\">");
    assert_int_equal(test_count(test_text("junit.xml"), "SUSPECT"), 1);
}

TEST_WITH(junit_and_totals_cover_the_whole_folder, open_new, test_folder_remove)
{
    static const struct {
        enum ha_verdict verdict;
        const char *says;
    } expect[] = {
        { HA_PASS, "<testcase classname=\"correctness\" name=\"fake:kind=even,n=0\"/>" },
        { HA_VERDICT_FAIL,
          "name=\"fake:kind=odd,n=1\"><failure message=\"case 1, &quot;quoted&quot; &amp; &lt;odd&gt;\">habench check "
          "'fake:kind=odd,n=1'</failure>" },
        { HA_VERDICT_WAIVED, "name=\"fake:kind=even,n=2\"><skipped message=\"waived: case 2" },
        { HA_UNCHECKED, "name=\"fake:kind=odd,n=3\"><skipped message=\"unchecked: case 3" },
        { HA_VERDICT_ERROR, "name=\"fake:kind=even,n=4\"><error message=\"case 4" },
    };
    for (size_t n = 0; n < 4; n++) write_it(n, expect[n].verdict);
    close_it();
    open_it(true);
    write_it(4, expect[4].verdict);
    fake_case(&c, 5, 0);
    assert_int_equal(ha_folder_not_run(f, &c.of, "no \"time\"\033 left", &why), HA_OK);
    fake_case(&c, 6, 1);
    struct fake_row row = fake_row(6, HA_PASS);
    row.result.samples = row.time_ns = (double)NAN;
    row.sample_ns = 5; /* of a line, and no time of the case */
    assert_int_equal(ha_folder_row(f, &c.of, &row, &why), HA_OK);
    c.of.suite = &other_suite;
    c.of.id = "other:n=1";
    c.of.from = "";
    c.of.process = 0;
    c.of.seconds = 1.5;
    c.of.key_value = c.key + FAKE_SEED;
    assert_int_equal(ha_folder_row(f, &c.of, &row, &why), HA_OK);
    const struct ha_folder_totals t = ha_folder_totals(f), right = {
        .passed = 3, .failed = 1, .waived = 1, .unchecked = 1, .errors = 1, .not_run = 1
    };
    assert_memory_equal(&t, &right, sizeof t);
    close_it();
    const char *xml = test_text("junit.xml");
    for (size_t n = 0; n < 5; n++) assert_contains(xml, expect[n].says);
    assert_contains(xml, "name=\"fake:kind=odd,n=5\"><skipped message=\"not run: no &quot;time&quot;? left\"/>");
    assert_contains(xml, "<testsuites name=\"habench\" tests=\"14\" failures=\"1\" errors=\"1\" skipped=\"4\">");
    assert_contains(xml, "<testsuite name=\"nightly.even\" tests=\"8\" failures=\"0\" errors=\"1\" skipped=\"2\">");
    assert_contains(xml, "<testsuite name=\"nightly.odd\" tests=\"5\" failures=\"1\" errors=\"0\" skipped=\"2\">");
    assert_contains(xml, "<testsuite name=\"other\" tests=\"1\" failures=\"0\" errors=\"0\" skipped=\"0\">");
    assert_contains(xml, "<testcase classname=\"correctness\" name=\"other:n=1\" time=\"1.500000\"/>");
    assert_contains(xml, "classname=\"timing\" name=\"fake:kind=odd,n=3\" time=\"0.001000001\"/>");
    assert_contains(xml, "classname=\"timing\" name=\"fake:kind=even,n=6 (process 1)\"><skipped");
    assert_null(strchr(xml, '\033'));
}

/* A shell runs the line of a case that is wrong as it stands there: by words, those of `habench check`. */
TEST_WITH(what_runs_a_case_again_is_words_of_a_shell, test_folder_make, test_folder_remove)
{
    static const struct {
        const char *id, *exec, *words;
    } each[] = {
        { "fake:kind=it's,note=$HOME", NULL, "fake:kind=it's,note=$HOME\n" },
        { "fake:kind=it's,note=$HOME", "x", "fake:kind=it's,note=$HOME\n" },
        { "fake:note=exec", "sh -c 'a && <b>' --\033", "fake:note=exec\n--exec\nsh -c 'a && <b>' --?\n" },
        { "fake:note=exec,seed=1", "x", "fake:note=exec,seed=1\n--exec\nx\n" },
        { "fake:footnote=exec", "x", "fake:footnote=exec\n" },
        { "fake:seed=1,note=execs", "x", "fake:seed=1,note=execs\n" },
        { "fake:note=exec", NULL, "fake:note=exec\n" },
    };
    static const char *const plain[][2] = { { "&lt;", "<" }, { "&gt;", ">" }, { "&amp;", "&" } };
    for (size_t i = 0; i < COUNT(each); i++) {
        struct ha_folder_options options = fake_options(test_path("again"), false);
        const struct fake_row row = fake_row(1, HA_VERDICT_FAIL);
        char path[TEST_PATH_MAX], line[600], sh[700], said[128] = "";
        options.path = strcpy(path, options.path);
        options.exec = each[i].exec;
        fake_case(&c, 1, 0);
        c.of.id = each[i].id;
        assert_int_equal(ha_folder_open(&f, &options, &why), HA_EXIT_OK);
        assert_int_equal(ha_folder_row(f, &c.of, &row, &why), HA_OK);
        close_it();
        const char *xml = test_text("again/junit.xml"), *from = strstr(xml, ">habench check "),
                   *end = from ? strstr(from, "</failure>") : NULL;
        assert_non_null(end);
        snprintf(line, sizeof line, "%.*s", (int)(end - from - 15), from + 15);
        for (size_t p = 0; p < COUNT(plain); p++)
            for (char *at; (at = strstr(line, plain[p][0]));) {
                *at = *plain[p][1];
                memmove(at + 1, at + strlen(plain[p][0]), strlen(at + strlen(plain[p][0])) + 1);
            }
        snprintf(sh, sizeof sh, "printf '%%s\\n' %s", line);
        FILE *shell = popen(sh, "r");
        assert_non_null(shell);
        said[fread(said, 1, sizeof said - 1, shell)] = 0;
        assert_int_equal(pclose(shell), 0);
        assert_string_equal(said, each[i].words);
        snprintf(sh, sizeof sh, "rm -r %s", path);
        assert_int_equal(system(sh), 0);
    }
}

TEST_WITH(a_check_has_no_timing, test_folder_make, test_folder_remove)
{
    struct ha_folder_options options = fake_options(test_folder, false);
    options.mode = "check";
    open_with(&options);
    write_it(1, HA_PASS);
    close_it();
    assert_int_equal(test_count(test_text("junit.xml"), "timing"), 0);
}

TEST_WITH(a_column_may_have_no_unit, test_folder_make, test_folder_remove)
{
    struct ha_field fields[] = { fake_suite.field[5], fake_suite.field[0] }; /* a text, a time */
    struct ha_suite suite = fake_suite;
    const struct ha_suite *const suites[] = { &suite };
    struct ha_folder_options options = fake_options(test_folder, false);
    const struct fake_row row = fake_row(0, HA_PASS);
    fields[0].unit = NULL;
    suite.field = fields;
    suite.fields = 2;
    options.suites = suites;
    options.suites_count = 1;
    open_with(&options);
    fake_case(&c, 0, 0);
    c.of.suite = &suite;
    assert_int_equal(ha_folder_row(f, &c.of, &row, &why), HA_OK);
    close_it();
    assert_contains(test_text("junit.xml"), "classname=\"timing\" name=\"fake:kind=even,n=0\" time=\"0.001000000\"/>");
}

static json_t *next_line(char **text)
{
    char *end = strchr(*text, '\n');
    json_error_t error;
    if (!end) return NULL;
    *end = 0;
    json_t *j = json_loads(*text, JSON_DECODE_INT_AS_REAL, &error); /* it has no uint64_t */
    if (!j) fail_msg("%s: %s", error.text, *text);
    *text = end + 1;
    return j;
}

TEST_WITH(json_lines_hold_the_same, test_folder_make, test_folder_remove)
{
    const struct ha_folder_options options = fake_options(NULL, false);
    open_with(&options);
    struct fake_row row = fake_row(1, HA_VERDICT_FAIL);
    size_t figures = 0;
    strcpy(row.text, "a \"b\" \\ \033\xff\n");
    row.hi_ns = (double)INFINITY;
    row.lo_ns = (double)NAN;
    fake_case(&c, 1, 0);
    c.key[FAKE_SEED] = "007"; /* which is no number of JSON */
    assert_int_equal(ha_folder_json(f, test_print(), &c.of, &row, &why), HA_OK);
    assert_contains(test_printed(), "\"seed\":\"007\",");
    fake_case(&c, 1, 0);
    c.key[FAKE_NOTE] = "17"; /* a name, which looks like a number */
    assert_int_equal(ha_folder_json(f, test_print(), &c.of, &row, &why), HA_OK);
    char *text = test_printed();
    assert_contains(text, "\"big\":18446744073709551614,");
    assert_contains(text, "\"seed\":18446744073709551615,");
    json_t *j = next_line(&text);
    const char *const texts[][2] = { { "row", "case" },     { "case_id", c.id },
                                     { "verdict", "fail" }, { "text", "a \"b\" \\ ???" },
                                     { "hi_ns", "1e999" },  { "note", "17" } };
    for (size_t i = 0; i < COUNT(texts); i++)
        assert_string_equal(json_string_value(json_object_get(j, texts[i][0])), texts[i][1]);
    assert_null(json_object_get(j, "lo_ns"));
    assert_null(json_object_get(j, "hidden"));
    assert_true(json_real_value(json_object_get(j, "time_ns")) == row.time_ns);
    assert_true(json_real_value(json_object_get(j, "schema_version")) == 2);
    json_decref(j);
    while ((j = next_line(&text))) {
        assert_string_equal(json_string_value(json_object_get(j, "row")), "figure");
        assert_true(json_is_number(json_object_get(j, "value")));
        figures++;
        json_decref(j);
    }
    assert_int_equal(figures, FAKE_FIGURES);
    close_it();
}

TEST_WITH(every_column_is_listed, test_folder_make, test_folder_remove)
{
    ha_folder_print_fields(test_print(), fake_suites, 2);
    const char *text = test_printed();
    assert_int_equal(test_count(text, "\n"),
                     1 + (14 + 6 + HA_BESIDES + 6) + (4 + 3) + (7 + 3 + 1) + (11 + 1 + 2 + HA_BESIDES + 6) + 13);
    assert_contains(text, "fake.csv");
    assert_contains(text, "figures.csv");
    assert_contains(text, "less     a time\n");
}
