#ifndef HA_TEST_STAGE_H
#define HA_TEST_STAGE_H

/* What the tests of the stages share. */

#include "harness/base/test.h"
#include "suites/merge/fills.h"
#include "suites/merge/stage.h"

extern const struct ha_kernels ha_kernels_c;
extern const struct ha_device_api ha_device_host;

static inline enum ha_status run(struct ha_subject *subject, enum ha_stage stage, enum ha_form form,
                                 enum ha_dtype dtype, struct ha_judgement *j, struct ha_why *why)
{
    const struct ha_merge_case c = { .name = "stage", .stage = stage, .states_min = 2, .fill = ha_fill_tokens };
    *j = (struct ha_judgement){ .status = HA_OK };
    return ha_merge_stage(&c, subject, form, dtype, 5, j, why);
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

/* in the first form and type, and in every one */
static inline void expect_plain(struct ha_subject *subject, enum ha_stage stage, enum ha_status want, const char *says)
{
    expect(subject, stage, HA_FORM_NATURAL, HA_F32, want, says);
}
static inline void expect_all(struct ha_subject *subject, enum ha_stage stage, enum ha_status want, const char *says)
{
    for (unsigned form = 0; form < HA_FORM_COUNT; form++)
        for (unsigned dtype = 0; dtype < HA_DTYPE_COUNT; dtype++)
            expect(subject, stage, (enum ha_form)form, (enum ha_dtype)dtype, want, says);
}

static size_t overwritten; /* the state that this writes to */
static inline void merge_over_input(const struct ha_merge *m)
{
    ha_kernels_c.merge(m);
    m->states[overwritten].lse[0] += 1;
}

static inline struct ha_subject direct(const struct ha_merge_traits *traits, void (*merge)(const struct ha_merge *))
{
    struct ha_subject s;
    ha_subject_direct(&s, "test", traits, merge);
    return s;
}

/* A device of this test: the embedded one, some entries changed, with these kernels or those of kernels/c. */

static struct ha_device *device;

static inline struct ha_subject on(const struct ha_device_api *api, const struct ha_kernels *kernels)
{
    struct ha_subject s;
    struct ha_why why;
    const struct ha_device_config config = { .kernels = kernels ? kernels : &ha_kernels_c };
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

#endif
