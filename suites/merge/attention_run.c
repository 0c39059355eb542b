#include "suites/merge/attention_run.h"

#include "harness/base/clock.h"
#include "harness/base/stop.h"
#include "harness/base/try.h"
#include "harness/base/why.h"

enum { SUBJECTS_MAX = 64 };

/* The verdict and, for the table, its text. */
static enum ha_status check(const struct ha_attention_run *run, size_t s, size_t i, uint64_t *lost_ns,
                            struct ha_attention_result *got, struct ha_why *why)
{
    if (*lost_ns > ha_merge_patience_ns)
        return ha_why(why, HA_ERROR, "given up: it has not answered for %.0f s in all", (double)*lost_ns / 1e9);
    const uint64_t begin_ns = ha_now_ns();
    const enum ha_status st = ha_attention_check(&run->subject[s], i, run->seed, got, why);
    if (st == HA_ERROR) *lost_ns += ha_now_ns() - begin_ns;
    return st;
}

static void print_cell(enum ha_status st, double ratio)
{
    if (st == HA_OK) printf(" %8.3f", ratio);
    else printf(" %8s", st == HA_WAIVED ? "waived" : st == HA_FAIL ? "FAIL" : "ERROR");
}

enum ha_status ha_attention_run(const struct ha_attention_run *run, struct ha_merge_results *results,
                                struct ha_why *why)
{
    uint64_t lost_ns[SUBJECTS_MAX] = { 0 };
    printf("attention's own LSE        rows");
    for (size_t s = 0; s < run->subjects; s++) printf(" %8s", run->subject[s].name);
    printf("\n");
    for (size_t i = 0; i < ha_attention_cases_count && !ha_stop; i++) {
        struct ha_attention_result got[SUBJECTS_MAX] = { { 0 } };
        struct ha_why reason[SUBJECTS_MAX] = { { "" } };
        enum ha_status st[SUBJECTS_MAX];
        uint64_t rows = 0;
        run->progress(run->arg, i, ha_attention_cases_count);
        for (size_t s = 0; s < run->subjects; s++) {
            st[s] = check(run, s, i, &lost_ns[s], &got[s], &reason[s]);
            rows = got[s].rows > rows ? got[s].rows : rows;
            HA_TRY(ha_merge_results_add(results, "attention", ha_attention_cases[i].name, run->subject[s].name, st[s],
                                        got[s].ratio, reason[s].text, why));
        }
        printf("    %-18s %8llu", ha_attention_cases[i].name, (unsigned long long)rows);
        for (size_t s = 0; s < run->subjects; s++) print_cell(st[s], got[s].ratio);
        printf("\n");
        for (size_t s = 0; s < run->subjects; s++)
            if (st[s] == HA_FAIL || st[s] == HA_ERROR) printf("      %s: %s\n", run->subject[s].name, reason[s].text);
    }
    printf("\n");
    return HA_OK;
}
