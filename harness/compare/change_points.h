#ifndef HA_COMPARE_CHANGE_POINTS_H
#define HA_COMPARE_CHANGE_POINTS_H

/* Where does a series of nights go over to another level? A stretch of nights is set against the rest of the series,
 * and where it differs its ends are change points; then the same within each part (circular binary segmentation:
 * Olshen, Venkatraman, Lucito & Wigler, Biostatistics 5(4), 2004). They differ by ranks (Mann & Whitney, Annals of
 * Mathematical Statistics 18, 1947), so that nothing is assumed of the nights but that their order says nothing while
 * nothing changes: not that they are normal, nor that the host has one speed. The unit of evidence is the night. */

#include "harness/api/base.h"

/* Fewer nights are no level of their own. */
enum { HA_CHANGE_NIGHTS = 3 };

struct ha_change_point {
    size_t at;    /* the first night of the new level */
    double size;  /* median of the nights from there to the next one, less that of the nights before, to the last one */
    bool gradual; /* the nights around it differ by less than half as much: it came by and by */
};

/* x: [n], logarithms, all finite. *p: how likely a stretch that differs by so much more than HA_SHIFT_LEAST is where
 * nothing changes, corrected for all stretches (Bonferroni). 1 of few nights. HA_ERROR: no memory. */
enum ha_status ha_change_points_chance(double *p, const double *x, size_t n, struct ha_why *why);
/* level: p has to be so small. out: room for n / HA_CHANGE_NIGHTS, ascending. HA_ERROR: no memory. */
enum ha_status ha_change_points_find(struct ha_change_point *out, size_t *count, const double *x, size_t n,
                                     double level, struct ha_why *why);
/* For how many nights a new level has to be there to be found in n nights at this level; 0: no change can be. */
size_t ha_change_points_age(size_t n, double level);
/* In how many pairs the last `age` of n nights have to be beyond the others, so that a new level is found; 0: no number
 * does. */
size_t ha_change_points_u(size_t n, size_t age, double level);

#endif
