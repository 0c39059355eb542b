#define _GNU_SOURCE /* sched_getaffinity */
#include "suites/variants/session.h"

#include "harness/base/arena.h"
#include "harness/base/claims.h"
#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/order_api.h"
#include "harness/base/pool.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"
#include "harness/base/worker.h"
#include "suites/variants/faults.h"
#include "suites/variants/fit.h"
#include "suites/variants/mutants.h"
#include "harness/base/registry.h"

#include <sched.h>
#include <string.h>

static const uint64_t kept_bytes_max = (uint64_t)256 << 20;

enum ha_status ha_shared_open(struct ha_shared *s, struct ha_machine *machine, bool measure, struct ha_why *why)
{
    *s = (struct ha_shared){ .machine = machine, .measure = measure };
    HA_TRY(ha_pool_create(&s->judges, HA_TEAM_DEFAULT, 0, why));
    ha_pool_rest(s->judges);
    return HA_OK;
}

/* Closes workload i and those behind it. */
static void drop_workloads(struct ha_shared *s, size_t i)
{
    for (; i < HA_WORKLOADS_KEPT; i++) {
        ha_workload_close(s->workload[i]);
        s->workload[i] = NULL;
    }
}

void ha_shared_close(struct ha_shared *s)
{
    drop_workloads(s, 0);
    ha_pool_destroy(s->judges);
    *s = (struct ha_shared){ 0 };
}

static enum ha_status use_workload(struct ha_shared *m, const struct ha_case *c, struct ha_why *why)
{
    size_t i = 0, bytes = 0;
    while (i < HA_WORKLOADS_KEPT && m->workload[i] && !ha_workload_serves(m->workload[i], c)) i++;
    if (i == HA_WORKLOADS_KEPT) drop_workloads(m, --i);
    struct ha_workload *w = m->workload[i];
    if (!w) HA_TRY(ha_workload_open(&w, c, why));
    memmove(m->workload + 1, m->workload, i * sizeof w);
    m->workload[0] = w;
    for (i = 0; i < HA_WORKLOADS_KEPT && m->workload[i]; i++) {
        bytes += ha_memory_estimate(&m->workload[i]->shape).data_bytes;
        if (i && bytes > kept_bytes_max) drop_workloads(m, i);
    }
    return HA_OK;
}

size_t ha_session_slots(const struct ha_shape *s)
{
    const size_t step_bytes = s->layers * s->batch * s->q_len * s->q_heads * (s->head_dim + 1) * sizeof(float),
                 most = step_bytes && step_bytes < HA_OUTPUTS_BYTES ? HA_OUTPUTS_BYTES / step_bytes : 1;
    return s->steps < most ? s->steps : most;
}

size_t ha_session_slot(const struct ha_session *s, size_t step) { return step % s->slots; }
bool ha_session_keeps(const struct ha_session *s, size_t step) { return step + s->slots >= s->workload->shape.steps; }

/* ---- memory ------------------------------------------------------------------------------ */

/* page tables and padding come on top of the bytes that are asked for */
static const double slack = 1.05;
static const char lower[] = "ctx or batch or layers or steps, or take a smaller dtype";

struct ha_memory_need ha_memory_estimate(const struct ha_shape *s)
{
    uint64_t tokens = 0, cap = 0, row = 2 * s->kv_heads * s->head_dim * ha_dtype_bytes(s->dtype);
    uint64_t rows = s->layers * s->batch * s->q_len, outs = rows * (s->q_heads * (s->head_dim + 1)),
             slots = ha_session_slots(s),
             in_bytes = rows * ((s->q_heads * s->head_dim + s->model_dim) * sizeof(float) + row);
    for (size_t b = 0; b < s->batch; b++) {
        uint64_t all = s->ctx[b] + s->steps * s->q_len;
        tokens += all;
        if (all > cap) cap = all;
    }
    const uint64_t observed = s->observed < cap ? s->observed : cap;
    return (struct ha_memory_need){
        .data_bytes = s->layers * s->batch * (cap * row + observed * s->q_heads * s->head_dim * sizeof(float)),
        .variant_bytes = s->layers * tokens * row,
        .device_io_bytes = s->steps * in_bytes + slots * outs * sizeof(float),
        .host_io_bytes = in_bytes + (s->steps * in_bytes < HA_OUTPUTS_BYTES ? s->steps * in_bytes : HA_OUTPUTS_BYTES)
                         + outs * sizeof(float) + 2 * slots * outs * sizeof(float) + outs * 2 * sizeof(double),
    };
}

enum ha_status ha_memory_check(const struct ha_shape *shape, bool filled, bool in_host, bool all_on_device,
                               uint64_t host_free, uint64_t device_free, struct ha_why *why)
{
    struct ha_memory_need need = ha_memory_estimate(shape);
    double data = filled ? 0 : (double)need.data_bytes, variant = (double)need.variant_bytes,
           io = (double)need.host_io_bytes, device_io = (double)need.device_io_bytes;
    enum ha_status status;
    if (in_host) return ha_memory_fits("host", slack * (data + variant + io + device_io), host_free, lower, why);
    status = ha_memory_fits("host", slack * (data + (all_on_device ? 0 : variant) + io), host_free, lower, why);
    /* how much the others keep on the device is theirs to know; their allocations say when it is too much */
    if (status != HA_OK) return status;
    return ha_memory_fits("device", slack * ((all_on_device ? variant : 0) + device_io), device_free, lower, why);
}

/* ---- what a case runs on ------------------------------------------------------------------ */

enum { PLACE = 256, PLACES = 16 }; /* bytes between two places, and how many there are beside the first */

static enum ha_status make_buffers(struct ha_session *s, struct ha_why *why)
{
    size_t layers = s->workload->shape.layers, steps = s->workload->shape.steps;
    HA_TRY(ha_device_arena_create(&s->arena, s->api, s->device, why));
    s->io = ha_workload_io(s->workload);
    s->slots = ha_session_slots(&s->workload->shape);
    const size_t in_bytes = steps * layers * s->io.in_bytes, out_bytes = s->slots * layers * s->io.out_bytes;
    s->in_room = s->in = ha_device_alloc(s->arena, HA_MEM_DEVICE, in_bytes + PLACES * PLACE, HA_TAG_SCRATCH, why);
    s->out_room = s->out = ha_device_alloc(s->arena, HA_MEM_DEVICE, out_bytes + PLACES * PLACE, HA_TAG_SCRATCH, why);
    if (ha_session_checked(s)) {
        s->host_all = ha_device_alloc(s->arena, HA_MEM_PINNED, out_bytes, HA_TAG_SCRATCH, why);
        if (!s->host_all) return HA_ERROR;
    }
    const size_t of_step = layers * s->io.in_bytes, most = HA_OUTPUTS_BYTES / (of_step + 1);
    s->inputs_steps = steps < most ? steps : most ? most : 1;
    s->host_inputs = ha_device_alloc(s->arena, HA_MEM_PINNED, s->inputs_steps * of_step, HA_TAG_SCRATCH, why);
    s->host_in = ha_device_alloc(s->arena, HA_MEM_PINNED, layers * s->io.in_bytes, HA_TAG_SCRATCH, why);
    s->host_back = ha_device_alloc(s->arena, HA_MEM_PINNED, layers * s->io.in_bytes, HA_TAG_SCRATCH, why);
    s->host_out = ha_device_alloc(s->arena, HA_MEM_PINNED, layers * s->io.out_bytes, HA_TAG_SCRATCH, why);
    s->ended_ns = ha_device_alloc(s->arena, HA_MEM_PINNED, steps * sizeof *s->ended_ns, HA_TAG_SCRATCH, why);
    return s->in && s->out && s->host_inputs && s->host_in && s->host_back && s->host_out && s->ended_ns ? HA_OK
                                                                                                         : HA_ERROR;
}

/* Inputs of steps [first, end), one way or the other; *ns: how long that took, more. */
static enum ha_status move_inputs(struct ha_session *s, size_t first, size_t end, enum ha_direction dir, uint64_t *ns)
{
    const size_t bytes = s->workload->shape.layers * s->io.in_bytes, count = (end - first) * bytes;
    unsigned char *const on_device = s->in + first * bytes;
    const uint64_t begin_ns = ha_now_ns();
    enum ha_status status = dir == HA_H2D ? s->api->copy(s->stream, on_device, s->host_inputs, count, dir)
                                          : s->api->copy(s->stream, s->host_inputs, on_device, count, dir);
    if (status == HA_OK) status = s->api->stream_sync(s->stream);
    *ns += ha_now_ns() - begin_ns;
    return status;
}

/* As many steps at a time as there is room for: what is uploaded early is known early. */
enum ha_status ha_session_upload(struct ha_session *s, struct ha_why *why)
{
    const size_t steps = s->workload->shape.steps, bytes = s->workload->shape.layers * s->io.in_bytes;
    enum ha_status status = HA_OK;
    s->upload_ns = 0;
    if (s->load.products) status = ha_load_turn(&s->load, s->api, s->stream, s->workload->turn, &s->upload_ns);
    for (size_t first = 0; first < steps && status == HA_OK; first += s->inputs_steps) {
        const size_t end = first + s->inputs_steps < steps ? first + s->inputs_steps : steps;
        for (size_t step = first; step < end; step++)
            ha_workload_step(s->workload, step, s->pool, &s->io, s->host_inputs + (step - first) * bytes);
        status = move_inputs(s, first, end, HA_H2D, &s->upload_ns);
    }
    if (status == HA_OK) return HA_OK;
    const char *failure = s->api->failure(s->device);
    return ha_why(why, HA_ERROR, "device %s during the upload of inputs: %s", s->api->name, failure ? failure : "");
}

enum ha_status ha_session_inputs_back(struct ha_session *s, uint64_t *ns, struct ha_why *why)
{
    const size_t steps = s->workload->shape.steps;
    enum ha_status status = HA_OK;
    *ns = 0;
    for (size_t first = 0; first < steps && status == HA_OK; first += s->inputs_steps)
        status = move_inputs(s, first, first + s->inputs_steps < steps ? first + s->inputs_steps : steps, HA_D2H, ns);
    if (status == HA_OK && s->load.products) status = ha_load_back(&s->load, s->api, s->stream, ns);
    return status == HA_OK ? HA_OK : ha_why(why, HA_ERROR, "device %s during the download of inputs", s->api->name);
}

void ha_session_place(struct ha_session *s, uint64_t turn)
{
    if (s->workload->turn == turn) return;
    ha_workload_turn(s->workload, turn, s->pool);
    s->in = s->in_room + (turn ? ha_rng_below(turn, 0, 0, PLACES + 1) : 0) * PLACE;
    s->out = s->out_room + (turn ? ha_rng_below(turn, 0, 1, PLACES + 1) : 0) * PLACE;
}

enum ha_status ha_session_turn(struct ha_session *s, uint64_t turn, struct ha_why *why)
{
    if (s->workload->turn == turn) return HA_OK;
    ha_session_place(s, turn);
    return ha_session_upload(s, why);
}

/* A device that computes on the host keeps one core: CPU threads on all of them would time how the
 * two sides get in each other's way. */
static size_t free_cores(const struct ha_device_info *info)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 0; /* all, as the pool counts them */
    size_t cores = (size_t)CPU_COUNT(&allowed);
    return info->compute_threads > 0 && cores > 1 ? cores - 1 : cores;
}

/* A trace says itself what its heads are. */
static enum ha_status same_model(const struct ha_model *m, const struct ha_shape *s, struct ha_why *why)
{
    if (!m || (m->q_heads == s->q_heads && m->kv_heads == s->kv_heads && m->head_dim == s->head_dim)) return HA_OK;
    return ha_why(why, HA_ERROR, "model %s has heads %zu/%zu of %zu, the data %zu/%zu of %zu", m->name, m->q_heads,
                  m->kv_heads, m->head_dim, s->q_heads, s->kv_heads, s->head_dim);
}

static enum ha_status takes_graphs(const struct ha_session *s, struct ha_why *why)
{
    if (!s->variant->one_stream)
        return ha_why(why, HA_WAIVED, "graph=1: a step of %s has more to it than one stream of the device",
                      s->variant->name);
    return s->api->graph_begin ? HA_OK : ha_why(why, HA_WAIVED, "graph=1: the device has no operation graph_begin");
}

enum ha_status ha_session_takes(const struct ha_session *s, const struct ha_variant *v, struct ha_why *why)
{
    const struct {
        unsigned bit;
        bool is_there;
        const char *name;
    } needs[] = {
        { HA_NEEDS_ATTEND, s->api->attend, "attend" },
        { HA_NEEDS_MERGE, s->api->merge, "merge" },
        { HA_NEEDS_BLEND, s->api->blend, "blend" },
        { HA_NEEDS_COPY_2D, s->api->copy_2d, "copy_2d" },
        { HA_NEEDS_PRODUCTS, s->api->attend_products, "attend_products" },
        { HA_NEEDS_MOVE, s->api->move, "move" },
        { HA_NEEDS_DIGEST, s->api->digest, "digest" },
        { HA_NEEDS_DIGEST, s->api->digest_score, "digest_score" },
        { HA_NEEDS_TOPK, s->api->topk, "topk" },
        { HA_NEEDS_SPLIT, s->api->split, "split" },
        { HA_NEEDS_COLUMNS, s->api->columns, "columns" },
        { HA_NEEDS_COLUMNS, s->api->score, "score" },
        { HA_NEEDS_NET, s->api->features, "features" },
        { HA_NEEDS_NET, s->api->net, "net" },
        { HA_NEEDS_LABELS, s->api->similarity, "similarity" },
        { HA_NEEDS_PQ, s->api->pq_encode, "pq_encode" },
        { HA_NEEDS_PQ, s->api->pq_table, "pq_table" },
        { HA_NEEDS_PQ, s->api->pq_score, "pq_score" },
        { HA_NEEDS_TOPP, s->api->softmax, "softmax" },
        { HA_NEEDS_TOPP, s->api->topp, "topp" },
    };
    struct ha_device_info info;
    s->api->info(s->device, &info);
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (v->needs & needs[i].bit && !needs[i].is_there)
            return ha_why(why, HA_WAIVED, "the device has no operation %s", needs[i].name);
    if (s->graph && v == s->variant) HA_TRY(takes_graphs(s, why));
    if (v->products && *info.no_products) return ha_why(why, HA_WAIVED, "%s", info.no_products);
    const size_t dim = s->workload->shape.head_dim;
    if (info.head_dim_max && dim > info.head_dim_max && v->needs & (HA_NEEDS_ATTEND | HA_NEEDS_PRODUCTS))
        return ha_why(why, HA_WAIVED, "the device attends over heads of at most %zu elements, not %zu",
                      info.head_dim_max, dim);
    return ha_memory_check(&s->workload->shape, s->workload->arena != NULL, info.compute_threads > 0,
                           !strcmp(v->name, HA_COMPANION), ha_memory_available(), info.memory_free_bytes, why);
}

static enum ha_status open_fit(struct ha_session *s, const struct ha_case *c, struct ha_why *why)
{
    struct ha_fit_of of;
    if (ha_fit_of_name(&s->fit, c, s->workload, why) != HA_OK) return HA_ERROR;
    if (!s->fit) return HA_OK;
    ha_fit_of_case(&of, c, s->workload);
    s->fit_own = ha_fit_shares(s->fit, &of.about);
    return HA_OK;
}

static enum ha_status open_session(struct ha_session *s, const struct ha_case *c, const struct ha_mutant *mutant,
                                   struct ha_why *why)
{
    HA_TRY(ha_machine_device(s->shared->machine, c->device, ha_case_isa(c), &s->api, &s->device, why));
    if (s->shared->order) {
        HA_TRY(ha_order_begin(why));
        s->ordered = true;
        s->api = ha_order_wrap(s->api);
    }
    HA_TRY(ha_device_claims(s->api, s->device, &s->info, why));
    const size_t threads = c->threads ? c->threads : free_cores(&s->info);
    HA_TRY(ha_kernels_resolve_for(ha_case_isa(c), threads, &s->kernels, why));
    s->cpu = s->kernels;
    if (s->ordered) ha_order_wrap_cpu(&s->cpu);
    HA_TRY(use_workload(s->shared, c, why));
    s->workload = s->shared->workload[0];
    HA_TRY(same_model(ha_case_model(c), &s->workload->shape, why));
    HA_TRY(open_fit(s, c, why));
    const char *reason = c->load == HA_LOAD_LAYER ? ha_load_unsupported(s->api, &s->info) : NULL;
    if (reason) return ha_why(why, HA_WAIVED, "%s", reason);
    HA_TRY(ha_session_takes(s, s->variant, why));
    s->variant_api = ha_meter_wrap(s->shared->faults ? ha_faults_wrap(s->api, *s->shared->faults) : s->api);
    ha_mutant_plant(mutant, &s->cpu, &s->variant_api);
    HA_TRY(ha_pool_create(&s->pool, (enum ha_team)c->team, threads, why));
    if (!s->shared->measure) ha_pool_rest(s->pool);
    else if (s->info.compute_threads > 0) ha_pool_share(s->pool);
    HA_TRY(ha_worker_create(&s->worker, why));
    HA_TRY(ha_workload_fill(s->workload, s->pool, why));
    if (s->shared->faults) ha_faults_delay(s->pool, s->worker);
    HA_TRY(s->api->stream_create(s->device, "main", &s->stream, why));
    HA_TRY(make_buffers(s, why));
    HA_TRY(ha_session_upload(s, why));
    return c->load == HA_LOAD_LAYER
               ? ha_load_create(&s->load, ha_case_model(c), &s->workload->shape, s->api, s->stream, s->arena, why)
               : HA_OK;
}

enum ha_status ha_session_open(struct ha_session *s, struct ha_shared *shared, const struct ha_case *c,
                               const struct ha_mutant *mutant, struct ha_why *why)
{
    *s = (struct ha_session){ .shared = shared,
                              .variant = ha_mutant_variant(mutant, ha_variant_find(c->variant)),
                              .param = c->param,
                              .graph = c->graph != 0,
                              .judges = shared->judges };
    enum ha_status status = open_session(s, c, mutant, why);
    if (status != HA_OK) ha_session_close(s);
    return status;
}

void ha_session_close(struct ha_session *s)
{
    struct ha_shared *shared = s->shared;
    if (s->stream) s->api->stream_destroy(s->stream);
    if (s->pool && s->workload->arena) ha_workload_turn(s->workload, 0, s->pool); /* others use it, too */
    ha_device_arena_destroy(s->arena);
    ha_worker_destroy(s->worker);
    ha_pool_destroy(s->pool);
    if (s->ordered) ha_order_end();
    ha_fit_close(s->fit);
    *s = (struct ha_session){ .shared = shared };
}

const float *ha_session_q(const struct ha_session *s, size_t layer)
{
    return (const float *)(const void *)(s->host_in + layer * s->io.in_bytes + s->io.q);
}
const float *ha_session_x(const struct ha_session *s, size_t layer)
{
    if (!s->io.has_x) return NULL;
    return (const float *)(const void *)(s->host_in + layer * s->io.in_bytes + s->io.x);
}
const float *ha_session_o(const struct ha_session *s, size_t layer)
{
    return (const float *)(const void *)(s->host_out + layer * s->io.out_bytes + s->io.o);
}
const float *ha_session_lse(const struct ha_session *s, size_t layer)
{
    return (const float *)(const void *)(s->host_out + layer * s->io.out_bytes + s->io.lse);
}

bool ha_session_checked(const struct ha_session *session)
{
    return session->variant->checked && strcmp(session->api->kind, "null");
}
