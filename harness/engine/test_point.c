/* Keys, values and filters, over fake_suites.c. */
#include "harness/base/rng.h"
#include "harness/engine/fake_suites.h"
#include "harness/engine/plan.h"
#include "harness/engine/point.h"
#include "harness/base/test.h"

#include <math.h>

static struct fake_point shape(const char *id)
{
    struct fake_point p;
    struct ha_why why = { "" };
    const struct ha_suite *s;
    if (ha_id_parse(id, &s, &p, sizeof p, &why) != HA_OK) fail_msg("%s: %s", id, why.text);
    assert_ptr_equal(s, &fake_shapes);
    return p;
}

static const struct ha_key *key_of(const struct fake_point *p, const char *name)
{
    static struct ha_key room;
    const struct ha_key *key = ha_point_find(&fake_shapes, p, name, &room);
    if (!key) fail_msg("no key %s", name);
    return key;
}

TEST(values_are_read_and_printed)
{
    static const struct {
        const char *key, *value, *printed;
    } values[] = {
        { "color", "red", "red" },
        { "color", "blue", "blue" },
        { "size", "1", "1" },
        { "size", "100", "100" },
        { "size", "007", "7" },
        { "count", "0", "0" },
        { "count", "18446744073709551615", "18446744073709551615" },
        { "grid", "32/8", "32/8" },
        { "grid", "01/64", "1/64" },
        { "ratio", "-1", "-1" },
        { "ratio", "0.10", "0.1" },
        { "ratio", "3e-1", "0.3" },
        { "ratio", "1e300", "1e+300" },
        { "ratio", "+.5", "0.5" },
        { "ratio", "-0", "0" },
        { "steps", "0", "0" },
        { "steps", "1e3", "1000" },
        { "steps", "2.0", "2" },
        { "name", "./ha_x.so", "./ha_x.so" },
        { "name", "/a:b=c/d.so", "/a:b=c/d.so" },
        { "name", "fifteen-letters", "fifteen-letters" },
        { "threads", "all", "all" },
        { "threads", "1", "1" },
        { "threads", "1024", "1024" },
    };
    for (size_t i = 0; i < COUNT(values); i++) {
        struct fake_point p = shape("circle");
        struct ha_why why = { "" };
        char printed[HA_VALUE_MAX];
        if (ha_point_set(&p, key_of(&p, values[i].key), values[i].value, &why) != HA_OK)
            fail_msg("%s=%s: %s", values[i].key, values[i].value, why.text);
        assert_true(ha_point_get(&fake_shapes, &p, values[i].key, printed));
        assert_string_equal(printed, values[i].printed);
    }
}

/* and leave the point as it was */
TEST(wrong_values_are_named)
{
    static const struct {
        const char *key, *value, *says;
    } values[] = {
        { "color", "gren", "unknown color 'gren'; did you mean 'green'?" },
        { "color", "quixotic", "unknown color 'quixotic'; it is one of: red green blue" },
        { "color", "", "unknown color ''" },
        { "color", "0", "unknown color '0'" },
        { "size", "0", "size: '0' is not a whole number from 1 to 100" },
        { "size", "101", "size: '101' is not a whole number from 1 to 100" },
        { "size", "", "size: '' is not a whole number" },
        { "size", "+1", "size: '+1' is not a whole number" },
        { "size", "-1", "size: '-1' is not a whole number" },
        { "size", " 1", "size: ' 1' is not a whole number" },
        { "size", "1 ", "size: '1 ' is not a whole number" },
        { "size", "1k", "size: '1k' is not a whole number" },
        { "size", "1.5", "size: '1.5' is not a whole number" },
        { "size", "1e1", "size: '1e1' is not a whole number" },
        { "size", "0x1", "size: '0x1' is not a whole number" },
        { "size", "nan", "size: 'nan' is not a whole number" },
        { "count", "18446744073709551616",
          "count: '18446744073709551616' is not a whole number from 0 to 184467440737" },
        { "count", "36893488147419103233", "is not a whole number" },
        { "count", "99999999999999999999", "is not a whole number" },
        { "grid", "4", "grid: '4' is not a pair as 32/8, each from 1 to 64" },
        { "grid", "4/", "is not a pair" },
        { "grid", "/4", "is not a pair" },
        { "grid", "4/0", "is not a pair" },
        { "grid", "65/1", "is not a pair" },
        { "grid", "4/2/1", "is not a pair" },
        { "grid", "4x2", "is not a pair" },
        { "grid", "1.5/1", "is not a pair" },
        { "ratio", "", "ratio: '' is not a finite number" },
        { "ratio", ".", "is not a finite number" },
        { "ratio", "nan", "ratio: 'nan' is not a finite number" },
        { "ratio", "inf", "is not a finite number" },
        { "ratio", "1e999", "is not a finite number" },
        { "ratio", "0x1", "is not a finite number" },
        { "ratio", "0.5x", "is not a finite number" },
        { "ratio", " 0.5", "is not a finite number" },
        { "ratio", "0.5 ", "is not a finite number" },
        { "ratio", "1e301", "ratio: 1e301 is outside of [-1, 1e+300]" },
        { "ratio", "-1.5", "ratio: -1.5 is outside of [-1, 1e+300]" },
        { "steps", "1.5", "steps: '1.5' is not a whole number" },
        { "steps", "1e-3", "steps: '1e-3' is not a whole number" },
        { "steps", "1000001", ", 1000000]" },
        { "name", "", "name: a value is missing" },
        { "name", "a b", "name: a blank, a comma or a control character" },
        { "name", "a,b", "a comma" },
        { "name", "a\tb", "a control character" },
        { "name", "a\177", "a control character" },
        { "name", "a\033[31m", "a control character" },
        { "name", "sixteen-letters-", "name: 'sixteen-letters-...' is longer than 15 characters" },
        { "threads", "0", "threads: '0' is not 'all' or a whole number from 1 to 1024" },
        { "threads", "al", "threads: 'al' is not 'all' or a whole number" },
        { "threads", "1025", "from 1 to 1024" },
        { "class", "large", "class follows from the other keys and cannot be set" },
    };
    for (size_t i = 0; i < COUNT(values); i++) {
        const struct fake_point before = shape("circle:size=7,name=before");
        struct fake_point p = before;
        struct ha_why why = { "" };
        if (ha_point_set_named(&fake_shapes, &p, values[i].key, values[i].value, &why) != HA_ERROR)
            fail_msg("%s=%s is taken", values[i].key, values[i].value);
        if (!strstr(why.text, values[i].says))
            fail_msg("%s=%s: says \"%s\", not \"%s\"", values[i].key, values[i].value, why.text, values[i].says);
        assert_memory_equal(&p, &before, sizeof p);
    }
}

/* A key that is a power of 2 says which ones it may be, whatever is wrong with a number. */
TEST(powers_of_2)
{
    static const struct ha_key block = { .name = "block",
                                         .kind = HA_KEY_REAL,
                                         .least = 8,
                                         .most = 128,
                                         .whole = true,
                                         .power_of_2 = true },
                               all = { .name = "all", .kind = HA_KEY_REAL, .least = 0, .most = 5, .power_of_2 = true };
    static const char *const wrong[] = { "24", "7", "4", "256", "16.5", "0", "-8", "1e300" };
    double x = 0;
    struct ha_why why;
    for (unsigned power = 1; power <= 512; power *= 2) {
        char text[16];
        snprintf(text, sizeof text, "%u", power);
        const bool inside = power >= 8 && power <= 128;
        assert_int_equal(ha_point_set(&x, &block, text, &why), inside ? HA_OK : HA_ERROR);
        if (inside) assert_true(x >= power && x <= power);
    }
    for (size_t i = 0; i < COUNT(wrong); i++) {
        char says[64];
        snprintf(says, sizeof says, "block: %s is none of 8 16 32 64 128", wrong[i]);
        if (ha_point_set(&x, &block, wrong[i], &why) != HA_ERROR || strcmp(why.text, says) != 0)
            fail_msg("%s: %s", wrong[i], why.text);
    }
    assert_int_equal(ha_point_set(&x, &all, "0", &why), HA_ERROR);
    assert_string_equal(why.text, "all: 0 is none of 1 2 4");
    assert_int_equal(ha_point_set(&x, &block, "16 ", &why), HA_ERROR);
    assert_string_equal(why.text, "block: '16 ' is not a finite number");
}

TEST(points_have_their_own_keys)
{
    struct fake_point circle = shape("circle"), square = shape("square");
    struct ha_why why;
    char value[HA_VALUE_MAX];
    assert_true(ha_point_get(&fake_shapes, &circle, "radius", value));
    assert_string_equal(value, "1");
    assert_false(ha_point_get(&fake_shapes, &circle, "corner", value));
    assert_false(ha_point_get(&fake_shapes, &circle, "side", value));
    assert_true(ha_point_get(&fake_shapes, &square, "side", value));
    assert_int_equal(ha_point_set_named(&fake_shapes, &circle, "side", "3", &why), HA_ERROR);
    assert_contains(why.text, "unknown key 'side'; ");
    assert_null(strstr(why.text, "did you mean 'side'"));
    assert_int_equal(ha_point_set_named(&fake_shapes, &circle, "radus", "3", &why), HA_ERROR);
    assert_string_equal(why.text, "unknown key 'radus'; did you mean 'radius'?");
    assert_int_equal(ha_point_set_named(&fake_shapes, &square, "corner", "1.5", &why), HA_ERROR);
    assert_string_equal(why.text, "corner: '1.5' is not a whole number");
    assert_int_equal(ha_point_set_named(&fake_shapes, &square, "corner", "2", &why), HA_OK);
    assert_true(square.param[1] > 1.9 && square.param[1] < 2.1);
    assert_int_equal(ha_point_set_named(&fake_shapes, &square, "edge", "round", &why), HA_OK);
    assert_true(square.param[2] > 0.9 && square.param[2] < 1.1);
    assert_true(ha_point_get(&fake_shapes, &square, "edge", value));
    assert_string_equal(value, "round");
    assert_int_equal(ha_point_set_named(&fake_shapes, &square, "edge", "1", &why), HA_ERROR);
    assert_string_equal(why.text, "unknown edge '1'; it is one of: sharp round");

    /* of the suite; of all suites */
    assert_true(ha_suite_has_key(&fake_shapes, "corner"));
    assert_false(ha_suite_has_key(&fake_shapes, "piece"));
    assert_int_equal(ha_key_unknown(&fake_shapes, NULL, "corners", &why), HA_ERROR);
    assert_string_equal(why.text, "unknown key 'corners'; did you mean 'corner'?");
    assert_int_equal(ha_key_unknown(&fake_shapes, NULL, "pieces", &why), HA_ERROR);
    assert_null(strstr(why.text, "did you mean 'piece'"));
    assert_int_equal(ha_key_unknown(NULL, NULL, "pieces", &why), HA_ERROR);
    assert_string_equal(why.text, "unknown key 'pieces'; did you mean 'piece'?");
}

TEST(ids_leave_defaults_out)
{
    static const struct {
        const char *id, *printed;
    } ids[] = {
        { "circle", "circle:size=10" },
        { "circle:size=10,count=1,color=red,threads=all,radius=1", "circle:size=10" },
        { "square:size=10,edge=round", "square:size=10,edge=round" },
        { "square:size=10,edge=sharp", "square:size=10" },
        { "circle:radius=1.0,ratio=0.50", "circle:size=10" },
        { "shapes", "circle:size=10" },
        { "shapes:kind=square", "square:size=10" },
        { "square:size=5", "square:size=5" }, /* the side's default follows the size */
        { "square:side=5,size=5", "square:size=5" },
        { "square:side=10,size=5", "square:size=5,side=10" },
        { "circle:threads=3,color=blue,grid=1/2,count=18446744073709551615",
          "circle:size=10,count=18446744073709551615,grid=1/2,color=blue,threads=3" },
        { "circle:radius=2", "circle:size=10,radius=2" },
    };
    for (size_t i = 0; i < COUNT(ids); i++) {
        const struct fake_point p = shape(ids[i].id);
        char id[HA_ID_MAX];
        assert_int_equal(ha_point_print(&fake_shapes, &p, id, sizeof id), strlen(ids[i].printed));
        assert_string_equal(id, ids[i].printed);
        const struct fake_point back = shape(id);
        assert_memory_equal(&back, &p, sizeof p);
        /* as snprintf: what does not fit is cut, and its length told */
        memset(id, 'x', sizeof id);
        assert_int_equal(ha_point_print(&fake_shapes, &p, id, 9), strlen(ids[i].printed));
        assert_memory_equal(id, ids[i].printed, 8);
        assert_int_equal(id[8], 0);
        assert_int_equal(id[9], 'x');
    }
}

TEST(numbers_survive_printing)
{
    char text[HA_VALUE_MAX];
    ha_number_print(0.1, text);
    assert_string_equal(text, "0.1");
    ha_number_print(64, text);
    assert_string_equal(text, "64");
    for (size_t i = 0; i < 20000; i++) {
        const uint64_t bits = ha_rng_bits(9, 0, i);
        double x;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x)) continue;
        ha_number_print(x, text);
        const double back = strtod(text, NULL);
        assert_memory_equal(&x, &back, sizeof x);
    }
}

/* ---- filters ---------------------------------------------------------------------------------------------------- */

static bool fits(const char *text, const struct fake_point *p)
{
    struct ha_filter *filter;
    struct ha_why why = { "" };
    char id[HA_ID_MAX];
    ha_point_print(&fake_shapes, p, id, sizeof id);
    if (ha_filter_create(&filter, text, &why) != HA_OK) fail_msg("-f %s: %s", text, why.text);
    const bool all = ha_filter_fits(filter, &fake_shapes, p, id);
    if (ha_filter_check(filter, &why) != HA_OK) fail_msg("-f %s: %s", text, why.text);
    ha_filter_destroy(filter);
    return all;
}

TEST(filters_fit)
{
    static const struct {
        const char *filter;
        bool fits;
    } terms[] = {
        { "", true },
        { "kind=square", true },
        { "kind=circle", false },
        { "kind!=circle", true },
        { "class=large", true },
        { "class!=large", false },
        { "class=small", false },
        { "size=10", true },
        { "size=010", true },
        { "size!=10", false },
        { "size!=11", true },
        { "grid=8/2", true },
        { "grid=08/02", true },
        { "grid=8/4", false },
        { "ratio=0.50", true },
        { "ratio=5e-1", true },
        { "ratio!=0.5", false },
        { "threads=all", true },
        { "threads!=all", false },
        { "threads=1", false },
        { "side=10", true },
        { "radius=1", false }, /* a square has none */
        { "radius!=1", true },
        { "piece=4K", false }, /* no shape has one */
        { "piece!=4K", true },
        { "suite=shapes", true },
        { "suite=moves", false },
        { "suite!=moves", true },
        { "device=host", true },
        { "device!=host", false },
        { "square", true },
        { "size", true },
        { "blue", false },
        { "name=none", true },
        { "square,grid=8/2", true },
        { "square,grid=8/4", false },
        { "grid=8/4,square", false },
        { ",,square,,grid=8/2,,", true },
    };
    const struct fake_point p = shape("square:grid=8/2");
    for (size_t i = 0; i < COUNT(terms); i++)
        if (fits(terms[i].filter, &p) != terms[i].fits) fail_msg("-f %s", terms[i].filter);
}

TEST(wrong_filters_are_named)
{
    static const struct {
        const char *filter, *says;
    } terms[] = {
        { ",", "',' has no term" },
        { "square,thread=1", "unknown key 'thread'; did you mean 'threads'?" },
        { "thread!=1", "unknown key 'thread'; did you mean 'threads'?" },
        { "peice=4K", "unknown key 'peice'; did you mean 'piece'?" },
        { "corners=1", "unknown key 'corners'; did you mean 'corner'?" },
        { "=1", "unknown key ''" },
        { "!=1", "unknown key ''" },
        { "color=gren", "unknown color 'gren'; did you mean 'green'?" },
        { "color!=gren", "unknown color 'gren'; did you mean 'green'?" },
        { "piece!=5K", "unknown piece '5K'; did you mean '4K'?" },
        { "class=smal", "unknown class 'smal'; did you mean 'small'?" },
        { "kind=cirle", "unknown kind 'cirle'; did you mean 'circle'?" },
        { "size!=101", "size: '101' is not a whole number from 1 to 100" },
        { "size=", "size: '' is not a whole number" },
        { "grid=4", "grid: '4' is not a pair" },
        { "corner=0.5", "corner: '0.5' is not a whole number" },
        { "radius!=101", "radius: 101 is outside of [0, 100]" },
        { "device!=hots", "unknown device 'hots'; did you mean 'host'?" },
        { "device=quixotic", "device 'quixotic': not built in, and no file " },
        { "device!=./quixotic.so", "device ./quixotic.so: cannot open: No such file or directory" },
        { "suite=shape", "unknown suite 'shape'; did you mean 'shapes'?" },
        { "seed=18446744073709551616", "seed: '18446744073709551616' is not a whole number" },
    };
    const struct fake_point p = shape("square");
    for (size_t i = 0; i < COUNT(terms); i++) {
        struct ha_filter *filter;
        struct ha_why why = { "" };
        enum ha_status status = ha_filter_create(&filter, terms[i].filter, &why);
        if (status == HA_OK) {
            ha_filter_fits(filter, &fake_shapes, &p, "square:size=10");
            status = ha_filter_check(filter, &why);
            ha_filter_destroy(filter);
        } else {
            assert_null(filter);
        }
        if (status != HA_ERROR) fail_msg("-f %s is taken", terms[i].filter);
        if (!strstr(why.text, terms[i].says))
            fail_msg("-f %s: says \"%s\", not \"%s\"", terms[i].filter, why.text, terms[i].says);
    }
}
