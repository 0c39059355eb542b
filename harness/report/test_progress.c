#include "harness/report/progress.h"

#include "harness/base/test.h"

static uint64_t now;
static uint64_t clock_ns(void) { return now; }

/* 40 cases of so many milliseconds each */
static const char *run(bool terminal, uint64_t case_ms)
{
    struct ha_progress p;
    now = 1000000000;
    ha_progress_start_on(&p, test_print(), terminal, 40, clock_ns);
    for (int i = 0; i < 40; i++) {
        char id[32];
        snprintf(id, sizeof id, "fake:\033[2Jn=%d", i);
        ha_progress_case(&p, id);
        now += case_ms * 1000000;
        ha_progress_done(&p);
    }
    ha_progress_end(&p);
    return test_printed();
}

TEST(a_log_gets_a_line_every_ten_seconds)
{
    const char *text = run(false, 3000);
    assert_null(strchr(text, '\033'));
    assert_null(strchr(text, '\r'));
    assert_int_equal(test_count(text, "\n"),
                     9); /* 120 s: after 12, 24, ... 108; the end of the last case has no line */
    assert_int_equal(strncmp(text, "5 of 40: fake:?[2Jn=4, about 108 s left\n", 40), 0);
    assert_int_equal(test_count(run(false, 20000), "\n"), 39); /* one line a case at most */
    assert_string_equal(run(false, 100), "");                  /* nothing to wait for */
}

TEST(a_terminal_is_drawn_over)
{
    const char *text = run(true, 3000);
    assert_null(strchr(text, '\n'));
    assert_non_null(strstr(text, "\r\033[K1 of 40: fake:?[2Jn=0\r\033[K"));
    assert_non_null(strstr(text, "\r\033[K2 of 40: fake:?[2Jn=1, about 117 s left\r\033[K"));
    assert_string_equal(text + strlen(text) - 4, "\r\033[K");
}

/* A line is cut between characters. */
TEST(characters_are_whole)
{
    struct ha_progress p;
    char id[80], shown[80];
    memset(id, 'x', sizeof id);
    strcpy(id + 59, "\u00e9 and more"); /* the first of its two bytes would still be shown */
    snprintf(shown, sizeof shown, "1 of 1: %.59s\r", id);
    now = 1000000000;
    ha_progress_start_on(&p, test_print(), true, 1, clock_ns);
    ha_progress_case(&p, id);
    ha_progress_end(&p);
    assert_contains(test_printed(), shown);
}

TEST(nothing_where_it_is_off)
{
    struct ha_progress p;
    ha_progress_start(&p, false, 3); /* on stderr: that nothing crashes */
    ha_progress_case(&p, "fake:");
    ha_progress_done(&p);
    ha_progress_end(&p);
    assert_int_equal(p.done, 1);
}
