#ifndef HA_ENGINE_RANDOM_H
#define HA_ENGINE_RANDOM_H

/* Points drawn at random, and the smallest that fails like one of them. What may be drawn is said by `draw` of each key
 * (harness/api/suite.h). Point n of a seed is the same on every machine. */

#include "harness/api/suite.h"

struct ha_draw {
    uint64_t seed, point; /* the point-th of this seed */
    uint64_t given;       /* how many of those so far were points, and new ones */
    double balance;       /* what cheap ones among them cost more than dear ones */
};

/* A value of key i of a point. A number is of any magnitude as likely as of another, half of them at most one away from
 * a power of two; with a step each is as likely as another. */
void ha_draw_value(const struct ha_draw *draw, size_t i, const struct ha_key *key, char out[HA_VALUE_MAX]);
/* Whether the point costs no more than this draw may: a cheap one 1/2^12 of the largest or less; of half the others the
 * limit is 1/2^9, or less. */
bool ha_draw_affords(const struct ha_draw *draw, const struct ha_suite *suite, const void *point);
/* The draw was this point, a new one. Cheap and dear points cost as much, in all; what is next follows from that. */
void ha_draw_given(struct ha_draw *draw, const struct ha_suite *suite, const void *point);

/* Makes the point smaller, one key at a time, while `fails` says that it still does: plainer words, fewer parts of a
 * list, smaller numbers. Where what fails of a number fails of every larger one, the least is found. tries: how often
 * `fails` is asked at most. Returns whether anything became smaller. (shrink.c) */
bool ha_shrink(const struct ha_suite *suite, void *point, size_t tries, bool (*fails)(void *arg, const void *point),
               void *arg);

#endif
