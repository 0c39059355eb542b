#include "suites/link/id.h"

#include "harness/base/try.h"
#include "harness/base/why.h"
#include "harness/base/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Powers of 4, and the 4 KB and 128 KB of the papers. */
const size_t ha_link_piece_sizes[HA_LINK_PIECES] = {
    256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20,
};

void ha_link_piece_print(size_t bytes, char out[16])
{
    if (bytes < 1 << 10) snprintf(out, 16, "%zu", bytes);
    else if (bytes < 1 << 20) snprintf(out, 16, "%zuK", bytes >> 10);
    else snprintf(out, 16, "%zuM", bytes >> 20);
}

static const char *layout_name(bool scattered) { return scattered ? "scattered" : "contiguous"; }

void ha_link_id_print(const struct ha_link_point *p, char out[HA_LINK_ID_MAX])
{
    char piece[16];
    ha_link_piece_print(p->piece_bytes, piece);
    snprintf(out, HA_LINK_ID_MAX, "link:method=%s,piece=%s,layout=%s", p->method->name, piece,
             layout_name(p->scattered));
}

/* ---- terms -------------------------------------------------------------------------------------- */

/* bytes of "4096", "4K" and the like, or 0 */
static size_t piece_of(const char *text)
{
    static const char units[] = "KM";
    char *end;
    if (*text < '0' || *text > '9') return 0;
    unsigned long long n = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (*end && (!unit || end[1] || n > 1 << 20)) return 0;
    return (size_t)n << (unit ? 10 * (unit - units + 1) : 0);
}

static enum ha_status check_method(const char *value, struct ha_why *why)
{
    const char *names[64] = { NULL };
    for (size_t i = 0; i < ha_link_methods_count && i < 63; i++) names[i] = ha_link_methods[i].name;
    return ha_link_method_find(value) ? HA_OK : ha_unknown(why, "method", value, names);
}

static enum ha_status check_piece(const char *value, struct ha_why *why)
{
    static char text[HA_LINK_PIECES][16];
    const char *names[HA_LINK_PIECES + 1] = { NULL };
    for (size_t i = 0; i < HA_LINK_PIECES; i++) {
        if (ha_link_piece_sizes[i] == piece_of(value)) return HA_OK;
        ha_link_piece_print(ha_link_piece_sizes[i], text[i]);
        names[i] = text[i];
    }
    return ha_unknown(why, "piece", value, names);
}

static enum ha_status check_layout(const char *value, struct ha_why *why)
{
    static const char *const names[] = { "contiguous", "scattered", NULL };
    return !strcmp(value, names[0]) || !strcmp(value, names[1]) ? HA_OK : ha_unknown(why, "layout", value, names);
}

static bool is_method(const struct ha_link_point *p, const char *value) { return !strcmp(p->method->name, value); }
static bool is_piece(const struct ha_link_point *p, const char *value) { return p->piece_bytes == piece_of(value); }
static bool is_layout(const struct ha_link_point *p, const char *value)
{
    return !strcmp(layout_name(p->scattered), value);
}

static const struct key {
    const char *name;
    enum ha_status (*check)(const char *value, struct ha_why *why);
    bool (*is)(const struct ha_link_point *point, const char *value);
} keys[] = { { "method", check_method, is_method },
             { "piece", check_piece, is_piece },
             { "layout", check_layout, is_layout } };
enum { KEYS = sizeof keys / sizeof *keys };

static const struct key *find(const char *name)
{
    for (size_t i = 0; i < KEYS; i++)
        if (!strcmp(keys[i].name, name)) return &keys[i];
    return NULL;
}

enum ha_status ha_link_terms_check(const char *terms, bool filter, struct ha_why *why)
{
    const char *names[KEYS + 1] = { NULL };
    struct ha_term t;
    for (size_t i = 0; i < KEYS; i++) names[i] = keys[i].name;
    for (const char *rest = terms; ha_term_next(&rest, &t);) {
        const struct key *key = find(t.text);
        if (!t.value && filter) continue;
        if (!t.value) return ha_why(why, HA_ERROR, "link: '%s': not key=value", t.text);
        if (!key) return ha_unknown(why, "key", t.text, names);
        HA_TRY(key->check(t.value, why));
    }
    return HA_OK;
}

bool ha_link_terms_fit(const char *terms, const struct ha_link_point *p)
{
    char id[HA_LINK_ID_MAX];
    struct ha_term t;
    ha_link_id_print(p, id);
    for (const char *rest = terms; ha_term_next(&rest, &t);) {
        const struct key *key = t.value ? find(t.text) : NULL;
        if (t.value ? !key || key->is(p, t.value) == t.negated : !strstr(id, t.text)) return false;
    }
    return true;
}
