/* Errors of rows, held against what they may be by chance (chance.c): what all rows of a group come to, and groups. */

#include "harness/api/suite.h"
#include "reference/rows.h"

#include <stdarg.h>
#include <stdio.h>

static double square(double x) { return x * x; }

static bool positive(double x) { return x > 0 && x < HUGE_VAL; }

void ha_chances_add(struct ha_chances *c, double lse_error, double o_error, const struct ha_chance *of)
{
    const bool has_lse = of->lse_size != 0;
    if ((has_lse && !positive(of->lse_size)) || !positive(of->o_size)) return;
    const double lse = fabs(lse_error) - of->lse_bias, o = o_error - of->o_bias;
    c->rows++;
    c->o2 += o > 0 ? square(o / of->o_size) : 0;
    if (!has_lse) return;
    c->lse += lse_error / of->lse_size;
    c->lse_bias += of->lse_bias / of->lse_size;
    c->lse2 += lse > 0 ? square(lse / of->lse_size) : 0;
}

void ha_chances_join(struct ha_chances *c, const struct ha_chances *more)
{
    c->rows += more->rows;
    c->lse += more->lse;
    c->lse_bias += more->lse_bias;
    c->lse2 += more->lse2;
    c->o2 += more->o2;
}

double ha_chances_bias(const struct ha_chances *c) { return c->rows ? c->lse / (double)c->rows : (double)NAN; }

double ha_chances_rms(const struct ha_chances *c)
{
    return c->rows ? sqrt(fmax(c->lse2, c->o2) / (double)c->rows) : (double)NAN;
}

/* Chernoff's bounds on the logarithm of the chance that so much comes of n independent numbers whose tails are no wider
 * than those of a normal number of variance 1: that their squares add up to t; that they do. A vector whose squares'
 * mean is 1 in all is the former, too, however its elements depend on each other. */
static double of_squares(double t, double n) { return t > n ? -(t - n - n * log(t / n)) / 2 : 0; }
static double of_sum(double t, double n) { return t > 0 ? log(2) - t * t / (2 * n) : 0; }

double ha_chances_p(const struct ha_chances *c)
{
    const double n = (double)c->rows, least = fmin(of_squares(c->lse2, n), of_squares(c->o2, n));
    if (!c->rows) return (double)NAN;
    return fmin(1, fmax(3 * exp(fmin(least, of_sum(fabs(c->lse) - c->lse_bias, n))), 0x1p-1000));
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static bool is_worse(const struct ha_suspect *s, const struct ha_chances *c, double p)
{
    return !s->groups || p < s->p || (p == s->p && ha_chances_rms(c) > ha_chances_rms(&s->worst));
}

void ha_suspect_add(struct ha_suspect *s, const struct ha_chances *c, const char *what, ...)
{
    struct ha_suspect one = { .worst = *c, .p = ha_chances_p(c), .groups = 1 };
    va_list list;
    if (!c->rows) return;
    va_start(list, what);
    vsnprintf(one.what, sizeof one.what, what, list);
    va_end(list);
    ha_suspect_join(s, &one);
}

void ha_suspect_join(struct ha_suspect *s, const struct ha_suspect *other)
{
    const size_t groups = s->groups + other->groups;
    if (other->groups && is_worse(s, &other->worst, other->p)) *s = *other;
    s->groups = groups;
}

void ha_suspect_tell(const struct ha_suspect *s, struct ha_result *head, double *bias, double *rms)
{
    const struct ha_chances *c = &s->worst;
    const double n = (double)c->rows;
    char lse[96] = "";
    if (!s->groups) return;
    *bias = ha_chances_bias(c);
    *rms = ha_chances_rms(c);
    head->p = fmin(1, s->p * (double)s->groups);
    if (c->lse2 > 0 || c->lse_bias > 0)
        snprintf(lse, sizeof lse, "of the LSE %.3g times and %+.3g on average, of o ", sqrt(c->lse2 / n), *bias);
    snprintf(head->suspicion, sizeof head->suspicion,
             "%s%serrors are within their bounds, but larger than those of independent roundings: %s%.3g times, over "
             "%zu rows",
             s->what, *s->what ? ": " : "", lse, sqrt(c->o2 / n), c->rows);
}
