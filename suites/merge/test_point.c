/* Ids: what is printed reads back the same; what is wrong is named, with the nearest right word; products are what the
 * parts and cases allow. */

#include "suites/merge/point.h"

#include "harness/base/registry.h"
#include "harness/base/rng.h"
#include "harness/base/test_beside.h"
#include "harness/engine/plan.h"
#include "harness/engine/point.h"
#include "suites/merge/attention.h"

static struct ha_why why;

static struct ha_merge_point parsed(const char *text)
{
    const struct ha_suite *suite;
    struct ha_merge_point p;
    memset(&p, 0xA5, sizeof p);
    if (ha_id_parse(text, &suite, &p, sizeof p, &why) != HA_OK) fail_msg("'%s': %s", text, why.text);
    assert_ptr_equal(suite, &ha_suite_lse_merge);
    return p;
}

static void print(const struct ha_merge_point *p, char out[HA_ID_MAX])
{
    assert_true(ha_point_print(&ha_suite_lse_merge, p, out, HA_ID_MAX) < HA_ID_MAX);
}

/* Each key in its member; what is left out at its default, and not printed; in the order of the table. */
TEST(every_key)
{
    static const struct {
        const char *text, *printed, *item, *by;
        struct ha_merge_axes axes;
    } each[] = {
        { "lse_merge:case=gaps,by=avx2,form=base2,dtype=f16,head_dim=80,states=7,order=chain,alias=first,layout=padded,"
          "rows=3x4,seed=4,row=2",
          NULL,
          "gaps",
          "avx2",
          { .form = 1 + HA_FORM_BASE2,
            .dtype = 1 + HA_F16,
            .order = 1 + HA_ORDER_CHAIN,
            .alias = 1 + HA_ALIAS_FIRST,
            .layout = 1 + HA_LAYOUT_PADDED,
            .head_dim = 80,
            .states = 7,
            .tokens = 3,
            .heads = 4,
            .seed = 4,
            .row = 2 } },
        { "lse_merge:by=c,case=gaps", "lse_merge:case=gaps,by=c", "gaps", "c", { .seed = 1, .row = HA_ROW_ANY } },
        { "lse_merge:row=3,seed=18446744073709551615,by=c,case=one_hot",
          "lse_merge:case=one_hot,by=c,seed=18446744073709551615,row=3",
          "one_hot",
          "c",
          { .seed = UINT64_MAX, .row = 3 } },
    };
    for (size_t i = 0; i < COUNT(each); i++) {
        const struct ha_merge_point p = parsed(each[i].text);
        char out[HA_ID_MAX];
        assert_string_equal(ha_merge_item_name(&p), each[i].item);
        assert_string_equal(p.by, each[i].by);
        assert_memory_equal(&p.axes, &each[i].axes, sizeof p.axes);
        print(&p, out);
        assert_string_equal(out, each[i].printed ? each[i].printed : each[i].text);
    }
}

static size_t drawn(uint64_t stream, uint64_t i, uint64_t n) { return (size_t)ha_rng_below(7, stream, i, n); }

/* any subset of the axes with any values reads back as it was */
TEST(round_trip)
{
    for (uint64_t i = 0; i < (HA_SANITIZED ? 1000 : 4000); i++) {
        struct ha_merge_point p = parsed("lse_merge:case=one_hot,by=c");
        char text[HA_ID_MAX], again[HA_ID_MAX];
        struct ha_merge_axes *a = &p.axes;
        const size_t set = drawn(0, i, 1024);
        if (drawn(1, i, 2)) p.item = drawn(2, i, HA_MERGE_CASES);
        if (drawn(3, i, 2))
            snprintf(p.by, sizeof p.by, "./%.*s", (int)drawn(4, i, 63),
                     "a_plugin_of_somebody_else_with_a_name_as_long_as_names_can_be_here.so");
        const struct {
            uint64_t *at;
            size_t count;
        } axis[] = { { &a->form, HA_FORM_COUNT },
                     { &a->dtype, HA_DTYPE_COUNT },
                     { &a->head_dim, 1024 },
                     { &a->states, 4096 },
                     { &a->order, HA_ORDER_COUNT },
                     { &a->alias, HA_ALIAS_COUNT },
                     { &a->layout, HA_LAYOUT_COUNT },
                     { &a->tokens, 64 },
                     { &a->heads, 64 } };
        for (size_t k = 0; k < 9; k++) /* tokens and heads go together */
            if (set >> (k < 8 ? k : 7) & 1) *axis[k].at = 1 + drawn(5 + k, i, axis[k].count);
        if (set & 256) a->seed = ha_rng_bits(7, 14, i);
        if (set & 512) a->row = drawn(15, i, a->tokens ? a->tokens * a->heads : 4096);
        if (ha_merge_settle(&p, &why) != HA_OK) continue; /* the case has no such batch */
        print(&p, text);
        const struct ha_merge_point back = parsed(text);
        print(&back, again);
        assert_string_equal(text, again);
        assert_memory_equal(a, &back.axes, sizeof *a);
        assert_string_equal(p.by, back.by);
        assert_int_equal(p.item, back.item);
    }
}

TEST(the_longest_fits)
{
    struct ha_merge_point p = parsed("lse_merge:case=random,by=c,kind=in_place,dtype=bf16");
    char out[HA_ID_MAX];
    memset(p.by, 'b', sizeof p.by - 1);
    p.by[0] = '/';
    p.axes = parsed(
                 "lse_merge:case=one_hot,by=c,form=natural,dtype=bf16,head_dim=1024,states=512,order=flat,alias=first,"
                 "layout=heads_first,rows=64x64,seed=18446744073709551615,row=4095")
                 .axes;
    p.axes.states = 4096;
    print(&p, out);
    assert_int_equal(parsed(out).axes.row, 4095);
}

TEST(an_axis_is_what_the_case_allows)
{
    parsed("lse_merge:case=tree,by=c,states=16");
    parsed("lse_merge:case=one_hot,by=c,states=511");
    parsed("lse_merge:case=gaps,by=c,form=direct,dtype=bf16");
}

static const struct {
    const char *text, *says;
} wrong[] = {
    { "", "unknown variant or suite ''" },
    { "lse_merg:form=base2", "did you mean 'lse_merge'?" },
    { "lse_merge2", "did you mean 'lse_merge'?" },
    { "lse_merge:form=natural,form", "'form' is not key=value" },
    { "lse_merge:form", "'form' is not key=value" },
    { "lse_merge:from=natural", "unknown key 'from'; did you mean 'form'?" },
    { "lse_merge:state=2", "did you mean 'states'?" },
    { "lse_merge:zzzzzz=2", "replay case defect problem by kind form dtype head_dim states order alias layout rows" },
    { "lse_merge:form=natral", "unknown form 'natral'; did you mean 'natural'?" },
    { "lse_merge:dtype=fp16", "did you mean 'f16'?" },
    { "lse_merge:order=tre", "did you mean 'tree'?" },
    { "lse_merge:alias=frist", "did you mean 'first'?" },
    { "lse_merge:layout=head_first", "did you mean 'heads_first'?" },
    { "lse_merge:layout=", "it is one of: any packed padded heads_first window" },
    { "lse_merge:case=gap", "unknown case 'gap'; did you mean 'gaps'?" },
    { "lse_merge:case=", "unknown case ''" },
    { "lse_merge:case=gallery,defect=base_mx", "unknown defect 'base_mx'; did you mean 'base_mix'?" },
    { "lse_merge:case=gallery,defect=base_mix,form=base2", "no case" },
    { "lse_merge:case=attention,problem=sinks,by=c", "did you mean 'sink'?" },
    { "lse_merge:by=avx3", "unknown by 'avx3'; did you mean 'avx2'?" },
    { "lse_merge:by=a b/c", "a blank" },
    { "lse_merge:by=", "by: a value is missing" },
    { "lse_merge:head_dim=0", "from 1 to 1024" },
    { "lse_merge:head_dim=1025", "from 1 to 1024" },
    { "lse_merge:head_dim=64x", "not 'any' or a whole number" },
    { "lse_merge:head_dim=-1", "not 'any' or a whole number" },
    { "lse_merge:states=4097", "from 1 to 4096" },
    { "lse_merge:states=0", "from 1 to 4096" },
    { "lse_merge:seed=18446744073709551616", "is not a whole number from 0 to 18446744073709551615" },
    { "lse_merge:seed=99999999999999999999999", "is not a whole number" },
    { "lse_merge:seed=", "is not a whole number" },
    { "lse_merge:rows=3", "TOKENSxHEADS" },
    { "lse_merge:rows=3x", "TOKENSxHEADS" },
    { "lse_merge:rows=0x3", "each from 1 to 64" },
    { "lse_merge:rows=3x65", "each from 1 to 64" },
    { "lse_merge:rows=3x4x5", "TOKENSxHEADS" },
    { "lse_merge:row=4096", "from 0 to 4095" },
    { "lse_merge:case=gaps,by=c,rows=3x4,row=12", "row: 12 of 12 rows" },
    { "lse_merge:case=gaps,by=c,row=12,rows=3x4", "row: 12 of 12 rows" },
    { "lse_merge:seed=1,seed=2", "'seed' is there twice" },
    { "lse_merge:case=random,dtype=any", "random merges are of one type" },
    { "lse_merge:case=one_state,states=5", "no case" },
    { "lse_merge:case=one_state,states=2", "no case" },
    { "lse_merge:case=tree,order=chain", "no case" },
    { "lse_merge:case=one_hot,states=4096", "no case" },
    { "lse_merge:case=subnormal,dtype=f32", "no case" },
    { "lse_merge:case=random,by=c,kind=chain,form=base2", "no case" },
    { "lse_merge:case=attention,by=base_mix", "no case" },
};

TEST(wrong_ids_are_explained)
{
    for (size_t i = 0; i < COUNT(wrong); i++) {
        const struct ha_suite *suite = NULL;
        struct ha_merge_point p, before;
        *why.text = 0;
        memset(&p, 0x5A, sizeof p);
        before = p;
        if (ha_id_parse(wrong[i].text, &suite, &p, sizeof p, &why) != HA_ERROR)
            fail_msg("'%s' was taken", wrong[i].text);
        if (!strstr(why.text, wrong[i].says)) fail_msg("'%s': %s, and not: %s", wrong[i].text, why.text, wrong[i].says);
        assert_memory_equal(&p, &before, sizeof p);
    }
}

/* Bytes at random, and right ids with some bytes changed: an error or an id, which then prints and reads back. */
TEST(garbage)
{
    static const char good[] =
        "lse_merge:case=one_hot,by=c,form=max_sum,dtype=bf16,head_dim=80,states=7,order=tree,alias=last,"
        "layout=window,rows=3x4,seed=4,row=2";
    enum { TEXTS = HA_SANITIZED ? 4000 : 20000 };
    size_t taken = 0;
    for (uint64_t i = 0; i < TEXTS; i++) {
        char text[512], out[HA_ID_MAX];
        size_t n = (size_t)ha_rng_below(3, 0, i, sizeof text);
        for (size_t k = 0; k < n; k++) text[k] = (char)(1 + ha_rng_below(3, 1 + i, k, 255));
        if (i % 2) {
            n = sizeof good - 1;
            memcpy(text, good, n);
            for (uint64_t k = 0; k < 1 + i % 3; k++)
                text[ha_rng_below(3, 1 + i, k, n)] = "=:,x0129az_\n\xff"[ha_rng_below(4, i, k, 13)];
        }
        text[n] = 0;
        /* exactly as large as it is, so that the sanitizer sees a read past its end */
        char *exact = strdup(text);
        const struct ha_suite *suite;
        struct ha_merge_point p;
        *why.text = 0;
        assert_non_null(exact);
        if (ha_id_parse(exact, &suite, &p, sizeof p, &why) == HA_OK) {
            print(&p, out);
            const struct ha_merge_point back = parsed(out);
            assert_memory_equal(&p.axes, &back.axes, sizeof p.axes);
            taken++;
        } else {
            assert_true(why.text[0]);
        }
        free(exact);
    }
    printf("garbage: %zu of %d were ids\n", taken, TEXTS);
    assert_true(taken > TEXTS / 200);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

static size_t count(const char *word, const struct ha_override *override, size_t overrides, const char *filter)
{
    char *words[] = { strdup(word) };
    const struct ha_plan_options o = {
        .words = words, .words_count = 1, .filter = filter, .override = override, .overrides = overrides
    };
    struct ha_plan plan = { 0 };
    if (ha_plan_make(&plan, &o, &why) != HA_OK) fail_msg("%s: %s", word, why.text);
    const size_t entries = plan.entries;
    ha_plan_free(&plan);
    free(words[0]);
    return entries;
}

TEST(the_word_is_all_of_it)
{
    size_t ours = 0, of_33 = 0;
    while (ha_merge_ours(ours)) ours++;
    for (size_t i = 0; i < HA_MERGE_CASES; i++) {
        const struct ha_merge_case *c = &ha_merge_cases[i];
        of_33 += c->states_min <= 33 && (!c->states_max || c->states_max >= 33);
    }
    const size_t random = HA_MERGE_RANDOM, cases = HA_MERGE_CASES, defects = HA_MERGE_DEFECTS,
                 problems = ha_attention_cases_count;
    assert_true(ours >= 3);
    assert_int_equal(count("lse_merge", NULL, 0, NULL), defects + (problems + cases + random) * ours);
    assert_int_equal(count("lse_merge", NULL, 0, "case=gallery"), defects);
    assert_int_equal(count("lse_merge", NULL, 0, "case=random,by=c,kind!=chain"), random - HA_DTYPE_COUNT);
    /* of the gallery and attention there are no parts; the gallery is by=c */
    assert_int_equal(count("lse_merge:by=c", NULL, 0, NULL), cases + random + problems + defects);
    assert_int_equal(count("lse_merge:by=host", NULL, 0, NULL), cases + random + problems);
    assert_int_equal(count("lse_merge:by=host,states=33", NULL, 0, "case!=random"), of_33);
    assert_int_equal(count("lse_merge:by=base_mix", NULL, 0, NULL), cases + random);
    assert_int_equal(count("lse_merge:case=random,by=c,form=natural,dtype=f32", NULL, 0, NULL), 3);
    assert_int_equal(count("lse_merge:case=*,by=c,order=tree,dtype=f32,form=natural", NULL, 0, "case=random"), 1);
    assert_int_equal(count("lse_merge:case=attention,by=c", NULL, 0, NULL), problems);
    assert_int_equal(count("lse_merge:replay=some/where.safetensors", NULL, 0, NULL), 1);
    /* --device PATH: of the gallery, which is ours, nothing is left */
    const struct ha_override stranger = { "device", "./mine.so" }, command = { "exec", "exec" }, isa = { "isa", "c" };
    assert_int_equal(count("lse_merge", &stranger, 1, NULL), cases + random + problems);
    assert_int_equal(count("lse_merge", &command, 1, NULL), cases + random);
    assert_int_equal(count("lse_merge", &isa, 1, NULL), cases + random + problems + defects);
}

TEST(who_is_asked_together)
{
    static const struct {
        const char *a, *b;
        bool together;
    } each[] = {
        { "lse_merge:case=gaps,by=c", "lse_merge:case=gaps,by=host", true },
        { "lse_merge:case=gaps,by=c", "lse_merge:case=one_hot,by=c", false },
        { "lse_merge:case=gaps,by=c", "lse_merge:case=gaps,by=c,seed=2", false },
        { "lse_merge:case=gaps,by=exec", "lse_merge:case=one_hot,by=exec", true },
        { "lse_merge:case=gaps,by=exec", "lse_merge:case=one_hot,by=exec,form=base2", false },
        { "lse_merge:case=gallery,defect=base_mix", "lse_merge:case=gallery,defect=log_base", true },
        { "lse_merge:case=random,by=c,kind=chain,dtype=f16", "lse_merge:case=random,by=host,kind=base2,dtype=f32",
          true },
        { "lse_merge:case=random,by=c,kind=chain,dtype=f16", "lse_merge:case=gaps,by=c", false },
        { "lse_merge:case=attention,problem=sink,by=c", "lse_merge:case=attention,problem=sink,by=host", true },
        { "lse_merge:case=attention,problem=sink,by=c", "lse_merge:case=attention,problem=runs,by=c", false },
        { "lse_merge:replay=a", "lse_merge:replay=b", false },
    };
    for (size_t i = 0; i < COUNT(each); i++) {
        const struct ha_merge_point p = parsed(each[i].a), q = parsed(each[i].b);
        if (ha_merge_together(&p, &q) != each[i].together) fail_msg("%s and %s", each[i].a, each[i].b);
    }
}
