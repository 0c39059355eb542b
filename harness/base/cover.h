#ifndef HA_BASE_COVER_H
#define HA_BASE_COVER_H

/* Covering lists: few rows of values in which every two values of two axes meet, or every value of each axis is. */

#include "harness/api/base.h"

struct ha_cover {
    size_t axes;
    const size_t *values; /* [axes] how many each has; value 0 is the cheapest, and goes with everything it can */
    /* What a row costs, more than 0; infinite: there is no such row. row: [axes] */
    double (*cost)(void *arg, const size_t *row);
    void *arg;
    double most;  /* rows that cost more are left out, and so are two values whose cheapest row does */
    double fixed; /* what any row costs besides */
};

/* The cheapest row with these two values: all others are 0, or where there is no such row, all but one. Returns its
 * cost, which is infinite where there is none. row: [axes], filled in */
double ha_cover_cheapest(const struct ha_cover *cover, size_t axis, size_t value, size_t other, size_t other_value,
                         size_t *row);
/* Rows one after the other, the same on every machine; the caller frees them. Greedy: each row has as many new pairs
 * for its cost as are found. HA_ERROR: no memory. */
enum ha_status ha_cover_make(const struct ha_cover *cover, size_t **rows, size_t *count);

/* Rows in which every value of each axis is at least once, as many as the longest axis has values or little more: what
 * stands beside what is drawn from the seed. A row costs at most most / HA_COVER_MIXED, or twice what the cheapest row
 * with the value does that it was made for. */
enum { HA_COVER_MIXED = 32 };
enum ha_status ha_cover_values(const struct ha_cover *cover, uint64_t seed, size_t **rows, size_t *count);

#endif
