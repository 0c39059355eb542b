/* Ids, suite files and the choice of points, over fake_suites.c. */
#include "harness/engine/fake_suites.h"
#include "harness/engine/plan.h"
#include "harness/engine/suite_file.h"
#include "harness/base/test_folder.h"
#include "harness/base/why.h"

/* ids, one a line, or the reason */
static enum ha_status list(struct ha_plan *plan, enum ha_status status, const struct ha_why *why, char *out,
                           size_t size)
{
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; status == HA_OK && i < plan->entries; i++)
        n += (size_t)snprintf(out + n, size - n, "%s\n", plan->entry[i].id);
    if (status != HA_OK) snprintf(out, size, "%s", why->text);
    ha_plan_free(plan);
    return status;
}

/* of a file */
static enum ha_status expand(const char *text, struct ha_plan_options o, char *out, size_t size)
{
    struct ha_plan plan = { 0 };
    struct ha_why why = { "" };
    return list(&plan, ha_plan_parse(&plan, &o, "x.suite", text, &why), &why, out, size);
}

/* words: between blanks */
static enum ha_status choose(const char *words, struct ha_plan_options o, char *out, size_t size)
{
    char text[8192], *word[64];
    struct ha_plan plan = { 0 };
    struct ha_why why = { "" };
    snprintf(text, sizeof text, "%s", words);
    o.words = word;
    o.words_count = 0;
    for (char *rest = text, *w; (w = strtok_r(rest, " ", &rest));) word[o.words_count++] = w;
    return list(&plan, ha_plan_make(&plan, &o, &why), &why, out, size);
}

typedef enum ha_status list_of(const char *text, struct ha_plan_options o, char *out, size_t size);

static void gives(list_of *f, const char *text, struct ha_plan_options o, const char *ids)
{
    char out[4096];
    if (f(text, o, out, sizeof out) != HA_OK) fail_msg("%s: %s", text, out);
    if (strcmp(out, ids) != 0) fail_msg("%s: gives\n%sand not\n%s", text, out, ids);
}

/* the reason, until the next call */
static const char *refusal(list_of *f, const char *text, struct ha_plan_options o)
{
    static char out[4096];
    if (f(text, o, out, sizeof out) != HA_ERROR) fail_msg("%.2000s: taken:\n%s", text, out);
    return out;
}

static void is_refused(list_of *f, const char *text, struct ha_plan_options o, const char *says)
{
    const char *out = refusal(f, text, o);
    if (!strstr(out, says)) fail_msg("%.2000s: says \"%s\", not \"%s\"", text, out, says);
}

static void yields(const char *words, struct ha_plan_options o, const char *ids) { gives(choose, words, o, ids); }
static void refuses(const char *words, struct ha_plan_options o, const char *says)
{
    is_refused(choose, words, o, says);
}

static const struct ha_plan_options none = { .filter = NULL };

/* ---- ids -------------------------------------------------------------------------------------------------------- */

TEST(ids_name_points)
{
    static const struct {
        const char *words, *ids;
    } table[] = {
        { "circle", "circle:size=10\n" },
        { "square:size=3", "square:size=3\n" },
        { "shapes:kind=square", "square:size=10\n" },
        { "circle:kind=circle", NULL },
        /* what is left out has its default, which may be every word; "*" says so */
        { "moves", "moves:way=up,piece=4K\nmoves:way=down,piece=4K\n" },
        { "moves:way=down", "moves:way=down,piece=4K\n" },
        { "moves:piece=*", "moves:way=up,piece=4K\nmoves:way=up,piece=64K\n"
                           "moves:way=down,piece=4K\nmoves:way=down,piece=64K\n" },
        { "shapes:kind=*,size=2", "circle:size=2\nsquare:size=2\n" },
        { "circle:color=*", "circle:size=10\ncircle:size=10,color=green\ncircle:size=10,color=blue\n" },
        /* a key that only some of the points have goes to those */
        { "moves:fast=3", "moves:way=up,piece=4K,fast=3\nmoves:way=down,piece=4K\n" },
        { "shapes:kind=*,corner=2", "circle:size=10\nsquare:size=10,corner=2\n" },
        /* a product leaves out what there is not */
        { "shapes:kind=*,size=91", "circle:size=91\n" },
        { "moves:seed=18446744073709551615,way=up", "moves:way=up,piece=4K,seed=18446744073709551615\n" },
        { "moves:note=a:b=c/d,way=up", "moves:way=up,piece=4K,note=a:b=c/d\n" },
        /* in the order of the words, twins once, at their first place */
        { "circle:size=2 square circle:size=1 circle:color=red,size=2 square circle:size=1",
          "circle:size=2\nsquare:size=10\ncircle:size=1\n" },
        { "moves:way=up circle moves", "moves:way=up,piece=4K\ncircle:size=10\nmoves:way=down,piece=4K\n" },
    };
    for (size_t i = 0; i < COUNT(table); i++)
        if (table[i].ids) yields(table[i].words, none, table[i].ids);
        else refuses(table[i].words, none, "is there twice");
}

TEST(mistakes_are_named)
{
    static const struct {
        const char *id, *says;
    } ids[] = {
        { ":size=1", "unknown variant or suite ''" },
        { "cirle:size=1", "unknown variant or suite 'cirle'; did you mean 'circle'?" },
        { "mves:way=up", "unknown variant or suite 'mves'; did you mean 'moves'?" },
        { "quixotic:size=1",
          "unknown variant or suite 'quixotic'; `habench list suites` and `habench list variants` print all" },
        { "circle:", "circle: '' is not key=value" },
        { "circle:size", "circle: 'size' is not key=value" },
        { "circle:size=1,", "'' is not key=value" },
        { "circle:size=1,,count=1", "'' is not key=value" },
        { "circle:=1", "'=1' is not key=value" },
        { "circle:size!=1", "'size!=1' is not key=value" },
        { "circle:thread=1", "unknown key 'thread'; did you mean 'threads'?" },
        { "circle:radus=1", "unknown key 'radus'; did you mean 'radius'?" },
        { "circle:piece=4K", "unknown key 'piece'" },
        { "circle:side=1", "kind circle has no option 'side'; its own: radius" },
        { "circle:corner=1", "kind circle has no option 'corner'; its own: radius" },
        { "square:radius=1", "kind square has no option 'radius'; its own: corner edge" },
        { "moves:way=down,fast=1", "moves has no key 'fast' with these values of the others; it has with way=up" },
        { "circle:size=1,size=2", "key 'size' is there twice" },
        { "circle:size=1,size=1", "key 'size' is there twice" },
        { "circle:size=0", "size: '0' is not a whole number from 1 to 100" },
        { "circle:size=*", "size: '*' is every word of a key, and this one has none" },
        { "circle:color=gren", "unknown color 'gren'; did you mean 'green'?" },
        { "circle:class=large", "class follows from the other keys and cannot be set" },
        { "circle:count=13", "count: 13 of them are too many" },
        { "square:size=91", "no case" },
        { "nosuch", "suite" },
        { "nosuch.suite", "nosuch.suite: there is no such suite file" },
        { "./nosuch.suite", "./nosuch.suite: there is no such suite file" },
        { "./no/such:it.suite", "there is no such suite file" },
    };
    for (size_t i = 0; i < COUNT(ids); i++) refuses(ids[i].id, none, ids[i].says);
    refuses("", none, "no case");
}

TEST(one_id_is_one_point)
{
    struct fake_point p;
    char room[8192];
    struct ha_why why = { "" };
    const struct ha_suite *s;
    assert_int_equal(ha_id_parse("circle:size=4", &s, &p, sizeof p, &why), HA_OK);
    assert_true(s == &fake_shapes && p.size == 4);
    assert_int_equal(ha_id_parse("moves", &s, room, sizeof room, &why), HA_ERROR);
    assert_string_equal(why.text, "the id names more than one case");
    assert_int_equal(ha_id_parse("moves:way=up", &s, &p, sizeof p, &why), HA_ERROR);
    assert_string_equal(why.text, "the id is one of moves");
    assert_int_equal(ha_id_parse("moves:way=up", &s, room, sizeof room, &why), HA_OK);
    assert_ptr_equal(s, &fake_moves);
    assert_int_equal(ha_id_parse("square:size=91", &s, &p, sizeof p, &why), HA_ERROR);
    assert_string_equal(why.text, "square:size=91: no case: none has these values of its keys together");
    assert_int_equal(ha_id_parse("", &s, &p, sizeof p, &why), HA_ERROR);
}

/* a point whose id does not fit cannot be rerun: it is no point */
TEST(long_ids_are_refused)
{
    char note[2200], id[8192], out[8192];
    memset(note, 'x', sizeof note);
    snprintf(id, sizeof id, "moves:way=up,note=%.2000s,memo=%.2000s", note, note);
    if (choose(id, none, out, sizeof out) != HA_OK) fail_msg("%s", out);
    snprintf(id, sizeof id, "moves:way=up,note=%.2000s,memo=%.2058s", note, note);
    assert_int_equal(choose(id, none, out, sizeof out), HA_OK);
    snprintf(id, sizeof id, "moves:way=up,note=%.2000s,memo=%.2063s", note, note);
    refuses(id, none, "the id is longer than 4095 characters: moves:way=up,piece=4K,note=xxx");
    memset(id, 'x', sizeof id - 1);
    id[sizeof id - 1] = 0;
    refuses(id, none, "too long");
}

/* ---- options ---------------------------------------------------------------------------------------------------- */

TEST(options_set_keys)
{
    const struct ha_override seed = { "seed", "9" }, both[] = { seed, { "threads", "3" } }, word = { "piece", "64K" },
                             absent = { "seed", NULL }, part = { "see", "5" }, wrong = { "threads", "many" },
                             large = { "seed", "many" }, other = { "count", "5" };
    /* the option of its name, or those that a key says it takes instead; over what an id says */
    yields("moves:way=up circle:threads=2", (struct ha_plan_options){ .override = both, .overrides = 2 },
           "moves:way=up,piece=4K,seed=9\ncircle:size=10,count=9,threads=3\n");
    yields("moves:way=up,piece=* circle", (struct ha_plan_options){ .override = &word, .overrides = 1 },
           "moves:way=up,piece=64K\ncircle:size=10\n");
    yields("circle:count=4", (struct ha_plan_options){ .override = &other, .overrides = 1 },
           "circle:size=10,count=4\n");
    yields("circle:count=4", (struct ha_plan_options){ .override = &absent, .overrides = 1 },
           "circle:size=10,count=4\n");
    yields("circle:count=4", (struct ha_plan_options){ .override = &part, .overrides = 1 }, "circle:size=10,count=4\n");
    refuses("circle", (struct ha_plan_options){ .override = &wrong, .overrides = 1 },
            "--threads: 'many' is not 'all' or a whole number from 1 to 1024");
    /* what is wrong is the option, whatever the key is called that it sets */
    refuses("circle", (struct ha_plan_options){ .override = &large, .overrides = 1 },
            "--seed: 'many' is not a whole number from 0 to ");
    gives(expand, "[a]\nkind=circle\nthreads=1 2\ncount=4\n",
          (struct ha_plan_options){ .override = both, .overrides = 2 }, "circle:size=10,count=9,threads=3\n");
}

TEST(filters_choose)
{
    const char *words = "circle:size=1 square:size=2 moves";
    yields(words, (struct ha_plan_options){ .filter = "kind=square" }, "square:size=2\n");
    yields(words, (struct ha_plan_options){ .filter = "way=down" }, "moves:way=down,piece=4K\n");
    yields(words, (struct ha_plan_options){ .filter = "way!=down" },
           "circle:size=1\nsquare:size=2\nmoves:way=up,piece=4K\n");
    yields(words, (struct ha_plan_options){ .filter = "suite!=shapes,up" }, "moves:way=up,piece=4K\n");
    yields(words, (struct ha_plan_options){ .filter = "" },
           "circle:size=1\nsquare:size=2\nmoves:way=up,piece=4K\nmoves:way=down,piece=4K\n");
    refuses(words, (struct ha_plan_options){ .filter = "size=3" }, "-f size=3: none of the cases fits");
    refuses(words, (struct ha_plan_options){ .filter = "nosuch" }, "-f nosuch: none of the cases fits");
    refuses(words, (struct ha_plan_options){ .filter = "peice=4K" }, "-f: unknown key 'peice'; did you mean 'piece'?");
    refuses("circle", (struct ha_plan_options){ .filter = "piece!=5K" }, "-f: unknown piece '5K'; did you mean '4K'?");
    refuses("circle:sise=1", (struct ha_plan_options){ .filter = "size=1" }, "unknown key 'sise'");
    assert_string_equal(refusal(expand, "[a]\nkind=circle\n", (struct ha_plan_options){ .filter = "color=gren" }),
                        "-f: unknown color 'gren'; did you mean 'green'?");
    gives(expand, "[a]\nkind=circle\nsize=1 2 3\naxis=size\n", (struct ha_plan_options){ .filter = "size!=2" },
          "circle:size=1\ncircle:size=3\n");
}

/* ---- suite files ------------------------------------------------------------------------------------------------ */

TEST(sections_are_cross_products)
{
    static const struct {
        const char *text, *ids;
    } files[] = {
        { "[a]\nkind=circle\n", "circle:size=10\n" },
        { "# one\n; two\n\n[a]\r\nkind = circle ; three\r\nsize = 1\t2\r\ncolor=red blue # four",
          "circle:size=1\ncircle:size=1,color=blue\ncircle:size=2\ncircle:size=2,color=blue\n" },
        /* a section's key replaces a default; each section starts from the default anew */
        { "[default]\nkind=circle\nsize=2 3\ncount=5\n[a]\nsize=1\n[b]\ncolor=blue\n",
          "circle:size=1,count=5\ncircle:size=2,count=5,color=blue\ncircle:size=3,count=5,color=blue\n" },
        /* a key that some kinds have goes to those, and multiplies only those */
        { "[a]\nkind=circle square\nsize=1\nradius=2 3\nside=7\n",
          "circle:size=1,radius=2\ncircle:size=1,radius=3\nsquare:size=1,side=7\n" },
        { "[default]\nradius=3\n[a]\nkind=square\n", "square:size=10\n" },
        /* keys are set in the order of their table, the last fastest, whatever the file's order */
        { "[a]\ncolor=red blue\nsize=1 2\nkind=square circle\n",
          "square:size=1\nsquare:size=1,color=blue\nsquare:size=2\nsquare:size=2,color=blue\n"
          "circle:size=1\ncircle:size=1,color=blue\ncircle:size=2\ncircle:size=2,color=blue\n" },
        { "[a]\nkind=*\ncolor=* \n", "circle:size=10\ncircle:size=10,color=green\ncircle:size=10,color=blue\n"
                                     "square:size=10\nsquare:size=10,color=green\nsquare:size=10,color=blue\n" },
        { "[a]\nkind=*\nsize=90 91\n", "circle:size=90\ncircle:size=91\nsquare:size=90\n" },
        /* whose points: the first suite's, unless the section or the default says so */
        { "[a]\nsuite=moves\nway=up\n[b]\nsize=1\n", "moves:way=up,piece=4K\ncircle:size=1\n" },
        { "[default]\nsuite=moves\n[a]\nway=up\n[b]\nsuite=shapes\nsize=1\n[c]\nway=down\n",
          "moves:way=up,piece=4K\ncircle:size=1\nmoves:way=down,piece=4K\n" },
        /* which need not have the keys of the default's */
        { "[default]\nsize=3\n[a]\nsuite=moves\nway=up\n[b]\nkind=circle\n", "moves:way=up,piece=4K\ncircle:size=3\n" },
        { "[default]\nsuite=moves\nway=up\n[a]\nseed=2\n", "moves:way=up,piece=4K,seed=2\n" },
        /* twins once */
        { "[a]\nsize=1 2\n[b]\nsize=2 3 3\n", "circle:size=1\ncircle:size=2\ncircle:size=3\n" },
    };
    for (size_t i = 0; i < COUNT(files); i++) gives(expand, files[i].text, none, files[i].ids);
}

TEST(mistakes_name_the_line)
{
    static const struct {
        const char *text, *says;
    } files[] = {
        { "", "x.suite: no case" },
        { "[default]\nkind=circle\n", "x.suite: no case" },
        { "[a]\nkind=circle\n\nthread=1\n", "x.suite:4: unknown key 'thread'; did you mean 'threads'?" },
        { "[a]\nkinds=circle\n", "x.suite:2: unknown key 'kinds'; did you mean 'kind'?" },
        { "[a]\nkind=circle cirle\n", "x.suite:2: unknown kind 'cirle'; did you mean 'circle'?" },
        { "[default]\nkind=cirle\n[a]\nsize=1\n", "x.suite:2: unknown kind 'cirle'" },
        { "[default]\nthread=1\n[a]\nsize=1\n", "x.suite:2: unknown key 'thread'" },
        { "[default]\nsize=1\n[a]\nsuite=moves\nsize=1\n", "x.suite:5: unknown key 'size'" },
        { "[a]\nkind=circle\nsize=1 2 x\n", "x.suite:3: size: 'x' is not a whole number" },
        { "[a]\nkind=circle\nsize=5,6\n", "x.suite:3: size: '5,6' is not a whole number" },
        { "[a]\nkind=circle\nname=a,b\n", "x.suite:3: name:" },
        { "[a]\nkind=circle\nsteps=0.5\n", "x.suite:3: steps: '0.5' is not a whole number" },
        { "[a]\nkind=circle\nsize=*\n", "x.suite:3: size: '*' is every word of a key" },
        { "[a]\nclass=large\n", "x.suite:2: class follows from the other keys" },
        { "[a]\nkind=circle\nside=1\n", "x.suite:3: key 'side' belongs to none of the cases of [a]: kind circle has no "
                                        "option 'side'; its own: radius" },
        { "[a]\nkind=circle square\ncorner=0.1\n", "x.suite:3: kind square: corner: '0.1' is not a whole number" },
        { "# c\n[a]\ncount=13\n", "x.suite:2: kind circle: count: 13 of them are too many" },
        /* a section does not vanish */
        { "[a]\nsize=1\n[b]\nkind=square\nsize=91 95\n",
          "x.suite:3: section b: no case is possible: none has these values of its keys together" },
        { "[a]\nkind=circle\nsize=1\ncount=1\nsize=2\n", "x.suite:5: key 'size' is there twice; first in line 3" },
        { "[default]\nsize=1\nsize=2\n", "x.suite:3: key 'size' is there twice; first in line 2" },
        { "[a]\nkind=circle\n[b]\nkind=circle\n[a]\nsize=1\n",
          "x.suite:5: section [a] is there twice; first in line 1" },
        { "[a]\nsize=1\n[default]\nsize=2\n", "x.suite:3: [default] is the first section" },
        { "[a]\nkind=circle\n[b]\n\n[c]\nkind=circle\n", "x.suite:3: the section has no key" },
        { "[a]\nkind=circle\n[b]", "x.suite:3: the section has no key" },
        { "[a]\n[b]\n[c]\n", "x.suite:1: the section has no key" },
        { "kind=circle\n", "x.suite:1: key 'kind' stands before the first [section]" },
        { "[a]\nkind=circle\nsize\n", "x.suite:3: neither [section] nor key = value" },
        { "[a\nkind=circle\n", "x.suite:1: neither [section] nor key = value" },
        { "[a]\nkind=\n", "x.suite:2: key 'kind' has no value" },
        { "[a]\nkind=circle\nsize= ; none\n", "x.suite:3: key 'size' has no value" },
        { "[a]\nsize=1\n\nsuite=move\n", "x.suite:4: unknown suite 'move'; did you mean 'moves'?" },
        { "[default]\nsuite=move\n[a]\nway=up\n", "x.suite:2: unknown suite 'move'" },
        { "[a]\nsuite=\n", "x.suite:2: key 'suite' has no value" },
        { "[a]\nsuite=shapes moves\n", "x.suite:2: suite: 'shapes moves' is not one word" },
        { "[a]\nsuite=moves\nsuite=shapes\n", "x.suite:3: key 'suite' is there twice; first in line 2" },
        { "[a]\nsuite=moves\nsize=1\n", "x.suite:3: unknown key 'size'" },
        { "[a]\nsize=1\ntime=90\n", "x.suite:3: '90' is not a time" },
        { "[a]\ntime=1s\ntime=2s\n", "x.suite:3: key 'time' is there twice; first in line 2" },
        { "[a]\naxis=siz\nsize=1 2\n", "x.suite:2: axis: unknown key 'siz'; did you mean 'size'?" },
        { "[a]\nsize=1\naxis=size\n", "x.suite:3: axis: a line takes two values of size, and [a] has fewer" },
        { "[a]\nsize=1 1\naxis=size\n", "x.suite:3: axis: a line takes two values of size" },
        { "[a]\naxis=size\n", "x.suite:2: axis: a line takes two values of size" },
        { "[default]\nsize=1\n[b]\naxis=size\ncount=2\n", "x.suite:4: axis: a line takes two values of size" },
        { "[default]\naxis=size\nsize=1 2\n[b]\nsize=3\n", "x.suite:2: axis: a line takes two values of size" },
        { "[a]\nsize=1 2\naxis=size\naxis=color\n", "x.suite:4: key 'axis' is there twice; first in line 3" },
    };
    for (size_t i = 0; i < COUNT(files); i++) is_refused(expand, files[i].text, none, files[i].says);
}

/* What is wrong with the machine, or with a file that a case names, is told by the line that asks for it. */
TEST(a_case_is_found_in_its_file)
{
    static const char text[] = "[default]\nname=far/there\n[a]\nkind=circle\nsize=3\n[b]\nsize=7\nname=here\n";
    static const struct {
        size_t entry;
        const char *reason, *says;
    } table[] = {
        { 0, "there: no such file", "x.suite:2: [a] circle: there: no such file" },
        { 1, "file 'here' is torn", "x.suite:8: [b] circle: file 'here' is torn" },
        { 1, "no memory", "x.suite:6: [b] circle: no memory" },
        { 2, "size 9", "size 9" }, /* of an id */
    };
    static char id[] = "circle:size=9", *words[] = { id };
    const struct ha_plan_options o = { .words = words, .words_count = 1 };
    struct ha_plan plan = { 0 };
    struct ha_why why = { "" };
    if (ha_plan_parse(&plan, &o, "x.suite", text, &why) != HA_OK) fail_msg("%s", why.text);
    for (size_t i = 0; i < COUNT(table); i++) {
        ha_why(&why, HA_ERROR, "%s", table[i].reason);
        assert_int_equal(ha_plan_blame(&plan, table[i].entry, HA_ERROR, &why), HA_ERROR);
        assert_string_equal(why.text, table[i].says);
    }
    ha_plan_free(&plan);
}

/* what a section says of itself, and which of the plan's entries stand in it */
TEST(sections_are_kept)
{
    static const char text[] = "[default]\ntime=2s\nkind=circle\n"
                               "[line]\naxis=size\nsize=1 2 3\ntime=500ms\n"
                               "[again]\nsize=3 4 3\n"
                               "[colors]\naxis=color\ncolor=*\nsize=1\n"
                               "[moves]\nsuite=moves\nway=up\ntime=1m\n";
    static const uint64_t ns[] = { 500000000, 500000000, 500000000, 2000000000, 2000000000, 2000000000, 60000000000 };
    struct ha_plan plan = { 0 };
    struct ha_why why = { "" };
    if (ha_plan_parse(&plan, &none, "suites/night.suite", text, &why) != HA_OK) fail_msg("%s", why.text);
    assert_int_equal(plan.entries, 7);
    for (size_t i = 0; i < plan.entries; i++) {
        assert_string_equal(plan.entry[i].from, "night");
        assert_true(plan.entry[i].time_ns == ns[i]);
        /* kind, of the default, is none of the moves' keys */
        assert_true((plan.entry[i].suite == &fake_shapes) == (i < 6));
    }
    static const struct {
        const char *name, *axis;
        size_t count, entry[3];
    } sections[] = { { "line", "size", 3, { 0, 1, 2 } },
                     { "again", NULL, 2, { 2, 3, 0 } },
                     { "colors", "color", 3, { 0, 4, 5 } },
                     { "moves", NULL, 1, { 6 } } };
    assert_int_equal(plan.sections, 4);
    for (size_t i = 0; i < plan.sections; i++) {
        const struct ha_section *s = &plan.section[i].of;
        assert_string_equal(s->name, sections[i].name);
        assert_string_equal(plan.section[i].file, "night");
        assert_int_equal(s->count, sections[i].count);
        assert_memory_equal(s->entry, sections[i].entry, s->count * sizeof *s->entry);
        if (sections[i].axis) assert_string_equal(fake_shapes.key[s->axis].name, sections[i].axis);
        else assert_int_equal(s->axis, SIZE_MAX);
    }
    ha_plan_free(&plan);

    /* ids of a suite stand together, in a section without a name and an axis */
    char a[] = "circle", b[] = "moves:way=up", c[] = "square", *words[] = { a, b, c };
    const struct ha_plan_options ids = { .words = words, .words_count = 3 };
    assert_int_equal(ha_plan_make(&plan, &ids, &why), HA_OK);
    assert_int_equal(plan.sections, 2);
    assert_true(plan.section[0].of.count == 2 && plan.section[0].of.entry[1] == 2 && plan.section[1].of.count == 1);
    assert_true(!*plan.section[0].of.name && plan.section[0].of.axis == SIZE_MAX && !*plan.entry[0].from);
    assert_true(plan.entry[0].time_ns == 0);
    ha_plan_free(&plan);
}

/* where nothing is timed; what an id says is as it says */
TEST(files_are_made_small)
{
    const struct ha_plan_options small = { .small = true };
    gives(expand, "[a]\nkind=circle\nsize=2 30 50\naxis=size\n", small, "circle:size=2\ncircle:size=3\n");
    yields("circle:size=30", small, "circle:size=30\n");
}

/* ---- sizes ------------------------------------------------------------------------------------------------------ */

/* `key = 1 2 3 ... n` */
static size_t put_values(char *text, size_t n, const char *key, int count)
{
    n += (size_t)sprintf(text + n, "%s =", key);
    for (int i = 1; i <= count; i++) n += (size_t)sprintf(text + n, " %d", i);
    return n + (size_t)sprintf(text + n, "\n");
}

TEST(sizes_are_limited)
{
    static char text[1 << 16];
    struct ha_plan plan = { 0 };
    struct ha_why why = { "" };
    size_t n = (size_t)sprintf(text, "[a]\nkind=circle\n");
    n = put_values(text, n, "size", 100);
    put_values(text, n, "threads", 1000);
    assert_int_equal(ha_plan_parse(&plan, &none, "x.suite", text, &why), HA_OK);
    assert_true(plan.entries == 100000 && plan.section[0].of.count == 100000);
    /* the same once more is nothing new; what is too much in all is refused */
    assert_int_equal(ha_plan_parse(&plan, &none, "x.suite", "[a]\nthreads=7\nsize=1 2\n", &why), HA_OK);
    assert_true(plan.entries == 100000 && plan.section[1].of.count == 2);
    assert_int_equal(ha_plan_parse(&plan, &none, "x.suite", "[a]\ncolor=blue\n", &why), HA_ERROR);
    assert_string_equal(why.text, "more than 100000 cases in all");
    ha_plan_free(&plan);

    put_values(text, n, "threads", 1001);
    assert_string_equal(refusal(expand, text, none), "x.suite:1: [a] has more than 100000 cases");
    /* whatever is left of it; the product of these overflows 64 bits */
    n = put_values(text, n, "threads", 900);
    n = put_values(text, n, "count", 900);
    n = put_values(text, n, "ratio", 900);
    n = put_values(text, n, "steps", 900);
    n = put_values(text, n, "name", 900);
    put_values(text, n, "radius", 100);
    assert_string_equal(refusal(expand, text, (struct ha_plan_options){ .filter = "nosuch" }),
                        "x.suite:1: [a] has more than 100000 cases");
    /* nor does what is no point go on for ever */
    n = (size_t)sprintf(text, "[a]\nkind=square\nsize=91\n");
    n = put_values(text, n, "threads", 1000);
    put_values(text, n, "ratio", 1001);
    assert_string_equal(refusal(expand, text, none), "x.suite:1: [a] has more than 1000000 products of values");

    memset(text, 'x', 20000);
    memcpy(text, "[a]\nname=", 9);
    text[20000] = 0;
    is_refused(expand, text, none, "x.suite:2: the line is longer than 16382 bytes");
    text[4 + 16383] = 0;
    is_refused(expand, text, none, "x.suite:2: the line is longer than");
    text[4 + 16382] = 0;
    is_refused(expand, text, none, "x.suite:2: name: ");
    n = 0;
    for (int i = 0; i < 257; i++) n += (size_t)sprintf(text + n, "[s%d]\nsize=1\n", i);
    assert_string_equal(refusal(expand, text, none), "x.suite:513: more than 256 sections");
}

static enum ha_status read_bytes(const char *bytes, size_t size, char **text, struct ha_why *why)
{
    test_write("x.suite", bytes, size);
    return ha_suite_file_load(test_path("x.suite"), text, why);
}

TEST_WITH(files_are_read, test_folder_make, test_folder_remove)
{
    static const char good[] = "[a]\nkind=circle\nsize=1 2", zero[] = "[a]\nkind=circle\0\nsize=1";
    struct ha_why why = { "" };
    char *text;
    assert_int_equal(read_bytes(good, sizeof good - 1, &text, &why), HA_OK);
    assert_string_equal(text, good);
    free(text);
    assert_int_equal(read_bytes(zero, sizeof zero - 1, &text, &why), HA_ERROR);
    assert_contains(why.text, "not a text file");
    assert_int_equal(ha_suite_file_load("/nonexistent/x.suite", &text, &why), HA_ERROR);
    assert_contains(why.text, "/nonexistent/x.suite: cannot open: No such file");
    assert_int_equal(ha_suite_file_load("/", &text, &why), HA_ERROR);
    char *large = malloc(300000);
    assert_non_null(large);
    memset(large, '#', 300000);
    assert_int_equal(read_bytes(large, 300000, &text, &why), HA_ERROR);
    assert_contains(why.text, "larger than");
    free(large);

    /* a word that is a path */
    test_write("x.suite", good, sizeof good - 1);
    yields(test_path("x.suite"), none, "circle:size=1\ncircle:size=2\n");
    /* an id behind it stands in no section of the file */
    struct ha_plan plan = { 0 };
    char file[TEST_PATH_MAX], id[] = "circle:size=9", *words[] = { file, id };
    snprintf(file, sizeof file, "%s", test_path("x.suite"));
    assert_int_equal(ha_plan_make(&plan, &(struct ha_plan_options){ .words = words, .words_count = 2 }, &why), HA_OK);
    assert_true(plan.sections == 2 && plan.section[0].of.count == 2 && plan.section[1].of.entry[0] == 2);
    ha_plan_free(&plan);
}
