#include "harness/report/progress.h"

#include "harness/base/clock.h"
#include "harness/base/text.h"

#include <unistd.h>

enum { ID_SHOWN = 60 };
#define REDRAW_NS UINT64_C(100000000)
#define LINE_NS   UINT64_C(10000000000)

void ha_progress_start_on(struct ha_progress *p, FILE *out, bool terminal, size_t cases, uint64_t (*now_ns)(void))
{
    *p = (struct ha_progress){ .on = true, .terminal = terminal, .out = out, .cases = cases, .now_ns = now_ns };
    p->begin_ns = p->drawn_ns = now_ns();
}

void ha_progress_start(struct ha_progress *p, bool on, size_t cases)
{
    ha_progress_start_on(p, stderr, isatty(STDERR_FILENO), cases, ha_now_ns);
    p->on = on;
}

/* The id as far as it is shown, whole characters. */
static void put_id(FILE *out, const char *id, size_t most)
{
    char text[256];
    size_t n = 0;
    while (n < most && n + 1 < sizeof text && id[n]) n++;
    while (n && ((unsigned char)id[n] & 0xc0) == 0x80) n--; /* not within a character */
    snprintf(text, sizeof text, "%.*s", (int)n, id);
    ha_text_print(out, text);
}

void ha_progress_case(struct ha_progress *p, const char *id)
{
    if (!p->on) return;
    const uint64_t now = p->now_ns(), pause = p->terminal ? REDRAW_NS : LINE_NS;
    /* the first case is shown at once on a terminal alone: a log of a short run stays empty */
    if ((p->done || !p->terminal) && now - p->drawn_ns < pause) return;
    p->drawn_ns = now;
    const size_t of = p->cases > p->done ? p->cases : p->done + 1;
    fprintf(p->out, "%s%zu of %zu: ", p->terminal ? "\r\033[K" : "", p->done + 1, of);
    put_id(p->out, id, p->terminal ? ID_SHOWN : SIZE_MAX);
    if (p->done)
        fprintf(p->out, ", about %.0f s left",
                (double)(now - p->begin_ns) / 1e9 / (double)p->done * (double)(of - p->done));
    if (!p->terminal) putc('\n', p->out);
    fflush(p->out);
}

void ha_progress_done(struct ha_progress *p)
{
    p->done++;
    ha_progress_end(p);
}

void ha_progress_end(struct ha_progress *p)
{
    if (!p->on) return;
    if (p->terminal) fputs("\r\033[K", p->out);
    fflush(p->out);
}
