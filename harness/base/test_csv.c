#include "harness/base/csv.h"
#include "harness/base/test_folder.h"

#include <locale.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const char name[] = "x.csv";
static struct ha_csv *csv;
static struct ha_why why;

static void open_csv(void) { assert_int_equal(ha_csv_open(&csv, test_path(name), false, &why), HA_OK); }
static void close_csv(void) { assert_int_equal(ha_csv_close(csv, &why), HA_OK); }

static void put_row(const char *const *fields, size_t count)
{
    assert_int_equal(ha_csv_row(csv, fields, count, &why), HA_OK);
}

/* What was read, as "line:field|field|\n..." */
struct log {
    char text[4096];
    size_t rows, stop_at;
};

static enum ha_status log_row(void *arg, size_t line, char **fields, size_t count)
{
    struct log *log = arg;
    size_t used = strlen(log->text);
    used += (size_t)snprintf(log->text + used, sizeof log->text - used, "%zu:", line);
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(log->text + used, sizeof log->text - used, "%s|", fields[i]);
    snprintf(log->text + used, sizeof log->text - used, "\n");
    return ++log->rows == log->stop_at ? HA_WAIVED : HA_OK;
}

static void reads_as(const char *want)
{
    struct log log = { .rows = 0 };
    assert_int_equal(ha_csv_read(test_path(name), log_row, &log, &why), HA_OK);
    assert_string_equal(log.text, want);
}

TEST_WITH(awkward_fields_come_back, test_folder_make, test_folder_remove)
{
    const char *const rows[][4] = {
        { "name", "a,b", "say \"hi\"", "\"" },    { "two\nlines", "", " spaces  ", "x" },
        { NULL, "tab\there", "1.5", NULL },       { "", "", "", "" },
        { "cr\rlf\r\n", "\xc3\xa9", ",", "end" },
    };
    open_csv();
    for (size_t i = 0; i < 5; i++) put_row(rows[i], 4);
    put_row((const char *const[]){ NULL }, 1);
    close_csv();

    assert_string_equal(test_text(name), "\"name\",\"a,b\",\"say \"\"hi\"\"\",\"\"\"\"\r\n"
                                         "\"two\nlines\",,\" spaces  \",\"x\"\r\n"
                                         ",\"tab\there\",\"1.5\",\r\n"
                                         ",,,\r\n"
                                         "\"cr\rlf\r\n\",\"\xc3\xa9\",\",\",\"end\"\r\n"
                                         "\"\"\r\n");
    reads_as("1:name|a,b|say \"hi\"|\"|\n"
             "2:two\nlines|| spaces  |x|\n"
             "4:|tab\there|1.5||\n"
             "5:||||\n"
             "6:cr\rlf\r\n|\xc3\xa9|,|end|\n"
             "8:|\n");
}

TEST_WITH(opening_again_goes_on, test_folder_make, test_folder_remove)
{
    for (int i = 0; i < 2; i++) {
        open_csv();
        put_row((const char *const[]){ i ? "b" : "a" }, 1);
        close_csv();
    }
    reads_as("1:a|\n2:b|\n");
}

/* Nothing is held back: what was written is there before the file is closed. */
TEST_WITH(a_row_is_there_at_once, test_folder_make, test_folder_remove)
{
    open_csv();
    for (int i = 0; i < 3; i++) put_row((const char *const[]){ "x", "y" }, 2);
    reads_as("1:x|y|\n2:x|y|\n3:x|y|\n");
    close_csv();
    assert_int_equal(ha_csv_close(NULL, &why), HA_OK);
}

TEST(a_full_disk_is_an_error_that_stays)
{
    const char *const row[] = { "a" };
    assert_int_equal(ha_csv_open(&csv, "/dev/full", false, &why), HA_OK);
    assert_int_equal(ha_csv_row(csv, row, 1, &why), HA_ERROR);
    assert_string_equal(why.text, "/dev/full: cannot write a row: No space left on device");
    why.text[0] = '\0';
    assert_int_equal(ha_csv_row(csv, row, 1, &why), HA_ERROR);
    assert_contains(why.text, "No space left");
    why.text[0] = '\0';
    assert_int_equal(ha_csv_close(csv, &why), HA_ERROR);
    assert_contains(why.text, "No space left");
}

/* A file limit cuts the third row in the middle: two rows are left, none in part. */
TEST_WITH(a_cut_row_is_taken_back, test_folder_make, test_folder_remove)
{
    struct rlimit before, low = { .rlim_cur = 40 };
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    low.rlim_max = before.rlim_max;
    open_csv();
    const char *const row[] = { "0123456", "x" }; /* 15 bytes with quotes, comma and line end */
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    enum ha_status status[3];
    for (int i = 0; i < 3; i++) status[i] = ha_csv_row(csv, row, 2, &why);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    /* there is room again, but a gap would go unnoticed */
    enum ha_status later = ha_csv_row(csv, row, 2, &why), closed = ha_csv_close(csv, &why);
    assert_true(status[0] == HA_OK && status[1] == HA_OK && status[2] == HA_ERROR);
    assert_true(later == HA_ERROR && closed == HA_ERROR);
    assert_contains(why.text, "File too large");
    assert_int_equal(strlen(test_text(name)), 30);
    reads_as("1:0123456|x|\n2:0123456|x|\n");
}

TEST(a_file_that_cannot_be_opened_says_why)
{
    assert_int_equal(ha_csv_open(&csv, "/no/such/folder/x.csv", false, &why), HA_ERROR);
    assert_string_equal(why.text, "/no/such/folder/x.csv: cannot open for writing: No such file or directory");
    assert_null(csv);
    assert_int_equal(ha_csv_read("/no/such/file", log_row, NULL, &why), HA_ERROR);
    assert_string_equal(why.text, "/no/such/file: cannot open: No such file or directory");
    assert_int_equal(ha_csv_read("/", log_row, NULL, &why), HA_ERROR);
    assert_contains(why.text, "is a directory");
}

TEST_WITH(reads_what_others_write, test_folder_make, test_folder_remove)
{
    static const char text[] = "a,b\r\n\r\n1, 2 \n\n\"x\ny\",\n\"q\"\"q\",last";
    test_write(name, text, sizeof text - 1);
    reads_as("1:a|b|\n3:1|2|\n5:x\ny||\n7:q\"q|last|\n");
    test_write(name, "", 0);
    reads_as("");
    test_write(name, "\n\n", 2);
    reads_as("");
}

static void refuses(const char *text, size_t bytes, const char *reason)
{
    struct log log = { .rows = 0 };
    test_write(name, text, bytes);
    assert_int_equal(ha_csv_read(test_path(name), log_row, &log, &why), HA_ERROR);
    char want[TEST_PATH_MAX + 64];
    snprintf(want, sizeof want, "%s%s", test_path(name), reason);
    assert_string_equal(why.text, want);
}

TEST_WITH(broken_files_are_refused_with_the_line, test_folder_make, test_folder_remove)
{
    refuses("a,b\nc,\"d", 8, ":2: a quoted field does not end: mend or remove this line");
    refuses("a,b\nc,d\"e\n", 10, ":2: a quote inside a field: mend or remove this line");
    refuses("a,b\n\"c,d\ne\",f\"g\nh,i\n", 21, ":2: a quote inside a field: mend or remove this line");
    refuses("a,b\nc,d\ne\0f\n", 12, ":3: a zero byte: mend or remove this line");
}

TEST_WITH(a_reader_can_stop, test_folder_make, test_folder_remove)
{
    struct log log = { .stop_at = 2 };
    test_write(name, "a\nb\nc\n", 6);
    assert_int_equal(ha_csv_read(test_path(name), log_row, &log, &why), HA_WAIVED);
    assert_string_equal(log.text, "1:a|\n2:b|\n");
}

TEST_WITH(a_long_row_fits, test_folder_make, test_folder_remove)
{
    enum { LONG = 300000 };
    char *field = malloc(LONG + 1);
    assert_non_null(field);
    memset(field, '"', LONG);
    field[LONG] = '\0';
    open_csv();
    put_row((const char *const[]){ "a", field }, 2);
    put_row((const char *const[]){ "b", field }, 2);
    close_csv();
    free(field);
    struct stat at;
    assert_int_equal(stat(test_path(name), &at), 0);
    assert_int_equal(at.st_size, 2 * (3 + 1 + 2 * LONG + 2 + 2));
}

TEST(numbers_come_back)
{
    static const struct {
        double x;
        const char *text;
    } written[] = { { 0.1, "0.10000000000000001" },
                    { 1e300, "1.0000000000000001e+300" },
                    { -2, "-2" },
                    { (double)NAN, "" },
                    { HUGE_VAL, "1e999" },
                    { -HUGE_VAL, "-1e999" } };
    static const double values[] = { 1.0 / 3, 5e-324, 1.7976931348623157e308, -123456789.123, 0.0 };
    char text[32];
    for (size_t i = 0; i < COUNT(written); i++) {
        ha_csv_number(text, written[i].x);
        assert_string_equal(text, written[i].text);
    }
    for (size_t i = 0; i < 4; i++) { /* of older builds, too */
        static const char *const infinite[] = { "1e999", "inf", "-1e999", "-inf" };
        double x;
        assert_true(ha_csv_number_parse(infinite[i], &x) && x == (i < 2 ? HUGE_VAL : -HUGE_VAL));
    }
    for (size_t i = 0; i < COUNT(values); i++) {
        ha_csv_number(text, values[i]);
        assert_true(strtod(text, NULL) == values[i]);
    }
}

TEST(numbers_ignore_the_locale)
{
    static const char *const with_comma[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "pl_PL.UTF-8", "pt_BR.UTF-8",
                                              "ru_RU.UTF-8" };
    const char *found = NULL;
    for (size_t i = 0; !found && i < COUNT(with_comma); i++) found = setlocale(LC_ALL, with_comma[i]);
    if (!found) skip();
    char text[32], mine[8];
    snprintf(mine, sizeof mine, "%.1f", 0.5);
    ha_csv_number(text, 0.5);
    setlocale(LC_ALL, "C");
    assert_string_equal(mine, "0,5");
    assert_string_equal(text, "0.5");
}
