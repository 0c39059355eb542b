/* What a plan prints, and what it says of choices that are open. */

#include "harness/base/registry.h"
#include "harness/base/test.h"
#include "harness/tune/show.h"

static char printed[4096];

static struct ha_choice linear(size_t threads, enum ha_dtype dtype, const struct ha_kernels *table, double ratio)
{
    struct ha_choice c = { .threads = threads,
                           .dtype = dtype,
                           .pattern = HA_PATTERN_LINEAR,
                           .reach = table->reach[dtype][HA_PATTERN_LINEAR],
                           .ratio = ratio,
                           .constants = ratio };
    snprintf(c.isa, sizeof c.isa, "%s", table->name);
    return c;
}

/* a plan that takes what is built in, and says nothing of lists and passes */
static struct ha_tuning as_it_is(void)
{
    struct ha_tuning t = { .choices = 1 };
    struct ha_kernels k;
    struct ha_why why;
    assert_int_equal(ha_kernels_resolve_by(NULL, NULL, 1, &k, &why), HA_OK);
    t.choice[0] = linear(1, HA_F32, ha_kernels_origin_of(&k, "attend_packed", HA_F32), 0.9);
    t.choice[0].taken = true;
    return t;
}

static void print(const struct ha_tuning *t)
{
    FILE *f = fmemopen(printed, sizeof printed, "w");
    assert_non_null(f);
    ha_tune_print(f, t);
    fclose(f);
}

static void ends_with(const char *end)
{
    const char *line = strstr(printed, "\n1        f32");
    assert_non_null(line);
    const size_t length = strcspn(line + 1, "\n"), ends = strlen(end);
    if (length < ends || strncmp(line + 1 + length - ends, end, ends) != 0) fail_msg("'%s' ends otherwise", line);
}

TEST(nothing_better_is_said)
{
    struct ha_tuning t = as_it_is();
    print(&t);
    ends_with("  not known  not known    0.900      0.900  packed, as built in");

    /* something else is asked ahead; rows are faster */
    t.choice[0].reach.bytes += 64;
    print(&t);
    ends_with("  packed");
    t = as_it_is();
    t.choice[t.choices++] = (struct ha_choice){
        .threads = 1, .dtype = HA_F32, .pattern = HA_CHOICE_ROWS, .isa = "c", .taken = true
    };
    print(&t);
    ends_with("  rows");
    t = as_it_is();
    t.choice[t.choices++] = (struct ha_choice){
        .threads = 1, .dtype = HA_F32, .pattern = HA_PATTERN_PASSES, .reach = { HA_REACH_L1, 64 }
    };
    strcpy(t.choice[1].isa, t.choice[0].isa);
    print(&t);
    ends_with("  not known  l1 64        0.900      0.900  packed");
}

TEST(tables_that_are_as_good_are_named)
{
    static const struct ha_kernels near = { .name = "near" }, far = { .name = "far" }, best = { .name = "best" };
    struct ha_tuning t = as_it_is();
    t.choice[t.choices++] = linear(1, HA_F32, &near, 0.9 * 0.98);
    t.choice[t.choices++] = linear(1, HA_F32, &far, 0.9 * 0.96);
    t.choice[t.choices++] = linear(2, HA_F32, &far, 0.9);
    t.choice[t.choices++] = linear(1, HA_F16, &far, 0.9);
    t.choice[t.choices++] = linear(1, HA_F32, &best, 0.95);
    print(&t);
    ends_with("  packed, as built in; as good: near, best");
    t.choice[0].reach.bytes += 64;
    print(&t);
    ends_with("  packed, as good: near, best");
}

TEST(what_is_open_is_named)
{
    static struct ha_tune_doubt d;
    char text[HA_TUNE_OPEN_BYTES];
    memset(text, 'x', sizeof text);
    ha_tune_open_text(text, &d, "is", "are");
    assert_string_equal(text, "");
    d.open[0] = (struct ha_tune_open){ 1, 8, HA_F32, HA_PATTERN_PASSES, "avx512" };
    d.open[1] = (struct ha_tune_open){ 2, 4, HA_BF16, HA_CHOICE_ROWS, "avx2" };
    d.disturbed = 1;
    ha_tune_open_text(text, &d, "is", "are");
    assert_string_equal(text, "1 choice is (1 thread f32 passes of 8 rows avx512)");
    d.late = 1;
    ha_tune_open_text(text, &d, "is", "are");
    assert_string_equal(text, "2 choices are (1 thread f32 passes of 8 rows avx512, 2 threads bf16 rows avx2)");

    /* more than there is room for, and more than are kept */
    for (size_t i = 0; i < HA_CHOICES_MOST; i++)
        d.open[i] = (struct ha_tune_open){ 65536, 32, HA_BF16, HA_PATTERN_PASSES, "avx512_vpopcntdq" };
    for (d.late = 1; d.late < HA_CHOICES_MOST + 3; d.late++) {
        memset(text, 'x', sizeof text);
        ha_tune_open_text(text, &d, "stays as it is built in", "stay as they are built in");
        const char *end = memchr(text, 0, sizeof text);
        assert_true(end && end[-1] == ')');
        assert_true(d.late < 4 || strstr(text, " more)"));
    }
    assert_contains(text, " and 160 more)");
}
