/* ggml_flash_attn_ext over keys and values of the caller's, which is scripts/peers/cpu/with_ggml.py. */

#include <ggml-cpu.h>
#include <ggml.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* of all graphs, for the number of threads that was asked for last */
static struct ggml_threadpool *pool;
static int pool_threads;

struct peer {
    struct ggml_cgraph *graph;
    struct ggml_cplan plan;
    struct ggml_tensor *out;
};

const char *peer_version(void) { return ggml_version(); }

static enum ggml_type type_of(const char *name)
{
    int t = 0;
    while (t < GGML_TYPE_COUNT
           && (!ggml_type_name((enum ggml_type)t) || strcmp(ggml_type_name((enum ggml_type)t), name) != 0))
        t++;
    return (enum ggml_type)t;
}

/* the type in which keys of this one are multiplied */
const char *peer_dot_type(const char *type)
{
    return ggml_type_name(ggml_get_type_traits_cpu(type_of(type))->vec_dot_type);
}

static struct ggml_tensor *tensor(struct ggml_context *c, enum ggml_type type, int dim, int rows, int heads, void *data)
{
    struct ggml_tensor *t = ggml_new_tensor_3d(c, type, dim, rows, heads);
    t->data = data;
    return t;
}

/* q: [heads][q_rows][dim] in binary32; k, v: [kv_heads][keys][dim] of `type`; out: [q_rows][heads][dim] in binary32.
 * All stay the caller's. Nothing is freed before the process ends. NULL: out of memory. */
void *peer_open(const char *type, int heads, int kv_heads, int dim, int q_rows, int keys, int threads, void *q, void *k,
                void *v, void *out)
{
    struct ggml_context *c = ggml_init((struct ggml_init_params){ .mem_size = 1 << 20, .no_alloc = true });
    struct peer *p = calloc(1, sizeof *p);
    if (!c || !p) return NULL;
    if (pool && pool_threads != threads) {
        ggml_threadpool_free(pool);
        pool = NULL;
    }
    if (!pool) {
        struct ggml_threadpool_params team = ggml_threadpool_params_default(threads);
        pool = ggml_threadpool_new(&team);
        pool_threads = threads;
    }
    p->out = ggml_flash_attn_ext(c, tensor(c, GGML_TYPE_F32, dim, q_rows, heads, q),
                                 tensor(c, type_of(type), dim, keys, kv_heads, k),
                                 tensor(c, type_of(type), dim, keys, kv_heads, v), NULL, 1 / sqrtf((float)dim), 0, 0);
    p->out->data = out;
    p->graph = ggml_new_graph(c);
    ggml_build_forward_expand(p->graph, p->out);
    p->plan = ggml_graph_plan(p->graph, threads, pool);
    p->plan.work_data = malloc(p->plan.work_size + 1);
    return p->plan.work_data ? p : NULL;
}

/* 0: done */
int peer_run(void *peer)
{
    struct peer *p = peer;
    return ggml_graph_compute(p->graph, &p->plan) != GGML_STATUS_SUCCESS;
}
