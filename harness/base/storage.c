#include "harness/base/storage.h"

#include "harness/base/pq.h"

#include <stdio.h>

enum { KV_BYTES = 2, BEFORE_CODES = 2 };

bool ha_storage_at(size_t i, struct ha_storage *out)
{
    static const size_t dims[] = { 2, 4, 8 };
    static const struct {
        size_t count;
        bool pack;
    } codes[] = { { 256, false }, { 8192, true }, { 8192, false } };
    enum { DIMS = sizeof dims / sizeof *dims, CODES = sizeof codes / sizeof *codes, BOOKS = 2 };
    if (i < BEFORE_CODES) {
        *out = (struct ha_storage){ .down = i > 0 };
        return true;
    }
    i -= BEFORE_CODES;
    if (i >= DIMS * CODES * BOOKS) return false;
    *out = (struct ha_storage){ .codes = true,
                                .down = true,
                                .dims = dims[i / BOOKS / CODES],
                                .count = codes[i / BOOKS % CODES].count,
                                .pack = codes[i / BOOKS % CODES].pack,
                                .separate = i % BOOKS };
    return true;
}

void ha_storage_name(const struct ha_storage *l, char out[HA_STORAGE_NAME])
{
    if (!l->codes) snprintf(out, HA_STORAGE_NAME, "%s", l->down ? "hcattention:keys=exact" : "resident");
    else
        snprintf(out, HA_STORAGE_NAME, "hcattention:dims=%zu,c=%zu%s%s", l->dims, l->count, l->pack ? ",pack=1" : "",
                 l->separate ? ",books=separate" : "");
}

struct ha_pq ha_storage_pq(const struct ha_storage *l, size_t head_dim)
{
    return ha_pq_of(head_dim, l->dims, l->count, l->separate, l->pack);
}

/* ---- sums that do not wrap
 * ------------------------------------------------------------------------------------------- */

static uint64_t times(bool *fits, uint64_t a, uint64_t b)
{
    uint64_t product;
    *fits = !__builtin_mul_overflow(a, b, &product) && *fits;
    return product;
}

static uint64_t plus(bool *fits, uint64_t a, uint64_t b)
{
    uint64_t sum;
    *fits = !__builtin_add_overflow(a, b, &sum) && *fits;
    return sum;
}

/* ---- bytes
 * ----------------------------------------------------------------------------------------------------------- */

/* A list of the choice has room for a multiple of 16 keys: their scores, and what the least prefix makes of them. */
static void need_of_choice(const struct ha_cached *of, uint64_t tokens, struct ha_need *n, bool *fits)
{
    const uint64_t keys = times(fits, of->q_heads, (tokens + 15) / 16 * 16);
    const size_t chosen = sizeof *((struct ha_topp *)NULL)->index + ha_dtype_bytes(HA_F32);
    n->step = plus(fits, n->step, times(fits, keys, sizeof *((struct ha_topp *)NULL)->x + chosen));
    n->step_host = times(fits, keys, chosen);
}

bool ha_storage_need(const struct ha_storage *l, const struct ha_cached *of, uint64_t tokens, struct ha_need *out)
{
    const uint64_t heads = (uint64_t)of->layers * of->kv_heads,
                   fresh = tokens < HA_STORAGE_FRESH ? tokens : HA_STORAGE_FRESH;
    bool fits = true;
    const uint64_t values = times(&fits, heads * of->head_dim * KV_BYTES, tokens);
    struct ha_need n = { .kv = values };
    if (l->codes) {
        const struct ha_pq pq = ha_storage_pq(l, of->head_dim);
        n.kv = times(&fits, heads, ha_pq_head_bytes(&pq, tokens));
        n.books = heads * ha_pq_book_floats(&pq) * sizeof *pq.centroid;
        n.step = of->kv_heads * ha_pq_head_table_bytes(&pq, of->q_heads / of->kv_heads, HA_F32);
    }
    if (l->down) {
        n.kv_host = values;
        n.fresh = 2 * heads * of->head_dim * KV_BYTES * fresh;
        need_of_choice(of, tokens, &n, &fits);
    } else n.kv = plus(&fits, n.kv, values);
    n.host = plus(&fits, n.kv_host, n.step_host);
    n.device = plus(&fits, plus(&fits, n.kv, n.step), plus(&fits, n.books + n.fresh, of->weights_bytes));
    *out = n;
    return fits;
}

uint64_t ha_storage_tokens(const struct ha_storage *l, const struct ha_cached *of, uint64_t device_bytes)
{
    uint64_t held = 0, too_many = HA_STORAGE_TOKENS_MAX + 1;
    while (too_many - held > 1) {
        const uint64_t tokens = held + (too_many - held) / 2;
        struct ha_need need;
        if (ha_storage_need(l, of, tokens, &need) && need.device <= device_bytes) held = tokens;
        else too_many = tokens;
    }
    return held;
}
