#include "kernels/test_data.h"

#include "harness/base/cpu.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "kernels/rows.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#define HA_KERNELS(name) extern const struct ha_kernels ha_kernels_##name;
#include "harness/program/registry.def"

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

int ha_test_tables_setup(void **state)
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

enum { K_STREAM = 1, V_STREAM, Q_STREAM, INDEX_STREAM };

/* Draws `count` different numbers below `of`, in any order; of - 1 is among them. */
static void choose(uint32_t *out, size_t count, size_t of, uint64_t seed)
{
    uint32_t *all = malloc((of + 1) * sizeof *all);
    if (!all) die("no memory");
    for (size_t i = 0; i < of; i++) all[i] = (uint32_t)i;
    for (size_t i = 0; i < count; i++) {
        const size_t j = i == count / 2 ? of - 1 : i + ha_rng_below(seed, INDEX_STREAM, i, of - 1 - i);
        out[i] = all[j];
        all[j] = all[i];
    }
    free(all);
}

void ha_test_kv_make(struct ha_test_kv *kv, enum ha_test_layout layout, size_t dim, size_t keys, enum ha_dtype dtype,
                     uint64_t seed)
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
        choose(index, keys, pool, seed);
        kv->rows.index = index;
    }

    float *k = malloc(2 * (dim + 1) * sizeof *k), *v = k + dim;
    if (!k) die("no memory");
    for (size_t i = 0; i < keys; i++) {
        ha_rng_normals(seed, K_STREAM, i * dim, dim, k);
        ha_rng_normals(seed, V_STREAM, i * dim, dim, v);
        ha_store_row(at(kv->rows.k, kv->rows.k_stride_bytes, &kv->rows, i), dim, dtype, k);
        ha_store_row(at(kv->rows.v, kv->rows.v_stride_bytes, &kv->rows, i), dim, dtype, v);
    }
    free(k);
}

void ha_test_query(float *q, size_t dim, enum ha_dtype dtype, uint64_t seed)
{
    ha_rng_normals(seed, Q_STREAM, 0, dim, q);
    for (size_t d = 0; d < dim; d++) q[d] = ha_round(q[d], dtype);
}
