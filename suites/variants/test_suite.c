/* Suite files of cases, over fake_registry.c and fake_suites.c; what every suite's files have in common is in
 * harness/engine/test_plan.c. */
#include "harness/engine/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ids, one a line, or the reason */
static enum ha_status expand(const char *text, char *out, size_t size)
{
    const struct ha_plan_options none = { .filter = NULL };
    struct ha_plan plan = { 0 };
    struct ha_why why = { "" };
    const enum ha_status status = ha_plan_parse(&plan, &none, "x.suite", text, &why);
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; status == HA_OK && i < plan.entries; i++)
        n += (size_t)snprintf(out + n, size - n, "%s\n", plan.entry[i].id);
    if (status != HA_OK) snprintf(out, size, "%s", why.text);
    ha_plan_free(&plan);
    return status;
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
        /* a section's key replaces a default */
        { "[default]\nvariant=plain\nctx=2 3\nseed=5\n[a]\nctx=1\n[b]\nsteps=1\n",
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
        { "# c\n[a]\nctx=1\n", "x.suite:2: which variant?" },
        { "[a]\nvariant=plain\nctx=1 2 x\n", "x.suite:3: ctx: 'x' is not a whole number" },
        { "[a]\nvariant=plain\nsteps=0\n", "x.suite:3: steps: '0' is not a whole number" },
        { "[a]\nvariant=ring\nalpha=7\n", "x.suite:3: alpha: 7 is outside of [0, 1]" },
        { "[a]\nvariant=plain window\nalpha=0.1\n", "x.suite:3: key 'alpha' belongs to none of the cases of [a]" },
        { "[a]\nvariant=plain\nhead_dim=0\n", "x.suite:3: head_dim: 0 is for datasets" },
        { "[a]\nvariant=plain\nctx=1\nseed=1\nctx=2\n", "x.suite:5: key 'ctx' is there twice; first in line 3" },
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

/* filters and options, on cases */
static void words_become_cases(void **state)
{
    (void)state;
    static char a[] = "plain:ctx=1", b[] = "plain:dtype=f16,ctx=1", c[] = "plain:ctx=2", d[] = "ring",
                e[] = "ring:ctx=100+200,heads=4,alpha=0.5", f[] = "plain:dataset=tape/x";
    const struct ha_override given[] = { { "seed", "9" }, { "device", "./x.so" } }, many = { "threads", "many" };
    static const struct {
        const char *filter, *ids;
    } filters[] = {
        { "variant=ring", "ring:dataset=sinks,ctx=100+200,heads=4/4,dtype=f16,alpha=0.5\n" },
        { "family=split", "ring:dataset=sinks,ctx=100+200,heads=4/4,dtype=f16,alpha=0.5\n" },
        { "ctx=100+200", "ring:dataset=sinks,ctx=100+200,heads=4/4,dtype=f16,alpha=0.5\n" },
        { "heads=4", "ring:dataset=sinks,ctx=100+200,heads=4/4,dtype=f16,alpha=0.5\n" },
        { "heads=4/4,alpha=5e-1,beta=1,threads=0,window!=32",
          "ring:dataset=sinks,ctx=100+200,heads=4/4,dtype=f16,alpha=0.5\n" },
        { "ctx!=100+200,family!=split,ctx=1", "plain:dataset=sinks,ctx=1,dtype=f16\n" },
        { "heads=0", "plain:dataset=tape/x,ctx=4096,dtype=f16\n" },
        { "heads!=0,heads!=8/2", "ring:dataset=sinks,ctx=100+200,heads=4/4,dtype=f16,alpha=0.5\n" },
        { "heads=4/2", "-f heads=4/2: none of the cases fits" },
        { "alpha!=0.5,variant=ring", "-f alpha!=0.5,variant=ring: none of the cases fits" },
        { "window=32", "-f window=32: none of the cases fits" },
        { "dtype=f17", "-f: unknown dtype 'f17'; did you mean 'f16'?" },
        { "family!=splt", "-f: unknown family 'splt'; did you mean 'split'?" },
        { "family!=ful", "-f: unknown family 'ful'; did you mean 'full'?" },
        { "variant=rign", "-f: unknown variant 'rign'; did you mean 'ring'?" },
        { "window!=1.5", "-f: window: '1.5' is not a whole number" },
        { "dataset=sink", "-f: unknown dataset 'sink'; did you mean 'sinks'?" },
        { "ring,thread=1", "-f: unknown key 'thread'; did you mean 'threads'?" },
    };
    char *words[] = { c, a, b, c, d }, *more[] = { a, e, f }, out[1024];
    struct ha_plan plan = { 0 };
    struct ha_why why = { "" };
    struct ha_plan_options o = { .words = words, .words_count = 5, .override = given, .overrides = 2 };
    assert_int_equal(ha_plan_make(&plan, &o, &why), HA_OK);
    assert_int_equal(plan.entries, 3); /* twins once, in the order of their first */
    assert_string_equal(plan.entry[0].id, "plain:device=./x.so,dataset=sinks,ctx=2,dtype=f16,seed=9");
    assert_string_equal(plan.entry[1].id, "plain:device=./x.so,dataset=sinks,ctx=1,dtype=f16,seed=9");
    assert_string_equal(plan.entry[2].id, "ring:device=./x.so,dataset=sinks,ctx=4096,dtype=f16,seed=9");
    ha_plan_free(&plan);
    o = (struct ha_plan_options){ .words = words, .words_count = 5, .override = &many, .overrides = 1 };
    assert_int_equal(ha_plan_make(&plan, &o, &why), HA_ERROR);
    assert_string_equal(why.text, "--threads: threads: 'many' is not a whole number from 0 to 1024");
    ha_plan_free(&plan);
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        o = (struct ha_plan_options){ .words = more, .words_count = 3, .filter = filters[i].filter };
        const enum ha_status status = ha_plan_make(&plan, &o, &why);
        size_t n = 0;
        for (size_t k = 0; k < plan.entries; k++)
            n += (size_t)snprintf(out + n, sizeof out - n, "%s\n", plan.entry[k].id);
        if (strcmp(status == HA_OK ? out : why.text, filters[i].ids) != 0)
            fail_msg("-f %s: %s", filters[i].filter, status == HA_OK ? out : why.text);
        ha_plan_free(&plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_are_cross_products),
        cmocka_unit_test(mistakes_name_the_line),
        cmocka_unit_test(words_become_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
