#ifndef HA_KERNELS_CUDA_TEST_ATTEND_DATA_H
#define HA_KERNELS_CUDA_TEST_ATTEND_DATA_H

/* Problems for the attention kernels, and a run on the emulation without streams. */

#include "kernels/cuda/launch.h"
#include "kernels/test_device.h"

/* Runs the kernels on it, all outputs NaN before; the order of threads is ha_emulated_order's. */
void problem_attend(const struct ha_test_device_problem *run, unsigned splits);
/* Every output against the reference; ends the test at the first that is wrong. */
void problem_judge(const struct ha_test_device_problem *run);
/* all of that */
void problem_check(const struct ha_test_device_ask *p);
/* Blocks of the attention kernel for such a call, nothing being run; no row is read. */
unsigned problem_blocks(const struct ha_cuda_gpu *gpu, const struct ha_device_attend *args);
/* one line of what was worst since the start, by path and type */
void problem_report(void);

#endif
