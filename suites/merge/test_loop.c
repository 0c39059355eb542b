#include "suites/merge/test_loop.h"

#include "harness/engine/point.h"
#include "harness/report/verdict.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct ha_suite *const suite = &ha_suite_lse_merge;

void loop_plan(struct loop *loop, const char *words)
{
    char text[4096], *word[16];
    struct ha_plan_options options = { .words = word };
    struct ha_why why = { "" };
    *loop = (struct loop){ 0 };
    snprintf(text, sizeof text, "%s", words);
    for (char *rest = text, *w; (w = strsep(&rest, " "));) word[options.words_count++] = w;
    if (ha_plan_make(&loop->plan, &options, &why) != HA_OK) fail_msg("%s: %s", words, why.text);
    loop->row = calloc(loop->plan.entries, sizeof *loop->row);
    loop->entry = calloc(loop->plan.entries, sizeof *loop->entry);
    assert_true(loop->row && loop->entry);
    for (size_t i = 0; i < loop->plan.entries; i++) {
        assert_ptr_equal(loop->plan.entry[i].suite, suite);
        loop->row[i].ratio = loop->row[i].planted = loop->row[i].head.samples = (double)NAN;
        loop->entry[i] = (struct ha_entry){ loop->plan.entry[i].point, &loop->row[i], loop->plan.entry[i].id };
    }
    loop->results = (struct ha_results){ .entry = loop->entry, .entries = loop->plan.entries };
}

static void run_group(struct loop *loop, size_t first, size_t count)
{
    const void **point = calloc(count, sizeof *point);
    const char **id = calloc(count, sizeof *id);
    void **row = calloc(count, sizeof *row);
    struct ha_why why = { "" };
    assert_true(point && id && row);
    for (size_t i = 0; i < count; i++) {
        point[i] = loop->plan.entry[first + i].point;
        id[i] = loop->plan.entry[first + i].id;
        row[i] = &loop->row[first + i];
    }
    struct ha_group group = { .count = count, .point = point, .row = row, .id = id, .deadline_ns = loop->deadline_ns };
    enum ha_status st = suite->open(loop->run, &group, &why);
    if (st == HA_OK) st = suite->check(loop->run, &group, &why);
    for (size_t i = 0; i < count; i++) ha_result_set(&group, i, st, &why);
    suite->close(loop->run, &group);
    loop->groups++;
    free(point);
    free(id);
    free(row);
}

void loop_run(struct loop *loop, const struct ha_suite_config *given)
{
    struct ha_suite_config config = { .seed = 1 };
    struct ha_why why = { "" };
    if (given) config = *given;
    assert_int_equal(ha_machine_create(&loop->machine, NULL, &why), HA_OK);
    config.machine = loop->machine;
    assert_int_equal(suite->begin(&loop->run, &config, NULL, &why), HA_OK);
    for (size_t i = 0, next; i < loop->plan.entries; i = next) {
        const struct ha_plan_entry *e = loop->plan.entry;
        for (next = i + 1; next < loop->plan.entries && suite->together(e[next - 1].point, e[next].point);) next++;
        run_group(loop, i, next - i);
    }
}

const struct ha_merge_result *loop_row(const struct loop *loop, const char *id)
{
    for (size_t i = 0; i < loop->plan.entries; i++)
        if (!strcmp(loop->plan.entry[i].id, id)) return &loop->row[i];
    fail_msg("no row %s", id);
    return NULL;
}

void loop_close(struct loop *loop)
{
    if (loop->run) suite->end(loop->run);
    ha_machine_destroy(loop->machine);
    ha_plan_free(&loop->plan);
    free(loop->row);
    free(loop->entry);
    *loop = (struct loop){ 0 };
}
