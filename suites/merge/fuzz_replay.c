#define _GNU_SOURCE /* memfd_create */
#include "suites/merge/judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A libFuzzer target: any bytes as a replay file, and as the answer of a command. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int file = -1;
static char path[64];

/* A batch of the shape that the bytes say, so that an answer can fit it. */
static void as_answer(const struct ha_merge_shape *s)
{
    struct ha_merge_trial trial = { .batch = NULL };
    struct ha_why why;
    if (ha_merge_trial_open(&trial, s, NULL, &why) == HA_OK) {
        ha_batch_seal(trial.batch);
        if (ha_replay_read_answer(path, trial.batch, &why) == HA_OK && ha_batch_intact(trial.batch, &why) != HA_OK)
            abort();
    }
    ha_merge_trial_close(&trial);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ha_merge_shape shape;
    struct ha_judgement j;
    struct ha_why why = { "" };
    if (file < 0) {
        file = memfd_create("replay", 0);
        if (file < 0) abort();
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    if (ftruncate(file, 0) != 0 || pwrite(file, data, bytes, 0) != (ssize_t)bytes) abort();
    const enum ha_status status = ha_replay_judge(path, &shape, &j, &why);
    if (status == HA_ERROR && (!why.text[0] || !memchr(why.text, '\0', sizeof why.text))) abort();
    if (status != HA_ERROR) {
        if (j.rows != shape.tokens * shape.heads || (status == HA_FAIL) != (j.status == HA_FAIL)) abort();
        if (status == HA_FAIL && j.row >= j.rows) abort();
    }
    if (status != HA_ERROR) as_answer(&shape);
    else as_answer(&(struct ha_merge_shape){ .states = 2, .tokens = 3, .heads = 2, .dim = 4 });
    return 0;
}
