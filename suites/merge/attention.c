#include "suites/merge/attention_parts.h"

#include "harness/base/rng.h"
#include "harness/base/try.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AXES_STREAM = 300 };

/* The axes that every case runs through: types and head dimensions in turn, the rest drawn. */
static struct ha_problem problem_of(const struct ha_attention_case *c, size_t id, uint64_t seed)
{
    static const size_t dims[] = { 64, 80, 96, 128, 256 }, groups[] = { 1, 2, 8 };
    const size_t dim = dims[id / HA_DTYPE_COUNT % 5];
    return (struct ha_problem){
        .case_name = c->name,
        .id = id,
        .seed = seed,
        .data = id,
        .dtype = (enum ha_dtype)(id % HA_DTYPE_COUNT),
        .head_dim = dim,
        .batch = 1,
        .kv_heads = 1,
        .group = groups[ha_rng_below(seed, AXES_STREAM, id, 3)],
        .q_len = 1,
        .copies = 1,
        .scale = 1 / sqrtf((float)dim),
    };
}

/* before: what the block holds in front of the outputs, which is only read */
static enum ha_status ask(struct ha_problem *p, struct ha_attention_bench *bench, const struct ha_wanted *want,
                          const char *before, struct ha_attention_result *out, struct ha_why *why)
{
    HA_TRY(ha_attention_push(bench, 0, p->end_at, why));
    HA_TRY(ha_attention_attend(bench, p, 0, why));
    HA_TRY(ha_attention_pull(bench, 0, p->end_at, why));
    HA_TRY(ha_problem_judge(p, want, out, why));
    return memcmp(before, p->host, p->out_at) == 0 ? HA_OK : ha_problem_fail(p, why, "q, K or V was written");
}

static enum ha_status solve(const struct ha_attention_case *c, struct ha_problem *p, struct ha_attention_bench *bench,
                            struct ha_attention_result *out, struct ha_why *why)
{
    c->shape(p);
    p->indexed = bench->subject->kernels && p->indexed;
    if (c->split) p->copies = p->runs_count + 1;
    HA_TRY(ha_problem_lay(p, bench, why));
    if (c->fill) c->fill(p);
    if (c->split) return ha_problem_split(p, bench, out, why);
    struct ha_wanted want = { 0 };
    HA_TRY(ha_wanted_make(&want, p, &bench->profile[p->dtype], why));
    if (c->spoil) c->spoil(p);
    char *before = malloc(p->out_at);
    if (before) memcpy(before, p->host, p->out_at);
    const enum ha_status status = before ? ask(p, bench, &want, before, out, why) : ha_why(why, HA_ERROR, "no memory");
    free(before);
    ha_wanted_free(&want);
    return status;
}

enum ha_status ha_attention_check(const struct ha_attention_subject *subject, size_t i, uint64_t seed,
                                  struct ha_attention_result *out, struct ha_why *why)
{
    struct ha_attention_bench bench;
    *out = (struct ha_attention_result){ 0 };
    HA_TRY(ha_attention_open(&bench, subject, seed, why));
    enum ha_status status = HA_OK;
    for (size_t id = 0; status == HA_OK && id < ha_attention_cases[i].shapes; id++) {
        struct ha_problem p = problem_of(&ha_attention_cases[i], id, seed);
        status = solve(&ha_attention_cases[i], &p, &bench, out, why);
    }
    ha_attention_close(&bench);
    return status;
}
