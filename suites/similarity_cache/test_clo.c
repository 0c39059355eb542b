/* What misses comes over the link to the byte, by whatever way; the hardest heads of a fit are persistent; and lists
 * that cannot be are refused. What is used `habench check` judges. */

#include "harness/base/fit.h"
#include "suites/variants/test_shim.h"

#include <unistd.h>

struct counted {
    double hits, misses, left_out, persistent, bytes;
};
static void add(void *arg, const char *name, size_t layer, double value)
{
    struct counted *c = arg;
    if (!strcmp(name, "hits")) c->hits += value;
    if (!strcmp(name, "misses")) c->misses += value;
    if (!strcmp(name, "left_out")) c->left_out += value;
    if (!strcmp(name, "persistent")) c->persistent += value;
    if (!strcmp(name, "moved_bytes")) c->bytes += value;
}
static struct counted count_of(const struct ha_pass *p)
{
    struct counted c = { 0 };
    p->variant->count(p->instance, add, &c);
    return c;
}

static double note_of(const struct ha_selection *s, const char *name)
{
    for (size_t i = 0; i < s->notes; i++)
        if (!strcmp(s->note[i].name, name)) return s->note[i].value;
    return (double)NAN;
}

#define SHAPE "heads=4/2,head_dim=24,steps=10,threads=1,threshold=fixed,ctx="
#define WALK  "clo:dataset=walk,layers=4," SHAPE

/* ---- what comes over the link ------------------------------------------------------------------------------------ */

/* of what has missed in the step: of every KV head its buffer, or all that can be in it */
static double wanted_bytes(const struct ha_pass *p, size_t step, size_t sink, size_t recent, double budget, size_t unit,
                           size_t *misses)
{
    const struct ha_shape *s = &session.workload->shape;
    double bytes = 0;
    for (size_t i = 0; i < s->layers * s->batch * s->kv_heads; i++) {
        const size_t layer = i / s->kv_heads / s->batch, b = i / s->kv_heads % s->batch,
                     head = i % s->kv_heads * (s->q_heads / s->kv_heads), tokens = s->ctx[b] + step * s->q_len,
                     ever = s->ctx[b] + s->steps * s->q_len;
        struct ha_selection chosen;
        p->variant->selection(p->instance, layer, b, head, &chosen);
        assert_true(note_of(&chosen, "persistent") == (layer == 0));
        if (layer == 0 || note_of(&chosen, "hit") > 0) continue;
        const size_t keys = (size_t)ceil(budget * (double)s->ctx[b] - 1e-9), kept = sink + recent,
                     now = tokens > kept ? tokens - kept : 0, most = ever > kept ? ever - kept : 0;
        size_t units = (keys + unit - 1) / unit;
        if (units > most / unit) units = most / unit;
        if (units > now / unit) units = now / unit;
        bytes += 2 * (double)(units * unit * s->head_dim * ha_dtype_bytes(s->dtype));
        ++*misses;
    }
    return bytes;
}

TEST(bytes_of_what_misses)
{
    static const char *const transfers[] = { "stores", "stores,stores=1", "kernel", "gather", "pieces" };
    static const struct {
        const char *id;
        double budget;
        size_t unit;
    } cases[] = { { WALK "300+145,sink=5,recent=12,eta=0.95,budget=0.2", 0.2, 1 },
                  { WALK "300+145,sink=5,recent=12,eta=0.88,budget=0.2,q_len=3,dtype=f32,sync=cpu", 0.2, 1 },
                  { WALK "300+145,sink=5,recent=12,eta=0.95,budget=0.2,retrieve=quest,dtype=bf16", 0.2, 16 },
                  { WALK "300+145,sink=5,recent=12,eta=0.95,budget=0.2,retrieve=exact,prefetch=0", 0.2, 1 },
                  { WALK "40+19,sink=5,recent=12,eta=1,budget=1", 1, 1 },
                  { WALK "14+3,sink=5,recent=12,eta=0.95,budget=1", 1, 1 } };
    for (size_t i = 0; i < COUNT(cases) * COUNT(transfers); i++) {
        const size_t c = i / COUNT(transfers), t = i % COUNT(transfers);
        char id[256];
        struct ha_pass p;
        size_t misses = 0;
        double all = 0;
        snprintf(id, sizeof id, "%s,transfer=%s", cases[c].id, transfers[t]);
        open_session(id);
        const struct ha_shape *s = &session.workload->shape;
        begin_pass(&p, true);
        for (size_t step = 0; step < s->steps; step++) {
            assert_ok(ha_pass_step(&p, step, &reason));
            const double want = wanted_bytes(&p, step, 5, 12, cases[c].budget, cases[c].unit, &misses),
                         copied = (double)p.moved.h2d_bytes, read = (double)p.moved.zero_copy_bytes;
            const bool kernel = !strcmp(transfers[t], "kernel");
            if (copied != (kernel ? 0 : want) || read != (kernel ? want : 0))
                fail_msg("%s, step %zu: %g bytes, and %g by a kernel, of %g", id, step, copied, read, want);
            all += want;
        }
        const struct counted sum = count_of(&p);
        const double look_ups = (double)((s->layers - 1) * s->batch * s->kv_heads * s->steps);
        assert_true(sum.bytes == all && sum.misses == (double)misses && sum.hits + sum.misses == look_ups);
        assert_true(sum.persistent == (double)s->kv_heads);
        if (cases[c].budget < 1 && !(sum.hits > 20 && sum.misses > 20))
            fail_msg("%s: %g hits, %g misses", id, sum.hits, sum.misses);
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        close_session();
    }
}

/* ---- what a fit says -------------------------------------------------------------------------------------------- */

static char fit_path[200];
static void write_fit(const float *similarity)
{
    struct ha_fit_writer writer = { .count = 0 };
    const struct ha_fit_about about = { .value = { [HA_FIT_VARIANT] = "clo",
                                                   [HA_FIT_PARAMS] = "sink=4,recent=64",
                                                   [HA_FIT_MODEL] = "walk",
                                                   [HA_FIT_LAYERS] = "4",
                                                   [HA_FIT_Q_HEADS] = "4",
                                                   [HA_FIT_KV_HEADS] = "2",
                                                   [HA_FIT_HEAD_DIM] = "24",
                                                   [HA_FIT_MODEL_DIM] = "256",
                                                   [HA_FIT_DATASET] = "walk",
                                                   [HA_FIT_SEED] = "7",
                                                   [HA_FIT_CASE] = "clo",
                                                   [HA_FIT_HABENCH] = "test" } };
    assert_ok(ha_fit_put(&writer, &(struct ha_tensor){ "similarity", HA_T_F32, 2, { 4, 2 }, similarity, 0 }, &reason));
    const int fd = mkstemps(test_template(fit_path, sizeof fit_path, ".safetensors"), 12);
    assert_true(fd >= 0 && close(fd) == 0);
    assert_ok(ha_fit_write(&writer, fit_path, &about, &reason));
    ha_fit_writer_free(&writer);
}

static size_t missed; /* KV heads, whose labels were looked up */
static enum ha_status count_missed(struct ha_stream *stream, const struct ha_device_similarity *args)
{
    HA_TRY(real->similarity(stream, args));
    HA_TRY(real->stream_sync(stream));
    for (size_t i = 0; i < args->batch * args->kv_heads; i++)
        missed += args->seqs[i / args->kv_heads].missed[i % args->kv_heads];
    return HA_OK;
}

/* The hardest heads are, while there is room: of seven whose D is positive so many as the budget takes. */
TEST(the_hardest_heads_are_persistent)
{
    static const float similarity[8] = { 1, 1, 0.2f, 0.1f, 0.4f, 0.99f, 0.3f, 0.5f };
    static const bool always[8] = { true, true, true, true, true, false, true, true };
    static const size_t order[] = { 3, 2, 6, 4, 7 };
    char id[400];
    write_fit(similarity);
    const double each = 2 * 24 * 2 * 160; /* of a head: K and V of 160 tokens, f16 */
    /* just enough for so many more, or nearly for another */
    for (size_t i = 0; i < 2 * COUNT(order) + 3; i++) {
        struct ha_pass p;
        const size_t more = i / 2;
        const bool any = more > COUNT(order);
        snprintf(id, sizeof id, WALK "150,fit=%s,device_budget_MB=%.6f", fit_path,
                 any ? 0 : ((double)(2 + more) + (i % 2 ? 0.98 : 0.01)) * each / 1e6);
        open_shim(id);
        shim.similarity = count_missed;
        missed = 0;
        begin_pass(&p, true);
        assert_ok(ha_pass_step(&p, 0, &reason));
        for (size_t h = 0; h < 8; h++) {
            struct ha_selection x;
            bool is = h < 2 || (any && always[h]);
            for (size_t j = 0; j < more && !any; j++) is |= order[j] == h;
            p.variant->selection(p.instance, h / 2, 0, h % 2 * 2, &x);
            if (note_of(&x, "persistent") != is) fail_msg("%s: head %zu of layer %zu", id, h % 2, h / 2);
        }
        assert_true(count_of(&p).persistent == (any ? 7 : 2 + (double)more));
        assert_int_equal(missed, any ? 1 : 6 - more); /* in the first step all that may */
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        close_session();
    }
    unlink(fit_path);
}

/* ---- lists that are none ----------------------------------------------------------------------------------------- */

/* of offloaded heads, by `only`, or of persistent ones */
static bool offloaded;
static enum ha_status wrong_topk(struct ha_stream *stream, const struct ha_device_topk *args)
{
    HA_TRY(real->topk(stream, args));
    if (offloaded != (args->seqs[0].only != NULL)) return HA_OK;
    HA_TRY(real->stream_sync(stream));
    args->seqs[0].index[1] = 4000;
    return HA_OK;
}
static enum ha_status long_topk(struct ha_stream *stream, const struct ha_device_topk *args)
{
    HA_TRY(real->topk(stream, args));
    if (offloaded != (args->seqs[0].only != NULL)) return HA_OK;
    HA_TRY(real->stream_sync(stream));
    args->seqs[0].keys[0] = 4000;
    return HA_OK;
}

/* Said in a step or by the drain, and nobody is left waiting. */
static void assert_refused(const char *text, bool checks)
{
    struct ha_pass p;
    begin_pass(&p, checks);
    enum ha_status status = HA_OK;
    for (size_t step = 0; step < opened.c.shape.steps && status == HA_OK; step++)
        status = ha_pass_step(&p, step, &reason);
    status = ha_pass_end(&p, status, &reason);
    if (status != HA_ERROR || !strstr(reason.text, text)) fail_msg("%d: %s", (int)status, reason.text);
    close_session();
}

TEST(lists_that_are_none)
{
    static const char *const ways[] = { "stores", "kernel", "gather", "pieces" }, *const syncs[] = { "device", "cpu" };
    for (size_t i = 0; i < COUNT(ways) * COUNT(syncs); i++) {
        char id[256];
        snprintf(id, sizeof id, WALK "100,budget=0.2,eta=1,transfer=%s,sync=%s", ways[i / 2], syncs[i % 2]);
        offloaded = true;
        open_shim(id);
        shim.topk = wrong_topk;
        assert_refused("keys that missed: entry 1 of a list is 4000, of 106", false);
        open_shim(id);
        shim.topk = long_topk;
        assert_refused("keys that missed: a list of 4000, of which there are at most 20", false);
    }
    offloaded = false;
    open_shim(WALK "100,budget=0.2");
    shim.topk = long_topk;
    assert_refused("keys that the device chose: a list of 4000, of which there are at most 20", true);
}
