#include "harness/base/placement.h"
#include "harness/base/why.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- huge pages: /proc/self/smaps ---------------------------------------------------------------- */

/* What a line of a mapping counts for. */
static const struct {
    const char *name;
    bool huge, present;
} count[] = {
    { "Rss:", false, true },
    { "AnonHugePages:", true, false }, /* part of Rss, as the next two */
    { "ShmemPmdMapped:", true, false },
    { "FilePmdMapped:", true, false },
    { "Shared_Hugetlb:", true, true },
    { "Private_Hugetlb:", true, true },
};

static double huge_share(FILE *smaps, uintptr_t first, uintptr_t end)
{
    char line[512];
    bool ours = false;
    double huge_KiB = 0, present_KiB = 0;
    while (fgets(line, sizeof line, smaps)) {
        uintptr_t from, to;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) ours = from < end && to > first;
        for (size_t i = 0; ours && i < sizeof count / sizeof *count; i++) {
            const size_t length = strlen(count[i].name);
            if (strncmp(line, count[i].name, length)) continue;
            const double KiB = strtod(line + length, NULL);
            huge_KiB += count[i].huge ? KiB : 0;
            present_KiB += count[i].present ? KiB : 0;
        }
    }
    return present_KiB > 0 ? huge_KiB / present_KiB : (double)NAN;
}

static void read_huge(struct ha_placement *p, uintptr_t first, uintptr_t end)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    p->huge = (double)NAN;
    if (!f) {
        ha_why(&p->no_huge, HA_WAIVED, "/proc/self/smaps: %s", strerror(errno));
        return;
    }
    p->huge = huge_share(f, first, end);
    fclose(f);
    if (isnan(p->huge)) ha_why(&p->no_huge, HA_WAIVED, "/proc/self/smaps: nothing of this range is in memory");
}

/* ---- NUMA nodes: move_pages, which only tells where they are when it is not told where to ---------- */

enum { PAGES_MOST = 65536, BATCH = 512 };

static bool read_batch(struct ha_placement *p, uintptr_t first, size_t step, size_t pages, double share)
{
    void *page[BATCH];
    int node[BATCH];
    for (size_t i = 0; i < pages; i++) {
        const uintptr_t at = first + i * step;
        memcpy(&page[i], &at, sizeof at);
    }
    if (syscall(SYS_move_pages, 0, pages, page, NULL, node, 0) < 0) return false;
    for (size_t i = 0; i < pages; i++)
        *(node[i] >= 0 && node[i] < HA_PLACEMENT_NODES ? &p->node[node[i]] : &p->absent) += share;
    return true;
}

static void read_nodes(struct ha_placement *p, uintptr_t first, uintptr_t end)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    first -= first % page;
    const size_t all = (end - first + page - 1) / page, apart = (all + PAGES_MOST - 1) / PAGES_MOST,
                 pages = (all + apart - 1) / apart;
    bool ok = true;
    for (size_t i = 0; i < pages && ok; i += BATCH)
        ok = read_batch(p, first + i * apart * page, apart * page, pages - i < BATCH ? pages - i : BATCH,
                        1 / (double)pages);
    if (ok) return;
    ha_why(&p->no_nodes, HA_WAIVED, "move_pages: %s", strerror(errno));
    p->absent = (double)NAN;
    for (size_t i = 0; i < HA_PLACEMENT_NODES; i++) p->node[i] = (double)NAN;
}

void ha_placement_read(struct ha_placement *p, const void *memory, size_t bytes)
{
    const uintptr_t first = (uintptr_t)memory;
    *p = (struct ha_placement){ 0 };
    read_huge(p, first, first + bytes);
    read_nodes(p, first, first + bytes);
}
