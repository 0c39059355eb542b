/* A model that decodes with the attention of a case: what keeps every key loses nothing, and what does not moves the
 * loss. */

#include "datasets/model/fake_gguf.h"
#include "harness/base/test_folder.h"
#include "harness/engine/machine.h"
#include "harness/engine/test_drive.h"

#include <math.h>

static const char text[] =
    "then in the thin air the other, another; 12 er \303\251\n\nthe theory is there and in it he erred; "
    "and there the rest of it is, in the end, as ever, the same text without an end to it all in the air\n";

static int begin(void **state)
{
    static char path[TEST_PATH_MAX];
    struct fake_gguf g;
    if (test_folder_make(state) != 0) return -1;
    fake_model(&g, &(struct fake_model){ .type = 1, .head = true });
    test_write("m.gguf", g.bytes, g.count);
    test_write("t.txt", text, strlen(text));
    free(g.bytes);
    snprintf(path, sizeof path, "%s", test_path("m.gguf"));
    return setenv("HABENCH_MODEL", path, 1);
}

static int end(void **state)
{
    unsetenv("HABENCH_MODEL");
    driven_end(state);
    return test_folder_remove(state);
}

/* Cases between blanks, without what they all have. */
static void run(const char *cases, bool measure)
{
    struct ha_machine *machine;
    char words[4096] = "", text_path[TEST_PATH_MAX];
    size_t at = 0;
    strcpy(text_path, test_path("t.txt"));
    for (const char *c = cases; *c; c += strspn(c, " ")) {
        const int length = (int)strcspn(c, " ");
        at += (size_t)snprintf(words + at, sizeof words - at, "%.*s%sdataset=model/%s,steps=4 ", length, c,
                               memchr(c, ':', (size_t)length) ? "," : ":ctx=40,", text_path);
        c += length;
    }
    assert_int_equal(ha_machine_create(&machine, NULL, &why), HA_OK);
    ha_driven_free(&driven);
    const struct ha_drive drive = {
        .words = words, .device = "host", .seed = "3", .config = { .machine = machine, .measure = measure }
    };
    const enum ha_status status = ha_drive(&drive, &driven, &why);
    ha_machine_destroy(machine);
    if (status != HA_OK) fail_msg("%s", why.text);
}

static void loses_nothing(size_t i)
{
    if (!(fabs(number(i, "loss_change")) < 1e-3) || !(fabs(number(i, "kl")) < 1e-5) || number(i, "top1") != 1)
        fail_msg("%s: loss_change %g, kl %g, top1 %g", entry(i)->id, number(i, "loss_change"), number(i, "kl"),
                 number(i, "top1"));
    assert_true(number(i, "full_loss") > 1);
}

TEST_WITH(what_keeps_every_key_loses_nothing, begin, end)
{
    run("resident cpu offload resident:ctx=40,q_len=3 resident:ctx=40,graph=1 resident:ctx=30+21,batch=2 "
        "cpu:ctx=40,dtype=f32 "
        "streaming:ctx=40,window=64 topk:ctx=40,k=64 hgca:ctx=40,blk_size=8,blk_num=8",
        false);
    counted(10, 0, 0, 0);
    for (size_t i = 0; i < 10; i++) loses_nothing(i);
}

TEST_WITH(what_drops_keys_moves_the_loss, begin, end)
{
    run("topk:ctx=40,k=2 streaming:ctx=40,sink=1,window=3 quest:ctx=40,block=8,budget=8", false);
    counted(3, 0, 0, 0);
    for (size_t i = 0; i < 3; i++) assert_true(number(i, "kl") > 1e-5 && number(i, "loss_change") != 0);
    assert_true(number(0, "full_loss") == number(1, "full_loss"));
}

/* Timed passes run over what the model made in the first one. */
TEST_WITH(it_is_measured_over_what_was_made, begin, end)
{
    run("topk:ctx=40,k=4", true);
    counted(1, 0, 0, 0);
    assert_true(number(0, "step_ns") > 0 && number(0, "kl") > 1e-6);
    says("top-1");
}

TEST_WITH(nobody_knows_a_query_ahead, begin, end)
{
    run("clo:ctx=40,predict=oracle", false);
    counted(0, 0, 1, 0);
}
