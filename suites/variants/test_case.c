/* The keys of a case and its id, over fake_registry.c and fake_suites.c. What is the same for the keys, ids, files and
 * filters of every suite is in harness/engine/test_point.c and test_plan.c. */
#include "harness/base/registry.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"
#include "harness/engine/plan.h"
#include "harness/engine/point.h"
#include "suites/variants/case.h"
#include "suites/variants/fill.h"

#include <math.h>

static size_t rounds = 20000;

static const struct ha_suite *suite(void) { return ha_suites_all[0]; }

static enum ha_status set(struct ha_case *c, const char *key, const char *value, struct ha_why *why)
{
    return ha_point_set_named(suite(), c, key, value, why);
}

static void print(const struct ha_case *c, char out[HA_ID_MAX])
{
    assert_true(ha_point_print(suite(), c, out, HA_ID_MAX) < HA_ID_MAX);
}

static struct ha_case parse(const char *id)
{
    struct ha_case c;
    struct ha_why why = { "" };
    if (ha_case_parse(id, &c, &why) != HA_OK) fail_msg("%s: %s", id, why.text);
    return c;
}

TEST(ids_print_as_expected)
{
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
        { "plain:dataset=batch/f", "plain:dataset=batch/f,ctx=0,dtype=f16" },
        { "plain:dataset=batch/f,ctx=0,batch=0,q_len=0,steps=0,observed=0", "plain:dataset=batch/f,ctx=0,dtype=f16" },
        { "plain:dataset=batch/f,ctx=7", "plain:dataset=batch/f,ctx=7,batch=1,dtype=f16" },
        { "plain:dataset=batch/f,batch=3", "plain:dataset=batch/f,ctx=0,batch=3,dtype=f16" },
        { "plain:dataset=batch/f,ctx=7+9", "plain:dataset=batch/f,ctx=7+9,dtype=f16" },
        { "plain:dataset=batch/f,ctx=7+7", "plain:dataset=batch/f,ctx=7,batch=2,dtype=f16" },
        { "plain:steps=8,q_len=1,observed=16,dataset=batch/f",
          "plain:dataset=batch/f,ctx=0,q_len=1,steps=8,observed=16,dtype=f16" },
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
        const struct ha_case c = parse(ids[i].id);
        char printed[HA_ID_MAX];
        print(&c, printed);
        assert_string_equal(printed, ids[i].printed);
    }
}

#define FIVE    "1+1+1+1+1+"
#define FIFTY   FIVE FIVE FIVE FIVE FIVE FIVE FIVE FIVE FIVE FIVE
#define HUNDRED FIFTY FIFTY
TEST(mistakes_are_named)
{
    static const struct {
        const char *id, *says;
    } ids[] = {
        { "rign", "unknown variant or suite 'rign'; did you mean 'ring'?" },
        { "quixotic", "unknown variant or suite 'quixotic'; `habench list suites`" },
        { "plain:thread=1", "unknown key 'thread'; did you mean 'threads'?" },
        { "plain:beta=1", "variant plain has no option 'beta'; its own: " },
        { "plain:variant=ring", "key 'variant' is there twice" },
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
        { "plain:ctx=4294967288,steps=8", "are more than 4294967295" },
        { "plain:ctx=18446744073709551616", "is not a whole number up to 4294967295" },
        { "plain:seed=18446744073709551616",
          "seed: '18446744073709551616' is not a whole number from 0 to 18446744073709551615" },
        { "plain:batch=0", "batch: 0 is below 1" },
        { "plain:batch=257", "batch: 257 is above 256" },
        { "plain:ctx=1+2,batch=3", "batch: 3, but ctx has 2 lengths" },
        { "plain:ctx=" HUNDRED HUNDRED FIFTY FIVE "1+1", "ctx: more than 256 lengths" },
        { "plain:steps=0", "steps: '0' is not a whole number from 1 to 1000000" },
        { "plain:dataset=tape/f,steps=0", "steps: '0' is not a whole number from 1 to 1000000" },
        { "plain:dataset=tape/f,batch=0", "batch: 0 is below 1" },
        { "plain:dataset=batch/f,ctx=1+2,batch=3", "batch: 3, but ctx has 2 lengths" },
        { "plain:q_len=0", "q_len: '0' is not a whole number from 1 to 65536" },
        { "plain:layers=0", "layers: 0 is for datasets that are read from a file" },
        { "plain:heads=0", "heads: 0 is for datasets that are read from a file" },
        { "plain:heads=6/4", "heads: 6 query heads are not a multiple of 4 KV heads" },
        { "plain:heads=4/0", "heads: 0 is for datasets" },
        { "plain:heads=4/0,dataset=tape/x", "are not a multiple of 0 KV heads" },
        { "plain:heads=0/4", "heads: 0 is for datasets" },
        { "plain:heads=0/4,dataset=tape/x", "no query head" },
        { "plain:heads=8/2/1", "is not a whole number" },
        { "plain:head_dim=60", "head_dim: 60 is not a multiple of 8" },
        { "plain:head_dim=584", "head_dim: 584 is above 576" },
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
        { "plain:model=quixotic", "it is one of: none llama-3-8b llama-3.1-8b llama-3.1-70b mistral-7b-v0.3" },
        { "plain:model=", "unknown model ''" },
        { "plain:load=layers,model=small", "unknown load 'layers'; did you mean 'layer'?" },
        { "plain:load=layer", "load=layer goes with model=NAME" },
        { "plain:model=small,heads=8/4", "model: small has heads 8/2 of 64, not 8/4 of 64" },
        { "plain:model=small,head_dim=128", "model: small has heads 8/2 of 64, not 8/2 of 128" },
        { "plain:model=small,dataset=tape/f,heads=4/2", "model: small has heads 8/2 of 64" },
        { "plain:mdel=small", "unknown key 'mdel'; did you mean 'model'?" },
        { "ring:alpha=nan", "alpha: 'nan' is not a finite number" },
        { "ring:alpha=1.5", "alpha: 1.5 is outside of [0, 1]" },
        { "ring:alpha=-0.5", "alpha: -0.5 is outside of [0, 1]" },
        { "window:window=1,alpha=1", "variant window has no option 'alpha'; its own: " },
        { "window:window=1.5", "window: '1.5' is not a whole number" },
        { "plain:family=full", "family follows from the other keys and cannot be set" },
        { "plain:isa=bst", "unknown isa 'bst'; did you mean 'best'?" },
        { "plain:fit=a", "fit: plain learns nothing; those that do: ring" },
        { "ring:fit=", "a value is missing" },
        { "plain:team=ow", "unknown team 'ow'; did you mean 'own'?" },
        { "plain:threads=1.5", "threads: '1.5' is not a whole number from 0 to 1024" },
        { "plain:model_dim=1e3", "model_dim: '1e3' is not a whole number" },
        { "plain:observed=0.5", "observed: '0.5' is not a whole number" },
        { "plain:layers=1.5", "layers: '1.5' is not a whole number" },
        { "plain:batch=1.5", "batch: '1.5' is not a whole number" },
        { "plain:heads=8/1.5", "is not a whole number" },
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        struct ha_case c;
        struct ha_why why = { "" };
        if (ha_case_parse(ids[i].id, &c, &why) != HA_ERROR) fail_msg("%s: taken", ids[i].id);
        if (!strstr(why.text, ids[i].says)) fail_msg("%s: says \"%s\", not \"%s\"", ids[i].id, why.text, ids[i].says);
    }
    assert_int_equal(parse("plain:ctx=4294967287,steps=8").shape.ctx[0], 4294967287); /* the most that there may be */
}

TEST(long_ids_are_read)
{
    struct ha_case c;
    struct ha_why why = { "" };
    char id[2 * HA_ID_MAX], ctx[HA_VALUE_MAX], got[HA_VALUE_MAX];
    memset(id, 'x', sizeof id - 1);
    id[sizeof id - 1] = 0;
    assert_int_equal(ha_case_parse(id, &c, &why), HA_ERROR);

    size_t n = 0;
    for (int i = 0; i < HA_BATCH_MAX; i++)
        n += (size_t)snprintf(ctx + n, sizeof ctx - n, "%s1000000%03d", i ? "+" : "", i);
    snprintf(id, sizeof id, "plain:dataset=sinks,ctx=%s,dtype=f16", ctx);
    c = parse(id);
    assert_true(ha_point_get(suite(), &c, "ctx", got));
    assert_string_equal(got, ctx);
    print(&c, got);
    assert_string_equal(got, id);
}

/* one length goes for every sequence of the batch that is there */
TEST(ctx_keeps_the_batch)
{
    struct ha_case c;
    struct ha_why why;
    assert_int_equal(ha_case_parse("plain:ctx=5,batch=3", &c, &why), HA_OK);
    assert_int_equal(set(&c, "ctx", "9", &why), HA_OK);
    assert_int_equal(c.shape.batch, 3);
    assert_int_equal(c.shape.ctx[2], 9);
    assert_int_equal(c.shape.ctx[3], 0);
    assert_int_equal(set(&c, "ctx", "1+2", &why), HA_OK);
    assert_int_equal(c.shape.batch, 2);
}

/* a wrong value leaves the case as it was */
TEST(failing_set_changes_nothing)
{
    static const char *const wrong[][2] = {
        { "ctx", "5+x" },  { "batch", "999" },    { "heads", "4/x" },  { "head_dim", "12" },
        { "dtype", "f8" }, { "dataset", "tape" }, { "device", "a,b" }, { "seed", "-1" },
        { "alpha", "2" },  { "model", "smal" },   { "load", "x" },
    };
    struct ha_case before, c;
    struct ha_why why;
    before = parse("ring");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        c = before;
        assert_int_equal(set(&c, wrong[i][0], wrong[i][1], &why), HA_ERROR);
        assert_memory_equal(&c, &before, sizeof c);
    }
}

static size_t sizes(const struct ha_case *c)
{
    return c->shape.layers + c->shape.q_heads + c->shape.kv_heads + c->shape.head_dim;
}

TEST(a_file_fixes_the_shape)
{
    const struct ha_case plain = parse("plain"), file = parse("plain:dataset=tape/x"),
                         own = parse("plain:layers=3,dataset=tape/y"), again = parse("plain:dataset=sinks");
    assert_float_equal(plain.shape.scale, 0.125, 0);
    assert_int_equal(sizes(&file), 0);
    assert_float_equal(file.shape.scale, 0, 0);
    assert_int_equal(own.shape.layers, 3);
    assert_int_equal(sizes(&own), 3);
    assert_memory_equal(&plain, &again, sizeof plain);
}

TEST(a_file_fixes_the_lengths)
{
    const struct ha_case tape = parse("plain:dataset=tape/x"), batch = parse("plain:dataset=batch/x"),
                         one = parse("plain:dataset=batch/x,ctx=5"), two = parse("plain:dataset=batch/x,ctx=5+6"),
                         any = parse("plain:dataset=batch/x,ctx=0,batch=2");
    assert_int_equal(tape.shape.batch, 1);
    assert_int_equal(tape.shape.steps, 8);
    assert_int_equal(sizes(&batch) + batch.shape.batch + batch.shape.ctx[0] + batch.shape.q_len + batch.shape.steps, 0);
    assert_int_equal(batch.shape.observed, 0);
    assert_true(one.shape.batch == 1 && one.shape.ctx[0] == 5 && one.shape.ctx[1] == 0);
    assert_true(two.shape.batch == 2 && two.shape.ctx[0] == 5 && two.shape.ctx[1] == 6);
    assert_true(any.shape.batch == 2 && any.shape.ctx[0] == 0 && any.shape.ctx[1] == 0);
}

TEST(a_model_fixes_the_shape)
{
    const struct ha_case plain = parse("plain"), none = parse("plain:model=none");
    for (size_t i = 0; i < HA_MODELS_COUNT; i++) {
        const struct ha_model *m = &ha_models[i];
        char id[64];
        snprintf(id, sizeof id, "plain:model=%s", m->name);
        const struct ha_case c = parse(id);
        assert_true(ha_case_model(&c) == m && c.shape.layers == m->layers && c.shape.q_heads == m->q_heads
                    && c.shape.kv_heads == m->kv_heads);
        assert_true(c.shape.head_dim == m->head_dim && c.shape.scale == 1 / sqrtf((float)m->head_dim));
        assert_true(m->hidden % 8 == 0 && m->feed_forward % 8 == 0 && *m->source
                    && strlen(m->name) < sizeof((struct ha_row *)0)->model);
    }
    /* layers are the case's own; a file's word counts for more */
    const struct ha_case own = parse("plain:layers=3,model=small"),
                         file = parse("plain:model=qwen3-14b,dataset=tape/x");
    assert_int_equal(own.shape.layers, 3);
    assert_int_equal(own.shape.q_heads, ha_case_model(&own)->q_heads);
    assert_int_equal(sizes(&file), 0);
    assert_string_equal(ha_case_model(&file)->name, "qwen3-14b");
    assert_memory_equal(&none, &plain, sizeof plain);
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
    size_t words = 0;
    while (p->word && p->word(words)) words++;
    if (words) return (double)draw(words);
    switch (draw(4)) {
    case 0: return p->min;
    case 1: return p->max;
    case 2: return (double)(int)fmax(p->min, fmin(p->max, (double)draw(10)));
    default: return p->whole ? floor(p->min + t * (p->max - p->min)) : p->min + t * (p->max - p->min);
    }
}

static void draw_value(const struct ha_key *key, char out[HA_VALUE_MAX])
{
    static const char *const devices[] = { "host", "cuda", "./ha_x.so", "/a:b=c/d.so" };
    static const char *const datasets[] = { "sinks", "noise", "tape/english", "tape/a=b:c/d", "batch/a" };
    static const char *const fits[] = { "none", "english", "/a:b=c/d.safetensors" };
    size_t n = 0;
    if (key->word) {
        while (key->word(n)) n++;
        snprintf(out, HA_VALUE_MAX, "%s", key->word(draw(n)));
    } else if (!strcmp(key->name, "device")) snprintf(out, HA_VALUE_MAX, "%s", devices[draw(4)]);
    else if (!strcmp(key->name, "dataset")) snprintf(out, HA_VALUE_MAX, "%s", datasets[draw(5)]);
    else if (!strcmp(key->name, "fit")) snprintf(out, HA_VALUE_MAX, "%s", fits[draw(3)]);
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

/* ",key=value" for about half of the keys; what a model fixes is left to it */
static void draw_id(const struct ha_variant *v, char id[HA_ID_MAX])
{
    char value[HA_VALUE_MAX];
    bool model = false;
    size_t n = (size_t)snprintf(id, HA_ID_MAX, "%s:", v->name);
    for (size_t i = 1; i < HA_CASE_KEYS; i++) {
        const struct ha_key *key = &ha_case_keys[i];
        const bool shape = !strcmp(key->name, "heads") || !strcmp(key->name, "head_dim"),
                   load = !strcmp(key->name, "load");
        if (key->kind == HA_KEY_FACT || draw(2) || (model ? shape : load)) continue;
        if (!v->fit && !strcmp(key->name, "fit")) continue;
        draw_value(key, value);
        model |= !strcmp(key->name, "model") && strcmp(value, "none") != 0;
        n += (size_t)snprintf(id + n, HA_ID_MAX - n, "%s=%s,", key->name, value);
    }
    for (size_t i = 0; i < v->params_count; i++) {
        if (draw(2)) continue;
        ha_number_print(draw_param(&v->params[i]), value);
        n += (size_t)snprintf(id + n, HA_ID_MAX - n, "%s=%s,", v->params[i].name, value);
    }
    assert_true(n < HA_ID_MAX);
    id[n - 1] = 0; /* the last comma, or the colon */
}

TEST(random_cases_survive_printing)
{
    size_t tried = 0;
    for (size_t round = 0; round < rounds; round++) {
        struct ha_case c, back;
        struct ha_why why = { "" };
        char drawn[HA_ID_MAX], id[HA_ID_MAX], again[HA_ID_MAX];
        draw_id(ha_variants_all[draw(ha_variants_count)], drawn);
        if (ha_case_parse(drawn, &c, &why) != HA_OK) { /* possible one by one, and not together */
            if (!strstr(why.text, "but ctx has") && !strstr(why.text, "new tokens"))
                fail_msg("%s: %s", drawn, why.text);
            continue;
        }
        tried++;
        print(&c, id);
        if (ha_case_parse(id, &back, &why) != HA_OK) fail_msg("%s: %s", id, why.text);
        print(&back, again);
        assert_string_equal(again, id);
        if (memcmp(&back, &c, sizeof c)) fail_msg("%s is another case when read back", id);
    }
    assert_true(tried > rounds / 2);
}

/* ---- suite files and filters: what cases bring along ------------------------------------------------------------- */

/* ids, one a line, or the reason; of a file, or of words with a filter */
static void plan_of(const char *file, const char *filter, char *out, size_t size)
{
    static char a[] = "plain:ctx=1", b[] = "ring:ctx=100+200,heads=4,alpha=0.5", c[] = "plain:dataset=tape/x";
    char *words[] = { a, b, c };
    const struct ha_plan_options o = { .words = words, .words_count = 3, .filter = filter };
    struct ha_plan plan = { 0 };
    struct ha_why why = { "" };
    const enum ha_status status = file ? ha_plan_parse(&plan, &(struct ha_plan_options){ 0 }, "x.suite", file, &why)
                                       : ha_plan_make(&plan, &o, &why);
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; status == HA_OK && i < plan.entries; i++)
        n += (size_t)snprintf(out + n, size - n, "%s\n", plan.entry[i].id);
    if (status != HA_OK) snprintf(out, size, "%s", why.text);
    ha_plan_free(&plan);
}

TEST(files_and_filters_know_cases)
{
    static const struct {
        const char *file, *filter, *says;
    } plans[] = {
        /* a param goes to the variants that have it, and multiplies only those */
        { "[a]\nvariant=plain ring window\nctx=1\nalpha=0.1 0.2\nbeta=3\n", NULL,
          "plain:dataset=sinks,ctx=1,dtype=f16\n"
          "ring:dataset=sinks,ctx=1,dtype=f16,alpha=0.1,beta=3\nring:dataset=sinks,ctx=1,dtype=f16,alpha=0.2,beta=3\n"
          "window:dataset=sinks,ctx=1,dtype=f16,beta=3\n" },
        /* keys are set in the order of their table, whatever the file's */
        { "[a]\nvariant=plain\nheads=4/1\nbatch=2\nctx=1 5\ndataset=tape/x\n", NULL,
          "plain:dataset=tape/x,ctx=1,batch=2,heads=4/1,dtype=f16\n"
          "plain:dataset=tape/x,ctx=5,batch=2,heads=4/1,dtype=f16\n" },
        { "[a]\nvariant=plain\nctx=1+2 3\n", NULL,
          "plain:dataset=sinks,ctx=1+2,dtype=f16\nplain:dataset=sinks,ctx=3,dtype=f16\n" },
        { "[a]\nvariant=plain rign\n", NULL, "x.suite:2: unknown variant 'rign'; did you mean 'ring'?" },
        { "# c\n[a]\nctx=1\n", NULL, "x.suite:2: which variant? `habench list variants` prints them" },
        { "[a]\nvariant=plain window\nalpha=0.1\n", NULL,
          "x.suite:3: key 'alpha' belongs to none of the cases of [a]: variant window has no option 'alpha'; its own: "
          "window beta" },
        { "[a]\nvariant=plain\nhead_dim=0\n", NULL,
          "x.suite:3: head_dim: 0 is for datasets that are read from a file" },
        { "[a]\nvariant=plain\nctx=1+2\nbatch=3\n", NULL, "x.suite:4: batch: 3, but ctx has 2 lengths" },
        { NULL, "family=split", "ring:dataset=sinks,ctx=100+200,heads=4/4,dtype=f16,alpha=0.5\n" },
        { NULL, "ctx=100+200,heads=4", "ring:dataset=sinks,ctx=100+200,heads=4/4,dtype=f16,alpha=0.5\n" },
        { NULL, "heads=4/4,alpha=5e-1,beta=1,threads=0,window!=32",
          "ring:dataset=sinks,ctx=100+200,heads=4/4,dtype=f16,alpha=0.5\n" },
        { NULL, "heads=0", "plain:dataset=tape/x,ctx=4096,dtype=f16\n" },
        { NULL, "heads!=0,heads!=8/2", "ring:dataset=sinks,ctx=100+200,heads=4/4,dtype=f16,alpha=0.5\n" },
        { NULL, "window=32", "-f window=32: none of the cases fits" },
        { NULL, "family!=splt", "-f: unknown family 'splt'; did you mean 'split'?" },
        { NULL, "window!=1.5", "-f: window: '1.5' is not a whole number" },
        { NULL, "dataset=sink", "-f: unknown dataset 'sink'; did you mean 'sinks'?" },
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        char out[4096];
        plan_of(plans[i].file, plans[i].filter, out, sizeof out);
        if (strcmp(out, plans[i].says) != 0)
            fail_msg("%s\nsays \"%s\", not \"%s\"", plans[i].file ? plans[i].file : plans[i].filter, out,
                     plans[i].says);
    }
}

TEST_MAIN
{
    if (test_small) rounds = 2000;
    return test_all("tests", NULL, NULL);
}
