/* The link suite over the embedded device, as it is and made wrong, slow, poor or broken. */

#include "harness/base/order_api.h"
#include "harness/base/registry.h"
#include "harness/base/stores.h"
#include "harness/base/why.h"
#include "harness/engine/machine.h"
#include "harness/engine/test_drive.h"
#include "harness/report/row.h"
#include "suites/link/suite.h"

#include <math.h>
#include <time.h>

enum { PIECE = 4096 };

/* What something else does on these cores is said here, and not looked for. */
void __wrap_ha_disturbed_judge(const struct ha_core_counts *before, const struct ha_core_counts *after, size_t slow,
                               size_t looks, const char *device_throttle, char out[HA_DISTURBED_MAX]);
void __wrap_ha_disturbed_judge(const struct ha_core_counts *before, const struct ha_core_counts *after, size_t slow,
                               size_t looks, const char *device_throttle, char out[HA_DISTURBED_MAX])
{
    assert_true(after->wall_ns > before->wall_ns);
    strcpy(out, "steal");
}

/* ---- devices that go wrong ---------------------------------------------------------------------- */

static struct ha_device_api fake;
static const struct ha_device_api *host;
static unsigned opened, opens_at_most;

/* that of a piece, not of the comparison */
static bool of_piece(size_t bytes) { return bytes == PIECE; }

static enum ha_status flipped_copy(struct ha_stream *s, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    static char wrong[PIECE];
    if (!of_piece(bytes) || dir != HA_H2D || host->stream_sync(s) != HA_OK) return host->copy(s, dst, src, bytes, dir);
    memcpy(wrong, src, PIECE);
    wrong[PIECE - 1] ^= 0x10;
    return host->copy(s, dst, wrong, bytes, dir);
}
static enum ha_status short_copy(struct ha_stream *s, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    return host->copy(s, dst, src, of_piece(bytes) && dir == HA_D2H ? bytes - 1 : bytes, dir);
}
static enum ha_status no_copy(struct ha_stream *s, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    return of_piece(bytes) ? HA_OK : host->copy(s, dst, src, bytes, dir);
}
static enum ha_status slow_copy(struct ha_stream *s, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    if (bytes <= 131072) nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    return host->copy(s, dst, src, bytes, dir);
}
static enum ha_status fewer_pieces(struct ha_stream *s, const struct ha_device_pieces *pieces, enum ha_direction dir)
{
    struct ha_device_pieces fewer = *pieces;
    fewer.count--;
    return host->copy_pieces(s, &fewer, dir);
}
static enum ha_status broken_pieces(struct ha_stream *s, const struct ha_device_pieces *pieces, enum ha_direction dir)
{
    struct ha_device_pieces none = *pieces;
    const void *src[1] = { NULL };
    none.src = src;
    none.count = 1;
    return host->copy_pieces(s, &none, dir);
}
static enum ha_status shifted_move(struct ha_stream *s, const struct ha_device_move *m)
{
    struct ha_device_move shifted = *m;
    if (m->src_index) shifted.src_index++;
    if (m->dst_index) shifted.dst_index++;
    shifted.rows--;
    return host->move(s, &shifted);
}
static enum ha_status dense_move(struct ha_stream *s, const struct ha_device_move *m)
{
    struct ha_device_move dense = *m;
    dense.src_index = dense.dst_index = NULL;
    return host->move(s, &dense);
}
static enum ha_status elsewhere(struct ha_device *dev, void *ptr, size_t bytes, void **at, struct ha_why *because)
{
    const enum ha_status status = host->map_device(dev, ptr, bytes, at, because);
    *at = aligned_alloc(64, bytes);
    return status;
}
static void free_elsewhere(struct ha_device *dev, void *at) { (void)dev, free(at); }

static enum ha_status no_mapped(struct ha_device *dev, enum ha_memory memory, size_t bytes, void **ptr,
                                struct ha_why *because)
{
    if (memory != HA_MEM_MAPPED) return host->mem_alloc(dev, memory, bytes, ptr, because);
    snprintf(because->text, sizeof because->text, "none of it");
    return HA_ERROR;
}
static enum ha_status no_window(struct ha_device *dev, void *ptr, size_t bytes, void **at, struct ha_why *because)
{
    snprintf(because->text, sizeof because->text, "the window is shut");
    return HA_WAIVED;
}
static enum ha_status counting_open(struct ha_device **dev, const struct ha_device_config *config,
                                    struct ha_why *because)
{
    if (opened == opens_at_most) {
        snprintf(because->text, sizeof because->text, "it is gone for good");
        return HA_ERROR;
    }
    opened++;
    return host->open(dev, config, because);
}

/* ---- a run ------------------------------------------------------------------------------------------------------ */

/* time of a measurement: for one round, unless a test reads figures */
enum { ONE_ROUND_NS = 1, FIGURES_NS = 2000000000 };
static uint64_t cap_ns;
static struct ha_link_limits limits;
static const struct ha_link_limits small_limits = { .source_bytes = 2 << 20, .move_bytes = 512 << 10, .pieces = 128 };

static void limit(void *arg, void *run) { ha_link_run_limit(run, arg); }

static int begin(void **state)
{
    host = ha_devices_all[0];
    fake = *host;
    fake.open = counting_open;
    fake.kind = "plugin";
    opened = 0;
    opens_at_most = 100;
    ha_stop = 0;
    limits = small_limits;
    cap_ns = ONE_ROUND_NS;
    return 0;
}

static enum ha_status drive(struct ha_drive d)
{
    static struct ha_ceilings ceilings;
    struct ha_machine *machine;
    for (size_t i = 0; i < HA_CEILINGS; i++) ceilings.of[i] = (struct ha_reading){ 10, 10, 10, 1 };
    assert_int_equal(ha_machine_create(&machine, NULL, &why), HA_OK);
    ha_machine_give(machine, "host", &fake, &ceilings);
    ha_driven_free(&driven);
    d.config.machine = machine;
    d.begun = limit;
    d.arg = &limits;
    if (!d.cap_ns) d.cap_ns = cap_ns;
    const enum ha_status status = ha_drive(&d, &driven, &why);
    ha_machine_destroy(machine);
    return status;
}

static void run(const char *words, const char *filter, bool measure)
{
    const struct ha_drive d = { .words = words, .filter = filter, .seed = "3", .config.measure = measure };
    if (drive(d) != HA_OK) fail_msg("%s", why.text);
}

/* the reason of the first of that method */
static void reason(const char *method, const char *words)
{
    char part[64];
    snprintf(part, sizeof part, "method=%s", method);
    const struct ha_entry *e = ha_driven_find(&driven, part);
    assert_non_null(e);
    assert_contains(ha_result_in(e->row)->reason, words);
}

static const struct ha_link_row *row(size_t i) { return entry(i)->row; }
static const struct ha_link_point *point(size_t i) { return entry(i)->point; }
static const char *method(size_t i) { return ha_link_methods[point(i)->method].name; }

static bool among(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (!strcmp(name, *names)) return true;
    return false;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

TEST_WITH(every_method_moves_the_right_bytes, begin, driven_end)
{
    for (int i = 0; i < 3; i++) {
        static const char *const filter[] = { "piece=4K", "piece=256K", "piece=256" };
        limits.cores = 5; /* so that there is a team of each size */
        run("link", filter[i], false);
        counted(30, 0, 0, 0);
        says("stores_all");
        says("pass");
    }
    assert_int_equal(driven.results.entries, 30);
    for (size_t i = 0; i < 30; i++) {
        assert_true(isnan(number(i, "GBps")) && isnan(number(i, "samples")) && isnan(number(i, "ceiling_GBps")));
        assert_true(number(i, "verified_bytes") == 32768 && number(i, "pieces") == 128);
    }
}

/* Whoever stores says how much; a gather stores nothing over the link. */
TEST_WITH(stores_are_counted, begin, driven_end)
{
    ha_stores_take();
    run("link", "piece=256,layout=scattered,method=gather_1", false);
    assert_int_equal(ha_stores_take(), 0);
    run("link", "piece=256,layout=scattered,method=stores_1", false);
    const uint64_t stored = ha_stores_take();
    assert_true(stored > 0 && stored % (128 * 256) == 0); /* whole moves */
}

TEST_WITH(wrong_bytes_fail, begin, driven_end)
{
    static const struct {
        struct ha_device_api change;
        const char *wrong[8], *words;
        bool scattered_only;
    } defect[] = {
        { { .copy = flipped_copy }, { "pageable", "pinned", NULL }, "byte 4095 of 4096", false },
        { { .copy = short_copy }, { "pinned_d2h", NULL }, "byte 4095 of 4096", false },
        { { .copy = no_copy }, { "pageable", "pinned", "pinned_d2h", NULL }, "piece 0 of 128, byte 0 of 4096", false },
        { { .copy_pieces = fewer_pieces }, { "pieces", "pieces_d2h", NULL }, "piece 127 of 128", false },
        { { .move = shifted_move }, { "kernel", "kernel_d2h", NULL }, "wrong bytes", false },
        { { .move = dense_move }, { "kernel", "kernel_d2h", NULL }, "wrong bytes", true },
        { { .map_device = elsewhere, .unmap_device = free_elsewhere },
          { "stores_1", "stores_2", "stores_4", "stores_all", NULL },
          "0xa5 on the device",
          false },
    };
    for (size_t d = 0; d < COUNT(defect); d++) {
        const struct ha_device_api *c = &defect[d].change;
        size_t wrongs = 0;
        begin(state);
        if (c->copy) fake.copy = c->copy;
        if (c->copy_pieces) fake.copy_pieces = c->copy_pieces;
        if (c->move) fake.move = c->move;
        if (c->map_device) fake.map_device = c->map_device, fake.unmap_device = c->unmap_device;
        limits.cores = 5;
        run("link", "piece=4K", true);
        assert_int_equal(driven.results.entries, 30);
        for (size_t i = 0; i < 30; i++) {
            const bool wrong = among(method(i), defect[d].wrong) && !(defect[d].scattered_only && !point(i)->scattered);
            if (row(i)->head.verdict != (wrong ? HA_VERDICT_FAIL : HA_PASS))
                fail_msg("defect %zu: %s: %d", d, entry(i)->id, (int)row(i)->head.verdict);
            if (wrong) assert_contains(row(i)->head.reason, "wrong bytes");
            if (wrong) assert_contains(row(i)->head.reason, defect[d].words);
            assert_true(isnan(number(i, "GBps")) == wrong);
            wrongs += wrong;
        }
        counted(30 - wrongs, wrongs, 0, 0);
        says("FAIL");
    }
}

/* A move down leaves other bytes in the source, even those that stand for "nothing has come". */
TEST_WITH(the_order_of_moves_does_not_matter, begin, driven_end)
{
    static const char down[] = "link:layout=contiguous,piece=4K,method=pinned_d2h ",
                      up[] = "link:layout=contiguous,piece=4K,method=pinned";
    char words[256];
    for (int first = 0; first < 2; first++) {
        begin(state);
        fake.copy = no_copy;
        snprintf(words, sizeof words, "%s%s", down, up);
        run(first ? words : up, NULL, true);
        counted(0, first ? 2 : 1, 0, 0);
    }
    begin(state);
    snprintf(words, sizeof words, "%s%s %slink:layout=scattered,piece=4K", down, up, down);
    run(words, "method!=gather_4,method!=stores_4", true);
    assert_int_equal(driven.verdict[HA_VERDICT_FAIL] + driven.verdict[HA_VERDICT_ERROR], 0);
}

TEST_WITH(figures_are_written, begin, driven_end)
{
    size_t measured = 0;
    cap_ns = FIGURES_NS;
    run("link", "piece=4K,layout=scattered", true);
    says("claim: \"0.8 GB/s in 4 KB pieces");
    says("%: of the link's ceiling, large pinned copies in this run: 10.0 GB/s up, 10.0 GB/s down.");
    assert_int_equal(driven.results.entries, 15);
    for (size_t i = 0; i < 15; i++) {
        assert_string_equal(ha_driven_text(&driven, entry(i), "device_kind"), "plugin");
        assert_string_equal(ha_driven_text(&driven, entry(i), "direction"), strstr(method(i), "d2h") ? "d2h" : "h2d");
        assert_true(number(i, "piece_bytes") == 4096 && number(i, "source_bytes") == 2097152);
        assert_true(number(i, "ceiling_GBps") == 10);
        const bool threads = !strncmp(method(i), "gather", 6) || !strncmp(method(i), "stores", 6);
        assert_true(threads == !isnan(number(i, "threads")));
        if (row(i)->head.verdict == HA_VERDICT_WAIVED) continue;
        measured++;
        const double x = number(i, "GBps"), lo = number(i, "GBps_lo"), hi = number(i, "GBps_hi");
        const double least = number(i, "GBps_least"), most = number(i, "GBps_most");
        assert_true(least > 0 && least <= lo && lo <= x && x <= hi && hi <= most);
        assert_true(number(i, "samples") >= 7);
        assert_string_equal(ha_driven_text(&driven, entry(i), "disturbed"), "steal");
        assert_true(fabs(number(i, "link_share") * 10 - x) < 1e-9 * x);
        assert_true(number(i, "moved_bytes") == 524288 && number(i, "verified_bytes") == 524288);
    }
    assert_true(measured >= 7);
}

/* What a call costs decides over small pieces: the relation is the paper's, the figures are not. */
TEST_WITH(a_slow_call_shows_in_small_pieces, begin, driven_end)
{
    static const char words[] = "link:piece=4K link:piece=128K", filter[] = "layout=scattered,method=pinned";
    fake.copy = slow_copy;
    cap_ns = FIGURES_NS;
    limits.pieces = 4;
    limits.move_bytes = 1 << 20;
    run(words, filter, true);
    says("\n  in shape: a copy for each piece: 0.00");
    says("here is pinned with");
    assert_int_equal(driven.results.entries, 2);
    const double small_rate = number(0, "GBps"), page_rate = number(1, "GBps");
    assert_true(small_rate > 0 && small_rate < 4096 / 2e6 && page_rate > 9 * small_rate && page_rate < 131072 / 2e6);
    fake.copy = host->copy;
    fake.kind = "host";
    run(words, filter, true);
    says("There is no link here");
    says("not applicable: there is no PCIe link here");
    assert_true(isnan(number(0, "link_share")) && number(0, "ceiling_GBps") == 10);
}

TEST_WITH(what_the_device_lacks_is_waived, begin, driven_end)
{
    fake.move = NULL;
    fake.copy_pieces = NULL;
    fake.map_device = NULL;
    limits.cores = 3;
    run("link", "piece=256", false);
    reason("pieces", "the device has no operation copy_pieces");
    reason("kernel", "the device has no operation move");
    reason("stores_1", "the device has no operation map_device");
    reason("gather_4", "4 threads: this process has 3 cores");
    counted(12, 0, 18, 0);
    fake = *host;
    fake.mem_alloc = no_mapped;
    fake.map_device = no_window;
    run("link", "piece=256", false);
    reason("kernel", "no mapped memory: ");
    reason("kernel", "none of it");
    reason("stores_2", "the window is shut");
    run("link", "method=stores_1,piece=256", false);
    counted(0, 0, 2, 0);
    assert_null(strstr(driven.printed, "stores_1"));
}

TEST_WITH(a_failed_device_is_opened_again, begin, driven_end)
{
    fake.copy_pieces = broken_pieces;
    run("link", "piece=4K", true);
    reason("pieces", "source is NULL");
    assert_int_equal(opened, 5);
    for (size_t i = 0; i < driven.results.entries; i++) {
        const enum ha_verdict v = row(i)->head.verdict;
        if (v != HA_VERDICT_WAIVED) assert_int_equal(v, !strncmp(method(i), "pieces", 6) ? HA_VERDICT_ERROR : HA_PASS);
    }
    begin(state);
    fake.copy_pieces = broken_pieces;
    opens_at_most = 1;
    run("link", "piece=4K", true);
    reason("pieces", "source is NULL");
    reason("kernel", "it is gone for good");
    reason("pinned_d2h", "it is gone for good");
    counted(0, 0, 0, 30);
}

static unsigned copies_left;
static enum ha_status broken_later(struct ha_stream *s, const struct ha_device_pieces *pieces, enum ha_direction dir)
{
    return copies_left-- ? host->copy_pieces(s, pieces, dir) : broken_pieces(s, pieces, dir);
}

/* A device that fails while it is timed costs that method, not those beside it. */
TEST_WITH(a_device_fails_while_it_is_timed, begin, driven_end)
{
    fake.copy_pieces = broken_later;
    copies_left = 3; /* the check and two samples */
    cap_ns = FIGURES_NS;
    run("link", "piece=4K,layout=scattered,method!=pinned_d2h,method!=pieces_d2h,method!=kernel_d2h", true);
    assert_int_equal(opened, 2);
    assert_int_equal(driven.verdict[HA_VERDICT_ERROR], 1);
    reason("pieces", "source is NULL");
    for (size_t i = 0; i < driven.results.entries; i++)
        assert_true((row(i)->head.verdict == HA_PASS) == (number(i, "samples") >= 7));
}

TEST_WITH(a_device_that_does_nothing_is_not_judged, begin, driven_end)
{
    fake.copy = no_copy;
    fake.kind = "null";
    run("link", "piece=4K,method=pinned", true);
    assert_int_equal(driven.verdict[HA_UNCHECKED], 2);
    says("unchecked");
    says("the device moves nothing");
    for (size_t i = 0; i < 2; i++)
        assert_true(isnan(number(i, "verified_bytes")) && isnan(number(i, "link_share")) && isnan(number(i, "GBps")));
}

/* Moves go through the whole source before one finds its bytes again, and no two seeds in the same order. */
TEST_WITH(moves_go_through_the_source, begin, driven_end)
{
    enum { SLOTS = 512 }; /* of 4 KB in 2 MB */
    struct ha_kernels kernels;
    struct ha_device *device;
    struct ha_link_bench bench;
    uint32_t order[2][SLOTS];
    size_t alike = 0, in_place = 0;
    assert_int_equal(ha_kernels_resolve("c", &kernels, &why), HA_OK);
    assert_int_equal(host->open(&device, &(struct ha_device_config){ .kernels = &kernels }, &why), HA_OK);
    assert_int_equal(ha_link_bench_open(&bench, host, device, &small_limits, &why), HA_OK);
    for (int scattered = 0; scattered < 2; scattered++)
        for (uint64_t seed = 0; seed < 2; seed++) {
            bool seen[SLOTS] = { false };
            assert_int_equal(ha_link_bench_lay(&bench, PIECE, scattered, seed, &why), HA_OK);
            for (size_t turn = 0; turn < 4; turn++) {
                const struct ha_link_plan p = ha_link_bench_plan(&bench, HA_LINK_PINNED, turn);
                assert_int_equal(p.pieces, SLOTS / 4);
                assert_true(scattered == (p.device_slot != NULL));
                for (size_t i = 0; i < p.pieces; i++) {
                    assert_true(p.slot[i] < SLOTS && !seen[p.slot[i]]);
                    seen[p.slot[i]] = true;
                    order[seed][turn * p.pieces + i] = p.slot[i];
                    if (scattered) assert_int_equal(p.device_slot[i], p.slot[i]);
                    else assert_int_equal(p.slot[i], turn * p.pieces + i);
                }
            }
            assert_ptr_equal(ha_link_bench_plan(&bench, HA_LINK_PINNED, 4).slot, bench.slot);
        }
    for (size_t i = 0; i < SLOTS; i++) {
        alike += order[0][i] == order[1][i];
        in_place += order[0][i] == i;
    }
    assert_true(alike < 10 && in_place < 10);
    ha_link_bench_close(&bench);
    assert_null(host->failure(device));
    host->close(device);
}

static enum ha_status unawaited(struct ha_link_bench *b, const struct ha_link_method *m, const struct ha_link_plan *p)
{
    for (size_t i = 0; i < p->pieces; i++)
        b->api->copy(b->stream, p->host + p->slot[i] * p->piece_bytes, b->memory + i * p->piece_bytes, p->piece_bytes,
                     HA_D2H);
    return HA_OK;
}

TEST_WITH(a_move_that_nobody_waits_for_is_a_conflict, begin, driven_end)
{
    if (HA_TSAN) skip(); /* which reports it */
    const struct ha_link_method m = { "", "", HA_D2H, HA_LINK_PINNED, 0, 0, unawaited };
    struct ha_kernels kernels;
    struct ha_device *device;
    struct ha_link_bench bench;
    size_t verified;
    assert_int_equal(ha_kernels_resolve("c", &kernels, &why), HA_OK);
    assert_int_equal(host->open(&device, &(struct ha_device_config){ .kernels = &kernels }, &why), HA_OK);
    assert_int_equal(ha_order_begin(&why), HA_OK);
    assert_int_equal(ha_link_bench_open(&bench, ha_order_wrap(host), device, &small_limits, &why), HA_OK);
    assert_int_equal(ha_link_bench_lay(&bench, PIECE, false, 1, &why), HA_OK);
    ha_link_bench_verify(&bench, &m, 0, &verified, &why); /* right or wrong */
    assert_int_equal(ha_order_verdict(ha_order_now(), &why), HA_FAIL);
    assert_contains(why.text, "write of destination by copy on link, read of a piece by compare on thread 0");
    bench.api->stream_sync(bench.stream);
    ha_link_bench_close(&bench);
    ha_order_end();
    host->close(device);
}

TEST_WITH(every_method_waits_for_what_it_moved, begin, driven_end)
{
    const struct ha_drive d = { .words = "link", .filter = "piece=4K", .seed = "3", .config.order = true };
    limits.cores = 5;
    if (drive(d) != HA_OK) fail_msg("%s", why.text);
    counted(30, 0, 0, 0);
    assert_null(ha_order_now());
}

TEST_WITH(a_piece_larger_than_a_move_is_refused, begin, driven_end)
{
    run("link", "piece=1M", false);
    counted(0, 0, 0, 30);
    reason("pinned", "pieces of 1048576 bytes, moves of at most 524288");
}

static unsigned noisy_calls;
static enum ha_status noisy_copy(struct ha_stream *s, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    if (of_piece(bytes)) nanosleep(&(struct timespec){ .tv_nsec = noisy_calls++ % 2 ? 30000000 : 10000000 }, NULL);
    return host->copy(s, dst, src, bytes, dir);
}

/* What is never known well enough ends by the suite's own limit where there is no other. */
TEST_WITH(a_group_ends_without_a_limit, begin, driven_end)
{
    const struct ha_drive d = { .words = "link:layout=scattered,piece=4K,method=pinned",
                                .config.measure = true,
                                .cap_ns = UINT64_MAX };
    fake.copy = noisy_copy;
    limits.pieces = 1;
    assert_int_equal(drive(d), HA_OK);
    assert_true(row(0)->head.samples >= 7 && row(0)->head.samples < 60);
}

/* Behind the deadline, or where there is no time at all, a measurement ends with its first round. */
TEST_WITH(a_deadline_holds_inside_a_group, begin, driven_end)
{
    static const struct {
        uint64_t deadline_ns, cap_ns;
    } end[] = { { 1, FIGURES_NS }, { 0, ONE_ROUND_NS } };
    for (size_t e = 0; e < COUNT(end); e++) {
        const struct ha_drive d = { .words = "link",
                                    .filter = "piece=4K",
                                    .config.measure = true,
                                    .cap_ns = end[e].cap_ns,
                                    .deadline_ns = end[e].deadline_ns };
        assert_int_equal(drive(d), HA_OK);
        assert_int_equal(driven.verdict[HA_PASS] + driven.verdict[HA_VERDICT_WAIVED], 30);
        for (size_t i = 0; i < 30; i++) assert_true((row(i)->head.verdict == HA_PASS) == (number(i, "samples") == 1));
    }
}

/* nothing is moved once there was a signal */
TEST_WITH(a_signal_ends_a_group, begin, driven_end)
{
    run("link", "piece=4K,layout=scattered,method=pinned", false);
    struct ha_machine *machine;
    struct ha_link_row one = { .device_kind = "plugin" };
    struct ha_group g = { .count = 1, .point = &(const void *){ point(0) }, .row = &(void *){ &one } };
    void *link_run;
    assert_int_equal(ha_machine_create(&machine, NULL, &why), HA_OK);
    const struct ha_suite_config config = { .machine = machine };
    assert_int_equal(ha_suite_link.begin(&link_run, &config, NULL, &why), HA_OK);
    limit(&limits, link_run);
    assert_int_equal(ha_suite_link.open(link_run, &g, &why), HA_OK);
    ha_stop = 2;
    assert_int_equal(ha_suite_link.check(link_run, &g, &why), HA_WAIVED);
    assert_int_equal(ha_suite_link.measure(link_run, &g, &why), HA_WAIVED);
    assert_true(one.head.verdict == HA_NOT_RUN && !(one.verified_bytes > 0) && !(one.GBps > 0));
    ha_suite_link.end(link_run);
    ha_machine_destroy(machine);
}

static enum ha_status stopping_copy(struct ha_stream *s, void *dst, const void *src, size_t bytes,
                                    enum ha_direction dir)
{
    if (bytes == 4096) ha_stop = 2; /* the groups of 256 bytes come before */
    return host->copy(s, dst, src, bytes, dir);
}

TEST_WITH(a_signal_keeps_complete_groups, begin, driven_end)
{
    fake.copy = stopping_copy;
    run("link:piece=256 link:piece=4K", "method=pinned", true);
    assert_int_equal(driven.results.entries, 4);
    assert_true(driven.verdict[HA_PASS] == 2 && driven.verdict[HA_NOT_RUN] == 1);
    for (size_t i = 0; i < 4; i++)
        assert_true(!entry(i)->row || row(i)->head.verdict == HA_NOT_RUN || row(i)->GBps > 0);
}

TEST_WITH(wrong_words_are_named, begin, driven_end)
{
    static const struct {
        const char *id, *says;
    } cases[] = {
        { "link:method=kernal", "unknown method 'kernal'; did you mean 'kernel'?" },
        { "link:piece=3K", "unknown piece '3K'" },
        { "link:piece=", "unknown piece" },
        { "link:piece=K", "unknown piece 'K'" },
        { "link:layout=scatterd", "did you mean 'scattered'?" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(drive((struct ha_drive){ .words = cases[i].id }), HA_ERROR);
        assert_contains(why.text, cases[i].says);
    }
    assert_int_equal(opened, 0);
}

TEST_WITH(filters_choose, begin, driven_end)
{
    static const struct {
        const char *filter;
        size_t entries;
    } cases[] = {
        { NULL, 300 },        { "method=kernel", 20 },
        { "piece=4096", 30 }, { "piece=4K,layout=scattered,method=pinned", 1 },
        { "piece!=4K", 270 }, { "stores,piece=16M", 8 },
        { "d2h", 60 },        { "d2h,layout!=contiguous", 30 },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct ha_drive d = { .words = "link", .filter = cases[i].filter, .plan_only = true };
        assert_int_equal(drive(d), HA_OK);
        assert_int_equal(driven.results.entries, cases[i].entries);
    }
    const struct ha_drive d = { .words = "link:method=kernel,piece=4096,layout=scattered,seed=18446744073709551615",
                                .plan_only = true };
    assert_int_equal(drive(d), HA_OK);
    assert_int_equal(driven.results.entries, 1);
    assert_string_equal(entry(0)->id, "link:layout=scattered,piece=4K,method=kernel,seed=18446744073709551615");
    assert_true(point(0)->seed == UINT64_MAX && ha_link_pieces[point(0)->piece] == 4096);
    assert_int_equal(opened, 0);
}

TEST_WITH(every_id_comes_back, begin, driven_end)
{
    const struct ha_drive d = {
        .words = "link", .isa = "c", .device = "/some/where.so", .seed = "7", .plan_only = true
    };
    assert_int_equal(drive(d), HA_OK);
    for (size_t i = 0; i < driven.results.entries; i++) {
        struct ha_link_point back;
        const struct ha_suite *suite;
        assert_int_equal(ha_id_parse(entry(i)->id, &suite, &back, sizeof back, &why), HA_OK);
        assert_ptr_equal(suite, &ha_suite_link);
        assert_memory_equal(&back, point(i), sizeof back);
    }
}
