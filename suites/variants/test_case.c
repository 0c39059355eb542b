/* A case and its id, over fake_registry.c. */
#include "harness/base/rng.h"
#include "suites/variants/case.h"
#include "suites/variants/keys.h"
#include "harness/base/registry.h"
#include "harness/report/row.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static size_t rounds = 20000;

static void ids_print_as_expected(void **state)
{
    (void)state;
    static const struct {
        const char *id, *printed;
    } ids[] = {
        { "plain", "plain:dataset=sinks,ctx=4096,dtype=f16" },
        { "plain:dtype=bf16,ctx=0", "plain:dataset=sinks,ctx=0,dtype=bf16" },
        { "plain:ctx=5,batch=1", "plain:dataset=sinks,ctx=5,dtype=f16" },
        { "plain:batch=3,ctx=7", "plain:dataset=sinks,ctx=7,batch=3,dtype=f16" },
        { "plain:ctx=7,batch=3", "plain:dataset=sinks,ctx=7,batch=3,dtype=f16" },
        { "plain:ctx=7+7+7", "plain:dataset=sinks,ctx=7,batch=3,dtype=f16" },
        { "plain:ctx=7+0+9", "plain:dataset=sinks,ctx=7+0+9,dtype=f16" },
        { "plain:ctx=7+9,batch=2", "plain:dataset=sinks,ctx=7+9,dtype=f16" },
        { "plain:ctx=7+9,batch=1", "plain:dataset=sinks,ctx=7+9,dtype=f16" },
        { "plain:heads=4", "plain:dataset=sinks,ctx=4096,heads=4/4,dtype=f16" },
        { "plain:heads=8/2,layers=2", "plain:dataset=sinks,ctx=4096,dtype=f16" },
        { "plain:seed=18446744073709551615", "plain:dataset=sinks,ctx=4096,dtype=f16,seed=18446744073709551615" },
        { "plain:ctx=2500000000", "plain:dataset=sinks,ctx=2500000000,dtype=f16" },
        { "plain:device=./ha_x.so", "plain:device=./ha_x.so,dataset=sinks,ctx=4096,dtype=f16" },
        { "ring:beta=-1,alpha=0.10", "ring:dataset=sinks,ctx=4096,dtype=f16,alpha=0.1,beta=-1" },
        { "ring:beta=1.0,alpha=3e-1", "ring:dataset=sinks,ctx=4096,dtype=f16" },
        { "ring:beta=-0", "ring:dataset=sinks,ctx=4096,dtype=f16,beta=0" },
        { "window:beta=1", "window:dataset=sinks,ctx=4096,dtype=f16,beta=1" },
        { "plain:dataset=tape/a.b", "plain:dataset=tape/a.b,ctx=4096,dtype=f16" },
        { "plain:heads=8/2,dataset=tape/d/f", "plain:dataset=tape/d/f,ctx=4096,heads=8/2,dtype=f16" },
        { "plain:dataset=tape/f,heads=0,layers=0", "plain:dataset=tape/f,ctx=4096,dtype=f16" },
        { "plain:model=none,load=attention", "plain:dataset=sinks,ctx=4096,dtype=f16" },
        { "plain:model=llama-3.1-8b", "plain:dataset=sinks,model=llama-3.1-8b,ctx=4096,dtype=f16" },
        { "plain:layers=32,heads=32/8,load=layer,head_dim=128,model=llama-3.1-8b",
          "plain:dataset=sinks,model=llama-3.1-8b,load=layer,ctx=4096,dtype=f16" },
        { "plain:layers=2,model=opt-6.7b", "plain:dataset=sinks,model=opt-6.7b,ctx=4096,layers=2,dtype=f16" },
        { "plain:model=small,dataset=tape/f", "plain:dataset=tape/f,model=small,ctx=4096,dtype=f16" },
        { "plain:model=small,dataset=tape/f,heads=8/2",
          "plain:dataset=tape/f,model=small,ctx=4096,heads=8/2,dtype=f16" },
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        struct ha_case c;
        struct ha_why why = { "" };
        char printed[HA_CASE_ID_MAX];
        if (ha_case_parse(ids[i].id, &c, &why) != HA_OK) fail_msg("%s: %s", ids[i].id, why.text);
        ha_case_print(&c, printed);
        assert_string_equal(printed, ids[i].printed);
    }
}

static void mistakes_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *id, *says;
    } ids[] = {
        { "", "unknown variant ''" },
        { "rign", "unknown variant 'rign'; did you mean 'ring'?" },
        { "quixotic", "it is one of: plain ring window" },
        { "plain:", "'' is not key=value" },
        { "plain:ctx", "'ctx' is not key=value" },
        { "plain:ctx=1,", "'' is not key=value" },
        { "plain:ctx=1,,seed=1", "'' is not key=value" },
        { "plain:thread=1", "unknown key 'thread'; did you mean 'threads'?" },
        { "plain:beta=1", "unknown key 'beta'" },
        { "plain:variant=ring", "unknown key 'variant'" },
        { "plain:=1", "unknown key ''" },
        { "plain:seed=1,seed=2", "key 'seed' is there twice" },
        { "plain:ctx=", "ctx: '' is not a whole number" },
        { "plain:ctx=1+", "ctx: '' is not a whole number" },
        { "plain:ctx=+1", "is not a whole number" },
        { "plain:ctx=-1", "ctx: '-1' is not a whole number" },
        { "plain:ctx= 1", "is not a whole number" },
        { "plain:ctx=1k", "ctx: '1k' is not a whole number" },
        { "plain:ctx=1.5", "is not a whole number" },
        { "plain:ctx=nan", "is not a whole number" },
        { "plain:ctx=4294967296", "ctx: 4294967296 is above 4294967295" },
        { "plain:ctx=4294967295", "are more than 4294967295" },
        { "plain:ctx=18446744073709551616", "is too large" },
        { "plain:seed=18446744073709551616", "seed: '18446744073709551616' is too large" },
        { "plain:batch=0", "batch: 0 is below 1" },
        { "plain:batch=65", "batch: 65 is above 64" },
        { "plain:ctx=1+2,batch=3", "batch: 3, but ctx has 2 lengths" },
        { "plain:ctx=1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+"
          "1+1+1+1+1"
          "+1+1+1+1+1+1+1+1+1+1+1",
          "ctx: more than 64 lengths" },
        { "plain:steps=0", "steps: 0 is below 1" },
        { "plain:q_len=0", "q_len: 0 is below 1" },
        { "plain:layers=0", "layers: 0 is for datasets that are read from a file" },
        { "plain:heads=0", "heads: 0 is for datasets that are read from a file" },
        { "plain:heads=6/4", "heads: 6 query heads are not a multiple of 4 KV heads" },
        { "plain:heads=4/0", "are not a multiple of 0 KV heads" },
        { "plain:heads=0/4", "no query head" },
        { "plain:heads=8/2/1", "is not a whole number" },
        { "plain:head_dim=60", "head_dim: 60 is not a multiple of 8" },
        { "plain:head_dim=264", "head_dim: 264 is above 256" },
        { "plain:head_dim=0", "head_dim: 0 is for datasets that are read from a file" },
        { "plain:dtype=fp16", "unknown dtype 'fp16'; did you mean 'f16'?" },
        { "plain:dataset=sink", "unknown dataset 'sink'; did you mean 'sinks'?" },
        { "plain:dataset=", "a value is missing" },
        { "plain:dataset=tape", "tape/FILE is needed; FILE is a tape" },
        { "plain:dataset=tape/", "tape/FILE is needed" },
        { "plain:dataset=noise/x", "noise takes no file" },
        { "plain:device=", "a value is missing" },
        { "plain:device=a b", "a blank" },
        { "plain:model=llama-3.1-9b", "unknown model 'llama-3.1-9b'; did you mean 'llama-3.1-8b'?" },
        { "plain:model=quixotic", "it is one of: none llama-3.1-8b qwen2.5-7b qwen3-14b opt-6.7b small" },
        { "plain:model=", "unknown model ''" },
        { "plain:load=layers,model=small", "unknown load 'layers'; did you mean 'layer'?" },
        { "plain:load=layer", "load=layer goes with model=NAME" },
        { "plain:model=small,heads=8/4", "model: small has heads 8/2 of 64, not 8/4 of 64" },
        { "plain:model=small,head_dim=128", "model: small has heads 8/2 of 64, not 8/2 of 128" },
        { "plain:model=small,dataset=tape/f,heads=4/2", "model: small has heads 8/2 of 64" },
        { "plain:mdel=small", "unknown key 'mdel'; did you mean 'model'?" },
        { "ring:alpha=nan", "alpha: 'nan' is not a finite number" },
        { "ring:beta=inf", "is not a finite number" },
        { "ring:beta=1e999", "is not a finite number" },
        { "ring:alpha=0x1", "is not a finite number" },
        { "ring:alpha=", "is not a finite number" },
        { "ring:alpha=.", "is not a finite number" },
        { "ring:alpha=0.5x", "is not a finite number" },
        { "ring:alpha= 0.5", "is not a finite number" },
        { "ring:alpha=1.5", "alpha: 1.5 is outside of [0, 1]" },
        { "ring:alpha=-0.5", "alpha: -0.5 is outside of [0, 1]" },
        { "window:window=1,alpha=1", "unknown key 'alpha'" },
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        struct ha_case c;
        struct ha_why why = { "" };
        if (ha_case_parse(ids[i].id, &c, &why) != HA_ERROR) fail_msg("%s: taken", ids[i].id);
        if (!strstr(why.text, ids[i].says)) fail_msg("%s: says \"%s\", not \"%s\"", ids[i].id, why.text, ids[i].says);
    }
}

static void long_ids_are_refused(void **state)
{
    (void)state;
    struct ha_case c;
    struct ha_why why = { "" };
    char id[2 * HA_CASE_ID_MAX], ctx[HA_VALUE_MAX];
    memset(id, 'x', sizeof id - 1);
    id[sizeof id - 1] = 0;
    assert_int_equal(ha_case_parse(id, &c, &why), HA_ERROR);

    /* a case whose id does not fit cannot be rerun: it is no case */
    size_t n = 0;
    for (int i = 0; i < HA_BATCH_MAX; i++)
        n += (size_t)snprintf(ctx + n, sizeof ctx - n, "%s10000000%02d", i ? "+" : "", i);
    ha_case_defaults(&c, ha_variant_find("plain"));
    assert_int_equal(ha_case_set(&c, "ctx", ctx, &why), HA_OK);
    assert_int_equal(ha_case_validate(&c, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "longer than 511"));
    char got[HA_VALUE_MAX];
    assert_true(ha_case_get(&c, "ctx", got));
    assert_string_equal(got, ctx);
}

/* one length goes for every sequence of the batch that is there */
static void ctx_keeps_the_batch(void **state)
{
    (void)state;
    struct ha_case c;
    struct ha_why why;
    assert_int_equal(ha_case_parse("plain:ctx=5,batch=3", &c, &why), HA_OK);
    assert_int_equal(ha_case_set(&c, "ctx", "9", &why), HA_OK);
    assert_int_equal(c.shape.batch, 3);
    assert_int_equal(c.shape.ctx[2], 9);
    assert_int_equal(c.shape.ctx[3], 0);
    assert_int_equal(ha_case_set(&c, "ctx", "1+2", &why), HA_OK);
    assert_int_equal(c.shape.batch, 2);
}

/* a wrong value leaves the case as it was */
static void failing_set_changes_nothing(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        { "ctx", "5+x" },  { "batch", "99" },     { "heads", "4/x" },  { "head_dim", "12" },
        { "dtype", "f8" }, { "dataset", "tape" }, { "device", "a,b" }, { "seed", "-1" },
        { "alpha", "2" },  { "model", "smal" },   { "load", "x" },
    };
    struct ha_case before, c;
    struct ha_why why;
    ha_case_defaults(&before, ha_variant_find("ring"));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        c = before;
        assert_int_equal(ha_case_set(&c, wrong[i][0], wrong[i][1], &why), HA_ERROR);
        assert_memory_equal(&c, &before, sizeof c);
    }
}

static void a_file_fixes_the_shape(void **state)
{
    (void)state;
    struct ha_case c, again;
    struct ha_why why;
    ha_case_defaults(&c, ha_variant_find("plain"));
    assert_float_equal(c.shape.scale, 0.125, 0);
    again = c;
    assert_int_equal(ha_case_set(&c, "dataset", "tape/x", &why), HA_OK);
    assert_int_equal(c.shape.layers + c.shape.q_heads + c.shape.kv_heads + c.shape.head_dim, 0);
    assert_int_equal(ha_case_validate(&c, &why), HA_OK);
    assert_int_equal(ha_case_set(&c, "layers", "3", &why), HA_OK);
    assert_int_equal(ha_case_set(&c, "dataset", "tape/y", &why), HA_OK);
    assert_int_equal(c.shape.layers, 3);
    assert_int_equal(ha_case_set(&c, "dataset", "sinks", &why), HA_OK);
    assert_memory_equal(&c, &again, sizeof c);
}

static void a_model_fixes_the_shape(void **state)
{
    (void)state;
    struct ha_case c, plain;
    struct ha_why why;
    ha_case_defaults(&plain, ha_variant_find("plain"));
    c = plain;
    for (size_t i = 0; i < HA_MODELS_COUNT; i++) {
        const struct ha_model *m = &ha_models[i];
        assert_int_equal(ha_case_set(&c, "model", m->name, &why), HA_OK);
        assert_true(c.model == m && c.shape.layers == m->layers && c.shape.q_heads == m->q_heads
                    && c.shape.kv_heads == m->kv_heads);
        assert_true(c.shape.head_dim == m->head_dim && c.shape.scale == 1 / sqrtf((float)m->head_dim));
        assert_true(m->hidden % 8 == 0 && m->feed_forward % 8 == 0 && *m->source
                    && strlen(m->name) < sizeof((struct ha_row *)0)->model);
        assert_int_equal(ha_case_validate(&c, &why), HA_OK);
    }
    /* layers are the case's own; what is named again stays, what is another one takes its place */
    assert_int_equal(ha_case_set(&c, "model", "small", &why), HA_OK);
    assert_int_equal(ha_case_set(&c, "layers", "3", &why), HA_OK);
    assert_int_equal(ha_case_set(&c, "model", "small", &why), HA_OK);
    assert_int_equal(c.shape.layers, 3);
    assert_int_equal(ha_case_set(&c, "model", "qwen3-14b", &why), HA_OK);
    assert_int_equal(c.shape.layers, 40);
    /* a file's word counts for more, until there is none */
    assert_int_equal(ha_case_set(&c, "dataset", "tape/x", &why), HA_OK);
    assert_int_equal(c.shape.layers + c.shape.q_heads + c.shape.kv_heads + c.shape.head_dim, 0);
    assert_int_equal(ha_case_validate(&c, &why), HA_OK);
    assert_int_equal(ha_case_set(&c, "dataset", "sinks", &why), HA_OK);
    assert_int_equal(c.shape.q_heads, 40);
    assert_int_equal(ha_case_set(&c, "model", "none", &why), HA_OK);
    assert_memory_equal(&c, &plain, sizeof c);
}

/* ---- every case prints as an id that parses to the same case ------------------------------- */

static uint64_t draw_at;
static uint64_t draw(uint64_t n) { return ha_rng_below(7, 0, draw_at++, n); }

/* small and large numbers alike */
static uint64_t draw_size(uint64_t min, uint64_t max)
{
    const uint64_t span = max - min, bits = draw(64), mask = bits == 63 ? UINT64_MAX : (UINT64_C(1) << (bits + 1)) - 1;
    const uint64_t x = ha_rng_bits(8, 0, draw_at++) & mask;
    return min + (span == UINT64_MAX ? x : x % (span + 1));
}

static double draw_param(const struct ha_param *p)
{
    const double t = (double)draw(1u << 30) / (double)(1u << 30);
    switch (draw(4)) {
    case 0: return p->min;
    case 1: return p->max;
    case 2: return (double)(int)fmax(p->min, fmin(p->max, (double)draw(10)));
    default: return p->min + t * (p->max - p->min);
    }
}

static void draw_value(const struct ha_key *key, char out[HA_VALUE_MAX])
{
    static const char *const devices[] = { "host", "cuda", "./ha_x.so", "/a:b=c/d.so" };
    static const char *const datasets[] = { "sinks", "noise", "tape/english", "tape/a=b:c/d" };
    static const char *const dtypes[] = { "f32", "f16", "bf16" };
    size_t n = 0;
    if (!strcmp(key->name, "model"))
        snprintf(out, HA_VALUE_MAX, "%s", draw(2) ? ha_models[draw(HA_MODELS_COUNT)].name : "none");
    else if (!strcmp(key->name, "load")) snprintf(out, HA_VALUE_MAX, "%s", draw(2) ? "layer" : "attention");
    else if (!strcmp(key->name, "device")) snprintf(out, HA_VALUE_MAX, "%s", devices[draw(4)]);
    else if (!strcmp(key->name, "dataset")) snprintf(out, HA_VALUE_MAX, "%s", datasets[draw(4)]);
    else if (!strcmp(key->name, "dtype")) snprintf(out, HA_VALUE_MAX, "%s", dtypes[draw(3)]);
    else if (!strcmp(key->name, "head_dim")) snprintf(out, HA_VALUE_MAX, "%zu", (size_t)(8 * (1 + draw(32))));
    else if (!strcmp(key->name, "heads")) {
        const size_t kv = 1 + draw(32), group = 1 + draw(32);
        snprintf(out, HA_VALUE_MAX, "%zu/%zu", kv * group, kv);
    } else if (!strcmp(key->name, "ctx")) {
        const size_t count = 1 + draw(draw(2) ? 1 : 16);
        for (size_t i = 0; i < count; i++)
            n += (size_t)snprintf(out + n, HA_VALUE_MAX - n, "%s%zu", i ? "+" : "", (size_t)draw_size(0, UINT32_MAX));
    } else snprintf(out, HA_VALUE_MAX, "%zu", (size_t)draw_size(key->min, key->max));
}

static void random_cases_survive_printing(void **state)
{
    (void)state;
    size_t tried = 0;
    for (size_t round = 0; round < rounds; round++) {
        const struct ha_variant *v = ha_variants_all[draw(ha_variants_count)];
        struct ha_case c, back;
        struct ha_why why = { "" };
        char value[HA_VALUE_MAX], id[HA_CASE_ID_MAX], again[HA_CASE_ID_MAX];
        ha_case_defaults(&c, v);
        for (size_t i = 0; i < HA_KEYS_COUNT; i++) {
            if (draw(2)) continue;
            draw_value(&ha_keys[i], value);
            if (ha_case_set(&c, ha_keys[i].name, value, &why) != HA_OK && strcmp(ha_keys[i].name, "batch"))
                fail_msg("%s=%s: %s", ha_keys[i].name, value, why.text);
        }
        for (size_t i = 0; i < v->params_count; i++) {
            if (draw(2)) continue;
            ha_number_print(draw_param(&v->params[i]), value);
            if (ha_case_set(&c, v->params[i].name, value, &why) != HA_OK)
                fail_msg("%s=%s: %s", v->params[i].name, value, why.text);
        }
        if (ha_case_validate(&c, &why) != HA_OK) continue;
        tried++;
        ha_case_print(&c, id);
        if (ha_case_parse(id, &back, &why) != HA_OK) fail_msg("%s: %s", id, why.text);
        ha_case_print(&back, again);
        assert_string_equal(again, id);
        if (memcmp(&back, &c, sizeof c)) fail_msg("%s is another case when read back", id);
    }
    assert_true(tried > rounds / 2);
}

static void numbers_survive_printing(void **state)
{
    (void)state;
    char text[HA_VALUE_MAX];
    ha_number_print(0.1, text);
    assert_string_equal(text, "0.1");
    ha_number_print(64, text);
    assert_string_equal(text, "64");
    for (size_t i = 0; i < rounds; i++) {
        const uint64_t bits = ha_rng_bits(9, 0, i);
        double x;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x)) continue;
        ha_number_print(x, text);
        const double back = strtod(text, NULL);
        assert_memory_equal(&x, &back, sizeof x);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "small")) rounds = 2000;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_print_as_expected),    cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(long_ids_are_refused),     cmocka_unit_test(failing_set_changes_nothing),
        cmocka_unit_test(ctx_keeps_the_batch),      cmocka_unit_test(a_file_fixes_the_shape),
        cmocka_unit_test(a_model_fixes_the_shape),  cmocka_unit_test(random_cases_survive_printing),
        cmocka_unit_test(numbers_survive_printing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
