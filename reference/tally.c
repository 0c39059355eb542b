/* What the definitions count of what they judge, and how far a number of ties is known. */

#include "reference/definitions.h"

#include <math.h>

void ha_def_tally_add(struct ha_def_tally *t, double least, double most, double of)
{
    t->least += least;
    t->most += most;
    t->of += of;
}

void ha_def_tally_say(const struct ha_def_tally *t, const char *name, size_t layer, ha_def_count *say, void *arg)
{
    if (t->of > 0) say(arg, name, layer, t->least / t->of, t->most / t->of);
}

/* A vector that is off by e turns by no more than asin(e / |a|), and a cosine changes by no more than the angle. */
void ha_def_tally_cosine(struct ha_def_tally *t, const double *a, const double *a_off, const float *b, size_t dim)
{
    double ab = 0, aa = 0, bb = 0, off = 0;
    for (size_t d = 0; d < dim; d++) {
        ab += a[d] * (double)b[d];
        aa += a[d] * a[d];
        bb += (double)b[d] * (double)b[d];
        off += a_off[d] * a_off[d];
    }
    const double cosine = aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0, turn = off > 0 ? sqrt(off / aa) : 0;
    if (turn < 1) ha_def_tally_add(t, cosine - 2 * turn, cosine + 2 * turn, 1);
    else ha_def_tally_add(t, -1, 1, 1);
}

void ha_def_tally_new(struct ha_def_tally *t, const uint8_t *now, size_t count, const uint8_t *then, size_t then_count,
                      size_t size)
{
    size_t least = 0, most = 0;
    for (size_t i = 0; i < count; i++) {
        const enum ha_def_known was = i < then_count ? then[i] : HA_DEF_OUT;
        least += now[i] == HA_DEF_IN && was == HA_DEF_OUT;
        most += now[i] != HA_DEF_OUT && was != HA_DEF_IN;
    }
    ha_def_tally_add(t, (double)least, (double)(most < size ? most : size), (double)size);
}
