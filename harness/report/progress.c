#include "harness/report/progress.h"

#include "harness/base/clock.h"

#include <stdio.h>

enum { ID_SHOWN = 60 };
#define REDRAW_NS UINT64_C(100000000)

void ha_progress_start(struct ha_progress *p, bool on, size_t cases)
{
    *p = (struct ha_progress){ .on = on, .cases = cases, .begin_ns = ha_now_ns() };
}

void ha_progress_case(struct ha_progress *p, const char *id)
{
    uint64_t now = ha_now_ns();

    if (!p->on || (p->done && now - p->drawn_ns < REDRAW_NS)) return;
    p->drawn_ns = now;
    fprintf(stderr, "\r\033[K%zu of %zu", p->done + 1, p->cases > p->done ? p->cases : p->done + 1);
    if (p->done && p->cases > p->done)
        fprintf(stderr, ", about %.0f s left",
                (double)(now - p->begin_ns) / 1e9 / (double)p->done * (double)(p->cases - p->done));
    fprintf(stderr, ": %.*s", ID_SHOWN, id);
    fflush(stderr);
}

void ha_progress_done(struct ha_progress *p)
{
    p->done++;
    if (p->on) fputs("\r\033[K", stderr); /* what is logged next begins on a clean line */
}

void ha_progress_end(struct ha_progress *p)
{
    if (p->on) fputs("\r\033[K", stderr);
    fflush(stderr);
}
