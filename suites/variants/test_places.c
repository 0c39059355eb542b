/* New tokens by one move of K and one of V, or by a copy for each sequence where the device has no move: the outputs
 * are the same bits, and in place of the copies inside the device there are two moves in a layer. */

#include "suites/variants/test_session.h"

static const struct ha_device_api *real;
static struct ha_device_api shim;
static size_t moves, copies; /* moves of new tokens; copies inside the device */

static enum ha_status move(struct ha_stream *s, const struct ha_device_move *args)
{
    moves += !args->src_index;
    return real->move(s, args);
}
static enum ha_status copy(struct ha_stream *s, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    copies += dir == HA_D2D;
    return real->copy(s, dst, src, bytes, dir);
}

enum { SEQS = 3, LAYERS = 2 };
#define OF(ctx) "dataset=walk,ctx=" ctx ",heads=4/2,head_dim=16,layers=2,threads=1"
#define SHAPE   OF("70+9+41") ",steps=12"
#define APPEND  OF("70+9+41") ",q_len=5,steps=4"

static const char *const cases[] = {
    "resident:" SHAPE,
    "device_only:" SHAPE,
    "offload:" APPEND,
    "hgca:" SHAPE ",blk_size=4,blk_num=4",
    "hgca:" APPEND ",blk_size=4,blk_num=4",
    "streaming:" SHAPE ",sink=12,window=10",
    "streaming:" APPEND ",sink=12,window=10",
    "tova:" SHAPE ",budget=0.5",
    "tova:" APPEND ",budget=1.05",
    "quest:" SHAPE ",block=8,budget=16",
    "topk:" APPEND ",k=16",
    "infinigen:" SHAPE ",predict=cpu",
    "hybrid_fixed:" SHAPE ",sink=12,recent=6,block=16,budget=0.5",
    "hybrid_fixed:" APPEND ",sink=12,recent=6,block=16,budget=0.5",
    "gpu_only:" APPEND ",block=8,budget=0.5",
    "hcattention:" SHAPE ",c=64",
    "scout:" SHAPE ",block=8,budget=45,recall=off", /* what is recalled depends on when */
    "fluxion:" OF("260+300+340") ",steps=4,sink=16,recent=32,predict=fixed,budget=0.3,schedule=none",
    "fluxion:" OF("260+300+340") ",q_len=3,steps=4,sink=16,recent=32,predict=fixed,budget=0.3,schedule=none",
};

/* The last outputs of all steps' passes, to be freed. */
static char *outputs(const char *id, bool moves_too, size_t *bytes)
{
    struct ha_pass p;
    open_session(id);
    const struct ha_shape *s = &session.workload->shape;
    real = session.variant_api;
    shim = *real;
    shim.move = moves_too ? move : NULL;
    shim.copy = copy;
    session.variant_api = &shim;
    begin_pass(&p, false);
    moves = copies = 0;
    for (size_t step = 0; step < s->steps; step++) assert_ok(ha_pass_step(&p, step, &reason));
    assert_ok(ha_pass_download(&p, s->steps - 1, &reason));
    *bytes = s->batch * s->q_len * s->q_heads * s->head_dim * sizeof(float);
    char *kept = malloc(*bytes);
    assert_non_null(kept);
    memcpy(kept, session.host_out, *bytes);
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    close_session();
    return kept;
}

TEST(moved_or_copied)
{
    for (size_t i = 0; i < COUNT(cases); i++) {
        const size_t steps = strstr(cases[i], "steps=12") ? 12 : 4;
        size_t bytes;
        char *moved = outputs(cases[i], true, &bytes);
        const size_t others = copies;
        if (moves != 2 * LAYERS * steps) fail_msg("%s: %zu moves", cases[i], moves);
        char *copied = outputs(cases[i], false, &bytes);
        if (moves || copies < others + 2 * SEQS * LAYERS * steps)
            fail_msg("%s: %zu moves, %zu copies without, %zu with", cases[i], moves, copies, others);
        if (memcmp(moved, copied, bytes) != 0) fail_msg("%s: the outputs differ", cases[i]);
        free(moved), free(copied);
    }
}
