/* Suite files, over fake_registry.c. */
#include "suites/variants/case.h"
#include "suites/variants/suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ids, one a line, or the reason */
static enum ha_status expand(const char *text, char *out, size_t size)
{
    struct ha_case_list list = { 0 };
    struct ha_why why = { "" };
    const enum ha_status st = ha_suite_parse("x.suite", text, &list, &why);
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; st == HA_OK && i < list.count; i++) {
        char id[HA_CASE_ID_MAX];
        ha_case_print(&list.cases[i], id);
        n += (size_t)snprintf(out + n, size - n, "%s\n", id);
    }
    if (st != HA_OK) {
        assert_int_equal(list.count, 0);
        snprintf(out, size, "%s", why.text);
    }
    ha_case_list_free(&list);
    return st;
}

static void sections_are_cross_products(void **state)
{
    (void)state;
    static const struct {
        const char *text, *ids;
    } files[] = {
        { "[a]\nvariant=plain\n", "plain:dataset=sinks,ctx=4096,dtype=f16\n" },
        { "# one\n; two\n\n[a]\r\nvariant = plain ; three\r\nctx = 1\t2\r\ndtype=f32 f16 # four",
          "plain:dataset=sinks,ctx=1,dtype=f32\nplain:dataset=sinks,ctx=1,dtype=f16\n"
          "plain:dataset=sinks,ctx=2,dtype=f32\nplain:dataset=sinks,ctx=2,dtype=f16\n" },
        /* defaults may follow; a section's key replaces a default */
        { "[a]\nctx=1\n[default]\nvariant=plain\nctx=2 3\nseed=5\n[b]\nsteps=1\n",
          "plain:dataset=sinks,ctx=1,dtype=f16,seed=5\n"
          "plain:dataset=sinks,ctx=2,steps=1,dtype=f16,seed=5\nplain:dataset=sinks,ctx=3,steps=1,dtype=f16,seed=5\n" },
        /* a param goes to the variants that have it, and multiplies only those */
        { "[a]\nvariant=plain ring window\nctx=1\nalpha=0.1 0.2\nbeta=3\n",
          "plain:dataset=sinks,ctx=1,dtype=f16\n"
          "ring:dataset=sinks,ctx=1,dtype=f16,alpha=0.1,beta=3\nring:dataset=sinks,ctx=1,dtype=f16,alpha=0.2,beta=3\n"
          "window:dataset=sinks,ctx=1,dtype=f16,beta=3\n" },
        { "[default]\nbeta=3\n[a]\nvariant=plain\nctx=1\n", "plain:dataset=sinks,ctx=1,dtype=f16\n" },
        /* keys are set in the order of their table, whatever the file's */
        { "[a]\nvariant=plain\nheads=4/1\nbatch=2\nctx=1 5\ndataset=tape/x\n",
          "plain:dataset=tape/x,ctx=1,batch=2,heads=4/1,dtype=f16\nplain:dataset=tape/x,ctx=5,batch=2,heads=4/"
          "1,dtype=f16\n" },
        { "[a]\nvariant=plain\nctx=1+2 3\n",
          "plain:dataset=sinks,ctx=1+2,dtype=f16\nplain:dataset=sinks,ctx=3,dtype=f16\n" },
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char out[4096];
        if (expand(files[i].text, out, sizeof out) != HA_OK) fail_msg("%s\n%s", files[i].text, out);
        assert_string_equal(out, files[i].ids);
    }
}

static void mistakes_name_the_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } files[] = {
        { "", "x.suite: no case" },
        { "[default]\nvariant=plain\n", "x.suite: no case" },
        { "[a]\nvariant=plain\n\nthread=1\n", "x.suite:4: unknown key 'thread'; did you mean 'threads'?" },
        { "[a]\nvariants=plain\n", "x.suite:2: unknown key 'variants'; did you mean 'variant'?" },
        { "[a]\nvariant=plain rign\n", "x.suite:2: unknown variant 'rign'; did you mean 'ring'?" },
        { "[default]\nvariant=rign\n[a]\nctx=1\n", "x.suite:2: unknown variant 'rign'" },
        { "# c\n[a]\nctx=1\n", "x.suite:2: [a] has no key 'variant'" },
        { "[a]\nvariant=plain\nctx=1 2 x\n", "x.suite:3: ctx: 'x' is not a whole number" },
        { "[a]\nvariant=plain\nsteps=0\n", "x.suite:3: steps: 0 is below 1" },
        { "[a]\nvariant=ring\nalpha=7\n", "x.suite:3: alpha: 7 is outside of [0, 1]" },
        { "[a]\nvariant=plain window\nalpha=0.1\n", "x.suite:3: key 'alpha' belongs to none of the variants of [a]" },
        { "[a]\nvariant=plain\nhead_dim=0\n", "x.suite:1: head_dim: 0 is for datasets" },
        { "[a]\nvariant=plain\nctx=1\nseed=1\nctx=2\n", "x.suite:5: key 'ctx' is there twice in [a]; first in line 3" },
        { "[a]\nvariant=plain\n[b]\nvariant=plain\n[a]\nctx=1\n",
          "x.suite:5: section [a] is there twice; first in line 1" },
        { "[a]\nvariant=plain\n[b]\n\n[c]\nvariant=plain\n", "x.suite:3: the section has no key" },
        { "[a]\nvariant=plain\n[b]", "x.suite:3: the section has no key" },
        { "variant=plain\n", "x.suite:1: key 'variant' stands before the first [section]" },
        { "[a]\nvariant=plain\nctx\n", "x.suite:3: neither [section] nor key = value" },
        { "[a\nvariant=plain\n", "x.suite:1: neither [section] nor key = value" },
        { "[a]\nvariant=\n", "x.suite:2: key 'variant' has no value" },
        { "[a]\nvariant=plain\nctx= ; none\n", "x.suite:3: key 'ctx' has no value" },
        { "[a]\nvariant=plain\nctx=5,6\n", "x.suite:3: ctx: '5,6' is not a whole number" },
        { "[a]\nvariant=plain\ndevice=a,b\n", "x.suite:3: device:" },
        { "[a]\nvariant=plain\nctx=1+2\nbatch=3\n", "x.suite:4: batch: 3, but ctx has 2 lengths" },
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char out[4096];
        if (expand(files[i].text, out, sizeof out) == HA_OK) fail_msg("taken:\n%s", files[i].text);
        if (!strstr(out, files[i].says)) fail_msg("%s\nsays \"%s\", not \"%s\"", files[i].text, out, files[i].says);
    }
}

/* `key = 1 2 3 ... n` */
static size_t put_values(char *text, size_t n, const char *key, int count)
{
    n += (size_t)sprintf(text + n, "%s =", key);
    for (int i = 1; i <= count; i++) n += (size_t)sprintf(text + n, " %d", i);
    return n + (size_t)sprintf(text + n, "\n");
}

static void sizes_are_limited(void **state)
{
    (void)state;
    static char text[1 << 16], out[1 << 12];
    struct ha_case_list list = { 0 };
    struct ha_why why = { "" };
    size_t n = (size_t)sprintf(text, "[a]\nvariant=plain\n");
    n = put_values(text, n, "ctx", 400);
    put_values(text, n, "steps", 250);
    assert_int_equal(ha_suite_parse("x.suite", text, &list, &why), HA_OK);
    assert_int_equal(list.count, 100000);
    /* what is too much in all is refused too, and leaves the list as it was */
    assert_int_equal(ha_suite_parse("x.suite", "[a]\nvariant=plain\n", &list, &why), HA_ERROR);
    assert_int_equal(list.count, 100000);
    ha_case_list_free(&list);

    put_values(text, n, "steps", 251);
    assert_int_equal(expand(text, out, sizeof out), HA_ERROR);
    assert_string_equal(out, "x.suite:1: [a] has more than 100000 cases");

    n = put_values(text, n, "steps", 900);
    n = put_values(text, n, "q_len", 900);
    n = put_values(text, n, "seed", 900);
    n = put_values(text, n, "layers", 900);
    n = put_values(text, n, "observed", 900);
    n = put_values(text, n, "model_dim", 900);
    put_values(text, n, "threads", 900); /* the product of these overflows 64 bits */
    assert_int_equal(expand(text, out, sizeof out), HA_ERROR);
    assert_string_equal(out, "x.suite:1: [a] has more than 100000 cases");

    n = (size_t)sprintf(text, "[a]\nvariant=plain\n");
    put_values(text, n, "seed", 1025);
    assert_int_equal(expand(text, out, sizeof out), HA_ERROR);
    assert_string_equal(out, "x.suite:3: key 'seed' has more than 1024 values");

    memset(text, 'x', 20000);
    memcpy(text, "[a]\nvariant=", 12);
    text[20000] = 0;
    assert_int_equal(expand(text, out, sizeof out), HA_ERROR);
    assert_non_null(strstr(out, "x.suite:2: the line is longer than"));
}

static enum ha_status read_bytes(const char *bytes, size_t size, struct ha_case_list *list, struct ha_why *why)
{
    char path[] = "/tmp/habench-test-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), (ssize_t)size);
    close(fd);
    const enum ha_status st = ha_suite_read(path, list, why);
    unlink(path);
    return st;
}

static void files_are_read(void **state)
{
    (void)state;
    struct ha_case_list list = { 0 };
    struct ha_why why = { "" };
    static const char good[] = "[a]\nvariant=plain\nctx=1 2", zero[] = "[a]\nvariant=plain\0\nctx=1";
    assert_int_equal(read_bytes(good, sizeof good - 1, &list, &why), HA_OK);
    assert_int_equal(list.count, 2);
    assert_int_equal(read_bytes(zero, sizeof zero - 1, &list, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "not a text file"));
    assert_int_equal(ha_suite_read("/nonexistent/x.suite", &list, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "/nonexistent/x.suite: No such file"));
    assert_int_equal(ha_suite_read("/tmp", &list, &why), HA_ERROR);
    assert_int_equal(list.count, 2);
    ha_case_list_free(&list);

    char *large = malloc(300000);
    assert_non_null(large);
    memset(large, '#', 300000);
    assert_int_equal(read_bytes(large, 300000, &list, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "larger than"));
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_are_cross_products),
        cmocka_unit_test(mistakes_name_the_line),
        cmocka_unit_test(sizes_are_limited),
        cmocka_unit_test(files_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
