/* The load of a device and what is read of it meanwhile, on one that is made up. */

#include "harness/base/test_folder.h"
#include "harness/base/why.h"
#include "harness/doctor/doctor.h"

#include <math.h>
#include <sys/stat.h>

static struct {
    /* in */
    size_t copies_most; /* the next one fails */
    bool fails_late;    /* once the meters were read while copies ran */
    uint64_t free_bytes;
    const char *bus_id, *failure;
    enum ha_memory refuse; /* there is none of it; HA_MEM_MAPPED: there is all of them */
    size_t facts;
    /* now */
    size_t queued, copies, read_idle, read_loaded, allocated, streams;
} fake;

static void info(struct ha_device *dev, struct ha_device_info *out)
{
    *out = (struct ha_device_info){ .memory_bytes = fake.free_bytes,
                                    .memory_free_bytes = fake.free_bytes,
                                    .compute_threads = 1 };
}
static const char *failure(struct ha_device *dev) { return fake.failure; }
static enum ha_status mem_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                struct ha_why *why)
{
    if (kind == fake.refuse) return ha_why(why, HA_ERROR, "no memory of kind %d", (int)kind);
    fake.allocated++;
    *ptr = malloc(bytes);
    return HA_OK;
}
static void mem_free(struct ha_device *dev, enum ha_memory kind, void *ptr)
{
    fake.allocated--;
    free(ptr);
}
static enum ha_status stream_create(struct ha_device *dev, const char *name, struct ha_stream **stream,
                                    struct ha_why *why)
{
    fake.streams++;
    *stream = (struct ha_stream *)(void *)&fake;
    return HA_OK;
}
static void stream_destroy(struct ha_stream *stream) { fake.streams--; }
static enum ha_status stream_sync(struct ha_stream *stream)
{
    fake.queued = 0;
    return HA_OK;
}
static enum ha_status copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    assert_int_equal(dir, HA_H2D);
    if (fake.copies >= fake.copies_most || (fake.fails_late && fake.read_loaded)) return HA_ERROR;
    fake.copies++;
    fake.queued++;
    return HA_OK;
}
/* The link is as narrow as can be until copies run. */
static void meters(struct ha_device *dev, struct ha_device_meters *out)
{
    *out = ha_device_meters_none(false);
    out->link_gen = fake.queued ? 5 : 1;
    out->link_width = fake.queued ? 16 : 1;
    out->link_gen_max = 5;
    out->link_width_max = 16;
    snprintf(out->throttle, sizeof out->throttle, fake.queued ? "none" : "hardware thermal");
    snprintf(out->bus_id, sizeof out->bus_id, "%s", fake.bus_id);
    fake.read_loaded += fake.queued > 0;
    fake.read_idle += !fake.queued;
}
static size_t facts(struct ha_device *dev, struct ha_device_fact *fact, size_t room)
{
    assert_int_equal(fake.copies, 0); /* before any load */
    memset(fact, 'z', room * sizeof *fact);
    return fake.facts;
}

static const struct ha_device_api api = { .kind = "cuda",
                                          .info = info,
                                          .failure = failure,
                                          .mem_alloc = mem_alloc,
                                          .mem_free = mem_free,
                                          .stream_create = stream_create,
                                          .stream_destroy = stream_destroy,
                                          .stream_sync = stream_sync,
                                          .copy = copy,
                                          .meters = meters,
                                          .facts = facts };
static struct ha_doctor_device seen;
static struct ha_why why;

static int setup(void **state)
{
    memset(&fake, 0, sizeof fake);
    fake.copies_most = SIZE_MAX;
    fake.free_bytes = UINT64_C(1) << 24;
    fake.bus_id = "";
    fake.refuse = HA_MEM_MAPPED;
    why.text[0] = 0;
    return test_folder_make(state);
}

static enum ha_status look(void) { return ha_doctor_device_look(test_folder, &api, NULL, &seen, &why); }

static void nothing_is_left(void)
{
    assert_int_equal(fake.allocated, 0);
    assert_int_equal(fake.streams, 0);
}

TEST_WITH(the_link_is_read_while_copies_run, setup, test_folder_remove)
{
    assert_int_equal(look(), HA_OK);
    nothing_is_left();
    assert_true(fake.read_loaded >= 4 && seen.copied > 0);
    assert_near(seen.condition.link_gen, 5, 0);
    assert_near(seen.condition.link_width, 16, 0);
    assert_near(seen.meters.link_gen, 5, 0);
    assert_string_equal(seen.condition.throttle, "none");
}

TEST_WITH(the_system_says_it_too, setup, test_folder_remove)
{
    static const char *const folder[] = { "sys", "sys/bus", "sys/bus/pci", "sys/bus/pci/devices",
                                          "sys/bus/pci/devices/0000:1b:00.0" };
    static const char speed[] = "16.0 GT/s PCIe\n";
    fake.bus_id = "00000000:1B:00.0";
    for (size_t i = 0; i < COUNT(folder); i++) mkdir(test_path(folder[i]), 0700);
    test_write("sys/bus/pci/devices/0000:1b:00.0/current_link_speed", speed, sizeof speed - 1);
    test_write("sys/bus/pci/devices/0000:1b:00.0/current_link_width", "8\n", 2);
    assert_int_equal(look(), HA_OK);
    assert_string_equal(seen.bus_id, "0000:1b:00.0");
    assert_string_equal(seen.link_speed, "16.0 GT/s PCIe");
    assert_near(seen.link_width, 8, 0);
}

/* it becomes a part of paths and of commands */
TEST_WITH(what_is_no_bus_id_is_none, setup, test_folder_remove)
{
    static const char *const ids[] = {
        "", "1B:00.0", "../../../../", "0000:1B:00.0/..", "0000:zz:00.0", "0000;rm:00.0"
    };
    for (size_t i = 0; i < COUNT(ids); i++) {
        fake.bus_id = ids[i];
        fake.copies = 0;
        assert_int_equal(look(), HA_OK);
        assert_string_equal(seen.bus_id, "");
        assert_true(isnan(seen.link_width));
    }
}

TEST_WITH(texts_of_a_plugin_end, setup, test_folder_remove)
{
    fake.facts = 1000000; /* more than there is room for */
    assert_int_equal(look(), HA_OK);
    assert_int_equal(seen.facts, HA_DEVICE_FACTS_MOST);
    assert_int_equal(strlen(seen.fact[0].name), sizeof seen.fact[0].name - 1);
    assert_int_equal(strlen(seen.fact[HA_DEVICE_FACTS_MOST - 1].value), sizeof seen.fact[0].value - 1);
}

TEST_WITH(a_full_device_is_read_without_load, setup, test_folder_remove)
{
    fake.free_bytes = 4096;
    assert_int_equal(look(), HA_OK);
    assert_true(seen.copied == 0 && fake.copies == 0);
    assert_near(seen.meters.link_gen, 1, 0);
    nothing_is_left();
}

TEST_WITH(a_device_that_fails_says_why, setup, test_folder_remove)
{
    fake.copies_most = 6;
    fake.failure = "copy on stream doctor: error 719";
    assert_int_equal(look(), HA_ERROR);
    assert_string_equal(why.text, fake.failure);
    nothing_is_left();
    fake.failure = NULL;
    fake.copies = 0;
    assert_int_equal(look(), HA_ERROR);
    assert_string_equal(why.text, "a copy to it failed");
    nothing_is_left();
    fake.copies_most = SIZE_MAX;
    fake.copies = fake.read_loaded = 0;
    fake.fails_late = true;
    assert_int_equal(look(), HA_ERROR);
    nothing_is_left();
    for (int kind = HA_MEM_DEVICE; kind <= HA_MEM_PINNED; kind++) {
        fake.fails_late = false;
        fake.refuse = (enum ha_memory)kind;
        fake.copies = 0;
        assert_int_equal(look(), HA_ERROR);
        assert_contains(why.text, "no memory of kind");
        nothing_is_left();
    }
}
