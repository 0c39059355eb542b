/* Files of the system that are damaged, cut short or away: what cannot be read is never taken for an answer. */

#define _GNU_SOURCE /* sched_setaffinity */
#include "harness/base/text.h"
#include "harness/doctor/test_tree.h"

/* echoes: what is found quotes a file */
static void all_have_a_verdict(const char *what, bool echoes)
{
    for (size_t i = 0; i < ha_doctor_checks_count; i++) {
        char found[sizeof findings[i].found];
        snprintf(found, sizeof found, "%s", findings[i].found);
        if (findings[i].verdict == HA_NOT_LOOKED || !*found
            || (!echoes && (strstr(found, "nan ") || strstr(found, "nan%") || strstr(found, "inf "))))
            fail_msg("%s: %s says %s '%s'", what, ha_doctor_checks[i].name, ha_fitness_name(findings[i].verdict),
                     found);
        assert_string_equal(ha_text_clean(found), findings[i].found);
    }
}

static size_t fit(void)
{
    size_t n = 0;
    for (size_t i = 0; i < ha_doctor_checks_count; i++) n += findings[i].verdict == HA_FIT;
    return n;
}

TEST_WITH(damaged_files_are_no_answer, setup, test_folder_remove)
{
    static char long_line[9000];
    static const struct {
        const char *text;
        bool no_answer; /* nobody can take it for one */
    } damage[] = {
        { "", true },
        { "\n", true },
        { "\x01\x80\xff\xfe\n", true },
        { "\033[2J\n", true },
        { long_line, true },
        { "nan\n", true },
        { "-\n", true },
        { "0x7f\n", true },
        { "1e999\n", true },
        { "99999999999999999999999999\n", false },
        { "18446744073709551615\n", false },
        { "-1\n", false },
        { "0\n", false },
        { "\0binary", true },
        { "1,\n", false },
        { "0-4294967297\n", false },
    };
    memset(long_line, '7', sizeof long_line - 1);
    for (size_t i = 0; i < COUNT(good); i++) {
        for (size_t k = 0; k < COUNT(damage); k++) {
            /* a list that is empty is one: no core is of that node */
            const bool spare = good[i].spare
                               || (!strcmp(damage[k].text, "\n") && strstr(good[i].path, "node1/cpulist"));
            put(good[i].path, damage[k].text);
            look();
            all_have_a_verdict(good[i].path, good[i].spare);
            if (damage[k].no_answer && !spare && fit() == ha_doctor_checks_count)
                fail_msg("%s: '%s' was taken for an answer", good[i].path, damage[k].text);
        }
        for (size_t n = strlen(good[i].text); n-- > 0;) { /* cut short */
            char cut[1024];
            if (n > 40 && n % 7) continue;
            snprintf(cut, sizeof cut, "%.*s", (int)n, good[i].text);
            put(good[i].path, cut);
            look();
            all_have_a_verdict(good[i].path, good[i].spare);
        }
        put(good[i].path, NULL);
        look();
        all_have_a_verdict(good[i].path, good[i].spare);
        put(good[i].path, good[i].text);
    }
    look();
    assert_int_equal(fit(), ha_doctor_checks_count);
}

TEST_WITH(damaged_configurations, setup, test_folder_remove)
{
    unsigned char config[CONFIG];
    for (size_t bytes = 0; bytes <= CONFIG; bytes += 61) {
        put_config(0x1d, bytes);
        look();
        assert_true(finding_of("ACS")->verdict != HA_NOT_LOOKED);
    }
    memset(config, 0xff, sizeof config); /* of a device that is gone */
    test_write(PORT "config", config, sizeof config);
    look();
    assert_true(finding_of("ACS")->verdict != HA_UNFIT);
    memset(config, 0, sizeof config);
    config[AER] = 1; /* a capability whose next one is itself */
    config[AER + 2] = 0x01;
    config[AER + 3] = AER >> 4;
    test_write(PORT "config", config, sizeof config);
    look();
    assert_int_equal(finding_of("ACS")->verdict, HA_FIT);
}

TEST_WITH(an_empty_folder_says_nothing, test_folder_make, test_folder_remove)
{
    make_device();
    device.facts = 0;
    device.condition = ha_condition_none();
    device.meters = ha_device_meters_none(false);
    device.info = (struct ha_device_info){ .memory_bytes = 0 };
    meanwhile_count = slow = 0;
    look();
    all_have_a_verdict("an empty folder", false);
    for (size_t i = 0; i < ha_doctor_checks_count; i++)
        if (findings[i].verdict != HA_UNKNOWN && strcmp(ha_doctor_checks[i].name, "shared core"))
            fail_msg("%s: %s", ha_doctor_checks[i].name, findings[i].found);
}
