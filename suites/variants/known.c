#include "suites/variants/known.h"

#include "harness/base/array.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY = 1536 };

struct ha_known_step {
    char variant[48], family[32], workload[KEY];
    double step_ns;
};

static void key_of(const struct ha_row *r, char out[KEY])
{
    snprintf(out, KEY, "%s|%s|%g|%g|%g|%g|%g|%g|%g|%s|%s|%llu|%s|%s|%s|%s", r->device, r->isa, r->layers, r->batch,
             r->q_len, r->q_heads, r->kv_heads, r->head_dim, r->threads, r->kv_dtype, r->dataset,
             (unsigned long long)r->seed, r->ctx_len, r->load, r->model, r->team);
}

void ha_known_add(struct ha_known *k, const struct ha_row *row, const char *variant, const char *family, double step_ns)
{
    if (!ha_array_room(&k->step, &k->capacity, k->count + 1, sizeof *k->step)) return; /* then it is measured again */
    struct ha_known_step *s = &k->step[k->count++];
    snprintf(s->variant, sizeof s->variant, "%s", variant);
    snprintf(s->family, sizeof s->family, "%s", family);
    key_of(row, s->workload);
    s->step_ns = step_ns;
}

double ha_known_step(const struct ha_known *k, const struct ha_row *row, const char *variant, const char *family)
{
    char key[KEY];

    key_of(row, key);
    for (size_t i = k->count; i-- > 0;)
        if (!strcmp(k->step[i].variant, variant) && (!family || !strcmp(k->step[i].family, family))
            && !strcmp(k->step[i].workload, key))
            return k->step[i].step_ns;
    return (double)NAN;
}

double ha_known_slowest_arm(const struct ha_known *k, const struct ha_row *row, const struct ha_usage *u)
{
    const struct {
        const char *variant;
        bool part;
    } arms[] = { { "copy_only", u->copy_ns > 0 }, { "device_only", u->kernel_ns > 0 }, { "cpu_only", u->pool_ns > 0 } };
    double slowest = (double)NAN;

    for (size_t i = 0; i < sizeof arms / sizeof *arms; i++)
        if (arms[i].part)
            slowest = fmax(slowest, ha_known_step(k, row, arms[i].variant, row->family)); /* fmax drops the NaN */
    return slowest;
}

void ha_known_free(struct ha_known *k) { free(k->step); }
