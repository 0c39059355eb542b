/* The lists of `habench check` and of the CPU kernels, as they stand in the suite files, and those of a device's
 * operations: each two values of two keys meet, but for those that cannot or cost too much, and the values are those
 * that defects hide at. */
#include "harness/base/operands.h"
#include "harness/base/test.h"
#include "harness/base/why.h"
#include "harness/engine/suite_file.h"
#include "suites/device/point.h"
#include "suites/kernels/suite.h"
#include "suites/variants/case.h"

static struct ha_why why;

/* Every pair is met, or excluded for one of these reasons (between bars), which little is. text: what was printed. */
static void assert_covered(const struct ha_coverage *c, char *text, const char *reasons, size_t pairs)
{
    if (c->missing) fail_msg("%s", text);
    if (c->met + c->excluded != c->pairs || c->pairs < pairs || 20 * c->excluded > c->pairs)
        fail_msg("%zu pairs, %zu met, %zu excluded: %s", c->pairs, c->met, c->excluded, text);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "    excluded ", 13) != 0) continue;
        char list[256];
        bool known = false;
        snprintf(list, sizeof list, "%s", reasons);
        for (char *at, *r = strtok_r(list, "|", &at); r; r = strtok_r(NULL, "|", &at)) known |= strstr(line, r) != NULL;
        if (!known) fail_msg("%s", line);
    }
}

TEST(every_pair_is_met_or_says_why_not)
{
    static const char *const files[] = { "check", "cpu_kernels" };
    for (size_t i = 0; i < COUNT(files); i++) {
        struct ha_coverage c;
        if (ha_coverage_of(files[i], test_print(), &c, &why) != HA_OK) fail_msg("%s", why.text);
        assert_true(50 * c.excluded < c.pairs && c.excluded > 0);
        assert_covered(&c, test_printed(),
                       "is allowed|, but ctx has |batch=3 is the same as 1|packed keys have a multiple of 8|"
                       "query=f32 is the same as kv|it takes values=host",
                       5000);
    }
}

/* What computes has such a list; of the largest ones the reach is what is claimed of it. */
TEST(every_pair_of_an_operation_is_met)
{
    static const struct {
        const char *op, *values[8];
        size_t pairs;
    } wide[] = {
        { "attend",
          { "batch: 1 2 3 17 65 256\n", "q_len: 1 2 3 4 5 6 7 8 13 16 17 33 64\n", " 33 65 128\n", " 12 16\n",
            "v_pad: 0 2 32 64", "src_at: 0 2 8 36", "nan_value", "fine light stretched" },
          5000 },
        { "attend_index", { "block: 1 2 7", "k_heads v_heads" }, 3000 },
        { "attend_products", { "batch: 1 3 65", "nan_key" }, 1800 },
        { "blend", { "dst_at: 0 4", "special" }, 600 },
        { "product", { "special" }, 200 },
        { "merge", { "src: device mapped", "dst_gap: 0 3 16", "layout: tokens heads k_heads v_heads" }, 300 },
        { "move", { "repeats" }, 800 },
        { "read", { "src_at: 0 4" }, 150 },
        { "digest", { "first: 0 1 31 64", "src_index: none device mapped" }, 1000 },
        { "digest_score", { "group: 1 2 3 4 5 6 7 8 16", "high_key" }, 900 },
        { "topk", { "repeats comb", "nan_value", "within: any 0 1 inf", "only: no yes" }, 1300 },
        { "split", { "cached: some none all", "missing: both none list count" }, 1000 },
        { "rotate", { "rotary: 0 2 32 34 64", "eps: " }, 400 },
        { "columns", { "y_type: f32 f16 bf16", "n: 1 7 26 32 33 128" }, 900 },
        { "features", { "empty: no yes", "head_dim: 8 33 64 80 96 112 128 192 256" }, 500 },
        { "net", { "layers: 1 2 3 4", "hidden: 1 31 100 312 1024" }, 500 },
        { "hash", { "bits: 32 64 96 256", "first: 0 1 16 31" }, 700 },
        { "hamming", { "bits: 32 64 96 256", "only: no yes" }, 700 },
        { "similarity", { "similar: least harmonic", "q_len: 1 2 3 4 5 6 7 8 16" }, 500 },
        { "pq_encode", { "code_bits: 2 4 7 8 16", "first: 0 1 31 64", "separate: no yes" }, 1000 },
        { "pq_table", { "w_type: f32 f16", "dims: 1 2 4 7 31", "nan_query" }, 400 },
        { "pq_score", { "groups: 1 3 32 70", "code_bits: 2 4 7 8 16", "w_type: f32 f16" }, 700 },
        { "softmax",
          { "keys: 1 2 33 256 257 1100", "low_key", "pattern: shuffled ascending descending repeats" },
          300 },
        { "topp",
          { "repeats comb", "p: 1 0.9 0.5 1e-09", "q_len: 1 2 3 4 5 8 16", "edge: none at above below",
            "numbers: bell close tiny wide" },
          700 },
        { "weighted_sum",
          { "head_dim: 1 8 33 64 80 96 112 128 192 256", "w_type: f32 f16", "keys: 1 2 33 70 256 257 600",
            "pattern: shuffled repeats" },
          900 },
        { "score", { "head_dim: 1 7 26 32 33 64 80 96 112 128 192 256", "nan_query" }, 900 },
    };
    for (size_t i = 0; i < COUNT(wide); i++) {
        char section[HA_OP_SECTION_MAX];
        struct ha_coverage c;
        const struct ha_op *op = NULL;
        for (size_t k = 0; k < ha_ops_count; k++) op = strcmp(ha_ops[k]->name, wide[i].op) ? op : ha_ops[k];
        assert_true(op && ha_op_section(op, section, sizeof section));
        if (ha_coverage_parse(op->name, section, test_print(), &c, &why) != HA_OK) fail_msg("%s", why.text);
        char *text = test_printed();
        for (size_t v = 0; v < 8 && wide[i].values[v]; v++) assert_contains(text, wide[i].values[v]);
        print_message("%s: %zu cases, %zu pairs, %zu met, %zu excluded\n", op->name, c.points, c.pairs, c.met,
                      c.excluded);
        assert_covered(&c, text,
                       "is allowed|no bits for so many|and one has none|and b is not 0|dimensions are turned|"
                       "stand among bell|is no share exactly",
                       wide[i].pairs);
    }
}

/* ---- the gallery ------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name, *where;
} planted[] = {
#define OPERATION(name, class, op, what)         { #name, "op=" #op },
#define FAULT(name, class, op, fault)            { #name, "op=" #op },
#define ATTENTION(name, class, where, what, ...) { #name, where },
#define CLAIM(name, where, what, field, ...)     { #name, where },
#define PLANT(name, what, field, ...)
#include "suites/defects/defects.def"
};

static struct ha_plan plan;
static int plan_begin(void **state)
{
    static char word[] = "check";
    char *const words[] = { word };
    const struct ha_plan_options o = { .words = words, .words_count = 1, .small = true };
    if (ha_plan_make(&plan, &o, &why) == HA_OK) return 0;
    print_error("%s\n", why.text);
    return -1;
}
static int plan_end(void **state)
{
    ha_plan_free(&plan);
    return 0;
}

/* A defect is looked for first where it is said to show; one that no case fits would be looked for everywhere. */
TEST_WITH(where_a_defect_shows_is_a_case_of_check, plan_begin, plan_end)
{
    if (HA_SANITIZED) skip(); /* of lists, not of memory */
    size_t stale = 0;
    for (size_t i = 0; i < COUNT(planted); i++) {
        struct ha_filter *filter;
        size_t fits = 0;
        if (!*planted[i].where) continue;
        if (ha_filter_create(&filter, planted[i].where, &why) != HA_OK) fail_msg("%s: %s", planted[i].name, why.text);
        for (size_t k = 0; k < plan.entries; k++) {
            const struct ha_plan_entry *e = &plan.entry[k];
            fits += ha_filter_fits(filter, e->suite, e->point, e->id);
        }
        ha_filter_destroy(filter);
        if (fits) continue;
        print_error("%s: no case of check is %s\n", planted[i].name, planted[i].where);
        stale++;
    }
    assert_int_equal(stale, 0);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static bool any(const char *variant, bool (*has)(const struct ha_case *c, size_t x), size_t x)
{
    for (size_t i = 0; i < plan.entries; i++) {
        const struct ha_case *c = plan.entry[i].point;
        if (!strcmp(c->variant, variant) && has(c, x)) return true;
    }
    return false;
}

/* a trace has heads of its own, which the case does not know */
static bool group_is(const struct ha_case *c, size_t x) { return c->shape.kv_heads && ha_shape_group(&c->shape) == x; }
static bool heads_from(const struct ha_case *c, size_t x) { return c->shape.q_heads >= x; }
static bool dim_is(const struct ha_case *c, size_t x) { return c->shape.head_dim == x; }
static bool batch_from(const struct ha_case *c, size_t x) { return c->shape.batch >= x; }
/* a step begins or ends within two of so many keys */
static bool keys_near(const struct ha_case *c, size_t x)
{
    const size_t most = c->shape.ctx[0] + c->shape.steps * c->shape.q_len;
    return c->shape.ctx[0] <= x + 2 && most + 2 >= x;
}
static bool is_ragged(const struct ha_case *c, size_t x)
{
    return c->shape.batch >= x && c->shape.ctx[0] != c->shape.ctx[1];
}

/* Of the variants that attend on the device and on the CPU alone all of it, of each other a part. */
TEST_WITH(values_are_those_of_the_whole_space, plan_begin, plan_end)
{
    static const size_t dims[] = { 8, 24, 40, 64, 72, 80, 96, 128, 160, 192, 256, 576 },
                        few_dims[] = { 8, 40, 80, 96, 160, 192, 256, 576 },
                        few_groups[] = { 1, 2, 3, 5, 6, 7, 8, 12, 16 };
    static const char *const whole[] = { "resident", "cpu" }, *const part[] = {
        "hgca",     "streaming",    "h2o",     "tova",       "duo",     "quest", "topk",
        "gpu_only", "hybrid_fixed", "fluxion", "lru_blocks", "pqcache", "clo"
    };
    for (size_t v = 0; v < COUNT(whole); v++) {
        for (size_t g = 1; g <= 16; g++) assert_true(any(whole[v], group_is, g));
        for (size_t d = 0; d < COUNT(dims); d++) assert_true(any(whole[v], dim_is, dims[d]));
        for (size_t k = 4; k <= 131072; k *= 2)
            if (k != 32768 && !any(whole[v], keys_near, k)) fail_msg("%s: %zu keys", whole[v], k);
        assert_true(any(whole[v], heads_from, 128) && any(whole[v], batch_from, 256) && any(whole[v], is_ragged, 17));
    }
    for (size_t v = 0; v < COUNT(part); v++) {
        for (size_t g = 0; g < COUNT(few_groups); g++) assert_true(any(part[v], group_is, few_groups[g]));
        for (size_t d = 0; d < COUNT(few_dims); d++) assert_true(any(part[v], dim_is, few_dims[d]));
        assert_true(any(part[v], heads_from, 128) && any(part[v], batch_from, 65) && any(part[v], is_ragged, 17));
        assert_true(any(part[v], keys_near, 65536) && any(part[v], keys_near, 4100));
    }
}
