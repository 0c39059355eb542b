/* What a night's own rows say: figures that are missing in some processes, cases without rows, sections of which no
 * case is possible. */

#include "harness/program/night_rows.h"

#include "harness/compare/test_record.h"

#include <stdlib.h>

static const struct ha_recorded_figure energy = { .name = "energy", .unit = "J", .better = HA_NEITHER };

/* [processes] rows of one case, of which `values` have the figure, and the first `disturbed` something else beside them
 */
static void add_rows(struct ha_record *r, const char *id, const struct ha_recorded_figure *f, size_t processes,
                     size_t values, size_t disturbed)
{
    struct ha_recorded_case *c = add_case(r, "run", id);
    for (size_t p = 0; p < processes; p++) {
        assert_int_equal(ha_record_add_verdict(r, c, "fake", HA_PASS, "", &why), HA_OK);
        if (p < disturbed) assert_int_equal(ha_record_add_disturbed(r, c, p, &why), HA_OK);
        const struct ha_observation at = { 0, p, 1 };
        if (p >= processes - values) assert_int_equal(ha_record_add_value(r, c, f, at, &why), HA_OK);
    }
}

/* The notes; *lost: what is judged. The caller frees them. */
static char *notes_of(const struct ha_record *r, size_t *lost)
{
    struct ha_night_log log = { .folder = "." };
    *lost = ha_night_rows_lost(&log, r);
    return log.notes ? log.notes : strdup("");
}

TEST(a_value_that_is_missing_is_said)
{
    static const struct {
        const struct ha_recorded_figure *figure;
        size_t values, disturbed, lost;
        const char *says;
    } table[] = {
        { &step, 12, 0, 0, "" },
        { &step, 6, 0, 1, "a step_ns: no value in 6 of its 12 processes\n" },
        { &step, 5, 0, 1, "a step_ns: no value in 7 of its 12 processes\n" },
        { &step, 8, 4, 0, "" }, /* these were left out */
        { &step, 7, 4, 1, "a step_ns: no value in 1 of its 12 processes\n" },
        { &step, 0, 0, 1, "a step_ns: no value in 12 of its 12 processes\n" },  /* as others of its suite have it */
        { &energy, 11, 0, 0, "a energy: no value in 1 of its 12 processes\n" }, /* of nobody's concern but who asks */
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        struct ha_record r;
        size_t lost;
        begin(&r, "night");
        begin_night(&r, "night");
        if (table[i].figure == &step) add_rows(&r, "b", &step, 12, 12, 0);
        add_rows(&r, "a", table[i].figure, 12, table[i].values, table[i].disturbed);
        char *notes = notes_of(&r, &lost);
        assert_string_equal(notes, table[i].says);
        assert_int_equal(lost, table[i].lost);
        free(notes);
        ha_record_free(&r);
    }
}

TEST(cases_and_sections_are_counted)
{
    static char a[] = "a", b[] = "b", c[] = "c", d[] = "d";
    size_t first[] = { 0, 1 }, second[] = { 2, 3 }, ran[6] = { 0 };
    struct ha_plan_entry entry[] = { { .id = a }, { .id = b }, { .id = c }, { .id = d } };
    struct ha_plan_section section[] = { { .of = { .name = "first", .entry = first, .count = 2 } },
                                         { .of = { .name = "second", .entry = second, .count = 2 } } };
    const struct ha_plan plan = { .entry = entry, .entries = 4, .section = section, .sections = 2 };
    struct ha_night_log log = { .folder = "." };
    struct ha_record r;
    begin(&r, "night");
    begin_night(&r, "night");
    add_rows(&r, "a", &step, 12, 12, 0);
    for (size_t i = 2; i < 4; i++)
        assert_int_equal(ha_record_add_verdict(&r, add_case(&r, "run", entry[i].id), "fake", HA_VERDICT_WAIVED,
                                               "no such thing here", &why),
                         HA_OK);
    assert_int_equal(ha_night_rows_count(&log, &r, &plan, 5, ran), 1);
    assert_string_equal(log.notes, "not run: b\nsection second: no case is possible: no such thing here\n");
    assert_true(ran[0] == 1 && ran[1] == 2 && ran[5] == 1);
    free(log.notes);
    ha_record_free(&r);
}
