#include "harness/report/test_schema.h"

/* test_schema SCHEMA FILE...: do these files fit it? Without a word: the schemas themselves. */

static char *text_of(const char *name)
{
    char *text = NULL;
    size_t bytes;
    FILE *file = fopen(name, "r"), *into = open_memstream(&text, &bytes);
    if (!file || !into) fail_msg("%s: cannot be read", name);
    for (int c; (c = getc(file)) != EOF;) putc(c, into);
    fclose(file);
    fclose(into);
    return text;
}

/* Each member, at any depth, stands in the text as `name`. */
static void look_for_members(json_t *schema, const char *page, const char *text)
{
    const char *name;
    json_t *part;
    size_t i;
    json_object_foreach(json_object_get(schema, "properties"), name, part)
    {
        char quoted[80];
        snprintf(quoted, sizeof quoted, "`%.70s`", name);
        if (!strstr(text, quoted)) fail_msg("%s does not name %s", page, quoted);
        look_for_members(part, page, text);
    }
    json_array_foreach(json_object_get(schema, "oneOf"), i, part) look_for_members(part, page, text);
    if (json_object_get(schema, "items")) look_for_members(json_object_get(schema, "items"), page, text);
}

TEST(the_docs_name_each_member)
{
    static const char *const of[][2] = { { "results/schema/night.schema.json", "docs/nightly.md" },
                                         { "results/schema/compare.schema.json", "docs/compare.md" },
                                         { "results/schema/rank.schema.json", "docs/fleet.md" } };
    for (size_t i = 0; i < COUNT(of); i++) {
        json_t *schema = test_schema_load(of[i][0]);
        char *text = text_of(of[i][1]);
        look_for_members(schema, of[i][1], text);
        free(text);
        json_decref(schema);
    }
}

TEST(a_line_that_does_not_fit_is_noticed)
{
    static const char *const lines[][2] = {
        { "{\"row\":\"environment\",\"name\":\"cpu\",\"base\":null,\"new\":\"b\"}", "" },
        { "{\"row\":\"environment\",\"name\":\"cpu\",\"base\":null}", " lacks new" },
        { "{\"row\":\"environment\",\"name\":\"cpu\",\"base\":1,\"new\":\"b\"}", "/base has another type" },
        { "{\"row\":\"environment\",\"more\":1}", "/more is unknown" },
        { "{\"row\":\"verdict\",\"new\":1,\"exit\":11}", "/exit has another value" },
        { "{\"row\":\"verdict\",\"new\":1,\"exit\":20}", " lacks verdict" },
        { "{\"row\":\"figure\"}", "/row has another value" },
        { "{}", " lacks row" },
    };
    json_t *schema = test_schema_load("results/schema/compare.schema.json");
    for (size_t i = 0; i < COUNT(lines); i++) {
        char where[256] = "";
        json_t *j = json_loads(lines[i][0], 0, NULL);
        assert_int_equal(test_schema_fits(j, schema, where), !*lines[i][1]);
        assert_string_equal(where, lines[i][1]);
        json_decref(j);
    }
    json_decref(schema);
}

/* ---- from a script ---------------------------------------------------------------------------------------------- */

static bool fits(const char *file, const json_t *schema)
{
    char where[256] = "";
    json_t *j = json_load_file(file, 0, NULL);
    const bool good = j && test_schema_fits(j, schema, where);
    if (!good) fprintf(stderr, "%s: %s\n", file, j ? where : "no JSON");
    json_decref(j);
    return good;
}

TEST_MAIN
{
    size_t bad = 0;
    if (argc < 2) return test_all("tests", NULL, NULL);
    json_t *schema = json_load_file(argv[1], 0, NULL);
    for (int i = 2; i < argc; i++) bad += !fits(argv[i], schema);
    json_decref(schema);
    return !schema || bad;
}
