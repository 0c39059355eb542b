#include "harness/fleet/attempt.h"

#include "harness/base/clock.h"
#include "harness/base/file.h"
#include "harness/base/fingerprint.h"
#include "harness/base/own_files.h"
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/fleet/move.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* A line on stderr: "fleet: MACHINE: ...". */
__attribute__((format(printf, 2, 3))) static void say(const struct ha_attempt *a, const char *format, ...)
{
    char line[3 * HA_RANK_PATH];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "fleet: %s: %s\n", a->file.of.machine, ha_text_clean(line));
}

static bool is_there(const char *folder, const char *name)
{
    char path[HA_RANK_PATH];
    struct ha_why why;
    return ha_file_path(path, folder, name, "", &why) == HA_OK && access(path, F_OK) == 0;
}

/* ---- parts of a record ------------------------------------------------------------------------------------------- */

static const char *const one_part[] = { "", NULL };

/* The file of a part; of the folder itself, where there is one. */
static bool is_in_part(const char *folder, const char *part, const char *name)
{
    char path[HA_RANK_PATH];
    struct ha_why why;
    return *part ? ha_file_path(path, folder, part, "", &why) == HA_OK && is_there(path, name) : is_there(folder, name);
}

/* The last part is moved last. */
static bool is_recorded(const struct ha_attempt *a, const char *machine)
{
    const char *const *last = a->parts;
    while (last[1]) last++;
    return is_in_part(a->fleet, *last, machine);
}

/* For the record that a part is, or for each of several that it holds, as `pairs` does, until one is not HA_OK. */
static enum ha_status each_in_part(const struct ha_attempt *a, const char *part,
                                   enum ha_status (*look)(const char *record, struct ha_why *why), struct ha_why *why)
{
    char folder[HA_RANK_PATH], record[HA_RANK_PATH];
    size_t count = 0;
    snprintf(folder, sizeof folder, "%s", a->record);
    if (*part) HA_TRY(ha_file_path(folder, a->record, part, "", why));
    DIR *d = *part && !is_there(folder, "env.json") ? opendir(folder) : NULL;
    enum ha_status status = HA_OK;
    for (const struct dirent *e; d && status == HA_OK && (e = readdir(d));) {
        if (*e->d_name == '.') continue;
        status = ha_file_path(record, folder, e->d_name, "", why);
        if (status == HA_OK) status = look(record, why);
        count++;
    }
    if (d) closedir(d);
    return count ? status : look(folder, why);
}

static enum ha_status each_record(const struct ha_attempt *a,
                                  enum ha_status (*look)(const char *record, struct ha_why *why), struct ha_why *why)
{
    for (const char *const *part = a->parts; *part; part++) HA_TRY(each_in_part(a, *part, look, why));
    return HA_OK;
}

static enum ha_status has_end(const char *record, struct ha_why *why)
{
    return is_there(record, "junit.xml") ? HA_OK : HA_FAIL;
}

static enum ha_status forget_end(const char *record, struct ha_why *why)
{
    char path[HA_RANK_PATH];
    HA_TRY(ha_file_path(path, record, "junit", ".xml", why));
    if (unlink(path) == 0 || errno == ENOENT || errno == ENOTDIR) return HA_OK;
    return ha_why(why, HA_ERROR, "%.600s: cannot remove: %s", path, strerror(errno));
}

static enum ha_status move_part(const struct ha_attempt *a, const char *part, struct ha_why *why)
{
    char from[HA_RANK_PATH], into[HA_RANK_PATH], old[HA_RANK_PATH];
    if (!*part) return ha_move_copy(a->record, a->fleet, a->file.of.machine, why);
    HA_TRY(ha_file_path(from, a->record, part, "", why));
    HA_TRY(ha_file_path(into, a->fleet, part, "", why));
    HA_TRY(ha_file_folder(into, why));
    HA_TRY(ha_file_path(old, into, a->file.of.machine, "", why));
    HA_TRY(ha_move_remove(old, why)); /* of a move that was cut short: the last part was not there */
    return ha_move_copy(from, into, a->file.of.machine, why);
}

/* ---- the folder of its own --------------------------------------------------------------------------------------- */

/* One scratch folder may serve several fleets of one job. */
static enum ha_status name_folder(struct ha_attempt *a, const char *scratch, struct ha_why *why)
{
    const char *given = getenv("TMPDIR"), *job = *a->file.of.job ? a->file.of.job : "none";
    char name[3 * HA_RANK_NAME], digest[HA_FINGERPRINT_TEXT], *fleet = realpath(a->fleet, NULL);
    if (!fleet) return ha_why(why, HA_ERROR, "--fleet %.400s: %s", a->fleet, strerror(errno));
    ha_fingerprint_print(ha_fingerprint_bytes(HA_FINGERPRINT_BEGIN, fleet, strlen(fleet)), digest);
    snprintf(name, sizeof name, "habench-%s-%s-%s", job, a->file.of.machine, digest);
    free(fleet);
    HA_TRY(ha_file_path(a->folder, scratch ? scratch : given && *given ? given : "/tmp", name, "", why));
    HA_TRY(ha_file_path(a->record, a->folder, "record", "", why));
    memcpy(a->file.where, a->folder, sizeof a->file.where);
    return HA_OK;
}

/* It is this user's, and no link: others may write to the folder that it is in. */
static enum ha_exit take_folder(struct ha_attempt *a, struct ha_why *why)
{
    char path[HA_RANK_PATH];
    struct stat at;
    if (mkdir(a->folder, 0700) != 0 && errno != EEXIST)
        return ha_why(why, HA_ERROR, "%.600s: cannot make the folder: %s", a->folder, strerror(errno)),
               HA_EXIT_ENVIRONMENT;
    if (lstat(a->folder, &at) != 0 || !S_ISDIR(at.st_mode) || at.st_uid != geteuid())
        return ha_why(why, HA_ERROR, "%.600s: it is no folder of this user: remove it, or name another --scratch",
                      a->folder),
               HA_EXIT_USAGE;
    if (ha_file_path(path, a->folder, "lock", "", why) != HA_OK) return HA_EXIT_USAGE;
    a->lock = ha_own_file(open(path, O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (a->lock >= 0 && flock(a->lock, LOCK_EX | LOCK_NB) == 0) return HA_EXIT_OK;
    if (a->lock >= 0 && errno == EWOULDBLOCK)
        return ha_why(why, HA_ERROR, "%.600s: another process measures there: wait for its end", a->folder),
               HA_EXIT_USAGE;
    return ha_why(why, HA_ERROR, "%.600s: cannot write: %s", path, strerror(errno)), HA_EXIT_ENVIRONMENT;
}

/* What an attempt before has left: its rows stay, and each junit.xml, which says that a record is whole, does not. */
static enum ha_status look_at_record(struct ha_attempt *a, bool anew, struct ha_why *why)
{
    const bool there = access(a->record, F_OK) == 0;
    if (there && anew) {
        say(a, "what is in %s cannot be gone on with: it is removed, and all begins anew", a->record);
        return ha_move_remove(a->record, why);
    }
    a->resumes = is_in_part(a->record, a->parts[0], "env.json");
    if (a->resumes) say(a, "attempt %" PRIu64 " goes on in %s", a->file.attempts, a->record);
    return each_record(a, forget_end, why);
}

static void leave_folder(struct ha_attempt *a)
{
    if (a->lock >= 0) ha_own_file_close(a->lock);
    a->lock = -1;
}

/* ---- the claim --------------------------------------------------------------------------------------------------- */

/* Whose is a machine of which there is a file? */
enum whose { OURS, ANOTHER_RANK, FREE, ANOTHER_RECORD };

static enum whose whose(const struct ha_attempt *a, const struct ha_rank_file *former)
{
    const struct ha_rank *r = &a->file.of;
    const bool recorded = is_recorded(a, r->machine);
    if (!ha_rank_same_job(r, &former->of)) return recorded ? ANOTHER_RECORD : FREE;
    /* a job that was begun again may deal out its ranks in another order */
    if (r->rank != former->of.rank && former->of.restarts >= r->restarts) return ANOTHER_RANK;
    return recorded && !*r->job ? ANOTHER_RECORD : OURS;
}

static enum ha_exit refuse(const struct ha_attempt *a, const struct ha_rank_file *former, struct ha_why *why)
{
    const char *job = *former->of.job ? former->of.job : "a run without a job";
    ha_why(
        why, HA_ERROR,
        "--fleet %.400s: %s has its record already, of %s, begun %s: give another folder, or take %s and %s.rank.json "
        "away",
        a->fleet, a->file.of.machine, job, former->begun, a->file.of.machine, a->file.of.machine);
    return HA_EXIT_USAGE;
}

/* Also where that was killed between the move and its last word. */
static void find_complete(struct ha_attempt *a, const struct ha_rank_file *former)
{
    struct ha_why why;
    const char *launcher = a->file.of.launcher;
    say(a, "its record is there, of attempt %" PRIu64 " of job %s: nothing is measured again", former->attempts,
        former->of.job);
    a->complete = true;
    a->file = *former;
    a->file.of.launcher = launcher;
    if (*a->file.ended) return;
    ha_date_utc(a->file.ended);
    if (ha_rank_file_write(&a->file, a->fleet, false, &why) != HA_OK) say(a, "%s", why.text);
}

/* The file of the job's former attempt, or that of a job that has left nothing, becomes ours. */
static enum ha_exit take_over(struct ha_attempt *a, const struct ha_rank_file *former, enum whose is,
                              struct ha_why *why)
{
    if (is == OURS && is_recorded(a, a->file.of.machine)) return find_complete(a, former), HA_EXIT_OK;
    const enum ha_exit code = take_folder(a, why); /* before the file is written: who measures there may live */
    if (code != HA_EXIT_OK) return leave_folder(a), code;
    const char *job = *former->of.job ? former->of.job : "none";
    if (is == FREE) say(a, "job %s, begun %s, has left no record: this one takes its place", job, former->begun);
    else a->file.attempts = former->attempts + 1;
    if (is == OURS && *former->where
        && (strcmp(former->where, a->folder) || !is_in_part(a->record, a->parts[0], "env.json")))
        say(a, "what attempt %" PRIu64 " measured in %s is not there: it begins anew", former->attempts, former->where);
    return ha_rank_file_write(&a->file, a->fleet, false, why) == HA_OK ? HA_EXIT_OK : HA_EXIT_ENVIRONMENT;
}

/* HOST, or where another rank of this job has that, HOST.RANK: tasks of an array may share a node. */
static enum ha_exit claim(struct ha_attempt *a, const char *scratch, struct ha_why *why)
{
    char base[HA_RANK_NAME];
    struct ha_rank *r = &a->file.of;
    memcpy(base, r->machine, sizeof base);
    for (int turn = 0; turn < 2; turn++) {
        struct ha_rank_file former;
        if (turn) snprintf(r->machine, sizeof r->machine, "%.80s.%" PRIu64, base, r->rank);
        if (name_folder(a, scratch, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
        enum ha_status status = ha_rank_file_write(&a->file, a->fleet, true, why);
        if (status != HA_WAIVED) return status == HA_OK ? HA_EXIT_OK : HA_EXIT_ENVIRONMENT;
        status = ha_rank_file_read(&former, a->fleet, r->machine, why);
        if (status == HA_WAIVED)
            ha_why(why, HA_ERROR, "--fleet %.400s: %s.rank.json comes and goes", a->fleet, r->machine);
        if (status != HA_OK) return HA_EXIT_USAGE;
        const enum whose is = whose(a, &former);
        if (is == ANOTHER_RECORD) return refuse(a, &former, why);
        if (is != ANOTHER_RANK) return take_over(a, &former, is, why);
    }
    return ha_why(why, HA_ERROR, "--fleet %.400s: %s and %s are taken by other ranks of this job", a->fleet, base,
                  r->machine),
           HA_EXIT_USAGE;
}

/* A rank that was begun again elsewhere has left there what it had. */
static void look_elsewhere(const struct ha_attempt *a)
{
    struct ha_rank_file found;
    if (!a->file.of.restarts || a->file.attempts > 1 || !ha_rank_file_elsewhere(&found, a->fleet, &a->file.of)) return;
    if (is_recorded(a, found.of.machine)) return;
    say(a, "rank %" PRIu64 " of job %s was on %s before: what it left in %s stays there, and all begins anew",
        a->file.of.rank, a->file.of.job, found.of.machine, found.where);
}

/* ---- begin and end ----------------------------------------------------------------------------------------------- */

static void write_end(struct ha_attempt *a, enum ha_exit code, int signal)
{
    struct ha_why why;
    ha_date_utc(a->file.ended);
    a->file.exit = signal ? HA_RANK_NONE : (int)code;
    a->file.signal = signal ? signal : HA_RANK_NONE;
    a->file.seconds = (double)(ha_now_ns() - a->begin_ns) / 1e9;
    if (ha_rank_file_write(&a->file, a->fleet, false, &why) != HA_OK) say(a, "%s", why.text);
}

enum ha_exit ha_attempt_begin(struct ha_attempt *a, const struct ha_attempt_options *o, struct ha_why *why)
{
    *a = (struct ha_attempt){
        .fleet = o->fleet, .parts = o->parts ? o->parts : one_part, .lock = -1, .begin_ns = ha_now_ns()
    };
    a->file = (struct ha_rank_file){
        .device = HA_RANK_NONE, .exit = HA_RANK_NONE, .signal = HA_RANK_NONE, .attempts = 1, .seconds = -1
    };
    if (ha_rank_find(&a->file.of, why) != HA_OK) return HA_EXIT_USAGE;
    for (size_t i = 0; i < o->devices_count && a->file.device == HA_RANK_NONE; i++)
        a->file.device = ha_rank_take_device(&a->file.of, o->devices[i]);
    ha_date_utc(a->file.begun);
    if (ha_file_folder(o->fleet, why) != HA_OK) return ha_why_prefix(why, HA_ERROR, "--fleet"), HA_EXIT_ENVIRONMENT;
    enum ha_exit code = claim(a, o->scratch, why);
    if (code != HA_EXIT_OK || a->complete) return code;
    look_elsewhere(a);
    if (a->lock < 0) code = take_folder(a, why);
    if (code == HA_EXIT_OK && look_at_record(a, o->anew, why) != HA_OK) code = HA_EXIT_ENVIRONMENT;
    if (code == HA_EXIT_OK) return code;
    leave_folder(a);
    write_end(a, code, 0);
    return code;
}

/* Once the record is in FLEET, or where nothing was measured, nothing is left here. */
static void remove_folder(struct ha_attempt *a)
{
    struct ha_why why;
    if (ha_move_remove(a->folder, &why) != HA_OK) say(a, "%s", why.text);
    *a->file.where = 0;
}

static enum ha_status move(struct ha_attempt *a, enum ha_exit code, struct ha_why *why)
{
    a->file.exit = (int)code; /* known to another attempt, if this one is killed after the move */
    HA_TRY(ha_rank_file_write(&a->file, a->fleet, false, why));
    for (const char *const *part = a->parts; *part; part++) HA_TRY(move_part(a, *part, why));
    return HA_OK;
}

enum ha_exit ha_attempt_end(struct ha_attempt *a, enum ha_exit code, int signal, struct ha_why *why)
{
    struct ha_why moved;
    if (signal)
        say(a, "ended by signal %d: what is complete stays in %s, where another attempt of the job goes on", signal,
            a->record);
    else if (each_record(a, has_end, &moved) != HA_OK) {
        if (access(a->record, F_OK) == 0) say(a, "no whole record: what there is stays in %s", a->record);
        else remove_folder(a);
    } else if (move(a, code, &moved) == HA_OK) remove_folder(a);
    else {
        say(a, "%s; the record stays in %s", moved.text, a->record);
        if (code == HA_EXIT_OK) *why = moved, code = HA_EXIT_ENVIRONMENT;
    }
    leave_folder(a);
    write_end(a, code, signal);
    return code;
}
