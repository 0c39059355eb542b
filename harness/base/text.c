#include "harness/base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Bytes of the character at s: UTF-8 in its shortest form, no surrogate; 0: it is none. */
static size_t character(const unsigned char *s, uint32_t *code)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    const size_t n = s[0] < 0x80             ? 1
                     : (s[0] & 0xe0) == 0xc0 ? 2
                     : (s[0] & 0xf0) == 0xe0 ? 3
                     : (s[0] & 0xf8) == 0xf0 ? 4
                                             : 0;
    if (!n) return 0;
    *code = n == 1 ? s[0] : s[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0; /* the end of the text, too */
        *code = *code << 6 | (s[i] & 0x3fu);
    }
    return *code < least[n] || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000) ? 0 : n;
}

static bool prints(uint32_t code)
{
    return code >= 0x20 && !(code >= 0x7f && code < 0xa0) && code != 0xfffe && code != 0xffff;
}

char *ha_text_clean(char *text)
{
    for (size_t i = 0; text[i];) {
        uint32_t code = 0;
        size_t n = character((const unsigned char *)text + i, &code);
        if (!n || !prints(code)) memset(text + i, '?', n += !n);
        i += n;
    }
    return text;
}

/* quote: what stands for a ' */
static void print(FILE *out, const char *text, const char *quote)
{
    while (*text) {
        uint32_t code = 0;
        size_t n = character((const unsigned char *)text, &code);
        if (*text == '\'') fputs(quote, out);
        else if (n && prints(code)) fwrite(text, 1, n, out);
        else
            for (n += !n; n > 0; n--, text++) putc('?', out);
        text += n;
    }
}

void ha_text_print(FILE *out, const char *text) { print(out, text, "'"); }

void ha_text_quote(FILE *out, const char *text)
{
    putc('\'', out);
    print(out, text, "'\\''");
    putc('\'', out);
}

void ha_text_json(FILE *out, const char *text)
{
    putc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fprintf(out, "\\%c", *text);
        else if ((unsigned char)*text < ' ') fprintf(out, "\\u%04x", (unsigned)*text);
        else putc(*text, out);
    }
    putc('"', out);
}

void ha_text_line(const char *path, const char *key, char *out, size_t size)
{
    char line[8192];
    FILE *f = fopen(path, "re");
    *out = 0;
    while (f && !*out && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, key, strlen(key))) continue;
        const char *value = *key ? strchr(line, ':') : line;
        if (value) snprintf(out, size, "%s", value + (*key ? 1 + strspn(value + 1, " \t") : 0));
    }
    if (f) fclose(f);
}

void ha_text_xml(FILE *out, const char *s, const char *apostrophe)
{
    for (; *s; s++) switch (*s) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '"': fputs("&quot;", out); break;
        case '\'': fputs(apostrophe, out); break;
        default: putc(*s, out);
        }
}
