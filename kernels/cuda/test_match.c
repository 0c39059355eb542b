/* Whose records they are: queues of operations and of records, written as text. */

#include "harness/base/test.h"
#include "kernels/cuda/trace.h"

/* An operation: a attend of 1 kernel, A of 2, m merge, w a wait by three kernels, d the driver's, h a host function,
 * U 64 bytes up, D 64 bytes back, p a product, P attend_products with 2 kernels of ours, g a graph of 3 nodes. */
static const struct {
    char letter;
    struct ha_cuda_span span;
    uint32_t kernels;
} operations[] = {
    { 'a', { .kind = HA_SPAN_KERNEL, .name = "attend" }, 1 },
    { 'A', { .kind = HA_SPAN_KERNEL, .name = "attend" }, 2 },
    { 'm', { .kind = HA_SPAN_KERNEL, .name = "merge" }, 1 },
    { 'w', { .kind = HA_SPAN_WAIT, .name = "flag_wait" }, 3 },
    { 'd', { .kind = HA_SPAN_WAIT, .name = "flag_wait" }, 0 },
    { 'h', { .kind = HA_SPAN_CPU, .name = "host_fn" }, 0 },
    { 'U', { .kind = HA_SPAN_H2D, .name = "copy H2D", .bytes = 64 }, 0 },
    { 'D', { .kind = HA_SPAN_D2H, .name = "copy D2H", .bytes = 64 }, 0 },
    { 'p', { .kind = HA_SPAN_KERNEL, .name = "product", .library = true }, 0 },
    { 'P', { .kind = HA_SPAN_KERNEL, .name = "attend_products", .library = true }, 2 },
    { 'g', { .kind = HA_SPAN_KERNEL, .name = "graph_launch", .graph = &(struct ha_graph){ .nodes = 3 } }, 3 },
};

/* A record: a, m, w, f kernels of attend, merge, flag_wait and flag_write, o of attend_products, x a library's, s a
 * memset; U and D copies of 64 bytes, u and v of 16 and 48 bytes up. */
static const struct {
    char letter;
    struct ha_cupti_record record;
} records[] = {
    { 'a', { .what = HA_CUPTI_KERNEL, .kind = HA_SPAN_KERNEL, .operation = "attend" } },
    { 'm', { .what = HA_CUPTI_KERNEL, .kind = HA_SPAN_KERNEL, .operation = "merge" } },
    { 'w', { .what = HA_CUPTI_KERNEL, .kind = HA_SPAN_WAIT, .operation = "flag_wait" } },
    { 'f', { .what = HA_CUPTI_KERNEL, .kind = HA_SPAN_WAIT, .operation = "flag_write" } },
    { 'o', { .what = HA_CUPTI_KERNEL, .kind = HA_SPAN_KERNEL, .operation = "attend_products" } },
    { 'x', { .what = HA_CUPTI_KERNEL, .kind = HA_SPAN_KERNEL } },
    { 's', { .what = HA_CUPTI_SET, .kind = HA_SPAN_D2D } },
    { 'U', { .what = HA_CUPTI_COPY, .kind = HA_SPAN_H2D, .bytes = 64 } },
    { 'D', { .what = HA_CUPTI_COPY, .kind = HA_SPAN_D2H, .bytes = 64 } },
    { 'u', { .what = HA_CUPTI_COPY, .kind = HA_SPAN_H2D, .bytes = 16 } },
    { 'v', { .what = HA_CUPTI_COPY, .kind = HA_SPAN_H2D, .bytes = 48 } },
};

enum { MOST = 32 };
static struct ha_cuda_enqueued x[MOST];
static struct ha_cupti_record r[MOST];

static size_t add_operations(size_t at, const char *text, uint64_t queue)
{
    for (; *text; text++)
        for (size_t i = 0; i < COUNT(operations); i++)
            if (operations[i].letter == *text)
                x[at++] = (struct ha_cuda_enqueued){ .queue = queue,
                                                     .span = &operations[i].span,
                                                     .kernels = operations[i].kernels };
    return at;
}

static size_t add_records(size_t at, const char *text, uint64_t queue)
{
    for (; *text; text++)
        for (size_t i = 0; i < COUNT(records); i++)
            if (records[i].letter == *text) {
                r[at] = records[i].record;
                r[at++].queue = queue;
            }
    return at;
}

/* owned: how many records each operation has; a * behind it: shared */
static void check(const char *enqueued, const char *recorded, const char *owned, uint64_t lost)
{
    char got[2 * MOST + 1] = "";
    const size_t count = add_operations(0, enqueued, 5);
    size_t at = 0, used = 0;
    uint64_t said = ha_cuda_match(x, count, r, add_records(0, recorded, 5), UINT64_MAX);
    for (size_t i = 0; i < count; i++) {
        got[used++] = (char)('0' + x[i].count);
        if (x[i].shared) got[used++] = '*';
        if (x[i].count) assert_int_equal(x[i].first, at);
        at += x[i].count;
    }
    if (strcmp(got, owned) != 0 || said != lost)
        fail_msg("%s, recorded %s: %s and %llu lost, not %s and %llu", enqueued, recorded, got,
                 (unsigned long long)said, owned, (unsigned long long)lost);
}

TEST(each_operation_has_what_it_enqueued)
{
    check("", "", "", 0);
    check("aAm", "aaam", "121", 0);
    check("mwdhm", "mfwfm", "13001", 0);
    check("UaD", "UaD", "111", 0);
    check("UU", "uvvu", "22", 0); /* pieces */
    check("UU", "uuuuUa", "41", 1);
    check("gg", "asUmmm", "33", 0);
}

TEST(kernels_of_a_library_are_as_many_as_it_likes)
{
    check("p", "x", "1", 0);
    check("pm", "xsxm", "31", 0);
    check("Pm", "oxxsom", "51", 0);
    check("Ppm", "oxoxxm", "321", 0); /* attention by products ends with a kernel of ours */
    check("pPm", "xxoxom", "231", 0); /* and begins with one */
    check("ppp", "xxx", "111", 0);
    check("pdphp", "xxx", "10101", 0);
    check("ppm", "xxxm", "3*01", 0);
    check("pdpmpm", "xxxmxxm", "3*00121", 0);
    check("ppm", "xm", "000", 3);
    check("pm", "m", "00", 2);
}

TEST(what_does_not_fit_is_nobodys)
{
    check("am", "ma", "00", 2);
    check("aAm", "aam", "100", 3); /* one is missing */
    check("aam", "am", "100", 2);
    check("aaa", "aa", "110", 1);
    check("am", "aam", "10", 2); /* one too many, */
    check("am", "amm", "11", 1); /* in the end */
    check("am", "axm", "10", 2);
    check("am", "asm", "10", 2);
    check("w", "fwm", "0", 3);
    check("d", "w", "0", 1);
    check("h", "x", "0", 1);
    check("U", "D", "0", 1);     /* another direction, */
    check("UD", "uuD", "00", 3); /* fewer bytes, */
    check("Ua", "uUa", "00", 3); /* more bytes */
    check("P", "oxm", "0", 3);
    check("P", "oxUo", "0", 4);
    check("p", "o", "0", 1);
    check("gg", "aaaaa", "30", 3);
    check("aA", "", "00", 3);
}

TEST(queues_do_not_mix)
{
    size_t n = add_operations(0, "a", 7), m = add_records(0, "x", 3); /* nobody's */
    n = add_operations(n, "m", 4);
    n = add_operations(n, "m", 7);
    n = add_operations(n, "a", 0); /* CUPTI does not say which */
    m = add_records(m, "a", 4);
    m = add_records(m, "x", 5);
    m = add_records(m, "am", 7);
    m = add_records(m, "x", 9);
    assert_int_equal(ha_cuda_match(x, n, r, m, UINT64_MAX), 1 + 1);
    assert_true(x[0].queue == 0 && x[0].count == 0);
    assert_true(x[1].queue == 4 && x[1].count == 0);
    assert_true(x[2].queue == 7 && x[2].count == 1 && x[2].first == 3 && x[2].order == 0);
    assert_true(x[3].queue == 7 && x[3].count == 1 && x[3].first == 4 && x[3].order == 2);
}

/* Another thread goes on enqueueing while the trace ends. */
TEST(what_begins_after_the_end_is_not_missed)
{
    const size_t n = add_operations(0, "am", 5), m = add_records(0, "amaa", 5);
    for (size_t i = 0; i < m; i++) r[i].begin_ns = 100 * i;
    assert_int_equal(ha_cuda_match(x, n, r, m, 200), 0);
    assert_int_equal(ha_cuda_match(x, n, r, m, 201), 1);
    assert_int_equal(ha_cuda_match(x, n, r, m, 50), 0); /* what was enqueued before may run later */
    assert_int_equal(x[1].count, 1);
    assert_int_equal(ha_cuda_match(x, n, r, 1, 50), 1);
}
