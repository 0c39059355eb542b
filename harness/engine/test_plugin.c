#include "harness/engine/plugin.h"

#include "harness/base/test_beside.h"
#include "harness/base/test.h"

#include <link.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

static struct ha_why why;

static const struct ha_device_api *loaded(const char *path)
{
    const struct ha_device_api *api;
    if (ha_plugin_load(path, &api, &why) != HA_OK) fail_msg("%s", why.text);
    return api;
}

/* Refused, with the path and the words in one line. */
static void refused(const char *path, const char *words)
{
    const struct ha_device_api *api = NULL;
    assert_int_equal(ha_plugin_load(path, &api, &why), HA_ERROR);
    assert_null(api);
    if (!strstr(why.text, words) || !strstr(why.text, path) || strchr(why.text, '\n'))
        fail_msg("'%s' lacks '%s' or the path, or is not one line", why.text, words);
}

TEST(loads_the_null_device)
{
    const struct ha_device_api *api = loaded(beside("../ha_null.so"));
    assert_string_equal(api->name, "null");
    assert_string_equal(api->kind, "null");
    assert_ptr_equal(api, loaded(beside("../ha_null.so")));
}

TEST(refuses_what_is_no_plugin)
{
    refused("/nowhere/ha_mine.so", "No such file");
    refused("/", "is a directory");
    refused(beside("harness_engine_test_plugin"), "cannot be loaded"); /* a program is an ELF file too */
    refused(beside("wrong_library.so"), "ha_test_nowhere");
    refused(beside("wrong_symbol.so"), "exports no symbol 'ha_device_api'");
    char abi[96];
    snprintf(abi, sizeof abi, "against device ABI %u, this program has ABI %u", HA_DEVICE_ABI + 41, HA_DEVICE_ABI);
    refused(beside("wrong_abi.so"), abi);
    refused(beside("wrong_size.so"), "ends before 'event_sync'");
    refused(beside("wrong_entry.so"), "'mem_free' is NULL");
    refused(beside("wrong_merger.so"), "neither a device, which has 'open', nor a library");
    refused(beside("wrong_nothing.so"), "neither a device, which has 'open', nor a library");
}

/* Writes the first `bytes` of older.so (all: SIZE_MAX), with byte `at` set to `value`, to a file of its own. */
static const char *damaged(size_t bytes, size_t at, int value)
{
    FILE *in = fopen(beside("older.so"), "rb"), *out = fopen(beside("damaged.so"), "wb");
    assert_non_null(in);
    assert_non_null(out);
    int c;
    for (size_t i = 0; i < bytes && (c = fgetc(in)) != EOF; i++) fputc(i == at ? value : c, out);
    fclose(in);
    assert_int_equal(fclose(out), 0);
    return beside("damaged.so");
}

TEST(refuses_damaged_files)
{
    enum { ELF_CLASS = 4, ELF_TYPE = 16 };
    static const struct {
        size_t bytes, at;
        int value;
        const char *words;
    } damage[] = {
        { 0, SIZE_MAX, 0, "no ELF header" },
        { 20, SIZE_MAX, 0, "no ELF header" },
        { 100, SIZE_MAX, 0, "cut short (100 bytes)" },
        { 5000, SIZE_MAX, 0, "cut short (5000 bytes)" },
        { SIZE_MAX, 0, '#', "no ELF header" },
        { SIZE_MAX, ELF_CLASS, 9, "wrong ELF class" },
        { SIZE_MAX, ELF_TYPE, 1, "not a shared object" },
    };
    for (size_t i = 0; i < COUNT(damage); i++) {
        const char *path = damaged(damage[i].bytes, damage[i].at, damage[i].value);
        refused(path, damage[i].words);
        unlink(path);
    }
}

/* Each part is there to its last byte. */
TEST(refuses_a_file_that_is_cut_anywhere)
{
    FILE *in = fopen(beside("older.so"), "rb");
    ElfW(Ehdr) head;
    assert_non_null(in);
    assert_int_equal(fread(&head, sizeof head, 1, in), 1);
    for (size_t i = 0; i < head.e_phnum; i++) {
        ElfW(Phdr) part;
        assert_int_equal(fseeko(in, (off_t)(head.e_phoff + i * sizeof part), SEEK_SET), 0);
        assert_int_equal(fread(&part, sizeof part, 1, in), 1);
        if (part.p_type != PT_LOAD || !part.p_filesz) continue;
        const char *path = damaged(part.p_offset + part.p_filesz - 1, SIZE_MAX, 0);
        refused(path, "cut short");
        unlink(path);
    }
    fclose(in);
}

TEST(takes_an_older_table)
{
    const struct ha_device_api *api = loaded(beside("older.so"));
    assert_non_null(api->copy);
    assert_null(api->trace);
    assert_null(api->merge); /* set in the file, but beyond what it says its table has */
    assert_null(api->blend);
    assert_null(api->graph_begin);
    assert_false(ha_plugin_merges_only(api));
    struct ha_device *dev;
    struct ha_device_config config = { 0 };
    assert_int_equal(api->open(&dev, &config, &why), HA_WAIVED);
}

TEST(takes_a_library)
{
    const struct ha_device_api *api = loaded(beside("merger.so"));
    struct ha_device_info info;
    float in = 3, out = 0;
    assert_true(ha_plugin_merges_only(api));
    assert_string_equal(api->name, "merger.so"); /* it has none */
    assert_string_equal(api->kind, "plugin");
    assert_string_equal(api->built_with, "unknown");
    api->info(NULL, &info);
    assert_true(info.memory_bytes == 0 && info.merge.forms == 1u << HA_FORM_NATURAL);
    const struct ha_merge_state one = { .lse = &in };
    assert_int_equal(api->merge(NULL, &(struct ha_merge){ .states = &one, .states_count = 1, .out = { .lse = &out } }),
                     HA_OK);
    assert_true(out == in);

    api = loaded(beside("attender.so"));
    assert_true(ha_plugin_merges_only(api));
    assert_string_equal(api->name, "attender");
    assert_null(api->merge);
    api = loaded(beside("../ha_null.so"));
    assert_false(ha_plugin_merges_only(api));
    assert_false(ha_plugin_merges_only(&(struct ha_device_api){ .info = api->info }));
    assert_false(ha_plugin_merges_only(&(struct ha_device_api){ .merge = api->merge }));
    assert_false(
        ha_plugin_merges_only(&(struct ha_device_api){ .info = api->info, .merge = api->merge, .copy = api->copy }));
}

TEST(finds_a_device_by_name)
{
    char path[HA_PLUGIN_PATH_MAX];
    assert_int_equal(ha_plugin_find("dir/mine", path, &why), HA_OK);
    assert_string_equal(path, "dir/mine");
    assert_int_equal(ha_plugin_find("mine.so", path, &why), HA_OK);
    assert_string_equal(path, "./mine.so");
    assert_int_equal(ha_plugin_find("nosuch", path, &why), HA_ERROR);
    assert_contains(why.text, "'nosuch'");
    assert_contains(why.text, beside("ha_nosuch.so"));

    assert_int_equal(symlink("older.so", beside("ha_test_found.so")), 0);
    enum ha_status status = ha_plugin_find("test_found", path, &why);
    unlink(beside("ha_test_found.so"));
    assert_int_equal(status, HA_OK);
    assert_string_equal(path, beside("ha_test_found.so"));

    char longer[2 * HA_PLUGIN_PATH_MAX];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(ha_plugin_find(longer, path, &why), HA_ERROR);
    longer[5] = '/';
    assert_int_equal(ha_plugin_find(longer, path, &why), HA_ERROR);
    longer[HA_PLUGIN_PATH_MAX] = '\0'; /* by one byte, that of its end */
    assert_int_equal(ha_plugin_find(longer, path, &why), HA_ERROR);
    longer[HA_PLUGIN_PATH_MAX - 1] = '\0';
    assert_int_equal(ha_plugin_find(longer, path, &why), HA_OK);
    assert_string_equal(path, longer);
}

static void set_flag(void *arg) { *(int *)arg = 1; }

/* The skeleton keeps every promise it can: whatever a variant waits for comes. */
TEST(the_null_device_completes_everything)
{
    const struct ha_device_api *api = loaded(beside("../ha_null.so"));
    struct ha_device *dev;
    struct ha_stream *stream;
    struct ha_event *event;
    struct ha_device_info info, after;
    struct ha_device_config config = { 0 };
    void *ptr[3];
    assert_int_equal(api->open(&dev, &config, &why), HA_OK);
    api->info(dev, &info);
    assert_true(info.memory_bytes > 0 && info.memory_free_bytes <= info.memory_bytes
                && info.profile[HA_F16].dot_lanes > 0);
    static const enum ha_memory kind[] = { HA_MEM_DEVICE, HA_MEM_PINNED, HA_MEM_MAPPED };
    static const size_t bytes[] = { 0, 1000, 4 };
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(api->mem_alloc(dev, kind[i], bytes[i], &ptr[i], &why), HA_OK);
        assert_int_equal((uintptr_t)ptr[i] % 64, 0);
        memset(ptr[i], 1, bytes[i]);
    }
    assert_int_equal(api->mem_alloc(dev, HA_MEM_DEVICE, SIZE_MAX - 8, &ptr[0], &why), HA_ERROR);
    assert_contains(why.text, "no memory");
    assert_int_equal(api->stream_create(dev, "main", &stream, &why), HA_OK);
    assert_int_equal(api->event_create(dev, &event, &why), HA_OK);
    int called = 0;
    uint32_t *flag = ptr[2];
    assert_int_equal(api->copy(stream, ptr[0], ptr[1], 0, HA_H2D), HA_OK);
    assert_int_equal(api->copy_2d(stream, ptr[0], 0, ptr[1], 0, 0, 1, HA_H2D), HA_OK);
    assert_int_equal(api->event_record(event, stream), HA_OK);
    assert_int_equal(api->stream_wait(stream, event), HA_OK);
    assert_int_equal(api->event_sync(event), HA_OK);
    assert_int_equal(api->flag_write(stream, flag, 7), HA_OK);
    assert_int_equal(api->flag_wait(stream, flag, 9), HA_OK);
    assert_int_equal(api->host_fn(stream, set_flag, &called), HA_OK);
    assert_int_equal(api->attend(stream, &(struct ha_device_attend){ 0 }), HA_OK);
    assert_int_equal(api->merge(stream, &(struct ha_merge){ 0 }), HA_OK);
    assert_int_equal(api->blend(stream, &(struct ha_device_blend){ 0 }), HA_OK);
    assert_int_equal(api->attend_products(stream, &(struct ha_device_attend){ 0 }), HA_OK);
    assert_int_equal(api->product(stream, &(struct ha_device_product){ 0 }), HA_OK);
    assert_int_equal(api->move(stream, &(struct ha_device_move){ 0 }), HA_OK);
    assert_int_equal(api->copy_pieces(stream, &(struct ha_device_pieces){ 0 }, HA_H2D), HA_OK);
    assert_int_equal(api->read(stream, ptr[1], 4, ptr[2]), HA_OK);
    assert_int_equal(api->spin(stream, 1), HA_OK);
    struct ha_device_meters meters = { 0 };
    api->meters(dev, &meters);
    assert_true(isnan(meters.power_W) && isnan(meters.link_tx_GBps) && !meters.throttle[0] && !meters.bus_id[0]);
    void *window = dev;
    assert_int_equal(api->map_device(dev, ptr[1], 1000, &window, &why), HA_WAIVED);
    assert_null(window);
    assert_contains(why.text, "no window for CPU stores");
    api->unmap_device(dev, NULL);
    assert_int_equal(api->stream_sync(stream), HA_OK);
    assert_int_equal(*flag, 7);
    assert_int_equal(called, 1);
    struct ha_graph *graph;
    assert_int_equal(api->graph_end(stream, &graph, &why), HA_ERROR);
    assert_int_equal(api->graph_begin(stream), HA_OK);
    assert_int_equal(api->merge(stream, &(struct ha_merge){ 0 }), HA_OK);
    assert_int_equal(api->flag_write(stream, flag, 8), HA_OK);
    assert_int_equal(api->host_fn(stream, set_flag, &called), HA_OK);
    assert_int_equal(api->flag_write(stream, flag, 9), HA_OK);
    called = 0;
    assert_int_equal(api->graph_end(stream, &graph, &why), HA_OK);
    assert_true(*flag == 7 && called == 0);
    for (uint32_t i = 0; i < 2; i++) {
        called = 0;
        *flag = i;
        assert_int_equal(api->graph_launch(graph, stream), HA_OK);
        assert_true(*flag == 9 && called == 1);
    }
    api->graph_destroy(graph);
    api->graph_destroy(NULL);
    assert_int_equal(api->graph_begin(stream), HA_OK); /* and the stream goes */
    assert_int_equal(api->flag_write(stream, flag, 1), HA_OK);
    api->trace(dev, NULL);
    assert_null(api->failure(dev));
    api->event_destroy(event);
    api->event_destroy(NULL);
    api->stream_destroy(stream);
    api->stream_destroy(NULL);
    for (size_t i = 0; i < 3; i++) api->mem_free(dev, kind[i], ptr[i]);
    api->mem_free(dev, HA_MEM_DEVICE, NULL);
    api->info(dev, &after);
    assert_int_equal(after.memory_free_bytes, info.memory_free_bytes);
    assert_int_equal(api->stream_create(dev, "main", &stream, &why), HA_OK);
    assert_int_equal(api->graph_begin(stream), HA_OK);
    assert_int_equal(api->graph_begin(stream), HA_ERROR);
    assert_contains(api->failure(dev), "begun one already");
    assert_int_equal(api->stream_sync(stream), HA_ERROR);
    api->stream_destroy(stream);
    api->close(dev);
}
