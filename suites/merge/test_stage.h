#ifndef HA_TEST_STAGE_H
#define HA_TEST_STAGE_H

/* What the tests of the stages share. */

#include "harness/base/clock.h"
#include "harness/base/rng.h"
#include "suites/merge/stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

extern const struct ha_kernels ha_kernels_c;
extern const struct ha_device_api ha_device_host;

#define FOR_FORMS_AND_TYPES(form, dtype)                                              \
    for (enum ha_form form = HA_FORM_NATURAL; (unsigned)form < HA_FORM_COUNT; form++) \
        for (enum ha_dtype dtype = HA_F32; (unsigned)dtype < HA_DTYPE_COUNT; dtype++)

static inline void near_states(struct ha_merge_row *row)
{
    for (size_t i = 0; i < row->states * row->dim; i++) row->o[i] = (double)ha_rng_normal(row->seed, row->index, i);
    for (size_t m = 0; m < row->states; m++) {
        row->lse[m] = (double)ha_rng_normal(row->seed, 1000 + row->index, m);
        row->sum[m] = 1 + 3 * (double)ha_rng_uniform(row->seed, 2000 + row->index, m);
    }
}

static inline struct ha_merge_case case_of(enum ha_stage stage)
{
    return (struct ha_merge_case){ .name = "stage", .must = HA_MUST_BOUND, .stage = stage, .fill = near_states };
}

static uint64_t spent_ns[HA_STAGE_FLAG + 1], runs[HA_STAGE_FLAG + 1];

static inline enum ha_status run(struct ha_subject *subject, enum ha_stage stage, enum ha_form form,
                                 enum ha_dtype dtype, struct ha_judgement *j, struct ha_why *why)
{
    const struct ha_merge_case c = case_of(stage);
    *j = (struct ha_judgement){ .status = HA_OK };
    const uint64_t begin = ha_now_ns();
    const enum ha_status st = ha_merge_stage(&c, subject, form, dtype, 5, j, why);
    spent_ns[stage] += ha_now_ns() - begin;
    runs[stage]++;
    return st;
}

static inline void expect(struct ha_subject *subject, enum ha_stage stage, enum ha_form form, enum ha_dtype dtype,
                          enum ha_status want, const char *says)
{
    struct ha_judgement j;
    struct ha_why why;
    const enum ha_status st = run(subject, stage, form, dtype, &j, &why);
    if (st != want || !strstr(why.text, says))
        fail_msg("%s %s, stage %d: status %d '%s', and not %d '%s'", ha_form_name(form), ha_dtype_name(dtype),
                 (int)stage, (int)st, why.text, (int)want, says);
    if (st == HA_OK) assert_true(j.status == HA_OK && j.rows > 0 && j.ratio <= 1);
    if (st == HA_FAIL) assert_true(j.status == HA_FAIL);
}

static inline struct ha_subject direct(const struct ha_merge_traits *traits, void (*merge)(const struct ha_merge *))
{
    struct ha_subject s;
    ha_subject_direct(&s, "test", traits, merge);
    return s;
}

/* A device of this test: the embedded one, some entries changed. */

static struct ha_device *device;

static inline struct ha_subject on(const struct ha_device_api *api)
{
    struct ha_subject s;
    struct ha_why why;
    const struct ha_device_config config = { .kernels = &ha_kernels_c };
    if (api->open(&device, &config, &why) != HA_OK) fail_msg("%s", why.text);
    if (ha_subject_device(&s, "test", api, device, &why) != HA_OK) fail_msg("%s", why.text);
    return s;
}

static inline void close_device(struct ha_subject *s, const struct ha_device_api *api)
{
    ha_subject_close(s);
    assert_null(api->failure(device));
    api->close(device);
}

static inline int times(void **state)
{
    (void)state;
    static const char *const name[] = { "plain", "huge", "stream", "flag" };
    for (size_t i = 1; i < 4; i++)
        if (runs[i])
            printf("stage %-6s %4llu runs, %6.2f ms each\n", name[i], (unsigned long long)runs[i],
                   (double)spent_ns[i] * 1e-6 / (double)runs[i]);
    return 0;
}

#endif
