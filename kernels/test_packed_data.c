#include "kernels/test_packed_data.h"

#include "harness/base/numeric.h"

enum { LIST_STREAM = 101 };

size_t ha_test_blocks_bytes(enum ha_dtype dtype, size_t dim, size_t keys)
{
    return (keys + HA_PACK_KEYS - 1) / HA_PACK_KEYS * ha_packed_block_bytes(dim, dtype);
}

void ha_test_packed_put_k(struct ha_test_packed *p, size_t key, size_t d, float x)
{
    ha_test_kv_put_k(&p->kv, key, d, x);
    ha_store(ha_test_own(p->packed.blocks), ha_ref_packed_k(p->kv.dtype, p->kv.dim, key, d), p->kv.dtype, x);
}

void ha_test_packed_put_v(struct ha_test_packed *p, size_t key, size_t d, float x)
{
    ha_test_kv_put_v(&p->kv, key, d, x);
    ha_store(ha_test_own(p->packed.blocks), ha_ref_packed_v(p->kv.dtype, p->kv.dim, key, d), p->kv.dtype, x);
}

/* the bits of key i, which no index names */
static void put(void *blocks, const struct ha_test_kv *kv, size_t i)
{
    const size_t size = ha_dtype_bytes(kv->dtype);
    const char *k = (const char *)kv->rows.k + i * kv->rows.k_stride_bytes,
               *v = (const char *)kv->rows.v + i * kv->rows.v_stride_bytes;
    for (size_t d = 0; d < kv->dim; d++) {
        memcpy((char *)blocks + ha_ref_packed_k(kv->dtype, kv->dim, i, d) * size, k + d * size, size);
        memcpy((char *)blocks + ha_ref_packed_v(kv->dtype, kv->dim, i, d) * size, v + d * size, size);
    }
}

static void list(struct ha_test_packed *p, size_t unit, size_t units, uint64_t seed)
{
    const size_t keys = p->kv.keys, all = (keys + unit - 1) / unit;
    units = units < all ? units : all;
    uint32_t *index = ha_guard_alloc(units * sizeof *index);
    ha_test_choose(index, units, all, false, seed, LIST_STREAM);
    for (size_t i = 0; i < units; i++)
        for (size_t k = index[i] * unit; k < (index[i] + 1) * unit && k < keys; k++)
            p->order[p->listed++] = (uint32_t)k;
    p->packed.index = index;
    p->packed.unit = unit;
    p->packed.units = units;
}

void ha_test_packed_make(struct ha_test_packed *p, enum ha_test_family family, size_t dim, size_t keys,
                         enum ha_dtype dtype, size_t unit, size_t units, uint64_t seed)
{
    const size_t bytes = ha_test_blocks_bytes(dtype, dim, keys);
    void *blocks = ha_guard_alloc(bytes);
    *p = (struct ha_test_packed){ .packed = { .blocks = blocks, .keys = keys },
                                  .order = malloc((keys + 1) * sizeof *p->order) };
    assert_non_null(p->order);
    ha_test_kv_make(&p->kv, seed % 2 ? HA_TEST_STRIDED : HA_TEST_DENSE, family, dim, keys, dtype, seed);
    memset(blocks, 0, bytes);
    for (size_t i = 0; i < keys; i++) put(blocks, &p->kv, i);
    if (unit) list(p, unit, units, seed);
    else
        for (; p->listed < keys; p->listed++) p->order[p->listed] = (uint32_t)p->listed;
    assert_int_equal(ha_packed_listed(&p->packed), p->listed);
}

void ha_test_packed_free(struct ha_test_packed *p)
{
    ha_guard_free(ha_test_own(p->packed.blocks));
    ha_guard_free(ha_test_own(p->packed.index));
    ha_test_kv_free(&p->kv);
    free(p->order);
}

void ha_test_packed_scale(struct ha_test_packed *p, float k, float v)
{
    const enum ha_dtype t = p->kv.dtype;
    for (size_t i = 0; i < p->kv.keys; i++)
        for (size_t d = 0; d < p->kv.dim; d++) {
            ha_test_packed_put_k(p, i, d, k * ha_load(p->packed.blocks, ha_ref_packed_k(t, p->kv.dim, i, d), t));
            ha_test_packed_put_v(p, i, d, v * ha_load(p->packed.blocks, ha_ref_packed_v(t, p->kv.dim, i, d), t));
        }
}

void ha_test_packed_hide(struct ha_test_packed *p, size_t first, size_t keys)
{
    bool *seen = calloc(p->kv.keys + 1, sizeof *seen);
    assert_non_null(seen);
    for (size_t i = 0; i < keys; i++) seen[p->order[first + i]] = true;
    const size_t size = ha_dtype_bytes(p->kv.dtype);
    for (size_t i = 0; i < p->kv.keys; i++)
        for (size_t d = 0; !seen[i] && d < p->kv.dim; d++) {
            memset((char *)ha_test_own(p->packed.blocks) + ha_ref_packed_k(p->kv.dtype, p->kv.dim, i, d) * size, 0xFF,
                   size);
            memset((char *)ha_test_own(p->packed.blocks) + ha_ref_packed_v(p->kv.dtype, p->kv.dim, i, d) * size, 0xFF,
                   size);
        }
    free(seen);
}

static void floats(float **p, size_t n, size_t shift)
{
    if (!*p) *p = ha_guard_alloc((n + shift) * sizeof **p);
    memset(*p, 0xFF, n * sizeof **p);
}

static void poison(const struct ha_test_packed *p, struct ha_test_states *s)
{
    floats(&s->level, s->rows, s->shift);
    floats(&s->sum, s->rows, s->shift);
    floats(&s->acc, s->rows * p->kv.dim, s->shift);
    if (s->with_weights) floats(&s->weights, s->rows * (s->keys + s->gap) - s->gap, s->shift);
}

static void check_gaps(const struct ha_test_states *s)
{
    for (size_t r = 0; s->with_weights && r + 1 < s->rows; r++) {
        const unsigned char *gap = (const void *)(s->weights + r * (s->keys + s->gap) + s->keys);
        for (size_t i = 0; i < s->gap * sizeof(float); i++) assert_int_equal(gap[i], 0xFF);
    }
}

void ha_test_packed_attend(void (*attend)(const struct ha_packed_chunk *), const struct ha_test_packed *p,
                           struct ha_test_states *s)
{
    static void *scratch;
    if (!scratch) scratch = ha_guard_alloc(HA_PACKED_SCRATCH);
    memset(scratch, 0xFF, HA_PACKED_SCRATCH);
    poison(p, s);
    attend(&(struct ha_packed_chunk){
        .q = s->q,
        .q_rows = s->rows,
        .q_stride = s->q_stride,
        .head_dim = p->kv.dim,
        .packed = p->packed,
        .first = s->first,
        .keys = s->keys,
        .scale = s->scale,
        .weights = s->with_weights ? s->weights : NULL,
        .weights_stride = s->keys + s->gap,
        .level = s->level,
        .sum = s->sum,
        .acc = s->acc,
        .scratch = scratch,
    });
    check_gaps(s);
}

void ha_test_chunk_attend(void (*attend)(const struct ha_chunk *), const struct ha_test_packed *p,
                          struct ha_test_states *s)
{
    struct ha_rows rows = p->kv.rows;
    rows.index = p->order + s->first;
    rows.keys = s->keys;
    poison(p, s);
    attend(&(struct ha_chunk){
        .q = s->q,
        .q_rows = s->rows,
        .q_stride = s->q_stride,
        .head_dim = p->kv.dim,
        .rows = rows,
        .dtype = p->kv.dtype,
        .scale = s->scale,
        .visible = s->visible,
        .weights = s->weights,
        .weights_stride = s->keys + s->gap,
        .level = s->level,
        .sum = s->sum,
        .acc = s->acc,
    });
    check_gaps(s);
}

void ha_test_states_free(struct ha_test_states *s)
{
    float *const all[] = { s->q, s->level, s->sum, s->acc, s->weights };
    for (size_t i = 0; i < COUNT(all); i++) ha_guard_free(all[i]);
}

bool ha_test_states_equal(const struct ha_test_states *a, const struct ha_test_states *b, size_t rows, size_t dim)
{
    bool same = !memcmp(a->level, b->level, rows * sizeof *a->level) && !memcmp(a->sum, b->sum, rows * sizeof *a->sum)
                && !memcmp(a->acc, b->acc, rows * dim * sizeof *a->acc);
    for (size_t r = 0; r < rows && a->weights && b->weights; r++)
        same &= !memcmp(a->weights + r * (a->keys + a->gap), b->weights + r * (b->keys + b->gap),
                        a->keys * sizeof *a->weights);
    return same;
}

float *ha_test_packed_queries(enum ha_test_family family, size_t dim, size_t rows, size_t gap, int bf16, uint64_t seed)
{
    float *q = ha_guard_alloc((rows * (dim + gap) - gap) * sizeof *q);
    for (size_t r = 0; r < rows; r++)
        ha_test_query(q + r * (dim + gap), family, dim, bf16 == 1 || (bf16 == 2 && r % 3 != 1) ? HA_BF16 : HA_F32,
                      seed * 1000 + r);
    for (size_t i = 0; bf16 == 0 && seed % 4 == 3 && i < rows * (dim + gap) - gap; i++) {
        uint32_t u;
        memcpy(&u, q + i, sizeof u);
        u = (u & 0xffff0000u) | 0x8000u;
        memcpy(q + i, &u, sizeof u);
    }
    return q;
}
