/* What passes by its bound and is no rounding is SUSPECT in the device suite, and what is right is not. */

#include "harness/base/registry.h"
#include "harness/base/rng.h"
#include "harness/base/seq_attend.h"
#include "harness/engine/machine.h"
#include "harness/engine/test_drive.h"
#include "harness/report/row.h"
#include "kernels/states.h"
#include "suites/test_flaws.h"

extern const struct ha_device_api ha_device_host;

/* The row of a case of the embedded device with other operations; it passes. */
static const struct ha_result *check(const char *id, const struct ha_device_api *api)
{
    struct ha_machine *machine;
    assert_int_equal(ha_machine_create(&machine, NULL, &why), HA_OK);
    ha_machine_give(machine, "host", api, NULL);
    ha_driven_free(&driven);
    const enum ha_status status = ha_drive(&(struct ha_drive){ .words = id, .seed = "3", .config.machine = machine },
                                           &driven, &why);
    ha_machine_destroy(machine);
    if (status != HA_OK) fail_msg("%s", why.text);
    const struct ha_result *result = ha_result_in(entry(0)->row);
    if (!ha_passed(result->verdict)) fail_msg("%s: %s", id, result->reason);
    return result;
}

static void right_then_wrong(const char *id, const char *what, const struct ha_device_api *bad)
{
    const struct ha_result right = *check(id, &ha_device_host);
    const double rms = number(0, "rms");
    const struct ha_result wrong = *check(id, bad);
    print_message("%s, %s: rms %.2f, then %.2f, bias %+.2f, p %.2g: %s\n", id, what, rms, number(0, "rms"),
                  number(0, "bias"), wrong.p, wrong.suspicion);
    assert_true(right.p >= 1 && rms < 0.75);
    assert_true(wrong.p < 1e-12 && number(0, "rms") > 1);
    assert_contains(wrong.suspicion, "larger than those of independent roundings");
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* Behind the device's own on its stream; what the call names may be gone by then. */
static struct late {
    struct ha_device_attend args;
    struct ha_device_seq seq[8];
    flaw_row *flaw;
    float weights; /* relative error of each */
} late;

static void spoil(void *arg)
{
    for (size_t b = 0; b < late.args.batch; b++)
        for (size_t h = 0; h < late.args.kv_heads; h++) {
            struct ha_rows runs[HA_RUNS_MAX];
            struct ha_attend a = ha_seq_attend(&late.args, &late.seq[b], h, runs);
            a.block = late.args.block;
            if (late.flaw) flaw_attend(&a, late.flaw);
            for (size_t g = 0; late.weights > 0 && g < a.group; g++)
                for (size_t j = 0; j < ha_ref_keys(&a); j++)
                    a.weights[g * a.weights_stride + j] *= 1 + late.weights * (2 * ha_rng_uniform(1, g, j) - 1);
        }
}

/* but for calls of a few keys, by which exp and log are measured */
static enum ha_status spoiled(struct ha_stream *stream, const struct ha_device_attend *args, enum ha_status status)
{
    if (args->seqs[0].runs[0].keys < 1000) return status;
    assert_true(args->batch <= COUNT(late.seq));
    late.args = *args;
    memcpy(late.seq, args->seqs, args->batch * sizeof *late.seq);
    return status == HA_OK ? ha_device_host.host_fn(stream, spoil, NULL) : status;
}
static enum ha_status attend(struct ha_stream *stream, const struct ha_device_attend *args)
{
    return spoiled(stream, args, ha_device_host.attend(stream, args));
}
static enum ha_status attend_products(struct ha_stream *stream, const struct ha_device_attend *args)
{
    return spoiled(stream, args, ha_device_host.attend_products(stream, args));
}

/* long rows, and not a path more than short ones: test_device has these */
TEST_WITH(attention_within_its_bound_may_be_no_rounding, NULL, driven_end)
{
    if (HA_SANITIZED) skip();
    enum { EXP = 1, OTHERS = 6, ALL = 7 }; /* a bit for each flaw */
    static const struct {
        const char *id;
        unsigned flaws;
    } each[] = {
        { "device:op=attend,cases=one,group=4,kv_heads=2,head_dim=16,keys=131072", ALL },
        { "device:op=attend_index,cases=one,dtype=f16,group=4,head_dim=16,keys=131072,block=16,batch=2", ALL },
        /* nobody knows how a library adds up: by one path at worst, which hides what moves the LSE alone if it is long
         */
        { "device:op=attend_products,cases=one,group=4,kv_heads=2,head_dim=16,keys=1024", EXP },
        { "device:op=attend_products,cases=one,group=4,kv_heads=2,head_dim=16,keys=8192", OTHERS },
    };
    struct ha_device_api bad = ha_device_host;
    bad.attend = attend;
    bad.attend_products = attend_products;
    late.weights = 0;
    for (size_t i = 0; i < COUNT(each); i++)
        for (size_t f = 0; f < FLAWS; f++) {
            if (!(each[i].flaws >> f & 1)) continue;
            late.flaw = flaws[f].row;
            right_then_wrong(each[i].id, flaws[f].name, &bad);
        }
}

/* Of weights, which o and the LSE do not show. */
TEST_WITH(weights_within_their_bound_may_not_either, NULL, driven_end)
{
    struct ha_device_api bad = ha_device_host;
    bad.attend = attend;
    late.flaw = NULL;
    late.weights = 0x1p-17f;
    right_then_wrong("device:op=attend,cases=one,group=4,kv_heads=8,head_dim=64,keys=2000,weights=yes",
                     "weights off by 2^-17", &bad);
    assert_contains(ha_result_in(entry(0)->row)->suspicion, "weights of attend");
    right_then_wrong(
        "device:op=attend,cases=one,group=4,kv_heads=8,q_len=2,causal=yes,head_dim=16,keys=2000,weights=yes",
        "weights off by 2^-17", &bad);
}

/* ---- the others -------------------------------------------------------------------------------------------------- */

static struct {
    struct ha_merge m;
    struct ha_device_product p;
} last;

static void lift(void *arg)
{
    for (size_t t = 0; t < last.m.tokens; t++) last.m.out.lse[ha_merge_at(&last.m.out, t, 0)] += 0x1p-15f;
}
static enum ha_status merge(struct ha_stream *stream, const struct ha_merge *m)
{
    const enum ha_status status = ha_device_host.merge(stream, m);
    last.m = *m;
    return status == HA_OK ? ha_device_host.host_fn(stream, lift, NULL) : status;
}

static void shake(void *arg)
{
    float *y = last.p.y;
    for (size_t i = 0; i < last.p.m * last.p.n; i++) y[i] *= 1 + 0x1p-13f * (2 * ha_rng_uniform(1, 3, i) - 1);
}
static enum ha_status product(struct ha_stream *stream, const struct ha_device_product *p)
{
    const enum ha_status status = ha_device_host.product(stream, p);
    last.p = *p;
    return status == HA_OK ? ha_device_host.host_fn(stream, shake, NULL) : status;
}

TEST_WITH(merges_and_products_within_their_bounds_may_not_either, NULL, driven_end)
{
    struct ha_device_api bad = ha_device_host;
    bad.merge = merge;
    bad.product = product;
    right_then_wrong("device:op=merge,cases=one,rows=40,states=1500,head_dim=8", "LSE off by 2^-15", &bad);
    right_then_wrong("device:op=product,cases=one,m=8,n=64,k=4096", "products off by 2^-13", &bad);
}

/* One wrong shape among all that are listed, which others do not hide. */
static enum ha_status attend_one(struct ha_stream *stream, const struct ha_device_attend *args)
{
    const struct ha_device_seq *seq = args->seqs;
    const bool it = args->dtype == HA_F32 && args->head_dim == 64 && args->batch == 1 && args->q_len == 1
                    && args->kv_heads == 1 && seq->runs_count == 2 && seq->runs[0].keys == 2100;
    return (it ? attend : ha_device_host.attend)(stream, args);
}
TEST_WITH(one_shape_of_many_is_seen, NULL, driven_end)
{
    if (HA_SANITIZED) skip(); /* the whole list once more */
    struct ha_device_api bad = ha_device_host;
    bad.attend = attend_one;
    late.flaw = flaw_exp;
    late.weights = 0;
    right_then_wrong("device:op=attend", "one shape", &bad);
    assert_contains(ha_result_in(entry(0)->row)->suspicion, "attend of f32, head_dim 64, 4200 keys");
}

TEST_WITH(what_moves_is_not_asked, NULL, driven_end)
{
    check("device:op=blend,cases=one,rows=40,width=30", &ha_device_host);
    assert_true(isnan(number(0, "rms")) && isnan(ha_result_in(entry(0)->row)->p));
}
