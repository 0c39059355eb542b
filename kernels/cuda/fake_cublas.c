/* A stand-in for libcublas, for the emulated device: the entries that blas.c asks for, which compute with plain loops,
 * in stream order. It is strict about what a library may be lenient about: leading dimensions, types that go together,
 * stream and workspace set before each call, the workspace not too small; matrices of 16-bit types that do not begin at
 * multiples of 16 bytes give NaN. Sums of what is stored in 16 bits are truncated at every addition, as tensor cores
 * may do. It has the library's faults:
 *   - a handle that is made, and the first product of a shape, load kernels, which waits for all that is enqueued
 *     (openxla/xla#5103 and #38932, NVIDIA/nvbench#136);
 *   - a stream that is set takes the workspace away (documentation of cublasSetStream);
 *   - parts of a sum are added in the type of the result, unless the math mode forbids it (pytorch/pytorch#67946);
 *   - binary32 is read as TF32 where NVIDIA_TF32_OVERRIDE=1 asks for it (lightseekorg/tokenspeed#35) and the compute
 *     type is not the pedantic one.
 * What it was asked for is counted, and it fails when told to:
 *   HA_FAKE_CUBLAS_FAIL=cublasGemmEx:13    every such call gives that status; nothing else than such a pair is taken
 * FAKE_CUBLAS_OLD: one that has no names of statuses, which are there since 11.4.
 * FAKE_CUBLAS_UNBOUND: one beside a libcublasLt of another version, which lacks what it calls
 * (hpcaitech/ColossalAI#4059).
 */

#include "harness/base/numeric.h"
#include "kernels/cuda/fake.h"

#include <cuda_runtime_api.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUCCESS = 0,
    NOT_INITIALIZED = 1,
    ALLOC_FAILED = 3,
    INVALID_VALUE = 7,
    EXECUTION_FAILED = 13,
    NOT_SUPPORTED = 15
};
enum {
    WORKSPACE_LEAST = 4 << 20,
    DISALLOW_REDUCED_PRECISION_REDUCTION = 16,
    COMPUTE_32F = 68,
    COMPUTE_32F_PEDANTIC = 69
};

struct call {
    struct call *next;
    int trans_a, trans_b, m, n, k, lda, ldb, ldc, count;
    enum ha_dtype type, type_c;
    bool reduces, tf32;
    float alpha, beta;
    const void *a, *b; /* the matrix, or an array of them in device memory */
    void *c;
};
struct handle {
    cudaStream_t stream;
    bool has_stream;
    int math_mode;
    void *workspace, *own; /* own: what the library allocates for itself */
    size_t workspace_bytes;
    struct call *calls; /* a graph may run them again */
    pthread_mutex_t lock;
};

/* ---- what tests look at: dlsym */

EXPORT extern int fake_cublas_handles; /* made and not destroyed */
EXPORT extern unsigned fake_cublas_gemm_batched, fake_cublas_problems;
int fake_cublas_handles;
unsigned fake_cublas_gemm_batched, fake_cublas_problems;

typedef cudaError_t host_fn(cudaStream_t stream, cudaHostFn_t fn, void *arg);
typedef cudaError_t alloc_fn(void **ptr, size_t bytes);
typedef cudaError_t free_fn(void *ptr);
typedef void load_fn(void);
static struct {
    host_fn *host_fn;
    alloc_fn *alloc;
    free_fn *free;
    load_fn *load;
} runtime;

/* ---- what fails */

static const char *const failing[] = { "cublasCreate",      "cublasSetStream", "cublasSetWorkspace",
                                       "cublasSetMathMode", "cublasGemmEx",    "cublasGemmBatchedEx" };

/* The status behind an entry's name, or SUCCESS. */
static int status_of(const char *told, const char *name)
{
    const size_t n = strlen(name);
    return !strncmp(told, name, n) && told[n] == ':' ? atoi(told + n + 1) : SUCCESS;
}

static int told_to_fail(const char *name)
{
    const char *told = getenv("HA_FAKE_CUBLAS_FAIL");
    return told ? status_of(told, name) : SUCCESS;
}

/* NULL, or what of the environment is not understood. */
static const char *environment_wrong(void)
{
    static char wrong[128];
    const char *told = getenv("HA_FAKE_CUBLAS_FAIL");
    for (size_t i = 0; told && i < sizeof failing / sizeof *failing; i++)
        if (status_of(told, failing[i])) return NULL;
    if (told) snprintf(wrong, sizeof wrong, "HA_FAKE_CUBLAS_FAIL=%.60s: not an entry that fails and its status", told);
    return told ? wrong : NULL;
}

/* NULL, or why it is of no use */
ENTRY_OF(const char *, ha_emulated_cublas_use, host_fn *launch, alloc_fn *alloc, free_fn *give, load_fn *load)
{
    runtime.host_fn = launch;
    runtime.alloc = alloc;
    runtime.free = give;
    runtime.load = load;
    return environment_wrong();
}

/* ---- the handle */

ENTRY(cublasCreate_v2, void **out)
{
    const int told = told_to_fail("cublasCreate");
    if (told) return told;
    runtime.load();
    struct handle *h = calloc(1, sizeof *h);
    if (!h) abort();
    if (runtime.alloc(&h->own, 4096) != cudaSuccess) { /* as where a stream is being captured */
        free(h);
        return ALLOC_FAILED;
    }
    pthread_mutex_init(&h->lock, NULL);
    __atomic_add_fetch(&fake_cublas_handles, 1, __ATOMIC_RELAXED);
    *out = h;
    return SUCCESS;
}

ENTRY(cublasDestroy_v2, void *handle)
{
    struct handle *h = handle;
    for (struct call *c = h->calls, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    pthread_mutex_destroy(&h->lock);
    runtime.free(h->own);
    free(h);
    __atomic_sub_fetch(&fake_cublas_handles, 1, __ATOMIC_RELAXED);
    return SUCCESS;
}

ENTRY(cublasSetStream_v2, void *handle, cudaStream_t stream)
{
    struct handle *h = handle;
    h->stream = stream;
    h->has_stream = true;
    h->workspace = NULL; /* as the library does */
    return told_to_fail("cublasSetStream");
}

ENTRY(cublasSetWorkspace_v2, void *handle, void *workspace, size_t bytes)
{
    struct handle *h = handle;
    if ((uintptr_t)workspace % 256) return INVALID_VALUE;
    h->workspace = workspace;
    h->workspace_bytes = bytes;
    return told_to_fail("cublasSetWorkspace");
}

ENTRY(cublasSetMathMode, void *handle, int mode)
{
    ((struct handle *)handle)->math_mode = mode;
    return told_to_fail("cublasSetMathMode");
}

#ifndef FAKE_CUBLAS_OLD
ENTRY_OF(const char *, cublasGetStatusName, int status)
{
    return status == NOT_INITIALIZED    ? "CUBLAS_STATUS_NOT_INITIALIZED"
           : status == INVALID_VALUE    ? "CUBLAS_STATUS_INVALID_VALUE"
           : status == EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
           : status == NOT_SUPPORTED    ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                        : "unknown cuBLAS status";
}
#endif

/* ---- products, column-major */

static bool type_of(int cuda_type, enum ha_dtype *out)
{
    static const int types[] = { [HA_F32] = 0, [HA_F16] = 2, [HA_BF16] = 14 };
    for (int t = 0; t < HA_DTYPE_COUNT; t++)
        if (types[t] == cuda_type) {
            *out = (enum ha_dtype)t;
            return true;
        }
    return false;
}

/* x + y z: rounded, or with the bits beyond 24 cut off */
static inline float sum_of(float x, float y, float z, bool cut)
{
    double sum = (double)x + (double)y * (double)z;
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if (cut) bits &= ~(uint64_t)0x1fffffff;
    memcpy(&sum, &bits, sizeof sum);
    return (float)sum;
}

/* sum [m] += x [k][m] times y [k]: of memory that nobody else has, so that sanitizers need not look */
__attribute__((no_sanitize("thread", "address", "undefined"))) static void add_products(float *sum, const float *x,
                                                                                        const float *y, size_t m,
                                                                                        size_t k, bool cut)
{
    for (size_t l = 0; l < k; l++)
        for (size_t i = 0; i < m; i++) sum[i] = sum_of(sum[i], x[l * m + i], y[l], cut);
}

/* of binary32 the 10 bits that TF32 has */
static float seen(float x, bool tf32)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (tf32) bits &= ~(uint32_t)0x1fff;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* An operand as [rows][columns]: in memory element (r, c) is at r ld + c, or across at c ld + r. */
static float *operand(const void *from, const struct call *call, bool across, size_t rows, size_t columns, size_t ld)
{
    float *to = malloc((rows * columns + 1) * sizeof *to);
    if (!to) abort();
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            to[r * columns + c] = seen(ha_load(from, across ? c * ld + r : r * ld + c, call->type), call->tf32);
    return to;
}

static float rounded(float x, enum ha_dtype type)
{
    uint32_t room;
    ha_store(&room, 0, type, x);
    return ha_load(&room, 0, type);
}

static void multiply(const struct call *c, const void *a, const void *b, void *out)
{
    const bool aligned = c->type == HA_F32 || ((uintptr_t)a | (uintptr_t)b) % 16 == 0;
    const size_t m = (size_t)c->m, n = (size_t)c->n, k = (size_t)c->k;
    float *x = operand(a, c, c->trans_a, k, m, (size_t)c->lda), *y = operand(b, c, c->trans_b, n, k, (size_t)c->ldb),
          *sum = malloc((m + 1) * sizeof *sum);
    if (!sum) abort();
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < m; i++) sum[i] = aligned ? 0 : NAN;
        for (size_t l = 0, part; l < k; l += part) {
            part = c->reduces && l == 0 && k > 1 ? k / 2 : k - l;
            add_products(sum, x + l * m, y + j * k + l, m, part, c->type != HA_F32);
            for (size_t i = 0; i < m && c->reduces; i++) sum[i] = rounded(sum[i], c->type_c);
        }
        for (size_t i = 0, at = j * (size_t)c->ldc; i < m; i++, at++) {
            const float before = c->beta < 0.0f || c->beta > 0.0f ? c->beta * ha_load(out, at, c->type_c) : 0;
            ha_store(out, at, c->type_c, c->alpha * sum[i] + before);
        }
    }
    free(x), free(y), free(sum);
}

static void run(void *arg)
{
    const struct call *c = arg;
    if (!c->count) multiply(c, c->a, c->b, c->c);
    for (int i = 0; i < c->count; i++)
        multiply(c, ((void *const *)c->a)[i], ((void *const *)c->b)[i], ((void *const *)c->c)[i]);
}

static bool fits(const struct call *c)
{
    const int rows_a = c->trans_a ? c->k : c->m, rows_b = c->trans_b ? c->n : c->k;
    return c->m >= 0 && c->n >= 0 && c->k >= 0 && c->lda >= (rows_a ? rows_a : 1) && c->ldb >= (rows_b ? rows_b : 1)
           && c->ldc >= (c->m ? c->m : 1) && c->trans_a >= 0 && c->trans_a <= 1 && c->trans_b >= 0 && c->trans_b <= 1;
}

/* Calls of one shape use one kernel. */
static bool loaded(struct handle *h, const struct call *call)
{
    pthread_mutex_lock(&h->lock);
    const struct call *c = h->calls;
    while (c
           && !(c->m == call->m && c->n == call->n && c->k == call->k && c->trans_a == call->trans_a
                && c->trans_b == call->trans_b && c->type == call->type && c->type_c == call->type_c
                && !c->count == !call->count))
        c = c->next;
    pthread_mutex_unlock(&h->lock);
    return c;
}

/* count: 0, or the matrices of a batch */
static int enqueue(struct handle *h, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a,
                   int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c,
                   int ldc, int count, int compute)
{
    struct call call = { NULL, op_a, op_b, m, n, k, lda, ldb, ldc, count, .a = a, .b = b, .c = c };
    enum ha_dtype type_of_b;
    if (!h || !h->has_stream || !h->workspace || h->workspace_bytes < WORKSPACE_LEAST) return NOT_INITIALIZED;
    if (!type_of(type_a, &call.type) || !type_of(type_b, &type_of_b) || !type_of(type_c, &call.type_c))
        return INVALID_VALUE;
    if (type_of_b != call.type || (call.type_c != HA_F32 && call.type_c != call.type)) return NOT_SUPPORTED;
    if (compute != COMPUTE_32F && compute != COMPUTE_32F_PEDANTIC) return NOT_SUPPORTED;
    if (!fits(&call)) return INVALID_VALUE;
    memcpy(&call.alpha, alpha, sizeof call.alpha);
    memcpy(&call.beta, beta, sizeof call.beta);
    const char *tf32 = getenv("NVIDIA_TF32_OVERRIDE");
    call.tf32 = call.type == HA_F32 && compute != COMPUTE_32F_PEDANTIC && tf32 && !strcmp(tf32, "1");
    call.reduces = call.type_c != HA_F32 && !(h->math_mode & DISALLOW_REDUCED_PRECISION_REDUCTION);
    if (!loaded(h, &call)) runtime.load();
    struct call *kept = malloc(sizeof *kept);
    if (!kept) abort();
    *kept = call;
    pthread_mutex_lock(&h->lock);
    kept->next = h->calls;
    h->calls = kept;
    pthread_mutex_unlock(&h->lock);
    return runtime.host_fn(h->stream, run, kept) == cudaSuccess ? SUCCESS : EXECUTION_FAILED;
}

#ifdef FAKE_CUBLAS_UNBOUND
extern void cublasLt_of_another_version(void);
#endif
ENTRY(cublasGemmEx, void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int type_a,
      int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute,
      int algorithm)
{
    const int told = told_to_fail("cublasGemmEx");
    if (told) return told;
#ifdef FAKE_CUBLAS_UNBOUND
    cublasLt_of_another_version();
#endif
    if (algorithm != -1) return NOT_SUPPORTED;
    return enqueue(handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, 0,
                   compute);
}

ENTRY(cublasGemmBatchedEx, void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha, void *const *a,
      int type_a, int lda, void *const *b, int type_b, int ldb, const void *beta, void *const *c, int type_c, int ldc,
      int count, int compute, int algorithm)
{
    const int told = told_to_fail("cublasGemmBatchedEx");
    if (told) return told;
    if (algorithm != -1 || count <= 0) return INVALID_VALUE;
    fake_cublas_gemm_batched++;
    fake_cublas_problems += (unsigned)count;
    return enqueue(handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, (void *)(uintptr_t)c,
                   type_c, ldc, count, compute);
}
