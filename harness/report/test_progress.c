#include "harness/report/progress.h"

#include "harness/base/test.h"

static uint64_t now;
static uint64_t clock_ns(void) { return now; }

static char *text;
static size_t bytes;

/* 40 cases of so many milliseconds each */
static void run(bool terminal, uint64_t case_ms)
{
    struct ha_progress p;
    FILE *out = open_memstream(&text, &bytes);
    now = 1000000000;
    ha_progress_start_on(&p, out, terminal, 40, clock_ns);
    for (int i = 0; i < 40; i++) {
        char id[32];
        snprintf(id, sizeof id, "fake:\033[2Jn=%d", i);
        ha_progress_case(&p, id);
        now += case_ms * 1000000;
        ha_progress_done(&p);
    }
    ha_progress_end(&p);
    fclose(out);
}

static size_t lines(void)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) n += text[i] == '\n';
    return n;
}

TEST(a_log_gets_a_line_every_ten_seconds)
{
    run(false, 3000);
    assert_null(strchr(text, '\033'));
    assert_null(strchr(text, '\r'));
    assert_int_equal(lines(), 9); /* 120 s: after 12, 24, ... 108; the end of the last case has no line */
    assert_int_equal(strncmp(text, "5 of 40: fake:?[2Jn=4, about 108 s left\n", 40), 0);
    free(text);
    run(false, 20000); /* one line a case at most */
    assert_int_equal(lines(), 39);
    free(text);
    run(false, 100); /* nothing to wait for */
    assert_int_equal(bytes, 0);
    free(text);
}

TEST(a_terminal_is_drawn_over)
{
    run(true, 3000);
    assert_int_equal(lines(), 0);
    assert_non_null(strstr(text, "\r\033[K1 of 40: fake:?[2Jn=0\r\033[K"));
    assert_non_null(strstr(text, "\r\033[K2 of 40: fake:?[2Jn=1, about 117 s left\r\033[K"));
    assert_string_equal(text + bytes - 4, "\r\033[K");
    free(text);
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

int main(void) { return test_all("tests", NULL, NULL); }
