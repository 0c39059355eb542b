/* What comes down to the CPU is what was chosen, to the byte; keys are encoded together; and a device's codes and
 * counts that are none are refused. */

#include "suites/variants/test_shim.h"

#include <string.h>

enum { Q_HEADS = 4, LAYERS = 2, TAU = 4 }; /* TAU: among the options */
#define SHAPE "hcattention:heads=4/2,head_dim=16,layers=2,threads=1,steps=5,"

/* ---- what comes down */

static double note_of(const struct ha_selection *s, const char *name)
{
    for (size_t i = 0; i < s->notes; i++)
        if (!strcmp(s->note[i].name, name)) return s->note[i].value;
    fail_msg("no note %s", name);
    return 0;
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
        shim.copy_pieces = count_pieces;
        nothing_came();
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
            if ((double)came.bytes != keys * (double)cases[c].key_bytes)
                fail_msg("%s, step %zu: %zu bytes of %g keys", id, step, (size_t)came.bytes, keys);
            nothing_came();
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
