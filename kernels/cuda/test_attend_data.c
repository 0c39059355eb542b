#include "kernels/cuda/test_attend_data.h"

#include "kernels/cuda/emulation/simt.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool only_counted;
static unsigned counted;

/* A launch runs at once. */
cudaError_t ha_emulated_launch(const char *name, void (*run)(const void *args), const void *args, size_t bytes,
                               dim3 grid, dim3 block, cudaStream_t stream)
{
    (void)bytes, (void)stream;
    if (only_counted) {
        if (strstr(name, "mma") || strstr(name, "fma")) counted = grid.x;
        return cudaSuccess;
    }
    ha_emulated_run(name, run, args, (unsigned[]){ grid.x, grid.y, grid.z }, (unsigned[]){ block.x, block.y, block.z });
    return cudaSuccess;
}

/* what the device's functions are measured to be, and more */
static const double EPS = 0x1p-22;

enum { PATH_FMA, PATH_MMA, PATHS };
static double worst[PATHS][HA_DTYPE_COUNT], worst_weight;
static size_t judged, judged_weights;

/* ---- the kernels */

void problem_attend(const struct ha_test_device_problem *run, unsigned splits)
{
    const unsigned multiprocessors = run->ask.multiprocessors;
    const struct ha_cuda_gpu gpu = { .multiprocessors = multiprocessors ? multiprocessors : 132, .compute_major = 9 };
    ha_test_device_poison(run);
    const size_t bytes = ha_cuda_attend_workspace(&gpu, &run->args);
    void *workspace = aligned_alloc(256, bytes + (bytes ? 0 : 256));
    assert_non_null(workspace);
    memset(workspace, 0xFF, bytes);
    assert_int_equal(ha_cuda_attend(&gpu, NULL, &run->args, workspace, splits), cudaSuccess);
    free(workspace);
}

unsigned problem_blocks(const struct ha_cuda_gpu *gpu, const struct ha_device_attend *args)
{
    char workspace[1];
    only_counted = true;
    assert_int_equal(ha_cuda_attend(gpu, NULL, args, workspace, 0), cudaSuccess);
    only_counted = false;
    return counted;
}

/* ---- the answers */

static int path_of(const struct ha_test_device_ask *p)
{
    const bool aligned = p->layout == HA_TEST_HEADS || p->layout == HA_TEST_TOKENS;
    return p->dtype != HA_F32 && aligned && p->q_len * p->group > 1 ? PATH_MMA : PATH_FMA;
}

static void judge_error(const struct ha_test_device_ask *p, const char *what, size_t b, size_t head,
                        const struct ha_answer_error *e, double *most)
{
    *most = fmax(*most, e->ratio);
    if (e->ratio <= 1) return;
    printf("%s %s d=%zu kv_heads=%zu group=%zu q_len=%zu batch=%zu keys=%zu runs=%zu block=%zu indexed=%u causal=%d "
           "layout=%d family=%d "
           "splits=%u seed=%lu: %s of sequence %zu, KV head %zu, row %zu, %zu: ratio %g\n",
           path_of(p) == PATH_MMA ? "mma" : "fma", ha_dtype_name(p->dtype), p->dim, p->kv_heads, p->group, p->q_len,
           p->batch, p->keys[b], p->runs, p->block, p->indexed, p->causal, (int)p->layout, (int)p->family, p->splits,
           (unsigned long)p->seed, what, b, head, e->row, e->at, e->ratio);
    fail();
}

void problem_judge(const struct ha_test_device_problem *run)
{
    const struct ha_test_device_ask *p = &run->ask;
    struct ha_profile profile = ha_cuda_attend_profile(p->dtype);
    profile.exp_eps = profile.log_eps = EPS;
    for (size_t b = 0; b < p->batch; b++)
        for (size_t h = 0; h < p->kv_heads; h++) {
            const struct ha_test_device_error e = ha_test_device_judge(run, &profile, p->runs, b, h);
            judge_error(p, "output", b, h, &e.output, &worst[path_of(p)][p->dtype]);
            judge_error(p, "weight", b, h, &e.weight, &worst_weight);
            judged += e.outputs;
            judged_weights += e.weights;
        }
}

void problem_check(const struct ha_test_device_ask *p)
{
    struct ha_test_device_problem run;
    ha_test_device_make(&run, p, &ha_test_heap);
    problem_attend(&run, p->splits);
    problem_judge(&run);
    ha_test_device_free(&run);
}

void problem_report(void)
{
    static const char *const name[PATHS] = { "fma", "mma" };
    for (int path = 0; path < PATHS; path++)
        printf("%s: worst error / bound: f32 %.3f, f16 %.3f, bf16 %.3f\n", name[path], worst[path][HA_F32],
               worst[path][HA_F16], worst[path][HA_BF16]);
    printf("%zu outputs; %zu weights, worst / bound: %.3f\n", judged, judged_weights, worst_weight);
}
