#include "suites/kernels/tables.h"

#include "harness/base/registry.h"

#include <stdio.h>
#include <string.h>

enum { CTX_LEAST = 32768, Q_HEADS = 32, KV_HEADS = 8, DIM = 128, BUDGET = 5 };
enum { AVX512 = HA_CPU_AVX512 | HA_CPU_AVX512_BF16 | HA_CPU_AMX, BF16 = HA_CPU_AVX512_BF16 | HA_CPU_AMX };

/* One query token over packed keys, 32/8 heads of 128: the share of the read ceiling at least, with one thread or where
 * the threads' ceilings add up (harder), and where they do not (easier). */
static const struct decode_goal {
    unsigned cpu_bits; /* of the table that ran: one of them */
    enum ha_dtype dtype;
    size_t query;
    double harder, easier;
    const char *what, *needs;
} decode[] = {
    { AVX512, HA_F32, 0, 0.93, 0.97, "f32", "AVX-512" },
    { BF16, HA_BF16, 0, 0.88, 0.96, "bf16, query=kv", "AVX-512 BF16" },
    { BF16, HA_BF16, 1, 0.78, 0.95, "bf16, query=f32", "AVX-512 BF16" },
    { AVX512, HA_F16, 0, 0.70, 0.95, "f16", "AVX-512" },
    { HA_CPU_AVX2, HA_F32, 0, 0.93, 0.93, "f32", "AVX2 alone" },
    { HA_CPU_AVX2, HA_F16, 0, 0.65, 0.65, "f16", "AVX2 alone" },
};

/* A step over 5% of the keys in blocks: figures at most. */
static const struct sparse_goal {
    const char *what;
    double most;
    size_t figure; /* of a result */
} sparse[] = {
    { "sparse step over dense step", 0.10, offsetof(struct ha_cpu_result, whole_over_dense) },
    { "top-k over sparse step", 0.06, offsetof(struct ha_cpu_result, choice_share) },
};

static const struct ha_cpu_row *row(const struct ha_entry *e) { return e->row; }

static bool measured(const struct ha_entry *e)
{
    return e->row && row(e)->head.verdict == HA_PASS && row(e)->head.samples > 0;
}

/* what the table that ran needs of the CPU */
static unsigned bit_of(const char *isa)
{
    for (size_t i = 0; i < ha_kernels_count; i++)
        if (!strcmp(ha_kernels_all[i]->name, isa)) return ha_kernels_all[i]->cpu_bit;
    return 0;
}

static bool of_decode(const struct decode_goal *g, const struct ha_entry *e)
{
    const struct ha_cpu_point *p = e->point;
    return measured(e) && p->kernel == HA_KERNEL_ATTEND && p->layout == HA_CPU_PACKED && p->ctx >= CTX_LEAST
           && p->batch == 1 && p->q_heads == Q_HEADS && p->kv_heads == KV_HEADS && p->head_dim == DIM
           && p->dtype == g->dtype && p->query == g->query && (bit_of(row(e)->of.isa) & g->cpu_bits);
}

static bool of_sparse(const struct ha_entry *e)
{
    const struct ha_cpu_point *p = e->point;
    return measured(e) && p->kernel == HA_KERNEL_SPARSE && p->ctx >= CTX_LEAST && p->budget == BUDGET
           && p->dtype == HA_F16;
}

static const char *verdict(bool met) { return met ? "met" : "not met"; }

static size_t print_decode(FILE *out, const struct decode_goal *g, const struct ha_results *all)
{
    size_t count = 0;
    for (size_t i = 0; i < all->entries; i++) {
        const struct ha_entry *e = &all->entry[i];
        if (!of_decode(g, e)) continue;
        const struct ha_cpu_result *r = &row(e)->of;
        const struct ha_cpu_point *p = e->point;
        const bool easier = !strcmp(ha_cpu_ceiling_state(r), "easier");
        const double goal = easier ? g->easier : g->harder;
        fprintf(out, "  %-14s %.2f  measured %.3f (%.3f-%.3f)  decode %s, %s, ctx %zu, %.0f thread%s%s%s\n",
                verdict(r->ratio.median >= goal), goal, r->ratio.median, r->ratio.lo, r->ratio.hi, g->what, r->isa,
                p->ctx, r->threads, r->threads > 1 ? "s" : "", r->threads > 1 ? ", " : "", ha_cpu_ceiling_state(r));
        count++;
    }
    return count;
}

static size_t print_sparse(FILE *out, const struct sparse_goal *g, const struct ha_results *all)
{
    size_t count = 0;
    for (size_t i = 0; i < all->entries; i++) {
        const struct ha_entry *e = &all->entry[i];
        if (!of_sparse(e)) continue;
        const struct ha_cpu_result *r = &row(e)->of;
        const struct ha_cpu_point *p = e->point;
        struct ha_estimate f;
        memcpy(&f, (const char *)r + g->figure, sizeof f);
        fprintf(out, "  %-14s %.2f  measured %.3f (%.3f-%.3f)  %s, %s, ctx %zu, block %zu, %.0f thread%s\n",
                verdict(f.median <= g->most), g->most, f.median, f.lo, f.hi, g->what, r->isa, p->ctx, p->block,
                r->threads, r->threads > 1 ? "s" : "");
        count++;
    }
    return count;
}

static bool any(const struct ha_results *all)
{
    bool found = false;
    for (size_t i = 0; i < all->entries; i++) {
        for (size_t g = 0; g < sizeof decode / sizeof *decode; g++)
            found = found || of_decode(&decode[g], &all->entry[i]);
        found = found || of_sparse(&all->entry[i]);
    }
    return found;
}

bool ha_cpu_conclude(FILE *out, const struct ha_results *all, struct ha_why *why)
{
    (void)why;
    if (!all->measured || !any(all)) return true;
    fprintf(out, "\ngoals: share of the read ceiling at least; a sparse step, and its top-k, at most\n");
    for (size_t i = 0; i < sizeof decode / sizeof *decode; i++)
        if (!print_decode(out, &decode[i], all))
            fprintf(out, "  %-14s %.2f  decode %s: not measured here with %s\n", "not applicable", decode[i].harder,
                    decode[i].what, decode[i].needs);
    for (size_t i = 0; i < sizeof sparse / sizeof *sparse; i++)
        if (!print_sparse(out, &sparse[i], all))
            fprintf(out, "  %-14s %.2f  %s: f16, ctx %d, budget %d%% was not measured here\n", "not applicable",
                    sparse[i].most, sparse[i].what, CTX_LEAST, BUDGET);
    return true;
}
