#include "harness/fleet/rank.h"

#include "harness/fleet/test_environment.h"

#include <unistd.h>

static struct ha_rank rank;
static struct ha_why why;

/* what `machine` has behind the name of this host */
static const char *tail(void)
{
    char host[HA_RANK_NAME] = "";
    gethostname(host, sizeof host);
    ha_rank_safe(host);
    assert_memory_equal(rank.machine, host, strlen(host));
    return rank.machine + strlen(host);
}

/* ---- launchers --------------------------------------------------------------------------------------------------- */

/* SLURM_ARRAY: of an array whose job is 90, on n1 */
#define SLURM_ARRAY "SLURM_ARRAY_JOB_ID=90 SLURMD_NODENAME=n1 SLURM_ARRAY_TASK_ID="

static const struct {
    const char *launcher, *variables, *job;
    uint64_t rank, ranks, local, restarts;
    const char *machine; /* ".N": behind the host's name */
} launched[] = {
    { "none", "", "", 0, 1, 0, 0, "" },
    { "slurm",
      "SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1 SLURM_JOB_ID=77 "
      "SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_NODEID=1 SLURMD_NODENAME=node2 SLURM_RESTART_COUNT=2",
      "77", 3, 4, 1, 2, "node2.1" },
    /* its last node has one rank */
    { "slurm",
      "SLURM_PROCID=4 SLURM_STEP_NUM_TASKS=5 SLURM_LOCALID=0 SLURM_JOB_ID=77 SLURM_STEP_TASKS_PER_NODE=2(x2),1 "
      "SLURM_NODEID=2 SLURMD_NODENAME=node3",
      "77", 4, 5, 0, 0, "node3" },
    { "slurm",
      "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=3 SLURM_LOCALID=0 SLURM_JOB_ID=77 SLURM_STEP_TASKS_PER_NODE=1,2 "
      "SLURM_NODEID=1 SLURMD_NODENAME=node1",
      "77", 1, 3, 0, 0, "node1.0" },
    /* the script of a job of four, not a step of it */
    { "slurm", "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_JOB_ID=77 SLURMD_NODENAME=n", "77", 0, 1, 0, 0,
      "n" },
    { "slurm-array", SLURM_ARRAY "7 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_JOB_ID=99 SLURM_ARRAY_TASK_COUNT=8", "90", 7,
      8, 0, 0, "n1" },
    { "slurm-array",
      SLURM_ARRAY "3 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=1 SLURM_ARRAY_TASK_COUNT=8 "
                  "SLURM_STEP_TASKS_PER_NODE=2",
      "90", 7, 16, 1, 0, "n1.1" },
    /* 4-11, 0-14:2, and 0-6:2,9, of which a rank is its own, whatever it is of */
    { "slurm-array",
      SLURM_ARRAY "7 SLURM_ARRAY_TASK_COUNT=8 SLURM_ARRAY_TASK_MIN=4 SLURM_ARRAY_TASK_MAX=11 SLURM_ARRAY_TASK_STEP=1",
      "90", 3, 8, 0, 0, "n1" },
    { "slurm-array",
      SLURM_ARRAY "14 SLURM_ARRAY_TASK_COUNT=8 SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_MAX=14 SLURM_ARRAY_TASK_STEP=2",
      "90", 7, 8, 0, 0, "n1" },
    { "slurm-array",
      SLURM_ARRAY "6 SLURM_ARRAY_TASK_COUNT=5 SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_MAX=9 SLURM_ARRAY_TASK_STEP=2",
      "90", 6, 5, 0, 0, "n1" },
    /* what mpirun has begun in a job of Slurm has the variables of its script */
    { "openmpi",
      "SLURM_PROCID=0 SLURM_JOB_ID=5 SLURM_LOCALID=0 OMPI_COMM_WORLD_RANK=6 OMPI_COMM_WORLD_SIZE=8 "
      "OMPI_COMM_WORLD_LOCAL_RANK=2 OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_RANK=6 PMIX_NAMESPACE=x",
      "5", 6, 8, 2, 0, ".2" },
    { "openmpi",
      "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 "
      "PMIX_NAMESPACE=prterun-n1-5@1",
      "prterun-n1-5-1", 1, 2, 0, 0, "" },
    { "mpich", "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", "", 1, 2, 1, 0, ".1" },
    { "pmi", "PMI_RANK=1 PMI_SIZE=2 PMI_JOBID=a/b", "a-b", 1, 2, 0, 0, "" },
    { "pmix", "PMIX_RANK=4 PMIX_NAMESPACE=../x", "_.-x", 4, 0, 0, 0, "" },
};

TEST(each_launcher_says_which_rank_it_is)
{
    for (size_t i = 0; i < COUNT(launched); i++) {
        test_launched(launched[i].variables);
        if (ha_rank_find(&rank, &why) != HA_OK) fail_msg("%zu: %s", i, why.text);
        assert_string_equal(rank.launcher, launched[i].launcher);
        assert_string_equal(rank.job, launched[i].job);
        assert_int_equal(rank.rank, launched[i].rank);
        assert_int_equal(rank.ranks, launched[i].ranks);
        assert_int_equal(rank.local, launched[i].local);
        assert_int_equal(rank.restarts, launched[i].restarts);
        const bool named = *launched[i].machine && *launched[i].machine != '.';
        assert_string_equal(named ? rank.machine : tail(), launched[i].machine);
    }
}

/* ---- what no launcher says --------------------------------------------------------------------------------------- */

TEST(a_number_that_is_none_is_refused_by_its_name)
{
    static const char *const bad[] = { "",    "../x",      "1180591620717411303424", "-1", "+1", " 1", "1 ", "0x1",
                                       "1.0", "2147483648" };
    static const char *const of[] = { "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",      "SLURM_LOCALID",      "SLURM_JOB_ID",
                                      "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_RESTART_COUNT" };
    for (size_t v = 0; v < COUNT(of); v++)
        for (size_t i = 0; i < COUNT(bad); i++) {
            test_given("SLURM_PROCID", "0", "SLURM_STEP_TASKS_PER_NODE", "1", of[v], bad[i]);
            if (ha_rank_find(&rank, &why) != HA_ERROR) fail_msg("%s='%s' is taken", of[v], bad[i]);
            assert_contains(why.text, of[v]);
            assert_contains(why.text, bad[i]);
            assert_null(strchr(why.text, '\n'));
        }
}

TEST(numbers_that_do_not_agree_are_refused)
{
    static const struct {
        const char *variables, *says;
    } each[] = {
        { "SLURM_ARRAY_TASK_ID=x SLURM_ARRAY_TASK_COUNT=2", "SLURM_ARRAY_TASK_ID" },
        { "PMI_RANK=2 PMI_SIZE=2", "PMI_RANK=2: there are 2 ranks, by PMI_SIZE" },
        { "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_RANK=4 OMPI_COMM_WORLD_LOCAL_SIZE=4",
          "OMPI_COMM_WORLD_LOCAL_RANK=4" },
        { "SLURM_ARRAY_TASK_ID=3 SLURM_ARRAY_TASK_COUNT=8 SLURM_ARRAY_TASK_MIN=4 SLURM_ARRAY_TASK_MAX=11",
          "SLURM_ARRAY_TASK_ID=3: tasks are 4 to 11" },
    };
    for (size_t i = 0; i < COUNT(each); i++) {
        test_launched(each[i].variables);
        if (ha_rank_find(&rank, &why) != HA_ERROR) fail_msg("'%s' is taken", each[i].variables);
        assert_contains(why.text, each[i].says);
    }
    static const char *const lists[] = { "2(x", "2(x2", "(x2)", "2x2", "2,", ",2", "0", "2(x2)1", "1(x2),a" };
    for (size_t i = 0; i < COUNT(lists); i++) {
        test_given("SLURM_PROCID", "0", "SLURM_STEP_TASKS_PER_NODE", lists[i], "SLURM_NODEID", "9");
        if (ha_rank_find(&rank, &why) != HA_ERROR) fail_msg("'%s' is taken", lists[i]);
    }
}

TEST(a_name_cannot_leave_its_folder)
{
    static const char *const names[][2] = { { "../../etc/x", "_.-..-etc-x" },
                                            { ".part", "_part" },
                                            { "a b\n;$(c)", "a-b----c-" },
                                            { "n\xc3\xa4he", "n--he" },
                                            { "node-0_7.a", "node-0_7.a" } };
    char text[200];
    for (size_t i = 0; i < COUNT(names); i++) {
        snprintf(text, sizeof text, "%s", names[i][0]);
        ha_rank_safe(text);
        assert_string_equal(text, names[i][1]);
        assert_int_equal(strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-_."), strlen(text));
        assert_true(*text != '.');
        test_given("SLURM_PROCID", "0", "SLURMD_NODENAME", names[i][0]);
        assert_int_equal(ha_rank_find(&rank, &why), HA_OK);
        assert_string_equal(rank.machine, text);
    }
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 0;
    test_given("SLURM_PROCID", "0", "SLURMD_NODENAME", text);
    assert_int_equal(ha_rank_find(&rank, &why), HA_ERROR);
    test_given("SLURM_PROCID", "0", "SLURMD_NODENAME", "");
    assert_int_equal(ha_rank_find(&rank, &why), HA_ERROR);
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static int take(uint64_t local, uint64_t ranks, const char *asked, const char *visible)
{
    const struct ha_rank r = { .local = local, .local_ranks = ranks };
    test_given("CUDA_VISIBLE_DEVICES", visible);
    return ha_rank_take_device(&r, asked);
}

TEST(ranks_of_a_machine_share_its_devices_out)
{
    assert_int_equal(take(1, 2, "cuda", "3,5"), 1);
    assert_string_equal(getenv("CUDA_VISIBLE_DEVICES"), "5");
    assert_int_equal(take(3, 4, "lib/ha_cuda.so", "0,GPU-5a,7"), 0);
    assert_string_equal(getenv("CUDA_VISIBLE_DEVICES"), "0");
    assert_int_equal(take(1, 4, "./ha_cuda.so", "0,GPU-5a,7"), 1);
    assert_string_equal(getenv("CUDA_VISIBLE_DEVICES"), "GPU-5a");
    static const struct {
        uint64_t local, ranks;
        const char *asked, *visible;
    } none[] = { { 0, 1, "cuda", "3,5" },         { 0, 0, "cuda", "3,5" },
                 { 1, 2, "cuda", "3" },           { 1, 2, "cuda", "" },
                 { 1, 2, "host", "3,5" },         { 1, 2, NULL, "3,5" },
                 { 1, 2, "./ha_mine.so", "3,5" }, { 1, 2, "cuda2", "3,5" } };
    for (size_t i = 0; i < COUNT(none); i++) {
        assert_int_equal(take(none[i].local, none[i].ranks, none[i].asked, none[i].visible), -1);
        assert_string_equal(getenv("CUDA_VISIBLE_DEVICES"), none[i].visible);
    }
}
