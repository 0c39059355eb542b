#ifndef HA_TEST_SESSION_H
#define HA_TEST_SESSION_H

/* For tests: a session over a machine of its own. */

#include "harness/base/registry.h"
#include "harness/base/try.h"
#include "suites/variants/keys.h"
#include "suites/variants/session.h"

struct test_session {
    struct ha_machine *machine;
    struct ha_shared shared;
    struct ha_case c;
};

/* Is to be closed whatever it returns. mutant: NULL, or a planted defect. */
static inline enum ha_status test_session_open(struct test_session *t, struct ha_session *session, const char *id,
                                               const char *mutant, struct ha_why *why)
{
    *t = (struct test_session){ 0 };
    *session = (struct ha_session){ 0 };
    HA_TRY(ha_case_parse(id, &t->c, why));
    HA_TRY(ha_machine_create(&t->machine, NULL, why));
    HA_TRY(ha_shared_open(&t->shared, t->machine, why));
    return ha_session_open(session, &t->shared, &t->c, ha_variant_find(t->c.variant), mutant, why);
}

static inline void test_session_close(struct test_session *t, struct ha_session *session)
{
    if (session->shared) ha_session_close(session);
    ha_shared_close(&t->shared);
    ha_machine_destroy(t->machine);
}

#endif
