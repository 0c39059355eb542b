#include "harness/base/words.h"

#include "harness/base/why.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum ha_status ha_unknown(struct ha_why *why, const char *kind, const char *word, const char *const *words)
{
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
