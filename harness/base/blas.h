#ifndef HA_BASE_BLAS_H
#define HA_BASE_BLAS_H

/* What this machine has of BLAS and LAPACK: what the environment's HABENCH_BLAS names, or the usual libraries. Loaded
 * when it is first asked for, kept, and told to start no threads: it runs on the thread that calls, on several at once
 * if need be. Its integers have 32 bits. */

#include <stddef.h>

/* CBLAS: row-major */
enum { HA_CBLAS_ROWS = 101, HA_CBLAS_AS_IS = 111, HA_CBLAS_TRANSPOSED = 112 };
typedef void ha_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                      const float *b, int ldb, float beta, float *c, int ldc);
/* LAPACK: column-major, everything by reference, and the length of the text behind */
typedef void ha_dgesdd(const char *job, const int *m, const int *n, double *a, const int *lda, double *s, double *u,
                       const int *ldu, double *vt, const int *ldvt, double *work, const int *lwork, int *iwork,
                       int *info, size_t job_length);

struct ha_blas {
    ha_sgemm *sgemm;   /* NULL: no_blas says why */
    ha_dgesdd *dgesdd; /* NULL: no_lapack says why */
    char no_blas[160], no_lapack[160];
};
const struct ha_blas *ha_blas(void);
/* NULL, or why there is no BLAS. Where a usual one lies in the loader's way it is not loaded to be asked. */
const char *ha_blas_absent(void);

#endif
