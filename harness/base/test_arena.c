#include "harness/base/arena.h"
#include "harness/base/test_folder.h"

#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HUGE_BLOCK = 5 << 20 };

static struct ha_arena *arena;
static struct ha_why why;

static void make(bool checks) { assert_int_equal(ha_arena_create(&arena, checks, &why), HA_OK); }

static int open_arena(void **state) { return ha_arena_create(&arena, false, &why) != HA_OK; }
static int open_checked(void **state) { return ha_arena_create(&arena, true, &why) != HA_OK; }
static int close_arena(void **state)
{
    ha_arena_destroy(arena);
    return 0;
}

static void *get(size_t bytes, enum ha_tag tag)
{
    void *p = ha_alloc(arena, bytes, tag, &why);
    assert_non_null(p);
    return p;
}

/* A stray write: AddressSanitizer would stop it, and is meant to elsewhere. */
__attribute__((no_sanitize("address"))) static void flip(char *at) { *(volatile char *)at ^= 0x40; }

TEST(blocks_are_aligned_zero_or_poisoned)
{
    static const size_t sizes[] = { 0, 1, 63, 64, 65, 4095, 100000, HUGE_BLOCK, HUGE_BLOCK + 1 };
    for (int checks = 0; checks <= 1; checks++) {
        make(checks);
        for (size_t i = 0; i < COUNT(sizes); i++) {
            unsigned char *p = get(sizes[i], HA_TAG_KV);
            assert_int_equal((uintptr_t)p % 64, 0);
            for (size_t j = 0; j < sizes[i]; j += j < 5000 ? 1 : 997) assert_int_equal(p[j], checks ? 0xff : 0);
            if (sizes[i]) {
                assert_int_equal(p[sizes[i] - 1], checks ? 0xff : 0);
                memset(p, 1, sizes[i]);
            }
        }
        assert_int_equal(ha_arena_check(arena, &why), HA_OK);
        ha_arena_destroy(arena);
    }
}

/* One byte beyond either end, at every alignment of the end, small and mapped. */
TEST(an_overrun_by_one_byte_is_found)
{
    for (size_t bytes = 0; bytes <= HUGE_BLOCK; bytes = bytes == 130 ? HUGE_BLOCK : bytes + 1)
        for (int side = 0; side < 2; side++) {
            make(false);
            get(10, HA_TAG_KV);
            char *p = get(bytes, HA_TAG_META);
            get(10, HA_TAG_KV);
            assert_int_equal(ha_arena_check(arena, &why), HA_OK);
            flip(side ? p + bytes : p - 1);
            assert_int_equal(ha_arena_check(arena, &why), HA_FAIL);
            char want[128];
            snprintf(want, sizeof want, "block 2 of the arena (meta, %zu bytes) was overrun %s: at byte %td", bytes,
                     side ? "after its end" : "before its start", side ? (ptrdiff_t)bytes : (ptrdiff_t)-1);
            assert_string_equal(why.text, want);
            ha_arena_destroy(arena);
        }
}

TEST_WITH(an_overrun_is_remembered_after_free, open_checked, close_arena)
{
    char *p = get(100, HA_TAG_SCRATCH);
    flip(p + 100);
    ha_free(arena, p);
    assert_int_equal(ha_arena_check(arena, &why), HA_FAIL);
    assert_contains(why.text, "block 1 of the arena (scratch, 100 bytes)");
}

TEST_WITH(a_stray_free_is_reported, open_arena, close_arena)
{
    int other;
    ha_free(arena, NULL);
    assert_int_equal(ha_arena_check(arena, &why), HA_OK);
    assert_null(ha_grow(arena, &other, 0, 10, HA_TAG_KV, &why));
    assert_contains(why.text, "no block of this arena");
    ha_free(arena, &other);
    assert_int_equal(ha_arena_check(arena, &why), HA_FAIL);
    assert_contains(why.text, "no block of this arena");
}

#if HA_ASAN
TEST_WITH(the_sanitizer_stops_an_overrun, open_arena, close_arena)
{
    for (int side = 0; side < 2; side++) {
        pid_t child = fork();
        if (child == 0) {
            volatile char *p = get(13, HA_TAG_KV);
            fclose(stderr);
            p[side ? 13 : -1] = 1;
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
    }
}
#endif

TEST_WITH(a_huge_request_says_how_much, open_arena, close_arena)
{
    static const size_t sizes[] = { SIZE_MAX, SIZE_MAX - 100, SIZE_MAX / 2, (size_t)1 << 60 };
    for (size_t i = 0; i < COUNT(sizes); i++) {
        assert_null(ha_alloc(arena, sizes[i], HA_TAG_KV, &why));
        char want[64];
        snprintf(want, sizeof want, "out of host memory: %zu bytes (kv): ", sizes[i]);
        assert_memory_equal(why.text, want, strlen(want));
    }
    char *p = get(10, HA_TAG_KV);
    p[0] = 7;
    assert_null(ha_grow(arena, p, 10, SIZE_MAX / 2, HA_TAG_KV, &why));
    assert_int_equal(p[0], 7);
    assert_int_equal(ha_arena_peak_bytes(arena, HA_TAG_KV), 10);
}

TEST_WITH(grow_keeps_what_it_is_told, open_checked, close_arena)
{
    unsigned char *p = ha_grow(arena, NULL, 0, 100, HA_TAG_KV, &why);
    assert_non_null(p);
    for (unsigned char i = 0; i < 100; i++) p[i] = i;
    assert_ptr_equal(ha_grow(arena, p, 100, 60, HA_TAG_KV, &why), p);
    p = ha_grow(arena, p, 70, HUGE_BLOCK, HA_TAG_KV, &why);
    assert_non_null(p);
    for (unsigned char i = 0; i < 70; i++) assert_int_equal(p[i], i);
    assert_int_equal(p[70], 0xff);
    p = ha_grow(arena, p, SIZE_MAX, HUGE_BLOCK + 1000, HA_TAG_KV, &why);
    assert_non_null(p);
    assert_int_equal(p[69], 69);
    assert_int_equal(ha_arena_check(arena, &why), HA_OK);
}

TEST_WITH(peaks_are_counted_by_tag, open_arena, close_arena)
{
    char *a = get(1000, HA_TAG_KV), *b = get(500, HA_TAG_KV);
    get(30, HA_TAG_META);
    ha_free(arena, a);
    get(700, HA_TAG_KV);
    assert_int_equal(ha_arena_peak_bytes(arena, HA_TAG_KV), 1500);
    get(800, HA_TAG_KV);
    assert_int_equal(ha_arena_peak_bytes(arena, HA_TAG_KV), 2000);
    assert_int_equal(ha_arena_peak_bytes(arena, HA_TAG_META), 30);
    assert_int_equal(ha_arena_peak_bytes(arena, HA_TAG_SCRATCH), 0);
    ha_free(arena, b);
    assert_int_equal(ha_arena_peak_bytes(arena, HA_TAG_KV), 2000);
    ha_arena_destroy(NULL);
}

static void *allocate_and_free(void *unused)
{
    struct ha_why own_why;
    for (size_t i = 0; i < 500; i++) {
        char *p = ha_alloc(arena, i, HA_TAG_META, &own_why);
        memset(p, 1, i);
        p = ha_grow(arena, p, i, 2 * i, HA_TAG_META, &own_why);
        if (i % 3) ha_free(arena, p);
    }
    return NULL;
}

TEST_WITH(threads_share_an_arena, open_checked, close_arena)
{
    pthread_t thread[4];
    for (size_t t = 0; t < 4; t++) assert_int_equal(pthread_create(&thread[t], NULL, allocate_and_free, NULL), 0);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(ha_arena_check(arena, &why), HA_OK);
        ha_arena_peak_bytes(arena, HA_TAG_META);
    }
    for (size_t t = 0; t < 4; t++) pthread_join(thread[t], NULL);
    size_t left = 0;
    for (size_t i = 0; i < 500; i += 3) left += 4 * 2 * i;
    assert_true(ha_arena_peak_bytes(arena, HA_TAG_META) >= left);
    assert_int_equal(ha_arena_check(arena, &why), HA_OK);
}

/* One reader for all who ask, and what a container may take besides. */
TEST_WITH(memory_is_what_the_system_and_its_group_leave, test_folder_make, test_folder_remove)
{
    static const char meminfo[] = "MemTotal:       1000 kB\nMemFree:  5 kB\nMemAvailable:    600 kB\n";
    static const char *const folders[] = { "proc", "sys", "sys/fs", "sys/fs/cgroup" };
    static const struct {
        const char *max, *current, *stat; /* NULL: no such file */
        uint64_t available;
    } each[] = {
        { NULL, NULL, NULL, 600 * 1024 },
        { "max\n", "5000\n", NULL, 600 * 1024 },
        { "900000\n", "100000\n", NULL, 600 * 1024 }, /* more than there is */
        { "300000\n", "100000\n", NULL, 200000 },
        { "300000\n", "290000\n", "anon 5\ninactive_file 90000\n", 100000 },
        { "300000\n", "310000\n", "inactive_file 5\n", 1 },
        { "300000\n", "100000\n", "inactive_file 200000\n", 300000 },
    };
    struct ha_memory_size size = ha_memory_size(test_folder);
    assert_true(size.total_bytes == 0 && size.available_bytes == 0);
    for (size_t i = 0; i < COUNT(folders); i++) assert_int_equal(mkdir(test_path(folders[i]), 0777), 0);
    test_write("proc/meminfo", meminfo, sizeof meminfo - 1);
    for (size_t i = 0; i < COUNT(each); i++) {
        if (each[i].max) test_write("sys/fs/cgroup/memory.max", each[i].max, strlen(each[i].max));
        if (each[i].current) test_write("sys/fs/cgroup/memory.current", each[i].current, strlen(each[i].current));
        if (each[i].stat) test_write("sys/fs/cgroup/memory.stat", each[i].stat, strlen(each[i].stat));
        size = ha_memory_size(test_folder);
        assert_int_equal(size.total_bytes, 1000 * 1024);
        assert_int_equal(size.available_bytes, each[i].available);
    }
    size = ha_memory_size("");
    assert_true(size.available_bytes > 0 && size.available_bytes <= size.total_bytes);
    assert_true(ha_memory_available() > 0);
    assert_int_equal(setenv("HABENCH_MEMORY", "unchecked", 1), 0);
    assert_true(ha_memory_available() == 0);
    assert_int_equal(ha_memory_fits("host", 1e18, ha_memory_available(), "ctx", &why), HA_OK);
    unsetenv("HABENCH_MEMORY");
    assert_int_equal(ha_memory_fits("host", 1e18, ha_memory_available(), "ctx", &why), HA_ERROR);
    assert_non_null(strstr(why.text, ": lower ctx, or set HABENCH_MEMORY=unchecked where"));
    assert_int_equal(ha_memory_fits("device", 1e18, 1, "ctx", &why), HA_ERROR);
    assert_null(strstr(why.text, "HABENCH_MEMORY"));
}
