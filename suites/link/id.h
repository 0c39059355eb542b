#ifndef HA_LINK_ID_H
#define HA_LINK_ID_H

/* One figure, one string: link:method=kernel,piece=4K,layout=scattered. What it leaves out is every one. */

#include "suites/link/method.h"

extern const size_t ha_link_piece_sizes[]; /* bytes, ascending */
enum { HA_LINK_PIECES = 10, HA_LINK_ID_MAX = 96 };

struct ha_link_point {
    const struct ha_link_method *method;
    size_t piece_bytes;
    bool scattered;
};

void ha_link_id_print(const struct ha_link_point *point, char out[HA_LINK_ID_MAX]);
/* "256", "4K", "16M" */
void ha_link_piece_print(size_t bytes, char out[16]);

/* Terms joined by commas, all of which a point must fit: key=value and key!=value of method, piece and layout; in a
 * filter any other term is a part of the id. HA_ERROR names the wrong key or value and the nearest right one. */
enum ha_status ha_link_terms_check(const char *terms, bool filter, struct ha_why *why);
bool ha_link_terms_fit(const char *terms, const struct ha_link_point *point);

#endif
