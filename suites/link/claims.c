#include "suites/link/suite.h"

#include <stdio.h>
#include <string.h>

enum { SMALL = 4 << 10, PAGE = 128 << 10, VECTOR = 256 };

static enum ha_link_verdict not_applicable(char figures[512], const char *reason)
{
    snprintf(figures, 512, "%s", reason);
    return HA_LINK_NOT_APPLICABLE;
}

static bool within_twofold(double x, double of) { return x >= of / 2 && x <= of * 2; }

static const struct ha_link_figure *find(const struct ha_link_figures *r, const char *method, size_t piece_bytes)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->figure[i].scattered && r->figure[i].piece_bytes == piece_bytes
            && !strcmp(r->figure[i].method->name, method))
            return &r->figure[i];
    return NULL;
}

/* The fastest way up of that piece size, scattered; or NULL. */
static const struct ha_link_figure *best(const struct ha_link_figures *r, size_t piece_bytes)
{
    const struct ha_link_figure *most = NULL;
    for (size_t i = 0; i < r->count; i++) {
        const struct ha_link_figure *x = &r->figure[i];
        if (x->method->dir == HA_H2D && x->scattered && x->piece_bytes == piece_bytes
            && x->GBps > (most ? most->GBps : 0))
            most = x;
    }
    return most;
}

/* ---- small pieces are slow ------------------------------------------------------------------------- */

static enum ha_link_verdict small_pieces(const struct ha_link_figures *r, char figures[512])
{
    static const double paper_small = 0.8, paper_page = 15;
    const struct ha_link_figure *small = find(r, "pinned", SMALL), *page = find(r, "pinned", PAGE);
    if (!r->link) return not_applicable(figures, "there is no PCIe link here: the device's memory is this host's");
    const struct ha_link_figure *fast = best(r, SMALL);
    if (!small || !page || !fast)
        return not_applicable(figures, "pinned copies of scattered 4 KB and 128 KB pieces were not both measured");
    snprintf(figures, 512,
             "a copy for each piece: %.3g GB/s in 4 KB pieces (%.0f%% of the ceiling), %.3g GB/s in 128 KB pieces "
             "(%.0f%%); the fastest way in 4 KB pieces here is %s with %.3g GB/s (%.0f%%)",
             small->GBps, 100 * small->share, page->GBps, 100 * page->share, fast->method->name, fast->GBps,
             100 * fast->share);
    if (within_twofold(small->GBps, paper_small) && within_twofold(page->GBps, paper_page)) return HA_LINK_REPRODUCED;
    return small->GBps / page->GBps <= 2 * paper_small / paper_page ? HA_LINK_IN_SHAPE : HA_LINK_REFUTED;
}

/* ---- a few threads are enough -------------------------------------------------------------------------- */

static enum ha_link_verdict four_threads(const struct ha_link_figures *r, char figures[512])
{
    static const double saturated = 0.9;
    const struct ha_link_figure *one = find(r, "stores_1", VECTOR), *four = find(r, "stores_4", VECTOR),
                                *all = find(r, "stores_all", VECTOR), *gather = find(r, "gather_4", VECTOR);
    if (!r->link) return not_applicable(figures, "there is no PCIe link here: the device's memory is this host's");
    if (r->cores < 4) return not_applicable(figures, "this process has fewer than 4 cores");
    if (!four) {
        not_applicable(figures, "CPU stores of scattered 256-byte vectors by 4 threads were not measured");
        if (gather)
            snprintf(figures, 512,
                     "no CPU stores into device memory here; gathering 256-byte vectors with 4 threads and then "
                     "copying gives %.3g GB/s (%.0f%% of the ceiling)",
                     gather->GBps, 100 * gather->share);
        return HA_LINK_NOT_APPLICABLE;
    }
    int used = snprintf(
        figures, 512,
        "CPU stores of scattered 256-byte vectors: %.3g GB/s with 4 threads (%.0f%% of the link's ceiling)", four->GBps,
        100 * four->share);
    if (one) used += snprintf(figures + used, 512 - (size_t)used, ", %.3g with 1", one->GBps);
    if (all) used += snprintf(figures + used, 512 - (size_t)used, ", %.3g with all %zu", all->GBps, r->cores);
    else used += snprintf(figures + used, 512 - (size_t)used, ", not measured with more");
    if (gather)
        snprintf(figures + used, 512 - (size_t)used, "; gathering with 4 threads and then copying: %.3g", gather->GBps);
    if (four->share >= saturated) return HA_LINK_REPRODUCED;
    if (!all) return HA_LINK_NOT_APPLICABLE;
    return four->GBps >= saturated * all->GBps ? HA_LINK_IN_SHAPE : HA_LINK_REFUTED;
}

const struct ha_link_claim ha_link_claims[] = {
    { "0.8 GB/s in 4 KB pieces, 15 GB/s in 128 KB pieces", "ScoutAttention, section 2.3 and figure 2: PCIe 4.0 x16",
      "reproduced: both within a factor of two; in shape: 4 KB pieces at most 0.107 times as fast as 128 KB pieces, "
      "twice the paper's ratio",
      small_pieces },
    { "4 threads saturate the link",
      "CLO, sections 4.3 and 6.5, figure 13: PCIe 4.0, stores through GDRCopy, 21.2 GB/s",
      "reproduced: at least 0.9 of the link's ceiling; in shape: less, and at least 0.9 of what all threads reach",
      four_threads },
};
const size_t ha_link_claims_count = sizeof ha_link_claims / sizeof *ha_link_claims;

const char *ha_link_verdict_name(enum ha_link_verdict verdict)
{
    static const char *const name[] = { [HA_LINK_REPRODUCED] = "reproduced",
                                        [HA_LINK_IN_SHAPE] = "in shape",
                                        [HA_LINK_REFUTED] = "refuted",
                                        [HA_LINK_NOT_APPLICABLE] = "not applicable" };
    return name[verdict];
}
