/* The link suite over the embedded device, as it is and made wrong, slow, poor or broken. */

#include "suites/link/run.h"

#include "harness/base/clock.h"
#include "harness/base/csv.h"
#include "harness/base/stop.h"
#include "suites/link/id.h"
#include "harness/base/registry.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { PIECE = 4096, TEXT = 1 << 16 };

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
    const uint64_t begin = ha_now_ns();
    while (bytes <= 131072 && ha_now_ns() - begin < 2000000) continue;
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
static enum ha_status elsewhere(struct ha_device *dev, void *ptr, size_t bytes, void **at, struct ha_why *why)
{
    const enum ha_status status = host->map_device(dev, ptr, bytes, at, why);
    *at = aligned_alloc(64, bytes);
    return status;
}
static void free_elsewhere(struct ha_device *dev, void *at) { (void)dev, free(at); }

static enum ha_status no_mapped(struct ha_device *dev, enum ha_memory memory, size_t bytes, void **ptr,
                                struct ha_why *why)
{
    if (memory != HA_MEM_MAPPED) return host->mem_alloc(dev, memory, bytes, ptr, why);
    snprintf(why->text, sizeof why->text, "none of it");
    return HA_ERROR;
}
static enum ha_status no_window(struct ha_device *dev, void *ptr, size_t bytes, void **at, struct ha_why *why)
{
    (void)dev, (void)ptr, (void)bytes, (void)at;
    snprintf(why->text, sizeof why->text, "the window is shut");
    return HA_WAIVED;
}
static enum ha_status counting_open(struct ha_device **dev, const struct ha_device_config *config, struct ha_why *why)
{
    if (opened == opens_at_most) {
        snprintf(why->text, sizeof why->text, "it is gone for good");
        return HA_ERROR;
    }
    opened++;
    return host->open(dev, config, why);
}

/* ---- a run and what it printed ---------------------------------------------------------------------- */

static char folder[64], printed[TEXT];
static struct ha_why why;

static int end(void **state)
{
    static const char *const files[] = { "link.csv", "env.json", "junit.xml" };
    (void)state;
    ha_stop = 0;
    for (size_t i = 0; i < 3; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    const int status = rmdir(folder);
    *folder = 0;
    return status;
}

static int begin(void **state)
{
    if (*folder) end(state); /* of the same test */
    host = ha_devices_all[0];
    fake = *host;
    fake.open = counting_open;
    fake.kind = "plugin";
    opened = 0;
    opens_at_most = 100;
    ha_stop = 0;
    strcpy(folder, "link_test_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static struct ha_link_options small(const char *filter, bool measure)
{
    static char link_word[] = "link", *words[] = { link_word };
    static struct ha_ceilings ceilings;
    for (size_t i = 0; i < HA_CEILINGS; i++) ceilings.of[i] = (struct ha_reading){ 10, 10, 10, 1 };
    return (struct ha_link_options){ .words = words,
                                     .words_count = 1,
                                     .filter = filter,
                                     .seed = 3,
                                     .measure = measure,
                                     .api = &fake,
                                     .ceilings = &ceilings,
                                     .out_dir = folder,
                                     .limits = { .source_bytes = 2 << 20, .move_bytes = 512 << 10, .pieces = 128 } };
}

static enum ha_exit run(struct ha_link_options o)
{
    char path[] = "link_stdout_XXXXXX";
    const int out = mkstemp(path), before = dup(STDOUT_FILENO);
    assert_true(out >= 0 && before >= 0);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    why.text[0] = 0;
    const enum ha_exit code = ha_link_run(&o, &why);
    fflush(stdout);
    dup2(before, STDOUT_FILENO);
    close(before);
    const ssize_t bytes = pread(out, printed, TEXT - 1, 0);
    printed[bytes > 0 ? bytes : 0] = 0;
    close(out);
    unlink(path);
    return code;
}

static void says(const char *words)
{
    if (!strstr(printed, words)) fail_msg("lacks '%s':\n%s", words, printed);
}

/* ---- link.csv ---------------------------------------------------------------------------------------- */

enum { ROWS = 400, FIELDS = 24 };
static char table[ROWS][FIELDS][128];
static size_t rows;

static enum ha_status keep(void *arg, size_t line, char **fields, size_t count)
{
    (void)arg, (void)line;
    assert_int_equal(count, FIELDS);
    assert_true(rows < ROWS);
    for (size_t i = 0; i < count; i++) snprintf(table[rows][i], sizeof table[rows][i], "%s", fields[i]);
    rows++;
    return HA_OK;
}

static void read_rows(void)
{
    char path[128];
    rows = 0;
    snprintf(path, sizeof path, "%s/link.csv", folder);
    assert_int_equal(ha_csv_read(path, keep, NULL, &why), HA_OK);
    assert_true(rows > 0);
    assert_string_equal(table[0][0], "schema_version");
}

static const char *field(size_t row, const char *column)
{
    for (size_t i = 0; i < FIELDS; i++)
        if (!strcmp(table[0][i], column)) return table[row][i];
    fail_msg("no column %s", column);
    return NULL;
}

static bool among(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (!strcmp(name, *names)) return true;
    return false;
}

/* ---- tests --------------------------------------------------------------------------------------------- */

static void every_method_moves_the_right_bytes(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        static const char *const filter[] = { "piece=256", "piece=4K", "piece=256K" };
        struct ha_link_options o = small(filter[i], false);
        o.limits.cores = 5; /* so that there is a team of each size */
        o.out_dir = i ? NULL : folder;
        assert_int_equal(run(o), HA_EXIT_OK);
        says("30 passed, 0 failed, 0 skipped");
        says("stores_all");
    }
    read_rows();
    assert_int_equal(rows, 1 + 30);
    for (size_t i = 1; i < rows; i++) {
        assert_string_equal(field(i, "verdict"), "pass");
        assert_string_equal(field(i, "GBps"), "");
        assert_string_equal(field(i, "samples"), "");
        assert_string_equal(field(i, "verified_bytes"), "32768");
        assert_string_equal(field(i, "pieces"), "128");
    }
}

static void wrong_bytes_fail(void **state)
{
    (void)state;
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
    for (size_t d = 0; d < sizeof defect / sizeof *defect; d++) {
        const struct ha_device_api *c = &defect[d].change;
        void *none = NULL;
        begin(&none);
        if (c->copy) fake.copy = c->copy;
        if (c->copy_pieces) fake.copy_pieces = c->copy_pieces;
        if (c->move) fake.move = c->move;
        if (c->map_device) fake.map_device = c->map_device, fake.unmap_device = c->unmap_device;
        struct ha_link_options o = small("piece=4K", true);
        o.limits.cores = 5;
        assert_int_equal(run(o), HA_EXIT_WRONG);
        says("FAIL");
        says(defect[d].words);
        assert_non_null(strstr(why.text, "move wrong bytes"));
        read_rows();
        assert_int_equal(rows, 1 + 30);
        for (size_t i = 1; i < rows; i++) {
            bool wrong = among(field(i, "method"), defect[d].wrong);
            if (defect[d].scattered_only && !strcmp(field(i, "layout"), "contiguous")) wrong = false;
            if (strcmp(field(i, "verdict"), wrong ? "fail" : "pass"))
                fail_msg("defect %zu: %s %s: %s", d, field(i, "method"), field(i, "layout"), field(i, "verdict"));
            assert_true(!*field(i, "GBps") == wrong);
        }
        end(&none);
    }
    void *none = NULL;
    begin(&none);
}

static void figures_are_written(void **state)
{
    (void)state;
    struct ha_link_options o = small("piece=4K,layout=scattered", true);
    assert_int_equal(run(o), HA_EXIT_OK);
    says("claim: \"0.8 GB/s in 4 KB pieces");
    read_rows();
    assert_int_equal(rows, 1 + 15);
    size_t measured = 0;
    for (size_t i = 1; i < rows; i++) {
        assert_string_equal(field(i, "schema_version"), "1");
        assert_string_equal(field(i, "device_kind"), "plugin");
        assert_string_equal(field(i, "piece_bytes"), "4096");
        assert_string_equal(field(i, "layout"), "scattered");
        assert_string_equal(field(i, "source_bytes"), "2097152");
        assert_string_equal(field(i, "seed"), "3");
        assert_string_equal(field(i, "ceiling_GBps"), "10");
        const bool threads = !strncmp(field(i, "method"), "gather", 6) || !strncmp(field(i, "method"), "stores", 6);
        assert_true(threads == (*field(i, "threads") != 0));
        if (!strcmp(field(i, "verdict"), "waived")) continue;
        measured++;
        const double x = strtod(field(i, "GBps"), NULL), lo = strtod(field(i, "GBps_lo"), NULL),
                     hi = strtod(field(i, "GBps_hi"), NULL);
        const double least = strtod(field(i, "GBps_least"), NULL), most = strtod(field(i, "GBps_most"), NULL);
        assert_true(least > 0 && least <= lo && lo <= x && x <= hi && hi <= most);
        assert_true(strtod(field(i, "samples"), NULL) >= 7);
        assert_true(fabs(strtod(field(i, "link_share"), NULL) * 10 - x) < 1e-9 * x);
        assert_string_equal(field(i, "moved_bytes"), "524288");
        assert_string_equal(field(i, "verified_bytes"), "524288");
    }
    assert_true(measured >= 7);
}

/* What a call costs decides over small pieces: the relation is the paper's, the figures are not. */
static void a_slow_call_shows_in_small_pieces(void **state)
{
    (void)state;
    fake.copy = slow_copy;
    struct ha_link_options o = small("layout=scattered,method=pinned", true);
    static char four[] = "link:piece=4K", page[] = "link:piece=128K", *words[] = { four, page };
    o.words = words;
    o.words_count = 2;
    o.limits.pieces = 16;
    o.limits.move_bytes = 1 << 20;
    assert_int_equal(run(o), HA_EXIT_OK);
    says("\n  in shape: a copy for each piece: 0.00");
    says("here is pinned with");
    read_rows();
    assert_int_equal(rows, 3);
    const double small_rate = strtod(field(1, "GBps"), NULL), page_rate = strtod(field(2, "GBps"), NULL);
    assert_true(small_rate > 0 && small_rate < 4096 / 2e6 && page_rate > 9 * small_rate && page_rate < 131072 / 2e6);
    fake.copy = host->copy;
    fake.kind = "host";
    o.out_dir = NULL;
    assert_int_equal(run(o), HA_EXIT_OK);
    says("There is no link here");
    says("not applicable: there is no PCIe link here");
}

static void what_the_device_lacks_is_waived(void **state)
{
    (void)state;
    fake.move = NULL;
    fake.copy_pieces = NULL;
    fake.map_device = NULL;
    struct ha_link_options o = small("piece=256", false);
    o.out_dir = NULL;
    o.limits.cores = 3;
    assert_int_equal(run(o), HA_EXIT_OK);
    says("waived: pieces: the device has no operation copy_pieces");
    says("waived: kernel: the device has no operation move");
    says("waived: stores_1: the device has no operation map_device");
    says("waived: gather_4: 4 threads: this process has 3 cores");
    says("12 passed, 0 failed, 18 skipped");
    fake = *host;
    fake.mem_alloc = no_mapped;
    fake.map_device = no_window;
    assert_int_equal(run(o), HA_EXIT_OK);
    says("waived: kernel: no mapped memory: ");
    says("none of it");
    says("waived: stores_2: the window is shut");
    o.filter = "method=stores_1,piece=256";
    assert_int_equal(run(o), HA_EXIT_WAIVED);
    assert_non_null(strstr(why.text, "everything was waived"));
}

static void a_failed_device_is_opened_again(void **state)
{
    (void)state;
    fake.copy_pieces = broken_pieces;
    assert_int_equal(run(small("piece=4K", true)), HA_EXIT_ENVIRONMENT);
    says("source is NULL");
    assert_int_equal(opened, 5);
    read_rows();
    for (size_t i = 1; i < rows; i++) {
        const char *want = !strncmp(field(i, "method"), "pieces", 6) ? "error" : "pass";
        if (strcmp(field(i, "verdict"), "waived")) assert_string_equal(field(i, "verdict"), want);
    }
    begin(state);
    fake.copy_pieces = broken_pieces;
    opens_at_most = 1;
    assert_int_equal(run(small("piece=4K", true)), HA_EXIT_ENVIRONMENT);
    assert_non_null(strstr(why.text, "it is gone for good"));
}

static void a_device_that_does_nothing_is_not_judged(void **state)
{
    (void)state;
    fake.copy = no_copy;
    fake.kind = "null";
    assert_int_equal(run(small("piece=4K,method=pinned", true)), HA_EXIT_OK);
    read_rows();
    assert_int_equal(rows, 3);
    assert_string_equal(field(1, "verdict"), "unchecked");
    assert_string_equal(field(1, "verified_bytes"), "");
    assert_string_equal(field(1, "link_share"), "");
}

/* Moves go through the whole source before one finds its bytes again, and no two seeds in the same order. */
static void moves_go_through_the_source(void **state)
{
    (void)state;
    enum { SLOTS = 512 }; /* of 4 KB in 2 MB */
    const struct ha_link_limits limits = small(NULL, true).limits;
    struct ha_kernels kernels;
    struct ha_device *device;
    struct ha_link_bench bench;
    uint32_t order[2][SLOTS];
    size_t alike = 0, in_place = 0;
    assert_int_equal(ha_kernels_resolve("c", &kernels, &why), HA_OK);
    assert_int_equal(host->open(&device, &(struct ha_device_config){ .kernels = &kernels }, &why), HA_OK);
    assert_int_equal(ha_link_bench_open(&bench, host, device, &limits, &why), HA_OK);
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

static void a_piece_larger_than_a_move_is_refused(void **state)
{
    (void)state;
    assert_int_equal(run(small("piece=1M", false)), HA_EXIT_ENVIRONMENT);
    assert_non_null(strstr(why.text, "pieces of 1048576 bytes, moves of at most 524288"));
}

static void what_was_not_run_is_missing(void **state)
{
    (void)state;
    struct ha_link_options o = small("piece=4K", true);
    o.max_time_ns = 1;
    assert_int_equal(run(o), HA_EXIT_MISSING);
    assert_non_null(strstr(why.text, "--max-time is over: 30 of 30"));
    read_rows();
    assert_int_equal(rows, 1);
    o.out_dir = NULL;
    ha_stop = 2;
    assert_int_equal(run(o), HA_EXIT_MISSING);
    assert_non_null(strstr(why.text, "interrupted: 30 of 30"));
}

static enum ha_status stopping_copy(struct ha_stream *s, void *dst, const void *src, size_t bytes,
                                    enum ha_direction dir)
{
    if (bytes == 4096) ha_stop = 2; /* the groups of 256 bytes come before */
    return host->copy(s, dst, src, bytes, dir);
}

static void a_signal_keeps_complete_groups(void **state)
{
    (void)state;
    fake.copy = stopping_copy;
    struct ha_link_options o = small("method=pinned", true);
    static char first[] = "link:piece=256", second[] = "link:piece=4K", *words[] = { first, second };
    o.words = words;
    o.words_count = 2;
    assert_int_equal(run(o), HA_EXIT_MISSING);
    assert_non_null(strstr(why.text, "interrupted: "));
    read_rows();
    assert_true(rows >= 2 && rows < 5);
    for (size_t i = 1; i < rows; i++) assert_true(*field(i, "GBps") != 0);
}

static void a_full_disk_is_an_error(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/link.csv", folder);
    assert_int_equal(symlink("/dev/full", path), 0);
    assert_int_equal(run(small("piece=4K", false)), HA_EXIT_ENVIRONMENT);
    assert_non_null(strstr(why.text, "No space left on device"));
}

static void wrong_words_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *word, *filter, *says;
    } cases[] = {
        { "link:methd=kernel", NULL, "unknown key 'methd'; did you mean 'method'?" },
        { "link:method=kernal", NULL, "unknown method 'kernal'; did you mean 'kernel'?" },
        { "link:piece=3K", NULL, "unknown piece '3K'" },
        { "link:piece=", NULL, "unknown piece" },
        { "link:piece=K", NULL, "unknown piece 'K'" },
        { "link:layout=scatterd", NULL, "did you mean 'scattered'?" },
        { "link:kernel", NULL, "'kernel': not key=value" },
        { "link", "piece!=5", "-f: unknown piece '5'" },
        { "link", "size=4K", "-f: unknown key 'size'" },
        { "link", "kernel,pinned", "none of the figures fits" },
        { "link:method=kernel", "method=pinned", "none of the figures fits" },
        { "link:method=kernel,method=pinned", NULL, "no figure is all that the words say" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char word[64], *words[] = { word };
        struct ha_link_options o = small(cases[i].filter, false);
        snprintf(word, sizeof word, "%s", cases[i].word);
        o.words = words;
        assert_int_equal(run(o), HA_EXIT_USAGE);
        if (!strstr(why.text, cases[i].says)) fail_msg("'%s' lacks '%s'", why.text, cases[i].says);
    }
    assert_int_equal(opened, 0);
}

static void filters_choose(void **state)
{
    (void)state;
    static const struct {
        const char *filter;
        size_t lines;
    } cases[] = {
        { NULL, 300 },        { "method=kernel", 20 },
        { "piece=4096", 30 }, { "piece=4K,layout=scattered,method=pinned", 1 },
        { "piece!=4K", 270 }, { "stores,piece=16M", 8 },
        { "d2h", 60 },        { "d2h,layout!=contiguous", 30 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ha_link_options o = small(cases[i].filter, true);
        size_t lines = 0;
        o.dry_run = true;
        assert_int_equal(run(o), HA_EXIT_OK);
        for (const char *p = printed; (p = strchr(p, '\n')); p++) lines++;
        assert_int_equal(lines, cases[i].lines);
    }
    struct ha_link_point p = { ha_link_method_find("kernel"), 4096, true };
    char id[HA_LINK_ID_MAX];
    ha_link_id_print(&p, id);
    assert_string_equal(id, "link:method=kernel,piece=4K,layout=scattered");
    assert_int_equal(ha_link_terms_check(id + 5, false, &why), HA_OK);
    assert_true(ha_link_terms_fit(id + 5, &p));
    p.piece_bytes = 256;
    assert_false(ha_link_terms_fit(id + 5, &p));
    assert_int_equal(opened, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_method_moves_the_right_bytes, begin, end),
        cmocka_unit_test_setup_teardown(wrong_bytes_fail, begin, end),
        cmocka_unit_test_setup_teardown(figures_are_written, begin, end),
        cmocka_unit_test_setup_teardown(a_slow_call_shows_in_small_pieces, begin, end),
        cmocka_unit_test_setup_teardown(what_the_device_lacks_is_waived, begin, end),
        cmocka_unit_test_setup_teardown(a_failed_device_is_opened_again, begin, end),
        cmocka_unit_test_setup_teardown(a_device_that_does_nothing_is_not_judged, begin, end),
        cmocka_unit_test_setup_teardown(moves_go_through_the_source, begin, end),
        cmocka_unit_test_setup_teardown(a_piece_larger_than_a_move_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(what_was_not_run_is_missing, begin, end),
        cmocka_unit_test_setup_teardown(a_signal_keeps_complete_groups, begin, end),
        cmocka_unit_test_setup_teardown(a_full_disk_is_an_error, begin, end),
        cmocka_unit_test_setup_teardown(wrong_words_are_named, begin, end),
        cmocka_unit_test_setup_teardown(filters_choose, begin, end),
    };
    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
