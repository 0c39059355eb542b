/* The device that has a fault (fault.h): its entries stand before those of the sound one. Outputs are
 * changed by host functions before and behind the call, so that a fault is planted in a device whose memory the host
 * can read: the embedded one. */

#include "suites/defects/drawn.h"

#include "suites/defects/spell.h"

#include "harness/base/clock.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"

#include <string.h>

#define BASE (*ha_wrong_base)

static bool planted;

/* ---- the call ---------------------------------------------------------------------------------------------------- */

/* Of what a graph captures the first time is at once. */
static enum ha_status twice(const struct ha_spell *s, struct ha_stream *stream)
{
    const bool captured = ha_wrong_captures(stream);
    const enum ha_status status = s->way->call(captured ? ha_wrong_stream() : stream, s->args);
    if (captured && status == HA_OK) BASE.stream_sync(ha_wrong_stream());
    return status == HA_OK ? s->way->call(stream, s->args) : status;
}

/* Between two host functions, of which the second gives the spell back, unless a graph keeps it. */
static enum ha_status between(struct ha_spell *s, struct ha_stream *stream, void (*before)(void *),
                              void (*behind)(void *))
{
    if (ha_wrong_captures(stream)) ha_spell_keep(s);
    enum ha_status status = BASE.host_fn(stream, before, s);
    if (status == HA_OK) status = s->way->call(stream, s->args);
    const enum ha_status over = BASE.host_fn(stream, behind, s);
    return status == HA_OK ? over : status;
}

static void nothing(void *arg) {}
static enum ha_status give_up(struct ha_stream *s);
/* Waits for the very value, for so long as a wait may last; then the device has failed. */
static bool failed;
static void wait_exactly(void *arg)
{
    const struct ha_spell *s = arg;
    struct ha_flag_call c;
    memcpy(&c, s->args, sizeof c);
    const uint64_t begin_ns = ha_now_ns();
    while (__atomic_load_n(c.flag, __ATOMIC_ACQUIRE) != c.value && ha_now_ns() - begin_ns < 2000000000)
        ha_sleep_ns(20000);
    if (__atomic_load_n(c.flag, __ATOMIC_ACQUIRE) != c.value) __atomic_store_n(&failed, true, __ATOMIC_RELEASE);
    ha_spell_over(arg);
}

static enum ha_status wrong_call(const struct ha_way *way, struct ha_stream *stream, const void *args)
{
    ha_spell_sweep();
    struct ha_spell *s = ha_spell_new(way, args);
    enum ha_status status;
    if (!ha_spell_hits(s, stream, ha_wrong_captures(stream))) {
        ha_spell_free(s);
        return way->call(stream, args);
    }
    if (ha_drawn_fault.effect >= HA_FAULT_FEWER && ha_drawn_fault.effect <= HA_FAULT_ALIGNED) ha_change_arguments(s);
    switch (ha_drawn_fault.effect) {
    case HA_FAULT_DROPPED: status = HA_OK; break;
    case HA_FAULT_TWICE: status = twice(s, stream); break;
    case HA_FAULT_EARLY: status = ha_wrong_over(stream, way->call(ha_wrong_early(stream), s->args)); break;
    case HA_FAULT_GIVES_UP: status = give_up(stream); break;
    case HA_FAULT_EXACT:
        if (ha_wrong_captures(stream)) ha_spell_keep(s);
        return BASE.host_fn(stream, wait_exactly, s);
    case HA_FAULT_ASIDE: status = way->call(ha_wrong_aside(stream), s->args); break;
    case HA_FAULT_READ_EARLY:
    case HA_FAULT_CACHED: ha_change_inputs(s); return between(s, stream, ha_fill_inputs, ha_spell_over);
    case HA_FAULT_SPOILED: return between(s, stream, nothing, ha_spoil_inputs);
    case HA_FAULT_UNREAD: return between(s, stream, ha_save_outputs, ha_change_outputs);
    default:
        if (ha_drawn_fault.effect >= HA_FAULT_STALE && ha_drawn_fault.of->kind == HA_ARGUMENT_OUT)
            return between(s, stream, ha_save_outputs, ha_change_outputs);
        if (ha_drawn_fault.effect >= HA_FAULT_STALE) {
            ha_change_inputs(s);
            return between(s, stream, ha_fill_inputs, ha_spell_over);
        }
        status = way->call(stream, s->args);
    }
    ha_spell_free(s);
    return status;
}

/* ---- the entries ------------------------------------------------------------------------------------------------- */

static struct ha_device_api sound; /* what is called where nothing is wrong: an entry that is NULL is the base's */

static bool is_wrong(const char *entry) { return planted && !strcmp(ha_drawn_fault.op->name, entry); }
/* products: plain loops, as a machine may have no library */
static bool is_ours(const char *entry)
{
    return !planted || !strcmp(entry, "attend_products") || !strcmp(entry, "product");
}
#define SOUND(entry) (sound.entry && is_ours(#entry) ? sound.entry : BASE.entry)

/* Of what an operation has read first a byte changes behind it. */
static void find_input(void *arg, const char *role, enum ha_access access, struct ha_range range)
{
    const void **at = arg;
    if (access == HA_READ && !*at) *at = range.at;
}
static void count_up(void *at) { ++*(unsigned char *)at; }
static enum ha_status spoil(const struct ha_way *way, struct ha_stream *s, const void *args)
{
    const void *at = NULL;
    way->visit(args, find_input, &at);
    const enum ha_status status = way->call(s, args);
    return at && status == HA_OK ? BASE.host_fn(s, count_up, (void *)(uintptr_t)at) : status;
}

#define OPERATION(entry, type)                                                                                  \
    static enum ha_status call_##entry(struct ha_stream *s, const void *args) { return SOUND(entry)(s, args); } \
    static void visit_##entry(const void *args, ha_operand_fn *fn, void *arg)                                   \
    {                                                                                                           \
        ha_operands_device_##entry(args, fn, arg);                                                              \
    }                                                                                                           \
    static enum ha_status drawn_##entry(struct ha_stream *s, const struct type *args)                           \
    {                                                                                                           \
        static const struct ha_way way = { call_##entry, visit_##entry };                                       \
        if (IS(input_changed)) return spoil(&way, s, args);                                                     \
        return is_wrong(#entry) ? wrong_call(&way, s, args) : call_##entry(s, args);                            \
    }
HA_DEVICE_OPERATIONS(OPERATION)

/* An entry whose arguments are no struct: what it is called with, and how it is called. */
#define ENTRY(entry, visitor, type, parameters, list, ...)                                 \
    static enum ha_status call_##entry(struct ha_stream *s, const void *args)              \
    {                                                                                      \
        const struct type *c = args;                                                       \
        (void)c;                                                                           \
        return SOUND(entry)(__VA_ARGS__);                                                  \
    }                                                                                      \
    static enum ha_status drawn_##entry parameters                                         \
    {                                                                                      \
        static const struct ha_way way = { call_##entry, visitor };                        \
        const struct type c = list;                                                        \
        return is_wrong(#entry) ? wrong_call(&way, STREAM, &c) : call_##entry(STREAM, &c); \
    }
#define LIST(...)   \
    {               \
        __VA_ARGS__ \
    }

static void visit_copy(const void *args, ha_operand_fn *fn, void *arg)
{
    const struct ha_copy_call *c = args;
    ha_operands_copy(&(struct ha_device_pieces){ &c->dst, &c->src, &c->bytes, 1 }, fn, arg);
}
static void visit_copy_2d(const void *args, ha_operand_fn *fn, void *arg)
{
    const struct ha_copy_2d_call *c = args;
    ha_operands_copy_2d(c->dst, c->dst_stride, c->src, c->src_stride, c->row_bytes, c->rows, fn, arg);
}
static void visit_read(const void *args, ha_operand_fn *fn, void *arg)
{
    const struct ha_read_call *c = args;
    fn(arg, "source", HA_READ, (struct ha_range){ c->ptr, 1, 0, c->bytes });
    fn(arg, "sum", HA_WRITE, (struct ha_range){ c->sum, 1, 0, sizeof *c->sum });
}

#define STREAM s
ENTRY(copy, visit_copy, ha_copy_call,
      (struct ha_stream * s, void *dst, const void *src, size_t bytes, enum ha_direction dir),
      LIST(dst, src, bytes, dir), s, c->dst, c->src, c->bytes, c->dir)
ENTRY(copy_2d, visit_copy_2d, ha_copy_2d_call,
      (struct ha_stream * s, void *dst, size_t dst_stride, const void *src, size_t src_stride, size_t row_bytes,
       size_t rows, enum ha_direction dir),
      LIST(dst, dst_stride, src, src_stride, row_bytes, rows, dir), s, c->dst, c->dst_stride, c->src, c->src_stride,
      c->row_bytes, c->rows, c->dir)
ENTRY(copy_pieces, NULL, ha_pieces_call,
      (struct ha_stream * s, const struct ha_device_pieces *pieces, enum ha_direction dir), LIST(*pieces, dir), s,
      &c->pieces, c->dir)
ENTRY(read, visit_read, ha_read_call, (struct ha_stream * s, const void *ptr, size_t bytes, uint32_t *sum),
      LIST(ptr, bytes, sum), s, c->ptr, c->bytes, c->sum)
ENTRY(flag_write, NULL, ha_flag_call, (struct ha_stream * s, uint32_t *flag, uint32_t value), LIST(flag, value), s,
      c->flag, c->value)
ENTRY(flag_wait, NULL, ha_flag_call, (struct ha_stream * s, const uint32_t *flag, uint32_t value),
      LIST((uint32_t *)(uintptr_t)flag, value), s, c->flag, c->value)
ENTRY(host_fn, NULL, ha_host_call, (struct ha_stream * s, void (*fn)(void *arg), void *arg), LIST(fn, arg), s, c->fn,
      c->arg)
ENTRY(stream_wait, NULL, ha_handle_call, (struct ha_stream * s, struct ha_event *event), LIST(event), s, c->handle)
ENTRY(event_record, NULL, ha_handle_call, (struct ha_event * event, struct ha_stream *s), LIST(event), c->handle, s)
ENTRY(graph_launch, NULL, ha_handle_call, (struct ha_graph * graph, struct ha_stream *s), LIST(graph), c->handle, s)
ENTRY(spin, NULL, ha_spin_call, (struct ha_stream * s, uint64_t ns), LIST(ns), s, c->ns)
#undef STREAM
#define STREAM NULL
ENTRY(event_sync, NULL, ha_handle_call, (struct ha_event * event), LIST(event), c->handle)

/* Given up: an event that is recorded now is looked at until the time is over, by another thread. */
static void tell(void *arg) { __atomic_store_n((uint32_t *)arg, 1, __ATOMIC_RELEASE); }
static enum ha_status give_up(struct ha_stream *s)
{
    static uint32_t done[1024];
    static size_t turn;
    uint32_t *const mine = &done[__atomic_fetch_add(&turn, 1, __ATOMIC_RELAXED) % 1024];
    const uint64_t begin_ns = ha_now_ns();
    __atomic_store_n(mine, 0, __ATOMIC_RELEASE);
    const enum ha_status status = BASE.host_fn(s, tell, mine);
    if (status != HA_OK) return BASE.stream_sync(s);
    while (!__atomic_load_n(mine, __ATOMIC_ACQUIRE) && ha_now_ns() - begin_ns < ha_drawn_fault.x * 1000000)
        ha_sleep_ns(50000);
    return __atomic_load_n(mine, __ATOMIC_ACQUIRE) ? BASE.stream_sync(s) : HA_OK;
}
static enum ha_status call_stream_sync(struct ha_stream *s, const void *args) { return SOUND(stream_sync)(s); }
static enum ha_status drawn_stream_sync(struct ha_stream *s)
{
    static const struct ha_way way = { call_stream_sync, NULL };
    const struct ha_handle_call c = { s };
    if (__atomic_load_n(&failed, __ATOMIC_ACQUIRE)) return HA_ERROR;
    return is_wrong("stream_sync") ? wrong_call(&way, s, &c) : call_stream_sync(s, &c);
}

static enum ha_status drawn_stream_create(struct ha_device *dev, const char *name, struct ha_stream **stream,
                                          struct ha_why *why)
{
    HA_TRY(sound.stream_create(dev, name, stream, why));
    ha_spell_stream_made(*stream);
    return HA_OK;
}

void ha_drawn_wrap(struct ha_device_api *api)
{
    sound = *api;
#define USE(entry, type) api->entry = drawn_##entry;
    HA_DEVICE_OPERATIONS(USE)
#define USE_(entry) api->entry = drawn_##entry
    USE_(copy);
    USE_(copy_2d);
    USE_(copy_pieces);
    USE_(read);
    USE_(flag_write);
    USE_(flag_wait);
    USE_(host_fn);
    USE_(stream_wait);
    USE_(event_record);
    USE_(graph_launch);
    USE_(spin);
    USE_(event_sync);
    USE_(stream_sync);
    USE_(stream_create);
}

void ha_drawn_begin(const struct ha_fault *fault)
{
    planted = fault != NULL;
    if (planted) ha_drawn_fault = *fault;
    ha_spell_begin();
    failed = false;
}
void ha_drawn_end(void)
{
    ha_spell_end();
    ha_change_end();
    planted = false;
}
