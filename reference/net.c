/* A unit's sum moves with its inputs, each by its weight, and by its own roundings: a term of it passes one product and
 * as many additions as there are terms. relu moves by s times what its input does, s = 1 where that is above 0 for
 * certain, s = 0 where it is below, else somewhere between. So what an output is off by is, to the end, a sum of what
 * the inputs and each unit's own roundings are off by, each times a number: the sum over all ways from there to the
 * output of the products of weights and s. Forwards, bounds on each unit say what s is. Backwards, that number is
 * followed as `is`, what it is by ways on which s is known, and `may`, the most that others add. */

#include "reference/net.h"
#include "reference/rows.h"

struct units {
    double mid[HA_REF_NET_WIDTH_MAX], off[HA_REF_NET_WIDTH_MAX]; /* of its sum */
    double own[HA_REF_NET_WIDTH_MAX];                            /* of off, by its own roundings */
};

/* from: [inputs]: numbers and what they are off by */
static void forward(size_t inputs, size_t outputs, const float *w, const float *bias, const struct units *from,
                    struct units *to)
{
    const double n = (double)inputs;
    double size[HA_REF_NET_WIDTH_MAX];
    for (size_t j = 0; j < outputs; j++) {
        to->mid[j] = (double)bias[j];
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
        to->own[j] = 1.001 * ha_ref_gamma(n + 2) * (size[j] + to->off[j]) + (n + 1) * HA_REF_ETA;
        to->off[j] += to->own[j];
    }
}

static bool above(const struct units *x, size_t i) { return x->mid[i] - x->off[i] > 0; }
static bool below(const struct units *x, size_t i) { return x->mid[i] + x->off[i] <= 0; }

/* what relu makes of sums, with what it is off by at most */
static void relu(size_t n, const struct units *sum, struct units *out)
{
    for (size_t i = 0; i < n; i++) {
        out->mid[i] = sum->mid[i] < 0 ? 0 : sum->mid[i];
        out->off[i] = below(sum, i) ? 0 : sum->off[i];
    }
}

/* What output `at` is off by. units: [layers] sums of each */
static double off_of(const struct ha_ref_net *net, const struct units *units, const double *x_off, size_t at)
{
    double is[HA_REF_NET_WIDTH_MAX] = { 0 }, may[HA_REF_NET_WIDTH_MAX] = { 0 }, off = 0;
    is[at] = 1;
    for (size_t l = net->layers; l-- > 0;) {
        const size_t inputs = net->width[l], outputs = net->width[l + 1];
        double by[HA_REF_NET_WIDTH_MAX], most[HA_REF_NET_WIDTH_MAX];
        for (size_t j = 0; j < outputs; j++) off += (fabs(is[j]) + may[j]) * units[l].own[j];
        for (size_t i = 0; i < inputs; i++) {
            const float *w = net->w[l] + i * outputs;
            double sum = 0, size = 0;
#pragma omp simd reduction(+ : sum, size)
            for (size_t j = 0; j < outputs; j++) {
                sum += (double)w[j] * is[j];
                size += fabs((double)w[j]) * may[j];
            }
            by[i] = sum;
            most[i] = size;
        }
        for (size_t i = 0; i < inputs && l == 0; i++) off += (fabs(by[i]) + most[i]) * x_off[i];
        for (size_t i = 0; i < inputs && l > 0; i++) {
            const bool on = above(&units[l - 1], i), gone = below(&units[l - 1], i);
            is[i] = on ? by[i] : 0;
            may[i] = on ? most[i] : gone ? 0 : fabs(by[i]) + most[i];
        }
    }
    return 1.001 * off;
}

void ha_ref_net(const struct ha_ref_net *net, const struct ha_ref_score *x, struct ha_ref_score *y)
{
    struct units units[HA_REF_NET_LAYERS_MAX], in;
    double x_off[HA_REF_NET_WIDTH_MAX];
    const size_t *width = net->width, last = net->layers - 1;
    for (size_t i = 0; i < width[0]; i++) {
        in.mid[i] = (x[i].low + x[i].high) / 2;
        in.off[i] = x_off[i] = (x[i].high - x[i].low) / 2;
    }
    for (size_t l = 0; l < net->layers; l++) {
        if (l > 0) relu(width[l], &units[l - 1], &in);
        forward(width[l], width[l + 1], net->w[l], net->bias[l], &in, &units[l]);
    }
    for (size_t j = 0; j < width[net->layers]; j++) {
        const double mid = units[last].mid[j], off = off_of(net, units, x_off, j);
        y[j] = (struct ha_ref_score){ mid, mid - off, mid + off };
    }
}
