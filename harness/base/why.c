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
