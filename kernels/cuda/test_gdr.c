/* map_device over a stand-in for libgdrapi.so.2 (fake_gdr.c), which the build puts beside this program. */

#include "harness/base/test_beside.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/fake_gdr.h"

static struct ha_why why;
enum { PAGE = 65536, PAGES = 8, BYTES = PAGES * PAGE, ROOM = 3 * PAGE };

/* of device.c, which is not linked here */
enum ha_status ha_cuda_fail(struct ha_device *dev, const char *format, ...)
{
    dev->failed = true;
    snprintf(dev->failure, sizeof dev->failure, "%s", format);
    return HA_ERROR;
}

static struct ha_region regions[2];
static struct ha_device device = { .lock = PTHREAD_MUTEX_INITIALIZER,
                                   .memory.regions = {
                                       .lock = PTHREAD_MUTEX_INITIALIZER, .list = regions, .count = 2 } };
static char *pages, *memory; /* an allocation of device memory that begins and ends within pages */
static struct fake_gdr *fake;

static int begin(void **state)
{
    fake = beside_symbol("fake_gdr.so", FAKE_GDR_SYMBOL); /* from now on it is what the name libgdrapi.so.2 finds */
    fake->fails = 0;
    memset(pages, 0x55, BYTES);
    return 0;
}

static int end(void **state)
{
    fake->fails = 0;
    ha_cuda_gdr_close(&device);
    return fake->opened || fake->pinned || fake->mapped || fake->misused || device.gdr || device.failed;
}

static void refuse(enum ha_status want, void *ptr, size_t bytes, const char *words)
{
    void *host = &device;
    *why.text = 0;
    assert_int_equal(ha_cuda_map_device(&device, ptr, bytes, &host, &why), want);
    if (!strstr(why.text, words)) fail_msg("'%s' lacks '%s'", why.text, words);
    assert_ptr_equal(host, &device);
}

/* before the stand-in is there */
TEST(no_library_is_waived)
{
    refuse(HA_WAIVED, memory, 8, "libgdrapi.so.2");
    assert_null(device.gdr);
    ha_cuda_gdr_close(&device);
}

TEST_WITH(stores_arrive_at_their_place, begin, end)
{
    static const struct {
        size_t at, bytes;
    } part[] = {
        { 0, ROOM }, { 1, 1 }, { PAGE - 100, 1 }, { PAGE - 101, 3 }, { 5000, 2 * PAGE }, { ROOM - 1, 1 },
    };
    for (size_t i = 0; i < COUNT(part); i++) {
        void *host;
        memset(pages, 0x55, BYTES);
        assert_int_equal(ha_cuda_map_device(&device, memory + part[i].at, part[i].bytes, &host, &why), HA_OK);
        assert_int_equal(((uintptr_t)host ^ (uintptr_t)(memory + part[i].at)) % PAGE, 0);
        memset(host, (int)i, part[i].bytes);
        ha_cuda_unmap_device(&device, host);
        const size_t first = (size_t)(memory - pages) + part[i].at;
        for (size_t b = 0; b < BYTES; b++)
            if (pages[b] != (b >= first && b - first < part[i].bytes ? (char)i : 0x55))
                fail_msg("part %zu: byte %zu is wrong", i, b);
    }
}

TEST_WITH(several_at_once_and_what_is_left, begin, end)
{
    enum { N = 4 };
    void *host[N];
    for (size_t i = 0; i < N; i++)
        assert_int_equal(ha_cuda_map_device(&device, memory + i * 1000, 1000, &host[i], &why), HA_OK);
    assert_int_equal(fake->pinned, N);
    assert_int_equal(fake->opened, 1);
    ha_cuda_unmap_device(&device, host[2]);
    ha_cuda_unmap_device(&device, host[0]);
    assert_int_equal(fake->mapped, N - 2);
    ha_cuda_unmap_device(&device, NULL);
    assert_false(device.failed);
    ha_cuda_unmap_device(&device, host[2]);
    assert_true(device.failed);
    device.failed = false;
    ha_cuda_gdr_close(&device); /* with two still there */
    assert_int_equal(fake->pinned + fake->mapped + fake->opened, 0);
    ha_cuda_unmap_device(&device, host[1]);
    assert_true(device.failed);
    device.failed = false;
}

TEST_WITH(what_the_machine_lacks_is_waived, begin, end)
{
    fake->fails = 1;
    refuse(HA_WAIVED, memory, 8, "gdrdrv");
    fake->fails = 2;
    refuse(HA_WAIVED, memory, 8, "gdr_pin_buffer of 65536 bytes: Cannot allocate memory (12); the GPU's BAR1");
    fake->fails = 3;
    refuse(HA_WAIVED, memory, PAGE, "gdr_map of 131072 bytes");
    assert_int_equal(fake->pinned, 0);
}

TEST_WITH(only_device_memory_is_mapped, begin, end)
{
    refuse(HA_ERROR, memory - 1, 8, "not within an allocation of device memory");
    refuse(HA_ERROR, memory, ROOM + 1, "not within");
    refuse(HA_ERROR, memory + ROOM, 0, "not within");
    refuse(HA_ERROR, memory, 0, "not within");
    refuse(HA_ERROR, regions[1].base, 8, "not within");
    refuse(HA_ERROR, NULL, 8, "not within");
}

TEST_MAIN
{
    pages = aligned_alloc(PAGE, BYTES);
    if (!pages) return 1;
    memory = pages + PAGE + 100;
    regions[0] = (struct ha_region){ .base = memory, .bytes = ROOM, .kind = HA_MEM_DEVICE };
    regions[1] = (struct ha_region){ .base = memory + ROOM + 64, .bytes = 64, .kind = HA_MEM_PINNED };
    const int bad = test_all("cuda: GDRCopy", NULL, NULL);
    free(pages);
    return bad;
}
