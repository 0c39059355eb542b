/* pack and unpack of every table move bits: to where the layout says, and nothing else. */

#include "harness/api/reference.h"
#include "harness/base/rng.h"
#include "kernels/test_data.h"

static const size_t dims[] = { 8, 16, 24, 40, 64, 72, 80, 96, 112, 128, 192, 248, 256 };

static size_t blocks_bytes(enum ha_dtype dtype, size_t dim, size_t keys)
{
    return (keys + HA_PACK_KEYS - 1) / HA_PACK_KEYS * ha_packed_block_bytes(dim, dtype);
}

/* NaNs of all kinds among them */
static void random_bits(unsigned char *p, size_t bytes, uint64_t seed, uint64_t stream)
{
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t x = ha_rng_bits(seed, stream, i);
        memcpy(p + i, &x, bytes - i < 8 ? bytes - i : 8);
    }
}

/* Rows of random bits. Byte offsets and strides are odd where `odd` is set. */
struct rows {
    unsigned char *k, *v; /* end at guards */
    uint32_t *index;
    struct ha_rows rows;
};

static struct rows rows_make(enum ha_dtype dtype, size_t dim, size_t keys, bool gathered, bool odd, uint64_t seed)
{
    const size_t row = dim * ha_dtype_bytes(dtype), pool = gathered ? 2 * keys + 1 : keys, k_stride = row + 7 * odd,
                 v_stride = row + 33 * odd;
    const size_t k_bytes = pool ? (pool - 1) * k_stride + row : 0, v_bytes = pool ? (pool - 1) * v_stride + row : 0;
    struct rows x = { .k = ha_guard_alloc(k_bytes + odd), .v = ha_guard_alloc(v_bytes + odd) };
    random_bits(x.k, k_bytes, seed, 1);
    random_bits(x.v, v_bytes, seed, 2);
    if (gathered) {
        x.index = ha_guard_alloc(keys * sizeof *x.index);
        for (size_t i = 0; i < keys; i++) x.index[i] = (uint32_t)ha_rng_below(seed, 3, i, pool);
        if (keys > 0) x.index[keys / 2] = (uint32_t)(pool - 1);
    }
    x.rows = (struct ha_rows){
        .k = x.k, .v = x.v, .k_stride_bytes = k_stride, .v_stride_bytes = v_stride, .index = x.index, .keys = keys
    };
    return x;
}

/* what the layout says of these rows as keys [at, ...) */
static void expect(unsigned char *blocks, enum ha_dtype dtype, size_t dim, size_t at, const struct rows *x)
{
    const size_t size = ha_dtype_bytes(dtype), end = at + x->rows.keys;
    for (size_t key = at; x->rows.keys && key < (end + HA_PACK_KEYS - 1) / HA_PACK_KEYS * HA_PACK_KEYS; key++) {
        const size_t row = key >= end ? 0 : x->index ? x->index[key - at] : key - at;
        for (size_t d = 0; d < dim; d++) {
            unsigned char *k = blocks + ha_ref_packed_k(dtype, dim, key, d) * size,
                          *v = blocks + ha_ref_packed_v(dtype, dim, key, d) * size;
            memset(k, 0, size);
            memset(v, 0, size);
            if (key >= end) continue;
            memcpy(k, x->k + row * x->rows.k_stride_bytes + d * size, size);
            memcpy(v, x->v + row * x->rows.v_stride_bytes + d * size, size);
        }
    }
}

/* keys [0, capacity) whatever they are, then `runs` of rows one after the other from `at` on */
static void check_pack(enum ha_dtype dtype, size_t dim, size_t at, const size_t *run, size_t runs, size_t spare_blocks,
                       uint64_t seed)
{
    size_t end = at;
    for (size_t i = 0; i < runs; i++) end += run[i];
    const size_t bytes = blocks_bytes(dtype, dim, end + spare_blocks * HA_PACK_KEYS);
    unsigned char *before = ha_guard_alloc(bytes), *want = ha_guard_alloc(bytes);
    random_bits(before, bytes, seed, 4);
    HA_TEST_EACH(t, pack)
    {
        const size_t now = ha_guard_now();
        unsigned char *blocks = ha_guard_alloc(bytes);
        memcpy(blocks, before, bytes);
        memcpy(want, before, bytes);
        for (size_t i = 0, from = at; i < runs; from += run[i], i++) {
            struct rows x = rows_make(dtype, dim, run[i], (seed + i) % 3 == 1, (seed + i) % 2, seed * 100 + i);
            t->pack(&(struct ha_pack){ .blocks = blocks, .at = from, .rows = x.rows, .head_dim = dim, .dtype = dtype });
            expect(want, dtype, dim, from, &x);
        }
        assert_memory_equal(blocks, want, bytes);
        ha_guard_release(now);
    }
    ha_guard_release(0);
}

/* Every start and end within a block. */
TEST(runs_of_rows)
{
    uint64_t seed = 0;
    for (size_t at = 0; at <= 33; at += test_small ? 5 : 1)
        for (size_t keys = 0; keys <= 66; keys += test_small ? 11 : 1 + keys % 3, seed++)
            check_pack((enum ha_dtype)(seed % HA_DTYPE_COUNT), dims[(seed + seed / 7) % (test_small ? 6 : 10)], at,
                       &keys, 1, seed % 2, seed);
}

TEST(every_dimension)
{
    for (size_t d = 0; d < COUNT(dims); d++)
        for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++) {
            const size_t runs[] = { 32, 5, 70, 1 };
            check_pack((enum ha_dtype)dtype, dims[d], 0, runs, test_small ? 2 : 4, 1, d);
            check_pack((enum ha_dtype)dtype, dims[d], 31, runs + 1, 2, 0, d);
        }
}

TEST(key_by_key)
{
    size_t one[70];
    for (size_t i = 0; i < COUNT(one); i++) one[i] = 1;
    for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++)
        for (size_t d = 0; d < 4; d++) check_pack((enum ha_dtype)dtype, dims[d], d, one, test_small ? 40 : 70, 0, d);
}

/* from blocks, which end at a guard, into rows that end at one, with what lies between them untouched */
static void check_unpack(enum ha_dtype dtype, size_t dim, size_t capacity, size_t first, size_t keys, bool listed,
                         bool odd, uint64_t seed)
{
    const size_t size = ha_dtype_bytes(dtype), row = dim * size, bytes = blocks_bytes(dtype, dim, capacity);
    const size_t stride[2] = { row + 5 * odd, row + 39 * odd };
    unsigned char *blocks = ha_guard_alloc(bytes), *want[2], *got[2];
    uint32_t *index = listed ? ha_guard_alloc(keys * sizeof *index) : NULL;
    random_bits(blocks, bytes, seed, 5);
    for (size_t i = 0; listed && i < keys; i++) index[i] = (uint32_t)ha_rng_below(seed, 6, i, capacity);
    for (size_t x = 0; x < 2; x++) {
        const size_t all = keys ? (keys - 1) * stride[x] + row : 0;
        want[x] = ha_guard_alloc(all);      /* 0xFF between the rows */
        got[x] = ha_guard_alloc(all + odd); /* of an odd start, the last byte stays free */
        for (size_t i = 0; i < keys; i++)
            for (size_t d = 0; d < dim; d++) {
                const size_t key = listed ? index[i] : first + i;
                const size_t at = x == 0 ? ha_ref_packed_k(dtype, dim, key, d) : ha_ref_packed_v(dtype, dim, key, d);
                memcpy(want[x] + i * stride[x] + d * size, blocks + at * size, size);
            }
    }
    HA_TEST_EACH(t, unpack)
    {
        for (size_t x = 0; x < 2; x++) memset(got[x], 0xFF, keys ? (keys - 1) * stride[x] + row : 0);
        t->unpack(&(struct ha_unpack){
            .blocks = blocks,
            .index = index,
            .first = first,
            .keys = keys,
            .head_dim = dim,
            .dtype = dtype,
            .k = got[0],
            .v = got[1],
            .k_stride_bytes = stride[0],
            .v_stride_bytes = stride[1],
        });
        for (size_t x = 0; x < 2; x++) assert_memory_equal(got[x], want[x], keys ? (keys - 1) * stride[x] + row : 0);
    }
    ha_guard_release(0);
}

TEST(out_of_blocks)
{
    uint64_t seed = 0;
    for (size_t d = 0; d < COUNT(dims); d++)
        for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++)
            for (size_t i = 0; i < (test_small ? 2u : 6u); i++, seed++) {
                const size_t first = ha_rng_below(seed, 7, 0, 70), keys = ha_rng_below(seed, 7, 1, 80);
                check_unpack((enum ha_dtype)dtype, dims[d], first + keys + (keys == 0), first, keys, false, i % 2,
                             seed);
                check_unpack((enum ha_dtype)dtype, dims[d], 1 + first, 3, keys, true, i % 2, seed);
            }
    for (size_t first = 0; first < 34; first++)
        for (size_t keys = 0; keys < (test_small ? 3u : 36u); keys++)
            check_unpack((enum ha_dtype)(keys % 3), 24, first + keys + 1, first, keys, false, false, keys);
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, NULL); }
