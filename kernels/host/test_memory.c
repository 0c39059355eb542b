/* Memory, copies, and the operands that are caught. */

#include "kernels/host/test_support.h"

#include <math.h>

enum { BYTES = 1 << 16 };

struct fixture {
    struct ha_device *dev;
    struct ha_stream *stream;
    char *device, *other, *pinned, *mapped, *pageable; /* BYTES each */
    uint32_t *flag;
    const char *failure; /* that the test ends with */
};

static int open_all(void **state)
{
    static struct fixture f;
    f = (struct fixture){ .dev = device_open(0) };
    f.stream = device_stream(f.dev, "main");
    f.device = device_alloc(f.dev, HA_MEM_DEVICE, BYTES);
    f.other = device_alloc(f.dev, HA_MEM_DEVICE, BYTES);
    f.pinned = device_alloc(f.dev, HA_MEM_PINNED, BYTES);
    f.mapped = device_alloc(f.dev, HA_MEM_MAPPED, BYTES);
    f.flag = device_alloc(f.dev, HA_MEM_MAPPED, sizeof *f.flag);
    f.pageable = malloc(BYTES);
    *state = &f;
    return f.pageable ? 0 : -1;
}

static int close_all(void **state)
{
    struct fixture *f = *state;
    device_close(f->dev, f->failure);
    free(f->pageable);
    return 0;
}

TEST_WITH(memory_is_aligned_and_undefined, open_all, close_all)
{
    struct fixture *f = *state;
    const struct {
        enum ha_memory kind;
        size_t bytes;
    } block[] = {
        { HA_MEM_DEVICE, 0 },    { HA_MEM_DEVICE, 4 },        { HA_MEM_PINNED, 1000 },
        { HA_MEM_MAPPED, 5000 }, { HA_MEM_DEVICE, 5u << 20 },
    };
    for (size_t i = 0; i < COUNT(block); i++) {
        float *x = device_alloc(f->dev, block[i].kind, block[i].bytes);
        assert_int_equal((uintptr_t)x % 64, 0);
        for (size_t j = 0; j < block[i].bytes / sizeof *x && block[i].kind == HA_MEM_DEVICE; j++)
            assert_true(isnan(x[j]));
        memset(x, 0, block[i].bytes);
        device_release(x);
    }
    api->mem_free(f->dev, HA_MEM_DEVICE, NULL);
}

TEST_WITH(too_much_memory_is_refused_with_a_reason, open_all, close_all)
{
    struct fixture *f = *state;
    struct ha_device_info info;
    api->info(f->dev, &info);
    assert_true(info.memory_bytes >= info.memory_free_bytes && info.memory_free_bytes > 0);
    const size_t size[] = { info.memory_bytes, SIZE_MAX / 2, SIZE_MAX };
    for (size_t i = 0; i < 3; i++) {
        void *ptr = f;
        struct ha_why why = { "" };
        char words[64];
        assert_int_equal(api->mem_alloc(f->dev, HA_MEM_DEVICE, size[i], &ptr, &why), HA_ERROR);
        snprintf(words, sizeof words, "%zu bytes of device memory asked for, ", size[i]);
        if (!strstr(why.text, words)) fail_msg("'%s' lacks '%s'", why.text, words);
        assert_ptr_equal(ptr, f);
    }
    /* not a failure of the device: it goes on */
    assert_no_failure(f->dev);
    ok(api->stream_sync(f->stream));
}

static void fill(char *x, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++) x[i] = (char)((i * 31 + seed) >> 3);
}

TEST_WITH(copies_in_each_direction, open_all, close_all)
{
    struct fixture *f = *state;
    char *const host[] = { f->pinned, f->mapped, f->pageable };
    for (unsigned up = 0; up < 3; up++)
        for (unsigned down = 0; down < 3; down++) {
            const size_t bytes = BYTES - 77, at = 13;
            fill(host[up], BYTES, up * 3 + down);
            char *want = malloc(BYTES);
            memcpy(want, host[up], BYTES);
            ok(api->copy(f->stream, f->device + at, host[up] + at, bytes, HA_H2D));
            ok(api->copy(f->stream, f->other, f->device + at, bytes, HA_D2D));
            ok(api->stream_sync(f->stream));
            memset(host[down], 0x55, BYTES);
            ok(api->copy(f->stream, host[down] + 1, f->other, bytes, HA_D2H));
            ok(api->copy(f->stream, host[down], f->other, 0, HA_D2H));
            ok(api->stream_sync(f->stream));
            assert_memory_equal(host[down] + 1, want + at, bytes);
            assert_int_equal(host[down][0], 0x55);
            assert_int_equal(host[down][bytes + 1], 0x55);
            free(want);
        }
}

TEST_WITH(copies_rows, open_all, close_all)
{
    struct fixture *f = *state;
    const struct {
        size_t dst_stride, src_stride, row_bytes, rows;
    } shape[] = {
        { 100, 64, 64, 20 }, { 64, 100, 64, 20 }, { 64, 64, 64, 20 }, { 96, 80, 1, 3 },
        { 10, 10, 0, 7 },    { 10, 10, 10, 0 },   { 0, 0, 99, 1 },
    };
    static char want[BYTES];
    for (size_t i = 0; i < COUNT(shape); i++) {
        const size_t row = shape[i].row_bytes, rows = shape[i].rows, ds = shape[i].dst_stride, ss = shape[i].src_stride;
        fill(f->pinned, BYTES, (unsigned)i);
        memset(f->mapped, 0x55, BYTES);
        memset(want, 0x55, BYTES);
        for (size_t r = 0; r < rows; r++) memcpy(want + r * ss, f->pinned + r * ss, row);
        ok(api->copy_2d(f->stream, f->device, ds, f->pinned, ss, row, rows, HA_H2D));
        ok(api->copy_2d(f->stream, f->other, ss, f->device, ds, row, rows, HA_D2D));
        ok(api->copy_2d(f->stream, f->mapped, ss, f->other, ss, row, rows, HA_D2H));
        ok(api->stream_sync(f->stream));
        assert_memory_equal(f->mapped, want, BYTES);
    }
}

/* Each does one wrong thing; the device fails at once and says which. */
#define F(name) static enum ha_status name(struct fixture *f)
F(to_wrong_side) { return api->copy(f->stream, f->pinned, f->device, 8, HA_H2D); }
F(from_device) { return api->copy(f->stream, f->device, f->other, 8, HA_H2D); }
F(up_to_pageable) { return api->copy(f->stream, f->pageable, f->pinned, 8, HA_H2D); }
F(down_to_device) { return api->copy(f->stream, f->device, f->other, 8, HA_D2H); }
F(down_from_mapped) { return api->copy(f->stream, f->pageable, f->mapped, 8, HA_D2H); }
F(across_to_host) { return api->copy(f->stream, f->pageable, f->device, 8, HA_D2D); }
F(past_the_end) { return api->copy(f->stream, f->device + 9, f->pinned, BYTES - 8, HA_H2D); }
F(past_the_source) { return api->copy(f->stream, f->device, f->pinned + 9, BYTES - 8, HA_H2D); }
F(before_the_start) { return api->copy(f->stream, f->pageable, f->device - 8, 16, HA_D2H); }
F(from_null) { return api->copy(f->stream, f->device, NULL, 8, HA_H2D); }
F(last_row_past_the_end)
{
    return api->copy_2d(f->stream, f->device, BYTES / 4, f->pageable, 8, 8 + BYTES / 4, 4, HA_H2D);
}
F(rows_past_the_end) { return api->copy_2d(f->stream, f->device, BYTES / 3, f->pinned, 8, 8, 4, HA_H2D); }
F(onto_itself) { return api->copy(f->stream, f->device, f->device + 8, 16, HA_D2D); }
F(flag_in_pinned) { return api->flag_write(f->stream, (uint32_t *)(void *)f->pinned, 1); }
F(flag_in_device) { return api->flag_wait(f->stream, (uint32_t *)(void *)f->device, 0); }
F(flag_past_the_end) { return api->flag_wait(f->stream, f->flag + 1, 0); }
F(blend_of_pinned)
{
    return api->blend(
        f->stream,
        &(struct ha_device_blend){
            .y = (float *)(void *)f->device, .x = (float *)(void *)f->pinned, .rows = 1, .cols = 4, .b = 1 });
}
/* one state of 2 tokens and 3 heads, and the same as the output, each as the caller wants it */
static enum ha_status merge_with(struct fixture *f, struct ha_merge m, struct ha_merge_state state,
                                 struct ha_merge_state out)
{
    m.states = &state;
    m.out = out;
    m.states_count = 1;
    m.tokens = 2;
    m.heads = 3;
    m.dim = 4;
    return api->merge(f->stream, &m);
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
F(merge_into_pageable)
{
    return merge_with(f, (struct ha_merge){ 0 }, state_at(f->mapped, f->mapped, NULL),
                      state_at(f->pageable, f->mapped, NULL));
}
F(merge_past_the_end_by_head)
{
    struct ha_merge_state s = state_at(f->mapped, f->mapped, NULL);
    s.o_head_stride = BYTES / 8 - 7; /* the last head of the last token ends two elements beyond */
    return merge_with(f, (struct ha_merge){ 0 }, s, state_at(f->device, f->device, NULL));
}
F(merge_past_the_end_by_token)
{
    struct ha_merge_state s = state_at(f->mapped, f->mapped, NULL);
    s.lse_token_stride = BYTES / 4 - 2;
    return merge_with(f, (struct ha_merge){ 0 }, s, state_at(f->device, f->device, NULL));
}
/* what is within for 16-bit elements is beyond for 32-bit ones */
F(merge_of_wide_elements)
{
    struct ha_merge_state s = state_at(f->device + BYTES - 48, f->device, NULL);
    if (merge_with(f, (struct ha_merge){ .dtype = HA_BF16 }, s, s) != HA_OK) return HA_OK;
    return merge_with(f, (struct ha_merge){ .dtype = HA_F32 }, s, s);
}
F(merge_without_sum)
{
    struct ha_merge_state s = state_at(f->device, f->device, NULL);
    return merge_with(f, (struct ha_merge){ .form = HA_FORM_MAX_SUM }, s, s);
}
F(merge_into_no_sum)
{
    return merge_with(f, (struct ha_merge){ .form = HA_FORM_MAX_SUM }, state_at(f->device, f->device, f->device),
                      state_at(f->device, f->device, f->pageable));
}
F(merge_of_unknown_form)
{
    struct ha_merge_state s = state_at(f->device, f->device, f->device);
    return merge_with(f, (struct ha_merge){ .form = (enum ha_form)HA_FORM_COUNT }, s, s);
}
F(merge_of_unknown_type)
{
    struct ha_merge_state s = state_at(f->device, f->device, f->device);
    return merge_with(f, (struct ha_merge){ .dtype = (enum ha_dtype)3 }, s, s);
}
F(merge_of_many)
{
    static struct ha_merge_state state[4097];
    struct ha_device_info info;
    api->info(f->dev, &info);
    assert_true(info.merge.states_max < 4097);
    return api->merge(f->stream, &(struct ha_merge){ .states = state, .states_count = info.merge.states_max + 1 });
}
static enum ha_status attend_with(struct fixture *f, struct ha_rows run, size_t kv_heads, size_t k_head_bytes,
                                  bool causal)
{
    float *x = (float *)(void *)f->device;
    struct ha_device_seq seq = { .q = x,
                                 .runs = { run },
                                 .runs_count = 1,
                                 .k_head_bytes = k_head_bytes,
                                 .v_head_bytes = 512,
                                 .o = x + 64,
                                 .lse = x + 128 };
    return api->attend(f->stream, &(struct ha_device_attend){ .batch = 1,
                                                              .q_len = 2,
                                                              .q_heads = 2,
                                                              .kv_heads = kv_heads,
                                                              .head_dim = 8,
                                                              .causal = causal,
                                                              .seqs = &seq });
}
F(attend_of_pinned) { return attend_with(f, (struct ha_rows){ f->pinned, f->other, 32, 32, NULL, 4 }, 1, 512, false); }
F(attend_of_pageable)
{
    return attend_with(f, (struct ha_rows){ f->other, f->pageable, 32, 32, NULL, 4 }, 1, 512, false);
}
F(attend_past_the_end)
{
    return attend_with(f, (struct ha_rows){ f->other, f->other, 32, 32, NULL, 4 }, 2, BYTES - 32, false);
}
/* too short for four rows, where indices are followed at all */
F(attend_with_index)
{
    return attend_with(f, (struct ha_rows){ f->other, f->other, 32, 32, f->flag, 4 }, 1, 512, false);
}
F(attend_of_odd_heads)
{
    return attend_with(f, (struct ha_rows){ f->other, f->other, 32, 32, NULL, 4 }, 3, 512, false);
}
F(attend_of_no_new_tokens)
{
    return attend_with(f, (struct ha_rows){ f->other, f->other, 32, 32, NULL, 1 }, 1, 512, true);
}
F(free_of_another_kind)
{
    char *x = device_alloc(f->dev, HA_MEM_PINNED, 8);
    api->mem_free(f->dev, HA_MEM_DEVICE, x);
    return HA_ERROR;
}
F(free_of_no_allocation)
{
    api->mem_free(f->dev, HA_MEM_DEVICE, f->device + 64);
    return HA_ERROR;
}
#if !HA_ASAN /* which stops at the access itself */
F(write_past_the_end)
{
    char *x = device_alloc(f->dev, HA_MEM_DEVICE, 100);
    x[100] = 1;
    device_release(x);
    return HA_ERROR;
}
#endif

static void nothing(void *arg) { *(int *)arg = 1; }

TEST(wrong_operands_are_caught)
{
    static const struct {
        enum ha_status (*wrong)(struct fixture *f);
        const char *words;
    } cases[] = {
        { to_wrong_side, "copy H2D on stream main: destination" },
        { from_device, "copy H2D on stream main: source" },
        { up_to_pageable, "is pageable host memory and must be device memory" },
        { down_to_device, "is device memory and must be host memory" },
        { down_from_mapped, "copy D2H on stream main: source" },
        { across_to_host, "copy D2D on stream main: destination" },
        { past_the_end, "leaves the allocation of device memory" },
        { past_the_source, "leaves the allocation of pinned memory" },
        { before_the_start, "leaves the allocation of device memory" },
        { from_null, "source is NULL" },
        { last_row_past_the_end, "copy_2d H2D on stream main: rows of" },
        { rows_past_the_end, "copy_2d H2D on stream main: destination" },
        { onto_itself, "overlap" },
        { flag_in_pinned, "flag_write on stream main: flag" },
        { flag_in_device, "is device memory and must be mapped memory" },
        { flag_past_the_end, "flag_wait on stream main: flag" },
        { blend_of_pinned, "blend on stream main: x" },
        { merge_into_pageable, "merge on stream main: o " },
        { merge_past_the_end_by_head, "merge on stream main: o of a state" },
        { merge_past_the_end_by_token, "merge on stream main: lse of a state" },
        { merge_of_wide_elements, "merge on stream main: o of a state" },
        { merge_without_sum, "merge on stream main: sum of a state is NULL" },
        { merge_into_no_sum, "merge on stream main: sum 0x" },
        { merge_of_unknown_form, "do not merge form 4 of type 0" },
        { merge_of_unknown_type, "do not merge form 0 of type 3" },
        { merge_of_many, " states, at most " },
        { attend_of_pinned, "attend on stream main: K" },
        { attend_of_pageable, "attend on stream main: V" },
        { attend_past_the_end, "leaves the allocation of device memory" },
        { attend_with_index, "index" },
        { attend_of_odd_heads, "2 query heads are no multiple of 3 KV heads" },
        { attend_of_no_new_tokens, "causal, and the last run is shorter" },
        { free_of_another_kind, "is not an allocation of device memory" },
        { free_of_no_allocation, "is not an allocation of device memory" },
#if !HA_ASAN
        { write_past_the_end, "overrun after its end" },
#endif
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        void *fresh;
#if !HA_ASAN
        if (cases[i].wrong == write_past_the_end && !embedded) continue;
#endif
        assert_int_equal(open_all(&fresh), 0);
        struct fixture *f = fresh;
        int ran = 0;
        assert_no_failure(f->dev);
        assert_int_equal(cases[i].wrong(f), HA_ERROR);
        assert_failure_has(f->dev, cases[i].words);
        /* sticky: it is the first failure that stays, and nothing runs */
        assert_int_equal(onto_itself(f), HA_ERROR);
        f->failure = cases[i].words;
        assert_int_equal(api->host_fn(f->stream, nothing, &ran), HA_ERROR);
        assert_int_equal(api->stream_sync(f->stream), HA_ERROR);
        assert_int_equal(ran, 0);
        close_all(&fresh);
    }
}

TEST_WITH(a_freed_address_is_host_memory_again, open_all, close_all)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < 100; i++) {
        char *block[8];
        for (size_t j = 0; j < 8; j++) block[j] = device_alloc(f->dev, (enum ha_memory)(j % 3), 64 + 64 * (i + j));
        for (size_t j = 0; j < 8; j++) {
            size_t at = (j * 5 + i) % 8;
            enum ha_direction dir = at % 3 == HA_MEM_DEVICE ? HA_H2D : HA_D2H;
            ok(dir == HA_H2D ? api->copy(f->stream, block[at], f->pageable, 64, dir)
                             : api->copy(f->stream, block[at], f->device, 64, dir));
            ok(api->stream_sync(f->stream));
            device_release(block[at]);
        }
    }
}

int main(void)
{
    device_test_begin();
    return test_all("device: memory", NULL, NULL);
}
