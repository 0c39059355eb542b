/* A unit's sum moves with its inputs, each by its weight, and by its own roundings: a term of it passes one product and
 * no more additions than there are inputs, in any order. relu moves by s times what its input does, s = 1 where that is
 * above 0 for certain, s = 0 where it is below, else somewhere between. So what an output is off by is, to the end, a
 * sum of what the inputs and each unit's own roundings are off by, each times a number: the sum over all ways from
 * there to the output of the products of weights and s. Forwards, bounds on each unit say what s is, with all weights
 * as they were positive. Backwards, from outputs that are few, that number is followed as `is`, what it is by ways on
 * which s is known, and `may`, the most that others add. Of a unit whose sum is no finite number nothing is off: it is
 * that in every order. */

#include "reference/rows.h"

#include "harness/api/reference.h"

enum { FEW = 8 }; /* it takes as many passes as outputs */

struct units {
    double mid[HA_NET_WIDTH_MAX], off[HA_NET_WIDTH_MAX]; /* of its sum */
    double own[HA_NET_WIDTH_MAX];                        /* of off, by its own roundings */
};

/* w: [inputs][outputs], bias */
static void forward(size_t inputs, size_t outputs, const float *w, const struct units *from, struct units *to)
{
    const double roundings = ha_ref_gamma((double)inputs + 1);
    double size[HA_NET_WIDTH_MAX];
    for (size_t j = 0; j < outputs; j++) {
        to->mid[j] = (double)w[inputs * outputs + j];
        to->off[j] = 0;
        size[j] = fabs(to->mid[j]);
    }
    for (size_t i = 0; i < inputs; i++)
        for (size_t j = 0; j < outputs; j++) {
            const double by = (double)w[i * outputs + j];
            to->mid[j] += by * from->mid[i];
            to->off[j] += fabs(by) * from->off[i];
            size[j] += fabs(by * from->mid[i]);
        }
    for (size_t j = 0; j < outputs; j++) {
        const bool finite = isfinite(to->mid[j]);
        to->own[j] = finite ? 1.001 * roundings * (size[j] + to->off[j]) + HA_REF_ETA * (double)(inputs + 1) : 0;
        to->off[j] = finite ? 1.001 * to->off[j] + to->own[j] : 0;
    }
}

static bool above(const struct units *x, size_t i) { return x->mid[i] - x->off[i] > 0; }
static bool below(const struct units *x, size_t i) { return x->mid[i] + x->off[i] <= 0; }

static void relu(size_t n, const struct units *sum, struct units *out)
{
    for (size_t i = 0; i < n; i++) {
        out->mid[i] = sum->mid[i] < 0 ? 0 : sum->mid[i];
        out->off[i] = below(sum, i) ? 0 : sum->off[i];
    }
}

/* What output `at` is off by. units: [layers] */
static double off_of(const struct ha_net *n, const struct units *units, const double *x_off, size_t at)
{
    double is[HA_NET_WIDTH_MAX] = { 0 }, may[HA_NET_WIDTH_MAX] = { 0 }, off = 0;
    const float *w = n->w + ha_net_weights(n);
    is[at] = 1;
    for (size_t l = n->layers; l-- > 0;) {
        const size_t inputs = n->width[l], outputs = n->width[l + 1];
        double by[HA_NET_WIDTH_MAX], most[HA_NET_WIDTH_MAX];
        w -= (inputs + 1) * outputs;
        for (size_t j = 0; j < outputs; j++) off += (fabs(is[j]) + may[j]) * units[l].own[j];
        for (size_t i = 0; i < inputs; i++) {
            double sum = 0, size = 0;
#pragma omp simd reduction(+ : sum, size)
            for (size_t j = 0; j < outputs; j++) {
                sum += (double)w[i * outputs + j] * is[j];
                size += fabs((double)w[i * outputs + j]) * may[j];
            }
            by[i] = sum;
            most[i] = size;
        }
        for (size_t i = 0; i < inputs && l == 0 && x_off; i++) off += (fabs(by[i]) + most[i]) * x_off[i];
        for (size_t i = 0; i < inputs && l > 0; i++) {
            const bool on = above(&units[l - 1], i), gone = below(&units[l - 1], i);
            is[i] = on ? by[i] : 0;
            may[i] = on ? most[i] : gone ? 0 : fabs(by[i]) + most[i];
        }
    }
    return 1.001 * off;
}

void ha_ref_net(const struct ha_net *n, const double *x, const double *x_off, double *y, double *y_off)
{
    struct units units[HA_NET_LAYERS_MAX], in;
    const size_t *width = n->width, last = n->layers - 1, outputs = width[n->layers];
    const float *w = n->w;
    for (size_t i = 0; i < width[0]; i++) {
        in.mid[i] = x[i];
        in.off[i] = x_off ? x_off[i] : 0;
    }
    for (size_t l = 0; l < n->layers; l++) {
        if (l > 0) relu(width[l], &units[l - 1], &in);
        forward(width[l], width[l + 1], w, &in, &units[l]);
        w += (width[l] + 1) * width[l + 1];
    }
    for (size_t j = 0; j < outputs; j++) {
        y[j] = units[last].mid[j];
        y_off[j] = units[last].off[j];
        if (outputs <= FEW && isfinite(y[j])) y_off[j] = fmin(y_off[j], off_of(n, units, x_off, j));
    }
}
