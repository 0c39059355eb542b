/* The main of every test program: "PROGRAM FILE[:TEST] [all|small] [ARGUMENT]..." runs the tests of one of its files,
 * named without folder and ending, or those of them whose name matches TEST, in which * stands for any characters. A
 * program of one file may be run without a name. */

#include "harness/base/test.h"

static bool is_named(const char *file, const char *name)
{
    const char *base = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    const size_t n = strcspn(name, ":");
    return !strncmp(base, name, n) && base[n] == '.';
}

/* The file of that name; with NULL the only file; NULL if there is none, or several. */
static const char *file_of(const char *name)
{
    const char *found = NULL;
    for (size_t i = 0; i < test_list_count; i++) {
        const char *file = test_list[i].file;
        if (name && is_named(file, name)) return file;
        if (!name && found && strcmp(found, file)) return NULL;
        if (!name) found = file;
    }
    return found;
}

static int list_files(const char *program)
{
    fprintf(stderr, "usage: %s FILE[:TEST] [all|small] [ARGUMENT]...\nFILE is one of\n", program);
    for (size_t i = 0; i < test_list_count; i++)
        if (i == 0 || strcmp(test_list[i].file, test_list[i - 1].file)) fprintf(stderr, "    %s\n", test_list[i].file);
    return 64;
}

int main(int argc, char **argv)
{
    int used = argc > 1 && file_of(argv[1]) ? 1 : 0;
    test_file = file_of(used ? argv[1] : NULL);
    if (!test_file) return list_files(argv[0]);
    if (used && strchr(argv[1], ':')) cmocka_set_test_filter(strchr(argv[1], ':') + 1);
    if (used + 1 < argc && (!strcmp(argv[used + 1], "small") || !strcmp(argv[used + 1], "all")))
        test_small = !strcmp(argv[++used], "small");
    argv[used] = argv[0];
    for (size_t i = 0; i < test_mains_count; i++)
        if (!strcmp(test_mains[i].file, test_file)) return test_mains[i].main(argc - used, argv + used);
    return test_all("tests", NULL, NULL);
}
