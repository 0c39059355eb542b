#include "harness/engine/random.h"

#include "harness/engine/plan.h"
#include "harness/engine/point.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct shrink {
    const struct ha_suite *suite;
    void *point, *next; /* the smallest so far; the one that is tried */
    size_t tries;
    bool (*fails)(void *arg, const void *point);
    void *arg;
};

/* The id of a try is what is reported, so that the point that is tried is the one that its id reads back. */
static bool try(struct shrink *s, const struct ha_key *key, const char *value)
{
    const struct ha_suite *of;
    char id[HA_ID_MAX], before[HA_VALUE_MAX];
    struct ha_why unused;
    ha_point_value(s->point, key, before);
    if (!s->tries || !strcmp(before, value)) return false;
    memcpy(s->next, s->point, s->suite->point_bytes);
    if (ha_point_set(s->next, key, value, &unused) != HA_OK) return false;
    if (s->suite->settle && s->suite->settle(s->next, &unused) != HA_OK) return false;
    if (ha_point_print(s->suite, s->next, id, sizeof id) >= sizeof id) return false;
    if (ha_id_parse(id, &of, s->next, s->suite->point_bytes, &unused) != HA_OK || of != s->suite) return false;
    s->tries--;
    if (!s->fails(s->arg, s->next)) return false;
    memcpy(s->point, s->next, s->suite->point_bytes);
    return true;
}

/* ---- a value as numbers and what stands between them: 40/8, 5+0+7 ----------------------------------------------- */

enum { NUMBERS_MAX = 256 };
struct numbers {
    uint64_t x[NUMBERS_MAX];
    size_t count;
    char between; /* 0: one number */
};

static bool read_numbers(const char *text, struct numbers *n)
{
    *n = (struct numbers){ .between = 0 };
    while (n->count < NUMBERS_MAX && ha_whole_parse(text, &n->x[n->count], &text)) {
        n->count++;
        if (!*text) return true;
        if ((*text != '+' && *text != '/') || (n->between && *text != n->between)) return false;
        n->between = *text++;
    }
    return false;
}

static bool try_numbers(struct shrink *s, const struct ha_key *key, const struct numbers *n)
{
    char text[HA_VALUE_MAX];
    size_t at = 0;
    for (size_t i = 0; i < n->count && at < sizeof text; i++) {
        const char between[] = { i ? n->between : (char)0, 0 };
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%" PRIu64, between, n->x[i]);
    }
    return n->count && at < sizeof text && try(s, key, text);
}

/* Fewer parts: halves, then single ones. */
static bool drop_parts(struct shrink *s, const struct ha_key *key, struct numbers *n)
{
    bool any = false;
    for (size_t size = n->count / 2; size && n->between == '+'; size /= 2)
        for (size_t at = 0; at + size <= n->count && n->count > size;) {
            struct numbers less = *n;
            memmove(less.x + at, less.x + at + size, (n->count - at - size) * sizeof *n->x);
            less.count -= size;
            if (try_numbers(s, key, &less)) {
                *n = less;
                any = true;
            } else at += size;
        }
    return any;
}

/* Number i less so many units. A pair's first stays so many times its second, and is lowered in units of it. */
static bool less_by(struct shrink *s, const struct ha_key *key, struct numbers *n, size_t i, uint64_t by)
{
    struct numbers less = *n;
    less.x[i] -= by;
    if (n->between == '/' && i == 1) less.x[0] = n->x[0] / n->x[1] * less.x[1];
    if (!try_numbers(s, key, &less)) return false;
    *n = less;
    return true;
}

/* Number i down to the least for which it fails: by halves, and where few are left, each of them from the least on. */
static bool lower(struct shrink *s, const struct ha_key *key, struct numbers *n, size_t i, uint64_t unit)
{
    enum { FEW = 16 };
    const bool is_first = n->between == '/' && i == 0;
    uint64_t least = key->min;
    if (is_first) unit = least = n->x[1];
    if (!unit || n->x[i] <= least) return false;
    const uint64_t all = (n->x[i] - least) / unit;
    uint64_t left = all;
    for (uint64_t down = left; down && s->tries;) {
        /* odd ones may be the only ones that fail, or every fourth */
        const uint64_t alike = down >= FEW ? down - down % FEW : down - down % 2;
        if (less_by(s, key, n, i, down * unit)) left -= down;
        else if (alike < down && alike && less_by(s, key, n, i, alike * unit)) left -= alike;
        else down /= 2;
        if (down > left) down = left;
    }
    for (uint64_t down = left; left <= FEW && down && s->tries; down--)
        if (less_by(s, key, n, i, down * unit)) {
            left -= down;
            break;
        }
    return left < all;
}

static uint64_t unit_of(const struct ha_key *key)
{
    uint64_t step = 1;
    const char *colon = strchr(key->draw, ':'), *end;
    return colon && ha_whole_parse(colon + 1, &step, &end) && step ? step : 1;
}

static bool shrink_key(struct shrink *s, const struct ha_key *key)
{
    char value[HA_VALUE_MAX], standard[HA_VALUE_MAX];
    struct numbers n, usual;
    const char *plain = ha_key_standard(s->point, key, standard);
    ha_point_value(s->point, key, value);
    const bool counts = (key->kind == HA_KEY_NUMBER || key->kind == HA_KEY_PAIR) && read_numbers(value, &n),
               larger = counts && read_numbers(plain, &usual) && usual.x[0] > n.x[0];
    bool any = *plain && strcmp(plain, "*") && !larger && try(s, key, plain);
    if (any || !counts) return any;
    any = drop_parts(s, key, &n);
    for (size_t i = n.count; i-- > 0;) any |= lower(s, key, &n, i, unit_of(key));
    return any;
}

bool ha_shrink(const struct ha_suite *suite, void *point, size_t tries, bool (*fails)(void *arg, const void *point),
               void *arg)
{
    struct shrink s = {
        .suite = suite, .point = point, .next = malloc(suite->point_bytes), .tries = tries, .fails = fails, .arg = arg
    };
    bool any = false, again = s.next != NULL;
    while (again && s.tries) {
        struct ha_key room;
        const struct ha_key *key;
        again = false;
        for (size_t i = 0; (key = ha_point_key(suite, point, i, &room)); i++)
            if (key->draw && key->kind != HA_KEY_FACT && ha_point_uses(suite, point, i)
                && !(suite->head && !strcmp(suite->head, key->name)))
                again |= shrink_key(&s, key);
        any |= again;
    }
    free(s.next);
    return any;
}
