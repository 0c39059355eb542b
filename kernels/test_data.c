#include "kernels/test_data.h"

#include "harness/api/reference.h"
#include "harness/base/cpu.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "kernels/rows.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#define HA_KERNELS(name) extern const struct ha_kernels ha_kernels_##name;
#include "harness/program/registry.def"

#if defined(HA_AMX_TWIN)
extern const struct ha_kernels ha_kernels_amx_twin; /* kernels/amx/tile.h */
#endif

struct ha_kernels ha_test_tables[HA_TEST_TABLES_MAX];
size_t ha_test_tables_count;

static void die(const char *what)
{
    fprintf(stderr, "test data: %s\n", what);
    abort();
}

/* as harness/base/registry_find.c does it */
static void fill(struct ha_kernels *out, const struct ha_kernels *below)
{
#define WITH_none    (void)0
#define WITH_profile out->profile = below->profile
#define WITH_traits  out->traits = below->traits
#define FILL(isa, result, name, arguments, companion) \
    if (!out->name) out->name = below->name, WITH_##companion;
#define FILL_TYPED(isa, result, name, arguments, companion) \
    for (size_t d = 0; d < HA_DTYPE_COUNT; d++)             \
        if (!out->name[d]) out->name[d] = below->name[d], out->companion[d] = below->companion[d];
    HA_KERNELS_OF_ALL(FILL, FILL_TYPED, )
}

/* weak: a device has tables of its own (kernels/cuda/test_merge_table.c) */
__attribute__((weak)) int ha_test_tables_setup(void **state)
{
#define HA_KERNELS(name) &ha_kernels_##name,
    const struct ha_kernels *const all[] = {
#include "harness/program/registry.def"
    };
    ha_test_tables_count = 0;
    for (size_t i = 0; i < COUNT(all); i++) {
        if (all[i]->absent || !(all[i]->cpu_bit & ha_cpu_bits())) {
            printf("%s: not tested: %s\n", all[i]->name, all[i]->absent ? all[i]->absent : "this CPU lacks it");
            continue;
        }
        if (ha_test_tables_count == HA_TEST_TABLES_MAX) die("more tables than it keeps");
        struct ha_kernels *t = &ha_test_tables[ha_test_tables_count++];
        *t = *all[i];
        if (ha_test_tables_count > 1) fill(t, t - 1);
    }
#if defined(HA_AMX_TWIN)
    /* that one alone, where the rest of it can run */
    const bool runs = ha_cpu_bits() & HA_CPU_AVX512_BF16;
    struct ha_kernels twin = ha_kernels_amx_twin;
    if (runs) fill(&twin, &ha_test_tables[ha_test_tables_count - 1]);
    ha_test_tables[0] = twin;
    ha_test_tables_count = runs && !twin.absent ? 1 : 0;
#endif
    return 0;
}

static struct {
    const char *of;
    double most[HA_TEST_TABLES_MAX];
} worst[8];

void ha_test_worst(const struct ha_kernels *t, const char *of, double ratio)
{
    size_t i = 0;
    while (worst[i].of && strcmp(worst[i].of, of) != 0) i++;
    if (i + 1 == COUNT(worst)) die("more to be judged than it keeps");
    worst[i].of = of;
    worst[i].most[t - ha_test_tables] = fmax(worst[i].most[t - ha_test_tables], ratio);
}

int ha_test_report(void **state)
{
    HA_TEST_ALL(t)
    for (size_t i = 0; worst[i].of; i++)
        printf("%s: worst error / bound of %s %.3f\n", t->name, worst[i].of, worst[i].most[t - ha_test_tables]);
    return 0;
}

enum { BLOCKS_MAX = 4096 };
static struct {
    unsigned char *map, *data;
    size_t bytes, since;
} block[BLOCKS_MAX];
static size_t blocks = 64; /* more only where all are in use */
static size_t given;

/* Mappings are kept for the next block of their size. */
static size_t slot(size_t bytes)
{
    size_t take = blocks;
    for (size_t i = 0; i < blocks; i++) {
        if (block[i].data) continue;
        if (block[i].bytes == bytes) return i;
        if (take == blocks || !block[i].map) take = i;
    }
    if (take == BLOCKS_MAX) die("more blocks than it keeps");
    blocks += take == blocks;
    if (block[take].map) munmap(block[take].map, block[take].bytes);
    block[take].map = NULL;
    block[take].bytes = bytes;
    return take;
}

void *ha_guard_alloc(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), used = page + (bytes + page - 1) / page * page,
                 i = slot(used + page);
    if (!block[i].map) {
        unsigned char *map = mmap(NULL, used + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED || mprotect(map + used, page, PROT_NONE) != 0) die("no memory");
        block[i].map = map;
    }
    memset(block[i].map, 0xFF, used);
    block[i].data = block[i].map + used - bytes;
    block[i].since = given++;
    return block[i].data;
}

static void give_back(size_t i)
{
    /* each byte is the one before it, and the first is as it was */
    const unsigned char *map = block[i].map;
    const size_t before = (size_t)(block[i].data - map);
    if (map[0] != 0xFF || memcmp(map, map + 1, before - 1) != 0) die("written before a block");
    block[i].data = NULL;
}

void ha_guard_free(void *p)
{
    size_t i = 0;
    while (i < blocks && block[i].data != p) i++;
    if (i == blocks) die("a block that it did not give");
    give_back(i);
}

size_t ha_guard_now(void) { return given; }

void ha_guard_release(size_t since)
{
    for (size_t i = 0; i < blocks; i++)
        if (block[i].data && block[i].since >= since) give_back(i);
}

void *ha_test_own(const void *p)
{
    union {
        const void *from;
        void *to;
    } c = { .from = p };
    return c.to;
}

static void *at(const void *data, size_t stride, const struct ha_rows *rows, size_t i)
{
    return (char *)ha_test_own(data) + ha_row(rows, i) * stride;
}

void ha_test_kv_put_k(struct ha_test_kv *kv, size_t i, size_t d, float x)
{
    ha_store(at(kv->rows.k, kv->rows.k_stride_bytes, &kv->rows, i), d, kv->dtype, x);
}

void ha_test_kv_put_v(struct ha_test_kv *kv, size_t i, size_t d, float x)
{
    ha_store(at(kv->rows.v, kv->rows.v_stride_bytes, &kv->rows, i), d, kv->dtype, x);
}

struct ha_rows ha_test_rows_part(const struct ha_test_kv *kv, size_t first, size_t keys)
{
    struct ha_rows part = kv->rows;
    part.keys = keys;
    if (part.index) {
        part.index += first;
    } else {
        part.k = (const char *)part.k + first * part.k_stride_bytes;
        part.v = (const char *)part.v + first * part.v_stride_bytes;
    }
    return part;
}

enum { K_STREAM = 1, V_STREAM, Q_STREAM, INDEX_STREAM, UNIT_STREAM };

void ha_test_choose(uint32_t *out, size_t count, size_t of, bool last, uint64_t seed, uint64_t stream)
{
    uint32_t *all = malloc((of + 1) * sizeof *all);
    if (!all) die("no memory");
    for (size_t i = 0; i < of; i++) all[i] = (uint32_t)i;
    for (size_t i = 0; i < count; i++) {
        const size_t j = last && i == count / 2 ? of - 1 : i + ha_rng_below(seed, stream, i, of - last - i);
        out[i] = all[j];
        all[j] = all[i];
    }
    free(all);
}

static void key(enum ha_test_family family, size_t dim, size_t keys, size_t i, enum ha_dtype dtype, uint64_t seed,
                float *k, float *v)
{
    ha_rng_normals(seed, K_STREAM, i * dim, dim, k);
    ha_rng_normals(seed, V_STREAM, i * dim, dim, v);
    const float root = sqrtf((float)dim), rise = (40 * (float)i / (float)keys - 20) / root;
    for (size_t d = 0; d < dim; d++) switch (family) {
        case HA_TEST_TIES: k[d] = 1.1f, v[d] = 0.1f; break;
        case HA_TEST_INCREASING: k[d] = rise + 0.1f * k[d]; break;
        case HA_TEST_DECREASING: k[d] = -rise + 0.1f * k[d]; break;
        case HA_TEST_DOMINANT: k[d] = i == keys / 2 ? 40 / root : 0.1f * k[d]; break;
        case HA_TEST_OFFSET: k[d] = 10 / root + 0.001f * k[d]; break;
        case HA_TEST_CANCELLING: k[d] = (d % 2 ? -3 : 3) + 0.01f * k[d]; break;
        case HA_TEST_SMALL: v[d] *= dtype == HA_F16 ? 1e-6f : 1e-37f; break;
        case HA_TEST_FINE: /* pairs alike, so that only the queries' differences are seen */
            k[d] = d % 2 ? k[d - 1] : ha_rng_uniform(seed, K_STREAM, i * dim + d) < 0.5f ? 1 : 0.5f;
            break;
        default: break;
        }
}

void ha_test_kv_make(struct ha_test_kv *kv, enum ha_test_layout layout, enum ha_test_family family, size_t dim,
                     size_t keys, enum ha_dtype dtype, uint64_t seed)
{
    const size_t size = ha_dtype_bytes(dtype), row = dim * size, pool = layout == HA_TEST_GATHERED ? 2 * keys : keys;
    *kv = (struct ha_test_kv){ .dtype = dtype, .dim = dim, .keys = keys };
    kv->rows.keys = keys;
    kv->rows.k_stride_bytes = row + (layout == HA_TEST_STRIDED ? 3 * size : 0);
    kv->rows.v_stride_bytes = row + (layout == HA_TEST_STRIDED ? 17 * size : 0);
    kv->rows.k = ha_guard_alloc(pool == 0 ? 0 : (pool - 1) * kv->rows.k_stride_bytes + row);
    kv->rows.v = ha_guard_alloc(pool == 0 ? 0 : (pool - 1) * kv->rows.v_stride_bytes + row);
    if (layout == HA_TEST_GATHERED) {
        uint32_t *index = ha_guard_alloc(keys * sizeof *index);
        ha_test_choose(index, keys, pool, true, seed, INDEX_STREAM);
        kv->rows.index = index;
    }

    float *k = malloc(2 * (dim + 1) * sizeof *k), *v = k + dim;
    if (!k) die("no memory");
    for (size_t i = 0; i < keys; i++) {
        key(family, dim, keys, i, dtype, seed, k, v);
        ha_store_row(at(kv->rows.k, kv->rows.k_stride_bytes, &kv->rows, i), dim, dtype, k);
        ha_store_row(at(kv->rows.v, kv->rows.v_stride_bytes, &kv->rows, i), dim, dtype, v);
    }
    free(k);
}

/* the bits of a key, to where a store has key `to` */
static void put(void *store, size_t to, const struct ha_rows *key, size_t dim, enum ha_dtype t)
{
    const size_t size = ha_dtype_bytes(t);
    const char *k = ha_row_k(key, 0), *v = ha_row_v(key, 0);
    for (size_t d = 0; d < dim; d++) {
        memcpy((char *)store + ha_ref_packed_k(t, dim, to, d) * size, k + d * size, size);
        memcpy((char *)store + ha_ref_packed_v(t, dim, to, d) * size, v + d * size, size);
    }
}

/* The short unit is the last of the store, and anywhere in the list. */
struct ha_packed ha_test_pack(const struct ha_test_kv *kv, size_t keys, size_t unit, uint64_t seed, uint32_t *place)
{
    const size_t size = unit ? unit : keys + 1, units = (keys + size - 1) / size, ragged = keys % size,
                 in_store = unit ? units + units / 2 + 1 : units, end = in_store * size - (ragged ? size - ragged : 0);
    const size_t whole = (end + HA_PACK_KEYS - 1) / HA_PACK_KEYS,
                 block_bytes = ha_packed_block_bytes(kv->dim, kv->dtype);
    const struct ha_rows zeros = { .k = ha_guard_alloc(kv->rows.k_stride_bytes),
                                   .v = ha_guard_alloc(kv->rows.v_stride_bytes) };
    uint32_t *list = ha_guard_alloc(units * sizeof *list);
    void *store = ha_guard_alloc(whole * block_bytes);
    ha_test_choose(list, unit ? units : 0, in_store - (ragged > 0), false, seed, UNIT_STREAM);
    if (ragged) list[ha_rng_below(seed, UNIT_STREAM, units, units)] = (uint32_t)(in_store - 1);
    memset(ha_test_own(zeros.k), 0, kv->rows.k_stride_bytes);
    memset(ha_test_own(zeros.v), 0, kv->rows.v_stride_bytes);
    for (size_t key = end; key < whole * HA_PACK_KEYS; key++) put(store, key, &zeros, kv->dim, kv->dtype);
    for (size_t u = 0, i = 0; u < units; u++)
        for (size_t key = list[u] * size; key < (list[u] + 1) * size && key < end; key++, i++) {
            const struct ha_rows one = ha_test_rows_part(kv, i, 1);
            put(store, key, &one, kv->dim, kv->dtype);
            if (place) place[i] = (uint32_t)key;
        }
    struct ha_packed p = { .blocks = store, .keys = end };
    if (unit) p.index = list, p.unit = unit, p.units = units;
    return p;
}

void ha_test_query(float *q, enum ha_test_family family, size_t dim, enum ha_dtype dtype, uint64_t seed)
{
    ha_rng_normals(seed, Q_STREAM, 0, dim, q);
    for (size_t d = 0; d < dim; d++) {
        switch (family) {
        case HA_TEST_PEAKED: q[d] *= 12; break;
        case HA_TEST_TIES: q[d] = 0.7f; break;
        case HA_TEST_INCREASING:
        case HA_TEST_DECREASING:
        case HA_TEST_DOMINANT: q[d] = 1 + 0.1f * q[d]; break;
        case HA_TEST_OFFSET: q[d] = 100 + q[d]; break;
        case HA_TEST_HUGE: q[d] *= 1e4f; break;
        case HA_TEST_CANCELLING: q[d] = 50 + 0.01f * q[d]; break;
        case HA_TEST_FINE: q[d] = (d % 2 ? -1024 : 1024) + 0.2f * q[d]; break;
        default: break;
        }
        q[d] = ha_round(q[d], dtype);
    }
}
