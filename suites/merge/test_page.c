#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "suites/merge/cases.h"
#include "suites/merge/defects.h"

#include <stdio.h>
#include <string.h>

/* The tables of docs/merging.md, where | is written \\|, say what the arrays say. */
static void read_page(char *page, size_t room)
{
    FILE *f = fopen("docs/merging.md", "r");
    assert_non_null(f);
    size_t n = 0;
    for (int c; (c = fgetc(f)) != EOF;) {
        if (c == '\\') continue;
        assert_true(n + 1 < room);
        page[n++] = (char)c;
    }
    page[n] = '\0';
    fclose(f);
}

/* The line of the page that begins so. */
static void find_line(const char *page, const char *begin, char *line, size_t room)
{
    const char *at = strstr(page, begin);
    if (!at) {
        fail_msg("docs/merging.md has no line '%s'", begin);
        return;
    }
    snprintf(line, room, "%.*s", (int)strcspn(at, "\n"), at);
}

static void test_page(void **unused)
{
    (void)unused;
    static const char *const must[] = { "bound", "exact", "copy", "commute", "must fail" };
    static char page[1 << 16], begin[512], line[2048], end[128], seen[256];
    read_page(page, sizeof page);
    for (size_t i = 0; i < ha_lse_merge_defects_count; i++) {
        const struct ha_merge_defect *d = &ha_lse_merge_defects[i];
        snprintf(begin, sizeof begin, "\n| `%s` | %s | ", d->name, d->does);
        find_line(page, begin + 1, line, sizeof line);
        snprintf(end, sizeof end, " | `%s` |", d->finder);
        if (!strstr(line, end)) fail_msg("docs/merging.md does not say that %s finds %s", d->finder, d->name);
        snprintf(seen, sizeof seen, "%s", d->seen);
        for (char *rest = seen, *one; (one = strsep(&rest, ", ")) != NULL;)
            if (!strstr(line, one)) fail_msg("docs/merging.md does not say that %s was seen in %s", d->name, one);
    }
    for (size_t i = 0; i < HA_LSE_MERGE_CASES; i++) {
        const struct ha_merge_case *c = &ha_lse_merge_cases[i];
        snprintf(begin, sizeof begin, "| %u | `%s` | %s | %s |", c->number, c->name, must[c->must], c->why);
        find_line(page, begin, line, sizeof line);
    }
}

static void test_finders(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < ha_lse_merge_defects_count; i++) {
        bool known = false;
        for (size_t k = 0; k < HA_LSE_MERGE_CASES; k++)
            known |= !strcmp(ha_lse_merge_cases[k].name, ha_lse_merge_defects[i].finder);
        if (!known)
            fail_msg("there is no case %s, which is to find %s", ha_lse_merge_defects[i].finder,
                     ha_lse_merge_defects[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_finders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
