/* Mixtures: steps that are drawn, on several streams that wait for each other. */

#include "suites/device/mixture.h"

#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

/* pageable memory stands last */
static const enum ha_op_place places[HA_OP_MIX_BLOCKS] = { HA_OP_DEVICE, HA_OP_DEVICE, HA_OP_DEVICE,  HA_OP_PINNED,
                                                           HA_OP_PINNED, HA_OP_MAPPED, HA_OP_PAGEABLE };

enum ha_status ha_op_mix_make(struct ha_op_stage *s, struct ha_op_mix *mix, size_t bytes)
{
    *mix = (struct ha_op_mix){ .bytes = bytes };
    for (size_t i = 0; i < HA_OP_MIX_BLOCKS; i++) {
        mix->block[i] = ha_op_block(s, places[i], bytes);
        if (!mix->block[i]) return HA_ERROR;
    }
    if (!s->api->move) return HA_OK;
    mix->down = ha_op_block(s, HA_OP_MAPPED, HA_OP_MIX_ROWS * sizeof(uint32_t));
    if (!mix->down) return HA_ERROR;
    for (uint32_t i = 0; i < HA_OP_MIX_ROWS; i++) ((uint32_t *)(void *)mix->down->at)[i] = HA_OP_MIX_ROWS - 1 - i;
    return HA_OK;
}

enum ha_status ha_op_mix_fill(struct ha_op_stage *s, const struct ha_op_mix *mix)
{
    for (size_t i = 0; i < HA_OP_MIX_BLOCKS; i++) HA_TRY(ha_op_fill(s, mix->block[i], 0, mix->bytes));
    return HA_OK;
}

static bool on_host(size_t block) { return places[block] != HA_OP_DEVICE; }
static bool for_kernels(size_t block) { return places[block] == HA_OP_DEVICE || places[block] == HA_OP_MAPPED; }

static bool may(const struct ha_op_stage *s, const struct ha_op_step *t)
{
    const bool host = on_host(t->to) && on_host(t->from);
    switch (t->kind) {
    case HA_OP_COPY_2D: return s->api->copy_2d && !host;
    case HA_OP_PIECES: return s->api->copy_pieces && !host;
    case HA_OP_MOVE: return s->api->move && for_kernels(t->to) && for_kernels(t->from);
    case HA_OP_HOST_FN: return s->api->host_fn && host;
    default: return !host;
    }
}

struct ha_op_step ha_op_mix_draw(struct ha_op_stage *s, const struct ha_op_mix *mix, bool pinned)
{
    const size_t blocks = HA_OP_MIX_BLOCKS - pinned;
    struct ha_op_step t = { .mix = mix };
    do {
        t.kind = (enum ha_op_step_kind)ha_op_draw(s, HA_OP_STEP_KINDS);
        t.to = ha_op_draw(s, blocks);
        t.from = (t.to + 1 + ha_op_draw(s, blocks - 1)) % blocks;
    } while (!may(s, &t));
    const size_t most = ha_op_draw(s, 4) && mix->bytes > 3000 ? 3000 : mix->bytes, all = ha_op_draw(s, most + 1);
    t.rows = t.kind == HA_OP_COPY || !all ? 1 : 1 + ha_op_draw(s, all < HA_OP_MIX_ROWS ? all : HA_OP_MIX_ROWS);
    const size_t stride = all / t.rows;
    t.width = stride - (t.rows > 1 ? ha_op_draw(s, stride) : 0);
    t.dst_stride = ha_op_draw(s, 2) ? stride : t.width;
    t.src_stride = ha_op_draw(s, 2) ? stride : t.width;
    t.dst = ha_op_draw(s, mix->bytes - t.rows * stride + 1);
    t.src = ha_op_draw(s, mix->bytes - t.rows * stride + 1);
    return t;
}

/* Between the blocks themselves, or their images. */
static void do_it(const struct ha_op_step *t, char *to, const char *from)
{
    for (size_t i = 0; i < t->rows; i++)
        memcpy(to + t->dst + (t->kind == HA_OP_MOVE ? t->rows - 1 - i : i) * t->dst_stride,
               from + t->src + i * t->src_stride, t->width);
}
static void called(void *arg)
{
    const struct ha_op_step *t = arg;
    do_it(t, t->mix->block[t->to]->at, t->mix->block[t->from]->at);
}
void ha_op_mix_apply(const struct ha_op_step *t)
{
    do_it(t, t->mix->block[t->to]->image, t->mix->block[t->from]->image);
}

static enum ha_status enqueue_pieces(struct ha_op_stage *s, const struct ha_op_step *t, char *to, const char *from,
                                     enum ha_direction dir, struct ha_stream *on)
{
    void *dst[HA_OP_MIX_ROWS];
    const void *src[HA_OP_MIX_ROWS];
    size_t bytes[HA_OP_MIX_ROWS];
    for (size_t i = 0; i < t->rows; i++) {
        dst[i] = to + i * t->dst_stride;
        src[i] = from + i * t->src_stride;
        bytes[i] = t->width;
    }
    HA_OP(s, copy_pieces, on, &(struct ha_device_pieces){ dst, src, bytes, t->rows }, dir);
    return HA_OK;
}

enum ha_status ha_op_mix_enqueue(struct ha_op_stage *s, struct ha_op_step *t, struct ha_stream *on)
{
    char *to = t->mix->block[t->to]->at + t->dst;
    const char *from = t->mix->block[t->from]->at + t->src;
    const enum ha_direction dir = on_host(t->to) ? HA_D2H : on_host(t->from) ? HA_H2D : HA_D2D;
    switch (t->kind) {
    case HA_OP_PIECES: return enqueue_pieces(s, t, to, from, dir, on);
    case HA_OP_HOST_FN: HA_OP(s, host_fn, on, called, t); return HA_OK;
    case HA_OP_COPY_2D:
        HA_OP(s, copy_2d, on, to, t->dst_stride, from, t->src_stride, t->width, t->rows, dir);
        return HA_OK;
    case HA_OP_MOVE: {
        const uint32_t *down = (const uint32_t *)(const void *)t->mix->down->at + (HA_OP_MIX_ROWS - t->rows);
        HA_OP(s, move, on,
              &(struct ha_device_move){ to, from, down, NULL, t->rows, t->width, t->dst_stride, t->src_stride });
        return HA_OK;
    }
    default: HA_OP(s, copy, on, to, from, t->width, dir); return HA_OK;
    }
}

enum ha_status ha_op_mix_judge(struct ha_op_stage *s, const struct ha_op_mix *mix, const char *what)
{
    for (size_t i = 0; i < HA_OP_MIX_BLOCKS; i++)
        HA_TRY(ha_op_judge(s, mix->block[i], 0, mix->bytes, "block %zu, after %s", i, what));
    return HA_OK;
}

/* ---- on several streams ------------------------------------------------------------------------------------------ */

/* Chains of steps over blocks of their own. The steps of one run one after the other, on whichever stream; those of two
 * run side by side on the same streams. */
enum { CHAINS = 2, STREAMS = 8, STEPS = 120, BYTES = 96 << 10, ROUNDS = 4 * HA_OP_ROUNDS, KEPT = 4, GRAPHS = 64 };
struct chain {
    struct ha_op_mix mix;
    struct ha_event *event;
    uint32_t *flag, written;
    size_t at; /* the stream of the last step */
};
struct mixture {
    struct ha_stream *stream[STREAMS], *captures;
    size_t streams, steps;
    struct chain chain[CHAINS];
    struct ha_op_step *step;
    struct ha_graph *graph[GRAPHS];
    size_t graphs;
    bool held; /* a stream is: the CPU cannot wait for any */
};

static enum ha_status stream_make(struct ha_op_stage *s, struct ha_stream **stream)
{
    return s->api->stream_create(s->device, "conform mixture", stream, s->why);
}
/* It waits for its work. */
static void stream_end(struct ha_op_stage *s, struct ha_stream **stream)
{
    if (*stream) s->api->stream_destroy(*stream);
    *stream = NULL;
}

/* The stream `next` goes on where the chain's last one is: by an event, a flag, the CPU's waiting, or the end of that
 * stream. */
static enum ha_status hop(struct ha_op_stage *s, struct mixture *m, struct chain *c, size_t next)
{
    const size_t how = ha_op_draw(s, 5);
    struct ha_stream *const from = m->stream[c->at], *const to = m->stream[next];
    if (how == 4 && !m->held) {
        stream_end(s, &m->stream[c->at]);
        HA_TRY(stream_make(s, &m->stream[c->at]));
    } else if (how == 0 && c->flag) {
        HA_OP(s, flag_write, from, c->flag, ++c->written);
        HA_OP(s, flag_wait, to, c->flag, c->written);
    } else if (how == 1 && !m->held) HA_OP(s, stream_sync, from);
    else {
        HA_OP(s, event_record, c->event, from);
        if (how == 2 && !m->held) HA_OP(s, event_sync, c->event);
        else HA_OP(s, stream_wait, to, c->event);
    }
    c->at = next;
    return HA_OK;
}

static bool has_graphs(const struct ha_op_stage *s)
{
    return s->api->graph_begin && s->api->graph_end && s->api->graph_launch && s->api->graph_destroy;
}

/* Some steps of a chain as a graph, launched once or twice. Where it writes the chain's flag, `next` waits for that. */
static enum ha_status launch_steps(struct ha_op_stage *s, struct mixture *m, struct chain *c, struct ha_op_step *step,
                                   size_t count, size_t next)
{
    const bool writes = c->flag && s->api->flag_write && ha_op_draw(s, 2);
    const size_t times = writes ? 1 : 1 + ha_op_draw(s, 2);
    enum ha_status kept = HA_OK;
    HA_OP(s, graph_begin, m->captures);
    for (size_t i = 0; i < count && kept == HA_OK; i++) {
        step[i] = ha_op_mix_draw(s, &c->mix, true);
        kept = ha_op_mix_enqueue(s, &step[i], m->captures);
    }
    if (writes && kept == HA_OK)
        kept = ha_op_failed(s, "flag_write", s->api->flag_write(m->captures, c->flag, ++c->written));
    const enum ha_status ended = s->api->graph_end(m->captures, &m->graph[m->graphs], s->why);
    HA_TRY(kept);
    HA_TRY(ended);
    struct ha_graph *const graph = m->graph[m->graphs++];
    for (size_t k = 0; k < times; k++) {
        HA_OP(s, graph_launch, graph, m->stream[c->at]);
        for (size_t i = 0; i < count; i++) ha_op_mix_apply(&step[i]);
    }
    if (!writes || next == c->at) return HA_OK;
    HA_OP(s, flag_wait, m->stream[next], c->flag, c->written);
    c->at = next;
    return HA_OK;
}

/* The streams end: by the CPU's waiting for them, or as they are destroyed while one is held up. */
static enum ha_status end_streams(struct ha_op_stage *s, struct mixture *m)
{
    const bool destroyed = ha_op_draw(s, 2);
    struct ha_op_opener opener;
    if (m->held && destroyed) HA_TRY(ha_op_open_later(s, &opener));
    else if (m->held) HA_TRY(ha_op_hold(s)); /* what does not wait runs now */
    if (!m->held || !destroyed) ha_op_open(s);
    for (size_t i = 0; i < m->streams && destroyed; i++) stream_end(s, &m->stream[i]);
    if (m->held && destroyed) ha_op_opened(&opener);
    for (size_t i = 0; i < m->streams && !destroyed; i++) HA_OP(s, stream_sync, m->stream[i]);
    return HA_OK;
}

static enum ha_status run(struct ha_op_stage *s, struct mixture *m, size_t bytes)
{
    for (size_t i = 0; i < CHAINS; i++) {
        struct chain *c = &m->chain[i];
        HA_TRY(ha_op_mix_make(s, &c->mix, bytes));
        HA_TRY(ha_op_mix_fill(s, &c->mix));
        if (!s->api->flag_write || !s->api->flag_wait) continue;
        const struct ha_op_block *flag = ha_op_block(s, HA_OP_MAPPED, sizeof *c->flag);
        if (!flag) return HA_ERROR;
        c->flag = (uint32_t *)(void *)flag->at;
        __atomic_store_n(c->flag, 0, __ATOMIC_RELEASE);
    }
    m->held = ha_op_draw(s, 2);
    if (m->held) HA_TRY(ha_op_shut(s, m->stream[ha_op_draw(s, m->streams)]));
    for (size_t i = 0; i < m->steps; i++) {
        struct chain *c = &m->chain[ha_op_draw(s, CHAINS)];
        const size_t next = ha_op_draw(s, m->streams);
        if (next != c->at) HA_TRY(hop(s, m, c, next));
        const size_t kept = 1 + ha_op_draw(s, KEPT);
        if (i + kept < m->steps && m->graphs < GRAPHS && has_graphs(s) && ha_op_draw(s, 6) == 0) {
            HA_TRY(launch_steps(s, m, c, &m->step[i], kept, ha_op_draw(s, m->streams)));
            i += kept - 1;
            continue;
        }
        m->step[i] = ha_op_mix_draw(s, &c->mix, m->held);
        ha_op_mix_apply(&m->step[i]);
        HA_TRY(ha_op_mix_enqueue(s, &m->step[i], m->stream[next]));
    }
    HA_TRY(end_streams(s, m));
    for (size_t i = 0; i < CHAINS; i++)
        HA_TRY(ha_op_mix_judge(s, &m->chain[i].mix, "steps on streams that wait for each other"));
    return HA_OK;
}

static enum ha_status mixture(struct ha_op_stage *s, size_t bytes, size_t steps, size_t streams)
{
    static struct mixture m; /* not on the stack: a device that forgets to wait comes later */
    m = (struct mixture){ .streams = streams, .steps = steps, .step = calloc(steps, sizeof *m.step) };
    enum ha_status status = m.step ? HA_OK : ha_why(s->why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < streams && status == HA_OK; i++) status = stream_make(s, &m.stream[i]);
    if (status == HA_OK) status = stream_make(s, &m.captures);
    for (size_t i = 0; i < CHAINS && status == HA_OK; i++)
        status = s->api->event_create(s->device, &m.chain[i].event, s->why);
    if (status == HA_OK) status = run(s, &m, bytes);
    ha_op_open(s);
    for (size_t i = 0; i < STREAMS; i++)
        if (m.stream[i]) s->api->stream_sync(m.stream[i]);
    for (size_t i = 0; i < CHAINS; i++)
        if (m.chain[i].event) s->api->event_destroy(m.chain[i].event);
    for (size_t i = 0; i < STREAMS; i++) stream_end(s, &m.stream[i]);
    stream_end(s, &m.captures);
    for (size_t i = 0; i < m.graphs; i++) s->api->graph_destroy(m.graph[i]);
    if (status == HA_OK) { /* else a wrong device may still be at work with them */
        free(m.step);
        ha_op_clear(s);
    }
    return status;
}

static enum ha_status judge_mixture(struct ha_op_stage *s)
{
    const size_t bytes = s->most < BYTES ? s->most : BYTES;
    for (size_t round = 0; round < ROUNDS; round++) HA_TRY(mixture(s, bytes, STEPS, round % 2 ? 4 : 2));
    return HA_OK;
}
static enum ha_status mixture_case(struct ha_op_stage *s, const struct ha_op_case *c)
{
    return mixture(s, c->size ? c->size : 1, c->times, c->streams);
}
const struct ha_op ha_op_mixture = {
    .name = "mixture",
    .doc = "copies, moves, host functions and graphs on streams that wait for each other and end",
    .needs = { HA_OP_ENTRY(event_create), HA_OP_ENTRY(event_record), HA_OP_ENTRY(stream_wait),
               HA_OP_ENTRY(event_sync) },
    .judge = judge_mixture,
    .keys = "size times streams",
    .once = mixture_case,
    .held_ms = 0.2,
};
