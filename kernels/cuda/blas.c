/* cuBLAS: the products of a layer, and attention made of batched products. The library is found at run time, of any of
 * its versions with these entries; a handle for the device, which one call at a time lends to its stream. */

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/library.h"

#include "harness/base/seq_attend.h"
#include "harness/base/why.h"

#ifdef HA_CUDA_EMULATED
#include "kernels/cuda/emulation/runtime.h"
#endif

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* of the library's interface, as in its versions 11 to 13 */
enum { NOT_INITIALIZED = 1 };
enum { OP_N = 0, OP_T = 1, GEMM_DEFAULT = -1 };
enum { R_32F = 0, R_16F = 2, R_16BF = 14 };
enum { COMPUTE_32F = 68, COMPUTE_32F_PEDANTIC = 69 };
enum { DEFAULT_MATH = 0, MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16 };
#define ENTRIES(X)                                                                                                    \
    X(create, cublasCreate_v2, int, (void **handle))                                                                  \
    X(destroy, cublasDestroy_v2, int, (void *handle))                                                                 \
    X(set_stream, cublasSetStream_v2, int, (void *handle, cudaStream_t stream))                                       \
    X(set_workspace, cublasSetWorkspace_v2, int, (void *handle, void *workspace, size_t bytes))                       \
    X(set_math_mode, cublasSetMathMode, int, (void *handle, int mode))                                                \
    X(gemm, cublasGemmEx, int,                                                                                        \
      (void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda,  \
       const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute,               \
       int algorithm))                                                                                                \
    X(gemm_batched, cublasGemmBatchedEx, int,                                                                         \
      (void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha, void *const *a, int type_a, int lda, \
       void *const *b, int type_b, int ldb, const void *beta, void *const *c, int type_c, int ldc, int count,         \
       int compute, int algorithm))                                                                                   \
    X(status_name, cublasGetStatusName, const char *, (int status)) /* since 11.4 */
struct entries {
    ENTRIES(HA_CUDA_MEMBER)
};
static const struct ha_cuda_symbol symbols[] = { ENTRIES(HA_CUDA_SYMBOL) };
enum { SYMBOLS = sizeof symbols / sizeof *symbols, NEEDED = SYMBOLS - 1 };

#if !defined HA_CUDA_EMULATED && __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
static inline void same(void){ ENTRIES(HA_CUDA_SAME) }
#define IS(own, name) _Static_assert((own) == (int)(name), #name " has moved")
IS(NOT_INITIALIZED, CUBLAS_STATUS_NOT_INITIALIZED);
IS(OP_N, CUBLAS_OP_N);
IS(OP_T, CUBLAS_OP_T);
IS(GEMM_DEFAULT, CUBLAS_GEMM_DEFAULT);
IS(R_32F, CUDA_R_32F);
IS(R_16F, CUDA_R_16F);
IS(R_16BF, CUDA_R_16BF);
IS(COMPUTE_32F, CUBLAS_COMPUTE_32F);
IS(COMPUTE_32F_PEDANTIC, CUBLAS_COMPUTE_32F_PEDANTIC);
IS(DEFAULT_MATH, CUBLAS_DEFAULT_MATH);
IS(MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
#endif

struct ha_cuda_blas {
    pthread_mutex_t lock; /* stream, workspace and call go together */
    void *handle;         /* or NULL: not made yet */
    char absent[160];
    struct entries call;
};

/* What the library is given to work in: with it, it allocates nothing, so that streams do not wait for each other and
 * calls can be captured. NVIDIA's advice for sm_90; 4 MiB for others. */
static const size_t library_bytes = (size_t)32 << 20;
/* scores and weights kept at a time, where a query token's are not more */
#ifndef HA_CUDA_SCORES_BYTES
#define HA_CUDA_SCORES_BYTES ((size_t)512 << 20)
#endif
/* in a call of the library: its grids end at 65535 */
enum { PROBLEMS_MAX = 32768 };

/* ---- the library */

/* False: it is of no use, and `absent` says why. */
static bool look_up(struct ha_cuda_blas *blas, void *library)
{
    const char *lacks = ha_cuda_look_up(library, &blas->call, symbols, SYMBOLS, NEEDED), *wrong = NULL;
#ifdef HA_CUDA_EMULATED
    /* a library for the emulation has no runtime of its own */
    const char *(*use)(cudaError_t(*kernel)(cudaStream_t, cudaHostFn_t, void *), cudaError_t(*alloc)(void **, size_t),
                       cudaError_t(*free)(void *), void (*load)(void));
    void *found = dlsym(library, "ha_emulated_cublas_use");
    if (!lacks && !found) lacks = "ha_emulated_cublas_use (it is for GPUs)";
    memcpy(&use, &found, sizeof use);
    if (!lacks) wrong = use(ha_emulated_library_kernel, ha_emulated_library_alloc, cudaFree, ha_emulated_library_load);
#endif
    if (lacks) snprintf(blas->absent, sizeof blas->absent, "cuBLAS: the library has no %s", lacks);
    else snprintf(blas->absent, sizeof blas->absent, "%s", wrong ? wrong : "");
    return !*blas->absent;
}

/* The one that HABENCH_CUBLAS names. */
static void load_named(struct ha_cuda_blas *blas, const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* for good: it leaves threads and exit handlers */
    if (library) look_up(blas, library);
    else {
        const char *said = dlerror(), *reason = strncmp(said, path, strlen(path)) ? said : said + strlen(path);
        snprintf(blas->absent, sizeof blas->absent, "no cuBLAS: HABENCH_CUBLAS=%.60s%s", path, reason);
    }
}

/* The first one here that has all the entries. */
static void load_any(struct ha_cuda_blas *blas)
{
#ifdef HA_CUDA_EMULATED
    snprintf(blas->absent, sizeof blas->absent,
             "an emulated GPU has no cuBLAS, unless HABENCH_CUBLAS names one for the emulation");
#else
    static const char *const names[] = { HA_CUDA_NAMES("libcublas.so"), "libcublas.so.11", NULL };
    void *library;
    snprintf(blas->absent, sizeof blas->absent,
             "no cuBLAS: no libcublas.so.13, .12 or .11 that can be loaded; "
             "scripts/setup.sh --cuda gets it, HABENCH_CUBLAS names it");
    for (size_t at = 0; (library = ha_cuda_library_next(names, &at));)
        if (look_up(blas, library)) return;
#endif
}

static void load(struct ha_cuda_blas *blas)
{
    const char *named = getenv("HABENCH_CUBLAS");
    if (named && *named) load_named(blas, named);
    else load_any(blas);
}

static struct ha_cuda_blas *blas_of(struct ha_device *dev)
{
    pthread_mutex_lock(&dev->lock);
    if (!dev->blas && (dev->blas = calloc(1, sizeof *dev->blas))) {
        pthread_mutex_init(&dev->blas->lock, NULL);
        load(dev->blas);
    }
    pthread_mutex_unlock(&dev->lock);
    return dev->blas;
}

const char *ha_cuda_blas_absent(struct ha_device *dev)
{
    const struct ha_cuda_blas *blas = blas_of(dev);
    return !blas ? "no memory" : *blas->absent ? blas->absent : NULL;
}

void ha_cuda_blas_close(struct ha_cuda_blas *blas)
{
    if (!blas) return;
    if (blas->handle) blas->call.destroy(blas->handle);
    pthread_mutex_destroy(&blas->lock);
    free(blas);
}

static enum ha_status check(struct ha_stream *s, int status, const char *call, const char *operation)
{
    const struct ha_cuda_blas *blas = s->device->blas;
    if (status == 0) return HA_OK;
    const char *name = blas->call.status_name ? blas->call.status_name(status) : NULL;
    return ha_cuda_fail_on(s, operation, "%s: %s (%d)", call, name ? name : "cuBLAS status", status);
}

/* The handle, where there is none yet; the library's status, and the call that gave it. */
static int make(struct ha_cuda_blas *blas, const char **call)
{
    if (blas->handle) return 0;
    *call = "cublasCreate";
    const int status = blas->call.create(&blas->handle);
    if (status != 0) {
        blas->handle = NULL;
        if (status == NOT_INITIALIZED)
            *call = "cublasCreate (the library may be too new for the driver, or no memory be left)";
        return status;
    }
    *call = "cublasSetMathMode";
    const int set = blas->call.set_math_mode(blas->handle, DEFAULT_MATH | MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    if (set != 0) {
        blas->call.destroy(blas->handle);
        blas->handle = NULL; /* none is used that rounds as it likes */
    }
    return set;
}

static enum ha_status create(struct ha_stream *s, struct ha_cuda_blas *blas, const char *operation)
{
    const char *call = NULL;
    const int status = make(blas, &call);
    return check(s, status, call, operation);
}

/* The handle, on this stream and in this memory; the lock is the caller's. */
static enum ha_status lend(struct ha_stream *s, struct ha_cuda_blas *blas, void *workspace, const char *operation)
{
    HA_TRY(create(s, blas, operation));
    HA_TRY(check(s, blas->call.set_stream(blas->handle, s->cuda), "cublasSetStream",
                 operation)); /* takes the workspace away */
    return check(s, blas->call.set_workspace(blas->handle, workspace, library_bytes), "cublasSetWorkspace", operation);
}

static int type_of(enum ha_dtype dtype) { return dtype == HA_F32 ? R_32F : dtype == HA_F16 ? R_16F : R_16BF; }
/* binary32 all the way: no TF32 for what is stored in binary32 */
static int compute_of(enum ha_dtype dtype) { return dtype == HA_F32 ? COMPUTE_32F_PEDANTIC : COMPUTE_32F; }
static const float one = 1.0f, zero = 0.0f;

/* ---- y = x w^T. The library's matrices are column-major: it is asked for y^T = w x^T. */

static enum ha_status multiply(struct ha_stream *s, struct ha_cuda_blas *blas, const struct ha_device_product *p,
                               void *workspace)
{
    const int type = type_of(p->dtype), m = (int)p->m, n = (int)p->n, k = (int)p->k;
    HA_TRY(lend(s, blas, workspace, "product"));
    return check(s,
                 blas->call.gemm(blas->handle, OP_T, OP_N, n, m, k, &one, p->w, type, k, p->x, type, k, &zero, p->y,
                                 type, n, compute_of(p->dtype), GEMM_DEFAULT),
                 "cublasGemmEx", "product");
}

/* Small, of what is in new memory: nobody looks at it. What fails here fails again where a product is asked for, which
 * says so. */
void ha_cuda_blas_ready(struct ha_device *dev)
{
    enum { N = 16, BYTES = 2 * N * N };
    struct ha_cuda_blas *blas = ha_cuda_blas_absent(dev) ? NULL : dev->blas;
    const char *call;
    void *memory;
    if (!blas || make(blas, &call) != 0) return;
    if (cudaMalloc(&memory, library_bytes + 3 * BYTES) == cudaSuccess) {
        char *y = (char *)memory + library_bytes, *x = y + BYTES, *w = x + BYTES;
        blas->call.set_stream(blas->handle, NULL);
        blas->call.set_workspace(blas->handle, memory, library_bytes);
        blas->call.gemm(blas->handle, OP_T, OP_N, N, N, N, &one, w, R_16F, N, x, R_16F, N, &zero, y, R_16F, N,
                        COMPUTE_32F, GEMM_DEFAULT);
        cudaFree(memory); /* waits */
    }
    (void)cudaGetLastError();
}

enum ha_status ha_cuda_product(struct ha_stream *s, const struct ha_device_product *p)
{
    const char *absent = ha_cuda_blas_absent(s->device);
    if (absent) return ha_cuda_fail_on(s, "product", "%s", absent);
    if (p->m > INT_MAX || p->n > INT_MAX || p->k > INT_MAX)
        return ha_cuda_fail_on(s, "product", "%zu x %zu x %zu is beyond 32 bits", p->m, p->n, p->k);
    if (p->m == 0 || p->n == 0) return HA_OK;
    if (p->k == 0)
        return ha_cuda_check_on(s, cudaMemsetAsync(p->y, 0, p->m * p->n * ha_dtype_bytes(p->dtype), s->cuda),
                                "cudaMemsetAsync", "product");
    void *workspace = ha_cuda_workspace(s, library_bytes);
    if (!workspace) return HA_ERROR;
    struct ha_cuda_blas *blas = s->device->blas;
    pthread_mutex_lock(&blas->lock);
    const enum ha_status status = multiply(s, blas, p, workspace);
    pthread_mutex_unlock(&blas->lock);
    return status;
}

/* ---- attention */

static const char operation[] = "attend_products";

/* Elements from one row to the next. */
static size_t leading(const struct ha_device_attend *a, const struct ha_rows *run, size_t stride_bytes)
{
    return run->keys > 1 ? stride_bytes / ha_dtype_bytes(a->dtype) : a->head_dim;
}

/* The library wants matrices of 16-bit types at multiples of 16 bytes: a run begins at a multiple of 8 keys. NULL: not
 * wanted. Gives the columns of all. */
static size_t columns_of(const struct ha_device_seq *seq, size_t run_at[HA_RUNS_MAX])
{
    size_t at = 0;
    for (size_t r = 0; r < seq->runs_count; r++) {
        if (run_at) run_at[r] = at;
        at += (seq->runs[r].keys + 7) / 8 * 8;
    }
    return at;
}

/* One call of the library does sequences whose matrices are of one shape. */
static bool alike(const struct ha_device_attend *a, const struct ha_device_seq *x, const struct ha_device_seq *y)
{
    if (x->runs_count != y->runs_count) return false;
    for (size_t r = 0; r < x->runs_count; r++) {
        const struct ha_rows *i = &x->runs[r], *j = &y->runs[r];
        if (i->keys != j->keys || leading(a, i, i->k_stride_bytes) != leading(a, j, j->k_stride_bytes)
            || leading(a, i, i->v_stride_bytes) != leading(a, j, j->v_stride_bytes))
            return false;
    }
    return true;
}

/* NULL, or what of it products cannot do. */
static const char *refused(const struct ha_device_attend *a, const struct ha_device_seq *seq)
{
    const size_t bytes = ha_dtype_bytes(a->dtype), rows = a->q_len * (a->q_heads / a->kv_heads);
    if (a->lists) return "there are lists, and a product reads rows in order";
    if (seq->weights) return "the weights are not given";
    if (!(a->scale > 0)) return "the scale is not positive";
    if (columns_of(seq, NULL) > INT_MAX || rows > INT_MAX) return "more than 32 bits of keys or queries";
    for (size_t r = 0; r < seq->runs_count; r++) {
        const struct ha_rows *run = &seq->runs[r];
        if (run->index) return "a run has an index, and a product reads rows in order";
        if (run->keys && bytes == 2
            && ((uintptr_t)run->k | (uintptr_t)run->v | seq->k_head_bytes | seq->v_head_bytes) % 16)
            return "the heads of K or V do not begin at multiples of 16 bytes";
        if (run->keys > 1 && (run->k_stride_bytes % bytes || run->v_stride_bytes % bytes))
            return "rows are not whole elements apart";
        const size_t k = leading(a, run, run->k_stride_bytes), v = leading(a, run, run->v_stride_bytes);
        if (k < a->head_dim || v < a->head_dim) return "rows overlap";
        if (k > INT_MAX || v > INT_MAX) return "rows are more than 32 bits apart";
    }
    return NULL;
}

/* Sequences alike, and how many of their rows are done at a time. */
struct batch {
    const struct ha_device_attend *a;
    struct ha_cuda_products products;
    size_t group, problems; /* problems at a time: products.count at most */
    char *workspace;        /* the library's, then what products points to */
    size_t bytes;
};

static size_t whole(size_t bytes) { return (bytes + 255) / 256 * 256; }
static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static struct batch batch_of(const struct ha_device_attend *a, const struct ha_device_seq *seqs, size_t count,
                             char *workspace)
{
    const size_t bytes = ha_dtype_bytes(a->dtype);
    struct batch b = { .a = a, .group = a->q_heads / a->kv_heads, .workspace = workspace, .bytes = library_bytes };
    struct ha_cuda_products *p = &b.products;
    *p = (struct ha_cuda_products){ .seqs = seqs,
                                    .seqs_count = count,
                                    .q_heads = a->q_heads,
                                    .kv_heads = a->kv_heads,
                                    .head_dim = a->head_dim,
                                    .q_token_stride = ha_seq_token_stride(a),
                                    .q_head_stride = ha_seq_head_stride(a),
                                    .dtype = a->dtype };
    p->stride = columns_of(seqs, p->run_at);
    const size_t token_bytes = b.group * (p->stride * (bytes + sizeof(float)) + 1);
    p->tokens = smaller(a->q_len, HA_CUDA_SCORES_BYTES / token_bytes ? HA_CUDA_SCORES_BYTES / token_bytes : 1);
    b.problems = HA_CUDA_SCORES_BYTES / token_bytes / p->tokens;
    b.problems = smaller(count * a->kv_heads, b.problems ? smaller(b.problems, PROBLEMS_MAX) : 1);
    const size_t rows = b.problems * p->tokens * b.group;
    const struct {
        void *at;
        size_t bytes;
    } parts[] = {
        { &p->q, rows * p->head_dim * bytes },
        { &p->s, rows * p->stride * sizeof(float) },
        { &p->p, rows * p->stride * bytes },
        { &p->o, rows * p->head_dim * sizeof(float) },
        { &p->max, rows * sizeof(float) },
        { &p->sum, rows * sizeof(float) },
        { &p->operands, seqs->runs_count * 6 * b.problems * sizeof(void *) },
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char *at = workspace ? workspace + b.bytes : NULL;
        memcpy(parts[i].at, &at, sizeof at);
        b.bytes += whole(parts[i].bytes);
    }
    return b;
}

/* The last run ends in the query tokens: those after the ones at hand are nobody's keys. */
static size_t visible(const struct batch *b, size_t run)
{
    const struct ha_cuda_products *p = &b->products;
    const size_t after = b->a->causal && run + 1 == p->seqs->runs_count ? b->a->q_len - p->token - p->tokens : 0;
    return p->seqs->runs[run].keys - after;
}

/* which: 0 s = q K^T, 1 o += p V, column-major: the transposed of each */
static enum ha_status multiply_run(struct ha_stream *s, const struct batch *b, size_t run, int which, bool add)
{
    struct ha_cuda_blas *blas = s->device->blas;
    const struct ha_cuda_products *p = &b->products;
    const struct ha_rows *rows = &p->seqs->runs[run];
    const int type = type_of(p->dtype), n = (int)(p->tokens * b->group), dim = (int)p->head_dim,
              keys = (int)visible(b, run);
    const int ld = (int)leading(b->a, rows, which ? rows->v_stride_bytes : rows->k_stride_bytes),
              stride = (int)p->stride;
    void **x = p->operands + (2 * run + (size_t)which) * 3 * p->count, **y = x + p->count, **z = y + p->count;
    const int status = which ? blas->call.gemm_batched(blas->handle, OP_N, OP_N, dim, n, keys, &one, x, type, ld, y,
                                                       type, stride, add ? &one : &zero, z, R_32F, dim, (int)p->count,
                                                       compute_of(p->dtype), GEMM_DEFAULT)
                             : blas->call.gemm_batched(blas->handle, OP_T, OP_N, keys, n, dim, &one, x, type, ld, y,
                                                       type, dim, &zero, z, R_32F, stride, (int)p->count,
                                                       compute_of(p->dtype), GEMM_DEFAULT);
    return check(s, status, "cublasGemmBatchedEx", operation);
}

/* Problems [first, first + count) of the tokens at hand. */
static enum ha_status attend_problems(struct ha_stream *s, struct batch *b, size_t first, size_t count)
{
    struct ha_cuda_products *p = &b->products;
    const size_t runs = p->seqs->runs_count, columns = runs ? p->run_at[runs - 1] + visible(b, runs - 1) : 0;
    p->first = first;
    p->count = count;
    const struct ha_cuda_scores softmax = { .s = p->s,
                                            .p = p->p,
                                            .max = p->max,
                                            .sum = p->sum,
                                            .rows = count * p->tokens * b->group,
                                            .group = b->group,
                                            .keys = columns,
                                            .stride = p->stride,
                                            .p_stride = p->stride,
                                            .q_len = p->tokens,
                                            .causal = b->a->causal,
                                            .scale = b->a->scale,
                                            .dtype = p->dtype };
    HA_TRY(ha_cuda_check_on(s, ha_cuda_products_begin(s->cuda, p), "ha_cuda_products_begin", operation));
    for (size_t r = 0; r < p->seqs->runs_count; r++)
        if (visible(b, r)) HA_TRY(multiply_run(s, b, r, 0, false));
    HA_TRY(ha_cuda_check_on(s, ha_cuda_products_softmax(s->cuda, &softmax), "ha_cuda_products_softmax", operation));
    bool add = false;
    for (size_t r = 0; r < p->seqs->runs_count; r++) {
        if (!visible(b, r)) continue;
        HA_TRY(multiply_run(s, b, r, 1, add));
        add = true;
    }
    return ha_cuda_check_on(s, ha_cuda_products_end(s->cuda, p), "ha_cuda_products_end", operation);
}

static enum ha_status attend_batch(struct ha_stream *s, struct batch *b)
{
    const size_t tokens = b->products.tokens, all = b->products.seqs_count * b->a->kv_heads;
    HA_TRY(lend(s, s->device->blas, b->workspace, operation));
    for (size_t t = 0; t < b->a->q_len; t += tokens) {
        b->products.token = t;
        b->products.tokens = smaller(b->a->q_len - t, tokens);
        for (size_t i = 0; i < all; i += b->problems) HA_TRY(attend_problems(s, b, i, smaller(all - i, b->problems)));
    }
    return HA_OK;
}

enum ha_status ha_cuda_attend_products(struct ha_stream *s, const struct ha_device_attend *a)
{
    const char *why = ha_cuda_blas_absent(s->device);
    for (size_t b = 0; b < a->batch && !why; b++) why = refused(a, &a->seqs[b]);
    if (why) return ha_cuda_fail_on(s, operation, "%s", why);
    if (a->q_len == 0 || a->q_heads == 0 || a->head_dim == 0) return HA_OK;
    struct ha_cuda_blas *blas = s->device->blas;
    for (size_t first = 0, count; first < a->batch; first += count) {
        for (count = 1; first + count < a->batch && count < HA_CUDA_SEQS_MAX; count++)
            if (!alike(a, &a->seqs[first], &a->seqs[first + count])) break;
        char *workspace = ha_cuda_workspace(s, batch_of(a, a->seqs + first, count, NULL).bytes);
        if (!workspace) return HA_ERROR;
        struct batch b = batch_of(a, a->seqs + first, count, workspace);
        pthread_mutex_lock(&blas->lock);
        const enum ha_status status = attend_batch(s, &b);
        pthread_mutex_unlock(&blas->lock);
        HA_TRY(status);
    }
    return HA_OK;
}

struct ha_profile ha_cuda_products_profile(const struct ha_device *dev, enum ha_dtype dtype)
{
    /* However the library cuts a sum: at worst its terms one after the other, then a few parts joined. What is stored
     * in 16 bits goes through tensor cores, whose sums are not rounded to nearest; the weights are rounded to that type
     * before they meet V. Queries are taken to be exact in it (ha_shape.dtype): they are converted. */
    return (struct ha_profile){ .dot_lanes = 1,
                                .dot_extra = 16,
                                .sum_lanes = 1,
                                .sum_extra = 64,
                                .exp_eps = dev->eps[HA_CUDA_EXP],
                                .log_eps = dev->eps[HA_CUDA_LOG],
                                .join_keys = UINT_MAX,
                                .weight_type = dtype,
                                .truncates = dtype != HA_F32 };
}
