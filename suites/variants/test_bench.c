/* What is derived from measurements: stop rules, floors, ratios that are left empty, memory, the table. */

#include "harness/base/arena.h"
#include "harness/base/test.h"
#include "harness/measure/cache.h"
#include "harness/report/row.h"
#include "suites/variants/bench.h"
#include "suites/variants/fill.h"
#include "suites/variants/findings.h"
#include "suites/variants/test_session.h"

/* ---- stop rules --------------------------------------------------------------------------- */

TEST(warm_up_ends_where_the_trend_ends)
{
    double x[40];
    for (int i = 0; i < 40; i++) x[i] = i < 20 ? 2000 - 50 * i : 1000 + i % 2;
    assert_false(ha_bench_settled(x + 20, 3));
    assert_false(ha_bench_settled(x, 15)); /* still falling 5% a pass */
    assert_false(ha_bench_settled(x, 21));
    assert_true(ha_bench_settled(x, 24));
}

TEST(precise_needs_passes_steps_and_one_percent)
{
    double x[200];
    for (int i = 0; i < 200; i++) x[i] = 1000 + i % 5;
    assert_false(ha_bench_precise(x, 9, 7));
    assert_true(ha_bench_precise(x, 10, 7));
    assert_false(ha_bench_precise(x, 29, 1));
    assert_true(ha_bench_precise(x, 30, 1));
    for (int i = 0; i < 200; i++) x[i] = i % 2 ? 1000 : 1500;
    assert_false(ha_bench_precise(x, 200, 7));
    x[0] = (double)NAN;
    assert_false(ha_bench_precise(x, 200, 7));
}

/* Of a few passes the range would pass for an interval: of one, +-0%. */
TEST(few_passes_have_no_interval)
{
    const double x[6] = { 4, 1, 5, 9, 2, 6 };
    double lo, hi;
    ha_bench_interval(x, 5, &lo, &hi);
    assert_true(isnan(lo) && isnan(hi));
    ha_bench_interval(x, 6, &lo, &hi);
    assert_near(lo, 1, 0);
    assert_near(hi, 9, 0);
}

/* ---- floors -------------------------------------------------------------------------------- */

static struct ha_ceilings ceilings(void)
{
    struct ha_ceilings c;
    for (int i = 0; i < HA_CEILINGS; i++) c.of[i] = (struct ha_reading){ 1, 1, 1, 1 };
    c.of[HA_CEIL_READ_ALL].hi = 20;
    c.of[HA_CEIL_D2D].median = 50;
    c.device_cache_bytes = 2000;
    c.of[HA_CEIL_DEVICE_READ].median = c.of[HA_CEIL_KERNEL_H2D].hi = c.of[HA_CEIL_KERNEL_D2H].hi = (double)NAN;
    c.of[HA_CEIL_H2D].hi = 10;
    c.of[HA_CEIL_D2H].hi = 5;
    return c;
}

TEST(the_floor_is_the_slowest_part)
{
    struct ha_ceilings c = ceilings();
    assert_near(ha_floor_ns(&c, false, 1000, 100, 0, 0), 10, 1e-9);  /* device: read at twice its copy rate */
    assert_near(ha_floor_ns(&c, false, 1000, 1000, 0, 0), 50, 1e-9); /* host */
    assert_near(ha_floor_ns(&c, true, 1000, 1000, 0, 0), 100, 1e-9); /* one memory serves both */
    assert_near(ha_floor_ns(&c, false, 1000, 1000, 2000, 0), 200, 1e-9);
    assert_near(ha_floor_ns(&c, false, 0, 0, 10, 1000), 200, 1e-9);
    /* what is measured by kernels counts where it is faster */
    c.of[HA_CEIL_DEVICE_READ].median = 200;
    c.of[HA_CEIL_DEVICE_READ].hi = 250; /* a sample that met the cache */
    c.of[HA_CEIL_KERNEL_H2D].hi = 20;
    c.of[HA_CEIL_KERNEL_D2H].hi = 4;
    assert_near(ha_floor_ns(&c, false, 1000, 10, 0, 0), 5, 1e-9);
    assert_near(ha_floor_ns(&c, false, 0, 0, 2000, 0), 100, 1e-9);
    assert_near(ha_floor_ns(&c, false, 0, 0, 0, 1000), 200, 1e-9);
    c.of[HA_CEIL_D2D].median = (double)NAN;
    assert_near(ha_floor_ns(&c, false, 1000, 10, 0, 0), 5, 1e-9);
}

/* the row of a benchmark of 4 steps of 3 layers, of which each has so many bytes of weights */
static struct ha_row filled(struct ha_bench b, struct ha_check check, size_t layer_bytes, unsigned compute_threads)
{
    static const struct ha_device_api api = { .kind = "host" };
    static struct ha_workload workload = { .shape = { .steps = 4, .layers = 3 } };
    session = (struct ha_session){ .api = &api,
                                   .slots = 7,
                                   .workload = &workload,
                                   .load = { .layer_bytes = layer_bytes },
                                   .info = { .compute_threads = compute_threads } };
    const struct ha_ceilings c = ceilings();
    struct ha_row row;

    check.session = b.session = &session;
    b.check = &check;
    ha_fields_clear(&ha_suite_variants, &row);
    row.layers = row.threads = 2;
    ha_fill_bench(&row, &b, &c, 80);
    return row;
}

static const struct ha_condition condition = { .sm_clock_MHz = 1700, .power_W = 400, .throttle = "power cap" };

static struct ha_row bench_row(double perturb, size_t dropped)
{
    const struct ha_bench b = { .step_ns = 100,
                                .full_ns = 50,
                                .perturb = perturb,
                                .moved_steps = 2,
                                .dropped = dropped,
                                .disturbed = "load",
                                .source = "CUPTI",
                                .condition = condition,
                                .moved = { .h2d_bytes = 4000 },
                                .ratios = { .gpu_kernel_idle = 0.5, .cpu_idle = 0.9, .h2d_link_GBps = 200 },
                                .counters = { .select_ns = 8, .manage_ns = 0 } };
    return filled(b, (struct ha_check){ 0 }, 0, 1);
}

TEST(ratios_of_a_perturbed_trace_are_kept)
{
    struct ha_row row = bench_row(0.04, 3); /* not those of one that is not whole */
    assert_true(isnan(row.ratios.gpu_kernel_idle) && isnan(row.ratios.overlap) && isnan(row.ratios.h2d_link_GBps));
    assert_near(row.spans_dropped, 3, 0);
    assert_near(row.outputs_kept, 7, 0);
    row = bench_row(0.04, 0);
    assert_near(row.ratios.gpu_kernel_idle, 0.5, 1e-12);
    assert_near(row.ratios.h2d_link_GBps, 200, 1e-9);
    assert_near(row.link_share, 20, 1e-9);    /* of a ceiling of 10 */
    assert_near(row.choice_share, 0.2, 1e-9); /* 2 of the 10 ns that the CPU is busy */
    assert_string_equal(row.source, "CUPTI");
    assert_memory_equal(&row.condition, &condition, sizeof condition);
    assert_string_equal(row.disturbed, "load");
    row = bench_row(0.06, 0);
    assert_near(row.ratios.gpu_kernel_idle, 0.5, 1e-12);
    assert_near(row.perturb, 0.06, 1e-12);
    row = bench_row((double)NAN, 0);
    assert_true(isnan(row.ratios.gpu_idle));
    /* what does not rest on spans stays */
    assert_near(row.step_ns, 100, 0);
    assert_near(row.layer_ns, 50, 0);
    assert_near(row.vs_full, 2, 0);
    assert_near(row.h2d_bytes, 2000, 0);
    assert_near(row.h2d_eff_GBps, 20, 0);
    assert_near(row.overlap_eff, 0.8, 1e-12);
    assert_near(row.counters.select_ns, 2, 0);
    assert_near(row.select_share, 0.02, 1e-15);
    assert_true(isnan(row.choice_share)); /* this does */
}

/* Of the CPU's time selecting has a share where the step waits for it: then there is upkeep in the background, or none.
 */
TEST(selection_in_the_background_has_no_share_of_the_threads)
{
    struct ha_bench b = { .step_ns = 100, .full_ns = 50, .moved_steps = 1, .ratios = { .cpu_idle = 0.5 } };
    b.counters = (struct ha_counters){ .select_ns = 8, .manage_ns = 3 };
    assert_near(filled(b, (struct ha_check){ 0 }, 0, 1).choice_share, 2.0 / 50, 1e-15);
    assert_near(filled(b, (struct ha_check){ 0 }, 0, 1).manage_share, 0.75 / 100, 1e-15);
    b.counters.manage_ns = (double)NAN;
    assert_true(isnan(filled(b, (struct ha_check){ 0 }, 0, 1).choice_share));
    assert_near(filled(b, (struct ha_check){ 0 }, 0, 1).select_share, 2.0 / 100, 1e-15);
    b.counters.manage_ns = 3;
    b.ratios.cpu_idle = 1; /* the CPU does nothing */
    assert_true(isnan(filled(b, (struct ha_check){ 0 }, 0, 1).choice_share));
}

TEST(what_caches_hold_has_no_floor)
{
    const double mib = 1048576;
    /* a laptop; 8 cores of a socket; 2 of the cores of a machine whose last level 100 and more share, unseen */
    const struct ha_cache laptop[] = { { 2, mib, 1, 1 }, { 2, mib, 1, 1 }, { 3, 8 * mib, 2, 2 } },
                          socket[] = { { 2, 2 * mib, 2, 2 }, { 3, 96 * mib, 48, 8 } },
                          guest[] = { { 2, 2 * mib, 1, 1 }, { 2, 2 * mib, 1, 1 }, { 3, 480 * mib, 2, 2 } };

    assert_near(ha_cache_usable_bytes(laptop, 3, false), 10 * mib, 1);
    assert_near(ha_cache_usable_bytes(socket, 2, false), 18 * mib, 1);
    assert_near(ha_cache_usable_bytes(guest, 3, true), 36 * mib, 1);
    assert_near(ha_cache_usable_bytes(guest, 3, false), 484 * mib, 1);
    assert_true(ha_cache_own_bytes() > 0);
    /* 4 layers of 8192 tokens, 8 heads of 128 in f16: 128 MiB in a step */
    assert_near(ha_floor_fetched(128 * mib, ha_cache_usable_bytes(guest, 3, true)), 128 * mib, 1);
    assert_near(ha_floor_fetched(128 * mib, 484 * mib), 0, 0);
    assert_near(ha_floor_fetched(36 * mib, 36 * mib), 0, 0);
}

/* of so many bytes by each side, and of the weights of each of 3 layers */
static double floor_in(double device_bytes, double host_bytes, size_t layer_bytes, unsigned compute_threads)
{
    const struct ha_check check = { .device_key_bytes = device_bytes, .host_key_bytes = host_bytes };
    return filled((struct ha_bench){ .step_ns = 1e9, .full_ns = 1, .moved_steps = 1 }, check, layer_bytes,
                  compute_threads)
        .floor_ns;
}

TEST(each_side_has_caches_of_its_own)
{
    const double much = 1e10, little = 1000;                   /* no machine caches the one, all the other */
    assert_near(floor_in(much, much, 0, 1), 2 * much / 20, 1); /* one memory, and its caches */
    assert_near(floor_in(much, 0, 0, 1), much / 20, 1);
    assert_true(isnan(floor_in(little, little, 0, 1)));
    assert_near(floor_in(much, little, 0, 0), much / 100, 1e-3);
    assert_near(floor_in(little, much, 0, 0), much / 20, 1e-3);
    assert_near(floor_in(2001, little, 0, 0), 20.01, 1e-9);
    assert_true(isnan(floor_in(2000, little, 0, 0))); /* what the device's cache holds */
    assert_true(isnan(floor_in(0, little, 0, 0)));
    assert_true(isnan(floor_in(0, 0, 0, 0)));
    assert_near(floor_in(much, 0, 1000000000, 0), (much + 3e9) / 100, 1e-3); /* weights are read, too */
}

/* What kernels read through the link goes over it, too. */
TEST(the_floor_has_what_is_read_in_place)
{
    const struct ha_bench b = {
        .step_ns = 1e9, .full_ns = 1, .moved_steps = 1, .usage.zero_copy_bytes = 6e10, .traced_steps = 3
    };
    const struct ha_row row = filled(b, (struct ha_check){ .device_key_bytes = 1e10 }, 0, 0);
    assert_near(row.zero_copy_bytes, 2e10, 0);
    assert_near(row.floor_ns, 2e10 / 10, 1e-3);
    assert_near(row.floor_ratio, 2, 1e-9);
}

TEST(params_are_those_that_differ)
{
    static const struct {
        const char *id, *params;
    } each[] = { { "streaming:ctx=9", "" },
                 { "streaming:ctx=9,window=17", "window=17" },
                 { "streaming:ctx=9,sink=3,window=17", "sink=3,window=17" } };
    for (size_t i = 0; i < COUNT(each); i++) {
        struct ha_case c;
        struct ha_row row;
        assert_ok(ha_case_parse(each[i].id, &c, &reason));
        ha_fields_clear(&ha_suite_variants, &row);
        ha_fill_case(&row, &c);
        assert_string_equal(row.params, each[i].params);
    }
}

TEST(arms_are_those_of_the_same_workload_and_family)
{
    struct ha_known known = { 0 };
    struct ha_row row;
    struct ha_usage copies = { .copy_ns = 1, .kernel_ns = 1 }, cpu = { .pool_ns = 1 };
    ha_fields_clear(&ha_suite_variants, &row);
    snprintf(row.family, sizeof row.family, "full");
    snprintf(row.ctx_len, sizeof row.ctx_len, "4096");
    assert_true(isnan(ha_known_slowest_arm(&known, &row, &copies)));
    ha_known_add(&known, &row, "copy_only", "full", 70);
    ha_known_add(&known, &row, "device_only", "full", 30);
    ha_known_add(&known, &row, "cpu_only", "full", 200);
    assert_near(ha_known_slowest_arm(&known, &row, &copies), 70, 0);
    assert_near(ha_known_slowest_arm(&known, &row, &cpu), 200, 0);
    assert_near(ha_known_step(&known, &row, "cpu_only", NULL), 200, 0);
    ha_known_add(&known, &row, "cpu_only", "full", 250);
    assert_near(ha_known_step(&known, &row, "cpu_only", NULL), 250, 0); /* the latest */
    snprintf(row.ctx_len, sizeof row.ctx_len, "8192");
    assert_true(isnan(ha_known_slowest_arm(&known, &row, &copies)));
    assert_true(isnan(ha_known_step(&known, &row, "cpu_only", NULL)));
    snprintf(row.ctx_len, sizeof row.ctx_len, "4096");
    snprintf(row.family, sizeof row.family, "recency_split");
    assert_true(isnan(ha_known_slowest_arm(&known, &row, &copies)));
    ha_known_free(&known);
}

/* ---- memory -------------------------------------------------------------------------------- */

static struct ha_shape large(size_t ctx)
{
    return (struct ha_shape){ .layers = 4,
                              .batch = 2,
                              .q_heads = 32,
                              .kv_heads = 8,
                              .head_dim = 128,
                              .dtype = HA_F16,
                              .ctx = { ctx, ctx / 2 },
                              .q_len = 1,
                              .steps = 4 };
}

TEST(memory_is_counted)
{
    struct ha_shape s = large(10000);
    struct ha_memory_need need = ha_memory_estimate(&s);
    uint64_t row = 2 * 8 * 128 * 2;
    assert_int_equal(need.data_bytes, 4 * 2 * 10004 * row);
    assert_int_equal(need.variant_bytes, 4 * 15008 * row);
    /* 4 steps of 4 layers of 2 sequences: q and what is appended; o and LSE of each, of two passes on the host; those
     * of a step as doubles, with bounds; inputs of a step, and of all */
    assert_int_equal(need.device_io_bytes, 4 * 8 * (32 * 128 * 4 + row) + 4 * 8 * 32 * 129 * 4);
    assert_int_equal(need.host_io_bytes,
                     (1 + 4) * 8 * (32 * 128 * 4 + row) + (1 + 2 * 4) * 8 * 32 * 129 * 4 + 8 * 32 * 129 * 16);
    s.steps = 1000; /* inputs grow with the steps, outputs that are kept up to a limit */
    assert_int_equal(ha_memory_estimate(&s).device_io_bytes, 1000 * 8 * (32 * 128 * 4 + row) + 508 * 8 * 32 * 129 * 4);
    s = large((size_t)1 << 33); /* does not wrap */
    assert_true(ha_memory_estimate(&s).variant_bytes > UINT64_C(1) << 47);
}

TEST(what_does_not_fit_is_refused)
{
    struct ha_shape s = large(1000000);
    struct ha_why why = { "" };
    uint64_t gib = UINT64_C(1) << 30;
    assert_int_equal(ha_memory_check(&s, false, true, false, 8 * gib, 8 * gib, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "needs "));
    assert_non_null(strstr(why.text, "has 8.00 GiB"));
    assert_non_null(strstr(why.text, "ctx"));
    assert_int_equal(ha_memory_check(&s, false, true, false, 200 * gib, 8 * gib, &why), HA_OK);
    /* a real device: only who keeps everything there is refused beforehand */
    assert_int_equal(ha_memory_check(&s, false, false, false, 200 * gib, 8 * gib, &why), HA_OK);
    assert_int_equal(ha_memory_check(&s, false, false, true, 200 * gib, 8 * gib, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "device memory"));
    assert_int_equal(ha_memory_check(&s, true, false, true, 1 * gib, 80 * gib, &why), HA_OK);
    assert_true(ha_memory_available() > 0);
}

/* ---- the table ------------------------------------------------------------------------------ */

static struct ha_row table_row(const char *variant, enum ha_verdict verdict)
{
    struct ha_row r;
    ha_fields_clear(&ha_suite_variants, &r);
    snprintf(r.variant, sizeof r.variant, "%s", variant);
    r.head.verdict = verdict;
    snprintf(r.contract, sizeof r.contract, "exact");
    snprintf(r.ctx_len, sizeof r.ctx_len, "4096");
    snprintf(r.head.reason, sizeof r.head.reason, "because of %s", ha_verdict_name(verdict));
    r.batch = r.q_len = r.layers = r.threads = 1;
    r.seed = 1;
    r.q_heads = r.kv_heads = 8;
    r.head_dim = 64;
    r.step_ns = 12345678;
    r.err_over_bound = 0.25;
    r.ratios.gpu_idle = 0.5;
    return r;
}

/* until the next call */
static char *printed(const struct ha_row *rows, size_t count, bool measured)
{
    static char text[1 << 14];
    struct ha_entry entry[8] = { { NULL, NULL, "" } };
    FILE *f = fmemopen(text, sizeof text, "w");
    assert_true(count < 8); /* the last one was not run */
    for (size_t i = 0; i < count; i++) entry[i].row = &rows[i];
    ha_table_print(f, &(struct ha_results){ .entry = entry, .entries = count + 1, .measured = measured });
    assert_int_equal(fclose(f), 0);
    return text;
}

TEST(the_table_is_readable)
{
    struct ha_row rows[7] = { table_row("cpu", HA_PASS),
                              table_row("resident", HA_VERDICT_FAIL),
                              table_row("hgca", HA_VERDICT_WAIVED),
                              table_row("streaming", HA_VERDICT_ERROR),
                              table_row("offload", HA_PASS),
                              table_row("copy_only", HA_UNCHECKED),
                              table_row("", HA_VERDICT_ERROR) };
    snprintf(rows[0].params, sizeof rows[0].params, "a_very_long_option=%0100d", 1);
    snprintf(rows[4].ctx_len, sizeof rows[4].ctx_len, "8192");
    rows[5].err_over_bound = 0.75;
    /* of a case whose process died there is a verdict and a reason, and nothing else */
    ha_fields_clear(&ha_suite_variants, &rows[6]);
    rows[6].head.verdict = HA_VERDICT_ERROR;
    for (int measured = 0; measured < 2; measured++) {
        char *text = printed(rows, 7, measured), *save = NULL;
        size_t workloads = 0, titles = 0, shown = 0;
        assert_null(strstr(text, "nan"));
        assert_int_equal(strstr(text, "hgca") != NULL, measured); /* a waived case has no figures, and its reason */
        assert_int_equal(strstr(text, "12.35") != NULL, measured);
        assert_true(strstr(text, "\nresident  ") && strstr(text, "  fail  ") && strstr(text, "\nstreaming  "));
        assert_true(strstr(text, "\ncopy_only  ") && strstr(text, "  unchecked  ") && strstr(text, "0.25"));
        assert_null(strstr(text, "0.75")); /* an arm has no error */
        for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
            assert_true(strlen(line) <= 150);
            workloads += !strncmp(line, "ctx 4096,", 9) || !strncmp(line, "ctx 8192,", 9);
            titles += strstr(line, "verdict   err/bound") != NULL;
            shown += strstr(line, "0.25 ") != NULL || strstr(line, "unchecked") != NULL;
        }
        assert_int_equal(workloads, 2); /* one table, with a line for each of them */
        assert_int_equal(titles, 1);
        assert_int_equal(shown, 5);
    }
}

static struct ha_row table_row_of(const char *family, const char *variant, double vs_full, double off)
{
    struct ha_row r = table_row(variant, HA_PASS);
    snprintf(r.family, sizeof r.family, "%s", family);
    snprintf(r.dataset, sizeof r.dataset, "sinks");
    r.vs_full = vs_full;
    r.rel_l2 = off;
    r.ratios.cpu_idle = 1;
    return r;
}

/* How many lines of the text begin with `from` and have `what` behind it. */
static size_t lines_with(const char *text, const char *from, const char *what)
{
    size_t count = 0;
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        const char *at = strncmp(line, from, strlen(from)) ? NULL : strstr(line + strlen(from), what), *end;
        count += at && (!(end = strchr(line, '\n')) || at < end);
    }
    return count;
}

TEST(families_stand_together)
{
    struct ha_row rows[5] = { table_row_of("full", "resident", 1, 1e-7), table_row_of("block_sparse", "quest", 1, 1),
                              table_row_of("recency_split", "hgca", 1, 1), table_row_of("block_sparse", "topk", 1, 1),
                              table_row_of("full", "cpu", 1, 1e-7) };
    static const char *const order[] = { "\nfull\n  resident ", "\n  cpu ", "\nblock_sparse\n  quest ", "\n  topk ",
                                         "\nrecency_split\n  hgca " };
    const char *at = printed(rows, 5, true);
    for (size_t i = 0; i < COUNT(order); i++, at++)
        if (!(at = strstr(at, order[i]))) fail_msg("%s is not behind the one before", order[i]);
    at = printed(rows + 3, 1, true); /* one family has no line of its own */
    assert_true(strstr(at, "\ntopk ") && !strstr(at, "\nblock_sparse\n"));
}

/* Each title of the table has a line below it that says what it is, and a measured table is no wider than nine. */
TEST(each_column_has_its_legend)
{
    struct ha_row row = table_row_of("full", "resident", 1, 0);
    for (int is_measured = 0; is_measured < 2; is_measured++) {
        static const char *const titles[2][12] = {
            { "variant", "verdict", "err/bound", "rel L2", "head max", "mass", "least", "recall", "cert", "bias", "rms",
              "keys" },
            { "variant", "verdict", "err/bound", "rel L2", "mass", "step ms", "x full", "GPU idle%", "CPU idle%" },
        };
        const char *text = printed(&row, 1, is_measured);
        char title[256];
        snprintf(title, sizeof title, "%.*s", (int)strcspn(text + 1, "\n"), text + 1);
        for (size_t i = 0; i < COUNT(titles[0]) && titles[is_measured][i]; i++) {
            char *at = strstr(title, titles[is_measured][i]);
            if (!at) fail_msg("no column %s", titles[is_measured][i]);
            memset(at, ' ', strlen(titles[is_measured][i]));
            assert_int_equal(lines_with(text, titles[is_measured][i], "  "), i ? 1 : 2);
        }
        assert_int_equal(strspn(title, " "), strlen(title)); /* and no other */
    }
}

TEST(traces_that_took_longer_are_marked)
{
    struct ha_row rows[3] = { table_row("cpu", HA_PASS), table_row("hgca", HA_PASS), table_row("offload", HA_PASS) };
    rows[0].perturb = rows[1].perturb = rows[2].perturb = 0.05;
    const char *text = printed(rows, 3, true);
    assert_true(!strchr(text, '~') && !strchr(text, '!') && !strstr(text, "uncertain"));
    rows[0].perturb = -0.06;
    text = printed(rows, 3, true);
    assert_non_null(strstr(text, "50.0~"));
    assert_non_null(strstr(text, "\n~ 1 of 3: "));
    assert_null(strchr(printed(rows, 3, false), '~'));
}

static void disturb(struct ha_row *row, const char *causes, double load, double steal, double slow)
{
    snprintf(row->disturbed, sizeof row->disturbed, "%s", causes);
    row->load_share = load;
    row->steal_share = steal;
    row->slow_share = slow;
}

/* The rows' marks, as a text of ! and . */
static const char *marks(const struct ha_row *rows, size_t count)
{
    static char text[16];
    const struct ha_row *row[8] = { NULL };
    bool mark[8];
    for (size_t i = 0; i < count; i++) row[i] = &rows[i];
    ha_findings_mark(row, count, mark);
    for (size_t i = 0; i < count; i++) text[i] = mark[i] ? '!' : '.';
    text[count] = 0;
    return text;
}

/* What all rows have marks none; what one has more of, or alone, marks that one. */
TEST(rows_are_marked_that_were_disturbed_more_than_the_others)
{
    struct ha_row rows[7];
    for (size_t i = 0; i < 7; i++) rows[i] = table_row("hgca", HA_PASS);
    assert_string_equal(marks(rows, 7), ".......");
    for (size_t i = 0; i < 7; i++) disturb(&rows[i], "steal", 0, 0.021, 0);
    assert_string_equal(marks(rows, 7), ".......");
    assert_string_equal(marks(rows, 1), ".");
    disturb(&rows[3], "steal", 0, 0.041, 0); /* not twice as much */
    assert_string_equal(marks(rows, 7), ".......");
    disturb(&rows[3], "steal", 0, 0.043, 0);
    assert_string_equal(marks(rows, 7), "...!...");
    disturb(&rows[5], "load, steal", 0.06, 0.021, 0); /* a cause that the others have not */
    assert_string_equal(marks(rows, 7), "...!.!.");
    disturb(&rows[6], "throttled, steal", 0, 0.021, 0);
    assert_string_equal(marks(rows, 7), "...!.!!");
    for (size_t i = 0; i < 7; i++) disturb(&rows[i], "throttled", (double)NAN, (double)NAN, (double)NAN);
    assert_string_equal(marks(rows, 7), ".......");
    disturb(&rows[0], "", (double)NAN, (double)NAN, (double)NAN);
    assert_string_equal(marks(rows, 2), ".!"); /* half of two is not common */
    for (size_t i = 0; i < 7; i++) disturb(&rows[i], i == 5 ? "steal" : "", 0, i == 5 ? 0.021 : 0.019, 0);
    assert_string_equal(marks(rows, 7), "......."); /* the others have hardly less */

    for (size_t i = 0; i < 7; i++) disturb(&rows[i], "shared, steal", 0, 0.02 + 0.001 * (double)i, 0.5);
    disturb(&rows[6], "", 0, 0, 0);
    disturb(&rows[2], "load, steal", 0.5, 0.022, 0);
    const char *text = printed(rows, 7, true);
    assert_int_equal(test_count(text, "!"), 1 + 1);
    assert_non_null(strstr(text,
                           "Timing is uncertain in 6 of 7 rows: other programs took 50.0% of the cores' time (load, 1 "
                           "row), the hypervisor took 2.2% of it (steal, 6 rows), a core ran below 0.85 of its best "
                           "speed in 50.0% of the looks (shared, 5 rows) (docs/measurement.md). ! marks 1 that was "
                           "disturbed more than the rest.\n"));
    assert_null(strstr(printed(rows, 7, false), "uncertain"));
}

static void assert_says(const char *text, const char *line, bool says)
{
    if ((strstr(text, line) != NULL) != says) fail_msg("%s: %s", says ? "it does not say" : "it says", line);
}

/* By made-up rows: the fastest that is near, of each workload, and no full attention; what the CPU side takes. */
TEST(what_the_rows_show)
{
    struct ha_row rows[7] = {
        table_row_of("full", "resident", 1, 1e-7),         table_row_of("full", "cpu", 0.25, 1e-7),
        table_row_of("recency_split", "hgca", 0.5, 0.05),  table_row_of("recency_split", "streaming", 0.2, 0.051),
        table_row_of("block_sparse", "quest", 0.75, 0.01), table_row_of("block_sparse", "topk", 1.5, 0.02),
        table_row_of("block_sparse", "scout", 0.1, 0.04),
    };
    static const char fastest[] = "Within 5% of full attention's output (rel L2 up to 0.05) the fastest is ";
    char line[256];
    snprintf(rows[2].params, sizeof rows[2].params, "blk_num=7");
    snprintf(rows[5].ctx_len, sizeof rows[5].ctx_len, "8192");
    rows[6].head.verdict = HA_VERDICT_FAIL; /* fast and wrong */
    snprintf(line, sizeof line, "\n%s%s", fastest,
             "hgca blk_num=7 on sinks at ctx 4096, at 0.50 x full; topk on sinks at ctx 8192, at 1.50 x full.\n");
    assert_says(printed(rows, 7, true), line, true);
    assert_says(printed(rows, 7, true), "\nNothing was waived.\n", true);
    assert_says(printed(rows, 7, true),
                "\nThe CPU side works in none of the rows; all attention on the CPU (`cpu`) takes 0.25 to 0.25 of full "
                "attention's time on the device.\n",
                true);
    assert_says(printed(rows, 7, false), fastest, false);
    assert_says(printed(rows, 7, false), "Nothing was waived.", false);
    rows[2].rel_l2 = (double)NAN; /* not known is not near */
    rows[4].batch = 4;
    rows[4].q_len = 3;
    snprintf(line, sizeof line, "\n%s%s", fastest,
             "none on sinks at ctx 4096; quest on sinks at ctx 4096, batch 4, q_len 3, at 0.75 x full; topk on sinks "
             "at ctx");
    assert_says(printed(rows, 7, true), line, true);
    assert_says(printed(rows + 5, 1, true), "at 1.50 x full; full attention itself is faster.\n", true); /* one row */
    rows[5].rel_l2 = rows[4].rel_l2 = 0.06;
    assert_says(printed(rows, 7, true),
                "\nNo variant stays within 5% of full attention's output (rel L2 up to 0.05).\n", true);
    assert_says(printed(rows, 2, true), "of full attention's output", false); /* full attention alone */

    rows[2].ratios.cpu_idle = 0.75;
    rows[3].ratios.cpu_idle = 0.5;
    rows[2].step_ns = rows[3].step_ns = 8e6;
    rows[3].threads = 4;
    assert_says(
        printed(rows + 2, 5, true),
        "\nThe CPU side works in 2 of 4 rows: its threads are busy for 25.0 to 50.0% of a step and take 2 to 16 "
        "ms of CPU time for it.\n",
        true);
}

TEST(what_was_waived_and_why)
{
    struct ha_row rows[5] = { table_row_of("full", "resident", 1, 0), table_row("quest", HA_VERDICT_WAIVED),
                              table_row("topk", HA_VERDICT_WAIVED), table_row("quest", HA_VERDICT_WAIVED),
                              table_row("clo", HA_VERDICT_WAIVED) };
    snprintf(rows[4].head.reason, sizeof rows[4].head.reason, "no room");
    assert_says(printed(rows, 5, true),
                "\nWaived, as it cannot run here: 4 of 5 cases: quest, topk (because of waived); clo (no room).\n",
                true);
    assert_says(printed(rows + 4, 1, true), "\nEverything was waived, 1 case: clo (no room).\n", true);
    assert_says(printed(rows + 1, 4, true), "\nEverything was waived, 4 cases: quest, topk (because of waived)", true);
    assert_says(printed(rows + 1, 4, true), "verdict", false); /* a table of nothing */
    assert_says(printed(rows, 5, false), "aived", false);
    assert_says(printed(rows, 0, true), "aived", false);
}

/* What it has stays; what is new comes behind it. */
TEST(counts_of_two_passes)
{
    struct ha_counted timed = { .count = 0 }, checked = { .count = 0 };
    static const struct {
        const char *name;
        size_t layer;
        double value;
    } of[] = { { "a", 0, 1 }, { "a", 1, 2 }, { "b", 0, 3 } };
    timed.of = calloc(4, sizeof *timed.of);
    checked.of = calloc(3, sizeof *checked.of);
    assert_true(timed.of && checked.of);
    timed.cap = 4;
    for (size_t i = 0; i < 3; i++) {
        checked.of[checked.count].name = of[i].name;
        checked.of[checked.count].layer = of[i].layer;
        checked.of[checked.count++].value = of[i].value;
    }
    timed.of[timed.count].name = "a";
    timed.of[timed.count].layer = 1;
    timed.of[timed.count++].value = 7;
    struct ha_why because;
    assert_int_equal(ha_counted_add(&timed, &checked, &because), HA_OK);
    assert_int_equal(timed.count, 3);
    assert_near(timed.of[0].value, 7, 0);
    assert_string_equal(timed.of[1].name, "a");
    assert_int_equal(timed.of[1].layer, 0);
    assert_near(timed.of[1].value, 1, 0);
    assert_string_equal(timed.of[2].name, "b");
    assert_near(timed.of[2].value, 3, 0);
    ha_counted_free(&timed);
    ha_counted_free(&checked);
}

/* The least, the most, the mean and the first of the layers that count, in any order; nothing of other counters, and
 * nothing where there is none. */
TEST(columns_of_counters)
{
    struct ha_counted c = { .count = 0 };
    struct ha_row row = { .kept_least = 7, .kept_most = 7, .changed = 7 };
    ha_fill_counted(&row, &c);
    assert_true(isnan(row.kept_least) && isnan(row.kept_most) && isnan(row.changed));
    static const double least[] = { 0.3, 0.1, 0.2 }, most[] = { 0.5, 0.7, 0.6 };
    static const char *const means[] = { "streaming_heads", "groups_scheduled", "budget_mean", "block_mean",
                                         "line_r2",         "similarity",       "overlap_low", "overlap_high" };
    c.of = calloc(3 * (5 + COUNT(means)), sizeof *c.of);
    assert_non_null(c.of);
    for (size_t l = 0; l < 3; l++) {
        c.of[c.count].name = "kept_least";
        c.of[c.count++].value = least[l];
        c.of[c.count].name = "kept_most";
        c.of[c.count++].value = most[l];
        c.of[c.count].name = "cosine";
        c.of[c.count++].value = l ? least[l] : (double)NAN; /* the first layer has none */
        c.of[c.count].name = "kept_share";
        c.of[c.count].layer = (l + 2) % 3;
        c.of[c.count++].value = least[l];
        c.of[c.count].name = "kv_ctx_tokens";
        c.of[c.count++].value = 0.01;
        for (size_t i = 0; i < COUNT(means); i++) {
            c.of[c.count].name = means[i];
            c.of[c.count++].value = (double)(i + l * l);
        }
    }
    ha_fill_counted(&row, &c);
    ha_counted_free(&c);
    assert_near(row.kept_least, 0.1, 0);
    assert_near(row.kept_most, 0.7, 0);
    assert_near(row.cosine_least, 0.1, 0);
    assert_near(row.cosine, 0.15, 1e-15);
    assert_near(row.kept_share, 0.2, 1e-15);
    assert_near(row.kept_first, 0.1, 0);
    const double of_means[] = { row.streaming, row.scheduled, row.budget_read, row.block_mean,
                                row.line_r2,   row.similar,   row.overlap_low, row.overlap_high };
    for (size_t i = 0; i < COUNT(means); i++) assert_near(of_means[i], (double)i + 5.0 / 3, 1e-14);
}
