/* Every defect over every case: it must be wrong where its mistake matters, and right where it does not. */

#include "harness/base/registry.h"
#include "harness/base/test.h"
#include "suites/merge/point.h"

/* A column for each case: # wrong in every form and type that the defect claims, . right in every one, ~ in some, - not
 * asked. */
static const struct {
    const char *name, *on;
} expected[] = {
    { "both_empty_nan", ".......#.#................................--...-.." },
    { "plus_inf_for_empty", ".......#.#................................--...-.." },
    { "sentinel_for_empty", ".......#.#................................--...-.." },
    { "nothing_written", ".......#.#................................--...-.." },
    { "plus_inf_taken", ".........#................................--...-.." },
    { "plus_inf_read", ".........#................................--...-.." },
    { "finite_sentinel", ".....##...........#.#.....................--...-.." },
    { "mask_is_a_score", "~~.~~.####.........##~........~........~.~--.~~-##" },
    { "empty_with_finite_lse", "##.#~.####.........###........#.......~#.#--~##-##" },
    { "tiny_lse_empty", "~~~##~~.....##..~........~~.~..~....~~....--...-.." },
    { "zero_weight_leak", "......#.##................................--...-##" },
    { "nan_dropped", "..........#...............................--...-.." },
    { "nan_to_zero", ".....##...##..............................--...-##" },
    { "base_mix", "~~~~#...##.######.######~###########~~####--###-##" },
    { "log_base", "#####...##.######.#######~################--###-##" },
    { "lse_not_updated", "#####...##.######.#######~################--###-##" },
    { "lse_ignored", "...~#...##.#############.###########~~####--###-##" },
    { "no_shift", ".....##...#...##.#####.........#..........--...-##" },
    { "shift_from_zero", ".....##........#..###.....................--...-##" },
    { "shift_by_min", "..........#.....##...........~.#..........--...-.." },
    { "shift_by_first", "..........#.....##...........~.#.~........--...-.." },
    { "missing_rescale", "...~#...##.######~######.###########~~####--###-##" },
    { "clamped_gap", ".........................#.-~~.~..........--...-.." },
    { "sum_ignored", "#######.##.######.######.#################--###-##" },
    { "weights_not_divided", "#####~~.##.######.######.~###~############--###-##" },
    { "divide_last", ".....~~...................#-..............--...-.~" },
    { "weights_reversed", "##.##.#.##.###~#.~~#####.#.#########..####--###-##" },
    { "last_state_dropped", "...####.##.####.#.##.####.####.##...####.#--#.#-##" },
    { "beyond_a_warp", "...............#....#....#....#....#......--.#.-.." },
    { "prefix_strides", ".#.......#...#...#...#...#...#...#...#.#.#--.#.-.#" },
    { "assumes_packed", ".##..##..#...##..##..#...##..##..#...#.###--.##-.#" },
    { "swapped_layout", "#######.##.############.##########.#.#####--###-##" },
    { "lse_of_group", "#######.##.#########################.#####--###-##" },
    { "dim_tail", "####..#.#########~###################.##.#--###-##" },
    { "index_32", "........................................#.--...-.." },
    { "in_place_hazard", ".##.#...#..#.##.#~.##....##.##.##.#..#...#--..#-.." },
    { "f16_accumulator", "...~~~~.##.######~######~####~####~#~~####--###-##" },
    { "bf16_accumulator", "...~#~~.##.######~###########~####~#######--###-##" },
    { "bf16_weight", "...~~...##.######.######.####~####~#~~####--###-##" },
    { "f16_lse", "~~~~###.##.###~~~######.#~#####~##~#~~####--###-##" },
    { "bf16_lse", "~~~~###.##.#####~########~##########~~####--###-##" },
    { "coarse_exp", "...~~...##.###~.~.~~.~~~..~-..~###...~#~#~--#.#-~~" },
    { "truncated_o", "...~~...~~.~~~~~~.~~~~~~.~~#~~~~~~.~~~~~~~--~~~-~~" },
    { "flushed_subnormals", ".....##.......~.....~..~...#..............--...-##" },
    { "fp8_times_scale", "..........................................--...-##" },
    { "fp8_cut_off", "..........................................--...-##" },
    { "fp8_ties_away", "..........................................--...-~~" },
    { "fp8_by_bf16", "..........................................--...-##" },
    { "fp8_not_saturated", "..........................................--...-##" },
    { "fp8_nan_saturated", "..........................................--...-##" },
    { "fp8_other_bias", "..........................................--...-##" },
};
enum { DEFECTS = COUNT(expected), CASES = HA_MERGE_CASES };

/* A batch of each case in every form and type, in layouts and in place by turns, of every fifth case with many states.
 */
static void add_tasks(struct ha_merge_tasks *tasks, unsigned form, unsigned dtype)
{
    for (size_t i = 0; i < CASES; i++) {
        const struct ha_merge_case *c = &ha_merge_cases[i];
        const size_t high = c->states_max ? c->states_max : SIZE_MAX, many = i % 5 ? 7 : 40,
                     states = many > high ? high : many;
        const struct ha_merge_axes only = {
            .form = 1 + form,
            .dtype = 1 + dtype,
            .order = c->orders ? 0 : 1 + HA_ORDER_FLAT,
            .alias = c->aliases ? 0 : 1 + i % HA_ALIAS_COUNT,
            .layout = c->layouts ? 0 : 1 + i % HA_LAYOUT_COUNT,
            .head_dim = 80,
            .states = states < c->states_min ? c->states_min : states,
            .seed = 1,
            .row = HA_ROW_ANY,
        };
        struct ha_why why;
        assert_int_equal(ha_merge_tasks_of_case(tasks, i, &only, &why), HA_OK);
    }
}

static struct ha_merge_task listed(void *arg, size_t i) { return ((struct ha_merge_task *)arg)[i]; }

/* A defect is none of streams, which have tests of their own. */
static bool streams(void *arg, const struct ha_merge_task *t, size_t source)
{
    return (void)arg, (void)source, ha_stage_streams(t->c->stage);
}

static struct ha_merge_cell cell[CASES][DEFECTS];
static size_t asked[CASES][DEFECTS], wrong[CASES][DEFECTS];

static void run(struct ha_merge_source *const *source, unsigned form, unsigned dtype)
{
    const struct ha_merge_job job = {
        .source = source, .sources = DEFECTS, .items = CASES, .skip = streams, .cell = cell[0]
    };
    struct ha_merge_tasks tasks = { 0 };
    struct ha_why why;
    add_tasks(&tasks, form, dtype);
    ha_merge_cells_clear(cell[0], (size_t)CASES * DEFECTS);
    assert_int_equal(ha_merge_job_run(&job, tasks.count, listed, tasks.task, NULL, &why), HA_OK);
    ha_merge_tasks_free(&tasks);
    for (size_t i = 0; i < CASES; i++)
        for (size_t d = 0; d < DEFECTS; d++) {
            const enum ha_status st = ha_merge_cell_status(&cell[i][d]);
            if (st == HA_ERROR || strstr(cell[i][d].why.text, "wrote where no result goes"))
                fail_msg("%s on %s: %s", source[d]->name, ha_merge_cases[i].name, cell[i][d].why.text);
            asked[i][d] += st != HA_WAIVED;
            wrong[i][d] += st == HA_FAIL;
        }
}

TEST(every_defect_on_every_case)
{
    const struct ha_suite_config none = { .seed = 1 };
    struct ha_merge_party party = { .config = &none };
    struct ha_merge_source *source[DEFECTS];
    assert_int_equal(HA_MERGE_DEFECTS, DEFECTS);
    for (size_t d = 0; d < DEFECTS; d++) source[d] = &ha_merge_party_find(&party, ha_merge_defects[d].name)->source;
    for (unsigned form = 0; form < HA_FORM_COUNT; form++)
        for (unsigned dtype = 0; dtype < HA_DTYPE_COUNT; dtype++)
            if (!test_small || (form + dtype) % 4 == 0) run(source, form, dtype);
    bool differs = false;
    for (size_t d = 0; d < DEFECTS; d++) {
        char got[CASES + 1] = "";
        for (size_t i = 0; i < CASES; i++)
            got[i] = !asked[i][d] ? '-' : !wrong[i][d] ? '.' : wrong[i][d] == asked[i][d] ? '#' : '~';
        assert_string_equal(source[d]->name, expected[d].name);
        assert_int_equal(strlen(expected[d].on), CASES);
        for (size_t i = 0; i < CASES; i++) {
            if (got[i] == expected[d].on[i] || (test_small && (expected[d].on[i] == '~' || got[i] == '-'))) continue;
            print_error("%s on %s: %c, not %c\n", source[d]->name, ha_merge_cases[i].name, got[i], expected[d].on[i]);
            differs = true;
        }
    }
    ha_merge_party_free(&party);
    assert_false(differs);
}

/* Each is seen somewhere and right somewhere; on each case that is asked many are right, and so is the merge that they
 * all share. */
TEST(the_table_tells_them_apart)
{
    for (size_t d = 0; d < DEFECTS; d++) assert_true(strpbrk(expected[d].on, "#~") && strchr(expected[d].on, '.'));
    for (size_t i = 0; i < CASES; i++) {
        size_t right = 0, here = 0;
        for (size_t d = 0; d < DEFECTS; d++) {
            right += expected[d].on[i] == '.';
            here += expected[d].on[i] != '-';
        }
        assert_true(here == 0 || right > 10);
    }
}
