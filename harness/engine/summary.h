#ifndef HA_ENGINE_SUMMARY_H
#define HA_ENGINE_SUMMARY_H

/* The end of a run for a reader: what passes and is suspect all the same, the tables of each suite, what is wrong and
 * how to run it again, why what is missing is missing, the machine, the totals. */

#include "harness/api/exit.h"
#include "harness/engine/plan.h"
#include "harness/report/folder.h"

struct ha_summary {
    const struct ha_plan *plan;
    const struct ha_folder *folder;
    bool measured;
    bool random;      /* points are no tables */
    const char *exec; /* the command of --exec, or NULL */
    /* made by ha_summary_results, of the suite asked for last */
    struct ha_entry *entry;
    struct ha_section *section;
    size_t sections;
};

/* The rows of one suite in the order of the plan, valid until the next call. Of several processes the one whose first
 * time (or first figure) is in the middle stands for the case, unless one of them is not a pass. */
struct ha_results ha_summary_results(struct ha_summary *summary, const struct ha_suite *suite);
/* Everything but the machine and the totals. false: the whole is wrong (suite->conclude), and why says so. */
bool ha_summary_print(FILE *out, struct ha_summary *summary, struct ha_why *why);
/* The last line, which scripts read: `N passed, N failed, N skipped`; an error has failed; waived, unchecked and not
 * run are skipped. folder: where the rows are, where that is not the folder that was asked for; else NULL. */
void ha_summary_print_totals(FILE *out, const struct ha_folder_totals *totals, const char *folder);
/* Says which times and rates only some processes of a case have, whose rows have passed; returns how many. out NULL:
 * says nothing. */
size_t ha_summary_lost(FILE *out, const struct ha_summary *summary);
/* The exit code of these totals; why says what is behind it. not_run: why a case was not, if one was not. */
enum ha_exit ha_summary_exit(const struct ha_folder_totals *totals, bool right, const char *not_run,
                             struct ha_why *why);
void ha_summary_free(struct ha_summary *summary);

#endif
