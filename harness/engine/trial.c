#include "harness/engine/trial.h"

#include "harness/base/clock.h"
#include "harness/base/why.h"
#include "harness/engine/child.h"
#include "harness/engine/point.h"
#include "harness/report/row.h"

#include <stdlib.h>
#include <string.h>

struct trial {
    const struct ha_suite *suite;
    enum ha_verdict verdict;
};

/* What the process says may be anything, as its code is a stranger's. */
static void hear(void *arg, unsigned kind, const void *bytes, size_t size)
{
    struct trial *t = arg;
    const size_t head = sizeof(struct ha_said_head);
    if (kind != HA_SAID_ROW || size != head + t->suite->row_bytes) return;
    void *row = malloc(t->suite->row_bytes);
    if (!row) return;
    memcpy(row, (const char *)bytes + head, t->suite->row_bytes);
    if (ha_fields_mend(t->suite, row)) t->verdict = ha_result_in(row)->verdict;
    free(row);
}

static struct ha_results none_before(void *arg, const struct ha_suite *suite)
{
    return (struct ha_results){ .entries = 0 };
}

enum ha_verdict ha_trial(const struct ha_serve *like, const struct ha_suite *suite, const void *point,
                         uint64_t limit_ns)
{
    char id[HA_ID_MAX];
    struct trial t = { suite, HA_NOT_RUN };
    struct ha_plan_entry entry = { .suite = suite, .point = (void *)(uintptr_t)point, .id = id, .from = id };
    const struct ha_plan plan = { .entry = &entry, .entries = 1 };
    struct ha_serve serve = *like;
    struct ha_child *child = NULL;
    struct ha_why why;
    const struct ha_child_work work = {
        .serve = ha_serve, .self = &serve, .limit_ns = limit_ns, .hear = hear, .arg = &t, .ours = true
    };
    const size_t room = sizeof(struct ha_job) + sizeof(size_t);
    serve.plan = &plan;
    serve.before = none_before;
    serve.server = NULL;
    ha_point_print(suite, point, id, sizeof id);
    if (ha_child_create(&child, &work, room, &why) != HA_OK) return HA_NOT_RUN;
    const uint64_t begin_ns = ha_now_ns();
    struct ha_job *job = (struct ha_job *)(void *)ha_child_room(child).base;
    *job = (struct ha_job){ .cap_ns = limit_ns, .count = 1 };
    job->entry[0] = 0;
    const bool answered = ha_child_call(child, job, NULL, NULL, 0, &why) == HA_OK,
               late = ha_now_ns() - begin_ns >= limit_ns;
    ha_child_destroy(child);
    return answered || t.verdict ? t.verdict : late ? HA_NOT_RUN : HA_VERDICT_ERROR;
}
