#include "suites/merge/id.h"

#include "harness/base/why.h"
#include "harness/base/words.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FAMILY "lse_merge"
enum { ROWS_MAX = 64, NAME_SIZE = sizeof((struct ha_merge_id *)0)->what, PAIR_MAX = 128 };
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "numbers of an id are read through one pair of functions");
_Static_assert(sizeof(enum ha_form) == sizeof(unsigned) && sizeof(enum ha_layout) == sizeof(unsigned),
               "and so are its words");

/* What a key names: one of some words (an enum), a number, T x H, or a name. */
enum kind { WORD, NUMBER, GRID, NAME };
struct key {
    const char *name;
    enum kind kind;
    size_t offset; /* of an unsigned, a uint64_t, the two of a grid, a char[64] */
    const char *(*word)(unsigned i);
    uint64_t min, max; /* of a number; of words, how many there are */
};

static const char *form(unsigned i) { return ha_form_name((enum ha_form)i); }
static const char *dtype(unsigned i) { return ha_dtype_name((enum ha_dtype)i); }
static const char *order(unsigned i) { return ha_order_name((enum ha_order)i); }
static const char *alias(unsigned i) { return ha_alias_name((enum ha_alias)i); }
static const char *layout(unsigned i) { return ha_layout_name((enum ha_layout)i); }

#define AT(member) offsetof(struct ha_merge_id, member)
enum { KEYS = HA_KEY_ROW + 1, ALL = KEYS + 2 };
/* the names stand behind what has a bit in `set` */
static const struct key keys[ALL] = {
    [HA_KEY_FORM] = { "form", WORD, AT(shape.form), form, 0, HA_FORM_COUNT },
    [HA_KEY_DTYPE] = { "dtype", WORD, AT(shape.dtype), dtype, 0, HA_DTYPE_COUNT },
    [HA_KEY_DIM] = { "head_dim", NUMBER, AT(shape.dim), NULL, 1, 1024 },
    [HA_KEY_STATES] = { "states", NUMBER, AT(shape.states), NULL, 1, 4096 },
    [HA_KEY_ORDER] = { "order", WORD, AT(shape.order), order, 0, HA_ORDER_COUNT },
    [HA_KEY_ALIAS] = { "alias", WORD, AT(shape.alias), alias, 0, HA_ALIAS_COUNT },
    [HA_KEY_LAYOUT] = { "layout", WORD, AT(shape.layout), layout, 0, HA_LAYOUT_COUNT },
    [HA_KEY_ROWS] = { "rows", GRID, AT(shape.tokens), NULL, 1, ROWS_MAX },
    [HA_KEY_SEED] = { "seed", NUMBER, AT(seed), NULL, 0, UINT64_MAX },
    [HA_KEY_ROW] = { "row", NUMBER, AT(row), NULL, 0, (uint64_t)ROWS_MAX *ROWS_MAX - 1 },
    [KEYS] = { "case", NAME, AT(what), NULL, 0, 0 },
    [KEYS + 1] = { "by", NAME, AT(by), NULL, 0, 0 },
};
/* as they are printed */
static const unsigned char printed[ALL] = { KEYS,          KEYS + 1,      HA_KEY_FORM,  HA_KEY_DTYPE,
                                            HA_KEY_DIM,    HA_KEY_STATES, HA_KEY_ORDER, HA_KEY_ALIAS,
                                            HA_KEY_LAYOUT, HA_KEY_ROWS,   HA_KEY_SEED,  HA_KEY_ROW };

/* decimal digits; *end: where they end */
static enum ha_status read_number(const struct key *key, const char *text, uint64_t *out, const char **end,
                                  struct ha_why *why)
{
    uint64_t x = 0;
    bool fits = true;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++)
        fits = fits && !__builtin_mul_overflow(x, 10u, &x) && !__builtin_add_overflow(x, (uint64_t)(*p - '0'), &x);
    if (p == text) return ha_why(why, HA_ERROR, "%s: '%.40s' is not a whole number", key->name, text);
    if (!fits || x < key->min || x > key->max)
        return ha_why(why, HA_ERROR, "%s: '%.40s' is not within %" PRIu64 " .. %" PRIu64, key->name, text, key->min,
                      key->max);
    *out = x;
    *end = p;
    return HA_OK;
}

static enum ha_status set_word(const struct key *key, const char *text, char *at, struct ha_why *why)
{
    const char *words[8] = { NULL };
    for (unsigned i = 0; i < key->max; i++) {
        words[i] = key->word(i);
        if (strcmp(text, words[i]) != 0) continue;
        memcpy(at, &i, sizeof i);
        return HA_OK;
    }
    return ha_unknown(why, key->name, text, words);
}

static enum ha_status set_number(const struct key *key, const char *text, char *at, struct ha_why *why)
{
    uint64_t x = 0;
    const char *end = text;
    const enum ha_status st = read_number(key, text, &x, &end, why);
    if (st != HA_OK) return st;
    if (*end) return ha_why(why, HA_ERROR, "%s: '%.40s' is not a whole number", key->name, text);
    memcpy(at, &x, sizeof x);
    return HA_OK;
}

/* tokens, x, heads */
static enum ha_status set_grid(const struct key *key, const char *text, char *at, struct ha_why *why)
{
    uint64_t x[2] = { 0, 0 };
    const char *end = text;
    enum ha_status st = read_number(key, text, &x[0], &end, why);
    if (st == HA_OK && *end == 'x') st = read_number(key, end + 1, &x[1], &end, why);
    if (st != HA_OK) return st;
    if (*end || !x[1]) return ha_why(why, HA_ERROR, "%s: '%.40s' is not TOKENSxHEADS, as 3x4", key->name, text);
    memcpy(at, x, sizeof x);
    return HA_OK;
}
_Static_assert(AT(shape.heads) == AT(shape.tokens) + sizeof(size_t), "a grid is two numbers side by side");

static enum ha_status set_name(const struct key *key, const char *text, char *at, struct ha_why *why)
{
    const size_t n = strlen(text);
    if (n == 0) return ha_why(why, HA_ERROR, "%s: a name is missing", key->name);
    if (n >= NAME_SIZE)
        return ha_why(why, HA_ERROR, "%s: '%.40s...' is longer than %d characters", key->name, text, NAME_SIZE - 1);
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 127)
            return ha_why(why, HA_ERROR, "%s: '%.40s': a blank or a control character cannot stand in a name",
                          key->name, text);
    memcpy(at, text, n + 1);
    return HA_OK;
}

static enum ha_status (*const set[])(const struct key *, const char *, char *, struct ha_why *) = {
    [WORD] = set_word,
    [NUMBER] = set_number,
    [GRID] = set_grid,
    [NAME] = set_name,
};

static enum ha_status key_unknown(const char *word, struct ha_why *why)
{
    const char *names[ALL + 1] = { NULL };
    for (size_t i = 0; i < ALL; i++) names[i] = keys[printed[i]].name;
    return ha_unknown(why, "key", word, names);
}

/* One key=value. seen: bits of the keys that came before. */
static enum ha_status parse_pair(char *pair, struct ha_merge_id *id, unsigned *seen, struct ha_why *why)
{
    char *value = strchr(pair, '=');
    if (!value) return ha_why(why, HA_ERROR, "'%.40s' is not key=value", pair);
    *value++ = 0;
    for (unsigned i = 0; i < ALL; i++) {
        const struct key *key = &keys[i];
        if (strcmp(pair, key->name) != 0) continue;
        if (*seen & 1u << i) return ha_why(why, HA_ERROR, "%s is given twice", key->name);
        *seen |= 1u << i;
        return set[key->kind](key, value, (char *)id + key->offset, why);
    }
    return key_unknown(pair, why);
}

static enum ha_status parse(const char *text, struct ha_merge_id *id, struct ha_why *why)
{
    static const char *const family[] = { FAMILY, NULL };
    char word[PAIR_MAX];
    unsigned seen = 0;
    size_t n = strcspn(text, ":");
    if (n != strlen(FAMILY) || strncmp(text, FAMILY, n) != 0) {
        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), text);
        return ha_unknown(why, "family", word, family);
    }
    text += n;
    while (*text) {
        n = strcspn(++text, ",");
        if (n >= sizeof word) return ha_why(why, HA_ERROR, "'%.40s...' is not key=value", text);
        memcpy(word, text, n);
        word[n] = 0;
        const enum ha_status st = parse_pair(word, id, &seen, why);
        if (st != HA_OK) return ha_why_prefix(why, st, FAMILY);
        text += n;
    }
    id->set = seen & ((1u << KEYS) - 1);
    const size_t rows = id->shape.tokens * id->shape.heads;
    if ((seen & 1u << HA_KEY_ROWS) && (seen & 1u << HA_KEY_ROW) && id->row >= rows)
        return ha_why(why, HA_ERROR, FAMILY ": row: %zu of %zu rows, which are counted from 0", id->row, rows);
    return HA_OK;
}

enum ha_status ha_merge_id_parse(const char *text, struct ha_merge_id *id, struct ha_why *why)
{
    struct ha_merge_id next = { .set = 0 };
    const enum ha_status st = parse(text, &next, why);
    if (st == HA_OK) *id = next;
    return st;
}

static int print_value(const struct key *key, const char *at, char *out, size_t size)
{
    unsigned word = 0;
    uint64_t x[2] = { 0, 0 };
    switch (key->kind) {
    case WORD: memcpy(&word, at, sizeof word); return snprintf(out, size, "%s", key->word(word));
    case NUMBER: memcpy(x, at, sizeof *x); return snprintf(out, size, "%" PRIu64, x[0]);
    case GRID: memcpy(x, at, sizeof x); return snprintf(out, size, "%" PRIu64 "x%" PRIu64, x[0], x[1]);
    default: return snprintf(out, size, "%s", at);
    }
}

void ha_merge_id_print(const struct ha_merge_id *id, char out[HA_MERGE_ID_MAX])
{
    size_t used = (size_t)snprintf(out, HA_MERGE_ID_MAX, FAMILY);
    char mark = ':';
    for (size_t i = 0; i < ALL; i++) {
        const struct key *key = &keys[printed[i]];
        const char *at = (const char *)id + key->offset;
        if (key->kind == NAME ? !*at : !(id->set & 1u << printed[i])) continue;
        used += (size_t)snprintf(out + used, HA_MERGE_ID_MAX - used, "%c%s=", mark, key->name);
        used += (size_t)print_value(key, at, out + used, HA_MERGE_ID_MAX - used);
        mark = ',';
    }
}
