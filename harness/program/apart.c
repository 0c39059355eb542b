#define _GNU_SOURCE /* fopencookie */
#include "harness/program/apart.h"

#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/engine/child.h"

#include <string.h>

struct apart {
    enum ha_status (*work)(void *arg, FILE *out, struct ha_why *why);
    void *arg;
};

static ssize_t say(void *unused, const char *text, size_t bytes)
{
    ha_child_say(0, text, bytes);
    return (ssize_t)bytes;
}

static enum ha_status serve(void *self, void *unused, struct ha_why *why)
{
    const struct apart *a = self;
    FILE *out = fopencookie(NULL, "w", (cookie_io_functions_t){ .write = say });
    if (!out) return ha_why(why, HA_ERROR, "out of memory");
    setvbuf(out, NULL, _IOLBF, BUFSIZ);
    const enum ha_status status = a->work(a->arg, out, why);
    fclose(out);
    return status;
}

static void hear(void *unused, unsigned kind, const void *bytes, size_t size)
{
    char line[BUFSIZ + 1];
    for (const char *at = bytes, *end = at + size; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop ? stop : end) - at);
        if (n >= sizeof line) n = sizeof line - 1;
        memcpy(line, at, n);
        line[n] = 0;
        ha_text_print(stdout, line);
        at += n;
        if (at == stop) at += putchar('\n') == '\n';
    }
    fflush(stdout);
}

enum ha_status ha_apart(enum ha_status (*work)(void *arg, FILE *out, struct ha_why *why), void *arg, uint64_t limit_ns,
                        struct ha_why *why)
{
    struct apart a = { work, arg };
    const struct ha_child_work how = { .serve = serve, .self = &a, .limit_ns = limit_ns, .hear = hear, .ours = true };
    struct ha_child *child;
    HA_TRY(ha_child_create(&child, &how, HA_ROOM_PAGE, why));
    const enum ha_status status = ha_child_call(child, NULL, NULL, NULL, 0, why);
    ha_child_destroy(child);
    return status;
}

struct filled {
    enum ha_status (*work)(void *arg, void *room, struct ha_why *why);
    void *arg;
};

static enum ha_status fill(void *self, void *room, struct ha_why *why)
{
    const struct filled *f = self;
    return f->work(f->arg, room, why);
}

enum ha_status ha_apart_fill(enum ha_status (*work)(void *arg, void *room, struct ha_why *why), void *arg, void *out,
                             size_t bytes, uint64_t limit_ns, struct ha_why *why)
{
    struct filled f = { work, arg };
    const struct ha_child_work how = { .serve = fill, .self = &f, .limit_ns = limit_ns, .ours = true };
    struct ha_child *child;
    HA_TRY(ha_child_create(&child, &how, (bytes + HA_ROOM_PAGE - 1) / HA_ROOM_PAGE * HA_ROOM_PAGE, why));
    void *room = ha_child_room(child).base;
    const enum ha_status status = ha_child_call(child, room, NULL, NULL, 0, why);
    memcpy(out, room, bytes);
    ha_child_destroy(child);
    return status;
}
