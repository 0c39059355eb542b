#ifndef HA_REPORT_FAKE_SUITE_H
#define HA_REPORT_FAKE_SUITE_H

/* For tests of the folder: two suites that measure nothing, and a folder of their rows. */

#include "harness/report/folder.h"

struct fake_row {
    struct ha_result result;
    double time_ns, lo_ns, hi_ns, rate_GBps;
    uint64_t big;
    char text[64];
    double sample_ns;
};
enum { FAKE_KIND, FAKE_SEED, FAKE_NOTE, FAKE_HIDDEN, FAKE_KEYS };
enum { FAKE_ROWS, FAKE_SUMMARY, FAKE_SAMPLES };

extern const struct ha_suite fake_suite;  /* fake.csv fake_summary.csv fake_samples.csv */
extern const struct ha_suite other_suite; /* other.csv: the same row with fewer columns, no class, no measure */
extern const struct ha_suite *const fake_suites[2];

/* A case and what its keys are; row n is always the same. */
struct fake_case {
    struct ha_folder_case of;
    char id[64];
    const char *key[FAKE_KEYS];
};
void fake_case(struct fake_case *out, size_t n, size_t process);
struct fake_row fake_row(size_t n, enum ha_verdict verdict);
/* lines of samples that a case has */
size_t fake_lines(size_t n);
enum { FAKE_FIGURES = 5 }; /* of a row that is not empty */

/* a folder of both suites, of the mode run, the build b and the options o */
struct ha_folder_options fake_options(const char *path, bool resume);
/* The whole case: its lines, a trace, its row. */
enum ha_status fake_write(struct ha_folder *folder, size_t n, enum ha_verdict verdict, struct ha_why *why);

#endif
