/* The device suite over the plugin of the gallery (suites/defects): with nothing planted every row passes; what varies
 * or is very rare is shown. That each planted defect is seen, `check --mutants` says. argv[1]: the plugin. */

#include "harness/base/operands.h"
#include "harness/base/sanitizer.h"
#include "harness/engine/machine.h"
#include "harness/engine/test_drive.h"
#include "harness/report/row.h"

static const char *plugin;

static void run(const char *device, const char *wrong, const char *words)
{
    struct ha_machine *machine;
    assert_int_equal(wrong ? setenv("HA_DEFECT", wrong, 1) : unsetenv("HA_DEFECT"), 0);
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
    if (HA_SANITIZED) skip(); /* commands of this build judge the device that the plugin wraps */
    run(plugin, NULL, "device:bytes=16384,repeat=200"); /* in full it is the control of the gallery */
    for (size_t i = 0; i < driven.results.entries; i++) {
        if (result(i)->verdict != HA_PASS && result(i)->verdict != HA_VERDICT_WAIVED)
            fail_msg("%s: %s", entry(i)->id, result(i)->reason);
        assert_true(result(i)->verdict != HA_VERDICT_WAIVED || *result(i)->reason);
        assert_true(result(i)->verdict != HA_PASS || number(i, "comparisons") > 0);
    }
}

TEST_WITH(what_is_not_offered_is_waived_by_name, NULL, driven_end)
{
    run("host", NULL, "device:op=meters,device=host");
    counted(0, 0, 1, 0);
    assert_contains(result(0)->reason, "the device does not offer meters");
}

/* What is not promised is no fault, and the row says it. */
TEST_WITH(what_varies_is_shown, NULL, driven_end)
{
    run(plugin, "varies", "device:op=attend_repeat,repeat=20000");
    counted(1, 0, 0, 0);
    says(" rows again: varies");
    run(plugin, "varies", "device:op=merge_repeat,repeat=20000");
    says(" rows again: same");
    assert_true(number(0, "repeated_rows") >= 20000);
}

/* What the gallery looks for elsewhere first, with an attention of a variant or another operation. */
TEST_WITH(an_operation_sees_it_alone, NULL, driven_end)
{
    static const struct {
        const char *wrong, *op;
    } planted[] = {
        { "attend_group_3", "attend" },      { "attend_heads_17", "attend" },        { "attend_dim_8", "attend" },
        { "attend_batch_stale", "attend" },  { "attend_keys_2048", "attend" },       { "attend_keys_65536", "attend" },
        { "lse_base2", "attend" },           { "attend_o_f16", "attend" },           { "attend_mean", "attend" },
        { "attend_causal", "attend" },       { "wait_ignored", "stream_wait" },      { "event_early", "event_sync" },
        { "flag_write_early", "flag_wait" }, { "products_half", "attend_products" },
    };
    size_t missed = 0;
    for (size_t i = 0; i < COUNT(planted); i++) {
        if (HA_ASAN && i && !strcmp(planted[i].op, planted[i - 1].op)) continue; /* the first of each operation */
        char words[64];
        snprintf(words, sizeof words, "device:op=%s", planted[i].op);
        run(plugin, planted[i].wrong, words);
        if (result(0)->verdict == HA_VERDICT_FAIL) continue;
        print_error("%s: %s does not see it\n", planted[i].wrong, planted[i].op);
        missed++;
    }
    assert_int_equal(missed, 0);
}

/* Every operation that reads what it does not write; softmax works in place. */
TEST_WITH(a_changed_input_is_seen_in_every_operation, NULL, driven_end)
{
#define NAME(name, type) #name,
    static const char *const ops[] = { HA_DEVICE_OPERATIONS(NAME) };
    size_t seen = 0;
    run(plugin, "input_changed", "device:bytes=65536,repeat=1000");
    for (size_t i = 0; i < driven.results.entries; i++) {
        const char *op = strstr(entry(i)->id, "op=") + 3;
        for (size_t k = 0; k < COUNT(ops); k++) {
            if (strncmp(op, ops[k], strlen(ops[k])) != 0 || op[strlen(ops[k])] != ',') continue;
            if (!strcmp(ops[k], "softmax")) continue;
            if (result(i)->verdict != HA_VERDICT_FAIL || !strstr(result(i)->reason, " changed its input: "))
                fail_msg("%s: %s", entry(i)->id, result(i)->reason);
            seen++;
        }
    }
    assert_int_equal(seen, COUNT(ops) - 1);
    run(plugin, "copy_source", "device:op=copy,bytes=65536");
    assert_contains(result(0)->reason, "copy changed its source: ");
    run(plugin, "input_changed", "resident:ctx=64,layers=1,steps=2");
    assert_contains(result(0)->reason, "an operation of the device changed its input: byte 0");
}

/* One row in a million. A quarter of the rows may be of calls whose numbers are not compared: of 14 such rows all would
 * be with a probability of 4e-9. */
TEST_WITH(one_row_in_a_million_is_seen, NULL, driven_end)
{
    if (HA_SANITIZED) skip();
    run(plugin, "merge: one in 1000003 rows of o: nearer to 0 by a bit", "device:op=merge_repeat,repeat=14000000");
    counted(0, 1, 0, 0);
    assert_contains(result(0)->reason, "the same input gave other bits");
}

/* Last bits that are the same each time are within every bound: the column of all bits alone says that this device does
 * not compute as another. */
TEST_WITH(last_bits_are_seen_by_the_digest_alone, NULL, driven_end)
{
    static const char *const wrong[] = { NULL, NULL, "attend_all_last_bit", "varies" };
    char outputs[COUNT(wrong)][32];
    if (HA_SANITIZED) skip();
    for (size_t i = 0; i < COUNT(wrong); i++) {
        run(plugin, wrong[i], "device:op=attend,bytes=65536");
        counted(1, 0, 0, 0);
        snprintf(outputs[i], sizeof outputs[i], "%s", result(0)->outputs);
    }
    assert_int_equal(strlen(outputs[0]), 16);
    assert_string_equal(outputs[0], outputs[1]);
    assert_int_equal(strlen(outputs[2]), 16);
    assert_string_not_equal(outputs[0], outputs[2]);
    assert_string_equal(outputs[3], "");
    run(plugin, NULL, "device:op=copy"); /* each byte has been held against what it must be */
    assert_string_equal(result(0)->outputs, "");
}

TEST_MAIN
{
    plugin = argc > 1 ? argv[1] : "./defects.so";
    return test_all("tests", NULL, NULL);
}
