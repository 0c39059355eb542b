#include "harness/measure/eps.h"

#include "harness/base/device_arena.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define U 0x1p-24

enum {
    ARGUMENTS = HA_EPS_ARGUMENTS,
    ARGUMENTS_EMULATED = 64,
    DIM = 64,
    LOGS = HA_EPS_LOGS,
    LOGS_EMULATED = 32,
    SEED = 14
};

struct bench {
    const struct ha_device_api *api;
    struct ha_device *device;
    struct ha_device_info info;
    struct ha_device_arena *arena;
    struct ha_stream *stream;
    size_t count, logs; /* arguments of exp, of log */
    float x[ARGUMENTS];
    unsigned char *host, *there; /* pinned and device memory, `bytes` each */
    size_t bytes;
};

/* Around the powers of two of the result, where the reduced argument jumps, and of the argument; then anywhere. */
void ha_eps_arguments(float x[HA_EPS_ARGUMENTS], size_t count)
{
    size_t n = 0;
    for (int k = 0; k < 150; k++) {
        const float whole = (float)(-k * 0x1.62e42fefa39efp-1), half = (float)(-(k + 0.5) * 0x1.62e42fefa39efp-1);
        x[n++] = whole;
        x[n++] = nextafterf(whole, -HUGE_VALF);
        x[n++] = half;
        x[n++] = nextafterf(half, -HUGE_VALF);
    }
    for (int e = -24; e < 7; e++) x[n++] = -ldexpf(1, e);
    for (; n < ARGUMENTS; n++) {
        const float share = ha_rng_uniform(SEED, 0, n);
        x[n] = n % 2 ? -104 * share : -ldexpf(1 + share, (int)(n % 31) - 25);
    }
    for (size_t i = 0; i < n; i++) x[i] = fmaxf(x[i], -104);
    if (count == ARGUMENTS) return;
    for (size_t i = 0; i < count; i++) x[i] = x[ha_rng_below(SEED, 1, i, n - i) + i];
}

static enum ha_status open_bench(struct bench *b, struct ha_why *why)
{
    const bool emulated = !strcmp(b->api->kind, "emulated"); /* every lane of it is a function call */
    b->count = emulated ? ARGUMENTS_EMULATED : ARGUMENTS;
    b->logs = emulated ? LOGS_EMULATED : LOGS;
    b->bytes = (size_t)6 * ARGUMENTS * DIM * sizeof(float);
    ha_eps_arguments(b->x, b->count);
    b->api->info(b->device, &b->info);
    HA_TRY(ha_device_arena_create(&b->arena, b->api, b->device, why));
    b->host = ha_device_alloc(b->arena, HA_MEM_PINNED, b->bytes, HA_TAG_SCRATCH, why);
    b->there = b->host ? ha_device_alloc(b->arena, HA_MEM_DEVICE, b->bytes, HA_TAG_SCRATCH, why) : NULL;
    if (!b->there) return HA_ERROR;
    return b->api->stream_create(b->device, "eps", &b->stream, why);
}

static enum ha_status failed(const struct bench *b, const char *what, struct ha_why *why)
{
    const char *failure = b->api->failure(b->device);
    return ha_why(why, HA_ERROR, "%s: %s", what, failure ? failure : "refused, and no reason given");
}

/* The first `end` bytes of the block to the device, one operation, and those behind `answer` back. */
static enum ha_status ask(struct bench *b, const struct ha_merge *merge, const struct ha_device_attend *attend,
                          size_t answer, size_t end, struct ha_why *why)
{
    const struct ha_device_api *api = b->api;
    if (api->copy(b->stream, b->there, b->host, end, HA_H2D) != HA_OK) return failed(b, "copy", why);
    const enum ha_status st = merge ? api->merge(b->stream, merge) : api->attend(b->stream, attend);
    if (st == HA_WAIVED) return st;
    if (st != HA_OK) return failed(b, merge ? "a merge of two states" : "attention over two keys", why);
    if (api->copy(b->stream, b->host + answer, b->there + answer, end - answer, HA_D2H) != HA_OK)
        return failed(b, "copy", why);
    return api->stream_sync(b->stream) == HA_OK ? HA_OK : failed(b, "sync", why);
}

/* An error that was seen, and what of it may come from elsewhere; a NaN is as wrong as can be. */
static void note(struct ha_eps_seen *seen, double error, double allowed, bool shown)
{
    const double e = isnan(error) ? HUGE_VAL : error, rest = e > allowed ? e - allowed : 0;
    if (shown && !(e <= seen->worst)) seen->worst = e;
    if (!(rest <= seen->least)) seen->least = rest;
}

/* exp(x) = got / one. Near the least normal number and below, it may be flushed to zero. */
static void note_exp(struct ha_eps_seen *seen, double x, double one, double got, double allowed, bool shown)
{
    if (x >= -87) note(seen, fabs(got / one / exp(x) - 1), allowed, shown);
    else if (!(got >= 0 && got < 0x1p-120)) note(seen, HUGE_VAL, 0, shown);
}

/* ---- merges: states (1, 0, ...) with L = 0 and (0, 1, ...) with L = x -------------------------------------------- */

/* o = (1 / D, e / D), D = 1 + e and L = ln D. The quotient of both has two roundings; the sum behind L has one of a
 * unit, L itself one. */
void ha_eps_note_merge(struct ha_eps_seen *exps, struct ha_eps_seen *logs, double x, double o0, double o1, double lse,
                       double exp_eps)
{
    const double e = exp(x), want = log1p(e), allowed = (2 + e * exp_eps / U) * U + U * want;
    if (o1 == 0 && x >= -87) { /* left out, and not weighed */
        exps->dropped = fmax(exps->dropped, e);
        return;
    }
    note_exp(exps, x, o0, o1, 3 * U, true);
    note(logs, fabs(lse - want) / (want + 1e-3), allowed / (want + 1e-3), want > 0.5);
}

static enum ha_status ask_merge(struct bench *b, struct ha_eps *out, struct ha_why *why)
{
    const size_t n = b->count;
    const size_t end = 3 * n * (DIM + 1) * sizeof(float);
    float *const o = (float *)(void *)b->host, *const lse = o + 3 * n * DIM;
    struct ha_merge_state state[3];
    memset(b->host, 0, end);
    for (size_t s = 0; s < 3; s++) {
        state[s] = (struct ha_merge_state){ .o = b->there + s * n * DIM * sizeof *o,
                                            .lse = (float *)(void *)(b->there + (3 * DIM + s) * n * sizeof *o),
                                            .o_token_stride = DIM,
                                            .o_head_stride = DIM,
                                            .lse_token_stride = 1,
                                            .lse_head_stride = 1 };
        for (size_t i = 0; s < 2 && i < n; i++) {
            o[(s * n + i) * DIM + s] = 1;
            lse[s * n + i] = s ? b->x[i] : 0;
        }
    }
    const struct ha_merge merge = { .form = HA_FORM_NATURAL,
                                    .dtype = HA_F32,
                                    .states = state,
                                    .states_count = 2,
                                    .tokens = n,
                                    .heads = 1,
                                    .dim = DIM,
                                    .out = state[2] };
    HA_TRY(ask(b, &merge, NULL, 2 * n * DIM * sizeof(float), end, why));
    for (size_t i = 0; i < n; i++) {
        const float *row = o + (2 * n + i) * DIM;
        ha_eps_note_merge(&out->merge_exp, &out->merge_log, (double)b->x[i], (double)row[0], (double)row[1],
                          (double)lse[2 * n + i], b->info.merge.exp_eps);
    }
    return HA_OK;
}

/* ---- attention: keys 0 and (1, 0, ...), values (1, 0, ...) and (0, 1, ...), a query (x, 0, ...) ------------------ */

static void put(unsigned char *at, size_t i, float x, enum ha_dtype t)
{
    if (t == HA_F32) memcpy(at + i * sizeof x, &x, sizeof x);
    else {
        const uint16_t h = x == 0 ? 0 : t == HA_F16 ? 0x3c00 : 0x3f80; /* zeros and ones are all there is */
        memcpy(at + i * sizeof h, &h, sizeof h);
    }
}

/* K at 0, V behind it, then queries, o, LSE */
static enum ha_status ask_attend(struct bench *b, enum ha_dtype t, size_t tokens, size_t keys, bool causal, float **o,
                                 float **lse, struct ha_why *why)
{
    const size_t row = DIM * ha_dtype_bytes(t), q_at = 2 * keys * DIM * sizeof(float),
                 o_at = q_at + tokens * DIM * sizeof(float), lse_at = o_at + tokens * DIM * sizeof(float),
                 end = lse_at + tokens * sizeof(float);
    float *q = (float *)(void *)(b->host + q_at);
    memset(b->host, 0, end);
    for (size_t i = 0; i < keys; i++) {
        put(b->host, i * DIM, i == 1, t);
        put(b->host + keys * row, i * DIM + (i == 1), 1, t);
    }
    for (size_t i = 0; !causal && i < tokens; i++) q[i * DIM] = b->x[i];
    const struct ha_device_seq seq = { .q = (float *)(void *)(b->there + q_at),
                                       .runs = { { .k = b->there,
                                                   .v = b->there + keys * row,
                                                   .k_stride_bytes = row,
                                                   .v_stride_bytes = row,
                                                   .keys = keys } },
                                       .runs_count = 1,
                                       .k_head_bytes = keys * row,
                                       .v_head_bytes = keys * row,
                                       .o = (float *)(void *)(b->there + o_at),
                                       .lse = (float *)(void *)(b->there + lse_at) };
    const struct ha_device_attend attend = { .batch = 1,
                                             .q_len = tokens,
                                             .q_heads = 1,
                                             .kv_heads = 1,
                                             .head_dim = DIM,
                                             .dtype = t,
                                             .scale = 1,
                                             .causal = causal,
                                             .seqs = &seq };
    *o = (float *)(void *)(b->host + o_at);
    *lse = (float *)(void *)(b->host + lse_at);
    return ask(b, NULL, &attend, o_at, end, why);
}

/* A score has its product with the scale, a base-2 exponential that with log2 e, and what the profile says of dot
 * products besides, all relative to x; weights are rounded to 16 bits twice. */
static enum ha_status ask_attend_exp(struct bench *b, enum ha_dtype t, struct ha_eps_seen *seen, struct ha_why *why)
{
    const struct ha_profile *p = &b->info.profile[t];
    const double of_score = (7 + (p->truncates ? 2 : 1) * (double)p->dot_extra) * U,
                 rounded = 3 * (ha_dtype_unit(p->weight_type) + ha_dtype_unit(p->out_type));
    float *o, *lse;
    HA_TRY(ask_attend(b, t, b->count, 2, false, &o, &lse, why));
    for (size_t i = 0; i < b->count; i++) {
        const double x = (double)b->x[i], one = (double)o[i * DIM], got = (double)o[i * DIM + 1];
        if (rounded > 0 && x < -8) continue; /* what is left of a weight in 16 bits */
        note_exp(seen, x, one, got, expm1(of_score * -x) + 3 * U + rounded, x >= -1);
    }
    return HA_OK;
}

/* Token t sees t + 1 keys that all weigh 1: L = ln(t + 1), exactly summed. */
static enum ha_status ask_attend_log(struct bench *b, enum ha_dtype t, struct ha_eps_seen *seen, struct ha_why *why)
{
    const double rounded = 2 * U + ha_dtype_unit(b->info.profile[t].lse_type);
    float *o, *lse;
    HA_TRY(ask_attend(b, t, b->logs, b->logs, true, &o, &lse, why));
    for (size_t i = 0; i < b->logs; i++) {
        const double want = log((double)(i + 1));
        note(seen, fabs((double)lse[i] - want) / (want + 1e-3), rounded * want / (want + 1e-3), true);
    }
    return HA_OK;
}

enum ha_status ha_eps_measure(struct ha_eps *out, const struct ha_device_api *api, struct ha_device *device,
                              struct ha_why *why)
{
    struct bench *b = calloc(1, sizeof *b);
    const struct ha_eps_seen none = { (double)NAN, (double)NAN, 0 };
    out->merge_exp = out->merge_log = none;
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) out->exp[t] = out->log[t] = none;
    if (!b) return ha_why(why, HA_ERROR, "out of memory");
    b->api = api;
    b->device = device;
    const bool asked = strcmp(api->kind, "null") != 0 && (api->merge || api->attend);
    enum ha_status status = asked ? open_bench(b, why) : HA_OK;
    const struct ha_merge_traits *m = &b->info.merge;
    if (asked && status == HA_OK && api->merge && m->forms & 1u << HA_FORM_NATURAL && m->dtypes & 1u << HA_F32)
        status = ask_merge(b, out, why);
    for (size_t t = 0; asked && api->attend && t < HA_DTYPE_COUNT && status != HA_ERROR; t++) {
        status = ask_attend_exp(b, (enum ha_dtype)t, &out->exp[t], why);
        if (status == HA_OK) status = ask_attend_log(b, (enum ha_dtype)t, &out->log[t], why);
    }
    const char *failure = status == HA_ERROR ? api->failure(device) : NULL;
    if (failure && why && !strstr(why->text, failure)) ha_why(why, HA_ERROR, "%s", failure);
    if (b->stream) api->stream_destroy(b->stream);
    ha_device_arena_destroy(b->arena);
    free(b);
    return status == HA_ERROR ? status : HA_OK;
}

enum ha_status ha_eps_holds(const char *of, const char *name, double claimed, const struct ha_eps_seen *seen,
                            struct ha_why *why)
{
    if (seen->dropped > 0 && seen->dropped < U)
        return ha_why(why, HA_FAIL, "its %s: %s is %.3g, but a weight of %.3g is taken for 0", of, name, claimed,
                      seen->dropped);
    return seen->least > claimed ? ha_why(why, HA_FAIL, "its %s: %s is %.3g, but the function is off by %.3g at least",
                                          of, name, claimed, seen->least)
                                 : HA_OK;
}

enum ha_status ha_eps_check(const struct ha_eps *eps, const struct ha_device_info *info, enum ha_dtype dtype,
                            struct ha_why *why)
{
    char of[32];
    snprintf(of, sizeof of, "profile[%s]", ha_dtype_name(dtype));
    HA_TRY(ha_eps_holds("traits", "exp_eps", info->merge.exp_eps, &eps->merge_exp, why));
    HA_TRY(ha_eps_holds("traits", "log_eps", info->merge.log_eps, &eps->merge_log, why));
    HA_TRY(ha_eps_holds(of, "exp_eps", info->profile[dtype].exp_eps, &eps->exp[dtype], why));
    return ha_eps_holds(of, "log_eps", info->profile[dtype].log_eps, &eps->log[dtype], why);
}
