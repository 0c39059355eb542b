#ifndef HA_VARIANTS_CLAIMS_H
#define HA_VARIANTS_CLAIMS_H

/* What papers claim, beside what was measured here: a claim is data, read by one of a few forms over the rows of a
 * section of suites/claims.suite. docs/claims.md has them all. */

#include "harness/api/suite.h"

struct ha_row;

enum ha_claim_verdict { HA_CLAIM_HOLDS, HA_CLAIM_IN_SHAPE, HA_CLAIM_REFUTED, HA_CLAIM_NOT_APPLICABLE };
const char *ha_claim_verdict_name(enum ha_claim_verdict verdict);

struct ha_claim_point {
    const struct ha_row *row;
    double value; /* the claim's column, over that of its other variant */
};

struct ha_judgement {
    enum ha_claim_verdict verdict;
    char reason[256];  /* of not applicable; "" */
    char figures[640]; /* what was measured; "" where nothing was */
    char rule[256];    /* what holds and what is in shape, with the claim's limits */
};

struct ha_claim;
/* Says figures and rule, and returns the verdict of points of which there are at least claim->cases, without NaN. */
typedef enum ha_claim_verdict ha_claim_form(const struct ha_claim *claim, const struct ha_claim_point *point,
                                            size_t count, struct ha_judgement *out);

/* The values grow along both axes (`falls`: they fall) and are above a limit. holds: every value is above holds[0], and
 * the greater of any two points that differ in one axis alone is that further along it. in shape: the last point is
 * above in_shape[0] and above the first. */
ha_claim_form ha_claim_grows;
/* The largest value is at most holds[0], in_shape[0]; the least one at least. */
ha_claim_form ha_claim_most;
ha_claim_form ha_claim_least;
/* All values are within holds; within in_shape. */
ha_claim_form ha_claim_within;
/* Along the first axis the values begin above 1 and end below it, and first pass it within holds; in_shape. */
ha_claim_form ha_claim_crosses;
/* The least of `column` is at most holds[0] and the largest of `other` within a factor of two of holds[1]; in shape:
 * the latter at least in_shape[0] times the former. */
ha_claim_form ha_claim_range;
/* In each group the largest value is at most holds[0], in_shape[0] above the least. */
ha_claim_form ha_claim_spread;

struct ha_claim {
    const char *system, *text, *source; /* source: section and figure of the paper */
    const char *condition, *paper;      /* under which it is asked here; the paper's figure */
    const char *section;                /* of the suite file: its cases */
    const char *over_section;           /* those of `over`; NULL: the same */
    size_t cases;                       /* points that it takes */
    const char *variant, *over;   /* whose rows; NULL, or the variant whose column at the same other keys is divided by
                                   * that of `variant`: a speedup */
    const char *with, *over_with; /* NULL, or an option that the one and the other have: "key=value,key=value" */
    const char *column, *other;   /* of cases.csv; the second for ha_claim_range */
    const char *over_column;      /* of the other variant; NULL: the same */
    const char *axis[2]; /* columns, or options of the variant: along which the values are compared; NULL: none */
    bool falls;
    const char *group; /* a column, or NULL */
    double scale;      /* figures are printed times this, */
    const char *unit;  /* with this behind them */
    bool needs_link;   /* what it is about is the link or its device */
    ha_claim_form *form;
    double holds[2], in_shape[2];
};
extern const struct ha_claim ha_claims[];
extern const size_t ha_claims_count;

/* The claim by the rows on that device. */
void ha_claim_judge(const struct ha_claim *claim, const struct ha_results *results, const char *device,
                    struct ha_judgement *out);
/* All claims, for each device, where the run has a section that one of them is read from; nothing of a check. */
void ha_claims_print(FILE *out, const struct ha_results *results);

#endif
