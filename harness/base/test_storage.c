/* What each way to keep the cache takes, against figures that were worked out by hand from Llama-3-8B. */

#include "harness/base/storage.h"
#include "harness/base/model.h"
#include "harness/base/test.h"

static const struct ha_cached llama = { 32, 32, 8, 128, 16060522496 };
enum { GB = 1000000000 };

static struct ha_storage named(const char *name)
{
    struct ha_storage s;
    char is[HA_STORAGE_NAME];
    for (size_t i = 0; ha_storage_at(i, &s); i++) {
        ha_storage_name(&s, is);
        if (!strcmp(is, name)) return s;
    }
    fail_msg("there is no %s", name);
    return s;
}

static struct ha_need need(const char *name, uint64_t tokens)
{
    const struct ha_storage s = named(name);
    struct ha_need n;
    assert_true(ha_storage_need(&s, &llama, tokens, &n));
    return n;
}

TEST(four_million_tokens)
{
    static const struct {
        const char *name;
        uint64_t kv, books; /* 4 * 10^6 tokens */
    } wanted[] = {
        { "resident", 524288000000, 0 },
        { "hcattention:keys=exact", 262144000000, 0 },
        { "hcattention:dims=4,c=8192", 65536000000, 33554432 }, /* 16,384 of a token */
        { "hcattention:dims=4,c=8192,pack=1", 53248000000, 33554432 },
        { "hcattention:dims=4,c=8192,books=separate", 65536000000, 1073741824 },
        { "hcattention:dims=2,c=8192", 131072000000, 16777216 },
        { "hcattention:dims=8,c=256", 16384000000, 2097152 },
        { "hcattention:dims=8,c=8192,pack=1,books=separate", 26624000000, 1073741824 },
    };
    for (size_t i = 0; i < COUNT(wanted); i++) {
        const struct ha_need n = need(wanted[i].name, 4000000);
        const bool down = i > 0;
        const uint64_t fresh = down ? 64 * 131072 : 0, host = down ? 4000000 * (uint64_t)65536 : 0;
        if (n.kv != wanted[i].kv || n.books != wanted[i].books)
            fail_msg("%s: %llu and %llu", wanted[i].name, (unsigned long long)n.kv, (unsigned long long)n.books);
        assert_int_equal(n.fresh, fresh);
        assert_int_equal(n.device, n.kv + n.books + n.fresh + n.step + llama.weights_bytes);
        assert_int_equal(n.kv_host, host);
        assert_int_equal(n.host, n.kv_host + n.step_host);
    }
    /* of a step: a table of 4 query heads for each of 8 KV heads, and of 32 query heads a score, an id, a weight a key
     */
    const struct ha_need n = need("hcattention:dims=4,c=8192", 4000000);
    assert_int_equal(n.step, 8 * (32 * 8192 * 4 * 4) + (uint64_t)32 * 4000000 * 12);
    assert_int_equal(n.step_host, (uint64_t)32 * 4000000 * 8);
    assert_int_equal(need("resident", 4000000).step, 0);
}

TEST(few_tokens_take_whole_blocks)
{
    assert_int_equal(need("resident", 0).kv, 0);
    assert_int_equal(need("hcattention:dims=4,c=8192", 0).kv, 0);
    /* a block of 32 keys, 2 KiB of a head; 13 bits: 1664 bytes, 1792 with what aligns them to 256 */
    assert_int_equal(need("hcattention:dims=4,c=8192", 1).kv, 32 * 8 * 2048);
    assert_int_equal(need("hcattention:dims=4,c=8192,pack=1", 32).kv, 32 * 8 * 1792);
    assert_int_equal(need("hcattention:dims=4,c=8192,pack=1", 33).kv, 32 * 8 * 3328);
    assert_int_equal(need("hcattention:keys=exact", 3).fresh, 3 * 131072);
    assert_int_equal(need("hcattention:keys=exact", 17).step, 32 * 32 * 12);
}

TEST(the_most_tokens_that_fit)
{
    struct ha_storage s;
    for (size_t i = 0; ha_storage_at(i, &s); i++)
        for (uint64_t bytes = 18 * (uint64_t)GB; bytes < 2000 * (uint64_t)GB; bytes += bytes / 3) {
            const uint64_t tokens = ha_storage_tokens(&s, &llama, bytes);
            struct ha_need held, too_many;
            assert_true(ha_storage_need(&s, &llama, tokens, &held));
            assert_true(ha_storage_need(&s, &llama, tokens + 1, &too_many));
            assert_true(held.device <= bytes && too_many.device > bytes);
            assert_int_equal(ha_storage_tokens(&s, &llama, held.device), tokens);
            if (tokens) assert_true(ha_storage_tokens(&s, &llama, held.device - 1) < tokens);
        }
    /* in 80 GB with 13 bits alone, in 80 GiB with 16 too */
    const struct ha_storage packed = named("hcattention:dims=4,c=8192,pack=1"),
                            whole = named("hcattention:dims=4,c=8192");
    assert_true(ha_storage_tokens(&packed, &llama, 80 * (uint64_t)GB) >= 4000000);
    assert_true(ha_storage_tokens(&whole, &llama, 80 * (uint64_t)GB) < 4000000);
    assert_true(ha_storage_tokens(&whole, &llama, (uint64_t)80 << 30) >= 4000000);
    assert_int_equal(ha_storage_tokens(&whole, &llama, 16 * (uint64_t)GB), 0); /* less than the weights */
    assert_int_equal(ha_storage_tokens(&whole, &llama, 0), 0);
}

TEST(sums_do_not_wrap)
{
    const struct ha_cached large = { 1024, 1024, 1024, 576, 0 }, heavy = { 32, 32, 8, 128, UINT64_MAX - 1000 };
    struct ha_storage s;
    struct ha_need n;
    for (size_t i = 0; ha_storage_at(i, &s); i++) {
        const uint64_t tokens = ha_storage_tokens(&s, &large, UINT64_MAX);
        assert_true(tokens > 1 << 30 && tokens <= HA_STORAGE_TOKENS_MAX);
        assert_true(ha_storage_need(&s, &large, tokens, &n));
        if (tokens < HA_STORAGE_TOKENS_MAX) assert_false(ha_storage_need(&s, &large, tokens + 1, &n));
        assert_false(ha_storage_need(&s, &heavy, 4000000, &n));
        assert_int_equal(ha_storage_tokens(&s, &heavy, UINT64_MAX), 0);
    }
    const struct ha_storage full = named("resident");
    assert_false(ha_storage_need(&full, &large, HA_STORAGE_TOKENS_MAX, &n));
}

TEST(every_model_can_be_cut)
{
    struct ha_storage s;
    struct ha_need n;
    for (size_t m = 0; m < HA_MODELS_COUNT; m++) {
        const struct ha_model *of = &ha_models[m];
        const struct ha_cached c = { of->layers, of->q_heads, of->kv_heads, of->head_dim, 2 * of->parameters };
        /* embeddings aside: four or five products of a layer */
        const uint64_t hidden = of->hidden, heads = 2 * of->q_heads + 2 * of->kv_heads,
                       layer = hidden * (heads * of->head_dim + (of->gated ? 3 : 2) * of->feed_forward),
                       less = of->layers * layer;
        assert_true(of->parameters > less && of->parameters < less + less / 3);
        for (size_t i = 0; ha_storage_at(i, &s); i++) {
            if (s.codes) assert_int_equal(ha_storage_pq(&s, c.head_dim).groups * s.dims, c.head_dim);
            assert_true(ha_storage_need(&s, &c, 1000000, &n));
        }
    }
}
