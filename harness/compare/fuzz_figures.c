/* figures.csv of a folder, whose bytes are anything. */

#include "harness/compare/compare.h"
#include "harness/compare/print.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static const char *write_in(const char *folder, const char *name, const void *bytes, size_t count)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    if (!f || fwrite(bytes, 1, count, f) != count || fclose(f) != 0) abort();
    return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static const char env[] = "{\"schema_version\":2,\"mode\":\"run\",\"cpu\":\"c\",\"runs\":[]}";
    static char folder[2][32] = { "/dev/shm/habench-fuzz-XXXXXX", "/dev/shm/habench-fuzz-XXXXXX" };
    static bool made;
    struct ha_record base, now;
    struct ha_why why;
    for (int i = 0; i < 2; i++) {
        if (!made && !mkdtemp(folder[i])) abort();
        if (!made) write_in(folder[i], "env.json", env, sizeof env - 1);
        write_in(folder[i], "figures.csv", bytes, count);
    }
    made = true;
    const enum ha_status a = ha_record_read(&base, folder[0], &why), b = ha_record_read(&now, folder[1], &why);
    if (a != b) abort();
    if (a == HA_OK) {
        struct ha_comparison c;
        FILE *out = fopen("/dev/null", "w");
        if (!out) abort();
        if (ha_compare(&c, &base, &now, &why) != HA_OK) abort();
        /* a record beside its copy: nothing is worse */
        const enum ha_exit exit = ha_comparison_exit(&c);
        if (exit == HA_EXIT_REGRESSION || exit == HA_EXIT_WRONG) abort();
        ha_compare_print_table(out, &c);
        ha_compare_print_json(out, &c, 1);
        fclose(out);
        ha_comparison_free(&c);
    }
    ha_record_free(&base);
    ha_record_free(&now);
    return 0;
}
