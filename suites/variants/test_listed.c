/* Lists that a device makes and the host goes by: what cannot be one is refused in words, and nothing is read or
 * written by it. */

#include "suites/variants/check.h"
#include "suites/variants/planted.h"
#include "suites/variants/test_session.h"

#include "harness/base/test_beside.h"

#include <string.h>

/* What is wrong on its way down: of copies of so many bytes, the last word. */
static size_t wrong_bytes;
static uint32_t wrong_word;

static void spoil(void *dst) { ((uint32_t *)dst)[wrong_bytes / sizeof wrong_word - 1] = wrong_word; }

static enum ha_status wrong_copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                 enum ha_direction dir)
{
    HA_TRY(ha_planted_device()->copy(stream, dst, src, bytes, dir));
    return dir == HA_D2H && bytes == wrong_bytes ? ha_planted_device()->host_fn(stream, spoil, dst) : HA_OK;
}

/* What the CPU side is sent, which lies in mapped memory: of the first list its length, or that it is one such block.
 */
static void put(void *at) { *(uint32_t *)at = wrong_word; }
static void put_one(void *at) { *(uint32_t *)at = 1; }

static enum ha_status wrong_split_count(struct ha_stream *stream, const struct ha_device_split *args)
{
    const struct ha_device_split_seq *seq = &args->seqs[0];
    HA_TRY(ha_planted_device()->split(stream, args));
    return seq->missing ? ha_planted_device()->host_fn(stream, put, seq->missing_count) : HA_OK;
}

static enum ha_status wrong_split(struct ha_stream *stream, const struct ha_device_split *args)
{
    const struct ha_device_split_seq *seq = &args->seqs[0];
    HA_TRY(ha_planted_device()->split(stream, args));
    if (!seq->missing) return HA_OK;
    HA_TRY(ha_planted_device()->host_fn(stream, put_one, seq->missing_count));
    return ha_planted_device()->host_fn(stream, put, seq->missing);
}

static enum ha_status judge(const char *id, const struct ha_mutant *mutant)
{
    struct test_session *t = &opened;
    *t = (struct test_session){ 0 };
    assert_ok(ha_case_parse(id, &t->c, &reason));
    assert_ok(ha_machine_create(&t->machine, NULL, &reason));
    assert_ok(ha_shared_open(&t->shared, t->machine, false, &reason));
    assert_ok(ha_session_open(&session, &t->shared, &t->c, mutant, &reason));
    struct ha_check check = { .session = &session, .id = id };
    reason.text[0] = 0;
    const enum ha_status status = ha_check_run(&check, &reason);
    ha_check_free(&check);
    close_session();
    return status;
}

/* 41 whole blocks, of which 4 are chosen; 8 are resident, and are recalled anew every second step */
#define SCOUT                                                                                       \
    "scout:dataset=walk,ctx=330,heads=4/2,head_dim=64,layers=2,steps=4,block=8,budget=32,cache=64," \
    "interval=2,recall=wait"
/* 30 keys at most, of the 300 that are there */
#define INFINIGEN "infinigen:dataset=walk,ctx=300,heads=4/2,head_dim=64,layers=2,steps=2,most=0.1,group=max"
/* 4 of 37 whole blocks */
#define GPU_ONLY "gpu_only:ctx=300,heads=4/2,head_dim=64,layers=1,steps=2,block=8,budget=0.1,group=max"
#define QUEST    "quest:ctx=300,heads=4/2,head_dim=64,layers=1,steps=2,block=8,budget=32,group=max"
/* 3 of 10 blocks */
#define LRU                                   \
    "lru_blocks:dataset=iid,ctx=100,heads=4/" \
    "2,head_dim=24,layers=1,steps=2,block=8,sink=5,recent=11,budget=0.3,lookup="

TEST(what_cannot_be_a_list_is_refused)
{
    static const struct ha_mutant copy = { .name = "", .copy = wrong_copy },
                                  split = { .name = "", .device_split = wrong_split },
                                  split_count = { .name = "", .device_split = wrong_split_count };
    static const struct {
        const char *id;
        const struct ha_mutant *mutant;
        size_t bytes;
        uint32_t word;
        const char *words; /* NULL: it is a list */
    } cases[] = {
        { SCOUT, &copy, 64, 41, "blocks to recall: entry 7 of a list is 41, of 41" },
        { SCOUT, &copy, 64, UINT32_MAX, "blocks to recall: entry 7 of a list is 4294967295, of 41" },
        { SCOUT, &copy, 64, 0, "blocks to recall: a list does not rise: 0 behind " },
        { SCOUT, &copy, 8, UINT32_MAX, "blocks of the cache: a list of " },
        { SCOUT, &copy, 32, UINT32_MAX, "blocks of the cache: slot 4294967295 has none" },
        { SCOUT, &split, 0, 41, "missing blocks: entry 0 of a list is 41, of 41" },
        { SCOUT, &split_count, 0, 5, "missing blocks: a list of 5, of which there are at most 4" },
        { SCOUT, &split_count, 0, UINT32_MAX, "missing blocks: a list of 4294967295, of which there are at most 4" },
        { INFINIGEN, &copy, 8, 31, "keys that are sent for: a list of 31, of which there are at most 30" },
        { INFINIGEN, &copy, 8, UINT32_MAX,
          "keys that are sent for: a list of 4294967295, of which there are at most 30" },
        { GPU_ONLY ",fetch=pieces", &copy, 32, 37, "fetch: list 1 is of rows up to 304 of " },
        { GPU_ONLY ",fetch=move", &copy, 32, UINT32_MAX, "fetch: list 1 is of rows up to 34359738368 of " },
        { GPU_ONLY ",fetch=zero_copy", &copy, 32, 37, "blocks that the device chose: entry 3 of a list is 37, of 37" },
        { QUEST, &copy, 32, 37, "blocks that the device chose: entry 3 of a list is 37, of 37" },
        { LRU "cpu", &copy, 24, 10, "blocks that the device chose: entry 2 of a list is 10, of 10" },
        { LRU "cpu", &copy, 24, 0, "blocks that the device chose: a list does not rise: 0 behind " },
        { LRU "device", &split_count, 0, 4,
          "blocks that the device misses: a list of 4, of which there are at most 3" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        wrong_bytes = cases[i].bytes;
        wrong_word = cases[i].word;
        if (judge(cases[i].id, NULL) != HA_OK) fail_msg("%s: %s", cases[i].id, reason.text);
        const enum ha_status status = judge(cases[i].id, cases[i].mutant);
        if (status != HA_ERROR || strncmp(reason.text, cases[i].words, strlen(cases[i].words)) != 0)
            fail_msg("%s, %zu bytes, word %u: %d, %s", cases[i].id, cases[i].bytes, cases[i].word, (int)status,
                     reason.text);
    }
}

/* A device that computes nothing leaves what was there. What the host does not go by runs on it all the same. */
TEST(of_a_device_that_computes_nothing)
{
    static const struct {
        const char *id, *words;
    } cases[] = {
        { SCOUT, "missing blocks: a list of " },
        { INFINIGEN, "keys that are sent for: a list of " },
        { GPU_ONLY ",fetch=pieces", "fetch: list 0 is of rows up to " },
        { GPU_ONLY ",fetch=move", "fetch: list 0 is of rows up to " },
        { GPU_ONLY ",fetch=zero_copy", NULL },
        { QUEST, NULL },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char id[4096 + 512];
        snprintf(id, sizeof id, "%s,device=%s", cases[i].id, beside_as_value("../ha_null.so"));
        const enum ha_status status = judge(id, NULL);
        if (status != (cases[i].words ? HA_WAIVED : HA_OK) || (cases[i].words && !strstr(reason.text, cases[i].words)))
            fail_msg("%s: %d, %s", id, (int)status, reason.text);
        if (cases[i].words) assert_non_null(strstr(reason.text, "a device of the kind null makes no lists"));
    }
}
