#include "harness/base/text.h"
#include "harness/base/test_folder.h"

static void is_cleaned(const char *text, const char *clean)
{
    char copy[128];
    strcpy(copy, text);
    assert_string_equal(ha_text_clean(copy), clean);
    ha_text_print(test_print(), text);
    assert_string_equal(test_printed(), clean);
}

TEST(what_a_terminal_obeys_is_gone)
{
    is_cleaned("plain, \"text\" <&> ~", "plain, \"text\" <&> ~");
    is_cleaned("\033]0;title\007\033[31m", "?]0;title??[31m");
    is_cleaned("a\nb\tc\rd\x7f", "a?b?c?d?");
    is_cleaned("\xc2\x9b"
               "31m",
               "??31m"); /* U+009B: an escape sequence in one character */
    is_cleaned("\xc2\x80 \xc2\x9f \xc2\xa0", "?? ?? \xc2\xa0");
}

TEST(what_is_no_utf_8_is_gone)
{
    is_cleaned("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
    is_cleaned("\xff\xfe\x80", "???");
    is_cleaned("\xc3", "?"); /* cut */
    is_cleaned("\xe2\x82", "??");
    is_cleaned("\xe2\x82z", "??z");
    is_cleaned("\xc0\xaf \xe0\x80\xaf", "?? ???"); /* too long */
    is_cleaned("\xed\xa0\x80", "???");             /* a surrogate */
    is_cleaned("\xf4\x90\x80\x80", "????");        /* above U+10FFFF */
    is_cleaned("\xef\xbf\xbe\xef\xbf\xbf\xef\xbf\xbd", "??????\xef\xbf\xbd");
    is_cleaned("", "");
}

TEST(a_word_of_a_shell)
{
    ha_text_quote(test_print(), "sh -c 'exit 3' \xc3\xa4\n#");
    assert_string_equal(test_printed(), "'sh -c '\\''exit 3'\\'' \xc3\xa4?#'");
}

TEST(a_string_of_json)
{
    ha_text_json(test_print(), "a \"b\" \\ \xc3\xa4\n\x1f");
    assert_string_equal(test_printed(), "\"a \\\"b\\\" \\\\ \xc3\xa4\\u000a\\u001f\"");
}

TEST_WITH(a_line_of_the_system, test_folder_make, test_folder_remove)
{
    static const char file[] = "model\nmodel name\t: a CPU: fast\nmodel name : another\nflags:\t x y \n";
    static const char *const each[][2] = { { "", "model" },
                                           { "model name", "a CPU: fast" },
                                           { "model", "a CPU: fast" },
                                           { "flags", "x y " },
                                           { "none", "" } };
    char text[32], cut[6];
    test_write("f", file, sizeof file - 1);
    for (size_t i = 0; i < COUNT(each); i++) {
        ha_text_line(test_path("f"), each[i][0], text, sizeof text);
        assert_string_equal(text, each[i][1]);
    }
    ha_text_line(test_path("f"), "model name", cut, sizeof cut);
    assert_string_equal(cut, "a CPU");
    ha_text_line(test_path("nosuch"), "", text, sizeof text);
    assert_string_equal(text, "");
}
