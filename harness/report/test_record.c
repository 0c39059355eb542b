#include "harness/base/csv.h"
#include "harness/report/junit.h"
#include "harness/report/record.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[64], path[128];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/ha-record-XXXXXX", P_tmpdir);
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    DIR *d = opendir(folder);
    struct dirent *e;

    (void)state;
    while (d && (e = readdir(d))) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%.60s/%.60s", folder, e->d_name);
        unlink(path);
    }
    if (d) closedir(d);
    return rmdir(folder);
}

static const char *file(const char *name)
{
    snprintf(path, sizeof path, "%.60s/%.60s", folder, name);
    return path;
}

static struct ha_row example(const char *id)
{
    struct ha_row row;

    ha_row_clear(&row);
    row.process = 0;
    snprintf(row.case_id, sizeof row.case_id, "%s", id);
    snprintf(row.verdict, sizeof row.verdict, "pass");
    snprintf(row.reason, sizeof row.reason, "with, comma and \"quotes\"");
    row.step_ns = 1234567.890123456789;
    row.err_over_bound = 0.1;
    row.cert_slack = 0;
    return row;
}

/* what was read back, by column */
static struct {
    size_t rows;
    char **header, **cell;
    size_t columns;
} seen;

static enum ha_status read_row(void *arg, size_t line, char **field, size_t count)
{
    char ***to = line == 1 ? &seen.header : &seen.cell;

    (void)arg;
    seen.rows++;
    seen.columns = count;
    for (size_t i = 0; *to && i < count; i++) free((*to)[i]);
    free(*to);
    *to = calloc(count, sizeof **to);
    for (size_t i = 0; i < count; i++) (*to)[i] = strdup(field[i]);
    return HA_OK;
}

static void forget(void)
{
    for (size_t i = 0; i < seen.columns; i++) {
        if (seen.header) free(seen.header[i]);
        if (seen.cell) free(seen.cell[i]);
    }
    free(seen.header);
    free(seen.cell);
    memset(&seen, 0, sizeof seen);
}

static void read_back(const char *name)
{
    struct ha_why why = { "" };

    forget(); /* another file has other columns */
    assert_int_equal(ha_csv_read(file(name), read_row, NULL, &why), HA_OK);
}

static const char *cell(const char *column)
{
    for (size_t i = 0; i < seen.columns; i++)
        if (!strcmp(seen.header[i], column)) return seen.cell[i];
    fail_msg("no column %s", column);
    return NULL;
}

static void write_example(const char *id, bool resume)
{
    struct ha_record *r;
    struct ha_row row = example(id);
    struct ha_why why = { "" };

    if (ha_record_open(&r, folder, resume, &why) != HA_OK) fail_msg("%s", why.text);
    row.process = ha_record_process(r);
    for (int f = 0; f < HA_FILE_COUNT; f++) assert_int_equal(ha_record_row(r, (enum ha_file)f, &row, &why), HA_OK);
    assert_int_equal(ha_record_close(r, &why), HA_OK);
}

static void a_row_reads_back(void **state)
{
    (void)state;
    write_example("cpu:ctx=1", false);
    read_back("cases.csv");
    assert_int_equal(seen.rows, 2);
    assert_int_equal(seen.columns, ha_record_fields(HA_FILE_CASES));
    assert_string_equal(seen.header[0], "schema_version");
    assert_string_equal(cell("case_id"), "cpu:ctx=1");
    assert_string_equal(cell("reason"), "with, comma and \"quotes\"");
    assert_true(strtod(cell("step_ns"), NULL) == 1234567.890123456789); /* %.17g loses nothing */
    assert_true(strtod(cell("err_over_bound"), NULL) == 0.1);
    assert_string_equal(cell("cert_slack"), "0"); /* measured */
    assert_string_equal(cell("recall"), "");      /* not measured: empty, never 0 */
    assert_string_equal(cell("overlap"), "");
    read_back("samples.csv");
    assert_string_equal(seen.header[0], "schema_version");
    assert_true(strtod(cell("step_ns"), NULL) == 1234567.890123456789);
    forget();
}

static void every_column_has_one_name(void **state)
{
    (void)state;
    for (int f = 0; f < HA_FILE_COUNT; f++)
        for (size_t i = 0; i < ha_record_fields((enum ha_file)f); i++)
            for (size_t j = 0; j < i; j++)
                assert_string_not_equal(ha_record_field_name((enum ha_file)f, i),
                                        ha_record_field_name((enum ha_file)f, j));
}

static void cleared_rows_are_empty(void **state)
{
    struct ha_row row;
    char text[32];

    (void)state;
    ha_row_clear(&row);
    for (size_t i = 0; i < ha_record_fields(HA_FILE_CASES); i++) {
        const char *t = ha_record_field_text(HA_FILE_CASES, i, &row, text);
        if (strcmp(ha_record_field_name(HA_FILE_CASES, i), "schema_version")) assert_null(t);
        else assert_string_equal(t, "1");
    }
}

static void results_are_not_overwritten(void **state)
{
    struct ha_record *r;
    struct ha_why why = { "" };

    (void)state;
    write_example("cpu:ctx=1", false);
    assert_int_equal(ha_record_open(&r, folder, false, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "--resume"));
    read_back("cases.csv");
    assert_int_equal(seen.rows, 2);
    forget();
}

static void resume_appends_and_drops_half_a_line(void **state)
{
    struct ha_record *r;
    struct ha_why why = { "" };
    FILE *f;

    (void)state;
    write_example("cpu:ctx=1", false);
    f = fopen(file("cases.csv"), "a");
    fputs("\"1\",\"cut", f);
    fclose(f);
    write_example("cpu:ctx=2", true);
    read_back("cases.csv");
    assert_int_equal(seen.rows, 3);
    assert_string_equal(cell("case_id"), "cpu:ctx=2");
    assert_string_equal(cell("process"), "1");
    forget();
    assert_int_equal(ha_record_open(&r, folder, true, &why), HA_OK);
    assert_string_equal(ha_record_verdict(r, "cpu:ctx=1"), "pass");
    assert_string_equal(ha_record_verdict(r, "cpu:ctx=3"), "");
    assert_true(ha_record_process(r) == 2);
    ha_record_close(r, NULL);
}

static void other_columns_are_refused(void **state)
{
    struct ha_record *r;
    struct ha_why why = { "" };
    FILE *f = fopen(file("cases.csv"), "w");

    (void)state;
    fputs("schema_version,something\r\n1,2\r\n", f);
    fclose(f);
    assert_int_equal(ha_record_open(&r, folder, true, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "cases.csv"));
}

static void the_first_write_error_stays(void **state)
{
    struct ha_record *r;
    struct ha_row row = example("cpu:ctx=1");
    struct ha_why why = { "" };

    (void)state;
    if (access("/dev/full", W_OK) != 0) skip();
    assert_int_equal(symlink("/dev/full", file("cases.csv")), 0);
    assert_int_equal(ha_record_open(&r, folder, false, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "cases.csv"));
    unlink(file("cases.csv"));
    unlink(file("samples.csv"));
    (void)row;
}

static void junit_is_escaped(void **state)
{
    struct ha_row rows[2] = { example("cpu:ctx=1"), example("resident:ctx=1") };
    struct ha_why why = { "" };
    char text[4096] = "";
    FILE *f;

    (void)state;
    snprintf(rows[1].verdict, sizeof rows[1].verdict, "fail");
    snprintf(rows[1].reason, sizeof rows[1].reason, "got 1 < \"2\" & so on");
    snprintf(rows[1].variant, sizeof rows[1].variant, "resident");
    snprintf(rows[0].variant, sizeof rows[0].variant, "cpu");
    assert_int_equal(ha_junit_write(folder, rows, 2, true, &why), HA_OK);
    f = fopen(file("junit.xml"), "r");
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    assert_non_null(strstr(text, "message=\"got 1 &lt; &quot;2&quot; &amp; so on\""));
    assert_non_null(
        strstr(text, "<testsuite name=\".resident\" tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"0\">"));
    assert_non_null(strstr(text, "classname=\"timing\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_row_reads_back, make_folder, remove_folder),
        cmocka_unit_test(every_column_has_one_name),
        cmocka_unit_test(cleared_rows_are_empty),
        cmocka_unit_test_setup_teardown(results_are_not_overwritten, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(resume_appends_and_drops_half_a_line, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(other_columns_are_refused, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(the_first_write_error_stays, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(junit_is_escaped, make_folder, remove_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
