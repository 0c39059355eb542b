#include "suites/kernels/id.h"

#include "harness/api/kernels.h"
#include "harness/base/try.h"
#include "harness/base/why.h"
#include "harness/base/words.h"
#include "harness/base/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- keys ------------------------------------------------------------------------------------------ */

static const char *kernel_word(size_t i) { return i < HA_CPU_KERNELS ? ha_cpu_kernel_name(i) : NULL; }
static const char *layout_word(size_t i)
{
    return i == HA_CPU_PACKED ? "packed" : i == HA_CPU_NATURAL ? "natural" : NULL;
}
static const char *isa_word(size_t i)
{
    return i == 0 ? "best" : i <= ha_kernels_count ? ha_kernels_all[i - 1]->name : NULL;
}
static const char *dtype_word(size_t i) { return i < HA_DTYPE_COUNT ? ha_dtype_name((enum ha_dtype)i) : NULL; }
static const char *query_word(size_t i) { return i == 0 ? "kv" : i == 1 ? "f32" : NULL; }
static const char *all_word(size_t i) { return i == 0 ? "all" : NULL; }

/* word: the values 0, 1, ...; numbers from min to max besides, where max is not 0; a PAIR is two of them, as 32/8 */
enum { PAIR = 1 };
static const struct {
    const char *name;
    size_t offset, value;
    const char *(*word)(size_t i);
    size_t min, max, pair;
} keys[HA_CPU_KEYS] = {
#define AT(member) offsetof(struct ha_cpu_point, member)
    [HA_CPU_KERNEL] = { "kernel", AT(kernel), HA_KERNEL_ATTEND, kernel_word, 0, 0, 0 },
    [HA_CPU_LAYOUT] = { "layout", AT(layout), HA_CPU_PACKED, layout_word, 0, 0, 0 },
    [HA_CPU_ISA] = { "isa", AT(isa), 0, isa_word, 0, 0, 0 },
    [HA_CPU_DTYPE] = { "dtype", AT(dtype), HA_F16, dtype_word, 0, 0, 0 },
    [HA_CPU_QUERY] = { "query", AT(query), 0, query_word, 0, 0, 0 },
    [HA_CPU_CTX] = { "ctx", AT(ctx), 32768, NULL, 1, 1 << 24, 0 },
    [HA_CPU_BATCH] = { "batch", AT(batch), 1, NULL, 1, 4096, 0 },
    [HA_CPU_HEADS] = { "heads", AT(q_heads), 32, NULL, 1, 1024, PAIR },
    [HA_CPU_DIM] = { "head_dim", AT(head_dim), 128, NULL, 1, 512, 0 },
    [HA_CPU_Q_LEN] = { "q_len", AT(q_len), 1, NULL, 1, 4096, 0 },
    [HA_CPU_THREADS] = { "threads", AT(threads), 0, all_word, 1, 1024, 0 },
    [HA_CPU_BUDGET] = { "budget", AT(budget), 5, NULL, 1, 100, 0 },
    [HA_CPU_BLOCK] = { "block", AT(block), 32, NULL, 16, 128, 0 },
#undef AT
};
enum { KV_HEADS = 8, APPEND_Q_LEN = 16 };
_Static_assert(offsetof(struct ha_cpu_point, kv_heads) == offsetof(struct ha_cpu_point, q_heads) + sizeof(size_t),
               "heads are a pair");

const char *ha_cpu_key_name(enum ha_cpu_key key) { return keys[key].name; }

enum ha_status ha_cpu_key_find(const char *name, enum ha_cpu_key *key, struct ha_why *why)
{
    const char *names[HA_CPU_KEYS + 1] = { NULL };
    for (size_t i = 0; i < HA_CPU_KEYS; i++) {
        names[i] = keys[i].name;
        *key = (enum ha_cpu_key)i;
        if (!strcmp(name, names[i])) return HA_OK;
    }
    return ha_unknown(why, "key", name, names);
}

static size_t *member(struct ha_cpu_point *p, enum ha_cpu_key key)
{
    return (size_t *)(void *)((char *)p + keys[key].offset);
}
static const size_t *value_of(const struct ha_cpu_point *p, enum ha_cpu_key key)
{
    return (const size_t *)(const void *)((const char *)p + keys[key].offset);
}

static void reset(struct ha_cpu_point *p, enum ha_cpu_key key)
{
    member(p, key)[0] = keys[key].value;
    if (keys[key].pair) member(p, key)[1] = KV_HEADS;
}

void ha_cpu_point_default(struct ha_cpu_point *p)
{
    memset(p, 0, sizeof *p);
    for (int k = 0; k < HA_CPU_KEYS; k++) reset(p, (enum ha_cpu_key)k);
    p->q_len = APPEND_Q_LEN; /* until it settles */
}

/* digits only; the end of them, or NULL where they are none or not within the key's limits */
static const char *read_number(enum ha_cpu_key key, const char *text, size_t *out)
{
    size_t x = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9' && x <= keys[key].max; p++) x = 10 * x + (size_t)(*p - '0');
    if (p == text || x < keys[key].min || x > keys[key].max) return NULL;
    *out = x;
    return p;
}

static enum ha_status not_a_number(enum ha_cpu_key key, const char *value, struct ha_why *why)
{
    const char *shape = keys[key].pair ? "QUERY/KV heads, as 32/8, each" : "a whole number";
    const size_t min = keys[key].min, max = keys[key].max;
    if (!keys[key].word)
        return ha_why(why, HA_ERROR, "%s: '%.40s' is not %s from %zu to %zu", keys[key].name, value, shape, min, max);
    return ha_why(why, HA_ERROR, "%s: '%.40s' is neither '%s' nor %s from %zu to %zu", keys[key].name, value,
                  keys[key].word(0), shape, min, max);
}

enum ha_status ha_cpu_point_set(struct ha_cpu_point *p, enum ha_cpu_key key, const char *value, struct ha_why *why)
{
    const char *words[32] = { NULL };
    for (size_t i = 0; keys[key].word && i < 31 && (words[i] = keys[key].word(i)); i++)
        if (!strcmp(value, words[i])) {
            *member(p, key) = i;
            return HA_OK;
        }
    if (!keys[key].max) return ha_unknown(why, keys[key].name, value, words);
    size_t x[2] = { 0, 0 };
    const char *end = read_number(key, value, &x[0]);
    if (end && keys[key].pair) end = *end == '/' ? read_number(key, end + 1, &x[1]) : NULL;
    if (!end || *end) return not_a_number(key, value, why);
    memcpy(member(p, key), x, (keys[key].pair ? 2 : 1) * sizeof *x);
    return HA_OK;
}

/* ---- points ------------------------------------------------------------------------------------------ */

static bool packs(const struct ha_cpu_point *p)
{
    const bool has_layout = ha_cpu_key_used(p, HA_CPU_LAYOUT);
    return has_layout ? p->layout == HA_CPU_PACKED
                      : p->kernel == HA_KERNEL_SPARSE || p->kernel == HA_KERNEL_BLOCKS || p->kernel == HA_KERNEL_PACK
                            || p->kernel == HA_KERNEL_APPEND_KEY;
}

enum ha_status ha_cpu_point_settle(struct ha_cpu_point *p, struct ha_why *why)
{
    for (int k = 0; k < HA_CPU_KEYS; k++)
        if (!ha_cpu_key_used(p, (enum ha_cpu_key)k)) reset(p, (enum ha_cpu_key)k);
    if (!ha_cpu_key_used(p, HA_CPU_LAYOUT)) p->layout = packs(p) ? HA_CPU_PACKED : HA_CPU_NATURAL;
    if (p->dtype == HA_F32) p->query = 0;
    if (p->q_heads % p->kv_heads)
        return ha_why(why, HA_ERROR, "heads=%zu/%zu: a KV head has no whole number of query heads", p->q_heads,
                      p->kv_heads);
    if (packs(p) && !ha_packs(p->head_dim))
        return ha_why(why, HA_ERROR, "head_dim=%zu: packed keys have a multiple of 8, at most %d; say layout=natural",
                      p->head_dim, HA_PACK_DIM_MAX);
    if (p->block & (p->block - 1)) return ha_why(why, HA_ERROR, "block=%zu: it is one of 16 32 64 128", p->block);
    return HA_OK;
}

void ha_cpu_value_print(const struct ha_cpu_point *p, enum ha_cpu_key key, char out[HA_CPU_VALUE_MAX])
{
    const size_t *x = value_of(p, key);
    const char *word = keys[key].word ? keys[key].word(*x) : NULL;
    if (word && !(keys[key].max && *x)) snprintf(out, HA_CPU_VALUE_MAX, "%s", word);
    else if (keys[key].pair) snprintf(out, HA_CPU_VALUE_MAX, "%zu/%zu", x[0], x[1]);
    else snprintf(out, HA_CPU_VALUE_MAX, "%zu", *x);
}

void ha_cpu_point_print(const struct ha_cpu_point *p, char out[HA_CPU_ID_MAX])
{
    size_t used = (size_t)snprintf(out, HA_CPU_ID_MAX, "cpu_kernels");
    for (int k = 0; k < HA_CPU_KEYS; k++) {
        char value[HA_CPU_VALUE_MAX];
        if (!ha_cpu_key_used(p, (enum ha_cpu_key)k)) continue;
        ha_cpu_value_print(p, (enum ha_cpu_key)k, value);
        used += (size_t)snprintf(out + used, HA_CPU_ID_MAX - used, "%c%s=%s", k ? ',' : ':', keys[k].name, value);
    }
}

/* the value is one of that key */
static enum ha_status check_value(enum ha_cpu_key key, const char *value, struct ha_why *why)
{
    struct ha_cpu_point any;
    ha_cpu_point_default(&any);
    return ha_cpu_point_set(&any, key, value, why);
}

enum ha_status ha_cpu_point_parse(const char *terms, struct ha_cpu_point *p, struct ha_why *why)
{
    unsigned seen = 0;
    struct ha_term t;
    ha_cpu_point_default(p);
    for (const char *rest = terms; ha_term_next(&rest, &t);) {
        enum ha_cpu_key key;
        if (!t.value || t.negated) return ha_why(why, HA_ERROR, "cpu_kernels: '%.80s': not key=value", t.text);
        HA_TRY(ha_cpu_key_find(t.text, &key, why));
        if (seen >> key & 1u) return ha_why(why, HA_ERROR, "cpu_kernels: '%s' is there twice", t.text);
        seen |= 1u << key;
        HA_TRY(ha_cpu_point_set(p, key, t.value, why));
    }
    for (int k = 0; k < HA_CPU_KEYS; k++)
        if (seen >> k & 1u && !ha_cpu_key_used(p, (enum ha_cpu_key)k))
            return ha_why(why, HA_ERROR, "cpu_kernels: kernel=%s has no key '%s'", ha_cpu_kernel_name(p->kernel),
                          keys[k].name);
    return ha_cpu_point_settle(p, why);
}

/* ---- filters ----------------------------------------------------------------------------------------- */

enum ha_status ha_cpu_filter_check(const char *filter, struct ha_why *why)
{
    struct ha_term t;
    for (const char *rest = filter; ha_term_next(&rest, &t);) {
        enum ha_cpu_key key;
        if (!t.value) continue;
        HA_TRY(ha_cpu_key_find(t.text, &key, why));
        HA_TRY(check_value(key, t.value, why));
    }
    return HA_OK;
}

static bool fits(const struct ha_term *t, const struct ha_cpu_point *p)
{
    char id[HA_CPU_ID_MAX];
    enum ha_cpu_key key;
    struct ha_cpu_point other = *p;
    struct ha_why why;
    if (!t->value) {
        ha_cpu_point_print(p, id);
        return strstr(id, t->text) != NULL;
    }
    if (ha_cpu_key_find(t->text, &key, &why) != HA_OK || ha_cpu_point_set(&other, key, t->value, &why) != HA_OK)
        return false;
    return (ha_cpu_key_used(p, key) && !memcmp(&other, p, sizeof other)) != t->negated;
}

bool ha_cpu_filter_fits(const char *filter, const struct ha_cpu_point *p)
{
    struct ha_term t;
    for (const char *rest = filter; ha_term_next(&rest, &t);)
        if (!fits(&t, p)) return false;
    return true;
}
