#include "harness/base/why.h"
#include "harness/base/test.h"

TEST(writes_and_returns)
{
    struct ha_why why;
    assert_int_equal(ha_why(&why, HA_WAIVED, "no %s of %d", "device", 3), HA_WAIVED);
    assert_string_equal(why.text, "no device of 3");
    assert_int_equal(ha_why(NULL, HA_FAIL, "nobody asks"), HA_FAIL);
}

TEST(takes_its_own_text_as_argument)
{
    struct ha_why why = { "disk full" };
    ha_why(&why, HA_ERROR, "cases.csv: %s (row %d)", why.text, 7);
    assert_string_equal(why.text, "cases.csv: disk full (row 7)");
}

TEST(words_go_before_a_reason)
{
    struct ha_why why = { "disk full" };
    char longer[400];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(ha_why_prefix(&why, HA_WAIVED, "row %d", 7), HA_WAIVED);
    assert_string_equal(why.text, "row 7: disk full");
    ha_why_prefix(&why, HA_ERROR, "%s", longer);
    assert_string_equal(why.text + sizeof longer - 1, ": row 7: disk full");
    assert_int_equal(ha_why_prefix(NULL, HA_FAIL, "nobody asks"), HA_FAIL);
}

TEST(is_one_line_of_bounded_length)
{
    struct ha_why why;
    ha_why(&why, HA_ERROR, "a\nb\r\nc");
    assert_string_equal(why.text, "a b  c");
    char longer[2 * sizeof why.text];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    ha_why(&why, HA_ERROR, "%s", longer);
    assert_int_equal(strlen(why.text), sizeof why.text - 1);
    assert_string_equal(why.text + sizeof why.text - 5, "x...");
    longer[sizeof why.text] = '\0';
    ha_why(&why, HA_ERROR, "%s", longer);
    assert_string_equal(why.text + sizeof why.text - 5, "x...");
    longer[sizeof why.text - 1] = '\0';
    ha_why(&why, HA_ERROR, "%s", longer);
    assert_string_equal(why.text, longer);
}

TEST(finds_the_nearest_word)
{
    const char *const words[] = { "threads", "dtype", "ctx", "head_dim", "heads", "dataset", "BF16", NULL };
    /* word, nearest; "-": none */
    static const char *const cases[][2] = {
        { "thread", "threads" },
        { "threads", "threads" },
        { "dytpe", "dtype" },
        { "CTX", "ctx" },
        { "ctz", "ctx" },
        { "headdim", "head_dim" },
        { "head", "heads" },
        { "datset", "dataset" },
        { "bf16", "BF16" },
        { "tcx", "ctx" },
        { "banana", "-" },
        { "x", "-" },
        { "", "-" },
        { "abc", "-" },
        { "cab", "-" },
        { "dtypo", "dtype" },
        { "dapyte", "-" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *got = ha_nearest(cases[i][0], words);
        if (strcmp(got ? got : "-", cases[i][1]) != 0) fail_msg("near '%s' is %s", cases[i][0], got ? got : "none");
    }
}

TEST(survives_long_words)
{
    char longer[300];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    const char *const words[] = { longer, "abc", NULL };
    assert_null(ha_nearest(longer, words));
    assert_string_equal(ha_nearest("abd", words), "abc");
    const char *const none[] = { NULL };
    assert_null(ha_nearest("abc", none));
}

/* The next of the words between bars, of which the first of a text may be empty. */
static const char *next_word(const char **text, char word[64])
{
    const size_t n = strcspn(*text, "|");
    snprintf(word, 64, "%.*s", (int)n, *text);
    *text += n + ((*text)[n] == '|');
    return word;
}

TEST(durations_have_units)
{
    const char *wrong = "|s|90|1.5h|-1s|1d|1s |0s|99999999999h|99999999999999999999s";
    const char *right = "90s|90|500ms|0.5|10m|600|2h|7200"; /* and in seconds */
    uint64_t ns = 0;
    struct ha_why why;
    char text[64], s[64];
    while (*right) {
        next_word(&right, text), next_word(&right, s);
        if (ha_duration_parse(text, &ns, &why) != HA_OK || (double)ns != strtod(s, NULL) * 1e9)
            fail_msg("%s is %llu ns", text, (unsigned long long)ns);
    }
    while (*wrong)
        if (ha_duration_parse(next_word(&wrong, text), &ns, &why) != HA_ERROR) fail_msg("'%s' is taken", text);
}

TEST(sizes_have_units)
{
    const char *wrong = "|B|80|80G|80gb|-1GB|0GB|0.1B|1.GB|.5GB|1 GB|1e9B|80GiBs|18446744073709551616B|18446745TB|"
                        "16777216TiB|1.12345678901TiB|1.123456789012345678901GB";
    const char *right = "80GB|80000000000|80GiB|85899345920|16.1GB|16100000000|0.5KiB|512|1.0000001kB|1000|7MB|7000000|"
                        "7MiB|7340032|2kB|2000|3B|3|1.5TiB|1649267441664|16.060522496GB|16060522496|2TB|2000000000000|"
                        "18446744073709551615B|18446744073709551615"; /* and in bytes */
    uint64_t bytes = 0;
    struct ha_why why;
    char text[64], said[64];
    while (*right) {
        next_word(&right, text), next_word(&right, said);
        if (ha_bytes_parse(text, &bytes, &why) != HA_OK || bytes != strtoull(said, NULL, 10))
            fail_msg("%s is %llu bytes", text, (unsigned long long)bytes);
    }
    while (*wrong)
        if (ha_bytes_parse(next_word(&wrong, text), &bytes, &why) != HA_ERROR) fail_msg("'%s' is taken", text);
}
