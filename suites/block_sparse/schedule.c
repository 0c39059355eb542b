#include "suites/block_sparse/schedule.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/order.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"
#include "suites/parts/choose.h"

#include <math.h>
#include <string.h>

HA_SHARED_WORDS(ha_schedule_word, [HA_SCHEDULE_PRIORITY] = "priority", [HA_SCHEDULE_LENGTH] = "length",
                [HA_SCHEDULE_UNIFORM] = "uniform", [HA_SCHEDULE_NONE] = "none")
HA_SHARED_WORDS(ha_schedule_fetch_word, [HA_SCHEDULE_ZERO_COPY] = "zero_copy", [HA_SCHEDULE_MOVE] = "move",
                [HA_SCHEDULE_PIECES] = "pieces")

/* What a thread that takes tasks has of its own. */
struct ha_schedule_work {
    float *score;        /* [q_len][list_max] */
    unsigned char *mark; /* [list_max] */
    uint32_t *own;       /* [list_max] */
    void *scratch;       /* of attention */
};

enum ha_memory ha_schedule_memory(enum ha_schedule_by by, enum ha_schedule_fetch fetch)
{
    return by != HA_SCHEDULE_NONE && fetch != HA_SCHEDULE_PIECES ? HA_MEM_MAPPED : HA_MEM_PINNED;
}

/* ---- create ------------------------------------------------------------------------------------------------------ */

static void *room(const struct ha_schedule *c, size_t count, size_t bytes, struct ha_why *why)
{
    return ha_alloc(c->ctx->arena, ha_most(count, 1) * bytes, HA_TAG_SCRATCH, why);
}

static uint32_t *mapped(const struct ha_schedule *c, size_t count, struct ha_why *why)
{
    return ha_device_alloc(c->ctx->device_arena, HA_MEM_MAPPED, ha_most(count, 1) * sizeof(uint32_t), HA_TAG_SCRATCH,
                           why);
}

static size_t threads(const struct ha_schedule *c) { return ha_pool_threads(c->ctx->pool); }

/* The largest attention that a thread does: of one query head, or of all that share a KV head. */
static size_t scratch_bytes(const struct ha_schedule *c, size_t tokens)
{
    const struct ha_shape *s = c->ctx->shape;
    const struct ha_rows run = { .keys = tokens };
    const struct ha_attend worst = { .q_len = s->q_len,
                                     .group = ha_shape_group(s),
                                     .head_dim = s->head_dim,
                                     .runs = &run,
                                     .runs_count = 1,
                                     .dtype = s->dtype };
    return c->ctx->kernels->attend_scratch_bytes(&worst);
}

static enum ha_status make_worker(const struct ha_schedule *c, struct ha_schedule_work *w, size_t tokens,
                                  struct ha_why *why)
{
    w->score = room(c, c->ctx->shape->q_len * c->list_max, sizeof *w->score, why);
    w->mark = w->score ? room(c, c->list_max, 1, why) : NULL;
    w->own = w->mark ? room(c, c->list_max, sizeof *w->own, why) : NULL;
    w->scratch = w->own ? room(c, scratch_bytes(c, tokens), 1, why) : NULL;
    return w->scratch ? HA_OK : HA_ERROR;
}

static enum ha_status make_lane(const struct ha_schedule *c, struct ha_schedule_lane *lane,
                                const struct ha_layer *first, size_t number, size_t tokens, struct ha_why *why)
{
    static const char *const name[HA_SCHEDULE_LANES] = { "tasks 0", "tasks 1" };
    const struct ha_context *ctx = c->ctx;
    HA_TRY(ha_frame_stream(first, name[number], &lane->stream, why));
    HA_TRY(ha_device_event(ctx->device_arena, &lane->done, why));
    if (c->fetch == HA_SCHEDULE_ZERO_COPY) return HA_OK;
    const enum ha_fetch_way way = c->fetch == HA_SCHEDULE_MOVE ? HA_FETCH_MOVE : HA_FETCH_PIECES;
    HA_TRY(ha_fetch_create(&lane->fetch, ctx, way, 1, 1, ha_most(tokens, 1), 0, why));
    HA_TRY(ha_kv_create(ctx, HA_MEM_DEVICE, tokens, &lane->kv, why));
    lane->fetched = room(c, c->list_max, sizeof *lane->fetched, why);
    lane->place = lane->fetched ? mapped(c, ha_shape_group(ctx->shape) * c->list_max, why) : NULL;
    return lane->place ? HA_OK : HA_ERROR;
}

static bool may(const void *arg, bool device_side, size_t task)
{
    const struct ha_schedule *c = arg;
    return c->by == HA_SCHEDULE_PRIORITY || c->device[task] == device_side;
}

enum ha_status ha_schedule_create(struct ha_schedule *c, const struct ha_layer *first, enum ha_schedule_by by,
                                  enum ha_schedule_fetch fetch, bool united, size_t tokens, size_t unit,
                                  struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    const size_t heads = s->batch * s->q_heads, most = s->batch * s->kv_heads;
    *c = (struct ha_schedule){ .ctx = ctx, .by = by, .fetch = fetch, .united = united, .list_max = tokens / unit };
    c->want = room(c, heads, sizeof *c->want, why);
    c->index = c->want ? mapped(c, heads * c->list_max, why) : NULL;
    c->keys = c->index ? mapped(c, heads, why) : NULL;
    c->task = c->keys ? room(c, most, sizeof *c->task, why) : NULL;
    c->task_of = c->task ? room(c, most, sizeof *c->task_of, why) : NULL;
    c->volume = c->task_of ? room(c, most, sizeof *c->volume, why) : NULL;
    c->device = c->volume ? room(c, most, sizeof *c->device, why) : NULL;
    c->seq = c->device ? room(c, s->q_len, sizeof *c->seq, why) : NULL;
    c->worker = c->seq ? room(c, threads(c) + 1, sizeof *c->worker, why) : NULL;
    if (!c->worker) return HA_ERROR;
    for (size_t i = 0; i <= threads(c); i++) HA_TRY(make_worker(c, &c->worker[i], tokens, why));
    HA_TRY(ha_tasks_create(&c->tasks, ctx, most, why));
    c->tasks.may = may;
    c->tasks.may_arg = c;
    for (size_t i = 0; i < HA_SCHEDULE_LANES && by != HA_SCHEDULE_NONE; i++)
        HA_TRY(make_lane(c, &c->lane[i], first, i, tokens, why));
    return HA_OK;
}

/* ---- tasks, and who may take them -------------------------------------------------------------------------------- */

void ha_schedule_begin(struct ha_schedule *c)
{
    const struct ha_shape *s = c->ctx->shape;
    c->count = 0;
    for (size_t i = 0; i < s->batch * s->kv_heads; i++) c->task_of[i] = SIZE_MAX;
    memset(c->want, 0, s->batch * s->q_heads * sizeof *c->want);
}

void ha_schedule_add(struct ha_schedule *c, const struct ha_schedule_task *task)
{
    c->task_of[task->b * c->ctx->shape->kv_heads + task->head] = c->count;
    c->volume[c->count] = (float)task->volume;
    c->task[c->count++] = *task;
}

/* The launch thread is one of threads + 1. It gets a task when what is due to it of all so far is at least half of it.
 */
static void deal(struct ha_schedule *c)
{
    double due = 0;
    for (size_t i = 0; i < c->count; i++) {
        const struct ha_digests *d = c->task[i].digests;
        const double size = c->by == HA_SCHEDULE_LENGTH ? (double)(d->blocks * d->unit) : 1;
        due += c->by == HA_SCHEDULE_NONE ? 0 : size / (double)(threads(c) + 1);
        c->device[i] = due >= size / 2;
        due -= c->device[i] ? size : 0;
    }
}

/* ---- one task: its choice ---------------------------------------------------------------------------------------- */

static size_t first_head(const struct ha_schedule *c, const struct ha_schedule_task *t)
{
    return t->b * c->ctx->shape->q_heads + t->head * ha_shape_group(c->ctx->shape);
}

static void choose_head(const struct ha_schedule *c, const struct ha_schedule_task *t, struct ha_schedule_work *w,
                        size_t head, uint32_t *index)
{
    const struct ha_shape *s = c->ctx->shape;
    const struct ha_digests *d = t->digests;
    const size_t row = t->b * s->q_len * s->q_heads + t->head * ha_shape_group(s) + head;
    c->ctx->kernels->digest_score(
        &(struct ha_digest_score){ .q = c->q + row * s->head_dim,
                                   .q_rows = s->q_len,
                                   .q_stride = s->q_heads * s->head_dim,
                                   .head_dim = s->head_dim,
                                   .digests = d->bytes + t->head * d->head_bytes,
                                   .blocks = d->blocks,
                                   .dtype = s->dtype,
                                   .scale = s->scale,
                                   .s = w->score,
                                   .s_stride = c->list_max,
                                   .streams = ha_reads_in_streams(c->ctx->kernels, s->dtype) });
    ha_choose_best(c->ctx, w->score, s->q_len, c->list_max, d->blocks, c->want[first_head(c, t) + head], index);
}

/* All lists of the task's query heads. */
static void choose(const struct ha_schedule *c, const struct ha_schedule_task *t, struct ha_schedule_work *w)
{
    const size_t group = ha_shape_group(c->ctx->shape), first = first_head(c, t), blocks = t->digests->blocks;
    uint32_t *index = c->index + first * c->list_max, *keys = c->keys + first;
    size_t all = 0;
    ha_order_thread_access("choose", "index", HA_WRITE, index, 1, 0, group * c->list_max * sizeof *index);
    ha_order_thread_access("choose", "keys", HA_WRITE, keys, 1, 0, group * sizeof *keys);
    memset(w->mark, 0, blocks);
    for (size_t g = 0; g < group; g++) {
        uint32_t *to = c->united ? w->own : index + g * c->list_max;
        keys[g] = (uint32_t)(c->want[first + g] * t->digests->unit);
        if (c->want[first + g]) choose_head(c, t, w, g, to);
        for (size_t i = 0; c->united && i < c->want[first + g]; i++) w->mark[to[i]] = 1;
    }
    if (!c->united) return;
    for (size_t i = 0; i < blocks; i++)
        if (w->mark[i]) w->own[all++] = (uint32_t)i;
    for (size_t g = 0; g < group; g++) {
        if (!c->want[first + g]) continue;
        memcpy(index + g * c->list_max, w->own, all * sizeof *index);
        keys[g] = (uint32_t)(all * t->digests->unit);
    }
}

/* ---- by the CPU -------------------------------------------------------------------------------------------------- */

/* `heads` query heads from g on, which read the same list. */
static void attend(const struct ha_schedule *c, const struct ha_schedule_task *t, struct ha_schedule_work *w, size_t g,
                   size_t heads)
{
    const struct ha_shape *s = c->ctx->shape;
    const size_t rows = t->b * s->q_len * s->q_heads, list = first_head(c, t) + g;
    struct ha_rows run = ha_kv_rows(s, t->store, t->head, 0, c->keys[list]);
    run.index = c->index + list * c->list_max;
    struct ha_attend a = ha_cpu_attend_unit(s, t->head * ha_shape_group(s) + g, heads, s->q_len, false,
                                            c->q + rows * s->head_dim, c->host->o + rows * s->head_dim,
                                            c->host->lse + rows, &run);
    a.block = t->digests->unit;
    a.scratch = w->scratch;
    c->ctx->kernels->attend(c->ctx->kernels, &a);
}

static void run_on_host(const struct ha_schedule *c, const struct ha_schedule_task *t, struct ha_schedule_work *w)
{
    const size_t group = ha_shape_group(c->ctx->shape), first = first_head(c, t);
    size_t readers = 0;
    choose(c, t, w);
    for (size_t g = 0; g < group; g++) readers += c->want[first + g] > 0;
    if (c->united && readers == group) {
        attend(c, t, w, 0, group);
        return;
    }
    for (size_t g = 0; g < group; g++)
        if (c->want[first + g]) attend(c, t, w, g, 1);
}

static void take_on_host(void *arg, size_t task, size_t worker)
{
    struct ha_schedule *c = arg;
    size_t next;
    while (ha_tasks_take(&c->tasks, false, &next)) run_on_host(c, &c->task[next], &c->worker[worker]);
}

/* ---- by the device ----------------------------------------------------------------------------------------------- */

/* The task's blocks to the lane, each once, and where they lie there. */
static enum ha_status fetch(const struct ha_schedule *c, struct ha_schedule_lane *lane,
                            const struct ha_schedule_task *t, struct ha_schedule_work *w, struct ha_why *why)
{
    const size_t group = ha_shape_group(c->ctx->shape), first = first_head(c, t), unit = t->digests->unit;
    const uint32_t *index = c->index + first * c->list_max;
    uint32_t *at = w->own; /* of each block in what is fetched */
    size_t count = 0;
    ha_order_thread_access("fetch", "place", HA_WRITE, lane->place, 1, 0, group * c->list_max * sizeof *lane->place);
    memset(w->mark, 0, t->digests->blocks);
    for (size_t g = 0; g < group; g++)
        for (size_t i = 0; i < c->keys[first + g] / unit; i++) w->mark[index[g * c->list_max + i]] = 1;
    for (size_t i = 0; i < t->digests->blocks; i++) {
        if (!w->mark[i]) continue;
        at[i] = (uint32_t)count;
        lane->fetched[count++] = (uint32_t)i;
    }
    for (size_t g = 0; g < group; g++)
        for (size_t i = 0; i < c->keys[first + g] / unit; i++)
            lane->place[g * c->list_max + i] = at[index[g * c->list_max + i]];
    return ha_fetch_run(
        &lane->fetch, lane->stream,
        &(struct ha_fetch_list){
            .from = t->store, .to = &lane->kv, .head = t->head, .index = lane->fetched, .count = count, .unit = unit },
        1, why);
}

/* A query token is a sequence of its own: LSEs of some of the heads are dense for one alone. */
static enum ha_status launch(const struct ha_schedule *c, struct ha_schedule_lane *lane,
                             const struct ha_schedule_task *t, const struct ha_step *step,
                             const struct ha_state *device)
{
    const struct ha_shape *s = c->ctx->shape;
    const bool copied = c->fetch != HA_SCHEDULE_ZERO_COPY;
    const size_t group = ha_shape_group(s), first = first_head(c, t);
    const uint32_t *keys = c->keys + first;
    size_t most = 0;
    for (size_t g = 0; g < group; g++) most = ha_most(most, keys[g]);
    struct ha_rows run = ha_kv_rows(s, copied ? &lane->kv : t->store, t->head, 0, most);
    run.index = copied ? lane->place : c->index + first * c->list_max;
    for (size_t begin = 0; begin < s->q_len; begin += HA_BATCH_MAX) {
        const size_t tokens = ha_least(s->q_len - begin, HA_BATCH_MAX);
        for (size_t i = 0; i < tokens; i++) {
            const size_t row = (t->b * s->q_len + begin + i) * s->q_heads + t->head * group;
            c->seq[i] = (struct ha_device_seq){ .q = step->q + row * s->head_dim,
                                                .runs = { run },
                                                .runs_count = 1,
                                                .k_head_bytes = ha_kv_head_bytes(s),
                                                .v_head_bytes = ha_kv_head_bytes(s),
                                                .o = device->o + row * s->head_dim,
                                                .lse = device->lse + row,
                                                .list_stride = c->list_max,
                                                .list_keys = keys };
        }
        HA_TRY(c->ctx->api->attend(lane->stream, &(struct ha_device_attend){ .batch = tokens,
                                                                             .q_len = 1,
                                                                             .q_heads = group,
                                                                             .kv_heads = 1,
                                                                             .head_dim = s->head_dim,
                                                                             .dtype = s->dtype,
                                                                             .scale = s->scale,
                                                                             .seqs = c->seq,
                                                                             .block = t->digests->unit,
                                                                             .lists = group }));
    }
    return HA_OK;
}

/* One task after the other, as lanes become free. */
static enum ha_status take_on_device(struct ha_schedule *c, const struct ha_step *step, const struct ha_state *device,
                                     struct ha_why *why)
{
    struct ha_schedule_work *w = &c->worker[threads(c)];
    for (;; c->next++) {
        struct ha_schedule_lane *lane = &c->lane[c->next % HA_SCHEDULE_LANES];
        size_t next;
        if (lane->used) HA_TRY(c->ctx->api->event_sync(lane->done));
        if (!ha_tasks_take(&c->tasks, true, &next)) return HA_OK;
        choose(c, &c->task[next], w);
        if (c->fetch != HA_SCHEDULE_ZERO_COPY) HA_TRY(fetch(c, lane, &c->task[next], w, why));
        lane->used = true;
        HA_TRY(launch(c, lane, &c->task[next], step, device));
        HA_TRY(c->ctx->api->event_record(lane->done, lane->stream));
    }
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static enum ha_status join(struct ha_schedule *c)
{
    for (size_t i = 0; i < HA_SCHEDULE_LANES; i++)
        if (c->lane[i].used) HA_TRY(c->ctx->api->stream_wait(c->ctx->stream, c->lane[i].done));
    return HA_OK;
}

static void count_keys(const struct ha_schedule *c)
{
    const size_t group = ha_shape_group(c->ctx->shape);
    size_t keys[2] = { 0, 0 };
    for (size_t i = 0; i < c->count; i++)
        for (size_t g = 0; g < group; g++)
            keys[ha_tasks_taker(&c->tasks, i) == HA_TAKEN_BY_DEVICE] += c->keys[first_head(c, &c->task[i]) + g];
    ha_frame_worked(c->layer, keys[0], keys[1]);
}

enum ha_status ha_schedule_run(struct ha_schedule *c, struct ha_layer *l, const struct ha_step *step, const float *q,
                               const struct ha_state *host, const struct ha_state *device, struct ha_why *why)
{
    const struct ha_shape *s = c->ctx->shape;
    enum ha_status status = HA_OK;
    c->layer = l;
    c->q = q;
    c->host = host;
    ha_order_thread_access("work", "keys", HA_WRITE, c->keys, 1, 0, s->batch * s->q_heads * sizeof *c->keys);
    memset(c->keys, 0, s->batch * s->q_heads * sizeof *c->keys);
    for (size_t i = 0; i < HA_SCHEDULE_LANES; i++) c->lane[i].used = false;
    deal(c);
    HA_TRY(ha_tasks_fill(&c->tasks, c->by == HA_SCHEDULE_PRIORITY ? HA_TASKS_LARGEST : HA_TASKS_GIVEN, c->volume,
                         c->count, why));
    if (!c->count) return HA_OK;
    if (c->by == HA_SCHEDULE_NONE) {
        ha_pool_run(c->ctx->pool, "sparse attend", threads(c), take_on_host, c);
    } else {
        ha_pool_start(c->ctx->pool, "sparse attend", threads(c), take_on_host, c);
        status = take_on_device(c, step, device, why);
        ha_pool_wait(c->ctx->pool);
    }
    count_keys(c);
    return status == HA_OK ? join(c) : status;
}

const uint32_t *ha_schedule_list(const struct ha_schedule *c, size_t b, size_t q_head, size_t unit, size_t *count)
{
    const size_t list = b * c->ctx->shape->q_heads + q_head;
    *count = unit ? c->keys[list] / unit : 0;
    return c->index + list * c->list_max;
}

bool ha_schedule_on_device(const struct ha_schedule *c, size_t b, size_t head)
{
    const size_t task = c->task_of[b * c->ctx->shape->kv_heads + head];
    return task != SIZE_MAX && ha_tasks_taker(&c->tasks, task) == HA_TAKEN_BY_DEVICE;
}
