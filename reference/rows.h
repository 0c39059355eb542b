#ifndef HA_REFERENCE_ROWS_H
#define HA_REFERENCE_ROWS_H

/* What the oracle's passes over K and V share: rows converted to binary32 once, a few at a
 * time, for all queries that read them. */

#include "harness/api/reference.h"

#include <math.h>

static inline size_t ha_ref_smaller(size_t a, size_t b) { return a < b ? a : b; }

/* HA_REF_TILE is also the width of the pairwise sums over keys: a sum of n terms has a path of
 * 3 additions, then one compensated addition for each tile. */
enum { HA_REF_TILE = 8 };

struct ha_ref_tile {
    size_t first, rows, dim;                  /* rows past `rows` are zero */
    float data[HA_REF_TILE * HA_REF_DIM_MAX]; /* [HA_REF_TILE][dim] */
};

/* of K, or of V */
enum ha_ref_side { HA_REF_K, HA_REF_V };
void ha_ref_tile_load(struct ha_ref_tile *tile, const struct ha_rows *rows, enum ha_ref_side side, size_t first,
                      size_t dim, enum ha_dtype dtype);

/* s[first + r] = scale q.k and a[first + r] = |scale| sum |q_l k_l|, of the tile's first `rows` rows */
void ha_ref_tile_score(const struct ha_ref_tile *tile, size_t rows, const float *q, double scale, double *s, double *a);

/* sum[i] + rest[i] += sum over rows of w[first + r] * row r[i], for the first `rows` rows; two-sum, so that
 * sum + rest is good to a few ulp at any number of keys */
void ha_ref_tile_weigh(const struct ha_ref_tile *tile, size_t rows, const double *w, double *sum, double *rest);

/* A softmax beside what an implementation with the bound's parameters may make of it. */
struct ha_ref_softmax {
    double sum, max;    /* D = sum of exp(s - max), and max */
    double theta, lost; /* Theta, and its part n eta / D */
};

/* Scores and magnitudes become weights w_j = exp(s_j - max) and spreads p_j theta_j, p_j = w_j / D, in
 * place. A score of -inf weighs 0. No key, or scores of -inf only: D = 0 and max = -inf. */
struct ha_ref_softmax ha_ref_softmax(double *s, double *a, size_t keys, const struct ha_bound *b);

#endif
