/* clo is what it is called at the ends of its options: topk, full attention, resident. What misses comes over the link
 * to the byte, by whatever way, and which way it is, and who waits, changes no bit; the same query is a hit; a pass can
 * be begun again; and it says what a device, a data set or a fit lacks. */

#include "harness/base/fit.h"
#include "suites/variants/check.h"
#include "suites/variants/test_session.h"

#include <unistd.h>

static const struct ha_device_api *real;
static struct ha_device_api shim;

static void open_shim(const char *id)
{
    open_session(id);
    real = session.variant_api;
    shim = *real;
    session.variant_api = &shim;
}

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
                         came = (double)p.moved.h2d_bytes, read = (double)p.moved.zero_copy_bytes;
            const bool kernel = !strcmp(transfers[t], "kernel");
            if (came != (kernel ? 0 : want) || read != (kernel ? want : 0))
                fail_msg("%s, step %zu: %g bytes, and %g by a kernel, of %g", id, step, came, read, want);
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

/* ---- bits -------------------------------------------------------------------------------------------------------- */

static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001b3; /* FNV-1a */
    return h;
}

/* of all outputs, keys and notes */
static uint64_t bits_of(const char *id)
{
    struct ha_pass p;
    uint64_t h = 0xcbf29ce484222325;
    open_session(id);
    const struct ha_shape *s = &session.workload->shape;
    begin_pass(&p, true);
    for (size_t step = 0; step < s->steps; step++) {
        assert_ok(ha_pass_step(&p, step, &reason));
        h = hash(h, session.host_out, s->layers * session.io.out_bytes);
        for (size_t i = 0; i < s->layers * s->batch * s->q_heads; i++) {
            struct ha_selection x;
            p.variant->selection(p.instance, i / s->q_heads / s->batch, i / s->q_heads % s->batch, i % s->q_heads, &x);
            for (size_t j = 0; j < x.parts; j++)
                h = hash(h, x.part[j].token, x.part[j].count * sizeof *x.part[j].token);
            for (size_t j = 0; j < x.notes; j++) h = hash(h, &x.note[j].value, sizeof x.note[j].value);
        }
    }
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    close_session();
    return h;
}

TEST(who_moves_and_who_waits_changes_no_bit)
{
    static const char *const ways[] = { "stores,stores=1", "stores,stores=8", "kernel", "gather", "pieces" };
    static const char *const syncs[] = { "device", "cpu" };
    static const char *const of[] = {
        "300+145,sink=5,recent=12,eta=0.95,budget=0.2", "1500,eta=0.95,budget=0.4",
        "300+145,sink=0,recent=0,eta=0.9,budget=0.2,q_len=3,retrieve=quest,group=min",
        "300+145,sink=5,recent=3,eta=0.95,budget=0.3,retrieve=exact,prefetch=0,dtype=bf16"
    };
    for (size_t i = 0; i < COUNT(of); i++) {
        uint64_t first = 0;
        for (size_t j = 0; j < COUNT(ways) * COUNT(syncs); j++) {
            char id[256];
            snprintf(id, sizeof id, WALK "%s,transfer=%s,sync=%s", of[i], ways[j % COUNT(ways)],
                     syncs[j / COUNT(ways)]);
            const uint64_t bits = bits_of(id);
            if (j == 0) first = bits;
            if (bits != first) fail_msg("%s has other bits", id);
        }
    }
}

/* ---- keys, outputs and what they are of -------------------------------------------------------------------------- */

/* Of each step, layer, sequence and query head: which tokens are used, and the output. */
struct seen {
    size_t heads, tokens, dim;
    unsigned char *uses; /* [heads][tokens] */
    float *o;            /* [heads][q_len][head_dim] */
};
static struct seen see(const char *id)
{
    struct ha_pass p;
    struct seen out = { 0 };
    open_session(id);
    const struct ha_shape *s = &session.workload->shape;
    const size_t rows = s->batch * s->q_heads, each = s->layers * rows;
    for (size_t b = 0; b < s->batch; b++) {
        const size_t ever = s->ctx[b] + s->steps * s->q_len;
        out.tokens = ever > out.tokens ? ever : out.tokens;
    }
    out.heads = s->steps * each;
    out.dim = s->q_len * s->head_dim;
    out.uses = calloc(out.heads, out.tokens);
    out.o = calloc(out.heads * out.dim, sizeof *out.o);
    begin_pass(&p, true);
    for (size_t step = 0; step < s->steps; step++) {
        assert_ok(ha_pass_step(&p, step, &reason));
        for (size_t i = 0; i < each; i++) {
            const size_t layer = i / rows, b = i / s->q_heads % s->batch, head = i % s->q_heads, at = step * each + i;
            const float *o = (const float *)(const void *)(session.host_out + layer * session.io.out_bytes
                                                           + session.io.o);
            struct ha_selection x;
            p.variant->selection(p.instance, layer, b, head, &x);
            for (size_t j = 0; j < x.parts; j++)
                for (size_t t = 0; t < x.part[j].count; t++)
                    out.uses[at * out.tokens + (x.part[j].token ? x.part[j].token[t] : t)]++;
            for (size_t t = 0; t < s->q_len; t++)
                memcpy(out.o + at * out.dim + t * s->head_dim,
                       o + ((b * s->q_len + t) * s->q_heads + head) * s->head_dim, s->head_dim * sizeof *o);
        }
    }
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    close_session();
    return out;
}
static void unsee(struct seen *s)
{
    free(s->uses);
    free(s->o);
}

/* The same keys, and outputs that are apart by no more than roundings. */
static void assert_same(const char *id, const char *other)
{
    struct seen a = see(id), b = see(other);
    assert_true(a.heads == b.heads && a.tokens == b.tokens && a.dim == b.dim);
    for (size_t i = 0; i < a.heads * a.tokens; i++)
        if (a.uses[i] != b.uses[i])
            fail_msg("%s: token %zu of head %zu is used %d times, and %d by %s", id, i % a.tokens, i / a.tokens,
                     a.uses[i], b.uses[i], other);
    for (size_t i = 0; i < a.heads * a.dim; i++)
        if (!(fabsf(a.o[i] - b.o[i]) <= 1e-4f))
            fail_msg("%s: output %zu is %g, and %g by %s", id, i, (double)a.o[i], (double)b.o[i], other);
    unsee(&a);
    unsee(&b);
}

/* No query is as similar as itself; nothing is kept besides what is chosen. */
TEST(what_always_misses_is_topk)
{
#define OF(variant) variant ":dataset=walk,heads=6/2,head_dim=24,layers=3,steps=6,threads=1,seed=3,ctx="
#define LIKE_TOPK   ",threshold=fixed,eta=1,retrieve=exact,prefetch=0,sink=0,recent=0,budget=0.1"
    assert_same(OF("clo") "200" LIKE_TOPK, OF("topk") "200,k=20,group=max");
    assert_same(OF("clo") "200,q_len=3" LIKE_TOPK, OF("topk") "200,q_len=3,k=20,group=max");
    assert_same(OF("clo") "200+200,dtype=f32,transfer=gather" LIKE_TOPK, OF("topk") "200+200,dtype=f32,k=20,group=max");
    /* as many as there are: fewer than are asked for */
    assert_same(OF("clo") "3" LIKE_TOPK, OF("topk") "3,k=1,group=max");
}

/* Every key is in a buffer, or kept: of a step, whatever the queries. */
TEST(all_of_the_budget_is_full_attention)
{
    static const char *const rest[] = { ",budget=1,sink=4,recent=16",
                                        ",budget=1,sink=4,recent=16,prefetch=0,retrieve=exact",
                                        ",budget=1,sink=0,recent=10,q_len=1,group=min,dtype=f32",
                                        ",persistent=all,budget=0.05,layers=1", ",persistent=all,layers=1,q_len=3" };
    for (size_t i = 0; i < COUNT(rest); i++) {
        char id[256];
        snprintf(id, sizeof id,
                 "clo:dataset=walk,heads=4/2,head_dim=24,threads=1,threshold=fixed,eta=1,ctx=150+33,"
                 "steps=8%s",
                 rest[i]);
        open_session(id);
        struct ha_check check = { .session = &session, .id = id };
        assert_ok(ha_check_run(&check, &reason));
        if (!check.total.everything || !(check.total.mass_min > 1 - 1e-6) || !(ha_accuracy_rel_l2(&check.total) < 1e-3))
            fail_msg("%s: %d, mass %.9g, error %g", id, check.total.everything, check.total.mass_min,
                     ha_accuracy_rel_l2(&check.total));
        ha_check_free(&check);
        close_session();
    }
}

/* One layer is persistent as a whole; of several the fit makes all heads so. */
static char fit_path[200];
static void write_fit(const char *params, size_t layers, const float *similarity, const float *importance)
{
    struct ha_fit_writer writer = { .count = 0 };
    char number[20];
    struct ha_fit_about about = { .value = { [HA_FIT_VARIANT] = "clo",
                                             [HA_FIT_PARAMS] = params,
                                             [HA_FIT_MODEL] = "walk",
                                             [HA_FIT_LAYERS] = number,
                                             [HA_FIT_Q_HEADS] = "4",
                                             [HA_FIT_KV_HEADS] = "2",
                                             [HA_FIT_HEAD_DIM] = "24",
                                             [HA_FIT_MODEL_DIM] = "256",
                                             [HA_FIT_DATASET] = "walk",
                                             [HA_FIT_SEED] = "7",
                                             [HA_FIT_CASE] = "clo",
                                             [HA_FIT_HABENCH] = "test" } };
    const struct {
        const char *name;
        const float *data;
    } of[] = { { "similarity", similarity }, { "importance_kv", importance } };
    snprintf(number, sizeof number, "%zu", layers);
    for (size_t i = 0; i < COUNT(of); i++)
        if (of[i].data)
            assert_ok(ha_fit_put(&writer,
                                 &(struct ha_tensor){ .name = of[i].name,
                                                      .type = HA_T_F32,
                                                      .dims = 2,
                                                      .dim = { layers, 2 },
                                                      .data = (void *)(uintptr_t)of[i].data },
                                 &reason));
    const int fd = mkstemps(test_template(fit_path, sizeof fit_path, ".safetensors"), 12);
    assert_true(fd >= 0 && close(fd) == 0);
    assert_ok(ha_fit_write(&writer, fit_path, &about, &reason));
    ha_fit_writer_free(&writer);
}

/* What the file has in place of 0.625. */
static void patch_fit(float with)
{
    static unsigned char bytes[10000];
    const float was = 0.625f;
    FILE *file = fopen(fit_path, "r+b");
    assert_non_null(file);
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    size_t at = size % 4;
    while (at + 4 <= size && memcmp(bytes + at, &was, 4) != 0) at += 4;
    assert_true(at + 4 <= size && fseek(file, (long)at, SEEK_SET) == 0 && fwrite(&with, 4, 1, file) == 1);
    assert_int_equal(fclose(file), 0);
}

TEST(what_is_persistent_is_resident)
{
    static const float similarity[8] = { 1, 1, 0.2f, 0.1f, 0.2f, 0.1f, 0.2f, 0.1f };
    char id[400];
    assert_same("clo:dataset=iid,heads=4/2,head_dim=24,layers=1,steps=6,threads=1,ctx=150+33,prefetch=0,persistent=all",
                "resident:dataset=iid,heads=4/2,head_dim=24,layers=1,steps=6,threads=1,ctx=150+33");
    write_fit("sink=4,recent=64", 4, similarity, NULL);
    snprintf(id, sizeof id, WALK "150+33,persistent=all,fit=%s", fit_path);
    assert_same(id, "resident:dataset=walk,layers=4,heads=4/2,head_dim=24,steps=10,threads=1,ctx=150+33");
    unlink(fit_path);
}

/* The hardest heads are, while there is room: of seven whose D is positive so many as the budget takes. */
TEST(the_hardest_heads_are_persistent)
{
    static const float similarity[8] = { 1, 1, 0.2f, 0.1f, 0.4f, 0.99f, 0.3f, 0.5f };
    static const bool always[8] = { true, true, true, true, true, false, true, true };
    static const size_t order[] = { 3, 2, 6, 4, 7 };
    char id[400];
    write_fit("sink=4,recent=64", 4, similarity, NULL);
    const double each = 2 * 24 * 2 * 160; /* of a head: K and V of 160 tokens, f16 */
    /* just enough for so many more, or nearly for another */
    for (size_t i = 0; i < 2 * COUNT(order) + 3; i++) {
        struct ha_pass p;
        const size_t more = i / 2;
        const bool any = more > COUNT(order);
        snprintf(id, sizeof id, WALK "150,fit=%s,device_budget_MB=%.6f", fit_path,
                 any ? 0 : ((double)(2 + more) + (i % 2 ? 0.98 : 0.01)) * each / 1e6);
        open_session(id);
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
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        close_session();
    }
    unlink(fit_path);
}

/* ---- the same query ---------------------------------------------------------------------------------------------- */

/* All steps have the inputs of the first: what has missed then hits by whatever threshold, and nothing comes. */
TEST(the_same_query_hits)
{
    static const char *const of[] = { "300+145", "300+145,group=min", "300+145,prefetch=0,retrieve=exact", "14+3",
                                      "300+145,predict=cpu,sync=cpu,transfer=pieces" };
    for (size_t i = 0; i < COUNT(of); i++) {
        struct ha_pass p;
        char id[256];
        snprintf(id, sizeof id, WALK "%s,sink=5,recent=12,budget=0.2,eta=1", of[i]);
        open_session(id);
        const struct ha_shape *s = &session.workload->shape;
        const size_t step_bytes = s->layers * session.io.in_bytes;
        for (size_t step = 1; step < s->steps; step++) {
            assert_ok(
                session.api->copy(session.stream, session.in + step * step_bytes, session.in, step_bytes, HA_D2D));
            assert_ok(session.api->stream_sync(session.stream));
        }
        const double of_sequence = (double)((s->layers - 1) * s->kv_heads), heads = of_sequence * (double)s->batch;
        double left_out = 0;
        begin_pass(&p, false);
        for (size_t step = 0; step < s->steps; step++) {
            assert_ok(ha_pass_step(&p, step, &reason));
            const struct counted c = count_of(&p);
            if (c.misses != heads || c.hits != (double)step * heads)
                fail_msg("%s, step %zu: %g misses, %g hits", id, step, c.misses, c.hits);
            /* a key that leaves the window is in no buffer until the next miss */
            for (size_t b = 0; b < s->batch; b++)
                left_out += of_sequence * (fmax(0, (double)(s->ctx[b] + step) - 17) - fmax(0, (double)s->ctx[b] - 17));
            assert_true(c.left_out == left_out);
        }
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        close_session();
    }
}

/* ---- sequences and heads do not know of each other --------------------------------------------------------------- */

TEST(a_sequence_is_as_it_is_alone)
{
    struct seen both = see(WALK "210+145,sink=5,recent=12,eta=0.95,budget=0.2"),
                alone = see(WALK "210,sink=5,recent=12,eta=0.95,budget=0.2");
    assert_true(both.heads == 2 * alone.heads && both.tokens == alone.tokens);
    for (size_t i = 0; i < alone.heads; i++) {
        const size_t at = i / 4 * 8 + i % 4; /* behind each four heads are those of the other */
        assert_memory_equal(both.uses + at * both.tokens, alone.uses + i * alone.tokens, alone.tokens);
        for (size_t d = 0; d < alone.dim; d++)
            assert_near((double)both.o[at * both.dim + d], (double)alone.o[i * alone.dim + d], 1e-4);
    }
    unsee(&both);
    unsee(&alone);
}

/* What each KV head has in a row, of rows apart: change places. */
static void swap(void *at, size_t rows, size_t apart, size_t head_bytes)
{
    unsigned char *p = at;
    for (size_t i = 0; i < rows; i++, p += apart)
        for (size_t j = 0; j < head_bytes; j++) {
            const unsigned char first = p[j];
            p[j] = p[head_bytes + j];
            p[head_bytes + j] = first;
        }
}

static struct ha_variant swapped;
static enum ha_status prefill_swapped(struct ha_instance *self, size_t layer, const struct ha_prefill *in,
                                      struct ha_why *because)
{
    const struct ha_shape *s = &session.workload->shape;
    const size_t head = in->cap * s->head_dim * ha_dtype_bytes(s->dtype);
    void *kv[2] = { malloc(2 * head), malloc(2 * head) };
    for (size_t i = 0; i < 2; i++) {
        memcpy(kv[i], i ? in->v[0] : in->k[0], 2 * head);
        swap(kv[i], 1, 0, head);
    }
    struct ha_prefill other = *in;
    other.k = (const void *const *)&kv[0];
    other.v = (const void *const *)&kv[1];
    const enum ha_status status = session.variant->prefill(self, layer, &other, because);
    free(kv[0]);
    free(kv[1]);
    return status;
}

/* Outputs of all steps, of one sequence with two KV heads that may have changed places. */
static float *outputs_of(const char *id, bool other_way)
{
    struct ha_pass p;
    open_session(id);
    const struct ha_shape *s = &session.workload->shape;
    const size_t bytes = ha_dtype_bytes(s->dtype), dim = s->head_dim, rows = s->q_len * s->q_heads * dim;
    float *out = malloc(s->steps * s->layers * rows * sizeof *out);
    for (size_t i = 0; other_way && i < s->steps * s->layers; i++) {
        unsigned char *in = session.in + i * session.io.in_bytes;
        swap(in + session.io.q, s->q_len, s->q_heads * dim * sizeof(float), s->q_heads / 2 * dim * sizeof(float));
        swap(in + session.io.k, s->q_len, 2 * dim * bytes, dim * bytes);
        swap(in + session.io.v, s->q_len, 2 * dim * bytes, dim * bytes);
    }
    swapped = *session.variant;
    if (other_way) swapped.prefill = prefill_swapped;
    assert_ok(ha_pass_begin(&p, &session, &swapped, session.param, false, &reason));
    for (size_t step = 0; step < s->steps; step++) {
        assert_ok(ha_pass_step(&p, step, &reason));
        for (size_t layer = 0; layer < s->layers; layer++) {
            float *o = out + (step * s->layers + layer) * rows;
            const size_t at = ha_session_slot(s->steps, step) * s->layers + layer;
            memcpy(o, session.out + at * session.io.out_bytes + session.io.o, rows * sizeof *o);
            if (other_way) swap(o, s->q_len, s->q_heads * dim * sizeof *o, s->q_heads / 2 * dim * sizeof *o);
        }
    }
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    close_session();
    return out;
}

TEST(heads_may_change_places)
{
    static const char *const ids[] = { "clo:dataset=walk,layers=3," SHAPE
                                       "210,sink=5,recent=12,eta=0.95,budget=0.2,retrieve=exact,prefetch=0",
                                       "clo:dataset=walk,layers=3," SHAPE
                                       "210,sink=5,recent=12,eta=0.9,budget=0.2,retrieve=quest,prefetch=0,q_len=2" };
    for (size_t i = 0; i < COUNT(ids); i++) {
        float *a = outputs_of(ids[i], false), *b = outputs_of(ids[i], true);
        for (size_t j = 0; j < 3 * 10 * 4 * 24; j++) assert_near((double)a[j], (double)b[j], 1e-5);
        free(a);
        free(b);
    }
}

/* ---- back -------------------------------------------------------------------------------------------------------- */

TEST(back_to_the_prefill)
{
    static const char *const ids[] = { WALK "300+145,sink=5,recent=12,eta=0.95,budget=0.2",
                                       WALK "300+3,sink=5,recent=4,eta=0.95,budget=0.2,q_len=7,retrieve=quest,sync=cpu",
                                       WALK "14+3,sink=5,recent=12,eta=0.9,budget=1",
                                       WALK "30,sink=0,recent=0,eta=0.9,budget=1,retrieve=exact,transfer=gather" };
    for (size_t i = 0; i < COUNT(ids); i++) {
        struct ha_pass p;
        struct counted before = { 0 };
        open_session(ids[i]);
        const size_t bytes = session.workload->shape.layers * session.io.out_bytes, steps = opened.c.shape.steps;
        unsigned char *first = malloc(2 * bytes);
        begin_pass(&p, false);
        for (int again = 0; again < 3; again++) {
            const struct counted none = count_of(&p);
            assert_true(none.hits + none.misses + none.left_out + none.bytes == 0);
            for (size_t step = 0; step < steps; step++) assert_ok(ha_pass_step(&p, step, &reason));
            assert_ok(ha_pass_settle(&p, &reason));
            for (size_t k = 0; k < 2; k++) {
                assert_ok(ha_pass_download(&p, k ? steps - 1 : 1, &reason));
                if (again) assert_memory_equal(first + k * bytes, session.host_out, bytes);
                else memcpy(first + k * bytes, session.host_out, bytes);
            }
            const struct counted c = count_of(&p);
            if (again)
                assert_true(c.hits == before.hits && c.misses == before.misses && c.left_out == before.left_out
                            && c.bytes == before.bytes);
            assert_true(c.hits > 0 && c.misses > 0);
            before = c;
            assert_ok(ha_pass_rewind(&p, &reason));
        }
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        free(first);
        close_session();
    }
}

/* ---- what is lacking --------------------------------------------------------------------------------------------- */

static enum ha_status no_mapped(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                struct ha_why *because)
{
    if (kind == HA_MEM_MAPPED) return ha_why(because, HA_ERROR, "there is none");
    return real->mem_alloc(dev, kind, bytes, ptr, because);
}
static enum ha_status no_window(struct ha_device *dev, void *ptr, size_t bytes, void **host, struct ha_why *because)
{
    return ha_why(because, HA_WAIVED, "no driver maps this device's memory");
}

static void assert_begins(enum ha_status status, const char *text)
{
    struct ha_pass p;
    const enum ha_status is = ha_pass_begin(&p, &session, session.variant, session.param, false, &reason);
    if (is != status || !strstr(reason.text, text)) fail_msg("%d, '%s' lacks '%s'", (int)is, reason.text, text);
    assert_null(strchr(reason.text, '\n'));
    close_session();
}

TEST(what_a_device_lacks)
{
#define SMALL "clo:dataset=walk,ctx=40,heads=4/2,head_dim=24,layers=2,steps=1"
    open_shim(SMALL);
    shim.mem_alloc = no_mapped;
    assert_begins(HA_WAIVED, "the device has no mapped memory: there is none");
    open_shim(SMALL ",retrieve=exact,transfer=pieces");
    shim.mem_alloc = no_mapped;
    assert_begins(HA_WAIVED, "the device has no mapped memory: there is none");
    open_shim(SMALL ",transfer=stores");
    shim.map_device = NULL;
    assert_begins(HA_WAIVED, "the device has no operation map_device; another transfer= needs none");
    open_shim(SMALL ",transfer=stores");
    shim.map_device = no_window;
    assert_begins(HA_WAIVED, "no driver maps this device's memory");
    open_shim(SMALL ",transfer=pieces");
    shim.copy_pieces = NULL;
    assert_begins(HA_WAIVED, "the device has no operation copy_pieces");
    open_shim(SMALL ",transfer=kernel");
    shim.move = NULL;
    assert_begins(HA_WAIVED, "the device has no operation move");
    open_shim(SMALL);
    shim.flag_wait = NULL;
    assert_begins(HA_WAIVED, "the device has no operation flag_wait, by which device and engine wait for each other");
    open_shim(SMALL);
    shim.hash = NULL;
    assert_begins(HA_WAIVED, "the device has no operation hash; another retrieve= needs none");
    open_shim(SMALL ",hash=learned");
    assert_begins(HA_WAIVED, "hash=learned takes the matrices of a fit");
    open_shim(SMALL ",device_budget_MB=0.001");
    assert_begins(HA_ERROR, "keys and values of the first layer stay on the device: 0.008 MB, of which "
                            "device_budget_MB allows 0.001: raise it");
    open_shim("clo:dataset=iid,ctx=40,layers=2,steps=1");
    assert_begins(HA_WAIVED, "the dataset has no layer inputs to predict from: take dataset=walk");
    /* of one layer nothing is predicted, and what needs none does without */
    struct ha_pass p;
    open_shim("clo:dataset=iid,ctx=40,layers=1,steps=1");
    begin_pass(&p, false);
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    close_session();
    open_shim(SMALL ",transfer=kernel,retrieve=quest");
    shim.map_device = NULL;
    shim.hash = NULL;
    shim.copy_pieces = NULL;
    begin_pass(&p, false);
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    close_session();
}

/* A fit that is none of this case, or has numbers that are none of its kind. */
TEST(fits_that_are_wrong)
{
    static const float right[8] = { 1, 1, 1, 1, 1, 1, 1, 1 }, above[8] = { 1, 1, 1, 1, 1, 1.5f, 1, 1 },
                       none[8] = { 1, 1, 1, 0.625f, 1, 1, 1, 1 };
    static const struct {
        const char *params;
        size_t layers;
        const float *importance;
        const char *text;
    } of[] = {
        { "sink=5,recent=64", 4, right, "was made for params 'sink=5,recent=64', the case has 'sink=4,recent=64'" },
        { "sink=4,recent=64", 3, right, "was made for layers '3', the case has '4'" },
        { "sink=4,recent=64", 4, above, "the fit's tensor importance_kv has 1.5 at [2][1], and 0 to 1 is wanted" },
        { "sink=4,recent=64", 4, none, "importance_kv[1][1] is NaN" },
    };
    for (size_t i = 0; i < COUNT(of); i++) {
        struct ha_pass p;
        char id[400];
        write_fit(of[i].params, of[i].layers, NULL, of[i].importance);
        if (of[i].importance == none) patch_fit((float)NAN);
        snprintf(id, sizeof id, WALK "40,fit=%s", fit_path);
        enum ha_status status = try_session(id, NULL);
        if (status == HA_OK) status = ha_pass_begin(&p, &session, session.variant, session.param, false, &reason);
        if (status != HA_ERROR || !strstr(reason.text, of[i].text) || strchr(reason.text, '\n'))
            fail_msg("%s: '%s' lacks '%s'", id, reason.text, of[i].text);
        close_session();
        unlink(fit_path);
    }
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
