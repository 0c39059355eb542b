#ifndef HA_FLEET_TEST_ENVIRONMENT_H
#define HA_FLEET_TEST_ENVIRONMENT_H

/* The environment that a launcher would give, and nothing of that in which the test itself runs. */

#include "harness/base/test.h"

static inline void test_no_launcher(void)
{
    char all[] =
        "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE PMI_RANK "
        "PMI_SIZE PMI_JOBID MPI_LOCALRANKID MPI_LOCALNRANKS PMIX_RANK PMIX_NAMESPACE SLURM_PROCID SLURM_NTASKS "
        "SLURM_STEP_NUM_TASKS SLURM_LOCALID SLURM_JOB_ID SLURM_NODEID SLURM_STEP_TASKS_PER_NODE "
        "SLURM_RESTART_COUNT SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_COUNT SLURM_ARRAY_TASK_MIN "
        "SLURM_ARRAY_TASK_MAX SLURM_ARRAY_TASK_STEP SLURM_ARRAY_JOB_ID SLURMD_NODENAME CUDA_VISIBLE_DEVICES";
    for (char *rest = all, *name; (name = strtok_r(rest, " ", &rest));) unsetenv(name);
}

/* "NAME=value NAME=value" */
static inline void test_launched(const char *variables)
{
    char all[1024];
    test_no_launcher();
    snprintf(all, sizeof all, "%s", variables);
    for (char *rest = all, *name; (name = strtok_r(rest, " ", &rest));) {
        char *value = strchr(name, '=');
        *value = 0;
        setenv(name, value + 1, 1);
    }
}

/* test_given("NAME", "value", ...): values of any characters */
static inline void test_environment(const char *const *pairs)
{
    test_no_launcher();
    for (; *pairs; pairs += 2) setenv(pairs[0], pairs[1], 1);
}
#define test_given(...) test_environment((const char *const[]){ __VA_ARGS__, NULL })

#endif
