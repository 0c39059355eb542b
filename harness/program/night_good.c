#include "harness/program/night_good.h"

#include "harness/base/file.h"
#include "harness/base/text.h"
#include "harness/base/version.h"
#include "harness/base/why.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const folder = "last_good";

bool ha_night_good(const char *nights, char program[4096], char version[128])
{
    char kept[4096], path[4096];
    struct ha_why nothing;
    if (ha_file_path(kept, nights, folder, "", &nothing) != HA_OK
        || ha_file_path(program, kept, "habench", "", &nothing) != HA_OK
        || ha_file_path(path, kept, "version", "", &nothing) != HA_OK || access(program, X_OK) != 0)
        return false;
    ha_text_line(path, "", version, 128);
    return *version && strcmp(version, ha_version()) != 0;
}

static enum ha_status copy_self(const char *to, struct ha_why *why)
{
    struct ha_whole_file out;
    char piece[65536];
    FILE *in = ha_file_read("/proc/self/exe", why);
    enum ha_status status = in ? ha_whole_file_open(&out, to, "habench", why) : HA_ERROR;
    if (status == HA_OK) {
        for (size_t n; (n = fread(piece, 1, sizeof piece, in)) > 0;) fwrite(piece, 1, n, out.file);
        fchmod(fileno(out.file), 0755);
        status = ha_whole_file_close(&out, why);
    }
    if (in) fclose(in);
    return status;
}

enum ha_status ha_night_good_keep(const char *nights, struct ha_why *why)
{
    char kept[4096], path[4096], version[128];
    struct ha_whole_file out;
    HA_TRY(ha_file_path(path, nights, "night.json", "", why));
    if (access(path, F_OK) == 0) return HA_OK;
    HA_TRY(ha_file_path(kept, nights, folder, "", why));
    HA_TRY(ha_file_path(path, kept, "version", "", why));
    ha_text_line(path, "", version, sizeof version);
    if (!strcmp(version, ha_version())) return HA_OK;
    HA_TRY(ha_file_folder(kept, why));
    HA_TRY(copy_self(kept, why));
    HA_TRY(ha_whole_file_open(&out, kept, "version", why));
    fprintf(out.file, "%s\n", ha_version());
    return ha_whole_file_close(&out, why);
}
