#include "harness/base/text.h"
#include "harness/base/test.h"

static void is_cleaned(const char *text, const char *clean)
{
    char copy[128], *printed;
    size_t bytes;
    FILE *f = open_memstream(&printed, &bytes);
    strcpy(copy, text);
    assert_string_equal(ha_text_clean(copy), clean);
    ha_text_print(f, text);
    fclose(f);
    assert_string_equal(printed, clean);
    free(printed);
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
    char *printed;
    size_t bytes;
    FILE *f = open_memstream(&printed, &bytes);
    ha_text_quote(f, "sh -c 'exit 3' \xc3\xa4\n#");
    fclose(f);
    assert_string_equal(printed, "'sh -c '\\''exit 3'\\'' \xc3\xa4?#'");
    free(printed);
}

int main(void) { return test_all("tests", NULL, NULL); }
