/* hcattention with all of the weight and exact keys is full attention, and so is one whose books have every key; where
 * values are summed changes nothing but roundings, and who waits changes no bit; what comes down is what was chosen, to
 * the byte; and a device's codes and counts that are none are refused. */

#include "suites/variants/check.h"
#include "suites/variants/test_session.h"

#include <string.h>

enum { Q_HEADS = 4, LAYERS = 2, TAU = 4 }; /* TAU: among the options */
#define SHAPE "hcattention:heads=4/2,head_dim=16,layers=2,threads=1,steps=5,"

static const struct ha_device_api *real;
static struct ha_device_api shim;

static void open_shim(const char *id)
{
    open_session(id);
    real = session.variant_api;
    shim = *real;
    session.variant_api = &shim;
}

/* ---- what it is at the ends of its options */

TEST(all_of_the_weight_of_exact_keys_is_full_attention)
{
    static const char *const ids[] = { SHAPE "dataset=iid,ctx=150+33,tau=1,keys=exact",
                                       SHAPE "dataset=walk,ctx=150+33,tau=1,keys=exact,renorm=1,q_len=3,fresh=2",
                                       SHAPE "dataset=iid,ctx=40+33,tau=1,c=128,books=separate,values=device,dtype=f16",
                                       SHAPE "dataset=sinks,ctx=60,tau=1,c=256,dims=4,fresh=10,dtype=f32",
                                       SHAPE "dataset=iid,ctx=9+3,fresh=64,tau=0.1,c=2",
                                       SHAPE "dataset=iid,ctx=150+3,tau=0.1,c=2,q_len=3,prefill=anchor,anchor=1000",
                                       SHAPE "dataset=iid,ctx=0,q_len=9,prefill=anchor,anchor=36" };
    for (size_t i = 0; i < COUNT(ids); i++) {
        open_session(ids[i]);
        struct ha_check check = { .session = &session, .id = ids[i] };
        assert_ok(ha_check_run(&check, &reason));
        if (!(ha_accuracy_rel_l2(&check.total) < 1e-5))
            fail_msg("%s: error %g", ids[i], ha_accuracy_rel_l2(&check.total));
        ha_check_free(&check);
        close_session();
    }
}

/* The outputs of all steps, of a given number of floats. The caller's to free. */
static float *outputs_of(const char *id, size_t *count)
{
    struct ha_pass p;
    open_session(id);
    const struct ha_shape *s = &session.workload->shape;
    const size_t step_bytes = s->layers * session.io.out_bytes;
    char *all = malloc(s->steps * step_bytes);
    assert_non_null(all);
    *count = s->steps * step_bytes / sizeof(float);
    begin_pass(&p, true);
    for (size_t step = 0; step < s->steps; step++) {
        assert_ok(ha_pass_step(&p, step, &reason));
        memcpy(all + step * step_bytes, session.host_out, step_bytes);
    }
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    close_session();
    return (float *)(void *)all;
}

/* What two cases come to, of which no number may be further apart. */
static void assert_same(const char *one, const char *other, double most)
{
    size_t count[2];
    float *o[2] = { outputs_of(one, &count[0]), outputs_of(other, &count[1]) };
    assert_int_equal(count[0], count[1]);
    for (size_t j = 0; j < count[0]; j++)
        if (memcmp(&o[0][j], &o[1][j], sizeof(float)) /* what is behind the outputs is NaN */
            && !(fabs((double)o[0][j] - (double)o[1][j]) <= most))
            fail_msg("%s and %s: %zu: %g, %g", one, other, j, (double)o[0][j], (double)o[1][j]);
    free(o[0]);
    free(o[1]);
}

TEST(where_values_are_and_who_waits)
{
    static const struct {
        const char *one, *other;
        double most;
    } cases[] = { { "overlap=0", "overlap=1", 0 },
                  { "overlap=0,weights=f16,q_len=3", "overlap=1,weights=f16,q_len=3", 0 },
                  { "pack=0,c=64", "pack=1,c=64", 0 },
                  { "prefill=full", "prefill=anchor,anchor=5", 0 },
                  { "values=host", "values=device", 1e-5 },
                  { "values=host,q_len=3,tau=0.5", "values=device,q_len=3,tau=0.5", 1e-5 } };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char id[2][200];
        for (size_t k = 0; k < 2; k++)
            snprintf(id[k], sizeof id[k], SHAPE "dataset=iid,ctx=150+33,%s", k ? cases[i].other : cases[i].one);
        assert_same(id[0], id[1], cases[i].most);
    }
}

/* A book that has all keys of the context, before they are turned: what stands for them is turned back to what they
 * are. The tokens that have left the fresh window are of the context. */
TEST(all_keys_before_they_are_turned)
{
#define TRACE "hcattention:dataset=trace/english,ctx=1808,threads=1,fresh=4,tau=1,"
    assert_same(TRACE "steps=3,keys=exact", TRACE "steps=3,rotary=before,books=separate,dims=64,c=2048", 1e-4);
    assert_same(TRACE "steps=2,q_len=2,keys=exact,dtype=f32",
                TRACE "steps=2,q_len=2,dtype=f32,rotary=before,books=separate,dims=64,c=2048", 1e-4);
}

/* ---- what comes down */

static double note_of(const struct ha_selection *s, const char *name)
{
    for (size_t i = 0; i < s->notes; i++)
        if (!strcmp(s->note[i].name, name)) return s->note[i].value;
    fail_msg("no note %s", name);
    return 0;
}

static size_t came; /* bytes */
static enum ha_status copy_pieces(struct ha_stream *stream, const struct ha_device_pieces *pieces,
                                  enum ha_direction dir)
{
    for (size_t i = 0; i < pieces->count; i++) came += pieces->bytes[i];
    return real->copy_pieces(stream, pieces, dir);
}

/* Of each chosen key its id and its weights. */
TEST(bytes_and_weights_of_what_is_chosen)
{
    static const struct {
        const char *rest;
        size_t batch, key_bytes;
    } cases[] = { { "ctx=150+33,fresh=8,dtype=f16", 2, 8 },
                  { "ctx=150,weights=f16,q_len=3,tau=0.3,dtype=f32", 1, 10 },
                  { "ctx=150,tau=1,dtype=bf16", 1, 8 } };
    for (size_t c = 0; c < COUNT(cases); c++) {
        char id[200];
        struct ha_pass p;
        snprintf(id, sizeof id, SHAPE "dataset=iid,%s", cases[c].rest);
        open_shim(id);
        shim.copy_pieces = copy_pieces;
        came = 0;
        const struct ha_shape *s = &session.workload->shape;
        begin_pass(&p, true);
        for (size_t step = 0; step < s->steps; step++) {
            double keys = 0;
            assert_ok(ha_pass_step(&p, step, &reason));
            for (size_t i = 0; i < LAYERS * cases[c].batch * Q_HEADS; i++) {
                struct ha_selection x;
                p.variant->selection(p.instance, i / Q_HEADS / cases[c].batch, i / Q_HEADS % cases[c].batch,
                                     i % Q_HEADS, &x);
                const double mass = note_of(&x, "mass");
                keys += note_of(&x, "kept");
                assert_int_equal(x.part[1].count, (size_t)note_of(&x, "kept"));
                assert_int_equal(x.part[1].profile->dot_lanes, 16); /* a centroid's numbers, group by group */
                if (!(mass >= session.param[TAU] * (1 - 1e-3) && mass <= 1 + 1e-3))
                    fail_msg("%s: %g of %g", id, mass, session.param[TAU]);
            }
            if ((double)came != keys * (double)cases[c].key_bytes)
                fail_msg("%s, step %zu: %zu bytes of %g keys", id, step, came, keys);
            came = 0;
        }
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        close_session();
    }
}

/* ---- when keys are encoded */

static size_t encoded[LAYERS], at_once; /* tokens of a layer; of a call, at most */
static enum ha_status count_encoded(struct ha_stream *stream, const struct ha_device_pq_encode *args)
{
    static size_t calls;
    const size_t keys = args->seqs[0].rows.keys;
    calls = encoded[0] + encoded[1] ? calls + 1 : 0;
    encoded[calls % LAYERS] += keys;
    at_once = keys > at_once ? keys : at_once;
    return real->pq_encode(stream, args);
}

/* 16 at a time, or as many as have come when one of them leaves the fresh tokens; the rest when the steps go on. */
TEST(keys_are_encoded_together)
{
    static const struct {
        const char *rest;
        size_t at_once, all;
    } cases[] = { { "steps=36", 16, 32 },        { "steps=36,fresh=20", 16, 32 }, { "steps=36,fresh=16", 16, 32 },
                  { "steps=36,fresh=5", 6, 36 }, { "steps=36,fresh=0", 1, 36 },   { "steps=12,q_len=3", 18, 36 },
                  { "steps=3,q_len=20", 20, 60 } };
    for (size_t c = 0; c < COUNT(cases); c++) {
        char id[200];
        struct ha_pass p;
        snprintf(id, sizeof id, "hcattention:heads=4/2,head_dim=16,layers=2,threads=1,dataset=iid,ctx=150,%s",
                 cases[c].rest);
        open_shim(id);
        begin_pass(&p, true);
        shim.pq_encode = count_encoded;
        encoded[0] = encoded[1] = at_once = 0;
        for (size_t step = 0; step < session.workload->shape.steps; step++) assert_ok(ha_pass_step(&p, step, &reason));
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        if (at_once != cases[c].at_once || encoded[0] != cases[c].all || encoded[1] != cases[c].all)
            fail_msg("%s: %zu and %zu keys, up to %zu at once", id, encoded[0], encoded[1], at_once);
        close_session();
    }
}

/* ---- what a device says that cannot be */

static uint32_t wrong_keys;
static enum ha_status wrong_topp(struct ha_stream *stream, const struct ha_device_topp *args)
{
    HA_TRY(real->topp(stream, args));
    return real->copy(stream, args->seqs[0].keys, &wrong_keys, sizeof wrong_keys, HA_H2D);
}

static enum ha_status wrong_ids(struct ha_stream *stream, const struct ha_device_topp *args)
{
    HA_TRY(real->topp(stream, args));
    return real->copy(stream, args->seqs[0].index, &wrong_keys, sizeof wrong_keys, HA_H2D);
}

static enum ha_status no_codes(struct ha_stream *stream, const struct ha_device_pq_encode *args) { return HA_OK; }
static enum ha_status no_scores(struct ha_stream *stream, const struct ha_device_pq_score *args) { return HA_OK; }

static void assert_refused(const char *text)
{
    struct ha_pass p;
    begin_pass(&p, true);
    enum ha_status status = ha_pass_step(&p, 0, &reason);
    if (status == HA_OK || !strstr(reason.text, text))
        fail_msg("%d: \"%s\" does not say \"%s\"", status, reason.text, text);
    struct ha_why after;
    ha_pass_end(&p, status, &after);
    close_session();
}

TEST(what_cannot_be_is_refused)
{
    open_shim(SHAPE "dataset=iid,ctx=150");
    wrong_keys = 87; /* of 86 coded ones */
    shim.topp = wrong_topp;
    assert_refused("87 keys chosen of 86");
    open_shim(SHAPE "dataset=iid,ctx=150");
    wrong_keys = 86;
    shim.topp = wrong_ids;
    assert_refused("keys that the device chose");
    /* memory that nothing was written to holds numbers that are no codes */
    open_shim(SHAPE "dataset=iid,ctx=150,c=16");
    shim.pq_encode = no_codes;
    shim.pq_score = no_scores;
    assert_refused("of 16 centroids");
}
