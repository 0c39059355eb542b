/* A device is opened once and kept, and anew where it failed or is asked for otherwise; a failure outlives it; ceilings
 * are those of the device that is open. */

#include "harness/engine/machine.h"

#include "harness/base/why.h"
#include "harness/base/test.h"

extern const struct ha_device_api ha_device_host;

static struct {
    size_t open, opened;
    enum ha_status opens; /* how open goes */
    const char *why;      /* what it says then, or NULL */
    const char *failure;  /* of the device that is open */
    double exp_eps;       /* that it claims */
} fake;

static enum ha_status open_fake(struct ha_device **device, const struct ha_device_config *config, struct ha_why *why)
{
    assert_non_null(config->kernels->attend_chunk);
    fake.opened++;
    *device = (struct ha_device *)(void *)&fake; /* also where it fails */
    if (fake.opens != HA_OK) return fake.why ? ha_why(why, fake.opens, "%s", fake.why) : fake.opens;
    fake.open++;
    return HA_OK;
}
static void close_fake(struct ha_device *device)
{
    fake.open--;
    fake.failure = NULL;
}
static void info_of(struct ha_device *device, struct ha_device_info *info)
{
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++)
        info->profile[t] = info->products[t] = (struct ha_profile){ .dot_lanes = 1, .sum_lanes = 1 };
    info->profile[HA_F16].exp_eps = fake.exp_eps;
    info->merge = (struct ha_merge_traits){ .forms = 1, .dtypes = 1, .aliases = 1 };
}
static const char *failure_of(struct ha_device *device) { return fake.failure; }

static struct ha_device_api api;
static struct ha_machine *machine;
static struct ha_why why;
static size_t seen, seen_ceilings;

static void note(const char *asked, const struct ha_device_api *of, const struct ha_device_info *info,
                 const struct ha_eps *eps, const struct ha_ceilings *ceilings)
{
    assert_true(eps && (strcmp(of->kind, "null") != 0) == (eps->merge_exp.worst > 0));
    seen++;
    if (!ceilings) return;
    seen_ceilings++;
    assert_true(ceilings->of[0].median == 5);
    assert_string_equal(asked, "fake");
}

static int begin(void **state)
{
    struct ha_ceilings ceilings = { .of = { { .median = 5 } } };
    api = ha_device_host;
    api.open = open_fake;
    api.close = close_fake;
    api.failure = failure_of;
    api.info = info_of;
    api.kind = "null"; /* which is not asked how far off it is */
    memset(&fake, 0, sizeof fake);
    seen = seen_ceilings = 0;
    why.text[0] = 0;
    assert_int_equal(ha_machine_create(&machine, note, &why), HA_OK);
    ha_machine_give(machine, "fake", &api, &ceilings);
    return 0;
}
static int end(void **state)
{
    ha_machine_destroy(machine);
    return fake.open != 0;
}

static enum ha_status ask(const char *name, const char *isa)
{
    const struct ha_device_api *of;
    struct ha_device *device;
    return ha_machine_device(machine, name, isa, &of, &device, &why);
}

TEST_WITH(a_device_is_opened_once_and_kept, begin, end)
{
    static const struct {
        const char *name, *isa, *failure; /* failure: of what is open before */
        size_t opened;
    } asks[] = {
        { "fake", NULL, NULL, 1 },  { "fake", NULL, NULL, 1 }, { "fake", "c", NULL, 2 }, { "fake", "c", NULL, 2 },
        { "fake", "c", "lost", 3 }, { "host", "c", NULL, 3 },  { "fake", "c", NULL, 4 }, { "fake", NULL, "lost", 5 },
    };
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        fake.failure = asks[i].failure;
        assert_int_equal(ask(asks[i].name, asks[i].isa), HA_OK);
        assert_int_equal(fake.opened, asks[i].opened);
        assert_int_equal(fake.open, !strcmp(asks[i].name, "fake"));
    }
    assert_int_equal(ask("fake", "nosuch"), HA_ERROR);
    assert_int_equal(fake.open, 0);
}

TEST_WITH(a_failure_outlives_the_device, begin, end)
{
    assert_int_equal(ask("fake", NULL), HA_OK);
    assert_false(ha_machine_failed(machine, &why));
    fake.failure = "lost";
    assert_int_equal(ask("host", NULL), HA_OK); /* it is closed, and with it what says so */
    assert_true(ha_machine_failed(machine, &why));
    assert_string_equal(why.text, "device fake: lost");
    assert_int_equal(ask("fake", NULL), HA_OK);
    fake.failure = "lost again";
    assert_true(ha_machine_failed(machine, &why));
    assert_string_equal(why.text, "device fake: lost"); /* the first one */
    fake.opens = HA_ERROR;
    fake.why = "still lost";
    assert_int_equal(ask("fake", "c"), HA_ERROR);
    assert_string_equal(why.text, "still lost");
    assert_true(ha_machine_failed(machine, &why));
    assert_string_equal(why.text, "device fake: lost");
}

TEST_WITH(what_cannot_be_opened_says_why, begin, end)
{
    static const struct {
        enum ha_status opens;
        const char *why, *says;
        bool failed;
    } each[] = {
        { HA_WAIVED, "no driver", "no driver", false },
        { HA_ERROR, "no room", "no room", true },
        { HA_ERROR, NULL, "device fake cannot be opened, and says no more", true },
        { HA_WAIVED, NULL, "device fake cannot be opened, and says no more", false },
    };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        ha_machine_destroy(machine);
        begin(state);
        fake.opens = each[i].opens;
        fake.why = each[i].why;
        for (size_t again = 1; again < 3; again++) {
            strcpy(why.text, "what was said before");
            assert_int_equal(ask("fake", NULL), each[i].opens);
            assert_string_equal(why.text, each[i].says);
            assert_true(fake.opened == again && fake.open == 0 && seen == 0); /* nothing is closed that was not open */
            assert_int_equal(ha_machine_failed(machine, &why), each[i].failed);
        }
        fake.opens = HA_OK;
        strcpy(why.text, "what was said before");
        assert_int_equal(ask("fake", NULL), HA_OK);
        assert_string_equal(why.text, "what was said before");
        assert_true(fake.open == 1 && seen == 1);
    }
}

/* Bounds are computed from what a device claims: one that claims what cannot be is not used at all. */
TEST_WITH(what_claims_too_much_is_refused, begin, end)
{
    fake.exp_eps = 2;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ask("fake", NULL), HA_ERROR);
        assert_string_equal(why.text, "device fake: its profile[f16]: exp_eps is 2, not from 0 to 0.00195312");
        assert_true(fake.open == 0 && seen == 0);
    }
}

TEST_WITH(ceilings_are_those_of_the_device_that_is_open, begin, end)
{
    const struct ha_ceilings *c;
    assert_int_equal(ha_machine_ceilings(machine, &c, &why), HA_ERROR);
    assert_int_equal(ask("fake", NULL), HA_OK);
    assert_true(seen == 1 && seen_ceilings == 0);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(ha_machine_ceilings(machine, &c, &why), HA_OK);
        assert_true(c->of[0].median == 5 && seen == 2 && seen_ceilings == 1); /* told once */
    }
    assert_int_equal(ask("fake", "c"), HA_OK);
    assert_true(seen == 3 && seen_ceilings == 2); /* they hold for the same one, opened anew */
    assert_int_equal(ask("host", NULL), HA_OK);
    assert_true(seen == 4 && seen_ceilings == 2); /* and for no other */
    assert_int_equal(ask("fake", NULL), HA_OK);
    assert_true(seen == 5 && seen_ceilings == 2);
    assert_int_equal(ha_machine_ceilings(machine, &c, &why), HA_OK);
    assert_true(seen == 6 && seen_ceilings == 3);
}
