/* Faults that are drawn: what a seed gives, and that simple ones are seen. */

#include "harness/base/operands.h"
#include "harness/base/registry.h"
#include "harness/base/sanitizer.h"
#include "harness/base/test_folder.h"
#include "harness/engine/test_drive.h"
#include "harness/report/row.h"
#include "suites/defects/fault.h"

#include <sys/stat.h>
#include <unistd.h>

enum { SEEDS = 5000 };

TEST(every_operation_has_faults_of_each_kind)
{
    for (size_t i = 0; i < ha_operations_count; i++) {
        const struct ha_operation *op = &ha_operations[i];
        size_t calls = 0, arguments = 0, inputs = 0, outputs = 0;
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            const struct ha_fault f = ha_fault_draw(seed);
            if (f.op != op) continue;
            calls += f.effect < HA_FAULT_FEWER || f.effect == HA_FAULT_GIVES_UP;
            arguments += f.effect >= HA_FAULT_FEWER && f.effect < HA_FAULT_READ_EARLY;
            inputs += f.effect >= HA_FAULT_READ_EARLY && f.effect < HA_FAULT_STALE;
            outputs += f.effect >= HA_FAULT_STALE && f.effect < HA_FAULT_GIVES_UP;
        }
        const bool reads = strcmp(op->name, "merge") != 0 && strcmp(op->name, "softmax") != 0; /* in place, or states */
        if (!calls || (!op->bare && (!arguments || (reads && !inputs) || !outputs)))
            fail_msg("%s: %zu calls, %zu arguments, %zu inputs, %zu outputs", op->name, calls, arguments, inputs,
                     outputs);
    }
}

TEST(a_seed_gives_one_fault)
{
    char text[HA_FAULT_TEXT], again[HA_FAULT_TEXT];
    size_t same = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        const struct ha_fault f = ha_fault_draw(seed), g = ha_fault_draw(seed), next = ha_fault_draw(seed + 1);
        ha_fault_text(&f, text);
        ha_fault_text(&g, again);
        assert_string_equal(text, again);
        assert_true(strlen(text) < HA_FAULT_TEXT - 1);
        assert_true(ha_fault_class(&f) != NULL);
        ha_fault_text(&next, again);
        same += !strcmp(text, again);
    }
    assert_true(same < 3);
}

/* Its text says all of it. */
TEST(a_text_gives_the_fault_back)
{
    static const char *const none[] = { "",
                                        "topk",
                                        "topk: ",
                                        "nothing: dropped",
                                        "topk: dropped twice",
                                        "topk: where k > : dropped",
                                        "topk: where k > 8, dropped",
                                        "topk: one fewer of everything",
                                        "topk: each row of: times 0" };
    static const char *const faults[] = {
#define OPERATION(name, class, op, what)
#define FAULT(name, class, op, fault) fault,
#define ATTENTION(name, class, where, what, ...)
#define CLAIM(name, where, what, field, ...)
#define PLANT(name, what, field, ...)
#include "suites/defects/defects.def"
    };
    char text[HA_FAULT_TEXT], again[HA_FAULT_TEXT];
    struct ha_fault f;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const struct ha_fault drawn = ha_fault_draw(seed);
        ha_fault_text(&drawn, text);
        if (!ha_fault_read(text, &f)) fail_msg("%s", text);
        ha_fault_text(&f, again);
        assert_string_equal(text, again);
        assert_true(f.effect == drawn.effect && f.of == drawn.of && f.whens == drawn.whens && f.op == drawn.op);
    }
    for (size_t i = 0; i < COUNT(faults); i++) {
        if (!ha_fault_read(faults[i], &f)) fail_msg("%s", faults[i]);
        ha_fault_text(&f, text);
        assert_string_equal(text, faults[i]);
    }
    for (size_t i = 0; i < COUNT(none); i++)
        if (ha_fault_read(none[i], &f)) fail_msg("%s", none[i]);
}

/* The first seed of such a fault, which all calls have, or one in so many. */
static uint64_t seed_of(const char *op, enum ha_effect effect, size_t each)
{
    for (uint64_t seed = 1; seed < 1000000; seed++) {
        const struct ha_fault f = ha_fault_draw(seed);
        if (strcmp(f.op->name, op) != 0 || f.effect != effect) continue;
        if (each ? f.whens == 1 && f.when[0].kind == HA_WHEN_EACH && f.when[0].x > each : !f.whens) return seed;
    }
    fail_msg("no seed gives such a fault of %s", op);
    return 0;
}

static void hunt(uint64_t seed)
{
    char words[80];
    snprintf(words, sizeof words, "defects:drawn=%llu,others=no", (unsigned long long)seed);
    ha_driven_free(&driven);
    if (ha_drive(&(struct ha_drive){ .words = words }, &driven, &why) != HA_OK) fail_msg("%s", why.text);
    assert_int_equal(driven.results.entries, 1);
}
static const struct ha_result *result(void) { return ha_result_in(entry(0)->row); }

TEST_WITH(simple_ones_are_seen, NULL, driven_end)
{
    static const struct {
        const char *op;
        enum ha_effect effect;
    } simple[] = { { "move", HA_FAULT_EARLY },      { "copy", HA_FAULT_FEWER },     { "move", HA_FAULT_READ_EARLY },
                   { "blend", HA_FAULT_STALE },     { "blend", HA_FAULT_FEWER },    { "topk", HA_FAULT_UNREAD },
                   { "softmax", HA_FAULT_IGNORED }, { "columns", HA_FAULT_NARROW }, { "host_fn", HA_FAULT_TWICE } };
    for (size_t i = 0; i < (HA_ASAN ? 4 : COUNT(simple)); i++) {
        hunt(seed_of(simple[i].op, simple[i].effect, 0));
        if (result()->verdict != HA_PASS)
            fail_msg("%s: %s", ha_driven_text(&driven, entry(0), "what"), result()->reason);
        assert_string_equal(ha_driven_text(&driven, entry(0), "caught_by"), "operation");
    }
}

/* Nothing is wrong with what stands around the sound device. */
TEST_WITH(what_never_comes_is_not_seen, NULL, driven_end)
{
    static const char *const ops[] = { "move", "blend", "topk", "softmax", "columns" };
    for (size_t i = 0; i < (HA_ASAN ? 1 : COUNT(ops)); i++) {
        hunt(seed_of(ops[i], HA_FAULT_STALE, 1000));
        assert_int_equal(result()->verdict, HA_VERDICT_FAIL);
        assert_contains(result()->reason, "SURVIVED");
        says("ALIVE");
    }
}

/* Neither a copy of an input nor host functions around a call are seen by themselves. */
TEST_WITH(what_changes_nothing_is_not_seen, NULL, driven_end)
{
    static const char *const faults[] = { "columns: each row of x: times 1", "topk: each row of index: times 1",
                                          "hamming: each row of codes: times 1", "pq_score: each row of codes: times 1",
                                          "softmax: before the call, each row of x: times 1" };
    for (size_t i = 0; i < COUNT(faults); i++) {
        char words[80];
        snprintf(words, sizeof words, "device:op=%.*s,bytes=65536", (int)strcspn(faults[i], ":"), faults[i]);
        assert_int_equal(setenv("HA_DEFECT", faults[i], 1), 0);
        ha_driven_free(&driven);
        const struct ha_drive drive = { .words = words, .device = "./defects.so" };
        if (ha_drive(&drive, &driven, &why) != HA_OK) fail_msg("%s", why.text);
        if (result()->verdict != HA_PASS) fail_msg("%s: %s", faults[i], result()->reason);
    }
    assert_int_equal(unsetenv("HA_DEFECT"), 0);
}

static int in_a_folder(void **state)
{
    FILE *out;
    static char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof "defects.so");
    if (length < 0 || test_folder_make(state) || chdir(test_folder) || mkdir("suites", 0700)) return -1;
    path[length] = 0;
    strcpy(strrchr(path, '/') + 1, "defects.so");
    if (symlink(path, "defects.so") || !(out = fopen("suites/check.suite", "w"))) return -1;
    fputs("[operations]\nsuite=device\nop=copy move blend topk softmax columns host_fn\nbytes=65536\n", out);
    return fclose(out);
}

TEST_MAIN { return test_all("tests", in_a_folder, test_folder_remove); }
