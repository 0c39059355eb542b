#include "harness/base/array.h"
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/report/folder_parts.h"
#include "harness/report/row.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- failures -------------------------------------------------------------------------------------------------- */

enum ha_status ha_folder_failed(const struct ha_folder *folder, struct ha_why *why)
{
    return folder->status == HA_OK ? HA_OK : ha_why(why, folder->status, "%s", folder->failure.text);
}

bool ha_folder_is_removed(const struct ha_folder *folder)
{
    struct stat at;
    return folder->fd >= 0 && fstat(folder->fd, &at) == 0 && at.st_nlink == 0;
}

enum ha_status ha_folder_fail(struct ha_folder *folder, struct ha_why *why)
{
    static const int full[] = { ENOSPC, EDQUOT, EFBIG };
    const char *fix = "mend that";
    if (folder->status != HA_OK) return ha_folder_failed(folder, why);
    for (size_t i = 0; i < sizeof full / sizeof *full; i++)
        if (strstr(why->text, strerror(full[i]))) fix = "make room";
    if (ha_folder_is_removed(folder))
        folder->status = ha_why(&folder->failure, HA_ERROR, "-o %.400s: the folder was removed, and its rows with it",
                                folder->path);
    else
        folder->status = ha_why(&folder->failure, HA_ERROR,
                                "%.400s; the rows so far are kept: %s and go on with --resume", why->text, fix);
    return ha_folder_failed(folder, why);
}

/* ---- entries --------------------------------------------------------------------------------------------------- */

char *ha_folder_text(const char *text)
{
    char *s = strdup(text);
    return s ? ha_text_clean(s) : NULL;
}

struct ha_folder_entry *ha_folder_entry_make(const struct ha_folder_case *of, const char *class_value, const void *row,
                                             bool before)
{
    struct ha_folder_entry *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    void *mine = row ? calloc(1, of->suite->row_bytes + 1) : NULL; /* a text at its end ends */
    if (mine) {
        memcpy(mine, row, of->suite->row_bytes);
        ha_text_clean(ha_result_of(mine)->reason);
    }
    *e = (struct ha_folder_entry){ .suite = of->suite,
                                   .id = ha_folder_text(of->id),
                                   .from = ha_folder_text(*of->from ? of->from : of->suite->name),
                                   .class_value = ha_folder_text(class_value),
                                   .process = of->process,
                                   .row = mine,
                                   .seconds = of->seconds,
                                   .before = before };
    if (e->id && e->from && e->class_value && (mine || !row)) return e;
    ha_folder_entry_free(e);
    return NULL;
}

void ha_folder_entry_free(struct ha_folder_entry *e)
{
    if (!e) return;
    union {
        const void *kept;
        void *owned;
    } each[] = { { e->id }, { e->from }, { e->class_value }, { e->row } };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) free(each[i].owned);
    free(e);
}

static int order(const void *a, const void *b)
{
    const struct ha_folder_entry *x = a, *y = b;
    const int ids = strcmp(x->id, y->id);
    return ids ? ids : (x->process > y->process) - (x->process < y->process);
}

enum ha_status ha_folder_add(struct ha_folder *folder, struct ha_folder_entry *entry, struct ha_why *why)
{
    if (!ha_array_room(&folder->entry, &folder->entries_room, folder->entries + 1, sizeof *folder->entry)
        || !tsearch(entry, &folder->tree, order))
        return ha_why(why, HA_ERROR, "out of memory for the rows");
    folder->entry[folder->entries++] = entry;
    return HA_OK;
}

void ha_folder_drop(struct ha_folder *folder, struct ha_folder_entry *entry)
{
    tdelete(entry, &folder->tree, order);
    ha_folder_entry_free(entry);
}

const struct ha_folder_entry *ha_folder_find(const struct ha_folder *folder, const char *id, size_t process)
{
    char clean[HA_ID_MAX];
    if (strlen(id) >= sizeof clean) return NULL;
    strcpy(clean, id);
    const struct ha_folder_entry key = { .id = ha_text_clean(clean), .process = process };
    void *const *node = tfind(&key, &folder->tree, order);
    return node ? *node : NULL;
}

size_t ha_folder_entries(const struct ha_folder *folder) { return folder->entries; }
const struct ha_folder_entry *ha_folder_entry(const struct ha_folder *folder, size_t i) { return folder->entry[i]; }
const char *ha_folder_path(const struct ha_folder *folder) { return folder->path; }
const struct ha_folder_found *ha_folder_found(const struct ha_folder *folder) { return &folder->found; }

/* ---- suites ---------------------------------------------------------------------------------------------------- */

struct ha_folder_suite *ha_folder_suite(const struct ha_folder *folder, const struct ha_suite *suite)
{
    for (size_t i = 0; i < folder->suites; i++)
        if (folder->suite[i].suite == suite) return &folder->suite[i];
    return NULL;
}
