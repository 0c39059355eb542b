#ifndef HA_TEST_SESSION_H
#define HA_TEST_SESSION_H

/* For tests: one session at a time, over a machine of its own. */

#include "harness/base/registry.h"
#include "harness/base/test.h"
#include "harness/base/why.h"
#include "suites/variants/mutants.h"
#include "suites/variants/session.h"

#include <math.h>

/* written so that a NaN fails */
#define assert_near(a, b, tolerance) assert_true(fabs((a) - (b)) <= (tolerance))

static struct ha_why reason; /* of the last call that failed */
/* of a call that is given &reason */
#define assert_ok(call)                                              \
    do {                                                             \
        if ((call) != HA_OK) fail_msg("%s: %s", #call, reason.text); \
    } while (0)

static struct test_session {
    struct ha_machine *machine;
    struct ha_shared shared;
    struct ha_case c;
} opened;
static struct ha_session session;

/* Is to be closed whatever it returns. mutant: NULL, or the name of a planted defect. */
static inline enum ha_status try_session(const char *id, const char *mutant)
{
    const struct ha_mutant *planted = mutant ? ha_mutant_find(mutant) : NULL;
    opened = (struct test_session){ 0 };
    session = (struct ha_session){ 0 };
    assert_true(!mutant || planted);
    HA_TRY(ha_case_parse(id, &opened.c, &reason));
    HA_TRY(ha_machine_create(&opened.machine, NULL, &reason));
    HA_TRY(ha_shared_open(&opened.shared, opened.machine, false, &reason));
    return ha_session_open(&session, &opened.shared, &opened.c, planted, &reason);
}

static inline void open_session(const char *id)
{
    if (try_session(id, NULL) != HA_OK) fail_msg("%s: %s", id, reason.text);
}

static inline void close_session(void)
{
    ha_session_close(&session);
    ha_shared_close(&opened.shared);
    ha_machine_destroy(opened.machine);
}

/* of variants that need neither */
static inline enum ha_status no_prefill(struct ha_instance *self, size_t layer, const struct ha_prefill *in,
                                        struct ha_why *why)
{
    return HA_OK;
}
static inline void no_destroy(struct ha_instance *self) { (void)self; }

/* a pass of the session's variant */
static inline void begin_pass(struct ha_pass *p, bool checks)
{
    assert_ok(ha_pass_begin(p, &session, session.variant, session.param, checks, &reason));
}

#endif
