/* What the device's claims let pass: the least error that is seen, planted and seen; beside that of kernels like ours.
 */

#include "suites/variants/check.h"

#include "harness/api/reference.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ha_shape *shape_of(const struct ha_pass *p) { return &p->session->workload->shape; }

static const struct ha_profile *claimed(const struct ha_session *s, const struct ha_device_info *info)
{
    const enum ha_dtype t = s->workload->shape.dtype;
    return s->variant->products ? &info->products[t] : &info->profile[t];
}

/* What a part's claims are called: the device's, or its own. */
enum { CALLED_MAX = 64 };
static void name_of(const struct ha_session *s, const struct ha_part *part, size_t head, size_t number,
                    char out[CALLED_MAX])
{
    const char *device = s->variant->products ? "products" : "profile";
    if (part->profile) snprintf(out, CALLED_MAX, "profile of head %zu part %zu", head, number);
    else snprintf(out, CALLED_MAX, "%s[%s]", device, ha_dtype_name(s->workload->shape.dtype));
}

/* ---- claims that a shape leaves no room for ---------------------------------------------------------------------- */

/* A part's own profile has the types of its side, or finer ones: coarser ones are no others' to be set beside. */
static enum ha_status no_coarser(const char *of, const struct ha_session *session, const struct ha_part *part,
                                 struct ha_why *why)
{
    const struct ha_oracle_claims c = ha_oracle_claims(session, &session->info);
    const struct ha_profile side = part->either_side ? ha_profile_weaker(&c.device, &c.host, part->count)
                                   : part->on_device ? c.device
                                                     : c.host;
    const struct ha_profile *own = part->profile;
    const struct {
        const char *field;
        enum ha_dtype own, side;
    } all[] = {
        { "weight_type", own->weight_type, side.weight_type },
        { "out_type", own->out_type, side.out_type },
        { "lse_type", own->lse_type, side.lse_type },
    };
    if (own->sum_least > 0) return HA_OK; /* its weights are its own, as they cross a link; its definition knows them */
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].own > all[i].side) /* as in ha_profile_weaker */
            return ha_why(why, HA_FAIL, "its %s: %s is %s, coarser than %s of its side", of, all[i].field,
                          ha_dtype_name(all[i].own), ha_dtype_name(all[i].side));
    if (own->sum_rounded && own->weight_type != HA_F32 && !side.sum_rounded)
        return ha_why(why, HA_FAIL, "its %s: sum_rounded is true, and is not of its side", of);
    return HA_OK;
}

enum ha_status ha_sensitivity_claims(const struct ha_pass *pass, const struct ha_chosen *c, size_t step, size_t seq,
                                     struct ha_why *why)
{
    const struct ha_session *session = pass->session;
    const struct ha_shape *s = shape_of(pass);
    const size_t first = ha_workload_tokens(session->workload, seq,
                                            step); /* that the first query sees beside its own */
    char of[CALLED_MAX];
    for (size_t head = 0; head < s->q_heads; head++)
        for (size_t p = 0; p < HA_PARTS_MAX; p++) {
            const size_t *offset = c->offset + head * HA_CHOSEN_STRIDE + p;
            size_t visible = offset[0];
            const struct ha_part *part = ha_chosen_part(c, head, p);
            const struct ha_profile *profile = part->profile ? part->profile : claimed(session, &session->info);
            if (!part->on_device && !part->profile && !part->either_side) continue;
            name_of(session, part, head, p, of);
            if (part->profile && part->count) HA_TRY(no_coarser(of, session, part, why));
            while (visible < offset[1] && c->token[visible] <= first) visible++;
            const size_t keys[] = { visible - offset[0], offset[1] - offset[0] };
            for (size_t i = 0; i < 2; i++)
                HA_TRY(ha_claims_attend(of, profile, s->head_dim, keys[i], HA_RUNS_MAX, why));
        }
    return c->parts > 1 ? ha_claims_merge(&session->info.merge, c->parts, why) : HA_OK;
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

/* The one part that has keys, of the device's or with claims of its own: what it attended is what is handed over,
 * whatever it was merged with. HA_PARTS_MAX: there is none. */
static size_t attended_alone(const struct ha_chosen *c, size_t head)
{
    const size_t *offset = c->offset + head * HA_CHOSEN_STRIDE;
    size_t used = 0, found = HA_PARTS_MAX;
    for (size_t p = 0; p < HA_PARTS_MAX; p++) {
        const struct ha_part *part = ha_chosen_part(c, head, p);
        if (offset[p + 1] == offset[p]) continue;
        used++;
        if (!part->weight_only && (part->profile || (part->on_device && !part->either_side))) found = p;
    }
    return used == 1 ? found : HA_PARTS_MAX;
}

enum ha_status ha_sensitivity_types(const struct ha_pass *pass, const struct ha_chosen *c, size_t layer, size_t seq,
                                    struct ha_why *why)
{
    const struct ha_shape *s = shape_of(pass);
    char of[CALLED_MAX];
    for (size_t r = 0; r < s->q_len * s->q_heads; r++) {
        const size_t at = seq * s->q_len * s->q_heads + r;
        const float *o = ha_session_o(pass->session, layer) + at * s->head_dim,
                    lse = ha_session_lse(pass->session, layer)[at];
        const size_t head = r % s->q_heads, number = attended_alone(c, head);
        size_t i;
        if (number == HA_PARTS_MAX) continue;
        const struct ha_part *part = ha_chosen_part(c, head, number);
        const struct ha_profile *p = part->profile ? part->profile : claimed(pass->session, &pass->session->info);
        if (ha_ref_fits(o, s->head_dim, lse, p, &i)) continue;
        const bool is_o = i < s->head_dim;
        name_of(pass->session, part, head, number, of);
        return ha_why(why, HA_FAIL, "token %zu head %zu %s is %.9g, which its %s: %s %s cannot hold", r / s->q_heads,
                      head, is_o ? "o" : "LSE", (double)(is_o ? o[i] : lse), of, is_o ? "out_type" : "lse_type",
                      ha_dtype_name(is_o ? p->out_type : p->lse_type));
    }
    return HA_OK;
}

/* ---- sensitivity ------------------------------------------------------------------------------------------------- */

static struct ha_ref_state state_of(const struct ha_expected *e, size_t row, size_t dim)
{
    return (struct ha_ref_state){ .o = e->o + row * dim,
                                  .bound = e->o_bound + row * dim,
                                  .lse = e->lse[row],
                                  .lse_bound = e->lse_bound[row],
                                  .dim = dim };
}

/* The same claims in the words of kernels like ours. What a device may have computed has its exp and log, as seen. */
static struct ha_profile as_usual(const struct ha_session *s, const struct ha_profile *p, bool by_device)
{
    const enum ha_dtype t = s->workload->shape.dtype;
    const struct ha_profile ours = ha_profile_attend(&s->kernels, t);
    const struct ha_eps *eps = ha_machine_eps(s->shared->machine);
    return ha_profile_usual(p, &ours, by_device ? eps->exp[t].worst : (double)NAN,
                            by_device ? eps->log[t].worst : (double)NAN);
}

/* What the device claims. */
static void claim_as_usual(const struct ha_session *s, struct ha_device_info *info)
{
    const enum ha_dtype t = s->workload->shape.dtype;
    const struct ha_eps *eps = ha_machine_eps(s->shared->machine);
    *info = s->info;
    info->profile[t] = as_usual(s, &s->info.profile[t], true);
    info->products[t] = as_usual(s, &s->info.products[t], true);
    info->merge = ha_traits_usual(&s->info.merge, &s->kernels.traits, eps->merge_exp.worst, eps->merge_log.worst);
}

/* A row beside the same by the claims of `info`, and by the usual ones of parts that have their own. who: claims what.
 */
static enum ha_status compare(const struct ha_pass *pass, const struct ha_chosen *chosen,
                              const struct ha_check_place *at, const struct ha_expected *expected, size_t row,
                              const struct ha_device_info *info, const char *who, double *times, struct ha_why *why)
{
    const size_t dim = shape_of(pass)->head_dim, heads = shape_of(pass)->q_heads, parts = heads * HA_PARTS_MAX;
    struct ha_chosen usual = *chosen;
    struct ha_profile own[HA_PARTS_MAX];
    double *memory = malloc(2 * (dim + 1) * sizeof *memory);
    usual.part = malloc(parts * sizeof *usual.part);
    if (!memory || !usual.part) {
        free(memory);
        free(usual.part);
        return ha_why(why, HA_ERROR, "no memory for the reference of a row");
    }
    memcpy(usual.part, chosen->part, parts * sizeof *usual.part);
    for (size_t p = 0; p < HA_PARTS_MAX; p++) {
        struct ha_part *part = &usual.part[row % heads * HA_PARTS_MAX + p];
        if (!part->profile) continue;
        own[p] = as_usual(pass->session, part->profile, part->on_device || part->either_side);
        part->profile = &own[p];
    }
    const struct ha_expected answer = { memory, memory + dim, memory + 2 * dim, memory + 2 * dim + 1 };
    enum ha_status st = ha_oracle_answer(pass, &usual, at->step, at->layer, at->seq, row, info, &answer, why);
    if (st == HA_OK) {
        const struct ha_ref_state a = state_of(expected, row, dim), b = state_of(&answer, 0, dim);
        const struct ha_ref_sense by = ha_ref_sensitivity(&a), of = ha_ref_sensitivity(&b);
        *times = ha_ref_insensitivity(&by, &of);
        const bool ok = *times <= HA_SENSE_MOST;
        if (!ok)
            st = ha_why(why, HA_FAIL,
                        "token %zu head %zu: by what %s o may be off by %.3g of itself and exp(LSE) by %.3g, %.3g "
                        "times as much as by claims like those of our kernels (%.3g and %.3g), and more than %d is too "
                        "much",
                        row / heads, row % heads, who, by.o, by.lse, *times, of.o, of.lse, HA_SENSE_MOST);
    }
    free(usual.part);
    free(memory);
    return st;
}

/* The part of a head that has this profile of its own, and keys; HA_PARTS_MAX: none has. */
static size_t part_with(const struct ha_chosen *c, size_t head, const struct ha_profile *profile)
{
    const size_t *offset = c->offset + head * HA_CHOSEN_STRIDE;
    size_t p = 0;
    for (; p < HA_PARTS_MAX; p++) {
        const struct ha_profile *own = ha_chosen_part(c, head, p)->profile;
        if (own && offset[p + 1] > offset[p] && (own == profile || !memcmp(own, profile, sizeof *own))) break;
    }
    return p;
}

enum ha_status ha_sensitivity_parts(const struct ha_pass *pass, const struct ha_chosen *c,
                                    const struct ha_check_place *at, const struct ha_expected *expected,
                                    struct ha_why *why)
{
    const struct ha_shape *s = shape_of(pass);
    for (size_t i = 0; i < s->q_heads * HA_PARTS_MAX; i++) {
        const size_t first = i / HA_PARTS_MAX;
        const struct ha_profile *profile = c->part[i].profile;
        size_t before = 0, worst = 0;
        double most = -1, times;
        char who[64];
        if (!profile || part_with(c, first, profile) != i % HA_PARTS_MAX) continue;
        while (before < first && part_with(c, before, profile) == HA_PARTS_MAX) before++;
        if (before < first) continue; /* it was asked there */
        for (size_t r = 0; r < s->q_len * s->q_heads; r++) {
            const struct ha_ref_state want = state_of(expected, r, s->head_dim);
            const struct ha_ref_sense sense = ha_ref_sensitivity(&want);
            if (part_with(c, r % s->q_heads, profile) == HA_PARTS_MAX || !(fmax(sense.o, sense.lse) > most)) continue;
            most = fmax(sense.o, sense.lse);
            worst = r;
        }
        snprintf(who, sizeof who, "the profile of part %zu claims", part_with(c, worst % s->q_heads, profile));
        if (most >= 0) HA_TRY(compare(pass, c, at, expected, worst, &pass->session->info, who, &times, why));
    }
    return HA_OK;
}

enum ha_status ha_sensitivity_ask(struct ha_sensitivity *out, const struct ha_pass *pass,
                                  const struct ha_chosen *chosen, const struct ha_expected *expected,
                                  struct ha_why *why)
{
    const struct ha_session *session = pass->session;
    const struct ha_shape *s = shape_of(pass);
    const size_t rows = s->q_len * s->q_heads, dim = s->head_dim;
    size_t worst = 0;
    double most = -1;
    float copy[HA_REF_DIM_MAX];
    *out = (struct ha_sensitivity){ (double)NAN, (double)NAN, (double)NAN };
    for (size_t r = 0; r < rows; r++) {
        const struct ha_ref_state want = state_of(expected, r, dim);
        const struct ha_ref_sense sense = ha_ref_sensitivity(&want);
        if (!ha_ref_sees(ha_session_o(session, 0) + r * dim, ha_session_lse(session, 0)[r], &want, copy))
            return ha_why(why, HA_FAIL,
                          "token %zu head %zu: an error just above the bound was planted, and was not seen",
                          r / s->q_heads, r % s->q_heads);
        out->o = fmax(out->o, sense.o); /* fmax takes no NaN where there is a number */
        out->lse = fmax(out->lse, sense.lse);
        if (fmax(sense.o, sense.lse) > most) most = fmax(sense.o, sense.lse), worst = r;
    }
    struct ha_device_info usual;
    claim_as_usual(session, &usual);
    return compare(pass, chosen, &(struct ha_check_place){ 0 }, expected, worst, &usual, "the device claims",
                   &out->times, why);
}
