/* The engine over the real variants, kernels and the host device. argv[1]: all | small. */

#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "harness/base/safetensors.h"
#include "suites/variants/case.h"
#include "suites/variants/check.h"
#include "harness/base/registry.h"
#include "suites/variants/run.h"
#include "suites/variants/session.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

/* written so that a NaN fails */
#define assert_near(a, b, tolerance) assert_true(fabs((a) - (b)) <= (tolerance))

static bool small;
static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/ha-run-XXXXXX", P_tmpdir);
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    DIR *d = opendir(folder);
    struct dirent *e;

    (void)state;
    while (d && (e = readdir(d))) {
        char path[400];
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%.60s/%.300s", folder, e->d_name);
        unlink(path);
    }
    if (d) closedir(d);
    return rmdir(folder);
}

static struct ha_case parse(const char *id)
{
    struct ha_why why = { "" };
    struct ha_case c;

    if (ha_case_parse(id, &c, &why) != HA_OK) fail_msg("%s: %s", id, why.text);
    return c;
}

/* One case in a run of its own, whose report goes nowhere. */
static enum ha_verdict verdict(const char *id, struct ha_run_options options, struct ha_why *why)
{
    struct ha_case c = parse(id);
    struct ha_why opened = { "" };
    struct ha_run *run;

    if (ha_run_open(&run, &options, &opened) != HA_OK) fail_msg("%s", opened.text);
    enum ha_verdict v = ha_run_case(run, &c, why);
    ha_run_close(run, &opened);
    return v;
}

static void expect_pass(const char *id)
{
    struct ha_why why = { "" };
    enum ha_verdict v = verdict(id, (struct ha_run_options){ 0 }, &why);

    if (v != HA_PASS) fail_msg("%s: verdict %d: %s", id, (int)v, why.text);
}

/* ---- checks ------------------------------------------------------------------------------ */

static void variants_pass(void **state)
{
    static const char *const shape[] = {
        "ctx=150,heads=4/2,head_dim=64,layers=2,steps=2",
        "ctx=40+130,heads=4/2,head_dim=64,layers=1,steps=2,q_len=3,dtype=bf16",
    };

    (void)state;
    for (size_t v = 0; v < ha_variants_count; v++)
        for (size_t i = 0; i < (small ? 1 : 2); i++) {
            char id[256];
            snprintf(id, sizeof id, "%s:%s", ha_variants_all[v]->name, shape[i]);
            expect_pass(id);
        }
}

static void any_number_of_threads(void **state)
{
    static const int threads[] = { 1, 2, 5, 8 };

    (void)state;
    for (size_t i = 0; i < 2; i++)
        for (size_t t = 0; t < 4; t++) {
            char text[256];
            snprintf(text, sizeof text,
                     i ? "hgca:ctx=200,heads=4/2,head_dim=64,layers=2,steps=2,blk_size=8,blk_num=4,threads=%d"
                       : "cpu:ctx=100,heads=4/2,head_dim=64,layers=1,steps=2,threads=%d",
                     threads[t]);
            expect_pass(text);
        }
}

static void a_defect_fails_and_says_how_to_rerun(void **state)
{
    struct ha_why why = { "" };

    (void)state;
    assert_int_equal(verdict("cpu:ctx=100,heads=4/2,head_dim=64,layers=1,steps=2",
                             (struct ha_run_options){ .mutant = "wrong_scale" }, &why),
                     HA_VERDICT_FAIL);
    assert_non_null(strstr(why.text, "question 1"));
    assert_non_null(strstr(why.text, "bound"));
    assert_non_null(strstr(why.text, "habench check 'cpu:"));
    assert_int_equal(verdict("cpu:ctx=10", (struct ha_run_options){ .mutant = "wrong_scal" }, &why), HA_VERDICT_ERROR);
    assert_non_null(strstr(why.text, "wrong_scale"));
}

static void too_large_is_refused_before_anything_is_allocated(void **state)
{
    struct ha_why why = { "" };

    (void)state;
    assert_int_equal(
        verdict("cpu:ctx=100000000,layers=16,heads=32/32,head_dim=128", (struct ha_run_options){ 0 }, &why),
        HA_VERDICT_ERROR);
    assert_non_null(strstr(why.text, "needs "));
    assert_non_null(strstr(why.text, "ctx"));
}

static void unknown_names_are_errors(void **state)
{
    struct ha_why why = { "" };
    struct ha_case c = parse("cpu:ctx=10");
    struct ha_run_options options = { 0 };
    struct ha_run *run;

    (void)state;
    assert_int_equal(ha_run_open(&run, &options, &why), HA_OK);
    snprintf(c.variant, sizeof c.variant, "cpuu");
    assert_int_equal(ha_run_case(run, &c, &why), HA_VERDICT_ERROR);
    snprintf(c.variant, sizeof c.variant, "cpu");
    snprintf(c.device, sizeof c.device, "no_such_device");
    assert_int_equal(ha_run_case(run, &c, &why), HA_VERDICT_ERROR);
    assert_non_null(strstr(why.text, "no_such_device"));
    snprintf(c.device, sizeof c.device, "host");
    assert_int_equal(ha_run_case(run, &c, &why), HA_PASS); /* the run goes on */
    ha_run_close(run, &why);
}

/* ---- the same again ------------------------------------------------------------------------ */

enum { BITS_MAX = 1 << 16 };

/* inputs and outputs of all steps, as bits */
static size_t bits_of(const char *id, unsigned char *out)
{
    struct ha_case c = parse(id);
    struct ha_machine *machine;
    struct ha_session s;
    struct ha_pass p;
    struct ha_why why = { "" };
    size_t n = 0;

    assert_int_equal(ha_machine_create(&machine, &why), HA_OK);
    if (ha_session_open(&s, machine, &c, ha_variant_find(c.variant), NULL, NULL, &why) != HA_OK)
        fail_msg("%s", why.text);
    assert_int_equal(ha_pass_begin(&p, &s, s.variant, s.param, true, &why), HA_OK);
    for (size_t step = 0; step < c.shape.steps; step++) {
        assert_int_equal(ha_pass_step(&p, step, &why), HA_OK);
        size_t in = c.shape.layers * s.io.in_bytes, o = c.shape.layers * s.io.out_bytes;
        assert_true(n + in + o <= BITS_MAX);
        memcpy(out + n, s.host_in, in);
        memcpy(out + n + in, s.host_out, o);
        n += in + o;
        for (size_t head = 0; head < c.shape.q_heads; head++) {
            struct ha_selection chosen;
            s.variant->selection(p.instance, 0, 0, head, &chosen);
            for (size_t part = 0; part < chosen.parts; part++) {
                assert_true(n + chosen.part[part].count * 4 <= BITS_MAX);
                memcpy(out + n, chosen.part[part].token, chosen.part[part].count * 4);
                n += chosen.part[part].count * 4;
            }
        }
    }
    assert_int_equal(ha_pass_end(&p, &why), HA_OK);
    ha_session_close(&s);
    ha_machine_destroy(machine);
    return n;
}

static void one_seed_one_answer(void **state)
{
    static unsigned char a[BITS_MAX], b[BITS_MAX];
    static const char *const id[] = {
        "hgca:ctx=120,heads=4/2,head_dim=64,layers=2,steps=2,blk_size=8,blk_num=4,seed=9,threads=1",
        "h2o:ctx=120,heads=4/2,head_dim=64,layers=2,steps=2,seed=9,threads=1",
        "offload:ctx=120,heads=4/2,head_dim=64,layers=2,steps=2,seed=9,threads=1",
    };

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        size_t n = bits_of(id[i], a);
        assert_int_equal(n, bits_of(id[i], b));
        assert_memory_equal(a, b, n);
        assert_true(n > 1000);
    }
    /* and another seed is another case */
    size_t n = bits_of("offload:ctx=120,heads=4/2,head_dim=64,layers=2,steps=2,seed=10,threads=1", a);
    assert_memory_not_equal(a, b, n);
}

/* ---- files --------------------------------------------------------------------------------- */

static size_t lines_of(const char *name)
{
    char path[128];
    size_t lines = 0;

    snprintf(path, sizeof path, "%.60s/%.60s", folder, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (int c; (c = getc(f)) != EOF;) lines += c == '\n';
    fclose(f);
    return lines;
}

static void a_bench_writes_its_files(void **state)
{
    struct ha_why why = { "" };
    struct ha_run_options options = { .bench = true, .suite = "smoke", .out_dir = folder };
    static const char *const id = "hgca:ctx=150,heads=4/2,head_dim=64,layers=2,steps=6,blk_size=8,blk_num=4";

    (void)state;
    if (verdict(id, options, &why) != HA_PASS) fail_msg("%s", why.text);
    assert_int_equal(lines_of("cases.csv"), 2);
    assert_int_equal(lines_of("summary.csv"), 2);
    assert_int_equal(lines_of("accuracy.csv"), 1 + 4 * 2); /* the first two and the last two steps, of two layers */
    assert_true(lines_of("samples.csv") > 6);
    assert_true(lines_of("trace.json") > 4);
    assert_true(lines_of("junit.xml") > 4);
    assert_true(lines_of("env.json") > 4);

    options.resume = true;
    assert_int_equal(verdict(id, options, &why), HA_PASS);
    assert_int_equal(lines_of("cases.csv"), 2); /* not run again */
    assert_int_equal(verdict("cpu:ctx=100,heads=4/2,head_dim=64,layers=1,steps=2", options, &why), HA_PASS);
    assert_int_equal(lines_of("cases.csv"), 3);
}

/* A full disk, as a limit on the size of files: the rows so far stay whole, and the way on is named. */
static void a_full_disk_ends_the_run(void **state)
{
    struct ha_run_options options = { .out_dir = folder };
    struct ha_case c = parse("cpu:ctx=60,heads=2/1,head_dim=64,layers=1,steps=1");
    struct ha_why why = { "" }, closed = { "" };
    struct rlimit before, tight;
    struct ha_run *run;
    enum ha_verdict v = HA_PASS;
    size_t passed = 0;

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    tight = before;
    tight.rlim_cur = 4096;
    assert_int_equal(ha_run_open(&run, &options, &why), HA_OK);
    setrlimit(RLIMIT_FSIZE, &tight);
    for (int i = 0; i < 40 && v == HA_PASS; i++) {
        c.seed = (uint64_t)i + 1;
        v = ha_run_case(run, &c, &why);
        passed += v == HA_PASS;
    }
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(v, HA_VERDICT_ERROR);
    assert_non_null(strstr(why.text, "--resume"));
    assert_true(passed > 2);
    assert_int_equal(ha_run_case(run, &c, &why), HA_VERDICT_ERROR);
    assert_int_equal(ha_run_close(run, &closed), HA_ERROR);
    assert_int_equal(lines_of("cases.csv"), 1 + passed);
    options.resume = true;
    assert_int_equal(verdict("cpu:ctx=60,heads=2/1,head_dim=64,layers=1,steps=1,seed=77", options, &why), HA_PASS);
}

static void stopping_keeps_no_half_case(void **state)
{
    struct ha_run_options options = { .out_dir = folder };
    struct ha_why why = { "" };

    (void)state;
    ha_stop = SIGINT;
    enum ha_verdict v = verdict("cpu:ctx=60,heads=2/1,head_dim=64,layers=1,steps=1", options, &why);
    ha_stop = 0;
    assert_int_equal(v, HA_VERDICT_WAIVED);
    assert_int_equal(lines_of("cases.csv"), 1);
}

/* The dump judged by the few lines that its header promises to be enough. */
static void the_dump_can_be_audited(void **state)
{
    struct ha_run_options options = { .dump_dir = folder };
    struct ha_safetensors *file;
    struct ha_why why = { "" };
    char path[400] = "";
    DIR *d;

    (void)state;
    assert_int_equal(
        verdict("hgca:ctx=100,heads=4/2,head_dim=64,layers=2,steps=2,blk_size=8,blk_num=4,dtype=f16", options, &why),
        HA_PASS);
    d = opendir(folder);
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, ".safetensors")) snprintf(path, sizeof path, "%.60s/%.300s", folder, e->d_name);
    closedir(d);
    if (ha_safetensors_open(&file, path, &why) != HA_OK) fail_msg("%s", why.text);
    assert_non_null(strstr(ha_safetensors_meta(file, "case"), "hgca:"));
    double scale = strtod(ha_safetensors_meta(file, "scale"), NULL);
    const struct ha_tensor *q = ha_safetensors_find(file, "layer1.seq0.q"),
                           *k = ha_safetensors_find(file, "layer1.seq0.k");
    const struct ha_tensor *v = ha_safetensors_find(file, "layer1.seq0.v"),
                           *out = ha_safetensors_find(file, "layer1.seq0.out");
    const struct ha_tensor *lse = ha_safetensors_find(file, "layer1.seq0.lse"),
                           *token = ha_safetensors_find(file, "layer1.seq0.token");
    const struct ha_tensor *offset = ha_safetensors_find(file, "layer1.seq0.offset");
    assert_true(q && k && v && out && lse && token && offset);
    assert_int_equal(k->dim[0], 2);
    assert_int_equal(k->dim[1], 101);
    assert_int_equal(k->type, HA_T_F16);
    size_t n_parts = offset->dim[1];
    for (size_t h = 0; h < 4; h++) {
        const int32_t *at = (const int32_t *)offset->data + h * n_parts, *t = token->data;
        double sum = 0, o[64] = { 0 }, most = -(double)INFINITY, s[101];
        for (int32_t i = at[0]; i < at[n_parts - 1]; i++) {
            size_t row = (h / 2 * 101 + (size_t)t[i]) * 64;
            double dot = 0;
            for (size_t j = 0; j < 64; j++)
                dot += (double)((const float *)q->data)[h * 64 + j] * (double)ha_load(k->data, row + j, HA_F16);
            s[i - at[0]] = scale * dot;
            most = fmax(most, scale * dot);
        }
        for (int32_t i = at[0]; i < at[n_parts - 1]; i++) {
            double w = exp(s[i - at[0]] - most);
            sum += w;
            for (size_t j = 0; j < 64; j++)
                o[j] += w * (double)ha_load(v->data, (h / 2 * 101 + (size_t)t[i]) * 64 + j, HA_F16);
        }
        assert_near((double)((const float *)lse->data)[h], most + log(sum), 1e-4);
        for (size_t j = 0; j < 64; j++) assert_near((double)((const float *)out->data)[h * 64 + j], o[j] / sum, 1e-5);
    }
    ha_safetensors_close(file);
}

static void every_mutant_is_killed(void **state)
{
    struct ha_run_options options = { 0 };
    struct ha_why why = { "" };

    (void)state;
    if (small) skip();
    if (ha_mutants_run(&options, &why) != HA_OK) fail_msg("%s", why.text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variants_pass),
        cmocka_unit_test(any_number_of_threads),
        cmocka_unit_test(a_defect_fails_and_says_how_to_rerun),
        cmocka_unit_test(too_large_is_refused_before_anything_is_allocated),
        cmocka_unit_test(unknown_names_are_errors),
        cmocka_unit_test(one_seed_one_answer),
        cmocka_unit_test_setup_teardown(a_bench_writes_its_files, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_full_disk_ends_the_run, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(stopping_keeps_no_half_case, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(the_dump_can_be_audited, make_folder, remove_folder),
        cmocka_unit_test(every_mutant_is_killed),
    };

    small = argc > 1 && !strcmp(argv[1], "small");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
