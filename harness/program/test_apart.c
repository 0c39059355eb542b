/* Work in a process of its own that fills a block of memory: what it had filled stays, however it ended. */

#include "harness/program/apart.h"

#include "harness/base/test.h"
#include "harness/base/why.h"

#include <signal.h>
#include <unistd.h>

enum end { RETURNS, WAIVES, CRASHES, EXITS, HANGS };
struct block {
    char text[64];
    char far[3 * 4096];
};

static enum ha_status work(void *arg, void *room, struct ha_why *why)
{
    struct block *b = room;
    const enum end *end = arg;
    for (size_t i = 0; i < sizeof *b; i++)
        if (((char *)room)[i]) return ha_why(why, HA_FAIL, "byte %zu was not zero", i);
    strcpy(b->text, "half");
    b->far[sizeof b->far - 1] = 'x';
    if (*end == CRASHES) raise(SIGSEGV);
    if (*end == EXITS) _exit(3);
    while (*end == HANGS) pause();
    strcpy(b->text, "whole");
    return *end == WAIVES ? ha_why(why, HA_WAIVED, "not here") : HA_OK;
}

TEST(what_was_filled_stays)
{
    static const struct {
        enum end end;
        enum ha_status status;
        const char *text, *why;
    } of[] = {
        { RETURNS, HA_OK, "whole", "" },
        { WAIVES, HA_WAIVED, "whole", "not here" },
        { CRASHES, HA_ERROR, "half", "killed by SIGSEGV" },
        { EXITS, HA_ERROR, "half", "exited with 3" },
        { HANGS, HA_ERROR, "half", "no answer in" },
    };
    static struct block block;
    for (size_t i = 0; i < COUNT(of); i++) {
        struct ha_why why = { "" };
        enum end end = of[i].end;
        const uint64_t limit_ns = end == HANGS ? UINT64_C(300000000) : UINT64_C(60000000000);
        memset(&block, 'y', sizeof block);
        assert_int_equal(ha_apart_fill(work, &end, &block, sizeof block, limit_ns, &why), of[i].status);
        assert_string_equal(block.text, of[i].text);
        assert_int_equal(block.far[sizeof block.far - 1], 'x');
        assert_contains(why.text, of[i].why);
    }
}
