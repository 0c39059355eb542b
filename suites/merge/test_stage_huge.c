/* Huge strides: our kernels pass; merges that cut an index to 32 bits fail. */

#include "suites/merge/test_stage.h"

#include <sys/mman.h>

TEST(huge_passes)
{
    struct ha_subject s = direct(&ha_kernels_c.traits, ha_kernels_c.merge);
    expect_all(&s, HA_STAGE_HUGE, HA_OK, "");
    s.traits.lse_order = HA_LSE_HEADS_TOKENS;
    expect_plain(&s, HA_STAGE_HUGE, HA_OK, "");
    s.traits.lse_order = HA_LSE_TOKENS_HEADS;
    expect(&s, HA_STAGE_HUGE, HA_FORM_MAX_SUM, HA_F16, HA_OK, "");
    s.traits.o_strides = false;
    expect_plain(&s, HA_STAGE_HUGE, HA_WAIVED, "packed rows of o only");
    ha_subject_close(&s);
}

/* what was asked for: a bit for each set of strides that are huge, of o_token, o_head, lse_token, lse_head */
static unsigned asked;
static void merge_and_note(const struct ha_merge *m)
{
    const size_t limit = (size_t)1 << 31;
    for (size_t i = 0; i <= m->states_count; i++) {
        const struct ha_merge_state *x = i < m->states_count ? &m->states[i] : &m->out;
        const size_t last = (m->tokens - 1) * x->o_token_stride + (m->heads - 1) * x->o_head_stride;
        asked |= 1u << ((x->o_token_stride > limit) | (x->o_head_stride > limit) << 1
                        | (x->lse_token_stride > limit) << 2 | (x->lse_head_stride > limit) << 3);
        assert_true(last > 2 * limit);
    }
    ha_kernels_c.merge(m);
}

TEST(huge_in_each_stride)
{
    struct ha_subject s = direct(&ha_kernels_c.traits, merge_and_note);
    asked = 0;
    expect_plain(&s, HA_STAGE_HUGE, HA_OK, "");
    assert_int_equal(asked, 1u << 1 | 1u << (1 | 4) | 1u << 2 | 1u << (2 | 8));
    s.traits.lse_order = HA_LSE_TOKENS_HEADS;
    asked = 0;
    expect_plain(&s, HA_STAGE_HUGE, HA_OK, "");
    assert_int_equal(asked, 1u << 1 | 1u << 2);
    ha_subject_close(&s);
}

/* How the index of token t and head h may wrap, or its stride, or its offset in bytes. */
enum wrap { RIGHT, AS_UINT32, AS_INT32, INT_STRIDE, UINT32_BYTES, INT32_BYTES, WRAPS };
static struct wraps {
    enum wrap o, lse, out;
} wraps;

/* in bytes, of elements of e */
static int64_t offset(enum wrap wrap, size_t t, size_t h, size_t token_stride, size_t head_stride, size_t e)
{
    const size_t index = t * token_stride + h * head_stride;
    switch (wrap) {
    case AS_UINT32: return (int64_t)(uint32_t)index * (int64_t)e;
    case AS_INT32: return (int64_t)(int32_t)(uint32_t)index * (int64_t)e;
    case INT_STRIDE:
        return ((int64_t)t * (int32_t)(uint32_t)token_stride + (int64_t)h * (int32_t)(uint32_t)head_stride)
               * (int64_t)e;
    case UINT32_BYTES: return (int64_t)(uint32_t)(index * e);
    case INT32_BYTES: return (int64_t)(int32_t)(uint32_t)(index * e);
    default: return (int64_t)(index * e);
    }
}

/* The right merge of one row at a time, found where the index leads. */
static void merge_wrapped(const struct ha_merge *m)
{
    const size_t e = ha_dtype_bytes(m->dtype);
    struct ha_merge_state row[9];
    for (size_t t = 0; t < m->tokens; t++)
        for (size_t h = 0; h < m->heads; h++) {
            for (size_t i = 0; i <= m->states_count; i++) {
                const struct ha_merge_state *x = i < m->states_count ? &m->states[i] : &m->out;
                const enum wrap o = i < m->states_count ? wraps.o : wraps.out;
                const int64_t lse = offset(wraps.lse, t, h, x->lse_token_stride, x->lse_head_stride, sizeof(float));
                row[i] = *x;
                row[i].o = (char *)x->o + offset(o, t, h, x->o_token_stride, x->o_head_stride, e);
                row[i].lse = (void *)((char *)x->lse + lse);
                if (x->sum) row[i].sum = (void *)((char *)x->sum + lse);
            }
            struct ha_merge one = *m;
            one.tokens = one.heads = 1;
            one.states = row;
            one.out = row[m->states_count];
            ha_kernels_c.merge(&one);
        }
}

TEST(huge_finds_wrapped_indices)
{
    struct ha_subject s = direct(&ha_kernels_c.traits, merge_wrapped);
    wraps = (struct wraps){ RIGHT, RIGHT, RIGHT };
    expect_plain(&s, HA_STAGE_HUGE, HA_OK, "");
    for (enum wrap wrong = AS_UINT32; wrong < WRAPS; wrong++)
        for (size_t k = 0; k < 3; k++) {
            wraps = (struct wraps){ k == 0 ? wrong : RIGHT, k == 1 ? wrong : RIGHT, k == 2 ? wrong : RIGHT };
            expect_all(&s, HA_STAGE_HUGE, HA_FAIL, "beyond 2^31 and 2^32 elements");
        }
    ha_subject_close(&s);
}

/* The right answer in its place, and a copy where the wrapped index leads: only the check of that memory can see it. */
static void merge_and_spill(const struct ha_merge *m)
{
    ha_kernels_c.merge(m);
    const size_t last = (m->tokens - 1) * m->out.o_token_stride + (m->heads - 1) * m->out.o_head_stride,
                 e = ha_dtype_bytes(m->dtype);
    if (last > UINT32_MAX) ((char *)m->out.o)[(size_t)(uint32_t)last * e] = 1;
}

TEST(huge_finds_stray_writes)
{
    struct ha_subject s = direct(&ha_kernels_c.traits, merge_and_spill);
    expect_plain(&s, HA_STAGE_HUGE, HA_FAIL, "wrote where a wrapped index leads");
    expect(&s, HA_STAGE_HUGE, HA_FORM_BASE2, HA_BF16, HA_FAIL, "wrote where a wrapped index leads");
    ha_subject_close(&s);
    s = direct(&ha_kernels_c.traits, merge_over_input);
    for (overwritten = 0; overwritten < 2; overwritten++)
        expect_plain(&s, HA_STAGE_HUGE, HA_FAIL, "wrote over a state");
    ha_subject_close(&s);
}

/* a stranger's memory: large enough, too small, refused */
static size_t room_limit;
static enum ha_status limited_room(struct ha_subject *self, size_t bytes, struct ha_room *room, struct ha_why *why)
{
    if (room_limit < bytes) {
        snprintf(why->text, sizeof why->text, "no more than %zu bytes", room_limit);
        return HA_ERROR;
    }
    static struct ha_room kept;
    ha_room_unmap(&kept);
    const enum ha_status st = ha_room_map(bytes, &kept, why);
    *room = kept;
    return st;
}

/* as where a stranger is called: read only, but for the pieces that may be written; guards behind them all */
static enum ha_status run_protected(struct ha_subject *self, struct ha_batch *b, struct ha_why *why)
{
    assert_int_equal(mprotect(b->room.base, b->room.bytes, PROT_READ), 0);
    for (size_t i = 0; i < HA_PIECES; i++) {
        const struct ha_piece *p = &b->piece[i];
        if (!p->bytes) continue;
        const size_t bytes = (p->bytes + 4095) / 4096 * 4096;
        assert_int_equal(mprotect(p->guard, 4096, PROT_NONE), 0);
        if (p->written) assert_int_equal(mprotect(p->guard - bytes, bytes, PROT_READ | PROT_WRITE), 0);
    }
    ha_kernels_c.merge(&b->calls[0]);
    return mprotect(b->room.base, b->room.bytes, PROT_READ | PROT_WRITE) == 0 ? HA_OK : HA_ERROR;
}

TEST(huge_in_a_strangers_room)
{
    struct ha_subject s = direct(&ha_kernels_c.traits, ha_kernels_c.merge);
    s.room = limited_room;
    s.run = run_protected;
    room_limit = SIZE_MAX;
    expect_all(&s, HA_STAGE_HUGE, HA_OK, "");
    room_limit = (size_t)1 << 30;
    expect_plain(&s, HA_STAGE_HUGE, HA_WAIVED,
                 "needs 32.0 GiB of address space, of which little is touched: no more than 1073741824 bytes");
    s.elsewhere = true;
    expect_plain(&s, HA_STAGE_HUGE, HA_WAIVED, "merges in memory of its own");
    ha_subject_close(&s);
}

/* a device with memory of its own, of which only the touched pages exist */
static uint64_t vast_free;
static void vast_info(struct ha_device *dev, struct ha_device_info *info)
{
    ha_device_host.info(dev, info);
    info->compute_threads = 0;
    info->memory_bytes = info->memory_free_bytes = vast_free;
}
static struct ha_room vast;
static enum ha_status vast_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                 struct ha_why *why)
{
    if (bytes < (size_t)1 << 32) return ha_device_host.mem_alloc(dev, kind, bytes, ptr, why);
    const enum ha_status st = ha_room_map(bytes, &vast, why);
    *ptr = vast.base;
    return st;
}
static void vast_free_memory(struct ha_device *dev, enum ha_memory kind, void *ptr)
{
    if (ptr == vast.base) ha_room_unmap(&vast);
    else ha_device_host.mem_free(dev, kind, ptr);
}
static enum ha_status vast_copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                enum ha_direction dir)
{
    const unsigned char *there = dir == HA_H2D ? dst : src;
    assert_true(there >= vast.base && there + bytes <= vast.base + vast.bytes);
    memcpy(dst, src, bytes);
    return HA_OK;
}
static void (*vast_merger)(const struct ha_merge *);
static enum ha_status vast_merge(struct ha_stream *stream, const struct ha_merge *args)
{
    vast_merger(args);
    return HA_OK;
}

TEST(huge_on_a_device)
{
    struct ha_subject s = on(&ha_device_host, NULL);
    expect_plain(&s, HA_STAGE_HUGE, HA_WAIVED, "the device's memory is the host's");
    close_device(&s, &ha_device_host);

    struct ha_device_api api = ha_device_host;
    api.info = vast_info;
    api.mem_alloc = vast_alloc;
    api.mem_free = vast_free_memory;
    api.copy = vast_copy;
    api.merge = vast_merge;
    s = on(&api, NULL);
    vast_merger = ha_kernels_c.merge;
    vast_free = (uint64_t)80 << 30;
    expect_all(&s, HA_STAGE_HUGE, HA_OK, "");
    vast_free = (uint64_t)20 << 30; /* no room for negative indices */
    expect_plain(&s, HA_STAGE_HUGE, HA_OK, "");
    vast_free = (uint64_t)4 << 30;
    expect_plain(&s, HA_STAGE_HUGE, HA_WAIVED, "needs 16.0 GiB of device memory, 4.0 are free");
    vast_merger = merge_wrapped;
    wraps.o = wraps.out = wraps.lse = AS_UINT32;
    vast_free = (uint64_t)20 << 30;
    expect_plain(&s, HA_STAGE_HUGE, HA_FAIL, "beyond 2^31");
    wraps.o = wraps.out = wraps.lse = AS_INT32;
    vast_free = (uint64_t)80 << 30;
    expect(&s, HA_STAGE_HUGE, HA_FORM_DIRECT, HA_F16, HA_FAIL, "beyond 2^31");
    close_device(&s, &api);
}
