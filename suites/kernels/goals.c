#include "harness/base/registry.h"
#include "suites/kernels/suite.h"

#include <string.h>

enum { CTX_LEAST = 32768, Q_HEADS = 32, KV_HEADS = 8, DIM = 128, BUDGET = 5 };
enum { AVX512 = HA_CPU_AVX512 | HA_CPU_AVX512_BF16 | HA_CPU_AMX, BF16 = HA_CPU_AVX512_BF16 | HA_CPU_AMX };
#define FIGURE(member) offsetof(struct ha_cpu_row, member)

/* Decoding, one query token over packed keys with 32/8 heads of 128: the share of the read ceiling at least, with one
 * thread or where the threads' ceilings add up (harder), and where they do not (easier). Then a step over 5% of the
 * keys in blocks: figures at most. */
static const struct goal {
    const char *what;
    size_t figure; /* a struct ha_estimate of the row */
    double harder, easier;
    enum ha_dtype dtype;
    unsigned cpu_bits; /* of decoding: the table that ran needs one of them; 0: a sparse step */
    size_t query;
    const char *absent;
} goals[] = {
    { "decode f32", FIGURE(ratio), 0.93, 0.97, HA_F32, AVX512, 0, "not measured here with AVX-512" },
    { "decode bf16, query=kv", FIGURE(ratio), 0.88, 0.96, HA_BF16, BF16, 0, "not measured here with AVX-512 BF16" },
    { "decode bf16, query=f32", FIGURE(ratio), 0.78, 0.95, HA_BF16, BF16, 1, "not measured here with AVX-512 BF16" },
    { "decode f16", FIGURE(ratio), 0.70, 0.95, HA_F16, AVX512, 0, "not measured here with AVX-512" },
    { "decode f32", FIGURE(ratio), 0.93, 0.93, HA_F32, HA_CPU_AVX2, 0, "not measured here with AVX2 alone" },
    { "decode f16", FIGURE(ratio), 0.65, 0.65, HA_F16, HA_CPU_AVX2, 0, "not measured here with AVX2 alone" },
    { "sparse step over dense step", FIGURE(whole_over_dense), 0.10, 0.10, HA_F16, 0, 0,
      "f16, ctx 32768, budget 5% was not measured here" },
    { "top-k over sparse step", FIGURE(choice_share), 0.06, 0.06, HA_F16, 0, 0,
      "f16, ctx 32768, budget 5% was not measured here" },
};
enum { GOALS = sizeof goals / sizeof *goals };

/* what the table that ran needs of the CPU */
static unsigned bit_of(const char *isa)
{
    for (size_t i = 0; i < ha_kernels_count; i++)
        if (!strcmp(ha_kernels_all[i]->name, isa)) return ha_kernels_all[i]->cpu_bit;
    return 0;
}

/* was it measured for this goal? */
static bool fits(const struct goal *g, const struct ha_entry *e)
{
    const struct ha_cpu_point *p = e->point;
    const struct ha_cpu_row *r = e->row;
    if (!r || r->head.verdict != HA_PASS || !(r->head.samples > 0) || p->ctx < CTX_LEAST || p->dtype != g->dtype)
        return false;
    if (!g->cpu_bits) return p->kernel == HA_KERNEL_SPARSE && p->budget == BUDGET;
    return p->kernel == HA_KERNEL_ATTEND && p->layout == HA_CPU_PACKED && p->batch == 1 && p->q_heads == Q_HEADS
           && p->kv_heads == KV_HEADS && p->head_dim == DIM && p->query == g->query && (bit_of(r->isa) & g->cpu_bits);
}

static void print_one(FILE *out, const struct goal *g, const struct ha_entry *e)
{
    const struct ha_cpu_point *p = e->point;
    const struct ha_cpu_row *r = e->row;
    const char *state = ha_cpu_ceiling_state(r);
    const double goal = strcmp(state, "easier") ? g->harder : g->easier;
    const bool decodes = g->cpu_bits;
    struct ha_estimate x;
    memcpy(&x, (const char *)r + g->figure, sizeof x);
    const bool met = decodes ? x.median >= goal : x.median <= goal;
    fprintf(out, "  %-14s %.2f  measured %.3f (%.3f-%.3f)  %s, %s, ctx %zu", met ? "met" : "not met", goal, x.median,
            x.lo, x.hi, g->what, r->isa, p->ctx);
    if (!decodes) fprintf(out, ", block %zu", p->block);
    fprintf(out, ", %.0f thread%s", r->threads, r->threads > 1 ? "s" : "");
    if (decodes && r->threads > 1) fprintf(out, ", %s", state);
    putc('\n', out);
}

bool ha_cpu_conclude(FILE *out, const struct ha_results *all, struct ha_why *why)
{
    size_t count[GOALS] = { 0 }, any = 0;
    (void)why;
    for (size_t g = 0; g < GOALS; g++)
        for (size_t i = 0; i < all->entries; i++) count[g] += fits(&goals[g], &all->entry[i]);
    for (size_t g = 0; g < GOALS; g++) any += count[g];
    if (!all->measured || !any) return true;
    fprintf(out, "\ngoals: share of the read ceiling at least; a sparse step, and its top-k, at most\n");
    for (size_t g = 0; g < GOALS; g++) {
        if (!count[g])
            fprintf(out, "  %-14s %.2f  %s: %s\n", "not applicable", goals[g].harder, goals[g].what, goals[g].absent);
        for (size_t i = 0; i < all->entries; i++)
            if (fits(&goals[g], &all->entry[i])) print_one(out, &goals[g], &all->entry[i]);
    }
    return true;
}
