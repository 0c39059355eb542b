#ifndef HA_COMPARE_HISTORY_H
#define HA_COMPARE_HISTORY_H

/* Figures over the nights of a record (record.h), each a curve, with the nights from which on it was another
 * (change_points.h). False change points are held down over all curves (Benjamini & Hochberg, shift.h). */

#include "harness/compare/record.h"

/* A night of a curve. */
struct ha_curve_night {
    size_t night; /* of the record */
    size_t processes;
    double value, lo,
        hi;       /* the median of its processes and its 95% interval; the range where they are fewer than six */
    bool change;  /* another level begins here */
    bool gradual; /* and it came by and by */
    double before, after; /* of a change: medians of the nights from the change before, and up to the next */
};

/* A figure of a case on one machine. */
struct ha_curve {
    const struct ha_recorded_case *of;
    const struct ha_recorded_figure *figure;
    size_t machine;               /* 0, 1, ... by the first night of each */
    struct ha_curve_night *night; /* [count], at least one; nights without the case are not there */
    size_t count, changes;
    double median; /* of its nights */
    double p;      /* how likely all of it is where nothing changes; NaN: too few nights are known */
};

/* Where nothing has changed, one history in a hundred shows a change. */
#define HA_HISTORY_ALPHA 0.01

struct ha_history {
    const struct ha_record *record;
    size_t *machine; /* [nights] on which each was */
    size_t machines;
    struct ha_curve *curve; /* [count] by case, figure, machine */
    size_t count, room;
    size_t tested; /* curves that have nights enough to show a change */
    double level;  /* from which p on there is a change */
};

/* filter: terms joined by commas, all of which the id has to have: KEY=VALUE (KEY!=VALUE: not) as they stand in it, or
 * a part of it; NULL: every case. figure: its name; NULL: the first time or rate of each case, and each reading of
 * HA_MACHINE_CASE. HA_ERROR: no memory, or nothing fits, and why says what there is. To be freed after a failure, too.
 */
enum ha_status ha_history_make(struct ha_history *out, const struct ha_record *record, const char *filter,
                               const char *figure, struct ha_why *why);
void ha_history_free(struct ha_history *history);

#endif
