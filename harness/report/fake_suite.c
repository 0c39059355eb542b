#include "harness/report/fake_suite.h"

#include "harness/base/why.h"
#include "harness/report/row.h"

#include <stdio.h>

enum { R = 1 << FAKE_ROWS, S = 1 << FAKE_SAMPLES, Y = 1 << FAKE_SUMMARY };
#define AT(member) HA_IN(struct fake_row, member)

static const struct ha_field fields[] = {
    { "time_ns", "ns", HA_FIELD_NUMBER, AT(time_ns), R | Y, "a time", HA_LESS, .lo = offsetof(struct fake_row, lo_ns),
      .hi = offsetof(struct fake_row, hi_ns) },
    { "lo_ns", "ns", HA_FIELD_NUMBER, AT(lo_ns), R, "its interval" },
    { "hi_ns", "ns", HA_FIELD_NUMBER, AT(hi_ns), R, "" },
    { "rate_GBps", "GB/s", HA_FIELD_NUMBER, AT(rate_GBps), R, "a rate", HA_MORE },
    { "big", "", HA_FIELD_WHOLE, AT(big), R | S, "up to 2^64 - 1", HA_NEITHER },
    { "text", "", HA_FIELD_TEXT, AT(text), R | S, "a text" },
    { "sample_ns", "ns", HA_FIELD_NUMBER, AT(sample_ns), S, "of a line", HA_LESS },
};
static const struct ha_key keys[] = {
    [FAKE_KIND] = { .name = "kind", .kind = HA_KEY_NAME, .doc = "the class" },
    [FAKE_SEED] = { .name = "seed", .kind = HA_KEY_NUMBER, .doc = "a seed", .column = true },
    [FAKE_NOTE] = { .name = "note", .kind = HA_KEY_NAME, .doc = "a note", .column = true, .options = " exec " },
    [FAKE_HIDDEN] = { .name = "hidden", .kind = HA_KEY_NAME, .doc = "no column" },
};

static enum ha_status measure(void *run, struct ha_group *group, struct ha_why *why) { return HA_OK; }

const struct ha_suite fake_suite = {
    .name = "fake",
    .key = keys,
    .keys = FAKE_KEYS,
    .class_key = "kind",
    .field = fields,
    .fields = sizeof fields / sizeof *fields,
    .file = { "fake.csv", "fake_summary.csv", "fake_samples.csv" },
    .summary = Y,
    .row_bytes = sizeof(struct fake_row),
    .measure = measure,
};
const struct ha_suite other_suite = {
    .name = "other",
    .key = keys + FAKE_SEED,
    .keys = 1,
    .field = fields + 3,
    .fields = 2,
    .file = { "other.csv" },
    .row_bytes = sizeof(struct fake_row),
};
const struct ha_suite *const fake_suites[2] = { &fake_suite, &other_suite };

void fake_case(struct fake_case *out, size_t n, size_t process)
{
    snprintf(out->id, sizeof out->id, "fake:kind=%s,n=%zu", n % 2 ? "odd" : "even", n);
    out->key[FAKE_KIND] = n % 2 ? "odd" : "even";
    out->key[FAKE_SEED] = "18446744073709551615";
    out->key[FAKE_NOTE] = "";
    out->key[FAKE_HIDDEN] = "hidden";
    out->of = (struct ha_folder_case){
        .suite = &fake_suite, .id = out->id, .from = "nightly", .process = process, .key_value = out->key
    };
}

struct fake_row fake_row(size_t n, enum ha_verdict verdict)
{
    struct fake_row row;
    ha_fields_clear(&fake_suite, &row);
    row.result.verdict = verdict;
    if (verdict != HA_PASS) snprintf(row.result.reason, sizeof row.result.reason, "case %zu, \"quoted\" & <odd>", n);
    row.result.samples = 30;
    row.result.beside[HA_BESIDE_READ] = 31.5;
    row.result.beside[HA_BESIDE_LAUNCH] = 2e4 + (double)n;
    row.time_ns = 1e6 + (double)n / 3;
    row.lo_ns = row.time_ns * 0.99;
    row.hi_ns = row.time_ns * 1.01;
    row.rate_GBps = 0.1 * (double)n;
    row.big = UINT64_MAX - n;
    snprintf(row.text, sizeof row.text, "text %zu, with \"quotes\"", n);
    return row;
}

size_t fake_lines(size_t n) { return n % 4; }

struct ha_folder_options fake_options(const char *path, bool resume)
{
    static const struct ha_env env = { .cpu = "a CPU", .isa = "avx2", .cores = 2, .numa_node = -1 };
    return (struct ha_folder_options){ .path = path,
                                       .resume = resume,
                                       .mode = "run",
                                       .build = "b",
                                       .options = "device=host",
                                       .command = "habench run fake",
                                       .run_id = "20260101T000000Z-1",
                                       .suites = fake_suites,
                                       .suites_count = 2,
                                       .env = &env };
}

enum ha_status fake_write(struct ha_folder *folder, size_t n, enum ha_verdict verdict, struct ha_why *why)
{
    static const char events[] = "{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":0.5,\"dur\":1,\"name\":\"step\"},\n"
                                 "{\"ph\":\"X\",\"pid\":1,\"tid\":2,\"ts\":0.5,\"dur\":1,\"name\":\"copy\"}";
    struct fake_case c;
    struct fake_row row = fake_row(n, verdict);
    fake_case(&c, n, 0);
    for (size_t i = 0; i < fake_lines(n); i++) {
        row.sample_ns = (double)i;
        HA_TRY(ha_folder_line(folder, &c.of, FAKE_SAMPLES, &row, why));
    }
    row.sample_ns = fake_row(n, verdict).sample_ns;
    HA_TRY(ha_folder_trace(folder, &c.of, events, sizeof events - 1, why));
    return ha_folder_row(folder, &c.of, &row, why);
}
