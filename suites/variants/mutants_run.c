#include "harness/base/why.h"
#include "suites/variants/case.h"
#include "suites/variants/check.h"
#include "suites/variants/mutants.h"
#include "harness/base/registry.h"
#include "harness/report/table.h"
#include "harness/base/try.h"

#include <stdio.h>
#include <string.h>

/* The verdict of a check: HA_OK, HA_FAIL, HA_WAIVED, HA_ERROR. */
static enum ha_status judge(struct ha_machine *machine, const char *isa, const struct ha_mutant *mutant, const char *id,
                            struct ha_why *why)
{
    const struct ha_variant *variant;
    struct ha_session session;
    struct ha_case c;

    HA_TRY(ha_case_parse(id, &c, why));
    variant = ha_variant_find(c.variant);
    if (!variant) return ha_why(why, HA_ERROR, "variant '%s': there is none of this name", c.variant);
    HA_TRY(ha_session_open(&session, machine, &c, variant, isa, mutant ? mutant->name : NULL, why));
    session.variant = ha_mutant_variant(mutant, variant);
    struct ha_check check = { .session = &session, .id = id };
    enum ha_status status = ha_check_run(&check, why);
    ha_check_free(&check);
    ha_session_close(&session);
    return status;
}

/* HA_OK: the defect was seen, and why says as what. */
static enum ha_status hunt(struct ha_machine *machine, const char *isa, const struct ha_mutant *m, struct ha_why *why)
{
    struct ha_why reason = { "" };
    enum ha_status sound = judge(machine, isa, NULL, m->id, &reason);

    if (sound == HA_WAIVED) return ha_why(why, HA_WAIVED, "%s", reason.text);
    if (sound != HA_OK) return ha_why(why, HA_FAIL, "its case does not pass without it: %.400s", reason.text);
    enum ha_status broken = judge(machine, isa, m, m->id, &reason);
    if (broken == HA_OK) return ha_why(why, HA_FAIL, "SURVIVED: '%s' passes with it", m->id);
    if (broken != HA_FAIL)
        return ha_why(why, HA_FAIL, "ended as %s and not as a failed check: %.400s",
                      broken == HA_WAIVED ? "waived" : "an error", reason.text);
    if (m->shown && !strstr(reason.text, m->shown))
        return ha_why(why, HA_FAIL, "was not seen as %s: %.400s", m->shown, reason.text);
    return ha_why(why, HA_OK, "%s", reason.text);
}

enum ha_status ha_mutants_run(const struct ha_run_options *options, struct ha_why *why)
{
    static const char *const word[] = { "killed", "ALIVE", "waived", "error" };
    struct ha_totals totals = { 0 };
    struct ha_machine *machine;

    HA_TRY(ha_machine_create(&machine, why));
    for (size_t i = 0; i < ha_mutants_count && !ha_stop; i++) {
        struct ha_why reason = { "" };
        enum ha_status status = hunt(machine, options->isa, &ha_mutants[i], &reason);
        totals.passed += status == HA_OK;
        totals.waived += status == HA_WAIVED;
        totals.failed += status == HA_FAIL || status == HA_ERROR;
        printf("%-21s %-6s  %s\n", ha_mutants[i].name, word[status], ha_mutants[i].breaks);
        printf("%30s%.200s\n", "", reason.text);
        if (status == HA_FAIL || status == HA_ERROR)
            ha_why(why, HA_FAIL, "%s: %.400s", ha_mutants[i].name, reason.text);
        fflush(stdout);
    }
    ha_machine_destroy(machine);
    ha_table_print_totals(stdout, &totals);
    if (ha_stop) return ha_why(why, HA_ERROR, "stopped");
    return totals.failed ? HA_FAIL : totals.passed ? HA_OK : HA_WAIVED;
}
