/* Filters and the choice of cases, over fake_registry.c. */
#include "suites/variants/case.h"
#include "harness/program/select.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void filters_fit(void **state)
{
    (void)state;
    static const struct {
        const char *filter;
        bool fits;
    } terms[] = {
        { "", true },
        { ",", true },
        { "variant=ring", true },
        { "variant=plain", false },
        { "variant!=plain", true },
        { "family=split", true },
        { "family!=split", false },
        { "ctx=100+200", true },
        { "ctx=100", false },
        { "threads=0", true },
        { "threads!=0", false },
        { "heads=4", true },
        { "heads=4/4", true },
        { "heads=4/2", false },
        { "alpha=0.50", true },
        { "alpha=5e-1", true },
        { "alpha!=0.5", false },
        { "beta=1", true },
        { "window=32", false },
        { "window!=32", true }, /* ring has no such param */
        { "dtype=nonsense", false },
        { "ring", true },
        { "ctx", true },
        { "sinks", true },
        { "bf16", false },
        { "ring,heads=4", true },
        { "ring,heads=8", false },
        { "heads=8,ring", false },
    };
    struct ha_case c;
    struct ha_why why;
    assert_int_equal(ha_case_parse("ring:ctx=100+200,heads=4,alpha=0.5", &c, &why), HA_OK);
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++) {
        assert_int_equal(ha_filter_check(terms[i].filter, &why), HA_OK);
        if (ha_filter_fits(terms[i].filter, &c) != terms[i].fits) fail_msg("-f %s", terms[i].filter);
    }
    assert_int_equal(ha_filter_check("ring,thread=1", &why), HA_ERROR);
    assert_string_equal(why.text, "-f: unknown key 'thread'; did you mean 'threads'?");
}

static void words_become_cases(void **state)
{
    (void)state;
    char a[] = "plain:ctx=1", b[] = "plain:dtype=f16,ctx=1", c[] = "plain:ctx=2", d[] = "ring";
    char *words[] = { c, a, b, c, d };
    char id[HA_CASE_ID_MAX];
    struct ha_options o = { .seed = "9", .device = "./x.so" };
    struct ha_case_list list = { 0 };
    struct ha_why why = { "" };
    assert_int_equal(ha_select(&o, words, 5, &list, &why), HA_OK);
    assert_int_equal(list.count, 3); /* twins once, in the order of their first */
    ha_case_print(&list.cases[0], id);
    assert_string_equal(id, "plain:device=./x.so,dataset=sinks,ctx=2,dtype=f16,seed=9");
    ha_case_print(&list.cases[1], id);
    assert_string_equal(id, "plain:device=./x.so,dataset=sinks,ctx=1,dtype=f16,seed=9");
    ha_case_print(&list.cases[2], id);
    assert_string_equal(id, "ring:device=./x.so,dataset=sinks,ctx=4096,dtype=f16,seed=9");
    ha_case_list_free(&list);

    o = (struct ha_options){ .filter = "ctx!=2" };
    assert_int_equal(ha_select(&o, words, 4, &list, &why), HA_OK);
    assert_int_equal(list.count, 1);
    ha_case_list_free(&list);
    o.filter = "ctx=3";
    assert_int_equal(ha_select(&o, words, 4, &list, &why), HA_ERROR);
    assert_string_equal(why.text, "-f ctx=3: none of the 4 cases fits");
    ha_case_list_free(&list);
    o = (struct ha_options){ .threads = "many" };
    assert_int_equal(ha_select(&o, words, 4, &list, &why), HA_ERROR);
    assert_string_equal(why.text, "--threads: threads: 'many' is not a whole number");
    ha_case_list_free(&list);
    char wrong[] = "nosuch.suite", *wrongs[] = { wrong };
    o = (struct ha_options){ 0 };
    assert_int_equal(ha_select(&o, wrongs, 1, &list, &why), HA_ERROR);
    assert_string_equal(why.text, "nosuch.suite: there is no such suite file");
    ha_case_list_free(&list);
}

static void durations_have_units(void **state)
{
    (void)state;
    static const char *const wrong[] = { "",   "s",   "90", "1.5h",         "-1s",
                                         "1d", "1s ", "0s", "99999999999h", "99999999999999999999s" };
    uint64_t ns = 0;
    struct ha_why why;
    assert_int_equal(ha_duration_parse("90s", &ns, &why), HA_OK);
    assert_true(ns == UINT64_C(90000000000));
    assert_int_equal(ha_duration_parse("10m", &ns, &why), HA_OK);
    assert_true(ns == UINT64_C(600000000000));
    assert_int_equal(ha_duration_parse("2h", &ns, &why), HA_OK);
    assert_true(ns == UINT64_C(7200000000000));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (ha_duration_parse(wrong[i], &ns, &why) != HA_ERROR) fail_msg("'%s' is taken", wrong[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filters_fit),
        cmocka_unit_test(words_become_cases),
        cmocka_unit_test(durations_have_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
