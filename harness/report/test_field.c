#include "harness/report/row.h"
#include "harness/report/fake_suite.h"

#include "harness/base/test.h"

#include <locale.h>
#include <math.h>

static const struct ha_field *field(const char *name)
{
    for (size_t i = 0; i < fake_suite.fields; i++)
        if (!strcmp(fake_suite.field[i].name, name)) return &fake_suite.field[i];
    fail_msg("no field %s", name);
    return NULL;
}

TEST(a_cleared_row_is_empty)
{
    struct fake_row row;
    char text[64];
    memset(&row, 0x55, sizeof row);
    ha_fields_clear(&fake_suite, &row);
    assert_int_equal(row.result.verdict, HA_NOT_RUN);
    assert_string_equal(row.result.reason, "");
    assert_true(isnan(row.result.samples));
    for (size_t i = 0; i < ha_fields_all(&fake_suite); i++) {
        const struct ha_field *f = ha_field_at(&fake_suite, i);
        ha_field_print(f, &row, text, sizeof text);
        assert_string_equal(text, f->kind == HA_FIELD_WHOLE ? "0" : "");
        if (f->kind == HA_FIELD_NUMBER) assert_true(isnan(ha_field_value(f, &row)));
    }
    struct ha_suite one = fake_suite; /* ends of an interval that are no columns are empty, too */
    one.fields = 1;
    memset(&row, 0x55, sizeof row);
    ha_fields_clear(&one, &row);
    assert_true(isnan(ha_field_end(field("time_ns")->lo, &row)) && isnan(ha_field_end(field("time_ns")->hi, &row)));
}

static void goes_round(const struct ha_field *f, const struct fake_row *row, const char *expected)
{
    struct fake_row back;
    struct ha_why why = { "" };
    char text[128], again[128];
    ha_fields_clear(&fake_suite, &back);
    const size_t bytes = ha_field_print(f, row, text, sizeof text);
    assert_string_equal(text, expected);
    assert_int_equal(bytes, strlen(text));
    if (ha_field_parse(f, &back, text, &why) != HA_OK) fail_msg("%s", why.text);
    ha_field_print(f, &back, again, sizeof again);
    assert_string_equal(again, expected);
    if (f->kind == HA_FIELD_NUMBER && !isnan(ha_field_value(f, row)))
        assert_memory_equal((const char *)row + f->offset, (const char *)&back + f->offset, sizeof(double));
    if (f->kind == HA_FIELD_WHOLE)
        assert_memory_equal((const char *)row + f->offset, (const char *)&back + f->offset, sizeof(uint64_t));
}

TEST(values_read_back_as_they_were)
{
    struct fake_row row;
    ha_fields_clear(&fake_suite, &row);
    const struct {
        double x;
        const char *text;
    } number[] = { { 0.1, "0.10000000000000001" },
                   { 0, "0" },
                   { -0.0, "-0" },
                   { 1e300, "1.0000000000000001e+300" },
                   { 5e-324, "4.9406564584124654e-324" },
                   { 1234567.890123456789, "1234567.8901234567" },
                   { (double)INFINITY, "1e999" },
                   { -(double)INFINITY, "-1e999" },
                   { (double)NAN, "" } };
    for (size_t i = 0; i < COUNT(number); i++) {
        row.rate_GBps = number[i].x;
        goes_round(field("rate_GBps"), &row, number[i].text);
    }
    const uint64_t whole[] = { 0, 1, (UINT64_C(1) << 53) + 1, UINT64_MAX - 1, UINT64_MAX };
    const char *const texts[] = { "0", "1", "9007199254740993", "18446744073709551614", "18446744073709551615" };
    for (size_t i = 0; i < 5; i++) {
        row.big = whole[i];
        goes_round(field("big"), &row, texts[i]);
    }
    strcpy(row.text, "a, \"b\" \xc3\xa4");
    goes_round(field("text"), &row, "a, \"b\" \xc3\xa4");
    strcpy(row.text, "two\nlines\033[31m\xff");
    goes_round(field("text"), &row, "two?lines?[31m?");
    memset(row.text, 'x', sizeof row.text); /* without its end: it is cut */
    char most[64];
    memset(most, 'x', 63);
    most[63] = 0;
    goes_round(field("text"), &row, most);
}

/* bytes that a stranger may have written */
TEST(any_bytes_become_a_row)
{
    struct fake_row row;
    char text[sizeof row.text];
    memset(&row, 0x9b, sizeof row);
    assert_false(ha_fields_mend(&fake_suite, &row)); /* there is no such verdict */
    assert_int_equal(row.result.verdict, HA_NOT_RUN);
    row.result.verdict = HA_PASS;
    assert_true(ha_fields_mend(&fake_suite, &row));
    assert_int_equal(strlen(row.result.reason), sizeof row.result.reason - 1);
    memset(text, '?', sizeof text);
    text[sizeof text - 1] = 0;
    assert_string_equal(row.text, text);
    row = fake_row(1, HA_PASS);
    assert_true(ha_fields_mend(&fake_suite, &row));
    assert_string_equal(row.text, fake_row(1, HA_PASS).text);
}

static void is_refused(const char *name, const char *text, const char *says)
{
    struct fake_row row, before;
    struct ha_why why = { "" };
    ha_fields_clear(&fake_suite, &row);
    before = row;
    assert_int_equal(ha_field_parse(field(name), &row, text, &why), HA_ERROR);
    assert_contains(why.text, says);
    assert_memory_equal(&row, &before, sizeof row);
}

TEST(what_is_no_value_is_refused)
{
    is_refused("big", "18446744073709551616", "above 18446744073709551615");
    is_refused("big", "99999999999999999999999", "above");
    is_refused("big", "-1", "no whole number");
    is_refused("big", " 1", "no whole number");
    is_refused("big", "1e3", "no whole number");
    is_refused("rate_GBps", "1,5", "no number");
    is_refused("rate_GBps", "1.5 ", "no number");
    is_refused("rate_GBps", "nan", "no number");
    is_refused("rate_GBps", "0x10", "no number");
    is_refused("rate_GBps", "1.5e", "no number");
    is_refused("text", "0123456789012345678901234567890123456789012345678901234567890123", "64 bytes");
}

/* The first verdict of a row stays, and with it its reason. */
TEST(the_first_verdict_stays)
{
    static const struct {
        enum ha_verdict before;
        enum ha_status status;
        enum ha_verdict after;
    } each[] = {
        { HA_NOT_RUN, HA_OK, HA_NOT_RUN },
        { HA_NOT_RUN, HA_FAIL, HA_VERDICT_FAIL },
        { HA_NOT_RUN, HA_WAIVED, HA_VERDICT_WAIVED },
        { HA_NOT_RUN, HA_ERROR, HA_VERDICT_ERROR },
        { HA_VERDICT_FAIL, HA_ERROR, HA_VERDICT_FAIL },
        { HA_PASS, HA_FAIL, HA_PASS },
        { HA_UNCHECKED, HA_WAIVED, HA_UNCHECKED },
    };
    for (size_t i = 0; i < COUNT(each); i++) {
        struct fake_row row = fake_row(1, each[i].before);
        void *rows[] = { &row };
        const struct ha_group group = { .count = 1, .row = rows };
        const struct ha_why why = { "later" };
        strcpy(row.result.reason, "first");
        ha_result_set(&group, 0, each[i].status, &why);
        assert_int_equal(row.result.verdict, each[i].after);
        assert_string_equal(row.result.reason, each[i].after == each[i].before ? "first" : "later");
    }
}

/* However many there will be: with a p that is as small no more often than it says, one of all is below x no more often
 * than x. Of what is left behind the last term the integral is 1 / (2 (1 + ln n)). */
TEST(of_cases_without_end_one_is_suspect_as_seldom)
{
    enum { TERMS = 100000 };
    double sum = 0, before = 0;
    for (size_t k = 1; k <= TERMS; k++) {
        const double asked = ha_result_asked(k - 1);
        assert_true(asked > before && asked >= 2 * (double)k);
        sum += 1 / asked;
        before = asked;
    }
    sum += 1 / (2 * (1 + log(TERMS)));
    assert_true(sum > 0.8 && sum < 1);
}

/* Of a million that are asked one in a million is no wonder. Only a pass is suspect. */
TEST(what_is_too_unlikely_is_suspect)
{
    static const struct {
        enum ha_verdict before;
        double p, asked, corrected;
        enum ha_verdict after;
    } each[] = {
        { HA_PASS, 0.9e-9, 1, 0.9e-9, HA_SUSPECT },
        { HA_PASS, 1.1e-9, 1, 1.1e-9, HA_PASS },
        { HA_PASS, 0.9e-9, 2, 1.8e-9, HA_PASS },
        { HA_PASS, 0.9e-15, 1e6, 0.9e-9, HA_SUSPECT },
        { HA_PASS, 0.9e-15, 2e6, 1.8e-9, HA_PASS },
        { HA_PASS, 0.5, 300, 1, HA_PASS },
        { HA_PASS, 0, 1e7, 0, HA_SUSPECT },
        { HA_PASS, (double)NAN, 1, (double)NAN, HA_PASS },
        { HA_PASS, -1, 1, (double)NAN, HA_PASS },
        { HA_VERDICT_FAIL, 0, 1, 0, HA_VERDICT_FAIL },
        { HA_VERDICT_WAIVED, 0, 1, 0, HA_VERDICT_WAIVED },
        { HA_UNCHECKED, 0, 1, 0, HA_UNCHECKED },
    };
    for (size_t i = 0; i < COUNT(each); i++) {
        struct ha_result r = { .verdict = each[i].before, .suspicion = "why", .p = each[i].p };
        ha_result_suspect(&r, each[i].asked);
        assert_int_equal(r.verdict, each[i].after);
        assert_string_equal(r.reason, each[i].after == HA_SUSPECT ? "why" : "");
        const double off = fabs(r.p - each[i].corrected), least = 1e-15 * each[i].corrected;
        const bool right = isnan(each[i].corrected) ? isnan(r.p) : off <= least;
        if (!right) fail_msg("%zu: p is %g", i, r.p);
    }
    assert_string_equal(ha_verdict_shown(HA_SUSPECT), "SUSPECT");
    assert_int_equal(ha_verdict_of("suspect"), HA_SUSPECT);
}

TEST(figures_are_what_has_a_value)
{
    struct fake_row row = fake_row(3, HA_PASS);
    size_t figures = 0;
    for (size_t i = 0; i < ha_fields_all(&fake_suite); i++)
        figures += ha_field_figure(ha_field_at(&fake_suite, i), &row);
    assert_int_equal(figures, FAKE_FIGURES);
    assert_true(ha_field_end(field("time_ns")->lo, &row) == row.lo_ns
                && ha_field_end(field("time_ns")->hi, &row) == row.hi_ns);
    assert_true(isnan(ha_field_end(field("rate_GBps")->lo, &row)));
    row.time_ns = (double)NAN;
    assert_false(ha_field_figure(field("time_ns"), &row));
    assert_false(ha_field_figure(field("text"), &row));
    row.sample_ns = 1;
    assert_false(ha_field_figure(field("sample_ns"), &row)); /* of lines, not of the case */
    assert_string_equal(ha_better_name(HA_LESS), "less");
    assert_string_equal(ha_better_name(HA_NO_FIGURE), "");
}

TEST_MAIN
{
    setlocale(LC_ALL, "de_DE.UTF-8"); /* where there is one: a decimal comma must not matter */
    return test_all("tests", NULL, NULL);
}
