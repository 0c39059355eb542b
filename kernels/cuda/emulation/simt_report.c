#include "kernels/cuda/emulation/simt_crew.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint3 ha_crew_index(const struct ha_crew *crew, unsigned thread)
{
    const dim3 *dim = &crew->place->block_dim;
    return (uint3){ thread % dim->x, thread / dim->x % dim->y, thread / dim->x / dim->y };
}

/* names are static texts, mostly the same ones */
static bool same_text(const char *a, const char *b) { return a == b || !strcmp(a, b); }
bool ha_crew_same_site(const struct ha_emulated_site *a, const struct ha_emulated_site *b)
{
    return a->line == b->line && same_text(a->operation, b->operation) && same_text(a->file, b->file);
}

static void put_site(const struct ha_emulated_site *site, unsigned mask)
{
    fprintf(stderr, "%s", site->operation);
    if (mask) fprintf(stderr, " of lanes 0x%08x", mask);
    fprintf(stderr, ", %s:%d", site->file, site->line);
}

static bool same_wait(const struct ha_crew_wait *a, const struct ha_crew_wait *b)
{
    return a->mask == b->mask && ha_crew_same_site(a->site, b->site);
}

/* A line for each place where threads wait, named by the first of them. */
static void put_waiting(const struct ha_crew *crew)
{
    enum { LINES = 8 };
    const struct ha_crew_wait *seen[LINES];
    unsigned lines = 0;
    for (unsigned t = 0; t < crew->threads_count && lines < LINES; t++) {
        const struct ha_crew_wait *wait = crew->threads[t].wait;
        bool new = wait != NULL;
        for (unsigned i = 0; new &&i < lines; i++) new = !same_wait(wait, seen[i]);
        if (!new) continue;
        unsigned more = 0;
        for (unsigned u = t + 1; u < crew->threads_count; u++)
            more += crew->threads[u].wait && same_wait(wait, crew->threads[u].wait);
        const uint3 index = ha_crew_index(crew, t);
        fprintf(stderr, "  thread (%u, %u, %u)", index.x, index.y, index.z);
        if (more) fprintf(stderr, " and %u more", more);
        fprintf(stderr, more ? " wait at " : " waits at ");
        put_site(wait->site, wait->mask);
        fputc('\n', stderr);
        seen[lines++] = wait;
    }
}

void ha_crew_stop(const struct ha_crew *crew, const struct ha_emulated_site *site, const char *format, ...)
{
    const uint3 block = crew->place->block, thread = ha_crew_index(crew, crew->current);
    fprintf(stderr, "emulated CUDA: kernel %.*s, block (%u, %u, %u), thread (%u, %u, %u): ",
            ha_emulated_name_length(crew->kernel.name), crew->kernel.name, block.x, block.y, block.z, thread.x,
            thread.y, thread.z);
    if (site) {
        put_site(site, 0);
        fprintf(stderr, ": ");
    }
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    put_waiting(crew);
    abort();
}
