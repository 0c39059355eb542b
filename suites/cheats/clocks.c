/* Clocks that are wrong, and spans. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "suites/cheats/plugin.h"

#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* ---- timer ------------------------------------------------------------------------------------------------------- */

static int (*real_clock)(clockid_t id, struct timespec *ts);
static uint64_t began_ns, stood_ns;

static uint64_t real_ns(void)
{
    struct timespec ts;
    real_clock(CLOCK_MONOTONIC_RAW, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}
/* In a pass it is slow by a fifth; between passes faster by a quarter, until it is right again. */
static struct {
    pthread_mutex_t lock;
    uint64_t last_ns, behind_ns, said_ns;
    bool in_pass;
} uneven = { .lock = PTHREAD_MUTEX_INITIALIZER };
static uint64_t uneven_ns(uint64_t now, bool in_pass)
{
    pthread_mutex_lock(&uneven.lock);
    const uint64_t since = uneven.last_ns && now > uneven.last_ns ? now - uneven.last_ns : 0;
    if (uneven.in_pass) uneven.behind_ns += since / 5;
    else uneven.behind_ns -= since / 4 < uneven.behind_ns ? since / 4 : uneven.behind_ns;
    uneven.last_ns = now;
    uneven.in_pass = in_pass;
    if (now - uneven.behind_ns > uneven.said_ns) uneven.said_ns = now - uneven.behind_ns;
    const uint64_t said = uneven.said_ns;
    pthread_mutex_unlock(&uneven.lock);
    return said;
}

static int slow_clock(clockid_t id, struct timespec *ts)
{
    const int result = real_clock(id, ts);
    if (id != CLOCK_MONOTONIC && id != CLOCK_MONOTONIC_RAW) return result;
    const uint64_t now = (uint64_t)ts->tv_sec * 1000000000 + (uint64_t)ts->tv_nsec,
                   said = IS(timer_half)      ? began_ns + (now - began_ns) / 2
                          : IS(timer_between) ? uneven_ns(now, uneven.in_pass)
                                              : now - __atomic_load_n(&stood_ns, __ATOMIC_RELAXED);
    ts->tv_sec = (time_t)(said / 1000000000);
    ts->tv_nsec = (long)(said % 1000000000);
    return result;
}

/* A table of imports has our clock in place of the system's. */
static void patch(ElfW(Addr) base, const ElfW(Dyn) * dynamic)
{
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const ElfW(Rela) * rela[2] = { NULL, NULL };
    size_t bytes[2] = { 0, 0 };
    for (const ElfW(Dyn) *d = dynamic; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB) symbols = (const void *)d->d_un.d_ptr;
        if (d->d_tag == DT_STRTAB) strings = (const void *)d->d_un.d_ptr;
        if (d->d_tag == DT_JMPREL) rela[0] = (const void *)d->d_un.d_ptr;
        if (d->d_tag == DT_RELA) rela[1] = (const void *)d->d_un.d_ptr;
        if (d->d_tag == DT_PLTRELSZ) bytes[0] = d->d_un.d_val;
        if (d->d_tag == DT_RELASZ) bytes[1] = d->d_un.d_val;
    }
    for (int k = 0; k < 2 && symbols && strings; k++)
        for (size_t i = 0; rela[k] && i < bytes[k] / sizeof **rela; i++) {
            const size_t symbol = ELF64_R_SYM(rela[k][i].r_info);
            if (!symbol || strcmp(strings + symbols[symbol].st_name, "clock_gettime") != 0) continue;
            void **const entry = (void **)(base + rela[k][i].r_offset);
            char *const page = (char *)((uintptr_t)entry & ~(uintptr_t)4095);
            if (mprotect(page, 8192, PROT_READ | PROT_WRITE) != 0) continue;
            *(int (**)(clockid_t, struct timespec *))(void *)entry = slow_clock;
        }
}
static int patch_program(struct dl_phdr_info *info, size_t size, void *arg)
{
    if (*info->dlpi_name && !strstr(info->dlpi_name, "sound.so")) return 0; /* the program, and what stamps spans */
    for (size_t i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            patch(info->dlpi_addr, (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr));
    return 0;
}
static void change_clock(void)
{
    real_clock = clock_gettime;
    began_ns = real_ns();
    dl_iterate_phdr(patch_program, NULL);
}
/* Passes begin with attention and end when their stream has been synchronised. */
static enum ha_status uneven_attend(struct ha_stream *stream, const struct ha_device_attend *a)
{
    uneven_ns(real_ns(), true);
    return ha_sound->attend(stream, a);
}
static enum ha_status uneven_sync(struct ha_stream *stream)
{
    const enum ha_status status = ha_sound->stream_sync(stream);
    uneven_ns(real_ns(), false);
    return status;
}
static enum ha_status standing_sync(struct ha_stream *stream)
{
    const uint64_t before = real_ns();
    const enum ha_status status = ha_sound->stream_sync(stream);
    __atomic_fetch_add(&stood_ns, (real_ns() - before) * 3 / 4, __ATOMIC_RELAXED);
    return status;
}

/* ---- spans ------------------------------------------------------------------------------------------------------- */

static const struct ha_span_sink *sink;
static pthread_mutex_t span_lock = PTHREAD_MUTEX_INITIALIZER;

/* Told when the trace ends. */
static struct {
    struct ha_span *span;
    size_t count, room;
} untold;
static void keep_span(const struct ha_span *span)
{
    if (untold.count == untold.room) {
        untold.room = untold.room ? 2 * untold.room : 1024;
        untold.span = realloc(untold.span, untold.room * sizeof *untold.span);
        if (!untold.span) abort();
    }
    untold.span[untold.count++] = *span;
}
static void tell(void)
{
    for (size_t i = 0; i < untold.count && sink; i++) sink->span(sink->self, &untold.span[i]);
    untold.count = 0;
}

static void say_span(void *self, const struct ha_span *span)
{
    static uint64_t end_ns, seen, last_ns;
    static struct ha_span held;
    struct ha_span s = *span;
    const bool kernel = s.kind == HA_SPAN_KERNEL, link = s.kind == HA_SPAN_H2D || s.kind == HA_SPAN_D2H;
    const uint64_t length = s.end_ns - s.begin_ns;
    bool says = true;
    pthread_mutex_lock(&span_lock);
    if (kernel && IS(spans_quarter)) s.end_ns = s.begin_ns + length / 4;
    if (kernel && IS(spans_packed)) {
        s.begin_ns = end_ns > s.enqueue_ns ? end_ns : s.enqueue_ns;
        s.end_ns = end_ns = s.begin_ns + length / 4;
    }
    if (kernel && IS(spans_half)) says = seen++ % 2;
    if (kernel && IS(spans_one)) {
        says = s.begin_ns > last_ns + 1000000;
        if (says) last_ns = s.begin_ns;
    }
    if (kernel && IS(spans_wait)) s.kind = HA_SPAN_WAIT;
    if (s.kind == HA_SPAN_WAIT && IS(spans_poll)) s.kind = HA_SPAN_KERNEL;
    if (IS(spans_enqueued) && s.enqueue_ns) s.enqueue_ns -= 200000;
    if (kernel && IS(spans_invented)) {
        struct ha_span more = s;
        more.name = "prefetch";
        more.begin_ns = end_ns;
        more.end_ns = s.begin_ns;
        if (end_ns && more.begin_ns + 1000000 > more.end_ns && more.end_ns > more.begin_ns)
            sink->span(sink->self, &more);
        end_ns = s.end_ns;
    }
    if (s.kind == HA_SPAN_D2H && IS(link_joined)) {
        says = seen++ % 2;
        if (says) s.bytes += held.bytes;
        held = s;
    }
    if (kernel && IS(spans_outside)) s.begin_ns -= 2 * length;
    if (kernel && IS(spans_long)) {
        const struct ha_span before = held;
        says = before.end_ns != 0;
        held = s;
        s = before;
        if (says) s.end_ns = held.begin_ns;
    }
    if (IS(coarse)) {
        s.begin_ns -= s.begin_ns % 20000;
        s.end_ns -= s.end_ns % 20000;
    }
    if (IS(late)) {
        keep_span(&s);
        says = false;
    }
    if (link && IS(link_third)) s.end_ns = s.begin_ns + length / 3;
    if (link && IS(link_late)) s.begin_ns += length / 3;
    if (link && IS(link_bytes)) s.bytes *= 3;
    if (link && IS(link_half)) says = seen++ % 2;
    pthread_mutex_unlock(&span_lock);
    if (says) sink->span(sink->self, &s);
}
static void trace(struct ha_device *dev, const struct ha_span_sink *to)
{
    static const struct ha_span_sink mine = { NULL, say_span };
    if (to) sink = to;
    ha_cheat_traced = to;
    ha_sound->trace(dev, to ? &mine : NULL);
    if (!to) tell();
}

/* ---- held up ----------------------------------------------------------------------------------------------------- */

static void nap(void *arg)
{
    const struct timespec ts = { 0, (long)(uintptr_t)arg };
    nanosleep(&ts, NULL);
}
static enum ha_status attend_held_up(struct ha_stream *stream, const struct ha_device_attend *a)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t ns = (state >> 33) % 1000000;
    if (!(state >> 60 & 7) && ha_sound->host_fn(stream, nap, (void *)(uintptr_t)ns) != HA_OK) return HA_ERROR;
    if ((state >> 60 & 7) == 1) nap((void *)(uintptr_t)ns);
    return ha_sound->attend(stream, a);
}

void ha_cheat_clocks(struct ha_device_api *api)
{
    switch (ha_cheat) {
    case CHEAT_timer_half: change_clock(); return;
    case CHEAT_timer_between:
        change_clock();
        api->attend = uneven_attend;
        api->stream_sync = uneven_sync;
        return;
    case CHEAT_timer_steps:
        change_clock();
        api->stream_sync = standing_sync;
        return;
    case CHEAT_none: return;
    case CHEAT_jitter: api->attend = attend_held_up; return;
    default: api->trace = trace; return;
    }
}
