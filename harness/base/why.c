#include "harness/base/why.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum ha_status ha_why(struct ha_why *why, enum ha_status status, const char *format, ...)
{
    if (!why) return status;
    /* not in place: an argument may be why->text, to put words before a reason */
    struct ha_why next;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(next.text, sizeof next.text, format, args);
    va_end(args);
    if (length < 0) snprintf(next.text, sizeof next.text, "unprintable reason: %s", format);
    if (length >= (int)sizeof next.text) memcpy(next.text + sizeof next.text - 4, "...", 4);
    for (char *c = next.text; *c; c++)
        if (*c == '\n' || *c == '\r') *c = ' ';
    *why = next;
    return status;
}

enum { WORD_MAX = 63 };

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Edits (insert, delete, replace, swap neighbours) from a to b, case ignored; b at most WORD_MAX long. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t rows[3][WORD_MAX + 1], *before = rows[0], *last = rows[1], *row = rows[2];
    size_t columns = strlen(b);
    for (size_t j = 0; j <= columns; j++) last[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        row[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            row[j] = least(last[j - 1] + (x != y), 1 + least(last[j], row[j - 1]));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) && y == tolower((unsigned char)a[i - 2]))
                row[j] = least(row[j], before[j - 2] + 1);
        }
        size_t *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[columns];
}

const char *ha_nearest(const char *word, const char *const *words)
{
    size_t length = strlen(word);
    if (length > WORD_MAX) return NULL;
    /* near: at most a third of the letters wrong, or one, but never all */
    size_t best = least(length, 1 + (length < 3 ? 1 : length / 3));
    const char *nearest = NULL;
    for (; *words; words++) {
        if (strlen(*words) > WORD_MAX) continue;
        size_t distance = edit_distance(word, *words);
        if (distance < best) {
            best = distance;
            nearest = *words;
        }
    }
    return nearest;
}

enum ha_status ha_unknown(struct ha_why *why, const char *kind, const char *word, const char *const *words)
{
    if (!why) return HA_ERROR;
    const char *near = ha_nearest(word, words);
    if (near) return ha_why(why, HA_ERROR, "unknown %s '%.80s'; did you mean '%s'?", kind, word, near);

    char all[320] = "";
    size_t used = 0;
    for (size_t i = 0; words[i] && used + strlen(words[i]) + 2 < sizeof all; i++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? " " : "", words[i]);
    return ha_why(why, HA_ERROR, "unknown %s '%.80s'; it is one of: %s", kind, word, all);
}

enum ha_status ha_word_find(const char *kind, const char *word, const char *const *words, size_t *index,
                            struct ha_why *why)
{
    for (*index = 0; words[*index]; ++*index)
        if (!strcmp(words[*index], word)) return HA_OK;
    return ha_unknown(why, kind, word, words);
}

const char *ha_dtype_word(size_t dtype) { return dtype < HA_DTYPE_COUNT ? ha_dtype_name((enum ha_dtype)dtype) : NULL; }

enum ha_status ha_why_prefix(struct ha_why *why, enum ha_status status, const char *format, ...)
{
    char prefix[sizeof why->text];
    va_list args;
    if (!why) return status;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    const struct ha_why old = *why;
    return ha_why(why, status, "%s: %s", prefix, old.text);
}

enum ha_status ha_duration_parse(const char *text, uint64_t *out_ns, struct ha_why *why)
{
    static const struct {
        const char *unit;
        uint64_t ns;
    } units[] = {
        { "ms", 1000000u },
        { "s", 1000000000u },
        { "m", 60u * 1000000000ull },
        { "h", 3600u * 1000000000ull },
    };
    uint64_t x = 0;
    const char *p = text;
    bool ok = true;
    for (; *p >= '0' && *p <= '9'; p++)
        ok = ok && !__builtin_mul_overflow(x, 10u, &x) && !__builtin_add_overflow(x, (uint64_t)(*p - '0'), &x);
    if (ok && p != text && x > 0)
        for (size_t i = 0; i < sizeof units / sizeof *units; i++)
            if (!strcmp(p, units[i].unit) && !__builtin_mul_overflow(x, units[i].ns, out_ns)
                && *out_ns <= INT64_MAX) /* so that a moment and it do not wrap */
                return HA_OK;
    return ha_why(why, HA_ERROR, "'%.80s' is not a time such as 90s, 10m or 2h", text);
}

/* Digits, added to *x as to a number that they go on with; how many there are. */
static size_t read_digits(const char **p, uint64_t *x, bool *ok)
{
    const char *const begin = *p;
    for (; **p >= '0' && **p <= '9'; (*p)++)
        *ok = *ok && !__builtin_mul_overflow(*x, 10u, x) && !__builtin_add_overflow(*x, (uint64_t)(**p - '0'), x);
    return (size_t)(*p - begin);
}

enum ha_status ha_bytes_parse(const char *text, uint64_t *out, struct ha_why *why)
{
    static const struct {
        const char *unit;
        uint64_t bytes;
    } units[] = {
        { "B", 1 },
        { "kB", 1000 },
        { "MB", 1000000 },
        { "GB", 1000000000 },
        { "TB", 1000000000000 },
        { "KiB", UINT64_C(1) << 10 },
        { "MiB", UINT64_C(1) << 20 },
        { "GiB", UINT64_C(1) << 30 },
        { "TiB", UINT64_C(1) << 40 },
    };
    uint64_t whole = 0, part = 0, tenths = 1, bytes;
    const char *p = text;
    bool ok = true;
    ok = read_digits(&p, &whole, &ok) > 0 && ok;
    if (*p == '.') {
        p++;
        const size_t decimals = read_digits(&p, &part, &ok);
        for (size_t i = 0; i < decimals; i++) ok = ok && !__builtin_mul_overflow(tenths, 10u, &tenths);
        ok = ok && decimals > 0;
    }
    for (size_t i = 0; ok && i < sizeof units / sizeof *units; i++)
        if (!strcmp(p, units[i].unit) && !__builtin_mul_overflow(whole, units[i].bytes, &bytes)
            && !__builtin_mul_overflow(part, units[i].bytes, &part)
            && !__builtin_add_overflow(bytes, part / tenths, out) && *out > 0)
            return HA_OK;
    return ha_why(why, HA_ERROR, "'%.80s' is not a size such as 80GB (80 * 10^9 bytes), 80GiB (80 * 2^30) or 16.1GB",
                  text);
}
