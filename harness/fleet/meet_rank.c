#include "harness/fleet/meet_rank.h"

#include "harness/base/why.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Variables by which launchers say it; job: the first two that are there, joined. */
static const struct launcher {
    const char *name, *rank, *ranks, *local_rank, *local_ranks, *job[3];
} launchers[] = {
    { "Open MPI",
      "OMPI_COMM_WORLD_RANK",
      "OMPI_COMM_WORLD_SIZE",
      "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE",
      { "PMIX_NAMESPACE", "OMPI_MCA_orte_ess_jobid", "OMPI_MCA_ess_base_jobid" } },
    { "MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", { "HYDRA_JOBID", "PMI_JOBID", "PMI_FD" } },
    { "Slurm",
      "SLURM_PROCID",
      "SLURM_NTASKS",
      "SLURM_LOCALID",
      NULL,
      { "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_STEP_ID" } },
};

static bool number(const char *name, size_t *out)
{
    const char *text = name ? getenv(name) : NULL;
    char *end;
    if (!text || *text < '0' || *text > '9') return false;
    *out = strtoul(text, &end, 10);
    return !*end;
}

/* Slurm's list of tasks by node, "2(x3),1": how many the one of this index has. */
static bool tasks_of_node(const char *list, size_t node, size_t *out)
{
    for (const char *at = list; at && *at;) {
        char *end;
        unsigned long times = 1;
        const unsigned long tasks = strtoul(at, &end, 10);
        if (end == at) return false;
        if (!strncmp(end, "(x", 2)) times = strtoul(end + 2, &end, 10);
        if (node < times) {
            *out = tasks;
            return true;
        }
        node -= times;
        at = end + strcspn(end, ",");
        at += *at == ',';
    }
    return false;
}

static bool local_ranks(const struct launcher *l, size_t *out)
{
    size_t node;
    if (number(l->local_ranks, out)) return true;
    return !l->local_ranks && number("SLURM_NODEID", &node)
           && (tasks_of_node(getenv("SLURM_STEP_TASKS_PER_NODE"), node, out)
               || tasks_of_node(getenv("SLURM_TASKS_PER_NODE"), node, out));
}

enum ha_status ha_meet_rank_read(struct ha_meet_rank *out, struct ha_why *why)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const struct launcher *l = &launchers[i];
        if (!number(l->rank, &out->rank) || !number(l->ranks, &out->ranks)) continue;
        if (!number(l->local_rank, &out->local_rank) || !local_ranks(l, &out->local_ranks))
            return ha_why(why, HA_ERROR, "%s says which rank this is, and not how many are on this host", l->name);
        if (out->rank >= out->ranks || out->local_rank >= out->local_ranks || out->local_ranks > out->ranks)
            return ha_why(why, HA_ERROR, "%s says that this is rank %zu of %zu, %zu of %zu on this host", l->name,
                          out->rank, out->ranks, out->local_rank, out->local_ranks);
        for (size_t k = 0; k < 3; k++) {
            const char *part = getenv(l->job[k]);
            const size_t used = strlen(out->job);
            if (part) snprintf(out->job + used, sizeof out->job - used, "%s%.60s", used ? "." : "", part);
        }
        /* whoever started this rank has started the others here */
        if (!*out->job) snprintf(out->job, sizeof out->job, "%ld", (long)getppid());
        return HA_OK;
    }
    return ha_why(why, HA_WAIVED, "this is no rank of a job: start it by mpirun or srun");
}
