#include "suites/variants/accuracy.h"

#include <math.h>

void ha_accuracy_start(struct ha_accuracy *a)
{
    *a = (struct ha_accuracy){ .mass_min = (double)INFINITY, .everything = true };
}

void ha_accuracy_add(struct ha_accuracy *a, const struct ha_judged *head, size_t count)
{
    double largest_diff = 0, largest_norm = 0;

    for (size_t h = 0; h < count; h++) {
        const struct ha_judged *j = &head[h];
        /* an error that is not a number is the largest there is */
        a->err_over_bound = j->ratio <= a->err_over_bound ? a->err_over_bound
                            : isnan(j->ratio)             ? (double)INFINITY
                                                          : j->ratio;
        a->keys_sum += (double)j->keys;
        a->visible_sum += (double)j->visible;
        a->everything = a->everything && j->keys == j->visible;
        a->queries++;
        if (!isnan(j->mass)) {
            a->mass_min = j->mass < a->mass_min ? j->mass : a->mass_min;
            a->mass_sum += j->mass;
            a->mass_count++;
        }
        if (!isnan(j->cert_slack)) {
            a->cert_slack = j->cert_slack > a->cert_slack ? j->cert_slack : a->cert_slack;
            a->slack_count++;
        }
        if (!isnan(j->recall)) {
            a->recall_sum += j->recall;
            a->recall_count++;
        }
        if (!isnan(j->norm2)) {
            a->diff2 += j->diff2;
            a->norm2 += j->norm2;
            a->rel_count++;
            largest_diff = fmax(largest_diff, sqrt(j->diff2));
            largest_norm = fmax(largest_norm, sqrt(j->norm2));
        }
    }
    if (largest_norm > 0) a->rel_l2_head_max = fmax(a->rel_l2_head_max, largest_diff / largest_norm);
}

void ha_accuracy_join(struct ha_accuracy *a, const struct ha_accuracy *b)
{
    a->err_over_bound = fmax(a->err_over_bound, b->err_over_bound);
    a->diff2 += b->diff2;
    a->norm2 += b->norm2;
    a->rel_l2_head_max = fmax(a->rel_l2_head_max, b->rel_l2_head_max);
    a->mass_min = fmin(a->mass_min, b->mass_min);
    a->mass_sum += b->mass_sum;
    a->cert_slack = fmax(a->cert_slack, b->cert_slack);
    a->recall_sum += b->recall_sum;
    a->keys_sum += b->keys_sum;
    a->visible_sum += b->visible_sum;
    a->queries += b->queries;
    a->mass_count += b->mass_count;
    a->slack_count += b->slack_count;
    a->recall_count += b->recall_count;
    a->rel_count += b->rel_count;
    a->everything = a->everything && b->everything;
}

double ha_accuracy_rel_l2(const struct ha_accuracy *a)
{
    return a->rel_count && a->norm2 > 0 ? sqrt(a->diff2 / a->norm2) : (double)NAN;
}
