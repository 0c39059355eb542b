/* The embedded device, whose attention packs keys first: as many as it likes, in order or in units that a list names,
 * and attends to them and to the rows that are left, as a whole, by parts that are joined, or on a pool. So the suite
 * `device` judges attend_packed, pack, unpack and the joins of each table. Whatever a kernel reads or writes that is
 * not the caller's ends at a page that faults, and is a NaN where nothing was put. Where keys lie in a block, and what
 * a kernel says of a state, is compared with their contracts. */

#include "harness/api/reference.h"
#include "harness/base/cpu.h"
#include "harness/base/numeric.h"
#include "harness/base/pool.h"
#include "harness/base/rng.h"
#include "harness/base/seq_attend.h"
#include "harness/base/why.h"
#include "kernels/host/host.h"
#include "kernels/rows.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, UNITS = 5, PARTS = 16, PIECES = 40, THREADS = 3 };

__attribute__((visibility("default"))) extern struct ha_device_api ha_device_api;
struct ha_device_api ha_device_api;

/* One attention is computed at a time. */
static struct ha_device *device;
static struct ha_kernels looked_at;
static struct ha_pool *pool;
static uint64_t seed, drawn;
static bool side_by_side; /* on the pool: then nothing is drawn */

static size_t draw(size_t n) { return (size_t)ha_rng_below(seed, 1, drawn++, n); }

/* ---- memory that ends at a page that faults ---------------------------------------------------------------------- */

static struct block {
    char *at;
    size_t bytes;
    bool used;
} blocks[1 << 14];
static size_t blocks_count;

static struct block *block_of(size_t bytes)
{
    size_t i = 0;
    while (i < blocks_count && (blocks[i].used || blocks[i].bytes != bytes)) i++;
    if (i < blocks_count) return &blocks[i];
    char *p = mmap(NULL, bytes + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || i == sizeof blocks / sizeof *blocks || mprotect(p + bytes, PAGE, PROT_NONE)) abort();
    blocks[blocks_count++] = (struct block){ p, bytes, false };
    return &blocks[i];
}

static void *guarded(size_t bytes)
{
    struct block *b = block_of((bytes + PAGE - 1) / PAGE * PAGE);
    char *const p = b->at + b->bytes - bytes;
    b->used = true;
    for (size_t i = 0; i < bytes && i < 64; i++) p[i] = i % 2 ? 0x7F : (char)0xA1; /* of binary32, it signals */
    for (size_t i = 64; i < bytes; i *= 2) memcpy(p + i, p, ha_least(i, bytes - i));
    return p;
}

static void release(void)
{
    enum { KEPT = 64 };
    while (blocks_count > KEPT) {
        const struct block *b = &blocks[--blocks_count];
        munmap(b->at, b->bytes + PAGE);
    }
    for (size_t i = 0; i < blocks_count; i++) blocks[i].used = false;
}

/* ---- what a kernel says of a state ------------------------------------------------------------------------------- */

static void look(const char *kernel, size_t rows, size_t dim, size_t keys, const float *weights, size_t stride,
                 const uint32_t *visible, const float *level, const float *sum, const float *acc)
{
    for (size_t r = 0; r < rows; r++) {
        const size_t seen = visible && visible[r] < keys ? visible[r] : keys;
        double most = 0, all = 0;
        bool right = true;
        if (isnan(sum[r])) continue;
        for (size_t i = 0; weights && i < keys; i++) {
            const float w = weights[r * stride + i];
            if (i >= seen) right = right && w == 0;
            most = fmax(most, (double)w);
            all += (double)w;
        }
        if (level[r] == -INFINITY) {
            right = right && sum[r] == 0 && all == 0;
            for (size_t d = 0; d < dim; d++) right = right && acc[r * dim + d] == 0;
        } else {
            right = right && level[r] == floorf(level[r]) && sum[r] > 0.49f && sum[r] < 257 * (float)seen;
            if (weights) right = right && most > 0.49 && most < 257 && fabs((double)sum[r] - all) <= 0.01 * all;
        }
        if (!right)
            ha_host_fail(device,
                         "%s: level %g of row %zu of %zu over %zu keys: sum %g, weights of %g at most, %g in all",
                         kernel, (double)level[r], r, rows, keys, (double)sum[r], most, all);
    }
}

/* A call's queries and results, at strides of their own, with an end each, and maybe from the last row to the first,
 * until they are put back. */
struct apart {
    float *q, *weights, *level, *sum, *acc;
    size_t q_stride, weights_stride, rows, dim, keys;
    bool upwards;
};
static size_t row_of(const struct apart *x, size_t r) { return x->upwards ? x->rows - 1 - r : r; }

static struct apart set_apart(const float *q, size_t stride, size_t rows, size_t dim, size_t keys, bool weights)
{
    struct apart x = { .rows = rows, .dim = dim, .keys = keys, .upwards = draw(2) };
    x.q_stride = dim + draw(3);
    x.weights_stride = keys + draw(3);
    x.q = guarded(((rows - 1) * x.q_stride + dim) * sizeof *q);
    for (size_t r = 0; r < rows; r++) memcpy(x.q + row_of(&x, r) * x.q_stride, q + r * stride, dim * sizeof *q);
    x.weights = weights ? guarded(((rows - 1) * x.weights_stride + keys) * sizeof *q) : NULL;
    x.level = guarded(rows * sizeof *q);
    x.sum = guarded(rows * sizeof *q);
    x.acc = guarded(rows * dim * sizeof *q);
    return x;
}
static void put_back(const struct apart *x, float *weights, size_t stride, float *level, float *sum, float *acc)
{
    const uint32_t poison = 0x7FA17FA1;
    for (size_t r = 0; r < x->rows; r++) {
        const size_t at = row_of(x, r);
        if (weights) memcpy(weights + r * stride, x->weights + at * x->weights_stride, x->keys * sizeof *weights);
        for (size_t i = x->keys; weights && i < x->weights_stride && at + 1 < x->rows; i++)
            if (ha_f32_bits(x->weights[at * x->weights_stride + i]) != poison)
                ha_host_fail(device, "between the weights of row %zu and the next one is %g", at,
                             (double)x->weights[at * x->weights_stride + i]);
        level[r] = x->level[at];
        sum[r] = x->sum[at];
        memcpy(acc + r * x->dim, x->acc + at * x->dim, x->dim * sizeof *acc);
    }
}

static void chunk(const struct ha_chunk *c)
{
    if (side_by_side) device->kernels.attend_chunk(c);
    else {
        const struct apart x = set_apart(c->q, c->q_stride, c->q_rows, c->head_dim, c->rows.keys, true);
        uint32_t *visible = c->visible ? guarded(c->q_rows * sizeof *visible) : NULL;
        struct ha_chunk d = *c;
        for (size_t r = 0; visible && r < c->q_rows; r++) visible[row_of(&x, r)] = c->visible[r];
        d.q = x.q, d.q_stride = x.q_stride, d.weights = x.weights, d.weights_stride = x.weights_stride;
        d.level = x.level, d.sum = x.sum, d.acc = x.acc, d.visible = visible;
        device->kernels.attend_chunk(&d);
        put_back(&x, c->weights, c->weights_stride, c->level, c->sum, c->acc);
    }
    look("attend_chunk", c->q_rows, c->head_dim, c->rows.keys, c->weights, c->weights_stride, c->visible, c->level,
         c->sum, c->acc);
}

static void packed(const struct ha_packed_chunk *c, enum ha_dtype t)
{
    if (side_by_side) device->kernels.attend_packed[t](c);
    else {
        const struct apart x = set_apart(c->q, c->q_stride, c->q_rows, c->head_dim, c->keys, c->weights != NULL);
        struct ha_packed_chunk d = *c;
        d.q = x.q, d.q_stride = x.q_stride, d.weights = x.weights, d.weights_stride = x.weights_stride;
        d.level = x.level, d.sum = x.sum, d.acc = x.acc;
        device->kernels.attend_packed[t](&d);
        put_back(&x, c->weights, c->weights_stride, c->level, c->sum, c->acc);
    }
    look("attend_packed", c->q_rows, c->head_dim, c->keys, c->weights, c->weights_stride, NULL, c->level, c->sum,
         c->acc);
}
static void packed_f32(const struct ha_packed_chunk *c) { packed(c, HA_F32); }
static void packed_f16(const struct ha_packed_chunk *c) { packed(c, HA_F16); }
static void packed_bf16(const struct ha_packed_chunk *c) { packed(c, HA_BF16); }

/* ---- keys that are packed ---------------------------------------------------------------------------------------- */

/* Which key of the store each of the list is: all in order, or units of a larger store in any order, of which the
 * store's last may be short and stand anywhere. */
static struct ha_packed make_list(size_t keys, uint32_t *place)
{
    static const size_t sizes[UNITS] = { 0, 16, 32, 64, 128 };
    const size_t unit = sizes[draw(UNITS)], units = unit ? (keys + unit - 1) / unit : 0,
                 ragged = unit ? keys % unit : 0, of = units + units / 2 + 1;
    for (size_t i = 0; i < keys && !unit; i++) place[i] = (uint32_t)i;
    if (!unit) return (struct ha_packed){ .keys = keys };
    uint32_t *list = guarded(units * sizeof *list), *all = guarded(of * sizeof *all);
    for (size_t i = 0; i < of; i++) all[i] = (uint32_t)i;
    for (size_t i = 0; i < units; i++) {
        const size_t j = i + draw(of - (ragged > 0) - i);
        list[i] = all[j];
        all[j] = all[i];
    }
    if (ragged) list[draw(units)] = (uint32_t)(of - 1);
    const struct ha_packed p = {
        .keys = of * unit - (ragged ? unit - ragged : 0), .index = list, .unit = unit, .units = units
    };
    for (size_t u = 0, i = 0; u < units; u++)
        for (size_t key = list[u] * unit; key < (list[u] + 1) * unit && key < p.keys; key++) place[i++] = (uint32_t)key;
    return p;
}

/* Rows, as a store is filled: some at a time, into blocks that held other keys. */
static void fill(char *store, const struct ha_rows *all, size_t dim, enum ha_dtype t)
{
    for (size_t at = 0, n; at < all->keys; at += n) {
        n = draw(2) ? all->keys - at : 1 + draw(all->keys - at < PIECES ? all->keys - at : PIECES);
        uint32_t *index = draw(2) ? guarded(n * sizeof *index) : NULL;
        for (size_t i = 0; index && i < n; i++) index[i] = (uint32_t)(at + i);
        struct ha_pack p = { .blocks = store, .at = at, .rows = *all, .head_dim = dim, .dtype = t };
        p.rows.index = index;
        p.rows.keys = n;
        if (!index) p.rows.k = ha_row_k(all, at), p.rows.v = ha_row_v(all, at);
        device->kernels.pack(&p);
    }
}

/* Each element where the layout has it, zeros behind the last key; and as rows again. */
static void compare(const char *store, const struct ha_rows *all, size_t dim, enum ha_dtype t)
{
    const size_t size = ha_dtype_bytes(t), end = (all->keys + HA_PACK_KEYS - 1) / HA_PACK_KEYS * HA_PACK_KEYS,
                 stride = dim * size + draw(3) * size, first = draw(all->keys), keys = 1 + draw(all->keys - first);
    static const char zero[4];
    bool right = true;
    for (size_t key = 0; key < end; key++)
        for (size_t d = 0; d < dim; d++) {
            const char *k = key < all->keys ? (const char *)ha_row_k(all, key) + d * size : zero,
                       *v = key < all->keys ? (const char *)ha_row_v(all, key) + d * size : zero;
            right = right && !memcmp(store + ha_ref_packed_k(t, dim, key, d) * size, k, size)
                    && !memcmp(store + ha_ref_packed_v(t, dim, key, d) * size, v, size);
        }
    uint32_t *index = draw(2) ? guarded(keys * sizeof *index) : NULL;
    for (size_t i = 0; index && i < keys; i++) index[i] = (uint32_t)draw(all->keys);
    char *k = guarded((keys - 1) * stride + dim * size), *v = guarded((keys - 1) * (stride + size) + dim * size);
    device->kernels.unpack(&(struct ha_unpack){ store, index, first, keys, dim, t, k, v, stride, stride + size });
    for (size_t i = 0; i < keys; i++) {
        const size_t key = index ? index[i] : first + i, beside = 0x7FA1;
        right = right && !memcmp(k + i * stride, ha_row_k(all, key), dim * size)
                && !memcmp(v + i * (stride + size), ha_row_v(all, key), dim * size);
        if (i + 1 < keys) right = right && !memcmp(v + i * (stride + size) + dim * size, &beside, 2);
    }
    if (!right) ha_host_fail(device, "pack of %zu keys of %zu, or unpack of %zu: not these bits", all->keys, dim, keys);
}

/* The first keys of the runs leave them: cut only where an index begins to name another block. */
static void take(struct ha_attend *a, struct ha_rows *runs, size_t keys)
{
    const size_t size = ha_dtype_bytes(a->dtype), row = a->head_dim * size, block = a->block ? a->block : 1;
    uint32_t *place = guarded(keys * sizeof *place);
    const size_t gap = draw(3) * size;
    struct ha_packed p = make_list(keys, place);
    struct ha_rows all = { .k_stride_bytes = row + gap, .v_stride_bytes = row + 2 * gap, .keys = p.keys };
    char *k = guarded(p.keys * all.k_stride_bytes - gap), *v = guarded(p.keys * all.v_stride_bytes - 2 * gap);
    all.k = k;
    all.v = v;
    for (size_t r = 0, i = 0; i < keys; r++) {
        const size_t n = ha_least(runs[r].keys, keys - i);
        for (size_t j = 0; j < n; j++, i++) {
            const size_t from = runs[r].index ? runs[r].index[j / block] * block + j % block : j;
            memcpy(k + place[i] * all.k_stride_bytes, (const char *)runs[r].k + from * runs[r].k_stride_bytes, row);
            memcpy(v + place[i] * all.v_stride_bytes, (const char *)runs[r].v + from * runs[r].v_stride_bytes, row);
        }
        runs[r].keys -= n;
        if (runs[r].index) runs[r].index += n / block;
        else runs[r].k = ha_row_k(&runs[r], n), runs[r].v = ha_row_v(&runs[r], n);
    }
    char *store = guarded((p.keys + HA_PACK_KEYS - 1) / HA_PACK_KEYS * ha_packed_block_bytes(a->head_dim, a->dtype));
    fill(store, &all, a->head_dim, a->dtype);
    compare(store, &all, a->head_dim, a->dtype);
    p.blocks = store;
    a->packed = p;
}

/* How many: to the last that may be packed, or fewer. */
static size_t to_pack(const struct ha_attend *a)
{
    const size_t block = a->block ? a->block : 1;
    size_t most = 0, keys = 0;
    if (!ha_packs(a->head_dim)) return 0;
    for (size_t r = 0; r < a->runs_count; r++) most += a->runs[r].keys;
    if (a->causal) most -= a->q_len;
    if (draw(3) == 0) most = draw(most + 1);
    for (size_t r = 0; keys < most && r < a->runs_count; r++) {
        const size_t n = ha_least(a->runs[r].keys, most - keys);
        keys += n == a->runs[r].keys || !a->runs[r].index ? n : n / block * block;
        if (n < a->runs[r].keys) break;
    }
    return keys;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static void attend_parts(const struct ha_attend *a)
{
    const struct ha_kernels *k = &looked_at;
    struct ha_attend_part part[PARTS];
    const struct ha_attend_join join = { a, part, 1 + draw(PARTS) };
    size_t keys = a->packed.keys ? ha_packed_listed(&a->packed) : 0, first = 0;
    for (size_t r = 0; r < a->runs_count; r++) keys += a->runs[r].keys;
    for (size_t i = 0; i < join.count; i++) {
        const size_t n = i + 1 == join.count
                             ? keys - first
                             : ha_least(HA_SPLIT_KEYS * draw(2 + keys / HA_SPLIT_KEYS / 4), keys - first);
        part[i] = (struct ha_attend_part){ a, first, n, guarded(k->attend_state_bytes(a)),
                                           guarded(k->attend_scratch_bytes(a)) };
        first += n;
    }
    for (size_t i = join.count; i-- > 0;) k->attend_part(k, &part[i]); /* in any order */
    k->attend_join(k, &join);
}

/* the units of a sequence */
static void attend_units(struct ha_attend *units, size_t count)
{
    const struct ha_kernels *k = &looked_at;
    const size_t way = draw(3);
    if (way == 2) {
        size_t bytes = 0;
        for (size_t i = 0; i < count; i++) {
            const size_t own = k->attend_all_bytes(&units[i], count, THREADS);
            if (own > bytes) bytes = own;
        }
        void *work = guarded(bytes);
        side_by_side = true;
        k->attend_all(k, &(struct ha_attend_all){ units, count, pool, "attend", work });
        side_by_side = false;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (way == 1 && k->attend_splits(&units[i])) {
            attend_parts(&units[i]);
            continue;
        }
        units[i].scratch = guarded(k->attend_scratch_bytes(&units[i]));
        k->attend(k, &units[i]);
    }
}

static void run_alone(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_attend *args = &op->u.attend;
    const struct ha_device_seq *seqs = op->array;
    const size_t units = ha_seq_units(args);
    struct ha_attend *all = malloc(units * sizeof *all);
    struct ha_rows(*runs)[HA_RUNS_MAX] = malloc(units * sizeof *runs);
    if (!all || !runs) abort();
    device = s->device;
    looked_at = device->kernels;
    looked_at.attend_chunk = chunk;
    looked_at.attend_packed[HA_F32] = packed_f32;
    looked_at.attend_packed[HA_F16] = packed_f16;
    looked_at.attend_packed[HA_BF16] = packed_bf16;
    for (size_t b = 0; b < args->batch; b++) {
        seed = args->q_len && args->q_heads ? ha_f32_bits(*seqs[b].q) : 0; /* so that a case has its own again */
        drawn = 0;
        for (unsigned p = 0; p < HA_PATTERNS; p++)
            looked_at.reach[args->dtype][p] = (struct ha_reach){ (enum ha_reach_kind)draw(HA_REACH_KINDS),
                                                                 (uint32_t)draw(HA_REACH_MOST + 1) };
        for (size_t u = 0; u < units; u++) {
            all[u] = ha_seq_attend(args, &seqs[b], u, runs[u]);
            const size_t keys = to_pack(&all[u]);
            if (keys) take(&all[u], runs[u], keys);
        }
        attend_units(all, units);
        release();
    }
    free(all);
    free(runs);
}

/* One call at a time: the static data of this file belong to the call that runs. */
static void run(struct ha_stream *s, const struct ha_host_op *op)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    run_alone(s, op);
    pthread_mutex_unlock(&lock);
}

static enum ha_status attend(struct ha_stream *s, const struct ha_device_attend *args)
{
    static const struct ha_host_verb verb = { .name = "attend", .kind = HA_SPAN_KERNEL, .run = run };
    struct ha_host_op op = { .verb = &verb,
                             .array = args->seqs,
                             .array_bytes = args->batch * sizeof *args->seqs,
                             .scratch_bytes = 1,
                             .u.attend = *args };
    HA_TRY(ha_host_attend_fits(s, &op, args));
    return ha_host_enqueue(s, &op);
}

static void info(struct ha_device *dev, struct ha_device_info *out)
{
    ha_device_host.info(dev, out);
    for (int t = 0; t < HA_DTYPE_COUNT; t++) out->profile[t] = ha_profile_attend(&dev->kernels, (enum ha_dtype)t);
}

#if defined(HA_AMX_TWIN)
extern const struct ha_kernels ha_kernels_amx_twin; /* kernels/amx/tile.h */
#endif

static enum ha_status open_it(struct ha_device **dev, const struct ha_device_config *config, struct ha_why *why)
{
    HA_TRY(pool ? HA_OK : ha_pool_create(&pool, HA_TEAM_OWN, THREADS, why));
    HA_TRY(ha_device_host.open(dev, config, why));
#if defined(HA_AMX_TWIN)
    if (ha_kernels_amx_twin.absent || !(ha_cpu_bits() & HA_CPU_AVX512_BF16)) {
        ha_device_host.close(*dev);
        return ha_why(why, HA_WAIVED, "the rest of the kernel needs AVX-512 BF16");
    }
    (*dev)->kernels.attend_packed[HA_BF16] = ha_kernels_amx_twin.attend_packed[HA_BF16];
    (*dev)->kernels.packed_profile[HA_BF16] = ha_kernels_amx_twin.packed_profile[HA_BF16];
#endif
    return HA_OK;
}

__attribute__((constructor)) static void make_table(void)
{
    ha_device_api = ha_device_host;
    ha_device_api.name = "packed";
    ha_device_api.open = open_it;
    ha_device_api.info = info;
    ha_device_api.attend = attend;
}
