/* Memory, copies, and the operands that are caught. */

#include "kernels/host/test_fixture.h"

#include <math.h>

enum { BYTES = 1 << 16 };

static char *device, *other, *pinned, *mapped, *pageable; /* BYTES each */
static uint32_t *flag;

static int open_all(void **state)
{
    device_begin(state);
    device = device_alloc(dev, HA_MEM_DEVICE, BYTES);
    other = device_alloc(dev, HA_MEM_DEVICE, BYTES);
    pinned = device_alloc(dev, HA_MEM_PINNED, BYTES);
    mapped = device_alloc(dev, HA_MEM_MAPPED, BYTES);
    flag = device_alloc(dev, HA_MEM_MAPPED, sizeof *flag);
    pageable = malloc(BYTES);
    return pageable ? 0 : -1;
}

static int close_all(void **state)
{
    free(pageable);
    return device_end(state);
}

TEST_WITH(memory_is_aligned_and_undefined, open_all, close_all)
{
    const struct {
        enum ha_memory kind;
        size_t bytes;
    } block[] = {
        { HA_MEM_DEVICE, 0 },    { HA_MEM_DEVICE, 4 },        { HA_MEM_PINNED, 1000 },
        { HA_MEM_MAPPED, 5000 }, { HA_MEM_DEVICE, 5u << 20 },
    };
    for (size_t i = 0; i < COUNT(block); i++) {
        float *x = device_alloc(dev, block[i].kind, block[i].bytes);
        assert_int_equal((uintptr_t)x % 64, 0);
        for (size_t j = 0; j < block[i].bytes / sizeof *x && block[i].kind == HA_MEM_DEVICE; j++)
            assert_true(isnan(x[j]));
        memset(x, 0, block[i].bytes);
        device_release(x);
    }
    api->mem_free(dev, HA_MEM_DEVICE, NULL);
}

TEST_WITH(too_much_memory_is_refused_with_a_reason, open_all, close_all)
{
    struct ha_device_info info;
    api->info(dev, &info);
    assert_true(info.memory_bytes >= info.memory_free_bytes && info.memory_free_bytes > 0);
    const struct {
        enum ha_memory kind;
        const char *name;
        size_t bytes;
    } each[] = {
        { HA_MEM_DEVICE, "device", info.memory_bytes }, { HA_MEM_DEVICE, "device", SIZE_MAX / 2 },
        { HA_MEM_DEVICE, "device", SIZE_MAX },          { HA_MEM_PINNED, "pinned", SIZE_MAX / 2 },
        { HA_MEM_MAPPED, "mapped", SIZE_MAX / 2 },
    };
    for (size_t i = 0; i < COUNT(each); i++) {
        void *ptr = &info;
        *why.text = 0;
        char words[64];
        assert_int_equal(api->mem_alloc(dev, each[i].kind, each[i].bytes, &ptr, &why), HA_ERROR);
        snprintf(words, sizeof words, "%zu bytes of %s memory asked for, ", each[i].bytes, each[i].name);
        if (!strstr(why.text, words)) fail_msg("'%s' lacks '%s'", why.text, words);
        assert_ptr_equal(ptr, &info);
    }
    /* not a failure of the device: it goes on */
    assert_no_failure(dev);
    ok(api->stream_sync(stream));
}

static void fill(char *x, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++) x[i] = (char)((i * 31 + seed) >> 3);
}

TEST_WITH(copies_in_each_direction, open_all, close_all)
{
    char *const host[] = { pinned, mapped, pageable };
    for (unsigned up = 0; up < 3; up++)
        for (unsigned down = 0; down < 3; down++) {
            const size_t bytes = BYTES - 77, at = 13;
            fill(host[up], BYTES, up * 3 + down);
            char *want = malloc(BYTES);
            memcpy(want, host[up], BYTES);
            ok(api->copy(stream, device + at, host[up] + at, bytes, HA_H2D));
            ok(api->copy(stream, other, device + at, bytes, HA_D2D));
            ok(api->stream_sync(stream));
            memset(host[down], 0x55, BYTES);
            ok(api->copy(stream, host[down] + 1, other, bytes, HA_D2H));
            ok(api->copy(stream, host[down], other, 0, HA_D2H));
            ok(api->stream_sync(stream));
            assert_memory_equal(host[down] + 1, want + at, bytes);
            assert_int_equal(host[down][0], 0x55);
            assert_int_equal(host[down][bytes + 1], 0x55);
            free(want);
        }
}

TEST_WITH(copies_rows, open_all, close_all)
{
    const struct {
        size_t dst_stride, src_stride, row_bytes, rows;
    } shape[] = {
        { 100, 64, 64, 20 }, { 64, 100, 64, 20 }, { 64, 64, 64, 20 }, { 96, 80, 1, 3 },
        { 10, 10, 0, 7 },    { 10, 10, 10, 0 },   { 0, 0, 99, 1 },
    };
    static char want[BYTES];
    for (size_t i = 0; i < COUNT(shape); i++) {
        const size_t row = shape[i].row_bytes, rows = shape[i].rows, ds = shape[i].dst_stride, ss = shape[i].src_stride;
        fill(pinned, BYTES, (unsigned)i);
        memset(mapped, 0x55, BYTES);
        memset(want, 0x55, BYTES);
        for (size_t r = 0; r < rows; r++) memcpy(want + r * ss, pinned + r * ss, row);
        ok(api->copy_2d(stream, device, ds, pinned, ss, row, rows, HA_H2D));
        ok(api->copy_2d(stream, other, ss, device, ds, row, rows, HA_D2D));
        ok(api->copy_2d(stream, mapped, ss, other, ss, row, rows, HA_D2H));
        ok(api->stream_sync(stream));
        assert_memory_equal(mapped, want, BYTES);
    }
}

/* Each does one wrong thing; the device fails at once and says which. */
#define WRONG(name, words) WRONG_USE(name, words, open_all, close_all, refused)
WRONG_CALL(to_wrong_side, "copy H2D on stream main: destination", api->copy(stream, pinned, device, 8, HA_H2D))
WRONG_CALL(from_device, "copy H2D on stream main: source", api->copy(stream, device, other, 8, HA_H2D))
WRONG_CALL(up_to_pageable, "is pageable host memory and must be device memory",
           api->copy(stream, pageable, pinned, 8, HA_H2D))
WRONG_CALL(down_to_device, "is device memory and must be host memory", api->copy(stream, device, other, 8, HA_D2H))
WRONG_CALL(down_from_mapped, "copy D2H on stream main: source", api->copy(stream, pageable, mapped, 8, HA_D2H))
WRONG_CALL(across_to_host, "copy D2D on stream main: destination", api->copy(stream, pageable, device, 8, HA_D2D))
WRONG_CALL(past_the_end, "leaves the allocation of device memory",
           api->copy(stream, device + 9, pinned, BYTES - 8, HA_H2D))
WRONG_CALL(past_the_source, "leaves the allocation of pinned memory",
           api->copy(stream, device, pinned + 9, BYTES - 8, HA_H2D))
WRONG_CALL(before_the_start, "leaves the allocation of device memory",
           api->copy(stream, pageable, device - 8, 16, HA_D2H))
WRONG_CALL(from_null, "source is NULL", api->copy(stream, device, NULL, 8, HA_H2D))
WRONG_CALL(last_row_past_the_end, "copy_2d H2D on stream main: rows of",
           api->copy_2d(stream, device, BYTES / 4, pageable, 8, 8 + BYTES / 4, 4, HA_H2D))
WRONG_CALL(rows_past_the_end, "copy_2d H2D on stream main: destination",
           api->copy_2d(stream, device, BYTES / 3, pinned, 8, 8, 4, HA_H2D))
WRONG_CALL(onto_itself, "overlap", api->copy(stream, device, device + 8, 16, HA_D2D))
WRONG_CALL(flag_in_pinned, "flag_write on stream main: flag", api->flag_write(stream, (uint32_t *)(void *)pinned, 1))
WRONG_CALL(flag_in_device, "is device memory and must be mapped memory",
           api->flag_wait(stream, (uint32_t *)(void *)device, 0))
WRONG_CALL(flag_past_the_end, "flag_wait on stream main: flag", api->flag_wait(stream, flag + 1, 0))
WRONG_CALL(blend_of_pinned, "blend on stream main: x",
           api->blend(stream,
                      &(struct ha_device_blend){
                          .y = (float *)(void *)device, .x = (float *)(void *)pinned, .rows = 1, .cols = 4, .b = 1 }))
/* one state of 2 tokens and 3 heads, and the same as the output, each as the caller wants it */
static enum ha_status merge_with(struct ha_merge m, struct ha_merge_state state, struct ha_merge_state out)
{
    m.states = &state;
    m.out = out;
    m.states_count = 1;
    m.tokens = 2;
    m.heads = 3;
    m.dim = 4;
    return api->merge(stream, &m);
}
static enum ha_status merge_in_place(struct ha_merge m, struct ha_merge_state state)
{
    return merge_with(m, state, state);
}
static struct ha_merge_state state_at(char *o, char *lse, char *sum)
{
    return (struct ha_merge_state){ .o = o,
                                    .lse = (float *)(void *)lse,
                                    .sum = (float *)(void *)sum,
                                    .o_token_stride = 12,
                                    .o_head_stride = 4,
                                    .lse_token_stride = 3,
                                    .lse_head_stride = 1 };
}
WRONG_CALL(merge_into_pageable, "merge on stream main: o ",
           merge_with((struct ha_merge){ 0 }, state_at(mapped, mapped, NULL), state_at(pageable, mapped, NULL)))
WRONG(merge_past_the_end_by_head, "merge on stream main: o of a state")
{
    struct ha_merge_state s = state_at(mapped, mapped, NULL);
    s.o_head_stride = BYTES / 8 - 7; /* the last head of the last token ends two elements beyond */
    return merge_with((struct ha_merge){ 0 }, s, state_at(device, device, NULL));
}
WRONG(merge_past_the_end_by_token, "merge on stream main: lse of a state")
{
    struct ha_merge_state s = state_at(mapped, mapped, NULL);
    s.lse_token_stride = BYTES / 4 - 2;
    return merge_with((struct ha_merge){ 0 }, s, state_at(device, device, NULL));
}
/* what is within for 16-bit elements is beyond for 32-bit ones */
WRONG(merge_of_wide_elements, "merge on stream main: o of a state")
{
    struct ha_merge_state s = state_at(device + BYTES - 48, device, NULL);
    if (merge_in_place((struct ha_merge){ .dtype = HA_BF16 }, s) != HA_OK) return HA_OK;
    return merge_in_place((struct ha_merge){ .dtype = HA_F32 }, s);
}
WRONG_CALL(merge_without_sum, "merge on stream main: sum of a state is NULL",
           merge_in_place((struct ha_merge){ .form = HA_FORM_MAX_SUM }, state_at(device, device, NULL)))
WRONG_CALL(merge_into_no_sum, "merge on stream main: sum 0x",
           merge_with((struct ha_merge){ .form = HA_FORM_MAX_SUM }, state_at(device, device, device),
                      state_at(device, device, pageable)))
WRONG_CALL(merge_of_unknown_form, "do not merge form 4 of type 0",
           merge_in_place((struct ha_merge){ .form = (enum ha_form)HA_FORM_COUNT }, state_at(device, device, device)))
WRONG_CALL(merge_of_unknown_type, "do not merge form 0 of type 3",
           merge_in_place((struct ha_merge){ .dtype = (enum ha_dtype)3 }, state_at(device, device, device)))
WRONG(merge_of_many, " states, at most ")
{
    static struct ha_merge_state state[4097];
    struct ha_device_info info;
    api->info(dev, &info);
    assert_true(info.merge.states_max < 4097);
    return api->merge(stream, &(struct ha_merge){ .states = state, .states_count = info.merge.states_max + 1 });
}
static enum ha_status attend_with(struct ha_rows run, size_t kv_heads, size_t k_head_bytes, bool causal)
{
    float *x = (float *)(void *)device;
    struct ha_device_seq seq = { .q = x,
                                 .runs = { run },
                                 .runs_count = 1,
                                 .k_head_bytes = k_head_bytes,
                                 .v_head_bytes = 512,
                                 .o = x + 64,
                                 .lse = x + 128 };
    return api->attend(stream, &(struct ha_device_attend){ .batch = 1,
                                                           .q_len = 2,
                                                           .q_heads = 2,
                                                           .kv_heads = kv_heads,
                                                           .head_dim = 8,
                                                           .causal = causal,
                                                           .seqs = &seq });
}
WRONG_CALL(attend_of_pinned, "attend on stream main: K",
           attend_with((struct ha_rows){ pinned, other, 32, 32, NULL, 4 }, 1, 512, false))
WRONG_CALL(attend_of_pageable, "attend on stream main: V",
           attend_with((struct ha_rows){ other, pageable, 32, 32, NULL, 4 }, 1, 512, false))
WRONG_CALL(attend_past_the_end, "leaves the allocation of device memory",
           attend_with((struct ha_rows){ other, other, 32, 32, NULL, 4 }, 2, BYTES - 32, false))
/* too short for four rows, where indices are followed at all */
WRONG_CALL(attend_with_index, "index", attend_with((struct ha_rows){ other, other, 32, 32, flag, 4 }, 1, 512, false))
WRONG_CALL(attend_of_odd_heads, "2 query heads are no multiple of 3 KV heads",
           attend_with((struct ha_rows){ other, other, 32, 32, NULL, 4 }, 3, 512, false))
WRONG_CALL(attend_of_no_new_tokens, "causal, and the last run is shorter",
           attend_with((struct ha_rows){ other, other, 32, 32, NULL, 1 }, 1, 512, true))
WRONG(free_of_another_kind, "is not an allocation of device memory")
{
    char *x = device_alloc(dev, HA_MEM_PINNED, 8);
    api->mem_free(dev, HA_MEM_DEVICE, x);
    return HA_ERROR;
}
WRONG(free_of_no_allocation, "is not an allocation of device memory")
{
    api->mem_free(dev, HA_MEM_DEVICE, device + 64);
    return HA_ERROR;
}
#if !HA_ASAN /* which stops at the access itself */
WRONG(write_past_the_end, "overrun after its end")
{
    if (!embedded) skip();
    char *x = device_alloc(dev, HA_MEM_DEVICE, 100);
    x[100] = 1;
    device_release(x);
    return HA_ERROR;
}
#endif

TEST_WITH(a_freed_address_is_host_memory_again, open_all, close_all)
{
    for (size_t i = 0; i < 100; i++) {
        char *block[8];
        for (size_t j = 0; j < 8; j++) block[j] = device_alloc(dev, (enum ha_memory)(j % 3), 64 + 64 * (i + j));
        for (size_t j = 0; j < 8; j++) {
            size_t at = (j * 5 + i) % 8;
            enum ha_direction dir = at % 3 == HA_MEM_DEVICE ? HA_H2D : HA_D2H;
            ok(dir == HA_H2D ? api->copy(stream, block[at], pageable, 64, dir)
                             : api->copy(stream, block[at], device, 64, dir));
            ok(api->stream_sync(stream));
            device_release(block[at]);
        }
    }
}
