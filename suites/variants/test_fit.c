/* Fits: the format, what is refused, and the whole way of a variant that learns: fit, file, case. Linked with
 * fake_learner.o in place of the registry. The command is looked at by scripts/test-fit.sh. */

#include "suites/variants/fit.h"

#include "harness/base/clock.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/test_folder.h"
#include "harness/engine/drive.h"
#include "harness/report/row.h"
#include "suites/variants/fake_learner.h"
#include "suites/variants/test_session.h"

#include <sys/stat.h>
#include <time.h>

static struct ha_fit *fit;

static void expect_reason(const char *part)
{
    assert_contains(reason.text, part);
    assert_null(strchr(reason.text, '\n'));
}

/* ---- the format -------------------------------------------------------------------------------------------------- */

static const float f32[6] = { 1, -2, 3.5f, 0, 1e-40f, -0.0f };
static const uint16_t f16[3] = { 0x3c00, 0x7bff, 0x8000 }, bf16[3] = { 0x3f80, 0x7f7f, 0x8000 };
static const int32_t i32[2] = { INT32_MIN, 7 };
static const struct ha_tensor tensors[] = {
    { "codebooks.0", HA_T_F32, 2, { 2, 3 }, f32, sizeof f32 },
    { "half", HA_T_F16, 1, { 3 }, f16, sizeof f16 },
    { "brain", HA_T_BF16, 1, { 3 }, bf16, sizeof bf16 },
    { "interval", HA_T_I32, 1, { 2 }, i32, sizeof i32 },
    { "empty", HA_T_F32, 2, { 0, 4 }, NULL, 0 },
};
static const struct ha_provenance texts[] = { { "m", "a chapter", 0xabc }, { "m", "noise seed 1", 0 } };
static const struct ha_fit_about about = {
    .value = { "learner", "share=0.9", "m", "2", "4", "2", "64", "0", "iid", "1", "learner:dataset=iid", "v1" },
    .origin = texts,
    .origins = COUNT(texts),
};

/* path: in the folder of the test */
static void write_fit(const char *name)
{
    struct ha_fit_writer w = { .tensor = NULL };
    for (size_t i = 0; i < COUNT(tensors); i++) assert_ok(ha_fit_put(&w, &tensors[i], &reason));
    assert_ok(ha_fit_write(&w, test_path(name), &about, &reason));
    ha_fit_writer_free(&w);
}

TEST(what_is_written_is_read)
{
    write_fit("a.safetensors");
    assert_ok(ha_fit_open(&fit, test_path("a.safetensors"), &reason));
    for (size_t i = 0; i < COUNT(tensors); i++) {
        struct ha_tensor t = tensors[i];
        enum ha_dtype stored;
        const bool wider = ha_tensor_dtype(&t, &stored) && stored != HA_F32;
        t.data = NULL;
        t.bytes = 1;
        if (wider) t.type = HA_T_F32;
        assert_ok(ha_fit_get(fit, &t, &reason));
        assert_int_equal((uintptr_t)t.data % 64, 0);
        assert_int_equal(t.bytes, tensors[i].bytes * (wider ? 2 : 1));
        for (size_t j = 0; wider && j < t.dim[0]; j++)
            assert_true(((const float *)t.data)[j] == ha_load(tensors[i].data, j, stored));
        if (t.bytes && !wider) assert_memory_equal(t.data, tensors[i].data, t.bytes);
    }
    assert_ok(ha_fit_check(fit, &about, &reason));
    ha_fit_close(fit);
}

TEST(a_case_agrees_in_every_key)
{
    write_fit("a.safetensors");
    assert_ok(ha_fit_open(&fit, test_path("a.safetensors"), &reason));
    for (size_t k = 0; k < HA_FIT_KEYS; k++) {
        struct ha_fit_about of = about;
        of.value[k] = "another";
        if (k >= HA_FIT_AGREES) {
            assert_ok(ha_fit_check(fit, &of, &reason));
            continue;
        }
        assert_int_equal(ha_fit_check(fit, &of, &reason), HA_ERROR);
        expect_reason("the case has 'another': `habench fit CASE -o FILE` makes another");
        expect_reason(about.value[k]);
        of.value[k] = NULL; /* not asked */
        assert_ok(ha_fit_check(fit, &of, &reason));
    }
    ha_fit_close(fit);
}

TEST(texts_are_shared_by_name_or_by_keys)
{
    static const struct {
        struct ha_provenance with;
        bool shares;
    } all[] = {
        { { "m", "a chapter", 0 }, true },     { { "m", "noise seed 1", 9 }, true },
        { { "m", "b", 0xabc }, true },         { { "m", "b", 0xabd }, false },
        { { "m", "noise seed 2", 0 }, false }, { { "m", "a chapte", 0xab }, false },
        { { "m", "a chapter ", 1 }, false },
    };
    write_fit("a.safetensors");
    assert_ok(ha_fit_open(&fit, test_path("a.safetensors"), &reason));
    for (size_t i = 0; i < COUNT(all); i++) {
        const struct ha_provenance two[] = { { "m", "neither", 1 }, all[i].with };
        const struct ha_fit_about of = { .origin = two, .origins = 2 };
        assert_int_equal(ha_fit_shares(fit, &of), all[i].shares);
    }
    ha_fit_close(fit);
}

static void expect_not_there(const struct ha_tensor *t, enum ha_status status, const char *part)
{
    struct ha_tensor wanted = *t;
    assert_int_equal(ha_fit_get(fit, &wanted, &reason), status);
    expect_reason(part);
}

TEST(tensors_are_what_is_wanted)
{
    write_fit("a.safetensors");
    assert_ok(ha_fit_open(&fit, test_path("a.safetensors"), &reason));
    expect_not_there(&(struct ha_tensor){ .name = "codebooks.1", .type = HA_T_F32 }, HA_ERROR,
                     "a.safetensors: tensor codebooks.1 is missing");
    expect_not_there(&(struct ha_tensor){ .name = "half", .type = HA_T_I32, .dims = 1, .dim = { 3 } }, HA_ERROR,
                     "a.safetensors: tensor half is F16, and I32 is wanted (`habench fit CASE -o FILE` makes another)");
    expect_not_there(&(struct ha_tensor){ .name = "half", .type = HA_T_F16, .dims = 1, .dim = { 3 } }, HA_ERROR,
                     "a type that no fit is read as is wanted");
    expect_not_there(&(struct ha_tensor){ .name = "codebooks.0", .type = HA_T_F32, .dims = 2, .dim = { 3, 2 } },
                     HA_ERROR, "tensor codebooks.0 has shape [2][3], and [3][2] is wanted");
    expect_not_there(&(struct ha_tensor){ .name = "codebooks.0", .type = HA_T_F32, .dims = 1, .dim = { 2 } }, HA_ERROR,
                     "has shape [2][3], and [2] is wanted");
    ha_fit_close(fit);
    fit = NULL;
    expect_not_there(&tensors[0], HA_WAIVED, "needs a fit, for tensor codebooks.0: `habench fit CASE -o FILE`");
}

TEST(what_is_no_number_is_not_learnt)
{
    static const float nan[2] = { 1, NAN }, inf[1] = { -INFINITY };
    static const uint16_t half[2] = { 0x7c00, 0 }, brain[1] = { 0x7fc0 };
    static const double f64[1] = { 1 };
    static const struct {
        struct ha_tensor tensor;
        const char *reason;
    } bad[] = {
        { { .name = "a", .type = HA_T_F32, .dims = 1, .dim = { 2 }, .data = nan }, "tensor a[1] is NaN" },
        { { .name = "a", .type = HA_T_F32, .dims = 0, .data = inf }, "tensor a is infinite" },
        { { .name = "a", .type = HA_T_F16, .dims = 2, .dim = { 2, 1 }, .data = half }, "tensor a[0][0] is infinite" },
        { { .name = "a", .type = HA_T_BF16, .dims = 1, .dim = { 1 }, .data = brain }, "tensor a[0] is NaN" },
        { { .name = "a", .type = HA_T_F64, .dims = 1, .dim = { 1 }, .data = f64 }, "is not F32, F16, BF16 or I32" },
        { { .name = "a", .type = HA_T_F32, .dims = HA_TENSOR_DIMS_MAX + 1 }, "more than 8 dimensions" },
        { { .name = "a", .type = HA_T_F32, .dims = 2, .dim = { SIZE_MAX / 4, 2 } }, "more than 2^64 bytes" },
    };
    struct ha_fit_writer w = { .tensor = NULL };
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_int_equal(ha_fit_put(&w, &bad[i].tensor, &reason), HA_ERROR);
        expect_reason(bad[i].reason);
    }
    assert_int_equal(ha_fit_write(&w, test_path("b"), &about, &reason), HA_ERROR);
    expect_reason("nothing was learnt");
    for (int i = 0; i < 2; i++) assert_ok(ha_fit_put(&w, &tensors[0], &reason));
    assert_int_equal(ha_fit_write(&w, test_path("b"), &about, &reason), HA_ERROR);
    expect_reason("tensor 'codebooks.0': the name is taken");
    ha_fit_writer_free(&w);
}

/* ---- files that are damaged, or of something else ---------------------------------------------------------------- */

enum { META = 14 };
static const char *const meta[2 * META + 1] = {
    "format",  "habench-fit", "version", "1", "variant",  "learner", "params",   "",   "model",     "m",
    "layers",  "1",           "q_heads", "1", "kv_heads", "1",       "head_dim", "8",  "model_dim", "0",
    "dataset", "iid",         "seed",    "1", "case",     "learner", "habench",  "v1", NULL,
};

static void expect_refused(const char *const *pairs, const struct ha_tensor *t, const char *part)
{
    struct ha_fit *none;
    assert_ok(ha_safetensors_write(test_path("c.safetensors"), t, 1, pairs, &reason));
    assert_int_equal(ha_fit_open(&none, test_path("c.safetensors"), &reason), HA_ERROR);
    assert_null(none);
    expect_reason("c.safetensors: ");
    expect_reason(part);
    expect_reason("`habench fit");
}

TEST(metadata_that_is_not_that_of_a_fit)
{
    static const struct {
        size_t key;
        const char *value, *reason;
    } other[] = {
        { 0, "habench-trace", "format is 'habench-trace', and 'habench-fit' in what this program reads" },
        { 0, "", "format is ''" },
        { 1, "2", "version is '2', and '1' in what this program reads" },
        { 1, "1.0", "version is '1.0'" },
    };
    const char *pairs[2 * META + 1];
    assert_ok(ha_safetensors_write(test_path("c.safetensors"), tensors, 1, meta, &reason));
    assert_ok(ha_fit_open(&fit, test_path("c.safetensors"), &reason)); /* but for what follows it is right */
    ha_fit_close(fit);
    for (size_t i = 0; i < COUNT(other); i++) {
        memcpy(pairs, meta, sizeof pairs);
        pairs[2 * other[i].key + 1] = other[i].value;
        expect_refused(pairs, tensors, other[i].reason);
    }
    for (size_t k = 0; k < META; k++) {
        char part[64];
        memcpy(pairs, meta, sizeof pairs);
        memmove(pairs + 2 * k, pairs + 2 * k + 2, (2 * (META - k) - 1) * sizeof *pairs);
        snprintf(part, sizeof part, k < 2 ? "%s is ''" : "metadata key '%s' is missing", meta[2 * k]);
        expect_refused(pairs, tensors, part);
    }
}

TEST(tensors_that_no_fit_has)
{
    static const float nan[] = { 0, 0, NAN };
    static const uint16_t inf[] = { 0, 0xfc00 };
    static const double f64[] = { 1 };
    expect_refused(meta, &(struct ha_tensor){ "a", HA_T_F32, 1, { 3 }, nan, sizeof nan }, "tensor a[2] is NaN");
    expect_refused(meta, &(struct ha_tensor){ "a", HA_T_F16, 1, { 2 }, inf, sizeof inf }, "tensor a[1] is infinite");
    expect_refused(meta, &(struct ha_tensor){ "a", HA_T_F64, 1, { 1 }, f64, sizeof f64 },
                   "is not F32, F16, BF16 or I32");
}

/* Cut anywhere it is refused, with words; nothing behind its end is read. */
TEST(a_file_that_is_cut)
{
    struct stat st;
    write_fit("a.safetensors");
    assert_int_equal(stat(test_path("a.safetensors"), &st), 0);
    const size_t size = (size_t)st.st_size;
    char *whole = malloc(size);
    FILE *f = fopen(test_path("a.safetensors"), "r");
    assert_non_null(f);
    assert_int_equal(fread(whole, 1, size, f), size);
    fclose(f);
    assert_ok(ha_fit_parse(&fit, "x", whole, size, &reason));
    ha_fit_close(fit);
    for (size_t cut = 0; cut < size; cut += cut + 90 < size ? 7 : 1) {
        char *part = malloc(cut ? cut : 1);
        memcpy(part, whole, cut);
        *reason.text = 0;
        if (ha_fit_parse(&fit, "x", part, cut, &reason) != HA_ERROR) fail_msg("%zu of %zu bytes", cut, size);
        assert_null(fit);
        expect_reason("x: ");
        free(part);
    }
    free(whole);
}

TEST(files_that_are_not_there)
{
    char path[4096];
    assert_int_equal(ha_fit_path(path, "nosuch", &reason), HA_ERROR);
    expect_reason("fit nosuch: no such file, and no datasets/fits/nosuch.safetensors here or beside the program");
    assert_int_equal(ha_fit_path(path, "./no/such", &reason), HA_ERROR);
    expect_reason("fit ./no/such: there is no such file");
    assert_int_equal(ha_fit_open(&fit, test_folder, &reason), HA_ERROR);
    expect_reason("is a directory");
    test_write("zero", "", 0);
    assert_int_equal(ha_fit_open(&fit, test_path("zero"), &reason), HA_ERROR);
    expect_reason("empty file (`habench fit CASE -o FILE` makes another)");
}

/* ---- the whole way ----------------------------------------------------------------------------------------------- */

static enum ha_status learn(const char *id, const char *name)
{
    struct ha_case c;
    HA_TRY(ha_case_parse(id, &c, &reason));
    const enum ha_status status = ha_fit_learn(&c, id, test_path(name), test_print(), &reason);
    test_printed();
    return status;
}

/* The one case KEYS,fit=NAME of the learner, checked: its verdict, or those of a column. */
static struct ha_driven driven;
static const struct ha_result *check(const char *keys, const char *name)
{
    static char words[1024];
    snprintf(words, sizeof words, "learner:%s,fit=%s", keys, test_path(name));
    ha_driven_free(&driven);
    if (ha_drive(&(struct ha_drive){ .words = words }, &driven, &reason) != HA_OK)
        fail_msg("%s: %s", words, reason.text);
    return ha_result_in(driven.results.entry->row);
}
static void expect_pass(const char *keys, const char *name, const char *text)
{
    const struct ha_result *r = check(keys, name);
    if (r->verdict != HA_PASS) fail_msg("%s: verdict %d: %s", keys, (int)r->verdict, r->reason);
    assert_string_equal(ha_driven_text(&driven, driven.results.entry, "fit"), test_path(name));
    assert_string_equal(ha_driven_text(&driven, driven.results.entry, "fit_text"), text);
}
static double keys_used(void) { return ha_driven_number(&driven, driven.results.entry, "keys_mean"); }

#define WALK_OF(ctx, heads, layers, model_dim) \
    "dataset=walk,steps=2,ctx=" ctx ",heads=" heads ",layers=" layers ",model_dim=" model_dim
#define IID(ctx) "dataset=iid,steps=2,heads=4/2,layers=2,ctx=" ctx
#define WALK     WALK_OF("200", "4/2", "2", "128")

TEST(a_variant_reads_what_it_has_learnt)
{
    assert_ok(learn("learner:" IID("200") ",share=0.5", "half"));
    expect_pass(IID("200") ",share=0.5", "half", "own");
    const double half = keys_used();
    assert_true(half > 50 && half < 150);
    expect_pass(IID("200") ",share=0.5,seed=2", "half", "other");
    assert_true(keys_used() == half); /* the window is the file's */
    assert_ok(learn("learner:" IID("200") ",share=1", "all"));
    expect_pass(IID("150+100") ",share=1,dtype=bf16", "all", "own");
    expect_pass(IID("200") ",share=1", "all", "own");
    assert_true(keys_used() >= 200);
}

/* Every input that a hook is handed is the dataset's; keys, values and queries are those of a prefill, which
 * test_session.c looks at. */
TEST(inputs_are_those_of_the_dataset)
{
    struct ha_tensor t = { .name = "x", .type = HA_T_F32, .dims = 3, .dim = { 2, 5, 128 } };
    float x[128];
    assert_ok(learn("learner:" WALK ",observed=5", "x"));
    assert_ok(ha_fit_open(&fit, test_path("x"), &reason));
    assert_ok(ha_fit_get(fit, &t, &reason));
    open_session("resident:" WALK ",observed=5");
    const struct ha_workload *w = session.workload;
    for (size_t layer = 0; layer < 2; layer++)
        for (size_t i = 0; i < 5; i++) {
            w->dataset->input(w->source, 0, layer, 195 + i, x);
            assert_memory_equal((const float *)t.data + (layer * 5 + i) * 128, x, sizeof x);
        }
    close_session();
    ha_fit_close(fit);
}

TEST(the_same_case_makes_the_same_file)
{
    static char first[1 << 16];
    struct stat st;
    assert_ok(learn("learner:dataset=sinks,ctx=100,threads=1", "one"));
    assert_ok(learn("learner:dataset=sinks,ctx=100,threads=1", "two"));
    assert_int_equal(stat(test_path("one"), &st), 0);
    assert_true(st.st_size > 100 && (size_t)st.st_size < sizeof first);
    memcpy(first, test_text("one"), (size_t)st.st_size);
    assert_memory_equal(first, test_text("two"), (size_t)st.st_size);
    assert_contains(first + 8, "\"case\":\"learner:dataset=sinks,ctx=100,threads=1\"");
    assert_contains(first + 8, "\"text.0\":\"sinks seed 1\"");
}

/* A trace of one layer, one head of 8, whose keys are noise of that seed; the queries of its last 12 tokens. */
static void write_trace(const char *name, const char *source, uint64_t seed, size_t tokens)
{
    float numbers[3][100 * 8];
    char count[24], first[24];
    snprintf(count, sizeof count, "%zu", tokens);
    snprintf(first, sizeof first, "%zu", tokens - 12);
    const char *const pairs[] = { "format",     "habench-trace",
                                  "version",    "1",
                                  "model",      "m",
                                  "source",     source,
                                  "tokens",     count,
                                  "q_first",    first,
                                  "layers",     "1",
                                  "q_heads",    "1",
                                  "kv_heads",   "1",
                                  "head_dim",   "8",
                                  "model_dim",  "8",
                                  "rope_theta", "0",
                                  "norm_eps",   "0",
                                  "scale",      "0.5",
                                  "licence",    "none",
                                  NULL };
    const struct ha_tensor t[] = {
        { "layers.0.k", HA_T_F32, 3, { 1, tokens, 8 }, numbers[0], tokens * 8 * sizeof(float) },
        { "layers.0.v", HA_T_F32, 3, { 1, tokens, 8 }, numbers[1], tokens * 8 * sizeof(float) },
        { "layers.0.q", HA_T_F32, 3, { 1, 12, 8 }, numbers[2], sizeof(float) * 12 * 8 },
    };
    assert_true(tokens <= 100);
    for (size_t i = 0; i < 3; i++) ha_rng_normals(seed, i, 0, 100 * 8, numbers[i]);
    assert_ok(ha_safetensors_write(test_path(name), t, 3, pairs, &reason));
}

/* A fit that is judged on the text that it was learnt from is no evidence: the row says so. */
TEST(rows_say_whose_text_it_was)
{
    static const struct {
        const char *of, *text;
    } cases[] = { { "a", "own" }, { "named", "own" }, { "longer", "own" }, { "source", "own" }, { "b", "other" } };
    char keys[512];
    write_trace("a", "a chapter, its first 80 tokens", 1, 80);
    write_trace("named", "notes", 1, 80);
    write_trace("longer", "a chapter, its first 90 tokens", 1, 90);
    write_trace("source", "a chapter, its first 80 tokens", 2, 80);
    write_trace("b", "another chapter", 3, 80);
    snprintf(keys, sizeof keys, "learner:steps=1,observed=4,ctx=78,dataset=trace/%s", test_path("a"));
    assert_ok(learn(keys, "fit"));
    for (size_t i = 0; i < COUNT(cases); i++) {
        const size_t ctx = strcmp(cases[i].of, "longer") ? 78 : 88;
        snprintf(keys, sizeof keys, "steps=1,observed=4,ctx=%zu,dataset=trace/%s", ctx, test_path(cases[i].of));
        expect_pass(keys, "fit", cases[i].text);
    }
    snprintf(keys, sizeof keys, "steps=1,observed=4,ctx=78,batch=2,dataset=trace/%s", test_path("b"));
    snprintf(keys + strlen(keys), sizeof keys - strlen(keys), "+%s", test_path("a"));
    expect_pass(keys, "fit", "own"); /* one of its texts */
    ha_driven_free(&driven);
    assert_int_equal(ha_drive(&(struct ha_drive){ .words = "learner:ctx=20,layers=1,steps=1" }, &driven, &reason),
                     HA_OK);
    assert_string_equal(ha_driven_text(&driven, driven.results.entry, "fit_text"), "");
    assert_int_equal(ha_result_in(driven.results.entry->row)->verdict, HA_VERDICT_WAIVED);
}

static void expect_error(const char *keys, const char *name, const char *part)
{
    const struct ha_result *r = check(keys, name);
    assert_int_equal(r->verdict, HA_VERDICT_ERROR);
    assert_contains(r->reason, part);
}

TEST(fits_of_something_else)
{
    assert_ok(learn("learner:" WALK, "walk"));
    expect_pass(WALK, "walk", "own");
    expect_error("dataset=residual,ctx=200,heads=4/2,layers=2,steps=2,model_dim=128", "walk",
                 "was made for model 'walk', the case has 'residual': `habench fit CASE -o FILE` makes another");
    expect_error(WALK_OF("200", "4/2", "1", "128"), "walk", "was made for layers '2', the case has '1'");
    expect_error(WALK_OF("200", "8/2", "2", "128"), "walk", "was made for q_heads '4', the case has '8'");
    expect_error(WALK_OF("200", "4/4", "2", "128"), "walk", "was made for kv_heads '2', the case has '4'");
    expect_error(WALK ",head_dim=32", "walk", "was made for head_dim '64', the case has '32'");
    expect_error(WALK_OF("200", "4/2", "2", "256"), "walk", "was made for model_dim '128', the case has '256'");
    expect_error(WALK ",share=0.8", "walk", "was made for params 'share=0.9', the case has 'share=0.8'");
    expect_pass(WALK ",sink=0", "walk", "own"); /* nothing that was learnt hangs on it */
}

TEST(cases_that_read_none)
{
    struct ha_case c;
    assert_int_equal(ha_case_parse("streaming:fit=a", &c, &reason), HA_ERROR);
    expect_reason("fit: streaming learns nothing; those that do: duo fluxion scout clo hcattention pqcache learner");
    assert_ok(ha_case_parse("streaming:fit=none", &c, &reason));
    assert_ok(ha_case_parse("learner:fit=a", &c, &reason));
    assert_int_equal(learn("streaming", "d"), HA_FAIL);
    expect_reason("fit: streaming learns nothing; those that do: duo fluxion scout clo hcattention pqcache learner");
    assert_int_equal(learn("learner:fit=a", "d"), HA_FAIL);
    expect_reason("leave fit=a out");
}

/* ---- pace -------------------------------------------------------------------------------------------------------- */

static const struct ha_device_api *host;
static bool paced; /* the hook has been given one */

enum { SLOW_NS = 5000000 };
static enum ha_status slow_attend(struct ha_stream *s, const struct ha_device_attend *a)
{
    nanosleep(&(struct timespec){ .tv_nsec = SLOW_NS }, NULL);
    return host->attend(s, a);
}

static enum ha_status pace_of(const char *id, const char *kind, double link_GBps, double pace[2])
{
    static struct ha_ceilings ceilings;
    struct ha_device_api api;
    struct ha_machine *machine;
    struct ha_case c;
    assert_ok(ha_device_find("host", &host, &reason));
    api = *host;
    api.kind = kind;
    api.attend = slow_attend;
    ceilings.of[HA_CEIL_H2D].median = link_GBps;
    assert_ok(ha_case_parse(id, &c, &reason));
    assert_ok(ha_machine_create(&machine, NULL, &reason));
    ha_machine_give(machine, "host", &api, &ceilings);
    const enum ha_status status = ha_fit_pace(&c, machine, pace, &reason);
    ha_machine_destroy(machine);
    return status;
}

TEST(pace_is_that_of_the_case)
{
    double pace[2];
    const uint64_t begin_ns = ha_now_ns();
    assert_ok(pace_of("streaming:ctx=20,layers=4,steps=3", "plugin", 12.5, pace));
    const double ns = (double)(ha_now_ns() - begin_ns);
    assert_true(pace[0] >= SLOW_NS && pace[0] <= ns / 8); /* two steps of four layers are in its window */
    assert_true(pace[1] == 12.5);
}

TEST(pace_that_cannot_be_measured)
{
    double pace[2];
    assert_int_equal(pace_of("learner:ctx=20,layers=1", "host", 12.5, pace), HA_WAIVED);
    expect_reason("device host has no link");
    assert_int_equal(pace_of("streaming:ctx=20,layers=1,steps=1", "plugin", (double)NAN, pace), HA_WAIVED);
    expect_reason("the link of device host cannot be measured");
    assert_int_equal(pace_of("learner:ctx=20,layers=1,device=nosuch", "plugin", 1, pace), HA_ERROR);
    expect_reason("nosuch");
}

static enum ha_status asks_pace(const struct ha_fit_input *in, struct ha_fit_writer *out, struct ha_why *why)
{
    paced = in->pace != NULL;
    return ha_fit_put(out, &tensors[0], why);
}

/* Who learns has a line instead, and the fit is made all the same. */
TEST(learning_does_without_pace)
{
    struct ha_case c;
    const char id[] = "learner:ctx=20,layers=1";
    assert_ok(ha_case_parse(id, &c, &reason));
    ha_fake_learner_fit = asks_pace;
    paced = true;
    assert_ok(ha_fit_learn(&c, id, test_path("unpaced"), test_print(), &reason));
    ha_fake_learner_fit = NULL;
    assert_contains(test_printed(), "no pace is measured: device host has no link\n");
    assert_true(!paced && access(test_path("unpaced"), F_OK) == 0);
    const char other_id[] = "scout:dataset=walk,ctx=200,observed=20,layers=2,steps=1"; /* asks for none */
    assert_ok(ha_case_parse(other_id, &c, &reason));
    assert_ok(ha_fit_learn(&c, other_id, test_path("scout"), test_print(), &reason));
    assert_null(strstr(test_printed(), "pace"));
}

/* ---- hooks that fail, and places that cannot be written ---------------------------------------------------------- */

static enum ha_status wrong(const struct ha_fit_input *in, struct ha_fit_writer *out, struct ha_why *why)
{
    HA_TRY(ha_fit_put(out, &tensors[0], why));
    return ha_why(why, HA_WAIVED, "too few tokens");
}
static enum ha_status misshapen(const struct ha_fit_input *in, struct ha_fit_writer *out, struct ha_why *why)
{
    return ha_fit_put(out, &(struct ha_tensor){ "window", HA_T_F32, 1, { 6 }, .data = f32 }, why);
}
static enum ha_status other(const struct ha_fit_input *in, struct ha_fit_writer *out, struct ha_why *why)
{
    return ha_fit_put(out, &tensors[0], why);
}
static enum ha_status nothing(const struct ha_fit_input *in, struct ha_fit_writer *out, struct ha_why *why)
{
    return HA_OK;
}

TEST(a_hook_that_fails_leaves_no_file)
{
    static const struct {
        enum ha_status (*hook)(const struct ha_fit_input *in, struct ha_fit_writer *out, struct ha_why *why);
        enum ha_status status;
        const char *reason;
    } hooks[] = { { wrong, HA_WAIVED, "learner: too few tokens" }, { nothing, HA_ERROR, "nothing was learnt" } };
    for (size_t i = 0; i < COUNT(hooks); i++) {
        ha_fake_learner_fit = hooks[i].hook;
        assert_int_equal(learn("learner:ctx=20", "e"), hooks[i].status);
        expect_reason(hooks[i].reason);
        assert_true(access(test_path("e"), F_OK) && access(test_path("e.part"), F_OK));
    }
    ha_fake_learner_fit = NULL;
}

TEST(a_fit_of_another_version_of_the_variant)
{
    ha_fake_learner_fit = misshapen;
    assert_ok(learn("learner:" WALK, "misshapen"));
    expect_error(WALK, "misshapen", "misshapen: tensor window has shape [6], and [2][4] is wanted (`habench fit");
    ha_fake_learner_fit = other;
    assert_ok(learn("learner:" WALK, "other"));
    expect_error(WALK, "other",
                 "tensor window is missing: it was made by another version of the variant (`habench fit");
    ha_fake_learner_fit = NULL;
}

TEST(places_that_are_taken_or_closed)
{
    test_write("there", "x", 1);
    assert_int_equal(learn("learner:ctx=20", "there"), HA_FAIL);
    expect_reason("there: it is there already; remove it, or give another name");
    assert_string_equal(test_text("there"), "x");
    assert_int_equal(learn("learner:ctx=20", "no/such"), HA_ERROR);
    expect_reason("no/such: cannot write: No such file or directory");
    assert_int_equal(learn("learner:dataset=trace/nosuch,ctx=20", "f"), HA_ERROR);
    expect_reason("trace nosuch: no such file");
    assert_true(access(test_path("f.part"), F_OK) != 0);
}

static int end(void **state)
{
    ha_driven_free(&driven);
    return test_folder_remove(state);
}

TEST_MAIN { return test_all("tests", test_folder_make, end); }
