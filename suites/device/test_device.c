/* The device suite over a device that does one thing wrong after another (test_wrong.def): the row of the operation
 * does not pass, and every row of the sound device does. */

#include "harness/base/registry.h"
#include "harness/engine/machine.h"
#include "harness/engine/test_drive.h"
#include "harness/report/row.h"

static const char *plugin;

static void run(const char *device, const char *wrong, const char *words)
{
    struct ha_machine *machine;
    assert_int_equal(wrong ? setenv("HA_WRONG", wrong, 1) : unsetenv("HA_WRONG"), 0);
    assert_int_equal(ha_machine_create(&machine, NULL, &why), HA_OK);
    ha_driven_free(&driven);
    const enum ha_status status = ha_drive(
        &(struct ha_drive){ .words = words, .device = device, .seed = "3", .config.machine = machine }, &driven, &why);
    ha_machine_destroy(machine);
    if (status != HA_OK) fail_msg("%s", why.text);
}

static const struct ha_result *result(size_t i) { return ha_result_in(entry(i)->row); }

/* It is waived only where it was not offered, or with the device's own words. */
TEST_WITH(a_sound_device_passes, NULL, driven_end)
{
    run(plugin, NULL, "device:bytes=262144");
    assert_int_equal(driven.verdict[HA_VERDICT_FAIL] + driven.verdict[HA_VERDICT_ERROR], 0);
    for (size_t i = 0; i < driven.results.entries; i++) {
        if (result(i)->verdict != HA_PASS && result(i)->verdict != HA_VERDICT_WAIVED)
            fail_msg("%s: %s", entry(i)->id, result(i)->reason);
        assert_true(result(i)->verdict != HA_VERDICT_WAIVED || *result(i)->reason);
        assert_true(result(i)->verdict != HA_PASS || number(i, "comparisons") > 0);
    }
}

TEST_WITH(what_is_not_offered_is_waived_by_name, NULL, driven_end)
{
    static const char *const words[] = { "device:op=meters,device=host", "the device does not offer meters",
                                         "device:op=attend_index,device=host", "the device refuses an index: attend" };
    for (size_t i = 0; i < COUNT(words); i += 2) {
        run("host", NULL, words[i]);
        counted(0, 0, 1, 0);
        assert_contains(result(0)->reason, words[i + 1]);
    }
}

struct wrong {
    const char *name, *op;
};
#define WRONG(name, op, doc) { #name, #op },
static const struct wrong wrongs[] = {
#include "suites/device/test_wrong.def"
};

TEST(every_operation_has_something_planted)
{
    static const char *const ops[] = {
#define HA_OP_LINE(name) #name,
#include "suites/device/ops.def"
    };
    for (size_t i = 0; i < COUNT(ops); i++) {
        size_t planted = 0;
        for (size_t w = 0; w < COUNT(wrongs); w++) planted += !strcmp(wrongs[w].op, ops[i]);
        if (!planted) fail_msg("nothing is planted in %s", ops[i]);
    }
}

TEST_WITH(what_is_wrong_is_seen, NULL, driven_end)
{
    size_t missed = 0;
    for (size_t i = 0; i < COUNT(wrongs); i++) {
        char words[128];
        const bool large = !strcmp(wrongs[i].name, "copy_16M");
        snprintf(words, sizeof words, "device:op=%s,bytes=%s", wrongs[i].op, large ? "33554432" : "2097152");
        run(plugin, wrongs[i].name, words);
        assert_int_equal(driven.results.entries, 1);
        const enum ha_verdict verdict = result(0)->verdict;
        if (verdict == HA_VERDICT_WAIVED && strstr(wrongs[i].op, "product")) continue; /* no library here */
        printf("%s, %s: %s: %s\n", wrongs[i].name, wrongs[i].op, ha_verdict_name(verdict), result(0)->reason);
        if (verdict == HA_VERDICT_FAIL || verdict == HA_VERDICT_ERROR) continue;
        print_error("%s: %s does not see it\n", wrongs[i].name, wrongs[i].op);
        missed++;
    }
    assert_int_equal(missed, 0);
}

int main(int argc, char **argv)
{
    plugin = argc > 1 ? argv[1] : "./wrong_device.so";
    return test_all("tests", NULL, NULL);
}
