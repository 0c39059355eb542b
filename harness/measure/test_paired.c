/* Paired readings, of a kernel that keeps a record and sleeps instead of reading. */

#include "harness/measure/ceilings_parts.h"
#include "harness/base/test.h"
#include "harness/base/text.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { READS_MAX = 20000, NAP_NS = 50000 };
static const size_t reading_bytes = (size_t)128 << 20;

static struct {
    pthread_mutex_t lock;
    size_t count;
    struct record {
        uintptr_t at;
        size_t bytes, reading;
        pthread_t by;
    } of[READS_MAX];
} read_ = { .lock = PTHREAD_MUTEX_INITIALIZER };
static size_t reading;
static bool unwritten;

/* What one reading takes is had as asked. Several times the last cache is not: seconds of page faults. */
static size_t asked;
size_t ha_measure_share(size_t bytes)
{
    asked = bytes > asked ? bytes : asked;
    return bytes < reading_bytes ? bytes : reading_bytes;
}

static uint64_t keep_and_nap(const void *p, size_t bytes)
{
    const unsigned char *first = p;
    pthread_mutex_lock(&read_.lock);
    unwritten = unwritten || !first[0] || !first[bytes - 1];
    if (read_.count < READS_MAX)
        read_.of[read_.count++] = (struct record){ (uintptr_t)p, bytes, reading, pthread_self() };
    pthread_mutex_unlock(&read_.lock);
    nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct record *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* No byte twice among the reads of two readings in a row. */
static void assert_disjoint(size_t from)
{
    static struct record some[READS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < read_.count; i++)
        if (read_.of[i].reading >= from && read_.of[i].reading < from + 2) some[n++] = read_.of[i];
    qsort(some, n, sizeof *some, by_place);
    for (size_t i = 1; i < n; i++) assert_true(some[i - 1].at + some[i - 1].bytes <= some[i].at);
}

static size_t bytes_of(size_t which, bool alone)
{
    size_t bytes = 0;
    for (size_t i = 0; i < read_.count; i++) {
        if (read_.of[i].reading != which) continue;
        bytes += read_.of[i].bytes;
        if (alone) assert_true(pthread_equal(read_.of[i].by, pthread_self()));
    }
    return bytes;
}

static void read_in_turn(size_t threads)
{
    static const struct ha_kernels kernels = { .read = keep_and_nap };
    struct ha_pool *pool;
    struct ha_paired *p;
    struct ha_why why;
    if (ha_pool_create(&pool, HA_TEAM_DEFAULT, threads, &why) != HA_OK
        || ha_paired_create(&p, pool, &kernels, &why) != HA_OK)
        fail_msg("%s", why.text);
    read_.count = reading = 0;
    bool others = false; /* than the caller */
    while (reading < 4) {
        const bool alone = reading % 2;
        const double GBps = alone ? ha_paired_read_alone(p) : ha_paired_read_all(p);
        const size_t bytes = bytes_of(reading, alone);
        const double nap_GBps = (double)read_.of[0].bytes / NAP_NS;
        assert_true(bytes >= reading_bytes);
        /* naps last longer, never less; several may nap at once */
        assert_true(GBps > 0 && GBps <= nap_GBps * (alone ? 1 : (double)threads));
        reading++;
    }
    for (size_t i = 0; i + 2 <= reading; i++) assert_disjoint(i);
    for (size_t i = 0; i < read_.count; i++) others = others || !pthread_equal(read_.of[i].by, pthread_self());
    struct ha_paired_sample s;
    ha_paired_read(p, &s);
    assert_true(fabs(s.scale - s.GBps / ((double)threads * s.GBps_1)) < 1e-12);
    if (threads == 1) assert_true(fabs(s.scale - 1) < 1e-12);
    else assert_true(others);
    assert_false(unwritten);
    ha_paired_destroy(p);
    ha_pool_destroy(pool);
}

TEST(three_threads) { read_in_turn(3); }

TEST(one_thread_and_not_from_the_last_cache)
{
    char KiB[64];
    ha_text_line("/sys/devices/system/cpu/cpu0/cache/index3/size", "", KiB, sizeof KiB);
    asked = 0;
    read_in_turn(1);
    /* of each of two readings in turn */
    assert_true(HA_SANITIZED || asked >= 2 * ((size_t)strtoull(KiB, NULL, 10) << 10));
}

/* The bytes of a reading by the caller alone: where they begin. */
static uintptr_t read_alone(struct ha_paired *p)
{
    read_.count = 0;
    assert_true(ha_paired_read_alone(p) > 0);
    assert_true(read_.count > 0);
    return read_.of[0].at;
}

/* Processes that share a memory take turns with its parts: what one has read stays unread until all others were. */
TEST(parts_are_shared_with_other_processes)
{
    static const struct ha_kernels kernels = { .read = keep_and_nap };
    struct ha_paired_memory *memory = NULL;
    struct ha_paired *a = NULL, *b = NULL;
    struct ha_why why;
    uintptr_t first[8];
    size_t parts = 1;
    asked = 0;
    if (ha_paired_memory_create(&memory, &why) != HA_OK
        || ha_paired_create_on(&a, NULL, &kernels, memory, &why) != HA_OK
        || ha_paired_create_on(&b, NULL, &kernels, memory, &why) != HA_OK)
        fail_msg("%s", why.text);
    char KiB[64];
    ha_text_line("/sys/devices/system/cpu/cpu0/cache/index3/size", "", KiB, sizeof KiB);
    assert_true(HA_SANITIZED || asked >= 2 * ((size_t)strtoull(KiB, NULL, 10) << 10));
    first[0] = read_alone(a);
    while (parts < COUNT(first) && (first[parts] = read_alone(parts % 2 ? b : a)) != first[0]) parts++;
    assert_true(parts >= 2 && parts < COUNT(first));
    for (size_t i = 0; i < parts; i++)
        for (size_t j = 0; j < i; j++) assert_true(first[i] != first[j]);
    const pid_t child = fork();
    if (!child) _exit(read_alone(b) != first[1 % parts]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(read_alone(a) == first[2 % parts]);
    ha_paired_destroy(a);
    ha_paired_destroy(b);
    ha_paired_memory_destroy(memory);
}

static atomic_size_t by_lines, in_streams;
static uint64_t nap_by_lines(const void *p, size_t bytes)
{
    by_lines++;
    nanosleep(&(struct timespec){ .tv_nsec = 20 * NAP_NS }, NULL);
    return 0;
}
static uint64_t in_streams_at_once(const void *p, size_t bytes)
{
    in_streams++;
    return 0;
}

/* What the first process has found to be faster holds for all that share the memory: others read by it at once. */
TEST(the_faster_order_is_found_once)
{
    static const struct ha_kernels kernels = { .read = nap_by_lines, .read_streams = in_streams_at_once },
                                   other = { .read = in_streams_at_once, .read_streams = nap_by_lines };
    struct ha_paired_memory *memory = NULL;
    struct ha_paired *p;
    struct ha_pool *pool;
    struct ha_why why;
    if (ha_pool_create(&pool, HA_TEAM_DEFAULT, 0, &why) != HA_OK || ha_paired_memory_create(&memory, &why) != HA_OK)
        fail_msg("%s", why.text);
    by_lines = in_streams = 0;
    assert_int_equal(ha_paired_create_on(&p, pool, &kernels, memory, &why), HA_OK);
    assert_true(by_lines > 0 && in_streams > 0);
    by_lines = in_streams = 0;
    ha_paired_read_all(p);
    ha_paired_read_alone(p);
    assert_true(by_lines == 0 && in_streams > 0);
    ha_paired_destroy(p);
    in_streams = 0;
    assert_int_equal(ha_paired_create_on(&p, pool, &other, memory, &why), HA_OK);
    assert_true(by_lines == 0 && in_streams == 0);
    ha_paired_read_all(p);
    assert_true(by_lines > 0 && in_streams == 0);
    ha_paired_destroy(p);
    ha_paired_memory_destroy(memory);
    ha_pool_destroy(pool);
}

/* also where the two share a core */
TEST(every_pair_of_cores)
{
    struct ha_ceiling_bench b = { 0 };
    struct ha_why why;
    assert_int_equal(ha_pool_create(&b.pool, HA_TEAM_DEFAULT, 3, &why), HA_OK);
    for (size_t i = 0; i < 3; i++) assert_true(ha_ceiling_cores(&b) > 1);
    ha_pool_destroy(b.pool);
    assert_int_equal(ha_pool_create(&b.pool, HA_TEAM_DEFAULT, 1, &why), HA_OK);
    assert_true(isnan(ha_ceiling_cores(&b)));
    ha_pool_destroy(b.pool);
}
