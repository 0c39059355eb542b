#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "suites/merge/defects.h"

#include "harness/base/numeric.h"
#include "harness/base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Every defect is run on every scene, in every form and type that it claims, against a merge in binary64: it must be
 * wrong where its mistake matters, and right where it does not. */

enum { STATES_MAX = 133, TOKENS = 3, HEADS = 4, DIM_MAX = 80, ROWS = TOKENS * HEADS };
static const float inf = (float)INFINITY;

/* ---- scenes ----------------------------------------------------------------------------------------------------- */

struct scene {
    const char *name;
    size_t states, dim;
    enum { PACKED, PADDED, HEADS_FIRST, HUGE_STRIDE } layout;
    enum ha_alias alias;
    bool plus_inf;
    /* LSE of state s in row r as the form stores it; o comes from the next function */
    float (*lse)(size_t s, size_t r);
    float (*o)(size_t s, size_t r, size_t i, enum ha_dtype dtype);
};

static float any_lse(size_t s, size_t r) { return 2 * ha_rng_normal(1, s, r); }
static float equal_lse(size_t s, size_t r) { return (void)s, (void)r, 3; }
static float far_lse(size_t s, size_t r) { return (void)r, s ? -300 : 3; }
static float one_empty(size_t s, size_t r) { return s == r % 3 ? -inf : any_lse(s, r); }
static float all_empty(size_t s, size_t r) { return (void)s, (void)r, -inf; }
static float one_plus_inf(size_t s, size_t r) { return s == r % 3 ? inf : any_lse(s, r); }
static float one_nan(size_t s, size_t r) { return s == r % 3 ? (float)NAN : any_lse(s, r); }
static float one_zero(size_t s, size_t r) { return s == r % 3 ? 0 : any_lse(s, r); }
static float high_lse(size_t s, size_t r) { return 1000 + any_lse(s, r); }
static float low_lse(size_t s, size_t r) { return -1000 + any_lse(s, r); }
static float lowest_lse(size_t s, size_t r) { return -6e4f + any_lse(s, r); }
static float below_mask(size_t s, size_t r) { return s == r % 3 ? -inf : -11000 + any_lse(s, r); }
static float rising_lse(size_t s, size_t r) { return (void)r, 2 * (float)s; }
static float leaping_lse(size_t s, size_t r) { return (void)r, 150 * (float)s; }
static float light_first(size_t s, size_t r) { return (void)r, s ? 0 : -40; }

static float any_o(size_t s, size_t r, size_t i, enum ha_dtype dtype)
{
    return ha_round(ha_rng_normal(2 + s, r, i), dtype);
}
static float whole_o(size_t s, size_t r, size_t i, enum ha_dtype dtype)
{
    return (void)dtype, (float)((int)((r + i) % 8) + (s % 2 ? 3 : -3));
}
static float poison_of_empty(size_t s, size_t r, size_t i, enum ha_dtype dtype)
{
    return s != r % 3 ? any_o(s, r, i, dtype) : i % 2 ? (float)NAN : inf;
}
static float one_nan_o(size_t s, size_t r, size_t i, enum ha_dtype dtype)
{
    return s == 1 && i == 5 ? (float)NAN : any_o(s, r, i, dtype);
}
static float largest_o(size_t s, size_t r, size_t i, enum ha_dtype dtype)
{
    return (void)s, ha_round(((r + i) % 2 ? 0.95f : -0.95f) * (dtype == HA_F16 ? 65504.0f : 3.3e38f), dtype);
}
static float smallest_o(size_t s, size_t r, size_t i, enum ha_dtype dtype)
{
    return (void)dtype, (float)(1 + (s + r + i) % 9) * 0x1p-22f;
}
static float huge_in_first(size_t s, size_t r, size_t i, enum ha_dtype dtype)
{
    return any_o(s, r, i, dtype) * (s ? 1 : dtype == HA_F16 ? 8192.0f : 0x1p80f);
}

enum name {
    GENTLE,
    FAR_APART,
    PLAIN,
    STRIDED,
    HEADS_THEN_TOKENS,
    FIRST_IN_PLACE,
    LAST_IN_PLACE,
    HUGE,
    EMPTY,
    ALL_EMPTY,
    POISON,
    PLUS_INF,
    NAN_LSE,
    NAN_O,
    ZERO,
    HIGH,
    LOW,
    LOWEST,
    BELOW_MASK,
    RISING,
    LEAPING,
    LARGEST,
    SUBNORMAL,
    LIGHT,
    MANY,
    SCENES
};
static const struct scene scenes[SCENES] = {
    [GENTLE] = { "gentle", 2, 64, .lse = equal_lse, .o = whole_o },
    [FAR_APART] = { "far_apart", 2, 64, .lse = far_lse, .o = any_o },
    [PLAIN] = { "plain", 5, 64, .lse = any_lse, .o = any_o },
    [STRIDED] = { "strided", 4, 80, .layout = PADDED, .lse = any_lse, .o = any_o },
    [HEADS_THEN_TOKENS] = { "heads_then_tokens", 4, 64, .layout = HEADS_FIRST, .lse = any_lse, .o = any_o },
    [FIRST_IN_PLACE] = { "first_in_place", 4, 64, .alias = HA_ALIAS_FIRST, .lse = any_lse, .o = any_o },
    [LAST_IN_PLACE] = { "last_in_place", 4, 64, .alias = HA_ALIAS_LAST, .lse = any_lse, .o = any_o },
    [HUGE] = { "huge", 2, 64, .layout = HUGE_STRIDE, .lse = equal_lse, .o = any_o },
    [EMPTY] = { "empty", 4, 64, .lse = one_empty, .o = any_o },
    [ALL_EMPTY] = { "all_empty", 4, 64, .lse = all_empty, .o = any_o },
    [POISON] = { "poison", 4, 64, .lse = one_empty, .o = poison_of_empty },
    [PLUS_INF] = { "plus_inf", 4, 64, .plus_inf = true, .lse = one_plus_inf, .o = poison_of_empty },
    [NAN_LSE] = { "nan_lse", 4, 64, .lse = one_nan, .o = any_o },
    [NAN_O] = { "nan_o", 4, 64, .lse = any_lse, .o = one_nan_o },
    [ZERO] = { "zero", 4, 64, .lse = one_zero, .o = any_o },
    [HIGH] = { "high", 4, 64, .lse = high_lse, .o = any_o },
    [LOW] = { "low", 4, 64, .lse = low_lse, .o = any_o },
    [LOWEST] = { "lowest", 4, 64, .lse = lowest_lse, .o = any_o },
    [BELOW_MASK] = { "below_mask", 4, 64, .lse = below_mask, .o = any_o },
    [RISING] = { "rising", 4, 64, .lse = rising_lse, .o = any_o },
    [LEAPING] = { "leaping", 3, 64, .lse = leaping_lse, .o = any_o },
    [LARGEST] = { "largest", 4, 64, .lse = equal_lse, .o = largest_o },
    [SUBNORMAL] = { "subnormal", 2, 64, .lse = equal_lse, .o = smallest_o },
    [LIGHT] = { "light", 2, 64, .lse = light_first, .o = huge_in_first },
    [MANY] = { "many", STATES_MAX, 64, .lse = any_lse, .o = any_o },
};

/* ---- a merge on a stage ------------------------------------------------------------------------------------------ */

/* Fills, calls, compares; memory that is no result must keep its bytes. */
struct stage {
    const struct scene *scene;
    enum ha_form form;
    enum ha_dtype dtype;
    struct ha_merge call;
    struct ha_merge_state state[STATES_MAX];
    size_t o_elements, lse_elements; /* of one state */
    unsigned char *memory, *before;
    size_t bytes;
};

static float sum_of(const struct scene *x, size_t s, size_t r)
{
    return x->lse == equal_lse || x->lse == far_lse ? 1 : (float)(1 + (s + r) % 7);
}

static void place(struct stage *g, struct ha_merge_state *s, size_t k, unsigned char *at)
{
    const struct scene *x = g->scene;
    const size_t pad = x->layout == PADDED ? 8 * (k + 1) : 0, gap = x->layout == PADDED ? k + 1 : 0;
    s->o_head_stride = x->dim + pad;
    s->o_token_stride = g->call.heads * s->o_head_stride + 2 * pad;
    s->lse_head_stride = x->layout == HEADS_FIRST ? g->call.tokens : 1;
    s->lse_token_stride = x->layout == HEADS_FIRST ? 1 : g->call.heads + gap;
    s->o = at;
    s->lse = (float *)(void *)(at + g->o_elements * sizeof(float));
    s->sum = s->lse + g->lse_elements;
}

static void set_up(struct stage *g, const struct scene *x, enum ha_form form, enum ha_dtype dtype)
{
    *g = (struct stage){ .scene = x, .form = form, .dtype = dtype };
    g->call = (struct ha_merge){ .form = form,
                                 .dtype = dtype,
                                 .plus_inf_is_empty = x->plus_inf,
                                 .states = g->state,
                                 .states_count = x->states,
                                 .tokens = x->layout == HUGE_STRIDE ? 2 : TOKENS,
                                 .heads = x->layout == HUGE_STRIDE ? 1 : HEADS,
                                 .dim = x->dim };
    g->o_elements = TOKENS * (HEADS * (DIM_MAX + 64) + 128);
    g->lse_elements = TOKENS * (HEADS + 8);
    const size_t each = (g->o_elements + 2 * g->lse_elements) * sizeof(float);
    g->bytes = (x->states + 1) * each;
    g->memory = malloc(g->bytes);
    g->before = malloc(g->bytes);
    assert_true(g->memory && g->before);
    memset(g->memory, 0xA5, g->bytes);
    for (size_t s = 0; s < x->states; s++) place(g, &g->state[s], s, g->memory + s * each);
    place(g, &g->call.out, x->states, g->memory + x->states * each);
    if (x->layout == HUGE_STRIDE) {
        struct ha_merge_state *far = &g->state[1];
        far->o_token_stride = (size_t)1 << 32;
        far->o = mmap(NULL, (far->o_token_stride + DIM_MAX) * sizeof(float), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_true(far->o != MAP_FAILED);
    }
    for (size_t s = 0; s < x->states; s++)
        for (size_t r = 0; r < g->call.tokens * g->call.heads; r++) {
            const struct ha_merge_state *to = &g->state[s];
            const size_t t = r / g->call.heads, h = r % g->call.heads,
                         at = t * to->lse_token_stride + h * to->lse_head_stride;
            for (size_t i = 0; i < x->dim; i++)
                ha_store(to->o, t * to->o_token_stride + h * to->o_head_stride + i, dtype, x->o(s, r, i, dtype));
            to->lse[at] = x->lse(s, r);
            if (form == HA_FORM_MAX_SUM) to->sum[at] = sum_of(x, s, r);
        }
    if (x->alias != HA_ALIAS_NONE) g->call.out = g->state[x->alias == HA_ALIAS_FIRST ? 0 : x->states - 1];
    memcpy(g->before, g->memory, g->bytes);
}

static void tear_down(struct stage *g)
{
    if (g->scene->layout == HUGE_STRIDE) munmap(g->state[1].o, (g->state[1].o_token_stride + DIM_MAX) * sizeof(float));
    free(g->memory);
    free(g->before);
}

static bool close_to(double got, double want, double tolerance)
{
    if (isnan(want)) return isnan(got);
    return got == want || fabs(got - want) <= tolerance;
}

static double natural(const struct stage *g, double lse, double sum)
{
    if (g->form == HA_FORM_MAX_SUM) return lse == -HUGE_VAL ? lse : lse + log(sum);
    return g->form == HA_FORM_BASE2 ? lse * log(2) : lse;
}

/* Is row r what binary64 makes of the scene? The tolerance is that of a merge that stores L in binary32. */
static bool row_right(const struct stage *g, size_t r)
{
    const struct scene *x = g->scene;
    double lse[STATES_MAX], max = -HUGE_VAL, sum = 0, size = 0;
    for (size_t s = 0; s < x->states; s++) {
        const double stored = (double)x->lse(s, r);
        lse[s] = x->plus_inf && stored == HUGE_VAL ? -HUGE_VAL : natural(g, stored, (double)sum_of(x, s, r));
        if (lse[s] > max || isnan(lse[s])) max = lse[s];
        if (isfinite(stored)) size = fmax(size, fabs(stored));
    }
    for (size_t s = 0; s < x->states; s++) sum += lse[s] == -HUGE_VAL ? 0 : exp(lse[s] - max);
    const double slack = 1e-5 + 4e-7 * size;
    const struct ha_merge_state *out = &g->call.out;
    const size_t t = r / g->call.heads, h = r % g->call.heads,
                 at = t * out->lse_token_stride + h * out->lse_head_stride;
    const double got_lse = natural(g, (double)out->lse[at], g->form == HA_FORM_MAX_SUM ? (double)out->sum[at] : 1);
    if (!close_to(got_lse, max == -HUGE_VAL ? max : max + log(sum), slack)) return false;
    for (size_t i = 0; i < x->dim; i++) {
        double want = 0, most = 0;
        for (size_t s = 0; s < x->states; s++) {
            if (lse[s] == -HUGE_VAL) continue;
            const double part = exp(lse[s] - max) / sum * (double)x->o(s, r, i, g->dtype);
            want += part;
            most += fabs(part);
        }
        const double tolerance = slack * most + 1.001 * ha_dtype_unit(g->dtype) * fabs(want) + ha_dtype_eta(g->dtype);
        const double got = (double)ha_load(out->o, t * out->o_token_stride + h * out->o_head_stride + i, g->dtype);
        if (!close_to(got, want, tolerance)) return false;
    }
    return true;
}

/* Puts the results back as they were: then nothing has changed. */
static bool rest_untouched(struct stage *g)
{
    const struct ha_merge_state *out = &g->call.out;
    for (size_t r = 0; r < g->call.tokens * g->call.heads; r++) {
        const size_t t = r / g->call.heads, h = r % g->call.heads;
        unsigned char *o = (unsigned char *)out->o
                           + (t * out->o_token_stride + h * out->o_head_stride) * ha_dtype_bytes(g->dtype);
        unsigned char *lse = (unsigned char *)(out->lse + t * out->lse_token_stride + h * out->lse_head_stride);
        unsigned char *sum = (unsigned char *)(out->sum + t * out->lse_token_stride + h * out->lse_head_stride);
        memcpy(o, g->before + (o - g->memory), g->call.dim * ha_dtype_bytes(g->dtype));
        memcpy(lse, g->before + (lse - g->memory), sizeof(float));
        if (g->form == HA_FORM_MAX_SUM) memcpy(sum, g->before + (sum - g->memory), sizeof(float));
    }
    return memcmp(g->memory, g->before, g->bytes) == 0;
}

static bool right_on(const struct ha_merge_defect *d, const struct scene *x, enum ha_form form, enum ha_dtype dtype)
{
    struct stage g;
    bool right = true;
    set_up(&g, x, form, dtype);
    d->merge(&g.call);
    for (size_t r = 0; r < g.call.tokens * g.call.heads; r++) right = right && row_right(&g, r);
    if (!rest_untouched(&g))
        fail_msg("%s on %s (%s, %s) changed memory that is no result", d->name, x->name, ha_form_name(form),
                 ha_dtype_name(dtype));
    tear_down(&g);
    return right;
}

/* ---- what is expected -------------------------------------------------------------------------------------------- */

/* A column for each scene: # wrong in every form and type that the defect claims, . right in every one, ~ in some. */
static const struct {
    const char *name, *on;
} expected[] = {
    { "both_empty_nan", ".........#..............." },
    { "plus_inf_for_empty", ".........#..............." },
    { "sentinel_for_empty", ".........#..............." },
    { "nothing_written", ".........#..............." },
    { "plus_inf_taken", "...........#............." },
    { "finite_sentinel", ".................#......." },
    { "mask_is_a_score", ".........###......#......" },
    { "empty_with_finite_lse", "........####......#......" },
    { "tiny_lse_empty", "..............#....#...#." },
    { "zero_weight_leak", "..........##............." },
    { "nan_dropped", "............#............" },
    { "nan_to_zero", "............##..........." },
    { "base_mix", "~.#####~#.##.#######.~~~#" },
    { "log_base", "#.#######.##.#######.##.#" },
    { "lse_not_updated", "#.#######.##.#######.##.#" },
    { "lse_ignored", ".######.#.##.########..##" },
    { "no_shift", "...............####.#...." },
    { "shift_from_zero", "................###......" },
    { "shift_by_min", ".#..................#...." },
    { "shift_by_first", "....................#...." },
    { "missing_rescale", "..#####.#.##.########..##" },
    { "clamped_gap", ".......................#." },
    { "sum_ignored", "..#####.#.##.########..##" },
    { "weights_not_divided", "#.#######.##.#######~##~#" },
    { "divide_last", ".....................#..." },
    { "weights_reversed", ".######.#.##.########..##" },
    { "last_state_dropped", "..#.................#...#" },
    { "beyond_a_warp", "........................#" },
    { "prefix_strides", "...#...#................." },
    { "assumes_packed", "...##..#................." },
    { "swapped_layout", "..#####.#.##.######~~..~#" },
    { "lse_of_group", "..#####.#.##.######~~..~#" },
    { "dim_tail", "...#....................." },
    { "index_32", ".......#................." },
    { "in_place_hazard", ".....##.................." },
    { "f16_accumulator", ".~#####~#.##.##~~~~#~~.~#" },
    { "bf16_accumulator", ".~#####~#.##.##~~~~#~~.~#" },
    { "bf16_weight", "..#####.#.##.##~~~~#...~#" },
    { "f16_lse", "..#####.#.##.##~~~~....~#" },
    { "bf16_lse", "..#####.#.##.##~~~~....~#" },
    { "coarse_exp", "........................." },
    { "truncated_o", "..#######.##.##~~~~#...~#" },
    { "flushed_subnormals", "..............~.......#.~" },
};
enum { EXPECTED = sizeof expected / sizeof expected[0] };

static char on_scene(const struct ha_merge_defect *d, const struct scene *x)
{
    size_t wrong = 0, all = 0;
    for (unsigned f = 0; f < HA_FORM_COUNT; f++)
        for (unsigned t = 0; t < HA_DTYPE_COUNT; t++) {
            if ((d->forms && !(d->forms >> f & 1u)) || (d->dtypes && !(d->dtypes >> t & 1u))) continue;
            all++;
            wrong += !right_on(d, x, (enum ha_form)f, (enum ha_dtype)t);
        }
    assert_true(all > 0);
    return wrong == 0 ? '.' : wrong == all ? '#' : '~';
}

static void test_every_defect(void **unused)
{
    (void)unused;
    assert_int_equal(ha_lse_merge_defects_count, EXPECTED);
    for (size_t i = 0; i < EXPECTED; i++) {
        const struct ha_merge_defect *d = &ha_lse_merge_defects[i];
        assert_string_equal(d->name, expected[i].name);
        assert_int_equal(strlen(expected[i].on), SCENES);
        /* one is finer than the tolerance of this test: the program's own bound has to see it */
        assert_true(strchr(expected[i].on, '#') || !strcmp(d->name, "coarse_exp"));
        assert_non_null(strchr(expected[i].on, '.'));
        for (size_t x = 0; x < SCENES; x++) {
            const char got = on_scene(d, &scenes[x]), want = expected[i].on[x];
            if (want != '~' && got != want) fail_msg("%s on %s: %c, not %c", d->name, scenes[x].name, got, want);
        }
    }
}

/* On every scene some defects are right: the merge that they all share is right where their mistake does not matter. */
static void test_every_scene(void **unused)
{
    (void)unused;
    for (size_t x = 0; x < SCENES; x++) {
        size_t right = 0, wrong = 0;
        for (size_t i = 0; i < EXPECTED; i++) {
            right += expected[i].on[x] == '.';
            wrong += expected[i].on[x] == '#';
        }
        assert_true(right > 10);
        assert_true(wrong > 0);
    }
}

static void test_gallery_says_what(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < ha_lse_merge_defects_count; i++) {
        const struct ha_merge_defect *d = &ha_lse_merge_defects[i];
        assert_true(d->does[0] && d->finder[0] && d->merge);
        assert_non_null(d->seen);
        assert_true(d->forms < 1u << HA_FORM_COUNT && d->dtypes < 1u << HA_DTYPE_COUNT);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(d->name, ha_lse_merge_defects[k].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_defect),
        cmocka_unit_test(test_every_scene),
        cmocka_unit_test(test_gallery_says_what),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
