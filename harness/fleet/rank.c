#include "harness/fleet/rank.h"

#include "harness/base/why.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- launchers --------------------------------------------------------------------------------------------------- */

enum { VARIABLES = 3 };

/* Names of variables: the first that is set counts, NULL is none. */
struct launcher {
    const char *name;
    const char *is;                   /* whose process has it set */
    const char *rank, *ranks, *local; /* absent: rank 0, and what is not known */
    const char *local_ranks;
    const char *per_node; /* "2(x3),1": local_ranks of each node in its order */
    const char *job[VARIABLES];
    const char *array; /* the task of an array, each of which has `ranks` ranks */
    const char *tasks; /* how many there are */
    const char *restarts, *node;
};

/* The first whose `is` is set. MPI stands before Slurm: what mpirun starts within a job of Slurm has the variables of
 * the job's script, too. The script itself has SLURM_PROCID, and no step: it is one rank. */
static const struct launcher launchers[] = {
    { .name = "openmpi",
      .is = "OMPI_COMM_WORLD_RANK",
      .rank = "OMPI_COMM_WORLD_RANK",
      .ranks = "OMPI_COMM_WORLD_SIZE",
      .local = "OMPI_COMM_WORLD_LOCAL_RANK",
      .local_ranks = "OMPI_COMM_WORLD_LOCAL_SIZE",
      .job = { "SLURM_JOB_ID", "PMIX_NAMESPACE" },
      .restarts = "SLURM_RESTART_COUNT" },
    { .name = "mpich",
      .is = "MPI_LOCALRANKID",
      .rank = "PMI_RANK",
      .ranks = "PMI_SIZE",
      .local = "MPI_LOCALRANKID",
      .local_ranks = "MPI_LOCALNRANKS",
      .job = { "SLURM_JOB_ID" },
      .restarts = "SLURM_RESTART_COUNT" },
    { .name = "slurm-array",
      .is = "SLURM_ARRAY_TASK_ID",
      .rank = "SLURM_PROCID",
      .ranks = "SLURM_STEP_NUM_TASKS",
      .local = "SLURM_LOCALID",
      .per_node = "SLURM_STEP_TASKS_PER_NODE",
      .job = { "SLURM_ARRAY_JOB_ID" },
      .array = "SLURM_ARRAY_TASK_ID",
      .tasks = "SLURM_ARRAY_TASK_COUNT",
      .restarts = "SLURM_RESTART_COUNT",
      .node = "SLURMD_NODENAME" },
    { .name = "slurm",
      .is = "SLURM_PROCID",
      .rank = "SLURM_PROCID",
      .ranks = "SLURM_STEP_NUM_TASKS",
      .local = "SLURM_LOCALID",
      .per_node = "SLURM_STEP_TASKS_PER_NODE",
      .job = { "SLURM_JOB_ID" },
      .restarts = "SLURM_RESTART_COUNT",
      .node = "SLURMD_NODENAME" },
    { .name = "pmi", .is = "PMI_RANK", .rank = "PMI_RANK", .ranks = "PMI_SIZE", .job = { "PMI_JOBID" } },
    { .name = "pmix", .is = "PMIX_RANK", .rank = "PMIX_RANK", .job = { "PMIX_NAMESPACE" } },
    { .name = "none" },
};

static const struct launcher *launcher(void)
{
    const struct launcher *l = launchers;
    while (l->is && !getenv(l->is)) l++;
    return l;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

enum { MOST = INT32_MAX };

/* Digits and nothing else, of a number up to MOST. *after: what follows them, where that may be more. */
static bool digits(const char *text, uint64_t *out, const char **after)
{
    const size_t n = strspn(text, "0123456789");
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        *out = *out * 10 + (uint64_t)(text[i] - '0');
        if (*out > MOST) return false;
    }
    *after = text + n;
    return n > 0;
}

/* What is not set, or not named, stays as it is. */
static enum ha_status take(const char *variable, uint64_t *out, struct ha_why *why)
{
    const char *text = variable ? getenv(variable) : NULL, *after;
    uint64_t number;
    if (!text) return HA_OK;
    if (!digits(text, &number, &after) || *after)
        return ha_why(why, HA_ERROR, "%s='%.40s': it is no whole number up to %d", variable, text, MOST);
    *out = number;
    return HA_OK;
}

void ha_rank_safe(char *name)
{
    if (*name == '.') *name = '_';
    for (char *c = name; *c; c++)
        if (!isascii((unsigned char)*c) || (!isalnum((unsigned char)*c) && !strchr("-_.", *c))) *c = '-';
}

/* A text that goes into names of files: what is too long or nothing is an error, the rest is made safe. */
static enum ha_status take_name(const char *variable, char *out, size_t bytes, struct ha_why *why)
{
    const char *text = getenv(variable);
    if (!*text || strlen(text) >= bytes)
        return ha_why(why, HA_ERROR, "%s='%.40s': a name has 1 to %zu bytes", variable, text, bytes - 1);
    strcpy(out, text);
    ha_rank_safe(out);
    return HA_OK;
}

static enum ha_status take_job(struct ha_rank *r, const struct launcher *l, struct ha_why *why)
{
    for (size_t i = 0; i < VARIABLES && l->job[i]; i++) {
        uint64_t number;
        if (!getenv(l->job[i])) continue;
        if (strncmp(l->job[i], "SLURM_", 6)) return take_name(l->job[i], r->job, sizeof r->job, why);
        HA_TRY(take(l->job[i], &number, why));
        snprintf(r->job, sizeof r->job, "%" PRIu64, number);
        return HA_OK;
    }
    return HA_OK;
}

/* Of "2(x3),1", the number of node SLURM_NODEID. */
static enum ha_status take_per_node(struct ha_rank *r, const char *variable, struct ha_why *why)
{
    const char *text = getenv(variable), *at = text;
    uint64_t node = 0, tasks = 0, nodes;
    HA_TRY(take("SLURM_NODEID", &node, why));
    while (text && at) {
        bool good = digits(at, &tasks, &at) && tasks > 0;
        nodes = 1;
        if (good && !strncmp(at, "(x", 2)) {
            good = digits(at + 2, &nodes, &at) && *at == ')';
            at += good;
        }
        if (!good || (*at && *at != ','))
            return ha_why(why, HA_ERROR, "%s='%.40s': no numbers of tasks", variable, text);
        if (node < nodes) {
            r->local_ranks = tasks;
            return HA_OK;
        }
        node -= nodes;
        at = *at ? at + 1 : NULL;
    }
    return HA_OK;
}

/* ---- the rank ---------------------------------------------------------------------------------------------------- */

/* Tasks of an array have numbers from anywhere on, such as 4-11 or 0-14:2. Of a list without such a rule (0-6:2,9) a
 * rank is its own, and no other's, but may be beyond their count. */
static enum ha_status take_task(struct ha_rank *r, const struct launcher *l, struct ha_why *why)
{
    uint64_t task = 0, tasks = 1, first = 0, step = 1;
    HA_TRY(take(l->array, &task, why));
    HA_TRY(take(l->tasks, &tasks, why));
    HA_TRY(take("SLURM_ARRAY_TASK_MIN", &first, why));
    HA_TRY(take("SLURM_ARRAY_TASK_STEP", &step, why));
    const uint64_t by_rule = first + (tasks - 1) * step;
    uint64_t last = by_rule;
    HA_TRY(take("SLURM_ARRAY_TASK_MAX", &last, why));
    if (task < first || task > last)
        return ha_why(why, HA_ERROR,
                      "%s=%" PRIu64 ": tasks are %" PRIu64 " to %" PRIu64
                      ", by SLURM_ARRAY_TASK_MIN and SLURM_ARRAY_TASK_MAX",
                      l->array, task, first, last);
    if (!step || last != by_rule || (task - first) % step) step = 1;
    r->rank += (task - first) / step * r->ranks;
    r->ranks *= tasks;
    return HA_OK;
}

static enum ha_status take_numbers(struct ha_rank *r, const struct launcher *l, struct ha_why *why)
{
    HA_TRY(take(l->rank, &r->rank, why));
    HA_TRY(take(l->ranks, &r->ranks, why));
    HA_TRY(take(l->local, &r->local, why));
    HA_TRY(take(l->local_ranks, &r->local_ranks, why));
    if (l->per_node) HA_TRY(take_per_node(r, l->per_node, why));
    HA_TRY(take(l->restarts, &r->restarts, why));
    if (l->per_node && !r->ranks) r->ranks = 1; /* a script of Slurm, and no step */
    if (r->ranks && r->rank >= r->ranks)
        return ha_why(why, HA_ERROR, "%s=%" PRIu64 ": there are %" PRIu64 " ranks, by %s", l->rank, r->rank, r->ranks,
                      l->ranks);
    if (r->local_ranks && r->local >= r->local_ranks)
        return ha_why(why, HA_ERROR, "%s=%" PRIu64 ": this machine has %" PRIu64 " ranks, by %s", l->local, r->local,
                      r->local_ranks, l->per_node ? l->per_node : l->local_ranks);
    return l->array ? take_task(r, l, why) : HA_OK;
}

static enum ha_status take_machine(struct ha_rank *r, const struct launcher *l, struct ha_why *why)
{
    enum { TAIL = 24 }; /* room for .N, twice */
    if (gethostname(r->host, sizeof r->host) != 0 || !memchr(r->host, 0, sizeof r->host) || !*r->host)
        return ha_why(why, HA_ERROR, "the name of this machine cannot be told");
    snprintf(r->machine, sizeof r->machine, "%.*s", (int)sizeof r->machine - TAIL, r->host);
    ha_rank_safe(r->machine);
    if (l->node && getenv(l->node)) HA_TRY(take_name(l->node, r->machine, sizeof r->machine - TAIL, why));
    if (r->local_ranks == 1 || (!r->local_ranks && !r->local)) return HA_OK;
    const size_t n = strlen(r->machine);
    snprintf(r->machine + n, sizeof r->machine - n, ".%" PRIu64, r->local);
    return HA_OK;
}

enum ha_status ha_rank_find(struct ha_rank *r, struct ha_why *why)
{
    const struct launcher *l = launcher();
    *r = (struct ha_rank){ .launcher = l->name, .ranks = l->is ? 0 : 1, .local_ranks = l->is ? 0 : 1 };
    HA_TRY(take_job(r, l, why));
    HA_TRY(take_numbers(r, l, why));
    return take_machine(r, l, why);
}

/* ---- its device -------------------------------------------------------------------------------------------------- */

/* Kinds of which a process sees those that a variable lists, the first being the one that the plugin takes. */
static const struct {
    const char *name, *visible;
    const char *files; /* in /dev, with a number behind */
} kinds[] = { { "cuda", "CUDA_VISIBLE_DEVICES", "nvidia" } };

static bool is_kind(const char *asked, const char *name)
{
    char plugin[64];
    const char *slash = strrchr(asked, '/');
    snprintf(plugin, sizeof plugin, "ha_%s.so", name);
    return !strcmp(slash ? slash + 1 : asked, slash ? plugin : name);
}

static size_t count_files(const char *prefix)
{
    const size_t n = strlen(prefix);
    size_t count = 0;
    DIR *d = opendir("/dev");
    for (const struct dirent *e; d && (e = readdir(d));)
        count += !strncmp(e->d_name, prefix, n) && e->d_name[n] && !e->d_name[n + strspn(e->d_name + n, "0123456789")];
    if (d) closedir(d);
    return count;
}

/* Entry i of "0,GPU-5a,3". */
static void entry(const char *list, size_t i, char out[128])
{
    while (i--) list = strchr(list, ',') + 1;
    snprintf(out, 128, "%.*s", (int)strcspn(list, ","), list);
}

int ha_rank_take_device(const struct ha_rank *r, const char *asked)
{
    size_t k = 0;
    char one[128];
    while (k < sizeof kinds / sizeof *kinds && !(asked && is_kind(asked, kinds[k].name))) k++;
    if (k == sizeof kinds / sizeof *kinds || r->local_ranks < 2) return -1;
    const char *list = getenv(kinds[k].visible);
    size_t count = list ? 1 : count_files(kinds[k].files);
    for (const char *c = list; c && *c; c++) count += *c == ',';
    if (count < 2) return -1; /* the launcher has given it one */
    const size_t number = r->local % count;
    if (list) entry(list, number, one);
    else snprintf(one, sizeof one, "%zu", number);
    setenv(kinds[k].visible, one, 1);
    return (int)number;
}
