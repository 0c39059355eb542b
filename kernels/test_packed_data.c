#include "kernels/test_packed_data.h"

#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "kernels/rows.h"

void ha_test_packed_put_k(struct ha_test_packed *p, size_t key, size_t d, float x)
{
    ha_test_kv_put_k(&p->kv, key, d, x);
    ha_store(ha_test_own(p->packed.blocks), ha_ref_packed_k(p->kv.dtype, p->kv.dim, p->place[key], d), p->kv.dtype, x);
}

void ha_test_packed_put_v(struct ha_test_packed *p, size_t key, size_t d, float x)
{
    ha_test_kv_put_v(&p->kv, key, d, x);
    ha_store(ha_test_own(p->packed.blocks), ha_ref_packed_v(p->kv.dtype, p->kv.dim, p->place[key], d), p->kv.dtype, x);
}

void ha_test_packed_make(struct ha_test_packed *p, enum ha_test_family family, size_t dim, size_t keys,
                         enum ha_dtype dtype, size_t unit, uint64_t seed)
{
    ha_test_kv_make(&p->kv, (enum ha_test_layout)(seed % HA_TEST_LAYOUTS), family, dim, keys, dtype, seed);
    p->place = ha_guard_alloc(keys * sizeof *p->place);
    p->packed = ha_test_pack(&p->kv, keys, unit, seed, p->place);
    assert_int_equal(ha_packed_listed(&p->packed), keys);
}

void ha_test_packed_scale(struct ha_test_packed *p, float k, float v)
{
    for (size_t i = 0; i < p->kv.keys; i++)
        for (size_t d = 0; d < p->kv.dim; d++) {
            ha_test_packed_put_k(p, i, d, k * ha_load(ha_row_k(&p->kv.rows, i), d, p->kv.dtype));
            ha_test_packed_put_v(p, i, d, v * ha_load(ha_row_v(&p->kv.rows, i), d, p->kv.dtype));
        }
}

void ha_test_packed_hide(struct ha_test_packed *p, size_t first, size_t keys)
{
    char *blocks = ha_test_own(p->packed.blocks);
    const size_t size = ha_dtype_bytes(p->kv.dtype);
    for (size_t i = 0; i < p->kv.keys; i++)
        for (size_t d = 0; (i < first || i >= first + keys) && d < p->kv.dim; d++) {
            memset(blocks + ha_ref_packed_k(p->kv.dtype, p->kv.dim, p->place[i], d) * size, 0xFF, size);
            memset(blocks + ha_ref_packed_v(p->kv.dtype, p->kv.dim, p->place[i], d) * size, 0xFF, size);
        }
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
    void *scratch = ha_guard_alloc(HA_PACKED_SCRATCH);
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
        .reach = s->reach,
        .scratch = scratch,
    });
    ha_guard_free(scratch);
    check_gaps(s);
}

void ha_test_chunk_attend(void (*attend)(const struct ha_chunk *), const struct ha_test_packed *p,
                          struct ha_test_states *s)
{
    poison(p, s);
    attend(&(struct ha_chunk){
        .q = s->q,
        .q_rows = s->rows,
        .q_stride = s->q_stride,
        .head_dim = p->kv.dim,
        .rows = ha_test_rows_part(&p->kv, s->first, s->keys),
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
