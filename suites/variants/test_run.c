/* The suite of variants over the real kernels and the host device, in this process. What the program makes of it, files
 * and exit codes, is looked at by scripts/test-cli.sh. argv[1]: all | small. */

#include "harness/base/numeric.h"
#include "harness/base/safetensors.h"
#include "harness/base/stop.h"
#include "harness/base/test_beside.h"
#include "harness/base/test_folder.h"
#include "harness/engine/drive.h"
#include "harness/engine/machine.h"
#include "harness/measure/eps.h"
#include "harness/report/row.h"
#include "suites/variants/dump.h"
#include "suites/variants/fill.h"
#include "suites/variants/test_session.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <sys/statvfs.h>

static bool small;
static struct ha_driven driven;

/* every case of these words; is to be freed */
static void drive(const struct ha_drive *how)
{
    if (ha_drive(how, &driven, &reason) != HA_OK) fail_msg("%s: %s", how->words, reason.text);
}

/* The verdict of a case by itself, checked; its reason stays until the next one. */
static enum ha_verdict verdict(const char *id, const char **says)
{
    static char text[512];
    drive(&(struct ha_drive){ .words = id });
    assert_int_equal(driven.results.entries, 1);
    const struct ha_result head = *ha_result_in(driven.results.entry->row);
    snprintf(text, sizeof text, "%s", head.reason);
    *says = text;
    ha_driven_free(&driven);
    return head.verdict;
}

/* Of an arm whose output is not attention there is nothing to check. */
static void expect_right(const char *id)
{
    char name[64] = "";
    const char *says;
    sscanf(id, "%63[^:]", name);
    const struct ha_variant *of = ha_variant_find(name);
    assert_non_null(of);
    const enum ha_verdict v = verdict(id, &says), wanted = of->checked ? HA_PASS : HA_UNCHECKED;
    if (v != wanted) fail_msg("%s: verdict %d: %s", id, (int)v, says);
}

/* ---- checks ------------------------------------------------------------------------------ */

TEST(variants_are_right)
{
    static const char *const shape[] = {
        "dataset=walk,ctx=150,heads=4/2,head_dim=64,layers=2,steps=2", /* with layer inputs, for all */
        "ctx=40+130,heads=4/2,head_dim=64,layers=1,steps=2,q_len=3,dtype=bf16",
    };
    char id[256];
    for (size_t v = 0; v < ha_variants_count; v++)
        for (size_t i = 0; i < (small ? 1 : 2); i++) {
            const char *name = ha_variants_all[v]->name;
            /* as it is it reads a fit, of which there is none of these shapes */
            const char *with = strcmp(name, "fluxion") ? "" : ",predict=oracle,sink=4,recent=8";
            snprintf(id, sizeof id, "%s:%s%s", name, shape[i], with);
            expect_right(id);
        }
}

TEST(a_defect_fails_and_says_how_to_rerun)
{
    struct ha_check check = { .session = &session, .id = "cpu:ctx=100,heads=4/2,head_dim=64,layers=1,steps=2" };
    assert_ok(try_session(check.id, "wrong_scale"));
    assert_int_equal(ha_check_run(&check, &reason), HA_FAIL);
    ha_check_free(&check);
    close_session();
    assert_non_null(strstr(reason.text, "question 1"));
    assert_non_null(strstr(reason.text, "bound"));
    assert_non_null(strstr(reason.text, "habench check 'cpu:"));
}

/* The embedded device, whose exp or log is another where attention looks at it, when it is opened. */
extern const struct ha_device_api ha_device_host;
static float bent_o, bent_lse;
static enum ha_status bent_attend(struct ha_stream *stream, const struct ha_device_attend *a)
{
    const enum ha_status st = ha_device_host.attend(stream, a);
    if (st != HA_OK || (a->q_len != HA_EPS_ARGUMENTS && a->q_len != HA_EPS_LOGS)) return st;
    assert_ok(ha_device_host.stream_sync(stream));
    for (size_t t = 0; t < a->q_len; t++) {
        if (a->q_len == HA_EPS_ARGUMENTS) a->seqs->o[t * a->head_dim + 1] *= bent_o;
        else a->seqs->lse[t] *= bent_lse;
    }
    return st;
}

/* Outputs within the bounds of claims that are not true prove nothing: the case fails, and the field is named. */
TEST(a_device_that_claims_too_little_fails)
{
    static const struct {
        float o, lse;
        const char *says;
    } each[] = {
        { 1, 1, NULL },
        { 1 + 0x1p-16f, 1, "the device claims too little: its profile[f16]: exp_eps is" },
        { 1, 1 - 0x1p-18f, "the device claims too little: its profile[f16]: log_eps is" },
    };
    struct ha_device_api api = ha_device_host;
    api.attend = bent_attend;
    for (size_t i = 0; i < COUNT(each); i++) {
        struct ha_drive how = { .words = "resident:ctx=20,heads=4/2,head_dim=64,layers=1,steps=1,dtype=f16" };
        bent_o = each[i].o;
        bent_lse = each[i].lse;
        assert_ok(ha_machine_create(&how.config.machine, NULL, &reason));
        ha_machine_give(how.config.machine, "host", &api, NULL);
        drive(&how);
        assert_int_equal(driven.verdict[each[i].says ? HA_VERDICT_FAIL : HA_PASS], 1);
        const char *says = ha_result_in(driven.results.entry->row)->reason;
        if (each[i].says && !strstr(says, each[i].says)) fail_msg("'%s' is not '%s'", says, each[i].says);
        if (!each[i].says) assert_non_null(strstr(driven.printed, "sensitivity, at worst: errors above "));
        ha_driven_free(&driven);
        ha_machine_destroy(how.config.machine);
    }
}

TEST(too_large_is_refused_before_anything_is_allocated)
{
    const char *says;
    assert_int_equal(verdict("cpu:ctx=100000000,layers=16,heads=32/32,head_dim=128", &says), HA_VERDICT_ERROR);
    assert_non_null(strstr(says, "needs "));
    assert_non_null(strstr(says, "ctx"));
}

TEST(unknown_names_are_errors)
{
    assert_int_equal(ha_drive(&(struct ha_drive){ .words = "cpuu:ctx=10" }, &driven, &reason), HA_ERROR);
    ha_driven_free(&driven);
    drive(&(struct ha_drive){ .words = "cpu:ctx=10,device=no_such_device cpu:ctx=10" });
    assert_int_equal(driven.verdict[HA_VERDICT_ERROR], 1);
    assert_non_null(strstr(ha_result_in(driven.results.entry->row)->reason, "no_such_device"));
    assert_int_equal(driven.verdict[HA_PASS], 1); /* the run goes on */
    ha_driven_free(&driven);
}

/* ---- the same again ------------------------------------------------------------------------ */

static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001b3; /* FNV-1a */
    return h;
}

/* of every bit of the inputs, outputs and selections of all steps */
static uint64_t bits_of(const char *id)
{
    struct ha_pass p;
    uint64_t h = 0xcbf29ce484222325;
    open_session(id);
    const struct ha_shape *shape = &opened.c.shape;
    begin_pass(&p, true);
    for (size_t step = 0; step < shape->steps; step++) {
        assert_ok(ha_pass_step(&p, step, &reason));
        h = hash(h, session.host_in, shape->layers * session.io.in_bytes);
        h = hash(h, session.host_out, shape->layers * session.io.out_bytes);
        for (size_t head = 0; head < shape->q_heads; head++) {
            struct ha_selection chosen;
            p.variant->selection(p.instance, 0, 0, head, &chosen);
            for (size_t part = 0; part < chosen.parts; part++)
                h = hash(h, chosen.part[part].token, chosen.part[part].count * sizeof *chosen.part[part].token);
        }
    }
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    close_session();
    return h;
}

TEST(one_seed_one_answer)
{
    static const char *const id[] = {
        "hgca:ctx=120,heads=4/2,head_dim=64,layers=2,steps=2,blk_size=8,blk_num=4,threads=1",
        "h2o:ctx=120,heads=4/2,head_dim=64,layers=2,steps=2,threads=1",
        "tova:ctx=120,heads=4/2,head_dim=64,layers=2,steps=2,threads=1",
        "duo:ctx=120,heads=4/2,head_dim=64,layers=2,steps=2,threads=1,sink=4,recent=16",
        "offload:ctx=120,heads=4/2,head_dim=64,layers=2,steps=2,threads=1",
        "quest:ctx=120,heads=4/2,head_dim=64,layers=2,steps=2,budget=32,dense_layers=0",
        "gpu_only:ctx=120,heads=4/2,head_dim=64,layers=2,steps=2,budget=0.3",
        "topk:ctx=120,heads=4/2,head_dim=64,layers=2,steps=2,threads=1,k=9,query=ahead,dataset=walk",
        "hybrid_fixed:ctx=120,heads=4/2,head_dim=64,layers=2,steps=2,threads=1,sink=8,recent=16,budget=0.4",
        ("fluxion:ctx=300,heads=4/2,head_dim=64,layers=2,steps=2,threads=2,sink=8,recent=16,predict=oracle,"
         "schedule=length"),
        "infinigen:ctx=120,heads=4/2,head_dim=64,layers=2,steps=2,dataset=walk",
        "lru_blocks:ctx=120,heads=4/2,head_dim=64,layers=2,steps=2,block=8,recent=16,budget=0.3",
        "pqcache:ctx=120,heads=4/2,head_dim=64,layers=2,steps=2,budget=0.3",
        "clo:ctx=120,heads=4/2,head_dim=64,layers=2,steps=2,recent=16,budget=0.3,dataset=walk",
    };
    char another[128];
    for (size_t i = 0; i < COUNT(id); i++) {
        const uint64_t bits = bits_of(id[i]);
        assert_true(bits_of(id[i]) == bits);
        snprintf(another, sizeof another, "%s,seed=2", id[i]);
        assert_true(bits_of(another) != bits);
    }
}

/* ---- what is written beside the row --------------------------------------------------------- */

static size_t lines[HA_SUITE_FILES], traces;
static const char *const roles[] = { "step", "measure", "traced", "warmup", "full" };
static size_t in_role[sizeof roles / sizeof *roles];

/* Of 150 + 6 tokens the ring holds 24 to 31, the others are stored, and each head keeps some of these. */
static const char *const counters[] = { "kv_cpu_tokens", "kv_ctx_tokens", "kept_least", "kept_most" };
static double counted[sizeof counters / sizeof *counters][2],
    *const kv_cpu = counted[0], *const kv_ctx = counted[1], *const least = counted[2], *const most = counted[3];
static void count_of(const struct ha_row *r)
{
    size_t i = 0;
    while (i < COUNT(counters) && strcmp(r->counter, counters[i]) != 0) i++;
    assert_true(i < COUNT(counters) && r->layer < 2);
    counted[i][(size_t)r->layer] = r->value;
}

static void line(void *arg, size_t file, const void *row)
{
    const struct ha_row *r = row;
    assert_true(file < HA_SUITE_FILES);
    lines[file]++;
    for (size_t i = 0; file == 1 && i < sizeof roles / sizeof *roles; i++) in_role[i] += !strcmp(r->role, roles[i]);
    assert_int_equal(file == 1, !isnan(r->block));
    assert_int_equal(file == 2 || file == 4, !isnan(r->layer));
    if (file == 4) count_of(r);
}

static void trace(void *arg, const char *events, size_t bytes)
{
    assert_true(bytes > 4 && *events == '{');
    traces++;
}

TEST(a_bench_says_its_samples_accuracies_and_trace)
{
    memset(lines, 0, sizeof lines);
    memset(in_role, 0, sizeof in_role);
    traces = 0;
    drive(&(struct ha_drive){ .words = "hgca:ctx=150,heads=4/2,head_dim=64,layers=2,steps=6,blk_size=8,blk_num=4",
                              .cap_ns = 300000000,
                              .config = { .measure = true, .engine = { NULL, line, trace, NULL } } });
    assert_int_equal(driven.verdict[HA_PASS], 1);
    assert_int_equal(lines[0] + lines[3], 0); /* rows are the engine's */
    assert_int_equal(lines[4], 8);
    for (size_t l = 0; l < 2; l++) {
        const double mean = kv_ctx[l] / kv_cpu[l];
        assert_true(kv_cpu[l] >= 156 - 31 && kv_cpu[l] <= 156 - 24 && kv_ctx[l] > 0 && kv_ctx[l] < kv_cpu[l]);
        assert_true(least[l] >= 0 && least[l] < mean && most[l] > mean && most[l] <= 1); /* heads differ */
    }
    assert_int_equal(lines[2], 4 * 2); /* the first two and the last two steps, of two layers */
    assert_int_equal(traces, 1);
    const struct ha_row *row = driven.results.entry->row;
    assert_near(row->kept_least, fmin(least[0], least[1]), 0);
    assert_near(row->kept_most, fmax(most[0], most[1]), 0);
    assert_true(row->ratios.merge_share > 0 && row->ratios.merge_share < 1);
    assert_true(row->step_ns > 0 && row->vs_full > 0 && row->head.samples >= 1);
    assert_near((double)in_role[1], row->head.samples, 0); /* of each pass that counts, its steps too */
    assert_int_equal(in_role[0], 5 * in_role[1]);
    assert_true(in_role[2] >= 1 && in_role[4] >= 1);
    assert_non_null(strstr(driven.printed, "\nhgca "));
    ha_driven_free(&driven);
}

/* A check says them, too; a negative beta keeps all that is stored. */
TEST(a_check_says_what_is_counted)
{
    memset(lines, 0, sizeof lines);
    memset(counted, 0, sizeof counted);
    drive(
        &(struct ha_drive){ .words = "hgca:ctx=150,heads=4/2,head_dim=64,layers=2,steps=6,blk_size=8,blk_num=4,beta=-1",
                            .config = { .engine = { NULL, line, trace, NULL } } });
    assert_int_equal(lines[4], 8);
    for (size_t l = 0; l < 2; l++) {
        assert_true(kv_ctx[l] > 0 && fabs(kv_ctx[l] - kv_cpu[l]) < 1e-9);
        assert_near(least[l], 1, 0);
        assert_near(most[l], 1, 0);
    }
    ha_driven_free(&driven);
}

/* Empty where the dataset has no W_O; with that of the trace's model it is smaller than the error of o. */
TEST(the_error_behind_the_output_projection_has_a_column)
{
    static const struct {
        const char *words;
        bool has;
    } each[] = { { "h2o:ctx=1900,layers=1,steps=1,dataset=trace/english", true },
                 { "h2o:ctx=100,layers=1,steps=1,heads=2/1,head_dim=64,dataset=walk", false } };
    for (size_t i = 0; i < COUNT(each); i++) {
        drive(&(struct ha_drive){ .words = each[i].words });
        assert_int_equal(driven.verdict[HA_PASS], 1);
        const struct ha_row *row = driven.results.entry->row;
        assert_true(row->rel_l2 > 0.01);
        if (each[i].has) assert_true(row->rel_l2_wo > 0.01 && row->rel_l2_wo < row->rel_l2);
        else assert_true(isnan(row->rel_l2_wo));
        ha_driven_free(&driven);
    }
}

/* The row of a case that is measured for as long as it takes once, in a run that has this row of the companion from
 * before. */
static struct ha_row measured(const char *id, enum ha_verdict verdict, const char *params)
{
    static const struct ha_ceilings ceilings;
    struct ha_machine *machine;
    struct ha_suite_config config = { .measure = true, .engine = { NULL, line, trace, NULL } };
    struct ha_case c;
    struct ha_row row, known;
    void *run;
    assert_ok(ha_case_parse(id, &c, &reason));
    assert_ok(ha_machine_create(&machine, NULL, &reason));
    const struct ha_device_api *host;
    assert_ok(ha_device_find("host", &host, &reason));
    ha_machine_give(machine, "host", host, &ceilings);
    config.machine = machine;
    ha_fields_clear(&ha_suite_variants, &known);
    ha_fill_case(&known, &c);
    snprintf(known.variant, sizeof known.variant, "%s", HA_COMPANION);
    snprintf(known.params, sizeof known.params, "%s", params);
    snprintf(known.isa, sizeof known.isa, "c"); /* which the session fills in otherwise */
    known.head.verdict = verdict;
    known.step_ns = 12345;
    const struct ha_entry entry = { &c, &known, id };
    const struct ha_results before = { .entry = &entry, .entries = 1 };
    assert_ok(ha_suite_variants.begin(&run, &config, &before, &reason));
    ha_fields_clear(&ha_suite_variants, &row);
    void *rows[] = { &row };
    const void *points[] = { &c };
    bool right = false;
    struct ha_group group = { .count = 1, .row = rows, .point = points, .id = &id, .right = &right, .cap_ns = 1 };
    assert_ok(ha_suite_variants.open(run, &group, &reason));
    assert_ok(ha_suite_variants.check(run, &group, &reason));
    assert_true(right);
    assert_ok(ha_suite_variants.measure(run, &group, &reason));
    ha_suite_variants.close(run, &group);
    ha_suite_variants.end(run);
    ha_machine_destroy(machine);
    return row;
}

/* A run that goes on has step times from before, of cases that passed, as they are without options; a case has the time
 * of its group, and the companion is set beside itself. */
TEST(what_was_measured_before_is_set_beside)
{
    static const struct {
        enum ha_verdict verdict;
        const char *params;
        bool known;
    } each[] = { { HA_PASS, "", true }, { HA_VERDICT_FAIL, "", false }, { HA_PASS, "window=3", false } };
    const char *id = "cpu:ctx=60,heads=2/1,head_dim=64,layers=1,steps=2,threads=1,isa=c";
    for (size_t i = 0; i < COUNT(each); i++) {
        const struct ha_row row = measured(id, each[i].verdict, each[i].params);
        assert_true(row.full_step_ns > 0);
        assert_int_equal(row.full_step_ns == 12345, each[i].known);
        assert_near(row.vs_full, row.step_ns / row.full_step_ns, 1e-12);
        assert_near(row.head.samples, 1, 0); /* there is no time for more */
    }
    const struct ha_row row = measured("resident:ctx=60,heads=2/1,head_dim=64,layers=1,steps=2,threads=1,isa=c",
                                       HA_VERDICT_FAIL, "");
    assert_true(row.full_step_ns == row.step_ns && row.vs_full == 1);
    /* with graphs it is set beside itself without, measured here: what a step with graphs took before is not that */
    struct ha_row graph;
    size_t tries = 5; /* two times of a clock may be equal, five pairs are not */
    do {
        graph = measured("resident:ctx=60,heads=2/1,head_dim=64,layers=1,steps=2,threads=1,isa=c,graph=1", HA_PASS, "");
    } while (graph.full_step_ns == graph.step_ns && --tries);
    assert_true(graph.full_step_ns > 0 && graph.full_step_ns != 12345 && graph.full_step_ns != graph.step_ns);
    assert_near(graph.vs_full, graph.step_ns / graph.full_step_ns, 1e-12);
}

/* Stopped in the middle: no verdict, not an error. */
TEST(stopping_leaves_no_verdict)
{
    open_session("cpu:ctx=60,heads=2/1,head_dim=64,layers=1,steps=1");
    struct ha_check check = { .session = &session, .id = "the case" };
    ha_stop = SIGINT;
    enum ha_status status = ha_check_run(&check, &reason);
    ha_stop = 0;
    assert_int_equal(status, HA_WAIVED);
    ha_check_free(&check);
    close_session();
}

/* ---- the dump ------------------------------------------------------------------------------- */

/* The dump of every step judged by a few lines; scripts/audit.py has more of them. */
TEST(the_dump_can_be_audited)
{
    enum { STEPS = 3, CTX = 100, HEADS = 4, DIM = 64, TOKENS = CTX + STEPS };
    struct ha_safetensors *file;
    char name[HA_ID_MAX + sizeof ".safetensors"];
    drive(&(struct ha_drive){
        .words = "hgca:ctx=100,heads=4/2,head_dim=64,layers=2,steps=3,blk_size=8,blk_num=4,dtype=f16",
        .config = { .dump_dir = test_folder },
    });
    assert_int_equal(driven.verdict[HA_PASS], 1);
    snprintf(name, sizeof name, "%s.safetensors", driven.results.entry->id);
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '.') *c = '_';
    ha_driven_free(&driven);
    assert_ok(ha_safetensors_open(&file, test_path(name), &reason));
    assert_non_null(strstr(ha_safetensors_meta(file, "case"), "hgca:"));
    assert_string_equal(ha_safetensors_meta(file, "param.blk_size"), "8");
    assert_non_null(ha_safetensors_meta(file, "device.exp_eps"));
    assert_non_null(ha_safetensors_meta(file, "host.exact_joins"));
    assert_non_null(ha_safetensors_meta(file, "merge.depth_extra"));
    double scale = strtod(ha_safetensors_meta(file, "scale"), NULL);
#define OF(what) const struct ha_tensor *what = ha_safetensors_find(file, "layer1.seq0." #what)
    OF(q);
    OF(k);
    OF(v);
    OF(out);
    OF(lse);
    OF(part);
    OF(done);
    OF(observed);
#undef OF
    assert_true(q && k && v && out && lse && part && done && observed);
    assert_int_equal(k->type, HA_T_F16);
    assert_int_equal(k->dim[1], TOKENS);
    assert_int_equal(part->dim[2], TOKENS);
    assert_int_equal(observed->dim[0], 16);
    for (size_t i = 0; i < STEPS * HEADS; i++) {
        const uint8_t *used = (const uint8_t *)part->data + i * TOKENS;
        const size_t rows = i % HEADS / 2 * TOKENS;
        double sum = 0, o[DIM] = { 0 };
        assert_int_equal(((const uint8_t *)done->data)[i / HEADS], 1);
        for (size_t t = 0; t < TOKENS; t++) {
            double dot = 0;
            if (!used[t]) continue;
            assert_true(t <= CTX + i / HEADS);
            for (size_t j = 0; j < DIM; j++)
                dot += (double)ha_load(q->data, i * DIM + j, HA_F32)
                       * (double)ha_load(k->data, (rows + t) * DIM + j, HA_F16);
            sum += exp(scale * dot);
            for (size_t j = 0; j < DIM; j++)
                o[j] += exp(scale * dot) * (double)ha_load(v->data, (rows + t) * DIM + j, HA_F16);
        }
        assert_near((double)ha_load(lse->data, i, HA_F32), log(sum), 1e-4);
        for (size_t j = 0; j < DIM; j++) assert_near((double)ha_load(out->data, i * DIM + j, HA_F32), o[j] / sum, 1e-5);
    }
    ha_safetensors_close(file);
}

/* The disk, where it is to be full. */
static bool is_full;
int __real_statvfs(const char *path, struct statvfs *out);
int __wrap_statvfs(const char *path, struct statvfs *out);
int __wrap_statvfs(const char *path, struct statvfs *out)
{
    const int status = __real_statvfs(path, out);
    if (is_full) out->f_bavail = 1;
    return status;
}

/* More bytes than the disk has, or memory: one line, before anything is written. */
TEST(a_dump_that_is_too_large_is_refused)
{
    is_full = true;
    drive(&(struct ha_drive){ .words = "resident:ctx=60,heads=2/1,head_dim=64,layers=1,steps=1",
                              .config = { .dump_dir = test_folder } });
    is_full = false;
    const struct ha_result *head = ha_result_in(driven.results.entry->row);
    assert_int_equal(head->verdict, HA_VERDICT_ERROR);
    assert_contains(head->reason, "dump: needs 0.0 MiB in ");
    assert_contains(head->reason, ", has 0.0 MiB: lower ctx");
    ha_driven_free(&driven);
    open_session("resident:ctx=60,heads=2/1,head_dim=64,layers=1,steps=1");
    struct ha_workload *w = session.workload, large = *w;
    struct ha_dump dump;
    large.shape.steps = (size_t)1 << 34;
    session.workload = &large;
    assert_int_equal(ha_dump_open(&dump, &session, test_folder, "large", &reason), HA_ERROR);
    assert_contains(reason.text, "dump: needs");
    assert_contains(reason.text, "or leave --dump out");
    assert_null(dump.tensor);
    session.workload = w;
    close_session();
}

/* What is wrong is said, also where it cannot be written down. */
TEST(a_dump_that_fails_hides_nothing)
{
    for (int wrong = 0; wrong < 2; wrong++) {
        drive(&(struct ha_drive){ .words = "resident:ctx=60,heads=2/1,head_dim=64,layers=1,steps=1",
                                  .device = wrong ? beside_as_value("wrong_scale.so") : "host",
                                  .config = { .dump_dir = "/dev/null/nowhere" } });
        const struct ha_result *head = ha_result_in(driven.results.entry->row);
        assert_int_equal(head->verdict, wrong ? HA_VERDICT_FAIL : HA_VERDICT_ERROR);
        assert_contains(head->reason, wrong ? "question 1" : "/dev/null/nowhere");
        ha_driven_free(&driven);
    }
}

/* An option of words has a value for each, and none besides: what may be written is what the variant knows. */
TEST(words_are_all_values)
{
    size_t seen = 0;
    for (size_t v = 0; v < ha_variants_count; v++)
        for (size_t i = 0; i < ha_variants_all[v]->params_count; i++) {
            const struct ha_param *p = &ha_variants_all[v]->params[i];
            size_t words = 0;
            while (p->word && p->word(words)) words++;
            if (!p->word) continue;
            if (p->min != 0 || p->max != 0 || p->value < 0 || p->value >= (double)words || floor(p->value) != p->value)
                fail_msg("%s: %s has %zu words, and is %g of %g to %g", ha_variants_all[v]->name, p->name, words,
                         p->value, p->min, p->max);
            seen++;
        }
    assert_true(seen >= 6);
}

TEST_MAIN
{
    small = test_small;
    return test_all("tests", test_folder_make, test_folder_remove);
}
