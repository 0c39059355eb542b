#ifndef HA_ENGINE_FAKE_SUITES_H
#define HA_ENGINE_FAKE_SUITES_H

/* For tests: two suites whose points have a key of each kind, in place of the registry's. */

#include "harness/api/suite.h"

struct fake_point {
    size_t kind;   /* circle, square */
    uint64_t size; /* 1 to 100; small and large follow from it */
    uint64_t count;
    uint64_t grid[2];
    double ratio, steps;
    size_t color;
    char name[16];
    uint64_t threads; /* 0: all */
    uint64_t side;    /* of a square; as its size by default */
    double param[3];  /* radius; corner, whole; edge, a word */
    char device[16];
};

/* "shapes": an id begins with the kind. There is no square of a size above 90; a count of 13 is an error; a circle has
 * no side. "moves": way=up|down, all by default; piece, seed, note, memo; fast, of those that go up. */
extern const struct ha_suite fake_shapes, fake_moves;

#endif
